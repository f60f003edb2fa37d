"""Topics made from the overview: `experiments`, `cluster`, `trials` and `comparison`.

The first news of `experiments` contain all rows, later ones those that have changed. News of the
others contain a whole state, and are sent when it has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from det_jupyter.client.compare import Comparison, fetch_experiments
from det_jupyter.contract.messages import ExperimentRow, QueueEntry
from det_jupyter.errors import NotFound
from det_jupyter.front.pages.master_connection import MasterConnection
from det_jupyter.front.pages.overview import Ids, Overview
from det_jupyter.view.making.sidebar_lines import (
    build_cluster_news,
    build_line,
    build_trials,
    first_entries,
)
from det_jupyter.view.model.sidebar import ExperimentLine, ExperimentNews

MAX_GONE = 1000  # deleted ids that are kept for tabs which still show them


_LEAVING_S = 5.0  # sentences about ranks that leave contain how long they have not left


class ExperimentsSource:
    """Makes ExperimentNews."""

    period_s = 0.1
    max_age_s: float | None = None

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._lock = threading.Lock()  # guards `_dirty`, to which listeners add during an update
        self._dirty: set[int] | None = None  # ids; None: all
        self._lines: dict[int, tuple[int, ExperimentLine]] = {}  # with the version of each
        self._gone: dict[int, int] = {}
        self._whole_before = 0  # tabs with an older version are sent all rows

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        def on_overview(changed: Ids, gone: Ids) -> None:
            with self._lock:
                if self._dirty is not None:
                    self._dirty.update(changed, gone)
            mark_stale()

        self._dirty = None
        return self._overview.listeners.add(on_overview)

    def update(self, version: int) -> bool:
        overview = self._overview
        if not overview.is_ready:
            return False
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        rows, entries = overview.rows, first_entries(overview.cluster)
        if dirty is None:
            dirty = {*rows, *self._lines}
        dirty |= {number for number, (_, line) in self._lines.items() if line.wait}
        dirty |= rows.keys() ^ self._lines.keys()
        is_first = not self._lines and not self._whole_before
        changes = [self._update(number, rows, entries, version) for number in dirty]
        is_any_leaving = any(row.leaving is not None for row in rows.values())
        self.max_age_s = _LEAVING_S if is_any_leaving else None
        if is_first:
            self._whole_before = version
        return any(changes) or is_first

    def _update(
        self,
        number: int,
        rows: Mapping[int, ExperimentRow],
        entries: Mapping[int, QueueEntry],
        version: int,
    ) -> bool:
        row = rows.get(number)
        if row is None:
            return self._remove(number, version)
        line = build_line(row, entries.get(number), time.time())
        if number in self._lines and self._lines[number][1] == line:
            return False
        self._lines[number] = (version, line)
        self._gone.pop(number, None)
        return True

    def _remove(self, number: int, version: int) -> bool:
        if self._lines.pop(number, None) is None:
            return False
        self._gone[number] = version
        while len(self._gone) > MAX_GONE:
            self._whole_before = self._gone.pop(next(iter(self._gone)))
        return True

    def news(self, since: int) -> Any:
        is_whole = since < self._whole_before or since == 0
        return ExperimentNews(
            is_whole=is_whole,
            rows=[line for version, line in self._lines.values() if is_whole or version > since],
            gone=[] if is_whole else [n for n, version in self._gone.items() if version > since],
        )


class StateSource:
    """Makes whole states by a function of the overview.

    Args:
        build: Returns the state, None while there is none.
        concerns: Returns whether the state depends on these changed and deleted experiments;
            called without any when slots or queues have changed.
    """

    max_age_s: float | None = None

    def __init__(
        self,
        overview: Overview,
        build: Callable[[], Any],
        *,
        concerns: Callable[[Ids, Ids], bool] = lambda changed, gone: True,
        period_s: float,
    ) -> None:
        self.period_s = period_s
        self._overview = overview
        self._build = build
        self._concerns = concerns
        self._state: Any = None

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        def on_overview(changed: Ids, gone: Ids) -> None:
            if self._concerns(changed, gone):
                mark_stale()

        return self._overview.listeners.add(on_overview)

    def update(self, version: int) -> bool:
        state = self._build()
        if state is None or state == self._state:
            return False
        self._state = state
        return True

    def news(self, since: int) -> Any:
        return self._state


def cluster_source(overview: Overview) -> StateSource:
    def build() -> Any:
        if overview.cluster is None or not overview.is_ready:
            return None
        return build_cluster_news(overview.cluster, overview.rows.values(), time.time())

    return StateSource(overview, build, period_s=0.25)


def trials_source(overview: Overview, connection: MasterConnection) -> StateSource:
    def build() -> Any:
        return build_trials(connection.client().holding(), overview.rows)

    return StateSource(overview, build, period_s=1.0)


def comparison_source(
    overview: Overview, connection: MasterConnection, numbers: Sequence[int]
) -> StateSource:
    """Return the source of `comparison`; it ends when one of its experiments is deleted."""
    gone_numbers: set[int] = set()

    def concerns(changed: Ids, gone: Ids) -> bool:
        gone_numbers.update({*gone} & {*numbers})
        return bool({*changed, *gone} & {*numbers})

    def build() -> Any:
        if gone_numbers:
            raise NotFound(f"experiment {min(gone_numbers)} was deleted")
        return Comparison(fetch_experiments(connection.client(), numbers)).state

    return StateSource(overview, build, concerns=concerns, period_s=2.0)
