"""A kind of model from outside complearn: a dual encoder that turns its images' vectors by a learned map."""

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import nn

from complearn.models.agents import build_towers
from complearn.models.dual import Dual, ModelConfig, dual_specs
from complearn.models.kinds import register_model


@dataclass(frozen=True)
class TiltedConfig(ModelConfig):
    kind: ClassVar[str] = "tilted"
    tilt: float = 0.1


class Tilted(Dual):
    def __init__(self, config, vision, text, tokenizer):
        super().__init__(config, vision, text, tokenizer)
        width = config.width or text.pooled_width
        self.map = nn.Parameter(torch.eye(width) + config.tilt)

    def read(self, agent, batch):
        message = super().read(agent, batch)
        if agent is not self.vision:
            return message
        return replace(message, embedding=F.normalize(message.embedding @ self.map, dim=-1))


def build(config, tokenizer=None, seed=0):
    vision, text = build_towers(config.vision, config.text, tokenizer, seed)
    return Tilted(config, vision, text, text.tokenizer)


register_model("tilted", TiltedConfig, build, assemble=Tilted, tower_specs=dual_specs, title="tilted dual encoder")
