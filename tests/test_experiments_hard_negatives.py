"""The study of hard negatives: its rows are runs, they differ in one thing each, and a results file draws the notebook again."""

import pytest
from notebook_cells import tables

from complearn.core.results import read_results
from complearn.training.methods.hard_negatives import OPERATORS, hard_negative_rows
from complearn.training.methods.scales import SCALES
from complearn.training.runs.config import RunConfig
from complearn.training.runs.study import Study

SOURCE = {"name": "generated", "args": SCALES["smoke"].world}


def test_rows_of_every_model_loss_and_number_of_calls_are_runs():
    rows = hard_negative_rows((1, 2, 3), models=("clip", "codebook_clip", "il_clip"))
    scale = SCALES["smoke"]
    study = Study("/nowhere", rows, [0], SOURCE, scale, 20, scale.model(), scale.train(20, 64))
    assert len(rows) == 3 * (1 + 2 * 3)
    for label in rows:
        config = RunConfig.read(study.configuration(label, 0))
        model, *rest = label.split(", ")
        assert (config.model.codebook is not None) == (model != "clip")
        assert (config.train.negatives is not None) == bool(rest)
        if rest:
            assert config.train.negatives.calls == int(rest[1][0]) and config.train.negatives.operators == OPERATORS
            assert config.train.negatives.images == (rest[0] == "triplet_clip")
            arguments = config.method.args.get("negatives", config.method.args)
            assert arguments.get("neighbours", 0) == 0
            assert model != "il_clip" or (arguments["loss"] == "triplet") == (rest[0] == "triplet_clip")


@pytest.mark.parametrize("wrong", ({"models": ["clap"]}, {"losses": ["hinge"]}))
def test_unknown_models_and_losses_are_named(wrong):
    with pytest.raises(ValueError, match="no (model|loss) '(clap|hinge)'"):
        hard_negative_rows(**wrong)


@pytest.mark.slow
def test_a_results_file_draws_the_notebook_again(smoke, experiment, tmp_path):
    first = smoke("experiments/hard_negatives")
    assert read_results(first.folder)["setting"]["yields"]["2"] > 0.5
    again = experiment("experiments/hard_negatives", tmp_path, report_from=str(first.folder / "results.json"))
    assert again.good and not (tmp_path / "runs").exists()
    shown, drawn = tables(first.folder / "report.ipynb"), tables(tmp_path / "report.ipynb")
    assert shown[1:] == drawn[1:]
