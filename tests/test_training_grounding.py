"""Grounding: both losses against a loop, what trains and what stays, runs that resume, two processes that are one."""

import os
import subprocess
import sys
from pathlib import Path

import grounding_ranks
import numpy as np
import pytest
import torch
from grounding_ranks import config, loss_and_gradients, related, sides
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from complearn.core.runs import Run
from complearn.data.pairs import Batch, OtherCaption, OtherCaptions
from complearn.data.readers.registry import read
from complearn.data.visual_genome.triplets import relation_names
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.grounded.matchmap import READINGS
from complearn.models.grounded.model import GroundedOutput, SearchScorer
from complearn.models.registry import build
from complearn.training.engine.optimization import adamw
from complearn.training.engine.phases import match_names
from complearn.training.methods.grounding import (
    ShuffledPhotos,
    _grounded_arguments,
    _grounding_arguments,
    caption_pairs,
    grounded,
    grounding,
    grounding_rows,
    grounding_scale,
    masked_words,
)
from complearn.training.methods.registry import merge
from complearn.training.methods.scales import SCALES
from complearn.training.objectives.grounding import CaptionPairs, Grounding
from complearn.training.objectives.losses import info_nce, vector_info_nce
from complearn.training.objectives.unimodal.baselines import MaskedWords, hide
from complearn.training.runs.config import RunConfig
from complearn.training.runs.launch import launch, prepare
from complearn.training.runs.snapshots import Snapshot
from complearn.training.runs.study import Study

HERE = Path(__file__).parent


def judged(losses="both", temperature=0.1, reading="word_mean", ids=None):
    image, text, words, own = sides()
    model = nn.Module()
    model.config = type("", (), {"reading": reading})
    batch = Batch(None, None, None, own if ids is None else ids, tuple("abcdefgh"))
    return Grounding(temperature, losses).compute_losses(GroundedOutput(image, text, words), model, batch)


@pytest.mark.parametrize("reading", READINGS)
def test_both_losses_equal_loops(reading):
    image, text, words, ids = sides()
    table = torch.zeros(8, 8)
    for i in range(8):
        for t in range(8):
            maps = image[i] @ text[t, words[t]].T
            best = maps.amax(0)
            table[i, t] = {"word_sum": best.sum(), "word_mean": best.mean(), "mean": maps.mean()}[reading]
    for name, scores in (("language_loss", table / 0.1), ("vision_loss", table.T / 0.1)):
        total = 0.0
        for i in range(8):
            rivals = [j for j in range(8) if j == i or ids[j] != ids[i]]
            total += float(scores[i, rivals].logsumexp(0) - scores[i, i]) / 8
        assert float(judged(reading=reading)[name]) == pytest.approx(total, rel=1e-4)


def test_one_loss_alone():
    both = judged()
    for side in ("language", "vision"):
        alone = judged(side)
        assert [name for name in alone if name.endswith("_loss")] == [f"{side}_loss"]
        assert alone[f"{side}_loss"] == both[f"{side}_loss"]
    with pytest.raises(ValueError, match="both, language, vision, .*; not 'text'"):
        Grounding(losses="text")
    with pytest.raises(ValueError, match="temperature above 0"):
        Grounding(temperature=0)


def test_large_similarities_do_not_overflow_and_one_photo_has_no_rivals():
    assert all(torch.isfinite(value) for value in judged(temperature=1e-6).values())
    told = judged(ids=torch.zeros(8, dtype=torch.int64))
    assert told["language_loss"] == told["vision_loss"] == 0 and told["matched"] == 1


def test_the_vector_loss_is_the_table_loss():
    a, b = (torch.nn.functional.normalize(torch.randn(6, 4), dim=1) for _ in range(2))
    same = torch.rand(6, 6) < 0.3
    own = torch.arange(6)
    assert torch.allclose(
        vector_info_nce(a, b, torch.tensor(9.0), own, same), info_nce(9.0 * a @ b.T, own, same), atol=1e-6
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    made = prepare(tmp_path_factory.mktemp("grounded") / "run", config())
    return launch(made.path, progress=False)


def test_a_run_learns_and_says_what_it_is(run):
    losses = [record["loss"] for record in run.records() if record["kind"] == "step"]
    assert len(losses) == 6 and all(x == x for x in losses) and losses[-1] < losses[0]
    assert "A grounded model of" in (run.path / "model_card.md").read_text()
    model = Snapshot(run).model()
    assert model.config.kind == "grounded" and not model.training
    there = load_file(run.phases()[-1])
    assert all(torch.equal(value, there[name]) for name, value in model.state_dict().items())


def test_stopped_and_resumed_it_comes_to_the_same(run, tmp_path, monkeypatch):
    from complearn.training.engine import trainer

    other = prepare(tmp_path / "run", config())
    with monkeypatch.context() as patch:
        after = trainer.Trainer.after_step

        def struck(self, result):
            after(self, result)
            if self.state.step == 4:
                raise KeyboardInterrupt

        patch.setattr(trainer.Trainer, "after_step", struck)
        with pytest.raises(KeyboardInterrupt):
            launch(other.path, progress=False)
    assert Run.open(other.path).done is None
    launch(other.path, progress=False)
    a = load_file(run.phases()[-1])
    b = load_file(Run.open(other.path).phases()[-1])
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_frozen_parts_stay_bit_equal(tmp_path):
    """A frozen eye, frozen queries and keys, the lower of two layers and the embeddings; weight decay would move what
    is not."""
    tower = grounding_ranks.LITTLE
    frozen = {
        "vision": tower | {"size": 16, "patch": 8, "frozen": True},
        "text": tower | {"depth": 2},
        "layers": 1,
        "freeze_qk": True,
    }
    made = launch(prepare(tmp_path / "run", config(model=frozen, more={"weight_decay": 0.5})).path, progress=False)
    last = load_file(made.phases()[-1])
    first = build(made.config["model"], WordTokenizer.load(made.path / "tokenizer.json")).state_dict()
    moved = {name for name in last if not torch.equal(first[name], last[name])}
    names = list(last)
    model = Snapshot(made).model()
    expected = match_names(names, model.patterns()) - {
        n for n in names if ".fixed." in n or n.startswith("vision.tower.")
    }
    assert moved == expected
    assert "language.tower.blocks.1.attention.inner.value.weight" in moved and "heads.vision.weight" in moved
    assert not any(n.startswith("language.tower.blocks.0.") or "embed" in n.replace("vision.embed", "") for n in moved)


def test_parts_of_a_batch_give_the_whole_batchs_step(run, tmp_path):
    parts = launch(prepare(tmp_path / "run", config(accumulate=4)).path, progress=False)
    losses = [[record["loss"] for record in x.records() if record["kind"] == "step"] for x in (run, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


@pytest.mark.slow
def test_two_processes_are_one(run, tmp_path):
    prepare(tmp_path / "run", config(processes=2))
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COMPLEARN_TYPECHECK": "0", "PYTHONPATH": path}
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--nproc_per_node",
        "2",
        "--standalone",
        str(HERE / "grounding_ranks.py"),
    ]
    done = subprocess.run([*command, str(tmp_path)], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    for losses in ("both", "language", "vision", "places"):
        loss, image, text = loss_and_gradients(0, 1, losses)
        ranks = [torch.load(tmp_path / f"{losses}-{r}.pt", weights_only=True) for r in (0, 1)]
        assert torch.allclose((ranks[0][0] + ranks[1][0]) / 2, loss, rtol=1e-5)
        for i, expected in ((1, image), (2, text)):  # the wrapper's averaging halves what each process has for its rows
            assert torch.allclose(torch.cat([ranks[0][i], ranks[1][i]]) / 2, expected, atol=1e-5)
    for name in ("relate", "lonely", "search"):
        whole = related(0, 1, name)
        ranks = [torch.load(tmp_path / f"{name}-{r}.pt", weights_only=True) for r in (0, 1)]
        assert whole.keys() == ranks[0].keys() == ranks[1].keys() and len(whole) > 10
        for part, value in whole.items():
            torch.testing.assert_close(
                (ranks[0][part] + ranks[1][part]) / 2, value, atol=1e-5, rtol=1e-4, msg=f"{name} {part}"
            )
    together = Run.open(tmp_path / "run")
    losses = [[record["loss"] for record in x.records() if record["kind"] == "step"] for x in (together, run)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_stages_two_and_three_and_search_in_one_run(tmp_path):
    names = relation_names(read("generated", **grounding_ranks.DATA["args"]))
    args = {"steps": 2, "relation_steps": 2, "search_steps": 2, "ground": {"lr": 2e-3}, "relate": {"lr": 1e-3}}
    made = prepare(tmp_path / "run", config(method="grounding", more=args, model={"relations": names, "search": True}))
    launch(made.path, progress=False)
    assert [file.stem for file in made.phases()] == ["00-ground", "01-relate", "02-search"]
    weights = [load_file(file) for file in made.phases()]

    def differing(i, j):
        return {n.split(".")[0] for n in weights[i] if not torch.equal(weights[i][n], weights[j][n])}

    assert differing(0, 1) == {"relations", "language", "vision"} and differing(1, 2) == {"search"}
    model = SearchScorer(Snapshot(made).model())
    batch = model.collate(list(read("generated", **grounding_ranks.DATA["args"]))[:3])
    assert model.similarity(model.encode_images(batch), model.encode_texts(batch)).shape == (3, 3)


def test_a_rows_switches_leave_the_rest_as_it_is():
    """A row that changes one argument of one phase keeps the phase's others; another tower takes nothing over from the
    preset's."""
    source = {"name": "generated", "args": {}}
    names = {"predicates": ["above"], "objects": ["circle"]}
    scale = SCALES["smoke"]

    def made(**row):
        rows = grounding_rows({"a": merge({"method": "grounding", "model": {"relations": names}}, row)}, scale.text)
        return Study("/nowhere", rows, [0], source, scale, 20, scale.model(), scale.train(20, 64)).configuration("a", 0)

    plain = made()
    changed = made(grounding={"relate": {"spare": True}, "steps": 7}, model={"relations": {"d": 8}, "text": "minilm"})
    assert plain["method"]["args"]["relate"]["dropout"] == 0.0 == plain["method"]["args"]["ground"]["dropout"], (
        "a new tower drops nothing"
    )
    assert made(grounding={"relate": {"spare": True}})["method"]["args"]["relate"] == plain["method"]["args"][
        "relate"
    ] | {"spare": True}
    assert "lr" not in changed["method"]["args"]["relate"] and changed["method"]["args"]["steps"] == 7, "a learnt tower"
    assert changed["model"]["relations"] == names | {"d": 8} and changed["model"]["text"] == "minilm"
    assert [one["train"]["precision"] for one in (plain, changed)] == ["fp32", "auto"], "a learnt tower is large"
    RunConfig.read(changed)


def test_new_parts_learn_faster_than_pretrained_ones_but_for_the_papers_preset():
    """The rates as they reach the optimizer, by the names of the parameters."""
    relations = {"predicates": ("above",), "objects": ("circle",), "heads": 2}
    model = build(grounding_ranks.MODEL | {"relations": relations, "search": True}, WordTokenizer.fit(["a circle"]), 0)

    def rates(arguments):
        phases = grounding(model, **arguments)
        made = [adamw(dict(model.named_parameters()), **phase.optim) for phase in phases]

        def of(optimizer):
            return {id(p): group["lr"] for group in optimizer.param_groups for p in group["params"]}

        parts = {"heads": model.heads, "vision": model.vision.attention, "language": model.language}
        parts |= {"relations": model.relations, "search": model.search}
        return [{name: of(one)[id(next(part.parameters()))] for name, part in parts.items()} for one in made], phases

    ours, _ = rates({"steps": 4, "relation_steps": 4, "search_steps": 4})
    assert [(one["heads"], one["language"]) for one in ours[:1]] == [(1e-3, pytest.approx(5e-5))]
    assert (ours[1]["relations"], ours[1]["vision"], ours[1]["language"]) == (1e-3, 1e-3, pytest.approx(1e-5))
    assert ours[2]["search"] == 1e-3
    theirs, phases = rates(_grounding_arguments(grounding_scale("paper"), 65_000, {}))
    assert [set(one.values()) for one in theirs] == [{5e-5}, {1e-5}, {1e-5}]
    assert [phase.halve for phase in phases] == [9_750, 7_790, 0]
    assert not any(phase.optim["decoupled"] for phase in phases)
    (read,) = masked_words(model, **_grounded_arguments(grounding_scale("paper"), 65_000, {}))
    (pair,) = caption_pairs(model, **_grounded_arguments(grounding_scale("paper"), 65_000, {}))
    for control in (read, pair):
        assert (control.halve, control.optim["decoupled"], control.optim["lr"]) == (9_750, False, 5e-5)


def test_a_dropout_that_stays_is_that_of_the_stage_before_also_on_resume():
    relations = {"predicates": ("above",), "objects": ("circle",), "heads": 2}
    for dropout in (None, 0.2):
        model = build(grounding_ranks.MODEL | {"relations": relations}, WordTokenizer.fit(["a circle"]), 0)
        before = {} if dropout is None else {"dropout": dropout}
        phases = grounding(model, 4, 4, ground=before, relate={"dropout": None})
        phases[1].on_enter(model)  # as where a run is resumed, which does not enter the first
        shares = {part.p for part in model.language.modules() if isinstance(part, nn.Dropout)}
        assert shares == {dropout or 0.3}


def test_hidden_words_are_guessed_as_in_a_loop(monkeypatch):
    """The loss against one written word by word from the paper's text, with every chosen word hidden."""
    tokenizer = WordTokenizer.fit(["a red circle is left of a blue square", "the square"])
    model = build(grounding_ranks.MODEL, tokenizer, 0).eval()
    objective = MaskedWords(model.language.width, len(tokenizer), 0.4)
    told = tokenizer(["a red circle is left of a blue square", "the square"])
    batch = Batch(None, told.ids, told.mask, torch.arange(2), ("a", "b"))
    words = model.language.word_mask(told.mask)
    torch.manual_seed(3)
    read, chosen = hide(told.ids, words, tokenizer.unknown, len(tokenizer), 0.4)
    torch.manual_seed(3)
    measures = objective(model, batch)
    losses = []
    for i, j in chosen.nonzero().tolist():
        assert words[i, j]
        state = model.language.tower(read, told.mask).tokens[i, j]
        scores = objective.head(state) @ model.language.tower.embed.weight.T + objective.bias
        losses.append(-scores.log_softmax(-1)[told.ids[i, j]])
    assert chosen.any(1).all()
    assert measures["masked_loss"].item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)
    measures["masked_loss"].backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in objective.parameters())


def test_what_is_hidden_has_berts_shares():
    torch.manual_seed(0)
    ids = torch.full((400, 50), 7)
    words = torch.ones(400, 50, dtype=torch.bool)
    read, chosen = hide(ids, words, 3, 1000)

    def share(x):
        return float(x.float().mean())

    assert share(chosen) == pytest.approx(0.15, abs=0.01) and share(read[chosen] == 3) == pytest.approx(0.8, abs=0.03)
    assert share(read[chosen] == 7) == pytest.approx(0.1, abs=0.03) and (read[~chosen] == 7).all()


def test_the_controls_train_what_they_say(tmp_path):
    """Through the trainer: text alone leaves the vision stream and the heads; shuffled pairs are the same captions with
    other photos."""
    text_alone = config(method="masked_words", more={"steps": 3, "lr": 1e-2, "new_lr": None, "layers": "all"})
    made = launch(prepare(tmp_path / "text", text_alone).path, progress=False)
    other = launch(prepare(tmp_path / "shuffled", config(steps=3, more={"shuffled": True})).path, progress=False)
    whole = launch(prepare(tmp_path / "whole", config(steps=3)).path, progress=False)
    text, shuffled, plain = (load_file(one.phases()[-1]) for one in (made, other, whole))
    start = build(made.config["model"], WordTokenizer.load(made.tokenizer_file), 0).state_dict()
    moved = {name.split(".")[0] for name, value in text.items() if not torch.equal(value, start[name])}
    assert moved == {"language"} and not torch.equal(shuffled["heads.vision.weight"], plain["heads.vision.weight"])
    pairs = list(read(grounding_ranks.DATA["name"], **grounding_ranks.DATA["args"]))
    mixed = ShuffledPhotos(pairs)
    photos = {pair.image_id: [] for pair in pairs}
    for old, new in zip(pairs, mixed):
        assert new.caption == old.caption and new.image_id == old.image_id and new.image is not old.image
        photos[old.image_id].append(new.image)
    assert all(all(image is images[0] for image in images) for images in photos.values()), (
        "captions of one photo stay together"
    )


SAID = ["a red dog", "a dog in red on the grass", "two cats", "cats that look at a big red bird", "a bird", "one bird"]


@pytest.mark.parametrize("marks", [False, True])
@pytest.mark.parametrize("unit", [False, True])
@pytest.mark.parametrize("reading", READINGS)
def test_pairs_of_captions_are_contrasted_as_in_a_loop(reading, unit, marks):
    """Both losses against ones written caption by caption: another caption's words stand where a photo's places
    were."""
    tokenizer = WordTokenizer.fit(SAID)
    model = build(grounding_ranks.MODEL | {"reading": reading, "unit": unit, "marks": marks}, tokenizer, 0).eval()
    objective = CaptionPairs(model.language.width, model.heads["language"].out_features)
    for first in ([0, 2, 4], [1, 3, 5]):  # the other captions are longer, then shorter
        own, other = (tokenizer([SAID[k ^ flip] for k in first]) for flip in (0, 1))
        batch = Batch(None, own.ids, own.mask, torch.tensor([7, 7, 9]), ("a", "b", "c"))
        measures = objective(model, batch.with_parts(OtherCaption(other.ids, other.mask)))

        def vectors(k, side, turned):
            told = tokenizer([SAID[k ^ turned]])
            states = objective.heads[side](model.language.tower(told.ids, told.mask).tokens[0])
            states = nn.functional.normalize(states, dim=-1) if unit else states
            return states if marks else states[1:-1]

        table = torch.zeros(3, 3)
        for i, of_image in enumerate(first):
            for j, of_text in enumerate(first):
                heat = vectors(of_image, "other", 1) @ vectors(of_text, "own", 0).T
                best = heat.amax(0)
                table[i, j] = {"word_sum": best.sum(), "word_mean": best.mean(), "mean": heat.mean()}[reading]
        for name, scores in (("language_loss", table / 0.1), ("vision_loss", table.T / 0.1)):
            rivals = [[0, 2], [1, 2], [0, 1, 2]]  # the first two are captions of one photo
            total = sum((scores[i, rivals[i]].logsumexp(0) - scores[i, i]).item() for i in range(3)) / 3
            assert float(measures[name]) == pytest.approx(total, rel=1e-4)
    sum(measures[name] for name in ("language_loss", "vision_loss")).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in objective.heads.parameters() if p.ndim == 2)


def test_captions_of_one_photo_are_paired_without_its_pixels(tmp_path):
    """Through the trainer: photos with one caption are left out, no picture is read, the words move and the
    vision stream does not."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for k in range(5):
        Image.fromarray(np.full((16, 16, 3), 50 * k, np.uint8)).save(photos / f"{k}.png")
    lines = [f"{k}.png,{caption} {k}" for k in range(4) for caption in ("a red dog", "a dog in red", "the red one")]
    (photos / "captions.csv").write_text("\n".join(["image,caption", *lines, "4.png,alone"]) + "\n")
    arguments = {"steps": 4, "lr": 1e-2, "new_lr": None, "layers": "all", "dropout": 0.0}
    paired = config(method="caption_pairs", more=arguments) | {
        "data": {"name": "folder", "args": {"folder": str(photos)}}
    }
    made = launch(prepare(tmp_path / "run", paired).path, progress=False)
    weights = load_file(made.phases()[-1])
    start = build(made.config["model"], WordTokenizer.load(made.tokenizer_file), 0).state_dict()
    assert {name.split(".")[0] for name, value in weights.items() if not torch.equal(value, start[name])} == {
        "language"
    }
    steps = [record for record in made.records() if record["kind"] == "step"]
    assert len(steps) == 4 and all({"language_loss", "vision_loss", "matched"} <= set(record) for record in steps)

    pairs = list(read("folder", folder=str(photos)))
    step = OtherCaptions.of(pairs, WordTokenizer.fit([pair.caption for pair in pairs]))
    assert [len(step.others(pair)) for pair in pairs] == [2] * 12 + [0]
    drawn = {tuple(step([pairs[0]], [draw]).ids[0].tolist()) for draw in range(20)}
    assert drawn == {tuple(step.tokenizer([text]).ids[0].tolist()) for text in ("a dog in red 0", "the red one 0")}
    with pytest.raises(ValueError, match="image .*4.png.* has no other caption; leave such pairs out"):
        step([pairs[-1]])
    with pytest.raises(ValueError, match="none of 48 pairs has another caption of its image; .* such as Flickr8k's"):
        launch(prepare(tmp_path / "one", config(method="caption_pairs", more=arguments)).path, progress=False)
    with pytest.raises(ValueError, match="caption_pairs needs a grounded model"):
        caption_pairs(nn.Linear(2, 2), 3)


def test_rows_know_how_deep_a_text_tower_is():
    def counts(spec):
        return [row["model"]["layers"] for row in grounding_rows(["layers"], spec).values() if "model" in row]

    grid = [row for label, row in grounding_rows(["layer grid"], "minilm").items() if label != "grounded"]
    settings = {(row["model"]["layers"], row["model"]["freeze_qk"], row["grounded"]["dropout"]) for row in grid}
    assert settings == {(k, frozen, share) for k in (2, 4, 6) for frozen in (True, False) for share in (0.1, 0.3)}
    assert len(grid) == 12
    assert counts("minilm") == [0, 2, 4, 6] and counts("hf:bert-base-uncased") == [0, 4, 8, 12]
    assert counts({"tower": "tiny", "depth": 1}) == [0, 1] and len(set(counts({"tower": "tiny", "depth": 2}))) == 3
    with pytest.raises(ValueError, match='give "layers": 0'):
        build(grounding_ranks.MODEL | {"text": grounding_ranks.LITTLE | {"frozen": True}}, WordTokenizer.fit(["a"]))


def test_methods_that_cannot_be():
    tokenizer = WordTokenizer.fit(["a red circle"])
    model = build(grounding_ranks.MODEL, tokenizer)
    with pytest.raises(ValueError, match="needs a grounded model"):
        grounded(nn.Linear(2, 2), 3)
    with pytest.raises(ValueError, match="needs a model with relations"):
        grounding(model, 3, 3)
    with pytest.raises(ValueError, match="method .grounded. key .epochs.; there are steps, lr"):
        RunConfig.read(config(more={"epochs": 3}))
    with pytest.raises(ValueError, match="layers is how many"):
        grounded(model, 3, layers="top")
    (phase,) = grounded(model, 3, betas=[0.9, 0.99])
    assert phase.schedule == "phase" and phase.optim["betas"] == (0.9, 0.99)


def test_relations_can_begin_where_captions_have_ended(run, tmp_path):
    """Stage 3 as a run of its own: what stage 2 has learnt is there, and what it did not have begins fresh."""
    names = relation_names(read("generated", **grounding_ranks.DATA["args"]))
    made = config(method="relating", more={"steps": 2, "lr": 1e-3}, model={"relations": names}) | {
        "start": {"run": str(run.path), "phase": -1}
    }
    later = launch(prepare(tmp_path / "later", made).path, progress=False)
    first = load_file(run.phases()[-1])
    start = load_file(later.checkpoints()[0] / "model.safetensors")
    assert all(
        torch.equal(start[name], value)
        for name, value in first.items()
        if not name.startswith(("language.", "vision."))
    )
    assert any(name.startswith("relations.") for name in start)
    other = config(model={"unit": True, "relations": names}) | {"start": {"run": str(run.path), "phase": -1}}
    with pytest.raises(ValueError, match="whose model is another: .*unit"):
        launch(prepare(tmp_path / "other", other).path, progress=False)
