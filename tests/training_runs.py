"""Small runs for the tests of the training room, importable by child processes."""

import errno
import multiprocessing
import os
import shutil
import signal
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "int": signal.SIGINT}
MODEL = {
    "vision": {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1},
    "text": {"tower": "tiny", "width": 16, "depth": 1, "heads": 1},
    "codebook": {"codes": 24},
}
DATA = {"name": "generated", "args": {"n_train": 48, "size": 16}}
TRAIN = {"batch_size": 8, "lr": 2e-3, "log_every": 1, "checkpoint_every": 4, "precision": "fp32", "device": "cpu"}
IL = {
    "name": "il_clip",
    "args": {"warmup": 7, "distil": 5, "interact": 6, "generations": 2, "final": 3, "ramp": 3, "temperature": 0.1},
}
STEPS = 7 + 2 * (5 + 6) + 3


def stages_model():
    """A model of two stages that has not been trained, as if both had been."""
    from complearn.models.registry import build

    model = build({"kind": "stages", "vision": MODEL["vision"], "projection": 8, "stages": 2})
    model.learned.fill_(2)
    return model.eval()


def config(method=None, model=None, seed=0, **train):
    return {"method": method or IL, "model": model or MODEL, "data": DATA, "train": TRAIN | train, "seed": seed}


def make_read_only(path):
    """Refuse every write below a path, as a read-only file system does (root may write to any folder)."""

    def refuse(event, arguments):
        writes = (
            event == "open"
            and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            or event in ("os.mkdir", "os.rename", "os.remove")
        )
        if writes and str(arguments[0]).startswith(str(path)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(arguments[0]))

    sys.addaudithook(refuse)


FILE_EVENTS = {
    "open",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "shutil.rmtree",
    "os.truncate",
    "os.listdir",
    "os.scandir",
}
FAULTS = {name: lambda path, number=number: os.kill(os.getpid(), number) for name, number in SIGNALS.items()} | {
    "delete": shutil.rmtree,
    "delete-log": lambda path: (path / "metrics.jsonl").unlink(),
    "protect": make_read_only,
}


TIMES = {"samples_per_second", "data_share", "log_share", "wall_seconds", "cpu_seconds"}


def records(run):
    """A run's records without what a clock measured and without warnings of missing files."""
    return [
        {k: v for k, v in record.items() if k not in TIMES} for record in run.records() if record["kind"] != "warning"
    ]


def assert_same(run, whole):
    """A disturbed run has ended with the records and, bit for bit, the weights of the undisturbed one."""
    assert run.done == whole.done and whole.done["phases"] == len(whole.phases())
    assert records(run) == records(whole)
    assert [file.name for file in run.phases()] == [file.name for file in whole.phases()]
    for mine, theirs in zip(run.phases(), whole.phases()):
        a = load_file(mine)
        b = load_file(theirs)
        assert a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a), mine.name


def start(path, fault=""):
    """Start `go` in a fork of a warm process."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["training_runs", "warm_runs"])
    process = context.Process(target=go, args=(path, fault))
    before = os.environ.get("PYTHONPATH", "")
    # where the warm process looks for modules
    os.environ["PYTHONPATH"] = os.pathsep.join([*map(str, Path(__file__).parents[:2]), before])
    try:
        process.start()
    finally:
        os.environ["PYTHONPATH"] = before
    return process


def go(path, fault=""):
    """In a child process: launch a run, with a fault, e.g. "kill step 12", "kill spawn 2", "term checkpoint 8", "kill
    file 30"."""
    from complearn import launch
    from complearn.training.engine import checkpoints, trainer

    torch.set_num_threads(1)
    what, _, where = fault.partition(" ")
    place, _, number = where.partition(" ")

    def strike():
        return FAULTS[what](Path(path))

    if place == "step":  # after that step, before anything is written about it
        after = trainer.Trainer.after_step

        def struck(self, result):
            if self.state.step == int(number):
                strike()
            return after(self, result)

        trainer.Trainer.after_step = struck
    if place == "file":  # before that operation on a file of the run
        operations = []

        def count(event, arguments):
            if event in FILE_EVENTS and arguments and str(arguments[0]).startswith(str(path)):
                operations.append(event)
                if len(operations) == int(number):
                    strike()

        sys.addaudithook(count)
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
        write = checkpoints._tensor_bytes
        written = []

        def half(tensors):
            written.append(1)
            if len(written) == int(number):
                strike()
            return write(tensors)

        checkpoints._tensor_bytes = half
    sys.stderr = open(Path(path).parent / "said.txt", "w", buffering=1)
    try:
        raise SystemExit(launch.main([str(path), "--quiet"]))
    except KeyboardInterrupt:  # outside the training: what Python itself answers, where multiprocessing says 1
        raise SystemExit(128 + signal.SIGINT) from None
    finally:
        if place == "file":
            (Path(path).parent / "operations.txt").write_text(str(len(operations)))
