"""What would start a waiting trial, the mildest first; each of them alone is enough.

    wait       for a trial or an experiment to end or leave
    own        more max_slots, a place further ahead, a more urgent priority
    machine    slots enabled, devices freed
    others     another experiment paused
    less       fewer slots asked for

Each is tried on a `Situation` and is offered only if the request certainly starts then: at once
or, for a priority, as soon as those have left who are asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from math import inf

from det_jupyter.scheduler.model import Policy, Request, Running
from det_jupyter.scheduler.order import shape_of
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.situation import Line, Room, Situation
from det_jupyter.scheduler.reasons.whatif import gangs_on, paused, without
from det_jupyter.scheduler.reasons_words import about, count, experiments, shown
from det_jupyter.wire import Remedy

_MOST = 4
_TRIES = 8


@dataclass(frozen=True, slots=True)
class Relief:
    """Whose end would be enough.

    Args:
        group_id: The experiment; None: several that are leaving anyway.
        gangs: Those of its gangs that must end.
        is_leaving: Whether all of these were asked to leave already.
        is_all: Whether its waiting trials must not take their place: it has to end or be paused.
    """

    group_id: int | None
    gangs: tuple[Running, ...]
    is_leaving: bool = False
    is_all: bool = False


def reliefs(situation: Situation, rooms: Sequence[Room]) -> list[Relief]:
    """Return whose end alone would start the request, those first that are expected first."""
    if not situation.is_complete:
        return []
    gangs = sorted(gangs_on(situation, rooms), key=lambda gang: _wait_order(situation, gang))
    leaving = [gang for gang in gangs if gang.is_leaving]
    if leaving and without(situation, leaving).starts():
        groups = {gang.request.group for gang in leaving}
        sole = groups.pop() if len(groups) == 1 else None
        return [Relief(sole, tuple(leaving), is_leaving=True)]
    single = [
        Relief(gang.request.group, (gang,))
        for gang in gangs[:_TRIES]
        if not gang.is_leaving and without(situation, [gang]).starts()
    ]
    found = {relief.group_id for relief in single}
    return single + [
        Relief(group_id, tuple(mine), is_all=True)
        for group_id, mine in islice(_by_group(gangs).items(), _TRIES)
        if group_id not in found
        and group_id != situation.request.group
        and paused(situation, group_id, mine).starts()
    ]


def _wait_order(situation: Situation, gang: Running) -> tuple[bool, float, int, float, str]:
    end = situation.survey.facts.end_of(gang.request.id)
    priority = situation.survey.pool.groups[gang.request.group].priority
    at = inf if end is None else end.at
    return (not gang.is_leaving, at, -priority, -gang.since, gang.request.id)


def _by_group(gangs: Sequence[Running]) -> dict[int, list[Running]]:
    groups: dict[int, list[Running]] = {}
    for gang in gangs:
        groups.setdefault(gang.request.group, []).append(gang)
    return groups


def find_remedies(
    situation: Situation, rooms: Sequence[Room], found: Sequence[Relief]
) -> list[Remedy]:
    """Return at most four remedies for a request that the pool could run.

    Args:
        situation: As it is.
        rooms: The agents where the request is nearest to fitting.
        found: Whose end would start it.
    """
    if not situation.is_complete:  # of those too far behind nobody can tell
        return []
    makers: tuple[Callable[[], Iterator[Remedy]], ...] = (
        lambda: _waits(situation, found),
        lambda: _more_max_slots(situation),
        lambda: _moves(situation),
        lambda: _priorities(situation, rooms),
        lambda: device_remedies(situation),
        lambda: _pauses(situation, rooms),
        lambda: _fewer_slots(situation),
    )
    return list(islice((remedy for maker in makers for remedy in maker()), _MOST))


def _waits(situation: Situation, found: Sequence[Relief]) -> Iterator[Remedy]:
    facts = situation.survey.facts
    for relief in found[:1]:
        trials = [facts.trial_of(gang.request.id) for gang in relief.gangs]
        who = _who(situation, relief, trials)
        ends = [facts.end_of(gang.request.id) for gang in relief.gangs]
        soon = ends[0] if len(ends) == 1 else None
        when = f", {about(soon, facts.now, facts.zone)}" if soon else ""
        yield Remedy(
            kind="wait",
            sentence=f"wait until {who}{when}",
            experiment_id=relief.group_id,
            trial_id=None if relief.is_all or len(trials) > 1 else trials[0],
        )


def _who(situation: Situation, relief: Relief, trials: Sequence[int]) -> str:
    if relief.is_leaving:
        groups = sorted({gang.request.group for gang in relief.gangs})
        return f"{experiments(groups)} {'has' if len(groups) == 1 else 'have'} left"
    assert relief.group_id is not None
    if relief.is_all:
        return f"experiment {relief.group_id} ends"
    if relief.group_id == situation.request.group:
        return f"trial {trials[0]} of its own experiment ends"
    return f"trial {trials[0]} of experiment {relief.group_id} ends"


def _more_max_slots(situation: Situation) -> Iterator[Remedy]:
    if situation.allowance is None:
        return
    group, request = situation.group, situation.request
    mates = situation.ahead.wanted.get(group.id, 0)
    value = situation.survey.pool.held(group.id) + mates + request.slots
    if value > (group.max_slots or 0) and replace(situation, allowance=None).starts():
        yield Remedy(
            kind="set_max_slots",
            sentence=f"raise max_slots of its experiment from {group.max_slots} to {value}",
            command=f"%det_experiment set {group.id} --max-slots {value}",
            experiment_id=group.id,
            value=value,
        )


def _moves(situation: Situation) -> Iterator[Remedy]:
    if situation.survey.pool.rules.policy is not Policy.PRIORITY:
        return
    own, rivals = situation.request.group, situation.rivals()
    ahead = situation.ahead.requests
    for place, other in enumerate(ahead):
        is_rival = shape_of(other) in rivals
        if other.group != own and (is_rival or situation.request.slots == 0):
            mates = tuple(mate for mate in ahead[place:] if mate.group == own)
            if replace(situation, ahead=Line(ahead[:place] + mates)).starts():
                yield _move(situation, other)
            return


def _move(situation: Situation, other: Request) -> Remedy:
    own = situation.request.group
    title = situation.survey.facts.title_of(other.group)
    return Remedy(
        kind="move_ahead",
        sentence=f"move experiment {own} ahead of experiment {other.group} “{shown(title.name)}”",
        command=f"%det job move {own} --ahead-of {other.group}",
        experiment_id=other.group,
    )


def _priorities(situation: Situation, rooms: Sequence[Room]) -> Iterator[Remedy]:
    """Find the least urgent priority that makes room by preemption."""
    pool, own = situation.survey.pool, situation.group
    if pool.rules.policy is not Policy.PRIORITY or not pool.rules.preemption:
        return
    if situation.spans_agents and len({room.size for room in rooms}) > 1:
        return  # nobody is asked to leave for a mixed fit
    gangs = [
        g for g in gangs_on(situation, rooms) if g.request.group != own.id and g.request.slots
    ]
    levels = {pool.groups[gang.request.group].priority for gang in gangs}
    for level in sorted((p for p in levels if 1 < p <= own.priority), reverse=True):
        victims = [g for g in gangs if pool.groups[g.request.group].priority >= level]
        ahead = Line(
            other
            for other in situation.ahead.requests
            if other.group == own.id or pool.groups[other.group].priority < level
        )
        then = replace(without(situation, victims), ahead=ahead, looked_at=None)
        # Whoever else is ahead then might take others' places, or these.
        if not then.rivals() and then.starts():
            yield _priority(situation, level - 1)
            return


def _priority(situation: Situation, value: int) -> Remedy:
    own = situation.group
    return Remedy(
        kind="set_priority",
        sentence=(
            f"make its experiment more urgent: priority {value} instead of {own.priority}; less "
            "urgent trials are asked to save and leave"
        ),
        command=f"%det_experiment set {own.id} --priority {value}",
        experiment_id=own.id,
        value=value,
    )


def _pauses(situation: Situation, rooms: Sequence[Room]) -> Iterator[Remedy]:
    pool, own = situation.survey.pool, situation.request.group
    gangs = [gang for gang in gangs_on(situation, rooms) if not gang.is_leaving]
    held = _by_group(gangs)
    for other in situation.ahead.requests[:_TRIES]:
        held.setdefault(other.group, [])
    held.pop(own, None)

    def order(group_id: int) -> tuple[int, int, int]:
        slots = sum(gang.request.slots for gang in held[group_id])
        return (-pool.groups[group_id].priority, slots, -group_id)

    for group_id in sorted(held, key=order)[:_TRIES]:
        if paused(situation, group_id, held[group_id]).starts():
            yield _pause(situation, group_id, is_holder=bool(held[group_id]))
            return


def _pause(situation: Situation, group_id: int, *, is_holder: bool) -> Remedy:
    held = situation.survey.pool.held(group_id)
    name = shown(situation.survey.facts.title_of(group_id).name)
    slots = count(held, "slot") if situation.request.slots else "such a place"
    holds = f", which holds {slots}" if is_holder else ", which is ahead of it"
    return Remedy(
        kind="pause",
        sentence=f"pause experiment {group_id} “{name}”{holds}",
        command=f"%det_experiment pause {group_id}",
        experiment_id=group_id,
    )


def _fewer_slots(situation: Situation) -> Iterator[Remedy]:
    """Find the largest divisor that fits: a batch that n slots share, they can share too."""
    need = situation.request.slots
    for value in range(need // 2, 0, -1):
        if need % value == 0:
            request = replace(situation.request, slots=value)
            if replace(situation, request=request).starts():
                yield ask_slots(value, "starts at once")
                return


def ask_slots(value: int, effect: str) -> Remedy:
    """Return the advice to ask for another number of slots."""
    return Remedy(
        kind="ask_slots",
        sentence=f"submit it again with resources.slots_per_trial {value}: that {effect}",
        command=f"resources: {{slots_per_trial: {value}}}",
        value=value,
    )
