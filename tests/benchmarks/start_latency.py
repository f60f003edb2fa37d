"""How long from submitting a trial to its first optimizer step, against torchrun, in one run.

    python -m tests.benchmarks.start_latency [--warm 15] [--rounds 3]

Both take the first step of the same 2-rank DDP model on gloo. Ours counts from before the capture
to the moment that the chief noted after its first step; torchrun's from before its process starts
to the moment its rank 0 printed after the same step. "Cold" starts master, agent and fork server
too. Prints a table and last one JSON line.
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
from pathlib import Path
from typing import Any

import psutil

from det_jupyter.client import Client, Experiment, Follower
from tests.processes import DetHome, det_home, wait_until
from tests.trials import submit

RIVAL = Path(__file__).with_name("first_step_script.py")
TRIAL = """
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

torch.manual_seed(0)
dataset = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))


class FirstStepTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.01))

    def build_training_data_loader(self):
        return DataLoader(dataset, self.context.get_per_slot_batch_size())

    def build_validation_data_loader(self):
        return DataLoader(dataset, 64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        inputs, targets = batch
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
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


def ours(client: Client) -> float:
    """Return seconds from submission to the first step of a fresh trial."""
    started_at = time.time()
    experiment = submit(client, config(batches=3), TRIAL)
    return first_step_at(client, experiment) - started_at


def first_step_at(client: Client, experiment: Experiment) -> float:
    seen: list[float] = []

    def note(live: Any) -> None:
        for trial in live.experiment.trials:
            if trial.allocation is not None and trial.allocation.first_step_at is not None:
                seen.append(trial.allocation.first_step_at)

    Follower(client, experiment.id, note).start().thread.join(timeout=60)
    if not seen:
        raise RuntimeError(f"no first step: {experiment!r} {experiment.view.message}")
    return seen[0]


def cold(folder: Path) -> float:
    """Return the same with nothing running: master, agent and fork server are started for it."""
    with det_home(folder, {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
        started_at = time.time()
        client = home.client()
        experiment = submit(client, config(batches=3), TRIAL)
        seconds = first_step_at(client, experiment) - started_at
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
        check=False,  # what counts is the step; torchrun now and then fails at its own ending
    )
    match = re.search(r"first step at ([\d.]+)", ended.stdout)
    if match is None:
        raise RuntimeError(f"torchrun took no step:\n{ended.stderr}")
    return float(match[1]) - started_at


def memory(home: DetHome, client: Client) -> dict[str, float]:
    """Return the master's resident and a warm rank's private memory, in MB."""
    client.session.get("/experiments")
    master_mb = home.master().memory_info().rss / 1e6
    experiment = submit(client, config(batches=200_000), TRIAL)
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
    """Return what `import det_jupyter` costs over a bare interpreter, in milliseconds."""

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
    options = parser.parse_args()
    colds, rivals = [], []
    with tempfile.TemporaryDirectory() as scratch:
        for index in range(options.rounds):  # interleaved: noise hits both alike
            colds.append(cold(Path(scratch) / f"cold{index}"))
            rivals.append(torchrun())
        with det_home(Path(scratch) / "warm", {"DET_JUPYTER_CPU_SLOTS": "2"}) as home:
            client = home.client()
            ours(client)
            warms = [ours(client) for _ in range(options.warm)]
            used = memory(home, client)
            client.session.close()
    report(warms, colds, rivals, used | {"import_ms": import_ms()})


def report(
    warms: list[float], colds: list[float], rivals: list[float], more: dict[str, float]
) -> None:
    """Print the table and the JSON line."""
    rows = {"det_jupyter, warm": warms, "det_jupyter, cold": colds, "torchrun": rivals}
    print(f"{'submit to first step of 2 ranks':34} {'median':>8} {'min':>8} {'max':>8}   n")
    for name, values in rows.items():
        numbers = [statistics.median(values), min(values), max(values)]
        print(f"{name:34} " + " ".join(f"{v:7.3f}s" for v in numbers) + f" {len(values):3d}")
    for name, value in more.items():
        print(f"{name:34} {value:8.1f}")
    warm, rival = statistics.median(warms), statistics.median(rivals)
    result = {
        "warm_p50_s": round(warm, 4),
        "cold_s": round(statistics.median(colds), 3),
        "torchrun_s": round(rival, 3),
        "ratio": round(rival / warm, 1),
        **more,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
