"""Own towers, agents and the dual encoder: masks, padding, spawns, seeds, gradients."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from complearn.data.pairs import Batch, Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.agents import build_seeded, copy_weights
from complearn.models.dual import build_model
from complearn.models.registry import read_model
from complearn.models.scoring import Scorer
from complearn.models.towers.base import SIZES, Attention, TextTransformer, VisionTransformer, attend, content_mask

CAPTIONS = [
    "a red circle above a blue square",
    "a blue circle above a red square",
    "a green star",
    "two small dotted red circles",
]
CODES = {"codes": 48}


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer.fit(CAPTIONS, context=20)


@pytest.fixture(scope="module")
def pairs():
    pixels = np.random.default_rng(0).integers(0, 255, (4, 32, 32, 3), dtype=np.uint8)
    return [Pair(image, caption, str(i), str(i)) for i, (image, caption) in enumerate(zip(pixels, CAPTIONS))]


def small(tokenizer, codebook=None, seed=0, **config):
    shallow = {"vision": {"tower": "tiny", "depth": 1}, "text": {"tower": "tiny", "depth": 2}}
    return build_model(shallow | {"codebook": codebook} | config, tokenizer, seed)


def test_attention_against_softmax():
    torch.manual_seed(0)
    attention = Attention(12, 3, causal=True)
    x = torch.randn(2, 5, 12)
    q, k, v = attention.inner(x).chunk(3, -1)
    heads = []
    for h in range(3):
        part = slice(4 * h, 4 * h + 4)
        logits = q[..., part] @ k[..., part].transpose(1, 2) / 2
        logits = logits.masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        heads.append(logits.softmax(-1) @ v[..., part])
    assert torch.allclose(attention(x), attention.outer(torch.cat(heads, -1)), atol=1e-5)


@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-6), (torch.bfloat16, 0.03), (torch.float16, 0.004)])
# torch's kernel takes one or the other
@pytest.mark.parametrize("causal, masked", [(False, False), (False, True), (True, False)])
@pytest.mark.parametrize("count", [1, 17, 600])
def test_attention_in_half_precision_is_the_fused_one(dtype, close, causal, masked, count):
    """Values and gradients against torch's kernel in fp32; 600 tokens are more than plain products are used for."""
    g = torch.Generator().manual_seed(count)
    leaves = [torch.randn(2, 2, count, 8, generator=g).to(dtype).requires_grad_() for _ in range(3)]
    exact = [leaf.detach().float().requires_grad_() for leaf in leaves]
    mask = torch.rand(2, 1, 1, count, generator=g) < 0.7 if masked else None
    if masked:
        mask[..., 0] = True
    found = attend(*leaves, mask, causal)
    wanted = F.scaled_dot_product_attention(*exact, attn_mask=mask, is_causal=causal)
    assert found.dtype == dtype and torch.allclose(found.float(), wanted, atol=close)
    for a, b in zip(
        torch.autograd.grad(found.float().sin().sum(), leaves), torch.autograd.grad(wanted.sin().sum(), exact)
    ):
        assert a.dtype == dtype and (a.float() - b).norm() <= close + 3 * close * b.norm()


def test_patches_equal_a_convolution():
    tower = VisionTransformer(size=16, patch=4, width=12, depth=1)
    images = torch.randn(2, 3, 16, 16)
    kernel = tower.embed.weight.reshape(12, 3, 4, 4)
    wanted = torch.nn.functional.conv2d(images, kernel, stride=4).flatten(2).transpose(1, 2)
    seen = {}
    tower.embed.register_forward_hook(lambda _, __, out: seen.update(out=out))
    tower(images)
    assert torch.allclose(seen["out"], wanted, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_padding_changes_nothing(causal):
    torch.manual_seed(0)
    tower = TextTransformer(vocab=30, context=12, width=24, depth=2, heads=2, causal=causal).eval()
    ids = torch.tensor([[1, 5, 6, 7, 2]])
    padded = torch.nn.functional.pad(ids, (0, 5))
    beside = torch.cat([padded, torch.tensor([[1, 8, 9, 10, 11, 12, 13, 14, 15, 2]])])
    alone = tower(ids, ids > 0)
    among = tower(beside, beside > 0)
    assert torch.allclose(alone.pooled[0], among.pooled[0], atol=1e-5)
    assert torch.allclose(alone.tokens[0], among.tokens[0, :5], atol=1e-5)
    assert among.mask[0].tolist() == [False, True, True, True, True] + [False] * 5


def test_speaking_tokens():
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]]).bool()  # start and end only; start, two words, end
    assert content_mask(mask).int().tolist() == [[0, 1, 0, 0], [0, 1, 1, 1]]
    # an end token that is all there is stays
    assert content_mask(mask, keep_end=False).int().tolist() == [[0, 1, 0, 0], [0, 1, 1, 0]]
    assert torch.equal(content_mask(mask, start=False, end=False, keep_end=False), mask)


def test_start_token_and_padding_never_fire(tokenizer, pairs):
    model = small(tokenizer, CODES)
    batch = model.collate(pairs)
    model.calibrate(batch)
    reading = model.read(model.language, batch)
    lengths = batch.mask.sum(1)
    assert (reading.firing > 0).all() and (reading.firing < lengths[:, None]).all()
    without_end = small(tokenizer, CODES, text={"tower": "tiny", "depth": 2, "keep_end": False})
    without_end.calibrate(batch)
    assert (without_end.read(without_end.language, batch).firing < lengths[:, None] - 1).all()


def test_codes_of_a_caption_do_not_depend_on_its_company(tokenizer, pairs):
    model = small(tokenizer, CODES | {"temperature": 0.5})
    alone = model.read(model.language, model.collate([pairs[2]]))
    among = model.read(model.language, model.collate(pairs))
    assert torch.allclose(alone.scores[0], among.scores[2], atol=1e-5) and torch.equal(alone.firing[0], among.firing[2])
    assert torch.allclose(alone.embedding[0], among.embedding[2], atol=1e-5)


def test_same_seed_same_model_and_codebook_shares_towers(tokenizer):
    torch.manual_seed(5)
    first = small(tokenizer, CODES, seed=3)
    drawn = torch.rand(1)
    second = small(tokenizer, CODES, seed=3)
    torch.manual_seed(5)
    assert torch.equal(drawn, torch.rand(1))  # building leaves the global generator as it was
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters()))
    plain = small(tokenizer, seed=3)
    other = small(tokenizer, seed=4)
    for agent in ("vision", "language"):
        mine, theirs, others = (list(getattr(m, agent).tower.parameters()) for m in (plain, first, other))
        assert all(torch.equal(a, b) for a, b in zip(mine, theirs))
        assert not torch.equal(mine[0], others[0])


@pytest.mark.parametrize("codebook", [None, CODES])
@pytest.mark.parametrize("which", ["language", "vision"])
def test_respawn_is_really_fresh(tokenizer, codebook, which):
    "Every parameter of the agent is shifted first, gains and biases too: whatever a spawn forgets stays shifted."
    model = small(tokenizer, codebook)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.125
    before = {name: (id(p), p.data_ptr(), p.clone()) for name, p in model.named_parameters()}
    fresh = model.respawn(which, seed=9)
    agent = getattr(model, which)
    assert {id(p) for p in fresh} == {id(p) for p in agent.parameters()}
    for name, parameter in model.named_parameters():
        same_object, same_place, old = before[name]
        assert id(parameter) == same_object and parameter.data_ptr() == same_place
        assert torch.equal(parameter, old) != name.startswith(which), name
    reborn = [p.clone() for p in agent.parameters()]
    model.respawn(which, seed=9)
    assert all(torch.equal(a, b) for a, b in zip(reborn, agent.parameters()))
    model.respawn(which, seed=10)
    assert not torch.equal(reborn[0], next(agent.parameters()))


def test_respawned_has_the_statistics_of_birth(tokenizer):
    "A spawn draws from the distributions of initialisation: same deviations, other numbers."
    model = small(tokenizer)
    born = {name: p.std().item() for name, p in model.language.named_parameters() if p.numel() > 500}
    model.respawn("language", 1)
    for name, parameter in model.language.named_parameters():
        if name in born:
            assert math.isclose(parameter.std().item(), born[name], rel_tol=0.15), name


def test_wrong_respawn_is_named(tokenizer):
    with pytest.raises(ValueError, match="'language' or 'vision', not 'codebook'"):
        small(tokenizer).respawn("codebook")


def test_a_copied_agent_speaks_through_the_same_codebook(tokenizer, pairs):
    model = small(tokenizer, CODES)
    batch = model.collate(pairs)
    model.calibrate(batch)
    teacher = copy.deepcopy(model.language)
    said = model.read(model.language, batch)
    model.respawn("language", 1)
    again = model.read(teacher, batch)
    assert torch.equal(said.scores, again.scores) and torch.equal(said.embedding, again.embedding)
    assert not torch.allclose(model.read(model.language, batch).embedding, again.embedding, atol=1e-2)


@pytest.mark.parametrize("codebook", [None, CODES, CODES | {"similarity": "dot"}])
@pytest.mark.parametrize("query_head", [True, False])
def test_every_parameter_gets_a_gradient(tokenizer, pairs, codebook, query_head):
    "Distributed training refuses parameters without one."
    model = small(tokenizer, codebook, query_head=query_head)
    model.calibrate(model.collate(pairs))
    out = model(model.collate(pairs))
    logits = out.scale * out.image @ out.text.T
    torch.nn.functional.cross_entropy(logits, torch.arange(4)).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_outputs(tokenizer, pairs):
    model = small(tokenizer, CODES)
    model.calibrate(model.collate(pairs))
    out = model(model.collate(pairs))
    for side in (out.image, out.text):
        assert side.dtype == torch.float32 and torch.allclose(side.norm(dim=-1), torch.ones(4), atol=1e-5)
    assert out.image_scores.abs().max() <= 1 + 1e-5  # cosines
    assert torch.allclose(out.text_weights.sum(-1), torch.ones(4), atol=1e-5)
    rebuilt = torch.nn.functional.normalize(out.text_weights @ model.codebook.codes, dim=-1)
    assert torch.allclose(out.text, rebuilt, atol=1e-5)
    assert small(tokenizer)(model.collate(pairs)).image_scores is None


def test_calibration_is_of_the_whole_first_batch(tokenizer, pairs):
    model = small(tokenizer, CODES)
    batch = model.collate(pairs)
    found = model.calibrate(batch)
    assert set(found) == {"vision", "language"}
    out = model(batch)
    for weights in (out.image_weights, out.text_weights):
        assert abs((weights > 0).float().mean().item() - 0.15) < 0.02
    assert model.calibrate(batch) == {}  # once
    assert small(tokenizer).calibrate(batch) == {}
    assert small(tokenizer, CODES | {"temperature": 1.0}).calibrate(batch) == {}


def test_logit_scale_is_kept_below_100_and_comes_back(tokenizer, pairs):
    model = small(tokenizer)
    with torch.no_grad():
        model.logit_scale.fill_(9.0)
    out = model(model.collate(pairs))
    assert out.scale.item() == pytest.approx(100)
    out.scale.backward()
    assert model.logit_scale.grad > 0  # a clamp in the graph would hold it there for good


def test_scorer(tokenizer, pairs):
    model = small(tokenizer, CODES).train()
    assert isinstance(model, Scorer)
    batch = model.collate(pairs)
    model.calibrate(batch)
    with torch.autocast("cpu", torch.bfloat16):  # evaluation is in full precision even so
        images = model.encode_images(batch)
        texts = model.encode_texts(batch)
        matrix = model.similarity(images, texts)
    assert matrix.dtype == torch.float32 and matrix.shape == (4, 4) and not images.values.requires_grad
    assert all(module.training for module in model.modules())  # the mode is as before
    assert torch.allclose(matrix, images.values @ texts.values.T, atol=1e-6)
    assert torch.allclose(
        model.similarity(images, texts, torch.tensor([[0, 1], [3, 2]])), matrix[[0, 3], [1, 2]], atol=1e-6
    )
    captions_only = model.collate([Pair(None, p.caption, p.id, p.image_id) for p in pairs])
    assert captions_only.images is None
    assert torch.allclose(model.encode_texts(captions_only).values, texts.values, atol=1e-6)


def test_fingerprint_is_of_weights_and_vocabulary(tokenizer):
    model = small(tokenizer)
    before = model.fingerprint()
    assert before == model.fingerprint() == small(tokenizer).fingerprint()
    other = WordTokenizer([*tokenizer.words[1:], tokenizer.words[0]], tokenizer.context)
    assert small(other).fingerprint() != before
    model.respawn("language", 1)
    assert model.fingerprint() != before


def test_sizes_hold_together():
    for name, dial in SIZES.items():
        with torch.device("meta"):
            vision = VisionTransformer(**dial["vision"])
            text = TextTransformer(vocab=100, **dial["text"])
        assert vision.width == dial["vision"]["width"] and text.pooled_width == dial["text"]["width"], name


def test_bad_configurations_say_what_to_do(tokenizer):
    with pytest.raises(ValueError, match="no model key 'vison' .* there are vision, text, reading, width"):
        read_model({"vison": "tiny"})
    with pytest.raises(ValueError, match="unknown tower 'huge'; known: tiny"):
        build_model({"vision": "huge"}, tokenizer)
    with pytest.raises(ValueError, match="needs a tokenizer: fit a WordTokenizer"):
        build_model({}, None)
    with pytest.raises(ValueError, match="33 px does not divide into patches of 4"):
        build_model({"vision": {"tower": "tiny", "size": 33}}, tokenizer)
    with pytest.raises(ValueError, match="width 96 does not divide into 5 heads"):
        build_model({"text": {"tower": "tiny", "heads": 5}}, tokenizer)
    for wrong, said in (
        ({"vision": {"tower": "tiny", "deep": 2}}, "no vision tower 'tiny' key 'deep' .*there are size, patch"),
        ({"text": {"tower": "open_clip:ViT-B-32", "layers": 2}}, "text tower 'open_clip': .*'layers'"),
        ({"codebook": {"code": 8}}, "no model.codebook key 'code' .*there are codes, init"),
        ({"codebook": {"codes": 8, "width": 3}}, "no model.codebook key 'width'"),
        ({"codebook": [8]}, "model.codebook should be a mapping with the keys codes, init"),
        *(({"codebook": {"codes": n}}, "model.codebook.codes should be") for n in (0, -3, "x", True)),
        *(
            ({side: {"tower": "tiny", "width": n}}, f"{side} tower 'tiny'")
            for side in ("vision", "text")
            for n in (0, -8)
        ),
        ({"vision": {"tower": "tiny", "heads": 0}}, "vision tower 'tiny'"),
        ({"codebook": {"codes": 8, "init": "zeros"}}, "model.codebook.init should be 'unit' or 'normal'"),
    ):
        with pytest.raises(ValueError, match=said):
            read_model(wrong)  # before a run's folder is made
    with pytest.raises(ValueError, match="the key 'tower'"):
        build_model({"vision": {"depth": 2}}, tokenizer)


def test_inputs_of_the_wrong_size_say_so(tokenizer):
    model = small(tokenizer)
    with pytest.raises(ValueError, match="images of 48 px came to a tower of 32 px"):
        model.vision.tower(torch.randn(1, 3, 48, 48))
    long = torch.ones(1, 25, dtype=torch.int64)
    with pytest.raises(ValueError, match="25 tokens came to a tower with a context of 20"):
        model.language.tower(long, long > 0)


def test_seeded_and_overwrite():
    wide = torch.nn.Linear(4, 4)
    narrow = torch.nn.Linear(4, 4, bias=False)
    with pytest.raises(ValueError, match="modules differ in .'bias'."):
        copy_weights(wide, narrow)
    made = [build_seeded(lambda: torch.nn.Linear(4, 4), seed) for seed in (1, 1, 2)]
    assert torch.equal(made[0].weight, made[1].weight) and not torch.equal(made[0].weight, made[2].weight)


def test_bf16_forward_stays_near(tokenizer, pairs):
    model = small(tokenizer, CODES | {"temperature": 0.5}).eval()
    batch = model.collate(pairs)
    exact = model(batch)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(batch)
    assert rough.image.dtype == torch.float32
    assert torch.cosine_similarity(exact.image, rough.image).min() > 0.98
    assert torch.cosine_similarity(exact.text, rough.text).min() > 0.98


@pytest.mark.gpu
def test_respawn_on_a_gpu_is_that_of_the_cpu(tokenizer):
    here = small(tokenizer, CODES)
    there = small(tokenizer, CODES).cuda()
    for model in (here, there):
        model.respawn("language", 4)
    assert all(torch.equal(a, b.cpu()) for a, b in zip(here.parameters(), there.parameters()))


def test_batch_without_the_side_is_refused(tokenizer):
    model = small(tokenizer)
    empty = Batch(None, None, None, torch.zeros(1, dtype=torch.int64), ("a",))
    with pytest.raises(ValueError, match="vision agent got a batch without images"):
        model.encode_images(empty)
    with pytest.raises(ValueError, match="language agent got a batch without captions"):
        model.encode_texts(empty)
