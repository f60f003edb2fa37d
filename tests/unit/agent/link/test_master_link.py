"""From when a remote agent counts how long the master has not answered."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from det_jupyter.agent.link import master_link
from det_jupyter.agent.link.master_link import MasterLink, open_http
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import (
    PROTOCOL,
    AgentCredentials,
    AgentReports,
    CheckConnections,
    ConnectionsChecked,
    GangLink,
    KillGang,
    MasterInfo,
    PassOrders,
    RankKernel,
)
from det_jupyter.errors import AgentDismissed, MasterUnreachable

NOTHING = AgentReports(session="s", reports=[])


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list with the time since boot."""
    now = [1000.0]
    monkeypatch.setattr(master_link, "since_boot", lambda: now[0])
    return now


def play(
    answer: Callable[[httpx.Request], httpx.Response],
    scenario: Callable[[MasterLink], Coroutine[Any, Any, None]],
) -> list[float]:
    """Return the times with which `on_answer` is called in a scenario."""
    answered: list[float] = []

    async def run() -> list[float]:
        transport = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=transport, base_url="http://m") as http:
            link = MasterLink(http, agent_id="b", session="s", on_answer=answered.append)
            await scenario(link)
            return answered

    return asyncio.run(run())


def test_answer_counts_from_when_its_request_began(clock: list[float]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        clock[0] += 20.0  # the master received the request at any time since
        return httpx.Response(200, content=b'{"offsets": {}}')

    async def scenario(link: MasterLink) -> None:
        clock[0] = 1005.0
        await link.report(NOTHING)

    assert play(answer, scenario) == [1005.0]


def test_heartbeats_of_a_master_that_receives_nothing_do_not_count(clock: list[float]) -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        clock[0] += 9.0
        return httpx.Response(200, content=b"\n\n")

    async def scenario(link: MasterLink) -> None:
        assert [command async for command in link.commands()] == []

    assert play(answer, scenario) == []


@pytest.mark.parametrize("status", [404, 500])
def test_kernel_that_the_master_refuses_does_not_end_the_link(
    clock: list[float], status: int
) -> None:
    async def scenario(link: MasterLink) -> None:
        kernel = RankKernel(allocation_id="1.1.1", rank=0, key="0" * 64)
        assert await link.announce(kernel) == f"the master answered {status}: it is over"

    play(lambda _: httpx.Response(status, content=b"it is over"), scenario)


def test_refused_agent_shows_the_masters_sentences() -> None:
    def answer(_: httpx.Request) -> httpx.Response:
        problem = {"path": "", "text": "this token is of no agent"}
        return httpx.Response(status, json={"problems": [problem]})

    async def scenario(link: MasterLink) -> None:
        refused = "the master answered 409: this token is of no agent"
        with pytest.raises(MasterUnreachable, match=f"^clock: {refused}$"):
            await link.clock_ahead_s()
        with pytest.raises(MasterUnreachable, match=f"^reports: {refused}$"):
            await link.report(NOTHING)
        with pytest.raises(MasterUnreachable, match=f"^commands: {refused}$"):
            await anext(aiter(link.commands()))

    status = 409
    assert play(answer, scenario) == []

    async def dismissed(link: MasterLink) -> None:
        with pytest.raises(AgentDismissed, match=r"^this token is of no agent$"):
            await link.report(NOTHING)

    status = 401
    assert play(answer, dismissed) == []


def test_the_clock_is_compared_by_the_fastest_of_some_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    requests = iter([(4.0, 0.5), (2.0, 0.25), (0.5, 0.0), (3.0, -1.0)])  # seconds, error in them
    monkeypatch.setattr(master_link, "time", SimpleNamespace(time=lambda: now[0]))

    def answer(request: httpx.Request) -> httpx.Response:
        seconds, error = next(requests)
        at = now[0] + seconds / 2 - 30.0 + error
        now[0] += seconds
        return httpx.Response(200, json={"at": at})

    async def scenario(link: MasterLink) -> None:
        assert await link.clock_ahead_s() == 30.0

    assert play(answer, scenario) == []
    assert next(requests, None) is None


@pytest.mark.parametrize("is_reached", [True, False])
def test_an_agent_that_measures_its_connections_can_be_measured_itself_for_some_time(
    monkeypatch: pytest.MonkeyPatch, is_reached: bool
) -> None:
    events: list[object] = []
    gang = GangLink(agents=["b"], addresses=["here"], ports=[1], certificate="", secret="s")
    command = CheckConnections(check_id="c/1", link=gang, num_bytes=0)
    checked = ConnectionsChecked(latency_s=0.5, down_bytes_per_s=1.0, up_bytes_per_s=2.0)

    class Listener:
        @contextmanager
        def accepting(self, gang: str, link: GangLink) -> Iterator[None]:
            events.append(("open", gang, link))
            yield
            events.append("closed")

    async def measure(*given: object) -> ConnectionsChecked:
        _, *others = given
        events.append(others)
        return checked

    async def sleep(seconds: float) -> None:
        events.append(seconds)

    def answer(request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode()
        events.append((path, ConnectionsChecked.model_validate_json(request.content)))
        if not is_reached:
            raise httpx.ConnectError("no route")
        return httpx.Response(200)

    monkeypatch.setattr(master_link, "measure", measure)
    monkeypatch.setattr(master_link, "asyncio", SimpleNamespace(sleep=sleep))

    async def scenario(link: MasterLink) -> None:
        listener: Any = Listener()
        await link.check(command, agent="b", listener=listener)

    play(answer, scenario)
    assert events == [
        ("open", "c/1", gang),
        ["/api/v1/agents/b", command, "b"],
        ("/api/v1/agents/b/checks/c%2F1", checked),
        20.0,
        "closed",
    ]


def test_commands_arrive_whole_however_the_stream_is_cut() -> None:
    told = [
        PassOrders(allocation_id=f"{number}.1.1", orders=[]).model_dump_json().encode()
        for number in (1, 2, 3)
    ]
    # A line may contain a separator of Unicode, and end anywhere in a part.
    name = "a\u2028b"
    told.append(KillGang(allocation_id=name).model_dump_json().encode())
    stream = b"\n" + told[0] + b"\n \n" + b"\n".join(told[1:]) + b"\n"

    async def parts() -> AsyncIterator[bytes]:
        for start in range(0, len(stream), 7):
            yield stream[start : start + 7]

    async def scenario(link: MasterLink) -> None:
        found = [command async for command in link.commands()]
        ids = [getattr(command, "allocation_id", "") for command in found]
        assert ids == ["1.1.1", "2.1.1", "3.1.1", name]

    play(lambda _: httpx.Response(200, content=parts()), scenario)


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_master_is_reached_without_a_proxy_and_within_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_remote: bool
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    trusted: list[str] = []
    context = ssl.create_default_context()

    def trusting(certificate: str) -> ssl.SSLContext:
        trusted.append(certificate)
        return context

    monkeypatch.setattr(master_link, "trusting", trusting)
    credentials = AgentCredentials(agent="b", url="https://m:1", certificate="pem", token="t")
    with pytest.raises(MasterUnreachable, match="there is no "):
        open_http(None)
    paths.write_private(paths.master_file(), "{}")
    with pytest.raises(MasterUnreachable, match="was written by another version of det_jupyter"):
        open_http(None)
    info = MasterInfo(
        url="http://127.0.0.1:7", token="t", pid=1, started_at=1.0, version="0",
        protocol=PROTOCOL, python="python", data_dir="",
    )  # fmt: skip
    paths.write_private(paths.master_file(), info.model_dump_json())
    http = open_http(credentials if is_remote else None)
    assert str(http.base_url) == ("https://m:1" if is_remote else "http://127.0.0.1:7")
    assert http.headers["Authorization"] == "Bearer t"
    assert (http.trust_env, http.timeout.read, http.timeout.connect) == (False, 60.0, 2.0)
    assert trusted == ["pem"] * is_remote
