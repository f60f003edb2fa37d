"""Stores the reports of agents. A batch is one transaction: rows, events and offsets together.

A chunk has the offset of its first byte in the file; the store has the number of stored bytes:

    the chunk begins at the number of stored bytes  it is stored
    else                                            it is ignored: the agent sends again from the
                                                    offset in the answer

So each byte is stored once, even if it is sent again, or a process was killed in between. Chunks
that have no use (of a run that is over, for example) are skipped, and the offset is advanced.

    a line that is no record, or out of bounds      set aside; the experiment ends if it cannot
                                                    continue without lines of this kind
    a record that raises, in the store or machine   set aside, and the experiment ends
    an error of the computer, such as a full disk   raises: nothing is stored, and it is sent again

So every report is acknowledged, and later ones are stored.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple, assert_never

from pydantic import BaseModel, ValidationError

from det_jupyter.contract.host.paths import console_file
from det_jupyter.contract.messages import (
    AgentReport,
    Chunk,
    CloseRun,
    DevicesSeen,
    DisksSeen,
    GangExited,
    GangStarted,
    Offsets,
    RanksSeen,
    RoomReported,
    SystemSampled,
    Unreadable,
)
from det_jupyter.contract.messages.disks import MASTERS
from det_jupyter.contract.run.output_lines import parse_printed
from det_jupyter.contract.values.bounds import Count
from det_jupyter.master.machine.machine import ToAgent
from det_jupyter.master.machine.model.allocations import Allocation, GangPart
from det_jupyter.master.machine.model.events import DevicesReported, LogMatched
from det_jupyter.master.machine.model.state import Trial
from det_jupyter.master.machine.rules.log_policies import is_applied, policies_of
from det_jupyter.master.service.agents.agent_clock import AgentClock, on_master_clock
from det_jupyter.master.service.committing.transaction import Transaction
from det_jupyter.master.service.reports.journal_records import JournalWriter, take_journal
from det_jupyter.master.service.reports.run_verdicts import RunVerdicts

logger = logging.getLogger(__name__)

_STREAM = re.compile(r"(journal|output)-([0-9]{1,7})")  # kind and rank


class _ChunkPosition(BaseModel):
    """The fields of an unreadable chunk that determine the next offset."""

    allocation_id: str
    stream: str
    offset: Count
    size_bytes: Count


class _Carried(NamedTuple):
    """A run, a part of which is on the agent that sends a report."""

    trial: Trial
    allocation: Allocation
    part: GangPart


def stored_offsets(transaction: Transaction, agent_id: str, allocation_id: str) -> dict[str, int]:
    """Return how many bytes are stored of each file of a run on an agent."""
    state = transaction.machine.state
    offsets = transaction.store.offsets_of(allocation_id)
    found = state.find_allocation(allocation_id)
    part = state.part_on(found[1], agent_id) if found is not None else None
    if part is None:  # the run is over: all chunks that the agent sends are skipped
        return offsets
    return {name: size for name, size in offsets.items() if rank_of(name) in part.ranks}


def rank_of(stream: str) -> int | None:
    """Return the rank of a stream, which is one of its files; None if the name is not valid.

    >>> rank_of("journal-3"), rank_of("other")
    (3, None)
    """
    found = _STREAM.fullmatch(stream)
    return int(found[2]) if found else None


def store_reports(
    transaction: Transaction,
    agent_id: str,
    reports: Iterable[AgentReport],
    run_verdicts: RunVerdicts,
    clock: AgentClock,
) -> Offsets:
    """Store a batch of reports in order; return the new offset of each of its streams.

    Args:
        transaction: The transaction in which they are stored.
        agent_id: The agent that has sent them.
        reports: The reports.
        run_verdicts: Computes verdicts on runs from the reports.
        clock: The clock of the agent's computer; times are converted to this computer's.
    """
    intake = _Intake(transaction, agent_id, run_verdicts, clock)
    for report in reports:
        intake.take(report)
    return intake.finish()


class _Intake:
    """Stores one batch."""

    def __init__(
        self,
        transaction: Transaction,
        agent_id: str,
        run_verdicts: RunVerdicts,
        clock: AgentClock,
    ) -> None:
        self._to_master = clock.at(transaction.now)
        self._transaction = transaction
        self._run_verdicts = run_verdicts
        self._agent_id = agent_id
        self._offsets: dict[tuple[str, str], int] = {}
        # By stream of another agent: the offset after its skipped chunks.
        self._foreign: dict[tuple[str, str], int] = {}

    @property
    def _is_remote(self) -> bool:
        agent = self._transaction.machine.state.agents.get(self._agent_id)
        return agent is not None and agent.is_remote

    def finish(self) -> Offsets:
        self._transaction.store.set_offsets(self._offsets)
        answer = Offsets(offsets={})
        for (allocation_id, stream), num_bytes in (self._offsets | self._foreign).items():
            answer.offsets.setdefault(allocation_id, {})[stream] = num_bytes
        return answer

    def take(self, report: AgentReport) -> None:
        allocation_id = getattr(report, "allocation_id", "")
        found = self._transaction.machine.state.find_allocation(allocation_id)
        stream = report.stream if isinstance(report, Chunk) else None
        with self._transaction.setting_aside(
            f"{stream or report.kind} of run {allocation_id}",
            content=report,
            experiment_id=found[0].experiment_id if found else None,
            is_fatal=not isinstance(report, RanksSeen)
            and (stream is None or stream.startswith("journal-")),
        ):
            self._take(report)

    def _take(self, report: AgentReport) -> None:
        report = on_master_clock(report, self._to_master)
        match report:
            case Chunk():
                self._take_chunk(report)
            case GangStarted():
                self._take_start(report)
            case RanksSeen():
                self._take_places(report)
            case GangExited():
                self._take_exit(report)
            case DevicesSeen():
                self._transaction.take(
                    DevicesReported(
                        agent_id=self._agent_id,
                        processes=report.processes,
                        lost=report.lost,
                        is_shared=report.is_shared,
                    )
                )
            case RoomReported():
                if (carried := self._carried(report.allocation_id)) is not None:
                    self._transaction.take(self._placed(report, carried))
                else:
                    self._skip("a wait for room", report.allocation_id)
            case DisksSeen():
                return  # the service handles these (service/disks.py)
            case SystemSampled():
                self._transaction.store.series.add_samples(
                    self._transaction.now, self._agent_id, report, self._trial_of
                )
                self._run_verdicts.add_samples(self._agent_id, report.samples)
            case Unreadable():
                self._take_unreadable(report)
            case _:
                assert_never(report)

    def _placed(self, report: RoomReported, carried: _Carried) -> RoomReported:
        """Return a report with the storage's folder, and the agent if the disk is there."""
        if (wait := report.wait) is None:
            return report
        is_elsewhere = self._is_remote and wait.folder != MASTERS and wait.writing != "uploads"
        update = {"agent_id": self._agent_id} if is_elsewhere else {}
        experiment = self._transaction.machine.state.experiment(carried.trial.experiment_id)
        if wait.writing == "checkpoint" and experiment.location and not experiment.bucket:
            update |= {"folder": experiment.location}
        return report.model_copy(update={"wait": wait.model_copy(update=update)})

    def _carried(self, allocation_id: str) -> _Carried | None:
        """Return the sender's part of a run; None if the run is unknown, over or elsewhere."""
        state = self._transaction.machine.state
        if (found := state.find_allocation(allocation_id)) is None:
            return None
        trial, allocation = found
        part = state.part_on(allocation, self._agent_id)
        return None if part is None else _Carried(trial, allocation, part)

    def _trial_of(self, allocation_id: str, rank: int) -> tuple[int, int] | None:
        """Return trial and run of a rank; None if the rank does not run on the sending agent."""
        carried = self._carried(allocation_id)
        if carried is None or rank not in carried.part.ranks:
            return None
        return carried.trial.id, carried.allocation.run

    def _take_start(self, report: GangStarted) -> None:
        ranks = {process.rank for process in report.ranks}
        carried = self._carried(report.allocation_id)
        if carried is None or not ranks <= set(carried.part.ranks):
            self._skip(f"the start of ranks {sorted(ranks)}", report.allocation_id)
            return
        allocation = carried.allocation
        devices: dict[str, list[str]] = {agent_id: [] for agent_id in allocation.agent_ids}
        for agent_id, slot in zip(allocation.agent_ids, allocation.slots, strict=False):
            devices[agent_id] += [slot.uuid] if slot.uuid else []
        series = self._transaction.store.series
        series.begin_run(carried.trial.id, allocation.run, report.at, devices)
        self._transaction.take(self._reachable_from_here(report))

    def _reachable_from_here(self, report: GangStarted) -> GangStarted:
        """Replace the connection files of ranks on another computer by those on this one."""
        if not self._is_remote:
            return report
        ranks = [
            process.model_copy(
                update={
                    "is_remote": True,
                    "connection_file": str(console_file(report.allocation_id, process.rank)),
                }
            )
            for process in report.ranks
        ]
        return report.model_copy(update={"ranks": ranks})

    def _take_places(self, report: RanksSeen) -> None:
        if (carried := self._carried(report.allocation_id)) is not None:
            ranks = carried.part.ranks
            own = {rank: place for rank, place in report.places.items() if rank in ranks}
            self._transaction.take(report.model_copy(update={"places": own}))

    def _take_exit(self, report: GangExited) -> None:
        carried = self._carried(report.allocation_id)
        if carried is None:
            close = CloseRun(allocation_id=report.allocation_id)
            cause = self._transaction.machine.state.seq
            order = ToAgent(agent_id=self._agent_id, command=close, cause=cause)
            self._transaction.commands.append(order)
            return
        trial, allocation, part = carried
        if allocation.living_parts == [part]:
            self._transaction.store.series.end_run(trial.id, allocation.run, report.at)
        own = {rank: code for rank, code in report.exit_codes.items() if rank in part.ranks}
        codes = own or dict.fromkeys(part.ranks)
        # When all parts have exited, the machine orders the agents to close the run.
        self._transaction.take(report.model_copy(update={"exit_codes": codes}))

    def _take_chunk(self, chunk: Chunk) -> None:
        key = (chunk.allocation_id, chunk.stream)
        if self._is_foreign(chunk):
            self._skip(chunk.stream, chunk.allocation_id)
            self._foreign[key] = chunk.offset + chunk.size_bytes  # so that it is not sent again
            return
        if chunk.offset != self._offset(key):
            return
        self._offsets[key] = chunk.offset + chunk.size_bytes
        source = self._source_of(chunk)
        if source is None:
            logger.info("skipped %s of allocation=%s", chunk.stream, chunk.allocation_id)
        elif chunk.stream.startswith("journal-"):
            take_journal(
                self._transaction, self._run_verdicts, source, chunk.text, self._to_master
            )
        else:
            self._take_output(source, chunk.text)

    def _is_foreign(self, chunk: Chunk) -> bool:
        """Return whether a chunk is of a rank that is not on the agent."""
        found = self._transaction.machine.state.find_allocation(chunk.allocation_id)
        rank = rank_of(chunk.stream)
        if found is None or rank is None or rank >= len(found[1].slots):
            return False
        return self._trial_of(chunk.allocation_id, rank) is None

    def _skip(self, what: str, allocation_id: str) -> None:
        logger.warning(
            "agent %s has sent %s of allocation=%s, which is not there: skipped",
            self._agent_id, what, allocation_id,
        )  # fmt: skip

    def _offset(self, key: tuple[str, str]) -> int:
        if key not in self._offsets:
            self._offsets[key] = self._transaction.store.offset(*key)
        return self._offsets[key]

    def _take_unreadable(self, report: Unreadable) -> None:
        """Set aside a report that is not valid; if it is a chunk of a file, skip the chunk."""
        content = report.content if isinstance(report.content, dict) else {}
        allocation_id = str(content.get("allocation_id"))
        carried = self._carried(allocation_id)
        if carried is None and self._transaction.machine.state.find_allocation(allocation_id):
            content = {}  # the offset of another agent's run must not change
        with suppress(ValidationError):
            chunk = _ChunkPosition.model_validate(content)
            key = (chunk.allocation_id, chunk.stream)
            if chunk.offset == self._offset(key):
                self._offsets[key] += chunk.size_bytes
        self._transaction.set_aside(
            f"a report of agent {self._agent_id} ({report.problem})",
            content=repr(report.content),
            error=ValueError(report.problem),
            experiment_id=carried.trial.experiment_id if carried else None,
        )

    def _take_output(self, source: JournalWriter, text: str) -> None:
        logs = self._transaction.store.logs
        place = {"trial_id": source.trial_id, "run": source.run, "rank": source.rank}
        printed = parse_printed(text, logs.open_line(**place))
        logs.add(self._transaction.now, printed=printed, agent=source.agent, **place)
        for policy in source.policies:
            found = self._transaction.machine.state.find_allocation(source.allocation_id)
            if found is None or is_applied(found[1], policy.action, source.rank):
                continue
            line = self._transaction.matcher.first_in(
                source.experiment_id, policy.pattern, printed.lines
            )
            if line is not None:
                self._transaction.take(
                    LogMatched(
                        allocation_id=source.allocation_id,
                        rank=source.rank,
                        pattern=policy.pattern,
                        action=policy.action,
                        line=line,
                    )
                )

    def _source_of(self, chunk: Chunk) -> JournalWriter | None:
        state = self._transaction.machine.state
        found = state.find_allocation(chunk.allocation_id)
        stream = _STREAM.fullmatch(chunk.stream)
        if found is None or stream is None:
            return None
        trial, allocation = found
        kind, rank = stream[1], int(stream[2])
        if rank >= len(allocation.slots):
            return None
        settings = state.experiments[trial.experiment_id].settings
        return JournalWriter(
            allocation_id=allocation.id,
            experiment_id=trial.experiment_id,
            trial_id=trial.id,
            run=allocation.run,
            rank=rank,
            agent=allocation.agent_ids[rank],
            metric=settings.searcher.metric,
            time_metric=getattr(settings.searcher, "time_metric", None),
            policies=policies_of(settings) if kind == "output" else (),
        )
