"""Objectives that own parameters: trained where they are used, saved, resumed, shared, frozen; and actions hooked into
the loop."""

import pytest
import torch
from safetensors.torch import load_file
from training_objectives import Probe, Sigmoid, sigmoid_phases, trainer_of

from complearn.training.engine.checkpoints import load_checkpoint
from complearn.training.engine.phases import Phase
from complearn.training.engine.trainer import Every
from complearn.training.objectives.contrastive import Contrastive, Distillation

TIMES = {"samples_per_second", "data_share", "log_share", "wall_seconds", "cpu_seconds"}


def records(run):
    return [{key: value for key, value in record.items() if key not in TIMES} for record in run.records()]


def log_bias(trainer, result):
    trainer.journal.log({"kind": "bias", "value": trainer.objectives[0].bias.item()})


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    trainer = trainer_of(tmp_path_factory.mktemp("whole") / "run", sigmoid_phases(), actions=[Every(1, log_bias)])
    trainer.fit()
    return trainer


def test_a_learned_bias_moves_where_its_objective_is_used_and_rests_elsewhere(whole):
    bias = [record["value"] for record in whole.run.records() if record["kind"] == "bias"]
    assert len(bias) == 11 and -10 < bias[0] < bias[1] < bias[2] < bias[3]
    assert bias[3] == bias[4] == bias[5] == bias[6] < bias[7] < bias[10]


def test_a_killed_run_goes_on_with_its_bias(whole, tmp_path):
    class Killed(Exception):
        pass

    def kill(trainer, result):
        if result.step == 6:
            raise Killed

    actions = [Every(1, log_bias)]
    with pytest.raises(Killed):
        trainer_of(tmp_path / "run", sigmoid_phases(), actions=[*actions, kill], checkpoint_every=2).fit()
    tensors = load_checkpoint(tmp_path / "run" / "checkpoints" / "step-00000004")[0]
    assert tensors["objectives"]["0.bias"] > -10 and "objectives.0.bias|exp_avg" in tensors["optimizer"]
    again = trainer_of(tmp_path / "run", sigmoid_phases(), actions=actions, checkpoint_every=2)
    again.fit()
    assert records(again.run) == records(whole.run) and torch.equal(again.objectives[0].bias, whole.objectives[0].bias)
    for file, other in zip(again.run.phases(), whole.run.phases(), strict=True):
        weights = load_file(file)
        expected = load_file(other)
        assert all(torch.equal(weights[name], expected[name]) for name in expected)


def test_a_run_whose_objective_owns_nothing_saves_and_compares_nothing_of_it(tmp_path):
    trainer = trainer_of(tmp_path / "run", [Phase("a", 2, Contrastive())])
    trainer.fit()
    assert trainer.objective_parameters == {} and "objectives" not in trainer.checkpointer.identity
    assert [p.shape for group in trainer.state.optimizer.param_groups for p in group["params"]] == [
        p.shape for two in (True, False) for p in trainer.model.parameters() if (p.ndim >= 2) == two
    ]


def test_an_objective_inside_another_is_trained_once_and_a_teacher_never(tmp_path):
    base = Sigmoid()
    agent = trainer_of(tmp_path / "agent", [Phase("a", 3, base)]).model.language
    distillation = Distillation(agent, "cosine", base=base)
    trainer = trainer_of(tmp_path / "run", [Phase("a", 3, base), Phase("b", 3, distillation)])
    teacher = [p.clone() for p in distillation.teacher.parameters()]
    assert list(trainer.objective_parameters) == ["objectives.0.bias"]
    trainer.fit()
    assert all(torch.equal(a, b) for a, b in zip(teacher, distillation.teacher.parameters(), strict=True))
    assert trainer.state.optimizer.state[base.bias]["step"] == 6


def test_parts_of_a_batch_train_the_bias_as_the_whole_does(whole, tmp_path):
    parts = trainer_of(tmp_path / "run", sigmoid_phases(), accumulate=4)
    parts.fit()
    assert parts.objectives[0].bias.item() == pytest.approx(whole.objectives[0].bias.item(), abs=1e-5)


def test_a_probe_learns_on_a_model_that_rests(tmp_path):
    trainer = trainer_of(tmp_path / "run", [Phase("probe", 12, Probe(), trainable=("*", "-*"))])
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.fit()
    losses = [record["loss"] for record in trainer.run.records() if record["kind"] == "step"]
    assert losses[-1] < losses[0]
    assert all(torch.equal(value, before[name]) for name, value in trainer.model.state_dict().items())


def test_a_checkpoint_of_an_objective_of_another_shape_is_refused(tmp_path):
    trainer_of(tmp_path / "run", [Phase("probe", 2, Probe())]).fit()
    with pytest.raises(ValueError, match=r"objectives.0.head.weight: \[16, 16\] there, \[20, 16\]"):
        trainer_of(tmp_path / "run", [Phase("probe", 2, Probe(20))]).fit()


def test_a_fresh_optimizer_of_a_phase_covers_objectives(tmp_path):
    objective = Sigmoid()
    phases = [Phase("a", 2, objective), Phase("b", 3, objective, optim={"lr": 1e-2}, schedule="phase")]
    trainer = trainer_of(tmp_path / "run", phases)
    trainer.fit()
    assert trainer.state.optimizer.state[objective.bias]["step"] == 3


# ---- actions


def test_an_action_is_called_when_it_is_due_and_its_state_is_in_the_checkpoint(tmp_path):
    def remember(trainer, result):
        trainer.state.extra["seen"] = [*trainer.state.extra.get("seen", []), result.step]

    trainer = trainer_of(tmp_path / "run", sigmoid_phases(), actions=[Every(3, remember)], checkpoint_every=3, keep=99)
    trainer.fit()
    assert trainer.state.extra["seen"] == [3, 6, 9]
    saved = {path.name: load_checkpoint(path)[1]["extra"].get("seen") for path in trainer.run.checkpoints()}
    assert saved["step-00000006"] == [3, 6] and saved["step-00000009"] == [3, 6, 9] and saved["step-00000000"] is None


@pytest.mark.parametrize(
    "steps,phase_end,expected",
    ((4, None, [4, 8]), (4, True, [4, 7, 8, 11]), (4, False, [8]), (0, True, [4, 7, 11]), (0, None, [])),
)
def test_every_so_many_steps_and_at_a_phases_end(tmp_path, steps, phase_end, expected):
    called = []
    action = Every(steps, lambda trainer, result: called.append(result.step), phase_end)
    trainer_of(tmp_path / "run", sigmoid_phases(), actions=[action]).fit()
    assert called == expected
