"""A reader from outside complearn that draws its pairs: a world of coloured dots for each seed."""

from types import SimpleNamespace

import numpy as np
from PIL import Image

from complearn.data.pairs import Pair
from complearn.data.reports import READERS, Pairs

COLOURS = ("red", "lime", "blue", "yellow")


def world(arguments):
    rng = np.random.default_rng(arguments.get("seed", 0))

    def part(name, n):
        colours = [COLOURS[rng.integers(4)] for _ in range(n)]
        names = [f"dots-{arguments.get('seed', 0)}/{name}-{k}" for k in range(n)]
        return Pairs(
            [Pair(Image.new("RGB", (16, 16), colour), f"a {colour} dot", i, i) for colour, i in zip(colours, names)]
        )

    return SimpleNamespace(train=part("train", arguments.get("n", 8)), test=part("test", 4))


@READERS.register("dots")
def read_dots(n: int = 8, seed: int = 0, part: str = "train"):
    return getattr(world({"n": n, "seed": seed}), part)


read_dots.world = world
read_dots.count = lambda arguments: arguments.get("n", 8)
