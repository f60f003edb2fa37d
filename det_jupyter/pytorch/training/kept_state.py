"""What a trial may change before its optimizers step: kept as a window begins, and set back.

values of parameter groups    a callback or the trial may set them
buffers of models             a forward pass changes running statistics
steps of schedulers           only counted: a step cannot be set back
weights that are stepped      only their versions, which torch counts: an optimizer may change
                              them by other methods than `step`, as SAM does. [m] 0.1 to
                              0.3 µs for each tensor, on a busy computer
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import torch

from det_jupyter.errors import CheckpointError
from det_jupyter.pytorch.parallel import as_bytes, is_sharded
from det_jupyter.pytorch.training.page_buffers import buffers_of
from det_jupyter.pytorch.trial.context import PyTorchTrialContext

_version = attrgetter("_version")


class KeptState:
    """The state of a trial before its optimizers step. Methods are not collective.

    Attributes:
        buffers: Those of the models that are not sharded.
        is_torn: Whether a scheduler has stepped since the last `keep`, or weights were changed.
    """

    def __init__(self, context: PyTorchTrialContext) -> None:
        self._context = context
        self.buffers = buffers_of(context.models)
        self._buffers_then = [torch.empty_like(buffer) for buffer in self.buffers]
        self._schedulers = [one.scheduler for one in context.lr_schedulers]
        self._steps_then: list[Any] = []
        self._group_lists: list[Any] = []
        self._groups_then: list[dict[str, Any]] = []  # of all optimizers, without parameters
        self._tensors: list[torch.Tensor] = []  # values of groups that are changed in place
        self._tensors_then: list[torch.Tensor] = []
        self._weights: list[torch.Tensor] = []  # of models that are not sharded
        self._versions_then: list[int] = []

    def begin(self) -> None:
        """Look up the groups of the optimizers, which are restored."""
        self._group_lists = [optimizer.param_groups for optimizer in self._context.optimizers]
        values = (each for group in chain(*self._group_lists) for each in group.values())
        self._tensors = [each for each in values if isinstance(each, torch.Tensor)]
        whole = {
            id(weight)
            for model in self._context.models
            if not is_sharded(model)
            for weight in model.parameters()
        }
        stepped = (each for group in chain(*self._group_lists) for each in group["params"])
        self._weights = [each for each in stepped if id(each) in whole]

    def keep(self) -> None:
        """Keep the present state."""
        self._groups_then = [*map(dict.copy, chain.from_iterable(self._group_lists))]
        if self._tensors:
            self._tensors_then = [*map(torch.clone, self._tensors)]
        if self._schedulers:
            self._steps_then = [*map(_steps_of, self._schedulers)]
        if self.buffers:
            with torch.no_grad():
                torch._foreach_copy_(self._buffers_then, self.buffers)
        self._versions_then = [*map(_version, self._weights)]

    @property
    def is_torn(self) -> bool:
        has_stepped = [*map(_steps_of, self._schedulers)] != self._steps_then
        return has_stepped or [*map(_version, self._weights)] != self._versions_then

    def set_back(self) -> None:
        """Set back what was changed since the last `keep`.

        Raises:
            CheckpointError: The trial has added groups, or replaced buffers.
        """
        lists = [optimizer.param_groups for optimizer in self._context.optimizers]
        groups = [group for groups in lists for group in groups]
        is_same = all(now is then for now, then in zip(lists, self._group_lists, strict=True))
        if not is_same or len(groups) != len(self._groups_then):
            raise CheckpointError("the trial has added groups of parameters in the batch")
        self._check_buffers()
        for group, then in zip(groups, self._groups_then, strict=True):
            group.update(then)
        with torch.no_grad():
            for value, before in zip(self._tensors, self._tensors_then, strict=True):
                value.copy_(before)
            if self.buffers:
                torch._foreach_copy_(self.buffers, self._buffers_then)

    def take_buffers(self, chiefs: Sequence[torch.Tensor], own: Sequence[torch.Tensor]) -> None:
        """Set buffers to those that the chief would have sent next.

        Args:
            chiefs: Its buffers as it began the last exchange; [] if they are not here.
            own: This rank's buffers as it began that exchange; [] as well.

        Raises:
            CheckpointError: The trial has replaced buffers, or the chief's are needed.
        """
        self._check_buffers()
        for index, buffer in enumerate(self.buffers):
            before = own[index] if chiefs else self._buffers_then[index]
            if not torch.equal(as_bytes(buffer), as_bytes(before)):  # NaN equals itself
                if not chiefs:
                    raise CheckpointError("rank 0 has buffers that are not here")
            elif chiefs:
                with torch.no_grad():
                    buffer.copy_(chiefs[index])

    def _check_buffers(self) -> None:
        if [*map(id, buffers_of(self._context.models))] != [*map(id, self.buffers)]:
            raise CheckpointError("the trial has replaced buffers of its models in the batch")


def counts_steps(scheduler: Any) -> bool:
    """Return whether it shows if a scheduler has stepped."""
    return hasattr(scheduler, "last_epoch") or bool(_parts_of(scheduler))


def _steps_of(scheduler: Any) -> Any:
    """Return how often a scheduler has stepped; a ChainedScheduler has only that of its parts."""
    if hasattr(scheduler, "last_epoch"):
        return scheduler.last_epoch
    return [*map(_steps_of, _parts_of(scheduler))]


def _parts_of(scheduler: Any) -> Sequence[Any]:
    parts: Sequence[Any] = getattr(scheduler, "_schedulers", ())
    return parts
