"""Contexts of the Core API for trainers: a test reads their records and decides their search."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from det_jupyter import core
from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.contract.values.lengths import Length


class Targets:
    """A control page with the targets of a search, which are there at once."""

    def __init__(self, *targets: tuple[int, bool]) -> None:
        self._targets = list(targets)

    def target(self) -> tuple[int, bool] | None:
        return self._targets.pop(0) if self._targets else None

    def check(self, name: str) -> bool:
        return not self._targets  # the search has no more for this trial: it is asked to leave


def new_context(folder: Path, latest: str | None = None, **parts: Any) -> core.Context:
    import torch

    context = core.init(checkpoint_storage=folder, sink=core.RecordList())
    info: Any = SimpleNamespace(
        latest_checkpoint=latest, trial_id=1, trial_seed=5, device=torch.device("cpu")
    )
    return dataclasses.replace(context, info=info, **parts)


def searched(context: core.Context, unit: Any, metric: str, *targets: tuple[int, bool]) -> Any:
    """Return the context in a search whose first target is 1."""
    page: Any = Targets(*targets)
    searcher = core.SearcherContext(
        Length(unit, 1),
        is_last=False,
        page=page,
        distributed=context.distributed,
        sink=context.sink,
        train=context.train,
        metric=metric,
    )
    return dataclasses.replace(context, searcher=searcher)


def records(context: core.Context, kind: type) -> list[Any]:
    sink: Any = context.sink
    return [each for each in sink.records if isinstance(each, kind)]


def metrics(context: core.Context) -> list[tuple[str, int, dict[str, float]]]:
    reported = records(context, MetricsReported)
    return [(each.group, each.steps_completed, dict(each.metrics)) for each in reported]
