"""Makes the view of one trial from the wire types. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from det_jupyter.contract.messages import (
    AllocationView,
    ClusterView,
    ExperimentView,
    FailureView,
    RankView,
    Reason,
    TraceView,
    TrialView,
    Verdict,
)
from det_jupyter.contract.schema.key_paths import look_up
from det_jupyter.contract.values.text import count, experiment_title
from det_jupyter.view.making.charts import rounded
from det_jupyter.view.making.experiment_facts import (
    finite,
    fraction,
    makes_room_for,
    slot_label,
    status_word,
    steps_of,
    trial_status,
)
from det_jupyter.view.making.waits import name_in, wait_of
from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.trial_state import (
    ChangeLine,
    Failure,
    RankStatus,
    TraceLine,
    TrialDetails,
)
from det_jupyter.view.model.verdict_state import (
    VERDICT_WORDS,
    CauseLine,
    TimeShare,
    VerdictState,
    verdict_tone,
)

MAX_HPARAMS = 200
MAX_TRACEBACK = 20_000
MIN_SHARE = 0.005  # of the time; smaller ones would not be seen


def build_trial(
    trial: TrialView,
    experiment: ExperimentView,
    cluster: ClusterView | None,
    reasons: Mapping[int, Reason],
    now: float,
) -> TrialDetails:
    allocation = trial.allocation
    status = trial_status(trial, experiment.state)
    ranks = [] if allocation is None else allocation.ranks
    return TrialDetails(
        id=trial.id,
        status=status,
        status_word=status_word(trial, status),
        progress=fraction(trial.progress),
        steps_completed=steps_of(trial),
        best=rounded(finite(trial.best_metric)),
        latest=rounded(finite(trial.latest_metric)),
        num_steps=_num_steps(trial, experiment),
        restarts=trial.restarts,
        num_recoveries=trial.num_recoveries,
        hparams=_hparams(trial.hparams),
        wait=wait_of(trial, experiment, reasons, now),
        makes_room=_makes_room(trial, cluster),
        backend=next((rank.backend for rank in ranks if rank.backend), ""),
        launch_note="" if allocation is None else allocation.launch_note,
        first_step_s=_first_step_s(allocation) if ranks else None,
        ranks=[build_rank(trial, rank, status) for rank in ranks],
        failure=_failure(trial.failure, again=status != "error"),
        verdict=_verdict(trial, status),
        traces=[_trace(trace, trial.id) for profile in trial.profiles for trace in profile.traces],
    )


def _num_steps(trial: TrialView, experiment: ExperimentView) -> int | None:
    if trial.progress > 0:
        return max(trial.steps_completed, round(trial.steps_completed / trial.progress))
    length = look_up(experiment.config, "searcher.max_length")
    batches = length.get("batches") if isinstance(length, dict) else None
    return batches if isinstance(batches, int) else None


def build_changes(trial: TrialView) -> list[ChangeLine]:
    """Return what was changed of a trial while it trained, its number of slots too."""
    sizes = [
        ChangeLine(
            id=-number,  # no change of a user has such a number
            trial_id=trial.id,
            steps_completed=size.steps_completed,
            text=str(size),
            error="",
        )
        for number, (before, size) in enumerate(pairwise(trial.sizes), 1)
        if size.slots != before.slots
    ]
    return sizes + [
        ChangeLine(
            id=change.id,
            trial_id=trial.id,
            steps_completed=change.steps_completed,
            text=change.what,
            error=change.error,
        )
        for change in trial.changes
    ]


def _verdict(trial: TrialView, status: Status) -> VerdictState | None:
    """Return the verdict to show; None if there is none.

    None also for the verdict "unknown" of a failed trial, and "healthy" of a trial whose loss is
    NaN.
    """
    found = trial.verdict
    if found is None or (found.kind == "unknown" and status == "error"):
        return None
    if found.kind == "healthy" and trial.divergence is not None:
        return None
    return build_verdict(found)


def build_verdict(found: Verdict) -> VerdictState:
    return VerdictState(
        kind=found.kind,
        word=VERDICT_WORDS[found.kind],
        tone=verdict_tone(found.kind),
        sentence=found.sentence,
        causes=[
            CauseLine(
                kind=cause.kind,
                word=VERDICT_WORDS[cause.kind],
                share=cause.share,
                rank=cause.rank,
                evidence=cause.evidence,
                advice=cause.advice,
            )
            for cause in found.causes
        ],
        shares=[
            TimeShare(kind=kind, word=VERDICT_WORDS[kind], share=found.shares[kind])
            for kind in sorted(found.shares, key=list(VERDICT_WORDS).index)
            if found.shares[kind] >= MIN_SHARE
        ],
        network=found.network.sentence if found.network is not None else "",
        at=found.at,
        batches=found.batches,
    )


def _trace(trace: TraceView, trial_id: int) -> TraceLine:
    last = trace.first + trace.steps
    text = trace.error or f"batches {trace.first} to {last - 1}"
    return TraceLine(
        trial_id=trial_id,
        rank=trace.rank,
        path=trace.path,
        size_bytes=trace.size_bytes,
        text=f"{text}; {trace.note}" if trace.note else text,
    )


def _makes_room(trial: TrialView, cluster: ClusterView | None) -> str:
    if (leaving := trial.leaving) is not None and leaving.then == "resizes":
        return f"goes on with {count(leaving.next_slots, 'slot')}: {leaving.resized_because}"
    taker = makes_room_for(trial)
    if taker is None:
        return ""
    name = "" if cluster is None else name_in(cluster, taker)
    title = experiment_title(taker, name)
    return f"makes room for {title}: saves a checkpoint, then queues at its place"


def _hparams(hparams: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in _flat(hparams))
    return text if len(text) <= MAX_HPARAMS else text[: MAX_HPARAMS - 1] + "…"


def _flat(hparams: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in hparams.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", float(f"{value:.6g}") if isinstance(value, float) else value


def build_rank(trial: TrialView, rank: RankView, trial_status: Status) -> RankStatus:
    """Return a rank's part of the view; a rank without a device has not started yet."""
    is_up = bool(rank.device) or trial_status != "running"
    hang = trial.hang
    hanging = [] if hang is None else hang.culprits or hang.ranks
    return RankStatus(
        rank=rank.rank,
        pid=rank.pid,
        slot=slot_label(rank.slot),
        device=rank.device,
        status=trial_status if is_up else "starting",
        hangs=any(stall.rank == rank.rank for stall in hanging),
    )


def _first_step_s(allocation: AllocationView | None) -> float | None:
    if allocation is None or allocation.started_at is None or allocation.first_step_at is None:
        return None
    return max(0.0, allocation.first_step_at - allocation.started_at)


def _failure(failure: FailureView | None, *, again: bool) -> Failure | None:
    if failure is None or (again and failure.is_survived):  # a notice has its recovery
        return None
    text = failure.traceback
    # Cut at the beginning: the innermost frames matter, and come last.
    if len(text) > MAX_TRACEBACK:
        text = "…\n" + text[-MAX_TRACEBACK:]
    return Failure(
        rank=failure.rank,
        exit_code=failure.exit_code,
        error=failure.error,
        where=failure.where,
        traceback=text,
        again=again,
    )
