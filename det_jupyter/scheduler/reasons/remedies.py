"""Remedies: changes that would start a waiting trial, the mildest first; each is enough.

    wait       for a trial or an experiment to end or leave
    own        more max_slots, a place further ahead, a more urgent priority
    machine    slots enabled, devices freed, another pool
    others     other experiments paused
    less       fewer slots asked for

Each is tried (`whatif`), and is offered only if the request then starts: at once or, with
preemption, as soon as the gangs that are asked to leave have left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from det_jupyter.contract.messages import Remedy
from det_jupyter.contract.values.text import count, experiment_title, shortened
from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.reliefs import Relief, ReliefKind, by_group
from det_jupyter.scheduler.reasons.sentence import has_to_happen, latest_leaving
from det_jupyter.scheduler.reasons.wait import WaitingRequest
from det_jupyter.scheduler.reasons.whatif import PoolChange, WhatIf
from det_jupyter.scheduler.reasons.wording import about, named, verb
from det_jupyter.scheduler.snapshot import moved_beside

MOST = 4
_LEVELS = 4  # most priorities that are tried
_POOLS = 8
_TRIES = 8  # most experiments whose pause is tried, each alone
_TOGETHER = 4  # most experiments to pause together
_AGENTS = 2  # most agents on which experiments to pause together are searched for
_LAST = 10**9  # an experiment's number that is greater than all others


def find_remedies(wait: WaitingRequest, reliefs: Sequence[Relief]) -> list[Remedy]:
    """Return at most four remedies for a request that the pool could run.

    Args:
        wait: The request and its pool.
        reliefs: Gangs whose end would start it.
    """
    if not wait.is_complete:  # too far back in the queue to be examined
        return []
    found = chain(
        *(_ends(wait, relief) for relief in reliefs[:1]),
        _more_max_slots(wait),
        _moves(wait),
        _priorities(wait),
        device_remedies(wait),
        other_pool(wait),
        _pauses(wait),
        _fewer_slots(wait),
    )
    return list(islice(found, MOST))


def _ends(wait: WaitingRequest, relief: Relief) -> Iterator[Remedy]:
    """Yield the remedy to wait for ends, and to kill an experiment that takes long to leave."""
    facts, kind, gangs, group_id = wait.facts, relief.kind, relief.gangs, relief.group_id
    values: dict[str, int | str | list[int]] = {}
    if relief.after:
        values["left"] = wait.survey.trials_of(relief.after)
    if kind in (ReliefKind.SLOTS, ReliefKind.SOME):
        amount = (
            {"num_slots": relief.num_slots}
            if kind is ReliefKind.SLOTS
            else {"num_trials": relief.num}
        )
        values |= {"agent": relief.agent_id, **amount}
    elif kind is not ReliefKind.EXPERIMENT:
        values["trials"] = wait.survey.trials_of(gangs)
    when, end = "", wait.survey.end_of(gangs[0])
    if kind is ReliefKind.LEAVING:
        when = latest_leaving(facts, gangs)
    elif len(gangs) == 1 and end is not None and not relief.after:
        when = f", {about(end, facts.now, facts.zone)}"
    text = f"wait until {has_to_happen(wait, relief)}{when}"
    target: list[int | str] = [] if group_id is None else [group_id]
    yield Remedy(verb="wait", target=target, values=values, text=text)
    if kind is not ReliefKind.LEAVING or group_id in (None, wait.group.id):
        return
    is_killed = all(facts.leaves_by(gang.request.id) is None for gang in gangs)
    if not is_killed and wait.starts(PoolChange(goes=(group_id,))):
        is_all = wait.pool.held(group_id) == sum(gang.request.slots for gang in gangs)
        rest = "" if is_all else " with all its trials"
        text = f"kill experiment {group_id}{rest}: what it has not saved is lost"
        yield Remedy(verb="kill", target=target, text=text)


def _more_max_slots(wait: WaitingRequest) -> Iterator[Remedy]:
    group = wait.group
    if group.max_slots is None:
        return
    mates = (other.slots for other in wait.in_the_way if other.group == group.id)
    value = wait.pool.held(group.id) + sum(mates) + wait.request.slots
    if value > group.max_slots and wait.starts(
        PoolChange(groups=(replace(group, max_slots=value),))
    ):
        text = f"raise max_slots of its experiment from {group.max_slots} to {value}"
        yield Remedy(verb="set", target=[group.id], values={"max_slots": value}, text=text)


def _moves(wait: WaitingRequest) -> Iterator[Remedy]:
    """Yield the remedy to move the experiment ahead of the first one in its way, if it helps."""
    own, groups = wait.group, wait.pool.groups
    first = next((other.group for other in wait.in_the_way if other.group != own.id), None)
    if wait.pool.rules.policy is not Policy.PRIORITY or first is None:
        return
    moved = moved_beside(own, groups[first], groups.values(), is_ahead=True, newest=max(groups))
    if wait.starts(PoolChange(groups=tuple(moved))):
        ahead_of = experiment_title(first, wait.facts.title_of(first).name)
        text = f"move experiment {own.id} ahead of {ahead_of}"
        yield Remedy(verb="move", target=[own.id], values={"ahead_of": first}, text=text)


def _priorities(wait: WaitingRequest) -> Iterator[Remedy]:
    """Yield the remedy to set the least urgent priority that makes room by preemption."""
    own, rules = wait.group, wait.pool.rules
    if rules.policy is not Policy.PRIORITY or not rules.preemption:
        return
    gangs = [gang for gang in wait.gangs_on(wait.nearest) if gang.request.group != own.id]
    levels = {wait.survey.board.priority(gang) for gang in gangs}
    for level in sorted((p for p in levels if 1 < p <= own.priority), reverse=True)[:_LEVELS]:
        # A new priority gives up a place that the experiment was moved to.
        then = replace(own, priority=level - 1, position=float(own.id))
        outcome = wait.survey.whatif.after(PoolChange(groups=(then,)))
        if wait.request.id in outcome.started & outcome.asked.keys():
            text = (
                f"make its experiment more urgent: priority {level - 1} instead of "
                f"{own.priority}; less urgent trials are asked to save and leave"
            )
            yield Remedy(verb="set", target=[own.id], values={"priority": level - 1}, text=text)
            return


def other_pool(wait: WaitingRequest) -> Iterator[Remedy]:
    """Yield another pool where the request would start at once."""
    own = wait.group
    if wait.pool.held(own.id):
        return
    mine = (other for other in wait.survey.queue if other.group == own.id)
    comes = PoolChange(
        groups=(own,), requests=tuple(replace(other, promised=()) for other in mine)
    )
    for name, other in list(wait.facts.other_pools().items())[:_POOLS]:
        if WhatIf(other, wait.facts).steps(wait.request.id, [comes]):
            text = f"move its experiment to pool {shortened(name)}, where there is room"
            yield Remedy(verb="set", target=[own.id], values={"pool": name}, text=text)
            return


def _fewer_slots(wait: WaitingRequest) -> Iterator[Remedy]:
    """Yield the remedy to submit the experiment with the largest number of slots that fits.

    Only divisors of its slots are tried: the batch size stays divisible.
    """
    need = wait.request.slots
    for value in range(need // 2, 0, -1):
        if need % value == 0 and starts_anew(wait, value):
            yield ask_slots(wait, value, "which starts at once")
            return


def starts_anew(wait: WaitingRequest, value: int) -> bool:
    """Return whether the experiment, if killed and resubmitted with `value` slots, starts at once.

    False if it holds slots: its running trials must not be killed for this one.
    """
    own = wait.group
    if wait.pool.held(own.id):
        return False
    anew = replace(own, id=_LAST, position=float(_LAST))
    smaller = replace(wait.request, group=_LAST, slots=value, blocked=frozenset(), promised=())
    killed, comes = PoolChange(goes=(own.id,)), PoolChange(groups=(anew,), requests=(smaller,))
    outcome = wait.survey.whatif.after(killed, comes)
    return smaller.id in outcome.started and smaller.id not in outcome.asked


def ask_slots(wait: WaitingRequest, value: int, effect: str) -> Remedy:
    """Return the remedy to kill the experiment and submit it again with `value` slots."""
    return Remedy(
        verb="kill_and_submit",
        target=[wait.group.id],
        values={"slots_per_trial": value},
        text=(
            "instead: kill it and submit it again with "
            f"resources.slots_per_trial {value}, {effect}"
        ),
    )


def _pauses(wait: WaitingRequest) -> Iterator[Remedy]:
    """Yield one experiment whose pause is enough, or the fewest that are enough together."""
    gangs = wait.gangs_on(wait.nearest)
    held = by_group(g for g in gangs if not g.is_leaving and not wait.is_less_urgent(g))
    for other in wait.in_the_way[:_TRIES]:
        held.setdefault(other.group, [])
    held.pop(wait.group.id, None)
    chosen = _one_to_pause(wait, held) or _several_to_pause(wait, held)
    if chosen:
        names = named("experiment", chosen, most=_TOGETHER)
        if len(chosen) == 1:
            names = experiment_title(chosen[0], wait.facts.title_of(chosen[0]).name)
        what = _what_they_do(wait, chosen, held)
        yield Remedy(verb="pause", target=[*chosen], text=f"pause {names}, {what}")


def _start_without(wait: WaitingRequest, ids: Sequence[int]) -> bool:
    return wait.starts(*(PoolChange(goes=(group_id,)) for group_id in ids))


def _one_to_pause(wait: WaitingRequest, held: Mapping[int, Sequence[Running]]) -> list[int]:
    """Return the least urgent experiment whose pause is enough, of these the smallest."""

    def order(group_id: int) -> tuple[int, int, int]:
        slots = sum(gang.request.slots for gang in held[group_id])
        return (-wait.pool.groups[group_id].priority, slots, -group_id)

    tries = sorted(held, key=order)[:_TRIES]
    return next(([group_id] for group_id in tries if _start_without(wait, [group_id])), [])


def _several_to_pause(wait: WaitingRequest, held: Mapping[int, Sequence[Running]]) -> list[int]:
    """Return the fewest experiments whose pauses are enough together; [] if none are found.

    They hold slots on one agent, or on the agents that a larger request takes whole.
    """
    places = [wait.nearest] if wait.spans else [[seats] for seats in wait.nearest[:_AGENTS]]
    ways = [_fewest_to_pause(wait, place, held) for place in places] if wait.request.slots else []
    return min(filter(None, ways), key=len, default=[])


def _fewest_to_pause(
    wait: WaitingRequest, place: Sequence[Seats], held: Mapping[int, Sequence[Running]]
) -> list[int]:
    """Return the experiments to pause so that the request starts on these agents; [] if none.

    Experiments that free the most slots are tried first; those that are not needed are left out.
    """
    helps = {
        group_id: sum(seats.freed_by(gang) for seats in place for gang in gangs)
        + sum(
            wait.claim(other, seats)
            for other in wait.in_the_way
            if other.group == group_id
            for seats in place
        )
        for group_id, gangs in held.items()
    }
    order = sorted(filter(helps.get, helps), key=lambda one: (-helps[one], -one))[:_TOGETHER]
    num = wait.steps(*(PoolChange(goes=(group_id,)) for group_id in order))
    needed = sorted(order[: num or 0], key=lambda group_id: (not held[group_id], group_id))
    if not needed or not _start_without(wait, needed):
        return []
    for group_id in needed:
        rest = [other for other in needed if other != group_id]
        if len(rest) > 1 and _start_without(wait, rest):
            needed = rest
    return needed


def _what_they_do(
    wait: WaitingRequest, ids: Sequence[int], held: Mapping[int, Sequence[Running]]
) -> str:
    holders = [group_id for group_id in ids if held[group_id]]
    ahead = [group_id for group_id in ids if not held[group_id]]
    are_ahead = f"{verb(len(ahead), 'is')} ahead of it"
    if not holders:
        return f"which {are_ahead}"
    slots = count(sum(wait.pool.held(group_id) for group_id in holders), "slot")
    what = slots if wait.request.slots else "such a place"
    hold = f"{verb(len(holders), 'holds')} {what}"
    if not ahead:
        return f"which {hold}"
    others = named("experiment", ahead)
    return f"of which {named('experiment', holders)} {hold} and {others} {are_ahead}"
