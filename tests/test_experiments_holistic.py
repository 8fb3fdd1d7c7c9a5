"""The positive control of iterated learning: from a holistic language, with its control and its arms."""

import pandas as pd
import pytest

from complearn.core.results import Result, rows_table
from complearn.core.runs import Run

NAME = "experiments/holistic_language"


def test_every_language_of_a_run_is_judged(smoke):
    run = smoke(NAME)
    assert run.good, run.text
    result = Result.read(run.folder)
    table = rows_table(result.rows)
    phases = {method: list(dict.fromkeys(part.phase)) for method, part in table.groupby("method")}
    ends = ["interact-01", "interact-02", "interact-03", "interact-04", "interact-05"]
    assert phases["respawned"] == phases["restarts"]
    assert phases["respawned"][:2] == ["untrained", "holistic"] and set(phases["respawned"][2:]) <= set(ends)
    steps = table.drop_duplicates(["method", "phase"]).groupby("method").step.max()
    assert steps.respawned == steps.restarts  # the same budget
    start = table[(table.phase == "holistic") & (table.split == "text") & (table.metric == "topographic_similarity")]
    assert start.value.nunique() == 1  # both begin with the very same language
    assert "One seed: no interval, so no difference is decided." in (run.folder / "report.ipynb").read_text()


def test_all_arms_train_and_chains_hear_no_pictures(experiment, tmp_path):
    arms = ["respawned", "restarts", "partial reset", "no distillation", "sampled labels, 30 % heard"]
    arms += ["short interaction", "long interaction", "chain, 30 % heard", "chain, all heard"]
    run = experiment(NAME, tmp_path, arms=arms, seeds=[3, 4])
    assert run.good, run.text
    table = rows_table(Result.read(tmp_path).rows)
    assert set(table.method) == set(arms) and set(table.seed) == {3, 4}
    chains = [path for path in (tmp_path / "runs").iterdir() if path.name.startswith("chain")]
    assert len(chains) == 4
    for folder in chains:
        records = pd.DataFrame(Run.open(folder).records())
        lessons = records[records.phase.astype(str).str.startswith("lesson") & (records.kind == "step")]
        assert len(lessons) and "contrastive_loss" not in lessons.dropna(axis=1, how="all")
    text = (tmp_path / "report.ipynb").read_text()
    assert "Corrected by Holm over the two primary measures" in text and "there was no language to break yet" in text


@pytest.mark.parametrize(
    "change, said", [({"arms": ["holy"]}, "arms: there is no 'holy'"), ({"preset": "tiny"}, "preset is one of")]
)
def test_unknown_arms_are_refused_before_anything_is_trained(change, said, experiment, tmp_path):
    run = experiment(NAME, tmp_path, **change)
    assert not run.result.good and said in run.text and not (tmp_path / "runs").exists()
