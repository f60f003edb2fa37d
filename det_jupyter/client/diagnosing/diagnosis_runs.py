"""Runs the recipes of a bottleneck diagnosis, one after the other, in rounds.

Each run is an ordinary experiment with the original's code and configuration, labelled `diagnose`:
it queues, is listed, and can be killed. It has the lowest priority, validates and saves nothing,
and ends by itself after measuring for some seconds (pytorch/training/rehearsal.py).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

from det_jupyter.client.client import Client
from det_jupyter.client.diagnosing.derived import ProgressLine, TemporaryExperiment, remove
from det_jupyter.client.diagnosing.diagnosis_plan import VERB, Plan, hparams_of, request_for
from det_jupyter.client.diagnosing.diagnosis_result import Diagnosis
from det_jupyter.contract.messages import CreateExperiment, Curve, SeriesQuery, State
from det_jupyter.contract.values.measures import PARTS
from det_jupyter.contract.values.text import count, length, shortened
from det_jupyter.diagnosis.conclusion import conclude
from det_jupyter.diagnosis.gains import in_turns
from det_jupyter.diagnosis.recipe_results import Measured, build_rows, skipped_remedy
from det_jupyter.diagnosis.recipes import AS_IS, Recipe
from det_jupyter.errors import ConfigError, Conflict, RankFailed, WaitTimeout
from det_jupyter.view import ViewState, WaitingNews

_GROUP = "rehearsal"  # group of the metrics that a run reports
_LEAST_TIMED_S = 1.0  # the ranks flush their timings about twice a second
_TRIES = 3  # most runs of a recipe, if more urgent work preempts them


class DiagnosisRuns:
    """The runs of one diagnosis.

    Args:
        handle_of: Returns a handle whose `wait` prints nothing and raises KeyboardInterrupt.
        deadline: When all runs must have ended, on the monotonic clock.
        keep: Do not delete the runs.
    """

    def __init__(
        self,
        client: Client,
        plan: Plan,
        handle_of: Callable[[int], TemporaryExperiment],
        *,
        deadline: float,
        keep: bool,
    ) -> None:
        self._client = client
        self._plan = plan
        self._handle_of = handle_of
        self._deadline = deadline
        self._keep = keep
        self._found = Measured()
        self._found.add_stragglers(plan.trial.verdict)
        self._line = ProgressLine()
        self._news = WaitingNews()
        self._runs = self._planned = 0

    def run(self) -> Diagnosis:
        """Run all recipes; an interrupt or an error kills and deletes the present run."""
        plan, found = self._plan, self._found
        left_out = list(plan.left_out)
        first = [r for r in plan.recipes if plan.is_chosen or not r.after]
        try:
            self._run_rounds(first, range(plan.rounds))
            remedies = []
            for recipe in (r for r in plan.recipes if r not in first):
                if why := skipped_remedy(recipe, found):
                    left_out.append(why)
                else:
                    remedies.append(recipe)
            if remedies:
                turns = range(plan.rounds, 2 * plan.rounds)
                self._run_rounds([plan.recipes[0], *remedies], turns)
        finally:
            self._line.close()
        rows = build_rows(plan.recipes, found, plan.slots)
        now = time.time()
        return Diagnosis(
            experiment_id=plan.view.id,
            name=plan.view.name,
            slots=plan.slots,
            at=now,
            rounds=plan.rounds,
            seconds=plan.seconds,
            rows=rows,
            left_out=left_out,
            verdict=conclude(rows, found, plan.slots, at=now),
        )

    def _run_rounds(self, recipes: Sequence[Recipe], turns: range) -> None:
        self._planned += len(recipes) * len(turns)
        for turn, recipe in in_turns(recipes, turns):
            self._runs += 1
            if recipe.name not in self._found.failures:
                self._try(recipe, turn)

    def _try(self, recipe: Recipe, turn: int) -> None:
        """Run a recipe; repeat it if more urgent work preempts it before it has measured."""
        request = request_for(self._plan, recipe)
        for _ in range(_TRIES):
            try:
                measured = self._run(request, recipe)
            except (ConfigError, RankFailed) as error:
                # Without the number of the run, which is deleted.
                reason = error.reason if isinstance(error, RankFailed) else str(error)
                if recipe.name == AS_IS:
                    error.args = (f"{self._where()} fails as it is: {reason}",)
                    raise
                self._give_up(recipe, shortened(reason, 200))
                return
            if measured is None:
                self._give_up(recipe, "its run was killed")
                return
            if rate := measured.get("records_per_s"):
                self._found.rates.setdefault(recipe.name, {})[turn] = rate
                self._note(recipe, measured)
                return
        self._give_up(recipe, f"more urgent work sent it away {_TRIES} times")

    def _give_up(self, recipe: Recipe, why: str) -> None:
        if recipe.name == AS_IS:
            raise Conflict(f"{self._where()} was not measured as it is: {why}")
        self._found.failures[recipe.name] = why

    def _where(self) -> str:
        return f"{VERB}: the trial of experiment {self._plan.view.id}"

    def _run(self, request: CreateExperiment, recipe: Recipe) -> dict[str, float] | None:
        """Run the recipe once; return the last values of its metrics.

        They are empty if it was preempted before it measured; None if it was killed.
        """
        experiment = self._handle_of(self._client.create(request).id)
        is_over = False
        try:
            left_s = max(0.1, self._deadline - time.monotonic())
            state = self._wait(experiment, recipe, left_s)
            is_over = True
            curves = {c.name: c for c in self._client.curves(experiment.id) if c.group == _GROUP}
            if recipe.name == AS_IS and "seconds" in curves:
                self._note_shares(curves["seconds"])
                for trial in experiment.view.trials:
                    self._found.add_stragglers(trial.verdict)
        except RankFailed:
            is_over = True
            raise
        except WaitTimeout:
            raise WaitTimeout(
                f"{VERB}: {recipe.title} was not over in time ({self._runs - 1} of "
                f"{count(self._planned, 'run')} were); give a longer timeout"
            ) from None
        finally:
            if not is_over:
                experiment.kill()
            if not self._keep or not is_over:
                remove(self._client, [experiment], VERB)
        if state is State.CANCELED:
            return None
        return {name: curve.values[-1] or 0.0 for name, curve in curves.items()}

    def _wait(self, experiment: TemporaryExperiment, recipe: Recipe, left_s: float) -> State:
        try:
            return experiment.wait(left_s, on_tick=lambda state: self._show(recipe, state))
        except RankFailed:
            [trial] = experiment.view.trials
            if trial.divergence and not trial.failure:
                return State.ERROR  # the loss is NaN, but the throughput was measured
            raise

    def _note_shares(self, seconds: Curve) -> None:
        """Store the share of each part of a batch in the chief's time during the measurement."""
        until = seconds.times[-1]
        since = max(0.0, until - max(_LEAST_TIMED_S, seconds.values[-1] or 0.0))
        query = SeriesQuery(of="timings", sources=["rank:0"], since=since, until=until, columns=1)
        series = self._client.series(seconds.trial_id, query).series
        parts = {one.name: one.mid[0] for one in series if one.name in PARTS and one.mid}
        if whole := sum(parts.values()):
            self._found.shares.update({name: value / whole for name, value in parts.items()})

    def _note(self, recipe: Recipe, measured: dict[str, float]) -> None:
        details = self._found.details
        if "workers" in measured:
            now, before = measured["workers"], measured["workers_before"]
            details[recipe.name] = (
                f"DataLoader(..., num_workers={now:.0f}) instead of {before:.0f}"
            )
        if recipe.is_alone and (size := hparams_of(self._plan, recipe).get("global_batch_size")):
            details[recipe.name] = f"global_batch_size: {size}, as much for a slot (weak scaling)"

    def _show(self, recipe: Recipe, state: ViewState) -> None:
        """Update the progress line; a new reason to wait is printed above it."""
        if reason := self._news.line(state):
            self._line.close()
            sys.stdout.write(f"{reason}\n")
        trained = sum(trial["steps_completed"] for trial in state["trials"])
        is_queued = any(trial["status"] == "queued" for trial in state["trials"])
        phase = "waits" if is_queued else length({"batches": trained}) if trained else "starts"
        run = f"{VERB}: run {self._runs} of {self._planned}, {recipe.title}"
        self._line.show(f"{run}: {phase}")
