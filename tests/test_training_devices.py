"""Training on a device: each test runs on a CPU and, where there is one, on a GPU (`make gpu`)."""

import math

import pytest
import torch
import training_runs
from safetensors.torch import load_file

from complearn.core.runs import Run
from complearn.training.runs.launch import launch, prepare

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
METHODS = {
    "clip": {"name": "clip", "args": {"steps": 8, "ramp": 2}},
    "codebook_clip": {"name": "codebook_clip", "args": {"steps": 8, "ramp": 2}},
    "il_clip": training_runs.IL,
}


def trained(path, method, **train):
    """A run's losses, step by step, and its last weights."""
    model = {name: value for name, value in training_runs.MODEL.items() if name != "codebook" or method != "clip"}
    launch(prepare(path, training_runs.config(METHODS[method], model, **train)).path, progress=False)
    run = Run.open(path)
    losses = [record["loss"] for record in run.records() if record["kind"] == "step"]
    return losses, load_file(run.phases()[-1])


def assert_near(one, other, rtol):
    """Losses agree step by step, and weights in their direction from zero."""
    assert one[0] == pytest.approx(other[0], rel=rtol) and all(map(math.isfinite, one[0]))
    for name, tensor in one[1].items():
        if tensor.is_floating_point():
            assert torch.allclose(tensor, other[1][name], atol=rtol * max(1.0, tensor.abs().max().item())), name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_parts_of_a_batch_give_the_joint_batch(method, device, tmp_path):
    whole = trained(tmp_path / "whole", method, device=device)
    parts = trained(tmp_path / "parts", method, device=device, accumulate=4)
    assert_near(parts, whole, 2e-3)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_half_precision_learns_what_full_precision_learns(method, device, tmp_path):
    full, _ = trained(tmp_path / "full", method, device=device)
    half, _ = trained(tmp_path / "half", method, device=device, precision="bf16")
    assert half != full and half[0] == pytest.approx(full[0], rel=0.02)
    # a code more or less in a message changes single steps
    assert sum(half[3:8]) == pytest.approx(sum(full[3:8]), rel=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_a_gpu_learns_what_a_cpu_learns(method, tmp_path):
    here = trained(tmp_path / "here", method, device="cpu")
    there = trained(tmp_path / "there", method, device="cuda")
    assert there[0][:6] == pytest.approx(here[0][:6], rel=1e-2)


@pytest.mark.gpu
@pytest.mark.parametrize("method", METHODS)
def test_compiled_towers_learn_the_same_on_a_gpu(method, tmp_path):
    plain = trained(tmp_path / "plain", method, device="cuda")
    compiled = trained(tmp_path / "compiled", method, device="cuda", compile=True)
    assert compiled[0][:6] == pytest.approx(plain[0][:6], rel=1e-2)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("fault", ["kill step 3", "term step 20"])
def test_an_interrupted_run_ends_as_the_undisturbed_one(fault, device, tmp_path):
    whole = trained(tmp_path / "whole", "il_clip", device=device)
    config = training_runs.config(METHODS["il_clip"], training_runs.MODEL, device=device)
    path = prepare(tmp_path / "disturbed", config).path
    child = training_runs.start(path, fault)
    child.join(300)
    assert child.exitcode != 0 and not Run.open(path).done
    launch(path, progress=False)
    run = Run.open(path)
    losses = [record["loss"] for record in run.records() if record["kind"] == "step"]
    # a GPU adds up in another order each time
    assert_near((losses, load_file(run.phases()[-1])), whole, 1e-9 if device == "cpu" else 2e-3)
