"""Which ends start a waiting trial: the fewest that are enough.

    one trial                        its end alone makes room
    some trials of an experiment     any so many of them do, on one agent
    an experiment                    it has to end or be paused: its next trials would go first
    some slots of an agent           any so many of them do, whichever trials give them back
    these trials                     where it matters which ones end

Each was tried (`whatif`). Of "any so many" several orders are tried, and the longest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from math import inf

from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room
from det_jupyter.scheduler.reasons.whatif import Change, ends, one_by_one

_TRIES = 8  # gangs, and experiments
_AGENTS = 2  # where several ends are tried
_STEPS = 32  # ends
_NAMED = 4  # trials that are named one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """Which ends are enough.

    Args:
        group_id: The experiment; None: several.
        gangs: Those that end; of `num` any so many of these.
        num: How many of them.
        num_slots: How many slots of `agent_id` have to be given back, by any of them; 0: it
            is about whole trials. `num` is 0 then if it depends on who ends.
        agent_id: Where, if it does not matter who.
        is_leaving: Whether all of these were asked to leave already.
        is_all: Whether its waiting trials must not take their place: it has to end or be paused.
        is_named: Whether just these have to end, and not any so many.
        after: Gangs that are leaving already and have to be gone as well.
        asked: Less urgent gangs that the pool itself asks to leave then.
    """

    group_id: int | None
    gangs: tuple[Running, ...]
    num: int = 1
    num_slots: int = 0
    agent_id: str | None = None
    is_leaving: bool = False
    is_all: bool = False
    is_named: bool = False
    after: tuple[Running, ...] = ()
    asked: Sequence[str] = field(default=())


def reliefs(situation: Situation) -> list[Relief]:
    """Return which ends would start the request, those first that are expected first."""
    if not situation.is_complete:
        return []
    gangs = [g for g in situation.gangs_on(situation.nearest) if not situation.is_less_urgent(g)]
    gangs.sort(key=lambda gang: _wait_order(situation, gang))
    leaving = tuple(gang for gang in gangs if gang.is_leaving)
    staying = [gang for gang in gangs if not gang.is_leaving]
    if leaving and all(situation.starts(*changes) for changes in _in_both_orders(leaving)):
        groups = {gang.request.group for gang in leaving}
        sole = groups.pop() if len(groups) == 1 else None
        return [Relief(group_id=sole, gangs=leaving, num=len(leaving), is_leaving=True)]
    found = _Ends(situation, staying, ()).find()
    return found or (_Ends(situation, staying, leaving).find() if leaving else [])


@dataclass(frozen=True)
class _Ends:
    """The ends of gangs that stay, after some that leave have left."""

    situation: Situation
    gangs: Sequence[Running]
    after: tuple[Running, ...]

    def find(self) -> list[Relief]:
        if not self._could_be_enough():
            return self._wholes(set())
        single = [
            relief
            for gang in self.gangs[:_TRIES]
            if (relief := self._relief(ends([gang]), [gang]))
        ]
        some = [] if single else list(self._some())
        wholes = self._wholes({relief.group_id for relief in single + some})
        return single + some + wholes or list(self._slots_back())

    def _could_be_enough(self) -> bool:
        """Return whether these agents could do for the request and those in its way."""
        situation = self.situation
        rooms, ahead = situation.nearest, situation.in_the_way
        if not situation.request.slots:
            return len(ahead) < len(rooms) * situation.survey.pool.rules.max_aux_per_agent
        wanted = situation.request.slots + sum(other.slots for other in ahead)
        return wanted <= sum(room.size for room in rooms)

    def _relief(
        self, change: Change, gangs: Sequence[Running], *, is_all: bool = False
    ) -> Relief | None:
        """Return the relief that a change is, if it starts the request."""
        situation, request_id = self.situation, self.situation.request.id
        whatif, running = situation.survey.whatif, situation.survey.pool.running
        outcomes = [whatif.after(*first, change) for first in _in_both_orders(self.after)]
        if any(request_id not in outcome.started for outcome in outcomes):
            return None
        return Relief(
            group_id=gangs[0].request.group,
            gangs=tuple(gangs),
            num=len(gangs),
            is_all=is_all,
            after=self.after,
            asked=[
                name
                for name in outcomes[0].asked.get(request_id, ())
                if name in running and situation.is_less_urgent(running[name])
            ],
        )

    def _wholes(self, known: set[int | None]) -> list[Relief]:
        return [
            relief
            for group_id, mine in islice(by_group(self.gangs).items(), _TRIES)
            if group_id not in known and group_id != self.situation.request.group
            if (relief := self._relief(Change(goes=(group_id,)), mine, is_all=True))
        ]

    def _rooms(self) -> list[Room]:
        """Return agents where several ends may make room."""
        situation = self.situation
        if situation.spans_agents or not situation.request.slots:
            return []
        return situation.nearest[:_AGENTS]

    def _some(self) -> Iterator[Relief]:
        """Find experiments of which any so many trials on one agent are enough."""
        for room in self._rooms():
            for group_id, mine in islice(by_group(_here(room, self.gangs)).items(), _TRIES):
                nums = self._nums([mine, mine[::-1]]) if len(mine) > 1 else None
                if nums:
                    yield Relief(
                        group_id=group_id,
                        gangs=tuple(mine),
                        num=max(nums),
                        agent_id=room.agent.id,
                        after=self.after,
                    )

    def _nums(self, orders: Iterable[Sequence[Running]]) -> list[int] | None:
        """Return how many ends are enough in each order; None: in one of them none are."""
        firsts, nums = _in_both_orders(self.after), []
        for order in orders:
            last = one_by_one(order[:_STEPS])
            steps = [self.situation.steps(*first, *last) for first in firsts]
            known = [num for num in steps if num is not None]
            if len(known) < len(steps):
                return None
            nums.append(max(known) - len(self.after))
        return nums

    def _slots_back(self) -> Iterator[Relief]:
        """Find an agent of which any so many slots are enough, whichever trials hold them."""
        for room in self._rooms():
            here = _here(room, self.gangs)
            if len(here) < 2:
                continue
            orders = [here, here[::-1], [g for mine in by_group(here).values() for g in mine]]
            nums = self._nums(orders)
            if nums is not None:
                given = [[gives(gang, room) for gang in order] for order in orders]
                enough = 1 + max(sum(g[: n - 1]) for g, n in zip(given, nums, strict=True))
                if enough <= min(sum(g[:n]) for g, n in zip(given, nums, strict=True)):
                    yield Relief(
                        group_id=None,
                        gangs=tuple(here),
                        num=nums[0] if len(set(nums)) == 1 else 0,
                        num_slots=enough,
                        agent_id=room.agent.id,
                        after=self.after,
                    )
                    return
            if few := self._few(here):
                yield Relief(
                    group_id=None, gangs=few, num=len(few), is_named=True, after=self.after
                )
                return

    def _few(self, here: Sequence[Running]) -> tuple[Running, ...]:
        """Return a few trials whose ends are enough: those expected first, if so."""
        expected = sorted(here, key=lambda gang: _wait_order(self.situation, gang))
        in_turns = [
            (turn, gang) for mine in by_group(expected).values() for turn, gang in enumerate(mine)
        ]
        balanced = [gang for _, gang in sorted(in_turns, key=lambda pair: pair[0])]
        for order in (expected, balanced):
            nums = self._nums([order[:_NAMED]])
            if nums and nums[0] > 1:
                return tuple(order[: nums[0]])
        return ()


def _in_both_orders(leaving: Sequence[Running]) -> list[list[Change]]:
    """Return the changes that gangs leave one by one, the oldest trial first and last.

    What one of them gives back is taken by others before the next has left, unless it is kept.
    """
    order = sorted(leaving, key=lambda gang: (gang.request.number, gang.request.id))
    both = [one_by_one(order), one_by_one(order[::-1])]
    return both if len(order) > 1 else both[:1]


def _wait_order(situation: Situation, gang: Running) -> tuple[bool, float, int, float, str]:
    end = situation.survey.end_of(gang)
    priority = situation.survey.pool.groups[gang.request.group].priority
    at = inf if end is None else end.at
    return (not gang.is_leaving, at, -priority, -gang.since, gang.request.id)


def by_group(gangs: Iterable[Running]) -> dict[int, list[Running]]:
    """Return gangs by their experiment."""
    groups: dict[int, list[Running]] = {}
    for gang in gangs:
        groups.setdefault(gang.request.group, []).append(gang)
    return groups


def _here(room: Room, gangs: Iterable[Running]) -> list[Running]:
    """Return those that hold slots here, the least first."""
    here = [gang for gang in gangs if gang.slots_on(room.agent.id)]
    return sorted(here, key=lambda gang: (gives(gang, room), gang.request.id))


def gives(gang: Running, room: Room) -> int:
    """Return how many slots that may be given out a gang has on an agent."""
    return len(set(gang.slots_on(room.agent.id)).intersection(room.agent.slots))
