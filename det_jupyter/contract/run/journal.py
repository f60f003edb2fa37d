"""The records in a rank's journal: one JSON line each, appended and never changed.

The chief (rank 0) journals everything a user will see; other ranks journal only that their process
is up and why they failed. The agent ships journals by byte offset, the master stores rows and
offset in one transaction, so a record is stored exactly once, whatever is killed in between.

Every number has its bounds (bounds.py), which the Core API and every reader of a line enforce.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from det_jupyter.contract.values.bounds import (
    Amount,
    Count,
    Fraction,
    Metrics,
    PrintableText,
    ProcessId,
    Rank,
    Timestamp,
    check_values,
)
from det_jupyter.contract.values.json_numbers import json_ready
from det_jupyter.contract.values.lengths import Length


@dataclass(frozen=True, slots=True, kw_only=True)
class RankStarted:
    """The rank process is up; written by every rank before user code runs."""

    at: Timestamp
    pid: ProcessId
    backend: str  # nccl or gloo
    device: str  # torch's name of it: cpu, cuda:1
    kind: Literal["rank_started"] = "rank_started"


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstStep:
    """The first optimizer step of this run is done: `fraction` in 0..1 of the trial's length."""

    at: Timestamp
    steps_completed: Count
    fraction: Fraction | None = None  # not known of a function
    kind: Literal["first_step"] = "first_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMetrics:
    """Training metrics batch by batch, averaged over ranks, since the last such record.

    `values[name][i]` belongs to `steps_completed == first + i`.
    """

    at: Timestamp
    first: Count
    values: Annotated[dict[str, list[Any]], AfterValidator(check_values)]
    kind: Literal["batch_metrics"] = "batch_metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimings:
    """How long the parts of each batch took on the chief, in nanoseconds, where that is recorded.

    `durations_ns[part][i]` belongs to `steps_completed == first + i`; None: that batch has no such
    part. `records[i]` is how many records all ranks trained in it.
    """

    at: Timestamp
    first: Count
    records: list[Count]
    durations_ns: dict[str, list[Count | None]]
    kind: Literal["timings"] = "timings"


class PartTimes(NamedTuple):
    """How long one part took within an interval: in all, and of its single durations, seconds."""

    num: Count
    total: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """Where the time of a rank went since its last such record. Every rank writes its own.

    The names of `parts` are in measures.py; the totals of those that are no section sum to
    `seconds`. A part that did not occur is left out.

    Args:
        at: The end of the interval.
        first: `steps_completed` after the first batch of the interval.
        batches: Number of batches that ended in it; 0 if it was all validation, for example.
        samples: Records that all ranks together trained in it.
        counters: How much the user's own counters grew.
    """

    at: Timestamp
    first: Count
    batches: Count
    samples: Count
    seconds: Amount
    parts: dict[str, PartTimes]
    counters: dict[str, float] = field(default_factory=dict)
    kind: Literal["step_times"] = "step_times"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReported:
    """Metrics of one group ("training", "validation", or a name of the user's) at one step.

    `trained` says how much training these steps are in every unit: batches, records, epochs.
    """

    at: Timestamp
    group: str
    steps_completed: Count
    metrics: Metrics
    trained: dict[str, Amount] = field(default_factory=dict)
    kind: Literal["metrics"] = "metrics"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far the trial is: `fraction` in 0..1 of its length."""

    at: Timestamp
    steps_completed: Count
    fraction: Fraction
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """A checkpoint is complete on storage."""

    at: Timestamp
    uuid: str
    steps_completed: Count
    path: str
    size_bytes: Count
    metadata: Metrics
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeleted:
    """A rank has removed a checkpoint from storage, of its own trial or of another one."""

    at: Timestamp
    uuid: str
    kind: Literal["checkpoint_deleted"] = "checkpoint_deleted"


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetReached:
    """The trial has reached its target; its validation and checkpoint are done."""

    at: Timestamp
    steps_completed: Count
    target: Length
    kind: Literal["target_reached"] = "target_reached"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """A run ended as it should; of several ranks' records the chief's counts.

    completed: trained to its full length. preempted: saved its state and left, as it was asked.
    stopped: user code asked to stop. invalid_hp: the trial raised InvalidHP.
    """

    at: Timestamp
    reason: Literal["completed", "preempted", "stopped", "invalid_hp"]
    steps_completed: Count
    message: PrintableText = ""
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """A rank's error, as the user should read it. Any rank may write one.

    Args:
        error: Type and message in one line: `ValueError: shapes differ`.
        traceback: Formatted for people: the user's frames, cells named `Cell In[5]`.
        where: The innermost frame of the user's code: `Cell In[5], line 12, in train_batch`.
        final: Trying again cannot help (the error came before the first step, or is a mistake
            in the configuration).
        no_room: A disk was full: the trial is not at fault.
    """

    at: Timestamp
    rank: Rank
    error: PrintableText
    traceback: PrintableText
    where: PrintableText = ""
    final: bool = False
    no_room: bool = False
    kind: Literal["failure"] = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that the user should know, though the run goes on. Any rank may write one."""

    at: Timestamp
    rank: Rank
    text: PrintableText
    kind: Literal["notice"] = "notice"
    is_alarm: bool = False  # what is trained is probably of no use


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSaved:
    """This rank has recorded a profile that was ordered, or could not (messages/rank_orders.py).

    Args:
        first: Batches completed before the first that is in the trace.
        steps: Batches in it.
        path: The file; "": there is none.
        error: Why there is no file.
        note: Why it has fewer batches than were asked for.
    """

    at: Timestamp
    order_id: Count
    first: Count
    steps: Count
    path: PrintableText = ""
    size_bytes: Count = 0
    error: PrintableText = ""
    note: PrintableText = ""
    kind: Literal["trace"] = "trace"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeMade:
    """An order to change something took effect after so many batches, or was refused."""

    at: Timestamp
    order_id: Count
    steps_completed: Count
    text: PrintableText = ""
    error: PrintableText = ""
    kind: Literal["change"] = "change"


Record = Annotated[
    RankStarted
    | FirstStep
    | BatchMetrics
    | BatchTimings
    | StepTimes
    | MetricsReported
    | Progress
    | CheckpointSaved
    | CheckpointDeleted
    | TargetReached
    | RunEnded
    | RankFailure
    | Notice
    | TraceSaved
    | ChangeMade,
    Field(discriminator="kind"),
]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def to_line(record: Record) -> str:
    """Return the record as one line of JSON, line end included, in ASCII."""
    # long, or often
    if isinstance(record, (BatchMetrics, BatchTimings, MetricsReported, Progress)):
        try:
            line = to_json(record, inf_nan_mode="strings")
        except PydanticSerializationError:
            pass  # it has text that is no UTF-8
        else:
            if line.isascii():
                return line.decode() + "\n"
    data = {f.name: json_ready(getattr(record, f.name)) for f in fields(record)}
    return _ENCODER.encode(data) + "\n"


def parse_line(line: str | bytes) -> Record:
    """Return the record that `to_line` wrote.

    Raises:
        pydantic.ValidationError: The line is not a record of this version.
    """
    return _RECORD.validate_json(line)
