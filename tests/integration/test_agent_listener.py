"""The port for agents on other computers: when it opens, why it does not, and when it closes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from det_jupyter.errors import DetError
from det_jupyter.master.http import agent_listener
from det_jupyter.master.http.agent_listener import AgentListener, access_routes
from det_jupyter.master.http.responses import API, DiskSpace, add_error_handlers
from det_jupyter.master.service.agents.agent_access import AgentAccess
from tests.integration.master_support import Bench


def play(folder: Path, scenario: Callable[[AgentListener, AgentAccess], Awaitable[None]]) -> None:
    """Run a scenario with a listener and one agent that may connect."""
    bench = Bench(folder / "db")

    async def run() -> None:
        access = AgentAccess(folder / "agents")
        access.add("b")
        listener = AgentListener(bench.service, access, str(folder))
        try:
            await scenario(listener, access)
        finally:
            await listener.close()

    try:
        asyncio.run(run())
    finally:
        bench.service.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_port_is_open_to_both_kinds_of_addresses_and_kept(tmp_path: Path, address: str) -> None:
    if address == "::1" and not socket.has_dualstack_ipv6():
        pytest.skip("this computer has no IPv6")

    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        port = await listener.open()
        assert (await listener.open(), access.port) == (port, port)
        _, writer = await asyncio.open_connection(address, port)
        writer.close()
        await writer.wait_closed()

    play(tmp_path, scenario)


def test_older_versions_of_tls_are_refused(tmp_path: Path) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        port = await listener.open()
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", port, ssl=context)

    play(tmp_path, scenario)


def test_port_that_is_taken_can_be_opened_when_it_is_free(tmp_path: Path) -> None:
    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        with socket.create_server(("127.0.0.1", 0)) as other:
            port = other.getsockname()[1]
            access.set_port(port)
            with pytest.raises(DetError, match=f"port {port}, which cannot be opened"):
                await listener.open()
        assert await listener.open() == port

    play(tmp_path, scenario)


def test_port_is_closed_and_forgotten_with_the_last_agent(tmp_path: Path) -> None:
    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        port = await listener.open()
        await listener.close_unneeded()
        assert access.port == port
        access.remove("b")
        await listener.close_unneeded()
        assert access.port is None
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        access.add("c")
        assert await listener.open() == access.port

    play(tmp_path, scenario)


def test_port_stays_open_until_an_agent_that_was_removed_while_it_was_away_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_listener, "_REFUSES_S", 0.01)

    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        token = access.add("b")
        port = await listener.open()
        access.remove("b", awaited_from=time.time())
        listener.close_soon()
        await asyncio.sleep(0.1)
        access = AgentAccess(tmp_path / "agents")  # as the next master reads it
        assert (access.needs_port(time.time()), access.port) == (True, port)
        assert not access.needs_port(time.time() + 8 * 86_400)
        trusted = ssl.create_default_context(cafile=str(access.certificate))
        trusted.check_hostname = False
        async with httpx.AsyncClient(verify=trusted) as http:
            url = f"https://127.0.0.1:{port}{API}/agents/b/clock"
            answer = await http.get(url, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 401
        assert "the agent was removed" in answer.text
        while AgentAccess(tmp_path / "agents").port is not None:
            await asyncio.sleep(0.01)

    play(tmp_path, scenario)


def test_port_stays_open_for_clusters_without_agents(tmp_path: Path) -> None:
    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        port = await listener.open("ray")
        access.remove("b")
        await listener.close_unneeded()
        assert (await listener.open(), access.port) == (port, port)
        await listener.close_unneeded("ray")
        assert access.port is None

    play(tmp_path, scenario)


@pytest.mark.parametrize("name", ["certificate.pem", "key.pem"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, name: str) -> None:
    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        path = tmp_path / "agents" / name
        path.write_text("{")
        with pytest.raises(DetError, match=r"certificate.pem or key.pem cannot be used"):
            await listener.open()
        path.unlink()
        with pytest.raises(DetError, match=r"cannot be used \(No such file or directory\)"):
            await listener.open()
        access.add("b")
        await listener.open()

    play(tmp_path, scenario)


def test_agents_of_clusters_and_of_this_computer_are_not_added_or_removed_alone(
    tmp_path: Path,
) -> None:
    bench = Bench(tmp_path / "db")
    service, name = bench.service, "ray-node-a-aaaaaa"
    service.access.add(name, cluster="ray")
    app = FastAPI()
    add_error_handlers(app, DiskSpace(str(tmp_path)), service)
    listener = AgentListener(service, service.access, str(tmp_path))
    app.include_router(access_routes(service, service.access, listener))

    async def answers() -> list[httpx.Response]:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url=f"http://m{API}") as http:
            path = f"/agents/{name}/credentials"
            own = f"/agents/{socket.gethostname()}/credentials"  # has not registered yet
            return [await http.delete(path), *[await http.post(p, json={}) for p in (path, own)]]

    removed, added, own = asyncio.run(answers())
    bench.service.close()
    assert (removed.status_code, added.status_code, own.status_code) == (409, 409, 409)
    assert "on a node of cluster ray, and would be started again" in removed.text
    assert "the name of an agent of cluster ray; choose another" in added.text
    assert "the name of an agent of this computer; choose another" in own.text
    assert service.access.agents == [name]


def test_nothing_goes_on_when_the_master_has_closed_it(tmp_path: Path) -> None:
    async def scenario(listener: AgentListener, access: AgentAccess) -> None:
        await listener.open()
        listener.close_soon()
        await asyncio.sleep(0)
        await listener.close()
        await listener.close()  # again: that is no failure
        for _ in range(3):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert access.port is not None  # the next master has the same one

    play(tmp_path, scenario)
