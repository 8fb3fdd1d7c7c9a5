"Oracles for intervals and paired tests: scipy, itertools, known coverage."

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from complearn.core.results import row
from complearn.evaluation.statistics import (
    _detectable_difference,
    _last_evaluations,
    _sign_flip,
    bootstrap_interval,
    bootstrap_means,
    comparison,
    comparisons,
    difference_table,
    paired_power,
    paired_test,
    pairs_needed,
    share_interval,
    wilson,
)


@pytest.mark.parametrize("kind", ["binary", "continuous", "few"])
@pytest.mark.parametrize("n", [12, 150])
def test_bootstrap_interval_is_scipys_percentile_interval(kind, n):
    draw = np.random.default_rng(n)
    values = {"binary": draw.random(n) < 0.7, "continuous": draw.normal(size=n), "few": draw.integers(0, 4, n)}[
        kind
    ].astype(float)
    ours = bootstrap_interval(values, draws=20_000)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=20_000, rng=1).confidence_interval
    # a mean of whole numbers moves in steps of 1/n
    slack = 0.1 * values.std() / np.sqrt(n) + (kind != "continuous") / n + 1e-9
    assert abs(ours[0] - theirs.low) < slack and abs(ours[1] - theirs.high) < slack


def test_bootstrap_of_a_mean_has_the_exact_binomial_law():
    means = bootstrap_means([True] * 6 + [False] * 4, draws=200_000) * 10
    shares = np.bincount(np.round(means).astype(int), minlength=11) / len(means)
    assert np.abs(shares - stats.binom.pmf(np.arange(11), 10, 0.6)).max() < 0.005


def test_cluster_bootstrap_equals_a_naive_one():
    draw = np.random.default_rng(3)
    groups = draw.integers(0, 25, 120)
    values = draw.normal(size=120) + groups / 5
    members = [np.flatnonzero(groups == g) for g in np.unique(groups)]
    naive = [
        values[np.concatenate([members[k] for k in draw.integers(0, len(members), len(members))])].mean()
        for _ in range(6000)
    ]
    ours = bootstrap_means(values, 6000, groups=groups)
    assert abs(ours.std() / np.std(naive) - 1) < 0.05 and abs(ours.mean() - np.mean(naive)) < 0.05
    assert ours.std() > 1.5 * bootstrap_means(values, 6000).std(), "clusters must widen the interval here"


def test_bootstrap_depends_on_its_seed_alone():
    values = np.random.default_rng(0).random(50)
    assert (
        bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1) != bootstrap_interval(values, seed=2)
    )


@pytest.mark.parametrize("values", [[], [1.0, float("nan")], [float("inf")]])
def test_bootstrap_refuses_what_has_no_mean(values):
    with pytest.raises(ValueError, match="finite"):
        bootstrap_interval(values)


def test_bootstrap_names_a_wrong_number_of_groups():
    with pytest.raises(ValueError, match="3 values, 2 groups"):
        bootstrap_interval([1, 2, 3], groups=[0, 1])


@given(n=st.integers(1, 400), share=st.floats(0, 1), level=st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=60, deadline=None)
def test_wilson_is_scipys(n, share, level):
    k = round(share * n)
    theirs = stats.binomtest(k, n).proportion_ci(level, method="wilson")
    assert wilson(k, n, level) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@pytest.mark.parametrize("n", [1, 6, 20, 333])
def test_wilson_holds_the_share_at_both_ends(n):
    assert wilson(0, n)[0] == 0.0 and wilson(n, n)[1] == 1.0 and wilson(0, n)[1] > 0 and wilson(n, n)[0] < 1


def test_share_interval_never_claims_certainty():
    for values, value in (([1.0] * 20, 1.0), ([0.0] * 20, 0.0)):
        low, high = share_interval(bootstrap_means(values), value, 20)
        assert high - low > 0.1 and low <= value <= high


def test_intervals_cover_as_they_say():
    draw = np.random.default_rng(0)
    hits = 0
    for trial in range(300):
        right = draw.random(200) < 0.7
        low, high = share_interval(bootstrap_means(right, 1000, trial), right.mean(), 200)
        hits += low <= 0.7 <= high
    assert 0.90 < hits / 300 < 0.985


@pytest.mark.parametrize("n", [2, 3, 5, 8, 14])
def test_paired_test_against_scipy_and_all_sign_patterns(n):
    draw = np.random.default_rng(n)
    a = draw.normal(size=n) + 0.4
    b = draw.normal(size=n)
    ours = paired_test(a, b)
    theirs = stats.ttest_rel(a, b)
    assert ours.n == n and ours.p_t == pytest.approx(theirs.pvalue) and ours.t == pytest.approx(theirs.statistic)
    assert (ours.low, ours.high) == pytest.approx(tuple(theirs.confidence_interval(0.95)))
    d = a - b
    naive = np.mean([abs(np.dot(s, d)) >= abs(d.sum()) - 1e-12 for s in itertools.product((1, -1), repeat=n)])
    assert ours.p_sign == pytest.approx(naive) and ours.exact and ours.p_floor == 2 / 2**n <= ours.p_sign


def test_sampled_sign_flip_agrees_with_scipys_and_is_never_zero():
    d = np.random.default_rng(4).normal(size=40) + 0.25
    ours, exact = _sign_flip(d)
    theirs = stats.permutation_test((d,), np.mean, permutation_type="samples", n_resamples=50_000, rng=0).pvalue
    assert not exact and abs(ours - theirs) < 0.01
    assert _sign_flip(np.ones(40))[0] == pytest.approx(1 / 100_001)


def test_one_seed_and_equal_differences_claim_nothing():
    one = paired_test([0.9], [0.4])
    assert (one.n, one.low, one.high, one.p_t, one.p_sign) == (1, None, None, None, 1.0) and "no interval" in str(one)
    same = paired_test([0.9, 0.8, 0.7], [0.7, 0.6, 0.5])
    assert same.mean == pytest.approx(0.2) and same.low is None and same.p_t is None and same.p_sign == 0.25
    nothing = paired_test([0.5, 0.6], [0.5, 0.6])
    assert nothing.mean == 0 and nothing.p_sign == 1.0


@pytest.mark.parametrize("a, b", [([], []), ([1, 2], [1]), ([1, float("nan")], [1, 2])])
def test_paired_test_refuses_unpaired_scores(a, b):
    with pytest.raises(ValueError, match="paired test needs"):
        paired_test(a, b)


def test_paired_t_keeps_its_level_under_no_difference():
    draw = np.random.default_rng(1)
    p = [paired_test(draw.normal(size=6), draw.normal(size=6)) for _ in range(600)]
    assert 0.02 < np.mean([x.p_t < 0.05 for x in p]) < 0.085
    assert np.mean([x.p_sign <= 0.0625 for x in p]) < 0.095


@pytest.mark.parametrize("n, effect", [(2, 3.0), (3, 2.0), (5, 0.58), (5, 2.0), (12, 0.9), (40, 0.3)])
def test_power_is_the_share_of_simulated_studies_that_show_the_effect(n, effect):
    draws = np.random.default_rng(n).normal(effect, 1, (40_000, n))
    t = draws.mean(1) / (draws.std(1, ddof=1) / np.sqrt(n))
    assert abs(paired_power(effect, 1.0, n) - (np.abs(t) > stats.t.isf(0.025, n - 1)).mean()) < 0.01
    assert paired_power(-7 * effect, 7.0, n) == pytest.approx(paired_power(effect, 1.0, n))


@pytest.mark.parametrize("n", [2, 3, 5, 12, 40, 400])
def test_the_detectable_difference_has_the_power_that_is_asked_for(n):
    for power in (0.5, 0.8, 0.95):
        assert paired_power(_detectable_difference(0.055, n, power), 0.055, n) == pytest.approx(power, abs=1e-6)
    assert paired_power(0.0, 1.0, n) == pytest.approx(0.05) and paired_power(1000.0, 1.0, n) == pytest.approx(1.0)


@pytest.mark.parametrize("ratio", [0.02, 0.1, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("power", [0.5, 0.8, 0.95])
def test_no_fewer_pairs_have_the_power_that_is_asked_for(ratio, power):
    n = pairs_needed(-ratio * 0.3, 0.3, power)
    assert paired_power(ratio, 1.0, n) >= power and (n == 2 or paired_power(ratio, 1.0, n - 1) < power)


def test_no_number_of_pairs_shows_nothing():
    for effect, deviation, power in ((0.0, 1.0, 0.8), (1.0, 0.0, 0.8), (1.0, 1.0, 1.0), (1.0, 1.0, 0.05)):
        with pytest.raises(ValueError, match="no number of pairs"):
            pairs_needed(effect, deviation, power)


def test_power_is_statsmodels():
    power = pytest.importorskip(
        "statsmodels.stats.power", reason="statsmodels is not installed: pip install statsmodels"
    ).TTestPower()
    for n in (3, 5, 12):
        assert paired_power(0.7, 1.0, n) == pytest.approx(power.power(0.7, n, 0.05))
        assert _detectable_difference(2.0, n) == pytest.approx(
            2 * power.solve_power(nobs=n, alpha=0.05, power=0.8), rel=1e-4
        )


def test_a_paired_test_says_what_it_would_have_missed():
    a, b = np.random.default_rng(2).normal(size=(2, 8))
    test = paired_test(a, b)
    assert test.deviation == pytest.approx(np.std(a - b, ddof=1))
    assert test.detectable == pytest.approx(_detectable_difference(test.deviation, 8))
    assert test.measures()["detectable"] == test.detectable and f"detectable {test.detectable:.3f}" in str(test)
    one = paired_test([0.9], [0.4]).measures()
    assert one["mean"] == pytest.approx(0.5) and {value for name, value in one.items() if name != "mean"} == {None}


def steady(method, seed):
    return 0.5 + 0.1 * (method == "il_clip") + 0.01 * seed**2


def made(methods=("clip", "il_clip"), seeds=range(4), step=100, split="swap_att", value=steady):
    return [row(m, s, "final", step, "generated", split, "accuracy", value(m, s), n=10) for m in methods for s in seeds]


def test_comparison_takes_each_runs_last_step_only():
    rows = made() + made(step=50, value=lambda m, s: 0.0)
    line = comparison(rows, "il_clip", "clip").iloc[0]
    assert line["n"] == 4 and line["mean"] == pytest.approx(0.1)


def test_comparison_is_antisymmetric_and_pairs_by_seed_not_by_order():
    rows = made(value=lambda m, s: 0.5 + 0.01 * s + (0.1 + 0.01 * s) * (m == "il_clip"))
    forward = comparison(rows[::-1], "il_clip", "clip").iloc[0]
    back = comparison(rows, "clip", "il_clip").iloc[0]
    assert forward["mean"] == pytest.approx(-back["mean"]) and forward["p_t"] == pytest.approx(back["p_t"])
    assert forward["low"] == pytest.approx(0.115 - stats.t.ppf(0.975, 3) * np.std([0.1, 0.11, 0.12, 0.13], ddof=1) / 2)


def test_comparison_leaves_out_unpaired_seeds_and_missing_values_aloud():
    rows = [r for r in made(seeds=range(5)) if (r["method"], r["seed"]) != ("clip", 3)]
    rows = [r | {"value": None} if (r["method"], r["seed"]) == ("il_clip", 1) else r for r in rows]
    line = comparison(rows, "il_clip", "clip").iloc[0]
    assert line["seeds"] == [0, 2, 4] and line["left_out"] == [1, 3] and line["n"] == 3


def test_comparison_with_no_common_seed_gives_no_difference():
    rows = made(methods=("clip",), seeds=[0]) + made(methods=("il_clip",), seeds=[1])
    table = comparison(rows, "il_clip", "clip")
    assert table["n"].tolist() == [0]
    assert table["left_out"].tolist() == [[0, 1]]
    assert "mean" not in table or table["mean"].isna().all()


def test_differences_are_read_in_points_and_one_seed_has_no_p():
    [one] = difference_table(comparison(made(seeds=[0]), "clip", "il_clip")).to_dict("records")
    assert one == {"compared": "clip minus il_clip", "metric": "accuracy", "split": "swap_att", "difference, "
                                                                                                "points": "-10.0",
                   "low, points": "", "high, points": "", "detectable, points": "", "p_t": "", "p_sign": "",
                   "p_floor": "",
                   "seeds": 1}  # fmt: skip
    luck = made(value=lambda m, s: 0.5 + 0.01 * s + (0.1 + 0.01 * s) * (m == "il_clip"))
    [four] = difference_table(comparison(luck, "il_clip", "clip")).to_dict("records")
    assert (four["difference, points"], four["low, points"], four["p_sign"], four["p_floor"]) == (
        "+11.5",
        "+9.4",
        "0.125",
        "0.125",
    )
    assert (
        four["detectable, points"] == f"{100 * _detectable_difference(np.std([0.1, 0.11, 0.12, 0.13], ddof=1), 4):.1f}"
    )
    none = comparison(made(methods=("clip",), seeds=[0]) + made(methods=("il_clip",), seeds=[1]), "il_clip", "clip")
    assert difference_table(none)["difference, points"].tolist() == [""]


def test_comparison_puts_the_mean_last_and_keeps_split_order():
    rows = made(split="mean") + made(split="swap_obj") + made(split="add_att")
    assert comparison(rows, "il_clip", "clip")["split"].tolist() == ["swap_obj", "add_att", "mean"]


def test_comparison_errors_name_what_there_is():
    with pytest.raises(ValueError, match="no row has the metric 'auc'; the rows have accuracy"):
        comparison(made(), "il_clip", "clip", "auc")
    with pytest.raises(ValueError, match="'negclip'; there are clip, il_clip"):
        comparison(made(), "negclip", "clip")
    with pytest.raises(ValueError, match="claim the same place"):
        comparison(made() + made(), "il_clip", "clip")
    with pytest.raises(ValueError, match="no row"):
        comparison([], "il_clip", "clip")


def test_comparison_reads_logs_mixed_with_losses():
    log = pd.DataFrame([{"step": 1, "loss": 2.0}, *made()])
    assert len(_last_evaluations(log, "accuracy")) == 8


def test_comparisons_give_every_pair_of_a_chain():
    table = comparisons(made(methods=("clip", "codebook_clip", "il_clip")), ["clip", "codebook_clip", "il_clip"])
    assert list(zip(table["better"], table["than"])) == [
        ("codebook_clip", "clip"),
        ("il_clip", "clip"),
        ("il_clip", "codebook_clip"),
    ]
