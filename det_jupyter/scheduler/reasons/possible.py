"""What a pool can run at all: sizes of gangs that its agents could hold, were they empty.

on one agent     as many slots as that agent has
whole agents     k agents of one kind with s slots each: k·s; only for gangs that are larger
                 than every agent they may run on and that may span agents
mixed            if the rules allow it: whole agents of one kind, the largest first, until
                 nothing is left over; no other way is tried
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from det_jupyter.scheduler.deciding.order import Shape
from det_jupyter.scheduler.model import AgentSlots, PoolRules
from det_jupyter.scheduler.reasons.words import numbers
from det_jupyter.words import count

Wholes = Mapping[tuple[str, int], int]  # (kind, slots of an agent): so many agents


def fits_on_wholes(slots: int, wholes: Wholes, rules: PoolRules) -> bool:
    """Return whether a gang can have some of these agents whole."""
    if any(
        size > 0 and slots % size == 0 and slots <= size * n for (_, size), n in wholes.items()
    ):
        return True
    return rules.allow_heterogeneous_fits and any(
        _left_over(slots, wholes, kind) == 0 for kind in {kind for kind, _ in wholes}
    )


def _left_over(slots: int, wholes: Wholes, kind: str) -> int:
    sizes = sorted((size for of, size in wholes if of == kind and size > 0), reverse=True)
    for size in sizes:
        slots -= size * min(slots // size, wholes[kind, size])
    return slots


class Capacity:
    """What some agents could run if they were idle; each answer is computed once."""

    def __init__(self, agents: Iterable[AgentSlots], rules: PoolRules) -> None:
        self._agents = tuple(agents)
        self._rules = rules
        self._largest: dict[frozenset[str], int] = {}
        self._can_run: dict[Shape, bool] = {}

    def spans_agents(self, shape: Shape) -> bool:
        """Return whether a gang gets whole agents, because none is large enough for it."""
        if shape.slots <= 1 or shape.is_single_agent:
            return False
        if shape.blocked not in self._largest:
            sizes = (len(a.slots) for a in self._agents if a.id not in shape.blocked)
            self._largest[shape.blocked] = max(sizes, default=0)
        return shape.slots > self._largest[shape.blocked]

    def can_run(self, shape: Shape) -> bool:
        """Return whether a gang of this shape could run."""
        if shape not in self._can_run:
            self._can_run[shape] = self._has_room(shape)
        return self._can_run[shape]

    def _has_room(self, shape: Shape) -> bool:
        slots, rules = shape.slots, self._rules
        allowed = [agent for agent in self._agents if agent.id not in shape.blocked]
        if slots == 0:
            return rules.max_aux_per_agent > 0 and any(agent.is_open for agent in allowed)
        if any(len(agent.slots) >= slots for agent in allowed):
            return True
        may_span = slots > 1 and not shape.is_single_agent
        return may_span and fits_on_wholes(slots, wholes_of(allowed), rules)


def wholes_of(agents: Iterable[AgentSlots]) -> Wholes:
    """Return how many agents there are of each kind and size."""
    return Counter((agent.kind, len(agent.slots)) for agent in agents)


def values_that_fit(
    agents: Sequence[AgentSlots], rules: PoolRules, is_single_agent: bool = False
) -> list[int]:
    """Return every number of slots above 0 that these agents could give to one gang, ascending."""
    largest = max((len(agent.slots) for agent in agents), default=0)
    values = set(range(1, largest + 1))
    if not is_single_agent:
        wholes = wholes_of(agents)
        most = max(_total(wholes, kind) for kind, _ in wholes) if wholes else 0
        if rules.allow_heterogeneous_fits:
            larger = range(largest + 1, most + 1)
            values.update(n for n in larger if fits_on_wholes(n, wholes, rules))
        else:
            whole = (size * k for (_, size), n in wholes.items() for k in range(1, n + 1))
            values.update(n for n in whole if n > largest)
    return sorted(values)


def _total(wholes: Wholes, kind: str) -> int:
    return sum(size * n for (of, size), n in wholes.items() if of == kind)


def nearest_values(slots: int, values: Sequence[int]) -> list[int]:
    """Return the next value below `slots` and the next above it, those that there are."""
    place = bisect_left(values, slots)
    return [*values[max(0, place - 1) : place], *values[place : place + 1]]


def find_impossibility(
    slots: int,
    is_single_agent: bool,
    agents: Sequence[AgentSlots],
    rules: PoolRules,
    pool: str = "default",
) -> str | None:
    """Return why no gang of this size can ever run on these agents, or None if one can.

    Without agents that is unknown: None.
    """
    shape = Shape(slots, is_single_agent, frozenset())
    if not agents or Capacity(agents, rules).can_run(shape):
        return None
    if slots == 0:
        return (
            f"got 0, but no agent of pool {pool} takes trials "
            f"without slots; values that can run: {that_can_run(agents, rules)}"
        )
    within = " on one agent (resources.is_single_node)" if is_single_agent else ""
    return (
        f"got {slots}{within}, but pool {pool} has "
        f"{describe_agents(agents)}; values that can run{within}: "
        f"{that_can_run(agents, rules, is_single_agent)}"
    )


def that_can_run(
    agents: Sequence[AgentSlots], rules: PoolRules, is_single_agent: bool = False
) -> str:
    """Return the sizes that could run, in words."""
    return numbers(values_that_fit(agents, rules, is_single_agent)) or "none but 0"


def describe_agents(agents: Sequence[AgentSlots]) -> str:
    """Return how many agents of which size there are, the largest first.

    >>> two = [AgentSlots(id=name, slots=(0, 1)) for name in ("left", "right")]
    >>> describe_agents(two), describe_agents([*two, AgentSlots(id="big", slots=(0, 1, 2))])
    ('2 agents with 2 slots each', '1 agent with 3 slots and 2 agents with 2 slots each')
    """
    wholes = wholes_of(agents)
    names_kinds = len({kind for kind, _ in wholes}) > 1
    ordered = sorted(wholes.items(), key=lambda item: (-item[0][1], item[0][0]))
    parts = [
        f"{count(n, 'agent')} with {count(size, f'{kind} slot' if names_kinds else 'slot')}"
        f"{' each' if n > 1 else ''}"
        for (kind, size), n in ordered
    ]
    if len(parts) > 2:
        return (
            f"{count(len(agents), 'agent')} with {ordered[-1][0][1]} to {ordered[0][0][1]} slots"
        )
    return " and ".join(parts)
