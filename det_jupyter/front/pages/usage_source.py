"""The topic `usage`: utilization of the devices of all agents; fetched once for all tabs.

Each tab follows it with a period; samples are fetched at the shortest of these. A tab is sent all
samples since its last news, up to `MAX_SAMPLES` per agent.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from det_jupyter.contract.messages import AgentStatus, SeriesQuery
from det_jupyter.errors import DetError, MasterUnreachable, NotFound
from det_jupyter.front.pages.listeners import Listeners
from det_jupyter.front.pages.master_connection import MasterConnection
from det_jupyter.front.pages.overview import Overview
from det_jupyter.front.pages.topic import next_number
from det_jupyter.view.making.sidebar_lines import NAMES, build_usage
from det_jupyter.view.model.sidebar import Usage, UsageNews

logger = logging.getLogger(__name__)

MAX_SAMPLES = 600  # kept per agent
_MAX_COUNTED = 10 * MAX_SAMPLES  # dropped samples per agent that are counted
_PAST_S = 120.0  # covered by the first news
_COLUMNS = 2400
_LEAST_PERIOD_S = 0.25  # agents report once a second
_RETRY_S = 0.5


class Sample(NamedTuple):
    """The utilization of an agent's devices at a time; `version` is that of its fetch."""

    version: int
    at: float
    utilization: tuple[float | None, ...]
    memory_used: tuple[float | None, ...]
    cpu: float | None


@dataclass(slots=True)
class AgentSamples:
    """The newest samples of an agent, and the facts of its slots."""

    slots: Usage | None = None  # without samples
    changed: int = 0  # the version in which `slots` changed
    samples: deque[Sample] = field(default_factory=lambda: deque(maxlen=MAX_SAMPLES))
    dropped: deque[int] = field(default_factory=lambda: deque(maxlen=_MAX_COUNTED))  # versions

    @property
    def after(self) -> float:
        """The time of the newest sample, 0 without one."""
        return self.samples[-1].at if self.samples else 0.0

    def add(self, usage: Usage, version: int) -> bool:
        """Add samples, drop the oldest; return whether anything has changed."""
        slots: Usage = {**usage, "at": [], "utilization": [], "memory_used": [], "cpu": []}
        if slots != self.slots:
            if self.slots is not None and self.slots["slot_ids"] != slots["slot_ids"]:
                self.samples.clear()
            self.slots, self.changed = slots, version
        for i, at in enumerate(usage["at"]):
            if len(self.samples) == MAX_SAMPLES:
                self.dropped.append(self.samples[0].version)
            self.samples.append(
                Sample(
                    version,
                    at,
                    tuple(column[i] for column in usage["utilization"]),
                    tuple(column[i] for column in usage["memory_used"]),
                    usage["cpu"][i],
                )
            )
        return bool(usage["at"]) or self.changed == version

    def between(self, since: int, upto: int) -> Usage | None:
        """Return the samples of versions after `since` up to `upto`; None if nothing changed."""
        samples = [sample for sample in self.samples if since < sample.version <= upto]
        if self.slots is None or not (samples or since < self.changed <= upto):
            return None
        places = range(len(self.slots["slot_ids"]))
        return {
            **self.slots,
            "at": [sample.at for sample in samples],
            "utilization": [[sample.utilization[i] for sample in samples] for i in places],
            "memory_used": [[sample.memory_used[i] for sample in samples] for i in places],
            "cpu": [sample.cpu for sample in samples],
            "dropped": sum(version > since for version in self.dropped) if since else 0,
        }


class DeviceSamples:
    """The samples of all agents, fetched while there are listeners."""

    def __init__(self, connection: MasterConnection, overview: Overview) -> None:
        self._connection = connection
        self._overview = overview
        self._lock = threading.Lock()
        self._kept: dict[str, AgentSamples] = {}
        self._periods: list[float] = []
        self.newest = 0  # the version of the newest samples
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

    def between(self, since: int, upto: int) -> list[Usage]:
        """Return the samples of the versions after `since` up to `upto`, of each changed agent."""
        with self._lock:
            found = [kept.between(since, upto) for kept in self._kept.values()]
        return [usage for usage in found if usage is not None]

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
        cluster = self._overview.cluster
        if cluster is None:
            return False
        agents = [agent for pool in cluster.pools for agent in pool.agents]
        fetched = [(agent, self._usage(agent)) for agent in agents]
        with self._lock:
            version = next_number()
            self._kept = {agent.id: self._kept.get(agent.id, AgentSamples()) for agent in agents}
            news = [
                self._kept[agent.id].add(usage, version)
                for agent, usage in fetched
                if usage is not None
            ]
            if any(news):
                self.newest = version
        return any(news)

    def _usage(self, agent: AgentStatus) -> Usage | None:
        after = self._kept.get(agent.id, AgentSamples()).after
        since = after or time.time() - _PAST_S
        query = SeriesQuery(of="system", names=NAMES, since=since, columns=_COLUMNS)
        try:
            page = self._connection.client().agent_series(agent.id, query)
        except NotFound:  # the agent has left
            return None
        except MasterUnreachable:
            raise
        except DetError:
            logger.warning("no samples of agent %s", agent.id, exc_info=True)
            return None
        return build_usage(agent, page, after)


class UsageSource:
    """Makes UsageNews."""

    max_age_s: float | None = None

    def __init__(self, samples: DeviceSamples, period_s: float) -> None:
        self.period_s = period_s
        self._samples = samples
        self._upto = 0

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        return self._samples.listen(mark_stale, self.period_s)

    def update(self, version: int) -> bool:
        before, self._upto = self._upto, version
        return self._samples.newest > before

    def news(self, since: int) -> Any:
        return UsageNews(agents=self._samples.between(since, self._upto))
