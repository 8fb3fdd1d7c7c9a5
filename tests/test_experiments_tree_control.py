"""Quilts, in which only the tree tells two pictures apart: what models read of them, and the study that asks them."""

import json

import pytest
import torch
from conftest import ROOT
from notebook_cells import run_cells

from complearn.core.results import Result, rows_table
from complearn.data.readers.registry import read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.quilts import QuiltPicture, quilt_caption, quilt_questions, quilts_of
from complearn.evaluation.statistics import holm
from complearn.evaluation.tasks.choices import evaluate_choices
from complearn.models.composer.concepts import Concepts
from complearn.models.registry import build
from complearn.training.objectives.alignment import _equal_captions
from complearn.training.runs.launch import make_trainer, prepare

CONTROL = "experiments/tree_control"
LITTLE = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
TOWERS = {"vision": LITTLE | {"size": 32, "patch": 8}, "text": LITTLE}


@pytest.fixture(scope="module")
def pairs():
    return read("quilts", n=40, seed=1)


def scorer(pairs, kind="composer", **settings):
    tokenizer = WordTokenizer.fit([pair.caption for pair in pairs])
    more = {"composer": {"layers": 1}, "two_stream": {"image_layers": 1, "layers": 1}, "vse": {}}[kind]
    return build({"kind": kind, **TOWERS, **more, **settings}, tokenizer, 0)


@pytest.mark.parametrize("patches", (3, 4, 5))
def test_a_picture_tells_the_tree_of_its_caption(patches):
    materials = ("brick", "snow", "water", "grass", "coal")[:patches]
    for seams in (["above"] * (patches - 1), ["left of", "above"] * 2):
        quilts = quilts_of(materials, seams[: patches - 1])
        drawn = QuiltPicture.render_batch([QuiltPicture(quilt, noise=0.0) for quilt in quilts], 64)
        assert len({picture.tobytes() for picture in drawn}) == len({quilt_caption(quilt) for quilt in quilts})
        assert len(quilts) == {3: 2, 4: 5, 5: 14}[patches]


def test_twins_have_the_same_tokens_and_other_concepts(pairs):
    batch = scorer(pairs).collate(pairs)
    assert (batch.ids[::2] == batch.ids[1::2]).all()
    table = batch[Concepts].table
    assert (table[::2] != table[1::2]).flatten(1).any(1).all()
    equal = _equal_captions(batch.ids, table)
    assert not equal[torch.arange(0, 40, 2), torch.arange(1, 40, 2)].any(), "twins are each other's negatives"
    flat = scorer(pairs, bracketing="chunks").collate(pairs)
    equal = _equal_captions(flat.ids, flat[Concepts].table)
    assert equal[torch.arange(0, 40, 2), torch.arange(1, 40, 2)].all(), "a flat reading cannot tell them apart"


@pytest.mark.parametrize(
    "kind, settings, told",
    (
        ("composer", {}, True),
        ("composer", {"bracketing": "random"}, True),  # other trees for the two, by chance
        ("composer", {"bracketing": "chunks"}, False),
        ("composer", {"prune": 1.0}, False),
        ("two_stream", {}, False),
        ("vse", {}, False),
    ),
)
def test_only_a_model_that_composes_along_a_tree_can_tell_twins_apart(pairs, kind, settings, told):
    asked = [question for question in quilt_questions(20, seed=1) if question.split.startswith("tree")]
    answers = evaluate_choices(scorer(pairs, kind, **settings), asked)
    assert (not answers.tied.all()) == told
    if not told:
        assert (answers.credit == 0.5).all()


def test_batches_of_a_run_hold_twins_where_trees_make_an_exchange(tmp_path):
    model = {"kind": "composer", "layers": 1, **TOWERS}
    train = {"batch_size": 4, "exchanges": 1.0}
    method = {"name": "composer", "args": {"steps": 2}}
    config = {"data": {"name": "quilts", "args": {"n": 24}}, "method": method, "model": model, "seed": 0}
    run = prepare(tmp_path / "tree", {**config, "train": train | {"exchanged": "tree"}})
    loader = make_trainer(run, "cpu", progress=False).loader
    pairs = read("quilts", n=24)
    for position in range(5):
        for one, other in loader.indices(position).reshape(-1, 2):
            assert pairs[one].caption.split() == pairs[other].caption.split() and pairs[one].tree != pairs[other].tree
    refused = prepare(tmp_path / "order", {**config, "train": train})
    with pytest.raises(ValueError, match="none of 24 captions has the words of another one in another order"):
        make_trainer(refused, "cpu", progress=False)


def test_every_arm_is_asked_both_kinds_of_question_at_every_height(smoke):
    run = smoke(CONTROL)
    assert run.good, run.text
    result = Result.read(run.folder)
    table = rows_table(result.rows)
    asked = table[table.metric == "coin_accuracy"]
    assert set(asked.data) == {"quilts/tree", "quilts/swap"}
    assert {split for split in asked.split if split.startswith("tree")} == {f"tree, height {k}" for k in (2, 3, 4)}
    trees = asked[asked.data == "quilts/tree"].set_index("method").value
    assert (trees[["two streams", "noun phrases side by side"]] == 0.5).all(), "who reads words alone has to guess"
    right = table[(table.method == "true trees") & (table.metric == "accuracy") & (table.data == "quilts/tree")]
    assert set(right.value) == set(trees[["true trees"]]), "no ties: both ways to count agree"
    assert (
        "steps: nothing has been learned yet" in run.text
        or "nothing has been learned yet" in (run.folder / "report.ipynb").read_text()
    )


def test_the_two_declared_comparisons_are_corrected_and_no_other(tmp_path):
    measured = ROOT / "data" / "measured" / "tree_control.results.json"
    names = run_cells("tree_control", "wording = (", report_from=str(measured), out_dir=str(tmp_path))
    rivals = ("random trees", "noun phrases side by side")
    p_values = holm([names["compare"]("true trees", rival).p_t for rival in rivals])
    told = ", ".join(f"against {rival} p = {p:.2g}" for rival, p in zip(rivals, p_values))
    said = f"Corrected by Holm over the primary comparisons: {told}. All others describe."
    assert said in names["write_tree_verdict"]().told


@pytest.mark.parametrize(
    "given, said",
    (({"arms": ["oak"]}, "arms: there is no 'oak'"), ({"patches": [2]}, "patches.0 should be greater than 2, not 2")),
)
def test_what_cannot_be_asked_is_refused_before_anything_is_trained(experiment, tmp_path, given, said):
    run = experiment(CONTROL, tmp_path, **given)
    assert not run.result.good and said in run.text
    assert not (tmp_path / "results.json").exists() or not json.loads((tmp_path / "results.json").read_text())["rows"]
