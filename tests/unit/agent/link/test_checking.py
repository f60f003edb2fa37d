"""A check of an agent's connections never holds up what the agent does meanwhile."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from det_jupyter.agent.link import checking
from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel import peers
from det_jupyter.agent.tunnel.dialing import Dialer, Unreached
from det_jupyter.contract.messages import (
    CheckConnections,
    ConnectionsChecked,
    Cut,
    GangLink,
    PeerMeasured,
)
from det_jupyter.errors import LaunchError

Requests = list[tuple[str, str, int]]  # the method, the path and the size of the content


def measured_with(
    command: CheckConnections, *, status: int = 200
) -> tuple[ConnectionsChecked, Requests]:
    """Return what agent `b` measures, and what it has requested of the master."""
    requests: Requests = []

    def answer(request: httpx.Request) -> httpx.Response:
        requests.append((request.method, request.url.raw_path.decode(), len(request.content)))
        return httpx.Response(status)

    async def measure() -> ConnectionsChecked:
        master = httpx.MockTransport(answer)
        async with httpx.AsyncClient(transport=master, base_url="http://master") as http:
            return await checking.measure(http, "/agents/b", command, "b")

    return asyncio.run(measure()), requests


def measured(probe: Path) -> ConnectionsChecked:
    link = GangLink(agents=["b"], addresses=["here"], ports=[1], certificate="", secret="s")
    return measured_with(CheckConnections(check_id="c", link=link, probe=str(probe)))[0]


def test_a_folder_is_in_common_if_the_masters_file_is_there(tmp_path: Path) -> None:
    probe = tmp_path / "probe"
    probe.touch()
    assert measured(probe).has_folder
    assert not measured(tmp_path / "other").has_folder


def test_a_folder_that_does_not_answer_counts_as_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hang(_: str) -> bool:
        threading.Timer(0.5, answers.set).start()
        return answers.wait(600)

    monkeypatch.setattr(os.path, "exists", hang)
    monkeypatch.setattr(checking, "_FOLDER_S", 0.05)
    assert not measured(tmp_path / "probe").has_folder


REACHED = PeerMeasured(latency_s=0.5)
CUT = Cut(from_agent="b", to_agent="c", why="no answer")


@pytest.mark.parametrize(
    ("error", "closed"),
    [
        (None, []),
        (Unreached(CUT), [CUT]),
        (TimeoutError(), [CUT.model_copy(update={"why": "no answer at 10.0.0.3 port 3"})]),
        (
            OSError(113, ""),
            [CUT.model_copy(update={"why": "No route to host at 10.0.0.3 port 3"})],
        ),
        (LaunchError("a stranger"), [CUT.model_copy(update={"why": "a stranger"})]),
        (StartFailed("it is slow"), [CUT.model_copy(update={"why": "it is slow"})]),
    ],
)
def test_other_agents_are_measured_in_turn_and_those_that_are_not_reached_are_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, closed: list[Cut]
) -> None:
    asked: list[tuple[int, int]] = []

    async def of_peer(dialer: Dialer, group: int, num_bytes: int) -> PeerMeasured:
        asked.append((group, num_bytes))
        assert (dialer.gang, [*dialer.here]) == ("c", ["b"])
        if error is not None and group == 2:
            raise error
        return REACHED

    monkeypatch.setattr(peers, "measure", of_peer)
    link = GangLink(
        agents=["a", "b", "c", "d"], addresses=[f"10.0.0.{n}" for n in (1, 2, 3, 4)],
        ports=[1, 2, 3, 0], certificate="", secret="s",
    )  # fmt: skip
    checked, _ = measured_with(CheckConnections(check_id="c", link=link, num_bytes=9))
    assert asked == [(2, 9), (0, 9)]  # from the next one on, so that no two measure the same
    assert checked.closed == closed
    assert checked.peers == {name: REACHED for name in ("c", "a") if not closed or name == "a"}


@pytest.mark.parametrize(("num_bytes", "size"), [(0, 1), (9, 4 << 20)])
def test_the_connection_to_the_master_is_measured_in_both_directions(
    monkeypatch: pytest.MonkeyPatch, num_bytes: int, size: int
) -> None:
    # Three looks at the clock, then down and up.
    times = iter([0.0, 3.0, 10.0, 10.5, 20.0, 21.0, 30.0, 32.0, 40.0, 44.0])
    monkeypatch.setattr(checking, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    link = GangLink(agents=["b"], addresses=["here"], ports=[1], certificate="", secret="s")
    checked, requests = measured_with(
        CheckConnections(check_id="c", link=link, num_bytes=num_bytes)
    )
    assert (checked.latency_s, checked.has_folder) == (0.5, True)
    assert (checked.down_bytes_per_s, checked.up_bytes_per_s) == (size / 2.0, size / 4.0)
    assert requests == [
        *[("GET", "/agents/b/clock", 0)] * 3,
        ("GET", f"/agents/b/probe?num_bytes={size}", 0),
        ("POST", "/agents/b/probe", size),
    ]


def test_a_master_that_refuses_is_no_measurement() -> None:
    link = GangLink(agents=["b"], addresses=["here"], ports=[1], certificate="", secret="s")
    with pytest.raises(httpx.HTTPStatusError):
        measured_with(CheckConnections(check_id="c", link=link), status=500)
