"""The classification experiment on a folder of images with two seeds; what cannot be is told before training."""

import json

import numpy as np
import pytest
from notebook_cells import run_cells, tables
from PIL import Image

from complearn.core.results import Result
from complearn.core.runs import Run


def write_classes(folder, n, seed, classes=("dark", "bright")):
    """A folder per class with grey images, darker or brighter."""
    draws = np.random.default_rng(seed)
    for k, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(n):
            Image.fromarray(draws.integers(120 * k, 120 * k + 100, (20, 28, 3), dtype=np.uint8)).save(
                folder / name / f"{i}.png"
            )
    return str(folder)


@pytest.mark.slow
def test_a_folder_of_images_with_two_seeds(tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", "none")
    folders = {
        part: {"folder": write_classes(tmp_path / part, n, seed)}
        for seed, (part, n) in enumerate({"train": 12, "val": 4}.items())
    }
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2, "patch": 8, "size": 16}
    given = {
        "data": "labels",
        "data_args": json.dumps(folders["train"]),
        "test_args": json.dumps(folders["val"]),
        "vision": json.dumps(tower),
    }
    small = {
        "steps": "3",
        "batch_size": 8,
        "width": 24,
        "heads": 3,
        "fit": "squash",
        "seeds": "[0, 1]",
        "at_once": 2,
        "processes": 1,
    }
    square = {"hidden": 3, "window": 8, "stride": 8, "device": "cpu"}
    names = run_cells("classification", out_dir=str(tmp_path / "out"), **given, **small, **square)
    config = Run.open(tmp_path / "out" / "runs" / "attention-s1").config
    assert (
        config["model"] | {"attention": True, "width": 24, "heads": 3, "fit": "squash", "classes": ["bright", "dark"]}
        == config["model"]
    )
    assert not Run.open(tmp_path / "out" / "runs" / "plain-s1").config["model"]["attention"]
    assert config["data"]["args"] == folders["train"]
    rows = Result.read(tmp_path / "out").rows
    told = {(row["method"], row["seed"], row["metric"]): row for row in rows}
    for seed in (0, 1):
        top = told["attention", seed, "top1"]
        assert top["n"] == 8 and top["low"] <= top["value"] <= top["high"] and top["step"] == 3
        # three images, nine places
        assert told["attention", seed, "probability"]["n"] == 3 * 9 == told["attention", seed, "wins"]["n"]
        shares = [
            row["value"]
            for row in rows
            if row["metric"] == "surer" and row["seed"] == seed and row["method"] == "attention"
        ]
        assert len(shares) == 10 and sum(shares) == pytest.approx(told["attention", seed, "wins"]["value"])
    assert told["majority", None, "top1"]["value"] == 0.5
    both = [told["plain", seed, "top1"]["value"] for seed in (0, 1)]
    assert names["means"]["plain"]["top1"] == pytest.approx(sum(both) / 2)
    assert (names["claims"].n == 2).all() and {"top1", "probability", "loss"} <= set(names["claims"].metric)
    pages = {path.stem for path in (tmp_path / "out" / "figures").glob("*.html")}
    assert pages == {
        "accuracy",
        "occlusion_histogram",
        "occlusion_most_help",
        "occlusion_middle",
        "occlusion_most_harm",
    }


def test_a_results_file_is_drawn_without_training(smoke, experiment, tmp_path):
    measured = smoke("experiments/classification").folder
    run = experiment("experiments/classification", tmp_path, report_from=str(measured / "results.json"))
    assert run.good and not (tmp_path / "runs").exists()
    shown = tables(measured / "report.ipynb")
    drawn = tables(tmp_path / "report.ipynb")
    assert len(shown) >= 4 and drawn[-4:] == shown[-4:]
    assert (tmp_path / "figures" / "occlusion_histogram.html").exists()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"preset": "tiny"}, "no preset 'tiny'; there are smoke"),
        ({"data": "labels"}, "data labels needs test images"),
        ({"test_args": '{"folder": "x"}'}, "leave test_args empty"),
        ({"data_args": '{"skins": "photos"}'}, "no world setting 'skins'"),
        ({"hidden": -1}, "numbers above 0"),
    ],
)
def test_what_cannot_be_is_told_before_training(tmp_path, changed, told):
    with pytest.raises(ValueError, match=told):
        run_cells("classification", "run_all(", out_dir=str(tmp_path / "out"), **changed)
    assert not (tmp_path / "out" / "runs").exists()


def test_a_named_folder_of_photographs_that_is_missing_is_an_error_and_nothing_is_trained(tmp_path, monkeypatch):
    monkeypatch.delenv("COMPLEARN_PHOTOS", raising=False)
    (tmp_path / "empty").mkdir()
    for folder in ("gone", "empty"):
        with pytest.raises(ValueError, match=f"no photographs in .*{folder}.*correct photos, or leave it empty"):
            run_cells(
                "search",
                "run_all(",
                world="photos",
                photos=str(tmp_path / folder),
                out_dir=str(tmp_path / "out"),
                device="cpu",
            )
        assert not (tmp_path / "out" / "runs").exists()


def test_images_of_both_parts_and_classes_of_one_are_refused(tmp_path):
    here = write_classes(tmp_path / "a", 3, 0)
    there = write_classes(tmp_path / "b", 3, 1, ("dark", "pale"))
    given = {"data": "labels", "data_args": json.dumps({"folder": here}), "out_dir": str(tmp_path / "out")}
    with pytest.raises(ValueError, match="classes that training never shows: pale"):
        run_cells("classification", "run_all(", test_args=json.dumps({"folder": there}), **given)
    with pytest.raises(
        ValueError, match="no training pair is left without the evaluation.s: 6 training pairs share a photo"
    ):
        run_cells("classification", "run_all(", test_args=json.dumps({"folder": here}), **given)
