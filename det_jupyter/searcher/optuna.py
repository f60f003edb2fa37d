"""`optuna`: hyperparameters come from a sampler, and trials that do badly are ended early.

This is the part that decides how many trials there are and how far each trains; it does not import
Optuna. It queries Optuna by actions, and the answers come later as events:

    AskSampler ──► on_created         one question for each trial: at first as many as may train
                                      at a time, another one when a trial is over, because only
                                      then can the sampler use its result
    AskPruner ──► on_judged           after a validation

The rest is a bracket in the form `stop` (bracket.py). The `pruner` ends trials early:

    asha     the rungs
    none     no trial ends early: there is one rung, the full length
    others   a pruner of Optuna; one rung, too. A trial has at most one open question: if it
             validates meanwhile, the pruner is queried again after its answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

from det_jupyter.contract.messages import BracketView, SearchChange
from det_jupyter.contract.schema.fields import Text
from det_jupyter.errors import Problem
from det_jupyter.searcher.bracket import Bracket
from det_jupyter.searcher.change_checks import find_shorter
from det_jupyter.searcher.method import Action, AskPruner, ExitReason
from det_jupyter.searcher.planning import (
    BracketForecast,
    BracketPlan,
    Form,
    Rules,
    plan_full_length,
    plan_rungs,
)
from det_jupyter.searcher.rung_lengths import divisor_of, full_amount, most_rungs
from det_jupyter.searcher.searcher_section import Divisor, OfTrials, Rungs
from det_jupyter.searcher.trials import MAX_AT_WORK, STOPPED, Trials

_DEFAULT_RUNGS = 3


class OptunaSearcher(OfTrials):
    """Hyperparameters chosen by a sampler of Optuna; trials ended early by ASHA or a pruner."""

    name: Literal["optuna"]
    sampler: Text = "TPESampler"
    """Name of a sampler class of Optuna."""
    sampler_args: dict[str, Any] = {}
    """Keyword arguments of the sampler."""
    pruner: Text = "asha"
    """asha (rungs, with stop_once), none, or a pruner class of Optuna, for each validation."""
    pruner_args: dict[str, Any] = {}
    """Keyword arguments of the pruner."""
    num_rungs: Rungs = _DEFAULT_RUNGS
    """At how many lengths trials are compared, the last included."""
    divisor: Divisor = 4
    """The best 1/divisor of the trials at each rung continue to the next."""

    def make(self, trials: Trials) -> Optuna:
        """Return the search method."""
        return Optuna(self, trials)

    def plan(self, hyperparameters: Mapping[str, Any]) -> list[BracketForecast]:
        """Return the planned training."""
        number, full = self.max_trials, self.max_length.amount
        limit = min(self.max_concurrent_trials or number, number)
        if self.pruner == "asha":
            plan = BracketPlan(self.num_rungs, number, limit)
            return [plan_rungs(plan, full, self.divisor, Form.STOP)]
        # A pruner of Optuna may end any trial at its first validation, or none.
        least = None if self.pruner == "none" else 1
        return [plan_full_length(number, limit, full, least=least)]

    @classmethod
    def computed_defaults(cls, searcher: Mapping[str, Any]) -> dict[str, Any]:
        """Return the default of `num_rungs`: fewer rungs if some would have the same length."""
        amount, divisor = full_amount(searcher), divisor_of(searcher)
        if amount is None or divisor is None:
            return {"num_rungs": _DEFAULT_RUNGS}
        return {"num_rungs": min(_DEFAULT_RUNGS, most_rungs(amount, divisor))}

    @classmethod
    def is_endless(cls, searcher: Mapping[str, Any]) -> bool:
        """Return False: the rungs are fractions of a length, which is required."""
        return False


class Optuna(Bracket):
    """A bracket whose trials a sampler chooses and a pruner may end."""

    def __init__(self, searcher: OptunaSearcher, trials: Trials) -> None:
        self._has_rungs = searcher.pruner == "asha"
        self._asks_pruner = searcher.pruner not in ("asha", "none")
        self._asked: dict[
            int, bool
        ] = {}  # open questions to the pruner: by trial, whether it has validated since
        super().__init__(
            trials,
            0,
            Rules(form=Form.STOP, divisor=searcher.divisor, unit=searcher.max_length.unit),
            BracketPlan(
                num_rungs=searcher.num_rungs if self._has_rungs else 1,
                max_trials=searcher.max_trials,
                max_concurrent_trials=searcher.max_concurrent_trials,
            ),
            full=searcher.max_length.amount,
            most_at_work=MAX_AT_WORK,
        )

    @property
    def progress(self) -> float:
        """The share of trials that are over."""
        return self._trials.share_over(self.max_trials)

    def _fill(self) -> list[Action]:
        """Request as many trials from the sampler as may train at a time."""
        actions: list[Action] = []
        while self._trials.has_room(self.max_trials, self.max_concurrent_trials):
            actions.append(self._trials.ask())
        return actions

    def on_created(self, index: int) -> list[Action]:
        """Let a new trial train to the first rung."""
        self.num_created += 1
        self._view = None
        self._count_training(0, +1)
        return [self._train_to(index)]

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Query the pruner, unless a question about this trial is open already."""
        if not self._asks_pruner or not self._trials.is_open(index):
            return []
        is_asked = index in self._asked
        self._asked[index] = is_asked
        return [] if is_asked else [AskPruner(index)]

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        """Close a trial that was pruned; query again if it has validated since."""
        has_validated = self._asked.pop(index, None)
        if has_validated is None or not self._trials.is_open(index):
            return []
        if not is_pruned:
            return self.on_report(index, None, inf) if has_validated else []
        self._count_training(self._trials.rung[index], -1)
        return self._close(index, STOPPED)

    def unanswered(self) -> list[AskPruner]:
        """Return the questions to the pruner that are open."""
        return [AskPruner(index) for index in self._asked]

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Request another trial, if there are any left."""
        self._asked.pop(index, None)
        return super().on_exited(index, reason)

    def _close(self, index: int, status: int) -> list[Action]:
        self._asked.pop(index, None)
        return super()._close(index, status)

    def find_problems(self, change: SearchChange) -> list[Problem]:
        """Return the problems with a new length; the other limits can be changed freely."""
        return find_shorter(change.max_length, self._rules.unit, self._rungs[-1].length)

    def change(self, change: SearchChange) -> list[Action]:
        """Apply the new limits; trials that train to the full length get the new one."""
        limit, length = change.max_concurrent_trials, change.max_length
        is_longer = length is not None and length.amount > self._rungs[-1].length
        return self.set_limits(
            max_trials=change.max_trials or self.max_trials,
            max_concurrent_trials=self.max_concurrent_trials if limit is None else limit,
            full=length.amount if length is not None and is_longer else None,
        )

    def _lengthen(self, full: int) -> None:
        if self._has_rungs:
            super()._lengthen(full)
        else:
            self._rungs[0].length = full

    def brackets(self) -> list[BracketView]:
        """Return the state of the rungs; an empty list if there is only the full length."""
        return [self.view()] if self._has_rungs else []

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metric at each rung for which it has a result."""
        return super().rung_metrics(index) if self._has_rungs else []

    def snapshot(self) -> dict[str, Any]:
        """Return the limits, the rungs and the open questions."""
        return {
            "max_trials": self.max_trials,
            "max_concurrent_trials": self.max_concurrent_trials,
            "rungs": [rung.snapshot() for rung in self._rungs],
            "asked": [[index, has_validated] for index, has_validated in self._asked.items()],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self.max_trials = snapshot["max_trials"]
        self.max_concurrent_trials = snapshot["max_concurrent_trials"]
        self.num_created = self._trials.num_created
        self._restore_rungs(snapshot["rungs"])
        self._asked = {index: has_validated for index, has_validated in snapshot["asked"]}
