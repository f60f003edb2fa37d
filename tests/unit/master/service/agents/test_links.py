"""Links to agents: silence counts while the master runs, and old sessions are refused."""

from __future__ import annotations

import asyncio
import time

import pytest

from det_jupyter.contract.messages import Leave
from det_jupyter.errors import Conflict
from det_jupyter.master.service.agents.links import SILENT_S, AgentLinks


class Clock:
    """A monotonic clock that the test moves, with a tick of the links at each move."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)

    def run(self, links: AgentLinks, seconds: float) -> None:
        for _ in range(round(2 * seconds)):
            self.now += 0.5
            links.tick()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_an_agent_without_reports_is_dropped_and_its_silence_goes_on(clock: Clock) -> None:
    links = AgentLinks()
    link = links.open("here", "1")
    link.is_streaming = True
    clock.run(links, SILENT_S)
    assert (links.drop_silent(), links.is_connected("here")) == ([], True)
    clock.run(links, 1)
    assert links.drop_silent() == ["here"]
    assert (links.connected(), links.silent_s("here")) == ([], SILENT_S + 1)
    clock.run(links, 4)
    assert links.silent_s("here") == SILENT_S + 5


def test_silence_counts_from_the_last_report_if_the_stream_broke_before(clock: Clock) -> None:
    links = AgentLinks()
    link = links.open("here", "1")
    clock.run(links, 5)
    links.get("here", "1")
    clock.run(links, 2)
    assert not link.is_streaming
    assert links.silent_s("here") == 2.0


def test_reports_reset_the_silence(clock: Clock) -> None:
    links = AgentLinks()
    links.open("here", "1").is_streaming = True
    for _ in range(4):
        clock.run(links, SILENT_S - 1)
        links.get("here", "1")
    assert links.drop_silent() == []


def test_time_in_which_the_master_was_stopped_is_no_silence_of_agents(clock: Clock) -> None:
    links = AgentLinks()
    links.open("here", "1").is_streaming = True
    clock.now += 3600
    links.tick()
    assert links.drop_silent() == []
    assert links.silent_s("unknown") == 1.0, "one tick counts for a second at most"


def test_a_new_session_replaces_the_old_one(clock: Clock) -> None:
    links = AgentLinks()
    links.open("here", "1").is_streaming = True
    new = links.open("here", "2")
    with pytest.raises(Conflict, match="register first"):
        links.get("here", "1")
    with pytest.raises(Conflict, match="register first"):
        links.get("there", "1")
    assert links.get("here", "2") is new
    assert not links.is_connected("here"), "the new session does not stream yet"
    clock.run(links, 3)
    assert links.silent_s("here") == 3.0
    links.send("there", Leave())  # not registered: nothing happens


def test_a_refusal_is_forgotten_when_the_agent_tries_no_more(clock: Clock) -> None:
    links = AgentLinks()
    assert not links.was_refused("here")
    links.refuse("here")
    assert links.registered.is_set(), "submissions do not wait for it"
    clock.run(links, SILENT_S - 1)
    assert links.was_refused("here")
    clock.run(links, 1)
    assert not links.was_refused("here")


def test_an_agent_that_is_dropped_is_silent_since_its_last_report(clock: Clock) -> None:
    links = AgentLinks()
    link = links.open("here", "1")
    link.is_streaming = True
    clock.run(links, 3)
    links.get("here", "1")
    clock.run(links, 4)
    links.send("here", Leave())
    links.drop("here")
    links.drop("never seen")
    assert (links.is_connected("here"), links.silent_s("here")) == (False, 4)
    assert links.was_heard("here")
    assert not links.was_heard("never seen")
    assert list(link._queue) == [Leave(), None]  # what it gets before its stream ends
    links.send("here", Leave())  # it is repeated when the agent registers again
    assert not links.is_current("here", link)


def test_a_link_is_current_until_its_stream_ends_or_another_replaces_it() -> None:
    links = AgentLinks()
    link = links.open("here", "1")
    assert links.is_current("here", link)
    links.close()

    async def read() -> list[bytes]:
        return [line async for line in link.stream(60.0)]

    assert asyncio.run(read()) == [b"\n"]
    assert not links.is_current("here", link)
    with pytest.raises(Conflict, match="streamed before; register again"):
        link.stream(60.0)
    assert links.is_current("here", links.open("here", "2"))


def test_commands_are_streamed_in_their_order_and_silence_is_filled() -> None:
    link = AgentLinks().open("here", "1")

    async def read() -> list[bytes]:
        lines = link.stream(0.001)
        found = [await anext(lines)]
        assert link.is_streaming
        link.send(Leave())
        found += [await anext(lines), await anext(lines)]
        link.close()
        return found + [line async for line in lines]

    first, command, beat = asyncio.run(read())
    assert (first, beat) == (b"\n", b"\n")
    assert b"leave" in command
    assert not link.is_streaming
