"""An experiment that tabs look at: one follower for all of them, whichever trial they choose.

It is followed until it is over. What changes after that (its name, its labels, or that it goes on)
the overview says; then a new copy is fetched.
"""

from __future__ import annotations

import threading

from det_jupyter.client import Follower
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.feeder.listeners import Listeners
from det_jupyter.feeder.master import MasterLine
from det_jupyter.feeder.overview import Numbers, Overview
from det_jupyter.live.importance import KnownImportance
from det_jupyter.view.live import LiveExperiment


class Followed:
    """A copy of an experiment that is kept current while there are listeners.

    Args:
        line: Talks to the master.
        overview: Says what changes when it is over.
        experiment_id: The experiment.
    """

    def __init__(self, line: MasterLine, overview: Overview, experiment_id: int) -> None:
        self._line = line
        self._overview = overview
        self._experiment_id = experiment_id
        self._lock = threading.Lock()
        self._was_there = self._is_gone = False
        self._follower: Follower | None = None
        self._importance: KnownImportance | None = None
        self._asking: threading.Thread | None = None
        self.listeners: Listeners[[]] = Listeners(self._begin, self._end)

    def _begin(self) -> None:
        self._overview.listeners.add(self._note)

    def _end(self) -> None:
        self._overview.listeners.remove(self._note)
        with self._lock:
            follower, self._follower = self._follower, None
        if follower is not None:
            follower.stop()

    def follower(self) -> Follower:
        """Return what has the copy; it may have none yet.

        Raises:
            NotFound: There is no such experiment.
            MasterUnreachable: It cannot be followed now.
        """
        with self._lock:
            if self._follower is None or isinstance(self._follower.error, MasterUnreachable):
                self._follower = self._new()
            error = self._follower.error
            if self._is_gone or (self._was_there and isinstance(error, NotFound)):
                raise NotFound(f"experiment {self._experiment_id} was deleted")
            if error is not None:
                raise error
            return self._follower

    def _new(self) -> Follower:
        client = self._line.client()
        self._importance = self._importance or KnownImportance(client, self._experiment_id)
        return Follower(client, self._experiment_id, self._note_live, self.listeners.tell).start()

    def _note_live(self, live: LiveExperiment) -> None:
        self._was_there = True
        self.listeners.tell()

    @property
    def importance(self) -> KnownImportance | None:
        """What is known of the importance of its hyperparameters."""
        return self._importance

    def refresh_importance(self, live: LiveExperiment) -> None:
        """Ask for the importance of its hyperparameters in another thread, if it is time."""
        known = self._importance
        if known is None or (self._asking is not None and self._asking.is_alive()):
            return

        def refresh() -> None:
            before = known.latest
            known.refresh(live)
            if known.latest is not before:
                self.listeners.tell()

        self._asking = threading.Thread(target=refresh, name="det-importance", daemon=True)
        self._asking.start()

    def _note(self, changed: Numbers, gone: Numbers) -> None:
        if self._experiment_id in gone:
            self._is_gone = True
            self.listeners.tell()
        elif self._experiment_id in changed:
            with self._lock:
                follower = self._follower
                is_over = follower is not None and not follower.thread.is_alive()
                if is_over and follower is not None and follower.error is None:
                    self._follower = self._new()
