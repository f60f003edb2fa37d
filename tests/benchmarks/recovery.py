"""The time from the death of a rank to the next step, and what is trained again.

    python -m tests.benchmarks.recovery [--deaths 10] [--mb 0 770] [--ranks 2 4] [--kinds KIND ...]
        [--torchft FOLDER]

Each kind of death is inflicted on trials of 400 batches (24 with states above 100 MB, 12 above
500 MB) with a checkpoint every quarter, one death a trial, at a random batch. "checkpoint" is what
a gang does that cannot save its last step: it begins again at the last checkpoint; its trial has a
reducer of its own. "windows" are of four batches; "sharded" is FSDP. A step counts as done when
all ranks have finished it. The floor (recovery_floor.py) is the time of a loop that keeps the
processes that survive. `--torchft` measures torchft (recovery_torchft.py) in an environment in
that folder, which is made if it does not exist. Prints a table, then one line of JSON, over all
ranks and sizes:

    p50_s, p95_s     from the kill to the end of the first step after it
    new_p50_s        from the kill to the end of the first step that was not done before
    cpu_p50_s        CPU time of all ranks until the first step, from the last one before the kill
    repeated_max     steps that were trained again
    identical        whether each trial ended with the weights of an undisturbed one
    fell_back        trials that began again at the last checkpoint
    checkpoint_...   the same of the kind "checkpoint"
    floor_...        the same of the floor
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
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, product, starmap
from pathlib import Path
from site import getsitepackages
from typing import Any, NamedTuple

import psutil
import torch

from det_jupyter.client import Client, Experiment
from tests.benchmarks.quick import arguments
from tests.processes import det_home
from tests.trials import submit
from tests.waiting import wait_until

QUICK = "--deaths 1"
KINDS = ("last", "chief", "windows", "sharded", "checkpoint", "most")
KEYS = {  # keys of the JSON in the last line
    "ranks", "state_mb", "p50_s", "p95_s", "new_p50_s", "cpu_p50_s", "repeated_max", "identical",
    "fell_back", "checkpoint_p50_s", "checkpoint_new_p50_s", "checkpoint_cpu_p50_s",
    "checkpoint_repeated_max", "floor_s", "floor_cpu_s", "torchft_next_s", "torchft_healed_s",
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
        line = f"{time.time()} {batch_idx} {os.getpid()} {time.process_time()}\\n"
        os.write(self.file, line.encode())
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        return {"error": (self.model(batch) - batch).square().mean()}
"""


@dataclass(frozen=True, slots=True)
class Death:
    """One disturbed trial: what the last line has of it, and how it went on."""

    seconds: float
    new_s: float
    cpu_s: float
    repeated: int
    weights: dict[str, Any]
    fell_back: bool
    is_equal: bool = False  # its weights to those of an undisturbed trial


class End(NamedTuple):
    """The end of a batch of a rank: its time, and the process with its CPU time until then."""

    at: float
    batch: int
    pid: int
    cpu_s: float


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
        return 400 if self.mb < 100 else 24 if self.mb < 500 else 12


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


def ends_of(folder: Path, ranks: int) -> list[list[End]]:
    """Return the batches that a rank has ended, by rank."""
    found = []
    for rank in range(ranks):
        file = folder / str(rank)
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        rows = map(str.split, lines)
        found.append([End(float(at), int(i), int(pid), float(cpu)) for at, i, pid, cpu in rows])
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
        lambda: all(ends and ends[-1].batch >= at for ends in ends_of(folder, ranks)),
        f"batch {at} has ended",
    )
    pids = [rank.view.pid for rank in experiment.trial.ranks]
    killed_at = time.time()
    for victim in victims:
        os.kill(pids[victim], signal.SIGKILL)
    at_end = cpu_at_end([pid for rank, pid in enumerate(pids) if rank not in victims])
    experiment.wait()
    by_rank = ends_of(folder, ranks)
    last = {end.pid: end for ends in by_rank for end in ends if end.pid in pids}
    first = [next(end for end in ends if end.pid not in pids) for ends in by_rank]
    done = max(end.batch for end in last.values())
    new = [
        next(end for end in ends if end.pid not in pids and end.batch > done) for ends in by_rank
    ]
    spent = sum(cpu_s - last[pid].cpu_s for pid, cpu_s in at_end.items())
    return Death(
        seconds=max(end.at for end in first) - killed_at,
        new_s=max(end.at for end in new) - killed_at,
        cpu_s=spent + sum(end.cpu_s for end in first),
        repeated=done + 1 - first[0].batch,
        weights=last_weights(experiment),
        fell_back=not experiment.view.trials[0].num_recoveries,
    )


def cpu_at_end(pids: Sequence[int]) -> dict[int, float]:
    """Return the CPU time of each process when it ends."""
    found, living = dict.fromkeys(pids, 0.0), {pid: psutil.Process(pid) for pid in pids}
    while living:
        for pid, process in [*living.items()]:
            with suppress(psutil.NoSuchProcess):
                if process.status() != psutil.STATUS_ZOMBIE:
                    times = process.cpu_times()
                    found[pid] = times.user + times.system
                    continue
            del living[pid]
        time.sleep(0.005)
    return found


def measure(
    client: Client, root: Path, setup: Setup, deaths: int, kinds: Sequence[str]
) -> dict[str, list[Death]]:
    """Inflict these kinds of deaths; return them by their kind."""
    last = [setup.ranks - 1]
    known: dict[str, tuple[list[int], dict[str, Any]]] = {
        "last": (last, {}),
        "chief": ([0], {}),
        "windows": (last, {"window": 4}),
        "sharded": (last, {"sharding": "fsdp"}),
        "checkpoint": (last, {"has_reducer": True}),
        "most": ([*range(1, setup.ranks)], {}),
    }
    root.mkdir()
    found: dict[str, list[Death]] = {}
    for kind in kinds:
        victims, options = known[kind]
        if kind == "most" and setup.ranks == 2:
            continue
        calm = start(client, root / f"{kind}-calm", setup, **options)
        calm.wait()
        expected = last_weights(calm)
        for number in range(deaths):
            death = kill(client, root / f"{kind}-{number}", setup, victims, **options)
            is_equal = all(torch.equal(death.weights[name], expected[name]) for name in expected)
            found.setdefault(kind, []).append(replace(death, weights={}, is_equal=is_equal))
    return found


def measure_floor(setup: Setup, deaths: int) -> list[dict[str, float]]:
    """Return the times of a loop that keeps the processes that survive."""
    line = [sys.executable, "-m", "tests.benchmarks.recovery_floor", str(setup.ranks)]
    line.append(str(setup.width))
    found = []
    for _ in range(deaths):
        done = subprocess.run(line, capture_output=True, check=True)
        found.append(json.loads(done.stdout.splitlines()[-1]))
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
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="kinds of deaths")
    parser.add_argument("--torchft", type=Path, metavar="FOLDER", help="environment of torchft")
    options = parser.parse_args(arguments(QUICK))
    ours, rivals, others = list[Death](), list[Death](), list[dict[str, float]]()
    floors = list[dict[str, float]]()
    print(f"{'killed':32}  p50 s  p95 s  new s  CPU s  repeated")
    with tempfile.TemporaryDirectory(prefix="rec-") as name:
        for setup in starmap(Setup, product(options.ranks, options.mb)):
            root = Path(name) / f"{setup.ranks}-{setup.mb:g}"
            slots = {"DET_JUPYTER_CPU_SLOTS": str(setup.ranks)}
            with det_home(Path(name) / f"home-{setup.ranks}-{setup.mb:g}", slots) as home:
                client = home.client()
                found = measure(client, root, setup, options.deaths, options.kinds)
                client.session.close()
            what = f"{setup.ranks} ranks, {setup.mb:g} MB"
            for kind, deaths in found.items():
                times, most = [one.seconds for one in deaths], max(one.repeated for one in deaths)
                new, cpu = ([getattr(one, key) for one in deaths] for key in ("new_s", "cpu_s"))
                print(
                    f"{what}: {kind:16}  {_p(times, 50):5.2f}  {_p(times, 95):5.2f}  "
                    f"{_p(new, 50):5.2f}  {_p(cpu, 50):5.2f}  {most:8}"
                )
            floors += (of_floor := measure_floor(setup, options.deaths))
            floor_s, cpu_s = _median(of_floor, "floor_s"), _median(of_floor, "cpu_s")
            print(f"{what}: {'floor':16}  {floor_s:5.2f}  {'':12}  {cpu_s:5.2f}")
            rivals += found.pop("checkpoint", [])
            ours += chain.from_iterable(found.values())
            if options.torchft is not None:
                of_torchft = measure_torchft(options.torchft, setup, options.deaths)
                others += of_torchft
                for key in of_torchft[0] if of_torchft else ():
                    times = [one[key] for one in of_torchft]
                    print(f"{what}: torchft {key:8}  {_p(times, 50):5.2f}  {_p(times, 95):5.2f}")
    print(
        json.dumps(
            {
                "ranks": options.ranks,
                "state_mb": options.mb,
                **_summary(ours, ""),
                "p95_s": _p([death.seconds for death in ours], 95),
                "identical": all(death.is_equal for death in ours),
                "fell_back": sum(death.fell_back for death in ours),
                **_summary(rivals, "checkpoint_"),
                "floor_s": _median(floors, "floor_s"),
                "floor_cpu_s": _median(floors, "cpu_s"),
                "torchft_next_s": _median(others, "next_s"),
                "torchft_healed_s": _median(others, "healed_s"),
            }
        )
    )


def _summary(deaths: Sequence[Death], prefix: str) -> dict[str, float | None]:
    return {
        f"{prefix}p50_s": _p([one.seconds for one in deaths], 50),
        f"{prefix}new_p50_s": _p([one.new_s for one in deaths], 50),
        f"{prefix}cpu_p50_s": _p([one.cpu_s for one in deaths], 50),
        f"{prefix}repeated_max": max((one.repeated for one in deaths), default=None),
    }


def _median(found: Sequence[dict[str, float]], key: str) -> float | None:
    return round(statistics.median(one[key] for one in found), 3) if found else None


def _p(times: Sequence[float], percent: int) -> float | None:
    if len(times) < 2:
        return round(times[0], 3) if times else None
    return round(statistics.quantiles(times, n=100)[percent - 1], 3)


if __name__ == "__main__":
    main()
