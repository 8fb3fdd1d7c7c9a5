"""TripletCLIP against a naive loop, in parts and in two processes; negatives of several calls, with images, in batches
and in runs."""

import math
from dataclasses import replace

import pytest
import torch
import training_runs
from test_training_negatives import CONFIG, holds, negclip_config, scene, unit, world_tokenizer

from complearn.core.runs import Run
from complearn.core.seeds import rng
from complearn.data.negatives import (
    HardNegatives,
    NegativeImages,
    Negatives,
    _scene_numbers,
    may_hold,
    negative_caption,
    with_negatives,
)
from complearn.data.pairs import Collate, Pair
from complearn.data.worlds.world import world_from
from complearn.language.scenes.realise import sample_pair
from complearn.models.dual import build_model
from complearn.training.methods.clip import hard_negative_objective
from complearn.training.objectives.negclip import TripletCLIP
from complearn.training.runs.config import RunConfig
from complearn.training.runs.launch import launch, prepare

TRIPLET = {"name": "triplet_clip", "args": {"steps": 12, "ramp": 2}}


def wrong_scene(present):
    """`scene` of the tests of NegCLIP with images of the wrong captions, one of them of a scene in which a right
    caption may hold."""
    out, batch, _, world = scene()
    graphs = [sample_pair(CONFIG, rng(k, "image"))[0] if shown else None for k, shown in enumerate(present)]
    out.negative_image = unit(6, 5)
    scenes = torch.stack([torch.from_numpy(_scene_numbers(graph, CONFIG.relations)) for graph in graphs])
    shown = NegativeImages(torch.zeros(6, 3, 1, 1), torch.tensor(present).bool(), scenes)
    return out, batch.with_parts(shown), world, graphs


def naive_wrong_pairs(out, batch, world, graphs):
    """Both directions by loops, with `truth` for every pair."""
    images, texts, right = (side.detach().double() for side in (out.negative_image, out.negative, out.text))
    scale = float(out.scale)
    wrong, captions = batch[HardNegatives].numbers.T.tolist()
    ids = batch.image_ids.tolist()
    shown = batch[NegativeImages].present.tolist()
    total = 0.0
    queries = [i for i in range(6) if shown[i]]
    for i in queries:
        keys = [j for j in queries if j == i or (ids[j] != ids[i] and wrong[j] != wrong[i])]
        more = [j for j in range(6) if (j == i or ids[j] != ids[i]) and captions[j] != wrong[i]]
        more = [j for j in more if not holds(world["right"][j][1], graphs[i])]
        terms = [math.exp(scale * float(images[i] @ texts[j])) for j in keys] + [
            math.exp(scale * float(images[i] @ right[j])) for j in more
        ]
        total -= math.log(math.exp(scale * float(images[i] @ texts[i])) / sum(terms))
        total -= math.log(
            math.exp(scale * float(texts[i] @ images[i]))
            / sum(math.exp(scale * float(texts[i] @ images[j])) for j in keys)
        )
    return total / (2 * max(1, len(queries)))


@pytest.mark.parametrize("present", ((1, 1, 1, 1, 0, 1), (1, 0, 0, 1, 0, 0), (0, 0, 0, 0, 0, 0)))
def test_the_loss_of_wrong_pairs_is_the_naive_one(present):
    out, batch, world, graphs = wrong_scene(present)
    for name in ("negative_image", "negative", "text"):
        setattr(out, name, getattr(out, name).requires_grad_())
    measures = TripletCLIP(6, weight=0.5).compute_losses(out, None, batch)
    assert measures["triplet_loss"].item() == pytest.approx(
        0.5 * naive_wrong_pairs(out, batch, world, graphs), abs=1e-5
    )
    assert measures["with_negative_image"].item() == pytest.approx(sum(present) / 6)
    measures["triplet_loss"].backward()
    pushed = out.negative_image.grad.abs().sum(1) > 0
    assert pushed.tolist() == [bool(shown) for shown in present] and torch.isfinite(out.text.grad).all()


def test_wrong_pairs_are_compared_exactly_under_autocast():
    out, batch, *_ = wrong_scene((1, 1, 1, 1, 0, 1))
    plain = TripletCLIP(6).compute_losses(out, None, batch)
    with torch.autocast("cpu", torch.bfloat16):
        inside = TripletCLIP(6).compute_losses(out, None, batch)
    assert all(torch.equal(inside[name], value) for name, value in plain.items())


def test_equal_wrong_captions_and_photos_are_no_negatives_of_each_other():
    out, batch, world, graphs = wrong_scene((1, 1, 1, 1, 1, 1))
    plain = TripletCLIP(6).compute_losses(out, None, batch)["triplet_loss"]
    batch[HardNegatives].numbers[2, 0] = batch[HardNegatives].numbers[5, 0]
    masked = TripletCLIP(6).compute_losses(out, None, batch)["triplet_loss"]
    assert masked < plain and masked.item() == pytest.approx(naive_wrong_pairs(out, batch, world, graphs), abs=1e-5)


def test_without_images_of_wrong_captions_it_says_what_to_ask_for():
    out, batch, *_ = scene()
    out.negative_image = None
    with pytest.raises(ValueError, match='"images": true'):
        TripletCLIP(6).compute_losses(out, None, batch)
    model = build_model(training_runs.MODEL, world_tokenizer(world_from(training_runs.DATA["args"])))
    with pytest.raises(ValueError, match="no loss against hard negatives 'tripled' .did you mean 'triplet'"):
        hard_negative_objective(model, "tripled")
    with pytest.raises(ValueError, match="no loss 'triplet' key 'poll'"):
        hard_negative_objective(model, "triplet", poll=3)


# --- batches


WORLD = {"preset": "small", "shapes": 4, "colours": 4, "kinds": ["relation", "conjunction"], "n_train": 64, "size": 16}


@pytest.mark.parametrize("calls", (1, 2, 3))
def test_a_batch_has_wrong_captions_of_several_calls_and_their_images(calls):
    world = world_from(WORLD)

    def transform(images, draws):
        return torch.zeros(len(images), 3, 4, 4)

    collate = with_negatives(Collate(transform, world_tokenizer(world)), Negatives(calls=calls, images=True))
    pairs = world.train[:32]
    batch = collate(pairs, list(range(32)))
    hard = batch[HardNegatives]
    shown = batch[NegativeImages]
    assert torch.equal(hard.ids, collate(pairs, list(range(32)))[HardNegatives].ids)
    right = may_hold(hard.claims[:, 1], shown.scenes)
    assert not right.any() and not may_hold(hard.claims[:, 0], hard.scenes).any()
    assert may_hold(hard.claims[:, 0], shown.scenes).tolist() == shown.present.tolist()
    assert hard.present.float().mean() > 0.6 and shown.present.float().mean() > 0.6
    parts = batch.chunk(3)
    assert torch.equal(torch.cat([part[NegativeImages].images for part in parts]), shown.images)
    edits = [
        pair.negatives.edits[collate.tokenizer.decode(ids)]
        for pair, ids, has in zip(pairs, hard.ids, hard.present)
        if has
    ]
    assert {max(1, len(edit.calls)) for edit in edits} == {calls}


def test_a_caption_without_exchanges_has_the_negatives_of_other_operators():
    world = world_from(WORLD | {"split": "systematic", "disjoint": True})
    replaced = Negatives(operators=("replace_obj",))
    bare = [pair for pair in world.train if not len(pair.negatives) and pair.negatives.by_operator(replaced)]
    assert bare and all(negative_caption(pair, pair.caption, 0, replaced) for pair in bare)


def test_a_given_image_stands_beside_its_caption():
    import numpy as np

    grey = np.full((4, 4, 3), 9, np.uint8)
    pair = Pair(np.zeros((4, 4, 3), np.uint8), "a cat", "0", "0", negatives=("a dog",), negative_images={"a dog": grey})

    def first(images, draws):
        return torch.stack([torch.from_numpy(image[:1, :1]).permute(2, 0, 1).float() for image in images])

    collate = with_negatives(Collate(first, world_tokenizer(world_from(WORLD))), Negatives("given", images=True))
    batch = collate([pair, replace(pair, negative_images=None)], [0, 1])
    shown = batch[NegativeImages]
    assert shown.present.tolist() == [True, False] and shown.images[:, 0, 0, 0].tolist() == [9, 0]
    assert (shown.scenes == -1).all()


def test_settings_of_negatives_are_checked():
    with pytest.raises(ValueError, match="pair 7: 2 calls are composed for generated scenes alone"):
        negative_caption(
            Pair(None, "A cat and a man on a bench.", "7", "0"), "A cat and a man on a bench.", 0, Negatives(calls=2)
        )

    def config(negatives):
        return RunConfig.read(negclip_config(negatives=negatives)).train

    assert config("auto").negatives == config({"source": "auto"}).negatives == Negatives()
    assert config({"calls": 2, "operators": ["swap_att"]}).batches["negatives"]["calls"] == 2
    assert config(None).batches["negatives"] is None
    keys = (
        ("calls should be greater", {"calls": 0}),
        ("calls", {"cals": 2}),
        ("no operator 'swop'", {"operators": ["swop"]}),
    )
    for message, wrong in (*keys, ("no source of negatives 'all'", "all")):
        with pytest.raises(ValueError, match=message):
            config(wrong)


# --- runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    config = negclip_config(TRIPLET, negatives={"calls": 2, "images": True})
    return launch(prepare(tmp_path_factory.mktemp("whole") / "run", config).path, progress=False)


def steps_of(run):
    return [record for record in run.records() if record["kind"] == "step"]


@pytest.mark.slow
def test_a_run_with_images_of_negatives_trains_both_losses(whole):
    last = steps_of(whole)[-1]
    assert 0 < last["with_negative_image"] <= 1
    assert last["loss"] == pytest.approx(last["contrastive_loss"] + last["triplet_loss"], abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("train", ({"accumulate": 2}, {"processes": 2}))
def test_parts_and_processes_train_what_one_does(whole, tmp_path, train):
    from test_training_processes import torchrun

    run = prepare(tmp_path / "run", negclip_config(TRIPLET, negatives={"calls": 2, "images": True}, **train))
    if "processes" in train:
        torchrun("-m", "complearn.launch", run.path, "--quiet")
    else:
        launch(run.path, progress=False)
    losses = [[record["triplet_loss"] for record in steps_of(each)] for each in (Run.open(run.path), whole)]
    if "accumulate" in train:
        assert losses[0] == pytest.approx(losses[1], abs=5e-4)
    totals = [[record["loss"] for record in steps_of(each)] for each in (Run.open(run.path), whole)]
    assert totals[0] == pytest.approx(totals[1], abs=5e-4)


@pytest.mark.slow
def test_iterated_learning_takes_negatives_of_several_calls_by_one_parameter(tmp_path):
    args = {"warmup": 2, "distil": 2, "interact": 2, "generations": 1, "ramp": 1}
    config = negclip_config({"name": "il_triplet_clip", "args": args}, negatives={"calls": 2, "images": True})
    run = launch(prepare(tmp_path / "run", config).path, progress=False)
    assert all(record["triplet_loss"] > 0 for record in steps_of(run))
