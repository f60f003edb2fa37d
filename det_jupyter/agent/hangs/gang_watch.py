"""Samples the ranks of gangs every second, and reports those that make no progress.

A report is a record in the journal of the first rank on this computer. So it is stored once, in
order with that rank's own records, even if a process is killed meanwhile. stall_watch.py decides
whether the ranks make progress.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psutil

from det_jupyter.agent.hangs.keeping import keep_files
from det_jupyter.agent.hangs.looking import (
    Looker,
    Seen,
    UserCode,
    evidence_lines,
    waits_for_loader,
)
from det_jupyter.agent.hangs.process_facts import OthersReader, ThreadFacts, state_of
from det_jupyter.agent.hangs.recorder import Recorded, pending
from det_jupyter.agent.hangs.stacks import collective_of
from det_jupyter.agent.hangs.stall_watch import (
    INTERVAL_S,
    Finding,
    Kind,
    OthersSample,
    RankSample,
    StallWatch,
)
from det_jupyter.agent.runs.active_run import LivingGang
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host.run_processes import processes_of
from det_jupyter.contract.host.rundir import append_to_journal
from det_jupyter.contract.messages import RankStall
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.evidence_page import EvidencePage, RankEvidence
from det_jupyter.contract.run.journal import RanksStalled, to_line

logger = logging.getLogger(__name__)

_OTHERS_AFTER_S = 1.5  # time without progress after which other threads and processes are read too
_FIND_S = 5.0  # how often processes of launchers are searched for


async def watch_gangs(
    living: Callable[[], Sequence[LivingGang]], news: Callable[[], object]
) -> None:
    """Watch all gangs; runs until cancelled.

    Args:
        living: Returns the gangs that have running ranks.
        news: Called when a report was written.
    """
    watched: dict[str, GangWatch] = {}
    while True:
        began = time.monotonic()
        gangs = {gang.run.id: gang for gang in living()}
        for run_id in watched.keys() - gangs.keys():
            watched.pop(run_id).close()
        for run_id, gang in gangs.items():
            if run_id not in watched and (made := _open(gang.run)) is not None:
                watched[run_id] = made
        # Ranks that wait for room on a disk make no progress, and that is reported already. Their
        # GangWatch is kept, because only it can withdraw the stall that it has reported.
        due = [
            (watch, gangs[run_id])
            for run_id, watch in watched.items()
            if not gangs[run_id].run.waits_for_room
        ]
        reported = await asyncio.gather(
            *(asyncio.to_thread(_step, watch, gang) for watch, gang in due)
        )
        if any(reported):
            news()
        await asyncio.sleep(max(INTERVAL_S / 2, began + INTERVAL_S - time.monotonic()))


def _open(run: AgentRun) -> GangWatch | None:
    after_s = float(_hang(run).get("after_s", 0))
    if not after_s or not os.path.isdir("/proc/self/task"):
        return None
    with suppress(OSError, ValueError):  # user code may have removed the folder
        return GangWatch(run, after_s)
    return None


def _hang(run: AgentRun) -> dict[str, Any]:
    # An agent parses no configuration: the master has checked it.
    return run.plan.config.get("hang") or {}


def _step(watch: GangWatch, gang: LivingGang) -> bool:
    if watch.is_broken:
        return False
    try:
        return watch.step(gang, time.monotonic())
    except OSError:  # a rank has ended, or user code has removed the folder
        return False
    except Exception:  # one gang must not end the watch of the others
        logger.exception("allocation=%s is not watched any more", gang.run.id)
        watch.is_broken = True
        return False


class GangWatch:
    """Watches those ranks of one run that are on this computer.

    Raises:
        OSError: Its folder has been removed.
    """

    def __init__(self, run: AgentRun, after_s: float) -> None:
        self._run = run
        self._control = ControlPage(run.dir.control)
        self._page = EvidencePage(run.dir.evidence)
        num_others = run.world_size - len(run.ranks)
        self._watch = StallWatch(
            after_s,
            first_batch=run.plan.steps_completed + 1,
            others_wait=num_others > 0,
        )
        self._looker = Looker(run, self._page)
        self._code = UserCode(run)
        self._finding = Finding()
        self._seen: dict[int, Seen] = {}
        folder = os.path.realpath(run.dir.path)
        self._others = {rank: OthersReader(folder) for rank in run.ranks}
        self._found: dict[int, int] = {}  # workers of a launcher, by rank
        self._found_at = float("-inf")
        self._is_reported = False
        self.is_broken = False

    def step(self, gang: LivingGang, now: float) -> bool:
        """Sample the ranks; return whether a report was written.

        Raises:
            OSError: A rank has ended.
        """
        processes = self._processes(gang, now)
        if processes is None:
            return False
        looked: dict[int, Seen] = {}
        if self._finding.wants_look:
            looked = self._looker.look(
                {rank: pid for rank, pid in processes.items() if state_of(pid) not in "Tt"}
            )
            self._seen |= looked
            now = time.monotonic()  # the time of the readings below: the look took up to 1.6 s
        facts = {rank: ThreadFacts.read(pid, pid) for rank, pid in processes.items()}
        spins = any(slot.kind == "cuda" for slot in self._run.plan.slots)
        samples = [
            self._sample(rank, pid, facts[rank], looked.get(rank), spins=spins)
            for rank, pid in sorted(processes.items())
        ]
        self._finding = finding = self._watch.step(samples, now)
        if (finding.stalled is not None) == self._is_reported:
            return False
        self._report(finding, processes)
        self._is_reported = finding.stalled is not None
        return True

    def _processes(self, gang: LivingGang, now: float) -> dict[int, int] | None:
        """Return the process of each rank here; None if one is not known."""
        found: dict[int, int] = {}
        for rank in self._run.ranks:
            pid = self._page.get(rank, "pid")
            if pid and _exists(pid):
                found[rank] = pid
            elif self._run.plan.entrypoint.per == "slot":
                if rank not in gang.pids:
                    return None
                found[rank] = gang.pids[rank]
            else:
                pid = self._worker(rank, now)
                if not pid:
                    return None
                found[rank] = pid
        return found

    def _worker(self, rank: int, now: float) -> int:
        """Return the process of a rank that a launcher has started; 0 if none is found."""
        if rank in self._found and _exists(self._found[rank]):
            return self._found[rank]
        if now - self._found_at > _FIND_S:
            self._found_at, self._found = now, {}
            for process in processes_of(self._run.dir, sorted(psutil.pids(), reverse=True)):
                with suppress(psutil.Error, OSError):
                    variables = process.environ()
                    named = variables.get("RANK", "")
                    if named.isdecimal() and "LOCAL_RANK" in variables:
                        self._found[int(named)] = process.pid
        return self._found.get(rank, 0)

    def _sample(
        self,
        rank: int,
        pid: int,
        facts: ThreadFacts,
        seen: Seen | None,
        *,
        spins: bool,
    ) -> RankSample:
        evidence = self._page.read(rank)
        others: OthersSample | None = None
        if self._finding.quiet_s > _OTHERS_AFTER_S:
            others = self._others[rank].read(pid, evidence.own_threads)
        batch = self._control.batch_of(rank)
        return RankSample(
            rank=rank,
            batch=0 if batch is None else batch + 1,
            collectives=evidence.counts,
            state=facts.state,
            cpu_s=facts.cpu_s,
            core_wait_s=facts.core_wait_s,
            wakes=facts.wakes,
            reads=facts.reads,
            others=others,
            beats=evidence.beats or None,
            spins=spins,
            look=None if seen is None else seen.look(self._code.contains, spins=spins),
        )

    def _report(self, finding: Finding, processes: dict[int, int]) -> None:
        at = time.time()
        ranks: list[RankStall] = []
        if finding.stalled is not None:
            ranks = [
                self._stall(rank, kind, processes[rank])
                for rank, kind in sorted(finding.stalled.items())
            ]
            if _hang(self._run).get("action") == "dump":
                folder = keep_files(self._run, processes)
                kept = [f"files are kept in {folder}"] if folder is not None else []
                first = ranks[0].model_copy(update={"evidence": [*ranks[0].evidence, *kept]})
                ranks = [first, *ranks[1:]]
        record = RanksStalled(at=at, since=max(0.0, at - finding.quiet_s), ranks=ranks)
        kinds = ", ".join(f"{rank.rank} {rank.kind} {rank.call}" for rank in ranks)
        logger.warning("allocation=%s stalled: %s", self._run.id, kinds or "no longer")
        append_to_journal(self._run.dir.journal(min(self._run.ranks)), to_line(record))

    def _stall(self, rank: int, kind: Kind, pid: int) -> RankStall:
        evidence, seen = self._page.read(rank), self._seen.get(rank)
        frames = seen.frames if seen is not None else []
        recorded = seen.recorded if seen is not None else []
        place = self._code.place(frames)
        collective, number = "", None
        if kind == "waits":
            collective = collective_of(frames)
            if (open_one := pending(recorded)) is not None:
                collective, number = open_one.text, open_one.number
            elif evidence.collective.partition(" ")[0] == collective:
                collective, number = evidence.collective, evidence.entered
        child = ""
        if kind == "still" and waits_for_loader(frames):
            child = self._looker.child_in(rank, self._others[rank].children, self._code)
        return RankStall(
            rank=rank,
            kind=kind,
            pid=pid,
            batch=self._control.batch_of(rank),
            collective=collective,
            number=number,
            call=place.call,
            place=place.place,
            child=child,
            evidence=evidence_lines(evidence, seen, seen.kernel if seen is not None else ""),
            begun=_begun(recorded, evidence),
            stack=self._code.stack(frames),
        )

    def close(self) -> None:
        """Unmap the pages."""
        self._control.close()
        self._page.close()


def _begun(recorded: Sequence[Recorded], evidence: RankEvidence) -> dict[int, str]:
    """Return the last collectives of the default group by number, as far as they are known."""
    if recorded:
        return {one.number: one.text for one in recorded if one.is_of_default_group}
    return {evidence.entered: evidence.collective} if evidence.collective else {}


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/task")
