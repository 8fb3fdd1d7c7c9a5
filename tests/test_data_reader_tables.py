"""Every reader whose result may have a table of pairs: what is read is the same with and without it, and a second start
reads no row of the source; tables with images, and tables of other tables."""

import io
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import tarfile
import time
from dataclasses import fields
from functools import wraps
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from complearn.core.locks import hold
from complearn.core.own_files import follow_outside
from complearn.data import pair_table, reports
from complearn.data.images import BrokenImage
from complearn.data.loading import Loader, content_fingerprint, fingerprint
from complearn.data.pair_table import PairTable, RowImage, _HeldImage
from complearn.data.pairs import Collate, Transform, WordTokenizer
from complearn.data.readers import tables as reader_tables
from complearn.data.readers.registry import READERS, read
from complearn.data.reports import BadData

N = 14
parquet = pytest.importorskip("pyarrow.parquet")


def picture(seed=0, size=12):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def tables(tmp_path, monkeypatch):
    "A cache of its own, and a few pairs are many; files that were written just now count as settled."
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(pair_table, "LARGE", 10)
    monkeypatch.setattr(pair_table, "is_settled", lambda state: True)
    return tmp_path / "cache" / "pairs"


# --- a source for each reader


def photos(tmp_path):
    folder = tmp_path / "photos"
    if not folder.exists():
        folder.mkdir()
        for k in range(N):
            (folder / f"{k:012d}.png").write_bytes(picture(k))
    return folder, [f"{k:012d}.png" for k in range(N)]


def folder(tmp_path):
    home, names = photos(tmp_path)
    lines = [f"{name},a goat {k}" for k, name in enumerate(names)]
    (home / "captions.csv").write_text("image,caption\n" + "\n".join(lines) + "\n")
    return {"name": "folder", "args": {"folder": str(home)}}


def folder_negatives(tmp_path):
    home, names = photos(tmp_path)
    lines = [f"{name},a goat {k},a boat {k}" for k, name in enumerate(names)]
    (home / "wrong.csv").write_text("image,caption,negative\n" + "\n".join(lines) + "\n")
    return {"name": "folder", "args": {"folder": str(home), "captions_file": "wrong.csv"}}


def sidecar(tmp_path):
    home = tmp_path / "pictures"
    home.mkdir()
    for k in range(N):
        (home / f"{k}.png").write_bytes(picture(k))
        (home / f"{k}.txt").write_text(f"a goat {k}\n")
    return {"name": "sidecar", "args": {"folder": str(home)}}


def coco(tmp_path):
    home, names = photos(tmp_path)
    content = {
        "images": [{"id": k, "file_name": name} for k, name in enumerate(names)],
        "annotations": [{"id": k, "image_id": k, "caption": f"a goat {k}"} for k in range(N)],
    }
    (tmp_path / "captions.json").write_text(json.dumps(content))
    return {"name": "coco", "args": {"images": str(home), "annotations": str(tmp_path / "captions.json")}}


def karpathy(tmp_path):
    home, names = photos(tmp_path)
    entries = [
        {"filename": name, "split": "train", "filepath": "", "sentences": [{"raw": f"a goat {k}", "sentid": k}]}
        for k, name in enumerate(names)
    ]
    (tmp_path / "dataset.json").write_text(json.dumps({"images": entries}))
    return {"name": "karpathy", "args": {"images": str(home), "annotations": str(tmp_path / "dataset.json")}}


def flickr(tmp_path):
    home, names = photos(tmp_path)
    (tmp_path / "tokens.txt").write_text("".join(f"{name}#0\ta goat {k}\n" for k, name in enumerate(names)))
    return {"name": "flickr", "args": {"images": str(home), "token_file": str(tmp_path / "tokens.txt")}}


def flickr30k_entities(tmp_path):
    home, names = photos(tmp_path)
    for part in ("Sentences", "Annotations"):
        (tmp_path / part).mkdir(exist_ok=True)
    edges = "<xmin>1</xmin><ymin>2</ymin><xmax>4</xmax><ymax>8</ymax>"
    for k, name in enumerate(names):
        (home / name).rename(home / f"{k}.jpg")
        (tmp_path / "Sentences" / f"{k}.txt").write_text(f"[/EN#{k}/animals a goat] {k}\n")
        thing = f"<object><name>{k}</name><bndbox>{edges}</bndbox></object>"
        size = "<size><width>8</width><height>8</height></size>"
        (tmp_path / "Annotations" / f"{k}.xml").write_text(f"<annotation>{size}{thing}</annotation>")
    return {"name": "flickr30k_entities", "args": {"images": str(home), "folder": str(tmp_path)}}


def webdataset(tmp_path):
    home = tmp_path / "shards"
    home.mkdir(exist_ok=True)
    for shard in range(2):
        with tarfile.open(home / f"cc-{shard}.tar", "w") as tar:
            for k in range(N):
                for name, content in ((f"{k}.png", picture(100 * shard + k)), (f"{k}.txt", f"goat {k}".encode())):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content))
    return {"name": "webdataset", "args": {"shards": str(home)}}


def write_parquet(path, first=0, n=N, **columns):
    import pyarrow

    rows = {
        "image": [picture(first + k) for k in range(n)],
        "text": [[f"a goat {first + k}", f"goat {first + k} near a mill"] for k in range(n)],
        "kind": [f"kind {k % 3}" for k in range(n)],
    }
    path.parent.mkdir(exist_ok=True)
    parquet.write_table(pyarrow.table({**rows, **columns}), path, row_group_size=5)


def parquet_bytes(tmp_path):
    for k in range(2):
        write_parquet(tmp_path / "rows" / f"{k}.parquet", 50 * k)
    return {"name": "parquet", "args": {"path": str(tmp_path / "rows"), "labels": "kind"}}


def parquet_cells(tmp_path):
    cells = [{"bytes": picture(k), "path": f"{k}.png"} for k in range(N)]
    write_parquet(tmp_path / "cells" / "a.parquet", image=cells)
    return {"name": "parquet", "args": {"path": str(tmp_path / "cells" / "a.parquet"), "check": "header"}}


def parquet_names(tmp_path):
    home = tmp_path / "named"
    write_parquet(home / "a.parquet", image=[f"{k}.png" for k in range(N)])
    for k in range(N):
        (home / f"{k}.png").write_bytes(picture(k))
    return {"name": "parquet", "args": {"path": str(home)}}


def labels_folder(tmp_path):
    for k in range(N):
        home = tmp_path / "classes" / f"class_{k % 2}"
        home.mkdir(parents=True, exist_ok=True)
        (home / f"{k}.png").write_bytes(picture(k))
    return {"name": "labels", "args": {"folder": str(tmp_path / "classes")}}


def labels_parquet(tmp_path):
    write_parquet(tmp_path / "labelled" / "a.parquet")
    return {"name": "labels", "args": {"folder": str(tmp_path / "labelled" / "a.parquet"), "label": "kind"}}


def saved(tmp_path, first=0, name="saved"):
    datasets = pytest.importorskip("datasets")
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "text": datasets.Sequence(datasets.Value("string")),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
        }
    )
    rows = {
        "image": [picture(first + k) for k in range(N)],
        "text": [[f"a goat {first + k}", f"goat {k}"] for k in range(N)],
        "label": [k % 2 for k in range(N)],
    }
    table = datasets.Dataset.from_dict(rows, features=features)
    datasets.DatasetDict({"train": table, "test": table.select([0, 2])}).save_to_disk(str(tmp_path / name))
    return {"name": "hf", "args": {"dataset": str(tmp_path / name), "labels": "label"}}


def hf_rows(tmp_path):
    source = saved(tmp_path)
    return source | {"args": source["args"] | {"rows": [*range(3, N), 1], "stream": None}}


def hf_parquet(tmp_path):
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict(
        {"image": [{"bytes": picture(k), "path": None} for k in range(N)], "text": [f"a goat {k}" for k in range(N)]},
        features=datasets.Features({"image": datasets.Image(), "text": datasets.Value("string")}),
    )
    (tmp_path / "hub").mkdir()
    table.to_parquet(str(tmp_path / "hub" / "train.parquet"))
    return {"name": "hf", "args": {"dataset": str(tmp_path / "hub")}}


def hf_pictures(tmp_path):
    pytest.importorskip("datasets")
    home, names = photos(tmp_path)
    lines = [f"{name},a goat {k}" for k, name in enumerate(names)]
    (home / "metadata.csv").write_text("file_name,text\n" + "\n".join(lines) + "\n")
    return {"name": "hf", "args": {"dataset": str(home)}}


def captions(tmp_path):
    (tmp_path / "lines.txt").write_text("".join(f"a goat {k}\n" for k in range(N)))
    return {"name": "captions", "args": {"files": str(tmp_path / "lines.txt")}}


def joined(tmp_path):
    parts = [parquet_bytes(tmp_path), webdataset(tmp_path), saved(tmp_path), folder(tmp_path), coco(tmp_path)]
    write_parquet(tmp_path / "again" / "0.parquet", 70)
    write_parquet(tmp_path / "again" / "1.parquet", 90)
    parts.append({"name": "parquet", "args": {"path": str(tmp_path / "again")}})  # with the names of the first part
    return {"name": "joined", "args": {"parts": parts}}


def excluded(tmp_path):
    source = parquet_bytes(tmp_path)
    return {"name": "disjoint", "args": {"source": source, "exclude": ["0.parquet row 3:1", "1.parquet row 0:0"]}}


def disjoint(tmp_path):
    write_parquet(tmp_path / "asked" / "a.parquet", 10, 2, text=["a goat 2", "a bridge"])
    evaluation = [{"name": "parquet", "args": {"path": str(tmp_path / "asked")}}]
    return {"name": "disjoint", "args": {"source": parquet_bytes(tmp_path), "evaluation": evaluation}}


def edited(tmp_path):
    lines = [
        {
            "id": f"{k}",
            "image_id": f"{k}",
            "caption": f"a goat {k}",
            "negatives": [f"a boat {k}", f"a coat {k}"],
            "edits": [{"caption": f"a boat {k}", "operator": "noun", "spans": [[[2, 6], [2, 6]]]}],
        }
        for k in range(N)
    ]
    (tmp_path / "negatives.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = {"source": parquet_bytes(tmp_path), "edits": [str(tmp_path / "negatives.jsonl")]}
    return {"name": "edited", "args": arguments}


def edited_pictures(tmp_path):
    source = edited(tmp_path)
    write_parquet(tmp_path / "drawn" / "a.parquet", 200, 3, text=["a boat 1", "a coat 1", "a boat 4"])
    source["args"]["images"] = {"name": "parquet", "args": {"path": str(tmp_path / "drawn")}}
    return source


def corrected(tmp_path):
    trees = [{"caption": f"a goat {k}", "tree": f"(NP (DT a) (NN goat) (CD {k}))"} for k in range(5)]
    (tmp_path / "corrections.jsonl").write_text("".join(json.dumps(tree) + "\n" for tree in trees))
    arguments = {"source": folder(tmp_path), "file": str(tmp_path / "corrections.jsonl"), "parser": ""}
    return {"name": "corrected", "args": arguments}


def caption_words(tmp_path):
    return {"name": "caption_words", "args": {"source": folder(tmp_path), "words": ["3"]}}


def split(tmp_path, part="rest"):
    names = [f"{file}.parquet row {k}" for file in (0, 1) for k in (2, 3)]
    (tmp_path / "split.json").write_text(json.dumps({"parts": {"test": names}, "divergences": {"test": 0.5}}))
    arguments = {"source": parquet_bytes(tmp_path), "file": str(tmp_path / "split.json"), "part": part}
    return {"name": "split", "args": arguments}


def split_joined(tmp_path):
    (tmp_path / "other.json").write_text(
        json.dumps({"parts": {"test": ["hub train row 2", "cc-0/3"]}, "divergences": {"test": 0.5}})
    )
    parts = [hf_parquet(tmp_path), webdataset(tmp_path)]
    source = {"name": "joined", "args": {"parts": parts}}
    return {"name": "split", "args": {"source": source, "file": str(tmp_path / "other.json"), "part": "rest"}}


CASES = [
    *(folder, folder_negatives, sidecar, coco, karpathy, flickr, flickr30k_entities, webdataset, captions),
    *(labels_folder, labels_parquet),
    *(parquet_bytes, parquet_cells, parquet_names, saved, hf_rows, hf_parquet, hf_pictures),
    *(joined, excluded, disjoint, edited, edited_pictures, corrected, caption_words, split, split_joined),
]
# these draw their pairs, or hold pixels, graphs or regions, and stay lists
LISTS = {
    *("generated", "objects", "photos", "gallery", "abstract_scenes", "trifeature", "hue_ring"),
    "quilts",
    "regions",  # features are no rows of a table of pairs
    "sign_patterns",
    *("celeba", "cifar_mnist", "stl10", "nlvr", "visual_genome"),
}


def described(image):
    return image.read_bytes() if hasattr(image, "read_bytes") and not isinstance(image, Path) else image


def values(pair):
    "The fields of a pair, of images their bytes."
    parts = {field.name: getattr(pair, field.name) for field in fields(pair)}
    parts["image"] = described(pair.image)
    if pair.negative_images is not None:
        parts["negative_images"] = {text: described(image) for text, image in pair.negative_images.items()}
    return parts


def unread(monkeypatch):
    "From now on no reader may be called."

    def forbidden(function):
        @wraps(function)
        def read_again(*_, **__):
            raise AssertionError(f"{function.__name__} reads its source again")

        if hasattr(function, "parts"):
            read_again.parts = read_again
        return read_again

    for name, function in READERS.entries.items():
        monkeypatch.setitem(READERS.entries, name, forbidden(function))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_pairs_are_the_same_with_and_without_a_table_and_read_once(case, tmp_path, tables, monkeypatch):
    source = case(tmp_path)
    name, arguments = source["name"], source["args"]
    with monkeypatch.context() as patch:
        patch.setattr(pair_table, "LARGE", 10**9)
        pairs = read(name, **arguments)
    assert isinstance(pairs, list) and len(pairs) >= 10 and not list(tables.glob("*.arrow"))
    first = read(name, **arguments)
    unread(monkeypatch)
    second = read(name, **arguments)
    for table in (first, second):
        assert isinstance(table, PairTable) and len(table) == len(pairs)
        assert list(map(values, table)) == list(map(values, pairs))
        assert [values(table[k]) for k in (0, 5, -1)] == [values(pairs[k]) for k in (0, 5, -1)]
        assert str(table.report) == str(pairs.report) and table.source == pairs.source
        assert table.ids() == [pair.id for pair in pairs] and table.image_ids() == [pair.image_id for pair in pairs]
        assert fingerprint(table) == fingerprint(pairs)
        assert content_fingerprint(table) == content_fingerprint(pairs)
        some = table.select([7, 3, 4])
        assert [pair.id for pair in some] == [pairs[k].id for k in (7, 3, 4)]
        assert fingerprint(some) == fingerprint([pairs[k] for k in (7, 3, 4)])


def test_every_reader_is_compared_or_known_to_stay_a_list():
    with_tables = {name for name in READERS if hasattr(READERS[name], "files")}
    assert with_tables == {name for name in READERS if name not in LISTS}
    names = ["labels" if case.__name__.startswith("labels") else case.__name__.split("_")[0] for case in CASES]
    longer = {"saved": "hf", "excluded": "disjoint", "caption": "caption_words", "flickr30k": "flickr30k_entities"}
    names = {longer.get(name, name) for name in names}
    assert names == with_tables


# --- images of a table


def held(tables):
    return list(tables.glob("*.images"))


def test_images_of_a_table_are_copied_once_and_read_by_workers(tmp_path, tables):
    source = parquet_bytes(tmp_path)
    table = read("parquet", **source["args"])
    assert all(isinstance(pair.image, _HeldImage) for pair in table)
    assert table[0].image == table[1].image  # two captions of one row
    [path] = held(tables)
    assert path.stat().st_size == sum(len(picture(50 * file + k)) + 4 for file in (0, 1) for k in range(N))
    again = pickle.loads(pickle.dumps(read("parquet", **source["args"])))
    assert again[6].image.read_bytes() == picture(3) and "row 3" in again[6].image.name
    stream = Loader(again, Collate(Transform(8), WordTokenizer.fit(["a."])), 4, seed=0, workers=1).batches(0)
    assert next(stream).images.shape == (4, 3, 8, 8)
    stream.close()
    path.unlink()  # a table that makes room for others stays readable where it is open
    assert again[8].image.read_bytes() == picture(4)


@pytest.mark.parametrize("damage", ["gone", "cut", "longer"])
def test_a_table_whose_images_are_damaged_is_made_again(damage, tmp_path, tables):
    source = parquet_bytes(tmp_path)
    whole = list(map(values, read("parquet", **source["args"])))
    [path] = held(tables)
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
        pair_table._images_file.cache_clear()  # as in another process
        again = read("parquet", **source["args"])
    else:
        path.write_bytes(content[:-9] if damage == "cut" else content + b"0")
        with pytest.warns(UserWarning, match="images is damaged.*the table of pairs is made again"):
            again = read("parquet", **source["args"])
    assert isinstance(again, PairTable) and list(map(values, again)) == whole
    assert len(held(tables)) == 1 and held(tables) != [path]


def test_a_changed_byte_of_an_image_is_named_with_the_remedy(tmp_path, tables):
    source = parquet_bytes(tmp_path)
    table = read("parquet", **source["args"])
    [path] = held(tables)
    content = bytearray(path.read_bytes())
    content[table[6].image.offset + 30] ^= 1
    path.write_bytes(content)
    with pytest.raises(BrokenImage, match=r"row 3: its copy is damaged; delete .*images and start again"):
        table[6].image.read_bytes()
    assert table[8].image.read_bytes() == picture(4)


def test_a_replaced_parquet_file_is_read_again(tmp_path, tables):
    source = parquet_bytes(tmp_path)
    first = read("parquet", **source["args"])
    write_parquet(tmp_path / "rows" / "1.parquet", 80)
    second = read("parquet", **source["args"])
    assert second[28].caption == "a goat 80" and second[28].image.read_bytes() == picture(80)
    assert first[28].image.read_bytes() == picture(50) and fingerprint(first) != fingerprint(second)


def test_a_picture_that_a_parquet_file_names_is_missed_at_a_second_start(tmp_path, tables):
    source = parquet_names(tmp_path)
    assert isinstance(read("parquet", **source["args"]), PairTable)
    (tmp_path / "named" / "3.png").unlink()
    with pytest.raises(BadData, match="not found"):
        read("parquet", **source["args"])
    home = tmp_path / "rows"
    write_parquet(home / "a.parquet")
    (home / "notes.txt").write_text("a folder of results beside the data")
    files = list(READERS["parquet"].files(str(home)))
    assert files == [home / "a.parquet"]  # its images are in it, so its folder does not matter


def test_a_table_of_another_table_is_made_again_with_it(tmp_path, tables):
    source = split(tmp_path)
    whole = list(map(values, read("split", **source["args"])))
    assert len(held(tables)) == 1 and len(list(tables.glob("*.arrow"))) == 2  # the part's images serve both
    for path in tables.iterdir():
        if path.stem.partition("-")[0] == held(tables)[0].stem.partition("-")[0]:
            if path.suffix != ".images":
                path.unlink()
    assert list(map(values, read("split", **source["args"]))) == whole  # the images alone suffice
    held(tables)[0].unlink()
    pair_table._images_file.cache_clear()
    assert list(map(values, read("split", **source["args"]))) == whole
    assert len(held(tables)) == 1 and len(list(tables.glob("*.arrow"))) == 2


def test_images_count_where_tables_make_room_and_those_in_use_stay(tmp_path, tables, monkeypatch):
    write_parquet(tmp_path / "old" / "a.parquet", 300)
    read("parquet", path=str(tmp_path / "old"))
    for path in tables.iterdir():
        os.utime(path, (100, 100))
    left = tables / f"{'0' * 32}-12345678.images"
    left.write_bytes(b"of a writer that was killed")
    os.utime(left, (100, 100))
    monkeypatch.setenv("COMPLEARN_CACHE_GB", str(1 / 2**30))
    source = split(tmp_path)
    assert isinstance(read("split", **source["args"]), PairTable)
    assert not left.exists() and len(held(tables)) == 1 and len(list(tables.glob("*.arrow"))) == 2
    unread(monkeypatch)
    assert isinstance(read("split", **source["args"]), PairTable)


def test_images_that_another_process_is_writing_make_no_room(tmp_path, tables, monkeypatch):
    key = "0" * 32
    tables.mkdir(parents=True)
    writing = tables / f"{key}-12345678.images"
    writing.write_bytes(b"half of them")
    os.utime(writing, (100, 100))
    monkeypatch.setenv("COMPLEARN_CACHE_GB", str(1 / 2**30))
    write_parquet(tmp_path / "rows" / "a.parquet", 300)
    write_parquet(tmp_path / "others" / "a.parquet", 400)
    with hold(tables, f"{key}.lock"):
        read("parquet", path=str(tmp_path / "rows"))
        assert writing.exists() and (tables / f"{key}.lock").exists()
    read("parquet", path=str(tmp_path / "others"))
    assert not writing.exists() and not (tables / f"{key}.lock").exists()


def read_slowly(arguments, wait, said):
    rows = reader_tables.parquet_rows

    def parquet_rows(file, *options):
        said.put(file.name)
        time.sleep(wait)
        return rows(file, *options)

    reader_tables.parquet_rows = parquet_rows
    said.put(len(read("parquet", **arguments)))


def start(arguments, wait):
    processes = multiprocessing.get_context("fork")
    said = processes.Queue()
    process = processes.Process(target=read_slowly, args=(arguments, wait, said))
    process.start()
    return process, said


def test_a_killed_writer_of_images_and_two_writers_leave_one_table(tmp_path, tables):
    for k in range(6):
        write_parquet(tmp_path / "rows" / f"{k}.parquet", 50 * k)
    arguments = {"path": str(tmp_path / "rows"), "check": "header"}
    killed, said = start(arguments, 0.3)
    while said.get(timeout=60) != "4.parquet":
        assert killed.is_alive()
    os.kill(killed.pid, signal.SIGKILL)
    killed.join()
    assert len(held(tables)) == 1 and not list(tables.glob("*.arrow"))
    writers = [start(arguments, 0.3) for _ in range(2)]
    lines = []
    for process, said in writers:
        heard = []
        while not heard or not isinstance(heard[-1], int):
            heard.append(said.get(timeout=60))
        lines.append(heard)
        process.join()
    assert [heard[-1] for heard in lines] == [6 * N * 2] * 2
    assert sorted(heard.count("5.parquet") for heard in lines) == [0, 1]  # one read the rest, one waited
    assert len(held(tables)) == 1 and len(read("parquet", **arguments)) == 6 * N * 2


# --- images in the rows of a data set


def test_rows_of_a_data_set_are_opened_with_the_first_image(tmp_path, tables, monkeypatch):
    source = saved(tmp_path)
    read("hf", **source["args"])
    opened = []
    load = reader_tables._load_table

    def load_table(*arguments):
        opened.append(arguments[1])
        return load(*arguments)

    monkeypatch.setattr(reader_tables, "_load_table", load_table)
    table = pickle.loads(pickle.dumps(read("hf", **source["args"])))
    assert all(isinstance(pair.image, RowImage) for pair in table) and not opened
    assert table[8].image.read_bytes() == picture(4) and table[:4][1].image.read_bytes() == picture(0)
    assert opened == [str(tmp_path / "saved")]


def test_a_data_set_that_changes_behind_an_open_table_is_named(tmp_path, tables):
    source = saved(tmp_path)
    read("hf", **source["args"])
    table = read("hf", **source["args"])
    shutil.rmtree(tmp_path / "saved")
    saved(tmp_path, 50)
    with pytest.raises(BadData, match="saved has changed since its pairs were read; start again"):
        table[0].image.read_bytes()
    again = read("hf", **source["args"])
    assert again[0].caption == "a goat 50" and again[0].image.read_bytes() == picture(50)


def test_data_sets_in_memory_or_with_files_elsewhere_stay_lists(tmp_path, tables):
    datasets = pytest.importorskip("datasets")
    source = saved(tmp_path)
    in_memory = datasets.load_from_disk(source["args"]["dataset"])
    assert isinstance(read("hf", dataset=in_memory), list)
    assert isinstance(read("hf", **source["args"], allow_outside=True), list)
    with follow_outside():
        assert isinstance(read("hf", **source["args"]), list)
    assert not list(tables.glob("*.arrow"))


# --- tables of composed readers


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_photo_that_becomes_one_of_the_evaluation_is_left_out_at_the_next_start(tmp_path, tables):
    evaluation = tmp_path / "asked"
    evaluation.mkdir()
    (evaluation / "q.png").write_bytes(picture(900))
    (evaluation / "captions.csv").write_text("image,caption\nq.png,a bridge\n")
    asked = {"name": "folder", "args": {"folder": str(evaluation)}}
    arguments = {"source": folder(tmp_path), "evaluation": [asked]}
    assert len(read("disjoint", **arguments)) == N
    (tmp_path / "photos" / f"{3:012d}.png").write_bytes(picture(900))  # its folder does not tell
    assert len(read("disjoint", **arguments)) == N - 1


def test_a_reader_of_a_part_without_a_table_has_none(tmp_path, tables):
    drawn = {"name": "objects", "args": {"n_train": 12, "world": "small"}}
    pairs = read("joined", parts=[webdataset(tmp_path), drawn])
    assert isinstance(pairs, list) and len(pairs) == 2 * N + 12
    with pytest.raises(ValueError, match="nobody can tell when the pairs of 'objects' change"):
        list(READERS["joined"].files([drawn]))
    with pytest.raises(ValueError, match="'folder'"):
        read("joined", parts=[{"name": "foldr"}])


def test_parses_of_another_version_of_a_parser_make_another_table(tmp_path, tables, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CORRECTIONS", str(tmp_path / "mine.jsonl"))
    source = corrected(tmp_path)["args"]
    files = [list(READERS["corrected"].files(**source | {"parser": "spacy"}))]
    (tmp_path / "mine.jsonl").write_text("")
    files.append(list(READERS["corrected"].files(**source | {"parser": "spacy"})))
    assert isinstance(files[0][-1], str) and files[1] == [*files[0], tmp_path / "mine.jsonl"]


# --- reading in parts


def test_samples_that_are_handed_out_are_compared_with_later_ones(tmp_path, tables, monkeypatch):
    for k in range(3):
        write_parquet(tmp_path / "rows" / f"{k}.parquet", text=[f"a goat {k}" for k in range(N)])  # the same rows
    arguments = {"path": str(tmp_path / "rows"), "check": "header"}
    assert "28 captions stand there again with the same image" in str(READERS["parquet"](**arguments).report)
    monkeypatch.setattr(reports, "FEW_IMAGES", 5)
    cut = picture(7)[:-30]
    for k, name in enumerate(("a", "b")):
        write_parquet(tmp_path / name / "0.parquet", 0, 4)
        write_parquet(tmp_path / name / "1.parquet", 10 * k, 4, image=[picture(1), picture(2), picture(30 * k), cut])
    few = READERS["parquet"](path=str(tmp_path / "a"), max_bad=0.5)  # five images, one of them cut off, are decoded
    assert few.report.n_skipped == 2 and "image unreadable" in str(few.report)
    assert not READERS["parquet"](path=str(tmp_path / "b"), max_bad=0.5).report.n_skipped  # six are not
