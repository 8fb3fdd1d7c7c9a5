"""Triplets: who can be called what alone, what is known of every drawn pair, images without any."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch

from complearn.data.pairs import Pair
from complearn.data.visual_genome.triplets import (
    Triplet,
    TripletEncoder,
    _graph_truths,
    _item_phrases,
    _pair_truths,
    graph_triplets,
)
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.scenes.geometry import relation_truth
from complearn.language.scenes.graphs import RELATIONS, Item, SceneGraph
from complearn.language.scenes.nouns import Noun

SIDES = ("left of", "right of", "above", "below")
EVERY = tuple(RELATIONS)


def scene(seed, n=4):
    draw = np.random.default_rng(seed)
    shapes = ("circle", "square", "triangle")
    colours = ("red", "blue")
    places = draw.permutation([(x, y) for x in (0.15, 0.45, 0.75) for y in (0.15, 0.45, 0.75)])[:n] + draw.uniform(
        0, 0.1, (n, 2)
    )
    kinds = [
        (str(draw.choice(shapes)), str(draw.choice(colours)), str(draw.choice(["plain", "striped"]))) for _ in range(n)
    ]
    return SceneGraph(
        tuple(Item(s, c, "small", t, float(x), float(y), 0.08) for (s, c, t), (x, y) in zip(kinds, places))
    )


def shown(*nouns, colours=None):
    places = [(0.2, 0.2), (0.8, 0.2), (0.5, 0.8)]
    told = colours or [None] * len(nouns)
    return SceneGraph(
        tuple(Item(Noun.of(n), c, "small", None, x, y, 0.11) for n, c, (x, y) in zip(nouns, told, places))
    )


def test_a_phrase_fits_one_thing_alone():
    """What may fit another thing too names nothing: a general noun, an unknown colour, a texture left unsaid."""
    assert _item_phrases(shown("bird", "owl", "car")) == (None, None, "car")
    assert _item_phrases(shown("owl", "eagle", "car")) == ("owl", "eagle", "car")
    assert _item_phrases(shown("car", "car", "owl", colours=["red", None, None])) == (None, None, "owl")
    assert _item_phrases(shown("car", "car", "owl", colours=["red", "blue", None])) == ("red car", "blue car", "owl")
    circle = Item("circle", "red", "small", "plain", 0.2, 0.2, 0.08)
    assert _item_phrases(SceneGraph((circle, replace(circle, texture="dotted", x=0.8)))) == (
        None,
        "small dotted red circle",
    )


@pytest.mark.parametrize("single", [True, False])
def test_all_that_is_known_of_a_drawn_pair(single):
    """One drawn triplet per image; its pair tells every relation that holds and every one too close to call, by
    `relation_truth`."""
    tokenizer = WordTokenizer.fit(["small striped red blue circle square triangle"])
    unknown = 0
    several = 0
    triplets = TripletEncoder(EVERY, ("circle", "square", "triangle"), 1, single, tokenizer)
    for seed in range(30):
        graph = scene(seed)
        extra = triplets([Pair(None, None, "a", "a", graph=graph)], [seed])
        ((subject, predicate, other),) = extra.numbers[0].tolist()
        if predicate < 0:
            continue
        phrases = _item_phrases(graph)
        texts = extra.phrases[0]
        truth = [
            relation_truth(graph, name, phrases.index(texts[subject]), phrases.index(texts[other])) for name in EVERY
        ]
        assert extra.held[0, 0].tolist() == [t is True for t in truth] and extra.held[0, 0, predicate]
        assert extra.unknown[0, 0].tolist() == [t is None for t in truth]
        unknown = unknown + truth.count(None)
        several = several + (truth.count(True) > 1)
    assert unknown > 2 and (several == 0 if single else several > 5)


def test_truths_are_those_of_the_graph():
    for seed in range(5):
        graph = scene(seed)
        phrases = _item_phrases(graph)
        named = [i for i, phrase in enumerate(phrases) if phrase]
        for i, j in permutations(named, 2):
            told = _graph_truths(graph, SIDES)[phrases[i], phrases[j]]
            assert [told.get(name, False) for name in SIDES] == [relation_truth(graph, name, i, j) for name in SIDES]
            said = [
                t.predicate for t in graph_triplets(graph, SIDES) if (t.subject, t.object) == (phrases[i], phrases[j])
            ]
            assert said == ([name for name in SIDES if told.get(name)] if list(told.values()).count(True) == 1 else [])


def test_annotated_relations_that_were_not_drawn_hold():
    told = (Triplet("man", "wear", "hat"), Triplet("man", "have", "hat"), Triplet("man", "on", "horse"))
    pair = Pair(None, None, "a", "a", labels={"triplets": told})
    assert _pair_truths(pair) == {("man", "hat"): {"wear": True, "have": True}, ("man", "horse"): {"on": True}}
    tokenizer = WordTokenizer.fit(["man hat horse"])
    extra = TripletEncoder(("on", "wear", "have"), ("x",), 1, tokenizer=tokenizer)([pair])
    assert extra.numbers.shape == (1, 1, 3)
    assert extra.held[0, 0].tolist() == [False, True, True]
    assert not extra.unknown.any()


def test_images_without_triplets_bring_empty_places():
    tokenizer = WordTokenizer.fit(["man hat"])
    told = (Triplet("man", "on", "hat"),), ()
    some, none = (Pair(None, None, name, name, labels={"triplets": each}) for name, each in zip("ab", told))
    triplets = TripletEncoder(("on",), ("x",), 2, tokenizer=tokenizer)
    alone = triplets([none])
    both = triplets([none, some])
    assert (alone.numbers == -1).all() and not alone.phrase_mask.any() and alone.phrases == ((),)
    for name in ("numbers", "held", "unknown"):
        assert torch.equal(getattr(both, name)[:1], getattr(alone, name)), name
    assert not both.phrase_mask[0].any() and both.phrase_mask[1].any(-1).all()
