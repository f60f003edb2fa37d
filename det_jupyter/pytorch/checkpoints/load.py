"""Loading a trial and its trained models from a checkpoint, in any process."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from det_jupyter.contract.trial.origin import TRIALS, Origin
from det_jupyter.contract.trial.origin_code import find_class
from det_jupyter.core import DistributedContext
from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.checkpoints.restore import read_state, restore_models
from det_jupyter.pytorch.trial.context import PyTorchTrialContext
from det_jupyter.pytorch.trial.definition import PyTorchTrial

_KEPT = "__dynamo_disable"


class CheckpointLoadContext(PyTorchTrialContext):
    """A context for building a trial to use its models, not to train them.

    Models stay as the trial builds them: they are not wrapped, and are moved only if a device is
    given.

    Args:
        hparams: Returned by `get_hparams`.
        exp_conf: Returned by `get_experiment_config`.
        device: The device to which models are moved.
        experiment_id, trial_id, trial_seed: Those of the trial that was saved, if it had them.
    """

    def __init__(
        self,
        hparams: Mapping[str, Any] | None = None,
        exp_conf: Mapping[str, Any] | None = None,
        *,
        device: str | torch.device | None = None,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        trial_seed: int | None = None,
    ) -> None:
        super().__init__(
            distributed=DistributedContext(),
            device=torch.device(device or "cpu"),
            hparams=hparams,
            experiment_id=experiment_id,
            trial_id=trial_id,
            trial_seed=trial_seed,
        )
        self._exp_conf = exp_conf
        self._moves = device is not None

    def wrap_model(self, model: nn.Module, **_options: Any) -> nn.Module:
        """Register the model and return it."""
        if self._moves:
            model = model.to(self.device)
        self.models.append(model)
        return model

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the configuration that was given."""
        if self._exp_conf is None:
            raise ValueError("get_experiment_config: no configuration was given to this context")
        return dict(self._exp_conf)

    def get_data_config(self) -> dict[str, Any]:
        """Return the `data` section of the configuration."""
        return dict(self.get_experiment_config().get("data") or {})


@contextmanager
def _without_dynamo() -> Iterator[None]:
    """Keep optimizers from importing torch._dynamo, which only compiled code needs.

    The first optimizer of a process imports it ([m] 3.06 of the 3.08 s CPU of a load), because
    torch wraps functions of `Optimizer` with `torch._dynamo.disable`, and keeps the result at the
    function (torch/_compile.py). Within the block, the function itself is kept there instead.
    """
    wrapped = [getattr(each, "__wrapped__", None) for each in vars(Optimizer).values()]
    plain = [each for each in wrapped if each is not None and not hasattr(each, _KEPT)]
    if "torch._dynamo" in sys.modules:
        plain.clear()
    for function in plain:
        setattr(function, _KEPT, function)
    try:
        yield
    finally:
        for function in plain:
            delattr(function, _KEPT)


def load_trial_from_checkpoint_path(
    path: str | Path,
    trial_class: type[PyTorchTrial] | None = None,
    trial_kwargs: Mapping[str, Any] | None = None,
    torch_load_kwargs: Mapping[str, Any] | None = None,
    *,
    map_location: Any = None,
    data_dir: Path | None = None,
    device: str | torch.device | None = None,
) -> PyTorchTrial:
    """Return the trial of a checkpoint, with its models as they were saved, ready to evaluate.

    Neither a master nor det_jupyter's data folder is needed: a checkpoint carries the code that
    was captured. Loading runs that code, so load only what you trust.

    Args:
        path: Folder of the checkpoint.
        trial_class: Its class. By default the class that was captured at the submission, which
            need not be defined here; if none was captured, the class is imported.
        trial_kwargs: Further arguments of the class's constructor.
        torch_load_kwargs: Arguments of `torch.load`, instead of `map_location="cpu"` and
            `weights_only=True`.
        map_location: The device to which `torch.load` reads the file; it does not move the models:
            use `device` for that.
        data_dir: Folder into which captured local modules are unpacked; by default a folder that
            is removed when this process ends.
        device: Device of the models; by default the one on which the trial builds them.

    Raises:
        CheckpointError: The checkpoint is damaged, does not fit the class, or its class cannot be
            imported or loaded here.
    """
    path = Path(path)
    origin = Origin.read(path)
    if origin.library != TRIALS:
        raise CheckpointError(
            f"{path} has no trial: {origin.library} has saved it; "
            "det_jupyter.load_checkpoint(path) returns its model"
        )
    options = dict(torch_load_kwargs or {})
    if map_location is not None:
        options["map_location"] = map_location
    state = read_state(path, **options)
    if trial_class is None:
        trial_class = find_class(origin, path, data_dir, "give the class as trial_class=")
    context = CheckpointLoadContext(
        origin.hparams,
        origin.config,
        device=device,
        experiment_id=origin.experiment_id,
        trial_id=origin.trial_id,
        trial_seed=origin.seed,
    )
    with _without_dynamo():
        trial = trial_class(context, **(trial_kwargs or {}))
    restore_models(context, state, str(path))
    for model in context.models:
        model.eval()
    return trial
