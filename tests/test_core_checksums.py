"""Lists of checksums: what they notice, and what a kill may leave."""

import multiprocessing
import subprocess

import pytest
from faults import note

from complearn.core import checksums as module
from complearn.core.checksums import (
    LIST,
    DamagedFile,
    check_sealed,
    missing_files,
    read_checksums,
    verify,
    verify_listed,
    write_checksums,
    write_listed,
    write_sealed,
)


@pytest.fixture
def folder(tmp_path):
    for name in ("model", "optimizer"):
        (tmp_path / name).write_bytes(name.encode() * 100)
    write_checksums(tmp_path)
    return tmp_path


def test_every_flipped_bit_is_noticed(folder):
    content = (folder / "model").read_bytes()
    for place in (0, 250, len(content) - 1):
        for bit in range(8):
            changed = bytearray(content)
            changed[place] ^= 1 << bit
            (folder / "model").write_bytes(changed)
            with pytest.raises(DamagedFile, match=f"{folder}/model is damaged.*bring this file back from a copy"):
                verify(folder / "model")
    (folder / "model").write_bytes(content)
    assert verify(folder / "model") == folder / "model"


def test_a_missing_file_or_list_is_named(folder):
    (folder / "model").unlink()
    assert missing_files(folder) == [folder / "model"]
    with pytest.raises(DamagedFile, match="model is missing, though SHA256SUMS beside it names it; find it"):
        verify(folder / "model", "find it")
    (folder / LIST).unlink()
    assert missing_files(folder) == [folder / LIST]
    with pytest.raises(DamagedFile, match="optimizer is not in SHA256SUMS"):
        verify(folder / "optimizer")


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"abc", b"\n\n  \n"])
def test_a_damaged_list_is_no_traceback(folder, content):
    (folder / LIST).write_bytes(content)
    with pytest.raises(DamagedFile, match="model is not in SHA256SUMS"):
        verify(folder / "model")


def test_the_system_reads_the_list(folder):
    write_listed(folder / "a file", b"x")
    assert subprocess.run(["sha256sum", "--quiet", "-c", LIST], cwd=folder).returncode == 0


def test_a_file_that_is_written_again_never_disagrees_with_its_entry(folder, monkeypatch):
    write = module.write_bytes_atomic
    states = []

    def watched(path, content):
        write(path, content)
        entry = read_checksums(folder).get("model")
        states.append(
            "no entry" if entry is None else "right" if entry == module.checksum(folder / "model") else "wrong"
        )

    monkeypatch.setattr(module, "write_bytes_atomic", watched)
    write_listed(folder / "model", b"new")
    assert states == ["no entry", "no entry", "right"] and verify(folder / "model").read_bytes() == b"new"
    assert verify(folder / "optimizer")


def write_many(folder, writer):
    for k in range(40):
        write_listed(folder / f"{writer}-{k}", b"%d" % k)


def test_two_who_write_into_one_list_lose_no_entry(tmp_path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(tmp_path, name)) for name in "abc"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(read_checksums(tmp_path)) == 120
    verify_listed(tmp_path)
    note("T5", "files of one list by three", written=120, lost=0, doubled=0)
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("line", ["MD5 (a.csv) = 0123", "{digest}  other.csv", "{digest}", ""])
def test_a_checksum_file_of_another_program_says_nothing(tmp_path, line):
    (tmp_path / "a.csv").write_text("a")
    (tmp_path / "a.csv.sha256").write_text(line.format(digest=64 * "0"))
    assert check_sealed(tmp_path / "a.csv") == tmp_path / "a.csv"
    (tmp_path / "a.csv.sha256").write_text(f"{64 * '0'} *data/a.csv")
    with pytest.raises(DamagedFile, match="a.csv is damaged: it is not what was written, by its checksum"):
        check_sealed(tmp_path / "a.csv")


def test_a_large_file_is_sealed_as_it_is_written(tmp_path):
    path = write_sealed(tmp_path / "a.tar", lambda file: file.writelines([b"a", b"b"]))
    assert path.read_bytes() == b"ab" and check_sealed(path) == path
    assert subprocess.run(["sha256sum", "-c", "a.tar.sha256"], cwd=tmp_path, capture_output=True).returncode == 0
