"""The ablation notebook: its rows, and a sweep that is stopped, widened and gone on with; recipes of methods."""

import json

import pytest
from conftest import ROOT

from complearn.core.results import read_results
from complearn.core.runs import Run
from complearn.training.methods.recipes import ABLATIONS, METHODS, SCALES, configuration, generations, variants
from complearn.training.runs.config import check_config

NOTEBOOK = ROOT / "nbs" / "experiments" / "ablations.ipynb"
SOURCE = {"name": "generated", "args": SCALES["smoke"].world}


def test_a_sweep_goes_on_and_may_be_widened(tmp_path, experiment):
    rows = {"vision": {"il_clip": {"target": "vision"}}}
    sweep = lambda rows: experiment("experiments/ablations", tmp_path, sweep=json.dumps(rows)).text
    assert "2 runs of 2 rows and 1 seeds: 0 done before, 2 to do" in sweep(rows)
    first = (tmp_path / "runs" / "il_clip-s0" / "metrics.jsonl").read_bytes()
    (tmp_path / "runs" / "vision-s0" / "done.json").unlink()  # as if it had been stopped before its end
    assert "3 runs of 3 rows and 1 seeds: 1 done before, 2 to do" in sweep(rows | {"bare clip": {"method": "clip"}})
    assert (tmp_path / "runs" / "il_clip-s0" / "metrics.jsonl").read_bytes() == first
    assert Run.open(tmp_path / "runs" / "vision-s0").config["plan"]["args"]["target"] == "vision"
    results = read_results(tmp_path)
    told = {(row["method"], row["split"]): row for row in results["rows"] if row["data"] == "average"}
    assert {name for name, _ in told} == {"il_clip", "vision", "bare clip"} and {split for _, split in told} == {"COMP", "CLS"}
    own = {}
    for row in results["rows"]:  # by hand: one number for each data set, then their mean
        if row["method"] == "vision" and row["split"] == "mean" and row["data"] not in ("average", "generated/sugarcrepe, seen"):
            own.setdefault(row["data"], {})[row["metric"]] = row["value"]
    pick = [next(of[m] for m in ("accuracy", "image_accuracy", "image_score") if m in of) for of in own.values()]
    assert told["vision", "COMP"]["value"] == pytest.approx(sum(pick) / len(pick)) and len(pick) == 5


@pytest.mark.parametrize("cycle", (0.5, 1, 2, 3))
def test_generations_fill_the_budget(cycle):
    found = generations(SCALES["full"], 2000, cycle)
    assert found["warmup"] + found["generations"] * (found["distil"] + found["interact"]) + found["final"] == 2000
    assert found["distil"] == round(80 * cycle) and found["generations"] == max(1, round(3 / cycle))


def test_every_method_and_every_named_row_is_a_run():
    for label, one in (variants(list(ABLATIONS)) | variants(list(ABLATIONS), "il_negclip")).items():
        check_config(configuration(one["method"], 0, SCALES["smoke"], 20, 64, SOURCE, switches=one["switches"], label=label))
    assert variants(["continuity"], "il_negclip")["codebook free"]["switches"] == {"il_negclip": {"freeze_codebook": False}}
    made = {name: configuration(name, 0, SCALES["smoke"], 20, 64, SOURCE) for name in METHODS}
    assert made["negclip_paper"]["plan"] == {"name": "negclip", "args": {"steps": 30, "ramp": 1}}
    assert {name for name, one in made.items() if "negatives" in one["train"]} == {"negclip", "negclip_paper", "il_negclip"}
    assert {name for name, one in made.items() if one["model"]["codebook"]} == {"codebook_clip", "il_clip", "il_negclip"}
    assert [name for name, one in made.items() if one["model"].get("spectral")] == ["spectral_clip"]


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match="no ablation tempo; there are generation, target"):
        variants(["tempo"])
    with pytest.raises(ValueError, match="variant 'x': method is one of clip"):
        variants({"x": {"method": "clap"}})
    with pytest.raises(ValueError, match="switches are of clip.*not code"):
        variants({"x": {"code": {}}})
    with pytest.raises(ValueError, match="5 steps are too few for a warm-up and 3 generations; give at least"):
        generations(SCALES["smoke"], 5)
