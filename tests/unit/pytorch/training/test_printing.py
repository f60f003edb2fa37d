"""What a training in this process prints: its reports, and where its time went."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.run.journal import (
    BatchTimings,
    CheckpointSaved,
    MetricsReported,
    Notice,
    PartTimes,
    StepTimes,
)
from det_jupyter.pytorch.training.printing import PrintedRecords, SilentRecords


def times(seconds: float, counters: dict[str, float] | None = None, **parts: float) -> StepTimes:
    return StepTimes(
        at=1.0, first=1, batches=1, samples=8, seconds=seconds, counters=counters or {},
        parts={
            name.replace("__", "."): PartTimes(1, total, total, total, total)
            for name, total in parts.items()
        },
    )  # fmt: skip


def printed(capsys: pytest.CaptureFixture[str], *records: Any) -> list[str]:
    sink = PrintedRecords()
    for record in records:
        sink.write(record)
    assert capsys.readouterr().out == ""
    sink.print_timings()
    lines = capsys.readouterr().out.splitlines()
    sink.print_timings()
    assert [line for line in capsys.readouterr().out.splitlines() if "time" in line] == []
    return lines


def test_shares_of_the_time_are_printed_by_size_once(capsys: pytest.CaptureFixture[str]) -> None:
    first = times(6.0, {"tokens": 500.0}, forward=2.0, backward=3.0, rest=0.05, section__norm=0.1)
    second = times(4.0, {"tokens": 700.0}, forward=4.0, section__attention=2.5, section__loss=3.0)
    assert printed(capsys, first, second) == [
        "time  0:10: forward, with the loss 60 %, backward 30 %",
        "sections  loss 30 %, attention 25 %, norm 1 %",
        "tokens  1,200, 120 a second",
    ]


@pytest.mark.parametrize(("seconds", "lines"), [(0.99, 0), (1.0, 1)])
def test_a_short_training_has_no_line_about_its_time(
    seconds: float, lines: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(printed(capsys, times(seconds, forward=0.5))) == lines


def test_medians_of_batches_are_printed_where_they_were_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    durations: dict[str, list[int | None]] = {
        "batch": [2_000_000, None, 4_000_000],
        "forward": [None],
    }
    timings = BatchTimings(at=0.0, first=1, records=[8, 8, 8], durations_ns=durations)
    assert printed(capsys, timings) == ["batch                             3.000 ms"]


def test_reports_are_printed_and_kept_and_other_records_are_not(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sink = PrintedRecords()
    metrics = {"loss": 0.123456789, "text": "x" * 41, "n": 3}
    report = MetricsReported(at=0.0, group="validation", steps_completed=20, metrics=metrics)
    saved = CheckpointSaved(
        at=0.0, uuid="abc", path="p", steps_completed=20, size_bytes=1, metadata={}
    )
    for record in (report, Notice(at=0.0, rank=0, text="a notice"), saved):
        sink.write(record)
    assert sink.records == [report, saved]
    assert capsys.readouterr().out.splitlines() == [
        f"batch 20  validation  loss 0.123457  text {'x' * 37}...  n 3",
        "batch 20  checkpoint  abc",
    ]


def test_silent_records_are_all_but_the_times() -> None:
    sink, notice = SilentRecords(), Notice(at=0.0, rank=0, text="a notice")
    sink.write(times(1.0))
    sink.write(notice)
    assert sink.records == [notice]
