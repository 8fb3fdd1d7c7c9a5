"""COMPOSER: concepts of a caption, recursion by level against recursion by node, scorers that compute what they are
asked for."""

import copy

import numpy as np
import pytest
import torch

from complearn.data.benchmarks.items import Choice
from complearn.data.images import Transform
from complearn.data.loading import Loader
from complearn.data.pairs import Pair
from complearn.data.regions import Regions
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.tasks.choices import evaluate_choices
from complearn.evaluation.tasks.retrieval import evaluate_retrieval
from complearn.language.parsing.base import Parser
from complearn.language.parsing.flat import flat_tree
from complearn.language.parsing.registry import PARSERS
from complearn.language.trees import Tree, parse_bracketed
from complearn.models.composer.composition import CompositionTransformer
from complearn.models.composer.concepts import (
    PARENT,
    STOP,
    TEXT,
    Concepts,
    GivenRegions,
    _word_starts,
    concept_collate,
    present,
)
from complearn.models.composer.pairing import concept_texts
from complearn.models.composer.recursion import Recursion, heights, naive_vectors
from complearn.models.registry import _write_config, build, load_model, read_model, save_model, search_fault, title_of
from complearn.models.scoring import Scorer, encode_all
from complearn.models.towers.base import Block, TextTransformer

LITTLE = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
TOWERS = {"vision": LITTLE | {"size": 16, "patch": 8}, "text": LITTLE}
KINDS = {"composer": {"layers": 3}, "vse": {}, "two_stream": {"image_layers": 1, "layers": 1}}
WORDS = "dog ball red left of near and runs the"


def tree(height, draw, chain=0.3):
    """A random tree of this height of concepts, with unary chains."""
    if height == 0:
        noun = Tree(str(draw.choice(["NN", "NNS"])), (str(draw.choice(["dog", "ball"])),))
        return Tree("NP", (noun,)) if draw.random() < 0.5 else noun
    heights = [height - 1, *draw.integers(0, height, draw.integers(0, 2))]
    parts = [tree(int(h), draw) for h in draw.permutation(heights)]

    def word():
        return Tree("IN", (str(draw.choice(["near", "of", "left"])),))

    mixed = [part for child in parts for part in (word(), child)][draw.integers(0, 2) :] + [word()]
    made = Tree(str(draw.choice(["NP", "S"])), tuple(mixed))
    return Tree("VP", (made,)) if draw.random() < chain else made


def pair(structure, name="0", image=None):
    return Pair(image, " ".join(structure.leaves()), name, name, tree=structure)


@pytest.fixture(scope="module")
def tokenizer():
    return WordTokenizer.fit([WORDS], context=220)


@pytest.fixture(scope="module")
def collate(tokenizer):
    return concept_collate(Transform(16), tokenizer)


@pytest.fixture(scope="module")
def pictures():
    return list(np.random.default_rng(0).integers(0, 255, (4, 16, 16, 3), dtype=np.uint8))


def by_node(model, regions, mask, batch, pairs):
    """The vectors of every pair by the recursion that is written as the paper reads."""
    vectors = torch.zeros(len(pairs), batch[Concepts].table.shape[1], regions.shape[-1], dtype=regions.dtype)
    for p, (image, text) in enumerate(pairs.tolist()):
        concepts = batch[Concepts].table[text][present(batch[Concepts].table)[text]]
        vectors[p, : len(concepts)] = naive_vectors(model, regions[image][mask[image]], batch.ids[text], concepts)
    return vectors


# --- recursion


SWITCHES = (
    {},
    {"layers": 1, "modulator": "mlp"},
    {"layers": 3, "primitives": "regions", "modulator": "replace"},
    {"primitives": "off"},
    {"layers": 3, "even": False},
    {"layers": 1, "modulator": "mlp", "even": False},
)
SHAPES = ((1, 1), (1, 4), (3, 1), (3, 5), (5, 3))  # height of the highest tree, captions
QUICK = [(3, 2, torch.float32, SWITCHES[0]), (2, 1, torch.float64, SWITCHES[2]), (3, 2, torch.float32, SWITCHES[4])]
GRID = [
    (*shape, dtype, switches) for shape in SHAPES for dtype in (torch.float32, torch.float64) for switches in SWITCHES
]


@pytest.mark.parametrize(
    "top, sizes, dtype, switches", [*QUICK, *(pytest.param(*each, marks=pytest.mark.slow) for each in GRID)]
)
def test_recursion_by_level_equals_recursion_by_node(top, sizes, dtype, switches, collate, tokenizer):
    draw = np.random.default_rng(top * 10 + sizes)
    batch = collate([pair(tree(int(draw.integers(0, top + 1)) if k else top, draw), str(k)) for k in range(sizes)])
    torch.manual_seed(sizes)
    tower = TextTransformer(len(tokenizer), 220, width=16, depth=2, heads=2, causal=False)
    model = Recursion(tower, heads=2, **{"layers": 5} | switches).to(dtype)
    regions = torch.randn(3, 5, 16, dtype=dtype, requires_grad=True)
    mask = torch.arange(5) < torch.tensor([5, 1, 3])[:, None]
    pairs = torch.cartesian_prod(torch.arange(3), torch.arange(sizes))[torch.randperm(3 * sizes)]
    assert int(heights(batch[Concepts].table).max()) == top
    results = []
    for vectors in (
        model(regions, mask, batch.ids, batch[Concepts].table, pairs),
        by_node(model, regions, mask, batch, pairs),
    ):
        weights = torch.sin(torch.arange(vectors.numel(), dtype=dtype)).view_as(vectors) / len(pairs)
        named = {"regions": regions} | dict(model.named_parameters())
        gradients = torch.autograd.grad((vectors * weights).sum(), list(named.values()), allow_unused=True)
        results.append((vectors.detach(), {name: g for name, g in zip(named, gradients) if g is not None}))
    (levels, quick), (nodes, slow) = results
    bound = 1e-4 if dtype is torch.float32 else 1e-12
    assert torch.allclose(levels, nodes, rtol=bound, atol=bound / 10)
    assert quick.keys() == slow.keys()
    assert (
        max(float((quick[name] - slow[name]).abs().max() / slow[name].abs().max().clamp_min(1)) for name in quick)
        < bound
    )


def test_a_pair_does_not_depend_on_the_pairs_beside_it(collate, tokenizer):
    draw = np.random.default_rng(5)
    batch = collate([pair(tree(h, draw), str(h)) for h in (3, 0, 1)])
    model = Recursion(TextTransformer(len(tokenizer), 220, width=16, depth=1, heads=2, causal=False), heads=2).eval()
    regions = torch.randn(2, 4, 16)
    mask = torch.ones(2, 4, dtype=torch.bool)
    whole = model(regions, mask, batch.ids, batch[Concepts].table, torch.tensor([[0, 0], [1, 1], [0, 2], [0, 0]]))
    alone = model(regions[:1], mask[:1], batch.ids[2:], batch[Concepts].table[2:], torch.tensor([[0, 0]]))
    assert torch.allclose(whole[2:3, : alone.shape[1]], alone, atol=1e-5) and torch.equal(whole[0], whole[3])
    assert (whole[1, 1:] == 0).all()


def test_argument_order_matters_but_for_replace(collate, tokenizer):
    """A composed concept knows which blank a concept fills; with `replace` the blanks' own vectors have no part."""
    texts = [f"(NP (NP (NN {one})) (IN near) (NP (NN {other})))" for one, other in (("dog", "ball"), ("ball", "dog"))]
    batch = collate([pair(parse_bracketed(text), str(k)) for k, text in enumerate(texts)])
    regions = torch.randn(1, 4, 16)
    mask = torch.ones(1, 4, dtype=torch.bool)
    pairs = torch.tensor([[0, 0], [0, 1]])
    for form in ("film", "mlp", "replace"):
        torch.manual_seed(0)
        model = Recursion(
            TextTransformer(len(tokenizer), 220, width=16, depth=1, heads=2, causal=False), heads=2, modulator=form
        ).eval()
        vectors = model(regions, mask, batch.ids, batch[Concepts].table, pairs)
        sentence = vectors[0, 0]
        exchanged = vectors[1, 0]
        assert torch.allclose(sentence, exchanged, atol=1e-5) == (form == "replace"), form
        sentence.cumsum(0).sum().backward()
        learned = [
            parameter.grad is not None and bool(parameter.grad.abs().sum() > 0)
            for parameter in model.modulator.parameters()
        ]
        assert all(learned) and bool(learned) == (form != "replace")


def test_the_first_slot_alone_is_what_it_is_beside_the_others():
    block = Block(16, 2, 3)
    mask = (torch.arange(5) < torch.tensor([[5], [2]]))[:, None, None]
    x = torch.randn(2, 5, 16, requires_grad=True)
    whole, alone = (
        torch.autograd.grad(out[:, 0].square().sum(), x)[0] for out in (block(x, mask), block(x, mask, first=True))
    )
    assert torch.allclose(block(x, mask)[:, :1], block(x, mask, first=True), atol=1e-6)
    assert torch.allclose(whole, alone, atol=1e-5)


def test_a_noun_that_several_captions_say_of_a_picture_is_grounded_once(collate, tokenizer, monkeypatch):
    model = Recursion(TextTransformer(len(tokenizer), 220, width=16, depth=1, heads=2, causal=False), heads=2).eval()
    noun = Tree("NN", ("dog",))
    phrase = Tree("NP", (Tree("DT", ("the",)), Tree("NN", ("dog",))))
    batch = collate([pair(noun), pair(phrase, "1"), pair(Tree("NN", ("ball",)), "2")])
    rows = []
    ground = model.primitives.forward
    monkeypatch.setattr(
        model.primitives, "forward", lambda words, *rest: rows.append(len(words)) or ground(words, *rest)
    )
    pairs = torch.cartesian_prod(torch.arange(2), torch.arange(3))
    vectors = model(torch.randn(2, 4, 16), torch.ones(2, 4, dtype=torch.bool), batch.ids, batch[Concepts].table, pairs)
    assert rows == [4] and torch.equal(vectors[0, 0], vectors[1, 1]) and not torch.equal(vectors[0, 0], vectors[3, 0])


NESTED = "(NP (NP (DT a) (NN {})) (PP (IN near) {}))"
NAMES = "dog ball cat tree boat house".split()


def gains(tokenizer, reach, seed):
    """How far a sentence's vector moves when a noun is exchanged, relative to its length, by the noun's depth."""
    config = {"vision": LITTLE | {"size": 16, "patch": 8}, "text": LITTLE | {"width": 32}, "layers": 3, "reach": reach}
    model = build({"kind": "composer"} | config, tokenizer, seed).eval()
    draw = np.random.default_rng(seed)
    nested = "(NP (DT a) (NN {}))"
    for _ in range(3):
        nested = NESTED.format("{}", nested)
    words = [draw.permutation(NAMES)[:4] for _ in range(24)]
    exchanged = [[[other, *row[1:]], [*row[:1], other, *row[2:]], [*row[:3], other]]
                 for row in words for other in [next(name for name in NAMES if name not in row)]]  # fmt: skip
    rows = [list(map(str, row)) for part in zip(words, *zip(*exchanged)) for row in part]
    pictures = draw.integers(0, 255, (24, 16, 16, 3), dtype=np.uint8)
    pairs = [pair(parse_bracketed(nested.format(*row)), str(k), pictures[k // 4]) for k, row in enumerate(rows)]
    with torch.no_grad():
        batch = model.collate(pairs)
        inputs = (*model.vision(batch), batch.ids, batch[Concepts].table, torch.arange(96)[:, None].expand(-1, 2))
        plain, *others = model.language(*inputs)[:, 0].unflatten(0, (24, 4)).unbind(1)
    moved = [float(((other - plain).norm(dim=1) / plain.norm(dim=1)).mean()) for other in others]
    return dict(zip((2, 3, 4), moved))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_nouns_of_any_depth_move_the_sentence_by_the_same_order(seed):
    tokenizer = WordTokenizer.fit([" ".join(["a near", *NAMES])], context=20)
    even, paper = (gains(tokenizer, reach, seed) for reach in ("even", "paper"))
    assert even[2] < 10 * even[4] and even[4] > 0.01
    assert paper[2] > 15 * paper[4] and paper[4] < 0.002


def test_weights_of_a_model_that_reads_as_in_the_paper_are_named(tokenizer):
    older = build({"kind": "composer", **TOWERS, "layers": 3, "reach": "paper"}, tokenizer)
    same = build({"kind": "composer", **TOWERS, "layers": 3, "reach": "paper"}, tokenizer, 1)
    same.load_state_dict(older.state_dict())
    with pytest.raises(ValueError, match='give the model "reach": "paper"'):
        build({"kind": "composer", **TOWERS, "layers": 3}, tokenizer).load_state_dict(older.state_dict())


def test_an_even_number_of_layers_is_refused():
    with pytest.raises(ValueError, match="1, 3, 5 ... layers; not 4"):
        CompositionTransformer(16, 4)
    with pytest.raises(ValueError, match="1, 3, 5 ... layers; not 2"):
        read_model({"kind": "composer", "layers": 2})


# --- concepts


def test_words_of_a_tree_are_found_in_its_caption():
    assert _word_starts("Don't (really) run, dog!", ["do", "n't", "(", "really", ")", "run", "dog"]) == [
        0,
        2,
        6,
        7,
        13,
        15,
        20,
    ]
    assert _word_starts('a "red" dog', ["a", "``", "red", "''", "dog"]) == [0, 2, 3, 6, 8]
    with pytest.raises(ValueError, match="word 1 is 'cat', the caption has 'dog runs'"):
        _word_starts("the dog runs", ["the", "cat", "runs"])
    with pytest.raises(ValueError, match="ends before the caption's 'runs'"):
        _word_starts("the dog runs", ["the", "dog"])


def test_a_tree_that_does_not_fit_is_replaced_and_counted(tokenizer, collate):
    wrong = Pair(
        None, "the dog runs near the ball", "bad", "0", tree=parse_bracketed("(S (NP (NN cat)) (VP (VBZ runs)))")
    )
    pairs = [wrong, pair(parse_bracketed("(S (NP (DT the) (NN dog)) (VP (VBZ runs)))"), "good")]
    with pytest.warns(UserWarning, match="pair bad: the caption has no tree that fits it"):
        loader = Loader(pairs, collate, 2, 0)
        stream = loader.batches()
        batch = next(stream)
        stream.close()
    assert loader.counts["unparsed"] == 1 and batch[Concepts].unparsed.sum() == 1
    assert present(batch[Concepts].table).sum(1).sort().values.tolist() == [3, 5]


def test_trees_come_from_pairs_from_rules_or_from_a_parser(tokenizer, monkeypatch):
    trees = {
        "the dog runs": parse_bracketed("(S (NP (DT the) (NN dog)) (VP (VBZ runs)))"),
        "the ball": parse_bracketed("(NN cat)"),
    }
    parser = Parser(lambda captions: [trees.get(caption) for caption in captions], ("tree",))
    monkeypatch.setitem(PARSERS.entries, "mine", parser)
    pairs = [
        Pair(None, caption, caption, caption, tree=parse_bracketed("(FRAG (NN dog))")) for caption in (*trees, "red")
    ]
    unparsed = {
        source: concept_collate(Transform(16), tokenizer, trees=source)(pairs)[Concepts].unparsed.tolist()
        for source in ("mine", "rules", "given")
    }
    assert unparsed == {"mine": [False, True, True], "rules": [False] * 3, "given": [True] * 3}
    with pytest.raises(ValueError, match="source of trees.*'brackets'"):
        read_model({"kind": "vse", "trees": "brackets"})


def test_pruned_trees_lose_phrases_the_same_ones_each_time(tokenizer):
    pairs = [pair(tree(3, np.random.default_rng(k)), str(k)) for k in range(20)]
    concepts = {
        share: concept_collate(Transform(16), tokenizer, prune=share)(pairs)[Concepts].table
        for share in (0.0, 0.5, 1.0)
    }
    whole, half, none = (present(each).sum(1) for each in concepts.values())
    assert (none <= half).all() and (half <= whole).all() and none.sum() < half.sum() < whole.sum()
    model = model_of("composer", tokenizer, prune=0.5)
    assert torch.equal(model.collate(pairs)[Concepts].table, concepts[0.5])
    assert model.fingerprint() != model_of("composer", tokenizer).fingerprint()
    with pytest.raises(ValueError, match="prune"):
        model_of("composer", tokenizer, prune=30)


def test_another_caption_of_the_image_does_not_get_the_pairs_tree(tokenizer):
    collate = concept_collate(Transform(16), tokenizer, choose=True)
    one = Pair(None, "the dog", "0", "0", tree=parse_bracketed("(NP (DT the) (NN dog))"), views=("the red ball runs",))
    batches = [collate([one], [draw]) for draw in range(20)]
    seen = {(int(batch.mask.sum()), bool(batch[Concepts].unparsed[0])) for batch in batches}
    assert seen == {(4, False), (6, True)}


@pytest.mark.parametrize("caption", ["runs", "of the red", "!!!", "near near near"])
def test_a_sentence_without_a_noun_is_all_predicate(caption, collate, tokenizer):
    batch = collate(
        [Pair(None, caption, "0", "0", tree=flat_tree(caption)), pair(tree(2, np.random.default_rng(0)), "1")]
    )
    model = Recursion(TextTransformer(len(tokenizer), 220, width=16, depth=1, heads=2, causal=False), heads=2)
    vectors = model(
        torch.randn(1, 4, 16),
        torch.ones(1, 4, dtype=torch.bool),
        batch.ids,
        batch[Concepts].table,
        torch.tensor([[0, 0], [0, 1]]),
    )
    assert torch.isfinite(vectors).all()


@pytest.mark.slow
def test_height_thirty_and_two_hundred_tokens(collate, tokenizer):
    deep = Tree("NP", (Tree("DT", ("the",)), Tree("NN", ("dog",))))
    for _ in range(29):
        deep = Tree("NP", (deep, Tree("PP", (Tree("IN", ("near",)), Tree("NP", (Tree("NN", ("ball",)),))))))
    long = Tree("S", tuple(Tree("NP", (Tree("JJ", ("red",)), Tree("NN", ("dog",)))) for _ in range(100)))
    batch = collate([pair(deep, "deep"), pair(long, "long")])
    assert heights(batch[Concepts].table).amax(1).tolist() == [30, 2] and batch.mask.sum(1).tolist()[1] == 202
    model = Recursion(TextTransformer(len(tokenizer), 220, width=16, depth=1, heads=2, causal=False), heads=2)
    regions = torch.randn(1, 4, 16)
    mask = torch.ones(1, 4, dtype=torch.bool)
    vectors = model(regions, mask, batch.ids, batch[Concepts].table, torch.tensor([[0, 0], [0, 1]]))
    assert torch.allclose(vectors, by_node(model, regions, mask, batch, torch.tensor([[0, 0], [0, 1]])), atol=1e-5)
    vectors.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters() if p.grad is not None)


def test_a_cut_caption_loses_the_concepts_behind_the_cut():
    whole = parse_bracketed("(S (NP (DT the) (NN dog)) (VP (VBZ runs) (PP (IN near) (NP (DT the) (NN ball)))))")
    tokenizer = WordTokenizer.fit([WORDS], context=6)
    batch = concept_collate(Transform(16), tokenizer)([pair(whole)])
    assert (
        batch.truncated.all()
        and present(batch[Concepts].table).sum() == 3
        and int(batch[Concepts].table[0, 0, STOP]) == 5
    )


def test_equal_words_have_equal_numbers(collate):
    one, other = (
        collate([pair(parse_bracketed(f"(S (NP (DT the) (NN dog)) (VP (VBZ {verb})))"))])[Concepts].table
        for verb in ("runs", "near")
    )
    assert torch.equal(one[0, 1:, TEXT], other[0, 1:, TEXT]) and one[0, 0, TEXT] != other[0, 0, TEXT]
    assert one[0, :, PARENT].tolist() == [-1, 0, 1]


# --- models and scorers


def model_of(kind, tokenizer, **more):
    return build({"kind": kind} | TOWERS | KINDS[kind] | more, tokenizer, 0).eval()


def pairs_of(pictures):
    draw = np.random.default_rng(1)
    return [pair(tree(k % 3, draw), str(k), picture) for k, picture in enumerate(pictures)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_scorer_scores_what_it_scores_in_training(kind, tokenizer, pictures):
    model = model_of(kind, tokenizer)
    pairs = pairs_of(pictures)
    batch = model.collate(pairs)
    assert isinstance(model, Scorer)
    table = torch.cartesian_prod(torch.arange(4), torch.arange(4))
    out = model(batch, table)
    scale = model.logit_scale.exp() if kind == "vse" else 1
    images = model.encode_images(batch)
    texts = model.encode_texts(batch)
    similarity = model.similarity(images, texts)
    assert torch.allclose(similarity * scale, out.scores[:, 0].view(4, 4), atol=1e-4)
    assert torch.allclose(model(batch, table, phrases=False).scores[:, 0], out.scores[:, 0], atol=1e-5)
    asked = torch.tensor([[3, 1], [0, 0], [3, 1], [2, 2]])
    assert torch.allclose(model.similarity(images, texts, asked), similarity[asked[:, 0], asked[:, 1]], atol=1e-5)
    assert (out.scores[~out.mask] == 0).all() and out.mask.sum() == 4 * present(batch[Concepts].table).sum()


def test_the_temperature_of_vse_is_kept_in_bounds_and_free_to_come_back(tokenizer, pictures):
    model = model_of("vse", tokenizer, logit_scale=1000.0).train()
    assert model.logit_scale.item() == pytest.approx(np.log(100))
    with torch.no_grad():
        model.logit_scale.fill_(9.0)
    out = model(model.collate(pairs_of(pictures)), torch.tensor([[0, 0], [0, 1]]))
    out.scores.sum().backward()
    assert model.logit_scale.item() == pytest.approx(np.log(100)) and model.logit_scale.grad != 0


@pytest.mark.parametrize("kind", ["composer", "two_stream"])
def test_only_the_pairs_that_a_task_asks_for_are_computed(kind, tokenizer, pictures, monkeypatch):
    model = model_of(kind, tokenizer)
    pairs = pairs_of(pictures)
    computed = []
    inner = model.concept_scores
    monkeypatch.setattr(model, "concept_scores", lambda *args: computed.append(len(args[-1].pairs)) or inner(*args))
    choices = [Choice("swap", (p.image,), (p.caption, "the red dog"), str(k)) for k, p in enumerate(pairs)]
    frame = evaluate_choices(model, choices)
    assert len(frame) == 4 and sum(computed) == 8
    assert len(evaluate_retrieval(model, pairs)) == 8


def test_encoded_captions_are_joined_indexed_and_moved_like_any_other(tokenizer, pictures):
    model = model_of("composer", tokenizer)
    pairs = pairs_of(pictures)
    captions = [each.caption for each in pairs]
    model.collate = copy.copy(model.collate)
    whole, parts = (encode_all(model, texts=captions, batch_size=size) for size in (4, 1))
    images = encode_all(model, images=pictures)
    assert torch.allclose(model.similarity(images, whole), model.similarity(images, parts), atol=1e-5)
    assert torch.allclose(
        model.similarity(images[[2]], parts[[3, 1]]), model.similarity(images, whole)[[2]][:, [3, 1]], atol=1e-5
    )


@pytest.mark.parametrize("kind", KINDS)
def test_saved_and_loaded_it_scores_the_same(kind, tokenizer, pictures, tmp_path):
    model = model_of(kind, tokenizer)
    batch = None
    batch = model.collate(pairs_of(pictures))
    loaded = load_model(save_model(model, tmp_path / "model"))
    assert torch.equal(loaded(batch).scores, model(batch).scores) and loaded.fingerprint() == model.fingerprint()
    assert read_model(_write_config(model.config)) == model.config and title_of(model.config)


def test_search_is_refused_with_a_reason(tokenizer):
    for kind in ("composer", "two_stream"):
        assert "has no vector of either" in search_fault({"kind": kind})
        with pytest.raises(ValueError, match="choose a dual encoder"):
            model_of(kind, tokenizer).search_scorer()
    vse = model_of("vse", tokenizer)
    assert vse.search_scorer() is vse and not search_fault({"kind": "vse"})


def test_each_concept_is_a_text_of_its_own_for_models_without_trees(tokenizer):
    model = model_of("composer", tokenizer)
    batch = model.collate(
        [pair(parse_bracketed("(S (NP (DT the) (NN dog)) (VP (VBZ runs)))")), pair(parse_bracketed("(NN ball)"), "1")]
    )
    texts, mask = concept_texts(batch.ids, batch.mask, batch[Concepts].table)
    assert [tokenizer.decode(text[real]) for text, real in zip(texts, mask)] == [
        "the dog runs",
        "the dog",
        "dog",
        "ball",
    ]
    assert all(text[0] == tokenizer.start and text[real][-1] == tokenizer.end for text, real in zip(texts, mask))


# --- regions


def some_regions(n, width=6, seed=0):
    draw = np.random.default_rng(seed)
    return Regions(draw.random((n, width), dtype=np.float32), draw.random((n, 4), dtype=np.float32))


@pytest.mark.parametrize("kind", KINDS)
def test_regions_that_a_pair_brings_are_read_with_their_mask(kind, tokenizer):
    model = model_of(kind, tokenizer, regions=6)
    first = some_regions(5)
    second = some_regions(2, seed=1)
    two = [Pair(first, "the dog", "0", "0"), Pair("1.jpg", "the ball", "1", "1", regions=second)]
    together = model(model.collate(two)).scores
    alone = model(model.collate(two[1:])).scores
    assert torch.allclose(together[1:], alone, atol=1e-5)
    assert model.vision.tower.frozen
    scores = model.similarity(
        encode_all(model, images=[first, second]), encode_all(model, texts=["the dog", "the ball"])
    )
    assert scores.shape == (2, 2) and torch.isfinite(scores).all()


def test_a_frozen_towers_outputs_are_stored_for_other_models(tokenizer, pictures, tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    frozen = {"vision": TOWERS["vision"] | {"frozen": True}}
    first, second = (model_of(kind, tokenizer, **frozen, stored=True) for kind in ("composer", "vse"))
    batch = first.collate(pairs_of(pictures))
    first(batch)
    files = sorted(tmp_path.rglob("*.safetensors"))
    assert len(files) == len(pictures)
    monkeypatch.setattr(second.vision.tower, "forward", None)  # is not asked any more
    assert torch.isfinite(second(second.collate(pairs_of(pictures))).scores).all()
    assert sorted(tmp_path.rglob("*.safetensors")) == files
    model_of("composer", tokenizer, **frozen)(batch)
    assert sorted(tmp_path.rglob("*.safetensors")) == files


def test_an_image_without_regions_is_an_error_that_names_the_pair(tokenizer):
    model = model_of("composer", tokenizer, regions=6)
    with pytest.raises(ValueError, match="0 regions and 0 boxes; give as many of both, at least the whole image"):
        some_regions(0)
    with pytest.raises(ValueError, match="pair seven has no regions, this model reads 6"):
        model.collate([Pair("7.jpg", "the dog", "seven", "7"), Pair(some_regions(1), "the dog", "0", "0")])
    with pytest.raises(ValueError, match="pair 0 has 4 features a region, this model reads 6"):
        model.collate([Pair(some_regions(1, width=4), "the dog", "0", "0")])
    assert GivenRegions not in model.collate([Pair(None, "the dog", "0", "0")])


def test_foreign_trees_reach_a_batch_and_captions_that_are_alone_are_counted(tokenizer):
    nested = "(NP (NP (DT the) (NN dog)) (PP (IN near) (NP (NP (DT the) (NN ball)) (PP (IN of) (NP (NN dog))))))"
    two = "(NP (NP (DT the) (NN dog)) (PP (IN near) (NP (NN ball))))"
    four = f"(S {two} (VP (VBZ runs) (PP (IN near) {two})))"
    pairs = [pair(parse_bracketed(text), str(k)) for k, text in enumerate((nested, two, four))]
    own = concept_collate(Transform(16), tokenizer)(pairs)[Concepts]
    assert own.alone is None
    shapes = {3: {"[0, [1, 2]]": 1, "[[0, 1], 2]": 1}}
    collate = concept_collate(Transform(16), tokenizer, bracketing="foreign", shapes=shapes)
    with pytest.warns(UserWarning, match="pair 2: the caption has a number of noun phrases that no other caption has"):
        loader = Loader(pairs, collate, 3, 0)
        batch = next(iter(loader.batches()))
    order = [batch.keys.index(str(k)) for k in range(3)]
    assert batch[Concepts].alone[order].tolist() == [False, False, True] and loader.counts["alone"] == 1
    spans, before = (
        [{tuple(line[:2]) for line in lines if line[1] > 0} for lines in table.tolist()]
        for table in (batch[Concepts].table[order], own.table)
    )
    assert spans[0] - before[0] == {(1, 6)} and before[0] - spans[0] == {(4, 8)}, "the first two are joined now"
    assert spans[1:] == before[1:]


def test_shapes_are_refused_before_a_model_is_built():
    with pytest.raises(ValueError, match="is no shape of 3 noun phrases"):
        read_model({"kind": "composer", "bracketing": "foreign", "shapes": {"3": {"[0, 1]": 2}}})
    with pytest.raises(ValueError, match="shapes are of foreign trees"):
        read_model({"kind": "composer", "shapes": {"3": {"[0, 1, 2]": 2}}})
    assert read_model({"kind": "vse", "bracketing": "foreign"}).shapes is None


# --- where concepts look


@pytest.mark.parametrize(
    "layers, keys", [(1, "both"), (1, "regions"), (3, "both"), (3, "off"), (5, "regions"), (5, "off")]
)
def test_a_concept_looks_where_its_cross_attention_does(layers, keys, tokenizer):
    model = model_of("composer", tokenizer, regions=6, layers=layers, primitives=keys)
    first = some_regions(5)
    second = some_regions(2, seed=1)
    nested = parse_bracketed("(NP (NP (DT the) (NN dog)) (PP (IN near) (NP (DT the) (JJ red) (NN ball))))")
    alone = parse_bracketed("(NP (DT the) (NN ball))")
    pairs = [pair(nested, "0", first), pair(alone, "1", second)]
    seen = {}

    def watch(name):
        def keep(block, inputs, _):
            x, places, mask = inputs
            query = block.query(block.norm1(x)).unflatten(-1, (block.heads, -1))
            key = places.chunk(2, -1)[0].unflatten(-1, (block.heads, -1))
            scores = torch.einsum("bqhd,bkhd->bhqk", query, key) / query.shape[-1] ** 0.5
            shares = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1).mean(1)
            seen.setdefault(name, []).append(shares)

        return keep

    model.eval()
    recursion = model.language
    hooks = [block.register_forward_hook(watch("round")) for block in recursion.composition.text_cross]
    if recursion.primitives.cross is not None:
        hooks.append(recursion.primitives.cross.register_forward_hook(watch("noun")))
    with torch.no_grad():  # one caption with one composed concept in front of its own two regions
        batch = model.collate(pairs[1:])
        regions, _ = model.vision(batch)
        naive_vectors(recursion, regions[0], batch.ids[0], batch[Concepts].table[0])
    for hook in hooks:
        hook.remove()
    sentence, *rest = model.looks(pairs)[1]
    expected = [shares.mean(1)[0] for shares in seen.get("round", [])]
    if keys != "off":
        (noun,) = rest
        shares = seen["noun"][0][0, :, -2:].mean(0)
        assert torch.allclose(noun.weights, shares / shares.sum(), atol=1e-5)
        assert (noun.start, noun.stop) == (4, 8)
        expected = expected or [noun.weights]
    assert torch.allclose(sentence.weights, torch.stack(expected).mean(0), atol=1e-5)
    assert (sentence.start, sentence.stop) == (0, 8) and np.allclose(sentence.boxes, second.boxes)
    for looks in model.looks(pairs):
        assert all(abs(float(look.weights.sum()) - 1) < 1e-5 for look in looks)
    assert len(model.looks(pairs)[0][0].weights) == 5


def test_a_model_that_nowhere_looks_at_a_picture_has_no_looks(tokenizer):
    model = model_of("composer", tokenizer, layers=1, primitives="off")
    picture = np.zeros((16, 16, 3), np.uint8)
    assert model.looks([pair(parse_bracketed("(NP (DT the) (NN ball))"), "1", picture)]) == [()]


@pytest.mark.parametrize("fit, left, right", [("crop", 0.25, 0.75), ("pad", 0.0, 1.0), ("squash", 0.0, 1.0)])
def test_places_are_those_of_the_whole_picture(fit, left, right, tokenizer):
    model = model_of("composer", tokenizer, fit=fit)
    wide = np.zeros((16, 32, 3), np.uint8)
    (look, *_) = model.looks([pair(parse_bracketed("(NP (DT the) (NN ball))"), "1", wide)])[0]
    assert look.boxes.shape == (4, 4) and [float(look.boxes[0, 0]), float(look.boxes[-1, 2])] == [left, right]
    assert float(look.boxes[0, 1]) == (-0.5 if fit == "pad" else 0.0)
