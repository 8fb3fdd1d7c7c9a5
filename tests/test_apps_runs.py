"""The runs' page: what is found below a folder, what is remembered, how runs are stopped, resumed and deleted, and the
page in a browser."""

import io
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from browser import attach, check_requests, open_chromium, screenshot
from test_apps_editing import asked, refusal

import complearn
from complearn.analysis.pictures.galleries import own_wins
from complearn.analysis.runs.averages import with_averages
from complearn.analysis.runs.inventory import (
    _READERS,
    Inventory,
    _source_name,
    entries_table,
    last_rows,
    main_scores,
    metric_title,
    split_title,
    study_scores,
)
from complearn.analysis.runs.logs import RunLog, _sampled, drawn_curves, smoothed, thinned
from complearn.apps.addresses import read_address
from complearn.apps.codes.controller import codes
from complearn.apps.codes.messages import CodesAddress
from complearn.apps.edits.messages import EditsAddress
from complearn.apps.map.messages import MapAddress
from complearn.apps.runs.answers import number_of_questions, onward_lines
from complearn.apps.runs.controller import RunsController, runs
from complearn.apps.runs.memory import FILE, Memory, Note
from complearn.apps.runs.messages import _setting_title, difference_message, questions_text
from complearn.apps.search.messages import SearchAddress
from complearn.core.config import RequestError
from complearn.core.own_files import ForeignFile
from complearn.core.results import Result, row
from complearn.core.runs import Run, differing_values, runs_table, training_process
from complearn.data.benchmarks.items import Choice
from complearn.data.readers.photo_folders import read_photos
from complearn.evaluation.bench.judging import ask_models, judged_models, new_questions, own_questions
from complearn.language.edits.base import operator_title
from complearn.training.runs.control import delete_run, resume_run, stop_run
from complearn.training.runs.launch import launch, prepare

HOLDER = """
import fcntl, os, signal, sys, time
lock = open(sys.argv[1], "w")
fcntl.flock(lock, fcntl.LOCK_EX)
lock.write(str(os.getpid()))
lock.flush()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
print("held", flush=True)
time.sleep(60)
"""


def make_run(folder, method="clip", seed=0, steps=40, done=True, lr=0.001, model=None):
    """A run with a log, without any training."""
    config = {"method": {"name": method, "args": {"steps": steps}}, "train": {"lr": lr}, "seed": seed}
    run = Run.create(
        folder, config | {"data": {"name": "folder", "args": {"folder": "data/photos"}}, "model": model or {}}
    )
    for step in range(1, steps + 1):
        loss = 4 - 2 * step / steps + seed / 10
        run.log(
            {"kind": "step", "step": step, "phase": "contrastive", "loss": loss, "lr": lr, "contrastive_loss": loss}
        )
        if step % 20 == 0:
            about = {"seed": seed, "phase": None, "step": None, "metric": "accuracy", "n": 50}
            rows = [
                row(method, data="monitor", split=split, value=0.5 + step / 200, **about)
                for split in ("swap_att", "swap_obj")
            ]
            run.log({"kind": "evaluate", "name": "monitor", "rows": rows, "step": step, "phase": "contrastive"})
    if done:
        run.finish({"step": steps})
    return run


def study_rows(methods, seeds):
    about = {"phase": "contrastive", "step": 40, "metric": "accuracy"}
    rows = []
    for method in methods:
        for seed in seeds:
            value = 0.5 + 0.1 * methods.index(method) + 0.01 * seed
            rows.append(row(method, seed, data="average", split="BIND", value=value, n=100, **about))
            spread = {"low": value - 0.05, "high": value + 0.05, "n": 80}
            rows.append(row(method, seed, data="sugarcrepe", split="swap_att", value=value, **spread, **about))
    return rows


@pytest.fixture
def folder(tmp_path):
    """Two methods with two seeds each and their study, a run that was stopped, a damaged one, and one thing of each
    other kind."""
    root = tmp_path / "results"
    for method in ("clip", "negclip"):
        for seed in range(2):
            make_run(root / "study" / "runs" / f"{method}-s{seed}", method, seed, lr=0.001 * (seed + 1))
    setting = {"source": {"name": "folder", "args": {"folder": "photos"}}, "preset": "smoke"}
    Result(setting, study_rows(["clip", "negclip"], [0, 1])).write(root / "study")
    make_run(root / "stopped-s0", "clip", 0, 30, done=False)
    Run.create(root / "waiting-s0", {"method": {"name": "clip"}, "seed": 0})
    make_run(root / "broken-s0")
    (root / "broken-s0" / "config.json").write_text('{"method": {"na')
    model = root / "tuned"
    model.mkdir()
    (model / "open_clip_config.json").write_text("{}")
    (root / "graph").mkdir()
    (root / "graph" / "graph.json").write_text("{}")
    edit = {"caption": "a dog", "negatives": []}
    (root / "negatives.jsonl").write_text(json.dumps(edit) + "\n" + json.dumps(edit) + "\n")
    (root / "photos").mkdir()
    (root / "photos" / "1.png").write_bytes(b"")
    (root / "study" / "figures").mkdir()
    (root / "study" / "figures" / "loss.png").write_bytes(b"")
    return root


def test_the_page_needs_no_library_that_takes_seconds_to_import():
    heavy = ("torch", "scipy.stats", "sklearn")
    code = f"import sys, complearn.apps.runs.controller; print(*[name for name in {heavy} if name in sys.modules])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env)
    assert found.stdout.split() == []


# --- what is found


def test_everything_below_a_folder_is_found_once(folder):
    table = entries_table(Inventory(folder).look()).set_index("run")
    kinds = table.kind.to_dict()
    runs_found = {f"study/runs/{method}-s{seed}" for method in ("clip", "negclip") for seed in range(2)}
    runs_found |= {"stopped-s0", "waiting-s0", "broken-s0"}
    assert {name for name, kind in kinds.items() if kind == "run"} == runs_found
    others = {name: kind for name, kind in kinds.items() if kind != "run"}
    assert others == {
        "study/results.json": "study", "tuned": "model", "graph": "concept graph", "negatives.jsonl": "edits",
        "photos": "gallery",
    }  # fmt: skip
    states = {"stopped-s0": "stopped", "waiting-s0": "waiting", "broken-s0": "damaged", "study/runs/clip-s0": "done"}
    assert {name: table.state[name] for name in states} == states
    assert "config.json cannot be read" in table.problem["broken-s0"]
    assert table.step["stopped-s0"] == 30 and table.steps["stopped-s0"] == 30
    assert table.data["negatives.jsonl"] == "2 captions" and table.data["study/runs/clip-s0"] == "folder photos"


def test_a_run_has_the_scores_of_its_study_or_else_of_its_log(folder):
    table = entries_table(Inventory(folder).look()).set_index("run")
    assert table.scores["study/runs/negclip-s1"] == {"BIND": pytest.approx(0.61)}
    assert table.scores["stopped-s0"] == {"exchange attributes": 0.6, "exchange objects": 0.6}
    assert table.scores["waiting-s0"] == {}
    assert table.scores["study/results.json"] == {
        "clip BIND": pytest.approx(0.505),
        "negclip BIND": pytest.approx(0.605),
    }
    rows = [row("clip", 0, None, step, "world", "mean", "r@1", step / 10) for step in (1, 3, 2)]
    assert [line["value"] for line in last_rows(rows)] == [0.3] and main_scores(rows[:1]) == [("world R@1", 0.1)]


def test_the_states_agree_with_those_of_the_table_in_python(folder):
    words = {
        "done": "done",
        "stopped": "stopped",
        "not started": "waiting",
        "damaged": "damaged",
        "in training": "trains",
    }
    table = entries_table(Inventory(folder).look())
    ours = table[table.kind == "run"].set_index("run").state.to_dict()
    assert ours == {line.run: words[line.state] for line in runs_table(folder).itertuples()}


def test_a_damaged_line_in_the_middle_of_a_log_is_said_with_its_number(folder):
    log = folder / "study" / "runs" / "clip-s0" / "metrics.jsonl"
    lines = log.read_bytes().split(b"\n")
    lines[3] = lines[3][:20] + b"\0" * 10
    log.write_bytes(b"\n".join(lines))
    table = entries_table(Inventory(folder).look()).set_index("run")
    assert (
        table.state["study/runs/clip-s0"] == "damaged"
        and "line 4 is not a JSON object" in table.problem["study/runs/clip-s0"]
    )


def test_damaged_results_and_half_a_file_of_edits_say_so(folder):
    (folder / "study" / "results.json").write_text('{"schema": 99}')
    (folder / "negatives.jsonl").write_text('{"caption": "a dog", "negatives": []}\n{"capt')
    table = entries_table(Inventory(folder).look()).set_index("run")
    assert "has not schema" in table.problem["study/results.json"]
    assert "ends in the middle of a line" in table.problem["negatives.jsonl"]


def test_links_are_not_followed(folder, tmp_path):
    make_run(tmp_path / "elsewhere" / "secret-s0")
    (folder / "link").symlink_to(tmp_path / "elsewhere")
    (folder / "other.jsonl").symlink_to(folder / "negatives.jsonl")
    names = {entry.name for entry in Inventory(folder).look()}
    assert not [name for name in names if "secret" in name or "other" in name]


def test_a_second_look_reads_only_what_has_changed(folder, monkeypatch):
    inventory = Inventory(folder)
    first = inventory.look()
    read = []
    opened = Run.__init__
    monkeypatch.setattr(
        Run, "__init__", lambda self, path, **options: read.append(path) or opened(self, path, **options)
    )
    assert inventory.look() == first
    assert {os.path.basename(path) for path in read} == {"broken-s0"}, "which may be mended in any of its files"
    read.clear()
    Run(folder / "stopped-s0").log({"kind": "step", "step": 31, "phase": "contrastive", "loss": 1.0})
    read.clear()
    changed = {entry.name: entry for entry in inventory.look()}["stopped-s0"]
    assert changed.step == 31 and {os.path.basename(path) for path in read} == {"stopped-s0", "broken-s0"}


def test_runs_that_were_read_ahead_are_read_again_where_they_have_changed(tmp_path, monkeypatch):
    for name in ("a", "b"):
        Run.create(tmp_path / f"{name}-s0", {"method": {"name": name, "args": {}}, "seed": 0})
    runs.look_ahead(runs=str(tmp_path))
    read = []
    known = dict(_READERS)
    reader, files = known["run"]
    monkeypatch.setitem(_READERS, "run", (lambda entry: read.append(entry.name) or reader(entry), files))
    Run(tmp_path / "b-s0").finish({"step": 3})
    Run.create(tmp_path / "c-s0", {"method": {"name": "c", "args": {}}, "seed": 0})
    controller = RunsController(str(tmp_path))
    controller.handle({"action": "connect"})
    assert read == ["b-s0", "c-s0"] and {entry.name: entry.state for entry in controller.entries}["b-s0"] == "done"
    read.clear()
    RunsController(str(tmp_path)).handle({"action": "connect"})
    assert read == ["a-s0", "b-s0", "c-s0"], "one page takes what was read ahead"


def test_two_hundred_runs_open_at_once(tmp_path):
    """The page's measure, without the time: a log is read once, and of its 500 lines three are parsed."""
    log = make_run(tmp_path / "runs" / "clip-s0", steps=500).path / "metrics.jsonl"
    parsed = []
    loads = json.loads

    def count(text, **options):
        parsed.append(text)
        return loads(text, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("complearn.analysis.runs.inventory.json.loads", count)
        (entry,) = Inventory(tmp_path).look()
    lines = log.read_bytes().splitlines()
    assert entry.step == 500 and len([text for text in parsed if text in lines]) == 3


@pytest.mark.parametrize(
    "source, name",
    [
        ({"name": "folder", "args": {"folder": "a/photos"}}, "folder photos"),
        ({"name": "split", "args": {"source": {"name": "folder", "args": {"folder": "photos"}}}}, "folder photos"),
        ({"name": "webdataset", "args": {"shards": "cc3m"}}, "webdataset cc3m"),
        ({"name": "generated", "args": {}}, "generated"),
        (None, ""),
    ],
)
def test_data_are_named_by_what_they_are_read_from(source, name):
    assert _source_name(source) == name


def test_configurations_differ_in_keys():
    assert differing_values({"a": {"b": 1}, "c": 2}, {"a": {"b": 3, "d": 4}, "c": 2}) == [
        ("a.b", 1, 3),
        ("a.d", None, 4),
    ]


# --- curves


def test_a_log_is_read_on_from_where_it_ended(tmp_path):
    run = make_run(tmp_path / "clip-s0", steps=5, done=False)
    log = RunLog(run.path)
    assert log.update() and len(log.curve("loss")) == 5 and not log.update()
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write('{"kind": "step", "step": 6, ')
        file.flush()
        assert not log.update(), "a torn line is not read yet"
        file.write('"loss": 1.0}\n')
    assert log.update() and log.curve("loss").step.tolist() == [1, 2, 3, 4, 5, 6]
    run.truncate_metrics(3)
    assert log.update() and log.curve("loss").step.tolist() == [1, 2, 3], "a run that was resumed"
    with open(run.path / "metrics.jsonl", "a") as file:
        file.write("[1]\n")
    for _ in range(2):
        with pytest.raises(ValueError, match="metrics.jsonl, byte .*: not a record of a training"):
            log.update()
    assert len(log.curve("loss")) == 3


def test_a_band_is_the_interval_over_seeds_at_common_steps(tmp_path):
    logs = {}
    for seed, steps in ((0, 40), (1, 60)):
        path = make_run(tmp_path / f"clip-s{seed}", seed=seed, steps=steps).path
        logs[path.name] = RunLog(path)
        logs[path.name].update()
    drawn = drawn_curves({"clip": logs}, "loss")
    assert drawn.step.max() == 40 and (drawn.n == 2).all() and set(drawn.label) == {"clip"}
    first = drawn.iloc[0]
    values = [log.curve("loss").value[0] for log in logs.values()]
    assert first.value == pytest.approx(sum(values) / 2) and first.low < min(values) and first.high > max(values)
    apart = drawn_curves({"clip": logs}, "loss", band=False)
    assert set(apart.label) == set(logs) and (apart.low == apart.value).all()
    assert drawn_curves({"clip": logs}, "none").empty


def test_long_logs_of_other_lengths_keep_steps_in_common():
    lines = [b'{"kind": "step", "step": %d}\n' % step for step in range(1, 5001)]
    for short, long in ((3000, 3001), (2500, 5000)):
        kept = [set(range(n)) - _sampled(lines[:n]) for n in (short, long)]
        assert all(len(numbers) <= 2000 and n - 1 in numbers for numbers, n in zip(kept, (short, long)))
        assert len(kept[0] & kept[1]) > 600
    assert not _sampled(lines[:1500])


def test_smoothing_weighs_the_past_and_starts_at_the_first_value():
    curve = pd.DataFrame({"step": [0, 1], "value": [1.0, 0.0]})
    assert smoothed(curve, 0.5).value.tolist() == [1.0, pytest.approx(1 / 3)]
    assert smoothed(curve, 0) is curve
    many = pd.DataFrame({"step": range(999), "value": 1.0})
    assert len(thinned(many)) <= 300 and thinned(many).step.iloc[[0, -1]].tolist() == [0, 998]


# --- what is remembered


def test_notes_and_the_view_are_there_after_a_reload(folder):
    page = RunsController(folder)
    asked(page, "pick", name="stopped-s0")
    asked(page, "write_tags", tags="baseline, old")
    asked(page, "write_note", text="learning rate too high")
    asked(page, "sort_by", column="run")
    asked(page, "hide", hidden=True)
    again = RunsController(folder)
    table = asked(again, "connect")["table"]
    assert "stopped-s0" not in [line["name"] for line in table["rows"]] and table["n_hidden"] == 1
    assert table["view"]["sort"] == "run"
    table = asked(again, "show_hidden", hidden=True)["table"]
    (line,) = [line for line in table["rows"] if line["name"] == "stopped-s0"]
    assert line["tags"] == ["baseline", "old"] and line["note"] == "learning rate too high" and line["hidden"]


def test_only_what_is_possible_is_offered(folder):
    page = RunsController(folder)
    page.look()
    assert asked(page, "pick", name="study/runs/clip-s0")["table"]["can"] == ["hide"]  # it is done
    assert asked(page, "pick", name="stopped-s0")["table"]["can"] == ["hide", "resume"]
    asked(page, "hide", hidden=True)
    asked(page, "show_hidden", hidden=True)
    assert asked(page, "pick", name="stopped-s0")["table"]["can"] == ["show", "resume"]
    assert asked(page, "pick_none")["table"]["can"] == []


def test_two_pages_keep_each_others_notes(tmp_path):
    one, other = Memory(tmp_path), Memory(tmp_path)
    one.set_notes({"a": Note(text="first")})
    other.set_notes({"b": Note(text="second")})
    assert set(Memory(tmp_path).notes) == {"a", "b"} and set(other.notes) == {"a", "b"}
    one.forget(["b"])
    assert set(Memory(tmp_path).notes) == {"a"}


@pytest.mark.parametrize("content", [b"", b"no database", b"SQLite format 3\0" + bytes(4080)])
def test_a_damaged_memory_is_named_and_kept(folder, content):
    (folder / FILE).write_bytes(content)
    page = RunsController(folder)
    remark = asked(page, "connect")["table"]["remark"]
    assert f"{FILE} was damaged" in remark
    (kept,) = folder.glob("complearn-runs.damaged-*.sqlite")
    assert kept.read_bytes() == content and kept.name in remark
    asked(page, "pick", name="stopped-s0")
    asked(page, "write_note", text="works")
    assert Memory(folder)["stopped-s0"].text == "works"


def test_a_link_in_place_of_the_memory_is_neither_read_nor_written(folder, tmp_path):
    target = tmp_path / "thesis.tex"
    target.write_text("my thesis")
    (folder / FILE).symlink_to(target)
    page = RunsController(folder)
    asked(page, "pick", name="stopped-s0")
    table = asked(page, "write_note", text="lost")["table"]
    assert target.read_text() == "my thesis" and (folder / FILE).is_symlink()
    assert "is a link to" in table["remark"] and page.memory["stopped-s0"].text == "lost"


def test_a_view_of_another_version_is_left_out(folder):
    Memory(folder).set_view({"sort": "colour", "selected": 5})
    assert RunsController(folder).view.sort == "date"


# --- the table and the panels


def test_the_table_is_sorted_filtered_and_grouped(folder):
    page = RunsController(folder)
    names = [line["name"] for line in asked(page, "sort_by", column="score")["table"]["rows"]]
    assert names[0] == "study/runs/negclip-s1"
    turned = [line["name"] for line in asked(page, "sort_by", column="score")["table"]["rows"]]
    assert turned == names[::-1]
    found = asked(page, "filter_by", words="NEGCLIP run")["table"]
    assert [line["name"] for line in found["rows"] if line["kind"] == "run"] == [
        "study/runs/negclip-s0",
        "study/runs/negclip-s1",
    ]
    assert asked(page, "filter_by", words="nothing of the kind")["table"]["count"] == 0
    grouped = asked(page, "filter_by", words="") | asked(page, "group_by", group="method")
    groups = [line["group"] for line in grouped["table"]["rows"]]
    assert groups == sorted(groups) and dict(grouped["table"]["groups"])["negclip"] == 2


def test_curves_scores_difference_and_facts_of_the_selection(folder):
    page = RunsController(folder)
    assert "Select one run or several" in asked(page, "connect")["curves"]["text"]
    for name in ("study/runs/clip-s0", "study/runs/clip-s1"):
        curves = asked(page, "pick", name=name)["curves"]
    assert [panel["title"] for panel in curves["panels"]] == ["Loss", "Learning rate", "Score"]
    (line,) = curves["panels"][0]["series"]
    assert line["label"] == "clip" and line["n"] == 2 and len(line["x"]) == 40
    assert len(asked(page, "show_bands", band=False)["curves"]["panels"][0]["series"]) == 2
    assert (
        asked(page, "choose_curve", panel="Loss", name="contrastive_loss")["curves"]["panels"][0]["name"]
        == "contrastive_loss"
    )
    assert asked(page, "smooth", weight=0.9)["curves"]["weight"] == 0.9
    scores = asked(page, "show_panel", panel="scores")["scores"]
    assert (
        scores["sets"] == ["average", "sugarcrepe"] and scores["chosen"] == "average" and scores["columns"] == ["BIND"]
    )
    scores = asked(page, "choose_questions", name="sugarcrepe")["scores"]
    assert [cells["text"] for line in scores["rows"] for cells in line["cells"]] == ["50.0", "51.0"]
    assert "95 % interval over the questions 45.0 to 55.0, 80 questions" in scores["rows"][0]["cells"][0]["about"]
    difference = asked(page, "show_panel", panel="difference")["difference"]
    assert difference["rows"] == [["train.lr", "0.001", "0.002"], ["seed", "0", "1"]]
    assert difference["titles"] == ["Learning rate", "Seed"]
    keys = (
        "method.name",
        "train.weight_decay",
        "model.codebook.codes",
        "data.args.folder",
        "precision",
        "method.args.n",
    )
    assert [_setting_title(key) for key in keys] == [
        "Method", "Training: weight decay", "Model: codebook, codes", "Data: folder", "Precision", "Method: n",
    ]  # fmt: skip
    about = asked(page, "show_panel", panel="about")["about"]
    assert about["name"] == "study/runs/clip-s1" and ["Seed", "1"] in about["facts"]
    asked(page, "pick_these", names=["study/results.json"])
    scores = asked(page, "show_panel", panel="scores")["scores"]
    assert [line["label"] for line in scores["rows"]] == ["study/results.json: clip", "study/results.json: negclip"]
    assert "over 2 seeds" in scores["rows"][0]["cells"][0]["about"]
    assert "exactly two" in asked(page, "show_panel", panel="difference")["difference"]["text"]


def test_a_score_says_what_guessing_gets_and_whether_it_is_that(tmp_path):
    make_run(tmp_path / "study" / "runs" / "clip-s0", "clip", 0)
    values = {"swap_att": (0.52, 0.42, 0.62), "replace_obj": (0.9, 0.8, 0.95)}
    rows = [
        row("clip", 0, "end", 10, "sugarcrepe", split, "accuracy", value, low=low, high=high, n=80)
        for split, (value, low, high) in values.items()
    ]
    rows += [row("chance", None, None, None, "sugarcrepe", split, "accuracy", 0.5, n=80) for split in values]
    Result({}, with_averages(rows)).write(tmp_path / "study")
    page = RunsController(tmp_path)
    asked(page, "pick", name="study/runs/clip-s0")
    scores = asked(page, "show_panel", panel="scores")["scores"]
    assert scores["chosen"] == "average" and scores["columns"] == ["BIND", "NOUN"]
    notes = [cell["note"] for cell in scores["rows"][0]["cells"]]
    assert notes == ["", ""]  # without an interval over questions .52 is not .5
    assert all("guessing gets 50.0" in cell["about"] for cell in scores["rows"][0]["cells"])
    scores = asked(page, "choose_questions", name="sugarcrepe")["scores"]
    at, above = scores["rows"][0]["cells"]
    assert at["note"] == "chance 50.0" and "guessing gets 50.0, which is not excluded" in at["about"]
    assert above["note"] == "" and above["about"].endswith("guessing gets 50.0")


def test_each_study_has_the_chance_level_of_its_own_galleries(tmp_path):
    "On the page and in the notebook that is exported; counts and marks of the tasks are no scores."
    about = ("held out/retrieval", "image_to_text")
    for name, size in (("a", 400), ("b", 20)):
        rows = [row("clip", 0, "end", 10, *about, "r@1", 0.4, low=0.3, high=0.5, n=100)]
        rows += [row("clip", 0, "end", 10, *about, "blind_flag", 1, n=100)]
        rows += [row("chance", None, None, None, *about, "r@1", 1 / size, n=100)]
        rows += [row("chance", None, None, None, *about, "gallery", size, n=100)]
        Result({"rows": {}}, rows).write(tmp_path / name / "study")
    page = RunsController(tmp_path)
    asked(page, "pick_these", names=["a/study/results.json", "b/study/results.json"])
    asked(page, "show_panel", panel="scores")
    scores = asked(page, "choose_questions", name="held out/retrieval")["scores"]
    assert len(scores["columns"]) == 1
    of_clip = {line["label"]: line["cells"][0] for line in scores["rows"] if line["label"].endswith("clip")}
    assert [cell["text"] for cell in of_clip.values()] == ["40.0", "40.0"]
    levels = [cell["about"].rpartition("; ")[2] for cell in of_clip.values()]
    assert levels == ["guessing gets 0.2", "guessing gets 5.0"]
    exported = json.loads(asked(page, "export_notebook")["file"]["text"])
    (cell,) = [cell for cell in exported["cells"] if "answers_table" in "".join(cell["source"])]
    space = {}
    exec("".join(cell["source"]), space)
    table = space["table"]
    assert list(table["a/study/results.json, chance"]) == [0.2] and list(table["b/study/results.json, chance"]) == [5]
    assert "chance" not in table


def test_runs_share_a_curve_only_if_they_differ_in_the_seed_alone(tmp_path):
    for place in ("a/x/runs/clip-s0", "b/x/runs/clip-s0", "b/x/runs/clip-s1", "slow", "fast"):
        make_run(tmp_path / place, lr=0.01 if place == "fast" else 0.001)
    page = RunsController(tmp_path)
    labels = {line["label"]: line["n"] for line in asked(page, "pick_all")["curves"]["panels"][0]["series"]}
    assert labels == {"clip (a/x)": 1, "clip (b/x)": 2, "fast": 1, "slow": 1}


def with_phases(run, names):
    """A run whose log says where each of its phases begins, with the weights at the end of all but the last."""
    steps = run.records()
    length = len(steps) // len(names)
    run.truncate_metrics(0)
    for number, name in enumerate(names):
        run.log({"kind": "phase", "event": "start", "step": number * length, "phase": name})
        for record in steps[number * length : (number + 1) * length]:
            run.log(record | {"phase": name})
        (run.path / "phases").mkdir(exist_ok=True)
        if number < len(names) - 1:
            (run.path / "phases" / f"{number}-{name}.safetensors").write_bytes(b"")
    return run


def test_the_phases_of_runs_stand_behind_their_curves_where_they_agree(tmp_path):
    names = ["warmup", "spawn-1", "interact-1"]
    with_phases(make_run(tmp_path / "il_clip-s0", "il_clip", 0, 30), names)
    with_phases(make_run(tmp_path / "il_clip-s1", "il_clip", 1, 30, done=False), names)
    page = RunsController(tmp_path)
    page.look()
    curves = asked(page, "pick_all")["curves"]
    assert curves["phases"] == [["warmup", 0], ["spawn-1", 10], ["interact-1", 20]]
    make_run(tmp_path / "clip-s0", "clip", 0, 30)
    page.look()
    assert asked(page, "pick", name="clip-s0")["curves"]["phases"] == [
        ["warmup", 0],
        ["spawn-1", 10],
        ["interact-1", 20],
    ], "a run without phases of its own says nothing against them"
    with_phases(make_run(tmp_path / "codebook-s0", "codebook", 0, 30), ["all", "end"])
    page.look()
    assert asked(page, "pick", name="codebook-s0")["curves"]["phases"] == []


def test_a_point_of_a_curve_opens_the_weights_at_the_end_of_its_phase(tmp_path):
    config = {"codebook": {"size": 8}}
    run = with_phases(make_run(tmp_path / "il_clip-s0", "il_clip", 0, 30, model=config), ["warmup", "spawn-1", "last"])
    make_run(tmp_path / "clip-s0", "clip", 0, 30)
    page = RunsController(tmp_path)
    page.look()
    assert asked(page, "pick_all")["curves"]["snapshots"] is None, "of several runs it is not said which"
    curves = asked(page, "pick_these", names=["il_clip-s0"])["curves"]
    assert [each["phase"] for each in curves["snapshots"]] == ["warmup", "spawn-1"], "those that have ended"
    first, last = ({line["title"]: line["command"] for line in snapshot["lines"]} for snapshot in curves["snapshots"])
    assert first["Ask it questions"] == f"complearn judge {run.path}@warmup"
    _, options, view = opened_at(first["Its codes"])
    assert options["--runs"] == [str(run.path)] and (view.model, view.snapshot) == ("il_clip-s0", "warmup")
    _, _, view = opened_at(first["Its map, and that of the run's end"])
    assert view.models == ("il_clip-s0@warmup", "il_clip-s0")
    assert opened_at(last["Its map"])[2].models == ("il_clip-s0",)
    for title, app in (("Search with it", "search"), ("Edits with its scores", "edits")):
        name, options, view = opened_at(first[title])
        assert (name, options["--runs"], view.model) == (app, [str(run.path)], "il_clip-s0@warmup")
        assert opened_at(last[title])[2].model == "il_clip-s0"
    assert asked(page, "pick_these", names=["clip-s0"])["curves"]["snapshots"] == [], "no phase has ended"


def test_the_score_curve_is_in_per_cent_as_the_table(folder):
    page = RunsController(folder)
    page.look()
    curves = asked(page, "pick_these", names=["study/runs/clip-s0"])["curves"]
    drawn = {panel["title"]: panel for panel in curves["panels"]}
    values = page.logs["study/runs/clip-s0"].curve(drawn["Score"]["name"]).value
    assert drawn["Score"]["unit"] == "%" and drawn["Loss"]["unit"] == ""
    assert drawn["Score"]["series"][0]["y"] == pytest.approx([100 * value for value in values])


def test_the_facts_of_a_run_name_what_opens_its_parts_and_its_phases(tmp_path):
    run = with_phases(make_run(tmp_path / "il_clip-s0", "il_clip", 0, 30), ["warmup", "spawn-1", "interact-1"])
    page = RunsController(tmp_path)
    page.look()
    asked(page, "pick_all")
    about = asked(page, "show_panel", panel="about")["about"]
    assert ["Weights of earlier phases", "warmup"] in about["facts"]
    assert about["commands"][-1] == f"complearn judge {run.path}@warmup"
    assert not any("open codes" in line for line in about["commands"])
    config = {"method": {"name": "codebook_clip"}, "model": {"codebook": {"size": 8}}, "seed": 0}
    run = Run.create(tmp_path / "codebook-s0", config)
    page.look()
    asked(page, "pick_these", names=["codebook-s0"])
    commands = asked(page, "show_panel", panel="about")["about"]["commands"]
    assert f"complearn open codes --runs {run.path}" in commands


@pytest.fixture(scope="module")
def trained_pair(tmp_path_factory):
    """Two runs on one small world, which bring the world's questions."""
    root = tmp_path_factory.mktemp("pair")
    tower = {"tower": "tiny", "width": 16, "depth": 1, "heads": 2}
    data = {"name": "generated", "args": {"preset": "small", "n_train": 64, "n_test": 64}}
    for seed in range(2):
        settings = {"batch_size": 16, "device": "cpu", "precision": "fp32", "checkpoint_every": 4, "log_every": 1}
        config = {"method": {"name": "clip", "args": {"steps": 4, "ramp": 2}}, "data": data, "train": settings}
        run = prepare(root / f"clip-s{seed}", config | {"model": {"vision": tower, "text": tower}, "seed": seed})
        launch(run.path, progress=False)
    return root


@pytest.mark.slow
def test_where_one_run_is_right_and_the_other_wrong_becomes_pictures(trained_pair):
    page = RunsController(trained_pair)
    page.look()
    asked(page, "pick_all")
    before = asked(page, "show_panel", panel="answers")["answers"]
    assert before["can_ask"] and "Both are asked the same questions" in before["text"]
    answers = asked(page, "ask_questions")["answers"]
    first, second = (f"clip-s{seed}" for seed in (1, 0))
    for question in answers["sets"]:
        shown = asked(page, "choose_questions", name=question)["answers"]
        told = re.match(rf"Only {first} is right in ([\d,]+), only {second} in ([\d,]+), both in", shown["counts"])
        counts = {name: int(count.replace(",", "")) for name, count in zip((first, second), told.groups())}
        assert shown["chosen"] == question
        for name in (first, second):
            items = [item for item in shown["items"] if item["winner"] == name]
            assert len(items) == min(12, counts[name])
            for item in items:
                title = operator_title(item["split"])
                way = "" if item["metric"] == "accuracy" else f", {metric_title(item['metric'])}"
                assert item["heading"] == f"{title}{way}: only {name} is right" and "_" not in item["heading"]
                assert item["texts"][0].startswith("✓")
                assert all(uri.startswith("data:image/png;base64,") for uri in item["pictures"])
        both_wrong = int(re.search(r"neither in ([\d,]+)", shown["counts"]).group(1).replace(",", ""))
        items = [item for item in shown["items"] if item["winner"] == "neither"]
        assert len(items) == min(12, both_wrong)
        assert all(item["heading"].endswith(": both are wrong") for item in items)
        numbers = {first: counts[first], second: counts[second], "neither": both_wrong}
        titles = {first: f"Only {first} is right", second: f"Only {second} is right", "neither": "Both are wrong"}
        assert shown["groups"] == [
            [name, f"{titles[name]} ({count:,})" if count <= 12 else f"{titles[name]} (12 of {count:,})"]
            for name, count in numbers.items()
            if count
        ]
    assert sum(len(asked(page, "choose_questions", name=name)["answers"]["items"]) for name in answers["sets"]) > 4
    assert any(item["winner"] == "neither" for item in shown["items"]), "pictures that both get wrong are shown"
    shown = asked(page, "show_answers", name="generated/sugarcrepe", kind="swap_att")["answers"]
    title = operator_title("swap_att")
    assert (shown["chosen"], shown["kind"]) == ("generated/sugarcrepe", "swap_att")
    assert {item["split"] for item in shown["items"]} == {"swap_att"} and shown["counts"].startswith(f"Of “{title}”")
    of_kind = sum(int(number.replace(",", "")) for number in re.findall(r"in ([\d,]+)", shown["counts"]))
    assert [f"{title} ({of_kind:,})"] == [label for kind, label in shown["kinds"] if kind == "swap_att"]
    every = asked(page, "choose_kind", kind="")["answers"]
    assert every["kind"] == "" and len({item["split"] for item in every["items"]}) > 1
    elsewhere = asked(page, "show_answers", name="generated/pairs", kind="")["answers"]
    assert elsewhere["text"] == "generated/pairs has no captions to choose between: these answers are to " + (
        f"{elsewhere['chosen']}."
    )
    table = complearn.judge([trained_pair / "clip-s1", trained_pair / "clip-s0"], device="cpu")
    wins = own_wins([trained_pair / "clip-s1", trained_pair / "clip-s0"], device="cpu")
    scores = {(row["seed"], row["data"], row["split"], row["metric"]): row["value"] for row in table.rows}
    for question, of_set in wins.items():
        for (split, metric), part in of_set.lines.groupby(["split", "metric"]):
            for place, seed in enumerate((1, 0)):
                assert part[f"right_{place}"].mean() == pytest.approx(scores[seed, question, split, metric])


def apart(shown, winner):
    return [item for item in shown["items"] if item["winner"] == winner]


@pytest.mark.slow
def test_answers_and_scores_count_the_same_questions(trained_pair, tmp_path):
    root = shutil.copytree(trained_pair, tmp_path / "pair")
    page = RunsController(root)
    page.look()
    asked(page, "pick_all")
    asked(page, "show_panel", panel="answers")
    alone = asked(page, "ask_questions")["answers"]
    assert alone["asked"].endswith("The panel Scores has no number of these questions.")
    judged = judged_models([root / "clip-s1", root / "clip-s0"])
    every = own_questions(judged)
    questions = new_questions(judged, every)
    ask_models(judged, questions).write(root)
    page.look()
    asked(page, "pick_these", names=["clip-s1", "clip-s0"])
    answers = asked(page, "ask_questions")["answers"]
    for name in answers["sets"]:
        shown = asked(page, "choose_questions", name=name)["answers"]
        items = list(questions[name].items())
        counts = Counter(split_title(item.split) for item in items)
        left_out = len(every[name].items()) - len(items)
        assert shown["asked"].startswith(f"Both runs were asked {questions_text(counts, len(every[name].items()))}.")
        assert ("met in training" in shown["asked"]) == (left_out > 0)
        assert shown["asked"].endswith("The panel Scores counts the same questions, each kind in its own column.")
        scores = asked(page, "show_panel", panel="scores")["scores"]
        assert scores["asked"] == (
            f"Each number counts the questions of its own column alone. Asked: {questions_text(counts)}."
        )
        asked(page, "show_panel", panel="answers")
    assert left_out, "of the last set some were met in training"
    assert questions_text({"a": 2}) == "2 questions of “a”" and questions_text({"a": 2, "b": 1}) == (
        "3 questions: 2 of “a”, 1 of “b”"
    )
    assert questions_text(dict.fromkeys("abcd", 5), 24) == "20 of 24 questions: 5 of each of 4 kinds"


def test_two_runs_are_asked_as_many_questions_as_their_study(folder):
    entries = [entry for entry in Inventory(folder).look() if entry.name.startswith("study/runs/clip")]
    assert number_of_questions(entries) == 200, "no world was asked about"
    about = {"data": "generated/sugarcrepe", "split": "swap_att", "metric": "accuracy", "value": 0.5}
    small, large = ([about | {"n": n}, about | {"split": "mean", "n": 99}] for n in (30, 40))
    first, second = (replace(entry, rows=tuple(rows)) for entry, rows in zip(entries, (small, large)))
    assert number_of_questions([first, second]) == 40 and number_of_questions([first, entries[1]]) == 200
    judged = replace(first, rows=(*first.rows, about | {"metric": "train_overlap_images", "n": 25}))
    assert number_of_questions([judged, second]) == 200, "as judge, which leaves out what training met"


def opened_at(command):
    """The app, its options and the view that a line for a terminal opens."""
    words = shlex.split(command)
    assert words[:2] == ["complearn", "open"]
    options = dict(zip(words[3::2], words[4::2]))
    addresses = {"search": SearchAddress, "edits": EditsAddress, "codes": CodesAddress, "map": MapAddress}
    address = addresses[words[2]]
    options["--runs"] = [value for name, value in zip(words[3::2], words[4::2]) if name == "--runs"]
    return words[2], options, read_address(address, options["--view"])


def test_two_runs_have_lines_that_open_both(folder):
    page = RunsController(folder)
    page.look()
    names = ["study/runs/clip-s0", "study/runs/negclip-s1"]
    asked(page, "pick_these", names=names[:1])
    assert asked(page, "show_panel", panel="about")["about"]["both"] == []
    about = asked(page, "pick_these", names=names)["about"]
    places = [str(folder / name) for name in names]
    judged, *opened = [shlex.split(line) for line in about["both"]]
    assert judged == ["complearn", "judge", *places]
    assert [words[2] for words in opened] == ["search", "map"], "codes need a codebook in both"
    for words in opened:
        assert [words[k + 1] for k, word in enumerate(words) if word == "--runs"] == places
    assert read_address(MapAddress, opened[1][-1]).models == ("clip-s0", "negclip-s1")
    asked(page, "pick_these", names=[*names, "study/runs/clip-s1"])
    assert asked(page, "show_panel", panel="about")["about"]["both"] == [], "no line takes three"


@pytest.mark.slow
def test_an_answer_leads_on_to_the_other_apps(trained_pair):
    page = RunsController(trained_pair)
    page.look()
    asked(page, "pick_all")
    shown = asked(page, "show_panel", panel="answers")
    assert "were not asked yet" in refusal(page, "go_on", split="a", id="b", winner="clip-s0")
    asked(page, "ask_questions")
    shown = asked(page, "choose_questions", name="generated/crepe_productivity")["answers"]
    item = shown["items"][0]
    place = {key: item[key] for key in ("split", "id", "winner")}
    onward = asked(page, "go_on", **place)["onward"]
    (wrong,) = {"clip-s0", "clip-s1"} - {item["winner"]}
    assert f"Each line opens {wrong}, which is wrong here" in onward["text"] and "captions alone" in onward["text"]
    choice = page.wins[page._asked_of(page.selected)][shown["chosen"]].choices[item["split"], item["id"]]
    found = {line["title"]: opened_at(line["command"]) for line in onward["lines"]}
    assert list(found) == [
        *[f"{what} the {which} caption" for what in ("Search with", "Edits of") for which in ("right", "wrong")],
        "Both runs as maps",
    ]
    app, options, view = found.pop("Both runs as maps")
    assert app == "map" and view.models == (wrong, item["winner"])
    for title, (app, options, view) in found.items():
        names = [wrong, item["winner"]] if app == "search" else [wrong]  # the one that is wrong is opened first
        assert options["--runs"] == [str(trained_pair / name) for name in names] and app == title.split()[0].lower()
        assert view.text == choice.captions[0 if "right" in title else 1]
    assert "none of the answers shown is" in refusal(page, "go_on", **place | {"winner": wrong})
    for name in shown["sets"]:
        shown = asked(page, "choose_questions", name=name)["answers"]
        if found := [item for item in shown["items"] if item["winner"] == "neither"]:
            break
    onward = asked(page, "go_on", **{key: found[0][key] for key in ("split", "id", "winner")})["onward"]
    assert onward["text"].startswith(
        "Each line opens clip-s1, wrong as the other is; where it names both runs, clip-s0"
    )
    assert opened_at(onward["lines"][0]["command"])[1]["--runs"] == [
        str(trained_pair / "clip-s1"),
        str(trained_pair / "clip-s0"),
    ]


def test_captions_to_edit_are_named_where_they_lie_next_to_the_photos(album, tmp_path):
    "Those of COCO lie in a file elsewhere, and its folder of photos has none."
    photos = tmp_path / "val2017"
    photos.mkdir()
    shutil.copy(album / "0.png", photos)
    choice = Choice("swap_obj", (photos / "0.png",), ("a dog on a mat", "a mat on a dog"), "1")
    for number, (data, named) in enumerate(
        (
            ({"name": "coco", "args": {"images": str(photos), "annotations": "captions.json"}}, []),
            ({"name": "folder", "args": {"folder": str(album)}}, [str(album)]),
        )
    ):
        run = Run.create(
            tmp_path / "runs" / f"clip-s{number}", {"method": {"name": "clip"}, "data": data, "seed": number}
        )
        lines = {line["title"]: line["command"] for line in onward_lines(run, choice)}
        words = shlex.split(lines["Edits of the right caption"])
        assert [words[k + 1] for k, word in enumerate(words) if word == "--captions"] == named
        assert "--gallery" in lines["Search with the right caption"]


@pytest.mark.slow
def test_an_answer_about_a_photo_opens_that_photo(album, tmp_path, here):
    runs_there = complearn.study(["clip", "codebook_clip"], album, preset="smoke", steps=2, out=tmp_path / "study")
    assert runs_there.rows
    page = RunsController(tmp_path)
    page.look()
    asked(page, "pick_these", names=["study/runs/clip-s0", "study/runs/codebook_clip-s0"])
    asked(page, "show_panel", panel="answers")
    shown = asked(page, "ask_questions")["answers"]
    assert "Both runs were asked" in shown["asked"] and "counts the same questions" in shown["asked"]
    item = apart(shown, "clip")[0]
    assert item["heading"].startswith("exchange") and "_" not in item["heading"]
    onward = asked(page, "go_on", split=item["split"], id=item["id"], winner="clip")["onward"]
    lines = {line["title"]: line["command"] for line in onward["lines"]}
    choice = page.wins[page._asked_of(page.selected)][shown["chosen"]].choices[item["split"], item["id"]]
    _, options, view = opened_at(lines["Search with the picture"])
    assert options["--gallery"] == str(album) and "captions alone" not in onward["text"]
    pictures = list(dict.fromkeys(pair.image_id for pair in read_photos(album)))
    assert pictures[view.picture] == choice.image_ids[0]
    _, options, view = opened_at(lines["Codes of the picture"])
    app = codes(options["--runs"][0], gallery=options["--gallery"], view=options["--view"])
    assert app.view["tab"] == "image" and app.controller.address().image == view.image
    assert app.controller.panel(0).store.about["image_ids"][view.image] == choice.image_ids[0]
    assert opened_at(lines["Codes of the right caption"])[2].tab == "surgery"
    coded = apart(shown, "codebook_clip")[0]
    onward = asked(page, "go_on", split=coded["split"], id=coded["id"], winner="codebook_clip")["onward"]
    lines = {line["title"]: line["command"] for line in onward["lines"]}
    _, options, _ = opened_at(lines["Codes of the right caption in codebook_clip-s0"])
    assert [Path(place).name for place in options["--runs"]] == ["codebook_clip-s0"], "the other run has no codebook"


@pytest.mark.slow
def test_answers_are_compared_of_two_runs_that_bring_the_same_questions(trained_pair, folder, tmp_path):
    page = RunsController(folder)
    page.look()
    asked(page, "pick_these", names=["study/results.json", "study/runs/clip-s0"])
    assert "Select one run" in asked(page, "show_panel", panel="answers")["answers"]["text"]
    with pytest.raises(RequestError, match="select one or two runs"):
        page.ask_questions()
    with pytest.raises(RequestError, match="of one model or of two, and 3 were given"):
        third = shutil.copytree(trained_pair / "clip-s0", tmp_path / "clip-s2")
        own_wins([trained_pair / "clip-s0", trained_pair / "clip-s1", third])


@pytest.mark.slow
def test_the_wrong_and_right_answers_of_one_run_become_pictures(trained_pair):
    page = RunsController(trained_pair)
    page.look()
    asked(page, "pick_these", names=["clip-s0"])
    before = asked(page, "show_panel", panel="answers")["answers"]
    assert before["can_ask"] and before["ask"] == "Ask it" and before["text"].startswith("It is asked")
    shown = asked(page, "ask_questions")["answers"]
    name = page.wins[page._asked_of(page.selected)][shown["chosen"]].names[0]
    right, wrong = map(
        int, re.match(rf"{name} is right in (\d+) \(.*? %\), wrong in (\d+)\.", shown["counts"]).groups()
    )
    marks = [item["heading"].rpartition(": ")[2] for item in shown["items"]]
    assert marks == ["wrong"] * min(12, wrong) + ["right"] * min(12, right) and len(set(marks)) == 2
    assert all(len(item["pictures"]) and item["texts"][0].startswith("✓") for item in shown["items"])
    table = complearn.judge([trained_pair / "clip-s0"], device="cpu")
    rows = [row for row in table.rows if row["data"] == shown["chosen"] and row["metric"] == "accuracy"]
    kind = rows[0]["split"]
    of_kind = asked(page, "choose_kind", kind=kind)["answers"]["counts"]
    assert f"({100 * rows[0]['value']:.1f} %)" in of_kind and of_kind.startswith(f"Of “{operator_title(kind)}”")
    item = shown["items"][0]
    lines = asked(page, "go_on", split=item["split"], id=item["id"], winner="wrong")["onward"]["lines"]
    assert "Search with the wrong caption" in [line["title"] for line in lines]


def test_a_comparison_is_a_notebook_that_runs(folder, warm, tmp_path):
    page = RunsController(folder)
    page.look()
    with pytest.raises(RequestError, match="nothing is selected"):
        page.export_notebook()
    names = ["study/runs/clip-s0", "study/runs/negclip-s1", "study/results.json"]
    asked(page, "pick_these", names=names)
    file = asked(page, "export_notebook")["file"]
    assert file["name"] == "comparison.ipynb"
    written = tmp_path / "comparison.ipynb"
    written.write_text(file["text"])
    executed = tmp_path / "executed.ipynb"
    result = warm.run(written, report=executed)
    assert result.good, result.message
    shown = executed.read_text()
    for said in ("BIND", "method.name", "application/vnd.plotly.v1+json", "negclip", "50.0 [45, 55]", "questions"):
        assert said in shown


def test_only_what_is_new_is_told(folder):
    page = RunsController(folder)
    asked(page, "pick", name="stopped-s0")
    assert list(asked(page, "poll")) == ["polled"]
    Run(folder / "stopped-s0").log({"kind": "step", "step": 31, "phase": "contrastive", "loss": 1.0})
    page._looked = 0.0
    told = asked(page, "poll")
    assert list(told) == ["polled", "table", "curves"] and told["curves"]["panels"][0]["series"][0]["x"][-1] == 31


def test_the_selection_is_a_table_and_python(folder):
    page = runs(folder).select(["stopped-s0", "study/results.json"])
    page.run_action("write_tags", tags="old")
    assert list(page.selection.run) == ["stopped-s0", "study/results.json"] and list(page.selection.tags) == [
        "old",
        "old",
    ]
    code = asked(page.controller, "copy_code")["python"]["text"]
    names = {}
    exec(code.rpartition("\n")[0], names)
    assert list(names["table"].selection.run) == ["stopped-s0", "study/results.json"]
    table = pd.read_csv(io.StringIO(asked(page.controller, "export_table")["file"]["text"]))
    stopped = table[table.run == "stopped-s0"].iloc[0]
    assert stopped["exchange attributes"] == 0.6 and "scores" not in table, "a column for each score"
    with pytest.raises(RequestError, match="there is no 'typo'"):
        page.select(["typo"])


def test_complearn_runs_is_a_table_that_shows_itself_as_a_page(folder):
    table = complearn.runs(folder)
    assert isinstance(table, pd.DataFrame) and table.equals(runs_table(folder))
    assert type(table[table.state == "done"]) is pd.DataFrame
    bundle = table._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle and "stopped-s0" in bundle["text/plain"]


def test_an_empty_folder_says_what_to_do(tmp_path):
    page = RunsController(tmp_path)
    assert "complearn train clip photos/" in asked(page, "connect")["table"]["empty"]
    assert not list(tmp_path.iterdir()), "looking writes nothing"
    with pytest.raises(FileNotFoundError, match="is not a folder; give a folder that holds runs"):
        RunsController(tmp_path / "typo")


def test_a_folder_that_is_one_run_is_shown_and_not_deleted(tmp_path):
    run = make_run(tmp_path / "clip-s0")
    page = RunsController(run.path)
    (line,) = asked(page, "connect")["table"]["rows"]
    assert line["name"] == "clip-s0" and line["state"] == "done"
    assert "open the folder above it" in refusal(page, "delete", names=["clip-s0"], sure=True)
    assert Run(run.path).done


def test_what_cannot_be_done_says_why(folder):
    page = RunsController(folder)
    assert "nothing is selected" in refusal(page, "hide", hidden=True)
    assert "there is no 'typo'" in refusal(page, "pick", name="typo")
    asked(page, "pick", name="photos")
    assert "photos is no run" in refusal(page, "delete")
    assert "from 0 to below 1" in refusal(page, "smooth", weight=1.0)


def test_any_request_is_answered(folder):
    for name in RunsController.actions:
        check_requests(RunsController(folder), name)
    assert (folder / "stopped-s0" / "config.json").exists() and (folder / "study" / "runs").is_dir()


# --- stop, resume, delete


@pytest.fixture
def holder(folder):
    """A process that holds the lock of a run as a training does."""
    lock = folder / "stopped-s0" / "lock"
    process = subprocess.Popen([sys.executable, "-c", HOLDER, lock], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


def test_a_training_is_stopped_after_a_question(folder, holder):
    page = RunsController(folder)
    asked(page, "pick", name="stopped-s0")
    (line,) = [line for line in asked(page, "connect")["table"]["rows"] if line["name"] == "stopped-s0"]
    assert line["state"] == "trains" and training_process(folder / "stopped-s0") == holder.pid
    assert "in training; stop it first" in refusal(page, "delete", names=["stopped-s0"], sure=True)
    assert "already, by process" in refusal(page, "resume", names=["stopped-s0"], sure=True)
    question = asked(page, "stop")["question"]
    assert holder.poll() is None and "Stop stopped-s0?" in question["text"]
    asked(page, "stop", names=question["names"], sure=True)
    assert holder.wait(20) == 7, "SIGTERM, which a training answers with a checkpoint"
    page.look()
    assert page.find("stopped-s0").state == "stopped"


def test_of_several_runs_those_are_stopped_resumed_or_deleted_that_can_be(folder, holder, monkeypatch):
    "Deleted are all of them or none."
    started = []

    def start(run, words, env):
        started.append(run.path)
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr("complearn.training.runs.sweep.start", start)
    page = RunsController(folder)
    page.look()
    names = ["waiting-s0", "study/runs/clip-s0", "stopped-s0"]
    said = refusal(page, "delete", names=names, sure=True)
    assert "stopped-s0 is in training; stop it first; nothing was deleted" in said
    assert all((folder / name).is_dir() for name in names)
    assert asked(page, "stop", names=names)["question"]["names"] == ["stopped-s0"]
    assert asked(page, "resume", names=names)["question"]["names"] == ["waiting-s0"]
    assert asked(page, "resume", names=names, sure=True)["told"]["text"].startswith("started 1;")
    assert started == [folder / "waiting-s0"]
    page.children["waiting-s0"].wait()
    asked(page, "stop", names=names, sure=True)
    assert holder.wait(20) == 7


def test_a_number_in_a_lock_that_nobody_holds_is_not_stopped(folder):
    """The number may belong to another program by now."""
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        (folder / "stopped-s0" / "lock").write_text(str(bystander.pid))
        assert training_process(folder / "stopped-s0") is None
        with pytest.raises(RequestError, match="is not in training on this machine"):
            stop_run(folder / "stopped-s0")
        assert bystander.poll() is None
    finally:
        bystander.send_signal(signal.SIGKILL)
        bystander.wait()


def test_a_run_is_resumed_by_the_same_command(folder, monkeypatch):
    started = []

    def start(run, words, env):
        started.append((run.path, words))
        return subprocess.Popen([sys.executable, "-c", ""])

    monkeypatch.setattr("complearn.training.runs.sweep.start", start)
    page = RunsController(folder)
    question = asked(page, "resume", names=["stopped-s0"])["question"]
    assert not started and question["action"] == "resume"
    asked(page, "resume", names=["stopped-s0"], sure=True)
    path, words = started[0]
    assert path == folder / "stopped-s0" and words[1:4] == ["-m", "complearn.launch", str(path)]
    with pytest.raises(RequestError, match="is done; there is nothing to resume"):
        resume_run(folder / "study" / "runs" / "clip-s0")
    page.children["stopped-s0"].wait()
    assert list(asked(page, "poll"))[0] == "polled" and not page.children


def test_a_resumed_run_that_fails_says_why(folder, monkeypatch):
    def start(run, words, env):
        (run.path / "log.txt").write_text("starting\nValueError: the training data have changed\n")
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])

    monkeypatch.setattr("complearn.training.runs.sweep.start", start)
    page = RunsController(folder)
    asked(page, "resume", names=["stopped-s0"], sure=True)
    page.children["stopped-s0"].wait()
    told = asked(page, "poll")["told"]["text"]
    assert told == (
        "stopped-s0 ended with exit code 1: ValueError: the training data have changed; its log.txt says more"
    )
    assert "told" not in asked(page, "poll")


def test_what_vanishes_during_a_look_is_said_not_raised(folder, monkeypatch):
    def gone(*arguments):
        raise FileNotFoundError("photos was deleted")

    monkeypatch.setattr("complearn.analysis.runs.inventory.find_captions", gone)
    table = entries_table(Inventory(folder).look()).set_index("run")
    assert table.state["photos"] == "damaged" and table.problem["photos"] == "photos was deleted"


def test_a_run_is_deleted_after_a_question_with_its_notes(folder):
    page = RunsController(folder)
    asked(page, "pick", name="stopped-s0")
    asked(page, "write_note", text="gone")
    question = asked(page, "delete")["question"]
    assert (folder / "stopped-s0").is_dir() and "This cannot be undone" in question["text"]
    page.wins = {page._asked_of(page.selected): {}}
    again = replace(page.selected[0], date=page.selected[0].date + 1)
    assert page._asked_of([again]) not in page.wins, "a run of the same name and step that was trained again"
    table = asked(page, "delete", names=question["names"], sure=True)["table"]
    assert not (folder / "stopped-s0").exists() and "stopped-s0" not in Memory(folder).notes and not page.wins
    assert "stopped-s0" not in [line["name"] for line in table["rows"]] and not table["selected"]


def test_nothing_but_a_run_below_the_folder_is_deleted(folder, tmp_path):
    outside = make_run(tmp_path / "outside-s0").path
    (folder / "linked").symlink_to(outside)
    (folder / "by-link").symlink_to(tmp_path)
    for name in ("linked", "by-link/outside-s0", "../outside-s0", str(outside), ""):
        with pytest.raises(ForeignFile):
            delete_run(folder, name)
    for name in ("study", "tuned", "graph", "broken-s0"):
        with pytest.raises(RequestError, match="cannot be told to be a run"):
            delete_run(folder, name)
    with pytest.raises(RequestError, match="there is no folder"):
        delete_run(folder, "typo")
    assert Run(outside).done and (folder / "broken-s0" / "metrics.jsonl").exists()


def test_a_deleted_run_takes_no_link_s_target_with_it(folder, tmp_path):
    (tmp_path / "thesis.tex").write_text("my thesis")
    (folder / "stopped-s0" / "notes").symlink_to(tmp_path / "thesis.tex")
    delete_run(folder, "stopped-s0")
    assert (tmp_path / "thesis.tex").exists() and not (folder / "stopped-s0").exists()


# --- in a browser


@pytest.mark.browser
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_page_runs_are_compared_noted_and_deleted(folder, dark):
    app = runs(folder)
    with open_chromium() as browser:
        page = attach(browser, "runs", app.controller, dark)
        page.set_viewport_size({"width": 1600, "height": 1000})
        page.wait_for_selector(".cl-runs tbody tr")
        assert page.locator(".cl-list tbody input").count() == 12 and page.locator(".cl-wrong").count() == 1
        theme = "dark" if dark else "light"
        for name in ("study/runs/clip-s0", "study/runs/clip-s1", "study/runs/negclip-s0"):
            page.locator(f"input[data-name='{name}']").focus()
            page.keyboard.press("Space")
            page.wait_for_function(f"document.querySelector(`input[data-name='{name}']`).checked")
        page.wait_for_selector(".cl-picture svg path.cl-curve")
        assert page.locator(".cl-charts section").count() == 3
        page.keyboard.press("ArrowDown")
        below = page.evaluate("document.activeElement.dataset.name")
        page.keyboard.press("ArrowUp")
        assert below == "study/runs/clip-s1" and page.evaluate("document.activeElement.dataset.name") == name
        page.locator(".cl-picture").first.focus()
        page.keyboard.press("ArrowRight")
        assert "step 1: clip" in page.locator(".cl-said").first.inner_text()
        assert "Select one run alone" in page.locator(".cl-panel > .cl-onward").inner_text()
        screenshot(page, f"runs-{theme}")
        page.locator("[data-panel=curves]").focus()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Enter")
        page.wait_for_selector(".cl-heat")
        page.locator(".cl-heat").first.focus()
        assert "BIND: 50.0" in page.locator(".cl-said").inner_text()
        page.locator(".cl-map").get_by_role("button", name="BIND").hover()
        assert "exchange two words" in page.locator(".cl-meaning:popover-open").inner_text()
        screenshot(page, f"runs-scores-{theme}")
        page.locator("input[data-name='study/runs/clip-s1']").click()
        page.locator("select[data-key=questions]").select_option(index=1)
        page.wait_for_selector(".cl-heat button")
        page.locator(".cl-heat button").first.focus()
        assert ", 95 % interval" in page.locator(".cl-said").inner_text()
        page.keyboard.press("Enter")
        page.wait_for_selector("[data-key=ask]")
        assert "Both are asked the same questions" in page.locator(".cl-panel").inner_text()
        page.locator("[data-panel=difference]").click()
        page.wait_for_selector(".cl-plain")
        heads = page.locator(".cl-plain th[scope=row]")
        assert "Method" in heads.all_inner_texts() and "method.name" not in page.locator(".cl-plain").inner_text()
        assert heads.filter(has_text=re.compile("^Method$")).get_attribute("title") == "method.name"
        screenshot(page, f"runs-difference-{theme}")
        page.get_by_text("Select none").click()
        page.locator("input[data-name='stopped-s0']").click()
        page.locator("[data-panel=about]").click()
        page.locator("[data-key=note]").fill("learning rate too high")
        page.locator("[data-key=note]").blur()
        page.wait_for_function("document.querySelector('.cl-list').innerText.includes('learning rate too high')")
        screenshot(page, f"runs-about-{theme}")
        page.get_by_role("button", name="Delete…").click()
        page.wait_for_selector(".cl-question:not([hidden])")
        assert page.evaluate("document.activeElement.textContent") == "Cancel" and (folder / "stopped-s0").is_dir()
        screenshot(page, f"runs-question-{theme}")
        page.keyboard.press("Escape")
        page.wait_for_selector(".cl-question", state="hidden")
        page.get_by_role("button", name="Delete…").click()
        page.get_by_role("button", name="Delete for good").click()
        page.wait_for_function("!document.querySelector(`input[data-name='stopped-s0']`)")
        assert not (folder / "stopped-s0").exists()
        page.locator("input[type=search]").fill("negclip")
        page.wait_for_function("document.querySelectorAll('.cl-list tbody tr').length < 5")
        page.locator("input[type=search]").fill("")
        page.wait_for_function("document.querySelectorAll('.cl-list tbody tr').length > 5")
        page.locator("input[data-name='study/runs/clip-s0']").click()
        page.locator("[data-panel=curves]").click()
        page.wait_for_selector(".cl-picture svg path.cl-curve")
        page.set_viewport_size({"width": 420, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= 420"), "no part is wider than a narrow page"
        page.wait_for_timeout(300)
        screenshot(page, f"runs-narrow-{theme}")


@pytest.mark.browser
@pytest.mark.slow
@pytest.mark.parametrize("dark", [False, True])
def test_on_a_page_a_wrong_answer_leads_on(trained_pair, tmp_path, dark):
    controller = RunsController(
        shutil.copytree(trained_pair, tmp_path / "pair", ignore=shutil.ignore_patterns(f"{FILE}*"))
    )
    theme = "dark" if dark else "light"
    with open_chromium() as browser:
        page = attach(browser, "runs", controller, dark)
        page.set_viewport_size({"width": 1600, "height": 1000})
        for name in ("clip-s0", "clip-s1"):
            page.locator(f"input[data-name='{name}']").click()
        page.locator("[data-panel=answers]").click()
        page.get_by_role("button", name="Ask both").click()
        page.wait_for_selector(".cl-item")
        assert page.locator(".cl-asked").inner_text().startswith("Both runs were asked ")
        page.locator("select[data-key=kind]").select_option("swap_att")
        page.wait_for_function("document.querySelector('.cl-said').textContent.startsWith('Of “')")
        page.locator("select[data-key=kind]").select_option("")
        page.wait_for_function("document.querySelector('.cl-said').textContent.startsWith('Only')")
        first, second = (page.get_by_role("button", name="Go on from here").nth(place) for place in (0, 1))
        first.focus()
        page.keyboard.press("Enter")
        page.wait_for_selector(".cl-onward .cl-code")
        assert first.get_attribute("aria-expanded") == "true"
        command = page.locator(".cl-onward .cl-code").first.inner_text()
        assert command.startswith("complearn open search --runs ") and "--view text=" in command
        page.get_by_role("button", name="copy: Search with the right caption").click()
        page.wait_for_function("document.querySelector('.cl-onward [role=status]').textContent !== ''")
        heads = page.locator(".cl-groups h3").all_inner_texts()
        assert heads[-1].startswith("Both are wrong (") and page.locator("[data-winner=neither]").count() > 0
        screenshot(page, f"runs-answers-{theme}")
        second.click()
        page.wait_for_function("document.querySelectorAll('.cl-onward:not([hidden])').length === 1")
        assert first.get_attribute("aria-expanded") == "false" and second.get_attribute("aria-expanded") == "true"
        page.set_viewport_size({"width": 420, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth <= 420")
        screenshot(page, f"runs-answers-narrow-{theme}")
        second.click()
        assert page.locator(".cl-onward:not([hidden])").count() == 0
        page.locator("input[data-name='clip-s1']").click()
        page.locator("[data-panel=curves]").click()
        page.locator(".cl-picture").first.click()
        page.wait_for_selector(".cl-onward .cl-code")
        assert "@contrastive" in page.locator(".cl-onward .cl-code").first.inner_text()
        screenshot(page, f"runs-point-narrow-{theme}")


@pytest.mark.browser
def test_a_page_shows_a_new_step_within_two_seconds(tmp_path):
    run = make_run(tmp_path / "clip-s0", done=False)
    controller = RunsController(tmp_path)
    with open_chromium() as browser:
        page = attach(browser, "runs", controller)
        page.locator("input[data-name='clip-s0']").click()
        page.wait_for_selector(".cl-picture svg")
        run.log({"kind": "step", "step": 41, "phase": "contrastive", "loss": 1.25, "lr": 0.001})
        begun = time.monotonic()
        page.wait_for_function("document.querySelector('.cl-picture').ariaLabel.includes('1.25')", timeout=15_000)
        assert time.monotonic() - begun < 10, "two seconds on a quiet machine"


def log_step(run, step, loss=1.5):
    run.log({"kind": "step", "step": step, "phase": "contrastive", "loss": loss, "lr": 0.001, "contrastive_loss": loss})


def wait_until(page, is_so):
    """Let a page work until something is so, and what came of it is drawn."""
    for _ in range(400):
        if is_so():
            page.wait_for_timeout(50)
            return
        page.wait_for_timeout(25)
    raise AssertionError("it was not so within ten seconds")


@pytest.mark.browser
def test_a_press_on_a_line_outlives_what_a_training_changes(tmp_path):
    run = make_run(tmp_path / "clip-s0", done=False)
    make_run(tmp_path / "still-s0", "negclip")
    controller = RunsController(tmp_path)
    with open_chromium() as browser:
        page = attach(browser, "runs", controller)
        page.wait_for_selector(".cl-list tbody tr")
        steps = page.locator("tr:has(input[data-name='clip-s0']) td[data-col=step]")
        still = page.locator("tr:has(input[data-name='still-s0'])").element_handle()
        steps.hover()
        page.mouse.down()
        log_step(run, 41)
        wait_until(page, lambda: 41 in [entry.step for entry in controller.entries])
        assert steps.inner_text() == "40", "nothing is drawn under the pointer"
        page.mouse.up()
        page.wait_for_function("document.querySelector(`input[data-name='clip-s0']`).checked")
        assert [entry.name for entry in controller.selected] == ["clip-s0"]
        page.wait_for_function("document.querySelector('.cl-chosen td[data-col=step]').innerText === '41'")
        assert still.evaluate("node => node.isConnected"), "a line that did not change is the node that it was"
        log_step(run, 42)
        page.wait_for_function("document.querySelector('.cl-chosen td[data-col=step]').innerText === '42'")
        assert still.evaluate("node => node.isConnected")


@pytest.mark.browser
def test_smoothing_is_dragged_while_the_kernel_answers(tmp_path):
    run = make_run(tmp_path / "clip-s0", done=False)
    controller = RunsController(tmp_path)
    with open_chromium() as browser:
        page = attach(browser, "runs", controller)
        page.locator("input[data-name='clip-s0']").click()
        page.wait_for_selector(".cl-picture svg")
        slider = page.locator("[data-key=smooth]")
        slider.scroll_into_view_if_needed()
        node = slider.element_handle()
        box = slider.bounding_box()
        y = box["y"] + box["height"] / 2
        curve = page.locator(".cl-curve").first
        drawn, weights = [curve.get_attribute("d")], []
        page.mouse.move(box["x"] + 8, y)
        page.mouse.down()
        for part in (0.2, 0.35, 0.5, 0.65, 0.8):
            page.mouse.move(box["x"] + part * box["width"], y)
            before = max([0, *weights])
            wait_until(page, lambda before=before: controller.view.weight > before)
            weights.append(controller.view.weight)
            drawn.append(curve.get_attribute("d"))
            if part == 0.5:
                log_step(run, 41)
                wait_until(page, lambda: controller.entries[0].step == 41)
        page.mouse.up()
        assert weights == sorted(set(weights)) and 0.1 < weights[0] < 0.3 and 0.7 < weights[-1] < 0.9
        assert len(set(drawn)) == len(drawn), "the curves follow the hand"
        assert node.evaluate("node => node.isConnected")
        assert float(slider.input_value()) == weights[-1]
        assert page.locator(".cl-weight").inner_text() == f"{weights[-1]:.2f}"
        controller.handle({"action": "smooth", "weight": 0.25})
        page.get_by_text("Select none").click()
        page.locator("input[data-name='clip-s0']").click()
        page.wait_for_function("document.querySelector('[data-key=smooth]')?.value === '0.25'")


@pytest.mark.browser
def test_what_is_open_in_the_panel_of_curves_outlives_a_new_step(tmp_path):
    run = make_run(tmp_path / "clip-s0", done=False)
    controller = RunsController(tmp_path)
    with open_chromium() as browser:
        page = attach(browser, "runs", controller)
        page.locator("input[data-name='clip-s0']").click()
        page.wait_for_selector(".cl-picture svg")
        log_step(run, 41, 1.25)
        page.wait_for_function("document.querySelector('.cl-picture').ariaLabel.includes('1.25')", timeout=15_000)
        kept = [page.locator(f"[data-key='{key}']").element_handle() for key in ("Loss", "Score", "band")]
        picture = page.locator(".cl-picture").first
        picture.scroll_into_view_if_needed()
        box = picture.bounding_box()
        page.locator("[data-key=Loss]").focus()
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 80)
        said = page.locator(".cl-said").first.inner_text()
        assert re.match(r"step \d+: clip", said)
        page.mouse.down()
        log_step(run, 42, 0.75)
        page.wait_for_timeout(2500)
        page.mouse.up()
        page.wait_for_function("document.querySelector('.cl-onward').innerText.includes('kept when it has ended')")
        page.wait_for_function("document.querySelector('.cl-picture').ariaLabel.includes('0.75')", timeout=15_000)
        assert page.locator(".cl-said").first.inner_text() == said, "what a pointer rests on is still said"
        assert page.evaluate("document.activeElement.dataset.key") in ("Loss", "Loss picture")
        assert [node.evaluate("node => node.isConnected") for node in kept] == [True, True, True]


def test_the_scores_of_a_study_begin_with_binding():
    rows = [
        row("clip", 0, "end", 9, "average", split, "accuracy", value)
        for split, value in {"COMP": 0.9, "BIND": 0.8, "NOUN": 0.7, "REL": 0.6}.items()
    ]
    assert main_scores(rows) == [("BIND", 0.8), ("NOUN", 0.7), ("REL", 0.6)]
    assert study_scores(rows) == [("clip BIND", 0.8)]


def test_baselines_that_carry_a_seed_are_no_trained_methods(tmp_path):
    place = ("end", 9, "generated/sugarcrepe", "mean", "accuracy")
    rows = [
        row(method, seed, *place, value)
        for seed in (0, 1)
        for method, value in (("blind_ngram", 0.6), ("chance", 0.5), ("clip", 0.7), ("negclip", 0.8), ("il_clip", 0.9))
    ]
    names = ["clip", "negclip", "il_clip"]
    assert [name for name, _ in study_scores(rows)] == [f"{name} generated sugarcrepe" for name in names]
    Result({}, rows).write(tmp_path / "study")
    (entry,) = Inventory(tmp_path).look()
    assert entry.method == "clip, negclip, il_clip" and {line["value"] for line in entry.chance} == {0.5}


def test_a_benchmark_is_told_by_its_mean_where_it_has_one():
    asked = {"sugarcrepe": {"add_att": 0.55, "swap_obj": 0.36, "mean": 0.47}, "held out/exchanges": {"mean": 0.54}}
    rows = [
        row("clip", None, None, None, data, split, "accuracy", value)
        for data, splits in asked.items()
        for split, value in splits.items()
    ]
    assert main_scores(rows) == [("sugarcrepe", 0.47), ("exchanges", 0.54)]
    assert study_scores(rows) == [("clip sugarcrepe", 0.47)]
    assert main_scores(rows[:2]) == [("add an attribute", 0.55), ("exchange objects", 0.36)]
    generated = [row("clip", None, None, None, "generated/sugarcrepe", "mean", "accuracy", 0.9)]
    assert main_scores(generated + rows) == [
        ("generated sugarcrepe", 0.9),
        ("sugarcrepe", 0.47),
        ("exchanges", 0.54),
    ]


def test_a_score_of_the_table_says_its_interval_its_questions_and_what_guessing_gets(tmp_path):
    make_run(tmp_path / "clip-s0")
    about = ("held out/exchanges", "mean", "accuracy")
    rows = [row("clip", 0, "end", 40, *about, 0.411, low=0.296, high=0.827, n=50)]
    rows.append(row("chance", None, None, None, *about, 0.5, n=50))
    Result({"rows": {}}, rows).write(tmp_path / "results.json")
    controller = RunsController(tmp_path)
    (line,) = [line for line in asked(controller, "connect")["table"]["rows"] if line["kind"] == "run"]
    text = "the mean over kinds of questions, each counts alike; 95 % interval 29.6 to 82.7, 50 questions; "
    assert line["scores"] == [["exchanges", "41.1", f"{text}guessing gets 50.0"]]


def test_a_mean_over_kinds_with_few_questions_says_that_each_counts_alike(tmp_path):
    make_run(tmp_path / "clip-s0")

    def mean_text(*counts):
        rows = [
            row("clip", 0, "end", 40, "held out/exchanges", split, "accuracy", 0.5, n=n)
            for split, n in zip(("swap_obj", "swap_att", "mean"), (*counts, sum(counts)))
        ]
        Result({"rows": {}}, rows).write(tmp_path / "results.json")
        controller = RunsController(tmp_path)
        asked(controller, "connect")
        asked(controller, "pick", name="clip-s0")
        return asked(controller, "show_panel", panel="scores")["scores"]["asked"]

    assert "The mean counts each kind alike, however few its questions." in mean_text(47, 3)
    assert "counts each kind alike" not in mean_text(30, 20)


def test_a_line_keeps_the_colour_of_its_method_in_any_order_of_the_selection(tmp_path):
    for method in ("clip", "negclip"):
        make_run(tmp_path / f"{method}-s0", method)
    controller = RunsController(tmp_path)
    asked(controller, "connect")

    def colours(*names):
        asked(controller, "pick_these", names=[])
        for name in names:
            shown = asked(controller, "pick", name=name)
        return {line["label"]: line["colour"] for line in shown["curves"]["panels"][0]["series"]}

    both = colours("clip-s0", "negclip-s0")
    assert both == colours("negclip-s0", "clip-s0") and both["clip"] != both["negclip"]
    assert colours("negclip-s0") == {"negclip": both["negclip"]}


def test_settings_that_name_equal_files_do_not_differ(tmp_path):
    for method, text in (("clip", "{}"), ("negclip", "{}"), ("il_clip", '{"part": []}')):
        split = tmp_path / method / "split.json"
        data = {"name": "split", "args": {"file": str(split)}}
        Run.create(tmp_path / method / "runs" / f"{method}-s0", {"method": {"name": method}, "seed": 0, "data": data})
        split.write_text(text)
    entries = {entry.method: entry for entry in Inventory(tmp_path).look() if entry.kind == "run"}

    def differing(*methods):
        return [key for key, _, _ in difference_message([entries[method] for method in methods])[0]["rows"]]

    assert "data.args.file" not in differing("clip", "negclip") and "data.args.file" in differing("clip", "il_clip")
