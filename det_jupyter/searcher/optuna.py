"""`optuna`: hyperparameters come from a sampler, and trials that do badly are ended early.

This is the part of it that decides how many trials there are and how far each trains; it does not
know Optuna. What it wants to hear from there it asks for, and the answer may take a while:

    AskSampler ──► on_created         one question for each trial, so many at first as may be at
                                      work at a time, another one when a trial is over: only then
                                      the sampler can learn from it
    AskPruner ──► on_judged           after a validation

Who ends a trial early is the `pruner`:

    asha     rungs, as ASHA's stopping form has them (bracket.py): a trial goes on at once if it is
             among the best 1/divisor of the results at its rung so far, else it is closed. One
             that left by itself counts as the worst at the rung it was on the way to.
    none     no trial ends early
    others   a pruner of Optuna's. A trial has one question open at most: a report that comes
             meanwhile is asked about when the answer is there.

Without asha there is one rung, the full length.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from det_jupyter.config import Length
from det_jupyter.config.rungs import rung_lengths
from det_jupyter.config.searchers import OptunaSearcher
from det_jupyter.searcher.actions import Action, AskPruner, Close, ExitReason, TrainTo
from det_jupyter.searcher.change import SearchChange, find_shorter
from det_jupyter.searcher.rungs import Rung
from det_jupyter.searcher.trials import CLOSED, EXITED, MAX_AT_WORK, STOPPED, Trials
from det_jupyter.wire import BracketView


class Optuna:
    """Asks for trials one after another, and has them judged.

    Args:
        searcher: Its section of the configuration.
        trials: The search's.
    """

    def __init__(self, searcher: OptunaSearcher, trials: Trials) -> None:
        self._trials = trials
        self._has_rungs = searcher.pruner == "asha"
        self._asks_pruner = searcher.pruner not in ("asha", "none")
        self._divisor = searcher.divisor
        self._unit = searcher.max_length.unit
        self._max_trials = searcher.max_trials
        self._max_concurrent_trials = searcher.max_concurrent_trials
        lengths = rung_lengths(
            searcher.max_length.amount,
            searcher.divisor,
            searcher.num_rungs if self._has_rungs else 1,
        )
        self._rungs = [self._make_rung(length) for length in lengths]
        self._asked: dict[int, bool] = {}  # the pruner, about whom; whether there is newer news

    def _make_rung(self, length: int) -> Rung:
        return Rung(length, self._divisor, is_stopping=True)

    @property
    def max_trials(self) -> int:
        """How many trials there will be."""
        return self._max_trials

    @property
    def progress(self) -> float:
        """The share of trials that are over."""
        return (self._trials.num_over - self._trials.num_invalid) / self._max_trials

    def start(self) -> list[Action]:
        """Ask for as many trials as may be there at a time."""
        actions: list[Action] = []
        while self._may_ask():
            actions.append(self._trials.ask())
        return actions

    def _may_ask(self) -> bool:
        trials = self._trials
        limit = min(self._max_concurrent_trials or self._max_trials, MAX_AT_WORK)
        has_room = trials.num_requested - trials.num_over < limit
        return has_room and trials.num_requested - trials.num_invalid < self._max_trials

    def on_created(self, index: int) -> list[Action]:
        """Let a new trial train to the first rung."""
        self._rungs[0].num_training += 1
        return [self._train_to(index)]

    def _train_to(self, index: int) -> TrainTo:
        place = self._trials.rung[index]
        length = Length(self._unit, self._rungs[place].length)
        return TrainTo(index, length, is_last=place == len(self._rungs) - 1)

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """Judge a trial at its rung."""
        if not self._trials.is_open(index):
            return []
        place = self._trials.rung[index]
        is_best = self._enter(index, metric)
        if place == len(self._rungs) - 1:
            return self._close(index, CLOSED)
        if not is_best:
            return self._close(index, STOPPED)
        self._rungs[place].num_promoted += 1
        self._rungs[place + 1].num_training += 1
        self._trials.rung[index] = place + 1
        return [self._train_to(index)]

    def _enter(self, index: int, metric: float) -> bool:
        """Note a trial's result at its rung; return whether it is among the best there."""
        rung = self._rungs[self._trials.rung[index]]
        rung.num_training -= 1
        return rung.add(index, metric).is_best

    def _close(self, index: int, status: int) -> list[Action]:
        self._trials.status[index] = status
        self._asked.pop(index, None)
        return [Close(index)]

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Ask the pruner, unless it is thinking about this trial already."""
        if not self._asks_pruner or not self._trials.is_open(index):
            return []
        is_thinking = index in self._asked
        self._asked[index] = is_thinking
        return [] if is_thinking else [AskPruner(index)]

    def on_judged(self, index: int, is_pruned: bool) -> list[Action]:
        """Close a trial that was pruned; ask again if it has validated since."""
        has_news = self._asked.pop(index, None)
        if has_news is None or not self._trials.is_open(index):
            return []
        if not is_pruned:
            return self.on_report(index, None, inf) if has_news else []
        self._rungs[self._trials.rung[index]].num_training -= 1
        return self._close(index, STOPPED)

    def unanswered(self) -> list[AskPruner]:
        """Return the questions to the pruner that are open."""
        return [AskPruner(index) for index in self._asked]

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Ask for another trial, if there are any to come."""
        if self._trials.is_open(index):
            self._asked.pop(index, None)
            is_invalid = reason is ExitReason.INVALID_HP
            if is_invalid and self._trials.replace(index, self._max_trials):
                self._take_back(index)
            else:
                self._trials.status[index] = EXITED
                self._enter(index, inf)
        return self.start()

    def _take_back(self, index: int) -> None:
        place = self._trials.rung[index]
        self._rungs[place].num_training -= 1
        for rung in self._rungs[:place]:
            rung.take_back(index)
            rung.num_promoted -= 1

    def find_problems(self, change: SearchChange) -> list[str]:
        """Return why the length cannot be changed; the rest can."""
        return find_shorter(change.max_length, self._unit, self._rungs[-1].length)

    def change(self, change: SearchChange) -> list[Action]:
        """Take the new limits; trials on the way to the full length hear of a longer one."""
        if change.max_trials is not None:
            self._max_trials = change.max_trials
        if change.max_concurrent_trials is not None:
            self._max_concurrent_trials = change.max_concurrent_trials
        actions: list[Action] = []
        if change.max_length is not None and change.max_length.amount > self._rungs[-1].length:
            actions += self._lengthen(change.max_length.amount)
        return actions + self.start()

    def _lengthen(self, full: int) -> list[Action]:
        old_top = len(self._rungs) - 1
        if self._has_rungs:
            self._rungs.append(self._make_rung(full))
        else:
            self._rungs[0].length = full
        return [
            self._train_to(index)
            for index in range(self._trials.num_created)
            if self._trials.is_open(index) and self._trials.rung[index] == old_top
        ]

    def brackets(self) -> list[BracketView]:
        """Return how the rungs stand; nothing if there is only the full length."""
        if not self._has_rungs:
            return []
        rungs = [rung.view(self._unit) for rung in self._rungs]
        num_created = self._trials.num_created
        return [BracketView(rungs=rungs, max_trials=self._max_trials, num_created=num_created)]

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metric at each rung that it has a result at."""
        if not self._has_rungs:
            return []
        rungs = self._rungs[: self._trials.rung[index] + 1]
        return [rung.metric_of(index) for rung in rungs if index in rung.entries]

    def snapshot(self) -> dict[str, Any]:
        """Return the limits, the rungs and the open questions."""
        return {
            "max_trials": self._max_trials,
            "max_concurrent_trials": self._max_concurrent_trials,
            "rungs": [rung.snapshot() for rung in self._rungs],
            "asked": [[index, has_news] for index, has_news in self._asked.items()],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Go back to where `snapshot` was taken."""
        self._max_trials = snapshot["max_trials"]
        self._max_concurrent_trials = snapshot["max_concurrent_trials"]
        self._rungs = [self._make_rung(rung["length"]) for rung in snapshot["rungs"]]
        for rung, state in zip(self._rungs, snapshot["rungs"], strict=True):
            rung.restore(state)
        self._asked = {index: has_news for index, has_news in snapshot["asked"]}
