"""The cost of scheduling in the whole machine: submissions, checkpoints and ends of trials.

Each agent has 8 slots; trials of 1 to 16 slots are submitted until the given number waits, then
running ones save three checkpoints and end, one after the other. A time is the processor time of
one event with its consequences: the search, retention, the scheduler's pass and the commands.
"""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Iterable
from statistics import median
from typing import Any

from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import Event
from tests.unit.master.machine_world import completed, exited, registered, saved, submitted

SIZES = {1: 8, 2: 3, 4: 2, 8: 1, 16: 0.3}
NUM_EXITS = 2000


class TimedMachine:
    """A machine that gets events a second apart, and the time that each took."""

    def __init__(self) -> None:
        self.machine = Machine()
        self._now = 0.0

    def tell(self, events: Iterable[Event]) -> float:
        """Pass events to the machine; return the seconds that the last one took."""
        took = 0.0
        for event in events:
            self._now += 1.0
            began = time.thread_time()
            self.machine.handle(event, self._now)
            took = time.thread_time() - began
        return took


def run_machine(num_agents: int, num_waiting: int) -> dict[str, Any]:
    """Return the costs of a submission and of the end of a run."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed, rng = TimedMachine(), random.Random(1)
    for number in range(num_agents):
        timed.tell([registered(8, agent_id=f"a{number:04}", session=f"s{number}")])
    asked = {
        size: submitted(slots=size, hyperparameters={"global_batch_size": 64}) for size in SIZES
    }
    submits_s: list[float] = []
    while timed.machine.queue.num_waiting < num_waiting:
        size = rng.choices([*SIZES], [*SIZES.values()])[0]
        submits_s.append(timed.tell([asked[size]]))
    exits_s = end_some(timed, rng)
    return {
        "policy": "priority",
        "agents": num_agents,
        "waiting": num_waiting,
        "submit_us": median(submits_s) * 1e6,
        "submit_p99_us": sorted(submits_s)[int(len(submits_s) * 0.99)] * 1e6,
        "exit_us": median(exits_s) * 1e6,
        "exit_p99_us": sorted(exits_s)[int(len(exits_s) * 0.99)] * 1e6,
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def end_some(timed: TimedMachine, rng: random.Random) -> list[float]:
    """End running trials; return the seconds of each end, with the starts that follow."""
    exits_s: list[float] = []
    while trials := [t for t in timed.machine.state.trials.values() if t.holds_slots]:
        rng.shuffle(trials)
        for trial in trials[: NUM_EXITS - len(exits_s)]:
            allocation = trial.allocation
            assert allocation is not None
            timed.tell(saved(step, f"{allocation.id}-{step}", allocation.id) for step in (1, 2, 3))
            timed.tell(completed(100, allocation.id))
            codes: dict[int, int | None] = dict.fromkeys(range(len(allocation.slots)), 0)
            exits_s.append(timed.tell([exited(allocation.id, codes)]))
        if len(exits_s) == NUM_EXITS:
            break
    return exits_s
