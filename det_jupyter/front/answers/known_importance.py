"""The importance of a search's hyperparameters, asked for again when more trials have ended."""

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
    """What the master answered last; None before the first answer."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._num_ended = -1
        self._asked_at = -_PERIOD_S
        self._asking: threading.Thread | None = None
        self.latest: ImportanceView | None = None

    def refresh(self, live: LiveExperiment | None) -> None:
        """Ask the master if more trials have ended, every few seconds at most.

        The master imports Optuna for the first answer, which takes seconds: the view does not wait
        for it, unless the search has ended and this is its last picture.
        """
        if live is None or live.experiment.search is None or len(live.experiment.trials) < 2:
            return
        view = live.experiment
        num_ended = sum(trial.state.is_terminal for trial in view.trials)
        if num_ended == self._num_ended:
            return
        if view.state.is_terminal:
            self._ask(num_ended)
        elif time.monotonic() > self._asked_at + _PERIOD_S and (
            self._asking is None or not self._asking.is_alive()
        ):
            self._asked_at = time.monotonic()
            self._asking = threading.Thread(
                target=self._ask, args=(num_ended,), name="det-importance", daemon=True
            )
            self._asking.start()

    def _ask(self, num_ended: int) -> None:
        try:
            answer = self._client.importance(self._experiment_id)
            if num_ended > self._num_ended:  # else one that was asked for later was faster
                self.latest, self._num_ended = answer, num_ended
        except DetError as error:  # a view goes on without it
            logger.info("experiment=%d: no importance: %s", self._experiment_id, error)
