"""Sends the files of a run, and samples of its processes, until the run is over and stored.

It is over when its process closes the pipe, as it does after the block of `core.init`, or has
ended. How it ended is in the journals:

    a rank's journal ends with a failure     failed
    all end with a RunEnded                  ended
    else                                     a process was killed, or has called os._exit

When the chief has ended, the other ranks have 10 s to do so, too.
"""

from __future__ import annotations

import asyncio
import logging
import select
import sys
import time
from functools import partial
from pathlib import Path

from det_jupyter.agent.link.agent_service import BEAT_S
from det_jupyter.agent.link.outbox import ReportBatch, ReportOutbox
from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.memory_watch import MemoryWatch
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.runs.run_end import journal_records
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.agent.sampler.sampler import SampledAgent, Sampler
from det_jupyter.connection import Session
from det_jupyter.contract.host.clock_steps import booted_at
from det_jupyter.contract.host.processes import ProcessIdentity, host_name
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import (
    AgentReports,
    GangExited,
    GangPlan,
    GangStarted,
    Offsets,
    RankProcess,
    StartUnmanaged,
)
from det_jupyter.errors import DetError, NotFound

logger = logging.getLogger(__name__)

_POLL_S = 0.2
_RETRY_S = 2.0
_PATIENCE_S = 120.0  # how long it tries to send the rest of a run that is over
_ENDS = ("run_ended", "failure")  # kinds of the last record of a rank that has left its block
_PEERS_S = 10.0  # how long it waits for the other ranks when the chief has left
_BATCHES = 3  # empty ones, after which it is believed that the master stores nothing


class Follower:
    """The follower of one run.

    Args:
        session: The connection to the master.
        request: The request that has begun the run.
        plan: The answer.
        folder: The files of the run.
        is_live: Whether the run's process holds the other end of stdin.
    """

    def __init__(
        self,
        session: Session,
        request: StartUnmanaged,
        plan: GangPlan,
        folder: RunDir,
        *,
        is_live: bool,
    ) -> None:
        self.problem = ""  # why not all is stored
        self.news = asyncio.Event()
        self.memory = MemoryWatch()
        self._session = session
        self._processes = request.ranks
        self._left_at: float | None = None  # when the chief has ended; monotonic
        self._is_live = is_live
        self._agent_id = plan.homes[0]
        self._run = AgentRun(plan=plan, dir=folder, sockets=None)
        self._run.started = GangStarted(
            allocation_id=plan.allocation_id,
            at=request.started_at,
            ranks=request.ranks,
            note="started by hand",
        )
        self._box = SampleBox()
        self._outbox = ReportOutbox({self._run.id: self._run}, self._box)
        self._gpus = [slot.uuid for slot in plan.slots if slot.uuid]

    # What the sampler asks a runner.

    def living_gangs(self, agent_id: str) -> list[LivingGang]:
        """Return the run with its processes on this computer."""
        here = [rank for rank in self._processes if rank.host == host_name()]
        return [LivingGang(self._run, {rank.rank: rank.pid for rank in here})]

    def is_watched(self, agent_id: str) -> bool:
        """Return whether the computer is sampled on request."""
        return False

    # The loop.

    async def run(self) -> bool:
        """Send until the run is over and stored; return whether it is."""
        if not self._is_live:
            return await self._send_all()
        agent = SampledAgent(box=self._box, gpus=self._gpus)
        sampling = asyncio.create_task(Sampler({self._agent_id: agent}, runner=self).run())
        try:
            return await self._send_all()
        finally:
            sampling.cancel()

    async def _send_all(self) -> bool:
        sent_at, over_at, unmoved = 0.0, 0.0, 0
        while not over_at or time.monotonic() - over_at < _PATIENCE_S:
            if not over_at and self._is_over():
                over_at = time.monotonic()
            batch = self._outbox.next_batch(time.monotonic())
            # The answer to a file's first chunk says how much of it is stored, by another follower
            # too: no exit before that.
            is_known = unmoved > _BATCHES or not self._outbox.expects_offsets(batch)
            if over_at and is_known and self._run.exited is None:
                self._run.exited = self._exited()
                batch = self._outbox.next_batch(time.monotonic())
            if not batch.reports and time.monotonic() - sent_at < BEAT_S:
                await asyncio.sleep(_POLL_S)
                continue
            try:
                has_moved = await self._send(batch)
            except NotFound as error:  # it was killed there, or another run has taken its place
                self.problem = str(error)
                logger.warning("%s", error)
                return False
            except DetError as error:
                if not self.problem:
                    logger.warning("%s", error)
                self.problem = str(error)
                await asyncio.sleep(_RETRY_S)
                continue
            self.problem = ""
            sent_at = time.monotonic()
            if any(isinstance(report, GangExited) for report in batch.reports):
                return True
            unmoved = 0 if has_moved else unmoved + 1
            if unmoved > _BATCHES:
                await asyncio.sleep(_RETRY_S)
            elif batch.is_last and not over_at:
                await asyncio.sleep(_POLL_S)
        return False

    async def _send(self, batch: ReportBatch) -> bool:
        """Send a batch; return whether the master has stored anything of it."""
        reports = AgentReports(session="", booted_at=booted_at(), reports=batch.reports)
        path = f"/unmanaged/{self._run.id}/reports"
        body = reports.model_dump(mode="json")
        answer = await in_thread(partial(self._session.post, path, body, repeatable=True))
        self._outbox.note_sent(batch, time.monotonic())
        has_moved = self._outbox.set_offsets(Offsets.model_validate(answer).offsets)
        return has_moved or not self._outbox.expects_offsets(batch)

    def _is_over(self) -> bool:
        """Return whether the chief has closed the pipe or ended, and the other ranks too."""
        if not self._is_live:
            return True
        if self._left_at is None:
            is_closed = select.select([sys.stdin], [], [], 0)[0]  # the end, or a byte
            if not is_closed and _identity(self._processes[0]).is_alive:
                return False
            self._left_at = time.monotonic()
        is_late = time.monotonic() - self._left_at > _PEERS_S
        return is_late or not any(self._is_in_block(each) for each in self._processes[1:])

    def _is_in_block(self, process: RankProcess) -> bool:
        """Return whether a rank has not ended; True if it is unknown, on another computer."""
        kind, _ = _end_of(self._run.dir.journal(process.rank))
        return kind not in _ENDS and not _is_gone(process)

    def _exited(self) -> GangExited:
        ranks = self._run.ranks
        ends = {rank: _end_of(self._run.dir.journal(rank)) for rank in ranks}
        failed = [rank for rank, (kind, _) in ends.items() if kind == "failure"]
        killed = [
            process for process in self._processes
            if ends[process.rank][0] not in _ENDS and (not process.rank or _is_gone(process))
        ]  # fmt: skip
        last = max(at for _, at in ends.values()) or time.time()
        exited = GangExited(
            allocation_id=self._run.id,
            at=time.time() if self._is_live else last,
            exit_codes={rank: int(rank in failed) for rank in ranks},
            first_failed=failed[0] if failed else None,
        )
        if failed or not killed:
            return exited
        process = killed[0]
        return exited.model_copy(
            update={
                "exit_codes": dict.fromkeys(ranks),
                "error": f"process {process.pid} on {process.host} has not left the block of "
                "core.init: it was killed, or has called os._exit",
            }
        )


def _end_of(journal: Path) -> tuple[str, float]:
    """Return the kind and the time of the last record of a journal; ("", 0) without one."""
    kind, at = "", 0.0
    for record in journal_records(journal):
        kind, at = str(record.get("kind")), float(record.get("at", 0.0))
    return kind, at


def _is_gone(process: RankProcess) -> bool:
    """Return whether a process has ended; False if it is unknown, on another computer."""
    found = _identity(process)
    return found.is_here and not found.is_alive


def _identity(process: RankProcess) -> ProcessIdentity:
    return ProcessIdentity(process.pid, process.birth, process.host)
