"""A method in a file of its own goes where the others go: rows, runs in other processes, figures."""

import json

import pytest
import training_runs

from complearn.analysis.runs.colours import method_colour
from complearn.core.runs import Run
from complearn.training.methods.scales import SCALES
from complearn.training.runs.launch import prepare
from complearn.training.runs.study import Study, method_rows
from complearn.training.runs.sweep import command


def test_a_method_from_a_file_is_a_row_with_its_colour(tmp_path):
    scale = SCALES["smoke"]
    rows = method_rows(["clip", "hinge_siglip:hinge_siglip"])
    study = Study(tmp_path, rows, [0], training_runs.DATA, scale, 6, training_runs.MODEL | {"codebook": None}, training_runs.TRAIN)
    assert list(rows) == ["clip", "hinge_siglip"]
    assert study.configuration("hinge_siglip", 0)["method"] == {"name": "hinge_siglip:hinge_siglip", "args": {"steps": 6, "ramp": 1}}
    assert method_colour("hinge_siglip", list(rows)) == "rgba(0,0,0,1)"
    study.fit("cpu", 1)
    records = [r for r in Run.open(tmp_path / "runs" / "hinge_siglip-s0").records() if r["kind"] == "step"]
    biases = [r["bias"] for r in records if "bias" in r]
    assert len(records) == 6 and len(set(biases)) > 1, "the objective's own parameter is trained"
    assert "--allow-code" in command(study.runs["hinge_siglip", 0]) and "--allow-code" not in command(study.runs["clip", 0])


def test_a_folder_alone_cannot_name_code(tmp_path):
    config = training_runs.config({"name": "clip", "args": {"steps": 2}}, training_runs.MODEL | {"codebook": None})
    run = prepare(tmp_path / "run", config)
    path = run.path / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"method": {"name": "their_file:theirs", "args": {}}}))
    with pytest.raises(ValueError, match="--allow-code their_file:theirs"):
        command(Run.open(run.path))
