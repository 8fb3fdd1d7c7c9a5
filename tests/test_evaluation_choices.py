"Rules of the judge: ties, collapse, real text, distinct encoding, chance."

import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings, strategies as st
from PIL import Image
from stand_ins import StandIn, bag, bag_of_words, constant, hashed, random_scorer

from complearn.data.benchmarks.items import Choice
from complearn.data.pairs import Pair
from complearn.evaluation.blind import NgramScorer, group_chance
from complearn.evaluation.tasks.base import Score
from complearn.evaluation.tasks.choices import (
    METRICS,
    TIE,
    _blind_choices,
    _chance_scores,
    _summarise_choices,
    blind_flags,
    evaluate_choices,
    margins,
)
from complearn.evaluation.tasks.recognition import evaluate_zero_shot
from complearn.evaluation.tasks.retrieval import evaluate_retrieval
from complearn.language.lexicon.plausibility import NgramModel, caption_words
from complearn.models.scoring import Encoded


def text_items(n, split="swap_att"):
    return [
        Choice(split, (f"{split}{i}.jpg",), (f"right {split} {i}", f"wrong {split} {i}"), f"{split}{i}")
        for i in range(n)
    ]


def image_items(n, split="swap_att"):
    return [Choice(split, (f"{i}.jpg", f"{i}-not.jpg"), (f"caption {i}",), f"i{i}") for i in range(n)]


def groups(n, k=2):
    return [
        Choice("group", tuple(f"{i}-{j}.jpg" for j in range(k)), tuple(f"text {i}-{j}" for j in range(k)), f"g{i}")
        for i in range(n)
    ]


@pytest.mark.parametrize(
    "items", [text_items(7), image_items(7), groups(7), groups(5, 3)], ids=["text", "image", "group", "group of 3"]
)
def test_a_collapsed_model_scores_0_with_tie_rate_1(items):
    rows = _summarise_choices(evaluate_choices(constant(), items))
    assert {r.metric for r in rows} == set(METRICS[items[0].form])
    assert all(r.value == 0 and r.ties == 1 and r.n == len(items) for r in rows)


def test_collapse_up_to_rounding_is_collapse_too():
    def noise(x):
        return np.ones(8) + 1e-8 * hashed(x, 8)

    frame = evaluate_choices(StandIn(noise, noise), text_items(50) + groups(20))
    assert not frame["right"].any() and frame["tied"].all()


def test_a_perfect_model_scores_1_and_its_mirror_0():
    good = StandIn(lambda image: [1.0, 0.0], lambda text: [1.0, 0.0] if text.startswith("right") else [0.0, 1.0])
    bad = StandIn(lambda image: [0.0, 1.0], good.read)
    assert evaluate_choices(good, text_items(9))["right"].all()
    frame = evaluate_choices(bad, text_items(9))
    assert not frame["right"].any() and not frame["tied"].any() and (frame["margin"] < -0.9).all()


@pytest.mark.parametrize(
    "gap, right, tied", [(3e-6, True, False), (5e-7, False, True), (-5e-7, False, True), (-3e-6, False, False)]
)
def test_the_margin_is_one_in_a_million(gap, right, tied):
    table = {"right": 0.5 + gap, "wrong": 0.5}
    scorer = StandIn(lambda _: [1.0], lambda text: [table[text.split()[0]]])
    scorer.similarity = lambda images, texts, pairs: texts.values[torch.as_tensor(pairs)[:, 1], 0]
    frame = evaluate_choices(scorer, text_items(1))
    assert (frame["right"].item(), frame["tied"].item()) == (right, tied) and abs(frame["margin"].item() - gap) < 1e-7


def naive_group(s):
    n = len(s)
    text = all(s[i, i] > s[i, j] + TIE for i in range(n) for j in range(n) if i != j)
    image = all(s[i, i] > s[j, i] + TIE for i in range(n) for j in range(n) if i != j)
    return {"text_score": text, "image_score": image, "group_score": text and image}


@given(st.integers(2, 4), st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_margins_of_groups_against_winogrounds_definition(n, seed):
    scores = np.random.default_rng(seed).integers(0, 4, (n, n)) / 4
    assert {metric: margin > TIE for metric, margin in margins(scores).items()} == naive_group(scores)


def test_choices_against_a_naive_argmax():
    items = [Choice("s", (f"{i}.jpg",), tuple(f"{i}-{j}" for j in range(2 + i % 4)), str(i)) for i in range(200)]
    scorer = random_scorer()

    def unit(vector):
        return vector / np.linalg.norm(vector)

    frame = evaluate_choices(scorer, items, batch_size=7)
    naive = [np.argmax([unit(scorer.see(c.images[0])) @ unit(scorer.read(t)) for t in c.captions]) == 0 for c in items]
    assert frame["right"].tolist() == naive and 0.2 < frame["right"].mean() < 0.5


def test_each_distinct_image_and_caption_is_encoded_once():
    shared = [
        Choice(f"split{k}", ("one.jpg",), ("the same caption", f"negative {i}"), f"{k}-{i}")
        for k in range(3)
        for i in range(4)
    ] + [Choice("group", ("one.jpg", Path("two.jpg")), ("the same caption", "another"), "g")]
    scorer = random_scorer()
    frame = evaluate_choices(scorer, shared, batch_size=3)
    assert sorted(map(str, scorer.seen)) == ["one.jpg", "two.jpg"]
    assert len(scorer.read_texts) == len(set(scorer.read_texts)) == 6
    again = evaluate_choices(random_scorer(), shared[::-1])
    assert frame.set_index(["id", "metric"])["margin"].to_dict() == pytest.approx(
        again.set_index(["id", "metric"])["margin"].to_dict()
    )


def test_arrays_are_the_same_by_content_opened_pictures_by_image_id_or_object():
    array = np.zeros((4, 4, 3), np.uint8)
    picture = Image.new("RGB", (4, 4))
    copies = [
        [array.copy() for _ in range(3)],
        [picture.copy() for _ in range(3)],
        [picture.copy() for _ in range(3)],
        [picture] * 3,
    ]
    seen = []
    for images, ids in zip(copies, ((), ("photo",), (), ())):
        scorer = StandIn(lambda image: np.ones(4), lambda text: hashed(text, 4))
        evaluate_choices(scorer, [Choice("s", (image,), ("a", f"b{i}"), str(i), ids) for i, image in enumerate(images)])
        seen.append(len(scorer.seen))
    assert seen == [1, 1, 3, 1]


def test_different_arrays_are_never_taken_for_one_even_under_one_image_id():
    "A reader that gives two pictures one name must not turn an item into a tie."
    left = np.zeros((4, 4, 3), np.uint8)
    right = np.full((4, 4, 3), 255, np.uint8)
    scorer = StandIn(lambda image: [1.0, 0.0] if image.mean() else [0.0, 1.0], lambda text: [1.0, 0.0])
    frame = evaluate_choices(scorer, [Choice("s", (right, left), ("white",), "0", ("same", "same"))])
    assert frame["right"].all()


def test_broken_scores_and_malformed_items_are_errors_that_name_them():
    nan = StandIn(lambda image: np.full(4, np.nan), lambda text: np.ones(4))
    with pytest.raises(ValueError, match="not finite"):
        evaluate_choices(nan, text_items(3))
    with pytest.raises(ValueError, match="'x' of 'swap' has 2 images and 3 captions"):
        evaluate_choices(constant(), [Choice("swap", ("a", "b"), ("c", "d", "e"), "x")])
    with pytest.raises(ValueError, match="1 images and 1 captions"):
        evaluate_choices(constant(), [Choice("swap", ("a",), ("c",), "x")])
    with pytest.raises(ValueError, match="no choices"):
        evaluate_choices(constant(), [])


# rows


def frame_of(right, split, tied=None, photo=None, captions=None):
    n = len(right)
    columns = {
        "id": [f"{split}{i}" for i in range(n)],
        "split": split,
        "metric": "accuracy",
        "right": right,
        "tied": tied or [False] * n,
    }
    columns |= {"photo": range(n) if photo is None else photo, "captions": range(n) if captions is None else captions}
    return pd.DataFrame(columns | {"margin": 0.0, "credit": 0.5})


def test_rows_come_per_split_with_the_mean_over_splits_last():
    frame = pd.concat([frame_of([True] * 9 + [False], "small"), frame_of([False] * 150 + [True] * 50, "large")])
    rows = _summarise_choices(frame)
    assert [r.split for r in rows] == ["small", "large", "mean"]
    assert [r.value for r in rows] == pytest.approx([0.9, 0.25, 0.575]) and [r.n for r in rows] == [10, 200, 210]
    assert all(r.low < r.value < r.high for r in rows)
    assert all(isinstance(r, Score) for r in rows)


def test_the_means_interval_combines_the_splits_spreads():
    other = range(400, 500)  # neither a photo nor a caption of the first split
    frame = pd.concat(
        [
            frame_of(list(np.arange(400) < 200), "a"),
            frame_of(list(np.arange(100) < 50), "b", photo=other, captions=other),
        ]
    )
    low, high = (getattr(_summarise_choices(frame)[-1], key) for key in ("low", "high"))
    expected = 1.96 * np.sqrt(0.25 / 400 + 0.25 / 100) / 2
    assert abs((high - low) / 2 / expected - 1) < 0.06


def test_photos_that_come_back_in_another_split_are_no_new_evidence():
    right = list(np.arange(200) % 2 == 0)
    one = frame_of(right, "a")
    same = pd.concat([frame_of(right, "a"), frame_of(right, "b")])
    apart = pd.concat([frame_of(right, "a"), frame_of(right, "b", photo=range(200, 400), captions=range(200, 400))])
    alone, again, new = (_summarise_choices(frame)[-1] for frame in (one, same, apart))

    def width(score):
        return score.high - score.low

    assert width(again) == pytest.approx(width(alone), rel=0.05)
    assert width(new) == pytest.approx(width(alone) / 2**0.5, rel=0.08)
    assert (alone.groups, again.groups, new.groups, again.n) == (200, 200, 400, 400)


def test_items_of_one_photo_widen_the_interval():
    right = list(np.repeat(np.arange(40) < 20, 5))
    free, tied_up = (
        _summarise_choices(frame_of(right, "a", photo=photo))[0] for photo in (None, np.repeat(np.arange(40), 5))
    )
    assert (tied_up.high - tied_up.low) > 1.8 * (free.high - free.low) and free.value == tied_up.value


def test_intervals_are_those_of_a_naive_bootstrap_of_caption_pairs():
    draw = np.random.default_rng(0)
    pair = draw.integers(0, 30, 400)  # as in a small world: 400 questions, 30 caption pairs
    right = draw.random(400) < draw.beta(1, 1, 30)[pair]
    items = [
        Choice("swap", (f"{i}.jpg",), (f"a{k}", f"b{k}") if i % 2 else (f"b{k}", f"a{k}"), str(i))
        for i, k in enumerate(pair)
    ]
    frame = frame_of(list(right), "swap", captions=evaluate_choices(random_scorer(), items)["captions"])
    score = _summarise_choices(frame)[0]
    members = [np.flatnonzero(pair == k) for k in range(30)]
    naive = [right[np.concatenate([members[k] for k in draw.integers(0, 30, 30)])].mean() for _ in range(4000)]
    low, high = np.quantile(naive, [0.025, 0.975])
    assert abs(score.low - low) < 0.012 and abs(score.high - high) < 0.012 and (score.n, score.groups) == (400, 30)
    free = _summarise_choices(frame_of(list(right), "swap"))[0]
    assert score.high - score.low > 2 * (free.high - free.low) and free.groups == 400


def test_what_repeats_more_makes_the_groups():
    both_ways = [
        Choice("s", (a, b), (c,), c)
        for k in range(4)
        for a, b, c in ((f"{k}l", f"{k}r", f"l{k}"), (f"{k}r", f"{k}l", f"r{k}"))
    ]
    one_caption = [Choice("s", (f"{i}.jpg",), ("ab", "ba") if i % 2 else ("ba", "ab"), str(i)) for i in range(6)]
    one_photo = [Choice("s", ("photo.jpg",), (f"right {i}", f"wrong {i}"), str(i)) for i in range(6)]
    counts = [
        _summarise_choices(evaluate_choices(random_scorer(), items))[0].groups
        for items in (both_ways, one_caption, one_photo)
    ]
    assert counts == [4, 1, 1]


def test_questions_of_a_small_world_are_grouped_by_caption_pair():
    from complearn.evaluation.bench.worlds import world_bench
    from complearn.training.methods.scales import SCALES

    task = world_bench(SCALES["smoke"].world, 60, ("sugarcrepe",), retrieval=False)["generated/sugarcrepe"]
    for score in task.run(constant()):
        pairs = {frozenset(item.captions) for item in task.items() if item.split == score.split}
        assert score.split == "mean" or score.groups == len(pairs) <= score.n


def test_text_and_image_choices_are_never_averaged_together():
    rows = _summarise_choices(
        evaluate_choices(random_scorer(), text_items(5) + text_items(4, "b") + image_items(6) + groups(3))
    )
    assert [(r.metric, r.split, r.n) for r in rows] == [
        ("accuracy", "swap_att", 5), ("accuracy", "b", 4), ("accuracy", "mean", 9), ("image_accuracy", "swap_att", 6),
        ("text_score", "group", 3), ("image_score", "group", 3), ("group_score", "group", 3),
    ]  # fmt: skip


# blind


@pytest.mark.parametrize("n", [2, 3])
def test_group_chance_by_counting_every_order(n):
    solved = total = 0
    if n == 2:
        for order in itertools.permutations(range(4)):
            solved = solved + naive_group(np.array(order).reshape(2, 2))["group_score"]
            total = total + 1
        assert group_chance(2) == pytest.approx(solved / total)
    else:
        scores = np.random.default_rng(0).random((200_000, 3, 3))
        own = np.einsum("nii->ni", scores)
        share = ((scores.max(1) == own) & (scores.max(2) == own)).all(1).mean()
        assert group_chance(3) == pytest.approx(share, abs=0.002)


def test_chance_is_what_a_random_scorer_gets():
    items = text_items(1500) + image_items(1500) + groups(1500)
    expected = {(r.metric, r.split): r.value for r in _chance_scores(items)}
    assert expected["text_score", "group"] == expected["image_score", "group"] == 0.25
    for r in _summarise_choices(evaluate_choices(random_scorer(), items)):
        assert r.value == pytest.approx(expected[r.metric, r.split], abs=0.04) and r.ties == 0


def test_blind_scorers_never_look_and_never_prefer_an_image():
    scorer = NgramScorer.fit(["a cat sits", "a dog runs"])
    frame = evaluate_choices(scorer, image_items(5))
    assert frame["tied"].all() and not frame["right"].any() and (frame["credit"] == 0.5).all()
    unreadable = [Choice("s", (object(),), ("a cat sits", "sits cat a"), "0")]
    assert evaluate_choices(scorer, unreadable)["right"].all()


def test_ngram_model_against_a_naive_recursion_and_sums_to_one():
    captions = ["a red cube on a blue ball", "a blue cube", "the red ball on the cube", "a ball"]
    model = NgramModel(captions, 3)
    padded = [["<s>", "<s>", *caption_words(c), "</s>"] for c in captions]

    def following(past):
        return Counter(t[i] for t in padded for i in range(2, len(t)) if tuple(t[i - len(past) : i]) == past)

    def naive(word, past):
        lower = 1 / (len(model.vocabulary) + 1) if not past else naive(word, past[1:])
        if past == ():
            lower = 1 / (len(model.vocabulary) + 1)
        seen = following(past)
        total = sum(seen.values())
        kinds = len(seen)
        return (seen[word] + kinds * lower) / (total + kinds) if total else lower

    for past in [("<s>", "<s>"), ("<s>", "a"), ("on", "a"), ("never", "seen"), ("red", "cube"), ("zebra", "a")]:
        probabilities = [model.probability(w, past) for w in [*model.vocabulary, "zebra"]]
        assert sum(probabilities) == pytest.approx(1) and min(probabilities) > 0
        assert probabilities == pytest.approx([naive(w, past) for w in [*model.vocabulary, "zebra"]])


@pytest.mark.parametrize("order", [1, 2, 4])
def test_ngram_orders(order):
    model = NgramModel(["a b c", "a b d"], order)
    assert np.isfinite(model.log_likelihood("a b c z"))
    assert model.log_likelihood("a b c") >= model.log_likelihood("c b a")
    assert (model.log_likelihood("a b c") == pytest.approx(model.log_likelihood("c b a"))) == (order == 1)
    with pytest.raises(ValueError, match="at least one caption"):
        NgramModel([], order)


def give_away(n, how):
    right = [f"a thing number {i} on a table" for i in range(n)]
    return [Choice("s", (f"{i}.jpg",), (text, how(text, i)), str(i)) for i, text in enumerate(right)]


@pytest.mark.parametrize(
    "how, flagged",
    [
        (lambda text, i: text + " and more", True),  # longer: shorter is right
        (lambda text, i: text[:-8], True),  # shorter: a scorer that is reliably wrong gives it away too
        (lambda text, i: text.replace("thing", "stuff"), False),  # equally long
        (lambda text, i: text + " more" if i % 2 else text.replace(" on", ""), False),  # longer as often as shorter
    ],
)
def test_flags_of_length(how, flagged):
    rows = _blind_choices(give_away(120, how), ["an unrelated caption"])["blind_length"]
    flag = [r.value for r in rows if r.metric == "blind_flag"]
    assert flag == [float(flagged)]


def test_flag_needs_evidence():
    few = _blind_choices(give_away(4, lambda text, i: text.replace(" on", "") if i else text + " more"), ["x"])
    flags = [r for r in few["blind_length"] if r.metric == "blind_flag"]
    assert [r.value for r in flags] == [0.0] and blind_flags(flags, few["chance"]) == []


def test_ngram_solves_clumsy_negatives():
    captions = [
        f"a {a} {n} on the {p}"
        for a in ("red", "old", "big")
        for n in ("cat", "dog", "cup")
        for p in ("table", "floor", "bed")
    ]
    clumsy = [Choice("swap", (f"{i}.jpg",), (c, " ".join(reversed(c.split()))), str(i)) for i, c in enumerate(captions)]
    scores = _blind_choices(clumsy, captions[::2])
    values = {(method, r.metric): r.value for method, rows in scores.items() for r in rows}
    assert values["blind_ngram", "accuracy"] == 1.0 == values["blind_ngram", "blind_flag"]
    assert values["blind_length", "accuracy"] == 0.0 and values["blind_length", "accuracy_coin"] == 0.5


# real text


def records_of(file):
    records = json.loads(file.read_text())
    records = records.values() if isinstance(records, dict) else records
    return [
        Choice(file.stem, (r["filename"],), (r["caption"], r["negative_caption"]), f"{file.stem}{i}")
        for i, r in enumerate(records)
    ]


@pytest.mark.real
def test_equal_bags_of_words_tie_on_real_sugarcrepe(real_data):
    "SPEC: 164 of 245 swap_obj and 408 of 666 swap_att pairs of SugarCrepe are the same bag of words."
    items = []
    for split in ("swap_obj", "swap_att"):
        items += records_of(real_data / "sugarcrepe_text" / f"{split}.json")
    same = Counter(c.split for c in items if Counter(bag(c.captions[0])) == Counter(bag(c.captions[1])))
    rows = {r.split: r for r in _summarise_choices(evaluate_choices(bag_of_words(), items))}
    tied = {split: round(rows[split].ties * rows[split].n) for split in same}
    assert {split: rows[split].n for split in same} == {"swap_obj": 245, "swap_att": 666}
    assert tied == dict(same), "every equal bag ties although rounding differs, and nothing else does"
    assert tied == {"swap_obj": 164, "swap_att": 408}
    assert rows["swap_obj"].value <= (245 - 164) / 245


@pytest.mark.real
def test_blind_baselines_on_all_of_real_sugarcrepe(real_data):
    items = []
    for file in sorted((real_data / "sugarcrepe_text").glob("*.json")):
        items += records_of(file)
    assert len(items) == 7511
    coco = json.loads((real_data / "coco/annotations/captions_train2017.json").read_text())
    scores = _blind_choices(items, [a["caption"] for a in coco["annotations"]])
    values = {(method, r.split, r.metric): r.value for method, rows in scores.items() for r in rows}
    assert values["blind_length", "add_att", "blind_flag"] == 1.0, "an added attribute makes a caption longer"
    assert all(0 <= v <= 1 for v in values.values()) and len({split for _, split, _ in values}) == 8


@pytest.mark.gpu
def test_a_scorer_on_a_gpu_is_judged_as_on_the_cpu():
    class OnGpu(StandIn):
        def encode_images(self, batch):
            return super().encode_images(batch).to("cuda")

        def encode_texts(self, batch):
            return super().encode_texts(batch).to("cuda")

    items = text_items(50) + groups(20)
    cpu = random_scorer()
    gpu = OnGpu(cpu.see, cpu.read)
    a, b = (evaluate_choices(scorer, items) for scorer in (cpu, gpu))
    assert a["right"].equals(b["right"]) and np.allclose(a["margin"], b["margin"], atol=1e-6)
    pairs = [Pair(f"{i}.jpg", f"caption {i // 2}", str(i), str(i)) for i in range(40)]
    assert evaluate_retrieval(cpu, pairs).equals(evaluate_retrieval(gpu, pairs))
    labelled = [(f"{i}.jpg", i % 3) for i in range(30)]
    assert evaluate_zero_shot(cpu, labelled, ["a", "b", "c"]).equals(evaluate_zero_shot(gpu, labelled, ["a", "b", "c"]))


def test_ragged_encodings_and_pair_scorers_run_too():
    class Ragged(StandIn):
        def encode_texts(self, batch):
            longest = max(len(t.split()) for t in batch.captions)
            values = torch.zeros(len(batch), longest, 4)
            mask = torch.zeros(len(batch), longest, dtype=torch.bool)
            for i, text in enumerate(batch.captions):
                for j, word in enumerate(text.split()):
                    values[i, j] = torch.tensor(hashed(word, 4))
                    mask[i, j] = True
            return Encoded(values, mask)

        def similarity(self, images, texts, pairs=None):
            assert pairs is not None, "a cross-encoder scores only the pairs that a benchmark asks for"
            pairs = torch.as_tensor(pairs)
            dots = torch.einsum("pd,pkd->pk", images.values[pairs[:, 0]], texts.values[pairs[:, 1]])
            return dots.masked_fill(~texts.mask[pairs[:, 1]], -torch.inf).amax(1)

    items = [Choice("s", (f"{i}.jpg",), (f"one {i}", f"two words more {i}"), str(i)) for i in range(30)]
    frame = evaluate_choices(Ragged(lambda image: hashed(image, 4), None), items, batch_size=4)
    naive = [
        max(hashed(i.images[0], 4) @ hashed(w, 4) for w in i.captions[0].split())
        > max(hashed(i.images[0], 4) @ hashed(w, 4) for w in i.captions[1].split()) + TIE
        for i in items
    ]
    assert frame["right"].tolist() == naive
