"""What would start a waiting trial, the mildest first; each of them is enough.

    wait       for a trial or an experiment to end or leave
    own        more max_slots, a place further ahead, a more urgent priority
    machine    slots enabled, devices freed, an agent reconnected, another pool
    others     other experiments paused
    less       fewer slots asked for

Each is tried (`whatif`) and is offered only if the request starts then: at once or, with
preemption, as soon as those have left that are asked to. What the pool cannot run as it is may
have to wait for its turn even then, which is said.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from det_jupyter.scheduler.board import Seats
from det_jupyter.scheduler.lane import moved_beside
from det_jupyter.scheduler.model import Policy, Running
from det_jupyter.scheduler.reasons.devices import device_remedies
from det_jupyter.scheduler.reasons.grammar import about, named, shown, titled, verb
from det_jupyter.scheduler.reasons.reliefs import Kind, Relief, by_group
from det_jupyter.scheduler.reasons.sentence import has_to_happen, latest_leaving
from det_jupyter.scheduler.reasons.sizes import nearest_values
from det_jupyter.scheduler.reasons.wait import Wait
from det_jupyter.scheduler.reasons.whatif import Change, WhatIf
from det_jupyter.wire import Remedy
from det_jupyter.words import count

_MOST = 4
_LEVELS = 4  # priorities that are tried
_POOLS = 8
_TRIES = 8  # experiments that are paused alone
_TOGETHER = 4  # experiments to pause at most
_AGENTS = 2  # on which several are looked for
_LAST = 10**9  # the number of an experiment that comes after all others
_THEN = "then it waits for its turn"


def find_remedies(wait: Wait, reliefs: Sequence[Relief]) -> list[Remedy]:
    """Return at most four remedies.

    Args:
        wait: The pool as the request meets it.
        reliefs: Which ends would start it.
    """
    found: Iterator[Remedy]
    if not wait.is_possible:
        found = _make_possible(wait)
    elif wait.is_complete:
        found = chain(
            _waits(wait, reliefs),
            _kills(wait, reliefs),
            _more_max_slots(wait),
            _moves(wait),
            _priorities(wait),
            device_remedies(wait),
            _other_pool(wait),
            _pauses(wait),
            _fewer_slots(wait),
        )
    else:
        return []  # too far behind to be looked at
    return list(islice(found, _MOST))


def _waits(wait: Wait, reliefs: Sequence[Relief]) -> Iterator[Remedy]:
    for relief in reliefs[:1]:
        yield Remedy(
            verb="wait",
            target=[] if relief.group_id is None else [relief.group_id],
            values=_values(wait, relief),
            text=f"wait until {has_to_happen(wait, relief)}{_when(wait, relief)}",
        )


def _values(wait: Wait, relief: Relief) -> dict[str, int | str | list[int]]:
    values: dict[str, int | str | list[int]] = {}
    if relief.after:
        values["left"] = wait.survey.trials_of(relief.after)
    if relief.kind is Kind.SLOTS:
        values |= {"agent": relief.agent_id, "num_slots": relief.num_slots}
    elif relief.kind is Kind.SOME:
        values |= {"agent": relief.agent_id, "num_trials": relief.num}
    elif relief.kind is not Kind.EXPERIMENT:
        values["trials"] = wait.survey.trials_of(relief.gangs)
    return values


def _when(wait: Wait, relief: Relief) -> str:
    facts = wait.facts
    if relief.kind is Kind.LEAVING:
        return latest_leaving(facts, relief.gangs)
    end = wait.survey.end_of(relief.gangs[0])
    if len(relief.gangs) > 1 or end is None or relief.after:
        return ""
    return f", {about(end, facts.now, facts.zone)}"


def _kills(wait: Wait, reliefs: Sequence[Relief]) -> Iterator[Remedy]:
    """Yield what ends one that leaves and does not get done with it."""
    for relief in reliefs:
        group_id = relief.group_id
        if relief.kind is not Kind.LEAVING or group_id in (None, wait.group.id):
            continue
        if all(wait.facts.leaves_by(gang.request.id) is None for gang in relief.gangs):
            continue  # it is being killed
        if wait.starts(Change(goes=(group_id,))):
            is_all = wait.pool.held(group_id) == sum(gang.request.slots for gang in relief.gangs)
            rest = "" if is_all else " with all its trials"
            yield Remedy(
                verb="kill",
                target=[group_id],
                text=f"kill experiment {group_id}{rest}: what it has not saved is lost",
            )


# Its own settings.


def _more_max_slots(wait: Wait) -> Iterator[Remedy]:
    group = wait.group
    if group.max_slots is None:
        return
    mates = (other.slots for other in wait.in_the_way if other.group == group.id)
    value = wait.pool.held(group.id) + sum(mates) + wait.request.slots
    if value > group.max_slots and wait.starts(Change(groups=(replace(group, max_slots=value),))):
        yield Remedy(
            verb="set",
            target=[group.id],
            values={"max_slots": value},
            text=f"raise max_slots of its experiment from {group.max_slots} to {value}",
        )


def _moves(wait: Wait) -> Iterator[Remedy]:
    """Try to move its experiment ahead of the first that is in its way."""
    own, groups = wait.group, wait.pool.groups
    first = next((other.group for other in wait.in_the_way if other.group != own.id), None)
    if wait.pool.rules.policy is not Policy.PRIORITY or first is None:
        return
    moved = moved_beside(own, groups[first], groups.values(), is_ahead=True, newest=max(groups))
    if wait.starts(Change(groups=tuple(moved))):
        other = titled(first, wait.facts.title_of(first).name)
        yield Remedy(
            verb="move",
            target=[own.id],
            values={"ahead_of": first},
            text=f"move experiment {own.id} ahead of {other}",
        )


def _priorities(wait: Wait) -> Iterator[Remedy]:
    """Find the least urgent priority that makes room by preemption."""
    own, rules = wait.group, wait.pool.rules
    if rules.policy is not Policy.PRIORITY or not rules.preemption:
        return
    gangs = [gang for gang in wait.gangs_on(wait.nearest) if gang.request.group != own.id]
    levels = {wait.survey.board.priority(gang) for gang in gangs}
    for level in sorted((p for p in levels if 1 < p <= own.priority), reverse=True)[:_LEVELS]:
        # A new priority gives up a place that the experiment was moved to.
        then = replace(own, priority=level - 1, position=float(own.id))
        outcome = wait.survey.whatif.after(Change(groups=(then,)))
        if wait.request.id in outcome.started & outcome.asked.keys():
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


# Another request: elsewhere, or of fewer slots.


def _other_pool(wait: Wait) -> Iterator[Remedy]:
    """Yield another pool where the request would start at once."""
    own = wait.group
    if wait.pool.held(own.id):
        return
    mine = (other for other in wait.survey.queue if other.group == own.id)
    comes = Change(groups=(own,), requests=tuple(replace(other, promised=()) for other in mine))
    for name, other in list(wait.facts.other_pools().items())[:_POOLS]:
        if WhatIf(other, wait.facts).steps(wait.request.id, [comes]):
            yield Remedy(
                verb="set",
                target=[own.id],
                values={"pool": name},
                text=f"move its experiment to pool {shown(name)}, where there is room",
            )
            return


def _fewer_slots(wait: Wait) -> Iterator[Remedy]:
    """Find the largest divisor that fits: a batch that n slots share, they can share too."""
    need = wait.request.slots
    for value in range(need // 2, 0, -1):
        if need % value == 0 and _starts_anew(wait, value):
            yield _ask_slots(wait, value, "which starts at once")
            return


def _starts_anew(wait: Wait, value: int) -> bool:
    """Return whether the experiment, killed and submitted with another size, starts at once.

    Only one that holds no slots is worth killing.
    """
    own = wait.group
    if wait.pool.held(own.id):
        return False
    anew = replace(own, id=_LAST, position=float(_LAST))
    smaller = replace(wait.request, group=_LAST, slots=value, blocked=frozenset(), promised=())
    killed, comes = Change(goes=(own.id,)), Change(groups=(anew,), requests=(smaller,))
    outcome = wait.survey.whatif.after(killed, comes)
    return smaller.id in outcome.started and smaller.id not in outcome.asked


def _ask_slots(wait: Wait, value: int, effect: str) -> Remedy:
    """Return the advice to submit it again with another number of slots."""
    anew = f"submit it again with resources.slots_per_trial {value}"
    return Remedy(
        verb="kill_and_submit",
        target=[wait.group.id],
        values={"slots_per_trial": value},
        text=f"instead: kill it and {anew}, {effect}",
    )


# Others paused.


def _pauses(wait: Wait) -> Iterator[Remedy]:
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
            names = titled(chosen[0], wait.facts.title_of(chosen[0]).name)
        what = _what_they_do(wait, chosen, held)
        yield Remedy(verb="pause", target=[*chosen], text=f"pause {names}, {what}")


def _start_without(wait: Wait, ids: Sequence[int]) -> bool:
    return wait.starts(*(Change(goes=(group_id,)) for group_id in ids))


def _one_to_pause(wait: Wait, held: Mapping[int, Sequence[Running]]) -> list[int]:
    """Return the least urgent experiment whose pause is enough, of these the smallest."""

    def order(group_id: int) -> tuple[int, int, int]:
        slots = sum(gang.request.slots for gang in held[group_id])
        return (-wait.pool.groups[group_id].priority, slots, -group_id)

    tries = sorted(held, key=order)[:_TRIES]
    return next(([group_id] for group_id in tries if _start_without(wait, [group_id])), [])


def _several_to_pause(wait: Wait, held: Mapping[int, Sequence[Running]]) -> list[int]:
    """Return the fewest found on one agent, or on those that a larger request takes whole."""
    places = [wait.nearest] if wait.spans else [[seats] for seats in wait.nearest[:_AGENTS]]
    ways = [_enough(wait, place, held) for place in places] if wait.request.slots else []
    return min(filter(None, ways), key=len, default=[])


def _enough(
    wait: Wait, place: Sequence[Seats], held: Mapping[int, Sequence[Running]]
) -> list[int]:
    """Pause those that help most until the request starts; leave out those that need not."""
    helps = {
        group_id: sum(seats.back(gang) for seats in place for gang in gangs)
        + sum(
            wait.claim(other, seats)
            for other in wait.in_the_way
            if other.group == group_id
            for seats in place
        )
        for group_id, gangs in held.items()
    }
    order = sorted(filter(helps.get, helps), key=lambda one: (-helps[one], -one))[:_TOGETHER]
    num = wait.steps(*(Change(goes=(group_id,)) for group_id in order))
    needed = sorted(order[: num or 0], key=lambda group_id: (not held[group_id], group_id))
    if not needed or not _start_without(wait, needed):
        return []
    for group_id in needed:
        rest = [other for other in needed if other != group_id]
        if len(rest) > 1 and _start_without(wait, rest):
            needed = rest
    return needed


def _what_they_do(wait: Wait, ids: Sequence[int], held: Mapping[int, Sequence[Running]]) -> str:
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


# What the pool cannot run as it is.


def _make_possible(wait: Wait) -> Iterator[Remedy]:
    """Yield what would start the request, or would at least let it wait for its turn."""
    cause = wait.causes[-1]
    if cause == "no_agent":
        yield Remedy(verb="add_agent", text="start an agent, or reconnect one")
    elif cause == "agent_gone":
        yield from _reconnect(wait)
    elif cause == "impossible":
        if wait.is_kept_away:
            yield Remedy(
                verb="kill_and_continue",
                target=[wait.group.id],
                text=f"kill its experiment and continue it: it may run there again; {_THEN}",
            )
    else:
        yield from _give_out(wait)
    yield from _other_pool(wait)
    if cause == "impossible":
        yield from _other_sizes(wait)


def _give_out(wait: Wait) -> Iterator[Remedy]:
    at_once = list(device_remedies(wait))
    yield from at_once
    for remedy in device_remedies(wait, wait.is_possible_with):
        if remedy.verb not in {one.verb for one in at_once}:
            yield remedy.model_copy(update={"text": f"{remedy.text}; {_THEN}"})


def _reconnect(wait: Wait) -> Iterator[Remedy]:
    gone = wait.survey.gone
    for agents in (*([agent] for agent in gone), gone):
        if wait.is_possible_with(agents):
            effect = "" if wait.starts(Change(agents=tuple(agents))) else f"; {_THEN}"
            names = [agent.id for agent in agents]
            yield Remedy(
                verb="add_agent",
                target=[*names],
                text=f"reconnect {named('agent', [shown(name) for name in names])}{effect}",
            )
            return


def _other_sizes(wait: Wait) -> Iterator[Remedy]:
    for value in nearest_values(wait.request.slots, wait.sizes):
        is_at_once = _starts_anew(wait, value)
        effect = "which starts at once" if is_at_once else f"which can run; {_THEN}"
        yield _ask_slots(wait, value, effect)
