"""Trials as a notebook would define them, and functions to submit them without a notebook."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import AllocationView, Capsule, CreateExperiment, ExperimentView
from det_jupyter.front.notebook.capture.capture import capture
from tests.waiting import wait_until

# A small regression with all state that a resumed run could restore wrongly: shuffling, dropout,
# momentum. `pause_s` slows it down. A test that interferes has it wait at a `Gate`, or train LONG.
TRIAL_SOURCE = """
import time
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

torch.manual_seed(0)
inputs = torch.randn(256, 8)
targets = inputs.sum(dim=1, keepdim=True)
dataset = torch.utils.data.TensorDataset(inputs, targets)


class SmallTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        )
        self.pause_s = context.get_hparam("pause_s")

    def build_training_data_loader(self):
        return DataLoader(dataset, self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self):
        return DataLoader(dataset, 64)

    def train_batch(self, batch, epoch_idx, batch_idx):
        time.sleep(self.pause_s)
        x, y = batch
        loss = nn.functional.mse_loss(self.model(x), y)
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch, batch_idx):
        x, y = batch
        return {"error": nn.functional.mse_loss(self.model(x), y)}
"""

PAUSE = "        time.sleep(self.pause_s)"  # the first line of its train_batch
# Longer than any test takes: the test kills it.
LONG = {"name": "single", "metric": "error", "max_length": {"batches": 100_000}}


class Gate:
    """A batch before which a trial waits, so that a test finds it training, however long it takes.

    The first rank of each computer waits there, the others where they need it, as in all_reduce.
    They go on when the gate is opened, or when they are asked to save their state and leave. The
    next run waits too, unless the gate is open by then: so open it after the fault.

    Ranks that train as fast as they can agree after 1, 3, 7, 15... batches whether to leave: a
    trial that is asked to needs twice as many batches as there are before its gate, or a pause.

    Args:
        folder: An empty folder.
        batch: How many batches are trained before it.

    Attributes:
        file: When it exists, the gate is open.
    """

    def __init__(self, folder: Path, batch: int) -> None:
        self.batch = batch
        self.file, self._reached = folder / f"open {batch}", folder / f"reached {batch}"

    def source(
        self, source: str = TRIAL_SOURCE, *, before: str = PAUSE, step: str = "batch_idx"
    ) -> str:
        """Return the source of a trial or script with this gate; it may have others already.

        Args:
            source: The source without it.
            before: The line before which it waits.
            step: An expression there: how many batches are trained.
        """
        assert before in source
        indent = before[: len(before) - len(before.lstrip())]
        gate = f"""\
{indent}while {step} >= {self.batch} and current().distributed.local_rank == 0 and not (
{indent}    pathlib.Path({str(self.file)!r}).exists() or current().preempt.was_asked()
{indent}):
{indent}    pathlib.Path({str(self._reached)!r}).touch()
{indent}    time.sleep(0.02)
"""
        imports = "import pathlib, time\nfrom det_jupyter.core.context import current\n"
        return imports + source.replace(before, gate + before)

    def wait(self, experiment: Experiment) -> None:
        """Block until the experiment's trial waits at the gate, and the master knows its ranks."""

        def holds() -> bool:
            assert_goes_on(experiment)
            return self.is_reached()

        wait_until(holds, f"experiment {experiment.id} waits before batch {self.batch}")
        wait_for_steps(experiment, 1)

    def is_reached(self) -> bool:
        """Return whether a trial has come to the gate."""
        return self._reached.exists()

    def open(self) -> None:
        """Let the trial go on."""
        self.file.touch()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Close the gate within the block, and open it afterwards."""
        self.file.unlink()
        try:
            yield
        finally:
            self.open()


def small_config(**changes: Any) -> dict[str, Any]:
    """Return a configuration of SmallTrial: 2 ranks, 60 batches, validated every 20."""
    return {
        "name": "small",
        "entrypoint": "SmallTrial",
        "hyperparameters": {"global_batch_size": 16, "pause_s": 0.0},
        "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 60}},
        "min_validation_period": {"batches": 20},
        "resources": {"slots_per_trial": 2},
        "reproducibility": {"experiment_seed": 11},
    } | changes


def slow(pause_s: float, **changes: Any) -> dict[str, Any]:
    """Return `small_config` with a pause in every batch."""
    hparams = {"global_batch_size": 16, "pause_s": pause_s}
    return small_config(hyperparameters=hparams, **changes)


def submit(
    client: Client, config: dict[str, Any], source: str = TRIAL_SOURCE, *, cwd: Path | None = None
) -> Experiment:
    """Submit a trial that is defined by source text, as a notebook's cells are."""
    return create(client, config, capture_trial(client, config["entrypoint"], source, cwd), cwd)


def capture_trial(
    client: Client,
    entrypoint: str,
    source: str,
    cwd: Path | None = None,
    *,
    file: str = "<cells>",
) -> Capsule:
    """Capture a class or function that source text defines; `file` is the file of its code."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(source, file, "exec"), namespace)
    blobs = BlobStore(Path(client.session.info.data_dir) / "blobs")
    return capture(entrypoint, namespace, blobs=blobs, cwd=cwd or _own_folder(client))


def _own_folder(client: Client) -> Path:
    """Return an empty folder as working directory.

    With the present folder, all modules of `tests` would be captured with each trial, which would
    write them into each of its checkpoints ([m] 60 ms of CPU for each).
    """
    folder = Path(client.session.info.data_dir).parent / "notebook"
    folder.mkdir(exist_ok=True)
    return folder


def create(
    client: Client, config: dict[str, Any], capsule: Capsule, cwd: Path | None = None
) -> Experiment:
    """Submit a captured class or function."""
    folder = str(cwd or _own_folder(client))
    request = CreateExperiment(config=config, capsule=capsule, python=sys.executable, cwd=folder)
    return Experiment(client, client.create(request).id)


def allocation_after(experiment: Experiment, steps: int) -> AllocationView:
    """Block until the trial has trained that many batches; return what it trains with."""
    wait_for_steps(experiment, steps)
    allocation = experiment.view.trials[0].allocation
    assert allocation is not None
    return allocation


def wait_for_steps(experiment: Experiment, steps: int) -> None:
    """Block until the trial has trained that many batches."""

    def has_trained() -> bool:
        trials = experiment.view.trials
        if trials and trials[0].steps_completed >= steps:
            return True
        assert_goes_on(experiment)
        return False

    what = f"experiment {experiment.id} has trained batch {steps}"
    wait_until(has_trained, what, most_s=0.1)  # what follows has to find it training


def assert_goes_on(experiment: Experiment) -> ExperimentView:
    """Return what the experiment is now; fail if it has ended."""
    view = experiment.view
    assert not view.state.is_terminal, f"ended early: {view.state} {view.message}"
    return view
