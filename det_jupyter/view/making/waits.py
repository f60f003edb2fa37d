"""Makes the view of slots, queue and waiting trials from the wire types. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain

from det_jupyter.contract import messages as wire
from det_jupyter.contract.messages import (
    ClusterView,
    DiskStatus,
    Estimate,
    ExperimentView,
    QueueEntry,
    Reason,
    State,
    TrialView,
)
from det_jupyter.contract.messages.leaving import Leaving
from det_jupyter.contract.messages.leaving_words import end_now, leaving_sentence
from det_jupyter.contract.messages.resources import RemedyButton, command_lines
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.contract.values.text import (
    clock,
    count,
    experiment_title,
    short_time,
    shortened,
)
from det_jupyter.view.making.experiment_facts import trial_status
from det_jupyter.view.making.slot_bars import build_pools, counts_line
from det_jupyter.view.model.slots_and_queue import QueueRow, SlotsAndQueue, Wait

MAX_FRONT = 8  # rows of each pool's queue
MAX_ROWS = 24  # rows for the fronts of all pools' queues
MAX_OWN = 8  # further rows for trials of the experiment
MAX_REMEDIES = 4
MAX_SENTENCE = 400
_SOON_S = 600.0
# Verbs of remedies that have a button (client/handles/reasons.py). A kill loses work, so users
# have to type it.
_BUTTONS: dict[wire.RemedyVerb, str] = {
    "pause": "Pause",
    "pause_at_once": "End now",
    "activate": "Activate",
    "set": "Change",
    "move": "Move ahead",
    "enable_slots": "Enable",
}


def build_cluster(cluster: ClusterView, experiment: ExperimentView, now: float) -> SlotsAndQueue:
    """Return the slots and the queue for a view of `experiment`, whose trials are marked."""
    return SlotsAndQueue(
        summary=summary(cluster),
        is_waiting=any(_is_queued(trial, experiment) for trial in experiment.trials),
        pools=build_pools(cluster.pools, experiment.id, now),
        queue=[
            _row(entry, experiment.id, now) for entry in _shown_entries(cluster, experiment.id)
        ],
        num_waiting=cluster.num_waiting,
    )


def disk_sentences(cluster: ClusterView) -> list[str]:
    """Return a sentence for each disk that is full, or will soon be full."""
    return [disk_sentence(disk) for disk in cluster.disks]


def disk_sentence(disk: DiskStatus) -> str:
    """Return a sentence on the state of a disk and on what to do."""
    return f"{shortened(disk.sentence(NOTEBOOK), MAX_SENTENCE)}."


def wait_of(
    trial: TrialView, experiment: ExperimentView, reasons: Mapping[int, Reason], now: float
) -> Wait | None:
    """Return why a trial waits, or what delays its ranks that have to leave; None if neither."""
    if trial.leaving is not None:
        return _leaving_wait(trial.id, trial.leaving, now)
    if trial.id in reasons and _is_queued(trial, experiment):
        return _wait(reasons[trial.id], experiment.id, now)
    return _plain_wait(trial.id, trial.waiting_for or "")


def wait_of_search(
    experiment: ExperimentView, reasons: Mapping[int, Reason], now: float
) -> Wait | None:
    """Return why the first queued trial of a search waits; None while a trial holds slots.

    If the search pauses or stops: what the first trial that still holds slots waits for.
    """
    trials = {trial.id: trial for trial in experiment.trials}
    if experiment.state is not State.ACTIVE:
        leaving = [trial for trial in trials.values() if trial.leaving is not None]
        for first in leaving[:1]:
            assert first.leaving is not None
            wait = _leaving_wait(first.id, first.leaving, now)
            more = f" (and {count(len(leaving) - 1, 'more trial')})" if len(leaving) > 1 else ""
            return {**wait, "sentence": f"trial {first.id}{more}: {wait['sentence']}"}
    if any(trial.allocation is not None and trial.allocation.slots for trial in trials.values()):
        return None
    queued = {id: trial for id, trial in trials.items() if _is_queued(trial, experiment)}
    for id, reason in reasons.items():
        if id in queued:
            wait = _wait(reason, experiment.id, now)
            return {**wait, "sentence": f"trial {id}: {wait['sentence']}"}
    sentences = (trial.waiting_for for trial in queued.values() if trial.waiting_for)
    return _plain_wait(0, next(sentences, ""))


def _is_queued(trial: TrialView, experiment: ExperimentView) -> bool:
    return trial_status(trial, experiment.state) == "queued"


def _leaving_wait(trial_id: int, leaving: Leaving, now: float) -> Wait:
    return Wait(
        trial_id=trial_id,
        key="",
        sentence=shortened(leaving_sentence(leaving, now), MAX_SENTENCE),
        expected="",
        remedies=build_remedies(end_now(leaving)),
    )


def _plain_wait(trial_id: int, sentence: str) -> Wait | None:
    if not sentence:
        return None
    return Wait(trial_id=trial_id, key="", sentence=sentence, expected="", remedies=[])


def summary(cluster: ClusterView) -> str:
    """Return the numbers of slots and of waiting trials: `8 slots: 6 used, 2 free · 3 waiting`."""
    slots = counts_line([agent for pool in cluster.pools for agent in pool.agents])
    return f"{slots} · {cluster.num_waiting} waiting" if cluster.num_waiting else slots


def name_in(cluster: ClusterView, experiment_id: int) -> str:
    """Return the name of an experiment that holds slots or waits for them; "" for any other."""
    slots = (slot for pool in cluster.pools for agent in pool.agents for slot in agent.slots)
    names = chain(
        ((entry.experiment_id, entry.experiment_name) for entry in cluster.queue),
        ((slot.experiment_id, slot.experiment_name) for slot in slots),
    )
    return next((name for id, name in names if id == experiment_id), "")


def _shown_entries(cluster: ClusterView, own_id: int) -> list[QueueEntry]:
    """Return the front of each pool's queue, and the experiment's entries further back."""
    front = [e.trial_id for e in cluster.queue if e.position < MAX_FRONT]
    own = [
        e.trial_id for e in cluster.queue if e.experiment_id == own_id and e.position >= MAX_FRONT
    ]
    kept = {*front[:MAX_ROWS], *own[:MAX_OWN]}
    return [entry for entry in cluster.queue if entry.trial_id in kept]


def _row(entry: QueueEntry, own_id: int, now: float) -> QueueRow:
    return QueueRow(
        place=entry.position + 1,
        trial_id=entry.trial_id,
        experiment=experiment_title(entry.experiment_id, entry.experiment_name),
        is_own=entry.experiment_id == own_id,
        pool=shortened(entry.pool),
        slots=count(entry.slots, "slot"),
        since=short_time(entry.queued_at, now),
        sentence=shortened(entry.reason.sentence, MAX_SENTENCE),
    )


def _wait(reason: Reason, experiment_id: int, now: float) -> Wait:
    return Wait(
        trial_id=reason.trial_id,
        key=_key(reason, experiment_id),
        sentence=shortened(reason.sentence, MAX_SENTENCE),
        expected=expected_text(reason.expected, reason.why_unknown, now),
        remedies=build_remedies(reason.remedies),
    )


def build_remedies(remedies: Iterable[wire.Remedy]) -> list[RemedyButton]:
    """Return the first of the changes that would start a trial, or end its ranks."""
    return [_remedy(remedy) for remedy in [*remedies][:MAX_REMEDIES]]


def _remedy(remedy: wire.Remedy) -> RemedyButton:
    command = "\n".join(command_lines(remedy, NOTEBOOK))
    if len(command) > MAX_SENTENCE:  # a shortened command would not be valid
        command = ""
    return RemedyButton(
        id=remedy.id,
        sentence=shortened(remedy.text, MAX_SENTENCE),
        command=command,
        button=_BUTTONS.get(remedy.verb, "") if command else "",
    )


def expected_text(estimate: Estimate | None, why_unknown: str, now: float) -> str:
    """Return the expected start with its range and basis, or why it cannot be estimated."""
    if estimate is None:
        unknown = shortened(why_unknown, MAX_SENTENCE)
        return f"when it starts is not known: {unknown}" if unknown else ""
    # `short_time` leaves out seconds, which matter for a start within minutes.
    write = clock if estimate.at - now < _SOON_S else partial(short_time, now=now)
    at, earliest = write(estimate.at), write(estimate.earliest)
    latest = None if estimate.latest is None else write(estimate.latest)
    if latest is None:
        spread = f", not before {earliest}" if earliest != at else " or later"
    else:
        spread = f" ({earliest} to {latest})" if earliest != latest else ""
    basis = f", {shortened(estimate.basis, MAX_SENTENCE)}" if estimate.basis else ""
    return f"expected to start at {at}{spread}{basis}"


def _key(reason: Reason, experiment_id: int) -> str:
    """Return the `key` of a wait, which does not depend on estimates and places in the queue."""
    owners = {holder.experiment_id for holder in reason.holders}
    if owners == {experiment_id} and not (reason.ahead or reason.processes):
        return ""  # it waits for trials of its own search
    parts = (
        reason.cause,
        reason.slots,
        [(holder.experiment_id, holder.is_leaving) for holder in reason.holders],
        [process.pid for process in reason.processes],
        reason.ahead,
    )
    return json.dumps(parts)
