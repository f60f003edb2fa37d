"""Tables of any content: as DataFrame, CSV, Parquet and aligned text.

pandas and pyarrow are optional: they are imported by the functions that need them.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from det_jupyter.errors import DetError

Columns = dict[str, list[Any]]  # lists of equal length, by name

TIMES = ("time", "created", "ended")  # columns of UTC seconds
_FORMULA = tuple("=+-@\t\r\n＝＋－＠")  # first characters of cells that spreadsheets run
_NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?|inf|nan)", re.I | re.A)
_EMPTY = '""'  # a line with one empty cell: readers would skip an empty line
_QUOTED = re.compile('[",\r\n]')
_SUFFIXES = (".csv", ".parquet")


class Row(dict[str, Any]):
    """A row by column; the KeyError for `lr` names the column `hparams.lr`, if there is one."""

    def __missing__(self, name: str) -> Any:
        column = f"hparams.{name}"
        known = f"the columns are {', '.join(self)}"
        raise KeyError(
            f"{name!r}: its column is {column!r}" if column in self else f"{name!r}: {known}"
        )


class Rows(list[Row]):
    """A table as a list of rows; `pandas.DataFrame(rows)` accepts it."""

    def to_columns(self) -> Columns:
        """Return the table as columns; None where a row lacks a value."""
        names = dict.fromkeys(name for row in self for name in row)
        return {name: [row.get(name) for row in self] for name in names}

    def to_frame(self) -> Any:
        """Return the table as a pandas DataFrame.

        Raises:
            DetError: pandas is not installed.
        """
        return to_frame(self.to_columns())


def to_frame(columns: Columns) -> Any:
    """Return columns as a pandas DataFrame; columns of times become UTC timestamps."""
    pandas = _library("pandas", "a DataFrame")
    frame = pandas.DataFrame(columns)
    for name, values in columns.items():
        if name in TIMES:
            frame[name] = pandas.to_datetime(frame[name].astype("float64"), unit="s", utc=True)
        elif all(value is None for value in values):  # otherwise a column of objects
            frame[name] = frame[name].astype("float64")
    return frame


def plain_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as aligned text.

    >>> print(plain_table(("id", "name"), [("1", "digits"), ("12", "x")]))
    id  name
    1   digits
    12  x
    """
    cells = [header, *rows]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )


def check_target(file: str | Path) -> Path:
    """Check that `write` can write this file, and return its path.

    Raises:
        DetError: The suffix, the folder or a missing library prevents it.
    """
    path = Path(file).expanduser()
    if path.suffix.lower() not in _SUFFIXES:
        raise DetError(f"{file}: got a file {path.suffix or 'without a suffix'}, expected "
                       f"{' or '.join(_SUFFIXES)}")  # fmt: skip
    if not path.parent.is_dir():
        raise DetError(f"{file}: the folder {path.parent} does not exist; make it first")
    if path.suffix.lower() == ".parquet":
        _library("pyarrow.parquet", "a Parquet file")
    return path


def write(columns: Columns, file: str | Path) -> Path:
    """Write columns to a CSV or Parquet file, replacing it; return its path.

    Raises:
        DetError: It cannot be written.
    """
    path = check_target(file)
    try:
        if path.suffix.lower() == ".csv":
            path.write_text(to_csv(columns), encoding="utf-8")
        else:
            _write_parquet(columns, path)
    except OSError as error:
        raise DetError(f"{path}: cannot be written: {error.strerror or error}") from None
    return path


def to_csv(columns: Columns) -> str:
    """Return columns as comma-separated values; times as ISO 8601, missing values empty."""
    texts = [
        [None if at is None else datetime.fromtimestamp(at, UTC).isoformat() for at in values]
        if name in TIMES
        else values
        for name, values in columns.items()
    ]
    return csv_text(columns, zip(*texts, strict=True))


def csv_text(header: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """Return comma-separated values. All our CSV is made here, or in the page (saving.ts).

    A text that a spreadsheet would run as a formula gets an apostrophe before it, as OWASP
    advises: names of experiments and metrics may come from others. Numbers are not changed. One
    table of test cases covers both implementations.

    >>> print(csv_text(["=1+1", "b"], [["-0.5", -0.5], ["@x", True]]))
    '=1+1,b
    -0.5,-0.5
    '@x,true
    <BLANKLINE>
    """
    lines = (",".join(map(_csv_cell, row)) for row in [header, *rows])
    return "".join((line or _EMPTY) + "\n" for line in lines)


def _csv_cell(cell: Any) -> str:
    # Not the csv module, which leaves a carriage return unquoted where lines end with "\n".
    if isinstance(cell, bool | dict | list):
        text = json.dumps(cell, ensure_ascii=False)
    else:
        text = "" if cell is None else str(cell)
    if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text):
        text = f"'{text}"
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if _QUOTED.search(text) else text


def _write_parquet(columns: Columns, path: Path) -> None:
    pyarrow, parquet = importlib.import_module("pyarrow"), _library("pyarrow.parquet", "Parquet")

    def array(name: str, values: list[Any]) -> Any:
        if name in TIMES:
            stamps = [None if at is None else round(at * 1e6) for at in values]
            return pyarrow.array(stamps, pyarrow.timestamp("us", tz="UTC"))
        try:
            return pyarrow.array(values)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):  # values of several types
            return pyarrow.array([None if value is None else str(value) for value in values])

    table = pyarrow.table({name: array(name, values) for name, values in columns.items()})
    parquet.write_table(table, path)


def _library(name: str, purpose: str) -> Any:
    """Import a library; the DetError for a missing one says how to install it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = name.partition(".")[0]
        raise DetError(
            f"{purpose} needs {package}, which is not installed here ({error}); "
            f"install {package} with pip, or det-jupyter[dataframes]"
        ) from None
