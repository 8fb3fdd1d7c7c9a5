import json

import pytest
import torch

from complearn.core import device as module
from complearn.core.device import autocast, cpu_has_bf16, describe_device, pick_device, pick_precision


def test_auto_takes_what_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto") == pick_device() == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert pick_device("auto") == torch.device("cuda", 0)
    assert pick_device("cuda:1") == pick_device(torch.device("cuda", 1)) == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert pick_device("auto") == torch.device("cuda", 1)


def test_an_absent_device_says_what_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(
        RuntimeError, match="device 'cuda' was asked for .* 0 CUDA devices are usable here; use device='cpu' or 'auto'"
    ):
        pick_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match="number 2.* 2 CUDA devices"):
        pick_device("cuda:2")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="'mps'"):
        pick_device("mps")


def test_precision_follows_the_hardware(monkeypatch):
    monkeypatch.setattr(module, "cpu_has_bf16", lambda: True)
    assert pick_precision("cpu") == "bf16" and pick_precision(torch.device("cpu"), "fp32") == "fp32"
    monkeypatch.setattr(module, "cpu_has_bf16", lambda: False)
    assert pick_precision("cpu") == "fp32"
    assert pick_precision("cpu", "bf16") == "bf16"
    assert pick_precision("mps") == "fp32"
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: including_emulation)
    assert pick_precision("cuda") == "fp32"  # an old GPU that only emulates it
    with pytest.raises(ValueError, match="'auto', 'fp32' or 'bf16', not 'fp16'"):
        pick_precision("cpu", "fp16")


PROCESSORS = [({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True}, False), ({}, False)]


@pytest.mark.parametrize("told, expected", PROCESSORS)
def test_bf16_is_read_from_the_processor(monkeypatch, told, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told, raising=False)
    assert cpu_has_bf16() is expected
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert cpu_has_bf16() is False


def test_autocast_changes_the_product_and_not_the_weights():
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(4, 8)
    with autocast("cpu", "bf16"):
        out = layer(x)
    out.float().sum().backward()
    assert out.dtype == torch.bfloat16 and layer.weight.dtype == layer.weight.grad.dtype == torch.float32
    with autocast("cpu", "fp32"):
        assert torch.equal(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))
    with pytest.raises(ValueError, match="let pick_precision choose"):
        autocast("cpu", "auto")


def test_a_description_is_plain_and_names_no_machine():
    import getpass
    import socket

    told = describe_device("cpu")
    assert json.loads(json.dumps(told)) == told and told["cores"] >= 1 and told["torch"] == torch.__version__
    assert socket.gethostname() not in told.values() and getpass.getuser() not in told.values()


@pytest.mark.gpu
def test_on_a_gpu():
    device = pick_device("auto")
    assert device.type == "cuda" and describe_device(device)["memory_gib"] > 0 and describe_device(device)["name"]
    with autocast(device, pick_precision(device, "bf16")):
        assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == torch.bfloat16
