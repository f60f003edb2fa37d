"""Simulations in which a search runs without training: only its trials, or a whole master.

search_simulation.py measures them.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import ExtendGang, GangPlan, SignalGang, StartGang
from det_jupyter.contract.values.lengths import Length
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.commands import ToAgent
from det_jupyter.master.machine.model.events import Event
from det_jupyter.searcher import Action, Close, Create, ExitReason, Search, TrainTo
from tests.unit.master.machine_world import (
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
    """Return a searcher section with this many trials."""
    return {
        "metric": "error",
        "max_length": {"batches": LENGTH},
        "max_trials": trials,
        "max_concurrent_trials": CONCURRENT,
        **SEARCHERS[name],
    }


def make_search(name: str, trials: int) -> Search:
    """Return a search with this many trials."""
    searcher = make_section(name, trials)
    document = {"entrypoint": "SomeTrial", "hyperparameters": SPACE, "searcher": searcher}
    config = parse_config(document, default_seed=1)
    return Search(config.searcher, config.hyperparameters, 1)


def metric_of(quality: float, trained: int) -> float:
    """Return the metric of a trial after this amount of training."""
    return quality + 1 / trained


class Simulation:
    """Trains the trials of a search in no time, and measures the time of its decisions."""

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
        """Record the actions of the search."""
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


class FakeAgent:
    """Carries out the machine's commands at once, and answers as an agent with ranks would."""

    def __init__(self, name: str, trials: int) -> None:
        self.machine = Machine()
        self.num_events = 0
        self.seconds = 0.0
        self.longest_s = 0.0
        self.runs: dict[str, GangPlan] = {}
        # Allocation and target; None: leave.
        self.moves: deque[tuple[str, Length | None]] = deque()
        self.tell([registered(slots=CONCURRENT)])
        search = submitted("search", 1, searcher=make_section(name, trials), hyperparameters=SPACE)
        self.tell([search])

    def tell(self, events: list[Event]) -> None:
        """Pass events to the machine, and record its commands."""
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
        """Record a command, which is carried out in its turn."""
        match order.command:
            case StartGang(plan=plan):
                self.runs[plan.allocation_id] = plan
                self.moves.append((plan.allocation_id, plan.target))
            case ExtendGang(allocation_id=id, target=target):
                self.moves.append((id, target))
            case SignalGang(allocation_id=id):
                self.moves.append((id, None))

    def step(self) -> bool:
        """Carry out a command; return False if there is none."""
        if not self.moves:
            return False
        id, target = self.moves.popleft()
        plan = self.runs.get(id)
        if plan is None:
            return True  # commands may be repeated
        if target is None:
            del self.runs[id]
            self.tell([ended("preempted", 0, allocation_id=id), exited(id, codes={0: 0})])
            return True
        if target == plan.target:
            self.tell(running(id, ranks=1))
        steps = target.amount
        metric = metric_of(plan.hparams["dropout"], steps)
        self.tell([validated(steps, metric, id), saved(steps, f"{id}-{steps}", id)])
        self.tell([reached(steps, id, target)])
        if plan.target_is_last or steps == LENGTH:
            del self.runs[id]
            self.tell([ended("completed", steps, allocation_id=id), exited(id, codes={0: 0})])
        return True

    @property
    def num_trials(self) -> int:
        """The number of trials."""
        return self.machine.state.last_trial_id
