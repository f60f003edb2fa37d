"""What `experiment.wait()` says while nothing of the experiment runs: each reason once."""

from __future__ import annotations

import time

from tqdm import tqdm

from det_jupyter.client.reasons import reason_text
from det_jupyter.view import WaitingNews
from det_jupyter.view.live import LiveExperiment

_FIRST_AFTER_S = 1.0  # a trial that starts at once waits for some milliseconds too


class WaitReasons:
    """Prints why an experiment waits, and again when it waits for something else."""

    def __init__(self) -> None:
        self._news = WaitingNews()
        self._from = time.monotonic() + _FIRST_AFTER_S

    def tick(self, live: LiveExperiment) -> None:
        """Say what is new; to be called now and then."""
        if time.monotonic() < self._from:
            return
        reason = self._news.reason(live.experiment, live.reasons)
        if reason is not None:
            tqdm.write(reason_text(reason))  # above a terminal's bar, not through it
