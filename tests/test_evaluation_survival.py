"""Times until binding: Kaplan-Meier, medians, log-rank tests and ratios, against counts by hand."""

import numpy as np
import pandas as pd
import pytest

from complearn.evaluation.survival import binding_times, compare_times, median_time, survival_curve


def left_by_hand(times, bound, when):
    "The product over the times of events: the share of runs at risk that did not bind."
    left = 1.0
    for time in sorted({t for t, b in zip(times, bound) if b and t <= when}):
        at_risk = sum(t >= time for t in times)
        left *= 1 - sum(t == time and b for t, b in zip(times, bound)) / at_risk
    return left


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("runs", (1, 4, 9))
def test_the_share_left_is_that_of_kaplan_and_meier(seed, runs):
    generator = np.random.default_rng([seed, runs])
    times = generator.integers(1, 6, size=runs) * 25
    bound = generator.random(runs) < 0.6
    when, left = survival_curve(times, bound)
    assert when[0] == 0 and left[0] == 1
    np.testing.assert_allclose(left, [left_by_hand(times, bound, one) for one in when], atol=1e-12)
    reached = [one for one in sorted(set(times)) if left_by_hand(times, bound, one) <= 0.5 + 1e-12]
    assert median_time(times, bound) == (reached[0] if reached else np.inf)


def logrank_by_hand(first, second):
    "z of Mantel's test: observed minus expected events of the first group."
    events = sorted({t for t, b in [*first, *second] if b})
    observed = expected = variance = 0.0
    for time in events:
        a, n = sum(t >= time for t, _ in first), sum(t >= time for t, _ in [*first, *second])
        d = sum(t == time and b for t, b in [*first, *second])
        observed += sum(t == time and b for t, b in first)
        expected += d * a / n
        variance += d * (a / n) * (1 - a / n) * (n - d) / (n - 1) if n > 1 else 0.0
    return (observed - expected) / variance**0.5


def table_of(**columns):
    "Times and events of methods, one world each place."
    return pd.DataFrame(
        {"method": name, "seed": seed, "time": time, "bound": bound}
        for name, runs in columns.items()
        for seed, (time, bound) in enumerate(runs)
    )


def test_two_methods_are_compared_as_by_hand():
    from scipy.stats import norm

    fast = [(100, True), (125, True), (150, True), (150, True), (1000, False), (200, True)]
    slow = [(200, True), (300, True), (1000, False), (400, True), (1000, False), (350, True)]
    found = compare_times(table_of(fast=fast, slow=slow), "fast", "slow")
    assert (found.median, found.other, found.worlds) == (150, 350, 6) and found.ratio == 350 / 150
    assert found.p == pytest.approx(2 * norm.sf(abs(logrank_by_hand(fast, slow))))
    assert found.low <= found.ratio <= found.high
    back = compare_times(table_of(fast=fast, slow=slow), "slow", "fast")
    assert back.p == pytest.approx(found.p) and back.ratio == pytest.approx(1 / found.ratio)


def test_methods_that_mostly_never_bind_have_no_median():
    never, early = [(1000, False)] * 4, [(50, True)] * 4
    lost = compare_times(table_of(a=never, b=early), "a", "b")
    assert (lost.median, lost.other, lost.ratio, lost.low, lost.high) == (np.inf, 50, 0.0, 0.0, 0.0)
    won = compare_times(table_of(a=never, b=early), "b", "a")
    assert won.ratio == won.low == np.inf and won.p < 0.02
    nobody = compare_times(table_of(a=never, b=never), "a", "b")
    assert np.isnan([nobody.ratio, nobody.low, nobody.p]).all()


def test_only_worlds_that_both_have_are_compared():
    table = table_of(a=[(100, True)] * 5, b=[(200, True)] * 3)
    assert compare_times(table, "a", "b").worlds == 3
    with pytest.raises(ValueError, match="a and c share no world; measure both on the same seeds"):
        compare_times(table, "a", "c")


def test_evaluations_at_ends_of_phases_do_not_count():
    accuracy = {25: 0.5, 50: 0.9, 60: 0.9, 75: 0.5, 100: 0.9, 125: 0.9, 140: 0.9}
    place = {"method": "a", "seed": 0, "data": "generated/monitor", "split": "swap_obj", "metric": "accuracy"}
    looks = pd.DataFrame(
        place | {"step": step, "value": value, "low": value - 0.1, "high": 1.0, "ties": 0.0}
        for step, value in accuracy.items()
    )
    [line] = binding_times(looks, "swap_obj", 0.6, 25).itertuples()
    assert (line.time, line.bound) == (100, True)  # not step 50, which an evaluation outside the grid would confirm


def test_a_run_that_was_never_asked_is_named():
    line = {"method": "clip", "seed": 3, "step": 25, "split": "swap_att", "data": "generated/monitor", "value": 0.5}
    line |= {"metric": "accuracy", "low": 0.4, "high": 0.6, "n": 100}
    with pytest.raises(ValueError, match="clip, seed 3: it was never asked about swap_obj"):
        binding_times(pd.DataFrame([line]), "swap_obj", 0.5, 25)
