"""The files of a run: lines appended to a journal, and the environment before the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from det_jupyter.contract.host.rundir import (
    BEFORE_VARIABLE,
    append_to_journal,
    run_dir,
    without_run,
)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{"b":2}\n'),
        ('{"a":1}\n', '{"a":1}\n{"b":2}\n'),
        ('{"a":1}\n{"cut', '{"a":1}\n{"cut\n{"b":2}\n'),
    ],
)
def test_a_line_that_is_appended_stands_by_itself_even_after_a_cut_one(
    tmp_path: Path, before: str, after: str
) -> None:
    journal = run_dir(tmp_path, "1.1.1").journal(0)
    journal.parent.mkdir(parents=True)
    journal.write_text(before)
    append_to_journal(journal, '{"b":2}\n')
    assert journal.read_text() == after


@pytest.mark.parametrize("value", ["no JSON", "3", '["A"]', "null"])
def test_a_former_environment_that_cannot_be_read_changes_nothing(value: str) -> None:
    assert without_run({"A": "1", BEFORE_VARIABLE: value}) == {"A": "1"}
