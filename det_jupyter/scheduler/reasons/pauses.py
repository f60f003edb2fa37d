"""Which other experiments to pause so that a waiting trial starts: one, or the fewest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.reliefs import by_group, gives
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room
from det_jupyter.scheduler.reasons.whatif import Change
from det_jupyter.scheduler.reasons.words import experiments, shown
from det_jupyter.wire import Remedy
from det_jupyter.words import count

_TRIES = 8
_TOGETHER = 4  # experiments to pause at most
_AGENTS = 2  # on which several are looked for

Held = Mapping[int, Sequence[Running]]


def pauses(situation: Situation) -> Iterator[Remedy]:
    """Yield one experiment whose pause is enough, or the fewest that are enough together."""
    gangs = situation.gangs_on(situation.nearest)
    held = by_group(g for g in gangs if not g.is_leaving and not situation.is_less_urgent(g))
    for other in situation.in_the_way[:_TRIES]:
        held.setdefault(other.group, [])
    held.pop(situation.request.group, None)
    chosen = _one(situation, held) or _several(situation, held)
    if chosen:
        yield _pause(situation, chosen, held)


def _starts(situation: Situation, group_ids: Sequence[int]) -> bool:
    return situation.starts(*(Change(goes=(group_id,)) for group_id in group_ids))


def _one(situation: Situation, held: Held) -> list[int]:
    groups = situation.survey.pool.groups

    def order(group_id: int) -> tuple[int, int, int]:
        slots = sum(gang.request.slots for gang in held[group_id])
        return (-groups[group_id].priority, slots, -group_id)

    for group_id in sorted(held, key=order)[:_TRIES]:
        if _starts(situation, [group_id]):
            return [group_id]
    return []


def _several(situation: Situation, held: Held) -> list[int]:
    """Return the fewest found on one agent, or on those that a larger request takes whole."""
    if not situation.request.slots:
        return []
    rooms = situation.nearest
    places = [rooms] if situation.spans_agents else [[room] for room in rooms[:_AGENTS]]
    ways = [_enough(situation, place, held) for place in places]
    return min((way for way in ways if way), key=len, default=[])


def _enough(situation: Situation, rooms: Sequence[Room], held: Held) -> list[int]:
    """Take those that help most until they suffice; leave out those that are not needed."""
    helps = {group_id: _help(situation, rooms, group_id, held) for group_id in held}
    order = [group_id for group_id in helps if helps[group_id]]
    order = sorted(order, key=lambda group_id: (-helps[group_id], -group_id))[:_TOGETHER]
    missing = _missing(situation, rooms)
    for num in range(2, len(order) + 1):
        chosen = order[:num]
        if sum(helps[group_id] for group_id in chosen) >= missing:
            ordered = sorted(chosen, key=lambda group_id: (not held[group_id], group_id))
            if _starts(situation, ordered):
                return _needed(situation, ordered, held)
    return []


def _missing(situation: Situation, rooms: Sequence[Room]) -> int:
    """Return how many slots of these agents are missing for the request and those in its way."""
    claims = (situation.claim(other, room) for other in situation.in_the_way for room in rooms)
    free = sum(room.size - situation.held(room) for room in rooms)
    return situation.request.slots + sum(claims) - free


def _needed(situation: Situation, chosen: Sequence[int], held: Held) -> list[int]:
    """Return those of the experiments without which the others are not enough."""
    needed = list(chosen)
    for group_id in chosen:
        rest = [other for other in needed if other != group_id]
        if len(rest) > 1 and _starts(situation, rest):
            needed = rest
    return needed


def _help(situation: Situation, rooms: Sequence[Room], group_id: int, held: Held) -> int:
    waiting = [other for other in situation.in_the_way if other.group == group_id]
    wanted = sum(situation.claim(other, room) for other in waiting for room in rooms)
    return wanted + sum(gives(gang, room) for room in rooms for gang in held[group_id])


def _pause(situation: Situation, ids: Sequence[int], held: Held) -> Remedy:
    names = experiments(ids)
    if len(ids) == 1:
        names += f" “{shown(situation.survey.facts.title_of(ids[0]).name)}”"
    what = _what_they_do(situation, ids, held)
    return Remedy(verb="pause", target=[*ids], text=f"pause {names}, {what}")


def _what_they_do(situation: Situation, ids: Sequence[int], held: Held) -> str:
    if not any(held[group_id] for group_id in ids):
        return f"which {'is' if len(ids) == 1 else 'are'} ahead of it"
    if not situation.request.slots:
        return f"which {'holds' if len(ids) == 1 else 'hold'} such a place"
    holders = [group_id for group_id in ids if held[group_id]]
    slots = count(sum(situation.survey.pool.held(group_id) for group_id in holders), "slot")
    if len(ids) == 1:
        return f"which holds {slots}"
    if holders == list(ids):
        return f"which hold {slots}"
    ahead = [group_id for group_id in ids if group_id not in holders]
    hold = "holds" if len(holders) == 1 else "hold"
    be = "is" if len(ahead) == 1 else "are"
    return (
        f"of which {experiments(holders)} {hold} {slots} and {experiments(ahead)} {be} ahead of it"
    )
