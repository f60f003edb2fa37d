"""Makes the view of an experiment from the wire types. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from det_jupyter.contract.messages import (
    AllocationState,
    CheckpointView,
    ClusterView,
    Curve,
    ExperimentFields,
    ExperimentView,
    ImportanceView,
    Reason,
    State,
    TrialView,
)
from det_jupyter.contract.messages.status import PAUSES, VERBS, Action, Verb
from det_jupyter.contract.trial.plain_trainers import describe_plain
from det_jupyter.contract.values.text import TRAINING_CONTINUES, capitalized, count
from det_jupyter.view.making.charts import build_charts, no_metrics
from det_jupyter.view.making.experiment_facts import (
    experiment_word,
    finite,
    fraction,
    status_of,
    steps_of,
    steps_per_epoch,
)
from det_jupyter.view.making.search_charts import compare_trials
from det_jupyter.view.making.search_view import build_search, is_search, search_summary
from det_jupyter.view.making.trial_view import build_changes, build_trial
from det_jupyter.view.making.waits import build_cluster, disk_sentences, wait_of_search
from det_jupyter.view.model.status_looks import ENDED
from det_jupyter.view.model.trial_state import Checkpoints, HungTrial, TrialDetails
from det_jupyter.view.model.view_state import CaptureRow, ViewState

MAX_CAPTURED = 100
MAX_RECOVERIES = 3  # most recoveries of a trial
MAX_NOTICES = 10  # most notices, and most alarms, of all trials
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
    importance: ImportanceView | None = None,
) -> ViewState:
    """Return the state of the view of `experiment` at the time `now`.

    Args:
        chosen_id: The trial of a search whose details are shown.
        cluster: Slots and queue; None: not fetched.
        reasons: Why trials of the experiment wait, by trial; the trial that starts next is first.
        importance: The importance of a search's hyperparameters; None: not fetched.
    """
    status = status_of(experiment)
    captured = experiment.capsule.captured
    plain = "" if checkpoints else experiment.plain_trainer
    per_epoch = steps_per_epoch(experiment)
    epoch = next(iter(per_epoch.values())) if len({*per_epoch.values()}) == 1 else None

    alarm = next((trial.alarm.kind for trial in experiment.trials if trial.alarm.kind), "")

    def view_of(trial: TrialView) -> TrialDetails:
        return build_trial(trial, experiment, cluster, reasons, now)

    search = None
    if is_search(experiment):
        chosen = next(
            (view_of(trial) for trial in experiment.trials if trial.id == chosen_id), None
        )
        wait = wait_of_search(experiment, reasons, now)
        search = build_search(experiment, curves, chosen, wait, per_epoch, importance)
        charts, more_metrics = compare_trials(curves, search, chosen_id, per_epoch)
    else:
        charts, more_metrics = build_charts(curves, experiment.metric, per_epoch)
    return ViewState(
        id=experiment.id,
        name=experiment.name,
        labels=experiment.labels,
        description=experiment.description,
        status=status,
        status_word=experiment_word(experiment),
        as_of=now,
        created_at=experiment.created_at,
        ended_at=experiment.ended_at,
        held_s=experiment.held_s,
        held_since=experiment.held_since,
        progress=fraction(experiment.progress),
        eta_s=None if search else _eta_s(experiment, checkpoints, now),
        steps_per_epoch=epoch,
        summary=_steps(experiment, epoch) if search is None else search_summary(search),
        message=_message(experiment),
        actions=[
            build_action(verb, experiment.state, obstacle_by_hand(verb, experiment, alarm))
            for verb in VERBS
        ],
        charts=charts,
        more_metrics=more_metrics,
        no_metrics=no_metrics(charts, status),
        trials=[] if search else [view_of(trial) for trial in experiment.trials],
        num_trials=len(experiment.trials),
        search=search,
        cluster=(
            None if cluster is None or status in ENDED else build_cluster(cluster, experiment, now)
        ),
        checkpoints=_checkpoints(experiment, checkpoints),
        captured=[
            CaptureRow(name=each.name, cell=each.cell, type=each.type, size_bytes=each.size_bytes)
            for each in captured[:MAX_CAPTURED]
        ],
        num_captured=len(captured),
        notices=[
            *([describe_plain(plain, experiment.capsule.entrypoint)] if plain else []),
            *experiment.capsule.notices,
            *(f"{each.sentence}." for each in experiment.trackers if each.problem),
            *_of_trials(experiment, lambda trial: trial.notices),
            *_of_trials(experiment, _recoveries_of),
        ],
        lacks_callback=bool(plain) and bool(experiment.capsule.payload),
        hangs=[
            HungTrial(trial_id=trial.id, since=trial.hang.since, sentence=trial.hang.sentence())
            for trial in experiment.trials
            if trial.hang is not None
        ],
        alarms=[
            *_of_trials(experiment, _alarms_of),
            *([] if cluster is None or status in ENDED else disk_sentences(cluster)),
        ],
        changes=[change for trial in experiment.trials for change in build_changes(trial)],
    )


def _message(experiment: ExperimentView) -> str:
    """Return why the experiment has ended, as a sentence; "" if an alarm has the same text."""
    diverged = (trial for trial in experiment.trials if trial.divergence and trial.alarms)
    alarms = {f"trial {trial.id}: {trial.divergence}" for trial in diverged}
    return "" if experiment.message in alarms else capitalized(experiment.message)


def _alarms_of(trial: TrialView) -> list[str]:
    """Return the alarms of a trial; an alarm that its loss diverged is added if it is missing."""
    if trial.state.is_terminal:
        return [alarm.replace(f" {TRAINING_CONTINUES}", "") for alarm in trial.alarms]
    is_unreported = trial.divergence is not None and not trial.alarms
    reported = [f"{trial.divergence}."] if is_unreported else trial.alarms
    silence = trial.allocation.silence if trial.allocation is not None else ""
    hang = trial.hang.sentence() if trial.hang else ""
    return [*filter(None, (f"{silence}." if silence else "", hang)), *reported]


def _recoveries_of(trial: TrialView) -> list[str]:
    """Return the latest recoveries, and the number of those before."""
    texts = [one.sentence for one in trial.recoveries[-MAX_RECOVERIES:]]
    more = trial.num_recoveries - len(texts)
    return [*([f"recovered {count(more, 'time')} before"] if more > 0 else []), *texts]


def _of_trials(experiment: ExperimentView, of: Callable[[TrialView], list[str]]) -> list[str]:
    """Return the texts of all trials, each with its trial; if many, some and their number."""
    texts = [f"Trial {trial.id}: {text}" for trial in experiment.trials for text in of(trial)]
    more = len(texts) - MAX_NOTICES
    return [*texts[:MAX_NOTICES], *([f"… and {more} more of trials"] if more > 0 else [])]


def obstacle_by_hand(verb: Verb, experiment: ExperimentFields, alarm: str) -> str:
    """Return why an experiment that was started by hand cannot be changed; "" for others.

    One whose run is silent can be killed.
    """
    if not experiment.is_unmanaged or (verb == "kill" and alarm == "silent"):
        return ""
    return "It was started by hand: interrupt its process there."


def build_action(verb: Verb, state: State, other_obstacle: str = "") -> Action:
    """Return a button; `other_obstacle` is why it is disabled in an open experiment, or ""."""
    reason = _obstacle(verb, state) or other_obstacle
    return Action(
        verb=verb, label=verb.capitalize(), enabled=not reason, why=reason or _PURPOSE[verb]
    )


def _obstacle(verb: Verb, state: State) -> str:
    """Return why `verb` is not possible now; "" if it is possible."""
    if state.is_terminal:
        return "It is over."
    if verb == "kill":
        return "It is being killed." if state is State.STOPPING_KILLED else ""
    if not state.is_open:
        return "It is stopping."
    if (verb == "pause") is (state in PAUSES):
        return f"It is {state.value.lower()} already."
    return ""


def _checkpoints(experiment: ExperimentView, checkpoints: Sequence[CheckpointView]) -> Checkpoints:
    direction = experiment.direction
    kept = [checkpoint for checkpoint in checkpoints if checkpoint.state == "COMPLETED"]
    judged = [(m, c.steps_completed) for c in kept if (m := finite(c.searcher_metric)) is not None]
    best = direction.best(
        [*(t.best_metric for t in experiment.trials), *(metric for metric, _ in judged)]
    )
    return Checkpoints(
        count=len(kept),
        size_bytes=sum(checkpoint.size_bytes for checkpoint in kept),
        latest_step=max((checkpoint.steps_completed for checkpoint in kept), default=None),
        metric=experiment.metric,
        best_metric=best,
        # None if the checkpoint with the best metric was deleted while worse ones were kept.
        best_step=next((step for metric, step in judged if metric == best), None),
    )


def _eta_s(
    experiment: ExperimentView, checkpoints: Sequence[CheckpointView], now: float
) -> float | None:
    """Return the estimated remaining seconds of an experiment with one running trial.

    The pace is computed from the present run alone, which began at a checkpoint.
    """
    if len(experiment.trials) != 1 or experiment.state is not State.ACTIVE:
        return None
    trial = experiment.trials[0]
    run = trial.allocation
    if run is None or run.state is not AllocationState.RUNNING or run.first_step_at is None:
        return None
    if run.hang is not None:
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


def _steps(experiment: ExperimentView, epoch: float | None) -> list[str]:
    steps = max((steps_of(trial) for trial in experiment.trials), default=0)
    if not steps:
        return []
    return [f"step {steps}", *([] if epoch is None else [f"epoch {steps / epoch:.1f}"])]
