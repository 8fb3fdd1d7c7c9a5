"Groups and probes in their published formats: what is kept, what is skipped and named, and the scores."

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from stand_ins import random_scorer

from complearn.data.benchmarks.groups import read_colorswap, read_eqben, read_winoground
from complearn.data.benchmarks.probes import read_svo_probes, read_vl_checklist
from complearn.data.benchmarks.spatial import WHATS_UP, read_vsr, read_whats_up
from complearn.data.fixtures.specimens import (
    _save_pictures,
    _write_groups_probes,
    _write_lines,
    _write_spatial,
    _write_valse_winoground,
)
from complearn.data.images import open_image
from complearn.data.reports import BadData
from complearn.evaluation.bench.suites import find_suites, read_suites
from complearn.evaluation.tasks.choices import Choices
from complearn.evaluation.tasks.statements import Statements

CAPTIONS = [f"The {thing} is left of the mug." for thing in ("cat", "dog", "cup", "pen", "hat", "car", "bee")]
N = len(CAPTIONS)
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), np.uint8)


@pytest.fixture
def data(tmp_path):
    for write in (_write_spatial, _write_groups_probes, _write_valse_winoground):
        write(tmp_path, PIXELS, CAPTIONS)
    return tmp_path


def cosines(scorer, images, captions):
    "The score of each image with each caption."

    def unit(vectors):
        return np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)

    return unit([scorer.see(image) for image in images]) @ unit([scorer.read(caption) for caption in captions]).T


# --- VSR


def test_statements_with_their_truth_and_the_area_under_their_curve(data):
    claims = read_vsr(data / "vsr/splits/random/test.jsonl", data / "vsr/images")
    scorer = random_scorer()
    assert len(claims) == 2 * N and [claim.truth for claim in claims[:4]] == [False, True, False, True]
    assert claims[0].sentence == CAPTIONS[1]
    assert claims[1].sentence == CAPTIONS[0]
    assert claims[0].image_id == "000000000001"
    scores = [cosines(scorer, [claim.image], [claim.sentence])[0, 0] for claim in claims]
    auc = {score.metric: score.value for score in Statements(claims).run(scorer)}["auc"]
    assert auc == pytest.approx(roc_auc_score([claim.truth for claim in claims], scores), abs=1e-6)


def test_json_lines_and_csv_give_the_same_statements(data):
    lines = data / "vsr/splits/random/test.jsonl"
    rows = [
        json.loads(line) | {"vsr_split": ("dev", "test")[k > 3]}
        for k, line in enumerate(lines.read_text().splitlines())
    ]
    with (data / "vsr.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)
    claims, contents = read_vsr(data / "vsr.csv", data / "vsr/images"), lambda claims: [claim.item for claim in claims]
    assert contents(claims) == contents(read_vsr(lines, data / "vsr/images"))
    assert contents(read_vsr(data / "vsr.csv", data / "vsr/images", "dev")) == contents(claims[:4])
    with pytest.raises(ValueError, match="split.*'val'.*dev"):
        read_vsr(data / "vsr.csv", None, "val")
    assert len(read_vsr(lines, None)) == 2 * N


def test_photos_may_lie_in_the_two_folders_of_coco(data):
    for k, part in enumerate(("train2017", "val2017")):
        _save_pictures(data / "coco" / part, PIXELS[k::2], [f"{number:012d}.jpg" for number in range(k + 1, N + 1, 2)])
    claims = read_vsr(data / "vsr/splits/random/test.jsonl", data / "coco")
    assert len(claims) == 2 * N and {claim.image.parent.name for claim in claims} == {"train2017", "val2017"}


BROKEN = {
    "an unknown label": {"label": 2},
    "no label": {"label": None},
    "null as caption": {"caption": None},
    "half an emoji": {"caption": "A \ud83d."},
    "a list as image": {"image": []},
    "an empty caption": {"caption": " "},
    "a photo that is not there": {"image": "000000000099.jpg"},
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_statement_is_skipped_counted_and_named(data, fault):
    path = data / "vsr/splits/random/test.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    _write_lines(path, [*records, records[0] | BROKEN[fault]])
    with pytest.warns(UserWarning, match=f"test.jsonl line {2 * N + 1}"):
        claims = read_vsr(path, data / "vsr/images", max_bad=0.5)
    assert len(claims) == 2 * N == claims.report.kept and claims.report.n_skipped == 1
    with pytest.raises(BadData, match=f"test.jsonl line {2 * N + 1}.*1 of {2 * N + 1} samples"):
        read_vsr(path, data / "vsr/images")


@pytest.mark.real
def test_the_real_statements_against_their_file(real_data):
    folder = real_data / "coco_more"
    with (folder / "vsr.csv").open(newline="") as file:
        rows = list(csv.DictReader(file, strict=True))
    claims = read_vsr(folder / "vsr.csv", folder / "images")
    assert [(claim.sentence, claim.image.name, claim.truth) for claim in claims] == [
        (row["caption"], row["image"], row["label"] == "1") for row in rows
    ]
    assert len(claims) == 610 and len(read_vsr(folder / "vsr.csv", folder / "images", "test")) == 119
    assert {score.metric for score in Statements(claims).run(random_scorer())} == {"auc", "accuracy"}


# --- What's Up


def test_prepositions_in_six_files_and_two_forms(data):
    choices = read_whats_up(data / "whats_up")
    scorer = random_scorer()
    assert len(choices) == 6 * N and len({choice.id for choice in choices}) == 6 * N
    assert {choice.split: len(choice.captions) for choice in choices} == {
        split: 4 if "con" in split else 2 for split in WHATS_UP
    }
    assert choices[0].captions == tuple(CAPTIONS[:4]) and choices[0].images[0].name == "mug_on_1.jpeg"
    assert choices[2 * N].images[0].name == "000000000001.jpg" and choices[4 * N].images[0].name == "1.jpg"
    scores = {(score.split, score.metric): score.value for score in Choices(choices).run(scorer)}
    for split in WHATS_UP:
        right = [
            cosines(scorer, item.images, item.captions)[0].argmax() == 0 for item in choices if item.split == split
        ]
        assert scores[split, "accuracy"] == pytest.approx(np.mean(right))


def test_files_that_are_missing_are_named_with_their_source(data):
    (data / "whats_up/vg_qa_one_obj.json").unlink()
    choices = read_whats_up(data / "whats_up")
    assert len(choices) == 5 * N and "vg_qa_one_obj.json not there; get it from the data folder" in str(choices.report)
    with pytest.raises(BadData, match="no vg_qa_one_obj.json; get it from .*amitakamath/whatsup_vlms"):
        read_whats_up(data / "whats_up", splits=["vg_one"])
    with pytest.raises(BadData, match="no controlled_images_dataset.json, .*get it from"):
        read_whats_up(data)


@pytest.mark.parametrize(
    ("file", "record", "message"),
    [
        ("coco_qa_one_obj.json", [1, "A."], "a list of 2; image, right, wrong were expected"),
        ("coco_qa_one_obj.json", [1, "A.", None], "wrong should be"),
        (
            "controlled_images_dataset.json",
            {"image_path": "a.png", "caption_options": ["A."]},
            "caption_options should",
        ),
        ("controlled_images_dataset.json", {"caption_options": ["A.", "B."]}, "image_path is missing"),
        ("controlled_images_dataset.json", 5, "should be"),
    ],
)
def test_a_broken_record_is_skipped_counted_and_named(data, file, record, message):
    path = data / "whats_up" / file
    path.write_text(json.dumps([*json.loads(path.read_text()), record]))
    with pytest.warns(UserWarning, match=f"{file} record {N}"):
        assert len(read_whats_up(data / "whats_up", max_bad=0.1)) == 6 * N
    with pytest.raises(BadData, match=f"{file} record {N}: .*{message}"):
        read_whats_up(data / "whats_up")


# --- groups


def group_scores(scorer, items):
    "Text, image and group score by their definition."
    tables = [cosines(scorer, item.images, item.captions) for item in items]
    text = np.array([s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0] for s in tables])
    image = np.array([s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1] for s in tables])
    return {"text_score": text.mean(), "image_score": image.mean(), "group_score": (text & image).mean()}


READ_GROUPS = {
    "colorswap": lambda folder: read_colorswap(folder / "colorswap"),
    "eqben": lambda folder: read_eqben(
        folder / "eqben/eqben_subset_10percent_final.json", folder / "eqben/image_subset"
    ),
}


@pytest.mark.parametrize("name", READ_GROUPS)
def test_groups_in_other_formats_and_their_scores(data, name):
    items = READ_GROUPS[name](data)
    scorer = random_scorer()
    assert len(items) == N and all(item.form == "group" and len(set(item.image_ids)) == 2 for item in items)
    assert items[2].captions == (CAPTIONS[2], CAPTIONS[3])
    pixels = [np.asarray(open_image(image)) for image in items[2].images]
    assert np.array_equal(pixels[0], PIXELS[2]) and np.array_equal(pixels[1], PIXELS[3])
    scores = {score.metric: score.value for score in Choices(items).run(scorer)}
    assert scores == pytest.approx(group_scores(scorer, items))


def test_the_first_folder_of_a_path_is_a_split_of_eqben(data):
    choices = READ_GROUPS["eqben"](data)
    assert {choice.split for choice in choices} == {"eqbensd"}
    assert choices[0].images[1].name.endswith("eqbenyoucook2/1.npy")
    np.save(data / "eqben/image_subset/eqbenyoucook2/1.npy", np.zeros((8, 8)))
    with pytest.raises(
        BadData,
        match="record 0: image .*1.npy' unreadable: an array of .height, width, 3. bytes was expected, not .8, 8",
    ):
        READ_GROUPS["eqben"](data)


def test_the_selection_of_eqben_is_found_beside_its_pictures(data):
    (data / EQBEN).rename(data / "eqben/all_select.json")
    (data / "eqben/image_subset").rename(data / "eqben/images")
    (suite,) = find_suites(data, ["eqben"])
    assert suite.state == "found" and len(read_suites([suite])[0]["eqben"].items()) == N


@pytest.mark.parametrize(("name", "key"), [("colorswap", "image_1"), ("winoground", "image_0")])
def test_groups_from_parquet_are_the_same(data, name, key, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    reader, file = (read_colorswap, "test.json") if name == "colorswap" else (read_winoground, "examples.jsonl")
    text = (data / name / file).read_text()
    rows = json.loads(text) if file.endswith("json") else [json.loads(line) for line in text.splitlines()]
    items = reader(data / name)
    for row, item in zip(rows, items):
        first = int(key[-1])
        row |= {f"image_{first + side}": {"bytes": item.images[side].read_bytes(), "path": None} for side in (0, 1)}
    rows = [row | {"collapsed_tag": ("Object", "Relation")[k % 2]} for k, row in enumerate(rows)]
    (tmp_path / "hub").mkdir()
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "hub/test-0.parquet")
    same = reader(tmp_path / "hub")
    assert [item.captions for item in same] == [item.captions for item in items]
    assert same[0].images[1] == items[0].images[1].read_bytes()
    if name == "winoground":
        assert {item.split for item in read_winoground(tmp_path / "hub", by="collapsed_tag")} == {"Object", "Relation"}
        with pytest.raises(BadData, match="examples.jsonl line 1: collapsed_tag is missing"):
            read_winoground(data / "winoground", by="collapsed_tag")


# --- single words


def test_captions_with_one_word_exchanged(data):
    choices = read_vl_checklist(data / "vl_checklist", data / "vl_checklist")
    scorer = random_scorer()
    splits = ["Attribute/vg/color", "Object/Size/hake_size/hake_obj_small", "Relation/swig_action"]
    assert list(dict.fromkeys(choice.split for choice in choices)) == splits and len(choices) == 3 * N
    assert {choice.images[0].parent.name for choice in choices} == {"VG_100K", "vcoco", "swig"}
    assert choices[1].captions == (CAPTIONS[1], CAPTIONS[2]) and choices[1].right == 1
    scores = {(score.split, score.metric): score.value for score in Choices(choices).run(scorer)}
    for split in splits:
        right = [
            cosines(scorer, item.images, item.captions)[0].argmax() == 0 for item in choices if item.split == split
        ]
        assert scores[split, "accuracy"] == pytest.approx(np.mean(right))
    assert len(read_vl_checklist(data / "vl_checklist", None, ["Relation/swig_action"])) == N


def test_photos_with_another_subject_verb_or_object(data):
    choices = read_svo_probes(data / "svo_probes", data / "svo_probes/images")
    scorer = random_scorer()
    assert [choice.split for choice in choices[:4]] == ["subject", "verb", "object", "subject"]
    assert choices[0].form == "image"
    assert choices[3].captions == (CAPTIONS[3],) and [path.name for path in choices[3].images] == ["3.jpg", "4.jpg"]
    scores = {(score.split, score.metric): score.value for score in Choices(choices).run(scorer)}
    for split in ("subject", "verb", "object"):
        right = [
            cosines(scorer, item.images, item.captions)[:, 0].argmax() == 0 for item in choices if item.split == split
        ]
        assert scores[split, "image_accuracy"] == pytest.approx(np.mean(right))
    (data / "svo_probes/images/0.jpg").unlink()  # in two rows
    with pytest.warns(UserWarning, match="image not found .svo_probes.csv line 2: 0.jpg"):
        assert len(read_svo_probes(data / "svo_probes", data / "svo_probes/images")) == N - 2
    with pytest.raises(BadData, match="many are gone: raise max_bad"):
        read_svo_probes(data / "svo_probes", data / "svo_probes/images", max_bad=0.1)


COLORSWAP = "colorswap/test.json"
EQBEN = "eqben/eqben_subset_10percent_final.json"
COLOR = "vl_checklist/Attribute/vg/color.json"
READ_WORDS = {
    "vl_checklist": lambda folder: read_vl_checklist(
        folder / "vl_checklist", folder / "vl_checklist", ["Attribute/vg/color"]
    ),
    "winoground": lambda folder: read_winoground(folder / "winoground"),
}


@pytest.mark.parametrize(
    ("name", "file", "record", "message"),
    [
        ("colorswap", COLORSWAP, {"id": 9}, "image_1 is missing"),
        ("colorswap", COLORSWAP, {"id": 0}, "image_1 is missing"),
        ("colorswap", COLORSWAP, None, "should be"),
        ("colorswap", COLORSWAP, {"id": 9, "image_1": {}, "image_2": "", "caption_1": "A.", "caption_2": "B."},
            "a picture is empty"),
        ("eqben", EQBEN, {"image0": "a.png", "image1": 5, "caption0": [], "caption1": "A."}, "caption0 should be"),
        ("eqben", EQBEN, {"image0": "a" * 5000, "image1": "b", "caption0": "A.", "caption1": "B."}, "not found"),
        ("vl_checklist", COLOR, ["a.png", {"POS": [], "NEG": ["A."]}], "captions.POS should be"),
        ("vl_checklist", COLOR, ["a.png", {"POS": ["A."], "NEG": "B."}], "captions.NEG should be"),
        ("vl_checklist", COLOR, ["a.png"], "a list of 1; image, captions were expected"),
        ("winoground", "winoground/examples.jsonl", {"id": 9, "image_0": "a", "image_1": "b", "caption_0": None,
                "caption_1": ""},
         "caption_0 should be"),
        ("winoground", "winoground/examples.jsonl", {"id": 0, "image_0": "ex_1_img_0", "image_1": "ex_1_img_1",
                "caption_0": "A.",
         "caption_1": "B."}, "an item with the id '0' stands there already"),
    ],
)  # fmt: skip
def test_a_broken_group_or_probe_is_skipped_counted_and_named(data, name, file, record, message):
    path = data / file
    if file.endswith("l"):
        path.write_text(path.read_text() + json.dumps(record) + "\n")
    else:
        path.write_text(json.dumps([*json.loads(path.read_text()), record]))
    place = f"{path.name} line {N + 1}" if file.endswith("l") else f"{path.name} record {N}"
    with pytest.raises(BadData, match=f"{place}.*{message}.*[12] of"):
        (READ_GROUPS | READ_WORDS)[name](data)


@pytest.mark.parametrize(
    ("reader", "message"),
    [
        (
            lambda folder: read_colorswap(folder / "eqben"),
            "no test.json and no test.*parquet; get stanfordnlp/colorswap",
        ),
        (
            lambda folder: read_eqben(folder / "eqben/none.json", None),
            "none.json: EqBen's file .* does not exist.*Wangt-CN/EqBen",
        ),
        (
            lambda folder: read_vl_checklist(folder / "eqben", None),
            "no Attribute/, Object/ or Relation/ .*om-ai-lab/VL-CheckList",
        ),
        (lambda folder: read_svo_probes(folder / "eqben", folder), "no svo_probes.csv; .*google-deepmind/svo_probes"),
        (
            lambda folder: read_vsr(folder / "none.jsonl", None),
            "statements does not exist.*cambridgeltl/visual-spatial-reasoning",
        ),
    ],
)
def test_what_is_missing_is_named_with_where_to_get_it(data, reader, message):
    with pytest.raises(BadData, match=message):
        reader(data)
