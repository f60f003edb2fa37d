"""Topics made of the overview: `experiments`, `cluster`, `trials` and `comparison`.

Of `experiments`, all are sent at first, then those that have changed. News of the others are a
whole state; one that is the same as the one before is not sent again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from det_jupyter.client.compare import Comparison, fetch_experiments
from det_jupyter.contract.messages import ExperimentRow, QueueEntry
from det_jupyter.errors import NotFound
from det_jupyter.front.pages.master import MasterLine
from det_jupyter.front.pages.overview import Numbers, Overview
from det_jupyter.view.build.sidebar import (
    build_cluster_news,
    build_line,
    build_trials,
    first_entries,
)
from det_jupyter.view.model.sidebar import ExperimentLine, ExperimentNews

MAX_GONE = 1000  # numbers that are remembered for tabs that have not heard of it


class Experiments:
    """Makes ExperimentNews."""

    period_s = 0.1
    beat_s: float | None = None

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._lock = threading.Lock()  # of what is dirty: others note it meanwhile
        self._dirty: set[int] | None = None  # None: all
        self._lines: dict[int, tuple[int, ExperimentLine]] = {}  # with the version of each
        self._gone: dict[int, int] = {}
        self._whole_before = 0  # a tab with less than this version is sent all

    def begin(self, mark: Callable[[], None]) -> Callable[[], None]:
        def note(changed: Numbers, gone: Numbers) -> None:
            with self._lock:
                if self._dirty is not None:
                    self._dirty.update(changed, gone)
            mark()

        self._dirty = None
        return self._overview.listeners.add(note)

    def make(self, version: int) -> bool:
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
        line = build_line(row, entries.get(number))
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


class Whole:
    """Makes states by a function of the overview.

    Args:
        build: Returns the state, None while there is none.
        concerns: Whether changes of these experiments, or of slots if there are none, matter.
    """

    beat_s: float | None = None

    def __init__(
        self,
        overview: Overview,
        build: Callable[[], Any],
        *,
        concerns: Callable[[Numbers, Numbers], bool] = lambda changed, gone: True,
        period_s: float,
    ) -> None:
        self.period_s = period_s
        self._overview = overview
        self._build = build
        self._concerns = concerns
        self._state: Any = None

    def begin(self, mark: Callable[[], None]) -> Callable[[], None]:
        def note(changed: Numbers, gone: Numbers) -> None:
            if self._concerns(changed, gone):
                mark()

        return self._overview.listeners.add(note)

    def make(self, version: int) -> bool:
        state = self._build()
        if state is None or state == self._state:
            return False
        self._state = state
        return True

    def news(self, since: int) -> Any:
        return self._state


def cluster_topic(overview: Overview) -> Whole:
    def build() -> Any:
        if overview.cluster is None or not overview.is_ready:
            return None
        return build_cluster_news(overview.cluster, overview.rows.values(), time.time())

    return Whole(overview, build, period_s=0.25)


def trials_topic(overview: Overview, line: MasterLine) -> Whole:
    def build() -> Any:
        return build_trials(line.client().holding(), overview.rows)

    return Whole(overview, build, period_s=1.0)


def comparison_topic(overview: Overview, line: MasterLine, numbers: Sequence[int]) -> Whole:
    """Return the topic `comparison`; it is over when one of the experiments is deleted."""
    gone_numbers: set[int] = set()

    def concerns(changed: Numbers, gone: Numbers) -> bool:
        gone_numbers.update({*gone} & {*numbers})
        return bool({*changed, *gone} & {*numbers})

    def build() -> Any:
        if gone_numbers:
            raise NotFound(f"experiment {min(gone_numbers)} was deleted")
        return Comparison(fetch_experiments(line.client(), numbers)).state

    return Whole(overview, build, concerns=concerns, period_s=2.0)
