"""The server with a real master and its reader."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.websocket import WebSocketClientConnection

from det_jupyter._version import __version__
from det_jupyter.front.jupyter_server import reader_sockets
from tests.forks import PYTHON_PATH
from tests.integration.server.support import Client, heard
from tests.processes import DetHome, det_home, find
from tests.waiting import until


@pytest.fixture
def home(tmp_path: Path, jp_environ: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[DetHome]:
    # pytest-jupyter sets it; with the former one the master is a fork (tests/forked_programs.py).
    monkeypatch.setenv("PYTHONPATH", PYTHON_PATH or "")
    if PYTHON_PATH is None:
        monkeypatch.delenv("PYTHONPATH")
    with det_home(tmp_path / "det", {}) as home:
        yield home


@pytest.fixture(autouse=True)
def jp_server_cleanup(home: DetHome, jp_server_cleanup: None) -> None:
    """Have the server end before the home."""


async def document_of(socket: WebSocketClientConnection, number: int) -> Any:
    """Return the first version of a document."""
    while True:
        frame = await heard(socket)
        assert isinstance(frame, dict), frame
        if frame["op"] == "document" and frame["id"] == number:
            return frame["data"]


async def test_a_page_starts_the_master_and_is_told_of_all_that_changes(
    home: DetHome, client: Client, extension: Any
) -> None:
    started, _ = await asyncio.gather(
        client.ask("master/start", "POST"), client.ask("master/start", "POST")
    )
    assert started.data == {
        "state": "running", "version": __version__, "problem": "", "command": ""
    }  # fmt: skip
    assert (await client.ask("api/experiments")).data["rows"] == []
    socket = await client.socket()
    hello = await heard(socket)
    assert (hello["op"], hello["version"]) == ("hello", __version__)
    assert hello["instance"] != ""
    follow = {"op": "follow", "id": 1, "document": "experiments", "args": {}}
    await socket.write_message(json.dumps(follow))
    assert await document_of(socket, 1) == {"rows": {}}
    await until(lambda: extension._monitor.is_following, "the server follows, too")
    stopped = await client.ask("api/master/stop", "POST", body={"everything": True})
    assert stopped.status == 200
    while await heard(socket) is not None:
        pass
    assert socket.close_code == 1012, "the reader ends with its master"
    while (state := (await client.ask("info")).data["master"]["state"]) == "running":
        await asyncio.sleep(0.05)  # its agent ends
    assert state == "stopped"
    assert (await client.ask("api/experiments")).status == 503
    again = await client.socket()
    hello = await heard(again)
    assert (hello["instance"], hello["master"]["state"]) == ("", "stopped")
    await client.ask("master/start", "POST")
    hello = await next_hello(again)
    assert (hello["instance"] != "", hello["master"]["state"]) == (True, "running")
    await again.write_message(json.dumps(follow))
    assert await document_of(again, 1) == {"rows": {}}
    again.close()


async def next_hello(socket: WebSocketClientConnection) -> dict[str, Any]:
    """Return the next greeting."""
    while True:
        frame = await heard(socket)
        assert isinstance(frame, dict), frame
        if frame["op"] == "hello":
            return frame


@pytest.mark.parametrize("det_options", [{"start_master": True}])
async def test_the_first_page_starts_the_master_and_one_that_was_killed_is_started_again(
    home: DetHome, client: Client
) -> None:
    socket = await client.socket()
    hello = await next_hello(socket)
    assert (hello["instance"], hello["master"]["state"]) == ("", "starting")
    hello = await next_hello(socket)
    assert (hello["instance"] != "", hello["master"]["state"]) == (True, "running")
    home.master().kill()
    while await heard(socket) is not None:
        pass
    assert socket.close_code == 1012
    after = await hello_of_another(client, hello["instance"])
    assert after["master"]["state"] == "running"


async def hello_of_another(client: Client, instance: str) -> dict[str, Any]:
    """Return the greeting of the next master; open sockets until then, as a page does.

    A socket is closed at once while the killed master's ports are closed and its process is not
    quite gone.
    """
    while True:
        socket = await client.socket()
        while (frame := await heard(socket)) is not None:
            if frame["op"] != "hello":
                continue
            if frame["instance"] not in ("", instance):
                socket.close()
                return dict(frame)
            assert frame["master"]["state"] == "starting"
        assert socket.close_code in (1012, 1013), socket.close_reason
        await asyncio.sleep(0.1)


async def test_a_reader_that_is_stopped_is_replaced_by_its_master(
    home: DetHome, client: Client, extension: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.ask("master/start", "POST")
    socket = await client.socket()
    hello = await next_hello(socket)
    await until(lambda: extension._monitor.is_following, "the server follows, too")
    stuck = find(home.path, "det_jupyter.reader")
    assert stuck is not None
    stuck.suspend()
    with monkeypatch.context() as limits:
        limits.setattr(reader_sockets, "_ANSWER_S", 0.5)
        other = await client.socket()
        assert await heard(other) is None
    assert (other.close_code, "does not answer" in (other.close_reason or "")) == (1013, True)
    assert await heard(socket) is None
    again = await client.socket()
    assert (await next_hello(again))["instance"] != hello["instance"]
    assert not stuck.is_running()
    again.close()
