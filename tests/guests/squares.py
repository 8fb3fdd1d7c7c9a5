"""A reader from outside complearn: one coloured square for each line of a file."""

from pathlib import Path

from PIL import Image

from complearn.data.pairs import Pair
from complearn.data.reports import READERS, Pairs


@READERS.register("squares")
def read_squares(file: str, size: int = 16):
    lines = Path(file).read_text().split("\n")
    pairs = [
        Pair(Image.new("RGB", (size, size), colour), f"A {colour} square.", f"square {k}", f"square {colour}")
        for k, colour in enumerate(lines)
    ]
    return Pairs(pairs)
