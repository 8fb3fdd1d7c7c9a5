"""The study of hard negatives: its rows are runs, they differ in one thing each, and a results file draws the notebook
again."""

import json

import numpy as np
import pytest
from notebook_cells import tables
from PIL import Image

from complearn.core.results import Result
from complearn.training.methods.clip import OPERATORS, hard_negative_rows
from complearn.training.methods.scales import SCALES
from complearn.training.runs.config import RunConfig
from complearn.training.runs.study import Study

SOURCE = {"name": "generated", "args": SCALES["smoke"].world}


def test_rows_of_every_model_loss_and_number_of_calls_are_runs():
    rows = hard_negative_rows((1, 2, 3), models=("clip", "codebook_clip", "il_clip"), beside=(1, 2))
    scale = SCALES["smoke"]
    study = Study("/nowhere", rows, [0], SOURCE, scale, 20, scale.model(), scale.train(20, 64))
    assert len(rows) == 3 * (1 + 2 * (3 + 2))
    for label in rows:
        config = RunConfig.read(study.configuration(label, 0))
        model, *rest = label.split(", ")
        assert (config.model.codebook is not None) == (model != "clip")
        assert (config.train.negatives is not None) == bool(rest)
        if rest:
            assert config.train.negatives.calls == int(rest[1][0]) and config.train.negatives.operators == OPERATORS
            further = int(rest[1][4]) if " + " in rest[1] else None
            assert config.train.negatives.and_calls == further
            assert config.train.negatives.images == (rest[0] == "triplet_clip")
            arguments = config.method.args.get("negatives", config.method.args)
            assert arguments.get("neighbours", 0) == 0
            assert model != "il_clip" or (arguments["loss"] == "triplet") == (rest[0] == "triplet_clip")


def test_the_control_of_pictures_reads_twice_the_pairs():
    rows = hard_negative_rows((1,), models=("clip", "codebook_clip"), batch=64)
    scale = SCALES["smoke"]
    study = Study("/nowhere", rows, [0], SOURCE, scale, 20, scale.model(), scale.train(20, 64))
    sizes = {label: RunConfig.read(study.configuration(label, 0)).train.batch_size for label in rows}
    doubled = {label for label, size in sizes.items() if size == 128}
    assert doubled == {"clip, twice the pairs", "codebook_clip, twice the pairs"} and {*sizes.values()} == {64, 128}


@pytest.mark.parametrize("wrong", ({"models": ["clap"]}, {"losses": ["hinge"]}))
def test_unknown_models_and_losses_are_named(wrong):
    with pytest.raises(ValueError, match="no (model|loss) '(clap|hinge)'"):
        hard_negative_rows(**wrong)


@pytest.mark.slow
def test_a_results_file_draws_the_notebook_again(smoke, experiment, tmp_path):
    first = smoke("experiments/hard_negatives")
    assert Result.read(first.folder).setting["negatives"]["2"]["captions with a negative"] > 0.5
    again = experiment("experiments/hard_negatives", tmp_path, report_from=str(first.folder / "results.json"))
    assert again.good and not (tmp_path / "runs").exists()
    shown = tables(first.folder / "report.ipynb")
    drawn = tables(tmp_path / "report.ipynb")
    assert shown == drawn


@pytest.fixture
def edited(tmp_path):
    "A folder of pictures with captions, and negatives of one call and of two."
    noise = np.random.default_rng(0)
    things = [(a, b) for a in "cat dog cow pig owl fox".split() for b in "mat box bed rug".split()]
    names = [f"{k}.png" for k in range(len(things))]
    for name in names:
        Image.fromarray(noise.integers(0, 255, (16, 16, 3), np.uint8)).save(tmp_path / name)
    captions = [f"a {a} on a {b}" for a, b in things]
    (tmp_path / "captions.csv").write_text("image,caption\n" + "".join(f"{n},{c}\n" for n, c in zip(names, captions)))

    def swap(text, name="swap_obj"):
        return {"operator": name, "spans": [], "caption": text}

    for n in (1, 2):
        lines = []
        for (a, b), name, caption in zip(things, names, captions):
            first = f"a {b} on a {a}"
            text = f"a {b} on a {a}" if n == 1 else f"a {b} on a car"
            calls = [swap(first), swap(text, "replace_obj")]
            edit = swap(text) if n == 1 else swap(text, "several") | {"calls": calls}
            lines.append({"id": "", "image_id": name, "caption": caption, "negatives": [text], "edits": [edit]})
        (tmp_path / f"calls-{n}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    folder = {"name": "folder", "args": {"folder": str(tmp_path)}}
    return folder, {"source": folder, "edits": [str(tmp_path / f"calls-{n}.jsonl") for n in (1, 2)]}


@pytest.mark.slow
def test_captions_of_ones_own_train_with_negatives_that_were_made_beforehand(experiment, edited, tmp_path):
    folder, source = edited
    asked = {
        "data": "edited",
        "data_args": json.dumps(source),
        "judge": json.dumps({"edits": source, "retrieval": folder}),
    }
    given = asked | {"calls": [1, 2], "losses": ["negclip"], "batch_size": 8, "overlap": "keep"}
    assert experiment("experiments/hard_negatives", tmp_path / "out", **given).good
    results = Result.read(tmp_path / "out")
    one, two = results.setting["negatives"].values()
    assert (
        one["captions with a negative"] == two["captions with a negative"] == two["swap_obj"] == two["replace_obj"] == 1
    )
    assert one["replace_obj"] == 0, "without `operators` all of the file are taken, of so many calls"
    assert {"clip", "clip, negclip, 1 call", "clip, negclip, 2 calls"} <= {row["method"] for row in results.rows}
    refused = experiment("experiments/hard_negatives", tmp_path / "other", **given | {"losses": ["triplet_clip"]})
    assert not refused.result.good and "needs pictures of the negatives" in refused.text
    for changed in ({"calls": [1, 3]}, {"operators": ["replace_att"]}):
        refused = experiment("experiments/hard_negatives", tmp_path / "none", **given | changed)
        assert not refused.result.good
        assert "no training caption has a negative" in refused.text
        assert "complearn edits --calls" in refused.text


@pytest.mark.slow
def test_pictures_of_the_negatives_that_somebody_made_train_triplet_clip(experiment, edited, tmp_path):
    folder, source = edited
    shown = tmp_path / "shown"
    shown.mkdir()
    texts = [json.loads(line)["negatives"][0] for line in (tmp_path / "calls-1.jsonl").read_text().splitlines()]
    noise = np.random.default_rng(1)
    for k in range(len(texts)):
        Image.fromarray(noise.integers(0, 255, (16, 16, 3), np.uint8)).save(shown / f"{k}.png")
    (shown / "captions.csv").write_text(
        "image,caption\n" + "".join(f"{k}.png,{text}\n" for k, text in enumerate(texts))
    )
    data = {**source, "edits": source["edits"][:1], "images": {"name": "folder", "args": {"folder": str(shown)}}}
    asked = {
        "data": "edited",
        "data_args": json.dumps(data),
        "judge": json.dumps({"edits": source, "retrieval": folder}),
    }
    switches = {"train": {"preload": True}}  # pictures of negatives too
    given = asked | {
        "calls": [1],
        "losses": ["triplet_clip"],
        "batch_size": 8,
        "overlap": "keep",
        "switches": json.dumps(switches),
    }
    assert experiment("experiments/hard_negatives", tmp_path / "out", **given).good
    metrics = next((tmp_path / "out" / "runs").glob("clip_triplet_clip_1_call-*")) / "metrics.jsonl"
    assert '"with_negative_image": 1.0' in metrics.read_text()
