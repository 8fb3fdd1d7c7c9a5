"""The kernels behind served pages: how many there are, and when they end."""

import asyncio
import json
import re
import time
import urllib.request

import pytest
from test_apps_search import fetched, visitor

from complearn.apps import serving as server

CELL = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}, "outputs": [], "source": "print('hello page')"}
KERNEL = {"display_name": "python3", "language": "python", "name": "python3"}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The address of a page that is served to two at once, and whose kernel ends two seconds after it was left."""
    pytest.importorskip("voila", reason="voila is not installed: the app is not served")
    for name, value in (("LEFT_FOR", 2), ("LOOKED_AT_EVERY", 1), ("MOST_PAGES", 2)):
        monkeypatch.setattr(server, name, value)
    notebook = {"cells": [CELL], "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "page.ipynb").write_text(json.dumps(notebook))
    with server.serving(tmp_path / "page.ipynb", env={"PYTHONWARNINGS": "ignore"}) as address:
        yield address


def kernel_of(content):
    return re.search(rb'"kernelId": *"([0-9a-f-]{36})"', content)[1].decode()


async def look_at(address, kernel, seconds):
    """Stay connected to a page's kernel as a browser does that shows it."""
    websocket = pytest.importorskip("tornado.websocket")
    root, token = address.split("/?token=")
    url = f"{root.replace('http', 'ws')}/voila/api/kernels/{kernel}/channels?token={token}"
    connection = await websocket.websocket_connect(url)
    await asyncio.sleep(seconds)
    connection.close()


def is_there(address, user, kernel):
    """Whether a kernel lives: to end it is answered otherwise where it has ended."""
    root, token = address.split("/?token=")
    request = urllib.request.Request(f"{root}/voila/api/kernels/{kernel}?token={token}")
    try:
        with user.open(request, timeout=20) as answer:
            return answer.status == 200
    except urllib.error.HTTPError as error:
        assert error.code == 404, error
        return False


def test_pages_that_are_left_end_and_their_number_is_bounded(page):
    user = visitor()
    (status, first), (other, _) = fetched(page, user), fetched(page, user)
    assert status == other == 200 and b"hello page" in first
    status, content = fetched(page, user)
    assert status == 503 and b"2 pages are open, and each holds its models in memory; close one and wait" in content
    kernel = kernel_of(first)
    asyncio.run(look_at(page, kernel, 6))  # three times as long as an idle kernel may live
    deadline = time.monotonic() + 60
    while fetched(page, user)[0] != 200:
        assert time.monotonic() < deadline, "a page that was left keeps its kernel"
        time.sleep(0.5)
