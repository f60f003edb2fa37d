"""Detecting ranks whose parameters have diverged.

Ranks that start with the same parameters and step with the same gradients keep the same
parameters, to the last bit, unless the trial changes parameters or gradients itself. So the ranks
compare a checksum after the first step, then at a report every PERIOD batches, and at the end: one
pass over the parameters, and one all-reduce of two integers.

    bits       all parameters as 32-bit integers b, on their device
    checksum   sum of b_i * w_i, modulo 2**32 in each chunk, with random weights w: it differs also
               between parameters with the same numbers in another order, as after a first step
               of Adam

Bits are compared, so NaN is equal to NaN. Not compared are sharded models, buffers (each rank has
its own while it trains), and parameters that a model lists in `_ddp_params_and_buffers_to_ignore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from det_jupyter.core import Context
from det_jupyter.pytorch.messages import TrialMistake, give_notice
from det_jupyter.pytorch.parallel import DistributedModel, is_sharded, unwrap

PERIOD = 100  # batches; a comparison costs little next to them
_CHUNK_CPU, _CHUNK_GPU = 1 << 18, 1 << 20  # integers: these fit a cache; these amortize a kernel
_ADVICE = (
    "Something changes parameters or gradients on each rank by itself: gradients that were set or "
    "changed by hand (torch.autograd.grad, noise) or came from loss.backward(), parameters "
    "written to, or code for one rank only. Compute gradients with context.backward(loss), draw "
    "random numbers that are the same on all ranks, or share what a rank computes "
    "(context.distributed.broadcast)"
)


@dataclass(eq=False)
class RankWatch:
    """Compares the parameters of all wrapped models that every rank holds. Collective.

    Args:
        policy: `optimizations.check_ranks` of the configuration. report: a notice, once in a run.
            stop: end the trial without a retry, which would have the same result.
        core: The ranks, and this one's journal.
        models: The wrapped models.

    Attributes:
        compared_at: Batches trained at the last comparison; None before the first.
        reduce: The collective; the caller may put a timer around it.
    """

    policy: Literal["never", "report", "stop"]
    core: Context
    models: Sequence[nn.Module]

    def __post_init__(self) -> None:
        self.compared_at: int | None = None
        self.reduce = self.core.distributed.reduce_
        self._is_done = self.policy == "never" or self.core.distributed.size == 1
        self._weights: dict[torch.device, torch.Tensor] = {}

    def is_due(self, steps: int, *, is_report: bool, is_last: bool) -> bool:
        """Return whether to compare after `steps` batches; the same on all ranks."""
        if self._is_done:
            return False
        if self.compared_at is None:
            return True
        return is_report and (is_last or steps - self.compared_at >= PERIOD)

    def compare(self, steps: int) -> None:
        """Compare the ranks' parameters. Collective.

        Raises:
            TrialMistake: The parameters differ, and the policy is to stop. Raised on all ranks.
        """
        self.compared_at = steps
        own = self._checksum(parameter for _, parameter in _compared(self.models))
        most, least = self.reduce(torch.tensor([own, ~own]), "max").tolist()
        if most != ~least:
            self._report(steps)

    def _report(self, steps: int) -> None:
        """Find the tensors that differ, and write a notice or raise. Collective."""
        named = list(_compared(self.models))
        digests = [self._checksum([_with_one_nan(parameter)]) for _, parameter in named]
        by_rank = self.core.distributed.allgather(digests)
        differing = [
            (name, [rank for rank, theirs in enumerate(by_rank) if theirs[index] != mine])
            for index, ((name, _), mine) in enumerate(zip(named, by_rank[0], strict=True))
            if any(theirs[index] != mine for theirs in by_rank)
        ]
        if not differing:  # only NaNs with different bits
            return
        name, ranks = differing[0]
        which = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"
        found = (
            f"train_batch: the ranks have diverged: {name} is not the same on {which} as on "
            f"rank 0 (steps_completed {steps}; {len(differing)} of {len(named)} tensors differ)"
        )
        if self.policy == "stop":
            raise TrialMistake(
                "train_batch", f"{found}; optimizations.check_ranks is stop. {_ADVICE}"
            )
        self._is_done = True
        if self.core.distributed.is_chief:
            text = (
                f"{found}; training continues, and this is reported once "
                "(optimizations.check_ranks: stop ends the trial instead; never, where ranks are "
                f"meant to differ). {_ADVICE}"
            )
            give_notice(text, self.core.distributed.rank, self.core.sink)

    def _checksum(self, tensors: Iterable[torch.Tensor]) -> int:
        total: torch.Tensor | int = 0
        for chunk in _chunks(tensors):
            total = total * 1_000_003 + (chunk * self._weights_for(chunk)).sum()
        return int(total)  # waits for the device

    def _weights_for(self, chunk: torch.Tensor) -> torch.Tensor:
        device = chunk.device
        if device not in self._weights:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(
                -(2**31), 2**31, (_length(device),), generator=generator, dtype=torch.int64
            )
            self._weights[device] = (drawn | 1).to(device, torch.int32)
        return self._weights[device][: len(chunk)]


def _compared(models: Sequence[nn.Module]) -> Iterator[tuple[str, torch.Tensor]]:
    for index, model in enumerate(models):
        if is_sharded(model):
            continue
        ignored = model.parameters_to_ignore if isinstance(model, DistributedModel) else ()
        for name, parameter in unwrap(model).named_parameters():
            if name not in ignored:
                yield f"models.{index}.{name.replace('_orig_mod.', '')}", parameter.detach()


def _chunks(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the tensors' bits as vectors of integers; joins small tensors, splits large ones."""
    parts: list[torch.Tensor] = []
    kind: object = None
    room = 0
    for tensor in tensors:
        flat = tensor.reshape(-1)
        if kind != (flat.device, flat.dtype):
            yield from _as_integers(parts)
            parts, room, kind = [], 0, (flat.device, flat.dtype)
        limit = 4 * _length(flat.device) // flat.element_size()
        for piece in flat.split(limit) if len(flat) > limit else (flat,):
            if len(piece) > room:
                yield from _as_integers(parts)
                parts, room = [], limit
            parts.append(piece)
            room -= len(piece)
    yield from _as_integers(parts)


def _as_integers(parts: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield the parts as one vector of 32-bit integers, if there are any."""
    if not parts:
        return
    flat = torch.cat(parts).view(torch.uint8)  # the concatenation is aligned for integers
    if rest := -len(flat) % 4:
        flat = torch.cat([flat, flat.new_zeros(rest)])
    yield flat.view(torch.int32)


def _length(device: torch.device) -> int:
    return _CHUNK_CPU if device.type == "cpu" else _CHUNK_GPU


def _with_one_nan(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with equal bits for all NaNs."""
    if not tensor.is_floating_point():
        return tensor
    return torch.where(tensor.isnan(), torch.nan, tensor)
