"""The contract of search methods, and how one is made from a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from det_jupyter.config.experiment import Searcher
from det_jupyter.searcher.actions import Action, Create, ExitReason, Shutdown, Stop
from det_jupyter.searcher.single import Single


class SearchMethod(Protocol):
    """Decides which trials there are.

    Pure: no clock, no I/O, no randomness but from the experiment's seed. Every call may change the
    method's state, which `snapshot` returns whole; a method made from a snapshot goes on as if
    nothing had happened. Metrics are as reported; NaN is the worst there is.
    """

    def start(self) -> list[Action]:
        """Return what to do first; called once."""

    def on_validation(self, index: int, steps_completed: int, metric: float) -> list[Action]:
        """Take note of a trial's searcher metric."""

    def on_trial_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Take note of a trial's end; called once for each."""

    def snapshot(self) -> dict[str, Any]:
        """Return the state as JSON-ready data."""


def make_search_method(searcher: Searcher, snapshot: Mapping[str, Any]) -> SearchMethod:
    """Return the method that the configuration names, as `snapshot` left it (empty: new)."""
    match searcher.name:
        case "single":
            return Single()


__all__ = [
    "Action",
    "Create",
    "ExitReason",
    "SearchMethod",
    "Shutdown",
    "Stop",
    "make_search_method",
]
