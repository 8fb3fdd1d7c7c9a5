"""Streams: the order of a naive walk, each pair once an epoch for any shards, workers and processes, exact resume, and
shards that are replaced, damaged or gone."""

import io
import pickle
import shutil
import signal
import tarfile
import tracemalloc
import warnings
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
import training_runs
from PIL import Image
from test_training_processes import torchrun
from training_runs import assert_same

from complearn.core.config import RequestError
from complearn.core.runs import Run
from complearn.core.seeds import derive, rng
from complearn.data.pairs import Collate, Pair, Transform, WordTokenizer
from complearn.data.readers.registry import check_reader, read
from complearn.data.reports import BadData, Report
from complearn.data.streams import PairStream, Stream, StreamLoader, _Walk, file_mark
from complearn.training.runs.launch import launch, prepare


def picture(seed, size=16):
    buffer = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size, size, 3), np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def write_shard(path, numbers, broken=()):
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            image = b"no picture" if number in broken else picture(number)
            for name, content in (
                (f"{number:06d}.png", image),
                (f"{number:06d}.txt", f"goat {number} near a mill".encode()),
            ):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))


def write_shards(folder, sizes=(9, 5, 12)):
    folder.mkdir(exist_ok=True)
    first = 0
    for k, size in enumerate(sizes):
        write_shard(folder / f"cc-{k:05d}.tar", range(first, first + size))
        first += size
    return folder


def of_sizes(sizes, shuffle=4, at_once=3):
    """A stream of texts in memory."""

    def read_shard(number):
        texts = [f"{number}-{k}" for k in range(sizes[number])]
        for start in range(0, len(texts), at_once):
            yield [Pair(None, text, text, text) for text in texts[start : start + at_once]]
        return Report(f"shard {number}", len(texts))

    names = [f"shard {number}" for number in range(len(sizes))]
    return PairStream("texts", names, read_shard, lambda number: str(sizes[number]), Stream(shuffle=shuffle))


def loader_of(stream, batch_size=4, seed=3, **options):
    collate = Collate(None, WordTokenizer.fit(["1"]), pixels=False)
    return StreamLoader(stream, collate, batch_size, seed, **options)


def naive_order(sizes, shuffle, seed, epoch):
    """The ids of an epoch, and their draws, by lists alone."""
    shards = rng(seed, "shards", epoch).permutation(len(sizes)).tolist() if shuffle else range(len(sizes))
    waiting = [(shard, place) for shard in shards for place in range(sizes[shard])]
    buffer, order = [], []
    while waiting or buffer:
        while waiting and len(buffer) < max(1, shuffle):
            buffer.append(waiting.pop(0))
        place = derive(seed, "buffer", epoch, len(order)) % len(buffer)
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        order.append(buffer.pop())
    return [(f"{shard}-{place}", derive(seed, "sample", epoch, shard, place)) for shard, place in order]


# --- the order and the partition


@pytest.mark.parametrize("sizes", [(7,), (4, 0, 9), (5, 5, 5), (1, 30, 2, 3)])
@pytest.mark.parametrize("shuffle", [0, 1, 3, 8, 100])
def test_processes_divide_the_order_of_a_naive_walk(sizes, shuffle):
    truth = [sample for epoch in range(4) for sample in naive_order(sizes, shuffle, 3, epoch)]
    for world in (1, 2, 4):
        loaders = [loader_of(of_sizes(sizes, shuffle), rank=rank, world=world) for rank in range(world)]
        tasks = [loader.tasks(0) for loader in loaders]
        for number in range(len(truth) // 4):
            shares = [next(task) for task in tasks]
            assert {len(pairs) for pairs, _ in shares} == {4 // world}
            joint = [(pair.id, draw) for pairs, draws in shares for pair, draw in zip(pairs, draws)]
            assert joint == truth[4 * number : 4 * number + 4], (world, number)
    n = sum(sizes)
    for epoch in range(4):
        assert len({name for name, _ in truth[epoch * n : epoch * n + n]}) == n  # each pair once


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_any_number_of_workers_and_any_start_give_the_same_batches(tmp_path, workers):
    stream = read("webdataset", shards=str(write_shards(tmp_path / "shards")), stream={"shuffle": 6})
    collate = Collate(Transform(16, area=(0.5, 1.0), jitter=0.2), WordTokenizer.fit(stream.captions()))
    truth = StreamLoader(stream, collate, 4, seed=3)
    first = [truth.batch(number) for number in range(14)]  # more than two epochs of 26
    for world, start in ((1, 0), (2, 5)):
        for rank in range(world):
            loader = StreamLoader(stream, collate, 4, 3, workers, rank, world, ahead=2)
            loader.seek(start, truth.cursor(start))
            batches = loader.batches(start)
            share = slice(rank * 4 // world, (rank + 1) * 4 // world)
            for whole, batch in zip(first[start:], islice(batches, 14 - start), strict=True):
                assert batch.keys == whole.keys[share] and torch.equal(batch.images, whole.images[share])
                assert torch.equal(batch.ids, whole.ids[share])
            batches.close()


def test_a_stream_holds_the_pairs_of_the_list(tmp_path):
    folder = write_shards(tmp_path / "shards")
    stream = read("webdataset", shards=str(folder), stream={"shuffle": 0})
    pairs = read("webdataset", shards=str(folder))
    walk = _Walk(stream, 0, 4)
    assert [next(walk)[0] for _ in range(26)] == list(pairs)
    assert stream.captions() == [pair.caption for pair in pairs]
    assert stream.source == {"name": "webdataset", "args": {"shards": str(folder), "stream": {"shuffle": 0}}}


def test_the_library_reads_the_same_samples_but_ends_at_a_damaged_header(tmp_path):
    """Why shards are streamed by this package's own index: `webdataset` says nothing of what it leaves out."""
    webdataset = pytest.importorskip("webdataset")
    folder = write_shards(tmp_path / "shards")
    path = folder / "cc-00000.tar"

    def library():
        data = webdataset.WebDataset(str(path), shardshuffle=False)
        return [(sample["txt"].decode(), sample["png"]) for sample in data]

    def own():
        walk = read("webdataset", shards=str(path), stream={"shuffle": 0}, max_bad=0.9).read(0)
        return [(pair.caption, pair.image.read_bytes()) for part in walk for pair in part]

    assert library() == own() and len(own()) == 9
    content = bytearray(path.read_bytes())
    with tarfile.open(path) as tar:
        header = tar.getmember("000004.png").offset
    content[header : header + 100] = b"\xff" * 100
    path.write_bytes(content)
    assert len(library()) == 4 and len(own()) == 8


def test_pairs_of_a_batch_over_the_end_of_an_epoch():
    loader = loader_of(of_sizes((5, 2)))
    keys = [loader.batch(number).keys for number in range(7)]
    ids = [name for batch in keys for name in batch]
    assert all(len(set(ids[start : start + 7])) == 7 for start in (0, 7, 14, 21))
    with pytest.raises(ValueError, match="3 pairs do not fill a batch of 4"):
        loader_of(of_sizes((1, 2))).batch(1)
    with pytest.raises(BadData, match="texts: not a single pair in its 2 shards"):
        loader_of(of_sizes((0, 0))).batch(0)


@pytest.mark.parametrize("shuffle", [0, 3, 50])
def test_a_cursor_is_enough_to_go_on(shuffle):
    sizes = (4, 0, 9, 3)
    truth = loader_of(of_sizes(sizes, shuffle))
    keys = [truth.batch(number).keys for number in range(16)]
    for number in range(12):
        cursor = loader_of(of_sizes(sizes, shuffle)).cursor(number)
        later = loader_of(of_sizes(sizes, shuffle))
        later.seek(number, cursor)
        assert [later.batch(k).keys for k in range(number, 16)] == keys[number:]
        assert len(cursor["buffer"]) <= max(1, shuffle)


def test_only_the_shards_of_the_buffer_are_read_again():
    stream = of_sizes((10,) * 50, shuffle=5)
    loader = loader_of(stream)
    cursor = loader.cursor(100)
    seen = []
    counted = PairStream(
        "texts", stream.names, lambda number: (seen.append(number), stream.read(number))[1], stream.mark
    )
    counted.options = stream.options
    later = loader_of(counted)
    later.seek(100, cursor)
    assert later.batch(100).keys == loader.batch(100).keys and len(set(seen)) <= 3


def test_memory_does_not_grow_with_the_stream():
    def peak(n_shards):
        walk = _Walk(of_sizes((200,) * n_shards, shuffle=100, at_once=200), 0, 4)
        tracemalloc.start()
        for _ in range(200 * n_shards):
            next(walk)
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(2)
    assert peak(40) < 1.2 * peak(4)


def test_a_stream_goes_to_another_process(tmp_path):
    stream = read("webdataset", shards=str(write_shards(tmp_path / "shards")), stream=True)
    again = pickle.loads(pickle.dumps(stream))
    assert again.fingerprint() == stream.fingerprint() and again.options == Stream()


# --- what a stream cannot do


@pytest.mark.parametrize("ask", [len, list, lambda stream: stream[0], lambda stream: stream + stream])
def test_what_needs_all_pairs_is_refused(ask):
    with pytest.raises(RequestError, match="texts is read as a stream.*leave stream out, and they are read through a"):
        ask(of_sizes((3, 3)))
    assert of_sizes((3, 3))


def test_other_readers_and_preload_refuse_a_stream(tmp_path):
    source = {"name": "webdataset", "args": {"shards": str(write_shards(tmp_path / "shards")), "stream": True}}
    for name, arguments in (("joined", {"parts": [source]}), ("disjoint", {"source": source})):
        with pytest.raises(RequestError, match="is read as a stream"):
            read(name, **arguments)
    with pytest.raises(RequestError, match="preload holds all pictures in memory, and a stream only those of its"):
        prepare(tmp_path / "run", run_config(tmp_path / "shards", preload=True))
    with pytest.raises(RequestError, match="is read as a stream"):
        loader_of(of_sizes((3, 3))).position(7)


def test_a_vocabulary_of_the_first_pairs_says_so(tmp_path, capsys):
    folder = write_shards(tmp_path / "shards")
    assert len(read("webdataset", shards=str(folder), stream={"first": 11}).captions()) == 11
    assert "the captions of the first 11 pairs alone (stream.first)" in capsys.readouterr().out
    assert len(read("webdataset", shards=str(folder), stream=True).captions()) == 26
    assert "the captions of all 26 pairs" in capsys.readouterr().out


@pytest.mark.parametrize(
    "stream,message",
    [
        ("yes", "stream is true or"),
        (3, "stream is true or"),
        ({"shuffle": "many"}, "stream.shuffle should be a valid integer, not 'many'"),
        ({"shuffle": -1}, "stream.shuffle should be greater than or equal to 0"),
        ({"shuffle": True}, "stream.shuffle should be a valid integer, not True"),
        ({"first": 0}, "stream.first should be greater than 0"),
        ({"shufle": 3}, "no stream key 'shufle' .did you mean 'shuffle'"),
    ],
)
def test_options_of_a_wrong_kind_are_named(tmp_path, stream, message):
    shards = str(write_shards(tmp_path / "shards"))
    with pytest.raises(RequestError, match=message):
        read("webdataset", shards=shards, stream=stream)
    with pytest.raises(RequestError, match=message):
        check_reader("webdataset", {"shards": shards, "stream": stream})


# --- bad shards


def test_a_damaged_shard_is_named_and_its_whole_samples_are_read(tmp_path):
    folder = write_shards(tmp_path / "shards")
    path = folder / "cc-00002.tar"
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(BadData, match="cc-00002.tar.*lost from a shard that was cut off.*mend the data"):
        list(islice(_Walk(read("webdataset", shards=str(folder), stream={"shuffle": 0}), 0, 4), 26))
    walk = _Walk(read("webdataset", shards=str(folder), stream={"shuffle": 0}, max_bad=0.9), 0, 4)
    with pytest.warns(UserWarning, match="cc-00002.tar"):
        ids = [next(walk)[0].id for _ in range(22)]
    assert ids[:14] == [f"cc-00000/{k:06d}" for k in range(9)] + [f"cc-00001/{k:06d}" for k in range(9, 14)]
    assert ids[14].startswith("cc-00002/") and "cc-00000/000000" in ids[14:]


def test_a_picture_that_cannot_be_read_is_named_and_left_out(tmp_path):
    folder = write_shards(tmp_path / "shards")
    write_shard(folder / "cc-00001.tar", range(9, 14), broken=[11])
    with pytest.warns(UserWarning, match="cc-00001.tar.*000011.png"):
        walk = _Walk(read("webdataset", shards=str(folder), stream={"shuffle": 0}, max_bad=0.2), 0, 4)
        assert "cc-00001/000011" not in [next(walk)[0].id for _ in range(25)]


def test_few_bad_samples_of_many_shards_are_no_error():
    def read_shard(number):
        yield [Pair(None, "a", f"{number}-{k}", "a") for k in range(90)]
        skipped = {"bad row": ["row 7"] * (10 if number == 0 else 0)}
        return Report(f"shard {number}", 90, skipped)

    stream = PairStream("rows", list("abcdefghijkl"), read_shard, str, Stream(shuffle=0))
    with pytest.warns(UserWarning, match="shard 0: 90 kept; skipped 10"):
        assert len(list(islice(_Walk(stream, 0, 4), 12 * 90))) == 12 * 90
    stream.max_bad = 0.005
    with pytest.raises(BadData, match="10 of 100 samples of rows so far are bad, more than the 0.5%"):
        list(islice(_Walk(stream, 0, 4), 12 * 90))


def test_a_mark_changes_with_a_large_files_content(tmp_path):
    path = tmp_path / "large.tar"
    content = bytearray(np.random.default_rng(0).integers(0, 256, 2**20, np.uint8).tobytes())
    path.write_bytes(content)
    mark = file_mark(path)
    assert mark == file_mark(shutil.copy(path, tmp_path / "copy.tar"))
    for place in (0, len(content) - 1):
        path.write_bytes(content[:place] + b"?" + content[place + 1 :])
        assert file_mark(path) != mark
    path.write_bytes(content + b"?")
    assert file_mark(path) != mark


def test_a_shard_that_lost_pairs_while_a_run_was_stopped_is_named():
    loader = loader_of(of_sizes((9, 9)))
    cursor = loader.cursor(3)
    later = loader_of(of_sizes((1, 1)))
    later.seek(3, cursor)
    with pytest.raises(BadData, match=r"shard \d held more than \d pairs when the run was stopped"):
        later.batch(3)


# --- runs


def run_config(folder, **train):
    config = training_runs.config({"name": "clip", "args": {"steps": 20, "ramp": 3}}, **train)
    args = {"shards": str(folder), "stream": {"shuffle": 7}}
    return config | {"data": {"name": "webdataset", "args": args}}


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(tmp_path_factory.mktemp("streamed") / "shards")


@pytest.fixture(scope="module")
def whole(tmp_path_factory, shards):
    """The run that nobody disturbs, in this process."""
    return launch(prepare(tmp_path_factory.mktemp("whole") / "run", run_config(shards)).path, progress=False)


class Interrupted(Exception):
    pass


def interrupt_at(monkeypatch, step):
    from complearn.training.engine.trainer import Trainer

    after = Trainer.after_step

    def struck(self, result):
        if self.state.step == step:
            raise Interrupted
        return after(self, result)

    monkeypatch.setattr(Trainer, "after_step", struck)


def test_a_killed_run_on_a_stream_ends_as_the_undisturbed_one(whole, shards, tmp_path):
    run = prepare(tmp_path / "run", run_config(shards))
    process = training_runs.start(run.path, "kill step 10")
    process.join(240)
    assert process.exitcode == -signal.SIGKILL
    assert [path.name for path in run.checkpoints()] == ["step-00000004", "step-00000008"]
    launch(run.path, progress=False)
    assert_same(Run.open(run.path), whole)


@pytest.mark.parametrize("workers", [0, 2])
def test_resume_with_other_workers_is_exact_and_reads_the_past_no_more(whole, shards, tmp_path, monkeypatch, workers):
    run = prepare(tmp_path / "run", run_config(shards, workers=workers))
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        interrupt_at(patch, 14)
        launch(run.path, progress=False)
    walks = []
    begin = _Walk.__init__

    def noted(self, stream, seed, least, cursor=None):
        walks.append(cursor)
        begin(self, stream, seed, least, cursor)

    monkeypatch.setattr(_Walk, "__init__", noted)
    launch(run.path, progress=False)
    assert walks and all(cursor is not None for cursor in walks)
    assert (walks[0]["epoch"], walks[0]["drawn"]) == divmod(12 * 8, 26)
    assert_same(Run.open(run.path), whole)


def test_a_replaced_shard_between_two_starts_is_named(shards, tmp_path, monkeypatch):
    folder = shutil.copytree(shards, tmp_path / "shards")
    run = prepare(tmp_path / "run", run_config(folder))
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        interrupt_at(patch, 6)
        launch(run.path, progress=False)
    kept = (folder / "cc-00001.tar").read_bytes()
    write_shard(folder / "cc-00001.tar", range(109, 114))
    with pytest.raises(ValueError, match=r"have changed: 1 of 3 shards replaced \(cc-00001.tar\)"):
        launch(run.path, progress=False)
    (folder / "cc-00001.tar").rename(folder / "cc-00009.tar")
    with pytest.raises(ValueError, match=r"1 of 3 shards gone \(cc-00001.tar\); 1 of 3 shards new \(cc-00009.tar\)"):
        launch(run.path, progress=False)
    (folder / "cc-00009.tar").unlink()
    (folder / "cc-00001.tar").write_bytes(kept)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        launch(run.path, progress=False)


@pytest.mark.slow
def test_two_processes_on_a_stream_train_what_one_does_and_resume(whole, shards, tmp_path):
    for name in ("whole", "killed"):
        prepare(tmp_path / name, run_config(shards, processes=2))
    torchrun(Path(__file__).with_name("stream_ranks.py"), tmp_path)
    together, resumed = (Run.open(tmp_path / name) for name in ("whole", "killed"))
    assert_same(resumed, together)
    losses = [[r["loss"] for r in run.records() if r["kind"] == "step"] for run in (together, whole)]
    assert len(losses[0]) == 20 and losses[0] == pytest.approx(losses[1], abs=2e-3)


# --- Hugging Face data sets


def hf_rows(numbers):
    datasets = pytest.importorskip("datasets")
    rows = [
        {"image": {"bytes": picture(k), "path": None}, "text": f"goat {k} near a mill", "kind": k % 2} for k in numbers
    ]
    kinds = datasets.ClassLabel(names=["even", "odd"])
    features = datasets.Features(image=datasets.Image(), text=datasets.Value("string"), kind=kinds)
    return datasets.Dataset.from_list(rows, features=features)


@pytest.fixture
def parquet(tmp_path):
    folder = tmp_path / "parquet"
    folder.mkdir()
    for k, numbers in enumerate((range(9), range(9, 14), range(14, 26))):
        hf_rows(numbers).to_parquet(folder / f"train-{k:05d}.parquet")
    return folder


def held(pairs):
    return [(pair.caption, pair.image.read_bytes(), pair.labels) for pair in pairs]


def test_a_folder_of_parquet_files_is_streamed_shard_by_shard(parquet):
    table = read("hf", dataset=str(parquet), labels="kind")
    stream = read("hf", dataset=str(parquet), labels="kind", stream={"shuffle": 0})
    assert stream.names == tuple(f"parquet/train-{k:05d}.parquet" for k in range(3))
    walk = _Walk(stream, 0, 4)
    pairs = [next(walk)[0] for _ in range(26)]
    assert held(pairs) == held(table) and len({pair.id for pair in pairs}) == 26
    assert held(stream.fetch([(1, 2), (0, 8)])) == held([table[11], table[8]])
    assert pairs[9].id == "parquet/train-00001.parquet row 0:0" and pairs[9].labels == "odd"


@pytest.mark.parametrize("form", ["saved", "in memory", "streamed"])
def test_other_forms_of_a_data_set_are_streamed(tmp_path, form, parquet, monkeypatch):
    datasets = pytest.importorskip("datasets")
    from complearn.data.readers import tables

    monkeypatch.setattr(tables, "_ROWS_OF_SHARD", 10)
    table = hf_rows(range(26))
    if form == "saved":
        table.save_to_disk(tmp_path / "saved")
        dataset = str(tmp_path / "saved")
    elif form == "streamed":
        dataset = datasets.load_dataset(str(parquet), split="train", streaming=True)
        with pytest.raises(BadData, match="say stream=True to train on it"):
            read("hf", dataset=dataset)
    else:
        dataset = table
    stream = read("hf", dataset=dataset, stream={"shuffle": 5})
    assert len(stream.names) == (3 if form == "streamed" else 2)
    loader = loader_of(stream)
    keys = [key for number in range(13) for key in loader.batch(number).keys]
    assert len(set(keys[:26])) == len(set(keys[26:])) == 26
    later = loader_of(stream)
    later.seek(5, loader_of(stream).cursor(5))
    assert list(later.batch(5).keys + later.batch(6).keys) == keys[20:28]
    assert stream.fingerprint() == read("hf", dataset=dataset, stream={"shuffle": 5}).fingerprint()


def test_a_damaged_parquet_file_and_wrong_columns_are_named(parquet):
    with pytest.raises(BadData, match="parquet: no column 'caption'; there are 'image', 'text', 'kind'.*with text="):
        read("hf", dataset=str(parquet), text="caption", stream=True)
    with pytest.raises(ValueError, match="a stream has no numbered rows; leave out rows, or stream"):
        read("hf", dataset=str(parquet), rows=[1, 2], stream=True)
    stream = read("hf", dataset=str(parquet), stream={"shuffle": 0})
    path = parquet / "train-00001.parquet"
    marks = stream.marks()
    path.write_bytes(path.read_bytes()[:-500])
    assert stream.changes(marks) == "1 of 3 shards replaced (parquet/train-00001.parquet)"
    with pytest.raises(BadData, match="train-00001.parquet cannot be read after row 0: .*; get this file again"):
        list(islice(_Walk(stream, 0, 4), 26))


def test_a_run_on_a_streamed_data_set_resumes_exactly(parquet, tmp_path, monkeypatch):
    config = run_config(tmp_path) | {
        "data": {"name": "hf", "args": {"dataset": str(parquet), "stream": {"shuffle": 7}}}
    }
    undisturbed = launch(prepare(tmp_path / "whole", config).path, progress=False)
    run = prepare(tmp_path / "run", config)
    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        interrupt_at(patch, 10)
        launch(run.path, progress=False)
    launch(run.path, progress=False)
    assert_same(Run.open(run.path), undisturbed)
