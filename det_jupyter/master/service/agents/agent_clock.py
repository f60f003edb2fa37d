"""Converts times that an agent has read from its computer's clock to the master's clock.

Either clock may be set while they are connected. With each batch an agent sends the time at which
its computer booted, by the computer's clock: this time changes exactly when the clock is set. The
period between two such steps is an era. For a clock that is set ahead by an hour at noon:

    the agent's clock    11:59 | 13:00    its 13:30 would be 13:30 in the first era, which
    the master's clock   11:59 | 12:00    had ended by then; so it is 12:30, in the second

A clock that is set back by an hour shows each time from 11:00 to 12:00 twice: such a time counts
as the later one, unless that is still in the future.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
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

_MOST_ERAS = 8
# Converts a time of an agent's clock to the master's clock.
ToMaster: TypeAlias = Callable[[float], float]


@dataclass(slots=True)
class _Era:
    """A period between two steps of the agent's clock. All times are on the master's clock.

    Args:
        ahead_s: Seconds by which the agent's clock is ahead in this era.
        since: A time at which the step before this era had not happened yet.
        until: The time at which the step after this era was noticed; infinite: not yet.
    """

    ahead_s: float
    since: float = -inf
    until: float = inf


class AgentClock:
    """The difference between the clock of an agent's computer and this computer's clock.

    Args:
        own_booted_at: Returns when this computer booted, by its own clock; None: not known now.
    """

    def __init__(self, own_booted_at: Callable[[], float | None] = booted_at) -> None:
        self._eras = [_Era(0.0)]  # the present era is first
        self._seen_at = -inf  # when the last batch with a boot time arrived
        self._read_own = own_booted_at
        self._session = ""
        self._agent_booted_at: float | None = None
        self._own_booted_at: float | None = None

    @property
    def ahead_s(self) -> float:
        """Seconds by which the agent's clock is ahead now."""
        return self._eras[0].ahead_s

    def measured(
        self, session: str, ahead_s: float, agent_booted_at: float | None, now: float
    ) -> None:
        """Store the data of a registration: how far the clock is ahead, and the boot time.

        Earlier eras are kept only for the same agent process: the computer of another process may
        have been restarted since.
        """
        if session != self._session or agent_booted_at is None:
            self._session, self._eras = session, [_Era(ahead_s)]
            self._agent_booted_at = self._own_booted_at = None
        self.see(agent_booted_at, now)
        self._eras[0].ahead_s = ahead_s

    def see(self, agent_booted_at: float | None, now: float) -> None:
        """Store the boot time of a batch that arrives at `now`: either clock may have been set."""
        own = self._read_own()
        if agent_booted_at is None or own is None:
            return
        if self._agent_booted_at is None or self._own_booted_at is None:
            self._agent_booted_at, self._own_booted_at = agent_booted_at, own
        step_s, own_step_s = agent_booted_at - self._agent_booted_at, own - self._own_booted_at
        if abs(own_step_s) >= LEAST_STEP_S:
            self._seen_at += own_step_s
            self._eras = [
                _Era(era.ahead_s - own_step_s, era.since + own_step_s, era.until + own_step_s)
                for era in self._eras
            ]
            self._own_booted_at = own
        if abs(step_s) >= LEAST_STEP_S:
            self._eras[0].until = now
            present = _Era(self.ahead_s + step_s, since=self._seen_at)
            self._eras = [present, *self._eras][:_MOST_ERAS]
            self._agent_booted_at = agent_booted_at
        self._seen_at = now

    def at(self, now: float) -> ToMaster:
        """Return a function that converts the times of a batch that arrives at `now`.

        A batch may have times from before and after a step of the clock. Each era converts a time
        differently. The function uses the newest era that contains the converted time.
        """
        ahead_s = self.ahead_s
        if len(self._eras) == 1:
            return lambda at: max(0.0, at - ahead_s)
        eras = [(era.ahead_s, era.since, min(era.until, now)) for era in self._eras]

        def likeliest(at: float) -> float:
            least, found = inf, 0.0
            for ahead_s, since, until in eras:
                meant = at - ahead_s
                outside_s = max(since - meant, meant - until, LEAST_STEP_S)
                if outside_s < least:
                    least, found = outside_s, meant
            return max(0.0, found)

        return likeliest


def on_master_clock(report: AgentReport, to_master: ToMaster) -> AgentReport:
    """Return a report with its times on the master's clock.

    The times of records are converted when their lines are parsed.
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
