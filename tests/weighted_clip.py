"A method in a file of its own whose batches have a part of its own: longer captions count for more."

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from complearn.data.pairs import Part
from complearn.training.engine.phases import Phase
from complearn.training.methods.registry import method
from complearn.training.objectives.contrastive import Contrastive


@dataclass(frozen=True)
class Weights(Part):
    "How much each pair counts."

    made_by: ClassVar[str] = "weigh"

    values: Float[Tensor, "batch"]


def weigh(pairs, draws):
    "The collate step: one word counts one."
    return Weights(torch.tensor([float(len(pair.caption.split())) for pair in pairs]))


class Weighted(Contrastive):
    "CLIP's loss, times the batch's mean weight."

    def compute_losses(self, out, model, batch):
        measures = super().compute_losses(out, model, batch)
        weight = batch[Weights].values.mean()
        return measures | {"contrastive_loss": weight * measures["contrastive_loss"], "weight": weight}


@method("weighted_clip")
def weighted_clip(model, steps: int, ramp: int = 0):
    "CLIP with weighted pairs."
    return [Phase("train", steps, Weighted(), loader=lambda state: state.loader.with_steps(weigh), ramp=ramp)]
