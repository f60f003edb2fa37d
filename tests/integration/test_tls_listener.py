"""Connections that do not begin TLS take no files away from the programs that listen for it."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest

from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import tls_listener
from det_jupyter.contract.host.pending_connections import PendingConnections
from det_jupyter.contract.host.tls_listener import TlsListener
from det_jupyter.master.http.agent_listener import AgentListener
from det_jupyter.master.service.agents.agent_access import AgentAccess
from tests.integration.test_agent_listener import play


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let 3 connections be pending, for a second each."""

    def bounded(self: TlsListener, family: socket.AddressFamily) -> None:
        make(self, family)
        self._pending = PendingConnections(tls_listener._hang_up, most=3, head_s=1.0)

    make = TlsListener.__init__
    monkeypatch.setattr(TlsListener, "__init__", bounded)


async def check_silent_connections(port: int) -> None:
    """Check that of 5 silent connections the first 2 are closed at once, and the others soon."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
    for number, (reader, writer) in enumerate(opened):
        async with asyncio.timeout(0.5 if number < 2 else 5):
            assert await reader.read() == b""
        writer.close()


def test_the_master_closes_connections_that_do_not_begin_tls(tmp_path: Path) -> None:
    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        port = await listener.open()
        await check_silent_connections(port)
        # One that begins it stays until a request is late.
        context = ssl.create_default_context(cafile=access.certificate)
        context.check_hostname = False
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        await asyncio.sleep(1.5)
        writer.write(b"GET / HTTP/1.1\r\nHost: b\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 401")
        writer.close()

    play(tmp_path, scenario)


def test_an_agent_closes_connections_that_do_not_begin_tls() -> None:
    async def scenario() -> None:
        listener = GangListener()
        await listener.open()
        await check_silent_connections(listener.port)
        listener.close()

    asyncio.run(scenario())
