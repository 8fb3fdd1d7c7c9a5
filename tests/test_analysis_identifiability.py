"""Pseudo-optimal encoders are blind by construction; A-distances, gaps and linear worlds with known answers."""

import numpy as np
import pytest
import torch

from complearn.analysis.identifiability.encoders import BlindScorer, batch_similarities, best_scale, contrastive_losses, loss_gap
from complearn.analysis.identifiability.linear_world import LinearWorld, identifiability
from complearn.analysis.identifiability.measures import encoder_rows
from complearn.analysis.identifiability.probes import CaptionProbe, WorldProbe, shared_scene
from complearn.analysis.identifiability.separation import a_distance, edit_shift, modality_gap, shift_effect
from complearn.core.seeds import rng
from complearn.data.fixtures.negatives import SUGARCREPE_TEXTS
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.language.edits.scenes import edit_statement
from complearn.language.readings import Reading, all_orders, blind_readings, find_atoms, put_atoms, world_words
from complearn.language.scenes.propositions import truth
from complearn.language.scenes.realise import sample_pair
from complearn.models.dual import build_model
from complearn.models.saving import load_model, save_model
from complearn.models.scoring import encode_all
from complearn.training.methods.scales import SCALES
from complearn.training.runs.study import Study

COLOURS = ["red", "green", "blue", "yellow", "purple", "orange", "cyan", "pink"]
WORLD = {"preset": "small", "shapes": 4, "colours": 4, "n_train": 64, "n_test": 64, "kinds": ["relation"], "size": 16}


@pytest.fixture(scope="module")
def made():
    """A world, an untrained model of it, its words and its blind scorers."""
    world, tower = world_from(WORLD), {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    model = build_model({"vision": tower | {"patch": 8}, "text": tower}, WordTokenizer.fit(world.captions()))
    words = world_words(world.config.scenes())
    return world, model, words, {name: BlindScorer(model, read) for name, read in blind_readings(words).items()}


def permuted(caption, words, draw):
    spans = find_atoms(caption, words)
    atoms = [caption[slice(*span)] for span in spans]
    return put_atoms(caption, spans, [atoms[i] for i in rng(draw, "permute").permutation(len(atoms))])


def test_the_order_blind_encoder_is_equal_on_a_thousand_permuted_captions(made):
    world, model, words, scorers = made
    every = [word for forms in words.values() for word in forms]
    captions = [world.say(world.draw("test", k % 50)[1], 0).text for k in range(1000)]
    changed = [permuted(caption, every, k) for k, caption in enumerate(captions)]
    blind, original = (
        [encode_all(scorer, texts=texts).values for texts in (captions, changed)] for scorer in (scorers["blind to order"], model)
    )
    assert (blind[0] - blind[1]).abs().max() < 1e-6 < 1e-3 < (original[0] - original[1]).abs().max()
    assert sum(a != b for a, b in zip(captions, changed)) > 900


def test_it_is_the_mean_over_all_orders_and_of_many_atoms_the_sorted_text(made):
    _, model, words, scorers = made
    every = [word for forms in words.values() for word in forms]
    caption = "a red circle left of a blue square"
    naive = encode_all(model, texts=all_orders(caption, every)).values.double().mean(0)
    assert torch.allclose(encode_all(scorers["blind to order"], texts=[caption]).values[0].double(), naive / naive.norm(), atol=1e-6)
    long = "a red circle and a blue square and a red square and a blue circle"
    assert all_orders(long, every) == all_orders(permuted(long, every, 3), every) and len(all_orders(long, every)) == 1


def test_each_encoder_fails_where_it_is_blind_with_every_pair_tied(made):
    world, model, _, _ = made
    rows = encoder_rows(model, WorldProbe(world), {"method": "clip", "seed": 0, "phase": None, "step": 0}, n=12, batch=32, most=64)
    cells = {(line["method"], line["split"]): line for line in rows if line["metric"] == "accuracy"}
    blind = [
        ("order", "swap_att"),
        ("order", "swap_obj"),
        ("colour", "replace_att"),
        ("colour", "swap_att"),
        ("added colour", "replace_att"),
    ]
    for name, split in blind:
        line = cells[f"clip, blind to {name}", split]
        assert (line["value"], line["ties"]) == (0, 1), (name, split)
    assert cells["clip, original", "swap_att"]["ties"] < 1 and cells["clip, blind to order", "replace_att"]["ties"] < 1
    gaps = {(line["method"], line["split"]): line["value"] for line in rows if line["metric"] == "loss_gap"}
    assert len(gaps) == 8 and all(gaps["clip, original", split] == 0 for split in ("trained temperature", "best temperature"))


def test_the_loss_on_pairs_is_the_naive_one(made):
    world, model, _, _ = made
    pairs = world.test[:8]
    image, text = (
        encode_all(model, **side).values for side in ({"images": [p.image for p in pairs]}, {"texts": [p.caption for p in pairs]})
    )
    logits, total = 5.0 * (image @ text.T).double(), 0.0
    for i in range(8):
        free = [j for j in range(8) if j == i or pairs[j].caption != pairs[i].caption]
        total -= 2 * logits[i, i] - torch.logsumexp(logits[i, free], 0) - torch.logsumexp(logits[free, i], 0)
    table = batch_similarities(model, pairs, 8)
    losses = contrastive_losses(table, 5.0)
    assert losses.item() == pytest.approx(total.item() / 16, abs=1e-5)
    best, grid = best_scale(table), np.geomspace(0.1, 1000, 200)
    assert contrastive_losses(table, best).item() <= min(contrastive_losses(table, float(scale)).item() for scale in grid) + 1e-4
    assert loss_gap(losses, losses)["gap"] == 0
    with pytest.raises(ValueError, match="8 pairs do not fill a batch of 9"):
        batch_similarities(model, pairs, 9)


def test_a_caption_and_its_edit_are_in_one_fold():
    draw = np.random.default_rng(0)
    captions = draw.normal(size=(60, 30))
    twin = captions + 1e-3 * draw.normal(size=captions.shape)
    assert a_distance(captions, twin)["value"] < 0.4  # nothing but who is whose twin could be learned
    assert a_distance(captions, captions + 5)["value"] > 1.9
    doubled = a_distance(np.tile(captions, (2, 1)), np.tile(captions + 5, (2, 1)), groups=[str(k % 60) for k in range(120)])
    assert doubled["n"] == 120 and doubled["low"] <= doubled["value"] <= doubled["high"]
    with pytest.raises(ValueError, match="3 groups do not make 5 folds"):
        a_distance(captions[:3], twin[:3])
    unit = captions / np.linalg.norm(captions, axis=1, keepdims=True)
    assert edit_shift(unit, unit) == pytest.approx(0) and edit_shift(unit, np.roll(unit, 1, 0)) == pytest.approx(1)


def test_the_gap_closes_when_it_is_shifted_away():
    draw = np.random.default_rng(1)
    images = draw.normal(size=(100, 6)) * 0.1 + np.array([1, 0, 0, 0, 0, 0])
    texts = images - np.array([2, 0, 0, 0, 0, 0])
    images, texts = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (images, texts))
    assert modality_gap(images, texts)["separability"] == 1 and modality_gap(images, images)["distance"] == 0
    effect = shift_effect(images, texts, np.roll(texts, 1, 0), 10.0, (0.0, 1.0))
    assert effect.gap[1] < 0.2 < effect.gap[0] and effect.accuracy[1] > 0.9 and effect.loss[1] < effect.loss[0]


@pytest.mark.slow
def test_training_finds_the_shared_block_and_no_noise():
    before, after = identifiability(LinearWorld(seed=3), 0), identifiability(LinearWorld(seed=3), 200)
    assert after["loss"] < before["loss"] and after["z_inv from text"] > 0.95 and after["z_inv from image"] > 0.95
    assert abs(after["token noise from text"]) < 0.05 and abs(after["image's own part from image"]) < 0.05


@pytest.mark.parametrize("blind_to", ["order", "class", "additions"])
def test_a_model_that_is_trained_blind_stays_blind_when_it_is_saved_and_read(blind_to, tmp_path):
    reading = {"blind_to": blind_to} | ({} if blind_to == "order" else {"words": COLOURS})
    world, tower = world_from(WORLD), {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    source = {"name": "generated", "args": WORLD}
    table = {"blind": {"method": "clip", "model": {"reading": reading}}}
    model = {"vision": tower | {"patch": 8}, "text": tower}
    study = Study(tmp_path, table, [0], source, SCALES["smoke"], 3, model, {"batch_size": 8, "precision": "fp32"})
    study.fit("cpu")
    save_model(study.snapshot("blind", 0).model(), tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    pairs = {"order": ("a red circle left of a blue square", "a blue square left of a red circle")}
    pairs["class"] = ("a red circle left of a blue square", "a red circle left of a green square")
    pairs["additions"] = ("a circle left of a blue square", "a red circle left of a square")
    seen, other = (encode_all(again, texts=list(texts)).values for texts in (pairs[blind_to], ("a square", "a circle")))
    assert seen[0].equal(seen[1]) and not other[0].equal(other[1])
    rows = encoder_rows(again, WorldProbe(world), {"method": "blind", "seed": 0, "phase": None, "step": 3}, n=8, batch=32, most=32)
    assert {line["method"] for line in rows} == {"blind"}
    splits = {line["split"]: line for line in rows if line["metric"] == "accuracy"}
    blind_split = {"order": "swap_obj", "class": "replace_att", "additions": "replace_att"}[blind_to]
    assert (splits[blind_split]["value"], splits[blind_split]["ties"]) == (0, 1)


def test_a_reading_of_a_class_asks_for_its_words_and_knows_what_it_takes():
    with pytest.raises(ValueError, match="blind to class needs the words of the class; give it words"):
        build_model({"reading": {"blind_to": "class"}}, WordTokenizer.fit(["a dog"]))
    assert Reading("order")("An orange square!") == Reading("order")("a square orange") == "a orange square"
    assert Reading("class", ("red", "blue"))("Red on blue") == "blue on blue"


def test_captions_with_photographs_are_probed_as_worlds_are(made):
    _, model, _, _ = made
    said = [text for text, _ in SUGARCREPE_TEXTS.values()]
    grey = np.full((16, 16, 3), 128, np.uint8)
    pairs = [Pair(grey, text, f"{k}", f"photo {k // 2}") for k, text in enumerate(said)]
    probe = CaptionProbe(pairs)
    assert len(probe.pairs) == len({pair.image_id for pair in pairs}) < len(pairs)
    edits = probe.edits("replace_obj", 3)
    assert 0 < len(edits) <= 3 and all(caption in said and edit != caption for caption, edit, _ in edits)
    assert edits == probe.edits("replace_obj", 3)
    bench = probe.bench(2)
    assert all(item.captions[0] in said for item in bench["edits"].choices)
    blind = BlindScorer(model, probe.readings["blind to order"])
    vectors = encode_all(blind, texts=["Two dogs chase an orange cat", "an orange cat chase two dogs"]).values
    assert torch.allclose(vectors[0], vectors[1], atol=1e-6)


def test_a_scene_that_caption_and_edit_share_is_one_of_which_both_are_true():
    config = world_from({"preset": "middle", "n_train": 8, "n_test": 8}).config.scenes()
    for operator, least in (("add_obj", 1), ("add_att", 1), ("negate", 0)):
        made = []
        for k in range(30):
            draw = rng(1, operator, k)
            graph, said = sample_pair(config, draw)
            edit = edit_statement(operator, said, graph, draw, config, balanced=False)
            if edit is None:
                continue
            scene = shared_scene(edit, config, draw)
            made.append(scene is not None)
            assert scene is None or (truth(edit.source, scene) is True and truth(edit.caption, scene) is True)
            assert truth(edit.caption, edit.source_graph) is False  # it is an edit at all
        assert made and sum(made) / len(made) == least  # "no red circle" beside "a red circle" can never be
