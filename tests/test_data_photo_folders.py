"""Every picture of a folder with what lies next to it: hostile and broken tables, links, boxes of all forms."""

import json

import pytest
from PIL import Image

from complearn.data.boxes import Box, boxes_from_cell, boxes_of, plain_boxes
from complearn.data.pairs import Pair
from complearn.data.readers.photo_folders import read_photos
from complearn.data.reports import BadData


@pytest.fixture
def folder(tmp_path):
    photos = tmp_path / "photos"
    (photos / "more").mkdir(parents=True)
    for name in ("a.png", "b.png", "more/c.png"):
        Image.new("RGB", (40, 20), "red").save(photos / name)
    Image.new("RGB", (40, 20), "blue").save(tmp_path / "secret.png")
    return photos


def captions(pairs):
    return {(pair.image_id, pair.caption) for pair in pairs}


def test_rows_that_lead_out_or_to_nothing_cost_only_themselves(folder):
    rows = ["image,caption,year", "../secret.png,a secret,1", "gone.png,gone,2", "more/c.png,a field,3", "a.png,,4"]
    (folder / "captions.csv").write_text("\n".join(rows))
    pairs = read_photos(folder)
    assert captions(pairs) == {("a.png", None), ("b.png", None), ("more/c.png", "a field")}
    assert {pair.image_id: pair.labels for pair in pairs} == {
        "a.png": {"year": "4"},
        "b.png": None,
        "more/c.png": {"year": "3"},
    }
    assert not any("secret" in str(pair.image) for pair in pairs)
    assert sum(map(len, pairs.report.skipped.values())) == 3, "each row that was left out is named"


def test_a_table_that_is_a_link_out_of_the_folder_is_not_read(folder):
    (folder.parent / "theirs.csv").write_text("image,caption\na.png,their words\n")
    (folder / "captions.csv").symlink_to(folder.parent / "theirs.csv")
    pairs = read_photos(folder)
    assert captions(pairs) == {("a.png", None), ("b.png", None), ("more/c.png", None)}
    assert pairs.report.notes[0].startswith("captions are not read")


def test_a_broken_picture_is_named_and_texts_next_to_pictures_are_found(folder):
    (folder / "b.png").write_bytes(b"no picture")
    (folder / "more" / "c.txt").write_text("a field\nall red\n")
    with pytest.raises(BadData, match="b.png"):
        read_photos(folder)  # one of three is more than a tenth
    for k in range(20):
        Image.new("RGB", (8, 8), (k, k, k)).save(folder / f"grey{k}.png")
    with pytest.warns(UserWarning, match="b.png"):
        pairs = read_photos(folder)
    assert {("more/c.png", "a field"), ("more/c.png", "all red"), ("grey0.png", None)} <= captions(pairs)
    assert "b.png" not in {pair.image_id for pair in pairs}


def test_values_of_several_rows_and_lists_are_kept_and_nonsense_is_not(folder):
    rows = [
        {"file_name": "a.png", "text": "one", "tag": ["old", "red"], "score": 0.5, "deep": {"x": 1}},
        {"file_name": "a.png", "text": "two", "tag": "new", "score": float("nan")},
    ]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    first, second = (pair for pair in read_photos(folder) if pair.caption)
    assert first.labels == second.labels == {"tag": ["old", "red", "new"], "score": 0.5}


@pytest.mark.parametrize(
    "cell, found",
    [
        ({"bbox": [[10, 5, 20, 10]], "categories": ["dog"]}, [("dog", 0.25, 0.25, 0.75, 0.75)]),
        ('{"bbox": [[10, 5, 20, 10]], "category": "dog"}', [("dog", 0.25, 0.25, 0.75, 0.75)]),
        ([[0, 0, 80, 40]], [("", 0.0, 0.0, 1.0, 1.0)]),
        ({"bbox": [[50, 0, 10, 10]], "categories": ["out"]}, []),
        ({"bbox": [[0, 0, 0, 10], [1, 2, 3], "box", [True, 0, 4, 4]]}, []),
        ({"bbox": [[0, 0, 20, 10]], "categories": []}, [("", 0.0, 0.0, 0.5, 0.5)]),
        ("[not json", []),
        (None, []),
        (7, []),
    ],
)
def test_boxes_of_every_form(cell, found):
    boxes = boxes_from_cell(cell, (40, 20))
    assert boxes == tuple(Box(*values) for values in found)
    assert boxes_of(Pair(None, None, "a", "a", labels={"boxes": plain_boxes(boxes)})) == boxes


def test_what_is_no_box_in_a_pairs_labels_is_left_out():
    rows = [["dog", 0, 0, 1, 1], ["short", 0, 0, 1], ["far", 2, 2, 3, 3], ["word", "a", 0, 1, 1], []]
    assert boxes_of(Pair(None, None, "a", "a", labels={"boxes": rows})) == (Box("dog", 0.0, 0.0, 1.0, 1.0),)
