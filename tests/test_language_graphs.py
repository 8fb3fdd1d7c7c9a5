"""Scene graphs: outlines against a rasteriser, relations against their algebra and against pixels, margins against
jitter."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from complearn.core.seeds import rng
from complearn.language.scenes.geometry import (
    _outline,
    box_gap,
    layout_problems,
    outline_gap,
    polygon_depth,
    relation_truth,
    unit_outline,
)
from complearn.language.scenes.graphs import COLOURS, RELATIONS, SHAPES, SIZES, TEXTURES, Item, SceneGraph
from complearn.language.scenes.layouts import Link, Sketch, place_objects
from complearn.language.scenes.realise import SceneConfig, sample_pair, sample_scene


def any_item(generator):
    size = tuple(SIZES)[generator.integers(2)]
    radius = generator.uniform(SIZES[size][0], min(SIZES[size][1], 0.2))
    x, y = generator.uniform(radius, 1 - radius, 2)
    words = [options[generator.integers(len(options))] for options in (SHAPES, tuple(COLOURS))]
    return Item(*words, size, TEXTURES[generator.integers(4)], float(x), float(y), float(radius))


def any_graph(generator, n=3):
    return SceneGraph(tuple(any_item(generator) for _ in range(n)))


def pixels(item, side=96):
    image = Image.new("1", (4 * side, 4 * side))
    ImageDraw.Draw(image).polygon([tuple(4 * side * c) for c in _outline(item)], fill=1)
    return np.asarray(image.convert("L").resize((side, side), Image.BOX)) > 127


@pytest.mark.parametrize("shape", SHAPES)
def test_depth_agrees_with_a_rasteriser(shape):
    side = 200
    polygon = unit_outline(shape)
    image = Image.new("1", (side, side))
    ImageDraw.Draw(image).polygon([tuple((c + 1) * side / 2) for c in polygon], fill=1)
    line = (np.arange(side) + 0.5) / side * 2 - 1
    deep = polygon_depth(np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2), polygon).reshape(side, side)
    sure = np.abs(deep) > 0.02
    assert ((deep > 0) == np.asarray(image))[sure].all()
    assert 0.25 < (deep > 0).mean() <= 1  # stout: no shape is so thin that its texture cannot be seen


def test_depth_of_points_at_known_distances():
    square = unit_outline("square")
    assert np.allclose(
        polygon_depth(np.array([(0, 0), (0.75, 0), (2, 0), (2, 2)], float), square), [1, 0.25, -1, -np.sqrt(2)]
    )


@pytest.mark.parametrize("first, second", itertools.combinations_with_replacement(SHAPES, 2))
def test_gap_is_symmetric_and_never_less_than_the_boxes(first, second):
    generator = rng(0, "gap", first, second)
    for _ in range(10):
        a = replace(any_item(generator), shape=first)
        b = replace(any_item(generator), shape=second)
        assert outline_gap(a, b) == outline_gap(b, a)
        assert outline_gap(a, b) >= box_gap(a, b) - 1e-9 or box_gap(a, b) < 0


def test_gap_sees_an_edge_pierced_in_its_middle():
    bar = Item("diamond", "red", "large", "plain", 0.5, 0.5, 0.2)
    tip = Item("diamond", "blue", "small", "plain", 0.5 + 0.1 + 0.075, 0.5, 0.08)
    assert outline_gap(bar, tip) < -0.01


def test_relations_keep_their_algebra():
    for i in range(400):
        graph = any_graph(rng(0, "algebra", i), 2)
        values = {(name, a, b): relation_truth(graph, name, a, b) for name in RELATIONS for a, b in ((0, 1), (1, 0))}
        for name, relation in RELATIONS.items():
            if relation.inverse:
                assert values[name, 0, 1] == values[relation.inverse, 1, 0]
        assert not (values["left of", 0, 1] and values["right of", 0, 1])
        assert not (values["inside", 0, 1] and values["inside", 1, 0])
        assert not (values["inside", 1, 0] and values["touching", 0, 1])


def test_a_pixel_of_jitter_never_turns_true_into_false():
    """The promise of three values: whatever is asserted or denied survives an error of half a pixel at 96 px in every
    coordinate."""
    config = SceneConfig(kinds=("relation", "long"))
    for i in range(60):
        generator = rng(0, "jitter", i)
        graph, _ = sample_pair(config, generator)
        moved = SceneGraph(
            tuple(
                replace(m, x=m.x + dx, y=m.y + dy)
                for m, (dx, dy) in zip(graph.items, generator.uniform(-0.005, 0.005, (len(graph.items), 2)))
            )
        )
        for a, b in itertools.permutations(range(len(graph.items)), 2):
            for name in RELATIONS:
                before = relation_truth(graph, name, a, b)
                after = relation_truth(moved, name, a, b)
                assert {before, after} != {True, False}, (name, graph.items[a], graph.items[b])


def test_touching_and_inside_show_in_96_pixels():
    """By a rasteriser that knows nothing of outlines' distances: contact leaves at most a pixel between, and overlaps
    by at most one."""
    seen = {("touching", True): 0, ("touching", False): 0, ("inside", True): 0}
    for i in range(150):
        generator = rng(0, "raster", i)
        graph, _ = sample_pair(SceneConfig(kinds=("relation",), relations=("touching", "inside")), generator)
        masks = [pixels(item) for item in graph.items]
        for a, b in itertools.permutations(range(len(masks)), 2):
            ya, xa = np.nonzero(masks[a])
            yb, xb = np.nonzero(masks[b])
            nearest = np.maximum(np.abs(ya[:, None] - yb), np.abs(xa[:, None] - xb)).min()
            touching = relation_truth(graph, "touching", a, b)
            inside = relation_truth(graph, "inside", a, b)
            if inside:
                assert (masks[a] & masks[b]).sum() == masks[a].sum() and graph.items[a].radius < graph.items[b].radius
                seen["inside", True] += 1
            elif touching:
                both = masks[a] & masks[b]
                assert nearest <= 2 and not (both[1:, 1:] & both[:-1, :-1] & both[1:, :-1] & both[:-1, 1:]).any()
                seen["touching", True] += 1
            elif touching is False and not relation_truth(graph, "inside", b, a):
                assert nearest >= 2
                seen["touching", False] += 1
    assert min(seen.values()) >= 30, seen


@pytest.mark.parametrize("outer", SHAPES)
def test_every_shape_can_hold_every_shape(outer):
    for inner in SHAPES:
        graph = place_objects(
            [Sketch(inner, "red", "small", "plain"), Sketch(outer, "blue", "large", "plain")],
            [Link(0, "inside", 1)],
            rng(0, inner, outer),
        )
        assert graph is not None and relation_truth(graph, "inside", 1, 0) is True and layout_problems(graph) == []


def test_inside_needs_another_colour_and_the_later_place():
    outer = Item("square", "red", "large", "plain", 0.5, 0.5, 0.25)
    inner = Item("circle", "blue", "small", "plain", 0.5, 0.5, 0.08)
    assert relation_truth(SceneGraph((outer, inner)), "inside", 1, 0) is True
    assert relation_truth(SceneGraph((inner, outer)), "inside", 0, 1) is None
    assert relation_truth(SceneGraph((outer, replace(inner, colour="red"))), "inside", 1, 0) is None
    assert relation_truth(SceneGraph((outer, inner)), "touching", 1, 0) is False


def test_random_scenes_are_well_formed_and_bad_ones_are_named():
    for i in range(100):
        assert layout_problems(sample_scene(SceneConfig(), rng(0, "formed", i))) == []
    one = Item("circle", "red", "small", "plain", 0.5, 0.5, 0.08)
    assert "leaves the canvas" in layout_problems(SceneGraph((replace(one, x=0.05),)))[0]
    assert "apart" in layout_problems(SceneGraph((one, replace(one, x=0.55))))[0]
    assert "apart" in layout_problems(SceneGraph((one, replace(one, x=0.68))))[0]


@pytest.mark.parametrize(
    "change, says",
    [
        ({"shape": "blob"}, "shape among"),
        ({"colour": "mauve"}, "'mauve'"),
        ({"size": "huge"}, "size"),
        ({"texture": "furry"}, "texture"),
        ({"radius": 0.2}, "small radius between 0.07 and 0.09; got 0.2"),
    ],
)
def test_unknown_words_are_refused(change, says):
    with pytest.raises(ValueError, match=says):
        replace(Item("circle", "red", "small", "plain", 0.5, 0.5, 0.08), **change)


def test_a_relation_needs_two_items_and_a_known_name():
    graph = any_graph(rng(0, "two"), 2)
    with pytest.raises(ValueError, match="item 1 twice"):
        relation_truth(graph, "above", 1, 1)
    with pytest.raises(KeyError):
        relation_truth(graph, "beside", 0, 1)
