"""What the tests of the apps share: notebooks, screenshots, JupyterLab, requests, a page whose controller is in the
test's own process."""

import base64
import json
import os
from contextlib import contextmanager
from pathlib import Path

from conftest import AXE

from complearn.apps.pages import join_script, join_style
from complearn.core.figures import find_browser

UNEXPORT = ("\nexport default { render };", "\n")


def write_notebook(path, cells):
    """A notebook of code cells."""
    cells = [
        {"cell_type": "code", "execution_count": None, "id": f"c{i}", "metadata": {}, "outputs": [], "source": source}
        for i, source in enumerate(cells)
    ]
    spec = {"display_name": "python3", "language": "python", "name": "python3"}
    path.write_text(json.dumps({"cells": cells, "metadata": {"kernelspec": spec}, "nbformat": 4, "nbformat_minor": 5}))
    return path


@contextmanager
def open_chromium():
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=find_browser(), args=["--no-sandbox"])
        yield browser
        browser.close()


LOCAL = ("http://127.0.0.1:", "ws://127.0.0.1:", "file:", "data:", "blob:")


def requests_of(page):
    """A list that receives the address of every request of a page which leaves the machine."""
    foreign = []

    def note(request):
        return foreign.extend(url for url in [request.url] if not url.startswith(LOCAL))

    page.on("request", note)
    page.on("websocket", note)
    return foreign


def requests_of_file(browser, path, selector):
    """What a saved page requests until it is drawn."""
    page = browser.new_page()
    foreign = requests_of(page)
    page.goto(path.as_uri())
    page.wait_for_selector(selector)
    page.wait_for_load_state("networkidle")
    page.close()
    return foreign


FIND = """async ([script, include, exclude]) => {
  if (!window.axe) document.head.append(Object.assign(document.createElement("script"), { textContent: script }));
  const scope = { include: [include ?? "html"], exclude };
  const { violations } = await window.axe.run(scope, { resultTypes: ["violations"] });
  const tell = ({ html, any }) => `${html.slice(0, 150)} ${any[0]?.message ?? ""}`;
  const found = violations.filter(({ impact }) => impact !== "minor");
  return found.map(({ id, impact, nodes }) => `${id} (${impact}): ${nodes.slice(0, 4).map(tell).join(" | ")}`);
}"""
OTHERS = [[".cl-host"], [".js-plotly-plot"]]  # drawn by jupyter-scatter and plotly


LOOKS = [("light", 420), ("dark", 2560)]


IN_LAB = """() => document.querySelector(".jp-LabShell") !== null
  && !("complearnServed" in document.documentElement.dataset)"""


def is_in_jupyterlab(page):
    """Whether a page is JupyterLab, whose own parts are not judged. The pages that voila serves have its shell too, and
    say themselves what they are."""
    return page.evaluate(IN_LAB)


def accessibility_findings(page):
    """What axe-core finds of moderate weight or more in a page, in JupyterLab in the apps alone. None where axe-core is
    not installed."""
    if not AXE.exists():
        return None
    script = AXE.read_text(encoding="utf-8")
    known = [each for each in OTHERS if page.locator(each[0]).count()]
    return page.evaluate(FIND, [script, ".cl" if is_in_jupyterlab(page) else None, known])


WORDLESS = r"""() => (document.querySelector(".cl") ?? document.body).innerText
  .match(/\[object [^\]]*\]|\bundefined\b|\bNaN\b/g) ?? []"""


def findings_in_looks(page):
    """What axe-core finds in a page as it is, then in both themes, narrow and wide, each said once, and values that a
    script put into words which have none; the page is left as it was. JupyterLab keeps its theme and size."""
    found = dict.fromkeys(accessibility_findings(page) or [], "as it is")
    found |= dict.fromkeys(page.evaluate(WORDLESS), "as it is")
    if not AXE.exists() or is_in_jupyterlab(page):
        return found
    size, was_dark = page.viewport_size, page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    as_it_was = "dark" if was_dark else "light", size["width"]
    for scheme, width in [*LOOKS, as_it_was]:
        page.emulate_media(color_scheme=scheme)
        page.set_viewport_size({"width": width, "height": size["height"]})
        page.evaluate(DRAWN)
        if (scheme, width) != as_it_was:
            for line in accessibility_findings(page):
                found.setdefault(line, f"{scheme} {width}")
    return found


DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 50))))"


def screenshot(page, name):
    """A picture of the page, where COMPLEARN_SHOTS names a folder; axe-core finds nothing in it."""
    found = findings_in_looks(page)
    assert not found, f"{name}: {found}"
    if os.environ.get("COMPLEARN_SHOTS"):
        page.screenshot(path=str(Path(os.environ["COMPLEARN_SHOTS"]) / f"{name}.png"))


def run_in_jupyterlab(page, address):
    """Open a notebook in JupyterLab and run all its cells."""
    page.goto(address)
    page.wait_for_function("window.jupyterapp && document.querySelector('.jp-Notebook .jp-Cell')")
    page.evaluate("async () => { await window.jupyterapp.restored; }")
    page.evaluate("async () => { await window.jupyterapp.shell.currentWidget.sessionContext.ready; }")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells'); }")


def run_cell(page, index):
    """Run one cell of the open notebook."""
    page.evaluate(f"() => {{ window.jupyterapp.shell.currentWidget.content.activeCellIndex = {index}; }}")
    page.evaluate("async () => { await window.jupyterapp.commands.execute('notebook:run-cell'); }")


def screenshot_in_dark(page, selector, name):
    """A picture of an app in JupyterLab's dark theme, where COMPLEARN_SHOTS names a folder."""
    if os.environ.get("COMPLEARN_SHOTS"):
        page.evaluate(
            "async () => { await window.jupyterapp.commands.execute('apputils:change-theme', { theme: 'JupyterLab "
            "Dark' }); }"
        )
        page.wait_for_timeout(2000)
        page.locator(selector).scroll_into_view_if_needed()
        screenshot(page, name)


def with_script(app, function):
    """A function of JavaScript's text that knows the names of an app's script."""
    return f"(argument) => {{ {join_script(app).replace(*UNEXPORT)}; return ({function})(argument); }}"


ATTACH = """() => {
  const view = (text) => new DataView(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer);
  const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
  const listeners = [], traits = {};
  let queue = Promise.resolve();
  const model = {
    get: (name) => traits[name], set: (name, value) => { traits[name] = value; }, off() {},
    save_changes: () => {
      if (window.saved) queue = queue.then(async () => deliver(await window.saved(traits)));
    },
    on: (name, listener) => listeners.push(listener),
    send: (request, _, buffers = []) => {
      queue = queue.then(async () => deliver(await window.kernel(request, buffers.map(encode))));
    },
  };
  const deliver = (messages) => {
    for (const [content, parts] of messages) for (const listener of listeners) listener(content, parts.map(view));
  };
  render({ model, el: document.getElementById("app") });
}"""


PAGE = """<!doctype html><html lang="en"><title>{app}</title>
<style>
  body {{ margin: 12px; background: #ffffff; }}
  .theme-dark body {{ background: #111111; }}
  h1 {{ position: absolute; margin: 0; clip-path: inset(50%); }}
</style>
<script>
  const system = matchMedia("(prefers-color-scheme: dark)");
  const follow = () => document.documentElement.classList.toggle("theme-dark", system.matches);
  system.addEventListener("change", follow);
  follow();
</script>
<body><main><h1>{app}</h1><div id="app"></div></main>"""


def attach(browser, app, controller, dark=False):
    """A page with an app whose controller lives in the test's own process: quick, and without a server."""
    page = browser.new_page(viewport={"width": 1280, "height": 900}, color_scheme="dark" if dark else "light")
    page.set_content(PAGE.format(app=app))
    page.add_style_tag(content=join_style(app))

    def kernel(request, buffers):
        messages = controller.handle(request, [base64.b64decode(buffer) for buffer in buffers])
        return in_text(controller.with_address(messages))

    page.expose_function("kernel", kernel)
    page.evaluate(with_script(app, ATTACH))
    return page


def in_text(messages):
    """Messages as a page can read them that calls a function of Python."""
    return [[content, [base64.b64encode(bytes(part)).decode() for part in parts]] for content, parts in messages]


SERVED = "http://127.0.0.1:9/voila/?token=0123secret"  # nothing listens there: the test itself answers


class ServedApp:
    """An app at an address, as voila serves it: each time that the page is loaded it gets an app of its own."""

    def __init__(self, context, name, open_app, hash=""):
        self.name, self.open_app, self.app = name, open_app, None
        self.page = context.new_page()
        self.faults = []
        self.page.on("pageerror", lambda error: self.faults.append(f"{error}\n{error.stack}"))
        self.page.route("http://127.0.0.1:9/**", self.load)
        self.page.expose_function("kernel", self.kernel)
        self.page.expose_function("saved", self.saved)
        self.page.goto(f"{SERVED}{hash}")

    def load(self, route):
        """Send the page, and begin with a new app."""
        if "favicon" in route.request.url:
            return route.fulfill(status=404)
        self.app = self.open_app()
        page = PAGE.format(app=self.name).replace("<html", "<html data-complearn-served")
        script = f"({with_script(self.name, ATTACH)})();"
        body = f"{page}<style>{join_style(self.name)}</style><script type=module>{script}</script>"
        return route.fulfill(body=body, content_type="text/html; charset=utf-8")

    def kernel(self, request, buffers):
        """What the app sends when the page has asked for something."""
        return self.sent_by(lambda: self.app.answer(request, [base64.b64decode(buffer) for buffer in buffers]))

    def saved(self, traits):
        """What the app sends when the page has changed its synced values."""
        return self.sent_by(lambda: [setattr(self.app, name, value) for name, value in traits.items()])

    def sent_by(self, change):
        """What the app sends while something is done."""
        sent = []
        self.app.send = lambda content, buffers=(): sent.append((content, [*buffers]))
        change()
        return in_text(sent)

    @property
    def hash(self):
        return self.page.evaluate("location.hash.slice(1)")


NOT_VALUES = [
    None,
    True,
    -1,
    1e308,
    float("nan"),
    10**30,
    "",
    "x",
    [],
    [[]],
    {},
    [None],
    {"a": 1},
    "../secret.png",
    "\ud83d",
]


def check_requests(controller, name):
    """A page can send anything: each argument of an action in turn, and requests that are none; all that is
    answered."""
    parameters = [
        *controller.actions[name].arguments.__dataclass_fields__,
        "content",
        "panel",
        "action",
        "view",
        "strange",
    ]
    requests = [{"action": name, parameter: value} for parameter in parameters for value in NOT_VALUES]
    contents = [
        content for request in [*requests, None, [], "connect", 3, {}] for content, _ in controller.handle(request)
    ]
    assert all("type" in content for content in contents)
    return contents
