"""Handles on the master's experiments, trials, ranks, checkpoints and models.

Each is imported when it is first used, so that `det` in a shell starts quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from det_jupyter.client.client import Client as Client
    from det_jupyter.client.diagnosing.diagnosis_result import Diagnosis as Diagnosis
    from det_jupyter.client.handles.checkpoint import Checkpoint as Checkpoint
    from det_jupyter.client.handles.compare import Comparison as Comparison
    from det_jupyter.client.handles.experiment import Experiment as Experiment
    from det_jupyter.client.handles.models import Model as Model
    from det_jupyter.client.handles.models import ModelVersion as ModelVersion
    from det_jupyter.client.handles.rank import ExecutionError as ExecutionError
    from det_jupyter.client.handles.rank import Rank as Rank
    from det_jupyter.client.handles.trial import Trial as Trial

_MODULES = {
    "Checkpoint": "handles.checkpoint",
    "Client": "client",
    "Comparison": "handles.compare",
    "Diagnosis": "diagnosing.diagnosis_result",
    "ExecutionError": "handles.rank",
    "Experiment": "handles.experiment",
    "Model": "handles.models",
    "ModelVersion": "handles.models",
    "Rank": "handles.rank",
    "Trial": "handles.trial",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
