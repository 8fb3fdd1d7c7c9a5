"Images, words, pairs and collation against torchvision, naive loops and broken input."

import ast
import io
import json
import pickle
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image

import complearn.data.pairs as pairs_module
from complearn.core.files import BadData
from complearn.data.images import BrokenImage, Transform, fit_image, load_images, open_image, to_rgb
from complearn.data.negatives import HardNegatives, with_negatives
from complearn.data.pairs import (
    Batch,
    CaptionIds,
    Collate,
    Labels,
    Pair,
    Part,
    keep_labels,
    number,
    number_captions,
    one_per_image,
    preload,
    same_pairs,
)
from complearn.data.word_tokenizer import EmptyCaption, WordTokenizer, normalize_caption, split_words


def noise(w, h, seed=0):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (h, w, 3), np.uint8))


def encoded(picture, kind="png", **options):
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("size", [(37, 91), (91, 37), (64, 64), (224, 225), (500, 333), (16, 300)])
def test_crop_is_torchvisions(size):
    transforms = pytest.importorskip("torchvision.transforms")
    picture = noise(*size)
    theirs = transforms.Compose(
        [transforms.Resize(32, transforms.InterpolationMode.BICUBIC), transforms.CenterCrop(32)]
    )(picture)
    assert (np.asarray(theirs) == np.asarray(fit_image(picture, 32))).all()


def test_transform_is_open_clips():
    transform = pytest.importorskip("open_clip.transform")
    theirs = transform.image_transform(32, is_train=False)
    picture = noise(53, 77)
    assert torch.allclose(theirs(picture), Transform(32)([picture])[0], atol=1e-6)


def test_every_kind_of_image_gives_the_same_pixels(tmp_path):
    picture = noise(40, 30)
    picture.save(tmp_path / "a.png")

    class Member:
        def read_bytes(self):
            return encoded(picture)

    kinds = [picture, np.asarray(picture), tmp_path / "a.png", str(tmp_path / "a.png"), encoded(picture), Member()]
    pixels = load_images(kinds, 24)
    assert (pixels == pixels[:1]).all() and pixels.std() > 10


def test_modes():
    assert np.asarray(to_rgb(Image.new("RGBA", (2, 2), (255, 0, 0, 128))))[0, 0].tolist() == [255, 127, 127]
    assert to_rgb(Image.new("I;16", (2, 2), 32768)).getpixel((0, 0)) == (128, 128, 128)
    greys = (
        (np.int32, 200, 200),
        (np.int32, 51200, 200),
        (np.float32, 200.0, 200),
        (np.float32, 1.0, 255),
        (np.int32, -1, 0),
    )
    for kind, value, grey in greys:
        assert to_rgb(Image.fromarray(np.full((2, 2), value, kind))).getpixel((0, 0)) == (grey, grey, grey)
    palette = noise(8, 8).quantize(4)
    palette.info["transparency"] = 0
    for mode in ("L", "1", "CMYK", "LA", "P", "YCbCr"):
        assert to_rgb(noise(8, 8).convert(mode)).mode == "RGB"
    assert to_rgb(palette).mode == "RGB"


def test_fits_keep_what_they_promise():
    strip = np.zeros((10, 40, 3), np.uint8)
    strip[:, :4] = (255, 0, 0)
    strip[:, -4:] = (0, 0, 255)

    def red(pixels):
        return bool(((pixels[..., 0] > 200) & (pixels[..., 1] < 60)).any())

    assert not red(load_images([strip], 16, "crop")[0])
    for fit in ("pad", "squash"):
        assert red(load_images([strip], 16, fit)[0])
    assert (load_images([strip], 16, "pad")[0][0] == 255).all()
    with pytest.raises(ValueError, match="no fit 'stretch'; there are crop, pad, squash"):
        load_images([strip], 16, "stretch")


def test_broken_images_are_named(tmp_path):
    (tmp_path / "cut.jpg").write_bytes(encoded(noise(64, 64), "jpeg")[:700])
    (tmp_path / "text.jpg").write_text("not a picture")
    for name, fault in (("cut.jpg", "truncated"), ("text.jpg", "cannot identify"), ("gone.jpg", "not found")):
        with pytest.raises(BrokenImage, match=f"{name}.*{fault}"):
            load_images([tmp_path / name], 16)
    with pytest.raises(BrokenImage, match="check='decode'"):
        open_image(b"")
    with pytest.raises(TypeError, match="not int"):
        open_image(3)


def test_normalisation_by_hand():
    pixels = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    out = Transform(4, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))([pixels])
    for row in range(4):
        for channel, (mean, std) in enumerate(((0.1, 0.5), (0.2, 0.6), (0.3, 0.7))):
            assert out[0, channel, row, 2].item() == pytest.approx(
                (pixels[row, 2, channel] / 255 - mean) / std, abs=1e-5
            )
    assert out.is_contiguous()


@pytest.mark.parametrize("fit", ["crop", "pad", "squash"])
def test_augmentation_depends_on_the_draw_alone(fit):
    transform = Transform(16, fit=fit, area=(0.5, 1.0), mirror=True, jitter=0.3)
    pictures = [noise(40, 30, i) for i in range(6)]
    together = transform(pictures, [1, 2, 3, 4, 5, 6])
    alone = torch.cat([transform([pictures[i]], [i + 1]) for i in (3, 1, 0, 2, 5, 4)])
    assert torch.equal(together[[3, 1, 0, 2, 5, 4]], alone)
    assert not torch.equal(transform(pictures, [7, 8, 9, 10, 11, 12]), together)
    assert torch.equal(transform(pictures), Transform(16, fit=fit)(pictures))  # no draws, no chance


def test_random_crops_keep_the_stated_area_and_spread():
    ramp = np.tile(np.arange(100, dtype=np.uint8)[None, :, None], (100, 1, 3))
    widths = []
    lefts = []
    for draw in range(300):
        row = Transform(50, area=(0.5, 1.0)).pixels([ramp], [draw])[0][25, :, 0].astype(int)
        widths.append((row[-3] - row[2]) / 45 * 50)
        lefts.append(row[0])
    assert 69 < min(widths) and max(widths) < 102 and max(lefts) > 20 and min(lefts) < 2
    assert 0.45 < np.mean([Transform(8, mirror=True).pixels([ramp], [d])[0][0, 0, 0] > 50 for d in range(400)]) < 0.55


def test_words():
    found = [word for word, *_ in split_words("A dog’s 2-tone ball, Über-red!")]
    assert found == ["a", "dog’s", "2", "-", "tone", "ball", ",", "über", "-", "red", "!"]
    assert normalize_caption("Café, RED.") == normalize_caption("Cafe\u0301 red")


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.text("ab ,.'é", min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=5), st.integers(3, 9)
)
def test_tokens_point_back_at_their_words(captions, context):
    tokenizer = WordTokenizer.fit(captions, context=context)
    tokens = tokenizer(captions)
    for caption, ids, mask, spans, cut in zip(captions, tokens.ids, tokens.mask, tokens.spans, tokens.truncated):
        real = ids[mask].tolist()
        assert real[0] == tokenizer.start and real[-1] == tokenizer.end and len(real) == len(spans) <= context
        assert [tokenizer.index[caption[a:b].lower()] for a, b in spans[1:-1]] == real[1:-1]
        assert cut == (len(split_words(caption)) > context - 2) and not ids[~mask].any()


def test_vocabulary_is_by_frequency_then_alphabet_and_survives_a_file(tmp_path):
    tokenizer = WordTokenizer.fit(["b a", "a c", "c d é"])
    assert tokenizer.words == ("a", "c", "b", "d", "é") and tokenizer.vocab_size == len(tokenizer) == 9
    assert WordTokenizer.fit(["b a", "a c", "c d"], min_count=2).words == ("a", "c")
    assert WordTokenizer.fit(["b a", "a c", "c d"], max_words=1).words == ("a",)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = WordTokenizer.load(tmp_path / "tokenizer.json")
    assert again.to_dict() == tokenizer.to_dict() and torch.equal(again(["a é x"]).ids, tokenizer(["a é x"]).ids)
    assert again(["x"]).ids[0, 1] == again.unknown
    with pytest.raises(ValueError, match="says 'bpe'"):
        WordTokenizer.from_dict({"kind": "bpe"})
    assert json.loads((tmp_path / "tokenizer.json").read_text())["kind"] == "word"


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"[1]", b'{"kind": "word"}', b'{"kind": "word", "words": 3, "context": 4}']
)
def test_a_broken_file_of_words_is_named(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(BadData, match="tokenizer.json"):
        WordTokenizer.load(tmp_path / "tokenizer.json")


def test_empty_captions_name_their_pair():
    tokenizer = WordTokenizer.fit(["a dog"])
    for caption in ("", "  ", "\n"):
        with pytest.raises(EmptyCaption, match="pair dog-3: the caption .* is empty; remove the pair"):
            tokenizer(["a dog", caption], ["dog-2", "dog-3"])
    with pytest.raises(EmptyCaption, match="every caption is empty"):
        WordTokenizer.fit([" "])
    with pytest.raises(ValueError, match="at least 3"):
        WordTokenizer(["a"], 2)


def make_pairs(n=6):
    return [
        Pair(np.full((8, 8, 3), 20 * (i // 2), np.uint8), f"shade {i}", f"p{i}", f"image-{i // 2}") for i in range(n)
    ]


def test_batches_know_which_pairs_share_an_image_or_a_caption():
    pairs = make_pairs()
    pairs[5] = replace(pairs[5], caption="shade 0")
    tokenizer = WordTokenizer.fit(pair.caption for pair in pairs)
    batch = Collate(Transform(8), tokenizer, steps=(number_captions, keep_labels))(pairs)
    same = same_pairs(batch.image_ids, batch[CaptionIds].numbers)
    for i, a in enumerate(pairs):
        for j, b in enumerate(pairs):
            assert same[i, j] == (a.image_id == b.image_id or a.caption == b.caption)
            assert same_pairs(batch.image_ids)[i, j] == (a.image_id == b.image_id)
    assert batch[Labels].values == (None,) * 6
    assert number("image-0") == number("image-0") >= 0


def test_one_sided_batches_and_mixed_ones():
    pairs = make_pairs()
    collate = Collate(Transform(8), WordTokenizer.fit(["shade 0"]))
    texts = collate([replace(pair, image=None) for pair in pairs])
    images = collate([replace(pair, caption=None) for pair in pairs])
    assert texts.images is None and len(texts) == 6 and images.ids is None and images.images.shape == (6, 3, 8, 8)
    with pytest.raises(ValueError, match="pair p2 has no image but others"):
        collate([*pairs[:2], replace(pairs[2], image=None)])


def test_a_batch_for_a_model_without_a_text_tower_has_no_captions():
    batch = Collate(Transform(8), None, steps=(number_captions, keep_labels))(
        [replace(pair, labels="grey") for pair in make_pairs()]
    )
    assert batch.ids is None
    assert CaptionIds not in batch
    assert batch[Labels].values == ("grey",) * 6
    assert len(batch.chunk(2)[0]) == 3


def test_chunks_are_the_batch_in_parts():
    batch = Collate(Transform(8), WordTokenizer.fit(["shade"]), steps=(keep_labels,))(make_pairs(7))
    for n in (1, 2, 3, 7, 9):
        parts = batch.chunk(n)
        assert sum(map(len, parts)) == 7 and max(map(len, parts)) - min(map(len, parts)) <= 1
        assert torch.equal(torch.cat([part.images for part in parts]), batch.images)
        assert tuple(key for part in parts for key in part.keys) == batch.keys
        assert torch.equal(torch.cat([part.truncated for part in parts]), batch.truncated)
    moved = batch.to("meta")
    assert moved.images.device.type == moved.truncated.device.type == "meta" and isinstance(moved, Batch)


@dataclass(frozen=True)
class Weights(Part):
    made_by = "weigh"

    values: torch.Tensor
    names: tuple
    absent: torch.Tensor | None = None

    def count_tokens(self):
        return (self.values > 0).sum()


def weigh(pairs, draws):
    values = [float(len(pair.caption)) for pair in pairs]
    return Weights(torch.tensor(values), tuple(pair.caption for pair in pairs))


def test_parts_of_a_batch_are_moved_sliced_and_chunked_with_it():
    batch = Collate(Transform(8), WordTokenizer.fit(["shade"]), steps=(weigh,))(make_pairs(7))
    parts = batch.chunk(3)
    assert torch.equal(torch.cat([part[Weights].values for part in parts]), batch[Weights].values)
    assert sum((part[Weights].names for part in parts), ()) == batch[Weights].names
    assert parts[1][Weights].absent is None
    moved = batch.to("meta")
    assert moved[Weights].values.device.type == "meta" and moved[Weights].names == batch[Weights].names
    assert batch[Weights].values.device.type == "cpu"  # the batch itself stays
    assert pickle.loads(pickle.dumps(batch))[Weights].names == batch[Weights].names


def test_a_missing_part_is_named_with_the_step_that_makes_it():
    batch = Collate(Transform(8), None)(make_pairs())
    assert Weights not in batch and batch.get(Weights) is None
    with pytest.raises(ValueError, match="the batch has no Weights .its parts: none.; it is made by weigh"):
        batch[Weights]
    hard = with_negatives(Collate(Transform(8), WordTokenizer.fit(["shade"])), "swap")(make_pairs())
    with pytest.raises(ValueError, match="no Weights .its parts: HardNegatives."):
        hard[Weights]
    with pytest.raises(ValueError, match='no HardNegatives .*made by DrawNegatives.*"negatives": "auto"'):
        batch[HardNegatives]


def test_steps_see_the_caption_that_is_read_and_make_each_part_once():
    pairs = one_per_image(make_pairs())
    collate = Collate(Transform(8), WordTokenizer.fit(["shade"]), choose=True).with_steps(weigh)
    draws = list(range(40, 40 + len(pairs)))
    assert collate(pairs, draws)[Weights].names == tuple(map(collate.caption, pairs, draws))
    assert replace(collate, steps=(lambda pairs, draws: None,))(pairs).parts == {}
    with pytest.raises(ValueError, match="two collate steps make Weights"):
        collate.with_steps(weigh)(pairs)


def test_captions_take_turns_by_the_draw_alone():
    joined = one_per_image(make_pairs())
    assert [pair.image_id for pair in joined] == ["image-0", "image-1", "image-2"] and joined[0].views == ("shade 1",)
    collate = Collate(Transform(8), WordTokenizer.fit(pair.caption for pair in make_pairs()), choose=True)
    drawn = [[collate.caption(pair, draw) for draw in range(200)] for pair in joined]
    assert all(set(texts) == {pair.caption, *pair.views} for texts, pair in zip(drawn, joined))
    assert 60 < drawn[0].count("shade 0") < 140
    assert [collate.caption(pair, None) for pair in joined] == [pair.caption for pair in joined]


def test_preload_decodes_each_image_once(tmp_path, monkeypatch):
    noise(20, 30).save(tmp_path / "a.png")
    pairs = [Pair(tmp_path / "a.png", f"caption {i}", str(i), "a") for i in range(5)]
    held = preload(pairs, 12)
    assert all(pair.image is held[0].image for pair in held)
    assert (held[0].image == load_images([tmp_path / "a.png"], 12)[0]).all()
    (tmp_path / "a.png").unlink()
    assert Collate(Transform(12), WordTokenizer.fit(["caption"]))(held).images.shape == (5, 3, 12, 12)


def test_captions_of_the_same_words_are_no_negatives_of_each_other():
    """Capitals, spaces and signs aside; a sign alone is a caption of its own."""
    texts = ["A goat walks.", "a goat walks", " A  GOAT walks!", "A goat sits.", "!", "?"]
    pairs = [Pair(None, text, f"p{i}", f"image-{i}") for i, text in enumerate(texts)]
    collate = with_negatives(Collate(Transform(8), WordTokenizer.fit(texts), steps=(number_captions,)), "given")
    batch = collate([replace(pair, negatives=("a goat  walks", "A tram.")) for pair in pairs])
    captions = batch[CaptionIds].numbers
    same = same_pairs(batch.image_ids, captions)
    assert same[:3, :3].all() and not same[:3, 3:].any() and not same[4, 5]
    hard = batch[HardNegatives]
    assert (hard.numbers[:3, 1] == captions[0]).all() and hard.present.all()
    assert not (hard.numbers[:3, 0] == captions[0]).any()  # its own words are no wrong caption


def test_pairs_imports_no_edits_facts_negatives_or_language():
    tree = ast.parse(Path(pairs_module.__file__).read_text())
    modules = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not [name for name in modules if {"language", "edits", "facts", "negatives"} & set(name.split("."))]
