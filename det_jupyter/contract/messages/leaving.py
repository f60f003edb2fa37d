"""The state of a gang that was asked to leave: which ranks it waits for, and what follows."""

from __future__ import annotations

from typing import Literal

from det_jupyter.contract.messages.hangs import HangReport
from det_jupyter.contract.messages.wire import Wire
from det_jupyter.contract.values.bounds import Count, Timestamp


class RankProgress(Wire):
    """Where a rank is in its training, as its agent has read from the control page.

    Args:
        batch: Index of the last batch that it has begun; None: it has begun none.
        is_exchanging: Whether it has begun to exchange the gradients of that batch, for which it
            waits for the other ranks.
        since: When the agent first saw this.
    """

    batch: Count | None = None
    is_exchanging: bool = False
    since: Timestamp


# What the trial does when it has left; "resizes": goes on at once with another number of slots.
After = Literal["pauses", "queues", "resizes", "rests", "ends"]


class Leaving(Wire):
    """The ranks of a trial that were asked to save their state and leave, or are being killed.

    Args:
        experiment_id: The trial's experiment.
        then: What the trial does when they have left.
        asked_at: When they were asked; None: they are being killed.
        unreached: Why neither the request nor the kill has reached them (an agent is not
            connected), and what follows; "": it has reached them.
        killed_at: When they are killed if they have not left.
        num_slots: Number of slots that they hold.
        num_ranks: Number of ranks.
        num_trials: Number of trials of the experiment.
        preempted_by: The experiment that gets the slots, if there is one.
        resized_because: Why it goes on at once with another number of slots; "": it does not.
        next_slots: That number.
        behind: The ranks with the least progress: the others wait for them. (): not known.
        batch: The batch that these are in; None: they have begun none.
        since: Since when they have been there.
        checked_at: When the trial's code last checked for requests; None: not in this run.
        saving_since: Since when they have been saving their state; None: they are not.
        hang: Why it makes no progress, if it hangs.
        saved_at: Batches completed at the last checkpoint; None: there is none.
        num_unsaved: Number of batches completed since then.
    """

    experiment_id: int
    then: After
    asked_at: float | None = None
    unreached: str = ""
    killed_at: float | None = None
    num_slots: int = 0
    num_ranks: int = 1
    num_trials: int = 1
    preempted_by: int | None = None
    resized_because: str = ""
    next_slots: int = 0
    behind: list[int] = []
    batch: int | None = None
    since: float = 0.0
    checked_at: float | None = None
    saving_since: float | None = None
    hang: HangReport | None = None
    saved_at: int | None = None
    num_unsaved: int = 0
