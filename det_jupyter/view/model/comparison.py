"""The JSON that a comparison of experiments, or of trials of one search, is drawn from."""

from __future__ import annotations

from typing import TypedDict

from det_jupyter.view.model.status_looks import Status
from det_jupyter.view.model.trial_state import Chart


class Side(TypedDict):
    """One of those compared: the number of an experiment, or of a trial.

    `look` is that of its curves, whose `trial_id` is this `id`. `note` says which trial stands
    for a search; empty for an experiment of one trial.
    """

    id: int
    label: str
    note: str
    look: int
    status: Status
    status_word: str


class Fact(TypedDict):
    """A line of a table: a text for each side, and which of them are the best."""

    name: str
    values: list[str]
    best: list[int]


class Table(TypedDict):
    """Facts under a title; `empty` is the sentence in place of a table without facts."""

    title: str
    facts: list[Fact]
    empty: str


class CodeDifference(TypedDict):
    """What differs in one cell or module between the first side and another, as unified diff."""

    name: str
    side: int
    lines: list[str]


class ComparisonState(TypedDict):
    """Everything that a comparison shows; `notes` are sentences on what is compared."""

    title: str
    as_of: float
    sides: list[Side]
    notes: list[str]
    charts: list[Chart]
    more_metrics: list[str]
    no_metrics: str
    tables: list[Table]
    code: list[CodeDifference]
    no_code: str
