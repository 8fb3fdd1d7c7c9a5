"""The eight served apps, a saved page, reports and two pages of the documentation in Firefox: no error is logged, the
main content is drawn, and one main action works. Firefox is driven by WebDriver BiDi."""

import importlib.util
import json
import os
import re
import subprocess
import time
from itertools import count
from urllib.parse import quote

import pytest
import training_runs
from browser import write_notebook
from conftest import ROOT, find_firefox

from complearn.analysis.runs.result_page import write_result_page
from complearn.apps.concepts.controller import concepts
from complearn.apps.pages import PAGE
from complearn.apps.serving import serving
from complearn.core.results import Result, row
from complearn.training.runs.launch import launch, prepare

pytestmark = pytest.mark.firefox
PATIENCE = 120  # seconds, on a machine that does much else

CELL = f"""
import json, os
from urllib.parse import parse_qs

os.environ[{PAGE!r}] = parse_qs(os.environ["QUERY_STRING"])["page"][0]
from complearn.apps.catalogue import open_page

open_page()
"""


QUIET = {  # Firefox asks nothing of other machines
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.safebrowsing.update.enabled": False,
    "extensions.systemAddon.update.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,",
}


class Firefox:
    "One tab of a Firefox without a window."

    def __init__(self, folder):
        import websocket

        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in QUIET.items()]
        (folder / "user.js").write_text("".join(lines))
        command = [find_firefox(), "--headless", "--no-remote", "--remote-debugging-port=0", "--profile", str(folder)]
        log = folder / "log.txt"
        with open(log, "w") as file:
            self.process = subprocess.Popen([*command, "about:blank"], stdout=file, stderr=file)
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"BiDi listening on (\S+)\n", log.read_text())):
            assert self.process.poll() is None and time.monotonic() < deadline, log.read_text()[-500:]
            time.sleep(0.1)
        address = f"{found[1]}/session"
        self.socket = websocket.create_connection(address, suppress_origin=True, timeout=PATIENCE)
        self.numbers = count()
        self.errors = []
        self.call("session.new", capabilities={})
        self.call("session.subscribe", events=["log.entryAdded"])
        self.tab = self.call("browsingContext.getTree")["contexts"][0]["context"]
        self.call("browsingContext.setViewport", context=self.tab, viewport={"width": 1400, "height": 1000})

    def call(self, method, **params):
        "What a command answers; errors that pages log are noted meanwhile."
        number = next(self.numbers)
        self.socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            if message.get("method") == "log.entryAdded" and message["params"]["level"] == "error":
                self.errors.append(message["params"]["text"])
            if message.get("id") == number:
                break
        assert message["type"] == "success", f"{method}: {message}"
        return message["result"]

    def open(self, address):
        "Go to a page; what the page before logs when it is left is forgotten: its kernel ends under open messages."
        self.call("browsingContext.navigate", context=self.tab, url="about:blank", wait="complete")
        self.errors = []
        self.call("browsingContext.navigate", context=self.tab, url=address, wait="interactive")

    def ask(self, expression):
        "The value of an expression of JavaScript, as JSON can hold it."
        code = f"(async () => JSON.stringify((await ({expression})) ?? null))()"
        about = {"target": {"context": self.tab}, "awaitPromise": True}
        answer = self.call("script.evaluate", expression=code, **about)
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return json.loads(answer["result"]["value"])

    def wait(self, condition):
        "Wait until an expression is true."
        deadline = time.monotonic() + PATIENCE
        while not (value := self.ask(condition)):
            assert time.monotonic() < deadline, f"never true: {condition}; {self.errors}; {self.ask(SEEN)}"
            time.sleep(0.1)
        return value

    def wait_for(self, selector):
        "Wait until an element is on the page."
        self.wait(f"document.querySelector({json.dumps(selector)}) !== null")

    def box(self, selector):
        "Where an element is in the window: left, top, width, height."
        place = f"document.querySelector({json.dumps(selector)})"
        self.wait(f"{place}?.getBoundingClientRect().width > 0")
        return self.ask(f"(({place}).scrollIntoView({{ block: 'center' }}), {place}.getBoundingClientRect().toJSON())")

    def move(self, points):
        "Press the mouse at the first of some points, and let it go at the last."
        steps = [{"type": "pointerMove", "x": round(x), "y": round(y), "duration": 20} for x, y in points]
        down, up = {"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}
        actions = {"type": "pointer", "id": "mouse", "actions": [steps[0], down, *steps[1:], up]}
        self.call("input.performActions", context=self.tab, actions=[actions])

    def click(self, selector):
        "Click the middle of an element."
        box = self.box(selector)
        self.move([(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)])

    def type(self, keys):
        "Press keys one after another."
        presses = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        actions = {"type": "key", "id": "keys", "actions": presses}
        self.call("input.performActions", context=self.tab, actions=[actions])

    def close(self):
        self.process.terminate()
        self.process.wait(20)


SEEN = "document.body.innerText.slice(0, 400)"
ENTER, HOME, RIGHT = "\ue007", "\ue011", "\ue014"


@pytest.fixture(scope="module")
def firefox(tmp_path_factory):
    browser = Firefox(tmp_path_factory.mktemp("firefox"))
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    "What the apps show: a Codebook-CLIP and a model of stages after some steps, captions, edits to review."
    folder = tmp_path_factory.mktemp("inputs")
    runs = folder / "runs"
    launch(prepare(runs / "codebook-s0", training_runs.config({"name": "codebook_clip", "args": {"steps": 2}})).path)
    stages = {"kind": "stages", "vision": training_runs.MODEL["vision"], "projection": 8, "stages": 2}
    grouping = {"clusters": 2, "small": "partial"}
    config = training_runs.config({"name": "multistage", "args": {"steps": 4, "grouping": grouping}}, stages)
    config["data"] = {"name": "trifeature", "args": {"samples": 1, "shapes": 3, "textures": 2, "colours": 3}}
    launch(prepare(folder / "stages" / "multistage-s0", config).path, progress=False)
    (folder / "captions.csv").write_text("id,caption\n1,a black dog chases a white cat\n2,a red bird on a green tree\n")
    line = {"id": "1", "image_id": "1", "caption": "a dog", "negatives": ["a cat", "a cow"]}
    (folder / "negatives.jsonl").write_text(json.dumps(line) + "\n")
    return folder


@pytest.fixture(scope="module")
def address(inputs, tmp_path_factory):
    "The address of a page that shows any app."
    pytest.importorskip("voila", reason="voila is not installed: the apps are not served")
    notebook = write_notebook(tmp_path_factory.mktemp("served") / "app.ipynb", [CELL])
    python_path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = {"COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore", "PYTHONPATH": python_path}
    with serving(notebook, env=env) as where:
        yield where


def use_codes(page):
    page.wait_for(".cl-card:not(.cl-pending)")
    page.click(".cl-card:not([aria-selected=true])")
    page.wait("document.querySelector('.cl-card[aria-selected=true] b').textContent === "
              "document.querySelector('.cl-tab').dataset.drawn")  # fmt: skip


def use_search(page):
    page.wait_for(".cl-grid[data-ready=true] .cl-tile")
    page.click(".cl-grid .cl-tile button")
    page.wait_for(".cl-stage img[src]")
    page.click(".cl-query form input")
    page.type([*"red", ENTER])
    page.wait("document.querySelector('.cl-head h3').textContent.includes('red')")
    page.ask("document.querySelector('.cl-search input[type=range]').focus()")
    page.type([HOME, RIGHT, RIGHT, RIGHT])
    page.wait("document.querySelector('.cl-grid .cl-box, .cl-grid').closest('.cl').querySelector('[data-alpha]')"
              ".dataset.alpha === '0.03'")  # fmt: skip


def use_map(page):
    page.wait("document.querySelector('.cl-chosen h3')?.textContent === 'Nothing is selected'")
    if page.ask("document.createElement('canvas').getContext('webgl') !== null"):
        drag_around(page, ".cl-host canvas")
    else:  # a Firefox without a window has it on few machines
        page.wait("document.querySelector('.cl-maps img')?.naturalWidth > 0")
        assert "no WebGL" in page.ask("document.querySelector('.cl-map').innerText")
        page.click(".cl-legend button")
    page.wait("/points? selected/.test(document.querySelector('.cl-chosen h3').textContent)")


def drag_around(page, selector):
    "Drag the mouse around a map."
    page.wait_for(selector)
    time.sleep(2)  # the library fits the points
    box = page.box(selector)
    corners = [(0.02, 0.02), (0.98, 0.02), (0.98, 0.98), (0.02, 0.98), (0.02, 0.06)]
    ends = [(box["x"] + right * box["width"], box["y"] + down * box["height"]) for right, down in corners]
    points = [
        (x + (other - x) * part / 12, y + (below - y) * part / 12)
        for (x, y), (other, below) in zip(ends, ends[1:])
        for part in range(12)
    ]
    page.move([*points, ends[-1]])


def use_runs(page):
    page.wait_for("tbody input[data-name='codebook-s0']")
    page.click("tbody input[data-name='codebook-s0']")
    page.click("[data-panel=curves]")
    page.wait_for(".cl-charts .cl-picture")


def use_edits(page):
    page.click(".cl-gallery > button")
    page.click("[data-operator=swap_att]:not(:disabled)")
    page.wait("[...document.querySelectorAll('.cl-captions mark')].length > 1")


def use_review(page):
    page.wait("document.querySelector('.cl-progress')?.textContent.includes('2 open')")  # the first edit is there
    page.type("a")
    page.wait("document.querySelector('.cl-progress').textContent.includes('1 accepted')")


def use_concepts(page):
    page.click("[data-concept]")
    page.wait("document.querySelector('.cl-heading').textContent !== ''")


def use_stages(page):
    page.wait_for(".cl-stages [data-stage=integrated] .cl-tile")
    page.click(".cl-anchors button:nth-child(3)")
    page.wait("document.querySelector('.cl-anchor h2').textContent === 'Image 3'")


USES = {
    "codes": (use_codes, {"runs": "runs"}),
    "search": (use_search, {"runs": "runs"}),
    "map": (use_map, {"runs": "runs"}),
    "runs": (use_runs, {"runs": "runs"}),
    "edits": (use_edits, {"captions": "captions.csv"}),
    "review": (use_review, {"edits": "negatives.jsonl"}),
    "concepts": (use_concepts, {"captions": "captions.csv"}),
    "stages": (use_stages, {"runs": "stages"}),
}


@pytest.mark.parametrize("app", USES)
def test_a_served_app(firefox, address, inputs, app):
    use, paths = USES[app]
    if app == "map":
        pytest.importorskip("jscatter", reason="jupyter-scatter is not installed: pip install 'complearn[lab]'")
    arguments = {name: str(inputs / path) for name, path in paths.items()}
    page = {"app": app, "folder": str(inputs), "arguments": arguments}
    firefox.open(f"{address}&page={quote(json.dumps(page))}")
    use(firefox)
    assert not firefox.errors


def test_a_page_that_logs_an_error_is_found(firefox, tmp_path):
    (tmp_path / "bad.html").write_text("<!doctype html><title>a</title><script>throw new Error('broken')</script>")
    firefox.open((tmp_path / "bad.html").as_uri())
    firefox.wait("document.title === 'a'")
    assert firefox.errors == ["Error: broken"]


def test_a_saved_page(firefox, tmp_path, monkeypatch):
    monkeypatch.setenv("BROWSER_PATH", "none")  # no picture is needed
    [page] = concepts().save(tmp_path / "concepts")
    firefox.open(page.as_uri())
    firefox.wait("document.body.dataset.ready === 'yes' && document.querySelectorAll('[data-concept]').length > 3")
    assert firefox.ask("document.querySelector('.cl-notice').innerText").startswith("Saved from a notebook")
    assert not firefox.errors


def rows_of(methods, seeds):
    return [
        row(
            method, seed, "end", 20, "held out/exchanges", "swap_att", "accuracy", 0.6 + 0.1 * place + 0.01 * seed, n=80
        )
        for place, method in enumerate(methods)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize(
    "methods, seeds", [(["clip"], 1), (["clip", "negclip"], 3), (["clip", "negclip", "il_clip"], 5)]
)
def test_a_report(firefox, tmp_path, methods, seeds):
    Result({"preset": "demo"}, rows_of(methods, seeds)).write(tmp_path)
    firefox.open(write_result_page(tmp_path, "Mine").as_uri())
    firefox.wait("document.querySelector('h1')?.textContent.includes('Mine') && document.readyState === 'complete'")
    folded = "[...document.querySelectorAll('details')]"
    if firefox.ask(f"{folded}.length"):
        firefox.click("details > summary")
        firefox.wait(f"{folded}.some((each) => each.open)")
    assert firefox.ask("[...document.querySelectorAll('figure')].every((each) => each.clientWidth > 100)")
    assert not firefox.errors


def test_two_pages_of_the_documentation(firefox, tmp_path):
    spec = importlib.util.spec_from_file_location("build_docs", ROOT / "docs" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.build(tmp_path / "site", with_notebooks=False)
    for name, words in (("index.html", "complearn"), ("docs/hard-negatives.html", "negatives")):
        firefox.open((tmp_path / "site" / name).as_uri())
        firefox.wait("document.readyState === 'complete'")
        assert words in firefox.ask("document.querySelector('main').innerText")
        assert not firefox.errors, name
    firefox.click("main a[href]")
    firefox.wait("!location.href.endsWith('docs/hard-negatives.html')")
