"""The context of a trial: wrapping models and optimizers, its device, and the steps of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import nn

from det_jupyter.config import ExperimentConfig
from det_jupyter.core import Context, DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.data import to_device
from det_jupyter.pytorch.messages import warn_user
from det_jupyter.pytorch.parallel import BucketTuner, ParallelOptions, parallelize
from det_jupyter.pytorch.reducers.custom_reducers import Reducers
from det_jupyter.pytorch.reducers.metric_reducer import FunctionReducer, MetricReducer
from det_jupyter.pytorch.steps.gradient_checks import check_not_shared, check_optimizer
from det_jupyter.pytorch.steps.learning_rates import LargeBatchRates, LRScheduler
from det_jupyter.pytorch.steps.position import Position
from det_jupyter.pytorch.steps.precision import Precision
from det_jupyter.pytorch.steps.stepping import Stepping
from det_jupyter.pytorch.trial.tensorboard import Instruments
from det_jupyter.pytorch.trial.trial_info import ContextInfo

Wrapped = TypeVar("Wrapped", bound=MetricReducer)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


class PyTorchExperimentalContext:
    """`context.experimental`: switches off what the loop does by default."""

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context

    def use_amp(self) -> None:
        """Train in mixed precision (fp16 with a gradient scaler); call it before wrap_model."""
        if self._context.models:
            raise ConfigError("use_amp: call it before wrap_model")
        self._context.use_fp16()

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow data loaders of any kind, which have to shard the data themselves."""
        self._context.accepts_any_loader = True

    def disable_auto_to_device(self) -> None:
        """Do not move batches to the device; the trial moves them itself."""
        self._context.moves_batches = False


class PyTorchTrialContext(ContextInfo, Instruments):
    """The context of one trial on one rank.

    Args:
        distributed: The ranks and their collectives; by default `core`'s, or a single rank.
        core: The Core API's context, which training needs.
        device: This rank's device.
        hparams: The trial's hyperparameters.
        config: The experiment's configuration; its `optimizations` have effect here.
        experiment_id, trial_id, trial_seed: The ids and the seed of the trial.
        tensorboard_folder: The trial's folder for TensorBoard's files.

    Attributes:
        distributed, core, device, config: As above.
        models, optimizers, lr_schedulers: The wrapped objects, in the order of wrapping.
        stepping: Computes gradients and steps the optimizers.
        position: The batch that is being trained; the loop writes it.
        scaler: The gradient scaler: the trial's own, or that of mixed precision; or None.
        experimental: Switches off what the loop does by default.
    """

    def __init__(
        self,
        *,
        distributed: DistributedContext | None = None,
        core: Context | None = None,
        device: torch.device,
        hparams: Mapping[str, Any] | None = None,
        config: ExperimentConfig | None = None,
        experiment_id: int | None = None,
        trial_id: int | None = None,
        trial_seed: int | None = None,
        tensorboard_folder: Path | None = None,
    ) -> None:
        self.distributed = core.distributed if core else distributed or DistributedContext()
        folder = tensorboard_folder or Path("tensorboard")
        profiler = core.profiler if core else None
        Instruments.__init__(self, folder, self.distributed.rank, profiler)
        self.core = core
        self.device = device
        self.config = config
        self.position = Position(config.optimizations.aggregation_frequency if config else 1)
        self._hparams = hparams
        self._experiment_id = experiment_id
        self._trial_id = trial_id
        self._trial_seed = trial_seed
        self.models: list[nn.Module] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.lr_schedulers: list[LRScheduler] = []
        self.scaler: Any = None
        self.experimental = PyTorchExperimentalContext(self)
        self.reducers = Reducers()
        self.moves_batches = True
        self.accepts_any_loader = False
        self.has_searcher = True  # the configuration has a searcher metric
        self._claimed_by: object = None
        # Set by the loop before it trains (configured.py).
        self.built: dict[str, Any] | None = None
        self._parallel = ParallelOptions() if config is None else ParallelOptions.of(config)
        self.stepping = Stepping(self.position, Precision(device, None), self.distributed)
        self._unmovable: set[type] = set()
        self._large_batch: LargeBatchRates | None = None
        if config is not None:
            self.set_precision(Precision.from_config(config, self.device))
            if rules := config.optimizations.large_batch:
                self._large_batch = LargeBatchRates(rules, self.get_global_batch_size())

    def wrap_model(self, model: nn.Module, *, find_unused_parameters: bool = False) -> nn.Module:
        """Move the model to the device, and return it wrapped so that all ranks train it together.

        Collective: all ranks wrap the same models in the same order.

        Args:
            model: Each of its trained parameters has to get a gradient in every backward pass.
            find_unused_parameters: Allow parameters without gradients in some backward passes;
                costs two walks over the graph for each.
        """
        if not isinstance(model, nn.Module):
            raise TypeError(f"wrap_model: got {type(model).__name__}, expected a torch.nn.Module")
        if self.distributed.size > 1:
            check_not_shared(model, self.models)
        model = model.to(self.device)
        model = parallelize(
            self.stepping.precision.wrap_forward(model),
            self.device,
            self.distributed,
            self._parallel,
            find_unused_parameters=find_unused_parameters,
        )
        self.models.append(model)
        self.stepping.add_model(model)
        return model

    def has_to_wrap(self) -> dict[str, Any]:
        """Return what was wrapped, by the methods that a trial has to call."""
        return {"wrap_model": self.models, "wrap_optimizer": self.optimizers}

    def wrap_optimizer(
        self,
        optimizer: Optimizer,
        backward_passes_per_step: int = 1,
        fp16_compression: bool | None = None,
        average_aggregated_gradients: bool | None = None,
    ) -> Optimizer:
        """Register the optimizer, so that its state is saved, and return it.

        Args:
            optimizer: Created with the parameters of wrapped models.
            backward_passes_per_step: For trials written for Determined; DDP needs no such hint.
            fp16_compression: For trials written for Determined; has no effect, as there.
            average_aggregated_gradients: Overrides `optimizations.average_aggregated_gradients`.
        """
        check_optimizer(optimizer, self.models, backward_passes_per_step)
        if fp16_compression is not None:
            warn_user(
                "wrap_optimizer: fp16_compression has no effect; "
                "set optimizations.gradient_compression: fp16 instead",
            )
        if average_aggregated_gradients is None:
            average_aggregated_gradients = (
                self.config is None or self.config.optimizations.average_aggregated_gradients
            )
        self.stepping.add(optimizer, averages=average_aggregated_gradients)
        if self._large_batch is not None:
            self._large_batch.attach(
                optimizer, self.position, averages=average_aggregated_gradients
            )
        self.optimizers.append(optimizer)
        return optimizer

    def wrap_lr_scheduler(
        self, lr_scheduler: Any, step_mode: LRScheduler.StepMode, frequency: int = 1
    ) -> Any:
        """Register the scheduler, which the loop steps by `step_mode`, and return it."""
        wrapped = LRScheduler(lr_scheduler, step_mode, frequency)
        if not any(lr_scheduler.optimizer is optimizer for optimizer in self.optimizers):
            raise ConfigError(
                "wrap_lr_scheduler: its optimizer is not wrapped; call wrap_optimizer first"
            )
        self.lr_schedulers.append(wrapped)
        return lr_scheduler

    @overload
    def wrap_reducer(
        self,
        reducer: Wrapped,
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> Wrapped: ...

    @overload
    def wrap_reducer(
        self,
        reducer: Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> FunctionReducer: ...

    def wrap_reducer(
        self,
        reducer: MetricReducer | Callable[[list[Any]], Any],
        name: str | None = None,
        for_training: bool = True,
        for_validation: bool = True,
    ) -> MetricReducer:
        """Register a metric that is computed from the values of all batches; return its reducer.

        Args:
            reducer: A MetricReducer; or a function of the list of all values, in the order of the
                data, that all ranks passed to `update` of the returned reducer.
            name: The name of the metric; without one the reducer has to return a dict of metrics.
            for_training, for_validation: Whether it is reported with metrics of the training, and
                with those of validations.
        """
        wrapped: MetricReducer = self.reducers.wrap(
            reducer, name, for_training=for_training, for_validation=for_validation
        )
        return wrapped

    def reset_reducers(self) -> None:
        """Reset all reducers (the loop does so after each report and validation)."""
        self.reducers.reset("training")
        self.reducers.reset("validation")

    def reduce_metrics(self, for_training: bool) -> dict[str, Any]:
        """Return the metrics of all reducers. Collective (called by the loop)."""
        return self.reducers.reduce(self.distributed, "training" if for_training else "validation")

    def wrap_scaler(self, scaler: Any) -> Any:
        """Register a gradient scaler, so that its state is saved, and return it.

        The trial scales, unscales and updates it itself.
        """
        if self.scaler is not None:
            raise ConfigError("wrap_scaler: a scaler is wrapped already; one is enough")
        if self.models:
            raise ConfigError("wrap_scaler: call it before wrap_model")
        self.scaler = scaler
        return scaler

    def autocast_forward_pass(self, module: nn.Module) -> nn.Module:
        """Let the module compute in the type of mixed precision, if there is one; return it."""
        return self.stepping.precision.wrap_forward(module)

    def configure_apex_amp(
        self,
        models: Any,
        optimizers: Any,
        enabled: bool = True,
        opt_level: str = "O1",
        **ignored: Any,
    ) -> tuple[Any, Any]:
        """Train with torch's mixed precision instead of Apex's; return models and optimizers.

        For trials written for Determined. Every level but O0 means torch's fp16 autocast with a
        gradient scaler; other arguments have no effect.
        """
        if not enabled or opt_level == "O0":
            return models, optimizers
        warn_user(
            f"configure_apex_amp: {opt_level} means fp16 by torch.amp here; "
            "set optimizations.mixed_precision: fp16 instead",
        )
        self.use_fp16()
        for model in models if isinstance(models, list) else [models]:
            self.stepping.precision.wrap_forward(model)
        return models, optimizers

    def use_fp16(self) -> None:
        """Train in fp16 with a gradient scaler, unless a precision is set already."""
        if self.stepping.precision.dtype is None:
            self.set_precision(Precision(self.device, torch.float16))

    def set_precision(self, precision: Precision) -> None:
        """Set the precision of models that are wrapped from now on."""
        if self.scaler is not None and precision.scaler is not None:
            raise ConfigError(
                "use_amp: a scaler is wrapped already; keep either of the two, "
                "wrap_scaler or automatic mixed precision"
            )
        if precision.notice and self.distributed.is_chief:
            warn_user(precision.notice)
        self.stepping.precision = precision
        self.scaler = precision.scaler

    def backward(
        self,
        loss: torch.Tensor,
        gradient: torch.Tensor | None = None,
        retain_graph: bool = False,
        create_graph: bool = False,
        *,
        weight: float | torch.Tensor | None = None,
    ) -> None:
        """Compute gradients; at the end of a window, average them over the records of all ranks.

        Args:
            loss: A mean over this rank's records, as torch's losses are by default.
            gradient, retain_graph, create_graph: As in `torch.Tensor.backward`.
            weight: The weight of this rank's loss, if it is not a mean over records: for example
                the number of tokens that are not ignored, or the sum of the records' weights. The
                mean over all ranks, and over a window, is weighted by it; so are the metrics of
                the batch. Collective: either all ranks give a weight, or none.

        Raises:
            TrialMistake: The weight is no number of at least 0, or only some backward passes of a
                window have one.
        """
        self.stepping.backward(loss, gradient, retain_graph, create_graph, weight)

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
            clip_grads: Called with the list of parameters before the step; changes their gradients
                in place. Its return value is ignored.
            auto_zero_grads: Zero the gradients after the step.
            scaler: A gradient scaler, whose `step(optimizer)` is called instead.
        """
        self.stepping.step(optimizer, clip_grads, auto_zero_grads, scaler)

    def claim(self, trial: object) -> None:
        """Make this the context of one trial (called by Trainer).

        Raises:
            ConfigError: The context belongs to another trial, whose models it holds.
        """
        if self._claimed_by is not None and self._claimed_by is not trial:
            raise ConfigError(
                "Trainer: this context belongs to another trial; "
                "a trial needs one of its own: with pytorch.init(...) as context"
            )
        self._claimed_by = trial

    def to_device(self, data: Any) -> Any:
        """Return the data on this rank's device: tensors and arrays in dicts, lists and tuples."""
        return to_device(data, self.device, self._unmovable)

    def make_tuner(self) -> BucketTuner | None:
        """Return the tuner of DDP's buckets if the configuration has one (called by the loop)."""
        if not self._parallel.tune_buckets or self.distributed.size == 1:
            return None
        return BucketTuner(self.models, self.distributed, self.device)
