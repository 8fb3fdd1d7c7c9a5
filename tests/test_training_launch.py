"""Runs from a configuration: what is refused before anything is read, and what a folder of files becomes."""

import copy
import csv
import json
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
import training_runs
from PIL import Image

from complearn.core.checksums import missing_files, write_listed
from complearn.core.files import read_json
from complearn.core.runs import Run, find
from complearn.data.loading import content_fingerprint, fingerprint
from complearn.data.pairs import Transform, preloaded_bytes
from complearn.data.readers.registry import known_count, read
from complearn.data.worlds.world import World
from complearn.launch import main
from complearn.training.engine.checkpoints import load_checkpoint
from complearn.training.methods.catalogue import METHODS
from complearn.training.methods.clip import clip
from complearn.training.methods.registry import method
from complearn.training.runs.config import EVALUATIONS, RunConfig, Start, Train
from complearn.training.runs.launch import (
    _check_data,
    _fits_in_memory,
    _hold_lock,
    launch,
    make_trainer,
    prepare,
    read_ahead,
)
from complearn.training.runs.snapshots import Snapshot
from complearn.training.runs.warm_start import load_start

GOOD = training_runs.config({"name": "clip", "args": {"steps": 6, "ramp": 2}}, training_runs.MODEL | {"codebook": None})


def changed(**parts):
    return copy.deepcopy(GOOD) | parts


@pytest.mark.parametrize(
    "parts,told",
    (
        ({"method": {"name": "klip"}}, "no method 'klip' .did you mean 'clip'.*there are .*codebook_clip, .*il_clip"),
        (
            {"method": {"name": "clip", "args": {"step": 3}}},
            "method 'clip' key 'step' .did you mean 'steps'.*there are steps, ramp",
        ),
        ({"method": {"name": "clip"}}, "method 'clip'.steps is missing"),
        (
            {"method": {"name": "clip", "args": {"steps": "many"}}},
            "method 'clip'.steps should be a valid integer, not 'many'",
        ),
        ({"method": {"name": "clip", "args": {"steps": -3}}}, "method 'clip'.steps should be greater than 0, not -3"),
        (
            {"train": {"batch_size": 8, "precision": "fp17"}},
            "train.precision should be 'auto', 'fp32' or 'bf16', not 'fp17'",
        ),
        ({"train": {"batch_size": 8, "device": "gpu0"}}, "train.device: no device 'gpu0'; there are auto, cpu, cuda"),
        (
            {"train": {"batch_size": 8, "words": {"contxt": 3}}},
            "train.words key 'contxt' .did you mean 'context'.*min_count, max_words",
        ),
        (
            {"train": {"batch_size": 8, "augment": {"areaa": [0.5, 1.0]}}},
            "train.augment key 'areaa' .did you mean 'area'",
        ),
        (
            {"train": {"batch_size": 8, "preload": True, "augment": {"area": [0.5, 1.0]}}},
            "preload holds .* random crops need the whole",
        ),
        ({"data": {"name": "folder", "args": {"foldr": "x"}}}, "reader 'folder' key 'foldr' .did you mean 'folder'"),
        (
            {"data": {"name": "folder", "args": {"folder": "x", "max_bad": "few"}}},
            "reader 'folder'.max_bad should be a valid number",
        ),
        (
            {"data": {"name": "generated", "args": {"colors": 3}}},
            "reader 'generated' key 'colors' .did you mean 'colours'",
        ),
        (
            {"data": {"name": "joined", "args": {"parts": [{"name": "folder", "args": {"foldr": "x"}}]}}},
            "reader 'folder' key 'foldr'",
        ),
        ({"method": {"name": "no.such.module:mine"}}, "--allow-code no.such.module:mine"),
        ({"method": {"name": "math:mine"}}, "no method 'mine' in math, which registers none"),
        ({"plan": {"name": "clip"}}, "older format, which says 'plan' where this version says 'method'"),
        ({"model": {"towers": 2}}, "towers.*vision, text"),
        (
            {"data": {"nam": "generated"}},
            "configuration.data.name is missing; no configuration.data key 'nam' .did you mean 'name'",
        ),
        ({"train": {"lr": 1e-3}}, "train.batch_size is missing"),
        (
            {"train": {"batch_size": 8, "learning_rate": 1e-3}},
            "no configuration.train key 'learning_rate'; there are lr, .*batch_size",
        ),
        ({"train": {"batch_size": 8, "ema": 1.0}}, "train.ema should be less than 1, not 1.0"),
        ({"evaluate": {"choices": {"name": "no_such"}}}, "no evaluation 'no_such'; there are .*world_monitor"),
        (
            {"evaluate": {"choices": {"name": "world_monitor", "args": {"a": 1}}}},
            "'world_monitor' key 'a'; there are world, n",
        ),
        ({"batch": 8}, "no configuration key 'batch'; there are method, model, data, train"),
        ({"train": {"batch_size": "four"}}, "train.batch_size should be a valid integer, not 'four'"),
        ({"train": {"batch_size": -4}}, "train.batch_size should be greater than or equal to 1, not -4"),
        ({"train": {"batch_size": 4, "workers": -1}}, "train.workers should be greater than or equal to 0, not -1"),
        ({"train": {"batch_size": 4, "negatives": "swpa"}}, "swpa"),
        ({"train": ["batch_size"]}, "train should be a mapping with the keys lr, .*batch_size"),
        ({"method": 3}, "method should be a mapping with the keys name, args, not 3"),
        ({"data": {"name": "foldr"}}, "no reader 'foldr'"),
        ({"evaluate": {"x": 3}}, "evaluate.x should be a mapping"),
        ({"evaluate": {"x": {"name": "world_monitor", "argz": 1}}}, "evaluate.x key 'argz'"),
        ({"start": {"run": "../a"}}, "start: give a phase .* or a step"),
        ({"seed": "0"}, "seed should be a valid integer, not '0'"),
    ),
)
def test_a_wrong_configuration_is_refused_before_a_folder_is_made(tmp_path, parts, told):
    with pytest.raises(ValueError, match=told):
        prepare(tmp_path / "run", changed(**parts))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "tower, told",
    (
        (
            "open_clip:ViT-B-32:{0}/min.pt",
            "open_clip has no weights '{0}/min.pt' for ViT-B-32, and there is no such file",
        ),
        ({"tower": "open_clip:ViT-B-32:{0}/empty"}, "{0}/empty holds no weights"),
        ("open_clip:ViT-B-23:openai", "open_clip has no model 'ViT-B-23'; similar names: .*ViT-B-32"),
        ("open_clip:ViT-B-32", "ViT-B-32 names no weights; give "),
        ("hf:{0}/clp", "there is no folder {0}/clp; give one with a config.json and its weights"),
        ("timm:{0}/empty", "{0}/empty holds no config.json"),
    ),
)
def test_weights_that_are_not_there_are_said_before_a_folder_is_made(tmp_path, tower, told):
    "The process that trains found it out after a minute."
    (tmp_path / "empty").mkdir()
    tower = tower.format(tmp_path) if isinstance(tower, str) else {"tower": tower["tower"].format(tmp_path)}
    config = changed(model=GOOD["model"] | {"vision": tower})
    with pytest.raises(ValueError, match="model.vision is .*" + told.format(tmp_path)):
        prepare(tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


def test_a_run_that_has_ended_needs_its_first_weights_no_more(tmp_path):
    config = changed(model=GOOD["model"] | {"vision": {"tower": "open_clip:ViT-B-32", "random_weights": True}})
    run = prepare(tmp_path / "run", config)
    gone = changed(model=GOOD["model"] | {"vision": f"open_clip:ViT-B-32:{tmp_path}/gone.pt"})
    Run.create(tmp_path / "ended", {**run.config, "model": gone["model"]}).finish({})
    assert prepare(tmp_path / "ended", {**run.config, "model": gone["model"]}).done == {}


def test_fewer_pairs_than_a_batch_are_said_before_a_folder_is_made(tmp_path, photos):
    """The notebooks have read the data by then; a generated world says its size without being drawn."""
    source = {"name": "folder", "args": {"folder": str(photos), "captions_file": "captions.csv"}}
    read(source["name"], **source["args"])
    told = "24 pairs do not fill a batch of 64; give batch_size=24 or less"
    for data in (
        source,
        {"name": "disjoint", "args": {"source": source}},
        {"name": "generated", "args": {"n_train": 24}},
    ):
        with pytest.raises(ValueError, match=told):
            prepare(tmp_path / "run", changed(data=data, train=GOOD["train"] | {"batch_size": 64}))
    fewer = {"source": source, "exclude": ["captions:2"]}  # no pair has this id, as reading says
    assert known_count("disjoint", fewer) is None
    assert len(read("disjoint", **fewer)) == known_count("disjoint", fewer) == 24
    assert not (tmp_path / "run").exists() and prepare(tmp_path / "run", changed(data=source)).path.exists()


def test_fewer_pairs_than_a_batch_are_said_before_a_model_is_built(tmp_path, monkeypatch):
    unread = {"name": "generated", "args": {"n_train": 8, "preset": "small", "part": "seen", "n_test": 4, "size": 16}}
    run = prepare(tmp_path / "run", changed(data=unread))  # how many that are, only reading tells
    monkeypatch.setattr("complearn.training.runs.launch.build", None)
    with pytest.raises(ValueError, match="4 pairs do not fill a batch of 8; give batch_size=4 or less"):
        launch(run.path, progress=False)


def test_a_folder_that_never_took_a_step_is_taken_over(tmp_path, capsys):
    few = changed(data={"name": "generated", "args": {"n_train": 8, "part": "seen", "n_test": 4, "size": 16}})
    run = prepare(tmp_path / "run", few)
    with pytest.raises(ValueError, match="give batch_size=4"):
        launch(run.path, progress=False)
    again = prepare(run.path, changed())  # other data, another batch: corrected, into the same folder
    assert again.config["data"] == GOOD["data"]
    assert "run never took a step: data.args.n_train: 8 there, 48" in capsys.readouterr().out
    assert not (run.path / "data.json").exists() and not missing_files(run.path)
    assert launch(run.path, progress=False).done["step"] == 6
    with pytest.raises(FileExistsError, match="holds another run: train.batch_size: 8 there, 4 asked for"):
        prepare(run.path, changed(train=GOOD["train"] | {"batch_size": 4}))


def test_a_folder_that_was_stopped_before_its_first_step_is_taken_over_whole(tmp_path):
    run = prepare(tmp_path / "run", changed(seed=1))
    make_trainer(run, progress=False).begin_or_resume()  # stands at step 0, with a tokenizer and a checkpoint
    assert (run.path / "tokenizer.json").exists() and run.checkpoints() and not run.stepped
    (run.path / "log.txt").write_text("what it said")
    (run.path / "lock").touch()
    prepare(run.path, changed(data={"name": "generated", "args": {"n_train": 48, "size": 16, "shapes": 3}}))
    assert not run.checkpoints()
    assert {path.name for path in run.path.iterdir()} == {"config.json", "SHA256SUMS", "lock", "log.txt"}
    assert launch(run.path, progress=False).done["step"] == 6


def test_a_folder_is_not_taken_from_who_trains_or_is_about_to(tmp_path):
    run = prepare(tmp_path / "run", GOOD)
    other = changed(seed=5)
    with _hold_lock(run), pytest.raises(RuntimeError, match="is in training already"):
        prepare(run.path, other)
    (run.path / "lock").unlink()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as waiting:
        stored = json.loads((run.path / "config.json").read_text())
        stored["made"]["process"] = waiting.pid
        write_listed(run.path / "config.json", json.dumps(stored).encode())
        with pytest.raises(
            FileExistsError, match=f"seed: 0 there, 5 asked for.* Process {waiting.pid} prepared it, and still runs"
        ):
            prepare(run.path, other)
        waiting.communicate(b"\n")
    assert prepare(run.path, other).config["seed"] == 5


def test_settings_come_out_of_the_configuration():
    config = RunConfig.read(GOOD)
    assert config.train == Train(lr=2e-3, log_every=1, checkpoint_every=4, precision="fp32", batch_size=8, device="cpu")
    assert config.method.args == {"steps": 6, "ramp": 2} and config.start is None and config.model.vision["width"] == 16
    assert RunConfig.read(GOOD | {"start": {"run": "a", "phase": 1}}).start == Start("a", 1)


@EVALUATIONS.register("test_scale")
def logit_scale(model, factor):
    "An evaluation, as configurations name one."
    return [{"metric": "scale", "value": factor * model.logit_scale.item()}]


def test_evaluations_are_named(tmp_path):
    evaluate = {"scale": {"name": "test_scale", "args": {"factor": 2.0}}}
    run = prepare(tmp_path / "run", changed(evaluate=evaluate, train=GOOD["train"] | {"every": 3}))
    launch(run.path, progress=False)
    told = [r for r in run.records() if r["kind"] == "evaluate"]
    scale = Snapshot(run).model().logit_scale.item()
    assert [r["step"] for r in told] == [3, 6] and told[-1]["rows"][0]["value"] == pytest.approx(2 * scale)


def test_a_folder_of_an_older_version_says_so(tmp_path):
    run = prepare(tmp_path / "run", GOOD)
    old = run.path / "config.json"
    write_listed(old, old.read_text().replace('"method"', '"plan"').encode())
    with pytest.raises(ValueError, match=r"config\.json has an older format.*begin a new run"):
        launch(run.path, progress=False)


def test_a_method_that_only_this_process_has_is_refused(tmp_path):
    def mine(model, steps):
        return clip(model, steps)

    mine.__module__ = "__main__"
    method("only_here")(mine)
    try:
        with pytest.raises(
            ValueError, match="defined in a notebook.*%%writefile my_methods.py.*'my_methods:only_here'"
        ):
            prepare(tmp_path / "run", changed(method={"name": "only_here", "args": {"steps": 2}}))
        assert not (tmp_path / "run").exists()
    finally:
        del METHODS.entries["only_here"], METHODS.sources["only_here"]


def test_a_method_of_ones_own(tmp_path):
    @method("twice")
    def twice(model, steps):
        return clip(model, 2 * steps)

    try:
        run = prepare(tmp_path / "run", changed(method={"name": "twice", "args": {"steps": 2}}))
        assert run.config["method"] == {"name": "test_training_launch:twice", "args": {"steps": 2}}
        assert launch(run.path, progress=False).done["step"] == 4
    finally:
        del METHODS.entries["twice"], METHODS.sources["twice"]


def test_codebook_clip_insists_on_a_codebook(tmp_path):
    run = prepare(tmp_path / "run", changed(method={"name": "codebook_clip", "args": {"steps": 3}}))
    with pytest.raises(ValueError, match="needs a model with a codebook"):
        launch(run.path, progress=False)


def test_a_folder_with_another_run_names_what_differs(tmp_path):
    prepare(tmp_path / "run", GOOD)
    prepare(tmp_path / "run", GOOD).log({"kind": "step", "step": 1})
    with pytest.raises(FileExistsError, match="method.args.steps: 6 there, 60 asked for"):
        prepare(tmp_path / "run", changed(method={"name": "clip", "args": {"steps": 60, "ramp": 2}}))
    with pytest.raises(FileNotFoundError, match="is not a run"):
        launch(tmp_path / "nothing")


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    dice = np.random.default_rng(0)
    with open(folder / "captions.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption"])
        for i in range(12):
            Image.fromarray(dice.integers(0, 255, (20 + i, 24, 3), dtype=np.uint8)).save(folder / f"{i}.png")
            table.writerow([f"{i}.png", f"a picture of number {i}"])
            table.writerow([f"{i}.png", f"number {i} again"])
    return folder


def test_a_folder_of_photos_from_the_terminal(tmp_path, photos, capsys):
    data = {"name": "folder", "args": {"folder": str(photos), "captions_file": "captions.csv"}}
    augment = {"augment": {"area": [0.5, 1.0], "jitter": 0.1}, "captions_too": True}
    (tmp_path / "run.json").write_text(json.dumps(changed(data=data, train=GOOD["train"] | augment)))
    assert main([str(tmp_path / "runs" / "clip-s0"), "--config", str(tmp_path / "run.json"), "--quiet"]) == 0
    assert "done, 6 steps" in capsys.readouterr().out
    (run,) = find(tmp_path / "runs")
    words = json.loads((run.path / "tokenizer.json").read_text())["words"]
    assert {"picture", "number", "11"} <= set(words) and json.loads((run.path / "data.json").read_text())["pairs"] == 24
    assert Snapshot(run).model().tokenizer.vocab_size == len(words) + 4


def test_a_run_whose_photos_were_replaced_is_not_gone_on_with(tmp_path, photos):
    """Under the same names, with the same captions; a run that an earlier version began, and that noted names alone,
    goes on."""
    run = prepare(tmp_path / "run", changed(data={"name": "folder", "args": {"folder": str(photos)}}))
    pairs = read("folder", folder=str(photos))
    assert _check_data(run, pairs) == _check_data(run, pairs) == fingerprint(pairs)
    Image.new("RGB", (90, 90), "red").save(photos / "3.png")
    with pytest.raises(
        ValueError, match="have changed: names and captions are as they were, but images, labels or trees are not"
    ):
        _check_data(run, pairs)
    facts = {name: value for name, value in read_json(run.path / "data.json").items() if name != "content"}
    write_listed(run.path / "data.json", json.dumps(facts).encode())
    assert _check_data(run, pairs) == fingerprint(pairs)


def test_a_run_that_noted_the_sizes_of_files_is_compared_by_them(tmp_path, photos):
    """An earlier version noted no bytes; its run goes on while the sizes are as they were."""
    run = prepare(tmp_path / "run", changed(data={"name": "folder", "args": {"folder": str(photos)}}))
    pairs = read("folder", folder=str(photos))
    _check_data(run, pairs)
    facts = read_json(run.path / "data.json")
    assert facts["content"].startswith("bytes:")
    by_size = content_fingerprint(pairs, "0123456789abcdef")
    write_listed(run.path / "data.json", json.dumps(facts | {"content": by_size}).encode())
    assert _check_data(run, pairs) == fingerprint(pairs)
    Image.new("RGB", (90, 90), "red").save(photos / "3.png")
    with pytest.raises(ValueError, match="have changed: names and captions are as they were"):
        _check_data(run, pairs)


def test_given_negatives_that_no_pair_has_are_refused_before_training(tmp_path, photos):
    rows = list(csv.DictReader((photos / "captions.csv").open()))
    table = [[row["image"], row["caption"], f"['not {row['caption']}']"] for row in rows]

    def run_of(name, columns):
        with (photos / f"{name}.tsv").open("w") as file:
            lines = [columns, *(row[: len(columns)] for row in table)]
            file.writelines("\t".join(line) + "\n" for line in lines)
        data = {"name": "folder", "args": {"folder": str(photos), "captions_file": f"{name}.tsv"}}
        return prepare(tmp_path / name, changed(data=data, train=GOOD["train"] | {"negatives": "given"}))

    told = "train.negatives is 'given', and none of the .* pairs has a wrong caption; .* column .*'neg_caption'"
    with pytest.raises(ValueError, match=told):
        make_trainer(run_of("none", ["filepath", "title"]), progress=False)
    loader = make_trainer(run_of("negclip", ["filepath", "title", "neg_caption"]), progress=False).loader
    assert all(pair.negatives[0] == f"not {pair.caption}" for pair in loader.pairs)


def test_photos_held_in_memory_train_the_same_model(tmp_path, photos):
    data = {"name": "folder", "args": {"folder": str(photos), "captions_file": "captions.csv"}}
    losses = []
    for held in (False, True):
        train = GOOD["train"] | {"preload": held, "augment": {"jitter": 0.1}}
        run = launch(prepare(tmp_path / f"held-{held}", changed(data=data, train=train)).path, progress=False)
        losses.append([record["loss"] for record in run.records() if record["kind"] == "step"])
    assert losses[0] == losses[1] and len(losses[0]) > 1


def test_photos_that_do_not_fit_in_memory_are_read_as_they_train(tmp_path, photos, monkeypatch):
    data = {"name": "folder", "args": {"folder": str(photos), "captions_file": "captions.csv"}}
    pairs = read("folder", **data["args"])
    needed = preloaded_bytes(pairs, 16)
    assert needed == len({pair.image_id for pair in pairs}) * 16 * 16 * 3
    losses = []
    for name, free in (("fits", 2 * needed), ("full", 2 * needed - 1)):
        monkeypatch.setattr("complearn.training.runs.launch.available_memory", lambda free=free: free)
        run = prepare(tmp_path / name, changed(data=data, train=GOOD["train"] | {"preload": True}))
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            launch(run.path, progress=False)
        said = [str(warning.message) for warning in noted if "preload" in str(warning.message)]
        assert len(said) == (name == "full") and all("half of the free memory is" in text for text in said)
        losses.append([record["loss"] for record in run.records() if record["kind"] == "step"])
    assert losses[0] == losses[1] and len(losses[0]) > 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")  # each process of a machine would hold them
    monkeypatch.setattr("complearn.training.runs.launch.available_memory", lambda: 3 * needed)
    with pytest.warns(UserWarning, match="the pictures for 2 processes take"):
        assert not _fits_in_memory(pairs, Transform(16))


@pytest.mark.parametrize(
    "text, told", [("{", "not readable as JSON"), ('{"method": 1}', "missing"), (None, "No such file")]
)
def test_a_terminal_gets_one_line_for_a_wrong_configuration(tmp_path, capsys, text, told):
    if text is not None:
        (tmp_path / "run.json").write_text(text)
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "run"), "--config", str(tmp_path / "run.json")])
    assert ended.value.code == 2 and told in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_captions_longer_than_the_context_are_cut_named_and_trained_on(tmp_path, photos):
    table = (photos / "captions.csv").read_text().splitlines()
    table[3] = table[3] + " and" * 200
    (photos / "captions.csv").write_text("\n".join(table) + "\n")
    data = {"name": "folder", "args": {"folder": str(photos), "captions_file": "captions.csv"}}
    run = prepare(tmp_path / "run", changed(data=data, train=GOOD["train"] | {"words": {"context": 8}}))
    with pytest.warns(UserWarning, match="longer than the context of 8 tokens"):
        assert launch(run.path, progress=False).done["step"] == 6
    assert Snapshot(run).model().tokenizer.context == 8


def test_runs_of_one_seed_repeat_and_of_two_differ(tmp_path):
    losses = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        run = launch(prepare(tmp_path / name, changed(seed=seed)).path, progress=False)
        losses.append([r["loss"] for r in Run.open(run.path).records() if r["kind"] == "step"])
    assert losses[0] == losses[1] != losses[2]


# --- starts


def test_a_step_gives_the_averages_that_a_phase_end_would(tmp_path):
    method = {"name": "codebook_clip", "args": {"steps": 6}}
    run = launch(
        prepare(tmp_path / "ema", training_runs.config(method, ema=0.9, checkpoint_every=3, keep=9)).path,
        progress=False,
    )
    tensors = load_checkpoint(run.path / "checkpoints" / "step-00000003")[0]
    name = "codebook.codes"
    assert not torch.equal(tensors["averages"][name], tensors["model"][name])
    between = Snapshot(run, step=3).model().state_dict()
    last = Snapshot(run, step=6).model().state_dict()
    assert torch.equal(between[name], tensors["averages"][name])
    assert all(torch.equal(value, last[name]) for name, value in Snapshot(run).model().state_dict().items())
    lesson = prepare(tmp_path / "lesson", training_runs.config(method) | {"start": {"run": str(run.path), "step": 3}})
    model = Snapshot(run).model()
    assert load_start(lesson, RunConfig.read(lesson.config).start, model)["start"]["step"] == 3
    assert torch.equal(model.state_dict()[name], between[name])


def test_a_start_of_none_is_no_start(tmp_path):
    method = {"name": "codebook_clip", "args": {"steps": 2}}
    runs = [
        prepare(tmp_path / name, training_runs.config(method) | more)
        for name, more in (("with", {"start": None}), ("without", {}))
    ]
    one, other = (Snapshot(launch(run.path, progress=False)).model().state_dict() for run in runs)
    assert all(torch.equal(value, other[name]) for name, value in one.items())


def test_a_run_finds_the_world_that_was_read_ahead(tmp_path, monkeypatch):
    """Its data are those it would have drawn; of other readers nothing is read ahead."""
    settings = {
        "method": {"name": "negclip", "args": {"steps": 6, "ramp": 2}},
        "train": GOOD["train"] | {"negatives": {"calls": 2}},
    }
    alone = launch(prepare(tmp_path / "alone", changed(**settings)).path, "cpu", progress=False)
    monkeypatch.setattr("complearn.data.worlds.world._SHARED", {})
    read_ahead([str(prepare(tmp_path / "run", changed(**settings, seed=GOOD["seed"])).path), "--device", "cpu"])
    monkeypatch.setattr(World, "draw", None)
    ahead = launch(tmp_path / "run", "cpu", progress=False)
    losses = [run.metrics().loss.dropna().tolist() for run in (ahead, alone)]
    assert losses[0] == losses[1] and len(losses[0]) > 1
    read_ahead(
        [str(prepare(tmp_path / "folder", changed(data={"name": "folder", "args": {"folder": "nowhere"}})).path)]
    )
    with pytest.raises(OSError, match="nothing"):
        read_ahead([str(tmp_path / "nothing")])


def test_an_interruption_that_a_library_makes_an_error_of_is_one_all_the_same(tmp_path, monkeypatch, capsys):
    def build_schema(*args):
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt as error:
            raise ValueError("SchemaError: Field `7`: KeyboardInterrupt") from error

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("complearn.launch.launch", build_schema)
    folder = str(tmp_path / "clip-s0")
    assert main([folder, "--quiet", "--online", "--device", "cpu"]) == 130
    assert f"go on with: python -m complearn.launch {folder} --device cpu --online --quiet" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGINT) is before
