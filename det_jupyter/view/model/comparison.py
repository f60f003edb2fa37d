"""The JSON of a comparison of experiments, or of trials of one search."""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.trial_state import Chart


class Side(TypedDict):
    """A compared experiment or trial, by its id.

    `look` is the look of its curves, whose `trial_id` is this `id`. `note` names the trial that
    represents a search; "" for an experiment with one trial.
    """

    id: int
    label: str
    note: str
    look: int
    status: Status
    status_word: str


class Fact(TypedDict):
    """A row of a table: a text for each side, and the indices of the best sides."""

    name: str
    values: list[str]
    best: list[int]


class FactTable(TypedDict):
    """Rows under a title; the text `empty` is shown if there are no rows."""

    title: str
    facts: list[Fact]
    empty: str


class CodeDifference(TypedDict):
    """The difference of a cell or module between the first side and another, as unified diff."""

    name: str
    side: int
    lines: list[str]


class ComparisonState(TypedDict):
    """The state of a comparison; `notes` are sentences on how it was made."""

    title: str
    as_of: float
    sides: list[Side]
    notes: list[str]
    charts: list[Chart]
    more_metrics: list[str]
    no_metrics: str
    tables: list[FactTable]
    code: list[CodeDifference]
    no_code: str
