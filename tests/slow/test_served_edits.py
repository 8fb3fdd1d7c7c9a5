"""The edits app and the review of edits, served by voila and by JupyterLab."""

import json

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

CELLS = [
    "import sys; sys.path.insert(0, '.')\nfrom complearn.apps.edits.controller import edits\n"
    "from complearn.apps.edits.review import review\n"
    "from complearn.data.worlds.world import world_from",
    "app = edits([world_from('small').pair('test', 6)])\napp",
    "reading = review('negatives.jsonl')\nreading",
]
LAST = "print('MADE', app.history.operator.tolist(), reading.decisions.verdict.tolist())"


@pytest.mark.browser
@pytest.mark.parametrize("program", ["voila", "jupyterlab"])
def test_both_apps_are_served(program, tmp_path):
    for needed in ("playwright.sync_api", "jupyterlab", "voila"):
        pytest.importorskip(needed, reason=f"{needed} is not installed: the apps are not served")
    line = {"id": "1", "image_id": "1", "caption": "a dog", "negatives": ["a cat", "a dig", "a cow"]}
    (tmp_path / "negatives.jsonl").write_text(json.dumps(line) + "\n")
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
        page.click(".cl-gallery > button")
        page.click("[data-operator=swap_att]:not(:disabled)")
        page.wait_for_selector("figure:nth-child(2) img")
        page.focus("[data-operator=replace_rel]:not(:disabled)")
        page.keyboard.press("Enter")
        page.wait_for_selector(".cl-captions .cl-call-1")
        screenshot(page, f"{program}-edits")
        page.focus(".cl-card")
        for key, state in (("a", "1 accepted, 0 rejected"), ("r", "1 accepted, 1 rejected")):
            page.keyboard.press(key)
            page.wait_for_function(f"document.querySelector('.cl-progress').textContent.includes('{state}')")
        page.keyboard.press("e")
        page.fill(".cl-review textarea", "a horse")
        page.keyboard.press("Enter")
        page.wait_for_function("document.querySelector('.cl-progress').textContent.includes('1 corrected')")
        screenshot(page, f"{program}-review")
        if program == "jupyterlab":
            assert page.locator(".jp-Notebook .jp-Cell").count() == 4, (
                "keys that the apps were meant to have edited the notebook"
            )
            run_cell(page, 3)
            page.wait_for_function(
                "document.body.innerText.includes(\"MADE ['swap_att', 'swap_att+replace_rel'] ['accepted', 'rejected', "
                "'corrected']\")"
            )
            screenshot_in_dark(page, ".cl-edits", "jupyterlab-edits-dark")
        else:
            assert not foreign, "a request left the machine"
            colour = "getComputedStyle(document.querySelector('.cl-edits')).backgroundColor"
            bright = page.evaluate(colour)
            page.emulate_media(color_scheme="dark")
            page.wait_for_function(f"{colour} === 'rgb(21, 24, 28)'")
            screenshot(page, "voila-edits-dark")
            assert bright == "rgb(255, 255, 255)", "the page follows the system's colours"
            page.reload()  # another kernel: the review goes on where it stopped
            page.wait_for_function("document.querySelector('.cl-progress')?.textContent.startsWith('100 %')")
        page.close()
