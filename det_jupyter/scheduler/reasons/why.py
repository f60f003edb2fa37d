"""Why a trial waits for slots: as data, and in one sentence, which names the nearest remedy."""

from __future__ import annotations

from collections.abc import Sequence, Set

from det_jupyter.contract.messages import HolderView, Reason
from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.model import Running
from det_jupyter.scheduler.reasons.cannot_run import make_possible, why_cannot_run
from det_jupyter.scheduler.reasons.devices import draining, foreign_processes
from det_jupyter.scheduler.reasons.estimate import expect_start
from det_jupyter.scheduler.reasons.reliefs import Relief, by_group, find_reliefs
from det_jupyter.scheduler.reasons.remedies import find_remedies
from det_jupyter.scheduler.reasons.sentence import Sentence
from det_jupyter.scheduler.reasons.wait import PoolSurvey, WaitingRequest

_NAMED = 20  # most experiments ahead, and most processes, that are listed


def why_waiting(survey: PoolSurvey, request_id: str) -> Reason:
    """Return why a request waits; it must be waiting in the pool.

    Args:
        survey: The pool; one survey serves all reasons of a moment.
        request_id: The request.
    """
    wait = WaitingRequest(survey, request_id)
    if wait.is_possible:
        reliefs = find_reliefs(wait)
        expected, why_unknown = expect_start(wait)
        holders = _holders(wait, wait.nearest, reliefs)
        sentence = str(Sentence(wait, reliefs, holders, expected))
        remedies = find_remedies(wait, reliefs)
    else:
        expected, why_unknown = None, "it cannot run as things are"
        holders = _holders(wait, draining(wait), ())
        sentence = why_cannot_run(wait, holders)
        remedies = make_possible(wait)
    return Reason(
        trial_id=wait.facts.trial_of(request_id),
        cause=wait.causes[-1],
        sentence=sentence,
        pool=wait.facts.pool_name,
        slots=wait.request.slots,
        free=sum(len(seats.free) for seats in wait.allowed),
        total=sum(seats.size for seats in wait.allowed),
        holders=holders,
        processes=foreign_processes(wait)[:_NAMED],
        position=wait.position,
        ahead=list(dict.fromkeys(other.group for other in wait.in_the_way))[:_NAMED],
        remedies=remedies,
        expected=expected,
        why_unknown=why_unknown,
    )


def _holders(
    wait: WaitingRequest, agents: Sequence[Seats], reliefs: Sequence[Relief]
) -> list[HolderView]:
    """Return the experiments that hold slots on agents; first those whose end would make room."""
    names = {seats.id for seats in agents}
    gangs = by_group(wait.gangs_on(agents))
    views = [_view(wait, names, group_id, mine) for group_id, mine in gangs.items()]
    last = len(reliefs)
    enough = {
        gang.request.group: place
        for place in reversed(range(last))  # so the first relief of a group overwrites later ones
        for gang in reliefs[place].gangs
    }
    views.sort(key=lambda view: (enough.get(view.experiment_id, last), -view.slots, view.since))
    return views


def _view(
    wait: WaitingRequest, agents: Set[str], group_id: int, gangs: Sequence[Running]
) -> HolderView:
    title = wait.facts.title_of(group_id)
    return HolderView(
        experiment_id=group_id,
        experiment_name=title.name,
        trial_ids=wait.survey.trials_of(gangs),
        slots=sum(len(gang.slots_on(agent_id)) for gang in gangs for agent_id in agents),
        priority=wait.pool.groups[group_id].priority,
        since=min(gang.since for gang in gangs),
        notebook=title.notebook,
        is_leaving=all(gang.is_leaving for gang in gangs),
        num_given=sum(gang.num_given for gang in gangs),
    )
