"""Many runs side by side: what is skipped, what is resumed, and what is said when one fails."""

import fcntl
import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from complearn.core.progress import Progress
from complearn.core.runs import Run
from complearn.training.runs import sweep
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.sweep import RunFailed, _bar_title, _progress_of, _share_machine, command, run_all

TOWER = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}


def prepared(folder, steps=8, **train):
    data = {"name": "generated", "args": {"preset": "small", "n_train": 64}}
    settings = {"batch_size": 16, "device": "cpu", "precision": "fp32", "checkpoint_every": 4, "log_every": 1} | train
    method = {"name": "clip", "args": {"steps": steps, "ramp": 2}}
    return prepare(
        folder,
        {"method": method, "model": {"vision": TOWER, "text": TOWER}, "data": data, "train": settings, "seed": 0},
    )


def test_threads_do_not_depend_on_how_many_runs_are_left(monkeypatch):
    """A resumed run keeps its thread count, on which the last bits depend."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(8)), raising=False)
    assert _share_machine(3, device="cpu") == (3, 2) and _share_machine(100, device="cpu") == (8, 1)
    assert _share_machine(3, at_once=1, device="cpu") == (1, 8)


def test_runs_share_the_processors_that_a_queue_gave(monkeypatch):
    """Of 64 processors a job may have two; where nobody can tell, the machine's count."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {4, 5}, raising=False)
    assert _share_machine(3, device="cpu") == (2, 1)
    monkeypatch.delattr(os, "sched_getaffinity")
    assert _share_machine(3, device="cpu") == (3, 21)


def test_checkpoints_beyond_the_step_where_a_run_goes_on_are_forgotten(tmp_path):
    """Their records are dropped, and a later start would pass over them."""
    trainer = make_trainer(prepared(tmp_path / "run", checkpoint_every=2, keep=9), progress=False)
    trainer.fit()
    assert [*trainer.run.checkpoint_steps()][:4] == [0, 2, 4, 6]
    make_trainer(trainer.run, progress=False).begin_or_resume(until=5)
    assert max(trainer.run.checkpoint_steps()) == 4


def test_one_folder_one_trainer(tmp_path):
    run = prepared(tmp_path / "run")
    with open(run.path / "lock", "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write("4242")
        file.flush()
        with pytest.raises(RuntimeError, match="in training already, by process 4242; wait for it, or stop it"):
            launch(run.path, progress=False)
    assert launch(run.path, progress=False).done["step"] == 8  # the lock went with its holder


def test_the_time_left_is_told_from_the_first_step_on(monkeypatch, tmp_path):
    """A run reads its data for a minute and then takes ten steps a second: after four steps an hour is not left."""
    told = []

    class Told(Progress):
        def unpause(self):
            told.append("waits")
            super().unpause()

        def update(self, n=1):
            told.append(n)

    done_now, later = [0], iter([0, 0, 3, 6])

    def take_ended(children, commands, stacks):
        done_now[0] = next(later)
        if done_now[0] == 6:
            children.clear()
        return []

    monkeypatch.setattr(sweep, "Progress", Told)
    monkeypatch.setattr(sweep, "command", lambda *_: [])
    monkeypatch.setattr(sweep, "_starter", lambda *_: nullcontext(lambda run: None))
    monkeypatch.setattr(sweep, "_take_ended", take_ended)
    monkeypatch.setattr(sweep, "_progress_of", lambda run: done_now[0])
    monkeypatch.setattr(sweep, "stop", lambda children: None)
    monkeypatch.setattr(sweep.time, "sleep", lambda seconds: None)
    run_all([prepared(tmp_path / "run")], 6)
    assert told == ["waits", 0, "waits", 0, 3, 6]


def test_progress_is_a_line_in_the_terminal_behind_a_notebook(monkeypatch):
    """Whatever is done: papermill shows no bar."""
    reader, writer = os.pipe()
    monkeypatch.setattr(Progress, "every", 0.0)
    monkeypatch.setattr(
        sys, "stderr", SimpleNamespace(_original_stdstream_copy=writer, write=lambda text: None, flush=lambda: None)
    )
    for _ in Progress(range(2), "encoding images", mininterval=0, unit="batch"):
        pass
    with Progress(total=4, desc="judging", disable=True) as bar:
        bar.update()
    os.close(writer)
    lines = os.read(reader, 4096).decode().splitlines()
    assert [line.partition(" (")[0] for line in lines] == [
        "encoding images: 1 of 2 batches",
        "encoding images: 2 of 2 batches",
    ]
    assert "left" in lines[0]


@pytest.mark.parametrize(
    ("runs", "many", "title"),
    [(1, 1, "1 run"), (1, 2, "1 run"), (2, 4, "2 runs, 2 at once"), (3, 1, "3 runs, 1 at once")],
)
def test_the_bar_of_one_run_counts_one(runs, many, title):
    assert _bar_title(runs, many) == title


@pytest.mark.slow
def test_a_sweep_skips_the_done_and_names_the_failed(tmp_path, capsys):
    good = prepared(tmp_path / "good")
    bad = prepared(tmp_path / "bad", lr=1e6, explode=1e-3)
    with pytest.raises(RunFailed, match=r"run bad ended with exit code 1(.|\n)*complearn.launch"):
        run_all([good, bad], 8, device="cpu", at_once=1)
    assert Run.open(good.path).done["step"] == 8 == _progress_of(good)
    assert "leaked" not in (good.path / "log.txt").read_text()  # a library's word at the end of a fork
    before = (good.path / "metrics.jsonl").read_bytes()
    ended = []
    run_all([good], 8, device="cpu", on_end=ended.append)
    assert ended == [good] and "1 of 1 run is there already" in capsys.readouterr().out
    assert (good.path / "metrics.jsonl").read_bytes() == before


@pytest.mark.slow
@pytest.mark.parametrize("many", [1, 2])  # two are forks of one process
def test_an_interrupted_sweep_leaves_runs_that_go_on(tmp_path, many):
    runs = [prepared(tmp_path / f"run-{n}", steps=4000, checkpoint_every=0) for n in range(many)]
    imports = "import signal; from complearn.core.runs import Run; from complearn.training.runs.sweep import run_all"
    imports += "; signal.signal(signal.SIGINT, signal.default_int_handler)"  # a suite in the background has it ignored
    code = (
        f"{imports}; run_all([Run(path) for path in {[str(run.path) for run in runs]!r}], 4000, 'cpu', at_once={many})"
    )
    sweep = subprocess.Popen(
        [sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=os.environ | {"COMPLEARN_TYPECHECK": "0"}
    )
    until = time.monotonic() + 120
    while min(map(_progress_of, runs)) < 3 and time.monotonic() < until:
        time.sleep(0.1)
    sweep.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in sweep.communicate(timeout=90)[1]
    for run in runs:
        there = run.checkpoints()
        assert there and 3 <= int(there[-1].name.split("-")[-1]) < 4000 and run.done is None
        with open(run.path / "lock", "a+") as file:  # nobody trains on
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_device_of_a_configuration_is_that_of_its_run(tmp_path):
    """A study has one device for all; a row that states another trains there."""
    for stated, expected in (("auto", "cuda"), ("cpu", "cpu")):
        words = command(prepared(tmp_path / stated, device=stated), "cuda")
        assert words[words.index("--device") + 1] == expected


def test_several_processes_go_through_torchrun(tmp_path):
    words = command(prepared(tmp_path / "run"), "cpu", processes=2)
    assert words[1:5] == ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
