"""The part of a handle that finds something out by running experiments made from this one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from det_jupyter.client.compare import ComparedExperiment
from det_jupyter.client.derived import Watched
from det_jupyter.client.diagnose import Diagnosing
from det_jupyter.client.diagnosed import Diagnosis
from det_jupyter.client.diagnosis_plan import plan_diagnosis
from det_jupyter.client.shown import ranked
from det_jupyter.client.trial import Trial
from det_jupyter.client.verify import Verification, plan_trying, verify
from det_jupyter.contract.messages import ExperimentView, TrialView
from det_jupyter.errors import ConfigError, NotFound


class ExaminedExperiment(ComparedExperiment):
    """The part of a handle that finds something out; `Experiment` adds what reads it."""

    _plain: Callable[[int], Watched]

    def verify_resume(
        self,
        trial: Trial | None = None,
        batches: int | None = None,
        pause_at: int | None = None,
        kill_at: int | None = None,
        timeout: float | None = None,
        *,
        keep: bool = False,
    ) -> Verification:
        """Prove that interruptions change nothing: train straight and interrupted, and compare.

        Its code and configuration are submitted twice, as two experiments with the same seed. One
        trains straight through; the other is paused after one batch, killed after another, and
        goes on each time. Every bit of their last checkpoints is compared. Both are deleted,
        unless something differs.

        Args:
            trial: Whose hyperparameters are used; by default the best one's, or the first's.
            batches: How many to train; by default the length in the configuration.
            pause_at: Pause after this batch. If neither is given, a third of the batches.
            kill_at: Kill all ranks with SIGKILL after this one. If neither is given, two thirds.
            timeout: Give up waiting for one of them after so many seconds.
            keep: Do not delete them.

        Raises:
            ConfigError: It cannot be tried so; that of a function cannot at all.
            RankFailed: One of the two ended with an error.
            WaitTimeout: They took too long.
        """
        view = self._client.experiment(self.id)
        chosen = _chosen(view, trial)
        trying = plan_trying(view, chosen, batches=batches, pause_at=pause_at, kill_at=kill_at)
        return verify(self._client, view, trying, self._plain, timeout_s=timeout, keep=keep)

    def diagnose(
        self,
        trial: Trial | None = None,
        recipes: Sequence[str] | None = None,
        seconds: float = 5.0,
        rounds: int = 3,
        timeout: float | None = None,
        *,
        keep: bool = False,
    ) -> Diagnosis:
        """Find out what limits it, by trying: run it briefly with one thing changed at a time.

        As it is; with recorded batches; with gradients that are hardly exchanged; on one slot;
        and, where these find a cost, with what may lower it: more loader workers, other bucket
        sizes, compressed gradients. Each run is an experiment of the lowest priority, labelled
        `diagnose`, that saves nothing; it waits for slots like any other. The experiment itself is
        left alone, whatever its state.

        Args:
            trial: Whose hyperparameters are used; by default the best one's, or the first's.
            recipes: Only these, by name; the table has the names.
            seconds: How long each run measures, after its warm-up.
            rounds: How often each recipe runs, in turns with the others: at least 2.
            timeout: Give up after so many seconds in all.
            keep: Do not delete the runs.

        Raises:
            ConfigError: It cannot be diagnosed so; a function cannot at all.
            RankFailed: As it is, it fails.
            Conflict: Its run was killed, or sent away by more urgent work again and again.
            WaitTimeout: It took too long.
        """
        view = self._client.experiment(self.id)
        chosen = _chosen(view, trial)
        plan = plan_diagnosis(view, chosen, recipes=recipes, seconds=seconds, rounds=rounds)
        deadline = time.monotonic() + (float("inf") if timeout is None else timeout)
        runs = Diagnosing(self._client, plan, self._plain, deadline=deadline, keep=keep)
        return runs.run()


def _chosen(view: ExperimentView, trial: Trial | None) -> TrialView:
    own = [one.id for one in view.trials]
    if trial is not None and getattr(trial, "id", None) not in own:
        raise ConfigError(
            [f"trial: got {trial!r}, expected a handle of one of experiment {view.id}: {own}"]
        )
    chosen = trial.view if trial is not None else next(iter(ranked(view)), None)
    if chosen is None:
        raise NotFound(f"experiment {view.id} has no trial yet")
    return chosen
