"""The experiments of the soak: a class, searches over it, and a script, in a rank or as a command.

All but one search always have the same result. The class has all state that a continued run could
restore wrongly: shuffling with loader workers, dropout, momentum, a scheduler, a callback with a
counter and a generator of its own. Each rank prints a line for each batch, with its own loss. An
elastic trial lacks what depends on the number of ranks: dropout, BatchNorm, noise, that loss.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from det_jupyter.client import Client, Experiment
from tests.scripts import create as create_script
from tests.trials import capture_trial, create

Kind = Literal["class", "search", "script", "command", "halving", "windows", "elastic"]
# Kinds whose result is reproducible. A search that compares trials when they arrive at a rung
# depends on their order.
DYING: tuple[Kind, ...] = ("class", "windows", "elastic")  # of ranks that survive each other
COMPARED: tuple[Kind, ...] = ("class", "search", "script", "command", "elastic")

STEPS = 60
RESTARTS = 1000  # the trial is at fault for none of the failures, but the master counts them

SOURCE = """
import time
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, LRScheduler, PyTorchCallback, PyTorchTrial

torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = inputs.sum(dim=1, keepdim=True)
dataset = torch.utils.data.TensorDataset(inputs, targets)


class Noise(PyTorchCallback):
    def __init__(self, seed):
        self.seen = 0
        self.generator = torch.Generator().manual_seed(seed)

    def on_training_batch_end(self, metrics, epoch_idx, batch_idx):
        self.seen += 1
        torch.rand(1, generator=self.generator)

    def state_dict(self):
        return {"seen": self.seen, "generator": self.generator.get_state()}

    def load_state_dict(self, state):
        self.seen = state["seen"]
        self.generator.set_state(state["generator"])


class SoakTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        config = context.get_experiment_config()
        self.in_windows = config["optimizations"]["aggregation_frequency"] > 1
        self.is_elastic = isinstance(config["resources"]["slots_per_trial"], dict)
        self.dtype = torch.float64 if self.is_elastic else torch.float32
        layers = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1)
        if self.is_elastic:
            layers = layers[0], layers[2], layers[4]
        self.model = context.wrap_model(nn.Sequential(*layers).to(self.dtype))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"), momentum=0.9)
        )
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.99),
            LRScheduler.StepMode.STEP_EVERY_OPTIMIZER_STEP,
        )
        self.noise = Noise(context.get_trial_seed())
        self.pause_s = context.get_hparam("pause_s")

    def build_callbacks(self):
        return {} if self.in_windows else {"noise": self.noise}

    def build_training_data_loader(self):
        size = self.context.get_per_slot_batch_size()
        return DataLoader(dataset, size, shuffle=True, num_workers=1)

    def build_validation_data_loader(self):
        return DataLoader(dataset, 64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(self.pause_s)
        x, y = (each.to(self.dtype) for each in batch)
        noise = 0.0 if self.is_elastic else torch.randn(y.shape)
        loss = nn.functional.mse_loss(self.model(x), y + 0.1 * noise)
        print(f"batch {batch_idx + 1}: loss {0.0 if self.is_elastic else loss.item():.9g}")
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        x, y = (each.to(self.dtype) for each in batch)
        return {"error": nn.functional.mse_loss(self.model(x), y)}
"""

SCRIPT = """
import json
import random
import sys
import time
from det_jupyter import core

with core.init() as context:
    info = context.info.trial
    draw, value, first = random.Random(info.trial_seed), 1.0, 0
    if (uuid := context.info.latest_checkpoint) is not None:
        with context.checkpoint.restore_path(uuid) as path:
            state = json.loads((path / "state.json").read_text())
        first, value = state["first"], state["value"]
        kind, numbers, rest = state["draw"]
        draw.setstate((kind, tuple(numbers), rest))

    def save(steps):
        state = {"first": steps, "value": value, "draw": draw.getstate()}
        with context.checkpoint.store_path({"steps_completed": steps}) as (path, uuid):
            (path / "state.json").write_text(json.dumps(state))

    for steps in range(first + 1, 61):
        time.sleep(info.hparams["pause_s"])
        value = 0.9 * value + 0.1 * draw.random()
        print(f"batch {steps}: loss {value:.9g}", flush=True)
        context.train.report_training_metrics(steps, {"loss": value})
        if steps % 20 == 0:
            context.train.report_validation_metrics(steps, {"error": value})
            save(steps)
        if steps < 60 and context.preempt.should_preempt():
            if steps % 20:
                save(steps)
            break
"""

_SEARCHES: dict[Kind, dict[str, Any]] = {
    "class": {"name": "single", "max_length": {"batches": STEPS}},
    "windows": {"name": "single", "max_length": {"batches": STEPS}},
    "elastic": {"name": "single", "max_length": {"batches": STEPS}},
    "search": {"name": "random", "max_length": {"batches": 40}, "max_trials": 3},
    "script": {"name": "single", "max_length": {"batches": STEPS}},
    "command": {"name": "single", "max_length": {"batches": STEPS}},
    "halving": {
        "name": "async_halving", "max_length": {"batches": 45}, "num_rungs": 3, "divisor": 3,
        "max_trials": 6,
    },
}  # fmt: skip
# A shell is started as a separate process; a Python script is run by the rank.
_ENTRYPOINTS: dict[Kind, str] = {
    "script": "python3 train.py",
    "command": "sh -c 'exec python3 train.py'",
}


_RANGE = {"min": 1, "max": 4}


def config_of(kind: Kind, *, pause_s: float = 0.0, **changes: Any) -> dict[str, Any]:
    """Return the configuration of an experiment that the soak runs.

    Args:
        kind: The kind of experiment.
        pause_s: Least seconds per batch.
        changes: Top-level keys to replace.
    """
    is_search = kind in ("search", "halving")
    lr = {"type": "double", "minval": 0.001, "maxval": 0.02} if is_search else 0.01
    return {
        "name": f"soak: {kind}",
        "entrypoint": "SoakTrial",
        "hyperparameters": {"global_batch_size": 16, "pause_s": pause_s, "lr": lr},
        "searcher": {"metric": "error", **_SEARCHES[kind]},
        "min_validation_period": {"batches": 20 if kind in DYING else 15},
        "resources": {"slots_per_trial": slots_of(kind)},
        "optimizations": {"aggregation_frequency": 4 if kind == "windows" else 1},
        "reproducibility": {"experiment_seed": 11},
        # The best validation so far depends on the order of a search's trials, so all are saved.
        "checkpoint_policy": "all",
        "checkpoint_storage": {"save_trial_latest": 1000},
        "profiling": {"enabled": True},
        "max_restarts": RESTARTS,
    } | changes


def slots_of(kind: Kind) -> int | dict[str, int]:
    """Return the key `resources.slots_per_trial`."""
    if kind == "elastic":
        return _RANGE
    return 2 if kind in DYING else 1


def submit(client: Client, folder: Path, kind: Kind, **changes: Any) -> Experiment:
    """Submit an experiment of this kind; the options are those of `config_of`."""
    config = config_of(kind, **changes)
    if kind not in _ENTRYPOINTS:
        return create(client, config, capture_trial(client, "SoakTrial", SOURCE))
    scripts = folder / "script"
    scripts.mkdir(exist_ok=True)
    (scripts / "train.py").write_text(SCRIPT)
    config["entrypoint"] = _ENTRYPOINTS[kind]
    del config["profiling"], config["min_validation_period"]
    return create_script(client, json.dumps(config), context=scripts)
