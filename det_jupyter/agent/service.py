"""The agent's link to the master: finds it, registers, obeys, and ships, until it goes away.

    looking     no master: look for its file, with pauses      -> linked, or leave when alone
    linked      obey: each command becomes one call            -> looking, when either of the two
                ship: batches from the outbox                     loops loses the master

Knows nothing of how gangs are carried; they go on whatever happens here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time

from det_jupyter._version import __version__
from det_jupyter.agent.link import Link, open_link
from det_jupyter.agent.outbox import Outbox
from det_jupyter.agent.runner import Runner
from det_jupyter.errors import MasterUnreachable
from det_jupyter.wire import PROTOCOL, AgentReports, RegisterAgent, RunReport, SlotView

logger = logging.getLogger(__name__)

_LOOK_S = 0.05  # how soon after a quiet time a new line is seen
_REST_S = 0.1  # pause after a batch, so that a chatty gang costs ten requests a second at most
_WAIT_S = 1.0  # when no gang lives, or the master does not take what we send
_PAUSES_S = (0.1, 1.0)  # first and longest pause between two tries to link
_STEADY_S = 5.0  # a link that held this long was a good one
_LAST_WORDS_S = 1.0  # for ending gangs, and again for telling so


class Service:
    """The link of an agent.

    Args:
        agent_id: Its name at the master.
        session: New for each agent process.
        slots: What it offers.
        runner: Its runs.
        leave_after_s: How long to stay without a master and without a living gang.
    """

    def __init__(
        self,
        *,
        agent_id: str,
        session: str,
        slots: list[SlotView],
        runner: Runner,
        leave_after_s: float,
    ) -> None:
        self._agent_id = agent_id
        self._session = session
        self._slots = slots
        self._runner = runner
        self._outbox = Outbox(runner.runs)
        self._leave_after_s = leave_after_s
        self._is_linked = False
        self._linked_until = time.monotonic()

    async def run(self) -> None:
        """Work until somebody orders us to leave, or nobody needs us."""
        link = asyncio.create_task(self._keep_linked())
        order = asyncio.create_task(self._runner.leave_ordered.wait())
        try:
            await asyncio.wait({link, order}, return_when=asyncio.FIRST_COMPLETED)
            await self._runner.abandon(_LAST_WORDS_S)
            await self._say_last_words()
            if link.done():
                link.result()  # raises what must not go unnoticed
        finally:
            link.cancel()
            order.cancel()
            await asyncio.gather(link, order, return_exceptions=True)

    async def _say_last_words(self) -> None:
        deadline = time.monotonic() + _LAST_WORDS_S
        while self._is_linked and time.monotonic() < deadline:
            if all(run.exit_told_at is not None for run in self._runner.runs.values()):
                return
            await asyncio.sleep(0.01)

    async def _keep_linked(self) -> None:
        pause_s, longest_s = _PAUSES_S
        complaint = ""
        while self._is_needed():
            began = time.monotonic()
            try:
                await self._be_linked()
            except* MasterUnreachable as unreachable:
                complaint = _complain(unreachable, complaint)
            except* Exception as unexpected:  # no file could be opened, say: gangs go on
                complaint = _complain(unexpected, complaint)
            if time.monotonic() - began > _STEADY_S:
                pause_s, complaint = _PAUSES_S[0], ""
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)

    def _is_needed(self) -> bool:
        alone_s = time.monotonic() - self._linked_until
        return self._runner.has_living_gangs or alone_s < self._leave_after_s

    async def _be_linked(self) -> None:
        async with open_link(agent_id=self._agent_id, session=self._session) as link:
            offsets = await link.register(self._registration())
            self._outbox.reconnected(offsets.offsets)
            logger.info("linked to the master")
            self._is_linked = True
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._obey(link))
                    group.create_task(self._ship(link))
            finally:
                self._is_linked = False
                self._linked_until = time.monotonic()

    def _registration(self) -> RegisterAgent:
        runs = self._runner.runs.values()
        return RegisterAgent(
            protocol=PROTOCOL,
            version=__version__,
            session=self._session,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            slots=self._slots,
            runs=[RunReport(allocation_id=run.id, alive=run.is_alive) for run in runs],
        )

    async def _obey(self, link: Link) -> None:
        async for command in link.commands():
            try:
                self._runner.obey(command)
            except Exception:  # one command must not end the gangs of all the others
                logger.exception("the command %s failed", command.kind)
        raise MasterUnreachable("the master closed the connection")

    async def _ship(self, link: Link) -> None:
        while True:
            self._runner.news.clear()
            batch = self._outbox.next_batch(time.monotonic())
            if not batch.reports:
                await self._await_news(self._patience_s())
                continue
            answer = await link.report(AgentReports(session=self._session, reports=batch.reports))
            self._outbox.told(batch, time.monotonic())
            has_moved = self._outbox.set_offsets(answer.offsets)
            if self._outbox.waits_for(batch) and not has_moved:
                logger.warning("the master's offsets do not move")
                await asyncio.sleep(_WAIT_S)
            elif batch.is_last:
                await self._await_news(_REST_S)

    def _patience_s(self) -> float | None:
        """Return how long nothing can have happened that we are not told of."""
        if self._runner.has_living_gangs:
            return _LOOK_S
        return _WAIT_S if self._runner.runs else None

    async def _await_news(self, timeout_s: float | None) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._runner.news.wait()
        except TimeoutError:
            return


def _complain(group: ExceptionGroup[Exception], before: str) -> str:
    """Log why there is no link, but not the same each second."""
    complaint = str(group.exceptions[0])
    if complaint == before:
        return complaint
    if group.subgroup(MasterUnreachable):
        logger.info("no master: %s", complaint)
    else:
        logger.error("the link to the master broke; it is tried again", exc_info=group)
    return complaint
