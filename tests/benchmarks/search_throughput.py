"""The throughput of short trials of a random search on two slots, against Ray Tune and Optuna.

    python -m tests.benchmarks.search_throughput [--trials 100] [--rivals ray optuna]

All train the same small model for 50 batches with learning rates drawn at random, two trials at a
time, one CPU thread each. Ours runs each trial in processes of its own and stores metrics,
checkpoint and output; Ray Tune runs it in an actor; Optuna in a thread of one process, where
nothing is isolated or stored: the lower bound. "Busy" is the time spent in training batches,
divided by the time of the two slots. Rivals that are not installed are left out (extra `bench`).
Prints a table and last one JSON line.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.quick import arguments
from tests.processes import det_home
from tests.trials import submit

QUICK = "--trials 4 --rivals"
KEYS = {"det_jupyter_s_per_trial", "det_jupyter_busy"}  # keys of the JSON in the last line

SLOTS = 2
BATCHES = 50
TRIAL = """
import time
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

torch.manual_seed(0)
dataset = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))


class ShortTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        self.model = context.wrap_model(model)
        lr = context.get_hparam("lr")
        self.optimizer = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=lr))
        self.busy_s = 0.0

    def build_training_data_loader(self):
        return DataLoader(dataset, 64, shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(dataset, 256)

    def train_batch(self, batch, epoch_idx, batch_idx):
        began = time.perf_counter()
        loss = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        self.busy_s += time.perf_counter() - began
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        error = nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        return {"error": error, "busy_s": self.busy_s}
"""


def train(lr: float) -> tuple[float, float]:
    """Train like ShortTrial, without a framework; return the error and the seconds of work."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    data = torch.utils.data.TensorDataset(torch.randn(256, 64), torch.randint(0, 10, (256,)))
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    busy_s, done = 0.0, 0
    while done < BATCHES:
        for inputs, targets in torch.utils.data.DataLoader(data, 64, shuffle=True):
            began = time.perf_counter()
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            busy_s += time.perf_counter() - began
            done += 1
            if done == BATCHES:
                break
    with torch.no_grad():
        return nn.functional.cross_entropy(model(data[:][0]), data[:][1]).item(), busy_s


def ours(trials: int) -> tuple[float, float]:
    """Return the seconds from submission to the end, and the seconds of work in them."""
    searcher = {
        "name": "random",
        "metric": "error",
        "max_length": {"batches": BATCHES},
        "max_trials": trials,
    }
    config = {
        "entrypoint": "ShortTrial",
        "hyperparameters": {
            "global_batch_size": 64,
            "lr": {"type": "log", "base": 10, "minval": -4, "maxval": -1},
        },
        "searcher": searcher,
        "checkpoint_policy": "none",
        "reproducibility": {"experiment_seed": 1},
    }
    with (
        tempfile.TemporaryDirectory() as scratch,
        det_home(Path(scratch), {"DET_JUPYTER_CPU_SLOTS": str(SLOTS)}) as home,
    ):
        client = home.client()
        submit(client, config | {"searcher": searcher | {"max_trials": 2}}, TRIAL).wait()
        began = time.perf_counter()
        experiment = submit(client, config, TRIAL)
        experiment.wait()
        wall_s = time.perf_counter() - began
        busy_s = [curve.values[-1] for curve in experiment.curves() if curve.name == "busy_s"]
        assert len(busy_s) == trials, f"{len(busy_s)} trials have reported"
        client.session.close()
    return wall_s, sum(value or 0.0 for value in busy_s)


def optuna_in_process(trials: int) -> tuple[float, float]:
    """Return the same for Optuna, two trials at a time in threads."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    busy: list[float] = []

    def objective(trial: Any) -> float:
        error, busy_s = train(trial.suggest_float("lr", 1e-4, 1e-1, log=True))
        busy.append(busy_s)
        return error

    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    began = time.perf_counter()
    study.optimize(objective, n_trials=trials, n_jobs=SLOTS)
    return time.perf_counter() - began, sum(busy)


def ray_tune(trials: int) -> tuple[float, float]:
    """Return the same for Ray Tune on a local Ray of two CPUs that runs already."""
    import ray
    from ray import tune

    os.environ["RAY_DEDUP_LOGS"] = "0"
    quiet = {"include_dashboard": False, "log_to_driver": False, "logging_level": logging.ERROR}
    ray.init(num_cpus=SLOTS, **quiet)

    def trainable(config: dict[str, float]) -> None:
        error, busy_s = train(config["lr"])
        tune.report({"error": error, "busy_s": busy_s})

    try:
        with tempfile.TemporaryDirectory() as scratch:
            tuner = tune.Tuner(
                trainable,
                param_space={"lr": tune.loguniform(1e-4, 1e-1)},
                tune_config=tune.TuneConfig(num_samples=trials, metric="error", mode="min"),
                run_config=tune.RunConfig(storage_path=scratch, verbose=0),
            )
            began = time.perf_counter()
            results = tuner.fit()
            wall_s = time.perf_counter() - began
            metrics = [results[index].metrics for index in range(len(results))]
            return wall_s, sum(metric["busy_s"] for metric in metrics)
    finally:
        ray.shutdown()


RIVALS: dict[str, Callable[[int], tuple[float, float]]] = {
    "optuna": optuna_in_process,
    "ray": ray_tune,
}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--rivals", nargs="*", choices=[*RIVALS], default=[*RIVALS])
    parser.add_argument("--ray-trials", type=int, default=20, help="fewer: it takes its time")
    options = parser.parse_args(arguments(QUICK))
    measured = {"det_jupyter": (options.trials, *ours(options.trials))}
    for name in options.rivals:
        trials = options.ray_trials if name == "ray" else options.trials
        try:
            measured[name] = (trials, *RIVALS[name](trials))
        except ImportError:
            print(f"{name} is not installed: left out (pip install 'det-jupyter[bench]')")
    report(measured)


def report(measured: dict[str, tuple[int, float, float]]) -> None:
    """Print the table and the JSON line."""
    print(f"{'':14} {'trials':>7} {'wall':>9} {'a trial':>9} {'busy':>7}")
    result: dict[str, float] = {}
    for name, (trials, wall_s, busy_s) in measured.items():
        busy = busy_s / (SLOTS * wall_s)
        print(f"{name:14} {trials:7d} {wall_s:8.2f}s {wall_s / trials:8.3f}s {busy:7.1%}")
        result[f"{name}_s_per_trial"] = round(wall_s / trials, 4)
        result[f"{name}_busy"] = round(busy, 4)
    ours_s = result["det_jupyter_s_per_trial"]
    for name in measured.keys() - {"det_jupyter"}:
        result[f"{name}_ratio"] = round(result[f"{name}_s_per_trial"] / ours_s, 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
