"""Which user of a computer is next, if the masters of several users wait for its slots.

    time       slot-seconds so far; half of them count after 4 hours. A slot that a user holds, or
               that is assigned to them here, counts as 10 minutes more
    next       the user with the least time; of the masters of one user the one with the least
    assigned   free slots, one gang at a time. If the next gang does not fit into the slots that
               are left, these are kept for it, and its master gets no others

`next_slots` is a function of what all masters have published, not of the clock: all of them
compute the same. Prior art: the fair tree of Slurm's multifactor priority, with one level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import attrgetter

HALF_LIFE_S = 4 * 3600.0
PLEDGE_S = 600.0  # a slot that is held counts as if it was held for so much longer


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """The master of a user, by one of its agents.

    Args:
        id: Name of the party, which sorts parties that are equal otherwise.
        user: Number of its user.
        used_s: Slot-seconds of the party at `at`.
        at: When it was published, UTC seconds.
        held: The slots that it holds.
        slots: The slots that it may take, whoever holds them now; in the order of its choice.
        wants: Number of slots of each gang that waits, the first one first. One that is too large
            for `slots` does not count.
    """

    id: str
    user: int
    used_s: float = 0.0
    at: float = 0.0
    held: frozenset[str] = frozenset()
    slots: tuple[str, ...] = ()
    wants: tuple[int, ...] = ()


def decayed(used_s: float, since: float, until: float) -> float:
    """Return what slot-seconds of one time count at a later one.

    >>> decayed(100.0, 0.0, 4 * 3600.0), decayed(100.0, 5.0, 4.0)
    (50.0, 100.0)
    """
    return used_s * math.exp2(-max(0.0, until - since) / HALF_LIFE_S)


def next_slots(parties: Sequence[Party]) -> dict[str, str]:
    """Return who gets each free slot: the id of a party by slot; others may be taken by anyone.

    >>> anna = Party(id="anna", user=1, held=frozenset("a"), slots=tuple("abc"), wants=(1, 1))
    >>> next_slots([anna, Party(id="ben", user=2, slots=tuple("abc"), wants=(1, 1))])
    {'b': 'ben', 'c': 'anna'}
    """
    parties = sorted(parties, key=attrgetter("id"))  # sums of floats depend on the order
    held = frozenset[str]().union(*(party.held for party in parties))
    time = _times(parties)
    waiting: dict[str, tuple[Party, list[int], dict[str, None]]] = {}
    for party in parties:
        if wants := [size for size in party.wants if size <= len(party.slots)]:
            free = dict.fromkeys(slot for slot in party.slots if slot not in held)
            waiting[party.id] = party, wants, free
    assigned: dict[str, str] = {}
    while waiting:
        party, wants, free = min(waiting.values(), key=lambda one: _rank(one[0], time))
        if wants[0] > len(free):
            wants[:] = [len(free)]
        taken = list(islice(free, wants.pop(0)))
        assigned |= dict.fromkeys(taken, party.id)
        for _, _, left in waiting.values():
            for slot in taken:
                left.pop(slot, None)
        for name in (party.id, party.user):
            time[name] += PLEDGE_S * len(taken)
        if not wants:
            del waiting[party.id]
    return assigned


def _times(parties: Sequence[Party]) -> dict[str | int, float]:
    """Return the time of each party by its id, and of each user by number."""
    latest = max((party.at for party in parties), default=0.0)
    times: dict[str | int, float] = {}
    for party in parties:
        own = decayed(party.used_s, party.at, latest) + PLEDGE_S * len(party.held)
        times[party.id] = own
        times[party.user] = times.get(party.user, 0.0) + own
    return times


def _rank(party: Party, time: Mapping[str | int, float]) -> tuple[float, float, str]:
    return time[party.user], time[party.id], party.id
