"""The positive controls at the head of the page of claims."""

import numpy as np
import pandas as pd
import pytest
from conftest import ROOT
from scipy.stats import t

from complearn.analysis.claims.controls import CONTROLS, ENOUGH, controls_table, describe_controls
from complearn.analysis.claims.tables import StudyResults, read_studies
from complearn.command import find_notebook
from complearn.core.results import Result, row, rows_table

MEASURED = ROOT / "data" / "measured"


def study(control, seeds, ahead, noise=0.02, step=10):
    "Rows of a control whose first method is ahead by so much."
    cell = (control.split, control.metric)
    rows = []
    for k in range(seeds):
        value = 0.3 + ahead + noise * (-1) ** k * k
        rows.append(row(control.better, k, "end", step, control.data, *cell, value, n=9))
        if control.than:
            rows.append(row(control.than, k, "end", step, control.than_data or control.data, *cell, 0.3, n=9))
    return StudyResults(control.study, {}, pd.DataFrame(rows))


def with_levels(measured, control, **levels):
    """The study with rows of what a gate asks: `floor`, `ceiling`, and conditions by their numbers, as `_0`."""
    gate = control.gate
    asked = {"floor": gate.floor, "ceiling": gate.ceiling}
    asked |= {f"_{k}": condition.level for k, condition in enumerate(gate.conditions)}
    rows = [measured.rows]
    for name, value in levels.items():
        level = asked[name]
        place = (level.phase or "end", 0 if level.phase else 10, level.data or control.data)
        cell = (level.split or control.split, level.metric or control.metric)
        rows.append(pd.DataFrame([row(level.method, k, *place, *cell, value, n=9) for k in range(ENOUGH)]))
    return StudyResults(measured.name, {}, pd.concat(rows, ignore_index=True))


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.title)
@pytest.mark.parametrize(
    "ahead, seeds, word",
    [
        (0.5, ENOUGH, "seen"),
        (-1.2, ENOUGH, "the opposite is seen"),
        (0.5, ENOUGH - 1, "4 of 5 seeds: not decided yet"),
        (0.0, ENOUGH, "not seen"),
    ],
)
def test_a_control_is_seen_where_its_interval_says_so(control, ahead, seeds, word):
    if not control.than and ahead == 0.0:
        ahead = -0.3  # around zero itself
    [line] = controls_table([study(control, seeds, ahead)], [control]).itertuples()
    assert (line.verdict, line.n) == (word, seeds)
    assert line.low < line.difference < line.high
    [told] = describe_controls(controls_table([study(control, seeds, ahead)], [control]))
    assert f"*{word}*, {line.difference:+.2f} [" in told and control.title in told


def test_one_seed_has_no_interval_and_nothing_is_nothing():
    alone = controls_table([study(CONTROLS[1], 1, 0.5)], CONTROLS[1:2])
    assert alone.verdict[0] == "1 of 5 seeds: not decided yet"
    assert "[" not in describe_controls(alone)[0]
    assert set(controls_table([]).verdict) == {"not measured yet"}


HUES = next(control for control in CONTROLS if control.study == "hue_names")
STAGES = next(control for control in CONTROLS if control.study == "stages_control")
SLIDER = next(control for control in CONTROLS if control.study == "slider_control")
TREES = next(control for control in CONTROLS if control.study == "tree_control")


@pytest.mark.parametrize(
    "control, levels, gate, word",
    [
        (HUES, {"floor": 0.0}, "passed, its ceiling by construction", "seen"),
        (HUES, {}, "not measured: before training", "seen"),
        (HUES, {"floor": 0.99}, "failed: before training is at the ceiling", "not testable here"),
        (SLIDER, {"floor": 0.0, "ceiling": 0.9}, "passed", "seen"),
        (SLIDER, {"floor": 0.0}, "not measured: without noise", "seen"),
        (SLIDER, {"floor": 0.85, "ceiling": 1.9}, "failed: equal reaches no more than", "not testable here"),
        (TREES, {"floor": 0.1, "_0": 0.8, "_1": 0.9}, "passed", "seen"),
        (TREES, {"floor": 0.1, "_0": 0.7, "_1": 0.9}, "failed: true trees get less", "not testable here"),
        (TREES, {"floor": 0.1, "_0": 0.8, "_1": 0.7}, "failed: random trees get less", "not testable here"),
        (STAGES, {"floor": 0.5, "ceiling": 1.0, "_0": 0.95, "_1": 0.2}, "passed", "seen"),
        (STAGES, {"floor": 0.5, "ceiling": 1.0, "_0": 0.8, "_1": 0.2}, "failed: groups by", "not testable here"),
        (
            STAGES,
            {"floor": 0.5, "ceiling": 1.0, "_0": 0.95, "_1": 0.6},
            "failed: stage 0 does not",
            "not testable here",
        ),
        (STAGES, {"floor": 0.1, "ceiling": 0.305, "_0": 0.95, "_1": 0.05}, "failed: what it is", "not testable here"),
        (STAGES, {"floor": 0.5, "_0": 0.95, "_1": 0.2}, "not measured: taught by labels", "seen"),
    ],
)
def test_a_gate_says_whether_a_control_could_have_come_out_either_way(control, levels, gate, word):
    measured = with_levels(study(control, ENOUGH, 0.5), control, **levels)
    [line] = controls_table([measured], [control]).itertuples()
    assert line.gate.startswith(gate) and line.verdict == word
    assert np.isnan(line.floor) if "floor" not in levels else line.floor == pytest.approx(levels["floor"])
    assert f"gate {line.gate}" in describe_controls(controls_table([measured], [control]))[0]


def test_p_values_are_corrected_over_the_controls_of_a_study():
    pair = [control for control in CONTROLS if control.study == "holistic_language"]
    frames = [study(control, ENOUGH, ahead, noise=0.04).rows for control, ahead in zip(pair, (0.5, 0.15))]
    measured = StudyResults("holistic_language", {}, pd.concat(frames, ignore_index=True))
    together = controls_table([measured], pair)
    alone = pd.concat([controls_table([measured], [control]) for control in pair], ignore_index=True)
    assert (alone.p == alone.p_holm).all() and (together.p == alone.p).all()
    small, large = sorted(alone.p)
    assert small < 0.025 < large < 0.05, "else the correction is not seen"
    assert sorted(together.p_holm) == pytest.approx([2 * small, large])
    half = StudyResults("holistic_language", {}, frames[1])  # the other one is not measured: it counts as p = 1
    line = controls_table([half], pair).iloc[1]
    assert line.p_holm == pytest.approx(2 * line.p) and (line.low > 0, line.verdict) == (True, "not seen")


def of_cell(rows, data, method, control):
    """The last row of each seed of a method in a control's cell, by seed."""
    part = rows[(rows.data == data) & (rows.split == control.split) & (rows.metric == control.metric)]
    part = part[(part.method == method) & ((part.phase != "untrained") | part.data.str.endswith("/untrained"))]
    last = part[part.step.isna() | (part.step == part.groupby("seed").step.transform("max"))]
    return last.set_index("seed").value.astype(float).sort_index()


def test_the_measured_controls_are_those_of_their_files():
    "Differences, intervals, p values, Holm's correction and gates, again from the rows with numpy and t alone."
    table = controls_table(read_studies([MEASURED])).set_index("control")
    p_values, untestable = {}, set()
    for control in CONTROLS:
        find_notebook(f"{control.study}.ipynb")  # is there
        file = MEASURED / f"{control.study}.results.json"
        if not file.exists():
            assert table.verdict[control.title] == "not measured yet"
            continue
        rows = rows_table(Result.read(file).rows)
        ahead = of_cell(rows, control.data, control.better, control)
        behind = of_cell(rows, control.than_data or control.data, control.than, control) if control.than else 0 * ahead
        gaps = (ahead - behind).dropna().to_numpy()
        error = gaps.std(ddof=1) / np.sqrt(len(gaps))
        half = t.ppf(0.975, len(gaps) - 1) * error
        p = 2 * t.sf(abs(gaps.mean() / error), len(gaps) - 1)
        p_values.setdefault(control.study, {})[control.title] = p
        line = table.loc[control.title]
        assert line.n == len(gaps)
        found = [line.difference, line.low, line.high, line.p]
        np.testing.assert_allclose(found, [gaps.mean(), gaps.mean() - half, gaps.mean() + half, p], rtol=1e-9)
        gate = control.gate
        if gate.floor.phase:
            part = rows[(rows.data == control.data) & (rows.split == control.split) & (rows.metric == control.metric)]
            part = part[(part.method == gate.floor.method) & (part.phase == gate.floor.phase)]
            floor = part.value.astype(float).mean()
        else:
            floor = of_cell(rows, gate.floor.data or control.data, gate.floor.method, control).mean()
        measured = not isinstance(gate.ceiling, float)
        ceiling = of_cell(rows, gate.ceiling.data, gate.ceiling.method, control).mean() if measured else gate.ceiling
        levels = [line.floor, line.reached, line.ceiling]
        np.testing.assert_allclose(levels, [floor, ahead.mean(), ceiling], rtol=1e-9)
        unmet = [
            condition.what
            for condition in gate.conditions
            if of_cell(rows, condition.level.data or control.data, condition.level.method, control).mean()
            < (condition.at_least or 0)
        ]
        if unmet:
            assert line.gate == f"failed: {'; '.join(unmet)}"
            untestable.add(control.title)
            continue
        assert line.gate == ("passed" if measured else "passed, its ceiling by construction")
        assert floor < 0.95 * ceiling and behind.mean() < ceiling - 0.05 * (ceiling - floor)
    for study_name, by_title in p_values.items():
        assert len(by_title) == sum(control.study == study_name for control in CONTROLS)
        ranked = sorted(by_title, key=by_title.get)
        highest = 0.0
        for k, title in enumerate(ranked):
            highest = max(highest, min(1.0, (len(ranked) - k) * by_title[title]))
            np.testing.assert_allclose(table.p_holm[title], highest, rtol=1e-9)
            is_seen = highest < 0.05 and table.low[title] > 0
            word = "not testable here" if title in untestable else "seen" if is_seen else "not seen"
            assert table.verdict[title] == word
