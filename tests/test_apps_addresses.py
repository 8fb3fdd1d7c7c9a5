"""What is seen in an app has an address: a reload, the history, a second tab and copied Python show it again."""

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
from browser import ServedApp, open_chromium, screenshot
from test_apps_codes import CONFIG
from test_apps_explorer import make_pairs
from test_apps_runs import make_run

from complearn.apps.addresses import read_address, write_address
from complearn.apps.codes.controller import codes
from complearn.apps.concepts.controller import concepts
from complearn.apps.edits.controller import edits
from complearn.apps.edits.review import review
from complearn.apps.map.controller import open_map
from complearn.apps.runs.controller import runs
from complearn.apps.search.controller import search
from complearn.apps.stages.controller import stages
from complearn.data.readers.registry import read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.models.registry import build
from complearn.training.runs.launch import launch, prepare


@dataclass(frozen=True)
class Way:
    """An app, and what a person does in it, step by step; each step changes what is seen."""

    name: str
    open: Callable  # without arguments, but for a view
    steps: tuple[Callable, ...]  # of the page
    shown: str  # a selector of what must look the same again
    namespace: dict  # what the copied lines need
    gone: tuple[str, ...]  # addresses of what is not there


TOWER = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}


def stages_way(folder):
    pairs = read("trifeature", samples=3, shapes=3, textures=2, colours=3)
    model = build({"kind": "stages", "vision": TOWER, "projection": 8, "stages": 2})
    model.learned.fill_(2)
    model.eval()

    def choose(page):
        page.locator(".cl-anchors button").nth(4).click()

    def select(page):
        page.locator("[data-stage=stage-1] .cl-tile button[aria-pressed]").first.click()

    def fewer(page):
        page.locator("input[type=number]").fill("2")
        page.locator("input[type=number]").blur()

    def turn(page):
        page.get_by_label("next images").click()

    return Way(
        "stages",
        lambda **view: stages(model, pairs=pairs, clusters=3, **view),
        (choose, select, fewer, turn),
        ".cl-split",
        {"model": model, "pairs": pairs},
        ("anchor=54", "neighbours=99", "picked=-1", "model=other", "start=x"),
    )


def edits_way(folder):
    world = world_from("small")
    scenes = [world.pair("test", k) for k in range(5, 15)]

    def take(page):
        page.locator(".cl-gallery > button").nth(1).click()

    def call(page):
        buttons = page.locator("[data-operator]:not(:disabled)").all()
        next(each for each in buttons if int(each.locator(".cl-number").inner_text()) > 1).click()

    def other(page):
        page.locator(".cl-places [aria-pressed=false]").first.click()

    def turn(page):
        page.get_by_text("Next", exact=True).click()

    return Way(
        "edits",
        lambda **view: edits(scenes, **view),
        (turn, take, call, other),
        ".cl-main",
        {"captions": scenes},
        (
            "item=10",
            "item=1&text=a+dog",
            "item=0&calls=fly:0",
            "item=0&calls=swap_att:99",
            "calls=swap_att",
            "start=-1",
        ),
    )


def review_way(folder):
    lines = [
        {"id": str(k), "image_id": str(k), "caption": f"a dog and {k} cats", "negatives": [f"a dog and {k} cows"]}
        for k in range(4)
    ]
    path = folder / "negatives.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def forward(page):
        page.locator(".cl-card").press("ArrowRight")

    def next_open(page):
        page.locator(".cl-card").press("n")

    def back(page):
        page.locator(".cl-card").press("ArrowLeft")

    steps = (forward, next_open, back)
    return Way("review", lambda **view: review(path, **view), steps, ".cl-card", {}, ("place=4", "place=-1"))


def concepts_way(folder):
    pairs = make_pairs()

    def search(page):
        page.locator("input[type=search]").fill("dog")

    def open_concept(page):
        page.locator("[data-concept='a dog']").click()

    def follow(page):
        page.locator("[data-jump='a dog near a cat']").first.click()

    def tree(page):
        page.locator("[data-tree]").first.click()

    def select(page):
        page.locator("[data-image]").first.click()

    return Way(
        "concepts",
        lambda **view: concepts(pairs, **view),
        (search, open_concept, follow, tree, select),
        ".cl-split",
        {"captions": pairs},
        ("concept=a+whale", "concept=a+dog&predicate=none", "start=1", "concept=a+dog&picked=7", "sentence=9"),
    )


def search_way(folder):
    world = world_from("small")
    pictures = [world.pair("test", k) for k in range(30)]
    text = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    tokenizer = WordTokenizer.fit([pair.caption for pair in pictures])
    model = build({"vision": {**TOWER, "size": 32}, "text": text}, tokenizer)

    def turn(page):
        page.get_by_text("Next", exact=True).click()

    def take(page):
        page.locator(".cl-grid .cl-picture").nth(2).click()
        page.wait_for_selector(".cl-stage img[src]:visible")

    def words(page):
        page.get_by_label("text of the query").last.fill("a red circle")
        page.keyboard.press("Enter")

    def slide(page):
        page.locator("input[type=range]").focus()
        page.keyboard.press("End")

    def why(page):
        page.locator(".cl-grid").get_by_text("Why?").first.click()
        page.wait_for_selector(".cl-explanation:not([hidden])")

    def keep(page):
        page.locator(".cl-grid .cl-tile [aria-pressed]").nth(3).click()

    return Way(
        "search",
        lambda **view: search(pictures, model, index=folder, page_size=6, **view),
        (turn, take, words, slide, keep, why),
        ".cl-results",
        {"gallery": pictures, "models": model},
        ("picture=30", "upload=1", "alpha=2", "box=0.1&box=0.5", "why=3", "model=other", "kept=-1"),
    )


def codes_way(folder):
    launch(prepare(folder / "codebook", CONFIG).path, progress=False)

    def order(page):
        page.get_by_text("by index").click()

    def card(page):
        page.locator(".cl-card:not(.cl-dead):not([aria-selected=true])").nth(2).click()

    def image(page):
        page.wait_for_selector(".cl-thumbnails button")
        page.locator(".cl-thumbnails button").first.click()

    def surgery(page):
        page.click(".cl-tabs [data-tab=surgery]")

    def query(page):
        page.fill(".cl-tab form input", "red circle left of blue square")
        page.click(".cl-tab form button")
        page.wait_for_selector(".cl-factor")

    def switch_off(page):
        page.click(".cl-factor >> nth=0 >> [data-factor='0']")

    def compare(page):
        page.click("text=Compare two models")
        page.wait_for_selector(".cl-panel >> nth=1 >> .cl-factor")

    return Way(
        "codes",
        lambda **view: codes(folder, **view),
        (order, card, image, surgery, query, switch_off, compare),
        ".cl-details >> nth=0",
        {},
        (
            "code=64",
            "model=other",
            "snapshot=other",
            "image=99999",
            "factors=1:2",
            "second_code=1",
            "tab=none",
            "kept=-1",
        ),
    )


def map_way(folder):
    draw = np.random.default_rng(0)
    table = pd.DataFrame(draw.normal(size=(60, 2)), columns=["x", "y"])
    table["shape"] = ["round", "square", "long"] * 20
    table["size"] = ["small"] * 30 + ["large"] * 30

    def colour(page):
        page.get_by_label("Colour by").select_option("size")

    def choose(page):
        page.locator(".cl-legend button").first.click()

    def turn(page):
        page.get_by_label("next points").click()

    def as_table(page):
        page.get_by_text("Table", exact=True).click()

    return Way(
        "map",
        lambda **view: open_map(table, **view),
        (colour, choose, turn, as_table),
        ".cl-body",
        {"model": table},
        ("points=60", "points=3-2", "points=x", "colour=weight", "models=other", "of=dreams", "start=1", "form=list"),
    )


def runs_way(folder):
    for seed in range(2):
        make_run(folder / f"clip-s{seed}", "clip", seed, lr=0.001 * (seed + 1))

    def select(page):
        page.locator("[data-name=clip-s1]").click()

    def sort(page):
        page.locator("[data-column=run]").click()

    def tab(page):
        page.locator("[data-panel=about]").click()

    def words(page):
        page.get_by_label("filter by words").fill("s1")

    return Way(
        "runs",
        lambda **view: runs(folder, **view),
        (select, sort, tab, words),
        ".cl-list",
        {},
        ("selected=gone", "sort=colour", "weight=1", "shown=0", "hidden=perhaps"),
    )


WAYS = {
    "codes": codes_way,
    "concepts": concepts_way,
    "edits": edits_way,
    "map": map_way,
    "review": review_way,
    "runs": runs_way,
    "search": search_way,
    "stages": stages_way,
}


@pytest.fixture(scope="module")
def chromium():
    with open_chromium() as browser:
        yield browser


@pytest.fixture(scope="module", params=sorted(WAYS))
def way(request, tmp_path_factory):
    return WAYS[request.param](tmp_path_factory.mktemp(request.param))


SETTLED = "document.querySelector('.cl-views') && !document.querySelector('.cl-views').hidden"


def seen(served, way):
    """The words that are seen; what is not drawn at once is waited for."""
    served.page.wait_for_timeout(150)
    return served.page.locator(way.shown).inner_text()


def wait_for(served, view):
    """Wait until the app shows a view, and its address says so."""
    for _ in range(100):
        if served.app is not None and served.app.view == view:
            address = write_address(read_address(served.app.controller.address_type, view))
            if served.hash == address:
                return
        served.page.wait_for_timeout(50)
    raise AssertionError((served.app.view, view, served.hash))


def walk(served, way):
    """Take all steps; return the views before and after, with what was seen."""
    served.page.wait_for_function(SETTLED)
    views = [(served.app.view, seen(served, way))]
    for step in way.steps:
        step(served.page)
        for _ in range(100):
            if served.app.view != views[-1][0]:
                break
            served.page.wait_for_timeout(50)
        served.page.wait_for_timeout(200)  # a click may take several requests
        view = served.app.view
        assert view != views[-1][0], f"{step.__name__} changes nothing that the address says"
        wait_for(served, view)
        views.append((view, seen(served, way)))
    return views


@pytest.mark.browser
def test_a_reload_the_history_a_second_tab_and_copied_python_show_what_was_seen(way, chromium):
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    context.grant_permissions(["clipboard-read", "clipboard-write"])
    served = ServedApp(context, way.name, way.open)
    page = served.page
    views = walk(served, way)
    (before, seen_before), (last, seen_last) = views[-2:]
    address = served.hash
    first_app = served.app
    page.reload()
    page.wait_for_function(SETTLED)
    wait_for(served, last)
    assert served.app is not first_app and seen(served, way) == seen_last, "a reload shows another view"
    page.go_back()
    wait_for(served, before)
    assert seen(served, way) == seen_before
    page.go_forward()
    wait_for(served, last)
    page.locator("h2").first.click()
    page.keyboard.press("Control+z")
    wait_for(served, before)
    page.keyboard.press("Control+Shift+z")
    wait_for(served, last)
    assert seen(served, way) == seen_last
    for view, words in views[-2::-1]:
        page.get_by_label("the view before").click()
        wait_for(served, view)
        assert seen(served, way) == words
    assert page.get_by_label("the view before").get_attribute("aria-disabled") == "true"
    page.get_by_label("the view after").click()
    wait_for(served, views[1][0])
    other = ServedApp(context, way.name, way.open, f"#{address}")
    other.page.wait_for_function(SETTLED)
    wait_for(other, last)
    assert seen(other, way) == seen_last, "a second tab shows another view"
    other.page.get_by_text("Copy as Python").click()
    other.page.wait_for_selector(".cl-copied")
    lines = other.page.locator(".cl-copied pre").inner_text()
    assert other.page.evaluate("navigator.clipboard.readText()") == lines
    space = dict(way.namespace)
    exec(lines, space)
    app = space["table"].page if way.name == "runs" else space["app"]
    assert app.view == last and app is not other.app, lines
    if hasattr(app, "selection"):
        assert app.selection.equals(other.app.selection)
    screenshot(other.page, f"address-{way.name}")
    for text in (address, lines):
        assert "secret" not in text and "token" not in text and "127.0.0.1" not in text
    assert not served.faults and not other.faults
    context.close()


@pytest.mark.browser
def test_an_address_of_what_is_not_there_opens_the_ordinary_view_and_says_why(way, chromium):
    context = chromium.new_context()
    ordinary = ServedApp(context, way.name, way.open)
    ordinary.page.wait_for_function(SETTLED)
    words, view = seen(ordinary, way), ordinary.app.view
    for wrong in (*way.gone, "nonsense=1", "%00%FF&=&&x", "../../etc/passwd"):
        served = ServedApp(context, way.name, way.open, f"#{wrong}")
        served.page.wait_for_selector(".cl-fault:not(:empty)")
        served.page.wait_for_function(SETTLED)
        wait_for(served, view)
        fault = served.page.locator(".cl-fault").inner_text()
        assert fault.startswith("This address cannot be shown: ") and fault.endswith("You see the ordinary view.")
        assert seen(served, way) == words and not served.faults, wrong
        served.page.close()
    context.close()
