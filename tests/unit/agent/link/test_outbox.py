"""What the master is told next: starts, journals, output in turns, exits when nothing is left."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.link.outbox import BATCH_BYTES, UNREADABLE_S, ReportOutbox
from det_jupyter.agent.runs.file_chunks import CHUNK_BYTES
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.agent.sampler.box import SampleBox
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import (
    AgentReport,
    Capsule,
    Chunk,
    DevicesSeen,
    DisksSeen,
    GangExited,
    GangPlan,
    RanksSeen,
    RoomReported,
    SlotView,
    SystemSampled,
)
from det_jupyter.contract.values.lengths import Length


def make_run(folder: Path, allocation_id: str = "1.1.1") -> AgentRun:
    plan = GangPlan(
        allocation_id=allocation_id,
        experiment_id=1,
        trial_id=1,
        run=1,
        python="python",
        cwd="/",
        slots=[SlotView(id=i, kind="cpu", index=i, name="CPU") for i in range(2)],
        config={},
        hparams={},
        seed=0,
        capsule=Capsule(entrypoint="Trial", payload="0", sources="0"),
        target=Length("batches", 100),
    )
    path = folder / allocation_id
    path.mkdir()
    return AgentRun(plan=plan, dir=RunDir(path), sockets=None)


def make_exit(run: AgentRun) -> GangExited:
    return GangExited(allocation_id=run.id, at=9.0, exit_codes={0: 0, 1: 0})


def outline(reports: list[AgentReport]) -> list[str]:
    return [
        f"{report.allocation_id} {report.stream}" if isinstance(report, Chunk) else report.kind
        for report in reports
    ]


def answer(reports: list[AgentReport]) -> dict[str, dict[str, int]]:
    """Return the offsets that a master has after it stored the reports."""
    offsets: dict[str, dict[str, int]] = {}
    for report in reports:
        if isinstance(report, Chunk):
            end = report.offset + report.size_bytes
            offsets.setdefault(report.allocation_id, {})[report.stream] = end
    return offsets


def test_start_comes_first_and_exit_last(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n")
    run.dir.output(1).write_text("hello\n")
    run.note_started(at=1.0, pids={0: 10, 1: 11}, note="")
    run.exited = make_exit(run)
    batch = ReportOutbox({run.id: run}).next_batch(now=0.0)
    assert outline(batch.reports) == [
        "gang_started",
        "1.1.1 journal-0",
        "1.1.1 output-1",
        "gang_exited",
    ]
    assert batch.is_last


def test_start_is_told_until_the_master_has_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    outbox = ReportOutbox({run.id: run})
    run.note_started(at=1.0, pids={0: 10, 1: 11}, note="")
    assert outline(outbox.next_batch(now=0.0).reports) == ["gang_started"]
    batch = outbox.next_batch(now=0.0)
    assert outline(batch.reports) == ["gang_started"]
    outbox.note_sent(batch, now=0.0)
    assert outbox.next_batch(now=0.0).reports == []


def test_exit_is_told_again_after_a_while_and_after_each_reconnection(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.exited = make_exit(run)
    outbox = ReportOutbox({run.id: run})
    outbox.note_sent(outbox.next_batch(now=0.0), now=0.0)
    assert outbox.next_batch(now=4.9).reports == []
    assert outline(outbox.next_batch(now=5.0).reports) == ["gang_exited"]
    outbox.reconnected({})
    assert outline(outbox.next_batch(now=0.1).reports) == ["gang_exited"]


def test_a_progress_bar_is_sent_once_a_second(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.output(0).write_text("\r 10%")
    outbox = ReportOutbox({run.id: run})

    def sent(now: float) -> list[str]:
        batch = outbox.next_batch(now)
        outbox.note_sent(batch, now)
        outbox.set_offsets(answer(batch.reports))
        return [report.text for report in batch.reports if isinstance(report, Chunk)]

    assert sent(now=5.0) == ["\r"]
    run.dir.output(0).write_text("\r 10%\r 20%\r 30%")
    assert sent(now=5.9) == []
    assert sent(now=6.0) == [" 10%\r 20%\r"]
    run.dir.output(0).write_text("\r 10%\r 20%\r 30%\n")
    assert sent(now=6.1) == [" 30%\n"]  # a whole line does not wait


def test_exit_waits_for_the_last_chunk(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.output(0).write_bytes(b"x" * (BATCH_BYTES + CHUNK_BYTES) + b"\n")
    run.exited = make_exit(run)
    outbox = ReportOutbox({run.id: run})
    first = outbox.next_batch(now=0.0)
    assert outline(first.reports) == ["1.1.1 output-0"] * 4
    assert not first.is_last
    outbox.set_offsets(answer(first.reports))
    assert outline(outbox.next_batch(now=0.0).reports) == [
        "1.1.1 output-0",
        "1.1.1 output-0",
        "gang_exited",
    ]


def test_nothing_counts_as_sent_before_the_master_says_so(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n")
    outbox = ReportOutbox({run.id: run})
    batch = outbox.next_batch(now=0.0)
    assert outbox.next_batch(now=0.0).reports == batch.reports
    assert outbox.set_offsets(answer(batch.reports))
    assert outbox.next_batch(now=0.0).reports == []
    assert not outbox.set_offsets(answer(batch.reports))


def test_master_that_lost_its_data_is_sent_everything_again(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n")
    outbox = ReportOutbox({run.id: run})
    outbox.set_offsets({run.id: {"journal-0": 3}})
    outbox.reconnected({})
    assert outline(outbox.next_batch(now=0.0).reports) == ["1.1.1 journal-0"]


def test_output_that_the_master_has_stored_is_freed_but_for_its_end(tmp_path: Path) -> None:
    run, mb = make_run(tmp_path), 1 << 20
    ReportOutbox({run.id: run}).set_offsets({run.id: {"journal-0": 40 * mb, "output-0": 40 * mb}})
    assert {each.name: each.freed for each in run.streams if each.freed} == {"output-0": 24 * mb}


def test_chatty_rank_delays_no_journal_and_takes_turns_with_the_others(tmp_path: Path) -> None:
    chatty, other = make_run(tmp_path, "1.1.1"), make_run(tmp_path, "2.1.1")
    chatty.dir.output(0).write_bytes((b"x" * 99 + b"\n") * (BATCH_BYTES // 20))
    other.dir.journal(1).write_text("{}\n")
    other.dir.output(0).write_text("hello\n")
    outbox = ReportOutbox({run.id: run for run in (chatty, other)})
    told: list[str] = []
    for _ in range(4):
        batch = outbox.next_batch(now=0.0)
        assert "2.1.1 journal-1" in outline(batch.reports) or "2.1.1 journal-1" in told
        outbox.set_offsets(answer(batch.reports))
        told += outline(batch.reports)
    assert told[0] == "2.1.1 journal-1"
    assert "2.1.1 output-0" in told


def test_a_rank_that_reports_much_delays_no_reports_of_another(tmp_path: Path) -> None:
    chatty, other = make_run(tmp_path, "1.1.1"), make_run(tmp_path, "2.1.1")
    chatty.dir.journal(0).write_bytes((b"x" * 99 + b"\n") * (BATCH_BYTES // 20))
    other.dir.journal(0).write_text("{}\n")
    outbox = ReportOutbox({run.id: run for run in (chatty, other)})
    told: list[str] = []
    for _ in range(2):
        batch = outbox.next_batch(now=0.0)
        outbox.set_offsets(answer(batch.reports))
        told += outline(batch.reports)
    assert "2.1.1 journal-0" in told


def test_exit_waits_for_a_file_that_cannot_be_read_now_but_not_for_ever(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n")
    run.dir.output(1).mkdir()  # can be opened by nobody, root included
    run.exited = make_exit(run)
    outbox = ReportOutbox({run.id: run})
    for now in (0.0, 1.0, UNREADABLE_S - 1):
        batch = outbox.next_batch(now=now)
        assert outline(batch.reports) == ["1.1.1 journal-0"]
        assert batch.is_last
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert outline(outbox.next_batch(now=UNREADABLE_S).reports)[-1] == "gang_exited"


def test_file_that_can_be_read_again_is_sent_before_the_exit(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.output(0).mkdir()
    run.exited = make_exit(run)
    outbox = ReportOutbox({run.id: run})
    assert outbox.next_batch(now=0.0).reports == []
    run.dir.output(0).rmdir()
    run.dir.output(0).write_text("last words\n")
    assert outline(outbox.next_batch(now=1.0).reports) == ["1.1.1 output-0", "gang_exited"]


def test_offsets_of_a_run_that_was_closed_meanwhile_are_not_waited_for(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n")
    runs = {run.id: run}
    outbox = ReportOutbox(runs)
    batch = outbox.next_batch(now=0.0)
    assert outbox.expects_offsets(batch)
    del runs[run.id]
    assert not outbox.expects_offsets(batch)


def test_samples_are_sent_once_and_before_journals_though_the_request_may_fail(
    tmp_path: Path,
) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n")
    samples = SampleBox()
    samples.put({"host": {"memory_free": 1.0}})
    samples.set_missing("host", {"disk_iops": "a container"})
    outbox = ReportOutbox({run.id: run}, samples)
    assert outline(outbox.next_batch(now=0.0).reports) == ["system_sampled", "1.1.1 journal-0"]
    samples.put({"host": {"memory_free": 2.0}})
    assert outline(outbox.next_batch(now=0.5).reports) == ["1.1.1 journal-0"]
    outbox.reconnected({})
    report = outbox.next_batch(now=1.0).reports[0]
    assert isinstance(report, SystemSampled)
    assert [sample.values["host"]["memory_free"] for sample in report.samples] == [2.0]
    assert report.missing == {"host": {"disk_iops": "a container"}}


def ranks_seen(run: AgentRun, at: float) -> None:
    run.seen, run.is_seen_sent = RanksSeen(allocation_id=run.id, at=at, places={}), False


def room_reported(run: AgentRun, at: float) -> None:
    run.room, run.is_room_sent = RoomReported(allocation_id=run.id, at=at, wait=None), False


@pytest.mark.parametrize(
    ("report", "kind"), [(ranks_seen, "ranks_seen"), (room_reported, "room_reported")]
)
def test_what_is_seen_of_a_run_is_told_once_to_each_master_and_then_what_is_newer(
    tmp_path: Path, report: Callable[[AgentRun, float], None], kind: str
) -> None:
    run, other = make_run(tmp_path), make_run(tmp_path, "2.1.1")
    outbox = ReportOutbox({run.id: run, other.id: other})
    report(run, 1.0)
    batch = outbox.next_batch(now=0.0)
    assert outline(batch.reports) == [kind]
    report(run, 2.0)  # while the request is under way
    outbox.note_sent(batch, now=0.0)
    batch = outbox.next_batch(now=0.0)
    assert [each.model_dump()["at"] for each in batch.reports] == [2.0]
    outbox.note_sent(batch, now=0.0)
    assert outbox.next_batch(now=0.0).reports == []
    outbox.reconnected({})
    assert outline(outbox.next_batch(now=0.0).reports) == [kind]


def test_devices_are_told_once_to_each_master_and_disks_once(tmp_path: Path) -> None:
    outbox = ReportOutbox({})
    outbox.note_devices(DevicesSeen(at=1.0, processes={}))
    outbox.note_disks(DisksSeen(at=1.0, disks=[]))
    batch = outbox.next_batch(now=0.0)
    assert outline(batch.reports) == ["disks_seen", "devices_seen"]
    assert outline(outbox.next_batch(now=0.0).reports) == ["devices_seen"]
    outbox.note_devices(DevicesSeen(at=2.0, processes={}))
    outbox.note_sent(batch, now=0.0)
    batch = outbox.next_batch(now=0.0)
    assert outline(batch.reports) == ["devices_seen"]
    outbox.note_sent(batch, now=0.0)
    assert outbox.next_batch(now=0.0).reports == []
    outbox.reconnected({})
    assert outline(outbox.next_batch(now=0.0).reports) == ["devices_seen"]


@pytest.mark.parametrize("sent", ["", "{}\n"])
def test_an_exit_waits_for_what_has_to_be_uploaded_first(tmp_path: Path, sent: str) -> None:
    run = make_run(tmp_path)
    run.dir.journal(0).write_text("{}\n{}\n")
    run.exited = make_exit(run)
    is_uploaded, are_files_sent = False, True
    kept = list[list[str]]()  # of these runs no copy of a checkpoint is removed

    def sendable(run: AgentRun, chunk: Chunk) -> Chunk | None:
        if is_uploaded:
            return chunk
        return chunk.model_copy(update={"text": sent, "size_bytes": len(sent)}) if sent else None

    uploads: Any = SimpleNamespace(
        sendable=sendable, remove_copies=lambda runs: kept.append([*runs])
    )
    files: Any = SimpleNamespace(are_sent=lambda run: are_files_sent)
    outbox = ReportOutbox({run.id: run}, uploads=uploads, files=files)
    assert outline(outbox.next_batch(now=0.0).reports) == ["1.1.1 journal-0"] * bool(sent)
    is_uploaded, are_files_sent = True, False
    assert outline(outbox.next_batch(now=0.0).reports) == ["1.1.1 journal-0"]
    are_files_sent = True
    assert outline(outbox.next_batch(now=0.0).reports) == ["1.1.1 journal-0", "gang_exited"]
    assert kept == [["1.1.1"]] * 3
