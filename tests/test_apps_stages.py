"""The stages' app: its controller's answers and errors, its tables, what a run gives it, and the app on a page."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from browser import attach, check_requests, open_chromium, screenshot
from PIL import Image
from sklearn.metrics import adjusted_mutual_info_score

from complearn.analysis.stages.stability import anchor_table, attribute_probes, stage_groups
from complearn.apps.stages.controller import StagesController, stages
from complearn.apps.stages.sources import stage_sources
from complearn.core.runs import Run
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


def test_a_cluster_is_browsed_and_the_anchor_is_chosen_from_it(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    row = asked(app, "connect")["stages"]["rows"][1]
    clusters = stage_groups(model, PAIRS, 3).groups["stage-1"]
    sizes = {cluster: size for cluster, size, *_ in row["groups"]}
    assert sizes == {k: int((clusters == k).sum()) for k in range(3)} and sum(sizes.values()) == len(PAIRS)
    for cluster, _, attribute, value, share, overall in row["groups"]:
        has = np.array([pair.labels[attribute] == value for pair in PAIRS])
        assert share == pytest.approx(has[clusters == cluster].mean()) and overall == pytest.approx(has.mean())
    app.controller.page_size = 4
    members = np.flatnonzero(clusters == 2).tolist()
    listed = asked(app, "show_cluster", stage="stage-1", cluster=2)
    assert [each["number"] for each in listed["anchors"]["rows"]] == members[:4]
    assert listed["anchors"]["total"] == sizes[2] and listed["anchors"]["of"] == len(PAIRS)
    chosen = asked(app, "choose", anchor=members[5])["anchors"]
    assert chosen["start"] == 4 and members[5] in [each["number"] for each in chosen["rows"]]
    outside = next(k for k in range(len(PAIRS)) if k not in members)
    assert asked(app, "choose", anchor=outside)["anchors"]["start"] == 4, "the list stays where it was"
    other = stages(model, pairs=PAIRS, clusters=3, view=app.view)
    assert asked(other, "connect")["anchors"]["cluster"] == 2 and other.view == app.view
    assert "its clusters are 0 to 2" in refusal(app, "show_cluster", stage="stage-1", cluster=9)
    assert "there are stage-0, stage-1, integrated" in refusal(app, "show_cluster", stage="stage-7")
    assert asked(app, "show_cluster")["anchors"]["total"] == len(PAIRS)


def test_agreements_are_numbers_and_words_with_their_scale(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    content = asked(app, "connect")["stages"]
    groups = stage_groups(model, PAIRS, 3).groups
    words = {"hardly": (-1, 0.1), "a little": (0.1, 0.3), "in part": (0.3, 0.6), "mostly": (0.6, 0.9)}
    words["almost fully"] = (0.9, 1.01)
    for row in content["rows"]:
        assert [name for name, _, _ in row["others"]] == [name for name in groups if name != row["stage"]]
        for name, value, word in row["others"]:
            assert value == pytest.approx(adjusted_mutual_info_score(groups[row["stage"]], groups[name]))
            assert words[word][0] <= value < words[word][1]
        name, value, word, *_ = max(row["by"], key=lambda line: line[1])
        assert words[word][0] <= value < words[word][1]
        wanted = "groups by none of the known attributes" if value < 0.1 else f"groups {word} by {name}"
        assert row["grouped"] == wanted
    assert all(word in content["scale"] for word in words) and "0 is what chance gives" in content["scale"]


def test_the_accuracy_of_an_attribute_is_that_of_images_the_probe_has_not_seen(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    rows = asked(app, "connect")["stages"]["rows"]
    probes = attribute_probes(stage_groups(model, PAIRS, 3)).set_index(["stage", "attribute"])
    for row in rows:
        for name, _, _, accuracy, chance in row["by"]:
            assert accuracy == probes.accuracy[(row["stage"], name)] and 0 <= accuracy <= 1
            assert chance == pytest.approx(1 / len({pair.labels[name] for pair in PAIRS}))
    noise = pd.DataFrame({"coin": np.random.default_rng(0).integers(0, 2, len(PAIRS))})
    coin = stages(model, pairs=PAIRS, clusters=3, metadata=noise)
    for row in asked(coin, "connect")["stages"]["rows"]:
        accuracy = {name: value for name, _, _, value, _ in row["by"]}["coin"]
        assert accuracy < 0.8, "a probe that is judged on the images it was fitted to reads a coin"
    rare = pd.DataFrame({"name": [str(k) for k in range(len(PAIRS))]})
    named = stages(model, pairs=PAIRS, clusters=3, metadata=rare)
    by = {line[0]: line for line in asked(named, "connect")["stages"]["rows"][0]["by"]}
    assert by["name"][3] is None and by["shape"][3] is not None, "a value of one image is not learned"


def test_maps_are_coloured_by_clusters_or_by_an_attribute(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    groups = stage_groups(model, PAIRS, 3).groups

    def maps(**arguments):
        messages = app.controller.handle(arguments)
        return next((content, parts) for content, parts in messages if content["type"] == "maps")

    content, parts = maps(action="connect")
    assert content["stages"] == list(groups) and content["columns"] == ["shape", "texture", "colour"]
    for k, name in enumerate(groups):
        assert np.frombuffer(parts[2 * k], np.float32).reshape(-1, 2).std(0).min() > 0
        assert np.frombuffer(parts[2 * k + 1], np.int32).tolist() == groups[name].tolist()
    content, parts = maps(action="colour_by", column="colour")
    names = [name for name, _ in content["legend"]]
    assert [names[k] for k in np.frombuffer(parts[1], np.int32)] == [pair.labels["colour"] for pair in PAIRS]
    assert app.view["colour"] == "colour"
    assert "there are shape, texture, colour" in refusal(app, "colour_by", column="size")


def jpeg(colour):
    file = io.BytesIO()
    Image.new("RGB", (40, 30), colour).save(file, "JPEG")
    return file.getvalue()


def test_photos_of_a_folder_are_shown_under_the_stages(model, tmp_path):
    for k, colour in enumerate(("red", "green", "blue", "white")):
        (tmp_path / f"{k}.jpg").write_bytes(jpeg(colour))
    app = stages(model, gallery=tmp_path)
    content = asked(app, "connect")
    assert content["anchors"]["total"] == 4 and {len(row["neighbours"]) for row in content["stages"]["rows"]} == {3}
    assert content["stages"]["rows"][0]["by"] == [] and "no attribute" in content["stages"]["rows"][0]["grouped"]
    (tmp_path / "captions.csv").write_text("image,caption\n0.jpg,red\n1.jpg,green\n")
    assert asked(stages(model, gallery=str(tmp_path)), "connect")["anchors"]["total"] == 2


def test_photos_that_are_sent_are_shown_under_the_open_model(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    asked(app, "connect")

    def send(colour, place, count=3):
        request = {"action": "add_photo", "name": f"{colour}.jpg", "place": place, "count": count}
        return app.controller.handle(request, [jpeg(colour)])

    assert send("red", 0) == [] == send("green", 1)
    shown = {content["type"]: content for content, _ in send("blue", 2)}
    assert shown["models"]["models"] == [["model", ""], ["model on chosen photos", ""]] and shown["models"]["open"] == 1
    assert shown["anchors"]["total"] == 3 and shown["stages"]["id"] == "1: red.jpg"
    assert [send("red", 0, 2), len(send("white", 1, 2)) > 2] == [[], True]
    assert len(app.controller.sources) == 2 and len(app.controller.source.pairs) == 2, (
        "new photos replace the last ones"
    )
    assert "choose 2 to 600 photos" in send("red", 0, 1)[0][0]["text"]
    assert "all at once" in send("red", 1, 3)[0][0]["text"], "the first one is missing"
    request = {"action": "add_photo", "name": "a.txt", "place": 0, "count": 2}
    assert "is no picture" in app.controller.handle(request, [b"no picture"])[0][0]["text"]
    assert "there is no model 'model on chosen photos'" in str(
        pytest.raises(ValueError, lambda: stages(model, pairs=PAIRS, view=app.view)).value
    ), "another start does not have them, and says so"
    assert asked(app, "open_model", source="model")["anchors"]["total"] == len(PAIRS)


def test_pages_of_anchors_follow_the_anchor(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    app.controller.page_size = 20
    assert len(asked(app, "show_page", start=20)["anchors"]["rows"]) == 20
    assert asked(app, "choose", anchor=53)["anchors"]["start"] == 40
    moved = asked(app, "move", step=1)
    assert moved["stages"]["anchor"] == 0 and moved["anchors"]["start"] == 0
    assert asked(app, "move", step=-1)["stages"]["anchor"] == 53


def test_a_page_of_anchors_that_is_not_there_is_the_last_one(model):
    app = stages(model, pairs=PAIRS, clusters=3)
    asked(app, "connect")
    asked(app, "show_page", start=10**6)
    assert app.controller.view.start == len(PAIRS) - 1
    assert stages(model, pairs=PAIRS, clusters=3, view=app.view).view == app.view


def test_photos_for_a_model_leave_the_images_of_runs_alone(model, tmp_path, monkeypatch):
    config = {"method": {"name": "multistage_clip"}, "model": {"kind": "stages"}, "seed": 0}
    Run.create(tmp_path / "multistage-s0", config)
    given = []
    monkeypatch.setattr(
        "complearn.apps.stages.sources._run_source", lambda run, name, pairs, *_, **__: given.append(pairs)
    )
    sources = stage_sources(model, tmp_path, gallery=PAIRS)
    assert given == [None, PAIRS] and sources[0]._pairs() is PAIRS


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
    (tmp_path / "photos").mkdir()
    for k, colour in enumerate(("red", "green", "blue")):
        (tmp_path / "photos" / f"{k}.jpg").write_bytes(jpeg(colour))
    both = stages(runs=tmp_path / "run", gallery=tmp_path / "photos")
    ends = [name for name, _ in asked(both, "connect")["models"]["models"] if "@" in name]
    assert ends == [f"run@{phase}" for phase in Run(tmp_path / "run").phase_names()[:-1]] and ends
    assert asked(both, "connect")["models"]["models"] == [[name, ""] for name in ("run", "run on your photos", *ends)]
    first, last = (
        torch.cat([weight.flatten() for weight in source._open_model().parameters()])
        for source in (both.controller.sources[2], both.controller.sources[0])
    )
    assert not torch.equal(first, last), "the weights at the end of an earlier phase"
    assert asked(both, "open_model", source=ends[0])["stages"]["rows"]
    assert asked(both, "open_model", source="run on your photos")["anchors"]["total"] == 3
    assert f"gallery='{tmp_path / 'photos'}'" in asked(both, "copy_code")["python"]["text"]
    table = ["image,caption", *(f"{k}.jpg,{text} of {k}" for k in range(3) for text in ("a photo", "a view"))]
    (tmp_path / "photos" / "captions.csv").write_text("\n".join(table))
    shown = asked(stages(runs=tmp_path / "run", gallery=tmp_path / "photos"), "open_model", source="run on your photos")
    assert shown["anchors"]["total"] == 3, "a photo with two captions is one photo"
    assert shown["stages"]["name"] == shown["anchors"]["rows"][0]["title"] == "0.jpg: a photo of 0"


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


EXPLAINED = """() => [...document.querySelectorAll('.cl-term')].map((node) =>
  [node.textContent, document.getElementById(node.getAttribute('aria-describedby')).textContent])"""


@pytest.mark.browser
def test_on_a_page_maps_clusters_and_numbers_are_read_and_photos_are_shown(model, tmp_path):
    app = stages(model, pairs=PAIRS, clusters=3)
    faults = []
    files = []
    for colour in ("red", "green", "blue"):
        files.append(tmp_path / f"{colour}.jpg")
        files[-1].write_bytes(jpeg(colour))
    with open_chromium() as browser:
        page = attach(browser, "stages", app.controller)
        page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
        page.wait_for_selector("[data-stage=integrated] svg circle")
        assert page.locator("[data-stage=stage-0] svg circle").count() == len(PAIRS) + 1
        box = page.locator("[data-stage=stage-0] svg circle").nth(7).bounding_box()
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.wait_for_function("document.querySelector('.cl-anchor h2').textContent !== 'Image 1'")
        near = app.controller.source.places["stage-0"]
        gap = np.linalg.norm(near - near[7], axis=1)
        assert gap[app.controller.view.anchor] <= 0.02 * gap.max()
        size = page.locator("[data-stage=stage-1] [data-cluster='1'] .cl-number").inner_text()
        page.locator("[data-stage=stage-1] [data-cluster='1']").focus()
        page.keyboard.press("Enter")
        page.wait_for_selector("text=Stage 1, cluster 2: images 1 to")
        assert size == f"{len(np.flatnonzero(app.controller.source.stages.groups['stage-1'] == 1))} images"
        assert page.evaluate("document.activeElement.dataset.cluster") == "1", "the keyboard stays"
        terms = dict(page.evaluate(EXPLAINED))
        for word in ("agreement", "accuracy", "cosine", "Map", "3 clusters"):
            assert len(terms[word]) > 40, word
        assert terms["agreement"] == page.locator(".cl-scale-line").inner_text()
        page.get_by_label("colour of the maps").select_option("shape")
        page.wait_for_selector(".cl-legend >> text=circle")
        screenshot(page, "stages-cluster")
        for width, columns in ((420, 1), (1600, 3), (2560, 4)):
            page.set_viewport_size({"width": width, "height": 900})
            grid = "getComputedStyle(document.querySelector('.cl-stage')).gridTemplateColumns.split(' ').length"
            assert page.evaluate(grid) == columns and page.evaluate("document.documentElement.scrollWidth") == width
        page.get_by_role("button", name="All images").click()
        page.wait_for_selector(f"text=images 1 to 24 of {len(PAIRS)}")
        page.get_by_label("show your own photos").set_input_files(files)
        page.wait_for_selector("text=images 1 to 3 of 3")
        assert page.locator("select[aria-label=model] option:checked").inner_text() == "model on chosen photos"
        assert page.locator(".cl-anchors img").count() == 3 and "no attribute" in page.inner_text(".cl-groups >> nth=0")
        rows = page.locator(".cl-numbers >> nth=0 >> tr").all_inner_texts()
        assert rows[0].split("\t") == ["Its clusters and", "agreement"] and all(row.strip()[-1] != "0" for row in rows)
        screenshot(page, "stages-photos")
        page.get_by_label("the view before").click()
        page.wait_for_selector(f"text=images 1 to 24 of {len(PAIRS)}")
        page.close()
        page = attach(browser, "stages", stages(model, pairs=PAIRS, clusters=3).controller)
        page.wait_for_selector("[data-stage=integrated] svg circle")
        page.get_by_label("show your own photos").set_input_files(files)
        page.wait_for_selector("text=images 1 to 3 of 3")
        assert page.get_by_label("the view before").get_attribute("aria-disabled") == "false", "photos are a step"
    assert not faults
