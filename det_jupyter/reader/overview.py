"""The rows of all experiments, and all slots, kept up to date; one copy for all tabs.

So the cost of a list of thousands of experiments depends only on how many of them change.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from det_jupyter.contract.messages import ClusterView, ExperimentQuery, ExperimentRow
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.replica import News, Replica

QUEUE_FRONT = 16  # waiting trials per pool whose reasons are computed, which takes time
_CLUSTER_PERIOD_S = 0.35
# Estimates in reasons change without a commit: after this time, any news has slots read again.
_ESTIMATES_S = 4.0
_SHARE = 5  # after slots are read, a pause of this many times the cost follows

Ids = Collection[int]


class Overview:
    """The rows of all experiments by id, and the slots and queues.

    Listeners are called with the ids of changed and of deleted experiments, and with two empty
    collections when slots or queues have changed.
    """

    def __init__(self, replica: Replica) -> None:
        self._replica = replica
        self._is_cluster_due = True
        self._cluster_at = self._cluster_not_before = 0.0  # on the monotonic clock
        self._timer: threading.Timer | None = None
        self.rows: dict[int, ExperimentRow] = {}  # rows are replaced, never modified
        self.is_ready = False
        self.cluster: ClusterView | None = None
        self.listeners: Listeners[[Ids, Ids]] = Listeners(self._start)

    def _start(self) -> Callable[[], None]:
        self.is_ready, self.cluster = False, None  # both may be old
        leave = self._replica.listeners.add(self._on_news)
        self._replica.wake()  # it may be running already, and has no news before the next commit
        return leave

    def _on_news(self, news: News) -> None:
        try:
            self._take(news)
        except BaseException:  # an interrupt too: all rows are made at the next news
            self.is_ready = False
            raise

    def _take(self, news: News) -> None:
        changed, gone = set(news.experiments), set(news.gone)
        if not self.is_ready:  # changes without listeners were missed
            rows = self._rows(None)
            changed |= {number for number, row in rows.items() if self.rows.get(number) != row}
            gone |= self.rows.keys() - rows.keys()
            self.rows, self.is_ready, self._is_cluster_due = rows, True, True
        elif changed or gone:
            rows = {**self.rows, **self._rows(sorted(changed))}
            self.rows = {number: row for number, row in rows.items() if number not in gone}
        self._is_cluster_due |= news.is_cluster
        if changed or gone:
            self.listeners.notify(changed, gone)
        self._read_cluster()

    def _rows(self, ids: list[int] | None) -> dict[int, ExperimentRow]:
        with self._replica.viewing() as views:
            query = ExperimentQuery.model_construct(ids=ids, archived=True, sort="oldest")
            return {row.id: row for row in views.find(query).rows}

    def _read_cluster(self) -> None:
        now = time.monotonic()
        has_queue = self.cluster is not None and self.cluster.num_waiting > 0
        is_due = self._is_cluster_due or (has_queue and now > self._cluster_at + _ESTIMATES_S)
        if not is_due:
            return
        if now < self._cluster_not_before:
            self._read_later(self._cluster_not_before - now)
            return
        self._is_cluster_due = False
        with self._replica.viewing() as views:
            self.cluster = views.cluster(limit=QUEUE_FRONT, experiment_id=None)
        self._cluster_at = time.monotonic()
        pause_s = max(_CLUSTER_PERIOD_S, _SHARE * (self._cluster_at - now))
        self._cluster_not_before = self._cluster_at + pause_s
        self.listeners.notify((), ())

    def _read_later(self, delay_s: float) -> None:
        """Wake the replica after a delay, when slots may be read again."""
        if self._timer is None or not self._timer.is_alive():
            self._timer = threading.Timer(delay_s, self._replica.wake)
            self._timer.daemon = True
            self._timer.start()
