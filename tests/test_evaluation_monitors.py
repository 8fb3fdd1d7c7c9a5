"The bench as a whole: on a generated world, on real files, with a real model, and without a trace left behind."

import importlib
import json
import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from stand_ins import StandIn, constant, hashed, random_scorer

from complearn.data.benchmarks.items import Choice
from complearn.data.benchmarks.nlvr import read_claims
from complearn.data.pairs import Pair
from complearn.data.readers.registry import read
from complearn.data.visual_genome.triplets import TripletEncoder, pair_triplets
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.evaluation.bench import monitors
from complearn.evaluation.bench.bench import disjoint_training, judge, judge_blind, stamp
from complearn.evaluation.bench.monitors import (
    _file_states,
    _held_out_losses,
    _world_tasks,
    held_out_monitor,
    held_out_settings,
    knn_monitor,
    sugarcrepe_monitor,
    world_monitor,
)
from complearn.evaluation.bench.worlds import NAMES, _training_corpus, experiment_bench, render_choices, world_bench
from complearn.evaluation.blind import Corpus, NgramScorer
from complearn.evaluation.tasks.base import Score, Task
from complearn.evaluation.tasks.choices import Choices, _summarise_choices, evaluate_choices
from complearn.evaluation.tasks.classification import drawn
from complearn.evaluation.tasks.statements import Statements
from complearn.models.dual import build_model
from complearn.models.registry import build
from complearn.models.scoring import evaluation_mode
from complearn.training.objectives.grounding import RelationGrounding

WORLD = {"shapes": 3, "colours": 3, "n_train": 400, "n_test": 80}
CAPTIONS = ["a red circle", "a blue square left of a red circle"]


def hard_negatives(bench):
    return [name for name, task in bench.items() if isinstance(task, Choices)]


@pytest.fixture(scope="module")
def bench():
    return world_bench(WORLD, n=12, names=("sugarcrepe", "winoground", "cola"))


@pytest.fixture(scope="module")
def model():
    tokenizer = WordTokenizer.fit(world_from(WORLD).captions(400))
    tower = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
    return build_model({"vision": tower | {"size": 32, "patch": 8}, "text": tower, "width": 32}, tokenizer)


def test_a_collapsed_model_scores_0_everywhere(bench):
    rows = [r for r in judge(constant(), bench, "collapsed") if r["split"] != "linear_probe"]
    assert {r["metric"] for r in rows} >= {"accuracy", "image_accuracy", "group_score", "class_accuracy", "r@1", "r@5"}
    assert all(r["value"] == 0 and r["ties"] == 1 for r in rows if r["metric"] != "accuracy_coin")
    coin = {
        r["split"]: r["value"] for r in rows if r["metric"] == "accuracy_coin" and r["data"] == "generated/sugarcrepe"
    }
    assert coin and set(coin.values()) == {0.5}, "where all is tied, a coin stands beside the strict score"


@pytest.mark.slow
def test_the_whole_bench_of_a_world():
    bench = world_bench(WORLD, n=12)
    assert set(hard_negatives(bench)) == {f"generated/{name}" for name in NAMES}
    rows = pd.DataFrame(judge(constant(), bench, "collapsed") + judge_blind(bench, CAPTIONS))
    assert not rows.duplicated(["method", "data", "split", "metric"]).any()
    own = rows[
        (rows["method"] == "collapsed") & (rows["split"] != "linear_probe") & (rows["metric"] != "accuracy_coin")
    ]
    assert (own["value"] == 0).all() and (own["ties"] == 1).all() and own["data"].nunique() == 7


def test_a_report_asks_everything_and_names_each_place_once(bench):
    rows = pd.DataFrame(judge(random_scorer(), bench, "random", 3, "final", 70) + judge_blind(bench, CAPTIONS))
    assert not rows.duplicated(["method", "seed", "data", "split", "metric"]).any()
    own = rows[rows["method"] == "random"]
    names = ("sugarcrepe", "winoground", "cola", "objects", "pairs")
    assert set(own["data"]) == {f"generated/{name}" for name in names}
    assert (own["seed"] == 3).all() and (own["phase"] == "final").all() and (own["step"] == 70).all()
    choices = own[own["data"].isin(hard_negatives(bench))]
    assert choices["low"].notna().all()
    assert (choices["low"] <= choices["value"]).all()
    assert (choices["value"] <= choices["high"]).all()
    for _, part in choices.groupby(["data", "metric"], sort=False):
        assert part["split"].iloc[-1] == "mean" or len(part) == 1
    blind = rows[rows["method"] != "random"]
    assert {"chance", "blind_length", "blind_ngram"} == set(blind["method"]) and blind["seed"].isna().all()
    same = ["data", "split", "metric"]
    asked = {tuple(line) for line in pd.concat([choices, own[own["data"] == "generated/pairs"]])[same].to_numpy()}
    galleries = {("generated/pairs", split, "gallery") for split in ("image_to_text", "text_to_image")}
    assert asked | galleries == {
        tuple(line) for line in blind[(blind["method"] == "chance") & (blind["split"] != "zero_shot")][same].to_numpy()
    }


def test_rows_are_what_the_parts_say(bench):
    scorer = random_scorer()
    scores = _summarise_choices(evaluate_choices(scorer, bench["generated/sugarcrepe"].items()))
    rows = [row for row in judge(scorer, bench, "random", 4, "final") if row["data"] == "generated/sugarcrepe"]
    assert rows == stamp(scores, "random", 4, "final", data="generated/sugarcrepe")


def test_a_task_of_ones_own_needs_run_alone():
    class Count(Task):
        def run(self, scorer, batch_size=256, device=None):
            return [Score("all", "batch_size", batch_size)]

    bench = {"count": Count()}
    (row,) = judge(constant(), bench, "m", 1, batch_size=7)
    assert (row["method"], row["seed"], row["data"], row["metric"], row["value"]) == ("m", 1, "count", "batch_size", 7)
    assert judge_blind(bench, CAPTIONS) == []


def test_drawing_keeps_every_item_and_draws_at_the_worlds_size():
    asked = world_from(WORLD).benchmark("cola", 2)
    held = render_choices(asked, 24)
    assert [(c.split, c.captions, c.id, c.image_ids) for c in asked] == [
        (c.split, c.captions, c.id, c.image_ids) for c in held
    ]
    assert all(image.shape == (24, 24, 3) for c in held for image in c.images)
    assert all((c.images[0] != c.images[1]).any() for c in held), "right and wrong image differ"


def test_probe_and_test_images_are_different(bench):
    task = bench["generated/objects"]
    seen = {image.tobytes() for image, _ in task.train}
    assert len(task.images) == 12 and not any(image.tobytes() in seen for image, _ in task.images)
    assert np.bincount([label for _, label in task.train], minlength=len(task.classes)).min() >= 4


# monitors


def test_a_monitor_is_found_by_its_config_string_and_takes_plain_arguments(model):
    module, name = "complearn.evaluation.bench.monitors:world_monitor".split(":")
    arguments = json.loads(
        json.dumps({"world": WORLD, "n": 4, "splits": ["swap_att", "swap_obj"], "seed": 4, "method": "clip"})
    )
    rows = getattr(importlib.import_module(module), name)(model, **arguments)
    assert [(r["split"], r["metric"]) for r in rows][:3] == [
        ("swap_att", "accuracy"),
        ("swap_obj", "accuracy"),
        ("mean", "accuracy"),
    ]
    assert {r["split"] for r in rows} == {"swap_att", "swap_obj", "mean", "zero_shot"}
    assert all(
        r["data"] == "generated/monitor" and r["seed"] == 4 and r["method"] == "clip" and r["step"] is None
        for r in rows
    )


def test_a_monitor_leaves_no_trace(model):
    "Resume is exact only if looking changes nothing: modes, random numbers, gradients."
    model.train()
    model.vision.eval()
    modes = [m.training for m in model.modules()]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(5)
    np.random.seed(5)
    expected = torch.rand(3), np.random.rand(3)
    torch.manual_seed(5)
    np.random.seed(5)
    rows = world_monitor(model, world=WORLD, n=4)
    assert torch.equal(torch.rand(3), expected[0]) and (np.random.rand(3) == expected[1]).all()
    assert [m.training for m in model.modules()] == modes and all(p.grad is None for p in model.parameters())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert world_monitor(model, world=WORLD, n=4) == rows


def test_modes_come_back_after_an_error():
    net = torch.nn.Sequential(torch.nn.Dropout(), torch.nn.Linear(1, 1)).train()
    with pytest.raises(RuntimeError, match="inside"), evaluation_mode(net):
        raise RuntimeError("inside")
    assert all(module.training for module in net.modules())


def test_questions_are_made_once_and_do_not_depend_on_the_order_of_keys(model):
    world_monitor(model, world=WORLD, n=4)
    misses = _world_tasks.cache_info().misses
    world_monitor(model, world=dict(reversed(WORLD.items())), n=4)
    assert _world_tasks.cache_info().misses == misses


def test_monitors_of_two_methods_ask_the_same_items():
    a, b = (_world_tasks(json.dumps(WORLD, sort_keys=True), 4)[0].items() for _ in range(2))
    _world_tasks.cache_clear()
    c = _world_tasks(json.dumps(WORLD, sort_keys=True), 4)[0].items()
    assert a is b
    assert [x.captions for x in a] == [x.captions for x in c]
    assert all((x.images[0] == y.images[0]).all() for x, y in zip(a, c))


def test_a_split_that_the_world_cannot_ask_is_an_error_that_says_so(model):
    with pytest.raises(ValueError, match="no items of swap_everything"):
        world_monitor(model, world=WORLD, n=4, splits=["swap_everything"])


def test_held_out_pairs_are_asked_apart_in_a_systematic_world():
    held = WORLD | {"split": "systematic"}
    bench = world_bench(held, n=4, names=("crepe_systematicity",), recognition=False, retrieval=False)
    splits = {c.split for c in bench["generated/crepe_systematicity"].items()}
    assert {"compound/seen", "compound/unseen"} <= splits


def test_an_experiment_is_asked_about_what_was_seen_and_what_was_not():
    world = world_from({"n_train": 64, "n_test": 32, "size": 16, "kinds": ["relation"], "shapes": 3, "colours": 3})
    bench = experiment_bench(world, {"retrieval": {"name": "generated", "args": {"n_train": 12}}}, 4)
    assert list(bench)[-4:] == ["generated/sugarcrepe, seen", "generated/objects", "generated/pairs", "retrieval"]
    train = [
        Pair(None, text, str(k), str(k))
        for k, text in enumerate(["No caption of a world.", bench["generated/pairs"].pairs[0].caption])
    ]
    corpus = _training_corpus(None, train, bench)
    assert corpus.captions == ("No caption of a world.",)
    assert corpus.facts == {"source": corpus.source, "captions": 1, "left_out": 1}
    assert "generated world" in _training_corpus(world, world.train, {}, 9).source
    assert len(_training_corpus(world, [], {}, 9).captions) == 9
    with pytest.raises(ValueError, match="bring no questions; say what judges them"):
        experiment_bench(None, {}, 4)
    with pytest.raises(ValueError, match='training set and evaluation overlap.* give it {"disjoint": true}'):
        disjoint_training({"name": "generated"}, world.train, bench)  # pairs that are made on demand cannot be left out
    facts = disjoint_training({"name": "generated"}, world.train, bench, "keep")[2]
    assert len(facts["caption_pairs"]) == min(20, facts["captions"]) > 0, "examples; the number is whole"


def test_a_text_model_reads_no_caption_of_an_evaluation_photo():
    """By the photo's identity where it is known, else by the words; without captions there is no n-gram baseline."""
    asked = [Choice("swap", ("x.jpg",), ("A dog runs.", "A cat runs."), "q", ("COCO_val2014_000000000139.jpg",))]
    photo = Pair(None, "Something else about that photo.", "a", "000000000139", views=("And more.",))
    corpus = Corpus.collect([photo, "a DOG runs", "A tree.", Pair(None, "A cat runs", "b", "2")], asked, "four texts")
    assert corpus.captions == ("A tree.",) and corpus.left_out == 4
    assert {row["method"] for row in judge_blind({"toy": Choices(asked)}, corpus.captions)} == {
        "chance",
        "blind_length",
        "blind_ngram",
    }
    pixels = np.full((4, 4, 3), 7, np.uint8)
    copies = [
        Pair(pixels.copy(), "Another caption of that photo.", "c", "1"),
        Pair(pixels + 1, "Of another photo.", "d", "2"),
    ]
    assert Corpus.collect(copies, [Pair(pixels, "Its caption.", "e", "1.jpg")], "copies").captions == (
        "Of another photo.",
    )
    empty = Corpus("no run of these models has captions")
    assert {row["method"] for row in judge_blind({"toy": Choices(asked)}, empty.captions)} == {"chance", "blind_length"}
    assert str(empty) == "no n-gram baseline: no run of these models has captions"


@pytest.mark.parametrize(("policy", "left", "dropped"), [("drop", ["1"], 2), ("keep", ["0", "1", "2"], 0)])
def test_training_data_lose_what_the_questions_share(policy, left, dropped, capsys):
    """The same photo is leakage, an equal caption of another photo a coincidence; both are counted apart, named and
    written down."""
    photos = [np.full((8, 8, 3), level, np.uint8) for level in (0, 80, 160, 240)]
    train = [
        Pair(photo, text, str(k), f"photo {k}")
        for k, (photo, text) in enumerate(zip(photos, ("A wave.", "A dog.", "A cat.")))
    ]
    bench = {
        "toy": Choices(
            [
                Choice("swap", (photos[2],), ("a tree", "a bush"), "q0"),
                Choice("swap", (photos[3],), ("a wave", "a sea"), "q1"),
            ]
        )
    }
    source, pairs, facts = disjoint_training({"name": "folder", "args": {"folder": "x"}}, train, bench, policy)
    assert [pair.id for pair in pairs] == left and facts["dropped"] == dropped and facts["policy"] == policy
    assert facts["image_pairs"] == ["2"] and facts["caption_pairs"] == {"0": "A wave."}
    assert (
        "1 training pairs share a photo with the evaluation (2), 1 only a caption (0 'A wave.')"
        in capsys.readouterr().out
    )
    expected = {
        "name": "disjoint",
        "args": {"source": {"name": "folder", "args": {"folder": "x"}}, "exclude": ["2", "0"]},
    }
    assert source == (expected if dropped else expected["args"]["source"])
    with pytest.raises(ValueError, match='take them out with overlap="drop"'):
        disjoint_training({"name": "folder"}, train, bench, "refuse")


# real files


@pytest.mark.real
def test_real_sugarcrepe_through_a_real_model(model, real_data):
    where = {"folder": f"{real_data}/sugarcrepe", "images": f"{real_data}/coco/val2017"}

    def strict(rows):
        return [row for row in rows if row["metric"] == "accuracy"]

    rows = strict(sugarcrepe_monitor(model, **where, seed=1, method="clip"))
    assert [r["split"] for r in rows][-1] == "mean" and len(rows) == 8 and rows[-1]["n"] == 286
    few = strict(sugarcrepe_monitor(model, **where, n=5))
    assert all(r["n"] == 5 for r in few[:-1])


@pytest.mark.real
def test_real_nlvr_blind_baselines_stay_near_the_majority(real_data):
    claims = read_claims(real_data / "nlvr" / "dev", half="test", permutations=(0,))
    captions = [claim.sentence for claim in claims if claim.truth][:50]
    rows = {(r["method"], r["metric"]): r for r in judge_blind({"nlvr": Statements(claims)}, captions)}
    majority = rows["majority", "accuracy"]["value"]
    assert 0.5 <= majority < 0.65 and abs(rows["blind_length", "accuracy"]["value"] - majority) < 0.12
    assert rows["blind_length", "auc"]["n"] == len(claims) and 0.3 < rows["blind_ngram", "auc"]["value"] < 0.7


def test_statements_of_a_bench_come_with_the_majority():
    claims = [(f"sentence {i // 2}", f"{i}.png", bool(hashed(i, 1)[0] > -0.3)) for i in range(60)]
    rows = judge_blind({"toy": Statements(claims)}, ["sentence"])
    assert [(r["method"], r["metric"]) for r in rows] == [
        ("chance", "auc"),
        *[(method, metric) for method in ("blind_length", "blind_ngram") for metric in ("auc", "accuracy")],
        ("majority", "accuracy"),
    ]
    assert rows[0]["value"] == 0.5 and rows[0]["n"] == 60


def test_ngram_is_fitted_on_the_benchs_captions_alone():
    items = [Choice("s", ("x.jpg",), ("b a", "a b"), "0")]
    rows = judge_blind({"toy": Choices(items)}, ["b a", "b a c"])
    learned = {r["method"]: r for r in rows if r["metric"] == "accuracy"}
    assert (
        learned["blind_ngram"]["value"]
        == 1.0
        == evaluate_choices(NgramScorer.fit(["b a", "b a c"]), items)["right"].item()
    )


# --- held-out pairs


def test_held_out_losses_are_those_of_loops():
    """Equation 2 of Zhang et al. 2021 pair by pair; an equal caption is no rival."""
    pairs = world_from(WORLD).test[:9]
    pairs = [*pairs, Pair(pairs[0].image, pairs[1].caption, "twin", "twin")]
    scorer = random_scorer()
    images = scorer.encode_images(scorer.collate(pairs))
    texts = scorer.encode_texts(scorer.collate(pairs))
    scores = scorer.similarity(images, texts) / 0.2
    found = _held_out_losses(scorer, pairs, 0.2)
    for name, table in (("language_loss", scores), ("vision_loss", scores.T)):
        total = 0.0
        for i in range(10):
            rivals = [j for j in range(10) if j == i or pairs[j].caption != pairs[i].caption]
            total += float(table[i, rivals].logsumexp(0) - table[i, i]) / 10
        assert float(found[name]) == pytest.approx(total, rel=1e-4)


def test_held_out_pairs_are_encoded_in_batches_of_the_given_size():
    sizes = []

    class Counting(StandIn):
        def collate(self, pairs):
            sizes.append(len(pairs))
            return super().collate(pairs)

    source = {"name": "generated", "args": WORLD}
    held_out_monitor(Counting(hashed, hashed), source=source, n=9, batch_size=4, device="cpu")
    assert max(sizes) == 4


def test_held_out_captions_of_the_same_words_are_no_rivals():
    pairs = world_from(WORLD).test[:4]
    shouted = [*pairs[:3], replace(pairs[3], caption=f"  {pairs[0].caption.upper()}")]
    equal = [*pairs[:3], replace(pairs[3], caption=pairs[0].caption)]
    scorer = StandIn(hashed, lambda text: hashed(text.strip().lower()))
    a, b = (_held_out_losses(scorer, each, 0.2)["vision_loss"] for each in (shouted, equal))
    assert float(a) == pytest.approx(float(b), rel=1e-5)


def test_held_out_pairs_are_read_again_when_their_table_was_written_again(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    source = {"name": "folder", "args": {"folder": str(tmp_path)}}
    asked = []
    for caption in ("A goat.", "Two trams."):
        (tmp_path / "captions.csv").write_text(f"image,caption\na.png,{caption}\n")
        asked.append(monitors._held_out_pairs(json.dumps(source), 4, _file_states(source))[0].caption)
    assert asked == ["A goat.", "Two trams."]


def test_a_table_of_equal_size_and_time_is_another(tmp_path):
    """A copy keeps the times of its files, as `rsync -t` and `tar` do; a moved picture is no table."""
    table = tmp_path / "captions.csv"
    states = []
    for caption in ("A goat", "A tram", "A goat"):
        table.write_text(f"image,caption\na.png,{caption}\n")
        os.utime(table, (0, 0))
        states.append((_file_states(str(table)), _file_states({"args": {"folder": [str(tmp_path)]}})))
    assert states[0] == states[2] and not set(states[0]) & set(states[1])
    os.mkfifo(tmp_path / "pipe.csv")  # which nobody waits for
    (tmp_path / "link.csv").symlink_to(tmp_path / "nowhere.csv")
    names = [path for path, _ in _file_states(str(tmp_path))]
    assert names == [str(tmp_path), str(table), str(tmp_path / "pipe.csv")]


def test_a_model_with_relations_is_asked_about_held_out_triplets():
    """What the monitor says is what the objective says of the same triplets, and both say the same again."""
    world = WORLD | {"kinds": ["relation"]}
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    names = {
        "predicates": ["left of", "right of", "above", "below"],
        "objects": ["circle", "square", "triangle"],
        "heads": 2,
        "d": 8,
    }
    plain = {"kind": "grounded", "vision": tower | {"size": 32, "patch": 8}, "text": tower}
    tokenizer = WordTokenizer.fit(world_from(world).captions(100))
    source = {"name": "generated", "args": world}
    rows = {
        more: held_out_monitor(build(plain | ({"relations": names} if more else {}), tokenizer, 0), source=source, n=8)
        for more in (0, 1)
    }
    metrics = {more: {row["metric"] for row in lines} for more, lines in rows.items()}
    assert "relation_top1" not in metrics[0]
    assert metrics[1] >= metrics[0] | {"relation_top1", "relation_loss", "pair_loss", "object_loss"}
    model = build(plain | {"relations": names}, tokenizer, 0).eval()
    pairs = [pair for pair in world_from(world).test[:8] if pair_triplets(pair, tuple(names["predicates"]))]
    batch = model.collate.with_steps(
        TripletEncoder(tuple(names["predicates"]), tuple(names["objects"]), None, tokenizer=model.collate.tokenizer)
    )(pairs)
    expected = RelationGrounding()(model, batch)
    by_metric = {row["metric"]: row["value"] for row in rows[1]}
    for name in ("relation_loss", "pair_loss", "object_loss"):
        assert by_metric[name] == pytest.approx(float(expected[name]), rel=1e-4)


def test_what_is_held_out_of_a_study():
    world = {"name": "generated", "args": WORLD}
    photos = {"name": "coco", "args": {"images": "a"}}
    triplets = {"name": "visual_genome", "args": {"part": "test"}}
    assert held_out_settings(world, {}, n=5) == {
        "held_out": {"name": "held_out_monitor", "args": {"source": world, "n": 5}}
    }
    made = held_out_settings(photos, {"retrieval": {"name": "flickr", "args": {}}}, triplets)["held_out"]["args"]
    assert made == {"source": {"name": "flickr", "args": {}}, "n": 100, "triplets": triplets}
    assert held_out_settings(photos, {}) == {}


@pytest.mark.parametrize("learned", [0, 1, 2])
def test_knn_monitor_asks_each_stage_that_has_begun_and_all_of_them(learned):
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2, "patch": 8}
    model = build({"kind": "stages", "stages": 2, "vision": tower, "projection": 8})
    model.learned.fill_(learned)
    world = {"name": "trifeature", "args": {"samples": 2, "shapes": 3, "textures": 3, "colours": 4}}
    test = {"name": "trifeature", "args": world["args"] | {"part": "test"}}
    rows = knn_monitor(model, source=world, test=test, n=60, neighbours=5, seed=3, method="simclr")
    stage = min(learned, 1)
    places = [f"neighbours/stage {k}" for k in range(stage + 1)] + ["neighbours/all stages"] * (stage > 0)
    attributes = ("shape", "texture", "colour")
    assert [(r["data"], r["split"]) for r in rows] == [(place, name) for place in places for name in attributes]
    assert {(r["metric"], r["seed"], r["method"]) for r in rows} == {("knn_accuracy", 3, "simclr")}
    known, asked = (list(read(part["name"], **part["args"])) for part in (world, test))
    known, asked = drawn(known, 60), drawn(asked, 60)

    def vectors(pairs, k):
        return F.normalize(model.encode_stage(model.collate(pairs), k), dim=-1).numpy()

    for r in rows:
        stages = range(stage + 1) if r["data"].endswith("all stages") else [int(r["data"][-1])]
        fit, judged = (np.concatenate([vectors(some, k) for k in stages], 1) for some in (known, asked))
        votes = []
        for vector in judged:
            cosines = fit @ vector / np.linalg.norm(fit, axis=1) / np.linalg.norm(vector)
            sums = {}
            for k in np.argsort(-cosines)[:5]:
                value = known[k].labels[r["split"]]
                sums[value] = sums.get(value, 0) + np.exp(cosines[k] / 0.1)
            votes.append(max(sums, key=sums.get))
        truth = [pair.labels[r["split"]] for pair in asked]
        assert r["value"] == pytest.approx(np.mean([a == b for a, b in zip(votes, truth)]), abs=0.02)


def test_knn_monitor_guesses_a_fifth_of_its_source_and_needs_labels(tmp_path):
    model = build({"kind": "stages", "stages": 1, "vision": {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}})
    rows = knn_monitor(model, source={"name": "trifeature", "args": {"samples": 1}}, n=100)
    assert {r["n"] for r in rows} == {20}
    Image.new("RGB", (8, 8)).save(tmp_path / "a.jpg")
    (tmp_path / "captions.csv").write_text("image,caption\na.jpg,a dog\n")
    with pytest.raises(ValueError, match="folder has 0 labelled images, and neighbours are asked about labels"):
        knn_monitor(model, source={"name": "folder", "args": {"folder": str(tmp_path)}})


def test_an_image_with_several_captions_is_no_neighbour_of_itself(monkeypatch):
    draw = np.random.default_rng(0)
    images = draw.integers(0, 256, (40, 16, 16, 3), np.uint8)
    pairs = [Pair(images[k], None, f"{k}-{n}", str(k), labels=f"kind {k % 5}") for k in range(40) for n in range(5)]
    monkeypatch.setattr(monitors, "read", lambda name, **arguments: pairs)
    known = monitors._labelled_pairs(json.dumps({"name": "mine", "args": {"n": 1}}), 100)
    assert [pair.id for pair in known] == [f"{k}-0" for k in range(40)]
