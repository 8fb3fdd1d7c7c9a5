"""NegCLIP against a naive loop, its pool against a list, its runs killed, in parts and in two processes; spectral
normalisation."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import training_runs
from safetensors.torch import load_file

from complearn.core.runs import Run
from complearn.core.seeds import rng
from complearn.data.negatives import (
    DrawNegatives,
    FurtherNegatives,
    HardNegatives,
    Negatives,
    _claim_numbers,
    _scene_numbers,
    may_hold,
    negative_caption,
    with_negatives,
)
from complearn.data.pairs import Batch, Collate, Pair
from complearn.data.worlds.world import world_from
from complearn.language.scenes.graphs import SHAPES, Item, SceneGraph
from complearn.language.scenes.nouns import Noun
from complearn.language.scenes.propositions import Absent, Exists, Phrase, Relates, Statement, truth
from complearn.language.scenes.realise import sample_pair
from complearn.language.scenes.sampling import SceneConfig
from complearn.models.dual import build_model
from complearn.models.registry import load_model, save_model
from complearn.models.towers.spectral import _top_singular_values
from complearn.training.engine import trainer
from complearn.training.methods.registry import Named, make_phases
from complearn.training.objectives.losses import contrastive_loss, joint_pairs
from complearn.training.objectives.negclip import NegCLIP, PairPool, contrasting_neighbours, excluded_captions
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.snapshots import Snapshot
from complearn.training.runs.study import budget

TIMES = {"samples_per_second", "data_share", "log_share", "wall_seconds", "cpu_seconds"}
NEGCLIP = {"name": "negclip", "args": {"steps": 12, "ramp": 2, "pool": 20, "neighbours": 2}}


def unit(n, seed, width=6):
    return F.normalize(
        torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), dim=-1
    ).float()


CONFIG = SceneConfig(shapes=SHAPES[:2], colours=("red", "blue"), sizes=("large",), textures=("plain",), objects=(2, 3),
                     kinds=("conjunction", "relation", "count", "negation"),
                     relations=("left of", "right of"))  # fmt: skip


def stacked(rows):
    return torch.from_numpy(np.stack(rows))


def scene(n=6, pooled=9, graphs=True, second=False):
    """Vectors, ids, facts and a filled pool; pairs 0 and 3 share a photo, negative 1 is caption 2, pair 4 has none.
    The second negatives are false of other scenes; negative 3 is caption 4, pair 1 has none."""
    image_ids = torch.tensor([0, 1, 2, 0, 4, 5])
    captions = torch.tensor([10, 11, 12, 13, 14, 15])
    wrong = torch.tensor([20, 12, 22, 23, 14, 25])
    present = torch.tensor([1, 1, 1, 1, 0, 1]).bool()
    out = SimpleNamespace(
        image=unit(n, 0),
        text=unit(n, 1),
        negative=unit(n, 2),
        scale=torch.tensor(7.0),
        image_weights=None,
        text_weights=None,
        further=unit(n, 5) if second else None,
    )
    numbers = torch.stack([wrong, captions], 1)
    world = [sample_pair(CONFIG, rng(k, "pair")) if graphs and k % 5 else (None, None) for k in range(2 * n + pooled)]
    claims = stacked([_claim_numbers(statement) for _, statement in world])
    scenes = stacked([_scene_numbers(graph, CONFIG.relations) for graph, _ in world])
    both = torch.stack([claims[n : 2 * n], claims[:n]], 1)
    ids = torch.zeros(n, 1, dtype=torch.int64)
    hard = HardNegatives(ids, ids > 0, present, numbers, both, scenes[:n])
    batch = Batch(None, None, None, image_ids, tuple("abcdef")).with_parts(hard)
    if second:
        numbers = torch.stack([torch.tensor([40, 11, 42, 14, 44, 45]), captions], 1)
        both = torch.stack([claims[2 * n : 3 * n], claims[:n]], 1)
        present = torch.tensor([1, 0, 1, 1, 1, 1]).bool()
        batch = batch.with_parts(FurtherNegatives(ids, ids > 0, present, numbers, both, scenes[:n]))
    ids = torch.stack([torch.tensor([0, 1, 7, 8, 9, 5, 30, 31, 32]), torch.arange(9) + 11], 1)
    pool = {
        "images": unit(pooled, 3),
        "texts": unit(pooled, 4),
        "ids": ids,
        "claims": claims[2 * n :],
        "scenes": scenes[2 * n :],
    }
    return out, batch, pool, {"right": world[:n], "wrong": world[n : 2 * n], "pool": world[2 * n :]}


def holds(statement, graph):
    return statement is not None and graph is not None and truth(statement, graph) is not False


def naive(out, batch, pool, world, k):
    """Both directions by loops, with `truth` for every pair."""
    image = out.image.double()
    text = out.text.double()
    scale = float(out.scale)
    captions = batch[HardNegatives].numbers[:, 1]
    negatives = [(batch[HardNegatives], out.negative.double(), world["wrong"])]
    if out.further is not None:
        negatives.append((batch[FurtherNegatives], out.further.double(), world["pool"]))
    n = len(image)
    ids = batch.image_ids
    total = 0.0
    near = set()
    graph, said = [[pair[side] for pair in world["right"]] for side in (0, 1)]

    def free(i, j):
        return pool["ids"][j, 0] != ids[i] and pool["ids"][j, 1] != captions[i]

    def false_text(i, j):
        return free(i, j) and not holds(world["pool"][j][1], graph[i])

    def false_image(i, j):
        return free(i, j) and not holds(said[i], world["pool"][j][0])

    for i in range(n):
        useful = [j for j in range(len(pool["ids"])) if false_text(i, j) or false_image(i, j)]
        near |= set(sorted(useful, key=lambda j: -float(image[i] @ pool["images"][j].double()))[:k])
    for i in range(n):
        rivals = [j for j in range(n) if j == i or ids[j] != ids[i]]
        terms = [math.exp(scale * float(image[i] @ text[j])) for j in rivals]
        for part, negative, said_by in negatives:
            for j in range(n):
                mine = any(captions[c] == part.numbers[j, 0] for c in range(n) if ids[c] == ids[i])
                if part.present[j] and not mine and not holds(said_by[j][1], graph[i]):
                    terms.append(math.exp(scale * float(image[i] @ negative[j])))
        terms += [math.exp(scale * float(image[i] @ pool["texts"][j].double())) for j in near if false_text(i, j)]
        total -= math.log(math.exp(scale * float(image[i] @ text[i])) / sum(terms))
        terms = [math.exp(scale * float(text[i] @ image[j])) for j in rivals]
        terms += [math.exp(scale * float(text[i] @ pool["images"][j].double())) for j in near if false_image(i, j)]
        total -= math.log(math.exp(scale * float(text[i] @ image[i])) / sum(terms))
    return total / (2 * n)


@pytest.mark.parametrize("second", (False, True))
@pytest.mark.parametrize("k,graphs", ((1, True), (3, True), (8, True), (2, False)))
def test_the_loss_is_the_naive_one(k, graphs, second):
    out, batch, pool, world = scene(graphs=graphs, second=second)
    loss = NegCLIP(6, pool=9, neighbours=k).eval()
    loss.pool.add(**pool)
    expected = naive(out, batch, pool, world, k)
    assert loss.compute_losses(out, None, batch)["contrastive_loss"].item() == pytest.approx(expected, abs=1e-5)
    assert loss.pool.added == 9  # in evaluation nothing goes in
    masked = [holds(a[1], b[0]) for a in world["pool"] + world["wrong"] for b in world["right"]]
    assert any(masked) == graphs


def test_wrong_captions_and_near_pairs_are_compared_exactly_under_autocast():
    out, batch, pool, _ = scene(second=True)
    loss = NegCLIP(6, pool=9, neighbours=3).eval()
    loss.pool.add(**pool)
    plain = loss.compute_losses(out, None, batch)
    with torch.autocast("cpu", torch.bfloat16):
        inside = loss.compute_losses(out, None, batch)
    assert all(torch.equal(inside[name], value) for name, value in plain.items())
    close = torch.tensor([0.9981, 0.9985, 0.9981])  # of which bf16 makes 1, 1 and 1
    pool = PairPool(3, 2)
    pool.add(images=torch.stack([close, (1 - close**2).sqrt()], 1), ids=torch.arange(6).view(3, 2))
    with torch.autocast("cpu", torch.bfloat16):
        assert pool.nearest(torch.tensor([[1.0, 0.0]]), -torch.ones(1, 2, dtype=torch.int64), 1)[0].tolist() == [[1]]


def test_statements_and_scenes_in_numbers_agree_with_the_truth():
    configs = [
        SceneConfig(),
        CONFIG,
        SceneConfig(relations=("touching", "inside", "same colour as", "same shape as", "above")),
    ]

    def thing(noun, colour, x):
        return Item(Noun.of(noun), colour, "large", None, x, 0.5, 0.2)

    pictures = [
        SceneGraph((thing("cat", "black", 0.2), thing("kite", None, 0.8))),
        SceneGraph((thing("kite", "red", 0.5),)),
    ]
    phrases = (
        Phrase(Noun.of("cat")),
        Phrase(Noun.of("kite"), "red"),
        Phrase(Noun.of("kite"), "red", count=1),
        Phrase(None, None, None, "plain"),
    )
    things = [Statement((Exists(phrase),)) for phrase in phrases] + [Statement((Absent(phrases[1]),))]
    things.append(Statement((Relates(phrases[0], "left of", phrases[1]),)))
    for config in configs:
        world = [sample_pair(config, rng(k, "pair")) for k in range(30)]
        statements = [statement for _, statement in world] + things
        graphs = [graph for graph, _ in world] + pictures
        table = may_hold(
            stacked([_claim_numbers(s) for s in statements])[:, None],
            stacked([_scene_numbers(g) for g in graphs])[None],
        )
        assert table.tolist() == [
            [truth(statement, graph) is not False for graph in graphs] for statement in statements
        ]


def test_a_near_pair_of_which_everything_is_true_makes_room_for_the_next():
    red, blue = (Item("circle", colour, "large", "plain", x, 0.5, 0.15) for colour, x in (("red", 0.2), ("blue", 0.8)))

    def said(first, relation, second):
        return Statement((Relates(Phrase("circle", first), relation, Phrase("circle", second)),))

    graphs = [SceneGraph((red, blue)), SceneGraph((blue, red)), SceneGraph((replace(red, x=0.8), replace(blue, x=0.2)))]
    statements = [said("blue", "right of", "red"), said("red", "left of", "blue"), said("red", "right of", "blue")]
    claims = stacked([_claim_numbers(s) for s in statements])
    scenes = stacked([_scene_numbers(g) for g in graphs])
    pool = PairPool(4, 2)
    points = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.1], [1.0, 0.5]]), dim=1)
    ids = torch.tensor([[0, 10], [1, 11], [2, 12]])
    pool.add(images=points[1:], texts=points[1:], ids=ids[1:], claims=claims[1:], scenes=scenes[1:])

    def find(claims, scenes):
        return contrasting_neighbours(pool, points[:1], ids[:1], claims, scenes, 2)

    places, present = find(claims[:1], scenes[:1])
    assert (places[0, 0], present.tolist()) == (1, [[True, False]])  # the same scene in other words is passed over
    places, present = find(stacked([_claim_numbers(None)]), stacked([_scene_numbers(None)]))
    assert places.tolist() == [[0, 1]] and present.all()  # without a graph, the nearest


def test_with_nothing_hard_it_is_the_contrastive_loss():
    out, batch, *_ = scene()
    batch = batch.with_parts(replace(batch[HardNegatives], present=torch.zeros(6, dtype=torch.bool)))
    measures = NegCLIP(6, pool=9).compute_losses(out, None, batch)
    plain = contrastive_loss(out.image, out.text, out.scale, joint_pairs(batch).same)
    assert torch.isclose(measures["contrastive_loss"], plain, atol=1e-6) and measures["with_negative"] == 0
    assert all(torch.isfinite(value) for value in measures.values())


def test_gradients_reach_wrong_captions_and_not_the_pool():
    out, batch, pool, _ = scene()
    for name in ("image", "text", "negative"):
        setattr(out, name, getattr(out, name).requires_grad_())
    out.scale.requires_grad_()
    loss = NegCLIP(6, pool=12)  # partly empty: three neighbours do not exist
    loss.pool.add(**{name: rows[:2] for name, rows in pool.items()})
    loss.neighbours = 5
    loss.compute_losses(out, None, batch)["contrastive_loss"].backward()
    assert torch.isfinite(out.scale.grad)  # a masked negative must not turn it into 0 times infinity
    assert all(torch.isfinite(getattr(out, name).grad).all() for name in ("image", "text", "negative"))
    assert out.negative.grad[4].abs().sum() == 0 < out.negative.grad[0].abs().sum()  # a masked one is not pushed
    assert not loss.pool.images.requires_grad and not loss.pool.texts.requires_grad and loss.pool.added == 8
    loss.after_spawn("language")  # its captions' representations were the old agent's
    assert loss.pool.added == 0


def test_excluded_captions_sees_all_captions_of_a_photo():
    same = torch.tensor([[True, True], [True, True]])
    told = excluded_captions(same, torch.tensor([1, 2]), torch.tensor([2, 7]), torch.tensor([True, True]))
    assert told.tolist() == [[True, False], [True, False]]  # caption 2 is of the same photo as pair 0


def test_the_pool_is_the_last_of_a_list():
    pool = PairPool(7, 6)
    kept = []
    for turn, n in enumerate((3, 5, 2, 12, 4)):
        features = unit(n, turn)
        ids = torch.stack([torch.arange(n) + 100 * turn] * 2, 1)
        pool.add(images=features, ids=ids)
        kept += list(zip(features, ids[:, 0].tolist()))
        there = {int(i) for i in pool.ids[: min(7, len(kept)), 0]}
        assert there == {i for _, i in kept[-7:]} and pool.images.shape == (7, 6)
    query = unit(4, 99)
    near, ok = pool.nearest(query, -torch.ones(4, 2, dtype=torch.int64), 3)
    near = pool.images[near]
    for i in range(4):
        best = sorted((float(query[i] @ feature) for feature, _ in kept[-7:]), reverse=True)[:3]
        assert ok[i].all() and (near[i] @ query[i]).tolist() == pytest.approx(best, abs=1e-6)
    pool.clear()
    assert not pool.nearest(query, -torch.ones(4, 2, dtype=torch.int64), 3)[1].any()


def test_settings_are_checked():
    with pytest.raises(ValueError, match="needs texts or 0 < neighbours < pool"):
        NegCLIP(6, pool=2, neighbours=2)
    out, batch, *_ = scene()
    out.negative = None
    with pytest.raises(ValueError, match='"negatives": "auto"'):
        NegCLIP(6, pool=9).compute_losses(out, None, batch)
    with pytest.raises(ValueError, match="no source of negatives 'all'; there are auto, given, swap"):
        DrawNegatives("all", None)
    model = build_model(training_runs.MODEL, tokenizer())
    with pytest.raises(ValueError, match='spectral_clip needs a normalised model.*"spectral": true'):
        make_phases(Named("spectral_clip", {"steps": 2}), model)


def tokenizer():
    from complearn.data.word_tokenizer import WordTokenizer

    return WordTokenizer.fit(["a red circle", "a blue square"])


# --- batches


def test_a_batch_carries_wrong_captions_and_who_has_none():
    world = world_from(training_runs.DATA["args"])
    plain = Collate(lambda images, draws: torch.zeros(len(images), 3, 4, 4), world_tokenizer(world))
    collate = with_negatives(plain, "auto")
    pairs = world.train[:32]
    seen = []
    for epoch in range(3):
        draws = [1000 * epoch + k for k in range(32)]
        batch = collate(pairs, draws)
        again = collate(pairs, draws)
        hard = batch[HardNegatives]
        assert torch.equal(hard.ids, again[HardNegatives].ids)

        def decode(ids):
            return collate.tokenizer.decode(ids)

        for k, pair in enumerate(pairs):
            text = decode(hard.ids[k])
            assert hard.present[k] == (len(pair.negatives) > 0)
            assert text in pair.negatives if hard.present[k] else text == pair.caption
        wrong, right = (may_hold(hard.claims[:, side], hard.scenes) for side in (0, 1))
        assert right.all() and not wrong.any() and ((hard.claims[:, 0, 0, 0] > 0) == hard.present).all()
        seen.append(hard.ids)
    assert 0 < hard.present.float().mean() < 1
    parts = batch.chunk(3)
    assert torch.equal(torch.cat([part[HardNegatives].ids for part in parts]), hard.ids)


@pytest.mark.parametrize("first, second", ((1, 2), (1, 1), (2, 1)))
def test_a_batch_may_carry_two_wrong_captions_of_each(first, second):
    world = world_from(training_runs.DATA["args"])
    plain = Collate(lambda images, draws: torch.zeros(len(images), 3, 4, 4), world_tokenizer(world))
    collate = with_negatives(plain, {"calls": first, "and_calls": second})
    pairs = world.train[:32]
    batch = collate(pairs, list(range(32)))
    parts = [batch[kind] for kind in (HardNegatives, FurtherNegatives)]
    alone = with_negatives(plain, {"calls": first})(pairs, list(range(32)))
    assert torch.equal(alone[HardNegatives].ids, parts[0].ids) and FurtherNegatives not in alone
    both = parts[0].present & parts[1].present
    assert both.float().mean() > 0.3
    for k in both.nonzero().flatten().tolist():
        texts = [collate.tokenizer.decode(part.ids[k]) for part in parts]
        assert len({pairs[k].caption, *texts}) == 3
        for text, calls in zip(texts, (first, second)):
            by_calls = pairs[k].negatives.by_operator(Negatives(calls=calls))
            assert any(text in group for group in by_calls.values())
    assert not may_hold(parts[1].claims[:, 0], parts[1].scenes)[parts[1].present].any()


def world_tokenizer(world):
    from complearn.data.word_tokenizer import WordTokenizer

    return WordTokenizer.fit(world.captions())


def test_training_reads_no_caption_of_an_evaluation_as_a_negative():
    sizes = {"shapes": 4, "colours": 4, "n_train": 48, "n_test": 16, "size": 16}
    world = world_from(sizes | {"kinds": ["relation"], "split": "systematic", "disjoint": True})
    wrong = {text for pair in world.train for text in pair.negatives}
    asked = {text for item in world.benchmark("sugarcrepe", 10) for text in item.captions}
    assert wrong and not wrong & asked
    held = {f"{colour} {shape}" for colour, shape in world.split.held_out if colour in world.config.words("colours")}
    assert held and not any(phrase in text for phrase in held for text in wrong)


def test_unrelated_captions_are_false_of_the_scene_and_read_by_no_evaluation():
    world = world_from({"preset": "small", "n_train": 40, "n_test": 16, "split": "systematic", "disjoint": True})
    known = {word for pair in world.train for word in pair.caption.split()}
    held = {text for item in world.benchmark("sugarcrepe", 10) for text in item.captions}
    wanted = Negatives("unrelated")
    drawn = []
    for k, pair in enumerate(world.train):
        text = negative_caption(pair, pair.caption, k, wanted)
        assert text == negative_caption(pair, pair.caption, k, wanted) != pair.caption and text not in held
        claims = torch.from_numpy(pair.negatives.claims[text])[None]
        scene = torch.from_numpy(pair.negatives.scene)[None]
        assert not may_hold(claims, scene).any()
        drawn.append(text)
    assert len(set(drawn)) > 20 and len(known & {word for text in drawn for word in text.split()}) > len(known) / 2
    with pytest.raises(ValueError, match="generated scenes alone"):
        negative_caption(Pair(None, "a dog", "1", "1"), "a dog", 0, wanted)
    with pytest.raises(ValueError, match="no edits: leave calls"):
        Negatives("unrelated", calls=2)


def test_rules_serve_where_nothing_is_given():
    pair = Pair(None, "A cat and a man on a bench.", "0", "0")
    made = {negative_caption(pair, pair.caption, draw) for draw in range(20)}
    assert len(made) > 1 and None not in made and pair.caption not in made
    given = Pair(None, "A cat and a man on a bench.", "0", "0", negatives=())
    assert negative_caption(given, given.caption, 0) is None
    assert negative_caption(given, given.caption, 0, Negatives("swap"))


def test_one_given_caption_is_whole_and_empty_ones_are_none():
    def pair(negatives):
        return Pair(None, "a cat", "0", "0", negatives=negatives)

    def told(negatives):
        return {negative_caption(pair(negatives), "a cat", k, Negatives("given")) for k in range(20)}

    assert told("a dog") == {"a dog"} and told(["", "a dog", " "]) == {"a dog"}
    assert told("") == told([""]) == told(()) == told(None) == {None}
    assert told(["A  CAT.", "a dog"]) == {"a dog"}
    assert told("A cat!") == {None}  # the words of the caption are not wrong


# --- runs


def negclip_config(method=NEGCLIP, **train):
    return training_runs.config(method=method, **{"negatives": "auto", "checkpoint_every": 5, **train})


def records(run):
    return [{k: v for k, v in record.items() if k not in TIMES} for record in run.records()]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    torch.set_num_threads(1)
    return launch(prepare(tmp_path_factory.mktemp("whole") / "run", negclip_config()).path, progress=False)


def test_a_second_wrong_caption_is_read_told_apart_and_counted(whole, tmp_path):
    both = negclip_config(negatives={"calls": 1, "and_calls": 2})
    run = launch(prepare(tmp_path / "run", both).path, progress=False)
    steps = [record for record in run.records() if record["kind"] == "step"]
    assert all(0 < step["with_further"] <= 1 and 0 <= step["right_over_further"] <= 1 for step in steps)
    assert not any("with_further" in record for record in whole.records())
    assert budget(run)["tokens"] > 1.2 * budget(whole)["tokens"]


def test_a_killed_run_goes_on_with_its_pool(whole, tmp_path, monkeypatch):
    run = prepare(tmp_path / "run", negclip_config())
    after = trainer.Trainer.after_step

    def die(self, result):
        if self.state.step == 8:
            raise InterruptedError
        return after(self, result)

    monkeypatch.setattr(trainer.Trainer, "after_step", die)
    with pytest.raises(InterruptedError):
        launch(run.path, progress=False)
    kept = load_file(run.checkpoints()[-1] / "objectives.safetensors")
    assert kept["0.pool.added"] == 40 and kept["0.pool.images"].abs().sum(1).min() > 0.5
    monkeypatch.undo()
    launch(run.path, progress=False)
    assert records(run) == records(whole)
    a = load_file(run.phases()[-1])
    b = load_file(whole.phases()[-1])
    assert all(torch.equal(a[name], b[name]) for name in a)
    steps = [r for r in run.records() if r["kind"] == "step"]
    assert steps[-1]["samples"] == 96 and 0 < steps[-1]["with_negative"] <= 1


def test_the_budget_counts_pairs_and_real_tokens(whole):
    found = make_trainer(whole, progress=False)
    batches = [found.loader.batch(k) for k in range(12)]
    tokens = sum(int(b.mask.sum()) + int(b[HardNegatives].mask[b[HardNegatives].present].sum()) for b in batches)
    told = budget(whole)
    assert (told["steps"], told["samples"], told["tokens"]) == (12, 96, tokens)
    assert told["wall_seconds"] > 0 and told["cpu_seconds"] > 0


def test_parts_of_a_batch_train_what_the_whole_does(whole, tmp_path):
    run = launch(prepare(tmp_path / "run", negclip_config(accumulate=2)).path, progress=False)
    losses = [[r["loss"] for r in x.records() if r["kind"] == "step"] for x in (run, whole)]
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)


@pytest.mark.slow
def test_two_processes_train_what_one_does(whole, tmp_path):
    from test_training_processes import torchrun

    run = prepare(tmp_path / "run", negclip_config(processes=2))
    torchrun("-m", "complearn.launch", run.path, "--quiet")
    losses = [[r["loss"] for r in x.records() if r["kind"] == "step"] for x in (Run.open(run.path), whole)]
    assert losses[0] == pytest.approx(losses[1], abs=5e-4)
    last = [[r for r in x.records() if r["kind"] == "step"][-1] for x in (run, whole)]
    assert [last[0][k] for k in ("samples", "tokens")] == [last[1][k] for k in ("samples", "tokens")]
    pools = [load_file(x.checkpoints()[-1] / "objectives.safetensors") for x in (run, whole)]
    assert torch.equal(pools[0]["0.pool.ids"], pools[1]["0.pool.ids"])
    assert torch.allclose(pools[0]["0.pool.images"], pools[1]["0.pool.images"], atol=1e-2)


def test_iterated_with_negatives_keeps_one_pool_and_forgets_what_an_old_agent_made(tmp_path):
    args = {
        "warmup": 3,
        "distil": 2,
        "interact": 2,
        "generations": 2,
        "ramp": 1,
        "target": "alternate",
        "negatives": {"pool": 32},
    }
    run = prepare(tmp_path / "run", negclip_config({"name": "il_negclip", "args": args}))
    launch(run.path, progress=False)
    kept = load_file(run.checkpoints()[-1] / "objectives.safetensors")
    seen = {name: int(value) for name, value in kept.items() if name.endswith("pool.added")}
    assert set(seen.values()) == {8 * (2 + 2)}
    assert len(seen) == 3  # since the vision agent's spawn; both teachers share it
    assert [r["target"] for r in run.records() if r["kind"] == "spawn"] == ["language", "vision"]


# --- spectral normalisation


@pytest.mark.parametrize("method", ("spectral_clip", "il_clip"))
def test_linear_maps_stay_at_one_through_training_saving_and_respawning(method, tmp_path):
    steps = {"name": method, "args": {"steps": 14, "ramp": 2}} if method == "spectral_clip" else training_runs.IL
    model = {**training_runs.MODEL, "spectral": True} | ({"codebook": None} if method == "spectral_clip" else {})
    run = launch(prepare(tmp_path / "run", training_runs.config(steps, model, ema=0.9)).path, progress=False)
    one = Snapshot(run).model()
    for agent in (one.vision, one.language):
        values = _top_singular_values(agent)
        assert len(values) >= 5 and all(0.9 < value < 1.1 for value in values.values()), values
    again = load_model(save_model(one, tmp_path / "model"))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), again.state_dict().values()))
    before = [p.clone() for p in one.language.parameters()]
    one.respawn("language", 5)
    assert any(not torch.equal(a, b) for a, b in zip(before, one.language.parameters()))
    assert all(0.9 < value < 1.1 for value in _top_singular_values(one.language).values())


def test_a_normalised_model_in_parts_learns_what_it_learns_in_one(tmp_path):
    """Power iteration rests between the parts of a batch: with one iteration a part, their weights would differ."""
    method = {"name": "spectral_clip", "args": {"steps": 3, "ramp": 1}}
    model = {**training_runs.MODEL, "spectral": True, "codebook": None}
    whole, parts = (
        launch(
            prepare(tmp_path / f"{n}", training_runs.config(method, model, accumulate=n, weight_decay=0.0)).path,
            progress=False,
        )
        for n in (1, 4)
    )
    norms = [[record["grad_norm"] for record in run.records() if record["kind"] == "step"] for run in (whole, parts)]
    assert len(norms[0]) == 3 and norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_a_normalised_run_resumes_exactly(tmp_path, monkeypatch):
    config = training_runs.config(training_runs.IL, {**training_runs.MODEL, "spectral": True})
    whole = launch(prepare(tmp_path / "a", config).path, progress=False)
    run = prepare(tmp_path / "b", config)
    after = trainer.Trainer.after_step

    def die(self, result):
        if self.state.step == 10:
            raise InterruptedError
        return after(self, result)

    monkeypatch.setattr(trainer.Trainer, "after_step", die)
    with pytest.raises(InterruptedError):
        launch(run.path, progress=False)
    monkeypatch.undo()
    launch(run.path, progress=False)
    a = load_file(run.phases()[-1])
    b = load_file(whole.phases()[-1])
    assert all(torch.equal(a[name], b[name]) for name in a)
