"""What two processes do together in grounding; started by torchrun from test_training_grounding.py."""

import sys
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(1)

LITTLE = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
MODEL = {"kind": "grounded", "vision": LITTLE | {"size": 16, "patch": 8}, "text": LITTLE, "dropout": 0.0}
DATA = {"name": "generated", "args": {"n_train": 48, "size": 16}}
TRAIN = {"batch_size": 8, "log_every": 1, "checkpoint_every": 3, "precision": "fp32", "device": "cpu"}


def config(steps=6, model=None, method="grounded", more=None, **train):
    args = {"steps": steps, "lr": 2e-3, "dropout": 0.0} if method == "grounded" else {}
    return {
        "method": {"name": method, "args": args | (more or {})},
        "model": MODEL | (model or {}),
        "data": DATA,
        "train": TRAIN | train,
    }


def sides():
    draw = torch.Generator().manual_seed(0)
    ids = torch.tensor([0, 1, 2, 1, 3, 4, 0, 5])  # two photos with two captions, in both processes' shares
    words = torch.arange(7) < torch.tensor([3, 2, 5, 1, 7, 6, 7, 2])[:, None]  # the second share's captions are longer
    return torch.randn(8, 5, 6, generator=draw), torch.randn(8, 7, 6, generator=draw), words, ids


def loss_and_gradients(rank, world, losses="both"):
    """The losses of this process's rows, and their gradient for them."""
    from complearn.data.pairs import Batch
    from complearn.models.grounded.model import GroundedOutput
    from complearn.training.objectives.grounding import Grounding

    image, text, words, ids = sides()
    share = slice(rank * 8 // world, (rank + 1) * 8 // world)
    longest = int(words[share].sum(1).max())
    places = None
    image = image[share].clone()
    if losses == "places":  # positions that are words of other captions, in each process as many as its longest has
        places = torch.arange(5) < torch.tensor([2, 1, 3, 2, 4, 5, 1, 2])[share, None]
        most = int(places.sum(1).max())
        image, places = image[:, :most], places[:, :most]
    image = image.requires_grad_()
    text = text[share, :longest].clone().requires_grad_()
    words = words[share, :longest]
    model = nn.Module()
    model.config = type("", (), {"reading": "word_mean"})
    batch = Batch(None, None, None, ids[share], tuple(map(str, range(8)))[share])
    objective = Grounding(losses="both" if losses == "places" else losses)
    told = objective.compute_losses(GroundedOutput(image, text, words, places), model, batch)
    loss = sum(value for name, value in told.items() if name.endswith("_loss"))
    loss.backward()
    pad = torch.nn.functional.pad
    return [loss.detach(), pad(image.grad, (0, 0, 0, 5 - image.shape[1])), pad(text.grad, (0, 0, 0, 7 - longest))]


def related(rank, world, name):
    """Loss of stage 3 or of the search on this process's scenes, and its gradients; of "lonely", the second share has
    no triplet."""
    from complearn.data.readers.registry import read
    from complearn.data.visual_genome.triplets import TripletEncoder, pair_triplets
    from complearn.data.word_tokenizer import WordTokenizer
    from complearn.models.registry import build
    from complearn.training.objectives.grounding import RelationGrounding, SearchContrastive

    pairs = list(read(DATA["name"], **DATA["args"]))
    sides = ("left of", "right of", "above", "below")
    ranked = sorted(pairs, key=lambda pair: not pair_triplets(pair, sides))  # those with triplets first
    some = ranked[:4]
    none = ranked[-4:]
    pairs = [*some, *none] if name == "lonely" else [pair for two in zip(none, some) for pair in two][1:] + none[:1]
    relations = {"predicates": sides, "objects": ("circle", "square", "triangle"), "heads": 2, "d": 4, "hidden": 8}
    tokenizer = WordTokenizer.fit([pair.caption for pair in ranked])
    model = build(MODEL | {"relations": relations, "search": True}, tokenizer, 0).eval()
    collate = model.collate.with_steps(
        TripletEncoder(sides, relations["objects"], 2, tokenizer=model.collate.tokenizer)
    )
    objective = SearchContrastive() if name == "search" else RelationGrounding()
    told = objective(
        model,
        collate(pairs[rank * 8 // world : (rank + 1) * 8 // world], range(rank * 8 // world, (rank + 1) * 8 // world)),
    )
    loss = sum(value for key, value in told.items() if key.endswith("_loss"))
    loss.backward()
    return {"loss": loss.detach()} | {key: p.grad for key, p in model.named_parameters() if p.grad is not None}


def main(folder):
    from complearn.core.runs import Run
    from complearn.training.engine.processes import start_processes
    from complearn.training.runs.launch import make_trainer

    folder = Path(folder)
    processes = start_processes("cpu", expected=2)
    assert processes.world == dist.get_world_size() == 2
    for losses in ("both", "language", "vision", "places"):
        torch.save(loss_and_gradients(processes.rank, 2, losses), folder / f"{losses}-{processes.rank}.pt")
    for name in ("relate", "lonely", "search"):
        torch.save(related(processes.rank, 2, name), folder / f"{name}-{processes.rank}.pt")
    make_trainer(Run.open(folder / "run"), progress=False).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
