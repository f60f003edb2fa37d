"""Contexts for trainers of other libraries: of a trial, and of one in a search."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported, Notice
from det_jupyter.contract.values.lengths import Length
from det_jupyter.core.train import BestValidation


def runs_of(library: str) -> Iterator[Any]:
    """Yield the module that trains with a library; skip the tests if it is not installed.

    Imported now, not when tests are collected: it takes seconds, and sets variables. It stays, so
    it is spared from garbage collection: accelerate collects at the end of each training.
    """
    pytest.importorskip("torch")
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    environment = dict(os.environ)
    runs = importlib.import_module(f"tests.unit.integrations.{library}_runs")
    gc.collect()
    gc.freeze()
    yield runs
    os.environ.clear()
    os.environ.update(environment)


class Targets:
    """A control page with the targets of a search, which are there at once."""

    def __init__(self, *targets: tuple[int, bool]) -> None:
        self._targets = list(targets)

    def target(self) -> tuple[int, bool] | None:
        return self._targets.pop(0) if self._targets else None

    def check(self, name: str) -> bool:
        return not self._targets  # the search has no more for this trial: it is asked to leave


def new_context(
    folder: Path, latest: str | None = None, capsule: Capsule | None = None, **parts: Any
) -> core.Context:
    """Return the context of trial 1, whose latest checkpoint is `latest`, and which has no end.

    Its `capsule` is in the blobs of `folder / "data"`; by default nothing was captured.
    """
    endless = Length("epochs", 1000)
    context = core.init(checkpoint_storage=folder, sink=core.RecordList(), length=endless)
    device = SimpleNamespace(type="cpu")
    blobs = BlobStore(folder / "data" / "blobs")
    capsule = capsule or Capsule(entrypoint="fits:main", sources=blobs.put(b"{}"))
    plan = SimpleNamespace(
        capsule=capsule, hparams={}, config={}, seed=5, experiment_id=1, trial_id=1
    )
    info: Any = SimpleNamespace(
        latest_checkpoint=latest,
        trial_id=1,
        trial_seed=5,
        hparams={},
        device=device,
        plan=plan,
        data_dir=folder / "data",
    )
    return dataclasses.replace(context, info=info, **parts)


def searched(
    context: core.Context, unit: Any, metric: str, *targets: tuple[int, bool], first: int = 1
) -> core.Context:
    """Return the context in a search with these targets, after a `first` one."""
    page: Any = Targets(*targets)
    return _with_target(context, Length(unit, first), page, metric, is_last=False)


def ending(
    context: core.Context, unit: Any, metric: str, length: int, *targets: tuple[int, bool]
) -> core.Context:
    """Return the context of a trial that ends at this length, or at the last of the targets.

    Nothing compares it any more.
    """
    return _with_target(context, Length(unit, length), Targets(*targets), metric, is_last=True)


def _with_target(
    context: core.Context, target: Length, page: Any, metric: str, *, is_last: bool
) -> core.Context:
    searcher = core.SearcherContext(
        target,
        is_last=is_last,
        page=page,
        distributed=context.distributed,
        sink=context.sink,
        train=context.train,
        metric=metric,
    )
    return dataclasses.replace(context, searcher=searcher)


def compared_at_the_end(context: core.Context, metric: str) -> core.Context:
    """Return the context in a search with this metric that compares whole trials."""
    best = BestValidation(metric, smaller_is_better=True, value=None)
    train = core.TrainContext(context.sink, context.distributed, best=best)
    return dataclasses.replace(context, train=train)


def notices(context: core.Context) -> dict[str, int]:
    """Return the texts of notices, each with the steps of the last metrics before it."""
    found, steps = {}, 0
    sink: Any = context.sink
    for record in sink.records:
        if isinstance(record, MetricsReported):
            steps = record.steps_completed
        elif isinstance(record, Notice):
            found[record.text] = steps
    return found


def records(context: core.Context, kind: type) -> list[Any]:
    """Return the records of this kind."""
    sink: Any = context.sink
    return [each for each in sink.records if isinstance(each, kind)]


def metrics(context: core.Context) -> list[tuple[str, int, dict[str, float]]]:
    """Return the reports of metrics: group, steps and values."""
    reported = records(context, MetricsReported)
    return [(each.group, each.steps_completed, dict(each.metrics)) for each in reported]


def saved(context: core.Context) -> list[CheckpointSaved]:
    """Return the records of checkpoints."""
    return records(context, CheckpointSaved)
