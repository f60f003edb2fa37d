"""Series for pictures: of a trial with a million points, and of a week of a machine's samples.

    python -m tests.benchmarks.series_history            a table, and one line of JSON
    python -m tests.benchmarks.series_history --interval 5

The number of stored rows is bounded, so a week of samples every 5 s takes as many bytes as a week
of samples every second, and a fifth of the time to generate.

The week has a sample per second of 8 GPUs with 12 names each, of the host with 7, and of 16 ranks
and their loader workers with 8 each; and a record of times per second of two ranks. All numbers
are noise, the worst case for compression.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.client import Client
from det_jupyter.connection import Session
from det_jupyter.contract.messages import (
    AgentReport,
    AgentReports,
    GangStarted,
    RankProcess,
    SeriesPage,
    SeriesQuery,
    SlotView,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.messages.curves import most_points
from det_jupyter.contract.run.journal import PartTimes, StepTimes
from det_jupyter.contract.values.measures import GPU, HOST, PARTS, PROCESS
from det_jupyter.master.background.cleanup import pack_series
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    MasterProcess,
    batches,
    make_chunk,
    make_registration,
    make_request,
)

NUM_POINTS = 1_000_000
POINTS_PER_RECORD = 200  # a second of steps of 5 ms
NUM_GPUS, NUM_RANKS = 8, 16
WEEK_H = 168.0
_START = 1.75e9
_DRAWN = 997  # number of different samples; then they are repeated
_BATCH = 60  # samples per report, to be fast; the intake is measured one by one
_NAMES_OF_TIMES, _NUM_TIMED = 10, 2


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--hours", type=float, default=WEEK_H)
    parser.add_argument("--interval", type=int, default=1)
    given = parser.parse_args()
    hours = given.hours
    results: dict[str, float] = {"hours": hours, "seconds between samples": given.interval}
    with tempfile.TemporaryDirectory() as home:
        database = Path(home) / "data" / "det.sqlite3"
        database.parent.mkdir()
        bench = Bench(database)
        bench.service._clock = lambda: _START
        registration = make_registration("first")
        registration.slots = [
            SlotView(id=i, kind="cuda", index=i, name="GPU", uuid=f"GPU-{i % NUM_GPUS}")
            for i in range(NUM_RANKS)
        ]
        bench.service.register(AGENT, registration)
        request = make_request(
            hyperparameters={"global_batch_size": NUM_RANKS},
            resources={"slots_per_trial": NUM_RANKS},
        )
        asyncio.run(bench.service.submit(request))
        ranks = [
            RankProcess(rank=rank, pid=10 + rank, connection_file="c", output_file="o")
            for rank in range(NUM_RANKS)
        ]
        bench.report(GangStarted(allocation_id=RUN, at=_START, ranks=ranks))
        add_points(bench)
        results |= add_week(bench, hours, given.interval)
        bench.service.close()
        results |= ask(Path(home), hours)
    for name, value in results.items():
        print(f"{name:44} {value:>14,.4g}")
    print(json.dumps(results))


def add_points(bench: Bench, num_points: int = NUM_POINTS) -> None:
    """Store this many points of one metric."""
    drawn, offset = random.Random(1), 0
    for first in range(1, num_points, POINTS_PER_RECORD):
        chunk = make_chunk(
            [batches(first, [drawn.random() for _ in range(POINTS_PER_RECORD)])], offset=offset
        )
        bench.report(chunk)
        offset += chunk.size_bytes


def add_week(bench: Bench, hours: float, interval_s: int) -> dict[str, float]:
    """Store hours of samples and times; return their bytes and the time to store them."""
    bench.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = bench.store.path.stat().st_size
    samples, times = drawn_samples(), drawn_times()
    intake_s, packing_s, num_intake = 0.0, 0.0, 0
    num_samples = int(3600 * hours / interval_s)
    for first in range(0, num_samples, _BATCH):
        reports: list[AgentReport] = [
            SystemSampled(
                samples=[
                    SystemSample(at=_START + interval_s * i, values=samples[i % _DRAWN])
                    for i in range(first, first + _BATCH)
                ]
            )
        ]
        if first % 3600 == 0:  # measures the intake: a report each second, as text
            bodies = [
                AgentReports(
                    session="first",
                    reports=[SystemSampled(samples=[sample])],
                ).model_dump_json()
                for sample in reports[0].samples  # type: ignore[union-attr]
            ]
            started = time.process_time()
            for body in bodies:
                bench.service.take_reports(AGENT, AgentReports.model_validate_json(body))
            intake_s += time.process_time() - started
            num_intake += len(bodies)
        else:
            bench.report(*reports)
        with bench.store.transaction():
            for i in range(first, first + _BATCH):
                record = times[i % _DRAWN]
                for rank in range(_NUM_TIMED):
                    moved = StepTimes(
                        at=_START + interval_s * i, first=1 + 100 * i, batches=record.batches,
                        samples=record.samples, seconds=1.0, parts=record.parts,
                    )  # fmt: skip
                    bench.store.series.add_times(_START, 1, 1, rank, moved)
        if first % 300 == 240:
            started = time.process_time()
            asyncio.run(pack_series(bench.service, _START))
            packing_s += time.process_time() - started
    sizes = dict(
        bench.store._db.execute(
            "SELECT kind || ' ' || step_s, sum(length(blob)) FROM series_chunks GROUP BY 1"
        ).fetchall()
    )
    rows = bench.store._db.execute("SELECT sum(length(json)) FROM series_rows").fetchone()[0] or 0
    bench.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return {
        "bytes of system": sum(v for k, v in sizes.items() if k.startswith("system")),
        "bytes of timings, each rank": sum(v for k, v in sizes.items() if k.startswith("timings"))
        / _NUM_TIMED,
        **{f"bytes of {name} s": size for name, size in sizes.items()},
        "bytes not packed yet": rows,
        "bytes the file grew by": bench.store.path.stat().st_size - before,
        "CPU of intake, ms per sample": 1e3 * intake_s / max(1, num_intake),
        "CPU of packing, ms per sample": 1e3 * packing_s / num_samples,
    }


def drawn_samples() -> list[dict[str, dict[str, float]]]:
    """Return values by source and name, all of them noisy."""
    drawn = random.Random(2)
    sources = {"host": HOST, **{f"gpu:GPU-{i}": GPU for i in range(NUM_GPUS)}}
    for kind in ("rank", "workers"):
        sources |= {f"{kind}:{RUN}:{rank}": PROCESS for rank in range(NUM_RANKS)}
    return [
        {
            source: {name: drawn.uniform(0, 1e9) for name in names}
            for source, names in sources.items()
        }
        for _ in range(_DRAWN)
    ]


def drawn_times() -> list[StepTimes]:
    """Return intervals of a second, in 10 parts."""
    drawn = random.Random(3)
    return [
        StepTimes(
            at=0.0,
            first=1,
            batches=100 + drawn.randrange(9),
            samples=6400,
            seconds=1.0,
            parts={
                part: PartTimes(100, drawn.random(), *(drawn.random() for _ in range(3)))
                for part in list(PARTS)[:_NAMES_OF_TIMES]
            },
        )
        for _ in range(_DRAWN)
    ]


def ask(home: Path, hours: float) -> dict[str, float]:
    """Return the seconds in which a running master answers, including the client's part."""
    master = MasterProcess(home)
    try:
        client = Client(Session(info := master.start()))
        end = _START + 3600 * hours
        gpus = [f"gpu:GPU-{i}" for i in range(NUM_GPUS)]

        def agent(**query: Any) -> Callable[[], object]:
            return lambda: client.agent_series(AGENT, SeriesQuery(of="system", **query))

        def trial(of: str, **query: Any) -> Callable[[], SeriesPage]:
            asked = SeriesQuery.model_validate({"of": of, **query})
            return lambda: client.series(1, asked)

        calls = {
            "a trial of 1e6 points opened (view)": lambda: client.curves(
                1, max_points=most_points(1) // 2
            ),
            "its metrics, 600 columns": trial("metrics", axis="batches"),
            "its metrics, a 100th of them": trial(
                "metrics", axis="batches", since=500_000, until=510_000
            ),
            "week, 8 GPUs, 1 name": agent(names=["gpu_util"]),
            "week, 8 GPUs, all names": agent(sources=gpus),
            "week, all": agent(),
            "last hour, 8 GPUs, all names": agent(sources=gpus, since=end - 3600),
            "last 5 s, all": agent(since=end - 5),
            "week, ranks' processes": trial("system", names=["cpu_util"]),
            "week, timings of 2 ranks": trial("timings"),
            "week, timings by batch": trial("timings", axis="batches", names=["forward"]),
        }
        process = psutil.Process(info.pid)
        results = {}
        for name, call in calls.items():
            results[f"s: {name}"], results[f"CPU s: {name}"] = seconds_of(call, process)
        return results
    finally:
        master.kill()


def seconds_of(call: Callable[[], object], master: psutil.Process) -> tuple[float, float]:
    """Return the median time of five calls after a first one, and their mean CPU time."""

    def cpu_s() -> float:
        times = master.cpu_times()
        return float(times.user + times.system) + time.process_time()

    call()
    taken, before = [], cpu_s()
    for _ in range(5):
        started = time.perf_counter()
        call()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[2], (cpu_s() - before) / 5


if __name__ == "__main__":
    main()
