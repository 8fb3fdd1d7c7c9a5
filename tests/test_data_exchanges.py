"""Batches in which pairs come with pairs of the same words in another order."""

import itertools

import numpy as np
import pytest
from test_data_streams import write_shards

from complearn.core.config import RequestError
from complearn.data.exchanges import ExchangeSampler, bag_of_words, count_exchanges, exchanges_met
from complearn.data.loading import Loader
from complearn.data.readers.registry import read
from complearn.training.runs.config import Train
from complearn.training.runs.launch import launch, make_trainer, prepare

COLOURS = ("red", "blue", "green")
CAPTIONS = [f"a {a} circle left of a {b} square" for a, b in itertools.product(COLOURS, COLOURS) for _ in range(3)] + [
    f"a star number {k}" for k in range(13)
]


def is_exchange(one, other):
    return one != other and bag_of_words(one) == bag_of_words(other)


@pytest.mark.parametrize("batch", (2, 8, 20))
@pytest.mark.parametrize("share", (0.5, 1.0))
def test_a_pair_comes_with_its_exchange_as_often_as_stated(batch, share):
    sampler = ExchangeSampler(CAPTIONS, batch, seed=3, share=share)
    have = {k for k, text in enumerate(CAPTIONS) if any(is_exchange(text, other) for other in CAPTIONS)}
    assert set(sampler.rivals) == have and len(have) == 18
    followed = []
    for epoch in range(120):
        firsts = []
        for position in range(sampler.batches_per_epoch):
            indices = sampler.indices(epoch, position)
            assert len(indices) == batch and np.array_equal(indices, sampler.indices(epoch, position))
            pairs = indices.reshape(-1, 2)
            firsts += pairs[:, 0].tolist()
            followed += [is_exchange(*(CAPTIONS[k] for k in pair)) for pair in pairs if pair[0] in have]
        assert len(set(firsts)) == len(firsts)  # each pair once by itself in an epoch
    by_chance = (1 - share) * 3 / len(CAPTIONS)  # any pair may be an exchange
    assert all(followed) if share == 1 else abs(np.mean(followed) - share - by_chance) < 0.04
    again = ExchangeSampler(CAPTIONS, batch, seed=3, share=share)
    assert np.array_equal(again.indices(7, 0), sampler.indices(7, 0))  # whatever was asked before
    assert not np.array_equal(
        ExchangeSampler(CAPTIONS, batch, seed=4, share=share).indices(7, 0), sampler.indices(7, 0)
    )


@pytest.mark.parametrize("seed", range(5))
def test_exchanges_are_counted_in_pairs(seed):
    chosen = [CAPTIONS[k] for k in np.random.default_rng(seed).integers(len(CAPTIONS), size=15)]
    assert count_exchanges(chosen) == sum(is_exchange(a, b) for a, b in itertools.permutations(chosen, 2))
    assert count_exchanges([" A red  circle", "a red circle."]) == 0  # the same words in the same order


@pytest.mark.parametrize("share", (0.0, 1.0))
@pytest.mark.parametrize("batch", (4, 10, 20))
def test_exchanges_that_a_pair_meets_are_those_of_the_batches_that_a_run_takes(batch, share):
    sampler = ExchangeSampler(CAPTIONS, batch, 5, share) if share else None
    loader = Loader(CAPTIONS, None, batch, 5, sampler=sampler)
    batches = [[CAPTIONS[k] for k in loader.indices(step)] for step in range(30)]
    met = [sum(is_exchange(one, other) for other in some) for some in batches for one in some]
    assert exchanges_met(CAPTIONS, batch, 5, share, steps=30) == pytest.approx(np.mean(met))


def test_twice_the_batch_meets_twice_the_exchanges():
    small, large = (exchanges_met(CAPTIONS, batch, 0, steps=400) for batch in (10, 19))
    assert large / small == pytest.approx(18 / 9, rel=0.1)


def test_what_cannot_be_exchanged_is_said():
    with pytest.raises(ValueError, match="exchanges come in twos, and the batch holds 3 pairs"):
        ExchangeSampler(CAPTIONS, 3, 0)
    with pytest.raises(ValueError, match="none of 4 captions has the words of another one"):
        ExchangeSampler(["a", "b", "c", "d"], 2, 0)


TOWER = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
WORLD = {"preset": "small", "kinds": ["relation"], "n_train": 256, "relations": ["left of", "above"]}


def configuration(**train):
    return {
        "method": {"name": "clip", "args": {"steps": 4, "ramp": 1}},
        "model": {"vision": TOWER | {"size": 32, "patch": 8}, "text": TOWER},
        "data": {"name": "generated", "args": WORLD},
        "train": {"batch_size": 16, "device": "cpu", "checkpoint_every": 2, "log_every": 1} | train,
        "seed": 0,
    }


def test_a_run_sees_more_exchanges_and_any_batch_can_be_made_again(tmp_path):
    captions = [pair.caption for pair in read("generated", **WORLD)]
    seen = {}
    for share in (0.0, 1.0):
        loader = make_trainer(prepare(tmp_path / f"share-{share}", configuration(exchanges=share))).loader
        seen[share] = sum(count_exchanges([captions[k] for k in loader.indices(n)]) for n in range(16))
    assert seen[1.0] > 2 * seen[0.0]
    other = make_trainer(prepare(tmp_path / "share-1.0", configuration(exchanges=1.0))).loader
    for number, batch in zip(range(40, 45), other.batches(40)):  # as a run that is resumed asks
        assert batch.keys == loader.batch(number).keys
    run = prepare(tmp_path / "run", configuration(exchanges=1.0))
    launch(run.path, "cpu", progress=False)
    assert run.done is not None
    assert Train(batch_size=4).batches == Train(batch_size=4, exchanges=0.0).batches  # what older checkpoints say
    assert Train(batch_size=4, exchanges=0.5).batches["exchanges"] == 0.5


def test_a_stream_is_refused(tmp_path):
    shards = str(write_shards(tmp_path / "shards"))
    data = {"name": "webdataset", "args": {"shards": shards, "stream": {"shuffle": 0}}}
    run = prepare(tmp_path / "run", configuration(exchanges=1.0, batch_size=4) | {"data": data})
    with pytest.raises(RequestError, match="exchanges looks for pairs among all of them, and a stream has no end"):
        make_trainer(run)
