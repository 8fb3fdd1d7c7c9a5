"Names of images: what they hold for, and that two sources with equal names and different pictures stay two sources."

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from complearn.data.benchmarks.items import NoPhoto
from complearn.data.fixtures import specimens
from complearn.data.fixtures.specimens import SPECIMENS, _write_shard
from complearn.data.identities import distinct_names, images_by_id, name_source, photo_identity, same_image
from complearn.data.images import load_images
from complearn.data.loading import content_fingerprint, fingerprint
from complearn.data.overlap import find_overlap, resolve_overlap
from complearn.data.pairs import Collate, Pair, Transform, WordTokenizer, one_per_image, preload
from complearn.data.readers.coco import _photo_filter, read_coco
from complearn.data.readers.registry import READERS, read
from complearn.data.reports import BadData, Pairs, join_pairs
from complearn.data.worlds.world import world_from
from complearn.evaluation.search.gallery import _distinct_images
from complearn.evaluation.tasks.retrieval import Retrieval, evaluate_retrieval
from complearn.models.scoring import Encoded


class Seen:
    """A scorer that notes which pictures it was shown."""

    def __init__(self):
        self.images = []

    def collate(self, pairs):
        return pairs

    def encode_images(self, pairs):
        self.images += [pair.image for pair in pairs]
        return Encoded(torch.ones(len(pairs), 2))

    def encode_texts(self, pairs):
        return Encoded(torch.ones(len(pairs), 2))

    def similarity(self, images, texts, pairs=None):
        return torch.zeros(len(images), len(texts)) if pairs is None else torch.zeros(len(pairs))


def captioned_folder(folder, things, colours, names=("IMG_0000.jpg", "IMG_0001.jpg"), table="captions.csv"):
    folder.mkdir(parents=True, exist_ok=True)
    rows = ["image,caption"]
    for name, thing, colour in zip(names, things, colours):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), colour).save(folder / name)
        rows.append(f"{name},A {thing}.")
    (folder / table).write_text("\n".join(rows) + "\n")
    return {"name": "folder", "args": {"folder": str(folder), "captions_file": table}}


# --- every reader

DRAWN = {  # what has no files: another world, or other counts, under the same names
    "generated": lambda: read("generated", n_train=4, n_test=4, seed=1),
    "objects": lambda: read("objects", n_train=16, n_test=4, world={"preset": "small", "seed": 1}),
    "trifeature": lambda: _other_trifeatures(),
    "hue_ring": lambda: read("hue_ring", n=16, seed=1),
    "sign_patterns": lambda: read("sign_patterns", n=16, seed=1, noise=0.1),
    "quilts": lambda: read("quilts", n=16, seed=1),
}


def _other_trifeatures():
    few, more = (read("trifeature", samples=1, shapes=2, textures=2, colours=colours) for colours in (2, 3))
    known = {pair.id: pair.image for pair in few}
    return [pair for pair in more if known.get(pair.id, pair.image) != pair.image]  # under the same names


def invert(path):
    """Give a file of pictures other pixels; names, captions and labels stay."""
    if path.suffix in (".png", ".jpg"):
        with Image.open(path) as picture:
            pixels = np.array(picture)
        pixels[..., :3] = 255 - pixels[..., :3]
        Image.fromarray(pixels).save(path)
    elif path.name.startswith("data_batch"):  # CIFAR: a label and 3,072 bytes
        records = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3073).copy()
        records[:, 1:] = 255 - records[:, 1:]
        path.write_bytes(records.tobytes())
    elif path.name.endswith("_X.bin"):  # STL-10
        path.write_bytes((255 - np.frombuffer(path.read_bytes(), np.uint8)).tobytes())


@pytest.mark.parametrize("name", sorted(READERS))
def test_two_sources_with_equal_names_and_different_pictures_stay_apart(name, tmp_path, monkeypatch):
    """Of every reader: joined, each picture has an id of its own, each pair its own picture, and retrieval judges all
    of them."""
    specimen = SPECIMENS[name]
    parts = []
    for place in ("one", "two"):
        folder = tmp_path / place / "data"
        folder.mkdir(parents=True)
        specimen.write(folder)
        if place == "two" and name in ("webdataset", "parquet", "hf"):
            shutil.rmtree(folder)
            folder.mkdir()
            with monkeypatch.context() as context:
                context.setattr(specimens, "PIXELS", 255 - specimens.PIXELS)
                specimen.write(folder)
        elif place == "two" and name == "captions":
            (folder / "captions.csv").write_text(
                "image,caption\n" + "".join(f"{name},Picture {name}.\n" for name in specimens.NAMES)
            )
        elif place == "two":
            for path in sorted(folder.rglob("*.*")):
                invert(path)
        parts.append(DRAWN[name]() if place == "two" and name in DRAWN else specimen.read(folder))
    joined = join_pairs(parts)
    assert len(joined) == sum(map(len, parts)) == len({pair.id for pair in joined})
    counts = [len({pair.image_id for pair in part}) for part in parts]
    assert len({pair.image_id for pair in joined}) == sum(counts)
    if name == "captions":  # without pictures
        return
    size, channels = (32, 4) if name == "cifar_mnist" else (16, 3)
    right = load_images([pair.image for pair in joined], size, channels=channels)
    assert all(
        np.array_equal(pair.image, picture) for pair, picture in zip(preload(joined, size, channels=channels), right)
    )
    seen = Seen()
    captioned = [replace(pair, caption=pair.caption or "A picture.") for pair in joined]
    frame = evaluate_retrieval(seen, captioned)
    assert (frame["direction"] == "image_to_text").sum() == sum(counts) and len(images_by_id(joined)) == sum(counts)
    if name not in ("nlvr", "gallery"):  # some of their pictures have the same pixels
        assert len(seen.images) == sum(counts)


def test_every_reader_has_a_specimen():
    assert set(READERS) <= set(SPECIMENS)


# --- joining


def test_joined_folders_with_the_cameras_names_keep_their_pictures(tmp_path):
    sources = [captioned_folder(tmp_path / place, (f"{thing} 0", f"{thing} 1"), colours) for place, thing, colours in
               (("zoo", "goat", ("red", "green")), ("street", "tram", ("blue", "white")))]  # fmt: skip
    joined = read("joined", parts=sources)
    assert [pair.image_id for pair in joined] == [
        "IMG_0000.jpg",
        "IMG_0001.jpg",
        "part 2/IMG_0000.jpg",
        "part 2/IMG_0001.jpg",
    ]
    assert [pair.id for pair in joined][2:] == ["part 2/captions:2.0", "part 2/captions:3.0"]
    assert "part 2 (captions.csv): the names of 2 images and its pairs begin with 'part 2/'" in str(joined.report)
    assert [pair.image.parent.name for pair in joined] == ["zoo", "zoo", "street", "street"]
    assert len(one_per_image(joined)) == len(_distinct_images(joined)) == 4
    batch = Collate(Transform(8), WordTokenizer.fit(pair.caption for pair in joined))(joined)
    assert len(set(batch.image_ids.tolist())) == 4
    third = captioned_folder(tmp_path / "third", ("boat", "lamp"), ("black", "grey"))
    three = read("joined", parts=[*sources, third])
    assert three[:4] == joined
    assert [pair.image_id for pair in three][4:] == ["part 3/IMG_0000.jpg", "part 3/IMG_0001.jpg"]
    nested = read("joined", parts=[{"name": "joined", "args": {"parts": sources}}, third])
    assert len({pair.image_id for pair in nested}) == len({pair.id for pair in nested}) == 6


def test_one_photo_in_two_parts_has_one_name(tmp_path):
    """Captions of one folder in two tables, and a copy of a photo in another folder: what is the same stays the
    same."""
    first = captioned_folder(tmp_path / "zoo", ("goat", "sheep"), ("red", "green"))
    more = captioned_folder(tmp_path / "zoo", ("animal", "woolly animal"), ("red", "green"), table="more.csv")
    joined = read("joined", parts=[first, more])
    assert [pair.image_id for pair in joined] == ["IMG_0000.jpg", "IMG_0001.jpg"] * 2 and not joined.report.notes
    other = captioned_folder(tmp_path / "other", ("goat again", "tram"), ("red", "blue"))
    mixed = read("joined", parts=[first, other])
    assert [pair.image_id for pair in mixed][2:] == ["IMG_0000.jpg", "part 2/IMG_0001.jpg"]
    third = captioned_folder(tmp_path / "third", ("street", "tramway"), ("black", "blue"))
    three = read("joined", parts=[first, other, third])
    assert [pair.image_id for pair in three][4:] == ["part 3/IMG_0000.jpg", "part 2/IMG_0001.jpg"]
    for parts in ([first, first], [first, other, other]):
        with pytest.raises(
            BadData,
            match="pair captions:2.0 is in two parts, with the same image and caption; leave one of the parts out",
        ):
            read("joined", parts=parts)


def test_a_published_name_is_one_photo_in_any_size_and_two_where_people_number_as_coco_does(tmp_path):
    picture = Image.fromarray(np.random.default_rng(0).integers(0, 255, (4, 4, 3), np.uint8)).resize(
        (64, 64), Image.Resampling.BICUBIC
    )
    images = {}
    for name, each in (
        ("large", picture),
        ("small", picture.resize((32, 32))),
        ("other", Image.new("RGB", (64, 64), "red")),
    ):
        images[name] = tmp_path / name / "000000000139.png"
        images[name].parent.mkdir()
        each.save(images[name])
    assert same_image("000000000139", images["large"], images["small"])
    assert not same_image("000000000139", images["large"], images["other"])
    assert not same_image("photo.png", images["large"], images["small"])
    parts = [Pairs([Pair(images[name], name, name, "000000000139")]) for name in ("large", "small", "other")]
    assert [pair.image_id for pair in join_pairs(parts)] == ["000000000139", "000000000139", "part 3/000000000139"]


def test_names_do_not_depend_on_where_the_data_lie(tmp_path):
    """After a move of everything, ids and both fingerprints are the same; after a photo was replaced, the second one
    differs."""
    for place in ("zoo", "street"):
        captioned_folder(
            tmp_path / "here" / place, (place, "thing"), ("red", "green") if place == "zoo" else ("blue", "white")
        )
    _write_shard(
        tmp_path / "here" / "zoo" / "0.tar", {"0": {"png": specimens._encoded_pictures()[0], "txt": b"A shard."}}
    )

    def parts(home):
        folders = [{"name": "folder", "args": {"folder": str(home / place)}} for place in ("zoo", "street")]
        return [*folders, {"name": "webdataset", "args": {"shards": str(home / "zoo" / "0.tar")}}]

    before = read("joined", parts=parts(tmp_path / "here"))
    (tmp_path / "far").mkdir()
    shutil.move(tmp_path / "here", tmp_path / "far" / "there")
    after = read("joined", parts=parts(tmp_path / "far" / "there"))
    assert [(pair.id, pair.image_id) for pair in before] == [(pair.id, pair.image_id) for pair in after]
    marks = fingerprint(after), content_fingerprint(after)
    assert marks[0] == fingerprint(read("joined", parts=parts(tmp_path / "far" / "there")))
    shutil.move(tmp_path / "far" / "there", tmp_path / "here")
    again = read("joined", parts=parts(tmp_path / "here"))
    assert (fingerprint(again), content_fingerprint(again)) == marks
    Image.new("RGB", (40, 40), "black").save(tmp_path / "here/zoo/IMG_0000.jpg")
    replaced = read("joined", parts=parts(tmp_path / "here"))
    assert fingerprint(replaced) == marks[0] and content_fingerprint(replaced) != marks[1]


def test_what_joins_lists_by_hand_is_told_of_a_name_that_two_images_have():
    pairs = [Pair(np.full((4, 4, 3), k, np.uint8), f"shade {k}", str(k), "IMG_0000.jpg") for k in range(2)]
    for function in (lambda: preload(pairs, 4), lambda: one_per_image(pairs), lambda: evaluate_retrieval(Seen(), pairs),
                     lambda: _distinct_images(pairs)):  # fmt: skip
        with pytest.raises(
            ValueError, match="two images have the id 'IMG_0000.jpg': .*; read them with the reader 'joined'"
        ):
            function()
    assert len(Retrieval(Pairs(pairs[:1]) + Pairs(pairs[1:])).pairs) == 2


# --- several files of one source


def test_files_of_one_name_in_two_folders_are_told_apart(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    pictures = specimens._encoded_pictures()
    for k, place in enumerate(("first", "second")):
        (tmp_path / place).mkdir()
        _write_shard(
            tmp_path / place / "00000.tar", {"000000000": {"png": pictures[k], "txt": f"Number {k}.".encode()}}
        )
        (tmp_path / place / "0.png").write_bytes(pictures[2 + k])
        parquet.write_table(
            pyarrow.table({"image": ["0.png"], "text": [f"Row {k}."]}), tmp_path / place / "train.parquet"
        )
        (tmp_path / place / "lines.txt").write_text(f"Line {k}.\n")
    shards = read("webdataset", shards=[str(tmp_path / place / "00000.tar") for place in ("first", "second")])
    assert [pair.image_id for pair in shards] == ["first/00000/000000000", "second/00000/000000000"]
    rows = read("parquet", path=str(tmp_path))
    assert [pair.image_id for pair in rows] == ["first/0.png", "second/0.png"] and len({pair.id for pair in rows}) == 2
    assert [pair.image_id for pair in read("parquet", path=str(tmp_path / "first"))] == ["0.png"]
    lines = read("captions", files=[str(tmp_path / place / "lines.txt") for place in ("first", "second")])
    assert [pair.caption for pair in lines] == ["Line 0.", "Line 1."] and len({pair.image_id for pair in lines}) == 2
    with pytest.raises(BadData, match="lines.txt is named twice"):
        read("captions", files=[str(tmp_path / "first/lines.txt"), str(tmp_path / "second/../first/lines.txt")])
    assert distinct_names([Path("a/x.tar"), Path("b/y.tar")]) == ["x.tar", "y.tar"]


def test_a_file_in_cocos_format_with_photos_of_ones_own(tmp_path):
    """Photos in sub-folders, numbered from 1: neither each other, nor COCO's photo number 1."""
    names = ("zoo/1.jpg", "street/1.jpg", "COCO_val2014_000000000139.jpg")
    for k, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), ("red", "green", "blue")[k]).save(tmp_path / name)
    images = [{"id": k, "file_name": name} for k, name in enumerate(names)]
    captions = [{"id": k, "image_id": k, "caption": f"Photo {k}."} for k in range(3)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": captions}))
    pairs = read_coco(tmp_path, tmp_path / "captions.json")
    assert [pair.image_id for pair in pairs] == ["zoo/1.jpg", "street/1.jpg", "000000000139"]
    assert [pair.caption for pair in read_coco(tmp_path, tmp_path / "captions.json", keep=["zoo/1.jpg", 139])] == [
        "Photo 0.",
        "Photo 2.",
    ]
    is_read = _photo_filter(None, ["val2017/000000000139.jpg", "street/1.jpg", 7])
    assert [is_read(name) for name in ("000000000139", "street/1.jpg", "zoo/1.jpg", "000000000007")] == [
        False,
        False,
        True,
        False,
    ]


# --- between training and questions


@pytest.mark.parametrize("pattern", ["IMG_{:04d}.jpg", "{:03d}.jpg", "photo{}.jpg", "2020_{:02d}.jpg", "sub/x{}.jpg"])
def test_equal_file_names_of_different_photos_are_no_overlap(pattern, tmp_path):
    names = [pattern.format(k) for k in range(2)]
    kinds = (("train", ("goat", "tram"), ("red", "green")), ("test", ("chair", "boat"), ("blue", "white")))
    train, test = (read("folder", **captioned_folder(tmp_path / place, *what, names)["args"]) for place, *what in kinds)
    assert find_overlap(train, test).pairs == [] and len(resolve_overlap(train, test)[0]) == 2
    (tmp_path / "test" / names[1]).write_bytes((tmp_path / "train" / names[0]).read_bytes())
    assert find_overlap(train, test).images == (train[0].id,)


@pytest.mark.parametrize(("name", "identity", "source"), [
    ("COCO_train2014_000000000139.jpg", "000000000139", "coco"), ("1000268201_693b08cb0e.jpg", "1000268201_693b08cb0e",
        "flickr"),
    ("vg2345", "vg2345", "vg"), ("nlvr dev 10-0", "nlvr dev 10-0", "nlvr"), ("IMG_0000.jpg", None, ""),
    ("202311171230.jpg", None, ""),
    ("captions.csv:3", None, ""), ("000000001", None, ""),
])  # fmt: skip
def test_only_published_names_are_identities(name, identity, source):
    assert (photo_identity(name), name_source(name)) == (identity, source)


def test_two_worlds_share_no_photo_and_one_world_is_known_at_any_number_of_pairs():
    changes = ({}, {"seed": 1}, {"n_train": 80})
    first, second, longer = (
        world_from({"preset": "small", "n_train": 64, "n_test": 16} | change) for change in changes
    )
    assert find_overlap(first.train, second.train, captions=False).images == ()
    shared = find_overlap(first.train, longer.train, captions=False)
    assert len(shared.images) == 64 and first.train[5].image_id == longer.train[5].image_id
    assert first.train[5].id == "train-5" and name_source(first.train[5].image_id) == "world"
    both = join_pairs([first.train, second.train])
    assert len({pair.id for pair in both}) == len({pair.image_id for pair in both}) == 128


def test_a_photo_that_is_not_read_is_known_by_its_published_name(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "000000123456.jpg")
    file, absent = tmp_path / "000000123456.jpg", NoPhoto("000000123456.jpg")
    assert same_image("000000123456", absent, file) and same_image("000000123456", file, absent)
    assert not same_image("IMG_1.jpg", absent, file), "no published name"
    question = Pair(absent, "a bus", "question", "000000123456")
    assert set(find_overlap([Pair(file, "a red bus", "0", "000000123456")], [question]).images) == {"0"}
