"""Claims against direct tests; what is missing, half there, or from another version."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from notebook_cells import shown_pages
from scipy import stats

from complearn.analysis.claims.definitions import CAUSAL_LENS, pseudo_optimal
from complearn.analysis.claims.judging import (
    LEAST,
    Claim,
    Side,
    _side_values,
    chance_levels,
    claim_about,
    judge,
    method_levels,
    verdict,
)
from complearn.analysis.claims.tables import (
    StudyResults,
    claims_table,
    join_studies,
    read_studies,
    readable_claims,
)
from complearn.analysis.identifiability.measures import EDITS
from complearn.analysis.runs.summaries import compositional_names
from complearn.core.results import Result, row
from complearn.evaluation.statistics import _detectable_difference, paired_power
from complearn.evaluation.tasks.choices import Choices

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
    about = {"headline": "a beats b", "where": "T1", "a": Side("il"), "b": Side("cb"), "cells": CELLS}
    return Claim(**about | changes)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_judgement_is_the_paired_test_of_the_means(sign):
    rows = pd.DataFrame(made_up())
    told = judge(claim(sign=sign), rows)
    mean = rows[rows.step == 20].groupby(["method", "seed"]).value.mean()
    test = stats.ttest_rel(mean["il"], mean["cb"])
    low, high = sorted(sign * end for end in test.confidence_interval(0.95))
    assert np.isclose(told["difference"], sign * (mean["il"] - mean["cb"]).mean())
    assert np.allclose([told["low"], told["high"]], [low, high]) and told["n"] == 5
    assert told["verdict"] == ("holds" if sign == 1 else "opposite")


def test_first_and_last_go_by_step_and_patterns_by_name():
    rows = pd.DataFrame(made_up())
    for which, step in (("first", 10), ("last", 20)):
        want = rows[(rows.method == "il") & (rows.step == step)].groupby("seed").value.mean()
        assert np.allclose(_side_values(rows, Side("il", "interact-*", which), CELLS), want)
    alone = rows[~((rows.method == "il") & (rows.phase == "interact-01"))]
    first, last = (_side_values(alone, Side("il", "interact-*", which), CELLS) for which in ("first", "last"))
    assert len(last) and not len(first)
    assert not len(_side_values(rows, Side("il", "distil-*"), CELLS))


def test_a_side_may_stand_at_anothers_steps():
    """Seed by seed: the first generation may end at another step, and a checkpoint of no generation counts for
    nothing."""

    def place(method, seed, phase, step, value):
        return row(method, seed, phase, step, "d", "x", "accuracy", value)

    rows = [place("il", seed, f"interact-{g:02d}", 10 * g + seed, 0.1 * g) for seed in (0, 1) for g in (1, 2)]
    rows += [place("cb", seed, f"step-{step}", step, step / 100) for seed in (0, 1) for step in (5, 10, 11, 20, 21, 30)]
    cells = (("d", "x", "accuracy"),)
    first, last = (Side("cb", at=Side("il", "interact-*", which)) for which in ("first", "last"))
    assert _side_values(pd.DataFrame(rows), first, cells).to_dict() == {0: 0.10, 1: 0.11}
    assert _side_values(pd.DataFrame(rows), last, cells).to_dict() == {0: 0.20, 1: 0.21}
    assert _side_values(pd.DataFrame([line for line in rows if line["step"] != 11]), first, cells).to_dict() == {
        0: 0.10
    }
    assert str(first) == "cb (step of first interact-*)"


def test_files_of_one_setting_are_one_study():
    """A switch of one file is compared with a control of another; other questions, or no record of runs, keep a file
    apart."""
    about = {
        "source": {"name": "generated", "args": {"shapes": 8}},
        "steps": 4,
        "model": {},
        "train": {"lr": 0.1},
        "switches": {},
    }

    def scores(method, seeds, gain):
        return [row(method, s, "end", 4, "d", "x", "accuracy", 0.5 + gain + 0.01 * s) for s in seeds]

    def study(name, rows, asked=1, **more):
        runs = {f"{line['method']}-s{line['seed']}": {"code": name} for line in rows}
        labels = {line["method"]: {"method": line["method"]} for line in rows}
        setting = about | {"asked": {"n": asked}, "rows": labels, "seeds": [0], "runs": runs} | more
        return StudyResults(name, setting, pd.DataFrame(rows))

    both = [
        study("main", scores("il", (0, 1, 2), 0.1) + scores("cb", (0, 1, 2), 0)),
        study("arms", scores("free", (0, 1), 0.3) + scores("il", (0, 1), 0.1)),
    ]
    (joined,) = join_studies(both)
    assert joined.name == "main + arms" and len(joined.rows) == 8 and joined.code == "arms, main"
    assert set(joined.setting["rows"]) == {"il", "cb", "free"} and len(joined.setting["runs"]) == 8
    told = judge(claim(a=Side("free"), b=Side("cb"), cells=(("d", "x", "accuracy"),)), joined.rows)
    assert told["n"] == 2 and told["difference"] == pytest.approx(0.3)
    for other in ({"asked": 2}, {"steps": 8}, {"runs": ["il-s0"]}):
        assert [one.name for one in join_studies([both[0], study("arms", scores("free", (0, 1), 0.3), **other)])] == [
            "main",
            "arms",
        ]


def test_a_seed_counts_only_where_every_cell_is_there():
    rows = pd.DataFrame(made_up())
    rows = rows[~((rows.method == "il") & (rows.seed == 3) & (rows.split == "y"))]
    assert _side_values(rows, Side("il"), CELLS).index.tolist() == [0, 1, 2, 4] and judge(claim(), rows)["n"] == 4


@pytest.mark.parametrize(
    "low, high, margin, word",
    [
        (0.0, 0.1, 0.0, "open"),
        (1e-9, 0.1, 0.0, "holds"),
        (-0.1, -1e-9, 0.0, "opposite"),
        (-0.019, 0.1, 0.02, "holds"),
        (-0.021, 0.1, 0.02, "open"),
        (-0.1, -0.021, 0.02, "opposite"),
        (None, None, 0.0, "open"),
    ],
)
def test_verdicts(low, high, margin, word):
    assert verdict(low, high, margin) == word


@pytest.mark.parametrize(
    "values, word",
    [([0.1, 0.2, 0.3], "holds"), ([0.0] * 3, "holds"), ([0.3, 0.5, 0.9], "open"), ([0.8] * 3, "opposite")],
)
def test_a_side_may_be_a_fixed_number(values, word):
    """At or below chance: the interval over seeds decides; equal values are a point, and chance rows do not call it
    off."""
    rows = [row("il", seed, "end", 4, "d", "x", "accuracy", value) for seed, value in enumerate(values)]
    rows.append(row("chance", None, None, None, "d", "x", "accuracy", 0.5))
    below = claim(b=Side("chance", value=0.5), cells=(("d", "x", "accuracy"),), sign=-1)
    told = judge(below, pd.DataFrame(rows))
    assert told["verdict"] == word and told["b"] == 0.5 and told["n"] == 3
    if len(set(values)) > 1:
        low, high = stats.ttest_1samp(values, 0.5).confidence_interval(0.95)
        assert np.allclose([told["low"], told["high"]], [0.5 - high, 0.5 - low])
    else:
        assert told["low"] == told["high"] == pytest.approx(0.5 - values[0])
    alone = judge(below, pd.DataFrame(rows[:1]))
    assert (alone["verdict"], alone["why"]) == ("open", "one seed")
    assert StudyResults("one", {}, pd.DataFrame(rows[:3])).holds(below)


def test_a_row_may_have_steps_of_its_own():
    rows = {"long": {"method": "clip", "clip": {"steps": 900}}, "short": {"method": "clip"}}
    study = StudyResults("one", {"steps": 300, "rows": rows}, pd.DataFrame(made_up()))
    assert [study.steps(name) for name in ("long", "short", "of another file")] == [900, 300, 300]
    assert StudyResults("one", {"steps": 300, "rows": ["a list"]}, study.rows).steps("long") == 300


def test_an_optional_claim_has_a_line_only_where_it_was_measured():
    studies = [StudyResults("one", {}, pd.DataFrame(made_up()))]
    optional = [claim(optional=True), claim(headline="nobody is better", a=Side("nobody"), optional=True)]
    assert claims_table([*optional, claim(a=Side("nobody"))], studies).verdict.tolist() == [
        "holds",
        "not testable here",
    ]


def test_a_pseudo_optimal_encoder_needs_questions_that_it_cannot_tell():
    """A lower loss alone is no claim; and what is asked on photographs differs in one colour."""
    fits, fails = pseudo_optimal("added colour", "trained", "photographs")
    assert {cell[:2] for cell in fails.cells} == {("colours", "add_colour")} and fits.control is fails
    rows = [row(name, k, "end", 4, "held-out captions", "best temperature", "contrastive_loss",
            value + 0.01 * k * (1 + value))
            for name, value in (("clip, trained blind to added colour", 2.05),
                ("clip, original", 2.0)) for k in range(3)]  # fmt: skip
    unknown = judge(fits, pd.DataFrame(rows))
    assert (unknown["verdict"], unknown["why"]) == ("not testable here", "no control")
    ties = [
        row("clip, trained blind to added colour", k, "end", 4, "colours", "add_colour", "accuracy", 0.0)
        for k in range(3)
    ]
    assert judge(fits, pd.DataFrame(rows + ties))["verdict"] == "holds"
    sees = [{**line, "value": 0.9 + 0.01 * line["seed"]} for line in ties]
    told = judge(fits, pd.DataFrame(rows + sees))
    assert (told["verdict"], told["why"], told["control"]) == ("open", "below its control", fails.headline)
    assert judge(fails, pd.DataFrame(ties))["verdict"] == "by construction"


def test_every_operator_is_compared_before_and_after_training_and_hard_negatives():
    apart = [claim for claim in CAUSAL_LENS if claim.number == 17]
    assert {claim.cells[0][1] for claim in apart} == set(EDITS)
    places = [
        (name, data, split)
        for name in ("clip", "clip, negclip, 2 calls")
        for data in ("texts", "pairs")
        for split in EDITS
    ]
    rows = [
        row(name, k, "end", 4, data, split, "a_distance", len(name) + k % 2)
        for name, data, split in places
        for k in range(3)
    ]
    table = claims_table(apart, [StudyResults("one", {}, pd.DataFrame(rows))])
    assert (table[table.n > 0].compared == "clip, negclip, 2 calls - clip").all() and (table.n > 0).sum() == 16
    assert (table[table.n == 0].compared == "clip - clip, untrained").all()
    assert (table.n == 0).sum() == 8, "texts alone are left out where they were not measured"


def test_one_seed_gives_no_verdict_and_no_row_gives_none_measured():
    one = judge(claim(), pd.DataFrame(made_up(seeds=1)))
    assert (one["verdict"], one["why"]) == ("open", "one seed")
    none = judge(claim(a=Side("nobody")), pd.DataFrame(made_up()))
    assert (none["verdict"], none["why"]) == ("not testable here", "not measured")


@pytest.mark.parametrize("wrong", [{"sign": 0}, {"margin": -1.0}, {"cells": ()}, {"theirs": (1.0,)}])
def test_a_malformed_claim_is_an_error(wrong):
    with pytest.raises(ValueError, match="sign is 1 or -1|2 sides and 1 numbers of the paper"):
        claim(**wrong)


def four(gains, seeds=6, spread=0.01):
    """Rows of il, cb, bare, clip with these gains; each seed has a luck of its own."""
    order = np.random.default_rng(1)
    luck = order.normal(size=seeds)
    return pd.DataFrame([
        row(method, seed, "final", 10, "d", split, "accuracy", 0.6 + gain + 0.2 * luck[seed] + spread * order.normal())
        for method, gain in zip(("il", "cb", "bare", "clip"), gains) for seed in range(seeds) for split in "xy"
    ])  # fmt: skip


INTERACTION = {"b": Side("bare"), "minus": (Side("cb"), Side("clip"))}


@pytest.mark.parametrize(
    "gains, alone, both",
    [
        ((0.3, 0.2, 0.1, 0.1), "holds", "holds"),
        ((0.2, 0.2, 0.1, 0.1), "holds", "open"),
        ((0.2, 0.3, 0.1, 0.1), "holds", "open"),
        ((0.1, 0.2, 0.3, 0.1), "opposite", "opposite"),
    ],
)
def test_a_claim_whose_control_shows_nothing_is_open(gains, alone, both):
    rows = four(gains)
    assert judge(claim(b=Side("bare")), rows)["verdict"] == alone
    assert judge(claim(b=Side("bare"), control=claim(**INTERACTION)), rows)["verdict"] == both
    unknown = claim(b=Side("bare"), control=claim(b=Side("restarts")))
    asked = alone in ("holds", "opposite")
    assert judge(unknown, rows)["verdict"] == ("not testable here" if asked else alone)
    beyond = claim(b=Side("bare"), control=claim(b=Side("bare"), control=claim(b=Side("restarts"))))
    assert judge(beyond, rows)["verdict"] == ("not testable here" if asked else alone)


@pytest.mark.parametrize(
    "gains, control, word, why",
    [
        ((0.1, 0.3, 0.2, 0.0), "bare", "opposite", ""),  # worse than the control, too
        ((0.1, 0.3, 0.1, 0.0), "bare", "opposite", "and so does the control"),  # the control is as much worse
        ((0.1, 0.3, 0.0, 0.0), "bare", "opposite", "and so does the control"),  # the control is worse still
        ((0.3, 0.1, 0.3, 0.0), "bare", "open", "not beyond its control"),
        ((0.1, 0.3, 0.3, 0.0), "nobody", "not testable here", "no control"),
    ],
)
def test_the_opposite_passes_the_same_chain_of_controls(gains, control, word, why):
    rows = four(gains)
    asked = claim(b=Side("cb"), control=claim(headline="the control", b=Side(control)))
    told = judge(asked, rows)
    assert (told["verdict"], told["why"]) == (word, why)
    assert told.get("control") == ("the control" if why else None)
    first_passes = claim(b=Side("cb"), control=claim(b=Side("cb"), control=asked.control))
    assert [judge(first_passes, rows)[name] for name in ("verdict", "why")] == [word, why], "the whole chain is asked"


def test_the_opposite_is_open_where_a_control_is_too_noisy_to_tell():
    rows = four((0.1, 0.3, 0.2, 0.0))
    noise = np.random.default_rng(3).normal(0, 1.5, len(rows)) * (rows.method == "bare")
    told = judge(claim(b=Side("cb"), control=claim(b=Side("bare"))), rows.assign(value=rows.value + noise))
    assert (told["verdict"], told["why"]) == ("open", "opposite, not beyond its control")


def test_a_control_by_another_measure_is_not_asked_of_the_opposite():
    rows = four((0.1, 0.3, 0.5, 0.0))
    second = claim(b=Side("clip"), cells=(("d", "x", "accuracy"),))  # holds
    told = judge(claim(b=Side("cb"), control=second), rows)
    assert (told["verdict"], told["why"]) == ("opposite", "")


def test_relative_claims_compare_logarithms():
    rows = four((0.3, 0.2, 0.1, 0.1))
    means = rows.groupby(["method", "seed"]).value.mean().unstack(0)
    told = judge(claim(relative=True, theirs=(0.4, 0.2)), rows)
    assert told["difference"] == pytest.approx(np.log(means["il"] / means["cb"]).mean())
    assert told["claimed"] == pytest.approx(np.log(2)) and told["least"] == 0.05
    assert told["a"] == pytest.approx(means["il"].mean()), "sides stay in their unit"
    nothing = rows.assign(value=rows.value * ~((rows.method == "cb") & (rows.seed == 2)))
    assert judge(claim(relative=True), nothing)["n"] == 5, "a ratio with nothing is no ratio"


def test_each_kind_of_measure_has_its_own_smallest_effect_and_a_reason():
    def least(metric, **more):
        return claim(cells=(("d", "x", metric),), **more).smallest

    kinds = [least(name) for name in ("pc1_concreteness_abs_r", "f1_held_out", "purity_all_bits", "accuracy")]
    assert len({kind.value for kind in kinds}) == len(kinds) == len({kind.kind for kind in kinds})
    assert all(kind.reason and "after the rows" in kind.chosen for kind in kinds)
    assert claim(cells=(("average", "BIND", "accuracy"),)).smallest.chosen.endswith("before its runs")
    assert claim(least=0.2).matters == 0.2 and least("r@1", relative=True).kind == "relative leads"
    metrics = [metric for kind in LEAST for metric in kind.metrics]
    assert len(metrics) == len(set(metrics)), "a metric is of one kind"


def test_levels_of_averages_are_means_of_their_cells():
    rows = [
        row("blind_length", None, None, None, f"generated/{data}", split, metric, value, n=4)
        for data, split, metric, value in (
            ("sugarcrepe", "swap_att", "accuracy", 0.2),
            ("winoground", "swap_obj", "image_score", 0.4),
            ("sugarcrepe", "replace_obj", "accuracy", 0.9),
        )
    ]
    levels = method_levels(pd.DataFrame([*rows, rows[0] | {"value": 0.4}]))
    assert levels["average", "BIND", "accuracy"] == pytest.approx((0.3 + 0.4) / 2)
    assert levels["average", "NOUN", "accuracy"] == pytest.approx(0.9)


def test_chance_is_the_mean_over_the_worlds_of_all_seeds():
    """A gallery without repeated captions differs in size from world to world."""
    rows = [
        row("chance", seed, None, None, data, split, "accuracy", value + 0.1 * seed, n=4)
        for seed in (0, 1)
        for data, split, value in (("generated/sugarcrepe", "swap_att", 0.2), ("winoground", "winoground", 0.5))
    ]
    rows += [row("chance", seed, None, None, "objects", "zero_shot", "accuracy", 0.9, n=4) for seed in (0, 1)]
    levels = chance_levels(pd.DataFrame(rows))
    assert levels["generated/sugarcrepe", "swap_att", "accuracy"] == pytest.approx(0.25)
    assert levels["average", "COMP", "accuracy"] == pytest.approx((0.25 + 0.55) / 2), "not of recognition"
    assert chance_levels(pd.DataFrame(rows).iloc[:0]).empty


def test_an_interaction_is_paired_by_seed():
    rows = four((0.3, 0.2, 0.1, 0.1))
    rows = rows[~((rows.method == "clip") & (rows.seed == 2))].sample(frac=1, random_state=0)
    result = judge(claim(**INTERACTION), rows)
    means = rows.groupby(["method", "seed"]).value.mean()
    gains = (means["il"] - means["bare"] - (means["cb"] - means["clip"])).dropna()
    test = stats.ttest_1samp(gains, 0)
    assert result["n"] == 5 and result["p_t"] == pytest.approx(test.pvalue)
    assert (result["low"], result["high"]) == pytest.approx(tuple(test.confidence_interval()))


def test_beside_a_verdict_stands_what_the_study_could_have_shown():
    rows = pd.DataFrame(made_up(gap=0.02))
    result = judge(claim(theirs=(0.344, 0.312)), rows)
    gains = rows[rows.step == 20].groupby(["method", "seed"]).value.mean().unstack(0).eval("il - cb")
    assert result["verdict"] == "open" and result["claimed"] == pytest.approx(0.032)
    assert result["power"] == pytest.approx(paired_power(0.032, gains.std(), 5))
    assert result["detectable"] == pytest.approx(_detectable_difference(gains.std(), 5))
    assert judge(claim(), rows)["power"] is None


def test_the_p_of_a_claim_of_no_harm_agrees_with_its_verdict():
    rows = pd.DataFrame(made_up(gap=-0.01, spread=0.002))
    result = judge(claim(margin=0.02), rows)
    plain = judge(claim(), rows)
    assert (plain["verdict"], result["verdict"]) == ("opposite", "holds") and result["p_t"] < 0.05
    assert [result[name] for name in ("difference", "low", "high")] == pytest.approx(
        [plain[name] for name in ("difference", "low", "high")]
    )


def test_studies_are_found_named_and_tabled(tmp_path):
    for name, gap in (("one", 0.1), ("two", -0.1)):
        Result({"preset": "made up"}, made_up(gap=gap)).write(tmp_path / name)
    (tmp_path / "three.results.json").write_text((tmp_path / "one" / "results.json").read_text())
    found = read_studies([tmp_path])
    table = claims_table([claim(), claim(headline="nobody beats b", a=Side("nobody"))], found)
    assert dict(zip(table.study, table.verdict)) == {
        "one": "holds",
        "two": "opposite",
        "three": "holds",
        "": "not testable here",
    }


def test_every_setting_gives_a_line_of_its_own(tmp_path):
    world = {"name": "generated", "args": {"shapes": 6, "colours": 6, "seed": 0}}
    runs = {f"il-s{k}": {"code": "1+a", "configuration": {"data": {"args": {"seed": k}}}} for k in range(2)}
    variants = {"il": {"method": "il", "switches": {}}, "one spawn": {"method": "il",
            "switches": {"il": {"generations": 1}}},
                "bare": {"method": "il", "switches": {"model": {"codebook": None}}}}  # fmt: skip
    rows = made_up() + [line | {"method": "one spawn"} for line in made_up(gap=-0.1) if line["method"] == "il"]
    Result({"source": world, "runs": runs, "rows": variants, "steps": 20}, rows).write(tmp_path / "one")
    Result({"source": {"name": "flickr", "args": {}}}, made_up(gap=-0.1)).write(tmp_path / "two")
    lines = claims_table([claim(variants=True, number=2)], read_studies([tmp_path]))
    assert lines.compared.tolist() == ["il - cb", "one spawn - cb", "il - cb"]
    assert lines.verdict.tolist() == ["holds", "opposite", "opposite"]
    assert lines.world.tolist() == ["6 x 6, one for each seed"] * 2 + ["flickr"] and lines.code[0] == "1+a"
    assert readable_claims(lines).index.tolist() == ["2"] * 3
    photos = {
        "name": "disjoint",
        "args": {"source": {"name": "flickr", "args": {"images": "flickr8k/Images"}}, "exclude": []},
    }

    def title(vision):
        return StudyResults("photos", {"source": photos, "model": {"vision": vision}}, pd.DataFrame()).world

    assert title({"tower": "tiny", "size": 96}) == "flickr8k, towers from scratch at 96 px"
    assert title("efficientnet_lite0") == "flickr8k, efficientnet_lite0"
    other = claim_about(claim(a=Side("il", "interact-*"), control=claim(b=Side("rest"))), "one spawn")
    assert str(other) == "one spawn (last interact-*) - cb" and str(other.control) == "one spawn - rest"


def test_the_committed_table_of_claims_is_that_of_the_measured_studies(smoke):
    run = smoke("experiments/claims")
    assert run.good
    shown = shown_pages(ROOT / "nbs" / "experiments" / "claims.ipynb")
    drawn = shown_pages(run.folder / "report.ipynb")
    assert shown == drawn, "`make reports` draws it again"
    rows = pd.DataFrame(Result.read(ROOT / "data" / "measured" / "iterated.results.json").rows)
    comp = rows[(rows.data == "average") & (rows.split == "COMP")].pivot(index="seed", columns="method", values="value")
    test = stats.ttest_rel(comp["codebook_clip"], comp["clip"])
    low, high = test.confidence_interval()
    line = f"<td>{(comp['codebook_clip'] - comp['clip']).mean():+.3f} [{low:+.3f}, {high:+.3f}]</td>"
    (numbered,) = [part for part in shown if line in part]
    assert f"<td>{test.pvalue:.2g}</td>" in numbered and "opposite, exploratory" in numbered


REPORTS = re.search(r"^REPORTS := (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()


def test_every_experiment_with_a_measured_study_is_drawn_by_make_reports():
    """Those of other names too: a notebook that draws a file of its name is in the list of the Makefile."""
    notebooks = {path.stem for path in (ROOT / "nbs" / "experiments").glob("*.ipynb")}
    measured = {path.name.removesuffix(".results.json") for path in (ROOT / "data" / "measured").glob("*.results.json")}
    listed = [pair.split(":") for pair in REPORTS]
    assert {name for name, _ in listed} == notebooks - {"ablations", "claims"}, "the rule draws these two itself"
    assert notebooks & measured <= {study for _, study in listed}
    assert all((ROOT / "data" / "measured" / f"{study}.results.json").is_file() for _, study in listed)


@pytest.mark.parametrize("pair", REPORTS)
def test_a_notebook_shows_its_measured_study_and_trains_nothing(pair, experiment, tmp_path):
    name, study = pair.split(":")
    run = experiment(
        f"experiments/{name}", tmp_path, report_from=str(ROOT / "data" / "measured" / f"{study}.results.json")
    )
    assert run.good and not (tmp_path / "runs").exists()
    shown = shown_pages(ROOT / "nbs" / "experiments" / f"{name}.ipynb")
    drawn = shown_pages(tmp_path / "report.ipynb")
    assert len(shown) > 1 and any('class="verdict"' in page for page in shown)
    assert shown == drawn, "`make reports` draws it again"


def test_counts_without_a_seed_are_no_study(tmp_path):
    Result({}, made_up()).write(tmp_path / "study")
    Result({}, [row("Flickr30k", None, None, None, "concept_graph", "captions", "concepts", 9)]).write(
        tmp_path / "counts"
    )
    assert [study.name for study in read_studies([tmp_path])] == ["study"]


def test_a_folder_without_results_and_a_foreign_file_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no results.json under"):
        read_studies([tmp_path])
    (tmp_path / "results.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(ValueError, match="has schema 99"):
        read_studies([tmp_path])


def test_two_guessers_and_smoke_runs_bear_nothing_out():
    guess = made_up(gap=0.02, spread=0.0001)
    level = 0.62  # of the last generation, where both stand
    blind = [row("chance", None, None, None, "d", split, "accuracy", level) for split in "xy"]
    assert judge(claim(), pd.DataFrame(guess))["verdict"] == "holds", "where no chance level is known"
    high = [row("chance", None, None, None, "d", split, "accuracy", 0.7) for split in "xy"]
    assert judge(claim(), pd.DataFrame(guess + high))["verdict"] == "at chance"
    assert judge(claim(), pd.DataFrame(made_up() + blind))["verdict"] == "holds"
    assert judge(claim(), pd.DataFrame(made_up()), "smoke")["why"] == "too short"


def test_the_chance_level_of_comp_is_that_of_what_models_are_averaged_over():
    data = {
        "generated/sugarcrepe": ("accuracy", 0.5),
        "generated/patterns": ("image_score", 0.25),
        "generated/winoground": ("image_score", 0.25),
    }
    data["generated/sugarcrepe, seen"] = ("accuracy", 0.9)
    blind = [row("chance", 0, None, None, name, "mean", metric, level, n=4) for name, (metric, level) in data.items()]
    levels = chance_levels(pd.DataFrame(blind))
    tasks = {name: Choices([]) for name in data} | {"generated/objects": None}
    assert (
        compositional_names(tasks)
        == compositional_names(list(data))
        == ["generated/sugarcrepe", "generated/winoground"]
    )
    assert levels["average", "COMP", "accuracy"] == 0.375


def test_every_side_of_a_claim_is_something_that_can_be_trained():
    from complearn.analysis.claims.definitions import ITERATED_LEARNING
    from complearn.training.methods.catalogue import METHODS
    from complearn.training.methods.iterated import ABLATIONS

    known = {*METHODS, *(label for rows in ABLATIONS.values() for label in rows)}
    assert {side.method for claim in ITERATED_LEARNING for side in claim.sides} <= known
