"Scenes and statements: what is drawn is true, readable, even, within its world, and decided by the seed alone."

from collections import Counter
from dataclasses import replace

import pytest

from complearn.core.seeds import rng
from complearn.language.scenes.geometry import layout_problems
from complearn.language.scenes.graphs import RELATIONS
from complearn.language.scenes.propositions import ATTRIBUTES, Exists, Phrase, Relates, Statement, bindings, fits, truth
from complearn.language.scenes.realise import realise, sample_pair, sample_scene, sample_statement
from complearn.language.scenes.sampling import KINDS, SceneConfig, draw_statement, is_allowed

CONFIG = SceneConfig()
TINY = SceneConfig(
    ("circle", "square", "triangle"),
    ("red", "green", "blue"),
    ("large",),
    ("plain",),
    (2, 2),
    ("left of", "above"),
    ("conjunction", "relation"),
    mention=(0, 0, 1.0),
)


@pytest.mark.parametrize("kind", KINDS)
def test_pairs_are_true_readable_and_within_the_world(kind):
    for i in range(80):
        graph, statement = sample_pair(CONFIG, rng(0, kind, i), (kind,))
        assert truth(statement, graph) is True and is_allowed(statement, CONFIG) and layout_problems(graph) == []
        assert 1 <= len(graph.items) <= 5
        assert (graph, statement) == sample_pair(CONFIG, rng(0, kind, i), (kind,))


def test_a_tiny_world_uses_its_own_words_only():
    for i in range(100):
        graph, statement = sample_pair(TINY, rng(0, "tiny", i))
        assert (
            len(graph.items) == 2
            and {item.size for item in graph.items} == {"large"}
            and {item.texture for item in graph.items} == {"plain"}
        )
        assert all(phrase.mentioned() == ("colour", "shape") for _, _, phrase in statement.phrases())
        assert {item.shape for item in graph.items} <= set(TINY.shapes)


def test_kinds_relations_and_counts_are_drawn_evenly():
    pairs = [sample_pair(CONFIG, rng(1, "even", i)) for i in range(900)]
    relations = Counter(
        c.relation for _, s in pairs if len(s.clauses) == 1 for c in s.clauses if isinstance(c, Relates)
    )
    assert set(relations) == set(RELATIONS) and min(relations.values()) > 0.45 * sum(relations.values()) / len(
        RELATIONS
    ), relations
    sizes = Counter(len(graph.items) for graph, _ in pairs)
    assert set(sizes) == {1, 2, 3, 4, 5}
    shapes = Counter(p.shape for _, s in pairs for _, _, p in s.phrases() if p.shape)
    assert min(shapes.values()) > 0.75 * sum(shapes.values()) / 8, shapes


@pytest.mark.parametrize("held", ["exclude", "require"])
def test_pairs_held_out_are_nowhere_or_everywhere(held):
    out = (("red", "star"), ("striped", "heart"), ("inside", "circle"), ("left of", "arrow"))
    config = replace(CONFIG, held_out=out, held=held)
    for i in range(80):
        graph, statement = sample_pair(config, rng(0, held, i))
        shown = {(getattr(item, kind), item.shape) for item in graph.items for kind in ATTRIBUTES}
        assert bool(bindings(statement) & set(out)) == (held == "require")
        assert held == "require" or not shown & set(out)


def test_length_can_be_bounded():
    config = replace(CONFIG, atoms=(7, 9))
    assert all(
        7 <= len(sample_pair(config, rng(0, "length", i), ("long", "relation", "conjunction"))[1].atoms()) <= 9
        for i in range(50)
    )


def test_phrases_of_one_statement_never_fit_the_same_object():
    for i in range(300):
        graph, statement = sample_pair(CONFIG, rng(0, "exclusive", i))
        phrases = [phrase for _, _, phrase in statement.phrases()]
        for item in graph.items:
            assert sum(fits(phrase, item) for phrase in phrases) <= 1


def test_realise_refutes_and_keeps():
    statement = Statement((Exists(Phrase("circle", "red")),))
    other = Statement((Exists(Phrase("square", "blue")),))
    scene = realise(statement, CONFIG, rng(0, "realise"), (other,))
    assert truth(statement, scene) is True and truth(other, scene) is False
    changed = realise(other, CONFIG, rng(0, "changed"), (statement,), scene.items)
    assert truth(other, changed) is True
    assert truth(statement, changed) is False
    assert len(changed.items) == len(scene.items)
    assert sum(a == b for a, b in zip(scene.items, changed.items)) == len(scene.items) - 1
    assert realise(statement, CONFIG, rng(0, "never"), (statement,)) is None


def test_statements_about_a_given_scene():
    kinds = set()
    for i in range(200):
        graph = sample_scene(CONFIG, rng(0, "given", i))
        statement = sample_statement(graph, rng(0, "said", i), config=CONFIG)
        assert statement is not None and truth(statement, graph) is True and is_allowed(statement, CONFIG)
        kinds.update(type(clause).__name__ for clause in statement.clauses)
        if len(graph.items) == 1:
            assert sample_statement(graph, rng(0, "none", i), ("conjunction", "relation"), CONFIG) is None
    assert kinds == {"Exists", "Absent", "Relates"}


@pytest.mark.parametrize(
    "change, says",
    [
        ({"shapes": ("blob",)}, "shapes: expected some of circle"),
        ({"colours": ()}, "colours: .* got none"),
        ({"objects": (3, 2)}, "between 1 and 5"),
        ({"objects": (1, 6)}, "between 1 and 5"),
        ({"sizes": ("small",)}, "'inside' needs small and large"),
        ({"held": "forbid"}, "'exclude' or 'require'"),
        ({"objects": (1, 2)}, "long need relations, or more objects than 2"),
        ({"relations": ()}, "relation, long need relations"),
    ],
)
def test_a_world_that_cannot_be_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(CONFIG, **change)


def test_what_never_turns_up_is_an_error_that_names_the_world():
    with pytest.raises(ValueError, match="no 'attribute' statement in 400 draws"):
        draw_statement("attribute", replace(CONFIG, mention=(0, 0, 0)), rng(0, "never"))
    with pytest.raises(ValueError, match="held_out leaves no object"):
        draw_statement(
            "attribute",
            replace(CONFIG, held_out=tuple((c, s) for c in CONFIG.colours for s in CONFIG.shapes)),
            rng(0, "never"),
        )
