"""What `make release` hands out: it is whole, says what it needs, and works without the checkout."""

import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from documents import release_maker


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    pytest.importorskip("build", reason="build is not installed: pip install build")
    folder = tmp_path_factory.mktemp("dist")
    (folder / "complearn-0.0.9.tar.gz").write_text("an older one")
    release_maker().build(folder, site=False)
    return folder


def test_a_release_is_whole(release):
    names = sorted(path.name.partition("-")[2] for path in release.iterdir())
    version = release_maker().settings()["version"]
    assert names == ["", f"{version}-py3-none-any.whl", f"{version}.cdx.json", f"{version}.tar.gz"]
    assert subprocess.run(["sha256sum", "-c", "SHA256SUMS"], cwd=release, capture_output=True).returncode == 0
    with zipfile.ZipFile(next(release.glob("*.whl"))) as wheel:
        inside = wheel.namelist()
    root = Path(__file__).parents[2]
    modules = {path.relative_to(root).as_posix() for path in (root / "complearn").rglob("*.py")}
    assert modules <= set(inside) and not [name for name in inside if name.startswith(("tests", "nbs"))]
    with tarfile.open(next(release.glob("*.tar.gz"))) as sdist:
        assert any(name.endswith("/settings.ini") for name in sdist.getnames())
    bill = json.loads(next(release.glob("*.cdx.json")).read_text())
    assert {"torch", "numpy", "typer"} <= {component["name"] for component in bill["components"]}


def test_the_wheel_works_without_the_checkout(release, tmp_path):
    wheel = next(release.glob("*.whl"))
    words = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(tmp_path / "site"),
        str(wheel),
    ]
    subprocess.run([sys.executable, *words], check=True)
    env = {name: value for name, value in os.environ.items() if name != "COMPLEARN_TYPECHECK"}
    env |= {"PYTHONPATH": str(tmp_path / "site"), "COMPLEARN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    (tmp_path / "elsewhere").mkdir()

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words], cwd=tmp_path / "elsewhere", env=env, capture_output=True, text=True, timeout=500
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert run("-c", "import complearn; print(complearn.__file__)").startswith(str(tmp_path / "site"))
    run("-m", "complearn", "demo", "--preset", "smoke", "--out", str(tmp_path / "demo"))
    assert list((tmp_path / "demo").rglob("results.json"))
