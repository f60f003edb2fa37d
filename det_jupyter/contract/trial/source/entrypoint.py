"""What an entrypoint needs, read from the cells or files that define it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from det_jupyter.contract.trial.source.hparams import hparams_read
from det_jupyter.contract.trial.source.metrics import metrics_reported
from det_jupyter.contract.trial.source.syntax import definitions, reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """What a configuration has to give, and can name.

    Args:
        hparams: Hyperparameters that are read, with the code's default or `UNKNOWN`; nested.
        metrics: Names of the metrics that a validation reports, as far as they are known.
    """

    hparams: dict[str, Any]
    metrics: list[str]


def needs_of(sources: Sequence[str], entrypoint: str) -> Needs | None:
    """Return what a class or function needs; None if the sources do not define it.

    Args:
        sources: Cells or files, of which a later one's definitions count.
    """
    made = definitions(sources)
    if entrypoint not in made:
        return None
    parts = list(reached(made, entrypoint))
    return Needs(hparams=hparams_read(parts), metrics=metrics_reported(parts))
