"""The cost of a scheduling decision, and whether it grows with the agents or the queue.

    python -m tests.benchmarks.scheduler_scale [--quick]

An event is a new trial, the end of a gang, or a gang that leaves after a preemption, each with the
decision that follows. Its time is processor time. Every row runs in a process of its own, so that
its memory can be measured. `anew` is the time to build the pool from its facts and to decide for
the first time, as after a restart of the master. `look` is the time to list the first hundred
waiting trials and the place of one of them; `deep` the time to find the place of the last one.

`pass` is the time per event of one decision for a thousand ends: the cost of an event for a master
that decides once for many.

The second table is the same in the whole machine, see `scheduler_machine`.

The third is the cost of the reasons why the first 256 trials wait, see `scheduler_reasons`: of the
first reason, which gathers the pool's facts, of each, and of all.

The fourth table replays a synthetic trace under every policy, at two loads, see `scheduler_trace`.
Prints last one JSON line. In full it takes about ten minutes on one core.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from statistics import median
from typing import Any

from tests.benchmarks.scheduler_machine import run_machine
from tests.benchmarks.scheduler_reasons import run_reasons
from tests.benchmarks.scheduler_trace import replay
from tests.benchmarks.scheduler_worlds import POLICIES, BusyPool

FULL = [(10, 100), (10, 1_000), (100, 10_000), (1000, 10_000)]
FULL_MACHINE = [(10, 1_000), (100, 10_000)]
LOADS = (0.7, 0.9)
QUICK = [(10, 100), (10, 1_000), (100, 1_000)]
QUICK_MACHINE = [(10, 100), (10, 1_000), (100, 1_000)]
FULL_REASONS = [(1, 300), (10, 300), (100, 10_000)]
QUICK_REASONS = [(1, 300), (10, 300), (100, 1_000)]


def run_busy(name: str, num_agents: int, num_waiting: int) -> dict[str, Any]:
    """Return the costs of events in one pool."""
    num_events = min(2_000, max(60, 300_000 // num_waiting))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.thread_time()
    busy = BusyPool(POLICIES[name], num_agents, num_waiting)
    anew_s = time.thread_time() - began
    looks_s, deep_s = [], []
    for event in range(num_events):
        busy.step()
        if event % 20 == 0:
            looks_s.append(look_s(busy))
            deep_s.append(deep_look_s(busy))
    times = sorted(busy.times_s)
    pass_s = busy.end_many(1000)
    return {
        "policy": name,
        "agents": num_agents,
        "waiting": num_waiting,
        "median_us": median(times) * 1e6,
        "p99_us": times[int(len(times) * 0.99)] * 1e6,
        "longest_us": times[-1] * 1e6,
        "events_per_s": len(times) / sum(times),
        "look_us": median(looks_s) * 1e6,
        "deep_look_us": median(deep_s) * 1e6,
        "pass_us": pass_s * 1e6,
        "anew_s": anew_s,
        "preemptions": busy.num_preemptions,
        "running": len(busy.pool.running),
        "memory_mib": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024,
    }


def look_s(busy: BusyPool) -> float:
    """Return the seconds to list the front of the queue."""
    began = time.thread_time()
    shown = busy.pool.waiting(100)
    if shown:
        busy.pool.position(random.Random(1).choice(shown).id)
    return time.thread_time() - began


def deep_look_s(busy: BusyPool) -> float:
    """Return the seconds to find the place of the trial that came last."""
    began = time.thread_time()
    if busy.pool.is_waiting(busy.newest):
        busy.pool.position(busy.newest)
    return time.thread_time() - began


def run_trace(name: str, load: float, num_trials: int) -> dict[str, Any]:
    """Return the results of the trace under a policy."""
    return {"policy": name, "load": load, **replay(POLICIES[name], num_trials, load)}


def apart(run: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """Run in a process of its own."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(run, *given).result()


def print_table(rows: list[dict[str, Any]], columns: dict[str, tuple[str, str]]) -> None:
    """Print the rows as a table; `columns`: title and format by key."""
    widths = {key: max(len(title), 9) for key, (title, _) in columns.items()}
    titles = "".join(f"{title:>{widths[key] + 2}}" for key, (title, _) in columns.items())
    print(f"{'policy':24}{titles}")
    for row in rows:
        cells = "".join(
            f"{format(row[key], form):>{widths[key] + 2}}" for key, (_, form) in columns.items()
        )
        print(f"{row['policy']:24}{cells}")
    print()


BUSY_COLUMNS = {
    "agents": ("agents", ","),
    "waiting": ("waiting", ","),
    "median_us": ("us median", ",.0f"),
    "p99_us": ("us p99", ",.0f"),
    "longest_us": ("us longest", ",.0f"),
    "events_per_s": ("events/s", ",.0f"),
    "pass_us": ("us pass", ",.0f"),
    "look_us": ("us look", ",.0f"),
    "deep_look_us": ("us deep", ",.0f"),
    "anew_s": ("s anew", ".2f"),
    "memory_mib": ("MiB", ".0f"),
}
MACHINE_COLUMNS = {
    "agents": ("agents", ","),
    "waiting": ("waiting", ","),
    "submit_us": ("us a submission", ",.0f"),
    "submit_p99_us": ("p99", ",.0f"),
    "exit_us": ("us an end", ",.0f"),
    "exit_p99_us": ("p99", ",.0f"),
    "memory_mib": ("MiB", ".0f"),
}
REASONS_COLUMNS = {
    "agents": ("agents", ","),
    "waiting": ("waiting", ","),
    "first_ms": ("ms first", ",.1f"),
    "median_ms": ("ms median", ",.1f"),
    "longest_ms": ("ms longest", ",.1f"),
    "all_ms": ("ms all", ",.0f"),
}
TRACE_COLUMNS = {
    "load": ("load", ".0%"),
    "utilisation": ("used", ".1%"),
    "mean_wait_h": ("h wait", ".2f"),
    "p95_wait_h": ("h wait p95", ".1f"),
    "urgent_wait_h": ("h urgent", ".2f"),
    "large_wait_h": ("h >8 slots", ".1f"),
    "fairness": ("fairness", ".3f"),
    "preemptions": ("preempted", ","),
    "median_us": ("us median", ",.0f"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, half a minute")
    given = parser.parse_args()
    sizes, trials = (QUICK, 1_000) if given.quick else (FULL, 10_000)
    machine_sizes = QUICK_MACHINE if given.quick else FULL_MACHINE
    busy = [apart(run_busy, name, *size) for name in POLICIES for size in sizes]
    print_table(busy, BUSY_COLUMNS)
    machines = [apart(run_machine, *size) for size in machine_sizes]
    print_table(machines, MACHINE_COLUMNS)
    reasons_sizes = QUICK_REASONS if given.quick else FULL_REASONS
    reasons = [apart(run_reasons, name, *size) for name in POLICIES for size in reasons_sizes]
    print_table(reasons, REASONS_COLUMNS)
    traces = [apart(run_trace, name, load, trials) for load in LOADS for name in POLICIES]
    print_table(traces, TRACE_COLUMNS)
    print(json.dumps({"busy": busy, "machine": machines, "reasons": reasons, "trace": traces}))


if __name__ == "__main__":
    main()
