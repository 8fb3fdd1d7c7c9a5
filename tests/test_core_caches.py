"""What is kept takes no more room than it may; what a person wrote is never deleted with it."""

import errno
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import pytest

from complearn.core import caches
from complearn.core.caches import (
    _kept_entries,
    cache_room,
    cache_table,
    clear_cache,
    keep_folder,
    make_room,
    write_cache,
)
from complearn.core.config import RequestError
from complearn.core.files import atomic_folder, cache_dir


@pytest.fixture
def kept(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    monkeypatch.setattr(caches, "_WRITTEN", {})
    monkeypatch.setattr(caches, "_UNWRITTEN", set())

    def allow(n_bytes):
        monkeypatch.setenv("COMPLEARN_CACHE_GB", str(n_bytes / 2**30))

    return allow


def test_the_entries_that_were_not_used_for_the_longest_time_go_while_others_are_written(kept):
    kept(1000)
    for k in range(30):
        write_cache(cache_dir("outputs", "tower") / f"{k:02}", bytes(100))
        os.utime(cache_dir("outputs", "tower") / f"{k:02}", (k, k))
    entries = _kept_entries("outputs")
    assert [entry.path.name for entry in entries] == [f"{k:02}" for k in range(20, 30)]
    assert sum(entry.size for entry in entries) == 1000 and make_room("outputs") == 0


def test_a_folder_goes_as_a_whole_and_the_newest_stays_however_large_it_is(kept):
    kept(500)

    def make(place):
        with atomic_folder(place) as folder:
            (folder / "vectors").write_bytes(bytes(400))
            (folder / "about.json").write_text("{}")
        return place

    for name in ("a", "b", "c"):
        assert keep_folder(cache_dir("codes") / name, make).name == name
    assert len(_kept_entries("codes")) == 3, "those that were used lately are in use"
    for age, name in enumerate(("a", "b", "c")):
        for file in (cache_dir("codes") / name).iterdir():
            os.utime(file, (age, age))
    assert make_room("codes", cache_dir("codes") / "c") == 804
    assert {path.name for path in cache_dir("codes").iterdir()} == {"c", ".complearn"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_folder_that_cannot_be_kept_is_made_elsewhere_with_a_warning(kept, number):
    def make(place):
        if place.parent == cache_dir("codes"):
            raise OSError(number, os.strerror(number), str(place))
        place.mkdir()
        return place

    with pytest.warns(UserWarning, match=r"nothing is kept in .*codes .*another folder by COMPLEARN_CACHE"):
        made = keep_folder(cache_dir("codes") / "a", make)
    assert made.is_dir() and made.name == "a" and cache_dir() not in made.parents
    with pytest.raises(FileNotFoundError), warnings.catch_warnings():
        warnings.simplefilter("error")
        keep_folder(cache_dir("codes") / "a", lambda place: Path("nowhere").read_text())


def test_other_things_in_a_folder_that_a_person_named_stay(kept, tmp_path):
    (tmp_path / "photos" / "summer").mkdir(parents=True)
    (tmp_path / "photos" / "summer" / "1.jpg").write_text("mine")
    (tmp_path / "maps").mkdir()
    (tmp_path / "maps" / "paris.pdf").write_text("mine, too")
    write_cache(cache_dir("features") / "a", bytes(9))
    assert set(cache_table().index) == {"features"} and clear_cache() == 9
    assert (tmp_path / "photos" / "summer" / "1.jpg").exists() and (tmp_path / "maps" / "paris.pdf").exists()


def test_what_a_person_wrote_stays(kept):
    folder = cache_dir("parses")
    for name in ("parses.sqlite", "corrections.jsonl", "corrections.jsonl.parts.json", ".corrections.jsonl.lock"):
        (folder / name).write_text("x")
    write_cache(cache_dir("maps") / "umap", bytes(7))
    (cache_dir() / "notes.txt").write_text("mine")
    table = cache_table()
    assert (
        table.loc["parses", "entries"] == 1
        and table.loc["maps", "bytes"] == 7
        and set(table.index) == {"parses", "maps"}
    )
    with pytest.raises(RequestError, match="no kind of cache 'map'; there are features"):
        clear_cache("map")
    assert clear_cache() == 8
    assert {path.name for path in folder.iterdir()} == {
        ".complearn",
        "corrections.jsonl",
        "corrections.jsonl.parts.json",
        ".corrections.jsonl.lock",
    }
    assert (cache_dir() / "notes.txt").exists() and not len(cache_table())


def test_what_a_killed_process_left_half_written_goes(kept):
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    for name in (f".a.{int(dead.stdout)}.tmp", f".a.{os.getpid()}.tmp", ".mine.tmp"):
        (cache_dir("outputs", "tower") / name).write_text("half")
    (cache_dir("codes") / f".store-pixels.{int(dead.stdout)}.tmp").mkdir()
    there = cache_dir("outputs", "tower") / f".b.{int(dead.stdout)}@elsewhere.tmp"
    there.write_text("half")
    for kind in ("outputs", "codes"):
        make_room(kind)
    assert there.exists(), "another machine may write it"
    os.utime(there, (1, 1))
    for kind in ("outputs", "codes"):
        make_room(kind)
    left = {path.name for path in cache_dir("outputs", "tower").iterdir()} | set(os.listdir(cache_dir("codes")))
    assert left == {f".a.{os.getpid()}.tmp", ".mine.tmp", ".complearn"}


def test_a_clock_that_went_back_stops_no_eviction(kept):
    """Everything seems to be of tomorrow."""
    kept(1000)
    tomorrow = time.time() + 86_400
    for k in range(30):
        write_cache(cache_dir("outputs", "tower") / f"{k:02}", bytes(100))
        os.utime(cache_dir("outputs", "tower") / f"{k:02}", (tomorrow + k, tomorrow + k))
    assert [entry.path.name for entry in _kept_entries("outputs")] == [f"{k:02}" for k in range(20, 30)]


def test_a_temporary_folder_without_room_is_named_with_the_remedy(kept, tmp_path, monkeypatch):
    def make(place):
        number = errno.EROFS if place.parent == cache_dir("codes") else errno.ENOSPC
        raise OSError(number, os.strerror(number), str(place / "vectors"))

    with (
        pytest.warns(UserWarning, match="nothing is kept in"),
        pytest.raises(OSError, match=f"no room for temporary files in {tempfile.gettempdir()}.*by TMPDIR"),
    ):
        keep_folder(cache_dir("codes") / "a", make)


def test_links_lead_nowhere(kept, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "thesis.tex").write_text("thesis")
    cache_dir("maps")
    (cache_dir("maps") / "theirs").symlink_to(outside)
    (cache_dir("codes") / "theirs").symlink_to(outside)
    clear_cache()
    assert (outside / "thesis.tex").read_text() == "thesis"


@pytest.mark.parametrize("text", ["much", "-1", "1e99", "nan"])
def test_a_room_that_is_no_number(monkeypatch, text):
    monkeypatch.setenv("COMPLEARN_CACHE_GB", text)
    with pytest.raises(RequestError, match=f"COMPLEARN_CACHE_GB is '{text}'; give the GB"):
        cache_room()
