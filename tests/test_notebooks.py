"""Every notebook runs from top to bottom: rooms as `nbdev_test` runs them, experiments and benchmarks with preset
smoke."""

import json
import re
import resource
from pathlib import Path

import pytest
from conftest import ROOT

NOTEBOOKS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
NAMES = [path.relative_to(ROOT / "nbs").with_suffix("").as_posix() for path in NOTEBOOKS]
PAPERMILL_NAMES = [name for name in NAMES if name.startswith(("experiments/", "benchmarks/"))]
WITH_PICTURES = [  # these save a page or a figure, and a picture of it where there is a Chromium
    "analysis/pictures/galleries",
    "apps/codes/controller",
    "apps/concepts/controller",
    "apps/edits/controller",
    "apps/pages",
    "apps/search/controller",
    "core/figures",
]

# addresses, paths, hashes, numbers
CHANGING = re.compile(r" at 0x[0-9a-f]+|(?:/[\w.-]+){2,}|(?:tmp|complearn-)\w{8}\b|\w*\d\w*")


NO_PICTURE = re.compile(r"^.*saved (?:without a picture|as HTML only): .*$", re.M)  # said where there is no Chromium
BAR = re.compile(r"^.*\d%\|.*$", re.M)  # of progress: a widget in Jupyter, and lines of the standard error elsewhere


def shown_text(output):
    """What one output shows, as text; of a table its HTML's, since a long table's plain text is not kept."""
    data = output.get("data", {})
    html = "".join(data.get("text/html", ""))
    if "<table" in html and 'class="dataframe"' in html:
        return re.sub(r"<style.*?</style>|<[^>]*>", " ", html, flags=re.S)
    return "".join(output.get("text") or data.get("text/plain", ""))


def output_text(cell):
    """What a cell shows, as text."""
    return "\n".join(shown_text(output) for output in cell.get("outputs", []) if output.get("name") != "stderr")


def output_words(cell):
    """The words of what a cell shows: no numbers, in any order (numbers decide where a table's lines break), nothing of
    a browser's, no bars."""
    text = BAR.sub("", NO_PICTURE.sub("", output_text(cell)))
    return {*re.findall(r"[A-Za-z]\w+", CHANGING.sub(" ", text))} - {"png"}


def test_outputs_with_and_without_a_browser_are_equal():
    def cell(*texts):
        return {"outputs": [{"output_type": "stream", "text": text} for text in texts]}

    drawn = "['view.html', 'view.png']"
    bare = "['view.html']"
    for said in (
        "view.html is saved without a picture: no Chromium was found; install one, or set BROWSER_PATH to one\n",
        "figures are saved as HTML only: no Chromium was found to draw PNG; install a Chromium\n",
    ):
        assert output_words(cell(drawn)) == output_words(cell(said, bare)) == {"view", "html"}
        assert output_words(cell("a table\n", drawn)) != output_words(cell("a list\n", said, bare))


def test_a_long_table_is_compared_by_all_of_its_rows():
    def cell(word, plain):
        html = f'<style>td {{}}</style><table class="dataframe"><tr><td>{word}</td></tr></table>'
        data = {"text/html": html, "text/plain": plain}
        return {"outputs": [{"output_type": "execute_result", "data": data}]}

    assert output_words(cell("first", "first")) == output_words(cell("first", "...")) == {"first"}
    assert output_words(cell("first", "...")) != output_words(cell("second", "..."))


def test_a_bar_is_no_output():
    bar = {"output_type": "display_data", "data": {"text/plain": "2 runs:   0%|          | 0/20 [00:00<?, ?step/s]"}}
    shown = {"output_type": "stream", "text": "done\n"}
    assert output_words({"outputs": [bar, shown]}) == output_words({"outputs": [shown]}) == {"done"}


def marked(name):
    """A notebook that draws pictures or looks for real data does more where there is a Chromium, or where there are
    some. Benchmarks measure, which takes its time, and are slow."""
    text = (ROOT / "nbs" / f"{name}.ipynb").read_text(encoding="utf-8")
    adapts = [pytest.mark.adapts] * (name in WITH_PICTURES or "open_lexicon(" in text)
    return pytest.param(name, marks=adapts + [pytest.mark.slow] * name.startswith("benchmarks/"))


@pytest.mark.parametrize(
    "name", map(marked, [*PAPERMILL_NAMES, *(name for name in NAMES if name not in PAPERMILL_NAMES)])
)
def test_notebook(name, warm, smoke, record_property, tmp_path):
    path = ROOT / "nbs" / f"{name}.ipynb"
    executed = tmp_path / "executed.ipynb"
    result = smoke(name).result if name in PAPERMILL_NAMES else warm.run(path, report=executed)
    record_property("notebook", [name, result.seconds, result.cpu])
    assert result.good, f"nbs/{name}.ipynb failed:\n{result.message}"
    if name not in PAPERMILL_NAMES:  # what experiments show is compared where their results are
        cells, now = (json.loads(each.read_text(encoding="utf-8"))["cells"] for each in (path, executed))
        old = {k: output_words(cell) ^ output_words(after) for k, (cell, after) in enumerate(zip(cells, now))}
        remedy = f"python -m complearn.analysis.claims.reports nbs/{name}.ipynb"
        differing = {k: words for k, words in old.items() if words}
        assert not differing, f"nbs/{name}.ipynb shows old outputs or none; draw them again: {remedy}\n{differing}"
        said = any(NO_PICTURE.search(output_text(cell)) for cell in now)
        assert name in WITH_PICTURES or not said, f"nbs/{name}.ipynb draws pictures: add it to WITH_PICTURES"


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.parametrize("name", ["explorer", "search"])
def test_a_benchmark_of_an_app_in_a_browser(name, experiment, tmp_path):
    run = experiment(f"benchmarks/{name}", tmp_path, browser=True)
    assert run.good and (tmp_path / "figures" / "app.png").exists(), run.text


def written(path, source):
    """A notebook of one code cell."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": [source]}
    spec = {"display_name": "python3", "language": "python", "name": "python3"}
    path.write_text(json.dumps({"cells": [cell], "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.mark.parametrize("parameters", [None, {"preset": "smoke"}])
def test_a_broken_notebook_is_noticed(tmp_path, warm, parameters):
    """The runner itself can fail: a wrong assertion is no success, and the next notebook is not touched by it."""
    report = tmp_path / "report.ipynb"
    result = warm.run(written(tmp_path / "broken.ipynb", "assert 1 == 2, 'one is not two'"), parameters, report)
    assert not result.good and "one is not two" in result.message
    assert warm.run(written(tmp_path / "right.ipynb", "assert 1 == 1"), parameters, report).good


def test_a_notebook_that_does_not_end_is_stopped_with_what_it_started(tmp_path, warm):
    source = "import subprocess, time\nchild = subprocess.Popen(['sleep', '60'])\n"
    source += f"open({str(tmp_path / 'pid')!r}, 'w').write(str(child.pid))\ntime.sleep(60)"
    result = warm.run(written(tmp_path / "endless.ipynb", source), limit=3)
    assert not result.good and "not done after 3 s" in result.message and result.seconds < 20
    status = Path("/proc") / (tmp_path / "pid").read_text() / "status"
    assert not status.exists() or "State:\tZ" in status.read_text(), "the notebook's child is still running"


def test_notebooks_do_not_share_what_they_change(tmp_path, warm):
    """Each runs in a fork of its own: what one changes in a module is not there for the next."""
    assert warm.run(written(tmp_path / "one.ipynb", "import complearn.core.seeds as seeds; seeds.changed = True")).good
    assert warm.run(
        written(tmp_path / "two.ipynb", "import complearn.core.seeds as seeds; assert not hasattr(seeds, 'changed')")
    ).good


LAUNCHED = """
import subprocess, sys

command = [sys.executable, "-m", "complearn.launch"]
helped = subprocess.run([*command, "--help"], capture_output=True, text=True)
assert helped.returncode == 0 and helped.stdout.startswith("usage: python -m complearn.launch")
refused = subprocess.run([*command, "nowhere", "--unknown"], capture_output=True, text=True, env={"A": "b"})
assert refused.returncode == 2 and "unrecognized arguments: --unknown" in refused.stderr
forks = subprocess.Popen([*command, "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
forks.kill()
assert forks.wait(20) == -9
"""


def test_a_training_is_started_as_a_fork_and_answers_as_a_process(tmp_path, warm):
    """From a notebook and from a test; what it says, how it ends, and that it is a child."""
    assert warm.run(written(tmp_path / "launches.ipynb", LAUNCHED), report=tmp_path / "report.ipynb").good
    with warm.starts():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        exec(LAUNCHED, {})
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime - before.ru_utime < 5, "each would import torch again"
