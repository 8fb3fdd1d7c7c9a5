"""Regions of pictures from a file: every form gives the same, what is broken is named, and a model is trained on them
and asked."""

import json
from dataclasses import replace

import numpy as np
import pyarrow
import pyarrow.parquet as parquet
import pytest
import torch
from PIL import Image

from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.data.boxes import boxes_of
from complearn.data.pairs import Pair
from complearn.data.readers.regions import with_regions
from complearn.data.readers.registry import read
from complearn.data.regions import PictureWithRegions, Regions, RegionsFile, make_regions, picture_size, regions_of
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.tasks.retrieval import evaluate_retrieval
from complearn.models.composer.concepts import GivenRegions
from complearn.models.registry import build, read_model
from complearn.models.scoring import encode_all
from complearn.training.runs.launch import make_trainer, prepare

LITTLE = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
TOWERS = {"vision": LITTLE | {"size": 16, "patch": 8}, "text": LITTLE}
NAMES = [f"{k}.png" for k in range(8)]
BOXES = [[0.0, 0.0, 0.5, 1.0], [0.25, 0.25, 1.0, 0.75]]


@pytest.fixture
def photos(tmp_path):
    "Eight captioned pictures of 32 x 16 pixels."
    folder = tmp_path / "photos"
    folder.mkdir()
    draw = np.random.default_rng(0)
    rows = []
    for k, name in enumerate(NAMES):
        Image.fromarray(draw.integers(0, 255, (16, 32, 3), dtype=np.uint8)).save(folder / name)
        rows.append(f"{name},a {'dog' if k % 2 else 'cat'} near {k + 2} trees")
    (folder / "captions.csv").write_text("image,caption\n" + "\n".join(rows) + "\n")
    return folder


def found(k, width=6):
    return np.random.default_rng(k).random((2, width), dtype=np.float32)


def write(path, form, boxes=True, features=True, unit="shares"):
    "The regions of all pictures, in one of the forms."
    places = np.array(BOXES) * ([32, 16, 32, 16] if unit == "pixels" else 1)
    values = [
        ({"features": found(k)} if features else {}) | ({"boxes": places} if boxes else {}) for k in range(len(NAMES))
    ]
    if form == "folder":
        path.mkdir()
        for name, arrays in zip(NAMES, values):
            np.savez(path / f"{name[:-4]}.npz", **arrays)
        return path
    if form == "npy":
        path.mkdir()
        for name, arrays in zip(NAMES, values):
            np.save(path / f"{name[:-4]}.npy", arrays["features"])
            (path / f"{name[:-4]}.npy").rename(path / f"{name}.NPY")
        return path
    if form == "npz":
        columns = {name: np.stack([arrays[name] for arrays in values]) for name in values[0]}
        np.savez(path.with_suffix(".npz"), images=NAMES, **columns)
        return path.with_suffix(".npz")
    if form == "counts":
        columns = {name: np.concatenate([arrays[name] for arrays in values]) for name in values[0]}
        np.savez(path.with_suffix(".npz"), images=NAMES, counts=np.full(len(NAMES), 2), **columns)
        return path.with_suffix(".npz")
    rows = [{"image": name, **{k: v.tolist() for k, v in arrays.items()}} for name, arrays in zip(NAMES, values)]
    if form == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), path.with_suffix(".parquet"))
        return path.with_suffix(".parquet")
    if form == "jsonl":
        path.with_suffix(".jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path.with_suffix(".jsonl")
    lines = ["\t".join(rows[0])]
    lines += ["\t".join(v if isinstance(v, str) else json.dumps(v) for v in row.values()) for row in rows]
    path.with_suffix(".tsv").write_text("\n".join(lines) + "\n")
    return path.with_suffix(".tsv")


def regioned(photos, file, **arguments):
    source = {"name": "folder", "args": {"folder": str(photos)}}
    return read("regions", source=source, file=str(file), **arguments)


FORMS = ("folder", "npz", "counts", "parquet", "jsonl", "tsv")


@pytest.mark.parametrize("unit", ("shares", "pixels"))
@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_regions(form, unit, photos, tmp_path):
    pairs = regioned(photos, write(tmp_path / "regions", form, unit=unit), unit=unit)
    assert len(pairs) == 8 and "regions of 8 pictures of regions" in str(pairs.report)
    for k, pair in enumerate(pairs):
        regions = regions_of(pair)
        assert np.allclose(regions.features, found(k)) and np.allclose(regions.boxes, BOXES)
        assert regions.features.dtype == np.float32
        assert [(box.left, box.bottom) for box in boxes_of(pair)] == [(0.0, 1.0), (0.25, 0.75)]
    assert isinstance(pairs[0].regions, RegionsFile) == (form == "folder"), "files are read when they are needed"


@pytest.mark.parametrize("form", FORMS)
def test_boxes_alone_and_features_alone_are_allowed(form, photos, tmp_path):
    boxes = regions_of(regioned(photos, write(tmp_path / "boxes", form, features=False))[3])
    assert boxes.features.shape == (2, 0) and np.allclose(boxes.boxes, BOXES)
    features = regions_of(regioned(photos, write(tmp_path / "features", form, boxes=False))[3])
    assert np.allclose(features.features, found(3)) and features.boxes.tolist() == [[0, 0, 1, 1]] * 2


def test_a_file_of_features_for_each_picture_may_be_npy(photos, tmp_path):
    pairs = regioned(photos, write(tmp_path / "features", "npy"), most=1)
    assert regions_of(pairs[2]).features.tolist() == found(2)[:1].tolist(), "the first one alone is kept"


def test_names_and_sizes_of_bottom_up_attention_are_known(photos, tmp_path):
    folder = tmp_path / "vg"
    folder.mkdir()
    for k, name in enumerate(NAMES):
        values = {"x": found(k), "bbox": np.array(BOXES) * [640, 480, 640, 480], "image_w": 640, "image_h": 480}
        np.savez(folder / f"{name[:-4]}.npz", **values, info=np.array({"objects": 3}, dtype=object))
    # `info` is a pickle, which is not read
    assert np.allclose(regions_of(regioned(photos, folder, unit="pixels")[1]).boxes, BOXES)


# --- what is broken


def test_pictures_without_regions_are_counted_up_to_a_share(photos, tmp_path):
    folder = write(tmp_path / "regions", "folder")
    (folder / "3.npz").rename(folder / "other.npz")
    with pytest.raises(BadData, match=r"no regions of 1 of 8 pictures \('3.png'\), 1 of 8 pairs, more than"):
        regioned(photos, folder)
    pairs = regioned(photos, folder, max_bad=0.2)
    assert len(pairs) == 7 and "1 no regions (3.png)" in str(pairs.report)
    assert "regions of 7 pictures of regions; 1 of its entries are of no picture here" in str(pairs.report)


@pytest.mark.parametrize(
    "values, said",
    [
        (
            {"features": found(0, 5), "boxes": BOXES},
            "0.npz has 6 features a region, 3.npz has 5; give all",
        ),
        ({"features": found(0), "boxes": BOXES[:1]}, "3.npz: 2 rows of features and 1 boxes; expected as many"),
        ({"features": np.full((1, 6), np.nan)}, "3.npz: features hold nan at region 0, column 0; detect again"),
        ({"features": found(0), "boxes": [[0, 0, np.inf, 1]] * 2}, "3.npz: boxes hold inf at region 0, column 2"),
        (
            {"features": found(0), "boxes": [[0, 0, 320, 1]] * 2},
            "the right edge of box 0 is at 320, in shares",
        ),
        ({"features": found(0), "boxes": [[0.5, 0, 0.5, 1]] * 2}, "3.npz: box 0 is empty"),
        (
            {"features": found(0), "boxes": [[0, 0, 1]] * 2},
            "3.npz: a box has 3 numbers; expected left, top",
        ),
        ({"features": np.zeros((0, 6)), "boxes": np.zeros((0, 4))}, "0 rows of features and 0 boxes; expected as many"),
        (
            {"features": np.zeros(6)},
            r"3.npz: features have the shape \(6,\); expected a row",
        ),
        ({"feature": found(0)}, "3.npz: no array 'features' and no array 'boxes'; its arrays are feature"),
    ],
)
def test_a_broken_file_is_named_before_training(values, said, photos, tmp_path):
    folder = write(tmp_path / "regions", "folder")
    np.savez(folder / "3.npz", **values)
    with pytest.raises(BadData, match=said):
        regioned(photos, folder)
    late = regioned(photos, folder, check="none")
    if "features a region" not in said:
        with pytest.raises(BadData, match=said):
            regions_of(late[3])


def test_a_pickle_is_not_opened(photos, tmp_path):
    folder = write(tmp_path / "regions", "folder")
    np.savez(folder / "3.npz", features=np.array([{"a": 1}], dtype=object))
    with pytest.raises(BadData, match="3.npz: Object arrays cannot be loaded when allow_pickle=False"):
        regioned(photos, folder)


def test_a_file_that_is_cut_off_or_leads_elsewhere_is_named(photos, tmp_path):
    folder = write(tmp_path / "regions", "folder")
    whole = (folder / "3.npz").read_bytes()
    (folder / "3.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadData, match="3.npz"):
        regioned(photos, folder)
    (folder / "3.npz").rename(tmp_path / "3.npz")
    (tmp_path / "3.npz").write_bytes(whole)
    (folder / "3.npz").symlink_to(tmp_path / "3.npz")
    with pytest.raises(BadData, match="'3.npz' leads out of .*; copy it into the folder, or say allow_outside=True"):
        regioned(photos, folder)
    assert len(regioned(photos, folder, allow_outside=True)) == 8


@pytest.mark.parametrize(
    "text, said",
    [
        ('{"image": "0.png", "boxes": "[[0, 0"}\n', "r.jsonl line 1"),
        ('{"image": "0.png", "boxes": [[0, 0, 1, 1], [0, 0]]}\n', "r.jsonl line 1: boxes"),
        ('{"image": "0.png"}\n{"image": "0.png", "boxes": [[0, 0, 1, 1]]}\n', "are regions of one picture, '0.png'"),
        ('{"picture": "0.png", "boxes": [[0, 0, 1, 1]]}\n', "no column of the names of pictures, such as 'image_id'"),
        ('{"image": "0.png", "box": [[0, 0, 1, 1]]}\n', "no column of features or boxes; there are 'image', 'box'"),
        ("", "no column of the names of pictures"),
    ],
)
def test_a_broken_table_is_named(text, said, photos, tmp_path):
    (tmp_path / "r.jsonl").write_text(text)
    with pytest.raises(BadData, match=said):
        regioned(photos, tmp_path / "r.jsonl", max_bad=1.0)


def test_an_array_file_says_which_array_is_of_another_length(photos, tmp_path):
    np.savez(tmp_path / "r.npz", images=NAMES, features=np.zeros((7, 2, 6)))
    with pytest.raises(BadData, match="r.npz: 'features' has 7 rows for 8 pictures"):
        regioned(photos, tmp_path / "r.npz")
    np.savez(tmp_path / "r.npz", features=np.zeros((7, 2, 6)))
    with pytest.raises(BadData, match="no array 'images' with the names of pictures; its arrays are features"):
        regioned(photos, tmp_path / "r.npz")
    with pytest.raises(BadData, match="the file of regions does not exist"):
        regioned(photos, tmp_path / "absent.npz")
    with pytest.raises((RequestError, ValueError), match="pixel"):
        regioned(photos, write(tmp_path / "regions", "folder"), unit="pixel")


def test_a_bare_name_that_two_pictures_share_finds_nothing(tmp_path):
    np.savez(tmp_path / "dog.npz", features=np.ones((1, 2)))
    pairs = [Pair(None, "a dog", name, f"{name}/dog.jpg") for name in "ab"]
    with pytest.raises(BadData, match="no regions of 2 of 2 pictures"):
        with_regions(pairs, tmp_path)
    assert len(with_regions(pairs[:1], tmp_path)) == 1


def test_regions_that_could_be_of_two_pictures_are_refused(tmp_path):
    np.savez(tmp_path / "dog.npz", features=np.ones((1, 2)))
    pairs = [Pair(None, "a dog", name, name) for name in ("dog.jpg", "dog.png")]
    with pytest.raises(BadData, match=r"dog.npz could be of two pictures, 'dog.jpg' and 'dog.png'; rename one"):
        with_regions(pairs, tmp_path)
    assert len(with_regions([pairs[0], pairs[0]], tmp_path)) == 2


def test_a_generated_world_is_refused(tmp_path):
    with pytest.raises(ValueError, match="a generated world makes its pairs on demand"):
        read("regions", source={"name": "generated", "args": {"preset": "small"}}, file=str(tmp_path))


def test_pixels_are_those_of_the_picture_as_it_is_shown(tmp_path):
    picture = Image.new("RGB", (32, 16))
    exif = picture.getexif()
    exif[0x0112] = 6  # turned by a quarter
    picture.save(tmp_path / "turned.jpg", exif=exif)
    assert picture_size(tmp_path / "turned.jpg") == (16, 32)
    assert picture_size(np.zeros((4, 8, 3))) == picture_size(Image.new("RGB", (8, 4))) == (8, 4)
    assert picture_size(None) is None
    with pytest.raises(BadData, match="nobody knows the picture's size"):
        make_regions(boxes=[[0, 0, 3, 3]], unit="pixels")


# --- in a model


def test_a_picture_carries_its_regions_to_evaluations(photos, tmp_path):
    pairs = regioned(photos, write(tmp_path / "regions", "folder"))
    plain = {"kind": "composer", "layers": 1, **TOWERS}
    words = WordTokenizer.fit([pair.caption for pair in pairs])
    reads_regions = build(plain | {"regions": 6, "trees": "rules"}, words, 0)
    reads_pixels = build(plain | {"trees": "rules"}, words, 0)
    for model in (reads_regions, reads_pixels):
        assert evaluate_retrieval(model, pairs) is not None
    without = [pair.__class__(**{**vars(pair), "image": pair.image.image, "regions": None}) for pair in pairs]
    encoded = (encode_all(reads_pixels, images=[pair.image for pair in part]).values for part in (pairs, without))
    assert torch.equal(*encoded)
    with pytest.raises(ValueError, match="has no regions, this model reads 6"):
        reads_regions.collate(without)


@pytest.mark.parametrize("regions", [6, "boxes"])
@pytest.mark.parametrize("form", ["folder", "npz"])
def test_a_run_is_trained_on_regions_of_a_file(regions, form, photos, tmp_path):
    file = write(tmp_path / "regions", form, features=regions == 6)
    source = {"name": "folder", "args": {"folder": str(photos)}}
    config = {
        "data": {"name": "regions", "args": {"source": source, "file": str(file)}},
        "method": {"name": "composer", "args": {"steps": 2}},
        "model": {"kind": "composer", "layers": 3, "regions": regions, "trees": "rules", **TOWERS},
        "train": {"batch_size": 4},
        "seed": 0,
    }
    trainer = make_trainer(prepare(tmp_path / "run", config), "cpu", progress=False)
    batch = trainer.loader.batch(0)
    assert batch[GivenRegions].values.shape == (4, 2, 11 if regions == 6 else 5)
    assert (batch.images is None) == (regions == 6)
    trainer.fit()


def test_boxes_are_read_where_the_pictures_things_are(tmp_path):
    model = build({"kind": "vse", "regions": "boxes", **TOWERS}, WordTokenizer.fit(["a dog"]), 0)
    pixels = np.random.default_rng(0).integers(0, 255, (16, 16, 3), dtype=np.uint8)
    quarters = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]], np.float32)
    pair = Pair(pixels, "a dog", "0", "0", regions=Regions(np.zeros((4, 0), np.float32), quarters))
    plain = build({"kind": "vse", "fit": "squash", **TOWERS}, WordTokenizer.fit(["a dog"]), 0)
    boxed, places = (each.encode_images(each.collate([pair])).values for each in (model, plain))
    assert torch.allclose(boxed, places, atol=1e-6), "the four places of the grid, given as boxes"
    with pytest.raises(ValueError, match="boxes are in shares of the whole picture; say fit 'squash', not 'crop'"):
        read_model({"kind": "vse", "regions": "boxes", "fit": "crop"})
    with pytest.raises(ValueError, match="without crops and mirroring .got fit 'squash', mirroring"):
        replace(model.collate, transform=replace(model.collate.transform, mirror=True))


def test_the_name_of_a_picture_with_regions_is_its_own():
    regions = Regions(np.zeros((1, 0)), np.array([[0, 0, 1, 1]]))
    assert PictureWithRegions("a/dog.jpg", regions).name == "a/dog.jpg"
    assert PictureWithRegions(b"123", regions).read_bytes() == b"123"
    assert PictureWithRegions(b"123", regions).path is None
