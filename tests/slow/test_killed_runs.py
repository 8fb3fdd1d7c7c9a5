"""Runs that are killed or asked to stop at any moment end with the weights of the undisturbed run: 48 interruptions,
and 210 by `make faults`.

Each trial is a process, forked from a warm one, that starts or resumes a run and is interrupted: at a random instant,
or before the n-th
operation on a file of the run. After each, the folder must be readable; at the end of a run, records and weights must
be those of the
undisturbed one, bit for bit.
"""

import os
import random
import signal
import time
from contextlib import suppress

import pytest
import training_runs
from faults import note, trials

from complearn.core.checksums import read_checksums, verify
from complearn.core.runs import Run, find
from complearn.training.engine.checkpoints import load_checkpoint
from complearn.training.runs.launch import _hold_lock, prepare

LENGTHS = {"warmup": 3, "distil": 2, "interact": 3, "generations": 2, "final": 2, "ramp": 1, "temperature": 0.1}
CONFIG = training_runs.config({"name": "il_clip", "args": LENGTHS}, ema=0.9, checkpoint_every=3)
TRIALS = {
    ("kill", "instant"): trials(12, 70),
    ("kill", "file"): trials(18, 70),
    ("term", "instant"): trials(5, 20),
    ("term", "file"): trials(5, 20),
    ("int", "instant"): trials(4, 15),
    ("int", "file"): trials(4, 15),
}
PER_RUN = 6  # interruptions of one run, at most


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody disturbs, how many seconds it takes, and how many operations on its files."""
    run = prepare(tmp_path_factory.mktemp("whole") / "il_clip-s0", CONFIG)
    # starts the warm process
    training_runs.start(prepare(tmp_path_factory.mktemp("first") / "il_clip-s0", CONFIG).path).join()
    began = time.perf_counter()
    process = training_runs.start(run.path, "kill file 1000000000")
    process.join()
    assert process.exitcode == 0
    return run, time.perf_counter() - began, int((run.path.parent / "operations.txt").read_text())


def interrupt(path, signal_name, place, dice, seconds, operations):
    """One trial; returns the exit code."""
    (path.parent / "said.txt").unlink(missing_ok=True)
    if place == "file":
        process = training_runs.start(path, f"{signal_name} file {dice.randint(1, operations)}")
    else:
        process = training_runs.start(path)
        time.sleep(dice.uniform(0, seconds))
        with suppress(ProcessLookupError):  # it may have ended by itself
            os.kill(process.pid, training_runs.SIGNALS[signal_name])
    process.join(120)
    return process.exitcode


def check_readable(path):
    """What an interrupted run leaves can be read and is what was written."""
    (run,) = find(path)
    assert not run.problem
    run.metrics()
    for checkpoint in run.checkpoints():
        load_checkpoint(checkpoint)
    for folder in (path, path / "phases"):
        for name in read_checksums(folder):
            verify(folder / name)
    with _hold_lock(run):
        pass


@pytest.mark.parametrize("signal_name, place", TRIALS, ids=map(" at ".join, TRIALS))
def test_interrupted_runs_end_with_the_weights_of_the_undisturbed_run(whole, tmp_path, signal_name, place):
    undisturbed, seconds, operations = whole
    number = training_runs.SIGNALS[signal_name]
    # TERM before the training: as usual
    good = {"kill": {-number}, "term": {-number, 128 + number}, "int": {128 + number}}[signal_name]
    dice = random.Random(f"{signal_name} {place}")
    trials = 0
    runs = 0
    while trials < TRIALS[signal_name, place]:
        run = prepare(tmp_path / str(runs) / "il_clip-s0", CONFIG)
        runs = runs + 1
        interruptions = 0
        code = None
        while code != 0:
            if interruptions < PER_RUN:
                code = interrupt(run.path, signal_name, place, dice, seconds, operations)
            else:
                process = training_runs.start(run.path)
                process.join(120)
                code = process.exitcode
            said = run.path.parent / "said.txt"
            words = said.read_text() if said.exists() else ""
            outside = code == 1 and number == signal.SIGINT and "launch.py" not in words  # multiprocessing's own code
            assert code == 0 or code in good or outside, (
                f"run {runs}, interruption {interruptions}: code {code}, {words}"
            )
            interruptions += code != 0
            check_readable(run.path)
        trials += interruptions
        training_runs.assert_same(Run.open(run.path), undisturbed)
        assert (run.path / "model_card.md").exists() and not [*run.path.rglob("*.tmp"), *run.path.rglob(".*.old")]
    note("T2", f"run, {signal_name} at {place}", kills=trials, equal=trials, different=0)
    print(f"{trials} interruptions of {runs} runs by {signal_name} at {place}")
