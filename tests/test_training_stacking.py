"""Several seeds trained as a stack: each run's folder is what the run alone would have written, within rounding."""

import os
import signal
import sys
from types import ModuleType, SimpleNamespace

import pandas as pd
import pytest
import torch
import training_runs
from safetensors.torch import load_file

from complearn.core.runs import Run
from complearn.data.pairs import Batch
from complearn.launch import main
from complearn.training.engine import journal
from complearn.training.engine.checkpoints import load_checkpoint
from complearn.training.engine.loggers import takes_one_run
from complearn.training.engine.processes import Stopped
from complearn.training.engine.stacking import Stack, common_start, stacking_fault
from complearn.training.engine.trainer import Trainer
from complearn.training.methods.scales import SCALES
from complearn.training.objectives.contrastive import Contrastive, Distillation
from complearn.training.objectives.negclip import NegCLIP
from complearn.training.runs import study
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.study import Study
from complearn.training.runs.sweep import command, make_stacks, run_all

SEEDS = (0, 1, 2)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
METHODS = {
    "clip": {"name": "clip", "args": {"steps": 12, "ramp": 2}},
    "codebook_clip": {"name": "codebook_clip", "args": {"steps": 12, "ramp": 2}},
    "il_clip": training_runs.IL,
}


ASKED = {"name": "world_monitor", "args": {"world": {"n_train": 48, "n_test": 16, "size": 16}, "n": 12}}


def prepared(folder, method="il_clip", seeds=SEEDS, **train):
    """A run of each seed, on a world of that seed."""
    model = {name: value for name, value in training_runs.MODEL.items() if name != "codebook" or method != "clip"}
    runs = []
    for seed in seeds:
        config = training_runs.config(METHODS[method], model, seed, **train)
        config["data"] = {"name": "generated", "args": training_runs.DATA["args"] | {"seed": seed}}
        config["evaluate"] = {"world": ASKED} if method == "clip" else {}
        runs.append(prepare(folder / f"{method}-s{seed}", config))
    return runs


def fit(runs):
    """Train runs as a stack, in this process."""
    first, *further = [run.path for run in runs]
    launch(first, progress=False, stacked=further)
    return runs


def assert_near(one, other, rtol=1e-3):
    """Two runs have the same files and the same records; numbers agree within rounding."""
    files = [{str(path.relative_to(run.path)) for path in run.path.rglob("*")} for run in (one, other)]
    assert files[0] - {"log.txt"} == files[1]  # which a study writes for a process, not for a run
    assert one.done["step"] == other.done["step"]
    records = [training_runs.records(run) for run in (one, other)]
    assert [set(record) for record in records[0]] == [set(record) for record in records[1]]
    for mine, theirs in zip(*records, strict=True):
        for name, value in mine.items():
            if isinstance(value, float):
                assert value == pytest.approx(theirs[name], rel=rtol, abs=rtol), (name, mine["step"])
            elif name == "rows":
                scores = [[row.pop("value") for row in record["rows"]] for record in (mine, theirs)]
                assert scores[0] == pytest.approx(scores[1], abs=0.1)  # of twelve questions one may change
                asked = [
                    [tuple(row[key] for key in ("data", "split", "metric", "n")) for row in record["rows"]]
                    for record in (mine, theirs)
                ]
                assert asked[0] == asked[1] and asked[0]
            else:
                assert value == theirs[name], name
    for mine, theirs in zip(one.phases(), other.phases(), strict=True):
        weights = [load_file(path) for path in (mine, theirs)]
        assert weights[0].keys() == weights[1].keys()
        for name, tensor in weights[0].items():
            apart = (tensor.float() - weights[1][name].float()).abs()
            if name.endswith("attention.inner.bias"):  # a bias of all keys changes nothing; its gradient is rounding
                apart.view(3, -1)[1] = 0
            assert apart.max() < rtol * max(1, tensor.float().abs().max()), (mine.name, name, apart.max())
    for mine, theirs in zip(one.checkpoints(), other.checkpoints(), strict=True):
        kept = [load_checkpoint(path) for path in (mine, theirs)]
        assert kept[0][0].keys() == kept[1][0].keys()
        for kind, tensors in kept[0][0].items():
            shapes = [{name: tensor.shape for name, tensor in each.items()} for each in (tensors, kept[1][0][kind])]
            assert shapes[0] == shapes[1]
        assert {**kept[0][1], "extra": 0} == {**kept[1][1], "extra": 0}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Runs of each method, trained one by one."""
    torch.set_num_threads(1)
    trained = {}

    def runs(method, device="cpu"):
        if (method, device) not in trained:
            folder = tmp_path_factory.mktemp("alone")
            trained[method, device] = prepared(folder, method, device=device)
            for run in trained[method, device]:
                launch(run.path, progress=False)
        return trained[method, device]

    return runs


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("method", METHODS)
def test_a_stack_trains_what_each_run_trains_alone(method, device, alone, tmp_path):
    for run, single in zip(fit(prepared(tmp_path, method, device=device)), alone(method, device)):
        assert_near(run, single)


def stop_at(monkeypatch, step):
    """Ask to stop as a step begins, as a signal does."""
    set_rate = Trainer.set_rate

    def asked(trainer, optimizer):
        if trainer.state.step + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
        return set_rate(trainer, optimizer)

    monkeypatch.setattr(Trainer, "set_rate", asked)


@pytest.mark.parametrize("step", (9, 12))  # in a distillation, and at its end
def test_a_stopped_stack_goes_on_as_a_stack_and_one_by_one(step, alone, tmp_path, monkeypatch):
    runs = prepared(tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(patch, step)
        fit(runs)
    assert {max(run.checkpoint_steps()) for run in runs} == {step}
    launch(runs[1].path, progress=False)
    before = (runs[1].path / "metrics.jsonl").read_bytes()
    fit(runs)  # the two others
    assert (runs[1].path / "metrics.jsonl").read_bytes() == before
    for run, single in zip(runs, alone("il_clip")):
        assert_near(run, single)


class Killed(Exception):
    """Out of nowhere."""


def test_a_stack_that_was_killed_between_two_checkpoints_goes_on_from_the_one_that_all_have(
    alone, tmp_path, monkeypatch
):
    runs = prepared(tmp_path)
    checkpoint = Trainer.checkpoint

    def dies(trainer):
        if trainer.run.path.name.endswith("s1") and trainer.state.step == 16:
            raise Killed
        checkpoint(trainer)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Trainer, "checkpoint", dies)
        fit(runs)
    assert [max(run.checkpoint_steps()) for run in runs] == [16, 12, 12] and common_start(runs) == 12
    assert list(make_stacks(runs, 3).values()) == [runs]
    for run, single in zip(fit(runs), alone("il_clip")):
        assert_near(run, single)


def test_runs_of_different_steps_are_stacks_of_their_own(tmp_path, monkeypatch):
    runs = prepared(tmp_path)
    assert common_start(runs) == -1
    with monkeypatch.context() as patch, pytest.raises(Stopped):
        stop_at(patch, 9)
        fit(runs[:2])
    assert common_start(runs) is None and common_start(runs[:2]) == 9
    assert list(make_stacks(runs, 3).values()) == [runs[:2], runs[2:]]
    assert list(make_stacks(runs, 1).values()) == [[run] for run in runs]
    with pytest.raises(ValueError, match="il_clip-s1, il_clip-s2 cannot.*checkpoint of the same.*one by one"):
        fit(runs)


def test_a_run_that_was_found_downloads_nothing_in_a_stack_of_those_prepared_here(tmp_path):
    runs = prepared(tmp_path)
    assert "--online" in command(runs[0], stacked=runs[1:])
    found = Run.open(runs[1].path)
    assert "--online" not in command(runs[0], stacked=[found])
    assert list(make_stacks([runs[0], found, runs[2]], 3).values()) == [[runs[0], runs[2]], [found]]
    with pytest.raises(ValueError, match="stacked is how many runs .* at least 1, not 0"):
        run_all(runs, 12, stacked=0)


LIMIT = 35.0


def test_gradients_are_clipped_seed_by_seed(tmp_path):
    """A limit that some seeds reach and others do not."""
    clipped = prepared(tmp_path / "stack", "clip", clip=LIMIT)
    fit(clipped)
    for run, config in zip(clipped, prepared(tmp_path / "alone", "clip", clip=LIMIT)):
        launch(config.path, progress=False)
        assert_near(run, config)
    steps = [record for run in clipped for record in training_runs.records(run) if record["kind"] == "step"]
    norms = [record["grad_norm"] for record in steps if record["step"] == 1]
    assert min(norms) < LIMIT < max(norms), norms


def with_args(**args):
    return training_runs.IL | {"args": training_runs.IL["args"] | args}


FAULTS = {
    "parts": ({"accumulate": 2}, {}, "accumulate gradients"),
    "half": ({"precision": "bf16"}, {}, 'they train in bf16; say "train": {"precision": "fp32"}'),
    "negatives": (
        {"negatives": "auto"},
        {"method": {"name": "negclip", "args": {"steps": 4}}},
        "loss NegCLIP of phase",
    ),
    "sampled": (
        {},
        {"method": with_args(distillation="sampled")},
        "loss Distillation of phase",
    ),
    "subset": ({}, {"method": with_args(subset=0.5)}, "loss Distillation of phase"),
    "search": ({}, {"model": training_runs.MODEL | {"codebook": {"search": "bf16"}}}, "searches its codes in bf16"),
    "spectral": ({}, {"model": training_runs.MODEL | {"spectral": True}}, "normalised spectrally"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_stacked_says_why_and_what_to_do(name, tmp_path):
    train, changes, reason = FAULTS[name]
    configs = [training_runs.config(seed=seed, **train) | changes for seed in (0, 1)]
    runs = [prepare(tmp_path / f"row-s{config['seed']}", config) for config in configs]
    with pytest.raises(ValueError) as error:
        fit(runs)
    assert "row-s0, row-s1 cannot be trained as a stack" in str(error.value) and reason in str(error.value)
    assert "stacked=1" in str(error.value)
    assert not any(run.checkpoint_steps() for run in runs)


def test_runs_of_two_vocabularies_or_two_losses_are_not_stacked(tmp_path):
    configs = [training_runs.config(seed=seed) for seed in (0, 1, 2)]
    configs[1]["data"] = {"name": "generated", "args": training_runs.DATA["args"] | {"preset": "rich"}}
    configs[2]["method"] = {"name": "il_clip", "args": training_runs.IL["args"] | {"distillation": "cosine"}}
    runs = [prepare(tmp_path / f"row-s{config['seed']}", config) for config in configs]
    trainers = [make_trainer(run, "cpu", progress=False) for run in runs]
    assert "model.language.tower.embed.weight: [17, 16] there, [74, 16] asked for" in stacking_fault(trainers[:2])
    assert "row-s2 differs: config.method.args.distillation" in stacking_fault([trainers[0], trainers[2]])
    assert stacking_fault(trainers[:1]) == ""


def test_the_command_trains_a_stack(alone, tmp_path, capsys):
    runs = prepared(tmp_path, "clip")
    assert main([*(str(run.path) for run in runs), "--quiet", "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert all(f"{run.path}: done, 12 steps" in said for run in runs)
    with pytest.raises(SystemExit):
        main([*(str(run.path) for run in runs), "--processes", "2"])
    assert "leave out --processes" in capsys.readouterr().err
    for run, single in zip(runs, alone("clip")):
        assert_near(run, single)


@pytest.mark.slow
def test_a_sweep_of_stacks(alone, tmp_path):
    """Five runs of two rows, two at most in a stack; one is done before."""
    runs = prepared(tmp_path, "clip") + prepared(tmp_path, "codebook_clip", SEEDS[:2])
    launch(runs[0].path, progress=False)
    ended = []
    run_all(runs, 12, device="cpu", at_once=1, on_end=ended.append, stacked=2)
    assert ended == runs
    for run, single in zip(runs, [*alone("clip"), *alone("codebook_clip")]):
        assert_near(run, single)


def test_a_run_is_charged_its_batches_and_its_share_of_the_steps(tmp_path, monkeypatch):
    """Not the evaluations, checkpoints and batches of the seeds before it: a batch takes a second, a joint step 4."""
    now = [0.0]
    monkeypatch.setattr(journal, "time", SimpleNamespace(perf_counter=lambda: now[0], process_time=lambda: 2 * now[0]))

    def slow_down(owner, name, seconds):
        function = getattr(owner, name)

        def slow(*args, **options):
            now[0] += seconds
            return function(*args, **options)

        monkeypatch.setattr(owner, name, slow)

    slow_down(Batch, "to", 1)
    slow_down(Stack, "step", 4)
    slow_down(Trainer, "evaluate", 100)
    slow_down(Trainer, "checkpoint", 1000)
    for run in fit(prepared(tmp_path, "clip", SEEDS[:2], every=3)):
        last = [record for record in run.records() if record["kind"] == "step"][-1]
        assert (last["samples"], last["wall_seconds"], last["cpu_seconds"]) == (12 * 8, 12 * 3, 12 * 6)


def test_a_tool_that_takes_one_run_at_a_time_is_given_no_stack(tmp_path, monkeypatch):
    """It would write the numbers of all seeds into the record of one."""
    monkeypatch.setitem(sys.modules, "trackio", ModuleType("trackio"))
    runs = prepared(tmp_path, "clip", SEEDS[:2], log_to="trackio:mine")
    with pytest.raises(ValueError, match="trackio:mine takes the records of one run at a time. Train them one by one"):
        fit(runs)
    assert takes_one_run("wandb") and takes_one_run("mlflow:mine")
    assert not takes_one_run("tensorboard") and not takes_one_run(None)


def test_a_study_stacks_the_seeds_of_a_row(tmp_path, monkeypatch):
    told = {}
    monkeypatch.setattr(study, "run_all", lambda runs, steps, **how: told.update(how))
    monkeypatch.setattr(Study, "budgets", pd.DataFrame())
    scale = SCALES["smoke"]
    data = {"name": "generated", "args": training_runs.DATA["args"]}
    few = Study(tmp_path, {"clip": {"method": "clip"}}, [0], data, scale, 4, scale.model(), {"batch_size": 8})
    few.fit("cpu", stacked=3)
    assert told["stacked"] == 3


def test_a_loss_that_changes_another_says_again_that_it_is_stackable():
    class Changed(Contrastive):
        """With whatever it likes."""

    assert Contrastive().stackable and not Changed().stackable and not NegCLIP(8).stackable
    teacher = torch.nn.Linear(2, 2)
    assert Distillation(teacher).stackable and not Distillation(teacher, base=Changed()).stackable
