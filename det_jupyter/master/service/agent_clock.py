"""Converts times that an agent has read from its computer's clock to the master's clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import assert_never

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
    SystemSampled,
    Unreadable,
)


def master_time(at: float, ahead_s: float) -> float:
    """Return a time of an agent's clock, which is ahead by `ahead_s`, on the master's."""
    return max(0.0, at - ahead_s)


def on_master_clock(report: AgentReport, ahead_s: float) -> AgentReport:
    """Return a report with its times on the master's clock.

    Those of records are converted when their lines are parsed.
    """
    match report:
        case GangStarted() | DisksSeen():
            return report.model_copy(update={"at": master_time(report.at, ahead_s)})
        case GangExited():
            faults = faults_on_master_clock(report.faults, ahead_s)
            at = master_time(report.at, ahead_s)
            return report.model_copy(update={"at": at, "faults": faults})
        case DevicesSeen():
            lost = faults_on_master_clock(report.lost, ahead_s)
            at = master_time(report.at, ahead_s)
            return report.model_copy(update={"at": at, "lost": lost})
        case RanksSeen():
            return _places_on_master_clock(report, ahead_s)
        case SystemSampled():
            samples = [
                sample.model_copy(update={"at": master_time(sample.at, ahead_s)})
                for sample in report.samples
            ]
            return report.model_copy(update={"samples": samples})
        case RoomReported():
            at, wait = master_time(report.at, ahead_s), report.wait
            if wait is not None:
                wait = wait.model_copy(update={"since": master_time(wait.since, ahead_s)})
            return report.model_copy(update={"at": at, "wait": wait})
        case Chunk() | Unreadable():
            return report
        case _:
            assert_never(report)


def faults_on_master_clock(
    faults: Mapping[int, DeviceFault], ahead_s: float
) -> dict[int, DeviceFault]:
    """Return errors of devices with their times on the master's clock."""
    return {
        key: fault.model_copy(update={"at": master_time(fault.at, ahead_s)})
        for key, fault in faults.items()
    }


def _places_on_master_clock(seen: RanksSeen, ahead_s: float) -> RanksSeen:
    times = {
        name: None if at is None else master_time(at, ahead_s)
        for name in ("at", "checked_at", "saving_since")
        for at in [getattr(seen, name)]
    }
    places = {
        rank: place.model_copy(update={"since": master_time(place.since, ahead_s)})
        for rank, place in seen.places.items()
    }
    return seen.model_copy(update={**times, "places": places})
