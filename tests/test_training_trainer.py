"""The trainer on small models: what moves, what rests, what stops it, what it writes."""

import json
import math
import os
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from complearn.core.config import strict
from complearn.core.runs import Run
from complearn.core.seeds import seed_everything
from complearn.data.loading import Loader
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.dual import build_model
from complearn.training.engine.accumulation import GradCache
from complearn.training.engine.checkpoints import load_checkpoint
from complearn.training.engine.journal import TrainingDiverged, check_loss
from complearn.training.engine.phases import Objective, Phase, TrainSettings, lr_factor, total_loss, unwrap
from complearn.training.engine.processes import Processes, Stopped, start_processes
from complearn.training.engine.trainer import Trainer
from complearn.training.methods.clip import calibrate
from complearn.training.methods.iterated import iterated
from complearn.training.objectives.contrastive import DISTILLATIONS, Contrastive, Distillation
from complearn.training.objectives.losses import heard_shares, token_numbers

TOWER = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
DICE = np.random.default_rng(0)
WORDS = [f"a {c} {s}" for c in ("red", "blue", "green", "grey") for s in ("dot", "box", "bar", "ring")]
PAIRS = [Pair(DICE.integers(0, 255, (16, 16, 3), dtype=np.uint8), text, str(i), str(i)) for i, text in enumerate(WORDS)]
TOKENIZER = WordTokenizer.fit(WORDS)


def model_of(codes=24, seed=0):
    config = {"vision": TOWER | {"size": 16, "patch": 8}, "text": TOWER}
    return build_model(config | ({"codebook": {"codes": codes}} if codes else {}), TOKENIZER, seed)


def trainer_of(path, phases, model=None, seed=0, evaluations=None, actions=(), **settings):
    model = model or model_of(seed=seed)
    if callable(phases):  # a method's phases calibrate at their start
        phases = phases(model)
    else:
        model.calibrate(model.collate(PAIRS[:8]))
    loader = Loader(PAIRS, model.collate, batch_size=8, seed=seed)
    settings = strict(TrainSettings, {"lr": 2e-3, "log_every": 1, "precision": "fp32"} | settings, "train")
    run = Run.create(path, {"seed": seed})
    rest = {"evaluations": evaluations, "actions": actions, "progress": False}
    return Trainer(run, model, phases, loader, settings, seed, start_processes("cpu"), **rest)


def generations(model, **switches):
    lengths = {"warmup": 4, "distil": 3, "interact": 4, "generations": 2, "ramp": 2}
    return iterated(model, **lengths | switches)


def parts_of(path):
    tensors = load_file(path)
    out = {}
    for name, value in tensors.items():
        out.setdefault(name.split(".")[0], {})[name] = value
    return out


def moved(before, after, part):
    a = parts_of(before)[part]
    b = parts_of(after)[part]
    return [name for name in a if not torch.equal(a[name], b[name])]


# ---- who moves in iterated learning


@pytest.mark.parametrize("form", DISTILLATIONS)
def test_the_codebook_rests_in_distil_and_moves_elsewhere(tmp_path, form):
    trainer = trainer_of(tmp_path / "run", lambda m: generations(m, distillation=form))
    trainer.fit()
    files = trainer.run.phases()
    for i, file in enumerate(files[1:], 1):
        changed = moved(files[i - 1], file, "codebook")
        assert changed == ([] if "distil" in file.name else ["codebook.codes"]), file.name
        assert moved(files[i - 1], file, "vision") and moved(files[i - 1], file, "language")


@pytest.mark.parametrize(
    "switches,rests",
    (
        ({"freeze_vision": True}, {"vision", "codebook"}),
        ({"freeze_codebook": False}, set()),
        ({"target": "vision", "freeze_vision": True}, {"language", "codebook"}),
    ),
)
def test_switches_of_distillation(tmp_path, switches, rests):
    trainer = trainer_of(tmp_path / "run", lambda m: generations(m, **switches))
    trainer.fit()
    warmup, distil = trainer.run.phases()[:2]
    assert {part for part in ("vision", "language", "codebook") if not moved(warmup, distil, part)} == rests


@pytest.mark.parametrize("target", ("language", "vision"))
@pytest.mark.parametrize("form", ("kl", "sampled", "sparsemax", "cosine"))
def test_a_new_agent_hears_its_predecessor_on_a_part_alone(form, target):
    model = model_of()
    batch = model.collate(PAIRS[:8])
    model.calibrate(batch)
    agent = getattr(model, target)
    switches = {"form": form, "subset": 0.5, "temperature": 0.1}
    objective = Distillation(agent, **switches)
    objective.set_teacher(agent)
    model.respawn(target, 5)
    numbers = token_numbers(batch.ids, batch.mask) if target == "language" else batch.image_ids
    weights = heard_shares(numbers, 0.5, 1)
    assert 0 < (weights > 0).sum() < 8
    values = torch.stack([objective(model, model.collate([pair]))["distil_loss"] for pair in PAIRS[:8]])
    # alone in a batch a heard pair weighs 1 / 0.5, among eight an eighth of that
    assert objective(model, batch)["distil_loss"].item() == pytest.approx(values.sum().item() / 8, rel=1e-4)
    assert torch.equal(values == 0, weights == 0)
    with pytest.raises(ValueError, match="subset is a share of the captions"):
        Distillation(agent, subset=0.0)


def test_agreement_of_a_lesson_is_of_all_captions_heard_or_not():
    model = model_of()
    batch = model.collate(PAIRS[:8])
    model.calibrate(batch)
    lessons = {subset: Distillation(model.language, "cosine", subset=subset) for subset in (1.0, 0.5)}
    model.respawn("language", 5)
    agreement = {subset: lesson(model, batch)["agreement"].item() for subset, lesson in lessons.items()}
    assert 0 <= agreement[0.5] == agreement[1.0] < 1


@pytest.mark.parametrize("target", ("language", "vision", "alternate"))
def test_who_is_replaced(tmp_path, target):
    replaced = ["language", "vision"] if target == "alternate" else [target] * 2
    trainer = trainer_of(tmp_path / "run", lambda m: generations(m, target=target))
    trainer.fit()
    assert [r["target"] for r in trainer.run.records() if r["kind"] == "spawn"] == replaced


def test_a_spawned_agent_and_its_optimizer_state_are_fresh(tmp_path):
    seen = {}

    class Looks(Trainer):
        def checkpoint(self):
            if self.phase is not None and self.phase.name == "distil-01":
                seen["model"] = {n: p.detach().clone() for n, p in self.model.named_parameters()}
                seen["moments"] = {n for n, p in self.model.named_parameters() if p in self.state.optimizer.state}
            super().checkpoint()

    model = model_of()
    trained = trainer_of(tmp_path / "run", generations, model)
    trained.__class__ = Looks
    trained.fit()
    before = load_file(trained.run.phases()[0])
    ours = {n for n in seen["model"] if n.startswith("language.")}
    # a weight of a fresh agent is drawn again; a fresh gain is 1 and a fresh bias 0, whatever it was
    same = {n for n in ours if torch.equal(seen["model"][n], before[n])}
    fresh = model_of(seed=99).language
    constant = {f"language.{n}" for n, p in fresh.named_parameters() if p.unique().numel() == 1}
    assert not same and all(seen["model"][n].unique().numel() == 1 for n in constant) and constant
    assert not seen["moments"] & ours and {"codebook.codes", "logit_scale"} < seen["moments"]
    assert torch.equal(seen["model"]["codebook.codes"], before["codebook.codes"])
    assert torch.equal(seen["model"]["logit_scale"], before["logit_scale"])
    for name in seen["model"]:
        if name.startswith("vision."):
            assert torch.equal(seen["model"][name], before[name])


def test_generations_differ_and_seeds_repeat(tmp_path):
    seeds = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        trainer = trainer_of(tmp_path / name, generations, seed=seed)
        trainer.fit()
        seeds.append([r["seed"] for r in trainer.run.records() if r["kind"] == "spawn"])
    assert seeds[0] == seeds[1] != seeds[2] and len(set(seeds[0] + seeds[2])) == 4


def test_the_teacher_rests_and_is_the_agent_before_the_spawn(tmp_path):
    teachers = []

    class Looks(Distillation):
        def after_step(self, step):
            teachers.append({n: p.clone() for n, p in self.teacher.state_dict().items()})

    def plan(model):
        phases = generations(model, generations=1)
        phases[1].objective.__class__ = Looks
        return phases

    trainer = trainer_of(tmp_path / "run", plan)
    trainer.fit()
    before = parts_of(trainer.run.phases()[0])["language"]
    assert len(teachers) == 3
    assert all(torch.equal(t[n.removeprefix("language.")], v) for t in teachers for n, v in before.items())
    objective = trainer.phases[1].objective
    assert not objective.teacher.training and not any(p.requires_grad for p in objective.teacher.parameters())
    objective.train()
    assert not objective.teacher.training


def test_without_a_codebook(tmp_path):
    trainer = trainer_of(tmp_path / "run", generations, model_of(codes=0))
    trainer.fit()
    assert trainer.phases[1].objective.form == "cosine"
    assert any("distil_loss" in r for r in trainer.run.records())
    with pytest.raises(ValueError, match="no codebook"):
        generations(model_of(codes=0), distillation="kl")
    with pytest.raises(ValueError, match="'language', 'vision' or 'alternate', not 'both'"):
        generations(model_of(), target="both")


def test_distillation_brings_the_pupil_to_its_teacher(tmp_path):
    agreement = {}
    for weight in (0.0, 1.0):
        switches = {"generations": 1, "distil": 30, "interact": 1, "weight": weight}
        trainer = trainer_of(tmp_path / str(weight), lambda m, s=switches: generations(m, **s))
        objective = trainer.phases[1].objective
        measured = []

        class Looks(Distillation):
            def compute_losses(self, out, model, batch):
                measures = super().compute_losses(out, model, batch)
                measured.append(measures["agreement"].item())  # noqa: B023
                return measures

        objective.__class__ = Looks
        trainer.fit()
        agreement[weight] = np.mean(measured[-5:])
    assert agreement[1.0] > agreement[0.0] + 0.2, agreement


def test_generations_follow_the_runs_cosine_or_each_phase_its_own():
    peaks = {}
    for schedule in ("run", "generation", "phase"):
        phases = generations(model_of(), schedule=schedule, ramp=0)
        peaks[schedule] = [lr_factor(phases, i, 0) for i in range(len(phases))]
    assert peaks["phase"] == [1.0] * 5 and peaks["run"] == sorted(peaks["run"], reverse=True) and peaks["run"][-1] < 0.5
    assert peaks["generation"][0::2] != peaks["generation"][1::2]
    assert [peaks["generation"][i] for i in (0, 1, 3)] == [1.0] * 3
    # an interaction goes on where its distillation stopped
    assert 0 < peaks["generation"][2] == peaks["generation"][4] < 1
    with pytest.raises(ValueError, match="schedule is 'run', 'generation' or 'phase'"):
        generations(model_of(), schedule="never")


# ---- accumulation


@pytest.mark.parametrize("form", DISTILLATIONS)
@pytest.mark.parametrize("parts", (2, 3, 8))
def test_accumulation_gives_the_joint_batchs_gradient(form, parts):
    model = model_of()
    batch = model.collate(PAIRS[:8])
    model.calibrate(batch)
    objective = Distillation(model.language, form)
    objective.calibrate(model, batch)
    model.respawn("language", 5)
    losses = []
    gradients = []
    for n in (1, parts):
        model.zero_grad()
        stand_in = model if n == 1 else GradCache(model, n, lambda part: None)
        loss = total_loss(objective(stand_in, batch))
        loss.backward()
        if n > 1:
            stand_in.backward()
        losses.append(loss.item())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert losses[0] == pytest.approx(losses[1], abs=1e-5) and gradients[0].keys() == gradients[1].keys()
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=2e-5 * max(1.0, gradient.abs().max().item())), name
    assert unwrap(GradCache(model, 2, lambda part: None)) is model


def test_accumulation_of_an_objective_that_asks_the_model_twice():
    model, one, other = model_of(), *(model_of().collate(PAIRS[i : i + 8]) for i in (0, 8))
    model.calibrate(one)
    gradients = []
    for n in (1, 4):
        model.zero_grad()
        stand_in = model if n == 1 else GradCache(model, n, lambda part: None)
        images = stand_in(one).image
        texts = stand_in(other).text
        (images @ texts.T).square().sum().backward()
        if n > 1:
            stand_in.backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert gradients[0].keys() == gradients[1].keys() and any(name.startswith("vision") for name in gradients[0])
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], atol=2e-5 * max(1.0, gradient.abs().max().item())), name


def test_accumulation_repeats_its_dropout():
    class Dropping(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(4, 4)

        def forward(self, batch):
            return {"x": nn.functional.dropout(self.inner(batch.x), 0.5)}

    class Rows:
        def __init__(self, x):
            self.x = x

        def __len__(self):
            return len(self.x)

        def chunk(self, n):
            return [Rows(part) for part in self.x.chunk(n)]

    model = Dropping()
    batch = Rows(torch.randn(6, 4))
    parts = GradCache(model, 2, lambda part: seed_everything(0, "part", part))
    out = parts(batch)["x"]
    out.square().sum().backward()
    parts.backward()
    dropped = out.detach()
    # the gradient of sum x^2 through the same mask: 2 x * mask/keep * input
    mask = (dropped != 0).float() * 2
    expected = (2 * dropped * mask).T @ batch.x
    assert torch.allclose(model.inner.weight.grad, expected, atol=1e-5)


def test_a_run_in_parts_ends_where_the_whole_one_does(tmp_path):
    weights = []
    for parts in (1, 4):
        trainer = trainer_of(tmp_path / str(parts), generations, accumulate=parts)
        trainer.fit()
        weights.append(load_file(trainer.run.phases()[-1]))
    assert all(torch.allclose(weights[0][n], weights[1][n], atol=5e-3) for n in weights[0])


# ---- what stops a run


class Breaks(Contrastive):
    def __init__(self, step, how):
        super().__init__()
        self.at = step
        self.how = how
        self.done = 0

    def compute_losses(self, out, model, batch):
        measures = super().compute_losses(out, model, batch)
        self.done += 1
        if self.done == self.at:
            measures["contrastive_loss"] = self.how(measures["contrastive_loss"], model)
        return measures


@pytest.mark.parametrize(
    "how",
    (
        lambda loss, model: loss * math.nan,
        lambda loss, model: loss * 1e9,
        # finite loss, infinite gradient
        lambda loss, model: loss + (model.logit_scale - model.logit_scale.detach()).sqrt(),
    ),
    ids=("nan", "exploding", "gradient"),
)
def test_a_bad_loss_stops_before_it_moves_a_weight(tmp_path, how):
    trainer = trainer_of(tmp_path / "run", [Phase("contrastive", 12, Breaks(6, how))], checkpoint_every=5)
    with pytest.raises(TrainingDiverged, match="step 6 .*contrastive.*lower learning rate"):
        trainer.fit()
    said = json.loads((trainer.run.path / "failed" / "step-00000006.json").read_text())
    assert len(said["ids"]) == 8 and set(said["ids"]) <= {pair.id for pair in PAIRS} and said["phase"] == "contrastive"
    assert all(torch.isfinite(p).all() for p in trainer.model.parameters()) and trainer.state.step == 5
    saved = load_checkpoint(trainer.run.checkpoints()[-1])[0]["model"]
    assert all(torch.equal(saved[n], p) for n, p in trainer.model.named_parameters())
    assert trainer.run.records()[-1]["step"] == 5 and trainer.run.done is None
    again = trainer_of(tmp_path / "run", [Phase("contrastive", 12, Contrastive())], checkpoint_every=5)
    again.fit()
    assert again.run.done["step"] == 12


@pytest.mark.parametrize("rank", (0, 1))
def test_a_bad_loss_of_several_processes_names_the_ids_of_all(tmp_path, rank):
    class OfTwo(Processes):
        def collect(self, value, work="its part"):
            return [["a", "b"], ["c", "d"]]

    run = Run.create(tmp_path / "run", {"seed": 0})
    batch = model_of().collate(PAIRS[:2])
    values = {"loss": math.nan, "grad_norm": 1.0}
    with pytest.raises(TrainingDiverged, match="step 3"):
        check_loss(run, batch, values, 1e4, {"step": 3, "phase": "a"}, OfTwo(torch.device("cpu"), rank, 2))
    file = run.path / "failed" / "step-00000003.json"
    assert file.exists() == (rank == 0)
    if rank == 0:
        assert json.loads(file.read_text())["ids"] == ["a", "b", "c", "d"]


def test_a_trainer_that_was_stopped_goes_on_to_its_end(tmp_path):
    """The signal of the first `fit` stops no step of the second."""

    def ask(trainer, result):
        if result.step == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    trainer = trainer_of(tmp_path / "run", [Phase("contrastive", 6, Contrastive())], actions=[ask])
    with pytest.raises(Stopped):
        trainer.fit()
    assert trainer.state.step == 3
    trainer.fit()
    assert trainer.run.done["step"] == 6


def test_a_phase_that_trains_nothing_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="phase 'idle' trains nothing"):
        trainer_of(tmp_path / "run", [Phase("idle", 2, Contrastive(), trainable=("*", "-*"))]).fit()


def test_phases_need_distinct_names(tmp_path):
    with pytest.raises(ValueError, match="distinct"):
        trainer_of(tmp_path / "run", [Phase("a", 2, Contrastive()), Phase("a", 2, Contrastive())])


def test_an_unknown_setting_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="no train key 'learning_rate'.*there are lr"):
        trainer_of(tmp_path / "run", generations, learning_rate=1.0)


# ---- what is written and kept


def test_records_and_evaluations(tmp_path):
    calls = []

    def count(model):
        assert not model.training and not torch.is_grad_enabled()
        calls.append(1)
        return [{"metric": "calls", "value": len(calls)}]

    trainer = trainer_of(tmp_path / "run", generations, evaluations={"count": count}, every=4, log_every=3)
    trainer.fit()
    records = trainer.run.records()
    asked = [r["step"] for r in records if r["kind"] == "evaluate"]
    assert asked == [4, 7, 8, 11, 12, 14, 16, 18]
    assert len(calls) == len(asked)  # every fourth, and each phase's end, once
    steps = [r["step"] for r in records if r["kind"] == "step"]
    assert steps == [3, 4, 6, 7, 9, 11, 12, 14, 15, 18]  # every third, and each phase's last
    assert trainer.model.training
    first = next(r for r in records if r["kind"] == "step")
    assert {
        "loss",
        "contrastive_loss",
        "lr",
        "grad_norm",
        "samples_per_second",
        "data_share",
        "log_share",
        "support_text",
    } <= first.keys()
    assert next(r for r in records if r["kind"] == "calibrate")["vision"] > 0


def test_an_evaluation_does_not_change_the_run(tmp_path):
    def draws(model):
        torch.randn(7), np.random.rand(3)
        return []

    losses = []
    for name, evaluate in (("without", None), ("with", {"draws": draws})):
        trainer = trainer_of(tmp_path / name, generations, evaluations=evaluate, every=2)
        trainer.fit()
        losses.append([r["loss"] for r in trainer.run.records() if r["kind"] == "step"])
    assert losses[0] == losses[1]


def test_a_warning_is_said_once_per_phase(tmp_path, capsys):
    class Warns(Contrastive):
        def warning(self, measures, progress):
            return f"thin at {progress}"

    trainer = trainer_of(tmp_path / "run", [Phase("a", 3, Warns()), Phase("b", 3, Warns())])
    trainer.fit()
    assert [r["phase"] for r in trainer.run.records() if r["kind"] == "warning"] == ["a", "b"]


def test_a_collapsed_support_is_announced_early_only():
    assert "1.2 codes" in Contrastive().warning({"support_image": 30.0, "support_text": 1.2}, 0.1)
    assert Contrastive().warning({"support_image": 30.0, "support_text": 1.2}, 0.5) is None
    assert Contrastive().warning({}, 0.1) is None


def test_averages_are_kept_evaluated_and_resumed(tmp_path):
    seen = []

    class Dies(Contrastive):
        def after_step(self, step):
            if step == 9:
                raise InterruptedError

    def plan(objective):
        return lambda model: [Phase("a", 6, objective, on_start=calibrate), *generations(model)[1:]]

    evaluate = {"first": lambda model: seen.append(model.codebook.codes[0, 0].item()) or []}
    whole = trainer_of(tmp_path / "whole", plan(Contrastive()), ema=0.8, evaluations=evaluate)
    whole.fit()
    assert (
        seen[-1]
        == load_file(whole.run.phases()[-1])["codebook.codes"][0, 0].item()
        != whole.model.codebook.codes[0, 0].item()
    )
    parts = trainer_of(tmp_path / "parts", plan(Contrastive()), ema=0.8, checkpoint_every=4)
    parts.phases[1].objective.after_step = Dies().after_step
    with pytest.raises(InterruptedError):
        parts.fit()
    again = trainer_of(tmp_path / "parts", plan(Contrastive()), ema=0.8, checkpoint_every=4)
    again.fit()
    for mine, theirs in zip(again.run.phases(), whole.run.phases(), strict=True):
        a = load_file(mine)
        b = load_file(theirs)
        assert all(torch.equal(a[n], b[n]) for n in a)


def test_the_average_of_a_spawned_agent_begins_anew(tmp_path):
    def plan(model):
        return generations(model, generations=1, distil=1, interact=1)

    trainer = trainer_of(tmp_path / "run", plan, ema=0.999, checkpoint_every=0, keep=9)
    trainer.fit()
    tensors = load_checkpoint(trainer.run.path / "checkpoints" / "step-00000004")[0]  # right after the spawn
    name = "language.tower.embed.weight"
    assert torch.equal(tensors["averages"][name], tensors["model"][name])
    assert not torch.equal(tensors["averages"]["codebook.codes"], tensors["model"]["codebook.codes"])


# ---- phases with optimizers, loaders and memories of their own


def test_optimizers_of_phases(tmp_path):
    def begun(state):
        return begun.__dict__.setdefault("moments", []).append(len(state.optimizer.state))

    phases = [
        Phase("a", 3, Contrastive(), on_start=begun),
        Phase("b", 3, Contrastive(), on_start=begun),
        Phase("c", 3, Contrastive(), on_start=begun, optim={"lr": 1e-2, "weight_decay": 0.0}, schedule="phase"),
        Phase("d", 3, Contrastive(), on_start=begun),
    ]
    trainer = trainer_of(tmp_path / "run", phases)
    trainer.fit()
    first, second, third, fourth = begun.moments
    assert first == third == 0 and second == fourth > 0  # a stated optimizer is fresh, an unstated one goes on
    rates = {r["phase"]: r["lr"] for r in reversed(trainer.run.records()) if r["kind"] == "step"}
    assert rates["a"] == pytest.approx(2e-3) and rates["c"] == pytest.approx(1e-2) and rates["d"] < 1e-2
    assert [g["weight_decay"] for g in trainer.state.optimizer.param_groups] == [0.0, 0.0]


def test_a_loader_made_at_a_phases_start(tmp_path):
    model = model_of()

    def make(state):
        return Loader([PAIRS[i] for i in state.extra["chosen"]], model.collate, 4, seed=0)

    class Sees(Contrastive):
        keys: set = set()

        def compute_losses(self, out, model, batch):
            self.keys.update(batch.keys)
            return super().compute_losses(out, model, batch)

    def choose(state):
        return state.extra.update(chosen=[0, 3, 5, 9], pool=torch.arange(3))

    phases = [Phase("a", 2, Contrastive(), on_end=choose), Phase("b", 5, Sees(), loader=make)]
    trainer = trainer_of(tmp_path / "run", phases, model)
    trainer.fit()
    assert Sees.keys == {"0", "3", "5", "9"}
    tensors, plain = load_checkpoint(trainer.run.checkpoints()[-1])
    assert plain["extra"]["chosen"] == [0, 3, 5, 9] and tensors["extra"]["pool"].tolist() == [0, 1, 2]


def dies_at(step):
    def after_step(done):
        if done == step:
            raise InterruptedError

    return after_step


def test_a_batch_that_is_smaller_is_charged_its_pairs(tmp_path):
    class Uneven:
        batch_size = 8
        batches_per_epoch = 2

        def indices(self, epoch, position):
            return np.arange(3 if position else 8)

    model = model_of()
    loader = Loader(PAIRS, model.collate, 8, seed=0, sampler=Uneven())
    trainer = trainer_of(tmp_path / "run", [Phase("a", 5, Contrastive(), loader=loader)], model)
    trainer.fit()
    assert [r["samples"] for r in trainer.run.records() if r["kind"] == "step"] == [8, 11, 19, 22, 30]


@pytest.mark.filterwarnings("ignore:pair")
def test_truncated_captions_are_counted_over_a_stop_and_in_a_loader_of_a_phase(tmp_path):
    """Every caption is longer than the context, and every batch has eight."""

    def trainer():
        config = {"vision": TOWER | {"size": 16, "patch": 8}, "text": TOWER}
        model = build_model(config, WordTokenizer.fit(WORDS, context=4), 0)

        def make(state):
            return state.loader.with_steps()

        phases = [Phase("a", 3, Contrastive()), Phase("b", 4, Contrastive(), loader=make)]
        return trainer_of(tmp_path / "run", lambda model: phases, model, checkpoint_every=1)

    for step in (2, 5):
        stopped = trainer()
        stopped.phases[0].objective.after_step = stopped.phases[1].objective.after_step = dies_at(step)
        with pytest.raises(InterruptedError):
            stopped.fit()
    trainer().fit()
    ends = [r for r in Run.open(tmp_path / "run").records() if r.get("event") == "end"]
    assert [r["truncated_captions"] for r in ends] == [3 * 8, 7 * 8]


def test_an_objectives_memory_is_saved(tmp_path):
    class Remembers(Contrastive):
        def __init__(self):
            super().__init__()
            self.register_buffer("seen", torch.zeros(()))

        def after_step(self, step):
            self.seen += step

    def phases():
        return (lambda o: [Phase("a", 3, o), Phase("b", 2, Contrastive()), Phase("c", 3, o)])(Remembers())

    trainer = trainer_of(tmp_path / "run", phases())
    trainer.fit()
    again = trainer_of(tmp_path / "run", phases())
    again.fit()  # at its end: nothing to do but to load
    assert again.phases[0].objective.seen.item() == 1 + 2 + 3 + 6 + 7 + 8


def test_a_frozen_part_keeps_its_batch_norm():
    model = nn.ModuleDict({"vision": nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "language": nn.BatchNorm1d(2)})
    from complearn.training.engine.phases import set_trainable

    set_trainable(model, ["language.*"])
    model["vision"](torch.randn(8, 2)), model["language"](torch.randn(8, 2))
    assert model["vision"][1].num_batches_tracked == 0 and model["language"].num_batches_tracked == 1


def test_bf16_on_the_cpu_trains(tmp_path):
    trainer = trainer_of(tmp_path / "run", generations, precision="bf16", accumulate=2)
    before = {name: parameter.detach().clone() for name, parameter in trainer.model.named_parameters()}
    trainer.fit()
    losses = [r["loss"] for r in trainer.run.records() if r["kind"] == "step"]
    assert len(losses) == trainer.run.done["step"] and all(math.isfinite(loss) for loss in losses)
    assert all(p.dtype == torch.float32 for p in trainer.model.parameters())
    still = [name for name, parameter in trainer.model.named_parameters() if torch.equal(parameter, before[name])]
    assert not still, "every weight has moved"


def test_an_objective_without_a_loss_is_an_error(tmp_path):
    class Empty(Objective):
        def compute_losses(self, out, model, batch):
            return {"accuracy": out.scale}

    with pytest.raises(ValueError, match="ends in _loss"):
        trainer_of(tmp_path / "run", [Phase("a", 1, Empty())]).fit()
