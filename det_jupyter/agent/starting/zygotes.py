"""Connections to the fork servers (zygotes): requests for gangs, and exits of ranks.

There is one fork server per interpreter, started when it is first needed and again after it
exited. The messages and their order are in messages/gang_specs.py.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass

from pydantic import TypeAdapter

from det_jupyter._version import __version__
from det_jupyter.agent.starting.rank_processes import (
    RankExit,
    RankProcesses,
    StartFailed,
    exit_code_of,
    kill_group,
    until_gone,
)
from det_jupyter.agent.starting.zygote_process import ZygoteProcess, start_zygote
from det_jupyter.contract.messages import (
    PROTOCOL,
    ForkGang,
    ForkRefused,
    GangForked,
    Loss,
    RankExited,
    RankSpec,
    ZygoteFailed,
    ZygoteReady,
    ZygoteReport,
)
from det_jupyter.errors import LaunchError

logger = logging.getLogger(__name__)

_REPORT: TypeAdapter[ZygoteReport] = TypeAdapter(ZygoteReport)
_PATIENCE_S = 5  # seconds; forking a gang takes milliseconds
_CHECK_S = 1.0  # how often the agent itself checks for ranks that have ended
_MAX_ZYGOTES = 3  # each has torch in memory; more are closed when they are idle


@dataclass(frozen=True, slots=True)
class _Fork:
    """A request to fork these ranks, and the future of its answer."""

    ranks: list[int]
    answer: asyncio.Future[RankProcesses | ForkRefused]


class Zygote:
    """One fork server. Made by `Zygote.connect`."""

    def __init__(
        self,
        process: ZygoteProcess,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self.python = process.python
        self.pid = process.process.pid
        self.is_alive = True
        self._process = process
        self._reader = reader
        self._writer = writer
        self._ready: asyncio.Future[ZygoteReady] = asyncio.get_running_loop().create_future()
        self._ready.add_done_callback(self._log_readiness)
        self._is_closing = False
        self._forks: dict[str, _Fork] = {}
        self._ranks: dict[int, tuple[int, asyncio.Queue[RankExit]]] = {}  # by pid
        self._is_silent = False  # whether it left a request unanswered and has sent nothing since
        self._listening = asyncio.create_task(self._listen())
        self._watching = asyncio.create_task(self._watch())

    @classmethod
    async def connect(cls, process: ZygoteProcess) -> Zygote:
        """Open the connection to a fork server that was started."""
        reader, writer = await asyncio.open_unix_connection(sock=process.connection)
        return cls(process, reader, writer)

    @property
    def is_idle(self) -> bool:
        """Whether the process is ready, has no ranks, and no request is open."""
        return self._ready.done() and not self._ranks and not self._forks

    @property
    def problem(self) -> str:
        """Why the process refuses every request now; empty if it does not."""
        if not self.is_alive:
            return "the zygote died"
        if self._is_silent:
            return f"the zygote (process {self.pid}) has not answered for {_PATIENCE_S} s"
        return ""

    async def ready(self) -> ZygoteReady:
        """Wait until it has imported everything.

        Raises:
            LaunchError: Its interpreter cannot run ranks.
            StartFailed: It was killed while it imported torch.
        """
        # Several gangs may wait, and one that gives up must not cancel the others.
        return await asyncio.shield(self._ready)

    async def fork_gang(self, specs: list[RankSpec]) -> RankProcesses | ForkRefused:
        """Fork all ranks or none. Called only when the fork server is ready."""
        allocation_id = specs[0].plan.allocation_id
        if self.problem:
            return ForkRefused(allocation_id=allocation_id, reason=self.problem)
        answer: asyncio.Future[RankProcesses | ForkRefused]
        answer = asyncio.get_running_loop().create_future()
        self._forks[allocation_id] = _Fork([spec.place.rank for spec in specs], answer)
        request = ForkGang.of(specs, until=time.monotonic() + _PATIENCE_S)
        self._writer.write(request.model_dump_json().encode() + b"\n")
        # A second at a time: if this process was stopped too, the answer may have arrived
        # meanwhile.
        for _ in range(_PATIENCE_S):
            await asyncio.wait({answer}, timeout=1.0)
            if answer.done():
                return answer.result()
        del self._forks[allocation_id]
        self._is_silent = True
        return ForkRefused(allocation_id=allocation_id, reason=self.problem)

    async def close(self) -> None:
        """End the fork server and its ranks."""
        self._is_closing = True
        self._writer.close()
        await self._listening

    async def _listen(self) -> None:
        try:
            async for line in self._reader:
                self._is_silent = False
                self._on_report(_REPORT.validate_json(line))
        except ConnectionError:
            pass  # the fork server exited during a write
        finally:
            self.is_alive = False
            self._watching.cancel()
            self._writer.close()
            self._fail_requests()
            await self._end_ranks()

    def _on_report(self, report: ZygoteReport) -> None:
        match report:
            case ZygoteReady() if report.protocol != PROTOCOL:
                self._set_not_ready(
                    f"it has det_jupyter {report.version} (protocol {report.protocol}), the agent "
                    f"is {__version__} (protocol {PROTOCOL})"
                )
            case ZygoteReady():
                self._ready.set_result(report)
            case ZygoteFailed():
                self._set_not_ready(report.reason)
            case GangForked():
                self._on_forked(report)
            case ForkRefused():
                if (fork := self._forks.pop(report.allocation_id, None)) is not None:
                    fork.answer.set_result(report)
            case RankExited():
                self._on_exited(report.pid, report.exit_code)

    def _on_exited(self, pid: int, exit_code: int) -> None:
        forked = self._ranks.pop(pid, None)  # None: `_watch` has reported its exit
        if forked is not None:
            rank, exits = forked
            exits.put_nowait(RankExit(rank, exit_code))

    async def _watch(self) -> None:
        """Report exits of ranks that a stopped fork server does not report."""
        before: dict[int, int] = {}
        while True:
            await asyncio.sleep(_CHECK_S)
            unreaped = {p: code for p in self._ranks if (code := exit_code_of(p)) is not None}
            for pid in unreaped.keys() & before.keys():
                logger.warning("zygote=%d does not reap its rank pid=%d", self.pid, pid)
                kill_group(pid)
                self._on_exited(pid, unreaped[pid])
            before = unreaped

    def _on_forked(self, report: GangForked) -> None:
        fork = self._forks.pop(report.allocation_id, None)
        if fork is None:  # fork_gang has given up on it
            for pid in report.pids:
                kill_group(pid)
            return
        exits: asyncio.Queue[RankExit] = asyncio.Queue()
        pids = dict(zip(fork.ranks, report.pids, strict=True))
        self._ranks |= {pid: (rank, exits) for rank, pid in pids.items()}
        fork.answer.set_result(
            RankProcesses(pids=pids, exits=exits, note="forked from the zygote")
        )

    def _set_not_ready(self, reason: str) -> None:
        if not self._ready.done():
            self._ready.set_exception(
                LaunchError(
                    f"the interpreter {self.python} cannot run ranks: {reason}; install "
                    f"det_jupyter there: {self.python} -m pip install det-jupyter=={__version__}"
                )
            )

    def _fail_requests(self) -> None:
        self._process.process.kill()  # a fork server without ranks has no state to lose
        code = self._process.process.wait()
        if self._is_closing and not self._ready.done():
            self._ready.set_exception(StartFailed("the agent ends", Loss.LEAVING))
        elif code < 0 and not self._ready.done():
            self._ready.set_exception(
                StartFailed(
                    f"the fork server of {self.python} was killed by signal {-code} while it "
                    "loaded torch; the machine may be out of memory",
                    Loss.FORK_SERVER,
                )
            )
        self._set_not_ready(_last_log_line(self._process))
        for allocation_id, fork in self._forks.items():
            refused = ForkRefused(allocation_id=allocation_id, reason="the zygote died")
            fork.answer.set_result(refused)
        self._forks.clear()

    async def _end_ranks(self) -> None:
        """Report its ranks as lost once they have ended; Linux kills them with it."""
        for pid in self._ranks:
            kill_group(pid)
        for pid, (rank, exits) in self._ranks.items():
            await until_gone(pid)
            exits.put_nowait(RankExit(rank, None))
        self._ranks.clear()

    def _log_readiness(self, ready: asyncio.Future[ZygoteReady]) -> None:
        if error := ready.exception():
            if not self._is_closing:
                logger.error("%s", error)
            return
        report = ready.result()
        logger.info("zygote of %s is ready after %.2f s", self.python, report.warmup_s)
        if report.unsafe:
            logger.warning("ranks will not be forked: %s", report.unsafe)


def _last_log_line(process: ZygoteProcess) -> str:
    """Return the last line in a fork server's log: why the interpreter failed."""
    lines: list[str] = []
    with suppress(OSError):
        lines = process.log.read_text(encoding="utf-8", errors="replace").split("\n")
    printed = [line.strip() for line in lines if line.strip()]
    return printed[-1] if printed else "its fork server died and printed nothing"


class Zygotes:
    """All fork servers of an agent, by interpreter."""

    def __init__(self, *, lifeline_fd: int, target: str) -> None:
        self._lifeline_fd = lifeline_fd
        self._target = target
        self._zygotes: dict[str, Zygote] = {}  # least recently used first
        self._getting = asyncio.Lock()  # one fork server per interpreter, even if two gangs start

    async def adopt(self, process: ZygoteProcess) -> None:
        """Connect to a fork server that was started before this object was made."""
        self._zygotes[process.python] = await Zygote.connect(process)

    async def get(self, python: str) -> Zygote:
        """Return the fork server of an interpreter; it may not be ready yet.

        Raises:
            LaunchError: There is no such interpreter.
            OSError: It could not be started; another attempt may succeed.
        """
        async with self._getting:
            zygote = self._zygotes.pop(python, None)
            if zygote is None or not zygote.is_alive:
                await self._close_idle()
                process = start_zygote(python, lifeline_fd=self._lifeline_fd, target=self._target)
                zygote = await Zygote.connect(process)
            self._zygotes[python] = zygote
            return zygote

    async def close(self) -> None:
        """End all fork servers and their ranks."""
        await asyncio.gather(*(zygote.close() for zygote in self._zygotes.values()))

    async def _close_idle(self) -> None:
        idle = [zygote for zygote in self._zygotes.values() if zygote.is_idle]
        for zygote in idle[: max(0, len(self._zygotes) + 1 - _MAX_ZYGOTES)]:
            del self._zygotes[zygote.python]
            await zygote.close()
