"""An experiment's cells in this process: quick to start, and their names can be looked at."""

import json
import os

from conftest import ROOT

os.environ.setdefault("TQDM_DISABLE", "1")


def run_cells(name, before=None, **parameters):
    """Run nbs/experiments/NAME.ipynb from its top, or up to the cell that contains `before`; its names afterwards."""
    cells = json.loads((ROOT / "nbs" / "experiments" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    shown = []
    names = {}
    names["display"] = lambda *things: shown.extend(things)
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        source = "".join(cell["source"])
        if before and before in source:
            return names
        exec(compile(source, f"{name}.ipynb", "exec"), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert not set(parameters) - set(names), f"{name} has no parameter {set(parameters) - set(names)}"
            names |= parameters
    assert before is None, f"no cell of {name} contains {before!r}"
    return names


def tables(notebook):
    """The tables that a notebook shows."""
    cells = json.loads(notebook.read_text())["cells"]
    cells = [cell for cell in cells if "injected-parameters" not in cell["metadata"].get("tags", [])]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    pages = ["".join(data.get("text/html", "")) for data in outputs]
    return [page for page in pages if 'class="dataframe"' in page]


def shown_pages(notebook):
    """The tables, verdicts and texts that a notebook shows."""
    cells = json.loads(notebook.read_text())["cells"]
    cells = [cell for cell in cells if "injected-parameters" not in cell["metadata"].get("tags", [])]
    outputs = [output.get("data", {}) for cell in cells for output in cell.get("outputs", [])]
    pages = ["".join(data.get("text/html", data.get("text/markdown", ""))) for data in outputs]
    kinds = ('class="dataframe"', 'class="verdict"')
    return [
        page for page, data in zip(pages, outputs) if "text/markdown" in data or any(kind in page for kind in kinds)
    ]


def shown_of_result(notebook):
    """What the cells behind the one that gets the result show: the outputs of each as text, but for what goes to
    stderr; a figure as its data, without the page around it, whose ids are drawn."""
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    (place,) = [k for k, cell in enumerate(cells) if "result = Result.read(report_from)" in "".join(cell["source"])]
    shown = []
    for cell in cells[place + 1 :]:
        outputs = [output for output in cell["outputs"] if output.get("name") != "stderr"]
        data = [output.get("data", {}).get("application/vnd.plotly.v1+json", output) for output in outputs]
        shown.append([json.dumps(part) for part in data])
    return shown
