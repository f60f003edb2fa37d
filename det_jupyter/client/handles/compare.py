"""Comparisons of experiments, or of trials of one search; importance of hyperparameters."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, Protocol

from det_jupyter.client.client import Client
from det_jupyter.client.handle_text import ranked, state_name
from det_jupyter.client.requests import number_of
from det_jupyter.client.tables import Row, Rows
from det_jupyter.contract.messages import Curve, ExperimentView, ImportanceView, TrialView
from det_jupyter.errors import NotFound, UsageError
from det_jupyter.view.forms.comparison_card import comparison_html, comparison_text
from det_jupyter.view.making.comparison_view import (
    MAX_SIDES,
    build_comparison,
    code_differences,
    configuration,
    hyperparameters,
    left_out,
    versions,
)
from det_jupyter.view.making.results import Compared, best_metric, elapsed_s, slot_seconds
from det_jupyter.view.model.comparison import ComparisonState

_MAX_POINTS = 1000  # points of a curve
_LISTS = (list, tuple, set, range)


class Comparison:
    """The differences between experiments, or trials of one search, at the time of the call.

    Prints as text, and displays as HTML.

    Attributes:
        state: The data of its view.
    """

    def __init__(self, compared: Sequence[Compared], notes: Sequence[str] = ()) -> None:
        self._compared = compared
        self._now = time.time()
        self.state: ComparisonState = build_comparison(compared, self._now, notes)

    @property
    def configuration(self) -> dict[str, list[Any]]:
        """The values of the configurations that differ, by dotted key; None where one lacks it."""
        return configuration(self._compared)

    @property
    def hyperparameters(self) -> dict[str, list[Any]]:
        """The hyperparameters that differ, by dotted key; for a search, its best trial's."""
        return hyperparameters(self._compared)

    @property
    def versions(self) -> dict[str, list[Any]]:
        """The versions of Python and of packages that differ."""
        return versions(self._compared)

    @property
    def summary(self) -> Rows:
        """The results of each experiment or trial: best metric, batches, time and slot-hours."""
        return Rows(self._row(one) for one in self._compared)

    def _row(self, one: Compared) -> Row:
        trial, used_s = one.trial, slot_seconds(one, self._now)
        row = {
            "id": one.id,
            "name": one.experiment.name,
            "state": state_name(trial if one.is_trial and trial else one.experiment),
            "trial": None if trial is None else trial.id,
            "metric": one.experiment.metric,
            "best": best_metric(one),
            "batches": 0 if trial is None else trial.steps_completed,
            "time_s": elapsed_s(one, self._now),
            "slot_hours": used_s / 3600 if used_s else None,
        }
        return Row(row)

    def code_diff(self) -> str:
        """Return the differences of cells and local modules, as unified diffs from the first."""
        sides = self.state["sides"]
        return "\n".join(
            "\n".join([f"# {sides[0]['label']} → {sides[one['side']]['label']}", *one["lines"]])
            for one in code_differences(self._compared)
        )

    def to_frame(self) -> Any:
        """Return a pandas DataFrame with a row for each: results, and every value that differs.

        Raises:
            DetError: pandas is not installed; `summary` needs none.
        """
        differences = {**self.configuration, **self.hyperparameters}
        return Rows(
            Row({**row, **{name: values[place] for name, values in differences.items()}})
            for place, row in enumerate(self.summary)
        ).to_frame()

    def __repr__(self) -> str:
        return comparison_text(self.state)

    def _repr_html_(self) -> str:
        return comparison_html(self.state)


class ShownImportance(ImportanceView):
    """The importance of hyperparameters; prints as a line for each."""

    def __repr__(self) -> str:
        lines = [f"{share:4.0%}  {name}" for name, share in self.shares.items()]
        compared = f"the best quarter against all {self.num_trials} ended trials, by {self.metric}"
        return "\n".join([*lines, self.sentence or compared])

    __str__ = __repr__


class ComparisonSource(Protocol):
    """Where experiments to compare are read from: a Client, or the reader's state."""

    def experiment(self, experiment_id: int, /) -> ExperimentView: ...

    def curves(self, experiment_id: int, /, *, max_points: int) -> list[Curve]: ...

    def code(self, experiment_id: int, /) -> dict[str, str]: ...


def fetch_experiments(client: ComparisonSource, numbers: Sequence[int]) -> list[Compared]:
    """Fetch experiments to compare; a search is represented by its best trial.

    Args:
        client: Where they are read from.
        numbers: See `numbers_to_compare`.

    Raises:
        UsageError: `numbers` are not two or more different experiments, or too many.
        NotFound: An experiment does not exist.
    """
    _check("compare", numbers, "experiment")
    if len(numbers) > MAX_SIDES:
        raise UsageError(
            f"compare: got {len(numbers)} experiments, expected at most {MAX_SIDES}: "
            "more curves could not be told apart"
        )
    views = [client.experiment(number) for number in numbers]
    return [_fetch_experiment(client, view) for view in views]


def _fetch_experiment(client: ComparisonSource, view: ExperimentView) -> Compared:
    best = next(iter(ranked(view)), None)
    curves = client.curves(view.id, max_points=_MAX_POINTS)
    return Compared(
        experiment=view,
        trial=best,
        is_trial=False,
        curves=[curve for curve in curves if best is not None and curve.trial_id == best.id],
        code=client.code(view.id),
    )


def fetch_trials(
    client: Client, view: ExperimentView, numbers: Sequence[int]
) -> tuple[list[Compared], list[str]]:
    """Fetch trials of an experiment to compare, and a note if some had to be left out.

    Args:
        numbers: The trials; empty for all. Of more than `MAX_SIDES`, the best are compared.
    """
    if numbers:
        _check("compare_trials", numbers, "trial")
    chosen = _choose_trials(view, numbers)
    if len(chosen) < 2:
        raise UsageError(
            f"compare_trials: experiment {view.id} has {len(chosen)} trial, expected two or more; "
            f"det_jupyter.compare({view.id}, ...) compares it with other experiments"
        )
    note = left_out(len(chosen))
    chosen = chosen[:MAX_SIDES]
    if not note and numbers:  # results in the given order
        chosen.sort(key=lambda trial: list(numbers).index(trial.id))
    curves = client.curves(view.id, max_points=_MAX_POINTS)
    compared = [
        Compared(
            experiment=view,
            trial=trial,
            is_trial=True,
            curves=[curve for curve in curves if curve.trial_id == trial.id],
            code={},
        )
        for trial in chosen
    ]
    return compared, [note] if note else []


def _choose_trials(view: ExperimentView, numbers: Sequence[int]) -> list[TrialView]:
    """Return the trials with these numbers, or all, best first."""
    known = {trial.id for trial in view.trials}
    if unknown := [number for number in numbers if number not in known]:
        has = f"{min(known)} to {max(known)}" if known else "none yet"
        raise NotFound(
            f"experiment {view.id} has no trial {', '.join(map(str, unknown))}; its trials: {has}"
        )
    return [trial for trial in ranked(view) if not numbers or trial.id in numbers]


def numbers_to_compare(
    call: str, what: str, given: Sequence[Any], own: Sequence[int] = ()
) -> list[Any]:
    """Return the arguments of a call, with handles replaced by their numbers.

    Args:
        call: The name of the function.
        what: What it compares: experiment or trial.
        own: Numbers with which the given ones are compared.

    Raises:
        UsageError: An argument is a list; the message has the call with the elements as arguments.
    """
    numbers: list[Any] = []
    for each in given:
        numbers += map(number_of, each) if isinstance(each, _LISTS) else [number_of(each)]
    kinds = [type(each).__name__ for each in given if isinstance(each, _LISTS)]
    if not kinds:
        return [*own, *numbers]
    different = [number for number in dict.fromkeys(numbers) if number not in own]
    if len(own) + len(different) < 2:
        raise UsageError(f"{call}: got a {kinds[0]}; name two {what}s or more, one by one")
    front = different[: MAX_SIDES - len(own)]
    most = f", at most {len(front)}" if front != different else ""
    raise UsageError(
        f"{call}: got a {kinds[0]}; name the {what}s one by one{most}: "
        f"{call}({', '.join(map(repr, front))})"
    )


def _check(call: str, numbers: Sequence[int], what: str) -> None:
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool):
            a = "an" if what == "experiment" else "a"
            raise UsageError(f"{call}: got {number!r:.60}, expected the number of {a} {what}")
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise UsageError(f"{call}: got {what} {twice[0]} twice, expected different {what}s")
    if len(numbers) < 2:
        got = f"{what} {numbers[0]} alone" if numbers else f"no {what}"
        raise UsageError(f"{call}: got {got}, expected two {what}s or more")
