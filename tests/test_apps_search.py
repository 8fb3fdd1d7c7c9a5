"""The search app: the desk's answers and faults, the browser's mixture against the kernel's, the app in JupyterLab and voila."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from complearn.apps.search.answers import search_hits, search_selection
from complearn.apps.search.app import search
from complearn.apps.search.desk import SearchDesk
from complearn.apps.search.script import SLIDING
from complearn.apps.search.sources import search_sources
from complearn.apps.serving import serving
from complearn.core.figures import find_browser
from complearn.data.pairs import Pair
from complearn.models.scoring import Encoded, cosine

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
    """A gallery in a folder, in no order: photographs of a zebra and a horse where there are any, coloured fields otherwise."""
    root = tmp_path_factory.mktemp("search")
    (root / "oracle.py").write_text(ORACLE)
    (root / "gallery").mkdir()
    real = os.environ.get("COMPLEARN_REAL_DATA")
    equines = Path(real) / "stamps" / "animals" / "mammals" / "equines" if real else None
    for n, angle in enumerate(np.random.default_rng(0).permutation([0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90]).tolist()):
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
def desk(place, tmp_path):
    return SearchDesk(search_sources(place / "gallery", oracle(place), index=tmp_path), shown=5)


def said(answers):
    [(told, _)] = answers
    assert told["re"] == "error", told
    return told["said"]


def item_of(desk, name):
    desk.ready()
    return next(item for item, one in enumerate(desk.gallery.about["ids"]) if name in one)


def first(desk, alpha):
    desk.do({"do": "alpha", "alpha": alpha})
    return search_hits(desk, 1).id[0].split("-", 1)[1].removesuffix(".png")


# --- the desk


def test_the_order_along_the_slider_is_the_known_one(desk):
    desk.do({"do": "pick", "item": item_of(desk, "stripes")})
    desk.do({"do": "text", "text": "horse"})
    assert [first(desk, alpha) for alpha in (0, 0.5, 1)] == ["0-stripes", "45-zebra", "90-horse"]
    angles = [float(first(desk, alpha).split("-")[0]) for alpha in np.linspace(0, 1, 41)]
    assert angles == sorted(angles) and len(set(angles)) == 11, "a progressive transition"
    hits = search_hits(desk, 3)
    assert list(hits["rank"]) == [1, 2, 3] and (hits.score.diff().dropna() <= 0).all()
    assert hits.text_score[0] == pytest.approx(1) and hits.image_score[0] == pytest.approx(0, abs=1e-6)


def test_a_crop_an_upload_and_the_way_back(desk, place):
    item = item_of(desk, "zebra")
    desk.do({"do": "pick", "item": item})
    assert first(desk, 0) == "45-zebra"
    file = io.BytesIO()
    Image.open(next((place / "gallery").glob("*-9-*.png"))).save(file, "PNG")
    half = len(file.getvalue()) // 2
    assert desk.do({"do": "upload", "name": "../../mine.png", "part": 0, "parts": 2}, [file.getvalue()[:half]]) == []
    told = desk.do({"do": "upload", "name": "../../mine.png", "part": 1, "parts": 2}, [memoryview(file.getvalue()[half:])])
    assert [one["re"] for one, _ in told] == ["thumbs", "query", "past"] and told[1][0]["picture"]["name"] == "mine.png"
    assert first(desk, 0).startswith("9-")
    desk.do({"do": "crop", "box": [0.2, 0.2, 0.9, 0.9]})
    assert desk.query.label == "a piece of mine.png" and first(desk, 0).startswith("9-")
    assert len(desk.history) == 3
    desk.do({"do": "recall", "place": 0})
    assert first(desk, 0) == "45-zebra" and len(desk.history) == 3
    desk.do({"do": "keep", "item": item, "on": True})
    assert search_selection(desk)["id"].str.contains("zebra").all() and len(search_selection(desk)) == 1
    [(told, _)] = desk.do({"do": "table"})
    assert told["csv"].startswith("model,query,alpha,rank") and len(told["csv"].splitlines()) == 12


def test_what_fails_says_what_to_do_and_changes_nothing(desk):
    desk.do({"do": "pick", "item": 2})
    before = (desk.query, len(desk.history), list(desk.kept))
    for request, remedy in (
        ({"do": "text", "text": "  "}, None),  # the picture alone: no fault
        ({"do": "pick", "item": 11}, "0 to 10"),
        ({"do": "pick", "item": -1}, "0 to 10"),
        ({"do": "pick", "item": "../secret.png"}, "../secret.png"),
        ({"do": "thumbs", "items": [99]}, "0 to 10"),
        ({"do": "why", "item": 99}, "0 to 10"),
        ({"do": "keep", "item": 99}, "0 to 10"),
        ({"do": "crop", "box": [0, 0, 0.001, 1]}, "larger box"),
        ({"do": "crop", "box": [0.5, 0, 0.2, 1]}, "from 0 to 1"),
        ({"do": "alpha", "alpha": 1.5}, "between 0"),
        ({"do": "recall", "place": 9}, "no former query"),
        ({"do": "clear", "what": "everything"}, "the picture, the text or all"),
        ({"do": "model", "source": 5}, "there is no model"),
        ({"do": "nonsense"}, "knows no"),
    ):
        if remedy is None:
            assert desk.do(request)[0][0]["re"] != "error"
            before = (desk.query, len(desk.history), list(desk.kept))
            continue
        assert remedy in said(desk.do(request)), request
        assert desk.query is before[0] and (len(desk.history), desk.kept) == before[1:]
    for content, remedy in ((b"", "is empty"), (b"no picture at all", "no picture that can be read")):
        assert remedy in said(desk.do({"do": "upload", "name": "x.png"}, [content]))


def test_a_request_that_does_not_fit_names_the_deed_and_its_arguments(desk, place):
    for request, told in (
        ({"do": "text"}, "'text' cannot be done, missing a required argument: 'text'; its arguments: text"),
        ({"do": "pick", "thing": 3}, "its arguments: item"),
        ({"do": "crop", "size": 3}, "got an unexpected keyword argument 'size'; its arguments: box (may be left out)"),
        ({"do": "table", "rows": 3}, "its arguments: none"),
    ):
        assert told in said(desk.do(request))
    told = desk.do({"do": "upload"}, [next((place / "gallery").glob("*.png")).read_bytes()])
    assert told[-1][0]["re"] == "past" and desk.query.picture.name == "the picture"


def test_the_line_of_the_app_counts_all_that_could_not_be_read(place, tmp_path):
    shutil.copytree(place / "gallery", tmp_path / "gallery")
    cut = next((tmp_path / "gallery").glob("*.png")).read_bytes()[:-60]
    (tmp_path / "gallery" / "cut.png").write_bytes(cut)
    (tmp_path / "gallery" / "text.jpg").write_text("no picture")
    with pytest.warns(UserWarning, match="text.jpg: cannot identify"):
        desk = SearchDesk(search_sources(tmp_path / "gallery", oracle(place), index=tmp_path / "index"))
        desk.ready()
    hello = desk.do({"do": "hello"})[0][0]
    assert (hello["skips"], hello["skipped"], hello["pictures"]) == (2, ["text.jpg", "cut.png"], 11)


def test_a_desk_without_models_says_what_it_was_told():
    assert "no such folder" in said(SearchDesk([], empty="results/first: no such folder").do({"do": "page"}))


def test_the_far_end_of_a_half_query_is_a_message_and_not_a_ranking(desk):
    desk.do({"do": "pick", "item": 0})
    desk.do({"do": "alpha", "alpha": 1})
    with pytest.raises(ValueError, match="type some words, or move the slider towards the picture"):
        search_hits(desk)
    desk.do({"do": "clear", "what": "all"})
    assert desk.do({"do": "text", "text": "horse"})[-1][0]["re"] == "past"
    desk.do({"do": "alpha", "alpha": 0})
    with pytest.raises(ValueError, match="choose a picture, or move the slider towards the text"):
        search_hits(desk)


def test_a_folder_that_changes_under_the_app(place, tmp_path):
    shutil.copytree(place / "gallery", tmp_path / "gallery")
    desk, heard = SearchDesk(search_sources(tmp_path / "gallery", oracle(place), index=tmp_path / "index"), shown=5), []
    gone = item_of(desk, "zebra")
    assert "as it was indexed" in desk.do({"do": "refresh"})[-1][0]["said"]
    desk.told = heard.append
    (tmp_path / "gallery" / desk.gallery.named(gone)).unlink()
    assert "not found" in said(desk.do({"do": "pick", "item": gone}))
    desk.do({"do": "pick", "item": item_of(desk, "stripes")})
    desk.do({"do": "text", "text": "horse"})
    desk.do({"do": "keep", "item": item_of(desk, "horse")})
    desk.do({"do": "refresh"})
    assert len(desk.gallery) == 10 and any("1 gone" in text for text in heard)
    assert len(desk.history) == 2 and desk.query is desk.history[-1] and len(desk.query.scores.items) == 10, "the questions are still there"
    assert search_selection(desk)["id"].str.contains("horse").all() and first(desk, 1).endswith("horse")
    desk.do({"do": "recall", "place": 0})
    assert desk.query.text == "" and len(desk.query.scores.items) == 10 and first(desk, 0) == "0-stripes" and len(desk.history) == 2
    name, seen = desk.query.picture.name, desk.query.picture.shown
    shutil.copy(tmp_path / "gallery" / desk.gallery.named(item_of(desk, "horse")), tmp_path / "gallery" / name)  # it is another now
    desk.do({"do": "refresh"})
    own = desk.query.scores
    assert desk.query.picture.shown != seen and own.hits(0, 10)[1].max() == pytest.approx(1, abs=1e-5), "it is read again, and finds itself"
    (tmp_path / "gallery" / name).unlink()  # the query's own picture goes
    assert desk.do({"do": "refresh"})[-1][0]["re"] != "error" and len(desk.gallery) == 9 and desk.query.picture.item is None


def test_the_page_opens_before_anything_is_trained_and_says_what_it_does(tmp_path, monkeypatch):
    import complearn.apps.search.sources as room

    asked, heard = [], []
    real = room.small_run
    monkeypatch.setattr(room, "small_run", lambda told: asked.append(told) or real(tmp_path, 2, told))
    app = search(n=20, index=tmp_path / "index")
    assert not asked and app._desk.do({"do": "hello"})[0][0]["sources"][0]["able"]
    app._desk.told = heard.append
    assert len(app._desk.do({"do": "page"})[0][0]["items"]) == 20 and len(asked) == 1
    assert any("training a small model" in text and "ten seconds" in text for text in heard)


def test_lost_data_of_a_run_names_this_apps_own_way_out(tmp_path, monkeypatch):
    from complearn.apps.search.sources import pictures_of
    from complearn.training.runs.launch import prepare

    data = {"name": "folder", "args": {"root": str(tmp_path / "gone")}}
    config = {"plan": {"name": "clip", "args": {"steps": 1}}, "model": {"vision": "tiny", "text": "tiny"}, "data": data}
    run = prepare(tmp_path / "run", config | {"train": {"batch_size": 4, "lr": 1e-3}})
    with pytest.raises(ValueError, match=r"search\(gallery=DIR") as raised:
        pictures_of(run)
    assert "codes(" not in str(raised.value)


def test_a_run_that_cannot_search_is_listed_with_its_reason_and_not_opened(tmp_path):
    """The documented sweep makes stage 2 alone and stages 2 and 3 in one folder; a classifier may lie beside them."""
    from complearn.apps.search.sources import run_source
    from complearn.core.runs import Run

    def made(name, model):
        config = {"plan": {"name": "clip", "args": {}}, "model": model, "data": {"name": "generated"}, "train": {}}
        return run_source(Run.create(tmp_path / name, config), lambda: [])

    for name, model, told in (
        ("stage2", {"kind": "grounded"}, "search heads"),
        ("namer", {"kind": "classifier"}, "reads no texts"),
        ("young", {"kind": "grounded", "search": True}, "kept no model yet"),
        ("early", {"vision": "tiny", "text": "tiny"}, "kept no model yet"),
    ):
        source = made(name, model)
        assert not source.able and told in source.state, name


def test_nothing_to_search_with_says_why(tmp_path):
    assert "no such folder" in search(runs=tmp_path / "none")._empty or "not a folder" in search(runs=tmp_path / "none")._empty
    assert "There is no run in" in search(runs=tmp_path)._empty
    with pytest.raises(ValueError, match="give gallery="):
        search(models=object())
    with pytest.raises(ValueError, match="There is no run in"):
        search(runs=tmp_path).ask("pick", item=0)


class Ragged:
    "A scorer with a vector per token, which cannot be indexed."

    def collate(self, pairs):
        return pairs

    def encode_images(self, batch):
        return Encoded(torch.ones(len(batch), 3, 4), torch.ones(len(batch), 3, dtype=torch.bool))

    encode_texts, similarity = encode_images, staticmethod(cosine)


def test_a_scorer_without_one_vector_per_picture_is_refused():
    desk = SearchDesk(search_sources([Pair(np.zeros((8, 8, 3), np.uint8), None, "0", "0")], Ragged()))
    assert "search heads of a grounded model" in said(desk.do({"do": "hello"}) and desk.do({"do": "model", "source": 0}))


def test_the_tables_and_the_page_of_a_script(place, tmp_path):
    app = search(place / "gallery", {"circle": oracle(place)}, index=tmp_path, shown=4)
    assert app.hits.empty and app.selection.empty
    app.ask("pick", item=0).ask("text", text="horse").ask("alpha", alpha=0.25)
    assert app._alpha == 0.25 and set(app.hits.alpha) == {0.25} and len(app.hits) == 11
    app._alpha = 0.75  # what the slider does
    assert set(app.hits.alpha) == {0.75}
    assert app.save(tmp_path / "view.html")[0].stat().st_size > 30_000


def test_a_grounded_model_is_searched_and_explained_by_its_search_heads(tmp_path):
    from complearn.data.word_tokenizer import WordTokenizer
    from complearn.models.grounded.model import build_grounded

    tiny = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
    parts = {"relations": {"predicates": ["left of"], "objects": ["star"]}, "search": True}
    model = build_grounded({"vision": tiny | {"patch": 8}, "text": tiny} | parts, WordTokenizer.fit(["a red star"]))
    pairs = [
        Pair(image, None, str(k), str(k)) for k, image in enumerate(np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3), np.uint8))
    ]
    app = search(pairs, {"grounded": model}, index=tmp_path)
    app.ask("pick", item=3).ask("text", text="red star").ask("alpha", alpha=0)
    assert app.hits.item[0] == 3 and app.hits.score[0] == pytest.approx(1)
    [(told, buffers)] = app._desk.do({"do": "why", "item": 3})
    assert told["words"] == ["the query picture"] and told["score"] == pytest.approx(1, abs=1e-5), "at the picture's end no word counts"
    for alpha in (0.3, 0.8):
        app.ask("alpha", alpha=alpha)
        shown = app.hits.set_index("item").loc[4]
        [(told, buffers)] = app._desk.do({"do": "why", "item": 4})
        assert told["words"] == ["the whole text", "red", "star", "the query picture"] and told["grids"][0] == [4, 4] and len(buffers) == 5
        whole, red, star, picture = told["drives"]
        assert whole + picture == pytest.approx(shown.score, abs=1e-5) == told["score"] and red + star == pytest.approx(whole, abs=1e-6)
        length = np.sqrt((1 - alpha) ** 2 + alpha**2 + 2 * alpha * (1 - alpha) * app._desk.query.scores.between)
        assert whole == pytest.approx(alpha * shown.text_score / length, abs=1e-5)
        assert picture == pytest.approx((1 - alpha) * shown.image_score / length, abs=1e-5)


# --- in a browser


CELLS = [
    "import sys; sys.path.insert(0, '.')\nfrom pathlib import Path",
    "from oracle import Circle\nfrom complearn.apps.search.app import search",
    "app = search(Path('gallery'), Circle(Path('gallery')), index='index', shown=6)\napp",
]
LAST = "print('FOUND', app.hits.id[0], app.hits.alpha[0], len(app.selection), type(app.hits).__name__)"


def notebook(path, cells):
    made = [
        {"cell_type": "code", "execution_count": None, "id": f"c{i}", "metadata": {}, "outputs": [], "source": c}
        for i, c in enumerate(cells)
    ]
    spec = {"display_name": "python3", "language": "python", "name": "python3"}
    path.write_text(json.dumps({"cells": made, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}))
    return path


@pytest.fixture(scope="module")
def servers(place):
    """JupyterLab and voila, started together."""
    for needed in ("playwright.sync_api", "jupyterlab", "voila"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the app is not tried in a browser")
    env = {"COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    with ExitStack() as stack:
        start = lambda name, program, extra: stack.enter_context(serving(notebook(place / name, CELLS + extra), program, env))
        yield {"voila": start("app.ipynb", "voila", []), "jupyterlab": start("lab.ipynb", "jupyterlab", [LAST])}


@pytest.fixture(scope="module")
def chromium():
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: the app is not tried in a browser")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


def shot(page, name):
    if os.environ.get("COMPLEARN_SHOTS"):
        page.screenshot(path=str(Path(os.environ["COMPLEARN_SHOTS"]) / f"{name}.png"))


@pytest.mark.browser
def test_the_browser_mixes_and_orders_as_the_kernel_does(chromium):
    """On scores with many ties, to the last bit."""
    from complearn.evaluation.search.mixture import Mixture

    rng = np.random.default_rng(0)
    image, text = (torch.from_numpy((rng.integers(-20, 20, 3000) / 20).astype(np.float32)) for _ in range(2))
    mix = Mixture(torch.arange(3000), image, text, 0.25, (True, True))
    alphas = np.linspace(0, 1, 101).round(2).tolist()
    page = chromium.new_page()
    body = """
      const raw = (Kind, values) => new DataView(Kind.from(values).buffer), sides = [image, words].map((side) => raw(Float32Array, side));
      const mix = new Mix({ has: [true, true], between: 0.25 }, [null, raw(Int32Array, image.map((_, i) => i)), ...sides]);
      return alphas.map((alpha) => mix.hits(alpha, 24).map((hit) => [hit.item, hit.score]));"""
    run = "([image, words, alphas]) => { " + SLIDING + body + " }"
    told = page.evaluate(run, [image.tolist(), text.tolist(), alphas])
    page.close()
    for alpha, hits in zip(alphas, told):
        items, scores = mix.hits(alpha, 24)
        assert [item for item, _ in hits] == items.tolist(), alpha
        assert np.allclose([score for _, score in hits], scores.numpy(), atol=1e-12)


FIRST = "document.querySelector('.cl-wall .cl-tile .cl-caption')?.textContent"


def drive(page, name):
    """Pick a picture, type a word, slide by keyboard and by mouse, read the order; ask why; returns the first hit's name."""
    angle = lambda: page.evaluate(f"{FIRST}.split('-').slice(1).join('-').replace('.png', '')")
    page.wait_for_selector(".cl-wall[data-ready='true'] .cl-tile")
    shot(page, f"{name}-1-open")
    page.focus(".cl-wall .cl-tile button[tabindex='0']")
    for _ in range(20):  # by keyboard to the picture of stripes
        if page.evaluate("document.activeElement.closest('.cl-tile').textContent.includes('stripes')"):
            break
        page.keyboard.press("ArrowRight")
    else:
        page.get_by_role("button", name="Later").click()
        page.wait_for_function("[...document.querySelectorAll('.cl-tile')].some((one) => one.textContent.includes('stripes'))")
        page.evaluate(
            "[...document.querySelectorAll('.cl-tile')].find((one) => one.textContent.includes('stripes')).querySelector('.cl-pic').focus()"
        )
    page.keyboard.press("Enter")
    page.wait_for_selector(".cl-stage img[src]")
    page.fill(".cl-ask form input", "horse")
    page.press(".cl-ask form input", "Enter")
    page.wait_for_function("document.querySelector('.cl-head h3').textContent.includes('“horse”')")
    page.focus(".cl-search input[type=range]")
    page.keyboard.press("Home")
    seen = [angle()]
    for _ in range(100):
        page.keyboard.press("ArrowRight")
        seen += [] if seen[-1] == angle() else [angle()]
    assert seen == [f"{a}-{NAMES.get(a, 'other')}" for a in (0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90)], seen
    assert page.locator(".cl-search output").inner_text() == "α = 1.00"
    shot(page, f"{name}-2-text")
    box = page.locator(".cl-search input[type=range]").bounding_box()
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + box["height"] / 2)
    page.mouse.down()
    seen = [angle()]
    for share in np.linspace(0.98, 0, 50):
        page.mouse.move(box["x"] + 8 + share * (box["width"] - 16), box["y"] + box["height"] / 2)
        seen += [] if seen[-1] == angle() else [angle()]
    page.mouse.up()
    found = [float(one.split("-")[0]) for one in seen]
    assert found == sorted(found, reverse=True) and found[0] == 90 and found[-1] == 0 and len(found) > 8, seen
    assert all(move["ready"] for move in page.evaluate("document.querySelector('.cl-search').search.moves")), "a picture was missing"
    page.focus(".cl-search input[type=range]")
    page.keyboard.press("Home")
    for _ in range(50):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(f"{FIRST}.includes('zebra')")
    shot(page, f"{name}-3-both")
    page.focus(".cl-wall .cl-tile button[tabindex='0']")
    page.keyboard.press("w")
    page.wait_for_selector(".cl-why:not([hidden]) .cl-heat canvas")
    shot(page, f"{name}-4-why")
    page.focus(".cl-wall .cl-tile button[tabindex='0']")
    page.keyboard.press("k")
    page.wait_for_selector(".cl-tile button[aria-pressed='true']")


@pytest.mark.browser
def test_in_voila(servers, chromium, place):
    page = chromium.new_page(viewport={"width": 1280, "height": 860})
    faults = []
    page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
    page.set_default_timeout(60_000)
    page.goto(servers["voila"])
    drive(page, "voila")
    page.focus(".cl-stage")
    for key in ("ArrowLeft", "Shift+ArrowDown", "Enter"):
        page.keyboard.press(key)
    page.wait_for_function("document.querySelector('.cl-told').textContent.startsWith('a piece of')")
    page.set_input_files(".cl-search input[type=file]", str(place / "oracle.py"))
    page.wait_for_function("document.querySelector('.cl-search .cl-said').textContent.includes('no picture that can be read')")
    page.set_input_files(".cl-search input[type=file]", str(place / "secret.png"))
    page.wait_for_function("document.querySelector('.cl-told').textContent.startsWith('secret.png')")
    page.click("text=Remove")
    page.focus(".cl-search input[type=range]")
    page.keyboard.press("Home")
    page.wait_for_function("document.querySelector('.cl-search .cl-said').textContent.includes('There is no picture')")
    shot(page, "voila-5-nothing")
    page.click(".cl-former >> nth=-1")
    page.wait_for_selector(".cl-wall .cl-tile")
    with page.expect_download() as download:
        page.click("text=Save as CSV")
    assert Path(download.value.path()).read_text().startswith("model,query,alpha,rank")
    page.click("text=All pictures")
    page.wait_for_function("document.querySelector('.cl-head h3').textContent.startsWith('Pictures 1')")
    own = [fault for fault in faults if "/voila/" not in fault and "/static/" not in fault]  # only voila's own scripts may fail
    assert not own, own
    page.close()


@pytest.mark.browser
def test_the_launcher_serves_a_page_and_no_file(place):
    """As a user starts it: the page opens, every door to a file is shut, and the end of the launcher is the end of its server."""
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    psutil = pytest.importorskip("psutil", reason="psutil, which comes with ipykernel, is not installed: nobody's ports can be read")
    env = {**os.environ, "COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "complearn.apps.serving", "search", "--gallery", str(place / "gallery")]
    launcher = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        line = launcher.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", line)[0]
        user, (root, _) = visitor(), address.split("?")
        status, content = fetched(address, user)
        assert status == 200 and b"jupyter-config-data" in content
        kernel = re.search(rb'"kernelId": *"([0-9a-f-]{36})"', content)[1].decode()
        for shut in ("", f"api/kernels/{kernel}", f"api/kernels/{kernel}/channels", f"voila/api/shutdown/{kernel}"):
            status, content = fetched(root + shut)  # another account of this machine has no token
            assert b"jupyter-config-data" not in content and (status in (401, 403) or b"password" in content.lower()), (shut, status)
        started = [" ".join(process.cmdline()) for process in psutil.Process(launcher.pid).children(recursive=True)]
        files = [Path(found[1]) for line in started if (found := re.search(r"-f (\S+kernel-\S+\.json)", line))]
        assert files and not any(address.split("token=")[1] in line for line in started)
        for file in files:  # sockets in a folder of one's own, not ports of the machine: those can be listened to without a key
            assert json.loads(file.read_text())["transport"] == "ipc" and file.parent.stat().st_mode & 0o077 == 0
        own = next((place / "gallery").glob("*.png")).name
        for door in ("files/", "voila/files/", "static/../", "voila/static/../", "voila/files/%2e%2e/", "api/contents/", "voila/render/"):
            for name in ("search.ipynb", own, "secret.png", "oracle.py", "etc/passwd", "../../../../etc/passwd", "..%2f..%2fetc/passwd"):
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
        with (by or visitor()).open(address, timeout=20) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.browser
def test_no_file_outside_the_gallery_is_reachable(servers, place):
    """Voila listens on this machine alone, and gives out no file: neither beside the notebook nor above it."""
    address, user = servers["voila"].split("?")[0], visitor()
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
        for root in ("", "voila/files/", "voila/static/", "files/", "static/", "voila/render/", "api/contents/", "nbextensions/"):
            status, content = fetched(address + root + path, user)
            allowed = (place / "secret.png").read_bytes()
            assert content != allowed and b"root:" not in content and b"class Circle" not in content, (root, path, status)


@pytest.mark.browser
def test_in_jupyterlab_and_back_in_the_notebook(servers, chromium):
    page = chromium.new_page(viewport={"width": 1600, "height": 1000})
    page.set_default_timeout(60_000)
    page.goto(servers["jupyterlab"])
    page.wait_for_function("window.jupyterapp && document.querySelector('.jp-Notebook .jp-Cell')")
    page.evaluate("async () => { await window.jupyterapp.restored; }")
    page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.ready; }")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells'); }")
    drive(page, "lab")
    time.sleep(0.3)  # the kernel hears of the slider a little later
    assert page.locator(".jp-Notebook .jp-Cell").count() == 3, "keys that the app was meant to have edited the notebook"
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 2; }")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('notebook:run-cell'); }")
    page.wait_for_function("/FOUND \\S*-45-zebra.png 0.5 1 DataFrame/.test(document.body.innerText)")
    if os.environ.get("COMPLEARN_SHOTS"):
        page.evaluate("async () => { await window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab Dark' }); }")
        time.sleep(2)
        page.locator(".cl-search").scroll_into_view_if_needed()
        shot(page, "lab-5-dark")
    page.close()
