"""The codebook explorer: surgery against a model with edited weights, the store, the controller, the app in JupyterLab
and voila."""

import math
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from browser import (
    DRAWN,
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
from conftest import ROOT
from hypothesis import given, settings, strategies as st
from PIL import Image
from scipy.sparse import csc_matrix

from complearn.analysis.codes.figures import code_map
from complearn.analysis.codes.matches import (
    match_codes,
    match_quality,
    matched_figure,
    nearest_code,
    weight_correlations,
)
from complearn.analysis.codes.readings import code_table
from complearn.analysis.codes.store import CodeStore, _first_images, code_sources, code_store
from complearn.analysis.codes.surgery import _ranks_of, edit_and_rank, reweigh
from complearn.analysis.codes.tables import UnknownWord
from complearn.analysis.maps.planes import principal_plane
from complearn.apps import serving as server
from complearn.apps.codes.controller import CodesController, _hits_table, _selection_table, codes
from complearn.apps.codes.messages import Panel, code_message
from complearn.apps.serving import serving
from complearn.core.checksums import write_listed
from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.core.outputs import counted
from complearn.core.runs import Run
from complearn.data.pairs import Pair
from complearn.evaluation.search.checks import CaptionCheck, check_pairs
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

TINY = {"tower": "tiny", "width": 24, "depth": 1, "heads": 2}
DATA = {"name": "generated", "args": {"n_train": 96, "n_test": 120, "size": 32}}
CONFIG = {
    "method": {"name": "codebook_clip", "args": {"steps": 30, "ramp": 3}},
    "model": {"vision": TINY | {"patch": 8}, "text": TINY, "codebook": {"codes": 64}},
    "data": DATA,
    "train": {"batch_size": 24, "lr": 5e-4, "device": "cpu"},
}
PLAIN = CONFIG | {"model": {"vision": TINY, "text": TINY}, "method": {"name": "clip", "args": {"steps": 9}}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs of every state: ended, without a codebook, only prepared."""
    root = tmp_path_factory.mktemp("explorer") / "runs"
    launch(prepare(root / "codebook", CONFIG).path, progress=False)
    prepare(root / "plain", PLAIN)
    prepare(root / "waiting", CONFIG)
    return root


@pytest.fixture(scope="module")
def store(folder):
    return code_sources(folder / "codebook")[0].store("contrastive")


def open_controller(folder):
    controller = CodesController(code_sources(folder))
    messages = controller.handle({"action": "open_model", "source": 0})
    assert [content["type"] for content, _ in messages] == ["state", "codebook", "order", "code"]
    return controller


def error_of(messages):
    [(content, _)] = messages
    assert content["type"] == "error"
    return content["text"]


# --- surgery


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    scope=st.sampled_from(["query", "both"]),
    edits=st.dictionaries(st.integers(0, 8), st.sampled_from([0, 0.5, 2, 4]), max_size=4),
)
def test_surgery_is_the_ranking_with_edited_weights(seed, scope, edits):
    """Against the dense computation: multiply the weights, mix the codes again, normalise, take all cosines."""
    draw = np.random.default_rng(seed)
    weights = np.maximum(draw.normal(size=(20, 9)), 0) + np.eye(20, 9) * 0.01 + 1e-3 * (np.arange(9) == 8)
    weights = (weights / weights.sum(1, keepdims=True)).astype(np.float32)
    book = draw.normal(size=(9, 6)).astype(np.float32)
    query = weights[0]
    images = weights[1:]
    factor = np.array([edits.get(code, 1.0) for code in range(9)])
    if (query * factor).sum() <= 0 or (scope == "both" and ((images * factor).sum(1) <= 0).any()):
        return
    parts = SimpleNamespace(messages=images @ book, vectors=book, by_code=csc_matrix(images))
    ranking = edit_and_rank(parts, query, edits, scope).sort_values("item")

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    after = unit((images * factor if scope == "both" else images) @ book) @ unit((query * factor) @ book)
    assert np.allclose(ranking.score, after, atol=1e-4)
    assert np.allclose(ranking.score_before, unit(images @ book) @ unit(query @ book), atol=1e-5)
    assert (ranking.rise == ranking.rank_before - ranking["rank"]).all()
    assert sorted(ranking["rank"]) == list(range(1, 20))


def test_surgery_is_what_the_model_says_with_its_codes_edited(folder, store):
    """The model itself, run on the images with its read-out edited, against the store's correction of columns."""
    source = code_sources(folder / "codebook")[0]
    model = source.model("contrastive")
    pairs = _first_images(source._pairs(), source.n)
    images = list({pair.image_id: replace(pair, caption=None) for pair in reversed(pairs)}.values())[::-1]
    text = store.caption(3)
    query = source.weights("contrastive", text)
    edits = {int(np.argsort(-query)[0]): 0.0, int(store.usage[0]): 3.0}
    factor = torch.ones(64)
    for code, times in edits.items():
        factor[code] = times
    with torch.no_grad():
        heavy = model.read(model.vision, model.collate(images)).weights * factor
        query_weights = model.read(model.language, model.collate([Pair(None, text, "q", "q")])).weights[0] * factor
        norm = torch.nn.functional.normalize
        expected = norm(heavy @ model.codebook.codes, dim=1) @ norm(query_weights @ model.codebook.codes, dim=0)
    ranking = edit_and_rank(store, query, edits, "both").sort_values("item")
    alive = (heavy.sum(1) > 0).numpy()
    assert np.allclose(ranking.score[alive], expected.numpy()[alive], atol=1e-4) and ranking.score[~alive].isna().all()


def test_edits_that_leave_nothing_or_make_no_sense_are_errors():
    weights = np.array([0.6, 0.4, 0.0], np.float32)
    with pytest.raises(ValueError, match="leave one on"):
        reweigh(weights, {0: 0, 1: 0})
    for bad in ({7: 1.0}, {0: -1.0}, {0: math.nan}):
        with pytest.raises(ValueError, match="codes 0 to 2"):
            reweigh(weights, bad)
    assert np.allclose(reweigh(weights, {2: 2.0}, absent=0.5), [0.3, 0.2, 0.5])
    assert np.allclose(reweigh(weights, {2: 0.0}, absent=0.5), weights)
    assert _ranks_of(np.array([0.5, 0.5, np.nan])).tolist() == [1, 2, 3]


# --- the store


def test_the_store_says_what_the_table_and_the_model_say(folder, store):
    run = Run.open(folder / "codebook")
    pairs = code_sources(run)[0]._pairs()
    table = code_table(Snapshot(run).model(), pairs)
    assert np.array_equal(store.images.top_item, table.top_item) and np.array_equal(store.images.fired, table.fired)
    weights = store.by_item.toarray()
    assert np.allclose(weights.sum(1), 1, atol=1e-4) and np.allclose(weights, store.by_code.toarray())
    assert np.allclose(weights @ store.vectors, store.messages, atol=1e-5)
    assert np.array_equal((weights > 0).sum(1), store.images.support)
    assert isinstance(store.pixels, np.memmap) and isinstance(store.messages, np.memmap)
    for code in store.usage[:5]:
        hottest = store.heats[code].reshape(16, -1)[: len(store.images.top_items(code))]
        place = store.images.top_position[code][: len(hottest)]
        assert (hottest[np.arange(len(hottest)), place] >= hottest.max(1) - 1).all()


def test_a_store_is_made_once_anew_when_broken_and_not_shared(folder, store):
    source = code_sources(folder / "codebook")[0]
    model = source.model("contrastive")
    pairs = source._pairs()
    lines = []
    assert code_store(model, pairs, told=lines.append).folder == store.folder and not lines
    assert code_store(model, pairs, n=50, told=lines.append).folder != store.folder and lines
    few = code_store(model, pairs, n=50)
    (few.folder / "about.json").write_text("{")
    lines.clear()
    assert len(code_store(model, pairs, n=50, told=lines.append).messages) == 50 and lines
    with pytest.raises(FileNotFoundError, match="no about.json"):
        CodeStore.open(folder)
    with pytest.raises(UnknownWord, match="try red"):
        store.words.codes_of("redd")


def test_other_pictures_under_the_same_names_are_another_store(folder, tmp_path):
    model = code_sources(folder / "codebook")[0].model("contrastive")

    def draw(seed):
        return [
            Image.fromarray(pixels)
            for pixels in np.random.default_rng(seed).integers(0, 255, (6, 32, 32, 3), dtype=np.uint8)
        ]

    paths = [tmp_path / f"{i}.png" for i in range(6)]

    def store_of(images):
        return code_store(
            model, [Pair(image, "a red circle", str(i), str(i)) for i, image in enumerate(images)], thumb=8
        )

    def written(seed):
        for path, image in zip(paths, draw(seed)):
            image.save(path)
        return store_of(paths)

    for same in (lambda seed: store_of(draw(seed)), written):
        first = same(0)
        second = same(1)
        assert first.folder != second.folder and not np.array_equal(first.pixels, second.pixels)
    assert store_of(paths).folder == second.folder and store_of(draw(0)).folder == store_of(draw(0)).folder


def test_maps_are_deterministic_ignore_length_and_are_kept(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    assert np.allclose(code_map(vectors), principal_plane(3 * vectors), atol=1e-5)
    fits = []

    class UMAP:  # the real one takes most of a minute to start
        def __init__(self, **options):
            assert options["random_state"] == 3 and options["metric"] == "cosine"

        def fit_transform(self, values):
            fits.append(len(values))
            return values[:, :2]

    module = ModuleType("umap")
    module.UMAP = UMAP
    monkeypatch.setitem(sys.modules, "umap", module)
    assert np.array_equal(code_map(vectors, "umap", 3), vectors[:, :2])
    assert np.array_equal(code_map(vectors, "umap", 3), vectors[:, :2])
    assert fits == [50]  # the second time from the cache
    monkeypatch.setitem(sys.modules, "umap", None)
    with pytest.raises(ImportError, match=r"complearn\[lab\]"):
        code_map(vectors[:9], "umap")


# --- the controller


def test_what_fails_says_what_to_do_and_changes_nothing(folder):
    controller = open_controller(folder)
    assert "has no codebook; choose another run" in error_of(controller.handle({"action": "open_model", "source": 1}))
    assert "python -m complearn.launch" in error_of(controller.handle({"action": "open_model", "source": 2}))
    before = replace(controller.panels[0])
    for request, remedy in (
        ({"action": "sort_codes", "by": "word", "word": "zebra"}, "no code stands for it"),
        ({"action": "search", "text": "a rad circle"}, "no word of this model's training captions"),
        ({"action": "search", "text": "  "}, "type some words"),
        ({"action": "search", "item": 10**6}, "items 0 to"),
        ({"action": "open_code", "code": 64}, "codes are 0 to 63"),
        ({"action": "open_image", "item": 10**6}, "items 0 to"),
        ({"action": "load_cards", "codes": [3, 64]}, "codes are 0 to 63"),
        ({"action": "keep_code", "code": 64, "on": True}, "codes are 0 to 63"),
        ({"action": "keep_code", "code": -1, "on": True}, "codes are 0 to 63"),
        ({"action": "scale_code", "code": 3, "factor": 0}, "query"),
        ({"action": "scale_code", "code": 64, "factor": 0}, "codes are 0 to 63"),
        ({"action": "scale_code", "code": 3, "factor": -1}, "a factor is a number from 0 to below a million"),
        ({"action": "nonsense"}, "nonsense"),
        ({"action": "draw_map", "method": "tsne"}, "pca, umap"),
        ({"action": "compare", "on": True, "panel": 0}, "no compare key 'panel'"),
        ({"action": "open_code", "code": 3, "panel": 1}, "there is no panel 1"),
    ):
        assert remedy in error_of(controller.handle(request)), request
        panel = controller.panels[0]
        assert (panel.code, panel.order_by, panel.query, panel.factors) == (before.code, "usage", {}, {})


@pytest.mark.parametrize("name", sorted(CodesController.actions))
def test_no_request_of_a_page_makes_an_exception_escape(folder, name):
    controller = open_controller(folder)
    for content in check_requests(controller, name):
        assert content["panel"] in (0, 1), content
    assert controller.handle({"action": "open_code", "code": 3})[0][0]["type"] == "code"


FAULTS = [
    lambda panel, code: panel.missing,
    lambda panel, code: {}["typo"],
    lambda panel, code: int("three"),
    lambda panel, code: [][code],
]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_program_is_logged_and_shown_as_one(folder, monkeypatch, caplog, fault):
    import complearn.apps.codes.controller as module

    explorer = codes(runs=folder)
    sent = []
    explorer.controller.open_first()
    monkeypatch.setattr(explorer, "send", lambda content, buffers=(): sent.append(content))
    monkeypatch.setattr(module, "code_message", fault)
    before = explorer.controller.panels[0].code
    explorer.answer({"action": "open_code", "code": 9})
    assert sent[-1]["type"] == "error" and "fault in the program" in sent[-1]["text"]
    assert "open_code" in caplog.text and "Traceback" in caplog.text
    assert explorer.controller.panels[0].code == before
    with pytest.raises((AttributeError, LookupError, ValueError)) as raised:
        explorer.run_action("open_code", code=9)
    assert not isinstance(raised.value, RequestError)


def test_a_script_needs_no_click_to_see_the_first_model(folder, tmp_path):
    explorer = codes(runs=folder)
    assert len(explorer.selection) == 1, "the first model is open, and its first code"
    assert explorer.run_action("open_code", code=3).selection.code.tolist() == [3]
    fresh = codes(runs=folder)
    assert fresh.save(tmp_path / "view.html")[0].stat().st_size > 100_000, "a page with pictures, not an empty one"
    for wrong in (9, "nobody"):
        with pytest.raises(ValueError, match="there is no model"):
            codes(runs=folder).run_action("open_model", source=wrong)


def test_a_code_that_is_loaded_ahead_is_not_open_until_it_is_opened(folder):
    controller = open_controller(folder)
    before = controller.panels[0].code
    other = (before + 1) % 64
    [(content, buffers)] = controller.handle({"action": "load_code", "code": other})
    assert content["code"] == other and content["open"] is False and controller.panels[0].code == before
    # the page has the rest
    [(short, nothing)] = controller.handle({"action": "open_code", "code": other, "loaded": True})
    assert short == {"panel": 0, "type": "opened", "code": other} and nothing == []
    assert controller.panels[0].code == other and controller.handle({"action": "load_code", "code": 64}) == []
    [(again, same)] = controller.handle({"action": "open_code", "code": other})
    assert again == {**content, "open": True} and same == buffers
    request = {"action": "open_code", "code": 64, "loaded": True}
    assert "codes are 0 to 63" in error_of(controller.handle(request)) and controller.panels[0].code == other


def test_all_of_a_query_switched_off_keeps_the_last_edit_that_worked(folder):
    controller = open_controller(folder)
    controller.handle({"action": "search", "text": controller.panels[0].store.caption(0)})
    support = np.flatnonzero(controller.panels[0].weights)
    for code in support[:-1]:
        assert controller.handle({"action": "scale_code", "code": int(code), "factor": 0})[0][0]["type"] == "surgery"
    assert "leave one on" in error_of(
        controller.handle({"action": "scale_code", "code": int(support[-1]), "factor": 0})
    )
    assert sorted(controller.panels[0].factors) == support[:-1].tolist()


def test_two_models_answer_the_same_question_and_the_tables_name_them(folder):
    controller = CodesController(code_sources([folder / "codebook", folder / "codebook"]))
    controller.handle({"action": "open_model", "source": 0})
    text = controller.panels[0].store.caption(0)
    controller.handle({"action": "sort_codes", "by": "word", "word": text.split()[0]})
    controller.handle({"action": "search", "text": text})
    assert {content.get("panel") for content, _ in controller.handle({"action": "compare", "on": True})} == {1}
    second = controller.panels[1]
    assert second.order_by == "word" and second.query == {"text": text} and second.source == 1
    hits = _hits_table(controller, 5)
    assert len(hits) == 10 and set(hits["query"]) == {text}
    controller.handle({"action": "keep_code", "panel": 1, "code": 4})
    assert _selection_table(controller).code.tolist() == [controller.panels[0].code, 4]
    controller.handle({"action": "open_code", "code": int(second.store.usage[1])})
    [(opened, _)] = controller.handle({"action": "open_match"})
    assert opened["panel"] == 1 and opened["code"] == second.code == controller.panels[0].code  # the same model twice
    assert opened["match"]["correlation"] == pytest.approx(1, abs=1e-5)
    controller.handle({"action": "compare", "on": False})
    assert len(controller.panels) == 1
    assert "compare opens a second one" in error_of(controller.handle({"action": "open_match"}))


def renumbered(store, order, keep=1.0):
    """A store whose codes have other numbers; each weight stays with probability `keep`."""
    images = {
        name: getattr(store.images, name)[order]
        for name in ("top_item", "top_score", "top_weight", "top_position", "fired", "mass")
    }
    other = replace(store, images=replace(store.images, **images), heats=store.heats[order], words=None)
    weights = store.by_item.copy()[:, order].tocsr()
    weights.data = weights.data * (np.random.default_rng(0).random(len(weights.data)) < keep)
    vars(other).update(by_item=weights, by_code=weights.tocsc())
    return other


def test_an_open_image_stays_open_only_in_a_model_of_the_same_images(store):
    "Others may have the same captions."
    others = replace(store, about=store.about | {"image_ids": [f"other {name}" for name in store.about["image_ids"]]})
    controller = CodesController(code_sources(stores={"one": store, "again": store, "others": others}))
    for model in ("one", "again", "others"):
        controller.handle({"action": "open_model", "source": model})
        assert controller.panels[0].item == (5 if model == "again" else None)
        controller.handle({"action": "open_image", "item": 5})


def test_codes_are_matched_by_what_they_fire_on(store):
    order = np.random.default_rng(1).permutation(64)
    other = renumbered(store, order)
    pairs = match_codes(store, other)
    quality = match_quality(store, other)
    varying = pairs[pairs.correlation > 1 - 1e-6]
    assert len(varying) > 5
    assert (order[varying.match] == varying.code).all()
    assert (varying.share == varying.match_share).all()
    assert quality["correlation"] > quality["chance_95"] >= quality["chance"] and quality["beyond_chance"] > 0.9
    blurred = match_quality(store, renumbered(store, order, 0.5))
    assert quality["chance"] < blurred["correlation"] < quality["correlation"]
    code = int(varying.code.iloc[0])
    assert nearest_code(store, other, code) == (int(varying.match.iloc[0]), pytest.approx(1))
    few = match_codes(store, other, most=7)
    assert len(few) <= 7 and set(few.code) <= set(store.usage[:7]) and few.match.is_unique
    dense = store.by_item.toarray()
    mirrored = other.by_item.toarray()
    with np.errstate(invalid="ignore", divide="ignore"):
        naive = np.nan_to_num(np.corrcoef(dense.T, mirrored.T)[:64, 64:])
    assert np.allclose(weight_correlations(store.by_code, other.by_code), naive, atol=1e-4)
    figure = matched_figure(store, other, ("one", "<other>"), few.head(3), k=2)
    assert len(figure.layout.images) == 12 and figure.layout.xaxis.ticktext[1] == "&lt;other&gt;"


def with_captions(store, code, of_best, of_others):
    """A store whose other captions are on the pictures: of a code's best ones, and of the others in turn."""
    best = store.images.top_items(code)
    fired = best["item"][best.weight > 0].tolist()
    captions = [of_others[item % len(of_others)] for item in range(len(store.messages))]
    for item, caption in zip(fired, of_best):
        captions[item] = caption
    return replace(store, about=store.about | {"captions": captions}), len(fired)


def test_a_code_whose_pictures_are_captioned_otherwise_than_its_word_says_so(store):
    fired = (store.images.top_weight > 0).sum(axis=1)
    code = next(code for code in range(64) if fired[code] == 16 and store.words.telling_word(code))
    word = store.words.telling_word(code)
    says = f"a {word.upper()} thing"
    others = [says, "an un" + word, "another", None]

    def remark_with(of_best, of_others=others):
        told, _ = with_captions(store, code, of_best, of_others)
        return code_message(Panel(store=told), code)[0]["word_remark"]

    share = told_share(store, code, [says] + ["another"] * 15, others, word)
    assert remark_with([says] + ["another"] * 15) == (
        f"Captions use this code for “{word}”; 1 of its 16 best pictures is captioned so, {100 * share:.0f} % of all "
        f"are: texts and pictures use the code differently."
    )
    assert "; none of its 16 best pictures is captioned so, " in remark_with(["another"] * 16)
    share = told_share(store, code, [says] * 7 + ["another"] * 9, others, word)
    assert 5 < 16 * share < 7, "a little more than of all"
    assert remark_with([says] * 7 + ["another"] * 9) == (
        f"Captions use this code for “{word}”; 7 of its 16 best pictures are captioned so, {100 * share:.0f} % of all "
        f"are: that may be chance, so its pictures need not stand for the word."
    )
    assert remark_with([says] * 16) == remark_with([says] * 13 + ["another"] * 3) == "", "they agree"
    assert remark_with(["another"] * 16, [says]) == "", "nearly every caption says the word: nothing can be told"
    assert remark_with([None] * 16, [None]) == remark_with([None] * 16) == "", "no captions"
    assert " 1 of its 8 best pictures with a caption is captioned so, " in remark_with(
        [says] + ["another"] * 7 + [None] * 8
    )
    assert code_message(Panel(store=replace(store, words=None)), code)[0]["word_remark"] == ""


def told_share(store, code, of_best, of_others, word):
    """The share of captions with a word, counted anew."""
    told, _ = with_captions(store, code, of_best, of_others)
    captions = [caption.lower().split() for caption in told.about["captions"] if caption]
    return sum(word in words for words in captions) / len(captions)


def test_only_pictures_on_which_a_code_fires_count_for_its_word(store):
    """The others among the best are shown because they come nearest, and say nothing of it."""
    weights = store.images.top_weight.copy()
    code = next(code for code in range(64) if (weights[code] > 0).all() and store.words.telling_word(code))
    word = store.words.telling_word(code)
    of_best = [word] * 5 + ["another"] * 11
    told, _ = with_captions(store, code, of_best, [word, "another", "another"])

    def remark_with(firing):
        images = replace(told.images, top_weight=np.where(np.arange(16) < firing, weights, 0))
        return code_message(Panel(store=replace(told, images=images)), code)[0]["word_remark"]

    assert "5 of its 16 best pictures are" in remark_with(16)
    assert "5 of its 15 best pictures that it fires on are captioned so" in remark_with(15)
    assert remark_with(5) == "", "all five have the word"
    assert remark_with(0) == "", "a dead code"


def test_a_code_that_only_special_words_fire_is_not_said_to_be_set_apart_by_them(store):
    words = store.words
    code = int(np.argmax(np.diff(words.begin)))
    panel = Panel(store=store)
    named = next(code for code in range(64) if words.telling_word(code))
    assert code_message(panel, named)[0]["set_apart"] is True
    silent = replace(words, lift=np.zeros_like(words.lift))
    [content, _] = code_message(Panel(store=replace(store, words=silent)), code)
    assert content["set_apart"] is False and len(content["words"]["word"]) > 0


def absent_code(controller):
    """A code that the query does not have."""
    return int(np.flatnonzero(controller.panels[0].weights == 0)[0])


def test_opening_a_code_in_surgery_lists_it_and_changes_nothing(folder):
    controller = open_controller(folder)
    [(before, _)] = controller.handle({"action": "search", "text": controller.panels[0].store.caption(0)})
    heaviest, lightest = (before["codes"]["code"][place] for place in (0, -1))
    absent = absent_code(controller)
    for code, absence in ((heaviest, False), (lightest, False), (absent, True)):
        [(content, _)] = controller.handle({"action": "edit_code", "code": code})
        place = content["codes"]["code"].index(code)
        assert place < content["first"] and content["asked"] == code and content["note"] == ""
        assert content["codes"]["factor"] == [1] * len(content["codes"]["code"]), "nothing is edited"
        assert content["after"]["item"] == before["before"]["item"] and not any(content["after"]["rise"])
        told = "not in the query; a factor of 2 or 4 adds it at the mean weight times that" if absence else ""
        assert content["codes"]["absence"][place] == told
        assert controller.tab == "surgery"
    weights = controller.panels[0].weights
    mean = weights[weights > 0].mean()
    [(content, _)] = controller.handle({"action": "scale_code", "code": absent, "factor": 2})
    place = content["codes"]["code"].index(absent)
    assert content["codes"]["absence"][place] == "not in the query; added at 2 times the mean weight"
    ranking = edit_and_rank(controller.panels[0].store, weights, {absent: 2}, "query", float(mean))
    assert content["after"]["item"] == ranking["item"].head(10).tolist()
    [(content, _)] = controller.handle({"action": "edit_code", "code": absent})
    assert controller.panels[0].factors[absent] == 2, "an edit that was there stays"
    controller.handle({"action": "set_scope", "scope": "both"})
    [(content, _)] = controller.handle({"action": "scale_code", "code": absent, "factor": 0})
    assert content["codes"]["absence"][place] == "not in the query; changed in the images alone"
    [(content, _)] = controller.handle({"action": "scale_code", "code": absent, "factor": 1})
    assert absent in content["codes"]["code"], "it stays under the pointer"
    again = CodesController(code_sources(folder))
    again.restore(controller.address())
    assert again.panels[0].factors == controller.panels[0].factors, "and in the view's address"
    for factor in (0.0000125, 0.3333333333, 250_000):
        controller.handle({"action": "scale_code", "code": absent, "factor": factor})
        again.restore(controller.address())
        assert again.panels[0].factors[absent] == pytest.approx(factor, abs=1e-6)
        assert again.panels[0].factors == controller.panels[0].factors
    [(content, _)] = controller.handle({"action": "reset_surgery"})
    assert absent not in content["codes"]["code"] and controller.panels[0].factors == {}


def test_all_codes_of_a_query_are_sent_and_the_heaviest_are_first(folder):
    controller = open_controller(folder)
    store = controller.panels[0].store
    item = int(np.argmax(store.images.support))
    [(content, _)] = controller.handle({"action": "search", "item": item})
    weights = store.by_item[[item]].toarray()[0]
    support = int((weights > 0).sum())
    assert support > 12, "the example has more codes than are listed at first"
    assert content["support"] == support == len(content["codes"]["code"])
    assert content["heaviest"] == content["first"] == 12
    assert content["codes"]["weight"] == sorted(weights[weights > 0].tolist(), reverse=True)
    last = content["codes"]["code"][-1]
    [(content, _)] = controller.handle({"action": "edit_code", "code": last})
    assert content["codes"]["code"][0] == last and (content["heaviest"], content["first"]) == (12, 13)
    assert sorted(content["codes"]["code"]) == np.flatnonzero(weights).tolist(), "each once"


def test_without_a_query_surgery_starts_with_the_word_of_the_code(folder):
    controller = open_controller(folder)
    words = controller.panels[0].store.words
    named = next(code for code in range(64) if words.telling_word(code))
    word = words.telling_word(named)
    [(content, _)] = controller.handle({"action": "edit_code", "code": named})
    assert content["query"] == {"text": word} and content["asked"] == named
    assert content["note"] == (f"There was no query to edit yet, so it starts with the word of code {named}: “{word}”.")
    assert not any(content["after"]["rise"])
    nameless = open_controller(folder)
    panel = nameless.panels[0]
    panel.store = replace(panel.store, words=replace(words, lift=np.zeros_like(words.lift)))
    said = error_of(nameless.handle({"action": "edit_code", "code": named}))
    assert said == (
        f"there is no query to edit yet, and code {named} has no word to start with; type a query above, such as a "
        f"caption, or open an image and search with it"
    )
    assert nameless.tab == "code" and nameless.panels[0].query == {}


def test_a_word_without_a_code_says_what_is_still_shown_and_what_to_try(folder):
    controller = open_controller(folder)
    telling = controller.panels[0].store.words.telling_words
    request = {"action": "sort_codes", "by": "word", "word": "zq"}
    said = error_of(controller.handle(request))
    assert said == (
        f"no caption that was read says “zq”, so no code stands for it; try {', '.join(telling[:4])}; the grid still "
        f"shows all codes by usage"
    )
    assert {"a", "of", "[end]", "[start]"}.isdisjoint(telling)
    controller.handle({"action": "sort_codes", "by": "word", "word": "red"})
    assert error_of(controller.handle(request)).endswith("; the grid still shows the codes of “red”")
    said = error_of(controller.handle({"action": "search", "text": "cyan"}))
    assert not said.endswith("; try a"), "an article is no word to try"


def test_by_usage_the_shares_on_the_cards_descend(folder, store):
    """The cards show the share of images on which a code fires: that is what the order goes by, and its rank too."""
    controller = open_controller(folder)
    controller.handle({"action": "sort_codes", "by": "index"})
    [(content, [order])] = controller.handle({"action": "sort_codes", "by": "usage"})
    codes_in_order = np.frombuffer(order, np.int32)
    fired = (store.by_item.toarray() > 0).sum(axis=0)
    shares = fired[codes_in_order]
    assert content["by"] == "usage" and (np.diff(shares) <= 0).all() and len(set(shares.tolist())) > 5
    mass = store.images.mass[codes_in_order]
    assert all(mass[k] >= mass[k + 1] for k in range(len(shares) - 1) if shares[k] == shares[k + 1])
    assert (np.diff(fired[store.usage]) > 0).any(), "the order by weight, of the figures, is another one here"
    assert np.array_equal(store.images.rank()[codes_in_order], np.arange(1, 65))


def test_a_word_opens_the_first_code_that_carries_it(folder):
    """What was open before is not about the word; the tab of the code is shown."""
    controller = open_controller(folder)
    store = controller.panels[0].store
    every = store.words.codes_of("red").code.tolist()
    found = [code for code in every if "red" in store.words.top(code, 3)]
    assert 0 < len(found) < len(every)
    other = next(code for code in range(64) if code not in found[:1])
    controller.handle({"action": "open_code", "code": other})
    controller.handle({"action": "show_tab", "tab": "surgery"})
    messages = controller.handle({"action": "sort_codes", "by": "word", "word": "red"})
    assert [content["type"] for content, _ in messages] == ["order", "code"]
    assert np.frombuffer(messages[0][1][0], np.int32).tolist() == found, "the most weight first"
    assert messages[0][0]["text"] == (
        f"“red” is among the first 3 words of {counted(len(found), 'code')}; left out: "
        f"{counted(len(every) - len(found), 'code')} with less of it"
    )
    assert messages[0][0]["tab"] == "code" and messages[1][0]["code"] == found[0] == controller.panels[0].code
    assert controller.address().code == found[0] and controller.address().tab == "code"
    controller.handle({"action": "open_code", "code": found[-1]})
    controller.handle({"action": "show_tab", "tab": "surgery"})
    again = CodesController(code_sources(folder))
    again.restore(controller.address())
    assert again.panels[0].code == found[-1], "an address knows which of them was opened later"
    assert again.tab == "surgery" and again.panels[0].order_by == "word"
    [(content, _)] = controller.handle({"action": "sort_codes", "by": "usage"})
    assert "tab" not in content and controller.panels[0].code == found[-1], "it is in this order too"
    controller.handle({"action": "show_tab", "tab": "surgery"})
    assert "zebra" in error_of(controller.handle({"action": "sort_codes", "by": "word", "word": "zebra"}))
    assert controller.tab == "surgery" and controller.panels[0].code == found[-1]
    firsts = {word for code in range(64) for word in store.words.top(code, 3)}
    last = next(word for word in store.words.vocabulary if not any(first.startswith(word) for first in firsts))
    [(content, [order]), _] = controller.handle({"action": "sort_codes", "by": "word", "word": last})
    number = len(store.words.codes_of(last))
    assert len(np.frombuffer(order, np.int32)) == number
    less = counted(number, "code")
    assert content["text"] == f"“{last}” is among the first 3 words of no code; shown: {less} with less of it"


LOOK = """() => {
  const form = document.querySelector(".cl-codes .cl-top form");
  form.querySelector("input").value = "red";
  form.requestSubmit();
  return document.querySelector(".cl-codes .cl-top [role=status]").textContent;
}"""


@pytest.mark.browser
def test_a_search_for_a_word_says_that_it_is_on_its_way(folder, chromium):
    page = attach(chromium, "codes", CodesController(code_sources(folder)))
    page.wait_for_selector(".cl-codes .cl-top form")
    said = page.evaluate(LOOK)  # before the kernel can have answered
    assert said in ("the codes are loading; then “red” is looked for …", "looking for “red” …")
    found = "document.querySelector('.cl-codes .cl-top [role=status]').textContent"
    page.wait_for_function(f"{found}.startsWith('“red” is among the first 3 words of')")
    assert page.evaluate(LOOK) == "looking for “red” …"
    page.wait_for_function(f"{found}.startsWith('“red” is among')")
    page.close()


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """A folder of pictures, two of which have a caption."""
    place = tmp_path_factory.mktemp("photos")
    for number, colour in enumerate(("red", "green", "blue")):
        Image.new("RGB", (48, 40), colour).save(place / f"{colour}-{number}.png")
    (place / "captions.csv").write_text("image,caption\nred-0.png,a red circle\nblue-2.png,a blue square\n")
    return place


def test_photos_of_a_folder_are_read_by_the_codes_of_every_run(folder, photos, tmp_path):
    app = codes(folder, gallery=photos)
    names = [source.name for source in app.controller.sources]
    assert names == ["codebook on your photos", "codebook", "plain", "waiting"]
    assert app.selection.model.tolist() == ["codebook on your photos"], "what was asked for is open"
    store = app.controller.panels[0].store
    assert len(store.messages) == 2 and store.about["captions"] == ["a red circle", "a blue square"]
    assert f"gallery='{photos}'" in app.controller.handle({"action": "copy_code"})[0][0]["text"]
    app.run_action("open_model", source="codebook")
    assert len(app.controller.panels[0].store.messages) > 3, "the run's own images are there too"
    for file in photos.glob("*.png"):
        Image.open(file).save(tmp_path / file.name)
    bare = codes(folder, gallery=str(tmp_path))
    assert bare.selection.words.tolist() == [""] and len(bare.controller.panels[0].store.messages) == 3
    model = Snapshot(folder / "codebook").model()
    given = codes(models={"mine": model}, gallery=photos)
    assert [source.name for source in given.controller.sources] == ["mine on your photos"]
    both = codes(models={"mine": model}, gallery=photos, pairs=[Pair(photos / "green-1.png", None, "g", "g")])
    assert [source.name for source in both.controller.sources] == ["mine on your photos", "mine"]
    with pytest.raises(BadData, match="folder of pictures does not exist"):
        codes(folder, gallery=photos / "none")


def test_the_launcher_hands_a_gallery_to_the_codes(folder, photos):
    settings = server._app_settings(
        "codes", {**dict.fromkeys(server.OPTIONS), "runs": str(folder), "gallery": str(photos)}
    )
    assert settings == {"runs": str(folder), "gallery": str(photos)}


def test_a_model_that_learned_nothing_says_so(folder, monkeypatch):
    """By the same check of captions as search; a model that finds its pictures says nothing."""
    import complearn.analysis.codes.store as room

    blind = CaptionCheck(32, 0.49)
    monkeypatch.setattr(room, "check_pairs", lambda model, pairs: blind)
    [content] = [content for content, _ in CodesController(code_sources(folder)).handle(OPEN) if "remark" in content]
    assert content["type"] == "codebook" and content["remark"].startswith(blind.remark) and "49 %" in blind.remark
    monkeypatch.setattr(room, "check_pairs", lambda model, pairs: CaptionCheck(32, 0.1))
    [content] = [content for content, _ in CodesController(code_sources(folder)).handle(OPEN) if "remark" in content]
    assert content["remark"] == ""
    monkeypatch.undo()
    source = code_sources(folder / "codebook")[0]
    check = check_pairs(source.model("contrastive"), source._pairs())
    assert source.remark("contrastive") == check.remark and check.captions == 32


OPEN = {"action": "open_model", "source": 0}


def test_codes_over_different_images_are_not_matched(store):
    others = [replace(store, about=store.about | {name: store.about[name][::-1]}) for name in ("captions", "image_ids")]
    others.append(replace(store, pixels=store.pixels[::-1]))  # equal ids and captions, as in a world with another seed
    for other in others:
        with pytest.raises(RequestError, match="read on different images"):
            match_codes(store, other)
    with pytest.raises(RequestError, match="never fires on these images"):
        nearest_code(replace(store, images=replace(store.images, fired=0 * store.images.fired)), store, 3)


def test_nothing_to_open_says_why(tmp_path, folder):
    nowhere = codes(tmp_path / "none").controller.empty
    assert "no such folder" in nowhere or "not a folder" in nowhere
    assert "There is no run in" in codes(tmp_path).controller.empty
    assert "has no codebook" in codes(folder / "plain").controller.empty
    assert codes(tmp_path).selection.empty
    with pytest.raises(ValueError, match="There is no run in"):
        codes(tmp_path).run_action("open_code", code=3)
    with pytest.raises(ValueError, match="give pairs="):
        codes(models={"model": Snapshot(folder / "codebook").model()})


def test_a_run_under_way_is_looked_at_through_its_checkpoint(folder, tmp_path):
    """As a run that was stopped leaves it: a checkpoint, no phase's end."""
    run = prepare(tmp_path / "stopped", CONFIG)
    done = Run.open(folder / "codebook")
    write_listed(run.path / "tokenizer.json", (done.path / "tokenizer.json").read_bytes())
    place = run.path / "checkpoints" / "step-00000040"
    place.mkdir(parents=True)
    write_listed(place / "model.safetensors", done.phases()[0].read_bytes())
    [source] = code_sources(run)
    assert source.snapshots == ["step-40"] and "has not ended" in source.state
    weights = Snapshot(run, "step-40").model().state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in Snapshot(done).model().state_dict().items())


def test_images_without_captions_and_lost_images(folder, tmp_path):
    rng = np.random.default_rng(0)
    pairs = [Pair(rng.integers(0, 255, (32, 32, 3)).astype(np.uint8), None, str(i), str(i)) for i in range(20)]
    controller = CodesController(code_sources(folder / "codebook", pairs=pairs))
    controller.handle({"action": "open_model", "source": 0})
    assert "without captions" in error_of(controller.handle({"action": "sort_codes", "by": "word", "word": "red"}))
    assert _selection_table(controller).words.tolist() == [""]
    lost = CodesController(code_sources(folder / "codebook", pairs=[Pair(str(tmp_path / "gone.png"), "red", "0", "0")]))
    assert "gone.png" in error_of(lost.handle({"action": "open_model", "source": 0}))
    none = CodesController(code_sources(folder / "codebook", pairs=[]))
    assert "no images" in error_of(none.handle({"action": "open_model", "source": 0}))


# --- in a browser


@pytest.mark.parametrize("program", ["voila", "jupyterlab"])
def test_the_token_is_in_the_environment_and_not_in_the_command(program, monkeypatch, tmp_path):
    started = []

    def start(command, env, **options):
        started.append((command, env["JUPYTER_TOKEN"]))
        raise InterruptedError

    monkeypatch.setattr(server, "need", lambda *names: None)
    monkeypatch.setattr(server.subprocess, "Popen", start)
    with pytest.raises(InterruptedError), serving(tmp_path / "a.ipynb", program, {"JUPYTER_TOKEN": "known"}):
        pass
    [(command, token)] = started
    assert len(token) == 32 and not any(token in part for part in command)


def test_a_server_ends_with_its_parent_even_where_that_is_killed(tmp_path):
    """The parent has no time to clean up: the server sees that its pipe is closed."""
    port = server._free_port()
    child = "from complearn.apps.serving import run_while_parent_lives as run; run('http.server')"
    program = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}, "{port}"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
time.sleep(120)"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )

    def listens(within=60):
        deadline = time.monotonic() + within
        while True:
            with socket.socket() as connection:
                if connection.connect_ex(("127.0.0.1", port)) == 0:
                    return True
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)

    try:
        assert listens()
    finally:
        parent.kill()
        parent.wait()
    deadline = time.monotonic() + 20
    while listens(within=0) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not listens(within=0), "the server outlived its parent"


@pytest.mark.parametrize(
    "arguments, message",
    [
        (
            ["concepts", "--gallery", "."],
            "--gallery belongs to codes, map, search and stages; leave it out for concepts",
        ),
        (["codes", "--runs", "none"], "--runs none is not a folder that exists"),
        (["search", "--runs", __file__], f"--runs {__file__} is a file; give the folder with trained models"),
        (["edits", "--captions", "none.csv"], "--captions none.csv is not a file that exists"),
        (["concepts", "--graph", "none"], "--graph none is not a folder that exists"),
        (["runs", "--results", __file__], "no app takes --results; complearn report and complearn check read files"),
        (["review"], "review needs --edits: the file of edits to review, written by"),
    ],
)
def test_the_launcher_says_what_it_cannot_use(arguments, message, capsys, monkeypatch):
    monkeypatch.setattr(server, "serving", None)  # what is not refused would be served until somebody ends it
    with pytest.raises(SystemExit):
        server.main(arguments)
    assert message in capsys.readouterr().err


def test_the_launcher_knows_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "results").mkdir()
    for runs, expected in (
        (["~/results"], str(tmp_path / "results")),
        (2 * ["~/results"], 2 * [str(tmp_path / "results")]),
    ):
        options = dict.fromkeys(server.OPTIONS) | {"runs": runs}
        assert server._app_settings("search", options) == {"runs": expected}


CELLS = ["from complearn.apps.codes.controller import codes", "explorer = codes(runs={!r})\nexplorer"]
LAST = (
    "print('SELECTED', explorer.selection.code.tolist(), type(explorer.selection).__name__, int((explorer.hits.rise != "
    "0).sum()) > 0)"
)


@pytest.fixture(scope="module")
def servers(folder, store, tmp_path_factory):
    """JupyterLab and voila, started together."""
    for needed in ("playwright.sync_api", "jupyterlab", "voila"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the explorer is not tried in a browser")
    place = tmp_path_factory.mktemp("served")
    cells = [cell.format(str(folder)) for cell in CELLS]
    env = {"COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    with ExitStack() as stack:

        def start(name, program, extra):
            return stack.enter_context(serving(write_notebook(place / name, cells + extra), program, env))

        yield {"voila": start("app.ipynb", "voila", []), "jupyterlab": start("lab.ipynb", "jupyterlab", [LAST])}


@pytest.fixture(scope="module")
def chromium():
    pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed: the explorer is not tried in a browser"
    )
    with open_chromium() as browser:
        yield browser


def drive(page, name):
    """Open, search a word, open a code by keyboard, switch it off, read the changed ranking; returns the open code."""
    page.wait_for_selector(".cl-card:not(.cl-pending)")
    screenshot(page, f"{name}-1-open")
    words = page.locator("datalist option").evaluate_all("options => options.map((option) => option.value)")
    assert "red" in words and "zebra" not in words and words == sorted(words)
    assert page.locator(".cl-top input").evaluate("box => box.list.options.length") == len(words)
    page.fill(".cl-top input", "zebra")
    page.press(".cl-top input", "Enter")
    page.wait_for_function("document.querySelector('.cl-status').textContent.includes('zebra')")
    page.fill(".cl-top input", "red")
    page.press(".cl-top input", "Enter")
    page.wait_for_selector(".cl-grid[aria-label*='“red”']")
    page.wait_for_function("document.querySelectorAll('.cl-card').length && !document.querySelector('.cl-pending')")
    first = page.locator("[role=option][aria-posinset='1'] .cl-line b").inner_text()
    page.wait_for_selector(f".cl-tab[data-drawn='{first}']")
    assert page.locator(".cl-card[aria-selected=true] .cl-line b").all_inner_texts() == [first]
    assert page.locator(".cl-tab h3").first.inner_text() == f"Code {first}", "the first code with the word is open"
    page.focus(".cl-grid")
    cards = page.locator(".cl-card").all_inner_texts()
    # a code that fires has a match in another model
    for _ in range(next(place for place, card in enumerate(cards) if "dead" not in card)):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    opened = page.locator(".cl-card.cl-active .cl-line b").inner_text().replace("★", "").strip()
    page.wait_for_selector(f".cl-tab[data-drawn='{opened}']")
    page.keyboard.press(" ")  # keep it
    page.wait_for_function("document.querySelector('.cl-tab h3 + button').textContent === 'Kept'")
    screenshot(page, f"{name}-2-code")
    page.click(".cl-thumbnails button >> nth=0")
    page.wait_for_selector(".cl-tab[data-drawn] .cl-picture canvas")
    screenshot(page, f"{name}-3-image")
    page.click(".cl-tabs [data-tab=surgery]")
    page.fill(".cl-tab form input", "red circle left of blue square")
    page.click(".cl-tab form button")
    page.wait_for_selector(".cl-factor")
    before = page.locator(".cl-ranking >> nth=1 >> .cl-caption").all_inner_texts()
    assert before == page.locator(".cl-ranking >> nth=0 >> .cl-caption").all_inner_texts()
    page.click(".cl-factor >> nth=0 >> [data-factor='0']")
    page.wait_for_selector(".cl-factor [data-factor='0'][aria-pressed='true']")
    assert page.locator(".cl-up, .cl-down").count() > 0, "switching off the heaviest code moved nothing"
    screenshot(page, f"{name}-4-surgery")
    return int(opened)


@pytest.mark.browser
def test_on_a_page(folder, store, chromium):
    """The whole way of a user, with the controller in this process."""
    controller = codes(runs=folder).controller
    page = attach(chromium, "codes", controller)
    faults = []
    page.on("pageerror", lambda error: faults.append(f"{error}\n{error.stack}"))
    opened = drive(page, "page")
    assert _selection_table(controller).code.tolist() == [opened]
    assert (_hits_table(controller).rise != 0).any()
    assert not faults
    page.click("text=Compare two models")
    page.click(".cl-tabs >> nth=0 >> [data-tab=code]")
    page.click("text=Open its match >> nth=0")
    page.wait_for_selector(f"text=matches code {opened} of codebook: correlation 1.00")
    screenshot(page, "page-5-match")
    assert controller.panels[1].code == opened and not faults
    page.close()


@pytest.mark.browser
def test_a_code_is_edited_in_surgery_step_by_step_on_a_page(folder, store, chromium):
    """The word of the code becomes the query; nothing changes before a factor is chosen; all codes are a click away."""
    page = attach(chromium, "codes", codes(runs=folder).controller)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.wait_for_selector(".cl-card:not(.cl-pending)")
    page.fill(".cl-top input", "red")
    page.press(".cl-top input", "Enter")
    page.wait_for_selector(".cl-grid[aria-label*='“red”']")
    said = page.locator(".cl-top [role=status]").inner_text()
    page.fill(".cl-top input", "zq")
    page.press(".cl-top input", "Enter")
    page.wait_for_selector(".cl-status:has-text('the grid still shows the codes of “red”')")
    assert page.locator(".cl-top [role=status]").inner_text() == said, "what is said of the grid is still true"
    code = page.locator(".cl-tab h3").first.inner_text().removeprefix("Code ")
    button = page.locator("button:has-text('Edit in surgery')")
    assert "nothing changes" in button.get_attribute("title")
    button.click()
    page.wait_for_selector(".cl-factor.cl-asked")
    assert page.locator(".cl-asked b").inner_text() == code
    word = store.words.telling_word(int(code))
    assert page.locator(".cl-tab form input").input_value() == word
    assert f"starts with the word of code {code}: “{word}”" in page.locator(".cl-tab .cl-remark").last.inner_text()
    assert page.locator(".cl-factor [aria-pressed=true]:not([data-factor='1'])").count() == 0
    assert page.locator(".cl-up, .cl-down").count() == 0, "nothing has changed"
    page.close()
    item = int(np.argmax(store.images.support))
    page = attach(chromium, "codes", codes(runs=folder, view={"query": item, "tab": "surgery"}).controller)
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.wait_for_selector(f".cl-label:has-text('image {item} is made of')")
    title = page.locator(".cl-tab:not([hidden]) .cl-label").first
    everything = int(store.images.support[item])
    rows = page.locator(".cl-factor")
    assert everything > 12 == rows.count() and ", of which the 12 heaviest are listed; their" in title.inner_text()
    page.click(f"text=List all {everything}")
    assert rows.count() == everything and "heaviest" not in title.inner_text()
    screenshot(page, "page-7-all-codes")
    page.click("text=List the 12 heaviest")
    assert rows.count() == 12
    assert not faults
    page.close()


NAMES_CUT = """() => [...document.querySelectorAll('.cl-entry .cl-name')].filter((name) =>
  name.scrollWidth > name.clientWidth || name.clientWidth < 80).map((name) => name.textContent)"""


@pytest.mark.browser
def test_two_models_are_edited_on_a_narrow_page_where_names_are_whole(folder, chromium):
    controller = CodesController(code_sources([folder / "codebook", folder / "codebook"]))
    page = attach(chromium, "codes", controller)
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_selector(".cl-card:not(.cl-pending)")
    page.click("text=Compare two models")
    page.click(".cl-tabs >> nth=0 >> [data-tab=surgery]")
    page.fill(".cl-panel >> nth=0 >> .cl-tab form input", "red circle left of blue square")
    page.press(".cl-panel >> nth=0 >> .cl-tab form input", "Enter")
    page.wait_for_selector(".cl-panel >> nth=1 >> .cl-factor")
    assert page.locator(".cl-entry .cl-name").count() > 2 and page.evaluate(NAMES_CUT) == []
    boxes = [page.locator(".cl-panel").nth(k).bounding_box() for k in (0, 1)]
    assert boxes[1]["y"] >= boxes[0]["y"] + boxes[0]["height"] and boxes[0]["width"] == boxes[1]["width"] > 380
    page.click(".cl-panel >> nth=1 >> .cl-factor >> nth=0 >> [data-factor='0']")
    page.wait_for_selector(".cl-panel >> nth=1 >> .cl-factor [data-factor='0'][aria-pressed=true]")
    assert controller.panels[0].factors == {} and list(controller.panels[1].factors.values()) == [0]
    page.click(".cl-panel >> nth=1 >> .cl-factor >> nth=0 >> [data-factor='1']")
    page.wait_for_function("!document.querySelector('.cl-factor [data-factor=\"0\"][aria-pressed=true]')")
    assert not any(panel.factors for panel in controller.panels)
    assert page.evaluate("document.documentElement.scrollWidth") == 420
    page.set_viewport_size({"width": 1600, "height": 900})
    boxes = [page.locator(".cl-panel").nth(k).bounding_box() for k in (0, 1)]
    assert boxes[0]["y"] == boxes[1]["y"] and boxes[1]["x"] >= boxes[0]["x"] + boxes[0]["width"]
    page.close()


EXPLAINED = """() => [...document.querySelectorAll('.cl-term')].filter((node) => node.checkVisibility()).map((node) =>
  [node.textContent, document.getElementById(node.getAttribute('aria-describedby')).textContent])"""
SHOWN = "[...document.querySelectorAll('.cl-meaning:popover-open')].map((tip) => tip.textContent)"


@pytest.mark.browser
def test_a_number_says_what_it_means_to_the_pointer_and_to_the_keyboard(folder, chromium):
    page = attach(chromium, "codes", codes(runs=folder).controller)
    page.wait_for_selector(".cl-tab[data-drawn]")
    terms = dict(page.evaluate(EXPLAINED))
    for word in ("in effective use", "dead", "median", "fires on", "rank", "weight", "share", "lift"):
        assert any(word in term and len(meaning) > 20 for term, meaning in terms.items()), word
    told = [meaning for meaning in terms.values() if "held out of its training" in meaning]
    assert any("--gallery" in meaning for meaning in told), "which pictures are shown, and how to see others"
    term = page.locator(".cl-term", has_text="in effective use")
    assert page.evaluate(SHOWN) == []
    term.hover()
    page.wait_for_function(f"{SHOWN}.length === 1")
    assert page.evaluate(SHOWN) == [terms[term.inner_text()]]
    page.locator(".cl-meaning:popover-open").hover()
    page.wait_for_timeout(400)
    assert page.evaluate(SHOWN) == [terms[term.inner_text()]], "it can be read with the pointer on it"
    page.mouse.move(5, 890)
    page.wait_for_function(f"{SHOWN}.length === 0")
    term.focus()
    page.keyboard.press("Tab")
    page.wait_for_function(f"{SHOWN}.length === 1")
    (shown,) = page.evaluate(SHOWN)
    assert shown == terms[page.evaluate("document.activeElement.textContent")] != terms[term.inner_text()]
    page.keyboard.press("Escape")
    assert page.evaluate(SHOWN) == []
    page.set_viewport_size({"width": 420, "height": 900})
    page.evaluate(DRAWN)  # what is drawn again takes the focus away, and the meaning with it
    # found and measured in one go, since what is drawn again in between would close it
    box = page.wait_for_function(
        """() => {
          const term = [...document.querySelectorAll(".cl-term")].find(({ textContent }) => /weight/.test(textContent));
          if (document.activeElement !== term) term?.focus();
          return document.querySelector(".cl-meaning:popover-open")?.getBoundingClientRect().toJSON();
        }"""
    ).json_value()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 420, "the meaning is inside of a narrow window"
    screenshot(page, "page-6-meaning")
    page.close()


@pytest.mark.browser
def test_a_number_says_what_it_means_to_a_finger(folder, chromium):
    """A tap shows the meaning, a tap elsewhere puts it away; one at a time."""
    touching = SimpleNamespace(new_page=partial(chromium.new_page, has_touch=True))
    page = attach(touching, "codes", codes(runs=folder).controller)
    page.set_viewport_size({"width": 420, "height": 900})
    page.wait_for_selector(".cl-tab[data-drawn]")
    terms = dict(page.evaluate(EXPLAINED))
    for word in ("in effective use", "dead"):
        term = page.locator(".cl-term", has_text=word)
        term.tap()
        page.wait_for_function(f"{SHOWN}.length === 1")
        page.wait_for_timeout(400)
        assert page.evaluate(SHOWN) == [terms[term.inner_text()]]
    page.locator("h2").tap()
    assert page.evaluate(SHOWN) == []
    page.close()


@pytest.mark.browser
def test_in_voila(servers, chromium):
    page = chromium.new_page(viewport={"width": 1280, "height": 800})
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.set_default_timeout(60_000)
    foreign = requests_of(page)
    page.goto(servers["voila"])
    drive(page, "voila")
    page.click(".cl-group button:has-text('by index')")
    # until then the cards are those of the last order
    page.wait_for_selector(".cl-group button[aria-pressed=true]:has-text('by index')")
    page.wait_for_function("document.querySelectorAll('.cl-card').length > 3 && !document.querySelector('.cl-pending')")
    card = page.locator(".cl-card:not([aria-selected=true]):not(.cl-active) >> nth=2")
    code = card.locator("b").inner_text()
    page.mouse.move(2, 2)  # else the pointer may lie on the card already, and nothing enters it
    # the code under the pointer is loaded; a click then needs no kernel: it is drawn before the click returns
    card.hover()
    page.wait_for_function(
        "code => document.querySelector('.cl-tab').dataset.loaded.split(' ').includes(code)", arg=code
    )
    drawn = card.evaluate("card => { card.click(); return document.querySelector('.cl-tab').dataset.drawn; }")
    assert drawn == code
    page.click("text=Compare two models")
    page.wait_for_function(
        "document.querySelectorAll('.cl-panel').length === 2 || document.querySelector('.cl-status').textContent"
    )
    assert not foreign, "a request left the machine"
    page.wait_for_function("location.hash.includes('second_code=')")
    address = page.evaluate("location.hash")
    assert f"code={code}" in address and "token" not in address
    page.reload()  # a page that is loaded again has a kernel of its own
    page.wait_for_selector(".cl-panel >> nth=1 >> .cl-card:not(.cl-pending)")
    page.wait_for_function("code => document.querySelector('.cl-tab').dataset.drawn === code", arg=code)
    assert page.evaluate("location.hash") == address, "a reload shows another view"
    page.go_back()  # to the view with one panel
    page.wait_for_function("document.querySelectorAll('.cl-panel').length === 1")
    assert not [fault for fault in faults if "cl" in fault and "clip" not in fault.lower()], faults
    page.close()


@pytest.mark.browser
def test_a_saved_page_requests_nothing(folder, chromium, tmp_path):
    assert requests_of_file(chromium, codes(runs=folder).save(tmp_path / "view")[0], ".cl-card:not(.cl-pending)") == []


CROSSING = """(scripts) => {
  const raw = (Kind, values) => new DataView(Kind.from(values).buffer), n = 8, requests = [];
  const places = Array.from({ length: 2 * n }, (_, i) => i);
  const model = { send: (request) => requests.push(request), on() {}, off() {} };
  const view = () => new Explorer(model, document.body.appendChild(document.createElement("div")));
  const views = [view(), view()];
  const send = (content, buffers = []) =>
    views.forEach((explorer) => explorer.receive({ panel: 0, ...content }, buffers));
  const kernel = { code: 0 };
  const picture = () => [raw(Uint8Array, Array(12).fill(9)), raw(Uint8Array, [9])];
  const sizes = { codes: n, images: 10, dead: 0, effective: 4, support: 2, grid: [1, 1], thumb: 2 };
  const book = { type: "codebook", ...sizes, map: "pca", vocabulary: [] };
  const best = { item: [1], score: [1], weight: [1], position: [0] };
  const words = { word: [], share: [], lift: [], captions: [] };
  const full = (code, open) => ({ type: "code", open, code, best, words, captions: [""], items: [1], weight: 1 });
  const answers = {
    open_model: () => {
      kernel.code = 0;
      const integers = (values) => raw(Int32Array, values);
      const shares = raw(Float32Array, Array(n).fill(1));
      send(book, [raw(Float32Array, places), shares, integers(Array(n).fill(3)), integers(places.slice(0, n))]);
      send(full(0, true), picture());
    },
    load_code: ({ code }) => send(full(code, false), picture()),
    open_code: ({ code, loaded }) => {
      kernel.code = code;
      if (loaded) send({ type: "opened", code });
      else send(full(code, true), picture());
    },
  };
  const answerAll = () => {
    for (let k = 0; requests.length && k < 99; k++) {
      const request = requests.shift();
      answers[request.action]?.(request);
    }
  };
  const sources = ["a", "b"].map((name) => ({ name, snapshots: ["last"], state: "" }));
  send({ type: "state", sources, panels: [{ source: 0, snapshot: "last", selected: [] }], tab: "code", empty: "" });
  requests.length = 0; requests.push({ action: "open_model" }); answerAll();
  const results = {}, drawn = () => views.map((explorer) => +explorer.panels[0].tabs.code.dataset.drawn);
  for (const [name, steps] of Object.entries(scripts)) {
    for (const [step, code] of steps) {
      if (step === "answer") answerAll();
      else if (step === "open_model") requests.push({ action: "open_model" });
      else views[0].panels[0][step](code);
    }
    answerAll(); results[name] = [kernel.code, ...drawn()];
  }
  return results;
}"""


@pytest.mark.browser
def test_what_is_drawn_is_what_the_kernel_has_in_every_order_and_every_view(chromium):
    """Clicks, pointers and messages that cross each other; a widget that is shown twice."""
    load, click = ((lambda code, name=name: (name, code)) for name in ("loadCode", "openCode"))
    answer = ("answer", None)
    model = ("open_model", None)
    scripts = {
        "loaded": [load(5), answer, click(5)],
        "overtaken": [load(5), answer, click(6), click(5)],
        "both on their way": [click(6), load(5), click(5)],
        "opened while on its way": [load(3), click(3)],
        "a model between": [load(4), answer, model, click(4)],
        "back and forth": [load(1), load(2), answer, click(1), click(2), click(1)],
    }
    page = chromium.new_page()
    results = page.evaluate(with_script("codes", CROSSING), scripts)
    page.close()
    last = {
        "loaded": 5,
        "overtaken": 5,
        "both on their way": 5,
        "opened while on its way": 3,
        "a model between": 4,
        "back and forth": 1,
    }
    assert results == {name: [code] * 3 for name, code in last.items()}


SCROLL = """async (codes) => {
  const frame = () => new Promise(requestAnimationFrame), requests = [], fired = new Int32Array(codes).fill(1);
  const thumbnails = new Thumbnails(2, 250);
  const panel = { id: "p", code: null, selected: new Set(), book: { fired, images: 10 }, thumbnails };
  panel.send = (request) => requests.push(request);
  const grid = new CardGrid(panel), pause = async () => { for (let k = 0; k < 6; k++) await frame(); };
  grid.box.style.cssText = "position: relative; overflow-y: auto; width: 460px; height: 330px";
  document.body.replaceChildren(grid.box);
  const answer = async () => { for (await pause(); requests.length; await pause()) {
    const { codes } = requests.shift();
    const best = codes.map((code) => [3 * code, 3 * code + 1, 3 * code + 2]);
    const items = best.flat();
    const pixels = Uint8Array.from(items.flatMap((item) => Array(12).fill(item % 251)));
    grid.receive({ codes, best, words: codes.map(() => []), items }, [new DataView(pixels.buffer)]);
  } };
  const colours = () => [...grid.nodes.values()].map((node) => {
    const canvas = node.querySelector("canvas"), at = (n) => Math.round((canvas.width * (n + 0.5)) / 3);
    const middle = Math.round(canvas.height / 2);
    return [node.code, ...[0, 1, 2].map((n) => [...canvas.getContext("2d").getImageData(at(n), middle, 1, 1).data])];
  });
  grid.setOrder(Int32Array.from({ length: codes }, (_, i) => i));
  const cards = [];
  for (const place of [0, 0.3, 0.6, 1, 0.5, 0]) {
    grid.box.scrollTop = place * grid.box.scrollHeight; await answer(); cards.push(colours());
  }
  return { cards, nodes: grid.nodes.size + grid.spare.length, thumbnails: panel.thumbnails.places.size };
}"""


@pytest.mark.browser
def test_a_long_scroll_and_back_leaves_no_card_without_its_pictures(chromium):
    """Pictures make room for others; cards that leave come back with other codes; what is shown is always the code's
    own."""
    page = chromium.new_page(viewport={"width": 800, "height": 600})
    result = page.evaluate(with_script("codes", SCROLL), 2000)
    page.close()
    assert result["thumbnails"] <= 250 and result["nodes"] < 60
    for cards in result["cards"]:
        assert len(cards) > 8
        for code, *pixels in cards:
            assert pixels == [[(3 * code + n) % 251] * 3 + [255] for n in range(3)], code
    first = result["cards"][0]
    last = result["cards"][-1]
    assert sorted(card[0] for card in first) == sorted(card[0] for card in last)


@pytest.mark.browser
def test_in_jupyterlab_and_back_in_the_notebook(servers, chromium):
    page = chromium.new_page(viewport={"width": 1600, "height": 1000})
    page.set_default_timeout(60_000)
    run_in_jupyterlab(page, servers["jupyterlab"])
    opened = drive(page, "lab")
    off = ".cl-factor [data-factor='0'][aria-pressed='true']"
    page.focus(off)
    page.keyboard.press("Control+z")  # the notebook has uses of its own for it
    page.wait_for_selector(off, state="detached")
    page.get_by_label("the view after").click()
    page.wait_for_selector(off)
    assert "code=" not in page.url, "the location is JupyterLab's"
    assert page.locator(".jp-Notebook .jp-Cell").count() == 3, (
        "keys that the explorer was meant to have edited the notebook"
    )
    run_cell(page, 2)
    page.wait_for_function(f"document.body.innerText.includes('SELECTED [{opened}] DataFrame True')")
    page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.node.scrollTop = 0; }")
    screenshot_in_dark(page, ".cl-codes", "lab-5-dark")
    page.close()
