"""Tables of pairs: the same as a list in every respect, made again when anything changes, safe from kills, damage, full
disks and two writers; shards are indexed as `tarfile` reads them."""

import errno
import io
import json
import multiprocessing
import os
import pickle
import signal
import tarfile
import time
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
import training_runs
from hypothesis import given, settings, strategies as st
from PIL import Image
from safetensors.torch import load_file

from complearn.core import files
from complearn.data import pair_table
from complearn.data.loading import content_fingerprint, fingerprint
from complearn.data.negatives import EditedCaptions
from complearn.data.overlap import without_pairs
from complearn.data.pair_table import PairTable, _record_batch, read_stored, table_key
from complearn.data.pairs import Pair
from complearn.data.readers import shards
from complearn.data.readers.registry import READERS, read
from complearn.data.reports import BadData, Pairs, Report
from complearn.language.trees import Tree
from complearn.training.runs.launch import _check_data, launch, prepare


def picture(seed=0, size=16):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def add(tar, name, content, **facts):
    member = tarfile.TarInfo(name)
    member.size = len(content)
    for fact, value in facts.items():
        setattr(member, fact, value)
    tar.addfile(member, io.BytesIO(content))


def write_shards(folder, n=3, samples=8, first=0, format=tarfile.PAX_FORMAT, mtime=0.5):
    folder.mkdir(exist_ok=True)
    for shard in range(n):
        with tarfile.open(folder / f"cc-{shard:05d}.tar", "w", format=format) as tar:
            for k in range(samples):
                number = first + shard * samples + k
                add(tar, f"{number:09d}.png", picture(number), mtime=mtime)
                add(tar, f"{number:09d}.txt", f"goat {number} near a mill".encode(), mtime=mtime)
    return folder


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """A cache of its own, and a few pairs are many; files that were written just now count as settled."""
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pair_table, "LARGE", 10)
    monkeypatch.setattr(pair_table, "is_settled", lambda state: True)
    return tmp_path / "cache" / "pairs"


def as_list(folder, **arguments):
    return READERS["webdataset"](shards=str(folder), **arguments)


# --- a table is the list


def test_a_table_is_the_list_pair_by_pair(tmp_path, tables):
    folder = write_shards(tmp_path / "shards")
    table = read("webdataset", shards=str(folder))
    pairs = as_list(folder)
    assert isinstance(table, PairTable) and isinstance(pairs, Pairs)
    assert list(table) == list(pairs) and len(table) == 24
    assert [table[k] for k in range(-24, 24)] == [pairs[k] for k in range(-24, 24)]
    assert list(table[3:20:4]) == pairs[3:20:4] and table[5:5][:] is not None and not len(table[5:5])
    assert str(table.report) == str(pairs.report)
    assert table.source == {"name": "webdataset", "args": {"shards": str(folder)}}
    assert table.captions() == [pair.caption for pair in pairs] and table.ids() == [pair.id for pair in pairs]
    assert table[4].image.read_bytes() == picture(4)
    with pytest.raises(IndexError):
        table[24]
    again = pickle.loads(pickle.dumps(table.select([4, 2])))
    assert list(again) == [pairs[4], pairs[2]] and again.fingerprint() == fingerprint([pairs[4], pairs[2]])


def test_fingerprints_of_a_table_are_those_of_the_list(tmp_path, tables):
    folder = write_shards(tmp_path / "shards")
    pairs = as_list(folder)
    table = read("webdataset", shards=str(folder))
    assert fingerprint(table) == fingerprint(pairs) and content_fingerprint(table) == content_fingerprint(pairs)
    opened = read("webdataset", shards=str(folder))
    assert opened.info["content"] == content_fingerprint(pairs) == content_fingerprint(opened)  # kept beside it
    sizes = content_fingerprint(pairs, like="0123456789abcdef")  # of an earlier version
    assert content_fingerprint(opened, like="0123456789abcdef") == sizes != opened.info["content"]
    part = table[2:9]
    assert fingerprint(part) == fingerprint(pairs[2:9]) and content_fingerprint(part) == content_fingerprint(pairs[2:9])


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
images = st.one_of(
    st.none(),
    texts,
    texts.map(lambda text: Path(text.replace("\0", "") or "a")),
    st.builds(shards.FileSlice, texts, st.integers(0, 2**40), st.integers(0, 2**40), texts),
)
labels = st.one_of(st.none(), texts, st.integers(-9, 9), st.dictionaries(texts, st.booleans(), max_size=2))
listed = st.one_of(st.none(), st.lists(texts, max_size=2).map(tuple))
operators = st.lists(st.lists(texts, max_size=2).map(tuple), max_size=2).map(tuple)
edited = st.builds(EditedCaptions, st.lists(texts, max_size=2).map(tuple), operators)
trees = st.recursive(
    texts, lambda parts: st.builds(Tree, texts, st.lists(parts, min_size=1, max_size=3).map(tuple)), max_leaves=5
).filter(lambda tree: isinstance(tree, Tree))
facts = st.fixed_dictionaries(
    {},
    optional={
        "negatives": st.one_of(listed, edited),
        "negative_images": st.dictionaries(texts, images, max_size=2),
        "views": listed,
        "labels": labels,
        "tree": trees,
    },
)


@settings(max_examples=80, deadline=None)
@given(rows=st.lists(st.tuples(images, st.one_of(st.none(), texts), texts, texts, facts), max_size=5))
def test_whatever_fits_into_columns_comes_back(rows):
    pairs = [Pair(image, caption, name, image_id, **given) for image, caption, name, image_id, given in rows]
    numbers = {}
    batch = _record_batch(pairs, numbers)
    assert [pair_table._pair_of(row, list(numbers)) for row in batch.to_pylist()] == pairs


@pytest.mark.parametrize(
    "odd",
    [
        {"tree": "(S a)"},
        {"regions": object()},
        {"negative_images": {"a boat": np.zeros((2, 2, 3), np.uint8)}},
        {"negative_images": MappingProxyType({})},
        {"graph": object()},
        {"image": np.zeros((2, 2, 3), np.uint8)},
        {"image": bytearray(b"bytes")},
        {"negatives": ["a list"]},
        {"labels": (1, 2)},
        {"labels": {1, 2}},
    ],
)
def test_a_pair_with_anything_else_keeps_the_data_set_a_list(odd, tmp_path, tables):
    pairs = Pairs([Pair(None, f"goat {k}", f"p:{k}", f"{k}") for k in range(30)], Report("goats", 30))
    pairs[20] = Pair(**{"image": None, "caption": "a boat", "id": "p:20", "image_id": "20", **odd})

    def reader(file):
        return pairs

    reader.files = lambda file: [Path(file)]
    source = tmp_path / "goats.txt"
    source.write_text("goats")
    assert read_stored("goats", reader, {"file": str(source)}) is pairs
    assert not list(tables.glob("*.arrow"))


def test_small_data_sets_stay_lists_and_leave_nothing_behind(tmp_path, tables, monkeypatch):
    folder = write_shards(tmp_path / "shards")
    monkeypatch.setattr(pair_table, "LARGE", 25)
    assert type(read("webdataset", shards=str(folder))) is Pairs and not list(tables.glob("*.arrow"))


@pytest.mark.parametrize("kind", ["folder", "coco", "karpathy", "flickr"])
def test_readers_of_photos_have_tables(kind, tmp_path, tables):
    photos = tmp_path / "photos"
    photos.mkdir()
    for k in range(12):
        (photos / f"{k:012d}.png").write_bytes(picture(k))
    names = [f"{k:012d}.png" for k in range(12)]
    if kind == "folder":
        (photos / "captions.csv").write_text("image,caption\n" + "".join(f"{name},a goat\n" for name in names))
        arguments = {"folder": str(photos)}
    elif kind == "coco":
        content = {
            "images": [{"id": k, "file_name": name} for k, name in enumerate(names)],
            "annotations": [{"id": k, "image_id": k, "caption": "a goat"} for k in range(12)],
        }
        (tmp_path / "captions.json").write_text(json.dumps(content))
        arguments = {"images": str(photos), "annotations": str(tmp_path / "captions.json")}
    elif kind == "karpathy":
        entries = [
            {"filename": name, "split": "train", "filepath": "", "sentences": [{"raw": "a goat", "sentid": k}]}
            for k, name in enumerate(names)
        ]
        (tmp_path / "dataset.json").write_text(json.dumps({"images": entries}))
        arguments = {"images": str(photos), "annotations": str(tmp_path / "dataset.json")}
    else:
        (tmp_path / "tokens.txt").write_text("".join(f"{name}#0\ta goat\n" for name in names))
        arguments = {"images": str(photos), "token_file": str(tmp_path / "tokens.txt")}
    table = read(kind, **arguments)
    pairs = READERS[kind](**arguments)
    assert isinstance(table, PairTable) and list(table) == list(pairs) and fingerprint(table) == fingerprint(pairs)
    assert content_fingerprint(table) == content_fingerprint(pairs) and "content" not in table.info
    (photos / names[3]).write_bytes(picture(99))  # a photo is another one, though its folder is as it was
    assert content_fingerprint(read(kind, **arguments)) == content_fingerprint(pairs) != table.info.get("content")
    (photos / names[3]).unlink()
    with pytest.raises(BadData, match="not found"):
        read(kind, **arguments)


def test_pairs_that_are_left_out_share_the_file(tmp_path, tables):
    table = read("webdataset", shards=str(write_shards(tmp_path / "shards")))
    pairs = as_list(tmp_path / "shards")
    names = [pairs[3].id, pairs[17].id, "nobody"]
    part = without_pairs(table, names)
    assert isinstance(part, PairTable) and part.path == table.path
    assert list(part) == list(without_pairs(pairs, names)) and str(part.report) == str(
        without_pairs(pairs, names).report
    )
    assert list(without_pairs(part, [pairs[0].id])) == list(without_pairs(pairs, [*names, pairs[0].id]))


# --- made once, and made again


def counted(monkeypatch):
    calls = []
    indexed = shards._index_shard

    def index_shard(path, keep=""):
        calls.append(Path(path).name)
        return indexed(path, keep)

    monkeypatch.setattr(shards, "_index_shard", index_shard)
    return calls


def test_a_second_start_reads_no_shard(tmp_path, tables, monkeypatch):
    folder = write_shards(tmp_path / "shards")
    calls = counted(monkeypatch)
    first = read("webdataset", shards=str(folder))
    assert len(calls) == 3
    assert list(read("webdataset", shards=str(folder))) == list(first) and len(calls) == 3
    read("webdataset", shards=str(folder), check="header")  # other arguments, another table
    assert len(calls) == 6 and len(list(tables.glob("*.arrow"))) == 2


def test_a_shard_that_was_replaced_is_read_again(tmp_path, tables):
    folder = write_shards(tmp_path / "shards")
    first = read("webdataset", shards=str(folder))
    write_shards(folder, first=100)
    second = read("webdataset", shards=str(folder))
    assert second[0].caption == "goat 100 near a mill" and list(second) == list(as_list(folder))
    assert fingerprint(second) != fingerprint(first)
    write_shards(folder, n=4, first=100)  # one more
    assert len(read("webdataset", shards=str(folder))) == 32


def test_what_was_skipped_is_said_at_every_start(tmp_path, tables):
    folder = write_shards(tmp_path / "shards")
    with tarfile.open(folder / "cc-00001.tar", "a") as tar:
        add(tar, "odd.txt", b"no picture")
    for _ in range(2):
        with pytest.warns(UserWarning, match=r"1 incomplete sample \(cc-00001.tar sample odd"):
            table = read("webdataset", shards=str(folder), max_bad=0.5)
    assert isinstance(table, PairTable) and table.report.n_skipped == 1
    with pytest.raises(BadData, match="are bad, more than the 1.0%"):
        read("webdataset", shards=str(folder))


@pytest.mark.parametrize("damage", ["a byte", "cut", "empty", "no list", "list cut", "list odd", "list digit"])
def test_a_damaged_table_is_named_and_made_again(damage, tmp_path, tables):
    folder = write_shards(tmp_path / "shards")
    whole = list(read("webdataset", shards=str(folder)))
    path = next(tables.glob("*.arrow"))
    listed = path.with_suffix(".json")
    content = bytearray(path.read_bytes())
    if damage == "a byte":
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    elif damage == "cut":
        path.write_bytes(content[:-40])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "no list":
        listed.unlink()
    elif damage == "list cut":
        listed.write_bytes(listed.read_bytes()[:30])
    elif damage == "list digit":
        values = json.loads(listed.read_text())
        listed.write_text(json.dumps({**values, "fingerprint": values["fingerprint"][::-1]}))
    else:
        listed.write_text('{"checksum": 3}')
    if damage == "no list":
        again = read("webdataset", shards=str(folder))
    else:
        with pytest.warns(UserWarning, match="the table of pairs is made again"):
            again = read("webdataset", shards=str(folder))
    assert isinstance(again, PairTable) and list(again) == whole
    assert list(read("webdataset", shards=str(folder))) == whole


def test_a_link_in_the_cache_is_not_read_or_written_through(tmp_path, tables):
    folder = write_shards(tmp_path / "shards")
    whole = list(read("webdataset", shards=str(folder)))
    path = next(tables.glob("*.arrow"))
    thesis = tmp_path / "thesis.tex"
    thesis.write_text("words")
    path.unlink()
    path.symlink_to(thesis)
    with pytest.warns(UserWarning, match="is a link to"):
        assert list(read("webdataset", shards=str(folder))) == whole
    assert thesis.read_text() == "words"


def test_a_full_disk_leaves_a_list_and_nothing_half(tmp_path, tables, monkeypatch):
    folder = write_shards(tmp_path / "shards")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.warns(
        UserWarning, match="no table of pairs is kept.*make room, or name another folder by COMPLEARN_CACHE"
    ):
        pairs = read("webdataset", shards=str(folder))
    assert type(pairs) is Pairs and len(pairs) == 24
    assert not list(tables.glob("*.arrow")) and not list(tables.glob(".*.tmp"))


def test_files_that_change_while_they_are_read_make_no_table(tmp_path, tables, monkeypatch):
    folder = write_shards(tmp_path / "shards")
    indexed = shards._index_shard

    def index_shard(path, keep=""):
        index = indexed(path, keep)
        if Path(path).name == "cc-00002.tar" and not (folder / "cc-00003.tar").exists():
            os.utime(folder / "cc-00000.tar", (7, 7))
        return index

    monkeypatch.setattr(shards, "_index_shard", index_shard)
    assert type(read("webdataset", shards=str(folder))) is Pairs and not list(tables.glob("*.arrow"))


def test_the_oldest_tables_make_room(tmp_path, tables, monkeypatch):
    folders = [write_shards(tmp_path / name, first=k) for k, name in enumerate(("a", "b", "c"))]
    for folder in folders[:2]:
        read("webdataset", shards=str(folder))
    size = max(path.stat().st_size for path in tables.glob("*.arrow"))
    for folder, when in zip(folders, (200, 100)):
        key = table_key("webdataset", {"shards": str(folder)}, shards._shard_paths(str(folder)))
        os.utime(tables / f"{key}.arrow", (when, when))
    monkeypatch.setenv("COMPLEARN_CACHE_GB", str((2 * size + 10) / 2**30))
    read("webdataset", shards=str(folders[2]))
    kept = {path.stem for path in tables.glob("*.arrow")}
    keys = [table_key("webdataset", {"shards": str(f)}, shards._shard_paths(str(f))) for f in folders]
    assert kept == {keys[0], keys[2]} and not (tables / f"{keys[1]}.json").exists()


def read_slowly(folder, wait, said):
    indexed = shards._index_shard

    def index_shard(path, keep=""):
        said.put(Path(path).name)
        time.sleep(wait)
        return indexed(path, keep)

    shards._index_shard = index_shard
    said.put(len(read("webdataset", shards=str(folder))))


def start(folder, wait):
    processes = multiprocessing.get_context("fork")
    said = processes.Queue()
    process = processes.Process(target=read_slowly, args=(folder, wait, said))
    process.start()
    return process, said


def test_a_killed_writer_leaves_nothing_that_counts_and_two_writers_make_one_table(tmp_path, tables):
    folder = write_shards(tmp_path / "shards", n=6)
    killed, said = start(folder, 0.3)
    while said.get(timeout=60) != "cc-00004.tar":
        assert killed.is_alive()
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    assert list(tables.glob(".*.tmp")) and not list(tables.glob("*.arrow"))
    writers = [start(folder, 0.3) for _ in range(2)]
    lines = [[said.get(timeout=60) for _ in range(3)] for _, said in writers]
    for place, (process, said) in enumerate(writers):
        while not isinstance(lines[place][-1], int):
            lines[place].append(said.get(timeout=60))
        process.join()
    assert [each[-1] for each in lines] == [48, 48]
    assert sorted(each.count("cc-00005.tar") for each in lines) == [0, 1]  # one read the rest, one waited
    assert list(read("webdataset", shards=str(folder))) == list(as_list(folder))


# --- a run on a table


def config(folder, **train):
    data = {"name": "webdataset", "args": {"shards": str(folder)}}
    return training_runs.config({"name": "clip", "args": {"steps": 6, "ramp": 2}}, **train) | {"data": data}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_on_a_table_is_the_run_on_the_list_and_goes_on_with_it(workers, tmp_path, tables, monkeypatch):
    folder = write_shards(tmp_path / "shards")
    values = config(folder, workers=workers)
    table_run = launch(prepare(tmp_path / "table", values).path, progress=False)
    table = read("webdataset", shards=str(folder))
    monkeypatch.setattr(pair_table, "LARGE", 1000)
    for path in tables.iterdir():
        path.unlink()
    list_run = launch(prepare(tmp_path / "list", values).path, progress=False)
    ends = [load_file(sorted((run.path / "phases").glob("*.safetensors"))[-1]) for run in (table_run, list_run)]
    assert ends[0].keys() == ends[1].keys() and all((ends[0][name] == ends[1][name]).all() for name in ends[0])
    assert (table_run.path / "data.json").read_text() == (list_run.path / "data.json").read_text()
    assert _check_data(list_run, table) == _check_data(table_run, as_list(folder))  # raises where they differ


# --- shards as `tarfile` reads them


def described(index):
    return index.samples, index.fault, index.holes, index.repeated


def slowly(path):
    with pytest.MonkeyPatch.context() as patch:

        def unusual(*_):
            raise shards._Unusual

        patch.setattr(shards, "_plain_members", unusual)
        return shards._index_shard(path)


@pytest.mark.parametrize("mtime", [0, 3, 0.5, 1795733029.25])
@pytest.mark.parametrize("format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_a_shard_is_indexed_as_tarfile_reads_it(format, mtime, tmp_path):
    folder = write_shards(tmp_path / "shards", 1, 5, format=format, mtime=mtime)
    path = folder / "cc-00000.tar"
    with tarfile.open(path, "a", format=format) as tar:
        add(tar, f"{'deep/' * 22}name.png", picture(1))  # ustar's prefix, or a record of its own
        add(tar, f"{'deep/' * 22}name.txt", b"a goat")
        add(tar, "zïege.png", picture(2))
        add(tar, "zïege.txt", b"eine Ziege")
        add(tar, "000000001.txt", b"again")
        add(tar, "no ending", b"x")
        add(tar, "a.b.c.json", b"{}")
        add(tar, ".hidden.txt", b"x")
    plain = shards._index_shard(path, "txt")
    slow = slowly(path)
    assert described(plain) == described(slow) and len(plain.samples) >= 8
    for sample in plain.samples.values():
        for extension, part in sample.items():
            if extension == "txt" and part.offset in plain.contents:
                assert plain.contents[part.offset] == part.read_bytes()


def test_the_fast_index_is_used_for_usual_shards_alone(tmp_path):
    folder = write_shards(tmp_path / "shards", 1, 5)
    assert len(shards._index_plain(folder / "cc-00000.tar", "txt").contents) == 5

    def odd(name, change):
        path = write_shards(tmp_path / name, 1, 5) / "cc-00000.tar"
        with tarfile.open(path, "a") as tar:
            change(tar)
        return path

    def link(tar):
        member = tarfile.TarInfo("link.png")
        member.type, member.linkname = tarfile.SYMTYPE, "000000000.png"
        tar.addfile(member)

    def folder_member(tar):
        member = tarfile.TarInfo("inner")
        member.type = tarfile.DIRTYPE
        tar.addfile(member)

    paths = [
        odd("link", link),
        odd("folder", folder_member),
        odd("owner", lambda tar: add(tar, "a.txt", b"", pax_headers={"comment": "x"})),
    ]
    content = (folder / "cc-00000.tar").read_bytes()
    for name, damaged in {
        "cut": content[:2000],
        "no end": content[: content.rindex(b"goat 4") + 512],
        "hole": content[:1024] + b"x" * 512 + content[1536:],
        "text": b"no tar" * 300,
        "empty": b"",
        "twice": content + content,
        "checksum": content[:150] + b"7" + content[151:],
        "no octal": content[:124] + b"99999999999" + content[135:148] + b"999999" + content[154:],
    }.items():
        paths.append(tmp_path / f"{name}.tar")
        paths[-1].write_bytes(damaged)
    for path in paths:
        with pytest.raises(shards._Unusual):
            shards._index_plain(path, "txt")
        assert described(shards._index_shard(path)) == described(slowly(path))


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 9000), value=st.integers(0, 255))
def test_a_changed_byte_is_indexed_as_tarfile_reads_it(place, value, tmp_path_factory):
    folder = tmp_path_factory.getbasetemp() / "changed"
    path = folder / "cc-00000.tar"
    if not path.exists():
        write_shards(folder, 1, 3)
    content = bytearray(path.read_bytes())
    content[place % len(content)] = value
    changed = folder / "changed.tar"
    changed.write_bytes(content)
    plain = shards._index_shard(changed)
    slow = slowly(changed)
    if described(plain) != described(slow):
        # `tarfile` forgives what a checksum of a header of its own kind does not
        assert plain.fault or slow.fault or plain.holes or slow.holes
