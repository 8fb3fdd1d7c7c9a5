"""Statements and wording: truth by enumeration, trees that match their text, spans for every atom, no two meanings in
one text."""

import itertools
import re
from dataclasses import replace

import pytest

from complearn.core.seeds import rng
from complearn.language.scenes.geometry import relation_truth
from complearn.language.scenes.grammar import (
    ADJECTIVES,
    NOUNS,
    NUMERALS,
    PLURALS,
    RELATION_TEMPLATES,
    TEXTURE_NOUNS,
    say,
    wordings,
)
from complearn.language.scenes.graphs import RELATIONS, Item, SceneGraph
from complearn.language.scenes.propositions import (
    Absent,
    Atom,
    Exists,
    Phrase,
    Relates,
    Statement,
    _clause_truth,
    bindings,
    truth,
)
from complearn.language.scenes.realise import sample_scene
from complearn.language.scenes.sampling import KINDS, SceneConfig, draw_statement
from complearn.language.trees import parse_bracketed

CONFIG = SceneConfig()
PENN = set("S NP VP PP ADJP CONJP DT CD JJ JJR NN NNS IN TO CC RB EX VBZ VBP VBG".split())


def statements(n, key, config=CONFIG):
    return [draw_statement(KINDS[i % len(KINDS)], config, rng(0, key, i)) for i in range(n)]


def words_for(atom, value):
    "Every way to say an atom, written down here a second time, by hand."
    if atom.kind == "relation":
        return {re.sub(r"\([A-Z]+ ?|\)|_", " ", link).split().__str__() for link in RELATION_TEMPLATES[value]}
    if atom.kind == "negation":
        return {"['no']"}
    if atom.kind == "count":
        return {f"['{NUMERALS[value]}']", f"['exactly', '{NUMERALS[value]}']"}
    if atom.kind == "shape":
        nouns = NOUNS.get(value, (value,))
        return {f"['{form}']" for noun in nouns for form in (noun, PLURALS.get(noun, noun + "s"))}
    after = {f"['with', '{TEXTURE_NOUNS[value]}']"} if value in TEXTURE_NOUNS else set()
    return {f"['{word}']" for word in ADJECTIVES.get(value, (value,))} | after


@pytest.mark.parametrize("style", ["plain", "varied"])
def test_tree_text_and_spans_agree(style):
    for number, statement in enumerate(statements(300, "agree")):
        caption = say(statement, number, style)
        words = caption.text.split()
        assert caption.tree.leaves() == words and caption.text == " ".join(words) == caption.text.lower()
        assert all(type(word) is str for word in caption.tree.leaves())
        assert {label for label, _, _ in caption.tree.spans()} <= PENN
        assert parse_bracketed(str(caption.tree)) == caption.tree
        assert {span.atom for span in caption.spans} == set(statement.atoms())
        assert len(caption.spans) == len(statement.atoms())
        for atom, value in statement.atoms().items():
            span = caption.where(atom)
            assert str(words[span.start : span.stop]) in words_for(atom, value), (atom, caption.text)
        covered = [n for span in caption.spans for n in range(span.start, span.stop)]
        assert len(covered) == len(set(covered))


def test_articles_follow_the_next_sound_and_verbs_the_number():
    for number, statement in enumerate(statements(400, "articles")):
        text = say(statement, number).text
        assert not re.search(
            r"\ba [aeiou]|\ban [^aeiou]|is (exactly )?(two|three)|are (exactly )?(one|a|an)\b", text
        ), text


def test_a_caption_is_a_noun_phrase_or_sentence_over_the_right_words():
    caption = say(Statement((Relates(Phrase("circle", "red"), "left of", Phrase("square", "blue")),)), style="plain")
    tree = "(NP (NP (DT a) (JJ red) (NN circle)) (PP (RB left) (PP (IN of) (NP (DT a) (JJ blue) (NN square)))))"
    assert caption.text == "a red circle left of a blue square" and str(caption.tree) == tree


def test_the_plain_style_has_one_wording_and_no_synonyms():
    synonyms = {word for words in (*NOUNS.values(), *ADJECTIVES.values()) for word in words[1:]}
    for statement in statements(200, "plain"):
        texts = {say(statement, number, "plain").text for number in (0, 5, 99)}
        assert len(texts) == 1 and not synonyms & set(texts.pop().split())


@pytest.mark.parametrize("style", ["plain", "varied"])
def test_no_text_has_two_meanings(style):
    small = SceneConfig(
        ("circle", "square", "cross"), ("red", "orange"), relations=("left of", "touching", "same colour as", "inside")
    )
    meant = {}
    for number, statement in enumerate(statements(1200, "meanings", small)):
        assert meant.setdefault(say(statement, number, style).text, statement) == statement
    assert len(meant) > 600


def test_varied_wordings_are_many_and_of_many_lengths():
    statement = Statement(
        (Relates(Phrase("circle", "purple", "large"), "above", Phrase("diamond", texture="striped")),)
    )
    texts = [caption.text for caption in wordings(statement, 60)]
    assert len(set(texts)) == 60 and len({len(text.split()) for text in texts}) >= 4
    assert texts == [caption.text for caption in wordings(statement, 60)]
    assert say(statement, rng(0, "w")) == say(statement, rng(0, "w"))
    with pytest.raises(ValueError, match="'plain' or 'varied'"):
        say(statement, 0, "fancy")


def test_the_same_number_words_a_swap_alike():
    for number in range(100):
        one = Phrase("heart", "red", "large")
        two = Phrase("arrow", "cyan", "small")
        first = say(Statement((Exists(one), Exists(two))), number)
        second = say(Statement((Exists(two), Exists(one))), number)

        def frame(caption):
            return [
                w for n, w in enumerate(caption.tree.leaves()) if not any(s.start <= n < s.stop for s in caption.spans)
            ]

        assert len(frame(first)) == len(frame(second)) and len(first.text.split()) == len(second.text.split())


def test_an_atom_that_is_not_said_is_named():
    with pytest.raises(KeyError, match="texture"):
        say(Statement((Exists(Phrase("heart")),))).where(Atom(0, "phrase", "texture"))


def possible(clause, graph):
    "Truth by trying every choice of True or False for what is unclear."
    items = range(len(graph.items))

    def match(p, i):
        return all(getattr(p, k) in (None, getattr(graph.items[i], k)) for k in ("shape", "colour", "size", "texture"))

    if isinstance(clause, Relates):
        pairs = [
            relation_truth(graph, clause.relation, i, j)
            for i, j in itertools.permutations(items, 2)
            if match(clause.subject, i) and match(clause.object, j)
        ]
        return {any(choice) for choice in itertools.product(*[(True, False) if p is None else (p,) for p in pairs])}
    n = sum(match(clause.phrase, i) for i in items)
    return {
        n == 0 if isinstance(clause, Absent) else n >= 1 if clause.phrase.count is None else n == clause.phrase.count
    }


def test_truth_is_what_every_reading_agrees_on():
    seen = set()
    few = SceneConfig(("circle", "square", "star"), ("red", "blue"), mention=(0.1, 0.1, 0.4))
    for number, statement in enumerate(statements(400, "truth", few)):
        graph = sample_scene(CONFIG, rng(0, "truth scene", number))
        graph = SceneGraph(
            tuple(
                replace(i, shape=("circle", "square")[n % 2], colour=("red", "blue")[n // 2 % 2])
                for n, i in enumerate(graph.items)
            )
        )
        readings = {
            all(choice) for choice in itertools.product(*[possible(clause, graph) for clause in statement.clauses])
        }
        expected = readings.pop() if len(readings) == 1 else None
        assert truth(statement, graph) is expected
        seen.add(expected)
    assert seen == {True, False, None}


def test_counts_are_exact_and_absence_is_of_the_whole_phrase():
    dot = Item("circle", "red", "small", "plain", 0.2, 0.2, 0.08)
    graph = SceneGraph((dot, replace(dot, x=0.5), replace(dot, x=0.8, colour="blue")))
    counted = {n: truth(Statement((Exists(Phrase("circle", "red", count=n)),)), graph) for n in (1, 2, 3)}
    assert counted == {1: False, 2: True, 3: False}
    assert _clause_truth(Absent(Phrase("square")), graph) is True
    assert _clause_truth(Absent(Phrase("circle", "blue")), graph) is False
    assert _clause_truth(Absent(Phrase("circle", "blue", "large")), graph) is True


@pytest.mark.parametrize(
    "make, says",
    [
        (lambda: Phrase("blob"), "shape among"),
        (lambda: Phrase(count=9), "count among"),
        (lambda: Absent(Phrase("star", count=2)), "uncounted"),
        (lambda: Relates(Phrase("star"), "beside", Phrase("heart")), "relation among"),
        (lambda: Statement(()), "at least one clause"),
        (lambda: Relates(Phrase("star", count=2), "above", Phrase("heart")), "two readings"),
    ],
)
def test_what_cannot_be_said_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_every_relation_has_wordings_and_bindings_name_it():
    assert set(RELATION_TEMPLATES) == set(RELATIONS)
    statement = Statement(
        (Relates(Phrase("star", "red"), "inside", Phrase("heart")), Exists(Phrase("cross", size="small")))
    )
    assert bindings(statement) == {("red", "star"), ("inside", "star"), ("inside", "heart"), ("small", "cross")}
