"""Runs as jobs of `submitit`'s local queue: they end as runs of child processes do, also after kills and signals."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import training_runs

from complearn.core.config import RequestError
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.queues import Job, JobQueue, QueueOptions, _RunCommand
from complearn.training.runs.sweep import RunFailed, run_all

ROOT = Path(__file__).resolve().parents[1]
LOCAL = {"name": "local", "timeout_min": 5}


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("COMPLEARN_TYPECHECK", "0")


def clip(seed, steps=4):
    return training_runs.config({"name": "clip", "args": {"steps": steps, "ramp": 2}}, seed=seed)


def begun(run):
    path = run.path / "metrics.jsonl"
    return path.exists() and '"step": 2' in path.read_text()


def children_of(run):
    """Processes that train a run, without this one."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "complearn.launch" in words and str(run.path) in words:
            found.append(int(place.name))
    return found


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("slrum", "no executor 'slrum' .did you mean 'slurm'"),
        ({"timeout_min": 3}, "an executor is one of here, local, slurm, or a mapping with the key 'name'"),
        (3, "an executor is one of here"),
        ({"name": "here", "timeout_min": 3}, "the executor 'here' takes no 'timeout_min'"),
        ('{"name": "local", "timout_min": 3}', "executor 'local': .*timout_min"),
    ],
)
def test_a_wrong_executor_is_named(value, message, tmp_path):
    with pytest.raises(RequestError, match=message):
        JobQueue(QueueOptions.read(value), tmp_path)


def test_options_reach_the_queue(tmp_path):
    where = QueueOptions.read('{"name": "slurm", "timeout_min": 240, "slurm_partition": "gpu"}')
    assert where == QueueOptions("slurm", {"timeout_min": 240, "slurm_partition": "gpu"})
    with pytest.raises(Exception, match="Could not detect|sbatch|srun|slurm"):  # this machine has none
        JobQueue(where, tmp_path).executor.submit(time.sleep, 0)


@pytest.mark.slow
@pytest.mark.xdist_group("queues")
def test_a_job_that_fails_says_the_end_of_its_log(tmp_path):
    run = prepare(
        tmp_path / "runs" / "clip-s0", clip(0) | {"data": {"name": "webdataset", "args": {"shards": "gone.tar"}}}
    )
    with pytest.raises(RunFailed, match=r"run clip-s0 ended with exit code 1(?s:.*)gone.tar"):
        run_all([run], 4, executor="local")


@pytest.mark.slow
@pytest.mark.xdist_group("queues")
def test_a_job_that_is_killed_goes_on_and_ends_the_same(tmp_path):
    whole = launch(prepare(tmp_path / "whole", clip(0, 40)).path, progress=False)
    run = prepare(tmp_path / "runs" / "clip-s0", clip(0, 40))
    queue = JobQueue(QueueOptions.read(LOCAL), tmp_path / "jobs")
    words = [sys.executable, "-m", "complearn.launch", str(run.path), "--quiet"]
    job = queue.start(run, words, dict(os.environ))
    kills = 0
    until = time.monotonic() + 120
    while job.poll() is None and time.monotonic() < until:
        if kills == 0 and begun(run):
            for child in children_of(run):
                os.kill(child, signal.SIGKILL)
            kills += 1
        time.sleep(0.02)
    assert job.returncode == 0 and kills == 1 and job._restarts < 3
    training_runs.assert_same(run, whole)


@pytest.mark.slow
@pytest.mark.xdist_group("queues")
def test_a_cancelled_job_leaves_a_run_that_goes_on(tmp_path):
    run = prepare(tmp_path / "runs" / "clip-s0", clip(0, 4000))
    job = JobQueue(QueueOptions.read(LOCAL), tmp_path / "jobs").start(
        run, [sys.executable, "-m", "complearn.launch", str(run.path), "--quiet"], dict(os.environ)
    )
    until = time.monotonic() + 120
    while not begun(run) and time.monotonic() < until:
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(60.0) is not None and not children_of(run)
    assert run.done is None and list((run.path / "checkpoints").iterdir())


def test_a_queue_that_stops_a_job_is_asked_for_it_again(tmp_path):
    run = prepare(tmp_path / "runs" / "clip-s0", clip(0, 4000))
    command = _RunCommand(run.path, [sys.executable, "-c", "import time; time.sleep(600)"], dict(os.environ))

    class Executor:
        def submit(self, what):
            return what

    job = Job(Executor(), command)
    assert job._job is command
    thread = threading.Thread(target=command)
    thread.start()
    while command._child is None:
        time.sleep(0.01)
    again = command.checkpoint()
    thread.join(30)
    assert not thread.is_alive() and command._child.returncode == -signal.SIGTERM and again is not None


class Stub:
    "A queue whose jobs end at once, each as the next of `ends` says."

    def __init__(self, *ends):
        self.ends = list(ends)

    def submit(self, command):
        self.end = self.ends.pop(0)
        return self

    def done(self):
        return True

    def result(self):
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


@pytest.mark.parametrize(
    ("ends", "polls"),
    [
        ([0], [0]),
        ([1], [1]),  # an error of the run is an error
        ([-9, -15, 0], [None, None, 0]),
        ([RuntimeError("node failed"), 0], [None, 0]),
        ([-9, -9, -9, -9], [None, None, None, -9]),  # four times: it is given up
    ],
)
def test_a_job_without_a_result_is_submitted_again_up_to_three_times(ends, polls):
    job = Job(Stub(*ends), _RunCommand(Path("run"), ["true"], {}))
    assert [job.poll() for _ in polls] == polls and job.poll() == polls[-1]


@pytest.mark.slow
@pytest.mark.xdist_group("queues")
def test_twelve_jobs_of_which_two_are_killed_end_as_children_do(tmp_path):
    values = {seed: clip(seed, 12) for seed in range(12)}
    children = [prepare(tmp_path / "here" / "runs" / f"clip-s{seed}", each) for seed, each in values.items()]
    run_all(children, 12)
    jobs = [prepare(tmp_path / "local" / "runs" / f"clip-s{seed}", each) for seed, each in values.items()]
    killed = set()
    ended = []
    over = threading.Event()

    def strike():
        "Kill the first two runs whose processes appear, while these import and read."
        while len(killed) < 2 and not over.wait(0.01):
            for victim in jobs:
                for child in children_of(victim) if len(killed) < 2 and victim not in killed else []:
                    os.kill(child, signal.SIGKILL)
                    killed.add(victim)

    striker = threading.Thread(target=strike)
    striker.start()
    try:
        run_all(jobs, 12, at_once=4, executor=LOCAL, on_end=lambda run: ended.append(run.path.name))
    finally:
        over.set()
        striker.join()
    assert len(killed) == 2 and sorted(ended) == sorted(run.path.name for run in jobs)
    for job, child in zip(jobs, children):
        training_runs.assert_same(job, child)
