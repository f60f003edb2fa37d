"""The time from the death of a rank to the next step, and what is trained again.

    python -m tests.benchmarks.recovery [--deaths 10] [--mb 0] [--ranks 2]

Each kind of death is inflicted on trials of 400 batches with a checkpoint every 100, one death a
trial, at a random batch. "checkpoint" is what a gang does that cannot save its last step: it
begins again at the last checkpoint; its trial has a reducer of its own. A step counts as done when
all ranks have finished it. Prints a table, then one line of JSON:

    p50_s, p95_s     from the kill to the end of the first step after it
    repeated_max     steps that were trained again
    identical        whether each trial ended with the weights of an undisturbed one
    fell_back        trials that began again at the last checkpoint
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
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
    "checkpoint_p50_s", "checkpoint_repeated_max",
}  # fmt: skip

BATCHES, PERIOD = 400, 100
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
        layers = nn.Sequential(nn.Linear(16, width), nn.Dropout(0.2), nn.Linear(width, 16))
        self.model = context.wrap_model(layers)
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
    """One disturbed trial: seconds to the next step, steps trained again, and its weights."""

    seconds: float
    repeated: int
    weights: dict[str, Any]


def start(
    client: Client, folder: Path, ranks: int, width: int, *, has_reducer: bool
) -> Experiment:
    """Submit a trial that writes when each rank ends a batch into the folder."""
    folder.mkdir()
    hparams = {
        "global_batch_size": 8 * ranks,
        "folder": str(folder),
        "width": width,
        "has_reducer": has_reducer,
    }
    config = {
        "name": "recovery",
        "entrypoint": "Measured",
        "hyperparameters": hparams,
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": BATCHES}},
        "min_validation_period": {"batches": BATCHES},
        "min_checkpoint_period": {"batches": PERIOD},
        "resources": {"slots_per_trial": ranks},
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
    client: Client,
    folder: Path,
    ranks: int,
    width: int,
    victims: Sequence[int],
    *,
    has_reducer: bool = False,
) -> Death:
    """Run a trial in which these ranks are killed together at a random batch."""
    experiment = start(client, folder, ranks, width, has_reducer=has_reducer)
    at = random.randrange(PERIOD + 10, BATCHES - 50)
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
    return Death(done_at - killed_at, max(0, before + 1 - first), last_weights(experiment))


def _restart(ends: Sequence[tuple[float, int]], killed_at: float) -> tuple[float, int]:
    """Return time and index of the first batch that the second run of a rank has ended.

    The run begins where the time between two batches is longest.
    """
    late = [(at, index) for at, index in ends if at > killed_at - 0.5]
    gaps = [(after[0] - before[0], after) for before, after in pairwise(late)]
    return max(gaps)[1]


def main() -> None:
    """Measure, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deaths", type=int, default=10, help="deaths of each kind")
    parser.add_argument("--mb", type=float, default=0.0, help="size of weights and optimizer")
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args(arguments(QUICK))
    ranks = options.ranks
    width = max(16, int(options.mb * 1e6 / (3 * 4 * 33)))
    kinds: dict[str, list[int]] = {"the last rank": [ranks - 1], "the chief": [0]}
    if ranks > 2:
        kinds["all but one"] = [*range(1, ranks)]
    with tempfile.TemporaryDirectory(prefix="rec-") as name:
        root = Path(name)
        with det_home(root / "home", {"DET_JUPYTER_CPU_SLOTS": str(ranks)}) as home:
            client = home.client()
            calm = start(client, root / "calm", ranks, width, has_reducer=False)
            calm.wait()
            expected = last_weights(calm)
            found: dict[str, list[Death]] = {}
            for number in range(options.deaths):
                for kind, victims in kinds.items():
                    folder = root / f"{kind}-{number}"
                    death = kill(client, folder, ranks, width, victims)
                    found.setdefault(kind, []).append(death)
                folder = root / f"checkpoint-{number}"
                death = kill(client, folder, ranks, width, [ranks - 1], has_reducer=True)
                found.setdefault("checkpoint", []).append(death)
            client.session.close()
    print(f"{'killed':16}  p50 s  p95 s  repeated")
    for kind, deaths in found.items():
        times = [death.seconds for death in deaths]
        most = max(death.repeated for death in deaths)
        print(f"{kind:16}  {_p(times, 50):5.2f}  {_p(times, 95):5.2f}  {most:8}")
    rivals = found.pop("checkpoint")
    ours = [death for deaths in found.values() for death in deaths]
    times = [death.seconds for death in ours]
    print(
        json.dumps(
            {
                "ranks": ranks,
                "state_mb": round(sum(t.numel() for t in expected.values()) * 12 / 1e6, 1),
                "p50_s": round(_p(times, 50), 3),
                "p95_s": round(_p(times, 95), 3),
                "repeated_max": max(death.repeated for death in ours),
                "identical": all(_equal(death.weights, expected) for death in ours),
                "fell_back": sum(death.repeated > 1 for death in ours),
                "checkpoint_p50_s": round(_p([one.seconds for one in rivals], 50), 3),
                "checkpoint_repeated_max": max(one.repeated for one in rivals),
            }
        )
    )


def _p(times: Sequence[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1] if len(times) > 1 else times[0]


def _equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return all(torch.equal(one[name], tensor) for name, tensor in other.items())


if __name__ == "__main__":
    main()
