"""What waits for which tracker, and how attempts to reach it went: in memory.

A place is a tracker with the variables that go with it, so one process sends to it. A tracker that
cannot be reached is one problem and one pause, however many experiments wait for it. After a
restart of the master, what waits is found again (`TrackedExperiments.behind`), and tried at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from det_jupyter.config.tracker_section import Tracker

_FIRST_S, _FACTOR, _LONGEST_S = 5.0, 2.0, 300.0
_SOME_ATTEMPTS = 3  # after which a tracker counts as a problem
_AT_ONCE = 200  # experiments that a process gets in one answer


def pause_s(attempts: int) -> float:
    """Return how long to wait after this many attempts that have failed.

    >>> [pause_s(each) for each in (0, 1, 2, 7, 1000)]
    [0.0, 5.0, 10.0, 300.0, 300.0]
    """
    return min(_FIRST_S * _FACTOR ** min(attempts - 1, 20), _LONGEST_S) if attempts else 0.0


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """A tracker, and the experiments that wait for it.

    Args:
        tracker: Its entry, with references in the place of secrets.
        variables: What they name, and credentials, where the experiments were submitted.
        waiting: Rows of `tracked` that may be behind, and when each is due; in turn.
        group: Names its process; empty: there is none.
        began_at: When the last process was started; UTC seconds.
        attempts: How many in a row could not reach it.
        next_at: When to try again.
        problem: Why the last attempt could not.
        announced: Experiments whose followers have got the problem.
    """

    tracker: Tracker
    variables: Mapping[str, str]
    waiting: dict[int, float] = field(default_factory=dict)
    group: str = ""
    began_at: float = 0.0
    attempts: int = 0
    next_at: float = 0.0
    problem: str = ""
    announced: set[int] = field(default_factory=set)

    def is_due(self, now: float) -> bool:
        """Return whether something is to be sent now."""
        return self.next_at <= now and any(at <= now for at in self.waiting.values())

    def take_due(self, now: float) -> list[int]:
        """Return some rows that are due, and put them behind the others."""
        due = [number for number, at in self.waiting.items() if at <= now][:_AT_ONCE]
        for number in due:
            self.waiting[number] = self.waiting.pop(number)
        return due

    def fail(self, problem: str, now: float) -> bool:
        """Note an attempt that could not reach it; return whether the problem is another one."""
        is_other = problem != self.problem
        self.attempts += 1
        self.next_at = now + pause_s(self.attempts)
        self.problem = problem
        return is_other

    def recover(self) -> set[int]:
        """Note that it was reached; return the experiments whose followers have to get that."""
        announced, self.announced = self.announced, set()
        self.attempts, self.next_at, self.problem = 0, 0.0, ""
        return announced


class Places:
    """The places, and which rows of `tracked` belong to each."""

    def __init__(self) -> None:
        self._by_key: dict[str, Place] = {}
        self._by_row: dict[int, Place] = {}

    def __iter__(self) -> Iterator[Place]:
        return iter(self._by_key.values())

    def of(self, number: int) -> Place | None:
        """Return the place of a row, if it has waited since the master started."""
        return self._by_row.get(number)

    def join(self, number: int, tracker: Tracker, variables: Mapping[str, str]) -> Place:
        """Return the place of a row; it is made if it is the first."""
        entry = tracker.model_dump(exclude_none=True, exclude={"name"})
        key = json.dumps([entry, variables], sort_keys=True)
        place = self._by_key.get(key)
        if place is None:
            place = self._by_key[key] = Place(tracker=tracker, variables=variables)
        if (former := self._by_row.get(number)) is not None and former is not place:
            former.waiting.pop(number, None)
        self._by_row[number] = place
        return place

    def leave(self, number: int) -> None:
        """Forget a row: nothing of it is sent any more."""
        if (place := self._by_row.pop(number, None)) is not None:
            place.waiting.pop(number, None)

    def is_sending(self, now: float) -> bool:
        """Return whether something is to be sent to a tracker that can be reached."""
        return any(not each.problem and each.is_due(now) for each in self)

    def problems(self) -> list[str]:
        """Return a sentence for each tracker that could repeatedly not be reached."""
        return [
            f"tracker {each.tracker.label}: {each.problem}; it is tried again"
            for each in self
            if each.waiting and each.attempts >= _SOME_ATTEMPTS
        ]
