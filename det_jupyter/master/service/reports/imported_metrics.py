"""Stores the metrics of imported trials, in parts; a part that is repeated is stored once."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages import ImportedMetrics, NumStored, State
from det_jupyter.contract.run.journal import MetricsReported, parse_line, to_line
from det_jupyter.errors import ConfigError, Conflict, Problem
from det_jupyter.master.service.committing.transaction import Transaction


def store_imported(transaction: Transaction, trial_id: int, part: ImportedMetrics) -> NumStored:
    """Store a part of a trial's metrics; return how many lines are stored now.

    Raises:
        Conflict: The trial was not imported.
        ConfigError: A line is not a record of metrics.
    """
    state = transaction.machine.state
    trial = state.trial(trial_id)
    if not trial.source:
        raise Conflict(f"trial {trial_id} was trained here: metrics cannot be added")
    key = (f"{trial.experiment_id}.import", f"trial-{trial_id}")
    stored = transaction.store.offset(*key)
    if part.first != stored:
        return NumStored(lines=stored)
    rows = []
    for number, line in enumerate(filter(None, part.text.split("\n"))):
        record = _parse(number, line)
        step = record.steps_completed
        text = to_line(record).rstrip("\n")
        rows.append((record.at, trial.experiment_id, trial_id, step, step, text))
    if rows:
        transaction.store.feed.add_metrics(rows)
        transaction.store.set_offsets({key: stored + len(rows)})
        fraction = 1.0 if trial.state is State.COMPLETED else 0.0
        most = max(row[3] for row in rows)
        transaction.progress.advance(trial_id, most, fraction)
    return NumStored(lines=stored + len(rows))


def _parse(number: int, line: str) -> MetricsReported:
    try:
        record: Any = parse_line(line)
    except ValueError as error:
        raise ConfigError([Problem(f"text, line {number}", str(error))]) from None
    if not isinstance(record, MetricsReported):
        raise ConfigError([Problem(f"text, line {number}", f"got a record of {record.kind}")])
    return record
