"""Trainings whose processes are killed from outside, as the system does when memory runs out: a message says what to
do, and the same command ends the run with the weights of the undisturbed one.

Killed are grounding at any operation on its files, one of two machines, one of two processes, and a process that reads
data. A grounding is killed twice, and nine times by `make faults`, which kills a machine three times.
"""

import os
import random
import signal
import time

import grounding_ranks
import pytest
import training_runs
from faults import note, trials
from test_training_processes import free_place, launch_on_two, start_module, what_they_said

from complearn.core.runs import Run
from complearn.training.runs.launch import launch, prepare

psutil = pytest.importorskip("psutil", reason="psutil, which comes with ipykernel, is not installed: no child is found")
KILLS = trials(2, 9)
SHORT = {"name": "clip", "args": {"steps": 30}}


def test_a_grounding_that_is_killed_at_its_files_ends_as_the_undisturbed_one(tmp_path):
    configuration = grounding_ranks.config()
    whole = prepare(tmp_path / "whole" / "run", configuration)
    process = training_runs.start(whole.path, "kill file 1000000000")
    process.join(120)
    assert process.exitcode == 0
    operations = int((tmp_path / "whole" / "operations.txt").read_text())
    draw = random.Random("grounding")
    for number in sorted(draw.sample(range(1, operations + 1), KILLS)):
        run = prepare(tmp_path / str(number) / "run", configuration)
        process = training_runs.start(run.path, f"kill file {number}")
        process.join(120)
        assert process.exitcode == -signal.SIGKILL, number
        process = training_runs.start(run.path)
        process.join(120)
        assert process.exitcode == 0, (run.path.parent / "said.txt").read_text()
        training_runs.assert_same(Run.open(run.path), Run.open(whole.path))
    note("T2", "grounding", kills=KILLS, equal=KILLS, different=0)


def until_it_trains(run, processes, steps=2):
    until = time.monotonic() + 120
    while len([record for record in run.records() if record["kind"] == "step"]) < steps:
        assert time.monotonic() < until and all(each.poll() is None for each in processes)
        time.sleep(0.02)


def trainer_below(launcher):
    """The process that a launcher has started for the training."""
    (found,) = [
        child
        for child in psutil.Process(launcher.pid).children(recursive=True)
        if "complearn.launch" in " ".join(child.cmdline())
    ][:1]
    return found


@pytest.fixture(scope="module")
def of_two(tmp_path_factory):
    """The run of two machines that nobody disturbs."""
    run = prepare(tmp_path_factory.mktemp("two") / "run", training_runs.config(SHORT, processes=2))
    launchers = launch_on_two(run, free_place())
    said = what_they_said(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0], said
    return Run.open(run.path)


def test_one_of_two_machines_is_killed_and_the_same_commands_go_on(tmp_path, of_two):
    draw = random.Random("machines")
    for number in range(-(-KILLS // 3)):
        run = prepare(tmp_path / str(number) / "run", training_runs.config(SHORT, processes=2))
        launchers = launch_on_two(run, free_place())
        until_it_trains(run, launchers, draw.randint(1, 25))
        victim = launchers[number % 2]
        for process in [*psutil.Process(victim.pid).children(recursive=True), psutil.Process(victim.pid)]:
            process.kill()  # the machine is switched off
        said = what_they_said(launchers)
        assert all(launcher.returncode for launcher in launchers), said
        launchers = launch_on_two(run, free_place())
        said = what_they_said(launchers)
        assert [launcher.returncode for launcher in launchers] == [0, 0], said
        training_runs.assert_same(Run.open(run.path), of_two)
    note("T2", "one of two machines", kills=number + 1, equal=number + 1, different=0)


def test_one_of_two_processes_is_killed_which_is_said_and_the_same_command_goes_on(tmp_path, of_two):
    run = prepare(tmp_path / "run", training_runs.config(SHORT, processes=2))
    words = ("complearn.launch", run.path, "--processes", "2", "--quiet")
    launcher = start_module(*words)
    until_it_trains(run, [launcher])
    trainer_below(launcher).kill()
    said = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 128 + signal.SIGKILL
    assert "a process of the run was killed by signal 9, mostly because memory ran out: give a smaller batch" in said
    assert f"python -m complearn.launch {run.path} --quiet --processes 2" in said and "Traceback" not in said, said
    launcher = start_module(*words)
    assert "done, 30 steps" in launcher.communicate(timeout=120)[0]
    training_runs.assert_same(Run.open(run.path), of_two)


def test_a_process_that_reads_data_is_killed_which_is_said_and_the_same_command_goes_on(tmp_path):
    whole = launch(prepare(tmp_path / "whole", training_runs.config(SHORT)).path, "cpu", False)
    run = prepare(tmp_path / "run", training_runs.config({"name": "clip", "args": {"steps": 30}}, workers=2))
    launcher = start_module("complearn.launch", run.path, "--quiet")
    until_it_trains(run, [launcher])
    worker = max(psutil.Process(launcher.pid).children(recursive=True), key=lambda child: child.create_time())
    worker.kill()
    said = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 1, said
    assert "a process that reads data was killed, mostly because memory ran out; give fewer" in said, said
    assert "Traceback" not in said
    launcher = start_module("complearn.launch", run.path, "--quiet")
    assert "done, 30 steps" in launcher.communicate(timeout=120)[0]
    training_runs.assert_same(Run.open(run.path), whole)


def test_a_clock_that_goes_back_changes_nothing_of_a_run(tmp_path, monkeypatch):
    """The second half is trained a day before the first."""
    whole = launch(prepare(tmp_path / "whole", training_runs.config(SHORT)).path, "cpu", False)
    run = prepare(tmp_path / "run", training_runs.config(SHORT))
    process = training_runs.start(run.path, "kill step 17")
    process.join(120)
    assert process.exitcode == -signal.SIGKILL and run.checkpoints()
    tomorrow = time.time() + 86_400
    for path in run.path.rglob("*"):
        os.utime(path, (tomorrow, tomorrow))
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400)
    launch(run.path, "cpu", False)
    monkeypatch.undo()
    training_runs.assert_same(Run.open(run.path), whole)
