"""The kernels behind served pages: how many there are, and when they end."""

import asyncio
import json
import os
import re
import subprocess
import sys

import pytest
from browser import write_notebook
from test_apps_search import fetched, visitor

from complearn.apps import serving as server
from complearn.apps.pages import PAGE

CELL = "import os; print('hello page of', os.environ['QUERY_STRING'])"
WAIT = """
import os

os.environ["COMPLEARN_PAGE"] = '{"app": "runs", "folder": ".", "arguments": {}}'
from complearn.apps.catalogue import wait_for_page

wait_for_page()
"""


WAYS = {"on request": ([CELL], False), "ahead": ([WAIT, CELL], True), "with a wait, on request": ([WAIT, CELL], False)}


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def page(request, tmp_path, monkeypatch):
    """The address of a page that is served to two at once, and whose kernel ends three seconds after it was left."""
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    for name, value in (("LEFT_FOR", 3), ("LOOKED_AT_EVERY", 1), ("MOST_PAGES", 2)):
        monkeypatch.setattr(server, name, value)
    cells, ahead = request.param
    notebook = write_notebook(tmp_path / "page.ipynb", cells)
    with server.serving(notebook, env={"PYTHONWARNINGS": "ignore"}, ahead=ahead) as address:
        yield address


async def show(address, user):
    """Open the page as a browser does that goes on showing it: it stays connected to the page's kernel."""
    websocket = pytest.importorskip("tornado.websocket")
    status, content = await asyncio.to_thread(fetched, address, user)
    assert status == 200 and b"hello page of token=" in content
    kernel = re.search(rb'"kernelId": *"([0-9a-f-]{36})"', content)[1].decode()
    root, token = address.split("/?token=")
    return await websocket.websocket_connect(
        f"{root.replace('http', 'ws')}/api/kernels/{kernel}/channels?token={token}"
    )


async def visit(address):
    user = visitor()
    connections = [await show(address, user), await show(address, user)]
    answers = []
    for pause in (0, 8):  # the second more than twice as long as the kernel of a page lives that was left
        await asyncio.sleep(pause)
        answers.append(await asyncio.to_thread(fetched, address, user))
    for connection in connections:
        connection.close()
    for _ in range(60):
        status, _ = await asyncio.to_thread(fetched, address, user)  # pages that a program fetches and leaves at once
        answers.append((status, b""))
        await asyncio.sleep(1)
        if sum(status == 200 for status, _ in answers) == 4:
            break
    return answers


@pytest.mark.slow
def test_pages_that_are_left_end_and_their_number_is_bounded(page):
    first, later, *after = asyncio.run(visit(page))
    for status, content in (first, later):  # two that are looked at stay, and a third is told so
        assert status == 503
        assert b"503: 2 pages are open, and each holds its models in memory; close one and wait up to 4 s" in content
    assert sum(status == 200 for status, _ in after) == 4, "a page that was left keeps its kernel"


TOLD = "import sys; print('prepared:', 'become_kernel' in ' '.join(sys.orig_argv))"


def test_the_kernel_of_the_first_page_is_prepared_while_the_server_starts(tmp_path):
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    notebook = write_notebook(tmp_path / "page.ipynb", [WAIT, TOLD])
    page = json.dumps({"app": "runs", "folder": str(tmp_path), "arguments": {"runs": str(tmp_path)}})
    with server.serving(notebook, env={PAGE: page}, ahead=True) as address:
        pages = [fetched(address, visitor())[1] for _ in range(2)]
    assert [re.search(rb"prepared: (\w+)", content)[1] for content in pages] == [b"True", b"False"]


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_prepared_kernel_that_gets_no_order_ends(tmp_path, folder):
    page = {"app": "runs", "folder": str(tmp_path), "arguments": {"runs": str(tmp_path / folder)}}
    words = [sys.executable, "-c", "from complearn.apps.catalogue import become_kernel; become_kernel()"]
    ended = subprocess.run(
        words, stdin=subprocess.DEVNULL, env=os.environ | {PAGE: json.dumps(page)}, capture_output=True, timeout=120
    )
    assert ended.returncode == 0 and not ended.stdout
