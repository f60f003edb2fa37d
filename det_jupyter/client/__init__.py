"""Handles on the master's experiments, trials, ranks and checkpoints.

Each is imported when it is first used, so that `det` in a shell starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from det_jupyter.client.checkpoint import Checkpoint as Checkpoint
    from det_jupyter.client.client import Client as Client
    from det_jupyter.client.compare import Comparison as Comparison
    from det_jupyter.client.diagnosis_result import Diagnosis as Diagnosis
    from det_jupyter.client.experiment import Experiment as Experiment
    from det_jupyter.client.rank import ExecutionError as ExecutionError
    from det_jupyter.client.rank import Rank as Rank
    from det_jupyter.client.trial import Trial as Trial

_MODULES = {
    "Checkpoint": "checkpoint",
    "Client": "client",
    "Comparison": "compare",
    "Diagnosis": "diagnosis_result",
    "ExecutionError": "rank",
    "Experiment": "experiment",
    "Rank": "rank",
    "Trial": "trial",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
