"""Pointing: a phrase is a hit if it looks at its own thing; chance, the middle of the picture, ties and phrases without
a concept."""

import numpy as np
import pytest
import torch

from complearn.data.boxes import Box, PhraseBoxes, boxes_of, phrases_of, plain_phrases
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.evaluation.tasks.base import TASKS
from complearn.evaluation.tasks.pointing import Pointing, covered_area, pointing_table
from complearn.language.scenes.graphs import Item, SceneGraph
from complearn.language.scenes.propositions import Absent, Exists, Phrase, Relates, Statement, referents
from complearn.models.composer.pairing import Look
from complearn.models.registry import build

CAPTION = "a red dog near a cat"
DOG = PhraseBoxes(0, 9, (Box("dog", 0.0, 0.0, 0.25, 0.5), Box("dog", 0.0, 0.25, 0.25, 0.75)))
CAT = PhraseBoxes(15, 20, (Box("cat", 0.4, 0.4, 0.9, 0.9),))
GRID = torch.tensor([[x / 4, y / 4, (x + 1) / 4, (y + 1) / 4] for y in range(4) for x in range(4)])


def pair_of(*phrases, name="0", caption=CAPTION):
    return Pair(None, caption, name, name, labels={"phrases": plain_phrases(phrases)})


class Pointer:
    "Looks at one place of a grid of 4 x 4 with each phrase, or at several equally."

    def __init__(self, places):
        self.places = places  # span -> places

    def looks(self, pairs):
        weights = {span: torch.tensor([float(k in places) for k in range(16)]) for span, places in self.places.items()}
        return [tuple(Look(*span, share / share.sum(), GRID) for span, share in weights.items()) for _ in pairs]


@pytest.mark.parametrize(
    "places, hit, tied",
    [
        ([0], True, False),  # the middle of the first place, (.125, .125)
        ([4], True, False),  # in both boxes
        ([8], True, False),  # in the second box alone
        ([12], False, False),
        ([1], False, False),
        ([0, 4], True, True),  # both on the dog
        ([0, 1], False, True),  # one beside it
        (range(16), False, True),  # everywhere alike
    ],
)
def test_a_phrase_is_a_hit_if_all_that_it_looks_at_most_is_its_thing(places, hit, tied):
    table = pointing_table(Pointer({(0, 9): places}), [pair_of(DOG)])
    (row,) = table.to_dict("records")
    assert (row["hit"], row["tied"]) == (hit, tied)
    assert row["phrase"] == row["concept"] == "a red dog" and row["chance"] == 0.25 * 0.75 and not row["centre"]


def test_a_phrase_is_read_at_the_concept_that_agrees_best():
    spans = {(0, 20): [15], (0, 9): [0], (6, 9): [15], (17, 20): [10]}
    phrases = [PhraseBoxes(2, 9, DOG.boxes), PhraseBoxes(10, 14, DOG.boxes), CAT]
    table = pointing_table(Pointer(spans), [pair_of(*phrases)])
    assert table.concept.tolist() == ["a red dog", "", "cat"], "near is no concept; a cat is read at its noun"
    assert table.hit.tolist() == [True, False, True] and table.centre.tolist() == [False, False, True]


def test_the_task_leaves_out_and_counts_phrases_without_a_concept():
    task = TASKS["pointing"]([pair_of(DOG, PhraseBoxes(10, 14, CAT.boxes)), pair_of(CAT, name="1"), pair_of(name="2")])
    scores = {score.metric: score for score in task.run(Pointer({(0, 9): [0], (15, 20): [0]}))}
    assert scores["pointing"].value == 0.5 and (scores["pointing"].n, scores["pointing"].groups) == (2, 2)
    assert scores["read"].value == pytest.approx(2 / 3) and scores["read"].n == 3
    assert scores["chance where read"].value == (0.1875 + 0.25) / 2 and scores["centre where read"].value == 0.5
    blind = task.blind([])
    assert blind["chance"][0].value == pytest.approx((0.1875 + 0.25 + 0.25) / 3)
    assert blind["centre"][0].value == pytest.approx(2 / 3)
    assert len(task.without(["0"]).pairs) == 2 and len(task.limited(1).pairs) == 1
    (only,) = Pointing([pair_of(CAT)]).run(Pointer({(0, 3): [0]}))
    assert only.metric == "read" and only.value == 0


def test_overlapping_boxes_are_counted_once():
    draw = np.random.default_rng(0)
    points = draw.random((40_000, 2))
    for _ in range(5):
        edges = np.sort(draw.random((4, 2, 2)), 1)
        boxes = [Box("", left, top, right, bottom) for (left, top), (right, bottom) in edges.tolist()]
        inside = [((e[0] <= points) & (points <= e[1])).all(1) for e in edges]
        assert covered_area(boxes) == pytest.approx(np.any(inside, 0).mean(), abs=0.01)
    assert covered_area([Box("", 0, 0, 1, 1)] * 2) == 1


@pytest.mark.parametrize(
    "row, said",
    [
        ([0, 5], "a phrase is .first character"),
        ([5, 5, []], "a phrase is .first character"),
        ([0, 50, []], "within the caption; got .0, 50"),
        ([0, 5, [[0, 0, 1, 1]]], r"pair 0: a box is \[label, left, top, right, bottom\]; got"),
        ([0, 5, [["dog", "0", 0, 1, 1]]], "pair 0: a box is"),
    ],
)
def test_phrases_that_are_written_in_another_way_are_named(row, said):
    with pytest.raises(ValueError, match=said):
        phrases_of(Pair(None, CAPTION, "0", "0", labels={"phrases": [row]}))


def test_what_cannot_be_asked_is_said():
    with pytest.raises(ValueError, match="object does not say where phrases look; take a model of kind composer"):
        pointing_table(object(), [pair_of(DOG)])
    with pytest.raises(ValueError, match="no pair has phrases with boxes"):
        pointing_table(Pointer({}), [Pair(None, CAPTION, "0", "0")])


# --- in a generated world


@pytest.fixture(scope="module")
def world():
    kinds = ["attribute", "conjunction", "relation", "negation", "count"]
    return world_from({"preset": "small", "kinds": kinds, "n_train": 200, "n_test": 200, "size": 32})


def test_a_relation_names_those_of_which_it_holds():
    circles = [Item("circle", "red", "large", "plain", x, 0.5, 0.14) for x in (0.2, 0.8)]
    scene = SceneGraph((*circles, Item("square", "blue", "small", "plain", 0.5, 0.5, 0.08)))
    right = Relates(Phrase("circle"), "right of", Phrase())
    found = referents(Statement((right, Absent(Phrase("star")), Exists(Phrase("circle", count=2)))), scene)
    assert found == {(0, "subject"): (1,), (0, "object"): (0, 2), (2, "phrase"): (0, 1)}


@pytest.mark.parametrize("part", ("train", "test"))
def test_phrases_of_a_world_have_the_boxes_of_what_they_name(world, part):
    pairs = world.phrased(200, part)
    count = 0
    synonyms = {"disc": "circle", "rhombus": "diamond", "violet": "purple"}
    for k, pair in enumerate(pairs):
        assert pair.caption == getattr(world, part)[k].caption
        for phrase in phrases_of(pair):
            text = pair.caption[phrase.start : phrase.stop]
            assert f" {text} " in f" {pair.caption} ", "whole words"
            words = {synonyms.get(word, word) for word in text.split()}
            for box in phrase.boxes:
                _, colour, shape = box.label.split()
                assert box in boxes_of(Pair(None, None, "", "", graph=pair.graph))
                assert colour in words or not words & {"red", "green", "blue", "yellow", "purple"}, (text, box)
                count += 1
    assert count > 200
    said = [pair.caption[phrase.start : phrase.stop] for pair in pairs for phrase in phrases_of(pair)]
    assert not any(text.startswith("no ") for text in said), "nothing is pointed at that is absent"


def test_a_thing_whose_shape_is_not_said_is_named_with_its_noun():
    alike = world_from({"preset": "small", "kinds": ["relation"], "relations": ["same shape as"], "n_test": 40})
    pairs = alike.phrased(40)
    said = [pair.caption[phrase.start : phrase.stop] for pair in pairs for phrase in phrases_of(pair)]
    assert len(said) > 40 and all(text.split()[-1] not in alike.config.words("colours") for text in said), said
    assert any(text.split()[-1] in ("thing", "object", "item") for text in said)


def test_a_trained_run_can_be_asked(world):
    little = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    towers = {"vision": little | {"size": 32, "patch": 8}, "text": little}
    pairs = world.phrased(40)
    model = build({"kind": "composer", "layers": 3, **towers}, WordTokenizer.fit([p.caption for p in pairs]), 0)
    scores = {score.metric: score for score in Pointing(pairs).run(model)}
    assert scores["read"].value > 0.95 and 0 <= scores["pointing"].value <= 1
    for kind in ("vse", "two_stream"):
        other = build({"kind": kind, **towers}, WordTokenizer.fit([p.caption for p in pairs]), 0)
        with pytest.raises(ValueError, match="does not say where phrases look"):
            Pointing(pairs).run(other)
