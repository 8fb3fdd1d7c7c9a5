"""Compound divergence against the definition, and the sign of its selection."""

from collections import Counter

import numpy as np
import pytest

from complearn.data.divergence import compound_divergence, contributions, divergence_windows, most_divergent


def draw(seed, n, kinds=6):
    source = np.random.default_rng(seed)
    return [Counter(source.choice(kinds, source.integers(1, 5), p=source.dirichlet(np.ones(kinds))).tolist()) for _ in range(n)]


def total(some):
    return sum((Counter(one) for one in some), Counter())


@pytest.mark.parametrize("a", [0.1, 0.5, 0.9])
def test_divergence_is_its_definition(a):
    p, q = total(draw(0, 40)), total(draw(1, 30, kinds=8))
    keys = set(p) | set(q)
    value = 1 - sum((p[k] / sum(p.values())) ** a * (q[k] / sum(q.values())) ** (1 - a) for k in keys)
    assert compound_divergence(p, q, a) == pytest.approx(value)
    assert compound_divergence(p, p, a) == pytest.approx(0)


def test_divergence_at_its_ends():
    assert compound_divergence({}, {"a": 1}) == compound_divergence({"a": 1}, {}) == compound_divergence({"a": 1}, {"b": 1}) == 1.0
    assert compound_divergence({"a": 99, "b": 1}, {"b": 1}) < compound_divergence({"a": 99}, {"b": 1})


def test_divergence_is_not_symmetric():
    common, rare = {"a": 9, "b": 1}, {"a": 1, "c": 9}
    assert compound_divergence(common, rare) != pytest.approx(compound_divergence(rare, common))


@pytest.mark.parametrize("seed", range(5))
def test_contributions_are_leave_one_out(seed):
    train, candidates = total(draw(seed, 30)), draw(seed + 10, 12, kinds=9)
    everything = total(candidates)
    slow = [compound_divergence(train, everything) - compound_divergence(train, everything - one) for one in candidates]
    assert contributions(train, candidates) == pytest.approx(np.array(slow), abs=1e-9)


def test_a_single_candidate_and_an_empty_one():
    assert contributions({"a": 1}, [{"a": 1}]) == pytest.approx([-1.0])  # without it nothing is left, and nothing diverges fully
    assert contributions({"a": 1}, [{"a": 1}, {}, {"b": 1}])[1] == pytest.approx(0.0)
    assert contributions({}, [{"a": 1}, {"b": 1}]) == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_the_sign_what_is_kept_diverges_more_than_all_and_what_is_dropped_less(seed):
    train, candidates = total(draw(seed, 200, kinds=4)), draw(seed + 50, 300, kinds=8)
    kept = most_divergent(train, candidates, 100)
    dropped = sorted(set(range(300)) - set(kept.tolist()))
    levels = [compound_divergence(train, total(candidates[k] for k in some)) for some in (kept, range(300), dropped)]
    assert levels[0] > levels[1] + 0.02 > levels[2] + 0.02


def test_unknown_primitives_are_dropped_first():
    train, candidates = {"a": 5}, [{"b": 1}, {"c": 1}, {"a": 1}]
    assert most_divergent(train, candidates, 3, ["x"], [["x"], ["y"], ["x"]]).tolist() == [0, 2]
    assert sorted(most_divergent(train, candidates, 3).tolist()) == [0, 1, 2]


def test_windows_fall_and_have_their_size():
    train, candidates = total(draw(3, 200, kinds=4)), draw(4, 400, kinds=9)
    windows = divergence_windows(train, candidates, 8, 100)
    levels = [level for level, _ in windows]
    assert len(windows) == 8 and all(len(set(places.tolist())) == 100 for _, places in windows)
    assert levels[0] > levels[-1] + 0.1 and np.corrcoef(levels, np.arange(8))[0, 1] < -0.9
    with pytest.raises(ValueError, match="windows of 500 candidates.*there are 400"):
        divergence_windows(train, candidates, 8, 500)
