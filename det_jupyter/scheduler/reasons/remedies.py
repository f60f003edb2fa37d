"""What would start a waiting trial, the mildest first; each of them is enough.

    wait       for a trial or an experiment to end or leave
    own        more max_slots, a place further ahead, a more urgent priority
    machine    slots enabled, devices freed, another pool
    others     other experiments paused
    less       fewer slots asked for

Each is tried on a `Situation` and is offered only if the request certainly starts then: at once
or, with preemption, as soon as those have left who are asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from det_jupyter.scheduler.deciding.order import shape_of
from det_jupyter.scheduler.model import Policy, Request, Running
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.elsewhere import fewer_slots, other_pool
from det_jupyter.scheduler.reasons.pauses import pauses
from det_jupyter.scheduler.reasons.reliefs import Relief
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.survey import Line, Room
from det_jupyter.scheduler.reasons.whatif import gangs_on, without
from det_jupyter.scheduler.reasons.words import about, experiments, listed, shown
from det_jupyter.wire import Remedy
from det_jupyter.words import count, moment

_MOST = 4
_NAMED = 3


def find_remedies(
    situation: Situation, base: Situation, rooms: Sequence[Room], found: Sequence[Relief]
) -> list[Remedy]:
    """Return at most four remedies for a request that the pool could run.

    Args:
        situation: As it is.
        base: As if those had left whom the pool itself would ask.
        rooms: The agents where the request is nearest to fitting.
        found: Whose end would start it.
    """
    if not situation.is_complete:  # of those too far behind nobody can tell
        return []
    makers: tuple[Callable[[], Iterator[Remedy]], ...] = (
        lambda: _waits(situation, found),
        lambda: _kills(situation, found),
        lambda: _more_max_slots(situation),
        lambda: _moves(situation),
        lambda: _priorities(situation, rooms),
        lambda: device_remedies(situation),
        lambda: other_pool(situation),
        lambda: pauses(base, [base.rooms[room.agent.id] for room in rooms]),
        lambda: fewer_slots(situation),
    )
    return list(islice((remedy for maker in makers for remedy in maker()), _MOST))


def _waits(situation: Situation, found: Sequence[Relief]) -> Iterator[Remedy]:
    for relief in found[:1]:
        yield Remedy(
            verb="wait",
            target=[] if relief.group_id is None else [relief.group_id],
            values=_values(situation, relief),
            text=f"wait until {_who(situation, relief)}{_when(situation, relief)}",
        )


def _values(situation: Situation, relief: Relief) -> dict[str, int | str | list[int]]:
    trial_of = situation.survey.facts.trial_of
    values: dict[str, int | str | list[int]] = {}
    if relief.after:
        values["left"] = sorted(trial_of(gang.request.id) for gang in relief.after)
    if relief.agent_id is not None:
        amount = (
            {"num_slots": relief.num_slots} if relief.num_slots else {"num_trials": relief.num}
        )
        return values | {"agent": relief.agent_id} | amount
    if not relief.is_all:
        values["trials"] = sorted(trial_of(gang.request.id) for gang in relief.gangs)
    return values


def _when(situation: Situation, relief: Relief) -> str:
    survey = situation.survey
    if relief.is_leaving:
        return latest_leaving(situation, relief)
    ends = [situation.end_of(gang) for gang in relief.gangs]
    if len(ends) > 1 or ends[0] is None or relief.after:
        return ""
    return f", {about(ends[0], survey.facts.now, survey.facts.zone)}"


def _who(situation: Situation, relief: Relief) -> str:
    first = f"{have_left(relief.after)} and " if relief.after else ""
    if relief.is_leaving:
        return have_left(relief.gangs)
    if relief.is_named or relief.num_slots:
        return f"{first}{some_back(situation, relief)}"
    whose = f"experiment {relief.group_id}"
    if relief.is_all:
        return f"{first}{whose} ends"
    whose = "its own experiment" if relief.group_id == situation.request.group else whose
    if relief.agent_id is not None:
        num = count(relief.num, "trial")
        on = f" on agent {shown(relief.agent_id)}" if len(situation.rooms) > 1 else ""
        return f"{first}{num} of {whose}{on} have ended"
    trial = situation.survey.facts.trial_of(relief.gangs[0].request.id)
    return f"{first}trial {trial} of {whose} ends"


def some_back(situation: Situation, relief: Relief) -> str:
    """Say how many of those who hold slots on an agent have to give them back."""
    if relief.is_named:
        trial_of = situation.survey.facts.trial_of
        ids = sorted(trial_of(gang.request.id) for gang in relief.gangs)
        return f"trials {listed([str(trial) for trial in ids], most=4)} have ended"
    where, num = f"on agent {shown(relief.agent_id or '')}", len(relief.gangs)
    if relief.num == num == 1:
        trial = situation.survey.facts.trial_of(relief.gangs[0].request.id)
        return f"trial {trial} has ended"
    if relief.num == num:
        groups = sorted({gang.request.group for gang in relief.gangs})
        more = {other.group for other in situation.survey.queue}
        if len(groups) == num <= _NAMED and not more.intersection(groups):
            return f"{experiments(groups)} have ended"
        return f"the {num} trials {where} have ended"
    if relief.num:
        have = "has" if relief.num == 1 else "have"
        return f"{relief.num} of the {num} trials {where} {have} ended"
    be = "is" if relief.num_slots == 1 else "are"
    return f"{count(relief.num_slots, 'more slot')} {where} {be} given back"


def have_left(gangs: Iterable[Running]) -> str:
    """Return `experiment 3 has left`, `experiments 3 and 4 have left`."""
    groups = sorted({gang.request.group for gang in gangs})
    return f"{experiments(groups)} {'has' if len(groups) == 1 else 'have'} left"


def latest_leaving(situation: Situation, relief: Relief) -> str:
    """Return `, at the latest about 15:20` for those who leave, if they have a limit."""
    facts = situation.survey.facts
    if not relief.is_leaving:
        return ""
    limits = [facts.leaves_by(gang.request.id) for gang in relief.gangs]
    known = [limit for limit in limits if limit is not None]
    if not known or len(known) < len(limits):
        return ""
    if max(known) <= facts.now:
        return f", which was due at {moment(max(known), facts.now, facts.zone)}"
    return f", at the latest about {moment(max(known), facts.now, facts.zone)}"


def _kills(situation: Situation, found: Sequence[Relief]) -> Iterator[Remedy]:
    """Yield what ends one that leaves and does not get done with it."""
    for relief in found[:1]:
        group_id = relief.group_id
        if relief.is_leaving and group_id is not None and group_id != situation.request.group:
            held = situation.survey.pool.held(group_id)
            is_all = held == sum(gang.request.slots for gang in relief.gangs)
            yield Remedy(
                verb="kill",
                target=[group_id],
                text=(
                    f"kill experiment {group_id}{'' if is_all else ' with all its trials'}: what "
                    "it has not saved is lost"
                ),
            )


def _more_max_slots(situation: Situation) -> Iterator[Remedy]:
    if situation.allowance is None:
        return
    group, request = situation.group, situation.request
    mates = situation.ahead.wanted.get(group.id, 0)
    value = situation.survey.pool.held(group.id) + mates + request.slots
    if value > (group.max_slots or 0) and replace(situation, allowance=None).starts():
        yield Remedy(
            verb="set",
            target=[group.id],
            values={"max_slots": value},
            text=f"raise max_slots of its experiment from {group.max_slots} to {value}",
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
        verb="move",
        target=[own],
        values={"ahead_of": other.group},
        text=f"move experiment {own} ahead of experiment {other.group} “{shown(title.name)}”",
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
        verb="set",
        target=[own.id],
        values={"priority": value},
        text=(
            f"make its experiment more urgent: priority {value} instead of {own.priority}; less "
            "urgent trials are asked to save and leave"
        ),
    )
