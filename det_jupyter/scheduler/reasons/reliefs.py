"""Reliefs: the fewest gangs whose end is enough to start a waiting trial.

    TRIAL         one trial: its end alone makes room
    SOME          any N trials of an experiment, on one agent
    EXPERIMENT    an experiment has to end or be paused: its next trials would go first
    SLOTS         any N slots of an agent, whichever trials give them back
    NAMED         these trials, where it matters which ones end
    LEAVING       the gangs that were asked already to leave, or to give slots back

Each is tried (`whatif`). For "any N", several orders of ends are tried; N is the largest number
that one of them needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from itertools import islice, zip_longest
from math import inf

from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.wait import WaitingRequest
from det_jupyter.scheduler.reasons.whatif import PoolChange, one_by_one

_TRIES = 8  # most gangs, and most experiments, whose end is tried
_AGENTS = 2  # most agents on which several ends are tried
_STEPS = 32  # most ends in one order that is tried
_NAMED = 4  # most trials that are named one by one


class ReliefKind(Enum):
    """The kind of a relief; see the module's docstring."""

    LEAVING = auto()
    TRIAL = auto()
    SOME = auto()
    EXPERIMENT = auto()
    SLOTS = auto()
    NAMED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """Gangs whose end is enough to start the request.

    Args:
        kind: The kind of relief.
        gangs: The gangs that end; if `num` is smaller, any `num` of them.
        num: How many of them have to end; 0: it depends on which ones end (SLOTS).
        num_slots: How many slots of `agent_id` have to be given back (SLOTS).
        agent_id: The agent on which they end (SOME, SLOTS).
        after: Gangs that are leaving already; they have to be gone too.
        asked: Less urgent gangs that the scheduler then asks to leave.
    """

    kind: ReliefKind
    gangs: tuple[Running, ...]
    num: int = 1
    num_slots: int = 0
    agent_id: str = ""
    after: tuple[Running, ...] = ()
    asked: tuple[Running, ...] = ()

    @property
    def group_id(self) -> int | None:
        """The experiment of all these gangs; None if there are several, or for SLOTS and NAMED."""
        ids = {gang.request.group for gang in self.gangs}
        is_any = self.kind in (ReliefKind.SLOTS, ReliefKind.NAMED)
        return None if is_any or len(ids) > 1 else ids.pop()


def find_reliefs(wait: WaitingRequest) -> list[Relief]:
    """Return the reliefs that would start the request, those expected first at the front."""
    if not wait.is_complete:
        return []
    gangs = [gang for gang in wait.gangs_on(wait.nearest) if not wait.is_less_urgent(gang)]
    gangs.sort(key=lambda gang: _expected_order(wait, gang))
    leaving = tuple(gang for gang in gangs if gang.is_leaving or gang.num_given)
    staying = [gang for gang in gangs if gang not in leaving]
    if leaving and all(wait.starts(*changes) for changes in _in_both_orders(leaving)):
        return [Relief(kind=ReliefKind.LEAVING, gangs=leaving, num=len(leaving))]
    found = _Ends(wait, staying, ()).find()
    return found or (_Ends(wait, staying, leaving).find() if leaving else [])


class _Ends:
    """Searches for reliefs among gangs that stay, once the gangs in `after` have left."""

    def __init__(
        self, wait: WaitingRequest, gangs: Sequence[Running], after: tuple[Running, ...]
    ) -> None:
        self.wait = wait
        self.gangs = gangs
        self.after = after
        self.firsts = _in_both_orders(after)
        several = not wait.spans and wait.request.slots > 0
        # Agents on which several ends may be enough.
        self.agents = wait.nearest[:_AGENTS] if several else []

    def find(self) -> list[Relief]:
        found = list(self._trials()) or list(self._some())
        found += self._experiments({relief.group_id for relief in found})
        found = found or list(islice(self._any(), 1))
        return [replace(relief, after=self.after) for relief in found]

    def _trials(self) -> Iterator[Relief]:
        for gang in self.gangs[:_TRIES]:
            yield from self._try(ReliefKind.TRIAL, PoolChange(ends=(gang.request.id,)), [gang])

    def _experiments(self, but: set[int | None]) -> Iterator[Relief]:
        for group_id, mine in islice(by_group(self.gangs).items(), _TRIES):
            if group_id not in but and group_id != self.wait.group.id:
                yield from self._try(ReliefKind.EXPERIMENT, PoolChange(goes=(group_id,)), mine)

    def _try(
        self, kind: ReliefKind, change: PoolChange, gangs: Sequence[Running]
    ) -> Iterator[Relief]:
        """Yield a relief for a change if the request starts after it."""
        wait, running = self.wait, self.wait.pool.running
        if all(wait.starts(*first, change) for first in self.firsts):
            names = wait.survey.whatif.after(*self.firsts[0], change).asked.get(
                wait.request.id, ()
            )
            asked = [running[name] for name in names if name in running]
            less = tuple(gang for gang in asked if wait.is_less_urgent(gang))
            yield Relief(kind=kind, gangs=tuple(gangs), num=len(gangs), asked=less)

    def _some(self) -> Iterator[Relief]:
        """Yield reliefs of experiments of which any N trials on one agent are enough."""
        for seats in self.agents:
            for mine in islice(by_group(_holders_on(seats, self.gangs)).values(), _TRIES):
                if len(mine) > 1 and (nums := self._nums(mine, mine[::-1])):
                    num, gangs = max(nums), tuple(mine)
                    yield Relief(kind=ReliefKind.SOME, gangs=gangs, num=num, agent_id=seats.id)

    def _any(self) -> Iterator[Relief]:
        """Yield reliefs of agents on which any N slots are enough; else of certain trials."""
        for seats in self.agents:
            here = _holders_on(seats, self.gangs)
            if len(here) < 2:
                continue
            orders = [here, here[::-1], [g for mine in by_group(here).values() for g in mine]]
            if nums := self._nums(*orders):
                given = [[seats.freed_by(gang) for gang in order] for order in orders]
                enough = 1 + max(sum(g[: n - 1]) for g, n in zip(given, nums, strict=True))
                if enough <= min(sum(g[:n]) for g, n in zip(given, nums, strict=True)):
                    yield Relief(
                        kind=ReliefKind.SLOTS,
                        gangs=tuple(here),
                        num=nums[0] if len(set(nums)) == 1 else 0,
                        num_slots=enough,
                        agent_id=seats.id,
                    )
                    continue
            expected = sorted(here, key=lambda gang: _expected_order(self.wait, gang))
            in_turns = zip_longest(*by_group(expected).values())
            balanced = [gang for turn in in_turns for gang in turn if gang is not None]
            for order in (expected, balanced):
                nums = self._nums(order[:_NAMED])
                if nums and nums[0] > 1:
                    few = tuple(order[: nums[0]])
                    yield Relief(kind=ReliefKind.NAMED, gangs=few, num=len(few))

    def _nums(self, *orders: Sequence[Running]) -> list[int]:
        """For each order, return how many gangs must end; [] if an order does not suffice."""
        nums = []
        for order in orders:
            last = one_by_one(order[:_STEPS])
            steps = [self.wait.steps(*first, *last) for first in self.firsts]
            if None in steps:
                return []
            nums.append(max(num for num in steps if num is not None) - len(self.after))
        return nums


def _in_both_orders(leaving: Sequence[Running]) -> list[tuple[PoolChange, ...]]:
    """Return changes in which the gangs leave one by one: oldest trial first, and oldest last.

    The order matters: slots of one gang that are not reserved may go to other requests before the
    next gang has left.
    """
    order = sorted(leaving, key=lambda gang: (gang.request.number, gang.request.id))
    both = [one_by_one(order), one_by_one(order[::-1])]
    return both if len(order) > 1 else both[:1]


def _expected_order(wait: WaitingRequest, gang: Running) -> tuple[float, int, float, str]:
    end = wait.survey.end_of(gang)
    priority = wait.survey.board.priority(gang)
    return (inf if end is None else end.at, -priority, -gang.since, gang.request.id)


def by_group(gangs: Iterable[Running]) -> dict[int, list[Running]]:
    """Return gangs by their experiment."""
    groups: dict[int, list[Running]] = {}
    for gang in gangs:
        groups.setdefault(gang.request.group, []).append(gang)
    return groups


def _holders_on(seats: Seats, gangs: Iterable[Running]) -> list[Running]:
    """Return the gangs that hold slots on an agent, sorted by their number of slots there."""
    here = [gang for gang in gangs if gang.slots_on(seats.id)]
    return sorted(here, key=lambda gang: (seats.freed_by(gang), gang.request.id))
