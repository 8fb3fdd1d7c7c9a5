"""The tree of a sentence with the score of every node: the numbers are the model's, and the figure shows them where
they belong."""

import numpy as np
import pandas as pd
import pytest

from complearn.analysis.trees.figures import node_scores, score_tree_figure
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.trees import parse_bracketed
from complearn.models.registry import build, read_model

CAPTION = "two dogs near a red ball"
TREE = parse_bracketed("(NP (NP (CD two) (NNS dogs)) (PP (IN near) (NP (DT a) (JJ red) (NN ball))))")
LITTLE = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
KINDS = {"composer": {"layers": 3}, "vse": {}, "two_stream": {"image_layers": 1, "layers": 1}, "clip": {}}


def made(kind):
    config = {"kind": kind} if kind != "clip" else {}
    config |= {"vision": LITTLE | {"size": 16, "patch": 8}, "text": LITTLE, **KINDS[kind]}
    return build(read_model(config), WordTokenizer.fit([CAPTION]), seed=1).eval()


@pytest.fixture
def pictures():
    draw = np.random.default_rng(0)
    return {name: draw.integers(0, 255, (16, 16, 3), np.uint8) for name in ("own", "other")}


@pytest.mark.parametrize("kind", ["composer", "vse", "two_stream"])
def test_scores_of_phrases_are_those_of_the_phrase_in_its_sentence(kind, pictures):
    model = made(kind)
    pair = Pair(None, CAPTION, "0", "0", tree=TREE)
    table = node_scores(model, pair, pictures)
    assert table.text.tolist() == [CAPTION, "two dogs", "dogs", "a red ball", "ball"]
    assert table.parent.tolist() == [-1, 0, 1, 0, 3] and table.height.tolist() == [2, 1, 0, 1, 0]
    assert table.primitive.tolist() == [False, False, True, False, True]
    for name, image in pictures.items():
        alone = node_scores(model, pair, {"it": image})
        assert alone["it"].tolist() == pytest.approx(table[name].tolist(), abs=1e-5)
        images = model.encode_images(model.collate([Pair(image, None, "0", "0")]))
        score = float(model.similarity(images, model.encode_texts(model.collate([pair])))[0, 0])
        factor = model.logit_scale.exp().item() if kind == "vse" else 1.0
        assert table[name][0] == pytest.approx(factor * score, abs=1e-3)


def test_the_figure_places_a_parent_over_its_children():
    table = pd.DataFrame(
        {
            "text": ["a <b> c", "left", "right", "dog"], "label": "NP", "primitive": False, "parent": [-1, 0, 0, 1],
            "start": [0, 0, 9, 2],
            "height": [2, 1, 0, 0], "own": [1.0, 0.5, -0.25, 0.1], "other": [0.5, 0.75, 0.25, 0.1],
        }
    )  # fmt: skip
    figure = score_tree_figure(table, ("own", "other"))
    nodes = figure.data[1]
    assert list(nodes.x) == [0.5, 0, 1, 0] and list(nodes.y) == [2, 1, 0, 0]
    assert list(nodes.marker.color) == pytest.approx([0.5, -0.25, -0.5, 0])
    assert nodes.marker.cmax == -nodes.marker.cmin == 0.5
    notes = [note.text for note in figure.layout.annotations]
    assert notes[0] == "a &lt;b&gt; c<br>[1.00, 0.50]" and notes[2] == "right<br>[-0.25, 0.25]"
    assert [value for value in figure.data[0].x if value is not None] == [0, 0.5, 1, 0.5, 0, 0]


def test_a_model_without_concepts_and_pictures_without_names_are_refused(pictures):
    pair = Pair(None, CAPTION, "0", "0", tree=TREE)
    with pytest.raises(ValueError, match="does not score concepts; take a model of kind composer"):
        node_scores(made("clip"), pair, pictures)
    with pytest.raises(ValueError, match="pictures need names other than those of the table's columns; got text"):
        node_scores(made("vse"), pair, {"text": pictures["own"]})
    with pytest.raises(ValueError, match="got none"):
        node_scores(made("vse"), pair, {})
