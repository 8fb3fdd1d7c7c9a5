"""Guests of every kind: a file of its own registers a part, a person names it, and it works where the others do."""

import shutil
import sys
from pathlib import Path

import pytest
import training_runs

import complearn
from complearn.core import config, plugins
from complearn.core.config import note_typed
from complearn.core.plugins import Registry
from complearn.core.runs import Run
from complearn.data.readers.registry import portable, read
from complearn.evaluation.bench.suites import read_bench
from complearn.training.methods.scales import SCALES
from complearn.training.runs.config import RunConfig
from complearn.training.runs.launch import prepare
from complearn.training.runs.study import Study
from complearn.training.runs.sweep import RunFailed, command

GUESTS = Path(__file__).parent / "guests"
COLOURS = "red\nlime\nblue\nwhite\nblack\nyellow\ncyan\nmagenta"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder on Python's path, with a file of colours; what its files register is gone after the test."""
    names = {path.stem for path in GUESTS.glob("*.py")}
    modules = {name: module for name, module in sys.modules.items() if name not in names}
    monkeypatch.setattr(sys, "modules", modules)
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


def test_guests_of_a_run_work_in_a_child_process_and_after_a_kill(folder, bring):
    bring("squares", "stumbling", "brightness", "norms")
    note_typed(["squares:squares", "brightness:brightness", "norms:norms"])
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
        training_runs.MODEL | {"codebook": None},
        training_runs.TRAIN,
        switches,
    )
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
    words = command(run)
    allowed = {word for flag, word in zip(words, words[1:]) if flag == "--allow-code"}
    assert allowed == {"squares", "stumbling", "brightness", "norms"}


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
