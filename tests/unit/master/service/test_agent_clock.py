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
from det_jupyter.master.service.agent_clock import master_time, on_master_clock

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
    converted = json.dumps(on_master_clock(report, 34.5).model_dump(mode="json"))
    assert (converted.count(str(AT)), converted.count("1200.0")) == (0, num_times)


def test_wait_that_is_over_has_no_time() -> None:
    report = on_master_clock(RoomReported(allocation_id="1", at=AT, wait=None), -10.0)
    assert report == RoomReported(allocation_id="1", at=AT + 10, wait=None)


def test_no_time_is_before_the_first_one() -> None:
    assert master_time(5.0, 9.0) == 0.0
