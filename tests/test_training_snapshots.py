"""Which weights of which run: by phase, by step, as a person types it, and with the data that the run holds out."""

import re
import shutil

import pytest
import torch
import training_runs

from complearn.core.runs import Run, split_name
from complearn.models.registry import build, read_model
from complearn.models.scoring import search_scorer
from complearn.models.towers.tokenizers import load_tokenizer
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.opening import find_models
from complearn.training.runs.snapshots import (
    Snapshot,
    find_snapshots,
    latest_snapshot,
    run_fault,
    snapshots_of,
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Six steps in one phase, with a checkpoint in between and averages."""
    torch.set_num_threads(1)
    config = training_runs.config({"name": "codebook_clip", "args": {"steps": 6}}, ema=0.9, checkpoint_every=3, keep=9)
    return launch(prepare(tmp_path_factory.mktemp("runs") / "codebook_clip-s4", config).path, progress=False)


def test_the_ways_to_name_the_same_weights(run):
    (name,) = run.phase_names()
    last = [Snapshot(run), Snapshot(str(run.path), name), Snapshot(run, 0), Snapshot(run, -1), latest_snapshot(run)]
    assert {(one.name, one.phase, one.step, one.file) for one in last} == {(name, name, 6, run.phases()[0])}
    between = [Snapshot(run, step=3), Snapshot(run, "step-3"), snapshots_of(run)[0]]
    assert {(one.name, one.phase, one.step) for one in between} == {("step-3", None, 3)}
    assert [Snapshot(run, **one.selector).file for one in (last[0], between[0])] == [last[0].file, between[0].file]
    states = [one.model().state_dict() for one in (last[0], between[0])]
    assert any(not torch.equal(states[0][key], states[1][key]) for key in states[0])
    assert not last[0].model().training and len(last[0].pairs())


def test_a_run_knows_its_model_before_the_first_step(run, tmp_path):
    fresh = Snapshot(run).model(trained=False)
    built = build(read_model(run.config["model"]), load_tokenizer(run.tokenizer_file), run.config["seed"])
    trained = Snapshot(run).model().state_dict()
    assert not fresh.training and fresh.state_dict().keys() == trained.keys()
    for name, value in built.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], value)
    assert any(not torch.equal(trained[name], value) for name, value in built.state_dict().items())
    later = training_runs.config({"name": "codebook_clip", "args": {"steps": 2}})
    later["start"] = {"run": str(run.path), "phase": 0}
    made = launch(prepare(tmp_path / "later-s4", later).path, progress=False)
    with pytest.raises(ValueError, match="later-s4 starts from another run; ask that one"):
        Snapshot(made).model(trained=False)


def test_weights_that_were_not_kept_are_named(run):
    with pytest.raises(ValueError, match="has not ended phase 'step-x'; ended are: "):
        Snapshot(run, "step-x")
    with pytest.raises(ValueError, match="keeps no checkpoint of step 5"):
        Snapshot(run, "step-5")


def test_names_as_people_type_them(run):
    assert split_name("a=b@c") == ("a", "b", "c") and split_name("/x=y/z") == ("", "/x=y/z", "")
    folder = run.path.parent
    typed = [f"{run.path}", f"{folder}@step-3", f"before={run.path}@step-3"]
    found = [entry for name in typed for entry in find_snapshots(name)]
    assert [label for label, _ in found] == ["codebook_clip", "codebook_clip@step-3", "before"]
    assert [snapshot.step for _, snapshot in found] == [6, 3, 3]
    with pytest.raises(FileNotFoundError, match="no run under"):
        find_snapshots(str(run.path / "phases"))


def test_an_at_sign_in_a_name_that_exists_is_a_part_of_it(run, tmp_path):
    "`dd@best` opened `dd`, and `best.pt@step-4` opened `best.pt`, without a word."
    for name in ("dd", "dd@best", "epoch=3 val@0.71 (best).pt"):
        (tmp_path / name).touch()
        for before, label in (("", ""), ("ViT-S-32-alt:", ""), ("mine=ViT-S-32-alt:", "mine")):
            typed = f"{before}{tmp_path}/{name}"
            assert split_name(typed) == (label, typed.removeprefix("mine="), "")
    twin = tmp_path / "clip@v1-s0"
    shutil.copytree(run.path, twin)
    assert [label for label, _ in find_snapshots(str(twin))] == ["clip@v1"]
    assert [snapshot.step for _, snapshot in find_snapshots(f"{twin}@step-3")] == [3]
    assert [model.name for model in find_models(f"{twin}@step-3")] == ["clip@v1@step-3"]


def test_a_name_without_folders_may_hold_an_equals_sign_and_an_at_sign(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "epoch=3 val@0.71.pt").touch()
    assert split_name("epoch=3 val@0.71.pt") == ("", "epoch=3 val@0.71.pt", "")


@pytest.mark.parametrize("form", ["{0}/weights", "ViT-S-32-alt:{0}/weights", "{0}/saved", "{0}/empty", "{0}/nowhere"])
def test_a_phase_of_something_that_is_no_run_is_refused(tmp_path, form):
    (tmp_path / "weights").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "model.safetensors").touch()
    typed = form.format(tmp_path)
    told = f"@best selects weights of a run, but {typed} is none, and there is no file or folder {typed}@best"
    for find in (find_models, find_snapshots):
        with pytest.raises(FileNotFoundError, match=re.escape(told)):
            find(f"mine={typed}@best")


def test_a_run_under_way_has_its_last_checkpoint(run, tmp_path):
    config = dict(run.config.items())
    copy = Run.create(tmp_path / "copy", config)
    (copy.path / "checkpoints").symlink_to(run.path / "checkpoints")
    assert (latest_snapshot(copy).name, latest_snapshot(copy).step) == ("step-6", 6)


def test_data_that_are_gone_are_said_to_be(run, tmp_path):
    gone = {"name": "folder", "args": {"folder": str(tmp_path / "nowhere")}}
    copy = Run.create(tmp_path / "gone-s0", {**run.config, "data": gone})
    (copy.path / "checkpoints").symlink_to(run.path / "checkpoints")
    with pytest.raises(ValueError, match=r"the data of gone-s0 cannot be read .*bring its data back"):
        Snapshot(copy, step=3).pairs()


def test_a_model_without_search_heads_is_its_own_scorer(run):
    model = Snapshot(run).model()
    assert search_scorer(model) is model and type(Snapshot(run).scorer()) is type(model)


@pytest.mark.parametrize(
    "line", ["[1]", '{"kind": "phase", "event": "end"}', '{"kind": "phase", "event": "end", "phase": 3}']
)
def test_a_log_of_another_form_is_a_fault_of_that_run(tmp_path, line):
    """One run whose records are wrong ended the list of all others before."""
    run = prepare(tmp_path / "run", training_runs.config({"name": "clip", "args": {"steps": 2, "ramp": 1}}))
    (run.path / "metrics.jsonl").write_text(line + "\n")
    (run.path / "phases").mkdir(exist_ok=True)
    (run.path / "phases" / "00-contrastive.safetensors").write_bytes(b"")
    assert run_fault(Run.open(run.path), lambda model: "")


def test_a_model_of_another_form_is_a_fault_of_that_run(tmp_path):
    run = Run.create(tmp_path / "run", {"model": [], "data": {}})
    assert "is damaged" in run_fault(run, lambda model: model["kind"])
