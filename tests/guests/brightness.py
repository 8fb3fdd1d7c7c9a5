"""A monitor from outside complearn: how alike a model finds two plain colours."""

import numpy as np
import torch

from complearn.models.scoring import encode_all
from complearn.training.runs.config import EVALUATIONS


@EVALUATIONS.register("brightness")
def likeness_of_black_and_white(model, *, size: int = 16, seed: int | None = None, method: str = "model"):
    pictures = [np.full((size, size, 3), value, np.uint8) for value in (0, 255)]
    images = encode_all(model, images=pictures)
    texts = encode_all(model, texts=["black", "white"])
    with torch.no_grad():
        value = float(model.similarity(images, texts).diff(dim=0).abs().mean())
    return [
        {"method": method, "seed": seed, "data": "brightness", "split": "mean", "metric": "difference", "value": value}
    ]
