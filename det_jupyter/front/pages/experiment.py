"""The topic `experiment`: what its page shows, in parts (answers/parts.py).

All tabs that look at an experiment share one follower, whichever trial they choose. It is followed
until it is over. What changes after that (its name, its labels, or that it goes on) the overview
says; then a new copy is fetched.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from det_jupyter.client import Follower
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.front.answers.importance import KnownImportance
from det_jupyter.front.answers.parts import parts_of
from det_jupyter.front.pages.listeners import Listeners
from det_jupyter.front.pages.master import MasterLine
from det_jupyter.front.pages.overview import Numbers, Overview
from det_jupyter.view import build_view_state
from det_jupyter.view.live import LiveExperiment
from det_jupyter.view.model.search import Row
from det_jupyter.view.model.sidebar import ViewNews
from det_jupyter.view.model.states import ENDED

_BEAT_S = 10.0


class Followed:
    """A copy of an experiment that is kept current while there are listeners."""

    def __init__(self, line: MasterLine, overview: Overview, experiment_id: int) -> None:
        self._line = line
        self._overview = overview
        self._experiment_id = experiment_id
        self._lock = threading.Lock()
        self._was_there = self._is_gone = False
        self._follower: Follower | None = None
        self.importance: KnownImportance | None = None
        self._asking: threading.Thread | None = None
        self.listeners: Listeners[[]] = Listeners(self._begin)

    def _begin(self) -> Callable[[], None]:
        leave = self._overview.listeners.add(self._note)

        def end() -> None:
            leave()
            with self._lock:
                follower, self._follower = self._follower, None
            if follower is not None:
                follower.stop()

        return end

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
            # The list may have it again: its database was restored, say.
            is_gone = self._is_gone and self._experiment_id not in self._overview.rows
            if is_gone or (self._was_there and isinstance(error, NotFound)):
                raise NotFound(f"experiment {self._experiment_id} was deleted")
            if error is not None:
                raise error
            return self._follower

    def _new(self) -> Follower:
        client = self._line.client()
        self.importance = self.importance or KnownImportance(client, self._experiment_id)
        return Follower(client, self._experiment_id, self._note_live, self.listeners.tell).start()

    def _note_live(self, live: LiveExperiment) -> None:
        self._was_there = True
        self.listeners.tell()

    def refresh_importance(self, live: LiveExperiment) -> None:
        """Ask for the importance of its hyperparameters in another thread, if it is time."""
        known = self.importance
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


class Experiment:
    """Makes ViewNews, which have the trial `chosen` of a search in full."""

    period_s = 0.25
    beat_s: float | None = _BEAT_S  # else pages would say that there is no news

    def __init__(self, followed: Followed, chosen: int | None) -> None:
        self._followed = followed
        self._chosen = chosen
        self._rows: list[Row] = []  # all rows, of which changed ones are told
        self._rows_version = 0
        self._parts: dict[str, Any] = {}

    def begin(self, mark: Callable[[], None]) -> Callable[[], None]:
        return self._followed.listeners.add(mark)

    def make(self, version: int) -> bool:
        follower = self._followed.follower()
        live = follower.live
        if live is None:
            return False
        self._followed.refresh_importance(live)
        known = self._followed.importance
        with follower.lock:
            state = build_view_state(
                live.experiment,
                list(live.curves.values()),
                list(live.checkpoints.values()),
                time.time(),
                chosen_id=self._chosen,
                cluster=live.cluster,
                reasons=live.reasons,
                importance=None if known is None else known.latest,
            )
        self.beat_s = None if state["status"] in ENDED else _BEAT_S
        self._parts = parts_of(state, self._rows)
        if self._parts["rows"] is not self._rows or not self._rows_version:
            self._rows, self._rows_version = self._parts["rows"], version
        return True

    def news(self, since: int) -> Any:
        news = ViewNews(**self._parts)  # type: ignore[typeddict-item]  # its parts are these
        return {**news, "rows": None} if since >= self._rows_version else news
