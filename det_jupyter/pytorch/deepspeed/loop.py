"""The training loop of a DeepSpeedTrial: that of a PyTorchTrial, with micro batches.

    the loop's batch        one step of the engine's optimizer, `gradient_accumulation_steps` micro
                            batches on each rank, all loaded before the first is trained
    its metrics             the mean over the micro batches, as the gradients are
    its checkpoint          of all ranks (savepoints.py)

Reports, validations, pauses, searches and orders are those of the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

import torch

from det_jupyter.pytorch.data import BatchStream, Share
from det_jupyter.pytorch.deepspeed.context import DeepSpeedTrialContext
from det_jupyter.pytorch.deepspeed.savepoints import EngineSavepoints
from det_jupyter.pytorch.messages import TrialMistake
from det_jupyter.pytorch.metrics.evaluation import with_index
from det_jupyter.pytorch.metrics.series import as_metrics
from det_jupyter.pytorch.training.loop import Loop


class DeepSpeedLoop(Loop):
    """Trains a DeepSpeedTrial, on one rank of its gang."""

    def __post_init__(self) -> None:
        trial: Any = self.trial
        assert isinstance(self.context, DeepSpeedTrialContext)
        self._engines = self.context
        # Validations call it with a batch, as that of any trial.
        evaluate = with_index(partial(type(trial).evaluate_batch, trial))
        trial.evaluate_batch = partial(_evaluate, evaluate)
        super().__post_init__()
        self._own_length = None  # shares of micro batches have their records
        train_batch: Any = self._train_micro_batches
        self._trial_batch = self._timings.timed("forward", train_batch)
        self._savepoints = EngineSavepoints(
            self.core,
            self._parts(),
            self.origin,
            self.start,
            partial(self._timings.timed_block, "checkpoint"),
            trial,
        )

    def _open_stream(self, loader: Any, skip: int) -> BatchStream:
        num_micro = self._engines.get_num_micro_batches_per_slot()
        return MicroBatches(super()._open_stream(loader, skip * num_micro), num_micro)

    def _train_micro_batches(self, micro_batches: list[Any], epoch: int, index: int) -> Any:
        trial, left = self.trial, iter(micro_batches)
        calls = self._engines.num_train_calls
        returned = [
            _detached(
                as_metrics(
                    "train_batch",
                    _taking("train_batch", left, trial.train_batch, epoch, index),
                    index,
                    self._distributed.rank,
                )
            )
            for _ in range(calls)
        ]
        if num_left := sum(1 for _ in left):
            raise TrialMistake(
                "train_batch",
                f"train_batch: left {num_left} of the {len(micro_batches)} micro batches of batch "
                f"{index}, which would not be trained; take one in each call, or after "
                "disable_auto_grad_accumulation all in one",
            )
        return returned[0] if calls == 1 else _mean(returned, index)


def _detached(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return metrics without their graphs, of which a batch has one for each micro batch."""
    return {
        name: value.detach() if isinstance(value, torch.Tensor) else value
        for name, value in metrics.items()
    }


def _mean(returned: list[dict[str, Any]], index: int) -> dict[str, Any]:
    """Return the mean of the metrics of a batch's micro batches."""
    names = returned[0].keys()
    if strange := next((each for each in returned if each.keys() != names), None):
        raise TrialMistake(
            "train_batch",
            f"train_batch returned {', '.join(strange) or 'nothing'} for a micro batch of "
            f"batch {index} and {', '.join(names) or 'nothing'} for its first; return the "
            "same metrics for each",
        )
    means = {}
    for name in names:
        try:
            means[name] = sum(each[name] for each in returned) / len(returned)
        except (TypeError, RuntimeError) as error:  # no numbers, or of different shapes
            raise TrialMistake(
                "train_batch",
                f"train_batch: metric {name!r} of batch {index} has no mean over its micro "
                f"batches: {error}; return a number for each",
            ) from error
    return means


def _evaluate(evaluate: Callable[[Any, int], Any], batch: Any, index: int) -> Any:
    return _taking("evaluate_batch", iter([batch]), evaluate, index)


def _taking(method: str, left: Iterator[Any], call: Callable[..., Any], *given: Any) -> Any:
    """Call a method of the trial with the batches that are left, and return its metrics."""
    try:
        return call(left, *given)
    except StopIteration as error:
        number = "one batch" if method == "evaluate_batch" else "gradient_accumulation_steps"
        raise TrialMistake(
            method,
            f"{method}: took more batches from its iterator than there are for it: {number}; "
            "call next(dataloader_iter) once (after disable_auto_grad_accumulation, once for each "
            "micro batch)",
        ) from error


class MicroBatches:
    """Lists of one rank's micro batches, one list for each batch, without end."""

    def __init__(self, stream: BatchStream, num_micro: int) -> None:
        self._stream = stream
        self._num_micro = num_micro

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in a pass; micro batches that are left over begin the next one."""
        micro = self._stream.batches_per_epoch
        return micro if micro is None else max(1, micro // self._num_micro) if micro else 0

    @property
    def smallest_share(self) -> int | None:
        return self._stream.smallest_share

    def __iter__(self) -> Iterator[tuple[list[Any], Share]]:
        stream = iter(self._stream)
        while parts := list(islice(stream, self._num_micro)):
            records = sum(share.records for _, share in parts)
            total = sum(share.total for _, share in parts)
            yield [batch for batch, _ in parts], Share(records, total)

    def close(self) -> None:
        self._stream.close()
