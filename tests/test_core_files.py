import errno
import fcntl
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import ROOT
from hypothesis import given, strategies as st

from complearn.core import files
from complearn.core.files import (
    atomic_folder,
    cache_dir,
    out_folder,
    plain,
    read_json,
    write_bytes_atomic,
    write_json,
)
from complearn.models.features import cached_tensors


@dataclass(frozen=True)
class Box:
    size: tuple
    name: str = "a"


def test_plain_takes_what_configurations_hold():
    value = {"box": Box((1, 2)), "n": np.int64(3), "x": np.float32(0.5), "a": np.eye(2)}
    value |= {"p": Path("a") / "b", "s": {2, 1}, "t": (True, None)}
    expected = {"box": {"size": [1, 2], "name": "a"}, "n": 3, "x": 0.5, "a": [[1.0, 0.0], [0.0, 1.0]]}
    expected |= {"p": "a/b", "s": [1, 2], "t": [True, None]}
    assert plain(value) == expected and json.loads(json.dumps(plain(value))) == expected
    assert type(plain(np.float64(0.5))) is float and plain(float("inf")) is None


def test_plain_names_the_place_of_what_it_cannot_hold():
    with pytest.raises(TypeError, match=r"config\.model\.layers\[1\] is a Tensor"):
        plain({"model": {"layers": [1, torch.ones(2)]}}, "config")


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()


@given(st.recursive(LEAVES, lambda x: st.lists(x)))
def test_plain_leaves_json_alone(value):
    assert plain(value) == value


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_left_names_the_file_and_keeps_the_old_one(tmp_path, monkeypatch, number):
    target = write_json(tmp_path / "config.json", {"old": 1})

    def full(handle):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"no space left while writing .*config\.json.*Free some space") as caught:
        write_json(target, {"new": 2})
    assert caught.value.errno == errno.ENOSPC
    assert read_json(target) == {"old": 1} and [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_device_that_is_really_full(tmp_path):
    """What a library writes to a full device by itself is reported the same way."""
    target = write_json(tmp_path / "state.json", {"old": 1})

    def into_the_full_device(file):
        with open("/dev/full", "wb") as full:
            torch.save({"x": torch.ones(100_000)}, full)

    with pytest.raises(OSError, match=r"no space left while writing .*state\.json"):
        write_bytes_atomic(target, into_the_full_device)
    assert read_json(target) == {"old": 1}


def test_other_errors_pass_unchanged(tmp_path):
    def wrong(file):
        raise KeyError("layer")

    with pytest.raises(KeyError, match="layer"):
        write_bytes_atomic(tmp_path / "x", wrong)
    assert not list(tmp_path.iterdir())


def test_torch_and_plain_bytes_are_written(tmp_path):
    write_bytes_atomic(tmp_path / "x.pt", lambda file: torch.save({"a": torch.arange(3)}, file))
    assert torch.load(tmp_path / "x.pt", weights_only=True)["a"].tolist() == [0, 1, 2]
    write_bytes_atomic(tmp_path / "sub" / "y", b"bytes")
    assert (tmp_path / "sub" / "y").read_bytes() == b"bytes"


def test_a_kill_at_any_time_leaves_a_whole_file(tmp_path):
    """A process that rewrites a file again and again is killed at random times: the file is always one of the
    versions."""
    code = """
import sys
from complearn.core.files import atomic_folder, write_json
n = 0
while True:
    n += 1
    write_json(sys.argv[1] + "/config.json", {"n": n, "filling": "x" * 200_000, "again": n})
    with atomic_folder(sys.argv[1] + "/step-1") as folder:
        for name in ("model", "rest"):
            (folder / name).write_text(str(n) * 1000)
    print(n, flush=True)
"""
    draw = random.Random(0)
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        process.stdout.readline()
        time.sleep(draw.uniform(0.0, 0.2))
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        stored = read_json(tmp_path / "config.json")
        assert stored["n"] == stored["again"] and len(stored["filling"]) == 200_000
        whole = [folder for folder in tmp_path.glob("[!.]*") if folder.is_dir()]
        assert all((folder / "model").read_text() == (folder / "rest").read_text() != "" for folder in whole)


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    with atomic_folder(tmp_path / "step") as folder:
        (folder / "a").write_text("old")
    with pytest.raises(ValueError, match="half way"), atomic_folder(tmp_path / "step") as folder:
        (folder / "a").write_text("new")
        raise ValueError("half way")
    assert (tmp_path / "step" / "a").read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["step"]
    with atomic_folder(tmp_path / "step") as folder:
        (folder / "b").write_text("new")
    assert [path.name for path in (tmp_path / "step").iterdir()] == ["b"]


def test_a_folder_is_replaced_only_if_it_holds_nothing_else(tmp_path):
    def write(text, path=tmp_path / "made"):
        with atomic_folder(path, ("head", "body")) as folder:
            (folder / "head").write_text(text)

    (tmp_path / "made").mkdir()
    write("into an empty one")
    write("over itself")
    assert (tmp_path / "made" / "head").read_text() == "over itself"
    (tmp_path / "made" / "photo.jpg").write_bytes(b"a photo")
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "body").write_text("named so by chance")
    (tmp_path / "notes").write_text("a file")
    says = {
        "made": r"holds other files \(photo.jpg\); name a new",
        "theirs": r"holds other files \(body\)",
        "notes": "is a file; name",
    }
    for name, message in says.items():
        with pytest.raises(FileExistsError, match=message):
            write("lost", tmp_path / name)
    assert (tmp_path / "made" / "photo.jpg").exists()
    assert (tmp_path / "theirs" / "body").exists()
    assert (tmp_path / "notes").is_file()


def test_a_folder_that_cannot_take_its_name_is_put_back(tmp_path, monkeypatch):
    with atomic_folder(tmp_path / "step") as folder:
        (folder / "a").write_text("old")
    rename = os.rename
    calls = []

    def second_fails(source, target):
        calls.append(source)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        rename(source, target)

    monkeypatch.setattr(files, "_exchange", lambda new, old: False)  # as on a system that cannot
    monkeypatch.setattr(files.os, "rename", second_fails)
    with pytest.raises(OSError, match="no space left while writing"), atomic_folder(tmp_path / "step") as folder:
        (folder / "a").write_text("new")
    assert (tmp_path / "step" / "a").read_text() == "old" and [path.name for path in tmp_path.iterdir()] == ["step"]


def replace_for_ever(path):
    while True:
        with atomic_folder(path) as folder:
            (folder / "a").write_text("x" * 1000)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems cannot exchange two folders in one step")
def test_a_folder_that_is_replaced_is_there_at_every_moment_and_kills_leave_nothing(tmp_path):
    path = tmp_path / "graph"
    with atomic_folder(path) as folder:
        (folder / "a").write_text("x" * 1000)
    context = multiprocessing.get_context("fork")
    looked = 0
    for _ in range(6):
        writer = context.Process(target=replace_for_ever, args=(path,))
        writer.start()
        end = time.monotonic() + 0.15
        while time.monotonic() < end:
            assert path.is_dir()
            looked += 1
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert (path / "a").read_text() == "x" * 1000
    assert looked > 1000
    with atomic_folder(path) as folder:
        (folder / "a").write_text("last")
    assert [found.name for found in tmp_path.iterdir()] == ["graph"] and (path / "a").read_text() == "last"


def test_leftovers_of_killed_processes_go_and_those_of_living_ones_and_of_others_stay(tmp_path):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    dead = int(dead.stdout)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as living:
        names = [f".a.json.{living.pid}.tmp", f".b.json.{dead}.tmp", ".a.json.tmp", f".a.json.{dead}.swp"]
        for name in [f".a.json.{dead}.tmp", *names]:
            (tmp_path / name).write_text("half")
        (tmp_path / f".a.json.{dead}.old").symlink_to(tmp_path / "elsewhere")
        files._CLEARED.discard(tmp_path / "a.json")
        write_bytes_atomic(tmp_path / "a.json", b"whole")
        left = {path.name for path in tmp_path.iterdir()}
        living.communicate(b"\n")
    assert left == {"a.json", f".a.json.{dead}.old", *names}
    (tmp_path / f".graph.{dead}.old").mkdir()
    (tmp_path / f".graph.{dead}.old" / "a").write_text("the only one")
    files.clear_leftovers(tmp_path / "graph")
    assert (tmp_path / "graph" / "a").read_text() == "the only one"
    with open(tmp_path / f".c.{dead}.tmp", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # a process of that number on another machine
        files.clear_leftovers(tmp_path / "c")
        assert (tmp_path / f".c.{dead}.tmp").exists()
    files.clear_leftovers(tmp_path / "c")
    assert not (tmp_path / f".c.{dead}.tmp").exists()


def test_what_another_machine_left_goes_when_it_is_old(tmp_path, monkeypatch):
    """Two containers that share a volume may have processes of the same number."""
    monkeypatch.setattr(files.socket, "gethostname", lambda: "one.example.org")
    here = files.temporary_path(tmp_path / "a.json", 77)
    assert here.name == ".a.json.77@one-example-org.tmp"
    monkeypatch.setattr(files.socket, "gethostname", lambda: "two-" + 90 * "x")
    there = files.temporary_path(tmp_path / "a.json", 77)
    assert there != here and len(files.host_name()) == 24
    assert files.leftover(here.name) == files.Leftover("a.json", 77, "one-example-org", "tmp")
    folder = tmp_path / ".graph.2147483@one-example-org.old"
    for place in (folder, tmp_path / ".graph.2147483@one-example-org.tmp"):
        place.mkdir()
        (place / "a").write_text("half")
    here.write_text("half")

    def age(path, seconds):
        for each in (*path.glob("*"), path):
            os.utime(each, (time.time() - seconds,) * 2)

    for seconds, stays in ((0, True), (files.OLD - 60, True), (-10 * files.OLD, True), (files.OLD + 60, False)):
        for path in tmp_path.iterdir():
            age(path, seconds)
        if not stays:  # somebody writes into it
            (tmp_path / ".graph.2147483@one-example-org.tmp" / "b").write_text("now")
        files.clear_leftovers(tmp_path / "a.json")
        files.clear_leftovers(tmp_path / "graph")
        assert here.exists() == folder.exists() == stays, seconds
    assert (tmp_path / "graph" / "a").read_text() == "half", "the only one gets its name back"
    assert (tmp_path / ".graph.2147483@one-example-org.tmp" / "b").exists()


def test_a_temporary_folder_that_is_full_or_cannot_be_made_is_said_with_the_remedy(tmp_path, monkeypatch):
    with files.temporary_folder(tmp_path) as folder:
        (folder / "a").write_text("a")
    assert not list(tmp_path.iterdir())
    with pytest.raises(OSError, match=f"no room for temporary files in {tmp_path}/complearn-.*by TMPDIR"):
        with files.temporary_folder(tmp_path) as folder:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "page.png"))
    with pytest.raises(OSError, match="another disk"), files.temporary_space(tmp_path / "temporary"):
        raise OSError(errno.ENOSPC, "another disk", str(tmp_path / "result.json"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    for make in (lambda: files.temporary_folder().__enter__(), out_folder):
        with pytest.raises(OSError, match="no temporary folder can be made .*; (make room there|give out_dir)"):
            make()


def test_a_panic_of_a_parser_in_rust_is_bad_data_and_an_interruption_is_none():
    panic = type("PanicException", (BaseException,), {})  # as pyo3 raises it
    with pytest.raises(files.BadData, match="tokenizer.json: no entry found for key; get the file again"):
        with files.parsing("tokenizer.json"):
            raise panic("no entry found for key")
    with pytest.raises(KeyboardInterrupt), files.parsing("tokenizer.json"):
        raise KeyboardInterrupt


def test_broken_json_is_named(tmp_path):
    (tmp_path / "x.json").write_text('{"a": 1,')
    with pytest.raises(ValueError, match=r"x\.json is not readable as JSON.*line 1"):
        read_json(tmp_path / "x.json")


def test_out_folder_takes_a_number_as_a_name_and_names_what_is_none(tmp_path, monkeypatch):
    """papermill reads `-p out_dir 2024` as a number, and 1.10 as 1.1."""
    monkeypatch.chdir(tmp_path)
    assert out_folder(2024) == tmp_path / "2024" and (tmp_path / "2024").is_dir()
    for value in (True, 1.1, ["a"], None):
        with pytest.raises(ValueError, match=r"out_dir is a folder's name, not .*papermill keeps any name with: -r"):
            out_folder(value)


def test_out_folder(tmp_path, capsys):
    fresh = out_folder("")
    another = out_folder("  ")
    assert fresh != another and fresh.is_dir() and str(fresh) in capsys.readouterr().out
    fresh.rmdir()
    another.rmdir()
    assert out_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b" and (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(NotADirectoryError, match="choose another out_dir"):
            out_folder(path)


def test_a_folder_that_may_not_be_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="cannot be written to; choose another out_dir"):
        out_folder(tmp_path)


def test_cache_dir_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "c"))
    assert cache_dir("features", "x") == tmp_path / "c" / "features" / "x"
    assert (tmp_path / "c" / "features" / "x").is_dir()
    monkeypatch.delenv("COMPLEARN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr(files.sys, "platform", "linux")
    assert cache_dir() == tmp_path / "xdg" / "complearn"


def test_a_read_only_file_system_is_named_and_not_masked(tmp_path, monkeypatch):
    """There the temporary file can be neither made nor deleted; the first error is the one to say."""

    def refuse(*arguments, **options):
        return (_ for _ in ()).throw(OSError(errno.EROFS, os.strerror(errno.EROFS), str(tmp_path / ".a.tmp")))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(OSError, match=r"a\.json cannot be written: its folder is read-only; make it writable"):
        write_bytes_atomic(tmp_path / "a.json", b"{}")


def test_a_cache_that_cannot_be_written_warns_once_and_the_work_goes_on(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "file"))
    folder = cache_dir("features")
    made = []

    def make():
        return made.append(1) or {"a": torch.ones(2)}

    with pytest.warns(UserWarning, match=r"nothing is kept in .*features .*name another folder by COMPLEARN_CACHE"):
        assert cached_tensors(folder / "a.safetensors", make)["a"].sum() == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cached_tensors(folder / "a.safetensors", make)["a"].sum() == 2
    assert len(made) == 2 and not folder.exists()
