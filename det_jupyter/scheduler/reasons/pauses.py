"""Which other experiments to pause so that a waiting trial starts: one, or the fewest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from det_jupyter.scheduler.deciding.order import shape_of
from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.reliefs import by_group, gives, kept_rooms
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room
from det_jupyter.scheduler.reasons.whatif import gangs_on, paused
from det_jupyter.scheduler.reasons.words import experiments, shown
from det_jupyter.wire import Remedy
from det_jupyter.words import count

_TRIES = 8
_TOGETHER = 4  # experiments that one is asked to pause at most
_AGENTS = 2  # on which several are looked for

Held = Mapping[int, Sequence[Running]]


def pauses(situation: Situation, rooms: Sequence[Room]) -> Iterator[Remedy]:
    """Yield one experiment whose pause is enough, or the fewest that are enough together.

    Args:
        situation: As if those had left whom the pool itself would ask.
        rooms: The agents where the request is nearest to fitting.
    """
    gangs = [gang for gang in gangs_on(situation, rooms) if not gang.is_leaving]
    held = by_group(gangs)
    for other in situation.ahead.requests[:_TRIES]:
        held.setdefault(other.group, [])
    held.pop(situation.request.group, None)
    chosen = _one(situation, held) or _several(situation, rooms, held)
    if chosen:
        yield _pause(situation, chosen, held)


def _starts(situation: Situation, group_ids: Sequence[int], held: Held) -> bool:
    gangs = [gang for group_id in group_ids for gang in held[group_id]]
    return paused(situation, group_ids, gangs).starts()


def _one(situation: Situation, held: Held) -> list[int]:
    groups = situation.survey.pool.groups

    def order(group_id: int) -> tuple[int, int, int]:
        slots = sum(gang.request.slots for gang in held[group_id])
        return (-groups[group_id].priority, slots, -group_id)

    for group_id in sorted(held, key=order)[:_TRIES]:
        if _starts(situation, [group_id], held):
            return [group_id]
    return []


def _several(situation: Situation, rooms: Sequence[Room], held: Held) -> list[int]:
    """Return the fewest found on one agent, or on those that a larger request takes whole."""
    if not situation.request.slots:
        return []
    rules = situation.survey.pool.rules
    if rules.preemption and rules.policy is not Policy.PRIORITY:
        # In between, those ahead may have others leave.
        held = {group_id: gangs for group_id, gangs in held.items() if gangs}
    kept = kept_rooms(situation, rooms)
    if situation.spans_agents:
        ways = [_enough(situation, kept, held)] if len(kept) == len(rooms) else []
    else:
        ways = [_enough(situation, [room], held) for room in kept[:_AGENTS]]
    return min((way for way in ways if way), key=len, default=[])


def _enough(situation: Situation, rooms: Sequence[Room], held: Held) -> list[int]:
    """Take those that help most until they are enough; then leave out who is not needed."""
    helps = {group_id: _help(situation, rooms, group_id, held) for group_id in held}
    chosen: list[int] = []
    for group_id in sorted(helps, key=lambda group_id: (-helps[group_id], -group_id)):
        if len(chosen) == _TOGETHER or not helps[group_id]:
            return []
        chosen.append(group_id)
        if len(chosen) > 1 and _starts(situation, chosen, held):
            return _needed(situation, chosen, helps, held)
    return []


def _help(situation: Situation, rooms: Sequence[Room], group_id: int, held: Held) -> int:
    """Return how many slots of these agents a group holds, or may take ahead of the request."""
    shapes = Counter(shape_of(other) for other in situation.ahead.by_group.get(group_id, ()))
    rivals = {
        shape: num
        for shape, num in shapes.items()
        if shape.slots and situation.capacity.can_run(shape)
    }
    wanted = sum(situation.claims(room, rivals) for room in rooms)
    return wanted + sum(gives(gang, room) for room in rooms for gang in held[group_id])


def _needed(
    situation: Situation, chosen: Sequence[int], helps: Mapping[int, int], held: Held
) -> list[int]:
    """Return those without whom the others are not enough; of two alike the smaller help stays."""
    needed = list(chosen)
    for group_id in sorted(chosen[:-1], key=lambda group_id: -helps[group_id]):
        rest = [other for other in needed if other != group_id]
        if rest and _starts(situation, rest, held):
            needed = rest
    return needed


def _pause(situation: Situation, chosen: Sequence[int], held: Held) -> Remedy:
    # Holders first: what they give back is kept for those ahead, too, as long as they wait.
    ids = sorted(chosen, key=lambda group_id: (not held[group_id], group_id))
    return Remedy(
        verb="pause",
        target=[*ids],
        text=f"pause {_names(situation, ids)}, {_what_they_do(situation, ids, held)}",
    )


def _names(situation: Situation, ids: Sequence[int]) -> str:
    if len(ids) > 1:
        return experiments(ids)
    return f"experiment {ids[0]} “{shown(situation.survey.facts.title_of(ids[0]).name)}”"


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
