"""Compound divergence against the definition, and the sign of its selection."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from complearn.core.files import BadData
from complearn.data.divergence.measure import (
    Candidates,
    _contributions,
    _divergence_windows,
    compound_divergence,
    find_candidates,
    make_split,
    most_divergent,
    read_split,
    search_swaps,
    write_split,
)
from complearn.data.pairs import Pair
from complearn.data.readers.registry import read
from complearn.language.scenes.graphs import Item, SceneGraph
from complearn.language.trees import parse_bracketed


def draw(seed, n, kinds=6):
    source = np.random.default_rng(seed)
    return [
        Counter(source.choice(kinds, source.integers(1, 5), p=source.dirichlet(np.ones(kinds))).tolist())
        for _ in range(n)
    ]


def total(some):
    return sum((Counter(one) for one in some), Counter())


@pytest.mark.parametrize("a", [0.1, 0.5, 0.9])
def test_divergence_is_its_definition(a):
    p = total(draw(0, 40))
    q = total(draw(1, 30, kinds=8))
    keys = set(p) | set(q)
    value = 1 - sum((p[k] / sum(p.values())) ** a * (q[k] / sum(q.values())) ** (1 - a) for k in keys)
    assert compound_divergence(p, q, a) == pytest.approx(value)
    assert compound_divergence(p, p, a) == pytest.approx(0)


def test_divergence_at_its_ends():
    assert (
        compound_divergence({}, {"a": 1})
        == compound_divergence({"a": 1}, {})
        == compound_divergence({"a": 1}, {"b": 1})
        == 1.0
    )
    assert compound_divergence({"a": 99, "b": 1}, {"b": 1}) < compound_divergence({"a": 99}, {"b": 1})


def test_divergence_is_not_symmetric():
    common = {"a": 9, "b": 1}
    rare = {"a": 1, "c": 9}
    assert compound_divergence(common, rare) != pytest.approx(compound_divergence(rare, common))


@pytest.mark.parametrize("seed", range(5))
def test_contributions_are_leave_one_out(seed):
    train = total(draw(seed, 30))
    candidates = draw(seed + 10, 12, kinds=9)
    everything = total(candidates)
    slow = [compound_divergence(train, everything) - compound_divergence(train, everything - one) for one in candidates]
    assert _contributions(train, candidates) == pytest.approx(np.array(slow), abs=1e-9)


def test_a_single_candidate_and_an_empty_one():
    # without it nothing is left, and nothing diverges fully
    assert _contributions({"a": 1}, [{"a": 1}]) == pytest.approx([-1.0])
    assert _contributions({"a": 1}, [{"a": 1}, {}, {"b": 1}])[1] == pytest.approx(0.0)
    assert _contributions({}, [{"a": 1}, {"b": 1}]) == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("seed", range(5))
def test_the_sign_what_is_kept_diverges_more_than_all_and_what_is_dropped_less(seed):
    train = total(draw(seed, 200, kinds=4))
    candidates = draw(seed + 50, 300, kinds=8)
    kept = most_divergent(train, candidates, 100)
    dropped = sorted(set(range(300)) - set(kept.tolist()))
    levels = [compound_divergence(train, total(candidates[k] for k in some)) for some in (kept, range(300), dropped)]
    assert levels[0] > levels[1] + 0.02 > levels[2] + 0.02


def test_unknown_primitives_are_dropped_first():
    train = {"a": 5}
    candidates = [{"b": 1}, {"c": 1}, {"a": 1}]
    assert most_divergent(train, candidates, 3, ["x"], [["x"], ["y"], ["x"]]).tolist() == [0, 2]
    assert sorted(most_divergent(train, candidates, 3).tolist()) == [0, 1, 2]


def test_windows_fall_and_have_their_size():
    train = total(draw(3, 200, kinds=4))
    candidates = draw(4, 400, kinds=9)
    windows = _divergence_windows(train, candidates, 8, 100)
    levels = [level for level, _ in windows]
    assert len(windows) == 8 and all(len(set(places.tolist())) == 100 for _, places in windows)
    assert levels[0] > levels[-1] + 0.1 and np.corrcoef(levels, np.arange(8))[0, 1] < -0.9
    with pytest.raises(ValueError, match="windows of 500 candidates.*there are 400"):
        _divergence_windows(train, candidates, 8, 500)


@pytest.mark.parametrize("seed", range(5))
def test_contributions_within_a_data_set_move_the_candidate_from_one_side_to_the_other(seed):
    candidates = draw(seed + 20, 15, kinds=9)
    everything = total(candidates)

    def divergence(one):
        return compound_divergence(everything - one, everything) - compound_divergence(everything, everything - one)

    assert _contributions(everything, candidates, within=True) == pytest.approx(
        np.array([divergence(one) for one in candidates]), abs=1e-9
    )


def test_within_a_data_set_no_primitive_leaves_training():
    candidates = [Counter("ab"), Counter("ac"), Counter("ad"), Counter("ae")]
    primitives = [{"x"}, {"y"}, {"y"}, {"x", "z"}]
    chosen = most_divergent(total(candidates), candidates, 4, primitives=primitives, within=True).tolist()
    left = [set(primitives[k]) for k in range(4) if k not in chosen]
    assert len(chosen) == 2 and 3 not in chosen and set().union(*left) == {"x", "y", "z"}


# --- splits in files


def grounded(captions, trees=()):
    pairs = [Pair(None, caption, str(k), f"{k}.jpg") for k, caption in enumerate(captions)]
    return [replace(pair, tree=parse_bracketed(tree)) for pair, tree in zip(pairs, trees)] if trees else pairs


def phrase(preposition, noun="grass"):
    return f"(NP (NP (DT a) (NN dog)) (PP (IN {preposition}) (NP (NN {noun}))))"


def test_a_split_holds_the_most_divergent_images_and_is_read_by_name(tmp_path):
    trees = [phrase("on")] * 6 + [phrase("under"), phrase("under", "emu")]
    pairs = grounded([" ".join(parse_bracketed(tree).leaves()) for tree in trees], trees)
    split = make_split(find_candidates(pairs), find_candidates(pairs[:6]), n=2, windows=4)
    assert split.parts["mcd"][0] == "6.jpg" and "7.jpg" not in sum(split.parts.values(), [])  # training knows no emu
    levels = [split.divergences[f"window_{k}"] for k in range(1, len(split.parts))]
    assert levels == sorted(levels, reverse=True) and levels[0] == split.divergences["mcd"] > split.divergences["all"]
    file = write_split(tmp_path / "split.json", split)
    folder = tmp_path / "photos"
    folder.mkdir()
    for k in (0, 6):
        Image.new("RGB", (4, 4)).save(folder / f"{k}.jpg")
    (folder / "captions.csv").write_text("image,caption\n0.jpg,a dog on grass\n6.jpg,a dog under grass\n")
    source = {"name": "folder", "args": {"folder": str(folder)}}
    name = read("folder", folder=str(folder))[1].image_id
    write_split(file, replace(split, parts={"mcd": [name, "gone.jpg"]}))
    part = read("split", source=source, file=str(file), part="mcd")
    assert [pair.caption for pair in part] == ["a dog under grass"]
    assert "1 images of the split are not there (gone.jpg)" in str(part.report)
    assert len(read("split", source=source, file=str(file), part="rest")) == 1
    with pytest.raises(ValueError, match="no part of the split 'mdc' .did you mean 'mcd'"):
        read("split", source=source, file=str(file), part="mdc")
    with pytest.raises(ValueError, match="makes its pairs on demand"):
        read("split", source={"name": "generated", "args": {"n_train": 8}}, file=str(file), part="mcd")
    write_split(file, replace(split, parts={"mcd": ["gone.jpg"]}))
    with pytest.raises(
        BadData, match="no image of part 'mcd' is in .*names images such as 'gone.jpg', the data set such as"
    ):
        read("split", source=source, file=str(file), part="mcd")


@pytest.mark.parametrize(
    "text, says",
    [("{", "not readable as JSON"), ("[]", "parts"), ('{"parts": {}, "divergences": {}, "schema": 7}', "schema 7")],
)
def test_a_file_that_is_no_split_is_named(text, says, tmp_path):
    (tmp_path / "split.json").write_text(text)
    with pytest.raises(BadData, match=says):
        read_split(tmp_path / "split.json")


def test_too_few_images_are_an_error_that_says_why():
    candidates = Candidates(["1", "2"], [Counter("a"), Counter("b")], [Counter("x"), Counter("y")])
    with pytest.raises(ValueError, match="2 images was asked for, and 1 can be chosen .1 of 2 hold a primitive"):
        make_split(candidates, Candidates(["0"], [Counter("a")], [Counter("x")]), n=2)
    with pytest.raises(ValueError, match="ask for fewer, or give more training captions"):
        make_split(candidates, n=1)
    with pytest.raises(ValueError, match="size is at least 1, not 0"):
        make_split(candidates, n=0)


@pytest.mark.parametrize("seed", range(6))
def test_a_search_ends_where_no_exchange_of_its_kind_raises_divergence(seed):
    draws = np.random.default_rng(seed)
    candidates = [Counter(draws.integers(0, 25, draws.integers(1, 7)).tolist()) for _ in range(40)]
    train = Counter(draws.integers(0, 20, 200).tolist())
    usable = np.flatnonzero(draws.random(40) < 0.8)
    start = draws.choice(usable, 8, replace=False)
    chosen, swaps = search_swaps(train, candidates, start, usable)

    def level(places):
        return compound_divergence(train, total([candidates[k] for k in places]))

    assert len(set(chosen)) == 8 and set(chosen) <= set(usable)
    assert (level(chosen) > level(start)) == (swaps > 0)
    out = max(chosen, key=lambda k: level([each for each in chosen if each != k]))
    rest = [each for each in chosen if each != out]
    assert all(level([*rest, k]) <= level(chosen) + 1e-9 for k in usable if k not in chosen)
    if swaps:
        before, _ = search_swaps(train, candidates, start, usable, most=swaps - 1)
        assert level(before) < level(chosen)


def test_a_split_by_search_diverges_more_and_says_how_far_its_words_do(tmp_path):
    draws = np.random.default_rng(1)

    def images(n):
        words = [draws.choice(list("abcdefgh"), 3, replace=False) for _ in range(n)]
        names = [str(k) for k in range(n)]
        return Candidates(names, [Counter(map(tuple, [w[:2], w[1:]])) for w in words], [Counter(w) for w in words])

    train, asked = images(100), images(80)
    ranked, found = (make_split(asked, train, n=8, windows=2, search=search) for search in (False, True))
    assert found.divergences["mcd"] > ranked.divergences["mcd"] and found.setting["swaps"] > 0
    assert found.parts["window_1"] == ranked.parts["window_1"]
    chosen = [asked.primitives[int(name)] for name in found.parts["mcd"]]
    assert found.atoms["mcd"] == compound_divergence(train.atoms(), total(chosen), 0.5)
    assert set(found.atoms) == set(found.divergences)
    assert read_split(write_split(tmp_path / "split.json", found)) == found
    with pytest.raises(ValueError, match="a search needs a training set that stays as it is"):
        make_split(asked, n=8, search=True)


def test_any_compounds_can_be_counted():
    (words,) = find_candidates(grounded(["a black dog and a cat"]), "words").compounds
    assert words == {("black", "dog"): 1, ("black", "cat"): 1, ("cat", "dog"): 1}
    scene = SceneGraph(
        (
            Item("circle", "red", "large", "plain", 0.2, 0.5, 0.15),
            Item("star", "blue", "large", "plain", 0.8, 0.5, 0.15),
        )
    )
    pair = Pair(None, "a red circle", "0", "0", graph=scene)
    found = find_candidates([pair, replace(pair, id="1")], "scene")
    assert found.compounds[0]["red", "circle"] == found.compounds[0]["circle", "left of", "star"] == 1
    assert found.primitives == [{"circle": 1, "star": 1, "red": 1, "blue": 1, "large": 2, "plain": 2}]
    with pytest.raises(ValueError, match="pair 0 has no scene graph"):
        find_candidates(grounded(["a dog"]), "scene")
    with pytest.raises(ValueError, match="no kind of compounds 'verbs'"):
        find_candidates(grounded(["a dog"]), "verbs")
    assert find_candidates(grounded(["a dog on the grass"]), parser="rules").compounds[0]["[NP] on [NP]"] == 1
