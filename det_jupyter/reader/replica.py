"""The master's state in the reader, kept current from what the master has committed.

The reader restores the machine from the newest snapshot, as the master does at its start, and
handles the events that were committed since: the same events give the same state
(`master/machine/machine.py`). So the views are those that the master would make, and the master's
loop makes none of them. Progress, verdicts and metrics are rows, which are read when they are
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

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    CheckpointView,
    Curve,
    ExperimentView,
    FeedItem,
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

_PERIOD_S = 0.1  # between reads at least
_SHARE = 4  # a pause after a read and its listeners is at least so many times their cost
_ESTIMATES_S = 5.0  # estimates in reasons change without a commit
_RETRY_S = 1.0
_RECENT_S = 1.0  # for reasons, as many documents have the same front of a queue
_LOG_S = 60.0
_PAGE = 500  # events and items of the feed that are read at a time


@dataclass(slots=True)
class News:
    """What was committed since the last read.

    Attributes:
        experiments: Ids of experiments whose state has changed, or that of one of their trials.
        trials: Ids of these trials.
        gone: Ids of experiments that were deleted.
        with_metrics: Ids of experiments that have new metrics.
        is_cluster: Whether slots or queues have changed.
    """

    experiments: set[int] = field(default_factory=set)
    trials: set[int] = field(default_factory=set)
    gone: set[int] = field(default_factory=set)
    with_metrics: set[int] = field(default_factory=set)
    is_cluster: bool = False


class Replica:
    """The state of the master whose database is at `path`.

    Args:
        path: The database.
        clock: Returns the present time, UTC seconds.
        recent_s: See `Views`.

    Attributes:
        clock: Returns the present time, UTC seconds.
        listeners: Called in the replica's thread with the news; at least every five seconds, then
            without any.
        is_ready: Whether the state was read since the first of the present listeners was added.
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
        self._lock = threading.RLock()  # guards all below; the store is used only with it
        self._turn = threading.Lock()  # a thread that was stopped may still notify
        self._store: Store | None = None
        self._machine = Machine()
        self._feed_seq = 0
        self._news = News()  # that `read` has not returned yet
        self._log_from = 0.0  # when an error is logged again, monotonic
        self._committed = threading.Event()
        self.is_ready = False
        self.listeners: Listeners[[News]] = Listeners(self._start)

    def wake(self) -> None:
        """Have it read: the master has committed. Callable in any thread."""
        self._committed.set()

    def _start(self) -> Callable[[], None]:
        self.is_ready = False  # what was committed without listeners was not read
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
        """Read, and tell listeners; return False if it has to be tried again.

        Exceptions end here: without the thread, pages show nothing new.
        """
        try:
            news = self.read()
        except MasterUnreachable:
            if time.monotonic() > self._log_from:  # it may stay, and is tried each second
                self._log_from = time.monotonic() + _LOG_S
                logger.exception("the master's state could not be read; it is restored again")
            return False
        try:
            self.listeners.notify(news)
        except Exception:
            logger.exception("what follows the master's state could not be updated")
        return True

    def refresh(self) -> None:
        """Read what was committed until now, and call listeners, in this thread.

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
        """Bring the state up to date; what has changed is in the next news.

        Raises:
            MasterUnreachable: It cannot be read now. It may be half changed, so it is restored
                again, in the replica's thread.
        """
        with self._lock:
            try:
                self._advance()
            except Exception as error:
                self._forget()
                self._committed.set()
                raise MasterUnreachable(
                    f"the state cannot be read now: {error_line(error)}"
                ) from error

    def _advance(self) -> None:
        news = self._news
        store = self._opened(news)
        before = self._machine.queue.version
        # Between these are commits, of which the next read finds the rest.
        self._handle_events(store, news)
        self._read_feed(store, news)
        news.is_cluster |= self._machine.queue.version != before
        state, named = self._machine.state, news.experiments | news.gone
        news.experiments = named & state.experiments.keys()
        # Later numbers are in items whose events are not read yet: these are not gone.
        news.gone = {n for n in named - news.experiments if n <= state.last_experiment_id}
        self.is_ready = True

    def _opened(self, news: News) -> Store:
        """Return the open database; at first, restore the newest snapshot."""
        if self._store is None:
            self._store = store = Store(self._path, is_read_only=True)
            self._feed_seq = store.feed.last_seq
            snapshots = store.history.snapshots()
            news.experiments |= self._machine.state.experiments.keys()  # some may be gone
            self._machine.take_over(_newest_readable([text for _, text in snapshots]))
            self.views = Views(self._machine, store, self.clock, recent_s=self._recent_s)
            news.experiments |= self._machine.state.experiments.keys()
            news.trials |= self._machine.state.trials.keys()
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
                machine.state.seq = seq - 1  # rows may be missing from a damaged file
                machine.handle(parse_event(text), at)
                changes = machine.changes()
                news.experiments |= changes.experiments
                news.trials |= changes.trials
            if len(events) < _PAGE:
                return

    def _read_feed(self, store: Store, news: News) -> None:
        """Read which experiments have new rows: progress, verdicts, metrics."""
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
        """Make views of one state inside.

        Raises:
            MasterUnreachable: The state was not read yet, or the database cannot be read now.
        """
        with self._lock:
            if not self.is_ready:
                raise MasterUnreachable("the state is being read")
            with _reading():
                yield self.views

    def experiment(self, experiment_id: int) -> ExperimentView:
        """Return an experiment with its trials."""
        with self.viewing() as views:
            return views.experiment(experiment_id)

    def checkpoints(self, experiment_id: int) -> list[CheckpointView]:
        """Return the checkpoints of an experiment, oldest first."""
        with self._lock:
            found = self._machine.state.checkpoints.values()
            own = [one for one in found if one.experiment_id == experiment_id]
        return sorted(own, key=lambda one: (one.created_at, one.steps_completed))

    def curves(self, experiment_id: int, *, max_points: int) -> list[Curve]:
        """Return the curves of an experiment, each thinned to `max_points`. Takes a while.

        Raises:
            MasterUnreachable: The database cannot be read now.
        """
        # numpy is imported when it is needed, as by usage_source.py.
        from det_jupyter.master.views.metric_curves import to_curves

        with _reading():
            return list(to_curves(read_metrics(self._path, experiment_id), max_points=max_points))

    @property
    def last_item(self) -> int:
        """Number of the newest item of the feed."""
        with self.viewing():
            assert self._store is not None
            return self._store.feed.last_seq

    def metrics_after(self, experiment_id: int, seq: int) -> list[FeedItem]:
        """Return the items after this number that change an experiment's curves, oldest first."""
        with self.viewing():
            assert self._store is not None
            return self._store.feed.metrics_after(seq, experiment_id)

    def code(self, experiment_id: int) -> dict[str, str]:
        """Return the captured source of an experiment: cells by label, local modules by path."""
        with self._lock:
            capsule = self._machine.state.experiment(experiment_id).capsule
        return code_of(capsule, BlobStore(self._path.parent / "blobs"))

    def importance(self, experiment_id: int) -> ImportanceView:
        """Return the importance of a search's hyperparameters. Takes a while."""
        from det_jupyter.master.sampling.importance import find_importance
        from det_jupyter.master.views.search_samples import samples_of

        with self._lock:
            samples = samples_of(self._machine.state, experiment_id)
        return find_importance(*samples)


@contextmanager
def _reading() -> Iterator[None]:
    """Raise MasterUnreachable inside if the database cannot be read."""
    try:
        yield
    except sqlite3.Error as error:
        raise MasterUnreachable(f"the database cannot be read now: {error}") from error


def _newest_readable(snapshots: list[str]) -> Machine:
    """Return a machine in the newest state that can be read; of the start if there is none."""
    for text in snapshots:
        try:
            return machine_from(text)
        except Exception:  # the master sets it aside at its next start
            logger.exception(
                "a snapshot cannot be read; an older one and more events give the same"
            )
    return Machine()
