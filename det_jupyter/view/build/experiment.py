"""From what the master says of an experiment to what its view shows; pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from det_jupyter.view.build.charts import build_charts
from det_jupyter.view.build.comparison import compare_trials
from det_jupyter.view.build.facts import (
    direction_of,
    experiment_status,
    finite,
    fraction,
    makes_room_for,
    metric_of,
    slot_label,
    status_word,
    trial_status,
)
from det_jupyter.view.build.search import build_search, is_search
from det_jupyter.view.build.waits import build_cluster, name_in
from det_jupyter.view.model.experiment import (
    ENDED,
    STATUS_WORDS,
    VERBS,
    Action,
    Captured,
    Checkpoints,
    Chosen,
    Failure,
    Rank,
    Status,
    Trial,
    Verb,
    ViewState,
)
from det_jupyter.wire import (
    AllocationState,
    AllocationView,
    CapturedName,
    CheckpointView,
    ClusterView,
    Curve,
    ExperimentView,
    FailureView,
    RankView,
    Reason,
    State,
    TrialView,
)
from det_jupyter.words import named

MAX_CAPTURED = 100
MAX_HPARAMS = 200
MAX_NOTICES = 10  # of trials
MAX_TRACEBACK = 20_000
_NO_REASONS: Mapping[int, Reason] = {}
_PURPOSE: dict[Verb, str] = {
    "pause": "All ranks save a checkpoint at the same batch and give their slots back.",
    "activate": "Goes on from the last checkpoint.",
    "kill": "Ends all ranks now; checkpoints stay.",
}


def build_view_state(
    experiment: ExperimentView,
    curves: Sequence[Curve],
    checkpoints: Sequence[CheckpointView],
    now: float,
    *,
    chosen_id: int | None = None,
    cluster: ClusterView | None = None,
    reasons: Mapping[int, Reason] = _NO_REASONS,
) -> ViewState:
    """Return what the view of `experiment` shows at the time `now`.

    Args:
        chosen_id: The trial of a search that the reader has chosen.
        cluster: Slots and queue, where known.
        reasons: Why trials of the experiment wait, by trial, the next to start first.
    """
    status = experiment_status(experiment)
    captured = experiment.capsule.captured
    search = None
    if is_search(experiment):
        search = build_search(experiment, curves, _chosen(experiment, curves, chosen_id, cluster))
        charts, more_metrics = compare_trials(curves, search, chosen_id)
    else:
        charts, more_metrics = build_charts(curves, metric_of(experiment))
    return ViewState(
        id=experiment.id,
        name=experiment.name,
        status=status,
        status_word=_status_word(experiment, status),
        as_of=now,
        created_at=experiment.created_at,
        ended_at=experiment.ended_at,
        progress=fraction(experiment.progress),
        eta_s=None if search else _eta_s(experiment, checkpoints, now),
        steps_per_epoch=_steps_per_epoch(experiment),
        message=experiment.message,
        actions=[_action(verb, experiment.state) for verb in VERBS],
        charts=charts,
        more_metrics=more_metrics,
        trials=[] if search else [_trial(t, experiment.state, cluster) for t in experiment.trials],
        num_trials=len(experiment.trials),
        search=search,
        cluster=(
            None
            if cluster is None or status in ENDED
            else build_cluster(cluster, reasons, experiment, now)
        ),
        checkpoints=_checkpoints(experiment, checkpoints),
        captured=[_captured(name) for name in captured[:MAX_CAPTURED]],
        num_captured=len(captured),
        notices=[*experiment.capsule.notices, *_trial_notices(experiment)],
    )


def _trial_notices(experiment: ExperimentView) -> list[str]:
    told = [f"Trial {trial.id}: {text}" for trial in experiment.trials for text in trial.notices]
    more = len(told) - MAX_NOTICES
    return [*told[:MAX_NOTICES], *([f"… and {more} more of trials"] if more > 0 else [])]


def _status_word(experiment: ExperimentView, status: Status) -> str:
    is_alone = len(experiment.trials) == 1
    return status_word(experiment.trials[0], status) if is_alone else STATUS_WORDS[status]


def _chosen(
    experiment: ExperimentView,
    curves: Sequence[Curve],
    trial_id: int | None,
    cluster: ClusterView | None,
) -> Chosen | None:
    trial = next((trial for trial in experiment.trials if trial.id == trial_id), None)
    if trial is None:
        return None
    own = [curve for curve in curves if curve.trial_id == trial_id]
    charts, more_metrics = build_charts(own, metric_of(experiment))
    return Chosen(
        trial=_trial(trial, experiment.state, cluster), charts=charts, more_metrics=more_metrics
    )


def _action(verb: Verb, state: State) -> Action:
    reason = _obstacle(verb, state)
    return Action(
        verb=verb, label=verb.capitalize(), enabled=not reason, why=reason or _PURPOSE[verb]
    )


def _obstacle(verb: Verb, state: State) -> str:
    """Return why `verb` is not possible now, or nothing."""
    if state.is_terminal:
        return "It is over."
    if verb == "kill":
        return "It is being killed." if state is State.STOPPING_KILLED else ""
    if state not in (State.ACTIVE, State.PAUSED):
        return "It is stopping."
    if (verb == "pause") is (state is State.PAUSED):
        return f"It is {state.value.lower()} already."
    return ""


def _trial(trial: TrialView, experiment_state: State, cluster: ClusterView | None) -> Trial:
    allocation = trial.allocation
    status = trial_status(trial, experiment_state)
    ranks = [] if allocation is None else allocation.ranks
    return Trial(
        id=trial.id,
        status=status,
        status_word=status_word(trial, status),
        progress=fraction(trial.progress),
        steps_completed=trial.steps_completed,
        restarts=trial.restarts,
        hparams=_hparams(trial.hparams),
        waiting_for=trial.waiting_for or "",
        makes_room=_makes_room(trial, cluster),
        backend=next((rank.backend for rank in ranks if rank.backend), ""),
        launch_note="" if allocation is None else allocation.launch_note,
        first_step_s=_first_step_s(allocation) if ranks else None,
        ranks=[_rank(rank, status) for rank in ranks],
        failure=_failure(trial.failure, again=status != "failed"),
    )


def _makes_room(trial: TrialView, cluster: ClusterView | None) -> str:
    taker = makes_room_for(trial)
    if taker is None:
        return ""
    name = "" if cluster is None else name_in(cluster, taker)
    return f"makes room for {named(taker, name)}: saves a checkpoint, then queues at its place"


def _hparams(hparams: dict[str, Any]) -> str:
    text = ", ".join(f"{name}={value}" for name, value in _flat(hparams))
    return text if len(text) <= MAX_HPARAMS else text[: MAX_HPARAMS - 1] + "…"


def _flat(hparams: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in hparams.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", float(f"{value:.6g}") if isinstance(value, float) else value


def _rank(rank: RankView, trial_status: Status) -> Rank:
    """A rank has told its device once its process is up."""
    is_up = bool(rank.device) or trial_status != "running"
    return Rank(
        rank=rank.rank,
        pid=rank.pid,
        slot=slot_label(rank.slot),
        device=rank.device,
        status=trial_status if is_up else "starting",
    )


def _first_step_s(allocation: AllocationView | None) -> float | None:
    if allocation is None or allocation.started_at is None or allocation.first_step_at is None:
        return None
    return max(0.0, allocation.first_step_at - allocation.started_at)


def _failure(failure: FailureView | None, *, again: bool) -> Failure | None:
    if failure is None:
        return None
    text = failure.traceback
    if len(text) > MAX_TRACEBACK:  # the innermost frames, which matter, come last
        text = "…\n" + text[-MAX_TRACEBACK:]
    return Failure(
        rank=failure.rank,
        exit_code=failure.exit_code,
        error=failure.error,
        where=failure.where,
        traceback=text,
        again=again,
    )


def _captured(name: CapturedName) -> Captured:
    return Captured(name=name.name, cell=name.cell, type=name.type, size_bytes=name.size_bytes)


def _checkpoints(experiment: ExperimentView, checkpoints: Sequence[CheckpointView]) -> Checkpoints:
    direction = direction_of(experiment)
    kept = [checkpoint for checkpoint in checkpoints if checkpoint.state == "COMPLETED"]
    judged = [(m, c.steps_completed) for c in kept if (m := finite(c.searcher_metric)) is not None]
    best = min(judged, key=lambda pair: direction.loss(pair[0]), default=None)
    return Checkpoints(
        count=len(kept),
        size_bytes=sum(checkpoint.size_bytes for checkpoint in kept),
        latest_step=max((checkpoint.steps_completed for checkpoint in kept), default=None),
        metric=metric_of(experiment),
        best_metric=direction.best(
            [*(t.best_metric for t in experiment.trials), *(m for m, _ in judged)]
        ),
        best_step=None if best is None else best[1],
    )


def _eta_s(
    experiment: ExperimentView, checkpoints: Sequence[CheckpointView], now: float
) -> float | None:
    """Return the seconds still to go for an experiment of one running trial.

    The pace is that of the present run alone, which began at the newest checkpoint older than it.
    """
    if len(experiment.trials) != 1 or experiment.state is not State.ACTIVE:
        return None
    trial = experiment.trials[0]
    run = trial.allocation
    if run is None or run.state is not AllocationState.RUNNING or run.first_step_at is None:
        return None
    started_at = run.first_step_at
    before = [
        c.steps_completed
        for c in checkpoints
        if c.trial_id == trial.id and c.created_at < started_at
    ]
    steps_here = trial.steps_completed - max(before, default=0)
    elapsed_s = now - started_at
    if steps_here < 2 or elapsed_s < 1 or not 0 < trial.progress <= 1:
        return None
    num_steps = trial.steps_completed / trial.progress
    return round((num_steps - trial.steps_completed) * elapsed_s / steps_here, 1)


def _steps_per_epoch(experiment: ExperimentView) -> float | None:
    records = experiment.config.get("records_per_epoch")
    sizes = {trial.hparams.get("global_batch_size") for trial in experiment.trials}
    size = sizes.pop() if len(sizes) == 1 else None
    if not isinstance(records, int) or not isinstance(size, int) or records < 1 or size < 1:
        return None
    return records / size
