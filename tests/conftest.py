"""What every test shares: shape checks on, a cache of its own, and markers that skip with a reason."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("COMPLEARN_TYPECHECK", "1")  # before complearn is imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
_cache = tempfile.TemporaryDirectory(prefix="complearn-test-cache-")
os.environ["COMPLEARN_CACHE"] = _cache.name

import pytest

ROOT = Path(__file__).resolve().parents[1]
NO_REAL_DATA = "COMPLEARN_REAL_DATA is not set to a folder: tests on real files are left out"
NO_BROWSER = "no Chromium found (set BROWSER_PATH, or install one): tests in a browser are left out"
NO_GPU = "no CUDA device: tests on a GPU are left out"


def _real_data() -> Path | None:
    named = os.environ.get("COMPLEARN_REAL_DATA")
    return Path(named) if named and Path(named).is_dir() else None


def pytest_collection_modifyitems(config, items):
    """The house's tests first (they are quick and say most), the notebooks next; skip what this machine cannot run."""
    items.sort(key=lambda item: {"test_house.py": 0, "test_notebooks.py": 1}.get(item.path.name, 2))
    wanted = {mark for item in items for mark in ("gpu", "browser", "real") if item.get_closest_marker(mark)}
    reasons = {}
    if "real" in wanted and _real_data() is None:
        reasons["real"] = NO_REAL_DATA
    if "browser" in wanted:
        from complearn.core.figures import find_browser

        if find_browser() is None:
            reasons["browser"] = NO_BROWSER
    if "gpu" in wanted:
        import torch

        if not torch.cuda.is_available():
            reasons["gpu"] = NO_GPU
    for item in items:
        for mark, reason in reasons.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; a test that asks for it is skipped where it is absent."""
    folder = _real_data()
    if folder is None:
        pytest.skip(NO_REAL_DATA)
    return folder


def pytest_terminal_summary(terminalreporter):
    """Print the ten slowest notebooks before pytest's own last line."""
    seconds = getattr(terminalreporter.config, "notebook_seconds", {})
    if not seconds:
        return
    terminalreporter.section("ten slowest notebooks")
    for name, time in sorted(seconds.items(), key=lambda pair: -pair[1])[:10]:
        room = name.split("/")[0]
        note = "  over the 10 s that a room's notebook may take" if time > 10 and room not in ("experiments", "benchmarks") else ""
        terminalreporter.write_line(f"{time:7.1f}s {name}{note}")
