"""The concept explorer, served by voila and by JupyterLab."""

import pytest
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

CELLS = ["from complearn.apps.concepts.controller import concepts", "explorer = concepts()\nexplorer"]
LAST = "print('MADE', len(explorer.selection), explorer.selection.predicate[0])"


@pytest.mark.browser
@pytest.mark.parametrize("program", ["voila", "jupyterlab"])
def test_the_explorer_is_served(program, tmp_path):
    for needed in ("playwright.sync_api", "jupyterlab", "voila"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the apps are not served")
    notebook = write_notebook(tmp_path / "app.ipynb", [*CELLS, *([LAST] if program == "jupyterlab" else [])])
    env = {"COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    with serving(notebook, program, env, patience=240) as address, open_chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1200})
        page.set_default_timeout(240_000)
        foreign = requests_of(page)
        if program == "jupyterlab":
            run_in_jupyterlab(page, address)
        else:
            page.goto(address)
        page.wait_for_selector("[data-concept]")
        page.fill(".cl-concepts input", "a red triangle")
        page.press(".cl-concepts input", "Enter")
        page.click("[data-predicate='[NP] below [NP]']")
        page.wait_for_selector("[data-predicate='[NP] below [NP]'][aria-pressed=true]")
        page.click(".cl-tile > button >> nth=0")
        page.wait_for_selector(".cl-tile > [aria-pressed=true] img")
        screenshot(page, f"{program}-concepts")
        if program == "jupyterlab":
            assert page.locator(".jp-Notebook .jp-Cell").count() == 3, (
                "keys that the app was meant to have edited the notebook"
            )
            run_cell(page, 2)
            page.wait_for_function("document.body.innerText.includes('MADE 1 [NP] below [NP]')")
            screenshot_in_dark(page, ".cl-concepts", "jupyterlab-concepts-dark")
        else:
            assert not foreign, "a request left the machine"
        page.close()
