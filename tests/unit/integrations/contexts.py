"""Contexts for trainers of other libraries: of a trial, and of one in a search."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter import core
from det_jupyter.contract.run.journal import CheckpointSaved, MetricsReported
from det_jupyter.contract.values.lengths import Length


def runs_of(library: str) -> Iterator[Any]:
    """Yield the module that trains with a library; skip the tests if it is not installed.

    Imported now, not when tests are collected: it takes seconds, and sets variables.
    """
    pytest.importorskip("torch")
    if find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    environment = dict(os.environ)
    yield importlib.import_module(f"tests.unit.integrations.{library}_runs")
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


def new_context(folder: Path, latest: str | None = None, **parts: Any) -> core.Context:
    """Return the context of trial 1, whose latest checkpoint is `latest`."""
    context = core.init(checkpoint_storage=folder, sink=core.RecordList())
    device = SimpleNamespace(type="cpu")
    info: Any = SimpleNamespace(
        latest_checkpoint=latest, trial_id=1, trial_seed=5, hparams={}, device=device
    )
    return dataclasses.replace(context, info=info, **parts)


def searched(
    context: core.Context, unit: Any, metric: str, *targets: tuple[int, bool], first: int = 1
) -> core.Context:
    """Return the context in a search with these targets, after a `first` one."""
    page: Any = Targets(*targets)
    searcher = core.SearcherContext(
        Length(unit, first),
        is_last=False,
        page=page,
        distributed=context.distributed,
        sink=context.sink,
        train=context.train,
        metric=metric,
    )
    return dataclasses.replace(context, searcher=searcher)


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
