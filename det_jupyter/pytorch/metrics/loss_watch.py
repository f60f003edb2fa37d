"""Finding the first loss that is not finite, at the flush, which reads the values anyway."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Literal

import torch

from det_jupyter.contract.values.text import GOES_ON
from det_jupyter.core import DistributedContext, RecordSink
from det_jupyter.pytorch.messages import TrialMistake, give_notice

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
