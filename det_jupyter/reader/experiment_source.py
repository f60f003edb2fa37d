"""The document `experiment`: the view state of one experiment.

All tabs that show an experiment share one follower, whichever trial they have chosen. It follows
until the experiment ends. Later changes (name, labels, continuation) are reported by the overview;
then a new follower starts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from det_jupyter.client import Follower
from det_jupyter.contract.documents.patches import Document, plain
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.reader.answers.known_importance import KnownImportance
from det_jupyter.reader.listeners import Listeners
from det_jupyter.reader.master_connection import MasterConnection
from det_jupyter.reader.overview import Ids, Overview
from det_jupyter.view import build_view_state
from det_jupyter.view.live import LiveExperiment
from det_jupyter.view.model.status_looks import ENDED

_MAX_AGE_S = 10.0


class SharedFollower:
    """Follows an experiment while there are listeners. Thread-safe."""

    def __init__(
        self, connection: MasterConnection, overview: Overview, experiment_id: int
    ) -> None:
        self._connection = connection
        self._overview = overview
        self._experiment_id = experiment_id
        self._lock = threading.Lock()
        self._existed = self._is_gone = False
        self._follower: Follower | None = None
        self.importance: KnownImportance | None = None
        self._fetching: threading.Thread | None = None
        self.listeners: Listeners[[]] = Listeners(self._begin)

    def _begin(self) -> Callable[[], None]:
        leave = self._overview.listeners.add(self._on_overview)

        def end() -> None:
            leave()
            with self._lock:
                follower, self._follower = self._follower, None
            if follower is not None:
                follower.stop()

        return end

    def follower(self) -> Follower:
        """Return the current follower, which may have no data yet.

        Raises:
            NotFound: The experiment does not exist.
            MasterUnreachable: The master cannot be reached now.
        """
        with self._lock:
            if self._follower is None or isinstance(self._follower.error, MasterUnreachable):
                self._follower = self._new()
            error = self._follower.error
            # The overview may list it again, such as after its database was restored.
            is_gone = self._is_gone and self._experiment_id not in self._overview.rows
            if is_gone or (self._existed and isinstance(error, NotFound)):
                raise NotFound(f"experiment {self._experiment_id} was deleted")
            if error is not None:
                raise error
            return self._follower

    def _new(self) -> Follower:
        client = self._connection.client()
        self.importance = self.importance or KnownImportance(client, self._experiment_id)
        return Follower(client, self._experiment_id, self._on_live, self.listeners.notify).start()

    def _on_live(self, live: LiveExperiment) -> None:
        self._existed = True
        self.listeners.notify()

    def refresh_importance(self, live: LiveExperiment) -> None:
        """Fetch the importance of hyperparameters in a thread, if more trials have ended."""
        importance = self.importance
        if importance is None or (self._fetching is not None and self._fetching.is_alive()):
            return

        def refresh() -> None:
            before = importance.latest
            importance.refresh(live)
            if importance.latest is not before:
                self.listeners.notify()

        self._fetching = threading.Thread(target=refresh, name="det-importance", daemon=True)
        self._fetching.start()

    def _on_overview(self, changed: Ids, gone: Ids) -> None:
        if self._experiment_id in gone:
            self._is_gone = True
            self.listeners.notify()
        elif self._experiment_id in changed:
            with self._lock:
                follower = self._follower
                is_over = follower is not None and not follower.thread.is_alive()
                if is_over and follower is not None and follower.error is None:
                    self._follower = self._new()


class ExperimentSource:
    """Makes a ViewState, with the details of the search's trial `chosen`."""

    period_s = 0.25
    max_age_s: float | None = _MAX_AGE_S  # pages report an error if nothing arrives for longer

    def __init__(self, followed: SharedFollower, chosen: int | None) -> None:
        self._followed = followed
        self._chosen = chosen

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        return self._followed.listeners.add(mark_stale)

    def make(self) -> Document | None:
        follower = self._followed.follower()
        live = follower.live
        if live is None:
            return None
        self._followed.refresh_importance(live)
        importance = self._followed.importance
        with follower.lock:
            state = build_view_state(
                live.experiment,
                list(live.curves.values()),
                list(live.checkpoints.values()),
                time.time(),
                chosen_id=self._chosen,
                cluster=live.cluster,
                reasons=live.reasons,
                importance=None if importance is None else importance.latest,
            )
        self.max_age_s = None if state["status"] in ENDED else _MAX_AGE_S
        document: Document = plain(state)
        return document
