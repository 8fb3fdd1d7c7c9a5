"""Runs that are killed, asked to stop, or out of disk, and go on to the same result."""

import multiprocessing
import random
import signal
import sys
from pathlib import Path

import pytest
import torch
import training_runs
from safetensors.torch import load_file

from complearn.core.runs import Run
from complearn.launch import main
from complearn.training.engine.checkpoints import read_tensors
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

TIMES = {"samples_per_second", "data_share", "log_share", "wall_seconds", "cpu_seconds"}


@pytest.fixture(scope="module")
def child():
    """Runs a function in a fresh process that has the imports ready; gives the exit code."""
    sys.path.insert(0, str(Path(__file__).parent))
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["complearn.launch", "complearn.data.worlds.world", "torch._dynamo", "training_runs"])

    def run(path, fault=""):
        process = context.Process(target=training_runs.go, args=(path, fault))
        process.start()
        process.join(120)
        return process.exitcode

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory, child):
    """The run that nobody disturbs."""
    run = prepare(tmp_path_factory.mktemp("whole") / "il_clip-s0", training_runs.config())
    assert child(run.path) == 0
    return run


def records(run):
    return [{k: v for k, v in record.items() if k not in TIMES} for record in run.records()]


def assert_same(run, whole):
    assert run.done == whole.done == {"step": training_runs.STEPS, "phases": 5}
    assert records(run) == records(whole)
    assert [file.name for file in run.phases()] == [file.name for file in whole.phases()]
    for mine, theirs in zip(run.phases(), whole.phases()):
        a, b = load_file(mine), load_file(theirs)
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a), mine.name


def test_the_run_is_what_the_method_says(whole):
    kinds = [(r["kind"], r.get("event")) for r in records(whole) if r["kind"] != "step"]
    assert kinds.count(("spawn", None)) == 2 and kinds.count(("phase", "start")) == kinds.count(("phase", "end")) == 5
    assert [r["step"] for r in records(whole) if r["kind"] == "step"] == list(range(1, training_runs.STEPS + 1))
    spawned = [r for r in records(whole) if r["kind"] == "spawn"]
    assert [r["step"] for r in spawned] == [7, 18] and spawned[0]["seed"] != spawned[1]["seed"]
    assert all(r["parameters"] == r["cleared"] > 0 for r in spawned)
    assert len(whole.checkpoints()) == 2 and "Last record" in (whole.path / "model_card.md").read_text()


@pytest.mark.slow
def test_killed_at_five_random_steps(whole, child, tmp_path):
    """One run, killed with SIGKILL again and again: in distil, right after a spawn, and anywhere."""
    run = prepare(tmp_path / "il_clip-s0", training_runs.config())
    dice = random.Random(20261121)
    steps = sorted({dice.randint(8, 11), *dice.sample([s for s in range(1, training_runs.STEPS) if s not in range(7, 12)], 4)})
    assert len(steps) == 5
    faults = [f"kill step {step}" for step in steps] + ["kill spawn 2"]
    for fault in sorted(faults, key=lambda f: 17.5 if "spawn" in f else int(f.split()[-1])):
        assert child(run.path, fault) == -signal.SIGKILL, fault
        Run.open(run.path).metrics()
    assert child(run.path) == 0
    assert_same(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize("what,code", (("term", 143), ("int", 130), ("kill", -9)))
def test_a_signal_in_the_middle_of_a_checkpoint(whole, child, tmp_path, what, code):
    run = prepare(tmp_path / "il_clip-s0", training_runs.config())
    assert child(run.path, f"{what} checkpoint 9") == code
    said = (run.path.parent / "said.txt").read_text()
    assert what == "kill" or f"python -m complearn.launch {run.path}" in said
    for path in run.checkpoints():
        read_tensors(path / "model.safetensors")
    assert bool(list((run.path / "checkpoints").glob(".*"))) == (what == "kill") and run.done is None
    assert child(run.path) == 0
    assert_same(run, whole)
    assert not list((run.path / "checkpoints").glob(".*"))


def test_asked_to_stop_at_a_phases_last_step(whole, child, tmp_path):
    run = prepare(tmp_path / "il_clip-s0", training_runs.config())
    assert child(run.path, "term step 7") == 143  # the end of the warm-up: its end and the next start are written first
    assert run.checkpoints()[-1].name == "step-00000007" and [p.name for p in run.phases()] == ["00-warmup.safetensors"]
    assert child(run.path) == 0
    assert_same(run, whole)


def test_no_space_left(whole, tmp_path, monkeypatch):
    run = prepare(tmp_path / "il_clip-s0", training_runs.config())
    torch.set_num_threads(1)
    write, room = Path.write_bytes, [12]

    def full(self, data):
        room[0] -= 1
        if room[0] >= 0 or self.suffix != ".safetensors":
            return write(self, data)
        write(self, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space left while writing .*checkpoints/step-.*intact.*Free some space") as error:
        launch(run.path, progress=False)
    assert error.value.errno == 28
    monkeypatch.undo()
    there = [path.name for path in run.checkpoints()]
    assert there and all(read_tensors(path / "model.safetensors") for path in run.checkpoints())
    launch(run.path, progress=False)
    assert_same(run, whole)


def test_a_run_that_has_ended_is_given_back(whole, capsys):
    before = (whole.path / "metrics.jsonl").stat().st_mtime_ns
    assert main([str(whole.path), "--quiet"]) == 0
    assert "done, 32 steps" in capsys.readouterr().out and (whole.path / "metrics.jsonl").stat().st_mtime_ns == before


def test_models_are_read_at_phases(whole):
    last, first = Snapshot(whole).model(), Snapshot(whole, "warmup").model()
    assert not torch.equal(last.logit_scale, first.logit_scale) and not last.training
    assert torch.equal(Snapshot(whole, 0).model().logit_scale, first.logit_scale)
    with pytest.raises(ValueError, match="has not ended phase 'interact-9'; ended are: warmup, distil-01"):
        Snapshot(whole, "interact-9").model()


def test_a_checkpoint_of_another_configuration_is_refused(whole, child, tmp_path):
    run = prepare(tmp_path / "run", training_runs.config())
    child(run.path, "kill step 6")
    text = (run.path / "config.json").read_text()
    (run.path / "config.json").write_text(text.replace('"interact": 6', '"interact": 60').replace('"lr": 0.002', '"lr": 0.1'))
    told = "checkpoints/step-00000004 belongs to another configuration: phases.*train.lr: 0.002 there, 0.1"
    with pytest.raises(ValueError, match=told) as error:
        launch(run.path, progress=False)
    assert "another folder" in str(error.value)
    (run.path / "config.json").write_text(text.replace('"codes": 24', '"codes": 25'))
    with pytest.raises(ValueError, match="codebook.codes"):
        launch(run.path, progress=False)


def test_other_data_are_refused(whole, child, tmp_path):
    run = prepare(tmp_path / "run", training_runs.config())
    child(run.path, "kill step 2")
    path = run.path / "config.json"
    path.write_text(path.read_text().replace('"n_train": 48', '"n_train": 49'))
    with pytest.raises(ValueError, match="training data of .* have changed: 48 pairs"):
        launch(run.path, progress=False)


def test_a_damaged_checkpoint_is_named(whole, child, tmp_path):
    run = prepare(tmp_path / "il_clip-s0", training_runs.config())
    child(run.path, "kill step 10")
    newest = run.checkpoints()[-1]
    (newest / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(ValueError, match=f"{newest.name}/model.safetensors is damaged.*delete its folder"):
        launch(run.path, progress=False)
    import shutil

    shutil.rmtree(newest)  # the remedy that it names
    assert child(run.path) == 0
    assert_same(run, whole)
