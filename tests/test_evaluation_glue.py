"""GLUE's files as they are published, with their odd lines, and the tasks whose answers are numbers."""

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from complearn.data.reports import BadData
from complearn.evaluation.tasks.glue import files as glue_files
from complearn.evaluation.tasks.glue.probes import Glue, _pair_features, _rank_interval
from complearn.models.towers.libraries import HFText
from complearn.models.towers.tokenizers import HFTokenizer
from complearn.models.wordspace import WordSpace

SENTENCES = ("A dog\x0c runs.", "A cat\u2028 sleeps.", 'He said "no.', "A line\x1c of\x85 signs\r here.")


def write(folder, name, header, lines):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("\n".join([*header, *lines]) + "\n", encoding="utf-8", newline="")


def pairs(n, answer):
    return [f"{k}\t{SENTENCES[k % 4]}\tAnother {k}.\t{answer(k)}" for k in range(n)]


def test_a_line_ends_at_a_line_feed_only(tmp_path):
    write(tmp_path / "CoLA", "train.tsv", (), [f"gj04\t{k % 2}\t\t{text}" for k, text in enumerate(SENTENCES)])
    (tmp_path / "CoLA/dev.tsv").write_bytes(b"gj04\t1\t\tA dog.\r\ngj04\t0\t\tA cat.\r\n\r\n")
    train, dev, _ = glue_files.read_task(tmp_path / "CoLA")
    assert train.texts == tuple((text,) for text in SENTENCES) and train.labels == ("0", "1", "0", "1")
    assert dev.texts == (("A dog.",), ("A cat.",)) and not dev.report.n_skipped


def test_bad_lines_are_skipped_counted_and_named(tmp_path):
    header = ["index\tsentence1\tsentence2\tgold_label"]
    lines = pairs(300, lambda k: ("entailment", "neutral")[k % 2])
    lines[7] = "7\tcut off"
    lines[9] = "9\ta\t\tneutral"
    lines[11] = "11\ta\tb\t-"
    for name in ("train.tsv", "dev_matched.tsv", "dev_mismatched.tsv"):
        write(tmp_path / "MNLI", name, header, lines)
    with pytest.warns(
        UserWarning,
        match=r"297 kept; skipped 3: 1 lines of another width \(dev_matched.tsv line 9\).*empty cell.*agreed",
    ):
        train, dev, _ = glue_files.read_task(tmp_path / "MNLI")
    assert len(train.texts) == 297 == len(dev.labels) and train.report.n_skipped == 3
    with pytest.raises(BadData, match="line 9: 2 cells where there are 4.*3 of 300.*max_bad"):
        glue_files.read_task(tmp_path / "MNLI", max_bad=0.001)
    (tmp_path / "MNLI/train.tsv").write_bytes(b"index\tsentence1\xff\n")
    with pytest.raises(BadData, match="not UTF-8.*0xff at 15"):
        glue_files.read_task(tmp_path / "MNLI")


def test_the_mismatched_part_is_a_task_of_its_own(tmp_path):
    header = ["index\tsentence1\tsentence2\tgold_label"]
    for name, answer in (("train.tsv", "a"), ("dev_matched.tsv", "a"), ("dev_mismatched.tsv", "b")):
        write(tmp_path / "MNLI", name, header, pairs(3, lambda k, answer=answer: answer))
    assert glue_files.find_tasks(tmp_path) == {"MNLI": tmp_path / "MNLI", "MNLI-mm": tmp_path / "MNLI"}
    for folder in (tmp_path / "MNLI", tmp_path / "MNLI-mm"):
        assert glue_files.read_task(folder, "MNLI-mm")[1].labels == ("b", "b", "b")
    (tmp_path / "none").mkdir()
    with pytest.raises(BadData, match="none of the folders CoLA.*STS-B.*MNLI-mm"):
        glue_files.find_tasks(tmp_path / "none")


def test_numbers_are_learned_and_judged_by_rank(tmp_path):
    lines = [f"{k}\t{'a' * (k % 7)}.\t{'b' * (k % 5)}.\t{(k % 7) / 2 + (k % 5) / 4}" for k in range(300)]
    lines[3] = "3\ta\tb\tmuch"
    for name in ("train.tsv", "dev.tsv"):
        write(tmp_path / "STS-B", name, ["index\tsentence1\tsentence2\tscore"], lines)
    with pytest.warns(UserWarning, match="without a number"):
        train, dev, task = glue_files.read_task(tmp_path / "STS-B")

    def count(texts):
        return np.array([[text.count("a"), text.count("b")] for text in texts], dtype=np.float32)

    ranked = Glue(train, dev, task, epochs=15)
    (score,) = ranked.run(count)
    (majority,) = ranked.blind([])["majority"]
    assert score.metric == majority.metric == "spearman" and score.value > 0.95 and score.n == 299
    assert score.low <= score.value <= score.high and majority.value == 0 == majority.low
    (nothing,) = Glue(train, dev, task, epochs=2).run(lambda texts: np.zeros((len(texts), 2)))
    assert nothing.value == 0


def test_rank_intervals_are_scipys():
    draw = np.random.default_rng(0)
    for n in (10, 77):
        one, two = draw.integers(0, 6, (2, n)).astype(float)
        value, low, high = _rank_interval(one, two, 300)
        assert np.isclose(value, spearmanr(one, two).statistic) and low <= high


def test_two_sentences_are_read_together_as_in_bert():
    """Against the input written out by hand: [CLS] a [SEP] b [SEP], the second sentence marked, and the mean over all
    tokens."""
    transformers = pytest.importorskip("transformers")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "dogs", "run", "cats", "sleep"]
    inner = transformers.BertTokenizerFast(vocab={word: k for k, word in enumerate(words)})
    size = {
        "vocab_size": len(words),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
    }
    torch.manual_seed(0)
    module = transformers.BertModel(transformers.BertConfig(**size), add_pooling_layer=False).eval()
    torch.nn.init.normal_(module.embeddings.token_type_embeddings.weight)
    tower = HFText(module.config.to_dict(), module=module)
    tower.tokenizer = HFTokenizer(inner, 16)
    space = WordSpace(tower, cache=False)
    found = space.pairs([("dogs run", "cats sleep"), ("cats", "run")])
    ids = torch.tensor([[2, 5, 6, 3, 7, 8, 3]])
    segments = torch.tensor([[0, 0, 0, 0, 1, 1, 1]])
    with torch.no_grad():
        expected = module(input_ids=ids, token_type_ids=segments).last_hidden_state.mean(1)
    np.testing.assert_allclose(found[:1], expected.numpy(), atol=1e-5)
    texts = [("dogs run", "cats sleep"), ("cats", "run")]
    assert _pair_features(space, texts).shape == (2, 8) and _pair_features(space, texts, joint=False).shape == (2, 32)
