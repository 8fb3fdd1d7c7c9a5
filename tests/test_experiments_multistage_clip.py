"""The experiment of CLIP in stages: what it writes, what it draws from a results file, what it refuses before
training."""

import pandas as pd
import pytest
from conftest import ROOT
from notebook_cells import run_cells, tables

from complearn.core.results import Result


@pytest.mark.slow
def test_stages_are_judged_beside_their_controls_and_a_results_file_is_drawn_without_training(
    smoke, experiment, tmp_path
):
    measured = smoke("experiments/multistage_clip").folder
    report = Result.read(measured)
    rows = report.rows
    runs = report.setting["runs"]
    methods = {line["method"] for line in rows if line["data"] == "average"}
    parts = {f"3 stages, {part}" for part in ("soup", "stage 0", "stage 1", "stage 2")}
    assert methods == {"clip", "clip, longer", "tuned", "3 stages", "3 stages, shuffled"} | parts
    assert {line["split"] for line in rows if line["data"] == "average"} >= {"COMP", "CLS"}
    spent = {name: record["budget"]["steps"] for name, record in runs.items()}
    assert spent["tuned-s0"] == spent["3_stages-s0"] == spent["clip_longer-s0"] - spent["clip-s0"]
    assert all(
        runs[name]["configuration"]["start"]["run"] == "../clip-s0"
        for name in ("tuned-s0", "3_stages-s0", "3_stages_shuffled-s0")
    )
    groupings = [
        runs[name]["configuration"]["method"]["args"]["grouping"] for name in ("3_stages-s0", "3_stages_shuffled-s0")
    ]
    assert groupings[1] == groupings[0] | {"shuffled": True}
    agreement = {
        line["split"]: line["value"] for line in rows if line["metric"] == "ami" and line["method"] == "3 stages"
    }
    assert len(agreement) == 9 and agreement["stage 0 ~ stage 0"] == 1
    assert any("swap" in line["split"] for line in rows if line["method"] == "3 stages, soup")
    run = experiment("experiments/multistage_clip", tmp_path, report_from=str(measured / "results.json"))
    assert run.good and not (tmp_path / "runs").exists()
    assert tables(tmp_path / "report.ipynb") == tables(measured / "report.ipynb")


def test_rows_against_wrong_captions_and_from_other_methods_have_their_controls(tmp_path):
    changed = {
        "stages": [2],
        "calls": [1, 2],
        "bases": ["clip", "il_clip"],
        "out_dir": str(tmp_path / "out"),
        "device": "cpu",
    }
    rows = run_cells("multistage_clip", "def measure(", **changed)["rows_of_study"]
    lines = [base + line for base in ("", "il_clip, ") for line in ("tuned", "2 stages", "2 stages, shuffled")]
    assert set(rows) == {
        "clip",
        "clip, longer",
        "il_clip",
        *(line + tail for line in lines for tail in ("", ", 1 call", ", 2 calls")),
    }
    harder = rows["il_clip, 2 stages, shuffled, 2 calls"]
    assert harder["start"]["row"] == "il_clip" and harder["model"] == {"codebook": {}, "stages": 2}
    assert harder["train"]["negatives"]["calls"] == 2 and harder["multistage_clip"]["objective"] == "negclip"
    assert harder["multistage_clip"]["grouping"] == {"clusters": 2, "shuffled": True}
    assert "grouping" not in rows["tuned, 1 call"]["multistage_clip"]


def test_who_tells_exchanges_is_said_of_every_row(tmp_path):
    """One row above chance is named; it is not said that none is because two stages are not."""
    measured = ROOT / "data" / "measured" / "multistage_clip.results.json"
    names = run_cells("multistage_clip", "def example_question", report_from=str(measured), out_dir=str(tmp_path))
    low = {"2 stages": 49.8, "2 stages, shuffled": 49.9, "tuned": 49.7, "clip": 50.1, "clip, longer": 49.6}
    points = pd.DataFrame({"mean": 50.4, "low": pd.Series(low), "cell": "50.4 [..]"})
    points = pd.concat([points, pd.DataFrame({"mean": {"chance": 50.0, "blind_ngram": 61.0}})])
    told = names["exchange_sentence"](points)
    assert "CLIP 50.4 [..]" in told and told.endswith("So only CLIP is shown to be above chance.")
    assert "So every row is shown" in names["exchange_sentence"](points.assign(low=50.2))
    assert "So no row is shown" in names["exchange_sentence"](points.assign(low=49.0))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"preset": "tiny"}, "no preset 'tiny'; there are smoke"),
        ({"bases": ["triplet_clip"]}, "no base 'triplet_clip'"),
        ({"stages": [1]}, "numbers above 1"),
        ({"calls": [0]}, "calls above 0"),
        ({"tuning": 0.0}, "a share above 0"),
        ({"blocks": 9}, "has 1 blocks.*give 1 to 1"),
        ({"switches": '{"multistage": {}}'}, "'multistage'"),
    ],
)
def test_what_cannot_be_is_said_before_training(tmp_path, changed, message):
    with pytest.raises(ValueError, match=message):
        run_cells("multistage_clip", out_dir=str(tmp_path / "out"), device="cpu", **changed)
    assert not list((tmp_path / "out" / "runs").glob("*/checkpoints/*"))
