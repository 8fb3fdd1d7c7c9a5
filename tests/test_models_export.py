"Models written as open_clip, as transformers and as bare files, and read there by the libraries' own loaders."

import json
from dataclasses import replace

import albums
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

import complearn
from complearn import command
from complearn.core.forms import BARE, FOLDERS
from complearn.core.own_files import ForeignFile
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models import export
from complearn.models.dual import build_model
from complearn.models.export import NoForm, export_model
from complearn.models.registry import build, load_model
from complearn.models.scoring import encode_all
from complearn.models.towers.tokenizers import CLIPTokenizer, HFTokenizer
from complearn.training.runs.snapshots import Snapshot

open_clip = pytest.importorskip("open_clip")
transformers = pytest.importorskip("transformers")

SOURCES = {"open_clip": albums.write_open_clip, "transformers": albums.write_clip_model}
WEIGHTS = {"open_clip": "open_clip_model.safetensors", "transformers": "model.safetensors"}
CAPTIONS = ["a red dog and a green horse number 1", "A BLUE cat, and: a white car number 2!"]
TINY = {"tower": "tiny", "width": 32, "depth": 1, "heads": 2}
OWN = {"vision": TINY | {"size": 32, "patch": 16}, "text": TINY, "width": 24}


def words():
    return WordTokenizer.fit([albums.caption(number) for number in range(45)], context=20)


def library_vectors(folder, form, images, captions):
    "The vectors of pictures and captions by a library that opens the folder itself, all by its own means."
    images = [Image.open(image).convert("RGB") for image in images]
    with torch.no_grad():
        if form == "open_clip":
            model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
            pixels = torch.stack([transform(image) for image in images])
            ids = open_clip.get_tokenizer(f"local-dir:{folder}")(captions)
            model.eval()
            return model.encode_image(pixels, normalize=True), model.encode_text(ids, normalize=True)
        model = transformers.CLIPModel.from_pretrained(folder).eval()
        pixels = transformers.AutoImageProcessor.from_pretrained(folder)(images, return_tensors="pt")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids = tokenizer(captions, padding=True, truncation=True, return_tensors="pt")
        said = model(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"], **pixels)
        return said.image_embeds, said.text_embeds


def check_same_vectors(model, folder, form, pairs):
    images = [pair.image for pair in pairs]
    seen, said = library_vectors(folder, form, images, CAPTIONS)
    ours = encode_all(model, images=images).values
    assert torch.allclose(said, encode_all(model, texts=CAPTIONS).values, atol=1e-5)
    assert torch.cosine_similarity(seen, ours).min() > 0.999  # a library may round a resized picture otherwise
    assert len(seen) == len(ours) > 1 and not torch.allclose(ours[0], ours[1], atol=1e-3)


@pytest.mark.parametrize("form", list(SOURCES))
def test_export_without_training_has_the_tensors_of_the_source_bit_for_bit(form, tmp_path):
    "What `load` opens, and the dual encoder from which a training starts; also by way of the other form."
    source = SOURCES[form](tmp_path / "source")
    stored = load_file(source / WEIGHTS[form])
    name = f"open_clip:{source}"
    other = next(one for one in SOURCES if one != form)
    between = complearn.export(source, tmp_path / "between", form=other)
    for number, model in enumerate((source, build_model({"vision": name, "text": name}), between)):
        written = load_file(complearn.export(model, tmp_path / str(number), form=form) / WEIGHTS[form])
        assert written.keys() == stored.keys()
        assert all(torch.equal(written[name], tensor) for name, tensor in stored.items())
        assert all(written[name].dtype == tensor.dtype for name, tensor in stored.items())


@pytest.mark.parametrize("form", list(SOURCES))
def test_a_fine_tuned_clip_gives_the_same_vectors_in_its_own_library(form, album, tmp_path, here):
    source = SOURCES[form](tmp_path / "source")
    asked = {"preset": "smoke", "steps": 2, "lr": 0.01, "device": "cpu"}
    run = complearn.train("negclip", album, start=source, out=tmp_path / "run", **asked)
    folder = complearn.export(run, tmp_path / "mine", form=form)
    before = load_file(source / WEIGHTS[form])
    after = load_file(folder / WEIGHTS[form])
    assert before.keys() == after.keys()
    moved = [name for name in before if not torch.equal(before[name], after[name])]
    assert len(moved) > len(before) / 2
    model = complearn.load(run)
    check_same_vectors(model, folder, form, complearn.read(album)[:4])
    again = complearn.load(folder)
    torch.testing.assert_close(again.model.logit_scale.reshape(()), model.logit_scale, rtol=0, atol=0)
    assert again.collate.transform == model.collate.transform


@pytest.mark.parametrize("form", list(SOURCES))
def test_own_towers_give_the_same_vectors_in_other_libraries(form, album, tmp_path):
    model = build_model(OWN, words()).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # biases and norms do not start at their trained values
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    folder = complearn.export(model, tmp_path / "mine", form=form)
    check_same_vectors(model, folder, form, complearn.read(album)[:4])


def test_a_snapshot_a_run_and_a_saved_model_are_exported(album, tmp_path, here):
    run = complearn.train("clip", album, preset="smoke", steps=2, out=tmp_path / "run", device="cpu")
    first = load_file(complearn.export(run, tmp_path / "a") / WEIGHTS["open_clip"])
    saved = complearn.export(Snapshot(run), tmp_path / "saved", form="complearn")
    assert load_model(saved).config == complearn.load(run).config
    for number, place in enumerate((f"{run.path}@contrastive", saved, run.path.parents[1])):
        other = load_file(complearn.export(place, tmp_path / f"b{number}") / WEIGHTS["open_clip"])
        assert other.keys() == first.keys() and all(torch.equal(other[name], first[name]) for name in first)


@pytest.mark.parametrize("form", list(BARE))
def test_a_bare_file_holds_the_weights_under_the_names_of_open_clip(form, tmp_path):
    source = albums.write_open_clip(tmp_path / "source")
    config = json.loads((source / "open_clip_config.json").read_text())["model_cfg"]
    (tmp_path / "complearn-bare.json").write_text(json.dumps(config))
    open_clip.add_model_config(tmp_path / "complearn-bare.json")
    name = f"open_clip:{source}"
    model = build_model({"vision": name, "text": name})
    file = complearn.export(model, tmp_path / f"mine{BARE[form]}")
    again = complearn.load(f"complearn-bare:{file}", quick_gelu=True)
    assert torch.equal(
        encode_all(again, texts=CAPTIONS).values, encode_all(complearn.load(source), texts=CAPTIONS).values
    )


def test_a_bare_file_of_another_model_has_its_own_names(tmp_path):
    model = build_model(OWN | {"codebook": {"codes": 8}}, words())
    written = load_file(complearn.export(model, tmp_path / "mine.safetensors"))
    assert written.keys() == model.state_dict().keys()


def test_a_bias_of_the_logits_is_exported(tmp_path):
    name = f"open_clip:{albums.write_open_clip(tmp_path / 'source')}"
    model = build_model({"vision": name, "text": name, "logit_bias": -9.5})
    again = complearn.load(complearn.export(model, tmp_path / "mine")).model
    assert again.logit_bias.item() == -9.5 and torch.equal(again.logit_scale, model.logit_scale)


def pretrained(folder, **more):
    name = f"open_clip:{albums.write_open_clip(folder)}"
    return {"vision": name, "text": name} | more


REFUSED = {
    "codebook": (lambda folder: OWN | {"codebook": {"codes": 8}}, "a codebook of 8 codes"),
    "reading": (lambda folder: OWN | {"reading": {"blind_to": "order"}}, "a language agent that is blind to order"),
    "spectral": (lambda folder: OWN | {"spectral": True}, "spectral normalisation of its layers"),
    "both ways": (
        lambda folder: OWN | {"text": TINY | {"causal": False}},
        "a text tower that reads in both directions",
    ),
    "resnet": (
        lambda folder: OWN | {"vision": {"tower": "resnet"}},
        r"a vision tower of another library \(resnet_vision",
    ),
    "head": (lambda folder: pretrained(folder, width=16), "a head over the vision tower's own projection"),
}


@pytest.mark.parametrize("part", list(REFUSED))
@pytest.mark.parametrize("form", ["open_clip", "transformers"])
def test_a_part_that_a_form_cannot_hold_is_named_with_the_remedy(part, form, tmp_path):
    config, expected = REFUSED[part]
    model = build_model(config(tmp_path / "source"), words())
    with pytest.raises(NoForm, match=f"{expected}.* cannot hold; choose the form complearn"):
        export_model(model, tmp_path / "mine", form)
    assert not (tmp_path / "mine").exists()
    assert load_model(export_model(model, tmp_path / "mine", "complearn")).config == model.config


def test_a_model_of_another_kind_is_refused_with_its_parts(tmp_path):
    composer = build({"kind": "composer", **{side: OWN[side] for side in ("vision", "text")}}, words())
    with pytest.raises(
        NoForm, match="is no pair of an image encoder and a text encoder: it has the parts language, vision, score"
    ):
        export_model(composer, tmp_path / "mine")


def test_a_clip_with_stages_is_refused_and_one_of_its_stages_is_exported(tmp_path):
    staged = build({"kind": "clip_stages", **OWN, "stages": 2}, words())
    staged.learned.fill_(2)
    for stage in range(2):
        staged.restore(stage)
    torch.nn.init.ones_(staged.encoders[1].head.weight)
    for form in SOURCES:
        with pytest.raises(NoForm, match=r"of 2 stages has a vision agent for each stage.*model.scorer\(k\)"):
            export_model(staged, tmp_path / "mine", form)
    written = load_file(export_model(staged, tmp_path / "mine.safetensors"))
    assert written.keys() == staged.state_dict().keys()
    folder = export_model(staged.scorer(1), tmp_path / "one", "open_clip")
    again, one = complearn.load(folder).model, staged.scorer(1)
    assert torch.equal(again.visual.proj, one.vision.head.weight.T)


def test_a_kind_of_model_that_is_more_than_a_dual_encoder_is_refused(tmp_path, monkeypatch):
    model = build(OWN, words())
    monkeypatch.setattr(type(model.config), "kind", "tilted", raising=False)
    monkeypatch.setattr(export, "title_of", lambda config: "tilted dual encoder")
    with pytest.raises(NoForm, match="this model has the parts of a tilted dual encoder, which"):
        export_model(model, tmp_path / "mine")


@pytest.mark.parametrize("form", list(SOURCES))
def test_an_own_text_tower_that_reads_byte_pairs_keeps_their_numbers(form, album, tmp_path):
    "The end token of CLIP's byte pairs has the highest number already."
    model = build_model(OWN, CLIPTokenizer(20)).eval()
    folder = complearn.export(model, tmp_path / "mine", form=form)
    check_same_vectors(model, folder, form, complearn.read(album)[:4])


def test_an_own_text_tower_over_a_tokenizer_of_transformers_is_refused(tmp_path):
    tokenizer = HFTokenizer(export._word_tokenizer(words()), 20)
    with pytest.raises(NoForm, match="that reads the tokens of a transformers tokenizer"):
        export_model(build_model(OWN, tokenizer), tmp_path / "mine")


@pytest.mark.parametrize("fit", ["pad", "squash"])
def test_a_library_prepares_oblong_pictures_as_the_model_does(fit, tmp_path):
    "Also how they are padded: with white."
    model = build_model(OWN | {"fit": fit}, words())
    model.vision.tower.transform["interpolation"] = "bilinear"
    model.collate = replace(model.collate, transform=model.vision.tower.make_transform(fit))
    folder = export_model(model, tmp_path / "mine", "open_clip")
    picture = Image.radial_gradient("L").resize((80, 50)).convert("RGB")
    *_, theirs = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    assert (theirs(picture) - model.collate.transform([picture])[0]).abs().mean() < 0.01
    again = complearn.load(folder).collate.transform
    assert again == model.collate.transform and again.interpolation == "bilinear"


def test_settings_of_open_clip_that_transformers_has_not_are_named(tmp_path):
    cases = {"a bias of its logits": pretrained(tmp_path / "bias", logit_bias=-9.5)}
    cases["made square by 'pad'"] = pretrained(tmp_path / "pad", fit="pad")
    source = albums.write_open_clip(tmp_path / "mean")
    content = json.loads((source / "open_clip_config.json").read_text())
    content["model_cfg"]["vision_cfg"]["pool_type"] = "avg"
    (source / "open_clip_config.json").write_text(json.dumps(content))
    cases["no vision_cfg.pool_type, which is 'avg' here"] = dict.fromkeys(("vision", "text"), f"open_clip:{source}")
    for expected, config in cases.items():
        model = build_model(config)
        with pytest.raises(NoForm, match=f"{expected}.*; choose the form open_clip"):
            export_model(model, tmp_path / "mine", "transformers")
        assert not (tmp_path / "mine").exists()
        again = complearn.load(export_model(model, tmp_path / "mine", "open_clip", force=True))
        assert again.collate.transform == model.collate.transform
        (tmp_path / "mine").rename(tmp_path / f"mine {len(list(tmp_path.iterdir()))}")


def test_nothing_is_overwritten_without_consent_and_nothing_through_a_link(tmp_path):
    model = build_model(OWN, words())
    export_model(model, tmp_path / "mine")
    before = (tmp_path / "mine" / WEIGHTS["open_clip"]).read_bytes()
    with pytest.raises(FileExistsError, match="holds files already; .* --force"):
        export_model(build_model(OWN, words(), seed=1), tmp_path / "mine")
    assert (tmp_path / "mine" / WEIGHTS["open_clip"]).read_bytes() == before
    export_model(build_model(OWN, words(), seed=1), tmp_path / "mine", force=True)
    assert (tmp_path / "mine" / WEIGHTS["open_clip"]).read_bytes() != before
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match=r"holds other files \(thesis.tex\)"):
        export_model(model, tmp_path / "mine", force=True)
    with pytest.raises(FileExistsError, match="holds other files"):
        export_model(model, tmp_path / "mine", "transformers", force=True)
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    (tmp_path / "link.pt").symlink_to(tmp_path / "mine" / "thesis.tex")
    for place in ("link", "link.pt"):
        with pytest.raises(ForeignFile, match=f"{place} is a link to .*nothing is read or written through it"):
            export_model(model, tmp_path / place, force=True)
    assert (tmp_path / "mine" / "thesis.tex").read_text() == "years of work"
    export_model(model, tmp_path / "mine.pt")
    with pytest.raises(FileExistsError, match="mine.pt is there already"):
        export_model(model, tmp_path / "mine.pt")
    export_model(model, tmp_path / "mine.pt", force=True)
    with pytest.raises(ValueError, match="the form pt is a file whose name ends with .pt"):
        export_model(model, tmp_path / "mine.bin", "pt")
    with pytest.raises(FileExistsError, match="is a file, and the form open_clip is a folder"):
        export_model(model, tmp_path / "mine.pt", "open_clip")


def test_export_as_a_command(tmp_path, capsys):
    source = albums.write_open_clip(tmp_path / "source")
    assert command.main(["export", str(source), str(tmp_path / "mine"), "--form", "transformers"]) == 0
    out = capsys.readouterr().out
    assert f"transformers.CLIPModel.from_pretrained('{tmp_path / 'mine'}')" in out
    assert f"complearn judge {tmp_path / 'mine'} --benchmarks DATA" in out
    files = {file.name for file in (tmp_path / "mine").iterdir()}
    assert {"config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json"} <= files
    assert files <= set(FOLDERS["transformers"])
    assert command.main(["export", str(source), str(tmp_path / "mine")]) == 2
    assert "holds files already" in capsys.readouterr().err
    assert command.main(["export", str(source), str(tmp_path / "mine.pt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "place": str(tmp_path / "mine.pt"), "form": "pt", "files": ["mine.pt"],
    }  # fmt: skip
