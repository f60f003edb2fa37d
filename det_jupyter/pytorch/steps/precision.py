"""Mixed precision: forward passes in 16 bits where that is safe, weights in 32.

    O0           off
    bf16         bfloat16: as wide a range as float32's, so nothing needs to be scaled
    fp16         float16: more precise, but small gradients underflow; so the loss is scaled up,
                 and the gradients down again before the optimizer's step
    O1, O2, O3   NVIDIA Apex's levels, ways to use fp16: treated as fp16

Torch chooses which operations are computed in 16 bits (`torch.amp.autocast`), also inside a
compiled model. It applies to `forward` only, not to other methods that a trial calls directly.
"""

from __future__ import annotations

from copy import copy
from types import MethodType
from typing import Any, TypeVar

import torch
from torch import nn

from det_jupyter.config import ExperimentConfig

Model = TypeVar("Model", bound=nn.Module)

_LEVELS = {"O0": None, "fp16": torch.float16, "bf16": torch.bfloat16}
_APEX = ("O1", "O2", "O3")


def parse_level(level: str) -> tuple[torch.dtype | None, str]:
    """Return the number type of forward passes, and a notice if it replaces the given level.

    >>> parse_level("bf16")
    (torch.bfloat16, '')
    """
    if level in _APEX:
        return torch.float16, (
            f"optimizations.mixed_precision: {level} is a level of NVIDIA Apex; here it means "
            "fp16: torch.amp.autocast with a gradient scaler, and weights kept in 32 bits"
        )
    return _LEVELS[level], ""


class Precision:
    """The precision of one trial.

    Attributes:
        dtype: The type of forward passes; None: that of the weights.
        scaler: Scales losses; None unless the type is float16.
        notice: A text for the user about the choice; may be empty.
    """

    def __init__(
        self, device: torch.device, dtype: torch.dtype | None, *, notice: str = ""
    ) -> None:
        self.device = device
        self.dtype = dtype
        self.notice = notice
        self.scaler = torch.amp.GradScaler(device.type) if dtype == torch.float16 else None

    @classmethod
    def from_config(cls, config: ExperimentConfig, device: torch.device) -> Precision:
        """Return the precision that `optimizations.mixed_precision` sets."""
        dtype, notice = parse_level(config.optimizations.mixed_precision)
        return cls(device, dtype, notice=notice)

    def wrap_forward(self, model: Model) -> Model:
        """Change `model.forward` to compute in 16 bits and return float32; return the model.

        Call it before the model is wrapped. Tensors that `forward` returns in dicts, lists and
        tuples are cast, in other objects they are not. A deep copy of the model computes in the
        same way, with its own weights.
        """
        if self.dtype is not None:
            # A method bound to the model, not a closure over it: a deep copy is bound to itself.
            kind, dtype, forward = self.device.type, self.dtype, model.forward
            unbound = getattr(
                forward, "__func__", lambda _, *args, **kwargs: forward(*args, **kwargs)
            )

            def in_16_bits(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
                with torch.amp.autocast(kind, dtype=dtype):
                    returned = unbound(model, *args, **kwargs)
                return to_float32(returned)

            model.forward = MethodType(in_16_bits, model)
        return model

    def scale(self, loss: torch.Tensor) -> torch.Tensor:
        """Return the scaled loss, on which to call `backward`."""
        return loss if self.scaler is None else self.scaler.scale(loss)

    def unscale(self, optimizer: torch.optim.Optimizer) -> None:
        """Divide the optimizer's gradients by the scale, before they are clipped or read."""
        if self.scaler is not None:
            self.scaler.unscale_(optimizer)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Step the optimizer, unless scaled gradients overflowed."""
        if self.scaler is None:
            optimizer.step()
        else:
            self.scaler.step(optimizer)

    def update(self) -> None:
        """Adapt the scale. Call it once after the steps of all optimizers."""
        if self.scaler is not None:
            self.scaler.update()


def to_float32(value: Any) -> Any:
    """Return the value with 16-bit floating tensors in it cast to float32."""
    if isinstance(value, torch.Tensor):
        return value.float() if value.dtype in (torch.float16, torch.bfloat16) else value
    if isinstance(value, dict):
        changed = copy(value)
        for key, item in value.items():
            changed[key] = to_float32(item)
        return changed
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(to_float32(item) for item in value))
    if type(value) in (list, tuple):
        return type(value)(to_float32(item) for item in value)
    return value
