"""Every notebook runs from top to bottom, as `nbdev_test` runs it: with its default parameters, in its own folder."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import ROOT

NOTEBOOKS = sorted(path for path in (ROOT / "nbs").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts)
NAMES = [path.relative_to(ROOT / "nbs").with_suffix("").as_posix() for path in NOTEBOOKS]
LIMIT = 600  # seconds for one notebook
WORKERS = max(1, min(2, (os.cpu_count() or 1)))
CODE = """
import json, sys
from pathlib import Path
from nbdev.config import get_config
from nbdev.test import test_nb
good, seconds = test_nb(Path(sys.argv[1]), skip_flags=get_config().tst_flags.split(), basepath=get_config().config_path)
print(json.dumps({"good": bool(good), "seconds": seconds}))
"""


def run(path, out_dir):
    """Run one notebook in a process of its own; temporary folders that it makes lie under `out_dir`."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(out_dir), "TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore"}
    env["COMPLEARN_TYPECHECK"] = "0"  # as their users run them; the tests check shapes, and here each process would pay five seconds for it
    try:
        done = subprocess.run([sys.executable, "-c", CODE, str(path)], cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return {"good": False, "seconds": LIMIT, "said": f"not done after {LIMIT} s"}
    try:
        result = json.loads(done.stdout.strip().splitlines()[-1])
    except (IndexError, ValueError):
        result = {"good": False, "seconds": 0.0}
    return {**result, "good": result["good"] and done.returncode == 0, "said": (done.stderr or done.stdout)[-6000:]}


@pytest.fixture(scope="session")
def results(request, tmp_path_factory):
    """All selected notebooks, two at a time; each test waits for its own."""
    own = [item for item in request.session.items if item.path.name == "test_notebooks.py"]
    wanted = [item.callspec.params["name"] for item in own if hasattr(item, "callspec")]
    folder = tmp_path_factory.mktemp("notebooks")
    with ThreadPoolExecutor(WORKERS) as pool:
        yield {name: pool.submit(run, ROOT / "nbs" / f"{name}.ipynb", folder) for name in wanted}
        pool.shutdown(wait=False, cancel_futures=True)


@pytest.mark.parametrize("name", NAMES)
def test_notebook(name, results, request):
    result = results[name].result()
    seconds = request.config.__dict__.setdefault("notebook_seconds", {})
    seconds[name] = result["seconds"]
    assert result["good"], f"nbs/{name}.ipynb failed:\n{result['said']}"


def test_a_broken_notebook_is_noticed(tmp_path):
    """The runner itself can fail: a wrong assertion is no success."""
    cell = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": []}
    cell["source"] = ["assert 1 == 2, 'one is not two'"]
    spec = {"display_name": "python3", "language": "python", "name": "python3"}
    path = tmp_path / "broken.ipynb"
    path.write_text(json.dumps({"cells": [cell], "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}))
    result = run(path, tmp_path)
    assert not result["good"] and "one is not two" in result["said"]
