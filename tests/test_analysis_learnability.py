"""Lessons for newcomers: what stays, what is the same for all, and the numbers that are read off."""

import shutil
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from training_runs import DATA, MODEL, TRAIN

from complearn.analysis.claims.judging import Claim, Side
from complearn.analysis.claims.tables import claims_table, read_studies
from complearn.analysis.runs import learnability
from complearn.core.files import read_json, write_json
from complearn.core.results import Result, row, rows_table
from complearn.core.runs import Run, find, folder_name
from complearn.data.images import Transform
from complearn.data.negatives import with_negatives
from complearn.evaluation.bench.monitors import monitor_settings
from complearn.evaluation.statistics import difference_table
from complearn.evaluation.tasks.base import Score
from complearn.evaluation.tasks.choices import Choices
from complearn.training.engine.checkpoints import load_checkpoint
from complearn.training.methods import learner
from complearn.training.methods.learner import _encoding_key, encoded_pairs
from complearn.training.runs.launch import launch, make_trainer, prepare
from complearn.training.runs.lessons import prepare_lesson, teachers_of, teachers_setting
from complearn.training.runs.snapshots import Snapshot, run_data, snapshots_of

IL = {"name": "il_clip", "args": {"warmup": 2, "distil": 2, "interact": 2, "generations": 2, "ramp": 1}}


def parts(**other):
    return {"method": IL, "model": MODEL, "data": DATA, "train": TRAIN, "seed": 3} | other


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    """A short run of two generations."""
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("teacher") / "runs" / "il_clip-s3"
    prepare(path, parts(train=TRAIN | {"checkpoint_every": 3, "keep": 9}))
    return launch(path, progress=False)


def lesson(teacher, path, start, text_seed=7, steps=3, **args):
    method = {"name": "fresh_language", "args": {"steps": steps, "text_seed": text_seed} | args}
    return prepare(path, parts(method=method, start={"run": str(teacher.path)} | start, seed=text_seed))


def test_vision_and_codebook_stay_bit_for_bit(teacher, tmp_path):
    run = launch(lesson(teacher, tmp_path / "one", {"phase": "interact-01"}).path, progress=False)
    before = Snapshot(teacher, "interact-01").model().state_dict()
    after = Snapshot(run).model().state_dict()
    for name, tensor in before.items():
        same = torch.equal(tensor, after[name])
        assert same == (not name.startswith("language.")) or (same and not tensor.is_floating_point()), name
    matched = [record["matched"] for record in run.records() if record["kind"] == "step"]
    assert len(matched) == 3
    choices = 2 * TRAIN["batch_size"]  # of a caption for each picture, and of a picture for each caption
    for share in matched:
        assert 0 <= share <= 1 and choices * share == pytest.approx(round(choices * share), abs=1e-4)


def test_the_same_newcomer_for_every_generation(teacher, tmp_path):
    starts = [{"phase": "interact-01"}, {"phase": "interact-02"}, {"step": 3}]
    made = [lesson(teacher, tmp_path / str(i), start) for i, start in enumerate(starts)]
    firsts = []
    for run in made:
        trainer = make_trainer(run, progress=False)
        trainer.begin_or_resume()
        firsts.append(load_checkpoint(run.checkpoints()[-1])[0]["model"])
    language = [name for name in firsts[0] if name.startswith("language.")]
    assert language and all(torch.equal(firsts[0][name], other[name]) for other in firsts[1:] for name in language)
    assert not torch.equal(firsts[0]["codebook.codes"], firsts[1]["codebook.codes"])
    other = lesson(teacher, tmp_path / "other", starts[0], text_seed=8)
    make_trainer(other, progress=False).begin_or_resume()
    begun = load_checkpoint(other.checkpoints()[-1])[0]["model"]
    assert not torch.equal(begun["language.head.1.weight"], firsts[0]["language.head.1.weight"])
    assert torch.equal(begun["codebook.codes"], firsts[0]["codebook.codes"])


def test_the_logit_scale_learns_only_when_asked(teacher, tmp_path):
    at = Snapshot(teacher, "interact-01").model().logit_scale
    for asked in (False, True):
        run = launch(lesson(teacher, tmp_path / str(asked), {"phase": "interact-01"}, scale=asked).path, progress=False)
        assert torch.equal(Snapshot(run).model().logit_scale, at) != asked


def test_a_start_may_be_relative_and_snapshots_are_listed(teacher, tmp_path):
    assert [(snapshot.name, snapshot.step) for snapshot in snapshots_of(teacher)] == [
        ("warmup", 2), ("step-3", 3), ("distil-01", 4), ("interact-01", 6), ("distil-02", 8), ("step-9", 9),
        ("interact-02", 10)
    ]  # fmt: skip
    assert (teacher.method, teacher.seed) == ("il_clip", 3)
    path = teacher.path.parents[1] / "lessons" / "one"
    method = {"name": "fresh_language", "args": {"steps": 2}}
    run = prepare(path, parts(method=method, start={"run": "../../runs/il_clip-s3", "step": 9}))
    assert launch(run.path, progress=False).done["step"] == 2
    step = Snapshot(teacher, step=9).model().state_dict()
    assert torch.equal(step["codebook.codes"], Snapshot(run).model().state_dict()["codebook.codes"])


def test_a_wrong_start_is_an_error(teacher, tmp_path):
    def fails(match, kind=ValueError, **change):
        config = parts(
            method={"name": "fresh_language", "args": {"steps": 2}},
            start={"run": str(teacher.path), "phase": "interact-01"},
        )
        path = tmp_path / f"wrong-{len(list(tmp_path.iterdir()))}"
        with pytest.raises(kind, match=match):
            launch(prepare(path, config | change).path, progress=False)

    fails("no such folder", FileNotFoundError, start={"run": str(tmp_path / "nowhere"), "phase": "interact-01"})
    fails(
        r"has not ended phase 'interact-09'; ended are: warmup, distil-01",
        start={"run": str(teacher.path), "phase": "interact-09"},
    )
    fails(r"keeps no checkpoint of step 5; kept are: .*3", start={"run": str(teacher.path), "step": 5})
    fails("give a phase .* or a step", start={"run": str(teacher.path), "phase": 1, "step": 3})
    fails("no configuration.start key .folder.; there are run, phase, step, weights, saved", start={"folder": "x"})
    fails(r"whose model is another: codebook.codes: 24 there, 30 asked for", model=MODEL | {"codebook": {"codes": 30}})
    words = read_json(teacher.path / "tokenizer.json")
    run = prepare(
        tmp_path / "words",
        parts(method={"name": "fresh_language", "args": {"steps": 2}}, start={"run": str(teacher.path), "phase": 0}),
    )
    write_json(run.path / "tokenizer.json", {**words, "context": 5})
    with pytest.raises(ValueError, match="different tokenizers"):
        launch(run.path, progress=False)


def test_a_damaged_start_names_the_file(teacher, tmp_path):
    copy = shutil.copytree(teacher.path, tmp_path / "copy-s3")
    (copy / "phases" / "00-warmup.safetensors").write_bytes(teacher.weights_file("warmup").read_bytes()[:200])
    run = prepare(
        tmp_path / "lesson",
        parts(method={"name": "fresh_language", "args": {"steps": 2}}, start={"run": str(copy), "phase": 0}),
    )
    with pytest.raises(ValueError, match="00-warmup.safetensors is damaged"):
        launch(run.path, progress=False)


def test_a_lesson_belongs_to_the_weights_that_taught_it(teacher, tmp_path):
    """Also where the teacher's folder and phase have kept their names, and where the lesson has ended."""
    copy = shutil.copytree(teacher.path, tmp_path / "runs" / "il_clip-s3")
    arguments = {"folder": tmp_path / "lessons", "text_seed": 7, "steps": 2}
    taught = prepare_lesson(Snapshot(copy, "interact-01"), **arguments)
    assert taught.run.config["train"]["captions_too"] and taught.place == {
        "method": "il_clip",
        "seed": 3,
        "phase": "interact-01",
        "step": 6,
    }
    launch(taught.run.path, progress=False)
    assert prepare_lesson(Snapshot(copy, "interact-01"), **arguments).run.done["step"] == 2
    other = Snapshot(copy, "interact-02")
    shutil.copy(other.file, copy / "phases" / "02-interact-01.safetensors")
    sums = (copy / "phases" / "SHA256SUMS").read_text()
    (copy / "phases" / "SHA256SUMS").write_text(
        sums.replace(Snapshot(copy, "interact-01").checksums[0], other.checksums[0])
    )
    with pytest.raises(FileExistsError, match="newcomer-7 holds another run: start.weights: .* there, .* asked for"):
        prepare_lesson(Snapshot(copy, "interact-01"), **arguments)
    stated = {"phase": "interact-01", "weights": taught.run.config["start"]["weights"]}
    with pytest.raises(
        ValueError, match=r"late was prepared for other weights than .*02-interact-01.safetensors holds by now"
    ):
        launch(lesson(Run.open(copy), tmp_path / "late", stated).path, progress=False)


def test_teachers_of_equal_age(teacher, tmp_path):
    method = {"name": "codebook_clip", "args": {"steps": 10, "ramp": 1}}
    run = prepare(tmp_path / "codebook_clip-s3", parts(method=method, train=TRAIN | {"checkpoint_every": 2, "keep": 9}))
    launch(run.path, progress=False)

    def names(*which):
        return [(t.run.method, t.name) for t in teachers_of([run, teacher], *which)]

    generations = [("il_clip", "interact-01"), ("il_clip", "interact-02")]
    assert names() == [("codebook_clip", "step-6"), ("codebook_clip", "contrastive"), *generations]
    assert names("last") == [("codebook_clip", "contrastive"), ("il_clip", "interact-02")]
    assert names(["step-6", "interact-01"]) == [("codebook_clip", "step-6"), ("il_clip", "interact-01")]
    assert [t.name for t in teachers_of([run])] == ["step-2", "step-4", "step-6", "step-8", "contrastive"]
    with pytest.raises(ValueError, match="out of contrastive, interact-01, interact-02, step-6; not .'interact-09'"):
        names(["interact-09"])


def test_a_claim_reads_newcomers_of_every_variant(tmp_path):
    """Rows bear the label of the study's row, and the setting says what varies in it."""
    labels = {"il_clip": {}, "partial reset": {"reset": "partial"}, "codebook_clip": None}
    cell = ("newcomers: average", "COMP", "accuracy")
    for label, switches in labels.items():
        method = (
            {"name": "codebook_clip", "args": {"steps": 6}}
            if switches is None
            else IL | {"args": IL["args"] | switches}
        )
        watch = {
            name: entry | {"args": entry["args"] | {"method": label}}
            for name, entry in monitor_settings(DATA, {}, 5).items()
        }
        prepare(tmp_path / "runs" / f"{folder_name(label)}-s3", parts(method=method, evaluate=watch))
    runs = find(tmp_path / "runs")
    setting = teachers_setting(runs)
    assert setting["rows"]["partial reset"] == {"method": "il_clip", "il_clip": {"reset": "partial"}}

    def score(label, seed):
        return {"il_clip": 0.6, "partial reset": 0.5}.get(label, 0.55) + 0.001 * (seed * ord(label[0]) % 5)

    rows = [row(run.method, s, "interact-02", 6, *cell, score(run.method, s)) for run in runs for s in range(4)]
    Result(setting, rows).write(tmp_path)
    claim = Claim("newcomers learn more", "nowhere", Side("il_clip"), Side("codebook_clip"), (cell,), variants=True)
    lines = claims_table([claim], read_studies([tmp_path])).set_index("compared")
    assert lines.verdict.to_dict() == {
        "il_clip - codebook_clip": "holds",
        "partial reset - codebook_clip": "opposite",
    }


def test_a_newcomer_is_judged_once(teacher, tmp_path):
    taught = prepare_lesson(Snapshot(teacher, "interact-02"), tmp_path, text_seed=7, steps=2)
    launch(taught.run.path, progress=False)
    calls = []

    class Asked(Choices):
        def run(self, scorer, **options):
            calls.append(scorer.logit_scale.item())
            return [Score("mean", "accuracy", 0.25 * len(calls), n=4)]

    def bench():
        return {"a": Asked([]), "b": Asked([]), "c, seen": Asked([])}

    first = learnability.newcomer_rows(taught, bench, {"n": 4})
    values = {line["data"]: line["value"] for line in first}
    assert values == {
        "newcomer 7: a": 0.25,
        "newcomer 7: b": 0.5,
        "newcomer 7: c, seen": 0.75,
        "newcomer 7: average": 0.375,
    }
    assert {(line["method"], line["seed"], line["phase"], line["step"]) for line in first} == {
        ("il_clip", 3, "interact-02", 10)
    }
    assert learnability.newcomer_rows(taught, bench, {"n": 4}) == first and len(calls) == 3
    assert learnability.newcomer_rows(taught, bench, {"n": 5}) != first and len(calls) == 6
    assert len(learnability.lesson(taught.run.metrics())) == 2  # the scores in the log are no steps


# --- the numbers


def test_area_and_threshold_against_closed_forms():
    steps = np.arange(1, 201, 2)
    assert learnability.area(steps, np.full(100, 0.3)) == pytest.approx(0.3)
    square = ((steps - 1) / 198) ** 2
    assert learnability.area(steps, square) == pytest.approx(1 / 3, abs=1e-3)
    assert learnability.area([5], [0.4]) == 0.4
    assert learnability.area([0, 1, 4], [0.0, 1.0, 1.0]) == pytest.approx((0.5 + 3) / 4)  # uneven steps
    assert learnability.steps_to([1, 5, 9], [0.1, 0.5, 0.9], 0.5) == (5.0, False)
    assert learnability.steps_to([1, 5, 9], [0.1, 0.5, 0.9], 0.91) == (9.0, True)
    with pytest.raises(ValueError, match="rising steps"):
        learnability.area([3, 2], [0.0, 1.0])


def made(speed, seed, teacher, at, method="il_clip"):
    step = np.arange(1, 41)
    log = pd.DataFrame({"kind": "step", "step": step, "matched": np.minimum(1, speed * step / 40) * (1 - 0.2 * seed)})
    return {"method": method, "seed": 0, "teacher": teacher, "at": at, "text_seed": seed, "log": log}


def test_rows_differences_and_censoring():
    lessons = pd.DataFrame(
        [made(speed, seed, teacher, at) for seed in range(3) for teacher, at, speed in (("a", 10, 0.5), ("b", 20, 1.0))]
    )
    rows = rows_table(learnability.lesson_rows(lessons, 0.6))
    needed = rows[rows.metric == "steps_to_0.6"].set_index(["phase", "split"]).value
    assert needed["b", "newcomer 0"] == 24 and pd.isna(needed["a", "newcomer 0"])
    assert rows[(rows.phase == "a") & (rows.metric == "learn_censored")].value.eq(1).all()
    table = learnability.teachers_table(rows).set_index("phase")
    gains = rows[rows.metric == "learn_gain"].set_index(["phase", "split"]).value
    assert gains["b", "newcomer 0"] == pytest.approx(8 / 40)
    assert gains["a", "newcomer 1"] == pytest.approx(0.5 * 0.8 * 8 / 40)
    assert table.reached["a"] == 0
    assert np.isinf(table.steps_median["a"])
    assert table.reached["b"] == 3
    assert table.steps_median["b"] == 30
    area = rows[(rows.metric == "learn_area") & (rows.phase == "b")].value.astype(float)
    assert table["area"]["b"] == pytest.approx(area.mean()) and table.low["b"] < area.mean() < table.high["b"]
    found = learnability.teacher_difference(rows, ("il_clip", "b"), ("il_clip", "a"))
    own = area.to_numpy() - rows[(rows.metric == "learn_area") & (rows.phase == "a")].value.astype(float).to_numpy()
    assert found["n"] == 1 and found["low"] is None and found["mean"] == pytest.approx(own.mean()), (
        "one model, however many newcomers"
    )
    shown = difference_table(pd.DataFrame([found])).iloc[0]
    assert shown.compared == "il_clip b minus il_clip a" and shown.p_sign == shown.p_floor == "", (
        "one seed has no p-value"
    )
    with pytest.raises(ValueError, match="no newcomer was taught by both"):
        learnability.teacher_difference(rows, ("il_clip", "c"), ("il_clip", "a"))
    figure = learnability.lessons_figure(lessons, threshold=0.6)
    assert {trace.name for trace in figure.data if trace.name} == {"a", "b"}


def test_newcomers_of_one_teacher_are_no_independent_evidence():
    """No difference between the methods, but luck of their own for teachers: intervals must leave out zero in about 5 %
    of trials."""
    order = np.random.default_rng(0)
    wrong = 0
    for _ in range(200):
        luck = {(m, s): 0.05 * order.normal() for m in ("x", "y") for s in range(3)}
        rows = pd.DataFrame(
            {
                "method": m,
                "seed": s,
                "phase": "end",
                "split": f"newcomer {k}",
                "metric": "learn_area",
                "value": luck[m, s] + 0.005 * order.normal(),
            }
            for m in ("x", "y")
            for s in range(3)
            for k in range(5)
        )
        found = learnability.teacher_difference(rows, ("x", "end"), ("y", "end"))
        wrong += not found["low"] <= 0 <= found["high"]
    assert wrong / 200 < 0.12


def test_newcomers_are_averaged_before_seeds():
    about = [
        (m, s, at, k)
        for m in ("x", "y", "z")
        for s in range(3)
        for at in (10, 20)
        for k in (0, 1)
        if (m, at) != ("z", 10)
    ]

    def score(m, s, k):
        return 0.5 + 0.1 * s + 0.02 * k + {"x": 0.0, "y": 0.05, "z": 0.1}[m]

    rows = [
        row(m, s, f"end {at}", at, f"newcomer {k}: average", "COMP", "accuracy", score(m, s, k))
        for m, s, at, k in about
    ]
    rows += [row(m, s, f"end {at}", at, "w", f"newcomer {k}", "learn_gain", 0.02 * k) for m, s, at, k in about]
    means = learnability.newcomer_means(rows[: len(rows) // 2])
    assert len(means) == 15 and all(line["n"] == 2 and line["low"] < line["value"] < line["high"] for line in means)
    table = learnability.newcomers_table(rows_table(rows)).set_index(["method", "step"])
    assert table.COMP["y", 20].startswith("66.0 [") and set(table.settled) == {"3 of 6"} and set(table.seeds) == {3}
    lines = learnability.newcomer_differences(rows_table(means), ["x", "y"]).set_index(["better", "than", "split"])
    assert set(lines.n) == {3} and lines["mean"].round(9).to_dict() == {
        ("y", "x", "COMP at step 10"): 0.05, ("y", "x", "COMP at step 20"): 0.05,
        ("z", "x", "COMP at step 20"): 0.1, ("z", "y", "COMP at step 20"): 0.05,
    }  # fmt: skip
    assert (
        learnability.newcomer_differences(rows_table(means), ["none"]).empty and learnability.newcomer_means([]) == []
    )


def test_lessons_that_move_still_are_left_out_and_how_they_went_is_compared():
    about = [(m, s, k) for m in ("x", "y", "z") for s in range(3) for k in (0, 1)]
    table = [
        row(m, s, "end", 20, "w", f"newcomer {k}", "learn_gain", 0.02 if (m, s, k) == ("x", 1, 0) else 0.0)
        for m, s, k in about
    ]

    def score(m, s):
        return 0.5 + 0.1 * s + 0.05 * (m == "y")

    table += [row(m, s, "end", 20, "newcomers: average", "COMP", "accuracy", score(m, s)) for m, s, k in about if not k]
    settled = learnability.settled_rows(rows_table(table))
    assert len(settled) == len(table) - 3
    assert not ((settled.method == "x") & (settled.seed == 1)).any()  # one of two newcomers moves
    lines = learnability.newcomer_differences(settled, ["x"]).set_index(["better", "than"])
    assert lines.n.to_dict() == {("y", "x"): 2, ("z", "x"): 2}
    assert lines["mean"].round(9).to_dict() == {("y", "x"): 0.05, ("z", "x"): 0.0}
    steps = {"x": 40, "y": 30}  # z never reaches it
    table += [
        row(m, s, "end", 20, "w", f"newcomer {k}", "steps_to_0.2", steps[m] + s + 2 * k if m in steps else None)
        for m, s, k in about
    ]
    table += [row(m, s, "end", 20, "w", f"newcomer {k}", "learn_last", 0.5 + 0.1 * (m == "z")) for m, s, k in about]
    lines = (
        learnability.lesson_differences(rows_table(table), ["x", "y"])
        .set_index(["metric", "better", "than"])["mean"]
        .round(9)
    )
    assert lines.to_dict() == {
        ("learn_last", "y end", "x end"): 0.0, ("learn_last", "z end", "x end"): 0.1,
        ("learn_last", "z end", "y end"): 0.1,
        ("steps_to_0.2", "y end", "x end"): -10.0,
    }  # fmt: skip
    assert learnability.lesson_differences(rows_table(table), ["none"]).empty


def test_lessons_that_do_not_reach_the_threshold_are_counted():
    """A method that reaches it with an earlier teacher alone was asked for lessons that do not exist."""
    steps = {("x", 20): (30, 40, None), ("y", 20): (20, None, None), ("z", 10): (5, 5, 5), ("z", 20): (None,) * 3}
    table = [
        row(method, seed, f"g{at}", at, "w", "newcomer 0", metric, value)
        for (method, at), values in steps.items()
        for seed, reached in enumerate(values)
        for metric, value in (("steps_to_0.2", reached), ("learn_last", 0.5))
    ]
    lines = learnability.lesson_differences(rows_table(table), ["x"]).set_index(["metric", "better"])
    assert set(lines.index) == {("learn_last", "y g20"), ("learn_last", "z g20"), ("steps_to_0.2", "y g20")}
    found = lines.loc[("steps_to_0.2", "y g20")]
    assert (found["mean"], found.n, found.better_open, found.than_open) == (-10, 1, 2, 1)


def test_schooling_is_what_the_own_agent_adds_to_the_newcomer():
    """Paired by model and step: a newcomer of an earlier step, or of a model that was not judged, counts for
    nothing."""
    own = [row(m, s, "end", 20, "average", "COMP", "accuracy", 0.7 + 0.01 * s) for m in ("x", "y") for s in range(3)]
    own += [row("x", s, "end", 20, "generated/w", "COMP", "accuracy", 0.1) for s in range(3)]
    taught = [("x", s, 20, 0.6) for s in range(3)] + [("y", s, 20, 0.65 + 0.01 * s) for s in range(2)]
    taught += [("x", 0, 10, 0.1), ("z", 0, 20, 0.9)]
    means = [row(m, s, "end", at, "newcomers: average", "COMP", "accuracy", score) for m, s, at, score in taught]
    table = learnability.schooling_rows(rows_table(own), rows_table(means))
    assert len(table) == 3 * 5 and set(table.step) == {20} and set(table.method) == {"x", "y"}
    values = table.set_index(["data", "method", "seed"]).value.round(9)
    assert values["last agent minus newcomer"].to_dict() == {
        ("x", 0): 0.1,
        ("x", 1): 0.11,
        ("x", 2): 0.12,
        ("y", 0): 0.05,
        ("y", 1): 0.05,
    }
    assert values["newcomer", "y", 1] == 0.66 and values["last agent", "y", 1] == 0.71


def test_a_window_looks_back_only_and_a_foreign_log_is_refused():
    log = pd.DataFrame({"kind": "step", "step": [1, 2, 3], "matched": [0.0, 1.0, 0.5]})
    assert list(learnability.lesson(log, 2).value) == [0.0, 0.5, 0.75]
    with pytest.raises(ValueError, match="no column 'matched'"):
        learnability.lesson(log.drop(columns="matched"))


def test_encoded_images_teach_the_same(teacher, tmp_path, monkeypatch):
    """With vectors instead of images the newcomer's weights are the same but for rounding, and its lessons read no
    image."""
    end = Snapshot(teacher, "interact-02")
    ended = {}
    for encoded in (False, True):
        taught = prepare_lesson(end, tmp_path / str(encoded), text_seed=7, steps=6, ramp=1, encoded=encoded)
        ended[encoded] = Snapshot(launch(taught.run.path, progress=False)).model().state_dict()
    for name, tensor in ended[False].items():
        assert torch.allclose(tensor.float(), ended[True][name].float(), atol=2e-5), name
    assert not torch.equal(ended[False]["language.head.1.weight"], end.model().state_dict()["language.head.1.weight"])

    def refuse(*images, **options):
        raise AssertionError("images were read")

    monkeypatch.setattr(learner, "encode_set", refuse)
    monkeypatch.setattr(Transform, "__call__", refuse)
    taught = prepare_lesson(end, tmp_path / "again", text_seed=8, steps=2)
    assert launch(taught.run.path, progress=False).done["step"] == 2
    plain = prepare_lesson(end, tmp_path / "plain", text_seed=8, steps=2, encoded=False)
    with pytest.raises(AssertionError, match="images were read"):
        launch(plain.run.path, progress=False)


def test_vectors_of_a_world_are_those_of_the_code_that_draws_it(teacher, monkeypatch):
    model = Snapshot(teacher, "interact-01").model()
    pairs = run_data(teacher)
    key = _encoding_key(model, pairs)
    monkeypatch.setattr(learner, "code_version", lambda: "another")
    assert _encoding_key(model, pairs) != key


def test_what_varies_is_not_encoded(teacher):
    model = Snapshot(teacher, "interact-01").model()
    pairs = run_data(teacher)
    assert encoded_pairs(model, pairs, model.collate)[1].shape == (len(pairs), model.vision.width)
    for collate in (
        replace(model.collate, transform=replace(model.collate.transform, mirror=True)),
        with_negatives(model.collate, "swap"),
    ):
        assert encoded_pairs(model, pairs, collate) is None
    model.config = replace(model.config, memory=0)
    assert encoded_pairs(model, pairs, model.collate) is None
    other = Snapshot(teacher, "interact-02").model()
    assert _encoding_key(other, pairs) != _encoding_key(model, pairs)
    model.respawn("language", 5)
    assert _encoding_key(model, pairs) == _encoding_key(Snapshot(teacher, "interact-01").model(), pairs), (
        "newcomers share the vectors"
    )


def test_the_experiment_scores_a_newcomer_of_every_teacher(smoke):
    run = smoke("experiments/learnability")
    assert run.good
    rows = rows_table(Result.read(run.folder).rows)
    averaged = (
        rows[(rows.data == "newcomers: average") & (rows.split == "COMP")].set_index(["method", "phase"]).step.to_dict()
    )
    assert averaged == {
        ("codebook_clip", "contrastive"): 20, ("il_clip", "interact-01"): 8, ("il_clip", "interact-02"): 12,
        ("il_clip", "interact-03"): 20,
    }  # fmt: skip
    assert {"newcomer 0: generated/sugarcrepe", "newcomer 0: generated/pairs", "newcomers: generated/objects"} <= set(
        rows.data
    )
    assert set(rows[rows.metric == "learn_gain"].split) == {"newcomer 0"}
    assert len(list((run.folder / "lessons").iterdir())) == 4
    assert (run.folder / "figures" / "newcomers_comp.html").exists()
