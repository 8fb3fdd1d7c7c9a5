"""What blind features say of edits, and what is left when they are balanced."""

import numpy as np
import pytest

from complearn.language.edits.base import Edit
from complearn.language.lexicon.plausibility import (
    balance,
    blind_accuracy,
    blind_differences,
    filter_models,
    plausible_edits,
    rank_edits,
)


@pytest.mark.parametrize("seed", range(5))
def test_after_balancing_each_feature_points_nowhere(seed):
    generator = np.random.default_rng(seed)
    differences = np.stack(
        [generator.integers(-1, 3, 3000), generator.normal(1, 3, 3000), generator.normal(-0.5, 1, 3000)], axis=1
    )
    # a second model that sees nearly the same
    differences = np.c_[differences, differences[:, 2] + generator.normal(0, 0.5, 3000)]
    kept = balance(differences, seed)
    assert len(kept) > 300 and list(kept) == sorted(set(kept)) and list(kept) == list(balance(differences, seed))
    assert abs(blind_accuracy(differences)[2] - 0.5) > 0.1
    assert np.allclose(blind_accuracy(differences[kept]), 0.5)


def test_edits_that_are_all_less_likely_are_all_left_out():
    models = filter_models(["a man rides a horse"] * 3)
    assert [model.totals[()] for model in models] == [12, 6]  # words and ends of two captions, and of one
    assert len(filter_models(["a man rides a horse"])) == 2
    edits = [Edit("a horse rides a man", "swap_obj", (), "a man rides a horse")] * 4
    assert list(plausible_edits(edits, models)) == list(plausible_edits([], models)) == []
    assert blind_differences([], *models).shape == (0, 4) and len(balance(np.zeros((0, 3)))) == 0


def test_what_stays_hangs_on_the_texts_and_not_on_the_order():
    generator = np.random.default_rng(0)
    nouns = "dog cat horse cow goat man woman child bird sheep".split()
    drawn = [generator.choice(nouns, 3, replace=False) for _ in range(300)]
    texts = [(f"a {a} sees a {b}", f"a {c} sees a {b}") for a, b, c in drawn]
    texts += texts[:20]  # of another image
    images = [f"{k}.jpg" for k in range(len(texts))]
    corpus = [f"a {a} sees a {b}" for a, b, _ in (generator.choice(nouns, 3) for _ in range(99))]

    def stay(order, seed=0, corpus=corpus):
        edits = [Edit(texts[k][1], "replace_obj", (), texts[k][0]) for k in order]
        numbers = plausible_edits(edits, filter_models(corpus), seed, [images[k] for k in order])
        return {order[number] for number in numbers}

    order = list(range(len(texts)))
    kept = stay(order)
    assert 50 < len(kept) < 300
    for seed in range(3):
        shuffled = list(np.random.default_rng(seed).permutation(len(texts)))
        assert stay(shuffled) == kept == stay(order, corpus=list(np.random.default_rng(seed).permutation(corpus)))
    assert stay(order, 1) != kept
    renamed = [f"photos/{name}" for name in images]
    images[:] = renamed
    assert {texts[k] for k in stay(order)} == {texts[k] for k in kept}


def test_a_score_for_each_edit_is_needed():
    with pytest.raises(ValueError, match="1 edits and 2 scores"):
        rank_edits([Edit("a dog", "replace_obj", (), "a cat")], [0.1, 0.2])
