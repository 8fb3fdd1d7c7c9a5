"""What several processes do when they encode a set together; started from test_training_encoding.py."""

import os
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
PAIRS = 210
BATCH = 32


class Tower(nn.Module):
    """A tower with statistics, which differ between processes."""

    def __init__(self, mean):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.BatchNorm1d(8))
        self.layers[2].running_mean.fill_(mean)
        self.eval()

    @torch.no_grad()
    def encode(self, batch):
        return self.layers(batch)


def collate(pairs):
    return torch.tensor([[float(pair.caption), float(pair.caption) ** 0.5, 1.0] for pair in pairs])


def pairs_of(count=PAIRS):
    from complearn.data.pairs import Pair

    return [Pair(None, str(k), str(k), str(k)) for k in range(count)]


def encode(state, **options):
    from complearn.training.engine.encoding import encode_set

    return encode_set(state.model.encode, pairs_of(), collate, BATCH, "stage 0", state, **options)


def main(folder, what):
    from complearn.training.engine.phases import State
    from complearn.training.engine.processes import start_processes

    folder = Path(folder)
    processes = start_processes("cpu", expected=2, minutes=0.05 if what == "late" else 5.0)
    state = State(Tower(float(processes.rank)), processes=processes, folder=folder)
    if what == "encode":
        vectors = encode(state)
        stored = encode(state, held=1000)
        files = sorted(file.name for file in stored.folder.iterdir())
        rows = stored.rows(np.array([0, 3, 150, PAIRS - 1]))
        parts = torch.cat([part for _, part in stored.parts(50)])
        torch.save([vectors, parts, rows, files, stored.counts], folder / f"vectors-{processes.rank}.pt")
    if what in ("late", "dead") and processes.rank == 1:
        if what == "dead":
            os._exit(3)
        time.sleep(15)
        os._exit(0)
    if what in ("late", "dead"):
        try:
            encode(state)
        except (TimeoutError, RuntimeError) as error:
            (folder / "said.txt").write_text(f"{type(error).__name__}: {error}")
        os._exit(0)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
