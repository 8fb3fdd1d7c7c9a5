"""A generator from outside complearn: answers with the caption, one word of it replaced."""

from complearn.models.generators import GENERATORS


@GENERATORS.register("shouting")
class Shouting:
    def __init__(self, model: str = "", seed: int = 0):
        self.word = model or "zebra"

    def propose(self, caption: str, operator: str, n: int = 1):
        return [caption.replace("dog", self.word)] * n
