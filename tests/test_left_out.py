"""What a run of the tests leaves out is skipped with its reason and told in one line, right above pytest's own last
line."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter

import hypothesis
import pytest
from conftest import LATE, NEEDS, ROOT, describe_left_out

TESTS = """
import importlib
import pytest

@pytest.mark.browser
@pytest.mark.parametrize("n", [1, 2])
def test_page(n):
    assert False, "there is no browser"

def test_files(real_data):
    assert False, "there are no real data"

@pytest.mark.node
def test_script():
    assert False, "there is no node"

@pytest.mark.skip(reason="of a whim")
def test_whim():
    pass

@pytest.mark.slow
def test_slow():
    pass

def test_sums():
    assert 1 + 1 == 2
"""


@pytest.fixture
def project(tmp_path):
    """A project with these tests' conftest and a few tests of its own."""
    folder = tmp_path / "project"
    (folder / "tests").mkdir(parents=True)
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests" / "test_few.py").write_text(TESTS)
    return folder


def printed(folder, *options, **env):
    """The lines that pytest prints on a machine that lacks everything but what `env` names."""
    outer = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COMPLEARN_", "PYTEST_", "BROWSER_PATH"))
    }
    env = {**outer, "PYTHONPATH": str(ROOT), "PATH": str(folder), **env}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options], cwd=folder, env=env, capture_output=True, text=True
    )
    lines = done.stdout.strip().splitlines()
    assert len(lines) > 1, done.stdout + done.stderr
    return lines


def last_lines(folder, *options, **env):
    """The two last of them."""
    return printed(folder, *options, **env)[-2:]


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "two workers"])
def test_the_line_before_the_last_says_what_was_left_out_and_how_to_get_it(project, workers):
    left_out, summary = last_lines(project, "-m", "not slow", *workers)
    known = [f"2 tests {NEEDS['browser'].reason}", f"1 test {NEEDS['real'].reason}", f"1 test {NEEDS['node'].reason}"]
    assert left_out == "left out: " + "; ".join(
        [*known, "1 more (of a whim)", "the slow tests (make test-all runs them)"]
    )
    assert "BROWSER_PATH" in left_out and "COMPLEARN_REAL_DATA" in left_out
    assert re.search(r"1 passed, 5 skipped.* in .*s", summary)


@pytest.mark.parametrize("seconds, late", [(-1, 2), (600, 0)])
def test_what_begins_too_late_is_left_out_and_told(project, seconds, late):
    until = str(time.time() + seconds)
    left_out, summary = last_lines(project, "-k", "slow or sums", COMPLEARN_TESTS_UNTIL=until)
    assert (f"left out: 2 tests {LATE}" == left_out) == bool(late)
    assert re.search(f"{late} skipped" if late else "2 passed", summary)


def test_the_tests_of_a_file_go_to_one_worker(project):
    """So that what a file makes once for its tests is made once."""
    (project / "tests" / "test_more.py").write_text(
        "def test_one(): pass\ndef test_two(): pass\ndef test_three(): pass"
    )
    said = printed(project, "-n", "2", "--dist", "loadgroup", "-v", "-k", "one or two or three or sums")
    workers = re.findall(r"\[(gw\d)\].* PASSED tests/test_more.py::test_\w+", "\n".join(said))
    assert len(workers) == 3 and len(set(workers)) == 1


def test_where_nothing_is_missing_nothing_is_left_out(project, tmp_path):
    for name in ("browser", "node"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    there = {"PATH": str(tmp_path), "BROWSER_PATH": str(tmp_path / "browser"), "COMPLEARN_REAL_DATA": str(tmp_path)}
    before, summary = last_lines(project, "-k", "not whim", **there)
    assert "4 failed, 2 passed" in summary and not before.startswith("left out")
    before, summary = last_lines(project, "-k", "sums", "-q")
    assert "1 passed" in summary and not before.startswith("left out")


def test_make_demo_ends_with_what_it_left_out(tmp_path, monkeypatch):
    """With a stand-in for papermill that writes a report in which a figure was saved, with a Chromium or without."""
    from complearn.core.figures import start_browser

    monkeypatch.setenv("BROWSER_PATH", "none")
    said = start_browser.__wrapped__()
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("constraints.txt", "settings.ini", ".venv/.base"):
        (tmp_path / name).touch()
    program = tmp_path / ".venv" / "bin" / "python"
    program.write_text('#!/bin/sh\n[ "$2" != papermill ] || cp report.json "$4"\n')
    program.chmod(0o755)
    for printed, last in ((said, "left out: "), ("the means", "the figures: ")):
        cells = [{"outputs": [{"output_type": "stream", "text": [f"{printed}\n"]}]}]
        (tmp_path / "report.json").write_text(json.dumps({"cells": cells}))
        done = subprocess.run(["make", "demo", f"OUT={tmp_path / 'out'}"], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        line = done.stdout.strip().splitlines()[-1]
        assert line.startswith(last) and ("PNG: no Chromium" in line and "BROWSER_PATH" in line) == (printed == said)


def test_the_line_names_what_it_knows_first_and_is_one_line():
    assert describe_left_out(Counter(), without_slow=False) == ""
    reasons = Counter({"a module\nof two lines": 1, NEEDS["real"].reason: 40, NEEDS["browser"].reason: 31})
    known = f"31 tests {NEEDS['browser'].reason}; 40 tests {NEEDS['real'].reason}"
    assert describe_left_out(reasons, without_slow=False) == f"left out: {known}; 1 more (a module of two lines)"


def test_no_property_is_timed():
    """A machine that is busy with something else fails no test."""
    assert hypothesis.settings().deadline is None


def test_every_need_says_what_is_missing_and_has_a_mark_of_its_own():
    text = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests").rglob("test_*.py")))
    for mark, need in NEEDS.items():
        assert need.is_met() in (True, False) and need.missing and need.reason == f"{need.where} ({need.missing})"
        assert f"pytest.mark.{mark}" in text, f"no test carries the mark {mark}"
