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
    assert plausible_edits(edits, models) == [] and plausible_edits([], models) == []
    assert blind_differences([], *models).shape == (0, 4) and len(balance(np.zeros((0, 3)))) == 0


def test_a_score_for_each_edit_is_needed():
    with pytest.raises(ValueError, match="1 edits and 2 scores"):
        rank_edits([Edit("a dog", "replace_obj", (), "a cat")], [0.1, 0.2])
