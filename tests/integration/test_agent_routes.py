"""Which route an agent of another computer may use: a matrix over all routes of the listener."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.routing import Route

from det_jupyter.contract.messages import StoredFiles
from det_jupyter.master.http.agent_listener import AgentGuard, AgentListener
from det_jupyter.master.http.guard import Guard
from tests.integration.master_support import AGENT, RUN, Bench, application_of, bench_with_trial

# What each route is sent here: by another agent's token it would get at that agent's work.
VALUES = {
    "allocation_id": RUN, "uuid": "u", "name": "file", "offset": "0", "size": "1", "of": "traces",
    "digest": "0" * 64, "session": "first", "tunnel_id": "t", "check_id": "c", "num_bytes": "1",
}  # fmt: skip
# Routes whose answer an agent gets though it has no work: nothing of others is in it.
OPEN = {("GET", "clock"), ("GET", "probe"), ("POST", "probe")}
REFUSED = {404, 409, 422}


class Agents:
    """A master whose only trial is on one agent, and another agent, b, on another computer."""

    def __init__(self, bench: Bench, folder: Path) -> None:
        self.bench = bench
        access = bench.service.access
        self.tokens = {name: access.add(name) for name in (AGENT, "b")}
        self.app: AgentGuard = AgentListener(bench.service, access, str(folder))._app

    def routes(self) -> list[tuple[str, str]]:
        """Return method and path of every route."""
        paths: dict[str, dict[str, Any]] = self.app._app.openapi()["paths"]  # type: ignore[attr-defined]
        return [(method.upper(), path) for path, each in paths.items() for method in each]

    def send(self, method: str, path: str, agent: str, authorization: str) -> httpx.Response:
        """Send the request of an agent with the values that the route needs."""
        filled = re.sub(r"{(\w+)}", lambda m: ({"agent_id": agent} | VALUES)[m[1]], path)

        async def request() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="https://m") as http:
                return await http.request(
                    method,
                    filled,
                    params={**VALUES},
                    headers={"Authorization": authorization},
                    json=StoredFiles(files={}).model_dump() if method == "POST" else None,
                )

        return asyncio.run(request())


@pytest.fixture(scope="module")
def agents(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agents]:
    folder = tmp_path_factory.mktemp("master")
    with bench_with_trial(folder / "det.sqlite3") as bench:
        yield Agents(bench, folder)


@pytest.mark.parametrize("kind", ["", "Bearer ", "Bearer wrong", "Basic {}", "{}", "bearer {}"])
def test_no_route_is_served_without_a_token(agents: Agents, kind: str) -> None:
    for method, path in agents.routes():
        answer = agents.send(method, path, "b", kind.format(agents.tokens["b"]))
        assert answer.status_code == 401, (method, path)


def test_no_route_of_an_agent_is_served_to_another(agents: Agents) -> None:
    for method, path in agents.routes():
        answer = agents.send(method, path, AGENT, f"Bearer {agents.tokens['b']}")
        assert answer.status_code == 403, (method, path)
        for detour in (f"b/../{AGENT}", f"b/%2e%2e/{AGENT}", f"b%2F..%2F{AGENT}"):
            answer = agents.send(method, path, detour, f"Bearer {agents.tokens['b']}")
            assert answer.status_code in {403, 404, 405}, (method, path, detour)


def test_an_agent_gets_at_no_run_that_is_not_its_own(agents: Agents) -> None:
    service = agents.bench.service
    capsule = service.machine.state.experiment(1).capsule
    assert capsule.payload == VALUES["digest"]  # so that it is a blob of the other agent's trial
    before = service.machine.state.model_dump_json()
    for method, path in agents.routes():
        answer = agents.send(method, path, "b", f"Bearer {agents.tokens['b']}")
        expected = {200} if (method, path.rpartition("/")[2]) in OPEN else REFUSED
        assert answer.status_code in expected, (method, path, answer.text)
    assert service.machine.state.model_dump_json() == before


def test_the_documents_have_every_route_so_that_the_matrices_do(agents: Agents) -> None:
    """A route that the document leaves out, a socket or a mounted application has no row."""
    bench = agents.bench
    for app in (agents.app._app, application_of(bench)._app):
        paths = app.openapi()["paths"]  # type: ignore[attr-defined]
        documented = {(m.upper(), path) for path, each in paths.items() for m in each}
        found = set(all_routes(app.routes))  # type: ignore[attr-defined]
        assert found - {("GET", "/api/v1/openapi.json"), ("HEAD", "/api/v1/openapi.json")} == (
            documented
        )


def all_routes(routes: Sequence[Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield method and path of every route; fail at what is none."""
    for route in routes:
        if (router := getattr(route, "original_router", None)) is not None:
            yield from all_routes(router.routes, prefix + route.include_context.prefix)
        else:
            assert isinstance(route, Route), route
            path = re.sub(r":\w+}", "}", prefix + route.path)
            yield from ((method, path) for method in route.methods or ())


@pytest.mark.parametrize("kind", ["websocket", "lifespan", "other"])
def test_guards_pass_nothing_but_http_on(agents: Agents, kind: str) -> None:
    async def fail(*_: object) -> Any:
        raise AssertionError("it was passed on")

    async def call() -> None:
        for guard in (AgentGuard(fail, agents.bench.service.access), Guard(fail, "token")):
            headers = [(b"host", b"127.0.0.1"), (b"authorization", b"Bearer token")]
            await guard({"type": kind, "headers": headers, "path": "/"}, fail, fail)

    asyncio.run(call())


def test_no_route_of_users_is_on_the_listener_of_agents(agents: Agents) -> None:
    prefix = "/api/v1/agents/{agent_id}/"
    assert all(path.startswith(prefix) for _, path in agents.routes())
    for path in ("/api/v1/agents/b/credentials", "/api/v1/agents/b/series"):
        answer = agents.send("GET", path, "b", f"Bearer {agents.tokens['b']}")
        assert answer.status_code in {404, 405}
