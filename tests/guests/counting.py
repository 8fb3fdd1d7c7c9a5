"""A task from outside complearn: whether a model's score of a pair is finite."""

import math

from complearn.evaluation.tasks.base import TASKS, Score, Task
from complearn.models.scoring import encode_all


@TASKS.register("counting")
class Counting(Task):
    def __init__(self, pairs, split: str = "all"):
        self.pairs = list(pairs)
        self.split = split

    def items(self):
        return self.pairs

    def run(self, scorer, batch_size=256, device=None):
        images = encode_all(scorer, images=[pair.image for pair in self.pairs], device=device)
        texts = encode_all(scorer, texts=[pair.caption for pair in self.pairs], device=device)
        scores = scorer.similarity(images, texts).diagonal().tolist()
        return [Score(self.split, "finite", sum(map(math.isfinite, scores)) / len(scores), n=len(scores))]
