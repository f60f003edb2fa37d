"""Tables as CSV and Parquet files."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pytest

from det_jupyter.client.tables import Columns, Row, Rows, plain_table, write
from det_jupyter.errors import DetError
from tests.unit.client.absent_libraries import without


def test_csv_needs_no_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without(monkeypatch, "pandas", "pyarrow")
    columns: Columns = {
        "time": [0.5, None], "name": ["a, “b”", "c"], "value": [0.1, None], "flag": [True, False],
        "shape": [[1, 2], {"x": 1}],
    }  # fmt: skip
    path = write(columns, tmp_path / "table.csv")
    with path.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [
            ["time", "name", "value", "flag", "shape"],
            ["1970-01-01T00:00:00.500000+00:00", "a, “b”", "0.1", "true", "[1, 2]"],
            ["", "c", "", "false", '{"x": 1}'],
        ]


def test_parquet_keeps_numbers_times_and_columns_of_several_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    columns: Columns = {
        "time": [0.5, None], "value": [0.1, None], "hparams.depth": [3, "auto"],
    }  # fmt: skip
    path = write(columns, str(tmp_path / "table.parquet"))
    table = parquet.read_table(path).to_pydict()
    assert table["value"] == [0.1, None]
    assert table["hparams.depth"] == ["3", "auto"]
    assert table["time"][0].isoformat() == "1970-01-01T00:00:00.500000+00:00"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("table.xlsx", r"table\.xlsx: got a file \.xlsx, expected \.csv or \.parquet"),
        ("table", r"table: got a file without a suffix, expected \.csv or \.parquet"),
        ("no/table.csv", "the folder .*/no does not exist; make it first"),
        ("table.parquet", "a Parquet file needs pyarrow.*install pyarrow with pip"),
        ("folder.csv", "cannot be written: Is a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    without(monkeypatch, "pyarrow")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(DetError, match=words):
        write({"value": [1]}, tmp_path / name)


def test_no_trials_are_an_empty_table() -> None:
    assert Rows().to_columns() == {}
    assert list(Rows()) == []
    assert "pandas" not in vars(sys.modules["det_jupyter.client.tables"])


def test_a_frame_has_times_numbers_and_texts() -> None:
    pytest.importorskip("pandas")
    rows = Rows([Row(time=0.5, name="a", value=1.0), Row(time=None, name=None, lr=None)])
    frame = rows.to_frame()
    assert [str(each) for each in frame.dtypes] == [
        "datetime64[ns, UTC]", frame["name"].dtype.name, "float64", "float64",
    ]  # fmt: skip
    assert frame["time"][0].isoformat() == "1970-01-01T00:00:00.500000+00:00"
    assert frame["name"].tolist()[0] == "a"
    assert frame["value"].isna().tolist() == [False, True]


def test_a_column_that_is_not_there_is_told_with_those_that_are() -> None:
    row = Row({"id": 3, "hparams.lr": 0.1})
    assert row["id"] == 3
    with pytest.raises(KeyError, match=r"'lr': its column is 'hparams\.lr'"):
        row["lr"]
    with pytest.raises(KeyError, match=r"'x': the columns are id, hparams\.lr"):
        row["x"]


def test_a_plain_table_is_aligned_by_the_widest_cell_of_each_column() -> None:
    table = plain_table(("id", "name"), [("1", "a"), ("1234", "digits")])
    assert table == "id    name\n1     a\n1234  digits"
