"Retrieval against double loops with ties, and against torchmetrics without."

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from stand_ins import StandIn, constant, hashed, random_scorer
from torchmetrics.retrieval import RetrievalHitRate

from complearn.data.benchmarks.items import Choice
from complearn.data.pairs import Pair
from complearn.evaluation.tasks.choices import TIE, evaluate_choices
from complearn.evaluation.tasks.retrieval import (
    PhraseRetrieval,
    _naive_ranks,
    _summarise_retrieval,
    draw_queries,
    evaluate_retrieval,
    ranks,
)
from complearn.language.trees import parse_bracketed
from complearn.models.scoring import Encoded, cosine


class Table(StandIn):
    "Scores are looked up in a table; encodings are row and column numbers."

    def __init__(self, scores):
        super().__init__(None, None)
        self.scores = scores
        self.blocks = 0

    def similarity(self, images, texts, pairs=None):
        rows = images.values[:, 0].long()
        columns = texts.values[:, 0].long()
        if pairs is None:
            self.blocks += 1
            return self.scores[rows][:, columns]
        return self.scores[rows[pairs[:, 0]], columns[pairs[:, 1]]]


def numbers(n):
    return Encoded(torch.arange(n).float()[:, None])


def double_loop(scores, right):
    "Rank and tie of every row's best right candidate, one comparison at a time."
    out = []
    for i in range(len(scores)):
        best = max(scores[i][j] for j in range(len(scores[i])) if right[i][j])
        ahead = [j for j in range(len(scores[i])) if not right[i][j] and scores[i][j] >= best - TIE]
        out.append((1 + len(ahead), any(scores[i][j] <= best + TIE for j in ahead)))
    return out


@given(
    n=st.integers(1, 9),
    m=st.integers(1, 12),
    block=st.integers(1, 14),
    levels=st.integers(1, 5),
    seed=st.integers(0, 9999),
)
@settings(max_examples=150, deadline=None)
def test_ranks_against_a_double_loop_with_many_ties(n, m, block, levels, seed):
    draw = np.random.default_rng(seed)
    right = draw.random((n, m)) < 0.3
    right[np.arange(n), draw.integers(0, m, n)] = True
    right[draw.integers(0, n, m), np.arange(m)] = True
    scores = torch.tensor(draw.integers(0, levels, (n, m)) / levels, dtype=torch.float32)
    pairs = np.argwhere(right)
    by_image, by_text = ranks(Table(scores), numbers(n), numbers(m), draw.permutation(pairs), block=block)
    assert list(zip(*map(np.ndarray.tolist, by_image))) == double_loop(scores.tolist(), right)
    assert list(zip(*map(np.ndarray.tolist, by_text))) == double_loop(scores.T.tolist(), right.T)
    whole = _naive_ranks(scores, torch.from_numpy(right))
    assert (whole[0].numpy() == by_image[0]).all() and (whole[1].numpy() == by_image[1]).all()


def test_every_block_is_scored_once_for_both_directions():
    scorer = Table(torch.rand(10, 21))
    pairs = np.stack([np.arange(21) % 10, np.arange(21)], 1)
    ranks(scorer, numbers(10), numbers(21), pairs, block=5)
    assert scorer.blocks == 2 * 5


def photos(n=60, captions=5):
    return [Pair(f"{i}.jpg", f"caption {k} of {i}", f"{i}-{k}", str(i)) for i in range(n) for k in range(captions)]


def somewhat_good(noise=4.0):
    "Captions lie near their photo."
    return StandIn(
        lambda image: hashed(image.removesuffix(".jpg")), lambda text: hashed(text.split()[-1]) + noise * hashed(text)
    )


@pytest.mark.parametrize("k", [1, 5, 10])
def test_recall_against_torchmetrics(k):
    scorer = somewhat_good()
    frame = evaluate_retrieval(scorer, photos(), batch_size=17, block=13)
    images = torch.tensor(np.array([scorer.see(f"{i}.jpg") for i in range(60)]), dtype=torch.float32)
    texts = torch.tensor(np.array([scorer.read(p.caption) for p in photos()]), dtype=torch.float32)
    scores = torch.nn.functional.normalize(images, dim=-1) @ torch.nn.functional.normalize(texts, dim=-1).T
    right = torch.arange(60)[:, None] == torch.arange(300)[None] // 5
    for direction, table, target in (("image_to_text", scores, right), ("text_to_image", scores.T, right.T)):
        query = torch.arange(len(table))[:, None].expand_as(table)
        theirs = RetrievalHitRate(top_k=k)(table.flatten(), target.flatten(), indexes=query.flatten()).item()
        ours = (frame[frame["direction"] == direction]["rank"] <= k).mean()
        assert ours == pytest.approx(theirs) and 0.05 < ours < 1.0


def test_a_collapsed_model_finds_nothing():
    rows = _summarise_retrieval(evaluate_retrieval(constant(), photos(20)))
    assert len(rows) == 6 and all(r.value == 0 and r.ties == 1 for r in rows)


def test_chance_is_chance():
    rows = _summarise_retrieval(evaluate_retrieval(random_scorer(), photos(200, 1)))
    values = {(r.split, r.metric): r.value for r in rows}
    assert values["text_to_image", "r@10"] == pytest.approx(0.05, abs=0.05) and values["text_to_image", "r@1"] < 0.04


def test_a_perfect_model_is_perfect_and_its_captions_are_no_rivals():
    perfect = StandIn(lambda image: hashed(image.removesuffix(".jpg")), lambda text: hashed(text.split()[-1]))
    frame = evaluate_retrieval(perfect, photos(30))
    assert (frame["rank"] == 1).all() and not frame["tied"].any()


def twins():
    return [
        Pair("0.jpg", "a red circle", "0", "0"),
        Pair("1.jpg", "a red circle", "1", "1"),
        Pair("2.jpg", "a blue one", "2", "2"),
    ]


def test_equal_captions_of_two_photos_published_protocol_and_merged():
    angle = {"0.jpg": 0.1, "1.jpg": 0.2, "2.jpg": 1.5, "a red circle": 0.0, "a blue one": 1.4}
    scorer = StandIn(*[lambda x: [np.cos(angle[x]), np.sin(angle[x])]] * 2)
    apart, merged = (evaluate_retrieval(scorer, twins(), merge=merge).set_index("direction") for merge in (False, True))
    assert apart.loc["image_to_text", "rank"].tolist() == [2, 2, 1]
    assert apart.loc["image_to_text", "tied"].tolist() == [True, True, False]
    assert apart.loc["text_to_image", "rank"].tolist() == [1, 2, 1]
    assert merged.loc["image_to_text", "rank"].tolist() == [1, 1, 1]
    assert merged.loc["text_to_image", "rank"].tolist() == [1, 1]
    assert scorer.read_texts == ["a red circle", "a blue one"] * 2, "equal captions are encoded once in either mode"


def test_a_photo_in_many_pairs_is_one_candidate_and_views_are_captions():
    plain = photos(25, 5)

    def others(i):
        return tuple(f"caption {k} of {i}" for k in range(1, 5))

    folded = [Pair(f"{i}.jpg", f"caption 0 of {i}", str(i), str(i), views=others(i)) for i in range(25)]
    everything = list(plain) + folded
    a, b, c = (evaluate_retrieval(somewhat_good(), pairs) for pairs in (plain, folded, everything))
    assert a.equals(b) and a.equals(c) and (a["gallery"].value_counts().to_dict() == {25: 125, 125: 25})


def test_interval_resamples_photos():
    def read(text):
        "The captions of every second photo are all wrong: of a photo, all or none is found."
        i = int(text.split()[-1])
        return hashed(str(i)) if i % 2 else -hashed(str(i))

    scorer = StandIn(lambda image: hashed(image.removesuffix(".jpg")), read)
    row = [r for r in _summarise_retrieval(evaluate_retrieval(scorer, photos(80))) if r.split == "text_to_image"][0]
    assert row.value == 0.5 and row.n == 400
    assert (row.high - row.low) / 2 == pytest.approx(1.96 * np.sqrt(0.25 / 80), rel=0.1)


def test_k_beyond_the_gallery_is_left_out_aloud():
    with pytest.warns(UserWarning, match="R@10 says nothing among 10 candidates"):
        rows = _summarise_retrieval(evaluate_retrieval(constant(), photos(10, 2)))
    assert sorted((r.split, r.metric) for r in rows if r.metric == "r@10") == [("image_to_text", "r@10")]


def test_broken_scores_and_empty_sets_are_errors():
    with pytest.raises(ValueError, match="not finite"):
        evaluate_retrieval(StandIn(lambda _: np.full(4, np.nan), lambda _: np.ones(4)), photos(3))
    with pytest.raises(ValueError, match="no pairs"):
        evaluate_retrieval(constant(), [])


# --- phrases


CAPTIONS = {
    "1.jpg": "(NP (NP (DT a) (NN dog)) (PP (IN on) (NP (DT the) (NN grass))))",
    "2.jpg": "(S (NP (DT a) (NN dog)) (VP (VBZ chases) (NP (DT a) (NN cat))))",
    "3.jpg": "(NP (NP (DT a) (NN cat)) (PP (IN on) (NP (DT a) (NN bench))))",
}


class TreeReader(StandIn):
    "Notes the trees that come with captions."

    def collate(self, pairs):
        self.trees = getattr(self, "trees", {}) | {pair.caption: pair.tree for pair in pairs if pair.caption}
        return super().collate(pairs)


def phrase_pairs():
    trees = {name: parse_bracketed(text) for name, text in CAPTIONS.items()}
    return [Pair(name, " ".join(tree.leaves()), name, name, tree=tree) for name, tree in trees.items()]


def test_a_phrase_denotes_all_photos_whose_captions_hold_it():
    right = {query.text: query.right for query in draw_queries(phrase_pairs()) if query.kind == "phrase"}
    assert right == {
        "a dog": {"1.jpg", "2.jpg"},
        "the grass": {"1.jpg"},
        "a cat": {"2.jpg", "3.jpg"},
        "a bench": {"3.jpg"},
    }
    alone = [query for query in draw_queries(phrase_pairs(), own=True) if query.text == "a dog"]
    assert [query.right for query in alone] == [{"1.jpg"}, {"2.jpg"}] and str(alone[0].tree) == "(NP (DT a) (NN dog))"


def test_phrases_are_drawn_by_seed_and_caption():
    def drawn(**switches):
        return [query.text for query in draw_queries(phrase_pairs(), 1, **switches) if query.kind == "phrase"]

    assert drawn(seed=3) == drawn(seed=3) and len(drawn()) == 3 and len({tuple(drawn(seed=k)) for k in range(8)}) > 1
    reversed_order = [query.text for query in draw_queries(phrase_pairs()[::-1], 1, seed=3) if query.kind == "phrase"]
    assert reversed_order[::-1] == drawn(seed=3)


@pytest.mark.filterwarnings("ignore:R@5")
@pytest.mark.parametrize("own", [False, True])
def test_phrase_ranks_are_those_of_the_whole_table(own):
    scorer = TreeReader(hashed, hashed)
    scores = {score.split: score for score in PhraseRetrieval(phrase_pairs(), own=own).run(scorer)}
    queries = draw_queries(phrase_pairs(), own=own)
    photos = list(CAPTIONS)
    for kind, n in (("sentence", 3), ("phrase", 6)):
        asked = [query for query in queries if query.kind == kind]
        table = cosine(
            *(
                Encoded(torch.tensor(np.array([hashed(x) for x in side])))
                for side in (photos, [query.text for query in asked])
            )
        )
        right = torch.tensor([[name in query.right for name in photos] for query in asked])
        best, _ = _naive_ranks(table.T.float(), right)
        score = scores[f"{kind}_to_image"]
        assert score.n == n and score.value == pytest.approx(float((best == 1).float().mean())) and score.groups == 3
    assert str(scorer.trees["a dog"]) == "(NP (DT a) (NN dog))" and None not in scorer.trees.values()


def test_captions_without_a_tree_give_sentences_alone_and_are_counted():
    pairs = [
        replace(pair, tree=parse_bracketed("(NN emu)") if pair.id == "2.jpg" else pair.tree) for pair in phrase_pairs()
    ]
    with pytest.warns(UserWarning, match="1 of 3 captions have no tree and give no phrases .2.jpg"):
        queries = draw_queries(pairs)
    assert [query.kind for query in queries if query.photo == "2.jpg"] == ["sentence"]
    task = PhraseRetrieval(pairs)
    assert len(task.without({"1.jpg"}).items()) == 2 and len(task.limited(1).items()) == 1


def test_trees_of_pairs_and_questions_reach_the_scorer():
    scorer = TreeReader(hashed, hashed)
    pairs = phrase_pairs()
    evaluate_retrieval(scorer, pairs)
    assert all(scorer.trees[pair.caption] is pair.tree for pair in pairs)
    scorer = TreeReader(hashed, hashed)
    trees = tuple(pair.tree for pair in pairs[:2])
    evaluate_choices(scorer, [Choice("swap", ("1.jpg",), tuple(pair.caption for pair in pairs[:2]), "0", trees=trees)])
    assert list(scorer.trees.values()) == list(trees)
