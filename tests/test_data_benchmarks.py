"SugarCrepe and recognition files: what they hold, what they say when something is missing, and that nothing leaks."

import json
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from complearn.data.benchmarks.items import (
    Choice,
    Crop,
    _as_choice,
    _benchmark_image_ids,
    _choice_fault,
    benchmark_captions,
    collect_choices,
)
from complearn.data.benchmarks.sugarcrepe import SUGARCREPE, read_sugarcrepe
from complearn.data.benchmarks.valse import read_valse
from complearn.data.images import load_images
from complearn.data.overlap import resolve_overlap
from complearn.data.pairs import Pair
from complearn.data.readers.labelled import read_labelled_images
from complearn.data.readers.registry import read
from complearn.data.reports import BadData, Collector


@pytest.fixture
def files(tmp_path):
    for number in range(1, 151):
        Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / f"{number:012d}.jpg")
    for split in SUGARCREPE:
        records = {
            str(i): {"filename": f"{i:012d}.jpg", "caption": f"{split} {i}", "negative_caption": f"not {split} {i}"}
            for i in range(1, 151)
        }
        (tmp_path / f"{split}.json").write_text(json.dumps(records))
    return tmp_path


def test_a_crop_refers_to_the_photo_as_it_is_seen(tmp_path):
    """The camera stored it lying on its side, and wrote beside it how it is to be turned."""
    upright = np.zeros((40, 60, 3), np.uint8)
    exif = Image.Exif()
    upright[:10, :20] = 255  # the upper left corner
    exif[0x0112] = 6
    Image.fromarray(np.rot90(upright)).save(tmp_path / "photo.png", exif=exif)
    crop = Crop(tmp_path / "photo.png", (0, 0, 20, 10))
    assert (np.asarray(Image.open(BytesIO(crop.read_bytes()))) == 255).all() and (load_images([crop], 8) == 255).all()
    assert load_images([Crop(tmp_path / "photo.png", (20, 10, 60, 40))], 8).max() == 0


def test_forms():
    assert Choice("a", ("x",), ("right", "wrong"), "0").form == "text"
    assert Choice("a", ("x", "y"), ("right",), "0").form == "image"
    assert Choice("a", ("x", "y"), ("for x", "for y"), "0").form == "group"
    pair = Pair("x.jpg", "right", "swap:3", "x", negatives=["w1", "w2"])
    assert _as_choice(pair) == Choice("swap", ("x.jpg",), ("right", "w1", "w2"), "swap:3", ("x",))


def test_sugarcrepe_records_become_choices(files):
    choices = read_sugarcrepe(files, files)
    assert len(choices) == 7 * 150 and [c.split for c in choices[::150]] == list(SUGARCREPE)
    assert choices[0].captions == ("add_att 1", "not add_att 1") and choices[0].images == (files / "000000000001.jpg",)
    assert len({c.id for c in choices}) == len(choices) and choices[0].image_ids == ("000000000001",)
    assert len(_benchmark_image_ids(choices)) == 150 and len(benchmark_captions(choices)) == 2100
    assert len(read_sugarcrepe(files, files, splits=["swap_obj"])) == 150
    (files / "swap_obj.json").write_text(json.dumps(list(json.loads((files / "swap_obj.json").read_text()).values())))
    assert len(read_sugarcrepe(files, files, splits=["swap_obj"])) == 150  # a list of records will do


def test_sugarcrepe_faults_name_what_is_missing_and_where_it_is(files):
    (files / "000000000005.jpg").unlink()
    with pytest.warns(UserWarning, match=r"skipped 7: 7 image not found \(add_att.json record 5: 000000000005.jpg"):
        assert len(read_sugarcrepe(files, files)) == 7 * 149
    (files / "000000000006.jpg").write_bytes(b"broken")
    said = (
        r"add_att.json record 5: image '000000000005.jpg' not found under .*COCO val2017, from cocodataset.org.*14 of "
        r"1050"
    )
    with pytest.raises(BadData, match=said):
        read_sugarcrepe(files, files)
    (files / "swap_obj.json").write_text('{"1": {"filename": "000000000001.jpg", "caption": "a"}}')
    with pytest.raises(BadData, match="swap_obj.json record 1: negative_caption is missing"):
        read_sugarcrepe(files, files, splits=["swap_obj"])
    (files / "swap_obj.json").unlink()
    with pytest.raises(BadData, match="no swap_obj.json; get them from data/ of the SugarCrepe repository"):
        read_sugarcrepe(files, files)
    with pytest.raises(BadData, match="the folder of photos does not exist.*they are COCO's val2017"):
        read_sugarcrepe(files, files / "val2017", splits=["add_att"])


def test_labelled_folders_and_tables(tmp_path):
    for name in ("zebra", "polar_bear"):
        (tmp_path / "classes" / name).mkdir(parents=True)
        for i in range(10):
            Image.fromarray(np.full((4, 4, 3), i, np.uint8)).save(tmp_path / "classes" / name / f"{i}.png")
    items, classes, templates = read_labelled_images(tmp_path / "classes")
    assert classes == ("polar bear", "zebra")
    assert [label for _, label in items] == [0] * 10 + [1] * 10
    assert all("{}" in t for t in templates)
    few = read_labelled_images(tmp_path / "classes", limit=6)
    assert 4 <= len(few.items) <= 6 and {label for _, label in few.items} == {0, 1}
    with pytest.raises(BadData, match="does not exist"):
        read_labelled_images(tmp_path / "none")


@pytest.mark.real
def test_real_sugarcrepe_and_the_training_set_beside_it(real_data):
    choices = read_sugarcrepe(real_data / "sugarcrepe", real_data / "coco/val2017")
    assert len(choices) == 286
    assert len(_benchmark_image_ids(choices)) == 57
    assert {c.split for c in choices} == set(SUGARCREPE)

    def part(split, **options):
        return {
            "name": "coco",
            "args": {
                "images": str(real_data / "coco" / split),
                "annotations": str(real_data / f"coco/annotations/captions_{split}.json"),
                **options,
            },
        }

    train = read("joined", parts=[part("train2017"), part("val2017", exclude=_benchmark_image_ids(choices))])
    assert len(train) == 400 + 630 and len({pair.image_id for pair in train}) == 80 + 126
    assert resolve_overlap(train, choices, "refuse")[0] is train
    everything = read("joined", parts=[part("train2017"), part("val2017")])
    rest, shared = resolve_overlap(everything, choices)
    assert (len(rest), len(shared.images), len(shared.captions)) == (1030, 285, 0)


@pytest.mark.real
def test_real_classes(real_data):
    items, classes, _ = read_labelled_images(real_data / "images/cifar10_test.parquet", limit=300, check="header")
    assert len(classes) == 10
    assert "airplane" in classes
    assert 200 < len(items) <= 300
    assert {label for _, label in items} == set(range(10))


# --- questions without an answer

TEXT = ("a goat on a tram", "a tram on a goat")
GROUP = ("a.png", "b.png")
UNANSWERABLE = [
    Choice("s", ("a.png",), ("A goat.", "a GOAT "), "equal words", ("a",)),
    Choice(
        "s",
        ("a.png",),
        ("A goat.", "A kid.", "a goat"),
        "a wrong one like the first of two right ones",
        ("a",),
        right=2,
    ),
    Choice("s", ("a.png",), ("A goat.", "A tram.", "a goat!"), "one of two wrong ones", ("a",)),
    Choice("s", GROUP, ("A goat.", "a goat"), "a group with one caption", ("a", "b")),
    Choice("s", ("a.png", "a.png"), TEXT, "a group with one picture", ("a", "a")),
    Choice("s", ("a.png", "copy.png"), TEXT, "a group with a picture and its copy", ("a", "copy")),
    Choice("s", ("a.png", "a.png"), ("A goat.",), "a choice of one picture", ("a", "a")),
]
ANSWERABLE = [
    Choice("s", ("a.png",), TEXT, "text", ("a",)),
    Choice("s", ("a.png",), ("A goat.", "a goat", "A tram."), "two right ones that are alike", ("a",), right=2),
    Choice("s", ("a.png",), ("A goat.", "A tram.", "a tram"), "two wrong ones that are alike", ("a",)),
    Choice("s", GROUP, TEXT, "a group", ("a", "b")),
    Choice("s", (Crop("a.png", (0, 0, 4, 4)), Crop("a.png", (4, 4, 8, 8))), TEXT, "two parts of one photo", ("a", "a")),
]


@pytest.mark.parametrize("item", UNANSWERABLE + ANSWERABLE, ids=lambda item: item.id)
def test_a_question_whose_sides_are_the_same_is_left_out_named_and_counted(item, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, colour in (("a.png", "red"), ("b.png", "blue"), ("copy.png", "red")):
        Image.new("RGB", (8, 8), colour).save(name)
    good = Choice("s", ("b.png",), TEXT, "good", ("b",))
    collector = Collector("questions")
    assert bool(_choice_fault(item)) == (item in UNANSWERABLE)
    if item in ANSWERABLE:
        assert len(collect_choices(collector, [(good, "line 1"), (item, "line 2")])) == 2
        assert not collector.report.n_skipped
        return
    with pytest.warns(UserWarning, match="1 right and wrong alike"):
        # half of them, and yet no error: the file is whole
        kept = collect_choices(collector, [(good, "line 1"), (item, "line 2")])
    assert [choice.id for choice in kept] == ["good"] and kept.report.skipped == {"right and wrong alike": ["line 2"]}
    with pytest.raises(BadData, match="not a single sample; .*right and wrong alike"):
        collect_choices(Collector("questions"), [(item, "line 2")])


def test_a_limit_holds_over_several_files(tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    picture = BytesIO()
    Image.new("RGB", (4, 4)).save(picture, "PNG")
    for k in range(30):
        rows = {"image": [picture.getvalue()] * 3, "label": ["a", "b", "c"]}
        parquet.write_table(pa.table(rows), tmp_path / f"{k:02d}.parquet")
    labelled = read_labelled_images(tmp_path, limit=10)
    assert 5 <= len(labelled.items) == labelled.items.report.kept <= 10
    assert labelled.classes == ("a", "b", "c")


def test_photos_of_visual7w_are_those_of_visual_genome(tmp_path):
    """So that a model that was trained on Visual Genome has seen them."""
    record = {"caption": "A dog.", "foil": "A cat.", "mturk": {"caption": 3}}
    photos = {"visual7w": "v7w_2371044.jpg", "coco_2017": "000000000139.jpg"}
    records = {name: {"dataset": name, "image_file": file, **record} for name, file in photos.items()}
    (tmp_path / "existence.json").write_text(json.dumps(records))
    items = read_valse(tmp_path, None, ["existence"])
    assert [item.image_ids for item in items] == [("vg2371044",), ("000000000139",)]
