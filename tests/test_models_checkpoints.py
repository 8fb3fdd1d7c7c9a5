"""Checkpoints as people have them: every form of the table in docs/own-model.md, read without running it; what cannot
be read is refused."""

import copy
import json
import os
import pickle
import shlex
import warnings
import zipfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may reach out

import pytest
import torch
from safetensors.torch import load_file, save_file

from complearn.models.dual import build_model
from complearn.models.towers.checkpoints import _openai_config, is_clip_folder, read_weights
from complearn.models.towers.openclip import OpenClipScorer, load_open_clip

open_clip = pytest.importorskip("open_clip")
transformers = pytest.importorskip("transformers")

NAME = "complearn-small"
SIZES = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 1, "width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 64, "heads": 1, "layers": 1},
}
SIDES = {"hidden_size": 64, "intermediate_size": 256, "num_hidden_layers": 1, "num_attention_heads": 1}


def small_clip(quick_gelu=True):
    torch.manual_seed(0)
    return open_clip.CLIP(**SIZES, quick_gelu=quick_gelu).eval()


@pytest.fixture(autouse=True)
def known_name(tmp_path_factory):
    "open_clip knows a small model by name."
    file = tmp_path_factory.mktemp("configs") / f"{NAME}.json"
    file.write_text(json.dumps(SIZES))
    open_clip.add_model_config(file)


# each makes a checkpoint in a folder and returns its name, the original model and the arguments of `load_open_clip`


def published_tag(folder, monkeypatch):
    model = small_clip()
    tag = {"mean": [0.5] * 3, "std": [0.5] * 3, "quick_gelu": True, "url": "nowhere"}
    save_file(model.state_dict(), folder / "download.safetensors")
    for place in (open_clip, open_clip.factory):
        monkeypatch.setattr(place, "get_pretrained_cfg", lambda name, weights: tag if weights == "openai" else {})
    monkeypatch.setattr(open_clip.factory, "download_pretrained", lambda *_, **__: str(folder / "download.safetensors"))
    return f"{NAME}:openai", model, {}


def hub(folder, monkeypatch):
    model = small_clip()
    save_file(model.state_dict(), folder / "download.safetensors")
    monkeypatch.setattr(
        open_clip.factory, "_get_hf_config", lambda *_, **__: {"model_cfg": copy.deepcopy(SIZES) | {"quick_gelu": True}}
    )
    monkeypatch.setattr(
        open_clip.factory, "download_pretrained_from_hf", lambda *_, **__: str(folder / "download.safetensors")
    )
    return "hf-hub:someone/clip", model, {}


def open_clip_folder(folder, monkeypatch):
    model = small_clip()
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": SIZES | {"quick_gelu": True}, "preprocess_cfg": {}})
    )
    return str(folder), model, {}


def clip_model(act="quick_gelu", **config):
    vision = SIDES | {"hidden_act": act, "image_size": 32, "patch_size": 16}
    text = SIDES | {"hidden_act": act, "max_position_embeddings": 16}
    torch.manual_seed(0)
    config = transformers.CLIPConfig(vision_config=vision, text_config=text | config, projection_dim=24)
    return transformers.CLIPModel(config).eval()


def clip_folder(folder, monkeypatch, act="quick_gelu", binary=False):
    model = clip_model(act)
    with torch.no_grad():
        for parameter in model.parameters():  # no bias is zero and no norm is the identity
            parameter += 0.1 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    settings = {"image_mean": [0.1] * 3, "image_std": [0.2] * 3, "crop_size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    if binary:
        torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
        (folder / "model.safetensors").unlink()
    model.encode_image = lambda pictures: model.visual_projection(
        model.vision_model(pixel_values=pictures).pooler_output
    )
    model.encode_text = lambda ids: model.text_projection(model.text_model(input_ids=ids).pooler_output)
    return str(folder), model, {}


def save_archive(model, file, dtype=torch.float32):
    inputs = torch.zeros(1, 3, 32, 32), torch.full((1, 16), 49407)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.trace(copy.deepcopy(model), inputs, check_trace=False, strict=False).to(dtype).save(file)
    return str(file)


def archive(folder, monkeypatch):
    model = small_clip()
    return save_archive(model, folder / "ViT-small.pt"), model, {}


def named_archive(folder, monkeypatch):
    model = small_clip()
    return f"{NAME}:{save_archive(model, folder / 'ViT-small.pt')}", model, {}


def safetensors_file(folder, monkeypatch, quick_gelu=True):
    model = small_clip(quick_gelu)
    save_file(model.state_dict(), folder / "mine.safetensors")
    return f"{NAME}:{folder}/mine.safetensors", model, {"quick_gelu": quick_gelu}


def state_dict_file(folder, monkeypatch):
    model = small_clip()
    torch.save(model.state_dict(), folder / "mine.pt")
    return f"{NAME}:{folder}/mine.pt", model, {"quick_gelu": True}


def training_checkpoint(folder, monkeypatch):
    model = small_clip()
    torch.save(
        {"epoch": 3, "state_dict": {f"module.{key}": value for key, value in model.state_dict().items()}},
        folder / "epoch_3.pt",
    )
    return f"{NAME}:{folder}/epoch_3.pt", model, {"quick_gelu": True}


def weights_folder(folder, monkeypatch):
    model = small_clip()
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return f"{NAME}:{folder}", model, {"quick_gelu": True}


FORMS = {  # rows of the table in docs/own-model.md
    "`ViT-B-32:openai`": [published_tag],
    "`hf-hub:OWNER/NAME`": [hub],
    "`FOLDER` with `open_clip_config.json`": [open_clip_folder],
    "`FOLDER` of a `CLIPModel`": [
        clip_folder,
        lambda folder, patch: clip_folder(folder, patch, "gelu"),
        lambda folder, patch: clip_folder(folder, patch, binary=True),
    ],
    "`FILE.pt` of OpenAI": [archive],
    "`ViT-B-32:FILE`": [
        safetensors_file,
        lambda folder, patch: safetensors_file(folder, patch, False),
        state_dict_file,
        training_checkpoint,
        named_archive,
    ],
    "`ViT-B-32:FOLDER`": [weights_folder],
}


@pytest.mark.parametrize("make", [make for makers in FORMS.values() for make in makers])
def test_every_form_gives_the_original_features(tmp_path, monkeypatch, make):
    name, original, arguments = make(tmp_path, monkeypatch)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        loaded = load_open_clip(name, **arguments)
    pictures = torch.randn(2, 3, 32, 32)
    ids = torch.tensor([[49406, 320, 49407] + [0] * 13, [49406, 320, 1929, 49407] + [0] * 12])
    with torch.no_grad():
        assert torch.allclose(loaded.model.eval().encode_image(pictures), original.encode_image(pictures), atol=1e-5)
        assert torch.allclose(loaded.model.encode_text(ids), original.encode_text(ids), atol=1e-5)
    assert loaded.transform["size"] == 32 and loaded.tokenizer.context == 16


def test_the_documentation_has_a_tested_row_for_every_form():
    text = (Path(__file__).parents[1] / "docs" / "own-model.md").read_text(encoding="utf-8")
    table = text.partition("| form | description | activation |")[2].partition("\n\n")[0]
    rows = [line.split("|")[1].strip() for line in table.splitlines() if line.startswith("| `")]
    assert rows == [*FORMS, "`ViT-B-32` with `random_weights`"]


def test_a_name_without_weights_needs_random_weights():
    remedy = r"in Python alone: complearn.load\('ViT-B-32', random_weights=True\)"
    with pytest.raises(ValueError, match=f"ViT-B-32 names no weights; give ViT-B-32:TAG .openai, .*{remedy}"):
        load_open_clip("ViT-B-32")
    with pytest.raises(ValueError, match="names no weights"):
        build_model({"vision": f"open_clip:{NAME}", "text": f"open_clip:{NAME}"})
    tower = {"tower": f"open_clip:{NAME}", "random_weights": True}
    model = build_model({"vision": tower, "text": tower}, seed=1)
    scorer = OpenClipScorer(NAME, random_weights=True)
    assert model.vision.tower.pooled_width == 24 and scorer.context == 16


def test_a_clip_folder_brings_its_normalisation_and_half_precision_weights_become_whole(tmp_path, monkeypatch):
    (tmp_path / "clip").mkdir()
    name, *_ = clip_folder(tmp_path / "clip", monkeypatch)
    assert load_open_clip(name).transform == {"size": 32, "mean": (0.1,) * 3, "std": (0.2,) * 3, "fit": "crop"}
    (tmp_path / "clip" / "preprocessor_config.json").unlink()
    assert load_open_clip(name).transform["mean"] == open_clip.OPENAI_DATASET_MEAN
    loaded = load_open_clip(save_archive(small_clip(), tmp_path / "half.pt", torch.float16))
    assert {parameter.dtype for parameter in loaded.model.parameters()} == {torch.float32}
    assert loaded.transform["mean"] == open_clip.OPENAI_DATASET_MEAN
    assert is_clip_folder(name)
    assert not is_clip_folder(tmp_path)


def test_an_archive_of_a_residual_network_gives_its_sizes():
    vision = {"image_size": 64, "layers": [1, 2, 1, 1], "width": 64, "patch_size": None}
    model = open_clip.CLIP(24, vision, SIZES["text_cfg"])
    assert _openai_config(model.state_dict()) == {
        "embed_dim": 24,
        "quick_gelu": True,
        "vision_cfg": vision,
        "text_cfg": SIZES["text_cfg"],
    }


# --- what is refused


class Hostile:
    def __reduce__(self):
        return os.system, ("touch executed",)


def hostile_pickle(folder):
    torch.save({"weight": Hostile()}, folder / "bad.pt")


def hostile_archive(folder):
    save_archive(small_clip(), folder / "good.pt")
    with zipfile.ZipFile(folder / "good.pt") as good, zipfile.ZipFile(folder / "bad.pt", "w") as bad:
        for name in good.namelist():
            bad.writestr(name, pickle.dumps(Hostile(), 2) if name.endswith("/data.pkl") else good.read(name))


def whole_model(folder):
    torch.save(small_clip(), folder / "bad.pt")


@pytest.mark.parametrize("make", [hostile_pickle, hostile_archive, whole_model])
def test_what_could_run_code_is_refused_with_the_command_that_converts_it(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    make(tmp_path)
    with pytest.raises(
        ValueError, match="bad.pt holds more than tensors, and reading the rest could run code; if you trust it"
    ) as caught:
        load_open_clip(f"{NAME}:{tmp_path}/bad.pt", quick_gelu=True)
    assert not (tmp_path / "executed").exists()
    if make is whole_model:
        *_, code = shlex.split(str(caught.value).partition("convert it once: ")[2])
        exec(code, {})
        loaded = load_open_clip(f"{NAME}:{tmp_path}/bad.safetensors", quick_gelu=True)
        assert torch.equal(loaded.model.visual.proj, small_clip().visual.proj)


def cut(folder):
    save_archive(small_clip(), folder / "bad.pt")
    content = bytearray((folder / "bad.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "bad.pt").write_bytes(content)


BROKEN = {
    "a flipped bit": (cut, "bad.pt: .*the file is damaged or holds no weights"),
    "half a file": (
        lambda folder: (folder / "bad.pt").write_bytes(os.urandom(999)),
        "bad.pt(: .*is damaged| holds more)",
    ),
    "an empty file": (lambda folder: (folder / "bad.pt").touch(), "bad.pt: .*the file is damaged or holds no weights"),
    "numbers without names": (lambda folder: torch.save([1, 2], folder / "bad.pt"), "bad.pt holds no weights by name"),
    "another model's weights": (
        lambda folder: torch.save({"visual.proj": torch.ones(3, 4)}, folder / "bad.pt"),
        r"bad.pt holds weights of another configuration: .* is missing there",
    ),
}


@pytest.mark.parametrize("make, message", BROKEN.values(), ids=BROKEN)
def test_broken_files_are_named(tmp_path, make, message):
    make(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_open_clip(f"{NAME}:{tmp_path}/bad.pt", quick_gelu=True)


def test_safetensors_that_are_cut_are_named(tmp_path):
    (tmp_path / "cut.safetensors").write_bytes(b"\x10\0\0\0")
    with pytest.raises(ValueError, match="cut.safetensors: .*the file is damaged"):
        read_weights(tmp_path / "cut.safetensors")
    with pytest.raises(FileNotFoundError, match="gone.pt does not exist"):
        read_weights(tmp_path / "gone.pt")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"vocab_size": 60}, "has 60 tokens, so its tokenizer is not CLIP's; take its halves as hf:FOLDER"),
        ({"hidden_act": "gelu"}, "has the activations gelu, quick_gelu and layer norms"),
        ({"layer_norm_eps": 1e-6}, "which open_clip's CLIP has not"),
    ],
)
def test_clip_folders_that_open_clip_cannot_compute_are_refused(tmp_path, change, message):
    clip_model(**change).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_open_clip(str(tmp_path))


def test_folders_and_files_that_say_too_little_name_the_remedy(tmp_path):
    torch.save(small_clip().state_dict(), tmp_path / "mine.pt")
    with pytest.raises(ValueError, match="mine.pt is a file of weights, and does not say its model; give MODEL:FILE"):
        load_open_clip(str(tmp_path / "mine.pt"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match="no config.json of a CLIPModel; for a folder of weights alone give MODEL:FOLDER"
    ):
        load_open_clip(str(tmp_path / "empty"))
    with pytest.raises(FileNotFoundError, match="empty holds no weights"):
        load_open_clip(f"{NAME}:{tmp_path}/empty")
    (tmp_path / "empty" / "config.json").write_text(json.dumps({"model_type": "clip"}))
    with pytest.raises(FileNotFoundError, match="neither model.safetensors nor pytorch_model.bin"):
        load_open_clip(str(tmp_path / "empty"))
    torch.jit.script(torch.nn.Linear(2, 2)).save(tmp_path / "linear.pt")
    with pytest.raises(ValueError, match="linear.pt is a TorchScript archive, but not of CLIP"):
        load_open_clip(str(tmp_path / "linear.pt"))
    with pytest.warns(
        UserWarning, match="a file does not say its activation, GELU is assumed; say quick_gelu=True or False"
    ):
        load_open_clip(f"{NAME}:{tmp_path}/mine.pt")


# --- another size, another model, other names --------------------------------


def named(folder, name, **sizes):
    "open_clip knows a small model of other sizes by name."
    config = {key: values | sizes.get(key, {}) if isinstance(values, dict) else values for key, values in SIZES.items()}
    (folder / f"{name}.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder / f"{name}.json")
    return config


def weights_of(config, file):
    torch.manual_seed(0)
    torch.save(open_clip.CLIP(**config).state_dict(), file)
    return file


def test_weights_of_another_image_size_are_refused_with_the_name_that_fits(tmp_path):
    "open_clip resizes the positions, and the model was judged at another size than it was trained for."
    large = named(tmp_path, "complearn-small-64", vision_cfg={"image_size": 64})
    file = weights_of(large, tmp_path / "size64.pt")
    with pytest.raises(ValueError) as error:
        load_open_clip(f"{NAME}:{file}", quick_gelu=False)
    said = str(error.value)
    assert "for images of 64 pixels (17 positions), and this model takes 32 pixels (5 positions)" in said
    assert (
        f"{file} holds weights" in said
        and f"the weights fit complearn-small-64; give complearn-small-64:{file}" in said
    )
    assert load_open_clip(f"complearn-small-64:{file}", quick_gelu=False).transform["size"] == 64


def test_weights_of_another_caption_length_are_refused(tmp_path):
    file = weights_of(SIZES | {"text_cfg": SIZES["text_cfg"] | {"context_length": 12}}, tmp_path / "short.pt")
    with pytest.raises(ValueError, match="for captions of 12 tokens, and this model takes 16") as error:
        load_open_clip(f"{NAME}:{file}", quick_gelu=False)
    assert "put an open_clip_config.json that says text_cfg.context_length 12 beside the weights" in str(error.value)
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": SIZES | {"quick_gelu": False}}))
    file.rename(tmp_path / "open_clip_model.bin")
    with pytest.raises(ValueError, match="for captions of 12 tokens"):
        load_open_clip(str(tmp_path))


def test_a_clip_folder_with_weights_of_another_size_is_refused(tmp_path, monkeypatch):
    clip_folder(tmp_path, monkeypatch)
    config = json.loads((tmp_path / "config.json").read_text())
    config["vision_config"]["image_size"] = 48
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"for images of 32 pixels \(5 positions\), and this model takes 48 pixels"):
        load_open_clip(str(tmp_path))


def test_a_file_under_the_name_of_another_model_is_named(tmp_path):
    "The width of the text half differed, which was an AssertionError of open_clip."
    wide = SIZES | {"text_cfg": SIZES["text_cfg"] | {"width": 128, "heads": 2}}
    file = weights_of(wide, tmp_path / "wide.pt")
    with pytest.raises(ValueError, match="wide.pt holds weights of another configuration") as error:
        load_open_clip(f"{NAME}:{file}", quick_gelu=False)
    assert "no model of open_clip has these shapes; give the name or the configuration" in str(error.value)
    with pytest.raises(ValueError, match=f"the weights fit {NAME}; give {NAME}:.*mine.pt"):
        torch.save(small_clip().state_dict(), tmp_path / "mine.pt")
        load_open_clip(f"RN50:{tmp_path / 'mine.pt'}", quick_gelu=True)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod.", "_orig_mod.module."])
def test_names_of_compiled_and_distributed_training_are_those_of_the_model(tmp_path, prefix):
    model = small_clip()
    torch.save({"state_dict": {f"{prefix}{k}": v for k, v in model.state_dict().items()}}, tmp_path / "run.pt")
    pictures = torch.randn(2, 3, 32, 32)
    loaded = load_open_clip(f"{NAME}:{tmp_path}/run.pt", quick_gelu=True).model.eval()
    assert torch.equal(loaded.encode_image(pictures), model.encode_image(pictures))


def test_names_of_a_compiled_tower_are_those_of_the_model(tmp_path):
    model = small_clip()
    state = {name.replace("visual.", "visual._orig_mod."): tensor for name, tensor in model.state_dict().items()}
    save_file(state, tmp_path / "run.safetensors")
    assert read_weights(tmp_path / "run.safetensors").keys() == model.state_dict().keys()


def test_a_home_folder_is_written_out_behind_the_model(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    torch.save(small_clip().state_dict(), tmp_path / "mine.pt")
    load_open_clip(f"{NAME}:~/mine.pt", quick_gelu=True)
    tower = {"tower": f"open_clip:{NAME}:~/mine.pt", "quick_gelu": True}
    assert build_model({"vision": tower, "text": tower}).logit_scale.exp().item() == pytest.approx(1 / 0.07)


def test_a_configuration_that_is_silent_about_its_activation_is_warned_of(tmp_path):
    save_file(small_clip(False).state_dict(), tmp_path / "open_clip_model.safetensors")
    (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": SIZES}))
    with pytest.warns(UserWarning, match=r"open_clip_config.json does not say the activation, GELU is assumed"):
        load_open_clip(str(tmp_path))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_open_clip(str(tmp_path), quick_gelu=False)
        (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": SIZES | {"quick_gelu": False}}))
        load_open_clip(str(tmp_path))
