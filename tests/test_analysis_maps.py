"""Maps of a model: the plane against a naive one, the cache of UMAP, and the tables of points against naive numbers."""

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import training_runs

from complearn.analysis.codes.store import code_store
from complearn.analysis.maps.planes import plane, principal_plane
from complearn.analysis.maps.points import _named_clusters, _said_of, map_points, read_points
from complearn.analysis.stages.stability import stage_groups
from complearn.core.config import RequestError
from complearn.data.pairs import Pair
from complearn.data.readers.registry import read
from complearn.data.word_tokenizer import normalize_caption
from complearn.models.scoring import encode_all
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import latest_snapshot


@pytest.fixture(scope="module")
def stages():
    return training_runs.stages_model()


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory):
    "A Codebook-CLIP after two steps."
    torch.set_num_threads(1)
    config = training_runs.config({"name": "codebook_clip", "args": {"steps": 2}})
    run = launch(prepare(tmp_path_factory.mktemp("runs") / "codebook_clip-s0", config).path, progress=False)
    return latest_snapshot(run)


def test_principal_plane_is_that_of_a_singular_value_decomposition(monkeypatch):
    vectors = np.random.default_rng(0).normal(size=(50, 6)) * np.arange(1, 7) + 2
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    centred = unit - unit.mean(0)
    _, _, axes = np.linalg.svd(centred)
    naive = centred @ axes[:2].T
    places = principal_plane(vectors.astype(np.float32))
    assert np.allclose(np.abs(places), np.abs(naive), atol=1e-5)
    monkeypatch.setattr("complearn.analysis.maps.planes._BLOCK", 7)
    assert np.allclose(principal_plane(vectors.astype(np.float32)), places, atol=1e-6), "blocks change nothing"


def test_the_cache_of_umap_changes_with_the_vectors_and_the_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    fits = []

    class UMAP:  # the real one takes most of a minute to start
        def __init__(self, **options):
            self.options = options

        def fit_transform(self, vectors):
            fits.append((self.options["n_neighbors"], self.options["random_state"]))
            return vectors[:, :2] + len(fits)

    module = ModuleType("umap")
    module.UMAP = UMAP
    monkeypatch.setitem(sys.modules, "umap", module)
    vectors = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    told = []
    first = plane(vectors, "umap", progress=told.append)
    assert np.array_equal(plane(vectors.copy(), "umap", progress=told.append), first) and fits == [(15, 0)]
    assert len(told) == 1 and "placing 20 points by UMAP" in told[0]
    changed = vectors.copy()
    changed[3, 1] += 1e-3
    plane(changed, "umap")
    plane(vectors, "umap", seed=1)
    plane(vectors, "umap", neighbours=4)
    plane(vectors.reshape(10, 8), "umap")
    assert fits == [(15, 0), (15, 0), (15, 1), (4, 0), (9, 0)]
    [file, *_] = sorted((tmp_path / "maps").iterdir())
    file.write_bytes(b"damaged")
    before = len(fits)
    for again in (vectors, changed):
        plane(again, "umap")
        plane(again, "umap", seed=1)
    assert len(fits) > before, "a damaged file is made again"


def test_umap_of_four_points_says_what_to_do():
    with pytest.raises(RequestError, match=r"five points or more, and there are 4; choose PCA"):
        plane(np.eye(4, dtype=np.float32), "umap")


def test_images_and_captions_have_their_own_scores(snapshot):
    model = snapshot.model()
    pairs = snapshot.pairs()[:30]
    table = map_points(model, pairs, "images", clusters=3)
    images = F.normalize(encode_all(model, images=[pair.image for pair in pairs]).values, dim=-1)
    texts = F.normalize(encode_all(model, texts=[pair.caption for pair in pairs]).values, dim=-1)
    scores = model.similarity(
        encode_all(model, images=[pair.image for pair in pairs]), encode_all(model, texts=[p.caption for p in pairs])
    )
    assert images.shape == texts.shape and len(table) == len({pair.image_id for pair in pairs})
    places = {pair.image_id: k for k, pair in reversed([*enumerate(pairs)])}
    for name, line in table.iterrows():
        k = places[name]
        assert line.score == pytest.approx(float(scores[k, k]), abs=1e-5)
        first = float(scores[k, k]) >= float(scores[k].max()) - 1e-6
        assert line["own caption first"] == ("yes" if first else "no") and line.caption == pairs[k].caption
    expected = principal_plane(np.stack([images[places[name]].numpy() for name in table.index]))
    assert np.allclose(table[["x", "y"]], expected, atol=1e-4)
    assert {name[:2] for name in table.cluster} == {"1:", "2:", "3:"}
    sizes = table.cluster.str[0].value_counts().sort_index()
    assert (np.diff(sizes) <= 0).all(), "the largest is number 1"
    captions = map_points(model, pairs, "captions")
    assert list(captions.index) == list(dict.fromkeys(pair.caption for pair in pairs))
    assert (captions.label == captions.index).all() and captions.image.all()


def test_a_cluster_is_named_by_what_is_frequent_in_it_and_rarer_elsewhere():
    """By hand: "dog" is said in all of the first and nowhere else, "park" everywhere; of the third nothing is known."""
    words = [["dog", "park"], ["dog", "park"], ["cat", "park"], ["cat", "sofa", "park"], [], ["park"]]
    names = _named_clusters(np.array([0, 0, 1, 1, 2, 2]), words)
    assert names[:4] == ["1: dog, park", "1: dog, park", "2: cat, sofa, park", "2: cat, sofa, park"]
    assert names[4:] == ["3: mixed", "3: mixed"]
    rare = [["tree", f"thing {k}"] for k in range(12)]
    assert {*_named_clusters(np.arange(12) % 2, rare)} == {"1: mixed", "2: mixed"}, "words of fewer than one in five"
    assert _named_clusters(np.zeros(3, int), [["sun"], ["moon"], []], often=0.0) == ["1: mixed"] * 3
    assert _named_clusters(np.array([0, 1]), [["sun"], []]) == ["1: sun", "2: no words"]
    assert _named_clusters(np.array([0, 1]), [[], []]) == ["cluster 1", "cluster 2"], "pictures alone"


def test_words_that_stand_with_anything_name_no_cluster():
    texts = ("A girl in white with a dog", "A car above it")
    pairs = [Pair(None, text, str(k), str(k)) for k, text in enumerate(texts)]
    assert _said_of(pairs, {"colour": ["white", "red"]}) == [["white", "girl", "dog"], ["red", "car", "above"]]


def test_clusters_are_named_by_captions_where_no_attribute_is_known(snapshot):
    pairs = [replace(pair, labels=None) for pair in snapshot.pairs()[:30]]
    table = map_points(snapshot.model(), pairs, "images", clusters=3)
    said = {word for pair in pairs for word in normalize_caption(pair.caption).split()}
    named = {word for name in table.cluster for word in name.partition(": ")[2].split(", ")} - {"mixed"}
    assert named and named <= said and not named & {"a", "the", "of", "."}


def test_words_are_counted_and_have_an_example(snapshot):
    pairs = snapshot.pairs()[:30]
    points = read_points(snapshot.model(), pairs, "words")[""]
    for name, line in points.table.iterrows():
        with_it = [pair for pair in pairs if name in pair.caption.lower().replace(".", " ").split()]
        assert line["captions with it"] == len(with_it) and line.caption == with_it[0].caption
    assert points.pictures[0] is not None and len(points.vectors) == len(points)
    few = read_points(snapshot.model(), pairs, "words", most=3)[""]
    assert list(few.table.index) == list(points.table.index[:3])


def test_codes_are_those_of_the_store(snapshot):
    model = snapshot.model()
    pairs = list({pair.image_id: pair for pair in snapshot.pairs()[:30]}.values())
    points = read_points(model, pairs, "codes")[""]
    frame = code_store(model, pairs, len(pairs)).images.frame()
    assert np.allclose(points.vectors, model.codebook.codes.detach().numpy()) and len(points) == 24
    assert np.allclose(points.table["share of images"], frame.share)
    assert list(points.table["fires on any image"] == "yes") == list(frame.fired > 0)
    assert np.allclose(points.table.score, frame.best_score) and all(picture is not None for picture in points.pictures)


def test_every_stage_is_a_map_with_the_clusters_of_all(stages):
    pairs = read("trifeature", samples=2, shapes=3, textures=2, colours=3)
    layers = read_points(stages, pairs, "stages", clusters=3)
    groups = stage_groups(stages, pairs, 3)
    assert list(layers) == ["stage 0", "stage 1", "all stages"]
    for (label, points), name in zip(layers.items(), groups.vectors):
        assert np.array_equal(points.vectors, groups.vectors[name].numpy())
        numbers = points.table[f"cluster of {label}"].str.partition(":")[0].astype(int)
        assert (numbers.to_numpy() == groups.groups[name] + 1).all()
    table = map_points(stages, pairs, "stages", stage="stage 0", clusters=3)
    assert np.allclose(table[["x", "y"]], principal_plane(groups.vectors["stage-0"].numpy()), atol=1e-5)
    assert list(table["shape"]) == [pair.labels["shape"] for pair in pairs]
    assert table.label.iloc[0] == "circle solid red"


@pytest.mark.parametrize("of", ["images", "stages"])
def test_a_class_that_is_called_label_is_one_to_colour_by(stages, of):
    "Names of a map's own columns are left to them."
    pairs = read("trifeature", samples=2, shapes=3, textures=2, colours=3)
    pairs = [replace(pair, labels={"label": pair.labels["shape"], "x": "1"}) for pair in pairs]
    table = map_points(stages, pairs, of, clusters=3)
    assert list(table["class"]) == [pair.labels["label"] for pair in pairs]
    assert table.label.iloc[0] == "circle 1" and (table["x of the pair"] == "1").all() and table.x.dtype == np.float32


def test_some_points_in_another_order(stages):
    pairs = read("trifeature", samples=1, shapes=2, textures=2, colours=2)
    points = read_points(stages, pairs, "images")[""]
    names = [points.table.index[5], points.table.index[2]]
    few = points.chosen(names)
    assert list(few.table.index) == names and np.array_equal(few.vectors, points.vectors[[5, 2]])
    assert few.pictures[0] is points.pictures[5]


def test_a_model_without_codes_stages_or_texts_says_what_to_do(stages, snapshot):
    pairs = snapshot.pairs()[:9]
    bare = [Pair(None, pair.caption, pair.id, pair.image_id) for pair in pairs]
    silent = [Pair(pair.image, None, pair.id, pair.image_id) for pair in pairs]
    model = snapshot.model()
    for given, some, of, remedy in (
        (stages, pairs, "codes", r"the model has no codebook; .*complearn train codebook_clip"),
        (model, pairs, "stages", r"the model has no stages; .*multistage_clip"),
        (stages, pairs, "words", "the model reads no texts; show its images or stages"),
        (model, silent, "captions", "got no captions to place"),
        (model, bare, "images", "got no images to place"),
        (model, pairs, "dreams", "images, captions, words, codes, stages"),
    ):
        with pytest.raises(RequestError, match=remedy):
            read_points(given, some, of)
    with pytest.raises(RequestError, match="there is no 'stage 7' in a map of stages; there are stage 0, stage 1"):
        map_points(stages, silent, "stages", stage="stage 7")
    assert len(read_points(model, bare, "captions")[""]) and len(read_points(model, silent, "images")[""])
