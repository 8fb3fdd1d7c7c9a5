"""An experiment notebook gets its result in one cell, measured or read, and draws all else from that result."""

import ast
import builtins
import json
import symtable

import pytest
from conftest import ROOT

GETS = "result = Result.read(report_from) if report_from else measure()"
ALLOWED = {"result", "where", "display", *vars(builtins)}  # where: the folder that figures go to


def code_of(path):
    """The code of a notebook, cell after cell."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")


def globals_of(statement):
    """The global names that a statement uses, also inside its functions, and those that it binds."""
    used = set()
    bound = set()
    tables = [symtable.symtable(ast.unparse(statement), "cell", "exec")]
    while tables:
        table = tables.pop()
        for symbol in table.get_symbols():
            is_global = table.get_type() == "module" or symbol.is_global()
            if is_global and symbol.is_referenced():
                used.add(symbol.get_name())
            if is_global and (symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()):
                bound.add(symbol.get_name())
        tables += table.get_children()
    return used, bound


def foreign_names(code):
    """The names that are used behind the result and come neither from it, nor from imports, constants and functions
    of these alone."""
    statements = ast.parse(code).body
    (at,) = [k for k, statement in enumerate(statements) if ast.unparse(statement) == GETS]
    known = set(ALLOWED)
    inside = {}  # name of a function, class or constant -> the global names that it uses
    for statement in statements[:at]:
        uses, binds = globals_of(statement)
        if isinstance(statement, (ast.Import, ast.ImportFrom)):
            known |= binds
        elif isinstance(statement, (ast.FunctionDef, ast.ClassDef)) or all(name.isupper() for name in binds):
            inside |= dict.fromkeys(binds, uses)
    foreign = set()
    later = set()  # all that is used behind the result
    for statement in statements[at + 1 :]:
        uses, binds = globals_of(statement)
        later |= uses
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef)):  # a function may use what is bound behind it
            foreign |= uses - known - binds - set(inside)
        known |= binds
    waiting = list(later)
    seen = set()
    while waiting:
        name = waiting.pop()
        if name not in seen and name in inside and name not in known:
            waiting += inside[name]
        seen.add(name)
    return sorted(foreign | {name for name in seen if name not in known and name not in inside})


NOTEBOOKS = [path for path in sorted((ROOT / "nbs" / "experiments").glob("*.ipynb")) if GETS in code_of(path)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_draws_from_its_result_alone(path):
    code = code_of(path)
    assert code.count("report_from") == 3, "report_from is a parameter, and is asked about in one line"
    assert foreign_names(code) == [], "take these from `result`, or bind them behind it"


def test_names_that_do_not_come_from_the_result_are_found():
    start = "import pandas as pd\nsteps = 3\nMOST = 4\n\ndef half():\n    return steps / 2\n\n"
    start += "def measure():\n    return half()\n\n"
    right = "taken = result.setting['steps']\n\ndef table(steps):\n    return pd.Series([steps, MOST])\n\ntable(taken)"
    assert foreign_names(f"{start}{GETS}\n{right}") == []
    assert foreign_names(f"{start}{GETS}\nsteps = result.setting['steps']\nprint(steps)") == []
    assert foreign_names(f"{start}{GETS}\nprint(steps)") == ["steps"]
    assert foreign_names(f"{start}{GETS}\nprint(steps)\nsteps = result.setting['steps']") == ["steps"], "too late"
    assert foreign_names(f"{start}{GETS}\nprint(half())") == ["steps"], "through a function"
    assert foreign_names(f"{start}{GETS}\nif model:\n    print([model for k in 'ab'])") == ["model"]


def test_the_notebooks_of_studies_are_asked():
    names = {path.stem for path in NOTEBOOKS}
    assert names >= {
        "hard_negatives",
        "multistage_clip",
        "multistage",
        "composer",
        "grounded_words",
        "overlap",
        "identifiability",
    }
