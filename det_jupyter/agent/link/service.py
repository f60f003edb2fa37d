"""An agent's link to the master: finds it, registers, obeys, and ships, until it goes away.

    looking     no master: look for its file, with pauses      -> linked
    linked      obey: each command becomes one call            -> looking, when either of the two
                ship: batches from the outbox                     loops loses the master

A process with several agents has a link for each: `serve` keeps all of them up until one is told
to leave, which goes for the process, or none has had a master for long and no gang lives.

Knows nothing of how gangs are carried; they go on whatever happens here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from det_jupyter._version import __version__
from det_jupyter.agent.devices.offers import Offer
from det_jupyter.agent.link.connection import Link, open_link
from det_jupyter.agent.link.outbox import Outbox
from det_jupyter.agent.runs.runner import Runner
from det_jupyter.errors import MasterUnreachable
from det_jupyter.wire import PROTOCOL, AgentReports, DevicesSeen, RegisterAgent, RunReport

logger = logging.getLogger(__name__)

BEAT_S = 3.0  # the master hears at least so often that we live
_LOOK_S = 0.05  # how soon after a quiet time a new line is seen
_REST_S = 0.1  # pause after a batch, so that a chatty gang costs ten requests a second at most
_WAIT_S = 1.0  # when no gang lives, or the master does not take what we send
_PAUSES_S = (0.1, 1.0)  # first and longest pause between two tries to link
_IDLE_LOOK_S = 0.2  # how often it is seen whether anybody needs us
_FIRST_LOOK_S = 2.0  # how long a slow driver may hold up the first registration
_STEADY_S = 5.0  # a link that held this long was a good one
_LAST_WORDS_S = 1.0  # for ending gangs, and again for telling so


class Service:
    """The link of one agent.

    Args:
        offer: Its name at the master and what it offers.
        session: New for each agent process.
        runner: What carries its runs.
        is_watched: Whether somebody looks who else uses its devices, and will tell.
    """

    def __init__(
        self, *, offer: Offer, session: str, runner: Runner, is_watched: bool = False
    ) -> None:
        self._offer = offer
        self._session = session
        self._runner = runner
        self._runs = runner.runs_of(offer.agent_id)
        self._outbox = Outbox(self._runs)
        self._seen: DevicesSeen | None = None
        self._have_looked = asyncio.Event()
        if not is_watched:
            self._have_looked.set()
        self._is_linked = False
        self._linked_until = time.monotonic()

    @property
    def alone_s(self) -> float:
        """For how long it has had no master."""
        return 0.0 if self._is_linked else time.monotonic() - self._linked_until

    def note_devices(self, seen: DevicesSeen) -> None:
        """Let the master know who else uses the devices: now, and whenever it registers."""
        self._seen = seen
        self._have_looked.set()
        self._outbox.note_devices(seen)
        self._runner.news.set()

    async def say_last_words(self) -> None:
        """Wait until the master has heard how all runs ended, for a moment at most."""
        deadline = time.monotonic() + _LAST_WORDS_S
        while self._is_linked and time.monotonic() < deadline:
            if all(run.exit_told_at is not None for run in self._runs.values()):
                return
            await asyncio.sleep(0.01)

    async def keep_linked(self) -> None:
        """Find the master and serve it, again and again, for ever."""
        with suppress(TimeoutError):  # a GPU that others use should not be given out before
            async with asyncio.timeout(_FIRST_LOOK_S):
                await self._have_looked.wait()
        pause_s, longest_s = _PAUSES_S
        complaint = ""
        while True:
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

    async def _be_linked(self) -> None:
        async with open_link(agent_id=self._offer.agent_id, session=self._session) as link:
            offsets = await link.register(self._registration())
            self._outbox.reconnected(offsets.offsets)
            logger.info("agent=%s linked to the master", self._offer.agent_id)
            self._is_linked = True
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._obey(link))
                    group.create_task(self._ship(link))
            finally:
                self._is_linked = False
                self._linked_until = time.monotonic()

    def _registration(self) -> RegisterAgent:
        runs = self._runs.values()
        return RegisterAgent(
            protocol=PROTOCOL,
            version=__version__,
            session=self._session,
            hostname=socket.gethostname(),
            pid=os.getpid(),
            slots=self._offer.slots,
            runs=[RunReport(allocation_id=run.id, alive=run.is_alive) for run in runs],
            devices=self._seen.processes if self._seen is not None else {},
            problems=list(self._offer.problems),
        )

    async def _obey(self, link: Link) -> None:
        async for command in link.commands():
            try:
                self._runner.obey(command, agent_id=self._offer.agent_id)
            except Exception:  # one command must not end the gangs of all the others
                logger.exception("the command %s failed", command.kind)
        raise MasterUnreachable("the master closed the connection")

    async def _ship(self, link: Link) -> None:
        told_at = time.monotonic()
        while True:
            self._runner.news.clear()
            batch = self._outbox.next_batch(time.monotonic())
            quiet_s = time.monotonic() - told_at
            if not batch.reports and quiet_s < BEAT_S:
                await self._await_news(min(self._patience_s(), BEAT_S - quiet_s))
                continue
            told_at = time.monotonic()
            answer = await link.report(AgentReports(session=self._session, reports=batch.reports))
            self._outbox.told(batch, time.monotonic())
            has_moved = self._outbox.set_offsets(answer.offsets)
            if self._outbox.waits_for(batch) and not has_moved:
                logger.warning("the master's offsets do not move")
                await asyncio.sleep(_WAIT_S)
            elif batch.is_last:
                await self._await_news(_REST_S)

    def _patience_s(self) -> float:
        """Return how long nothing can have happened that we are not told of."""
        if any(run.is_alive for run in self._runs.values()):
            return _LOOK_S
        return _WAIT_S if self._runs else BEAT_S

    async def _await_news(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._runner.news.wait()
        except TimeoutError:
            return


async def serve(services: Sequence[Service], *, runner: Runner, leave_after_s: float) -> None:
    """Work until somebody orders us to leave, or nobody needs us.

    Args:
        services: The links of all agents of this process.
        runner: What carries their runs.
        leave_after_s: How long to stay without any master and without a living gang.
    """
    links = [asyncio.create_task(service.keep_linked()) for service in services]
    order = asyncio.create_task(runner.leave_ordered.wait())
    idling = asyncio.create_task(_until_not_needed(services, runner, leave_after_s))
    tasks = [*links, order, idling]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await runner.abandon(_LAST_WORDS_S)
        await asyncio.gather(*(service.say_last_words() for service in services))
        for task in tasks:
            if task.done():
                task.result()  # raises what must not go unnoticed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _until_not_needed(
    services: Sequence[Service], runner: Runner, leave_after_s: float
) -> None:
    while runner.has_living_gangs or min(service.alone_s for service in services) < leave_after_s:
        await asyncio.sleep(_IDLE_LOOK_S)


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
