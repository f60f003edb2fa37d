"""What a search's decisions cost, and whether that grows with its trials.

    python -m tests.benchmarks.search_simulation [--trials 1000000] [--machine-trials 100000]

Trials take no time here: 64 at a time report a metric that gets better with their training, and
the search is told. A decision is one event that a search is told, a result or an exit, with all
the actions that follow from it. Windows of decisions are timed when the search has 1,000, 10,000
and so on trials: the figures have to stay what they are. The longest decision is that which closes
all trials that still rest when no more come, or one in which Python collected its garbage. Each
search runs in a process of its own, so that its memory can be told.

The second table is the same search through the master's machine, which also queues, places and
ends every run: an event is one word of an agent. Prints last one JSON line.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from det_jupyter.config import parse_config
from det_jupyter.master.commands import ToAgent
from det_jupyter.master.events import Event
from det_jupyter.master.machine import Machine
from det_jupyter.searcher import Action, Close, Create, ExitReason, Search, TrainTo
from det_jupyter.wire import ExtendGang, GangPlan, SignalGang, StartGang, State
from tests.unit.machine_world import (
    ended,
    exited,
    reached,
    registered,
    running,
    saved,
    submitted,
    validated,
)

CONCURRENT = 64
LENGTH = 4096
WINDOW = 2_000  # trials
SPACE = {
    "global_batch_size": 64,
    "lr": {"type": "log", "base": 10, "minval": -5, "maxval": -1},
    "depth": {"type": "int", "minval": 1, "maxval": 16},
    "dropout": {"type": "double", "minval": 0, "maxval": 0.5},
    "act": {"type": "categorical", "vals": ["relu", "gelu", "silu"]},
}
SEARCHERS: dict[str, dict[str, Any]] = {
    "random": {"name": "random"},
    "asha, promotion": {"name": "async_halving", "num_rungs": 5},
    "asha, stop once": {"name": "async_halving", "num_rungs": 5, "stop_once": True},
    "adaptive asha": {"name": "adaptive_asha"},
}


def make_section(name: str, trials: int) -> dict[str, Any]:
    """Return the searcher of so many trials."""
    return {
        "metric": "error",
        "max_length": {"batches": LENGTH},
        "max_trials": trials,
        "max_concurrent_trials": CONCURRENT,
        **SEARCHERS[name],
    }


def make_search(name: str, trials: int) -> Search:
    """Return a search with so many trials."""
    searcher = make_section(name, trials)
    document = {"entrypoint": "SomeTrial", "hyperparameters": SPACE, "searcher": searcher}
    return Search(parse_config(document, default_seed=1))


def metric_of(quality: float, trained: int) -> float:
    """Return the metric of a trial that has trained so many batches."""
    return quality + 1 / trained


class Simulation:
    """Trains the trials of a search in no time, and takes the time of its decisions."""

    def __init__(self, search: Search) -> None:
        self.search = search
        self.waiting: deque[TrainTo] = deque()
        self.closed: deque[int] = deque()
        self.quality: list[float] = []
        self.num_decisions = 0
        self.seconds = 0.0
        self.longest_s = 0.0
        self.take(search.start())

    def take(self, actions: list[Action]) -> None:
        """Note what the search wants."""
        for action in actions:
            match action:
                case Create(_, hparams):
                    self.quality.append(hparams["dropout"])
                case TrainTo():
                    self.waiting.append(action)
                case Close(index):
                    self.closed.append(index)

    def step(self) -> bool:
        """Let one trial reach its target, or exit; return False if there is none."""
        if self.closed:
            index = self.closed.popleft()
            began = time.perf_counter()
            actions = self.search.on_exited(index, ExitReason.COMPLETED)
        elif self.waiting:
            target = self.waiting.popleft()
            metric = metric_of(self.quality[target.index], target.length.amount)
            began = time.perf_counter()
            actions = self.search.on_target_reached(target.index, metric)
        else:
            return False
        taken = time.perf_counter() - began
        self.num_decisions += 1
        self.seconds += taken
        self.longest_s = max(self.longest_s, taken)
        self.take(actions)
        return True


def window_us(simulation: Simulation) -> float:
    """Return the microseconds of a decision, as the search is now."""
    decisions, seconds, trials = (
        simulation.num_decisions, simulation.seconds, len(simulation.quality) + WINDOW,
    )  # fmt: skip
    while len(simulation.quality) < trials and simulation.step():
        pass
    taken = simulation.seconds - seconds
    return taken / (simulation.num_decisions - decisions) * 1e6


def view_us(search: Search) -> float:
    """Return the microseconds of a look at the search as it is shown, after each decision."""
    began = time.perf_counter()
    for _ in range(100):
        search.view()
    return (time.perf_counter() - began) / 100 * 1e6


def run_pure(name: str, trials: int) -> dict[str, Any]:
    """Return what one search costs."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    simulation = Simulation(make_search(name, trials))
    windows: dict[int, float] = {}
    for size in (10**power for power in range(3, 9) if 10**power < trials):
        while len(simulation.quality) < size - WINDOW and simulation.step():
            pass
        windows[size] = window_us(simulation)
    while len(simulation.quality) < trials - WINDOW and simulation.step():
        pass
    windows[trials] = window_us(simulation)
    shown_us = view_us(simulation.search)
    snapshot_began = time.perf_counter()
    snapshot_bytes = len(json.dumps(simulation.search.snapshot()))
    snapshot_s = time.perf_counter() - snapshot_began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    while simulation.step():
        pass
    assert simulation.search.progress == 1
    return {
        "search": name,
        "trials": trials,
        "decisions": simulation.num_decisions,
        "trials_per_s": trials / (time.perf_counter() - began),
        "us_per_decision": simulation.seconds / simulation.num_decisions * 1e6,
        "us_per_decision_at": windows,
        "view_us": shown_us,
        "longest_s": simulation.longest_s,
        "snapshot_s": snapshot_s,
        "snapshot_mib": snapshot_bytes / 2**20,
        "memory_mib": (peak - before) / 1024,
    }


class FakeAgent:
    """Does at once what the machine says, and answers as an agent with ranks would."""

    def __init__(self, name: str, trials: int) -> None:
        self.machine = Machine()
        self.num_events = 0
        self.seconds = 0.0
        self.longest_s = 0.0
        self.runs: dict[str, GangPlan] = {}
        self.moves: deque[tuple[str, dict[str, int] | None]] = deque()  # None: leave
        self.tell([registered(slots=CONCURRENT)])
        search = submitted("search", 1, searcher=make_section(name, trials), hyperparameters=SPACE)
        self.tell([search])

    def tell(self, events: list[Event]) -> None:
        """Tell the machine, and note what it wants."""
        for event in events:
            self.num_events += 1
            began = time.perf_counter()
            commands = self.machine.handle(event, float(self.num_events))
            taken = time.perf_counter() - began
            self.seconds += taken
            self.longest_s = max(self.longest_s, taken)
            for command in commands:
                if isinstance(command, ToAgent):
                    self.note(command)

    def note(self, order: ToAgent) -> None:
        """Note an order: it is carried out in its turn."""
        match order.command:
            case StartGang(plan=plan):
                self.runs[plan.allocation_id] = plan
                self.moves.append((plan.allocation_id, plan.target))
            case ExtendGang(allocation_id=id, target=target):
                self.moves.append((id, target))
            case SignalGang(allocation_id=id):
                self.moves.append((id, None))

    def step(self) -> bool:
        """Carry out an order; return False if there is none."""
        if not self.moves:
            return False
        id, target = self.moves.popleft()
        plan = self.runs.get(id)
        if plan is None:
            return True  # orders may be repeated
        if target is None:
            del self.runs[id]
            self.tell([ended("preempted", 0, allocation_id=id), exited(id, codes={0: 0})])
            return True
        if target == plan.target:
            self.tell(running(id, ranks=1))
        steps = target["batches"]
        metric = metric_of(plan.hparams["dropout"], steps)
        self.tell([validated(steps, metric, id), saved(steps, f"{id}-{steps}", id)])
        self.tell([reached(steps, id, target)])
        if plan.target_is_last or steps == LENGTH:
            del self.runs[id]
            self.tell([ended("completed", steps, allocation_id=id), exited(id, codes={0: 0})])
        return True

    @property
    def num_trials(self) -> int:
        """How many trials there are."""
        return self.machine.state.last_trial_id


def run_machine(name: str, trials: int) -> dict[str, Any]:
    """Return what one search costs in the machine."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    agent = FakeAgent(name, trials)
    windows: dict[int, float] = {}
    for size in [*(10**power for power in range(3, 9) if 10**power < trials), trials]:
        while agent.num_trials < size - WINDOW // 2 and agent.step():
            pass
        events, seconds = agent.num_events, agent.seconds
        while agent.num_trials < size and agent.step():
            pass
        windows[size] = (agent.seconds - seconds) / (agent.num_events - events) * 1e6
    while agent.step():
        pass
    assert agent.machine.state.experiments[1].state is State.COMPLETED
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "search": name,
        "trials": trials,
        "events": agent.num_events,
        "trials_per_s": trials / (time.perf_counter() - began),
        "us_per_event_at": windows,
        "longest_s": agent.longest_s,
        "memory_mib": (peak - before) / 1024,
    }


def print_table(rows: list[dict[str, Any]], unit: str) -> None:
    """Print what people read; `unit` is what a time is of."""
    sizes = list(rows[0][f"us_per_{unit}_at"])
    columns = "".join(f"{f'at {size:,}':>13}" for size in sizes)
    print(f"{f'us per {unit}':18}{columns}{'trials/s':>10}{'MiB':>7}{'longest s':>11}")
    for row in rows:
        at = "".join(f"{row[f'us_per_{unit}_at'][size]:13.1f}" for size in sizes)
        print(
            f"{row['search']:18}{at}{row['trials_per_s']:10,.0f}"
            f"{row['memory_mib']:7.0f}{row['longest_s']:11.2f}"
        )


def apart(run: Callable[[str, int], dict[str, Any]], name: str, trials: int) -> dict[str, Any]:
    """Run in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, name, trials).result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1_000_000)
    parser.add_argument("--machine-trials", type=int, default=100_000)
    given = parser.parse_args()
    pure = [apart(run_pure, name, given.trials) for name in SEARCHERS]
    print_table(pure, "decision")
    machine = [
        apart(run_machine, name, given.machine_trials) for name in ("random", "asha, promotion")
    ]
    print_table(machine, "event")
    print(json.dumps({"pure": pure, "machine": machine}))


if __name__ == "__main__":
    main()
