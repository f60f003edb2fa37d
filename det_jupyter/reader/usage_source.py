"""The document `usage`: newest utilization of all agents' devices, read once for all tabs.

Each tab follows it with a period; samples are read at the shortest of these. Agents take samples
only on request, which the reader sends through the master a few times a minute.
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

_PAST_S = 120.0  # the first read has the samples of this time, later reads those after the newest
_COLUMNS = 2400
_LEAST_PERIOD_S = 0.25
_RETRY_S = 0.5
_WANT_S = 10.0  # time between requests; each has agents take samples for 30 s


class DeviceSamples:
    """The newest samples of all agents in `usage`, read while there are listeners.

    Args:
        path: The master's database.
        overview: Contains the agents.
        want: Requests an agent, by its name, to take samples for a while.
    """

    def __init__(self, path: Path, overview: Overview, want: Callable[[str], object]) -> None:
        self._path = path
        self._overview = overview
        self._want = want
        # By agent, monotonic: when samples were last requested.
        self._wanted_at: dict[str, float] = {}
        self._periods: list[float] = []
        self._newest: dict[str, float] = {}  # by agent: the time of its newest sample
        self.usage: Usage | None = None  # None before the first read; replaced, never modified
        self.listeners: Listeners[[]] = Listeners(self._start)

    def listen(self, listener: Callable[[], None], period_s: float) -> Callable[[], None]:
        """Call `listener` on new samples, which are read at least every `period_s`.

        Returns:
            A function that stops this.
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
            except Exception:  # without this thread, meters would show nothing new
                logger.exception("samples could not be read")
                stopped.wait(_RETRY_S)
            period_s = max(_LEAST_PERIOD_S, min(self._periods, default=1.0))
            stopped.wait(max(0.05, started + period_s - time.monotonic()))

    def _read(self) -> bool:
        """Read the newest samples of each agent; return whether a value has changed."""
        cluster = self._overview.cluster
        if cluster is None:
            return False
        before = {} if self.usage is None else self.usage["agents"]
        agents = [agent for pool in cluster.pools for agent in pool.agents]
        known = {agent.id: self._of_agent(agent, before.get(agent.id)) for agent in agents}
        is_first, self.usage = self.usage is None, Usage(agents=known)
        return is_first or known != before

    def _prolong(self, agent_id: str) -> None:
        """Request the agent to take samples for some more time, unless that was just requested."""
        now = time.monotonic()
        if now > self._wanted_at.get(agent_id, 0.0) + _WANT_S:
            self._wanted_at[agent_id] = now
            try:
                self._want(agent_id)
            except DetError as error:  # the master is away, or the agent has left
                logger.debug("agent %s takes no samples: %s", agent_id, error)

    def _of_agent(self, agent: AgentStatus, before: AgentUsage | None) -> AgentUsage:
        newest = 0.0 if before is None else self._newest.get(agent.id, 0.0)  # on the agent's clock
        since = newest or time.time() - _PAST_S
        query = SeriesQuery(of="system", names=NAMES, since=since, columns=_COLUMNS)
        # Imported here, as it imports numpy, which a reader that only lists experiments lacks.
        from det_jupyter.master.service.storing.series_reading import read_agent

        self._prolong(agent.id)
        page = read_agent(self._path, agent.id, query)
        self._newest[agent.id] = max([newest, *(one.x[-1] for one in page.series if one.x)])
        return build_usage(agent, page, before)


class UsageSource:
    """Makes the document `usage` (a Usage)."""

    max_age_s: float | None = None

    def __init__(self, samples: DeviceSamples, period_s: float) -> None:
        self.period_s = period_s
        self._samples = samples

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        return self._samples.listen(mark_stale, self.period_s)

    def make(self) -> Document | None:
        return None if self._samples.usage is None else plain(self._samples.usage)
