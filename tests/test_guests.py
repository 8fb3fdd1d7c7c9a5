"""Guests of every kind: a file of its own registers a part, a person names it, and it works where the others do."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import training_runs
from conftest import ROOT
from test_apps_search import fetched, visitor
from test_language_parsing import with_spacy

import complearn
from complearn.analysis.figures import draw, main as draw_main
from complearn.apps.edits.command import main as edit_main
from complearn.apps.parses import main as parses_main
from complearn.core import config, plugins
from complearn.core.config import note_typed
from complearn.core.plugins import Registry
from complearn.core.results import Result, row
from complearn.core.runs import Run
from complearn.data.readers.edits import read_edits
from complearn.data.readers.registry import is_drawn, known_count, portable, read
from complearn.data.word_tokenizer import WordTokenizer
from complearn.evaluation.bench.bench import judge
from complearn.evaluation.bench.monitors import _held_out_pairs
from complearn.evaluation.bench.suites import read_bench
from complearn.evaluation.bench.worlds import StudyData
from complearn.language.edits import sites
from complearn.language.parsing.registry import parse, read_parses
from complearn.models.registry import _write_config, build, load_model, read_model, save_model
from complearn.training.methods.scales import SCALES
from complearn.training.runs.config import RunConfig
from complearn.training.runs.launch import prepare
from complearn.training.runs.study import Study
from complearn.training.runs.sweep import RunFailed, command

GUESTS = Path(__file__).parent / "guests"
plugins.import_declared("app")  # before a test keeps the registries apart
COLOURS = "red\nlime\nblue\nwhite\nblack\nyellow\ncyan\nmagenta"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on Python's path, with a file of colours; what its files register is gone after the test."""
    before = set(sys.modules)
    monkeypatch.setattr(plugins, "ALLOWED", [])
    monkeypatch.setattr(plugins, "_installed", [])
    for registry in Registry.kinds.values():
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
        monkeypatch.setattr(registry, "sources", dict(registry.sources))
    typed = set(config.TYPED)
    config.TYPED.clear()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "colours.txt").write_text(COLOURS)
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if name not in before and str(tmp_path) in str(getattr(module, "__file__", "")):
            del sys.modules[name]
    config.TYPED.clear()
    config.TYPED.update(typed)


@pytest.fixture
def bring(folder):
    """`bring("squares")`: put a guest's file into the folder."""

    def copy(*names):
        for name in names:
            shutil.copy(GUESTS / f"{name}.py", folder)

    return copy


@pytest.mark.parametrize("path", sorted(GUESTS.glob("*.py")), ids=lambda path: path.stem)
def test_a_guest_is_a_file_of_less_than_fifty_lines(path):
    assert len(path.read_text().splitlines()) < 50


def test_what_a_person_typed_is_allowed_and_nothing_else(folder, bring):
    bring("squares")
    with pytest.raises(ValueError, match="reader 'squares:squares' is code from outside complearn.*--allow-code"):
        read("squares:squares", file="colours.txt")
    assert "squares" not in sys.modules
    note_typed('[{"name": "squares:squares", "args": {"file": "C:x"}}]')
    assert len(read("squares:squares", file="colours.txt")) == 8


def test_parameters_of_a_notebook_are_typed_by_a_person(folder):
    cells = [
        'data: str = "generated"  # or my_file:mine',
        '# Parameters\ndata = "squares:squares"\n',
        "check_parameters()",
    ]
    config.check_parameters(cells)
    assert config.TYPED == {"squares:squares"}


def test_a_reader_is_read_through_the_front_door(folder, bring):
    bring("squares")
    pairs = complearn.read("colours.txt", reader="squares:squares", size=8)
    assert [pair.caption for pair in pairs][:2] == ["A red square.", "A lime square."] and pairs[0].image.size == (8, 8)
    part = {"name": "squares:squares", "args": {"file": "colours.txt"}}
    assert len(complearn.read(part, reader="disjoint", exclude=["square 0"])) == 7


def test_a_reader_inside_others_goes_to_another_process_by_its_module(folder, bring):
    bring("squares")
    complearn.read("colours.txt", reader="squares:squares")
    values = {"name": "joined", "args": {"parts": [{"name": "squares", "args": {"file": "colours.txt"}}]}}
    assert portable(values)["args"]["parts"][0]["name"] == "squares:squares"


@pytest.mark.parametrize("name", ["dots", "dots:dots"])
def test_a_reader_that_draws_has_a_world_for_each_seed(folder, bring, name):
    bring("dots")
    note_typed(["dots:dots"])
    assert is_drawn({"name": "dots:dots"}) and not is_drawn({"name": "coco"}) and not is_drawn({"name": "nobody"})
    data = StudyData({"name": name, "args": {"n": 6}}, {}, n=4, ask=lambda world, pairs: {})
    assert data.by_seed and data.source_of(3) == {"name": name, "args": {"n": 6, "seed": 3}}
    assert [len(data.at(seed).train) for seed in (1, 2)] == [6, 6]
    assert data.at(1).train[0].image_id == "dots-1/train-0" and data.at(2).train[0].image_id == "dots-2/train-0"
    assert known_count(name, {"n": 6}) == 6 and known_count("disjoint", {"source": {"name": name, "args": {}}}) == 8
    assert _held_out_pairs(json.dumps({"name": name, "args": {"n": 6}}), 2)[0].image_id == "dots-0/test-0"


def test_a_benchmark_judges_by_its_name_with_and_without_a_label(folder, bring):
    bring("negation")
    asked = {"file": "colours.txt"}
    with pytest.raises(ValueError, match="benchmark 'negation:negation' is code from outside complearn"):
        read_bench({"negation:negation": asked})
    note_typed(["negation:negation", "negation:negation:small"])
    bench = read_bench({"negation:negation": asked, "negation:negation:small": asked})
    assert [len(task.items()) for task in bench.values()] == [8, 8]
    with pytest.raises(ValueError, match="no benchmark 'negotiation'; there are sugarcrepe"):
        read_bench({"negotiation:small": asked})


def test_guests_of_a_run_work_in_a_child_process_and_after_a_kill(folder, bring, warm):
    bring("squares", "stumbling", "brightness", "norms", "tilted")
    note_typed(["squares:squares", "brightness:brightness", "norms:norms", "tilted:tilted"])
    switches = {
        "train": {"every": 2},
        "evaluate": {"brightness": {"name": "brightness:brightness"}},
        "actions": {"norms": {"name": "norms:norms", "every": 3, "args": {"label": "length"}}},
        "stumbling": {"at": 6},
    }
    study = Study(
        folder / "study",
        {"guest": {"method": "stumbling:stumbling"}},
        [0],
        {"name": "squares:squares", "args": {"file": str(folder / "colours.txt")}},
        SCALES["smoke"],
        8,
        {"vision": training_runs.MODEL["vision"], "text": training_runs.MODEL["text"], "kind": "tilted:tilted"},
        training_runs.TRAIN,
        switches,
    )
    with warm.starts():
        with pytest.raises(RunFailed, match="killed by signal 9"):
            study.fit("cpu", 1)
        study.fit("cpu", 1)
    run = Run.open(folder / "study" / "runs" / "guest-s0")
    records = list(run.records())
    steps = [record["step"] for record in records if record["kind"] == "step"]
    assert run.done["step"] == 8 and steps == list(range(1, 9)), "each step is counted once"
    assert len({record["bias"] for record in records if "bias" in record}) == 8, "the learned bias moves"
    assert [record["step"] for record in records if record["kind"] == "length"] == [3, 6]
    asked = [record["rows"][0] for record in records if record["kind"] == "evaluate"]
    assert [row["method"] for row in asked] == ["guest"] * 4 and {row["data"] for row in asked} == {"brightness"}
    model = study.snapshot("guest", 0).model()
    assert type(model).__name__ == "Tilted" and "tilted dual encoder" in (run.path / "model_card.md").read_text()
    words = command(run)
    allowed = {word for flag, word in zip(words, words[1:]) if flag == "--allow-code"}
    assert allowed == {"squares", "stumbling", "brightness", "norms", "tilted"}


@pytest.mark.parametrize("part, name", [
    ("data", "squares:squares"), ("evaluate", "brightness:brightness"), ("actions", "norms:norms"),
])  # fmt: skip
def test_a_guest_that_stands_only_in_a_folder_is_refused(folder, bring, part, name):
    bring("squares", "brightness", "norms")
    made = training_runs.config({"name": "clip", "args": {"steps": 2}}, training_runs.MODEL | {"codebook": None})
    run = prepare(folder / "run", made)
    entry = {"name": name, "args": {}}
    changed = run.config | {part: entry if part == "data" else {"theirs": entry}}
    with pytest.raises(ValueError, match=f"--allow-code {name}"):
        RunConfig.read(changed)
    assert name.partition(":")[0] not in sys.modules


def test_a_kind_of_model_is_saved_and_opened_by_its_module(folder, bring):
    bring("tilted")
    note_typed("tilted:tilted")
    tokenizer = WordTokenizer.fit(["a red square"])
    config = {name: training_runs.MODEL[name] for name in ("vision", "text")}
    model = build({**config, "kind": "tilted:tilted", "tilt": 0.5}, tokenizer)
    assert _write_config(model.config)["kind"] == "tilted:tilted" and read_model(model.config).tilt == 0.5
    save_model(model, folder / "saved", {"name": "mine"})
    assert torch.equal(load_model(folder / "saved").map, model.map)


def test_a_task_asks_the_pairs_of_any_reader(folder, bring):
    bring("squares", "counting")
    note_typed(["squares:squares", "counting:counting"])
    asked = {"task": "counting:counting", "name": "squares:squares", "args": {"file": "colours.txt"}, "split": "mine"}
    bench = read_bench({"task:finite": asked})
    config = {name: training_runs.MODEL[name] for name in ("vision", "text")}
    model = build(config, WordTokenizer.fit(["a red square that is not lime"]))
    (line,) = judge(model, bench, "clip")
    assert (line["data"], line["split"], line["metric"], line["value"], line["n"]) == (
        "task:finite",
        "mine",
        "finite",
        1.0,
        8,
    )


@with_spacy
def test_an_operator_and_a_generator_edit_captions_in_several_processes(folder, bring):
    bring("toy", "shouting")
    Path("captions.txt").write_text("a red dog on a bench\na dog beside a cat\n")
    assert edit_main(["captions.txt", "toys.jsonl", "--quiet", "--operators", "toy:toy", "--workers", "2"]) == 0
    assert all("toy" in record.negatives[0] for record in read_edits("toys.jsonl"))
    words = ["captions.txt", "loud.jsonl", "--quiet", "--operators", "replace_obj", "--generator", "shouting:shouting"]
    assert edit_main([*words, "--model", "horse"]) == 0
    assert {record.negatives[0] for record in read_edits("loud.jsonl")} == {
        "a red horse on a bench",
        "a horse beside a cat",
    }
    with pytest.raises(ValueError, match="operator 'theirs:theirs' is code from outside complearn"):
        sites.operator_names(["theirs:theirs"])


def test_a_parser_parses_by_its_name(folder, bring):
    bring("halves")
    with pytest.raises(ValueError, match="parser 'halves:halves' is code from outside complearn"):
        parse(["a red dog"], "halves:halves")
    Path("captions.txt").write_text("a red dog\n")
    assert parses_main(["captions.txt", "parses.jsonl", "--quiet", "--parser", "halves:halves"]) == 0
    (one,) = read_parses("parses.jsonl")
    assert str(one.tree).split() == "(S (A a) (B (W red) (W dog)))".split() and one.parser == "halves:halves"


@pytest.fixture
def results(folder):
    """A small results file."""
    rows = [row(name, seed, None, None, "toy", "mean", "accuracy", 0.5) for name in "ab" for seed in (0, 1)]
    return Result({}, rows, {}).write(folder)


def test_a_figure_of_a_results_file_is_drawn_by_its_name(results, bring, capsys):
    bring("means")
    with pytest.raises(ValueError, match="figure 'means:means' is code from outside complearn"):
        draw(results, "means:means")
    assert draw_main([str(results), "means:means", "--arguments", "{title: Mine}"]) == 0
    assert str(results.parent / "figures" / "means.html") in capsys.readouterr().out.split()
    assert draw(results, "means:means").data[0].x.tolist() == ["a", "b"]


@pytest.mark.slow
def test_an_app_is_served_by_its_name(results, bring):
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    bring("score_page")
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    env = {**os.environ, "COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "complearn.apps.serving", "score_page:score_page", "--results", str(results)]
    launcher = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", launcher.stdout.readline())[0]
        status, content = fetched(address, visitor())
        assert status == 200 and b"4 numbers" in content
    finally:
        launcher.terminate()
        launcher.wait(20)


def test_an_installed_package_registers_parts_of_every_kind(folder, results, bring):
    names = sorted(path.stem for path in GUESTS.glob("*.py"))
    package = folder / "guest_package"
    package.mkdir()
    (package / "__init__.py").touch()
    for name in names:
        shutil.copy(GUESTS / f"{name}.py", package)
    about = folder / "guest_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: guest-package\nVersion: 1.0\n")
    points = "\n".join(f"{name} = guest_package.{name}" for name in names)
    (about / "entry_points.txt").write_text(f"[complearn.plugins]\n{points}\n")
    found = {what: registry.names() for what, registry in Registry.kinds.items()}
    for what, name in (
        ("method", "stumbling"),
        ("reader", "squares"),
        ("benchmark", "negation"),
        ("task", "counting"),
        ("evaluation", "brightness"),
        ("action", "norms"),
        ("kind of model", "tilted"),
        ("operator", "toy"),
        ("parser", "halves"),
        ("generator", "shouting"),
        ("figure", "means"),
        ("app", "score_page"),
    ):
        assert name in found[what], what
        assert Registry.kinds[what].reference(name) == name, "another process finds it by its name, too"
    assert len(read("squares", file="colours.txt")) == 8 and draw(results, "means").data
    assert len(read_bench({"negation:small": {"file": "colours.txt"}})["negation:small"].items()) == 8


def test_a_broken_package_is_named(folder):
    (folder / "broken_package.py").write_text("raise OSError('no disk')")
    about = folder / "broken_package-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-package\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[complearn.plugins]\nmine = broken_package\n")
    with pytest.raises(OSError, match="no disk") as caught:
        read("nothing_of_ours")
    assert "plug-in of the installed package broken-package; mend or uninstall it" in caught.value.__notes__[0]


def test_guests_go_through_an_experiment(folder, bring, experiment):
    bring("squares", "negation", "norms")
    shutil.copytree(folder, folder / "out", ignore=shutil.ignore_patterns("out"))  # where the notebook runs
    source = {"file": str(folder / "colours.txt"), "size": 32}
    made = experiment(
        "experiments/iterated_learning",
        folder / "out",
        data="squares:squares",
        data_args=json.dumps(source),
        judge=json.dumps({"negation:negation": source}),
        methods='["clip"]',
        seeds="[0]",
        steps=4,
        batch_size=4,
        overlap="keep",
        switches=json.dumps({"actions": {"norms": {"name": "norms:norms", "every": 2}}}),
    )
    assert made.good, made.text
    assert {line["data"] for line in Result.read(folder / "out").rows} >= {"negation:negation"}
    run = Run.open(folder / "out" / "runs" / "clip-s0")
    assert [record["step"] for record in run.records() if record["kind"] == "norm"] == [2, 4]
