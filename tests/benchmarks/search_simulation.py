"""The cost of a search's decisions, and whether it grows with the number of trials.

    python -m tests.benchmarks.search_simulation [--trials 1000000] [--machine-trials 100000]
                                                 [--optuna-trials 10000]

Trials take no time here: 64 at a time report a metric that improves with training. A decision is
one event of the search, a result or an exit, with all the actions that follow from it. Windows of
decisions are timed when the search has 1,000, 10,000 and so on trials: the times must not grow.
The longest decision is the one that closes all resting trials when no new trials are left, or one
with a garbage collection. Each search runs in a process of its own, so that its memory can be
measured.

The second table is the same search through the master's machine, which also queues, places and
ends every run: an event is one report of an agent. The third, if Optuna is installed, is a search
whose hyperparameters Optuna's samplers choose: `ask` is the time of that. Prints last one JSON
line. At full size this takes a quarter of an hour, most of it in TPE, whose time grows with the
trials; `--optuna-trials 1000` makes it five minutes.
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
from dataclasses import replace
from importlib.util import find_spec
from statistics import median
from typing import Any

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import State
from det_jupyter.master.sampling.optuna_study import TrialHistory
from det_jupyter.searcher import AskSampler, Close, ExitReason, Search, TrainTo
from tests.benchmarks.quick import arguments
from tests.benchmarks.search_worlds import (
    SEARCHERS,
    SPACE,
    FakeAgent,
    Simulation,
    make_search,
    make_section,
    metric_of,
)

QUICK = "--trials 300 --machine-trials 100 --optuna-trials 20"
KEYS = {"pure", "machine", "optuna"}  # keys of the JSON in the last line

WINDOW = 900  # trials


def sizes_up_to(trials: int) -> list[int]:
    """Return the numbers of trials at which times are measured."""
    return [*(10**power for power in range(3, 9) if 10**power < trials), trials]


def view_us(search: Search) -> float:
    """Return the microseconds to make the view of the search, after each decision."""
    began = time.perf_counter()
    for _ in range(100):
        search.view()
    return (time.perf_counter() - began) / 100 * 1e6


def run_pure(name: str, trials: int) -> dict[str, Any]:
    """Return the costs of one search."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    simulation = Simulation(make_search(name, trials))
    windows: dict[int, float] = {}
    for size in sizes_up_to(trials):
        while len(simulation.quality) < size - WINDOW and simulation.step():
            pass
        decisions, seconds = simulation.num_decisions, simulation.seconds
        while len(simulation.quality) < size and simulation.step():
            pass
        taken = simulation.seconds - seconds
        windows[size] = taken / max(simulation.num_decisions - decisions, 1) * 1e6
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


def run_machine(name: str, trials: int) -> dict[str, Any]:
    """Return the costs of one search in the machine."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.perf_counter()
    agent = FakeAgent(name, trials)
    windows: dict[int, float] = {}
    for size in sizes_up_to(trials):
        while agent.num_trials < size - WINDOW and agent.step():
            pass
        events, seconds = agent.num_events, agent.seconds
        while agent.num_trials < size and agent.step():
            pass
        windows[size] = (agent.seconds - seconds) / max(agent.num_events - events, 1) * 1e6
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


def run_optuna(sampler: str, trials: int) -> dict[str, Any]:
    """Return the costs of a search whose hyperparameters a sampler of Optuna chooses."""
    from det_jupyter.master.sampling.samplers import Samplers

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    section = make_section("random", trials) | {"name": "optuna", "sampler": sampler}
    document = {"entrypoint": "SomeTrial", "hyperparameters": SPACE, "searcher": section}
    config = parse_config(document, default_seed=1)
    whole, search, samplers = (
        config.to_document(),
        Search(config.searcher, config.hyperparameters, 1),
        Samplers(),
    )
    history: list[TrialHistory] = []
    asked_s: list[float] = []
    waiting = deque(search.start())
    began = time.perf_counter()
    while waiting:
        match waiting.popleft():
            case AskSampler(index):
                asked = time.perf_counter()
                hparams = samplers.sample(1, whole, index, history)
                asked_s.append(time.perf_counter() - asked)
                history.append(TrialHistory(index=index, hparams=hparams, state="running"))
                waiting += search.on_sampled(index, hparams)
            case TrainTo(index, length):
                metric = metric_of(history[index].hparams["dropout"], length.amount)
                reports = [*history[index].reports, (length.amount, metric)]
                history[index] = replace(history[index], value=metric, reports=reports)
                waiting += search.on_target_reached(index, metric)
            case Close(index):
                state: Any = "pruned" if search.was_stopped(index) else "complete"
                history[index] = replace(history[index], state=state)
                waiting += search.on_exited(index, ExitReason.COMPLETED)
    seconds = time.perf_counter() - began
    windows = {size: asked_s[max(0, size - 100) : size] for size in (100, *sizes_up_to(trials))}
    return {
        "search": sampler,
        "trials": trials,
        "trials_per_s": trials / seconds,
        "us_per_ask_at": {size: median(times) * 1e6 for size, times in windows.items()},
        "longest_s": max(asked_s),
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def print_table(rows: list[dict[str, Any]], unit: str) -> None:
    """Print the rows as a table; `unit` names the events that are timed."""
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
    parser.add_argument("--optuna-trials", type=int, default=10_000)
    given = parser.parse_args(arguments(QUICK))
    pure = [apart(run_pure, name, given.trials) for name in SEARCHERS]
    print_table(pure, "decision")
    machine = [
        apart(run_machine, name, given.machine_trials) for name in ("random", "asha, promotion")
    ]
    print_table(machine, "event")
    optuna = []
    if find_spec("optuna"):
        samplers = ("RandomSampler", "TPESampler")
        optuna = [apart(run_optuna, name, given.optuna_trials) for name in samplers]
        print_table(optuna, "ask")
    print(json.dumps({"pure": pure, "machine": machine, "optuna": optuna}))


if __name__ == "__main__":
    main()
