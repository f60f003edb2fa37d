"""A scenario: a fault while a trial trains, and the expected result.

Every scenario must end with the losses and weights of an undisturbed run, bit for bit, and with no
process left; at no time may two gangs of the trial be alive. `gangs` is the number of gangs that
the trial needs: 1 if it continues undisturbed.
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
        fault: Causes the fault during the slow batches, and repairs it.
        gangs: The number of gangs that the trial needs.
        slots: The trial's number of slots; an agent has 2.
        agents: The number of agents.
        leaves: Whether the second gang must not be on all machines of the first.
        ends_s: Least and most seconds from the fault to the end of the first gang.
        overlap_s: Seconds for which two gangs may be alive.
        before: Called before agents are started.
        after: Checks the result when the trial is over.
        world: The kind of world, which starts the agents.
        with_shared_storage: Whether checkpoints are in a folder that all machines have.
        forgets: Ranks whose lines and timings may be incomplete: they continue to train for a
            while, and their later reports are skipped, while the chief saves their training.
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
        """Return whether a problem of the trial is a consequence of the fault."""
        found = _OF_RANK.search(problem)
        return found is not None and int(found[1]) in self.forgets


_OF_RANK = re.compile(r"\b(?:lines|timings) of rank (\d+)")
