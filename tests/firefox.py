"""Firefox as the tests drive it: Marionette, the protocol that every Firefox speaks, and a small server of pages.

Playwright drives a Firefox of its own alone, and not the one that a system brings."""

import base64
import json
import os
import shutil
import socket
import subprocess
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from browser import PAGE, UNEXPORT

from complearn.apps.pages import join_script, join_style

PROGRAM = shutil.which("firefox-esr") or shutil.which("firefox")
SETTINGS = {
    "marionette.port": 0,  # any free one, which Firefox writes into its profile
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.disabledForTesting": True,
    "browser.aboutwelcome.enabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "services.settings.server": "data:,#remote-settings-dummy/v1",
    "toolkit.telemetry.server": "data:,",
}
SECONDS = 30  # for Firefox to start, and for a page to do what it is asked


class Firefox:
    """A Firefox without a window."""

    def __init__(self, connection, process):
        self.connection = connection
        self.process = process
        self.received = b""
        self.number = 0
        self._read()  # what Firefox says of itself
        self.call("WebDriver:NewSession", capabilities={"alwaysMatch": {"timeouts": {"script": 1000 * SECONDS}}})

    def _read(self):
        """The next message: its length, a colon, JSON."""
        while b":" not in self.received:
            self.received += self.connection.recv(65536) or self._end()
        length, _, rest = self.received.partition(b":")
        while len(rest) < int(length):
            rest += self.connection.recv(65536) or self._end()
        self.received = rest[int(length) :]
        return json.loads(rest[: int(length)])

    def _end(self):
        raise RuntimeError(f"Firefox has ended with status {self.process.poll()}")

    def call(self, name, **parameters):
        """The answer to a command; raise RuntimeError with what Firefox says."""
        self.number += 1
        message = json.dumps([0, self.number, name, parameters]).encode()
        self.connection.sendall(str(len(message)).encode() + b":" + message)
        _, _, error, value = self._read()
        if error:
            raise RuntimeError(f"{name}: {error['message']}")
        return value

    def open(self, address):
        """Go to a page."""
        self.call("WebDriver:Navigate", url=address)

    def run(self, script, *arguments):
        """The value that a script's body returns."""
        return self.call("WebDriver:ExecuteScript", script=script, args=list(arguments))["value"]

    def wait_for(self, condition):
        """Wait until an expression of JavaScript is true; raise TimeoutError with what the page shows."""
        end = time.monotonic() + SECONDS
        while not (value := self.run(f"return ({condition}) || null")):
            if time.monotonic() > end:
                raise TimeoutError(f"{condition} is not true on: {self.run('return document.body.innerText')[:2000]}")
            time.sleep(0.05)
        return value

    def click(self, selector):
        """Click what a selector finds first, as a person does."""
        self.wait_for(f"document.querySelector({json.dumps(selector)})")
        found = self.call("WebDriver:FindElement", using="css selector", value=selector)["value"]
        self.call("WebDriver:ElementClick", id=next(iter(found.values())))

    def type(self, selector, text):
        """Type into a field and press Enter."""
        found = self.call("WebDriver:FindElement", using="css selector", value=selector)["value"]
        self.call("WebDriver:ElementSendKeys", id=next(iter(found.values())), text=text + "\ue007")

    def faults(self):
        """The errors of a page that `pages` serves."""
        return self.run("return window.faults")

    def picture(self, name):
        """A picture of the page, where COMPLEARN_SHOTS names a folder."""
        if os.environ.get("COMPLEARN_SHOTS"):
            shown = self.call("WebDriver:TakeScreenshot", full=False)["value"]
            (Path(os.environ["COMPLEARN_SHOTS"]) / f"{name}.png").write_bytes(base64.b64decode(shown))


@contextmanager
def open_firefox(profile):
    """Firefox with a profile in an empty folder."""
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in SETTINGS.items()]
    (profile / "user.js").write_text("\n".join(lines))
    words = [PROGRAM, "--headless", "--marionette", "--no-remote", "--profile", str(profile), "about:blank"]
    environment = os.environ | {"HOME": str(profile), "MOZ_DISABLE_AUTO_SAFE_MODE": "1"}
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        port = profile / "MarionetteActivePort"
        end = time.monotonic() + 2 * SECONDS
        while not (port.exists() and port.read_text()):
            assert process.poll() is None and time.monotonic() < end, "Firefox did not start"
            time.sleep(0.1)
        with socket.create_connection(("127.0.0.1", int(port.read_text()))) as connection:
            connection.settimeout(2 * SECONDS)
            yield Firefox(connection, process)
    finally:
        process.kill()
        process.wait()


WATCH = """<script>window.faults = [];
addEventListener("error", (event) => window.faults.push(String(event.message)));
addEventListener("unhandledrejection", (event) => window.faults.push(String(event.reason)));</script>"""
ATTACH = """
const view = (text) => new DataView(Uint8Array.from(atob(text), (character) => character.charCodeAt(0)).buffer);
const encode = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer)));
const listeners = [], traits = {};
let queue = Promise.resolve();
const model = {
  get: (name) => traits[name], set: (name, value) => { traits[name] = value; }, save_changes() {}, off() {},
  on: (name, listener) => listeners.push(listener),
  send: (request, _, buffers = []) => {
    queue = queue.then(async () => {
      const body = JSON.stringify([request, buffers.map(encode)]);
      for (const [content, parts] of await (await fetch("kernel", { method: "POST", body })).json())
        for (const listener of listeners) listener(content, parts.map(view));
    });
  },
};
render({ model, el: document.getElementById("app") });
"""


def app_page(app):
    """The page of an app, whose requests go to the server that it came from."""
    script = f"<script>{{ {join_script(app).replace(*UNEXPORT)}; {ATTACH} }}</script>"
    return PAGE.format(app=app) + f"<style>{join_style(app)}</style>{script}"


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        name = self.path.partition("?")[0].strip("/")
        folder = self.server.folder
        file = folder / name if folder else None
        if not name and self.server.page:
            self._answer(200, "text/html; charset=utf-8", WATCH + self.server.page)
        elif file and file.is_file():
            text = file.suffix == ".html"
            kind = {".html": "text/html; charset=utf-8", ".css": "text/css", ".js": "text/javascript"}
            content = WATCH.encode() + file.read_bytes() if text else file.read_bytes()
            self._answer(200, kind.get(file.suffix, "application/octet-stream"), content)
        else:
            self._answer(404, "text/plain", "not here")

    def do_POST(self):
        request, buffers = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            messages = self.server.controller.handle(request, [base64.b64decode(part) for part in buffers])
        plain = [[content, [base64.b64encode(bytes(part)).decode() for part in parts]] for content, parts in messages]
        self._answer(200, "application/json", json.dumps(plain))

    def _answer(self, status, kind, content):
        content = content.encode() if isinstance(content, str) else content
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments):
        pass


@contextmanager
def pages(folder=None, app=None, controller=None):
    """The address of a folder's pages, or of an app with its controller; each page notes its errors."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.folder, server.controller, server.lock = folder, controller, threading.Lock()
    server.page = app_page(app) if app else None
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
