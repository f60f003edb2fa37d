"""A gang that leaves as a sentence, and the remedy that ends it at once."""

from __future__ import annotations

from datetime import tzinfo

from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.resources import Remedy
from det_jupyter.contract.values.text import (
    clock,
    count,
    length,
    ranks_text,
    rough_duration,
    short_time,
)

_LONG_BATCH_S = 3.0  # ranks that have been in a batch for longer are named
_UNHEEDED_S = 5.0  # a request that the ranks have not read by then may never be read


def leaving_sentence(leaving: Leaving, now: float, zone: tzinfo | None = None) -> str:
    """Return what a gang that leaves is doing, which ranks it waits for, and what follows.

    Args:
        leaving: The gang.
        now: UTC seconds.
        zone: Zone of times of day; None: this computer's.
    """
    what = _doing(leaving)
    slots = count(leaving.num_slots, "slot") if leaving.num_slots else "its place"
    frees = f"frees {slots}"
    if leaving.then == "resizes":
        frees = f"goes on with {count(leaving.next_slots, 'slot')}"
    after = "; then it queues again" if leaving.then == "queues" else ""
    if leaving.unreached:
        act = "killed" if leaving.asked_at is None else "asked to leave"
        return f"{what}: its ranks cannot be {act} now: {leaving.unreached}"
    if leaving.asked_at is None:
        return f"{what}: it is being killed, which {frees}{after}"
    limit = ""
    if leaving.killed_at is not None:
        at = short_time(leaving.killed_at, now, zone)
        left = rough_duration(leaving.killed_at - now)
        limit = f"; killed at {at} (in {left}) otherwise"
        if leaving.killed_at <= now:
            limit = f"; its agent was to kill it at {at}, and has not reported that"
    return f"{what}: {_obstacle(leaving, now, frees)}{limit}{after}"


def _doing(leaving: Leaving) -> str:
    if leaving.preempted_by is not None:
        return f"making room for experiment {leaving.preempted_by}"
    if leaving.then == "resizes":
        return f"changing its number of slots ({leaving.resized_because})"
    words = {"pauses": "pausing", "queues": "giving its slots back", "rests": "going to rest"}
    return words.get(leaving.then, "stopping")


def _obstacle(leaving: Leaving, now: float, frees: str) -> str:
    """Return what the gang waits for, and what follows then."""
    assert leaving.asked_at is not None
    asked_s = now - leaving.asked_at
    if leaving.hang is not None:
        return f"{leaving.hang.sentence(now)}; saves and {frees} if it goes on"
    if leaving.saving_since is not None:
        saving = rough_duration(now - leaving.saving_since)
        return f"it has been saving its state for {saving}; {frees} then"
    is_unheeded = asked_s >= _UNHEEDED_S
    if is_unheeded and leaving.checked_at is None:
        return (
            "its code has not checked for preemption in this run (should_preempt); saves and "
            f"{frees} when it does"
        )
    if leaving.behind and now - leaving.since >= _LONG_BATCH_S:
        in_batch = rough_duration(now - leaving.since)
        return f"{_behind(leaving)} for {in_batch}; saves and {frees} then"
    if is_unheeded and leaving.checked_at is not None and leaving.checked_at < leaving.asked_at:
        return (
            f"its code has not checked for preemption since {clock(leaving.checked_at)}; saves "
            f"and {frees} when it does"
        )
    return f"asked {rough_duration(asked_s)} ago to save its state; {frees} then"


def _behind(leaving: Leaving) -> str:
    """Return the ranks that the others wait for, and what they have not done."""
    have = "has" if len(leaving.behind) == 1 else "have"
    who = ranks_text(leaving.behind)
    if len(leaving.behind) == leaving.num_ranks:
        who = "it" if leaving.num_ranks == 1 else "its ranks"
    if leaving.batch is None:
        return f"{who} {have} not begun the first batch"
    return f"{who} {have} not come to the end of batch {leaving.batch}"


def end_now(leaving: Leaving) -> list[Remedy]:
    """Return the remedy that ends the ranks at once, if there is one; its text has the loss.

    The remedy would end the ranks of all trials of the experiment. So there is none if only one of
    several trials is preempted: its ranks are killed at their deadline.
    """
    if leaving.asked_at is None or leaving.unreached or leaving.then == "rests":
        return []
    if leaving.then in ("queues", "resizes") and leaving.num_trials > 1:
        return []
    lost = "nothing is lost"
    if leaving.num_unsaved:
        batches = length({"batches": leaving.num_unsaved})
        since = (
            "all that it has trained"
            if leaving.saved_at is None
            else f"since the checkpoint at batch {leaving.saved_at}"
        )
        lost = f"{batches} {'are' if leaving.num_unsaved > 1 else 'is'} lost, {since}"
    if leaving.then != "ends":
        after = "it stays paused" if leaving.then == "pauses" else "its experiment is paused then"
        text = f"end its ranks: {lost}; {after}"
        return [Remedy(verb="pause_at_once", target=[leaving.experiment_id], text=text)]
    text = f"kill its experiment: {lost}"
    return [Remedy(verb="kill", target=[leaving.experiment_id], text=text)]
