import ast
import importlib
import json
import subprocess
import sys

import kaleido
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from browser import open_chromium
from conftest import ROOT

from complearn.analysis.codes.figures import map_figure
from complearn.analysis.pictures.galleries import gallery
from complearn.analysis.runs.figures import comparison_figure, difference_figure, loss_curve
from complearn.analysis.runs.summaries import method_colour
from complearn.core import figures
from complearn.core.figures import PALETTE, colour_of, escape_texts, find_browser, save_figure, theme
from complearn.core.results import row
from complearn.training.methods.catalogue import METHODS
from complearn.training.methods.registry import Method

FIGURE = go.Figure(go.Scatter(x=[1, 2, 3], y=[3, 1, 2]), layout={"template": theme, "width": 300, "height": 200})


@pytest.fixture
def again(monkeypatch):
    """A process that has not looked for a browser yet."""
    cached = (figures.start_browser, figures._print_once)  # a test may replace them
    kaleido.stop_sync_server(silence_warnings=True)
    for function in cached:
        function.cache_clear()
    yield
    for function in cached:
        function.cache_clear()


def simulate(rgb, kind):
    """Linear-light simulation of full dichromacy (Viénot, Brettel and Mollon 1999)."""
    matrices = {
        "protan": ((0.11238, 0.88762, 0.0), (0.11238, 0.88762, 0.0), (0.00401, -0.00401, 1.0)),
        "deutan": ((0.29275, 0.70725, 0.0), (0.29275, 0.70725, 0.0), (-0.02234, 0.02234, 1.0)),
    }
    linear = [channel**2.2 for channel in rgb]
    return [max(0.0, sum(a * b for a, b in zip(row, linear))) ** (1 / 2.2) for row in matrices[kind]]


@pytest.mark.parametrize("kind", ["protan", "deutan"])
def test_the_first_four_colours_stay_apart_without_red_and_green_cones(kind):
    rgb = [[int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)] for code in PALETTE[:4]]
    seen = [simulate(colour, kind) for colour in rgb]
    apart = min(sum((a - b) ** 2 for a, b in zip(x, y)) ** 0.5 for i, x in enumerate(seen) for y in seen[:i])
    assert apart > 0.12


def test_a_name_keeps_its_colour():
    names = [f"m{i}" for i in range(10)]
    assert colour_of("m1", names) == "rgba(213,94,0,1)" and colour_of("m9", names, 0.2) == "rgba(213,94,0,0.2)"
    with pytest.raises(ValueError):
        colour_of("other", names)
    with pytest.raises(ValueError, match="'m1' has no colour: it is none of m0"):
        colour_of("m1", ["m0"], fixed={"m1": 3})
    assert colour_of("m1", ["m0", "m1"], fixed={"m0": 1}) == colour_of("m0", ["m0"])  # the first that is left


def test_a_method_has_one_colour_in_every_figure():
    figures = (["il_clip"], ["clip", "il_clip"], ["il_clip", "spawn vision", "clip", "codebook_clip"])
    assert len({method_colour("il_clip", names) for names in figures}) == 1
    assert all(len({method_colour(name, names) for name in names}) == len(names) for names in figures)
    phases = ["codebook_clip, contrastive", "il_clip, interact-03"]
    bare = [name.split(",")[0] for name in phases]
    assert [method_colour(name, phases) for name in phases] == [method_colour(name, bare) for name in bare]
    with pytest.raises(ValueError):
        method_colour("clip", ["il_clip"])


def test_no_two_methods_share_a_colour_in_a_figure():
    colours = [entry.colour for entry in METHODS.values() if entry.colour is not None]
    assert len(set(colours)) == len(colours) >= 6
    METHODS.entries |= {name: Method(name, len, colour=colour) for name, colour in (("mine", 0), ("theirs", 8))}
    try:
        names = ["clip", "mine", "theirs"]
        assert len({method_colour(name, names) for name in names}) == 3
        assert method_colour("mine", ["mine"]) == method_colour("theirs", ["theirs"]) == method_colour("clip", ["clip"])
    finally:
        del METHODS.entries["mine"], METHODS.entries["theirs"]


def test_the_theme_is_no_default():
    import plotly.io

    assert plotly.io.templates.default == "plotly" and FIGURE.layout.template.layout.colorway == PALETTE


def test_without_a_browser_there_is_a_page_and_one_line(tmp_path, monkeypatch, capsys, again):
    monkeypatch.delenv("BROWSER_PATH", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    for name in ("a", "b", "c"):
        assert save_figure(FIGURE, tmp_path / "figures", name) == [tmp_path / "figures" / f"{name}.html"]
    said = capsys.readouterr().out.strip().splitlines()
    assert len(said) == 1 and "HTML only" in said[0] and "BROWSER_PATH" in said[0]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        "a.html",
        "b.html",
        "c.html",
        "plotly.min.js",
    ]


def test_a_browser_that_does_not_start_holds_nothing_up(tmp_path, monkeypatch, capsys, again):
    broken = tmp_path / "chromium"
    broken.write_text("#!/bin/sh\necho 'error while loading shared libraries' >&2\nexit 127\n")
    broken.chmod(0o755)
    monkeypatch.setenv("BROWSER_PATH", str(broken))
    assert len(save_figure(FIGURE, tmp_path / "figures", "a")) == 1
    assert len(save_figure(FIGURE, tmp_path / "figures", "b")) == 1
    said = capsys.readouterr().out.strip().splitlines()
    assert len(said) == 1 and "did not start" in said[0] and "BROWSER_PATH" in said[0]


def test_a_figure_that_cannot_be_drawn_is_still_a_page(tmp_path, monkeypatch, capsys, again):
    def fail(figure):
        raise RuntimeError("out of shared memory\nand a stack trace")

    monkeypatch.setattr(figures, "start_browser", lambda: "")
    monkeypatch.setattr(figures, "draw_png", fail)
    assert len(save_figure(FIGURE, tmp_path, "a")) == 1
    assert capsys.readouterr().out.strip() == "a is saved as HTML only: drawing it failed (out of shared memory)"


def test_browser_path_comes_first(tmp_path, monkeypatch):
    for name in ("mine", "chromium"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "mine"))
    assert find_browser() == str(tmp_path / "mine")
    monkeypatch.setenv("BROWSER_PATH", str(tmp_path / "gone"))
    assert find_browser() is None  # another one is not taken without a word
    monkeypatch.delenv("BROWSER_PATH")
    assert find_browser() == str(tmp_path / "chromium")


@pytest.mark.browser
def test_pictures_are_drawn_in_a_process_that_runs_an_event_loop(tmp_path):
    """As in a notebook: an event loop is running; two figures, one browser; and the process ends by itself."""
    code = """
import asyncio, sys
import plotly.graph_objects as go
from complearn.core.results import row
from complearn.training.methods.catalogue import METHODS
from complearn.training.methods.registry import Method
from complearn.core.figures import save_figure, start_browser
async def cell():
    for name in ("a", "b"):
        save_figure(go.Figure(go.Bar(y=[1, 2]), layout={"width": 300, "height": 200}), sys.argv[1], name)
asyncio.run(cell())
import kaleido
print(repr(start_browser()), kaleido._global_server.is_running())
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0 and done.stdout.strip() == "'' True", done.stdout + done.stderr
    from PIL import Image

    for name in ("a", "b"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.size == (600, 400) and len(picture.convert("RGB").getcolors(100_000)) > 2


def test_a_notebook_that_draws_by_hand_escapes_its_texts():
    """Figures of experiments and benchmarks have names of models and data from result files; a decorated function needs
    no more."""
    found = []
    bare = []
    for path in sorted(
        [*(ROOT / "nbs" / "experiments").glob("*.ipynb"), *(ROOT / "nbs" / "benchmarks").glob("*.ipynb")]
    ):
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and ("go.Figure(" in source or "make_subplots(" in source):
                found.append(path.stem)
                if "escape_texts(" not in source and "@figure_of_texts" not in source:
                    bare.append(f"{path.stem} {cell['id']}")
    assert len(found) > 5 and not bare, f"{bare} draw texts that may hold markup"


SAVED = {"_saved_figure"}  # reads a figure that was drawn, whose texts are escaped already
STRANGE = "<b>dog</b> <a href='http://example.org'>cat</a> %{y} R&B"


def test_every_figure_draws_its_texts_as_they_are():
    """Whatever a figure function is handed is text; a function that draws on another's figure is called by one that is
    decorated."""
    found = {}
    for path in sorted((ROOT / "complearn").rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if (
                isinstance(node, ast.FunctionDef)
                and node.returns is not None
                and ast.unparse(node.returns) == "go.Figure"
            ):
                if not any(ast.unparse(argument.annotation) == "go.Figure" for argument in node.args.args):
                    found[".".join(path.relative_to(ROOT).with_suffix("").parts), node.name] = None
    assert len(found) > 25
    bare = [
        name
        for module, name in found
        if name not in SAVED and not hasattr(getattr(importlib.import_module(module), name), "escapes_texts")
    ]
    assert not bare, f"{bare} lack @figure_of_texts"


def texts_of(value):
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts_of(item)]
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


def test_labels_from_files_are_no_markup():
    rows = [row(STRANGE, seed, "train", 1, STRANGE, "all", "accuracy", 0.5 + seed / 10) for seed in (0, 1)]
    frame = pd.DataFrame(rows).assign(method=STRANGE, split=STRANGE)
    picture = np.zeros((4, 4, 3), dtype=np.uint8)
    drawn = [
        comparison_figure(frame),
        gallery([picture], [STRANGE]),
        map_figure(np.zeros((2, 2)), np.ones(2), [STRANGE] * 2),
    ]
    log = pd.DataFrame({"kind": "step", "step": range(9), "contrastive_loss": 1.0, "phase": STRANGE})
    lines = pd.DataFrame(
        {"better": [STRANGE], "than": ["clip"], "split": STRANGE, "mean": 0.1, "low": 0.0, "high": 0.2, "n": 2}
    )
    for figure in [*drawn, loss_curve({STRANGE: log}), difference_figure(lines)]:
        texts = texts_of(json.loads(figure.to_json()))
        assert any("&lt;b&gt;dog" in text for text in texts)
        assert not any("<b>dog" in text or "<a href" in text or "%{y} R" in text for text in texts)


def test_a_table_keeps_its_values_whatever_its_labels_are():
    table = pd.DataFrame({"caption": ["a", "<i>b"], 7: ["c", 1], "<u>": [0.5, 2]}, index=["<b>", "d"])
    escaped = escape_texts(table)
    assert escaped.to_numpy().tolist() == [["a", "c", 0.5], ["&lt;i&gt;b", 1, 2]]
    assert list(escaped.index) == ["&lt;b&gt;", "d"] and list(escaped.columns) == ["caption", 7, "&lt;u&gt;"]
    assert escape_texts({"<b>"}) == {"&lt;b&gt;"} and escape_texts(pd.DataFrame({"a": []})).shape == (0, 1)


@pytest.mark.browser
def test_a_browser_draws_the_text_itself(tmp_path):
    picture = np.zeros((4, 4, 3), dtype=np.uint8)
    save_figure(gallery([picture], ["<b>dog</b> <a href='x'>R&B</a>"]), tmp_path, "gallery")
    with open_chromium() as browser:
        page = browser.new_page()
        requests = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto((tmp_path / "gallery.html").as_uri())
        page.wait_for_selector(".annotation-text")
        drawn = "".join(page.locator(".annotation-text").all_text_contents()).replace("\xa0", " ")
        assert "<b>dog</b>" in drawn and "R&B</a>" in drawn and page.locator(".annotation-text a").count() == 0
        assert all(url.startswith(("file:", "data:", "blob:")) for url in requests)
