"""The topic `experiment`: what its page shows, in parts (live/parts.py)."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from det_jupyter.feeder.followed import Followed
from det_jupyter.live.parts import parts_of
from det_jupyter.view import build_view_state
from det_jupyter.view.model.experiment import ENDED, Row
from det_jupyter.view.model.sidebar import ViewNews

_BEAT_S = 10.0


class Experiment:
    """Makes ViewNews.

    Args:
        followed: The experiment.
        chosen: The trial of a search that is shown in full.
    """

    period_s = 0.25
    beat_s: float | None = _BEAT_S  # else pages would say that there is no news

    def __init__(self, followed: Followed, chosen: int | None) -> None:
        self._followed = followed
        self._chosen = chosen
        self._mark: Callable[[], None] = lambda: None
        self._rows: list[Row] = []  # all rows, of which changed ones are told
        self._rows_version = 0
        self._parts: dict[str, Any] = {}

    def begin(self, mark: Callable[[], None]) -> None:
        """See Maker."""
        self._mark = mark
        self._followed.listeners.add(mark)

    def end(self) -> None:
        """See Maker."""
        self._followed.listeners.remove(self._mark)

    def make(self, version: int) -> bool:
        """See Maker."""
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
        """See Maker."""
        news = ViewNews(**self._parts)  # type: ignore[typeddict-item]  # its parts are these
        return {**news, "rows": None} if since >= self._rows_version else news
