"""Rendering against areas, windows, batches and orders."""

from dataclasses import replace

import numpy as np
import pytest

from complearn.data.worlds.rendering import (
    Scene,
    _as_rows,
    _item_map,
    _paint,
    _rows_windows,
    backgrounds,
    photograph,
    render,
)
from complearn.language.scenes.geometry import _outline, polygon_depth
from complearn.language.scenes.graphs import COLOURS, SHAPES, TEXTURES, Item, SceneGraph


def scenes(n, seed=0):
    draw = np.random.default_rng(seed)

    def word(options):
        return str(draw.choice(list(options)))

    def item():
        return Item(word(SHAPES), word(COLOURS), "large", word(TEXTURES), *draw.uniform(0.2, 0.8, 2), 0.15)

    graphs = [SceneGraph(tuple(item() for _ in range(draw.integers(0, 6)))) for _ in range(n)]
    return [Scene(graph, int(draw.integers(2**62)), noise=0.02 * (k % 2), jitter=0.1) for k, graph in enumerate(graphs)]


@pytest.mark.parametrize("size", [17, 32, 64, 128])
def test_a_scene_looks_the_same_in_any_batch(size):
    batch = scenes(9)
    together = render(batch, size)
    reverse = render(batch[::-1], size)
    assert together.shape == (9, size, size, 3) and together.dtype == np.uint8
    for k, scene in enumerate(batch):
        assert (render([scene], size)[0] == together[k]).all() and (reverse[8 - k] == together[k]).all()


def test_no_scene_and_no_item():
    assert render([], 32).shape == (0, 32, 32, 3)
    assert (render([Scene(SceneGraph(()))], 32) == 224).all()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", [32, 224])
def test_coverage_is_the_area_of_the_outline(shape, size):
    item = Item(shape, "black", "large", "plain", 0.47, 0.52, 0.28)
    canvas = np.ones((1, 3, size, size), np.float32)
    _paint(canvas, replace_colour(_as_rows([item], size)))
    x, y = _outline(item).T
    area = abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1))) / 2
    assert (1 - canvas[0, 0]).mean() == pytest.approx(area, rel=0.02 if size == 32 else 0.006)
    assert (_item_map(Scene(SceneGraph((item,))), size) == 1).mean() == pytest.approx(
        area, rel=0.06 if size == 32 else 0.015
    )


def replace_colour(rows):
    rows.colour = np.zeros_like(rows.colour)  # then what is left of a white canvas is exactly what is not covered
    return rows


@pytest.mark.parametrize("shape", SHAPES)
def test_pixels_agree_with_the_polygon(shape):
    item = Item(shape, "black", "large", "plain", 0.47, 0.52, 0.28)
    centres = np.stack(np.meshgrid(*[(np.arange(224) + 0.5) / 224] * 2), -1).reshape(-1, 2)
    within = polygon_depth(centres, _outline(item)).reshape(224, 224) * 224  # pixels
    seen = _item_map(Scene(SceneGraph((item,))), 224) == 1
    assert seen[within > 0.4].all() and not seen[within < -0.4].any()


def test_windows_change_nothing():
    batch = scenes(6, seed=1)
    size = 96
    slow = backgrounds(batch, size)
    for n, scene in enumerate(batch):
        for item in scene.graph.items:
            _paint(slow[n : n + 1], _as_rows([item], size))
    assert np.abs(photograph(slow, batch).astype(int) - render(batch, size)).max() <= 1


def test_windows_stay_on_the_canvas_and_hold_the_item():
    rows = _as_rows([Item("square", "red", "large", "plain", 0.1, 0.95, 0.2)], 100)
    assert _rows_windows(rows, 100) == [(64, 100, 0, 41)]


def test_painters_order():
    under = Item("square", "red", "large", "plain", 0.5, 0.5, 0.3)
    over = Item("circle", "blue", "small", "plain", 0.5, 0.5, 0.09)
    first, second = (render([Scene(SceneGraph(order))], 64)[0, 32, 32] for order in ((under, over), (over, under)))
    assert tuple(first) == COLOURS["blue"] and tuple(second) == COLOURS["red"]
    assert (_item_map(Scene(SceneGraph((over, under))), 64) == 1).sum() == 0  # hidden


@pytest.mark.parametrize("texture", [texture for texture in TEXTURES if texture != "plain"])
@pytest.mark.parametrize("size", [32, 64])
def test_textures_can_be_seen(texture, size):
    plain = Item("square", "green", "large", "plain", 0.5, 0.5, 0.16)
    pictures = render([Scene(SceneGraph((replace(plain, texture=t),))) for t in ("plain", texture)], size).astype(float)
    inside = _item_map(Scene(SceneGraph((plain,))), size) == 1
    assert np.abs(pictures[0] - pictures[1]).max(-1)[inside].mean() > 25


def test_style_comes_from_the_style_seed_alone():
    plain = Scene(SceneGraph((Item("heart", "pink", "large", "dotted", 0.4, 0.4, 0.2),)), 5)
    for knob in ("noise", "jitter", "gradient"):
        styled = replace(plain, **{knob: 0.2})
        one, again, other = render([styled, styled, replace(styled, style_seed=6)], 48)
        assert (one == again).all() and (one != other).any() and (one != render([plain], 48)[0]).any()


def test_noise_has_its_deviation_and_no_pattern():
    noisy = (
        render([Scene(SceneGraph(()), seed, background=(128, 128, 128), noise=0.1) for seed in range(40)], 64).astype(
            float
        )
        - 128
    )
    assert noisy.std() == pytest.approx(25.5, rel=0.02) and abs(noisy.mean()) < 0.3
    shifted = [
        (noisy[:, :, 1:] * noisy[:, :, :-1]).mean(),
        (noisy[1:] * noisy[:-1]).mean(),
        (noisy[..., 0] * noisy[..., 1]).mean(),
    ]
    assert np.abs(shifted).max() < 0.01 * 25.5**2
