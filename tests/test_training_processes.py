"""Two processes are one: same loss, same gradients, same run, also where agents are frozen, thawed and replaced."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import training_ranks
import training_runs
from safetensors.torch import load_file

from complearn.core.runs import Run
from complearn.launch import main
from complearn.training.engine.processes import start_processes
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.lessons import prepare_lesson
from complearn.training.runs.snapshots import Snapshot

HERE = Path(__file__).parent


def start_module(*arguments):
    # the shape checks were made in one process; without them two more start faster
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COMPLEARN_TYPECHECK": "0", "PYTHONPATH": path}
    command = [sys.executable, "-m", *map(str, arguments)]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def torchrun(*arguments, wait=True):
    process = start_module("torch.distributed.run", "--nproc_per_node", "2", "--standalone", *arguments)
    if wait:
        said = process.communicate(timeout=300)[0]
        assert process.returncode == 0, said[-3000:]
        return said
    return process


def free_place():
    """A host and a port for machines to meet at."""
    with socket.socket() as server:
        server.bind(("localhost", 0))
        return f"localhost:{server.getsockname()[1]}"


def launch_on_two(run, place):
    """The launcher of this library twice on one machine, as if on two."""
    words = ("complearn.launch", run.path, "--nodes", "2", "--at", place, "--quiet")
    return [start_module(*words), start_module(*words)]


def what_they_said(launchers):
    return [launcher.communicate(timeout=300)[0] for launcher in launchers]


def assert_same_numbers(run, other):
    """Two runs have the same losses and, bit for bit, the same weights."""
    losses = [[r["loss"] for r in x.records() if r["kind"] == "step"] for x in (run, other)]
    assert losses[0] == losses[1] and len(losses[0]) == training_runs.STEPS
    for mine, theirs in zip(run.phases(), other.phases(), strict=True):
        a = load_file(mine)
        b = load_file(theirs)
        assert all(torch.equal(a[n], b[n]) for n in a), mine.name


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes made of the loss, of a run, and of the same run in parts."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, parts in (("whole", 1), ("parts", 2)):
        prepare(folder / name, training_runs.config(accumulate=parts, processes=2))
    Run.create(folder / "sigmoid", {"seed": 0})
    torchrun(HERE / "training_ranks.py", folder)
    return folder


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """The same run by `torchrun --nnodes 2`, one process on each of two nodes."""
    run = prepare(tmp_path_factory.mktemp("apart") / "run", training_runs.config(processes=2))
    words = ("--nnodes", "2", "--nproc_per_node", "1", "--rdzv_backend", "c10d", "--rdzv_endpoint", free_place())
    words = ("torch.distributed.run", *words, "--rdzv_id", "apart", "-m", "complearn.launch", run.path, "--quiet")
    launchers = [start_module(*words), start_module(*words)]
    said = what_they_said(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0], said
    # the main process alone says so
    assert sum("done, 32 steps" in text for text in said) == 1
    return run


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The same run in this process."""
    run = prepare(tmp_path_factory.mktemp("alone") / "run", training_runs.config())
    return launch(run.path, progress=False)


@pytest.mark.slow
def test_gather_joins_a_part_of_a_batch_from_all_processes(together):
    for rank in (0, 1):
        values, marks, names, gradient, absent = torch.load(together / f"part-{rank}.pt", weights_only=True)
        assert values.tolist() == [0.0, 1.0, 2.0, 3.0] and names == ("0", "1", "2", "3")
        assert marks.dtype == torch.bool and marks.tolist() == [True, False, False, True] and absent
        # each process's loss asks for its rows
        assert gradient.tolist() == [4.0 * rank, 4.0 * rank + 2.0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ("loss", "blocks"))
def test_the_loss_and_its_gradients(together, name):
    loss, a, b, scale = training_ranks.loss_and_gradients(0, 1)
    ranks = [torch.load(together / f"{name}-{r}.pt", weights_only=True) for r in (0, 1)]

    def mean(i):
        return (ranks[0][i] + ranks[1][i]) / 2

    assert torch.allclose(mean(0), loss, atol=1e-6) and torch.allclose(mean(3), scale, atol=1e-6)
    # averaging gradients over processes, as the wrapper does, halves what each process has for its rows
    for i, expected in ((1, a), (2, b)):
        assert torch.allclose(torch.cat([ranks[0][i], ranks[1][i]]) / 2, expected, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ("whole", "parts"))
def test_ranks_stay_equal_through_freezing_thawing_and_respawning(together, name):
    first, second = (torch.load(together / f"{name}-{r}.pt", weights_only=True) for r in (0, 1))
    assert len(first) == len(second) == 5
    for i, (mine, theirs) in enumerate(zip(first, second, strict=True)):
        assert all(torch.equal(mine[n], theirs[n]) for n in mine), f"phase {i}"
    moved = [
        any(not torch.equal(a["codebook.codes"], b["codebook.codes"]) for a, b in [(first[i], first[i + 1])])
        for i in range(4)
    ]
    assert moved == [False, True, False, True]  # rests in distil-01 and -02, moves in interact-01 and -02


@pytest.mark.slow
@pytest.mark.parametrize("name", ("whole", "parts", "apart"))
def test_two_processes_train_what_one_does(together, apart, alone, name):
    run = apart if name == "apart" else Run.open(together / name)
    losses = [[r["loss"] for r in x.records() if r["kind"] == "step"] for x in (run, alone)]
    assert len(losses[0]) == len(losses[1]) == training_runs.STEPS
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
    assert losses[0][:8] == pytest.approx(losses[1][:8], abs=2e-4)
    seeds = [[r["seed"] for r in x.records() if r["kind"] == "spawn"] for x in (run, alone)]
    assert seeds[0] == seeds[1]
    for mine, theirs in zip(run.phases(), alone.phases(), strict=True):
        a = load_file(mine)
        b = load_file(theirs)
        assert all(torch.allclose(a[n], b[n], atol=2e-2) for n in a), mine.name


@pytest.mark.slow
def test_a_learned_bias_is_the_same_in_both_processes_and_in_one(together, tmp_path):
    first, second = (torch.load(together / f"sigmoid-{r}.pt", weights_only=True) for r in (0, 1))
    alone = training_ranks.sigmoid_run(tmp_path / "run", start_processes("cpu"))
    assert torch.equal(first, second) and len(first) == 11 and first[-1] > -10
    assert torch.allclose(first, alone, atol=1e-4)


@pytest.mark.slow
def test_an_evaluation_of_two_processes_encodes_together_what_one_does(together):
    (helped, unhelped, alone), batches = torch.load(together / "shared-0.pt", weights_only=True)
    nothing, others = torch.load(together / "shared-1.pt", weights_only=True)
    assert all(
        torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(helped, unhelped, alone, strict=True)
    )  # bit for bit
    n_images = len(torch.unique(alone[0], dim=0))
    assert not nothing and sum(batches) - 3 + sum(others) >= n_images > 12  # each batch once, and three images again
    assert len(batches) - 1 <= len(others) <= len(batches) and set(others[:-1]) == {4}
    run = Run.open(together / "parts")
    rows = [record["rows"] for record in run.records() if record["kind"] == "evaluate"]
    assert rows == [[{"vectors": 49}]] * 2  # of the main process alone
    [note] = [r["message"] for r in run.records() if r["kind"] == "note" and "evaluations" in r["message"]]
    assert note == "process 1 encodes nothing for the evaluations: MemoryError: no room"


@pytest.mark.slow
def test_a_lesson_of_two_processes_encodes_its_images_together(alone, tmp_path, monkeypatch):
    losses = []
    kept = []
    for name in ("one", "two", "two again"):  # at last from the cache
        monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / name.split()[0]))
        run = prepare_lesson(Snapshot(alone), tmp_path / f"{name} lessons", text_seed=3, steps=6, ramp=1).run
        if name == "one":
            launch(run.path, progress=False)
        else:
            assert "done, 6 steps" in torchrun("-m", "complearn.launch", run.path, "--quiet")
        losses.append([record["loss"] for record in run.records() if record["kind"] == "step"])
        kept.append([file.read_bytes() for file in (tmp_path / name.split()[0]).glob("lessons/*.safetensors")])
    assert len(losses[0]) > 1 and losses[0] == pytest.approx(losses[1], abs=2e-4) and losses[1] == losses[2]
    assert len(kept[0]) == 1 and kept[0] == kept[1] == kept[2]  # bit for bit


@pytest.mark.slow
def test_torchrun_launches_stops_and_resumes(tmp_path, together):
    run = prepare(tmp_path / "run", training_runs.config(processes=2))
    process = torchrun("-m", "complearn.launch", run.path, "--quiet", wait=False)
    while process.poll() is None and not any(r["kind"] == "step" for r in run.records()):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=120)[0]
    assert process.returncode != 0 and f"python -m complearn.launch {run.path}" in said, said[-3000:]
    assert run.done is None and run.checkpoints()
    assert "done, 32 steps" in torchrun("-m", "complearn.launch", run.path, "--quiet")
    assert_same_numbers(run, Run.open(together / "whole"))


@pytest.mark.slow
def test_two_nodes_train_what_two_processes_of_one_do(together, apart):
    assert_same_numbers(apart, Run.open(together / "whole"))
    records = [record for record in apart.records() if record["kind"] == "step"]
    assert [record["step"] for record in records] == list(range(1, training_runs.STEPS + 1))  # written once


@pytest.mark.slow
def test_two_nodes_stop_at_a_checkpoint_and_resume(tmp_path, apart):
    run = prepare(tmp_path / "run", training_runs.config(processes=2))
    launchers = launch_on_two(run, free_place())
    while all(launcher.poll() is None for launcher in launchers) and not any(
        r["kind"] == "step" for r in run.records()
    ):
        time.sleep(0.02)
    launchers[1].send_signal(signal.SIGTERM)  # a cluster takes one machine back
    said = what_they_said(launchers)
    assert all(launcher.returncode for launcher in launchers), said
    assert f"python -m complearn.launch {run.path}" in "".join(said), said
    assert run.done is None and run.checkpoints()
    launchers = launch_on_two(run, free_place())
    said = what_they_said(launchers)
    assert [launcher.returncode for launcher in launchers] == [0, 0], said
    assert_same_numbers(run, apart)
    assert not (run.path / "nodes.tmp").exists()


@pytest.mark.slow
def test_a_node_that_never_comes_is_named_in_time(tmp_path):
    run = prepare(tmp_path / "run", training_runs.config(processes=2))
    place = free_place()
    began = time.monotonic()
    launcher = start_module("complearn.launch", run.path, "--nodes", "2", "--at", place, "--within", "0.05", "--quiet")
    said = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 1 and time.monotonic() - began < 90
    here = f"{socket.gethostname()}-{launcher.pid}"
    assert f"1 of 2 machines came to {place} within 0.05 minutes: {here}. Start the same command on each" in said
    assert f"(python -m complearn.launch {run.path} --quiet --processes 1 --nodes 2 --at {place})" in said
    assert "Traceback" not in said, said


@pytest.mark.slow
def test_a_meeting_place_that_never_answers_is_named_in_time(tmp_path):
    run = prepare(tmp_path / "run", training_runs.config(processes=2))
    words = ("--nodes", "2", "--at", "192.0.2.1:29500", "--within", "0.05", "--quiet")  # an address of nobody
    launcher = start_module("complearn.launch", run.path, *words)
    said = launcher.communicate(timeout=120)[0]
    assert launcher.returncode == 1 and "1 of 2 machines came to 192.0.2.1:29500" in said, said
    assert "Traceback" not in said, said


@pytest.mark.slow
def test_a_folder_that_one_node_does_not_share_is_named(tmp_path):
    first, second = (prepare(tmp_path / name / "run", training_runs.config(processes=2)) for name in "ab")
    place = free_place()
    words = ("torch.distributed.run", "--nnodes", "2", "--rdzv_backend", "c10d", "--rdzv_endpoint", place)
    words = (*words, "--rdzv_id", "two", "--nproc_per_node", "1", "-m", "complearn.launch")
    # the first run has ended a step already, on its own disk
    launchers = [start_module(*words, run.path, "--quiet") for run in (first, first)]
    while all(launcher.poll() is None for launcher in launchers) and not first.checkpoints():
        time.sleep(0.02)
    launchers[0].send_signal(signal.SIGTERM)
    what_they_said(launchers)
    launchers = [start_module(*words, run.path, "--quiet") for run in (first, second)]
    said = "".join(what_they_said(launchers))
    assert "the newest checkpoint of" in said and "must lie on a disk that all machines share" in said, said


def test_machines_need_a_place_to_meet(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path), "--nodes", "2"])
    assert ended.value.code == 2 and "2 machines need a place to meet: --at HOST:PORT" in capsys.readouterr().err


def test_the_number_of_processes_is_checked(tmp_path):
    with pytest.raises(
        RuntimeError, match="wants 2 processes, 1 were started; start it with: torchrun --nproc_per_node 2"
    ):
        start_processes("cpu", expected=2)
    run = prepare(tmp_path / "run", training_runs.config(processes=2))
    with pytest.raises(RuntimeError, match="wants 2 processes"):
        launch(run.path, progress=False)
