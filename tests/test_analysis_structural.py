"""Structural worlds: mixtures that can be undone, words with known chances, dials whose ends are known."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from notebook_cells import run_cells
from scipy.stats import norm

from complearn.analysis.identifiability.redundancy import (
    OPERATORS,
    RoleWorld,
    _all_texts,
    _text_number,
    averaged_readings,
    hard_negatives,
    inverse_scenes,
    premise,
    redundancy_rows,
    set_valued_readings,
)
from complearn.analysis.identifiability.structural import (
    Encoders,
    Mixing,
    StructuralWorld,
    _contrastive,
    as_inputs,
    identifiability,
    r_squared,
)
from complearn.core.results import Result

WORDED = StructuralWorld(layers=2, vocabulary=6, tokens=2, seed=4)


def test_a_linear_world_draws_what_it_drew_before_mixtures_could_bend():
    """Numbers of the code before there were layers and words."""
    drawn = StructuralWorld(seed=1).draw(3, 9)
    ends = [drawn[name].flat[k] for name in ("image", "tokens", "noise", "image_private") for k in (0, -1)]
    assert ends == pytest.approx(
        [0.20160586732, 0.01322867743, 0.51528763947, 2.66094557010, 0.98543875942, -1.43062840731]
        + [1.41855796241, -1.91320542631]
    )
    values = identifiability(StructuralWorld(seed=1), Encoders(8, steps=5), 2, 600)
    before = {"loss": 3.85854, "z_inv from text": 0.94674, "token noise from text": 0.34492}
    before |= {"representation of text from z_inv": 0.87418, "representation of image from z_inv": 0.83525}
    assert {name: values[name] for name in before} == pytest.approx(before, abs=1e-4)


@pytest.mark.parametrize("layers", [0, 1, 4])
def test_a_mixture_can_be_undone_and_its_condition_is_that_of_its_derivative(layers):
    draws = np.random.default_rng(layers)
    mixing = Mixing.draw(draws.normal(size=(5, 9)), layers, draws)
    variables = 3 * draws.normal(size=(50, 5))
    assert mixing(variables).shape == (50, 9)
    assert np.allclose(mixing.invert(mixing(variables)), variables, atol=1e-8)
    step = 1e-6 * np.eye(5)
    for place in variables[:3]:
        jacobian = (mixing(place + step) - mixing(place - step)) / 2e-6
        assert mixing.condition(place) == pytest.approx(np.linalg.cond(jacobian), rel=1e-4)
        assert mixing.condition(place) <= 5**layers * np.linalg.cond(mixing.out) + 1e-6


def test_a_smooth_mixture_is_no_linear_one():
    draws = np.random.default_rng(0)
    variables = draws.normal(size=(600, 8))
    for layers, linear in ((0, True), (3, False)):
        mixing = Mixing.draw(draws.normal(size=(8, 16)), layers, draws)
        assert (r_squared(mixing(variables), variables) > 0.999) == linear


def test_one_vector_determines_the_shared_variables():
    world = StructuralWorld(layers=3, seed=2)
    drawn = world.draw(40, 3)
    assert np.allclose(world.best_guess(drawn["tokens"]), drawn["z_inv"], atol=1e-8)


def test_words_are_drawn_by_their_chances_and_what_is_left_is_chance():
    drawn = WORDED.draw(6000, 1)
    assert drawn["tokens"].shape == (6000, 2) and drawn["noise"].shape == (6000, 12)
    first = np.exp(WORDED._log_chances(0, drawn["z_inv"], np.full(6000, -1)))
    assert np.allclose(first.sum(1), 1)
    counts = np.bincount(drawn["tokens"][:, 0], minlength=6)
    assert np.abs(counts - first.sum(0)).max() < 5 * np.sqrt(6000) / 2
    assert np.allclose(drawn["noise"][:, :6], np.eye(6)[drawn["tokens"][:, 0]] - first)
    assert np.abs(drawn["noise"].mean(0)).max() < 5 * 0.5 / np.sqrt(6000)
    assert as_inputs(WORDED, drawn["tokens"]).shape == (6000, WORDED.text_size)


def test_the_best_guess_is_bayes_rule_on_a_grid():
    world = replace(WORDED, shared=1, private=1, tokens=3)
    texts = world.draw(5, 2)["tokens"]
    grid = np.linspace(-5, 5, 2001)[:, None]
    for text, guess in zip(texts, world.best_guess(texts, 100_000)):
        chance = norm.pdf(grid[:, 0])
        before = -1
        for place, word in enumerate(text):
            chance = chance * np.exp(world._log_chances(place, grid, np.full(len(grid), before))[:, word])
            before = word
        assert guess[0] == pytest.approx((chance * grid[:, 0]).sum() / chance.sum(), abs=0.02)


def test_more_draws_do_not_change_how_much_a_text_determines():
    """In a world of the study: its share is told with two digits."""
    world = StructuralWorld(layers=3, vocabulary=16, tokens=3, seed=1)
    drawn = world.draw(600, 8)
    shares = [r_squared(world.best_guess(drawn["tokens"], draws), drawn["z_inv"]) for draws in (10_000, 40_000)]
    assert abs(shares[0] - shares[1]) < 0.005 and 0.3 < shares[1] < 0.4


def test_no_regression_finds_more_than_the_best_guess_in_words():
    world = replace(WORDED, tokens=3)
    drawn = world.draw(3000, 5)
    best = r_squared(world.best_guess(drawn["tokens"]), drawn["z_inv"])
    inputs = as_inputs(world, drawn["tokens"]).double().numpy()
    assert 0 < r_squared(inputs[:1200], drawn["z_inv"][:1200], kernels=True) < best + 0.03


def test_the_loss_is_that_of_distances():
    images, texts = torch.randn(2, 6, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    logits = np.array([[-((a - b) ** 2).sum().item() for b in texts] for a in images])
    naive = [np.log(np.exp(side).sum(1)) - side.diagonal() for side in (logits, logits.T)]
    assert _contrastive(images, texts).item() == pytest.approx(np.mean(naive))


def test_encoders_have_the_width_that_they_are_given_and_a_bag_forgets_order():
    world = RoleWorld(words=4)
    image, text = Encoders(3, hidden=5, steps=1, batch=4, bag=True).fit(world)
    texts = world.scenes[:6]
    with torch.no_grad():
        both = [text(as_inputs(world, each)) for each in (texts, texts[:, [1, 0, 2]])]
        assert image(as_inputs(world, world.draw(4, 0)["image"])).shape == (4, 3)
    assert torch.equal(*both)


def test_pairs_that_are_shuffled_teach_nothing():
    world = StructuralWorld(layers=1)
    encoders = Encoders(steps=60, batch=64)
    apart, together = (identifiability(world, replace(encoders, shuffled=flag), n=400) for flag in (True, False))
    assert together["loss"] < apart["loss"] and apart["loss"] > np.log(256) - 0.1


@pytest.mark.slow
def test_training_finds_the_shared_block_and_no_noise():
    before = identifiability(StructuralWorld(seed=3), Encoders(steps=0))
    after = identifiability(StructuralWorld(seed=3), Encoders(steps=200))
    assert after["loss"] < before["loss"] and after["z_inv from text"] > 0.95 and after["z_inv from image"] > 0.95
    assert abs(after["token noise from text"]) < 0.05 and abs(after["image's own part from image"]) < 0.05
    assert min(after[f"representation of {side} from z_inv"] for side in ("text", "image")) > 0.95


def test_both_directions_of_the_linear_world_are_least_squares():
    world = StructuralWorld(seed=1)
    values = identifiability(world, Encoders(8, steps=5), 2, 600)
    image, text = Encoders(8, steps=5).fit(world, 2)
    drawn = world.draw(600, 9)
    with torch.no_grad():
        sides = {"image": image(as_inputs(world, drawn["image"])).numpy()}
        sides["text"] = text(as_inputs(world, drawn["tokens"])).numpy()
    assert all(side.shape == (600, 8) for side in sides.values())

    def naive(given, wanted):
        given = np.c_[given, np.ones(len(given))]
        weights = np.linalg.lstsq(given[:300], wanted[:300], rcond=None)[0]
        rest = wanted[300:] - given[300:] @ weights
        return 1 - (rest**2).sum() / ((wanted[300:] - wanted[:300].mean(0)) ** 2).sum()

    for name, side in sides.items():
        assert values[f"representation of {name} from z_inv"] == pytest.approx(naive(drawn["z_inv"], side), abs=1e-4)
        assert values[f"z_inv from {name}"] == pytest.approx(naive(side, drawn["z_inv"]), abs=1e-3)
    assert values["image's own part from image"] == pytest.approx(
        naive(sides["image"], drawn["image_private"]), abs=1e-3
    )


@pytest.mark.parametrize("attribute", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("order", [0.0, 0.3, 1.0])
def test_a_dial_says_how_many_words_occur_in_both_orders(order, attribute):
    world = RoleWorld(words=6, order=order, attribute=attribute, seed=3)
    scenes = {tuple(scene) for scene in world.scenes.tolist()}
    assert len(scenes) == len(world.scenes)
    pairs = {scene[:2] for scene in scenes}
    both = {frozenset(pair) for pair in pairs if pair[::-1] in pairs}
    assert len({frozenset(pair) for pair in pairs}) == 15 and len(both) == round(order * 15)
    free = [pair for pair in pairs if len([scene for scene in scenes if scene[:2] == pair]) == 2]
    assert len(free) == round(attribute * len(pairs))
    fewer = RoleWorld(words=6, order=order / 2, seed=3).scenes.tolist()
    assert {tuple(scene[:2]) for scene in fewer} <= pairs, "what occurs at a lower dial occurs at a higher one"


def test_pairs_are_of_different_scenes_and_a_text_is_true_of_its_scene():
    world = RoleWorld(words=5, order=0.5, attribute=0.5)
    drawn = world.draw(100, 1)
    assert sorted(drawn["scene"]) == list(range(len(world.scenes)))
    assert inverse_scenes(world, drawn["tokens"])[np.arange(len(drawn["scene"])), drawn["scene"]].all()
    assert {world.unsaid} < set(drawn["tokens"][:, 2].tolist())


def test_inverses_are_those_of_a_slow_search():
    world = RoleWorld(words=5, order=0.5, attribute=0.5, seed=2)
    texts = _all_texts(world)
    assert np.array_equal(_text_number(world, texts), np.arange(len(texts)))
    for blind_to in (None, *OPERATORS):
        found = inverse_scenes(world, texts, blind_to)
        for text, left in zip(texts.tolist(), found):
            for scene, stays in zip(world.scenes.tolist(), left):
                said = [token for token in text if token != world.unsaid]
                if blind_to == "swap":
                    slow = set(said) <= set(scene)
                elif blind_to is None:
                    slow = all(token in (scene[place], world.unsaid) for place, token in enumerate(text))
                else:
                    slow = text[:2] == scene[:2]
                assert stays == slow


def test_the_premise_holds_where_order_is_redundant_and_breaks_where_it_decides():
    for order in (0.0, 0.25, 1.0):
        share, cost = premise(RoleWorld(order=order, seed=1), "swap")
        both = round(order * 66)
        assert share == pytest.approx((66 - both) / (66 + both))
        assert cost == pytest.approx(2 * both / (66 + both) * np.log(2))
    for operator in ("replace", "add"):
        assert premise(RoleWorld(order=1.0), operator) == (1, 0)
        share, cost = premise(RoleWorld(attribute=1.0), operator)
        assert share == 0.5 and cost == pytest.approx(np.log(2) / 2), "texts without an attribute lose nothing"


@pytest.mark.parametrize("readings", [averaged_readings, set_valued_readings])
def test_blind_readings_are_the_same_for_a_text_and_its_hard_negative(readings):
    world = RoleWorld(words=5, order=0.5, attribute=0.5)
    for operator in OPERATORS:
        _, right, wrong = hard_negatives(world, operator)
        ours = readings(world, right, operator)
        assert np.allclose(ours.sum(1), 1) and (ours >= 0).all()
        assert np.array_equal(ours, readings(world, wrong, operator))
        assert not (right == wrong).all(1).any()


def test_the_papers_construction_asks_what_occurs_and_the_average_does_not():
    world = RoleWorld(words=5)
    texts = world.scenes
    number = _text_number(world, texts)
    of_sets = set_valued_readings(world, texts, "swap")
    assert np.array_equal(of_sets, np.eye(of_sets.shape[1])[number]), "each scene stays itself where order is redundant"
    assert (averaged_readings(world, texts, "swap")[np.arange(len(texts)), number] == 0.5).all()
    both = RoleWorld(words=5, order=1.0)
    of_sets, averaged = (read(both, both.scenes, "swap") for read in (set_valued_readings, averaged_readings))
    assert np.array_equal(of_sets, averaged), "where both orders occur they are one"
    with pytest.raises(ValueError, match="1 texts leave no scene"):
        set_valued_readings(world, np.array([[0, 0, world.unsaid], [*world.scenes[0]]]), "replace")


def test_rows_say_what_blind_encoders_lose():
    world = RoleWorld(words=4, order=1.0)
    rows = redundancy_rows(world, Encoders(hidden=6, steps=3, batch=8, rate=5e-3), 1, draws=2)
    value = {(line["method"], line["split"], line["metric"]): line for line in rows}
    assert len(value) == len(rows) and {line["data"] for line in rows} == {"order 1, attribute 0"}
    for operator in OPERATORS:
        for how in ("averaged", "set-valued"):
            line = value[f"{how}, blind to {operator}", operator, "accuracy"]
            assert line["value"] == 0 and line["ties"] == 1
    assert value["bag of words", "swap", "accuracy"]["ties"] == 1 and value["trained", "swap", "accuracy"]["ties"] == 0
    assert value["trained", "all scenes", "loss_gap"]["value"] == 0
    loss = value["set-valued, blind to swap", "all scenes", "contrastive_loss"]["value"]
    gap = value["set-valued, blind to swap", "all scenes", "loss_gap"]["value"]
    assert gap == pytest.approx(loss - value["trained", "all scenes", "contrastive_loss"]["value"])
    assert value["texts", "swap", "least_cost"]["value"] == pytest.approx(np.log(2))


def test_a_results_file_of_structural_worlds_grows_by_seeds_and_refuses_other_settings(smoke, tmp_path):
    file = tmp_path / "results.json"
    measured = Result.read(smoke("experiments/structural_worlds").folder)
    seeds = {line["seed"] for line in measured.rows}
    measured.write(file)
    before = file.read_bytes()
    given = {"results": str(file), "out_dir": str(tmp_path)}
    names = run_cells("structural_worlds", "SIDES = ", preset="smoke", seeds=sorted(seeds), **given)
    assert file.read_bytes() == before and names["result"].rows == measured.rows, "what is there is not measured again"
    Result({**measured.setting, "words": 7}, measured.rows).write(file)
    with pytest.raises(ValueError, match="was measured with other words"):
        run_cells("structural_worlds", "SIDES = ", preset="smoke", **given)


def test_nothing_is_decided_about_structural_worlds_before_all_are_measured(smoke):
    given = str(smoke("experiments/structural_worlds").folder / "results.json")
    names = run_cells("structural_worlds", "NAMES = ", report_from=given)
    assert not names["COMPLETE"] and names["where_premise"]("0", "1").startswith("Nothing is decided")
    values = pd.Series([0.01, 0.02, 0.03])
    assert names["dial_word"](values) == "open" and names["met_word"]({"text": values + 0.97}) == "is open"
    names["COMPLETE"] = True
    assert [names["dial_word"](values + more) for more in (0, 0.08, 1)] == ["equal", "open", "worse"]
    assert [names["met_word"]({"text": values + more}) for more in (0.955, 0.93, 0.5)] == [
        "is met",
        "is open",
        "is not met",
    ]
    assert names["structural_gate"]() and names["role_gate"](), "one seed of a few steps decides nothing"
    said = names["structural_sentences"]() + [names["attribute_sentence"]()]
    assert "Theorem 5 is open" in said[0] and all("is met" not in each and "is not met" not in each for each in said)
    assert said[-1].count("(open)") == 4 and names["of_dials"]("worse", {1.0: values + 1}) == ""
