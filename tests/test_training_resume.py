"""Runs that are killed, asked to stop, or out of disk, and go on to the same result."""

import multiprocessing
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest
import torch
import training_runs
from training_runs import assert_same, records

from complearn.core.checksums import LIST, DamagedFile, missing_files, write_listed
from complearn.core.runs import Run
from complearn.launch import main
from complearn.training.engine.checkpoints import read_tensors, remove_leftovers
from complearn.training.runs import launch as launching
from complearn.training.runs.launch import _hold_lock, launch, prepare
from complearn.training.runs.snapshots import Snapshot

CONFIG = training_runs.config(ema=0.9)


@pytest.fixture(scope="module")
def child():
    """Runs a function in a fresh process that has the imports ready; gives the exit code."""

    def run(path, fault=""):
        process = training_runs.start(path, fault)
        process.join(120)
        return process.exitcode

    return run


@pytest.fixture(scope="module")
def whole(tmp_path_factory, child):
    """The run that nobody disturbs."""
    run = prepare(tmp_path_factory.mktemp("whole") / "il_clip-s0", CONFIG)
    assert child(run.path) == 0
    return run


@pytest.fixture(scope="module")
def killed(tmp_path_factory, child):
    """A run that was killed after step 10, with checkpoints of steps 7 and 8."""
    run = prepare(tmp_path_factory.mktemp("killed") / "il_clip-s0", CONFIG)
    assert child(run.path, "kill step 10") == -signal.SIGKILL
    assert [path.name for path in run.checkpoints()] == ["step-00000007", "step-00000008"]
    return run


def copy_of(run, folder):
    return Run.open(shutil.copytree(run.path, folder / run.path.name))


def test_the_run_is_what_the_method_says(whole):
    assert whole.done == {"step": training_runs.STEPS, "phases": 5}
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
    run = prepare(tmp_path / "il_clip-s0", CONFIG)
    dice = random.Random(20261121)
    steps = sorted(
        {dice.randint(8, 11), *dice.sample([s for s in range(1, training_runs.STEPS) if s not in range(7, 12)], 4)}
    )
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
    run = prepare(tmp_path / "il_clip-s0", CONFIG)
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
    run = prepare(tmp_path / "il_clip-s0", CONFIG)
    assert child(run.path, "term step 7") == 143  # the end of the warm-up: its end and the next start are written first
    assert run.checkpoints()[-1].name == "step-00000007" and [p.name for p in run.phases()] == ["00-warmup.safetensors"]
    assert child(run.path) == 0
    assert_same(run, whole)


def test_no_space_left(whole, tmp_path, monkeypatch):
    run = prepare(tmp_path / "il_clip-s0", CONFIG)
    torch.set_num_threads(1)
    write = Path.write_bytes
    room = [12]

    def full(self, data):
        room[0] -= 1
        if room[0] >= 0 or self.suffix != ".safetensors":
            return write(self, data)
        write(self, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(
        OSError, match="no space left while writing .*checkpoints/step-.*intact.*Free some space"
    ) as error:
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
    last = Snapshot(whole).model()
    first = Snapshot(whole, "warmup").model()
    assert not torch.equal(last.logit_scale, first.logit_scale) and not last.training
    assert torch.equal(Snapshot(whole, 0).model().logit_scale, first.logit_scale)
    with pytest.raises(ValueError, match="has not ended phase 'interact-9'; ended are: warmup, distil-01"):
        Snapshot(whole, "interact-9").model()


def edit(run, text):
    """A person writes another config.json, and accepts it."""
    write_listed(run.path / "config.json", text.encode())


def test_a_checkpoint_of_another_configuration_is_refused(whole, child, tmp_path):
    run = prepare(tmp_path / "run", CONFIG)
    child(run.path, "kill step 6")
    text = (run.path / "config.json").read_text()
    edit(run, text.replace('"interact": 6', '"interact": 60').replace('"lr": 0.002', '"lr": 0.1'))
    told = "checkpoints/step-00000004 belongs to another configuration: phases.*train.lr: 0.002 there, 0.1"
    with pytest.raises(ValueError, match=told) as error:
        launch(run.path, progress=False)
    assert "another folder" in str(error.value)
    edit(run, text.replace('"codes": 24', '"codes": 25'))
    with pytest.raises(ValueError, match="codebook.codes"):
        launch(run.path, progress=False)


def test_other_data_are_refused(whole, child, tmp_path):
    run = prepare(tmp_path / "run", CONFIG)
    child(run.path, "kill step 2")
    edit(run, (run.path / "config.json").read_text().replace('"n_train": 48', '"n_train": 49'))
    with pytest.raises(ValueError, match="training data of .* have changed: 48 pairs"):
        launch(run.path, progress=False)


CHECKPOINT = (
    "model.safetensors",
    "optimizer.safetensors",
    "objectives.safetensors",
    "averages.safetensors",
    "state.json",
)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name", [*(f"checkpoints/step-00000008/{name}" for name in CHECKPOINT), "tokenizer.json", "data.json"]
)
def test_a_flipped_bit_stops_a_resume_and_names_the_file(killed, tmp_path, name, capsys):
    run = copy_of(killed, tmp_path)
    flip(run.path / name)
    assert main([str(run.path), "--quiet"]) == 1
    message = capsys.readouterr().err
    assert f"{run.path / name} is damaged" in message
    assert "bring this file back from a copy" in message
    assert "Traceback" not in message
    assert ("or delete it, and the run goes on from step-00000007" in message) == name.startswith("checkpoints")
    with pytest.raises(DamagedFile):
        main([str(run.path), "--quiet", "--traceback"])


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_digit_of_the_configuration_that_changed_stops_a_resume_until_a_person_accepts_it(killed, tmp_path, capsys):
    run = copy_of(killed, tmp_path)
    change(run.path / "config.json", '"seed": 0', '"seed": 8')
    with pytest.raises(DamagedFile, match="config.json is damaged"):
        Snapshot(run.path)
    assert main([str(run.path), "--quiet"]) == 1
    message = capsys.readouterr().err
    assert f"{run.path / 'config.json'} is damaged" in message
    assert f"complearn.launch {run.path} --accept-config" in message
    assert main([str(run.path), "--quiet", "--accept-config"]) == 1
    assert "belongs to another configuration: seed: 0 there, 8 asked for" in capsys.readouterr().err


def test_a_summary_that_changed_is_noticed_and_written_again(whole, tmp_path, capsys):
    run = copy_of(whole, tmp_path)
    change(run.path / "done.json", '"step": 32', '"step": 3')
    assert main([str(run.path), "--quiet"]) == 1 and f"{run.path / 'done.json'} is damaged" in capsys.readouterr().err
    (run.path / "done.json").unlink()
    assert main([str(run.path), "--quiet"]) == 0 and Run.open(run.path).done == whole.done


@pytest.mark.parametrize(
    "name", ["optimizer.safetensors"] + [pytest.param(n, marks=pytest.mark.slow) for n in (*CHECKPOINT, LIST)]
)
def test_a_checkpoint_that_misses_a_file_is_passed_over_and_the_run_ends_the_same(killed, whole, tmp_path, child, name):
    run = copy_of(killed, tmp_path)
    file = run.checkpoints()[-1] / name
    file.unlink()
    assert child(run.path) == 0
    warnings = [record["message"] for record in run.records() if record["kind"] == "warning"]
    assert warnings == [f"{file} is missing: the run goes on from step-00000007, the checkpoint before"]
    assert_same(run, whole)


def test_a_run_whose_checkpoints_all_miss_a_file_is_not_begun_anew(killed, tmp_path):
    run = copy_of(killed, tmp_path)
    for path in run.checkpoints():
        (path / "optimizer.safetensors").unlink()
    with pytest.raises(
        DamagedFile,
        match="no checkpoint has all of its files: .*step-00000008/optimizer.safetensors, .*begin another run",
    ):
        launch(run.path, progress=False)


def test_what_is_damaged_is_noticed_when_a_model_is_opened(whole, killed, tmp_path):
    run = copy_of(whole, tmp_path)
    first = run.phases()[0]
    last = run.phases()[-1]
    flip(first)
    with pytest.raises(DamagedFile, match=f"{first.name} is damaged.*bring this file back from a copy"):
        Snapshot(run, "warmup").model()
    last.unlink()
    with pytest.raises(DamagedFile, match=f"{last.name} is missing"):
        Snapshot(run).model()
    Snapshot(run, "distil-02").model()  # the others are good
    step = Snapshot(run, step=training_runs.STEPS)
    (step.file.parent / "averages.safetensors").unlink()
    with pytest.raises(DamagedFile, match="averages.safetensors is missing"):
        step.model()
    words = run.path / "tokenizer.json"
    words.write_text(words.read_text().replace("red", "rad", 1))
    with pytest.raises(DamagedFile, match="tokenizer.json is damaged"):
        Snapshot(run, "distil-02").model()
    words.unlink()
    with pytest.raises(DamagedFile, match="tokenizer.json is missing"):
        Snapshot(run, "distil-02").model()


@pytest.mark.parametrize(
    "fault, told",
    [
        ("delete step 9", "config.json is gone: its folder was deleted or moved"),
        pytest.param(
            "delete-log step 9", "metrics.jsonl was deleted or cut while it was written to", marks=pytest.mark.slow
        ),
        ("protect step 9", "metrics.jsonl cannot be written: its folder is read-only; make it writable and run again"),
        pytest.param(
            "protect checkpoint 5",
            "checkpoints/step-00000004 cannot be written: its folder is read-only",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_folder_that_changes_while_training_is_one_clear_message(child, tmp_path, fault, told):
    run = prepare(tmp_path / "run" / "il_clip-s0", CONFIG)
    assert child(run.path, fault) == 1
    message = (run.path.parent / "said.txt").read_text()
    assert told in message and "Traceback" not in message and run.path.exists() == (not fault.startswith("delete step"))


@pytest.mark.slow
def test_a_run_whose_log_was_deleted_says_what_is_lost(killed, tmp_path):
    run = copy_of(killed, tmp_path)
    (run.path / "metrics.jsonl").unlink()
    launch(run.path, progress=False)
    first = run.records()[0]
    assert first["kind"] == "warning" and "has lost the records up to step 8" in first["message"] and run.done


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_between_the_last_step_and_the_model_card_loses_neither(killed, tmp_path, monkeypatch, number):
    run = copy_of(killed, tmp_path)
    torch.set_num_threads(1)
    monkeypatch.setattr(
        launching,
        "write_card",
        lambda trainer, write=launching.write_card: (os.kill(os.getpid(), number), write(trainer)),
    )
    launch(run.path, progress=False)
    assert run.done and (run.path / "model_card.md").exists()


def test_a_kill_before_the_model_card_leaves_a_run_that_is_not_done(killed, tmp_path, monkeypatch):
    run = copy_of(killed, tmp_path)

    def killed_here(trainer):
        raise RuntimeError("killed")

    monkeypatch.setattr(launching, "write_card", killed_here)
    with pytest.raises(RuntimeError, match="killed"):
        launch(run.path, progress=False)
    assert run.done is None
    monkeypatch.undo()
    (run.path / ".model_card.md.999.tmp").write_text("half")
    (run.path / "state.tmp").write_text("half")
    launch(run.path, progress=False)
    assert run.done and (run.path / "model_card.md").exists() and not list(run.path.glob("**/*.tmp"))


def test_leftovers_in_leftovers_are_removed(killed, tmp_path):
    """A kill while the list of a checkpoint was written."""
    run = copy_of(killed, tmp_path)
    half = run.path / "checkpoints" / ".step-00000012.77.tmp"
    half.mkdir()
    (half / ".SHA256SUMS.77.tmp").write_bytes(b"half")
    assert remove_leftovers(run) == 2 and not half.exists()


def test_a_checkpoint_that_was_being_replaced_is_put_back(killed, whole, tmp_path):
    run = copy_of(killed, tmp_path)
    newest = run.checkpoints()[-1]
    # killed between the two renames of a folder that is written again
    newest.rename(newest.with_name(f".{newest.name}.999.old"))
    assert remove_leftovers(run) == 1 and run.checkpoints()[-1] == newest and not missing_files(newest)


def test_a_forked_worker_does_not_hold_the_lock_of_a_run(killed, tmp_path):
    """A loader's workers notice seconds after a kill that they are alone; the lock is free at once."""
    run = copy_of(killed, tmp_path)
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    worker = context.Process(target=lambda: (ready.set(), time.sleep(60)))
    with _hold_lock(run):
        worker.start()
        ready.wait()
        with pytest.raises(RuntimeError, match="in training already"), _hold_lock(run):
            pass
    with _hold_lock(run):
        assert worker.is_alive()
    worker.kill()
    worker.join()
