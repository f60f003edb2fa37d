"""The time from the death of a rank to the next step, and what is trained again.

    python -m tests.benchmarks.recovery [--deaths 10] [--mb 0 770] [--ranks 2 4] [--torchft FOLDER]

Each kind of death is inflicted on trials of 400 batches (24 with states above 100 MB) with a
checkpoint every quarter, one death a trial, at a random batch. "checkpoint" is what a gang does
that cannot save its last step: it begins again at the last checkpoint; its trial has a reducer of
its own. "windows" are of four batches; "sharded" is FSDP. A step counts as done when all ranks
have finished it. `--torchft` measures torchft (recovery_torchft.py) in an environment in that
folder, which is made if it does not exist. Prints a table, then one line of JSON, over all ranks
and sizes:

    p50_s, p95_s     from the kill to the end of the first step after it
    repeated_max     steps that were trained again
    identical        whether each trial ended with the weights of an undisturbed one
    fell_back        trials that began again at the last checkpoint
    torchft_...      to the next step of its survivors, and of the rank that was started anew;
                     medians, null where it was not measured
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product, starmap
from pathlib import Path
from site import getsitepackages
from typing import Any

import torch

from det_jupyter.client import Client, Experiment
from tests.benchmarks.quick import arguments
from tests.processes import det_home
from tests.trials import submit
from tests.waiting import wait_until

QUICK = "--deaths 1"
KEYS = {  # keys of the JSON in the last line
    "ranks", "state_mb", "p50_s", "p95_s", "repeated_max", "identical", "fell_back",
    "checkpoint_p50_s", "checkpoint_repeated_max", "torchft_next_s", "torchft_healed_s",
}  # fmt: skip

TRIAL = """
import os
import time
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

records = torch.randn(1024, 16, generator=torch.Generator().manual_seed(0))


class Measured(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        width = context.get_hparam("width")
        layers = nn.Linear(16, width), nn.Dropout(0.2), nn.Linear(width, 16), nn.BatchNorm1d(16)
        self.model = context.wrap_model(nn.Sequential(*layers))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        if context.get_hparam("has_reducer"):
            context.wrap_reducer(lambda values: 0.0, name="none", for_validation=False)
        rank = context.distributed.get_rank()
        path = f"{context.get_hparam('folder')}/{rank}"
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def build_training_data_loader(self):
        return DataLoader(records, self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(records[:64], 64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = (self.model(batch) - batch).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        time.sleep(0.005)
        os.write(self.file, f"{time.time()} {batch_idx}\\n".encode())
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        return {"error": (self.model(batch) - batch).square().mean()}
"""


@dataclass(frozen=True, slots=True)
class Death:
    """One disturbed trial: seconds to the next step, steps trained again, and how it went on."""

    seconds: float
    repeated: int
    weights: dict[str, Any]
    fell_back: bool
    is_equal: bool = False  # its weights to those of an undisturbed trial


@dataclass(frozen=True, slots=True)
class Setup:
    """The gang and its model: `mb` of weights and optimizer."""

    ranks: int
    mb: float

    @property
    def width(self) -> int:
        """The width of the hidden layer."""
        return max(16, int(self.mb * 1e6 / (3 * 4 * 33)))

    @property
    def batches(self) -> int:
        """The length of a trial; a checkpoint is saved every quarter."""
        return 400 if self.mb < 100 else 24


def start(
    client: Client,
    folder: Path,
    setup: Setup,
    *,
    has_reducer: bool = False,
    window: int = 1,
    sharding: str | None = None,
) -> Experiment:
    """Submit a trial that writes when each rank ends a batch into the folder."""
    folder.mkdir()
    hparams = {
        "global_batch_size": 8 * setup.ranks,
        "folder": str(folder),
        "width": setup.width,
        "has_reducer": has_reducer,
    }
    batches = setup.batches
    config = {
        "name": "recovery",
        "entrypoint": "Measured",
        "hyperparameters": hparams,
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": batches}},
        "min_validation_period": {"batches": batches},
        "min_checkpoint_period": {"batches": batches // 4},
        "optimizations": {"aggregation_frequency": window, "sharding": sharding},
        "resources": {"slots_per_trial": setup.ranks},
        "reproducibility": {"experiment_seed": 1},
    }
    return submit(client, config, TRIAL)


def ends_of(folder: Path, ranks: int) -> list[list[tuple[float, int]]]:
    """Return time and index of each batch that a rank has ended, by rank."""
    found = []
    for rank in range(ranks):
        file = folder / str(rank)
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        found.append([(float(at), int(index)) for at, index in map(str.split, lines)])
    return found


def last_weights(experiment: Experiment) -> dict[str, Any]:
    """Return the weights after the last batch."""
    last = max(experiment.checkpoints(), key=lambda one: one.steps_completed)
    state: dict[str, Any] = last.load().model.state_dict()
    return state


def kill(
    client: Client, folder: Path, setup: Setup, victims: Sequence[int], **options: Any
) -> Death:
    """Run a trial in which these ranks are killed together at a random batch."""
    experiment, ranks = start(client, folder, setup, **options), setup.ranks
    at = random.randrange(setup.batches // 4 + 3, setup.batches * 3 // 4)
    wait_until(
        lambda: all(ends and ends[-1][1] >= at for ends in ends_of(folder, ranks)),
        f"batch {at} has ended",
    )
    pids = [rank.view.pid for rank in experiment.trial.ranks]
    killed_at = time.time()
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    experiment.wait()
    by_rank = ends_of(folder, ranks)
    before = max(index for ends in by_rank for t, index in ends if t < killed_at)
    # Steps that survivors finish before they notice are done already.
    restarted = {rank: _restart(ends, killed_at) for rank, ends in enumerate(by_rank)}
    done_at = max(at for at, _ in restarted.values())
    first = max(index for _, index in restarted.values())
    weights = last_weights(experiment)
    is_back = not experiment.view.trials[0].num_recoveries
    return Death(done_at - killed_at, max(0, before + 1 - first), weights, is_back)


def _restart(ends: Sequence[tuple[float, int]], killed_at: float) -> tuple[float, int]:
    """Return time and index of the first batch that the second run of a rank has ended.

    The run begins where the time between two batches is longest.
    """
    late = [(at, index) for at, index in ends if at > killed_at - 0.5]
    gaps = [(after[0] - before[0], after) for before, after in pairwise(late)]
    return max(gaps)[1]


def measure(client: Client, root: Path, setup: Setup, deaths: int) -> dict[str, list[Death]]:
    """Inflict all kinds of deaths; return them by their kind."""
    last = [setup.ranks - 1]
    kinds: dict[str, tuple[list[int], dict[str, Any]]] = {
        "the last rank": (last, {}),
        "the chief": ([0], {}),
        "in windows": (last, {"window": 4}),
        "sharded": (last, {"sharding": "fsdp"}),
        "checkpoint": (last, {"has_reducer": True}),
    }
    if setup.ranks > 2:
        kinds["all but one"] = [*range(1, setup.ranks)], {}
    root.mkdir()
    found: dict[str, list[Death]] = {}
    for kind, (victims, options) in kinds.items():
        calm = start(client, root / f"{kind}-calm", setup, **options)
        calm.wait()
        expected = last_weights(calm)
        for number in range(deaths):
            death = kill(client, root / f"{kind}-{number}", setup, victims, **options)
            is_equal = all(torch.equal(death.weights[name], expected[name]) for name in expected)
            found.setdefault(kind, []).append(replace(death, weights={}, is_equal=is_equal))
    return found


def measure_torchft(folder: Path, setup: Setup, deaths: int) -> list[dict[str, float]]:
    """Return the times of torchft, which is installed into the folder if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        (site,) = folder.glob("lib/python*/site-packages")
        (site / "ours.pth").write_text("\n".join(getsitepackages()))
        pip = [str(python), "-m", "pip", "install", "-q"]
        subprocess.run([*pip, "opentelemetry-exporter-otlp-proto-http"], check=True)
        subprocess.run([*pip, "--no-deps", "torchft"], check=True)  # torch is ours
    found = []
    for _ in range(deaths):
        with tempfile.TemporaryDirectory() as where:
            arguments = [str(setup.ranks), str(setup.width), where]
            line = [str(python), "-m", "tests.benchmarks.recovery_torchft", *arguments]
            done = subprocess.run(line, capture_output=True, check=False)
        if done.returncode:
            print(f"torchft has failed: {done.stderr.decode().splitlines()[-1]}")
        else:
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def main() -> None:
    """Measure, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deaths", type=int, default=10, help="deaths of each kind")
    parser.add_argument(
        "--mb", type=float, nargs="+", default=[0.0], help="of weights and optimizer"
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--torchft", type=Path, metavar="FOLDER", help="environment of torchft")
    options = parser.parse_args(arguments(QUICK))
    ours, rivals, others = list[Death](), list[Death](), list[dict[str, float]]()
    print(f"{'killed':32}  p50 s  p95 s  repeated")
    with tempfile.TemporaryDirectory(prefix="rec-") as name:
        for setup in starmap(Setup, product(options.ranks, options.mb)):
            root = Path(name) / f"{setup.ranks}-{setup.mb:g}"
            slots = {"DET_JUPYTER_CPU_SLOTS": str(setup.ranks)}
            with det_home(Path(name) / f"home-{setup.ranks}-{setup.mb:g}", slots) as home:
                client = home.client()
                found = measure(client, root, setup, options.deaths)
                client.session.close()
            what = f"{setup.ranks} ranks, {setup.mb:g} MB"
            for kind, deaths in found.items():
                times, most = [one.seconds for one in deaths], max(one.repeated for one in deaths)
                print(f"{what}: {kind:16}  {_p(times, 50):5.2f}  {_p(times, 95):5.2f}  {most:8}")
            rivals += found.pop("checkpoint")
            ours += chain.from_iterable(found.values())
            if options.torchft is not None:
                of_torchft = measure_torchft(options.torchft, setup, options.deaths)
                others += of_torchft
                for key in of_torchft[0] if of_torchft else ():
                    times = [one[key] for one in of_torchft]
                    print(f"{what}: torchft {key:8}  {_p(times, 50):5.2f}  {_p(times, 95):5.2f}")
    times = [death.seconds for death in ours]
    print(
        json.dumps(
            {
                "ranks": options.ranks,
                "state_mb": options.mb,
                "p50_s": round(_p(times, 50), 3),
                "p95_s": round(_p(times, 95), 3),
                "repeated_max": max(death.repeated for death in ours),
                "identical": all(death.is_equal for death in ours),
                "fell_back": sum(death.fell_back for death in ours),
                "checkpoint_p50_s": round(_p([one.seconds for one in rivals], 50), 3),
                "checkpoint_repeated_max": max(one.repeated for one in rivals),
                "torchft_next_s": _median(others, "next_s"),
                "torchft_healed_s": _median(others, "healed_s"),
            }
        )
    )


def _median(found: Sequence[dict[str, float]], key: str) -> float | None:
    return round(statistics.median(one[key] for one in found), 3) if found else None


def _p(times: Sequence[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1] if len(times) > 1 else times[0]


if __name__ == "__main__":
    main()
