"Small scorers for tests of the evaluation room."

import hashlib
import re

import numpy as np
import torch

from complearn.models.scoring import Encoded, cosine


class RawBatch:
    "Images and captions as they came."

    def __init__(self, pairs):
        self.images = [pair.image for pair in pairs]
        self.captions = [pair.caption for pair in pairs]

    def __len__(self):
        return len(self.images)

    def to(self, device):
        return self


class StandIn:
    "Encodes what `see` and `read` return; counts what it was asked to encode."

    def __init__(self, see, read):
        self.see = see
        self.read = read
        self.seen = []
        self.read_texts = []

    def collate(self, pairs):
        return RawBatch(pairs)

    def encode_images(self, batch):
        self.seen += batch.images
        return Encoded(torch.tensor(np.array([self.see(x) for x in batch.images]), dtype=torch.float32))

    def encode_texts(self, batch):
        self.read_texts += batch.captions
        return Encoded(torch.tensor(np.array([self.read(x) for x in batch.captions]), dtype=torch.float32))

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


def write_causal(folder, words):
    """A folder of a tiny random causal language model, whose tokenizer knows some words and the end of a line."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    numbers = {word: k for k, word in enumerate(["<unk>", "<end>", "\n", *sorted({*words})])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<end>").save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"n_positions": 64, "n_embd": 8, "n_layer": 2, "n_head": 2}
    GPT2LMHeadModel(GPT2Config(vocab_size=len(numbers), initializer_range=1.0, **sizes)).save_pretrained(folder)
    return folder
