"""Sizes of gangs that idle agents can run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from det_jupyter.contract.values.text import count
from det_jupyter.errors import Problem
from det_jupyter.scheduler.board import Seats, SlotBoard, in_sections, wholes_among
from det_jupyter.scheduler.model import AgentSlots, PoolRules, Shape
from det_jupyter.scheduler.reasons.wording import numbers
from det_jupyter.scheduler.snapshot import Snapshot


def could_run(shape: Shape, agents: Iterable[AgentSlots], rules: PoolRules) -> bool:
    """Return whether these agents could run a gang if they were idle."""
    idle = Snapshot(rules=rules, agents={agent.id: agent for agent in agents})
    return SlotBoard(idle).find_parts(shape, ()) is not None


def values_that_fit(
    agents: Sequence[AgentSlots], rules: PoolRules, is_single_agent: bool = False
) -> list[int]:
    """Return every number of slots above 0 that these agents could give to one gang, ascending."""
    sections = in_sections((len(agent.slots), Seats(agent)) for agent in agents)
    largest = max((-negative_size for negative_size, _ in sections), default=0)
    totals = Counter[str]()
    for agent in agents:
        totals[agent.kind] += len(agent.slots)
    most = 0 if is_single_agent else max(totals.values(), default=0)
    wholes = (
        slots
        for slots in range(largest + 1, most + 1)
        if wholes_among(Shape(slots, False, frozenset()), sections, rules) is not None
    )
    return [*range(1, largest + 1), *wholes]


def nearest_values(slots: int, values: Sequence[int]) -> list[int]:
    """Return the nearest value below `slots` and the nearest above it, if they exist.

    Args:
        slots: A number of slots that cannot run.
        values: The numbers of slots that can run, ascending.
    """
    below = [value for value in values if value < slots]
    above = [value for value in values if value > slots]
    return below[-1:] + above[:1]


def find_impossibility(
    slots: int,
    why_single_agent: str,
    agents: Sequence[AgentSlots],
    rules: PoolRules,
    pool: str = "default",
) -> Problem | None:
    """Return why no gang of this size can ever run on these agents; None if it can.

    Without agents the answer is not known, and None.

    Args:
        slots: The gang's number of slots.
        why_single_agent: Why all slots must be on one agent; "" if they need not.
        agents: The pool's agents.
        rules: The pool's rules.
        pool: The pool's name.
    """
    is_single_agent = bool(why_single_agent)
    if not agents or could_run(Shape(slots, is_single_agent, frozenset()), agents, rules):
        return None
    within = " on one agent" if is_single_agent and slots else ""
    why = f" ({why_single_agent})" if within else ""
    what = f"pool {pool} has {describe_agents(agents)}"
    if slots == 0:
        what = f"no agent of pool {pool} takes trials without slots"
    return Problem(
        "resources.slots_per_trial",
        f"got {slots}{within}{why}, but {what}; values that can run"
        f"{within}: {numbers(values_that_fit(agents, rules, is_single_agent)) or 'none but 0'}",
    )


def describe_agents(agents: Sequence[AgentSlots]) -> str:
    """Return the number of agents of each size in words, the largest size first.

    >>> two = [AgentSlots(id=name, slots=(0, 1)) for name in ("left", "right")]
    >>> describe_agents(two), describe_agents([*two, AgentSlots(id="big", slots=(0, 1, 2))])
    ('2 agents with 2 slots each', '1 agent with 3 slots and 2 agents with 2 slots each')
    """
    sizes = sorted(Counter((-len(agent.slots), agent.kind) for agent in agents).items())
    if len(sizes) > 2:
        return f"{count(len(agents), 'agent')} with {-sizes[-1][0][0]} to {-sizes[0][0][0]} slots"
    names_kinds = len({kind for (_, kind), _ in sizes}) > 1
    return " and ".join(
        f"{count(num, 'agent')} with {count(-size, f'{kind} slot' if names_kinds else 'slot')}"
        f"{' each' if num > 1 else ''}"
        for (size, kind), num in sizes
    )
