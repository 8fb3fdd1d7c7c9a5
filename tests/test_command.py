"""The command `complearn`: every verb, what its help says, and errors of one line before torch is imported."""

import configparser
import importlib
import inspect
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import albums
import pytest
import torch

import complearn
from complearn import api, command
from complearn.core.caches import write_cache
from complearn.core.files import CACHE_MARK, cache_dir
from complearn.core.plugins import Registry, _declared_names, check_declared
from complearn.core.results import Result
from complearn.core.runs import Run, find, training_process
from complearn.data.divergence.measure import read_split
from complearn.data.fixtures.specimens import write_benchmarks
from complearn.data.readers.edits import review_command, training_command
from complearn.training.runs.snapshots import latest_snapshot, run_data
from complearn.training.runs.sweep import _progress_of

ROOT = Path(__file__).resolve().parents[1]
VERBS = ("demo", "train", "judge", "study", "runs", "report", "open", "edits", "parse", "graph", "split", "review")
VERBS = (*VERBS, "list", "check", "docs", "export", "cache")
OF_API = {"train": api.train, "judge": api.judge, "study": api.study, "runs": api.runs, "export": api.export}
PASSED_ON = {
    "edits": ("complearn.apps.edits.command", []),
    "parse": ("complearn.apps.parses", []),
    "graph": ("complearn.apps.concepts.command", ["graph"]),
    "split": ("complearn.apps.concepts.command", ["split"]),
}
MISTAKES = {
    "train negclp photos": "no method 'negclp' (did you mean 'negclip'?); complearn list method names those",
    "train negclip photos --preset dmeo": "no preset 'dmeo' (did you mean 'demo'?)",
    "train negclip fotos": "there is no {folder}/fotos; give a folder with captions.csv",
    "train negclip photos --batch-size 64": "has 45 lines of captions, which do not fill a batch of 64",
    "train negclip photos --steps many": "Invalid value for '--steps'",
    "train negclip renamed.csv": "line 1: no column 'caption'; there are 'image', 'words'; rename the right one",
    "train negclip moved.csv": "csv line 2: there is no image {folder}/gone.png, nor any of the 2 images named first",
    "judge photos --benchmarks photos --only sugarcrape": "no benchmark 'sugarcrape' (did you mean 'sugarcrepe'?)",
    "train negclip photos --start ViT-B-16:tiny.pt": "tiny.pt holds no weights of ViT-B-16: pixels of a patch: 16",
    "train negclip photos --start ViT-B-32:typo.pt": "there is no {folder}/typo.pt; give the file that holds",
    "judge ViT-B-16:tiny.pt": "judge: tiny.pt holds no weights of ViT-B-16",
    "judge tiny.pt": "tiny.pt is a file of weights, and does not say its model; give MODEL:FILE",
    "judge ViT-B32:tiny.pt": "open_clip has no model 'ViT-B32' (did you mean 'ViT-B-32'?)",
    "study clip photos --start ViT-B-32:typo.pt": "no method 'photos'",
    "study clip --start ViT-B-32:typo.pt": "study: there is no {folder}/typo.pt",
    "train negclip": "Missing argument 'pairs'",
    "train negclip photos --stpes 3": "No such option: --stpes",
    "train negclip photos --switches {a": "parameter switches cannot be read",
    "judge runs/typo": "there is no {folder}/runs/typo; give a run's folder",
    "judge photos --benchmarks dat": "there is no folder {folder}/dat",
    "export runs/typo mine": "there is no {folder}/runs/typo; give a run's folder",
    "export photos mine --form openclip": "no form 'openclip' (did you mean 'open_clip'?)",
    "export photos photos": "{folder}/photos holds files already; name another folder",
    "export photos mine.bin --form pt": "the form pt is a file whose name ends with .pt; mine.bin does not",
    "study clp": "no method 'clp' (did you mean 'clip'?)",
    "study no_such.ipynb": "there is no notebook no_such.ipynb; there are",
    "study iterated_learning.ipynb --preset dmo": "no preset 'dmo' (did you mean 'demo'?)",
    "study iterated_learning.ipynb -p preset": "a notebook's parameter is NAME=VALUE, not 'preset'",
    "study clip -p steps=3": "--parameter belongs to a notebook",
    "study iterated_learning.ipynb --seeds 3 --pairs photos --json": "takes no --pairs, --seeds, --json; give its",
    "study clip --benchmarks photos": "study: benchmarks are named with their readers, as {{swaps: {{name: folder",
    "judge photos --limit 3 --probe": "judge: limit, probe belongs to a folder of benchmarks, and none is named",
    "export photos mine --alpha 0.3": "an average with the start, and there is no start; name one",
    "runs fotos": "fotos is not a folder",
    "report fotos": "there is no {folder}/fotos",
    "open code": "no app 'code' (did you mean 'codes'?)",
    "open codes --runs fotos": "--runs fotos: there is no {folder}/fotos",
    "open codes --runs photos": "--runs photos holds no run; a run is a folder with a config.json",
    "open": "results is not a folder",
    "edits caption.csv out.jsonl": "edits caption.csv: there is no {folder}/caption.csv",
    "parse caption.csv out.jsonl": "parse caption.csv: there is no {folder}/caption.csv",
    "graph caption.csv out": "graph caption.csv: there is no {folder}/caption.csv",
    "split caption.csv out.json": "split caption.csv: there is no {folder}/caption.csv",
    "review negatives.jsonl": "review: there is no {folder}/negatives.jsonl; make it: complearn edits captions.csv",
    "list methods": "no kind 'methods' (did you mean 'method'?)",
    "check fotos": "check fotos: there is no {folder}/fotos",
    "trian negclip photos": "No such command 'trian'",
}


@pytest.fixture(scope="module")
def trained(album, tmp_path_factory):
    "The folder of four steps of NegCLIP, and what the command printed."
    out = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("complearn.training.runs.study.run_all", albums.train_here)
        words = ["train", "negclip", str(album), "--preset", "smoke", "--steps", "4", "--device", "cpu"]
        assert command.main([*words, "--out", str(out)]) == 0
    return out


def test_what_a_run_shows_are_the_photos_that_were_held_out(trained):
    (run,) = find(trained)
    shown = latest_snapshot(run).pairs()
    split = read_split(trained / "split.json")
    assert shown and {pair.image_id for pair in shown} == set(split.parts["test"])
    assert not {pair.image_id for pair in shown} & {pair.image_id for pair in run_data(run)}


def many(lists, cwd):
    "Run the command on lists of words in one process; status, output and errors of each, and whether torch came."
    script = "import contextlib, io, json, sys\nfrom complearn.command import main\nanswers = []\n"
    script += "for words in json.load(sys.stdin):\n    out, err = io.StringIO(), io.StringIO()\n"
    script += (
        "    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):\n        status = main(words)\n"
    )
    script += "    answers.append([status, out.getvalue(), err.getvalue(), 'torch' in sys.modules])\n"
    script += "print(json.dumps(answers))\n"
    env = os.environ | {"COMPLEARN_TYPECHECK": "0", "COLUMNS": "100"}
    given = json.dumps(lists)
    done = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, text=True, cwd=cwd, env=env)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_mistakes_are_one_line_with_status_2_before_torch_is_imported(album):
    (album.parent / "renamed.csv").write_text("image,words\na.png,a red circle\n")
    (album.parent / "moved.csv").write_text("image,caption\ngone.png,a red circle\ngone too.png,a blue one\n")
    torch.save({"visual.conv1.weight": torch.zeros(8, 3, 32, 32)}, album.parent / "tiny.pt")
    answers = many([mistake.split() for mistake in MISTAKES], album.parent)
    for (mistake, expected), (status, out, err, torch_is_there) in zip(MISTAKES.items(), answers, strict=True):
        assert (status, out, torch_is_there) == (2, "", False), (mistake, out, err)
        assert err.startswith("complearn: ") and err.count("\n") == 1 and "Traceback" not in err, mistake
        assert expected.format(folder=album.parent) in err, (mistake, err)


def test_the_help_of_every_verb_has_an_example_and_imports_no_torch(tmp_path):
    typed = [verb for verb in VERBS if verb not in PASSED_ON]
    top, *helps = many([["--help"], *([verb, "--help"] for verb in typed)], tmp_path)
    assert all(verb in top[1] for verb in VERBS) and not top[3]
    for verb, (status, out, err, torch_is_there) in zip(typed, helps):
        assert status == 0 and not err and not torch_is_there, verb
        assert f"complearn {verb}" in out and ("Example: complearn" in out or verb == "demo"), verb


def test_docs_builds_the_site_where_the_sources_are(tmp_path, monkeypatch, capsys):
    started = []

    def run(words):
        started.append(words[1:])
        return subprocess.CompletedProcess(words, 3)

    monkeypatch.setattr(command.subprocess, "run", run)
    assert command.main(["docs", str(tmp_path)]) == 3
    assert started == [[str(ROOT / "docs" / "build.py"), str(tmp_path)]]
    monkeypatch.setattr(command.api, "__file__", str(tmp_path / "complearn" / "api.py"))
    assert command.main(["docs"]) == 2
    assert "built from a copy of the repository" in capsys.readouterr().err


def test_no_word_at_all_shows_the_help(capsys, monkeypatch):
    "It was shown as an error."
    assert command.main([]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: complearn") and not shown.err
    monkeypatch.setattr(sys, "argv", ["complearn"])
    assert command.main() == 0 and capsys.readouterr().out == shown.out


def test_a_warning_is_one_line_and_said_once(capsys, monkeypatch):
    def runs(*args, **options):
        for line in ("few pairs", "few pairs", "no chance"):
            warnings.warn(line, stacklevel=1)
            warnings.warn(line, stacklevel=2)
        return 0

    before = warnings.showwarning
    monkeypatch.setattr(command, "app", runs)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", before)
        assert command.main(["runs"]) == 0
    assert capsys.readouterr().err.splitlines() == ["warning: few pairs", "warning: no chance"]
    assert warnings.showwarning is before


@pytest.mark.parametrize("verb", list(OF_API))
def test_a_verb_has_the_parameters_of_its_function(verb):
    function = OF_API[verb]
    comments = command.parameter_comments(function)
    own = inspect.signature(function).parameters
    parameters = {parameter.name: parameter for parameter in command.command_parameters(function)}
    assert list(comments) == list(own) and set(parameters) == set(own)
    for name, parameter in parameters.items():
        hint = parameter.annotation.__metadata__[0]
        assert hint.help == comments[name] != "", f"{verb}: {name} has no comment"
        default = own[name].default
        assert parameter.default == ([] if default == () else default)


@pytest.mark.parametrize("verb", list(PASSED_ON))
def test_words_are_handed_to_commands_of_their_own(verb, album, monkeypatch):
    module, before = PASSED_ON[verb]
    given = []
    monkeypatch.setattr(importlib.import_module(module), "main", lambda words: given.append(words) or 3)
    words = [str(album / "captions.csv"), "out", "--seed", "4", "-q"]
    assert command.main([verb, *words]) == 3
    assert given == [[*before, *words]]


def test_the_help_of_a_command_of_its_own_is_shown(capsys):
    for verb in PASSED_ON:
        with pytest.raises(SystemExit) as ended:
            command.main([verb, "--help"])
        assert ended.value.code == 0 and "captions" in capsys.readouterr().out


def test_the_console_script_is_the_command():
    config = configparser.ConfigParser(delimiters=["="], interpolation=None)
    config.read(ROOT / "settings.ini", encoding="utf-8")
    name, _, place = config["DEFAULT"]["console_scripts"].partition("=")
    module, _, function = place.partition(":")
    assert name == "complearn" and getattr(importlib.import_module(module), function) is command.main
    assert 'cfg["console_scripts"].split()' in (ROOT / "setup.py").read_text()
    done = subprocess.run([sys.executable, "-m", "complearn", "list"], capture_output=True, text=True, cwd="/")
    assert done.returncode == 0 and "method\n" in done.stdout


def test_what_is_kept_is_shown_and_deleted_on_request(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("COMPLEARN_CACHE", str(tmp_path))
    for kind, size in (("maps", 3 * 2**20), ("features", 2**19)):
        write_cache(cache_dir(kind) / "a", bytes(size))
    assert command.main(["cache"]) == 0
    out = capsys.readouterr().out
    assert "maps " in out and "3.0 MB" in out and f"in {tmp_path}; each kind may take 32 GB" in out
    assert "answers of language models" not in out
    write_cache(cache_dir("generators") / "a.json", b"{}")
    assert command.main(["cache"]) == 0 and "take more, and stay until --clear" in capsys.readouterr().out
    assert command.main(["cache", "generators", "--clear"]) == 0 and capsys.readouterr()
    assert command.main(["cache", "maps", "--clear"]) == 0
    assert f"3.0 MB deleted from {tmp_path}" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "maps").iterdir()] == [CACHE_MARK]
    assert command.main(["cache", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(each["kind"], each["entries"], each["bytes"]) for each in told["kinds"]] == [("features", 1, 2**19)]
    assert command.main(["cache", "map"]) == 2 and "no kind of cache 'map'" in capsys.readouterr().err


def test_photos_are_trained_on_and_asked_about_in_one_line(trained, album, capsys):
    words = ["train", "negclip", str(album), "--preset", "smoke", "--steps", "4", "--device", "cpu", "--out"]
    assert command.main([*words, str(trained)]) == 0
    out = capsys.readouterr().out
    assert "41 captions of 41 images, and 4 images held out for questions; 4 steps of 41 pairs" in out
    assert "held out/retrieval" in out and "held out/exchanges" in out and "gallery" in out and "chance" in out
    assert f"complearn judge {trained}/runs/negclip-s0 --benchmarks DATA" in out and "complearn open search" in out
    assert (trained / "negclip-s0.results.json").exists() and (trained / "negclip-s0.report.html").exists()
    capsys.readouterr()
    assert command.main([*words, str(trained), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["run"] == str(trained / "runs" / "negclip-s0")
    assert {"negclip", "chance"} <= {row["method"] for row in told["rows"]}


def test_a_pretrained_clip_is_judged_before_and_after(album, tmp_path, here, capsys):
    pytest.importorskip("open_clip")
    folder = albums.write_open_clip(tmp_path / "model")
    words = ["train", "clip", str(album), "--start", str(folder), "--frozen", "vision", "--steps", "2"]
    assert command.main([*words, "--device", "cpu", "--out", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "from pretrained towers; lr 1e-05" in out and "the temperature is that of the pretrained CLIP" in out
    header = next(line for line in out.splitlines() if "chance" in line)
    assert header.split()[:3] == ["start", "clip", "chance"]
    assert Run.open(tmp_path / "out" / "runs" / "clip-s0").config["model"]["vision"]["frozen"]


def test_a_start_is_judged_with_the_activation_that_it_is_trained_with(trained, monkeypatch):
    "Both sets of questions, whose settings are joined by data set and by model."
    asked = []

    def judge(models, benchmarks=None, **how):
        asked.append(how)
        data = "sugarcrepe" if benchmarks else "held out/retrieval"
        setting = {
            "models": [{"method": name} for name in models],
            "questions": {data: 4},
            "overlap": {"policy": "drop", "report": {"negclip": f"of {data}"}, "dropped": {data: 1}, "not checked": {}},
            "blind_ngram": {"captions": len(data)},
            "captions_cut": {"negclip": {data: {"captions": 4, "cut": 0}}},
        }
        return Result(setting, [])

    monkeypatch.setattr(command.api, "judge", judge)
    given = {"start": "ViT-B-32:mine.pt", "average": None, "hold_out": 0.1, "device": "cpu", "quick_gelu": True}
    (run,) = find(trained)
    setting = command._ask_trained(run, given, "data/").setting
    assert asked == 2 * [{"device": "cpu", "quick_gelu": True}]
    counts = {"held out/retrieval": 4, "sugarcrepe": 4}
    assert setting["questions"] == counts and set(setting["captions_cut"]["negclip"]) == set(counts)
    overlap = {"policy": "drop", "dropped": dict.fromkeys(counts, 1), "not checked": {}}
    assert setting["overlap"] == {**overlap, "report": {"negclip": "of held out/retrieval; of sugarcrepe"}}
    assert setting["blind_ngram"] == {"own questions": {"captions": 18}, "benchmarks": {"captions": 10}}
    assert len(setting["models"]) == 2 and setting["configuration"] == run.config


def test_runs_are_judged_listed_and_checked(trained, tmp_path, capsys):
    run = str(trained / "runs" / "negclip-s0")
    assert command.main(["judge", run, "--device", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    expected = [row for row in complearn.judge(run, device="cpu").rows if row["method"] == "negclip"]
    assert [row for row in rows if row["method"] == "negclip"] == expected
    assert command.main(["judge", run, "--device", "cpu"]) == 0 and "next: the same command with --out" in (
        capsys.readouterr().out
    )
    assert command.main(["judge", run, "--device", "cpu", "--out", str(tmp_path / "kept")]) == 0
    told = capsys.readouterr().out
    for name in ("results.json", "results.report.html"):
        assert str(tmp_path / "kept" / name) in told and (tmp_path / "kept" / name).is_file()
    assert command.main(["judge", run, "--device", "cpu", "--out", str(tmp_path / "mine.json")]) == 0
    assert f"the numbers: {tmp_path / 'mine.json'}\n" in capsys.readouterr().out and (tmp_path / "mine.json").is_file()
    assert command.main(["runs", str(trained)]) == 0 and "negclip" in capsys.readouterr().out
    assert command.main(["runs", str(trained), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "done"
    assert command.main(["check", run]) == 0 and "method negclip, seed 0: done, 4 steps" in capsys.readouterr().out


def test_stages_are_not_opened_where_no_run_has_any(trained, capsys):
    assert command.main(["open", "stages", "--runs", str(trained)]) == 2
    assert "no run in" in (said := capsys.readouterr().err) and "has stages (negclip)" in said


def test_benchmarks_are_recognised_and_the_folder_of_one_names_the_folder_above(tmp_path, capsys):
    write_benchmarks(tmp_path)
    assert command.main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith(f"{tmp_path}: benchmarks\n")
    assert command.main(["check", str(tmp_path / "sugarcrepe")]) == 0
    line = f"complearn judge ViT-B-32:mine.pt --benchmarks {tmp_path} --only sugarcrepe"
    assert line in capsys.readouterr().out


def test_what_is_wrong_with_a_place_is_said_with_status_1(album, trained, tmp_path, capsys):
    kinds = {
        album: "images with captions",
        album / "captions.csv": "captions",
        trained: "a folder of runs",
        trained / "split.json": "a split of a data set",
        trained / "negclip-s0.results.json": "results",
    }
    for place, kind in kinds.items():
        assert command.main(["check", str(place), "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["kind"] == kind
    assert command.main(["check", str(trained)]) == 0
    assert f"complearn open search --runs {trained}" in capsys.readouterr().out  # NegCLIP has no codes to open
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "captions.csv").write_text("image,caption\nnone.png,a red dog\n")
    assert command.main(["check", str(broken)]) == 1
    assert "image 'none.png' not found" in capsys.readouterr().out
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"method": {"na')
    assert command.main(["check", str(tmp_path / "run")]) == 1
    assert "config.json cannot be read" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["method", "reader", "app", "benchmark", "preset", "operator"])
def test_the_parts_of_a_kind_are_listed(kind):
    parts = command.list_parts(kind)
    assert set(parts) == set(Registry.kinds[kind].names()) and len(parts) > 2
    assert set(_declared_names(kind)) <= set(parts)
    assert kind in command.list_parts()


@pytest.mark.parametrize("kind", ["method", "reader", "app"])
def test_every_name_that_is_registered_is_known_before_its_import(kind, monkeypatch):
    names = set(command.list_parts(kind))
    monkeypatch.setattr(Registry, "kinds", {})
    for name in names:
        check_declared(kind, name)
    with pytest.raises(ValueError, match=f"no {kind} 'nothing'; complearn list {kind} names those"):
        check_declared(kind, "nothing")


def test_methods_are_studied_and_reported(album, tmp_path, here, capsys):
    words = ["study", "clip", "negclip", "--pairs", str(album), "--preset", "smoke", "--steps", "2", "--device", "cpu"]
    assert command.main([*words, "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "held out/retrieval" in out and "negclip" in out and (tmp_path / "results.json").exists()
    assert command.main(["report", str(tmp_path)]) == 0
    assert str(tmp_path / "results.report.html") in capsys.readouterr().out
    page = (tmp_path / "results.report.html").read_text()
    assert "held out/retrieval" in page and "negclip" in page and "prefers-color-scheme" in page


@pytest.mark.parametrize("words", [["train"], ["train", "clip"]])
def test_a_missing_argument_names_the_help_of_its_command(words, capsys):
    assert command.main(words) == 2
    assert "(complearn train --help says more)" in capsys.readouterr().err


def test_the_kernel_of_the_demo_does_not_warn_of_its_socket():
    text = (
        "from jupyter_client.manager import start_new_kernel; manager, client = start_new_kernel();"
        "client.execute_interactive('print(6 * 7)');"
        "client.stop_channels(); manager.shutdown_kernel()"
    )
    env = {**os.environ, "JUPYTER_PATH": str(ROOT / "nbs"), "JUPYTER_PREFER_ENV_PATH": "1"}
    ended = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, timeout=120)
    assert ended.stdout.strip() == "42" and "IPKernelApp" not in ended.stderr, ended.stderr


def test_a_notebook_is_run_through_papermill(tmp_path, monkeypatch, capsys):
    called = []

    def run(words, **options):
        called.append(words[2:])
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(command.subprocess, "run", run)
    pages = []
    monkeypatch.setattr("complearn.analysis.runs.notebook_page.write_notebook_page", pages.append)
    words = ["study", "iterated_learning.ipynb", "--preset", "smoke", "-p", 'methods=["clip"]', "--out", str(tmp_path)]
    assert command.main(words) == 0
    notebook = ROOT / "nbs" / "experiments" / "iterated_learning.ipynb"
    report = str(tmp_path / "report.ipynb")
    given = ["-p", "preset", "smoke", "-p", "out_dir", str(tmp_path), "-p", "methods", '["clip"]']
    assert called[0] == ["papermill", str(notebook), report, "-k", "python3", *given]
    assert pages == [tmp_path / "report.ipynb"], "what ran becomes a page"
    assert f"python -m papermill {notebook} {report}" in capsys.readouterr().out
    assert command.main(["demo", "--out", str(tmp_path)]) == 0
    assert called[1][:2] == ["papermill", str(notebook)] and called[1][6:8] == ["preset", "demo"]


def test_open_alone_shows_the_page_of_all_runs(tmp_path, monkeypatch, capsys):
    given = []
    monkeypatch.setattr("complearn.apps.serving.main", given.append)
    (tmp_path / "results").mkdir()
    monkeypatch.chdir(tmp_path)
    assert command.main(["open"]) == 0 and command.main(["open", "runs"]) == 0
    assert command.main(["open", "--runs", str(tmp_path)]) == 0, "also where no run is yet"
    assert capsys.readouterr().out.count("runs: starting its server") == 3, "said before the server answers"
    assert given == [["runs", "--runs", "results"], ["runs", "--runs", "results"], ["runs", "--runs", str(tmp_path)]]


def test_an_app_is_served_with_its_options(album, trained, monkeypatch):
    given = []
    monkeypatch.setattr("complearn.apps.serving.main", given.append)
    assert command.main(["open", "search", "--runs", str(trained), "--gallery", str(album)]) == 0
    assert given == [["search", "--runs", str(trained), "--gallery", str(album)]]
    assert command.main(["open", "search", "--runs", str(trained), "--view", "text=a red cup"]) == 0
    assert given.pop() == ["search", "--runs", str(trained), "--view", "text=a red cup"]
    both = ["--runs", str(trained), "--runs", str(trained.parent)]
    assert command.main(["open", "map", *both]) == 0 and given.pop() == ["map", *both]
    assert command.main(["review", str(album / "captions.csv")]) == 0
    assert given.pop() == ["review", "--edits", str(album / "captions.csv")]
    assert command.main(["review", str(album / "captions.csv"), "--captions", str(album)]) == 0
    assert given.pop() == ["review", "--edits", str(album / "captions.csv"), "--captions", str(album)]


def test_what_an_app_cannot_use_is_one_line_that_names_the_command(album, capsys, monkeypatch):
    # what is not refused would be served until somebody ends it
    monkeypatch.setattr("complearn.apps.serving.serving", None)
    with pytest.raises(SystemExit) as ended:
        command.main(["open", "concepts", "--gallery", str(album)])
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert said == "complearn open: --gallery belongs to codes, map, search and stages; leave it out for concepts\n"
    for verb in ("graph", "split", "edits", "parse"):
        with pytest.raises(SystemExit):
            command.main([verb])
        assert f"complearn {verb}: error:" in capsys.readouterr().err


def test_the_line_that_check_prints_of_edits_trains_on_them(album, tmp_path, here, monkeypatch, capsys):
    photos = shutil.copytree(album, tmp_path / "my photos")
    path = photos / "negatives.reviewed.jsonl"
    texts = [pair.caption for pair in complearn.read(photos)]
    about = [{"id": str(number), "image_id": f"{number}.png"} for number in range(len(texts))]
    lines = [of | {"caption": text, "negatives": [f"{text} and no hat"]} for of, text in zip(about, texts)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert command.main(["check", str(path)]) == 0
    review, train = (line.strip() for line in capsys.readouterr().out.splitlines()[-2:])
    assert shlex.split(review) == ["complearn", "review", str(path), "--captions", str(photos)], (
        "the pictures are shown"
    )
    assert review == review_command(path) and train == training_command(path)
    assert review_command(tmp_path / "elsewhere.jsonl") == f"complearn review {tmp_path / 'elsewhere.jsonl'}"
    words = shlex.split(train)
    assert words[:3] == ["complearn", "train", "negclip"] and f"folder: {json.dumps(str(photos))}" in words[3]
    monkeypatch.chdir(tmp_path)
    assert command.main([*words[1:], "--preset", "smoke", "--steps", "2", "--out", "mine"]) == 0
    run = Run.open(tmp_path / "mine" / "runs" / "negclip-s0")
    assert all(pair.negatives[0].endswith(" and no hat") for pair in run_data(run))
    assert "photos/" in training_command(tmp_path / "elsewhere.jsonl"), "where no table is known"
    other = photos / "more.csv"
    other.write_text((photos / "captions.csv").read_text())
    assert "captions_file: more.csv" in training_command(path, other)


def test_codes_are_not_served_where_no_run_has_a_codebook(album, trained, tmp_path, monkeypatch, capsys):
    "A page was served, and said so there."
    given = []
    monkeypatch.setattr("complearn.apps.serving.main", given.append)
    assert command.main(["open", "codes", "--runs", str(trained)]) == 2
    said = capsys.readouterr().err
    assert f"open codes: no run in {trained} has a codebook (negclip); train one: complearn train" in said
    assert command.main(["open", "codes", "--runs", str(album)]) == 2
    assert f"--runs {album} holds no run" in capsys.readouterr().err
    assert not given
    Run.create(tmp_path / "codes-s0", {"method": {"name": "codebook_clip"}, "model": {"codebook": {"codes": 8}}})
    assert command.main(["open", "codes", "--runs", str(tmp_path)]) == 0
    assert given == [["codes", "--runs", str(tmp_path)]]


def test_an_error_of_the_work_has_status_1_and_a_traceback_if_asked_for(album, tmp_path, monkeypatch, capsys):
    def fail(*arguments, **options):
        raise RuntimeError("run clip-s0 ended with exit code 1")

    monkeypatch.setattr("complearn.training.runs.study.run_all", fail)
    words = ["train", "clip", str(album), "--preset", "smoke", "--out", str(tmp_path)]
    assert command.main(words) == 1
    assert capsys.readouterr().err.endswith("complearn: run clip-s0 ended with exit code 1\n")
    with pytest.raises(RuntimeError):
        command.main(["--traceback", *words])


def test_an_interruption_says_how_to_go_on(album, tmp_path, monkeypatch, capsys):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("complearn.training.runs.study.run_all", stop)
    assert command.main(["train", "clip", str(album), "--preset", "smoke", "--out", str(tmp_path)]) == 130
    assert capsys.readouterr().err.endswith("interrupted; the same command goes on where it stopped\n")


@pytest.mark.slow
@pytest.mark.parametrize("asked, status", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_training_that_was_interrupted_goes_on_with_the_same_command(album, tmp_path, asked, status):
    line = f"train negclip {album} --preset smoke --steps 300 --device cpu --hold-out 0 --out {tmp_path}"
    words = [sys.executable, "-m", "complearn", *line.split()]
    run = tmp_path / "runs" / "negclip-s0"

    def hear():  # tests that a shell runs in the background start with an interruption that is ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, preexec_fn=hear)
    until = time.monotonic() + 600
    while time.monotonic() < until and not ((run / "metrics.jsonl").exists() and _progress_of(Run.open(run)) > 20):
        time.sleep(0.02)
    process.send_signal(asked)
    _, said = process.communicate(timeout=300)
    assert training_process(run) is None, "what was started for it has ended, too"
    assert process.returncode == status and "the same command goes on where it stopped" in said
    assert Run.open(run).done is None
    before = _progress_of(Run.open(run))
    done = subprocess.run(words, check=True, capture_output=True, text=True, timeout=600)
    assert f"the run:     {run}" in done.stdout
    steps = [record["step"] for record in Run.open(run).records() if record["kind"] == "step"]
    assert Run.open(run).done["step"] == 300 and steps == list(range(1, 301)) and 20 < before < 300
