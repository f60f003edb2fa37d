"""What Determined has stored, in the same form from a master (master.py) and a dump (dump.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from datetime import UTC, datetime
from typing import Annotated, Any, Protocol

from pydantic import Field, ValidationError
from pydantic.dataclasses import dataclass

from det_jupyter.contract.messages import ImportedLine
from det_jupyter.contract.messages.requests import MAX_IMPORTED_LINE
from det_jupyter.contract.run.journal import BatchMetrics, MetricsReported
from det_jupyter.contract.values.bounds import Count, Timestamp, find_value_problem
from det_jupyter.errors import DetError

_VALUES = {"validation": "validation_metrics"}  # the key of the averages; else avg_metrics
# What a value of the wrong kind raises where it is read.
_UNSOUND = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Unsound(DetError):
    """A thing that was read is not of the form that Determined stores, and is left out."""

    def __init__(self, error: Exception) -> None:
        super().__init__(_text_of(error))


@contextmanager
def refusing() -> Iterator[None]:
    """Within the block, raise Unsound for a value that is of the wrong kind."""
    try:
        yield
    except _UNSOUND as error:
        raise Unsound(error) from None


def _text_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        found = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        return "; ".join(found)
    return repr(error)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundExperiment:
    """An experiment; times are UTC seconds, and `ended_at` is None if it is not over."""

    id: int
    config: dict[str, Any]
    state: str
    notes: str
    is_archived: bool
    created_at: Timestamp
    ended_at: Timestamp | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTrial:
    """A trial; `groups` are those of its metrics, `task_ids` those that its log is stored by."""

    id: int
    state: str
    hparams: dict[str, Any]
    restarts: Count
    steps_completed: Count
    created_at: Timestamp
    ended_at: Timestamp | None
    groups: tuple[str, ...]
    task_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A checkpoint of a trial; its files stay where they are."""

    uuid: Annotated[str, Field(pattern=r"^[\w-]{1,200}$")]  # the name of a folder
    trial_id: int
    state: str
    steps_completed: Count
    size_bytes: Count
    created_at: Timestamp


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
    at: Timestamp
    steps_completed: Count
    metrics: dict[str, Any]

    def records(self) -> Iterator[MetricsReported | BatchMetrics]:
        """Yield the averages, and the values of single batches, if there are some."""
        steps, group = self.steps_completed, self.group.replace(".", "_")
        if values := _sound(self.metrics.get(_VALUES.get(group, "avg_metrics"))):
            yield MetricsReported(at=self.at, group=group, steps_completed=steps, metrics=values)
        found = self.metrics.get("batch_metrics")
        batches = [_sound(each) for each in found] if isinstance(found, list) else []
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


def _sound(values: Any) -> dict[str, Any]:
    """Return the metrics that can be stored: not integers of more than 64 bits, for example."""
    if not isinstance(values, dict):
        return {}
    return {name: value for name, value in values.items() if not find_value_problem(value)}


def seconds(text: str) -> float:
    """Return a time, as protobuf and PostgreSQL write it, in UTC seconds.

    >>> seconds("2023-05-01T12:00:00.123456789Z"), seconds("2023-05-01 12:00:00.5+00")
    (1682942400.123456, 1682942400.5)
    """
    at = datetime.fromisoformat(text)
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def plain_state(state: str) -> str:
    """Return a state without the prefix that protobuf gives it.

    >>> plain_state("STATE_COMPLETED")
    'COMPLETED'
    """
    return state.removeprefix("STATE_")


def line_of(at: str, rank: Any, level: Any, text: str) -> ImportedLine:
    """Return a line of a log, with its level if that says something."""
    level = "" if level in (None, "INFO", "UNSPECIFIED") else f"{level}: "
    text = f"{level}{text}".rstrip("\n")[:MAX_IMPORTED_LINE]
    return ImportedLine(at=seconds(at), rank=max(0, int(rank or 0)), text=text)


def steps_of(metadata: dict[str, Any]) -> int:
    """Return the batches of a checkpoint; Determined's early versions named it latest_batch."""
    return int(metadata.get("steps_completed", metadata.get("latest_batch", 0)) or 0)
