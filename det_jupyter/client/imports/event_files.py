"""TensorBoard files of metrics, timings and system metrics, written from the master's history.

    FOLDER/trial-3/            metrics by group: training/loss, validation/error   step: batches
    FOLDER/trial-3/rank-0/     timings/forward, ... in seconds per batch           step: batches
                               system/cpu_util, ... of its process                 step: seconds
    FOLDER/trial-3/host/, gpu-UUID/, workers-0/    system/...                      step: seconds

Writing a folder again appends only new points; `.written.json` stores the last step of each tag.
Where a trial has restarted from a checkpoint, TensorBoard is made to drop the points after it.

Needs the package tensorboard, and no torch. A trial's own event files are in another folder
(`context.get_tensorboard_path()`).
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import shlex
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

from det_jupyter.client.client import Client
from det_jupyter.contract.messages import Curve, SeriesQuery, TrialView
from det_jupyter.contract.messages.queries import MAX_COLUMNS
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

PERIOD_S = 10.0
_MOST_POINTS = 10_000  # points of a curve; TensorBoard itself shows 1,000 of them
_SHARE = 20  # at most 1/20 of the time is spent on writing
_STATE = ".written.json"
_OWN = "det_jupyter"  # suffix of our files

Written = dict[str, float]  # "run tag" -> last step written


class TimedValue(NamedTuple):
    """A value with its step and time (UTC seconds)."""

    step: int
    at: float
    value: float


class EventFiles:
    """A folder of event files, kept up to date while one of its trials trains."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def follow(self, write: Callable[[], bool]) -> None:
        """Call `write` periodically in a thread, until it returns True: no more points come."""
        self._thread = threading.Thread(
            target=self._follow, args=(write,), name="det-tensorboard", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop updating the files, which stay. Idempotent."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _follow(self, write: Callable[[], bool]) -> None:
        pause_s = PERIOD_S
        while not self._stop.wait(pause_s):
            started = time.monotonic()
            try:
                if write():
                    return
            except Exception as error:  # no master for a while, a full disk: retried
                logger.warning("%s was not written: %s", self.folder, error)
            pause_s = max(PERIOD_S, _SHARE * (time.monotonic() - started))

    def show(self) -> None:
        """Show the files in TensorBoard below the cell, like `%tensorboard`. Only in notebooks."""
        from tensorboard.notebook import start  # type: ignore[import-untyped]  # has no stubs

        start(f"--logdir {shlex.quote(str(self.folder))}")

    def __fspath__(self) -> str:
        return str(self.folder)

    def __repr__(self) -> str:
        return f"%load_ext tensorboard\n%tensorboard --logdir {str(self.folder)!r}"


def check_installed() -> None:
    """Raise a DetError if the package tensorboard is not installed."""
    if find_spec("tensorboard") is None:
        raise DetError(
            "the package tensorboard is not installed; run `pip install "
            "det-jupyter[tensorboard]` and try again"
        )


def _make_findable() -> None:
    """Set TENSORBOARD_BINARY for %tensorboard if the program is in this Python's folder only."""
    program = Path(sys.executable).with_name("tensorboard")
    if which("tensorboard") is None and program.exists():
        os.environ.setdefault("TENSORBOARD_BINARY", str(program))


_followed: dict[Path, EventFiles] = {}  # by folder: each is written by one thread of this process
_lock = threading.Lock()


def write_event_files(
    client: Client, experiment_id: int, trial_ids: Sequence[int] | None, folder: Path
) -> EventFiles:
    """Write the event files of some trials (None: of all), and keep them current in a thread.

    Raises:
        DetError: The package tensorboard is not installed.
    """
    check_installed()
    _make_findable()
    folder = folder.expanduser().resolve()

    def write() -> bool:
        view = client.experiment(experiment_id)
        trials = [t for t in view.trials if trial_ids is None or t.id in trial_ids]
        curves = client.curves(experiment_id, max_points=_MOST_POINTS)
        written = _read_state(folder)
        for trial in trials:
            own = [curve for curve in curves if curve.trial_id == trial.id]
            _write_trial(client, trial, own, folder, written)
        folder.joinpath(_STATE).write_text(json.dumps(written), encoding="utf-8")
        parts = trials if trial_ids is not None else [view]
        return all(part.state.is_terminal for part in parts)

    with _lock:
        if folder in _followed:
            _followed[folder].stop()
        files = _followed[folder] = EventFiles(folder)
        folder.mkdir(parents=True, exist_ok=True)
        if not write():
            files.follow(write)
    return files


def _read_state(folder: Path) -> Written:
    try:
        return dict(json.loads(folder.joinpath(_STATE).read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def _write_trial(
    client: Client, trial: TrialView, curves: Sequence[Curve], folder: Path, written: Written
) -> None:
    runs: dict[str, dict[str, list[TimedValue]]] = {}
    name = f"trial-{trial.id}"
    for curve in curves:
        rows = zip(curve.steps, curve.times, curve.values, strict=True)
        runs.setdefault(name, {})[f"{curve.group}/{curve.name}"] = [
            TimedValue(step, at, value) for step, at, value in rows if value is not None
        ]
    for of, axis in (("timings", "batches"), ("system", "time")):
        query = SeriesQuery.model_validate({"of": of, "axis": axis, "columns": MAX_COLUMNS})
        page = client.series(trial.id, query)
        began_at = page.began_at or trial.created_at
        to_step = _batches(curves, began_at) if of == "timings" else _seconds(began_at)
        for series in page.series:
            pairs = zip(series.x, series.mid, strict=True)
            if points := [TimedValue(*to_step(x), value) for x, value in pairs]:
                folder_name = re.sub(r"[^\w.-]+", "-", series.source)
                runs.setdefault(f"{name}/{folder_name}", {})[f"{of}/{series.name}"] = points
    for run, tags in runs.items():
        _write_run(folder / run, run, tags, written)


def _seconds(began_at: float) -> Callable[[float], tuple[int, float]]:
    """Return a function from UTC seconds to (seconds since the beginning, UTC seconds)."""
    return lambda at: (max(0, round(at - began_at)), at)


def _batches(curves: Sequence[Curve], began_at: float) -> Callable[[float], tuple[int, float]]:
    """Return a function from a batch to (batch, UTC seconds of the metrics reported near it)."""
    longest = max(curves, key=lambda curve: len(curve.steps), default=None)

    def to_step(batches: float) -> tuple[int, float]:
        step = round(batches)
        if longest is None or not longest.steps:
            return step, began_at
        index = min(bisect_left(longest.steps, step), len(longest.steps) - 1)
        return step, longest.times[index]

    return to_step


def _write_run(
    folder: Path, run: str, tags: Mapping[str, Sequence[TimedValue]], written: Written
) -> None:
    """Append the new points of a run, in the order of their steps.

    If the trial has restarted from a checkpoint, a SessionLog.START makes TensorBoard drop the
    points after it, of all tags of the run; the points after it are written again.
    """
    ends = {tag: points[-1].step for tag, points in tags.items() if points}
    back_to = min(
        (end for tag, end in ends.items() if end < written.get(f"{run} {tag}", -1)), default=None
    )
    new: list[tuple[TimedValue, str]] = []
    for tag, end in ends.items():
        key = f"{run} {tag}"
        last = written.get(key, -1)
        last = last if back_to is None else min(last, back_to)
        new += [(point, tag) for point in tags[tag] if point.step > last]
        written[key] = end
    events = [
        _event(
            step=point.step,
            wall_time=point.at,
            summary={"value": [{"tag": tag, "simple_value": point.value}]},
        )
        for point, tag in sorted(new)
    ]
    if back_to is not None:
        restart = {"status": 1}  # SessionLog.START
        events = [_event(step=back_to + 1, wall_time=time.time(), session_log=restart), *events]
    if events:
        _append(folder, events)


def _append(folder: Path, events: Sequence[Any]) -> None:
    """Append events to the run's file in one write, so that no reader sees a partial event."""
    from tensorboard.summary.writer import record_writer  # type: ignore[import-untyped]  # has no stubs

    folder.mkdir(parents=True, exist_ok=True)
    file = next(folder.glob(f"*.{_OWN}"), None)
    if file is None:
        file = folder / f"events.out.tfevents.{int(time.time()):010d}.{_OWN}"
        events = [_event(wall_time=time.time(), file_version="brain.Event:2"), *events]
    content = io.BytesIO()
    writer = record_writer.RecordWriter(content)
    for event in events:
        writer.write(event.SerializeToString())
    with file.open("ab") as target:
        target.write(content.getvalue())


def _event(**fields: Any) -> Any:
    from tensorboard.compat.proto.event_pb2 import Event  # type: ignore[import-untyped]  # has no stubs

    return Event(**fields)
