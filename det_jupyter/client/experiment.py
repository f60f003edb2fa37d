"""A handle on one experiment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Self

from det_jupyter.client.checkpoint import POLICY, Checkpoint
from det_jupyter.client.client import Client
from det_jupyter.client.examined import ExaminedExperiment
from det_jupyter.client.follow import Follower, call_at_end
from det_jupyter.client.reasons import ShownReason, ShownVerdict, shown_verdict, telling
from det_jupyter.client.shown import describe_choice, experiment_line, ranked, state_word
from det_jupyter.client.trial import Trial
from det_jupyter.contract.messages import (
    ContinueTrial,
    EffectiveConfig,
    ExperimentView,
    SearchChangeView,
    State,
    TrialView,
)
from det_jupyter.errors import Conflict, DetError, NotFound, RankFailed, WaitTimeout
from det_jupyter.view.live import LiveExperiment

_TICK_S = 0.2


class ShownConfig(EffectiveConfig):
    """An effective configuration that shows itself as YAML."""

    def __repr__(self) -> str:
        return self.yaml


class Experiment(ExaminedExperiment):
    """An experiment that the master runs. Holds nothing that cannot be fetched again."""

    @property
    def view(self) -> ExperimentView:
        """Everything that the master stores of it, fetched now."""
        return self._client.experiment(self.id)

    @property
    def name(self) -> str:
        """Its name."""
        return self.view.name

    @property
    def state(self) -> State:
        """Its state, fetched now."""
        return self.view.state

    @property
    def progress(self) -> float:
        """How far it is, 0..1."""
        return self.view.progress

    @property
    def config(self) -> dict[str, Any]:
        """Its effective configuration, defaults filled in."""
        return self.view.config

    def effective_config(self) -> EffectiveConfig:
        """Return its effective configuration, with the origin of each value; prints as YAML."""
        return ShownConfig(**dict(self._client.effective_config(self.id)))

    @property
    def search_changes(self) -> list[SearchChangeView]:
        """The changes of its search by `change_search`, oldest first: when, before and after."""
        return self.view.search_changes

    @property
    def trials(self) -> list[Trial]:
        """Its trials, in the order in which they were made."""
        return self._trials(self.view.trials)

    def ranking(self) -> list[Trial]:
        """Return its trials, best value of the searcher's metric first, those without one last."""
        return self._trials(ranked(self.view))

    def best_trial(self) -> Trial:
        """Return the trial with the best value of the searcher's metric.

        Raises:
            NotFound: None has reported it yet.
        """
        view = self.view
        best = next(iter(ranked(view)), None)
        if best is None or best.best_metric is None:
            raise NotFound(f"experiment {self.id}: no trial has reported {view.metric} yet")
        return self._trials([best])[0]

    @property
    def trial(self) -> Trial:
        """Its trial, of an experiment that has one.

        Raises:
            NotFound: It has no trial yet.
            Conflict: It is a search; the message says how to choose one of its trials.
        """
        view = self.view
        if view.search is not None and view.search.max_trials > 1:
            raise Conflict(f"experiment {self.id} is a search: {describe_choice(view)}")
        if not view.trials:
            raise NotFound(f"experiment {self.id} has no trial yet")
        return self._trials(view.trials)[0]

    @property
    def verdict(self) -> ShownVerdict:
        """What limits its trial; of a search, the best one that was measured long enough.

        Raises:
            NotFound: It has no trial yet.
        """
        view = self.view
        trials = ranked(view)
        if not trials:
            raise NotFound(f"experiment {self.id} has no trial yet")
        verdicts = (trial.verdict for trial in trials)
        known = next((v for v in verdicts if v is not None and v.kind != "unknown"), None)
        return shown_verdict(known or trials[0].verdict, view.config)

    def why(self) -> ShownReason:
        """Return why it does not run, for the trial of it that is next; prints as a sentence.

        Raises:
            NotFound: It has no trial yet.
        """
        view = self.view
        if not view.trials:
            raise NotFound(f"experiment {self.id} has no trial yet")
        trial = telling(view.trials)
        return ShownReason(**dict(self._client.reason(trial.id)))

    def train_to_the_end(self) -> Self:
        """Train its best trial to the search's full length, as an experiment of its own.

        Raises:
            NotFound: No trial has reported the metric yet.
            Conflict: The search has no length to train to, or the trial trains now.
        """
        return self._handle(self._client.train_on(self.best_trial().id, ContinueTrial()).id)

    def _handle(self, experiment_id: int) -> Self:
        return type(self)(self._client, experiment_id)

    def _trials(self, views: Iterable[TrialView]) -> list[Trial]:
        return [Trial(self._client, view.id, self._handle) for view in views]

    def checkpoints(self) -> list[Checkpoint]:
        """Return its checkpoints, oldest first."""
        return self._checkpoints(self._client.checkpoints(self.id))

    def best_checkpoint(self) -> Checkpoint:
        """Return the checkpoint with the best value of the searcher's metric, of those kept.

        Raises:
            NotFound: No checkpoint was saved together with a validation yet, or none of these
                is kept.
        """
        measured = [c for c in self.checkpoints() if c.searcher_metric is not None]
        kept = [c for c in measured if c.view.state == "COMPLETED"]
        if not kept:
            raise NotFound(self._no_best(len(measured)))
        loss = self.view.direction.loss
        return min(kept, key=lambda c: (loss(c.searcher_metric), c.steps_completed))

    def _no_best(self, num_deleted: int) -> str:
        if not num_deleted:
            return (
                f"experiment {self.id} has no checkpoint with a validation yet; "
                "one is saved when a validation is the best so far, and at the end"
            )
        them = "its only checkpoint" if num_deleted == 1 else f"all {num_deleted} checkpoints"
        return (
            f"experiment {self.id}: its policy ({POLICY}) deleted {them} with a validation; "
            "checkpoints() shows what is left"
        )

    def wait(
        self,
        timeout: float | None = None,
        *,
        on_tick: Callable[[LiveExperiment], None] = lambda live: None,
    ) -> State:
        """Block until it has ended; an interrupt ends the waiting, not the experiment.

        Args:
            timeout: Give up after so many seconds, with a WaitTimeout (a TimeoutError).
            on_tick: Called a few times a second with a current copy.

        Raises:
            RankFailed: It ended with an error; the message has the rank's traceback.
            Conflict: It was paused, so it would not end by itself.
            WaitTimeout: It has not ended after `timeout` seconds.
        """
        deadline = float("inf") if timeout is None else time.monotonic() + timeout
        follower = Follower(self._client, self.id).start()
        try:
            while follower.thread.is_alive() and time.monotonic() < deadline:
                follower.thread.join(_TICK_S)
                if follower.live is not None:
                    on_tick(follower.live)
                    if _is_at_rest(follower.live.experiment):
                        break
        finally:
            follower.stop()
        if follower.error is not None:
            raise follower.error
        return self._outcome(self.view, timeout)

    def on_end(self, callback: Callable[[Self], object]) -> None:
        """Have `callback(experiment)` called once when it has ended, at once if it has already.

        The call comes in a thread of this process, so it needs the process: a script that ends
        before makes no call. An error that the callback raises is logged. A paused experiment has
        not ended; one that is deleted before its end calls nothing.
        """
        call_at_end(self._following_client(), self.id, lambda: callback(self))

    def _following_client(self) -> Client:
        """Return the client with which something in the background follows it."""
        return self._client

    def _plain(self, experiment_id: int) -> Experiment:
        """Return a handle that shows nothing, and that an interrupt reaches, in notebooks too."""
        return Experiment(self._client, experiment_id)

    def _outcome(self, view: ExperimentView, timeout: float | None) -> State:
        if view.state is State.ERROR:
            raise _failure(view)
        if view.state.is_terminal:
            return view.state
        if _is_at_rest(view):
            raise Conflict(f"experiment {self.id} is paused; activate() lets it go on")
        raise WaitTimeout(
            f"experiment {self.id} is {state_word(view)} after {timeout or 0:g} s and goes on"
        )

    def __repr__(self) -> str:
        try:
            return experiment_line(self.view)
        except DetError as error:
            return f"Experiment {self.id} ({error})"


def _is_at_rest(view: ExperimentView) -> bool:
    return view.state is State.PAUSED and all(t.allocation is None for t in view.trials)


def _failure(view: ExperimentView) -> RankFailed:
    failures = [trial.failure for trial in view.trials if trial.failure is not None]
    first = failures[0] if failures else None
    # A traceback shows the place itself.
    place = f" (at {first.where})" if first and first.where and not first.traceback else ""
    return RankFailed(
        f"{view.message}{place}",
        run=f"experiment {view.id}",
        rank=first.rank if first else None,
        exit_code=first.exit_code if first else None,
        remote_traceback=first.traceback if first else "",
    )
