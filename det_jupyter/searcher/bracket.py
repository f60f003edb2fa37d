"""One bracket of asynchronous successive halving (ASHA), in its three forms.

    rung          0     1     2         divisor 3, max_length 9
    length        1     3     9
                27 ─►  9 ─►  3          with synchronous halving; here no rung waits

A free place in the bracket goes to the best trial at that moment. After a result:

    promote   (the default) The trial rests. If its result brings a trial into the best third of
              the rung (itself or, as the third has grown, a trial that rests), that trial
              continues to the next rung. Of equal results the older one is better. If no trial
              came in, a new trial begins at the lowest rung.
    stop      The trial continues at once if it is in the best third of the results so far (the
              first always is); else it is closed, and a new trial begins. Of equal results the
              newer one is better.
    time      As stop, but trials train without targets: every validation is judged, and a late one
              counts for all rungs that the trial has passed, one after another.

In all forms `max_concurrent_trials` train as long as there are trials to create. A trial that
ended by itself counts as the worst of the rung that it was training to; if it is promoted
nevertheless, as there is no better one, the promotion is lost and it is the worst of the next rung
too. A trial that is killed while it rests keeps its results. A trial with invalid hyperparameters
is removed from all rungs and replaced.

When no new trials are left and none trains to the lowest rungs, no trial can be promoted from
these any more: the trials that rest there are closed. Each rung is searched once for such trials.

After Li et al., "A System for Massively Parallel Hyperparameter Tuning" (MLSys 2020), as
implemented by Determined up to version 0.37 (promote, stop) and from 0.38 (time). Deviations:
rungs of equal length are one (rungs.py), and a closed trial is never promoted, not even after a
search was given more trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any

from det_jupyter.contract.messages import BracketView
from det_jupyter.contract.values.lengths import parse_length
from det_jupyter.searcher.method import Action, Close, ExitReason, TrainTo
from det_jupyter.searcher.planning import BracketPlan, Form, Rules
from det_jupyter.searcher.rung_lengths import rung_lengths
from det_jupyter.searcher.rungs import Rung
from det_jupyter.searcher.trials import CLOSED, EXITED, RESTING, STOPPED, TRAINING, Trials

# The lowest rung is 1 / 1.2 of the progress, the rungs above it are the rest.
_SHARE_OF_LOWEST_RUNG = 1.2


class Bracket:
    """A set of rungs and the trials that are promoted through them.

    Args:
        trials: The trials of the whole search.
        number: Index of the bracket in its search.
        most_at_work: Most trials that train at a time, even if the plan allows more.
    """

    def __init__(
        self,
        trials: Trials,
        number: int,
        rules: Rules,
        plan: BracketPlan,
        *,
        full: int,
        most_at_work: int,
    ) -> None:
        self.max_trials = plan.max_trials
        self.max_concurrent_trials = plan.max_concurrent_trials
        self.num_created = 0
        self.num_invalid = 0
        self.num_over = 0
        self._trials = trials
        self._number = number
        self._rules = rules
        self._rungs = [
            self._make_rung(length) for length in rung_lengths(full, rules.divisor, plan.num_rungs)
        ]
        self._most_at_work = most_at_work
        self._num_training = 0
        self._num_drained = 0  # number of rungs, from the lowest, at which no trial rests any more
        self._view: BracketView | None = None

    def _make_rung(self, length: int) -> Rung:
        is_stopping = self._rules.form is not Form.PROMOTE
        return Rung(length, self._rules.divisor, is_stopping=is_stopping)

    @property
    def num_rungs(self) -> int:
        """The number of rungs."""
        return len(self._rungs)

    @property
    def progress(self) -> float:
        """The progress of the bracket, 0 to 1."""
        num_results = len(self._rungs[0])
        share = num_results / (_SHARE_OF_LOWEST_RUNG * self.max_trials)
        if num_results >= self.max_trials:
            share = max(share, (self.num_over - self.num_invalid) / self.max_trials)
        return min(share, 1.0)

    def start(self) -> list[Action]:
        """Create the first trials."""
        return self._settle()

    def on_target_reached(self, index: int, metric: float) -> list[Action]:
        """Judge a trial at its rung; with `Form.TIME` close it, as it has reached its bound."""
        if self._trials.status[index] != TRAINING:
            return []
        if self._rules.form is Form.TIME:
            self._count_training(self._trials.rung[index], -1)
            return self._close(index, CLOSED) + self._settle()
        return self._judge(index, metric) + self._settle()

    def on_report(self, index: int, time: float | None, metric: float) -> list[Action]:
        """Judge a trial at every rung that it has newly passed."""
        if self._rules.form is not Form.TIME or time is None:
            return []
        actions: list[Action] = []
        while (
            self._trials.status[index] == TRAINING
            and time >= self._rungs[self._trials.rung[index]].length
        ):
            actions += self._judge(index, metric)
        return actions + self._settle()

    def on_exited(self, index: int, reason: ExitReason) -> list[Action]:
        """Count the exit of a trial; an unexpected exit gets the worst result, or is replaced."""
        self.num_over += 1
        if not self._trials.is_open(index):
            return self._settle()
        was_training = self._trials.status[index] == TRAINING
        is_invalid = reason is ExitReason.INVALID_HP
        if is_invalid and self._trials.replace(index, self.max_trials):
            self._remove_results(index, was_training=was_training)
            return self._settle()
        self._trials.status[index] = EXITED
        return (self._judge(index, inf) if was_training else []) + self._settle()

    def _judge(self, index: int, metric: float) -> list[Action]:
        """Record a trial's result at its rung; the trial may have exited already."""
        place = self._trials.rung[index]
        self._count_training(place, -1)
        effect = self._rungs[place].add(index, metric)
        is_open = self._trials.is_open(index)
        if place == len(self._rungs) - 1:
            return self._close(index, CLOSED) if is_open else []
        if self._rules.form is Form.PROMOTE:
            if is_open:
                self._trials.status[index] = RESTING
            return self._promote(effect.candidate, place)
        if not is_open:
            return []
        return self._move_up(index) if effect.is_best else self._close(index, STOPPED)

    def _promote(self, candidate: int | None, place: int) -> list[Action]:
        if candidate is None or self._trials.rung[candidate] > place:
            return []
        if self._trials.status[candidate] in (CLOSED, STOPPED):
            return []
        return self._move_up(candidate)

    def _move_up(self, index: int) -> list[Action]:
        place = self._trials.rung[index]
        self._rungs[place].num_promoted += 1
        self._trials.rung[index] = place + 1
        self._count_training(place + 1, +1)
        if self._trials.status[index] == EXITED:
            return self._judge(index, inf)
        self._trials.status[index] = TRAINING
        return [] if self._rules.form is Form.TIME else [self._train_to(index)]

    def _train_to(self, index: int) -> TrainTo:
        if self._rules.bound is not None:
            return TrainTo(index, self._rules.bound, is_last=True)
        place = self._trials.rung[index]
        document = {self._rules.unit: self._rungs[place].length}
        is_top = place == len(self._rungs) - 1
        return TrainTo(index, parse_length(document), is_last=is_top)

    def _close(self, index: int, status: int) -> list[Action]:
        self._trials.status[index] = status
        return [Close(index)]

    def _count_training(self, place: int, change: int) -> None:
        self._rungs[place].num_training += change
        self._num_training += change

    def _remove_results(self, index: int, *, was_training: bool) -> None:
        place = self._trials.rung[index]
        self.num_invalid += 1
        if was_training:
            self._count_training(place, -1)
        for rung in self._rungs[: place + 1]:
            if index in rung.entries:
                rung.remove(index)
        for rung in self._rungs[:place]:
            rung.num_promoted -= 1

    def _settle(self) -> list[Action]:
        self._view = None
        return self._fill() + self._drain()

    def _has_more_to_create(self) -> bool:
        return self.num_created - self.num_invalid < self.max_trials

    def _fill(self) -> list[Action]:
        """Create trials until `max_concurrent_trials` train."""
        actions: list[Action] = []
        limit = min(self.max_concurrent_trials, self._most_at_work)
        while self._num_training < limit and self._has_more_to_create():
            create = self._trials.create(self._number)
            self.num_created += 1
            self._count_training(0, +1)
            self._num_drained = 0
            actions += [create, self._train_to(create.index)]
        return actions

    def _drain(self) -> list[Action]:
        """Close the trials that rest at rungs without further promotions."""
        if self._rules.form is not Form.PROMOTE or self._has_more_to_create():
            return []
        actions: list[Action] = []
        while self._num_drained < len(self._rungs):
            if self._rungs[self._num_drained].num_training:
                break
            for index in self._resting_at(self._num_drained):
                actions += self._close(index, STOPPED)
            self._num_drained += 1
        return actions

    def _resting_at(self, place: int) -> Iterable[int]:
        for index in self._rungs[place].entries:
            if self._trials.rung[index] == place and self._trials.status[index] == RESTING:
                yield index

    def set_limits(
        self, *, max_trials: int, max_concurrent_trials: int, full: int | None
    ) -> list[Action]:
        """Change the bracket's limits; `full`: add a top rung of this length."""
        self.max_trials = max_trials
        self.max_concurrent_trials = max_concurrent_trials
        actions: list[Action] = []
        if full is not None:
            old_top = len(self._rungs) - 1
            self._lengthen(full)  # trials that train to the old top rung continue
            actions += [self._train_to(index) for index in self._training_to(old_top)]
        return actions + self._settle()

    def _lengthen(self, full: int) -> None:
        self._rungs.append(self._make_rung(full))

    def _training_to(self, place: int) -> Iterable[int]:
        if not self._rungs[place].num_training:
            return
        for index, status in enumerate(self._trials.status):
            is_mine = self._trials.bracket[index] == self._number
            if status == TRAINING and is_mine and self._trials.rung[index] == place:
                yield index

    def rung_metrics(self, index: int) -> list[float]:
        """Return the trial's metric at each rung for which it has a result."""
        rungs = self._rungs[: self._trials.rung[index] + 1]
        return [rung.metric_of(index) for rung in rungs if index in rung.entries]

    def view(self) -> BracketView:
        """Return the state of the bracket's rungs."""
        if self._view is None:
            self._view = BracketView(
                rungs=[rung.view(self._rules.unit) for rung in self._rungs],
                max_trials=self.max_trials,
                num_created=self.num_created,
            )
        return self._view

    def snapshot(self) -> dict[str, Any]:
        """Return the bracket as JSON-ready data."""
        return {
            "max_trials": self.max_trials,
            "max_concurrent_trials": self.max_concurrent_trials,
            "num_created": self.num_created,
            "num_invalid": self.num_invalid,
            "num_over": self.num_over,
            "num_drained": self._num_drained,
            "rungs": [rung.snapshot() for rung in self._rungs],
        }

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Restore what `snapshot` returned."""
        self.max_trials = snapshot["max_trials"]
        self.max_concurrent_trials = snapshot["max_concurrent_trials"]
        self.num_created = snapshot["num_created"]
        self.num_invalid = snapshot["num_invalid"]
        self.num_over = snapshot["num_over"]
        self._num_drained = snapshot["num_drained"]
        self._restore_rungs(snapshot["rungs"])

    def _restore_rungs(self, snapshots: Sequence[Mapping[str, Any]]) -> None:
        self._rungs = [self._make_rung(rung["length"]) for rung in snapshots]
        for rung, state in zip(self._rungs, snapshots, strict=True):
            rung.restore(state)
        self._num_training = sum(rung.num_training for rung in self._rungs)
        self._view = None
