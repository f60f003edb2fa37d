"""The data of a trial that a tracker gets: parameters, tags, state, end, and metrics. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from det_jupyter.contract.messages import (
    AllocationState,
    CheckpointView,
    Curve,
    ExperimentView,
    FeedItem,
    State,
    TrialView,
)
from det_jupyter.contract.messages.curves import metrics_in
from det_jupyter.contract.values.nested import flattened
from det_jupyter.contract.values.text import listed, shortened

RunStatus = Literal["waiting", "running", "completed", "canceled", "failed"]
_LONGEST = 1000  # characters of a sentence
_LONGEST_NAME = 250
_MOST_NAMED = 5
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_STRANGE = re.compile(r"[^\w.\- :/]", re.ASCII)
_ENDS: Mapping[State, RunStatus] = {
    State.COMPLETED: "completed",
    State.CANCELED: "canceled",
    State.ERROR: "failed",
}


class Point(NamedTuple):
    """A value of a metric."""

    key: str  # group/name
    step: int
    at: float  # UTC seconds
    value: float  # may be NaN or infinite


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """A trial without its metrics.

    Args:
        name: The name of its run.
        params: Hyperparameters by dotted path: those that the trial began with. One that was
            changed when the trial continued is added under the name `lr after batch 100`.
        facts: Ids, state, verdict, places of checkpoints, and so on, by name; none is empty.
        labels: The labels that the user gave.
        description: The text that the user gave.
        notebook: The file that it was submitted from, or the entrypoint.
        status: The state of the trial.
        began_at: UTC seconds.
        ended_at: UTC seconds; None: it has not ended.
    """

    name: str
    params: dict[str, Any]
    facts: dict[str, str]
    labels: list[str]
    description: str
    notebook: str
    status: RunStatus
    began_at: float
    ended_at: float | None


def facts_of(
    experiment: ExperimentView,
    trial: TrialView,
    checkpoints: Iterable[CheckpointView],
    *,
    computer: str,
) -> RunFacts:
    """Return the data of a trial that a tracker gets, except its metrics.

    Args:
        checkpoints: The checkpoints of the experiment.
        computer: The name of the master's computer, where the experiment can be viewed.
    """
    own = [c for c in checkpoints if c.trial_id == trial.id and c.state != "DELETED"]
    facts = {
        "experiment_id": str(experiment.id),
        "trial_id": str(trial.id),
        "name": experiment.name,
        "computer": computer,
        "entrypoint": experiment.capsule.entrypoint,
        "seed": str(trial.seed),
        "state": "STOPPED_EARLY" if trial.was_stopped else trial.state.value,
        "labels": ", ".join(experiment.labels),
        "metric": experiment.metric,
        "best_metric": "" if trial.best_metric is None else f"{trial.best_metric:.6g}",
        "changes": "; ".join(filter(None, (change.sentence for change in trial.changes))),
        "verdict": trial.verdict.sentence if trial.verdict is not None else "",
        "failure": trial.failure.error if trial.failure is not None else "",
        "best_checkpoint": _place(_best(experiment, own)),
        "last_checkpoint": _place(max(own, key=lambda c: c.steps_completed, default=None)),
    }
    return RunFacts(
        name=f"{experiment.name} {trial.id}",
        params=_params(trial),
        facts={name: shortened(text, _LONGEST) for name, text in facts.items() if text},
        labels=experiment.labels,
        description=experiment.description,
        notebook=experiment.notebook or experiment.capsule.entrypoint,
        status=_status(trial),
        began_at=trial.created_at,
        ended_at=trial.ended_at,
    )


def _params(trial: TrialView) -> dict[str, Any]:
    """Return the hyperparameters; of a changed one, the first value and each later one."""
    params, later = dict(flattened(trial.hparams)), dict[str, Any]()
    for change in reversed(trial.changes):
        for path, former in change.former_hparams.items():
            later[f"{path} after batch {change.steps_completed}"] = params.get(path, "none")
            params[path] = former
    return params | dict(reversed(later.items()))


def _status(trial: TrialView) -> RunStatus:
    if trial.state in _ENDS:
        return _ENDS[trial.state]
    run = trial.allocation
    is_running = run is not None and run.state is AllocationState.RUNNING
    return "running" if is_running else "waiting"


def _best(experiment: ExperimentView, own: Sequence[CheckpointView]) -> CheckpointView | None:
    judged = [each for each in own if each.searcher_metric is not None]
    loss = experiment.direction.loss
    return min(judged, key=lambda each: loss(each.searcher_metric), default=None)


def _place(checkpoint: CheckpointView | None) -> str:
    if checkpoint is None:
        return ""
    return f"{checkpoint.path} (after {checkpoint.steps_completed} batches)"


def points_in(item: FeedItem) -> Iterator[Point]:
    """Yield the points of a feed item; an item that is not of metrics has none."""
    if item.kind != "metrics":
        return
    at = float(item.data["at"])
    for group, name, first, values in metrics_in(item.data):
        for step, value in enumerate(values, start=first):
            number = _to_number(value)
            if number is not None:
                yield Point(f"{group}/{name}", step, at, number)


def _to_number(value: Any) -> float | None:
    """Return a metric's value; NaN and infinite values are text in JSON. None: it is no number."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


Last = tuple[int, float | None]  # step and value of a metric's last point; None: unknown


def take_new(points: Iterable[Point], last: dict[str, Last]) -> list[Point]:
    """Return the points after the last one of their metric, and update `last`.

    A trial that restarts from a checkpoint reports some steps again, with the same values, as its
    training is exactly repeated. Trackers cannot delete points, so only the first are sent. A
    different value at the last step is a later report, and is sent as the metric's last point.
    """
    new = []
    for point in points:
        step, value = last.get(point.key, (-1, None))
        is_other = value is not None and point.value != value and not math.isnan(point.value)
        if point.step > step or (point.step == step and is_other):
            last[point.key] = point.step, point.value if math.isfinite(point.value) else None
            new.append(point)
    return new


def rows_of(curves: Iterable[Curve]) -> list[tuple[int, dict[str, float]]]:
    """Return a row for each step, ascending: values by `group/name`, NaN if not finite.

    `_timestamp` is the time at which the last of the row's values was reported, UTC seconds.
    """
    rows: dict[int, dict[str, float]] = {}
    for curve in curves:
        key = f"{curve.group}/{curve.name}"
        for step, value, at in zip(curve.steps, curve.values, curve.times, strict=True):
            row = rows.setdefault(step, {"_timestamp": at})
            row[key] = math.nan if value is None else value
            row["_timestamp"] = max(row["_timestamp"], at)
    return sorted(rows.items(), key=lambda pair: pair[0])


def remark_on(runs: Mapping[int, Mapping[str, Any]]) -> str:
    """Return a sentence on runs that were deleted or lost at the tracker; "" if there are none.

    Args:
        runs: By trial, the data of its run: `is_deleted` if the user has deleted it; `replaces`,
            the lost run in whose place it was made.

    >>> remark_on({4: {"replaces": "0a"}, 3: {"replaces": "0b"}, 5: {"replaces": ""}})
    'runs that were not there any more were made again (trials 3 and 4)'
    """
    deleted = [trial for trial, run in sorted(runs.items()) if run.get("is_deleted")]
    again = [trial for trial, run in sorted(runs.items()) if run.get("replaces")]
    remarks = []
    if deleted:
        remarks.append(
            f"runs that are deleted there get nothing until they are restored ({_trials(deleted)})"
        )
    if again:
        remarks.append(f"runs that were not there any more were made again ({_trials(again)})")
    return "; ".join(remarks)


def _trials(ids: Sequence[int]) -> str:
    return f"trial{'s' * (len(ids) > 1)} {listed(ids, most=_MOST_NAMED)}"


def plain_name(name: str) -> str:
    """Return a name of a metric or parameter that MLflow accepts.

    >>> plain_name("validation/top 5%"), plain_name("/a/../b")
    ('validation/top 5_', 'a/_/b')
    """
    return _as_path(_STRANGE.sub("_", name))[:_LONGEST_NAME]


def code_file(name: str) -> str:
    """Return the path of a source file in a folder of the code.

    >>> code_file("Cell In[5]"), code_file("nets/wide.py")
    ('Cell_In_5_', 'nets/wide.py')
    """
    return _as_path(re.sub(r"[^\w.\-/]", "_", name, flags=re.ASCII))


def is_misplaced(artifacts: str, tracking_uri: str) -> bool:
    """Return whether a server of another computer has artifacts written to a folder of this one.

    >>> is_misplaced("file:///home/ann", "http://mlflow.example.org")
    True
    >>> is_misplaced("mlflow-artifacts:/0/a", "http://mlflow.example.org")
    False
    >>> is_misplaced("/srv/mlruns/0/a", "http://localhost:5000")
    False
    """
    is_folder = urlsplit(artifacts).scheme in ("", "file")
    return is_folder and urlsplit(tracking_uri).hostname not in (None, *_LOOPBACK)


def _as_path(name: str) -> str:
    parts = [part for part in name.split("/") if part]
    return "/".join("_" if part in (".", "..") else part for part in parts) or "_"
