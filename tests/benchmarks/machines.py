"""The time to the first step of 2 ranks on 2 computers, against Ray Train in the same run.

    python -m tests.benchmarks.machines [--rounds 9] [--rival-rounds 5]

Two agents with a slot each, with homes of their own, reach the master over TLS; a trial of two
slots gets both. "Warm": the agents have run a trial before. The rival, Ray Train's TorchTrainer,
has a cluster of two nodes that runs already (machines_ray.py), and takes the first step of the
same model, with its workers on both nodes. Both take turns, so that a busy computer slows both.
"Attach" is the time from a new handle of the rank on the other computer to the first answer of its
console, and to that of a further question. Prints a table, then one line of JSON.

All processes are on this computer, so no network is measured.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Any

from det_jupyter.client import Client
from det_jupyter.client.requests import make_request
from det_jupyter.contract.messages import SetPools
from tests.benchmarks import machines_ray as rival
from tests.benchmarks.start_latency import config, moments_of_ranks, trial_source
from tests.nodes import Node
from tests.processes import det_home, wait_until
from tests.trials import submit

NAMES = ("node-b", "node-c")
POOLS = [{"pool_name": "default"}, {"pool_name": "nodes", "agents": ["node-*"]}]
WARMING_UP = 2  # rounds that are not counted


def settings(batches: int) -> dict[str, Any]:
    """Return the configuration of a trial over both agents."""
    return config(batches) | {"resources": {"slots_per_trial": 2, "resource_pool": "nodes"}}


@contextmanager
def agents(folder: Path) -> Iterator[Client]:
    """Run a master and two agents; yield a client."""
    with det_home(folder / "home", {"DET_JUPYTER_CPU_SLOTS": "1"}) as home:
        client = home.client()
        nodes = [
            Node(client.add_agent(name, "127.0.0.1"), folder / name, slots=1) for name in NAMES
        ]
        for node in nodes:
            node.start()
        try:
            for node in nodes:
                node.wait_until_connected(client)
            client.change(make_request(SetPools, pools=POOLS))
            yield client
        finally:
            for node in nodes:
                node.end()
            client.session.close()


def start(client: Client, folder: Path) -> float:
    """Return the seconds from before the capture to the first step of a fresh trial."""
    began_at = time.time()
    experiment = submit(client, settings(3), trial_source(folder), cwd=folder)
    [chief, _] = moments_of_ranks(experiment, folder)
    return chief["first step"] - began_at


def attach(client: Client, folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Return seconds until a console's first answer, and until that of a further question."""
    experiment = submit(client, settings(10**6), trial_source(folder), cwd=folder)
    wait_until(lambda: any(t.steps_completed for t in experiment.view.trials), "it trains")
    wait_until(lambda: len(experiment.trial.ranks) == 2, "both ranks are there")
    firsts: list[float] = []
    others: list[float] = []
    for _ in range(rounds):
        rank = experiment.trial.ranks[1]
        for seconds in (firsts, others):
            began = time.perf_counter()
            assert rank.execute("6 * 7") == 42
            seconds.append(time.perf_counter() - began)
    experiment.kill()
    wait_until(lambda: experiment.state.is_terminal, "it is gone")
    return firsts, others


@contextmanager
def ray_cluster() -> Iterator[subprocess.Popen[str] | None]:
    """Run the rival; yield None if Ray is not installed, or does not start."""
    if importlib.util.find_spec("ray") is None:
        print("Ray is not installed, so there is no rival: pip install 'ray[train]'")
        yield None
        return
    command = [sys.executable, "-m", rival.__name__]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        is_ready = process.stdout.readline() == "ready\n"
        if not is_ready:
            print("the cluster of Ray was not started (see above), so there is no rival")
        yield process if is_ready else None
        process.stdin.close()


def rival_start(process: subprocess.Popen[str]) -> float:
    """Return the seconds until the first step of Ray Train's workers."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return float(process.stdout.readline())


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=9, help="starts of ours, and attachments")
    parser.add_argument("--rival-rounds", type=int, default=5, help="starts of Ray Train")
    options = parser.parse_args()
    ours: list[float] = []
    theirs: list[float] = []
    with tempfile.TemporaryDirectory(prefix="m-") as scratch, ray_cluster() as ray:
        folder = Path(scratch)
        with agents(folder) as client:
            for _ in range(WARMING_UP):
                start(client, folder)
            for index in range(options.rounds):  # in turns, so that noise affects both
                ours.append(start(client, folder))
                if ray and index * options.rival_rounds % options.rounds < options.rival_rounds:
                    theirs.append(rival_start(ray))
            firsts, others = attach(client, folder, options.rounds)
    report(
        {
            "det_jupyter, 2 agents": ours,
            "Ray Train, 2 nodes": theirs[1:] or theirs,  # the first start is not warm
            "attach: first answer": firsts,
            "attach: a further one": others,
        }
    )


def report(rows: dict[str, list[float]]) -> None:
    """Print the table and the JSON line."""
    print(f"{'2 ranks on 2 computers':26} {'median':>8} {'min':>8} {'max':>8}   n")
    for name, values in rows.items():
        if values:
            numbers = [statistics.median(values), min(values), max(values)]
            print(f"{name:26} " + " ".join(f"{v:7.3f}s" for v in numbers) + f" {len(values):3d}")
    ours, theirs, first, other = (
        statistics.median(values) if values else None for values in rows.values()
    )
    result = {
        "first_step_s": _rounded(ours),
        "ray_train_s": _rounded(theirs),
        "ratio": round(theirs / ours, 1) if ours and theirs else None,
        "attach_s": _rounded(first),
        "answer_s": _rounded(other),
    }
    print(json.dumps(result))


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


if __name__ == "__main__":
    main()
