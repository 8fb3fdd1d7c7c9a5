"""Causal vision-language models as scorers, against a plain loop over their own logits."""

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from tiny_generative import write_llava, write_paligemma, write_qwen

import complearn
from complearn.core.config import RequestError
from complearn.core.files import BadData
from complearn.core.trust import Untrusted
from complearn.data.benchmarks.items import Choice
from complearn.data.pairs import Pair
from complearn.evaluation.tasks.choices import Choices
from complearn.models.generative import GenerativeScorer
from complearn.models.scoring import Scorer, encode_all
from complearn.models.towers.limits import TooLarge
from complearn.training.runs.opening import describe_model, find_models

FORMS = {"llava": write_llava, "qwen": write_qwen, "paligemma": write_paligemma}
CAPTIONS = ["dog", "a red dog", "a cat on the mat", "the horse under a blue mat . the green dog on a cat ."]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    root = tmp_path_factory.mktemp("generative")
    return {name: write(root / name) for name, write in FORMS.items()}


def pictures(count=3):
    draw = np.random.default_rng(0)
    return [draw.integers(0, 255, (40, 30 + 12 * k, 3), dtype=np.uint8) for k in range(count)]


def plain_log_probabilities(folder, image, prompt, continuation):
    "Each token of a continuation after a prompt: a forward pass for each, without padding, cache or batch."
    import transformers

    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype="auto").eval()
    processor = transformers.AutoProcessor.from_pretrained(folder)
    given = dict(processor(images=[[Image.fromarray(image)]], text=[prompt], return_tensors="pt"))
    given.pop("labels", None)
    given = {key: value.to(model.dtype) if value.is_floating_point() else value for key, value in given.items()}
    values = []
    for token in processor.tokenizer(continuation, add_special_tokens=False)["input_ids"]:
        with torch.no_grad():
            logits = model(**given).logits[0, -1]
        values.append(float(torch.log_softmax(logits.double(), -1)[token]))
        behind = {"input_ids": token, "attention_mask": 1, "token_type_ids": 1, "mm_token_type_ids": 0}
        for key in behind.keys() & given.keys():
            given[key] = torch.cat([given[key], torch.tensor([[behind[key]]])], 1)
    return values


def scores_of(scorer, images, captions, **options):
    return scorer.similarity(encode_all(scorer, images=images), encode_all(scorer, texts=captions), **options)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("at_once", [1, 5, 64])
def test_likelihoods_are_those_of_a_loop_over_tokens(folders, form, at_once):
    scorer = GenerativeScorer(f"generative:{folders[form]}", at_once=at_once)
    got = scores_of(scorer, pictures(), CAPTIONS)
    total = scores_of(GenerativeScorer(f"generative:sum:{folders[form]}", at_once=at_once), pictures(), CAPTIONS)
    assert isinstance(scorer, Scorer) and got.shape == (3, 4) and got.std() > 0.1
    for i, j in ((0, 0), (1, 2), (2, 3)) if at_once > 1 else ((1, 2),):
        plain = plain_log_probabilities(folders[form], pictures()[i], scorer.prompt, CAPTIONS[j])
        assert got[i, j].item() == pytest.approx(np.mean(plain), abs=1e-4)
        assert total[i, j].item() == pytest.approx(np.sum(plain), abs=1e-3)


@pytest.mark.parametrize(["dtype", "tolerance"], [(torch.float32, 1e-4), (torch.bfloat16, 0.1), (torch.float16, 0.02)])
@pytest.mark.parametrize("form", ["llava", "qwen"])
def test_padding_changes_no_score_in_any_precision(tmp_path, form, dtype, tolerance):
    scorer = GenerativeScorer(f"generative:{FORMS[form](tmp_path / form, dtype)}", at_once=64)
    assert scorer.model.dtype == dtype
    together = scores_of(scorer, pictures(), CAPTIONS)
    scorer.at_once = 1
    assert torch.allclose(scores_of(scorer, pictures(), CAPTIONS), together, atol=tolerance)


def test_a_model_that_gives_all_its_logits_has_the_same_scores(folders, monkeypatch):
    scorer = GenerativeScorer(f"generative:{folders['llava']}")
    expected = scores_of(scorer, pictures(), CAPTIONS)
    forward = scorer.model.forward
    for change in (lambda logits_to_keep=0, **given: forward(**given), lambda **given: forward(**given)):
        monkeypatch.setattr(scorer.model, "forward", change)
        assert torch.allclose(scores_of(scorer, pictures(), CAPTIONS), expected, atol=1e-5)


def test_pairs_are_those_of_the_whole_table(folders):
    scorer = GenerativeScorer(f"generative:{folders['llava']}")
    whole = scores_of(scorer, pictures(), CAPTIONS)
    pairs = [(2, 0), (0, 3), (0, 3)]
    assert torch.allclose(scores_of(scorer, pictures(), CAPTIONS, pairs=pairs), whole[[2, 0, 0], [0, 3, 3]], atol=1e-5)
    assert scores_of(scorer, pictures(), CAPTIONS, pairs=[]).shape == (0,)


def test_the_answer_yes_has_the_log_odds_of_its_probability(folders):
    scorer = GenerativeScorer(f"generative:yes:{folders['llava']}")
    got = scores_of(scorer, pictures(2), CAPTIONS)
    prompt = scorer.prompt.replace("{}", CAPTIONS[1])
    assert "a red dog" in prompt and "answer yes or no" in prompt and prompt.endswith("ASSISTANT :")
    (log_probability,) = plain_log_probabilities(folders["llava"], pictures(2)[1], prompt, "Yes")
    odds = log_probability - math.log1p(-math.exp(log_probability))
    assert got[1, 1].item() == pytest.approx(odds, abs=1e-4)


def test_the_debiased_score_takes_the_mean_probability_under_noise_away(folders):
    from complearn.models.generative import _noise_pictures

    total = GenerativeScorer(f"generative:sum:{folders['llava']}")
    debiased = GenerativeScorer(f"generative:debiased:{folders['llava']}")
    noise = [np.asarray(picture) for picture in _noise_pictures()]
    prior = scores_of(total, noise, CAPTIONS).exp().mean(0).log()
    expected = scores_of(total, pictures(), CAPTIONS) - prior
    assert torch.allclose(scores_of(debiased, pictures(), CAPTIONS), expected, atol=1e-4)


def test_a_model_is_told_where_its_prompt_ends_and_one_that_sees_ahead_is_refused(folders, monkeypatch):
    assert GenerativeScorer(f"generative:{folders['llava']}").caption_types == {}
    assert GenerativeScorer(f"generative:{folders['paligemma']}").caption_types == {"token_type_ids": 1}
    inputs = GenerativeScorer._inputs

    def in_both_directions(self, *given):
        made, lengths = inputs(self, *given)
        return made | {"token_type_ids": torch.zeros_like(made["input_ids"])}, lengths

    monkeypatch.setattr(GenerativeScorer, "_inputs", in_both_directions)
    with pytest.raises(ValueError, match="paligemma sees a caption while it predicts it.*give a causal model"):
        GenerativeScorer(f"generative:{folders['paligemma']}")


def test_a_caption_that_spells_the_image_token_is_read_as_words(folders):
    scorer = GenerativeScorer(f"generative:yes:{folders['llava']}")
    assert torch.isfinite(scores_of(scorer, pictures(1), ["a <image> dog"])).all()


def test_judge_takes_a_generative_model_by_name(folders, tmp_path):
    for number, pixels in enumerate(pictures(4)):
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    lines = ["0.png,a red dog", "1.png,a blue cat", "2.png,a green horse", "3.png,the dog on the mat"]
    (tmp_path / "captions.csv").write_text("\n".join(["image,caption", *lines]) + "\n")
    name = f"tiny=generative:{folders['llava']}"
    result = complearn.judge([name, f"generative:yes:{folders['llava']}"], tmp_path, device="cpu")
    rows = result.table[(result.table.method == "tiny") & (result.table.metric == "r@1")]
    assert len(rows) and rows.value.between(0, 1).all()
    about = {model["method"]: model for model in result.setting["models"]}
    fingerprints = {model["fingerprint"] for model in about.values()}
    assert len(about["tiny"]["fingerprint"]) == 32 and len(fingerprints) == 2
    scorer = find_models(name)[0].open()
    assert describe_model(scorer)["fingerprint"] == about["tiny"]["fingerprint"]


def test_a_folder_is_recognised_without_the_prefix(folders):
    from complearn.analysis.runs.places import describe_place

    assert isinstance(complearn.load(folders["qwen"]), GenerativeScorer)
    place = describe_place(folders["qwen"])
    assert place.kind == "a generative model" and place.commands[0].startswith("complearn judge generative:")


def test_choices_are_answered_by_the_likelier_caption(folders):
    scorer = GenerativeScorer(f"generative:{folders['qwen']}")
    image = pictures(1)[0]
    scores = scores_of(scorer, [image], CAPTIONS[1:3])[0]
    order = CAPTIONS[1:3] if scores[0] > scores[1] else CAPTIONS[2:0:-1]
    choice = Choice("0", (image,), tuple(order), "split", image_ids=("0",))
    accuracy = {score.metric: score.value for score in Choices([choice]).run(scorer)}
    assert accuracy["accuracy"] == 1.0


def test_it_is_no_start_of_a_training_and_no_scorer_for_search(folders, tmp_path):
    name = f"generative:{folders['llava']}"
    with pytest.raises(RequestError, match="writes text and has no towers to train from"):
        complearn.train("clip", [Pair(None, "a dog", "0", "0")] * 8, start=name, out=tmp_path / "run")
    with pytest.raises(ValueError, match="no vector of either; choose a dual encoder"):
        GenerativeScorer(name).search_scorer()


# --- what is refused


def test_a_wrong_folder_is_one_clear_line(folders, tmp_path):
    (tmp_path / "clip").mkdir()
    (tmp_path / "clip" / "config.json").write_text('{"model_type": "clip"}')
    (tmp_path / "clip" / "model.safetensors").write_bytes(b"0")
    (tmp_path / "empty").mkdir()
    said = {
        f"generative:{tmp_path}/nothing": "there is no folder .*nothing; give one with a config.json",
        f"generative:{tmp_path}/empty": "empty holds no config.json",
        f"generative:{tmp_path}/clip": "model of type 'clip', which writes no text about an image",
        "generative:": "names no generative model; give generative:FOLDER, or one of generative:mean:FOLDER",
        f"generative:no:{folders['llava']}": "names no generative model; .* generative:yes:FOLDER",
    }
    for name, message in said.items():
        with pytest.raises((OSError, ValueError), match=message) as caught:
            find_models(name)
        assert "\n" not in str(caught.value)


def changed(folder, source, file, **values):
    import shutil

    shutil.copytree(source, folder)
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | values))
    return f"generative:{folder}"


@pytest.mark.parametrize("file", ["config.json", "processor_config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("value", [{"AutoProcessor": "mine.Mine", "AutoConfig": "mine.Mine"}])
def test_a_strangers_folder_runs_no_code(folders, tmp_path, file, value):
    name = changed(tmp_path / "stranger", folders["llava"], file, auto_map=value)
    (tmp_path / "stranger" / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(Untrusted, match=f"{file}.*'auto_map' is refused"):
        GenerativeScorer(name)
    assert not (tmp_path / "ran").exists()


def test_a_strangers_folder_names_no_other_place(folders, tmp_path):
    nested = {"image_processor": {"image_processor_type": "../elsewhere/x.py"}}
    with pytest.raises(Untrusted, match="processor_config.json.*may name code, an address or a file"):
        GenerativeScorer(changed(tmp_path / "a", folders["llava"], "processor_config.json", **nested))
    name = changed(tmp_path / "b", folders["llava"], "config.json")
    (tmp_path / "b" / "link").symlink_to("/etc/passwd")
    with pytest.raises(BadData, match="link is a link"):
        GenerativeScorer(name)


def test_a_strangers_weights_are_tensors_and_as_large_as_the_model(folders, tmp_path):
    name = changed(tmp_path / "pickle", folders["llava"], "config.json")
    (tmp_path / "pickle" / "model.safetensors").unlink()

    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "ran"), "w"))

    torch.save({"weights": Evil()}, tmp_path / "pickle" / "pytorch_model.bin")
    with pytest.raises(BadData, match="pickle"):
        GenerativeScorer(name)
    assert not (tmp_path / "ran").exists()
    text = json.loads((folders["llava"] / "config.json").read_text())["text_config"] | {"intermediate_size": 2**22}
    with pytest.raises(TooLarge, match="asks for a model of more than"):
        GenerativeScorer(changed(tmp_path / "large", folders["llava"], "config.json", text_config=text))


def test_a_template_runs_in_a_sandbox(folders, tmp_path):
    name = changed(tmp_path / "template", folders["llava"], "config.json")
    evil = "{{ ''.__class__.__mro__[1].__subclasses__() }}"
    (tmp_path / "template" / "chat_template.jinja").write_text(evil)
    with pytest.raises(ValueError, match="template.*cannot be rendered"):
        GenerativeScorer(name)
