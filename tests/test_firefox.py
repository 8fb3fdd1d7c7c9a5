"""Every app, a saved page, reports and the documentation in Firefox: drawn, without an error, and one thing done."""

import importlib.util
import json

import plotly.graph_objects as go
import pytest
import test_apps_codes
import test_apps_map
import test_apps_review
import test_apps_runs
import test_apps_search
import test_apps_stages
from conftest import ROOT
from firefox import open_firefox, pages
from test_apps_explorer import make_pairs, small_model
from test_apps_search import oracle

from complearn.analysis.runs.result_page import write_result_page
from complearn.apps.codes.controller import codes
from complearn.apps.concepts.controller import concepts
from complearn.apps.edits.controller import edits
from complearn.apps.edits.review import review
from complearn.apps.map.controller import MapController
from complearn.apps.map.sources import map_sources
from complearn.apps.pages import join_script, join_style, make_page
from complearn.apps.search.controller import SearchController
from complearn.apps.search.sources import search_sources
from complearn.core.figures import save_figure
from complearn.core.results import Result, row
from complearn.data.worlds.world import world_from

pytestmark = [pytest.mark.browser, pytest.mark.firefox]

coded_runs = test_apps_codes.folder
edits_file = test_apps_review.path
results_folder = test_apps_runs.folder
gallery = test_apps_search.place
stages_model = test_apps_stages.model
mapped_stages = test_apps_map.stages


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    with open_firefox(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def opened(firefox):
    """`opened(app, controller)`: the app in Firefox; at the end of the test the page has no error."""
    served = []

    def open_app(app, controller):
        context = pages(app=app, controller=controller)
        served.append(context)
        firefox.open(context.__enter__())
        return firefox

    yield open_app
    faults = firefox.faults()
    for context in served:
        context.__exit__(None, None, None)
    assert faults == []


def test_codes(opened, coded_runs):
    page = opened("codes", codes(runs=coded_runs).controller)
    page.wait_for("document.querySelector('.cl-card:not(.cl-pending)')")
    page.type(".cl-top input", "red")
    page.wait_for("document.querySelector(\".cl-grid[aria-label*='“red”']\")")
    page.click(".cl-card:not(.cl-pending)")
    page.wait_for("document.querySelector('.cl-tab[data-drawn]')")
    page.picture("firefox-codes")


def test_concepts(opened):
    page = opened("concepts", concepts(make_pairs(), models={"small": small_model()}).controller)
    page.click("[data-concept]")
    page.wait_for("document.querySelectorAll('img, canvas, svg').length")
    page.picture("firefox-concepts")


def test_edits(opened):
    app = edits([world_from("small").pair("test", k) for k in (5, 6)])
    page = opened("edits", app.controller)
    page.wait_for("document.querySelector('textarea')")
    page.type("textarea", "a red circle left of a blue square")
    page.click("[data-operator]:not(:disabled)")
    page.wait_for("document.querySelector('.cl-line mark')")
    assert len(app.history) == 1
    page.picture("firefox-edits")


def test_map(opened, mapped_stages):
    page = opened("map", MapController(map_sources(mapped_stages, pairs=test_apps_map.PAIRS)))
    page.click(".cl-legend button")
    page.wait_for("document.querySelectorAll('.cl-tiles img').length > 1")
    page.picture("firefox-map")


def test_review(opened, edits_file):
    app = review(edits_file)
    page = opened("review", app.controller)
    page.wait_for("document.querySelectorAll('mark').length > 1")
    page.run("document.querySelector('.cl').focus()")
    page.click("[data-verdict=accepted], button[title*='Accept'], button")
    page.picture("firefox-review")


def test_runs(opened, results_folder):
    page = opened("runs", test_apps_runs.RunsController(results_folder))
    page.wait_for("document.querySelectorAll('.cl-runs tbody tr').length > 3")
    page.click(".cl-list tbody input")
    page.picture("firefox-runs")


def test_search(opened, gallery, tmp_path):
    page = opened(
        "search", SearchController(search_sources(gallery / "gallery", oracle(gallery), index=tmp_path), page_size=6)
    )
    page.wait_for("document.querySelectorAll('.cl-tile').length > 3")
    before = page.run("return [...document.querySelectorAll('.cl-tile')].map((tile) => tile.textContent).join()")
    page.type(".cl-search input:not([type=range]):not([type=file]):not([type=checkbox])", "zebra")
    page.wait_for(
        "[...document.querySelectorAll('.cl-tile')].map((tile) => tile.textContent).join() !== " + json.dumps(before)
    )
    page.run(
        "const slider = document.querySelector('input[type=range]'); slider.value = slider.max;"
        "slider.dispatchEvent(new Event('input', { bubbles: true }));"
    )
    page.wait_for("document.querySelectorAll('.cl-tile').length > 3")
    page.picture("firefox-search")


def test_stages(opened, stages_model):
    page = opened("stages", test_apps_stages.stages(stages_model, pairs=test_apps_stages.PAIRS, clusters=3).controller)
    page.wait_for("document.querySelectorAll('.cl-anchors button').length === 24")
    page.click(".cl-anchors button:nth-of-type(5)")
    page.wait_for("document.querySelector('.cl-anchor h2')?.textContent === 'Image 5'")
    page.picture("firefox-stages")


@pytest.mark.parametrize("app", ["codes", "concepts", "edits", "map", "review", "runs", "search", "stages"])
def test_a_saved_page(firefox, tmp_path, app):
    (tmp_path / "page.html").write_text(make_page(join_script(app), join_style(app), []), encoding="utf-8")
    with pages(tmp_path) as address:
        firefox.open(f"{address}page.html")
        firefox.wait_for("document.querySelector('.cl')?.textContent.length")
        assert firefox.faults() == []


def reports_in(folder):
    """The report of a study, of one model and of a result without a measure."""
    rows = [
        row(name, seed, "end", 20, "held out/exchanges", "swap_att", "accuracy", 0.6 + gain + 0.01 * seed, n=80)
        for name, gain in (("clip", 0.0), ("negclip", 0.1))
        for seed in range(3)
    ]
    for name, some in (("study", rows), ("one", rows[:1]), ("none", [])):
        Result({"preset": "demo"}, some).write(folder / name)
        yield write_result_page(folder / name, "Mine").relative_to(folder)


def test_reports_and_a_saved_figure(firefox, tmp_path):
    figure = go.Figure().add_scatter(x=[1, 2], y=[3, 4], name="clip")
    files = [*reports_in(tmp_path), save_figure(figure, tmp_path, "loss")[0].relative_to(tmp_path)]
    drawn = []
    with pages(tmp_path) as address:
        for file in files:
            firefox.open(f"{address}{file}")
            firefox.wait_for("document.readyState === 'complete' && document.querySelector('h1')")
            assert firefox.faults() == [], file
            drawn.append(firefox.run("return document.querySelectorAll('.main-svg').length"))
            firefox.picture(f"firefox-{file.parent.name or 'figure'}")
    assert drawn[0] and drawn[-1], "a study and a saved figure have a figure"


def test_the_documentation(firefox, tmp_path):
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(tmp_path / "site", with_notebooks=False)
    with pages(tmp_path / "site") as address:
        for page in ("index.html", "docs/hard-negatives.html", "nbs/experiments/claims.html"):
            firefox.open(f"{address}{page}")
            firefox.wait_for("document.readyState === 'complete' && document.querySelector('h1')")
            assert firefox.faults() == [], page
            firefox.picture(f"firefox-docs-{page.replace('/', '-')}")
        firefox.wait_for("document.querySelectorAll('.main-svg, img').length")
