"""Training metrics of all ranks, from one flush to the next and from one report to the next.

    add      every batch      this rank's values, on their device; no wait
    flush    twice a second   one all-reduce: the values of each batch, averaged over the ranks
    report   at a boundary    the averages over all batches since the last report

Every average weights a value by the number of records that it was computed from. A rank that
trains on a stand-in (data/division.py) has 0 records, and its values, also NaN, are ignored.

A LossWatch looks for the first loss that is not finite in the values of each flush, which have
been read anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite, isnan
from typing import Any, Literal

import torch

from det_jupyter.contract.values.text import TRAINING_CONTINUES
from det_jupyter.core import DistributedContext, RecordSink
from det_jupyter.core.timings.rank_timings import NO_TIMINGS, AnyTimings
from det_jupyter.pytorch.messages import TrialMistake, give_notice
from det_jupyter.pytorch.metrics.series import MetricSeries, MetricWindow, check_same_names
from det_jupyter.pytorch.reducers.builtin_reducers import weighted_mean


class TrainingMetrics:
    """Training metrics of all ranks, since the last flush and since the last report.

    All ranks must call every method after the same batches.

    Args:
        distributed: The ranks.
        average: Average over all ranks; False: every rank has its own values.
        watch: Checks each rank's own values at every flush.
        timings: Time the parts of a flush.

    Attributes:
        is_averaged: Whether a batch's values are averages over several ranks.
        add, latest, last_row: See MetricSeries.
        take_own: Returns this rank's values of the batches since the last flush. Not collective.
        has_records: Whether this rank has trained on records since the last report, in this run.
    """

    def __init__(
        self,
        distributed: DistributedContext,
        *,
        average: bool,
        watch: LossWatch | None = None,
        timings: AnyTimings = NO_TIMINGS,
    ) -> None:
        self._distributed = distributed
        self.is_averaged = average and distributed.size > 1
        self._watch = watch
        # If a loss ends the training, it has to end on all ranks.
        stops = watch is not None and watch.policy == "stop" and distributed.size > 1
        self._exchanges = self.is_averaged or stops
        self._series = MetricSeries("train_batch", distributed.rank)
        self._names_agreed = False
        self._check_losses: Callable[[], None] | None = None
        # Since the last report. Restored windows have other names if the trial's code was changed.
        self._flushed: list[MetricWindow] = []
        self.add, self.latest = self._series.add, self._series.latest
        self.last_row = self._series.last_row
        self.take_own = self._series.take
        self._take = timings.timed("from_device", self._series.take)
        self._by_rank = timings.timed("average_training_metrics", self._exchange)
        self.has_records = False

    def flush(self, first_step: int = 1) -> dict[str, list[float]]:
        """Return the values of each batch since the last flush, averaged. Collective.

        `first_step` is `steps_completed` of the first of these batches.
        """
        self.has_records = self.has_records or self._series.has_records()
        window = self._take()
        values_RNB, records_RB = self._by_rank(window)
        # The sum is finite only if each value is, and it is faster than a check of each.
        if self._watch is not None and not isfinite(values_RNB.sum().item()):
            ranks = range(len(values_RNB)) if self._exchanges else [self._distributed.rank]
            self._check_losses = partial(
                self._watch.check, window.names, values_RNB, records_RB, ranks, first_step
            )
        if self.is_averaged:
            means_NB = _mean_of_ranks(values_RNB, records_RB)
            window = MetricWindow(window.names, means_NB, records_RB.sum(dim=0))
        self._flushed.append(window)
        return dict(zip(window.names, window.values_NB.tolist(), strict=True))

    def flush_alone(
        self, rows_of: Callable[[int], torch.Tensor], first_step: int = 1
    ) -> dict[str, list[float]]:
        """Return what `flush` would, without the other ranks, which have ended. Not collective.

        Args:
            rows_of: Given the number of metrics, returns the values of each rank and, in the last
                row, its records, `[ranks, names + 1, batches]`; NaN where they are not known.
            first_step: `steps_completed` of the first of these batches.
        """
        window = self._series.take()
        by_rank = rows_of(len(window.names))
        num_batches = by_rank.shape[2]
        if window.values_NB.shape[1] >= num_batches:  # else a flush that has failed took them
            own = torch.cat([window.values_NB, window.records_B[None]])
            by_rank[self._distributed.rank] = own[:, :num_batches]
        values_RNB, is_known_RB = by_rank[:, :-1], ~by_rank[:, -1].isnan()
        records_RB = torch.where(is_known_RB, by_rank[:, -1], 0.0)
        if self._watch is not None and self._watch.policy == "stop":
            ranks = range(len(by_rank))
            self._check_losses = partial(
                self._watch.check, window.names, values_RNB, records_RB, ranks, first_step
            )
        if self.is_averaged:
            means_NB = _mean_of_ranks(values_RNB, records_RB)
            window = MetricWindow(window.names, means_NB, records_RB.sum(dim=0))
        else:  # the chief's, or those of the next rank that has noted them
            first_B, at_B = is_known_RB.int().argmax(dim=0), torch.arange(num_batches)
            values_NB = values_RNB[first_B, :, at_B].T
            window = MetricWindow(window.names, values_NB, records_RB[first_B, at_B])
        self._flushed.append(window)
        return dict(zip(window.names, window.values_NB.tolist(), strict=True))

    def drop_last(self, num_batches: int) -> None:
        """Drop the last batches that were flushed, and those that were not."""
        self._series.take()
        joined = MetricWindow.joined(self._flushed)
        names, values_NB, records_B = joined.names, joined.values_NB, joined.records_B
        end = len(records_B) - num_batches
        self._flushed = [MetricWindow(names, values_NB[:, :end], records_B[:end])]

    def check_losses(self) -> None:
        """Check the losses of the last flush. Call it after the flush was journaled.

        Raises:
            TrialMistake: A loss is not finite, and the policy is to stop.
        """
        check, self._check_losses = self._check_losses, None
        if check is not None:
            check()

    def report(self) -> tuple[dict[str, float], torch.Tensor]:
        """Return the averages over the batches flushed since the last report, and their values.

        The values are `[names, batches]`, in the order of the averages' names.
        """
        window = MetricWindow.joined(self._flushed)
        self._flushed = []
        self.has_records = False
        # Over all batches at once, since the times of flushes depend on the clock.
        rows = zip(window.names, window.values_NB.tolist(), strict=True)
        records = window.records_B.tolist()
        averages = {name: weighted_mean(row, records) for name, row in rows}
        return averages, window.values_NB

    def state(self) -> dict[str, Any]:
        """Return the batches since the last report, for a checkpoint. Call it after a flush."""
        window = MetricWindow.joined(self._flushed)
        return {"names": window.names, "values": window.values_NB, "records": window.records_B}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the next report covers these batches too."""
        self._flushed = [MetricWindow(state["names"], state["values"], state["records"])]

    def _exchange(self, window: MetricWindow) -> tuple[torch.Tensor, torch.Tensor]:
        """Return every rank's values and records, or only this rank's without an exchange."""
        if not self._exchanges:
            return window.values_NB.unsqueeze(0), window.records_B.unsqueeze(0)
        if not self._names_agreed:  # checked once; with other names the sums would be wrong
            names = self._distributed.allgather(self._series.names)
            check_same_names("train_batch", dict(enumerate(names)))
            self._names_agreed = True
        own = torch.cat([window.values_NB, window.records_B[None]])
        # Each rank fills its own row, so the sum gathers the rows. Averaging in the all-reduce
        # would make the last bits depend on the time of the flush: three ranks or more add in an
        # order that depends on the position in the tensor.
        by_rank = own.new_zeros(self._distributed.size, *own.shape)
        by_rank[self._distributed.rank] = own
        self._distributed.reduce_(by_rank, "sum")
        return by_rank[:, :-1], by_rank[:, -1]


def _mean_of_ranks(values_RNB: torch.Tensor, records_RB: torch.Tensor) -> torch.Tensor:
    """Return the means over the ranks, `[names, batches]`, weighted by records.

    Ranks are added one after the other: torch's sum over a dimension adds in an order that depends
    on the other dimensions.
    """
    sums = torch.zeros_like(values_RNB[0])
    for values_NB, records_B in zip(values_RNB, records_RB, strict=True):
        sums += torch.where(records_B > 0, values_NB * records_B, 0.0)
    return sums / records_RB.sum(dim=0)


_ADVICE = "Try a lower learning rate, or clip_grads."
_ADVICE_FP16 = "Try a lower learning rate, clip_grads, or bf16 instead of fp16."


class LossWatch:
    """Detects the first loss that is NaN or infinite: `loss`, or another metric named `...loss`.

    It checks each rank's own values, because an average would not show the rank.

    Args:
        policy: `on_nan_loss` of the configuration. warn: a notice, once in a run. stop: end the
            trial without a retry, which would have the same result.
        distributed: The ranks.
        sink: This rank's journal, for the notice.
        is_fp16: Whether forward passes are in fp16, for the advice.
    """

    def __init__(
        self,
        policy: Literal["warn", "stop"],
        distributed: DistributedContext,
        sink: RecordSink,
        *,
        is_fp16: bool = False,
    ) -> None:
        self.policy = policy
        self._distributed = distributed
        self._sink = sink
        self._advice = _ADVICE_FP16 if is_fp16 else _ADVICE
        self._has_warned = False

    def check(
        self,
        names: Sequence[str],
        values_RNB: torch.Tensor,
        records_RB: torch.Tensor,
        ranks: Sequence[int],
        first_step: int,
    ) -> None:
        """Check the values of a flush.

        Args:
            names: The metrics' names.
            values_RNB: Values of these ranks, `[ranks, names, batches]`, on the CPU.
            records_RB: Their record counts, `[ranks, batches]`; values of 0 records are ignored.
            ranks: All ranks in order, if each rank has the values of all; else only this rank.
            first_step: `steps_completed` of the first of these batches.

        Raises:
            TrialMistake: There is such a loss, and the policy is to stop.
        """
        watched = [index for index, name in enumerate(names) if name.lower().endswith("loss")]
        if self._has_warned or not watched:
            return
        is_bad_RNB = ~values_RNB[:, watched].isfinite() & (records_RB > 0)[:, None]
        if not is_bad_RNB.any():
            return
        batch, rank, name = is_bad_RNB.permute(2, 0, 1).nonzero()[0].tolist()  # the earliest batch
        value = values_RNB[rank, watched[name], batch].item()
        steps = first_step + batch
        word = "NaN" if isnan(value) else "infinite"
        found = f"{names[watched[name]]} became {word} at batch {steps - 1} on rank {ranks[rank]}"
        if self.policy == "stop":
            raise TrialMistake(
                "train_batch", f"train_batch: {found}; on_nan_loss is stop. {self._advice}"
            )
        self._has_warned = True
        if len(ranks) == 1 or self._distributed.is_chief:
            text = f"{found[0].upper()}{found[1:]}. {TRAINING_CONTINUES} {self._advice}"
            give_notice(text, self._distributed.rank, self._sink, is_alarm=True)
