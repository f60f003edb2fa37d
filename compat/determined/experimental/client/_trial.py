"""A trial, with the methods that Determined's has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from det_jupyter.client import Client
from det_jupyter.client import Trial as OwnTrial
from det_jupyter.contract.messages import CheckpointView, Curve, ExperimentView
from det_jupyter.contract.values.direction import Direction
from det_jupyter.errors import NotFound
from determined._lacking import Handle
from determined.experimental.client._checkpoint import Checkpoint
from determined.experimental.client._sorting import (
    CheckpointSortBy,
    OrderBy,
    best_first,
    in_order,
)

if TYPE_CHECKING:
    from determined.experimental.client._experiment import Experiment

SortKey = str | CheckpointSortBy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialMetrics:
    """One report of metrics."""

    trial_id: int
    group: str
    steps_completed: int
    end_time: datetime
    metrics: dict[str, Any]
    trial_run_id: int = 0
    batch_metrics: None = None


class TrialLine(str):
    """A line that a trial printed, with its origin."""

    rank_id: int
    timestamp: datetime
    level: str | None

    @property
    def message(self) -> str:
        """The line."""
        return str(self)

    log = message


class Trial(OwnTrial, Handle):
    """One trial of an experiment."""

    @property
    def experiment_id(self) -> int:
        """Number of its experiment."""
        return self.view.experiment_id

    @property
    def summary_metrics(self) -> dict[str, Any]:
        """Of each metric the number of reports, the last value, the extremes and the sum."""
        found: dict[str, Any] = {}
        for curve in self._curves():
            values = [value for value in curve.values if value is not None]
            if values:
                key = {"training": "avg_metrics", "validation": "validation_metrics"}.get(
                    curve.group, curve.group
                )
                found.setdefault(key, {})[curve.name] = {
                    "count": len(values), "last": values[-1], "max": max(values),
                    "min": min(values), "sum": sum(values), "type": "number",
                }  # fmt: skip
        return found

    def reload(self) -> None:
        """Do nothing: the master is asked each time."""

    def get_experiment(self) -> Experiment:
        """Return its experiment."""
        from determined.experimental.client._experiment import Experiment

        return Experiment(self._client, self.experiment_id)

    def iter_metrics(self, group: str | None = None) -> Iterator[TrialMetrics]:
        """Yield reports of a group of metrics, by default of all, in the order of steps."""
        reports: dict[tuple[int, str], dict[str, Any]] = {}
        times: dict[tuple[int, str], float] = {}
        for curve in self._curves():
            for step, value, at in zip(curve.steps, curve.values, curve.times, strict=True):
                reports.setdefault((step, curve.group), {})[curve.name] = value
                times[step, curve.group] = at
        for (step, its_group), metrics in sorted(reports.items()):
            if group is None or its_group == group:
                yield TrialMetrics(
                    trial_id=self.id,
                    group=its_group,
                    steps_completed=step,
                    end_time=datetime.fromtimestamp(times[step, its_group], UTC),
                    metrics=metrics,
                )

    def stream_training_metrics(self) -> Iterator[TrialMetrics]:
        """Yield the reports of training metrics."""
        return self.iter_metrics("training")

    def stream_validation_metrics(self) -> Iterator[TrialMetrics]:
        """Yield the reports of validation metrics."""
        return self.iter_metrics("validation")

    def iter_logs(
        self,
        follow: bool = False,
        *,
        head: int | None = None,
        tail: int | None = None,
        rank_ids: Sequence[int] | None = None,
        min_level: str | None = None,
        search_text: str | None = None,
    ) -> Iterator[TrialLine]:
        """Yield lines that its ranks printed."""
        level = getattr(min_level, "name", min_level)
        which: dict[str, Any] = {"level": level, "search": search_text, "tail": tail}
        lines = self.logs(follow=True, **which) if follow else self.logs(**which)
        left = head
        for line in lines:
            if rank_ids is not None and line.rank not in rank_ids:
                continue
            if left is not None and (left := left - 1) < 0:
                return
            shown = TrialLine(line.text)
            shown.rank_id, shown.level = line.rank, line.level
            shown.timestamp = datetime.fromtimestamp(line.at, UTC)
            yield shown

    def list_checkpoints(
        self,
        sort_by: SortKey = None,
        order_by: OrderBy | None = None,
        max_results: int | None = None,
    ) -> list[Checkpoint]:
        """Return its checkpoints, by default the latest first."""
        experiment = self._client.experiment(self.experiment_id)
        of_trial = [c for c in self._client.checkpoints(experiment.id) if c.trial_id == self.id]
        return checkpoints_in_order(
            self._client, experiment, of_trial, sort_by, order_by, max_results
        )

    def get_checkpoints(
        self, sort_by: SortKey = None, order_by: OrderBy | None = None
    ) -> list[Checkpoint]:
        """Return its checkpoints, by default the latest first."""
        return self.list_checkpoints(sort_by, order_by)

    def top_checkpoint(
        self, sort_by: str | None = None, smaller_is_better: bool | None = None
    ) -> Checkpoint:
        """Return its best checkpoint by a metric of validations, by default the searcher's.

        Raises:
            NotFound: None was saved together with such a validation.
        """
        experiment = self._client.experiment(self.experiment_id)
        of_trial = [c for c in self._client.checkpoints(experiment.id) if c.trial_id == self.id]
        return top_checkpoints(self._client, experiment, of_trial, 1, sort_by, smaller_is_better)[
            0
        ]

    def select_checkpoint(
        self,
        latest: bool = False,
        best: bool = False,
        uuid: str | None = None,
        sort_by: str | None = None,
        smaller_is_better: bool | None = None,
    ) -> Checkpoint:
        """Return the checkpoint that one of these arguments describes.

        Raises:
            ValueError: None or several of `latest`, `best` and `uuid` are given.
            NotFound: There is no such checkpoint.
        """
        if sum(map(bool, (latest, best, uuid))) != 1:
            raise ValueError("select_checkpoint: give one of latest=True, best=True and uuid=")
        if best:
            return self.top_checkpoint(sort_by, smaller_is_better)
        found = self.list_checkpoints(CheckpointSortBy.BATCH_NUMBER, OrderBy.DESCENDING)
        chosen = [c for c in found if (c.uuid == uuid if uuid else c.state == "COMPLETED")]
        if not chosen:
            raise NotFound(f"trial {self.id} has no checkpoint{f' {uuid}' if uuid else ''} now")
        return chosen[0]

    def _curves(self) -> list[Curve]:
        curves = self._client.curves(self.experiment_id)
        return [curve for curve in curves if curve.trial_id == self.id]


def checkpoints_in_order(
    client: Client,
    experiment: ExperimentView,
    views: Sequence[CheckpointView],
    sort_by: SortKey,
    order_by: OrderBy | None,
    limit: int | None,
) -> list[Checkpoint]:
    """Return handles on checkpoints that are kept, by default the latest first."""
    key_of: Callable[[CheckpointView], Any]
    if isinstance(sort_by, str):
        key_of = _metric_of(client, experiment, sort_by)
    else:
        attribute = (sort_by or CheckpointSortBy.END_TIME).value

        def key_of(view: CheckpointView) -> Any:
            return getattr(view, attribute)

    kept = [view for view in views if view.state != "DELETED"]
    order = order_by or (OrderBy.DESCENDING if sort_by is None else OrderBy.ASCENDING)
    folder = Path(client.session.info.data_dir)
    hparams = {trial.id: trial.hparams for trial in experiment.trials}
    return [
        Checkpoint(view, folder, hparams.get(view.trial_id))
        for view in in_order(kept, key_of, order, limit)
    ]


def top_checkpoints(
    client: Client,
    experiment: ExperimentView,
    views: Sequence[CheckpointView],
    limit: int,
    sort_by: str | None,
    smaller_is_better: bool | None,
) -> list[Checkpoint]:
    """Return the best checkpoints by a metric of validations, by default the searcher's.

    Raises:
        NotFound: None that is kept was saved together with such a validation.
    """
    if smaller_is_better is None:
        smaller_is_better = experiment.direction is Direction.MINIMIZE
    value_of = (
        _metric_of(client, experiment, sort_by) if sort_by else lambda view: view.searcher_metric
    )
    measured = [v for v in views if v.state == "COMPLETED" and value_of(v) is not None]
    order = best_first(smaller_is_better)
    key: SortKey = sort_by or CheckpointSortBy.SEARCHER_METRIC
    found = checkpoints_in_order(client, experiment, measured, key, order, limit)
    if not found:
        metric = sort_by or experiment.metric
        raise NotFound(
            f"experiment {experiment.id} has no checkpoint with a validation that has {metric}"
        )
    return found


def _metric_of(
    client: Client, experiment: ExperimentView, name: str
) -> Callable[[CheckpointView], float | None]:
    """Return what reads a metric of the validation at a checkpoint's batch."""
    values = {
        (curve.trial_id, step): value
        for curve in client.curves(experiment.id)
        if curve.group == "validation" and curve.name == name
        for step, value in zip(curve.steps, curve.values, strict=True)
    }
    return lambda view: values.get((view.trial_id, view.steps_completed))
