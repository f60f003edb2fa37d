"""Documents made from the overview: `experiments`, `cluster`, `trials` and `comparison`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from det_jupyter.client.handles.compare import Comparison, fetch_experiments
from det_jupyter.contract.documents.patches import Document, plain
from det_jupyter.contract.messages import ExperimentRow, QueueEntry
from det_jupyter.errors import NotFound
from det_jupyter.reader.overview import Ids, Overview
from det_jupyter.reader.replica import Replica
from det_jupyter.view.making.sidebar_lines import (
    build_cluster_state,
    build_row,
    build_trials,
    first_entries,
)
from det_jupyter.view.model.sidebar import LEFT_OUT

# While ranks leave: their sentences contain how long they have taken, so they are made anew.
_LEAVING_S = 5.0


class ExperimentsSource:
    """Makes an ExperimentList; lines of experiments that have not changed are reused."""

    period_s = 0.1
    max_age_s: float | None = None

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._lock = threading.Lock()  # guards `_dirty`, to which listeners add in another thread
        self._dirty: set[int] | None = None  # ids of experiments with stale lines; None: all
        self._lines: dict[int, Document] = {}

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        def on_overview(changed: Ids, gone: Ids) -> None:
            with self._lock:
                if self._dirty is not None:
                    self._dirty.update(changed, gone)
            mark_stale()

        self._dirty = None
        return self._overview.listeners.add(on_overview)

    def make(self) -> Document | None:
        overview = self._overview
        if not overview.is_ready:
            return None
        with self._lock:
            dirty, self._dirty = self._dirty, set()
        rows, entries = overview.rows, first_entries(overview.cluster)
        if dirty is None:
            dirty = {*rows}
        dirty |= {number for number, line in self._lines.items() if line["wait"]}
        dirty |= rows.keys() - self._lines.keys()
        self._lines = {
            number: self._line(row, entries) if number in dirty else self._lines[number]
            for number, row in rows.items()
        }
        is_any_leaving = any(row.leaving is not None for row in rows.values())
        self.max_age_s = _LEAVING_S if is_any_leaving else None
        return {"rows": {str(number): line for number, line in self._lines.items()}}

    def _line(self, row: ExperimentRow, entries: Mapping[int, QueueEntry]) -> Document:
        fields = vars(build_row(row, entries.get(row.id), time.time()))
        line = {name: plain(value) for name, value in fields.items() if name not in LEFT_OUT}
        before = self._lines.get(row.id)
        return before if line == before else line


class StateSource:
    """Makes documents by a function of the overview.

    Args:
        build: Returns the document, None while its data are not known.
        concerns: Returns whether the document depends on one of these changed and deleted
            experiments; called with empty sets when slots or queues have changed.
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

    def start(self, mark_stale: Callable[[], None]) -> Callable[[], None]:
        def on_overview(changed: Ids, gone: Ids) -> None:
            if self._concerns(changed, gone):
                mark_stale()

        return self._overview.listeners.add(on_overview)

    def make(self) -> Document | None:
        data = self._build()
        return None if data is None else plain(data)


def cluster_source(overview: Overview) -> StateSource:
    def build() -> Any:
        if overview.cluster is None or not overview.is_ready:
            return None
        return build_cluster_state(overview.cluster, overview.rows.values(), time.time())

    return StateSource(overview, build, period_s=0.25)


def trials_source(overview: Overview, replica: Replica) -> StateSource:
    def build() -> Any:
        if not overview.is_ready:
            return None
        with replica.viewing() as views:
            holding = views.holding()
        return build_trials(holding, overview.rows)

    return StateSource(overview, build, period_s=1.0)


def comparison_source(overview: Overview, replica: Replica, numbers: Sequence[int]) -> StateSource:
    """Return the source of `comparison`, which ends when one of its experiments is deleted."""
    gone_numbers: set[int] = set()

    def concerns(changed: Ids, gone: Ids) -> bool:
        gone_numbers.update({*gone} & {*numbers})
        return bool({*changed, *gone} & {*numbers})

    def build() -> Any:
        if gone_numbers:
            raise NotFound(f"experiment {min(gone_numbers)} was deleted")
        replica.advance()  # an experiment may just have been submitted
        return Comparison(fetch_experiments(replica, numbers)).state

    return StateSource(overview, build, concerns=concerns, period_s=2.0)
