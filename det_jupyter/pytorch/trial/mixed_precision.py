"""Mixed precision, as a trial asks for it: a part of its context."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.steps.precision import Precision
from det_jupyter.pytorch.steps.stepping import Stepping


class MixedPrecision:
    """The methods of a PyTorchTrialContext that choose what is computed in 16 bits.

    Attributes:
        scaler: The gradient scaler, the trial's own or that of mixed precision; None without.
    """

    device: torch.device
    distributed: DistributedContext
    models: list[nn.Module]
    scaler: Any
    stepping: Stepping

    def wrap_scaler(self, scaler: Any) -> Any:
        """Register a gradient scaler, so that its state is saved, and return it.

        Scaling, unscaling and updating stay with the trial.
        """
        if self.scaler is not None:
            raise ConfigError("wrap_scaler: a scaler is wrapped already; one is enough")
        if self.models:
            raise ConfigError("wrap_scaler: call it before wrap_model")
        self.scaler = scaler
        return scaler

    def autocast_forward_pass(self, module: nn.Module) -> nn.Module:
        """Let the module compute in 16 bits where that is safe, and return it."""
        return self.stepping.precision.wrap_forward(module)

    def configure_apex_amp(
        self,
        models: Any,
        optimizers: Any,
        enabled: bool = True,
        opt_level: str = "O1",
        **ignored: Any,
    ) -> tuple[Any, Any]:
        """Return models and optimizers, trained with torch's mixed precision in Apex's place.

        For trials written for Determined: NVIDIA has ended Apex's. Every level but O0 means
        torch's fp16 autocast with a gradient scaler; other arguments have no effect.
        """
        if not enabled or opt_level == "O0":
            return models, optimizers
        warnings.warn(
            f"configure_apex_amp: {opt_level} means fp16 by torch.amp here; "
            "set optimizations.mixed_precision: fp16 instead",
            stacklevel=2,
        )
        self.use_fp16()
        for model in models if isinstance(models, list) else [models]:
            self.stepping.precision.wrap_forward(model)
        return models, optimizers

    def use_fp16(self) -> None:
        """Train in fp16 with a gradient scaler, unless a type is chosen already."""
        if self.stepping.precision.dtype is None:
            self.set_precision(Precision(self.device, torch.float16))

    def set_precision(self, precision: Precision) -> None:
        """Train in this precision, from the next forward pass on."""
        if self.scaler is not None and precision.scaler is not None:
            raise ConfigError(
                "use_amp: a scaler is wrapped already; keep either of the two, "
                "wrap_scaler or automatic mixed precision"
            )
        if precision.notice and self.distributed.is_chief:
            warnings.warn(precision.notice, stacklevel=2)
        self.stepping.precision = precision
        self.scaler = precision.scaler
