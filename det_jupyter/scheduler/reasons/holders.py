"""Who has the slots that a waiting request could use: experiments, and strangers' processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.devices import held_on
from det_jupyter.scheduler.reasons.reliefs import Relief
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Room
from det_jupyter.wire import DeviceProcess, HolderView


def holders_on(
    situation: Situation, rooms: Iterable[Room], found: Sequence[Relief]
) -> list[HolderView]:
    """Return who holds slots on these agents; those first that could make room, then the largest.

    Args:
        situation: As it is.
        rooms: The agents.
        found: Whose end alone would be enough.
    """
    rooms = list(rooms)
    names = {room.agent.id for room in rooms}
    gangs: dict[int, list[Running]] = {}
    for gang in situation.gangs_on(rooms):
        gangs.setdefault(gang.request.group, []).append(gang)
    views = [_view(situation, names, group_id, mine) for group_id, mine in gangs.items()]
    enough = {gang.request.group: place for place, gang in _reversed(found)}
    last = len(found)
    views.sort(key=lambda view: (enough.get(view.experiment_id, last), -view.slots, view.since))
    return views


def draining(situation: Situation) -> list[Room]:
    """Return the agents with disabled slots that a gang still holds."""
    return [
        room
        for room in situation.allowed
        if (withheld := situation.survey.withheld.get(room.agent.id)) is not None
        and held_on(situation, room.agent.id).intersection(withheld.disabled)
    ]


def _reversed(found: Sequence[Relief]) -> list[tuple[int, Running]]:
    """List gangs with the place of their relief, the first place of a group last."""
    return [(place, gang) for place, r in reversed([*enumerate(found)]) for gang in r.gangs]


def _view(
    situation: Situation, agents: Set[str], group_id: int, gangs: Sequence[Running]
) -> HolderView:
    facts = situation.survey.facts
    title = facts.title_of(group_id)
    return HolderView(
        experiment_id=group_id,
        experiment_name=title.name,
        trial_ids=sorted(facts.trial_of(gang.request.id) for gang in gangs),
        slots=sum(
            len(part.slot_ids) for gang in gangs for part in gang.parts if part.agent_id in agents
        ),
        priority=situation.survey.pool.groups[group_id].priority,
        since=min(gang.since for gang in gangs),
        notebook=title.notebook,
        is_leaving=all(gang.is_leaving for gang in gangs),
    )


def strangers(situation: Situation) -> list[DeviceProcess]:
    """Return the processes on devices that the request could use otherwise, each once an agent."""
    found: dict[tuple[str, int, str], DeviceProcess] = {}
    for agent_id, withheld in sorted(situation.survey.withheld.items()):
        if agent_id in situation.survey.rooms and agent_id not in situation.request.blocked:
            for slot in sorted(withheld.occupied):
                for process in withheld.occupied[slot]:
                    found.setdefault((agent_id, process.pid, process.command), process)
    return list(found.values())
