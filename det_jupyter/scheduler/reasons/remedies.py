"""What would start a waiting trial, the mildest first; each of them is enough.

    wait       for a trial or an experiment to end or leave
    own        more max_slots, a place further ahead, a more urgent priority
    machine    slots enabled, devices freed, another pool
    others     other experiments paused
    less       fewer slots asked for

Each is tried (`whatif`) and is offered only if the request starts then: at once or, with
preemption, as soon as those have left that are asked to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

from det_jupyter.scheduler.lane import moved_beside
from det_jupyter.scheduler.model import Group, Policy, Running
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.elsewhere import fewer_slots, other_pool
from det_jupyter.scheduler.reasons.pauses import pauses
from det_jupyter.scheduler.reasons.reliefs import Relief
from det_jupyter.scheduler.reasons.situation import Situation
from det_jupyter.scheduler.reasons.whatif import Change
from det_jupyter.scheduler.reasons.words import about, experiments, listed, shown
from det_jupyter.wire import Remedy
from det_jupyter.words import count, moment

_MOST = 4
_NAMED = 3
_LEVELS = 4  # priorities that are tried


def find_remedies(situation: Situation, found: Sequence[Relief]) -> list[Remedy]:
    """Return at most four remedies for a request that the pool could run.

    Args:
        situation: As it is.
        found: Which ends would start it.
    """
    if not situation.is_complete:  # too far behind to be looked at
        return []
    makers: tuple[Callable[[], Iterator[Remedy]], ...] = (
        lambda: _waits(situation, found),
        lambda: _kills(situation, found),
        lambda: _more_max_slots(situation),
        lambda: _moves(situation),
        lambda: _priorities(situation),
        lambda: device_remedies(situation),
        lambda: other_pool(situation),
        lambda: pauses(situation),
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
    trials_of = situation.survey.trials_of
    values: dict[str, int | str | list[int]] = {}
    if relief.after:
        values["left"] = trials_of(relief.after)
    if relief.agent_id is not None:
        unit, amount = ("slots", relief.num_slots) if relief.num_slots else ("trials", relief.num)
        return values | {"agent": relief.agent_id, f"num_{unit}": amount}
    if not relief.is_all:
        values["trials"] = trials_of(relief.gangs)
    return values


def _when(situation: Situation, relief: Relief) -> str:
    survey = situation.survey
    if relief.is_leaving:
        return latest_leaving(situation, relief)
    ends = [survey.end_of(gang) for gang in relief.gangs]
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
        on = f" on agent {shown(relief.agent_id)}" if len(situation.survey.rooms) > 1 else ""
        return f"{first}{num} of {whose}{on} have ended"
    trial = situation.survey.facts.trial_of(relief.gangs[0].request.id)
    return f"{first}trial {trial} of {whose} ends"


def some_back(situation: Situation, relief: Relief) -> str:
    """Say how many of those who hold slots on an agent have to give them back."""
    if relief.is_named:
        ids = situation.survey.trials_of(relief.gangs)
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
    leaves_by = situation.survey.facts.leaves_by
    for relief in found:
        group_id = relief.group_id
        if not relief.is_leaving or group_id is None or group_id == situation.request.group:
            continue
        if all(leaves_by(gang.request.id) is None for gang in relief.gangs):
            continue  # it is being killed
        if situation.starts(Change(goes=(group_id,))):
            held = situation.survey.pool.held(group_id)
            is_all = held == sum(gang.request.slots for gang in relief.gangs)
            rest = "" if is_all else " with all its trials"
            yield Remedy(
                verb="kill",
                target=[group_id],
                text=f"kill experiment {group_id}{rest}: what it has not saved is lost",
            )


def _more_max_slots(situation: Situation) -> Iterator[Remedy]:
    group = situation.group
    if group.max_slots is None:
        return
    mates = (other.slots for other in situation.in_the_way if other.group == group.id)
    value = situation.survey.pool.held(group.id) + sum(mates) + situation.request.slots
    if value > group.max_slots and _starts_as(situation, replace(group, max_slots=value)):
        yield Remedy(
            verb="set",
            target=[group.id],
            values={"max_slots": value},
            text=f"raise max_slots of its experiment from {group.max_slots} to {value}",
        )


def _starts_as(situation: Situation, group: Group) -> bool:
    return situation.starts(Change(groups=(group,)))


def _moves(situation: Situation) -> Iterator[Remedy]:
    """Try to move its experiment ahead of the first that is in its way."""
    own, pool = situation.group, situation.survey.pool
    others = (other.group for other in situation.in_the_way if other.group != own.id)
    first = next(others, None)
    if pool.rules.policy is not Policy.PRIORITY or first is None:
        return
    moved = moved_beside(
        own,
        pool.groups[first],
        pool.groups.values(),
        is_ahead=True,
        newest=max(pool.groups),
    )
    if situation.starts(Change(groups=tuple(moved))):
        title = shown(situation.survey.facts.title_of(first).name)
        yield Remedy(
            verb="move",
            target=[own.id],
            values={"ahead_of": first},
            text=f"move experiment {own.id} ahead of experiment {first} “{title}”",
        )


def _priorities(situation: Situation) -> Iterator[Remedy]:
    """Find the least urgent priority that makes room by preemption."""
    pool, own = situation.survey.pool, situation.group
    if pool.rules.policy is not Policy.PRIORITY or not pool.rules.preemption:
        return
    gangs = situation.gangs_on(situation.nearest)
    levels = {pool.groups[g.request.group].priority for g in gangs if g.request.group != own.id}
    for level in sorted((p for p in levels if 1 < p <= own.priority), reverse=True)[:_LEVELS]:
        # A new priority gives up a place that the experiment was moved to.
        then = replace(own, priority=level - 1, position=float(own.id))
        outcome = situation.survey.whatif.after(Change(groups=(then,)))
        if {situation.request.id} <= outcome.started.keys() & outcome.asked.keys():
            yield Remedy(
                verb="set",
                target=[own.id],
                values={"priority": level - 1},
                text=(
                    f"make its experiment more urgent: priority {level - 1} instead of "
                    f"{own.priority}; less urgent trials are asked to save and leave"
                ),
            )
            return
