"""Broken variants of small valid sets: what each reader keeps, skips and names; `csv`, `pandas`, `webdataset`,
`datasets` are asked too."""

import csv
import io
import json
import os
import sys
import tarfile
import threading
import warnings
import zlib
from contextlib import contextmanager, suppress

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from complearn.analysis.stages.groupings import _read_embeddings
from complearn.core.bounds import check_packed, check_parquet, check_stored, inflate, load_arrays
from complearn.core.files import BadData, read_json, read_text
from complearn.core.hashes import file_hash
from complearn.core.results import Result
from complearn.data.benchmarks import aro, groups
from complearn.data.benchmarks.crepe import read_crepe_productivity
from complearn.data.benchmarks.sugarcrepe import read_sugarcrepe
from complearn.data.benchmarks.valse import read_valse
from complearn.data.divergence.measure import read_split
from complearn.data.fixtures.specimens import (
    CAPTIONS,
    COCO,
    NAMES,
    SPECIMENS,
    _shard_samples,
    _write_celeba,
    _write_cifar_mnist,
    _write_shard,
    _write_stl10,
    write_clipart,
)
from complearn.data.images import open_image
from complearn.data.readers.edits import _TakenIds, read_captions, read_edits
from complearn.data.readers.files import read_pictures, read_rows, read_upload
from complearn.data.readers.registry import read
from complearn.data.readers.shards import _index_shard
from complearn.data.readers.tables import read_hf

N = len(CAPTIONS)
READ = {
    "folder": lambda f, **o: read("folder", folder=f, **o),
    "folder tsv": lambda f, **o: read("folder", folder=f, captions_file="captions.tsv", **o),
    "folder jsonl": lambda f, **o: read("folder", folder=f, captions_file="captions.jsonl", **o),
    "coco": lambda f, **o: read("coco", images=f / "coco/val2017", annotations=f / COCO, **o),
    "flickr": lambda f, **o: read(
        "flickr",
        images=f / "flickr8k/images",
        token_file=f / TOKENS,
        split_file=f / "flickr8k/Flickr_8k.testImages.txt",
        **o,
    ),
    "karpathy": lambda f, **o: read("karpathy", annotations=f / KARPATHY, images=f / "coco", split="test", **o),
    "webdataset": lambda f, **o: read("webdataset", shards=f, **o),
    "webdataset json": lambda f, **o: read("webdataset", shards=f, text="json", **o),
    "parquet": lambda f, **o: read("parquet", path=f, **o),
    "labels parquet": lambda f, **o: read("labels", folder=f / "train.parquet", **o),
    "hf": lambda f, **o: read("hf", dataset=str(f / "set"), **o),
    "labels": lambda f, **o: read("labels", folder=f, **o),
    "nlvr": lambda f, **o: read("nlvr", folder=f / "nlvr/dev", half="all", **o),
    "pictures": lambda f, **o: read_pictures(f, **o),
    "visual_genome": lambda f, **o: read("visual_genome", folder=f, part="all", rare=0, min_triplets=0, **o),
    "sugarcrepe": lambda f, **o: read_sugarcrepe(f / "sugarcrepe", f / "coco/val2017", ("swap_obj",), **o),
    "order": lambda f, **o: aro.read_order(f / ORDER, f / "coco", **o),
    "aro_relation": lambda f, **o: aro.read_aro_relation(f / "aro", (), **o),
    "crepe_productivity": lambda f, **o: read_crepe_productivity(f / "crepe", None, "swap", (4,), **o),
    "cola": lambda f, **o: groups.read_cola(f / "cola", None, **o),
    "valse": lambda f, **o: read_valse(f / "valse", None, ("plurals",), 0, **o),
    "mmvp": lambda f, **o: groups.read_mmvp(f / "mmvp", **o),
}
SUGAR = "sugarcrepe/swap_obj.json"
ORDER = "aro/coco_karpathy_test.json"
COLA = "cola/COLA_multiobjects_matching_benchmark.json"
BOXES = "aro/visual_genome_relation.json"
CREPE = "crepe/prod_hard_negatives/swap/prod_vg_hard_negs_swap_complexity_4.csv"
VALSE = "valse/plurals.json"
CSV = "captions.csv"
TSV = "captions.tsv"
JSONL = "captions.jsonl"
NLVR = "nlvr/dev/dev.json"
IMAGES = "image_data.json"
RELATIONS = "relationships.json"
TOKENS = "flickr8k/Flickr8k.token.txt"
LIST = "flickr8k/Flickr_8k.testImages.txt"
KARPATHY = "karpathy/dataset_coco.json"


# --- ways to break a file


def replace(file, old, new, count=1):
    """Replace text or bytes in a file."""
    old, new = (part.encode() if isinstance(part, str) else part for part in (old, new))

    def change(folder):
        content = (folder / file).read_bytes()
        assert old in content
        (folder / file).write_bytes(content.replace(old, new, count))

    return change


def append(file, text):
    """Add text at a file's end."""
    return lambda folder: (folder / file).write_bytes(
        (folder / file).read_bytes() + (text if isinstance(text, bytes) else text.encode())
    )


def prepend(file, content):
    """Add bytes at a file's start."""
    return lambda folder: (folder / file).write_bytes(content + (folder / file).read_bytes())


def write(file, content):
    """Write a file again."""

    def change(folder):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def edit(file, change):
    """Change a JSON file's content in place."""

    def rewrite(folder):
        content = json.loads((folder / file).read_text())
        change(content)
        (folder / file).write_text(json.dumps(content))

    return rewrite


def row(file, number, change):
    """Change one line of a JSONL file, a text or a record."""

    def rewrite(folder):
        lines = (folder / file).read_text().splitlines()
        lines[number] = change if isinstance(change, str) else json.dumps(json.loads(lines[number]) | change)
        (folder / file).write_text("\n".join(lines) + "\n")

    return rewrite


def shard(**changes):
    """Write the shard with some samples changed."""
    return lambda folder: _write_shard(folder / "a-0.tar", _shard_samples() | changes)


def flip(*members):
    """Flip one bit in the header of members of the shard."""

    def change(folder):
        content = bytearray((folder / "a-0.tar").read_bytes())
        with tarfile.open(folder / "a-0.tar") as tar:
            for member in tar:
                if member.name in members:
                    content[member.offset + 124] ^= 1
        (folder / "a-0.tar").write_bytes(content)

    return change


def twice(folder):
    """Write a shard in which a sample stands twice."""
    _write_shard(folder / "a-0.tar", _shard_samples())
    with tarfile.open(folder / "a-0.tar", "a") as tar:
        for extension, content in _shard_samples()["00002"].items():
            member = tarfile.TarInfo(f"00002.{extension}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def cell(column, number, value, kind=None):
    """Change one cell of the parquet file."""

    def change(folder):
        pyarrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        table = parquet.read_table(folder / "train.parquet").to_pydict()
        table[column] = [value if k == number else kind(item) if kind else item for k, item in enumerate(table[column])]
        parquet.write_table(pyarrow.table(table), folder / "train.parquet")

    return change


def picture(file, mode="RGB", kind=None, size=(8, 8), **options):
    """Write a picture."""

    def change(folder):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        Image.new(mode, size).save(folder / file, kind, **options)

    return change


def huge_png():
    """A PNG of 13,300 x 13,300 pixels in few bytes: only its header is ever read."""

    def chunk(name, data):
        return len(data).to_bytes(4, "big") + name + data + zlib.crc32(name + data).to_bytes(4, "big")

    header = (13_300).to_bytes(4, "big") * 2 + bytes([8, 2, 0, 0, 0])
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + chunk(b"IEND", b"")
    )


def both(*changes):
    """Several changes."""
    return lambda folder: [change(folder) for change in changes]


DDS = b"DDS " + (124).to_bytes(4, "little") + b"\xff" * 120 + bytes(64)
SAMPLE = _shard_samples()["00000"]
SWALLOWED = f'{NAMES[0]},"A dog.\n{NAMES[1]},A cat.\n{NAMES[2]},A red one."\n'
LONE = f'{NAMES[0]},"A dog.\n'
TABLE_OF_40 = "image,caption\n" + "".join(f"{NAMES[k % N]},{chr(34) if k == 4 else ''}Photo {k}.\n" for k in range(40))
DEEP = "[" * 20_000
LONG = "1" * 5000

# reader, what is broken, how, what is kept, what is skipped by reason, what the report or the error says
CASES = [
    ("folder", "nothing", both(), N, {}, "nothing skipped"),
    ("folder", "a caption begins with a lone quotation mark", append(CSV, LONE), N, {"bad row": 1}, "captions.csv line "
                                                                                                    "8"),
    ("folder", "a lone quotation mark in the fifth of 40 rows", write(CSV, TABLE_OF_40), 39, {"bad row": 1},
        "captions.csv line 6"),
    ("folder", "a quoted caption of two lines", append(CSV, f'{NAMES[0]},"Two\nlines."\n'), N + 1, {}, ""),
    ("folder", "a quotation mark that is closed two rows later", append(CSV, SWALLOWED), N + 1, {},
     r"1 cells hold lines that look like rows .captions.csv line 8.; each is read as one cell"),
    ("folder", "a quoted caption of two lines with a comma", append(CSV, f'{NAMES[0]},"Two\nlines, '
                                                                         f'here."\n'), N + 1, {},
     "1 captions hold characters that are not seen, and stay as they are .captions.csv line 8: U.000A"),
    ("folder", "a zero-width space and NUL", append(CSV, f"{NAMES[0]},A\u200b dog\0.\n"), N + 1, {}, "line 8: U.200B "
                                                                                                     "U.0000"),
    ("folder", "a caption of zero-width spaces", append(CSV, f"{NAMES[0]},\u200b \u200b\n"), N, {"empty caption": 1},
        "line 8"),
    ("folder", "one Latin-1 byte", append(CSV, f"{NAMES[0]},Caf\xe9.\n".encode("latin-1")), 0, {},
     "captions.csv line 8: not UTF-8 .byte 0xe9"),
    ("folder", "a byte-order mark", prepend(CSV, b"\xef\xbb\xbf"), N, {}, ""),
    ("folder", "UTF-16", write(CSV, "image,caption\na.png,A.\n".encode("utf-16")), 0, {}, "line 1: not UTF-8.*save the "
                                                                                          "file as UTF-8"),
    ("folder", "a cell of 200,000 characters", append(CSV, f"{NAMES[0]},{'a' * 200_000}\n"), N, {"bad row": 1},
        "captions.csv line 8"),
    ("folder", "an empty caption", append(CSV, f"{NAMES[0]}, \n"), N, {"empty caption": 1}, "line 8"),
    ("folder", "three cells", append(CSV, f"{NAMES[0]},A dog, running.\n"), N, {"bad row": 1}, "line 8"),
    ("folder", "one cell", append(CSV, "A dog.\n"), N, {"bad row": 1}, "line 8"),
    ("folder", "a missing image", append(CSV, "gone.png,A dog.\n"), N, {"image not found": 1}, "line 8: gone.png"),
    ("folder", "a name with a null byte", append(CSV, "a\0b.png,A dog.\n"), N, {"image not found": 1}, "line 8"),
    ("folder", "a name of 5,000 letters", append(CSV, f"{'a' * 5000}.png,A dog.\n"), N, {"image not "
                                                                                         "found": 1}, "line 8"),
    ("folder", "a DDS file", write(NAMES[0], DDS), N - 1, {"image unreadable": 1}, "cannot identify image file"),
    ("folder", "a cut AVIF file", write(NAMES[0], b"\0\0\0\x20ftypavif\0\0\0\0avifmif1"), N - 1,
        {"image unreadable": 1}, NAMES[0]),
    ("folder", "an empty image file", write(NAMES[0], b""), N - 1, {"image unreadable": 1}, "the file is empty"),
    ("folder", "a PNG of 13,300 x 13,300", write(NAMES[0], huge_png()), N - 1, {"image too large": 1}, "177 megapixels "
                                                                                                       "and more than "
                                                                                                       "50"),
    ("folder", "a row that is repeated", append(CSV, f"{NAMES[0]},{CAPTIONS[0]}\n"), N + 1, {},
     "1 captions stand there again with the same image .captions.csv line 8"),
    ("folder", "a column that is repeated", write(CSV, "image,caption,image\n"), 0, {}, "two columns are called "
                                                                                        "'image'"),
    ("folder", "the header alone", write(CSV, "image,caption\n"), 0, {}, "not a single sample"),
    ("folder tsv", "quotation marks in plain cells", append(TSV, f'{NAMES[0]}\t"Stop!" it '
                                                                 f'says.\n{NAMES[1]}\t"Go!"\n'), N + 2, {}, ""),
    ("folder tsv", "a lone mark that another one closes", append(TSV, SWALLOWED.replace(",", "\t")), N + 3, {}, ""),
    ("folder jsonl", "a key that stands twice", row(JSONL, 2, '{"caption": "A.", "caption": '
                                                              '"B."}'), N - 1, {"bad row": 1},
     "captions.jsonl line 3: the key 'caption' stands twice in one object"),
    ("folder jsonl", "null as caption", row(JSONL, 2, {"caption": None}), N - 1, {"bad row": 1}, "captions.jsonl line "
                                                                                                 "3"),
    ("folder jsonl", "a number as caption", row(JSONL, 2, {"caption": 5}), N - 1, {"bad row": 1}, "line 3"),
    ("folder jsonl", "an empty list of captions", row(JSONL, 2, {"caption": []}), N - 1, {"bad row": 1}, "line 3"),
    ("folder jsonl", "a list of captions", row(JSONL, 2, {"caption": ["A.", "B."]}), N + 1, {}, ""),
    ("folder jsonl", "null as image", row(JSONL, 2, {"image": None}), N - 1, {"bad row": 1}, "line 3"),
    ("folder jsonl", "20,000 brackets", row(JSONL, 2, DEEP), N - 1, {"bad row": 1}, "line 3"),
    ("folder jsonl", "a number of 5,000 digits", row(JSONL, 2, f'{{"image": {LONG}}}'), N - 1, {"bad row": 1},
        "line 3"),
    ("folder jsonl", "half an emoji", row(JSONL, 2, {"caption": "A \ud83d dog."}), N - 1, {"bad row": 1}, "line 3"),
    ("folder jsonl", "a list instead of an object", row(JSONL, 2, "[]"), N - 1, {"bad row": 1}, "line 3"),
    ("coco", "nothing", both(), 2 * N, {}, "nothing skipped"),
    ("coco", "photos' ids as text", edit(COCO, lambda c: [p.update(id=str(p["id"])) for p in c["images"]]), 2 * N, {},
        ""),
    ("coco", "captions' photos as text", edit(COCO,
            lambda c: [a.update(image_id=str(a["image_id"])) for a in c["annotations"]]), 2 * N,
     {}, ""),
    ("coco", "a missing image_id", edit(COCO, lambda c: c["annotations"][0].pop("image_id")), 2 * N - 1,
        {"bad record": 1}, "annotation 0"),
    ("coco", "null as caption", edit(COCO, lambda c: c["annotations"][0].update(caption=None)), 2 * N - 1,
        {"bad record": 1},
     "annotation 0"),
    ("coco", "half an emoji", edit(COCO, lambda c: c["annotations"][0].update(caption="\ud83d")), 2 * N - 1,
        {"bad record": 1}, ""),
    ("coco", "a photo that is not listed", edit(COCO, lambda c: c["images"].pop(0)), 2 * N - 2, {"photo not "
                                                                                                 "listed": 2},
                                                                                                 "annotation 0"),
    ("coco", "a photo without a name", edit(COCO, lambda c: c["images"][0].pop("file_name")), 2 * N - 2,
     {"bad record": 1, "photo not listed": 2}, "captions_val2017.json image 0"),
    ("coco", "an annotation that is repeated", edit(COCO, lambda c: c["annotations"].append(c["annotations"][0])),
        2 * N,
     {"repeated id": 1}, ""),
    ("coco", "an annotation that is a number", edit(COCO, lambda c: c["annotations"].append(5)), 2 * N,
        {"bad record": 1},
     f"number {2 * N}"),
    ("coco", "images as a mapping", edit(COCO, lambda c: c.update(images={})), 0, {}, "'images' should be a list, not "
                                                                                      "a dict"),
    ("coco", "20,000 brackets", write(COCO, DEEP), 0, {}, "captions_val2017.json: nested too deeply; get the file "
                                                          "again"),
    ("coco", "a number of 5,000 digits", write(COCO, LONG), 0, {}, "captions_val2017.json: a number of thousands of "
                                                                   "digits"),
    ("coco", "one Latin-1 byte", replace(COCO, "A red", b"A r\xe9d"), 0, {}, "captions_val2017.json line 1: not UTF-8"),
    ("coco", "a key that stands twice", replace(COCO, '"caption":', '"caption": "B.", "caption":'), 0, {},
     "captions_val2017.json: the key 'caption' stands twice in one object"),
    ("flickr", "nothing", both(), N, {}, "nothing skipped"),
    ("flickr", "a byte-order mark in the list", prepend(LIST, b"\xef\xbb\xbf"), N, {}, ""),
    ("flickr", "a byte-order mark in the captions", prepend(TOKENS, b"\xef\xbb\xbf"), N, {}, ""),
    ("flickr", "a listed photo without a caption", append(LIST, "\ngone.jpg"), N, {}, "1 listed photos have no caption "
                                                                                      ".* .gone.jpg"),
    ("flickr", "a line without a tab", append(TOKENS, "000000000001.jpg A dog.\n"), N, {"bad row": 1}, f"line {N + 1}"),
    ("flickr", "a line separator inside a caption", append(TOKENS, "000000000001.jpg#1\tA "
                                                                   "dog\u2028runs.\n"), N + 1, {}, ""),
    ("flickr", "a number of a caption that is taken", append(TOKENS, "000000000001.jpg#0\tA "
                                                                     "dog.\n"), N, {"repeated id": 1},
     f"line {N + 1}"),
    ("flickr", "one Latin-1 byte", append(TOKENS, b"000000000001.jpg#1\tCaf\xe9\n"), 0, {}, f"line {N + 1}: not UTF-8"),
    ("karpathy", "an empty list of sentences", edit(KARPATHY, lambda c: c["images"][0].update(sentences=[])), N - 1,
        {"no caption": 1},
     "image 0"),
    ("karpathy", "null as sentences", edit(KARPATHY, lambda c: c["images"][0].update(sentences=None)), N - 1,
        {"bad record": 1}, "image 0"),
    ("karpathy", "null as a sentence", edit(KARPATHY, lambda c: c["images"][0].update(sentences=[None])), N - 1,
        {"bad record": 1},
     "sentence 0"),
    ("karpathy", "a photo without a name", edit(KARPATHY, lambda c: c["images"][0].pop("filename")), N - 1,
        {"bad record": 1}, "image 0"),
    ("karpathy", "a name of 5,000 letters", edit(KARPATHY, lambda c: c["images"][0].update(filename="a" * 5000)), N - 1,
     {"image not found": 1}, ""),
    ("webdataset", "nothing", both(), N, {}, "nothing skipped"),
    ("webdataset", "a flipped bit in an image's header", flip("00002.png"), N - 1, {"incomplete "
                                                                                    "sample": 1}, "sample 00002"),
    ("webdataset", "a flipped bit in the first header", flip("00000.png"), N - 1, {"incomplete "
                                                                                   "sample": 1}, "sample 00000"),
    ("webdataset", "flipped bits in all headers of a sample", flip("00002.png", "00002.txt", "00002.json"), N - 1,
     {"sample lost at a damaged place": 1}, "a-0.tar byte"),
    ("webdataset", "a flipped bit in a header that is not needed", flip("00002.json"), N, {}, ""),
    ("webdataset", "a sample that stands there twice", twice, N, {"repeated key": 1}, "sample 00002"),
    ("webdataset", "a text that is not UTF-8", shard(**{"00006": SAMPLE | {"txt": b"Caf\xe9"}}), N, {"bad row": 1},
        "00006"),
    ("webdataset", "a sample without a text", shard(**{"00006": {"png": b""}}), N, {"incomplete sample": 1}, "00006"),
    ("webdataset", "another program's file", shard(**{"._00006": {"png": b"x"}}), N, {}, ""),
    ("webdataset json", "lists of captions", both(), 2 * N, {}, "nothing skipped"),
    ("webdataset json", "a number as caption", shard(**{"00000": SAMPLE | {"json": b'{"caption": 5}'}}), 2 * N - 2,
        {"bad row": 1}, ""),
    ("webdataset json", "half a file", shard(**{"00000": SAMPLE | {"json": b'{"cap'}}), 2 * N - 2, {"bad row": 1}, ""),
    ("webdataset json", "20,000 brackets", shard(**{"00000": SAMPLE | {"json": DEEP.encode()}}), 2 * N - 2,
        {"bad row": 1}, ""),
    ("parquet", "nothing", both(), N, {}, "nothing skipped"),
    ("parquet", "an empty image cell", cell("image", 1, None), N - 1, {"no image": 1}, "train.parquet row 1"),
    ("parquet", "an empty text cell", cell("text", 1, None), N - 1, {"bad row": 1}, "row 1"),
    ("parquet", "mappings as texts", cell("text", 1, {"en": "A."}, lambda text: {"en": text}), 0, {}, "row 0: texts "
                                                                                                      "should be"),
    ("parquet", "a broken number among whole ones", cell("text", 1, 0.5, lambda text: 3.0), N - 1, {"bad row": 1},
        "row 1"),
    ("parquet", "half a file", lambda f: write("train.parquet", (f / "train.parquet").read_bytes()[:300])(f), 0, {},
     "cut off in the middle"),
    ("labels parquet", "an empty label", cell("label", 1, None), N - 1, {"no label": 1}, "row 1"),
    ("labels", "one class of .bmp, .gif, .tif and .jfif", both(*(picture(f"bird/a.{kind}") for kind in ("bmp", "gif",
                    "tif", "jfif"))),
     N + 4, {}, ""),
    ("labels", "nested images", picture("dog/puppies/small/a.png"), N + 1, {}, ""),
    ("labels", "a class without an image", lambda f: (f / "bird").mkdir(), N, {}, "1 classes without an image .bird"),
    ("labels", "a hidden folder", picture(".hidden/a.png"), N, {}, ""),
    ("labels", "a text and an image outside the classes", both(write("dog/notes.txt", "x"), picture("a.png")), N, {},
     "2 files that are no image of a class"),
    ("nlvr", "nothing", both(), 2 * N * 2, {}, "24 of 24 sentences: half='all' with seed 0"),
    ("nlvr", "labels True, true and yes",
     both(replace(NLVR, '"true"', '"True"'), replace(NLVR, '"true"', "true"), replace(NLVR, '"true"', '"yes"')),
     2 * N * 2, {}, ""),
    ("nlvr", "a label of another kind", replace(NLVR, '"true"', '"maybe"'), 2 * N * 2 - 2, {"bad row": 1}, "dev.json "
                                                                                                           "line 1"),
    ("nlvr", "a byte-order mark", prepend(NLVR, b"\xef\xbb\xbf"), 2 * N * 2, {}, ""),
    ("nlvr", "null instead of boxes", row(NLVR, 0, {"structured_rep": None}), 2 * N * 2 - 2, {"bad row": 1}, "dev.json "
                                                                                                             "line 1"),
    ("visual_genome", "nothing", both(), N, {}, "nothing skipped"),
    ("visual_genome", "numbers called id", edit(IMAGES,
            lambda items: [item.update(id=item.pop("image_id")) for item in items]), N, {},
     "nothing skipped"),
    ("visual_genome", "a key that stands twice", replace(IMAGES, '"image_id":', '"width": 1, "image_id":'), 0, {},
     "image_data.json: item 0: the key 'width' stands twice in one object"),
    ("visual_genome", "a byte-order mark", prepend(IMAGES, b"\xef\xbb\xbf"), N, {}, ""),
    ("visual_genome", "an image without a number", edit(IMAGES, lambda items: items[1].pop("image_id")), N - 1,
        {"bad record": 1},
     "image_data.json item 1"),
    ("visual_genome", "a number instead of a predicate", edit(RELATIONS,
            lambda items: items[2]["relationships"][0].update(predicate=5)),
     N - 1, {"bad record": 1}, "relationships.json item 2"),
    ("visual_genome", "a list of attributes that holds a list", edit("attributes.json",
            lambda items: items[0].update(attributes=[[]])),
     N, {"bad record": 1}, "attributes.json item 0"),
    ("visual_genome", "one Latin-1 byte", replace("objects.json", "cat", b"c\xe9t"), 0, {}, "objects.json line 1: not "
                                                                                            "UTF-8 .byte 0xe9"),
    ("visual_genome", "20,000 brackets", write(RELATIONS, DEEP), 0, {}, "relationships.json: item 0: nested too "
                                                                        "deeply"),
    ("visual_genome", "another file", write("objects.json", "[5, 6]"), 0, {}, "item 1: .* is this Visual Genome's "
                                                                              "objects"),
    ("visual_genome", "numbers instead of synsets", write("object_synsets.json", '{"cat": 5}'), 0, {},
     "object_synsets.json: synsets.cat should be a valid string"),
    ("pictures", "a PNG of 13,300 x 13,300", write("dog/huge.png", huge_png()), N, {"image too large": 1}, "huge.png"),
    ("sugarcrepe", "a zero-width space", edit(SUGAR, lambda c: c["0"].update(caption="A\u200b dog.")), N, {},
        "record 0: U.200B"),
    ("sugarcrepe", "nothing", both(), N, {}, "nothing skipped"),
    ("sugarcrepe", "null as wrong caption", edit(SUGAR, lambda c: c["0"].update(negative_caption=None)), N - 1,
        {"bad record": 1},
     "swap_obj.json record 0"),
    ("sugarcrepe", "a record that is a list", edit(SUGAR, lambda c: c.update({"1": []})), N - 1, {"bad record": 1},
        "record 1"),
    ("sugarcrepe", "a number instead of records", write(SUGAR, "5"), 0, {}, "swap_obj.json: a list or a mapping of "
                                                                            "records was expected"),
    ("sugarcrepe", "20,000 brackets", write(SUGAR, DEEP), 0, {}, "swap_obj.json: nested too deeply"),
    ("order", "null as captions", edit(ORDER, lambda c: c[0].update(caption=None)), N - 1, {"bad record": 1},
        "record 0"),
    ("order", "an empty list of captions", edit(ORDER, lambda c: c[0].update(caption=[])), N - 1, {"bad record": 1},
        "record 0"),
    ("aro_relation", "a side in words", edit(BOXES, lambda c: c[0].update(bbox_w="wide")), 3 * N - 1, {"bad record": 1},
        "record 0"),
    ("aro_relation", "a box of 10^300 pixels", edit(BOXES, lambda c: c[0].update(bbox_w=10**300)), 3 * N - 1,
        {"bad record": 1},
     "record 0"),
    ("aro_relation", "a missing photo", edit(BOXES, lambda c: c[0].update(image_path="gone.jpg")), 3 * N - 1,
        {"image not found": 1},
     "record 0"),
    ("crepe_productivity", "a row cut short", append(CREPE, "1,A."), N, {"bad row": 1}, f"line {N + 2}"),
    ("crepe_productivity", "one Latin-1 byte", append(CREPE, b"Caf\xe9"), 0, {}, "line .*: not UTF-8"),
    ("cola", "three values", edit(COLA, lambda c: c[0].pop()), N - 1, {"bad record": 1}, "record 0"),
    ("cola", "null as caption", edit(COLA, lambda c: c[0].__setitem__(1, None)), N - 1, {"bad record": 1}, "record 0"),
    ("valse", "no votes", edit(VALSE, lambda c: c["0"].pop("mturk")), N - 1, {"bad record": 1}, "plurals.json record "
                                                                                                "0"),
    ("valse", "an empty list of captions", edit(VALSE, lambda c: c["0"].update(caption=[])), N - 1, {"bad record": 1},
        "record 0"),
    ("mmvp", "a lone quotation mark", append("mmvp/Questions.csv", '19,Text,"A dog'), 0, {}, "Questions.csv line 20: "
                                                                                             "unexpected end"),
    ("mmvp", "a superscript as number", replace("mmvp/Questions.csv", "\n3,", "\n³,"), 0, {}, "Questions.csv line 4: "
                                                                                              "Question ID"),
    ("mmvp", "one Latin-1 byte", append("mmvp/Questions.csv", b"Caf\xe9"), 0, {}, "Questions.csv line 20: not UTF-8"),
]  # fmt: skip


@pytest.fixture(scope="module")
def specimens(tmp_path_factory):
    """Every specimen, written once: the files of each by their path."""
    written = {}

    def files(name):
        if name not in written:
            folder = tmp_path_factory.mktemp("specimen")
            SPECIMENS[name].write(folder)
            written[name] = {
                path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()
            }
        return written[name]

    return files


@pytest.fixture
def specimen(specimens, tmp_path):
    """`specimen(name)`: a folder with the files of a specimen."""

    def fill(name):
        for path, content in specimens(name).items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_bytes(content)
        return tmp_path

    return fill


@pytest.mark.parametrize(
    "name, fault, change, kept, skipped, said", CASES, ids=[f"{case[0]}: {case[1]}" for case in CASES]
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
def test_what_is_kept_skipped_and_named(specimen, name, fault, change, kept, skipped, said):
    folder = specimen(name)
    change(folder)
    if not kept:
        with pytest.raises(BadData, match=said):
            READ[name](folder, max_bad=1.0)
        return
    pairs = READ[name](folder, max_bad=1.0)
    counts = {reason: len(names) for reason, names in pairs.report.skipped.items()}
    assert (len(pairs), pairs.report.kept, counts) == (kept, kept, skipped)
    words = "; ".join(
        [str(pairs.report), *pairs.report.notes, *(name for names in pairs.report.skipped.values() for name in names)]
    )
    assert pd.Series([words]).str.contains(said, regex=True).all(), words


def test_there_are_more_than_forty_variants_of_every_kind_of_reader():
    assert len(CASES) - sum(case[1] == "nothing" for case in CASES) > 60
    assert {case[0] for case in CASES} | {"hf"} == set(READ)


# --- what the formats' own libraries say


TABLES = {case[1]: case[2] for case in CASES if case[0] == "folder"}


@pytest.mark.parametrize("fault", TABLES)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PIL.Image.DecompressionBombWarning")
def test_csv_and_pandas_count_the_same_rows(specimen, fault):
    """Where the strict reader of `csv` reaches a table's end, we read the same rows; where it stops, we name a row or
    the file."""
    folder = specimen("folder")
    TABLES[fault](folder)
    try:
        pairs = READ["folder"](folder, max_bad=1.0, check="exists")
        bad_rows = len(pairs.report.skipped.get("bad row", ()))
        ours = len(pairs) + pairs.report.n_skipped
    except BadData:
        pairs = None
        bad_rows = 1
        ours = 0
    try:
        with open(folder / CSV, encoding="utf-8-sig", newline="") as file:
            header, *rows = [cells for cells in csv.reader(file, strict=True) if cells]
    except (csv.Error, UnicodeDecodeError):
        assert bad_rows
        return
    if pairs is not None:
        assert ours == len(rows) and bad_rows == sum(len(cells) != len(header) for cells in rows)
    if pairs is not None and not bad_rows and "null" not in fault:
        table = pd.read_csv(folder / CSV, keep_default_na=False)
        skipped = pairs.report.n_skipped
        assert len(table) == len(pairs) + skipped and {pair.caption for pair in pairs} <= set(table.caption)


cells = st.text(st.sampled_from('ab 1,2"\n\r;.\t'), min_size=1, max_size=12).filter(lambda text: text.strip())


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(cells, st.integers(0, 99)), min_size=1, max_size=6),
    st.booleans(),
    st.sampled_from(["csv,", "tsv\t"]),
)
def test_what_pandas_writes_is_read_cell_by_cell(tmp_path_factory, rows, caption_first, form):
    """A quoted cell may hold commas, quotation marks and line ends (RFC 4180), whatever its lines look like."""
    columns = ["caption", "id"] if caption_first else ["id", "caption"]
    path = tmp_path_factory.mktemp("table") / f"table.{form[:3]}"
    pd.DataFrame(rows, columns=["caption", "id"])[columns].to_csv(
        path, sep=form[3], index=False, quoting=csv.QUOTE_NONNUMERIC
    )
    read = [(row.cells.get("caption"), row.cells.get("id"), row.fault) for row in read_rows(path)]
    assert read == [(caption, str(number), "") for caption, number in rows]


def test_a_quoted_cell_may_have_lines_that_look_like_rows(tmp_path):
    (tmp_path / "a.csv").write_text(
        'caption,image_id\n"a red dog\nnext to a white cat",10\n"two\nthree, 4\nlines",11\n'
    )
    assert [row.cells["caption"] for row in read_rows(tmp_path / "a.csv")] == [
        "a red dog\nnext to a white cat",
        "two\nthree, 4\nlines",
    ]
    (tmp_path / "b.csv").write_text('image,caption\na.png,"Two\nb.png and c.png, both red."\n')
    assert [row.fault for row in read_rows(tmp_path / "b.csv")] == [""]
    for text in ("See:\n1.jpg,text", "1.jpg,text\n2.jpg,text", "\n1.jpg,a,b\n", "a\r\n1.jpg,text\r\n"):
        pd.DataFrame({"image": ["a.png", "b.png"], "caption": [text, "Red."]}).to_csv(tmp_path / "c.csv", index=False)
        rows = list(read_rows(tmp_path / "c.csv"))
        assert [(row.cells.get("caption"), row.fault) for row in rows] == [(text, ""), ("Red.", "")]


def test_a_cell_with_lines_like_rows_is_noted(tmp_path):
    (tmp_path / "captions.csv").write_text('image,caption\na.png,"A sign:\n1.jpg,text"\na.png,Red.\n')
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for records in (read("folder", folder=tmp_path), read_captions(tmp_path / "captions.csv")):
        assert [record.caption for record in records] == ["A sign:\n1.jpg,text", "Red."]
        assert "1 cells hold lines that look like rows (captions.csv line 2)" in str(records.report)


LISTS = [[["a red dog", "a dog"], ["it's a cat"]], [np.array(["a red dog", "a dog"], object), np.array(["x"])]]


@pytest.mark.parametrize("lists", LISTS)
def test_a_column_of_lists_in_one_cell_is_refused_with_the_remedy(lists, tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    table = pd.DataFrame({"image": ["a.png", "a.png"], "caption": lists})
    table.to_csv(tmp_path / "captions.csv", index=False)
    with pytest.raises(
        BadData, match=r"captions.csv line 2: \['a red dog'.* is a list in one cell; write a row for each"
    ):
        read("folder", folder=tmp_path)
    with pytest.raises(BadData, match="2 list in one cell"):
        read_captions(tmp_path / "captions.csv")
    table.explode("caption").to_csv(tmp_path / "captions.csv", index=False)
    assert len(read("folder", folder=tmp_path)) >= 2
    kept = ["['a'] and more", "[a dog]", "[1, 2]", "[]", "('a')", "['a'"]
    pd.DataFrame({"image": "a.png", "caption": kept}).to_csv(tmp_path / "captions.csv", index=False)
    assert [pair.caption for pair in read("folder", folder=tmp_path)] == kept


@pytest.mark.parametrize("form", ["csv ;", "csv \t", "csv |", "tsv ;", "tsv ,", "txt \t", "CSV ,"])
def test_a_table_with_another_sign_between_its_cells_is_read(form, tmp_path):
    path = tmp_path / f"captions.{form[:3]}"
    path.write_text(f'image{form[4]}caption\na.png{form[4]}"a dog{form[4]} red"\n')
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    for read_table in (lambda: read("folder", folder=tmp_path, captions_file=path.name), lambda: read_captions(path)):
        assert [record.caption for record in read_table()] == [f"a dog{form[4]} red"]


@pytest.mark.parametrize("share", ["1%", None, True, -0.1, 1.5, float("nan")])
def test_the_share_of_bad_samples_is_a_number_from_0_to_1(share, specimen):
    with pytest.raises(ValueError, match="max_bad is the share of samples that may be skipped, a number from 0 to 1"):
        READ["folder"](specimen("folder"), max_bad=share)


@pytest.mark.filterwarnings("ignore:.*skipped")
def test_a_missing_image_is_named_by_its_path_and_the_one_file_of_its_name(tmp_path):
    for name in ("x/1.jpg", "y/2.jpg", "z/2.jpg"):
        (tmp_path / name).parent.mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    rows = ["1.jpg,a", "2.jpg,b", "x/3.jpg,c", "x/1.jpg, "]
    (tmp_path / "captions.csv").write_text("image,caption\n" + "\n".join(rows))
    with pytest.raises(BadData) as error:
        read("folder", folder=tmp_path)
    text = str(error.value)
    assert f"image '1.jpg' not found under {tmp_path} (did you mean 'x/1.jpg'?)" in text
    assert f"image '2.jpg' not found under {tmp_path};" in text  # two files have this name
    assert "the caption of image 'x/1.jpg' is empty" in text
    (tmp_path / "captions.csv").write_text("image,caption\nx/3.jpg,c")
    with pytest.raises(BadData, match=f"image 'x/3.jpg' not found under {tmp_path};"):
        read("folder", folder=tmp_path)


def test_tabs_written_by_a_csv_writer_lose_their_quotation_marks_and_plain_ones_keep_them(specimen):
    folder = specimen("folder tsv")
    captions = ['A "red" dog.', "Tab\there.", "Two\nlines.", '"All of it"', "plain", "and, a comma"]
    pd.DataFrame({"image": NAMES, "caption": captions}).to_csv(folder / TSV, sep="\t", index=False)
    assert (
        [pair.caption for pair in READ["folder tsv"](folder)]
        == captions
        == list(pd.read_csv(folder / TSV, sep="\t").caption)
    )
    pd.DataFrame({"image": NAMES, "caption": CAPTIONS}).to_csv(
        folder / TSV, sep="\t", index=False, quoting=csv.QUOTE_ALL
    )
    assert [pair.caption for pair in READ["folder tsv"](folder)] == list(CAPTIONS)
    plain = ['"Stop!" it says.', '"Go!"', "plain", 'a 5" nail', '"', "x"]
    (folder / TSV).write_text("image\tcaption\n" + "".join(f"{name}\t{text}\n" for name, text in zip(NAMES, plain)))
    assert [pair.caption for pair in READ["folder tsv"](folder)] == plain


def complete_samples(path):
    """The keys of whole samples that `webdataset` finds in a shard."""
    webdataset = pytest.importorskip("webdataset")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = list(webdataset.WebDataset([str(path)], shardshuffle=False))
    return [sample["__key__"] for sample in samples if {"png", "txt"} <= set(sample)]


SHARDS = [both(), twice, shard(**{"00006": {"png": b""}}), shard(**{"._00006": {"png": b"x"}}), flip("00002.png")]


@pytest.mark.parametrize("change", SHARDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_webdataset_finds_the_same_samples_before_a_damaged_place(specimen, change):
    folder = specimen("webdataset")
    change(folder)
    pairs = READ["webdataset"](folder, max_bad=1.0)
    theirs = complete_samples(folder / "a-0.tar")
    ours = [pair.id.split("/")[1] for pair in pairs]
    if change is twice:  # the library reads the sample again
        assert sorted(theirs) == sorted([*ours, "00002"])
        assert pairs.report.skipped == {"repeated key": ["a-0.tar sample 00002"]}
    elif theirs != ours:  # behind a damaged header the library sees nothing
        assert theirs == ours[: len(theirs)] and len(theirs) == 2 and pairs.report.n_skipped == 1
    else:
        assert len(ours) == N


def test_datasets_and_pandas_count_the_same_rows(specimen, tmp_path_factory):
    datasets = pytest.importorskip("datasets")
    folder = specimen("parquet")
    table = pd.read_parquet(folder / "train.parquet")
    theirs = datasets.Dataset.from_dict({name: list(table[name]) for name in table})
    theirs = theirs.cast_column("image", datasets.Image(decode=False))
    captions = [pair.caption for pair in READ["parquet"](folder)]
    assert captions == list(theirs["text"]) == [pair.caption for pair in read_hf(theirs)] == list(table.text)
    with pytest.raises(BadData, match="no split 'validation': what was given is a data set without splits"):
        read_hf(theirs, split="validation")
    saved = tmp_path_factory.mktemp("saved")
    datasets.DatasetDict({"validation": theirs}).save_to_disk(str(saved))
    assert len(read_hf(str(saved))) == len(read_hf(str(saved), split="validation")) == N
    with pytest.raises(BadData, match="no split 'train'; there are validation"):
        read_hf(str(saved), split="train")
    empty = datasets.Dataset.from_dict({"image": list(theirs["image"]), "text": [None, *CAPTIONS[1:]]})
    empty = empty.cast_column("image", datasets.Image(decode=False))
    with pytest.warns(UserWarning, match="1 bad row"):
        assert len(read_hf(empty, max_bad=1.0)) == N - 1


# --- identities, labels, pictures


def test_three_spellings_of_a_path_are_one_photo(specimen):
    folder = specimen("folder")
    names = (NAMES[0], f"./{NAMES[0]}", f"x/..//{NAMES[0]}", str(folder / NAMES[0]))
    (folder / "x").mkdir()
    write(CSV, "image,caption\n" + "".join(f"{name},Caption {k}.\n" for k, name in enumerate(names)))(folder)
    assert {pair.image_id for pair in READ["folder"](folder)} == {NAMES[0]}


def test_labels_of_statements_are_read_as_people_write_them(specimen):
    folder = specimen("nlvr")
    lines = (folder / NLVR).read_text().splitlines()[:6]
    values = ["True", True, "yes", "False", False, "no"]
    records = [json.loads(line) | {"label": value} for line, value in zip(lines, values)]
    (folder / NLVR).write_text("".join(f"{json.dumps(record)}\n" for record in records))
    assert {pair.id.split("-")[0] for pair in READ["nlvr"](folder)} == {"0", "1", "2"}


def test_any_split_of_nlvr_is_found(specimen):
    folder = specimen("nlvr")
    (folder / "nlvr/dev/dev.json").rename(folder / "nlvr/dev/test.json")
    for picture_file in (folder / "nlvr/dev/images/1").iterdir():
        picture_file.rename(picture_file.with_name(picture_file.name.replace("dev-", "test-")))
    assert len(READ["nlvr"](folder)) == 4 * N
    (folder / "nlvr/dev/train.json").write_text("")
    with pytest.raises(BadData, match="no split 'dev'; there are test, train; name one with split="):
        READ["nlvr"](folder)
    assert len(READ["nlvr"](folder, split="test")) == 4 * N
    assert len(read("nlvr", folder=folder / "nlvr/dev", split="test")) < 4 * N


def test_a_photo_is_turned_upright_everywhere(tmp_path):
    photo = Image.new("RGB", (16, 8), "red")
    photo.paste((0, 0, 255), (0, 0, 8, 8))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(tmp_path / "phone.jpg", exif=exif, quality=95)
    content = (tmp_path / "phone.jpg").read_bytes()
    for image in (tmp_path / "phone.jpg", content, Image.open(tmp_path / "phone.jpg")):
        assert open_image(image).size == (8, 16)
    assert np.array_equal(np.asarray(open_image(content)), np.asarray(read_upload(content).image))


def test_floating_point_pictures_keep_their_brightness(tmp_path):
    ramp = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)
    for values, ends in ((ramp, (0, 255)), (ramp / 2, (0, 127)), (ramp * 9 - 3, (0, 255))):
        Image.fromarray(values).save(tmp_path / "a.tif")
        pixels = np.asarray(open_image(tmp_path / "a.tif"))[..., 0]
        assert (pixels.min(), pixels.max()) == ends and (np.diff(pixels.ravel().astype(int)) >= 0).all()


def test_one_limit_on_pixels_for_readers_galleries_and_uploads(tmp_path):
    (tmp_path / "huge.png").write_bytes(huge_png())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for look in (open_image, lambda path: read_upload(path.read_bytes())):
            with pytest.raises(BadData, match="177 megapixels"):
                look(tmp_path / "huge.png")
        with pytest.raises(BadData, match="1 of 1 samples of pictures of .* are bad"):
            read_pictures(tmp_path)


# --- pipes and devices in the place of files


_WATCHED = {"path": "", "opened": []}


def _watch(event, arguments):
    """Stop whoever opens the pipe or the device, which would never end."""
    if event == "open" and _WATCHED["path"] and str(arguments[0]) == _WATCHED["path"]:
        _WATCHED["opened"].append(_WATCHED["path"])
        raise RuntimeError("a pipe or a device was opened")


@pytest.fixture(scope="module")
def watch():
    sys.addaudithook(_watch)


@contextmanager
def no_end(path, kind):
    """Put a pipe or /dev/zero in the place of a file; at the end, say whether anybody opened it."""
    path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/dev/zero")
    _WATCHED.update(path=str(path), opened=[])
    is_over = threading.Event()

    def free_readers():  # such as pyarrow, whose opening no hook sees
        while kind == "pipe" and not is_over.wait(0.05):
            with suppress(OSError):
                os.close(os.open(os.path.join(path.parent, ".", path.name), os.O_WRONLY | os.O_NONBLOCK))
                _WATCHED["opened"].append(str(path))

    thread = threading.Thread(target=free_readers)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        _WATCHED["path"] = ""
        assert not _WATCHED["opened"], f"{path} was opened"


def chosen_files(folder):
    """All files of a specimen that are no pictures, and its first picture."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    pictures = [path for path in files if path.suffix in (".png", ".jpg")]
    return [path for path in files if path not in pictures[1:]]


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", READ)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_pipe_or_a_device_is_refused_or_skipped_and_never_opened(specimen, name, kind, watch):
    folder = specimen("parquet" if name == "hf" else name)
    if name == "hf":
        (folder / "set").mkdir()
        (folder / "train.parquet").rename(folder / "set" / "train.parquet")
        (folder / "set" / "README.md").write_text("# A set\n")
    for path in chosen_files(folder):
        content = path.read_bytes()
        with no_end(path, kind):
            try:
                READ[name](folder, max_bad=1.0)
            except (BadData, FileNotFoundError) as error:
                said = str(error)
                assert path.name in said or "not found" in said or "not a single sample" in said
        path.unlink()
        path.write_bytes(content)


FILES = {
    "captions.csv": read_captions, "captions.txt": read_captions, "captions.json": read_captions,
    "captions.txt.gz": read_captions, "captions.jsonl": read_captions, "edits.jsonl": read_edits,
    "split.json": read_split, "a.npz": _read_embeddings, "a.parquet": _read_embeddings, "b.npz": load_arrays,
    "results.json": Result.read, "a.json": read_json, "a.txt": read_text, "a.gz": inflate, "a.zip": check_packed,
    "b.zip": check_stored, "photo.png": open_image, "photo.jpg": file_hash, "b.parquet": check_parquet,
    "c.tar": _index_shard,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", FILES)
def test_a_pipe_or_a_device_that_is_given_by_name_is_refused(name, kind, tmp_path, watch):
    said = "is a named pipe where a file should be" if kind == "pipe" else "is a device where a file should be"
    with no_end(tmp_path / name, kind), pytest.raises(BadData, match=said):
        FILES[name](tmp_path / name)


SETS = {
    "celeba": (_write_celeba, {"folder": ""}),
    "stl10": (_write_stl10, {"folder": ""}),
    "cifar_mnist": (_write_cifar_mnist, {"mnist": "", "cifar": ""}),
    "abstract_scenes": (write_clipart, {"folder": ""}),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("name", SETS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_attribute_sets_and_scenes_open_no_pipe(name, kind, tmp_path, watch):
    SETS[name][0](tmp_path)
    arguments = {argument: str(tmp_path / place) for argument, place in SETS[name][1].items()}
    by_ending = {path.suffix: path for path in sorted(tmp_path.rglob("*")) if path.is_file()}
    for path in by_ending.values():
        content = path.read_bytes()
        with no_end(path, kind), suppress(BadData, FileNotFoundError, ValueError):
            read(name, **arguments)
        path.unlink()
        path.write_bytes(content)


def test_taken_ids_are_found_wherever_they_are_kept():
    taken = _TakenIds(most=8)
    seen = set()
    for number in np.random.default_rng(0).integers(0, 60, 400):
        assert taken.add(f"id {number}") == (number not in seen)
        seen.add(number)
    assert len(taken.sorted) + len(taken.newest) == len(seen) and len(taken.newest) < 8
