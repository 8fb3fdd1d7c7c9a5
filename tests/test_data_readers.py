"""Readers of real formats: what they read, and what they say of broken files. Writers of the formats' own libraries are
the oracles."""

import gzip
import io
import json
import tarfile
import warnings

import numpy as np
import pytest
from PIL import Image

from complearn.data.benchmarks.items import Choice, Crop
from complearn.data.benchmarks.nlvr import _picture_contents, _split_halves, read_claims, read_nlvr
from complearn.data.images import load_images, open_image
from complearn.data.loading import Loader, fingerprint
from complearn.data.overlap import find_overlap, photo_identity, resolve_overlap
from complearn.data.pairs import Collate, Pair, Transform, WordTokenizer
from complearn.data.readers.coco import coco_id, read_coco, read_flickr, read_karpathy
from complearn.data.readers.folders import read_folder
from complearn.data.readers.registry import READERS, read
from complearn.data.readers.shards import _index_shard, _shard_paths, read_webdataset
from complearn.data.readers.tables import estimate_lost_samples, read_hf, read_parquet
from complearn.data.reports import BadData, Collector, Pairs, image_fault
from complearn.data.word_tokenizer import normalize_caption


def noise(seed=0, size=(24, 20)):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8))


def encoded(seed=0, kind="jpeg", size=(64, 48)):
    buffer = io.BytesIO()
    noise(seed, size).save(buffer, kind)
    return buffer.getvalue()


def resized(image, size=(96, 72)):
    """A copy of a picture in another size, as other releases hold it."""
    buffer = io.BytesIO()
    open_image(image).resize(size, Image.Resampling.BICUBIC).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(200):
        (folder / f"{i:012d}.jpg").write_bytes(encoded(i, size=(16, 16)))
    return folder


def table(photos, rows, name="captions.csv", header="image,caption"):
    (photos / name).write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")


def good_rows(n=200, separator=","):
    return [f"{i:012d}.jpg{separator}Photo number {i}." for i in range(n)]


# --- folders


@pytest.mark.parametrize("name", ["captions.csv", "captions.tsv", "captions.jsonl"])
def test_folder_formats_say_the_same(photos, name):
    captions = ['a "quoted" one', "with, a comma", "ünïcode"]
    if name.endswith("jsonl"):
        lines = [json.dumps({"image": f"{i:012d}.jpg", "caption": text}) for i, text in enumerate(captions)]
        (photos / name).write_text("\n".join(lines))
    elif name.endswith("tsv"):
        table(photos, [f"{i:012d}.jpg\t{text}" for i, text in enumerate(captions)], name, "image\tcaption")
    else:
        table(photos, [f'{i:012d}.jpg,"{text.replace(chr(34), chr(34) * 2)}"' for i, text in enumerate(captions)], name)
    pairs = read_folder(photos, name)
    assert [pair.caption for pair in pairs] == captions and len({pair.id for pair in pairs}) == 3
    assert pairs[1].image_id == "000000000001.jpg" and load_images([pairs[0].image], 8).std() > 0


def test_folder_with_other_names_and_lists_of_captions(photos):
    (photos / "meta.jsonl").write_text(json.dumps({"file": "000000000003.jpg", "texts": ["One.", "Two."]}))
    pairs = read_folder(photos.parent, "photos/meta.jsonl", image="file", caption="texts", images="photos")
    assert [pair.caption for pair in pairs] == ["One.", "Two."] and pairs[0].image_id == pairs[1].image_id


def test_missing_folder_and_file(tmp_path, photos):
    with pytest.raises(BadData, match=r"nowhere/deep: the data folder does not exist \(.* does\); check the path"):
        read_folder(tmp_path / "nowhere" / "deep")
    with pytest.raises(BadData, match="captions.csv: the captions file does not exist.*captions_file="):
        read_folder(photos)
    (photos / "captions.xlsx").write_bytes(b"")
    with pytest.raises(BadData, match="captions.xlsx: a captions file ends in .csv, .tsv or .jsonl, or .*; convert"):
        read_folder(photos, "captions.xlsx")


def test_wrong_column_lists_the_right_ones(photos):
    table(photos, good_rows(2), header="file,text")
    with pytest.raises(
        BadData,
        match="captions.csv line 1: no column 'image'; there are 'file', 'text'; name the right one with image=",
    ):
        read_folder(photos)
    with pytest.raises(BadData, match="no column 'caption'; .*caption="):
        read_folder(photos, image="file", caption="caption")
    assert len(read_folder(photos, image="file", caption="text")) == 2


def test_one_in_a_hundred_is_skipped_by_name_and_two_are_too_many(photos):
    rows = good_rows()
    rows[15] = "dog 3.jpg,A dog."
    (photos / f"{77:012d}.jpg").write_bytes(encoded(77, size=(64, 64))[:500])
    table(photos, rows)
    with pytest.warns(
        UserWarning,
        match=r"198 kept; skipped 2: 1 image not found \(captions.csv line 17: dog 3.jpg\); 1 image unreadable",
    ):
        pairs = read_folder(photos)
    assert len(pairs) == pairs.report.kept == 198 and pairs.report.n_skipped == 2
    assert pairs.report.skipped["image unreadable"] == ["captions.csv line 79: 000000000077.jpg"]
    rows[20] = f"{20:012d}.jpg,  "
    table(photos, rows)
    with pytest.raises(BadData) as error:
        read_folder(photos)
    for part in (
        "line 22: the caption of image '000000000020.jpg' is empty",
        f"line 17: image 'dog 3.jpg' not found under {photos}",
        "line 79: image '000000000077.jpg' unreadable: ",
        "3 of 200 samples of captions.csv are bad, more than the 1.0% that may be skipped",
        "mend the data, or raise max_bad",
    ):
        assert part in str(error.value)
    with pytest.warns(UserWarning, match="skipped 3"):
        assert len(read_folder(photos, max_bad=0.015)) == 197


def test_a_broken_image_is_never_replaced(photos):
    (photos / f"{5:012d}.jpg").write_bytes(b"")
    table(photos, good_rows())
    with pytest.warns(UserWarning, match="unreadable"):
        pairs = read_folder(photos)
    assert f"{5:012d}.jpg" not in {pair.image_id for pair in pairs} and len({pair.image for pair in pairs}) == 199


def test_checks_see_as_much_as_they_say(photos):
    cut = photos / "cut.jpg"
    text = photos / "text.jpg"
    cut.write_bytes(encoded(1, size=(256, 256))[:4000])
    text.write_text("no picture")
    found = {
        check: [image_fault(path, check) for path in (cut, text, photos / "gone.jpg", photos / f"{1:012d}.jpg")]
        for check in ("decode", "header", "exists")
    }
    assert [fault is not None for fault in found["decode"]] == [True, True, True, False]
    assert [fault is not None for fault in found["header"]] == [False, True, True, False]
    assert found["exists"] == [None, None, "image not found", None]
    with pytest.raises(ValueError, match="no check 'maybe'; there are auto, decode, header, exists"):
        Collector("x", check="maybe")


def test_bad_rows_and_wrong_encodings(photos):
    rows = good_rows()
    rows[7] = "just one cell"
    table(photos, rows)
    with pytest.warns(UserWarning, match=r"1 bad row \(captions.csv line 9: a row of 2 columns was expected\)"):
        assert len(read_folder(photos)) == 199
    lines = [json.dumps({"image": f"{i:012d}.jpg", "caption": "A photo."}) for i in range(200)]
    (photos / "captions.jsonl").write_text("\n".join(lines)[:-9])  # a file that was cut off
    with pytest.warns(UserWarning, match=r"bad row \(captions.jsonl line 200: not JSON"):
        assert len(read_folder(photos, "captions.jsonl")) == 199
    (photos / "captions.csv").write_bytes("image,caption\n000000000001.jpg,Café\n".encode("latin-1"))
    with pytest.raises(BadData, match="captions.csv line 2: not UTF-8 .byte 0xe9.; save the file as UTF-8"):
        read_folder(photos)
    table(photos, [])
    with pytest.raises(BadData, match="captions.csv: not a single sample; the file is empty"):
        read_folder(photos)


# --- COCO, Karpathy, Flickr


def coco_files(photos, n=200, **changes):
    content = {
        "images": [{"id": i, "file_name": f"{i:012d}.jpg"} for i in range(n)],
        "annotations": [
            {"id": 1000 + 5 * i + k, "image_id": i, "caption": f"Photo {i}, {k}."}
            for k in range(5)
            for i in reversed(range(n))
        ],
    }
    (photos / "captions.json").write_text(json.dumps(content | changes))
    return photos / "captions.json"


def test_coco_groups_captions_by_photo(photos):
    pairs = read_coco(photos, coco_files(photos))
    assert len(pairs) == 1000 and len({pair.id for pair in pairs}) == 1000
    assert [pair.caption for pair in pairs[5:10]] == [f"Photo 1, {k}." for k in range(5)]
    assert {pair.image_id for pair in pairs[5:10]} == {"000000000001"}


def test_coco_keeps_and_leaves_out_photos_under_any_name(photos):
    annotations = coco_files(photos)
    names = [3, "000000000004.jpg", "COCO_val2014_000000000005.jpg", f"/some/where/{6:012d}.jpg"]
    kept = read_coco(photos, annotations, keep=names)
    left = read_coco(photos, annotations, exclude=names)
    assert {pair.image_id for pair in kept} == {f"{i:012d}" for i in (3, 4, 5, 6)}
    assert {pair.id for pair in kept} | {pair.id for pair in left} == {
        pair.id for pair in read_coco(photos, annotations)
    }
    assert not {pair.id for pair in kept} & {pair.id for pair in left}
    assert coco_id("COCO_train2014_000000391895.jpg") == coco_id(391895) != coco_id("391896")


def test_coco_files_of_another_kind(photos):
    with pytest.raises(BadData, match="no key 'annotations' in it but 'images'; is this COCO's captions"):
        (photos / "x.json").write_text('{"images": []}')
        read_coco(photos, photos / "x.json")
    with pytest.raises(BadData, match="no annotation has a 'caption'; is this an instances or keypoints file"):
        read_coco(photos, coco_files(photos, annotations=[{"id": 7, "image_id": 1, "bbox": []}]))
    (photos / "cut.json").write_text(coco_files(photos).read_text()[:5000])
    with pytest.raises(BadData, match="cut.json: not JSON .*; get the file again"):
        read_coco(photos, photos / "cut.json")
    with pytest.raises(BadData, match="the folder of photos does not exist"):
        read_coco(photos / "val2017", coco_files(photos))


def test_coco_photos_that_are_missing_or_without_captions(photos):
    for i in range(100):
        (photos / f"{i:012d}.jpg").unlink()
    annotations = coco_files(photos)
    with pytest.raises(BadData, match="image '000000000000.jpg' not found.* 500 of 1000 samples"):
        read_coco(photos, annotations)
    annotations = coco_files(photos, images=[{"id": i, "file_name": f"{i:012d}.jpg"} for i in range(150, 200)])
    with pytest.raises(BadData, match="annotation 1745: no entry of 'images' has the id 149.* 750 of 1000 samples"):
        read_coco(photos, annotations)
    listed = [{"id": 5 * i, "image_id": i, "caption": "A photo."} for i in range(150, 200)]
    annotations = coco_files(
        photos, images=[{"id": i, "file_name": f"{i:012d}.jpg"} for i in range(150, 200)], annotations=listed
    )
    assert read_coco(photos, annotations).report.notes == [
        "100 photos in photos, 50 of them without a caption in captions.json"
    ]


def karpathy(photos, filepath=""):
    images = [
        {
            "filename": f"{i:012d}.jpg",
            "split": ("train", "restval", "val", "test")[i % 4],
            "sentences": [{"raw": f"Photo {i} {k}", "sentid": 5 * i + k} for k in range(5)],
        }
        | ({"filepath": filepath} if filepath else {})
        for i in range(8)
    ]
    (photos / "dataset.json").write_text(json.dumps({"images": images, "dataset": "coco"}))
    return photos / "dataset.json"


def test_karpathy_splits(photos):
    file = karpathy(photos, filepath="photos")
    for root in (photos, photos.parent):  # the folder of photos, or the one above
        assert len(read_karpathy(file, root, "train+restval")) == 20
    assert {pair.image_id for pair in read_karpathy(file, photos, "test")} == {f"{i:012d}" for i in (3, 7)}
    assert len(read_karpathy(file, photos, "train+restval", exclude=[0])) == 15
    with pytest.raises(BadData, match="no split dev; there are restval, test, train, val"):
        read_karpathy(file, photos, "dev")


def test_captions_without_pictures(tmp_path):
    """Lines, compressed lines and COCO's captions join; empty lines are counted, and two files of one name are told
    apart."""
    (tmp_path / "a.txt").write_text("A dog runs.\n\nA cat sleeps.\n", encoding="utf-8")
    (tmp_path / "b.en.gz").write_bytes(gzip.compress("Ein Hund läuft.\n".encode()))
    (tmp_path / "c.json").write_text(json.dumps({"annotations": [{"id": 7, "image_id": 3, "caption": "Two men."}]}))
    pairs = read("captions", files=[str(tmp_path / name) for name in ("a.txt", "b.en.gz", "c.json")])
    assert [pair.caption for pair in pairs] == ["A dog runs.", "A cat sleeps.", "Ein Hund läuft.", "Two men."]
    assert {pair.image for pair in pairs} == {None}
    assert len({pair.id for pair in pairs}) == 4
    assert pairs[3].image_id == "c.json:3"
    assert "1 empty caption (a.txt line 2" in str(pairs.report)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.txt").write_text("A bird sings.\n")
    both = read("captions", files=[str(tmp_path / "a.txt"), str(tmp_path / "other" / "a.txt")])
    assert [pair.image_id for pair in both][-1] == "other/a.txt:image of a bird sings"
    assert len({pair.id for pair in both}) == 3
    with pytest.raises(ValueError, match="no file of captions; name at least one"):
        read("captions", files=[])
    with pytest.raises(BadData, match="the file of captions does not exist"):
        read("captions", files=str(tmp_path / "d.txt"))


def test_flickr_token_files_of_both_shapes(photos):
    (photos / "a.token").write_text(
        "".join(f"{i:012d}.jpg#{k}\tPhoto {i} , # {k} .\n" for i in range(4) for k in range(5))
    )
    (photos / "results.csv").write_text(
        "image_name| comment_number| comment\n"
        + "".join(f"{i:012d}.jpg| {k}| Photo {i} , # {k} .\n" for i in range(4) for k in range(5))
    )
    a = read_flickr(photos, photos / "a.token")
    b = read_flickr(photos, photos / "results.csv")
    assert len(a) == 20 and [(x.caption, x.image_id, x.id) for x in a] == [(x.caption, x.image_id, x.id) for x in b]
    assert a[7].caption == "Photo 1 , # 2 ." and a[7].image_id == f"{1:012d}"
    (photos / "train.txt").write_text(f"{2:012d}.jpg\n{3:012d}.jpg\n")
    assert {pair.image_id for pair in read_flickr(photos, photos / "a.token", photos / "train.txt")} == {
        f"{i:012d}" for i in (2, 3)
    }
    (photos / "a.token").write_text((photos / "a.token").read_text() + "nonsense\n")
    with pytest.raises(BadData, match=r"a.token line 21: 'photo.jpg#0<tab>caption' was expected, not 'nonsense'"):
        read_flickr(photos, photos / "a.token")


def test_flickr_splits_share_no_photo_and_a_name_of_no_file_is_skipped(photos):
    names = [f"{i:012d}.jpg" for i in range(4)]
    tokens = "".join(f"{name}#{k}\tPhoto {name} , # {k} .\n" for name in names for k in range(5))
    # as published
    (photos / "Flickr8k.token.txt").write_text(tokens + "".join(f"{names[0]}.1#{k}\tA dog .\n" for k in range(5)))
    (photos / "Flickr_8k.trainImages.txt").write_text("".join(f"{name}\n" for name in names[:2]))
    (photos / "Flickr_8k.devImages.txt").write_text("\r\n".join(names[2:]))
    splits = [
        read_flickr(photos, photos / "Flickr8k.token.txt", photos / f"Flickr_8k.{split}Images.txt")
        for split in ("train", "dev")
    ]
    assert [sorted({pair.image.name for pair in pairs}) for pairs in splits] == [names[:2], names[2:]]
    assert [len(pairs) for pairs in splits] == [10, 10] and not any(pairs.report.skipped for pairs in splits)
    with pytest.warns(UserWarning, match="5 image not found"):
        assert len(read_flickr(photos, photos / "Flickr8k.token.txt", max_bad=0.2)) == 20


# --- shards


def write_shards(folder, n=3, samples=20):
    webdataset = pytest.importorskip("webdataset")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for shard in range(n):
            with webdataset.TarWriter(str(folder / f"cc-{shard:05d}.tar")) as writer:
                for i in range(samples):
                    key = f"{shard}{i:04d}"
                    writer.write(
                        {
                            "__key__": key,
                            "jpg": encoded(i, size=(40, 30)),
                            "txt": f"Sample {key}.",
                            "json": {"caption": f"Json {key}."},
                        }
                    )
    return folder


def test_webdataset_against_the_library(tmp_path):
    webdataset = pytest.importorskip("webdataset")
    write_shards(tmp_path)
    ours = read_webdataset(tmp_path / "cc-{00000..00002}.tar")
    urls = [str(path) for path in _shard_paths(tmp_path)]
    theirs = list(webdataset.WebDataset(urls, shardshuffle=False))
    assert [pair.caption for pair in ours] == [sample["txt"].decode() for sample in theirs]
    assert [pair.image.read_bytes() for pair in ours] == [sample["jpg"] for sample in theirs]
    assert [pair.caption for pair in read_webdataset(tmp_path, text="json")][0] == "Json 00000."
    assert len({pair.id for pair in ours}) == len({pair.image_id for pair in ours}) == 60


def test_shards_are_trained_from_by_place(tmp_path):
    pairs = read_webdataset(write_shards(tmp_path))
    loader = Loader(
        pairs, Collate(Transform(16), WordTokenizer.fit(pair.caption for pair in pairs)), 8, seed=0, workers=1
    )
    stream = loader.batches(5)
    assert next(stream).keys == loader.batch(5).keys
    stream.close()


@pytest.mark.parametrize("share", [0.05, 0.31, 0.5, 0.77, 0.98])
def test_a_shard_cut_anywhere_is_named_and_counted(tmp_path, share):
    write_shards(tmp_path)
    cut = tmp_path / "cc-00001.tar"
    content = cut.read_bytes()
    members = tarfile.open(cut).getmembers()
    length = int(share * (members[-1].offset_data + members[-1].size))
    cut.write_bytes(content[:length])
    found = sum(member.offset_data + member.size <= length for member in members) // 3
    with pytest.raises(
        BadData, match=rf"cc-00001.tar: cut off.*, after {found} whole samples; get the shard again.*more than the 1.0%"
    ):
        read_webdataset(tmp_path)
    with pytest.warns(UserWarning, match=rf"{20 - found} sample lost from a shard that was cut off \(cc-00001.tar"):
        pairs = read_webdataset(tmp_path, max_bad=0.5)
    assert len(pairs) == 40 + found and pairs.report.n_skipped == 20 - found
    assert load_images([pair.image for pair in pairs], 8).shape[0] == len(pairs)  # all that was kept is whole


def test_a_shard_without_its_end_mark_or_alone_or_no_tar(tmp_path):
    write_shards(tmp_path)
    index = _index_shard(tmp_path / "cc-00000.tar")
    assert len(index.samples) == 20 and not index.fault and not index.holes
    last = tarfile.open(tmp_path / "cc-00000.tar").getmembers()[-1]
    end = last.offset_data + last.size + -last.size % 512
    (tmp_path / "lone.tar").write_bytes((tmp_path / "cc-00000.tar").read_bytes()[:end])
    assert _index_shard(tmp_path / "lone.tar").fault == "cut off: its end mark is missing"
    with pytest.raises(BadData, match="lone.tar: cut off: its end mark is missing, after 20 whole samples"):
        read_webdataset(tmp_path / "lone.tar")
    (tmp_path / "text.tar").write_text("no tar file" * 100)
    with pytest.raises(BadData, match="text.tar: cut off, or not a tar file"):
        read_webdataset(tmp_path / "text.tar")
    (tmp_path / "a.tar.gz").write_bytes(b"")
    with pytest.raises(BadData, match="a.tar.gz: a compressed shard cannot be read by place; gunzip it"):
        read_webdataset(tmp_path / "a.tar.gz")


def test_shards_that_are_not_there_and_incomplete_samples(tmp_path):
    write_shards(tmp_path)
    with pytest.raises(
        BadData, match="cc-00003.tar: the shard does not exist.*download it, or take it out of the list"
    ):
        read_webdataset(str(tmp_path / "cc-{00000..00003}.tar"))
    with pytest.raises(BadData, match="no shard matches; give a folder of .tar files"):
        read_webdataset(str(tmp_path / "laion-*.tar"))
    with pytest.raises(BadData, match="no key 'text'; there are 'caption'; name the right one with key="):
        read_webdataset(tmp_path, text="json", key="text")
    said = (
        r"cc-00000.tar sample 00000: an image and .cls were expected, there are jpg, json, txt; if these are an image "
        r"and its caption, name them with image= and text="
    )
    with pytest.raises(BadData, match=said):
        read_webdataset(tmp_path, text="cls")
    with tarfile.open(tmp_path / "cc-00000.tar", "a") as tar:
        member = tarfile.TarInfo("9.txt")
        tar.addfile(member)
    with pytest.warns(UserWarning, match=r"1 incomplete sample \(cc-00000.tar sample 9\)"):
        assert len(read_webdataset(tmp_path, max_bad=0.02)) == 60


# --- tables


def write_parquet(path, n=20, start=0, struct=False, **columns):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    images = [encoded(i, "png", (12, 12)) for i in range(start, start + n)]
    images = [{"bytes": image, "path": None} for image in images] if struct else images
    content = {"image": images, "text": [f"Row {i}." for i in range(start, start + n)]} | columns
    parquet.write_table(pyarrow.table(content), path)


def test_parquet_of_bytes_structs_and_paths(tmp_path, photos):
    write_parquet(tmp_path / "a.parquet")
    write_parquet(tmp_path / "b.parquet", struct=True)
    a = read_parquet(tmp_path / "a.parquet")
    b = read_parquet(tmp_path / "b.parquet")
    assert [pair.caption for pair in a] == [f"Row {i}." for i in range(20)]
    assert (load_images([p.image for p in a], 12) == load_images([p.image for p in b], 12)).all()
    write_parquet(photos / "c.parquet", image=[f"{i:012d}.jpg" for i in range(20)], text=[["One.", "Two."]] * 20)
    c = read_parquet(photos / "c.parquet")
    assert len(c) == 40 and c[0].image == photos / "000000000000.jpg" and c[0].image_id == c[1].image_id
    labelled = read_parquet(tmp_path / "a.parquet", text="text", template="a photo of {}", labels="text")
    assert labelled[3].caption == "a photo of Row 3." and labelled[3].labels == "Row 3."


def test_parquet_faults(tmp_path):
    write_parquet(tmp_path / "a.parquet")
    with pytest.raises(
        BadData, match="a.parquet: no column 'img'; there are 'image', 'text'; name the right one with image="
    ):
        read_parquet(tmp_path / "a.parquet", image="img")
    with pytest.raises(BadData, match="with text="):
        read_parquet(tmp_path / "a.parquet", text="caption")
    whole = (tmp_path / "a.parquet").read_bytes()
    for share in (0.1, 0.5, 0.99):
        (tmp_path / "cut.parquet").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(BadData, match="cut.parquet: cut off in the middle, or not parquet: .*; get the file again"):
            read_parquet(tmp_path / "cut.parquet")
    with pytest.raises(BadData, match="20 of 40 samples"):  # a neighbour tells how many were lost
        read_parquet(tmp_path)
    with pytest.warns(UserWarning, match="20 parquet file unreadable"):
        assert len(read_parquet(tmp_path, max_bad=0.5)) == 20
    with pytest.raises(BadData, match="no .parquet file in this folder"):
        (tmp_path / "empty").mkdir()
        read_parquet(tmp_path / "empty")
    assert estimate_lost_samples(3, [10, 12]) == 9 and estimate_lost_samples(50, [10]) == 1


def test_parquet_with_empty_cells_and_broken_bytes(tmp_path):
    images = [encoded(i, "png", (12, 12)) for i in range(10)]
    images[3], images[4] = None, images[4][:40]
    texts = [f"Row {i}." for i in range(10)]
    texts[5] = None
    write_parquet(tmp_path / "a.parquet", image=images, text=texts)
    with pytest.raises(BadData) as error:
        read_parquet(tmp_path / "a.parquet")
    for part in ("row 3: column 'image' is empty", "row 5: texts", "row 4: image", "unreadable", "3 of 10"):
        assert part in str(error.value)


def test_hugging_face_data_sets(tmp_path):
    datasets = pytest.importorskip("datasets")
    rows = {"image": [encoded(i, "png") for i in range(6)], "text": [["A.", "B."]] * 6, "label": [0, 1] * 3}
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "text": datasets.Sequence(datasets.Value("string")),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
        }
    )
    table = datasets.Dataset.from_dict(rows, features=features)
    pairs = read_hf(table, labels="label")
    assert len(pairs) == 12 and pairs[2].labels == "dog" and pairs[0].image.read_bytes() == rows["image"][0]
    assert [pair.caption for pair in read_hf(table, text="label", template="a {}.")][:2] == ["a cat.", "a dog."]
    datasets.DatasetDict({"train": table, "test": table.select([0])}).save_to_disk(str(tmp_path / "saved"))
    assert len(read_hf(tmp_path / "saved", split="test")) == 2
    assert len(read_hf(str(tmp_path / "saved"), rows=[1, 2])) == 4
    with pytest.raises(BadData, match="no split 'val'; there are train, test; name one with split="):
        read_hf(tmp_path / "saved", split="val")
    with pytest.raises(
        BadData, match="no column 'caption'; there are 'image', 'text', 'label'; name the right one with text="
    ):
        read_hf(table, text="caption")
    broken = datasets.Dataset.from_dict(rows | {"image": [b"no picture", *rows["image"][1:]]}, features=features)
    with pytest.raises(BadData, match="row 0: image 'data set train row 0' unreadable"):
        read_hf(broken)
    stream = Loader(pairs, Collate(Transform(8), WordTokenizer.fit(["a."])), 4, seed=0, workers=1).batches(0)
    assert next(stream).images.shape == (4, 3, 8, 8)
    stream.close()


# --- NLVR


def nlvr_folder(tmp_path, sentences=12):
    (tmp_path / "images" / "0").mkdir(parents=True)
    records = []
    for s in range(sentences):
        for k in range(4):
            # two sentences share their first picture
            shown = [[{"x_loc": s if k else s // 2, "y_loc": k, "type": "square"}], [], []]
            records.append(
                {
                    "sentence": f"Sentence {s}.",
                    "label": "true" if k % 2 else "false",
                    "identifier": f"{s}-{k}",
                    "directory": "0",
                    "structured_rep": shown,
                }
            )
            for permutation in range(2):
                noise(100 * s + 10 * k + permutation if k else 100_000 + s // 2).save(
                    tmp_path / "images" / "0" / f"dev-{s}-{k}-{permutation}.png"
                )
    (tmp_path / "dev.json").write_text("\n".join(map(json.dumps, records)))
    return records


def test_nlvr_halves_share_neither_sentence_nor_picture(tmp_path):
    records = nlvr_folder(tmp_path)
    for seed in range(5):
        sides = _split_halves(records, seed)
        assert sides == _split_halves(records[::-1], seed) and 5 <= sum(side == "train" for side in sides.values()) <= 8
        by_picture = {}
        for record in records:
            by_picture.setdefault(_picture_contents(record), set()).add(sides[normalize_caption(record["sentence"])])
        assert all(len(found) == 1 for found in by_picture.values())
    assert len({tuple(_split_halves(records, seed).items()) for seed in range(5)}) > 1
    pairs = read_nlvr(tmp_path)
    claims = read_claims(tmp_path)
    assert resolve_overlap(pairs, claims, "refuse")[1].compared[1] > 0
    assert {claim.truth for claim in claims} == {True, False} and all(pair.id.split("-")[1] in "13" for pair in pairs)
    assert len(read_claims(tmp_path, "all")) == 96
    assert len(read_claims(tmp_path, "train", permutations=[0])) == len(pairs)
    assert claims[0].item == (claims[0].sentence, claims[0].image, claims[0].truth)


def test_nlvr_faults(tmp_path):
    nlvr_folder(tmp_path)
    with pytest.raises(ValueError, match="no half 'dev'; there are train, test, all"):
        read_nlvr(tmp_path, half="dev")
    with pytest.raises(BadData, match="no .json file of records; name the folder that holds dev.json"):
        read_nlvr(tmp_path / "images")
    with pytest.raises(BadData, match="dev-.*-2.png' not found under .*images"):
        read_nlvr(tmp_path, permutations=[2])
    lines = (tmp_path / "dev.json").read_text().splitlines()
    (tmp_path / "dev.json").write_text("\n".join([*lines[:3], '{"sentence": "cut o']))
    with pytest.raises(BadData, match="dev.json line 4: not JSON"):
        read_nlvr(tmp_path, half="all")
    (tmp_path / "dev.json").write_text('{"sentence": "A.", "label": "true"}')
    with pytest.raises(
        BadData, match="dev.json line 1: identifier is missing; directory is missing; structured_rep is missing"
    ):
        read_nlvr(tmp_path)


# --- overlap


def test_overlap_finds_what_was_renamed(photos):
    train = [Pair(photos / f"{i:012d}.jpg", f"Photo {i}.", f"t{i}", f"vg{i}") for i in range(6)]
    (photos / "other.jpg").write_bytes((photos / f"{2:012d}.jpg").read_bytes())
    evaluation = [
        Pair(photos / "other.jpg", "Nothing known.", "e0", "e0"),
        Pair(encoded(99), "PHOTO  4", "e1", "e1"),
        Pair(resized(photos / f"{5:012d}.jpg"), "New.", "e2", "vg5"),
        Pair(encoded(97), "Another of this number.", "e3", "vg3"),
        Pair(photos / "gone.jpg", "Not there.", "e4", "vg5"),
    ]
    rest, shared = resolve_overlap(train, evaluation)
    assert shared.images == ("t2", "t5") and shared.captions == {"t4": "Photo 4."} and shared.compared == (6, 6, 4, 5)
    assert find_overlap(train, evaluation, captions=False).captions == {}
    message = (
        r"2 training pairs share a photo with the evaluation \(t2, t5\), 1 only a caption \(t4 'Photo "
        r"4.'\).*overlap=\"drop\""
    )
    with pytest.raises(ValueError, match=message):
        resolve_overlap(train, evaluation, "refuse")
    assert [pair.id for pair in rest] == ["t0", "t1", "t3"]
    assert rest.report.skipped["shared with an evaluation"] == ["t2", "t4", "t5"]
    assert resolve_overlap(train, evaluation, "keep") == (train, shared)
    assert resolve_overlap(rest, evaluation, "refuse")[0] is rest
    with pytest.raises(ValueError, match="no training pair is left"):
        resolve_overlap(train, train)
    with pytest.raises(ValueError, match="no overlap 'warn'; there are drop, keep, refuse"):
        resolve_overlap(train, evaluation, "warn")
    pixels = [np.full((4, 4, 3), i, np.uint8) for i in range(2)]
    copies = [Pair(pixels[0].copy(), "b", "1", "y"), Pair(pixels[1], "c", "2", "z")]
    assert find_overlap([Pair(pixels[0], "a", "0", "x")], copies).images == ("0",)
    tricky = [Pair(pixels[0], "a", "0", "x", negatives=["the wrong one"], views=("the other",))]
    assert find_overlap(tricky, [Pair(pixels[1], "The other!", "1", "y")]).captions == {"0": "the other"}
    assert find_overlap(tricky, [Pair(pixels[1], "the wrong one", "1", "y")]).captions == {"0": "the wrong one"}


@pytest.mark.parametrize("names", [
    ("COCO_train2014_000000000139.jpg", "000000000139"), ("images/000000000139.png", "000000000139"),
    ("1000268201_693b08cb0e.jpg", "1000268201_693b08cb0e"), ("vg7", "vg7"),
])  # fmt: skip
def test_a_resized_photo_is_known_by_its_published_name(names, photos):
    """A folder's file name, a release's, and a reader's id are one identity; a bare number is none."""
    assert photo_identity(names[0]) == names[1]
    train = [Pair(encoded(1), "a", "a", names[0]), Pair(encoded(2), "b", "b", "17")]
    small = Pair(resized(encoded(1)), "c", "c", names[1])
    shared = find_overlap(train, [small, Pair(encoded(4), "d", "d", "17.jpg")])
    assert shared.images == ("a",) and not shared.copies


@pytest.mark.parametrize("name", ["000000000001", "COCO_val2014_000000000001.jpg", "test/000000000001.jpg", "vg1"])
def test_equal_published_names_of_different_pictures_share_nothing(name, photos):
    """A folder may number its pictures as COCO does. Where a picture cannot be read, its name decides."""
    own = "vg1" if name == "vg1" else "train/000000000001.jpg"
    train = [Pair(encoded(1), "a", "a", own)]
    assert find_overlap(train, [Pair(encoded(2), "b", "b", name)]).images == ()
    (photos / "broken.jpg").write_bytes(encoded(2)[:40])
    for unread in (photos / "gone.jpg", photos / "broken.jpg", b"no picture", None):
        assert find_overlap(train, [Pair(unread, "b", "b", name)]).images == ("a",), unread
        assert find_overlap([Pair(unread, "b", "b", name)], train).images == ("b",), unread
    assert find_overlap(train, [Pair(encoded(2), "b", "b", name), Pair(encoded(1), "c", "c", name)]).images == ("a",)


def test_a_data_set_is_read_without_what_another_one_shares(photos):
    table(photos, good_rows(6))
    table(photos, good_rows(2), "questions.csv")
    source = {"name": "folder", "args": {"folder": str(photos)}}
    questions = {"name": "folder", "args": {"folder": str(photos), "captions_file": "questions.csv"}}
    ids = [pair.id for pair in read("folder", **source["args"])]
    rest = read("disjoint", source=source, evaluation=[questions], exclude=ids[5:])
    assert [pair.id for pair in rest] == ids[2:5] and rest.report.n_skipped == 2 and rest.report.kept == 3
    assert len(read("disjoint", source=source, evaluation=[questions], overlap="keep")) == 6
    with pytest.raises(ValueError, match="2 training pairs share a photo"):
        read("disjoint", source=source, evaluation=[questions], overlap="refuse")
    with pytest.raises(ValueError, match="a generated world cannot lose pairs"):
        read("disjoint", source={"name": "generated", "args": {"n_train": 8}}, exclude=["train-0"])


def test_a_part_of_a_photo_overlaps_with_the_photo(photos):
    name = photos / f"{1:012d}.jpg"
    other = photos / f"{2:012d}.jpg"
    part = [Choice("on", (Crop(name, (0, 0, 4, 4)),), ("one", "two"), "0", ("box",))]
    assert find_overlap([Pair(name, "a", "0", "x"), Pair(other, "b", "1", "y")], part).images == ("0",)
    assert find_overlap([Pair(Crop(name, (1, 1, 3, 3)), "a", "0", "x")], part).images == ("0",)


# --- registry


def test_registry(photos):
    table(photos, good_rows(3))
    assert set(READERS) >= {
        "folder",
        "coco",
        "flickr",
        "karpathy",
        "webdataset",
        "hf",
        "parquet",
        "nlvr",
        "joined",
        "generated",
    }
    assert len(read("folder", folder=str(photos))) == 3
    with pytest.raises(ValueError, match="no reader 'imagenet'; there are (?=.*coco, )(?=.*webdataset, )"):
        read("imagenet")
    with pytest.raises(ValueError, match="reader 'folder': no argument 'path'.*; there are folder, captions_file"):
        read("folder", path="x")
    READERS.add("mine", lambda n: Pairs([Pair(None, "a", str(i), str(i)) for i in range(n)]))
    try:
        joined = read(
            "joined", parts=[{"name": "mine", "args": {"n": 2}}, {"name": "folder", "args": {"folder": str(photos)}}]
        )
        assert len(joined) == 5 and "in memory + captions.csv" in str(joined.report)
        with pytest.raises(BadData, match="pair 0 is in two parts"):
            read("joined", parts=[{"name": "mine", "args": {"n": 2}}] * 2)
    finally:
        del READERS.entries["mine"]
    with pytest.raises(ValueError, match="a part is {'name'"):
        read("joined", parts=[{"reader": "folder"}])


# --- real files


@pytest.mark.real
def test_real_coco_and_nlvr(real_data):
    def coco(split, **options):
        return read(
            "coco",
            images=str(real_data / "coco" / split),
            annotations=str(real_data / f"coco/annotations/captions_{split}.json"),
            **options,
        )

    train = coco("train2017")
    val = coco("val2017")
    assert (
        "208 photos in train2017, 128 of them without a caption" in str(train.report)
        and len(train) == 400
        and len({p.image_id for p in train}) == 80
    )
    assert len(val) == 915 and len({p.image_id for p in val}) == 183
    assert fingerprint(train) != fingerprint(val)
    assert not find_overlap(train, val).images
    pairs = read_nlvr(real_data / "nlvr/dev")
    claims = read_claims(real_data / "nlvr/dev")
    records = [json.loads(line) for line in (real_data / "nlvr/dev/dev.json").open()]
    assert len(records) == 989 and len({record["sentence"] for record in records}) == 249
    sides = _split_halves(records)
    assert (len(sides), sum(side == "train" for side in sides.values())) == (248, 124)
    assert len(read_claims(real_data / "nlvr/dev", "all", check="exists")) == 1978
    resolve_overlap(pairs, claims, "refuse")
    assert len(pairs) == 2 * sum(
        r["label"] == "true" and sides[normalize_caption(r["sentence"])] == "train" for r in records
    )
    batch = Collate(Transform(64, fit="pad"), WordTokenizer.fit(pair.caption for pair in pairs))(pairs[:8])
    assert batch.images.shape == (8, 3, 64, 64) and batch.images.std() > 0.1


@pytest.mark.real
def test_real_parquet_and_flickr_lines(real_data):
    pairs = read_parquet(
        real_data / "images/mnist_test.parquet", text="label", template="the digit {}.", check="header"
    )
    assert len(pairs) == 10_000 and {pair.caption for pair in pairs} == {f"the digit {i}." for i in range(10)}
    assert load_images([pair.image for pair in pairs[:4]], 28).shape == (4, 28, 28, 3)


@pytest.mark.real
def test_real_flickr8k_and_its_splits(real_data):
    folder = real_data / "flickr8k"
    splits = {}
    for split in ("train", "dev"):
        files = {"token_file": folder / "Flickr8k.token.txt", "split_file": folder / f"Flickr_8k.{split}Images.txt"}
        splits[split] = read("flickr", images=folder / "Images", check="exists", **files)
    photos = {split: {pair.image_id for pair in pairs} for split, pairs in splits.items()}
    assert [(len(pairs), len(photos[split])) for split, pairs in splits.items()] == [(29_995, 5999), (5000, 1000)]
    assert not photos["train"] & photos["dev"] and not any(pairs.report.skipped for pairs in splits.values())
    assert load_images([pair.image for pair in splits["dev"][:10:5]], 64).shape == (2, 64, 64, 3)


def dotted_shard(path, names, text="txt"):
    with tarfile.open(path, "w") as tar:
        for k, name in enumerate(names):
            for extension, content in (("jpg", encoded(k, size=(8, 8))), (text, f"Number {k}.".encode())):
                member = tarfile.TarInfo(f"{name}.{extension}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def test_pairs_that_a_dot_in_their_name_hides_are_counted_one_by_one(tmp_path):
    """100 of 400 pairs are lost, and not 1 of 301; the message says why, and what to do."""
    dotted_shard(tmp_path / "mixed.tar", [f"{k:05d}" for k in range(300)] + [f"walk.{k}" for k in range(100)])
    fault = (
        "sample walk.0: a sample's name ends at its first dot, so this one is read as a part of 'walk'; rename its "
        "members, .* walk_0"
    )
    with pytest.raises(BadData, match=f"{fault}.*100 of 400 samples of mixed.tar are bad"):
        read_webdataset(tmp_path / "mixed.tar")
    with pytest.warns(UserWarning, match="skipped 100: 100 dot in the name"):
        pairs = read_webdataset(tmp_path / "mixed.tar", max_bad=0.5)
    assert len(pairs) == 300 and pairs.report.skipped["dot in the name"][99] == "mixed.tar sample walk.99"
    # a whole pair beside a hidden one; dots in folders are no matter
    dotted_shard(tmp_path / "whole.tar", ["walk", "walk.1", "v1.2/walk"])
    with pytest.warns(UserWarning, match="1 dot in the name"):
        assert [pair.image_id for pair in read_webdataset(tmp_path / "whole.tar", max_bad=0.5)] == [
            "whole/walk",
            "whole/v1.2/walk",
        ]
    dotted_shard(tmp_path / "none.tar", [f"walk.{k}" for k in range(4)])
    with pytest.raises(BadData, match="4 of 4 samples"):
        read_webdataset(tmp_path / "none.tar")
    with tarfile.open(tmp_path / "views.tar", "w") as tar:
        for name in ("a.left.jpg", "a.right.jpg", "b.jpg", "b.seg.png", "b.txt"):
            member = tarfile.TarInfo(name)
            member.size = len(encoded(1))
            tar.addfile(member, io.BytesIO(encoded(1) if name != "b.txt" else b"B.".ljust(len(encoded(1)))))
    # two pictures without a text; a second picture of b is none
    with pytest.warns(UserWarning, match="skipped 2: 2 incomplete sample"):
        assert len(read_webdataset(tmp_path / "views.tar", max_bad=1.0)) == 1


def test_caption_words_labels_pictures_by_what_their_captions_say(tmp_path):
    for name in "abc":
        Image.new("RGB", (8, 8), (40 * ord(name) % 250, 0, 0)).save(tmp_path / f"{name}.png")
    rows = ["image,caption", "a.png,A Dog runs.", "a.png,a man", "b.png,two hotdogs", "c.png,the DOG's ball"]
    (tmp_path / "captions.csv").write_text("\n".join(rows))
    source = {"name": "folder", "args": {"folder": str(tmp_path)}}
    pairs = read("caption_words", source=source, words=["Dog", "man"])
    assert [pair.labels for pair in pairs] == [
        {"dog": "said", "man": "said"},
        {"dog": "not said", "man": "not said"},
        {"dog": "not said", "man": "not said"},
    ]
    assert len({pair.image_id for pair in pairs}) == len(pairs) == 3
    assert {pair.caption for pair in pairs} == {None}, "equal captions do not make two pictures one"
    with pytest.raises(BadData, match="folder: 0 of 3 pictures have the word 'cat'; name another word"):
        read("caption_words", source=source, words=["dog", "cat"])
    with pytest.raises(ValueError, match="each once; got dog, Dog"):
        read("caption_words", source=source, words=["dog", "Dog"])


def test_the_ending_of_text_files_may_be_given_without_its_dot(tmp_path):
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text("a black square")
    for ending in ("txt", ".txt"):
        assert [pair.caption for pair in read("sidecar", folder=str(tmp_path), ending=ending)] == ["a black square"]


def test_rows_with_one_picture_have_one_identity(tmp_path):
    """A table may have a row for each caption; pictures of their own keep the names of their rows."""
    datasets = pytest.importorskip("datasets")
    pictures = [encoded(0), encoded(1), encoded(0)]
    table = datasets.Dataset.from_dict({"image": pictures, "text": ["A.", "B.", "C."]})
    table = table.cast_column("image", datasets.Image())
    table.to_parquet(tmp_path / "train.parquet")
    table.save_to_disk(str(tmp_path / "saved"))
    read_all = [
        [*read_parquet(tmp_path / "train.parquet")],
        [*read_hf(tmp_path / "saved")],
        [pair for part in read_hf(tmp_path / "saved", stream=True).read(0) for pair in part],
    ]
    for pairs in read_all:
        ids = [pair.image_id for pair in pairs]
        assert ids[0] == ids[2] != ids[1] and ids[1].endswith("row 1") and len({pair.id for pair in pairs}) == 3


def test_parquet_files_of_several_splits_are_named(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    pyarrow = pytest.importorskip("pyarrow")
    for k, name in enumerate(("train-00000-of-00001", "test-00000-of-00001")):
        parquet.write_table(pyarrow.table({"image": [encoded(k)], "text": ["A goat."]}), tmp_path / f"{name}.parquet")
    (note,) = [note for note in read_parquet(tmp_path).report.notes if "splits" in note]
    assert note.startswith("rows of several splits (test 1, train 1); name the file") and "'hf'" in note
    assert not read_parquet(tmp_path / "train-00000-of-00001.parquet").report.notes


def test_shards_of_a_folder_with_brackets_are_found(tmp_path):
    folder = tmp_path / "pets [2024]*"
    folder.mkdir()
    write_shards(folder, n=1, samples=2)
    assert len(read_webdataset(folder)) == 2
    plain = folder.rename(tmp_path / "pets [2024]")
    assert len(read_webdataset(plain / "*.tar")) == 2


def test_a_picture_of_a_class_keeps_its_id(tmp_path):
    """Another picture, or another class, changes none."""
    (tmp_path / "pets" / "dog").mkdir(parents=True)
    (tmp_path / "pets" / "dog" / "b.png").write_bytes(encoded(0))
    (before,) = read("labels", folder=str(tmp_path / "pets"))
    (tmp_path / "pets" / "dog" / "a.png").write_bytes(encoded(1))
    pairs = read("labels", folder=str(tmp_path / "pets"))
    assert before.id == "pets:dog/b.png" and [pair.id for pair in pairs] == ["pets:dog/a.png", "pets:dog/b.png"]


def test_two_pictures_may_have_one_text(tmp_path):
    for name in ("dog.jpg", "dog.png"):
        (tmp_path / name).write_bytes(encoded(0))
    (tmp_path / "dog.txt").write_text("A dog.\n")
    assert [pair.id for pair in read("sidecar", folder=str(tmp_path))] == ["dog.jpg:0", "dog.png:0"]
