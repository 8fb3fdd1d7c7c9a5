import random
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import ROOT
from hypothesis import given, strategies as st

from complearn.core.seeds import derive, rng, seed_everything, torch_generator

KEYS = st.lists(
    st.one_of(st.integers(-(10**9), 10**9), st.text(max_size=8), st.floats(allow_nan=False), st.booleans()), max_size=4
)


def test_derived_seeds_are_the_same_in_another_process_with_another_hash_salt():
    code = (
        "from complearn.core.seeds import derive, rng; print(derive(7, 'order', 3, 1.5), rng(7, 'a').integers(1 << 40))"
    )
    lines = {
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={"PYTHONHASHSEED": salt}, capture_output=True, text=True
        ).stdout
        for salt in ("1", "2")
    }
    assert lines == {f"{derive(7, 'order', 3, 1.5)} {rng(7, 'a').integers(1 << 40)}\n"}


def test_these_values_never_change():
    """A run that was begun with an older version must be resumed with the same draws."""
    assert derive(0, "order", 1) == 3583953554662909129
    assert rng(0, "crop").integers(0, 1000, 4).tolist() == rng(0, "crop").integers(0, 1000, 4).tolist()


@given(st.integers(0, 2**40), KEYS)
def test_a_seed_fits_every_generator(seed, keys):
    derived = derive(seed, *keys)
    assert 0 <= derived < 2**63
    assert torch_generator(seed, *keys).initial_seed() == derived


@given(KEYS, KEYS)
def test_different_purposes_have_different_seeds(first, second):
    same = [(type(a), a) for a in first] == [(type(b), b) for b in second] and str(first) == str(second)
    assert (derive(0, *first) == derive(0, *second)) == same


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint8])
def test_numpy_integers_count_as_integers(kind):
    assert derive(kind(3), "a", kind(5)) == derive(3, "a", 5)
    assert (rng(0, kind(5)).random(3) == rng(0, 5).random(3)).all()
    assert torch_generator(0, kind(5)).initial_seed() == torch_generator(0, 5).initial_seed()


def test_numpy_floats_booleans_and_strings_count_as_their_own_kind():
    assert derive(0, np.float64(0.5)) == derive(0, 0.5)
    assert derive(0, np.bool_(True)) == derive(0, True) != derive(0, 1)
    assert derive(0, np.str_("a")) == derive(0, "a")


def test_a_list_is_no_key():
    with pytest.raises(Exception, match="[Tt]ype"):
        derive(0, [1, 2])


def test_every_global_generator_is_seeded():
    def draw():
        return random.random(), np.random.rand(), torch.rand(1).item()

    seed_everything(0, "step", 5)
    first = draw()
    seed_everything(0, "step", 6)
    other = draw()
    seed_everything(0, "step", 5)
    assert draw() == first and all(a != b for a, b in zip(first, other))


def test_draws_look_uniform_over_purposes():
    """One draw per purpose: the stream over purposes is as good as one generator's (mean within five standard
    errors)."""
    draws = np.array([rng(0, "sample", i).random() for i in range(4000)])
    assert abs(draws.mean() - 0.5) < 5 * np.sqrt(1 / 12 / 4000)
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 5 / np.sqrt(4000)
