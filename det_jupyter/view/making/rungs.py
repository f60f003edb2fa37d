"""Where trials of a search stand at its rungs, and where these are in its picture. Pure.

A rung is a column, from left to right in the order of training; a trial has a mark in each column
that it has reached, and in that which it trains to.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from det_jupyter.contract.messages import BracketView, RungView, TrialView
from det_jupyter.contract.values.text import length
from det_jupyter.view.model.search_state import BracketState, RungState, TrialRow
from det_jupyter.view.model.status_looks import ENDED, Mark, Status

_GAP = 0.2  # between brackets, in columns
_GOLDEN = 0.618034  # spreads consecutive ids, so that marks seldom cover each other
_END_MARKS: dict[Status, Mark] = {
    "error": "error",
    "canceled": "canceled",
    "stopped": "stopped",
    "completed": "stopped",  # trained to its full length, not stopped by the searcher
}


def aim_of(trial: TrialView, rungs: Sequence[RungView], status: Status) -> int:
    """Return the rung that a trial trains to.

    A trial without a target trains to the next rung; if it does not run, the last rung that it has
    reached is returned.
    """
    for place, rung in enumerate(rungs):
        for unit, amount in rung.length.items():
            target = trial.target
            if target is not None and target.unit == unit and target.amount <= amount:
                return place
    reached = len(trial.rung_metrics)
    is_active = status not in ENDED and status != "resting"
    last = max(0, len(rungs) - 1)
    return min(last, reached if is_active else max(0, reached - 1))


def trial_marks(num_reached: int, aim: int, num_rungs: int, status: Status) -> list[Mark]:
    """Return a trial's mark at each rung that it has reached, and at the rung it aims at."""
    marks: list[Mark] = []
    for rung in range(min(num_reached, num_rungs)):
        if rung < num_reached - 1 or aim > rung:
            marks.append("promoted")
        elif rung == num_rungs - 1 and status != "error":
            marks.append("finished")
        else:
            marks.append(_END_MARKS.get(status, "resting"))
    if num_reached <= aim < num_rungs:
        marks.append(_END_MARKS.get(status, "running"))
    return marks


def trial_dots(row: TrialRow) -> Iterator[tuple[int, Mark, float | None]]:
    """Yield rung, mark and metric of each of a trial's marks.

    The metric beyond the rungs it has reached is the latest one.
    """
    for place, mark in enumerate(row["marks"]):
        if place < len(row["rungs"]):
            yield place, mark, row["rungs"][place]
        else:
            yield row["aim"], mark, row["latest"]


def across(trial_id: int) -> float:
    """Return where in its columns a trial's marks are, from 0 at the left end to 1."""
    return 0.12 + 0.76 * (trial_id * _GOLDEN % 1)


def place_rungs(brackets: Sequence[BracketView]) -> tuple[list[BracketState], float]:
    """Return the brackets side by side, with gaps between them, and the width of a column."""
    num_rungs = sum(len(bracket.rungs) for bracket in brackets)
    width = 1 / max(1, num_rungs + _GAP * (len(brackets) - 1))
    placed, left = [], 0.0
    for bracket in brackets:
        rungs = [_rung(rung, left + i * width) for i, rung in enumerate(bracket.rungs)]
        num_created, max_trials = bracket.num_created, bracket.max_trials
        placed.append(BracketState(rungs=rungs, num_created=num_created, max_trials=max_trials))
        left += (len(rungs) + _GAP) * width
    return placed, round(width, 4)


def _rung(rung: RungView, left: float) -> RungState:
    return RungState(
        label=length(rung.length),
        short_label=f"{next(iter(rung.length.values()), 0):g}",
        left=round(left, 4),
        num_results=rung.num_results,
        num_promoted=rung.num_promoted,
    )
