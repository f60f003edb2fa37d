"""Training metrics of all ranks, from one flush to the next and from one report to the next.

    add      every batch      this rank's values, wherever they are; nothing waits
    flush    twice a second   one all-reduce: the values of each batch, averaged over the ranks
    report   at a boundary    their averages over all batches since the report before

Every average weighs a value by the records that it was computed from. A rank that trains on a
stand-in (see data/) has 0 records, and whatever it computes, NaN too, counts for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite, isnan
from typing import Any, Literal

import torch

from det_jupyter.contract.values.text import GOES_ON
from det_jupyter.core import DistributedContext, RecordSink
from det_jupyter.pytorch.messages import TrialMistake, give_notice
from det_jupyter.pytorch.metrics.series import MetricSeries, Window, check_same_names
from det_jupyter.pytorch.reducers.builtin_reducers import weighted_mean
from det_jupyter.pytorch.timings.rank_timings import NO_TIMINGS, AnyTimings


class TrainingMetrics:
    """Training metrics of all ranks, since the last flush and since the last report.

    All ranks must call every method after the same batches.

    Args:
        average: Over all ranks; else every rank keeps its own.
        watch: Is shown each rank's own values at every flush.

    Attributes:
        is_averaged: Whether a batch's values are averages over several ranks.
        add, latest: See MetricSeries.
        take_own: Returns this rank's values of the batches since the last flush. Not collective.
        has_records: Whether this rank, in this run, had any since the last report.
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
        # A loss that ends the training has to end it on all ranks.
        stops = watch is not None and watch.policy == "stop" and distributed.size > 1
        self._exchanges = self.is_averaged or stops
        self._series = MetricSeries("train_batch", distributed.rank)
        self._names_agreed = False
        self._look: Callable[[], None] | None = None
        # Since the last report. Restored ones have other names if the trial's code was changed.
        self._flushed: list[Window] = []
        self.add, self.latest = self._series.add, self._series.latest
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
        # The sum of all is finite only if each of them is, and adding is quicker than looking.
        if self._watch is not None and not isfinite(values_RNB.sum().item()):
            ranks = range(len(values_RNB)) if self._exchanges else [self._distributed.rank]
            self._look = partial(
                self._watch.look, window.names, values_RNB, records_RB, ranks, first_step
            )
        if self.is_averaged:
            means_NB = _mean_of_ranks(values_RNB, records_RB)
            window = Window(window.names, means_NB, records_RB.sum(dim=0))
        self._flushed.append(window)
        return dict(zip(window.names, window.values_NB.tolist(), strict=True))

    def look(self) -> None:
        """Check the losses of the last flush, after it was journaled: one may end the training."""
        look, self._look = self._look, None
        if look is not None:
            look()

    def report(self) -> tuple[dict[str, float], torch.Tensor]:
        """Return the averages over all batches flushed since the last report, and all values.

        The values are `[names, batches]`, the names those of the averages.
        """
        window = Window.joined(self._flushed)
        self._flushed = []
        self.has_records = False
        # All batches at once: how they were cut into flushes is a matter of the clock.
        rows = zip(window.names, window.values_NB.tolist(), strict=True)
        records = window.records_B.tolist()
        averages = {name: weighted_mean(row, records) for name, row in rows}
        return averages, window.values_NB

    def state(self) -> dict[str, Any]:
        """Return what was flushed since the last report, for a checkpoint. After a flush."""
        window = Window.joined(self._flushed)
        return {"names": window.names, "values": window.values_NB, "records": window.records_B}

    def restore(self, state: dict[str, Any]) -> None:
        """Restore what `state` returned; the next report covers these batches too."""
        self._flushed = [Window(state["names"], state["values"], state["records"])]

    def _exchange(self, window: Window) -> tuple[torch.Tensor, torch.Tensor]:
        """Return every rank's values and records, or this rank's if they are not exchanged."""
        if not self._exchanges:
            return window.values_NB.unsqueeze(0), window.records_B.unsqueeze(0)
        if not self._names_agreed:  # once: else sums would be nonsense
            names = self._distributed.allgather(self._series.names)
            check_same_names("train_batch", dict(enumerate(names)))
            self._names_agreed = True
        own = torch.cat([window.values_NB, window.records_B[None]])
        # Each rank fills its own place, so the sum is a gathering. Where three ranks or more add
        # up, the order in which they do depends on the position in the tensor, so the last bits
        # of an average would depend on when it was flushed.
        by_rank = own.new_zeros(self._distributed.size, *own.shape)
        by_rank[self._distributed.rank] = own
        self._distributed.reduce_(by_rank, "sum")
        return by_rank[:, :-1], by_rank[:, -1]


def _mean_of_ranks(values_RNB: torch.Tensor, records_RB: torch.Tensor) -> torch.Tensor:
    """Return the means over the ranks, `[names, batches]`, weighted by records.

    One rank after the other: torch's own sum over a dimension adds in an order that depends on
    the other ones.
    """
    sums = torch.zeros_like(values_RNB[0])
    for values_NB, records_B in zip(values_RNB, records_RB, strict=True):
        sums += torch.where(records_B > 0, values_NB * records_B, 0.0)
    return sums / records_RB.sum(dim=0)


_ADVICE = "Try a lower learning rate, clip_grads, or bf16 instead of fp16."


class LossWatch:
    """Looks for the first loss that is NaN or infinite: `loss`, and every metric named `...loss`.

    It checks each rank's own values, because an average would hide the rank.

    Args:
        policy: `on_nan_loss` of the configuration. warn: a notice, once in a run. stop: end the
            trial without a retry, which would have the same result.
        distributed: The ranks.
        sink: This rank's journal, for the notice.
    """

    def __init__(
        self, policy: Literal["warn", "stop"], distributed: DistributedContext, sink: RecordSink
    ) -> None:
        self.policy = policy
        self._distributed = distributed
        self._sink = sink
        self._has_warned = False

    def look(
        self,
        names: Sequence[str],
        values_RNB: torch.Tensor,
        records_RB: torch.Tensor,
        ranks: Sequence[int],
        first_step: int,
    ) -> None:
        """Look at the values of a flush.

        Args:
            names: Of the metrics.
            values_RNB: Values of these ranks, `[ranks, names, batches]`, on the CPU.
            records_RB: Records of each, `[ranks, batches]`; values of 0 records are ignored.
            ranks: All ranks, in order, if each rank has the values of all; else this one.
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
                "train_batch", f"train_batch: {found}; on_nan_loss is stop. {_ADVICE}"
            )
        self._has_warned = True
        if len(ranks) == 1 or self._distributed.is_chief:
            text = f"{found[0].upper()}{found[1:]}. {GOES_ON} {_ADVICE}"
            give_notice(text, self._distributed.rank, self._sink, is_alarm=True)
