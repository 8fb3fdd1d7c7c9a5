"""CLIP in stages: one stage is plain fine-tuning, scores are means of cosines, batches are of one pseudo-label, and a
study of starts."""

import shutil

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from training_runs import DATA, TRAIN, assert_same

from complearn.analysis.codes.readings import code_table
from complearn.analysis.smoothness.agents import agent_functions
from complearn.analysis.stages.costs import add_stage
from complearn.core.results import row
from complearn.core.runs import Run
from complearn.core.seeds import derive
from complearn.data.attributes.cluster_sampler import Groups
from complearn.data.readers.registry import read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.models.agents import block_names
from complearn.models.registry import added_parts, build, load_model, save_model
from complearn.models.towers.factory import vision_tower
from complearn.training.methods.multistage.clip import _parts_after_blocks
from complearn.training.methods.multistage.clusters import _decode_labels, cluster, pseudo_labels, stage_vectors
from complearn.training.methods.registry import Named, make_phases
from complearn.training.methods.scales import SCALES
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.snapshots import Snapshot
from complearn.training.runs.study import Study

TOWERS = {
    "vision": {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 2, "heads": 1},
    "text": {"tower": "tiny", "width": 16, "depth": 1, "heads": 1},
}
GROUPING = {"clusters": 2, "small": "partial"}


def config(method, start=None, stages=0, model=None, train=None, **args):
    model = {**TOWERS, **(model or {})} | ({"kind": "clip_stages", "stages": stages} if stages else {})
    values = {
        "method": {"name": method, "args": args},
        "model": model,
        "data": DATA,
        "train": TRAIN | (train or {}),
        "seed": 0,
    }
    return values | ({"start": {"run": f"../{start}", "phase": -1}} if start else {})


def train(folder, name, *args, **values):
    return launch(prepare(folder / name, config(*args, **values)).path, progress=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs: a CLIP, and one that goes on from it in three stages."""
    folder = tmp_path_factory.mktemp("runs")
    train(folder, "clip-s0", "clip", steps=6, ramp=1)
    train(folder, "stages-s0", "multistage_clip", "clip-s0", 3, steps=10, grouping=GROUPING, ramp=1)
    return folder


@pytest.fixture(scope="module")
def model(folder):
    return Snapshot(folder / "stages-s0").model()


@pytest.fixture(scope="module")
def pairs():
    return [read(DATA["name"], **DATA["args"])[k] for k in range(20)]


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("codebook", [None, {"codes": 12}])
def test_one_stage_is_plain_fine_tuning_bit_for_bit(tmp_path, blocks, codebook):
    more = {"model": {"codebook": codebook} if codebook else {}}
    train(tmp_path, "clip-s0", "clip", steps=4, ramp=1, **more)
    plain = train(tmp_path, "tuned-s0", "clip", "clip-s0", steps=7, ramp=2, blocks=blocks, **more)
    staged = train(tmp_path, "staged-s0", "multistage_clip", "clip-s0", 1, steps=7, ramp=2, blocks=blocks, **more)
    before = Snapshot(tmp_path / "clip-s0").weights()
    after = Snapshot(plain).weights()
    stages = Snapshot(staged).weights()
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    allowed = tuple(f"vision.tower.blocks.{k}." for k in range(2 - blocks, 2))
    assert moved and all(name.startswith(allowed) for name in moved)
    for name, value in after.items():
        mine = stages[f"encoders.0.{name.removeprefix('vision.')}"] if name.startswith("vision.") else stages[name]
        assert torch.equal(mine, value), name
        assert torch.equal(stages[name], before[name])  # what the run began with is kept beside it

    def losses(run):
        return [record["loss"] for record in run.records() if record["kind"] == "step"]

    assert losses(plain) == losses(staged)


def test_the_language_agent_the_scale_and_earlier_stages_stay(folder, model):
    start = Snapshot(folder / "clip-s0").weights()
    ended = model.state_dict()
    assert all(torch.equal(ended[name], value) for name, value in start.items())
    first = Snapshot(folder / "stages-s0", phase="stage-0").weights()
    for name, value in ended.items():
        if name.startswith("encoders."):
            stage, rest = name.removeprefix("encoders.").split(".", 1)
            assert torch.equal(value, start[f"vision.{rest}"]) == ("tower.blocks.1." not in name), name
            assert (stage != "0") or torch.equal(value, first[name])
    assert int(ended["learned"]) == 3


def test_scores_are_the_naive_mean_of_the_stages_cosines(model, pairs):
    batch = model.collate(pairs)
    with torch.no_grad():
        texts = model.language(batch)[0]
        images = [encoder(batch)[0] for encoder in model.encoders]
    naive = torch.zeros(len(pairs), len(pairs))
    for i in range(len(pairs)):
        for t in range(len(pairs)):
            parts = [float(image[i] @ texts[t] / image[i].norm() / texts[t].norm()) for image in images]
            naive[i, t] = sum(parts) / len(parts)
    scores = model.similarity(model.encode_images(batch), model.encode_texts(batch))
    assert torch.allclose(scores, naive, atol=1e-5)
    joined = torch.cat([F.normalize(image, dim=-1) for image in images], -1)
    repeated = torch.cat([F.normalize(texts, dim=-1)] * 3, -1)
    assert torch.allclose(scores, F.normalize(joined, dim=-1) @ F.normalize(repeated, dim=-1).T, atol=1e-5)
    for stage in range(3):
        alone = model.scorer(stage)
        assert torch.allclose(alone.encode_images(batch).values, F.normalize(images[stage], dim=-1), atol=1e-6)
        assert torch.equal(alone.encode_images(batch).values, model.encode_stage(batch, stage))


def test_a_model_that_has_learned_no_stage_answers_as_it_began(folder, pairs):
    plain = Snapshot(folder / "clip-s0").model()
    fresh = build({"kind": "clip_stages", **TOWERS}, plain.tokenizer)
    fresh.load_state_dict(fresh.state_dict() | plain.state_dict())
    batch = plain.collate(pairs)
    assert torch.equal(fresh.encode_images(batch).values, plain.encode_images(batch).values)
    assert torch.equal(fresh.encode_texts(batch).values, plain.encode_texts(batch).values)


def test_the_soup_has_the_mean_of_the_weights(model, pairs, tmp_path):
    soup = model.soup()
    for name, value in soup.state_dict().items():
        if name.startswith("vision."):
            parts = [model.state_dict()[f"encoders.{k}.{name.removeprefix('vision.')}"] for k in range(3)]
            assert torch.allclose(value, (parts[0] + parts[1] + parts[2]) / 3, atol=1e-6), name
        else:
            assert torch.equal(value, model.state_dict()[name])
    again = load_model(save_model(soup, tmp_path / "soup"))
    batch = soup.collate(pairs)
    assert torch.equal(again.encode_images(batch).values, soup.encode_images(batch).values)


def test_there_is_no_soup_of_stages_that_are_normalised_by_their_spectra(model):
    staged = build({"kind": "clip_stages", **TOWERS, "spectral": True}, model.tokenizer)
    staged.learned.fill_(2)
    with pytest.raises(ValueError, match=r"2 stages cannot be averaged: .* is normalised by its spectrum.*scorer\(k\)"):
        staged.soup()
    staged.learned.fill_(1)
    assert staged.soup().config.spectral


def test_an_analysis_of_one_vision_agent_refuses_several(model, pairs):
    "And reads one of them."
    with pytest.raises(TypeError, match=r"a CLIP with stages has a vision agent for each; give one stage"):
        agent_functions(model, model.collate(pairs))
    assert set(agent_functions(model.scorer(1), model.collate(pairs))) == {"vision", "language"}
    staged = build({"kind": "clip_stages", **TOWERS, "codebook": {"codes": 8}}, model.tokenizer)
    staged.calibrate(staged.collate(pairs))
    with pytest.raises(ValueError, match="look at the codes of one stage"):
        code_table(staged, pairs)
    assert len(code_table(staged.scorer(0), pairs).top_item) == 8


def test_stages_are_saved_as_one_scorer(model, pairs, tmp_path):
    again = load_model(save_model(model, tmp_path / "stages"))
    batch = model.collate(pairs)
    scores = [each.similarity(each.encode_images(batch), each.encode_texts(batch)) for each in (model, again)]
    assert torch.equal(*scores)
    assert again.fingerprint() == model.fingerprint()
    assert again.encode_images(batch).values.shape == (20, 48)


def test_every_batch_is_of_one_pseudo_label_of_the_embeddings(tmp_path):
    train(tmp_path, "clip-s0", "clip", steps=6, ramp=1)
    values = config("multistage_clip", "clip-s0", 3, steps=10, grouping=GROUPING)
    trainer = make_trainer(prepare(tmp_path / "stages-s0", values), progress=False)
    trainer.fit()
    made = trainer.state.extra["assignments"].numpy()
    expected = []
    for stage in range(2):
        vectors = stage_vectors(trainer.model, stage, trainer.loader.pairs, trainer.loader.collate, "projection")
        expected.append(cluster(vectors, 2, derive(0, "stage", stage + 1)))
        batch = trainer.loader.collate(trainer.loader.pairs)
        assert torch.allclose(vectors, trainer.model.scorer(stage).encode_images(batch).values, atol=1e-5)
    assert (made == expected).all()
    groups = trainer.state.extra["groups"].numpy()
    assert (groups == pseudo_labels(made, 2)).all() and (_decode_labels(groups, 2, 2) == made).all()
    loader = trainer.loader_of(trainer.phases[2])
    by_key = {pair.id: int(group) for pair, group in zip(trainer.loader.pairs, groups)}
    for number in range(loader.batches_per_epoch):
        batch = loader.batch(number)
        assert len({by_key[key] for key in batch.keys}) == 1 == len(set(batch[Groups].numbers.tolist()))
        assert batch.ids is not None


@pytest.mark.parametrize("ema", [None, 0.9])  # the average of stage 0 is that model too
def test_the_model_that_a_run_starts_from_can_be_stage_0(folder, pairs, ema):
    args = {"steps": 6, "grouping": GROUPING, "pretrained": True}
    run = train(folder, f"paper-{ema}-s0", "multistage_clip", "clip-s0", 3, train={"ema": ema}, **args)
    assert run.phase_names() == ["stage-1", "stage-2"]
    model = Snapshot(run).model()
    plain = Snapshot(folder / "clip-s0").model()
    batch = model.collate(pairs)
    assert torch.equal(model.encode_stage(batch, 0), plain.encode_images(batch).values) and int(model.learned) == 3
    assert not torch.equal(model.encode_stage(batch, 1), model.encode_stage(batch, 0))


def test_a_stage_is_added_to_a_clip_in_stages_exactly(folder):
    two = train(folder, "two-s0", "multistage_clip", "clip-s0", 2, steps=7, grouping=GROUPING, ramp=1)
    new = launch(add_stage(two, folder / "three-s0").path, progress=False)
    more = Snapshot(new).weights()
    whole = Snapshot(folder / "stages-s0").weights()
    assert more.keys() == whole.keys() and all(torch.equal(more[name], whole[name]) for name in whole)


def test_a_stage_may_begin_where_the_one_before_ended(folder):
    trainer = make_trainer(
        prepare(
            folder / "inherits-s0", config("multistage_clip", "clip-s0", 2, steps=6, grouping=GROUPING, inherit=True)
        ),
        progress=False,
    )
    weights = []
    begin = trainer.phases[1].on_start

    def look(state):
        begin(state)
        weights.extend(encoder.tower.blocks[1].mlp[0].weight.clone() for encoder in state.model.encoders)

    trainer.phases[1].on_start = look
    trainer.fit()
    assert torch.equal(*weights) and not torch.equal(weights[0], trainer.model.vision.tower.blocks[1].mlp[0].weight)


def test_stages_against_wrong_captions(folder):
    negatives = {"negatives": {"source": "auto"}}
    args = {"objective": "negclip", "options": {"neighbours": 2, "pool": 16}, "grouping": GROUPING, "steps": 6}
    run = train(folder, "negatives-s0", "multistage_clip", "clip-s0", 2, train=negatives, **args)
    steps = [record for record in run.records() if record["kind"] == "step"]
    assert all(record["with_negative"] > 0 for record in steps) and run.done["step"] == 6


def test_a_stage_that_is_stopped_goes_on_to_the_same_result(folder, tmp_path):
    train(tmp_path, "clip-s0", "clip", steps=6, ramp=1)
    run = prepare(tmp_path / "stages-s0", config("multistage_clip", "clip-s0", 3, steps=10, grouping=GROUPING, ramp=1))

    class Broken(Exception):
        pass

    def fail(trainer, result):
        if result.step == 6:
            trainer.checkpoint()
            raise Broken

    trainer = make_trainer(run, progress=False)
    trainer.actions.append(fail)
    with pytest.raises(Broken):
        trainer.fit()
    assert_same(launch(run.path, progress=False), Run.open(folder / "stages-s0"))


def test_what_cannot_be_is_said():
    words = WordTokenizer.fit(["a red circle"])
    dual = build(TOWERS, words)
    staged = build({"kind": "clip_stages", **TOWERS}, words)
    for model, name, args, message in (
        (dual, "multistage_clip", {"steps": 5}, 'needs a CLIP with stages: "model"'),
        (staged, "multistage_clip", {"steps": 2}, "2 steps are too few for 3 stages"),
        (staged, "multistage_clip", {"steps": 9, "blocks": 3}, "encoders.0.tower has 2 blocks.*give 1 to 2"),
        (staged, "multistage_clip", {"steps": 9, "options": {"pool": 3}}, "has no options"),
        (staged, "multistage_clip", {"steps": 9, "objective": "negclip", "options": {"size": 3}}, "size"),
        (dual, "clip", {"steps": 9, "blocks": 3}, "vision.tower has 2 blocks"),
    ):
        with pytest.raises(ValueError, match=message):
            make_phases(Named(name, args), model)
    assert added_parts(TOWERS, {"kind": "clip_stages", **TOWERS}) == ["kind", "stages", "unit", "encoders", "learned"]
    assert added_parts({"kind": "clip_stages", **TOWERS}, TOWERS) == []


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (TOWERS["vision"], ["blocks.0", "blocks.1"]),
        ({"tower": "resnet", "depth": 10, "width": 8}, [f"module.layer{k}.0" for k in (1, 2, 3, 4)]),
    ],
)
def test_the_blocks_of_a_tower_are_found(spec, names):
    assert block_names(vision_tower(spec)) == names
    assert block_names(torch.nn.Linear(1, 1)) == []


def study_of(folder, rows, **more):
    return Study(folder, rows, [0], DATA, SCALES["smoke"], 4, TOWERS, TRAIN, **more)


TUNED = {"method": "clip", "clip": {"blocks": 1}}
START = {"row": "clip", "phase": "contrastive"}


def test_rows_that_start_from_others_wait_for_them(tmp_path):
    rows = {
        "tuned": TUNED | {"start": START},
        "clip": {"method": "clip"},
        "again": TUNED | {"start": START | {"row": "tuned"}},
    }
    study = study_of(tmp_path, rows)
    assert study.rounds == [["clip"], ["tuned"], ["again"]]
    assert study.configuration("again", 0)["start"] == {"run": "../tuned-s0", "phase": "contrastive"}
    assert "start" not in study.configuration("clip", 0)
    for start, message in (
        ({"row": "none", "phase": "x"}, "expected is"),
        ({"row": "tuned", "phase": "x"}, "each other"),
        (3, "from 3;"),
    ):
        with pytest.raises(ValueError, match=message):
            study_of(tmp_path, {"tuned": TUNED | {"start": start}})
    with pytest.raises(ValueError, match="no switch of 'start'"):
        study_of(tmp_path, {"clip": {"method": "clip"}}, switches={"start": START})


@pytest.mark.slow
def test_a_study_trains_what_its_rows_start_from(tmp_path, monkeypatch):
    monkeypatch.setenv("COMPLEARN_TYPECHECK", "")
    rows = {"tuned": TUNED | {"start": START}, "clip": {"method": "clip"}}
    asked = []

    def judge(model, **place):
        asked.append(place["method"])
        return [row(**place, data="trial", split="mean", metric="accuracy", value=0.5, n=2)], {}

    study = study_of(tmp_path, rows)
    report = study.measure(judge, {"n": 1}, device="cpu", at_once=1)
    assert {line["method"] for line in report.rows} == {"clip", "tuned"} and asked == ["clip", "tuned"]
    first, tuned = (Snapshot(study.run(label, 0)).weights() for label in ("clip", "tuned"))
    moved = {name for name in first if not torch.equal(first[name], tuned[name])}
    assert moved and all(name.startswith("vision.tower.blocks.1.") for name in moved)
    # its rows stand in the results; the run that a new row needs is trained again, and not judged again
    shutil.rmtree(tmp_path / "runs")
    study_of(tmp_path, rows | {"again": TUNED | {"start": START, "train": {"lr": 1e-3}}}).measure(
        judge, {"n": 1}, device="cpu", at_once=1
    )
    assert asked == ["clip", "tuned", "again"]


# --- as the released code


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """Runs: a CLIP, and one that goes on from it in two stages as the released code does."""
    folder = tmp_path_factory.mktemp("released")
    train(folder, "clip-s0", "clip", steps=6, ramp=1)
    args = {"steps": 8, "grouping": GROUPING, "blocks": 2, "freezing": "released", "pretrained": True}
    train(folder, "stages-s0", "multistage_clip", "clip-s0", 3, model={"unit": False}, **args)
    return folder


def test_raw_vectors_stand_side_by_side_and_have_length_one_together(released, pairs):
    model = Snapshot(released / "stages-s0").model()
    batch = model.collate(pairs)
    with torch.no_grad():
        images = torch.cat([encoder(batch)[0] for encoder in model.encoders], -1).numpy().astype(float)
        texts = torch.cat([model.language(batch)[0]] * 3, -1).numpy().astype(float)
    naive = np.zeros((len(pairs), len(pairs)))
    for i, image in enumerate(images):
        for t, text in enumerate(texts):
            naive[i, t] = image @ text / np.linalg.norm(image) / np.linalg.norm(text)
    scores = model.similarity(model.encode_images(batch), model.encode_texts(batch)).numpy()
    assert np.allclose(scores, naive, atol=1e-5)
    parts = np.split(images, 3, axis=1)
    lengths = np.stack([np.linalg.norm(part, axis=1) for part in parts])
    assert (lengths.std(0) > 1e-4).all()  # else raw vectors and unit ones would be alike
    mean = torch.stack([F.normalize(torch.from_numpy(part), dim=-1) for part in parts])
    cosines = (mean @ F.normalize(torch.from_numpy(texts[:, : texts.shape[1] // 3]), dim=-1).T).mean(0)
    assert not np.allclose(scores, cosines.numpy(), atol=1e-5)
    assert model.soup().encode_images(batch).values.shape == model.encode_stage(batch, 0).shape


def test_the_released_freezing_trains_the_last_block_what_follows_it_and_the_scale(released):
    start = Snapshot(released / "clip-s0").weights()
    ended = Snapshot(released / "stages-s0").weights()
    for stage in (1, 2):
        moved = {
            name
            for name, value in start.items()
            if name.startswith("vision.")
            and not torch.equal(value, ended[f"encoders.{stage}.{name.removeprefix('vision.')}"])
        }
        expected = {name for name in start if name.startswith(("vision.tower.blocks.1.", "vision.tower.norm_out."))}
        expected |= {name for name in start if name.startswith("vision.head.")}
        assert moved == expected
    assert all(torch.equal(start[name], ended[name]) for name in start if name.startswith("language."))
    weights = {phase: Snapshot(released / "stages-s0", phase=phase).weights() for phase in ("stage-1", "stage-2")}
    scales = {phase: values["logit_scale"] for phase, values in weights.items()}
    assert not torch.equal(scales["stage-1"], start["logit_scale"])
    assert not torch.equal(scales["stage-2"], start["logit_scale"])
    moves = [abs(float(scale - start["logit_scale"])) for scale in scales.values()]
    assert max(moves) < 2 * min(moves)  # stage 2 began at the first scale, not at that of stage 1


def test_a_tower_without_a_norm_behind_its_blocks_cannot_be_freed_so():
    class Bare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.patch_embed = torch.nn.ModuleDict({"proj": torch.nn.Conv2d(3, 4, 2)})
            self.blocks = torch.nn.ModuleList(torch.nn.Linear(9, 9) for _ in range(2))

    with pytest.raises(ValueError, match=r"the tower vision has no norm and no projection behind its blocks"):
        _parts_after_blocks(Bare(), "vision")
    tower = Bare()
    tower.norm = torch.nn.LayerNorm(9)
    assert _parts_after_blocks(tower, "vision") == ("vision.norm.weight", "vision.norm.bias")
