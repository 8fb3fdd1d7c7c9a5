"""Abstract Scenes: the order and the pixels of drawing, the scene graphs, splits, captions, broken files, the real
scenes."""

import gzip
import json
import os

import numpy as np
import pytest
from PIL import Image

from complearn.data.fixtures.specimens import write_clipart
from complearn.data.images import Transform, load_images
from complearn.data.readers.registry import read
from complearn.data.reports import BadData
from complearn.data.visual_genome.triplets import graph_triplets
from complearn.language.scenes.geometry import relation_truth
from complearn.language.scenes.graphs import Item
from complearn.language.scenes.nouns import Noun
from complearn.language.scenes.propositions import Phrase, fits

SIDES = ("left of", "right of", "above", "below")


@pytest.fixture
def folder(tmp_path):
    return write_clipart(tmp_path / "scenes")


def change(folder, number, **values):
    """Change a scene of the file; `objects` is changed by a function."""
    lines = [json.loads(line) for line in (folder / "scenes.jsonl").read_text().splitlines()]
    lines[number] |= values
    (folder / "scenes.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_a_scene_has_the_pixels_that_are_drawn_by_hand(folder):
    scene = read("abstract_scenes", folder=folder)[2].image  # the second scene: mirrored, the tree in the middle depth
    assert [(piece.name, piece.depth, piece.flip) for piece in scene.pieces] == [
        ("sun", 0, True),
        ("tree", 1, True),
        ("ball", 0, True),
    ]
    canvas = np.zeros((400, 500, 3), np.uint8)
    for k, (left, top, w, h) in enumerate(
        [(0, 0, 500, 400), (410, 30, 60, 60), (165, 180, 70, 140), (130, 280, 40, 40)]
    ):
        part = canvas[top : top + h, left : left + w]
        halves = ((250, 60 * k, 0), (40, 60 * k, 120))
        part[:, : w // 2], part[:, w // 2 :] = halves if k == 0 else halves[::-1]  # the background is never mirrored
    difference = np.abs(np.asarray(scene.draw()).astype(int) - canvas).max(-1)
    difference[180:320, 195:205] = 0  # the smaller tree's colours mix where they meet
    assert difference.max() <= 2


def test_crops_of_a_clipart_scene_are_cut_out_of_the_whole_picture(folder):
    scene = read("abstract_scenes", folder=folder)[2].image
    plain = Transform(32)
    whole = np.asarray(scene.whole())
    assert whole.shape == (500, 500, 3)
    inside = slice(6, 26)  # without the lines where the white margins begin
    assert np.abs(plain.pixels([whole])[0].astype(int) - plain.pixels([scene])[0])[inside].mean() < 2
    cropped = Transform(32, area=(0.1, 0.2))
    assert np.array_equal(cropped.pixels([scene] * 5, range(5)), cropped.pixels([whole] * 5, range(5)))
    assert np.array_equal(cropped.pixels([scene]), plain.pixels([scene]))  # without draws nothing is cropped


def test_far_pieces_and_the_sky_come_first_and_pieces_may_leave_the_canvas(folder):
    piece = {
        "png": "ball_0.png",
        "name": "ball",
        "x": 100,
        "y": 100,
        "w": 40,
        "h": 40,
        "depth": 0,
        "flip": 0,
        "order": 0,
        "sky": False,
    }
    others = [{"name": "kite", "order": 2}, {"name": "far tree", "depth": 2, "order": 3},
        {"name": "sun", "order": 9, "sky": True},
              {"name": "cloud", "depth": 2, "order": 8, "sky": True, "x": -5},
              {"name": "lost", "x": 900, "order": 4}]  # fmt: skip
    change(folder, 0, objects=[piece, *(piece | other for other in others)])
    pair = read("abstract_scenes", folder=folder)[0]
    assert [item.name for item in pair.image.pieces] == ["cloud", "sun", "far tree", "ball", "kite", "lost"]
    assert [item.shape for item in pair.graph.items] == ["cloud", "sun", "far tree", "ball", "kite"]
    assert tuple(np.asarray(pair.image.draw())[100, 2]) == (40, 180, 120), "half of the cloud is seen"


def test_a_picture_is_drawn_when_it_is_needed_and_the_graph_has_its_places(folder):
    pairs = read("abstract_scenes", folder=folder)
    pixels = load_images([pair.image for pair in pairs[::2]], 100)
    assert pixels.shape == (2, 100, 100, 3)
    assert (pixels[:, [0, 9, 90, 99]] == 255).all()
    assert (pixels[:, 10:90] < 255).any(-1).all()
    sun = pairs[0].graph.items[0]
    assert (sun.shape, sun.size, sun.colour, round(sun.x, 3), round(sun.y, 3), sun.radius) == (
        "sun",
        None,
        None,
        0.88,
        0.22,
        0.06,
    )
    assert np.abs(pixels[0, 22, [90, 86]].astype(int) - [(40, 60, 120), (250, 60, 0)]).max() < 8


def test_a_piece_that_was_replaced_in_its_size_and_time_is_drawn_anew(folder):
    """What a scene shows and its hash change together, else the features of one picture are kept for another."""
    scene = read("abstract_scenes", folder=folder)[2].image
    path = scene.folder / scene.pieces[0].png
    with Image.open(path) as file:
        picture = file.convert("RGBA")
    seen = []
    for colour in ((9, 9, 9, 255), (240, 9, 9, 255)):
        Image.new("RGBA", picture.size, colour).save(path, "BMP")  # files of one size
        os.utime(path, (0, 0))
        seen.append((path.stat().st_size, scene.content(), np.asarray(scene.draw())))
    assert seen[0][0] == seen[1][0] and seen[0][1] != seen[1][1] and not np.array_equal(seen[0][2], seen[1][2])


def test_relations_follow_from_the_places(folder):
    graph = read("abstract_scenes", folder=folder)[0].graph
    names = [item.shape for item in graph.items]

    def truth(relation, a, b):
        return relation_truth(graph, relation, names.index(a), names.index(b))

    assert truth("right of", "sun", "ball")
    assert truth("above", "sun", "tree")
    assert truth("left of", "sun", "tree") is False
    assert truth("left of", "ball", "tree") is None, "too close to call"
    assert truth("touching", "sun", "ball") is False and truth("touching", "ball", "tree") is None
    assert {str(t) for t in graph_triplets(graph, SIDES, single=False)} >= {
        "sun | right of | ball",
        "ball | left of | sun",
    }


def test_the_size_of_a_noun_may_be_unknown():
    sun = Item(Noun("sun"), None, None, None, 0.5, 0.5, 0.05)
    assert [fits(Phrase(size=size, shape=Noun("sun")), sun) for size in (None, "small")] == [True, None]
    with pytest.raises(ValueError, match="expected a size among small, large; got None"):
        Item("circle", "red", None, "plain", 0.5, 0.5, 0.05)
    with pytest.raises(ValueError, match="expected a positive radius"):
        Item(Noun("sun"), None, None, None, 0.5, 0.5, -0.05)


def test_utterances_and_descriptions_of_each_split(folder):
    train, val = (read("abstract_scenes", folder=folder, split=split) for split in ("train", "val"))
    assert [pair.id for pair in train] == ["scene_0:1", "scene_0:2", "scene_1:1", "scene_1:2"]
    assert [pair.image_id for pair in val] == ["scene_2"] * 2 and val[1].caption == "a ball, too"
    whole = read("abstract_scenes", folder=folder, captions="descriptions")
    assert [(pair.id, pair.caption) for pair in whole] == [(f"scene_{k}", "a sun and a ball") for k in range(2)]
    with pytest.raises(BadData, match="no split 'test'; there are train, val"):
        read("abstract_scenes", folder=folder, split="test")
    with pytest.raises(ValueError, match="no captions 'all'; there are utterances, descriptions"):
        read("abstract_scenes", folder=folder, captions="all")


def test_a_packed_file_of_scenes_is_read_and_a_cut_one_named(folder):
    content = gzip.compress((folder / "scenes.jsonl").read_bytes())
    (folder / "scenes.jsonl").rename(folder / "other.jsonl")
    (folder / "scenes.jsonl.gz").write_bytes(content)
    assert len(read("abstract_scenes", folder=folder)) == 4
    (folder / "scenes.jsonl.gz").write_bytes(content[:-12])
    with pytest.raises(BadData, match="scenes.jsonl.gz: .*get the file again"):
        read("abstract_scenes", folder=folder)


BROKEN = [({"depth": 3}, "objects.0.depth"), ({"png": "../a.png"}, "objects.0.png"), ({"x": None}, "objects.0.x"),
          ({"png": "moon_0.png"}, "moon_0.png: image not found")]  # fmt: skip


@pytest.mark.parametrize("piece, message", BROKEN)
def test_a_scene_that_cannot_be_drawn_is_skipped_and_named(folder, piece, message):
    line = json.loads((folder / "scenes.jsonl").read_text().splitlines()[1])
    change(folder, 1, objects=[line["objects"][0] | piece])
    with pytest.raises(BadData, match=f"scenes.jsonl line 2: .*{message}"):
        read("abstract_scenes", folder=folder)
    with pytest.warns(UserWarning, match="1 bad record .scenes.jsonl line 2: .*; 2 bad row"):
        assert {pair.image_id for pair in read("abstract_scenes", folder=folder, max_bad=1.0)} == {"scene_0"}


@pytest.mark.real
@pytest.mark.slow
def test_the_real_scenes(real_data):
    source = real_data / "abstract_scenes"
    utterances = read("abstract_scenes", folder=source, split="val")
    descriptions = read("abstract_scenes", folder=source, split="val", captions="descriptions")
    assert (len(utterances), len(descriptions)) == (4713, 1002) and not descriptions.report.skipped
    assert {pair.image_id for pair in utterances} == {pair.image_id for pair in descriptions}
    for pair in descriptions[:200]:
        for piece in pair.image.pieces:
            sides = Image.open(source / "clipart" / piece.png).size
            assert (piece.w, piece.h) == tuple(round(side * (1, 0.7, 0.49)[piece.depth]) for side in sides)
        assert set(graph_triplets(pair.graph, SIDES)) and 6 <= len(pair.image.pieces) <= 17
    assert load_images([pair.image for pair in descriptions[:8]], 64).std() > 30
