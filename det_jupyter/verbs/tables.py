"""Tables of verbs: as plain text, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import yaml

from det_jupyter.client.tables import plain_table
from det_jupyter.words import shortened

MOST_ROWS = 50
_LONGEST = {"Job Name": 40, "Task Name": 40, "Description": 40}  # in a table for people
SENTENCE = 400  # that much of any other text goes into one

Cell = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table that can be written in several ways.

    Args:
        title: A line above it.
        header: Names of the columns; one without a name is for people only.
        rows: Cells as what they are; None: there is none.
        if_empty: What to say if there are no rows.
        num_unknown: How many rows there are that are not at hand.
        below: If not empty, as text each row has this line below it instead of the last column.
    """

    title: str = ""
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    if_empty: str = ""
    num_unknown: int = 0
    below: Sequence[str] = ()

    def text(self, most: int | None = MOST_ROWS) -> str:
        """Return it as lines; of many rows only the front, and how many there are."""
        title = f"{self.title}\n" if self.title else ""
        if not self.rows:
            return f"{title}{self.if_empty}"
        front = self.rows if most is None else self.rows[:most]
        rest = ""
        if more := len(self.rows) - len(front) + self.num_unknown:
            hint = "; --all lists more" if len(front) < len(self.rows) else ""
            rest = f"\n… and {more:,} more{hint}"
        return f"{title}{self._table(front)}{rest}"

    def _table(self, rows: Sequence[Sequence[Cell]]) -> str:
        cells = [self.texts(row) for row in rows]
        if not self.below:
            return plain_table(self.header, cells)
        head, *lines = plain_table(self.header[:-1], [row[:-1] for row in cells]).splitlines()
        below = [f"\n    {text}" if text else "" for text in self.below[: len(rows)]]
        return "\n".join([head, *map("".join, zip(lines, below, strict=True))])

    def texts(self, row: Sequence[Cell]) -> list[str]:
        """Return the cells of a row as people read them: each on one line, and not too long."""
        return [
            shortened(shown(cell), _LONGEST.get(name, SENTENCE))
            for name, cell in zip(self.header, row, strict=True)
        ]

    def csv(self) -> str:
        """Return it as comma-separated values; what there is none of is empty."""
        file = io.StringIO()
        named = [list(row) for row in self._named_rows()]
        rows = [[str(c).lower() if isinstance(c, bool) else c for c in row] for row in named]
        header = [name for name in self.header if name]
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
        return file.getvalue()

    def json(self) -> str:
        """Return its rows as JSON: one list, numbers as numbers."""
        header = [name for name in self.header if name]
        rows = [dict(zip(header, row, strict=True)) for row in self._named_rows()]
        return f"{json.dumps(rows, indent=2, ensure_ascii=False)}\n"

    def _named_rows(self) -> Iterator[list[Cell]]:
        for row in self.rows:
            yield [cell for name, cell in zip(self.header, row, strict=True) if name]


def written(listing: Listing, given: Namespace) -> str:
    """Return a table as a line asks for it: CSV, JSON, or text, which `--all` makes whole."""
    if given.csv or given.json:
        return (listing.csv() if given.csv else listing.json()).rstrip("\n")
    return listing.text(None if given.all else MOST_ROWS)


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], style: str = "") -> str:
    """Return a table as HTML; `style` is an attribute of each of its cells."""
    head = "".join(f"<th{style}>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td{style}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def shown(value: Any) -> str:
    """Return a value as a cell of a table.

    >>> [shown(value) for value in (0.123456, 3, None, True, "a", {"epochs": 1})]
    ['0.1235', '3', '-', 'true', 'a', '{epochs: 1}']
    """
    match value:
        case None:
            return "-"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.4g}"
        case dict() | list():
            return str(yaml.safe_dump(value, default_flow_style=True, width=math.inf)).strip()
        case _:
            return str(value)
