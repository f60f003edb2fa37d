"""The records in a rank's journal: one JSON line each, appended and never changed.

The chief (rank 0) writes the records of the trial; each rank writes those of its own process
(RankStarted, StepTimes, RankFailure, Notice, TraceSaved), and the agent RanksStalled. The agent
sends journals by byte offset, and the master stores rows and offset in one transaction, so a
record is stored exactly once, whichever process is killed in between.

Numbers have bounds (bounds.py), which the Core API and every reader of a line enforce.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, TypeAdapter
from pydantic_core import PydanticSerializationError, to_json

from det_jupyter.contract.messages.hangs import RankStall
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
from det_jupyter.contract.values.device_memory import DeviceShortage
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
    """The first optimizer step of this run, at `fraction` (0 to 1) of the trial's length."""

    at: Timestamp
    steps_completed: Count
    fraction: Fraction | None = None  # None: the trial is a function
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

    @property
    def steps(self) -> range:
        """The steps that have values."""
        return range(self.first, self.first + max(map(len, self.values.values()), default=0))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimings:
    """How long the parts of each batch took on the chief, in nanoseconds.

    `durations_ns[part][i]` belongs to `steps_completed == first + i`; None: that batch has no such
    part. `records[i]` is the number of records that all ranks together trained in it.
    """

    at: Timestamp
    first: Count
    records: list[Count]
    durations_ns: dict[str, list[Count | None]]
    kind: Literal["timings"] = "timings"

    @property
    def steps(self) -> range:
        """The steps that its batches completed."""
        return range(self.first, self.first + len(self.records))


class PartTimes(NamedTuple):
    """The durations of one part within an interval, in seconds: number, sum, and distribution."""

    num: Count
    total: float
    p50: float
    p95: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTimes:
    """How the time of a rank since its last such record is divided. Every rank writes its own.

    The names of `parts` are in measures.py; the totals of all but the user's sections sum to
    `seconds`. A part that did not occur is absent.

    Args:
        at: The end of the interval.
        first: `steps_completed` after the first batch of the interval.
        batches: Number of batches that ended in it; 0 during a validation, for example.
        samples: Number of records that all ranks together trained in it.
        counters: Increments of the user's counters.
        own_loop: The loop is the user's or a trainer's, and a batch a step of its optimizer.
    """

    at: Timestamp
    first: Count
    batches: Count
    samples: Count
    seconds: Amount
    parts: dict[str, PartTimes]
    counters: dict[str, float] = field(default_factory=dict)
    own_loop: bool = False
    kind: Literal["step_times"] = "step_times"


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsReported:
    """Metrics of one group ("training", "validation", or a name of the user's) at one step.

    `trained` is the amount of training up to this step in each unit: batches, records, epochs.
    """

    at: Timestamp
    group: str
    steps_completed: Count
    metrics: Metrics
    trained: dict[str, Amount] = field(default_factory=dict)
    kind: Literal["metrics"] = "metrics"

    @property
    def steps(self) -> range:
        """The one step that has values."""
        return range(self.steps_completed, self.steps_completed + 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The trial has trained `fraction` (0 to 1) of its length."""

    at: Timestamp
    steps_completed: Count
    fraction: Fraction
    kind: Literal["progress"] = "progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved:
    """All files of a checkpoint are in its storage."""

    at: Timestamp
    uuid: str
    steps_completed: Count
    path: str
    size_bytes: Count
    metadata: Metrics
    on_request: bool = False  # only because the run was requested to leave
    kind: Literal["checkpoint"] = "checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastStepSaved:
    """Another rank was killed, and a checkpoint has the state of all ranks at their last step.

    Written after the CheckpointSaved, if that is not one of before, by the rank that has saved it.

    Args:
        steps_completed: That of the checkpoint.
        repeats: Number of batches that were begun after it.
    """

    at: Timestamp
    steps_completed: Count
    repeats: Count
    kind: Literal["last_step"] = "last_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointShare:
    """Files of a checkpoint that ranks on several computers have written without a shared folder.

    For the agent, which uploads them: it is not sent to the master. Written by one rank of each
    computer that has files of the checkpoint; by the chief just before the CheckpointSaved.

    Args:
        share: Which of these computers it is; 0 is the chief's.
        num_shares: How many there are.
        path: The folder with its files.
    """

    at: Timestamp
    uuid: str
    share: Count
    num_shares: Count
    path: str
    kind: Literal["checkpoint_share"] = "checkpoint_share"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDeleted:
    """A rank has deleted a checkpoint, of its own or another trial, from its storage."""

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
    """A run ended without an error. If several ranks write one, the chief's counts.

    completed: trained to its full length. preempted: saved its state because of `preempt`.
    stopped: user code requested it. invalid_hp: the trial raised InvalidHP.
    """

    at: Timestamp
    reason: Literal["completed", "preempted", "stopped", "invalid_hp"]
    steps_completed: Count
    message: PrintableText = ""
    kind: Literal["run_ended"] = "run_ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """A rank's error, formatted for the user. Any rank may write one.

    Args:
        error: Type and message in one line: `ValueError: shapes differ`.
        traceback: Formatted, with the user's frames only, cells named `Cell In[5]`.
        where: The innermost frame of the user's code: `Cell In[5], line 12, in train_batch`.
        final: A restart cannot help (the error came before the first step, or is a mistake in
            the configuration).
        no_room: A disk was full: the trial is not at fault.
        full_folder: A folder on that disk; "": unknown.
        is_echo: Follows from the failure or end of another rank ("connection closed by peer").
        lost_pid: The process of this rank whose end is the cause, such as a loader worker;
            0: it is not known which.
        by_others: Another process may have caused it, so that a repeat may be a coincidence.
        device_memory: What held the GPU's memory, if there was too little of it.
    """

    at: Timestamp
    rank: Rank
    error: PrintableText
    traceback: PrintableText
    where: PrintableText = ""
    final: bool = False
    no_room: bool = False
    full_folder: PrintableText = ""
    is_echo: bool = False
    lost_pid: ProcessId | None = None
    by_others: bool = False
    device_memory: DeviceShortage | None = None
    kind: Literal["failure"] = "failure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """A notice for the user; the run continues. Any rank may write one.

    Args:
        is_alarm: The training is probably useless.
        trainer: The trainer that was called without DetCallback, if the notice is about that
            (plain_trainers.py).
    """

    at: Timestamp
    rank: Rank
    text: PrintableText
    kind: Literal["notice"] = "notice"
    is_alarm: bool = False
    trainer: PrintableText = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RanksStalled:
    """The ranks of this computer make no progress; if `ranks` is empty, they make progress again.

    Written by the agent into the journal of the first of them.

    Args:
        since: Since when nothing has moved.
        ranks: All ranks of the gang that are on this agent process.
    """

    at: Timestamp
    since: Timestamp
    ranks: list[RankStall] = field(default_factory=list)
    kind: Literal["stalled"] = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSaved:
    """This rank has recorded a profile as ordered (messages/rank_orders.py), or failed to.

    Args:
        first: Batches completed before the first one in the trace.
        steps: Number of batches in it.
        path: The file; "": there is none.
        error: Why there is no file.
        note: Why it has fewer batches than were ordered.
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
    """A change order took effect after `steps_completed` batches, or was refused."""

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
    | LastStepSaved
    | CheckpointShare
    | CheckpointDeleted
    | TargetReached
    | RunEnded
    | RankFailure
    | Notice
    | RanksStalled
    | TraceSaved
    | ChangeMade,
    Field(discriminator="kind"),
]
_RECORD: TypeAdapter[Record] = TypeAdapter(Record)
_ENCODER = json.JSONEncoder(separators=(",", ":"))


def to_line(record: Record) -> str:
    """Return the record as one line of JSON, line end included, in ASCII."""
    # The C encoder, for records that are long or frequent.
    if isinstance(record, (BatchMetrics, BatchTimings, MetricsReported, Progress)):
        try:
            line = to_json(record, inf_nan_mode="strings")
        except PydanticSerializationError:
            pass  # the record contains text that UTF-8 cannot encode
        else:
            if line.isascii():
                return line.decode() + "\n"
    data = {f.name: json_ready(getattr(record, f.name)) for f in fields(record)}
    if isinstance(record, RanksStalled):
        data["ranks"] = [json_ready(rank.model_dump()) for rank in record.ranks]
    return _ENCODER.encode(data) + "\n"


def parse_line(line: str | bytes) -> Record:
    """Return the record that `to_line` wrote.

    Raises:
        pydantic.ValidationError: The line is not a record of this version.
    """
    return _RECORD.validate_json(line)
