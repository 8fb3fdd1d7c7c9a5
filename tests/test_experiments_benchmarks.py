"The benchmark notebook as its users run it, and the activation of the open_clip models that go through it."

import json
import shutil
import warnings

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from complearn.core.results import Result
from complearn.data.fixtures.specimens import write_benchmarks
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.dual import build_model
from complearn.models.registry import save_model
from complearn.models.towers.openclip import OpenClipScorer, load_open_clip
from complearn.training.runs.launch import launch, prepare

NAME = "experiments/benchmarks"
open_clip = pytest.importorskip("open_clip")


def small_clip_model(folder):
    "A folder that transformers saves, with random weights."
    transformers = pytest.importorskip("transformers")
    sides = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = sides | {"image_size": 32, "patch_size": 8}
    text = sides | {"max_position_embeddings": 24}
    transformers.CLIPModel(
        transformers.CLIPConfig(vision_config=vision, text_config=text, projection_dim=24)
    ).save_pretrained(folder)
    return folder


def small_open_clip(folder, quick=True):
    "A tiny open_clip model with random weights, saved as open_clip saves one."
    vision = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16}
    text = {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    config = {"embed_dim": 24, "quick_gelu": quick, "vision_cfg": vision, "text_cfg": text}
    torch.manual_seed(0)
    weights = open_clip.CLIP(**config).state_dict()
    folder.mkdir(parents=True)
    save_file(
        {name: 3 * tensor if tensor.is_floating_point() else tensor for name, tensor in weights.items()},
        folder / "open_clip_model.safetensors",
    )
    content = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return folder


def test_a_folder_is_loaded_with_its_own_activation(tmp_path):
    def activations(model):
        return {type(module).__name__ for module in model.modules() if "GELU" in type(module).__name__}

    quick = small_open_clip(tmp_path / "quick")
    plain = small_open_clip(tmp_path / "plain", quick=False)
    assert activations(load_open_clip(str(quick)).model) == {"QuickGELU"}
    assert activations(load_open_clip(str(plain)).model) == {"GELU"}
    pair = Pair(np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8), "a dog on a mat", "0", "0")
    encoded = [
        scorer.encode_images(scorer.collate([pair])).values
        for scorer in (OpenClipScorer(str(quick)), OpenClipScorer(str(plain)))
    ]
    assert (encoded[0] - encoded[1]).abs().max() > 1e-4  # the same weights: the flag alone decides
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_open_clip(str(quick))
    with pytest.warns(UserWarning, match="GELU was asked for, but its weights or configuration say QuickGELU"):
        assert activations(load_open_clip(str(quick), quick_gelu=False).model) == {"GELU"}


def test_results_say_which_weights_were_judged_and_how(tmp_path, experiment):
    "Two checkpoints of one file name looked alike, and the activation stood nowhere."
    data = write_benchmarks(tmp_path / "data")
    (tmp_path / "photos").mkdir()
    photo = sorted((data / "coco" / "val2017").iterdir())[0]
    (tmp_path / "photos" / "a.jpg").symlink_to(photo)
    (tmp_path / "photos" / "captions.csv").write_text("image,caption\na.jpg,a square\n")
    asked = json.dumps({"retrieval": {"name": "folder", "args": {"folder": str(tmp_path / "photos")}}})
    for name, quick in (("a", True), ("b", False)):
        small_open_clip(tmp_path / name / "clip", quick)
    models = [f"first={tmp_path}/a/clip", f"second={tmp_path}/b/clip"]
    where = {"data_folder": str(data), "only": ["sugarcrepe"], "overlap": "keep"}
    run = experiment(NAME, tmp_path / "out", models=models, judge=asked, allow_outside=True, **where)
    assert run.good  # without allow_outside the pictures of `asked` stop it
    setting = Result.read(tmp_path / "out").setting
    assert [(m["method"], m["name"], m["activation"]) for m in setting["models"]] == [
        ("first", models[0], "QuickGELU"),
        ("second", models[1], "GELU"),
    ]
    assert len({m["fingerprint"] for m in setting["models"]}) == 2
    assert setting["quick_gelu"] is None and setting["random_weights"] is False
    (tmp_path / "b" / "clip" / "open_clip_model.safetensors").write_bytes(b"broken")
    broken = experiment(NAME, tmp_path / "no", models=[models[1]], **where)
    assert not broken.result.good and f"the model {models[1]} cannot be opened: " in broken.text


def test_what_cannot_be_run_is_said(tmp_path, experiment):
    run = experiment(NAME, tmp_path / "none", preset="demo", models=["ViT-B-32"])
    assert not run.result.good and "name the folder that holds the benchmarks" in run.text
    run = experiment(NAME, tmp_path / "nobody", versus=["own", "nobody"], only=["cola"])
    assert not run.result.good and "versus names two of the models" in run.text
    run = experiment(NAME, tmp_path / "nothing", pictured=["cifar10"], only=["cola", "cifar10"])
    assert not run.result.good and "pictured names benchmarks with wrong captions, cola; not 'cifar10'" in run.text


def test_what_a_run_was_trained_on_is_compared_with_the_benchmarks(tmp_path, experiment):
    data = write_benchmarks(tmp_path / "data")
    shutil.copytree(data / "coco", tmp_path / "gone")
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}

    def photos(at):
        return {"images": str(at / "val2017"), "annotations": str(at / "annotations/captions_val2017.json")}

    world = {"name": "generated", "args": {"preset": "small", "n_train": 16, "n_test": 8, "size": 32}}
    for name, source in (
        ("study/clip-s0", {"name": "coco", "args": photos(data / "coco")}),
        ("base", {"name": "coco", "args": photos(data / "coco")}),
        ("study/lost-s0", {"name": "coco", "args": photos(tmp_path / "gone")}),
        ("study/lesson-s0", world),
        ("study/orphan-s0", world),
    ):
        start = {"study/lesson-s0": "../clip-s0", "study/orphan-s0": "../../base"}.get(name)
        config = {
            "method": {"name": "clip", "args": {"steps": 2, "ramp": 1}},
            "model": {"vision": tower | {"patch": 8}, "text": tower},
            "data": source,
            "train": {"batch_size": 4, "precision": "fp32"},
            "start": start and {"run": start, "phase": -1},
            "seed": 0,
        }
        launch(prepare(tmp_path / name, config).path, "cpu", False)
    for folder in ("gone", "base"):
        shutil.rmtree(tmp_path / folder)
    only = ["sugarcrepe", "cola", "cifar10"]
    where = {"models": [str(tmp_path / "study")], "data_folder": str(data), "only": only}
    run = experiment(NAME, tmp_path / "out", overlap="keep", versus=["lost", "clip"], **where)
    assert run.good
    assert "lost" in (tmp_path / "out" / "wins" / "sugarcrepe-counts.csv").read_text().splitlines()[0].split(",")[4]
    assert (tmp_path / "out" / "wins" / "sugarcrepe-page.html").exists()
    said = run.text
    found = Result.read(tmp_path / "out")
    counts = {(r["method"], r["data"]): r["value"] for r in found.rows if r["metric"] == "train_overlap_images"}
    assert counts["clip", "sugarcrepe"] == counts["lesson", "sugarcrepe"] == 42 and counts["orphan", "sugarcrepe"] == 0
    assert {method for method, _ in counts} == {"clip", "lesson", "orphan"}
    assert (
        "warning: orphan-s0: overlap with the benchmarks not checked for the data of a run that it started from" in said
    )
    reports = found.setting["overlap"]["report"]
    assert "32 of 32 training pairs compared" in reports["lesson-s0"]
    assert "base is not a run: there is no such" in reports["orphan-s0"]
    assert "cifar10: test: 4 kept" in said and "class names: the data's own; prompts: " in said
    assert "clip-s0 was trained on the photo of 42 items of sugarcrepe, and on a caption of 0 others" in said
    assert "warning: lost-s0: overlap with the benchmarks not checked, since its training data cannot be read" in said
    assert "16 of 16 training pairs compared" in found.setting["overlap"]["report"]["clip-s0"]
    assert "blind_ngram" in {r["method"] for r in found.rows} and found.setting["blind_ngram"]["left_out"]
    dropped = experiment(NAME, tmp_path / "dropped", **where)
    assert dropped.good and Result.read(tmp_path / "dropped").setting["overlap"]["dropped"]["sugarcrepe"] == 42
    assert "sugarcrepe" not in {r["data"] for r in Result.read(tmp_path / "dropped").rows if r["metric"] == "accuracy"}
    refused = experiment(NAME, tmp_path / "no", overlap="refuse", **where)
    assert "the models were trained on what they are asked: 42 of sugarcrepe" in refused.text
    shutil.copytree(tmp_path / "study" / "clip-s0", tmp_path / "more" / "clip-s0")
    where["models"] = [f"first={tmp_path}/study/clip-s0", f"second={tmp_path}/more/clip-s0"]
    both = experiment(NAME, tmp_path / "both", overlap="keep", **where)
    asked = [r for r in Result.read(tmp_path / "both").rows if r["metric"] == "train_overlap_images"]
    assert both.good and {(r["method"], r["value"]) for r in asked if r["data"] == "sugarcrepe"} == {
        ("first", 42),
        ("second", 42),
    }, "two runs whose folders have one name"


@pytest.mark.real
def test_sugarcrepe_and_nlvr_for_an_open_clip_model_and_a_run_of_our_own(tmp_path, real_data, experiment):
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    config = {
        "method": {"name": "clip", "args": {"steps": 2, "ramp": 1}},
        "model": {"vision": tower | {"patch": 8}, "text": tower},
        "data": {"name": "generated", "args": {"preset": "small", "n_train": 32}},
        "train": {"batch_size": 8, "precision": "fp32"},
        "seed": 3,
    }
    launch(prepare(tmp_path / "study" / "runs" / "clip-s3", config).path, "cpu", False)
    saved = save_model(
        build_model({"vision": tower | {"patch": 8}, "text": tower}, WordTokenizer.fit(["a dog"])), tmp_path / "kept"
    )
    published = [str(small_open_clip(tmp_path / "small_clip")), str(small_clip_model(tmp_path / "published"))]
    models = [*published, str(tmp_path / "study"), str(saved)]
    only = ["sugarcrepe", "nlvr", "winoground"]
    run = experiment(
        NAME,
        tmp_path / "out",
        preset="demo",
        models=models,
        data_folder=str(real_data),
        only=only,
        limit=20,
        quick_gelu="true",
    )
    assert run.good
    said = run.text
    rows = Result.read(tmp_path / "out").rows
    assert {(r["method"], r["seed"]) for r in rows if r["data"] == "sugarcrepe"} >= {
        ("small_clip", None),
        ("published", None),
        ("clip", 3),
        ("kept", None),
        ("blind_ngram", None),
    }
    assert all(
        r["low"] <= r["value"] <= r["high"]
        for r in rows
        if r["metric"] == "accuracy" and r["method"] in ("small_clip", "clip")
    )
    assert {r["split"] for r in rows if r["data"] == "sugarcrepe" and r["method"] == "clip"} >= {"swap_att", "mean"}
    assert any(r["metric"] == "auc" for r in rows)
    assert "2 benchmarks found, 0 without photos, 1 missing" in said
    assert Result.read(tmp_path / "out").setting["found"]["winoground"] == "missing"
