"""The analyses of a word space against slow oracles, closed forms, and spaces that hold nothing."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from scipy.special import expit
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score, log_loss, matthews_corrcoef

from complearn.analysis.words import (
    changes as gains,
    components,
    figures as word_figures,
    neighbours,
    norm_readout,
    silhouette,
    spaces,
)
from complearn.core.runs import split_name
from complearn.data.lexicons.formats import Norms
from complearn.data.reports import BadData
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.tasks.glue.files import acceptability_task, read_task
from complearn.evaluation.tasks.glue.probes import Glue, _metric_interval
from complearn.models import wordspace
from complearn.models.towers.base import TextTransformer
from complearn.models.wordspace import WordSpace


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


@pytest.fixture(scope="module")
def tower():
    torch.manual_seed(0)
    tokenizer = WordTokenizer.fit(["the striped horse sees a zebra", "a red cube and black ball"], context=12)
    made = TextTransformer(len(tokenizer), context=12, width=16, depth=2, heads=2, causal=False)
    torch.nn.init.normal_(made.embed.weight)
    made.tokenizer = tokenizer
    return made.eval()


# --- word vectors


@pytest.mark.parametrize("special", [True, False])
def test_a_word_is_the_mean_of_its_own_tokens(tower, special):
    texts = ["zebra", "the striped horse sees a zebra", "red cube", "a"]
    found = wordspace.embed(tower, tower.tokenizer, texts, special, batch_size=2)
    for text, vector in zip(texts, found):
        tokens = tower.tokenizer([text])
        states = tower(tokens.ids, tokens.mask).tokens[0]
        expected = states.mean(0) if special else states[1:-1].mean(0)
        assert torch.allclose(vector, expected, atol=1e-5)


@pytest.mark.parametrize("special", [True, False])
def test_vocabulary_statistics_are_those_of_all_entries(tower, special):
    entries = []
    for entry in range(len(tower.tokenizer)):
        ids = torch.tensor([[1, entry, 2]])
        states = tower(ids, torch.ones_like(ids, dtype=torch.bool)).tokens[0]
        entries.append((states.mean(0) if special else states[1]).detach().double().numpy())
    found = wordspace._vocabulary_statistics(tower, tower.tokenizer, special, batch_size=5).numpy()
    assert np.allclose(found[0], np.mean(entries, 0), atol=1e-5)
    assert np.allclose(found[1], np.std(entries, 0), atol=1e-5)


def test_statistics_survive_a_large_offset(tower):
    """Sums of squares would lose the deviation of a feature that lies far from 0."""

    def far(ids, mask):
        return tower(ids, mask).tokens + 1e4

    near, shifted = (wordspace._vocabulary_statistics(f, tower.tokenizer) for f in (tower, far))
    assert torch.allclose(shifted[1], near[1], rtol=2e-2)


def test_a_feature_that_never_varies_is_zero_and_nothing_is_infinite(tower):
    def speaker(ids, mask):
        states = tower(ids, mask).tokens.clone()
        states[..., 3] = 7.0
        return states

    found = WordSpace(speaker, tower.tokenizer, cache=False)(["zebra", "horse"])
    assert (found[:, 3] == 0).all() and np.isfinite(found).all() and found[:, :3].std() > 0


def test_the_cache_is_keyed_by_weights_switch_and_words(tower, tmp_path):
    first = WordSpace(tower, cache=tmp_path)
    kept = first(["zebra", "horse"])

    def count():
        return len(list(tmp_path.glob("*.safetensors")))

    assert count() == 2 and np.array_equal(WordSpace(tower, cache=tmp_path)(["zebra", "horse"]), kept) and count() == 2
    WordSpace(tower, special=False, cache=tmp_path)(["zebra"])
    assert count() == 4
    other = TextTransformer(len(tower.tokenizer), context=12, width=16, depth=2, heads=2, causal=False)
    assert not np.allclose(WordSpace(other, tower.tokenizer, cache=tmp_path)(["zebra", "horse"]), kept) and count() == 6
    nameless = WordSpace(lambda ids, mask: tower(ids, mask).tokens, tower.tokenizer, cache=tmp_path)
    assert np.allclose(nameless(["zebra", "horse"]), kept, atol=1e-5) and count() == 6, (
        "what cannot be told apart is not kept"
    )


def test_words_that_cannot_be_spelt_are_named(tower):
    assert wordspace.unknown_words(tower.tokenizer, ["zebra", "teapot", "red teapot", "black ball"]) == [
        "teapot",
        "red teapot",
    ]


def test_a_space_refuses_what_it_cannot_do(tower):
    with pytest.raises(ValueError, match="without a tokenizer"):
        WordSpace(lambda ids, mask: None)
    with pytest.raises(ValueError, match="no words"):
        WordSpace(tower, cache=False)([])
    with pytest.raises(ValueError, match="not finite"):
        WordSpace(lambda ids, mask: tower(ids, mask).tokens * float("nan"), tower.tokenizer, cache=False)(["zebra"])


# --- components


def test_components_are_scikit_learns():
    x = drawn(60, 8) * np.arange(1, 9)
    words = [f"w{k}" for k in range(60)]
    found = components.principal(words, x, 5)
    theirs = PCA(5).fit(x)
    assert np.allclose(np.abs(found.coordinates), np.abs(theirs.transform(x)), atol=1e-8)
    assert np.allclose(found.shares, theirs.explained_variance_ratio_) and ((found.coordinates**3).sum(0) >= 0).all()


def test_the_sign_rule_does_not_depend_on_the_order_or_the_ratings():
    x = drawn(50, 4) ** 3
    words = [f"w{k}" for k in range(50)]
    order = np.random.default_rng(1).permutation(50)
    one = components.principal(words, x, 3)
    other = components.principal([words[i] for i in order], x[order], 3)
    assert np.allclose(one.coordinates[order], other.coordinates, atol=1e-8)
    ratings = pd.Series(-one.coordinates[:, 0], words)
    assert components.concreteness_correlations(one, ratings, {"a": words[:25], "b": words[25:]}, 50).r[
        0
    ] == pytest.approx(-1)
    turned = components.turn_by_rating(one, ratings)
    assert np.allclose(turned.coordinates[:, 0], -one.coordinates[:, 0])
    assert np.allclose(turned.coordinates[:, 1], one.coordinates[:, 1])


def test_the_poles_turn_the_first_axis_alone_and_only_where_both_are_known():
    words = [*components.POLES[0], *components.POLES[1]]
    x = np.concatenate([np.r_[np.full(10, -3.0), np.full(10, 3.0)][:, None], drawn(20, 3)], 1)
    found = components.principal(words, x, 2)
    for signs in ((1.0, 1.0), (-1.0, 1.0), (1.0, -1.0)):
        turned = components.turn_by_poles(found.turned(np.array(signs)))
        assert turned.coordinates[10:, 0].mean() > turned.coordinates[:10, 0].mean()
        assert np.allclose(turned.coordinates[:, 1], signs[1] * found.coordinates[:, 1])
    other = components.principal([f"w{k}" for k in range(20)], x, 2)
    assert np.array_equal(components.turn_by_poles(other).coordinates, other.coordinates)


@pytest.mark.parametrize(
    "low, high, enough", [(2, 2, True), (10, 2, True), (1, 10, False), (10, 1, False), (0, 10, False), (1, 1, False)]
)
def test_one_word_is_no_pole(low, high, enough, recwarn):
    """An axis was turned by one low word alone and called turned by poles."""
    words = [*components.POLES[0][:low], *components.POLES[1][:high], *(f"w{k}" for k in range(6))]
    x = np.concatenate(
        [np.r_[np.full(low, -3.0), np.full(high, 3.0), np.zeros(6)][:, None], drawn(low + high + 6, 3) / 10], 1
    )
    found = components.principal(words, x, 2)
    over = found.turned(np.array([-1.0, 1.0]))
    first, second = (components.turn_by_poles(space).coordinates[:, 0] for space in (found, over))
    assert np.array_equal(first, second) == enough, (
        "two words of either side say which end is up, whatever the sign was before"
    )
    told = components.missing_poles(words)
    assert (told == "") == enough
    assert enough or told.startswith("not turned: too few words of its poles are known (low: ")
    assert not [w for w in recwarn if "axis" in str(w.message)], "the notebook says it once; nothing is warned of"


def test_words_without_a_rating_are_left_out():
    x = drawn(40, 3)
    words = [f"w{k}" for k in range(40)]
    found = components.principal(words, x, 1)
    ratings = pd.Series(found.coordinates[:, 0] + 0.1 * drawn(40, seed=2), words)[:30]
    told = components.concreteness_correlations(
        found, ratings, {"a": words[:20], "b": words[20:32], "c": words[32:]}, 100
    )
    expected = stats.pearsonr(found.coordinates[:30, 0], ratings).statistic
    assert told.n.tolist() == [30, 2] and told.r[0] == pytest.approx(expected) and told.low[0] < expected < told.high[0]
    assert np.isnan(told.r[1]), "two categories have no correlation worth telling"


def test_the_interval_of_a_correlation_is_a_bootstrap():
    x = drawn(300)
    y = x + drawn(300, seed=1)
    r, low, high = components.correlation(x, y, 3000)
    z = np.tanh(np.arctanh(r) + np.array([-1.96, 1.96]) / np.sqrt(297))
    assert r == pytest.approx(stats.pearsonr(x, y).statistic) and np.allclose([low, high], z, atol=0.03)
    assert np.isnan(components.correlation(x, np.ones(300))[0])


def test_a_size_has_an_interval_that_a_size_can_have():
    """The interval of |r| is of the resamples' sizes, not the signed one."""
    words = [f"w{k}" for k in range(60)]
    x = drawn(60, 3)
    found = components.principal(words, x, 2)
    ratings = pd.Series(-found.coordinates[:, 0] + 0.5 * drawn(60, seed=2), words)
    near, far = (
        components.concreteness_correlations(found, r, {"a": words}, 500).iloc[0]
        for r in (pd.Series(drawn(60, seed=5), words), ratings)
    )
    assert near.low < 0 < near.high and near.abs_low == 0 and abs(near.r) < near.abs_high <= max(-near.low, near.high)
    assert far.r < -0.8 and (far.abs_low, far.abs_high) == pytest.approx((-far.high, -far.low))


def test_the_interval_of_a_size_gain_covers_the_truth():
    """Before 0.75, after 0: sizes taken again in every resample would be too large after, and cover 73 %."""
    draw = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        y, before, after = draw.normal(size=(3, 60))
        _, low, high = components.size_gain(after, 0.75 * y + np.sqrt(1 - 0.75**2) * before, y, 400)
        hits += low <= -0.75 <= high
    assert hits / 200 >= 0.88


def test_resamples_of_one_item_alone_are_left_out_in_silence():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(5):
            y, before, after = drawn(3, 3, seed=seed)
            found = components.size_gain(after, before, y, 1000)
            _, resampled = components.bootstrap_correlations(np.stack([before, np.ones(3)], 1), y, 1000)
            assert np.isfinite(found).all() and np.isnan(resampled[:, 1]).all()
            assert 0.05 < np.isnan(resampled[:, 0]).mean() < 0.2, "a ninth of the resamples of three"
            assert np.nanmax(np.abs(resampled[:, 0])) < 1 + 1e-6


# --- silhouette


def slow_silhouette(x, categories, words, shared):
    def d(i, j):
        return 1 - x[i] @ x[j] / (np.linalg.norm(x[i]) * np.linalg.norm(x[j]))

    place = {w: i for i, w in enumerate(words)}
    out = np.full((len(words), len(categories)), np.nan)
    for c, (name, members) in enumerate(categories.items()):
        for w in members:
            i = place[w]
            others = [d(i, place[v]) for v in members if v != w]
            kept = [m for k, m in categories.items() if k != name and (shared == "keep" or w not in m)]
            if not others or not kept:
                out[i, c] = 0
                continue
            a = np.mean(others)
            b = np.mean([np.mean([d(i, place[v]) for v in m]) for m in kept])
            out[i, c] = (b - a) / max(a, b)
    return out


@pytest.mark.parametrize("shared", ["keep", "leave"])
def test_silhouette_is_a_double_loops(shared):
    words = [f"w{k}" for k in range(24)]
    categories = {"a": words[:9], "b": words[5:14], "c": words[14:23], "d": [words[23]], "e": [words[0], words[20]]}
    x = drawn(24, 5)
    found = silhouette.silhouettes(x, silhouette.memberships(words, categories), shared)
    assert np.allclose(found, slow_silhouette(x, categories, words, shared), atol=1e-12, equal_nan=True)
    by_word = silhouette.word_means(found, words)
    assert by_word["w5"] == pytest.approx(np.nanmean(found[5])) and found[23, 3] == 0


def test_frequency_by_category_is_of_its_own_memberships():
    """A word in two categories has two coefficients; each category's mean takes its own."""
    draw = np.random.default_rng(3)
    member = draw.random((30, 6)) < 0.3
    scores = np.where(member, draw.normal(size=(30, 6)), np.nan)
    counts = pd.Series(draw.integers(0, 50, 29), [f"w{k}" for k in range(29)])
    words = [f"w{k}" for k in range(30)]
    x = []
    y = []
    for c in range(6):
        x.append(np.mean([scores[i, c] for i in range(29) if member[i, c]]))
        y.append(np.mean([counts[words[i]] for i in range(29) if member[i, c]]))
    told = silhouette.frequency_correlations(scores, words, counts, 50, least=3).set_index("level")
    assert told.r["category"] == pytest.approx(stats.pearsonr(x, y).statistic) and told.n["category"] == 6
    some = [i for i in range(29) if member[i].any()]
    by_word = [np.mean([scores[i, c] for c in range(6) if member[i, c]]) for i in some]
    assert told.r["word"] == pytest.approx(stats.pearsonr(by_word, counts.iloc[some]).statistic)
    assert told.rho["category"] == pytest.approx(stats.spearmanr(x, y).statistic)


def test_few_words_that_occur_have_no_correlation():
    member = np.arange(60)[:, None] // 5 == np.arange(12)  # twelve categories of five
    scores = np.where(member, drawn(60, 12), np.nan)
    words = [f"w{k}" for k in range(60)]

    def told(*places):
        return silhouette.frequency_correlations(
            scores, words, pd.Series(np.isin(np.arange(60), places) * 7, words), 50
        )

    for few in (told(), told(3), told(*range(9))):
        assert few[["r", "low", "high", "rho"]].isna().all(axis=None)
    some = told(*range(0, 20, 2)).set_index("level")  # ten words of four categories
    assert some.seen.to_dict() == {"word": 10, "category": 4}
    assert np.isfinite(some.r["word"])
    assert np.isnan(some.r["category"])
    assert told(*range(0, 50, 5)).seen.tolist() == [10, 10] and told(*range(0, 50, 5)).r.notna().all()


def test_gains_are_paired_by_seed_and_by_thing():
    things = [f"t{k}" for k in range(40)]
    before = {s: pd.Series(drawn(40, seed=s), things) for s in (0, 1, 2)}
    after = {s: before[s] + 0.5 + 0.1 * s for s in (2, 1, 0)}
    told = gains.gain(after, before, 100)
    half = stats.t.ppf(0.975, 2) * 0.1 / np.sqrt(3)
    assert told["mean"] == pytest.approx(0.6)
    assert told["low"] == pytest.approx(0.6 - half)
    assert told["over"] == "seeds"
    assert told["p"] < 1e-6
    one = gains.gain({7: after[0]}, {None: before[0] - drawn(40, seed=9)}, 500)
    assert one["over"] == "things" and one["n"] == 1 and one["low"] < one["mean"] < one["high"]
    twin = gains.differences({5: before[1]}, before)[5]
    assert np.allclose(twin, before[1] - np.mean(list(before.values()), 0)), "no such seed before: against the mean"


def test_the_answer_on_the_zebra_follows_the_ranks():
    def table(rank, cosine):
        return pd.DataFrame({"query": ["q"], "target": ["t"], "rank": [rank], "cosine": [cosine]})

    def line(*ranks):
        return gains.query_changes({s: table(r, 0.9) for s, r in enumerate(ranks)}, {None: table(100, 0.1)}).iloc[0]

    assert gains.verdict(line(10, 12, 9)) == "yes" and gains.verdict(line(400, 500, 450)) == "no"
    assert gains.verdict(line(10, 400, 90)) == "undecided" and gains.verdict(line(10)) == "nearer in this one run"
    assert gains.verdict(line(99, 99, 99)) == "undecided", "equal changes have no interval"
    mid = line(10, 12, 9)
    logs = np.log([10, 12, 9]) - np.log(100)
    ends = stats.t.interval(0.95, 2, logs.mean(), stats.sem(logs))
    assert (mid.log_rank_low, mid.log_rank_high) == pytest.approx(ends)
    assert mid.rank_after == pytest.approx((10 * 12 * 9) ** (1 / 3))


def test_silhouette_of_nothing_and_of_everything():
    words = [f"w{k}" for k in range(6)]
    member = silhouette.memberships(words, {"a": words[:3], "b": words[3:]})
    assert np.nanmax(np.abs(silhouette.silhouettes(np.ones((6, 4)), member))) < 1e-9, (
        "a collapsed space clusters nothing"
    )
    assert np.isfinite(silhouette.silhouettes(np.zeros((6, 4)), member)[member]).all()
    apart = np.repeat(np.eye(2), 3, axis=0)
    assert np.allclose(silhouette.silhouettes(apart, member)[member], 1)
    with pytest.raises(ValueError, match="two or more categories"):
        silhouette.silhouettes(apart, member[:, :1])
    with pytest.raises(ValueError, match="'keep' or 'leave'"):
        silhouette.silhouettes(apart, member, "both")


# --- neighbours


def test_ranks_by_counting_and_ties_behind():
    scores = np.round(drawn(200), 1)
    for k in range(200):
        assert neighbours.rank(scores, k) == sum(scores[j] >= scores[k] - 1e-6 for j in range(200) if j != k) + 1
    assert neighbours.rank(np.array([0.5, 0.5 + 5e-7]), 0) == 2 and neighbours.rank(np.array([0.5, 0.5 + 5e-7]), 1) == 2


def test_a_collapsed_space_finds_no_target():
    words = [target for _, target in neighbours.QUERIES] + [f"w{k}" for k in range(50)]
    table = neighbours.query_table(lambda texts: np.ones((len(texts), 3)), words, np.ones((len(words), 3)))
    assert (table["rank"] == len(words)).all() and (table.ties == len(words) - 1).all() and len(table) == 9


def test_a_target_that_is_no_word_of_the_vocabulary_is_put_in():
    base = np.eye(4)[:3]

    def embed(texts):
        return np.array([[0, 0, 1, 1.0] if text == "query" else [0, 0, 0, 1.0] for text in texts])

    table = neighbours.query_table(embed, ["a", "b", "c"], base, [("query", "target")])
    assert not table.known[0] and table.of[0] == 4 and table["rank"][0] == 2, "c is as near, so it stands before"


def test_slope_keeps_the_strict_rank_of_the_target():
    before = np.array([0.5, 0.5, 0.9, 0.1])
    after = np.array([0.9, 0.1, 0.2, 0.3])
    table = neighbours.slope_table(["a", "b", "c", "d"], before, after, "a", 2).set_index("word")
    assert table.before["a"] == 3
    assert table.after["a"] == 1
    assert table.before["c"] == 1
    assert set(table.index) == {"a", "c", "d"}


def test_a_word_near_to_several_prototypes_is_drawn_once():
    """Dog stands in horse's list and pony in both; each dot has the colour of the nearest, a prototype its own."""
    lines = [
        ("dog", "puppy", 0.9, 0.1, 0.2),
        ("dog", "pony", 0.5, 0.1, 0.8),
        ("goose", "duck", 0.1, 0.9, 0.2),
        ("goose", "dog", 0.8, 0.3, 0.8),
    ]
    lines += [("horse", "pony", 0.5, 0.1, 0.8), ("horse", "dog", 0.8, 0.3, 0.8)]
    table = pd.DataFrame(lines, columns=["prototype", "word", "dog", "goose", "horse"])
    table.insert(1, "rank", 1)
    figure = word_figures.prototype_figure(table, "animals")
    for plane in range(3):
        shown = {trace.name: list(trace.customdata) for trace in figure.data[3 * plane : 3 * plane + 3]}
        assert shown == {"near dog": ["puppy", "dog"], "near goose": ["duck"], "near horse": ["pony"]}


# --- norms


@pytest.mark.parametrize("intercept", [True, False])
def test_solve_is_scikit_learns(intercept):
    x = drawn(90, 7) * np.array([3, 2, 1, 1, 0.5, 0.3, 0.1])
    x = x - x.mean(0)
    y = drawn(90, 3, seed=3) + x[:, :3] > 0.3
    counts = np.random.default_rng(4).random((90, 3)) < 0.8
    penalty = np.array([0.5, 3.0, 8.0])
    full = np.concatenate([np.ones((90, 1)), x], 1) if intercept else x
    made = [torch.tensor(v, dtype=torch.float64) for v in (full, y.astype(float), counts.astype(float), penalty)]
    ours = norm_readout.solve(*made, intercept=intercept, tolerance=1e-6, steps=20_000)[0].numpy()
    for k in range(3):
        rows = counts[:, k]
        model = LogisticRegression(
            l1_ratio=1.0, C=1 / penalty[k], solver="saga", tol=1e-10, max_iter=100_000, fit_intercept=intercept
        )
        model.fit(x[rows], y[rows, k])
        theirs = np.r_[model.intercept_, model.coef_[0]] if intercept else model.coef_[0]
        assert np.allclose(ours[:, k], theirs, atol=1e-4), k


def test_all_weights_are_zero_at_the_largest_penalty_and_not_below():
    x = torch.tensor(norm_readout._coordinates(drawn(80, 6)))
    y = torch.tensor((drawn(80, 2, seed=1) + x[:, :2].numpy() > 0.4).astype(np.float32))
    top = norm_readout._largest_penalty(x, y)
    full = torch.cat([torch.ones(80, 1), x], 1)

    def fit(share):
        return norm_readout.solve(full, y, torch.ones_like(y), share * top, tolerance=1e-4)[0][1:].abs().amax(0)

    assert (fit(1.001) == 0).all() and (fit(0.95) > 0).all()


def slow_read_out(x, y, folds, shares, nested):
    """One feature, with scikit-learn, as the text says it: share, likelihood, F1 inside and on left-out words."""
    points = norm_readout._coordinates(x).astype(np.float64)
    top = float(norm_readout._largest_penalty(torch.tensor(points), torch.tensor(y[:, None].astype(float))))
    part = norm_readout._assign_folds(len(y), folds)

    def fit(c, rows):
        return LogisticRegression(l1_ratio=1.0, C=1 / c, solver="saga", tol=1e-8, max_iter=50_000).fit(
            points[rows], y[rows]
        )

    def likelihood(logits, rows):
        told = np.array([-log_loss([t], [p], labels=[False, True]) for t, p in zip(y[rows], expit(logits[rows]))])
        return told[y[rows]].mean() + told[~y[rows]].mean()

    # of every word but the judged part's, by regressions without its own part and, nested, the judged
    def scores(share, judged):
        out = np.zeros(len(y))
        for p in range(folds):
            hidden = (part == p) | ((part == judged) if nested else False)
            out[part == p] = fit(share * top, ~hidden).decision_function(points[part == p])
        return out

    paths = {judged: [scores(share, judged) for share in shares] for judged in range(-1, folds)}
    whole = [likelihood(row, np.ones(len(y), bool)) for row in paths[-1]]
    best = int(np.argmax(whole))
    said = np.zeros(len(y), bool)
    for p in range(folds):
        chosen = int(np.argmax([likelihood(row, part != p) for row in paths[p]]))
        said[part == p] = paths[-1][chosen][part == p] > 0
    inside = fit(shares[best] * top, np.ones(len(y), bool)).predict(points)
    return shares[best], whole[best], f1_score(y, inside), f1_score(y, said)


@pytest.mark.parametrize("nested", [True, False])
def test_a_read_out_is_what_the_text_says(nested):
    shares = (0.7, 0.4, 0.2, 0.1)
    for seed in (5, 6):
        x = drawn(48, 5, seed=seed) * np.array([3, 2, 1, 1, 1])
        y = x[:, 0] + 2 * drawn(48, seed=seed + 10) > 1
        norms = Norms(tuple(f"w{k}" for k in range(48)), ("f",), ("t",), y[:, None])
        table = norm_readout.read_out(x, norms, folds=4, shares=shares, nested=nested, patience=None)
        share, likelihood, inside, held_out = slow_read_out(x, y, 4, shares, nested)
        assert table.share[0] == share and table.likelihood[0] == pytest.approx(likelihood, abs=2e-2)
        assert table.f1[0] == pytest.approx(inside, abs=0.03)
        assert table.f1_held_out[0] == pytest.approx(held_out, abs=0.03)


def test_what_did_not_settle_is_told(monkeypatch):
    x = drawn(40, 6)
    solve = norm_readout.solve
    norms = Norms(tuple(f"w{k}" for k in range(40)), ("f",), ("t",), (x[:, :1] > 0.3))
    assert norm_readout.read_out(x, norms, folds=3).unsettled[0] == 0
    monkeypatch.setattr(norm_readout, "solve", lambda *args: solve(*args, steps=1))
    table = norm_readout.read_out(x, norms, folds=3, shares=(0.5, 0.01))
    assert table.unsettled[0] > 0 and any("had not settled" in note for note in norm_readout.reading_notes(table))


def test_leave_one_out_is_as_many_parts_as_words_and_noise_is_not_read():
    x = drawn(40, 5)
    draw = np.random.default_rng(0)
    has = np.stack([x[:, 0] > 0.2, draw.random(40) < 0.4], 1)
    norms = Norms(tuple(f"w{k}" for k in range(40)), ("real", "noise"), ("a", "b"), has)
    one = norm_readout.read_out(x, norms, folds=0)
    other = norm_readout.read_out(x, norms, folds=40)
    assert one.f1_held_out[0] > 0.8 and one.f1_held_out[1] < 0.5
    assert np.allclose(one.f1, other.f1) and np.allclose(one.likelihood, other.likelihood, atol=1e-3), (
        "the order of words does not matter"
    )
    ends = norm_readout.read_out(x, norms, folds=4, shares=(0.6, 0.1))
    assert ends.strongest.tolist() == [False, True] and ends.weakest.tolist() == [True, False], (
        "where the chosen penalties sit"
    )
    notes = norm_readout.reading_notes(ends)[1:]
    assert [note.split(":")[0] for note in notes] == [
        f"1 of 2 features chose the {end} penalty" for end in ("strongest", "weakest")
    ]
    told = norm_readout.compare_read_outs(one.assign(f1_held_out=0.0), one)
    assert told.type.tolist() == ["a", "b", "all"]
    assert told.unread_before.tolist()[-1] == 2
    assert "real" in told.improved.iloc[-1]
    with pytest.raises(ValueError, match="folds is 0"):
        norm_readout.read_out(x, norms, folds=41)
    with pytest.raises(ValueError, match="same norms"):
        norm_readout.compare_read_outs(one, one.assign(feature=["x", "y"]))


@pytest.mark.parametrize("intercept", [True, False])
def test_a_collapsed_space_reads_no_norm(intercept):
    """As where a tokenizer takes every word for one unknown word."""
    norms = Norms(tuple(f"w{k}" for k in range(30)), ("f",), ("t",), np.arange(30)[:, None] < 10)
    table = norm_readout.read_out(np.ones((30, 4)), norms, folds=3, intercept=intercept)
    assert table.f1[0] == 0 and table.f1_held_out[0] == 0 and table.used[0] == 0


def test_better_is_scipys_one_sided_test():
    a = drawn(30)
    b = drawn(30, seed=1) - 0.5
    assert silhouette.signed_rank_test(a, b)["p"] == pytest.approx(stats.wilcoxon(a, b, alternative="greater").pvalue)
    assert silhouette.signed_rank_test(b, a)["p"] > 0.5 and silhouette.signed_rank_test(a, a)["p"] is None


# --- GLUE


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_are_scikit_learns(classes):
    said, true = np.random.default_rng(classes).integers(0, classes, (2, 80))
    value, low, high = _metric_interval(said, true, classes, "matthews")
    assert value == pytest.approx(matthews_corrcoef(true, said)) and low < value < high
    assert _metric_interval(said, true, classes, "accuracy")[0] == pytest.approx((said == true).mean())
    if classes == 2:
        assert _metric_interval(said, true, 2, "f1")[0] == pytest.approx(f1_score(true, said))


def test_a_frozen_encoder_that_knows_the_answer_is_heard():
    train, dev, task = acceptability_task(200)
    answers = dict(zip(sum((e.texts for e in (train, dev)), ()), sum((e.labels for e in (train, dev)), ())))

    def knows(texts):
        return np.array([[float(answers[(t,)]), 0.5] for t in texts])

    acceptability = Glue(train, dev, task, epochs=10)
    assert acceptability.run(knows)[0].value > 0.95 and acceptability.blind([])["majority"][0].value == 0
    (nothing,) = Glue(train, dev, task, epochs=2).run(lambda texts: np.zeros((len(texts), 2)))
    assert nothing.value == 0


def test_pair_tasks_and_faults_of_their_files(tmp_path):
    folder = tmp_path / "RTE"
    folder.mkdir()
    lines = [
        f'{k}\tA "dog {k} runs.\tAn animal {k} moves.\t{"entailment" if k % 2 else "not_entailment"}' for k in range(24)
    ]
    for name in ("train.tsv", "dev.tsv"):
        (folder / name).write_text("index\tsentence1\tsentence2\tlabel\n" + "\n".join(lines))
    train, dev, task = read_task(folder)
    entailment = Glue(train, dev, task, epochs=2)
    assert entailment.run(lambda texts: np.array([[float(len(t)), t.count("a")] for t in texts]))[0].n == 24
    assert len(train.texts) == 24 and len(train.texts[0]) == 2 and entailment.blind([])["majority"][0].value == 0.5
    (folder / "dev.tsv").write_text("index\tsentence1\tsentence2\n1\ta\tb")
    with pytest.raises(BadData, match="expected label"):
        read_task(folder)
    (folder / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n1\ta\tb")
    with pytest.raises(BadData, match="line 2: 3 cells"):
        read_task(folder)
    (folder / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n1\ta\tb\tmaybe")
    with pytest.raises(BadData, match="'maybe'.*never trained"):
        Glue(*read_task(folder)).run(lambda texts: np.zeros((len(texts), 2)))
    with pytest.raises(ValueError, match="one of CoLA, SST-2"):
        read_task(tmp_path)


def test_words_that_a_model_does_not_know_are_named():
    space = spaces.untrained_space(["a striped horse", "zebra"], "x").space
    space.cache = False
    words = ["horse", "zebra"]
    with pytest.warns(UserWarning, match="does not know 'unicorn', 'teapot'"):
        table = neighbours.query_table(
            space, words, space(words), [("striped unicorn", "zebra"), ("striped horse", "teapot")]
        )
    assert len(table) == 2
    with pytest.warns(UserWarning, match="does not know 'teapot'"):
        neighbours.prototype_table(space, words, space(words), ["horse", "zebra", "teapot"])
    with pytest.warns(UserWarning, match=r"1 of 2 categories have fewer than 2 known words: tools \(unknown: saw\)"):
        components.category_means(pd.DataFrame({"x": [0.0, 1.0]}, words), {"animals": words, "tools": ["saw"]})
    assert components.missing_poles(["a", "lettuce"]).endswith(
        "(low: none; high: lettuce; 2 of either side are needed)"
    )


# --- from a name to a space


def test_names_of_models(tmp_path):
    assert split_name("a=b@c") == ("a", "b", "c") and split_name("/x=y/z") == ("", "/x=y/z", "")
    found = spaces.space_sources(["before=minilm", {"label": "own", "tower": {"tower": "minilm", "keep_end": False}}])
    assert [(p.method, p.seed) for p in found] == [("before", None), ("own", None)]
    with pytest.raises(ValueError, match="unknown tower 'word2vec'"):
        spaces.space_sources(["word2vec"])
    with pytest.raises(ValueError, match="two models are called 'minilm'"):
        spaces.space_sources(["minilm", "minilm"])
    with pytest.raises(FileNotFoundError, match="no run under"):
        spaces.space_sources([str(tmp_path)])
    with pytest.raises(FileNotFoundError, match="there is no folder results/nope"):
        spaces.space_sources(["g=results/nope@ground"])


def test_a_name_with_an_at_sign_opens_what_has_that_name_or_nothing(tmp_path, monkeypatch):
    """`tower@main` opened the folder `tower`, and `hf:NAME@main` opened `hf:NAME`, without a word."""
    for name, config in (("tower", {}), ("tower@main", {}), ("saved", {"towers": {}}), ("saved@best", {"towers": {}})):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for name in ("tower", "tower@main", "saved", "saved@best"):
        (found,) = spaces.space_sources([f"mine={tmp_path / name}"])
        assert str(found.source).removeprefix("hf:") == str(tmp_path / name) and found.method == "mine"
    monkeypatch.chdir(tmp_path)
    (found,) = spaces.space_sources(["hf:tower@main"])
    assert found.source == "hf:tower@main"
    for typed in (str(tmp_path / "tower"), str(tmp_path / "saved"), "hf:no/model", "minilm"):
        with pytest.raises(FileNotFoundError, match=f"@late selects weights of a run, but {typed} is none"):
            spaces.space_sources([f"mine={typed}@late"])


def test_an_untrained_space_is_told_by_its_seed():
    one, again, other = (spaces.untrained_space(["zebra", "a horse"], "x", seed) for seed in (0, 0, 1))
    for place in (one, again, other):
        place.space.cache = False
    assert np.array_equal(one.space(["zebra"]), again.space(["zebra"]))
    assert not np.allclose(one.space(["zebra"]), other.space(["zebra"]))
