"""A run of a plan in this process: its folder, as an agent makes it, and a small trial."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from det_jupyter import pytorch
from det_jupyter.config import parse_config
from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import CheckpointSaved, Record
from det_jupyter.core import DistributedContext, managed_context
from det_jupyter.core.info import read_run
from det_jupyter.core.journal import Journal
from det_jupyter.pytorch.training.trial_run import TrialRun
from tests.unit.core.run_folder import make_run, records_of


class Line(pytorch.PyTorchTrial):
    """Learns a line, with shuffling and a scheduler; 32 records."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)))
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.125, momentum=0.5)
        )

    def build_training_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(32), self.context.get_per_slot_batch_size(), shuffle=True)

    def build_validation_data_loader(self) -> pytorch.DataLoader:
        return pytorch.DataLoader(data(8), 4)

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": nn.functional.mse_loss(self.model(batch[0]), batch[1])}


def data(records: int) -> torch.utils.data.TensorDataset:
    x = torch.arange(records * 2.0).reshape(-1, 2) / (2 * records)
    return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True))


def document(home: Path, **changes: Any) -> dict[str, Any]:
    written = {
        "entrypoint": "Line",
        "searcher": {
            "name": "single", "metric": "error", "smaller_is_better": True,
            "max_length": {"batches": 10},
        },
        "hyperparameters": {"global_batch_size": 8},
        "min_validation_period": {"batches": 4},
        "checkpoint_storage": {"type": "shared_fs", "host_path": str(home / "checkpoints")},
        **changes,
    }  # fmt: skip
    return parse_config(written, default_seed=3).to_document()


class Planned:
    """A run of a plan, of which this process is the only rank that takes part."""

    def __init__(
        self,
        home: Path,
        trial: type[pytorch.PyTorchTrial] = Line,
        *,
        distributed: DistributedContext | None = None,
        hparams: dict[str, Any] | None = None,
        configuration: dict[str, Any] | None = None,
        **plan: Any,
    ) -> None:
        self._ranks = distributed or DistributedContext()
        self.first_steps: list[int] = []
        given = {"global_batch_size": 8} if hparams is None else hparams
        config = document(home, **(configuration or {}))
        self.folder = make_run(
            home, num_slots=self._ranks.size, hparams=given, config=config, **plan
        )
        info = read_run(str(self.folder.path), str(home)).at(self._ranks.rank, 0)
        self.journal = Journal.of_run(self.folder, self._ranks.rank)
        context = managed_context(info, self._ranks, self.journal, lambda steps: None)
        self.run = TrialRun(
            trial, context, lambda: self.first_steps.append(self.run.steps_completed)
        )

    def train(self) -> str:
        """Train to the target; return why the run has ended."""
        return self.run.run()

    def records(self, kind: type[Record] | None = None) -> list[Any]:
        found = records_of(self.folder, self._ranks.rank)
        return [record for record in found if kind is None or isinstance(record, kind)]

    def weights(self) -> list[torch.Tensor]:
        return [each.detach().clone() for each in self.run.context.models[0].parameters()]

    def last_checkpoint(self, home: Path) -> CheckpointRef:
        saved = self.records(CheckpointSaved)[-1]
        return CheckpointRef(
            uuid=saved.uuid,
            path=str(home / "checkpoints" / saved.uuid),
            steps_completed=saved.steps_completed,
        )
