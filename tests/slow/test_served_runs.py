"""The page of all runs, maps and stages, served by voila and by JupyterLab."""

import shutil

import pytest
import training_runs
from browser import (
    open_chromium,
    requests_of,
    run_cell,
    run_in_jupyterlab,
    screenshot,
    screenshot_in_dark,
    write_notebook,
)

from complearn.apps.serving import serving
from complearn.training.runs.launch import launch, prepare

RUNS = """
import complearn
from complearn.apps.runs.controller import runs

app = runs({folder!r})
app
"""
MODEL = """
import complearn
from complearn.data.readers.registry import read
from complearn.models.registry import build

tower = {"tower": "tiny", "size": 16, "patch": 8, "width": 16, "depth": 1, "heads": 1}
model = build({"kind": "stages", "vision": tower, "projection": 8, "stages": 2})
model.learned.fill_(2)
pairs = read("trifeature", samples=2, shapes=3, textures=2, colours=3)
"""
STAGES = f"{MODEL}\nfrom complearn.apps.stages.controller import stages\n\napp = stages(model.eval(), pairs=pairs)\napp"
MAPS = f"{MODEL}\napp = complearn.maps(model.eval(), pairs)\napp"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    launch(prepare(folder / "il_clip-s0", training_runs.config()).path, progress=False)
    return folder


@pytest.mark.browser
@pytest.mark.parametrize("program", ["voila", "jupyterlab"])
@pytest.mark.parametrize("app", ["runs", "stages", "map"])
def test_the_app_is_served(app, program, folder, tmp_path):
    for needed in ("playwright.sync_api", "jupyterlab", "voila"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the apps are not served")
    # a page remembers what was selected, in a file that lies with the runs: each test has its own
    own = shutil.copytree(folder, tmp_path / "results")
    cell = {"runs": RUNS.replace("{folder!r}", repr(str(own))), "stages": STAGES, "map": MAPS}[app]
    last = "print('MADE', len(app.view), 'keys')"
    notebook = write_notebook(tmp_path / "app.ipynb", [cell, *([last] if program == "jupyterlab" else [])])
    env = {"COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    with serving(notebook, program, env, patience=240) as address, open_chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1200})
        page.set_default_timeout(60_000)
        foreign = requests_of(page)
        if program == "jupyterlab":
            run_in_jupyterlab(page, address)
        else:
            page.goto(address)
        if app == "runs":
            page.get_by_label("select il_clip-s0").click()
            page.locator(".cl-picture svg, .cl-picture canvas").first.wait_for()
        elif app == "stages":
            page.locator(".cl-stages img").first.wait_for()
        else:
            page.locator(".cl-host canvas").first.wait_for()
        screenshot(page, f"{program}-{app}")
        if program == "jupyterlab":
            run_cell(page, 1)
            page.wait_for_function(r"/MADE \d+ keys/.test(document.body.innerText)")
            screenshot_in_dark(page, ".cl", f"jupyterlab-{app}-dark")
        else:
            assert not foreign, "a request left the machine"
        page.close()
