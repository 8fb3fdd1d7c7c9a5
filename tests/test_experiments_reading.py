"""How an experiment notebook reads: its verdict first, its tables folded."""

import json
import re

import pytest
from conftest import ROOT

EXPERIMENTS = sorted(path.stem for path in (ROOT / "nbs" / "experiments").glob("*.ipynb"))
OTHERS = {"claims"}  # a table of all studies, which draws no result of its own
NAMES = [name for name in EXPERIMENTS if name not in OTHERS]
GETS_THE_RESULT = re.compile(r"^result = Result\.read\(report_from\)", re.M)
FOLD = re.compile(r"<details\b.*?</details>", re.S)
UNFOLDED = 2  # tables at most


def cells_of(name):
    """The cells of an experiment notebook."""
    return json.loads((ROOT / "nbs" / "experiments" / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def page(output):
    """What an output shows as HTML."""
    return "".join(output.get("data", {}).get("text/html", ""))


def after_the_result(cells):
    """The first text or output behind the cell that gets the result; headings alone are no text."""
    (place,) = [k for k, cell in enumerate(cells) if GETS_THE_RESULT.search("".join(cell["source"]))]
    assert not cells[place]["outputs"], "the cell that gets the result shows something before the verdict"
    for cell in cells[place + 1 :]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown" and not re.fullmatch(r"#+ .*", source.strip()):
            return source
        if cell.get("outputs"):
            return page(cell["outputs"][0])
    return ""


def unfolded_tables(cells):
    """How many tables are open."""
    tables = 0
    for cell in cells:
        if cell["cell_type"] == "markdown":
            tables += len(re.findall(r"^\|[ :|-]+\|$", FOLD.sub("", "".join(cell["source"])), re.M))
        tables += sum(FOLD.sub("", page(output)).count("<table") for output in cell.get("outputs", []))
    return tables


@pytest.mark.parametrize("name", NAMES)
def test_the_verdict_comes_first_and_tables_are_folded(name):
    cells = cells_of(name)
    first = after_the_result(cells)
    assert 'class="verdict"' in first, f"{name} shows something before its verdict: {first[:200]}"
    assert first.count("<p>") > 1, f"the verdict of {name} is empty"
    assert unfolded_tables(cells) <= UNFOLDED, f"{name} shows {unfolded_tables(cells)} tables that are not folded"
    folds = [page(output) for cell in cells for output in cell.get("outputs", []) if "<details" in page(output)]
    assert sum(fold.count("<table") for fold in folds) > 1, f"{name} has lost its tables"


@pytest.mark.parametrize("name", NAMES)
def test_folded_tables_are_whole(name):
    """All rows, and no text that is cut."""
    pages = [page(output) for cell in cells_of(name) for output in cell.get("outputs", [])]
    folds = "".join(fold for text in pages for fold in FOLD.findall(text))
    assert not re.search(r"\d+ rows × \d+ columns|\.\.\.</t[dh]>", folds), f"{name} cuts a table"


NOT_YET = {"data/measured/negclip.results.json"}  # a study that is not measured


@pytest.mark.parametrize("path", sorted((ROOT / "nbs").glob("*/*.ipynb")), ids=lambda path: path.stem)
def test_measured_files_that_a_notebook_names_exist(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    sources = "".join("".join(cell["source"]) for cell in cells)
    named = set(re.findall(r"data/measured/[\w/-]+\.results\.json", sources)) - NOT_YET
    assert not [file for file in sorted(named) if not (ROOT / file).is_file()]


# what was learned about the studies of this project by looking at them; no word of it is true of another run
OF_OUR_STUDIES = (
    "The kinds were chosen after these rows had been seen",
    "The kinds of question were chosen when the rows had been seen",
    "No human has marked the edits",
    "Small towers and pictures of two objects",
    "No method was tuned but SimCLR",
    "no pretrained CLIP was fine-tuned",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("ablations", "caption_edits", "composer", "learnability", "multistage"))
def test_limits_of_our_study_are_not_told_over_another_run(name, smoke):
    run = smoke(f"experiments/{name}")
    assert run.good
    cells = json.loads((run.folder / "report.ipynb").read_text(encoding="utf-8"))["cells"]
    first = next(
        page(output) for cell in cells for output in cell.get("outputs", []) if 'class="verdict"' in page(output)
    )
    told = [said for said in OF_OUR_STUDIES if said in first]
    assert not told, f"over a run of its own {name} tells of the study of this project: {told}"
    if name != "caption_edits":
        assert "nothing was learned yet" in first or "learned hardly anything yet" in first or "One seed" in first


def test_a_laboratory_log_is_noticed():
    def code(source, html=""):
        outputs = [{"output_type": "display_data", "data": {"text/html": html}}] if html else []
        return {"cell_type": "code", "source": [source], "outputs": outputs}

    def prose(text):
        return {"cell_type": "markdown", "source": [text]}

    result = code("result = Result.read(report_from) if report_from else measure()")
    table = code("table", "<table></table>")
    verdict = code("verdict", '<div class="verdict"><p>a</p></div>')
    folded = code("folded", "<details><summary>a</summary><table></table><table></table></details>")
    assert "verdict" in after_the_result([result, prose("## What it shows"), verdict])
    assert "verdict" not in after_the_result([result, table, verdict])
    assert "verdict" not in after_the_result([result, prose("## The setting\n\nThe presets."), verdict])
    assert unfolded_tables([table, folded, prose("| a |\n|---|\n| b |")]) == 2
