"""The master's state in the reader, kept current from what the master has committed.

The reader restores the machine from the newest snapshot, as the master does at its start, and
handles the events that were committed since: the same events give the same state
(`master/machine/machine.py`). So its views are those that the master would make, without any load
on the master's loop. Progress, verdicts and metrics are rows of the database, which are read when
needed.

    commit of the master ──► wake ──► read, in a thread of its own ──► listeners, with the changes

Nothing is read while there are no listeners.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    ExperimentView,
    ImportanceView,
)
from det_jupyter.contract.trial.captured import code_of
from det_jupyter.contract.values.text import error_line
from det_jupyter.errors import MasterUnreachable
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import parse_event
from det_jupyter.master.service.committing.restoring import machine_from
from det_jupyter.master.service.current_views import Views
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.service.storing.stored_rows import read_metrics
from det_jupyter.reader.listeners import Listeners

logger = logging.getLogger(__name__)

_PERIOD_S = 0.1  # least seconds between reads
_SHARE = 4  # a read and its listeners are followed by a pause of this many times their cost
# Estimates in reasons change without a commit, so listeners are called after this time.
_ESTIMATES_S = 5.0
_RETRY_S = 1.0
# Reasons are reused for this time, as many documents show the same front of a queue.
_RECENT_S = 1.0
_LOG_S = 60.0
_PAGE = 500  # most events, or items of the feed, that are read at a time


@dataclass(slots=True)
class News:
    """What was committed since the last read.

    Attributes:
        experiments: Ids of experiments whose state, or a trial's state, has changed.
        trials: Ids of trials whose state has changed.
        gone: Ids of experiments that were deleted.
        with_metrics: Ids of experiments that have new metrics.
        models: Ids of models of the registry that have changed, or were deleted.
        is_cluster: Whether slots or queues have changed.
    """

    experiments: set[int] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    with_metrics: set[int] = field(default_factory=set)
    models: set[int] = field(default_factory=set)
    is_cluster: bool = False


class Replica:
    """The state of the master whose database is at `path`.

    Args:
        path: The database.
        clock: Returns the present time, UTC seconds.
        recent_s: See `Views`.

    Attributes:
        clock: Returns the present time, UTC seconds.
        listeners: Called in the replica's thread with the news; at least every five seconds, with
            empty news if there is none.
        is_ready: Whether the state has been read since the first of the present listeners was
            added.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], float] = time.time,
        recent_s: float = _RECENT_S,
    ) -> None:
        self.clock = clock
        self._recent_s = recent_s
        self._path = path
        # Guards all attributes below; the store is used only with it.
        self._lock = threading.RLock()
        self._turn = threading.Lock()  # a thread that was stopped may still be calling listeners
        self._store: Store | None = None
        self._machine = Machine()
        self._feed_seq = 0
        self._news = News()  # news that `read` has not returned yet
        self._log_from = 0.0  # monotonic time from which on an error is logged again
        self._committed = threading.Event()
        self.is_ready = False
        self.listeners: Listeners[[News]] = Listeners(self._start)

    def wake(self) -> None:
        """Cause a read, after a commit of the master. Callable in any thread."""
        self._committed.set()

    def _start(self) -> Callable[[], None]:
        self.is_ready = False  # commits without listeners were not read
        stopped = threading.Event()
        threading.Thread(
            target=self._run, args=(stopped,), name="det-replica", daemon=True
        ).start()

        def stop() -> None:
            stopped.set()
            self._committed.set()

        return stop

    def _run(self, stopped: threading.Event) -> None:
        self._committed.set()
        while True:
            self._committed.wait(_ESTIMATES_S)
            if stopped.is_set():
                return
            self._committed.clear()
            started = time.monotonic()
            with self._turn:
                is_read = self._read_and_notify()
            cost_s = time.monotonic() - started
            stopped.wait(max(_PERIOD_S, _SHARE * cost_s) if is_read else _RETRY_S)

    def _read_and_notify(self) -> bool:
        """Read, and call listeners; return False if it has to be tried again.

        No exception leaves this function: without the thread, pages would show nothing new.
        """
        try:
            news = self.read()
        except MasterUnreachable:
            # The error may persist, and reads are tried each second.
            if time.monotonic() > self._log_from:
                self._log_from = time.monotonic() + _LOG_S
                logger.exception("the master's state could not be read; it is restored again")
            return False
        try:
            self.listeners.notify(news)
        except Exception:  # the thread's boundary: the next news may succeed
            logger.exception("what follows the master's state could not be updated")
        return True

    def refresh(self) -> None:
        """Read all that was committed until now, and call listeners, in this thread.

        Raises:
            MasterUnreachable: See `advance`.
        """
        with self._turn:
            self.listeners.notify(self.read())

    # reading what was committed

    def read(self) -> News:
        """Bring the state up to date, and return what has changed since the last call.

        Raises:
            MasterUnreachable: See `advance`.
        """
        with self._lock:
            self.advance()
            news, self._news = self._news, News()
        return news

    def advance(self) -> None:
        """Bring the state up to date; the changes are in the next news.

        Raises:
            MasterUnreachable: The database cannot be read now. The state may be changed in part,
                so the next read restores it from the snapshot.
        """
        with self._lock:
            try:
                self._advance()
            except Exception as error:  # whatever it is, the state is read anew
                self._forget()
                self._committed.set()
                raise MasterUnreachable(
                    f"the state cannot be read now: {error_line(error)}"
                ) from error

    def _advance(self) -> None:
        news = self._news
        store = self._opened(news)
        before = self._machine.queue.version
        # Commits may happen between these reads; the next call reads what is missing.
        self._handle_events(store, news)
        self._read_feed(store, news)
        news.is_cluster |= self._machine.queue.version != before
        state, named = self._machine.state, news.experiments | news.gone
        news.experiments = named & state.experiments.keys()
        # Greater ids are of experiments whose events are not read yet: these are not deleted.
        news.gone = {n for n in named - news.experiments if n <= state.last_experiment_id}
        self.is_ready = True

    def _opened(self, news: News) -> Store:
        """Return the open database; at the first call, also restore the newest snapshot."""
        if self._store is None:
            self._store = store = Store(self._path, is_read_only=True)
            self._feed_seq = store.feed.last_seq
            snapshots = store.history.snapshots()
            news.experiments |= self._machine.state.experiments.keys()  # some may be deleted
            news.models |= self._machine.state.models.keys()
            self._machine.take_over(_newest_readable([text for _, text in snapshots]))
            self.views = Views(self._machine, store, self.clock, recent_s=self._recent_s)
            news.experiments |= self._machine.state.experiments.keys()
            news.trials |= self._machine.state.trials.keys()
            news.models |= self._machine.state.models.keys()
            news.is_cluster = True
        return self._store

    def _forget(self) -> None:
        """Restore the state from the newest snapshot at the next read."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            self._store, self.is_ready = None, False

    def _handle_events(self, store: Store, news: News) -> None:
        machine = self._machine
        while True:
            events = store.history.events_after(machine.state.seq, limit=_PAGE)
            for seq, at, text in events:
                machine.state.seq = seq - 1  # a damaged database may lack rows
                machine.handle(parse_event(text), at)
                changes = machine.changes()
                news.experiments |= changes.experiments
                news.trials |= changes.trials
                news.models |= changes.models
            if len(events) < _PAGE:
                return

    def _read_feed(self, store: Store, news: News) -> None:
        """Find the experiments that have new rows of progress, verdicts or metrics."""
        while items := store.feed.news_after(self._feed_seq, _PAGE):
            for item in items:
                if item.kind == "cluster":
                    news.is_cluster = True
                elif item.kind in ("metrics", "truncated"):
                    news.with_metrics.add(item.experiment_id)
                else:
                    news.experiments.add(item.experiment_id)
                    if item.trial_id is not None:
                        news.trials.add(item.trial_id)
            self._feed_seq = items[-1].seq

    # what it contains

    @contextmanager
    def viewing(self) -> Iterator[Views]:
        """Yield views of the present state, which does not change within the block.

        Raises:
            MasterUnreachable: The state was not read yet, or the database cannot be read now.
        """
        with self._lock:
            if not self.is_ready:
                raise MasterUnreachable("the reader still reads the master's state; try again")
            with _reading():
                yield self.views

    def experiment(self, experiment_id: int) -> ExperimentView:
        """Return an experiment with its trials."""
        with self.viewing() as views:
            return views.experiment(experiment_id)

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        """Return the checkpoints of an experiment, oldest first."""
        with self._lock:
            return self._machine.state.checkpoints_of(experiment_id)

    def curves(self, experiment_id: int, *, max_points: int) -> list[Curve]:
        """Return the curves of an experiment, each thinned to `max_points`. Takes a while.

        Raises:
            MasterUnreachable: The database cannot be read now.
        """
        # Imported here, as it imports numpy, which a reader may not need (see usage_source.py).
        from det_jupyter.master.views.metric_curves import to_curves

        with _reading():
            return list(to_curves(read_metrics(self._path, experiment_id), max_points=max_points))

    @property
    def last_item(self) -> int:
        """The number of the newest item of the feed."""
        with self.viewing():
            assert self._store is not None
            return self._store.feed.last_seq

    def metrics_after(self, experiment_id: int, seq: int) -> list[tuple[int, int, dict[str, Any]]]:
        """Return the changes of an experiment's curves after an item (`Feed.metrics_after`)."""
        with self.viewing():
            assert self._store is not None
            return self._store.feed.metrics_after(seq, experiment_id)

    def code(self, experiment_id: int) -> dict[str, str]:
        """Return the captured source of an experiment: cells by label, local modules by path."""
        with self._lock:
            capsule = self._machine.state.experiment(experiment_id).capsule
        return code_of(capsule, BlobStore.of(self._path.parent))

    def importance(self, experiment_id: int) -> ImportanceView:
        """Return the importance of a search's hyperparameters. Takes a while."""
        from det_jupyter.master.sampling.importance import find_importance
        from det_jupyter.master.views.search_samples import samples_of

        with self._lock:
            samples = samples_of(self._machine.state, experiment_id)
        return find_importance(*samples)


@contextmanager
def _reading() -> Iterator[None]:
    """Raise MasterUnreachable if the database cannot be read within the block."""
    try:
        yield
    except sqlite3.Error as error:
        raise MasterUnreachable(f"the database cannot be read now: {error}") from error


def _newest_readable(snapshots: list[str]) -> Machine:
    """Return a machine in the newest state that can be read; an empty one if there is none."""
    for text in snapshots:
        try:
            return machine_from(text)
        except Exception:  # a damaged snapshot; the master sets it aside at its next start
            logger.exception(
                "a snapshot cannot be read; an older one and more events give the same"
            )
    return Machine()
