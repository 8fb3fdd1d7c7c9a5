"""A method from outside complearn: a margin hinge, then a sigmoid loss with a learned bias (SigLIP)."""

import torch
import torch.nn.functional as F
from torch import nn

from complearn.training.engine.phases import Objective, Phase
from complearn.training.methods.registry import method


class Hinge(Objective):
    def compute_losses(self, out, model, batch):
        scores = out.image @ out.text.T
        rivals = scores.masked_fill(torch.eye(len(scores), dtype=torch.bool, device=scores.device), -1.0).amax(1)
        return {"hinge_loss": F.relu(0.2 + rivals - scores.diagonal()).mean()}


class Sigmoid(Objective):
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.tensor(-10.0))  # the objective's own, and trained

    def compute_losses(self, out, model, batch):
        logits = out.scale * out.image @ out.text.T + self.bias
        signs = 2 * torch.eye(len(logits), device=logits.device) - 1
        return {"sigmoid_loss": -F.logsigmoid(signs * logits).sum(1).mean(), "bias": self.bias.detach()}


@method("hinge_siglip", about="a margin hinge, then SigLIP", colour=6)
def hinge_siglip(model, steps, ramp=0):
    first = max(1, steps // 2)
    return [Phase("hinge", first, Hinge(), ramp=ramp), Phase("sigmoid", steps - first, Sigmoid())]
