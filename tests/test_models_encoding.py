"""Encoding each thing once, the feature cache, full precision; saving and loading."""

import json
import os
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from complearn.core.checksums import write_checksums, write_listed
from complearn.data.benchmarks.groups import Frame
from complearn.data.benchmarks.items import Crop
from complearn.data.fixtures.specimens import _write_shard
from complearn.data.readers.registry import read
from complearn.data.readers.shards import _index_shard
from complearn.data.sprites.clipart import ClipartScene, Piece
from complearn.data.sprites.composites import Collage
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.scenes.graphs import Item, SceneGraph
from complearn.models.agents import build_seeded
from complearn.models.codebook.codebook import Codebook
from complearn.models.dual import build_model
from complearn.models.features import distinct, feature_key, image_signature, weights_fingerprint
from complearn.models.registry import FILES, load_model, save_model
from complearn.models.scoring import Encoded, Scorer, cosine, encode_all, evaluation_mode, full_precision
from complearn.models.towers.checkpoints import check_weights
from complearn.models.towers.factory import vision_tower
from complearn.models.towers.memory import _weights_key
from complearn.training.engine.encoding import _Precision

CAPTIONS = ["a red circle above a blue square", "a green star", "two small red circles"]


@pytest.fixture
def model():
    shallow = {"vision": {"tower": "tiny", "depth": 1}, "text": {"tower": "tiny", "depth": 1}}
    return build_model(shallow | {"codebook": {"codes": 32, "temperature": 0.5}}, WordTokenizer.fit(CAPTIONS))


def pixels(n):
    return list(np.random.default_rng(0).integers(0, 255, (n, 32, 32, 3), dtype=np.uint8))


class Counting:
    "A scorer around another that counts what it encodes."

    def __init__(self, scorer):
        self.scorer = scorer
        self.images = 0
        self.texts = 0
        self.collate = scorer.collate
        self.similarity = scorer.similarity
        self.fingerprint = scorer.fingerprint

    def encode_images(self, batch):
        self.images += len(batch)
        return self.scorer.encode_images(batch)

    def encode_texts(self, batch):
        self.texts += len(batch)
        return self.scorer.encode_texts(batch)


# --- Encoded -----------------------------------------------------------------


def test_cat_of_ragged_parts_keeps_what_counts():
    parts = [Encoded(torch.randn(2, n, 3), torch.rand(2, n) < 0.7) for n in (2, 5, 3)]
    joined = Encoded.cat(parts)
    assert joined.values.shape == (6, 5, 3) and joined.mask.shape == (6, 5)
    for i, part in enumerate(parts):
        mine = joined[2 * i : 2 * i + 2]
        assert torch.equal(mine.values[mine.mask], part.values[part.mask])
    assert len(joined[3]) == 1 and torch.equal(joined[[0, 5]].values[1], joined.values[5])


def test_cosine_pairs_are_the_matrix():
    images = Encoded(3 * torch.randn(5, 8))
    texts = Encoded(torch.randn(7, 8))
    matrix = cosine(images, texts)
    every = [(i, t) for i in range(5) for t in range(7)]
    assert torch.allclose(cosine(images, texts, every).reshape(5, 7), matrix, atol=1e-6)
    assert cosine(images, texts, []).shape == (0,) and matrix.abs().max() <= 1 + 1e-6


def test_full_precision_restores_what_was():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(KeyError), full_precision("cpu"):
            assert torch.get_float32_matmul_precision() == "highest"
            raise KeyError
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)


def test_full_precision_is_that_of_convolutions_too(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", True)
    with full_precision("cpu"):
        assert not torch.backends.cudnn.allow_tf32
        handed_on = _Precision.now(torch.device("cpu"))
    assert torch.backends.cudnn.allow_tf32
    with handed_on.used(torch.device("cpu")):
        assert not torch.backends.cudnn.allow_tf32
    assert torch.backends.cudnn.allow_tf32


def test_modes_come_back_after_an_error():
    part = torch.nn.Dropout().eval()
    net = torch.nn.Sequential(part, torch.nn.Dropout())
    with pytest.raises(KeyError), evaluation_mode(net):
        assert not net[1].training and not torch.is_grad_enabled()
        raise KeyError
    assert [module.training for module in net.modules()] == [True, False, True] and torch.is_grad_enabled()


def test_a_scorer_that_is_no_module_can_rest():
    with evaluation_mode(object()):
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


# --- each thing once ---------------------------------------------------------


@dataclass(frozen=True)
class Thing:
    number: int


def test_distinct_knows_every_kind(tmp_path):
    Image.fromarray(pixels(1)[0]).save(tmp_path / "a.png")
    path = tmp_path / "a.png"
    array = pixels(1)[0]
    encoded = path.read_bytes()
    picture = Image.open(path)
    things = [
        path,
        str(path),
        array,
        array.copy(),
        encoded,
        bytes(encoded),
        Thing(1),
        Thing(1),
        Thing(2),
        picture,
        picture,
    ]
    kept, back = distinct(things)
    assert back == [0, 0, 1, 1, 2, 2, 3, 3, 4, 5, 5] and len(kept) == 6


def test_each_distinct_thing_is_encoded_once(model):
    scorer = Counting(model)
    images = pixels(5)
    captions = CAPTIONS
    once = encode_all(scorer, images=images)
    many = encode_all(scorer, images=[images[i] for i in (4, 0, 0, 2, 4)], batch_size=2)
    assert scorer.images == 5 + 3 and torch.allclose(many.values, once.values[[4, 0, 0, 2, 4]], atol=1e-6)
    texts = encode_all(scorer, texts=captions * 4, batch_size=2)
    assert scorer.texts == 3 and len(texts) == 12 and torch.equal(texts.values[:3], texts.values[9:])


@pytest.mark.parametrize("batch_size", [1, 2, 7])
def test_batch_size_does_not_matter(model, batch_size):
    wanted = encode_all(model, texts=CAPTIONS)
    assert torch.allclose(encode_all(model, texts=CAPTIONS, batch_size=batch_size).values, wanted.values, atol=1e-6)


def test_wrong_calls_are_named(model):
    with pytest.raises(ValueError, match="images or texts, one of them"):
        encode_all(model)
    with pytest.raises(ValueError, match="got no captions"):
        encode_all(model, texts=[])


# --- the cache ---------------------------------------------------------------


def test_cache_is_keyed_by_weights_things_and_files(model, tmp_path):
    scorer = Counting(model)
    folder = tmp_path / "features"
    image = tmp_path / "photo.png"
    Image.fromarray(pixels(1)[0]).save(image)
    first = encode_all(scorer, images=[image], cache=folder)
    assert torch.equal(encode_all(scorer, images=[str(image)], cache=folder).values, first.values)
    assert scorer.images == 1
    Image.fromarray(255 - pixels(1)[0]).save(image)  # another photo under the same name
    assert not torch.allclose(encode_all(scorer, images=[image], cache=folder).values, first.values)
    assert scorer.images == 2
    encode_all(scorer, texts=CAPTIONS, cache=folder)
    encode_all(scorer, texts=CAPTIONS, cache=folder)
    assert scorer.texts == 3
    model.respawn("language", 1)
    encode_all(scorer, texts=CAPTIONS, cache=folder)
    assert scorer.texts == 6
    encode_all(scorer, texts=CAPTIONS)
    assert scorer.texts == 9  # no cache unless asked


def test_default_cache_is_the_users(model, monkeypatch, tmp_path):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    encode_all(model, texts=CAPTIONS, cache=True)
    assert len(list((tmp_path / "features").glob("*.safetensors"))) == 1


def test_damaged_cache_is_made_again(model, tmp_path):
    scorer = Counting(model)
    wanted = encode_all(scorer, texts=CAPTIONS, cache=tmp_path)
    file = next(tmp_path.glob("*.safetensors"))
    file.write_bytes(file.read_bytes()[:50])
    assert torch.equal(encode_all(scorer, texts=CAPTIONS, cache=tmp_path).values, wanted.values) and scorer.texts == 6
    encode_all(scorer, texts=CAPTIONS, cache=tmp_path)
    assert scorer.texts == 6


def test_things_without_a_lasting_name_are_not_cached(model, tmp_path):
    pictures = [Image.fromarray(array) for array in pixels(2)]
    assert feature_key("x", pictures, "image") is None and feature_key("x", pixels(2), "image") is not None
    assert feature_key("x", [Thing(1)], "image") not in (None, feature_key("x", [Thing(2)], "image"))
    encode_all(model, images=pictures, cache=tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_key_of_a_part_of_a_file_changes_with_the_file_and_with_the_part(tmp_path):
    """A crop of a photo, a slice of a shard, a frame of a film, and a scene that is drawn from files."""
    photo = tmp_path / "photo.png"
    shard = tmp_path / "s.tar"
    film = tmp_path / "f.npy"
    (tmp_path / "sun.png").touch()

    def write(seed):
        made = np.random.default_rng(seed).integers(0, 255, (8, 8, 3), dtype=np.uint8)
        for name in ("photo.png", "sun.png", "background.png"):
            Image.fromarray(made).convert("RGBA").save(tmp_path / name)
        _write_shard(shard, {name: {"bin": made.tobytes(), "txt": b"A goat."} for name in ("0", "1")})
        np.save(film, made)

    write(0)
    piece = Piece("sun.png", "sun", 4, 4, 4, 4, 0, False, 0, True)
    graph = SceneGraph((Item("circle", "yellow", "large", "plain", 0.5, 0.5, 0.2, picture="sun"),))
    members = _index_shard(shard).samples
    parts = [
        Crop(photo, (0, 0, 4, 4)),
        Crop(photo, (4, 4, 8, 8)),
        members["0"]["bin"],
        members["1"]["bin"],
        Frame(film),
    ]
    parts += [ClipartScene(tmp_path, "a", (piece,)), Collage(graph, folder=str(tmp_path))]
    before = [feature_key("x", [part], "image") for part in parts]
    assert len({*before, None}) == len(parts) + 1 and before == [feature_key("x", [part], "image") for part in parts]
    write(1)
    os.utime(shard, ns=(1, 1))  # the same size
    assert not set(before) & {feature_key("x", [part], "image") for part in parts}
    (tmp_path / "moon.png").write_bytes((tmp_path / "photo.png").read_bytes())
    Image.new("RGBA", (8, 8), "white").save(tmp_path / "moon.png")
    other = Collage(SceneGraph((replace(graph.items[0], picture="moon"),)), folder=str(tmp_path))
    assert repr(other) == repr(parts[-1])
    assert image_signature(other) != image_signature(parts[-1])  # another picture of one noun


def test_two_tables_of_one_form_have_keys_of_their_own():
    datasets = pytest.importorskip("datasets")
    form = datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")})
    sets = []
    for arrays in (pixels(2), [255 - array for array in pixels(2)]):
        cells = {"image": [Image.fromarray(array) for array in arrays], "text": ["a", "b"]}
        sets.append(read("hf", dataset=datasets.Dataset.from_dict(cells, form)))
    keys = [feature_key("x", [pair.image for pair in pairs], "image") for pairs in sets]
    assert len({*keys, None}) == 3 and keys[0] == feature_key("x", [pair.image for pair in sets[0]], "image")


def test_outputs_of_equal_weights_with_other_heads_are_kept_apart():
    spec = {"tower": "tiny", "size": 16, "width": 16, "depth": 1}
    towers = [build_seeded(lambda heads=heads: vision_tower(spec | {"heads": heads}), 0) for heads in (1, 2)]
    assert all(torch.equal(a, b) for a, b in zip(*(tower.state_dict().values() for tower in towers)))
    assert _weights_key(towers[0]) != _weights_key(towers[1])


def test_a_caption_that_looks_like_a_path_is_a_caption():
    assert feature_key("x", ["/nowhere/at/all"], "caption") != feature_key("x", ["/nowhere"], "caption")


def test_fingerprint_sees_every_bit():
    module = torch.nn.BatchNorm1d(3)
    before = weights_fingerprint(module, {"size": 3})
    assert before == weights_fingerprint(module, {"size": 3}) != weights_fingerprint(module, {"size": 4})
    module.running_mean[2] = 1e-30
    assert weights_fingerprint(module, {"size": 3}) != before


def test_scenes_are_rendered_and_cached(model, tmp_path):
    rendering = pytest.importorskip("complearn.data.worlds.rendering")
    graphs = pytest.importorskip("complearn.language.scenes.graphs")

    def scene(x):
        return rendering.Scene(graphs.SceneGraph((graphs.Item("circle", "red", "large", "plain", x, 0.5, 0.2),)))

    scorer = Counting(model)
    seen = encode_all(scorer, images=[scene(0.3), scene(0.7), scene(0.3)], cache=tmp_path)
    assert scorer.images == 2
    assert torch.equal(seen.values[0], seen.values[2])
    assert not torch.equal(seen.values[0], seen.values[1])
    encode_all(scorer, images=[scene(0.3), scene(0.7)], cache=tmp_path)
    assert scorer.images == 2


# --- saving ------------------------------------------------------------------


def test_save_and_load_round_trip(model, tmp_path):
    folder = save_model(
        model, tmp_path / "model", {"name": "Trial", "data": {"name": "generated", "seed": 0}, "steps": 12}
    )
    again = load_model(folder)
    assert sorted(file.name for file in folder.iterdir()) == sorted(FILES)
    assert not again.training and again.config == model.config and again.fingerprint() == model.fingerprint()
    assert all(torch.equal(a, b) for a, b in zip(again.state_dict().values(), model.state_dict().values()))
    pair = model.collate(list(model_pairs()))
    assert torch.equal(again.encode_texts(pair).values, model.encode_texts(pair).values)
    card = (folder / "model_card.md").read_text()
    assert card.startswith("# Trial\n")
    assert '"name": "generated"' in card
    assert "## Steps" in card
    assert "Codebook-CLIP with 32 codes" in card
    save_model(model, folder)  # over itself
    assert load_model(folder).respawn("language", 1)


def model_pairs():
    from complearn.data.pairs import Pair

    return [Pair(image, caption, caption, caption) for image, caption in zip(pixels(3), CAPTIONS)]


def test_a_found_scale_is_saved(tmp_path):
    model = build_model({"codebook": {"codes": 32}}, WordTokenizer.fit(CAPTIONS))
    model.calibrate(model.collate(model_pairs()))
    again = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(again.codebook.vision_scale, model.codebook.vision_scale)
    assert again.codebook.calibrated["language"]


def test_a_folder_with_other_things_is_not_touched(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"holds other files \(thesis.tex\); name a new folder"):
        save_model(model, tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_interrupted_save_leaves_the_old_model(model, tmp_path, monkeypatch):
    folder = save_model(model, tmp_path / "model")
    old = model.fingerprint()
    model.respawn("language", 1)

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("complearn.models.registry.save_file", broken)
    with pytest.raises(OSError, match="no space left while writing .*model.*intact"):
        save_model(model, folder)
    assert load_model(folder).fingerprint() == old and [file.name for file in tmp_path.iterdir()] == ["model"]


def test_damage_is_named(model, tmp_path):
    with pytest.raises(
        FileNotFoundError, match="not a saved model: config.json, model.safetensors, tokenizer.json missing"
    ):
        load_model(tmp_path)
    folder = save_model(model, tmp_path / "model")
    weights = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ValueError, match="model.safetensors is damaged.*bring this file back from a copy"):
        load_model(folder)
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"heads": ', '"heads": 1'))  # the same shapes, another function
    with pytest.raises(ValueError, match="config.json is damaged.*bring this file back from a copy"):
        load_model(folder)
    write_listed(folder / "config.json", b'{"method": {}}')
    with pytest.raises(ValueError, match="has format None, this version reads 1"):
        load_model(folder)


def test_weights_of_another_configuration(model, tmp_path):
    folder = save_model(model, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    weights["codebook.codes"] = torch.randn(64, 96)
    weights["extra"] = weights.pop("logit_scale")
    save_file(weights, folder / "model.safetensors")
    write_checksums(folder)
    wanted = (
        r"codebook.codes is \(32, 96\) here and \(64, 96\) there; extra is unknown here; logit_scale is missing there"
    )
    with pytest.raises(ValueError, match=wanted):
        load_model(folder)
    check_weights(model, model.state_dict(), "itself")
    said = json.loads((folder / "config.json").read_text())
    said["towers"]["vision"]["architecture"]["kind"] = "mystery"
    write_listed(folder / "config.json", json.dumps(said).encode())
    with pytest.raises(ValueError, match="this one says 'mystery'"):
        load_model(folder)


def test_distributed_calibration_takes_the_first_process(monkeypatch):
    "A mocked second process: what it finds itself is replaced by what process 0 sends."
    codebook = Codebook(64, 8)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda tensor, src: tensor.fill_(7.5))
    assert codebook.calibrate(torch.randn(8, 64), "vision") == 7.5 and codebook.vision_scale == 7.5


def test_protocol_is_checked():
    assert not isinstance(object(), Scorer)


def test_models_with_equal_weights_that_compute_otherwise_have_other_names():
    "Features and galleries are kept under them."
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    config = {"vision": tower, "text": tower}
    tokenizer = WordTokenizer.fit(["a red circle"])
    changes = ({}, {"codebook": {"codes": 8, "similarity": "dot"}}, {"codebook": {"codes": 8}})
    changes += ({"text": config["text"] | {"heads": 1}}, {"text": config["text"] | {"causal": False}})
    marks = [
        build_model({"codebook": {"codes": 8}} | config | change, tokenizer, 0).fingerprint() for change in changes
    ]
    assert marks[0] == marks[2] and len(set(marks)) == 4


@dataclass(frozen=True, kw_only=True)
class Lengths(Encoded):
    "Texts with how long each is."

    lengths: torch.Tensor


class LengthScorer:
    encoded_texts = Lengths
    similarity = staticmethod(cosine)

    def encode_images(self, batch):
        raise TypeError("texts alone")

    def collate(self, pairs):
        return [pair.caption for pair in pairs]

    def encode_texts(self, batch):
        lengths = torch.tensor([len(text) for text in batch])
        return Lengths(values=lengths[:, None].float(), lengths=lengths)

    def fingerprint(self):
        return "lengths"


def test_a_subclass_of_encoded_is_indexed_moved_and_kept_on_disk_as_itself(tmp_path):
    text = LengthScorer().encode_texts(["a", "a dog"])
    assert text[1].lengths.tolist() == [5] and text.to("meta").lengths.device.type == "meta"
    assert Lengths.cat([text[[1]], text]).lengths.tolist() == [5, 1, 5]
    first, again = (encode_all(LengthScorer(), texts=["a dog", "a", "a dog"], cache=tmp_path) for _ in range(2))
    assert type(again) is Lengths and again.lengths.tolist() == first.lengths.tolist() == [5, 1, 5]
    assert len(list(tmp_path.glob("*.safetensors"))) == 1
    plain = type("Plain", (LengthScorer,), {"encoded_texts": Encoded})()
    with pytest.raises(TypeError, match="encodes captions as Lengths.*as encoded_images or encoded_texts"):
        encode_all(plain, texts=["a"], cache=tmp_path)
