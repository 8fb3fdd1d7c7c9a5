"""Measures of a language's structure, against loops and in languages whose structure is known"""

import itertools
import math
from collections import Counter

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.evaluation.bench.bench import judge
from complearn.evaluation.bench.worlds import world_structure
from complearn.evaluation.tasks.structure import (
    Structure,
    additive_error,
    bag_disentanglement,
    meaning_table,
    positional_disentanglement,
    topographic_similarity,
)
from complearn.models.dual import build_model
from complearn.models.scoring import Encoded

DICE = np.random.default_rng(0)
GRID = [{"colour": c, "shape": s} for c in range(5) for s in range(4)]
TOWER = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}


def random_language(items, places, words, width, seed):
    dice = np.random.default_rng(seed)
    return dice.integers(0, words, (items, places)), dice.normal(size=(items, width))


@pytest.mark.parametrize("items,places,words,width", [(6, 1, 3, 2), (15, 2, 4, 5), (30, 3, 2, 8)])
@pytest.mark.parametrize("seed", (0, 1))
def test_topographic_similarity_is_spearman_over_pairs(items, places, words, width, seed):
    meanings, vectors = random_language(items, places, words, width, seed)
    far, apart = [], []
    for i, j in itertools.combinations(range(items), 2):
        far.append(sum(meanings[i, k] != meanings[j, k] for k in range(places)))
        a, b = vectors[i], vectors[j]
        apart.append(1 - a @ b / math.sqrt((a @ a) * (b @ b)))
    assert topographic_similarity(meanings, vectors) == pytest.approx(spearmanr(far, apart)[0], abs=1e-6)


def test_equal_messages_have_no_similarity():
    assert topographic_similarity(meaning_table(GRID), np.ones((20, 3))) is None


def plain_entropy(values):
    return -sum(n / len(values) * math.log(n / len(values)) for n in Counter(values).values())


@pytest.mark.parametrize("items,places,words,positions", [(8, 2, 2, 1), (20, 2, 4, 3), (40, 3, 3, 5)])
@pytest.mark.parametrize("seed", (0, 1))
def test_disentanglement_is_the_gap_of_informations(items, places, words, positions, seed):
    meanings = random_language(items, places, words, 1, seed)[0]
    symbols = np.random.default_rng(seed + 9).integers(0, 3, (items, positions))
    symbols[:, 0] = meanings[:, 0]
    gaps = []
    for j in range(positions):
        informations = []
        for i in range(places):
            both = list(zip(meanings[:, i].tolist(), symbols[:, j].tolist()))
            separate = plain_entropy([a for a, _ in both]) + plain_entropy([b for _, b in both])
            informations.append(separate - plain_entropy(both))
        first, second = sorted(informations, reverse=True)[:2]
        gaps.append((first - second) / plain_entropy(symbols[:, j].tolist()))
    assert positional_disentanglement(meanings, symbols) == pytest.approx(np.mean(gaps), abs=1e-9)
    constant = np.concatenate([symbols, np.zeros((items, 1), int)], 1)
    assert positional_disentanglement(meanings, constant) == pytest.approx(np.mean(gaps), abs=1e-9)


def test_positions_and_bags_tell_two_languages_apart():
    table = meaning_table(GRID)
    said = [[("c", a), ("s", b)] for a, b in table.tolist()]  # colour first, shape second
    shuffled = [pair[::-1] if (a + b) % 2 else pair for pair, (a, b) in zip(said, table.tolist())]
    symbols = list(dict.fromkeys(symbol for pair in said for symbol in pair))

    def positions(language):
        return np.array([[symbols.index(symbol) for symbol in message] for message in language])

    def counts(language):
        return np.array([[message.count(symbol) for symbol in symbols] for message in language])

    assert positional_disentanglement(table, positions(said)) == pytest.approx(1)
    assert bag_disentanglement(table, counts(said)) == pytest.approx(1)
    assert positional_disentanglement(table, positions(shuffled)) < 0.6  # free word order
    assert bag_disentanglement(table, counts(shuffled)) == pytest.approx(1)  # a bag does not see it
    assert bag_disentanglement(table, np.ones((20, 3), int)) is None


@pytest.mark.parametrize("noise", (0.0, 0.3, 3.0))
def test_the_additive_error_is_the_share_of_variance_that_no_sum_explains(noise):
    table = meaning_table(GRID)
    parts = DICE.normal(size=(9, 7))
    vectors = parts[table[:, 0]] + parts[5 + table[:, 1]] + noise * DICE.normal(size=(20, 7))
    # two-way means are the least squares of a full table
    rows, columns = (np.array([vectors[table[:, side] == k].mean(0) for k in range(n)]) for side, n in ((0, 5), (1, 4)))
    sums = rows[table[:, 0]] + columns[table[:, 1]] - vectors.mean(0)
    expected = ((vectors - sums) ** 2).sum() / ((vectors - vectors.mean(0)) ** 2).sum()
    assert additive_error(table, vectors) == pytest.approx(expected, abs=1e-9)


def test_the_additive_error_of_new_combinations_is_asked_of_them_alone():
    table = meaning_table(GRID)
    new = np.isin(np.arange(20), (0, 5, 10, 15))
    parts = DICE.normal(size=(9, 7))
    sums = parts[table[:, 0]] + parts[5 + table[:, 1]]
    broken = np.where(new[:, None], DICE.normal(size=(20, 7)), sums)
    assert additive_error(table, sums, new) < 1e-12 and additive_error(table, broken, new) > 0.5
    alone = np.arange(20) < 4  # a colour that no fitted message says
    assert additive_error(table, sums, alone) is None and additive_error(table, np.ones((20, 7))) is None


class Speaker:
    "A scorer whose vectors are sums of one vector for each word; its pictures are the captions."

    def __init__(self):
        self.vectors = {}

    def collate(self, pairs):
        class Texts(list):
            def to(self, device):
                return self

        return Texts(pair.caption or pair.image for pair in pairs)

    def _encode(self, batch):
        for word in " ".join(batch).split():
            self.vectors.setdefault(word, np.eye(40)[len(self.vectors)])
        return Encoded(torch.tensor(np.array([sum(self.vectors[w] for w in text.split()) for text in batch])))

    encode_images = encode_texts = _encode


def test_a_speaker_of_sums_is_regular_and_a_model_without_schooling_less_so():
    meanings = [{"colour": f"c{m['colour']}", "shape": f"s{m['shape']}"} for m in GRID for _ in range(2)]
    captions = [" ".join(meaning.values()) for meaning in meanings]
    pairs = [Pair(text, text, str(k), str(k)) for k, text in enumerate(captions)]
    new = [k // 2 in (0, 5, 10, 15) for k in range(40)]
    found = {(s.split, s.metric): s for s in Structure(pairs, meanings, new).run(Speaker())}
    assert len(found) == 8 and {score.n for score in found.values()} == {20}
    for side in ("text", "image"):
        assert found[side, "topographic_similarity"].value == pytest.approx(1)
        assert found[side, "additive_error"].value == pytest.approx(0, abs=1e-9)
        assert found[side, "additive_error_unseen"].value == pytest.approx(0, abs=1e-9)
    with pytest.raises(ValueError, match="got 40 pairs, 39 meanings, 0 marks"):
        Structure(pairs, meanings[1:])


@pytest.mark.parametrize("codes", (0, 32))
def test_a_world_is_asked_of_any_model(codes):
    world = world_from({"kinds": ["attribute"], "objects": [1, 1], "split": "systematic", "n_test": 40, "seed": 3})
    bench = world_structure(world, 30)
    task = bench["generated/structure"]
    assert len(task.pairs) == 60 and [*task.unseen] == [False] * 30 + [True] * 30
    assert all(
        set(map(str, meaning.values())) <= set(pair.caption.split()) for pair, meaning in zip(task.pairs, task.meanings)
    )
    tokenizer = WordTokenizer.fit(world.captions(100))
    config = {"vision": TOWER | {"size": 32, "patch": 8}, "text": TOWER} | (
        {"codebook": {"codes": codes}} if codes else {}
    )
    model = build_model(config, tokenizer, seed=0)
    if codes:
        model.calibrate(model.collate(task.pairs[:8]))
    rows = judge(model, bench, "untrained")
    values = {(row["split"], row["metric"]): row["value"] for row in rows}
    assert ("text", "bag_disentanglement") in values if codes else ("text", "bag_disentanglement") not in values
    assert -1 <= values["text", "topographic_similarity"] <= 1 and values["image", "additive_error"] <= 1
