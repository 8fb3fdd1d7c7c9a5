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
    place = ("end", step, control.data, control.split, control.metric)
    levels = [(control.better, 0.3 + ahead)] + ([(control.than, 0.3)] if control.than else [])
    rows = [
        row(name, k, *place, value + noise * (-1) ** k * k, n=9) for name, value in levels[:1] for k in range(seeds)
    ]
    rows += [row(name, k, *place, value, n=9) for name, value in levels[1:] for k in range(seeds)]
    return StudyResults(control.study, {}, pd.DataFrame(rows))


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.study)
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


def test_the_measured_controls_are_those_of_their_files():
    "Differences and intervals, computed again from the rows with numpy and a t quantile alone."
    table = controls_table(read_studies([MEASURED])).set_index("control")
    for control in CONTROLS:
        find_notebook(f"{control.study}.ipynb")  # is there
        file = MEASURED / f"{control.study}.results.json"
        if not file.exists():
            assert table.verdict[control.title] == "not measured yet"
            continue
        rows = rows_table(Result.read(file).rows)
        rows = rows[(rows.data == control.data) & (rows.split == control.split) & (rows.metric == control.metric)]
        rows = rows[~(rows.phase == "untrained")]
        last = rows[rows.step.isna() | (rows.step == rows.groupby(["method", "seed"]).step.transform("max"))]
        ends = last.pivot(index="seed", columns="method", values="value").astype(float)
        gaps = (ends[control.better] - (ends[control.than] if control.than else 0.0)).dropna().to_numpy()
        half = t.ppf(0.975, len(gaps) - 1) * gaps.std(ddof=1) / np.sqrt(len(gaps))
        line = table.loc[control.title]
        assert line.n == len(gaps)
        np.testing.assert_allclose(
            [line.difference, line.low, line.high], [gaps.mean(), gaps.mean() - half, gaps.mean() + half], rtol=1e-9
        )
