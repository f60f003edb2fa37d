"""The importance of a search's hyperparameters, asked for again when more trials have ended."""

from __future__ import annotations

import logging
import time

from det_jupyter.client import Client
from det_jupyter.errors import DetError
from det_jupyter.view.live import LiveExperiment
from det_jupyter.wire import ImportanceView

logger = logging.getLogger(__name__)

_PERIOD_S = 5.0


class KnownImportance:
    """What the master answered last; None before the first answer."""

    def __init__(self, client: Client, experiment_id: int) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._num_ended = -1
        self._asked_at = -_PERIOD_S
        self.latest: ImportanceView | None = None

    def refresh(self, live: LiveExperiment | None) -> None:
        """Ask the master if more trials have ended; every few seconds at most, till the end."""
        if live is None or live.experiment.search is None:
            return
        view = live.experiment
        num_ended = sum(trial.state.is_terminal for trial in view.trials)
        is_soon = time.monotonic() < self._asked_at + _PERIOD_S
        if len(view.trials) < 2 or num_ended == self._num_ended:
            return
        if is_soon and not view.state.is_terminal:
            return
        self._num_ended, self._asked_at = num_ended, time.monotonic()
        try:
            self.latest = self._client.importance(self._experiment_id)
        except DetError as error:  # a view goes on without it
            logger.info("experiment=%d: no importance: %s", self._experiment_id, error)
