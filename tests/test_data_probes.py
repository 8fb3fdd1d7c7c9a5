"Probes of spatial relations, attributes and roles in their published formats: what is kept, what is skipped and named, and the scores."

import csv
import json

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from stand_ins import random_scorer

from complearn.data.benchmarks.spatial import WHATS_UP, read_vsr, read_whats_up
from complearn.data.fixtures.benchmarks import save_pictures, write_lines, write_spatial
from complearn.data.reports import BadData
from complearn.evaluation.tasks.choices import Choices
from complearn.evaluation.tasks.statements import Statements

CAPTIONS = [f"The {thing} is left of the mug." for thing in ("cat", "dog", "cup", "pen", "hat", "car", "bee")]
N = len(CAPTIONS)
PIXELS = np.random.default_rng(0).integers(0, 256, (N, 8, 8, 3), np.uint8)


@pytest.fixture
def data(tmp_path):
    write_spatial(tmp_path, PIXELS, CAPTIONS)
    return tmp_path


def cosines(scorer, images, captions):
    "The score of each image with each caption."
    unit = lambda vectors: np.array(vectors) / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit([scorer.see(image) for image in images]) @ unit([scorer.read(caption) for caption in captions]).T


# --- VSR


def test_statements_with_their_truth_and_the_area_under_their_curve(data):
    claims, scorer = read_vsr(data / "vsr/splits/random/test.jsonl", data / "vsr/images"), random_scorer()
    assert len(claims) == 2 * N and [claim.truth for claim in claims[:4]] == [False, True, False, True]
    assert claims[0].sentence == CAPTIONS[1] and claims[1].sentence == CAPTIONS[0] and claims[0].image_id == "000000000001"
    scores = [cosines(scorer, [claim.image], [claim.sentence])[0, 0] for claim in claims]
    auc = {score.metric: score.value for score in Statements(claims).run(scorer)}["auc"]
    assert auc == pytest.approx(roc_auc_score([claim.truth for claim in claims], scores), abs=1e-6)


def test_json_lines_and_csv_give_the_same_statements(data):
    lines = data / "vsr/splits/random/test.jsonl"
    rows = [json.loads(line) | {"vsr_split": ("dev", "test")[k > 3]} for k, line in enumerate(lines.read_text().splitlines())]
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
        save_pictures(data / "coco" / part, PIXELS[k::2], [f"{number:012d}.jpg" for number in range(k + 1, N + 1, 2)])
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
    write_lines(path, [*records, records[0] | BROKEN[fault]])
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
    choices, scorer = read_whats_up(data / "whats_up"), random_scorer()
    assert len(choices) == 6 * N and len({choice.id for choice in choices}) == 6 * N
    assert {choice.split: len(choice.captions) for choice in choices} == {split: 4 if "con" in split else 2 for split in WHATS_UP}
    assert choices[0].captions == tuple(CAPTIONS[:4]) and choices[0].images[0].name == "mug_on_1.jpeg"
    assert choices[2 * N].images[0].name == "000000000001.jpg" and choices[4 * N].images[0].name == "1.jpg"
    scores = {(score.split, score.metric): score.value for score in Choices(choices).run(scorer)}
    for split in WHATS_UP:
        right = [cosines(scorer, item.images, item.captions)[0].argmax() == 0 for item in choices if item.split == split]
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
        ("controlled_images_dataset.json", {"image_path": "a.png", "caption_options": ["A."]}, "caption_options should"),
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
