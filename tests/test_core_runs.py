import errno
import json
import resource
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT
from hypothesis import given, settings, strategies as st

from complearn.core import files, runs as module
from complearn.core.checksums import LIST, DamagedFile, write_listed
from complearn.core.files import write_json
from complearn.core.journals import parts_file
from complearn.core.runs import Run, differences, find

CONFIG = {
    "method": {"name": "clip", "args": {"steps": 4}},
    "model": {"width": 96, "vision": "tiny"},
    "train": {"lr": 1e-3},
    "seed": 0,
}


def test_the_same_configuration_opens_the_same_run(tmp_path):
    first = Run.create(tmp_path / "a", {**CONFIG, "sizes": (1, 2), "seed": np.int64(0)})
    again = Run.create(tmp_path / "a", {**CONFIG, "sizes": [1, 2]})
    assert first.config == again.config == {**CONFIG, "sizes": [1, 2]} and first.provenance == again.provenance
    assert Run.open(tmp_path / "a").config == first.config
    assert set(first.provenance) == {"code", "versions", "time", "process"}


def test_another_configuration_is_refused_by_the_names_of_what_differs(tmp_path):
    Run.create(tmp_path / "a", CONFIG).log({"step": 1})
    other = json.loads(json.dumps(CONFIG))
    other["train"]["lr"] = 0.1
    other["ema"] = 0.99
    del other["model"]["vision"]
    with pytest.raises(FileExistsError) as caught:
        Run.create(tmp_path / "a", other)
    for text in (
        "train.lr: 0.001 there, 0.1 asked for",
        "ema: null there, 0.99 asked for",
        'model.vision: "tiny" there, null asked for',
    ):
        assert text in str(caught.value)
    assert "seed" not in str(caught.value) and "Choose another folder" in str(caught.value)
    assert Run.open(tmp_path / "a").config == CONFIG and len(Run.open(tmp_path / "a").metrics()) == 1


def test_a_new_code_version_is_the_same_run(tmp_path, monkeypatch):
    Run.create(tmp_path / "a", CONFIG)
    monkeypatch.setattr(module, "code_version", lambda: "9.9.9+0")
    assert Run.create(tmp_path / "a", CONFIG).provenance["code"] != "9.9.9+0"


def test_a_run_says_which_versions_trained_it(tmp_path, monkeypatch):
    run = Run.create(tmp_path / "a", CONFIG)
    begun = run.provenance["code"]
    assert run.note_versions() == "" and run.code == begun and not (tmp_path / "a" / "continued.jsonl").exists()
    (tmp_path / "a" / "checkpoints" / "step-00000040").mkdir(parents=True)
    monkeypatch.setattr(module, "code_version", lambda: "9.9.9+0")
    message = run.note_versions()
    assert "goes on from step 40" in message and f'code: "{begun}" there, "9.9.9+0" asked for' in message
    assert run.note_versions() == "" and Run(tmp_path / "a").code == f"{begun}, and 9.9.9+0 from step 40"
    monkeypatch.setattr(module, "versions", lambda: {**run.provenance["versions"], "torch": "99"})
    assert "versions.torch: " in run.note_versions() and run.code == f"{begun}, and 9.9.9+0 from step 40"
    other = Run.create(tmp_path / "b", CONFIG)  # which took no step with this version
    monkeypatch.setattr(module, "code_version", lambda: "10.0+0")
    assert "from step 0" in other.note_versions() and other.code == "10.0+0"
    begun_again = other.replace({**CONFIG, "seed": 9})
    assert begun_again.code == "10.0+0" and begun_again.note_versions() == ""
    content = (tmp_path / "a" / "continued.jsonl").read_text()
    (tmp_path / "a" / "continued.jsonl").write_text(content.replace('"step": 40', '"step": 10'))
    with pytest.raises(DamagedFile, match="continued.jsonl: line 1, 2 is not as it was written"):
        run.code  # noqa: B018


@pytest.mark.parametrize("make", ["absent", "empty", "file", "foreign config", "broken config"])
def test_what_is_not_a_run_says_what_a_run_is(tmp_path, make):
    folder = tmp_path / "x"
    if make == "file":
        folder.write_text("")
    elif make != "absent":
        folder.mkdir()
    if make == "foreign config":
        write_json(folder / "config.json", {"architectures": ["Bert"]})
    if make == "broken config":
        (folder / "config.json").write_text("{")
    kind = {"foreign config": ValueError, "broken config": ValueError}.get(make, FileNotFoundError)
    with pytest.raises(
        kind, match="config.json" if make == "broken config" else "is not a run.*a run is a folder with a config.json"
    ):
        Run.open(folder)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="not empty and holds no run"):
        Run.create(tmp_path, CONFIG)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_reserved_and_unwritable_keys(tmp_path):
    with pytest.raises(ValueError, match="'made'"):
        Run.create(tmp_path / "a", {"made": 1})
    with pytest.raises(TypeError, match=r"config\.train\.schedule is a function"):
        Run.create(tmp_path / "a", {"train": {"schedule": lambda step: 1.0}})
    assert not (tmp_path / "a").exists()


RECORDS = [{"step": i, "phase": "distil", "loss": 1 / i, "note": "naïve – ünïcode"} for i in range(1, 4)]


def test_a_tear_at_every_byte_of_the_last_line(tmp_path):
    """Wherever the last line is torn, the reader gives the whole ones, and the next record is read back."""
    run = Run.create(tmp_path / "a", CONFIG)
    path = tmp_path / "a" / "metrics.jsonl"
    for record in RECORDS:
        before = parts_file(path).read_bytes() if path.exists() else b""
        run.log(record)
    whole = path.read_bytes()
    start = whole[:-1].rfind(b"\n") + 1
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        parts_file(path).write_bytes(before)  # a digest comes after its line
        again = Run.open(tmp_path / "a")
        assert again.records() == RECORDS[:2] and again.metrics().step.tolist() == [1, 2]
        again.log({"step": 9})
        assert again.records() == [*RECORDS[:2], {"step": 9}]


def test_a_log_that_was_changed_is_named_and_one_that_was_cut_goes_on(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    for record in RECORDS:
        run.log(record)
    path = tmp_path / "a" / "metrics.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"step": 2', b'"step": 7'))
    for read in (
        run.records,
        run.metrics,
        lambda: Run.open(run.path).log({"step": 4}),
        lambda: run.truncate_metrics(2),
    ):
        with pytest.raises(DamagedFile, match="metrics.jsonl: line 1 to 3 .*from a copy.*delete metrics.jsonl.parts"):
            read()
    path.write_bytes(whole[: whole.index(b"\n") + 1])
    with pytest.raises(DamagedFile, match="line 1 to 3 is not as it was written, or gone"):
        run.records()
    assert run.truncate_metrics(2) == 0 and run.records() == RECORDS[:1]
    run.log({"step": 2})
    assert run.records() == [RECORDS[0], {"step": 2}]
    parts_file(path).unlink()  # as an older version left it
    path.write_bytes(whole)
    assert Run.open(run.path).records() == RECORDS


def test_a_broken_line_in_the_middle_is_named(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    (tmp_path / "a" / "metrics.jsonl").write_text('{"step": 1}\nnot json\n{"step": 2}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl line 2 is not a JSON object: b'not json'; delete that line"):
        run.metrics()


def test_metrics_of_a_run_that_has_none(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    assert run.metrics().empty and run.records() == [] and run.phases() == [] and run.checkpoints() == []
    assert run.truncate_metrics(3) == 0


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), st.integers(0, 20)), max_size=12), st.integers(0, 20))
def test_truncation_keeps_what_is_not_after_the_step(tmp_path_factory, steps, last):
    run = Run.create(tmp_path_factory.mktemp("run") / "a", CONFIG)
    for step in steps:
        run.log({"step": step} if step is not None else {"event": "resumed"})
    dropped = run.truncate_metrics(last)
    kept = [record.get("step") for record in run.records()]
    assert kept == [step for step in steps if step is None or step <= last] and dropped == len(steps) - len(kept)


def test_not_a_number_is_written_as_null(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    run.log({"step": 1, "loss": float("nan"), "norm": np.float32("inf")})
    assert run.records() == [{"step": 1, "loss": None, "norm": None}]
    assert "NaN" not in (tmp_path / "a" / "metrics.jsonl").read_text()
    run.log({"step": 2, "loss": 0.5})
    assert run.metrics().loss.dtype == float and np.isnan(run.metrics().loss[0])


def test_a_line_that_does_not_fit_leaves_the_file_as_it_was(tmp_path):
    """A real partial write: the process may write 2,000 bytes to a file and no more."""
    Run.create(tmp_path / "a", CONFIG)
    code = """
import resource, signal, sys
from complearn.core.runs import Run
run = Run.open(sys.argv[1])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, resource.RLIM_INFINITY))
try:
    for step in range(100):
        run.log({"step": step, "filling": "x" * 300})
except OSError as error:
    print(step, error.strerror)
"""
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, str(tmp_path / "a")], cwd=ROOT, capture_output=True, text=True
    )
    step, said = done.stdout.strip().split(" ", 1)
    assert "no space left while writing" in said and "metrics.jsonl" in said, done.stderr
    data = (tmp_path / "a" / "metrics.jsonl").read_bytes()
    assert data.endswith(b"\n") and len(data) < 2000
    assert [record["step"] for record in Run.open(tmp_path / "a").records()] == list(range(int(step)))
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 2000  # the limit was the other process's alone


def test_no_space_left_at_creation_leaves_no_half_run(tmp_path, monkeypatch):
    def full(handle):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"no space left while writing .*config\.json"):
        Run.create(tmp_path / "a", CONFIG)
    monkeypatch.undo()
    assert Run.create(tmp_path / "a", CONFIG).config == CONFIG


def test_checkpoints_are_ordered_by_step_and_unfinished_ones_left_out(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    for name in ("step-9", "step-10", "step-000011", ".step-12.77.tmp", ".step-3.1.old", "step-13.tmp", "notes"):
        (tmp_path / "a" / "checkpoints" / name).mkdir(parents=True)
    assert [path.name for path in run.checkpoints()] == ["step-9", "step-10", "step-000011"]
    (tmp_path / "a" / "phases").mkdir()
    for name in ("01-distil-1.safetensors", "00-warmup.safetensors", ".02-x.safetensors.1.tmp", "readme.txt"):
        (tmp_path / "a" / "phases" / name).write_text("")
    assert [path.name for path in run.phases()] == ["00-warmup.safetensors", "01-distil-1.safetensors"]


def phase_files(run, *names):
    (run.path / "phases").mkdir(exist_ok=True)
    for name in names:
        (run.path / "phases" / f"{name}.safetensors").write_text(name)


def test_a_phase_is_found_by_the_number_in_its_files_name_not_by_its_place(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    phase_files(run, "00-warmup", "02-interact-01", "03-distil-02")  # 01-distil-01 was deleted
    assert run.phase_names() == ["warmup", "interact-01", "distil-02"]
    assert run.weights_file(2).read_text() == run.weights_file("interact-01").read_text() == "02-interact-01"
    assert [run.weights_file(*phase).stem for phase in ((), (-1,), (-4,), ("warmup",))] == ["03-distil-02"] * 2 + [
        "00-warmup"
    ] * 2
    for deleted in (1, -3):
        with pytest.raises(
            DamagedFile, match=r"phases/01-\*.safetensors is missing; .*kept are: warmup, interact-01, distil-02"
        ):
            run.weights_file(deleted)
    for missing in (4, -5, "distil-01"):
        with pytest.raises(
            ValueError, match=f"has not ended phase {missing!r}; ended are: warmup, interact-01, distil-02"
        ):
            run.weights_file(missing)
    with pytest.raises(ValueError, match="a phase or of a step, not of both"):
        run.weights_file("warmup", step=3)


def test_a_hundred_phases_stay_in_order(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    phase_files(run, *(f"{k:02d}-phase-{k}" for k in range(102)))
    assert run.phase_names() == [f"phase-{k}" for k in range(102)] and run.weights_file().stem == "101-phase-101"


def test_snapshots_are_phase_ends_and_the_checkpoints_between_by_step(tmp_path):
    run = Run.create(tmp_path / "il_clip-s3", CONFIG)
    assert run.snapshots() == [] and (run.method, run.seed) == ("il_clip", 3)
    phase_files(run, "00-warmup", "01-distil-01", "02-interact-01")
    for step in (0, 4, 5):
        (run.path / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    for phase, step in (("warmup", 2), ("distil-01", 4)):  # interact-01 ended, but the log was cut
        run.log({"kind": "phase", "event": "end", "phase": phase, "step": step})
    ends = [{"phase": "warmup", "step": 2}, {"phase": "distil-01", "step": 4}]
    assert run.snapshots(checkpoints=False) == [*ends, {"phase": "interact-01", "step": None}]
    assert run.snapshots() == [*ends, {"phase": None, "step": 5}, {"phase": "interact-01", "step": None}]
    assert run.weights_file(step=5) == run.path / "checkpoints" / "step-00000005" / "model.safetensors"
    with pytest.raises(ValueError, match="keeps no checkpoint of step 7; kept are: 0, 4, 5"):
        run.weights_file(step=7)
    other = Run.create(tmp_path / "mine", {**CONFIG, "seed": 5})
    assert (other.method, other.seed) == ("clip", 5)


def test_done_is_said_once_it_is(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    assert run.done is None and "not ended" in repr(run)
    run.finish({"steps": 4, "loss": np.float32(0.5)})
    assert Run.open(tmp_path / "a").done == {"steps": 4, "loss": 0.5}
    run.finish()
    assert run.done == {}


def test_the_last_phase_is_that_of_the_summary_even_when_its_file_is_gone(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    phase_files(run, "00-warmup", "01-distil-01")
    run.finish({"phases": 3})
    with pytest.raises(DamagedFile, match=r"phases/02-\*.safetensors is missing"):
        run.weights_file()
    write_listed(run.path / "phases" / "02-interact-01.safetensors", b"weights")
    (run.path / "phases" / "02-interact-01.safetensors").unlink()
    assert run.weights_file().name == "02-interact-01.safetensors" and run.phase_names()[-1] == "interact-01"


@pytest.mark.parametrize(
    "name, content", [("config.json", '{"method": {'), ("config.json", ""), ("done.json", "{"), ("done.json", "[]")]
)
def test_a_damaged_run_is_listed_with_its_reason_beside_the_others(tmp_path, name, content):
    for folder in ("a", "b", "c"):
        Run.create(tmp_path / folder, CONFIG).finish({"step": 4})
    (tmp_path / "b" / name).write_text(content)
    runs = find(tmp_path)
    assert [run.path.name for run in runs] == ["a", "b", "c"]
    assert [bool(run.problem) for run in runs] == [False, True, False]
    assert str(tmp_path / "b" / name) in runs[1].problem and "damaged" in repr(runs[1]) and "done" in repr(runs[0])
    with pytest.raises(DamagedFile, match=f"b/{name} .*; (bring this file back|delete it)"):
        Run.open(tmp_path / "b")


def test_a_run_of_an_older_version_has_no_checksums_of_its_own_files(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    run.finish({"step": 4})
    (run.path / LIST).unlink()
    assert Run.open(run.path).config == CONFIG and Run.open(run.path).done == {"step": 4}


@pytest.mark.parametrize("damage", ["deleted", "cut"])
def test_a_log_that_vanishes_while_it_is_written_is_an_error(tmp_path, damage):
    run = Run.create(tmp_path / "a", CONFIG)
    for record in RECORDS:
        run.log(record)
    log = tmp_path / "a" / "metrics.jsonl"
    if damage == "deleted":
        log.unlink()
    else:
        log.write_bytes(log.read_bytes()[:20])
    with pytest.raises(
        DamagedFile, match="metrics.jsonl was deleted or cut while it was written to.*start the run again"
    ):
        run.log({"step": 4})


def test_a_folder_that_is_gone_is_not_made_again(tmp_path):
    run = Run.create(tmp_path / "a", CONFIG)
    run.log({"step": 1})
    shutil.rmtree(run.path)
    for write in (lambda: run.log({"step": 2}), run.finish):
        with pytest.raises(FileNotFoundError, match="its folder was deleted or moved"):
            write()
    assert not run.path.exists()


def test_find_takes_runs_and_nothing_else(tmp_path):
    for name in ("b/clip-s0", "a/clip-s1"):
        run = Run.create(tmp_path / name, CONFIG)
        write_json(run.path / "checkpoints" / "step-1" / "config.json", {"width": 96})
    write_json(tmp_path / "saved-model" / "config.json", {"width": 96})
    Run.create(tmp_path / "saved-model" / "inside", CONFIG)
    (tmp_path / ".hidden").mkdir()
    Run.create(tmp_path / ".hidden" / "x", CONFIG)
    found = [run.path.relative_to(tmp_path).as_posix() for run in find(tmp_path)]
    assert found == ["a/clip-s1", "b/clip-s0", "saved-model/inside"]
    assert [run.path for run in find(tmp_path / "a" / "clip-s1")] == [tmp_path / "a" / "clip-s1"]
    with pytest.raises(FileNotFoundError, match="is not a folder; give a folder that holds runs"):
        find(tmp_path / "nowhere")
    (tmp_path / "notes.md").touch()
    with pytest.raises(FileNotFoundError, match="notes.md is a file; give a folder"):
        find(tmp_path / "notes.md")


NESTED = st.recursive(
    st.integers() | st.text(max_size=3), lambda x: st.dictionaries(st.text(min_size=1, max_size=3), x, max_size=3)
)


@given(NESTED)
def test_nothing_differs_from_itself(value):
    assert differences(value, json.loads(json.dumps(value))) == []


@pytest.mark.parametrize(
    "config", [{}, {"method": "clip"}, {"method": {"name": 3}, "seed": None}, {"method": ["clip"], "seed": "0"}]
)
def test_a_configuration_of_another_form_still_has_a_method_and_a_seed(tmp_path, config):
    run = Run.create(tmp_path / "mine", config)
    assert run.method == "mine" and run.seed == 0
