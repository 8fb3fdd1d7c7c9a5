"Recognition against scikit-learn and torchmetrics."

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from sklearn import metrics
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from stand_ins import StandIn, constant, hashed, random_scorer
from torchmetrics.classification import BinaryAUROC, MulticlassAccuracy

from complearn.core.seeds import rng
from complearn.data.benchmarks.nlvr import Claim
from complearn.data.pairs import Pair
from complearn.evaluation.tasks.classification import Attributes, neighbour_guesses
from complearn.evaluation.tasks.recognition import (
    Recognition,
    _summarise_zero_shot,
    evaluate_zero_shot,
    features_of,
    fit_probe,
    judge_classes,
    linear_probe,
)
from complearn.evaluation.tasks.statements import (
    Statements,
    _best_threshold,
    _cross_thresholds,
    evaluate_statements,
    wins,
)
from complearn.models.scoring import Encoded

CLASSES = [f"class{i}" for i in range(8)]


def near_its_class(noise=2.0):
    "An image 'i of classk' lies near the word 'classk'."

    def word(text):
        return hashed(next(w for w in text.split() if w.startswith("class")))

    return StandIn(lambda image: word(image) + noise * hashed(image), lambda text: word(text) + 0.5 * hashed(text))


LABELS = np.random.default_rng(0).integers(0, 8, 300) // (1 + np.arange(300) % 2)  # low classes are commoner
ITEMS = [(f"{i} of {CLASSES[label]}", label) for i, label in enumerate(LABELS)]


def test_zero_shot_against_scikit_learn_and_torchmetrics():
    frame = evaluate_zero_shot(near_its_class(), ITEMS, CLASSES, ["a photo of a {}", "a drawing of {}"], batch_size=37)
    values = {r.metric: r.value for r in _summarise_zero_shot(frame, classes=8)}
    assert values["accuracy"] == pytest.approx(metrics.accuracy_score(frame["label"], frame["guess"]))
    assert 0.3 < values["accuracy"] < 0.95
    assert values["class_accuracy"] == pytest.approx(metrics.balanced_accuracy_score(frame["label"], frame["guess"]))


def test_top5_against_torchmetrics():
    scores = torch.randn(200, 9, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(200) % 9
    values = {r.metric: r.value for r in _summarise_zero_shot(judge_classes(scores, labels))}
    for metric, k in (("accuracy", 1), ("top5_accuracy", 5)):
        theirs = MulticlassAccuracy(9, top_k=k, average="micro")(scores, labels).item()
        assert values[metric] == pytest.approx(theirs)
    assert "top5_accuracy" not in {r.metric for r in _summarise_zero_shot(judge_classes(scores[:, :5], labels % 5))}


def test_prompt_ensemble_is_clips():
    scorer = near_its_class()
    templates = ["a photo of a {}", "a {} here", "{}"]
    frame = evaluate_zero_shot(scorer, ITEMS, CLASSES, templates)

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    weights = [unit(np.mean([unit(scorer.read(t.format(c))) for t in templates], axis=0)) for c in CLASSES]
    guesses = [int(np.argmax(np.array(weights) @ scorer.see(image))) for image, _ in ITEMS]
    # the stand-in's encodings are not unit vectors, so its own mean weighs prompts by length: encode unit vectors
    # instead
    scorer.read = lambda text, read=near_its_class().read: unit(read(text))
    frame = evaluate_zero_shot(scorer, ITEMS, CLASSES, templates)
    assert frame["guess"].tolist() == guesses


def test_ensembles_of_scores_serve_ragged_encodings():
    templates = ["a {}", "the {}"]
    vectors, scores = (
        evaluate_zero_shot(near_its_class(), ITEMS, CLASSES, templates, ensemble=e) for e in ("embedding", "score")
    )
    assert abs(vectors["right"].mean() - scores["right"].mean()) < 0.1
    ragged = near_its_class()
    ragged.encode_texts = lambda batch: Encoded(
        torch.ones(len(batch), 2, 4), torch.ones(len(batch), 2, dtype=torch.bool)
    )
    with pytest.raises(ValueError, match="'score'"):
        evaluate_zero_shot(ragged, ITEMS, CLASSES, templates, ensemble="embedding")
    ragged.similarity = lambda images, texts, pairs=None: torch.zeros(len(images), len(texts))
    assert evaluate_zero_shot(ragged, ITEMS, CLASSES, templates)["tied"].all()  # left open, scores are averaged


def test_a_collapsed_model_recognises_nothing_and_chance_is_chance():
    rows = _summarise_zero_shot(evaluate_zero_shot(constant(), ITEMS, CLASSES), classes=8)
    assert all(r.value == 0 and r.ties == 1 for r in rows)
    balanced = [(f"{i}.jpg", i % 8) for i in range(1600)]
    value = _summarise_zero_shot(evaluate_zero_shot(random_scorer(), balanced, CLASSES))[0].value
    assert value == pytest.approx(1 / 8, abs=0.03)


@pytest.mark.parametrize(
    "items, classes, templates, match",
    [
        ([], CLASSES, ["{}"], "0 items"),
        ([("a", 9)], CLASSES, ["{}"], "labels within"),
        ([("a", 0)], CLASSES[:1], ["{}"], "1 classes"),
        ([("a", 0)], CLASSES, ["a photo"], "a photo"),
        ([("a", 0)], CLASSES, [], "none"),
    ],
)
def test_zero_shot_errors(items, classes, templates, match):
    with pytest.raises(ValueError, match=match):
        evaluate_zero_shot(constant(), items, classes, templates)


# linear probe


def blobs(n=400, d=12, scale=1.0, seed=0, classes=4):
    draw = np.random.default_rng(seed)
    labels = np.arange(n) % classes
    means = np.random.default_rng(99).normal(size=(classes, d))
    return (scale * (means[labels] + 0.8 * draw.normal(size=(n, d)))).astype(np.float32), labels


def test_probe_is_the_optimum_of_the_penalised_likelihood_on_standardised_features():
    features, labels = blobs()
    probe = fit_probe(features, labels, strength=0.3)
    z = (features.astype(np.float64) - features.mean(0)) / features.std(0)
    weight = torch.tensor(probe[-1].coef_, dtype=torch.float64, requires_grad=True)
    bias = torch.tensor(probe[-1].intercept_, dtype=torch.float64, requires_grad=True)
    surprise = torch.nn.functional.cross_entropy(
        torch.tensor(z) @ weight.T + bias, torch.tensor(labels), reduction="sum"
    )
    loss = 0.3 * surprise + weight.square().sum() / 2
    loss.backward()
    assert probe[-1].solver == "lbfgs" and weight.grad.abs().max() < 2e-2 and bias.grad.abs().max() < 2e-2
    start = 0.3 * len(labels) * np.log(4)
    assert loss.item() < 0.7 * start


def test_probe_standardises_on_the_training_features_alone():
    features, labels = blobs()
    test, answers = blobs(seed=1)
    probe = fit_probe(features, labels, strength=1.0)
    assert np.allclose(probe[0].mean_, features.mean(0), atol=1e-5)
    assert np.allclose(probe[0].scale_, features.std(0), rtol=1e-4)
    assert (probe.predict(test[:10]) == probe.predict(test)[:10]).all(), (
        "a test image's answer does not depend on the other test images"
    )
    assert probe.score(test + 100, answers) < 0.6, "shifted test features must not be centred on themselves"


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_probe_does_not_depend_on_the_scale_of_the_features(scale):
    features, labels = blobs(scale=scale)
    test, answers = blobs(scale=scale, seed=1)
    assert fit_probe(features, labels).score(test, answers) == pytest.approx(
        fit_probe(*blobs()).score(*blobs(seed=1)), abs=0.02
    )


def test_probe_on_noise_is_at_chance_and_picks_a_strong_penalty():
    draw = np.random.default_rng(0)
    noise = draw.normal(size=(300, 40)).astype(np.float32)
    labels = np.arange(300) % 3
    probe = fit_probe(noise, labels)
    test = draw.normal(size=(900, 40)).astype(np.float32)
    assert abs(probe.score(test, np.arange(900) % 3) - 1 / 3) < 0.06
    assert fit_probe(*blobs())[-1].C in np.logspace(-4, 2, 7)


def test_a_penalty_is_chosen_from_those_that_are_given_by_what_held_out_folds_say():
    features, labels = blobs(120, 60)
    chosen = fit_probe(features, labels, (1e-4, 1e-2, 1e2))[-1].C
    search = GridSearchCV(
        make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        {"logisticregression__C": [1e-4, 1e-2, 1e2]},
        cv=StratifiedKFold(3, shuffle=True, random_state=0),
    )
    assert chosen == search.fit(features, labels).best_params_["logisticregression__C"]
    assert fit_probe(features, labels, (0.3,))[-1].C == fit_probe(features, labels, 0.3)[-1].C == 0.3


def test_probe_says_when_a_class_is_too_small_to_choose_a_penalty():
    features, labels = blobs(9, classes=8)
    with pytest.raises(ValueError, match="two or more training images of every class"):
        fit_probe(features, labels)
    assert fit_probe(features, labels, strength=1.0).score(features, labels) == 1.0


def test_linear_probe_of_a_scorer_sees_images_only():
    scorer = near_its_class(noise=0.5)
    score = linear_probe(scorer, ITEMS[:200], ITEMS[200:])
    assert score.value > 0.9 and score.n == 100 and score.split == "linear_probe" and scorer.read_texts == []
    assert score.low <= score.value <= score.high
    shuffled = [(image, (label * 3 + i) % 8) for i, (image, label) in enumerate(ITEMS)]
    assert linear_probe(scorer, shuffled[:200], shuffled[200:]).value < 0.35


def test_recognition_runs_zero_shot_and_the_probe_and_names_the_images_that_it_judges(capsys):
    task = Recognition(ITEMS[200:], CLASSES, train=ITEMS[:200])
    assert {score.split for score in task.run(near_its_class())} == {"zero_shot", "linear_probe"}
    assert len({pair.id for pair in task.items()}) == 100  # a probe may be fitted on any pictures
    (chance,) = task.blind(["a caption"])["chance"]
    assert (chance.split, chance.metric, chance.value, chance.n) == ("zero_shot", "accuracy", 1 / 8, 100)
    few = Recognition(ITEMS[200:], CLASSES, train=[(image, k) for k, (image, _) in enumerate(ITEMS[:8])]).run(
        near_its_class()
    )
    assert {score.split for score in few} == {"zero_shot"}
    assert "a class has one training image" in capsys.readouterr().out


def test_ragged_features_are_averaged_over_real_positions():
    values = torch.randn(3, 5, 4)
    mask = torch.arange(5)[None] < torch.tensor([5, 2, 1])[:, None]
    naive = np.stack([values[i, : int(mask[i].sum())].mean(0).numpy() for i in range(3)])
    assert np.allclose(features_of(Encoded(values, mask)), naive, atol=1e-6)
    assert np.allclose(features_of(Encoded(values)), values.mean(1).numpy(), atol=1e-6)


# true or false


@given(st.integers(0, 9999), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_area_against_scikit_learn_with_ties(seed, levels):
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, levels, 60) / levels
    truth = np.r_[True, False, draw.random(58) < 0.4]
    assert wins(scores[truth], scores[~truth]).mean() == pytest.approx(metrics.roc_auc_score(truth, scores), abs=1e-6)


def test_area_against_torchmetrics():
    draw = np.random.default_rng(0)
    truth = draw.random(500) < 0.5
    scores = draw.normal(size=500) + truth
    theirs = BinaryAUROC()(torch.tensor(scores), torch.tensor(truth)).item()
    assert wins(scores[truth], scores[~truth]).mean() == pytest.approx(theirs, abs=1e-5)


@given(st.integers(0, 9999), st.integers(1, 8), st.integers(1, 25))
@settings(max_examples=150, deadline=None)
def test_best_threshold_against_trying_all(seed, levels, n):
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, levels, n) / levels
    truth = draw.random(n) < 0.5
    cut = _best_threshold(scores, truth)
    tried = max(((scores > c) == truth).mean() for c in [-np.inf, *(np.unique(scores) + 1e-3)])
    assert ((scores > cut) == truth).mean() == pytest.approx(tried)


def test_thresholds_never_see_their_own_sentence():
    "One sentence with its own scale: if its own statements chose the threshold, they would be judged perfectly."
    groups = np.repeat(np.arange(10), 20)
    truth = np.tile([True, False], 100)
    scores = np.where(truth, 1.0, 0.0)
    scores[groups == 3] += 100.0
    right = _cross_thresholds(scores, truth, groups) == truth
    assert right[groups != 3].all() and right[groups == 3].mean() == 0.5
    with pytest.raises(ValueError, match="2 or more sentences; got 1"):
        _cross_thresholds(scores, truth, np.zeros(200, int))


def claims(n=400, share=0.6, pictures=4):
    draw = np.random.default_rng(0)
    return [
        Claim(f"sentence {i // pictures}", Path(f"{i}.png"), bool(draw.random() < share), str(i), str(i))
        for i in range(n)
    ]


def knows(items, strength):
    truth = {(c.sentence, c.image): c.truth for c in items}
    scorer = StandIn(lambda image: hashed(image, 4), lambda text: hashed(text, 4))
    images = []
    texts = []
    encode_images = scorer.encode_images
    encode_texts = scorer.encode_texts
    scorer.encode_images = lambda batch: (images.extend(batch.images), encode_images(batch))[1]
    scorer.encode_texts = lambda batch: (texts.extend(batch.captions), encode_texts(batch))[1]

    def similarity(a, b, pairs):
        keys = [(texts[j], images[i]) for i, j in np.asarray(pairs)]
        return torch.tensor([strength * truth[key] + hashed(key, 1)[0] for key in keys])

    scorer.similarity = similarity
    return scorer


def test_statements_of_a_model_that_knows_of_one_that_does_not_and_of_a_collapsed_one():
    items = claims()
    known, blank, flat = (evaluate_statements(s, items) for s in (knows(items, 3.0), knows(items, 0.0), constant(4)))
    majority = np.mean([c.truth for c in items])
    assert known[0].value > 0.95 and known[1].value > 0.85 and known[0].low < known[0].value < known[0].high
    assert abs(blank[0].value - 0.5) < 0.1 and abs(blank[1].value - majority) < 0.08
    assert flat[0].value == 0.5 and flat[0].ties == 1.0 and flat[1].value == pytest.approx(majority)
    (rate,) = Statements(items).blind(["a caption"])["majority"]
    assert (rate.metric, rate.value, rate.n) == ("accuracy", pytest.approx(majority), len(items))
    with pytest.raises(ValueError, match="400 of 400 are true"):
        evaluate_statements(constant(4), claims(share=1.1))


def test_statements_interval_against_resampling_sentences_naively():
    items = claims(160)
    row = evaluate_statements(knows(items, 1.0), items, draws=4000)[0]
    draw = np.random.default_rng(5)
    truth = np.array([c.truth for c in items])
    scores = np.array([1.0 * c.truth + hashed((c.sentence, c.image), 1)[0] for c in items])
    areas = []
    for _ in range(500):
        index = (draw.integers(0, 40, 40)[:, None] * 4 + np.arange(4)).ravel()
        areas.append(metrics.roc_auc_score(truth[index], scores[index]))
    assert (row.low, row.high) == pytest.approx(tuple(np.quantile(areas, [0.025, 0.975])), abs=0.025)


# --- attributes


class Positions:
    """Encodes an image by the numbers that stand in its first pixels."""

    def collate(self, pairs):
        pairs = [pair if isinstance(pair, Pair) else Pair(pair, None, "", "") for pair in pairs]
        return torch.tensor(np.stack([pair.image for pair in pairs])).flatten(1)[:, :6].double()

    def encode_images(self, batch):
        return Encoded(batch)


def spots(n, seed, values=("a", "b", "c")):
    """Images whose first pixels tell their label `kind`, and all of which have the label `same`."""
    draw = rng(seed, "spots")
    pairs = []
    for k in range(n):
        kind = int(draw.integers(len(values)))
        picture = draw.integers(0, 120, (2, 2, 3), dtype=np.uint8)
        picture.reshape(-1)[kind] += 100
        pairs.append(Pair(picture, None, str(k), str(k), labels={"kind": values[kind], "same": "x"}))
    return pairs


@pytest.mark.parametrize("neighbours, temperature", [(1, 0.1), (7, 0.1), (7, 1.0), (500, 0.05)])
def test_neighbour_guesses_are_votes_by_similarity(neighbours, temperature):
    draw = rng(0, "neighbours")
    fit, judge = draw.normal(size=(60, 5)), draw.normal(size=(25, 5))
    labels = draw.integers(0, 4, 60)
    guesses = neighbour_guesses(fit, labels, judge, neighbours, temperature)
    for vector, guess in zip(judge, guesses):
        cosines = fit @ vector / np.linalg.norm(fit, axis=1) / np.linalg.norm(vector)
        votes = np.zeros(4)
        for k in np.argsort(-cosines)[:neighbours]:
            votes[labels[k]] += np.exp(cosines[k] / temperature)
        assert guess == votes.argmax()
    with pytest.raises(ValueError, match="at least 1 and the temperature above 0, not 0 and 0.1"):
        neighbour_guesses(fit, labels, judge, 0)


def test_a_probe_that_cannot_be_fitted_names_its_attribute():
    train, test = spots(40, 0), spots(10, 1)
    with pytest.raises(ValueError, match="attribute same: all 40 training images have the value 'x'"):
        Attributes(train, test).run(Positions())
    few = [replace(pair, labels={"kind": pair.labels["kind"]}) for pair in [*train, *spots(1, 2, ("d",))]]
    with pytest.raises(ValueError, match="attribute kind: choosing the probe's penalty needs two or more"):
        Attributes(few, test).run(Positions())


def test_the_interval_of_an_area_leaves_out_draws_without_true_or_without_false_statements():
    items = [Claim(f"sentence {k}", f"{k}.png", k < 2, str(k), str(k)) for k in range(4)]
    area = evaluate_statements(knows(items, 9.0), items)[0]
    assert (area.value, area.low, area.high) == (1, 1, 1)


def test_statements_that_are_compared_in_parts_have_the_same_area(monkeypatch):
    items = claims(160)
    scorer = knows(items, 1.0)
    whole = evaluate_statements(scorer, items)[0]
    monkeypatch.setattr("complearn.evaluation.tasks.statements._ENTRIES", 1000)
    parts = evaluate_statements(scorer, items)[0]
    assert (parts.value, parts.ties) == (whole.value, whole.ties)
    assert (parts.low, parts.high) == pytest.approx((whole.low, whole.high), rel=1e-5)
