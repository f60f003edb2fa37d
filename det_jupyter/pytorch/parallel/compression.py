"""Gradients exchanged in fewer bytes: as 16-bit numbers, or as products of small matrices.

    fp16, bf16   each gradient is divided by the number of ranks, cast, summed in 16 bits by the
                 all-reduce, and cast back
    powersgd     each gradient, reshaped to a matrix M (first dimension by all others), is
                 exchanged as P and Q, M ~ P Q^T, of RANK columns each. Each rank adds the error of
                 its approximation to its next gradient (error feedback), and the next batch starts
                 with this Q (warm start). Gradients that would not shrink by MIN_RATE are
                 exchanged as they are. Vogels, Karimireddy, Jaggi: PowerSGD, NeurIPS 2019, arXiv
                 1905.13727

The algorithms are torch's (`torch.distributed.algorithms.ddp_comm_hooks`). Added here is that
PowerSGD's errors and factors can be saved by the names of parameters, and be loaded into buckets
of another layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy
import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from det_jupyter.errors import ConfigError

Compression = Literal["fp16", "bf16", "powersgd"]
_Wait = Callable[[Future[torch.Tensor]], object]
RANK = 2  # columns of P and Q; the paper's 1 to 4 lose no accuracy in its image classification
FIRST_COMPRESSED = 10  # exchanges before this one are plain: early gradients vary the most
MIN_RATE = 2  # factor by which a gradient has to shrink


@dataclass(frozen=True, slots=True)
class Piece:
    """A parameter's part of a bucket; offset and length in elements."""

    name: str
    offset: int
    length: int
    shape: torch.Size

    @property
    def factor_shape(self) -> tuple[int, int] | None:
        """Rows and columns of Q; None if the gradient is exchanged as it is."""
        rows, columns = self.matrix_shape
        rank = min(rows, columns, RANK)
        shrinks = (rows + columns) * rank * MIN_RATE < rows * columns
        return (columns, rank) if shrinks else None

    @property
    def matrix_shape(self) -> tuple[int, int]:
        """Rows and columns of the gradient as a matrix."""
        return self.shape[0], self.length // max(self.shape[0], 1)


class LowRank:
    """PowerSGD of one model, on one rank.

    Raises:
        ConfigError: A parameter is a scalar; the algorithm needs a dimension.
    """

    def __init__(self, model: nn.Module) -> None:
        trained = {
            name: parameter
            for name, parameter in model.named_parameters()
            if parameter.requires_grad
        }
        if scalars := [name for name, parameter in trained.items() if parameter.dim() == 0]:
            raise ConfigError(
                [
                    "optimizations.gradient_compression: powersgd needs parameters with at least "
                    f"one dimension; {', '.join(scalars)} has none: make it a vector of length 1, "
                    "or use fp16 or bf16"
                ]
            )
        self._names = {id(parameter): name for name, parameter in model.named_parameters()}
        self._layouts: dict[int, list[Piece]] = {}  # by index of the bucket
        self._wait: _Wait = _wait
        self._errors: dict[str, torch.Tensor] = {}  # by parameter, if its bucket has no layout yet
        self._factors: dict[str, torch.Tensor] = {}  # as above
        self.power_sgd = PowerSGDState(
            process_group=None,
            matrix_approximation_rank=RANK,
            start_powerSGD_iter=FIRST_COMPRESSED,
            min_compression_rate=MIN_RATE,
            compression_stats_logging_frequency=1 << 62,  # never: it logs into the trial's output
        )

    def exchange(self, bucket: Any) -> Future[torch.Tensor]:
        """Average a bucket, DDP's `GradBucket`, over the ranks. Collective."""
        if bucket.index() not in self._layouts:
            self._lay_out(bucket)
        future: Future[torch.Tensor] = powerSGD_hook(self.power_sgd, bucket)
        if bucket.buffer().device.type == "cpu":
            # The hook exchanges three times, each time when the last is done. NCCL queues all
            # three at once. gloo would exchange in threads, whose order differs between ranks, so
            # that two ranks would exchange different buckets with each other.
            self._wait(future)
        return future

    def set_timer(self, timed: Callable[[_Wait], _Wait] | None) -> None:
        """Put the timer that `timed` makes around waits in the backward pass; None removes it."""
        self._wait = _wait if timed is None else timed(_wait)

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, on the CPU; errors are this rank's own."""
        errors, factors = self._by_name()
        kind, keys, position, has_gauss, gauss = self.power_sgd.rng.get_state(legacy=True)
        saved_keys = torch.from_numpy(numpy.array(keys, dtype=numpy.int64))
        return {
            "iter": self.power_sgd.iter,
            "rng": [kind, saved_keys, position, has_gauss, gauss],
            "errors": {name: error.cpu() for name, error in errors.items()},
            "factors": {name: factor.cpu() for name, factor in factors.items()},
        }

    def load(self, state: dict[str, Any]) -> None:
        """Load what `state` returned on this rank."""
        kind, keys, position, has_gauss, gauss = state["rng"]
        self.power_sgd.iter = state["iter"]
        self.power_sgd.rng.set_state((kind, keys.numpy(), position, has_gauss, gauss))
        self._drop_buckets()
        self._errors, self._factors = dict(state["errors"]), dict(state["factors"])

    def reset_layouts(self) -> None:
        """Keep errors and factors by parameter, because buckets get another layout."""
        self._errors, self._factors = self._by_name()
        self._drop_buckets()

    def _drop_buckets(self) -> None:
        self._layouts.clear()
        for memory in self._memories():
            memory.clear()

    def _memories(self) -> tuple[dict[int, torch.Tensor], ...]:
        state = self.power_sgd
        return state.error_dict, state.p_memory_dict, state.q_memory_dict

    def _lay_out(self, bucket: Any) -> None:
        """Store a bucket's layout, and load its parameters' errors and factors into it."""
        buffer = bucket.buffer()
        start = buffer.storage_offset()
        gradients = zip(bucket.parameters(), bucket.gradients(), strict=True)
        pieces = [
            Piece(self._names[id(owner)], part.storage_offset() - start, part.numel(), part.shape)
            for owner, part in gradients
        ]
        index = bucket.index()
        self._layouts[index] = pieces
        if not all(piece.name in self._errors for piece in pieces):
            return  # a new training: torch begins with zeros and random factors
        errors, ps, qs = self._memories()
        errors[index] = torch.zeros_like(buffer)
        for piece in pieces:
            error = errors[index][piece.offset : piece.offset + piece.length]
            error.copy_(self._errors.pop(piece.name))
        factors = [self._factors.pop(piece.name).flatten() for piece in _compressed(pieces)]
        qs[index] = torch.cat([buffer.new_empty(0), *(factor.to(buffer) for factor in factors)])
        sizes = [p.matrix_shape[0] * (p.factor_shape or (0, 0))[1] for p in _compressed(pieces)]
        ps[index] = buffer.new_empty(sum(sizes))  # computed before it is read

    def _by_name(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        errors, factors = dict(self._errors), dict(self._factors)
        error_of, _, factors_of = self._memories()
        for index, pieces in self._layouts.items():
            if index not in error_of:
                continue
            for piece in pieces:
                part = error_of[index][piece.offset : piece.offset + piece.length]
                errors[piece.name] = part.clone()
            offset = 0
            for piece in _compressed(pieces):
                assert piece.factor_shape is not None
                rows, columns = piece.factor_shape
                part = factors_of[index][offset : offset + rows * columns]
                factors[piece.name] = part.view(rows, columns).clone()
                offset += rows * columns
        return errors, factors


def _wait(future: Future[torch.Tensor]) -> object:
    return future.wait()


def register_compression(
    model: DistributedDataParallel, compression: Compression, low_rank: LowRank | None
) -> None:
    """Register the hook by which the model exchanges compressed gradients."""
    # Lambdas, because torch checks the annotations of functions, which are strings in this module,
    # and refuses its own bfloat16 hook by its name without NCCL, although gloo supports it.
    hook: Callable[[Any, Any], Any]
    if low_rank is not None:
        hook = lambda _, bucket: low_rank.exchange(bucket)  # noqa: E731
    elif compression == "fp16":
        hook = default_hooks.fp16_compress_hook
    else:
        hook = lambda group, bucket: default_hooks.bf16_compress_hook(group, bucket)  # noqa: E731
    model.register_comm_hook(None, hook)


def _compressed(pieces: list[Piece]) -> list[Piece]:
    """Return the pieces that have factors, in the order in which torch stores those: by shape."""
    by_shape: dict[tuple[int, int], list[Piece]] = {}
    for piece in pieces:
        if piece.factor_shape is not None:
            by_shape.setdefault(piece.matrix_shape, []).append(piece)
    return [piece for same in by_shape.values() for piece in same]
