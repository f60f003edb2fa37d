"""What a trial is given: its hyperparameters, its device, and the wrapping of what it trains.

Knows nothing of the loop that runs the trial; the two share a Position.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from det_jupyter.config import ExperimentConfig
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import to_device
from det_jupyter.pytorch.distributed_model import DistributedModel, distribute
from det_jupyter.pytorch.lr_scheduler import LRScheduler
from det_jupyter.pytorch.position import Position

Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


class PyTorchTrialContext:
    """The context of one trial on one rank.

    Attributes:
        distributed: This rank's place among the ranks, and collectives.
        device: Where this rank trains.
        models, optimizers, lr_schedulers: What was wrapped, in that order.
    """

    def __init__(
        self,
        *,
        distributed: DistributedContext,
        device: torch.device,
        hparams: Mapping[str, Any] | None = None,
        config: ExperimentConfig | None = None,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        trial_seed: int | None = None,
        position: Position | None = None,
    ) -> None:
        self.distributed = distributed
        self.device = device
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.scaler: Any = None
        self._hparams = hparams
        self._config = config
        self._experiment_id = experiment_id
        self._trial_id = trial_id
        self._trial_seed = trial_seed
        self._position = position or Position()
        self._averages: dict[int, bool] = {}  # by id of the optimizer: whether to average windows
        self._stop_requested = False
        self._unmovable: set[type] = set()

    def wrap_model(self, model: nn.Module, *, find_unused_parameters: bool = False) -> nn.Module:
        """Move the model to the device and return it so that all ranks train it together.

        Args:
            model: Everything of it that is trained has to be in use in every batch.
            find_unused_parameters: Allow parameters that get no gradient in some batches; costs a
                walk over the graph for each.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"wrap_model: got {type(model).__name__}, expected a torch.nn.Module")
        model = model.to(self.device)
        if self.distributed.size > 1:
            model = distribute(model, self.device, find_unused_parameters=find_unused_parameters)
        self.models.append(model)
        return model

    def wrap_optimizer(
        self,
        optimizer: Optimizer,
        backward_passes_per_step: int = 1,
        average_aggregated_gradients: bool | None = None,
    ) -> Optimizer:
        """Register the optimizer, so that its state is saved, and return it.

        Args:
            optimizer: Made over the parameters of a wrapped model.
            backward_passes_per_step: For trials written for Determined; DDP needs no such hint.
            average_aggregated_gradients: Overrides `optimizations.average_aggregated_gradients`.
        """
        if backward_passes_per_step < 1:
            raise ConfigError(
                [
                    "wrap_optimizer: got backward_passes_per_step "
                    f"{backward_passes_per_step}, expected at least 1"
                ]
            )
        if average_aggregated_gradients is None:
            average_aggregated_gradients = (
                self._config is None or self._config.optimizations.average_aggregated_gradients
            )
        self._averages[id(optimizer)] = average_aggregated_gradients
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> Any:
        """Register the scheduler, which then steps as `step_mode` says, and return it."""
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if not any(lr_scheduler.optimizer is optimizer for optimizer in self.optimizers):
            raise ConfigError(
                ["wrap_lr_scheduler: its optimizer is not wrapped; call wrap_optimizer first"]
            )
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    def wrap_scaler(self, scaler: Any) -> Any:
        """Register a gradient scaler, so that its state is saved, and return it.

        Scaling, unscaling and updating stay with the trial.
        """
        if self.scaler is not None:
            raise ConfigError(["wrap_scaler: a scaler is wrapped already; one is enough"])
        if self.models:
            raise ConfigError(["wrap_scaler: call it before wrap_model"])
        self.scaler = scaler
        return scaler

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
    ) -> None:
        """Compute gradients, averaged over the ranks when a window of batches ends."""
        loss.backward(gradient, retain_graph, create_graph)

    def step_optimizer(
        self,
        optimizer: torch.optim.Optimizer,
        clip_grads: Callable[[Any], Any] | None = None,
        auto_zero_grads: bool = True,
        scaler: Any = None,
    ) -> None:
        """Step the optimizer, if this batch ends a window of `aggregation_frequency` batches.

        Args:
            optimizer: A wrapped one.
            clip_grads: Called with the list of parameters before the step.
            auto_zero_grads: Zero the gradients after the step.
            scaler: Steps the optimizer instead of itself.
        """
        position = self._position
        if position.aggregation_frequency > 1 and not auto_zero_grads:
            raise ConfigError(
                [
                    "step_optimizer: auto_zero_grads=False does not go with "
                    f"optimizations.aggregation_frequency {position.aggregation_frequency}; "
                    "gradients are summed between the steps as it is"
                ]
            )
        if not position.is_step:
            return
        if position.aggregation_frequency > 1 and self._averages.get(id(optimizer), True):
            _divide_gradients(optimizer, len(position.window))
        if clip_grads is not None:
            clip_grads(_parameters(optimizer))
        if scaler is not None:
            scaler.step(optimizer)
        else:
            optimizer.step()
        if auto_zero_grads:
            optimizer.zero_grad()

    def begin_batch(self, batch_idx: int) -> None:
        """Go on to a batch (called by the training loop).

        DDP decides in the forward pass whether the backward pass will exchange gradients, so it
        has to be told before the trial runs, not in `backward`.
        """
        position = self._position
        position.batch_idx = batch_idx
        if position.aggregation_frequency > 1:
            for model in self.models:
                if isinstance(model, DistributedModel):
                    model.require_backward_grad_sync = position.is_step

    def to_device(self, data: Any) -> Any:
        """Return the data on this rank's device: tensors and arrays in dicts, lists and tuples."""
        return to_device(data, self.device, self._warn_unmovable)

    def _warn_unmovable(self, kind: type) -> None:
        if kind not in self._unmovable:
            self._unmovable.add(kind)
            warnings.warn(f"to_device: cannot move a {kind.__name__}; left as it is", stacklevel=2)

    def get_per_slot_batch_size(self) -> int:
        """Return how many records each rank trains per batch."""
        return self._batch_sizes()[0]

    def get_global_batch_size(self) -> int:
        """Return how many records all ranks together train per batch."""
        return self._batch_sizes()[1]

    def _batch_sizes(self) -> tuple[int, int]:
        where = "hyperparameters.global_batch_size"
        slots = self.distributed.size
        wanted = self.get_hparams().get("global_batch_size")
        if isinstance(wanted, bool) or not isinstance(wanted, int):
            given = "missing" if wanted is None else f"got {wanted!r}"
            raise ConfigError([f"{where}: {given}, expected a whole number of records"])
        if wanted < slots:
            raise ConfigError(
                [f"{where}: got {wanted}, expected at least resources.slots_per_trial ({slots})"]
            )
        per_slot = wanted // slots
        if wanted % slots and self.distributed.is_chief:
            warnings.warn(
                f"{where}: {wanted} does not divide among {slots} slots; "
                f"each takes {per_slot}, so {per_slot * slots} records are trained per batch",
                stacklevel=3,
            )
        return per_slot, per_slot * slots

    def get_hparams(self) -> dict[str, Any]:
        """Return all hyperparameters."""
        if self._hparams is None:
            raise ValueError("get_hparams: no hyperparameters were given to this context")
        return dict(self._hparams)

    def get_hparam(self, name: str) -> Any:
        """Return one hyperparameter."""
        hparams = self.get_hparams()
        if name not in hparams:
            raise ValueError(
                f"get_hparam: no hyperparameter {name!r}; there are {', '.join(sorted(hparams))}"
            )
        if name == "global_batch_size":
            warnings.warn(
                "get_hparam('global_batch_size') is the size for all slots together; "
                "use get_per_slot_batch_size() or get_global_batch_size()",
                stacklevel=2,
            )
        return hparams[name]

    def get_experiment_config(self) -> dict[str, Any]:
        """Return the experiment's effective configuration."""
        if self._config is None:
            raise ValueError("get_experiment_config: no configuration was given to this context")
        return self._config.to_document()

    def get_data_config(self) -> dict[str, Any]:
        """Return the `data` section of the configuration."""
        data: dict[str, Any] = self.get_experiment_config()["data"]
        return data

    def get_experiment_id(self) -> int:
        """Return the experiment's id."""
        return _known("get_experiment_id", self._experiment_id)

    def get_trial_id(self) -> int:
        """Return the trial's id."""
        return _known("get_trial_id", self._trial_id)

    def get_trial_seed(self) -> int:
        """Return the seed that everything random in this trial derives from."""
        return _known("get_trial_seed", self._trial_seed)

    def get_initial_batch(self) -> int:
        """Return how many batches were trained before this run."""
        return self._position.first_batch_idx

    def is_epoch_start(self) -> bool:
        """Return whether this batch is the first of an epoch."""
        return self._position.started_units().is_epoch_start(self._position.batch_idx)

    def is_epoch_end(self) -> bool:
        """Return whether this batch is the last of an epoch."""
        return self._position.started_units().is_epoch_end(self._position.batch_idx)

    def current_train_epoch(self) -> int:
        """Return the number of the epoch in training, from 0."""
        return self._position.started_units().epoch_of(self._position.batch_idx)

    def current_train_batch(self) -> int:
        """Return the number of the batch in training, from 0 at the trial's beginning."""
        self._position.started_units()
        return self._position.batch_idx

    def set_stop_requested(self, stop_requested: bool) -> None:
        """Ask to end the trial at the next report, validation or checkpoint; any rank may ask."""
        if not isinstance(stop_requested, bool):
            raise TypeError(f"set_stop_requested: got {stop_requested!r}, expected True or False")
        self._stop_requested = stop_requested

    def get_stop_requested(self) -> bool:
        """Return whether this rank has asked to end the trial."""
        return self._stop_requested


def _known(method: str, value: int | None) -> int:
    if value is None:
        raise ValueError(f"{method}: this trial was not started by an experiment")
    return value


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _divide_gradients(optimizer: torch.optim.Optimizer, divisor: int) -> None:
    for parameter in _parameters(optimizer):
        if parameter.grad is not None:
            parameter.grad.div_(divisor)
