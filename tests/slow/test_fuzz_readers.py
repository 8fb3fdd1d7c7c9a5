"""Every reader and parser with a small valid set (`data.fixtures.specimens`), and every kind of file and folder that is
opened (`openers`), tried on 50 broken copies each, and on 150 by `make faults`.

A reader that is registered is tried as soon as its specimen is; without one the first test fails.
What is allowed is a result, or an error of this project.
"""

import json
import random
import shutil
import warnings

import pytest
from faults import note, trials
from openers import OPENERS, STRANGERS, reseal

from complearn.core.checksums import LIST, SUM
from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.data.fixtures.specimens import SPECIMENS
from complearn.data.loading import fingerprint
from complearn.data.readers.registry import READERS
from complearn.data.reports import Pairs

TRIALS = trials(50, 150)  # of each specimen
VALUES = [None, True, 5, -1, 0.5, 1e308, "", " ", "\ud83d", "a\x00b", "../" * 40, "x" * 70_000, [], {}, [[]],
    {"a": None},
          [None], 10**300, "nan"]  # fmt: skip
PIECES = [b"\xff", b"\xe9", b"\x00" * 600, b"\xef\xbb\xbf", b'"', b"'", b"\n", b"\r\n", b",", b"\t", b"[" * 30_000,
    b"{", b"}",
          b"]", b":", b"null", b"-1", b"9" * 6000, b"1e999", b"\\ud83d", b"%", b"../", b"#0",
          b"|", b"\xf0\x9f\x98\x80", b"\xe2\x80\xa8"]  # fmt: skip


def places(value, path=()):
    """The paths to all values inside a JSON value."""
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def change_json(content, draw):
    """A JSON document, or a line of JSON lines, with one value replaced, taken out or repeated."""
    text = content.decode()
    try:
        values = json.loads(text)
        lines = None
    except json.JSONDecodeError:
        lines = text.splitlines()
        number = draw.randrange(len(lines))
        values = json.loads(lines[number])
    path = draw.choice(list(places(values)))
    if not path:
        values = draw.choice(VALUES)
    else:
        parent = values
        for key in path[:-1]:
            parent = parent[key]
        kind = draw.choice(["replace", "replace", "delete", "repeat"])
        if kind == "replace":
            parent[path[-1]] = draw.choice(VALUES)
        elif kind == "delete":
            del parent[path[-1]]
        elif isinstance(parent, list):
            parent.append(parent[path[-1]])
    changed = json.dumps(values)
    return changed.encode() if lines is None else "\n".join([*lines[:number], changed, *lines[number + 1 :]]).encode()


def change_bytes(content, draw):
    """A file with bits flipped, bytes replaced, cut, repeated, swapped or put in."""
    a, b = sorted(draw.randrange(len(content) + 1) for _ in range(2))
    kind = draw.choice(["flip", "flip", "byte", "cut", "drop", "repeat", "insert", "insert", "insert", "swap", "zeros"])
    if kind == "flip":
        flipped = bytearray(content)
        for _ in range(draw.choice([1, 1, 8])):
            flipped[draw.randrange(len(flipped))] ^= 1 << draw.randrange(8)
        return bytes(flipped)
    piece = draw.choice(PIECES)
    return {
        "byte": content[:a] + bytes([draw.randrange(256)]) + content[a + 1 :],
        "cut": content[:a],
        "drop": content[:a] + content[min(b, a + 40) :],
        "repeat": content[:b] + content[a:b] + content[b:],
        "insert": content[:a] + piece + content[a:],
        "swap": content[b:] + content[:b],
        "zeros": content[:a] + b"\0" * (b - a) + content[b:],
    }[kind]


def mutate(content, draw):
    """A broken copy of a file's content."""
    if draw.random() < 0.02:
        return draw.choice([b"", b"\xef\xbb\xbf", b"null", b"[]", b"{}", b"\n", b"[" * 20_000])
    if content[:1] in b"[{" and not content.startswith(b"[/EN#") and draw.random() < 0.6:
        return change_json(content, draw)
    return change_bytes(content, draw)


def test_every_reader_has_a_specimen():
    assert set(READERS) <= set(SPECIMENS), (
        "write a small valid set of the new reader's format in nbs/data/fixtures/specimens.ipynb"
    )
    assert len({**OPENERS, **STRANGERS}) >= 24
    assert sum(name not in ("generated", "objects", "trifeature") for name in SPECIMENS) >= 34


@pytest.mark.parametrize("name", SPECIMENS)
def test_broken_copies_give_a_result_or_bad_data(name, tmp_path):
    specimen = SPECIMENS[name]
    draw = random.Random(name)
    specimen.write(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        specimen.read(tmp_path)  # whole, it is read
        files = sorted({path for pattern in specimen.files for path in tmp_path.glob(pattern) if path.is_file()})
        escaped = {}
        for trial in range(TRIALS if files else 0):
            file = draw.choice(files)
            whole = file.read_bytes()
            file.write_bytes(mutate(whole, draw))
            try:
                result = specimen.read(tmp_path)
                if isinstance(result, Pairs):
                    fingerprint(result)  # its texts can be written
            except BadData:
                pass
            except Exception as error:
                escaped.setdefault(
                    f"{type(error).__name__}: {str(error)[:120]}", f"trial {trial}, {file.relative_to(tmp_path)}"
                )
            file.write_bytes(whole)
    shutil.rmtree(tmp_path, ignore_errors=True)
    assert not escaped, f"{name}: {len(escaped)} kinds of error that are not the project's own: {escaped}"
    note("T4", f"reader {name}", inputs=TRIALS if files else 0, foreign=0)


def holds_content(path):
    """Whether a file is more than a checksum of others."""
    return path.is_file() and path.stat().st_size and not path.name.endswith((LIST, SUM, ".parts.json", "lock"))


@pytest.mark.parametrize("name", {**OPENERS, **STRANGERS})
def test_broken_files_of_ours_and_of_strangers_give_a_result_or_an_error_of_ours(name, tmp_path):
    """The checksums are made to agree, so that what lies behind them is reached."""
    opener = {**OPENERS, **STRANGERS}[name]
    draw = random.Random(name)
    (tmp_path / "whole").mkdir()
    escaped = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opener.write(tmp_path / "whole")
        files = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*"))
        files = [file for file in files if holds_content(tmp_path / "whole" / file)]
        for trial in range(TRIALS):
            file = draw.choice(files)
            shutil.rmtree(tmp_path / "broken", ignore_errors=True)
            shutil.copytree(tmp_path / "whole", tmp_path / "broken")
            (tmp_path / "broken" / file).write_bytes(mutate((tmp_path / "whole" / file).read_bytes(), draw))
            reseal(tmp_path / "broken")
            try:
                opener.read(tmp_path / "broken")
            except (BadData, RequestError, FileNotFoundError):
                pass
            except Exception as error:
                escaped.setdefault(f"{type(error).__name__}: {str(error)[:120]}", f"trial {trial}, {file}")
    assert not escaped, f"{name}: {len(escaped)} kinds of error that are not the project's own: {escaped}"
    note("T4", name, inputs=TRIALS, foreign=0)
