"""Tools for finished stages: how many clusters, when to stop, metadata, files of embeddings, saved stages, and one more
stage."""

import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from training_runs import TRAIN, assert_same

from complearn.analysis.stages.costs import _stage_seconds, _step_flops, add_stage
from complearn.analysis.stages.groupings import (
    FORMATS,
    _read_embeddings,
    column_groups,
    contingency,
    metadata_table,
    stage_embeddings,
    write_embeddings,
)
from complearn.analysis.stages.stability import (
    _nearest_means,
    _reason_to_stop,
    agreement,
    cluster_stability,
    stage_advice,
    suggest_clusters,
)
from complearn.core.checksums import DamagedFile
from complearn.core.runs import Run
from complearn.data.attributes.two_views import DrawChances
from complearn.data.readers.registry import read
from complearn.models.registry import build, load_model, save_model
from complearn.training.methods.registry import Named
from complearn.training.objectives.unimodal.baselines import UNIMODAL
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.snapshots import Snapshot

TOWER = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}
DATA = {"name": "trifeature", "args": {"samples": 1, "shapes": 4, "textures": 3, "colours": 5}}


def config(stages, steps, **args):
    args = {"steps": steps, "ramp": 1, "grouping": {"clusters": 2, "small": "partial"}} | args
    model = {"kind": "stages", "vision": TOWER, "projection": 8, "stages": stages}
    return {"method": {"name": "multistage", "args": args}, "model": model, "data": DATA, "train": TRAIN, "seed": 0}


def blobs(count, seed=0, width=8, size=300, spread=0.1):
    """Unit vectors around `count` axes, and the axis of each."""
    draws = np.random.default_rng(seed)
    groups = draws.integers(0, count, size)
    noise = torch.from_numpy(draws.normal(size=(size, width))).float()
    return F.normalize(F.one_hot(torch.from_numpy(groups), width).float() + spread * noise, dim=-1), groups


# --- what a step takes


def test_the_operations_of_a_step_are_counted_for_every_objective():
    model = build({"kind": "stages", "vision": TOWER, "projection": 8, "stages": 1})
    pairs = read(DATA["name"], **DATA["args"])
    batch = model.collate.with_steps(DrawChances())([pairs[k] for k in range(4)], list(range(4)))
    taught = {"supcon": {"options": {"label": "colour"}}}
    counts = {
        name: _step_flops(model, batch, Named(name, {"steps": 3} | taught.get(name, {})))["stage-0"]
        for name in UNIMODAL
    }
    assert counts["simclr"] == counts["ts"] > 0 and counts["fd"] > counts["simclr"]


# --- how many clusters


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_number_of_groups_that_are_there_is_suggested(count):
    table = cluster_stability(blobs(count, seed=count)[0], (2, 3, 4, 5), repeats=6)
    assert suggest_clusters(table) == count
    assert table[table.clusters == count].ami.min() > 0.99 > table[table.clusters == count].reference.max()
    assert table.equals(cluster_stability(blobs(count, seed=count)[0], (2, 3, 4, 5), repeats=6))


@pytest.mark.parametrize("seed", range(3))
def test_a_cloud_without_groups_has_no_suggestion(seed):
    cloud = torch.from_numpy(np.random.default_rng(seed).normal(size=(300, 8))).float()
    assert suggest_clusters(cluster_stability(F.normalize(cloud, dim=-1), (2, 3, 4, 5), repeats=5, seed=seed)) is None


def test_the_nearest_mean_is_found_one_vector_at_a_time():
    vectors, _ = blobs(3, spread=0.5)
    labels = np.random.default_rng(1).integers(0, 4, 200)
    naive = []
    for vector in vectors:
        distances = [float((vector - vectors[:200][labels == k].mean(0)).norm()) for k in range(4)]
        naive.append(int(np.argmin(distances)))
    assert _nearest_means(vectors, vectors[:200], labels).tolist() == naive


def test_stability_names_what_it_cannot_measure():
    vectors, _ = blobs(3, size=20)
    for counts, repeats in (((2, 11), 1), ((1, 2), 1), ((2, 3), 0)):
        with pytest.raises(ValueError, match="2 to 10 clusters, for 20 images"):
            cluster_stability(vectors, counts, repeats)
    with pytest.raises(ValueError, match="not finite"):
        cluster_stability(vectors * float("nan"))
    with pytest.raises(ValueError, match="thirds"):
        agreement(vectors, 2, 0, "thirds")


def test_advice_stops_for_each_of_three_reasons():
    vectors, groups = blobs(4)
    repeated = F.normalize(vectors.roll(1, 1) + 0.01, dim=-1)
    advice = stage_advice([vectors, repeated], 16, (2, 3, 4, 5), 3)
    assert advice.clusters.tolist() == [4, 4] and advice.stop[0] == "" and "those of earlier stages" in advice.stop[1]
    assert "smaller than a batch" in stage_advice([vectors], 200, (3, 4), 3).stop[0]
    assert _reason_to_stop(None, 0.0, 0.0) == "no number of clusters is stable" and _reason_to_stop(3, 0.79, 0.5) == ""
    assert _reason_to_stop(3, 0.79, 0.5, alike=0.7) and _reason_to_stop(3, 0.1, 0.5, least=0.6)


# --- metadata


def test_clusters_are_compared_with_any_column():
    _, groups = blobs(3)
    noise = np.random.default_rng(5).normal(size=300)
    metadata = pd.DataFrame(
        {"kind": np.array(list("abc"))[groups], "length": groups * 10.0 + noise / 10, "noise": noise}
    )
    metadata.loc[:49, "noise"] = np.nan
    table = metadata_table({"stage 0": groups, "mixed": groups[::-1]}, metadata, parts=3).set_index(
        ["grouping", "column"]
    )
    assert table.ami["stage 0", "kind"] == pytest.approx(1) and abs(table.ami["mixed", "kind"]) < 0.05
    assert table.ami["stage 0", "length"] > 0.7
    assert table.n["stage 0", "noise"] == 250
    assert abs(table.ami["stage 0", "noise"]) < 0.05
    counts = contingency(groups, metadata.kind)
    for group in range(3):
        for value in "abc":
            assert counts.loc[group, value] == sum(g == group and k == value for g, k in zip(groups, metadata.kind))
    assert column_groups([True, False, True]).tolist() == [True, False, True]
    assert column_groups([1, None, 2]).isna().sum() == 1
    with pytest.raises(ValueError, match="of 300 images and column 'short' of 3"):
        metadata_table({"stage 0": groups}, {"short": [1, 2, 3]})
    with pytest.raises(ValueError, match="'none' has no values"):
        metadata_table({"stage 0": groups}, {"none": [None] * 300})


# --- files


@pytest.mark.parametrize("ending", FORMATS)
def test_embeddings_come_back_from_their_file_and_bad_ones_are_refused(ending, tmp_path):
    vectors = {"stage-0": torch.randn(5, 3), "stage-1": torch.randn(5, 4)}
    file = write_embeddings(tmp_path / f"a{ending}", list("abcde"), vectors, {"shape": ["x", "y", "x", "y", "x"]})
    keys, again = _read_embeddings(file)
    assert keys == list("abcde")
    assert set(again) == set(vectors)
    assert all(torch.equal(again[name], vectors[name]) for name in vectors)
    if ending == ".parquet":
        assert pd.read_parquet(file)["shape"].tolist() == ["x", "y", "x", "y", "x"]
    for keys, parts, metadata, message in (
        (list("abcd"), vectors, {}, "one vector"),
        (list("abcda"), vectors, {}, "4 distinct keys"),
        (list("abcde"), vectors, {"stage-0": [1] * 5}, "names of their own"),
        (list("abcde"), {"stage-0": torch.full((5, 2), float("nan"))}, {}, "not all finite"),
    ):
        with pytest.raises(ValueError, match=message):
            write_embeddings(file, keys, parts, metadata)
    assert _read_embeddings(file)[0] == list("abcde")  # a refused write leaves the file
    pd.DataFrame({"keys": ["a"]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="holds no embeddings"):
        _read_embeddings(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match="ending of an embeddings file"):
        write_embeddings(tmp_path / "a.csv", list("abcde"), vectors)


# --- saved stages, and one more


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two stages, and three at once: 4, 3 and 3 steps."""
    folder = tmp_path_factory.mktemp("stages")
    return {
        n: launch(prepare(folder / f"multistage{n}-s0", config(n, steps)).path, progress=False)
        for n, steps in ((2, 7), (3, 10))
    }


def test_saved_stages_are_one_scorer_that_says_the_same(runs, tmp_path):
    model = Snapshot(runs[3]).model()
    pairs = list(read(DATA["name"], **DATA["args"]))
    folder = save_model(model, tmp_path / "stages")
    again = load_model(folder)
    assert not (folder / "tokenizer.json").exists() and int(again.learned) == 3
    vectors = stage_embeddings(again, pairs)
    before = stage_embeddings(model, pairs)
    assert list(vectors) == ["stage-0", "stage-1", "stage-2", "integrated"]
    assert all(torch.equal(vectors[name], before[name]) for name in vectors)
    assert torch.allclose(again.encode_images(again.collate(pairs)).values, vectors["integrated"], atol=1e-6)
    save_model(load_model(folder), folder)  # over itself
    with open(folder / "model.safetensors", "r+b") as file:
        file.seek(500)
        file.write(b"damage")
    with pytest.raises(DamagedFile, match="model.safetensors"):
        load_model(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model.safetensors missing"):
        load_model(folder)


def test_two_stages_and_one_more_are_three_stages_bit_for_bit(runs, tmp_path):
    new = add_stage(runs[2], tmp_path / "three-s0")
    assert new.config["method"]["args"]["steps"] == 3 and new.config["start"]["phase"] == "stage-1"
    launch(new.path, progress=False)
    more = Snapshot(new).weights()
    whole = Snapshot(runs[3]).weights()
    assert more.keys() == whole.keys() and all(torch.equal(more[name], whole[name]) for name in whole)

    def losses(run):
        return [record["loss"] for record in run.records() if record["kind"] == "step" and record["phase"] == "stage-2"]

    assert losses(new) == losses(runs[3]) and len(losses(new)) == 3
    assert add_stage(runs[2], tmp_path / "three-s0").done  # asked again, it is there
    four = add_stage(new, tmp_path / "four-s0", steps=1)
    assert int(Snapshot(launch(four.path, progress=False)).model().learned) == 4


def test_an_added_stage_that_is_stopped_goes_on_to_the_same_result(runs, tmp_path):
    whole = launch(add_stage(runs[2], tmp_path / "whole" / "three-s0").path, progress=False)
    half = add_stage(runs[2], tmp_path / "half" / "three-s0")

    class Broken(Exception):
        pass

    def fail(trainer, result):
        if result.step == 2:
            trainer.checkpoint()
            raise Broken

    trainer = make_trainer(half, progress=False)
    trainer.actions.append(fail)
    with pytest.raises(Broken):
        trainer.fit()
    resumed = launch(half.path, progress=False)
    assert torch.equal(
        Snapshot(resumed).weights()["encoders.2.head.0.weight"], Snapshot(whole).weights()["encoders.2.head.0.weight"]
    )
    assert_same(resumed, whole)


def test_a_stage_is_added_to_finished_stages_alone(runs, tmp_path):
    unfinished = prepare(tmp_path / "new-s0", config(2, 7))
    with pytest.raises(ValueError, match="has not ended"):
        add_stage(unfinished, tmp_path / "more-s0")
    with pytest.raises(ValueError, match="1 stages were to be learned before this run, and 0 are"):
        launch(prepare(tmp_path / "first-s0", config(2, 7, first=1)).path, progress=False)
    with pytest.raises(ValueError, match="stage 2 is none of a model of 2 stages"):
        launch(prepare(tmp_path / "none-s0", config(2, 7, first=2)).path, progress=False)
    new = add_stage(runs[2], tmp_path / "other-s0")
    values = dict(new.config)
    smaller = prepare(
        tmp_path / "fewer-s0", {**values, "model": values["model"] | {"stages": 1}, "method": config(1, 3)["method"]}
    )
    with pytest.raises(ValueError, match="whose model is another.*stages"):
        launch(smaller.path, progress=False)


def test_a_run_of_earlier_stages_that_is_missing_is_named(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match="gone-s0"):
        add_stage(tmp_path / "gone-s0", tmp_path / "three-s0")
    copy = shutil.copytree(runs[2].path, tmp_path / "two-s0")
    new = add_stage(copy, tmp_path / "three-s0")
    shutil.rmtree(copy)
    with pytest.raises(FileNotFoundError, match="the start of .*three-s0.*two-s0"):
        launch(new.path, progress=False)
    assert Run.open(new.path).done is None


def test_an_added_stage_refuses_other_data_than_the_stages_before_were_trained_on(runs, tmp_path, monkeypatch):
    new = add_stage(runs[2], tmp_path / "three-s0")
    monkeypatch.setattr("complearn.training.runs.launch.fingerprint", lambda pairs: "other")
    with pytest.raises(ValueError, match="the training data of .* have changed"):
        launch(new.path, progress=False)
    assert Run.open(new.path).done is None


def test_a_model_of_stages_can_be_built_from_what_its_folder_says(tmp_path):
    model = build({"kind": "stages", "vision": TOWER, "projection": 8, "stages": 2, "hidden": 6}, seed=4)
    again = load_model(save_model(model, tmp_path / "model", {"name": "Two stages"}))
    assert again.config == model.config and "Two stages" in (tmp_path / "model" / "model_card.md").read_text()
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())


def test_the_work_before_an_added_stage_counts(tmp_path, monkeypatch):
    """Its clusters are made when the run begins: no stage of this run lies before them."""

    def seconds(first, stages):
        spent = {"wall_seconds": 7.0, "cpu_seconds": 5.0}
        records = []
        for k in range(first, stages):
            records += [{"kind": "clusters", "stage": k, **spent}] if k else []
            done = k - first + 1
            records.append(
                {
                    "kind": "step",
                    "phase": f"stage-{k}",
                    "step": 3 * done,
                    "wall_seconds": 2.0 * done,
                    "cpu_seconds": 1.0,
                }
            )
        monkeypatch.setattr(Run, "records", lambda run: records)
        return _stage_seconds(run)

    run = prepare(tmp_path / "three-s0", config(3, 9))

    whole = seconds(0, 3)
    assert whole.between.tolist() == [7, 7, 0] and whole.cpu_between.tolist() == [5, 5, 0]
    added = seconds(2, 3)
    assert added.stage.tolist() == ["stage-2"] and added.between.tolist() == [7] and added.cpu_between.tolist() == [5]
