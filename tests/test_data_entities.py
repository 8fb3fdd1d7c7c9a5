"""Flickr30k Entities: phrases lie where they stand in the caption, boxes where the photo has them, and faults are
named."""

import pytest
from PIL import Image

from complearn.core.files import BadData
from complearn.data.boxes import boxes_of, phrases_of
from complearn.data.readers.registry import read
from complearn.evaluation.tasks.pointing import Pointing

SENTENCES = (
    "[/EN#255542/people A bearded man] , and [/EN#255543/people a girl] in [/EN#255550/clothing a red dress] marry .\n"
    "[/EN#255545/bodyparts/people a man 's arm] touches [/EN#0/notvisual each other] at [/EN#9/scene an event] .\n"
)


def thing(names, edges=None):
    named = "".join(f"<name>{name}</name>" for name in names)
    if edges is None:
        return f"<object>{named}<scene>1</scene><nobndbox>1</nobndbox></object>"
    sides = "".join(f"<{side}>{edge}</{side}>" for side, edge in zip(("xmin", "ymin", "xmax", "ymax"), edges))
    return f"<object>{named}<bndbox>{sides}</bndbox></object>"


ANNOTATION = (
    "<?xml version='1.0' encoding='UTF-8'?>\n<annotation><filename>36979.jpg</filename>"
    "<size><width>40</width><height>20</height><depth>3</depth></size>"
    # a box of two things, a thing with two boxes, one as large as the photo, and a scene
    + thing([255542, 255543], (1, 1, 20, 10))
    + thing([255543], (21, 11, 40, 20))
    + thing([255550], (1, 1, 40, 20))
    + thing([9])
    + "</annotation>"
)


@pytest.fixture
def folder(tmp_path):
    "Two photos, of which the list of test photos names one."
    for part in ("photos", "Sentences", "Annotations"):
        (tmp_path / part).mkdir()
    for name in ("36979", "65567"):
        Image.new("RGB", (40, 20), "red").save(tmp_path / "photos" / f"{name}.jpg")
        (tmp_path / "Sentences" / f"{name}.txt").write_text(SENTENCES)
        (tmp_path / "Annotations" / f"{name}.xml").write_text(ANNOTATION)
    (tmp_path / "test.txt").write_text("36979\n")
    return tmp_path


def entities(folder, **options):
    return read("flickr30k_entities", images=str(folder / "photos"), folder=str(folder), **options)


def test_phrases_and_their_boxes(folder):
    pairs = entities(folder, split_file=str(folder / "test.txt"))
    assert [pair.id for pair in pairs] == ["36979:0", "36979:1"]
    assert pairs[0].caption == "A bearded man , and a girl in a red dress marry ."
    assert pairs[1].caption == "a man 's arm touches each other at an event ."
    boxes = {
        pairs[0].caption[phrase.start : phrase.stop]: [
            (box.left, box.top, box.right, box.bottom) for box in phrase.boxes
        ]
        for phrase in phrases_of(pairs[0])
    }
    assert boxes == {
        "A bearded man": [(0, 0, 0.5, 0.5)],
        "a girl": [(0, 0, 0.5, 0.5), (0.5, 0.5, 1, 1)],
        "a red dress": [(0, 0, 1, 1)],
    }
    assert [box.label for box in boxes_of(pairs[0])] == ["A bearded man", "a girl", "a girl", "a red dress"]
    assert phrases_of(pairs[1]) == () == boxes_of(pairs[1])
    assert "3 of 6 phrases have boxes" in str(pairs.report)
    assert len(entities(folder)) == 4
    # the areas are a quarter, a half and the whole; the middle lies on the edge of the first
    chance, centre = (scores[0] for scores in Pointing(pairs).blind([]).values())
    assert chance.value == pytest.approx((0.25 + 0.5 + 1) / 3) and centre.value == 1


def test_captions_are_named_as_those_of_the_token_file(folder):
    lines = [pair.caption for pair in entities(folder)]
    (folder / "tokens.txt").write_text(
        "".join(f"{36979 if k < 2 else 65567}.jpg#{k % 2}\t{line}\n" for k, line in enumerate(lines))
    )
    plain = read("flickr", images=str(folder / "photos"), token_file=str(folder / "tokens.txt"))
    assert [(pair.id, pair.image_id, pair.caption) for pair in plain] == [
        (pair.id, pair.image_id, pair.caption) for pair in entities(folder)
    ]


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("file, content, kept, said", [
    ("Sentences/36979.txt", "[/EN#1/people A man walks .\n", 2, r"line 1: expected a phrase such as"),
    ("Sentences/36979.txt", "[/EN#people A man] walks .\n", 2, r"got '\[/EN#people A man\] walks \.'"),
    ("Sentences/36979.txt", "", 2, "36979.txt: no sentence"),
    ("Annotations/36979.xml", ANNOTATION[:200], 2, "Annotations/36979.xml: "),
    ("Annotations/36979.xml", ANNOTATION.replace("<width>40", "<width>0"), 2, "Annotations/36979.xml: "),
    ("Annotations/36979.xml", ANNOTATION.replace("<xmin>1</xmin>", "", 1), 2, "Annotations/36979.xml: "),
    ("Annotations/36979.xml", ANNOTATION.replace("<anno", "<!DOCTYPE a [<!ENTITY a 'b'>]>\n<anno"), 2, "document type"),
    ("Annotations/36979.xml", None, 2, "36979.xml"),
    ("photos/36979.jpg", None, 2, "image '36979.jpg' not found"),
])  # fmt: skip
def test_faults_are_named(folder, file, content, kept, said):
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_text(content)
    with pytest.raises(BadData, match=said):
        entities(folder)
    assert len(entities(folder, max_bad=1.0)) == kept


def test_files_and_lists_lead_nowhere_else(folder):
    (folder / "test.txt").write_text("../../secret\n")
    (folder.parent / "secret.txt").write_text(SENTENCES)
    with pytest.raises(BadData, match="leads out of"):
        entities(folder, split_file=str(folder / "test.txt"))
    (folder / "Annotations").rename(folder / "elsewhere")
    with pytest.raises(BadData, match="annotations"):
        entities(folder)
