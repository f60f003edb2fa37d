"""The memory and time of a restart of a master with 100,000 stored trials.

    python -m tests.benchmarks.many_trials [--trials 10000 100000]

About 500 trials run as in `long_life`. Their state, a snapshot of the machine, is repeated with
other ids until it has the required number of trials, and a real master starts from it. Prints a
table and one JSON line.
"""

from __future__ import annotations

import argparse
import json
import os
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from tests.benchmarks.long_life import _MIB, _copy, _live, _print_table, _slots, _submit
from tests.benchmarks.quick import arguments
from tests.integration.master_support import FakeAgent, make_client, master_process

QUICK = "--trials 500"  # as many as run
KEYS = {"benchmark", "cpus", "results"}  # keys of the JSON in the last line

_RUN, _OF = 500, 50  # number of trials that run, and trials of each experiment
_IDLE_S = 2.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, nargs="+", default=[_RUN, 10_000, 100_000])
    options = parser.parse_args(arguments(QUICK))
    with tempfile.TemporaryDirectory(prefix="det-many-") as folder:
        database = _database_of_some(Path(folder))
        rows = [_measure(num, database, Path(folder) / str(num)) for num in options.trials]
    _print_table(rows)
    print(json.dumps({"benchmark": "many_trials", "cpus": os.cpu_count(), "results": rows}))


def _database_of_some(folder: Path) -> Path:
    with master_process(folder / "home") as master:
        info = master.start()
        agent = FakeAgent(info, _slots(16))
        agent.register()
        with make_client(info) as http:
            for _ in range(_RUN // _OF):
                _submit(http, _OF)
                _live(agent, _OF, master.home)
        time.sleep(_IDLE_S)
        master.end()
        agent.close()
    return folder / "home" / "data" / "det.sqlite3"


def _measure(num: int, database: Path, home: Path) -> dict[str, Any]:
    """Return the memory and time of a master that starts with this many trials."""
    _copy(database, home)
    with closing(sqlite3.connect(home / "data" / database.name)) as db:
        seq, text = db.execute("SELECT seq, json FROM snapshots ORDER BY seq DESC").fetchone()
        repeated = json.dumps(_repeated(json.loads(text), num))
        db.execute("DELETE FROM snapshots")
        db.execute("INSERT INTO snapshots VALUES (?, ?)", (seq, repeated))
        db.commit()
    with master_process(home) as master:
        began = time.monotonic()
        info = master.start()
        with make_client(info) as http:
            assert http.get("/status").status_code == 200
            start_s = time.monotonic() - began
            time.sleep(_IDLE_S)
            memory = psutil.Process(info.pid).memory_info().rss
            began = time.monotonic()
            listed = http.get("/experiments")
            list_s = time.monotonic() - began
            num_listed = len(listed.json()["rows"])
        master.end()
    assert num_listed == num // _OF
    row = {
        "trials": num,
        "memory_mib": round(memory / _MIB, 1),
        "snapshot_mib": round(len(repeated) / _MIB, 1),
        "start_s": round(start_s, 1),
        "list_s": round(list_s, 2),
        "list_mib": round(len(listed.content) / _MIB, 2),
    }
    print(json.dumps(row), flush=True)
    return row


def _repeated(state: dict[str, Any], num: int) -> dict[str, Any]:
    """Return a state with its experiments, trials and checkpoints repeated, to `num` trials."""
    experiments, trials, checkpoints = (
        state[kind] for kind in ("experiments", "trials", "checkpoints")
    )
    all_of: dict[str, dict[str, Any]] = {"experiments": {}, "trials": {}, "checkpoints": {}}
    for turn in range(num // len(trials)):
        more_e, more_t = turn * len(experiments), turn * len(trials)
        for one in experiments.values():
            own = [trial_id + more_t for trial_id in one["trial_ids"]]
            changed = {"id": one["id"] + more_e, "key": f"{one['key']}-{turn}", "trial_ids": own}
            all_of["experiments"][str(changed["id"])] = one | changed
        for one in trials.values():
            latest = one["latest_checkpoint"]
            changed = {
                "id": one["id"] + more_t,
                "experiment_id": one["experiment_id"] + more_e,
                "checkpoints": [_other(uuid, turn) for uuid in one["checkpoints"]],
                "latest_checkpoint": latest and latest | {"uuid": _other(latest["uuid"], turn)},
            }
            all_of["trials"][str(changed["id"])] = one | changed
        for uuid, one in checkpoints.items():
            changed = {
                "uuid": _other(uuid, turn),
                "experiment_id": one["experiment_id"] + more_e,
                "trial_id": one["trial_id"] + more_t,
            }
            all_of["checkpoints"][changed["uuid"]] = one | changed
    last = {
        "last_experiment_id": len(all_of["experiments"]),
        "last_trial_id": len(all_of["trials"]),
    }
    return state | all_of | last


def _other(uuid: str, turn: int) -> str:
    return f"{turn:08x}{uuid[8:]}"


if __name__ == "__main__":
    main()
