"""The model, data and stopwatch of all contenders of loop_overhead.py. Needs only torch.

A contender trains `WARM_UP + batches + 1` batches and is timed from the beginning of batch
`WARM_UP` to the beginning of the last one. Both are multiples of 100, at which every contender
reports: so the cost of writing metrics is included, and set-up and shut-down are not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from tests.benchmarks.loop_contender import Cost

WARM_UP = 100
REPORT_EVERY = 100
NUM_RECORDS = 4096
BATCH_SIZE = 32


@dataclass(frozen=True)
class Step:
    """The size of a model, which determines the duration of a training step."""

    width: int
    depth: int


STEPS = {"tiny": Step(32, 1), "5ms": Step(384, 6)}


def make_model(step: Step) -> nn.Module:
    """Return a perceptron."""
    layers: list[nn.Module] = [nn.Linear(16, step.width), nn.ReLU()]
    for _ in range(step.depth - 1):
        layers += [nn.Linear(step.width, step.width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(step.width, 1))


def make_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    """Return the optimizer that all contenders use."""
    return torch.optim.SGD(model.parameters(), lr=0.01)


def make_dataset() -> torch.utils.data.TensorDataset:
    """Return the records, which are the same for all contenders."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(NUM_RECORDS, 16, generator=generator)
    return torch.utils.data.TensorDataset(x, x.sum(dim=1, keepdim=True))


def loss_of(model: nn.Module, batch: Any) -> torch.Tensor:
    """Return the loss of a batch."""
    x, y = batch
    return nn.functional.mse_loss(model(x), y)


class Records(torch.utils.data.Dataset[Any]):
    """The same records in a user's dataset class, which libraries cannot optimize."""

    def __init__(self) -> None:
        self.tensors = make_dataset().tensors

    def __len__(self) -> int:
        return NUM_RECORDS

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)


class Rows:
    """Stands in for a loader: tensors, from which the rows of each batch are selected."""

    def __init__(self) -> None:
        self.tensors = make_dataset().tensors

    def __iter__(self) -> Iterator[list[torch.Tensor]]:
        for indices in torch.randperm(NUM_RECORDS).split(BATCH_SIZE):
            yield [tensor.index_select(0, indices) for tensor in self.tensors]


class Stopwatch:
    """Measures the cost of the timed batches; called at the start of every batch.

    Args:
        batches: Number of timed batches; a multiple of 100.
    """

    def __init__(self, batches: int) -> None:
        self.batches = batches
        self.num_trained = WARM_UP + batches + 1
        self._last = WARM_UP + batches
        self._began_at = self._ended_at = Cost(0.0, 0.0)

    def begin(self, batch_idx: int) -> None:
        """Record the start of a batch."""
        if batch_idx == WARM_UP:
            self._began_at = _now()
        elif batch_idx == self._last:
            self._ended_at = _now()

    @property
    def us_per_batch(self) -> Cost:
        """The cost of a timed batch, including the overhead between batches."""
        pairs = zip(self._began_at, self._ended_at, strict=True)
        return Cost(*((ended - began) / self.batches * 1e6 for began, ended in pairs))


def _now() -> Cost:
    return Cost(time.perf_counter(), time.process_time())


def make_loader(dataset: Any = None) -> Any:
    """Return torch's loader of the records."""
    return torch.utils.data.DataLoader(dataset or make_dataset(), BATCH_SIZE, shuffle=True)


def bare(step: Step, batches: int, loader: Any = None) -> Cost:
    """Train in a bare loop; return the cost of a batch."""
    return bare_loop(make_model(step), loader or make_loader(), Stopwatch(batches))


def bare_loop(model: nn.Module, loader: Any, watch: Stopwatch) -> Cost:
    """Train this model on this data as one would without a library; return the cost of a batch."""
    optimizer = make_optimizer(model)
    done = 0
    while True:
        for batch in loader:
            watch.begin(done)
            loss = loss_of(model, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if done == watch.num_trained:
                return watch.us_per_batch
