"""Times of an agent whose clock differs from the master's."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest

from det_jupyter.contract.messages import (
    AgentReport,
    Chunk,
    DeviceFault,
    DevicesSeen,
    DisksSeen,
    GangExited,
    GangStarted,
    RanksSeen,
    RoomReported,
    RoomWait,
    SystemSample,
    SystemSampled,
    Unreadable,
)
from det_jupyter.contract.messages.leaving import RankProgress
from det_jupyter.master.service.agents.agent_clock import AgentClock, on_master_clock

AT = 1234.5
FAULT = DeviceFault(index=0, at=AT, xid=79)
REPORTS: list[Any] = [
    Chunk(allocation_id="1", stream="journal-0", offset=0, size_bytes=0, text=""),
    GangStarted(allocation_id="1", at=AT, ranks=[]),
    RanksSeen(
        allocation_id="1",
        at=AT,
        places={0: RankProgress(since=AT)},
        checked_at=AT,
        saving_since=AT,
    ),
    GangExited(allocation_id="1", at=AT, exit_codes={}, faults={0: FAULT}),
    DevicesSeen(at=AT, processes={}, lost={0: FAULT}),
    RoomReported(allocation_id="1", at=AT, wait=RoomWait(since=AT)),
    DisksSeen(at=AT, disks=[]),
    SystemSampled(samples=[SystemSample(at=AT, values={})]),
    Unreadable(content="", problem=""),
]


def test_reports_of_every_kind_are_tried() -> None:
    union, _ = get_args(AgentReport)
    assert {type(report) for report in REPORTS} == set(get_args(union))


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: report.kind)
def test_every_time_of_a_report_is_converted(report: Any) -> None:
    num_times = json.dumps(report.model_dump(mode="json")).count(str(AT))
    converted = json.dumps(on_master_clock(report, lambda at: at - 34.5).model_dump(mode="json"))
    assert (converted.count(str(AT)), converted.count("1200.0")) == (0, num_times)


def test_wait_that_is_over_has_no_time() -> None:
    report = on_master_clock(RoomReported(allocation_id="1", at=AT, wait=None), lambda at: at + 10)
    assert report == RoomReported(allocation_id="1", at=AT + 10, wait=None)


def test_no_time_is_before_the_first_one() -> None:
    clock = AgentClock()
    clock.measured("s", 9.0, None, now=100.0)
    assert clock.at(now=100.0)(5.0) == 0.0


class Computers:
    """The clocks of a master's and an agent's computer, of which either may be set."""

    def __init__(self, ahead_s: float) -> None:
        self.now = 50_000.0  # what the time really is; it passes by itself
        self.master_off_s, self.agent_off_s = 0.0, ahead_s
        self.clock = AgentClock(lambda: 1000.0 + self.master_off_s)
        self.register("s")

    def register(self, session: str) -> None:
        ahead_s = self.agent_off_s - self.master_off_s
        self.clock.measured(session, ahead_s, self.agent_booted_at, self.master_time)

    @property
    def agent_booted_at(self) -> float:
        return 7000.0 + self.agent_off_s

    @property
    def master_time(self) -> float:
        return self.now + self.master_off_s

    @property
    def agent_time(self) -> float:
        return self.now + self.agent_off_s

    def arrived(self, *agent_times: float) -> list[float]:
        """Return the times of a batch that arrives now, as what the time really was."""
        self.clock.see(self.agent_booted_at, self.master_time)
        to_master = self.clock.at(self.master_time)
        return [to_master(at) - self.master_off_s for at in agent_times]


@pytest.mark.parametrize("by_s", [-3600.0, -5.0, 5.0, 3600.0])
@pytest.mark.parametrize("ahead_s", [0.0, -7.5])
def test_times_are_right_when_an_agent_s_clock_is_set(ahead_s: float, by_s: float) -> None:
    computers = Computers(ahead_s)
    before = computers.agent_time
    computers.now += 2.0
    computers.agent_off_s += by_s
    after = computers.agent_time
    assert computers.arrived(before, after) == pytest.approx([50_000.0, 50_002.0])
    computers.now += 40.0
    assert computers.arrived(computers.agent_time) == pytest.approx([50_042.0])
    assert computers.clock.ahead_s == pytest.approx(ahead_s + by_s)


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_times_are_right_when_the_master_s_clock_is_set(by_s: float) -> None:
    computers = Computers(2.0)
    before = computers.agent_time
    computers.master_off_s += by_s
    computers.now += 2.0
    assert computers.arrived(before, computers.agent_time) == pytest.approx([50_000.0, 50_002.0])
    assert computers.clock.ahead_s == pytest.approx(2.0 - by_s)


@pytest.mark.parametrize("by_s", [-3600.0, 3600.0])
def test_times_are_right_when_the_clock_of_one_computer_is_set_that_both_use(by_s: float) -> None:
    computers = Computers(0.0)
    before = computers.agent_time
    computers.master_off_s = computers.agent_off_s = by_s
    computers.now += 2.0
    assert computers.arrived(before, computers.agent_time) == pytest.approx([50_000.0, 50_002.0])
    assert computers.clock.ahead_s == pytest.approx(0.0)


def test_what_was_read_before_a_lost_connection_is_right_after_it() -> None:
    computers = Computers(0.0)
    before = computers.agent_time
    computers.agent_off_s += 3600.0
    computers.register("s")
    assert computers.arrived(before, computers.agent_time) == pytest.approx([50_000.0, 50_000.0])


def test_a_computer_that_was_started_again_has_one_clock() -> None:
    computers = Computers(0.0)
    computers.arrived(computers.agent_time)
    computers.agent_off_s += 3600.0
    computers.register("another")
    computers.now += 3600.0
    assert computers.arrived(computers.agent_time - 3600.0) == pytest.approx([50_000.0])


def test_times_are_right_when_first_the_agent_s_clock_and_then_the_master_s_is_set() -> None:
    computers = Computers(3.0)
    before = computers.agent_time
    computers.now += 2.0
    computers.agent_off_s += 100.0
    computers.arrived()  # a batch that holds no times
    computers.now += 2.0
    computers.master_off_s -= 50.0
    computers.now += 2.0
    late = computers.arrived(before, computers.agent_time)
    assert late == pytest.approx([50_000.0, 50_006.0])


@pytest.mark.parametrize("by_s", [[3600.0], [3600.0, 10.0], [10.0, 3600.0, 7.0], [3600.0, -600.0]])
@pytest.mark.parametrize("master_by_s", [0.0, 5000.0, -5000.0])
def test_times_of_any_age_are_right_after_steps_ahead(
    by_s: list[float], master_by_s: float
) -> None:
    computers = Computers(-7.5)
    really, read = [], []
    for step_s in [*by_s, 0.0]:
        for _ in range(3):  # times that are reported only much later
            really.append(computers.now)
            read.append(computers.agent_time)
            computers.now += 4000.0
        computers.arrived(computers.agent_time)
        computers.agent_off_s += step_s
        computers.now += 2.0
        computers.arrived(computers.agent_time)
    computers.master_off_s += master_by_s
    assert computers.arrived(*read) == pytest.approx(really, abs=1e-6)


def test_times_from_before_a_step_back_are_right_but_those_that_the_clock_says_twice() -> None:
    computers = Computers(0.0)
    long_before, before = computers.agent_time - 7200.0, computers.agent_time - 60.0
    computers.agent_off_s -= 3600.0
    assert computers.arrived(long_before, before) == pytest.approx([42_800.0, 49_940.0])
    computers.now += 7200.0
    assert computers.arrived(long_before, before) == pytest.approx([42_800.0, 53_540.0])


def test_step_that_a_registration_measures_without_naming_it_is_counted_once() -> None:
    computers = Computers(0.0)
    computers.agent_off_s += 3600.0
    computers.clock.measured("s", 3600.0, None, computers.master_time)
    assert computers.arrived(computers.agent_time) == pytest.approx([50_000.0])
    computers.now += 60.0
    assert computers.arrived(computers.agent_time) == pytest.approx([50_060.0])
