"""An experiment draws from its result alone: a results file gives the figures and tables of the measuring run."""

import json

import pytest
from conftest import ROOT

from complearn.analysis.runs.notebook_page import write_notebook_page

NAMES = (
    "benchmarks",
    "caption_edits",
    "concept_graph",
    "grounding",
    "holistic_language",
    "hue_names",
    "lipschitz",
    "masked_language_model",
    "purity",
    "search",
    "semantic_space",
    "slider_control",
    "stages_control",
    "structural_worlds",
    "tree_control",
)


FIGURE = "application/vnd.plotly.v1+json"


def drawn(report):
    """What the cells show from the result's cell on, figures and tables, without what is printed and bars."""
    cells = json.loads(report.read_text(encoding="utf-8"))["cells"]
    (first,) = (k for k, cell in enumerate(cells) if "else measure()" in "".join(cell["source"]))
    shown = [
        (cell["id"], output["data"])
        for cell in cells[first:]
        for output in cell.get("outputs", [])
        if "data" in output and not any("widget" in kind for kind in output["data"])
    ]
    # a figure's page has another number each time
    return [(cell, {FIGURE: data[FIGURE]} if FIGURE in data else data) for cell, data in shown]


@pytest.mark.parametrize("name", NAMES)
def test_a_results_file_draws_what_the_measuring_run_drew(name, smoke, experiment, tmp_path):
    measured = smoke(f"experiments/{name}").folder
    report = experiment(f"experiments/{name}", tmp_path / "report", report_from=str(measured / "results.json"))
    assert report.good and not (tmp_path / "report" / "results.json").exists()
    assert drawn(tmp_path / "report" / "report.ipynb") == drawn(measured / "report.ipynb")


@pytest.mark.parametrize("path", sorted((ROOT / "nbs" / "experiments").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_page_of_a_notebook_shows_words_where_the_notebook_does(path, tmp_path):
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    page = write_notebook_page(copy).read_text(encoding="utf-8")
    body = page[page.index("<body") : page.index("<summary>Code</summary>")]
    assert "object at 0x" not in body and "display.Markdown" not in body
