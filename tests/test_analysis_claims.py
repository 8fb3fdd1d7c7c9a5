"""Claims against direct tests; what is missing, half there, or from another version."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from complearn.analysis.claims.judging import Claim, Side, claims_figure, claims_table, judge, read_studies, side_values, verdict
from complearn.core.results import row, write_results

CELLS = (("d", "x", "accuracy"), ("d", "y", "accuracy"))


def made_up(seeds=5, gap=0.1, spread=0.02):
    order = np.random.default_rng(0)
    return [
        row(
            method,
            seed,
            f"interact-{g:02d}",
            10 * g,
            "d",
            split,
            "accuracy",
            0.5 + gap * (method == "il") + spread * order.normal() + 0.05 * g,
        )
        for method in ("il", "cb")
        for seed in range(seeds)
        for g in (2, 1)  # not in order
        for split in "xy"
    ]


def claim(**changes):
    about = {"paper": "1", "headline": "a beats b", "where": "T1", "theirs": "", "a": Side("il"), "b": Side("cb"), "cells": CELLS}
    return Claim(**about | changes)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_judgement_is_the_paired_test_of_the_means(sign):
    rows = pd.DataFrame(made_up())
    told = judge(claim(sign=sign), rows)
    mean = rows[rows.step == 20].groupby(["method", "seed"]).value.mean()
    test = stats.ttest_rel(mean["il"], mean["cb"])
    low, high = sorted(sign * end for end in test.confidence_interval(0.95))
    assert np.isclose(told["difference"], sign * (mean["il"] - mean["cb"]).mean())
    assert np.allclose([told["low"], told["high"]], [low, high]) and told["seeds"] == 5
    assert told["verdict"] == ("holds" if sign == 1 else "does not hold")


def test_first_and_last_go_by_step_and_patterns_by_name():
    rows = pd.DataFrame(made_up())
    for which, step in (("first", 10), ("last", 20)):
        want = rows[(rows.method == "il") & (rows.step == step)].groupby("seed").value.mean()
        assert np.allclose(side_values(rows, Side("il", "interact-*", which), CELLS), want)
    assert not len(side_values(rows, Side("il", "distil-*"), CELLS))


def test_a_seed_counts_only_where_every_cell_is_there():
    rows = pd.DataFrame(made_up())
    rows = rows[~((rows.method == "il") & (rows.seed == 3) & (rows.split == "y"))]
    assert side_values(rows, Side("il"), CELLS).index.tolist() == [0, 1, 2, 4] and judge(claim(), rows)["seeds"] == 4


@pytest.mark.parametrize(
    "low, high, margin, word",
    [
        (0.0, 0.1, 0.0, "not shown"),
        (1e-9, 0.1, 0.0, "holds"),
        (-0.1, -1e-9, 0.0, "does not hold"),
        (-0.019, 0.1, 0.02, "holds"),
        (-0.021, 0.1, 0.02, "not shown"),
        (-0.1, -0.021, 0.02, "does not hold"),
        (None, None, 0.0, "no interval"),
    ],
)
def test_verdicts(low, high, margin, word):
    assert verdict(low, high, margin) == word


def test_one_seed_gives_no_verdict_and_no_row_gives_none_measured():
    assert judge(claim(), pd.DataFrame(made_up(seeds=1)))["verdict"] == "no interval"
    assert judge(claim(a=Side("nobody")), pd.DataFrame(made_up()))["verdict"] == "not measured"


@pytest.mark.parametrize("wrong", [{"sign": 0}, {"margin": -1.0}, {"cells": ()}])
def test_a_malformed_claim_is_an_error(wrong):
    with pytest.raises(ValueError, match="sign is 1 or -1"):
        claim(**wrong)


def test_studies_are_found_named_and_tabled(tmp_path):
    for name, gap in (("one", 0.1), ("two", -0.1)):
        write_results(tmp_path / name, {"preset": "made up"}, {}, made_up(gap=gap))
    (tmp_path / "three.results.json").write_text((tmp_path / "one" / "results.json").read_text())
    found = read_studies([tmp_path])
    table = claims_table([claim(), claim(headline="nobody beats b", a=Side("nobody"))], found)
    assert dict(zip(table.study, table.verdict)) == {"one": "holds", "two": "does not hold", "three": "holds", "": "not measured"}
    drawn = claims_figure(table)
    assert sum(len(trace.y or ()) for trace in drawn.data) == 3


def test_a_claim_of_no_harm_is_drawn_from_its_margin(tmp_path):
    write_results(tmp_path, {"preset": "made up"}, {}, made_up(gap=-0.015, spread=0.001))
    lines = claims_table([claim(), claim(headline="no harm", margin=0.02)], read_studies([tmp_path]))
    bars = {y: (trace.name, x - 1) for trace in claims_figure(lines).data for x, y in zip(trace.x, trace.y)}
    assert {name: low > 0 for name, low in bars.values()} == {"does not hold": False, "holds": True}


def test_a_folder_without_results_and_a_foreign_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no results.json under"):
        read_studies([tmp_path])
    (tmp_path / "results.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(ValueError, match="has schema 99"):
        read_studies([tmp_path])


def test_two_guessers_and_smoke_runs_bear_nothing_out():
    guess = made_up(gap=0.002, spread=0.0001)
    level = 0.6  # of the last generation, where both stand
    blind = [row("chance", None, None, None, "d", split, "accuracy", level) for split in "xy"]
    assert judge(claim(), pd.DataFrame(guess))["verdict"] == "holds", "where no chance level is known"
    high = [row("chance", None, None, None, "d", split, "accuracy", 0.7) for split in "xy"]
    assert judge(claim(), pd.DataFrame(guess + high))["verdict"] == "at chance"
    assert judge(claim(), pd.DataFrame(made_up() + blind))["verdict"] == "holds"
    assert judge(claim(), pd.DataFrame(made_up()), "smoke")["verdict"] == "too short"


def test_every_side_of_a_claim_is_something_that_can_be_trained():
    from complearn.analysis.claims.iterated import ITERATED_LEARNING
    from complearn.training.methods.catalogue import METHODS
    from complearn.training.methods.iterated import ABLATIONS

    known = {*METHODS, *(label for rows in ABLATIONS.values() for label in rows)}
    assert {side.method for claim in ITERATED_LEARNING for side in (claim.a, claim.b)} <= known
