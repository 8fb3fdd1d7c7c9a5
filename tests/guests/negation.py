"""A benchmark from outside complearn: squares of a colour, and the sentence that denies it."""

from pathlib import Path

from PIL import Image

from complearn.data.benchmarks.items import Choice
from complearn.evaluation.bench.suites import benchmark


@benchmark("negation", "whether a model hears 'not'")
def read_negation(file: str, size: int = 16):
    return [
        Choice(
            id=f"square {k}",
            split="negate",
            images=(Image.new("RGB", (size, size), colour),),
            captions=(f"A {colour} square.", f"A square that is not {colour}."),
        )
        for k, colour in enumerate(Path(file).read_text().split("\n"))
    ]
