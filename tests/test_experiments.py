"""The experiment notebooks as their users run them: headless, by papermill, with parameters."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from documents import command_lines, document
from notebook_cells import run_cells, shown_of_result
from PIL import Image

from complearn.core.results import Result
from complearn.core.runs import Run
from complearn.data.benchmarks.items import _benchmark_image_ids
from complearn.data.benchmarks.nlvr import read_claims
from complearn.data.benchmarks.sugarcrepe import read_sugarcrepe
from complearn.data.overlap import find_overlap
from complearn.data.readers.registry import read

NAME = "experiments/iterated_learning"
NOTEBOOK = ROOT / "nbs" / f"{NAME}.ipynb"
METHODS = ("clip", "codebook_clip", "il_clip")


def papermill(out, **parameters):
    """Run the notebook by papermill's own command; return its cells' printed text."""
    words = [sys.executable, "-m", "papermill", str(NOTEBOOK), str(out / "report.ipynb"), "-k", "python3"]
    for name, value in (parameters | {"out_dir": str(out)}).items():
        words += ["-p", name, value if isinstance(value, str) else json.dumps(value)]
    no_browser = {"BROWSER_PATH": "none", "PATH": os.path.dirname(sys.executable)}
    env = {**os.environ, **no_browser, "OMP_NUM_THREADS": "1", "COMPLEARN_TYPECHECK": "0"}
    done = subprocess.run(words, cwd=out, env=env, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = nbformat.read(out / "report.ipynb", 4).cells
    return "\n".join(o.get("text", "") for c in cells for o in c.get("outputs", [])) + done.stderr


@pytest.fixture
def copy(smoke, tmp_path):
    """A copy of the smoke run, to go on with."""
    return shutil.copytree(smoke(NAME).folder, tmp_path / "copy")


def test_smoke_writes_what_a_reader_needs(smoke):
    run = smoke(NAME)
    assert run.good
    out = run.folder
    text = run.text
    rows = Result.read(out).rows
    assert {row["method"] for row in rows} >= {*METHODS, "chance", "blind_length", "blind_ngram"}
    cells = {
        (row["method"], row["split"])
        for row in rows
        if row["data"] == "generated/sugarcrepe" and row["metric"] == "accuracy"
    }
    assert cells >= {(method, split) for method in METHODS for split in ("swap_att", "swap_obj", "replace_att", "mean")}
    for row in rows:
        # whose intervals are over seeds
        if row["method"] in METHODS and row["metric"] == "accuracy" and row["data"] != "average":
            assert row["low"] <= row["value"] <= row["high"] and row["n"] > 0 and row["ties"] is not None
    assert any(row["metric"] == "steps_to_binding" for row in rows)
    averages = {row["split"] for row in rows if row["data"] == "average"}
    assert averages == {"COMP", "BIND", "NOUN", "REL", "ATT", "CLS", "probing", "retrieval"}
    ends = {
        method: [row["step"] for row in rows if (row["method"], row["metric"]) == (method, "alignment")]
        for method in METHODS
    }
    assert len(ends["il_clip"]) > 1 and ends["clip"] == ends["codebook_clip"] == ends["il_clip"]
    assert any(row["split"] == "zero_shot" for row in rows) and any(row["split"] == "linear_probe" for row in rows)
    table = nbformat.read(out / "report.ipynb", 4).cells[-1].outputs[0]["data"]["text/html"]
    assert all(word in table for word in ("(R@1)", "(group)", "(image)", "generated/objects: zero_shot", "blind_ngram"))
    assert (
        all((out / "figures" / f"{name}.html").exists() for name in ("loss", "matched_codes"))
        and len(list((out / "runs").iterdir())) == 3
    )
    assert "0 training pairs share a photo with the evaluation, 0 only a caption" in text
    assert "saved as HTML only" in text


@pytest.mark.parametrize("name", ("ablations", "iterated_learning", "learnability", "classification"))
def test_a_result_is_drawn_alike_after_measuring_and_from_its_file(name, smoke, experiment, tmp_path):
    """Tables, sentences and figures: nothing that is shown needs a run, a model or a study."""
    measured = smoke(f"experiments/{name}")
    assert measured.good
    drawn = experiment(f"experiments/{name}", tmp_path, report_from=str(measured.folder / "results.json"))
    assert drawn.good and not (tmp_path / "runs").exists()
    after, again = (shown_of_result(folder / "report.ipynb") for folder in (measured.folder, tmp_path))
    assert len(after) > 6 and sum(map(len, after)) > 8
    for number, (now, then) in enumerate(zip(after, again, strict=True)):
        assert now == then, f"cell {number} behind the result shows something else when it is drawn from its file"


@pytest.mark.slow
def test_again_in_the_same_folder_says_what_is_there(copy):
    """By papermill's own command, so that this stays tested too."""
    before = (copy / "runs" / "clip-s0" / "metrics.jsonl").read_bytes()
    said = papermill(copy, preset="smoke", seeds="[0]", methods='["clip"]')
    assert "1 of 1 run is there already" in said
    assert (copy / "runs" / "clip-s0" / "metrics.jsonl").read_bytes() == before


def test_another_configuration_in_the_same_folder_is_refused(experiment, copy):
    run = experiment(NAME, copy, seeds="[0]", steps="24")
    assert not run.result.good
    assert "holds another run" in run.text
    assert "method.args.steps: 20 there, 24 asked for" in run.text
    assert Run.open(copy / "runs" / "clip-s0").done["step"] == 20


def test_every_parameter_is_explained(tmp_path):
    words = [sys.executable, "-m", "papermill", "--help-notebook", str(NOTEBOOK)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    tagged = next(c for c in nbformat.read(NOTEBOOK, 4).cells if "parameters" in c.metadata.get("tags", []))
    names = re.findall(r"^(\w+): \w+ =", tagged.source, re.M)
    assert names[0] == "preset" and len(names) >= 10
    for name in names:
        told = re.search(rf"^\s+{name}: .*\n?\s*(\S.*)", done.stdout, re.M)
        assert told and "Unknown" not in told.group(0).split("(")[0] and len(told.group(0).split()) > 6, (
            f"{name} is not explained"
        )


def real_source(folder):
    """COCO photos that SugarCrepe does not ask about, and the true statements of NLVR's training half."""
    coco = folder / "coco"
    asked = sorted(_benchmark_image_ids(read_sugarcrepe(folder / "sugarcrepe", coco / "val2017")))
    captions = {part: str(coco / "annotations" / f"captions_{part}.json") for part in ("train2017", "val2017")}
    parts = [
        {"name": "coco", "args": {"images": str(coco / "train2017"), "annotations": captions["train2017"]}},
        {
            "name": "coco",
            "args": {"images": str(coco / "val2017"), "annotations": captions["val2017"], "exclude": asked},
        },
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
    shared = find_overlap(train, asked)
    assert not shared.images and not shared.captions
    assert len({pair.image_id for pair in train if not pair.image_id.startswith("nlvr")}) == 80 + 126
    leaky = read("coco", images=judge["sugarcrepe"]["images"], annotations=source["parts"][1]["args"]["annotations"])
    assert find_overlap(leaky, asked).images  # the check can fail; captions are those of other photos


@pytest.mark.real
@pytest.mark.slow
def test_real_files_end_to_end(real_data, tmp_path, experiment):
    source, judge = real_source(real_data)
    source = json.dumps(source)
    judge = json.dumps(judge)
    assert experiment(NAME, tmp_path, data="joined", data_args=source, judge=judge, fit="pad", seeds="[0]").good
    rows = Result.read(tmp_path).rows
    for method in METHODS:
        own = {
            (row["data"], row["split"]): row for row in rows if row["method"] == method and row["metric"] == "accuracy"
        }
        assert own["sugarcrepe", "swap_obj"]["n"] == 11 and own["sugarcrepe", "mean"]["n"] == 286
        assert any(data == "nlvr" for data, _ in own)
        assert any(
            row["data"] == "nlvr" and row["metric"] == "auc" and 0 <= row["value"] <= 1
            for row in rows
            if row["method"] == method
        )
        assert any(
            row["metric"] == "steps_to_binding" and row["data"] == "sugarcrepe"
            for row in rows
            if row["method"] == method
        )
    assert {row["method"] for row in rows} >= {"chance", "blind_length", "blind_ngram"}


def documented_command(name, out_dir):
    """Parameters of the one command of docs/own-data.md whose out_dir is this."""
    (line,) = [
        line
        for line in command_lines(document("docs/own-data.md"))
        if line.startswith(f"papermill nbs/experiments/{name}.ipynb") and out_dir in line.split()
    ]
    words = shlex.split(line)
    return {words[k + 1]: words[k + 2] for k, word in enumerate(words) if word == "-p" and words[k + 1] != "out_dir"}


def below(folder, value, key=""):
    """A parameter with its relative paths below a folder."""
    if isinstance(value, dict):
        return {name: below(folder, item, name) for name, item in value.items()}
    return str(folder / value) if isinstance(value, str) and (key == "folder" or "/" in value) else value


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.parametrize(
    ("out_dir", "questions"), [("results/coco", {"sugarcrepe": 286}), ("results/flickr8k", {"foils": 341})]
)
def test_real_data_are_trained_on_and_judged_by_the_documented_commands(
    out_dir, questions, real_data, tmp_path, experiment
):
    """Nothing to exclude by hand: what training shares with the questions is dropped, counted and written down."""
    parameters = documented_command("iterated_learning", out_dir)
    for name in ("data_args", "judge"):
        parameters[name] = json.dumps(below(real_data, json.loads(parameters[name])))
    assert experiment(NAME, tmp_path, **parameters).good
    results = Result.read(tmp_path)
    overlap = results.setting["overlap"]
    counts = {}
    assert overlap["policy"] == "drop" and overlap["dropped"] == overlap["images"] + overlap["captions"]
    assert results.setting["blind_ngram"]["captions"] > 300 and "training" in results.setting["captions_cut"]
    for row in results.rows:
        if row["split"] == "mean" and row["metric"] == "accuracy" and row["method"] in METHODS:
            counts.setdefault(row["data"], set()).add(row["n"])
    assert counts == {name: {n} for name, n in questions.items()}


@pytest.mark.real
@pytest.mark.slow
def test_training_on_the_photos_of_the_questions_drops_them(real_data, tmp_path, experiment):
    args = {"images": "coco/val2017", "annotations": "coco/annotations/captions_val2017.json"}
    judge = json.dumps({"sugarcrepe": below(real_data, {"folder": "sugarcrepe", "images": "coco/val2017"})})
    given = {
        "data": "coco",
        "data_args": json.dumps(below(real_data, args)),
        "judge": judge,
        "methods": "['clip']",
        "steps": 3,
    }
    assert experiment(NAME, tmp_path, **given).good
    overlap = Result.read(tmp_path).setting["overlap"]
    assert (overlap["images"], overlap["captions"], overlap["dropped"]) == (285, 0, 285)
    run = Run.open(tmp_path / "runs" / "clip-s0")
    assert run.config["data"]["name"] == "disjoint" and len(run.config["data"]["args"]["exclude"]) == 285


@pytest.mark.real
@pytest.mark.slow
def test_a_text_agent_learns_against_a_frozen_imagenet_tower(real_data, tmp_path, experiment):
    pytest.importorskip(
        "efficientnet_lite_pytorch", reason="the extra 'offline' is not installed: no ImageNet weights here"
    )
    source, judge = real_source(real_data)
    source = {"parts": source["parts"][:1]}
    args = {
        "data_args": source,
        "judge": {"sugarcrepe": judge["sugarcrepe"]},
        "vision": {"tower": "efficientnet_lite0"},
    }
    args = {name: json.dumps(value) for name, value in args.items()} | {
        "methods": "['clip']",
        "steps": 60,
        "batch_size": 32,
    }
    assert experiment(NAME, tmp_path, data="joined", **args).good
    run = Run.open(tmp_path / "runs" / "clip-s0")
    losses = [record["contrastive_loss"] for record in run.records() if record["kind"] == "step"]
    assert sum(losses[-5:]) / 5 < sum(losses[:5]) / 5 - 0.1


def test_data_without_questions_are_refused_before_training(tmp_path, experiment):
    run = experiment(NAME, tmp_path, data="folder", data_args=json.dumps({"folder": str(tmp_path)}))
    assert not run.result.good and "brings no questions" in run.text and not (tmp_path / "runs").exists()


def photo_folder(folder, count, colour):
    "A folder of small pictures, one caption each."
    folder.mkdir()
    rows = ["image,caption"]
    for number in range(count):
        shade = tuple((colour + 7 * number * (place + 1)) % 256 for place in range(3))
        Image.new("RGB", (32, 32), shade).save(folder / f"{number}.png")
        rows.append(f"{number}.png,a picture of shade {colour} and number {number}")
    (folder / "captions.csv").write_text("\n".join(rows) + "\n")
    return {"folder": str(folder), "captions_file": "captions.csv"}


def test_fewer_pairs_than_a_batch_are_said_before_anything_starts_and_the_corrected_command_goes_on(tmp_path):
    train = photo_folder(tmp_path / "train", 45, 1)
    asked = photo_folder(tmp_path / "asked", 8, 130)
    judge = {"retrieval": {"name": "folder", "args": asked}}
    given = {"methods": ["clip"], "data": "folder", "data_args": json.dumps(train), "judge": json.dumps(judge)}
    given |= {"out_dir": str(tmp_path / "out"), "device": "cpu"}

    def runs_made(**changed):
        names = run_cells("iterated_learning", "study.fit(", **given, **changed)
        pairs = names["StudyData"](names["source"], names["judge"], names["scale"].n, names["overlap"])
        return names["make_study"](pairs).runs

    with pytest.raises(
        ValueError, match="45 pairs do not fill a batch of 64; give batch_size=45 or less, or more pairs"
    ):
        runs_made()
    assert not (tmp_path / "out" / "runs").exists()
    runs = runs_made(batch_size=32)
    assert runs["clip", 0].config["train"]["batch_size"] == 32
    # it never took a step
    runs = runs_made(batch_size=16, lr="3e-4", ramp=4)
    config = runs["clip", 0].config
    assert config["train"]["batch_size"] == 16
    assert config["train"]["lr"] == 3e-4
    assert config["method"]["args"]["ramp"] == 4


def test_a_switch_reaches_the_runs(tmp_path, experiment):
    changed = {
        "il_clip": {"temperature": 0.1, "freeze_codebook": False},
        "codebook": {"similarity": "dot", "init": "normal"},
    }
    assert experiment(NAME, tmp_path, methods="['il_clip']", switches=json.dumps(changed), lr="5e-4", ramp=3).good
    config = Run.open(tmp_path / "runs" / "il_clip-s0").config
    assert config["train"]["lr"] == 5e-4 and config["method"]["args"]["ramp"] == 3
    assert config["method"]["args"]["temperature"] == 0.1 and config["model"]["codebook"]["similarity"] == "dot"
    assert Result.read(tmp_path).setting["switches"] == changed
