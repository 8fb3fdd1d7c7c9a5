"Records of a run in other tools: the same numbers, once each, and no tool stops a training."

import json
import os
import sqlite3
import subprocess
import sys
import types
from pathlib import Path

import pytest
import training_runs

from complearn.core.config import RequestError
from complearn.core.extras import MissingLibrary
from complearn.core.plugins import Registry
from complearn.core.runs import Run
from complearn.training.engine.loggers import LOGGERS, check_logger, scalars
from complearn.training.engine.trainer import Trainer
from complearn.training.runs.launch import launch, prepare


def clip(log_to=None, steps=6):
    config = training_runs.config({"name": "clip", "args": {"steps": steps, "ramp": 2}})
    return config | {"train": config["train"] | {"log_every": 1} | ({"log_to": log_to} if log_to else {})}


class Memory:
    "A tool that keeps what it is told."

    opened = []

    def __init__(self, run, project, first):
        self.values = []
        self.about = (run.path.name, project, first)
        self.closed = False
        Memory.opened.append(self)

    def log(self, step, values):
        self.values.append((step, values))

    def close(self):
        self.closed = True


@pytest.fixture
def memory(monkeypatch):
    monkeypatch.setattr(LOGGERS, "entries", dict(LOGGERS.entries))
    monkeypatch.setattr(LOGGERS, "sources", dict(LOGGERS.sources))
    monkeypatch.setattr(Memory, "opened", [])
    LOGGERS.register("memory")(Memory)
    return Memory.opened


def test_numbers_of_steps_and_evaluations_have_flat_names():
    row = {"data": "generated", "split": "swap_att", "metric": "accuracy", "value": 0.5, "n": 10}
    record = {"kind": "evaluate", "name": "monitor", "rows": [row, row | {"value": None, "split": "mean"}]}
    assert scalars(record) == {"monitor/generated/swap_att/accuracy": 0.5}
    step = {"kind": "step", "loss": 2, "clipped": True, "phase": "train", "step": 3, "phase_index": 0}
    assert scalars(step) == {"train/loss": 2.0}
    assert scalars({"kind": "phase", "event": "start", "step": 0}) == scalars({"kind": "warning", "message": "a"}) == {}


def test_a_tool_gets_every_record_of_a_run_and_is_closed(memory, tmp_path):
    run = launch(prepare(tmp_path / "run", clip("memory:mine")).path, progress=False)
    (tool,) = memory
    assert tool.about == ("run", "mine", 1) and tool.closed
    expected = [(each["step"], values) for each in run.records() if (values := scalars(each))]
    assert tool.values == expected and len(expected) == 6


def test_a_run_with_a_tool_has_the_weights_of_one_without(memory, tmp_path):
    plain = launch(prepare(tmp_path / "plain", clip()).path, progress=False)
    logged = launch(prepare(tmp_path / "logged", clip("memory")).path, progress=False)
    training_runs.assert_same(logged, plain)


@pytest.mark.parametrize("fault", ["opening", "logging", "closing"])
def test_a_tool_that_fails_is_left_with_a_warning(fault, memory, monkeypatch, tmp_path):
    def fail(*args, **options):
        raise OSError("no space left")

    monkeypatch.setattr(Memory, {"opening": "__init__", "logging": "log", "closing": "close"}[fault], fail)
    run = launch(prepare(tmp_path / "run", clip("memory")).path, progress=False)
    warnings = [each["message"] for each in run.records() if each["kind"] == "warning"]
    assert run.done is not None and len(warnings) == 1
    assert "memory takes no records any more: OSError: no space left; the run goes on without it" in warnings[0]


def test_a_wrong_name_and_a_missing_library_are_said_before_training(tmp_path, monkeypatch):
    with pytest.raises(RequestError, match="no logger 'tensorbord'.*tensorboard"):
        prepare(tmp_path / "run", clip("tensorbord"))
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(MissingLibrary, match=r"'wandb', which is not installed"):
        prepare(tmp_path / "run", clip("wandb:mine"))
    assert not (tmp_path / "run").exists()


def test_every_logger_is_one_of_the_registry():
    assert Registry.kinds["logger"] is LOGGERS
    assert {"tensorboard", "wandb", "mlflow", "trackio"} <= set(LOGGERS)


@pytest.mark.parametrize("name", ["wandb", "trackio", "mlflow"])
def test_the_functions_of_a_library_are_called_as_it_documents_them(name, monkeypatch, tmp_path):
    calls = []
    names = ("init", "log", "finish", "set_experiment", "start_run", "log_metrics", "end_run")
    fake = types.ModuleType(name)
    for function in names:
        setattr(fake, function, lambda *args, _name=function, **options: calls.append((_name, args, options)))
    monkeypatch.setitem(sys.modules, name, fake)
    assert check_logger(f"{name}:mine") == f"{name}:mine"
    run = launch(prepare(tmp_path / "run", clip(f"{name}:mine", 2)).path, progress=False)
    kinds = [call[0] for call in calls]
    if name == "mlflow":
        assert kinds == ["set_experiment", "start_run", "log_metrics", "log_metrics", "end_run"]
        assert calls[0][1] == ("mine",) and calls[1][2] == {"run_name": "run"}
    else:
        assert kinds == ["init", "log", "log", "finish"]
        assert calls[0][2]["project"] == "mine" and calls[0][2]["config"] == run.config
        assert ("id" in calls[0][2]) == (name == "wandb")
    assert [call[2]["step"] for call in calls if call[0].startswith("log")] == [1, 2]


def test_links_that_wandb_makes_lie_outside_the_run(monkeypatch, tmp_path):
    """A run's folder with a link in it cannot be opened."""

    def init(dir=None, **options):
        folder = Path(dir or ".") / "wandb"
        (folder / "run-1").mkdir(parents=True)
        (folder / "latest-run").symlink_to("run-1")

    fake = types.ModuleType("wandb")
    fake.init = init
    fake.log = fake.finish = lambda *args, **options: None
    monkeypatch.setitem(sys.modules, "wandb", fake)
    monkeypatch.chdir(tmp_path)
    run = launch(prepare(tmp_path / "run", clip("wandb", 2)).path, progress=False)
    assert Run.open(run.path).done is not None and (tmp_path / "wandb" / "latest-run").is_symlink()


def read_events(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}


def test_tensorboard_holds_the_numbers_of_a_run_once_also_after_a_stop(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    run = prepare(tmp_path / "run", clip("tensorboard", 8))
    with monkeypatch.context() as patched:
        after_step = Trainer.after_step

        def fail_at_six(trainer, result):
            after_step(trainer, result)
            if trainer.state.step == 6:
                raise RuntimeError("power cut")

        patched.setattr(Trainer, "after_step", fail_at_six)
        with pytest.raises(RuntimeError, match="power cut"):
            launch(run.path, progress=False)
    assert [step for step, _ in read_events(run.path / "tensorboard")["train/loss"]] == [1, 2, 3, 4, 5, 6]
    launch(run.path, progress=False)  # from the checkpoint of step 4
    events = read_events(run.path / "tensorboard")
    losses = [(each["step"], each["loss"]) for each in run.records() if each["kind"] == "step"]
    assert [step for step, _ in events["train/loss"]] == [step for step, _ in losses] == list(range(1, 9))
    assert [value for _, value in events["train/loss"]] == pytest.approx([value for _, value in losses], rel=1e-6)


def test_a_real_trackio_takes_the_records(tmp_path):
    pytest.importorskip("trackio")
    run = prepare(tmp_path / "run", clip("trackio:mine", 2))
    words = [sys.executable, "-m", "complearn.launch", str(run.path), "--quiet"]  # it reads its folder when imported
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio"), "HF_HUB_OFFLINE": "1"}
    subprocess.run(words, env=env, check=True, timeout=300)
    assert run.done is not None and not [each for each in run.records() if each["kind"] == "warning"]
    with sqlite3.connect(tmp_path / "trackio" / "mine.db") as database:
        lines = database.execute("SELECT step, metrics FROM metrics ORDER BY step").fetchall()
    losses = {each["step"]: each["loss"] for each in run.records() if each["kind"] == "step"}
    assert {step: json.loads(metrics)["train/loss"] for step, metrics in lines} == pytest.approx(losses)
