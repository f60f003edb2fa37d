"""The rows of all experiments, and all slots, kept up to date; one copy for all tabs.

    reader       fetches the whole list once, then reads from the feed which rows change
    refresher    fetches those rows, slots and queues, a few times a second at most

So the cost for a list of thousands depends only on what changes in it. An experiment that is being
deleted is polled until it is gone, because the feed has no item for that.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import closing

from det_jupyter.client import Client
from det_jupyter.contract.messages import ClusterView, ExperimentQuery, ExperimentRow, State
from det_jupyter.contract.messages.queries import MAX_IDS
from det_jupyter.errors import DetError, MasterUnreachable
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.master_connection import MasterConnection

logger = logging.getLogger(__name__)

QUEUE_FRONT = 16  # waiting trials per pool whose reasons are fetched; the master computes each
_PERIOD_S = 0.1
_CLUSTER_PERIOD_S = 0.35
_ESTIMATES_S = 5.0  # estimates in reasons change without an item in the feed
_SHARE = 5  # a pause after a request is at least so many times its duration
_RETRY_S = 0.5

Ids = Collection[int]


class Overview:
    """Rows of all experiments by id, and slots and queues.

    Listeners are called with the ids of changed and of deleted experiments; with neither when
    slots or queues have changed.
    """

    def __init__(self, connection: MasterConnection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._dirty: set[int] = set()
        self._is_cluster_due = True
        self._cluster_at = self._cluster_not_before = 0.0  # on the monotonic clock
        self.rows: dict[int, ExperimentRow] = {}  # replaced, never changed
        self.is_ready = False
        self.cluster: ClusterView | None = None
        self.listeners: Listeners[[Ids, Ids]] = Listeners(self._start)

    def _start(self) -> Callable[[], None]:
        stopped = threading.Event()
        for name, target in (("read", self._read), ("refresh", self._refresh)):
            threading.Thread(
                target=self._until, args=(target, stopped), name=f"det-{name}", daemon=True
            ).start()

        def stop() -> None:
            stopped.set()
            self._changed.set()

        return stop

    def _until(
        self, target: Callable[[Client, threading.Event], None], stopped: threading.Event
    ) -> None:
        """Run `target` again after each error, until `stopped` is set."""
        while not stopped.is_set():
            try:
                target(self._connection.client(), stopped)
            except MasterUnreachable as error:
                logger.debug("%s", error)
            except DetError as error:  # such as a master of another version
                logger.warning("%s", error)
            except Exception:  # the thread's boundary: without it, pages show nothing new
                logger.exception("following all experiments")
            stopped.wait(_RETRY_S)

    def _read(self, client: Client, stopped: threading.Event) -> None:
        found = client.find(ExperimentQuery(archived=True, sort="oldest"))
        self._replace(found.rows)
        with closing(client.changes(after=found.last_seq)) as items:
            for item in items:
                if stopped.is_set():
                    return
                if item is None:
                    continue
                if item.kind == "cluster":
                    self._is_cluster_due = True
                elif item.kind in ("experiment", "trial"):
                    with self._lock:
                        self._dirty.add(item.experiment_id)
                else:
                    continue
                self._changed.set()

    def _replace(self, rows: list[ExperimentRow]) -> None:
        with self._lock:
            before, self.rows = self.rows, {row.id: row for row in rows}
            self.is_ready = True
            self._is_cluster_due = True
        changed = [number for number, row in self.rows.items() if before.get(number) != row]
        gone = [number for number in before if number not in self.rows]
        self._changed.set()
        self.listeners.notify(changed, gone)

    def _refresh(self, client: Client, stopped: threading.Event) -> None:
        while not stopped.is_set():
            self._changed.wait(self._timeout_s())
            self._changed.clear()
            started = time.monotonic()
            self._refresh_rows(client)
            self._refresh_cluster(client)
            stopped.wait(max(_PERIOD_S, _SHARE * (time.monotonic() - started)))

    def _timeout_s(self) -> float:
        if any(row.state is State.DELETING for row in self.rows.values()):
            return _RETRY_S
        if self._is_cluster_due:
            return max(0.0, self._cluster_not_before - time.monotonic())
        return _ESTIMATES_S

    def _refresh_rows(self, client: Client) -> None:
        with self._lock:
            ids, self._dirty = self._dirty, set()
        ids |= {number for number, row in self.rows.items() if row.state is State.DELETING}
        try:
            found = _find(client, sorted(ids))
        except BaseException:
            with self._lock:
                self._dirty |= ids
            self._changed.set()  # or they would wait for the next item of the feed, or seconds
            raise
        gone = [number for number in ids if number not in found and number in self.rows]
        with self._lock:
            rows = {**self.rows, **found}
            self.rows = {number: row for number, row in rows.items() if number not in gone}
        if ids:
            self.listeners.notify(found.keys(), gone)

    def _refresh_cluster(self, client: Client) -> None:
        now = time.monotonic()
        has_queue = self.cluster is not None and self.cluster.num_waiting > 0
        is_due = self._is_cluster_due or (has_queue and now > self._cluster_at + _ESTIMATES_S)
        if not is_due or now < self._cluster_not_before:
            return
        self._is_cluster_due = False
        try:
            self.cluster = client.cluster(limit=QUEUE_FRONT)
        except BaseException:
            self._is_cluster_due = True
            raise
        cost_s = time.monotonic() - now
        self._cluster_at = time.monotonic()
        self._cluster_not_before = self._cluster_at + max(_CLUSTER_PERIOD_S, _SHARE * cost_s)
        self.listeners.notify((), ())


def _find(client: Client, numbers: list[int]) -> dict[int, ExperimentRow]:
    found: dict[int, ExperimentRow] = {}
    for first in range(0, len(numbers), MAX_IDS):
        query = ExperimentQuery(ids=numbers[first : first + MAX_IDS], archived=True)
        found |= {row.id: row for row in client.find(query).rows}
    return found
