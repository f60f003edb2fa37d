"""The importance of a search's hyperparameters, fetched again when more trials have ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from det_jupyter.contract.messages import ExperimentView, ImportanceView
from det_jupyter.errors import DetError

logger = logging.getLogger(__name__)

_PERIOD_S = 5.0


class KnownImportance:
    """Keeps the importance of hyperparameters current; `latest` is None at first.

    Args:
        fetch: Returns the present importance.
        on_new: Called, in another thread, when `latest` has changed.
    """

    def __init__(self, fetch: Callable[[], ImportanceView], on_new: Callable[[], None]) -> None:
        self._fetch_one = fetch
        self._on_new = on_new
        self._num_ended = -1
        self._fetched_at = -_PERIOD_S
        self._fetching: threading.Thread | None = None
        self._is_fetching = False
        self.latest: ImportanceView | None = None

    def refresh(self, view: ExperimentView) -> None:
        """Fetch the importance in a thread if more trials have ended; at most every few seconds.

        The first fetch takes seconds, as Optuna is imported. For a search that has ended, there is
        no pause before a fetch: its state is final, so this may not be called again.
        """
        if view.search is None or len(view.trials) < 2:
            return
        num_ended = sum(trial.state.is_terminal for trial in view.trials)
        if num_ended == self._num_ended:
            return
        # The search was continued with new trials; fetch when the next ends.
        if num_ended < self._num_ended:
            self._num_ended = -1
        is_due = view.state.is_terminal or time.monotonic() > self._fetched_at + _PERIOD_S
        if is_due and not self._is_fetching:
            self._is_fetching, self._fetched_at = True, time.monotonic()
            self._fetching = threading.Thread(
                target=self._fetch_in_thread, args=(num_ended,), name="det-importance", daemon=True
            )
            self._fetching.start()

    def _fetch_in_thread(self, num_ended: int) -> None:
        try:
            is_new = self._fetch(num_ended)
        finally:
            self._is_fetching = False
        if is_new:
            self._on_new()  # last, because it may lead to a call of `refresh`

    def _fetch(self, num_ended: int) -> bool:
        """Fetch the importance; return whether it is new."""
        try:
            answer = self._fetch_one()
        except DetError as error:  # the view is complete without the importance
            logger.info("no importance of hyperparameters: %s", error)
            return False
        self.latest, self._num_ended = answer, num_ended
        return True
