"""The resources of a master after 10,000 trials: memory, descriptors, threads, database, restart.

    python -m tests.benchmarks.long_life [--trials 10000] [--slots 16] [--of 50] [--growth]

A real master in a home of its own, and an agent without ranks, which sends over HTTP the reports
of short trials: start, 100 batches with timings, 20 printed lines, samples of the computer, a
validation, a checkpoint and the end. Trials belong to random searches of `--of` trials each,
submitted one after the other. At each mark a second master opens a copy of the database: as after
a crash (events are replayed) and as after a proper end (from the snapshot). Prints a table and one
JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.contract.messages import (
    AgentReport,
    GangExited,
    GangStarted,
    RankProcess,
    SlotView,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    CheckpointSaved,
    FirstStep,
    MetricsReported,
    PartTimes,
    Progress,
    RankStarted,
    Record,
    RunEnded,
    StepTimes,
    TargetReached,
)
from det_jupyter.contract.values.lengths import Length
from tests.benchmarks.quick import arguments
from tests.integration.master_support import (
    FakeAgent,
    MasterProcess,
    make_chunk,
    make_client,
    make_request,
    make_text_chunk,
    master_process,
)

QUICK = "--trials 16 --slots 4 --of 4"
KEYS = {"benchmark", "cpus", "results"}  # keys of the JSON in the last line

_MIB = 1024 * 1024
_MARKS = (0, 0.25, 0.5, 0.75, 1)
_IDLE_S = 2.0  # pause before a measurement, so that no work is under way


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--of", type=int, default=50, help="trials of an experiment")
    options = parser.parse_args(arguments(QUICK))
    rows = measure(options.trials, options.slots, options.of)
    _print_table(rows)
    print(json.dumps({"benchmark": "long_life", "cpus": os.cpu_count(), "results": rows}))


def measure(trials: int, slots: int, of: int) -> list[dict[str, Any]]:
    """Return the master's resources at each mark."""
    with (
        tempfile.TemporaryDirectory(prefix="det-life-") as folder,
        master_process(Path(folder) / "home") as master,
    ):
        info = master.start()
        http = make_client(info)
        agent = FakeAgent(info, _slots(slots))
        agent.register()
        rows, num_done, began = [], 0, time.monotonic()
        for share in _MARKS:
            while num_done < share * trials:
                num = min(of, trials - num_done)
                _submit(http, num)
                _live(agent, num, master.home)
                num_done += num
            rows.append(_state(num_done, master, info.pid, Path(folder), began))
        http.close()
        master.end()
        agent.close()
    return rows


def _slots(num: int) -> list[SlotView]:
    return [SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(num)]


def _submit(http: Any, num: int) -> None:
    request = make_request(
        hyperparameters={
            "global_batch_size": 8,
            "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        },
        searcher={
            "name": "random",
            "metric": "error",
            "max_length": {"batches": 100},
            "max_trials": num,
        },
        resources={"slots_per_trial": 1},
    )
    answer = http.post("/experiments", json=request.model_dump(mode="json"))
    assert answer.status_code in (200, 201), answer.text


def _live(agent: FakeAgent, num: int, home: Path) -> None:
    """Send the reports of the ranks of the next `num` trials."""
    done = 0
    while done < num:
        command = agent.next_command()
        if command["kind"] != "start_gang":
            continue
        plan = command["plan"]
        answer = agent.report(*_reports(plan["allocation_id"], home))
        assert answer.status_code == 200, answer.text
        done += 1


def _reports(run: str, home: Path) -> list[AgentReport]:
    at = time.time()
    uuid = "-".join(["00000000-0000-4000-8000", f"{abs(hash(run)) % 16**12:012x}"])
    records: list[Record] = [
        RankStarted(at=at, pid=10, backend="gloo", device="cpu"),
        FirstStep(at=at, steps_completed=1),
        BatchMetrics(at=at, first=0, values={"loss": [1 / (i + 1) for i in range(100)]}),
        StepTimes(
            at=at,
            first=1,
            batches=100,
            samples=800,
            seconds=1.0,
            parts={"forward": PartTimes(100, 1.0, 1e-4, 0.01, 0.02)},
        ),
        Progress(at=at, steps_completed=100, fraction=1.0),
        MetricsReported(at=at, group="validation", steps_completed=100, metrics={"error": at % 1}),
        CheckpointSaved(
            at=at,
            uuid=uuid,
            steps_completed=100,
            path=str(home / "data" / "checkpoints" / uuid),
            size_bytes=1000,
            metadata={},
        ),
        TargetReached(at=at, steps_completed=100, target=Length("batches", 100)),
        RunEnded(at=at, reason="completed", steps_completed=100),
    ]
    values = {"host": {"cpu_util": 50.0}, f"rank:{run}:0": {"cpu_util": 90.0}}
    lines = "".join(f"epoch {number}: loss 0.123\n" for number in range(20))
    process = RankProcess(rank=0, pid=10, connection_file="c", output_file="o")
    return [
        GangStarted(allocation_id=run, at=at, ranks=[process]),
        SystemSampled(samples=[SystemSample(at=at, values=values)]),
        make_text_chunk(lines, stream="output-0", run=run),
        make_chunk(records, run=run),
        GangExited(allocation_id=run, at=at, exit_codes={0: 0}),
    ]


def _state(
    num_done: int, master: MasterProcess, pid: int, folder: Path, began: float
) -> dict[str, Any]:
    time.sleep(_IDLE_S)
    process = psutil.Process(pid)
    memory = process.memory_info()
    database = master.home / "data" / "det.sqlite3"
    copy = folder / f"copy-{num_done}"
    row = {
        "trials": num_done,
        "memory_mib": round(memory.rss / _MIB, 1),
        "descriptors": process.num_fds(),
        "threads": process.num_threads(),
        "database_mib": round(database.stat().st_size / _MIB, 1),
        "logs_mib": round(_size(master.home / "data" / "logs") / _MIB, 1),
        "cpu_s": round(sum(process.cpu_times()[:2]), 1),
        "wall_s": round(time.monotonic() - began, 1),
    }
    _copy(database, copy)
    with master_process(copy) as second:
        row["restart_after_crash_s"] = _started_in(second)
        second.end()
        row["restart_s"] = _started_in(second)
        info = json.loads((copy / "runtime" / "master.json").read_text())
        row["memory_restarted_mib"] = round(
            psutil.Process(info["pid"]).memory_info().rss / _MIB, 1
        )
        second.end(signal.SIGTERM)
    print(json.dumps(row), flush=True)
    return row


def _started_in(master: MasterProcess) -> float:
    began = time.monotonic()
    http = make_client(master.start())
    assert http.get("/status").status_code == 200
    http.close()
    return round(time.monotonic() - began, 2)


def _copy(database: Path, home: Path) -> None:
    """Copy a database that is in use, in its committed state."""
    (home / "data").mkdir(parents=True, mode=0o700)
    home.chmod(0o700)
    with (
        closing(sqlite3.connect(database)) as source,
        closing(sqlite3.connect(home / "data" / database.name)) as target,
    ):
        source.backup(target)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _print_table(rows: list[dict[str, Any]]) -> None:
    names = list(rows[0])
    print(" ".join(f"{name:>{max(8, len(name))}}" for name in names))
    for row in rows:
        print(" ".join(f"{row[name]:>{max(8, len(name))}}" for name in names))


if __name__ == "__main__":
    main()
