"""DistributedDataParallel as a trial sees it: like the model it wraps."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class DistributedModel(DistributedDataParallel):
    """A model whose gradients are averaged over the ranks while they are computed.

    Attributes that DDP lacks are the model's own. Without gradients (evaluation), it *is* the
    model: DDP would broadcast buffers at every call, and ranks may evaluate different numbers of
    batches.
    """

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        if torch.is_grad_enabled():
            return super().forward(*args, **kwargs)  # type: ignore[no-untyped-call]
        return self.module(*args, **kwargs)

    def fix_buckets(self) -> None:
        """On the CPU, lay the gradients' buckets out as they will be for the whole training.

        DDP does so after its first batch, from the order in which gradients came. With three ranks
        or more, the order in which an all-reduce adds depends on a gradient's place in its bucket:
        the first batch after a pause would be added in another order than without the pause.
        """
        if self._has_fixed_buckets:
            self.reducer._push_all_rebuilt_params()
            self.reducer._rebuild_buckets()

    @property
    def _has_fixed_buckets(self) -> bool:
        return self.device_type == "cpu" and not self.find_unused_parameters

    def _build_params_for_reducer(self) -> tuple[list[Any], list[Any]]:
        """Return the parameters; for fixed buckets, in about the order in which gradients come."""
        parameters, is_sparse = super()._build_params_for_reducer()  # type: ignore[no-untyped-call]
        step = -1 if self._has_fixed_buckets else 1
        return parameters[::step], is_sparse[::step]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            modules = self.__dict__.get("_modules", {})
            if "module" not in modules:
                raise
            return getattr(modules["module"], name)


def distribute(
    model: nn.Module, device: torch.device, *, find_unused_parameters: bool
) -> nn.Module:
    """Return the model so that all ranks train it together."""
    if any(parameter.requires_grad for parameter in model.parameters()):
        distributed = DistributedModel(
            model,
            device_ids=[device] if device.type == "cuda" else None,
            find_unused_parameters=find_unused_parameters,
        )
        distributed.fix_buckets()
        return distributed
    for tensor in model.state_dict().values():  # DDP refuses a model that has nothing to train
        dist.broadcast(tensor, src=0)
    return model


def unwrap(model: nn.Module) -> nn.Module:
    """Return the user's own model."""
    return model.module if isinstance(model, DistributedModel) else model


def share_buffers(models: list[nn.Module]) -> None:
    """Give all ranks the chief's buffers, as DDP does before each training batch.

    Running statistics differ between the ranks after a batch; what is evaluated has to be what the
    chief saves.
    """
    for model in models:
        if isinstance(model, DistributedModel):
            for buffer in model.module.buffers():
                dist.broadcast(buffer, src=0)
