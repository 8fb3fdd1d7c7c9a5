"The rule of steps to binding, against a naive reading of it."

import pandas as pd
import pytest
from hypothesis import given, strategies as st

from complearn.core.results import row
from complearn.core.runs import Run
from complearn.evaluation.binding import (
    binding_rows,
    curve,
    evaluation_rows,
    shared_evaluations,
    steps_to_binding,
)


def log(lows, split="swap_att", every=10):
    return [
        row(
            "clip",
            0,
            "train",
            every * (i + 1),
            "generated/monitor",
            split,
            "accuracy",
            low + 0.05,
            low,
            low + 0.1,
            100,
            0.0,
        )
        for i, low in enumerate(lows)
    ]


@given(st.lists(st.sampled_from([0.4, 0.59, 0.6, 0.61, 0.9]), min_size=0, max_size=12), st.integers(1, 3))
def test_against_a_naive_reading(lows, times):
    naive = next(
        (10 * (i + 1) for i in range(len(lows) - times + 1) if all(low > 0.6 for low in lows[i : i + times])), None
    )
    assert steps_to_binding(log(lows), times=times) == naive


def test_the_last_evaluation_alone_is_not_enough():
    assert steps_to_binding(log([0.5, 0.5, 0.9])) is None and steps_to_binding(log([0.5, 0.9, 0.9])) == 20


def test_order_of_records_and_a_resumed_step_do_not_matter():
    records = log([0.5, 0.9, 0.5, 0.9, 0.9])
    again = [r | {"low": 0.9} for r in records if r["step"] == 30]
    assert steps_to_binding(records) == 40
    assert steps_to_binding(records + again) == 20 == steps_to_binding(list(reversed(records)) + again)


def test_other_splits_and_metrics_are_not_read():
    records = log([0.4] * 4) + log([0.9] * 4, split="replace_att") + [r | {"metric": "auc"} for r in log([0.9] * 4)]
    assert steps_to_binding(records) is None and steps_to_binding(records, "replace_att") == 10
    assert steps_to_binding(records, "swap_att", metric="auc") == 10
    assert steps_to_binding(log([0.9] * 3), data="elsewhere") is None


def test_a_log_without_evaluations_has_no_step(tmp_path):
    run = Run.create(tmp_path / "run", {"seed": 0})
    assert steps_to_binding(run.metrics()) is None and binding_rows(run.metrics(), "clip", 0) == []
    run.log({"step": 1, "phase": "train", "loss": 3.0})
    assert len(curve(run.metrics())) == 0 and steps_to_binding(run.metrics()) is None
    for record in log([0.5, 0.9, 0.9]):
        bare = record | {"step": None, "phase": None}  # the trainer knows where it is, the evaluation does not
        run.log({"kind": "evaluate", "name": "monitor", "step": record["step"], "phase": "train", "rows": [bare]})
    assert steps_to_binding(run.metrics()) == 20
    assert evaluation_rows(run.metrics())["phase"].tolist() == ["train"] * 3 and run.metrics().shape[0] == 4


def test_rows_say_later_than_where_it_has_not_come():
    came = binding_rows(log([0.5, 0.9, 0.9]), "clip", 3, batch=64)
    not_yet = binding_rows(log([0.5, 0.5]), "clip", 3, batch=64)
    assert [(r["metric"], r["value"], r["low"]) for r in came] == [
        ("steps_to_binding", 20, None),
        ("samples_to_binding", 1280, None),
    ]
    assert [(r["value"], r["low"], r["n"]) for r in not_yet] == [(None, 20, 2), (None, 1280, 2)]


def test_times_is_checked():
    with pytest.raises(ValueError, match="1 or more"):
        steps_to_binding(log([0.9]), times=0)


def test_shared_evaluations_are_those_that_every_run_has():
    kinds = ["evaluate"] * 5 + ["step"]
    records = pd.DataFrame({"kind": kinds, "step": [10, 20, 30, 40, 50, 50]})
    assert shared_evaluations(records, 20).step.tolist() == [20, 40, 50]
    of_runs = pd.DataFrame({"method": ["clip"] * 3 + ["il_clip"] * 3, "seed": 0, "step": [10, 20, 25, 10, 15, 30]})
    kept = shared_evaluations(of_runs, 10)
    assert (
        kept.step.tolist() == [10, 20, 25, 10, 30] and len(shared_evaluations(records[records.kind == "step"], 20)) == 0
    )
