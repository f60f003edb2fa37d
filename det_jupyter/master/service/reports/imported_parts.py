"""Stores metrics and printed lines of imported trials in parts; a repeated part is stored once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any, TypeAlias

from det_jupyter.contract.messages import (
    ImportedLine,
    ImportedLines,
    ImportedMetrics,
    NumStored,
    State,
)
from det_jupyter.contract.run.journal import (
    BatchMetrics,
    MetricsReported,
    Progress,
    parse_line,
    to_line,
)
from det_jupyter.contract.run.output_lines import OutputLines
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.service.committing.transaction import Transaction

_Record: TypeAlias = BatchMetrics | MetricsReported | Progress


def store_metrics(transaction: Transaction, trial_id: int, part: ImportedMetrics) -> NumStored:
    """Store a part of a trial's metrics; return how many lines are stored now.

    Raises:
        Conflict: The trial was not imported.
        ConfigError: A line is not a record of metrics or progress.
    """
    trial = _imported(transaction, trial_id)
    key = _key(trial, "trial")
    stored = transaction.store.offset(*key)
    if part.first != stored:
        return NumStored(lines=stored)
    records = [
        _parse(number, line) for number, line in enumerate(filter(None, part.text.split("\n")))
    ]
    if records:
        _add(transaction, trial, records)
        transaction.store.set_offsets({key: stored + len(records)})
    return NumStored(lines=stored + len(records))


def store_lines(transaction: Transaction, trial_id: int, part: ImportedLines) -> NumStored:
    """Store a part of the lines that a trial's ranks printed; return how many are stored now.

    Raises:
        Conflict: The trial was not imported.
    """
    key = _key(_imported(transaction, trial_id), "lines")
    stored = transaction.store.offset(*key)
    if part.first != stored or not part.lines:
        return NumStored(lines=stored)
    for (at, run, rank, agent), lines in groupby(part.lines, _place):
        printed = OutputLines([line.text for line in lines], None)
        transaction.store.logs.add(
            at, trial_id=trial_id, run=run, rank=rank, printed=printed, agent=agent
        )
    transaction.store.set_offsets({key: stored + len(part.lines)})
    return NumStored(lines=stored + len(part.lines))


def _imported(transaction: Transaction, trial_id: int) -> Trial:
    trial = transaction.machine.state.trial(trial_id)
    if not trial.source:
        raise Conflict(f"trial {trial_id} was trained here: nothing can be added")
    return trial


def _key(trial: Trial, what: str) -> tuple[str, str]:
    return f"{trial.experiment_id}.import", f"{what}-{trial.id}"


def _place(line: ImportedLine) -> tuple[float, int, int, str]:
    return line.at, line.run, line.rank, line.agent


def _add(transaction: Transaction, trial: Trial, records: Sequence[_Record]) -> None:
    rows, last_progress = [], None
    for record in records:
        if isinstance(record, Progress):
            last_progress = record
        elif steps := record.steps:
            ids = (trial.experiment_id, trial.id)
            rows.append((record.at, *ids, steps[0], steps[-1], to_line(record).rstrip("\n")))
    advance = transaction.progress.advance
    if rows:
        transaction.store.feed.add_metrics(rows)
        fraction = 1.0 if trial.state is State.COMPLETED else 0.0
        advance(trial.id, max(row[4] for row in rows), fraction)
    if last_progress is not None:
        advance(trial.id, last_progress.steps_completed, last_progress.fraction)


def _parse(number: int, line: str) -> _Record:
    try:
        record: Any = parse_line(line)
    except ValueError as error:
        raise ConfigError([Problem(f"text, line {number}", str(error))]) from None
    if not isinstance(record, _Record):
        raise ConfigError([Problem(f"text, line {number}", f"got a record of {record.kind}")])
    return record
