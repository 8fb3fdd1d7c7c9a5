"""Lines that are appended: two writers lose and double nothing, a power cut and a person's own change are told
apart."""

import errno
import json
import multiprocessing
import os
import signal
import time

import pytest
from faults import note

from complearn.core import journals, locks
from complearn.core.checksums import DamagedFile
from complearn.core.journals import (
    Log,
    append_record,
    changed_lines,
    check_journal,
    parts_file,
    read_lines,
    write_journal,
)
from complearn.core.locks import Held, hold


def append_many(path, writer, n):
    for k in range(n):
        append_record(path, {"writer": writer, "k": k})


def test_writers_at_once_lose_and_double_nothing(tmp_path):
    path = tmp_path / "new" / "corrections.jsonl"
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=append_many, args=(path, name, 40)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    records, size = read_lines(path)
    assert sorted((each["writer"], each["k"]) for each in records) == [(name, k) for name in "abc" for k in range(40)]
    assert size == path.stat().st_size and not changed_lines(path)
    assert sorted(file.name for file in path.parent.iterdir()) == [path.name, parts_file(path).name]
    note("T5", "lines appended by three", written=len(records), lost=0, doubled=0)


def test_writers_that_are_killed_leave_whole_lines(tmp_path):
    path = tmp_path / "decisions.jsonl"
    context = multiprocessing.get_context("spawn")
    for trial in range(4):
        writer = context.Process(target=append_many, args=(path, trial, 10_000))
        writer.start()
        before = path.stat().st_size if path.exists() else 0
        while not path.exists() or path.stat().st_size < before + 400:
            time.sleep(0.002)
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        check_journal(path)
        append_record(path, {"writer": "after", "k": trial})
        records, _ = read_lines(path)
        assert records[-1] == {"writer": "after", "k": trial}
        for name in range(trial + 1):
            numbers = [each["k"] for each in records if each["writer"] == name]
            assert numbers == list(range(len(numbers))) and numbers


@pytest.mark.parametrize("n_lines", [1, 3])
def test_changed_lines_are_named_and_a_person_may_say_that_they_are_right(tmp_path, monkeypatch, n_lines):
    monkeypatch.setattr(journals, "MOST_LINES", n_lines)
    path = write_journal(tmp_path / "edits.jsonl", (b'{"k": %d}\n' % k for k in range(7)))
    assert not changed_lines(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"k": 4', b'"k": 9'))
    assert changed_lines(path) == (["5"] if n_lines == 1 else ["4 to 6"])
    with pytest.raises(
        DamagedFile, match="edits.jsonl: line .* is not as it was written.*delete edits.jsonl.parts.json"
    ):
        append_record(path, {"k": 8})
    parts_file(path).unlink()
    append_record(path, {"k": 8})
    assert [each["k"] for each in read_lines(path)[0]] == [0, 1, 2, 3, 9, 5, 6, 8]


def test_lines_that_are_gone_and_lines_that_came_after_the_last_digest(tmp_path):
    path = tmp_path / "corrections.jsonl"
    for k in range(3):
        append_record(path, {"k": k})
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"k": 3}\n{"k": ')  # a kill before the digest, and one within a line
    check_journal(path)
    append_record(path, {"k": 4})
    assert [each["k"] for each in read_lines(path)[0]] == [0, 1, 2, 3, 4]
    path.write_bytes(whole[:9])
    assert changed_lines(path) == ["2", "3", "4", "5"] and changed_lines(path, also_gone=False) == []
    path.unlink()
    assert changed_lines(path) == list("12345") and changed_lines(path, also_gone=False) == []
    parts_file(path).write_text("{")
    with pytest.raises(DamagedFile, match="corrections.jsonl.parts.json is damaged"):
        check_journal(path)


def test_an_append_takes_as_long_whatever_is_there(tmp_path, monkeypatch):
    path = write_journal(tmp_path / "decisions.jsonl", (b'{"k": %d}\n' % k for k in range(20_000)))
    append_record(path, {"k": 20_000})  # looks through the file
    read = []
    monkeypatch.setattr(journals, "whole_lines", lambda path: read.append(path) or iter(()))
    took = []
    for k in range(20_001, 20_021):
        began = time.perf_counter()
        append_record(path, {"k": k})
        took.append(time.perf_counter() - began)
    monkeypatch.undo()
    assert not read and sorted(took)[10] < 0.02, took
    assert [each["k"] for each in read_lines(path)[0]] == list(range(20_021)) and not changed_lines(path)
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"k": 777}', b'"k": -77}'))
    assert changed_lines(path) == ["778"]
    with pytest.raises(DamagedFile, match="decisions.jsonl: line 778 is not as it was written"):
        append_record(path, {"k": 1})
    append_record(path, {"k": 20_021}, checked=False)
    append_record(path, {"k": 20_022}, checked=False)
    assert changed_lines(path) == ["778"], "it stays marked"


def test_digests_that_do_not_fit_leave_the_journal_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "decisions.jsonl"
    append_record(path, {"k": 0})
    before = path.read_bytes(), parts_file(path).read_bytes()
    whole = journals.write_whole

    def full(file, line):
        if file.name.endswith(".parts.json"):
            raise OSError(errno.ENOSPC, "no space left")
        whole(file, line)

    monkeypatch.setattr(journals, "write_whole", full)
    with pytest.raises(OSError, match="no space left"):
        append_record(path, {"k": 1})
    assert (path.read_bytes(), parts_file(path).read_bytes()) == before


def test_digests_that_do_not_fit_leave_a_log_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    log = Log(path)
    log.append(b'{"k": 0}\n')
    before = path.read_bytes(), parts_file(path).read_bytes()

    def full(*args, **options):
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="no space left"):
        patch.setattr(journals, "write_bytes_atomic", full)
        log.append(b'{"k": 1}\n')
    assert (path.read_bytes(), parts_file(path).read_bytes()) == before
    log.append(b'{"k": 2}\n')
    assert not changed_lines(path) and [each["k"] for each in read_lines(path)[0]] == [0, 2]


def test_digests_that_a_kill_tore_are_made_again(tmp_path):
    path = tmp_path / "decisions.jsonl"
    for k in range(3):
        append_record(path, {"k": k})
    beside = parts_file(path)
    beside.write_bytes(beside.read_bytes()[:-20])
    assert not changed_lines(path)
    append_record(path, {"k": 3})
    assert not changed_lines(path) and len(beside.read_bytes().splitlines()) == 4


@pytest.mark.parametrize("part", [2, 10_000])
def test_a_log_of_many_lines_keeps_a_digest_of_each_part(tmp_path, monkeypatch, part):
    monkeypatch.setattr(journals, "MOST_LINES", part)
    path = tmp_path / "metrics.jsonl"
    log = Log(path)
    for k in range(5):
        log.append(b'{"k": %d}\n' % k)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"k": 5}\n')  # another process
    log.append(b'{"k": 6}\n')
    assert not changed_lines(path) and [each["k"] for each in read_lines(path)[0]] == list(range(7))
    path.write_bytes(path.read_bytes().replace(b'"k": 2', b'"k": 8'))
    assert changed_lines(path) == (["3 to 4"] if part == 2 else ["1 to 7"])
    with pytest.raises(DamagedFile, match="line .* is not as it was written"):
        Log(path)
    path.unlink()
    with pytest.raises(DamagedFile, match="deleted or cut while it was written to"):
        log.append(b"{}\n")


def test_a_line_that_does_not_fit_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    path = tmp_path / "corrections.jsonl"
    append_record(path, {"k": 0})
    before = path.read_bytes()

    class Full:
        def __init__(self, file):
            self.file = file

        def __getattr__(self, name):
            return getattr(self.file, name)

        def write(self, line):
            return self.file.write(line[:5])

    with open(path, "ab", buffering=0) as file, pytest.raises(OSError, match="no space left"):
        journals.write_whole(Full(file), b'{"k": 1}\n')
    assert path.read_bytes() == before and json.loads(before) == {"k": 0}


def test_a_lock_is_free_after_a_kill_and_says_who_has_it(tmp_path):
    with hold(tmp_path, "lock"):
        with pytest.raises(Held, match=f"held by process {os.getpid()}"):
            with hold(tmp_path, "lock"):
                pass
        with pytest.raises(Held), hold(tmp_path, "lock", signed=False):
            pass
    assert (tmp_path / "lock").read_text() == str(os.getpid())
    with hold(tmp_path, "lock", passing=True):
        pass
    assert not (tmp_path / "lock").exists()


def test_whoever_waits_says_once_for_whom(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(locks, "PATIENCE", 0.1)
    context = multiprocessing.get_context("spawn")
    held = context.Event()
    holder = context.Process(target=hold_for, args=(tmp_path, 0.8, held))
    holder.start()
    held.wait(60)
    with hold(tmp_path, "lock", wait=True, passing=True):
        pass
    holder.join()
    assert [each.getMessage() for each in caplog.records] == [
        f"waiting for process {holder.pid}, which holds {tmp_path / 'lock'}"
    ]
    caplog.clear()
    with hold(tmp_path, "lock", wait=True, passing=True):
        pass
    assert not caplog.records


def hold_for(folder, seconds, held):
    with hold(folder, "lock", passing=True):
        held.set()
        time.sleep(seconds)


@pytest.mark.parametrize("change", ["a line less", "a longer line", "cut", "begun again"])
def test_a_line_that_comes_after_a_change_is_kept_and_the_change_stays_named(tmp_path, change):
    """As a page of reviews goes on with a journal that somebody has changed."""
    path = tmp_path / "decisions.jsonl"
    for k in range(5):
        append_record(path, {"k": k})
    lines = path.read_bytes().splitlines(keepends=True)
    if change == "begun again":
        path.unlink()
    else:
        lines = {"a line less": lines[:1] + lines[2:], "cut": lines[:2]}.get(change, lines)
        lines = [line.replace(b"1", b"1.0") for line in lines] if change == "a longer line" else lines
        path.write_bytes(b"".join(lines))
    named = {"a line less": ["5"], "a longer line": ["2"], "cut": ["3", "4", "5"]}
    assert changed_lines(path) == named.get(change, list("12345"))
    append_record(path, {"k": "the new one"}, checked=False)
    append_record(path, {"k": "and another"}, checked=False)
    assert [each["k"] for each in read_lines(path)[0]][-2:] == ["the new one", "and another"]
    assert changed_lines(path) == (["2"] if change == "a longer line" else [])


def take_turns(folder, n):
    for _ in range(n):
        with hold(folder, "lock", wait=True, passing=True):
            pass


def test_a_lock_that_is_deleted_while_others_wait_is_taken_by_one_of_them(tmp_path):
    context = multiprocessing.get_context("spawn")
    holders = [context.Process(target=take_turns, args=(tmp_path, 800)) for _ in range(4)]
    for holder in holders:
        holder.start()
    for holder in holders:
        holder.join()
    assert [holder.exitcode for holder in holders] == [0] * 4
