"""The context of a trial that trains engines of DeepSpeed."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch.distributed as dist

from det_jupyter.config.sections import Optimizations
from det_jupyter.contract.values.sizes import sizes_of
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

_OF_ENGINE = (  # keys that DeepSpeed's configuration has, by others of its own
    "aggregation_frequency", "gradient_compression", "mixed_precision", "sharding", "compile",
    "large_batch",
)  # fmt: skip


def _refused(method: str) -> Any:
    """Return a method that raises a ConfigError: it is for trials without an engine."""

    def refuse(self: object, *args: Any, **kwargs: Any) -> NoReturn:
        raise ConfigError(
            f"{method}: a DeepSpeedTrial wraps engines, which have model, optimizer, scheduler "
            "and precision; call context.wrap_model_engine, engine.backward and engine.step"
        )

    return refuse


class DeepSpeedTrialContext(PyTorchTrialContext):
    """The context of one trial on one rank; `models` are its engines.

    The engine computes gradients and steps its optimizer, so nothing else is wrapped. Batches are
    not moved to the device: the trial does that, by `to_device`.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.moves_batches = False
        self._is_accumulating = True
        if self.config is not None:
            _check_optimizations(self.config.optimizations)
            if (sizes := sizes_of(self.config.to_document())).is_elastic:
                raise ConfigError(
                    f"resources.slots_per_trial: got {sizes}, and a DeepSpeedTrial goes on only "
                    "with the number of slots that it began with; give one number"
                )
        if self.distributed.size == 1 and not dist.is_initialized():
            # DeepSpeed needs a process group, and would look for an MPI to make it. The group
            # stays: DeepSpeed keeps references to it for the life of the process.
            os.environ.setdefault("LOCAL_RANK", "0")
            backend = "nccl" if self.device.type == "cuda" else "gloo"
            store = dist.HashStore()  # type: ignore[attr-defined]  # where torch has c10d
            dist.init_process_group(backend, store=store, rank=0, world_size=1)

    def wrap_model_engine(self, model: Any) -> Any:
        """Register the engine that `deepspeed.initialize` has returned, and return it.

        Collective: all ranks wrap the same engines in the same order. The sizes of micro batches
        are those of the first one.

        Raises:
            ConfigError: It is an engine for pipeline parallelism, or no engine.
        """
        kinds = [kind.__name__ for kind in type(model).__mro__]
        if "PipelineEngine" in kinds:
            raise ConfigError(
                "wrap_model_engine: got a PipelineEngine, and a DeepSpeedTrial trains no "
                "pipelines here; run a script of Megatron or DeepSpeed with `entrypoint: python3 "
                "-m det_jupyter.launch.deepspeed`, or let ZeRO's stage 3 divide the model"
            )
        if not hasattr(model, "gradient_accumulation_steps"):
            raise ConfigError(
                f"wrap_model_engine: got a {type(model).__name__}, expected an engine: the first "
                "value that deepspeed.initialize(...) returns"
            )
        self.models.append(model)
        return model

    def has_to_wrap(self) -> dict[str, Any]:
        return {"wrap_model_engine": self.models}

    def disable_auto_grad_accumulation(self) -> None:
        """Call `train_batch` once for each batch: it takes all its micro batches itself."""
        self._is_accumulating = False

    def disable_dataset_reproducibility_checks(self) -> None:
        """Allow data loaders of any kind, which have to shard the data themselves."""
        self.accepts_any_loader = True

    def get_train_micro_batch_size_per_gpu(self) -> int:
        """Return how many records a rank trains at a time."""
        return int(self._first_engine().train_micro_batch_size_per_gpu())

    def get_num_micro_batches_per_slot(self) -> int:
        """Return how many micro batches a rank trains per batch: per step of the optimizer."""
        return int(self._first_engine().gradient_accumulation_steps())

    @property
    def train_micro_batch_size_per_gpu(self) -> int:
        return self.get_train_micro_batch_size_per_gpu()

    @property
    def num_micro_batches_per_slot(self) -> int:
        return self.get_num_micro_batches_per_slot()

    @property
    def num_train_calls(self) -> int:
        """How often `train_batch` is called for a batch."""
        return self.get_num_micro_batches_per_slot() if self._is_accumulating else 1

    @property
    def use_pipeline_parallel(self) -> bool:
        """False: engines for pipeline parallelism are refused."""
        return False

    def set_mpu(self, mpu: object) -> NoReturn:
        """Refuse model parallelism of the trial's own.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "set_mpu: a DeepSpeedTrial divides the data among all ranks here; let ZeRO's stage 3 "
            "divide the model, or run it as a script with det_jupyter.launch.deepspeed"
        )

    # Their effects would be in no checkpoint, or not on the engine.
    wrap_model = _refused("wrap_model")
    wrap_optimizer = _refused("wrap_optimizer")
    wrap_lr_scheduler = _refused("wrap_lr_scheduler")
    wrap_scaler = _refused("wrap_scaler")
    use_fp16 = _refused("use_fp16")
    backward = _refused("backward")
    step_optimizer = _refused("step_optimizer")

    def _first_engine(self) -> Any:
        if not self.models:
            raise ConfigError("the sizes of micro batches are those of an engine; call "
                              "context.wrap_model_engine first")  # fmt: skip
        return self.models[0]


def _check_optimizations(given: Optimizations) -> None:
    """Raise a ConfigError with each key that has no effect on an engine."""
    default = Optimizations()
    problems = [
        f"optimizations.{name}: got {getattr(given, name)!r}, and a DeepSpeedTrial trains an "
        "engine; set it in DeepSpeed's own configuration"
        for name in _OF_ENGINE
        if getattr(given, name) != getattr(default, name)
    ]
    if problems:
        raise ConfigError(problems)


def overwrite_deepspeed_config(
    base_ds_config: str | Path | Mapping[str, Any], source_ds_dict: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a configuration of DeepSpeed with values replaced, section by section.

    >>> overwrite_deepspeed_config({"fp16": {"enabled": True}}, {"fp16": {"loss_scale": 0}})
    {'fp16': {'enabled': True, 'loss_scale': 0}}

    Args:
        base_ds_config: The configuration, or a JSON file that has it.
        source_ds_dict: The values to replace, such as `context.get_hparam("overwrite_deepspeed")`.
    """
    if isinstance(base_ds_config, str | Path):
        base_ds_config = json.loads(Path(base_ds_config).read_text(encoding="utf-8"))
    if not isinstance(base_ds_config, Mapping) or not isinstance(source_ds_dict, Mapping):
        raise TypeError(
            "overwrite_deepspeed_config: expected a configuration, as a dict or the path of a "
            "JSON file, and a dict of values"
        )
    merged = dict(base_ds_config)
    for key, value in source_ds_dict.items():
        before = merged.get(key)
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            value = overwrite_deepspeed_config(before, value)
        merged[key] = value
    return merged
