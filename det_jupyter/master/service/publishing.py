"""Writes views of what has changed into the feed, with each event.

A view that raises is logged: the event has been handled, whether its outcome can be shown or not.
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

# What may be large: a follower has it from the first item, and again when it has changed.
SELDOM_TOLD = {"experiment": {"config", "capsule"}, "trial": {"hparams"}}


class KnownProgress:
    """Progress by trial, read when it is needed: a search has many trials, few of them move."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[int, tuple[int, float]] = {}

    def get(self, trial_id: int, default: tuple[int, float], /) -> tuple[int, float]:
        if trial_id not in self._known:
            self._known[trial_id] = self._store.progress_of(trial_id) or default
        return self._known[trial_id]

    def set(self, trial_id: int, progress: tuple[int, float]) -> None:
        self._known[trial_id] = progress


class PublishedParts:
    """The large, seldom changed parts that followers know already.

    A changed part is another object, and so is each one that was restored from the store.
    """

    def __init__(self) -> None:
        self._parts: dict[tuple[str, int], object] = {}

    def is_news(self, kind: str, part_id: int, part: object) -> bool:
        """Return whether a part is new to followers, and note it as known."""
        is_known = self._parts.get((kind, part_id)) is part
        self._parts[kind, part_id] = part
        return not is_known

    def forget(self, state: MachineState) -> None:
        """Forget what is no more."""
        of: dict[str, Container[int]] = {"experiment": state.experiments, "trial": state.trials}
        self._parts = {key: part for key, part in self._parts.items() if key[1] in of[key[0]]}


class Publisher:
    """Writes feed items, within one transaction of the store."""

    def __init__(
        self, machine: Machine, store: Store, now: float, sentence: Sentence, told: PublishedParts
    ) -> None:
        self.progress = KnownProgress(store)
        self._machine = machine
        self._store = store
        self._now = now
        self._sentence = sentence
        self._told = told
        self._queue_before = machine.queue.version
        self._moved: set[int] = set()  # trials with progress that is not in the feed yet

    def read_progress_anew(self) -> None:
        """Drop the progress in memory: some of it was rolled back."""
        self.progress = KnownProgress(self._store)

    def note_progress(
        self, trial_id: int, steps_completed: int, fraction: float | None = None
    ) -> None:
        """Note how far a trial is.

        Args:
            steps_completed: At least this many; a record may name fewer than one before it.
            fraction: What these steps are of its length; when missing, taken from the last one.
        """
        steps_before, fraction_before = self.progress.get(trial_id, (0, 0.0))
        steps = max(steps_completed, steps_before)
        if fraction is None or steps_completed == 0:
            known_steps, known_fraction = steps_before, fraction_before
            if not known_fraction:  # a script need not report any
                known_steps, known_fraction = self._length_of(trial_id), 1.0
        else:
            known_steps, known_fraction = steps_completed, fraction
        # Steps and fraction always move together: their quotient is the trial's length.
        grown = known_fraction * steps / known_steps if known_steps else fraction_before
        self._set_progress(trial_id, steps, min(1.0, grown))

    def cut_progress(self, trial_id: int, steps_completed: int) -> None:
        """Note that a trial is this far at most."""
        steps_before, fraction = self.progress.get(trial_id, (0, 0.0))
        if steps_before > steps_completed:
            left = steps_completed / steps_before
            self._set_progress(trial_id, steps_completed, fraction * left)

    def _length_of(self, trial_id: int) -> int:
        """Return the batches that the configuration lets a trial train; 0 if it does not say."""
        trial = self._machine.state.trials.get(trial_id)
        if trial is None:
            return 0
        length = self._machine.state.experiments[trial.experiment_id].settings.searcher.max_length
        # One batch is what a script gets that has no length of its own.
        is_known = length is not None and length.unit == "batches" and length.amount > 1
        return length.amount if is_known and length is not None else 0

    def _set_progress(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        self.progress.set(trial_id, (steps_completed, fraction))
        self._moved.add(trial_id)
        self._store.set_progress(trial_id, steps_completed, fraction)

    def set_verdict(self, trial_id: int, verdict: Verdict) -> None:
        """Keep what limits a trial."""
        self._store.set_verdict(trial_id, verdict)
        self._moved.add(trial_id)

    def publish_progress(self) -> None:
        """Publish progress and verdicts that no event has published; to be called last."""
        trials = self._machine.state.trials
        self._moved &= trials.keys()
        for trial_id in sorted(self._moved):
            self._publish_trial(trial_id, is_passing=True)
        for experiment_id in sorted({trials[i].experiment_id for i in self._moved}):
            self._publish_experiment(experiment_id, is_passing=True)
        if self._machine.queue.version != self._queue_before:
            self._store.feed.add_item(
                "cluster", self._now, experiment_id=0, trial_id=None, text="{}", is_passing=True
            )

    def publish(self, changes: Changes) -> None:
        state = self._machine.state  # what was deleted meanwhile is not in there any more
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
        )
        is_whole = self._told.is_news("experiment", experiment_id, experiment.config)
        self._publish_view("experiment", view, experiment_id, None, is_passing, is_whole)

    def _publish_trial(self, trial_id: int, *, is_passing: bool = False) -> None:
        trial = self._machine.state.trials[trial_id]
        view = partial(trial_view, trial, self.progress, self._sentence, self._store.verdict)
        is_whole = self._told.is_news("trial", trial_id, trial.hparams)
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
            text = view().model_dump_json(exclude=None if is_whole else SELDOM_TOLD[kind])
        except Exception:  # the event is handled, whether its outcome can be shown or not
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
