"""A kind of model from outside complearn: a dual encoder that turns its images' vectors by a learned map."""

from dataclasses import dataclass
from typing import ClassVar

import torch
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

    def encode_images(self, batch):
        return super().encode_images(batch) @ self.map


def build(config, tokenizer=None, seed=0):
    vision, text = build_towers(config.vision, config.text, tokenizer, seed)
    return Tilted(config, vision, text, text.tokenizer)


register_model("tilted", TiltedConfig, build, assemble=Tilted, tower_specs=dual_specs, title="tilted dual encoder")
