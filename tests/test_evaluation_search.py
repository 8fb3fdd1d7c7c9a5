"""Searching with a picture and a text: oracles for mixture, selection and contenders, the index, uploads, queries,
faiss, transitions."""

import copy
import errno
import io
import json
import math
import os
import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st
from PIL import Image
from stand_ins import StandIn, hashed

from complearn.analysis.pictures.attribution import explain
from complearn.data.images import BrokenImage, open_image
from complearn.data.pairs import Pair
from complearn.data.readers.files import read_pictures, read_upload
from complearn.data.reports import BadData
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.search.approximate import candidates, open_faiss, search_gallery
from complearn.evaluation.search.gallery import Gallery, index_gallery
from complearn.evaluation.search.mixture import (
    Mixture,
    _naive_search,
    _rank_of,
    _top_k,
    contenders,
    mixture,
    one_vector,
)
from complearn.evaluation.search.queries import piece_of, text_query
from complearn.evaluation.search.transitions import _target_ranks, mixture_gains, transition, transition_rows
from complearn.models.dual import build_model
from complearn.models.scoring import encode_all


def unit(rng, n, width):
    return F.normalize(torch.from_numpy(rng.normal(size=(n, width)).astype(np.float32)), dim=1)


# --- the mixture


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(2, 40), alpha=st.floats(0, 1))
def test_at_equal_spread_the_mixture_is_a_slow_loop_over_divided_scores(seed, n, alpha):
    rng = np.random.default_rng(seed)
    vectors = unit(rng, n, 6)
    vectors[:, 0] *= 5  # the sides vary differently
    vectors = F.normalize(vectors, dim=1)
    image, text = unit(rng, 2, 6)
    mix = mixture(vectors, image, text)
    sides = [[sum(float(a) * float(b) for a, b in zip(row, side)) for row in vectors] for side in (image, text)]
    spreads = []
    for side in sides:
        mean = sum(side) / n
        spreads.append(math.sqrt(sum((score - mean) ** 2 for score in side) / n))
    assert mix.spreads == pytest.approx(tuple(spreads), rel=1e-3)
    slow = [(1 - alpha) * a / spreads[0] + alpha * b / spreads[1] for a, b in zip(*sides)]
    factor = (1 - alpha) / spreads[0] + alpha / spreads[1]  # the same for every picture
    assert mix.mixed(alpha).numpy() == pytest.approx(np.array(slow) / factor, abs=1e-4)
    assert mix.mixed(alpha).shape == mix.items.shape == (n,)
    cosine = _naive_search(vectors, image, text, mix.share(alpha))
    assert torch.allclose(mix.cosines(alpha), cosine.double(), atol=1e-6), "a score stays a cosine"
    assert mix.share(0) == 0 and mix.share(1) == 1


@pytest.mark.parametrize("ratio", [1, 3, 20])
def test_in_the_middle_both_sides_move_the_ranking_alike_whatever_their_spreads(ratio):
    rng = np.random.default_rng(ratio)
    vectors = np.zeros((4000, 4), np.float32)
    vectors[:, 0] = rng.normal(size=4000)
    vectors[:, 1] = rng.normal(size=4000) / ratio
    image, text = torch.eye(4)[:2]
    correlations = {}
    for spread in ("equal", "raw"):
        mix = mixture(vectors, image, text, spread=spread)
        mixed = mix.mixed(0.5).numpy()
        correlations[spread] = [float(np.corrcoef(mixed, side.numpy())[0, 1]) for side in (mix.image, mix.text)]
    assert abs(correlations["equal"][0] - correlations["equal"][1]) < 0.01
    assert correlations["raw"][0] - correlations["raw"][1] > (0.3 if ratio > 1 else -0.1)


def test_a_side_without_spread_divides_nothing_by_zero():
    rng = np.random.default_rng(0)
    vectors = torch.cat([unit(rng, 30, 4), torch.ones(30, 1)], 1)
    image = torch.tensor([1.0, 0, 0, 0, 0])
    constant = torch.tensor([0, 0, 0, 0, 1.0])
    for sides in ((image, constant), (constant, image), (constant, constant)):
        mix = mixture(vectors, *sides)
        assert mix.spreads == (1.0, 1.0) and mix.share(0.3) == 0.3
        assert all(torch.isfinite(mix.cosines(alpha)).all() for alpha in (0, 0.5, 1))
    assert mixture(vectors, image, constant).hits(0.5, 5)[0].tolist() == mixture(vectors, image).hits(0, 5)[0].tolist()
    assert mixture(vectors[:1], image, vectors[0]).spreads == (1.0, 1.0), "one picture has no spread"
    assert mixture(vectors, image).spreads == (1.0, 1.0), "nor has a side that is missing"
    with pytest.raises(ValueError, match="equal"):
        mixture(vectors, image, constant, spread="even")


def test_the_spread_is_the_gallery_s_where_only_some_pictures_are_scored():
    rng = np.random.default_rng(0)
    vectors = unit(rng, 3000, 8)
    image, text = unit(rng, 2, 8)
    whole = mixture(vectors, image, text)
    near = whole.hits(0.5, 50)[0].sort().values
    some = mixture(vectors, image, text, near)
    assert some.spreads == pytest.approx(whole.spreads, rel=1e-5)
    assert some.hits(0.5, 9)[0].tolist() == whole.hits(0.5, 9)[0].tolist()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 60),
    k=st.integers(1, 70),
    alpha=st.floats(0, 1),
    spread=st.sampled_from(["equal", "raw"]),
)
def test_the_mixture_is_the_search_with_the_mixed_query(seed, n, k, alpha, spread):
    rng = np.random.default_rng(seed)
    vectors = unit(rng, n, 6)
    image, text = unit(rng, 2, 6)
    mix = mixture(vectors.numpy(), image, text, spread=spread)
    assert spread == "equal" or mix.share(alpha) == alpha
    expected = _naive_search(vectors, image, text, mix.share(alpha)).double()
    assert torch.allclose(mix.cosines(alpha), expected, atol=1e-6)
    items, scores = mix.hits(alpha, k)
    assert len(items) == min(n, k) and torch.allclose(scores, expected[items], atol=1e-6)
    assert torch.allclose(scores, expected.sort(descending=True).values[: len(items)], atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(values=st.lists(st.integers(-3, 3), min_size=1, max_size=40), k=st.integers(0, 45))
def test_the_first_few_are_those_of_a_stable_sort(values, k):
    scores = torch.tensor(values, dtype=torch.float64)
    assert _top_k(scores, k).tolist() == sorted(range(len(values)), key=lambda i: -values[i])[:k]
    for item in range(len(values)):
        assert _rank_of(scores, item) == sum(other >= values[item] for other in values), "a tied rival is ahead"


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(2, 120),
    k=st.integers(1, 12),
    knots=st.integers(2, 9),
    coarse=st.booleans(),
    spreads=st.sampled_from([(1.0, 1.0), (0.3, 0.1), (0.01, 0.2)]),
)
def test_whoever_comes_up_for_some_alpha_is_a_contender(seed, n, k, knots, coarse, spreads):
    rng = np.random.default_rng(seed)
    draw = (lambda: rng.integers(-3, 4, n) / 3) if coarse else (lambda: rng.normal(size=n))  # coarse: many ties
    image, text = (torch.from_numpy(draw().astype(np.float32)) for _ in range(2))
    mix = Mixture(torch.arange(n), image, text, 0.3, (True, True), spreads)
    some = set(contenders(mix, k, knots).tolist())
    for alpha in np.linspace(0, 1, 157).tolist():
        assert set(mix.hits(alpha, k)[0].tolist()) <= some


@pytest.mark.gpu
def test_vectors_on_a_gpu_are_searched_as_on_the_cpu():
    rng = np.random.default_rng(0)
    vectors = unit(rng, 3000, 32)
    image, text = unit(rng, 2, 32)
    some = torch.arange(0, 3000, 7)
    for items in (None, some):
        here = mixture(vectors, image, text, items)
        there = mixture(vectors.cuda(), image.cuda(), text, items)
        assert there.items.is_cuda and there.image.is_cuda
        for alpha in (0, 0.3, 1):
            for mine, theirs in zip(here.hits(alpha, 9), there.hits(alpha, 9)):
                assert torch.allclose(mine.double(), theirs.double(), atol=1e-6)
        assert torch.equal(contenders(here, 9), contenders(there, 9).cpu())
        half = mixture(vectors.cuda(), image.cuda(), None, items)
        assert torch.equal(half.hits(0, 9)[0], mixture(vectors, image, None, items).hits(0, 9)[0])
        assert torch.equal(here.only(some).items, there.only(some).items.cpu())


def test_contenders_are_few_where_the_gallery_is_large():
    rng = np.random.default_rng(0)
    mix = mixture(unit(rng, 20_000, 32), *unit(rng, 2, 32))
    assert len(contenders(mix, 24)) < 400


def test_half_a_query_and_none():
    rng = np.random.default_rng(0)
    vectors = unit(rng, 9, 4)
    image, text = unit(rng, 2, 4)
    alone = mixture(vectors, image)
    assert torch.allclose(alone.cosines(0.9), (vectors @ image).double(), atol=1e-6)
    for mix, alpha, message in (
        (alone, 1, "type some words"),
        (mixture(vectors, text=text), 0, "choose a picture"),
        (mixture(vectors, image, -image), 0.5, "cancel each other"),
        (alone, 1.01, "between 0"),
        (alone, math.nan, "between 0"),
    ):
        with pytest.raises(ValueError, match=message):
            mix.hits(alpha)
    with pytest.raises(ValueError, match="nothing to search with"):
        mixture(vectors)
    with pytest.raises(Exception, match="of two models|Type-check"):  # the latter where shapes are checked
        mixture(vectors, image[:3])


def test_a_move_of_the_slider_is_quick():
    """41,600 x 768: the scores of a move, the least of several tries since others work on this machine too."""
    rng = np.random.default_rng(0)
    image, text = (torch.from_numpy(rng.normal(size=41_600).astype(np.float32)) for _ in range(2))
    mix = Mixture(torch.arange(41_600), image, text, 0.0, (True, True))

    def milliseconds(work):
        times = []
        for _ in range(30):
            began = time.perf_counter()
            work()
            times.append(1000 * (time.perf_counter() - began))
        return min(times)

    assert milliseconds(lambda: mix.mixed(0.37)) < 1
    assert milliseconds(lambda: mix.hits(0.37, 24)) < 10


# --- faiss


@pytest.fixture
def faiss():
    return pytest.importorskip(
        "faiss", reason="faiss is not installed: the search beyond a million pictures is not tried"
    )


def gallery_of(vectors, folder):
    return Gallery(folder, {}, vectors.numpy(), np.zeros(0, np.uint8), np.zeros(len(vectors), int))


def test_faiss_finds_what_the_exact_search_finds(faiss, tmp_path):
    rng = np.random.default_rng(0)
    centres = unit(rng, 40, 24)
    vectors = F.normalize(
        centres[torch.from_numpy(rng.integers(0, 40, 4000))]
        + 0.25 * torch.from_numpy(rng.normal(size=(4000, 24)).astype(np.float32)),
        dim=1,
    )
    gallery = gallery_of(vectors, tmp_path)
    found = []
    asked = unit(rng, 8, 24)
    for image, text in zip(vectors[:8], F.normalize(vectors[100:108] + 0.2 * asked, dim=1)):
        exact = search_gallery(gallery, image, text)
        near = search_gallery(gallery, image, text, k=100, exact_to=1000)
        assert len(near.items) < 2500 < len(exact.items) and (near.items.diff() > 0).all()
        assert torch.allclose(near.image, exact.image[near.items], atol=1e-6), (
            "what is approximate is who is looked at, never a score"
        )
        for alpha in (0, 0.25, 0.5, 0.75, 1):
            a, b = (set(mix.hits(alpha, 10)[0].tolist()) for mix in (exact, near))
            found.append(len(a & b) / 10)
    assert np.mean(found) > 0.97
    assert (tmp_path / "faiss.index").is_file()


def test_half_a_query_in_faiss_and_all_cells_are_exact(faiss, tmp_path):
    rng = np.random.default_rng(1)
    vectors = unit(rng, 1500, 8)
    gallery = gallery_of(vectors, tmp_path)
    assert len(search_gallery(gallery, vectors[3], exact_to=10, k=200).items) == 200
    assert len(search_gallery(gallery, vectors[3], exact_to=10, k=1400).items) == 1400, (
        "more than the nearest cells hold"
    )
    assert len(search_gallery(gallery, vectors[3], exact_to=10, k=9999).items) == 1500
    index = open_faiss(tmp_path / "faiss.index")
    index.nprobe = index.nlist
    exact = mixture(vectors, vectors[3]).hits(0, 50)[0]
    assert set(exact.tolist()) == set(candidates(index, vectors[3], None, 50).tolist())


def test_a_faiss_index_is_checked_kept_open_and_whole(faiss, tmp_path, monkeypatch):
    """An index of other vectors, or half a file, is made again; one that fits is opened once; a writer that dies leaves
    none."""
    import complearn.evaluation.search.approximate as room

    rng = np.random.default_rng(2)
    opened = []
    gallery = gallery_of(unit(rng, 900, 8), tmp_path)
    path = tmp_path / "faiss.index"
    real = room.open_faiss
    monkeypatch.setattr(room, "open_faiss", lambda path: opened.append(path) or real(path))

    def asked():
        heard = []
        items = search_gallery(
            gallery, torch.from_numpy(np.array(gallery.vectors[3])), exact_to=10, progress=heard.append
        ).items
        assert 3 in items.tolist()
        return len(heard)

    assert asked() == 1 and asked() == 0
    before = len(opened)
    assert asked() == 0 and len(opened) == before, "kept open"
    for wrong in (unit(rng, 899, 8), unit(rng, 900, 6), unit(rng, 900, 8)):
        room.build_faiss(wrong.numpy(), path)
        assert asked() == 1 and asked() == 0, tuple(wrong.shape)
    (tmp_path / "half").write_bytes(path.read_bytes()[:100])  # never cut in place: the open one is memory-mapped
    os.replace(tmp_path / "half", path)
    with pytest.warns(UserWarning, match="the vectors are sorted again: .*faiss.index is damaged"):
        assert asked() == 1
    whole = path.read_bytes()

    def dies(index, name):
        with open(name, "wb") as file:
            file.write(b"half")
        raise OSError("no space left")

    monkeypatch.setattr(faiss, "write_index", dies)
    with pytest.raises(OSError, match="no space"):
        room.build_faiss(gallery.vectors, path)
    assert path.read_bytes() == whole


def test_where_an_index_cannot_be_written_the_one_in_memory_serves(faiss, tmp_path, monkeypatch):
    import complearn.evaluation.search.approximate as room

    def refused(path, content):
        raise OSError(errno.EROFS, f"{path} cannot be written: its folder is read-only; make it writable")

    monkeypatch.setattr(room, "write_sealed", refused)
    gallery = gallery_of(unit(np.random.default_rng(4), 900, 8), tmp_path)
    query = torch.from_numpy(np.array(gallery.vectors[3]))
    heard = []
    with pytest.warns(UserWarning, match="kept in memory alone: .*make it writable") as told:
        found = [search_gallery(gallery, query, exact_to=10, progress=heard.append).items.tolist() for _ in range(2)]
    assert found[0] == found[1] and 3 in found[0] and len(heard) == len(told) == 1
    assert not list(tmp_path.iterdir())


def test_without_faiss_a_large_gallery_names_the_remedy(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "faiss", None)
    vectors = unit(np.random.default_rng(0), 50, 4)
    with pytest.raises(ImportError, match=r"complearn\[search\]"):
        search_gallery(gallery_of(vectors, tmp_path), vectors[0], exact_to=10)


# --- the index


class Colours(StandIn):
    "Sees the mean colour; counts what it sees."

    def __init__(self, name="colours"):
        super().__init__(
            lambda image: np.asarray(open_image(image), float).mean((0, 1)) + 1, lambda text: hashed(text, 3)
        )
        self.name = name

    def fingerprint(self):
        return self.name


def paint(folder, **colours):
    folder.mkdir(exist_ok=True)
    for name, colour in colours.items():
        Image.new("RGB", (20, 10), colour).save(folder / f"{name}.png")
    return folder


def test_an_index_is_opened_again_and_belongs_to_one_model(tmp_path):
    photos = paint(tmp_path / "photos", a="red", b="green", c="blue")
    scorer = Colours()
    first = index_gallery(scorer, read_pictures(photos), tmp_path / "index")
    again = index_gallery(scorer, read_pictures(photos), tmp_path / "index")
    assert len(scorer.seen) == 3 and isinstance(again.vectors, np.memmap)
    assert np.allclose(np.linalg.norm(again.vectors, axis=1), 1) and np.array_equal(first.vectors, again.vectors)
    assert Image.open(io.BytesIO(again.thumb(1))).size == (20, 10) and again.named(1) == "b.png"
    other = index_gallery(Colours("other"), read_pictures(photos), tmp_path / "index")
    assert other.folder != first.folder and other.folder.parent == tmp_path / "index", (
        "two models never meet in one folder"
    )
    with pytest.raises(ValueError, match="in a folder named after the model"):
        first.check(Colours("other"))
    in_cache = [index_gallery(Colours(name), read_pictures(photos)).folder for name in ("x", "y", "x")]
    assert in_cache[0] == in_cache[2] != in_cache[1]


def test_only_what_is_new_or_changed_is_encoded_and_named(tmp_path):
    photos = paint(tmp_path / "photos", a="red", b="green", c="blue", d="white")
    scorer = Colours()
    heard = []
    index_gallery(scorer, read_pictures(photos), tmp_path / "index")
    (photos / "a.png").unlink()
    paint(photos, b="yellow", e="black")
    os.utime(photos / "b.png", ns=(1, 1))
    [kept] = (tmp_path / "index").iterdir()
    changes = Gallery.open(kept).changes(read_pictures(photos))
    assert (changes.new, changes.removed, changes.changed) == (("e.png",), ("a.png",), ("b.png",))
    scorer.seen.clear()
    now = index_gallery(scorer, read_pictures(photos), tmp_path / "index", progress=heard.append)
    assert sorted(path.name for path in scorer.seen) == ["b.png", "e.png"]
    assert (
        heard[0] == "the gallery has changed since it was indexed: 1 new (e.png); 1 removed (a.png); 1 changed (b.png)"
    )
    fresh = index_gallery(Colours(), read_pictures(photos), tmp_path / "fresh")
    assert now.about["ids"] == fresh.about["ids"] and np.allclose(now.vectors, fresh.vectors)
    assert [now.thumb(i) for i in range(4)] == [fresh.thumb(i) for i in range(4)]


def test_a_broken_picture_is_left_out_and_not_tried_for_ever(tmp_path):
    photos = paint(tmp_path / "photos", a="red", b="green")
    scorer = Colours()
    whole = (photos / "b.png").read_bytes()
    pairs = read_pictures(photos)
    (photos / "b.png").write_bytes(whole[:40])
    gallery = index_gallery(scorer, pairs, tmp_path / "index")
    assert gallery.about["ids"] == ["a.png"] and list(gallery.about["skipped"]) == ["b.png"]
    assert not gallery.changes(pairs)
    (photos / "b.png").write_bytes(whole)
    assert gallery.changes(read_pictures(photos)).new == ("b.png",)
    (photos / "a.png").write_bytes(b"")
    (photos / "b.png").write_bytes(b"")
    with pytest.raises(BrokenImage, match="not one of 2 pictures"):
        index_gallery(scorer, pairs, tmp_path / "other")


def test_a_damaged_index_is_made_anew_and_a_strange_folder_refused(tmp_path):
    photos = paint(tmp_path / "photos", a="red", b="green")
    scorer = Colours()
    gallery = index_gallery(scorer, read_pictures(photos), tmp_path / "index")
    for damage in (
        lambda: (gallery.folder / "thumbs.bin").write_bytes(b"x"),
        lambda: (gallery.folder / "about.json").write_text("{"),
    ):
        damage()
        assert len(index_gallery(scorer, read_pictures(photos), tmp_path / "index")) == 2
    about = json.loads((gallery.folder / "about.json").read_text())
    (gallery.folder / "about.json").write_text(json.dumps(about | {"format": 99}))
    with pytest.raises(ValueError, match="format 99"):
        Gallery.open(gallery.folder)
    with pytest.raises(FileNotFoundError, match="not an index of a gallery"):
        Gallery.open(photos)


def test_all_that_was_left_out_is_named_once_with_its_reason(tmp_path):
    photos = paint(tmp_path / "photos", a="red", b="green", cut="blue")
    Image.effect_noise((64, 64), 90).save(photos / "cut.png")
    (photos / "cut.png").write_bytes((photos / "cut.png").read_bytes()[:2000])
    (photos / "text.jpg").write_text("no picture")
    (photos / "void.png").write_bytes(b"")
    for _ in range(2):  # made, and opened again
        with pytest.warns(
            UserWarning,
            match=r"2 image unreadable \(text.jpg: cannot identify image file, void.png: the file is empty\)",
        ):
            gallery = index_gallery(Colours(), read_pictures(photos, max_bad=0.5), tmp_path / "index")
        assert gallery.about["ids"] == ["a.png", "b.png"] and gallery.skipped == ["text.jpg", "void.png", "cut.png"]
    (tmp_path / "none").mkdir()
    with pytest.raises(
        BadData, match=r"none: no picture in this folder or below it; what counts ends in .avif, .bmp, .*\.png"
    ):
        read_pictures(tmp_path / "none")


def test_captions_of_one_picture_lie_together_and_links_out_are_left_out(tmp_path):
    image = np.zeros((8, 8, 3), np.uint8)
    pairs = [Pair(image + i, f"caption {i} {j}", f"{i}.{j}", str(i)) for i in range(3) for j in range(2)]
    gallery = index_gallery(Colours(), pairs, tmp_path / "index")
    assert len(gallery) == 3
    assert gallery.about["captions"][1] == ["caption 1 0", "caption 1 1"]
    assert gallery.image(2) is pairs[4].image
    with pytest.raises(BrokenImage, match="give the pairs again"):
        Gallery.open(gallery.folder).image(0)
    photos = paint(tmp_path / "photos", a="red")
    Image.new("RGB", (9, 9)).save(tmp_path / "secret.png")
    (photos / "link.png").symlink_to(tmp_path / "secret.png")
    with pytest.warns(UserWarning, match="leads out of the folder"):
        assert [pair.id for pair in read_pictures(photos, max_bad=0.5)] == ["a.png"]


def test_a_file_that_became_a_link_after_indexing_is_not_read(tmp_path):
    """Swapped for a link to a file beside the gallery; an index that is opened alone opens no picture at all."""
    photos = paint(tmp_path / "photos", a="red", b="green")
    Image.new("RGB", (9, 9)).save(tmp_path / "secret.png")
    gallery = index_gallery(Colours(), read_pictures(photos), tmp_path / "index")
    (photos / "b.png").unlink()
    (photos / "b.png").symlink_to(tmp_path / "secret.png")
    assert os.path.realpath(gallery.image(0)) == str((photos / "a.png").resolve())
    with pytest.raises(BrokenImage, match="shows another picture"):
        gallery.image(1)
    with pytest.raises(BrokenImage, match="give the pairs again"):
        Gallery.open(gallery.folder).image(0)


# --- what comes from outside


def encoded(image, kind="PNG", **how):
    file = io.BytesIO()
    image.save(file, kind, **how)
    return file.getvalue()


def test_every_kind_of_upload_becomes_rgb():
    red = Image.new("RGB", (60, 30), (200, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 8
    frames = [Image.new("RGB", (9, 9), (90 * k, 0, 0)) for k in range(3)]
    cases = {
        "one pixel": (encoded(red.resize((1, 1))), (1, 1), "one pixel"),
        "cmyk": (encoded(red.convert("CMYK"), "JPEG"), (60, 30), "CMYK"),
        "16 bit": (encoded(Image.fromarray(np.full((30, 60), 51_400, np.uint16))), (60, 30), "I;16"),
        "float": (
            encoded(Image.fromarray(np.linspace(0, 9, 1800, dtype=np.float32).reshape(30, 60)), "TIFF"),
            (60, 30),
            "F made RGB",
        ),
        "animated": (
            encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
            (9, 9),
            "first of several frames",
        ),
        "on its side": (encoded(red, "JPEG", exif=exif), (30, 60), "turned upright"),
        "transparent": (encoded(Image.new("RGBA", (60, 30), (0, 0, 0, 0))), (60, 30), "RGBA"),
        "60 megapixels": (
            encoded(Image.new("RGB", (10_000, 6000), (200, 20, 20)), "JPEG", quality=10),
            (10_000, 6000),
            "",
        ),
    }
    for name, (content, size, note) in cases.items():
        upload = read_upload(content, name)
        assert upload.image.mode == "RGB" and max(upload.image.size) <= 1024 and upload.size == size, name
        assert note in "; ".join(upload.notes), (name, upload.notes)
    assert read_upload(cases["16 bit"][0]).image.getpixel((0, 0)) == (200, 200, 200)
    assert read_upload(cases["transparent"][0]).image.getpixel((0, 0)) == (255, 255, 255)
    near = np.array(read_upload(cases["cmyk"][0]).image.getpixel((5, 5)), float) - (200, 20, 20)
    assert np.abs(near).max() < 25, "CMYK is not taken for its negative"


def test_what_is_no_picture_is_a_clear_error():
    photo = np.random.default_rng(0).integers(0, 255, (60, 60, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(photo))
    cases = (
        (b"", "is empty"),
        (b"GIF89a" + b"\0" * 9, "damaged|no picture"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "no picture that can be read"),
        (whole[: len(whole) // 2], "damaged or cut off"),
        (whole[:20], "damaged|no picture"),
        (encoded(Image.new("1", (10_000, 6000))), "60 megapixels"),
        (encoded(Image.new("1", (16_000, 16_000))), "too large, more than 50 megapixels"),
        (encoded(Image.new("RGB", (2000, 3))), "a strip of 2000 x 3"),
    )
    for content, message in cases:
        with pytest.raises(BrokenImage, match=message) as raised:
            read_upload(content, "C:\\pictures\\holiday.png")
        assert str(raised.value).startswith("holiday.png "), "named, without its place"
    with pytest.raises(BrokenImage, match="MB, more than 64"):
        read_upload(bytes(64 * 2**20 + 1))


def test_a_text_that_the_model_cannot_read_is_said():
    scorer = StandIn(hashed, lambda text: hashed(text, 4))
    scorer.tokenizer = WordTokenizer.fit(["a striped horse", "a zebra"], context=7)
    assert text_query(scorer, "  a   zebra ")[1] == ""
    assert "“zebr”; try “zebra”" in text_query(scorer, "a zebr")[1]
    assert "its end was cut" in text_query(scorer, "a zebra " * 9)[1]
    for text in ("полосатая лошадь", "縞馬", "🦓"):
        with pytest.raises(ValueError, match="knows none of these words"):
            text_query(scorer, text)
    with pytest.raises(ValueError, match="is empty"):
        text_query(scorer, " \n")
    assert text_query(StandIn(hashed, lambda text: hashed(text, 4)), "縞馬")[1] == "", (
        "a scorer without a tokenizer is taken at its word"
    )


def test_a_piece_is_the_same_share_of_any_size():
    big = Image.fromarray(np.random.default_rng(0).integers(0, 255, (200, 400, 3), dtype=np.uint8))
    assert piece_of(big, (0.25, 0.5, 0.75, 1)).size == (200, 100) and piece_of(big).size == (400, 200)
    for box in ((0.2, 0, 0.2, 1), (0, 0, 1.1, 1), (0, 0, 0.005, 1)):
        with pytest.raises(ValueError, match="piece"):
            piece_of(big, box)


# --- the reason for a hit


@pytest.mark.parametrize("codebook", [None, {"codes": 24}])
def test_an_explanation_points_at_what_decides(codebook):
    """Heat and drives have the text's words and the tower's grid; a codebook's drives are its shared weights, by a
    loop."""
    tiny = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    texts = ["a red star", "a blue horse"]
    model = build_model({"vision": tiny | {"patch": 8}, "text": tiny, "codebook": codebook}, WordTokenizer.fit(texts))
    images = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), dtype=np.uint8)
    if codebook:
        model.calibrate(model.collate([Pair(image, text, text, text) for image, text in zip(images, texts)]))
    told = explain(model, images[0], texts[0])
    words, heat = told
    assert heat.shape[0] == len(words) and {"red", "star"} <= set(words) and np.isfinite(heat).all()
    if codebook:
        with torch.no_grad():
            seen = model.read(model.vision, model.collate([Pair(images[0], None, "i", "i")]))
            asked = model.read(model.language, model.collate([Pair(None, texts[0], "t", "t")]))
        assert words == ("a", "red", "star", "the rest")  # as the tokens are: start, three words, end
        codes = model.codebook.codes.detach().numpy()
        naive = np.zeros((5, 16))
        left = seen.weights[0].numpy()
        right = asked.weights[0].numpy()
        size = np.linalg.norm(left @ codes) * np.linalg.norm(right @ codes)
        for one in range(24):
            for other in range(24):
                product = left[one] * right[other] * codes[one] @ codes[other] / size
                naive[asked.firing[0, other], seen.firing[0, one]] += product
        assert np.allclose(heat.reshape(4, 16), naive[1:], atol=1e-5) and not naive[0].any()
    else:
        assert heat.shape[1:] == (7, 7) and "covered" in told.way
        assert explain(model, images[0], texts[0], way="patches").heat.shape[1:] == (4, 4)
    assert explain(model, images[0], picture=images[1]).words == ("the picture",)
    with pytest.raises(ValueError, match="one of them"):
        explain(model, images[0])


def test_covering_finds_the_one_spot_that_counts():
    scorer = StandIn(
        lambda image: [float(np.asarray(image)[40:60, 100:120].mean()) + 1, 128.0], lambda text: [1.0, 0.0]
    )
    image = np.full((224, 224, 3), 10, np.uint8)
    image[40:60, 100:120] = 255
    told = explain(scorer, image, "spot")
    assert np.unravel_index(told.heat[0].argmax(), (7, 7)) == (1, 3)


def parts_of(scorer, image, text, picture, alpha):
    """Both sides' explanations, weighed; and what the search shows."""
    sides = one_vector(encode_all(scorer, images=[image, picture])), one_vector(encode_all(scorer, texts=[text]))
    mix = mixture(sides[0][:1], sides[0][1], sides[1][0])
    first, second = mix.weights(alpha)
    told = [explain(scorer, image, text).weighed(second), explain(scorer, image, picture=picture).weighed(first)]
    return told, float(mix.cosines(alpha)[0])


KINDS = ("clip", "clip of patches", "codebook", "search heads", "closed box")


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_both_sides_add_up_to_the_shown_cosine(kind):
    from complearn.models.grounded.model import SearchScorer, _build_grounded

    rng = np.random.default_rng(0)
    texts = ["a red star, left of it a horse", "a blue horse"]
    tiny = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    images = rng.integers(0, 255, (3, 32, 32, 3), dtype=np.uint8)
    vision = tiny | {"patch": 8}
    words = WordTokenizer.fit(texts)
    if kind == "search heads":
        parts = {"relations": {"predicates": ["left of"], "objects": ["star"], "heads": 2}, "search": True}
        scorer = SearchScorer(_build_grounded({"vision": vision, "text": tiny} | parts, words))
    elif kind == "closed box":
        scorer = StandIn(hashed, lambda text: hashed(text))
    else:
        scorer = build_model(
            {"vision": vision, "text": tiny, "codebook": {"codes": 24} if kind == "codebook" else None}, words
        )
        if kind == "codebook":
            scorer.calibrate(scorer.collate([Pair(image, text, text, text) for image, text in zip(images, texts)]))
        if kind == "clip of patches":
            inner = scorer.vision.tower.forward
            scorer.vision.tower.forward = lambda x: (lambda seen: replace(seen, pooled=seen.tokens.mean(1)))(inner(x))
    for alpha in (0, 0.3, 0.5, 1):
        told, shown = parts_of(scorer, images[0], texts[0], images[1], alpha)
        assert sum(one.score for one in told) == pytest.approx(shown, abs=1e-5), alpha
        assert told[0].words[:3] == ("a", "red", "star") and told[1].words == ("the picture",)
        for one in told:
            assert one.exact == (kind not in ("clip", "closed box")), one.way
            if one.exact:
                assert np.allclose(one.heat.sum((1, 2)), one.drives, atol=1e-5) and "add up to the cosine" in one.way
            else:
                assert "does not add up" in one.way


@pytest.mark.parametrize("pooler", ["cls_pooler", "mean_pooler"])
def test_a_librarys_tower_that_drops_its_first_token_keeps_words_in_their_places(tmp_path, pooler):
    """open_clip with a tokenizer of transformers: padded to the context, and the first token gone; the words stay where
    they are."""
    pytest.importorskip("open_clip")
    transformers = pytest.importorskip("transformers")
    from test_models_pretrained import VIT, vocabulary

    from complearn.analysis.pictures.attribution import _text_parts
    from complearn.models.codebook.codebook import CodebookConfig
    from complearn.models.dual import Dual, ModelConfig
    from complearn.models.grounded.streams import LanguageStream
    from complearn.models.towers.factory import vision_tower
    from complearn.models.towers.openclip_towers import OpenClipText
    from complearn.models.towers.tokenizers import HFTokenizer
    from complearn.models.wordspace import WordSpace

    assert transformers
    bert = {
        "vocab_size": 15,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    text = {"hf_model_name": "somewhere/bert", "hf_proj_type": "linear", "hf_pooler_type": pooler, "context_length": 12}
    tower = OpenClipText(
        {"embed_dim": 16, "vision_cfg": VIT, "text_cfg": text, "hf_config": bert | {"model_type": "bert"}}
    )
    vision = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1, "patch": 8}
    config = ModelConfig(vision=vision, width=16, codebook=CodebookConfig(codes=24))
    tokens = HFTokenizer(vocabulary(tmp_path), context=12, full=True, clean="canonicalize")
    model = Dual(config, vision_tower(config.vision), tower, tokens)
    said = "Red, dogs running!"
    asked = Pair(None, "Red, dogs running!", "t", "t")
    images = np.random.default_rng(0).integers(0, 255, (2, 32, 32, 3), dtype=np.uint8)
    model.calibrate(
        model.collate([Pair(image, caption, caption, caption) for image, caption in zip(images, (said, "two dogs"))])
    )
    parts = _text_parts(model, said)
    account = model.attribute(asked)
    whole = account.vector
    by_token = account.parts
    assert parts.names[:3] == ("red", "dogs", "running") and len(by_token) == 12
    assert torch.allclose(parts.vectors.sum(0), whole, atol=1e-5)
    for name, places in (("red", [1]), ("dogs", [2, 3]), ("running", [4])):  # [CLS] red dog ##s running [SEP]
        assert torch.allclose(parts.vectors[parts.names.index(name)], by_token[places].sum(0), atol=1e-6), name
    assert not by_token[6:].any() and not by_token[0].any(), "padding and the start token say nothing"
    states, there = LanguageStream(copy.deepcopy(tower), freeze_qk=False).eval()(
        *(lambda made: (made.ids, made.mask))(tokens([said]))
    )
    assert states.shape[1] == 12 and there[0].nonzero()[:, 0].tolist() == [1, 2, 3, 4], (
        "the stream hears the words themselves"
    )
    space = WordSpace(tower.train(), tokens, cache=False)
    alone = torch.zeros(15, 12, dtype=torch.int64)
    alone[:, 0] = 2  # [CLS] entry [SEP], and padding to the context
    alone[:, 1] = torch.arange(15)
    alone[:, 2] = 3
    with torch.no_grad():
        entries = copy.deepcopy(tower).eval()(alone, torch.arange(12).expand(15, 12) < 3).tokens[:, :3].mean(1)
    assert torch.allclose(space.statistics, torch.stack([entries.mean(0), entries.std(0, correction=0)]), atol=1e-5)
    words = space(["red", "two dogs", "dog"])
    assert np.allclose(words[0], ((entries[6] - space.statistics[0]) / space.statistics[1]).numpy(), atol=1e-3)
    assert np.array_equal(words, space(["red", "two dogs", "dog"])) and tower.training, (
        "read at rest, and left as it was"
    )


# --- transitions


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(3, 30), k=st.integers(1, 12))
def test_standing_against_a_double_loop(seed, n, k):
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, n) / 5
    own = sorted(rng.choice(n, rng.integers(1, n - 1), replace=False).tolist())
    rivals = [i for i in range(n) if i not in own]
    told = _target_ranks(torch.from_numpy(values), own, k)
    assert told["ahead"] == pytest.approx(np.mean([[values[r] >= values[t] for r in rivals] for t in own]))
    assert told["first"] == 1 + min(sum(values[r] >= values[t] for r in rivals) for t in own)
    order = sorted(range(n), key=lambda i: (-values[i], i in own))[:k]
    assert told["top"] == pytest.approx(np.mean([i in own for i in order]))


def test_a_collapsed_model_finds_nothing_and_chance_is_chance():
    told = _target_ranks(torch.ones(50, dtype=torch.float64), range(5), 10)
    assert (told["ahead"], told["first"], told["top"], told["chance_top"]) == (1, 46, 0, 0.1)
    rng = np.random.default_rng(0)
    drawn = [_target_ranks(torch.from_numpy(rng.normal(size=200)), range(20), 10) for _ in range(300)]
    assert np.mean([one["ahead"] for one in drawn]) == pytest.approx(0.5, abs=0.02)
    assert np.mean([one["top"] for one in drawn]) == pytest.approx(0.1, abs=0.02)


def test_gains_against_both_ends_and_the_query_itself_left_out():
    mix = Mixture(
        torch.arange(4),
        *(torch.tensor(s, dtype=torch.float32) for s in ([1, 0.9, 0.6, 0], [0, 0.1, 0.8, 0.9])),
        0.0,
        (True, True),
    )
    told = transition(mix, {"image": [0, 1], "mixed": [2], "text": [3]}, (0, 0.5, 1), without=[0], k=1)
    assert set(told[told.kind == "image"].targets) == {1} and set(told.gallery) == {3}
    gained = mixture_gains(told.assign(query=0))
    assert gained.iloc[0].to_dict() == {"query": 0, "middle": 0, "image_only": 0.5, "text_only": 0.5, "gain": 0.5}
    rows = transition_rows(pd.concat([told.assign(query=q) for q in range(2)]), "m", 0, "d")
    assert {row["metric"] for row in rows} == {"ahead", "first", "top", "gain_ahead", "gain_top"}
    assert all(row["n"] == 2 for row in rows)
    rng = np.random.default_rng(0)
    many = pd.concat([told.assign(query=q) for q in range(24)])
    many["ahead"] = rng.random(len(many))
    wide = {}
    for name, frame in (
        ("each", many),
        ("one set", many.assign(group="same")),
        ("six sets", many.assign(group=many["query"] // 4)),
    ):
        [line] = [
            row
            for row in transition_rows(frame, "m", 0, "d")
            if (row["split"], row["metric"]) == ("mixed at 0.5", "gain_ahead")
        ]
        wide[name] = (line["n"], line["high"] - line["low"])
    assert [wide[name][0] for name in wide] == [24, 1, 6] and wide["one set"][1] == 0 < wide["each"][1]
    with pytest.raises(ValueError, match="has no alpha"):
        mixture_gains(told[told.alpha > 0].assign(query=0))
