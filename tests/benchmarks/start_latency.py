"""The time from submitting a trial to its first optimizer step, against torchrun, in one run.

    python -m tests.benchmarks.start_latency [--warm 15] [--rounds 3]

All take the first step of the same 2-rank DDP model on gloo. Our time is from before the capture
to the chief's timestamp after its first step; torchrun's is from before its process starts to the
output of rank 0 after the same step. "Cold" starts master, agent and fork server too. The lower
bound is a bare fork server (bare_fork_server.py), which takes turns with the warm starts, so that
a busy computer slows both. Prints two tables, then one line of JSON:

    stage        ends when
    capture      the trial is in a capsule
    submit       the master has the experiment
    decide       the agent has created the run's folder, on a command of the master
    fork         both ranks are processes of their own
    import       both have read the capsule
    group        both have joined the process groups
    build        both have run __init__ and built the loaders, and begin their first batch
    first step   the chief has stepped
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import PIPE
from typing import Any

import psutil

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import State
from tests.benchmarks import bare_fork_server as bare
from tests.benchmarks.bare_fork_server import STAGES
from tests.benchmarks.quick import arguments
from tests.processes import DetHome, det_home, wait_until
from tests.trials import capture_trial, create, submit

QUICK = "--warm 1 --rounds 1"
KEYS = {  # keys of the JSON in the last line
    "warm_p50_s", "floor_s", "ratio_floor", "stages", "cold_s", "torchrun_s", "ratio", "import_ms",
    "master_idle_rss_mb", "rank_private_mb", "rank_shared_mb",
}  # fmt: skip


IN_RANKS = ("decide", "fork", "import", "group", "build")
RIVAL = Path(__file__).with_name("first_step_script.py")
TRIAL = """
import json
import os
import time
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial


class Clock:  # notes the moments of a rank; read from the capsule with everything else
    def __setstate__(self, state):
        self.moments = {"import": time.time()}

    def note(self, name):
        self.moments.setdefault(name, time.time())

    def write(self, rank):
        run = os.path.dirname(os.readlink("/proc/self/fd/1"))  # where this rank's output goes
        self.moments["decide"] = os.stat(f"{run}/plan.json").st_mtime_ns / 1e9
        with open(f"{run}/journal-{rank}") as journal:
            at = {record["kind"]: record["at"] for record in map(json.loads, journal)}
        self.moments |= {"fork": at["rank_started"], "first step": at.get("first_step")}
        with open(f"{folder}/moments-{rank}", "w") as file:
            json.dump(self.moments, file)


clock = Clock()
clock.unread = True  # else there is no state to set
folder = FOLDER
torch.manual_seed(0)
dataset = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))


class FirstStepTrial(PyTorchTrial):
    def __init__(self, context):
        clock.note("group")
        self.context = context
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        return DataLoader(dataset, self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(dataset, 64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        clock.note("build")
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        clock.write(self.context.distributed.rank)
        return {"error": nn.functional.cross_entropy(self.model(batch[0]), batch[1])}
"""


def config(batches: int) -> dict[str, Any]:
    return {
        "name": "first step",
        "entrypoint": "FirstStepTrial",
        "hyperparameters": {"global_batch_size": 64},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "resources": {"slots_per_trial": 2},
    }


@dataclass(frozen=True, slots=True)
class Start:
    """A start with det_jupyter: seconds in total, and until the end of each stage."""

    seconds: float
    moments: dict[str, float]


def trial_source(folder: Path) -> str:
    """Return the source of the trial, which is captured in a folder of its own.

    In a folder with det_jupyter's tests, all of them would be captured too.
    """
    return TRIAL.replace("FOLDER", repr(str(folder)))


def ours(client: Client, folder: Path) -> Start:
    """Take the first step of a new trial, and validate, which writes the moments to a file."""
    began_at = time.time()
    captured = capture_trial(client, "FirstStepTrial", trial_source(folder), folder)
    captured_at = time.time()
    experiment = create(client, config(batches=3), captured, folder)
    ranks = moments_of_ranks(experiment, folder)
    moments = {
        "capture": captured_at,
        "submit": experiment.view.trials[0].created_at,
        **{name: max(rank[name] for rank in ranks) for name in IN_RANKS},
        "first step": ranks[0]["first step"],
    }
    since = {name: moment - began_at for name, moment in moments.items()}
    return Start(since["first step"], since)


def floor(server: subprocess.Popen[str]) -> dict[str, float]:
    """Return the seconds until the end of each stage of a bare start."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return dict(zip(STAGES, json.loads(server.stdout.readline()), strict=True))


@contextmanager
def bare_fork_server() -> Iterator[subprocess.Popen[str]]:
    """Run the bare fork server."""
    command = [sys.executable, "-m", bare.__name__]
    with subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stdout.readline() == "ready\n"
        yield server
        server.stdin.close()


def lengths(ends: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the median seconds of each stage, given when the stages ended, start by start."""
    names = list(ends[0])
    before = [None, *names]
    return {
        name: statistics.median(end[name] - (end[last] if last else 0.0) for end in ends)
        for last, name in zip(before, names, strict=False)
    }


def moments_of_ranks(experiment: Experiment, folder: Path) -> list[dict[str, float]]:
    """Wait until an experiment has ended; return the moments of its ranks, the chief's first."""
    wait_until(lambda: experiment.state.is_terminal, "it has ended")
    if experiment.state is not State.COMPLETED:
        raise RuntimeError(f"no first step: {experiment!r} {experiment.view.message}")
    return [json.loads((folder / f"moments-{rank}").read_text()) for rank in range(2)]


def cold(folder: Path) -> float:
    """Return the same with no process running: master, agent and fork server are started too."""
    with det_home(folder, {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
        started_at = time.time()
        client = home.client()
        experiment = submit(client, config(batches=3), trial_source(folder), cwd=folder)
        [chief, _] = moments_of_ranks(experiment, folder)
        seconds = chief["first step"] - started_at
        client.session.close()
    return seconds


def torchrun() -> float:
    """Return seconds from starting torchrun to the first step of the same model."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    started_at = time.time()
    ended = subprocess.run(
        [*command, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", str(RIVAL)],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,  # only the step counts; torchrun sometimes fails when it exits
    )
    match = re.search(r"first step at ([\d.]+)", ended.stdout)
    if match is None:
        raise RuntimeError(f"torchrun took no step:\n{ended.stderr}")
    return float(match[1]) - started_at


def memory(home: DetHome, client: Client, folder: Path) -> dict[str, float]:
    """Return the master's resident and a warm rank's private memory, in MB."""
    client.session.get("/experiments")
    master_mb = home.master().memory_info().rss / 1e6
    experiment = submit(client, config(batches=200_000), trial_source(folder), cwd=folder)
    ranks = wait_until(
        lambda: [t.allocation.ranks for t in experiment.view.trials
                 if t.allocation and t.allocation.first_step_at],
        "the trial trains",
    )[0]  # fmt: skip
    private = [psutil.Process(rank.pid).memory_full_info().uss / 1e6 for rank in ranks]
    shared = psutil.Process(ranks[0].pid).memory_info().rss / 1e6 - private[0]
    experiment.kill()
    wait_until(lambda: experiment.state.is_terminal, "it is gone")
    return {
        "master_idle_rss_mb": round(master_mb, 1),
        "rank_private_mb": round(statistics.median(private), 1),
        "rank_shared_mb": round(shared, 1),
    }


def import_ms(rounds: int = 7) -> float:
    """Return the milliseconds by which `import det_jupyter` exceeds a bare interpreter."""

    def median(code: str) -> float:
        times = []
        for _ in range(rounds):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            times.append(time.perf_counter() - started)
        return statistics.median(times) * 1e3

    return round(median("import det_jupyter") - median("pass"), 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--warm", type=int, default=15, help="warm submissions")
    parser.add_argument("--rounds", type=int, default=3, help="cold starts, and torchrun starts")
    options = parser.parse_args(arguments(QUICK))
    colds, rivals, warms, floors = [], [], [], []
    with tempfile.TemporaryDirectory() as scratch:
        settings = {"DET_JUPYTER_CPU_SLOTS": "2"}
        with det_home(Path(scratch) / "warm", settings) as home, bare_fork_server() as server:
            client = home.client()
            ours(client, Path(scratch))
            floor(server)
            for index in range(options.warm):  # interleaved, so that noise affects all
                if index * options.rounds % options.warm < options.rounds:
                    colds.append(cold(Path(scratch) / f"cold{index}"))
                    rivals.append(torchrun())
                warms.append(ours(client, Path(scratch)))
                floors.append(floor(server))
            used = memory(home, client, Path(scratch))
            client.session.close()
    report_stages([warm.moments for warm in warms], floors)
    report(
        {
            "det_jupyter, warm": [warm.seconds for warm in warms],
            "floor (bare fork server)": [ends[STAGES[-1]] for ends in floors],
            "det_jupyter, cold": colds,
            "torchrun": rivals,
        },
        lengths([warm.moments for warm in warms]),
        used | {"import_ms": import_ms()},
    )


def report_stages(warms: Sequence[dict[str, float]], floors: Sequence[dict[str, float]]) -> None:
    """Print the duration of each stage, with that of the lower bound."""
    bare_lengths = lengths(floors)
    print(f"{'stage (median, ms)':20} {'warm':>8} {'floor':>8}")
    for name, length in lengths(warms).items():
        below = f"{bare_lengths[name] * 1e3:8.1f}" if name in bare_lengths else ""
        print(f"{name:20} {length * 1e3:8.1f} {below}")
    print()


def report(rows: dict[str, list[float]], stages: dict[str, float], more: dict[str, float]) -> None:
    """Print the table and the JSON line."""
    print(f"{'submit to first step of 2 ranks':34} {'median':>8} {'min':>8} {'max':>8}   n")
    for name, values in rows.items():
        numbers = [statistics.median(values), min(values), max(values)]
        print(f"{name:34} " + " ".join(f"{v:7.3f}s" for v in numbers) + f" {len(values):3d}")
    for name, value in more.items():
        print(f"{name:34} {value:8.1f}")
    warm, bare_start, cold_start, rival = (statistics.median(values) for values in rows.values())
    result = {
        "warm_p50_s": round(warm, 4),
        "floor_s": round(bare_start, 4),
        "ratio_floor": round(warm / bare_start, 2),
        "stages": {name: round(length, 4) for name, length in stages.items()},
        "cold_s": round(cold_start, 3),
        "torchrun_s": round(rival, 3),
        "ratio": round(rival / warm, 1),
        **more,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
