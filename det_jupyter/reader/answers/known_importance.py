"""The importance of a search's hyperparameters, fetched again when more trials have ended."""

from __future__ import annotations

import logging
import threading
import time

from det_jupyter.client import Client
from det_jupyter.contract.messages import ImportanceView
from det_jupyter.errors import DetError
from det_jupyter.view.live import LiveExperiment

logger = logging.getLogger(__name__)

_PERIOD_S = 5.0


class KnownImportance:
    """The newest importance from the master in `latest`, None before the first."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._num_ended = -1
        self._fetched_at = -_PERIOD_S
        self._fetching: threading.Thread | None = None
        self.latest: ImportanceView | None = None

    def refresh(self, live: LiveExperiment | None) -> None:
        """Fetch the importance in a thread if more trials have ended, every few seconds at most.

        The first answer takes seconds, as the master imports Optuna. Only for a search that has
        ended, whose state is final, this waits for the answer.
        """
        if live is None or live.experiment.search is None or len(live.experiment.trials) < 2:
            return
        view = live.experiment
        num_ended = sum(trial.state.is_terminal for trial in view.trials)
        if num_ended == self._num_ended:
            return
        if view.state.is_terminal:
            self._fetch(num_ended)
        elif time.monotonic() > self._fetched_at + _PERIOD_S and (
            self._fetching is None or not self._fetching.is_alive()
        ):
            self._fetched_at = time.monotonic()
            self._fetching = threading.Thread(
                target=self._fetch, args=(num_ended,), name="det-importance", daemon=True
            )
            self._fetching.start()

    def _fetch(self, num_ended: int) -> None:
        try:
            answer = self._client.importance(self._experiment_id)
            if num_ended > self._num_ended:  # a later request may have been answered first
                self.latest, self._num_ended = answer, num_ended
        except DetError as error:  # a view is complete without it
            logger.info("experiment=%d: no importance: %s", self._experiment_id, error)
