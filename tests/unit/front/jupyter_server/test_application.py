"""How the extension ends with its server."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.front.jupyter_server import application
from det_jupyter.front.jupyter_server.application import DetJupyterApp


async def _fail() -> None:
    raise OSError("the pipe is gone")


async def _wait_although_cancelled() -> None:
    with suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("close", "said"),
    [(_fail, "the pipe is gone"), (_wait_although_cancelled, "not all of det_jupyter")],
)
def test_a_server_stops_whatever_happens_as_the_extension_ends(
    close: Any, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(application, "_STOP_S", 0.01)
    app = DetJupyterApp()
    app.log = logging.getLogger("of the server")
    app._monitor = SimpleNamespace(close=close)  # type: ignore[assignment]  # a stand-in
    app._tabs = set()

    async def stop() -> None:
        await app.stop_extension()
        for _ in range(2):  # the first one is ignored
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()
            await asyncio.sleep(0)

    asyncio.run(stop())
    assert said in caplog.text
