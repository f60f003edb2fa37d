"""An engine that trains, counts and saves as DeepSpeed's, and a trial around it.

The real one, which compiles an extension for minutes, is in tests/e2e/test_deepspeed.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

from det_jupyter.pytorch import DataLoader, PyTorchCallback
from det_jupyter.pytorch.deepspeed import DeepSpeedTrial, DeepSpeedTrialContext

MICRO, WINDOW = 2, 3


class Engine(torch.nn.Module):
    """A model with its optimizer; steps after each `WINDOW` micro batches."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5))
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=0.1)
        self.micro_steps = 0

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x)

    def train_micro_batch_size_per_gpu(self) -> int:
        return MICRO

    def gradient_accumulation_steps(self) -> int:
        return WINDOW

    def backward(self, loss: torch.Tensor) -> None:
        (loss / WINDOW).backward()

    def step(self) -> None:
        self.micro_steps += 1
        if self.micro_steps % WINDOW == 0:
            self.optimizer.step()
            self.optimizer.zero_grad()

    def save_checkpoint(self, folder: str, tag: str) -> None:
        Path(folder, tag).mkdir()
        state = {"module": self.module.state_dict(), "optimizer": self.optimizer.state_dict()}
        torch.save(state, Path(folder, tag, "mp_rank_00_model_states.pt"))

    def load_checkpoint(self, folder: str, tag: str) -> tuple[str | None, dict[str, Any]]:
        file = Path(folder, tag, "mp_rank_00_model_states.pt")
        if not file.exists():
            return None, {}
        state = torch.load(file)
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        return str(file), {}


class Saves(PyTorchCallback):
    """Counts batches; the count is state."""

    def __init__(self) -> None:
        self.count = 0
        self.calls: list[str] = []

    def on_training_batch_end(self, metrics: Any, epoch_idx: int, batch_idx: int) -> None:
        self.count += 1

    def on_checkpoint_load_start(self, checkpoint: dict[str, Any] | None) -> None:
        self.calls.append("load")

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        self.calls.append("write")

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.count = state_dict["count"]


class Trial(DeepSpeedTrial):
    """Trains an engine on 24 records: 4 batches in an epoch."""

    def __init__(self, context: DeepSpeedTrialContext) -> None:
        self.context = context
        self.engine = context.wrap_model_engine(Engine())
        self.saves = Saves()
        self.losses: list[tuple[int, float]] = []

    def train_batch(
        self, dataloader_iter: Iterator[Any], epoch_idx: int, batch_idx: int
    ) -> dict[str, Any]:
        (x,) = next(dataloader_iter)
        loss = self.engine(x).square().mean()
        self.engine.backward(loss)
        self.engine.step()
        self.losses.append((batch_idx, loss.item()))
        return {"loss": loss}

    def evaluate_batch(self, dataloader_iter: Iterator[Any], batch_idx: int) -> dict[str, Any]:
        (x,) = next(dataloader_iter)
        return {"error": self.engine(x).square().mean()}

    def build_training_data_loader(self) -> DataLoader:
        return self.loader(24, shuffle=True)

    def build_validation_data_loader(self) -> DataLoader:
        return self.loader(5, shuffle=False)

    def loader(self, records: int, *, shuffle: bool) -> DataLoader:
        x = torch.randn(records, 2, generator=torch.Generator().manual_seed(records))
        size = self.context.get_train_micro_batch_size_per_gpu()
        return DataLoader(TensorDataset(x), size, shuffle=shuffle)

    def build_callbacks(self) -> dict[str, PyTorchCallback]:
        return {"saves": self.saves}
