"""The document `usage`: what the devices of all agents did last; fetched once for all tabs.

Each tab follows it with a period; samples are fetched at the shortest of these.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from det_jupyter.contract.documents.patches import Document, plain
from det_jupyter.contract.messages import AgentStatus, SeriesQuery
from det_jupyter.errors import DetError, MasterUnreachable, NotFound
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.overview import Overview
from det_jupyter.view.making.sidebar_lines import NAMES, build_usage
from det_jupyter.view.model.sidebar import AgentUsage, Usage

logger = logging.getLogger(__name__)

_PAST_S = 120.0  # of which samples are fetched at first; later those since the newest
_COLUMNS = 2400
_LEAST_PERIOD_S = 0.25
_RETRY_S = 0.5


class DeviceSamples:
    """The newest samples of all agents in `usage`, fetched while there are listeners."""

    def __init__(self, connection: MasterConnection, overview: Overview) -> None:
        self._connection = connection
        self._overview = overview
        self._periods: list[float] = []
        self._newest: dict[str, float] = {}  # by agent: the time of its newest sample
        self.usage: Usage | None = None  # None before the first; replaced, never changed
        self.listeners: Listeners[[]] = Listeners(self._start)

    def listen(self, listener: Callable[[], None], period_s: float) -> Callable[[], None]:
        """Call `listener` on new samples, fetched at least every `period_s`.

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
                if self._fetch():
                    self.listeners.notify()
            except MasterUnreachable as error:
                logger.debug("%s", error)
                stopped.wait(_RETRY_S)
            except Exception:  # the thread's boundary: without it, meters show nothing new
                logger.exception("fetching samples")
                stopped.wait(_RETRY_S)
            period_s = max(_LEAST_PERIOD_S, min(self._periods, default=1.0))
            stopped.wait(max(0.05, started + period_s - time.monotonic()))

    def _fetch(self) -> bool:
        """Fetch the samples since the newest of each agent; return whether any differ."""
        cluster = self._overview.cluster
        if cluster is None:
            return False
        before = {} if self.usage is None else self.usage["agents"]
        agents = [agent for pool in cluster.pools for agent in pool.agents]
        used = {agent.id: self._of_agent(agent, before.get(agent.id)) for agent in agents}
        known = {name: usage for name, usage in used.items() if usage is not None}
        is_first, self.usage = self.usage is None, Usage(agents=known)
        return is_first or known != before

    def _of_agent(self, agent: AgentStatus, before: AgentUsage | None) -> AgentUsage | None:
        newest = 0.0 if before is None else self._newest.get(agent.id, 0.0)  # by its own clock
        since = newest or time.time() - _PAST_S
        query = SeriesQuery(of="system", names=NAMES, since=since, columns=_COLUMNS)
        try:
            page = self._connection.client().agent_series(agent.id, query)
        except NotFound:  # the agent has left
            return None
        except MasterUnreachable:
            raise
        except DetError:
            logger.warning("no samples of agent %s", agent.id, exc_info=True)
            return before
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
