"""Recoveries: restarts of a trial at its last step, after one of its ranks was killed."""

from __future__ import annotations

from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Timestamp
from det_jupyter.contract.values.text import duration, signal_name


class RecoveryView(Wire):
    """A rank was killed, the others saved the last step, and the trial begins again there."""

    at: Timestamp  # when the rank ended
    rank: int
    signal: int
    no_memory: bool = False  # the kernel killed it for want of memory
    batch: int | None = None  # index of the batch that it had begun
    repeats: int  # number of batches that are trained again
    went_on_s: float | None = None  # from its end to the first step after it; None: not yet

    @property
    def sentence(self) -> str:
        """What happened, and what it cost.

        >>> killed = RecoveryView(at=0, rank=3, signal=9, no_memory=True, batch=1204, repeats=1)
        >>> killed.sentence
        'rank 3 was killed (out of memory) at batch 1,204; 1 batch to be repeated'
        >>> killed.model_copy(update={"went_on_s": 0.71}).sentence
        'rank 3 was killed (out of memory) at batch 1,204; went on after 0.7 s, 1 batch repeated'
        """
        cause = "out of memory" if self.no_memory else signal_name(self.signal)
        where = "" if self.batch is None else f" at batch {self.batch:,}"
        batches = "1 batch" if self.repeats == 1 else f"{self.repeats:,} batches"
        what = f"rank {self.rank} was killed ({cause}){where}"
        if self.went_on_s is None:
            return f"{what}; {batches} to be repeated"
        after = f"{self.went_on_s:.1f} s" if self.went_on_s < 10 else duration(self.went_on_s)
        return f"{what}; went on after {after}, {batches} repeated"
