"""Tables that verbs print: sorted, cut to a page, as text, CSV, JSON, YAML or names alone.

All listings take the same options (`arguments.TABLE`), which `render` applies.
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
_LONGEST = {"Job Name": 40, "Task Name": 40, "Description": 40}  # characters in a text table
SENTENCE = 400  # characters of any other text

Cell = str | int | float | bool | dict[str, Any] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A table that can be rendered in several forms.

    Args:
        title: A line above it.
        header: Names of the columns; a column without a name is only in the text form.
        rows: Values of the cells; None for a missing value.
        data: The rows for CSV, JSON and YAML, and for sorting; empty: `rows`.
        names: The columns that `--quiet` prints, such as ids; empty: the first column.
        if_empty: The text if there are no rows.
        num_unknown: Number of rows that exist but were not fetched.
        below: Lines of text, one to print below each row in place of the last column; or empty.
    """

    title: str = ""
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    if_empty: str = ""
    num_unknown: int = 0
    below: Sequence[str] = ()
    data: Sequence[Sequence[Cell]] = ()
    names: Sequence[str] = ()

    def row_indices(self, given: Namespace) -> list[int]:
        """Return the indices of the rows that the options select, in the order they request."""
        indices, without = list(range(len(self.rows))), []
        if given.sort_by is not None:
            column, rows = self._column(given), self.data or self.rows
            keys = [_sort_key(row[column]) for row in rows]
            without = [index for index in indices if keys[index] == _NO_VALUE]
            indices = sorted({*indices} - {*without}, key=lambda index: (keys[index], index))
        if given.reverse:
            indices.reverse()
        indices += without
        return indices[given.offset :][: page_of(given)]

    def arranged(self, given: Namespace) -> Listing:
        """Return the listing sorted and cut as the options request."""
        chosen = self.row_indices(given)
        num_left = max(0, len(self.rows) - given.offset - len(chosen))
        if_empty = self.if_empty
        if self.rows:
            if_empty = f"--offset and --limit leave none of {count(len(self.rows), 'row')}."
        return replace(
            self,
            rows=[self.rows[index] for index in chosen],
            data=[self.data[index] for index in chosen] if self.data else (),
            below=[self.below[index] for index in chosen] if self.below else (),
            if_empty=if_empty,
            num_unknown=self.num_unknown + num_left,
        )

    def _column(self, given: Namespace) -> int:
        """Return the index of the column that `--sort-by` names, in full or by its first words."""
        wanted = _option_name(given.sort_by)
        names = [_option_name(name) for name in self.header]
        matching = [index for index, name in enumerate(names) if name.startswith(wanted)]
        if not wanted or not matching:
            known = ", ".join(name for name in self.header if name)
            raise UsageError(
                f"{given.words}: --sort-by: got {given.sort_by!r}, expected one of {known}"
            )
        return names.index(wanted) if wanted in names else matching[0]

    def text(self, most: int | None = MOST_ROWS) -> str:
        """Return the table as text: the first `most` rows, and the number of the others."""
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
        """Return the cells of a row for the text form: each on one line, shortened."""
        return [
            shortened(cell_text(cell), _LONGEST.get(name, SENTENCE))
            for name, cell in zip(self.header, row, strict=True)
        ]

    def csv(self) -> str:
        """Return the table as comma-separated values; missing values are empty."""
        return csv_text([name for name in self.header if name], self._named_rows())

    def json(self) -> str:
        """Return the rows as JSON: one list, numbers as numbers."""
        return f"{json.dumps(self._documents(), indent=2, ensure_ascii=False)}\n"

    def yaml(self) -> str:
        """Return the rows as YAML: one list, numbers as numbers."""
        return to_yaml(self._documents())

    def quiet(self) -> str:
        """Return the columns in `names`, a line for each row."""
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


def render(listing: Listing, given: Namespace) -> str:
    """Return a listing in the form that the options request; as text all rows with `--all`."""
    listing = listing.arranged(given)
    if form := form_of(given):
        write: Callable[[], str] = getattr(listing, form)
        return write().rstrip("\n")
    return listing.text(None if given.all or page_of(given) is not None else MOST_ROWS)


def to_yaml(document: Any) -> str:
    """Return a JSON document as YAML."""
    plain = json.loads(json.dumps(document))  # enum members become strings
    return str(yaml.safe_dump(plain, sort_keys=False, allow_unicode=True))


def form_of(given: Namespace) -> str:
    """Return the form that an option requests: "csv", "json", "yaml" or "quiet"; "" for text."""
    return next((form for form in FORMS if getattr(given, form)), "")


def is_arranged(given: Namespace) -> bool:
    """Return whether the options request another order, or a part of the rows."""
    return bool(given.reverse or given.offset or given.sort_by or page_of(given) is not None)


def page_of(given: Namespace) -> int | None:
    """Return the number of rows that the options request; None: the default."""
    if given.pages == "all":
        return None
    limit: int | None = given.limit
    return _PAGE if limit is None and given.pages == "1" else limit


def _option_name(name: str) -> str:
    """Normalise the name of a column for `--sort-by`.

    >>> _option_name("# of Batches"), _option_name("resource_pool")
    ('of-batches', 'resource-pool')
    """
    return "-".join(re.findall(r"\w+", name.lower().replace("_", "-"))) or name


_NO_VALUE = (2, 0.0, "")  # last in both directions


def _sort_key(cell: Cell) -> tuple[int, float, str]:
    """Return the sort key of a cell: numbers first, then texts, then missing values."""
    match cell:
        case None | "":
            return _NO_VALUE
        case bool() | int() | float():
            return _NO_VALUE if cell != cell else (0, cell, "")
    return 1, 0.0, str(cell).lower()


def html_table(header: Sequence[str], rows: Iterable[Sequence[str]], style: str = "") -> str:
    """Return a table as HTML; `style` is an attribute, as text, for each of its cells."""
    head = "".join(f"<th{style}>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td{style}>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def cell_text(value: Any) -> str:
    """Return a value as the text of a cell.

    >>> [cell_text(value) for value in (0.123456, 3, None, True, "a", {"epochs": 1})]
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
