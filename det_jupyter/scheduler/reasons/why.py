"""Why a trial waits for slots: as data, and in one sentence that people are glad to read.

    needs 4 slots                                              what it asks for
    2 of 8 are free                                            what is there
    experiment 3 “resnet” (trial 7, priority 42, since 14:02,
        notebook eda.ipynb) holds 6                            who has it
    starts when it ends or is paused, about 14:20
        (14:10 to 14:40)                                       what would start it, and when

The sentence names the nearest way out; the data has all of it.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.clauses import Story
from det_jupyter.scheduler.reasons.devices import draining, strangers
from det_jupyter.scheduler.reasons.forecast import expect_start
from det_jupyter.scheduler.reasons.never import Cause, make_possible, why_impossible
from det_jupyter.scheduler.reasons.reliefs import Relief, by_group, reliefs
from det_jupyter.scheduler.reasons.remedies import find_remedies
from det_jupyter.scheduler.reasons.sentences import tell
from det_jupyter.scheduler.reasons.situation import Situation, situation_of
from det_jupyter.scheduler.reasons.survey import Room, Survey
from det_jupyter.wire import HolderView, Reason

_NAMED = 20  # experiments ahead, processes


def why_waiting(survey: Survey, request_id: str) -> Reason:
    """Return why a request waits; it must be waiting in the pool.

    Args:
        survey: Of the pool; one for all reasons of a moment.
        request_id: The request.
    """
    facts, situation = survey.facts, situation_of(survey, request_id)
    causes = _causes_of(situation)
    if situation.is_possible():
        found = reliefs(situation)
        expected, why_unknown = expect_start(situation)
        remedies = find_remedies(situation, found)
        rooms = situation.nearest
    else:
        found, expected, why_unknown = [], None, "it cannot run as things are"
        remedies = make_possible(situation, causes[-1])
        rooms = draining(situation)
    story = Story(
        situation=situation,
        causes=causes,
        reliefs=tuple(found),
        holders=tuple(_holders_on(situation, rooms, found)),
        expected=expected,
    )
    return Reason(
        trial_id=facts.trial_of(request_id),
        cause=causes[-1],
        sentence=tell(story),
        pool=facts.pool_name,
        slots=situation.request.slots,
        free=sum(room.free for room in situation.allowed),
        total=sum(room.size for room in situation.allowed),
        holders=list(story.holders),
        processes=strangers(situation)[:_NAMED],
        position=situation.position,
        ahead=list(dict.fromkeys(other.group for other in situation.in_the_way))[:_NAMED],
        remedies=remedies,
        expected=expected,
        why_unknown=why_unknown,
    )


def _causes_of(situation: Situation) -> tuple[Cause, ...]:
    if not situation.is_possible():
        return why_impossible(situation)
    allowance, need = situation.allowance, situation.request.slots
    if need and allowance is not None and allowance < need:
        return ("max_slots",)
    return ("turn",) if situation.in_the_way or not situation.is_complete else ("slots",)


def _holders_on(
    situation: Situation, rooms: Sequence[Room], found: Sequence[Relief]
) -> list[HolderView]:
    """Return who holds slots there; those first that could make room, then the largest."""
    names = {room.agent.id for room in rooms}
    gangs = by_group(situation.gangs_on(rooms))
    views = [_view(situation, names, group_id, mine) for group_id, mine in gangs.items()]
    last = len(found)
    enough = {
        gang.request.group: place
        for place in reversed(range(last))  # of several reliefs of a group, the first counts
        for gang in found[place].gangs
    }
    views.sort(key=lambda view: (enough.get(view.experiment_id, last), -view.slots, view.since))
    return views


def _view(
    situation: Situation, agents: Set[str], group_id: int, gangs: Sequence[Running]
) -> HolderView:
    facts = situation.survey.facts
    title = facts.title_of(group_id)
    return HolderView(
        experiment_id=group_id,
        experiment_name=title.name,
        trial_ids=situation.survey.trials_of(gangs),
        slots=sum(
            len(part.slot_ids) for gang in gangs for part in gang.parts if part.agent_id in agents
        ),
        priority=situation.survey.pool.groups[group_id].priority,
        since=min(gang.since for gang in gangs),
        notebook=title.notebook,
        is_leaving=all(gang.is_leaving for gang in gangs),
    )
