"""What a handle takes out of an experiment: metrics and trials as tables, the code."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from det_jupyter.client.code import Code
from det_jupyter.client.event_files import EventFiles, write_event_files
from det_jupyter.client.ranking import describe_trial, flattened, ranked
from det_jupyter.client.steering import SteeredExperiment
from det_jupyter.client.tables import Columns, Row, Rows, to_frame
from det_jupyter.wire import Curve, ExperimentView, TrialView, steps_per_epoch


class TabledExperiment(SteeredExperiment):
    """The part of a handle that takes out metrics and trials as tables, and the code."""

    def curves(self, *, max_points: int | None = None) -> list[Curve]:
        """Return every metric, each with its steps and values."""
        return self._client.curves(self.id, max_points=max_points)

    def metrics(self) -> Any:
        """Return every value of every metric as a tidy pandas DataFrame.

        Columns: `trial`, `group` ("training", "validation", "batches" for each batch's, or your
        own), `steps`, `epoch` (a fraction), `time`, `metric`, `value`.

        Raises:
            DetError: pandas is not installed; `curves()` needs none.
        """
        return to_frame(metric_columns(self.curves()))

    def tensorboard(self, folder: str | Path | None = None) -> EventFiles:
        """Write TensorBoard files of metrics, timings and system metrics, and keep them current.

        What is returned prints the lines that show them: `%tensorboard --logdir FOLDER`. While the
        experiment is not over, new points are appended every 10 s, until `stop()`. Written again,
        a folder gets only what is new.

        Args:
            folder: By default `tensorboard/experiment-7` in the present folder.

        Raises:
            DetError: The package tensorboard is not installed.
        """
        folder = Path(folder or f"tensorboard/experiment-{self.id}")
        return write_event_files(self._client, self.id, None, folder)

    def trials_table(self) -> Rows:
        """Return a row for each trial, best first; `.to_frame()` makes a DataFrame of it.

        Columns: `trial`, `state`, the best value of the searcher's metric under its name, `steps`,
        `duration_s` from the trial's creation to its end, `restarts`, `rungs` that it reached, and
        each hyperparameter as `hparams.lr`, nested ones as `hparams.optimizer.lr`.
        """
        return trial_rows(self._client.experiment(self.id), time.time())

    def code(self) -> Code:
        """Return the captured source: of cells by label ("Cell In[5]"), of local modules by path.

        Raises:
            NotFound: The code is not readable any more.
        """
        return Code(self._client.code(self.id))


def metric_columns(curves: Sequence[Curve]) -> Columns:
    """Return a row for each value of each metric, curve by curve.

    The epoch is a fraction, and None where the trial's reports do not say how long one is.
    """
    names = ("trial", "group", "steps", "epoch", "time", "metric", "value")
    columns: Columns = {name: [] for name in names}
    lengths = steps_per_epoch(curves)
    for curve in curves:
        num = len(curve.steps)
        length = lengths.get(curve.trial_id)
        columns["trial"] += [curve.trial_id] * num
        columns["group"] += [curve.group] * num
        columns["steps"] += curve.steps
        columns["epoch"] += [None if length is None else step / length for step in curve.steps]
        columns["time"] += curve.times
        columns["metric"] += [curve.name] * num
        columns["value"] += curve.values
    return columns


def trial_rows(view: ExperimentView, now: float) -> Rows:
    """Return a row for each trial, best first.

    Args:
        now: Until then the time of trials that are not over is counted, in UTC seconds.
    """
    return Rows(_row_of(trial, view, now) for trial in ranked(view))


def _row_of(trial: TrialView, view: ExperimentView, now: float) -> Row:
    return Row(
        {
            "trial": trial.id,
            "state": describe_trial(trial),
            view.metric: trial.best_metric,
            "steps": trial.steps_completed,
            "duration_s": round((trial.ended_at or now) - trial.created_at, 3),
            "restarts": trial.restarts,
            "rungs": len(trial.rung_metrics),
            **{f"hparams.{path}": value for path, value in flattened(trial.hparams)},
        }
    )
