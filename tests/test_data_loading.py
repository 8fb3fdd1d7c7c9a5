"Batches are a function of (seed, number): any number of workers, processes, and resumes give the same ones."

import io
import os
import sqlite3
import tarfile
import threading
import warnings
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import pytest
import torch
from PIL import Image

from complearn.core import hashes
from complearn.core.seeds import rng
from complearn.data.benchmarks.items import Crop
from complearn.data.images import BrokenImage
from complearn.data.loading import Loader, content_fingerprint, fingerprint
from complearn.data.negatives import DrawNegatives, HardNegatives, with_negatives
from complearn.data.pairs import Collate, Pair, Transform, WordTokenizer, keep_labels, number_captions, one_per_image
from complearn.data.readers.registry import read
from complearn.models.features import feature_key


def make_pairs(folder, n=23):
    for i in range(n):
        Image.fromarray(np.random.default_rng(i).integers(0, 256, (20, 24, 3), np.uint8)).save(folder / f"{i}.png")
    return [Pair(folder / f"{i}.png", f"caption {i} {side}", f"{i}{side}", f"{i}") for i in range(n) for side in "ab"]


def make_collate(pairs):
    texts = [pair.caption for pair in pairs]
    tokenizer = WordTokenizer.fit(texts)
    steps = (number_captions, keep_labels, DrawNegatives("swap", tokenizer))
    return Collate(Transform(16, area=(0.5, 1.0), jitter=0.2), tokenizer, choose=True, steps=steps)


def equal(a, b):
    def values(batch):
        return [*vars(batch).values(), *(value for part in batch.parts.values() for value in vars(part).values())]

    def tensors(batch):
        return [value for value in values(batch) if torch.is_tensor(value)]

    def tuples(batch):
        return [value for value in values(batch) if isinstance(value, tuple)]

    return [*a.parts] == [*b.parts] and tuples(a) == tuples(b) and all(map(torch.equal, tensors(a), tensors(b)))


@pytest.fixture
def loaders(tmp_path):
    pairs = one_per_image(make_pairs(tmp_path))
    return lambda workers=0, **options: Loader(
        pairs, make_collate(pairs), **({"batch_size": 4, "seed": 3, "workers": workers} | options)
    )


def test_any_number_of_workers_and_any_start_give_the_same_batches(loaders):
    truth = [loaders().batch(number) for number in range(12)]
    for workers in (0, 1, 2):
        for start in (0, 7):
            stream = loaders(workers).batches(start)
            assert all(equal(a, b) for a, b in zip(truth[start:], islice(stream, 12 - start), strict=True)), (
                workers,
                start,
            )
            stream.close()


def test_starting_workers_draws_nothing_from_the_global_generators(loaders):
    for workers in (0, 1):
        torch.manual_seed(0)
        np.random.seed(0)
        before = torch.get_rng_state(), np.random.get_state()[1].copy()
        stream = loaders(workers).batches(0)
        next(stream)
        stream.close()
        assert torch.equal(torch.get_rng_state(), before[0]) and (np.random.get_state()[1] == before[1]).all()


class OneClusterPerBatch:
    """A sampler whose batches come from one cluster each, in an order drawn per epoch."""

    batch_size = 4
    batches_per_epoch = 5

    def indices(self, epoch, position):
        cluster = int(rng(7, "clusters", epoch).permutation(5)[position])
        return rng(7, "members", epoch, cluster).permutation(4) + 4 * cluster


def test_any_sampler_gives_the_order_for_any_workers_and_processes(loaders):
    loader = loaders(sampler=OneClusterPerBatch())
    truth = [loader.batch(number) for number in range(10)]
    numbers = [[int(key[:-1]) for key in batch.keys] for batch in truth]
    assert all(len({number // 4 for number in batch}) == 1 for batch in numbers)
    assert sorted(sum(numbers[:5], [])) == list(range(20))
    assert numbers[:5] != numbers[5:]
    stream = loaders(2, sampler=OneClusterPerBatch()).batches(3)
    assert all(equal(a, b) for a, b in zip(truth[3:], islice(stream, 7), strict=True))
    stream.close()
    halves = [loaders(sampler=OneClusterPerBatch(), rank=rank, world=2).batch(6).keys for rank in (0, 1)]
    assert halves[0] + halves[1] == truth[6].keys
    with pytest.raises(ValueError, match="the sampler's batch size is 4, the loader's 8; give both the same"):
        loaders(batch_size=8, sampler=OneClusterPerBatch())


def test_epochs_are_permutations_that_differ(loaders):
    loader = loaders()
    assert loader.batches_per_epoch == 5 and loader.position(11) == (2, 1)
    epochs = [[i for number in range(5 * e, 5 * e + 5) for i in loader.indices(number)] for e in range(3)]
    assert all(len(set(epoch)) == 20 for epoch in epochs) and epochs[0] != epochs[1] != epochs[2]
    assert any(set(a) != set(b) for a, b in zip(epochs, epochs[1:]))  # the three left over change
    assert (loaders(seed=4).indices(0) != loader.indices(0)).any()
    images = {epoch: {} for epoch in (0, 1)}
    for number in range(10):
        batch = loader.batch(number)
        images[number // 5] |= dict(zip(batch.keys, batch.images))
    both = set(images[0]) & set(images[1])
    assert len(both) > 10
    assert not any(torch.equal(images[0][key], images[1][key]) for key in both)  # another crop each epoch


def test_processes_share_the_joint_batch(loaders):
    whole = loaders(batch_size=8).batch(5)
    shares = [loaders(batch_size=8, rank=rank, world=4).batch(5) for rank in range(4)]
    assert tuple(key for share in shares for key in share.keys) == whole.keys
    assert torch.equal(torch.cat([share.images for share in shares]), whole.images)


def test_what_cannot_be_loaded_is_said(loaders):
    with pytest.raises(ValueError, match="batch of 5 does not divide among 2 processes; use a multiple of 2"):
        loaders(batch_size=5, world=2)
    with pytest.raises(ValueError, match="23 pairs do not fill a batch of 64; give batch_size=23 or less"):
        loaders(batch_size=64)


@pytest.mark.parametrize("workers", [0, 1])
def test_an_image_that_breaks_during_training_is_an_error_that_names_it(loaders, tmp_path, workers):
    loader = loaders(workers)
    name = loader.batch(6).keys[2].rstrip("ab") + ".png"
    (tmp_path / name).write_bytes(b"gone bad")
    with pytest.raises(BrokenImage, match=f"{name}: image cannot be decoded"):
        list(islice(loader.batches(6), 1))


def test_closing_a_stream_ends_its_thread(loaders):
    def ours():
        return sum(thread.name == "complearn-loader" for thread in threading.enumerate())

    stream = loaders().batches(0)
    next(stream)
    assert ours() == 1
    stream.close()
    assert ours() == 0


def test_cut_captions_are_counted_and_said_once(tmp_path):
    pairs = make_pairs(tmp_path)
    collate = Collate(Transform(16), WordTokenizer.fit((pair.caption for pair in pairs), context=4))
    for workers in (0, 1):
        loader = Loader(pairs, collate, 8, seed=0, workers=workers)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            batches = list(islice(loader.batches(0), 3))
        said = [str(warning.message) for warning in said if "context" in str(warning.message)]
        assert len(said) == 1
        assert f"pair {batches[0].keys[0]}: the caption is longer than the context of 4 tokens and was cut" in said[0]
        assert loader.counts["truncated"] == 24 and (batches[0].ids[:, -1] == collate.tokenizer.end).all()


def test_captions_too_long_to_be_exchanged_as_a_whole_are_counted(tmp_path):
    pairs = [
        replace(pair, caption="a man rides a horse. " * (40 if k % 2 else 1))
        for k, pair in enumerate(make_pairs(tmp_path))
    ]
    collate = with_negatives(Collate(Transform(16), WordTokenizer.fit(pair.caption for pair in pairs)), "swap")
    loader = Loader(pairs, collate, 8, seed=0)
    with pytest.warns(UserWarning, match="the caption is longer than 60 words, and only those are exchanged"):
        batches = list(islice(loader.batches(0), 2))
    assert (
        loader.counts["shortened"] == sum(len(pairs[k].caption) > 99 for n in range(2) for k in loader.indices(n)) > 0
    )
    assert all(batch[HardNegatives].present.all() for batch in batches)


@dataclass(frozen=True)
class Counting:
    """Collates, and says which batch is made."""

    made: threading.Semaphore
    transform: None = None

    def __call__(self, pairs, draws):
        self.made.release()
        return Collate(Transform(8), WordTokenizer.fit(["a"]))(pairs, draws)


def test_loading_runs_beside_the_computation():
    pairs = [Pair(np.zeros((8, 8, 3), np.uint8), "a", str(i), str(i)) for i in range(8)]
    made = threading.Semaphore(0)
    stream = Loader(pairs, Counting(made), 4, seed=0).batches(0)
    for _ in range(10):
        next(stream)
        assert made.acquire(timeout=60)  # the batch that was given
    assert made.acquire(timeout=60)  # and the next one is made while nobody asks for it
    stream.close()


def test_fingerprints_tell_data_apart(tmp_path):
    pairs = make_pairs(tmp_path, 4)
    other = pairs[:-1] + [Pair(pairs[-1].image, "another caption", pairs[-1].id, pairs[-1].image_id)]
    assert len({fingerprint(pairs), fingerprint(pairs[::-1]), fingerprint(other), fingerprint(pairs[1:])}) == 4
    moved = [Pair(os.path.join("elsewhere", pair.image.name), pair.caption, pair.id, pair.image_id) for pair in pairs]
    assert fingerprint(moved) == fingerprint(pairs)  # the folder does not count

    class Lazy(list):
        def fingerprint(self):
            return "mine"

    assert fingerprint(Lazy(pairs)) == "mine"


def test_what_stands_behind_equal_names_has_a_fingerprint_too(tmp_path):
    pairs = make_pairs(tmp_path, 3)
    before = content_fingerprint(pairs)
    assert (
        before
        == content_fingerprint(list(pairs))
        == content_fingerprint([replace(pair, image=str(pair.image)) for pair in pairs])
    )
    labelled = [replace(pairs[0], labels="cat"), *pairs[1:]]
    parsed = [replace(pairs[0], tree="(NP a)"), *pairs[1:]]
    shown = [replace(pairs[0], negative_images={"a dog": np.zeros((2, 2, 3), np.uint8)}), *pairs[1:]]
    arrays = [[replace(pair, image=np.full((2, 2, 3), shade, np.uint8)) for pair in pairs] for shade in (0, 1)]
    others = [*map(content_fingerprint, (labelled, parsed, shown, *arrays))]
    assert len({before, *others}) == 6 and len({*map(fingerprint, (pairs, labelled, parsed))}) == 1
    Image.new("RGB", (40, 40)).save(tmp_path / "1.png")
    assert content_fingerprint(pairs) != before and fingerprint(pairs) == fingerprint(make_pairs(tmp_path, 3))


def kept_times(path, content):
    """Put other bytes in the place of a file, with its time, as `rsync -t` does."""
    state = path.stat()
    path.unlink()
    path.write_bytes(content)
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))


def bmp(shade):
    buffer = io.BytesIO()
    Image.new("RGB", (16, 16), (shade,) * 3).save(buffer, "BMP")
    return buffer.getvalue()


def test_other_pictures_of_equal_size_and_time_change_the_content_fingerprint(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "_RECENT", -1)  # as if the files had lain there for a while
    paths = [tmp_path / f"{k}.bmp" for k in range(4)]
    for k, path in enumerate(paths):
        path.write_bytes(bmp(k))
    pairs = [Pair(path, "a", path.name, path.name) for path in paths]
    pictures = [*paths, Crop(paths[0], (0, 0, 4, 4))]
    before = content_fingerprint(pairs), feature_key("x", pictures, "image")
    assert before == (content_fingerprint(pairs), feature_key("x", pictures, "image"))
    assert content_fingerprint(pairs, "0123456789abcdef") == content_fingerprint(pairs, "fedcba9876543210")
    hashes._KNOWN.clear()  # another process, which finds the hashes on disk
    reads = []
    monkeypatch.setattr(hashes.hashlib, "file_digest", lambda *args: reads.append(args))
    assert before == (content_fingerprint(pairs), feature_key("x", pictures, "image")) and not reads
    monkeypatch.undo()
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    by_size = content_fingerprint(pairs, "0123456789abcdef")
    for k, path in enumerate(paths):
        kept_times(path, bmp(100 + k))
        after = content_fingerprint(pairs), feature_key("x", pictures, "image")
        assert after[0] != before[0] and after[1] != before[1]
        before = after
    assert by_size == content_fingerprint(pairs, "0123456789abcdef"), "an earlier version saw sizes alone"


def test_a_shard_that_was_written_again_changes_the_content_fingerprint(tmp_path):
    def write(shade):
        with tarfile.open(tmp_path / "a.tar", "w") as tar:
            for name, content in (("0.bmp", bmp(shade)), ("0.txt", b"a grey square")):
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        return read("webdataset", shards=str(tmp_path / "a.tar"), image=["bmp"])

    first, again, other = (content_fingerprint(write(shade)) for shade in (0, 0, 200))
    assert first == again != other


def test_damaged_or_unwritable_hashes_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(hashes, "_RECENT", -1)
    (tmp_path / "a.bmp").write_bytes(bmp(3))
    expected = hashes.file_hash(tmp_path / "a.bmp")
    hashes._KNOWN.clear()
    hashes.hash_files([tmp_path / "a.bmp", tmp_path / "none.bmp", tmp_path, None, b"bytes"])
    database = tmp_path / "cache" / "hashes" / "files.sqlite"
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("UPDATE hashes SET hash = zeroblob(20)")
    hashes._KNOWN.clear()
    hashes.hash_files([tmp_path / "a.bmp"])
    assert hashes.file_hash(tmp_path / "a.bmp") == expected
    database.write_bytes(b"no database" * 999)
    hashes._KNOWN.clear()
    with pytest.warns(UserWarning, match="hashes of files are not kept"):
        hashes.hash_files([tmp_path / "a.bmp"])
    hashes.hash_files([tmp_path / "a.bmp"])
    assert hashes.file_hash(tmp_path / "a.bmp") == expected


def test_a_file_that_changed_a_moment_ago_is_read_again(tmp_path):
    found = []
    for content in (b"one", b"two", b"one"):
        (tmp_path / "a").write_bytes(content)
        os.utime(tmp_path / "a", ns=(0, 0))
        found.append(hashes.file_hash(tmp_path / "a"))
    assert found[0] == found[2] != found[1]
