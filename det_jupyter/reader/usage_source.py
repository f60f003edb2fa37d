"""The document `usage`: what the devices of all agents did last; read once for all tabs.

Each tab follows it with a period; samples are read at the shortest of these. Agents take them only
while they are wanted, which the master is asked for a few times a minute.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from det_jupyter.contract.documents.patches import Document, plain
from det_jupyter.contract.messages import AgentStatus, SeriesQuery
from det_jupyter.errors import DetError
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.overview import Overview
from det_jupyter.view.making.sidebar_lines import NAMES, build_usage
from det_jupyter.view.model.sidebar import AgentUsage, Usage

logger = logging.getLogger(__name__)

_PAST_S = 120.0  # of which samples are read at first; later those since the newest
_COLUMNS = 2400
_LEAST_PERIOD_S = 0.25
_RETRY_S = 0.5
_WANT_S = 10.0  # the master has agents take samples for 30 s


class DeviceSamples:
    """The newest samples of all agents in `usage`, read while there are listeners.

    Args:
        path: The master's database.
        overview: Has the agents.
        want: Has an agent take samples for a while; called with its name.
    """

    def __init__(self, path: Path, overview: Overview, want: Callable[[str], object]) -> None:
        self._path = path
        self._overview = overview
        self._want = want
        self._wanted_at: dict[str, float] = {}  # by agent, on the monotonic clock
        self._periods: list[float] = []
        self._newest: dict[str, float] = {}  # by agent: the time of its newest sample
        self.usage: Usage | None = None  # None before the first; replaced, never changed
        self.listeners: Listeners[[]] = Listeners(self._start)

    def listen(self, listener: Callable[[], None], period_s: float) -> Callable[[], None]:
        """Call `listener` on new samples, read at least every `period_s`.

        Return a function that ends that.
        """

        def end() -> None:
            leave()
            rest = list(self._periods)
            rest.remove(period_s)
            self._periods = rest

        self._periods = [*self._periods, period_s]
        leave = self.listeners.add(listener)
        return end

    def _start(self) -> Callable[[], None]:
        # The overview lists agents only while it has a listener.
        leave = self._overview.listeners.add(lambda changed, gone: None)
        stopped = threading.Event()
        threading.Thread(
            target=self._run, args=(stopped,), name="det-samples", daemon=True
        ).start()

        def stop() -> None:
            leave()
            stopped.set()

        return stop

    def _run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            started = time.monotonic()
            try:
                if self._read():
                    self.listeners.notify()
            except Exception:  # the thread's boundary: without it, meters show nothing new
                logger.exception("samples could not be read")
                stopped.wait(_RETRY_S)
            period_s = max(_LEAST_PERIOD_S, min(self._periods, default=1.0))
            stopped.wait(max(0.05, started + period_s - time.monotonic()))

    def _read(self) -> bool:
        """Read the samples since the newest of each agent; return whether any differ."""
        cluster = self._overview.cluster
        if cluster is None:
            return False
        before = {} if self.usage is None else self.usage["agents"]
        agents = [agent for pool in cluster.pools for agent in pool.agents]
        known = {agent.id: self._of_agent(agent, before.get(agent.id)) for agent in agents}
        is_first, self.usage = self.usage is None, Usage(agents=known)
        return is_first or known != before

    def _prolong(self, agent_id: str) -> None:
        """Have the agent take samples for some more time, if that has not been asked just now."""
        now = time.monotonic()
        if now > self._wanted_at.get(agent_id, 0.0) + _WANT_S:
            self._wanted_at[agent_id] = now
            try:
                self._want(agent_id)
            except DetError as error:  # the master is away, or the agent has left
                logger.debug("agent %s takes no samples: %s", agent_id, error)

    def _of_agent(self, agent: AgentStatus, before: AgentUsage | None) -> AgentUsage:
        newest = 0.0 if before is None else self._newest.get(agent.id, 0.0)  # by its own clock
        since = newest or time.time() - _PAST_S
        query = SeriesQuery(of="system", names=NAMES, since=since, columns=_COLUMNS)
        # numpy is imported when it is needed: a reader that only lists experiments has none.
        from det_jupyter.master.service.storing.series_reading import read_agent

        self._prolong(agent.id)
        page = read_agent(self._path, agent.id, query)
        self._newest[agent.id] = max([newest, *(one.x[-1] for one in page.series if one.x)])
        return build_usage(agent, page, before)


class UsageSource:
    """Makes a Usage."""

    max_age_s: float | None = None

    def __init__(self, samples: DeviceSamples, period_s: float) -> None:
        self.period_s = period_s
        self._samples = samples

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        return self._samples.listen(mark_stale, self.period_s)

    def make(self) -> Document | None:
        return None if self._samples.usage is None else plain(self._samples.usage)
