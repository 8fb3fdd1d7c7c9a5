"""Trees that a person has put right reach the batches of training, whatever reader brings the captions, and are
counted."""

import json

import pytest
from PIL import Image

from complearn.core.files import BadData
from complearn.data.images import Transform
from complearn.data.readers.registry import _correct_trees, read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.language.trees import parse_bracketed
from complearn.models.composer.concepts import Concepts, concept_collate

CAPTION = "a dog near two cats"
OTHER = "a red ball"
RIGHT = "(NP (NP (DT a) (NN dog)) (PP (IN near) (NP (CD two) (NNS cats))))"
FLAT = "(NP (DT a) (NN dog) (IN near) (CD two) (NNS cats))"


@pytest.fixture
def folder(tmp_path):
    """Two captioned pictures, and corrections of one caption and of a third one that is not there."""
    for name in ("1.png", "2.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "captions.tsv").write_text(f"image\tcaption\n1.png\t{CAPTION}\n2.png\t{OTHER}\n")
    lines = [{"caption": CAPTION, "tree": RIGHT}, {"caption": "a cat", "tree": "(NP (DT a) (NN cat))"}]
    (tmp_path / "corrections.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def corrected(folder, **arguments):
    source = {"name": "folder", "args": {"folder": str(folder), "captions_file": "captions.tsv"}}
    return read("corrected", source=source, **{"file": str(folder), "parser": "rules"} | arguments)


def test_training_reads_the_corrected_trees(folder):
    pairs = corrected(folder)
    assert str(pairs[0].tree) == RIGHT and pairs[1].tree.leaves() == OTHER.split()
    assert "1 of 2 pairs have corrected trees of corrections.jsonl; 1 of its 2 captions are not there" in str(
        pairs.report
    )
    collate = concept_collate(Transform(8), WordTokenizer.fit([CAPTION, OTHER]))
    counts = (collate(pairs)[Concepts].table[..., 1] > 0).sum(1).tolist()
    assert counts[0] == 5 and not collate(pairs)[Concepts].unparsed.any(), "the sentence, two phrases and two nouns"
    without = collate(corrected(folder, parser=""))
    assert without[Concepts].unparsed.tolist() == [False, True], (
        "a caption that nobody has corrected stays without a tree"
    )


def test_a_given_tree_is_corrected_even_where_it_does_not_fit(folder):
    pairs = corrected(folder, parser="")
    for tree in (FLAT, "(NP (NN cat))"):
        pairs[0] = pairs[0].__class__(**{**vars(pairs[0]), "tree": parse_bracketed(tree)})
        assert str(_correct_trees(pairs, folder / "corrections.jsonl")[0].tree) == RIGHT


def test_what_cannot_be_corrected_is_named(folder):
    with pytest.raises(BadData, match="the file of corrected trees does not exist"):
        corrected(folder, file=str(folder / "nothing.jsonl"))
    with pytest.raises(ValueError, match="the trees of its own grammar"):
        read("corrected", source={"name": "generated", "args": {"n_train": 4}}, file=str(folder))
    (folder / "corrections.jsonl").write_text(json.dumps({"caption": CAPTION, "tree": "(NP (NN dog))"}) + "\n")
    with pytest.raises(BadData, match="'a dog near two cats' fits no longer: .*correct it again"):
        corrected(folder)
