"""Each app as its command serves it: nothing is reached without the token, from a page elsewhere or by another name.
The page shows the app without a request to another machine."""

import contextlib
import http.client
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.parse
from concurrent.futures import ThreadPoolExecutor

import albums
import pytest
import training_runs
from browser import open_chromium, requests_of, write_notebook
from faults import note
from test_apps_search import fetched

from complearn.apps import serving as server
from complearn.training.runs.launch import launch, prepare

APPS = {  # app -> its options, and what is there once it can be used
    "codes": (["--runs", "il/runs"], ".cl-grid canvas, .cl-grid img, .cl-list li, .cl-card"),
    "concepts": (["--captions", "photos/captions.csv"], ".cl-card, .cl-concepts, main"),
    "edits": (["--captions", "photos/captions.csv"], ".cl-gallery > button"),
    "map": (["--runs", "il/runs/one", "--gallery", "photos"], "canvas"),
    "review": (["--edits", "negatives.jsonl"], ".cl-card"),
    "runs": (["--runs", "il"], "table"),
    "search": (["--runs", "il/runs/one", "--gallery", "photos"], ".cl-tile"),
    "stages": (["--runs", "stages/one", "--gallery", "photos"], "canvas, svg, img"),
}
UPGRADE = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
UPGRADE["Sec-WebSocket-Key"] = 22 * "x" + "=="


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    albums.write_photos(folder / "photos", 12)
    short = {"warmup": 2, "distil": 2, "interact": 2, "generations": 1, "final": 1, "ramp": 1}
    method = {"name": "il_clip", "args": training_runs.IL["args"] | short}
    launch(prepare(folder / "il" / "runs" / "one", training_runs.config(method)).path, "cpu", False)
    tower = training_runs.MODEL["vision"]
    stages = {"kind": "stages", "vision": tower, "projection": 8, "stages": 2}
    config = {
        "method": {"name": "multistage", "args": {"steps": 2, "grouping": {"clusters": 2, "small": "partial"}}},
        "model": stages,
        "data": {"name": "trifeature", "args": {"samples": 1, "shapes": 3, "textures": 2, "colours": 3}},
        "train": training_runs.TRAIN,
        "seed": 0,
    }
    launch(prepare(folder / "stages" / "one", config).path, "cpu", False)
    line = {"id": "1", "image_id": "1", "caption": "a dog", "negatives": ["a cat", "a dig", "a cow"]}
    (folder / "negatives.jsonl").write_text(json.dumps(line) + "\n")
    (folder / "secret.txt").write_text("a secret of this folder")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def status_of(address, path, headers, method="GET", body=None):
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=30)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    content = answer.read(100_000) if answer.status != 101 else b""
    connection.close()
    return answer.status, content


def cookie_of(address):
    """What the browser of this person sends from then on."""
    connection = http.client.HTTPConnection(urllib.parse.urlsplit(address).netloc, timeout=120)
    connection.request("GET", "/api/status?" + address.partition("?")[2])
    answer = connection.getresponse()
    answer.read()
    cookies = [value.partition(";")[0] for name, value in answer.getheaders() if name.lower() == "set-cookie"]
    connection.close()
    assert cookies, "the token lets in, and is remembered"
    return "; ".join(cookies)


def check_doors(address, kernel):
    """What a program without the token, a page of another origin, and another name of this machine get; returns how
    many doors were tried."""
    tried = []
    root, token = address.split("?")
    for path in (
        "",
        f"api/kernels/{kernel}",
        "api/contents/",
        "files/secret.txt",
        "voila/files/secret.txt",
        "..%2fsecret.txt",
    ):
        status, content = fetched(root + path)
        tried.append(path)
        assert b"a secret" not in content and b"jupyter-config-data" not in content, path
        assert status in (401, 403, 404) or b"password" in content.lower(), (path, status)
    for host in ("evil.example", "localhost.evil.example", "192.0.2.1", ""):
        assert status_of(address, f"/?{token}", {"Host": host})[0] == 403, host
        tried.append(host)
    channels = f"/api/kernels/{kernel}/channels"
    for way, headers in ((channels, UPGRADE), (f"{channels}?{token}", UPGRADE | {"Host": "evil.example"})):
        assert status_of(address, way, headers)[0] == 403
        tried.append(way)
    cookie = {"Cookie": cookie_of(address), "Origin": "http://evil.example"}
    for way, headers in ((channels, UPGRADE | cookie), (f"/api/kernels/{kernel}", cookie)):
        status, content = status_of(address, way, headers)
        assert status in (403, 404) and kernel.encode() not in content, (way, status)
        tried.append(f"{way} with the cookie, from a page elsewhere")
    for method, path in (
        ("POST", "/api/kernels"),
        ("PUT", "/api/contents/mine.txt"),
        ("DELETE", f"/api/kernels/{kernel}"),
    ):
        assert status_of(address, path, {"Origin": "http://evil.example"}, method)[0] in (403, 404, 405), path
        tried.append(path)
    return len(tried)


@pytest.mark.browser
@pytest.mark.parametrize("app", APPS)
def test_an_app_is_served_to_this_person_alone(app, place):
    pytest.importorskip("voila", reason="voila is not installed: the apps are not served")
    options, shown = APPS[app]
    env = {**os.environ, "COMPLEARN_TYPECHECK": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "complearn.apps.serving", app, *options]
    launcher = subprocess.Popen(command, env=env, cwd=place, stdout=subprocess.PIPE, text=True)
    try:
        address = None
        while address is None and (line := launcher.stdout.readline()):
            address = re.search(r"http://127\.0\.0\.1:\d+/\?token=\w+", line)
        address = address[0]
        with open_chromium() as browser:
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            page.set_default_timeout(120_000)
            elsewhere = requests_of(page)
            faults = []
            page.on("pageerror", lambda error: faults.append(str(error)))
            answer = page.goto(address)
            assert answer.status == 200
            kernel = re.search(r'"kernelId": *"([0-9a-f-]{36})"', answer.text())[1]
            page.wait_for_selector(shown)
            doors = check_doors(address, kernel)
            assert not page.get_by_text("Traceback").count() and not elsewhere
            assert not [fault for fault in faults if "/voila/" not in fault and "/static/" not in fault], faults
    finally:
        launcher.terminate()
        assert launcher.wait(30) == 0
    note("T7", app, doors=doors, open=0)


def test_a_crowd_and_a_flood_do_not_stop_a_page(tmp_path):
    """200 connections that say nothing, 100 requests at once and 150 MB to one door: whoever asks is answered, the
    server takes no more memory for it, and its token is in no command line."""
    psutil = pytest.importorskip("psutil", reason="psutil, which comes with ipykernel, is not installed")
    pytest.importorskip("voila", reason="voila is not installed: the apps are not served")
    notebook = write_notebook(tmp_path / "page.ipynb", ["print('hello')"])
    with server.serving(notebook, env={"PYTHONWARNINGS": "ignore"}) as address, contextlib.ExitStack() as stack:
        here = psutil.Process()
        (process,) = [child for child in here.children() if "run_while_parent_lives" in " ".join(child.cmdline())]
        root, token = address.split("?token=")
        place = urllib.parse.urlsplit(address)
        assert token not in " ".join(" ".join(each.cmdline()) for each in [process, *process.children(recursive=True)])
        before = process.memory_info().rss
        for _ in range(200):
            stack.enter_context(socket.create_connection((place.hostname, place.port), 30))
        began = time.monotonic()
        with ThreadPoolExecutor(100) as pool:
            answers = list(pool.map(lambda _: fetched(root)[0], range(100)))  # the page that asks for the token
        assert set(answers) == {200} and time.monotonic() - began < 60, answers
        with contextlib.suppress(OSError, http.client.HTTPException):  # refused while it is sent
            status, _ = status_of(address, f"/api/contents?token={token}", {}, "POST", bytes(150 * 2**20))
            assert status >= 400
        assert fetched(root)[0] == 200
        assert process.memory_info().rss < before + 100 * 2**20
