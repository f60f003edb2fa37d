"""Writes views of changed experiments, trials and checkpoints into the feed, with each event.

If making a view raises, that is logged, because the event itself was handled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Container
from functools import partial

from det_jupyter.contract.messages import Verdict, Wire
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.machine.model.turn import Changes
from det_jupyter.master.service.feed import ItemKind
from det_jupyter.master.service.store import Store
from det_jupyter.master.views.experiment_views import Sentence, experiment_view, trial_view

logger = logging.getLogger(__name__)

# Fields that may be large: only the first item has them, and an item after a change.
SELDOM_SENT = {"experiment": {"config", "capsule"}, "trial": {"hparams"}}


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


class PublishedParts:
    """The large fields (SELDOM_SENT) that are in the feed already.

    Fields are compared as objects: a changed field is another object, and so is one that was
    restored from the store.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], object] = {}

    def add(self, kind: str, part_id: int, part: object) -> bool:
        """Add a field of an experiment or trial; return whether it was not in the feed."""
        is_published = self._parts.get((kind, part_id)) is part
        self._parts[kind, part_id] = part
        return not is_published

    def drop_deleted(self, state: MachineState) -> None:
        """Drop the fields of experiments and trials that were deleted."""
        of: dict[str, Container[int]] = {"experiment": state.experiments, "trial": state.trials}
        self._parts = {key: part for key, part in self._parts.items() if key[1] in of[key[0]]}


class Publisher:
    """Writes feed items and progress, within one transaction of the store."""

    def __init__(
        self,
        machine: Machine,
        store: Store,
        now: float,
        sentence: Sentence,
        published: PublishedParts,
    ) -> None:
        self.progress = ProgressCache(store)
        self._machine = machine
        self._store = store
        self._now = now
        self._sentence = sentence
        self._published = published
        self._queue_before = machine.queue.version
        self._moved: set[int] = set()  # trials whose progress or verdict is not in the feed yet

    def clear_progress_cache(self) -> None:
        """Read progress from the store again, because some of it was rolled back."""
        self.progress = ProgressCache(self._store)

    def advance_progress(
        self, trial_id: int, steps_completed: int, fraction: float | None = None
    ) -> None:
        """Store the progress of a trial; its steps never decrease.

        Args:
            steps_completed: May be less than in an earlier record; then the earlier value counts.
            fraction: The part of the trial's length that these steps are; if None, it is computed
                from the last progress.
        """
        steps_before, fraction_before = self.progress.get(trial_id, (0, 0.0))
        steps = max(steps_completed, steps_before)
        if fraction is None or steps_completed == 0:
            of_steps, of_fraction = steps_before, fraction_before
            if not of_fraction:  # scripts need not report one
                of_steps, of_fraction = self._length_of(trial_id), 1.0
        else:
            of_steps, of_fraction = steps_completed, fraction
        # The quotient of steps and fraction is the trial's length.
        advanced = of_fraction * steps / of_steps if of_steps else fraction_before
        self._set_progress(trial_id, steps, min(1.0, advanced))

    def cut_progress(self, trial_id: int, steps_completed: int) -> None:
        """Reduce a trial's progress to at most these steps."""
        steps_before, fraction = self.progress.get(trial_id, (0, 0.0))
        if steps_before > steps_completed:
            left = steps_completed / steps_before
            self._set_progress(trial_id, steps_completed, fraction * left)

    def _length_of(self, trial_id: int) -> int:
        """Return the number of batches of a trial in its configuration; 0 if there is none."""
        trial = self._machine.state.trials.get(trial_id)
        if trial is None:
            return 0
        length = self._machine.state.experiments[trial.experiment_id].settings.searcher.max_length
        if length is None or length.unit != "batches":
            return 0
        # A length of one batch is the default of scripts, which have no length in batches.
        return length.amount if length.amount > 1 else 0

    def _set_progress(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        self.progress.set(trial_id, (steps_completed, fraction))
        self._moved.add(trial_id)
        self._store.set_progress(trial_id, steps_completed, fraction)

    def set_verdict(self, trial_id: int, verdict: Verdict) -> None:
        """Store the verdict on a trial (what limits its speed)."""
        self._store.set_verdict(trial_id, verdict)
        self._moved.add(trial_id)

    def publish_progress(self) -> None:
        """Publish progress and verdicts that no event has published. Called last."""
        trials = self._machine.state.trials
        self._moved &= trials.keys()
        for trial_id in sorted(self._moved):
            self._publish_trial(trial_id, is_passing=True)
        for experiment_id in sorted({trials[i].experiment_id for i in self._moved}):
            self._publish_experiment(experiment_id, is_passing=True)
        if self._machine.queue.version != self._queue_before:
            self.publish_cluster()

    def publish_cluster(self) -> None:
        """Publish that GET /cluster has another answer."""
        self._store.feed.add_item(
            "cluster", self._now, experiment_id=0, trial_id=None, text="{}", is_passing=True
        )

    def publish(self, changes: Changes) -> None:
        """Write views of what an event has changed."""
        state = self._machine.state  # deleted experiments and trials are not in it
        for experiment_id in sorted(changes.experiments & state.experiments.keys()):
            self._publish_experiment(experiment_id)
        for trial_id in sorted(changes.trials & state.trials.keys()):
            self._publish_trial(trial_id)
        for uuid in sorted(changes.checkpoints & state.checkpoints.keys()):
            checkpoint = state.checkpoints[uuid]
            self._store.feed.add_item(
                "checkpoint",
                self._now,
                experiment_id=checkpoint.experiment_id,
                trial_id=checkpoint.trial_id,
                text=checkpoint.model_dump_json(),
            )

    def announce_experiment(self, experiment_id: int) -> None:
        """Publish what has changed of an experiment outside of the machine's state."""
        if experiment_id in self._machine.state.experiments:
            self._publish_experiment(experiment_id, is_passing=True)

    def _publish_experiment(self, experiment_id: int, *, is_passing: bool = False) -> None:
        state = self._machine.state
        experiment = state.experiments[experiment_id]
        view = partial(
            experiment_view,
            state,
            self.progress,
            experiment,
            living=self._machine.indexes.unfinished_trials(experiment_id),
            sentence=self._sentence,
            with_trials=False,
            trackers=self._store.tracked.states(experiment_id),
        )
        is_whole = self._published.add("experiment", experiment_id, experiment.config)
        self._publish_view("experiment", view, experiment_id, None, is_passing, is_whole)

    def _publish_trial(self, trial_id: int, *, is_passing: bool = False) -> None:
        state = self._machine.state
        trial = state.trials[trial_id]
        view = partial(
            trial_view, state, trial, self.progress, self._sentence, self._store.verdict
        )
        is_whole = self._published.add("trial", trial_id, trial.hparams)
        self._publish_view("trial", view, trial.experiment_id, trial_id, is_passing, is_whole)

    def _publish_view(
        self,
        kind: ItemKind,
        view: Callable[[], Wire],
        experiment_id: int,
        trial_id: int | None,
        is_passing: bool,
        is_whole: bool,
    ) -> None:
        try:
            text = view().model_dump_json(exclude=None if is_whole else SELDOM_SENT[kind])
        except Exception:  # the event was handled all the same
            logger.exception("experiment=%d trial=%s cannot be shown", experiment_id, trial_id)
            return
        self._store.feed.add_item(
            kind,
            self._now,
            experiment_id=experiment_id,
            trial_id=trial_id,
            text=text,
            is_passing=is_passing and not is_whole,
            is_whole=is_whole,
        )
