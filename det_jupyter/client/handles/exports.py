"""Exports metrics, trials, series and timings as tables, and the captured code as files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from det_jupyter.client.handle_text import describe_trial, ranked
from det_jupyter.client.tables import Columns, Row, Rows
from det_jupyter.contract.messages import (
    Curve,
    ExperimentView,
    Series,
    TimingsView,
    steps_per_epoch,
)
from det_jupyter.contract.values.measures import RATE, STATISTICS, WHOLE
from det_jupyter.contract.values.nested import flattened
from det_jupyter.contract.values.text import printable
from det_jupyter.errors import Conflict, DetError

_NS_PER_S = 1e9
_CELL = re.compile(r"Cell In ?\[(\d+)\]")


def metric_columns(curves: Sequence[Curve]) -> Columns:
    """Return a row for each value of each metric, curve by curve.

    The epoch is a fraction; None where the length of an epoch is not known from the reports.
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

    The duration of a trial that has not ended is up to `now` (UTC seconds).
    """
    return Rows(
        Row(
            {
                "trial": trial.id,
                "state": describe_trial(trial),
                view.metric: trial.best_metric,
                "steps": trial.steps_completed,
                "duration_s": round((trial.ended_at or now) - trial.created_at, 3),
                "restarts": trial.restarts,
                "recoveries": trial.num_recoveries,
                "rungs": len(trial.rung_metrics),
                **{f"hparams.{path}": value for path, value in flattened(trial.hparams)},
            }
        )
        for trial in ranked(view)
    )


def system_columns(series: Iterable[Series]) -> Columns:
    """Return a row for each point of system samples: time, source, name, unit, min, mean, max."""
    columns: Columns = {
        name: [] for name in ("time", "source", "name", "unit", "min", "mean", "max")
    }
    for one in series:
        num = len(one.x)
        columns["time"] += one.x
        columns["source"] += [one.source] * num
        columns["name"] += [one.name] * num
        columns["unit"] += [one.unit] * num
        columns["min"] += one.low
        columns["mean"] += one.mid
        columns["max"] += one.high
    return columns


def by_trial(columns: Mapping[int, Columns]) -> Columns:
    """Concatenate the columns of several trials, by their ids, with a column `trial`."""
    joined: Columns = {"trial": []}
    for trial_id, own in columns.items():
        joined["trial"] += [trial_id] * len(next(iter(own.values()), []))
        for name, values in own.items():
            joined.setdefault(name, []).extend(values)
    return joined


def step_columns(series: Iterable[Series]) -> Columns:
    """Return timings of ranks: `time`, `rank`, `part`, `per_batch`, `p50`, `p95`, `max`.

    `series` are those of parts (`forward`) and of their statistics (`forward.p50`).
    """
    found = {(one.source, one.name): one for one in series}
    columns: Columns = {name: [] for name in ("time", "rank", "part", "per_batch", *STATISTICS)}
    for (source, part), one in found.items():
        if part.rpartition(".")[2] in STATISTICS or one.unit == "1/s":
            continue
        columns["time"] += one.x
        columns["rank"] += [int(source.removeprefix("rank:"))] * len(one.x)
        columns["part"] += [part] * len(one.x)
        columns["per_batch"] += one.mid
        for statistic in STATISTICS:
            other = found.get((source, f"{part}.{statistic}"))
            known = dict(zip(other.x, other.mid, strict=True)) if other is not None else {}
            columns[statistic] += [known.get(x) for x in one.x]
    return columns


def timing_columns(records: Iterable[TimingsView]) -> dict[str, list[float | None]]:
    """Return stored timings as lists of equal length by part, in seconds; {} if there are none."""
    columns: dict[str, list[float | None]] = {}
    num_batches = 0
    for record in records:
        for name, values in _columns_of(record).items():
            columns.setdefault(name, [None] * num_batches).extend(values)
        num_batches += len(record.records)
        for values in columns.values():
            values += [None] * (num_batches - len(values))
    return columns


def _columns_of(record: TimingsView) -> dict[str, list[float | None]]:
    whole = record.durations_ns[WHOLE]
    first = record.first - 1
    columns: dict[str, list[float | None]] = {
        "batch_idx": list(range(first, first + len(record.records))),
        RATE: [
            None if not duration else num * _NS_PER_S / duration
            for num, duration in zip(record.records, whole, strict=True)
        ],
    }
    for part, durations in record.durations_ns.items():
        columns[part] = [None if ns is None else ns / _NS_PER_S for ns in durations]
    return columns


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
        # Printable: escape sequences in code of others could hide lines of it in a terminal.
        parts = (f"# ── {name}\n{text.strip(chr(10))}" for name, text in self.items())
        return printable("\n\n".join(parts))


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
