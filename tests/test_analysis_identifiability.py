"""Pseudo-optimal encoders are blind by construction; A-distances and gaps with known answers."""

import numpy as np
import pytest
import torch
from conftest import ROOT
from notebook_cells import run_cells
from sklearn.model_selection import GroupKFold

from complearn.analysis.identifiability import measures
from complearn.analysis.identifiability.measures import (
    COLOUR_NAMES,
    CaptionProbe,
    WorldProbe,
    _edit_vectors,
    _shared_scene,
    encoder_rows,
    gap_rows,
    separation_rows,
)
from complearn.analysis.identifiability.separation import (
    BlindScorer,
    _best_scale,
    a_distance,
    batch_similarities,
    contrastive_losses,
    edit_shift,
    held_out_losses,
    loss_gap,
    modality_gap,
    shift_effect,
    text_groups,
)
from complearn.core.results import Result
from complearn.core.seeds import rng
from complearn.data.fixtures.specimens import SUGARCREPE_TEXTS
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.data.worlds.world import world_from
from complearn.evaluation.tasks.choices import evaluate_choices
from complearn.language.edits.scenes import edit_statement
from complearn.language.readings import Reading, _all_orders, _find_atoms, _put_atoms, blind_readings, world_words
from complearn.language.scenes.propositions import truth
from complearn.language.scenes.realise import sample_pair
from complearn.models.dual import build_model
from complearn.models.registry import load_model, save_model
from complearn.models.scoring import encode_all
from complearn.training.methods.scales import SCALES
from complearn.training.runs.launch import launch
from complearn.training.runs.study import Study

COLOURS = ["red", "green", "blue", "yellow", "purple", "orange", "cyan", "pink"]
WORLD = {"preset": "small", "shapes": 4, "colours": 4, "n_train": 64, "n_test": 64, "kinds": ["relation"], "size": 16}


@pytest.fixture(scope="module")
def made():
    """A world, an untrained model of it, its words and its blind scorers."""
    world = world_from(WORLD)
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    model = build_model({"vision": tower | {"patch": 8}, "text": tower}, WordTokenizer.fit(world.captions()))
    words = world_words(world.config.scenes())
    return world, model, words, {name: BlindScorer(model, read) for name, read in blind_readings(words).items()}


def permuted(caption, words, draw):
    spans = _find_atoms(caption, words)
    atoms = [caption[slice(*span)] for span in spans]
    return _put_atoms(caption, spans, [atoms[i] for i in rng(draw, "permute").permutation(len(atoms))])


def test_the_order_blind_encoder_is_equal_on_a_thousand_permuted_captions(made):
    world, model, words, scorers = made
    every = [word for forms in words.values() for word in forms]
    captions = [world.say(world.draw("test", k % 50)[1], 0).text for k in range(1000)]
    changed = [permuted(caption, every, k) for k, caption in enumerate(captions)]
    blind, original = (
        [encode_all(scorer, texts=texts).values for texts in (captions, changed)]
        for scorer in (scorers["blind to order"], model)
    )
    assert (blind[0] - blind[1]).abs().max() < 1e-6 < 1e-3 < (original[0] - original[1]).abs().max()
    assert sum(a != b for a, b in zip(captions, changed)) > 900


def test_captions_of_more_than_five_atoms_are_sorted_and_as_blind(made):
    """The other branch of the orders: six to twelve atoms, shuffled a thousand times, are one text."""
    _, model, words, scorers = made
    every = [word for forms in words.values() for word in forms]
    draw = rng(0, "long captions")

    def noun():
        return f"a {draw.choice(words['colour'])} {draw.choice(words['shape'])}"

    captions = [" and ".join([f"{noun()} left of {noun()}", *(noun() for _ in range(1 + k % 4))]) for k in range(1000)]
    assert {len(_find_atoms(caption, every)) for caption in captions} == {7, 9, 11, 13}
    changed = [permuted(caption, every, k) for k, caption in enumerate(captions)]
    assert sum(a != b for a, b in zip(captions, changed)) == 1000
    assert all(
        _all_orders(a, every) == _all_orders(b, every) and len(_all_orders(a, every)) == 1
        for a, b in zip(captions, changed)
    )
    some = slice(0, 100)
    vectors = [encode_all(scorers["blind to order"], texts=texts[some]).values for texts in (captions, changed)]
    assert (vectors[0] - vectors[1]).abs().max() < 1e-6


def test_it_is_the_mean_over_all_orders_and_of_many_atoms_the_sorted_text(made):
    _, model, words, scorers = made
    every = [word for forms in words.values() for word in forms]
    caption = "a red circle left of a blue square"
    naive = encode_all(model, texts=_all_orders(caption, every)).values.double().mean(0)
    assert torch.allclose(
        encode_all(scorers["blind to order"], texts=[caption]).values[0].double(), naive / naive.norm(), atol=1e-6
    )
    long = "a red circle and a blue square and a red square and a blue circle"
    assert (
        _all_orders(long, every) == _all_orders(permuted(long, every, 3), every) and len(_all_orders(long, every)) == 1
    )


def test_each_encoder_fails_where_it_is_blind_with_every_pair_tied(made):
    world, model, _, _ = made
    rows = encoder_rows(
        model, WorldProbe(world), {"method": "clip", "seed": 0, "phase": None, "step": 0}, n=12, batch=32, most=64
    )
    cells = {(line["method"], line["split"]): line for line in rows if line["metric"] == "accuracy"}
    blind = [
        ("order", "swap_att"),
        ("order", "swap_obj"),
        ("colour", "replace_att"),
        ("colour", "replace_colour"),
        ("colour", "swap_att"),
        ("added colour", "replace_att"),
        ("added colour", "add_colour"),
    ]
    for name, split in blind:
        line = cells[f"clip, blind to {name}", split]
        assert (line["value"], line["ties"]) == (0, 1), (name, split)
    assert cells["clip, original", "swap_att"]["ties"] < 1 and cells["clip, blind to order", "replace_att"]["ties"] < 1
    gaps = {(line["method"], line["split"]): line["value"] for line in rows if line["metric"] == "loss_gap"}
    assert len(gaps) == 8
    assert all(gaps["clip, original", split] == 0 for split in ("trained temperature", "best temperature"))
    assert cells["clip, blind to colour", "add_colour"]["ties"] < 1
    assert cells["clip, original", "add_colour"]["ties"] < 1


def naive_loss(model, pairs, scale, texts=None):
    """Pair by pair, the captions' vectors given or encoded."""
    images = encode_all(model, images=[pair.image for pair in pairs]).values.double()
    texts = encode_all(model, texts=[pair.caption for pair in pairs]).values.double() if texts is None else texts
    total = 0.0
    for i in range(len(pairs)):
        free = [j for j in range(len(pairs)) if j == i or pairs[j].caption != pairs[i].caption]
        rows, columns = (
            torch.stack([scale * (a[i] @ b[j]) for j in free]) for a, b in ((images, texts), (texts, images))
        )
        total -= 2 * scale * (images[i] @ texts[i]) - torch.logsumexp(rows, 0) - torch.logsumexp(columns, 0)
    return total.item() / (2 * len(pairs))


def test_the_gap_of_a_blind_encoder_is_the_difference_of_naive_losses(made):
    world, model, words, scorers = made
    place = {"method": "clip", "seed": 0, "phase": None, "step": 0}
    pairs = world.test[:24]
    probe = WorldProbe(world)
    probe.bench = lambda n: {}
    probe.pairs = pairs
    rows = encoder_rows(model, probe, place, batch=12, most=24)
    value = {(line["method"], line["split"], line["metric"]): line["value"] for line in rows}
    every = [word for forms in words.values() for word in forms]
    scale = float(model.logit_scale.exp().detach())
    means = [encode_all(model, texts=_all_orders(pair.caption, every)).values.double().mean(0) for pair in pairs]
    blind = torch.stack([mean / mean.norm() for mean in means])
    halves = [slice(0, 12), slice(12, 24)]
    trained = [[naive_loss(model, pairs[half], scale, texts) for half in halves] for texts in (None, None)]
    trained[1] = [naive_loss(model, pairs[half], scale, blind[half]) for half in halves]
    assert value["clip, blind to order", "trained temperature", "contrastive_loss"] == pytest.approx(
        np.mean(trained[1]), abs=1e-5
    )
    gap = np.mean(np.subtract(trained[1], trained[0]))
    assert value["clip, blind to order", "trained temperature", "loss_gap"] == pytest.approx(gap, abs=1e-5)
    best = [_best_scale(batch_similarities(scorer, pairs[:12], 12)) for scorer in (model, scorers["blind to order"])]
    gap = naive_loss(model, pairs[halves[1]], best[1], blind[halves[1]]) - naive_loss(model, pairs[halves[1]], best[0])
    assert value["clip, blind to order", "best temperature", "loss_gap"] == pytest.approx(gap, abs=1e-5)


def test_the_best_temperature_is_found_on_other_batches_than_the_loss():
    draw = torch.Generator().manual_seed(0)
    tables = torch.rand(4, 6, 6, generator=draw)
    other = torch.cat([tables[:2], torch.rand(2, 6, 6, generator=draw)])
    assert torch.equal(held_out_losses(tables), contrastive_losses(tables[2:], _best_scale(tables[:2])))
    # the same temperature
    assert torch.equal(held_out_losses(other), contrastive_losses(other[2:], _best_scale(tables[:2])))
    with pytest.raises(ValueError, match="one batch cannot be halved"):
        held_out_losses(tables[:1])


def test_questions_about_colour_differ_in_one_colour(made):
    world, _, words, _ = made
    probe = WorldProbe(world)
    colours = words["colour"]

    def without(text):
        return " ".join(word for word in text.split() if word not in colours).replace("an ", "a ")

    def seen(text):
        return sorted(word for word in text.split() if word in colours)

    for operator, more in (("replace_att", 0), ("add_att", 1)):
        edits = probe.colour_edits(operator, 8)
        assert len(edits) == 8 and edits == probe.colour_edits(operator, 8)[:8]
        for edit in edits:
            assert without(edit.caption) == without(edit.edit)
            assert len(seen(edit.edit)) == len(seen(edit.caption)) + more
    bench = probe.bench(4)
    assert {item.split for item in bench["generated/colours"].choices} == {"replace_colour", "add_colour"}
    one = WorldProbe(world_from({**WORLD, "colours": 1}))
    assert one.colour_edits("add_att", 2) == one.colour_edits("replace_att", 2) == []
    assert "generated/colours" not in one.bench(2)
    some = WorldProbe(world_from({**WORLD, "mention": [0, 0, 0.5]}))
    assert some.colour_edits("add_att", 4)


def components(pairs):
    """Naive connected components: sets that are merged while two have a text in common."""
    sets = [set(pair) for pair in pairs]
    while True:
        clash = next(((a, b) for a in range(len(sets)) for b in range(a) if sets[a] & sets[b]), None)
        if clash is None:
            return [next(k for k, members in enumerate(sets) if pair[0] in members) for pair in pairs]
        sets[clash[1]] |= sets.pop(clash[0])


def test_no_text_is_in_two_folds(made):
    world, model, _, _ = made
    draw = np.random.default_rng(0)
    for texts, number in ((9, 12), (40, 25), (200, 60)):
        pairs = [tuple(f"text {k}" for k in draw.choice(texts, 2, replace=False)) for _ in range(number)]
        groups = text_groups(pairs)
        naive = components(pairs)
        assert len(set(zip(groups, naive))) == len(set(groups)) == len(set(naive))
    texts = [tuple(edit[:2]) for edit in WorldProbe(world).edits("replace_att", 60)]
    groups = np.array(text_groups(texts))
    assert len(set(groups.tolist())) < len({frozenset(pair) for pair in texts})  # some hang together by way of others
    if len(set(groups.tolist())) >= 5:
        for train, test in GroupKFold(5).split(groups, groups=groups):
            train, test = ({text for k in part for text in texts[k]} for part in (train, test))
            assert train.isdisjoint(test)


def test_an_operator_whose_texts_all_hang_together_is_left_out(made):
    world, model, _, _ = made
    probe = WorldProbe(world)
    chain = probe.edits("swap_att", 1)[0]
    probe.edits = lambda operator, n: [chain._replace(caption=f"a {k}", edit=f"a {k + 1}") for k in range(40)]
    assert _edit_vectors(model, probe, "swap_att", 40) is None
    place = {"method": "clip", "seed": 0, "phase": None, "step": 0}
    assert separation_rows(model, probe, place, 40, ["swap_att"]) == gap_rows(model, probe, place, n=40) == []


@pytest.mark.parametrize("operator", ["swap_att", "replace_obj"])
def test_an_edit_goes_both_ways_round_so_that_words_alone_separate_nothing(made, monkeypatch, operator):
    world, model, _, _ = made
    probe = WorldProbe(world)
    place = {"method": "clip", "seed": 0, "phase": None, "step": 0}
    seen = []

    def keep(fits, wrong, groups):
        return seen.append((fits, wrong, groups)) or a_distance(fits, wrong, groups)

    monkeypatch.setattr(measures, "a_distance", keep)
    rows = separation_rows(model, probe, place, 30, [operator])
    vectors, ((fits, wrong, groups),) = _edit_vectors(model, probe, operator, 30), seen
    images, turned, captions, edits = (vectors[name] for name in ("images", "edit_images", "captions", "edits"))
    n = len(captions)
    assert fits.shape == wrong.shape == (2 * n, captions.shape[1]) and groups == vectors["groups"] * 2
    for k in (0, n - 1):
        assert np.allclose(fits[k], images[k] * captions[k]) and np.allclose(wrong[k], images[k] * edits[k])
        assert np.allclose(fits[n + k], turned[k] * edits[k]) and np.allclose(wrong[n + k], turned[k] * captions[k])
    assert [(line["data"], line["metric"]) for line in rows] == [("pairs", "a_distance"), ("texts", "edit_shift")]
    assert rows[0]["n"] == n
    if operator == "swap_att":  # to an encoder that is blind to order caption and edit are one
        blind = separation_rows(BlindScorer(model, probe.readings["blind to order"]), probe, place, 30, [operator])
        assert (blind[0]["value"], blind[0]["low"], blind[0]["high"]) == (0, 0, 0)


def test_the_loss_on_pairs_is_the_naive_one(made):
    world, model, _, _ = made
    pairs = world.test[:8]
    image, text = (
        encode_all(model, **side).values
        for side in ({"images": [p.image for p in pairs]}, {"texts": [p.caption for p in pairs]})
    )
    logits = 5.0 * (image @ text.T).double()
    total = 0.0
    for i in range(8):
        free = [j for j in range(8) if j == i or pairs[j].caption != pairs[i].caption]
        total -= 2 * logits[i, i] - torch.logsumexp(logits[i, free], 0) - torch.logsumexp(logits[free, i], 0)
    table = batch_similarities(model, pairs, 8)
    losses = contrastive_losses(table, 5.0)
    assert losses.item() == pytest.approx(total.item() / 16, abs=1e-5)
    best = _best_scale(table)
    grid = np.geomspace(0.1, 1000, 200)
    assert (
        contrastive_losses(table, best).item()
        <= min(contrastive_losses(table, float(scale)).item() for scale in grid) + 1e-4
    )
    assert loss_gap(losses, losses)["gap"] == 0
    with pytest.raises(ValueError, match="8 pairs do not fill a batch of 9"):
        batch_similarities(model, pairs, 9)


def test_a_caption_and_its_edit_are_in_one_fold():
    draw = np.random.default_rng(0)
    captions = draw.normal(size=(60, 30))
    twin = captions + 1e-3 * draw.normal(size=captions.shape)
    assert a_distance(captions, twin)["value"] < 0.4  # nothing but who is whose twin could be learned
    assert a_distance(captions, captions + 5)["value"] > 1.9
    doubled = a_distance(
        np.tile(captions, (2, 1)), np.tile(captions + 5, (2, 1)), groups=[str(k % 60) for k in range(120)]
    )
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
    effect = shift_effect(images, texts, np.roll(texts, 1, 0), 10.0, shifts=(0.0, 1.0))
    assert effect.gap[1] < 0.2 < effect.gap[0] and effect.accuracy[1] > 0.9 and effect.loss[1] < effect.loss[0]


def unit_rows(draw, *shape):
    vectors = draw.normal(size=shape)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.mark.parametrize("moved", ["both", "images", "texts"])
def test_a_shift_is_the_naive_one_and_equal_captions_are_no_rivals(moved):
    draw = np.random.default_rng(2)
    images, texts, edits, others = unit_rows(draw, 4, 12, 5)
    captions = [f"text {k // 2}" for k in range(12)]
    texts[1::2] = texts[::2]  # twins
    table = shift_effect(images, texts, edits, 7.0, others, captions, moved, (0.0, 0.8))
    gap = images.mean(0) - texts.mean(0)
    norm = np.linalg.norm
    for line in table.to_dict("records"):
        by_image = -line["shift"] * gap * {"both": 0.5, "images": 1, "texts": 0}[moved]
        by_text = line["shift"] * gap * {"both": 0.5, "images": 0, "texts": 1}[moved]

        def score(image, text, by_image=by_image, by_text=by_text):
            return ((image + by_image) @ (text + by_text)) / norm(image + by_image) / norm(text + by_text)

        total = 0.0
        for i in range(12):
            free = [j for j in range(12) if j == i or captions[j] != captions[i]]
            total += np.log(sum(np.exp(7 * score(images[i], texts[j])) for j in free)) - 7 * score(images[i], texts[i])
            total += np.log(sum(np.exp(7 * score(images[j], texts[i])) for j in free)) - 7 * score(images[i], texts[i])
        assert line["loss"] == pytest.approx(total / 24)
        assert line["accuracy"] == np.mean([score(i, t) > score(i, e) + 1e-6 for i, t, e in zip(images, texts, edits)])
        assert line["image_accuracy"] == np.mean(
            [score(i, t) > score(o, t) + 1e-6 for i, t, o in zip(images, texts, others)]
        )


def test_a_shift_of_texts_cannot_change_the_choice_of_a_caption_and_one_of_images_can():
    """Right and wrong captions as far along the gap as each other keep equal lengths, so the algebra is exact."""
    draw = np.random.default_rng(3)
    half = unit_rows(draw, 200, 4)

    def side(first, rest):
        return np.concatenate([np.full((len(rest), 1), first), np.sqrt(1 - first**2) * rest], 1)

    # the mean lies on the first axis, and so does the gap
    def both(first):
        return side(first, np.concatenate([half, -half]))

    images = both(0.5)
    texts = both(-0.5)
    edits = side(-0.5, unit_rows(draw, 400, 4))
    tables = {
        moved: shift_effect(images, texts, edits, 5.0, side(0.5, unit_rows(draw, 400, 4)), None, moved)
        for moved in ("images", "texts")
    }
    assert tables["texts"].accuracy.nunique() == tables["images"].image_accuracy.nunique() == 1
    uneven = unit_rows(draw, 400, 5)  # wrong captions nearer to the images, or farther
    assert shift_effect(images, texts, uneven, 5.0, None, None, "images", (0.0, 1.5)).accuracy.nunique() == 2


def test_gap_rows_ask_for_captions_and_for_images_and_say_what_was_moved(made):
    world, model, _, _ = made
    place = {"method": "clip", "seed": 0, "phase": None, "step": 0}
    probe = WorldProbe(world)
    rows = gap_rows(model, probe, place, n=30)
    metrics = {(line["split"], line["metric"]) for line in rows}
    for suffix in ("", ", images alone", ", texts alone"):
        assert {(f"shift 0.5{suffix}", name) for name in ("gap", "loss", "accuracy", "image_accuracy")} <= metrics
    vectors = _edit_vectors(model, probe, "swap_att", 30)
    naive = ((vectors["captions"] * (vectors["images"] - vectors["edit_images"])).sum(1) > 1e-6).mean()
    value = {(line["split"], line["metric"]): line["value"] for line in rows}
    assert value["shift 0", "image_accuracy"] == value["shift 0, texts alone", "image_accuracy"] == naive
    for edit in probe.edits("swap_att", 3):
        assert edit.image.graph != edit.edit_image.graph


@pytest.mark.parametrize("blind_to", ["order", "class", "additions"])
def test_a_model_that_is_trained_blind_stays_blind_when_it_is_saved_and_read(blind_to, tmp_path):
    reading = {"blind_to": blind_to} | ({} if blind_to == "order" else {"words": COLOURS})
    world = world_from(WORLD)
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 1}
    source = {"name": "generated", "args": WORLD}
    table = {"blind": {"method": "clip", "model": {"reading": reading}}}
    model = {"vision": tower | {"patch": 8}, "text": tower}
    study = Study(tmp_path, table, [0], source, SCALES["smoke"], 3, model, {"batch_size": 8, "precision": "fp32"})
    launch(study.run("blind", 0).path, "cpu", progress=False)
    save_model(study.snapshot("blind", 0).model(), tmp_path / "saved")
    again = load_model(tmp_path / "saved")
    pairs = {"order": ("a red circle left of a blue square", "a blue square left of a red circle")}
    pairs["class"] = ("a red circle left of a blue square", "a red circle left of a green square")
    pairs["additions"] = ("a circle left of a blue square", "a red circle left of a square")
    seen, other = (encode_all(again, texts=list(texts)).values for texts in (pairs[blind_to], ("a square", "a circle")))
    assert seen[0].equal(seen[1]) and not other[0].equal(other[1])
    rows = encoder_rows(
        again, WorldProbe(world), {"method": "blind", "seed": 0, "phase": None, "step": 3}, n=8, batch=32, most=64
    )
    assert {line["method"] for line in rows} == {"blind"}
    splits = {line["split"]: line for line in rows if line["metric"] == "accuracy"}
    blind_split = {"order": "swap_obj", "class": "replace_colour", "additions": "add_colour"}[blind_to]
    assert (splits[blind_split]["value"], splits[blind_split]["ties"]) == (0, 1)


def test_a_reading_of_a_class_asks_for_its_words_and_knows_what_it_takes():
    with pytest.raises(ValueError, match="blind to class needs the words of the class; give it words"):
        build_model({"reading": {"blind_to": "class"}}, WordTokenizer.fit(["a dog"]))
    assert Reading("order")("An orange square!") == Reading("order")("a square orange") == "a orange square"
    assert Reading("class", ("red", "blue"))("Red on blue") == "blue on blue"


def test_the_verdict_on_photographs_tells_their_own_steps(tmp_path):
    """Steps are those of the encoders: not of the other study, nor of the linear world."""
    files = [ROOT / "data" / "measured" / f"identifiability{tail}.results.json" for tail in ("", "_flickr8k")]
    names = run_cells("identifiability", "def example_of_edits", report_from=str(files[0]), out_dir=str(tmp_path))
    told = ["\n".join(names["write_blind_verdict"](Result.read(file)).limits) for file in files]
    assert "a run of 2,000 steps" in told[0] and "a run of 400 steps" in told[1]


def test_captions_with_photographs_are_probed_as_worlds_are(made):
    _, model, _, _ = made
    said = [text for text, _ in SUGARCREPE_TEXTS.values()]
    grey = np.full((16, 16, 3), 128, np.uint8)
    pairs = [Pair(grey, text, f"{k}", f"photo {k // 2}") for k, text in enumerate(said)]
    probe = CaptionProbe(pairs)
    assert len(probe.pairs) == len({pair.image_id for pair in pairs}) < len(pairs)
    edits = probe.edits("replace_obj", 3)
    assert 0 < len(edits) <= 3 and all(edit.caption in said and edit.edit != edit.caption for edit in edits)
    assert edits == probe.edits("replace_obj", 3)
    bench = probe.bench(2)
    assert all(item.captions[0] in said for item in bench["edits"].choices)
    blind = BlindScorer(model, probe.readings["blind to order"])
    vectors = encode_all(blind, texts=["Two dogs chase an orange cat", "an orange cat chase two dogs"]).values
    assert torch.allclose(vectors[0], vectors[1], atol=1e-6)


def test_questions_about_colour_on_photographs_tie_for_a_blind_encoder(made):
    _, model, _, _ = made
    captions = ["A red ball lies near a small dog", "a man in a blue shirt holds a ball", "An orange cat sits on a "
                                                                                          "large box",
                "a woman rides a brown horse", "a dog runs on a beach", "a boy holds a ball and a stick"]  # fmt: skip
    grey = np.full((16, 16, 3), 128, np.uint8)
    probe = CaptionProbe([Pair(grey, text, f"{k}", f"photo {k}") for k, text in enumerate(captions)])

    def without(text):
        return " ".join(word for word in text.lower().split() if word not in COLOUR_NAMES).replace("an ", "a ")

    for split, operator, more, name in (
        ("replace_colour", "replace_att", 0, "colour"),
        ("add_colour", "add_att", 1, "added colour"),
    ):
        edits = probe.colour_edits(operator, 6)
        assert edits
        assert all(without(edit.caption) == without(edit.edit) and edit.caption != edit.edit for edit in edits)
        assert all(len(edit.edit.split()) == len(edit.caption.split()) + more for edit in edits)
        assert [item.captions for item in probe.bench(6)["colours"].choices if item.split == split] == [
            edit[:2] for edit in edits
        ]
        items = evaluate_choices(
            BlindScorer(model, probe.readings[f"blind to {name}"]), probe.bench(6)["colours"].choices
        )
        assert items[items.split == split].tied.all() and not items[items.split == split].right.any()


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
            scene = _shared_scene(edit, config, draw)
            made.append(scene is not None)
            assert scene is None or (truth(edit.source, scene) is True and truth(edit.caption, scene) is True)
            assert truth(edit.caption, edit.source_graph) is False  # it is an edit at all
        assert made and sum(made) / len(made) == least  # "no red circle" beside "a red circle" can never be


def test_relations_and_numbers_of_a_varied_world_are_atoms():
    """Their order is lost in each wording; what is one word of a small world stays as it was."""
    words = world_words(world_from("rich").config.scenes())
    read = blind_readings(words)["blind to order"]
    for left, right in (
        (
            "a red circle higher than a blue square within a star",
            "a red circle within a blue square higher than a star",
        ),
        ("two circles in contact with three crosses", "three circles in contact with two crosses"),
        ("a circle with stripes is above a square with dots", "a circle with dots is above a square with stripes"),
    ):
        assert read(left) == read(right)
