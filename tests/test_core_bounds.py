"""Small files that hold or ask for much: each is refused before its size is used."""

import bz2
import gzip
import json
import lzma
import os
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import torch
from conftest import ROOT
from PIL import Image
from safetensors.torch import save_file
from test_foreign_folders import clip_folder, hf_folder, saved_model

from complearn.analysis.stages.groupings import _read_embeddings
from complearn.core import bounds
from complearn.core.bounds import check_packed, check_parquet, check_stored, inflate, load_arrays
from complearn.core.checksums import checksum, write_listed
from complearn.core.config import RequestError, parse_list, parse_yaml, strict
from complearn.core.files import BadData
from complearn.data import images
from complearn.data.readers.edits import read_captions
from complearn.data.readers.registry import read
from complearn.data.readers.tables import parquet_rows
from complearn.models.codebook.codebook import CodebookConfig
from complearn.models.registry import load_model
from complearn.models.towers.checkpoints import read_weights
from complearn.models.towers.factory import check_tower, text_tower, vision_tower
from complearn.models.towers.limits import TooLarge, build_within, check_size
from complearn.models.towers.openclip import load_open_clip

SIDES = {
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
}


def clip_model_folder(folder, **sizes):
    """A CLIPModel's folder of some hundred bytes, whose configuration may say anything."""
    folder.mkdir()
    sides = (
        {"hidden_size": 16, "image_size": 32, "patch_size": 8, "vocab_size": 49408, "max_position_embeddings": 16}
        | SIDES
        | sizes
    )
    config = {"model_type": "clip", "projection_dim": 8, "vision_config": sides, "text_config": sides}
    (folder / "config.json").write_text(json.dumps(config))
    save_file({"logit_scale": torch.zeros(1)}, folder / "model.safetensors")
    return folder


def zip_bomb(path, megabytes=4):
    """An archive as torch writes it, but for its compression."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}.")
        archive.writestr("archive/data/0", bytes(megabytes * 2**20))
        archive.writestr("archive/constants.pkl", b"")
    return path


def test_a_compressed_entry_in_weights_is_refused(tmp_path):
    with pytest.raises(BadData, match=r"bad\.pt: its entry archive/data\.pkl is compressed"):
        read_weights(zip_bomb(tmp_path / "bad.pt"))
    torch.save({"a": torch.ones(3)}, tmp_path / "good.pt")
    assert read_weights(tmp_path / "good.pt")["a"].sum() == 3


@pytest.mark.parametrize("name", ["bad.npz", "bad.npy"])
def test_arrays_of_objects_are_no_weights(name, tmp_path):
    (np.savez if name == "bad.npz" else np.save)(tmp_path / name, np.array([None], dtype=object))
    with pytest.raises(BadData, match=f"{name}"):
        load_open_clip(f"ViT-B-32:{tmp_path / name}", quick_gelu=True)


def test_entries_that_lie_over_one_another_are_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        for k in range(3):
            archive.writestr(f"a/data/{k}", bytes(5000))
        entries = list(archive.filelist)
        for entry in entries[1:]:
            entry.header_offset = entries[0].header_offset
    content = (tmp_path / "a.zip").read_bytes()
    start = content.index(b"PK\x01\x02")  # the list at the end; of what it lists only the first entry stays
    second = content.index(b"PK\x03\x04", 4)
    cut = content[:second] + content[start:]
    end = cut.rindex(b"PK\x05\x06")
    cut = cut[: end + 16] + (second).to_bytes(4, "little") + cut[end + 20 :]
    (tmp_path / "a.zip").write_bytes(cut)
    with pytest.raises(BadData, match="its entries are larger than the file"):
        check_stored(tmp_path / "a.zip")


def test_a_tensor_that_repeats_an_element_is_no_weight(tmp_path):
    torch.save({"a": torch.ones(1).expand(10**7)}, tmp_path / "bad.pt")
    assert (tmp_path / "bad.pt").stat().st_size < 5000
    with pytest.raises(BadData, match="its tensors are larger than the file"):
        read_weights(tmp_path / "bad.pt")


def test_a_gzip_file_is_inflated_up_to_a_limit(tmp_path, monkeypatch):
    (tmp_path / "bad.txt.gz").write_bytes(gzip.compress(b"a\n" * 2**21))
    (tmp_path / "bad.json.gz").write_bytes(gzip.compress(b" " * 2**22))
    for name in ("bad.txt.gz", "bad.json.gz"):
        with pytest.raises(BadData, match=f"{name} holds more than 1 MB when it is unpacked"):
            read_captions(tmp_path / name)
    text = "".join(f"a red circle {k}\n" for k in range(9))
    (tmp_path / "good.txt.gz").write_bytes(gzip.compress(text.encode()))
    assert len(read_captions(tmp_path / "good.txt.gz")) == 9
    monkeypatch.setattr(bounds, "MOST_INFLATED", 100)
    with pytest.raises(BadData, match="when it is unpacked"):
        inflate(tmp_path / "good.txt.gz")


def test_arrays_are_inflated_up_to_a_limit_and_a_broken_file_is_named(tmp_path):
    np.savez_compressed(tmp_path / "bad.npz", keys=np.array(["a"]), vectors=np.zeros((1, 10**6), np.float32))
    for read_arrays in (load_arrays, _read_embeddings):
        with pytest.raises(BadData, match=r"bad\.npz holds more than 1 MB"):
            read_arrays(tmp_path / "bad.npz")
    np.savez_compressed(tmp_path / "good.npz", keys=np.array(["a"]), vectors=np.ones((1, 3), np.float32))
    assert _read_embeddings(tmp_path / "good.npz")[0] == ["a"]
    (tmp_path / "cut.npz").write_bytes((tmp_path / "good.npz").read_bytes()[:100])
    with pytest.raises(BadData, match=r"cut\.npz"):
        _read_embeddings(tmp_path / "cut.npz")


DOUBLINGS = (
    "{a: &a [x, x], "
    + ", ".join(f"{b}: &{b} [*{a}, *{a}]" for a, b in zip("abcdefghijklmnopqrstuvwxy", "bcdefghijklmnopqrstuvwxyz"))
    + "}"
)


@pytest.mark.parametrize("text", [DOUBLINGS, "{a: &a [1], b: *a}", "{a: &a 1}", "[*a]"])
def test_parameters_have_no_aliases(text):
    with pytest.raises(
        RequestError, match="parameter settings cannot be read.*is an alias or an anchor; write the value out"
    ):
        parse_yaml(text, "settings")


def test_parameters_are_not_nested_without_end():
    with pytest.raises(RequestError, match="parameter p is nested too deeply"):
        parse_yaml("[" * 5000, "p")
    assert parse_list("[a&b, 'x*y']", "p") == ["a&b", "x*y"]


@pytest.mark.parametrize(
    "key, value", [("depth", 10**8), ("width", 2**30), ("heads", 10**9), ("size", 10**6), ("patch", 10**7)]
)
def test_a_tower_of_any_size_is_not_configured(key, value):
    with pytest.raises(ValueError, match=f"{key} should be less than or equal to"):
        check_tower({"tower": "tiny", key: value}, "vision")
    if key in ("depth", "width", "heads"):
        with pytest.raises(ValueError, match=f"{key} should be less than or equal to"):
            check_tower({"tower": "tiny", key: value}, "text")


def test_sizes_that_are_bearable_one_by_one_are_not_together():
    with pytest.raises(ValueError, match=r"width 16384, depth 512 and 4 places need 1\.6e\+12 parameters"):
        check_tower({"tower": "tiny", "width": 16384, "depth": 512, "heads": 64, "size": 32, "patch": 16}, "vision")
    check_tower({"tower": "tiny", "width": 1024, "depth": 24, "heads": 16, "size": 224, "patch": 16}, "vision")  # ViT-L


def test_a_checksum_is_of_a_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(BadData, match=f"{name} is a pipe, a device or a folder, and no file"):
            checksum(tmp_path / name)


def test_a_model_is_not_built_larger_than_its_weights():
    def make():
        return torch.nn.Linear(2**20, 2**20)

    with pytest.raises(TooLarge, match="theirs asks for a model of more than 64 MB and holds 0.0 MB"):
        check_size(make, 1000, "theirs")
    with pytest.raises(TooLarge), build_within(1000, "theirs"):
        make()
    with build_within(1000, "theirs"), torch.device("meta"):
        assert torch.nn.Linear(64, 64).weight.shape == (64, 64)
    with build_within(None, "theirs"), torch.device("meta"):
        make()
    with torch.device("meta"):
        make()  # the limit is gone with the context


CLIPS = {
    "width": {"hidden_size": 2**20, "intermediate_size": 2**20},
    "layers": {"num_hidden_layers": 10**8},
    "grid": {"image_size": 4096, "patch_size": 1},
    "image": {"image_size": 2**20},
    "context": {"max_position_embeddings": 10**6},
}


@pytest.mark.parametrize("name", CLIPS)
def test_a_clip_models_configuration_is_compared_with_its_weights(name, tmp_path):
    pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="theirs"):
        load_open_clip(str(clip_model_folder(tmp_path / "theirs", **CLIPS[name])))


BOMBS = {
    "open_clip": lambda folder: load_open_clip(str(clip_folder(folder, vision={"width": 2**18}))),
    "open_clip layers": lambda folder: load_open_clip(str(clip_folder(folder, text={"layers": 10**8}))),
    "open_clip context": lambda folder: load_open_clip(str(clip_folder(folder, text={"context_length": 10**6}))),
    "transformers": lambda folder: text_tower(
        {"tower": f"hf:{hf_folder(folder, {'hidden_size': 2**20})}", "weights": False}
    ),
    "transformers layers": lambda folder: text_tower(
        {"tower": f"hf:{hf_folder(folder, {'num_hidden_layers': 10**7})}", "weights": False}
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_librarys_folder_asks_for_no_model_of_any_size(name, tmp_path):
    with pytest.raises(ValueError, match="theirs"):
        BOMBS[name](tmp_path / "theirs")


LIBRARIES = {
    "timm": ({"architecture": "test_vit", "pretrained_cfg": {"input_size": [3, 160, 160]}}, vision_tower),
    "hf": ({"model_type": "bert", "hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}, text_tower),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_weights_of_a_librarys_folder_are_not_inflated(name, tmp_path):
    """A .bin of 14 MB took 3.2 GB in a timm folder: torch inflates the entries of an archive, and never writes such."""
    config, open_tower = LIBRARIES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    zip_bomb(tmp_path / "pytorch_model.bin")
    with pytest.raises(
        BadData, match=r"pytorch_model.bin: its entry archive/data.pkl is compressed, and could hold any"
    ):
        open_tower(f"{name}:{tmp_path}")


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_librarys_folder_without_weights_says_so(name, tmp_path):
    config, open_tower = LIBRARIES[name]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(FileNotFoundError, match=f"{tmp_path} holds no weights; give the folder that holds them"):
        open_tower(f"{name}:{tmp_path}")


def test_a_timm_folders_positions_that_repeat_an_element_are_refused_before_they_are_resampled(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LIBRARIES["timm"][0]))
    torch.save({"pos_embed": torch.zeros(1, 1, 1).expand(1, 10**6, 64)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(BadData, match="its tensors are larger than the file"):
        vision_tower(f"timm:{tmp_path}")


def test_a_weightless_timm_folder_asks_for_no_model_of_any_size(tmp_path):
    pytest.importorskip("timm")
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "vit_tiny_patch16_224", "pretrained_cfg": {}, "model_args": {"embed_dim": 2**18}})
    )
    save_file({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError):
        vision_tower(f"timm:{tmp_path}")


@pytest.mark.parametrize("key, value", [("width", 2**17), ("depth", 10**7), ("size", 2**17)])
def test_a_saved_model_asks_for_no_towers_of_any_size(key, value, tmp_path):
    folder = saved_model(tmp_path / "model")
    description = json.loads((folder / "config.json").read_text())
    description["towers"]["vision"]["architecture"] |= {key: value}
    write_listed(folder / "config.json", json.dumps(description).encode())
    with pytest.raises(TooLarge, match=r"config\.json asks for a model"):
        load_model(folder)


# --- pictures


def test_pictures_become_the_same_colours_in_bands(monkeypatch):
    draws = np.random.default_rng(0)
    layer = Image.fromarray(draws.integers(0, 256, (37, 53, 4), dtype=np.uint8), "RGBA")
    palette = layer.convert("RGB").quantize(16)
    palette.info["transparency"] = bytes(range(0, 160, 10))
    grey = layer.convert("L")
    grey.info["transparency"] = 7
    greys = [
        Image.fromarray((draws.random((37, 53)) * scale).astype(kind))
        for kind in (np.float32, np.int32)
        for scale in (1, 255, 65535, 10**6, -5)
    ]
    pictures = [layer, layer.convert("LA"), palette, grey, *greys]
    whole = [np.asarray(images.to_rgb(each)) for each in pictures]
    monkeypatch.setattr(images, "BAND", 200)
    assert all(np.array_equal(np.asarray(images.to_rgb(each)), before) for each, before in zip(pictures, whole))
    white = Image.alpha_composite(Image.new("RGBA", layer.size, (255, 255, 255, 255)), layer).convert("RGB")
    assert np.array_equal(whole[0], np.asarray(white))


def test_pictures_are_decoded_side_by_side_up_to_a_limit(tmp_path, monkeypatch):
    from concurrent.futures import ThreadPoolExecutor

    monkeypatch.setattr(images, "MAX_PIXELS", 100)
    seen = []
    to_rgb = images.to_rgb
    monkeypatch.setattr(
        images, "to_rgb", lambda picture: seen.append(images._decoding["pixels"]) or time.sleep(0.02) or to_rgb(picture)
    )
    for k in range(8):
        Image.new("RGBA", (6, 8)).save(tmp_path / f"{k}.png")
    with ThreadPoolExecutor(8) as pool:
        assert len(list(pool.map(images.open_image, [tmp_path / f"{k}.png" for k in range(8)]))) == 8
    assert max(seen) == 96 and images._decoding["pixels"] == 0
    with pytest.raises(images.BrokenImage):
        images.open_image(tmp_path)
    assert images._decoding["pixels"] == 0


# --- true sizes


MEASURE = """
import resource, sys, time
sys.path[:0] = {paths!r}
import test_core_bounds as bombs
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
try:
    bombs.TRUE[{name!r}](__import__("pathlib").Path({folder!r}))
except Exception as error:
    print(type(error).__name__, str(error)[:200].replace(chr(10), " "))
else:
    print("accepted")
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, round(time.monotonic() - began, 1))
"""


def captions_bomb(folder):
    with gzip.open(folder / "a.txt.gz", "wb") as file:
        for _ in range(1000):
            file.write(b"a red dog\n" * 100_000)
    read_captions(folder / "a.txt.gz")


def arrays_bomb(folder):
    np.savez_compressed(folder / "a.npz", keys=np.array(["a"]), vectors=np.broadcast_to(np.float32(0), (10**4, 10**4)))
    _read_embeddings(folder / "a.npz")


def big_picture(folder):
    Image.new("RGBA", (7000, 7000)).save(folder / "0.png", compress_level=1)
    for k in range(1, 8):
        (folder / f"{k}.png").write_bytes((folder / "0.png").read_bytes())
    from complearn.data.readers.files import read_pictures

    read_pictures(folder, check="decode")


TRUE = {
    "weights": lambda folder: read_weights(zip_bomb(folder / "a.pt", 400)),
    "captions": captions_bomb,
    "arrays": arrays_bomb,
    "aliases": lambda folder: parse_yaml(DOUBLINGS, "settings"),
    "depth": lambda folder: check_tower({"tower": "tiny", "depth": 10**8}, "vision"),
    "clip": lambda folder: load_open_clip(str(clip_model_folder(folder / "theirs", **CLIPS["width"]))),
    "pictures": big_picture,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUE)
def test_no_bomb_takes_a_gigabyte(name, tmp_path):
    code = MEASURE.format(paths=[str(ROOT / "tests"), str(ROOT)], name=name, folder=str(tmp_path))
    env = {**os.environ, "COMPLEARN_TYPECHECK": "0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=300)
    assert done.returncode == 0, done.stderr
    outcome, numbers = done.stdout.strip().splitlines()[-2:]
    kilobytes = int(numbers.split()[0])
    assert kilobytes < 2**20, (outcome, numbers)
    assert outcome != "accepted" or name == "pictures"


PARQUET = {
    "a text in many rows": lambda pa: {"image": pa.array(["a.png"] * 80), "text": pa.array(["x" * 10**6] * 80)},
    "a picture in many rows": lambda pa: {
        "image": pa.array([{"bytes": b"x" * 10**6, "path": "a"}] * 80),
        "text": pa.array(["a"] * 80),
    },
    "a caption in a list": lambda pa: {"image": pa.array(["a.png"] * 80), "text": pa.array([["x" * 10**6]] * 80)},
    "many rows of nothing": lambda pa: dict.fromkeys(("image", "text"), pa.nulls(2 * 10**6, pa.string())),
    "one number": lambda pa: dict.fromkeys(("image", "text"), pa.array(np.zeros(2 * 10**6, np.int64))),
}


@pytest.mark.parametrize("name", PARQUET)
@pytest.mark.parametrize("encoding", ["dictionary", "prefixes", "packed"])
def test_a_parquet_file_is_read_up_to_a_limit(name, encoding, tmp_path):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pa.table(PARQUET[name](pa))
    options = {"use_dictionary": encoding == "dictionary", "compression": "zstd"}
    if encoding == "prefixes" and name == "a text in many rows":
        options["column_encoding"] = {"text": "DELTA_BYTE_ARRAY"}
    parquet.write_table(table, tmp_path / "bad.parquet", **options)
    assert (tmp_path / "bad.parquet").stat().st_size < 600_000
    readers = [
        lambda: read("parquet", path=tmp_path / "bad.parquet", max_bad=1.0, check="exists"),
        lambda: check_parquet(tmp_path / "bad.parquet"),
        lambda: _read_embeddings(tmp_path / "bad.parquet"),
        lambda: read("labels", folder=tmp_path / "bad.parquet", label="text", max_bad=1.0),
    ]
    for read_table in readers:
        with pytest.raises(BadData, match=r"bad\.parquet holds more than 64 MB"):
            read_table()


def test_an_honest_parquet_file_is_read_as_pyarrow_does(tmp_path):
    """Lists, structures, empty cells, repeated and distinct texts, in several row groups and with steps."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [
        {
            "image": None if k % 7 == 3 else {"bytes": bytes([k % 5]) * 9 if k % 2 else None, "path": f"{k}.png"},
            "text": None if k % 5 == 4 else [f"caption {j}" for j in range(k % 4)],
            "label": None if k == 8 else k % 3,
        }
        for k in range(50)
    ]
    for options in ({}, {"use_dictionary": False}, {"row_group_size": 7}, {"row_group_size": 7, "data_page_size": 100}):
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "good.parquet", **options)
        for step in (1, 3, 8):
            assert parquet_rows(tmp_path / "good.parquet", ["image", "text", "label"], step) == rows[::step]
    noise = np.random.default_rng(0)
    rows = [{"image": {"bytes": noise.bytes(60_000), "path": f"{k}"}, "text": ["a", f"{k}"]} for k in range(60)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "good.parquet")  # pages with and without a dictionary
    assert parquet_rows(tmp_path / "good.parquet", ["image", "text"]) == rows


def test_a_folder_of_packed_tables_is_unpacked_up_to_a_limit(tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    table = "image,text\na.png,a red dog\n"
    for name, content in {
        "train.csv.gz": gzip.compress(table.encode() + b"a.png,x\n" * 10**6),
        "train.csv": gzip.compress(table.encode() + b"a.png,x\n" * 10**6),
        "train.jsonl.xz": lzma.compress(b'{"image": "a.png", "text": "a"}\n' * 10**6),
        "train.csv.bz2": bz2.compress(b"a.png,x\n" * 10**6),
        "train.csv.zst": b"\x28\xb5\x2f\xfd" + bytes(9),
    }.items():
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_bytes(content)
        with pytest.raises(BadData, match=rf"{name} (holds more than 1 MB|is packed in a way)"):
            read("hf", dataset=str(folder))
    folder = tmp_path / "ours"
    folder.mkdir()
    Image.new("RGB", (8, 8)).save(folder / "a.png")
    (folder / "train.csv.gz").write_bytes(gzip.compress(table.encode()))
    assert [pair.caption for pair in read("hf", dataset=str(folder))] == ["a red dog"]


def test_an_archive_is_counted_before_it_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "bad.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.csv", b"a" * 2**22)
    with pytest.raises(BadData, match="holds more than 1 MB"):
        check_packed(tmp_path / "bad.zip")
    (tmp_path / "plain.csv").write_text("image,text\n")
    check_packed(tmp_path / "plain.csv")


def test_a_codebook_has_a_bearable_number_of_codes():
    with pytest.raises(RequestError, match="codebook.codes should be less than or equal to 1048576, not 268435456"):
        strict(CodebookConfig, {"codes": 2**28}, "codebook")
    assert strict(CodebookConfig, {"codes": 2**20}, "codebook").codes == 2**20
