"""Two processes are one: same loss, same gradients, same run, also where agents are frozen, thawed and replaced."""

import os
import signal
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
from complearn.training.engine.processes import start_processes
from complearn.training.runs.launch import launch, prepare

HERE = Path(__file__).parent


def torchrun(*arguments, wait=True):
    # the shape checks were made in one process; without them two more start faster
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COMPLEARN_TYPECHECK": "0", "PYTHONPATH": path}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--standalone",
        *map(str, arguments),
    ]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if wait:
        said = process.communicate(timeout=300)[0]
        assert process.returncode == 0, said[-3000:]
        return said
    return process


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
    for i, (mine, theirs) in enumerate(zip(first, second)):
        assert all(torch.equal(mine[n], theirs[n]) for n in mine), f"phase {i}"
    moved = [
        any(not torch.equal(a["codebook.codes"], b["codebook.codes"]) for a, b in [(first[i], first[i + 1])])
        for i in range(4)
    ]
    assert moved == [False, True, False, True]  # rests in distil-01 and -02, moves in interact-01 and -02


@pytest.mark.slow
@pytest.mark.parametrize("name", ("whole", "parts"))
def test_two_processes_train_what_one_does(together, alone, name):
    run = Run.open(together / name)
    losses = [[r["loss"] for r in x.records() if r["kind"] == "step"] for x in (run, alone)]
    assert len(losses[0]) == len(losses[1]) == training_runs.STEPS
    assert losses[0] == pytest.approx(losses[1], abs=2e-3)
    assert losses[0][:8] == pytest.approx(losses[1][:8], abs=2e-4)
    seeds = [[r["seed"] for r in x.records() if r["kind"] == "spawn"] for x in (run, alone)]
    assert seeds[0] == seeds[1]
    for mine, theirs in zip(run.phases(), alone.phases()):
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
    whole = Run.open(together / "whole")
    assert [r["loss"] for r in run.records() if r["kind"] == "step"] == [
        r["loss"] for r in whole.records() if r["kind"] == "step"
    ]
    for mine, theirs in zip(run.phases(), whole.phases()):
        a = load_file(mine)
        b = load_file(theirs)
        assert all(torch.equal(a[n], b[n]) for n in a), mine.name


def test_the_number_of_processes_is_checked(tmp_path):
    with pytest.raises(
        RuntimeError, match="wants 2 processes, 1 were started; start it with: torchrun --nproc_per_node 2"
    ):
        start_processes("cpu", expected=2)
    run = prepare(tmp_path / "run", training_runs.config(processes=2))
    with pytest.raises(RuntimeError, match="wants 2 processes"):
        launch(run.path, progress=False)
