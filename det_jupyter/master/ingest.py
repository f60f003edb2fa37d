"""Takes in what agents report. A batch is one transaction: rows, events and offsets together.

A chunk says which bytes of a file it is, the store knows how many it has:

    chunk begins where the stored bytes end      stored
    it begins later, or ends earlier             ignored: the answer's offset tells where to go on
    it straddles the end                         ignored too: the agent cuts anew from our offset

So each byte is stored once, whatever is sent again and whoever was killed in between. What the
machine does not want to know (of a run that is over, say) is skipped, and the offset moves on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_never

from pydantic import ValidationError

from det_jupyter.errors import DetError
from det_jupyter.master.events import (
    DevicesReported,
    Event,
    LogMatched,
    RecordArrived,
    ValidationReported,
)
from det_jupyter.master.machine import ToAgent
from det_jupyter.master.policies import Policy, is_settled, policies_of
from det_jupyter.master.work import Work
from det_jupyter.records import (
    BatchMetrics,
    BatchTimings,
    CheckpointSaved,
    FirstStep,
    MetricsReported,
    Notice,
    Progress,
    RankFailure,
    RankStarted,
    Record,
    RunEnded,
    TargetReached,
    parse_line,
    to_finite,
    to_line,
    to_number,
)
from det_jupyter.wire import (
    AgentReport,
    Chunk,
    CloseRun,
    DevicesSeen,
    GangExited,
    GangStarted,
    Offsets,
)

logger = logging.getLogger(__name__)

MAX_LINE = 8192  # characters of a printed line that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The rank that a chunk is from."""

    allocation_id: str
    experiment_id: int
    trial_id: int
    run: int
    rank: int
    metric: str  # the searcher's
    time_metric: str | None
    policies: tuple[Policy, ...]  # that say what to look for in what it prints


def take_in(work: Work, agent_id: str, reports: Iterable[AgentReport]) -> Offsets:
    """Store a batch of reports in order; return the offsets of every stream it mentions."""
    intake = _Intake(work, agent_id)
    for report in reports:
        match report:
            case Chunk():
                intake.take_chunk(report)
            case GangStarted():
                intake.take_start(report)
            case GangExited():
                intake.take_exit(report)
            case DevicesSeen():
                work.handle(DevicesReported(agent_id=agent_id, processes=report.processes))
            case _:
                assert_never(report)
    return intake.finish()


class _Intake:
    """A batch being stored."""

    def __init__(self, work: Work, agent_id: str) -> None:
        self._work = work
        self._agent_id = agent_id
        self._offsets: dict[tuple[str, str], int] = {}

    def finish(self) -> Offsets:
        self._work.store.set_offsets(self._offsets)
        answer = Offsets(offsets={})
        for (allocation_id, stream), num_bytes in self._offsets.items():
            answer.offsets.setdefault(allocation_id, {})[stream] = num_bytes
        return answer

    def take_start(self, report: GangStarted) -> None:
        if self._work.machine.state.find_allocation(report.allocation_id):
            self._handle(report)

    def take_exit(self, report: GangExited) -> None:
        if self._work.machine.state.find_allocation(report.allocation_id):
            self._handle(report)  # the machine has the run closed
        else:
            close = CloseRun(allocation_id=report.allocation_id)
            cause = self._work.machine.state.seq
            order = ToAgent(agent_id=self._agent_id, command=close, cause=cause)
            self._work.commands.append(order)

    def take_chunk(self, chunk: Chunk) -> None:
        key = (chunk.allocation_id, chunk.stream)
        if key not in self._offsets:
            self._offsets[key] = self._work.store.offset(*key)
        if chunk.offset != self._offsets[key]:
            return
        self._offsets[key] = chunk.offset + chunk.size_bytes
        source = self._source_of(chunk)
        if source is None:
            logger.info("skipped %s of allocation=%s", chunk.stream, chunk.allocation_id)
        elif chunk.stream.startswith("journal-"):
            self._take_journal(source, chunk.text)
        else:
            self._take_output(source, printed_lines(chunk.text))

    def _take_output(self, source: _Source, lines: list[str]) -> None:
        self._work.store.add_logs(
            self._work.now,
            trial_id=source.trial_id,
            run=source.run,
            rank=source.rank,
            lines=lines,
        )
        for policy in source.policies:
            found = self._work.machine.state.find_allocation(source.allocation_id)
            if found is None or is_settled(found[1], policy.action, source.rank):
                continue
            line = self._work.matcher.first_in(source.experiment_id, policy.pattern, lines)
            if line is not None:
                self._handle(_match(source, policy, line))

    def _source_of(self, chunk: Chunk) -> _Source | None:
        state = self._work.machine.state
        found = state.find_allocation(chunk.allocation_id)
        kind, _, rank = chunk.stream.partition("-")
        if found is None or kind not in ("journal", "output") or not rank.isdecimal():
            return None
        trial, allocation = found
        config = state.experiments[trial.experiment_id].config
        searcher = config["searcher"]
        return _Source(
            allocation_id=allocation.id,
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            run=allocation.run,
            rank=int(rank),
            metric=searcher["metric"],
            time_metric=searcher.get("time_metric"),
            policies=policies_of(config) if kind == "output" else (),
        )

    def _take_journal(self, source: _Source, text: str) -> None:
        for line in text.split("\n"):  # not splitlines: JSON strings may hold U+2028
            if not line:
                continue
            try:
                record = parse_line(line)
            except ValidationError as error:
                logger.warning(
                    "allocation=%s rank=%d: skipped a line that is no record: %.200s (%s)",
                    source.allocation_id,
                    source.rank,
                    line,
                    error.errors()[0]["msg"],
                )
                continue
            self._take_record(source, record)

    def _take_record(self, source: _Source, record: Record) -> None:
        match record:
            case BatchMetrics():
                num_batches = max(map(len, record.values.values()), default=0)
                self._add_metrics(source, record, record.first, num_batches)
            case BatchTimings():
                self._add_timings(source, record)
            case MetricsReported():
                self._add_metrics(source, record, record.steps_completed, 1)
                if record.group == "validation":
                    self._handle(_validation(source, record))
            case Progress():
                self._work.note_progress(source.trial_id, record.steps_completed, record.fraction)
            case FirstStep():
                self._work.note_progress(source.trial_id, record.steps_completed, record.fraction)
                self._handle(_arrival(source, record))
            case CheckpointSaved() | TargetReached() | RunEnded():
                self._work.note_progress(source.trial_id, record.steps_completed)
                self._handle(_arrival(source, record))
            case RankStarted() | RankFailure() | Notice():
                self._handle(_arrival(source, record))
            case _:
                assert_never(record)

    def _add_metrics(
        self, source: _Source, record: BatchMetrics | MetricsReported, first: int, num_steps: int
    ) -> None:
        if num_steps == 0:
            return
        steps = range(first, first + num_steps)
        text = to_line(record).rstrip("\n")
        self._work.store.add_metrics(record.at, source.experiment_id, source.trial_id, steps, text)
        self._work.note_progress(source.trial_id, steps[-1])

    def _add_timings(self, source: _Source, record: BatchTimings) -> None:
        if record.records:
            steps = range(record.first, record.first + len(record.records))
            text = to_line(record).rstrip("\n")
            self._work.store.add_timings(source.trial_id, steps, text)

    def _handle(self, event: Event) -> None:
        try:
            self._work.handle(event)
        except DetError as error:
            # The agent would send it again for ever; the machine is as it was.
            logger.warning("refused: %s: %s", event.kind, error)


def _validation(source: _Source, record: MetricsReported) -> ValidationReported:
    return ValidationReported(
        allocation_id=source.allocation_id,
        steps_completed=record.steps_completed,
        metric=to_number(record.metrics.get(source.metric)),
        time=_time(record, source.time_metric),
    )


def _time(record: MetricsReported, name: str | None) -> float | None:
    """Return how far the trial is by the time metric: its own, or a unit of training."""
    if name is None:
        return None
    return to_finite(record.metrics.get(name, record.trained.get(name)))


def _match(source: _Source, policy: Policy, line: str) -> LogMatched:
    return LogMatched(
        allocation_id=source.allocation_id,
        rank=source.rank,
        pattern=policy.pattern,
        action=policy.action,
        line=line,
    )


def _arrival(
    source: _Source,
    record: RankStarted
    | FirstStep
    | CheckpointSaved
    | TargetReached
    | RunEnded
    | RankFailure
    | Notice,
) -> RecordArrived:
    return RecordArrived(allocation_id=source.allocation_id, rank=source.rank, record=record)


def printed_lines(text: str) -> list[str]:
    """Return the lines of complete output as a terminal would leave them.

    What a progress bar overwrote (by a carriage return) is dropped, long lines are cut.
    """
    kept = (line.rstrip("\r").rpartition("\r")[2] for line in text.removesuffix("\n").split("\n"))
    return [line if len(line) <= MAX_LINE else line[:MAX_LINE] + "…" for line in kept]
