"""Where a gang fits.

    1. On one agent with enough free slots: the one that has the fewest of them (best fit) or of
       whose slots the greatest share is free (worst fit), then the lowest id.
    2. A gang for which no agent is large enough takes whole idle agents of one kind and one size
       that divides what it needs; the largest such size of which there are enough.
    3. Where the pool allows it, else idle agents of one kind and several sizes, the largest first;
       it never tries again with fewer of the large ones.

Kinds are never mixed. Blocked and closed agents are no candidates. A gang without slots goes to
any open agent that has a place left for one.

Prior art: the fits of Determined AI's resource pools. Two deviations: ties go to the lowest id,
not to a hash; and a gang that an agent is large enough for waits for it instead of taking several.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from fractions import Fraction
from itertools import islice

from det_jupyter.scheduler.deciding.agents import NO_PRIORITY, Ledger
from det_jupyter.scheduler.deciding.order import Shape
from det_jupyter.scheduler.deciding.shelves import Section, Shelf
from det_jupyter.scheduler.model import Fitting, Part, PoolRules

Closed = Container[str]  # agents that are no candidates


def is_spanning(ledger: Ledger, shape: Shape) -> bool:
    """Return whether no agent is large enough, so that the gang has to take several."""
    shelf = ledger.reach_shelf(NO_PRIORITY)
    return (
        shape.slots > 1
        and not shape.is_single_agent
        and not any(
            agent_id not in shape.blocked
            for section in shelf.sections()
            if section[1] >= shape.slots
            for _, agent_id in shelf.rising(section)
        )
    )


def open_on(
    shelf: Shelf, section: Section, shape: Shape, closed: Closed, *, least: int = 0
) -> Iterator[tuple[int, str]]:
    """Yield level and agent of the candidates of a section, the highest level first."""
    for level, agent_id in shelf.falling(section, least):
        if agent_id not in closed and agent_id not in shape.blocked:
            yield level, agent_id


def best_on(
    shelf: Shelf, section: Section, shape: Shape, closed: Closed
) -> tuple[int, str] | None:
    """Return the candidate of a section with the lowest level that is enough."""
    for level, agent_id in shelf.rising(section, shape.slots):
        if agent_id not in closed and agent_id not in shape.blocked:
            return level, agent_id
    return None


def find_parts(
    ledger: Ledger, rules: PoolRules, shape: Shape, closed: Closed, *, spans: bool
) -> tuple[Part, ...] | None:
    """Return which slots a gang gets now, or None if it does not fit."""
    if shape.slots == 0:
        agent_id = _find_aux(ledger, rules, shape)
        return None if agent_id is None else (Part(agent_id, ()),)
    if not spans:
        agent_id = _find_one(ledger, rules, shape, closed)
        if agent_id is None:
            return None
        return (Part(agent_id, ledger.seats(agent_id).free[: shape.slots]),)
    wholes = find_wholes(ledger.idle_shelf, rules, shape, closed)
    if wholes is None:
        return None
    return tuple(Part(agent_id, ledger.seats(agent_id).free) for agent_id in wholes)


def _find_aux(ledger: Ledger, rules: PoolRules, shape: Shape) -> str | None:
    """Return the agent with the fewest places left (best fit) or the most, then the lowest id."""
    sign = 1 if rules.fitting is Fitting.BEST else -1
    shelf = ledger.aux_shelf
    found: list[tuple[int, str]] = []
    for section in shelf.sections():
        levels = shelf.rising(section) if sign > 0 else shelf.falling(section)
        found += islice(((sign * n, name) for n, name in levels if name not in shape.blocked), 1)
    return min(found)[1] if found else None


def _find_one(ledger: Ledger, rules: PoolRules, shape: Shape, closed: Closed) -> str | None:
    shelf = ledger.free_shelf
    found: list[tuple[Fraction | int, str]] = []
    for section in shelf.sections():
        if section[1] < shape.slots:
            break  # the largest come first
        if rules.fitting is Fitting.BEST:
            best = best_on(shelf, section, shape, closed)
            found += [best] if best else []
        else:
            some = open_on(shelf, section, shape, closed, least=shape.slots)
            found += ((Fraction(-level, section[1]), name) for level, name in islice(some, 1))
    return min(found)[1] if found else None


def find_wholes(shelf: Shelf, rules: PoolRules, shape: Shape, closed: Closed) -> list[str] | None:
    """Return agents on this shelf that together are exactly as large as a gang."""
    for found in equal_wholes(shelf, shape, closed):
        return [agent_id for _, agent_id in found]
    return _find_mixed(shelf, shape, closed) if rules.allow_heterogeneous_fits else None


def equal_wholes(shelf: Shelf, shape: Shape, closed: Closed) -> Iterator[list[tuple[int, str]]]:
    """Yield, of each section that has them, levels and agents that are as large as a gang."""
    for section in shelf.sections():
        size = section[1]
        if size and shape.slots % size == 0:
            num = shape.slots // size
            found = list(islice(open_on(shelf, section, shape, closed), num))
            if len(found) == num:
                yield found


def _find_mixed(shelf: Shelf, shape: Shape, closed: Closed) -> list[str] | None:
    for kind in sorted({kind for kind, _ in shelf.sections()}):
        rest, found = shape.slots, []
        for section in shelf.sections():
            if section[0] == kind and section[1]:
                some = islice(open_on(shelf, section, shape, closed), rest // section[1])
                taken = [agent_id for _, agent_id in some]
                found += taken
                rest -= len(taken) * section[1]
        if not rest:
            return found
    return None
