"""Objectives with parameters of their own, and a small trainer for them, importable by child processes."""

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from complearn.core.runs import Run
from complearn.data.loading import Loader
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.dual import build_model
from complearn.training.engine.phases import Objective, Phase, TrainSettings
from complearn.training.engine.processes import start_processes
from complearn.training.engine.trainer import Trainer
from complearn.training.objectives.contrastive import Contrastive
from complearn.training.objectives.losses import gather, joint_pairs

TOWER = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
GENERATOR = np.random.default_rng(0)
CAPTIONS = [f"a {c} {s}" for c in ("red", "blue", "green", "grey") for s in ("dot", "box", "bar", "ring")]
PAIRS = [
    Pair(GENERATOR.integers(0, 255, (16, 16, 3), dtype=np.uint8), text, str(i), str(i))
    for i, text in enumerate(CAPTIONS)
]


class Sigmoid(Objective):
    """The pairwise sigmoid loss with a learned bias (Zhai et al. 2023), on the joint batch."""

    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(-10.0))

    def compute_losses(self, out, model, batch):
        rows = joint_pairs(batch).rows
        logits = 10.0 * out.image.float() @ gather(out.text.float()).T + self.bias
        return {"sigmoid_loss": F.binary_cross_entropy_with_logits(logits, F.one_hot(rows, logits.shape[1]).float())}


class Probe(Objective):
    """A linear head that tells captions apart by the images' vectors."""

    def __init__(self, classes=16):
        super().__init__()
        self.head = nn.Linear(16, classes)

    def compute_losses(self, out, model, batch):
        targets = torch.tensor([int(key) for key in batch.keys], device=out.image.device)
        return {"probe_loss": F.cross_entropy(self.head(out.image.float()), targets)}


def sigmoid_phases():
    objective = Sigmoid()  # the loss has a scale of its own
    trainable = ("*", "-logit_scale")
    return [
        Phase("first", 4, objective, trainable),
        Phase("rest", 3, Contrastive()),
        Phase("again", 4, objective, trainable),
    ]


def trainer_of(path, phases, processes=None, actions=(), **settings):
    model = build_model({"vision": TOWER | {"size": 16, "patch": 8}, "text": TOWER}, WordTokenizer.fit(CAPTIONS), 0)
    processes = processes or start_processes("cpu")
    loader = Loader(PAIRS, model.collate, batch_size=8, seed=0, rank=processes.rank, world=processes.world)
    settings = TrainSettings(**{"lr": 2e-3, "log_every": 1, "precision": "fp32"} | settings)
    return Trainer(
        Run.create(path, {"seed": 0}), model, phases, loader, settings, 0, processes, actions=actions, progress=False
    )
