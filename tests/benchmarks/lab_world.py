"""The data for the benchmark of JupyterLab's extension: many experiments, and eight busy GPUs.

history        a database with ended experiments, as a master would have written it
BusyAgent      a process that stands in for an agent: it has 8 GPUs, which it samples ten times
               a second, and reports validations of the trials on them at a given rate
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter.contract.messages import (
    AgentReport,
    GangExited,
    GangStarted,
    MasterInfo,
    RankProcess,
    SlotView,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.run.journal import Record
from det_jupyter.contract.values.measures import GPU, HOST
from tests.integration.master_support import (
    AGENT,
    Bench,
    FakeAgent,
    first_step,
    last_words,
    make_chunk,
    make_registration,
    make_request,
    progress,
    started,
    validation,
)

NUM_GPUS, SAMPLES_HZ = 8, 10
LABELS = ["baseline", "wide", "new data", "good"]
SLOTS = [
    SlotView(id=i, kind="cuda", index=i, name="NVIDIA H100", uuid=f"GPU-{i}")
    for i in range(NUM_GPUS)
]
LR = {"type": "log", "base": 10, "minval": -4, "maxval": -1}


def search(name: str, trials: int, at_once: int, **changes: Any) -> dict[str, Any]:
    """Return the configuration of a random search of trials on one slot."""
    searcher = {
        "name": "random", "metric": "error", "max_trials": trials,
        "max_concurrent_trials": at_once, "max_length": {"batches": 1_000_000},
    }  # fmt: skip
    return {
        "name": name,
        "searcher": searcher,
        "hyperparameters": {"global_batch_size": 8, "lr": LR},
        "resources": {"slots_per_trial": 1},
    } | changes


def add_history(database: Path, num_experiments: int, trials_each: int) -> None:
    """Write a database with this many ended experiments."""
    database.parent.mkdir(parents=True, exist_ok=True)
    bench, drawn = Bench(database), random.Random(1)
    registration = make_registration("first", slots=SLOTS)
    bench.service.register(AGENT, registration)
    asyncio.run(_add(bench, num_experiments, trials_each, drawn))
    bench.service.close()


async def _add(bench: Bench, experiments: int, trials_each: int, drawn: random.Random) -> None:
    line = bench.service.links.get(AGENT, "first")
    for i in range(experiments):
        bench.now += 60.0
        config = search(
            f"{drawn.choice(['resnet', 'vit', 'lstm'])} {i}", trials_each, trials_each,
            labels=drawn.sample(LABELS, drawn.randrange(3)),
            description=f"What {i} of {experiments} is about",
        )  # fmt: skip
        config["searcher"]["max_length"] = {"batches": 100}
        await bench.service.submit(make_request(**config))
        while runs := [c.plan.allocation_id for c in line._queue if c and c.kind == "start_gang"]:
            line._queue.clear()
            for run in runs:
                bench.report(*_whole_run(run, drawn.random()))


def _whole_run(run: str, error: float) -> list[AgentReport]:
    said: list[Record] = [
        started(),
        first_step(),
        validation(50, 2 * error),
        validation(100, error),
    ]
    return [
        gang_of_one(run),
        make_chunk([*said, progress(100), *last_words()], run=run),
        GangExited(allocation_id=run, at=2.0, exit_codes={0: 0}),
    ]


def gang_of_one(run: str) -> GangStarted:
    """Return the report that the only rank of a run exists."""
    rank = RankProcess(rank=0, pid=os.getpid(), connection_file="c", output_file="o")
    return GangStarted(allocation_id=run, at=time.time(), ranks=[rank])


class BusyAgent:
    """A process that stands in for an agent.

    Args:
        info: The master that it reports to.
    """

    def __init__(self, info: MasterInfo) -> None:
        command = [sys.executable, "-m", __name__]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        self._tell(info.model_dump_json())

    def report(self, per_s: float) -> None:
        """Report this many validations a second from now on, over all trials."""
        self._tell(str(per_s))

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def end(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def busy_agent(info: MasterInfo) -> Iterator[BusyAgent]:
    """Run an agent's stand-in."""
    agent = BusyAgent(info)
    try:
        yield agent
    finally:
        agent.end()


class _Run:
    """The only rank of a run, with the position in its journal."""

    def __init__(self, name: str) -> None:
        self.name, self.steps, self._offset = name, 0, 0

    def say(self, *records: Record) -> AgentReport:
        chunk = make_chunk(list(records), offset=self._offset, run=self.name)
        self._offset += chunk.size_bytes
        return chunk

    def advance(self, error: float) -> AgentReport:
        self.steps += 10
        return self.say(validation(self.steps, error), progress(self.steps % 100))


def _be_busy() -> None:
    agent = FakeAgent(MasterInfo.model_validate_json(sys.stdin.readline()), SLOTS)
    agent.register()
    wanted = [0.0]

    def listen() -> None:
        for line in sys.stdin:
            wanted[0] = float(line)

    threading.Thread(target=listen, daemon=True).start()
    runs: list[_Run] = []
    drawn, due, tick = random.Random(2), 0.0, time.monotonic()
    while True:
        agent.report(SystemSampled(samples=[_sample(drawn)]), *_started(agent, runs))
        # Validations are reported one by one, so that they reach the master one by one.
        due = min(due + wanted[0] / SAMPLES_HZ, wanted[0])
        while runs and due >= 1:
            due -= 1
            agent.report(drawn.choice(runs).advance(drawn.random()))
        tick += 1 / SAMPLES_HZ
        time.sleep(max(0.0, tick - time.monotonic()))


def _started(agent: FakeAgent, runs: list[_Run]) -> list[AgentReport]:
    """Begin the runs that the master has commanded; return the reports about them."""
    reports: list[AgentReport] = []
    while not agent.commands.empty():
        command = agent.next_command()
        if command["kind"] == "start_gang":
            runs.append(_Run(command["plan"]["allocation_id"]))
            reports += [gang_of_one(runs[-1].name), runs[-1].say(started(), first_step())]
    return reports


def _sample(drawn: random.Random) -> SystemSample:
    sources = {"host": HOST, **{f"gpu:GPU-{i}": GPU for i in range(NUM_GPUS)}}
    values = {
        source: {name: drawn.uniform(0, 100) for name in names}
        for source, names in sources.items()
    }
    return SystemSample(at=time.time(), values=values)


if __name__ == "__main__":
    _be_busy()
