"""A tree that was put right by hand is checked at every place, kept, and used by every later parse of its caption."""

import json

import pytest

from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.language.parsing.base import Parse, Word
from complearn.language.parsing.registry import (
    _corrected_parse,
    corrections_path,
    parse,
    read_corrections,
    write_correction,
)

CAPTION = "a dog near (two) cats."
RIGHT = "(NP (NP (DT a) (NN dog)) (PP (IN near) (NP (-LRB- -LRB-) (CD two) (-RRB- -RRB-) (NNS cats))) (. .))"
FLAT = "(NP (DT a) (NN dog) (IN near) (-LRB- -LRB-) (CD two) (-RRB- -RRB-) (NNS cats) (. .))"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.delenv("COMPLEARN_CORRECTIONS", raising=False)
    return tmp_path


def flat(captions):
    """A parser that always errs."""
    return [FLAT] * len(captions)


def test_a_correction_is_used_from_then_on_and_can_be_taken_back(cache):
    (found,) = parse([CAPTION], flat, cache=cache)
    path = corrections_path(cache / "parses.sqlite")
    assert str(found.tree) == FLAT and not path.exists()
    assert str(write_correction(path, found, f"  {RIGHT}\n").tree) == RIGHT
    assert [str(each.tree) for each in parse(["a dog near (two) cats.", CAPTION], flat, cache=cache)] == [RIGHT, RIGHT]
    assert str(parse([CAPTION], flat, cache=False)[0].tree) == FLAT, "without a cache nothing is read from disk"
    path.write_bytes(path.read_bytes() + b'{"caption": "a d')  # the machine went down
    write_correction(path, found, "")
    assert str(parse([CAPTION], flat, cache=cache)[0].tree) == FLAT and read_corrections(path) == {}


def test_a_correction_keeps_what_the_parser_found_besides():
    words = (Word("two", (0, 3), "NN", head=1, lemma="two"), Word("dogs", (4, 8), "NNS", head=1, lemma="dog"))
    made = _corrected_parse(Parse("two dogs", words, sentences=((0, 2),), parser="mine"), "(NP (CD two) (NNS dogs))")
    assert [word.tag for word in made.words] == ["CD", "NNS"] and [word.lemma for word in made.words] == ["two", "dog"]
    assert made.parser == "mine" and [word.head for word in made.words] == [1, 1]
    assert _corrected_parse(Parse("two dogs", error="it died"), "(NP (CD two) (NNS dogs))").error == ""


@pytest.mark.parametrize(
    "tree, place",
    [
        ("", "empty text"),
        ("(NP (DT a) (NN dog)", "'(' at character 0 is never closed"),
        ("(NP (DT a)) (NN dog))", "character 12"),
        ("NP (DT a)", "character 0: expected '('"),
        ("(NP ())", "character 4: the bracket holds no word"),
        (RIGHT.replace("dog", "cow"), "leaf 1 is 'cow', and the caption goes on with 'dog near"),
        (RIGHT.replace(" (. .)", ""), "no leaf holds the caption's end '.'"),
        (FLAT.replace("(NN dog) (IN near)", "(NN dog) (NN do) (IN near)"), "leaf 2 is 'do'"),
        (FLAT.replace("(NNS cats) (. .)", "(NNS cats.)"), "leaf 6 is 'cats.', and the caption's word 6 is 'cats'"),
        ("(A " * 400 + "a" + ")" * 400, "more than 300 levels"),
    ],
)
def test_a_tree_that_does_not_fit_is_refused_by_its_place(cache, tree, place):
    (found,) = parse([CAPTION], flat, cache=False)
    with pytest.raises(RequestError, match="mend it there") as error:
        _corrected_parse(found, tree)
    assert place in str(error.value)


def test_a_line_that_cannot_be_read_and_a_tree_that_fits_no_longer_are_named(cache):
    path = corrections_path(cache / "parses.sqlite")
    path.write_text('{"caption": "a dog"}\n')
    with pytest.raises(BadData, match="corrections.jsonl line 1"):
        parse(["a cat"], "rules", cache=cache)
    path.write_text("broken\n")
    with pytest.raises(BadData, match="line 1 .*delete that line"):
        parse(["a cat"], "rules", cache=cache)
    path.write_text(json.dumps({"caption": CAPTION, "tree": FLAT.replace("(NNS cats) (. .)", "(NNS cats.)")}) + "\n")
    with pytest.raises(BadData, match="fits no longer: .*leaf 6.* correct it again"):
        parse([CAPTION], flat, cache=cache)


def test_a_variable_names_another_file(cache, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CORRECTIONS", str(cache / "mine.jsonl"))
    (found,) = parse([CAPTION], flat, cache=cache)
    write_correction(corrections_path(cache / "parses.sqlite"), found, RIGHT)
    assert (cache / "mine.jsonl").exists() and str(parse([CAPTION], flat, cache=cache)[0].tree) == RIGHT
