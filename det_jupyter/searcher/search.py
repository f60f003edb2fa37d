"""`Search`: the only interface between the machine and the search methods.

    Machine ── results, exits, answers ──► Search ── metrics, smaller is better ──► SearchMethod
            ◄── Create, TrainTo, Close, Ask…, Shutdown ◄── which trial, how far ──

`Search` has the parts that all methods share: the trials and the generator that draws them, the
sign of the metric (None, NaN and infinities are the worst metric), the order in which the
sampler's answers become trials, progress that never decreases, and the end. A search is over when
all its trials are over, so a method that needs another trial has to create or request it before
that.

Invariants: indices count up from 0 without a gap; no action is about a trial that was closed or is
over; `Shutdown` comes once and is the last action; the same events give the same actions, whether
or not the search was restored from a snapshot in between.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from det_jupyter.contract.messages import SearchChange, SearchView
from det_jupyter.contract.schema.key_paths import sort_problems
from det_jupyter.contract.values.direction import Direction
from det_jupyter.errors import ConfigError, Problem
from det_jupyter.searcher.change_checks import find_wider
from det_jupyter.searcher.method import (
    Action,
    AskSampler,
    ConsultingMethod,
    ExitReason,
    Shutdown,
)
from det_jupyter.searcher.searcher_section import MAX_TRIALS, SearcherSection
from det_jupyter.searcher.trials import STOPPED, Trials


class Search:
    """An experiment's search.

    Args:
        searcher: The section of the configuration that names the method, with its fields.
        seed: The experiment's seed.
        snapshot: What `snapshot` returned, to continue from there; None: a new search.
    """

    def __init__(
        self,
        searcher: SearcherSection,
        hyperparameters: Mapping[str, Any],
        seed: int,
        snapshot: Mapping[str, Any] | None = None,
    ) -> None:
        self._searcher = searcher
        self._direction = Direction.of(smaller_is_better=searcher.smaller_is_better)
        self._trials = Trials(hyperparameters, seed)
        self._method = searcher.make(self._trials)
        self._answers: dict[
            int, dict[str, Any]
        ] = {}  # answers of the sampler that arrived before earlier ones
        self._progress = 0.0
        self._is_over = False
        if snapshot is not None:
            self._restore(snapshot)

    def start(self) -> list[Action]:
        """Return the first actions; called once."""
        return self._concluded(self._method.start())

    def on_target_reached(self, index: int, metric: float | None) -> list[Action]:
        """Handle a trial that has trained to the length of its last `TrainTo`; called once each.

        Args:
            metric: The searcher metric there, as reported.
        """
        if not self._is_open(index):
            return []
        return self._concluded(self._method.on_target_reached(index, self._direction.loss(metric)))

    def on_report(self, index: int, time: float | None, metric: float | None) -> list[Action]:
        """Handle a validation of a trial.

        Args:
            time: The reported value of the searcher's `time_metric`; None if it was not reported.
            metric: The searcher metric, as reported.
        """
        if not self._is_open(index):
            return []
        known = time if time is not None and isfinite(time) else None
        return self._concluded(self._method.on_report(index, known, self._direction.loss(metric)))

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Handle the exit of a trial; called once for each, also if it was closed."""
        if self._is_over or not self._trials.note_exit(index):
            return []
        return self._concluded(self._method.on_exited(index, reason))

    def on_sampled(self, index: int, hparams: dict[str, Any]) -> list[Action]:
        """Handle the sampler's answer. Trials are created in the order of the questions."""
        trials = self._trials
        if self._is_over or not trials.num_created <= index < trials.num_requested:
            return []
        assert isinstance(self._method, ConsultingMethod)
        self._answers.setdefault(index, hparams)
        actions: list[Action] = []
        while trials.num_created in self._answers:
            create = trials.create_asked(self._answers.pop(trials.num_created))
            actions += [create, *self._method.on_created(create.index)]
        return self._concluded(actions)

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        """Handle the pruner's answer."""
        if not self._is_open(index) or not isinstance(self._method, ConsultingMethod):
            return []
        return self._concluded(self._method.on_judged(index, is_pruned))

    def change(self, new: SearchChange) -> list[Action]:
        """Change the limits of the search.

        Raises:
            ConfigError: The change is not possible: the error has all reasons, and nothing was
                changed.
        """
        if problems := self._find_problems(new):
            raise ConfigError(problems)
        if new.hyperparameters is not None:
            self._trials.hyperparameters = new.hyperparameters
        return self._concluded(self._method.change(new))

    @property
    def time_metric(self) -> str | None:
        """The validation metric that measures the length of training; None: the batches do."""
        return getattr(self._searcher, "time_metric", None)

    @property
    def progress(self) -> float:
        """The progress of the search: begins at 0, never decreases, ends at 1."""
        return self._progress

    def pending(self) -> list[Action]:
        """Return the questions to sampler and pruner that have no answer yet, to repeat them."""
        asked = range(self._trials.num_created, self._trials.num_requested)
        questions: list[Action] = [AskSampler(i) for i in asked if i not in self._answers]
        if isinstance(self._method, ConsultingMethod):
            questions += self._method.unanswered()
        return [] if self._is_over else questions

    def view(self) -> SearchView:
        """Return the state of the search for the live view."""
        brackets = self._method.brackets()
        return SearchView(
            name=self._searcher.name,
            max_trials=self._method.max_trials,
            num_created=self._trials.num_created,
            num_closed=self._trials.num_over,
            divisor=getattr(self._searcher, "divisor", None) if brackets else None,
            brackets=brackets,
        )

    def bracket_of(self, index: int) -> int | None:
        """Return the number of the trial's bracket; None if the search has none."""
        return self._trials.bracket[index] if self._method.brackets() else None

    def rung_metrics(self, index: int) -> list[float | None]:
        """Return the trial's metrics at the rungs that it has reached, lowest first.

        Metrics are as reported; None where none, or no finite number, was reported.
        """
        losses = self._method.rung_metrics(index)
        return [self._direction.sign * loss if isfinite(loss) else None for loss in losses]

    def was_stopped(self, index: int) -> bool:
        """Return whether the search closed the trial before its full length."""
        return self._trials.status[index] == STOPPED

    def snapshot(self) -> dict[str, Any]:
        """Return the whole state as JSON-ready data, from which a new `Search` can continue."""
        return {
            "hyperparameters": dict(self._trials.hyperparameters),
            "trials": self._trials.snapshot(),
            "method": self._method.snapshot(),
            "answers": [[index, hparams] for index, hparams in self._answers.items()],
            "progress": self._progress,
            "is_over": self._is_over,
        }

    def _restore(self, snapshot: Mapping[str, Any]) -> None:
        self._trials.hyperparameters = snapshot["hyperparameters"]
        self._trials.restore(snapshot["trials"])
        self._method.restore(snapshot["method"])
        self._answers = {index: hparams for index, hparams in snapshot["answers"]}
        self._progress = snapshot["progress"]
        self._is_over = snapshot["is_over"]

    def _is_open(self, index: int) -> bool:
        return index < self._trials.num_created and self._trials.is_open(index)

    def _concluded(self, actions: list[Action]) -> list[Action]:
        """Append `Shutdown` if every trial is over, and update the progress."""
        if not self._is_over and self._trials.num_over == self._trials.num_requested:
            self._is_over = True
            actions = [*actions, Shutdown()]
        present = 1.0 if self._is_over else self._method.progress
        self._progress = max(self._progress, min(present, 1.0))
        return actions

    def _find_problems(self, new: SearchChange) -> list[Problem]:
        if self._is_over:
            return [Problem("searcher", "the search is over; submit a new experiment")]
        problems = [*self._find_wrong_counts(new), *self._method.find_problems(new)]
        name = self._searcher.name
        if new.hyperparameters is not None and not self._has("max_trials"):
            problems.append(
                Problem(
                    "hyperparameters", f"searcher {name} has chosen them all; they cannot change"
                )
            )
        elif new.hyperparameters is not None:
            problems += find_wider(new.hyperparameters, self._trials.hyperparameters)
        return sort_problems(problems)

    def _has(self, field: str) -> bool:
        return field in type(self._searcher).model_fields

    def _find_wrong_counts(self, new: SearchChange) -> list[Problem]:
        name, problems = self._searcher.name, []
        if new.max_trials is not None:
            least = self._method.max_trials
            if not self._has("max_trials"):
                problems.append(
                    Problem("searcher.max_trials", f"searcher {name} does not have it")
                )
            elif not least <= new.max_trials <= MAX_TRIALS:
                problems.append(
                    Problem(
                        "searcher.max_trials",
                        f"got {new.max_trials}, "
                        f"expected at least {least} and at most {MAX_TRIALS}",
                    )
                )
        limit = new.max_concurrent_trials
        if limit is not None and not self._has("max_concurrent_trials"):
            problems.append(
                Problem("searcher.max_concurrent_trials", f"searcher {name} does not have it")
            )
        elif limit is not None and limit < 0:
            problems.append(
                Problem("searcher.max_concurrent_trials", f"got {limit}, expected at least 0")
            )
        return problems
