"""What every test shares: shape checks, a cache of its own, markers that skip with a reason, things that are built once
for all workers."""

import gc
import json
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("COMPLEARN_TYPECHECK", "1")  # before complearn is imported
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
_cache = tempfile.TemporaryDirectory(prefix="complearn-test-cache-")
os.environ["COMPLEARN_CACHE"] = _cache.name
# of the make that runs these tests: with them a make prints directories
for _name in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS"):
    os.environ.pop(_name, None)
# compiled modules are kept, whatever the shell says: the tests start many processes, and each would compile them again
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# nbformat would read its 38 grammars, for 1.5 s in every worker; none is used
sys.modules.setdefault("rfc3987_syntax", None)

import hypothesis
import pytest
from filelock import FileLock

ROOT = Path(__file__).resolve().parents[1]


def _real_data() -> Path | None:
    named = os.environ.get("COMPLEARN_REAL_DATA")
    return Path(named) if named and Path(named).is_dir() else None


def _has_browser() -> bool:
    from complearn.core.figures import find_browser

    return find_browser() is not None


def find_firefox() -> str | None:
    """The path of a Firefox: what FIREFOX_PATH names, or the system's."""
    named = os.environ.get("FIREFOX_PATH")
    return shutil.which(named) if named else shutil.which("firefox-esr") or shutil.which("firefox")


def _can_drive_firefox() -> bool:
    from importlib.util import find_spec

    return find_firefox() is not None and find_spec("websocket") is not None


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


NODE_MODULES = Path(sys.executable).parents[1] / "node_modules"
BIOME = NODE_MODULES / ".bin" / "biome"
AXE = NODE_MODULES / "axe-core" / "axe.min.js"


@dataclass(frozen=True)
class Need:
    """What some tests need and not every machine has: they carry its mark, and are left out with its reason where it is
    missing."""

    where: str  # what kind of tests they are
    missing: str  # what is not there, and how to get it
    is_met: Callable[[], bool]

    @property
    def reason(self) -> str:
        return f"{self.where} ({self.missing})"


NEEDS = {
    "browser": Need("in a browser", "no Chromium: install one, or set BROWSER_PATH to one", _has_browser),
    "firefox": Need(
        "in Firefox",
        "no Firefox, or no websocket-client: install both, or set FIREFOX_PATH to a Firefox",
        _can_drive_firefox,
    ),
    "real": Need(
        "on real data",
        "set COMPLEARN_REAL_DATA to a folder that holds them: data/README.md",
        lambda: _real_data() is not None,
    ),
    "gpu": Need("on a GPU", "no CUDA device", _has_gpu),
    "node": Need("of scripts outside a browser", "no node: install Node.js", lambda: bool(shutil.which("node"))),
    "biome": Need(
        "of the style of JavaScript and CSS",
        "no biome: install Node.js with npm, then remove .venv/.dev and run make again",
        lambda: BIOME.exists() and bool(shutil.which("node")),
    ),
    "axe": Need(
        "of accessibility",
        "no axe-core: install Node.js with npm, then remove .venv/.dev and run make again",
        AXE.exists,
    ),
    "zstd": Need("of Zstandard packages", "no program zstd: install it", lambda: bool(shutil.which("zstd"))),
    "compiler": Need("of compiled towers", "no C++ compiler: install g++", lambda: bool(shutil.which("g++"))),
}


def pytest_configure(config):
    """Declare the marks; no property fails because the machine is slow."""
    hypothesis.settings.register_profile(
        "untimed", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
    )
    hypothesis.settings.load_profile("untimed")
    if hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", None):
        import complearn  # noqa: F401  the shape checks of this process are on from here

        os.environ["COMPLEARN_TYPECHECK"] = "0"  # what tests start runs as users run it: the checks cost it seconds
    for mark, need in NEEDS.items():
        config.addinivalue_line("markers", f"{mark}: {need.where}; skipped where what it needs is missing")


def turn(item):
    """When a test's turn comes: the house's tests are quick and say most; the slow tests and the experiments take
    longest; the notebooks of the rooms are many and short, so that both workers end together."""
    if item.path.name == "test_house.py":
        return 0
    if item.path.parent.name == "slow" or "[experiments/" in item.name or "[benchmarks/" in item.name:
        return 1
    return 3 if item.path.name == "test_notebooks.py" else 2


@pytest.hookimpl(optionalhook=True)  # of xdist
def pytest_xdist_make_scheduler(config, log):
    """Keep a file's tests on one worker, so that what they share is made once; a notebook goes to whichever is free.
    The groups of xdist 3.8 do the same, but are lost with pytest 9.2, which ignores the names that they set."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Files(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return nodeid if "::test_notebook[" in nodeid else nodeid.partition("::")[0]

    return Files(config, log)


def pytest_collection_modifyitems(config, items):
    """Order the tests, skip what this machine cannot run."""
    items.sort(key=turn)
    for item in items:
        if item.path.parent.name == "slow":
            item.add_marker(pytest.mark.slow)
        if "real_data" in item.fixturenames and not item.get_closest_marker("real"):
            item.add_marker(pytest.mark.real)
    needed = {mark for mark in NEEDS if any(item.get_closest_marker(mark) for item in items)}
    missing = {mark: NEEDS[mark].reason for mark in needed if not NEEDS[mark].is_met()}
    for item in items:
        for mark, reason in missing.items():
            if item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


LATE = "for lack of time (this machine is slow: run make test-all without COMPLEARN_TESTS_UNTIL)"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip what begins after COMPLEARN_TESTS_UNTIL, in seconds since 1970: a slow machine ends in time, and says what
    it did not try."""
    if time.time() > float(os.environ.get("COMPLEARN_TESTS_UNTIL") or "inf"):
        pytest.skip(LATE)


def pytest_collection_finish(session):
    """Modules and tests stay to the end: the collector need not look at them again and again."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config):
    """Else libraries take what the collector leaves at the end for leaks, and say so."""
    gc.unfreeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's root folder."""
    return ROOT


@pytest.fixture(scope="module")
def album(tmp_path_factory) -> Path:
    """45 photos with a caption each."""
    import albums

    return albums.write_photos(tmp_path_factory.mktemp("album") / "photos")


@pytest.fixture
def here(monkeypatch) -> None:
    """Runs are trained in this process."""
    import albums

    monkeypatch.setattr("complearn.training.runs.study.run_all", albums.train_here)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of real data; a test that asks for it carries the mark `real`."""
    return _real_data()


@pytest.fixture
def own_operators(monkeypatch):
    """A test may register operators on captions; they are gone after it."""
    from complearn.language.edits.sites import CAPTION_EDITS

    for name in ("entries", "sources"):
        monkeypatch.setattr(CAPTION_EDITS, name, dict(getattr(CAPTION_EDITS, name)))


# --- things that are built once, whichever worker asks first


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """`built(name, make)`: a folder that `make(folder)` fills once for all workers; nobody writes to it afterwards."""
    base = tmp_path_factory.getbasetemp()
    root = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "built"
    root.mkdir(exist_ok=True)

    def build(name, make):
        folder = root / name
        ready = root / f"{name}.ready"
        with FileLock(root / f"{name}.lock"):
            if not ready.exists():
                folder.mkdir(parents=True)
                make(folder)
                ready.touch()
        return folder

    return build


@pytest.fixture(scope="session")
def warm():
    """This worker's warm process, which runs notebooks in forks. Its folder's name is short: a socket's path has at
    most 107 bytes."""
    from warm import Warm

    with tempfile.TemporaryDirectory(prefix="nb-", ignore_cleanup_errors=True) as folder:
        process = Warm(folder)
        yield process
        process.close()


@dataclass(frozen=True)
class Smoke:
    "A papermill notebook that ran with preset smoke."

    folder: Path  # its out_dir
    result: object  # a `warm.Result`

    @property
    def good(self) -> bool:
        "Whether it ran to its end; an assertion shows why it did not."
        assert self.result.good, self.result.message
        return True

    @property
    def text(self) -> str:
        "What its cells printed, and the error that ended it if there was one."
        cells = json.loads((self.folder / "report.ipynb").read_text(encoding="utf-8"))["cells"]
        outputs = [output for cell in cells for output in cell.get("outputs", []) if output["output_type"] == "stream"]
        return "".join("".join(output["text"]) for output in outputs) + self.result.message


@pytest.fixture(scope="session")
def experiment(warm):
    """`experiment(name, out, **parameters)`: run a papermill notebook as papermill does, in a fork; `out` is its
    out_dir."""

    def run(name, out, browser=False, **parameters):
        out.mkdir(exist_ok=True)
        env = {} if browser else {"BROWSER_PATH": "none"}
        parameters = {"preset": "smoke", "out_dir": str(out)} | parameters
        return Smoke(out, warm.run(ROOT / "nbs" / f"{name}.ipynb", parameters, out / "report.ipynb", env=env))

    return run


@pytest.fixture(scope="session")
def smoke(built, experiment):
    """`smoke(name)`: the one smoke run of a papermill notebook, made by whoever asks first."""

    def run(name):
        def make(folder):
            return (folder / "result.json").write_text(json.dumps(vars(experiment(name, folder).result)))

        folder = built(f"smoke-{name.replace('/', '-')}", make)
        from warm import Result

        return Smoke(folder, Result(**json.loads((folder / "result.json").read_text())))

    return run


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter, config):
    """Print the ten slowest notebooks, then what pytest prints, then what was left out, right above pytest's own last
    line."""
    _print_slowest_notebooks(terminalreporter)
    yield
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ") for report in terminalreporter.stats.get("skipped", [])
    )
    line = describe_left_out(
        reasons, without_slow=config.option.markexpr == "not slow" and not config.option.collectonly
    )
    if line:
        terminalreporter.write_line(line)


def describe_left_out(reasons: Counter, without_slow: bool) -> str:
    """One line of what was not tried and how to get it; empty where everything was."""
    counts = {reason: reasons[reason] for reason in [*(need.reason for need in NEEDS.values()), LATE]}
    parts = [f"{count} {'test' if count == 1 else 'tests'} {reason}" for reason, count in counts.items() if count]
    parts += [
        f"{count} more ({' '.join(reason.split())})"
        for reason, count in sorted(reasons.items())
        if reason not in counts
    ]
    parts += ["the slow tests (make test-all runs them)"] * without_slow
    return f"left out: {'; '.join(parts)}" if parts else ""


def _print_slowest_notebooks(terminalreporter):
    reports = [
        report
        for group in ("passed", "failed")
        for report in terminalreporter.stats.get(group, [])
        if report.when == "call"
    ]
    rows = [value for report in reports for name, value in report.user_properties if name == "notebook"]
    if not rows:
        return
    terminalreporter.section("ten slowest notebooks: seconds on the clock, seconds of processor time")
    for name, seconds, cpu in sorted(rows, key=lambda row: -row[1])[:10]:
        limit = 15 if name.startswith(("experiments", "benchmarks")) else 10
        note = f"  over the {limit} s that it may take" if cpu > limit else ""
        terminalreporter.write_line(f"{seconds:7.1f} {cpu:7.1f}  {name}{note}")
