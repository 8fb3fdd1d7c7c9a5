"""Whole pages before axe-core: reports, the documentation, a saved app. The apps' own tests ask about the apps."""

import importlib.util
import json

import nbformat
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from browser import accessibility_findings, findings_in_looks, open_chromium
from conftest import ROOT
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from complearn.analysis.runs.notebook_page import write_notebook_page
from complearn.analysis.runs.result_page import write_result_page
from complearn.apps.pages import join_script, join_style, make_page
from complearn.core.figures import save_figure
from complearn.core.results import Result, row

LOOKS = [("light", 1600), ("dark", 420), ("dark", 2560)]


@pytest.fixture(scope="module")
def browser():
    with open_chromium() as chromium:
        yield chromium


def findings(browser, path, selector="body"):
    """What axe-core finds on a page in both themes and at three widths, each said once."""
    found = {}
    for scheme, width in LOOKS:
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(path.as_uri())
        page.wait_for_selector(selector)
        for line in accessibility_findings(page):
            found.setdefault(line, []).append(f"{scheme} {width}")
        page.close()
    return found


@pytest.mark.browser
@pytest.mark.axe
def test_a_page_without_a_name_is_found(browser, tmp_path):
    (tmp_path / "bad.html").write_text("<!doctype html><html><body><main><h1>a</h1><img src='a.png'></main></body>")
    found = " ".join(findings(browser, tmp_path / "bad.html"))
    assert "image-alt (critical)" in found and "document-title (serious)" in found and "html-has-lang" in found


IN_A_SHELL = """<!doctype html><html lang="en"><title>a</title><body class="jp-LabShell"><main><h1>a</h1>
<img src="data:,"><div class="cl">an app</div></main>"""


@pytest.mark.browser
@pytest.mark.axe
@pytest.mark.parametrize("is_served", [True, False])
def test_a_served_page_is_judged_whole_and_jupyterlab_by_its_apps(browser, is_served):
    """Both have JupyterLab's shell."""
    page = browser.new_page()
    page.set_content(IN_A_SHELL)
    if is_served:
        page.evaluate("document.documentElement.dataset.complearnServed = ''")
    found = " ".join(accessibility_findings(page))
    assert ("image-alt (critical)" in found) == is_served
    assert bool(findings_in_looks(page)) == is_served
    page.close()


@pytest.mark.browser
@pytest.mark.axe
def test_the_report_of_a_result(browser, tmp_path):
    rows = [
        row(name, seed, "end", 20, "held out/exchanges", "swap_att", "accuracy", 0.6 + gain + 0.01 * seed, n=80)
        for name, gain in (("clip", 0.0), ("negclip", 0.1))
        for seed in range(3)
    ]
    Result({"preset": "demo"}, rows).write(tmp_path)
    assert not findings(browser, write_result_page(tmp_path, "Mine"), "figure")


@pytest.fixture(scope="module")
def notebook_page(tmp_path_factory):
    """A notebook that ran, as a page: prose, curves, bars, pictures, a table, and what was printed."""
    bars = go.Figure([go.Bar(x=["a", "b"], y=[k, 2], name=f"model {k}") for k in (1, 3)])
    curves = go.Figure([go.Scatter(x=[1, 2], y=[3, 4], name=f"model {k}") for k in (1, 2)])
    pictures = go.Figure(go.Image(z=np.full((8, 8, 3), 90, np.uint8))).add_annotation(text="code 3 · red", x=4, y=9)
    pictures.update_layout(width=900, height=400)
    figures = [each.update_layout(title="What was found", showlegend=True) for each in (bars, curves, pictures)]
    shown = [
        new_output("display_data", {"application/vnd.plotly.v1+json": json.loads(each.to_json())}) for each in figures
    ]
    table = pd.DataFrame({f"column_{k}": [k / 7] for k in range(20)})
    shown += [new_output("display_data", {"text/html": table.to_html()}), new_output("stream", text="a line " * 60)]
    cells = [
        new_markdown_cell("# Mine\n\nSomething [was found](https://example.org)."),
        new_markdown_cell("## Figures"),
        new_code_cell("draw()", outputs=shown),
        new_markdown_cell("## A table"),
        new_code_cell("table", outputs=shown[3:4]),
    ]
    path = tmp_path_factory.mktemp("notebook") / "report.ipynb"
    path.write_text(nbformat.writes(new_notebook(cells=cells)))
    return write_notebook_page(path)


@pytest.mark.browser
@pytest.mark.axe
def test_the_page_of_a_notebook(browser, notebook_page):
    assert not findings(browser, notebook_page, ".scaled .main-svg")


@pytest.mark.browser
def test_text_in_pictures_stays_readable_in_a_narrow_window(browser, notebook_page):
    sizes = {}
    for width in (420, 1600):
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(notebook_page.as_uri())
        page.wait_for_selector(".scaled .main-svg")
        page.wait_for_function("document.querySelector('.scaled').style.zoom")
        sizes[width] = page.evaluate(SMALLEST_TEXT)
        frame = page.locator("figure:has(.scaled)")
        scrolls = frame.evaluate("frame => frame.scrollWidth > frame.clientWidth")
        assert scrolls == (width == 420) and frame.evaluate("frame => frame.tabIndex") == (0 if scrolls else -1)
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "the page does not scroll sideways"
        page.close()
    assert round(min(sizes.values()), 2) >= 10


SMALLEST_TEXT = """() => Math.min(...[...document.querySelectorAll(".scaled text")].map((text) =>
  parseFloat(getComputedStyle(text).fontSize) * Number(text.closest(".scaled").style.zoom)))"""


COLOURS = """() => {
  const marks = [...document.querySelectorAll(".points path")].map((mark) => getComputedStyle(mark).stroke);
  const colours = [getComputedStyle(document.body).backgroundColor, marks.at(-1)]; // chance is drawn last
  return colours.map((colour) => colour.match(/[0-9.]+/g).slice(0, 3).map(Number));
}"""


def luminance(colour):
    """The relative luminance of a colour of sRGB, as WCAG defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_marks_of_chance_are_seen_in_both_themes(browser, tmp_path, scheme):
    about = ("end", 20, "held out/exchanges", "swap_att", "accuracy")
    rows = [row("clip", 0, *about, 0.7, n=80), row("chance", None, *about, 0.5, n=80)]
    Result({"preset": "demo"}, rows).write(tmp_path)
    page = browser.new_page(color_scheme=scheme)
    page.goto(write_result_page(tmp_path).as_uri())
    page.wait_for_selector(".points path")
    page.wait_for_timeout(500)
    paper, mark = map(luminance, page.evaluate(COLOURS))
    page.close()
    assert (max(paper, mark) + 0.05) / (min(paper, mark) + 0.05) >= 3


@pytest.mark.browser
@pytest.mark.axe
def test_a_saved_figure(browser, tmp_path):
    figure = (
        go.Figure().add_scatter(x=[1, 2], y=[3, 4], name="clip").update_layout(title="Loss of A & B<br><sup>x</sup>")
    )
    page = save_figure(figure, tmp_path, "loss")[0]
    assert not findings(browser, page, ".main-svg")
    assert "<title>Loss of A &amp; B</title>" in page.read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.axe
def test_the_documentation(browser, tmp_path):
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    site = tmp_path / "site"
    module.build(site, with_notebooks=False)
    pages = ("index.html", "docs/hard-negatives.html", "docs/papers/composer.html", "api/index.html")
    pages += ("nbs/experiments/claims.html",)
    found = {page: findings(browser, site / page) for page in pages}
    assert not any(found.values()), {page: lines for page, lines in found.items() if lines}


@pytest.mark.browser
@pytest.mark.axe
@pytest.mark.parametrize("app", ["codes", "concepts", "edits", "map", "review", "runs", "search", "stages"])
def test_a_saved_page_of_an_app_that_waits(browser, tmp_path, app):
    (tmp_path / "page.html").write_text(make_page(join_script(app), join_style(app), []))
    assert not findings(browser, tmp_path / "page.html", ".cl")
