"""Records as lines: what is written is what is read, whatever is in it."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.run.journal import (
    BatchMetrics,
    MetricsReported,
    RankFailure,
    TargetReached,
    parse_line,
    to_line,
)
from det_jupyter.contract.values.json_numbers import json_ready, to_number
from det_jupyter.contract.values.lengths import Length

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@given(names, st.dictionaries(names, st.floats(allow_nan=False, allow_infinity=False)))
def test_a_record_is_read_as_it_was_written(group: str, metrics: dict[str, float]) -> None:
    record = MetricsReported(at=1.0, group=group, steps_completed=3, metrics=metrics)
    line = to_line(record)
    assert line.count("\n") == 1
    assert parse_line(line) == record


def test_numbers_that_json_has_no_word_for_travel_by_name() -> None:
    record = BatchMetrics(at=1.0, first=1, values={"loss": [math.nan, math.inf, -math.inf, 1.0]})
    values = parse_line(to_line(record)).values["loss"]  # type: ignore[union-attr]
    assert values == ["NaN", "Infinity", "-Infinity", 1.0]
    assert math.isnan(to_number(values[0]) or 0.0)
    assert to_number(values[1]) == math.inf


@pytest.mark.parametrize("value", [None, True, "words", [1], {}])
def test_what_is_no_number_has_no_number(value: object) -> None:
    assert to_number(value) is None


def test_text_that_utf8_cannot_carry_does_not_lose_the_record() -> None:
    failure = RankFailure(at=1.0, rank=0, error="no file 'caf\udce9'", traceback="\udce9\u2028")
    assert parse_line(to_line(failure)).error == "no file 'caf?'"  # type: ignore[union-attr]


@given(st.lists(st.one_of(st.floats(), st.integers(), st.text(max_size=5)), max_size=5))
def test_long_records_are_written_as_all_others_are(values: list[object]) -> None:
    line = to_line(BatchMetrics(at=1.0, first=2, values={"loss": values, "späte": []}))
    assert line.isascii()
    assert json.loads(line) == {
        "at": 1.0,
        "first": 2,
        "values": {"loss": json_ready(values), "späte": []},
        "kind": "batch_metrics",
    }


@given(st.lists(st.one_of(st.floats(), st.integers()), max_size=5))
def test_numbers_in_long_records_are_json_s(values: list[float]) -> None:
    line = to_line(BatchMetrics(at=1.0, first=2, values={"loss": values}))
    assert json.loads(line)["values"]["loss"] == json_ready(values)


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "progress", "at": 1, "steps_completed": 1, "fraction": 1.5}',
        '{"kind": "progress", "at": 1, "steps_completed": 1, "fraction": "NaN"}',
        '{"kind": "progress", "at": 1, "steps_completed": -1, "fraction": 0.5}',
        '{"kind": "progress", "at": 1, "steps_completed": 9007199254740993, "fraction": 0.5}',
        '{"kind": "progress", "at": 1e300, "steps_completed": 1, "fraction": 0.5}',
        '{"kind": "rank_started", "at": 1, "pid": 2147483648, "backend": "", "device": ""}',
        '{"kind": "batch_metrics", "at": 1, "first": 1, "values": {"a": [9223372036854775808]}}',
        '{"kind": "metrics", "at": 1, "group": "a", "steps_completed": 1, "metrics": {"a": [1%s]}}'
        % ("0" * 400),
        '{"kind": "target_reached", "at": 1, "steps_completed": 1, "target": {"batches": -1}}',
        '{"kind": "notice", "at": 1, "rank": 1048577, "text": ""}',
    ],
)
def test_a_number_beyond_its_bounds_makes_no_record(line: str) -> None:
    with pytest.raises(ValueError, match=r"got|should be|not negative"):
        parse_line(line)


def test_what_ranks_say_moves_no_terminal() -> None:
    failure = RankFailure(at=1.0, rank=0, error="\x1b[2Jgone \u061c", traceback="a\r\nb\x07")
    read = parse_line(to_line(failure))
    assert isinstance(read, RankFailure)
    assert (read.error, read.traceback) == ("gone \ufffd", "a\nb\ufffd")


def test_a_target_is_written_as_a_configuration_has_it() -> None:
    record = TargetReached(at=1.0, steps_completed=2, target=Length("epochs", 6))
    assert '"target":{"epochs":6}' in to_line(record)
    assert parse_line(to_line(record)) == record
