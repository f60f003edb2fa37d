"""What a check of connections says is wrong."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import AgentCheck, ConnectionsChecked, Cut, PeerMeasured
from det_jupyter.errors import DetError
from det_jupyter.master.service import connection_checks
from det_jupyter.master.service.agent_access import AgentAccess
from det_jupyter.master.service.connection_checks import ConnectionChecks, find_problems
from det_jupyter.master.service.service import Service

FINE = ConnectionsChecked(latency_s=0.001, down_bytes_per_s=1e8, up_bytes_per_s=1e8)


def closed(to: str = "b") -> list[Cut]:
    return [Cut(from_agent="a", to_agent=to, why="no answer at 10.0.0.7 port 41")]


def check(name: str, found: ConnectionsChecked | None = FINE, **others: object) -> AgentCheck:
    return AgentCheck.model_validate(
        {"agent": name, "hostname": f"node-{name}", "measured": found} | others
    )


def peers(bytes_per_s: float | None) -> dict[str, PeerMeasured]:
    return {"b": PeerMeasured(latency_s=0.001, bytes_per_s=bytes_per_s)}


def as_found(changes: dict[str, object]) -> dict[str, Any]:
    return {"found" if name == "measured" else name: each for name, each in changes.items()}


def problems(*checks: AgentCheck) -> list[str]:
    return find_problems(checks, "/share")


def test_nothing_is_wrong_with_agents_that_reach_each_other() -> None:
    assert problems(check("a"), check("b")) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"closed": closed()},
            "cannot reach the computer of agent b from that of agent a: no answer at 10.0.0.7 por",
        ),
        (
            {"peers": {"b": PeerMeasured(latency_s=0.001, bytes_per_s=2e6)}},
            "agent a sends 2.0 MB/s to agent b: in a trial on both, exchanging gradients takes l",
        ),
        ({"has_folder": False}, "agent a on node-a does not see what this computer writes to /sh"),
        ({"up_bytes_per_s": 2e6}, "agent a exchanges 2.0 MB/s with this computer"),
    ],
)
def test_each_problem_is_named(changes: dict[str, object], expected: str) -> None:
    (problem,) = problems(check("a", FINE.model_copy(update=changes)), check("b"))
    assert problem.startswith(expected)


def test_what_is_silent_comes_first() -> None:
    found = FINE.model_copy(update={"closed": closed()})
    first, second = problems(check("a", found), check("b", None))
    assert first == "agent b on node-b does not answer"
    assert second.startswith("cannot reach the computer of agent b")


def test_a_peer_that_has_left_is_no_problem() -> None:
    found = FINE.model_copy(update={"closed": closed("gone")})
    assert problems(check("a", found), check("b")) == []


def test_a_folder_that_does_not_answer_does_not_hold_up_the_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = threading.Event()

    def hang(*_: str) -> None:
        threading.Timer(0.5, answers.set).start()
        answers.wait(600)

    monkeypatch.setattr(tempfile, "mkstemp", hang)
    monkeypatch.setattr(connection_checks, "_FOLDER_S", 0.05)
    with pytest.raises(DetError, match=r"^/share: does not answer within 0\.05 s"):
        asyncio.run(probe_in("/share"))


async def probe_in(folder: str) -> bool:
    """Return whether there is a probe in the folder within the block."""
    async with connection_checks._probe_in(folder) as probe:
        return Path(probe).is_file()


def test_a_folder_has_a_probe_during_the_check(tmp_path: Path) -> None:
    assert asyncio.run(probe_in(str(tmp_path)))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(DetError, match=r"none: nothing can be written there: No such file"):
        asyncio.run(probe_in(str(tmp_path / "none")))


def test_agents_that_are_not_connected_are_named_with_what_to_do() -> None:
    agents = {
        "a": SimpleNamespace(is_remote=True, id="a", hostname="node-a", problem="it is stopped"),
        "local": SimpleNamespace(is_remote=False, id="local"),
    }
    clusters = {"node-1": "big"}  # not given out: no agent is expected there
    access = SimpleNamespace(
        agents=["a", "new", "node-1"], port=4711, cluster_of=lambda name: clusters.get(name, "")
    )
    service = SimpleNamespace(
        machine=SimpleNamespace(state=SimpleNamespace(agents=agents)),
        links=SimpleNamespace(is_connected=lambda _: False),
        clock_ahead_s=lambda _: 0.0,
        problems=["the disk is full"],
    )
    checks = ConnectionChecks(cast(Service, service), cast(AgentAccess, access))
    found = asyncio.run(checks.check(""))
    assert [each.agent for each in found.agents] == ["a"]
    assert found.problems == [
        "agent a is not connected: it is stopped",
        "agent new is not connected: if it runs, it prints why it cannot connect to port 4711 of "
        "this computer; if a firewall closes that port, open it",
        "the disk is full",
    ]


def test_agent_that_is_slow_delays_no_examination_of_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection_checks, "_CUTS_S", 0.01)
    monkeypatch.setattr(connection_checks, "_CUTS_POLL_S", 0.001)
    cuts = [Cut(from_agent=a, to_agent=b, why="no answer") for a, b in ("ab", "bc", "ad", "cd")]
    state = SimpleNamespace(cuts=cuts, agents={})
    reached: list[list[str]] = []
    service = SimpleNamespace(
        machine=SimpleNamespace(state=state),
        links=SimpleNamespace(is_connected=lambda _: True),
        take=lambda event: reached.append(event.agents),
    )
    checks = ConnectionChecks(cast(Service, service), cast(AgentAccess, None))
    under_way: list[str] = []

    async def measure(names: Sequence[str], num_bytes: int) -> dict[str, ConnectionsChecked]:
        assert not set(names) & set(under_way)
        under_way.extend(names)
        try:
            await asyncio.sleep(3600 if "b" in names else 0)
        finally:
            for name in names:
                under_way.remove(name)
        return {name: FINE for name in names}

    monkeypatch.setattr(checks, "_measure", measure)

    async def act() -> None:
        task = asyncio.create_task(checks.keep_cuts_current())
        while ["c", "d"] not in reached:
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(act())
    assert not any("b" in pair for pair in reached)
    assert under_way == []


@pytest.mark.parametrize(
    ("changes", "is_problem"),
    [
        ({"clock_ahead_s": 1.0}, False),
        ({"clock_ahead_s": -1.0}, False),
        ({"clock_ahead_s": 1.1}, True),
        ({"measured": FINE.model_copy(update={"down_bytes_per_s": 10e6})}, False),
        ({"measured": FINE.model_copy(update={"down_bytes_per_s": 9.9e6})}, True),
        ({"measured": FINE.model_copy(update={"peers": peers(50e6)})}, False),
        ({"measured": FINE.model_copy(update={"peers": peers(49e6)})}, True),
        ({"measured": FINE.model_copy(update={"peers": peers(None)})}, False),
    ],
)
def test_what_is_fast_enough_is_no_problem(changes: dict[str, object], is_problem: bool) -> None:
    assert bool(problems(check("a", **{"found": FINE} | as_found(changes)))) == is_problem


@pytest.mark.parametrize(
    ("ahead_s", "expected"), [(2.5, "2.5 s ahead of this"), (-3.0, "3.0 s behind this")]
)
def test_a_clock_that_differs_is_named(ahead_s: float, expected: str) -> None:
    (problem,) = problems(check("a", clock_ahead_s=ahead_s))
    assert problem.startswith(f"the clock of node-a is {expected} computer's")
