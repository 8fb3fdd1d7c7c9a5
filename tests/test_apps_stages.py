"""The stages' app: its controller's answers and errors, its tables, what a run gives it, and the app on a page."""

import numpy as np
import pandas as pd
import pytest
from browser import attach, check_requests, open_chromium, screenshot

from complearn.analysis.stages.stability import anchor_table, stage_groups
from complearn.apps.stages.controller import StagesController, stages
from complearn.apps.stages.sources import stage_sources
from complearn.data.pairs import Pair
from complearn.data.readers.registry import read
from complearn.models.registry import build
from complearn.training.runs.launch import launch, prepare

TOWER = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}
PAIRS = read("trifeature", samples=3, shapes=3, textures=2, colours=3)


@pytest.fixture(scope="module")
def model():
    model = build({"kind": "stages", "vision": TOWER, "projection": 8, "stages": 2})
    model.learned.fill_(2)
    return model.eval()


def asked(app, action, **arguments):
    """The messages of an action by their type; an error is a failure."""
    messages = {content["type"]: content for content, _ in app.controller.handle({"action": action, **arguments})}
    assert "error" not in messages, messages
    return messages


def refusal(app, action, **arguments):
    [(content, _)] = app.controller.handle({"action": action, **arguments})
    assert content["type"] == "error"
    return content["text"]


def test_an_anchor_shows_its_neighbours_in_every_stage(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    opened = asked(app, "connect")
    assert opened["anchors"]["total"] == len(PAIRS) and opened["anchors"]["rows"][0]["title"] == "circle solid red"
    assert [row["stage"] for row in opened["stages"]["rows"]] == ["stage-0", "stage-1", "integrated"]
    shown = asked(app, "choose", anchor=7)["stages"]
    groups = stage_groups(model, PAIRS, 3)
    for row, (_, part) in zip(shown["rows"], anchor_table(groups, 7, 5).groupby("stage", sort=False)):
        assert [each["number"] for each in row["neighbours"]] == part.image.tolist()
        vectors = groups.vectors[row["stage"]]
        others = np.argsort(-(vectors @ vectors[7]).numpy(), kind="stable")
        assert set(part.image) == set([k for k in others.tolist() if k != 7][:5])
        for each in row["neighbours"]:
            values = PAIRS[each["number"]].labels
            assert each["values"] == [[name, values[name], values[name] == PAIRS[7].labels[name]] for name in values]
        inside = groups.groups[row["stage"]] == groups.groups[row["stage"]][7]
        assert row["size"] == inside.sum()
        for name, value, share, overall in row["inside"]:
            has = np.array([pair.labels[name] == value for pair in PAIRS])
            assert share == pytest.approx(has[inside].mean()) and overall == pytest.approx(has.mean())
    assert app.grouped_by.shape == (3, 3)


def test_the_selection_comes_back_as_a_table(model):
    app = stages(model, pairs=PAIRS, clusters=3).run_action("choose", anchor=2).run_action("show_neighbours", count=3)
    assert len(app.selection) == 9 and set(app.selection.stage) == {"stage-0", "stage-1", "integrated"}
    assert {"anchor", "rank", "id", "cosine", "cluster", "own", "shape", "texture", "colour"} <= set(
        app.selection.columns
    )
    chosen = app.selection.id[0]
    assert asked(app, "pick", image=chosen)["stages"]["n_picked"] == 1
    assert set(app.selection.id) == {chosen} and f",{chosen}," in asked(app, "export_table")["table"]["text"]
    app.run_action("move", step=1)
    assert app.controller.view.anchor == 3 and app.controller.view.picked == (chosen,), (
        "the selection goes on with the next anchor"
    )
    assert asked(app, "clear")["stages"]["n_picked"] == 0 and len(app.selection) == 9


def test_pages_of_anchors_follow_the_anchor(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    app.controller.page_size = 20
    assert len(asked(app, "show_page", start=20)["anchors"]["rows"]) == 20
    assert asked(app, "choose", anchor=53)["anchors"]["start"] == 40
    moved = asked(app, "move", step=1)
    assert moved["stages"]["anchor"] == 0 and moved["anchors"]["start"] == 0
    assert asked(app, "move", step=-1)["stages"]["anchor"] == 53


def test_what_cannot_be_shown_says_what_to_do(model, tmp_path):
    app = stages(model, pairs=PAIRS, clusters=3)
    for action, arguments, remedy in (
        ("choose", {"anchor": 54}, "choose one from 0 to 53"),
        ("show_neighbours", {"count": 0}, "choose 1 to 20"),
        ("pick", {"image": "none"}, "no neighbour that is shown"),
        ("open_model", {"source": "other"}, "there is no model 'other'"),
    ):
        assert remedy in refusal(app, action, **arguments)
    assert app.controller.view.anchor == 0
    assert "train one" in refusal(stages(), "connect") and "train one" in refusal(stages(runs=tmp_path), "connect")
    assert "has no stages" in refusal(stages(object(), pairs=PAIRS), "connect")
    assert "2 values for 54 images" in refusal(stages(model, pairs=PAIRS, metadata={"year": [1, 2]}), "connect")
    with pytest.raises(ValueError, match="has no images to show; give some"):
        stages(model)


def test_metadata_are_attributes_and_images_without_any_are_shown(model):
    bare = [Pair(pair.image, None, pair.id, pair.id) for pair in PAIRS]
    app = stages(model, pairs=bare, clusters=3)
    assert asked(app, "connect")["stages"]["rows"][0]["by"] == [] and app.grouped_by.shape == (3, 0)
    colours = pd.DataFrame({"camera": [pair.labels["colour"] for pair in PAIRS]})
    assert list(stages(model, pairs=bare, clusters=3, metadata=colours).grouped_by.columns) == ["camera"]
    four = [Pair(np.full((32, 32, 4), k, np.uint8), None, str(k), str(k)) for k in range(12)]
    assert stage_sources(model, pairs=four)[0].name == "model"


def test_a_finished_run_is_shown_with_its_own_images(tmp_path):
    train = {"batch_size": 8, "lr": 1e-3, "precision": "fp32"}
    config = {"method": {"name": "multistage", "args": {"steps": 4, "grouping": {"clusters": 2, "small": "partial"}}}}
    config |= {"model": {"kind": "stages", "vision": TOWER, "projection": 8, "stages": 2}, "train": train, "seed": 0}
    config |= {"data": {"name": "trifeature", "args": {"samples": 1, "shapes": 3, "textures": 2, "colours": 3}}}
    launch(prepare(tmp_path / "run", config).path, progress=False)
    app = stages(runs=tmp_path)
    opened = asked(app, "connect")
    assert opened["models"]["models"] == [["run", ""]] and opened["anchors"]["total"] == 18
    assert {row["clusters"] for row in opened["stages"]["rows"]} == {2}, "as many as the run made"


def test_any_request_is_answered(model):
    for name in StagesController.actions:
        check_requests(StagesController(stage_sources(model, pairs=PAIRS, clusters=3)), name)


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_page_an_anchor_is_chosen_and_neighbours_are_selected(model, dark):
    app = stages(model, pairs=PAIRS, clusters=3)
    with open_chromium() as browser:
        page = attach(browser, "stages", app.controller, dark)
        page.wait_for_selector(".cl-stages [data-stage=integrated] .cl-tile")
        assert page.locator(".cl-anchors button").count() == 24 and page.locator(".cl-rows > section").count() == 3
        page.locator(".cl-anchors button").nth(4).click()
        page.wait_for_function("document.querySelector('.cl-anchor h2').textContent === 'Image 5'")
        assert app.controller.view.anchor == 4
        page.locator("[data-stage=stage-1] .cl-tile button[aria-pressed]").first.click()
        page.wait_for_selector(".cl-tile button[aria-pressed=true]")
        assert len(app.controller.view.picked) == 1 and "1 image selected" in page.locator(".cl-main").inner_text()
        screenshot(page, f"stages-{'dark' if dark else 'light'}")
        page.locator("input[type=number]").fill("2")
        page.locator("input[type=number]").blur()
        page.wait_for_function("document.querySelectorAll('.cl-tile').length === 6")
        page.locator(".cl-anchors button").nth(4).focus()
        page.keyboard.press("Alt+ArrowRight")
        page.wait_for_function("document.querySelector('.cl-anchor h2').textContent === 'Image 6'")
        page.locator("input[type=number]").fill("99")
        page.locator("input[type=number]").blur()
        page.wait_for_selector(".cl-status:not(:empty)")
        assert "choose 1 to 20" in page.locator(".cl-status").inner_text()
        assert page.locator("input[type=number]").input_value() == "2"
        page.set_viewport_size({"width": 420, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= 420"), "no part is wider than a narrow page"
        screenshot(page, f"stages-narrow-{'dark' if dark else 'light'}")
