"""Tables of verbs: sorted, cut to a page, and as plain text, CSV, JSON, YAML or names alone.

All listings take the same options (`arguments.TABLE`), and `written` does what they ask for.
"""

from __future__ import annotations

import json
import math
import re
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import yaml

from det_jupyter.client.tables import csv_text, plain_table
from det_jupyter.contract.values.text import count, shortened
from det_jupyter.errors import UsageError
from det_jupyter.front.verbs.arguments import FORMS

MOST_ROWS = 50
_PAGE = 200  # rows of `--pages 1`, as in Determined
_LONGEST = {"Job Name": 40, "Task Name": 40, "Description": 40}  # in a table for people
SENTENCE = 400  # that much of any other text goes into one

Cell = str | int | float | bool | dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table that can be written in several ways.

    Args:
        title: A line above it.
        header: Names of the columns; one without a name is for people only.
        rows: Cells as what they are; None: there is none.
        data: The rows as programs get them, and as they are sorted; none: the same.
        names: The columns that `--quiet` prints: what other verbs take; none: the first.
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
    data: Sequence[Sequence[Cell]] = ()
    names: Sequence[str] = ()

    def places(self, given: Namespace) -> list[int]:
        """Return the places of the rows that a line asks for, in its order."""
        places, without = list(range(len(self.rows))), []
        if given.sort_by is not None:
            column, rows = self._column(given), self.data or self.rows
            keys = [_sort_key(row[column]) for row in rows]
            without = [place for place in places if keys[place] == _NO_VALUE]
            places = sorted({*places} - {*without}, key=lambda place: (keys[place], place))
        if given.reverse:
            places.reverse()
        places += without
        return places[given.offset :][: page_of(given)]

    def arranged(self, given: Namespace) -> Listing:
        """Return it sorted and cut as the options of a line say."""
        chosen = self.places(given)
        num_left = max(0, len(self.rows) - given.offset - len(chosen))
        return replace(
            self,
            rows=[self.rows[place] for place in chosen],
            data=[self.data[place] for place in chosen] if self.data else (),
            below=[self.below[place] for place in chosen] if self.below else (),
            if_empty=_none_of(len(self.rows)) if self.rows else self.if_empty,
            num_unknown=self.num_unknown + num_left,
        )

    def _column(self, given: Namespace) -> int:
        """Return the place of the column to sort by, of which the first words are enough."""
        wanted = _plain(given.sort_by)
        names = [_plain(name) for name in self.header]
        fitting = [place for place, name in enumerate(names) if name.startswith(wanted)]
        if not wanted or not fitting:
            known = ", ".join(name for name in self.header if name)
            raise UsageError(
                f"{given.words}: --sort-by: got {given.sort_by!r}, expected one of {known}"
            )
        return names.index(wanted) if wanted in names else fitting[0]

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
        return csv_text([name for name in self.header if name], self._named_rows())

    def json(self) -> str:
        """Return its rows as JSON: one list, numbers as numbers."""
        return f"{json.dumps(self._documents(), indent=2, ensure_ascii=False)}\n"

    def yaml(self) -> str:
        """Return its rows as YAML: one list, numbers as numbers."""
        return to_yaml(self._documents())

    def quiet(self) -> str:
        """Return the names of its rows, a line each."""
        names = self.names or self.header[:1]
        return "".join(
            " ".join(str(row[name]) for name in names) + "\n" for row in self._documents()
        )

    def _documents(self) -> list[dict[str, Cell]]:
        header = [name for name in self.header if name]
        return [dict(zip(header, row, strict=True)) for row in self._named_rows()]

    def _named_rows(self) -> Iterator[list[Cell]]:
        for row in self.data or self.rows:
            yield [cell for name, cell in zip(self.header, row, strict=True) if name]


def written(listing: Listing, given: Namespace) -> str:
    """Return a table as a line asks for it: as data, or as text, which `--all` makes whole."""
    listing = listing.arranged(given)
    if form := form_of(given):
        write: Callable[[], str] = getattr(listing, form)
        return write().rstrip("\n")
    return listing.text(None if given.all or page_of(given) is not None else MOST_ROWS)


def _none_of(num_rows: int) -> str:
    return f"--offset and --limit leave none of {count(num_rows, 'row')}."


def to_yaml(document: Any) -> str:
    """Return what JSON can hold as YAML: states, too, which are texts of a kind of their own."""
    plain = json.loads(json.dumps(document))
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def form_of(given: Namespace) -> str:
    """Return the form for programs that a line asks for; "": text for people."""
    return next((form for form in FORMS if getattr(given, form)), "")


def is_arranged(given: Namespace) -> bool:
    """Return whether a line asks for another order than a listing has, or for a part of it."""
    return bool(given.reverse or given.offset or given.sort_by or page_of(given) is not None)


def page_of(given: Namespace) -> int | None:
    """Return how many rows to write; None: as many as usual."""
    if given.pages == "all":
        return None
    limit: int | None = given.limit
    return _PAGE if limit is None and given.pages == "1" else limit


def _plain(name: str) -> str:
    """Return the name of a column as `--sort-by` takes it: any spelling of its words.

    >>> _plain("# of Batches"), _plain("resource_pool")
    ('of-batches', 'resource-pool')
    """
    return "-".join(re.findall(r"\w+", name.lower().replace("_", "-"))) or name


_NO_VALUE = (2, 0.0, "")  # stands last, in both directions


def _sort_key(cell: Cell) -> tuple[int, float, str]:
    """Return the order of cells: numbers, then texts, then those without a value."""
    match cell:
        case None | "":
            return _NO_VALUE
        case bool() | int() | float():
            return _NO_VALUE if cell != cell else (0, cell, "")
    return 1, 0.0, str(cell).lower()


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
