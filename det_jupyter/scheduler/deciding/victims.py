"""Preemption by priority: the gangs leave that cost least.

    cost of a gang  = its slots · the seconds since it got them: the work that could be lost
    cost of a way   = the sum over its gangs; a way has no gang that is not needed

For a request that fits on one agent, each agent where less urgent gangs hold enough slots has a
cheapest set of gangs (a knapsack: small, because an agent has few slots); the cheapest of these
sets leaves. Agents are looked at in the order of their newest gang: when one slot of the
next agent's newest gang alone costs more per missing slot than the best way found, no later agent
can be better. At most `LOOKED_AT` agents are looked at, those with the newest gangs.

For a request that takes whole agents, the agents with the cheapest sets of gangs are cleared.
Agents that one gang spans are cleared together. Agents of several sizes are never cleared for one
request.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from det_jupyter.scheduler.deciding.agents import ANY_PRIORITY, NO_PRIORITY, Ledger
from det_jupyter.scheduler.deciding.fitting import open_on
from det_jupyter.scheduler.deciding.keeping import Kept
from det_jupyter.scheduler.deciding.order import Shape
from det_jupyter.scheduler.deciding.shelves import Section
from det_jupyter.scheduler.model import Running

LOOKED_AT = 256

Cost = tuple[float, int, tuple[str, ...]]  # work, number of gangs, their ids


@dataclass(frozen=True, slots=True)
class Way:
    """Once these gangs have left, there is room on these agents."""

    victims: tuple[str, ...]
    agents: tuple[str, ...]


def cost_of(running: Running, now: float) -> float:
    """Return the slot-seconds that are lost at most when a gang leaves."""
    return running.request.slots * max(0.0, now - running.since)


def find_way(
    ledger: Ledger, kept: Kept, shape: Shape, priority: int, now: float, *, spans: bool
) -> Way | None:
    """Return the cheapest way to make room for a request of this priority, or None."""
    if spans:
        return _clear_wholes(ledger, kept, shape, priority, now)
    return _clear_one(ledger, kept, shape, priority, now)


def _clear_one(ledger: Ledger, kept: Kept, shape: Shape, priority: int, now: float) -> Way | None:
    least_missing = _least_missing(ledger, kept, shape, priority)
    if least_missing is None:
        return None
    best: tuple[Cost, str] | None = None
    seen: set[str] = set()
    num = 0
    for running in _newest_above(ledger, priority):
        age = max(0.0, now - running.since)
        if num == LOOKED_AT or (best is not None and age * least_missing >= best[0][0]):
            break
        for part in running.parts:
            if part.agent_id not in seen:
                seen.add(part.agent_id)
                cost = _cheapest_here(ledger, kept, shape, priority, now, part.agent_id)
                if cost is not None:
                    num += 1
                    best = min(best, (cost, part.agent_id)) if best else (cost, part.agent_id)
    return Way(best[0][2], (best[1],)) if best else None


def _least_missing(ledger: Ledger, kept: Kept, shape: Shape, priority: int) -> int | None:
    """Return the fewest slots that have to be cleared on any agent; None: nowhere is enough."""
    shelf = ledger.reach_shelf(priority)
    is_possible = any(
        kept.coming(agent_id) + _above(ledger, agent_id, priority) >= shape.slots
        for agent_id in kept.spare
        if agent_id not in shape.blocked
    ) or any(
        next(open_on(shelf, section, shape, kept.agents, least=shape.slots), None)
        for section in shelf.sections()
    )
    if not is_possible:
        return None
    coming = ledger.reach_shelf(NO_PRIORITY)
    most = max((coming.top(section) for section in coming.sections()), default=0)
    return max(1, shape.slots - most)


def _above(ledger: Ledger, agent_id: str, priority: int) -> int:
    seats = ledger.seats(agent_id)
    return seats.reach(priority) - seats.reach(NO_PRIORITY)


def _newest_above(ledger: Ledger, priority: int) -> Iterator[Running]:
    """Yield gangs that stay and have a greater priority number, the newest first."""
    classes = sorted(number for number in cast(Iterable[int], ledger.newest) if number > priority)
    for _, request_id in heapq.merge(*(ledger.newest[number] for number in classes)):
        yield ledger.running[request_id]


def _cheapest_here(
    ledger: Ledger, kept: Kept, shape: Shape, priority: int, now: float, agent_id: str
) -> Cost | None:
    """Return the cheapest set of gangs that makes room on this agent."""
    if agent_id in shape.blocked or kept.is_barred(agent_id) or agent_id not in ledger.agents:
        return None
    missing = shape.slots - kept.coming(agent_id)
    if missing > _above(ledger, agent_id, priority):
        return None
    usable = set(ledger.agents[agent_id].slots)
    # cheapest[n]: the best way to get n slots or more
    cheapest: list[Cost | None] = [(0.0, 0, ()), *[None] * missing]
    for running, slots in ledger.stayers(agent_id, priority):
        gain = len(usable.intersection(slots))
        cost = cost_of(running, now)
        for got in range(missing, -1, -1):
            base = cheapest[got]
            if base is not None and gain:
                new = (base[0] + cost, base[1] + 1, (*base[2], running.request.id))
                place = min(missing, got + gain)
                old = cheapest[place]
                cheapest[place] = new if old is None else min(old, new)
    return cheapest[missing]


def _clear_wholes(
    ledger: Ledger, kept: Kept, shape: Shape, priority: int, now: float
) -> Way | None:
    found: list[tuple[Cost, Way]] = []
    shelf = ledger.clear_shelf(priority)
    for section in shelf.sections():
        if shape.slots % section[1] == 0:
            some = [agent_id for _, agent_id in open_on(shelf, section, shape, kept.agents)]
            if len(some) >= shape.slots // section[1]:
                found.append(_cheapest_wholes(ledger, some, shape, section, now))
    return min(found, key=lambda pair: pair[0])[1] if found else None


def _cheapest_wholes(
    ledger: Ledger, agents: list[str], shape: Shape, section: Section, now: float
) -> tuple[Cost, Way]:
    """Return the cheapest way to clear enough of these agents; there are enough."""
    num = shape.slots // section[1]
    together: dict[tuple[str, ...], list[str]] = {}
    for agent_id in sorted(agents):
        stayers = ledger.stayers(agent_id, ANY_PRIORITY)
        ids = tuple(sorted(running.request.id for running, _ in stayers))
        together.setdefault(ids, []).append(agent_id)
    # cheapest[n]: the best way to n agents or more
    cheapest: list[tuple[Cost, tuple[str, ...]] | None] = [((0.0, 0, ()), ()), *[None] * num]
    for ids, names in _worth_a_look(ledger, together, num, now):
        cost = sum(cost_of(ledger.running[request_id], now) for request_id in ids)
        for got in range(num, -1, -1):
            base = cheapest[got]
            if base is None or got == num:
                continue
            (work, count, victims), chosen = base
            new = (
                (work + cost, count + len(ids), tuple(sorted({*victims, *ids}))),
                (*chosen, *names),
            )
            place = min(num, got + len(names))
            old = cheapest[place]
            cheapest[place] = new if old is None else min(old, new)
    best = cheapest[num]
    assert best is not None
    return best[0], Way(best[0][2], tuple(sorted(best[1][:num])))


def _worth_a_look(
    ledger: Ledger, together: dict[tuple[str, ...], list[str]], num: int, now: float
) -> list[tuple[tuple[str, ...], list[str]]]:
    """Return, of sets that clear equally many agents, the cheapest that could be needed."""
    by_size: dict[int, list[tuple[float, tuple[str, ...]]]] = {}
    chosen: list[tuple[tuple[str, ...], list[str]]] = []
    for ids, names in together.items():
        if not ids:
            chosen.append((ids, names))
            continue
        cost = sum(cost_of(ledger.running[request_id], now) for request_id in ids)
        by_size.setdefault(len(names), []).append((cost, ids))
    for size, sets in sorted(by_size.items()):
        chosen += ((ids, together[ids]) for _, ids in heapq.nsmallest(-(-num // size), sets))
    return chosen
