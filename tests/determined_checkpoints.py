"""Checkpoints in the form in which the PyTorchTrial of Determined 0.38 saves them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import numpy
import torch
from torch import nn

CODE = """
import torch
from torch import nn
from det_jupyter.pytorch import DataLoader, PyTorchTrial

class LineTrial(PyTorchTrial):
    def __init__(self, context):
        self.context = context
        self.model = context.wrap_model(nn.Linear(context.get_hparam("width"), 1))
        sgd = torch.optim.SGD(self.model.parameters(), lr=context.get_hparam("lr"), momentum=0.9)
        self.optimizer = context.wrap_optimizer(sgd)
    def train_batch(self, batch, epoch_idx, batch_idx):
        loss = self.model(batch).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.optimizer)
        return {"loss": loss}
    def evaluate_batch(self, batch, batch_idx):
        return {"validation_loss": self.model(batch).square().mean()}
    def build_training_data_loader(self):
        return DataLoader(torch.ones(16, 3), batch_size=self.context.get_per_slot_batch_size())
    build_validation_data_loader = build_training_data_loader
"""


def write_checkpoint(
    folder: Path,
    models: Sequence[nn.Module],
    optimizers: Sequence[torch.optim.Optimizer] = (),
    lr_schedulers: Sequence[Any] = (),
    *,
    steps_completed: int,
    hparams: dict[str, Any] | None = None,
    code: str = CODE,
    **more: Any,
) -> None:
    """Write the files of a checkpoint.

    Args:
        folder: Is created.
        models, optimizers, lr_schedulers: What the trial has wrapped.
        code: Source of the trial's module, model_def.
        more: Further fields of the state.
    """
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "model_def.py").write_text(code)
    state = {
        "models_state_dict": [model.state_dict() for model in models],
        "optimizers_state_dict": [each.state_dict() for each in optimizers],
        "lr_schedulers_state_dict": [each.state_dict() for each in lr_schedulers],
        "callbacks": {},
        "rng_state": {
            "cpu_rng_state": torch.random.get_rng_state(),
            "np_rng_state": numpy.random.get_state(),
            "random_rng_state": random.getstate(),
        },
    }
    torch.save(state | more, folder / "new.pth")
    _rename_numpy(folder / "new.pth", folder / "state_dict.pth")
    (folder / "new.pth").unlink()
    (folder / "trial_state.pkl").write_bytes(b"a pickle")
    load_data = {
        "trial_type": "PyTorchTrial",
        "experiment_config": {"name": "line"},
        "hparams": hparams or {},
        "trial_cls_spec": "model_def:LineTrial",
    }
    (folder / "load_data.json").write_text(json.dumps(load_data))
    metadata = {
        "determined_version": "0.38.0",
        "format": "pickle",
        "framework": "torch-1.12.1",
        "steps_completed": steps_completed,
    }
    (folder / "metadata.json").write_text(json.dumps(metadata))


def _rename_numpy(source: Path, target: Path) -> None:
    """Copy a file of torch, with the names that numpy 1 wrote."""
    with ZipFile(source) as old, ZipFile(target, "w", ZIP_STORED) as new:
        for part in old.infolist():
            content = old.read(part)
            if part.filename.endswith("/data.pkl"):
                content = content.replace(
                    b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"
                )
            new.writestr(part, content)
