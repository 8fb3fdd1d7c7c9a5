"""Code purity against scikit-learn and closed forms; the p-values' level under no association."""

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import mutual_info_score

from complearn.analysis.codes.purity import (
    _exact_p,
    _shuffled_best,
    attribute_table,
    firing_matrix,
    mutual_information,
    purity,
    purity_rows,
)
from complearn.analysis.codes.tables import CodeTally


@pytest.mark.parametrize("items", [1, 7, 400])
@pytest.mark.parametrize("rate", [0.02, 0.5, 0.97])
def test_mutual_information_is_scikit_learns(items, rate):
    order = np.random.default_rng(items)
    fires = order.random((items, 5)) < rate
    has = order.random((items, 4)) < 0.3
    ours = mutual_information(fires, has)
    theirs = [[mutual_info_score(fires[:, c], has[:, a]) / np.log(2) for a in range(4)] for c in range(5)]
    assert np.allclose(ours, theirs, atol=1e-9)


def test_mutual_information_is_symmetric_and_bounded_by_entropy():
    order = np.random.default_rng(0)
    a = order.random((300, 6)) < 0.4
    b = order.random((300, 3)) < 0.2
    assert np.allclose(mutual_information(a, b), mutual_information(b, a).T)
    own = np.diag(mutual_information(a, a))
    assert np.allclose(own, stats.entropy([a.mean(0), 1 - a.mean(0)], base=2))
    assert (mutual_information(a, b).max(1) <= own + 1e-12).all()
    assert np.allclose(mutual_information(a, b), mutual_information(~a, b)), "silence says as much as firing"


def test_lines_must_agree():
    with pytest.raises(
        (ValueError, TypeError), match="3 lines of codes, 4 of attributes|mutual_information"
    ):  # the shape check comes first in tests
        mutual_information(np.ones((3, 1), bool), np.ones((4, 1), bool))


def test_shuffling_keeps_what_goes_together_and_is_reproducible():
    order = np.random.default_rng(1)
    fires = order.random((100, 3)) < 0.5
    has = order.random((100, 2)) < 0.5
    assert (_shuffled_best(fires, has, 5, 3) == _shuffled_best(fires, has, 5, 3)).all()
    assert not (_shuffled_best(fires, has, 5, 3) == _shuffled_best(fires, has, 5, 4)).all()
    one = _shuffled_best(fires, np.repeat(has[:, :1], 20, axis=1), 50)
    assert np.allclose(one, _shuffled_best(fires, has[:, :1], 50)), (
        "twenty copies of an attribute are one attribute, and cost nothing"
    )


def test_codes_that_mean_nothing_are_seldom_pure():
    order = np.random.default_rng(2)
    fires = order.random((300, 400)) < 0.3
    has = order.random((300, 10)) < 0.4
    told = purity(fires, [str(k) for k in range(10)], has, draws=200)
    assert abs(told.purity.mean()) < 0.002, "no purity on average where there is none"
    assert (told.p <= 0.05).mean() < 0.07 and told.pure.mean() < 0.01


def test_a_few_pure_codes_among_many_are_all_found():
    """Thirty copies of an attribute among 400 codes: a p-value with a floor would find none of them."""
    order = np.random.default_rng(5)
    has = order.random((300, 10)) < 0.4
    fires = order.random((300, 400)) < 0.3
    fires[:, :30] = has[:, :1]
    told = purity(fires, [str(k) for k in range(10)], has, draws=5)
    assert told.pure[:30].all() and told.pure[30:].mean() < 0.02


def test_exact_p_is_fishers_test():
    order = np.random.default_rng(6)
    fires = order.random((40, 3)) < 0.4
    has = order.random((40, 1)) < 0.5
    for code in range(3):
        a = fires[:, code]
        b = has[:, 0]
        cells = [[(a & b).sum(), (a & ~b).sum()], [(~a & b).sum(), (~a & ~b).sum()]]
        tails = [stats.fisher_exact(cells, side).pvalue for side in ("less", "greater")]
        assert np.isclose(_exact_p(fires, has)[code], min(1, 2 * min(tails)))


def test_a_perfect_code_is_found_and_its_share_is_one():
    order = np.random.default_rng(3)
    has = order.random((500, 6)) < 0.3
    told = purity(np.concatenate([has, ~has[:, :1]], axis=1), list("abcdef"), has, draws=50)
    assert told.attribute.tolist() == [*"abcdef", "a"]
    assert told.pure.all()
    assert (told.share > 0.97).all()
    assert (told.share <= 1).all()
    rows = {r["metric"]: r for r in purity_rows(told, 14, "m", 0, "interact-01", 10)}
    assert rows["codes_alive"]["value"] == 7
    assert np.isclose(rows["purity_all_bits"]["value"], rows["purity_bits"]["value"] / 2)
    assert rows["pure_codes"]["value"] == 1
    assert rows["purity_bits"]["low"] <= rows["purity_bits"]["value"] <= rows["purity_bits"]["high"]


def test_dead_codes_and_missing_attributes_are_errors():
    with pytest.raises(ValueError, match="none of 2 codes tells pictures apart"):
        purity(np.array([[True, False]] * 30), ["a"], np.ones((30, 1), bool))
    with pytest.raises(ValueError, match="no attribute is in at least 10 of 12 pictures"):
        attribute_table([{"a"}] * 12)


def test_fires_are_all_weights_or_an_error():
    import torch

    weights = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    tables = {}
    for heaviest in (2, 3):
        tally = CodeTally(2, heaviest)
        tally.add(weights, weights, torch.zeros(2, 3, dtype=torch.long))
        tables[heaviest] = tally.table(side="image")
    assert (firing_matrix(tables[3]) == (weights > 0).numpy()).all()
    with pytest.raises(ValueError, match="kept 2 codes per item and some use 3"):
        firing_matrix(tables[2])
