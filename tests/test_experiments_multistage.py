"""The multistage experiment: what it writes, what it draws from a results file, what it refuses before training."""

import pytest
from notebook_cells import run_cells, tables

from complearn.core.results import Result


@pytest.mark.slow
def test_every_stage_and_all_together_are_probed_and_a_results_file_is_drawn_without_training(
    smoke, experiment, tmp_path
):
    measured = smoke("experiments/multistage").folder
    rows = Result.read(measured).rows
    probed = {(row["method"], row["phase"]) for row in rows if row["metric"] == "probe_accuracy"}
    stages = {("multistage", "stage-0"), ("multistage", "stage-1"), ("multistage", "integrated")}
    assert probed == stages | {("simclr", "integrated"), ("majority", None)}
    assert {row["split"] for row in rows if row["metric"] == "probe_accuracy"} == {"shape", "texture", "colour"}
    agreement = {row["split"]: row["value"] for row in rows if row["metric"] == "ami"}
    assert len(agreement) == 25 and agreement["stage 0 ~ stage 0"] == 1 and agreement["shape ~ colour"] < 0.1
    drawn = {row["split"]: row for row in rows if row["metric"] == "training_ami"}
    assert len(drawn) == 25 and {"stage 0 ~ groups of stage 1", "stage 0 ~ colour"} <= set(drawn)
    images = {row["n"] for row in rows if row["metric"] == "ami"}
    assert {line["n"] for line in drawn.values()} == {72} and images == {24}, "training images, and test images"
    run = experiment("experiments/multistage", tmp_path, report_from=str(measured / "results.json"))
    assert run.good and not (tmp_path / "runs").exists()
    assert tables(tmp_path / "report.ipynb")[-1] == tables(measured / "report.ipynb")[-1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"preset": "tiny"}, "no preset 'tiny'; there are smoke"),
        ({"data": "mnist"}, "no data 'mnist'"),
        ({"data": "cifar_mnist"}, "cifar_mnist needs test images"),
        ({"clusters": -1}, "numbers above 0"),
        ({"switches": '{"inherits": true}'}, "'multistage'.*inherits"),
        ({"variants": '{"worse": {"inherits": true}}'}, "'multistage'.*inherits"),
        ({"variants": '{"alone": {}}', "methods": ["simclr"]}, "name multistage among the methods"),
        ({"data_args": '{"shapes": 11}'}, "shapes"),
    ],
)
def test_what_cannot_be_is_said_before_training(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        run_cells("multistage", "study.fit(", out_dir=str(tmp_path / "out"), device="cpu", **changed)
    assert not list((tmp_path / "out" / "runs").glob("*/checkpoints/*"))


def test_a_row_is_clustered_in_its_own_number_of_clusters(tmp_path):
    variants = '{"3 clusters": {"grouping": {"clusters": 3}}, "shuffled": {"grouping": {"shuffled": true}}}'
    names = run_cells(
        "multistage", "study.measure(answers", out_dir=str(tmp_path / "out"), device="cpu", variants=variants
    )
    assert {
        label: names["grouping_of"](label).clusters for label in names["study"].rows if label.startswith("multistage")
    } == {
        "multistage": 2,
        "multistage, 3 clusters": 3,
        "multistage, shuffled": 2,
    }
    assert names["grouping_of"]("multistage, shuffled").shuffled
