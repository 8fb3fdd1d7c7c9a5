"""The ablation notebook: its rows, and a sweep that is stopped, widened and gone on with; rows and budgets of
methods."""

import json
import re
import shlex
import shutil
import subprocess

import pandas as pd
import pytest
from conftest import ROOT
from notebook_cells import shown_pages
from scipy import stats

from complearn.analysis.runs.averages import AVERAGES
from complearn.core.results import Result, row
from complearn.core.runs import Run
from complearn.evaluation.bench.bench import judge
from complearn.evaluation.bench.monitors import monitor_settings
from complearn.evaluation.bench.worlds import StudyData, world_bench
from complearn.models.registry import build, read_model
from complearn.models.towers.tokenizers import load_tokenizer
from complearn.training.methods.catalogue import METHODS
from complearn.training.methods.iterated import ABLATIONS, ablation_rows, divide_steps
from complearn.training.methods.scales import SCALES
from complearn.training.runs.config import RunConfig
from complearn.training.runs.launch import launch
from complearn.training.runs.measured import comparable
from complearn.training.runs.study import Study, method_rows

NOTEBOOK = ROOT / "nbs" / "experiments" / "ablations.ipynb"
SOURCE = {"name": "generated", "args": SCALES["smoke"].world}


def test_a_sweep_goes_on_and_may_be_widened(tmp_path, experiment):
    rows = {"vision": {"il_clip": {"target": "vision"}}}

    def sweep(rows):
        return experiment("experiments/ablations", tmp_path, sweep=json.dumps(rows)).text

    assert "2 runs of 2 rows and 1 seed: 2 to measure" in sweep(rows)
    first = (tmp_path / "runs" / "il_clip-s0" / "metrics.jsonl").read_bytes()
    (tmp_path / "results.json").unlink()  # as if it had been stopped before the first run was judged
    (tmp_path / "runs" / "vision-s0" / "done.json").unlink()  # and before the second had ended
    assert "3 runs of 3 rows and 1 seed: 3 to measure" in sweep(rows | {"bare clip": {"method": "clip"}})
    assert (tmp_path / "runs" / "il_clip-s0" / "metrics.jsonl").read_bytes() == first
    assert Run.open(tmp_path / "runs" / "vision-s0").config["method"]["args"]["target"] == "vision"
    results = Result.read(tmp_path)
    told = {(line["method"], line["split"]): line for line in results.rows if line["data"] == "average"}
    assert {name for name, _ in told} == {"il_clip", "vision", "bare clip"}
    assert {split for _, split in told} == set(AVERAGES)
    own = {}
    for line in results.rows:  # by hand: one number for each data set, then their mean
        if (
            line["method"] == "vision"
            and line["split"] == "mean"
            and line["data"] not in ("average", "generated/sugarcrepe, seen")
        ):
            own.setdefault(line["data"], {})[line["metric"]] = line["value"]
    pick = [next(of[m] for m in ("accuracy", "image_accuracy", "image_score") if m in of) for of in own.values()]
    assert told["vision", "COMP"]["value"] == pytest.approx(sum(pick) / len(pick)) and len(pick) == 5

    floors = {name: run["facts"].get("untrained") for name, run in results.setting["runs"].items()}
    assert [name for name, cells in floors.items() if cells] == ["il_clip-s0"], "of the row that is the reference"
    trained = Run.open(tmp_path / "runs" / "il_clip-s0")
    fresh = build(read_model(trained.config["model"]), load_tokenizer(trained.tokenizer_file), 0)
    data = StudyData(results.setting["source"], {}, results.setting["asked"]["n"]).at(0)
    fresh.calibrate(fresh.collate(list(data.train[:128])))
    cells = {tuple(cell): value for *cell, value in floors["il_clip-s0"]}
    lines = [line for line in judge(fresh, data.bench, "untrained", 0) if line["value"] is not None]
    assert {(line["data"], line["split"], line["metric"]): line["value"] for line in lines} == pytest.approx(cells)


@pytest.mark.slow
def test_seeds_of_a_row_are_trained_as_a_stack(tmp_path, experiment):
    done = experiment("experiments/ablations", tmp_path, reference="clip", sweep="{}", seeds="[0, 1]", stacked=2)
    assert "2 runs of 1 row and 2 seeds: 2 to measure" in done.text
    first, second = (tmp_path / "runs" / f"clip-s{seed}" for seed in (0, 1))
    assert (first / "log.txt").exists() and not (second / "log.txt").exists()
    assert (first / "done.json").exists() and (second / "done.json").exists()
    assert {line["seed"] for line in Result.read(tmp_path).rows if line["data"] == "average"} == {0, 1}


@pytest.mark.parametrize("cycle", (0.5, 1, 2, 3))
def test_generations_fill_the_budget(cycle):
    lengths = divide_steps(SCALES["full"], 2000, cycle)
    assert (
        lengths["warmup"] + lengths["generations"] * (lengths["distil"] + lengths["interact"]) + lengths["final"]
        == 2000
    )
    assert lengths["distil"] == round(80 * cycle) and lengths["generations"] == max(1, round(3 / cycle))


def study(rows, steps=20, **more):
    scale = SCALES["smoke"]
    return Study("/nowhere", rows, [0], SOURCE, scale, steps, scale.model(), scale.train(steps, 64), **more)


DUAL = ["clip", "codebook_clip", "spectral_clip", "negclip", "negclip_paper", "il_clip", "il_negclip"]


def test_every_method_and_every_named_row_is_a_run():
    for reference in ("il_clip", "il_negclip"):
        rows = study(ablation_rows(list(ABLATIONS), reference))
        for label in rows.table:
            RunConfig.read(rows.configuration(label, 0))
    free = ablation_rows(["continuity"], "il_negclip")["codebook free"]
    assert free == {"method": "il_negclip", "il_negclip": {"freeze_codebook": False}}
    configs = {name: study(method_rows(DUAL)).configuration(name, 0) for name in DUAL}
    assert configs["negclip_paper"]["method"] == {"name": "negclip_paper", "args": {"steps": 30, "ramp": 1}}
    assert {name for name, config in configs.items() if "negatives" in config["train"]} == {
        "negclip",
        "negclip_paper",
        "il_negclip",
    }
    assert {name for name, config in configs.items() if config["model"].get("codebook")} == {
        "codebook_clip",
        "il_clip",
        "il_negclip",
    }
    assert [name for name, config in configs.items() if config["model"].get("spectral")] == ["spectral_clip"]
    assert {name: METHODS[name].budget for name in DUAL if METHODS[name].budget != 1} == {"negclip_paper": 1.5}


def test_a_method_of_few_steps_is_not_asked_about_generations():
    few = study(method_rows(DUAL), steps=5)
    assert few.configuration("clip", 0)["method"] == {"name": "clip", "args": {"steps": 5, "ramp": 1}}
    with pytest.warns(UserWarning, match="5 steps hold 2 of 3 generations"):
        assert few.configuration("il_clip", 0)["method"]["args"]["generations"] == 2
    with pytest.raises(ValueError, match="2 steps are too few for a warm-up and a generation; give at least 3"):
        study(method_rows(DUAL), steps=2).configuration("il_clip", 0)


def test_switches_lie_over_the_method_and_the_setting():
    switches = {
        "il_clip": {"temperature": 0.1, "cycle": 0.5},
        "codebook": {"similarity": "dot"},
        "model": {"text": {"keep_end": False}},
    }
    rows = {"a": {"method": "il_clip", "il_clip": {"temperature": 0.5}, "train": {"lr": 0.1}}, "b": {"method": "clip"}}
    first, second = (study(rows, 2000, switches=switches).configuration(label, 0) for label in rows)
    assert first["method"]["args"]["temperature"] == 0.5
    assert first["method"]["args"]["generations"] == 6
    assert first["train"]["lr"] == 0.1
    assert first["model"]["codebook"] == {"codes": 64, "similarity": "dot"} and "codebook" not in second["model"]
    assert all(config["model"]["text"] == SCALES["smoke"].text | {"keep_end": False} for config in (first, second))


def test_what_is_not_there_is_named():
    with pytest.raises(ValueError, match="no ablation 'tempo'.* there are generation, target.* and the methods .*clip"):
        ablation_rows(["tempo"])
    with pytest.raises(ValueError, match="no method 'clap' .did you mean 'clip'"):
        ablation_rows({"x": {"method": "clap"}})
    with pytest.raises(ValueError, match="row 'x': no switch of 'code' .*there are il_clip, codebook, model, train"):
        study(ablation_rows({"x": {"code": {}}}))
    with pytest.raises(ValueError, match="two rows would share a folder"):
        study({"a b": {"method": "clip"}, "a-b": {"method": "clip"}})


def test_switches_of_a_method_that_is_not_trained_are_refused():
    with pytest.raises(ValueError, match="row 'x': no switch of 'il_clip' .*there are clip, codebook, model, train"):
        study({"x": {"method": "clip", "il_clip": {"temperature": 0.1}}})
    with pytest.raises(ValueError, match="no switch of 'il_clip' .*there are clip, negclip, codebook, model, train"):
        study(method_rows(["clip", "negclip"]), switches={"il_clip": {"temperature": 0.1}})


PHOTOS = sorted((ROOT / "data" / "measured").glob("flickr8k_*.results.json"))


def check_photos(table):
    """The table of averages says of each study on photographs what its rows say."""
    assert PHOTOS
    for file in PHOTOS:
        rows = pd.DataFrame(Result.read(file).rows)
        parts = rows[(rows.method == "clip") & (rows.split == "mean") & (rows.metric == "accuracy")]
        scores = 100 * parts[parts.data.isin(["swaps", "foils:sugarcrepe", "foils:valse"])].groupby("seed").value.mean()
        half = stats.sem(scores) * stats.t.ppf(0.975, len(scores) - 1) if len(scores) > 1 else None
        interval = f" [{scores.mean() - half:.1f}, {scores.mean() + half:.1f}]" if half else ""
        assert f"<td>{scores.mean():.1f}{interval}</td>" in table


@pytest.mark.parametrize("file", PHOTOS, ids=lambda file: file.name.split(".")[0])
def test_the_command_in_the_notebook_goes_on_with_the_study_on_photos(file):
    scale = SCALES["full"]
    setting = Result.read(file).setting
    steps = 400
    vision = {"tower": "tiny", "size": 64, "patch": 8, "width": 64, "depth": 2, "heads": 4}
    frozen = "frozen" in file.name
    switches = {"train": {"words": {"min_count": 3}, "captions_too": True, "preload": True}}
    switches |= {"model": {"stored": True}} if frozen else {}
    model = scale.model({"tower": "efficientnet_lite0", "size": 160} if frozen else vision, {}, "squash")
    rows = ablation_rows(["clip", "codebook_restarts", "il_clip", "negclip", "il_negclip"], "codebook_clip")
    source = setting["source"]  # the photos are not here; what they share with the questions was dropped
    assert source["name"] == "disjoint" and 0 < len(source["args"]["exclude"]) < 100
    study = Study(
        "/nowhere",
        rows,
        setting["seeds"],
        source,
        scale,
        steps,
        model,
        scale.train(steps, scale.batch),
        switches,
        {},
        file,
    )
    assert set(setting["asked"]["judge"]) == {"retrieval", "swaps", "foils:sugarcrepe", "foils:valse", "vsr"}
    study.measured.check(study.common | {"asked": setting["asked"]})
    held = {key: study.measured.holds(study.name(*key), study.configuration(*key)) for key in study.keys}
    assert all(held.values()), f"not recognised: {[key for key, known in held.items() if not known]}"


def test_the_committed_tables_are_those_of_the_measured_study(experiment, tmp_path):
    measured = ROOT / "data" / "measured" / "iterated.results.json"
    run = experiment("experiments/ablations", tmp_path, report_from=str(measured))
    assert run.good and not (tmp_path / "runs").exists()
    shown = shown_pages(ROOT / "nbs" / "experiments" / "ablations.ipynb")
    drawn = shown_pages(tmp_path / "report.ipynb")
    assert len(shown) > 5 and shown == drawn, "`make reports` draws it again"
    check_photos("".join(shown))
    lines = [
        line for line in Result.read(measured).rows if (line["method"], line["data"]) == ("codebook_clip", "average")
    ]
    scores = [100 * line["value"] for line in lines if line["split"] == "COMP"]
    half = stats.sem(scores) * stats.t.ppf(0.975, len(scores) - 1)
    mean = sum(scores) / len(scores)
    assert f"{mean:.1f} [{mean - half:.1f}, {mean + half:.1f}]" in "".join(shown)


def test_the_command_in_the_notebook_goes_on_with_the_measured_study():
    scale = SCALES["full"]
    measured = ROOT / "data" / "measured" / "iterated.results.json"
    world = scale.world | {"shapes": 8, "colours": 8, "relations": ["left of", "above"], "n_train": 30000}
    data = StudyData({"name": "generated", "args": world}, {}, scale.n)
    rows = ablation_rows(["clip", "codebook_clip", "codebook_restarts"])
    switches = {"train": {"captions_too": True, "every": 200, "checkpoint_every": 400, "keep": 6}}

    def monitors(seed):
        return monitor_settings(data.source_of(seed), {}, scale.n_monitor)

    setting = (
        data.source_of,
        scale,
        2000,
        scale.model({}, {}, ""),
        scale.train(2000, scale.batch),
        switches,
        monitors,
        measured,
    )
    seeds = Result.read(measured).setting["seeds"]
    again = Study("/nowhere", rows, [*seeds, max(seeds) + 1], *setting)
    again.measured.check(again.common | {"asked": {"judge": {}, "n": scale.n}})
    found = [again.measured.holds(again.name(*key), again.configuration(*key)) for key in again.keys]
    assert found == [True] * 4 * len(seeds) + [False] * 4


def papermill_commands(target):
    """The notebooks that a target of the Makefile would run, each with its parameters."""
    said = subprocess.run(["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for line in said.splitlines():
        words = shlex.split(line) if " papermill nbs/" in line else []
        if words:
            given = [(words[k + 1], words[k + 2]) for k, word in enumerate(words) if word == "-p"]
            yield words[words.index("papermill") + 1], dict(given)


def test_the_study_on_a_gpu_is_the_confirmatory_one_again():
    again, *others = papermill_commands("gpu-study")
    notebook, given = again
    assert notebook == "nbs/experiments/ablations.ipynb"
    measured = Result.read(ROOT / "data" / "measured" / "confirmatory.results.json")
    assert json.loads(given["seeds"]) == measured.setting["seeds"] == list(range(12, 32))
    assert json.loads(given["switches"]) == measured.setting["switches"]
    assert int(given["steps"]) == measured.setting["steps"] and int(given["stacked"]) == 20
    world = SCALES[given["preset"]].world | json.loads(given["data_args"])
    assert {**measured.setting["source"]["args"], **world} == measured.setting["source"]["args"]
    assert {*json.loads(given["sweep"]), "il_clip"} == set(measured.setting["rows"])
    for notebook, given in [again, *others]:
        cells = json.loads((ROOT / notebook).read_text())["cells"]
        parameters = next("".join(cell["source"]) for cell in cells if "preset: str" in "".join(cell["source"]))
        assert all(re.search(rf"^{name}: ", parameters, re.M) for name in given), (notebook, given)
    newcomers = [given for notebook, given in others if notebook.endswith("learnability.ipynb")]
    assert [(given["preset"], given["teachers"], given["lesson_steps"]) for given in newcomers] == [
        ("full", "last", "800"),
        ("paper", "last", "800"),  # all teachers at the preset's lessons would cost many times the run
    ]


@pytest.fixture
def measured(tmp_path, monkeypatch):
    """What makes a study of small runs, trained in this process; what a run answers; which runs were asked."""
    folder = tmp_path
    asked = []

    def train(runs, steps, on_end, total, **_):
        for run in runs:
            launch(run.path, progress=False)
            on_end(run)

    monkeypatch.setattr("complearn.training.runs.study.run_all", train)

    def answers(model, method, seed, phase, step):
        asked.append((method, seed))
        return [row(method, seed, phase, step, "made up", "mean", "accuracy", 0.5, n=1)], {"seen": seed}

    def make(out_dir="first", seeds=(0, 1), steps=4):
        scale = SCALES["smoke"]
        tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}

        def source(seed):
            return {
                "name": "generated",
                "args": {"preset": "small", "n_train": 32, "size": 16, "seed": seed},
            }

        train = scale.train(steps, 8) | {"every": 0, "device": "cpu"}
        results = folder / "results.json"
        model = scale.model(tower, tower)
        rows = method_rows(["clip"])
        return Study(folder / out_dir, rows, seeds, source, scale, steps, model, train, results=results)

    return make, answers, asked


def test_the_results_file_grows_and_what_stands_there_is_not_measured_again(measured):
    make, answers, asked = measured
    first = make(seeds=[0])
    first.measure(answers, {"n": 1}, at_once=1)
    assert asked == [("clip", 0)] and first.source(0)["args"]["seed"] == 0
    both = make("another folder")  # the first run's folder is not at hand
    measured_rows = both.measure(answers, {"n": 1}, at_once=1).rows
    assert asked == [("clip", 0), ("clip", 1)] and not (both.out_dir / "runs" / "clip-s0").exists()
    assert both.run("clip", 1).config["data"]["args"]["seed"] == 1
    results = Result.read(both.results)
    assert [line["seed"] for line in results.rows if line["data"] == "made up"] == [0, 1]
    assert measured_rows == results.rows
    ends = [line for line in results.rows if line["data"] == "training"]
    assert [(line["seed"], line["metric"]) for line in ends] == [
        (seed, name) for seed in (0, 1) for name in ("loss", "grad_norm")
    ]
    log = both.run("clip", 1).metrics().dropna(subset=["loss"])
    assert ends[2]["value"] == log[log.step > 3.6].loss.mean() and ends[2]["step"] == 4
    assert results.setting["seeds"] == [0, 1]
    records = results.setting["runs"]
    assert {name: entry["facts"] for name, entry in records.items()} == {"clip-s0": {"seen": 0}, "clip-s1": {"seen": 1}}
    assert records["clip-s0"]["budget"]["steps"] == 4 and results.setting["budgets"]["clip"]["steps"] == 4


@pytest.mark.slow
def test_a_deleted_run_is_measured_again_to_the_same_rows(measured):
    """What stands in a results file is made again by the same study, to the last bit."""
    make, _, _ = measured
    bench = world_bench({"preset": "small", "n_train": 32, "size": 16, "seed": 9}, 6)

    def answers(model, **place):
        return (judge(model, bench, **place), {"questions": sorted(bench)})

    before = make().measure(answers, {"n": 6}, at_once=1)
    runs = {name: record for name, record in before.setting["runs"].items() if name != "clip-s1"}
    rows = [line for line in before.rows if line["seed"] != 1]
    assert len(runs) == 1 and 0 < len(rows) < len(before.rows)
    Result(before.setting | {"runs": runs}, rows).write(make().results)
    shutil.rmtree(make().out_dir / "runs" / "clip-s1")
    after = make().measure(answers, {"n": 6}, at_once=1)

    def in_order(lines):
        return sorted(json.dumps(line) for line in lines)

    assert in_order(after.rows) == in_order(before.rows)
    assert any(line["value"] not in (0, 1) for line in after.rows)
    assert after.setting["runs"]["clip-s1"]["facts"] == before.setting["runs"]["clip-s1"]["facts"]


def test_a_study_may_be_asked_again_and_beside_another(measured):
    make, answers, asked = measured
    first = make(seeds=[0])  # both stand before either has measured
    second = make("second", seeds=[1])
    first.measure(answers, {"n": 1}, at_once=1)
    second.measure(answers, {"n": 1}, at_once=1)
    again = first.measure(answers, {"n": 1}, at_once=1)
    assert asked == [("clip", 0), ("clip", 1)]
    assert [line["seed"] for line in again.rows if line["data"] == "made up"] == [0, 1]
    assert again.setting["seeds"] == [0, 1] and list(again.setting["runs"]) == ["clip-s0", "clip-s1"]


def test_a_switch_counts_as_the_setting_that_it_changes():
    def make(train, switches):
        return comparable({"steps": 4, "train": train, "switches": switches, "scale": {"n": 1}})

    by_hand = make({"lr": 0.1}, {"train": {"captions_too": True}})
    assert by_hand == make({"lr": 0.1, "captions_too": True}, {}) and by_hand != make({"lr": 0.1}, {})
    assert by_hand != make({"lr": 0.1, "captions_too": True}, {"codebook": {"share": 0.1}}) and comparable({}) == {}
    assert SCALES["demo"].train(10, 8)["captions_too"] and "captions_too" not in SCALES["demo"].train(10, 8, "flickr")


def test_rows_of_another_setting_or_other_questions_are_not_mixed(measured):
    make, answers, _ = measured
    make(seeds=[0]).measure(answers, {"n": 1}, at_once=1)
    with pytest.raises(
        ValueError, match=r"results.json was measured in another setting: asked.n: 1 there, 2 asked for. Name another"
    ):
        make(seeds=[1]).measure(answers, {"n": 2})
    with pytest.raises(ValueError, match=r"in another setting: steps: 4 there, 8 asked for"):
        make("longer", seeds=[1], steps=8).measure(answers, {"n": 1})
    old = make("old", seeds=[1])
    Result({"steps": 4}, [row("clip", 0, None, 4, "made up", "mean", "accuracy", 0.5)]).write(old.results)
    with pytest.raises(ValueError, match="does not say which runs its rows are of"):
        old.measure(answers, {"n": 1})
