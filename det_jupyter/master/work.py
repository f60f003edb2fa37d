"""One transaction in the making: events go through the machine, rows into the store.

Commit, then act: commands to agents are only collected here. What followers are told is written
with each event, so that none of the states in between is lost.
"""

from __future__ import annotations

import logging
from typing import assert_never

from det_jupyter.errors import DetError
from det_jupyter.master.commands import (
    ConsultSampler,
    DeleteCheckpoints,
    DeleteExperiment,
    Deletion,
    ToAgent,
    TruncateMetrics,
)
from det_jupyter.master.events import Event
from det_jupyter.master.machine import Machine
from det_jupyter.master.matching import Matcher
from det_jupyter.master.store import Store
from det_jupyter.master.turn import Changes
from det_jupyter.master.views import Reasons, experiment_view, trial_view

logger = logging.getLogger(__name__)

# A snapshot's cost grows with the number of trials: so does the time between two, and an event's
# share of it stays the same. So many events are replayed at most, some ten thousand a second.
_SNAPSHOT_EVERY = 200
_EVENTS_PER_TRIAL = 0.2


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


class Work:
    """What one transaction does.

    Args:
        machine: Handles the events.
        store: Is inside a transaction while this exists.
        now: The time of all of it.
        reasons: Say why trials do not run.
        matcher: Looks for what log policies look for.
    """

    def __init__(
        self,
        machine: Machine,
        store: Store,
        now: float,
        reasons: Reasons,
        matcher: Matcher | None = None,
    ) -> None:
        self.machine = machine
        self.matcher = matcher or Matcher()
        self._reasons = reasons
        self._pools_before = machine.pools.version
        self.store = store
        self.now = now
        self.commands: list[ToAgent] = []
        self.questions: list[ConsultSampler] = []
        self.deletions: list[Deletion] = []
        self.is_machine_ahead = False  # of the store, should the transaction fail
        self._progress = KnownProgress(store)
        self._moved: set[int] = set()  # trials whose progress nobody was told of

    def handle(self, event: Event) -> None:
        """Let the machine handle an event; write down that it did and what has changed.

        Raises:
            DetError: The machine refuses; nothing has changed.
        """
        was_ahead, self.is_machine_ahead = self.is_machine_ahead, True
        try:
            commands = self.machine.handle(event, self.now)
        except DetError:
            self.is_machine_ahead = was_ahead
            raise
        seq = self.machine.state.seq
        logger.info("event %d: %s", seq, _in_brief(event))
        self.store.add_event(seq, self.now, event.model_dump_json())
        for command in commands:
            match command:
                case TruncateMetrics():
                    self._truncate(command)
                case ToAgent():
                    self.commands.append(command)
                case ConsultSampler():
                    self.questions.append(command)
                case DeleteCheckpoints() | DeleteExperiment():
                    self.deletions.append(command)
                case _:
                    assert_never(command)
        self._publish(self.machine.changes())
        num_trials = len(self.machine.state.trials)
        if seq - self.store.snapshot_seq >= max(_SNAPSHOT_EVERY, _EVENTS_PER_TRIAL * num_trials):
            self.store.add_snapshot(seq, self.machine.dump())

    def note_progress(
        self, trial_id: int, steps_completed: int, fraction: float | None = None
    ) -> None:
        """Note how far a trial is.

        Args:
            trial_id: The trial.
            steps_completed: So many at least; a record may tell of fewer than another before it.
            fraction: What these steps are of its length; when missing, taken from the last one.
        """
        steps_before, fraction_before = self._progress.get(trial_id, (0, 0.0))
        steps = max(steps_completed, steps_before)
        if fraction is None or steps_completed == 0:
            known_steps, known_fraction = steps_before, fraction_before
        else:
            known_steps, known_fraction = steps_completed, fraction
        # Steps and fraction always move together: who divides them gets the trial's length.
        grown = known_fraction * steps / known_steps if known_steps else known_fraction
        self._set_progress(trial_id, steps, min(1.0, grown))

    def _truncate(self, command: TruncateMetrics) -> None:
        trial_id, steps_completed = command.trial_id, command.steps_completed
        self.store.truncate_metrics(trial_id, steps_completed)
        self.store.add_item(
            "truncated",
            self.now,
            experiment_id=command.experiment_id,
            trial_id=trial_id,
            text=f'{{"steps_completed":{steps_completed}}}',
        )
        steps_before, fraction = self._progress.get(trial_id, (0, 0.0))
        if steps_before > steps_completed:
            left = steps_completed / steps_before
            self._set_progress(trial_id, steps_completed, fraction * left)

    def _set_progress(self, trial_id: int, steps_completed: int, fraction: float) -> None:
        self._progress.set(trial_id, (steps_completed, fraction))
        self._moved.add(trial_id)
        self.store.set_progress(trial_id, steps_completed, fraction)

    def publish_progress(self) -> None:
        """Tell followers of the progress that no event has told them of; the last thing to do."""
        trials = self.machine.state.trials
        for trial_id in sorted(self._moved):
            self._publish_trial(trial_id, is_passing=True)
        for experiment_id in sorted({trials[i].experiment_id for i in self._moved}):
            self._publish_experiment(experiment_id, is_passing=True)
        if self.machine.pools.version != self._pools_before:
            self.store.add_item(
                "cluster", self.now, experiment_id=0, trial_id=None, text="{}", is_passing=True
            )

    def _publish(self, changes: Changes) -> None:
        state = self.machine.state  # what was deleted meanwhile is not in there any more
        for experiment_id in sorted(changes.experiments & state.experiments.keys()):
            self._publish_experiment(experiment_id)
        for trial_id in sorted(changes.trials & state.trials.keys()):
            self._publish_trial(trial_id)
        for uuid in sorted(changes.checkpoints & state.checkpoints.keys()):
            checkpoint = state.checkpoints[uuid]
            self.store.add_item(
                "checkpoint",
                self.now,
                experiment_id=checkpoint.experiment_id,
                trial_id=checkpoint.trial_id,
                text=checkpoint.model_dump_json(),
            )

    def _publish_experiment(self, experiment_id: int, *, is_passing: bool = False) -> None:
        state = self.machine.state
        view = experiment_view(
            state,
            self._progress,
            state.experiments[experiment_id],
            living=self.machine.roster.living(experiment_id),
            reasons=self._reasons,
            with_trials=False,
        )
        self.store.add_item(
            "experiment",
            self.now,
            experiment_id=experiment_id,
            trial_id=None,
            text=view.model_dump_json(),
            is_passing=is_passing,
        )

    def _publish_trial(self, trial_id: int, *, is_passing: bool = False) -> None:
        view = trial_view(self.machine.state.trials[trial_id], self._progress, self._reasons)
        self.store.add_item(
            "trial",
            self.now,
            experiment_id=view.experiment_id,
            trial_id=trial_id,
            text=view.model_dump_json(),
            is_passing=is_passing,
        )


def _in_brief(event: Event) -> str:
    about = ("experiment_id", "agent_id", "allocation_id", "rank", "steps_completed", "metric")
    values = [f"{name}={getattr(event, name)}" for name in about if hasattr(event, name)]
    record = getattr(event, "record", None)
    return " ".join([event.kind, *values, *([record.kind] if record else [])])
