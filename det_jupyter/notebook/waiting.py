"""What `experiment.wait()` says while nothing of the experiment runs: each reason once."""

from __future__ import annotations

import time
from contextlib import suppress

from tqdm import tqdm

from det_jupyter.client import Client, LiveExperiment
from det_jupyter.client.ranking import describe_trial
from det_jupyter.client.reasons import is_queued, reason_text
from det_jupyter.errors import DetError
from det_jupyter.wire import ExperimentView, Reason, TrialView

_FIRST_AFTER_S = 1.0  # a trial that starts at once waits for some milliseconds too
_AGAIN_AFTER_S = 5.0
_QUEUEING = ("slots", "turn", "max_slots", "occupied", "disabled", "no_agent", "agent_gone",
             "impossible")  # fmt: skip


class WaitReasons:
    """Prints why an experiment waits, and again when it waits for something else."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._said: object = None
        self._ask_at = time.monotonic() + _FIRST_AFTER_S

    def tick(self, live: LiveExperiment) -> None:
        """Look whether there is something new to say; cheap as long as a trial runs."""
        trial = first_waiting(live.experiment)
        if trial is None or time.monotonic() < self._ask_at:
            return
        self._ask_at = time.monotonic() + _AGAIN_AFTER_S
        with suppress(DetError):  # it runs by now, or the master is being restarted
            self._say(self._client.reason(trial.id))

    def _say(self, reason: Reason) -> None:
        if reason.cause in _QUEUEING and gist(reason) != self._said:
            self._said = gist(reason)
            tqdm.write(reason_text(reason))  # above a terminal's bar, not through it


def first_waiting(view: ExperimentView) -> TrialView | None:
    """Return the first trial that waits for slots if none has any."""
    trials = [trial for trial in view.trials if not trial.state.is_terminal]
    if any(trial.allocation is not None and not is_queued(trial) for trial in trials):
        return None
    return next((t for t in trials if is_queued(t) and describe_trial(t) == "waiting"), None)


def gist(reason: Reason) -> object:
    """Return what makes a reason another one: not its estimate, nor how many are ahead."""
    holders = tuple(sorted(holder.experiment_id for holder in reason.holders))
    pids = tuple(sorted(process.pid for process in reason.processes))
    return reason.cause, holders, pids, tuple(sorted(reason.ahead))
