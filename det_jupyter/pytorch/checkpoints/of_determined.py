"""The state in a checkpoint of Determined's PyTorchTrial, in our form (training_state.py).

    state_dict.pth   models_state_dict, optimizers_state_dict, lr_schedulers_state_dict, callbacks,
                     scaler_state_dict, rng_state
    metadata.json    steps_completed

Its pickle is not run: what `torch.load(weights_only=True)` accepts is read, and the arrays of
numpy that are in `rng_state`. Generators are seeded anew, as for another number of ranks:
Determined saved those of one rank.
"""

from __future__ import annotations

import _codecs
import json
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy
import torch

from det_jupyter.contract.host.regular_files import read_regular
from det_jupyter.errors import CheckpointError
from det_jupyter.storage import METADATA_FILE

DETERMINED_FILE = "state_dict.pth"
_FIELDS = {
    "models": "models_state_dict",
    "optimizers": "optimizers_state_dict",
    "lr_schedulers": "lr_schedulers_state_dict",
}
_reconstruct = numpy.empty(0).__reduce__()[0]

_ARRAYS: list[Any] = [
    numpy.ndarray,
    numpy.dtype,
    type(numpy.dtype("uint32")),
    _codecs.encode,
    # Numpy 1, with which Determined ran, has another name for it than numpy 2.
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
]


def allowing_arrays() -> AbstractContextManager[object]:
    """Within the block, let `torch.load(weights_only=True)` read numpy's arrays."""
    return torch.serialization.safe_globals(_ARRAYS)


def convert_state(state: Any, path: Path) -> dict[str, Any]:
    """Return what `restore_models` and `restore_training` take.

    Args:
        state: The content of DETERMINED_FILE.
        path: The folder of the checkpoint.

    Raises:
        CheckpointError: It is not of a PyTorchTrial of Determined 0.13 or later.
    """
    file = path / DETERMINED_FILE
    if not isinstance(state, dict) or not state.keys() >= set(_FIELDS.values()):
        raise CheckpointError(
            f"{file} is not of a PyTorchTrial of Determined 0.13 or later: expected a dict with "
            f"{', '.join(_FIELDS.values())}"
        )
    return {
        **{name: state[key] for name, key in _FIELDS.items()},
        "scaler": state.get("scaler_state_dict"),
        "callbacks": state.get("callbacks", {}),
        "steps_completed": _steps_completed(path),
        "size": 0,  # no ranks: none has a state of its own
        "in_window": False,
        "built": None,
        "parts": {},
        "reducers": [],
        "stop_requested": [],
        "validation_due": None,
    }


def _steps_completed(path: Path) -> int:
    try:
        return int(json.loads(read_regular(path / METADATA_FILE))["steps_completed"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0  # only messages show it; the position is the master's
