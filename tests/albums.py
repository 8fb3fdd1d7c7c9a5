"A folder of photos with captions for tests, and models to start from."

import json

import numpy as np
import torch
from PIL import Image

COLOURS = ["red", "blue", "green", "black", "white"]
NOUNS = ["dog", "cat", "horse", "bird", "car"]


def caption(number):
    first = f"{COLOURS[number % 5]} {NOUNS[number // 5 % 5]}"
    return f"a {first} and a {COLOURS[(number + 2) % 5]} {NOUNS[(number // 5 + 2) % 5]} number {number}"


def write_photos(folder, count=45):
    "Pictures of noise, which no look confuses, with a captions.csv."
    folder.mkdir(parents=True)
    draw = np.random.default_rng(0)
    for number in range(count):
        Image.fromarray(draw.integers(0, 255, (24, 24, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    lines = [f"{number}.png,{caption(number)}\n" for number in range(count)]
    (folder / "captions.csv").write_text("image,caption\n" + "".join(lines))
    return folder


def write_open_clip(folder):
    "A tiny model in open_clip's form, with random weights and a temperature of its own."
    import open_clip
    from safetensors.torch import save_file

    vision = {"image_size": 32, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16}
    text = {"context_length": 24, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1}
    config = {"embed_dim": 24, "quick_gelu": True, "vision_cfg": vision, "text_cfg": text}
    torch.manual_seed(0)
    weights = open_clip.CLIP(**config).state_dict() | {"logit_scale": torch.tensor(50.0).log()}
    folder.mkdir(parents=True)
    save_file(weights, folder / "open_clip_model.safetensors")
    content = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(content))
    return folder


def write_clip_model(folder):
    "A tiny model in the form of transformers, with random weights."
    import transformers

    sides = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    vision = sides | {"image_size": 32, "patch_size": 8}
    text = sides | {"max_position_embeddings": 24}
    config = transformers.CLIPConfig(vision_config=vision, text_config=text, projection_dim=24)
    transformers.CLIPModel(config).save_pretrained(folder)
    return folder


def train_here(runs, steps, on_end=lambda run: None, **how):
    "In the place of `run_all`: every run in this process, without the start of another."
    from complearn.training.runs.launch import launch

    for run in runs:
        launch(run.path, "cpu", progress=False, online=True)
        on_end(run)
    return list(runs)
