"Small scorers for tests of the evaluation room."

import hashlib
import re

import numpy as np
import torch

from complearn.data.pairs import Batch
from complearn.models.scoring import Encoded, cosine


class StandIn:
    "Encodes what `see` and `read` return; counts what it was asked to encode."

    def __init__(self, see, read):
        self.see, self.read, self.seen, self.read_texts = see, read, [], []

    def collate(self, pairs):
        sides = {"image": [p.image for p in pairs], "caption": [p.caption for p in pairs]}
        return Batch(None, None, None, torch.zeros(len(pairs), dtype=torch.int64), tuple(p.id for p in pairs), sides)

    def encode_images(self, batch):
        self.seen += batch.extra["image"]
        return Encoded(torch.tensor(np.array([self.see(x) for x in batch.extra["image"]]), dtype=torch.float32))

    def encode_texts(self, batch):
        self.read_texts += batch.extra["caption"]
        return Encoded(torch.tensor(np.array([self.read(x) for x in batch.extra["caption"]]), dtype=torch.float32))

    def similarity(self, images, texts, pairs=None):
        return cosine(images, texts, pairs)


def constant(width=8):
    "A collapsed model."
    return StandIn(lambda _: np.ones(width), lambda _: np.ones(width))


def hashed(thing, width=32):
    "A random vector that depends on the thing alone."
    content = thing.tobytes() if isinstance(thing, np.ndarray) else str(thing).encode()
    seed = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
    return np.random.default_rng(seed).normal(size=width)


def bag(text):
    "The words of a text without punctuation."
    return re.findall(r"\w+(?:'\w+)?", text.lower())


def bag_of_words(width=64):
    "A text encoder that sums word vectors in the order that they come, so that equal bags differ by rounding alone."

    def read(text):
        total = np.zeros(width, dtype=np.float32)
        for word in bag(text):
            total += hashed(word, width).astype(np.float32)
        return total

    return StandIn(lambda image: hashed(image, width), read)


def random_scorer():
    "Independent random vectors for every image and every text."
    return StandIn(hashed, lambda text: hashed(f"the text {text}"))
