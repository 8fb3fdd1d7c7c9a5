"""Whole pages before axe-core: reports, the documentation, a saved app. The apps' own tests ask about the apps."""

import importlib.util

import plotly.graph_objects as go
import pytest
from browser import accessibility_findings, findings_in_looks, open_chromium
from conftest import ROOT

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
