"""Small runs for the tests of the training room, importable by child processes."""

import os
import signal

MODEL = {
    "vision": {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1},
    "text": {"tower": "tiny", "width": 16, "depth": 1, "heads": 1},
    "codebook": {"codes": 24},
}
DATA = {"name": "generated", "args": {"n_train": 48, "size": 16}}
TRAIN = {"batch_size": 8, "lr": 2e-3, "log_every": 1, "checkpoint_every": 4, "precision": "fp32", "device": "cpu"}
IL = {"name": "il_clip", "args": {"warmup": 7, "distil": 5, "interact": 6, "generations": 2, "final": 3, "ramp": 3, "temperature": 0.1}}
STEPS = 7 + 2 * (5 + 6) + 3


def config(method=None, model=None, seed=0, **train):
    return {"method": method or IL, "model": model or MODEL, "data": DATA, "train": TRAIN | train, "seed": seed}


def go(path, fault=""):
    """In a child process: launch a run, with a fault, e.g. "kill step 12", "kill spawn 2", "term checkpoint 8"."""
    import sys
    from pathlib import Path

    import torch

    from complearn import launch
    from complearn.training.engine import checkpoints, trainer

    torch.set_num_threads(1)
    what, _, where = fault.partition(" ")
    place, _, number = where.partition(" ")
    strike = lambda: os.kill(os.getpid(), {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}[what])
    if place == "step":  # after that step, before anything is written about it
        after = trainer.Trainer.after_step

        def struck(self, result):
            if self.state.step == int(number):
                strike()
            return after(self, result)

        trainer.Trainer.after_step = struck
    if place == "spawn":  # the new agent stands, no checkpoint does
        begin = trainer.Trainer.begin_phase

        def spawned(self):
            write = self.checkpoint
            if self.phase is not None and self.phase.name == f"distil-{int(number):02d}":
                self.checkpoint = lambda: (strike(), write())
            begin(self)
            self.checkpoint = write

        trainer.Trainer.begin_phase = spawned
    if place == "checkpoint":  # in the middle of writing it
        write = checkpoints.tensor_bytes
        written = []

        def half(tensors):
            written.append(1)
            if len(written) == int(number):
                strike()
            return write(tensors)

        checkpoints.tensor_bytes = half
    sys.stderr = open(Path(path).parent / "said.txt", "w", buffering=1)
    raise SystemExit(launch.main([str(path), "--quiet"]))
