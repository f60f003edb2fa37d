"""Links to agents: silence counts while the master runs, and old sessions are refused."""

from __future__ import annotations

import time

import pytest

from det_jupyter.contract.messages import Leave
from det_jupyter.errors import Conflict
from det_jupyter.master.service.links import SILENT_S, AgentLinks


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
