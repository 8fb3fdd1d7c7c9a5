"The code table against a full table of scores, and the readings against the model itself."

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from complearn.analysis.codes.readings import (
    _patch_scores,
    _words_of,
    code_table,
    code_views,
    codebook_evaluation,
    distinct,
    patch_grid,
)
from complearn.analysis.codes.tables import (
    CodeTable,
    CodeTally,
    UnknownWord,
    WordCheck,
    WordIndex,
    count_captions,
)
from complearn.data.pairs import Pair
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.dual import build_model


def readings(seed, items, codes, tokens=7, levels=None):
    "Made-up scores, weights and positions; with `levels`, scores are rounded so that there are many ties."
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(items, codes))
    if levels:
        scores = np.round(scores * levels) / levels
    weights = np.maximum(scores - 0.5, 0)
    weights /= np.maximum(weights.sum(1, keepdims=True), 1e-9)
    return (torch.tensor(x) for x in (scores, weights, draw.integers(0, tokens, size=(items, codes))))


def tallied(scores, weights, positions, sizes, **options):
    tally = CodeTally(**options)
    start = 0
    for size in sizes:
        part = slice(start, start + size)
        tally.add(scores[part], weights[part], positions[part])
        start += size
    return tally.table()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 999),
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    levels=st.sampled_from([None, 1, 2]),
)
def test_table_equals_the_full_sort_whatever_the_chunks(seed, sizes, levels):
    items = sum(sizes)
    codes = 9
    k = 4
    m = 3
    scores, weights, positions = readings(seed, items, codes, levels=levels)
    table = tallied(scores, weights, positions, sizes, k=k, heaviest=m)
    full = scores.float().numpy()
    heavy = weights.float().numpy()
    place = positions.numpy()
    for code in range(codes):
        order = sorted(range(items), key=lambda i: (-full[i, code], i))[:k]
        told = table.top_items(code)
        assert told["item"].tolist() == order
        assert np.array_equal(told.score, full[order, code]) and np.array_equal(told.weight, heavy[order, code])
        assert np.array_equal(told.position, place[order, code])
    assert np.array_equal(table.fired, (heavy > 0).sum(0)) and np.array_equal(table.support, (heavy > 0).sum(1))
    assert np.allclose(table.mass, heavy.sum(0), atol=1e-6)
    for item in range(items):
        order = sorted(range(codes), key=lambda c: (-heavy[item, c], c))[:m]
        told = table.codes_of(item)
        assert told.code.tolist() == [c for c in order if heavy[item, c] > 0]


def test_what_is_kept_does_not_grow_with_items_times_codes():
    codes = 2048
    k = 4
    m = 8
    tally = CodeTally(k=k, heaviest=m)
    for chunk in range(6):
        tally.add(*readings(chunk, 50, codes))
    assert all(column.shape == (codes, k) for column in tally.kept)
    held = sum(x.numel() for x in tally.kept) + sum(x.numel() for row in tally.rows for x in row)
    assert held == 4 * codes * k + 300 * (1 + 4 * m)
    own = {id(x.untyped_storage()): x.untyped_storage().nbytes() for row in tally.rows for x in row}
    assert sum(own.values()) <= 300 * (1 + 4 * m) * 8  # no view keeps a whole chunk alive


def test_fewer_items_than_places():
    table = tallied(*readings(0, 2, 3), sizes=[2], k=5, heaviest=9)
    assert table.top_item.shape == (3, 5) and (table.top_item[:, 2:] == -1).all()
    assert len(table.top_items(0)) == 2 and table.item_code.shape == (2, 3)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_scores_that_are_no_numbers_name_their_item(bad):
    scores, weights, positions = readings(0, 6, 3)
    tally = CodeTally()
    tally.add(scores[:4], weights[:4], positions[:4])
    scores[5, 1] = bad
    with pytest.raises(ValueError, match="item 5: its code scores are not finite"):
        tally.add(scores[4:], weights[4:], positions[4:])


def test_entropy_of_even_and_single_use():
    even = tallied(torch.eye(16), torch.eye(16), torch.zeros(16, 16, dtype=torch.long), [16])
    assert even.entropy() == pytest.approx(math.log(16)) and len(even.dead) == 0
    one = torch.zeros(5, 16)
    one[:, 3] = 1
    single = tallied(one, one, torch.zeros(5, 16, dtype=torch.long), [5])
    assert single.entropy() == pytest.approx(0) and len(single.dead) == 15
    assert single.frame().fired.tolist() == [5 if c == 3 else 0 for c in range(16)]


def test_words_against_a_naive_count():
    items = 30
    codes = 5
    scores, weights, positions = readings(3, items, codes, tokens=4)
    draw = np.random.default_rng(0)
    words = tuple(tuple(draw.choice(["red", "blue", "a"], 4)) for _ in range(items))
    tally = CodeTally(heaviest=codes)
    tally.add(scores, weights, positions)
    table = tally.table(side="text", words=words)
    total = float(weights.float().sum())
    for code in range(codes):
        for line in table.top_words(code).itertuples():
            fired = [i for i in range(items) if weights[i, code] > 0 and words[i][positions[i, code]] == line.word]
            assert line.captions == len(fired)
            assert line.weight == pytest.approx(float(weights[fired, code].sum()), rel=1e-5)
            of_word = sum(
                float(weights[i, c])
                for i in range(items)
                for c in range(codes)
                if words[i][positions[i, c]] == line.word
            )
            assert line.lift == pytest.approx(line.share / (of_word / total), rel=1e-4)
    assert sum(len(table.top_words(c, 99)) for c in range(codes)) == len(table.word_table)


def test_questions_that_cannot_be_answered_say_why():
    table = tallied(*readings(0, 4, 3), sizes=[4])
    with pytest.raises(ValueError, match="code 3 asked for; this table has codes 0 to 2"):
        table.top_items(3)
    with pytest.raises(ValueError, match="item -1 asked for"):
        table.codes_of(-1)
    with pytest.raises(ValueError, match="side='text'"):
        table.top_words(0)
    with pytest.raises(ValueError, match="at least one image or caption"):
        CodeTally().table()


def test_order_by_use_and_by_index():
    table = tallied(*readings(1, 20, 6), sizes=[20])
    assert sorted(table.by_usage().tolist()) == list(range(6)) and (np.diff(table.mass[table.by_usage()]) <= 0).all()
    assert table.by_index().tolist() == list(range(6)) != table.by_usage().tolist()


# ---- readings of a real model

CAPTIONS = ["a red circle", "a blue square and a red circle", "blue", "a circle left of a blue square", "red and blue"]


def pair(i):
    return Pair(
        np.random.default_rng(i).integers(0, 255, (32, 32, 3)).astype(np.uint8),
        CAPTIONS[i % 5],
        id=f"p{i}",
        image_id=f"i{i}",
    )


@pytest.fixture(scope="module", params=["cosine", "dot"])
def model(request):
    made = build_model({"codebook": {"codes": 40, "similarity": request.param}}, WordTokenizer.fit(CAPTIONS), seed=1)
    made.calibrate(made.collate([pair(i) for i in range(16)]))
    return made


def test_table_of_a_model_equals_one_reading(model):
    pairs = [pair(i) for i in range(13)]
    chunked = code_table(model, pairs, batch_size=4)
    with codebook_evaluation(model):
        reading = model.read(model.vision, model.collate(pairs))
    whole = tallied(reading.scores, reading.weights, reading.firing, [13])
    assert chunked.grid == (8, 8) and chunked.source.tolist() == list(range(13))
    assert np.allclose(chunked.top_score[:, :13], whole.top_score[:, :13], atol=1e-5)
    assert np.allclose(chunked.mass, whole.mass, atol=1e-4)


def test_looking_changes_nothing(model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    model.train()
    drawn = torch.get_rng_state()
    code_table(model, [pair(i) for i in range(3)])
    assert model.training and model.vision.training and torch.equal(drawn, torch.get_rng_state())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_patch_scores_peak_at_the_firing_patch(model):
    pairs = [pair(i) for i in range(6)]
    table = code_table(model, pairs)
    for code in (0, 17, 39):
        best = table.top_items(code, 3)
        heat = _patch_scores(model, [pairs[i].image for i in best["item"]], [code] * 3)
        assert np.allclose(heat.max((1, 2)), best.score, atol=1e-5)
        assert [divmod(int(one.argmax()), 8) for one in heat] == list(zip(best["row"], best["column"]))


def test_words_are_those_under_the_firing_tokens(model):
    pairs = [pair(i) for i in range(5)]
    table = code_table(model, pairs, side="text", heaviest=40)
    assert table.words[1] == ("[start]", "a", "blue", "square", "and", "a", "red", "circle", "[end]")
    with codebook_evaluation(model):
        for i, one in enumerate(pairs):  # one at a time: no padding at all
            reading = model.read(model.language, model.collate([one]))
            for line in table.codes_of(i).itertuples():
                assert line.position == int(reading.firing[0, line.code]) < len(table.words[i])
                assert line.score == pytest.approx(float(reading.scores[0, line.code]), abs=1e-5)
    assert "[start]" not in set(table.word_table.word)  # the start token does not speak


def test_each_image_and_each_caption_once_from_a_lazy_sequence(model):
    class Lazy(Sequence):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return replace(pair(i), image_id=f"i{i // 3}", image=pair(i // 3).image)

    images = code_table(model, Lazy(), batch_size=3)
    texts = code_table(model, Lazy(), side="text", batch_size=3)
    assert images.source.tolist() == [0, 3, 6, 9] and texts.source.tolist() == [0, 1, 2, 3, 4]
    assert [len(chunk) for chunk in distinct(Lazy(), "text", 3)] == [3, 2]


def test_views_are_the_images_and_their_heats(model):
    pairs = [pair(i) for i in range(3)]
    table = code_table(model, pairs)
    pictures, heats = code_views(model, table, pairs, np.array([4, 9]), k=5)
    assert pictures.shape == (2, 5, 32, 32, 3) and heats.shape == (2, 5, 8, 8)
    assert np.array_equal(pictures[0, 0], pairs[table.top_item[4, 0]].image) and (pictures[:, 3:] == 255).all()


def test_models_that_cannot_be_read_say_why():
    tokenizer = WordTokenizer.fit(CAPTIONS)
    with pytest.raises(ValueError, match="no codebook to look at"):
        code_table(build_model({}, tokenizer), [pair(0)])
    with pytest.raises(ValueError, match="is not calibrated"):
        code_table(build_model({"codebook": {"codes": 8}}, tokenizer), [pair(0)])
    with pytest.raises(ValueError, match="'image' or 'text', not 'words'"):
        code_table(build_model({}, tokenizer), [pair(0)], side="words")
    with pytest.raises(ValueError, match="50 image tokens are no square grid"):
        patch_grid(50)


def test_words_of_a_truncated_caption():
    tokenizer = WordTokenizer.fit(CAPTIONS, context=4)
    assert _words_of(["a red circle"], tokenizer(["a red circle"])) == [("[start]", "a", "red", "[end]")]


def test_tables_are_shape_checked():
    table = tallied(*readings(0, 4, 3), sizes=[4])
    with pytest.raises(Exception, match="mass"):
        CodeTable(**{**vars(table), "mass": np.zeros(5)})


def test_words_that_set_a_code_apart_go_before_frequent_ones_and_function_words_are_left_out():
    vocabulary = ("[end]", "a", "dog", "red")
    weight = np.array([9.0, 8.0, 4.0, 3.0, 5.0, 5.0])
    word = np.array([0, 1, 3, 2, 0, 1])
    share = weight / np.repeat([24.0, 10.0], [4, 2])
    total = {0: 14.0, 1: 13.0, 2: 3.0, 3: 4.0}
    lift = share / np.array([total[place] / 34 for place in word])
    lift[2] = 1.0  # "red" is said everywhere
    code = np.repeat([0, 1], [4, 2])
    captions = np.ones(6, np.int64)
    index = WordIndex(vocabulary, code, word, captions, weight, share, lift, begin=np.array([0, 4, 6]))
    assert index.of_code(0).word.tolist() == ["[end]", "a", "red", "dog"]
    assert index.top(0) == ["dog", "red"] == index.telling(0).word.tolist()
    assert index.telling(0).lift.tolist() == pytest.approx([34 / 24, 1.0])
    assert index.top(1) == ["[end]", "a"], "a code of such words alone"
    assert (index.telling_word(0), index.telling_word(1)) == ("dog", ""), "which are no name for a code"
    lift[2] = 0.5
    assert index.top(0) == ["dog"], "a word that is said more elsewhere does not set a code apart"


@pytest.mark.parametrize("mark", [".", ",", "-", "'s!"])
def test_marks_of_punctuation_say_nothing_of_a_code(mark):
    place = {"captions": np.ones(2, np.int64), "weight": np.array([9.0, 1.0]), "share": np.array([0.9, 0.1])}
    place |= {
        "code": np.zeros(2, int),
        "word": np.array([0, 1]),
        "lift": np.array([3.0, 2.0]),
        "begin": np.array([0, 2]),
    }
    is_word = any(sign.isalnum() for sign in mark)
    assert WordIndex((mark, "girl"), **place).top(0) == ([mark, "girl"] if is_word else ["girl"])


def test_a_word_that_no_code_has_is_answered_with_words_that_set_codes_apart():
    """Not with an article that is a part of it, or with a special word."""
    vocabulary = ("[end]", "a", "an", "blue", "red", "yellow")
    code = np.array([0, 0, 0, 1, 1, 2, 2])
    word = np.array([1, 4, 3, 4, 0, 5, 2])
    numbers = {name: np.ones(7) for name in ("weight", "share")}
    lift = np.array([9.0, 2.0, 0.5, 2.0, 9.0, 2.0, 9.0])
    begin = np.array([0, 3, 5, 7])
    index = WordIndex(vocabulary, code, word, np.ones(7, np.int64), lift=lift, begin=begin, **numbers)
    assert index.telling_words == ("red", "yellow"), "that of two codes first; blue is said more elsewhere"
    with pytest.raises(UnknownWord, match="so no code stands for it; try red, yellow$"):
        index.codes_of("cyan")
    with pytest.raises(UnknownWord, match="so no code stands for it; try yellow$"):
        index.codes_of("yelow")
    assert index.codes_of("blue").code.tolist() == [0], "what captions say is still found"


@pytest.mark.parametrize(
    ("said", "best", "share", "verdict"),
    [
        (16, 16, 0.43, "alike"),
        (11, 16, 0.43, "alike"),  # 0.036: P(11 or more of 16)
        (10, 16, 0.43, "unclear"),  # 0.093
        (6, 16, 0.43, "unlike"),
        (0, 16, 0.43, "unlike"),
        (0, 16, 0.0, ""),  # a piece of a word, which no caption has as a whole
        (3, 3, 0.43, ""),  # 0.43 ** 3 = 0.08: all of three would be no proof
        (4, 4, 0.43, "alike"),
        (0, 4, 0.43, "unlike"),
        (0, 0, 0.43, ""),
        (9, 16, 0.84, ""),  # 0.84 ** 16 = 0.06
        (9, 16, 1.0, ""),
    ],
)
def test_a_word_is_of_texts_and_pictures_where_it_is_more_frequent_among_the_best(said, best, share, verdict):
    check = WordCheck("yellow", said, best, share)
    assert check.verdict == verdict
    chances = [math.comb(best, n) * share**n * (1 - share) ** (best - n) for n in range(said, best + 1)]
    assert check.p_value == pytest.approx(sum(chances))


def test_captions_are_counted_by_whole_words_in_any_case():
    assert count_captions("red", ["A red star", "Red.", "reddish", "a red-hot star", "", None]) == (3, 4)
    assert count_captions("[end]", ["the end", "[END]x"]) == (0, 2)
