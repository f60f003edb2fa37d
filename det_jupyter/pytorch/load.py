"""A trial with its trained model out of a checkpoint: in a notebook, or anywhere."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from det_jupyter.blobs import BlobStore
from det_jupyter.capsule import load_capsule
from det_jupyter.config import parse_config
from det_jupyter.core import DistributedContext
from det_jupyter.errors import CheckpointError, NotFound
from det_jupyter.paths import data_dir as default_data_dir
from det_jupyter.pytorch.context import PyTorchTrialContext
from det_jupyter.pytorch.state import LOAD_DATA_FILE, read_state, restore_models
from det_jupyter.pytorch.trial import PyTorchTrial
from det_jupyter.wire import Capsule


def load_trial_from_checkpoint_path(
    path: str | Path,
    trial_class: type[PyTorchTrial] | None = None,
    *,
    data_dir: Path | None = None,
    device: str | torch.device | None = None,
) -> PyTorchTrial:
    """Return the trial of a checkpoint, with its models as they were saved, ready to evaluate.

    Args:
        path: Folder of the checkpoint.
        trial_class: Its class; by default the one that was captured when it was submitted, which
            need not be defined here.
        data_dir: Where captured code is kept; by default det_jupyter's data folder.
        device: Where the models go; by default the first GPU, or the CPU if there is none.

    Raises:
        CheckpointError: The checkpoint is damaged, or does not fit the class.
    """
    path = Path(path)
    load_data = _read_load_data(path)
    if trial_class is None:
        trial_class = _captured_class(path, load_data, data_dir or default_data_dir())
    context = PyTorchTrialContext(
        distributed=DistributedContext(),
        device=torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu")),
        hparams=load_data["hparams"],
        config=parse_config(load_data["config"]),
        experiment_id=load_data["experiment_id"],
        trial_id=load_data["trial_id"],
        trial_seed=load_data["seed"],
    )
    state = read_state(path)
    trial = trial_class(context)
    restore_models(context, state, str(path))
    for model in context.models:
        model.eval()
    return trial


def _read_load_data(path: Path) -> dict[str, Any]:
    try:
        load_data: dict[str, Any] = json.loads((path / LOAD_DATA_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{path} is not a checkpoint of a trial: no {LOAD_DATA_FILE}"
        ) from None
    except ValueError as error:
        raise CheckpointError(f"{path / LOAD_DATA_FILE} is damaged: {error}") from None
    return load_data


def _captured_class(
    path: Path, load_data: Mapping[str, Any], data_dir: Path
) -> type[PyTorchTrial]:
    capsule = Capsule.model_validate(load_data["capsule"])
    try:
        loaded: type[PyTorchTrial] = load_capsule(
            capsule,
            BlobStore(data_dir / "blobs"),
            data_dir / "code" / _code_key(capsule),
            as_main=False,
        )
    except NotFound as error:
        raise CheckpointError(
            f"{path}: the captured code of {capsule.entrypoint} is not here ({error}); "
            "give the class as trial_class="
        ) from None
    return loaded


def _code_key(capsule: Capsule) -> str:
    """Return a name for the folder of the code: the same class may use other modules by now."""
    code = json.dumps([capsule.payload, sorted(capsule.modules.items())])
    return hashlib.sha256(code.encode()).hexdigest()
