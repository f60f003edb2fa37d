"""Stores what was trained elsewhere: an experiment, its metrics, and what its ranks printed.

For runs of other tools, for archives and for other masters. Each request may be repeated: an
import that was interrupted is completed by the next one, and nothing is there twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from det_jupyter.client.client import Client
from det_jupyter.contract.messages import (
    ExperimentView,
    ImportedLine,
    ImportedLines,
    ImportedMetrics,
    ImportExperiment,
)
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported, Progress, to_line
from det_jupyter.contract.values.json_numbers import to_finite

MetricsRecord: TypeAlias = BatchMetrics | MetricsReported | Progress
_Item = TypeVar("_Item")
# Limits of one request, which may have 64 MB: lines, usually 0.3 MB, and characters.
_LINES, _MOST_CHARS = 2000, 4_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialData:
    """What an imported trial has besides the fields of ImportedTrial.

    Args:
        records: Its metrics in the order of time, and its progress.
        lines: What its ranks printed, oldest first.
    """

    records: Sequence[MetricsRecord] = ()
    lines: Sequence[ImportedLine] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredImport:
    """The result of an import: the experiment, and how much of it was not there before."""

    experiment_id: int
    num_values: int
    num_lines: int


def import_whole(
    client: Client, request: ImportExperiment, data_of: Callable[[int], TrialData]
) -> StoredImport:
    """Store an experiment with all that it has; repeatable.

    Args:
        client: Sends requests to the master.
        request: The experiment. When it is repeated, the trials are in the same order, new ones at
            the end.
        data_of: Returns the data of a trial, by its index in the request; called once for each.

    Raises:
        ConfigError: The configuration is not valid, and nothing was stored; or a part of the data
            is not, and what came before it is stored.
        Conflict: The experiment that has these trials cannot take them, or a checkpoint is one of
            another experiment; nothing was stored.
    """
    return store_data(client, client.change(request), request, data_of)


def store_data(
    client: Client,
    view: ExperimentView,
    request: ImportExperiment,
    data_of: Callable[[int], TrialData],
) -> StoredImport:
    """Store the data of the trials; `view` is the answer to the request (see `import_whole`)."""
    num_values = num_lines = 0
    for index, trial in enumerate(view.trials[: len(request.trials)]):
        data = data_of(index)
        num_values += send_metrics(client, trial.id, data.records)
        num_lines += _send_lines(client, trial.id, data.lines)
    return StoredImport(experiment_id=view.id, num_values=num_values, num_lines=num_lines)


def validations(records: Iterable[MetricsRecord], metric: str) -> dict[int, float]:
    """Return the finite values of the searcher's metric by step, of an ImportedTrial."""
    values = {
        record.steps_completed: to_finite(record.metrics.get(metric))
        for record in records
        if isinstance(record, MetricsReported) and record.group == "validation"
    }
    return {step: value for step, value in values.items() if value is not None}


def num_values(records: Iterable[MetricsRecord]) -> int:
    """Return the number of values of metrics in records."""
    return sum(_values_in(record) for record in records)


def _values_in(record: MetricsRecord) -> int:
    if isinstance(record, BatchMetrics):
        return sum(map(len, record.values.values()))
    return len(record.metrics) if isinstance(record, MetricsReported) else 0


def send_metrics(client: Client, trial_id: int, records: Sequence[MetricsRecord]) -> int:
    """Send the records that the master lacks; return how many values they have."""

    def send(first: int, part: Sequence[str]) -> int:
        text = "".join(part)
        return client.add_imported(trial_id, ImportedMetrics(first=first, text=text)).lines

    return num_values(records[_send_missing([*map(to_line, records)], len, send) :])


def _send_lines(client: Client, trial_id: int, lines: Sequence[ImportedLine]) -> int:
    def send(first: int, part: Sequence[ImportedLine]) -> int:
        return client.add_imported(trial_id, ImportedLines(first=first, lines=[*part])).lines

    return len(lines) - _send_missing(lines, _length, send) if lines else 0


def _length(line: ImportedLine) -> int:
    return len(line.text)


def _send_missing(
    items: Sequence[_Item],
    length: Callable[[_Item], int],
    send: Callable[[int, Sequence[_Item]], int],
) -> int:
    """Send the items that are not stored yet, in parts; return how many were stored before.

    Args:
        length: Returns about how many characters an item has.
        send: Sends a part, with the number of its first item; returns how many are stored then.
    """
    stored = before = min(send(0, ()), len(items))
    while stored < len(items):
        end, room = stored, _MOST_CHARS
        while end < min(stored + _LINES, len(items)) and room > 0:
            room -= length(items[end])
            end += 1
        stored = send(stored, items[stored:end])
    return before
