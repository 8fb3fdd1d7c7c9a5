"""A method from outside complearn: CLIP's, with a learned bias, whose process is killed once at a step."""

import os
import signal
import sys
from pathlib import Path

import torch
from torch import nn

from complearn.training.engine.phases import Phase
from complearn.training.methods.registry import method
from complearn.training.objectives.contrastive import Contrastive


class Stumbling(Contrastive):
    def __init__(self, at):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(0.5))  # the objective's own, and trained
        self.at = at

    def forward(self, model, batch):
        losses = super().forward(model, batch)
        return losses | {"bias_loss": self.bias**2, "bias": self.bias.detach()}

    def after_step(self, step):
        mark = Path(sys.argv[1]) / "killed"  # the run's folder, as `python -m complearn.launch` is given it
        if step >= self.at and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@method("stumbling", colour=6)
def stumbling(model, steps, ramp=0, at: int = 6):
    return [Phase("train", steps, Stumbling(at), ramp=ramp)]
