"""Topics whose news are a whole state: `cluster`, `trials`, `comparison`.

A state that is the same as the one before is not sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from det_jupyter.client.compare import Comparison, fetch_experiments
from det_jupyter.errors import NotFound
from det_jupyter.feeder.master import MasterLine
from det_jupyter.feeder.overview import Numbers, Overview
from det_jupyter.view.build.sidebar import build_cluster_news, build_trials


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
