"""Losses of images alone against their formulas, clusters and pseudo-labels, and a multistage run that is killed and
goes on."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
import training_runs
from PIL import Image
from safetensors.torch import save_file
from sklearn.cluster import MiniBatchKMeans
from training_runs import assert_same

from complearn.core.runs import Run
from complearn.core.seeds import derive, rng
from complearn.data.attributes.cluster_sampler import Groups
from complearn.data.attributes.two_views import DRAWN, Chances, Crops, DrawChances, Views, with_views
from complearn.data.loading import Loader
from complearn.data.pairs import Batch, Pair, preload
from complearn.data.readers.registry import read
from complearn.models.registry import build, load_model, needs_tokenizer, save_model, saved_config, search_fault
from complearn.models.stages.model import soup
from complearn.training.engine.encoding import StoredVectors, encode_set
from complearn.training.engine.phases import State
from complearn.training.methods.multistage import clusters
from complearn.training.methods.multistage.clusters import (
    LARGE,
    _decode_labels,
    _fill_empty,
    check_vectors,
    cluster,
    merge_small,
    pseudo_labels,
    stage_vectors,
)
from complearn.training.methods.multistage.stages import (
    Grouping,
    _group_images,
    multistage,
    stage_loader,
    training_groups,
)
from complearn.training.methods.registry import Named, make_phases
from complearn.training.objectives.unimodal.baselines import (
    IFM,
    UNIMODAL,
    FeatureDropout,
    SupervisedContrastive,
    TemperatureSchedule,
)
from complearn.training.objectives.unimodal.contrastive import MoCo, SimCLR
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.snapshots import Snapshot

HERE = Path(__file__).parent
TOWER = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}
MODEL = {"kind": "stages", "vision": TOWER, "projection": 8}
DATA = {"name": "trifeature", "args": {"samples": 1, "shapes": 4, "textures": 3, "colours": 5}}


def config(method="multistage", stages=3, **args):
    args = {"steps": 10, "grouping": {"clusters": 2, "small": "partial"}} | args
    model = MODEL | {"stages": stages}
    return {
        "method": {"name": method, "args": args},
        "model": model,
        "data": DATA,
        "train": training_runs.TRAIN,
        "seed": 0,
    }


def doubled(ids):
    """A batch of two views of images with these numbers."""
    ids = torch.tensor(ids)
    return Batch(None, None, None, torch.cat([ids, ids]), tuple(map(str, ids.tolist())) * 2)


def naive(vectors, ids, temperature, move=0.0):
    """NT-Xent, one query and one key at a time."""
    count = len(vectors)
    losses = []
    for i in range(count):
        partner = (i + count // 2) % count
        scores = []
        for j in range(count):
            cosine = float(vectors[i] @ vectors[j])
            if j == partner:
                scores.insert(0, math.exp((cosine - move) / temperature))
            elif ids[i % len(ids)] != ids[j % len(ids)]:
                scores.append(math.exp((cosine + move) / temperature))
        losses.append(-math.log(scores[0] / sum(scores)))
    return sum(losses) / count


@pytest.mark.parametrize("temperature", [0.1, 0.25, 0.5])
@pytest.mark.parametrize("ids", [[1, 2, 3, 4, 5], [1, 2, 2, 3, 1], [7, 8]])
def test_the_loss_is_the_formula_and_an_image_is_no_negative_of_itself(ids, temperature):
    vectors = torch.nn.functional.normalize(
        torch.randn(2 * len(ids), 6, generator=torch.Generator().manual_seed(1)), dim=-1
    )
    loss = SimCLR(temperature=temperature).compare(vectors, doubled(ids))["simclr_loss"]
    assert loss.item() == pytest.approx(naive(vectors, ids, temperature), rel=1e-5)
    swapped = torch.cat([vectors[len(ids) :], vectors[: len(ids)]])
    assert SimCLR(temperature=temperature).compare(swapped, doubled(ids))["simclr_loss"].item() == pytest.approx(
        loss.item(), rel=1e-5
    )
    harder = IFM(temperature=temperature, epsilon=0.05).compare(vectors, doubled(ids))["ifm_loss"].item()
    assert harder == pytest.approx(
        (naive(vectors, ids, temperature) + naive(vectors, ids, temperature, 0.05)) / 2, rel=1e-5
    )


def test_the_temperature_goes_down_and_up_and_is_resumed():
    schedule = TemperatureSchedule(temperature=0.1, highest=0.9, period=8)
    vectors = torch.eye(4)
    seen = []
    for step in range(9):
        seen.append(schedule.compare(vectors, doubled([1, 2]))["temperature"].item())
        schedule.after_step(step + 1)
    assert seen[0] == seen[8] == pytest.approx(0.9) and seen[4] == pytest.approx(0.1) and seen[2] == pytest.approx(0.5)
    resumed = TemperatureSchedule(temperature=0.1, highest=0.9, period=8)
    resumed.load_state_dict(schedule.state_dict())
    assert (
        resumed.compare(vectors, doubled([1, 2]))["temperature"]
        == schedule.compare(vectors, doubled([1, 2]))["temperature"]
    )
    resumed.after_step(10)
    assert int(resumed.step) == 10, "a resumed stage counts on"
    later = TemperatureSchedule(temperature=0.1, highest=0.9, period=8)  # a stage that begins at step 100 of a run
    for _ in ("as it is", "restarted"):
        waves = []
        for step in range(100, 109):
            waves.append(later.compare(vectors, doubled([1, 2]))["temperature"].item())
            later.after_step(step + 1)
        assert waves == pytest.approx(seen)
        later.restart(None)


def test_a_queue_forgets_its_oldest_keys_and_only_keys_of_the_own_group_are_negatives():
    model = build(MODEL | {"stages": 1})
    moco = MoCo(model.encoders[0], temperature=0.3, queue=6)
    draws = torch.Generator().manual_seed(0)
    keys = torch.nn.functional.normalize(torch.randn(8, 8, generator=draws), dim=-1)
    moco.enqueue(keys[:5], torch.tensor([0, 1, 0, 1, 1]), torch.arange(5))
    moco.enqueue(keys[5:], torch.tensor([1, 0, 1]), torch.arange(5, 8))
    assert torch.equal(moco.queue[:2], keys[6:]) and torch.equal(moco.queue[5], keys[5]) and moco.place == 2
    queries = keys[:2]
    right = torch.nn.functional.normalize(keys[:2] + 0.1, dim=-1)
    measures = moco.loss(queries, right, torch.tensor([1, 1]), torch.tensor([7, 50]))
    losses = []
    for row, image in enumerate((7, 50)):
        negatives = [k for k in range(2, 8) if k in (3, 4, 5, 7) and k != image]
        scores = [math.exp(float(queries[row] @ key) / 0.3) for key in [right[row], *keys[negatives]]]
        losses.append(-math.log(scores[0] / sum(scores)))
    assert measures["moco_loss"].item() == pytest.approx(sum(losses) / 2, rel=1e-5) and measures["negatives"] == 3.5


def test_of_more_keys_than_places_a_queue_keeps_the_last():
    moco = MoCo(build(MODEL | {"stages": 1}).encoders[0], queue=3)
    keys = torch.nn.functional.normalize(torch.randn(8, 8, generator=torch.Generator().manual_seed(0)), dim=-1)
    moco.enqueue(keys, torch.arange(8), torch.arange(8))
    assert sorted(moco.images.tolist()) == [5, 6, 7] and moco.place == 2 and moco.images[1] == 7
    assert all(torch.equal(moco.queue[k], keys[image]) for k, image in enumerate(moco.images.tolist()))


def naive_supervised(vectors, labels, temperature):
    """Khosla et al.'s Eq. 2, one query and one key at a time."""
    losses = []
    for i in range(len(vectors)):
        others = [j for j in range(len(vectors)) if j != i]
        total = sum(math.exp(float(vectors[i] @ vectors[j]) / temperature) for j in others)
        right = [j for j in others if labels[j] == labels[i]]
        logs = [math.log(math.exp(float(vectors[i] @ vectors[j]) / temperature) / total) for j in right]
        losses.append(-sum(logs) / len(right))
    return sum(losses) / len(losses)


@pytest.mark.parametrize("temperature", [0.1, 0.5])
@pytest.mark.parametrize("labels", [[0, 1, 0, 2, 2], [3, 3, 3], [0, 1]])
def test_all_views_of_a_label_are_right_keys(labels, temperature):
    draws = torch.Generator().manual_seed(2)
    vectors = torch.nn.functional.normalize(torch.randn(2 * len(labels), 6, generator=draws), dim=-1)
    batch = doubled(range(len(labels))).with_parts(Groups(torch.tensor(labels * 2)))
    measures = SupervisedContrastive(label="colour", temperature=temperature).compare(vectors, batch)
    assert measures["supcon_loss"].item() == pytest.approx(naive_supervised(vectors, labels * 2, temperature), rel=1e-5)


def test_a_label_is_taught_in_one_stage_and_must_be_there(tmp_path):
    with pytest.raises(ValueError, match="name it"):
        SupervisedContrastive()
    with pytest.raises(ValueError, match="in one stage"):
        multistage(build(MODEL | {"stages": 2}), 4, "supcon", options={"label": "colour"})
    trainer = make_trainer(prepare(tmp_path / "a", config("supcon", 1, options={"label": "colour"})))
    loader = trainer.phases[0].loader(trainer.state)
    batch = loader.batch(0)
    names = {pair.id: pair.labels["colour"] for pair in loader.pairs}
    seen = {(names[key], number) for key, number in zip(batch.keys, batch[Groups].numbers.tolist())}
    assert len(seen) == len({name for name, _ in seen}) == len({number for _, number in seen}) > 1
    trainer.fit()
    with pytest.raises(ValueError, match="has no label 'size'; its labels: shape, texture, colour"):
        make_trainer(prepare(tmp_path / "b", config("supcon", 1, options={"label": "size"})), progress=False).fit()


def test_groups_may_be_the_values_of_a_label(tmp_path):
    grouping = {"clusters": 2, "small": "partial", "label": "colour"}
    trainer = make_trainer(prepare(tmp_path / "a", config(stages=2, grouping=grouping)))
    trainer.fit()
    colours = [pair.labels["colour"] for pair in trainer.loader.pairs]
    groups = trainer.state.extra["groups"].tolist()
    assert len(set(zip(colours, groups))) == len(set(groups)) == 5, "more values than clusters are told apart"
    again = training_groups(trainer.model, trainer.loader.pairs, Grouping(**grouping), 16, 0)
    assert again["stage 0"].tolist() == trainer.state.extra["assignments"][0].tolist()
    with pytest.raises(ValueError, match="has no label 'size'"):
        make_trainer(
            prepare(tmp_path / "b", config(stages=2, grouping=grouping | {"label": "size"})), progress=False
        ).fit()


@pytest.mark.parametrize(
    "train, grouping, message",
    [
        ({}, {"clusters": 100}, "60 images do not make 100 clusters"),
        ({"batch_size": 1}, {"clusters": 2}, "a batch of one image has no negatives"),
    ],
)
def test_what_a_later_stage_could_not_do_is_said_before_the_first(tmp_path, train, grouping, message):
    given = config(grouping=grouping)
    trainer = make_trainer(prepare(tmp_path, given | {"train": given["train"] | train}))
    with pytest.raises(ValueError, match=message):
        trainer.fit()
    assert not trainer.state.step, "no step was taken"


def for_one_stage(name):
    """What an objective needs besides its name."""
    return {"options": {"label": "colour"}} if name == "supcon" else {}


@pytest.mark.parametrize("name", [name for name in UNIMODAL if name != "supcon"])
def test_every_objective_moves_its_own_stage_alone(name):
    model = build(MODEL | {"stages": 2})
    pairs = read(**{"name": "trifeature", "samples": 1, "shapes": 2, "textures": 2, "colours": 2})
    phases = multistage(model, 4, name)
    objective = phases[1].objective
    batch = model.collate.with_steps(DrawChances())(pairs, list(range(8)))
    for _ in range(2):  # the first batch of MoCo finds an empty queue
        measures = objective(model, batch)
    loss = sum(value for key, value in measures.items() if key.endswith("_loss"))
    loss.backward()
    assert torch.isfinite(loss) and loss > 0 and all(p.grad is None for p in model.encoders[0].parameters())
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.encoders[1].parameters())
    with pytest.raises(ValueError, match="no Chances .*made by DrawChances"):
        objective(model, model.collate(pairs))


@pytest.mark.parametrize("name", list(UNIMODAL))
def test_every_objective_reads_crops_of_whole_pictures(name):
    model = build(MODEL | {"stages": 1})
    photos = [rng(0, "photo", k).integers(0, 256, (50, 70, 3)).astype(np.uint8) for k in range(8)]
    pairs = [Pair(photo, None, str(k), str(k)) for k, photo in enumerate(photos)]
    (phase,) = multistage(model, 4, name, views={"area": [0.2, 1.0]}, **for_one_stage(name))
    batch = with_views(model.collate, phase.objective.views, pairs)(pairs, list(range(8)))
    assert batch.images is None
    batch = batch.with_parts(Groups(torch.arange(8) % 3))
    for _ in range(2):  # the first batch of MoCo finds an empty queue
        measures = phase.objective(model, batch)
    loss = sum(value for key, value in measures.items() if key.endswith("_loss"))
    loss.backward()
    assert torch.isfinite(loss) and any(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_stage_loader_crops_photos_in_its_workers_and_says_where_preload_has_scaled_them(tmp_path):
    for k in range(8):
        picture = rng(0, "photo", k).integers(0, 256, (50, 70, 3)).astype(np.uint8)
        Image.fromarray(picture).save(tmp_path / f"{k}.png")
    pairs = [Pair(tmp_path / f"{k}.png", None, str(k), str(k)) for k in range(8)]
    model = build(MODEL | {"stages": 1})
    collate = replace(model.collate, tokenizer=None)
    first = []
    for workers in (0, 2):
        loader = Loader(pairs, collate, 4, seed=3, workers=workers)
        made = stage_loader(0, "merge", Views())(State(model, loader=loader))
        batches = made.batches()
        first.append([next(batches)[Crops].images for _ in range(2)])
        batches.close()
        assert loader.collate is collate
    assert all(torch.equal(*each) for each in zip(*first))
    held = Loader(preload(pairs, collate.transform.size), collate, 4, seed=3)
    with pytest.warns(UserWarning, match=r"cropped from pictures that preload has scaled to \d+ pixels; leave preload"):
        made = stage_loader(0, "merge", Views())(State(model, loader=held))
    assert Crops not in made.batch(0) and Chances in made.batch(0)


def test_feature_dropout_hides_what_the_loss_depends_on_most():
    gradient = torch.zeros(2, 3, 8, 8)
    gradient[0, :, 4:, :4] = 1.0
    gradient[1, 1, 0, 7] = -3.0
    hidden = FeatureDropout(share=0.25, patch=4).hide(torch.ones(2, 3, 8, 8), gradient)
    assert hidden[0, :, 4:, :4].sum() == 0 == hidden[1, :, :4, 4:].sum() and hidden.sum() == 2 * 3 * 48
    with pytest.raises(ValueError, match="do not divide into squares"):
        FeatureDropout(patch=3).hide(torch.ones(1, 3, 8, 8), torch.ones(1, 3, 8, 8))


def test_pseudo_labels_of_three_stages_decode_to_their_three_assignments():
    """The released code keeps only the last two."""
    assignments = np.random.default_rng(0).integers(0, 5, (3, 200))
    labels = pseudo_labels(assignments, 5)
    assert (_decode_labels(labels, 5, 3) == assignments).all()
    assert len(set(labels.tolist())) == len(set(map(tuple, assignments.T.tolist())))


@pytest.mark.parametrize(
    ("vectors", "count", "message"),
    [
        (torch.eye(4), 5, "4 images do not make 5 clusters"),
        (torch.eye(2).repeat(10, 1), 3, "20 images with 2 distinct vectors do not make 3 clusters"),
    ],
)
def test_vectors_that_do_not_make_the_clusters_are_named(vectors, count, message):
    with pytest.raises(ValueError, match=message):
        cluster(vectors, count, 0)


def test_many_vectors_are_clustered_in_small_batches():
    vectors = torch.nn.functional.normalize(torch.eye(3).repeat(50, 1) + 0.01, dim=-1)
    labels = cluster(vectors, 3, 0, large=100)
    assert [len(set(labels[k::3])) for k in range(3)] == [1, 1, 1] and len(set(labels)) == 3


def test_empty_clusters_of_small_batches_are_seeded_anew():
    """Very unequal groups: k-means in small batches leaves clusters of these 3,000 distinct vectors empty."""
    draws = torch.Generator().manual_seed(0)

    def unit(x):
        return torch.nn.functional.normalize(x, dim=1)

    groups = [unit(torch.randn(1, 16, generator=draws)).repeat(n, 1) for n in (2950, 30, 15, 4, 1)]
    vectors = unit(torch.cat([group + 1e-4 * torch.randn(group.shape, generator=draws) for group in groups]))
    alone = MiniBatchKMeans(400, n_init=3, random_state=derive(0, "clusters") % 2**32, batch_size=4096).fit_predict(
        vectors.numpy()
    )
    assert len(set(alone)) < 400
    labels = cluster(vectors, 400, 0, large=1000)
    assert len(set(labels.tolist())) == 400
    kept = [k for k in range(400) if (alone == k).sum() and set(alone[labels == k]) == {k}]
    assert len(kept) == len(set(alone)), "clusters that were there have lost vectors to empty ones, and got none"


def unequal_groups(counts, width=8):
    """Unit vectors in groups of very unequal sizes, all distinct."""
    draws = torch.Generator().manual_seed(0)

    def unit(x):
        return torch.nn.functional.normalize(x, dim=1)

    groups = [unit(torch.randn(1, width, generator=draws)).repeat(count, 1) for count in counts]
    return unit(torch.cat([group + 1e-2 * torch.randn(group.shape, generator=draws) for group in groups]))


def stored(vectors, folder):
    """The same vectors in half precision, in the files of three processes."""
    parts = vectors.split([len(vectors) // 3, 0, len(vectors) - len(vectors) // 3])
    for rank, part in enumerate(parts):
        (folder / f"part-{rank:05d}.f16").write_bytes(part.half().numpy().tobytes())
    return StoredVectors(folder, tuple(map(len, parts)), vectors.shape[1])


def test_empty_clusters_of_more_than_fifty_thousand_vectors_are_seeded_anew(tmp_path, monkeypatch):
    vectors = unequal_groups((LARGE + 50, 30, 15, 4, 1))
    held = vectors.numpy()
    files = stored(vectors, tmp_path)
    labels = np.zeros(len(vectors), np.int64)
    labels[-50:] = 7
    for kept in (held, files):
        filled = _fill_empty(kept, labels, 12)
        sizes = np.bincount(filled, minlength=12)
        assert len(sizes) == 12 and sizes.all()
        assert not set(filled[:-50]) & set(filled[-50:]), "halves of one cluster only"
    # small batches that leave a cluster empty, as they may at any size
    predict = MiniBatchKMeans.predict
    monkeypatch.setattr(MiniBatchKMeans, "predict", lambda self, values: np.minimum(predict(self, values), 9))
    monkeypatch.setattr(MiniBatchKMeans, "fit_predict", lambda self, values: self.fit(values).predict(values))
    for kept in (vectors, files):
        assert np.bincount(cluster(kept, 12, 0), minlength=12).all()


def test_vectors_in_files_are_clustered_in_parts(tmp_path):
    vectors = unequal_groups((LARGE, 9000, 8000))
    files = stored(vectors, tmp_path)
    labels = cluster(files, 3, 0)
    truth = np.repeat([0, 1, 2], (LARGE, 9000, 8000))
    assert {tuple(pair) for pair in zip(truth, labels)} == {(k, labels[truth == k][0]) for k in range(3)}
    assert (labels == cluster(files, 3, 0)).all()
    merged = merge_small(labels, files, 8500)
    assert (merged == merge_small(labels, vectors, 8500)).all() and len(set(merged)) == 2
    check_vectors(files, "files")
    with pytest.raises(ValueError, match="2 images do not make 3 clusters"):
        cluster(StoredVectors(tmp_path, (2,), 8), 3, 0)
    few = torch.eye(8)[[0, 1] * 200]
    with pytest.raises(ValueError, match="400 images with 2 distinct vectors do not make 3 clusters"):
        cluster(stored(few, tmp_path), 3, 0)
    broken = vectors[:100].clone()
    broken[5, 2] = float("nan")
    with pytest.raises(ValueError, match="files: 1 of 100 vectors are not finite"):
        check_vectors(stored(broken, tmp_path), "files")


def test_a_run_whose_vectors_lie_in_files_draws_from_groups_of_all_pairs(tmp_path, monkeypatch):
    monkeypatch.setattr(clusters, "encode_set", partial(encode_set, held=100))
    run = launch(prepare(tmp_path / "run", config()).path, progress=False)
    grouped = [record for record in run.records() if record["kind"] == "clusters"]
    assert [sum(record["sizes"]) for record in grouped] == [60, 60]
    notes = [record["message"] for record in run.records() if record["kind"] == "note"]
    assert len(notes) == 2 and "60 vectors of 16 numbers by stage 0 lie in" in notes[0]
    assert not list(run.path.glob("*.tmp"))


@pytest.mark.parametrize(
    ("value", "message"),
    [(float("nan"), "60 of 60 vectors are not finite.*lower the learning rate"), (0.0, "collapsed")],
)
def test_broken_and_constant_features_stop_the_run_with_a_remedy(value, message):
    model = build(MODEL)
    pairs = read(DATA["name"], **DATA["args"])
    with torch.no_grad():
        model.encoders[0].tower.norm_out.weight.fill_(value)
        model.encoders[0].tower.norm_out.bias.fill_(1.0)
    with pytest.raises(ValueError, match=f"stage 0: .*{message}"):
        stage_vectors(model, 0, pairs, model.collate)


def test_small_groups_join_the_nearest_and_all_become_one_where_none_is_large():
    vectors = torch.eye(3)[[0] * 9 + [1] * 9 + [2] * 2]
    vectors[-2:] += vectors[0]
    labels = np.array([4] * 9 + [5] * 9 + [9] * 2)
    assert merge_small(labels, vectors, 8).tolist() == [4] * 9 + [5] * 9 + [4] * 2
    assert set(merge_small(labels, vectors, 30)) == {0}


def test_a_model_of_images_alone_has_no_text():
    assert not needs_tokenizer(MODEL) and "reads images alone" in search_fault(MODEL) and build(MODEL).tokenizer is None
    with pytest.raises(ValueError, match='needs a model of images alone: "model": {"kind": "stages"'):
        make_phases(Named("multistage", {"steps": 5}), torch.nn.Linear(1, 1))
    for args, message in (
        ({"steps": 2}, "2 steps are too few for 3 stages"),
        ({"steps": 9, "views": {"areas": [1, 1]}}, "no views key 'areas'"),
        ({"steps": 9, "grouping": {"small": "join"}}, "grouping.small"),
        ({"steps": 9, "options": {"queue": 4}}, "objective 'simclr'"),
        ({"steps": 9, "temperature": 0}, "temperature lies above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make_phases(Named("multistage", args), build(MODEL))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that nobody disturbs."""
    return launch(prepare(tmp_path_factory.mktemp("multistage") / "multistage-s0", config()).path, progress=False)


def test_every_stage_has_its_encoder_and_a_snapshot_knows_the_stages_of_its_time(whole):
    assert whole.phase_names() == ["stage-0", "stage-1", "stage-2"] and whole.done["step"] == 10
    models = [Snapshot(whole, phase=k).model() for k in range(3)]
    pairs = read(DATA["name"], **DATA["args"])
    batch = models[2].collate(pairs)
    assert [models[k].encode_images(batch).values.shape[1] for k in range(3)] == [16, 32, 48]
    for earlier, later in zip(models, models[1:]):
        assert torch.equal(earlier.encode_stage(batch, 0), later.encode_stage(batch, 0))  # a stage that has ended stays
    assert soup(models[2]).encode_images(batch).values.shape == (60, 16)
    records = [record for record in whole.records() if record["kind"] == "clusters"]
    assert [record["stage"] for record in records] == [1, 2]
    assert records[0]["groups"] == 2
    assert records[1]["groups"] in (3, 4)


def test_saved_stages_need_no_place_that_their_towers_came_from(tmp_path):
    timm = pytest.importorskip("timm")
    folder = tmp_path / "vit"
    folder.mkdir()
    numbers = {"embed_dim": 32, "depth": 2, "num_heads": 2, "img_size": 32}
    said = {"architecture": "vit_tiny_patch16_224", "num_classes": 0, "model_args": numbers}
    said["pretrained_cfg"] = {"input_size": [3, 32, 32], "mean": [0.5] * 3, "std": [0.5] * 3}
    (folder / "config.json").write_text(json.dumps(said))
    original = timm.create_model("vit_tiny_patch16_224", num_classes=0, **numbers)
    save_file(original.state_dict(), folder / "model.safetensors")
    model = build(MODEL | {"stages": 2, "vision": f"timm:{folder}"})
    model.learned.fill_(2)
    saved = save_model(model, tmp_path / "saved")
    folder.rename(tmp_path / "gone")
    again = load_model(saved)
    mixed = soup(again)
    weights = [again.encoders[k].tower.module.pos_embed for k in range(2)]
    assert torch.allclose(mixed.encoders[0].tower.module.pos_embed, (weights[0] + weights[1]) / 2)
    started = saved_config(saved)
    assert started["vision"]["tower"] == "saved"
    build(started).load_state_dict(again.state_dict())


def test_a_stage_draws_every_batch_from_one_group_of_pseudo_labels(whole, tmp_path):
    trainer = make_trainer(prepare(tmp_path / "multistage-s0", config()), progress=False)
    trainer.fit()
    assignments = trainer.state.extra["assignments"]
    groups = pseudo_labels(assignments.numpy(), 2)
    assert assignments.shape == (2, 60) and (trainer.state.extra["groups"].numpy() == groups).all()
    loader = trainer.loader_of(trainer.phases[2])
    for number in range(loader.batches_per_epoch):
        batch = loader.batch(number)
        assert len(set(batch[Groups].numbers.tolist())) == 1
        assert batch[Chances].numbers.shape == (len(batch), DRAWN)
    again = stage_vectors(trainer.model, 0, trainer.loader.pairs, trainer.loader.collate)
    assert torch.allclose(again.norm(dim=1), torch.ones(60), atol=1e-5)


def test_shuffled_clusters_have_the_same_sizes_and_other_images(tmp_path):
    trainer = make_trainer(prepare(tmp_path / "multistage-s0", config(stages=2, steps=6)), progress=False)
    trainer.fit()
    plain = trainer.state.extra["assignments"].numpy()
    del trainer.state.extra["assignments"]
    mixed = _group_images(trainer.state, 1, Grouping(2, small="partial", shuffled=True))[0].numpy()
    assert np.bincount(plain[0]).tolist() == np.bincount(mixed[0]).tolist() and not (plain == mixed).all()


@pytest.mark.parametrize(
    "grouping", [{"clusters": 2, "small": "partial"}, {"clusters": 3, "shuffled": True}, {"clusters": 4}]
)
def test_a_run_that_has_ended_can_be_asked_what_it_drew_from(tmp_path, grouping):
    """With its own number of clusters; nothing that is logged or saved is needed."""
    trainer = make_trainer(prepare(tmp_path / "multistage-s0", config(grouping=grouping)), progress=False)
    trainer.fit()
    drawn = trainer.state.extra
    pairs = read(DATA["name"], **DATA["args"])
    found = training_groups(trainer.model, pairs, Grouping(**grouping), trainer.loader.batch_size, trainer.state.seed)
    assert list(found) == ["stage 0", "groups of stage 1", "stage 1", "groups of stage 2"]
    assert [found["stage 0"].tolist(), found["stage 1"].tolist()] == drawn["assignments"].tolist()
    assert found["groups of stage 2"].tolist() == drawn["groups"].tolist()
    assert len(set(found["stage 0"].tolist())) == grouping["clusters"]


def test_a_stage_can_begin_with_the_weights_of_the_one_before(tmp_path):
    trainer = make_trainer(prepare(tmp_path / "inherits-s0", config(inherit=True, stages=2)), progress=False)
    weights = []
    begin = trainer.phases[1].on_start

    def look(state):
        begin(state)
        weights.extend(encoder.head[0].weight.clone() for encoder in state.model.encoders)
        assert {*state.model.encoders[1].parameters()} <= {*state.respawned}, "averages of weights begin again"

    trainer.phases[1].on_start = look
    trainer.fit()
    assert torch.equal(*weights) and not torch.equal(weights[1], trainer.model.encoders[1].head[0].weight)


def test_too_many_groups_for_the_images_are_warned_about(tmp_path):
    trainer = make_trainer(prepare(tmp_path / "many-s0", config(grouping={"clusters": 3})), progress=False)
    with pytest.warns(UserWarning, match="3 clusters in 2 stages make 9 groups, and 60 images fill 7 batches"):
        trainer.begin_or_resume()


@pytest.mark.parametrize(
    ("small", "message"),
    [("partial", "drawn as smaller batches"), ("drop", "left out"), ("merge", "joined")],
)
def test_groups_that_do_not_fill_a_batch_are_counted_in_a_warning(tmp_path, small, message):
    grouping = {"clusters": 7, "small": small}
    trainer = make_trainer(prepare(tmp_path / "small-s0", config(stages=2, steps=2, grouping=grouping)), progress=False)
    with pytest.warns(
        UserWarning, match=rf"stage 1: \d of 7 groups do not fill a batch of 8 \(\d+ of 60 images\), .*{message}"
    ):
        trainer.fit()


@pytest.mark.slow
@pytest.mark.parametrize("step", [2, 5, 9])
def test_a_run_that_is_killed_inside_a_stage_goes_on_to_the_same_result(whole, tmp_path, step):
    run = prepare(tmp_path / "multistage-s0", config())
    process = training_runs.start(run.path, f"kill step {step}")
    process.join(120)
    assert process.exitcode == -signal.SIGKILL and Run.open(run.path).done is None
    assert_same(launch(run.path, progress=False), whole)


@pytest.mark.slow
def test_a_killed_run_of_moco_goes_on_with_its_queue(tmp_path):
    method = config(objective="moco", temperature=0.2, options={"queue": 32}, stages=2)
    first = launch(prepare(tmp_path / "whole" / "moco-s0", method).path, progress=False)
    run = prepare(tmp_path / "killed" / "moco-s0", method)
    process = training_runs.start(run.path, "kill step 7")
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    assert_same(launch(run.path, progress=False), first)


def test_the_configuration_of_a_run_is_plain(whole):
    assert json.loads(json.dumps(whole.config)) == whole.config
    assert "tokenizer.json" not in {path.name for path in whole.path.iterdir()}
    assert Views() == Views(area=(0.2, 1.0))


@pytest.mark.slow
def test_two_processes_draw_the_same_group_and_disjoint_images_and_end_like_one(whole, tmp_path):
    values = config()
    prepare(tmp_path / "multistage-s0", values)
    command = [
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(HERE / "multistage_ranks.py"),
        str(tmp_path),
    ]
    env = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "COMPLEARN_TYPECHECK": "0",
        "PYTHONPATH": os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run([sys.executable, *command], env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = (torch.load(tmp_path / f"drawn-{rank}.pt", weights_only=True) for rank in (0, 1))
    assert (first["rank"], second["rank"], first["world"]) == (0, 1, 2)
    assert torch.equal(first["assignments"], second["assignments"])
    for keys, others, groups, also in zip(first["keys"], second["keys"], first["groups"], second["groups"]):
        assert not set(keys) & set(others)
        assert len(keys) == len(others)
        assert set(groups) == set(also)
        assert len(set(groups)) == 1

    def losses(run):
        return [record["loss"] for record in run.records() if record["kind"] == "step" and record["phase"] == "stage-0"]

    assert losses(Run.open(tmp_path / "multistage-s0")) == pytest.approx(losses(whole), rel=1e-3)
