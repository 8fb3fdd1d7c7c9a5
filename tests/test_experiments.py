"""The experiment notebooks as their users run them: headless, by papermill, with parameters."""

import json
import os
import re
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT

from complearn.core.runs import Run, read_results
from complearn.data.benchmarks.items import benchmark_photos, read_claims, read_sugarcrepe
from complearn.data.overlap import overlap
from complearn.data.readers.registry import read

NOTEBOOK = ROOT / "nbs" / "experiments" / "iterated_learning.ipynb"
METHODS = ("clip", "codebook_clip", "il_clip")


def papermill(out, expect=0, **parameters):
    """Run the notebook; return its cells' printed text."""
    words = [sys.executable, "-m", "papermill", str(NOTEBOOK), str(out / "report.ipynb"), "-k", "python3"]
    for name, value in (parameters | {"out_dir": str(out)}).items():
        words += ["-p", name, value if isinstance(value, str) else json.dumps(value)]
    no_browser = {"BROWSER_PATH": "none", "PATH": os.path.dirname(sys.executable)}
    env = {**os.environ, **no_browser, "OMP_NUM_THREADS": "1", "COMPLEARN_TYPECHECK": "0"}
    done = subprocess.run(words, cwd=out, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == expect, done.stderr[-3000:]
    cells = nbformat.read(out / "report.ipynb", 4).cells if (out / "report.ipynb").exists() else []
    return "\n".join(o.get("text", "") for c in cells for o in c.get("outputs", [])) + done.stderr


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """One smoke run of the main experiment."""
    out = tmp_path_factory.mktemp("smoke")
    return out, papermill(out, preset="smoke", seeds="[0]")


@pytest.mark.slow
def test_smoke_writes_what_a_reader_needs(finished):
    out, said = finished
    rows = read_results(out)["rows"]
    assert {row["method"] for row in rows} >= {*METHODS, "chance", "blind_length", "blind_ngram"}
    cells = {(row["method"], row["split"]) for row in rows if row["data"] == "generated/sugarcrepe" and row["metric"] == "accuracy"}
    assert cells >= {(method, split) for method in METHODS for split in ("swap_att", "swap_obj", "replace_att", "mean")}
    for row in rows:
        if row["method"] in METHODS and row["metric"] == "accuracy":
            assert row["low"] <= row["value"] <= row["high"] and row["n"] > 0 and row["ties"] is not None
    assert any(row["metric"] == "steps_to_binding" for row in rows)
    assert any(row["split"] == "zero_shot" for row in rows) and any(row["split"] == "linear_probe" for row in rows)
    told = nbformat.read(out / "report.ipynb", 4).cells[-1].outputs[0]["data"]["text/html"]
    assert all(word in told for word in ("(R@1)", "(group)", "(image)", "generated/objects: zero_shot", "blind_ngram"))
    assert (out / "figures" / "loss.html").exists() and len(list((out / "runs").iterdir())) == 3
    assert "0 training pairs share an image and 0 a caption" in said and "saved as HTML only" in said


@pytest.mark.slow
def test_again_in_the_same_folder_says_what_is_there(finished):
    out, _ = finished
    before = (out / "runs" / "clip-s0" / "metrics.jsonl").read_bytes()
    said = papermill(out, preset="smoke", seeds="[0]")
    assert "3 of 3 runs are there already" in said
    assert (out / "runs" / "clip-s0" / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
def test_another_configuration_in_the_same_folder_is_refused(finished):
    out, _ = finished
    said = papermill(out, expect=1, preset="smoke", seeds="[0]", steps="24")
    assert "holds another run" in said and "plan.args.steps: 20 there, 24 asked for" in said
    assert Run.open(out / "runs" / "clip-s0").done["step"] == 20


def test_every_parameter_is_explained(tmp_path):
    words = [sys.executable, "-m", "papermill", "--help-notebook", str(NOTEBOOK)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    tagged = next(c for c in nbformat.read(NOTEBOOK, 4).cells if "parameters" in c.metadata.get("tags", []))
    names = re.findall(r"^(\w+): \w+ =", tagged.source, re.M)
    assert names[0] == "preset" and len(names) >= 10
    for name in names:
        told = re.search(rf"^\s+{name}: .*\n?\s*(\S.*)", done.stdout, re.M)
        assert told and "Unknown" not in told.group(0).split("(")[0] and len(told.group(0).split()) > 6, f"{name} is not explained"


def real_source(folder):
    """COCO photos that SugarCrepe does not ask about, and the true statements of NLVR's training half."""
    coco = folder / "coco"
    asked = sorted(benchmark_photos(read_sugarcrepe(folder / "sugarcrepe", coco / "val2017")))
    captions = {part: str(coco / "annotations" / f"captions_{part}.json") for part in ("train2017", "val2017")}
    parts = [
        {"name": "coco", "args": {"images": str(coco / "train2017"), "annotations": captions["train2017"]}},
        {"name": "coco", "args": {"images": str(coco / "val2017"), "annotations": captions["val2017"], "exclude": asked}},
        {"name": "nlvr", "args": {"folder": str(folder / "nlvr" / "dev")}},
    ]
    judge = {
        "sugarcrepe": {"folder": str(folder / "sugarcrepe"), "images": str(coco / "val2017")},
        "nlvr": {"folder": str(folder / "nlvr" / "dev")},
    }
    return {"parts": parts}, judge


@pytest.mark.real
def test_real_training_and_evaluation_share_nothing(real_data):
    source, judge = real_source(real_data)
    train = read("joined", **source)
    asked = [*read_sugarcrepe(**judge["sugarcrepe"]), *read_claims(**judge["nlvr"])]
    shared = overlap(train, asked)
    assert not shared.images and not shared.captions
    assert len({pair.image_id for pair in train if not pair.image_id.startswith("nlvr")}) == 80 + 126
    leaky = read("coco", images=judge["sugarcrepe"]["images"], annotations=source["parts"][1]["args"]["annotations"])
    assert overlap(leaky, asked).images and overlap(leaky, asked).captions  # the check can fail


@pytest.mark.real
@pytest.mark.slow
def test_real_files_end_to_end(real_data, tmp_path):
    source, judge = real_source(real_data)
    papermill(tmp_path, preset="smoke", data="joined", data_args=source, judge=judge, fit="pad", seeds="[0]")
    rows = read_results(tmp_path)["rows"]
    for method in METHODS:
        own = {(row["data"], row["split"]): row for row in rows if row["method"] == method and row["metric"] == "accuracy"}
        assert own["sugarcrepe", "swap_obj"]["n"] == 11 and own["sugarcrepe", "mean"]["n"] == 286
        assert any(data == "nlvr" for data, _ in own)
        assert any(row["data"] == "nlvr" and row["metric"] == "auc" and 0 <= row["value"] <= 1 for row in rows if row["method"] == method)
        assert any(row["metric"] == "steps_to_binding" and row["data"] == "sugarcrepe" for row in rows if row["method"] == method)
    assert {row["method"] for row in rows} >= {"chance", "blind_length", "blind_ngram"}


@pytest.mark.real
@pytest.mark.slow
def test_a_text_agent_learns_against_a_frozen_imagenet_tower(real_data, tmp_path):
    pytest.importorskip("efficientnet_lite_pytorch", reason="the extra 'offline' is not installed: no ImageNet weights here")
    source, judge = real_source(real_data)
    source = {"parts": source["parts"][:1]}
    chosen = {"vision": {"tower": "efficientnet_lite0"}, "methods": "['clip']", "steps": "60", "batch_size": "32"}
    papermill(tmp_path, preset="smoke", data="joined", data_args=source, judge={"sugarcrepe": judge["sugarcrepe"]}, **chosen)
    run = Run.open(tmp_path / "runs" / "clip-s0")
    losses = [record["contrastive_loss"] for record in run.records() if record["kind"] == "step"]
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.1


def test_data_without_questions_are_refused_before_training(tmp_path):
    said = papermill(tmp_path, expect=1, preset="smoke", data="folder", data_args={"folder": str(tmp_path)})
    assert "brings no questions" in said and not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_a_switch_reaches_the_runs(tmp_path):
    changed = {"il_clip": {"temperature": 0.1, "freeze_codebook": False}, "codebook": {"similarity": "dot", "init": "normal"}}
    papermill(tmp_path, preset="smoke", methods="['il_clip']", switches=changed)
    config = Run.open(tmp_path / "runs" / "il_clip-s0").config
    assert config["plan"]["args"]["temperature"] == 0.1 and config["model"]["codebook"]["similarity"] == "dot"
    assert read_results(tmp_path)["setting"]["switches"] == changed
