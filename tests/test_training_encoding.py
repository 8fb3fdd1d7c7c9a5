"""A set is encoded the same by one process and by several, with and without workers, in memory and in files."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import encoding_ranks
import numpy as np
import pytest
import torch

from complearn.training.engine.encoding import StoredVectors, parts_of
from complearn.training.engine.phases import State

HERE = Path(__file__).parent


def encode(folder=None, workers=0, **options):
    """What one process encodes."""
    state = State(encoding_ranks.Tower(0.0), folder=folder)
    state.loader = type("Loader", (), {"workers": workers})
    return encoding_ranks.encode(state, **options)


def two_processes(folder, what):
    """Two processes without an agent that would end one with the other."""
    with socket.socket() as server:
        server.bind(("localhost", 0))
        port = server.getsockname()[1]
    path = os.pathsep.join([str(HERE.parent), str(HERE), os.environ.get("PYTHONPATH", "")])
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": "2"}
    shared |= {"OMP_NUM_THREADS": "1", "COMPLEARN_TYPECHECK": "0", "PYTHONPATH": path}
    command = [sys.executable, str(HERE / "encoding_ranks.py"), str(folder), what]
    processes = [
        subprocess.Popen(command, env=os.environ | shared | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE)
        for rank in ("0", "1")
    ]
    return [(process.communicate(timeout=200)[1], process.returncode) for process in processes]


def test_encode_set_is_the_same_with_loader_workers():
    vectors = encode()
    assert vectors.shape == (encoding_ranks.PAIRS, 8) and vectors.dtype == torch.float32
    assert torch.equal(vectors, encode(workers=2))


def test_encode_set_writes_files_beyond_a_size(tmp_path):
    vectors = encode()
    stored = encode(tmp_path, held=8 * 4 * encoding_ranks.PAIRS - 1)
    assert isinstance(stored, StoredVectors) and stored.shape == vectors.shape and len(stored) == len(vectors)
    assert stored.folder.name == "stage-0.tmp"  # a run that was killed removes it
    for size in (1, 50, 1000):
        parts = list(stored.parts(size))
        assert [start for start, _ in parts] == list(range(0, len(vectors), size))
        assert torch.equal(torch.cat([part for _, part in parts]), vectors.half().float())
    assert torch.equal(stored.rows(np.array([5, 5, 100])), vectors[[5, 5, 100]].half().float())
    stored.remove()
    assert not list(tmp_path.iterdir())
    # without a run's folder, and up to the size, they stay in memory in full precision
    assert torch.equal(encode(held=1), vectors)
    assert torch.equal(encode(tmp_path, held=8 * 4 * encoding_ranks.PAIRS), vectors)
    assert [start for start, _ in parts_of(vectors)] == [0]


@pytest.mark.slow
def test_two_processes_encode_what_one_does(tmp_path):
    assert [code for _, code in two_processes(tmp_path, "encode")] == [0, 0]
    whole = encode()  # by the statistics of the main process
    for rank in (0, 1):
        vectors, parts, rows, files, counts = torch.load(tmp_path / f"vectors-{rank}.pt", weights_only=True)
        assert torch.equal(vectors, whole) and torch.equal(parts, whole.half().float())
        assert torch.equal(rows, whole[[0, 3, 150, encoding_ranks.PAIRS - 1]].half().float())
        # whole batches: three of seven, and four of which the last is smaller
        assert files == ["part-00000.f16", "part-00001.f16"] and list(counts) == [96, 114]


@pytest.mark.slow
def test_a_process_that_is_late_is_named_with_the_limit_and_a_remedy(tmp_path):
    two_processes(tmp_path, "late")
    said = (tmp_path / "said.txt").read_text()
    here = f"TimeoutError: process 0 of 2 on {socket.gethostname()} waited 0.05 minutes for the encoding of 210 pairs"
    assert said.startswith(f"{here} by stage 0, and process 1 did not come; look at what it prints"), said
    assert '"train": {"wait": MINUTES}' in said


@pytest.mark.slow
def test_a_process_that_has_died_is_named_with_a_remedy(tmp_path):
    assert [code for _, code in two_processes(tmp_path, "dead")] == [0, 3]
    said = (tmp_path / "said.txt").read_text()
    assert "waited for the encoding of 210 pairs by stage 0, and process 1 has died; what that one" in said, said
    assert "it goes on from its newest checkpoint" in said
