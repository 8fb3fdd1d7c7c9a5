"""Every published benchmark format: what a reader makes of it, what it says when something is missing, and its known
traps."""

import json
import os
import shutil
import sys
import warnings
from io import BytesIO
from itertools import cycle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from stand_ins import StandIn, constant, hashed, random_scorer

from complearn.core.own_files import ForeignFile
from complearn.data import reports as intake
from complearn.data.benchmarks import aro
from complearn.data.benchmarks.classes import (
    PRESETS,
    TABLE_2,
    TABLE_5,
    _describe_pairing,
    _readable_names,
    read_classes,
)
from complearn.data.benchmarks.crepe import read_crepe_productivity, read_crepe_systematicity
from complearn.data.benchmarks.groups import read_cola, read_mmvp, read_winoground
from complearn.data.benchmarks.items import Choice, Crop, NoPhoto
from complearn.data.benchmarks.sugarcrepe import read_sugarcrepe, read_sugarcrepe_pp
from complearn.data.benchmarks.valse import PHOTO_FOLDERS, VALID_COUNTS, read_valse
from complearn.data.fixtures.specimens import write_benchmarks
from complearn.data.images import EXTENSIONS
from complearn.data.reports import BadData
from complearn.evaluation.bench.bench import judge, judge_blind
from complearn.evaluation.bench.suites import SUITES, _flickr_test, find_suites, read_bench, read_suites
from complearn.evaluation.tasks.base import evenly
from complearn.evaluation.tasks.choices import Choices, _chance_scores, _summarise_choices, evaluate_choices

EVERY = {name for name, suite in SUITES.items() if suite.places} - set(PRESETS)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_benchmarks(tmp_path_factory.mktemp("specimens") / "data")


@pytest.fixture
def own(data, tmp_path):
    "A copy that a test may break."
    return shutil.copytree(data, tmp_path / "data")


def choices_of(bench):
    return {name: task.items() for name, task in bench.items() if isinstance(task, Choices)}


def test_every_benchmark_is_found_where_it_may_lie_and_read(data):
    found = find_suites(data)
    assert {one.name for one in found if one.state == "found"} == EVERY | {"cifar10"}
    assert all(one.remedy for one in found if one.state == "missing") and len(found) == len(EVERY) + len(PRESETS)
    bench, blind, errors = read_suites(found)
    assert not errors and not blind
    assert set(bench) == EVERY | {"cifar10"}
    for name, items in choices_of(bench).items():
        assert len({c.id for c in items}) == len(items) and all(len(c.image_ids) == len(c.images) for c in items), name
    few, _, _ = read_suites(found, limit=2)
    assert few["cifar10"].train and not read_suites(found, limit=2, probe=False)[0]["cifar10"].train
    assert all(len(part) <= 2 * len({c.split for c in part}) for part in choices_of(few).values())
    assert {c.split for c in few["valse"].items()} == set(VALID_COUNTS)
    pairs = few["coco_retrieval"].items()
    assert len({pair.image_id for pair in pairs}) == 2 and len(pairs) == 4


LINKED = sorted(EVERY | {"cifar10"})


def linked(data, folder, pictures):
    """A copy of the data in which each picture, or each other file, is a link to a file outside."""
    shutil.copytree(data, folder / "theirs")
    shutil.copytree(data, folder / "elsewhere")
    for path in [path for path in (folder / "theirs").rglob("*") if path.is_file()]:
        if (path.suffix.lower() in {*EXTENSIONS, ".npy"}) == pictures:
            path.unlink()
            path.symlink_to(folder / "elsewhere" / path.relative_to(folder / "theirs"))
    return folder / "theirs"


@pytest.fixture(scope="module")
def foreign(data, tmp_path_factory):
    """Data whose pictures lie elsewhere, and data whose tables lie elsewhere."""
    return {part: linked(data, tmp_path_factory.mktemp(part), part == "pictures") for part in ("pictures", "tables")}


@pytest.fixture
def opened(monkeypatch):
    """The files that are opened during a test, where their links lead; no picture is known to be whole."""
    monkeypatch.setattr(intake, "_FAULTS", {})
    paths = []
    is_on = [True]

    def note(event, args):
        if event == "open" and is_on[0] and isinstance(args[0], (str, bytes, os.PathLike)):
            paths.append(os.path.realpath(os.fsdecode(args[0])))

    sys.addaudithook(note)
    yield paths
    is_on[0] = False


@pytest.mark.filterwarnings("ignore:.*skipped")
@pytest.mark.parametrize("name", LINKED)
def test_no_benchmark_opens_a_photo_that_is_a_link_to_outside_its_folder(name, data, foreign, opened):
    (suite,) = find_suites(foreign["pictures"], [name])
    args = suite.args
    if name == "cifar10":
        args = {"folder": foreign["pictures"] / "classification" / "cifar10" / "test"}
    with pytest.raises(
        BadData, match="leads out of the folder: .*; copy it into the folder, or say allow_outside=True"
    ):
        SUITES[name].read(**args)
    assert not [path for path in opened if "/elsewhere/" in path]
    honest = {key: path and data / path.relative_to(foreign["pictures"]) for key, path in args.items()}
    followed = SUITES[name].read(**args, allow_outside=True)
    assert len(followed) == len(SUITES[name].read(**honest)) and [path for path in opened if "/elsewhere/" in path]


@pytest.mark.parametrize("name", sorted(EVERY))
def test_no_benchmark_opens_a_table_that_is_a_link_to_outside_its_folder(name, data, foreign, opened):
    (suite,) = find_suites(foreign["tables"], [name])
    if suite.state == "missing":
        assert "leads out of" in suite.remedy and "say allow_outside=True" in suite.remedy
        (suite,) = find_suites(foreign["tables"], [name], allow_outside=True)
    else:
        with pytest.raises(ForeignFile, match="leads out of"):
            SUITES[name].read(**suite.args)
    assert not [path for path in opened if "/elsewhere/" in path] and suite.state == "found"
    followed = SUITES[name].read(**suite.args, allow_outside=True)
    assert len(followed) == len(SUITES[name].read(**find_suites(data, [name])[0].args))


def test_pictures_outside_are_not_opened_to_compare_them(data, tmp_path, opened):
    """Two pictures of one item are compared, since such an item has no answer."""
    folder = shutil.copytree(data / "winoground", tmp_path / "winoground")
    secret = tmp_path / "secret.png"
    record = json.loads((folder / "examples.jsonl").read_text().splitlines()[0])
    shutil.copy(folder / "images" / f"{record['image_0']}.png", secret)
    for side in "01":
        path = folder / "images" / f"{record[f'image_{side}']}.png"
        path.unlink()
        path.symlink_to(secret)
    opened.clear()
    with pytest.warns(UserWarning, match="image leads out of the folder"):
        read_winoground(folder, max_bad=1.0)
    assert str(secret) not in opened
    n = len(read_winoground(data / "winoground"))
    with pytest.warns(UserWarning, match=f"winoground: {n - 1} kept; .*pictures 1 and 2 are the same"):
        assert len(read_winoground(folder, allow_outside=True)) == n - 1


def test_valses_photos_may_lie_in_several_folders_that_a_person_gave(data, tmp_path, opened):
    folder = data / "valse"
    images = {key: folder / "images" / place for key, place in PHOTO_FOLDERS.items()}
    assert len(read_valse(folder, images)) == len(read_valse(folder, folder / "images"))
    shutil.copytree(folder / "images" / "visdial", tmp_path / "secret")
    (tmp_path / "photos").mkdir()
    for photo in (tmp_path / "secret").iterdir():
        (tmp_path / "photos" / photo.name).symlink_to(photo)
    opened.clear()
    with pytest.raises(BadData, match="leads out of the folder"):
        read_valse(folder, images | {"VisDial_v1.0": tmp_path / "photos"})
    assert not [path for path in opened if "/secret/" in path]


def test_names_families_and_folders_that_are_not_there(data, tmp_path):
    assert {one.name for one in find_suites(data, ["crepe", "mmvp"])} == {
        "mmvp",
        *(n for n in EVERY if n.startswith("crepe_")),
    }
    with pytest.raises(
        ValueError,
        match="no benchmark 'sugarcrap' .did you mean 'sugarcrepe'..; there are .*families are aro, classes, crepe",
    ):
        find_suites(data, ["sugarcrap"])
    with pytest.raises(BadData, match="the folder of data does not exist"):
        find_suites(tmp_path / "none")
    assert evenly(range(10), 3) == [0, 3, 6] and evenly([1], 5) == [1]


@pytest.mark.parametrize(
    ("gone", "reader", "said"),
    [
        (
            "sugarcrepe_pp/swap_att.json",
            lambda d: read_sugarcrepe_pp(d / "sugarcrepe_pp", None),
            "no swap_att.json; .*Aman-J/SugarCrepe_pp",
        ),
        (
            "aro/visual_genome_relation.json",
            lambda d: aro.read_aro_relation(d / "aro"),
            "no visual_genome_relation.json; .*bows",
        ),
        ("valse/plurals.json", lambda d: read_valse(d / "valse", None), "no plurals.json; .*Heidelberg-NLP/VALSE"),
        ("cola/COLA_multiobjects_matching_benchmark.json", lambda d: read_cola(d / "cola", None), "arijitray1993/COLA"),
        ("mmvp/Questions.csv", lambda d: read_mmvp(d / "mmvp"), "no Questions.csv; .*MMVP/MMVP_VLM"),
        (
            "winoground/examples.jsonl",
            lambda d: read_winoground(d / "winoground"),
            "no examples.jsonl and no parquet.*facebook/winoground",
        ),
        (
            "crepe/prod_hard_negatives/swap/prod_vg_hard_negs_swap_complexity_7.csv",
            lambda d: read_crepe_productivity(d / "crepe", None, "swap"),
            "no swap/prod_vg_hard_negs_swap_complexity_7.csv; .*RAIVNLab/CREPE.*name fewer",
        ),
    ],
)
def test_what_is_missing_is_named_with_its_remedy(own, gone, reader, said):
    assert len(reader(own))
    (own / gone).unlink()
    with pytest.raises(BadData, match=said):
        reader(own)


def test_a_collapsed_model_scores_zero_with_all_ties_everywhere(data):
    bench, _, _ = read_suites(find_suites(data))
    bench = {name: task for name, task in bench.items() if isinstance(task, Choices)}
    rows = [r for r in judge(constant(), bench, "collapsed") if r["metric"] != "accuracy_coin"]
    scores = [r for r in rows if r["metric"] != "blind_flag"]
    assert len({r["data"] for r in scores}) == len(bench) and all(r["value"] == 0 and r["ties"] == 1 for r in scores)
    assert all(
        r["split"] == "mean"
        for r in (rows[-1], *[a for a, b in zip(rows, rows[1:]) if a["metric"] != b["metric"] and a["data"] == "valse"])
    )


def test_lengths_of_features_do_not_count(data):
    items = read_winoground(data / "winoground")
    plain = random_scorer()
    grown = StandIn(lambda x: 7 * hashed(x), lambda t: (3 + len(t)) * hashed(f"the text {t}"))
    assert np.allclose(evaluate_choices(plain, items)["margin"], evaluate_choices(grown, items)["margin"], atol=1e-6)


# --- SugarCrepe++


def test_both_captions_must_beat_the_wrong_one_and_text_alone_has_its_own_score(data):
    items = read_sugarcrepe_pp(data / "sugarcrepe_pp", data / "coco/val2017")
    assert (
        items[0].right == 2
        and len(items[0].captions) == 3
        and {c.split for c in items}
        == {f"{a}" for a in ("replace_att", "replace_obj", "replace_rel", "swap_att", "swap_obj")}
    )
    angles = {"p1": 0, "p2": 40, "n": 60, "image": 10}

    def turn(name):
        return [np.cos(np.radians(angles[name])), np.sin(np.radians(angles[name]))]

    scorer = StandIn(lambda _: turn("image"), turn)
    item = Choice("s", ("x",), ("p1", "p2", "n"), "0", right=2)
    frame = evaluate_choices(scorer, [item]).set_index("metric")
    assert frame.right["accuracy"] and not frame.right["text_only"]  # p2 is nearer to n than to p1
    angles["image"] = 55
    assert not evaluate_choices(scorer, [item]).right.iloc[0]  # one of the two is not enough
    levels = {score.metric: score.value for score in _chance_scores([item])}
    assert levels == {"accuracy": pytest.approx(1 / 3), "text_only": pytest.approx(1 / 3)}
    many = [Choice("s", (f"{k}.jpg",), (f"{k} a", f"{k} b", f"{k} c"), str(k), right=2) for k in range(3000)]
    frame = evaluate_choices(random_scorer(), many)
    assert (
        abs(frame[frame.metric == "accuracy"].right.mean() - 1 / 3) < 0.04
        and abs(frame[frame.metric == "text_only"].right.mean() - 1 / 3) < 0.04
    )
    blind = judge_blind({"pp": Choices([item])}, ["a"])
    assert not any(r["metric"] == "text_only" and r["method"] != "chance" for r in blind)
    with pytest.raises(ValueError, match="3 right captions of 3"):
        evaluate_choices(scorer, [Choice("s", ("x",), ("p1", "p2", "n"), "0", right=3)])


# --- ARO


def test_the_model_sees_the_box_alone(own):
    items = aro.read_aro_relation(own / "aro", relations=())
    crop = items[0].images[0]
    whole = np.asarray(Image.open(crop.path))
    assert crop.box == (0, 0, 28, 32)
    assert np.array_equal(np.asarray(Image.open(BytesIO(crop.read_bytes()))), whole[:, :28])
    scorer = StandIn(lambda image: [1.0, len(image.read_bytes())], lambda text: [1.0, len(text)])
    assert len(scorer.seen) == 0 and len(evaluate_choices(scorer, items)) == len(items)
    assert all(isinstance(image, Crop) for image in scorer.seen)
    records = json.loads((own / "aro/visual_genome_relation.json").read_text())
    records[0]["bbox_w"] = 0
    (own / "aro/visual_genome_relation.json").write_text(json.dumps(records))
    with pytest.raises(BadData, match="record 0: a box of 0 x 32 pixels shows nothing"):
        aro.read_aro_relation(own / "aro")


def test_relations_are_splits_and_their_mean_is_not_the_mean_over_items(data):
    items = aro.read_aro_relation(data / "aro")
    assert {c.split for c in items} == {"on", "to the left of"}  # "near" holds both ways
    assert len(aro.SPATIAL) == 13 and len(aro.VERBS) == 32 and "left out by the published protocol" in str(items.report)
    more = [*items, *[c for c in items if c.split == "on"] * 5]
    right = StandIn(lambda _: [1.0, 0.0], lambda t: [1.0, 0.0] if t in good else [0.0, 1.0])
    good = {c.captions[0] for c in items if c.split == "on"} - {c.captions[1] for c in items}
    scores = _summarise_choices(evaluate_choices(right, more))
    splits = {score.split: score.value for score in scores}
    assert scores[-1].split == "mean" and splits["mean"] == pytest.approx((splits["on"] + splits["to the left of"]) / 2)
    assert len(aro.read_aro_attribution(data / "aro")) == 25
    with pytest.raises(BadData, match="not a single sample; 1 of 1 splits left out"):
        aro.read_aro_attribution(data / "aro", min_records=26)


def test_shuffles_keep_the_words_depend_on_the_seed_and_differ_from_the_caption():
    words = "a man in a red shirt , riding the small brown horse on grass".split()
    pairs = [intake.Pair("x.jpg", " ".join(words), "0", "x"), intake.Pair("y.jpg", "dog", "1", "y")]
    (item, _), *rest = aro.order_choices(pairs, "order")
    assert not rest and len(item.captions) == 5 and len({tuple(sorted(c.split())) for c in item.captions}) == 1
    assert aro.order_choices(pairs, "order")[0][0] == item and aro.order_choices(pairs, "order", seed=1)[0][0] != item
    tags = aro._tag_words(words)
    kept = [k for k, tag in enumerate(tags) if tag == "other"]
    nouns, others, within, _ = (caption.split() for caption in item.captions[1:])
    assert [nouns[k] for k in kept] == [words[k] for k in kept]
    assert [others[k] for k in range(len(words)) if k not in kept] == [
        words[k] for k in range(len(words)) if k not in kept
    ]
    assert all(sorted(within[k : k + 3]) == sorted(words[k : k + 3]) for k in range(0, len(words), 3))
    assert aro._plain_words('A (big) dog!! runs; it\'s "fun"') == ["a", "big", "dog", "runs", "it's", "fun"]
    assert len(aro._plain_words("word " * 40)) == 30


# --- CREPE


def test_crepe_is_grouped_by_atoms_and_by_seen_and_unseen(own):
    items = read_crepe_productivity(own / "crepe", own / "visual_genome", "replace")
    assert list(dict.fromkeys(c.split for c in items)) == [f"complexity_{n}" for n in range(4, 13)]
    assert len(items[0].captions) == 5 and _chance_scores(items)[-1].value == pytest.approx(0.2)
    syst = read_crepe_systematicity(own / "crepe", own / "visual_genome", "compound")
    assert {c.split for c in syst} == {"seen_compounds", "unseen_compounds"} and len(syst[0].captions) == 3
    with pytest.raises(BadData, match="syst_vg_hard_negs_seen_compounds_in_laion.csv"):
        read_crepe_systematicity(own / "crepe", None, trained_on="laion")
    path = own / "crepe/prod_hard_negatives/swap/prod_vg_hard_negs_swap_complexity_4.csv"
    lines = path.read_text().splitlines()
    head, first, *rest = lines
    evil = first.split(",")[0] + ",a caption,__import__('os').getcwd(),0,0,8,8"
    path.write_text("\n".join([head, evil, *rest]))
    with pytest.warns(UserWarning, match="skipped 1: 1 bad row"):
        assert len(read_crepe_productivity(own / "crepe", None, "swap", (4,), max_bad=0.2)) == len(rest)


# --- VALSE


def test_valse_counts_what_people_confirmed(own):
    items = read_valse(own / "valse", own / "valse/images")
    assert len(items) == 11 * 5 and "33 records that people did not confirm" in str(items.report)
    assert len(read_valse(own / "valse", None, min_votes=0)) == 11 * 8
    assert len(read_valse(own / "valse", None, min_votes=3)) == 11 * 2
    assert isinstance(read_valse(own / "valse", None)[0].images[0], NoPhoto)
    # a photo beside the sub-folders is found too
    (own / "valse/images/visdial/photo_4.jpg").rename(own / "valse/images/photo_4.jpg")
    assert len(read_valse(own / "valse", own / "valse/images")) == 55
    with pytest.raises(BadData, match="the folder of photos does not exist.*Visual7W"):
        read_valse(own / "valse", own / "photos")


def test_a_photo_that_was_not_asked_for_cannot_be_scored(own):
    shutil.rmtree(own / "valse/images")
    (one,) = find_suites(own, ["valse"])
    bench, blind, _ = read_suites([one])
    assert one.state == "text only" and not bench and len(blind["valse"].items()) == 55
    rows = judge_blind(blind, ["a red circle"])
    assert {r["method"] for r in rows} == {"chance", "blind_length", "blind_ngram"}


# --- groups


def test_group_scores_against_their_definition(data):
    items = read_winoground(data / "winoground")
    scorer = random_scorer()
    frame = evaluate_choices(scorer, items).pivot(index="id", columns="metric", values="right")

    def unit(v):
        return v / np.linalg.norm(v)

    for item in items:
        s = np.array([[unit(hashed(i)) @ unit(hashed(f"the text {t}")) for t in item.captions] for i in item.images])
        text = s[0, 0] > s[0, 1] and s[1, 1] > s[1, 0]
        image = s[0, 0] > s[1, 0] and s[1, 1] > s[0, 1]
        assert tuple(frame.loc[item.id, ["text_score", "image_score", "group_score"]]) == (text, image, text and image)


def test_winoground_from_parquet_is_the_same(data, tmp_path):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    rows = [json.loads(line) for line in (data / "winoground/examples.jsonl").read_text().splitlines()]
    for row in rows:
        for side in (0, 1):
            row[f"image_{side}"] = {
                "bytes": (data / "winoground/images" / f"{row[f'image_{side}']}.png").read_bytes(),
                "path": None,
            }
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "test.parquet")
    one = read_winoground(data / "winoground")
    two = read_winoground(tmp_path)
    assert [c.captions for c in one] == [c.captions for c in two] and two[0].images[1] == one[0].images[1].read_bytes()


def test_a_pair_of_mmvp_counts_only_when_both_statements_prefer_their_own_photo(own):
    items = read_mmvp(own / "mmvp")
    assert len(items) == 9
    assert items[0].captions[0].startswith("a photo of ")
    assert "9 of 15 are published" in str(items.report)
    item = Choice("Color", ("one", "two"), ("says one", "says two"), "1-2", metrics=("image_score",))
    likes = {"says one": [1.0, 0.0], "says two": [1.0, 0.1]}  # both statements prefer the first photo
    scorer = StandIn(lambda image: [1.0, 0.0] if image == "one" else [0.0, 1.0], likes.get)
    frame = evaluate_choices(scorer, [item])
    assert list(frame.metric) == ["image_score"]
    assert not frame.right.any()
    assert [score.value for score in _chance_scores([item])] == [0.25]
    likes["says two"] = [0.1, 1.0]
    assert evaluate_choices(scorer, [item]).right.all()
    lines = (own / "mmvp/Questions.csv").read_text().splitlines()
    (own / "mmvp/Questions.csv").write_text("\n".join([lines[0], lines[1], lines[3], lines[2], *lines[4:]]))
    with pytest.raises(BadData, match="line 2: questions 1 .* and 3 .* are no pair"):
        read_mmvp(own / "mmvp")


def test_cola_reads_file_names_from_addresses(data):
    items = read_cola(data / "cola", data / "visual_genome")
    assert items[0].images[0].is_file()
    assert items[0].image_ids == ("vg1", "vg2")
    assert items[0].metrics == ("image_score",)


# --- photos and classes


def test_a_photo_that_several_benchmarks_share_is_looked_at_once(own, monkeypatch):
    looked = []
    real = intake.image_fault
    monkeypatch.setattr(
        intake, "image_fault", lambda image, check="decode": looked.append(str(image)) or real(image, check)
    )
    first = read_sugarcrepe(own / "sugarcrepe", own / "coco/val2017")
    read_sugarcrepe_pp(own / "sugarcrepe_pp", own / "coco/val2017")
    assert len(looked) == len(set(looked)) == 8 and len(first) == 56
    (own / "coco/val2017/000000000003.jpg").write_bytes(b"broken")
    with pytest.raises(BadData, match="image '000000000003.jpg' unreadable"):
        read_sugarcrepe(own / "sugarcrepe", own / "coco/val2017")


def test_presets_know_the_sets_of_both_tables():
    assert len(TABLE_2) == 18 and len(TABLE_5) == 9 and set(TABLE_5) < set(TABLE_2) <= set(SUITES)
    with pytest.raises(BadData, match="class folder '103' is none of 1 to 102"):
        _readable_names(["1", "103"], PRESETS["flowers102"], [f"flower {k}" for k in range(102)])
    assert _readable_names(["3", "10"], PRESETS["clevr"], "three four five six seven eight nine ten".split()) == [
        "three",
        "ten",
    ]
    with pytest.raises(BadData, match=r"WordNet numbers; their names come with pip install 'complearn\[towers\]'"):
        _readable_names(["n01440764"], PRESETS["imagenet_r"], None)


def test_test_and_training_images_share_their_classes_through_the_suite(own):
    args = {"folder": own / "classification/cifar10/test", "train": own / "classification/cifar10/train"}
    bench = read_bench({"cifar10": args})
    task = bench["cifar10"]
    assert task.classes == ("airplane", "cat") and len(task.train) == len(task.images) == 8
    assert all(prompt.count("{}") == 1 for prompt in task.templates) and task.items().report is task.images.report
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = judge(
            StandIn(lambda image: [len(str(image)), image.parent.name == "cat", 1.0], lambda t: [1.0, "cat" in t, 1.0]),
            bench,
            "m",
        )
    assert {r["split"]: r["value"] for r in rows if r["metric"] == "accuracy"}["linear_probe"] == 1
    shutil.rmtree(own / "classification/cifar10/train/cat")
    with pytest.raises(BadData, match="no training images of cat"):
        read_classes(**args, preset="cifar10")
    shutil.rmtree(own / "classification/cifar10/train")
    assert not read_bench({"cifar10": {"folder": args["folder"]}})["cifar10"].train


def test_bare_numbers_are_no_class_names(tmp_path):
    for name, colour in (("1", "pink"), ("10", "blue")):
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), colour).save(tmp_path / "test" / name / "0.png")
    (tmp_path / "tables").mkdir()
    for file in ("en_classnames.json", "en_zeroshot_classification_templates.json"):
        (tmp_path / "tables" / file).write_text("{}")
    for preset in ("flowers102", "resisc45", ""):
        with pytest.raises(BadData, match="called 1, 10 and so on.*class_tables.*en_classnames.json, or rename"):
            read_classes(tmp_path / "test", None, preset, str(tmp_path / "tables"))
    test, _ = read_classes(tmp_path / "test", None, "mnist", str(tmp_path / "tables"))
    assert test.classes == ("1", "10")
    assert "the data's own, for want of the published 'mnist'; prompts: 3 plain" in str(test.items.report)
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    content = (tmp_path / "test/1/0.png").read_bytes()
    pq.write_table(
        pa.Table.from_pylist([{"image": {"bytes": content}, "label": k} for k in (0, 1)]), tmp_path / "test.parquet"
    )
    with pytest.raises(BadData, match="called 0, 1 and so on"):
        read_classes(tmp_path / "test.parquet", None, "pets", str(tmp_path / "tables"))


def class_folders(folder, names, colours=("pink", "blue", "red")):
    for name, colour in zip(names, cycle(colours)):
        (folder / name).mkdir(parents=True)
        Image.new("RGB", (8, 8), colour).save(folder / name / "0.png")
    return folder


def test_published_names_are_counted_and_what_does_not_match_is_named(tmp_path):
    folder = class_folders(tmp_path / "test", ("american_bulldog", "beagle", "my_cat"))
    (tmp_path / "en_classnames.json").write_text(json.dumps({"pets": ["American Bulldog", "Beagle"]}))
    (tmp_path / "en_zeroshot_classification_templates.json").write_text("{}")
    test, _ = read_classes(folder, None, "pets", str(tmp_path))
    assert test.classes == ("American Bulldog", "Beagle", "my cat")
    assert "class names: 2 of 3 are the published 'pets', 1 the data's own (my cat)" in str(test.items.report)


def test_wordnet_folders_get_their_names_without_a_preset_and_equal_names_are_one_class(tmp_path):
    """open_clip calls two ImageNet classes missile; under strict ties neither could ever be right."""
    pytest.importorskip("open_clip")
    numbers = ("n03773504", "n04008634", "n01440764")
    folder, train = (class_folders(tmp_path / part, numbers) for part in ("test", "train"))
    test, fitted = read_classes(folder, train)
    assert test.classes == ("tench", "missile")
    assert sorted(k for _, k in test.items) == sorted(k for _, k in fitted) == [0, 1, 1]
    assert "the published 'imagenet1k'" in str(test.items.report)
    assert "classes of equal names count as one: missile (n03773504, n04008634)" in str(test.items.report)
    with pytest.raises(BadData, match="class folder 'n00000001' is none of ImageNet's 1000 classes"):
        read_classes(class_folders(tmp_path / "strange", ("n00000001",)))


@pytest.mark.parametrize("names", [{"01": "tit", "02": "finch"}, ["tit", "finch"], "names.json"])
def test_classes_of_ones_own_bring_their_names_and_templates(names, tmp_path):
    folder = class_folders(tmp_path / "test", ("01", "02"))
    (tmp_path / "names.json").write_text(json.dumps({"02": "finch", "01": "tit"}))
    args = {
        "folder": str(folder),
        "names": str(tmp_path / names) if isinstance(names, str) else names,
        "templates": ["a drawing of a {}."],
    }
    task = read_bench({"labels:birds": args})["labels:birds"]
    assert task.classes == ("tit", "finch") and task.templates == ("a drawing of a {}.",)
    assert "class names: given; prompts: 1 given" in str(task.items().report)


@pytest.mark.parametrize("form", ["list", "file"])
def test_a_list_of_names_follows_the_numbers_of_the_classes(form, tmp_path):
    words = "zero one two three four five six seven eight nine ten eleven".split()
    folder = class_folders(tmp_path / "digits", [str(k) for k in range(12)])
    (tmp_path / "names.json").write_text(json.dumps(words))
    test, _ = read_classes(folder, names=words if form == "list" else tmp_path / "names.json")
    found = {Path(str(image)).parent.name: test.classes[label] for image, label in test.items}
    assert found == {str(k): word for k, word in enumerate(words)}
    assert "names by class: 0 = zero, 1 = one, 2 = two, 3 = three" in str(test.items.report)
    assert "9 = nine, 10 = ten, 11 = eleven" in str(test.items.report)


def test_a_list_of_names_follows_the_sorted_folders_where_they_are_words(tmp_path):
    test, _ = read_classes(
        class_folders(tmp_path / "test", ("a_c", "aB", "b10", "b2")), names=["first", "second", "third", "fourth"]
    )
    assert test.classes == ("first", "second", "third", "fourth")
    assert "names by class: aB = first, a c = second, b10 = third, b2 = fourth" in str(test.items.report)


def test_the_pairing_of_many_names_is_cut_in_the_middle():
    told = _describe_pairing([f"{k:03}" for k in range(200)], [f"name {k}" for k in range(200)])
    assert "089 = name 89, ... (100 more), 190 = name 190" in told and told.endswith("199 = name 199")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"names": ["tit"]}, "1 class names were given for 2 classes: 01, 02"),
        ({"names": {"03": "tit"}}, "a name is given for class '03', which is not there; there are 01, 02"),
        ({"names": ["tit", "finch"], "templates": ["a bird"]}, "a template has one {} for the class name"),
    ],
)
def test_names_and_templates_that_do_not_fit_are_refused(given, message, tmp_path):
    with pytest.raises(BadData, match=message):
        read_classes(class_folders(tmp_path / "test", ("01", "02")), **given)


def test_a_table_of_foils_is_a_benchmark(tmp_path):
    Image.new("RGB", (8, 8), "red").save(tmp_path / "000000000139.jpg")
    rows = [
        "image,caption,negative,kind",
        "000000000139.jpg,A red wall.,A blue wall.,colour",
        "000000000139.jpg,A wall.,,none",
    ]
    (tmp_path / "mine.csv").write_text("\n".join(rows))
    with pytest.warns(UserWarning, match="mine.csv: 1 kept; skipped 1"):
        bench = read_bench({"foils:mine": {"folder": str(tmp_path), "table": "mine.csv", "max_bad": 0.5}})
    (item,) = bench["foils:mine"].items()
    assert (item.split, item.captions, item.image_ids) == ("colour", ("A red wall.", "A blue wall."), ("000000000139",))
    with pytest.raises(
        BadData, match="mine.csv line 1: no column 'foil'; there are 'image', .*name the right one with negative="
    ):
        read_bench({"foils": {"folder": str(tmp_path), "table": "mine.csv", "negative": "foil"}})


def test_captions_become_a_benchmark_by_exchanges(own):
    folder = own / "flickr8k"
    names = (folder / "Flickr_8k.testImages.txt").read_text().split()
    captions = ["A black dog chases a white cat .", "A white dog chases a black cat .", "Dogs ."]
    (folder / "mine.token").write_text(
        "\n".join(f"{name}#{k}\t{text}" for name in names[:2] for k, text in enumerate(captions))
    )
    args = {"name": "flickr", "args": {"images": str(folder / "images"), "token_file": str(folder / "mine.token")}}
    bench = read_bench({"swaps": args, "swaps:objects": args | {"operators": ["swap_obj"]}})
    items = bench["swaps"].items()
    splits = [item.split for item in items]
    assert {name: splits.count(name) for name in splits} == {"swap_obj": 4, "swap_phrase": 4}, (
        "a swap of colours is the other caption"
    )
    assert items == read_bench({"swaps": args})["swaps"].items() and len({item.id for item in items}) == 8
    assert [item.captions[1] for item in bench["swaps:objects"].items()[:1]] == ["A black cat chases a white dog ."]
    assert {item.image_ids for item in items} == {(name.split(".")[0],) for name in names[:2]}


def test_a_flickr_token_file_without_its_list_is_no_test(own):
    folder = own / "flickr8k"
    names = (folder / "Flickr_8k.testImages.txt").read_text().split()
    (folder / "Flickr_8k.testImages.txt").write_text("\n".join(names[:2]))
    (one,) = find_suites(own, ["flickr8k"])
    assert one.state == "found" and len(read_suites([one])[0]["flickr8k"].items()) == 2
    (folder / "Flickr_8k.testImages.txt").rename(own / "mine.txt")
    (one,) = find_suites(own, ["flickr8k"])
    assert one.state == "missing" and "dataset_flickr8k.json, or Flickr_8k.testImages.txt" in one.remedy
    for at in (folder, folder / "Flickr8k.token.txt"):
        with pytest.raises(BadData, match="no list of test photos .*names=.*dataset_flickr8k.json"):
            _flickr_test(folder / "images", at)
    assert len(_flickr_test(folder / "images", folder / "Flickr8k.token.txt", own / "mine.txt")) == 2
    (own / "karpathy/dataset_flickr30k.json").unlink()
    shutil.copy(folder / "Flickr8k.token.txt", own / "flickr30k/results_20130124.token")
    assert find_suites(own, ["flickr30k"])[0].state == "missing"
    (own / "flickr30k/test.txt").write_text(names[0].removesuffix(".jpg"))
    (one,) = find_suites(own, ["flickr30k"])
    assert one.state == "found" and len(read_suites([one])[0]["flickr30k"].items()) == 1


# --- real files


@pytest.mark.real
def test_valse_has_the_published_counts_and_blind_scores(real_data):
    items = read_valse(real_data / "valse", None)
    assert {split: sum(c.split == split for c in items) for split in VALID_COUNTS} == VALID_COUNTS
    assert len(items) == 7702
    captions = [
        one["caption"]
        for one in json.loads((real_data / "coco/annotations/captions_train2017.json").read_text())["annotations"]
    ]
    rows = {
        (r["method"], r["split"]): r["value"]
        for r in judge_blind({"valse": Choices(items)}, captions)
        if r["metric"] == "accuracy"
    }
    assert rows["chance", "mean"] == 0.5
    assert 0.2 < rows["blind_ngram", "mean"] < 0.9
    assert len({split for _, split in rows}) == 12


@pytest.mark.real
def test_the_scan_recognises_the_folder_of_real_data(real_data):
    states = {one.name: one.state for one in find_suites(real_data)}
    there = {name: state for name, state in states.items() if state != "missing"}
    assert there == {
        "sugarcrepe": "found",
        "valse": "text only",
        "nlvr": "found",
        "coco_retrieval": "found",
        "cifar10": "found",
        "mnist": "found",
    }


def test_a_benchmark_without_a_question_is_named(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "0.png")
    with pytest.raises(ValueError, match="benchmark 'swaps' has no question"):
        read_bench({"swaps": {"name": "labels", "args": {"folder": str(tmp_path)}}})
