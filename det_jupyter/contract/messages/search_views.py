"""Views of a search: its brackets and rungs, and changes that a user made."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages.wire import Wire


class RungView(Wire):
    """An amount of training at which trials are compared."""

    length: dict[str, float]  # {"epochs": 4}; of a time metric {name: amount}
    num_results: int = 0
    num_promoted: int = 0


class BracketView(Wire):
    """A bracket of a search: an ASHA with its own rungs."""

    rungs: list[RungView]  # lowest first
    max_trials: int
    num_created: int = 0


class SearchView(Wire):
    """A search as a whole; the rungs of a trial are in the trial's view."""

    name: str
    max_trials: int
    num_created: int = 0
    num_closed: int = 0
    divisor: float | None = None
    brackets: list[BracketView] = []


class SearchChangeView(Wire):
    """A change of a running search: the values of the changed settings before and after."""

    at: float
    before: dict[str, Any]
    after: dict[str, Any]
