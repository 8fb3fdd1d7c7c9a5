"""MATCH, MVSA and ORDER against loops, what counts as a negative, and runs of the three methods."""

import math
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from complearn.core.runs import Run
from complearn.data.pairs import Batch
from complearn.data.readers.registry import read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.tasks.retrieval import evaluate_retrieval
from complearn.models.composer.concepts import PARENT, PRIMITIVE, TEXT, Concepts, present
from complearn.models.composer.recursion import heights
from complearn.models.registry import build
from complearn.training.engine.accumulation import GradCache
from complearn.training.methods.composer import composer
from complearn.training.objectives.alignment import Alignment, match_loss, negative_concepts, sample_negatives
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

LITTLE = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
TOWERS = {"vision": LITTLE | {"size": 16, "patch": 8}, "text": LITTLE}
KINDS = {"composer": {"layers": 3}, "vse": {}, "two_stream": {"image_layers": 1, "layers": 1}}
# sentences of nested concepts: (parent, primitive, number of its words)
CAPTIONS = [
    [(-1, 0, 100), (0, 0, 7), (1, 1, 1), (0, 1, 2)],
    [(-1, 0, 101), (0, 1, 1)],
    [(-1, 0, 102), (0, 0, 8), (1, 1, 3), (0, 0, 7), (3, 1, 1)],
    [(-1, 0, 103)],
    [(-1, 1, 2)],
]


def batch_of(image_ids=(0, 1, 2, 3, 4), captions=CAPTIONS):
    longest = max(map(len, captions))
    rows = [
        [[1, 5, parent, 0, primitive, text] for parent, primitive, text in lines] + [[-1] * 6] * (longest - len(lines))
        for lines in captions
    ]
    ids = torch.tensor([[line[0][2], 0, 0, 0, 0] for line in captions])
    keys = tuple(map(str, range(len(captions))))
    batch = Batch(None, ids, torch.ones_like(ids).bool(), torch.tensor(image_ids), keys)
    return batch.with_parts(Concepts(torch.tensor(rows)))


class Table(nn.Module):
    "A model that looks scores up: by image, caption and concept."

    def __init__(self, size, concepts, seed=0):
        super().__init__()
        draw = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(size, size, concepts, generator=draw))
        self.vectors = torch.randn(size, 3, generator=draw)

    def forward(self, batch, pairs, phrases):
        self.pairs = pairs(self.vectors)
        scores = self.table[self.pairs[:, 0], self.pairs[:, 1], : batch[Concepts].table.shape[1] if phrases else 1]
        return type("", (), {"scores": scores, "pairs": self.pairs})


def by_loops(model, batch, form="hinge", alpha=0.8, beta=0.2, primitives=True, mean=False):
    """The three losses as the paper writes them, one concept after the other; or means over a caption's terms."""
    size = len(batch)
    table = model.table.tolist()
    pairs = model.pairs.view(4, size, 2).tolist()
    concepts = batch[Concepts].table.tolist()
    levels = heights(batch[Concepts].table).tolist()
    real = present(batch[Concepts].table).sum(1).tolist()
    match = mvsa = order = 0.0
    for i in range(size):
        rivals = [
            j
            for j in range(size)
            if batch.image_ids[j] != batch.image_ids[i] and concepts[j][0][TEXT] != concepts[i][0][TEXT]
        ]
        other_image = pairs[1][i][0]
        other_caption = pairs[2][i][1]
        hard = pairs[3][i][0]
        assert not rivals or (
            other_image in rivals
            and other_caption in rivals
            and (len(rivals) == 1 or hard in set(rivals) - {other_image})
        )
        negatives = [(other_image, i), (i, other_caption)] + [(hard, i)] * (len(rivals) > 1) if rivals else []
        match += math.log(1 + sum(math.exp(table[j][k][0] - table[i][i][0]) for j, k in negatives))
        own_mvsa, own_order = [], []
        texts = [{line[TEXT] for line in concepts[k][: real[k]]} for k in range(size)]
        for c in range(real[i]):
            score = table[i][i][c]
            terms = []
            if rivals and (primitives or not concepts[i][c][PRIMITIVE]):
                usable = [n for n in range(real[other_caption]) if concepts[other_caption][n][TEXT] not in texts[i]]
                width = batch[Concepts].table.shape[1]
                if usable:
                    near = min(usable, key=lambda n: (abs(levels[other_caption][n] - levels[i][c]), (n - c) % width))
                    terms.append(table[i][other_caption][near])
                if concepts[i][c][TEXT] not in texts[other_image]:
                    terms.append(table[other_image][i][c])
            if terms and form == "hinge":
                own_mvsa.append(sum(max(0.0, alpha - score + term) for term in terms))
            elif terms:
                own_mvsa.append(math.log(1 + sum(math.exp(term - score) for term in terms)))
            if concepts[i][c][PARENT] >= 0:
                own_order.append(max(0.0, beta - table[i][i][concepts[i][c][PARENT]] + score))
        mvsa += sum(own_mvsa) / (max(1, len(own_mvsa)) if mean else 1)
        order += sum(own_order) / (max(1, len(own_order)) if mean else 1)
    return {"match_loss": match / size, "mvsa_loss": mvsa / size, "order_loss": order / size}


@pytest.mark.parametrize("form", ["hinge", "nll"])
@pytest.mark.parametrize("image_ids", [(0, 1, 2, 3, 4), (0, 0, 2, 2, 4), (7, 7, 7, 7, 1), (7, 7, 7, 7, 7)])
@pytest.mark.parametrize("primitives", [True, False])
@pytest.mark.parametrize("mean", [True, False])
def test_the_losses_equal_loops(form, image_ids, primitives, mean):
    batch = batch_of(image_ids)
    model = Table(5, 5)
    values = Alignment(form, primitives=primitives, mean=mean)(model, batch)
    assert all(math.isfinite(value.item()) for value in values.values())
    for name, value in by_loops(model, batch, form, primitives=primitives, mean=mean).items():
        assert values[name].item() == pytest.approx(value, abs=1e-5), name
    sum(value for name, value in values.items() if name.endswith("_loss")).backward()
    assert torch.isfinite(model.table.grad).all()


def test_equal_captions_are_no_negatives_of_each_other():
    captions = [CAPTIONS[0], CAPTIONS[0], CAPTIONS[2]]
    model = Table(3, 5)
    values = Alignment()(model, batch_of((0, 1, 2), captions))
    pairs = model.pairs.view(4, 3, 2)
    assert pairs[1, :2, 0].tolist() == [2, 2] and pairs[2, :2, 1].tolist() == [2, 2] and values["lonely"] == 0


def test_a_pair_without_negatives_is_counted_and_costs_nothing():
    values = Alignment(order_weight=0)(Table(5, 5), batch_of((3,) * 5))
    assert values["lonely"] == 1
    assert values["match_loss"] == 0
    assert values["mvsa_loss"] == 0
    assert "order_loss" not in values


def test_the_hard_image_is_the_most_similar_of_those_left():
    vectors = torch.tensor([[1.0, 0], [0.9, 0.1], [0.0, 1], [0.8, 0.2]])
    pairs, counts = sample_negatives(vectors, torch.eye(4).bool())
    assert pairs[3, :, 0].tolist() == [3, 0, 1, 1] and counts.all()


def test_the_hard_image_is_found_exactly_under_autocast():
    close = torch.tensor([1.0, 0.9981, 0.9985, 0.9981])  # of which bf16 makes 1 four times
    vectors = torch.stack([close, (1 - close**2).sqrt()], 1)
    with torch.autocast("cpu", torch.bfloat16):
        pairs, _ = sample_negatives(vectors[[0, 3, 1, 2]], torch.eye(4).bool())
    assert pairs[3, 0, 0] == 3


def test_the_negative_concept_has_the_nearest_height_and_other_words():
    concepts = batch_of()[Concepts].table
    number, mask = negative_concepts(concepts[[0]], concepts[[2]])
    assert number[0, :4].tolist() == [0, 1, 2, 2] and mask[0].tolist() == [True] * 4 + [False]
    number, mask = negative_concepts(concepts[[1]], concepts[[1]])
    assert not mask.any()


def test_weights_and_switches():
    batch = batch_of()
    whole = Alignment()(Table(5, 5), batch)
    half = Alignment(mvsa_weight=0.5, order_weight=2)(Table(5, 5), batch)
    assert half["mvsa_loss"].item() == pytest.approx(whole["mvsa_loss"].item() / 2)
    assert half["order_loss"].item() == pytest.approx(2 * whole["order_loss"].item())
    alone = Alignment("off", order_weight=0)(Table(5, 5), batch)
    assert [name for name in alone if name.endswith("_loss")] == ["match_loss"]
    assert alone["match_loss"] == whole["match_loss"]
    assert Alignment(alpha=0, beta=0)(Table(5, 5), batch)["mvsa_loss"] < whole["mvsa_loss"]
    with pytest.raises(ValueError, match="not negative; got -1"):
        Alignment(alpha=-1)
    with pytest.raises(ValueError, match="form of MVSA.*'max'"):
        Alignment("max")


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_match_has_a_third_of_the_first_gradient_and_in_the_paper_a_twentieth(seed):
    pairs = read("generated", n_train=200, n_test=4, seed=seed)
    tower = {"tower": "tiny", "width": 64, "depth": 2, "heads": 4}
    config = {"kind": "composer", "vision": tower | {"size": 32, "patch": 4}, "text": tower, "layers": 3}
    shares = {}
    for kind in ("even", "paper"):
        model = build(config | {"reach": kind}, WordTokenizer.fit([pair.caption for pair in pairs]), seed)
        (phase,) = composer(model, 5, balance=kind)
        losses = phase.objective(model, model.collate([pairs[k] for k in range(64)]))
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        norms = {}
        for name in ("match_loss", "mvsa_loss", "order_loss"):
            parts = torch.autograd.grad(losses[name], weights, retain_graph=True, allow_unused=True)
            norms[name] = float(sum(part.square().sum() for part in parts if part is not None).sqrt())
        shares[kind] = norms["match_loss"] / sum(norms.values())
    assert shares["even"] > 1 / 3 and shares["paper"] < 1 / 20


def test_match_leaves_out_what_does_not_count():
    scores = torch.tensor([[1.0], [50.0], [0.0], [0.0]])
    counts = torch.tensor([[True], [False], [True], [True]])
    assert float(match_loss(scores, counts)) == pytest.approx(math.log(1 + 2 * math.exp(-1)))


def test_what_the_objective_cannot_take_is_refused():
    with pytest.raises(ValueError, match="set accumulate to 1"):
        Alignment()(GradCache(Table(5, 5), 2, int), batch_of())
    batch = replace(batch_of(), parts={})
    with pytest.raises(ValueError, match="no Concepts .*of the models composer, vse and two_stream"):
        Alignment()(Table(5, 5), batch)
    with pytest.raises(ValueError, match='"kind": "composer"'):
        composer(nn.Linear(1, 1), 5)


class Scored(nn.Module):
    concept_scores = None


def test_the_papers_schedule_falls_in_steps():
    phases = composer(Scored(), 40, lr=4e-5, schedule="steps")
    assert [(phase.steps, phase.schedule, phase.ramp) for phase in phases] == [
        (20, "constant", 4),
        (10, "constant", 0),
        (10, "constant", 0),
    ]
    assert [phase.optim["lr"] for phase in phases] == pytest.approx([4e-5, 4e-6, 4e-7])
    with pytest.raises(ValueError, match="needs lr and at least 4 steps; got lr None and 40"):
        composer(Scored(), 40, schedule="steps")


# --- runs


def config(kind="composer", steps=4, **args):
    data = {"name": "generated", "args": {"n_train": 48, "size": 16}}
    train = {"batch_size": 8, "lr": 2e-3, "log_every": 1, "checkpoint_every": 2, "precision": "fp32", "device": "cpu"}
    return {
        "method": {"name": kind, "args": {"steps": steps} | args},
        "model": {"kind": kind} | TOWERS | KINDS[kind],
        "data": data,
        "train": train,
    }


@pytest.mark.parametrize(
    "kind", ["composer", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("vse", "two_stream"))]
)
def test_a_run_trains_and_its_model_is_judged(kind, tmp_path):
    run = launch(prepare(tmp_path / "run", config(kind)).path, progress=False)
    steps = [record for record in run.records() if record["kind"] == "step"]
    assert len(steps) == 4 and all(math.isfinite(record["loss"]) and record["lonely"] == 0 for record in steps)
    assert {"match_loss", "mvsa_loss", "order_loss"} <= steps[0].keys()
    snapshot = Snapshot(run)
    frame = evaluate_retrieval(snapshot.model(), [snapshot.pairs()[k] for k in range(6)])
    assert len(frame) >= 8 and not [record for record in run.records() if record["kind"] == "warning"]


@pytest.mark.slow
def test_stopped_and_resumed_it_comes_to_the_same(tmp_path, monkeypatch):
    from complearn.training.engine import trainer

    whole, other = (prepare(tmp_path / name, config(schedule="steps", lr=1e-3)) for name in ("whole", "other"))
    launch(whole.path, progress=False)
    with monkeypatch.context() as patch:
        after = trainer.Trainer.after_step

        def stop(self, result):
            after(self, result)
            if self.state.step == 2:
                raise KeyboardInterrupt

        patch.setattr(trainer.Trainer, "after_step", stop)
        with pytest.raises(KeyboardInterrupt):
            launch(other.path, progress=False)
    launch(other.path, progress=False)
    first, second = (load_file(Run.open(run.path).phases()[-1]) for run in (whole, other))
    assert all(torch.equal(first[name], second[name]) for name in first)
