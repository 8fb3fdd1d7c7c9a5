"""The app of maps: its controller's answers and errors, selections at the widgets' traits, linked maps, and the app on
a served page."""

import base64

import numpy as np
import pandas as pd
import pytest
import torch
import training_runs
from browser import attach, check_requests, open_chromium, requests_of, requests_of_file, screenshot, write_notebook
from test_apps_editing import asked, refusal

import complearn
from complearn.analysis.maps.planes import principal_plane
from complearn.analysis.maps.points import read_points
from complearn.apps.map.controller import MapController, open_map
from complearn.apps.map.messages import ShownMaps, colour_points, join_tables, map_picture, selection_table
from complearn.apps.map.sources import MapSource, map_sources, small_picture
from complearn.apps.serving import serving
from complearn.core.config import RequestError
from complearn.core.extras import MissingLibrary
from complearn.core.figures import find_browser
from complearn.data.readers.registry import read
from complearn.evaluation.search.checks import CaptionCheck, check_pairs
from complearn.training.runs.launch import launch, prepare

PAIRS = read("trifeature", samples=2, shapes=3, textures=2, colours=3)


@pytest.fixture(scope="module")
def library():
    "The library that draws, where it is installed."
    return pytest.importorskip("jscatter", reason="jupyter-scatter is not installed: pip install 'complearn[lab]'")


@pytest.fixture(scope="module")
def stages():
    return training_runs.stages_model()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    "A folder with a CLIP and a Codebook-CLIP after two steps, on the same pictures."
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("runs")
    plain = {name: part for name, part in training_runs.MODEL.items() if name != "codebook"}
    for method, model in (("clip", plain), ("codebook_clip", None)):
        config = training_runs.config({"name": method, "args": {"steps": 2}}, model)
        launch(prepare(folder / f"{method}-s0", config).path, progress=False)
    return folder


def controller_of(stages, of="images", **options):
    controller = MapController(map_sources(stages, pairs=PAIRS, **options), of)
    asked(controller, "connect")
    return controller


# --- the controller


def test_a_map_is_opened_with_its_legend_and_no_selection(stages):
    controller = MapController(map_sources(stages, pairs=PAIRS))
    opened = asked(controller, "connect")
    assert opened["models"]["kinds"] == ["images", "captions", "words", "codes", "stages"]
    assert opened["maps"]["points"] == len(PAIRS) and opened["maps"]["colour"] == "shape"
    assert sum(size for _, _, size in opened["maps"]["legend"]["entries"]) == len(PAIRS)
    assert opened["selection"]["total"] == 0
    points = read_points(stages, PAIRS, "images")[""]
    assert np.array_equal(controller.shown.places[0], principal_plane(points.vectors))


def test_a_selection_has_a_page_of_pictures_and_a_table(stages):
    controller = controller_of(stages)
    controller.page_size = 5
    messages = controller.handle({"action": "select_value", "value": "circle"})
    [(content, pictures)] = messages
    circles = [k for k, pair in enumerate(PAIRS) if pair.labels["shape"] == "circle"]
    assert content["total"] == len(circles) and [line["row"] for line in content["lines"]] == circles[:5]
    assert len(pictures) == 5 and all(picture[:4] == b"\x89PNG" or picture[:2] == b"\xff\xd8" for picture in pictures)
    assert asked(controller, "show_page", start=5)["selection"]["lines"][0]["row"] == circles[5]
    table = selection_table(controller.shown, controller.rows)
    assert list(table.index) == [PAIRS[k].image_id for k in circles] and set(table["shape"]) == {"circle"}
    assert np.allclose(table[["x", "y"]], controller.shown.places[0][circles])
    text = asked(controller, "export_table")["table"]["text"]
    assert text.startswith("name,x,y,label") and len(text.splitlines()) == len(circles) + 1
    assert asked(controller, "clear")["selection"]["total"] == 0


def test_a_selection_survives_another_colour_another_kind_of_the_same_points_and_a_second_map(stages):
    controller = controller_of(stages)
    asked(controller, "select", rows=[7, 3, 7])
    names = [PAIRS[7].image_id, PAIRS[3].image_id]
    clusters = asked(controller, "colour_by", column="cluster")["maps"]["legend"]["entries"]
    values = {value for pair in PAIRS for value in pair.labels.values()}
    for name, _, _ in clusters:
        number, _, words = name.partition(": ")
        assert number.isdigit() and (words == "mixed" or {*words.split(", ")} <= values), "a cluster is named in words"
    asked(controller, "show_points", of="stages")
    assert list(controller.shown.table.index[controller.rows]) == names
    asked(controller, "open_models", first=0, second=0)
    asked(controller, "show_stage", stage="stage 0", place=0)
    opened = asked(controller, "show_stage", stage="stage 1", place=1)
    assert list(controller.shown.table.index[controller.rows]) == names
    assert opened["maps"]["titles"] == ["model, stage 0", "model, stage 1"]
    assert opened["models"]["stage"] == ["stage 0", "stage 1"]
    assert not np.array_equal(*controller.shown.places)
    table = selection_table(controller.shown, controller.rows)
    assert list(table.columns[:4]) == [
        "x, model, stage 0",
        "y, model, stage 0",
        "x, model, stage 1",
        "y, model, stage 1",
    ]


def test_one_colour_stays_one_colour_in_another_drawing(stages):
    controller = controller_of(stages)
    assert controller.colour == "shape"
    asked(controller, "colour_by", column="")
    for action, arguments in (("show_points", {"of": "stages"}), ("place_points", {"method": "pca"})):
        asked(controller, action, **arguments)
        assert controller.colour == "", action


def test_what_cannot_be_shown_says_what_to_do_and_changes_nothing(stages):
    controller = controller_of(stages)
    before = controller.state()
    for action, arguments, remedy in (
        ("show_points", {"of": "codes"}, "model has no codebook; show its images or words, or train one"),
        ("show_points", {"of": "words"}, "model reads no texts; show its images or stages"),
        ("show_points", {"of": "dreams"}, "images, captions, words, codes, stages"),
        ("place_points", {"method": "tsne"}, "pca, umap"),
        ("colour_by", {"column": "smell"}, "there is no column 'smell' to colour by; there are label"),
        ("show_stage", {"stage": "stage 9"}, "none, in a map of images"),
        ("show_stage", {"stage": "", "place": 4}, "there are 0 to 0"),
        ("select", {"rows": [len(PAIRS)]}, f"a number from 0 to {len(PAIRS) - 1}"),
        ("select_value", {"value": "cube"}, "there are circle"),
        ("open_models", {"first": "other"}, "there is no model 'other'; there are 0 (model)"),
        ("set_background", {"background": "red"}, "a colour such as #ffffff"),
    ):
        assert remedy in refusal(controller, action, **arguments)
    after = controller.state()
    assert all(after[name] is before[name] or np.array_equal(after[name], before[name]) for name in before)
    broken = MapSource("old run", None, lambda: [], "is damaged: no weights")
    assert "old run is damaged: no weights" in refusal(MapController([broken]), "connect")
    assert "there is no model" in refusal(MapController([]), "connect")
    with pytest.raises(RequestError, match=r"nothing to place; give images: complearn.maps\(model, 'photos/'\)"):
        map_sources(stages)


def test_two_runs_are_compared_by_the_points_that_they_share(runs):
    controller = MapController(map_sources(runs=runs))
    opened = asked(controller, "connect")
    assert [name for name, _ in opened["models"]["models"]] == ["clip-s0", "codebook_clip-s0"]
    shown = asked(controller, "open_models", first="clip-s0", second="codebook_clip-s0")["maps"]
    assert shown["titles"] == ["clip-s0", "codebook_clip-s0"]
    assert {"score, clip-s0", "score, codebook_clip-s0"} <= set(shown["columns"])
    one, two = (source.layers("images")[""] for source in controller.sources)
    for points, places in zip((one, two), controller.shown.places):
        rows = points.table.index.get_indexer(controller.shown.table.index)
        assert np.array_equal(places, principal_plane(points.vectors)[rows])
    assert "clip-s0 has no codebook" in refusal(controller, "show_points", of="codes")
    asked(controller, "open_models", first="codebook_clip-s0")
    assert asked(controller, "show_points", of="codes")["maps"]["points"] == 24
    assert asked(controller, "show_points", of="words")["maps"]["points"] > 5


def test_a_map_of_a_model_that_learned_nothing_says_so(runs, stages, monkeypatch):
    """By the same check of captions as search, once for each model; nothing where nobody can say."""
    import complearn.apps.map.sources as room

    controller = MapController(map_sources(runs=runs))
    opened = asked(controller, "connect")
    check = check_pairs(*controller.sources[0]._opened)
    assert check.captions == 32 and opened["maps"]["remark"].startswith(check.remark)
    checks = {"clip-s0": CaptionCheck(32, 0.5), "codebook_clip-s0": CaptionCheck(32, 0.1)}
    asked_for = []

    def check_model(model, pairs):
        asked_for.append("codebook_clip-s0" if getattr(model, "codebook", None) is not None else "clip-s0")
        return checks[asked_for[-1]]

    monkeypatch.setattr(room, "check_pairs", check_model)
    controller = MapController(map_sources(runs=runs))
    remark = asked(controller, "connect")["maps"]["remark"]
    assert remark.startswith(checks["clip-s0"].remark) and "by chance it is 50 %" in remark
    both = asked(controller, "open_models", first="clip-s0", second="codebook_clip-s0")["maps"]["remark"]
    assert both.startswith(f"clip-s0: {checks['clip-s0'].remark}") and "codebook_clip" not in both
    assert asked(controller, "open_models", first="codebook_clip-s0")["maps"]["remark"] == ""
    assert sorted(asked_for) == ["clip-s0", "codebook_clip-s0"]
    monkeypatch.undo()
    assert controller_of(stages).shown.remark == "", "it reads no captions"


def test_a_table_with_places_is_a_map():
    table = pd.DataFrame({"x": [0.0, 1.0, 2.0], "y": [0.0, 1.0, 0.0], "kind": ["a", "b", "a"]}, index=["p", "q", "r"])
    controller = MapController(map_sources(table))
    opened = asked(controller, "connect")
    assert opened["models"]["kinds"] == [] and opened["maps"]["columns"] == ["kind"]
    asked(controller, "select_value", value="a")
    chosen = selection_table(controller.shown, controller.rows)
    assert list(chosen.index) == ["p", "r"] and list(chosen.columns) == ["x", "y", "label", "caption", "image", "kind"]
    for wrong, remedy in (
        (table.drop(columns="y"), "it lacks y"),
        (table.assign(x="left"), "it lacks x"),
        (table.assign(x=np.nan), "finite numbers"),
        (table.set_axis(["p", "p", "q"]), "the same index"),
    ):
        with pytest.raises(RequestError, match=remedy):
            map_sources(wrong)


def test_colours_of_names_of_numbers_and_of_many_values():
    table = pd.DataFrame({"score": np.linspace(0, 1, 90), "size": [1, 2, 10] * 30, "right": [True, False, None] * 30})
    table["name"] = [f"n{k % 30:02d}" for k in range(90)]
    scale = colour_points(table, "score")
    assert scale.legend["kind"] == "numbers" and (scale.legend["low"], scale.legend["high"]) == (0.0, 1.0)
    assert [entry[0] for entry in colour_points(table, "size").legend["entries"]] == ["1", "2", "10"], "by size"
    truth = colour_points(table, "right").legend["entries"]
    assert {name: size for name, _, size in truth} == {"True": 30, "False": 30, "not known": 30}
    many = colour_points(table, "name")
    assert [name for name, _, _ in many.legend["entries"]][-1] == "other values" and len(many.colours) == 25
    assert many.legend["entries"][-1][2] == 18 and list(many.values.cat.categories) == [
        e[0] for e in many.legend["entries"]
    ]
    assert colour_points(table, "size", dark=True).colours != () and colour_points(table).legend == {"kind": "none"}
    gaps = colour_points(table.assign(score=table.score.where(table.score > 0.5)), "score")
    assert gaps.legend["unknown"] == 45 and gaps.values.notna().all()


def test_columns_of_two_maps_are_joined_once_where_they_are_equal():
    one = pd.DataFrame(
        {"label": ["a"], "caption": [""], "image": [""], "shape": ["round"], "cluster": [1]}, index=["p"]
    )
    two = one.assign(cluster=[2], score=[0.5])
    joined = join_tables([one, two], ["before", "after"])
    assert list(joined.columns)[3:] == ["shape", "cluster, before", "cluster, after", "score, after"]
    assert join_tables([one], ["before"]) is one


def test_a_picture_of_a_map_shows_every_point_in_its_colour():
    table = pd.DataFrame({"kind": ["a", "b"]})
    coloured = colour_points(table, "kind")
    file = map_picture(np.array([[0, 0], [1, 1]], np.float32), coloured, np.array([], np.int64), side=64)
    from io import BytesIO

    from PIL import Image

    pixels = np.asarray(Image.open(BytesIO(file)))
    found = {tuple(pixels[row, column]) for row, column in ((47, 16), (16, 47))}
    assert {bytes(colour).hex() for colour in found} == {colour[1:].lower() for colour in coloured.colours}


def test_a_picture_that_cannot_be_read_is_left_out(tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    assert small_picture(None, 64) == b"" and small_picture(tmp_path / "broken.png", 64) == b""
    assert small_picture(np.zeros((9, 9, 4), np.uint8), 64)[:4] == b"\x89PNG"


def test_any_request_of_the_maps_page_is_answered(stages):
    for name in MapController.actions:
        check_requests(MapController(map_sources(stages, pairs=PAIRS)), name)


def test_a_missing_library_is_named(stages, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "jscatter", None)
    with pytest.raises(MissingLibrary, match=r"pip install 'complearn\[lab\]'"):
        open_map(stages, gallery=PAIRS)


# --- the widgets


def lasso(widget, rows):
    """What a page sends after a lasso."""
    values = np.array(rows, np.uint32)
    widget.set_state({"selection": {"view": memoryview(values), "dtype": "uint32", "shape": values.shape}})


def test_a_lasso_reaches_selection_and_the_other_map(stages, library):
    app = complearn.maps(stages, PAIRS, of="stages").run_action("open_models", first=0, second=0)
    app.run_action("show_stage", stage="stage 0", place=0)
    first, second = app.scatters.widgets
    assert app.maps == [first, second]
    lasso(first, [5, 2, 11])
    assert list(app.selection.index) == [PAIRS[k].image_id for k in (5, 2, 11)]
    assert second.selection.tolist() == [5, 2, 11], "the maps are linked"
    lasso(second, [4])
    assert list(app.selection.index) == [PAIRS[4].image_id] and first.selection.tolist() == [4]
    first.hovering = 8
    assert second.hovering == 8
    lasso(first, [999_999, 3])
    assert list(app.selection.index) == [PAIRS[3].image_id], "a number that no point has is left out"


def test_selecting_in_python_marks_the_points_and_recolouring_keeps_them(stages, library):
    app = complearn.maps(stages, PAIRS)
    app.run_action("select", rows=[3, 9])
    [widget] = app.scatters.widgets
    assert widget.selection.tolist() == [3, 9]
    places = widget.points[:, :2].copy()
    seen = {}
    for column in ("shape", "colour", "shape", "", "cluster"):
        app.run_action("colour_by", column=column)
        assert app.maps == [widget], "another colour needs no other widget"
        assert widget.selection.tolist() == [3, 9] and np.array_equal(widget.points[:, :2], places)
        if column:
            codes = widget.points[:, 2] if widget.color_by == "valueA" else widget.points[:, 3]
            expected = colour_points(app.controller.shown.table, column)
            assert codes.tolist() == expected.values.cat.codes.tolist(), column
            assert len(widget.color) == len(expected.colours)
            seen.setdefault(column, codes.tolist())
            assert seen[column] == codes.tolist()
    assert len(app.selection) == 2
    app.run_action("show_points", of="stages")
    [other] = app.scatters.widgets
    assert other is not widget and other.selection.tolist() == [3, 9] and app.maps == [other]


def test_a_dark_page_gets_a_dark_map(stages, library):
    app = complearn.maps(stages, PAIRS)
    app.answer({"action": "connect", "background": "#15181c"})
    [widget] = app.scatters.widgets
    assert max(widget.background_color[:3]) < 0.2
    app.run_action("select", rows=[4])
    app.answer({"action": "set_background", "background": "#ffffff"})
    [other] = app.scatters.widgets
    assert min(other.background_color[:3]) > 0.9 and other.selection.tolist() == [4] and app.maps == [other]
    assert not other.axes and not other.legend


def test_a_tooltip_has_a_label_and_a_small_picture(stages, library, monkeypatch):
    app = complearn.maps(stages, PAIRS)
    app.run_action("connect")
    [widget] = app.scatters.widgets
    sent = []
    monkeypatch.setattr(widget, "send", lambda content, buffers=None: sent.append(content))
    for index in (4, -1, 999_999, "4", None):
        request = {"type": "tooltip", "index": index, "preview": "picture", "properties": ["label"]}
        widget._handle_msg({"content": {"data": {"method": "custom", "content": request}}, "buffers": []})
    assert len(sent) == 1 and sent[0]["properties"] == {"label": app.controller.shown.table.label.iloc[4]}
    head, _, data = sent[0]["preview"].partition(",")
    assert head.startswith("data:image/") and len(base64.b64decode(data)) < 100_000


def test_models_by_name_and_runs_open_maps(runs, stages, library):
    app = complearn.maps({"before": stages, "after": stages}, PAIRS)
    app.run_action("connect")
    assert app.controller.shown.titles == ("before", "after"), "two models are shown next to each other"
    app = complearn.maps(runs)
    app.run_action("select", rows=[0])
    assert len(app.selection) == 1
    with pytest.raises(FileNotFoundError, match="holds no run"):
        complearn.maps(runs=[runs / "clip-s0" / "phases"])
    with pytest.raises(RequestError, match="is no model"):
        complearn.maps(3, PAIRS)


def test_a_folder_of_pictures_is_placed_with_or_without_captions(stages, library, tmp_path):
    from PIL import Image

    for number in range(6):
        Image.fromarray(np.full((24, 24, 3), 40 * number, np.uint8)).save(tmp_path / f"{number}.png")
    app = open_map(stages, gallery=str(tmp_path)).run_action("select", rows=[2])
    assert app.selection.image.iloc[0].endswith("2.png") and len(app.controller.shown.table) == 6
    lines = [f"{number}.png,a square number {number}\n" for number in range(6)]
    (tmp_path / "captions.csv").write_text("image,caption\n" + "".join(lines))
    app = complearn.maps(stages, tmp_path).run_action("select", rows=[2])
    assert app.selection.caption.tolist() == ["a square number 2"]


def test_points_without_pictures_have_a_tooltip_without_one(library):
    table = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]})
    app = complearn.maps(table).run_action("connect")
    assert app.scatters.widgets[0].tooltip_preview is None and app.scatters.widgets[0].tooltip_enable


def test_columns_and_places_of_shown_maps():
    table = pd.DataFrame({"label": ["a"], "caption": [""], "image": [""], "shape": ["round"]})
    shown = ShownMaps(("one",), (np.zeros((1, 2), np.float32),), table, (None,))
    assert shown.columns == ["shape"]


# --- pages


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_page_points_are_chosen_by_the_legend_and_shown_as_pictures_and_as_a_table(stages, dark):
    controller = MapController(map_sources(stages, pairs=PAIRS))
    with open_chromium() as browser:
        page = attach(browser, "map", controller, dark)
        page.wait_for_selector(".cl-legend button")
        assert controller.dark == dark and page.locator(".cl-chosen h3").inner_text() == "Nothing is selected"
        page.get_by_role("button", name="triangle").click()
        page.wait_for_selector(".cl-tiles img")
        assert page.locator(".cl-tiles figure").count() == 12 and len(controller.rows) == 12
        page.get_by_role("button", name="Table").click()
        heads = page.locator(".cl-points th").all_inner_texts()
        assert heads == ["label", "shape", "texture", "colour", "cluster"], "a column without values is left out"
        assert page.locator(".cl-points td img").first.bounding_box()["width"] == 36
        page.get_by_label("Colour by").select_option("colour")
        page.get_by_role("button", name="red").wait_for()
        assert page.locator(".cl-chosen h3").inner_text() == "12 points selected", "the selection stays"
        page.get_by_label("Points", exact=True).select_option("codes")
        page.wait_for_selector(".cl-status:not(:empty)")
        assert "has no codebook" in page.locator(".cl-status").inner_text()
        assert page.locator(".cl-map progress").is_hidden(), "an error ends the bar"
        assert page.get_by_label("Points", exact=True).input_value() == "images"
        page.set_viewport_size({"width": 420, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= 420"), "no part is wider than a narrow page"
        screenshot(page, f"map-narrow-{'dark' if dark else 'light'}")


@pytest.mark.browser
def test_a_saved_map_is_a_picture_with_its_selection(stages, library, tmp_path):
    app = complearn.maps(stages, PAIRS).run_action("select", rows=[1, 2])
    [html, *_] = app.save(tmp_path / "map")
    with open_chromium() as browser:
        assert requests_of_file(browser, html, ".cl-maps img") == []
        page = browser.new_page()
        page.goto(html.as_uri())
        page.wait_for_selector(".cl-maps img")
        assert page.evaluate("document.querySelector('.cl-maps img').naturalWidth") == 640
        assert page.locator(".cl-tiles figure").count() == 2


@pytest.mark.browser
def test_a_browser_without_webgl_shows_maps_as_pictures_and_says_so(stages):
    from playwright.sync_api import sync_playwright

    controller = MapController(map_sources(stages, pairs=PAIRS))
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_browser(), args=["--no-sandbox", "--disable-3d-apis"])
        page = attach(browser, "map", controller)
        drawn = "document.querySelector('.cl-maps img')?.naturalWidth > 0"
        page.wait_for_function(drawn)
        assert "This browser has no WebGL, so the maps are pictures" in page.locator(".cl-map").inner_text()
        address = page.locator(".cl-maps img").get_attribute("src")
        page.get_by_role("button", name="triangle").click()
        page.wait_for_selector(".cl-tiles img")
        page.wait_for_function(f"{drawn} && document.querySelector('.cl-maps img').src !== '{address}'")
        assert len(controller.rows) == 12, "and the new picture marks them"
        browser.close()


SERVED = """
import complearn
from complearn.data.readers.registry import read
from complearn.models.registry import build

tower = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}
model = build({"kind": "stages", "vision": tower, "projection": 8, "stages": 2})
model.learned.fill_(2)
pairs = read("trifeature", samples=2, shapes=3, textures=2, colours=3)
app = complearn.maps({"before": model.eval(), "after": model}, pairs)
app
"""


DRAWINGS = """() => { window.drawings = 0; const { renderer } = window.jupyterScatter, draw = renderer.render;
  renderer.render = (work, canvas) => draw(() => { window.drawings += 1; work(); }, canvas); }"""


def coloured_pixels(page, place):
    """How many pixels of a map are no shade of grey."""
    from io import BytesIO

    from PIL import Image

    pixels = np.asarray(Image.open(BytesIO(page.locator(".cl-host").nth(place).screenshot())))[..., :3].astype(int)
    return int((np.ptp(pixels, axis=2) > 60).sum())


@pytest.mark.browser
def test_in_a_served_page_two_maps_are_drawn_and_a_lasso_fills_the_grid(library, tmp_path):
    notebook = write_notebook(tmp_path / "map.ipynb", [SERVED])
    with serving(notebook) as address, open_chromium() as browser:
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        foreign = requests_of(page)
        page.goto(address, timeout=120_000)
        for place in (0, 1):
            page.locator(".cl-host").nth(place).locator("canvas").first.wait_for(timeout=180_000)
        page.wait_for_timeout(2000)
        assert page.locator(".cl-host").count() == 2
        assert min(coloured_pixels(page, place) for place in (0, 1)) > 200, "the points are drawn"
        assert page.locator(".cl-maps figcaption").all_inner_texts() == ["before", "after"]
        box = page.locator(".cl-host").first.bounding_box()
        corners = [(0.12, 0.02), (0.98, 0.02), (0.98, 0.98), (0.12, 0.98), (0.12, 0.05)]
        page.evaluate(DRAWINGS)  # counts what the library draws; what the page holds back is drawn later, or never
        for number, (right, down) in enumerate(corners):
            page.mouse.move(box["x"] + right * box["width"], box["y"] + down * box["height"], steps=12)
            if number == 0:
                page.mouse.down()
                page.evaluate("window.drawings = 0")
        assert len(page.locator(".cl-lasso polygon").get_attribute("points").split()) > 40
        assert page.evaluate("window.drawings") == 0, "points are not drawn again at each move of the mouse"
        page.mouse.up()
        page.wait_for_selector(".cl-tiles img", timeout=30_000)
        page.wait_for_selector(".cl-lasso", state="detached")
        page.wait_for_function("window.drawings >= 2")  # the selection in both maps
        chosen = int(page.locator(".cl-chosen h3").inner_text().split()[0])
        assert 24 <= chosen <= len(PAIRS) and page.locator(".cl-tiles figure").count() == 24
        screenshot(page, "map-served")
        page.get_by_label("Colour by").select_option("colour")
        page.get_by_role("button", name="red").wait_for()
        assert page.locator(".cl-chosen h3").inner_text() == f"{chosen} points selected"
        assert foreign == []
