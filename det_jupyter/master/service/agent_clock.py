"""Converts times that an agent has read from its computer's clock to the master's clock.

Either clock may be set while they are connected. An agent sends with each batch when its computer
booted, by its clock: that changes exactly when the clock is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias, assert_never

from det_jupyter.contract.host.clock_steps import LEAST_STEP_S, booted_at
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

ToMaster: TypeAlias = Callable[[float], float]  # from a time of an agent's clock to the master's


class AgentClock:
    """How the clock of an agent's computer differs from this computer's.

    Args:
        own_booted_at: Returns when this computer booted, by its clock; None: not known now.
    """

    def __init__(self, own_booted_at: Callable[[], float | None] = booted_at) -> None:
        self.ahead_s = 0.0
        self._former_ahead_s: float | None = None  # as it was before the clock was set
        self._read_own = own_booted_at
        self._session = ""
        self._agent_booted_at: float | None = None
        self._own_booted_at: float | None = None

    def measured(self, session: str, ahead_s: float, agent_booted_at: float | None) -> None:
        """Take what a registration says: how far the clock is ahead, and when it booted.

        What is known of the time before holds only for the same agent process: the computer of
        another one may have been started since.
        """
        if session != self._session:
            self._session, self._former_ahead_s = session, None
            self._agent_booted_at = self._own_booted_at = None
        self.see(agent_booted_at)
        self.ahead_s = ahead_s

    def see(self, agent_booted_at: float | None) -> None:
        """Take what came with a batch: either clock may have been set since the last one."""
        own = self._read_own()
        if agent_booted_at is None or own is None:
            return
        if self._agent_booted_at is None or self._own_booted_at is None:
            self._agent_booted_at, self._own_booted_at = agent_booted_at, own
            return
        step_s, own_step_s = agent_booted_at - self._agent_booted_at, own - self._own_booted_at
        if abs(own_step_s) >= LEAST_STEP_S:
            self.ahead_s -= own_step_s
            if self._former_ahead_s is not None:
                self._former_ahead_s -= own_step_s
            self._own_booted_at = own
        if abs(step_s) >= LEAST_STEP_S:
            self._former_ahead_s = self.ahead_s
            self.ahead_s += step_s
            self._agent_booted_at = agent_booted_at

    def at(self, now: float) -> ToMaster:
        """Return what converts the times of a batch that arrives at `now`.

        A batch may hold times from before and after the clock was set. Of the two that one may
        mean, it is the one nearer to now that is not in the future.
        """
        ahead_s, former_ahead_s = self.ahead_s, self._former_ahead_s
        if former_ahead_s is None:
            return lambda at: max(0.0, at - ahead_s)

        def nearest(at: float) -> float:
            meant = (at - ahead_s, at - former_ahead_s)
            return max(0.0, min(meant, key=lambda it: (it > now + LEAST_STEP_S, abs(now - it))))

        return nearest


def on_master_clock(report: AgentReport, to_master: ToMaster) -> AgentReport:
    """Return a report with its times on the master's clock.

    Those of records are converted when their lines are parsed.
    """
    match report:
        case GangStarted() | DisksSeen():
            return report.model_copy(update={"at": to_master(report.at)})
        case GangExited():
            faults = faults_on_master_clock(report.faults, to_master)
            at = to_master(report.at)
            return report.model_copy(update={"at": at, "faults": faults})
        case DevicesSeen():
            lost = faults_on_master_clock(report.lost, to_master)
            at = to_master(report.at)
            return report.model_copy(update={"at": at, "lost": lost})
        case RanksSeen():
            return _places_on_master_clock(report, to_master)
        case SystemSampled():
            samples = [
                sample.model_copy(update={"at": to_master(sample.at)}) for sample in report.samples
            ]
            return report.model_copy(update={"samples": samples})
        case RoomReported():
            at, wait = to_master(report.at), report.wait
            if wait is not None:
                wait = wait.model_copy(update={"since": to_master(wait.since)})
            return report.model_copy(update={"at": at, "wait": wait})
        case Chunk() | Unreadable():
            return report
        case _:
            assert_never(report)


def faults_on_master_clock(
    faults: Mapping[int, DeviceFault], to_master: ToMaster
) -> dict[int, DeviceFault]:
    """Return errors of devices with their times on the master's clock."""
    return {
        key: fault.model_copy(update={"at": to_master(fault.at)}) for key, fault in faults.items()
    }


def _places_on_master_clock(seen: RanksSeen, to_master: ToMaster) -> RanksSeen:
    times = {
        name: None if at is None else to_master(at)
        for name in ("at", "checked_at", "saving_since")
        for at in [getattr(seen, name)]
    }
    places = {
        rank: place.model_copy(update={"since": to_master(place.since)})
        for rank, place in seen.places.items()
    }
    return seen.model_copy(update={**times, "places": places})
