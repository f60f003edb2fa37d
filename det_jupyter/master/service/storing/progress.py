"""How far trials are, and what limits their speed: rows that are not part of events."""

from __future__ import annotations

from det_jupyter.contract.messages import Verdict
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.service.storing.store import Store


class ProgressCache:
    """Progress by trial, read from the store when it is needed.

    A search has many trials, of which few train at a time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[int, tuple[int, float]] = {}

    def get(self, trial_id: int, default: tuple[int, float], /) -> tuple[int, float]:
        if trial_id not in self._read:
            self._read[trial_id] = self._store.progress_of(trial_id) or default
        return self._read[trial_id]

    def set(self, trial_id: int, progress: tuple[int, float]) -> None:
        self._read[trial_id] = progress


class StoredProgress:
    """Stores progress and verdicts, within one transaction of the store.

    Attributes:
        moved: Trials whose progress or verdict was stored.
    """

    def __init__(self, state: MachineState, store: Store) -> None:
        self.moved: set[int] = set()
        self._state = state
        self._store = store
        self._read = ProgressCache(store)

    def clear_cache(self) -> None:
        """Forget cached progress, because some of it was rolled back."""
        self._read = ProgressCache(self._store)

    def advance(self, trial_id: int, steps_completed: int, fraction: float | None = None) -> None:
        """Store the progress of a trial; its steps never decrease.

        Args:
            steps_completed: May be less than in an earlier record; then the earlier value counts.
            fraction: The part of the trial's length that these steps are; if None, it is computed
                from the last progress.
        """
        steps_before, fraction_before = self._read.get(trial_id, (0, 0.0))
        steps = max(steps_completed, steps_before)
        if fraction is None or steps_completed == 0:
            of_steps, of_fraction = steps_before, fraction_before
            if not of_fraction:  # scripts need not report a fraction
                of_steps, of_fraction = self._length_of(trial_id), 1.0
        else:
            of_steps, of_fraction = steps_completed, fraction
        # The quotient of steps and fraction is the trial's length.
        advanced = of_fraction * steps / of_steps if of_steps else fraction_before
        self._set(trial_id, steps, min(1.0, advanced))

    def cut(self, trial_id: int, steps_completed: int) -> None:
        """Reduce a trial's progress to at most these steps."""
        steps_before, fraction = self._read.get(trial_id, (0, 0.0))
        if steps_before > steps_completed:
            left = steps_completed / steps_before
            self._set(trial_id, steps_completed, fraction * left)

    def set_verdict(self, trial_id: int, verdict: Verdict) -> None:
        """Store the verdict on a trial (what limits its speed)."""
        self._store.set_verdict(trial_id, verdict)
        self.moved.add(trial_id)

    def _length_of(self, trial_id: int) -> int:
        """Return the number of batches of a trial in its configuration; 0 if there is none."""
        trial = self._state.trials.get(trial_id)
        if trial is None:
            return 0
        length = self._state.experiments[trial.experiment_id].settings.searcher.max_length
        if length is None or length.unit != "batches":
            return 0
        # A length of one batch is the default of scripts, which have no length in batches.
        return length.amount if length.amount > 1 else 0

    def _set(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        self._read.set(trial_id, (steps_completed, fraction))
        self.moved.add(trial_id)
        self._store.set_progress(trial_id, steps_completed, fraction)
