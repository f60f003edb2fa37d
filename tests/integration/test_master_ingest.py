"""Reports of agents are stored exactly once, with all that follows from them, or not at all."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from det_jupyter.contract.messages import ExperimentQuery, RunReport, State
from det_jupyter.contract.run.journal import BatchTimings, CheckpointSaved, Record, to_line
from det_jupyter.errors import Conflict, ProtocolMismatch
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.storing.store import Store
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    batches,
    bench_with_trial,
    first_step,
    gang_exited,
    last_words,
    make_chunk,
    make_registration,
    make_text_chunk,
    progress,
    started,
    validation,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master whose first trial has just been started."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


def test_a_chunk_sent_twice_is_stored_once(bench: Bench) -> None:
    chunk = make_chunk([batches(1, [0.5, 0.4])])
    expected = {RUN: {"journal-0": chunk.size_bytes}}
    assert bench.report(chunk) == expected
    assert bench.report(chunk) == expected
    assert bench.report(chunk, chunk) == expected
    assert [record["values"] for record in bench.metrics()] == [{"loss": [0.5, 0.4]}]


def test_stored_metrics_name_the_run_that_reported_them(bench: Bench) -> None:
    reports: list[Record] = [batches(1, [0.5]), validation(1, 0.5)]
    bench.report(make_chunk([started(), first_step(), *reports]))
    assert [(record["kind"], record["run"]) for record in bench.metrics()] == [
        ("batch_metrics", 1), ("metrics", 1),
    ]  # fmt: skip


def test_a_chunk_beyond_the_stored_bytes_waits_for_those_in_between(bench: Bench) -> None:
    first = make_chunk([batches(1, [0.5])])
    second = make_chunk([batches(2, [0.4])], offset=first.size_bytes)
    end = first.size_bytes + second.size_bytes
    assert bench.report(second) == {RUN: {"journal-0": 0}}
    assert bench.report(second, first) == {RUN: {"journal-0": first.size_bytes}}
    assert bench.report(second) == {RUN: {"journal-0": end}}
    assert [record["first"] for record in bench.metrics()] == [1, 2]


def test_an_overlapping_chunk_is_sent_again_from_our_offset(bench: Bench) -> None:
    first, both = make_chunk([batches(1, [0.5])]), make_chunk([batches(1, [0.5]), started()])
    bench.report(first)
    assert bench.report(both) == {RUN: {"journal-0": first.size_bytes}}
    assert len(bench.metrics()) == 1


def test_times_from_before_and_after_an_agent_s_clock_was_set_are_the_master_s(
    bench: Bench,
) -> None:
    bench.report(booted_at=10.0)
    bench.now = 1010.0
    before = replace(first_step(), at=1005.0)
    after = replace(batches(1, [0.5]), at=1008.0 + 3600)
    bench.report(make_chunk([before, after]), booted_at=10.0 + 3600)
    allocation = bench.service.machine.state.find_allocation(RUN)
    assert allocation is not None
    assert allocation[1].first_step_at == 1005.0
    [(at,)] = bench.store._db.execute("SELECT at FROM feed WHERE kind = 'metrics'").fetchall()
    assert at == pytest.approx(1008.0)


def test_sizes_are_those_of_the_file_and_not_of_the_repaired_text(bench: Bench) -> None:
    chunk = make_text_chunk("caf\ufffd\n", stream="output-1")
    chunk.size_bytes = 4  # the byte of a Latin-1 é, and no line end
    assert bench.report(chunk) == {RUN: {"output-1": 4}}
    assert bench.logs() == ["caf\ufffd"]


def test_a_line_that_is_no_record_is_skipped(bench: Bench) -> None:
    text = '{"kind": "from the future"}\n\x00\n' + to_line(batches(1, [0.5]))
    chunk = make_text_chunk(text, stream="journal-0")
    assert bench.report(chunk) == {RUN: {"journal-0": chunk.size_bytes}}
    assert len(bench.metrics()) == 1


def test_separators_of_unicode_do_not_break_records(bench: Bench) -> None:
    record = validation(1, "a\u2028b")
    bench.report(make_chunk([record]))
    assert bench.metrics()[0]["metrics"] == {"error": "a\u2028b"}


def test_a_whole_run_in_one_batch(bench: Bench) -> None:
    checkpoint = CheckpointSaved(
        at=1.5, uuid="u", steps_completed=100, path="/c", size_bytes=1, metadata={}
    )
    records: list[Record] = [
        first_step(),
        progress(50),
        validation(100, 0.25),
        checkpoint,
        *last_words(),
    ]
    bench.report(make_chunk([started(), *records]), make_chunk([started()], rank=1), gang_exited())
    view = bench.service.views.experiment(1)
    assert (view.state, view.progress) == (State.COMPLETED, 1.0)
    assert view.trials[0].best_metric == 0.25
    assert view.trials[0].allocation is None
    assert bench.service.machine.state.checkpoints["u"].searcher_metric == 0.25
    assert bench.commands()[-1] == "close_run"


def test_numbers_that_json_has_no_word_for_survive(bench: Bench) -> None:
    bench.report(make_chunk([batches(1, ["NaN", "Infinity"]), validation(2, "NaN")]))
    assert bench.metrics()[0]["values"] == {"loss": ["NaN", "Infinity"]}
    latest = bench.service.views.trial(1).latest_metric
    assert latest is None or latest != latest


def test_a_training_loss_diverges_from_its_last_number_on_until_the_next_one(
    bench: Bench,
) -> None:
    said = []
    offset = 0
    reports: list[tuple[int, list[float | str]]] = [
        (1, [0.5, "NaN", 0.4]), (4, [0.3, "NaN", "NaN"]), (7, ["NaN"]),
        (8, ["Infinity", 0.2]), (10, ["Infinity"]),
    ]  # fmt: skip
    for first, losses in reports:
        chunk = make_chunk([batches(first, losses)], offset=offset)
        bench.report(chunk)
        offset += chunk.size_bytes
        divergence = bench.service.views.trial(1).divergence
        said.append(divergence and str(divergence))
    assert said == [
        None, *["loss is NaN since batch 4"] * 2, None, "loss is infinite since batch 9",
    ]  # fmt: skip
    [row] = bench.service.views.find(ExperimentQuery()).rows
    assert row.alarm == said[-1]


def test_progress_alone_does_not_make_the_feed_grow(bench: Bench) -> None:
    size = len(bench.feed())
    offset = 0
    for steps in range(1, 6):
        chunk = make_chunk([progress(steps)], offset=offset)
        bench.report(chunk)
        offset += chunk.size_bytes
    items = bench.feed()
    assert len(items) == size
    assert sorted(kind for kind, _ in items[-2:]) == ["experiment", "trial"]
    assert bench.service.views.experiment(1).trials[0].steps_completed == 5


def test_steps_and_fraction_always_give_the_same_length(bench: Bench) -> None:
    offset = 0
    for record in (progress(10), batches(11, [0.5] * 12), progress(20), batches(23, [0.5] * 8)):
        chunk = make_chunk([record], offset=offset)
        bench.report(chunk)
        offset += chunk.size_bytes
        (trial,) = bench.service.views.experiment(1).trials
        assert trial.steps_completed / trial.progress == pytest.approx(100)
    assert trial.steps_completed == 30


def test_nothing_is_stored_when_the_disk_is_full(bench: Bench) -> None:
    db = bench.store._db
    num_pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {num_pages + 20}")  # what SQLite takes for a full disk
    before = bench.service.machine.state.model_dump_json()
    feed = bench.feed()
    batch = [
        make_chunk([started(), first_step(), batches(1, [0.5]), validation(1, 0.5)]),
        make_text_chunk("x" * 8000 + "\n" + "y" * 8000 * 100 + "\n", stream="output-0"),
    ]
    with pytest.raises(sqlite3.OperationalError, match="full"):
        bench.report(*batch, make_text_chunk(8192 * "z\n" * 20, stream="output-1"))
    assert bench.service.machine.state.model_dump_json() == before
    assert bench.feed() == feed
    assert bench.store.offsets_of(RUN) == {}
    assert bench.store.quarantine.rows() == []
    db.execute("PRAGMA max_page_count = 1000000")
    assert bench.report(*batch)[RUN]["journal-0"] > 0
    assert len(bench.metrics()) == 2


def test_what_was_reported_after_the_checkpoint_is_void_in_the_next_run(bench: Bench) -> None:
    checkpoint = CheckpointSaved(
        at=1.0, uuid="u", steps_completed=20, path="/c", size_bytes=1, metadata={}
    )
    kept = batches(11, [float(step) for step in range(11, 21)])
    straddling = batches(16, [float(step) for step in range(16, 26)])
    records: list[Record] = [started(), first_step(), kept, validation(20, 0.5), checkpoint]
    records += [straddling, batches(26, [26.0]), validation(26, 0.1), progress(40)]
    bench.report(make_chunk(records), gang_exited(lost=True))
    assert bench.service.machine.state.trials[1].runs == 2
    first, second, third = bench.metrics()
    assert first["values"] == kept.values
    assert second["group"] == "validation"
    assert third["values"] == {"loss": [16.0, 17.0, 18.0, 19.0, 20.0]}
    assert ("truncated", {"steps_completed": 20}) in bench.feed()
    view = bench.service.views.trial(1)
    assert view.steps_completed == 20
    assert view.progress == pytest.approx(0.2)


def timings(first: int, durations: list[int]) -> BatchTimings:
    """Return the timings of batches from `first` on."""
    records = [32] * len(durations)
    return BatchTimings(at=1.0, first=first, records=records, durations_ns={"batch": [*durations]})


def test_timings_are_stored_once_and_are_no_metrics(bench: Bench) -> None:
    chunk = make_chunk([started(), timings(1, [500, 400]), timings(3, [300]), timings(4, [])])
    bench.report(chunk)
    bench.report(chunk)
    first, second = bench.store.timings(1, after=0, limit=10)
    assert (first.first, first.records) == (1, [32, 32])
    assert first.durations_ns == {"batch": [500, 400]}
    assert second.durations_ns == {"batch": [300]}
    assert bench.store.timings(1, after=0, limit=1) == [first]
    assert bench.store.timings(1, after=first.id, limit=10) == [second]
    assert bench.metrics() == []
    assert bench.service.views.trial(1).steps_completed == 0


def test_timings_of_batches_that_are_trained_anew_are_void(bench: Bench) -> None:
    checkpoint = CheckpointSaved(
        at=1.0, uuid="u", steps_completed=2, path="/c", size_bytes=1, metadata={}
    )
    records: list[Record] = [started(), checkpoint, timings(1, [1, 2, 3]), timings(4, [4])]
    bench.report(make_chunk(records), gang_exited(lost=True))
    (kept,) = bench.store.timings(1, after=0, limit=10)
    assert (kept.first, kept.records, kept.durations_ns) == (1, [32, 32], {"batch": [1, 2]})


def test_timings_are_deleted_with_their_experiment(bench: Bench) -> None:
    bench.report(make_chunk([started(), timings(1, [1])]))
    for _ in bench.store.delete_experiment(1, [1]):
        pass
    assert bench.store.timings(1, after=0, limit=10) == []


def test_a_database_from_before_there_were_timings_opens(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite3"
    Store(path).close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("DROP TABLE timings")
    db.close()
    store = Store(path)
    assert store.timings(1, after=0, limit=10) == []
    store.close()


def test_a_run_that_nobody_knows_is_closed_and_its_bytes_are_passed_over(bench: Bench) -> None:
    chunk = make_chunk([batches(1, [0.5])], run="7.7.1")
    assert bench.report(chunk) == {"7.7.1": {"journal-0": chunk.size_bytes}}
    assert bench.metrics() == []
    bench.report(gang_exited("7.7.1"))
    assert bench.commands()[-1] == "close_run"


def test_an_exit_told_twice_is_closed_twice(bench: Bench) -> None:
    bench.report(make_chunk([started(), *last_words()]), gang_exited())
    bench.report(gang_exited())
    assert bench.commands()[-2:] == ["close_run", "close_run"]
    assert bench.service.views.experiment(1).state is State.COMPLETED


def test_only_the_registered_process_may_report(bench: Bench) -> None:
    bench.register("second", [RunReport(allocation_id=RUN, alive=True)])
    with pytest.raises(Conflict, match="not registered"):
        bench.report(make_chunk([started()]))


def test_a_reconnected_agent_is_told_what_is_stored(bench: Bench) -> None:
    chunk = make_chunk([started()])
    bench.report(chunk)
    answer = bench.register(runs=[RunReport(allocation_id=RUN, alive=True)])
    assert answer.offsets == {RUN: {"journal-0": chunk.size_bytes}}


def test_an_agent_of_another_version_is_refused(bench: Bench) -> None:
    registration = make_registration("x").model_copy(update={"protocol": 99})
    with pytest.raises(ProtocolMismatch, match="99"):
        bench.service.register(AGENT, registration)


def test_progress_is_reckoned_from_the_first_step_on(bench: Bench) -> None:
    first = replace(first_step(), fraction=0.01)
    bench.report(make_chunk([started(), first, batches(1, [0.5, 0.4, 0.3])]))
    trial = bench.service.views.trial(1)
    assert (trial.steps_completed, trial.progress) == (3, 0.03)


def test_a_new_start_has_everything(bench: Bench) -> None:
    bench.report(make_chunk([started(), first_step(), batches(1, [0.5]), progress(30)]))
    again = Bench(bench.store.path)  # as after a SIGKILL
    assert again.service.machine.state == bench.service.machine.state
    assert again.feed() == bench.feed()
    assert again.service.views.trial(1) == bench.service.views.trial(1)
    assert again.store.offsets_of(RUN) == bench.store.offsets_of(RUN)
    again.store.close()


def test_snapshot_and_later_events_equal_all_events(bench: Bench) -> None:
    state = bench.service.machine.state
    with bench.store.transaction():
        bench.store.history.add_snapshot(state.seq, state.model_dump_json())
    bench.report(make_chunk([started(), first_step()]))
    assert restore_machine(bench.store).state == bench.service.machine.state


def test_the_progress_of_a_script_that_reports_none_is_that_of_its_length(bench: Bench) -> None:
    bench.report(make_chunk([started(), batches(1, [0.5] * 30), validation(40, 0.5)]))
    trial = bench.service.views.trial(1)
    assert (trial.steps_completed, trial.progress) == (40, 0.4)
