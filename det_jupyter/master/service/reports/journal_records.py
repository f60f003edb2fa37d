"""Stores the records of a rank's journal, and passes those that change state to the machine."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, assert_never

from det_jupyter.contract.run.journal import (
    BatchMetrics,
    BatchTimings,
    ChangeMade,
    CheckpointDeleted,
    CheckpointSaved,
    CheckpointShare,
    FirstStep,
    LastStepSaved,
    MetricsReported,
    Notice,
    Progress,
    RankFailure,
    RanksStalled,
    RankStarted,
    Record,
    RunEnded,
    StepTimes,
    TargetReached,
    TraceSaved,
    parse_line,
    to_line,
)
from det_jupyter.contract.values.json_numbers import to_finite, to_number
from det_jupyter.master.machine.model.events import (
    LossReported,
    MachineRecord,
    RecordArrived,
    ValidationReported,
)
from det_jupyter.master.machine.rules.log_policies import ActingPolicy
from det_jupyter.master.service.agents.agent_clock import ToMaster
from det_jupyter.master.service.committing.transaction import Transaction
from det_jupyter.master.service.reports.run_verdicts import RunVerdicts

# Kinds of records that the machine handles; without such a record a trial may wait for ever.
NEEDED = {"rank_started", "first_step", "checkpoint", "target_reached", "run_ended", "failure"}
_KIND = re.compile(r'"kind": ?"(\w+)"')  # the kind in a line, even if the line is not valid


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalWriter:
    """The rank that has written a chunk, and settings of its experiment."""

    allocation_id: str
    experiment_id: int
    trial_id: int
    run: int
    rank: int
    agent: str
    metric: str  # the searcher metric
    time_metric: str | None
    policies: tuple[ActingPolicy, ...]  # patterns to search for in the output


def take_journal(
    transaction: Transaction,
    run_verdicts: RunVerdicts,
    source: JournalWriter,
    text: str,
    to_master: ToMaster,
) -> None:
    """Store lines of a rank's journal, until its experiment is given up.

    A careful transaction stores line by line: only a line that cannot be handled is set aside.

    Args:
        transaction: The transaction in which they are stored.
        run_verdicts: Computes verdicts on runs from the records.
        source: The rank.
        text: The lines.
        to_master: Converts the times of the agent's clock.
    """

    def parse(line: str) -> Record:
        record = parse_line(line)
        return replace(record, at=to_master(record.at))

    if transaction.is_careful:
        for line in _usable_lines(transaction, source, text):
            with transaction.setting_aside(
                f"journal-{source.rank} of run {source.allocation_id}",
                content=line,
                experiment_id=source.experiment_id,
                is_fatal=(kind := _KIND.search(line)) is not None and kind[1] in NEEDED,
            ):
                take_record(transaction, run_verdicts, source, parse(line))
        return
    metrics: list[BatchMetrics | MetricsReported] = []  # consecutive records
    for record in map(parse, _usable_lines(transaction, source, text)):
        is_validation = getattr(record, "group", "") == "validation"
        if isinstance(record, (BatchMetrics, MetricsReported)) and not is_validation:
            metrics.append(record)
            continue
        add_metrics(transaction, source, metrics)
        metrics.clear()
        take_record(transaction, run_verdicts, source, record)
    add_metrics(transaction, source, metrics)


def _usable_lines(transaction: Transaction, source: JournalWriter, text: str) -> Iterator[str]:
    for line in filter(None, text.split("\n")):  # not splitlines: JSON strings may contain U+2028
        experiment = transaction.machine.state.experiments.get(source.experiment_id)
        if experiment is None or experiment.is_given_up:
            return
        yield line


def take_record(
    transaction: Transaction, run_verdicts: RunVerdicts, source: JournalWriter, record: Record
) -> None:
    """Store a record of a journal; if it changes the state, pass an event to the machine."""
    advance_progress = transaction.progress.advance
    match record:
        case MetricsReported(group="validation"):
            add_metrics(transaction, source, [record])
            metric = record.metrics.get(source.metric)
            # Amount of training: a reported metric, or a unit of training.
            time: float | None = None
            if (name := source.time_metric) is not None:
                time = to_finite(record.metrics.get(name, record.trained.get(name)))
            transaction.take(
                ValidationReported(
                    allocation_id=source.allocation_id,
                    steps_completed=record.steps_completed,
                    metric=to_number(metric),
                    time=time,
                )
            )
        case BatchMetrics() | MetricsReported():
            add_metrics(transaction, source, [record])
        case BatchTimings():
            if record.steps:
                text = to_line(record).rstrip("\n")
                transaction.store.add_timings(source.trial_id, record.steps, text)
        case StepTimes():
            transaction.store.series.add_times(
                transaction.now, source.trial_id, source.run, source.rank, record
            )
            run_verdicts.add_times(transaction, source.allocation_id, source.rank, record)
        case Progress():
            advance_progress(source.trial_id, record.steps_completed, record.fraction)
        case FirstStep():
            advance_progress(source.trial_id, record.steps_completed, record.fraction)
            transaction.take(_arrival(source, record))
        case CheckpointSaved() | TargetReached() | RunEnded():
            advance_progress(source.trial_id, record.steps_completed)
            transaction.take(_arrival(source, record))
        case (
            RankStarted()
            | RankFailure()
            | Notice()
            | RanksStalled()
            | TraceSaved()
            | ChangeMade()
            | CheckpointDeleted()
            | LastStepSaved()
        ):
            transaction.take(_arrival(source, record))
        case CheckpointShare():
            pass  # the agent has uploaded its files
        case _:
            assert_never(record)


def add_metrics(
    transaction: Transaction,
    source: JournalWriter,
    records: Sequence[BatchMetrics | MetricsReported],
) -> None:
    """Store consecutive records of metrics."""
    rows = []
    for record in records:
        _report_losses(transaction, source, record)
        if steps := record.steps:
            ids = (source.experiment_id, source.trial_id)
            rows.append((record.at, *ids, steps[0], steps[-1], _stored(record, source.run)))
    if rows:
        transaction.store.feed.add_metrics(rows)
        transaction.progress.advance(source.trial_id, max(row[4] for row in rows))


def _stored(record: BatchMetrics | MetricsReported, run: int) -> str:
    """Return the record as JSON, with the run that reported it: a later run may repeat it."""
    return f'{to_line(record).rstrip()[:-1]},"run":{run}}}'


def _report_losses(
    transaction: Transaction, source: JournalWriter, record: BatchMetrics | MetricsReported
) -> None:
    """Pass an event to the machine if a training loss became NaN or infinite, or finite again."""
    found = transaction.machine.state.find_allocation(source.allocation_id)
    if found is None:
        return
    for name, values in _losses_of(record):
        last = to_number(values[-1])
        if last is None or isfinite(last) is (f"training.{name}" not in found[0].divergences):
            continue
        since = len(values) - 1
        while not isfinite(last) and since and to_finite(values[since - 1]) is None:
            since -= 1
        transaction.take(
            LossReported(
                allocation_id=source.allocation_id,
                metric=name,
                steps_completed=record.steps[since],
                value=last,
            )
        )


def _losses_of(record: BatchMetrics | MetricsReported) -> Iterator[tuple[str, list[Any]]]:
    """Yield name and values of training losses: metrics whose names end with "loss"."""
    if isinstance(record, BatchMetrics):
        of = record.values
    elif record.group == "training":
        of = {name: [value] for name, value in record.metrics.items()}
    else:
        return
    yield from ((name, v) for name, v in of.items() if v and name.lower().endswith("loss"))


def _arrival(source: JournalWriter, record: MachineRecord) -> RecordArrived:
    return RecordArrived(allocation_id=source.allocation_id, rank=source.rank, record=record)
