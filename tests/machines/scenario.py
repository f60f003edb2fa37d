"""A scenario: what happens while a trial trains, and what must come of it.

Every scenario must end with the losses and weights of an undisturbed run, bit for bit, with no
process left, and at no time with two gangs of the trial alive. `gangs` is the number of gangs that
it takes: 1 if the trial runs on as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tests.machines.world import World

Fault: TypeAlias = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario.

    Args:
        name: For tables and the command line.
        fault: What happens, from the slow batches on until all is in order again.
        gangs: How many gangs it takes.
        slots: The trial's; an agent has 2.
        agents: How many agents there are.
        leaves: Whether the second gang must not be on all machines of the first.
        ends_s: Limits, in seconds after the fault, between which the first gang ends.
        overlap_s: For how long two gangs may be alive.
        before: What is done before agents are started.
        after: What must come of it when the trial is over.
        world: What starts the agents.
        with_shared_storage: Whether checkpoints are in a folder that all machines have.
        forgets: Ranks whose lines and timings may be incomplete: they train on for a while, and
            what they report later is skipped, while the chief saves what they have trained.
    """

    name: str
    fault: Fault
    gangs: int
    slots: int = 2
    agents: int = 2
    leaves: bool = False
    ends_s: tuple[float, float] | None = None
    overlap_s: float = 0.0
    before: Fault | None = None
    after: Fault | None = None
    world: type[World] = World
    with_shared_storage: bool = False
    forgets: tuple[int, ...] = ()

    def excuses(self, problem: str) -> bool:
        """Return whether a problem of the trial follows from the fault, and is no violation."""
        found = _OF_RANK.search(problem)
        return found is not None and int(found[1]) in self.forgets


_OF_RANK = re.compile(r"\b(?:lines|timings) of rank (\d+)")
