"""What Determined has stored, in the same form from a master (master.py) and a dump (dump.py)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from det_jupyter.contract.messages import ImportedLine
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported
from det_jupyter.contract.values.bounds import find_value_problem

_VALUES = {"validation": "validation_metrics"}  # the key of the averages; else avg_metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExperiment:
    """An experiment; times are UTC seconds, and `ended_at` is None if it is not over."""

    id: int
    config: dict[str, Any]
    state: str
    notes: str
    is_archived: bool
    created_at: float
    ended_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTrial:
    """A trial; `groups` are those of its metrics, `task_ids` those that its log is stored by."""

    id: int
    state: str
    hparams: dict[str, Any]
    restarts: int
    steps_completed: int
    created_at: float
    ended_at: float | None
    groups: tuple[str, ...]
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A checkpoint of a trial; its files stay where they are."""

    uuid: str
    trial_id: int
    state: str
    steps_completed: int
    size_bytes: int
    created_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundVersion:
    """A version of a model."""

    number: int
    uuid: str  # of its checkpoint
    name: str
    comment: str
    notes: str
    labels: list[str]
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundModel:
    """A model with its versions, in their order."""

    name: str
    description: str
    notes: str
    labels: list[str]
    metadata: dict[str, Any]
    versions: list[FoundVersion] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundReport:
    """One report of metrics: `metrics` is the column of this name."""

    id: int
    group: str
    at: float
    steps_completed: int
    metrics: dict[str, Any]

    def records(self) -> Iterator[MetricsReported | BatchMetrics]:
        """Yield the averages, and the values of single batches, if there are some."""
        steps, group = self.steps_completed, self.group.replace(".", "_")
        if values := _sound(self.metrics.get(_VALUES.get(group, "avg_metrics")) or {}):
            yield MetricsReported(at=self.at, group=group, steps_completed=steps, metrics=values)
        batches = [_sound(each) for each in self.metrics.get("batch_metrics") or []]
        names = dict.fromkeys(name for batch in batches for name in batch)
        first = steps - len(batches) + 1
        if names and first > 0:
            values = {name: [batch.get(name) for batch in batches] for name in names}
            yield BatchMetrics(at=self.at, first=first, values=values)


class DeterminedSource(Protocol):
    """A master or a dump. What is repeated is in the same order each time."""

    @property
    def name(self) -> str:
        """The address or path, for users."""

    @property
    def cluster_id(self) -> str:
        """The identity of the master, the same in its dumps."""

    @property
    def is_live(self) -> bool:
        """Whether experiments may go on there."""

    def experiments(self) -> Iterator[FoundExperiment]:
        """Yield all experiments, the oldest first."""

    def code(self, experiment_id: int) -> bytes:
        """Return the context directory, as a tar.gz file; b"" if there is none."""

    def trials(self, experiment_id: int) -> Iterator[FoundTrial]:
        """Yield the trials of an experiment, the oldest first."""

    def reports(self, trial: FoundTrial, group: str) -> Iterator[FoundReport]:
        """Yield the metrics of a group, without those of batches that were trained again."""

    def checkpoints(self, experiment_id: int) -> Iterator[FoundCheckpoint]:
        """Yield the checkpoints of an experiment."""

    def log(self, trial: FoundTrial) -> Iterator[ImportedLine]:
        """Yield the log of a trial, the oldest line first."""

    def models(self) -> Iterator[FoundModel]:
        """Yield all models."""


def _sound(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the metrics that can be stored: not integers of more than 64 bits, for example."""
    return {name: value for name, value in values.items() if not find_value_problem(value)}


def seconds(text: str) -> float:
    """Return a time, as protobuf and PostgreSQL write it, in UTC seconds.

    >>> seconds("2023-05-01T12:00:00.123456789Z"), seconds("2023-05-01 12:00:00.5+00")
    (1682942400.123456, 1682942400.5)
    """
    return datetime.fromisoformat(text).timestamp()


def plain_state(state: str) -> str:
    """Return a state without the prefix that protobuf gives it.

    >>> plain_state("STATE_COMPLETED")
    'COMPLETED'
    """
    return state.removeprefix("STATE_")


def line_of(at: str, rank: Any, level: Any, text: str) -> ImportedLine:
    """Return a line of a log, with its level if that says something."""
    level = "" if level in (None, "INFO", "UNSPECIFIED") else f"{level}: "
    return ImportedLine(at=seconds(at), rank=int(rank or 0), text=f"{level}{text}".rstrip("\n"))


def steps_of(metadata: Mapping[str, Any]) -> int:
    """Return the batches of a checkpoint; Determined's early versions named it latest_batch."""
    return int(metadata.get("steps_completed", metadata.get("latest_batch", 0)) or 0)
