"""Memory, open files and memory maps of long work stay as they are.

Watched are a training, edits, and a server whose pages are opened and left.

COMPLEARN_SOAK_MINUTES says how long each is watched (0.5): 30 for an evening. COMPLEARN_SOAK_PAGES says how many pages
are opened and left at least (3): 200 take half an hour.
"""

import http.client
import json
import multiprocessing
import os
import statistics
import threading
import time
from contextlib import suppress

import pytest
import training_runs
from browser import write_notebook
from faults import note
from test_apps_search import fetched, visitor

from complearn.apps import serving as server
from complearn.apps.edits.command import EditSettings, edit_captions
from complearn.apps.pages import PAGE
from complearn.data.readers.edits import CaptionRow
from complearn.training.runs.launch import launch, prepare

psutil = pytest.importorskip(
    "psutil", reason="psutil, which comes with ipykernel, is not installed: memory is not read"
)
PAGES = int(os.environ.get("COMPLEARN_SOAK_PAGES", "3"))
SECONDS = 60 * float(os.environ.get("COMPLEARN_SOAK_MINUTES", "0.5"))
FLAT = 0.02  # growth of memory between the second and the last third of the time, as a share
SLACK = 8 * 2**20  # bytes: what an allocator may take at once, which is more than that share of a short watch


def train(folder):
    config = training_runs.config({"name": "clip", "args": {"steps": 10**7}}, checkpoint_every=50, log_every=10)
    launch(prepare(folder / "run", config).path, "cpu", False)


def edit(folder):
    for number in range(10**6):
        # spaCy keeps every word that it has met, so no word is new for ever
        texts = [f"a red dog {number % 20} chases a blue cat {k}" for k in range(50)]
        rows = [CaptionRow(text, str(k), str(k)) for k, text in enumerate(texts)]
        edit_captions(rows, folder / "edits.jsonl", EditSettings(("replace_att",), sense=False), progress=False)
        for file in folder.iterdir():
            file.unlink()


def state(process):
    memory = process.memory_info().rss
    return memory, process.num_fds(), len(process.memory_maps(grouped=False))


def memory_of_all(process):
    """Bytes of a process and of all that it has started, and how many those are."""
    sizes = []
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            sizes.append(each.memory_info().rss)
    return sum(sizes), len(sizes) - 1


def watch(process, seconds=SECONDS, is_enough=lambda: True, sample=state):
    """Samples of a process (bytes, open files, maps), and for how many minutes it was watched."""
    samples = []
    began = time.monotonic()
    while time.monotonic() < began + seconds or not is_enough():
        samples.append(sample(process))
        time.sleep(min(1.0, seconds / 60))
    return samples, (time.monotonic() - began) / 60


def check_flat(samples, minutes, what):
    third = len(samples) // 3
    parts = samples[third : 2 * third], samples[2 * third :]
    memory, maps = ([max(each[k] for each in part) for part in parts] for k in (0, 2))
    files = [min(each[1] for each in part) for part in parts]  # beyond connections that come and go
    assert memory[1] <= memory[0] * (1 + FLAT) + SLACK, f"memory grows: {memory}"
    assert files[1] <= files[0] + 4 and maps[1] <= maps[0] * (1 + FLAT) + 8, (files, maps)
    growth = round(memory[1] / memory[0] - 1, 4)
    note(
        "T8",
        f"soak of {what}",
        minutes=round(minutes, 1),
        growth_of_memory=growth,
        files=files[1],
        maps=maps[1] - maps[0],
    )


@pytest.mark.parametrize("work", [train, edit])
def test_long_work_takes_no_more_the_longer_it_lasts(work, tmp_path):
    child = multiprocessing.get_context("spawn").Process(target=work, args=(tmp_path,))
    child.start()
    try:
        process = psutil.Process(child.pid)
        until = time.monotonic() + 120  # imports, and what the first steps allocate
        while time.monotonic() < until and not any(tmp_path.rglob("*.jsonl")):
            time.sleep(0.2)
        time.sleep(5)
        check_flat(*watch(process), work.__name__)
        assert child.is_alive()
    finally:
        child.kill()
        child.join()


def page_of_one_line(folder):
    """A notebook, and what its kernels need to know."""
    return write_notebook(folder / "page.ipynb", ["print('hello')"]), {}


def page_of_runs(folder):
    """The app of runs, on one small run."""
    config = training_runs.config({"name": "clip", "args": {"steps": 2}})
    launch(prepare(folder / "runs" / "one", config).path, "cpu", False)
    page = {"app": "runs", "folder": str(folder), "arguments": {"runs": str(folder / "runs")}}
    return server._app_notebook("runs", folder), {PAGE: json.dumps(page)}


@pytest.mark.parametrize("page, left_for", [(page_of_one_line, 1), (page_of_runs, 5)])
def test_pages_that_are_opened_and_left_take_nothing(page, left_for, tmp_path, monkeypatch):
    """Neither the server nor the kernels of its pages, which end when they are left."""
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    for name, value in (("LEFT_FOR", left_for), ("LOOKED_AT_EVERY", 1), ("MOST_PAGES", 4)):
        monkeypatch.setattr(server, name, value)
    notebook, env = page(tmp_path)
    opened, is_over = [], threading.Event()
    with server.serving(notebook, env={"PYTHONWARNINGS": "ignore", **env}) as address:
        here = psutil.Process()
        (process,) = [child for child in here.children() if "run_while_parent_lives" in " ".join(child.cmdline())]

        def visit():
            while process.is_running() and not is_over.is_set():
                # a slow machine draws for longer than a second, after which the kernel counts as left
                with suppress(http.client.IncompleteRead, OSError):
                    opened.append(fetched(address, visitor())[0])

        thread = threading.Thread(target=visit, daemon=True)
        thread.start()
        time.sleep(10)
        samples, minutes = watch(
            process,
            is_enough=lambda: opened.count(200) >= PAGES,
            sample=lambda process: (*state(process), *memory_of_all(process)),
        )
        is_over.set()
        thread.join(120)
        until = time.monotonic() + 60 + left_for
        while process.children(recursive=True) and time.monotonic() < until:
            time.sleep(0.5)
        left = [" ".join(child.cmdline()) for child in process.children(recursive=True)]
    of_app = "" if page is page_of_one_line else " of an app"
    check_flat(samples, minutes, f"a server{of_app}")
    third = len(samples) // 3
    parts = samples[third : 2 * third], samples[2 * third :]
    all_of_them = [statistics.median(each[3] for each in part) for part in parts]
    kernels = max(each[4] for part in parts for each in part)
    assert not thread.is_alive() and not left, left
    assert kernels <= 6
    # how many kernels live at once varies within that bound, and a page that is being drawn is smaller than one that is
    growth = round(all_of_them[1] / all_of_them[0] - 1, 4)
    about = {"pages": opened.count(200), "growth_of_memory": growth, "most_kernels": kernels}
    note("T8", f"pages{of_app} opened and left", **about)
