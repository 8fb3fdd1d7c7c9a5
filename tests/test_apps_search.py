"""The search app: the controller's messages and errors, the page's mixture against the kernel's, the app in JupyterLab
and voila."""

import http.client
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import training_runs
from browser import (
    attach,
    check_requests,
    open_chromium,
    requests_of,
    requests_of_file,
    run_cell,
    run_in_jupyterlab,
    screenshot,
    screenshot_in_dark,
    with_script,
    write_notebook,
)
from PIL import Image

from complearn.analysis.codes.store import code_sources
from complearn.apps.addresses import write_address
from complearn.apps.concepts.sources import concept_models
from complearn.apps.edits.controller import edits
from complearn.apps.map.sources import map_sources
from complearn.apps.search.controller import SearchController, _hits_table, _selection_table, search
from complearn.apps.search.messages import SearchAddress
from complearn.apps.search.sources import _run_source, search_sources
from complearn.apps.serving import EXTENSIONS, OPTIONS, _app_settings, serving
from complearn.apps.stages.sources import stage_sources
from complearn.core.plugins import import_declared
from complearn.core.runs import Run
from complearn.data.pairs import Pair
from complearn.models.dual import build_model
from complearn.models.scoring import Encoded, cosine
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

ORACLE = '''
"""A scorer whose vectors are known: eleven pictures on a quarter of a circle, and the word at its end."""

import numpy as np
import torch

from complearn.data.images import fit_image, open_image
from complearn.models.scoring import Encoded, cosine

WORDS = {"horse": 90.0, "stripes": 0.0, "zebra": 45.0}


def small(image):
    return np.asarray(fit_image(open_image(image), 8, "squash"), float)


class Circle:
    def __init__(self, folder):
        files = sorted(folder.glob("*.png"))
        self.angles = np.array([float(file.stem.split("-")[1]) for file in files])
        self.looks = np.stack([small(file) for file in files])

    def collate(self, pairs):
        return [pair.image if pair.image is not None else pair.caption for pair in pairs]

    def encode(self, angles):
        turn = torch.deg2rad(torch.tensor(angles, dtype=torch.float32))
        return Encoded(torch.stack([turn.cos(), turn.sin()], 1))

    def encode_images(self, batch):
        near = [((self.looks - small(image)) ** 2).sum((1, 2, 3)).argmin() for image in batch]
        return self.encode([self.angles[place] for place in near])

    def encode_texts(self, batch):
        return self.encode([WORDS.get(text, 90.0) for text in batch])

    def similarity(self, images, texts, pairs=None):
        return cosine(images, texts, pairs)

    def fingerprint(self):
        return "circle"
'''
NAMES = {0: "stripes", 45: "zebra", 90: "horse"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A gallery in a folder, in no order: photographs of a zebra and a horse where there are any, coloured fields
    otherwise."""
    root = tmp_path_factory.mktemp("search")
    (root / "oracle.py").write_text(ORACLE)
    (root / "gallery").mkdir()
    real = os.environ.get("COMPLEARN_REAL_DATA")
    equines = Path(real) / "stamps" / "animals" / "mammals" / "equines" if real else None
    for n, angle in enumerate(
        np.random.default_rng(0).permutation([0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90]).tolist()
    ):
        picture = Image.new("RGB", (96, 64), ((37 * angle) % 256, 255 - (61 * angle) % 256, (97 * angle) % 256))
        if angle in NAMES and equines and (equines / "zebra.png").is_file():
            stamp = Image.open(equines / ("horse.png" if angle == 90 else "zebra.png")).convert("RGBA")
            photo = Image.alpha_composite(Image.new("RGBA", stamp.size, "white"), stamp).convert("RGB")
            w, h = photo.size
            picture = photo.crop((w // 3, h // 3, w // 2, h // 2)) if angle == 0 else photo
        picture.save(root / "gallery" / f"{n:02d}-{angle}-{NAMES.get(angle, 'other')}.png")
    Image.new("RGB", (40, 40), "red").save(root / "secret.png")  # beside the gallery, not in it
    return root


def oracle(place):
    space = {}
    exec(compile(ORACLE, "oracle", "exec"), space)
    return space["Circle"](place / "gallery")


@pytest.fixture
def controller(place, tmp_path):
    return SearchController(search_sources(place / "gallery", oracle(place), index=tmp_path), page_size=5)


def error_of(messages):
    [(content, _)] = messages
    assert content["type"] == "error" and "action" in content, content
    return content["text"]


def item_of(controller, name):
    controller.open_first()
    return next(item for item, picture in enumerate(controller.gallery.about["ids"]) if name in picture)


def first(controller, alpha):
    controller.handle({"action": "set_alpha", "alpha": alpha})
    return _hits_table(controller, 1).id[0].split("-", 1)[1].removesuffix(".png")


# --- the controller


def test_the_order_along_the_slider_is_the_known_one(controller):
    controller.handle({"action": "search_picture", "item": item_of(controller, "stripes")})
    controller.handle({"action": "search_text", "text": "horse"})
    assert [first(controller, alpha) for alpha in (0, 0.5, 1)] == ["9-other", "45-zebra", "90-horse"]
    angles = [float(first(controller, alpha).split("-")[0]) for alpha in np.linspace(0, 1, 41).tolist()]
    assert angles == sorted(angles) and len(set(angles)) == 10, "a progressive transition"
    hits = _hits_table(controller, 3)
    assert list(hits["rank"]) == [1, 2, 3] and (hits.score.diff().dropna() <= 0).all()
    assert hits.text_score[0] == pytest.approx(1) and hits.image_score[0] == pytest.approx(0, abs=1e-6)


def test_the_querys_own_picture_is_marked_and_takes_no_rank(controller):
    item = item_of(controller, "stripes")
    messages = controller.handle({"action": "search_picture", "item": item})
    [(content, buffers)] = [message for message in messages if message[0]["type"] == "query"]
    assert content["own"] == item == content["picture"]["item"]
    sent = np.frombuffer(buffers[1], np.int32).tolist()
    assert item in sent and len(sent) >= 5, "four hits and the picture itself"
    assert item not in _hits_table(controller).item.tolist() and len(_hits_table(controller)) == 10
    controller.handle({"action": "crop", "box": [0.2, 0.2, 0.9, 0.9]})
    assert item not in _hits_table(controller).item.tolist(), "nor does a part of it find the whole"
    controller.handle({"action": "clear", "what": "picture"})
    [(content, _)] = controller.handle({"action": "search_text", "text": "stripes"})[:1]
    assert content["own"] is None and item == _hits_table(controller, 1).item[0]


def opened(controller):
    """What a page gets that opens while the first model is open."""
    controller.open_first()
    return controller.handle({"action": "connect"})


def thumbnails_of(messages):
    return [content["items"] for content, _ in messages if content["type"] == "thumbnails"]


def test_what_the_slider_needs_next_follows_a_query_and_nothing_is_sent_twice(controller):
    """The first page's thumbnails go ahead of the scores, those of other places follow them; a page that opens later
    gets its own."""
    first_page = set(thumbnails_of(opened(controller))[0])
    messages = controller.handle({"action": "search_picture", "item": item_of(controller, "stripes")})
    messages += controller.handle({"action": "search_text", "text": "horse"})
    [query] = [content for content, _ in messages if content["type"] == "query" and content["query_text"]]
    places = [content["type"] for content, _ in messages]
    assert places.index("thumbnails") < places.index("query")
    sent = [item for items in thumbnails_of(messages) for item in items]
    assert len(sent) == len(set(sent)) and not first_page & set(sent)
    assert len(first_page) == 5 and first_page | set(sent) == set(range(11)), "all eleven come up for some alpha"
    assert set(query["ahead"]) <= set(sent)
    again = controller.handle({"action": "search_text", "text": "stripes"})
    assert thumbnails_of(again) == []
    later = [item for items in thumbnails_of(opened(controller)) for item in items]
    assert len(later) == len(set(later)) == 5, "another page has nothing yet"


def test_every_picture_that_a_query_announces_is_sent(tmp_path):
    """Also where more follow a query than are in an ordinary message: the page asks for none that it waits for."""
    turn = np.random.default_rng(0).permutation(400)
    looks = [np.full((8, 8, 3), [number % 256, number // 256, 90], np.uint8) for number in range(400)]

    class Fan(Constant):
        "Pictures on half a circle; a text is at its end."

        def encode(self, angles):
            turned = torch.deg2rad(torch.tensor(angles, dtype=torch.float32))
            return Encoded(torch.stack([turned.cos(), turned.sin()], 1))

        def collate(self, pairs):
            return [None if pair.image is None else tuple(map(int, pair.image[0, 0])) for pair in pairs]

        def encode_images(self, batch):
            return self.encode([turn[low + 256 * high] * 160 / 400 for low, high, _ in batch])

        def encode_texts(self, batch):
            return self.encode([160.0 for _ in batch])

    pairs = [Pair(look, None, str(k), str(k)) for k, look in enumerate(looks)]
    controller = search(pairs, {"fan": Fan()}, index=tmp_path, page_size=80).controller
    messages = opened(controller)
    messages += controller.handle({"action": "search_picture", "item": int(np.argmin(turn))})
    messages += controller.handle({"action": "search_text", "text": "the end"})
    queries = [message for message in messages if message[0]["type"] == "query"]
    named = [item for content, _ in queries for item in content["ahead"]]
    sent = [item for items in thumbnails_of(messages) for item in items]
    assert max(len(content["ahead"]) for content, _ in queries) > 96
    assert set(named) <= set(sent), "the page waits for what is named"
    assert set(sent) == controller.sent and len(sent) == len(set(sent))


def test_a_crop_an_upload_and_the_way_back(controller, place):
    item = item_of(controller, "zebra")
    controller.handle({"action": "search_picture", "item": item})
    assert first(controller, 0) in ("36-other", "54-other") and controller.query.own == item
    buffer = io.BytesIO()
    Image.open(next((place / "gallery").glob("*-9-*.png"))).save(buffer, "PNG")
    file = buffer.getvalue()
    half = len(buffer.getvalue()) // 2
    upload = {"action": "upload", "name": "../../mine.png", "parts": 2}
    assert controller.handle({**upload, "part": 0}, [file[:half]]) == []
    messages = controller.handle({**upload, "part": 1}, [memoryview(file[half:])])
    assert [content["type"] for content, _ in messages] == ["thumbnails", "query", "history"]
    assert messages[1][0]["picture"]["name"] == "mine.png" and first(controller, 0).startswith("9-")
    controller.handle({"action": "crop", "box": [0.2, 0.2, 0.9, 0.9]})
    assert controller.query.label == "a part of mine.png" and first(controller, 0).startswith("9-")
    assert len(controller.history) == 3
    controller.handle({"action": "recall", "number": 0})
    assert controller.query.own == item and len(controller.history) == 3
    controller.handle({"action": "keep", "item": item})
    assert _selection_table(controller)["id"].str.contains("zebra").all() and len(_selection_table(controller)) == 1
    [(content, _)] = controller.handle({"action": "export_table"})
    assert content["csv"].startswith("model,query,alpha,rank") and len(content["csv"].splitlines()) == 11


def test_what_fails_says_what_to_do_and_changes_nothing(controller):
    controller.handle({"action": "search_picture", "item": 2})
    before = (controller.query, len(controller.history), list(controller.selected))
    for request, remedy in (
        ({"action": "search_text", "text": "  "}, None),  # the picture alone: no error
        ({"action": "search_picture", "item": 11}, "0 to 10"),
        ({"action": "search_picture", "item": -1}, "0 to 10"),
        ({"action": "search_picture", "item": "../secret.png"}, "../secret.png"),
        ({"action": "load_thumbnails", "items": [99]}, "0 to 10"),
        ({"action": "explain", "item": 99}, "0 to 10"),
        ({"action": "keep", "item": 99}, "0 to 10"),
        ({"action": "crop", "box": [0, 0, 0.001, 1]}, "larger box"),
        ({"action": "crop", "box": [0.5, 0, 0.2, 1]}, "from 0 to 1"),
        ({"action": "crop", "box": [0.5, 0, 1]}, "four edges"),
        ({"action": "set_alpha", "alpha": 1.5}, "between 0"),
        ({"action": "recall", "number": 9}, "no former query"),
        ({"action": "clear", "what": "everything"}, "'picture', 'text' or 'all'"),
        ({"action": "open_model", "source": 5}, "there is no model"),
        ({"action": "nonsense"}, "no action 'nonsense'"),
    ):
        if remedy is None:
            assert controller.handle(request)[0][0]["type"] != "error"
            before = (controller.query, len(controller.history), list(controller.selected))
            continue
        assert remedy in error_of(controller.handle(request)), request
        assert controller.query is before[0] and (len(controller.history), controller.selected) == before[1:]
    for content, remedy in ((b"", "is empty"), (b"no picture at all", "no picture that can be read")):
        assert remedy in error_of(controller.handle({"action": "upload", "name": "x.png"}, [content]))


def test_a_request_that_does_not_fit_names_the_action_and_its_arguments(controller, place):
    for request, message in (
        ({"action": "search_text"}, "search_text.text is missing"),
        ({"action": "search_picture", "thing": 3}, "no search_picture key 'thing'; there are item"),
        ({"action": "crop", "size": 3}, "no crop key 'size'; there are box"),
        ({"action": "export_table", "rows": 3}, "no export_table key 'rows'; there are none"),
        ({"action": "search_pictures"}, "did you mean 'search_picture'?"),
    ):
        assert message in error_of(controller.handle(request))
    messages = controller.handle({"action": "upload"}, [next((place / "gallery").glob("*.png")).read_bytes()])
    assert messages[-1][0]["type"] == "history" and controller.query.picture.name == "the picture"


@pytest.mark.parametrize("name", sorted(SearchController.actions))
def test_no_request_of_a_page_makes_an_exception_escape(controller, name):
    controller.handle({"action": "search_picture", "item": 2})
    check_requests(controller, name)
    assert controller.handle({"action": "search_picture", "item": 3})[-1][0]["type"] == "history"


def test_the_line_of_the_app_counts_all_that_could_not_be_read(place, tmp_path):
    shutil.copytree(place / "gallery", tmp_path / "gallery")
    cut = next((tmp_path / "gallery").glob("*.png")).read_bytes()[:-60]
    (tmp_path / "gallery" / "cut.png").write_bytes(cut)
    (tmp_path / "gallery" / "text.jpg").write_text("no picture")
    with pytest.warns(UserWarning, match="text.jpg: cannot identify"):
        controller = SearchController(search_sources(tmp_path / "gallery", oracle(place), index=tmp_path / "index"))
        controller.open_first()
    state = controller.handle({"action": "connect"})[0][0]
    assert (state["skipped_count"], state["skipped"], state["pictures"]) == (2, ["text.jpg", "cut.png"], 11)


def test_a_controller_without_models_says_why():
    assert "no such folder" in error_of(
        SearchController([], empty="results/first: no such folder").handle({"action": "show_page"})
    )


def test_the_far_end_of_a_half_query_is_a_message_and_not_a_ranking(controller):
    controller.handle({"action": "search_picture", "item": 0})
    controller.handle({"action": "set_alpha", "alpha": 1})
    with pytest.raises(ValueError, match="type some words, or move the slider towards the picture"):
        _hits_table(controller)
    controller.handle({"action": "clear", "what": "all"})
    messages = controller.handle({"action": "search_text", "text": "horse"})
    assert messages[-1][0]["type"] == "history"
    ends = [messages[-2][0]["positions"][place] for place in (0, -1)]
    assert "choose a picture, or move the slider towards the text" in ends[0]["reason"] and ends[0]["length"] is None
    assert ends[1] == {"alpha": 1.0, "share": 1.0, "length": 1.0, "reason": ""}
    controller.handle({"action": "set_alpha", "alpha": 0})
    with pytest.raises(ValueError, match="choose a picture, or move the slider towards the text"):
        _hits_table(controller)


def test_a_folder_that_changes_under_the_app(place, tmp_path):
    shutil.copytree(place / "gallery", tmp_path / "gallery")
    gallery = tmp_path / "gallery"
    reports = []
    controller = SearchController(search_sources(gallery, oracle(place), index=tmp_path / "index"), page_size=5)
    lost = item_of(controller, "zebra")
    assert "as it was indexed" in controller.handle({"action": "refresh"})[-1][0]["text"]
    controller.notify = lambda message: reports.append(message[0]["text"])
    (gallery / controller.gallery.named(lost)).unlink()
    assert "not found" in error_of(controller.handle({"action": "search_picture", "item": lost}))
    controller.handle({"action": "search_picture", "item": item_of(controller, "stripes")})
    controller.handle({"action": "search_text", "text": "horse"})
    controller.handle({"action": "keep", "item": item_of(controller, "horse")})
    controller.handle({"action": "refresh"})
    assert len(controller.gallery) == 10 and any("1 removed" in text for text in reports)
    assert len(controller.history) == 2 and controller.query is controller.history[-1], "the questions are still there"
    assert len(controller.query.scores.items) == 10
    assert _selection_table(controller)["id"].str.contains("horse").all() and first(controller, 1).endswith("horse")
    controller.handle({"action": "recall", "number": 0})
    assert controller.query.text == "" and len(controller.query.scores.items) == 10
    assert first(controller, 0) == "9-other" and len(controller.history) == 2
    name = controller.query.picture.name
    preview = controller.query.picture.preview
    shutil.copy(gallery / controller.gallery.named(item_of(controller, "horse")), gallery / name)  # it is another now
    controller.handle({"action": "refresh"})
    query = controller.query
    assert query.picture.preview != preview, "it is read again"
    assert query.scores.hits(0, 10)[1].max() == pytest.approx(1, abs=1e-5), "and finds itself"
    (gallery / name).unlink()  # the query's own picture goes
    assert controller.handle({"action": "refresh"})[-1][0]["type"] != "error"
    assert len(controller.gallery) == 9 and controller.query.picture.item is None


def test_the_page_opens_before_anything_is_trained_and_says_what_it_does(tmp_path, monkeypatch):
    import complearn.apps.search.sources as room

    trained = []
    reports = []
    real = room.small_run
    monkeypatch.setattr(room, "small_run", lambda progress: trained.append(progress) or real(tmp_path, 2, progress))
    controller = search(n=20, index=tmp_path / "index").controller
    assert not trained and controller.handle({"action": "connect"})[0][0]["sources"][0]["can_search"]
    controller.notify = lambda message: reports.append(message[0]["text"])
    assert len(controller.handle({"action": "show_page"})[-1][0]["items"]) == 20 and len(trained) == 1
    assert any("training a small model" in text and "ten seconds" in text for text in reports)


def test_lost_data_of_a_run_names_this_apps_own_way_out(tmp_path, monkeypatch):
    from complearn.apps.search.sources import _pictures_of
    from complearn.training.runs.launch import prepare

    data = {"name": "folder", "args": {"folder": str(tmp_path / "gone")}}
    config = {
        "method": {"name": "clip", "args": {"steps": 1}},
        "model": {"vision": "tiny", "text": "tiny"},
        "data": data,
    }
    run = prepare(tmp_path / "run", config | {"train": {"batch_size": 4, "lr": 1e-3}})
    (run.path / "phases").mkdir(exist_ok=True)
    (run.path / "phases" / "01-contrastive.safetensors").write_bytes(b"")  # its weights are not read here
    with pytest.raises(ValueError, match=r"search\(gallery=DIR") as raised:
        _pictures_of(run)
    assert "codes(" not in str(raised.value)


def test_a_run_that_cannot_search_is_listed_with_its_reason_and_not_opened(tmp_path):
    """The documented sweep makes stage 2 alone and stages 2 and 3 in one folder; a classifier may lie beside them."""
    from complearn.apps.search.sources import _run_source
    from complearn.core.runs import Run

    def source_of(name, model):
        config = {"method": {"name": "clip", "args": {}}, "model": model, "data": {"name": "generated"}, "train": {}}
        return _run_source(Run.create(tmp_path / name, config), name, lambda: [])

    for name, model, reason in (
        ("stage2", {"kind": "grounded"}, "search heads"),
        ("namer", {"kind": "classifier", "classes": ["cat", "dog"]}, "reads no texts"),
        (
            "young",
            {"kind": "grounded", "search": True, "relations": {"predicates": ["above"], "objects": ["circle"]}},
            "kept no model yet",
        ),
        ("early", {"vision": "tiny", "text": "tiny"}, "kept no model yet"),
    ):
        source = source_of(name, model)
        assert not source.can_search and reason in source.state, name


@pytest.mark.parametrize("name", ["config.json", "done.json", "metrics.jsonl"])
def test_a_damaged_run_is_listed_with_its_reason_in_both_apps(tmp_path, name):
    from complearn.analysis.codes.store import code_sources
    from complearn.core.runs import Run

    config = {
        "method": {"name": "clip", "args": {}},
        "model": {"vision": "tiny"},
        "data": {"name": "generated"},
        "train": {},
    }
    for folder in ("a-s0", "b-s0"):
        Run.create(tmp_path / folder, config).finish({"step": 1})
    (tmp_path / "a-s0" / name).write_text('{"torn\n')
    for sources in (search_sources(lambda: [], runs=tmp_path), code_sources(tmp_path)):
        damaged, whole = sources
        assert "is damaged" in damaged.state and name in damaged.state and "is damaged" not in whole.state


def test_nothing_to_search_with_says_why(tmp_path):
    command = "papermill nbs/experiments/grounding.ipynb OUT.ipynb -k python3"
    remedy = f"""To train a model: {command} -p sweep '["relations"]' -p out_dir DIR"""
    nowhere = tmp_path / "none"
    file = Path(__file__)
    assert search(runs=nowhere).controller.empty.startswith(
        f"{nowhere} is not a folder; give a folder that holds runs. {remedy}"
    )
    assert search(runs=file).controller.empty.startswith(f"{file} is a file; give a folder that holds runs. {remedy}")
    assert search(runs=tmp_path).controller.empty.startswith(f"There is no trained model in {tmp_path}. {remedy}")
    with pytest.raises(ValueError, match="give gallery="):
        search(models=object())
    with pytest.raises(ValueError, match="There is no trained model in"):
        search(runs=tmp_path).run_action("search_picture", item=0)


def test_the_launcher_tells_a_file_from_a_name_of_nothing(tmp_path):
    for option, path, message in (
        ("runs", __file__, "is a file; give the folder with trained models below it"),
        ("gallery", __file__, "is a file; give the folder of pictures to search in"),
        ("gallery", tmp_path / "none", "is not a folder that exists; give the folder of pictures to search in"),
    ):
        with pytest.raises(ValueError, match=re.escape(f"--{option} {path} {message}")):
            _app_settings("search", {**dict.fromkeys(OPTIONS), option: str(path)})


def test_the_launcher_refuses_a_table_without_captions(tmp_path):
    import_declared("app", "edits")
    table = tmp_path / "labels.csv"
    table.write_text("image,label\n1.png,3\n")
    with pytest.raises(ValueError, match="labels.csv line 1: no column 'caption'; there are 'image', 'label'"):
        _app_settings("edits", {**dict.fromkeys(OPTIONS), "captions": str(table)})
    table.write_text("image,caption\n1.png,a red dog\n")
    settings = _app_settings("edits", {**dict.fromkeys(OPTIONS), "captions": str(table)})
    assert settings == {"captions": str(table)}
    with pytest.raises(ValueError, match="is a folder; give the file of captions"):
        _app_settings("edits", {**dict.fromkeys(OPTIONS), "captions": str(tmp_path)})
    table.rename(tmp_path / "captions.csv")
    settings = _app_settings("edits", {**dict.fromkeys(OPTIONS), "captions": str(tmp_path)})
    assert json.loads(settings["captions"]) == {"name": "folder", "args": {"folder": str(tmp_path)}}


class Ragged:
    "A scorer with a vector per token, which cannot be indexed."

    def collate(self, pairs):
        return pairs

    def encode_images(self, batch):
        return Encoded(torch.ones(len(batch), 3, 4), torch.ones(len(batch), 3, dtype=torch.bool))

    encode_texts = encode_images
    similarity = staticmethod(cosine)


def test_a_scorer_without_one_vector_per_picture_is_refused():
    controller = SearchController(search_sources([Pair(np.zeros((8, 8, 3), np.uint8), None, "0", "0")], Ragged()))
    assert "search heads of a grounded model" in error_of(controller.handle({"action": "open_model", "source": 0}))


def test_the_tables_and_the_page_of_a_script(place, tmp_path):
    app = search(place / "gallery", {"circle": oracle(place)}, index=tmp_path, page_size=4)
    assert app.hits.empty and app.selection.empty
    app.run_action("search_picture", item=0).run_action("search_text", text="horse").run_action("set_alpha", alpha=0.25)
    assert app._alpha == 0.25 and set(app.hits.alpha) == {0.25} and len(app.hits) == 10
    app._alpha = 0.75  # what the slider does
    assert set(app.hits.alpha) == {0.75}
    assert app.save(tmp_path / "view.html")[0].stat().st_size > 30_000


def test_a_grounded_model_is_searched_and_explained_by_its_search_heads(tmp_path):
    from complearn.data.word_tokenizer import WordTokenizer
    from complearn.models.grounded.model import _build_grounded

    tiny = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
    parts = {"relations": {"predicates": ["left of"], "objects": ["star"]}, "search": True}
    model = _build_grounded({"vision": tiny | {"patch": 8}, "text": tiny} | parts, WordTokenizer.fit(["a red star"]))
    pairs = [
        Pair(image, None, str(k), str(k))
        for k, image in enumerate(np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), np.uint8))
    ]
    app = search(pairs, {"grounded": model}, index=tmp_path)
    app.run_action("search_text", text="red star " * 100)
    assert app.controller.query.note == "the text is longer than the model reads; its end was cut"
    title = app.controller.title()
    assert len(title) < 75 and title.startswith("Search: “red star red") and title.endswith("…")
    app.run_action("clear")
    app.run_action("search_picture", item=3).run_action("search_text", text="red star").run_action("set_alpha", alpha=0)
    assert app.controller.query.own == 3 and 3 not in app.hits.item.tolist()
    [(content, buffers)] = app.controller.handle({"action": "explain", "item": 3})
    assert content["words"] == ["the query picture"] and content["score"] == pytest.approx(1, abs=1e-5), (
        "at its end no word counts"
    )
    for alpha in (0.3, 0.8):
        app.run_action("set_alpha", alpha=alpha)
        hit = app.hits.set_index("item").loc[4]
        [(content, buffers)] = app.controller.handle({"action": "explain", "item": 4})
        assert content["words"] == ["the whole text", "red", "star", "the query picture"]
        assert content["grids"][0] == [4, 4] and len(buffers) == 5
        whole, red, star, picture = content["shares"]
        assert whole + picture == pytest.approx(hit.score, abs=1e-5) == content["score"]
        assert red + star == pytest.approx(whole, abs=1e-6)
        scores = app.controller.query.scores
        first = (1 - alpha) / float(scores.image.std(correction=0))
        second = alpha / float(scores.text.std(correction=0))
        share = second / (first + second)
        length = np.sqrt((1 - share) ** 2 + share**2 + 2 * share * (1 - share) * scores.between)
        assert whole == pytest.approx(share * hit.text_score / length, abs=1e-5)
        assert picture == pytest.approx((1 - share) * hit.image_score / length, abs=1e-5)


@pytest.fixture
def with_words(tmp_path):
    """A model that knows the words of one caption, over six pictures of noise."""
    from complearn.data.word_tokenizer import WordTokenizer

    tiny = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
    model = build_model({"vision": tiny | {"patch": 8}, "text": tiny}, WordTokenizer.fit(["a red star"]), seed=0)
    noise = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), np.uint8)
    pairs = [Pair(image, None, str(k), str(k)) for k, image in enumerate(noise)]
    return search(pairs, {"words": model}, index=tmp_path, page_size=6).controller


def explanation_of(controller, item=4):
    [(content, _)] = controller.handle({"action": "explain", "item": item})
    return content


def test_an_explanation_marks_the_words_that_the_model_does_not_know(with_words):
    note = "The model reads every word that it does not know as the same unknown word."
    with_words.handle({"action": "search_text", "text": "A Zebra, red zebra"})
    content = explanation_of(with_words)
    assert content["words"][:5] == ["the whole text", "a", "zebra", "red", "zebra"]
    assert content["unknown"] == [False, False, True, False, True] + [False] * (len(content["words"]) - 5)
    assert note in content["lead"]
    with_words.handle({"action": "search_text", "text": "red star"})
    content = explanation_of(with_words)
    assert not any(content["unknown"]) and note not in content["lead"]


def test_alpha_is_said_of_a_mixed_query_alone(with_words):
    with_words.handle({"action": "search_text", "text": "red star"})
    content = explanation_of(with_words)
    assert content["alpha"] is None
    assert content["lead"].startswith(f"Similarity {content['score']:.3f} (cosine). The bars of the words add up to")
    with_words.handle({"action": "search_picture", "item": 2})
    assert explanation_of(with_words)["lead"].startswith("Similarity ")
    for alpha in (1.0, 0.3):
        with_words.handle({"action": "set_alpha", "alpha": alpha})
        content = explanation_of(with_words)
        assert content["lead"].startswith(f"Similarity {content['score']:.3f} (cosine) at α = {alpha:.2f}. ")
    with_words.handle({"action": "search_text", "text": ""})
    content = explanation_of(with_words)
    assert content["words"] == ["the query picture"] and "α" not in content["lead"], "the picture alone"


# --- what lies next to the pictures


@pytest.fixture
def album(place, tmp_path):
    """The gallery with a metadata.jsonl: captions, a split, an angle as a number, and boxes of half of the pictures."""
    folder = shutil.copytree(place / "gallery", tmp_path / "album")
    lines = []
    for n, file in enumerate(sorted(folder.glob("*.png"))):
        angle, kind = file.stem.split("-")[1:]
        row = {"file_name": file.name, "text": [f"A {kind} at {angle} degrees", f"number {n}"], "angle": int(angle)}
        row["split"] = "train" if n % 2 else "val"
        if n % 2:
            width, height = Image.open(file).size
            row["objects"] = {"bbox": [[0, 0, width / 2, height / 2]], "categories": ["field"]}
        lines.append(json.dumps(row))
    (folder / "metadata.jsonl").write_text("\n".join(lines[:-1]))  # of the last one nothing is known
    return folder


@pytest.fixture
def with_album(place, album, tmp_path):
    return SearchController(search_sources(album, oracle(place), index=tmp_path / "index"), page_size=5)


def of_type(messages, kind):
    [content] = [content for content, _ in messages if content["type"] == kind]
    return content


def test_a_gallery_has_the_captions_columns_and_boxes_that_lie_next_to_it(with_album):
    messages = opened(with_album)
    filters = of_type(messages, "filters")
    assert {column["name"]: column["kind"] for column in filters["columns"]} == {"angle": "range", "split": "values"}
    assert filters["passing"] == filters["total"] == 11, "a picture without a row is there as well"
    assert of_type(messages, "state")["has_boxes"]
    thumbnails = of_type(messages, "thumbnails")
    assert thumbnails["captions"][0].startswith("A ") and "split: val" in thumbnails["facts"][0]
    assert thumbnails["boxes"][:2] == [[], [["field", 0.0, 0.0, 0.5, 0.5]]]
    assert with_album.gallery.caption(10) == "" and with_album.gallery.facts[10] == {}


def test_only_pictures_that_pass_are_ranked_and_listed(with_album):
    """By words of any caption, by values and by a range; the filter stays for the next query, and comes off again."""
    item = item_of(with_album, "stripes")
    with_album.handle({"action": "search_picture", "item": item})
    spreads = with_album.query.scores.spreads
    messages = with_album.handle(
        {"action": "filter_pictures", "words": "OTHER", "where": ["split=train", "angle=10..80"]}
    )
    shown = _hits_table(with_album)
    assert len(shown) and set(shown.split) == {"train"} and shown.angle.between(10, 80).all()
    assert of_type(messages, "filters")["passing"] == of_type(messages, "query")["scored"] == len(shown)
    assert with_album.query.scores.spreads == spreads, "both sides count as over the whole gallery"
    assert with_album.query.own is None, "the query's own picture does not pass"
    with_album.handle({"action": "search_text", "text": "horse"})
    assert set(_hits_table(with_album).item) == set(shown.item)
    page = of_type(with_album.handle({"action": "clear"}), "page")
    assert set(page["items"]) <= set(shown.item) and page["total"] == len(shown)
    with_album.handle({"action": "filter_pictures"})
    with_album.handle({"action": "recall", "number": 0})
    assert len(_hits_table(with_album)) == 10, "a former query is ranked again without the filter"
    nothing = with_album.handle({"action": "filter_pictures", "words": "unicorn"})
    assert of_type(nothing, "query")["scored"] == 0 and _hits_table(with_album).empty
    assert "year" in error_of(with_album.handle({"action": "filter_pictures", "where": ["year=3"]}))
    assert with_album.words == "unicorn" and with_album.where == [], "what failed changes nothing"


def test_a_star_stays_is_listed_and_saved(with_album):
    first_one, second = item_of(with_album, "zebra"), item_of(with_album, "stripes")
    for item in (second, first_one):
        with_album.handle({"action": "keep", "item": item})
    with_album.handle({"action": "search_text", "text": "horse"})
    assert with_album.selected == [second, first_one], "a star stays across queries"
    with_album.handle({"action": "clear"})
    page = of_type(with_album.handle({"action": "filter_pictures", "starred": True}), "page")
    assert page["items"] == [second, first_one] and page["total"] == 2
    table = of_type(with_album.handle({"action": "export_table"}), "table")
    assert table["name"] == "starred.csv" and len(table["csv"].splitlines()) == 3
    assert table["csv"].splitlines()[0] == "model,item,id,caption,captions,starred,angle,split"
    with_album.handle({"action": "search_text", "text": "horse"})
    assert set(_hits_table(with_album).item) == {first_one, second} and _hits_table(with_album).starred.all()
    messages = with_album.handle({"action": "keep", "item": second, "on": False})
    assert of_type(messages, "selection")["items"] == [first_one] and of_type(messages, "query")["scored"] == 1
    again = SearchController(with_album.sources, page_size=5)
    again.show_view(write_address(with_album.address()))
    assert again.starred and again.selected == [first_one] and again.query.text == "horse"
    assert len(again.query.scores.items) == 1


def test_a_view_with_a_filter_has_an_address(with_album, album, place, tmp_path):
    with_album.handle({"action": "filter_pictures", "words": "a horse", "where": ["split=val"]})
    address = write_address(with_album.address())
    again = SearchController(with_album.sources, page_size=5)
    again.show_view(address)
    assert again.words == "a horse" and again.where == ["split=val"]
    assert list(again.listed()) == list(with_album.listed())
    bare = SearchController(search_sources(place / "gallery", oracle(place), index=tmp_path / "bare"), page_size=5)
    with pytest.raises(ValueError, match="column"):
        bare.show_view(address)
    assert bare.where == []


def test_a_table_that_cannot_be_read_does_not_hide_the_pictures(album, place, tmp_path):
    (album / "captions.csv").write_text("picture,words\n1.png,a horse\n")
    controller = SearchController(search_sources(album, oracle(place), index=tmp_path / "index"), page_size=5)
    state = of_type(opened(controller), "state")
    assert state["pictures"] == 11 and "captions.csv" in state["remark"] and "no column" in state["remark"]


# --- what a search says


class Constant:
    "Finds every picture equally like everything."

    def collate(self, pairs):
        return list(pairs)

    def encode_images(self, batch):
        return Encoded(torch.ones(len(batch), 2))

    encode_texts = encode_images

    def similarity(self, images, texts, pairs=None):
        return cosine(images, texts, pairs)

    def fingerprint(self):
        return "constant"


def test_a_model_that_learned_nothing_says_so(album, place, tmp_path):
    """Of the captions at the opening, and of a query whose scores are all alike; a model that finds them says
    nothing."""
    controller = SearchController(search_sources(album, Constant(), index=tmp_path / "index"), page_size=5)
    state = of_type(opened(controller), "state")
    assert state["remark"].startswith(
        "This model does not find these pictures by their captions: for 10 captions, 50 %"
    )
    query = of_type(controller.handle({"action": "search_text", "text": "horse"}), "query")
    assert query["remark"].startswith(
        "All pictures are nearly equally similar to the text (all between 1.000 and 1.000)"
    )
    words = {f"A {file.stem.split('-')[2]} at {file.stem.split('-')[1]} degrees": file for file in album.glob("*.png")}
    good = oracle(place)
    good.encode_texts = lambda batch: good.encode([float(words[text].stem.split("-")[1]) for text in batch])
    controller = SearchController(search_sources(album, good, index=tmp_path / "good"), page_size=5)
    assert of_type(opened(controller), "state")["remark"] == ""
    query = of_type(controller.handle({"action": "search_picture", "item": 0}), "query")
    assert query["remark"] == ""


def test_an_explanation_is_said_once_and_in_words(controller):
    controller.handle({"action": "search_picture", "item": item_of(controller, "stripes")})
    controller.handle({"action": "search_text", "text": "a horse"})
    content = of_type(controller.handle({"action": "explain", "item": item_of(controller, "zebra")}), "explanation")
    assert content["lead"].startswith(f"Similarity {content['score']:.3f} (cosine) at α = 0.50. The bars of the whole")
    assert len(content["methods"]) == len(set(content["methods"])) == 2
    assert ["regions", "words"] == [line.split(":")[0] for line in content["methods"]]
    sentences = content["lead"].split(". ")
    assert len(sentences) == len(set(sentences))
    assert ("left against" in content["lead"]) == (min(content["shares"]) < 0)


def test_a_wide_window_shows_more_where_nobody_asked_for_a_number(place, tmp_path):
    pairs = [Pair(np.full((8, 8, 3), k, np.uint8), None, str(k), str(k)) for k in range(60)]
    controller = search(pairs, {"constant": Constant()}, index=tmp_path).controller
    assert of_type(opened(controller), "state")["fits_window"]
    page = of_type(controller.handle({"action": "fit_window", "count": 36}), "page")
    assert len(page["items"]) == 36 and controller.address().shown is None, "an address does not know the window"
    assert controller.handle({"action": "fit_window", "count": 30}) == [], "it does not shrink under the eyes"
    controller.handle({"action": "show_more", "page_size": 48})
    assert controller.handle({"action": "fit_window", "count": 60}) == [], "a person asked for 48"
    asked = search(pairs, {"constant": Constant()}, index=tmp_path, page_size=6).controller
    opened(asked)
    assert asked.handle({"action": "fit_window", "count": 36}) == []


# --- in a browser


CELLS = [
    "import sys; sys.path.insert(0, '.')\nfrom pathlib import Path\n"
    "from oracle import Circle\nfrom complearn.apps.search.controller import search",
    "app = search(Path('gallery'), Circle(Path('gallery')), index='index', page_size=6)\napp",
]


def test_the_raw_mixture_is_a_switch_of_the_app(place, tmp_path):
    """By default both sides count by their spread; the page is told which it is."""
    shares = {}
    for spread in ("equal", "raw"):
        app = search(place / "gallery", oracle(place), index=tmp_path, spread=spread)
        app.run_action("search_picture", item=0).run_action("search_text", text="horse")
        assert app.controller.state_message()[0]["spread"] == spread
        scores = app.controller.query.scores
        shares[spread] = scores.share(0.5)
        assert (scores.spreads == (1.0, 1.0)) == (spread == "raw")
    assert shares["raw"] == 0.5 != shares["equal"]
    with pytest.raises(ValueError, match="equal"):
        search(place / "gallery", oracle(place), index=tmp_path, spread="even")


LAST = "print('FOUND', app.hits.id[0], app.hits.alpha[0], len(app.selection), type(app.hits).__name__)"


@pytest.fixture(scope="module")
def servers(place):
    """JupyterLab and voila, started together."""
    for needed in ("playwright.sync_api", "jupyterlab", "voila"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the app is not tried in a browser")
    env = {"COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    with ExitStack() as stack:

        def start(name, program, extra):
            return stack.enter_context(serving(write_notebook(place / name, CELLS + extra), program, env))

        yield {"voila": start("app.ipynb", "voila", []), "jupyterlab": start("lab.ipynb", "jupyterlab", [LAST])}


@pytest.fixture(scope="module")
def chromium():
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the app is not tried in a browser")
    with open_chromium() as browser:
        yield browser


MIX = """([items, image, text, positions]) => {
  const raw = (Kind, values) => new DataView(Kind.from(values).buffer);
  const arrays = [null, raw(Int32Array, items), raw(Float32Array, image), raw(Float32Array, text)];
  const mixture = new Mixture({ positions }, arrays);
  return positions.map(({ alpha }) => mixture.hits(alpha, 24).map((hit) => [hit.item, hit.score]));
}"""


@pytest.mark.browser
def test_the_bar_of_an_unknown_word_is_marked_on_the_page(with_words, chromium):
    page = attach(chromium, "search", with_words)
    page.wait_for_selector(".cl-tile")
    page.fill(".cl-query form input", "a zebra star")
    page.press(".cl-query form input", "Enter")
    page.wait_for_function("document.querySelector('.cl-head h3').textContent.includes('zebra')")
    page.locator(".cl-tile").first.get_by_text("Why?").click()
    page.wait_for_selector(".cl-share")
    names = [name.split("\n") for name in page.locator(".cl-share .cl-name").all_inner_texts()]
    assert ["zebra", "not known to the model"] in names and ["star"] in names and ["a"] in names
    screenshot(page, "search-unknown")
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("spreads", [(1.0, 1.0), (0.278, 0.092)])
def test_the_page_mixes_and_orders_as_the_kernel_does(spreads, chromium):
    """On scores with many ties, to the last bit."""
    from complearn.apps.search.messages import position
    from complearn.evaluation.search.mixture import Mixture

    rng = np.random.default_rng(0)
    image, text = (torch.from_numpy((rng.integers(-20, 20, 3000) / 20).astype(np.float32)) for _ in range(2))
    mix = Mixture(torch.arange(3000), image, text, 0.25, (True, True), spreads)
    positions = [position(mix, step / 100) for step in range(101)]
    page = chromium.new_page()
    results = page.evaluate(with_script("search", MIX), [list(range(3000)), image.tolist(), text.tolist(), positions])
    page.close()
    for place, hits in zip(positions, results):
        items, scores = mix.hits(place["alpha"], 24)
        assert [item for item, _ in hits] == items.tolist(), place
        assert np.allclose([score for _, score in hits], scores.numpy(), atol=1e-12)


FIRST = "document.querySelector('.cl-grid .cl-tile .cl-caption')?.textContent"


def drive(page, name):
    """Pick a picture, type a word, slide by keyboard and by mouse, read the order; ask why; returns the first hit's
    name."""

    def angle():
        return page.evaluate(f"{FIRST}.split('-').slice(1).join('-').replace('.png', '')")

    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    screenshot(page, f"{name}-1-open")
    page.focus(".cl-grid .cl-tile button[tabindex='0']")
    for _ in range(20):  # by keyboard to the picture of stripes
        if page.evaluate("document.activeElement.closest('.cl-tile').textContent.includes('stripes')"):
            break
        page.keyboard.press("ArrowRight")
    else:
        page.get_by_role("button", name="Next").click()
        page.locator(".cl-tile", has_text="stripes").locator(".cl-picture").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".cl-stage img[src]")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    page.wait_for_function("document.querySelector('.cl-head h3').textContent.includes('“horse”')")
    page.focus(".cl-search input[type=range]")
    page.keyboard.press("Home")
    order = [angle()]
    for _ in range(100):
        page.keyboard.press("ArrowRight")
        order += [] if order[-1] == angle() else [angle()]
    assert order == [f"{a}-{NAMES.get(a, 'other')}" for a in (0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90)], order
    assert page.locator(".cl-search output").inner_text() == "α = 1.00"
    screenshot(page, f"{name}-2-text")
    box = page.locator(".cl-search input[type=range]").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    order = [angle()]
    for share in np.linspace(0.98, 0, 50):
        page.mouse.move(box["x"] + 8 + share * (box["width"] - 16), box["y"] + box["height"] / 2)
        order += [] if order[-1] == angle() else [angle()]
    page.mouse.up()
    angles = [float(name.split("-")[0]) for name in order]
    assert angles == sorted(angles, reverse=True) and angles[0] == 90 and angles[-1] == 0 and len(angles) > 8, order
    assert all(move["ready"] for move in page.evaluate("document.querySelector('.cl-search').search.moves")), (
        "a picture was missing"
    )
    page.focus(".cl-search input[type=range]")
    page.keyboard.press("Home")
    for _ in range(50):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{FIRST}.includes('zebra')")
    screenshot(page, f"{name}-3-both")
    page.focus(".cl-grid .cl-tile button[tabindex='0']")
    page.keyboard.press("w")
    page.wait_for_selector(".cl-explanation:not([hidden]) .cl-heat canvas")
    screenshot(page, f"{name}-4-why")
    page.focus(".cl-grid .cl-tile button[tabindex='0']")
    page.keyboard.press("k")
    page.wait_for_selector(".cl-tile button[aria-pressed='true']")


@pytest.mark.browser
def test_on_a_page(place, tmp_path, chromium):
    """The whole way of a user, with the controller in this process."""
    controller = search(place / "gallery", oracle(place), index=tmp_path, page_size=6).controller
    page = attach(chromium, "search", controller)
    faults = []
    page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
    drive(page, "page")
    assert _selection_table(controller)["id"].str.contains("zebra").all()
    assert len(_selection_table(controller)) == 1
    assert not faults
    page.close()


@pytest.mark.browser
def test_a_long_page_shows_what_an_action_changed(place, tmp_path, chromium):
    """Names, long captions and long texts; an explanation and an error are seen from wherever one has scrolled to."""
    files = sorted((place / "gallery").glob("*.png"))
    captions = [
        f"a picture whose caption goes on for longer than a line of its tile holds, number {n}"
        for n in range(len(files))
    ]
    pairs = [Pair(file, caption, file.name, file.name) for file, caption in zip(files, captions)]
    controller = search(pairs, {"circle": oracle(place)}, index=tmp_path).controller
    page = attach(chromium, "search", controller, dark=True)
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    assert page.locator(".cl-top .cl-grow").inner_text() == "circle: 11 pictures"
    caption = page.locator(".cl-tile .cl-caption").first
    assert caption.get_attribute("title") == f"{captions[0]}\n{files[0].name}"
    assert caption.evaluate("node => node.clientHeight >= 2 * parseFloat(getComputedStyle(node).lineHeight) - 1"), (
        "two lines"
    )
    colour = "node => getComputedStyle(node).backgroundColor"
    assert (
        page.locator(".cl-picture").first.evaluate(colour)
        == page.locator(".cl-tile").first.evaluate(colour)
        != "rgb(255, 255, 255)"
    )
    text = " ".join(["horse"] * 200)
    page.fill(".cl-query form input", text)
    page.press(".cl-query form input", "Enter")
    page.wait_for_function("document.querySelector('.cl-head h3').textContent.startsWith('Nearest to “horse')")
    title = page.locator(".cl-head h3")
    assert len(title.inner_text()) < 75
    assert title.inner_text().endswith("…")
    assert title.get_attribute("title") == f"“{text}”"
    in_view = (
        "node => { const { top, bottom } = node.getBoundingClientRect(); return top >= -1 && bottom <= innerHeight + "
        "1; }"
    )
    page.set_viewport_size({"width": 700, "height": 600})  # the query above the results: a page of several screens
    last = page.locator(".cl-tile").last
    last.locator("text=Why?").click()
    page.wait_for_selector(".cl-explanation:not([hidden]) canvas")
    page.wait_for_function("document.activeElement.className === 'cl-explanation'")
    explanation = page.locator(".cl-explanation")
    order = "node => node.nextElementSibling.classList.contains('cl-grid')"
    assert explanation.evaluate(in_view)
    assert explanation.evaluate(order)
    assert "cl-is-explained" in last.get_attribute("class")
    page.click("text=Close")
    assert last.locator(".cl-picture").evaluate("node => node === document.activeElement")
    assert "explained" not in last.get_attribute("class")
    last.scroll_into_view_if_needed()
    page.set_input_files("input[type=file]", str(place / "oracle.py"))
    alert = page.locator("section[aria-label='picture of the query'] [role=alert]")
    alert.get_by_text("no picture that can be read").wait_for()
    assert alert.evaluate(in_view) and not page.locator(".cl-results > [role=alert]").inner_text()
    page.close()


TITLE = "document.querySelector('.cl-head h3').textContent"


def wait_for_title(page, text):
    page.wait_for_function(f"{TITLE}.includes({json.dumps(text)})")


@pytest.mark.browser
def test_a_filter_stars_and_boxes_on_a_page(place, album, tmp_path, chromium):
    """By keyboard: words, a column, a range, a star; the list of stars; the query's own picture; its boxes."""
    controller = SearchController(search_sources(album, oracle(place), index=tmp_path / "index"))
    page = attach(chromium, "search", controller)
    faults = []
    page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    assert page.locator(".cl-tile .cl-picture .cl-boxes").count() == 5, "five of the pictures have a box"
    assert page.locator(".cl-tile .cl-picture .cl-boxes").first.is_visible()
    page.get_by_role("button", name="Boxes").click()
    assert not page.locator(".cl-tile .cl-picture .cl-boxes").first.is_visible()
    page.get_by_role("button", name="Boxes").click()
    page.fill(".cl-filter form input", "other")
    wait_for_title(page, "Pictures that pass the filter 1 to 8 of 8")
    page.get_by_label("column to filter by").select_option("split")
    page.get_by_label("split", exact=True).select_option("train")
    wait_for_title(page, "of 4")
    page.get_by_label("column to filter by").select_option("angle")
    page.get_by_label("angle from").fill("60")
    gallery = controller.gallery
    facts = [(item, gallery.facts[item], gallery.caption(item)) for item in range(10)]
    left = [
        item
        for item, known, caption in facts
        if known["split"] == ("train",) and known["angle"][0] >= 60 and "other" in caption
    ]
    page.wait_for_function(
        f"document.querySelector('.cl-filter [role=status]').textContent === '{len(left)} of 11 pictures'"
    )
    assert 0 < len(left) < 4 and list(controller.listed()) == left
    screenshot(page, "filter")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    wait_for_title(page, f"among {len(left)} pictures that pass the filter")
    page.get_by_role("button", name="Clear filter").click()
    page.wait_for_function("document.querySelectorAll('.cl-tile').length === 11")
    assert page.locator(".cl-condition").count() == 0 and page.input_value(".cl-filter form input") == ""
    page.locator(".cl-tile", has_text="horse").locator(".cl-picture").focus()
    page.keyboard.press("k")
    page.get_by_role("button", name="★ Starred (1)").click()
    wait_for_title(page, "among 1 starred pictures")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as CSV").click()
    assert download.value.suggested_filename == "starred.csv"
    assert len(Path(download.value.path()).read_text().splitlines()) == 2
    page.get_by_role("button", name="All pictures").click()
    wait_for_title(page, "Starred pictures 1 to 1 of 1")
    page.get_by_role("button", name="★ Starred (1)").click()
    wait_for_title(page, "Pictures 1 to 11 of 11")
    boxed = next(item for item in range(11) if controller.gallery.boxes[item])
    page.locator(f".cl-tile[data-item='{boxed}'] .cl-picture").click()
    page.get_by_role("button", name="field", exact=True).wait_for()
    own = page.locator(".cl-tile.cl-is-query")
    assert own.locator(".cl-tile-line b").inner_text() == "query"
    ranks = page.locator(".cl-tile-line b").all_inner_texts()
    assert [rank for rank in ranks if rank != "query"] == [str(rank) for rank in range(1, 11)]
    page.get_by_role("button", name="field", exact=True).click()
    page.wait_for_function("document.querySelector('.cl-description').textContent.startsWith('a part of')")
    assert controller.query.picture.box == (0, 0, 0.5, 0.5)
    page.locator(".cl-tile:not(.cl-is-query)").first.get_by_text("Why?").click()
    page.wait_for_selector(".cl-explanation:not([hidden]) .cl-heat-picture canvas")
    screenshot(page, "boxes")
    assert not faults
    page.close()


@pytest.mark.browser
def test_keys_work_on_a_picture_that_was_clicked_and_has_moved(place, tmp_path, chromium):
    """A picture that is clicked becomes the query and the first of the grid; the keyboard moves with it."""
    controller = search(place / "gallery", oracle(place), index=tmp_path, page_size=12).controller
    page = attach(chromium, "search", controller)
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    page.locator(".cl-tile").nth(3).locator(".cl-picture").click()
    page.wait_for_selector(".cl-tile:first-child.cl-is-query")
    page.keyboard.press("k")
    page.get_by_role("button", name="★ Starred (1)").wait_for()
    page.keyboard.press("ArrowRight")
    assert page.locator(".cl-tile").nth(1).locator(".cl-picture").evaluate("node => node === document.activeElement")
    page.close()


@pytest.mark.browser
def test_what_a_number_means_is_a_hover_or_a_focus_away(place, tmp_path, chromium):
    """A text at the mouse and at the keyboard, which Escape hides; it lies within the app."""
    controller = search(place / "gallery", oracle(place), index=tmp_path, page_size=12).controller
    page = attach(chromium, "search", controller)
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    page.locator(".cl-tile", has_text="zebra").locator(".cl-picture").click()
    page.wait_for_selector(".cl-stage img[src]")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    wait_for_title(page, "“horse”")
    tip = page.locator(".cl-meaning:popover-open")
    assert not tip.is_visible()
    line = page.locator(".cl-tile:not(.cl-is-query) .cl-tile-line").first
    line.hover()
    tip.wait_for()
    assert re.match(
        r"Hit 1 of 10 pictures. Similarity \d\.\d{3} \(with the picture alone .*, with the text alone", tip.inner_text()
    )
    tip.hover()
    assert tip.is_visible(), "it can be read with the mouse on it"
    page.keyboard.press("Escape")
    assert not tip.is_visible()
    assert page.input_value(".cl-query form input") == "horse", "Escape has put the text away, and not the query"
    page.focus(".cl-search input[type=range]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Tab")
    page.keyboard.press("Shift+Tab")
    tip.wait_for()
    assert tip.inner_text().startswith("α is the slider's place") and "of the weight" in tip.inner_text()
    slider = page.locator(".cl-search input[type=range]")
    assert slider.get_attribute("aria-describedby") == tip.get_attribute("id")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.classList.contains('cl-picture')"):
            break
    assert re.match(r"(Hit 1 of|The query's own picture)", tip.inner_text())
    page.keyboard.press("w")
    page.wait_for_selector(".cl-explanation:not([hidden]) canvas")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    tip.wait_for()
    assert re.match(r"“.*” (adds|takes) \d\.\d{3} (to|from) the similarity", tip.inner_text())
    frame, own = (part.bounding_box() for part in (page.locator(".cl-search"), tip))
    assert frame["x"] <= own["x"] and own["x"] + own["width"] <= frame["x"] + frame["width"]
    page.close()


CHOOSE = """(value) => {
  const list = document.querySelector(".cl-search select[aria-label=model]");
  list.value = value;
  list.dispatchEvent(new Event("change"));
  const grid = document.querySelector(".cl-grid");
  const former = document.querySelector(".cl-former");
  return [grid.classList.contains("cl-dimmed"), former.hidden, former.textContent, grid.children.length];
}"""
OPENED = "() => !document.querySelector('.cl-dimmed') && document.querySelector('.cl-former').hidden"


@pytest.mark.browser
def test_pictures_of_the_model_before_are_dimmed_until_the_chosen_one_is_open(place, tmp_path, chromium, monkeypatch):
    model = oracle(place)
    controller = search(place / "gallery", {"first": model, "second": model}, index=tmp_path, page_size=12).controller
    page = attach(chromium, "search", controller)
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    wait_for_title(page, "“horse”")
    seen = page.evaluate(CHOOSE, "1")  # read before the kernel can have answered
    assert seen == [True, False, "These pictures are still those of first, until second is open.", 11]
    page.wait_for_function(OPENED)
    assert controller.source == 1
    assert page.evaluate(CHOOSE, "0")[0]
    page.wait_for_function(OPENED)
    controller.sources = controller.sources[:1]
    page.evaluate(CHOOSE, "1")
    page.wait_for_function("document.querySelector('.cl-results .cl-status').textContent.includes('there is no model')")
    page.wait_for_function(OPENED)
    assert page.locator("select[aria-label=model]").input_value() == "0", "the list names the model that is open"
    controller.sources = controller.sources * 2
    another = ({"type": "error", "action": "search_text", "text": "of an earlier request"}, [])
    monkeypatch.setattr(controller, "handle", lambda *_: [another])
    page.evaluate(CHOOSE, "1")
    page.wait_for_function("document.querySelector('.cl-results .cl-status').textContent.includes('earlier request')")
    assert not page.evaluate(OPENED) and page.locator("select[aria-label=model]").input_value() == "1"
    page.close()


@pytest.mark.browser
def test_the_slider_is_still_where_there_is_nothing_to_mix(place, tmp_path, chromium):
    controller = search(place / "gallery", oracle(place), index=tmp_path, page_size=12).controller
    page = attach(chromium, "search", controller)
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    slider, said = page.locator(".cl-search input[type=range]"), page.locator(".cl-mix")
    assert slider.is_disabled() and said.inner_text().startswith("Choose a picture and type words first")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    wait_for_title(page, "“horse”")
    assert slider.is_disabled()
    assert said.inner_text() == "Choose a picture first: alpha mixes picture and words."
    screenshot(page, "search-text-alone")
    page.locator(".cl-tile", has_text="zebra").locator(".cl-picture").click()
    page.wait_for_selector(".cl-stage img[src]")
    page.wait_for_function("!document.querySelector('.cl-search input[type=range]').disabled")
    assert said.inner_text().startswith("In the middle, picture and text count equally")
    slider.focus()
    page.keyboard.press("End")
    controller.handle({"action": "set_alpha", "alpha": 1})
    controller.handle({"action": "clear", "what": "text"})
    page.get_by_role("button", name="Refresh").click()
    page.wait_for_function("document.querySelector('.cl-mix').textContent.startsWith('Type words first')")
    assert not slider.is_disabled(), "it stands at the end of the words, which are missing"
    slider.focus()
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelectorAll('.cl-grid .cl-tile').length > 0")
    page.close()


BOX = "(selector) => document.querySelector(selector).getBoundingClientRect().toJSON()"


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_narrow_page_the_results_follow_the_query(place, album, tmp_path, chromium, dark):
    """Picture, text and slider, then one button, then pictures; the filter and the earlier queries open below the
    button."""
    controller = SearchController(search_sources(album, oracle(place), index=tmp_path / "index"))
    page = attach(chromium, "search", controller, dark)
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    wait_for_title(page, "“horse”")
    unfold = page.locator(".cl-unfold")
    assert unfold.inner_text() == "Filter and previous queries" and unfold.get_attribute("aria-expanded") == "false"
    assert not page.locator(".cl-filter").is_visible() and not page.locator(".cl-history").is_visible()
    slider, button, results, tile = (
        page.evaluate(BOX, selector)
        for selector in ("input[type=range]", ".cl-unfold", ".cl-results", ".cl-grid .cl-tile")
    )
    assert slider["bottom"] < button["top"] < button["bottom"] < results["top"] < tile["top"]
    assert results["top"] - slider["bottom"] < 160, "no more than the slider's words and one button are between them"
    assert tile["bottom"] <= 900, "the first hits are on the first screen"
    screenshot(page, f"search-narrow-{'dark' if dark else 'light'}")
    unfold.focus()
    page.keyboard.press("Enter")
    page.fill(".cl-filter form input", "other")
    page.wait_for_function("document.querySelector('.cl-unfold').textContent.startsWith('Filter (8 of 11 pictures)')")
    shown, below = page.evaluate(BOX, ".cl-filter"), page.evaluate(BOX, ".cl-results")
    assert button["bottom"] <= shown["top"] and shown["bottom"] <= below["top"]
    assert page.locator(".cl-history").is_visible()
    unfold.click()
    assert not page.locator(".cl-filter").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 420
    page.set_viewport_size({"width": 1280, "height": 900})
    assert page.locator(".cl-filter").is_visible() and not unfold.is_visible(), "a wide page has room for all of it"
    page.close()


@pytest.mark.browser
def test_what_a_number_means_is_a_tap_away(place, tmp_path, chromium):
    """Of the numbers of a hit, of the times and of alpha; a button does what it says."""
    controller = search(place / "gallery", oracle(place), index=tmp_path, page_size=12).controller
    page = attach(SimpleNamespace(new_page=partial(chromium.new_page, has_touch=True)), "search", controller)
    page.wait_for_selector(".cl-grid[data-ready='true'] .cl-tile")
    page.fill(".cl-query form input", "horse")
    page.press(".cl-query form input", "Enter")
    wait_for_title(page, "“horse”")
    tip = page.locator(".cl-meaning:popover-open")
    for selector, begins in (
        (".cl-tile-line .cl-muted", "Hit 1 of 11 pictures"),
        (".cl-timing button", "How long the last query took"),
        ("output", "α is the slider's place"),
    ):
        page.locator(selector).first.tap()
        tip.wait_for()
        page.wait_for_timeout(400)
        assert tip.inner_text().startswith(begins) and tip.count() == 1
    page.locator("h2").tap()
    assert tip.count() == 0
    page.locator(".cl-tile").first.get_by_text("Why?").tap()
    page.wait_for_selector(".cl-explanation:not([hidden]) canvas")
    assert tip.count() == 0
    page.close()


@pytest.mark.browser
@pytest.mark.parametrize("width", [1600, 2560])
def test_a_wide_window_is_used(tmp_path, chromium, width):
    """Three whole rows of pictures from edge to edge."""
    shades = np.random.default_rng(0).integers(0, 255, (80, 8, 8, 3), np.uint8)
    pairs = [Pair(shade, None, str(k), str(k)) for k, shade in enumerate(shades)]
    controller = search(pairs, {"constant": Constant()}, index=tmp_path).controller
    page = attach(chromium, "search", controller)
    page.set_viewport_size({"width": width, "height": 1000})
    page.wait_for_function(
        "(() => { const grid = document.querySelector('.cl-grid');"
        " const columns = getComputedStyle(grid).gridTemplateColumns.split(' ').length;"
        " return grid.children.length > 24 && grid.children.length === 3 * columns; })()"
    )
    edges = page.evaluate("[...document.querySelectorAll('.cl-tile')].map(tile => tile.getBoundingClientRect().right)")
    assert max(edges) > width - 40
    screenshot(page, f"wide-{width}")
    page.close()


@pytest.mark.browser
def test_a_saved_page_requests_nothing(place, chromium, tmp_path):
    app = search(place / "gallery", {"circle": oracle(place)}, index=tmp_path).run_action("search_text", text="horse")
    assert requests_of_file(chromium, app.save(tmp_path / "view")[0], ".cl-grid .cl-tile") == []


@pytest.mark.browser
def test_in_voila(servers, chromium, place):
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    faults = []
    page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
    page.set_default_timeout(60_000)
    foreign = requests_of(page)
    page.goto(servers["voila"])
    drive(page, "voila")
    assert not foreign, "a request left the machine"
    page.focus(".cl-stage")
    for key in ("ArrowLeft", "Shift+ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_function("document.querySelector('.cl-description').textContent.startsWith('a part of')")
    page.set_input_files(".cl-search input[type=file]", str(place / "oracle.py"))
    page.wait_for_function(
        "document.querySelector('.cl-search .cl-status').textContent.includes('no picture that can be read')"
    )
    page.set_input_files(".cl-search input[type=file]", str(place / "secret.png"))
    page.wait_for_function("document.querySelector('.cl-description').textContent.startsWith('secret.png')")
    page.wait_for_function("location.hash.includes('upload=1')")
    assert "secret" not in page.evaluate("location.hash"), "the name of a file that lies elsewhere"
    page.focus(".cl-search input[type=range]")  # with words alone it can no longer be moved
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('.cl-grid').dataset.alpha === '0.00'")
    page.click("text=Remove")
    page.wait_for_function(
        "document.querySelector('.cl-results .cl-status').textContent.includes('There is no picture')"
    )
    screenshot(page, "voila-5-nothing")
    page.click(".cl-history button >> nth=-1")
    page.wait_for_selector(".cl-grid .cl-tile")
    with page.expect_download() as download:
        page.click("text=Save as CSV")
    assert Path(download.value.path()).read_text().startswith("model,query,alpha,rank")
    page.get_by_role("button", name="All pictures").click()
    page.wait_for_function("document.querySelector('.cl-head h3').textContent.startsWith('Pictures 1')")
    # only voila's own scripts may fail
    errors = [fault for fault in faults if "/voila/" not in fault and "/static/" not in fault]
    assert not errors, errors
    page.close()


@pytest.mark.browser
def test_the_launcher_serves_a_page_and_no_file(place):
    """As a user starts it: the page opens, every door to a file is shut, and the end of the launcher is the end of its
    server."""
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    psutil = pytest.importorskip(
        "psutil", reason="psutil, which comes with ipykernel, is not installed: nobody's ports can be read"
    )
    env = {**os.environ, "COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "complearn.apps.serving", "search", "--gallery", str(place / "gallery")]
    launcher = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        line = launcher.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", line)[0]
        user = visitor()
        root, _ = address.split("?")
        status, content = fetched(address, user)
        assert status == 200 and b"jupyter-config-data" in content
        config = re.search(rb'id="jupyter-config-data"[^>]*>(.*?)</script>', content, re.DOTALL)[1]
        extensions = {extension["name"] for extension in json.loads(config)["federated_extensions"]}
        assert "anywidget" in extensions and extensions <= set(EXTENSIONS), "each one more delays every page"
        kernel = re.search(rb'"kernelId": *"([0-9a-f-]{36})"', content)[1].decode()
        for shut in ("", f"api/kernels/{kernel}", f"api/kernels/{kernel}/channels", f"voila/api/shutdown/{kernel}"):
            status, content = fetched(root + shut)  # another account of this machine has no token
            assert b"jupyter-config-data" not in content and (status in (401, 403) or b"password" in content.lower()), (
                shut,
                status,
            )
        started = [" ".join(process.cmdline()) for process in psutil.Process(launcher.pid).children(recursive=True)]
        files = [Path(match[1]) for line in started if (match := re.search(r"-f (\S+kernel-\S+\.json)", line))]
        assert files and not any(address.split("token=")[1] in line for line in started)
        # sockets in a folder of one's own, not ports of the machine: those can be listened to without a key
        for file in files:
            assert json.loads(file.read_text())["transport"] == "ipc" and file.parent.stat().st_mode & 0o077 == 0
        picture = next((place / "gallery").glob("*.png")).name
        above = ("../../../../etc/passwd", "..%2f..%2fetc/passwd")
        for door in (
            "files/",
            "voila/files/",
            "static/../",
            "voila/static/../",
            "voila/files/%2e%2e/",
            "api/contents/",
            "voila/render/",
        ):
            for name in ("search.ipynb", picture, "secret.png", "oracle.py", "etc/passwd", *above):
                status, content = fetched(root + door + name, user)
                assert status in (403, 404), (door, name, status)
    finally:
        launcher.terminate()
        assert launcher.wait(30) == 0
    with pytest.raises(urllib.error.URLError):
        fetched(address)


def visitor():
    """A browser that keeps its cookies: let in once by the token, it is let in from then on."""
    return urllib.request.build_opener(urllib.request.HTTPCookieProcessor())


def fetched(address, by=None):
    try:
        with (by or visitor()).open(address, timeout=120) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.browser
def test_no_file_outside_the_gallery_is_reachable(servers, place):
    """Voila listens on this machine alone, and gives out no file: neither beside the notebook nor above it."""
    address = servers["voila"].split("?")[0]
    user = visitor()
    assert address.startswith("http://127.0.0.1:") and fetched(servers["voila"], user)[0] == 200
    (place.parent / "above.png").write_bytes((place / "secret.png").read_bytes())
    for path in (
        "secret.png",
        "oracle.py",
        "../above.png",
        "%2e%2e/above.png",
        "..%2fabove.png",
        "/etc/passwd",
        "../../../../../../etc/passwd",
    ):
        for root in (
            "",
            "voila/files/",
            "voila/static/",
            "files/",
            "static/",
            "voila/render/",
            "api/contents/",
            "nbextensions/",
        ):
            status, content = fetched(address + root + path, user)
            allowed = (place / "secret.png").read_bytes()
            assert content != allowed and b"root:" not in content and b"class Circle" not in content, (
                root,
                path,
                status,
            )


@pytest.mark.browser
def test_a_host_of_another_name_is_refused(servers):
    """A page elsewhere whose name was made to mean this machine gets nothing: no page, no file, no kernel."""
    address, token = servers["voila"].split("?")
    kernel = "api/kernels/12345678-1234-1234-1234-123456789012/channels"
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": 22 * "x" + "==",
        "Sec-WebSocket-Version": "13",
    }
    for path in (f"?{token}", "voila/static/voila.js", "voila/templates/lab/static/index.css", f"{kernel}?{token}"):
        statuses = []
        for host in ("127.0.0.1", "localhost", "example.org", "127.0.0.1.example.org:8888", "192.0.2.1"):
            connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=30)
            connection.request("GET", f"/{path}", headers={"Host": host} | (upgrade if path.startswith(kernel) else {}))
            statuses.append(connection.getresponse().status)
            connection.close()
        assert statuses[:2] == [404 if path.startswith(kernel) else 200] * 2 and statuses[2:] == [403] * 3, (
            path,
            statuses,
        )


@pytest.mark.browser
def test_in_jupyterlab_and_back_in_the_notebook(servers, chromium):
    page = chromium.new_page(viewport={"width": 1600, "height": 1000})
    page.set_default_timeout(60_000)
    run_in_jupyterlab(page, servers["jupyterlab"])
    drive(page, "lab")
    time.sleep(0.3)  # the kernel receives the slider's place a little later
    page.focus(".cl-tile button[aria-pressed='true']")
    page.keyboard.press("Control+z")
    page.wait_for_selector(".cl-tile button[aria-pressed='true']", state="detached")
    page.get_by_label("the view after").click()
    page.wait_for_selector(".cl-tile button[aria-pressed='true']")
    time.sleep(0.3)
    assert page.locator(".jp-Notebook .jp-Cell").count() == 3, "keys that the app was meant to have edited the notebook"
    run_cell(page, 2)
    page.wait_for_function("/FOUND \\S*-45-zebra.png 0.5 1 DataFrame/.test(document.body.innerText)")
    screenshot_in_dark(page, ".cl-search", "lab-5-dark")
    page.close()


def test_a_run_of_composer_is_listed_with_the_reason(tmp_path):
    config = {
        "method": {"name": "composer", "args": {}},
        "model": {"kind": "composer"},
        "data": {"name": "generated", "args": {}},
    }
    source = _run_source(Run.create(tmp_path / "composer-s0", config), "composer-s0", None)
    assert not source.can_search and "has no vector of either; choose a dual encoder to search with" in source.state


@pytest.mark.slow
def test_a_run_that_is_named_offers_the_weights_of_its_earlier_phases_to_search_and_edits(tmp_path):
    run = prepare(tmp_path / "runs" / "il_clip-s0", training_runs.config())
    launch(run.path, progress=False)
    *earlier, _ = run.phase_names()
    names = ["il_clip-s0", *(f"il_clip-s0@{phase}" for phase in earlier)]
    sources = {source.name: source for source in search_sources(runs=run.path)}
    assert [*sources] == names and len(names) > 2
    assert [source.name for source in search_sources(runs=tmp_path)] == names[:1], "not of every run of a folder"
    for name, phase in zip(names[1:], earlier):
        weights = sources[name].scorer.state_dict()
        kept = Snapshot(run, phase).scorer().state_dict()
        assert all(torch.equal(weights[key], kept[key]) for key in kept), name
    page = search(runs=run.path, index=tmp_path / "index", view={"model": names[1], "text": "a red circle"})
    assert page.view["model"] == names[1] and page.view["text"] == "a red circle"
    assert edits(["a dog on a bed"], runs=run.path, view={"model": names[1]}).view["model"] == names[1]


def test_an_address_means_a_picture_of_the_gallery_as_it_is(place, tmp_path):
    "A query of before, of the picture that had this number then, is another one."
    gallery = shutil.copytree(place / "gallery", tmp_path / "gallery")
    controller = SearchController(search_sources(gallery, oracle(place), index=tmp_path / "index"), page_size=5)
    controller.handle({"action": "search_picture", "item": 4})
    controller.handle({"action": "search_text", "text": "horse"})
    former = controller.history[0].picture.name
    (gallery / controller.gallery.named(0)).unlink()
    controller.handle({"action": "refresh"})
    controller.restore(SearchAddress(picture=4))
    assert controller.query.picture.name == controller.gallery.named(4) != former
    controller.restore(SearchAddress(picture=3))
    assert controller.query is controller.history[0] and controller.query.picture.name == former


def test_captions_are_checked_again_where_a_picture_is_another_under_its_name(with_album, album, monkeypatch):
    asked = []
    monkeypatch.setattr("complearn.apps.search.controller.check_captions", lambda *given: asked.append(given))
    monkeypatch.setattr("complearn.apps.search.controller.caption_remark", lambda check: "")
    opened(with_album)
    with_album.handle({"action": "refresh"})
    assert len(asked) == 1
    first, second = sorted(album.glob("*.png"))[:2]
    shutil.copy(first, second)
    with_album.handle({"action": "refresh"})
    assert len(asked) == 2


def test_runs_of_one_name_are_told_apart_in_every_app(tmp_path):
    "By the parts of their paths that differ; a run of another name keeps its own."
    for place in ("a/runs/clip-s0", "b/runs/clip-s0", "b/runs/clip-s1"):
        Run.create(tmp_path / place, training_runs.config({"name": "clip", "args": {"steps": 2}}))
        (tmp_path / place / "config.json").write_text('{"made": ')  # every app lists a damaged run with its reason
    for sources in (code_sources, search_sources, map_sources, stage_sources, concept_models):
        listed = sources(runs=[tmp_path / "a", tmp_path / "b"])
        assert [source.name for source in listed] == ["a/clip-s0", "b/clip-s0", "clip-s1"], sources.__name__
        assert [source.name for source in sources(runs=tmp_path / "a")] == ["clip-s0"]
