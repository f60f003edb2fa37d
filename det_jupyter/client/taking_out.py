"""What a handle takes out of an experiment: metrics and trials as tables, logs, the code."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Literal, Unpack, overload

from det_jupyter.client.asking import When
from det_jupyter.client.event_files import EventFiles, write_event_files
from det_jupyter.client.logs import TAIL, LogLines, Which, follow_lines, query_of, read
from det_jupyter.client.shown import describe_trial, flattened, ranked
from det_jupyter.client.steering import SteeredExperiment
from det_jupyter.client.tables import Columns, Row, Rows, to_frame
from det_jupyter.client.trial import Trial
from det_jupyter.contract.messages import (
    Curve,
    ExperimentView,
    LogLine,
    TrialView,
    steps_per_epoch,
)
from det_jupyter.errors import Conflict, DetError


class TabledExperiment(SteeredExperiment):
    """The part of a handle that takes out metrics and trials as tables, logs, and the code."""

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

    @overload
    def logs(
        self, *, trial: Trial | int | None = None, follow: Literal[False] = False,
        **which: Unpack[Which],
    ) -> LogLines: ...  # fmt: skip

    @overload
    def logs(
        self, *, trial: Trial | int | None = None, follow: Literal[True], **which: Unpack[Which]
    ) -> Iterator[LogLine]: ...

    def logs(
        self,
        *,
        trial: Trial | int | None = None,
        rank: int | None = None,
        since: When = None,
        level: str | None = None,
        search: str | None = None,
        tail: int | None = TAIL,
        follow: bool = False,
    ) -> LogLines | Iterator[LogLine]:
        """Return the last `tail` lines that the ranks of its trials printed; with None, all.

        Args:
            trial: Only of this trial, or the one with this number.
            rank: Only of this rank.
            since: Only since then: an age such as "10m", a date, or a time.
            level: Only of this level or a higher one: debug, info, warning, error, critical. It
                is recognised in the line; a traceback is an error.
            search: Only with this text, upper or lower case; as "/.../" a regular expression.
            tail: How many lines; the result's `total` says how many fit.
            follow: Return an iterator that waits for more lines until the experiment has ended.
        """
        query = query_of(rank=rank, since=since, level=level, search=search)
        trial_id = trial.id if isinstance(trial, Trial) else trial
        fetch = partial(self._client.experiment_logs, self.id, trial_id=trial_id)
        return (follow_lines if follow else read)(fetch, query, tail)


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

    Of trials that are not over, the time until `now` (UTC seconds) is counted.
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


_CELL = re.compile(r"Cell In ?\[(\d+)\]")


class Code(dict[str, str]):
    """Source by name: of cells by label ("Cell In[5]"), of local modules by path."""

    def write(self, folder: str | Path) -> list[Path]:
        """Write each source to a file of a folder, a cell as `cell_5.py`; return the files.

        Raises:
            Conflict: A file of that name is there already and differs; nothing is written.
            DetError: A file cannot be written, or would lie outside of the folder.
        """
        root = Path(folder).expanduser()
        files = {root / file_of(name): text for name, text in self.items()}
        for path, text in files.items():
            if path.exists() and path.read_bytes() != text.encode():
                raise Conflict(f"{path}: a file with other content is there; give another folder")
        try:
            for path, text in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
        except OSError as error:
            raise DetError(f"{root}: cannot be written: {error.strerror or error}") from None
        return list(files)

    def __repr__(self) -> str:
        return "\n\n".join(f"# ── {name}\n{text.strip(chr(10))}" for name, text in self.items())


def file_of(name: str) -> PurePosixPath:
    """Return the path of a source's file, which lies inside of the folder.

    >>> str(file_of("Cell In[5]")), str(file_of("nets/wide.py"))
    ('cell_5.py', 'nets/wide.py')
    """
    if match := _CELL.fullmatch(name):
        return PurePosixPath(f"cell_{match[1]}.py")
    path = PurePosixPath(name)
    if ".." in path.parts:
        raise DetError(f"{name}: a source with this name would lie outside of the folder")
    return PurePosixPath(path.name) if path.is_absolute() else path
