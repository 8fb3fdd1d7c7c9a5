"""Stage 3 and the search heads: losses against naive loops, what trains, resume, learning above the blind judges; stage
1 and occlusion."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from complearn.analysis.pictures.attribution import (
    _centres,
    _occluded,
    occlusion_histogram,
    occlusion_map,
    occlusion_trials,
)
from complearn.analysis.pictures.relation_figures import _image_relations, pair_relations, relation_graph
from complearn.data.fixtures.specimens import write_visual_genome
from complearn.data.pairs import Batch
from complearn.data.readers.labelled import class_names
from complearn.data.readers.registry import read
from complearn.data.reports import BadData
from complearn.data.visual_genome.triplets import Triplet, TripletEncoder, Triplets, pair_triplets
from complearn.evaluation.tasks.classification import Classification
from complearn.evaluation.tasks.relations import Relations, _judge_relations, _right_ranks, _triplet_table
from complearn.models.grounded.model import SearchScorer
from complearn.models.grounded.relations import RelationOutput
from complearn.models.registry import build
from complearn.training.engine.accumulation import GradCache
from complearn.training.engine.checkpoints import read_tensors
from complearn.training.engine.phases import State, match_names, set_trainable
from complearn.training.methods.grounding import _relation_patterns, _triplet_loader, _with_triplets
from complearn.training.methods.registry import Named, make_phases
from complearn.training.objectives.grounding import RELATION_LOSSES, RelationGrounding, SearchContrastive
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot

SIDES = ["left of", "right of", "above", "below"]
TINY = {"tower": "tiny", "width": 32, "depth": 1, "heads": 4}
MODEL = {
    "kind": "grounded", "vision": TINY | {"patch": 8}, "text": TINY, "search": True,
    "relations": {"predicates": SIDES, "objects": ["circle", "square", "triangle"], "heads": 4, "d": 8, "hidden": 16},
}  # fmt: skip
WORLD = {"preset": "small", "n_train": 64, "n_test": 16}


@pytest.fixture(scope="module")
def scenes():
    pairs = read("generated", **WORLD)
    return list(pairs[:48])


@pytest.fixture(scope="module")
def tokens(scenes):
    from complearn.data.word_tokenizer import WordTokenizer

    return WordTokenizer.fit([pair.caption for pair in scenes])


# --- losses


def random_batch(seed, images=3, most=4, predicates=5):
    """Scores, and triplets of few phrases, so that some pairs have several relations and some relations several
    pairs."""
    generator = torch.Generator().manual_seed(seed)
    triplets = torch.full((images, most, 3), -1)
    for i in range(images):
        for t in range(int(torch.randint(1, most + 1, (), generator=generator))):
            a = int(torch.randint(0, 2, (), generator=generator))
            triplets[i, t] = torch.tensor([a, int(torch.randint(0, predicates, (), generator=generator)), 1 - a])
    scores = torch.randn(images, most, predicates, generator=generator, dtype=torch.float64)
    return scores, triplets


def held_of(triplets, predicates=5):
    """Every relation that the batch itself says of each triplet's pair."""
    there = triplets[..., 1] >= 0
    same = (triplets[:, :, None, ::2] == triplets[:, None, :, ::2]).all(-1) & there[:, :, None] & there[:, None]
    said = nn.functional.one_hot(triplets[..., 1].clamp(min=0), predicates).float()
    return (same.float() @ said) > 0


def contrasts(scores, triplets, unknown=None, held=None, **settings):
    held = held_of(triplets, scores.shape[-1]) if held is None else held
    return RelationGrounding(**settings).contrasts(
        scores, triplets, held, torch.zeros_like(held) if unknown is None else unknown
    )


def naive(scores, triplets, temperature, held, unknown):
    """Equations 4 and 5, triplet by triplet; what nobody knows takes no part."""
    rows = [
        (i, t, *triplets[i, t].tolist())
        for i in range(len(triplets))
        for t in range(triplets.shape[1])
        if triplets[i, t, 1] >= 0
    ]
    relation = pair = 0.0
    for i, t, _, p, _ in rows:
        own = scores[i, t, p] / temperature
        relation += torch.logsumexp(scores[i, t, ~unknown[i, t]] / temperature, 0) - own
        rivals = [own] + [
            scores[j, u, p] / temperature for j, u, *_ in rows if not held[j, u, p] and not unknown[j, u, p]
        ]
        pair += torch.logsumexp(torch.stack(rivals), 0) - own
    return relation / len(rows), pair / len(rows)


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("seed", range(4))
def test_losses_and_their_gradients_against_loops(seed, temperature):
    scores, triplets = random_batch(seed)
    one = scores.clone().requires_grad_()
    other = scores.clone().requires_grad_()
    held = held_of(triplets)
    unknown = (torch.rand(held.shape, generator=torch.Generator().manual_seed(seed)) < 0.3) & ~held
    # held, but not drawn
    held |= (torch.rand(held.shape, generator=torch.Generator().manual_seed(seed + 9)) < 0.2) & ~unknown
    found = contrasts(one, triplets, unknown, held, temperature=temperature)
    expected = naive(other, triplets, temperature, held, unknown)
    for name, value in zip(("relation", "pair"), expected):
        assert float(found[name]) == pytest.approx(float(value), abs=1e-5)
    (found["relation"] + 2 * found["pair"]).backward()
    (expected[0] + 2 * expected[1]).backward()
    torch.testing.assert_close(one.grad, other.grad, atol=1e-6, rtol=1e-4)
    assert one.grad[triplets[..., 1] < 0].abs().sum() == 0, "an empty place takes no part"


def test_other_relations_of_a_pair_may_be_spared():
    scores = torch.zeros(1, 2, 4)
    triplets = torch.tensor([[[0, 1, 1], [0, 3, 1]]])
    assert held_of(triplets, 4)[0].int().tolist() == [[0, 1, 0, 1]] * 2
    strict, spared = (contrasts(scores, triplets, spare=spare)["relation"] for spare in (False, True))
    assert float(strict) == pytest.approx(math.log(4)) and float(spared) == pytest.approx(math.log(3))


def test_a_left_out_loss_is_measured_and_not_trained():
    scores, triplets = random_batch(1)
    out = RelationOutput(scores.float(), torch.randn(3, 2, 3), torch.randn(3, 2, 4))
    held = held_of(triplets)
    ids = torch.ones(3, 2, 1, dtype=torch.int64)
    classes = torch.tensor([[0, 1]] * 3)
    known = Triplets((("x", "y"),) * 3, ids, ids > 0, classes, triplets, held, torch.zeros_like(held))
    batch = Batch(None, None, None, torch.arange(3), ("a", "b", "c")).with_parts(known)
    whole = RelationGrounding().compute_losses(out, nn.Module(), batch)
    for left in RELATION_LOSSES:
        some = RelationGrounding(tuple(name for name in RELATION_LOSSES if name != left)).compute_losses(
            out, nn.Module(), batch
        )
        assert f"{left}_loss" not in some
        assert float(some[f"{left}_aside"]) == pytest.approx(float(whole[f"{left}_loss"]))
        assert {name for name in some if name.endswith("_loss")} == {
            f"{name}_loss" for name in RELATION_LOSSES if name != left
        }
    for wrong in ({"losses": ()}, {"losses": ("objects",)}, {"temperature": 0.0}):
        with pytest.raises(ValueError, match="losses are some of"):
            RelationGrounding(**wrong)


# --- what trains


def test_every_matrix_takes_a_gradient_and_stays_of_norm_one(scenes, tokens):
    model = build(MODEL, tokens)
    set_trainable(model, _relation_patterns(model, 2, "attention"))
    batch = model.collate.with_steps(
        TripletEncoder(tuple(SIDES), model.relations.objects, 4, tokenizer=model.collate.tokenizer)
    )(scenes)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)
    for _ in range(3):
        measures = RelationGrounding()(model, batch)
        optimizer.zero_grad()
        sum(value for name, value in measures.items() if name.endswith("_loss")).backward()
        assert (model.relations.predicates.raw.grad.abs().sum((1, 2)) > 0).all()
        optimizer.step()
        torch.testing.assert_close(model.relations.matrices.flatten(1).norm(dim=1), torch.ones(4))
    moved = {name.split(".")[0] for name, p in model.named_parameters() if p.grad is not None}
    assert moved == {"relations", "vision", "language"}
    eye = {name for name, p in model.vision.named_parameters() if p.requires_grad}
    assert eye and all(name.startswith(("attention.", "norm.")) for name in eye)


@pytest.mark.parametrize("objective", [RelationGrounding(), SearchContrastive()])
def test_parts_of_a_batch_push_the_whole_batchs_gradients(scenes, tokens, objective):
    """Also where one of the parts has no triplet at all."""
    model = build(MODEL, tokens).eval()
    none = [pair for pair in scenes if not pair_triplets(pair, tuple(SIDES))][:2]
    some = [pair for pair in scenes if pair_triplets(pair, tuple(SIDES))][:4]
    batch = model.collate.with_steps(
        TripletEncoder(tuple(SIDES), model.relations.objects, 4, tokenizer=model.collate.tokenizer)
    )([*some[:2], *none, *some[2:]])
    whole = gradients(model, objective, batch)
    parts = GradCache(model, 3, lambda part: None)
    found = gradients(model, objective, batch, parts)
    assert whole.keys() == found.keys() and len(whole) > 10
    for name, value in whole.items():
        torch.testing.assert_close(found[name], value, atol=1e-5, rtol=1e-4, msg=name)
    alone = model.collate.with_steps(
        TripletEncoder(tuple(SIDES), model.relations.objects, 4, tokenizer=model.collate.tokenizer)
    )(none)
    zero = gradients(model, objective, alone) if isinstance(objective, RelationGrounding) else {}
    assert all(not value.any() for value in zero.values()) and zero.keys() == (whole.keys() if zero else set())


def test_search_vectors_are_compared_exactly_under_autocast():
    close = torch.tensor([0.9985, 0.9981])  # of which bf16 makes 1 and 1
    vectors = SimpleNamespace(
        image=torch.tensor([[1.0, 0.0], [0.0, 1.0]]), text=torch.stack([close, (1 - close**2).sqrt()], 1)
    )
    batch = Batch(None, None, None, torch.arange(2), ("a", "b"))
    with torch.autocast("cpu", torch.bfloat16):
        assert SearchContrastive().compute_losses(vectors, None, batch)["matched"] == 0.75  # not of the second text


def gradients(model, objective, batch, parts=None):
    model.zero_grad()
    sum(value for name, value in objective(parts or model, batch).items() if name.endswith("_loss")).backward()
    if parts:
        parts.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def test_images_without_triplets_are_left_out(scenes):
    kept = _with_triplets(scenes, tuple(SIDES))
    assert 0 < len(kept) < len(scenes) and all(pair_triplets(kept[k], tuple(SIDES)) for k in range(len(kept)))
    with pytest.raises(BadData, match="none of 48 images has a triplet of these relations: near; widen"):
        _with_triplets(scenes, ("near",))


def test_a_model_without_the_parts_is_refused(tokens):
    plain = build({name: value for name, value in MODEL.items() if name not in ("relations", "search")}, tokens)
    with pytest.raises(ValueError, match="needs a model with relations"):
        make_phases(Named("relating", {"steps": 2}), plain)
    half = build(MODEL | {"search": False}, tokens)
    with pytest.raises(ValueError, match="model with search heads"):
        make_phases(Named("relating", {"steps": 2, "search_steps": 2}), half)
    with pytest.raises(ValueError, match="vision is one of"):
        _relation_patterns(half, 2, "eyes")
    whole = build(MODEL, tokens)
    names = [name for name, _ in whole.named_parameters()]
    trained = {vision: match_names(names, _relation_patterns(whole, 0, vision)) for vision in ("attention", "embedder")}
    assert trained["embedder"] - trained["attention"] == {"vision.embed.weight", "vision.embed.bias"}, (
        "as the released code trains"
    )


def config(**more):
    args = {"steps": 4, "search_steps": 3, "lr": 1e-3, "layers": "all", "vision": "all"} | more
    train = {"batch_size": 16, "log_every": 1, "checkpoint_every": 2}
    return {
        "method": {"name": "relating", "args": args},
        "model": MODEL,
        "data": {"name": "generated", "args": WORLD},
        "train": train,
    }


@pytest.mark.parametrize("frozen", [False, True])
def test_stage_3_and_search_through_launch_and_resume(tmp_path, frozen):
    """A run that is stopped and goes on ends where an unbroken one does, also behind a frozen tower; search moves its
    heads alone."""
    asked = config()
    asked["model"] = MODEL | {"vision": MODEL["vision"] | {"frozen": frozen}}
    whole = launch(prepare(tmp_path / "whole", asked).path, progress=False)
    broken = prepare(tmp_path / "broken", asked)
    from complearn.training.runs.launch import make_trainer

    trainer = make_trainer(broken, progress=False)
    before = trainer.step

    def stopping(wrapped, batch):
        if trainer.state.step == 3:
            raise KeyboardInterrupt
        return before(wrapped, batch)

    trainer.step = stopping
    with pytest.raises(KeyboardInterrupt):
        trainer.fit()
    launch(broken.path, progress=False)
    ends = [[read_tensors(file) for file in run.phases()] for run in (whole, broken)]
    for one, other in zip(*ends):
        assert all(torch.equal(one[name], other[name]) for name in one)
    first, last = ends[0]
    assert {name.split(".")[0] for name in first if not torch.equal(first[name], last[name])} == {"search"}
    model = Snapshot(whole).model()
    searcher = SearchScorer(model)
    pairs = read("generated", **WORLD)[:4]
    batch = searcher.collate(pairs)
    scores = searcher.similarity(searcher.encode_images(batch), searcher.encode_texts(batch))
    assert scores.shape == (4, 4) and scores.abs().max() <= 1 + 1e-5


def test_stage_3_reads_visual_genome_while_the_run_has_captions(tmp_path, tokens):
    folder = write_visual_genome(tmp_path / "vg", n=24)
    data = {"name": "visual_genome", "args": {"folder": str(folder), "part": "all", "rare": 0, "min_triplets": 1}}
    names = {"predicates": ["near", "above", "under"], "objects": ["feline.n.01", "furniture.n.01", "tree.n.01"]}
    run = config(data=data, batch_size=8)
    run["model"] = MODEL | {"relations": MODEL["relations"] | names}
    done = launch(prepare(tmp_path / "run", run).path, progress=False)
    steps = [record for record in done.records() if record["kind"] == "step"]
    assert [record["phase"] for record in steps] == ["relate"] * 4 + ["search"] * 3
    assert all("relation_loss" in r for r in steps[:4])
    state = State(build(run["model"], tokens), extra={"data visual_genome": "another"})
    state.loader = SimpleNamespace(
        pairs=(), collate=state.model.collate, workers=0, rank=0, world=1, batch_size=8, seed=0
    )
    with pytest.raises(ValueError, match="have changed since this phase began"):
        _triplet_loader(data=data)(state)


# --- judged


def test_relations_are_learned_above_the_blind_judges(scenes, tokens):
    """Forty scenes by heart: enough that the way from picture to relation is whole, which a judge of words alone cannot
    follow."""
    torch.manual_seed(0)
    model = build(MODEL | {"relations": MODEL["relations"] | {"dropout": 0.0}}, tokens)
    set_trainable(model, _relation_patterns(model, "all", "all"))
    batch = model.collate.with_steps(
        TripletEncoder(tuple(SIDES), model.relations.objects, 4, tokenizer=model.collate.tokenizer)
    )(scenes)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=4e-3)
    objective = RelationGrounding()
    model.language.set_dropout(0.0)
    for _ in range(90):
        loss = sum(value for name, value in objective(model, batch).items() if name.endswith("_loss"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    task = Relations(scenes, scenes, SIDES, ["circle", "square", "triangle"])
    scores = {score.metric: score for score in task.run(model)}
    most = max(blind[0].high for blind in task.blind([]).values())
    assert scores["relation_top1"].low > most, (scores["relation_top1"], most)
    assert scores["object_top1"].value > 0.8 and "relation_top10" not in scores
    found = pair_relations(
        model, next(pair for pair in scenes if pair.graph and len(_judge_relations(model, [pair]).triplets)), top=2
    )
    assert (found.groupby(["subject", "object"]).probability.sum() <= 1 + 1e-6).all()
    assert len(relation_graph(found).layout.annotations) == len(found) // 2


def test_ranks_ties_and_several_right_answers():
    ranks, tied = _right_ranks(np.array([[1.0, 1.0 + 5e-7, 0.0], [0.2, 0.1, 0.0]]), np.array([0, 1]))
    assert ranks.tolist() == [2, 2] and tied.tolist() == [True, False]
    twice = [Triplet("man", "wear", "hat"), Triplet("man", "have", "hat"), Triplet("cat", "on", "mat")]
    scores = np.array([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0], [0.5, 0.5, 0.5]])
    table = _triplet_table(["a", "a", "b"], twice, scores, ["wear", "have", "on"])
    assert table["rank"].tolist() == [1, 2, 3] and table["any"].tolist() == [True, True, False]
    assert table["tied"].tolist() == [False, False, True]
    spared = _triplet_table(
        ["a", "a", "b"], twice, scores, ["wear", "have", "on"], np.array([[0, 0, 0], [1, 0, 0], [1, 1, 0]], bool)
    )
    assert spared["rank"].tolist() == [1, 1, 1]
    assert spared["guess"].tolist() == ["wear", "have", "on"]
    assert not spared["tied"].any()


def test_the_majority_is_the_commonest_training_relation(scenes):
    from complearn.data.visual_genome.triplets import pair_triplets

    counts = pd.Series([t.predicate for pair in scenes for t in pair_triplets(pair, tuple(SIDES))]).value_counts()
    scores = Relations(scenes, scenes, SIDES, ["circle", "square", "triangle"]).blind([])["majority"]
    assert scores[0].value == pytest.approx(counts.max() / counts.sum()) and scores[0].n == counts.sum()
    assert next(score for score in scores if score.metric == "relation_balanced").value == pytest.approx(0.25)


def test_relations_of_any_phrases(scenes, tokens):
    model = build(MODEL, tokens)
    found = _image_relations(model, scenes[0].image, ["red circle", "blue square"], top=4)
    assert len(found) == 8 and found.groupby(["subject", "object"]).probability.sum().tolist() == pytest.approx([1, 1])
    with pytest.raises(ValueError, match="two or more distinct phrases"):
        _image_relations(model, scenes[0].image, ["red circle"])


# --- stage 1


def test_stage_1_with_and_without_attention_and_its_eye_handed_on(tmp_path):
    data = {"name": "objects", "args": {"n_train": 72, "n_test": 18}}
    classes = class_names(read("objects", **data["args"]))
    model = {"kind": "classifier", "vision": TINY | {"patch": 8}, "classes": classes}
    run = {
        "method": {"name": "classify", "args": {"steps": 3}},
        "model": model,
        "data": data,
        "train": {"batch_size": 16, "lr": 1e-3},
    }
    for attention in (True, False):
        done = launch(
            prepare(tmp_path / f"a{attention}", run | {"model": model | {"attention": attention}}).path, progress=False
        )
        classifier = Snapshot(done).model()
        train, test = (read("objects", part=part, **data["args"]) for part in ("train", "test"))
        task = Classification(test, train, classifier.classes)
        for scores in (task.run(classifier), task.blind([])["majority"]):
            assert [score.metric for score in scores] == ["top1", "top5"]
    then = {"name": "grounded", "args": {"steps": 1, "lr": 1e-12, "new_lr": None}}
    more = config() | {"method": {"name": "with_classifier", "args": {"run": str(tmp_path / "aTrue"), "then": then}}}
    eye = Snapshot(tmp_path / "aTrue").model()
    grounded = Snapshot(launch(prepare(tmp_path / "then", more).path, progress=False)).model()
    torch.testing.assert_close(grounded.vision.embed.weight, eye.vision.embed.weight, atol=1e-6, rtol=1e-5)
    other = more | {"method": {"name": "with_classifier", "args": {"run": str(tmp_path / "aFalse"), "then": then}}}
    with pytest.raises(ValueError, match="two vision streams differ"):
        launch(prepare(tmp_path / "other", other).path, progress=False)


def test_occlusion_of_a_class_that_is_not_there():
    with pytest.raises(ValueError, match="one of 2 classes, 0 to 1; got 2"):
        occlusion_map(lambda images: torch.ones(len(images), 2), torch.rand(3, 12, 12), 2, 4, 4)


def test_occlusion_against_a_loop():
    torch.manual_seed(0)
    image = torch.rand(3, 12, 12)
    weight = torch.randn(3, 12, 12)

    def probabilities(images):
        return torch.stack([(images * weight).sum((1, 2, 3)).sigmoid(), torch.zeros(len(images))], 1)

    found = occlusion_map(probabilities, image, 0, window=5, stride=4, grey=0.5, batch_size=3)
    assert _centres(12, 4) == [0, 4, 8, 12] and len(_occluded(image, 5, 4)) == 16
    for r, y in enumerate(_centres(12, 4)):
        for c, x in enumerate(_centres(12, 4)):
            copy = image.clone()
            for i in range(12):
                for j in range(12):
                    if -2 <= i - y < 3 and -2 <= j - x < 3:
                        copy[:, i, j] = 0.5
            assert found[r, c] == pytest.approx(float((copy * weight).sum().sigmoid()), abs=1e-6)


def test_the_histogram_counts_every_trial_once():
    rows = [
        ("attention", 0.9),
        ("attention", 0.15),
        ("attention", 0.55),
        ("attention", 0.5),
        ("plain", 0.1),
        *[("plain", 0.5)] * 3,
    ]
    frame = pd.DataFrame(rows, columns=["method", "probability"]).assign(
        image="a", row=[0, 0, 1, 1] * 2, column=[0, 1] * 4, whole=1.0
    )
    table = occlusion_histogram(frame, bins=10)
    assert table.better.sum() == 50 and table.worse.sum() == 25, "a trial without a difference is neither"
    assert table.better[table.high > 0.75].sum() == 25
    assert table.better[0] == 25
    assert table.worse[table.low >= 0.2].sum() == 25
    with pytest.raises(ValueError, match="make them of the same"):
        occlusion_histogram(frame[:-1])


def test_occlusion_trials_of_a_classifier():
    pairs = read("objects", n_train=9, n_test=2)
    made = {"kind": "classifier", "vision": TINY | {"patch": 8}, "classes": class_names(pairs)}
    models = {name: build(made | {"attention": on}) for name, on in (("attention", True), ("plain", False))}
    pairs = pairs[:2]
    trials = occlusion_trials(models, pairs, window=16, stride=16)
    assert len(trials) == 2 * 2 * 9 and trials.probability.between(0, 1).all()
