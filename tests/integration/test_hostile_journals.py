"""Whatever a journal says, intake takes it: good lines around are stored, and trials go on.

Lines are those that a rank of this version writes, damaged in every field; those that no program
of ours would write; and bytes at random.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import RankStall, State
from det_jupyter.contract.run.journal import (
    BatchTimings,
    ChangeMade,
    CheckpointDeleted,
    CheckpointSaved,
    CheckpointShare,
    LastStepSaved,
    Notice,
    PartTimes,
    RanksStalled,
    Record,
    StepTimes,
    TargetReached,
    TraceSaved,
    parse_line,
    to_line,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.master.service.reports.journal_records import NEEDED
from tests.integration.master_support import (
    RUN,
    Bench,
    batches,
    bench_with_trial,
    first_step,
    gang_exited,
    last_words,
    make_chunk,
    make_text_chunk,
    progress,
    started,
    validation,
)
from tests.unit.master.machine_invariants import check_machine
from tests.unit.master.machine_world import failed

GOOD: list[Record] = [
    started(),
    first_step(),
    batches(1, [0.5, 0.4]),
    BatchTimings(at=1.0, first=1, records=[8], durations_ns={"batch": [5]}),
    StepTimes(
        at=2.0,
        first=1,
        batches=2,
        samples=16,
        seconds=1.0,
        parts={"rest": PartTimes(2, 1.0, 0.5, 0.5, 0.5)},
    ),
    validation(2, 0.5),
    progress(2),
    CheckpointSaved(at=1.0, uuid="u", steps_completed=2, path="/u", size_bytes=1, metadata={}),
    LastStepSaved(at=1.0, steps_completed=2, repeats=1),
    CheckpointDeleted(at=1.0, uuid="u"),
    CheckpointShare(at=1.0, uuid="u", share=0, num_shares=2, path="/u"),
    TargetReached(at=1.0, steps_completed=2, target=Length("batches", 2)),
    last_words()[1],
    failed().record,
    Notice(at=1.0, rank=0, text="mind"),
    RanksStalled(at=1.0, since=0.5, ranks=[RankStall(rank=0, kind="still", pid=7)]),
    TraceSaved(at=1.0, order_id=3, first=1, steps=2, path="/trace", size_bytes=5),
    ChangeMade(at=1.0, order_id=3, steps_completed=2, text="lr 1 → 2"),
]
NUMBERS = ["-1", "1.5", "1e999", "-1e999", "NaN", '"NaN"', '"Infinity"', str(2**53 + 1),
           str(2**63), str(-(2**63) - 1), "9" * 400, "9" * 5000, "null", "true", '"7"', "[]", "{}",
           '"\\ud800"', '"\\u0000"', "[" * 500 + "]" * 500]  # fmt: skip
STRANGE = ["", "null", "0", "[]", "{}", '"words"', '{"kind": null}', '{"kind": "metrics"}',
           '{"kind": "from the future", "at": 1}', "{" * 10_000, "[" * 100_000, "\x00", "\ufeff{}",
           '{"kind": "progress"', "\u2028", "🙂" * 1000, "x" * 1_000_000]  # fmt: skip


def damaged(record: Record) -> Iterator[str]:
    """Yield its line with something else in the place of each value, and without each."""
    whole = json.loads(to_line(record))
    for path in paths_of(whole):
        for number in NUMBERS:
            yield json.dumps(changed(whole, path, "PLACE")).replace('"PLACE"', number, 1)
    for key in whole:
        yield json.dumps({name: value for name, value in whole.items() if name != key})
    yield json.dumps(whole | {"unheard": 1})


def paths_of(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items: Any = value.items() if isinstance(value, dict) else ()
    items = enumerate(value) if isinstance(value, list) else items
    for key, item in items:
        yield from paths_of(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master whose first trial has just been started."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


class Journal:
    """The chief's journal, on its way to the master."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._offset = 0

    def send(self, text: str) -> None:
        """Report more of it; all of it must be acknowledged."""
        chunk = make_text_chunk(text, stream="journal-0", offset=self._offset)
        self._offset += chunk.size_bytes
        assert self._bench.report(chunk) == {RUN: {"journal-0": self._offset}}


def test_every_kind_of_record_is_damaged_here() -> None:
    kinds = {kind for kind in get_args(get_args(Record)[0])}
    assert {type(record) for record in GOOD} == kinds
    assert {record.kind for record in GOOD} - NEEDED == {
        "batch_metrics", "timings", "step_times", "metrics", "progress", "notice", "trace",
        "change", "checkpoint_deleted", "checkpoint_share", "stalled", "last_step",
    }  # fmt: skip


@pytest.mark.parametrize("record", GOOD, ids=lambda record: record.kind)
def test_a_damaged_record_is_taken_in_and_what_follows_is_stored(
    bench: Bench, record: Record
) -> None:
    journal = Journal(bench)
    for line in damaged(record):
        journal.send(line + "\n")
        if bench.service.machine.state.experiments[1].is_given_up:
            bench.report(gang_exited(code=-9))
            break
    else:
        journal.send(to_line(batches(7, [0.7])))
        assert bench.metrics()[-1]["values"] == {"loss": [0.7]}
        return
    assert record.kind in NEEDED
    assert bench.service.views.experiment(1).state is State.ERROR
    message = bench.service.views.experiment(1).message
    assert message.startswith("the master failed at journal-0 of run 1.1.1 (")


@pytest.mark.parametrize("record", GOOD, ids=lambda record: record.kind)
def test_what_passes_the_bounds_raises_nowhere(bench: Bench, record: Record) -> None:
    lines = []
    for line in damaged(record):
        try:
            parse_line(line)
        except ValueError:
            continue
        lines.append(line)
    journal = Journal(bench)
    journal.send("".join(f"{line}\n" for line in lines))
    assert bench.store.quarantine.rows() == []
    assert bench.service.views.experiment(1)


def test_lines_that_are_no_records_are_shown_on_the_experiment(bench: Bench) -> None:
    journal = Journal(bench)
    for line in STRANGE:
        journal.send(f"{to_line(batches(1, [0.5]))}{line}\n")
    assert len(bench.metrics()) == len(STRANGE)
    num = len([line for line in STRANGE if line])
    assert len(bench.store.quarantine.rows()) == num
    message = bench.service.views.experiment(1).message
    assert message.startswith("set aside, as it could not be read or handled: journal-0 of run")
    assert message.endswith(f"and {num - 1} more")
    bench.report(make_chunk([started(), *last_words()], rank=1), gang_exited())
    assert bench.service.views.experiment(1).state is State.COMPLETED


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    lines=st.lists(
        st.sampled_from([to_line(record).rstrip() for record in GOOD])
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
        | st.recursive(
            st.none() | st.integers() | st.floats() | st.text(max_size=3),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
            max_leaves=8,
        ).map(json.dumps),
        max_size=12,
    )
)
def test_any_lines_in_any_order_are_taken_in(tmp_path: Path, lines: list[str]) -> None:
    (tmp_path / "det.sqlite3").unlink(missing_ok=True)
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        journal = Journal(bench)
        journal.send("".join(f"{line}\n" for line in lines))
        journal.send(to_line(batches(1, [0.7])))
        check_machine(bench.service.machine)
    for name in ("det.sqlite3-wal", "det.sqlite3-shm"):
        (tmp_path / name).unlink(missing_ok=True)
