"""Whose end starts a waiting trial: the fewest that are certainly enough.

    one trial                        its end alone makes room
    some trials of an experiment     any so many of them do, on one agent
    an experiment                    it has to end or be paused: its next trials would go first
    some slots of an agent           any so many of them do, whoever gives them back
    these trials                     by shares, where others that end would let more go first

What is given back bit by bit must stay there until it is enough: so several ends count only on
agents that are kept for the request or for those ahead of it. Those count as gone that the pool
itself asks to leave as soon as the rest makes room (`Situation.ended`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from math import inf

from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room, slots_on
from det_jupyter.scheduler.reasons.whatif import gangs_on, kept_agents, paused, without

_TRIES = 8
_NAMED = 4  # trials that are named one by one
_MORE = 3  # numbers of trials that are tried beyond the least possible one


@dataclass(frozen=True, slots=True, kw_only=True)
class Relief:
    """Whose end is enough.

    Args:
        group_id: The experiment; None: several.
        gangs: Those that end; of `num` any so many of these.
        num: How many of them.
        num_slots: How many slots of `agent_id` have to be given back, whoever holds them; 0: it
            is about whole trials. `num` is 0 then if it depends on who ends.
        agent_id: Where, if it does not matter who.
        is_leaving: Whether all of these were asked to leave already.
        is_all: Whether its waiting trials must not take their place: it has to end or be paused.
        is_named: Whether just these have to end, and not any so many.
        after: Gangs that are leaving already and have to be gone as well.
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


def reliefs(situation: Situation, rooms: Sequence[Room]) -> list[Relief]:
    """Return whose end would start the request, those first that are expected first.

    Args:
        situation: As if those had left whom the pool itself would ask.
        rooms: The agents where the request is nearest to fitting.
    """
    if not situation.is_complete:
        return []
    gangs = sorted(gangs_on(situation, rooms), key=lambda gang: _wait_order(situation, gang))
    leaving = tuple(gang for gang in gangs if gang.is_leaving)
    if any(situation.comes_again(gang) for gang in leaving):
        return []
    staying = [gang for gang in gangs if not gang.is_leaving]
    if not leaving:
        return _ends(situation, rooms, staying, ())
    gone = without(situation, leaving)
    if gone.starts():
        groups = {gang.request.group for gang in leaving}
        sole = groups.pop() if len(groups) == 1 else None
        return [Relief(group_id=sole, gangs=leaving, num=len(leaving), is_leaving=True)]
    found = _ends(situation, rooms, staying, ())
    if found or situation.spans_agents:
        return found
    # Those leave first: what they give back stays only where it is kept.
    kept = kept_agents(situation)
    barred = frozenset(name for name in situation.rooms if name not in kept)
    return _ends(replace(gone, barred=barred), rooms, staying, leaving)


def _ends(
    situation: Situation,
    rooms: Sequence[Room],
    gangs: Sequence[Running],
    after: tuple[Running, ...],
) -> list[Relief]:
    single: list[Relief] = []
    some: list[Relief] = []
    lasting = [gang for gang in gangs if not situation.comes_again(gang)]
    can_wait = _is_enough_for_all(situation, rooms)
    if can_wait:
        single = [
            Relief(group_id=gang.request.group, gangs=(gang,), after=after)
            for gang in lasting[:_TRIES]
            if without(situation, [gang]).starts()
        ]
    found = {relief.group_id for relief in single}
    if can_wait:
        some = [r for r in _some(situation, rooms, lasting, after) if r.group_id not in found]
    found |= {relief.group_id for relief in some}
    wholes = [
        Relief(group_id=group_id, gangs=tuple(mine), num=len(mine), is_all=True, after=after)
        for group_id, mine in islice(by_group(gangs).items(), _TRIES)
        if group_id not in found
        and group_id != situation.request.group
        and paused(situation, [group_id], mine).starts()
    ]
    if can_wait and not (single or some or wholes):
        return list(_slots_back(situation, rooms, lasting, after))
    return single + some + wholes


def _is_enough_for_all(situation: Situation, rooms: Sequence[Room]) -> bool:
    """Return whether one of these agents, or their number, could do for all in line."""
    if situation.spans_agents or not situation.request.slots:
        return True
    rivals = situation.rivals()
    return len(rooms) > sum(rivals.values()) or any(
        situation.request.slots + situation.claims(room, rivals) <= room.size for room in rooms
    )


def _wait_order(situation: Situation, gang: Running) -> tuple[bool, float, int, float, str]:
    end = situation.end_of(gang)
    priority = situation.survey.pool.groups[gang.request.group].priority
    at = inf if end is None else end.at
    return (not gang.is_leaving, at, -priority, -gang.since, gang.request.id)


def by_group(gangs: Iterable[Running]) -> dict[int, list[Running]]:
    """Return gangs by their experiment."""
    groups: dict[int, list[Running]] = {}
    for gang in gangs:
        groups.setdefault(gang.request.group, []).append(gang)
    return groups


def kept_rooms(situation: Situation, rooms: Iterable[Room]) -> list[Room]:
    """Return those of these agents, as they are in a situation, that fill up for the request."""
    kept = kept_agents(situation)
    names = [room.agent.id for room in rooms]
    return [situation.rooms[name] for name in names if name in kept]


def _some(
    situation: Situation,
    rooms: Sequence[Room],
    gangs: Sequence[Running],
    after: tuple[Running, ...],
) -> Iterator[Relief]:
    """Find experiments of which any so many trials on one agent are enough."""
    if situation.spans_agents or not situation.request.slots:
        return
    for room in kept_rooms(situation, rooms):
        for group_id, mine in islice(by_group(_here(room, gangs)).items(), _TRIES):
            num = _fewest(situation, room, mine)
            if num is not None and len(mine) > 1:
                yield Relief(
                    group_id=group_id,
                    gangs=tuple(mine),
                    num=num,
                    agent_id=room.agent.id,
                    after=after,
                )


def _here(room: Room, gangs: Iterable[Running]) -> list[Running]:
    """Return those that hold slots here, the least first."""
    here = [gang for gang in gangs if slots_on(gang, room.agent.id)]
    return sorted(here, key=lambda gang: (gives(gang, room), gang.request.id))


def gives(gang: Running, room: Room) -> int:
    """Return how many slots that may be given out a gang has on an agent."""
    return len(set(slots_on(gang, room.agent.id)).intersection(room.agent.slots))


def _fewest(situation: Situation, room: Room, gangs: Sequence[Running]) -> int | None:
    """Return how many of these are enough, whichever end; they come in the order of their size."""
    given = [gives(gang, room) for gang in gangs]
    least = _reaching(given, room_needed(situation, room) - room.free)
    for num in range(max(2, least), min(len(gangs), least + _MORE) + 1):
        if without(situation, gangs[:num]).starts():
            return num
    return None


def _slots_back(
    situation: Situation,
    rooms: Sequence[Room],
    gangs: Sequence[Running],
    after: tuple[Running, ...],
) -> Iterator[Relief]:
    """Find an agent of which any so many slots are enough, whoever gives them back."""
    if situation.spans_agents or not situation.request.slots:
        return
    for room in kept_rooms(situation, rooms):
        here = _here(room, gangs)
        # Whoever holds less may go first: at worst all of the others do.
        others = [gang for gang in here if gang.request.group != situation.request.group]
        worst = replace(situation, ahead=without(situation, others).ahead)
        num_slots = room_needed(worst, room) - room.free
        if num_slots > (least := room_needed(situation, room) - room.free):
            named = _named(situation, room, here, least)
            if named:
                yield Relief(
                    group_id=None, gangs=named, num=len(named), is_named=True, after=after
                )
                return
        most = sum(gives(gang, room) for gang in here)
        if 0 < num_slots <= most and _with_back(worst, room, num_slots).starts():
            yield Relief(
                group_id=None,
                gangs=tuple(here),
                num=_how_many(here, room, num_slots),
                num_slots=num_slots,
                agent_id=room.agent.id,
                after=after,
            )
            return


def _named(
    situation: Situation, room: Room, gangs: Sequence[Running], missing: int
) -> tuple[Running, ...]:
    """Return a few trials whose ends let nobody else go first: those expected first, if so."""
    expected = sorted(gangs, key=lambda gang: _wait_order(situation, gang))
    turns: Counter[int] = Counter()
    balanced = []
    for gang in expected:
        turns[gang.request.group] += 1
        balanced.append((turns[gang.request.group], gang))
    balanced.sort(key=lambda pair: pair[0])
    for order in (expected, [gang for _, gang in balanced]):
        least = _reaching([gives(gang, room) for gang in order], missing)
        few = tuple(order[:least])
        if 1 < least <= _NAMED and without(situation, few).starts():
            return few
    return ()


def room_needed(situation: Situation, room: Room) -> int:
    """Return how many free slots of an agent are enough for the request and all ahead of it."""
    return situation.request.slots + situation.claims(room, situation.rivals())


def _with_back(situation: Situation, room: Room, num_slots: int) -> Situation:
    then = room._replace(free=room.free + num_slots, used=room.used - num_slots)
    rooms = {**situation.rooms, room.agent.id: then}
    return replace(situation, rooms=rooms, looked_at=(then,))


def _how_many(gangs: Sequence[Running], room: Room, num_slots: int) -> int:
    """Return how many of these give so many slots back, whichever they are; 0: it depends."""
    given = [gives(gang, room) for gang in gangs]
    least, most = (_reaching(order, num_slots) for order in (given, given[::-1]))
    return least if least == most else 0


def _reaching(amounts: Iterable[int], enough: int) -> int:
    return sum(1 for total in accumulate(amounts, initial=0) if total < enough)
