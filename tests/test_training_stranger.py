"""A method in a file of its own goes where the others go: rows, runs in other processes, figures."""

import json

import pytest
import training_runs

from complearn.analysis.runs.summaries import method_colour
from complearn.core.checksums import write_listed
from complearn.core.results import Result
from complearn.core.runs import Run
from complearn.data.worlds.world import world_from
from complearn.training.methods.registry import METHODS
from complearn.training.methods.scales import SCALES
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.study import Study, method_rows
from complearn.training.runs.sweep import command


def test_a_method_from_a_file_is_a_row_with_its_colour(tmp_path, warm):
    scale = SCALES["smoke"]
    rows = method_rows(["clip", "hinge_siglip:hinge_siglip"])
    study = Study(
        tmp_path, rows, [0], training_runs.DATA, scale, 6, training_runs.MODEL | {"codebook": None}, training_runs.TRAIN
    )
    assert list(rows) == ["clip", "hinge_siglip"]
    assert study.configuration("hinge_siglip", 0)["method"] == {
        "name": "hinge_siglip:hinge_siglip",
        "args": {"steps": 6, "ramp": 1},
    }
    assert method_colour("hinge_siglip", list(rows)) == "rgba(0,0,0,1)"
    with warm.starts():
        study.fit("cpu", 1)
    records = [r for r in Run.open(tmp_path / "runs" / "hinge_siglip-s0").records() if r["kind"] == "step"]
    biases = [r["bias"] for r in records if "bias" in r]
    assert len(records) == 6 and len(set(biases)) > 1, "the objective's own parameter is trained"
    assert "--allow-code" in command(study.runs["hinge_siglip", 0])
    assert "--allow-code" not in command(study.runs["clip", 0])


def test_a_method_from_a_file_brings_a_part_of_its_own(tmp_path):
    METHODS.load("weighted_clip:weighted_clip")
    name = {"name": "weighted_clip:weighted_clip", "args": {"steps": 2}}
    config = training_runs.config(name, training_runs.MODEL | {"codebook": None}, every=1, accumulate=2)
    run = prepare(tmp_path / "run", config)
    launch(run.path, progress=False)
    captions = [pair.caption for pair in world_from(training_runs.DATA["args"]).train]
    lengths = {len(caption.split()) for caption in captions}
    weights = [record["weight"] for record in run.records() if record["kind"] == "step"]
    assert len(weights) == 2 and all(min(lengths) <= weight <= max(lengths) for weight in weights)


def test_a_folder_alone_cannot_name_code(tmp_path):
    config = training_runs.config({"name": "clip", "args": {"steps": 2}}, training_runs.MODEL | {"codebook": None})
    run = prepare(tmp_path / "run", config)
    path = run.path / "config.json"
    write_listed(
        path, json.dumps(json.loads(path.read_text()) | {"method": {"name": "their_file:theirs", "args": {}}}).encode()
    )
    with pytest.raises(ValueError, match="--allow-code their_file:theirs"):
        command(Run.open(run.path))


@pytest.mark.slow
@pytest.mark.parametrize("notebook,parameters", (
    ("iterated_learning", {"methods": '["clip", "killed_once:killed_once"]'}),
    ("ablations", {"reference": "clip", "sweep": '["killed_once:killed_once"]'}),
))  # fmt: skip
def test_a_method_from_a_file_goes_through_an_experiment_is_killed_and_resumes(
    tmp_path, experiment, notebook, parameters
):
    first = experiment(f"experiments/{notebook}", tmp_path, **parameters)
    assert not first.result.good and "run killed_once-s0 was killed by signal 9" in first.text
    run = Run.open(tmp_path / "runs" / "killed_once-s0")
    assert run.done is None and run.checkpoints()[-1].name == "step-00000010"
    assert experiment(f"experiments/{notebook}", tmp_path, **parameters).good
    run = Run.open(run.path)
    steps = [record["step"] for record in run.records() if record["kind"] == "step"]
    assert run.done["step"] == 20 and steps == sorted(set(steps)), "each step is counted once"
    assert {row["method"] for row in Result.read(tmp_path).rows} >= {"clip", "killed_once"}
    figures = [page.read_text(encoding="utf-8") for page in (tmp_path / "figures").glob("*.html")]
    METHODS.load("killed_once:killed_once")  # as the notebook does; a method that is not known has a free colour
    colours = {name: method_colour(name, ["clip", "killed_once"]) for name in ("clip", "killed_once")}
    assert colours["killed_once"] == "rgba(0,0,0,1)" and all(any(name in page for page in figures) for name in colours)
    if notebook == "iterated_learning":
        assert any(all(name in page and colour in page for name, colour in colours.items()) for page in figures)
