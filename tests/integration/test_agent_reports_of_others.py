"""What an agent reports of runs on other agents changes nothing: a row for each kind of report."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import (
    AgentReport,
    AgentReports,
    DevicesSeen,
    DisksSeen,
    GangStarted,
    RankProcess,
    RanksSeen,
    RoomReported,
    RoomWait,
    RunReport,
    SystemSample,
    SystemSampled,
)
from det_jupyter.contract.messages.reports import Unreadable
from det_jupyter.contract.run.journal import CheckpointDeleted, CheckpointSaved
from det_jupyter.master.service.service import Service
from tests.integration.master_support import (
    RUN,
    Bench,
    bench_with_trial,
    gang_exited,
    gang_started,
    make_chunk,
    make_registration,
    make_request,
    started,
)

OTHER = "2.2.1"  # the run of the other agent
PROCESS = RankProcess(rank=0, pid=9, connection_file="/x", output_file="/x")
# As it would count if the sender carried the run.
REPORTS: dict[str, AgentReport] = {
    "chunk": make_chunk([started()]),
    "gang_started": GangStarted(allocation_id=RUN, at=1.0, ranks=[PROCESS]),
    "ranks_seen": RanksSeen(allocation_id=RUN, at=1.0, places={}, saving_since=1.0),
    "gang_exited": gang_exited(RUN, code=1),
    "devices_seen": DevicesSeen(at=1.0, processes={}),
    "room_reported": RoomReported(
        allocation_id=RUN, at=1.0, wait=RoomWait(folder="/x", since=1.0)
    ),
    "disks_seen": DisksSeen(at=1.0, disks=[]),
    "system_sampled": SystemSampled(
        samples=[SystemSample(at=1.0, values={f"rank:{RUN}:0": {"cpu_util": 7.0}})]
    ),
    "unreadable": Unreadable(
        content={
            "allocation_id": RUN, "stream": "journal-0", "offset": 0, "size_bytes": 5, "text": 1
        },
        problem="text: expected text",
    ),
}  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master with a trial on `here`, and one on `b`, which is on another computer."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        bench.service.access.add("b")
        register_b(bench)
        asyncio.run(bench.service.submit(make_request()))
        from_b(bench, gang_started(OTHER))
        yield bench


def register_b(bench: Bench, runs: list[RunReport] | None = None) -> None:
    registration = make_registration("second", runs=runs)
    registration = registration.model_copy(update={"versions": installed_versions()})
    bench.service.register("b", registration, is_remote=True, peer="10.0.0.9")


def from_b(bench: Bench, *reports: AgentReport) -> None:
    bench.service.take_reports("b", AgentReports(session="second", reports=list(reports)))


def stored(bench: Bench) -> list[Any]:
    """Return what is stored and known of the trial on the first agent."""
    service: Service = bench.service
    state = service.machine.state
    rows = [
        bench.store._db.execute(f"SELECT * FROM {table} WHERE {column} = ?", (value,)).fetchall()
        for table, column, value in (
            ("feed", "experiment_id", 1), ("offsets", "allocation_id", RUN),
        )
    ]  # fmt: skip
    series = bench.store._db.execute("SELECT * FROM series_rows").fetchall()
    return [state.experiment(1), state.trials[1], state.checkpoints, rows, series]


def test_every_kind_of_report_has_a_row() -> None:
    union, _ = get_args(AgentReport)
    kinds = {each.model_fields["kind"].default for each in get_args(union)}
    assert kinds == REPORTS.keys()


@pytest.mark.parametrize("kind", REPORTS)
def test_report_of_a_run_on_another_agent_changes_nothing(bench: Bench, kind: str) -> None:
    before = repr(stored(bench))
    from_b(bench, REPORTS[kind])
    assert repr(stored(bench)) == before


@pytest.mark.parametrize("alive", [True, False])
def test_registration_with_a_run_of_another_agent_changes_nothing(
    bench: Bench, alive: bool
) -> None:
    before = repr(stored(bench))
    register_b(bench, [RunReport(allocation_id=run, alive=alive) for run in (RUN, OTHER)])
    assert repr(stored(bench)) == before


def test_checkpoint_of_another_trial_is_neither_taken_nor_deleted(bench: Bench) -> None:
    path = str(bench.store.path.parent / "checkpoints" / "u")
    saved = CheckpointSaved(
        at=1.0, uuid="u", steps_completed=1, path=path, size_bytes=7, metadata={}
    )
    bench.report(make_chunk([started(), saved]))
    before = repr(stored(bench))
    deleted = CheckpointDeleted(at=2.0, uuid="u")
    from_b(bench, make_chunk([started(), deleted, saved, deleted], run=OTHER))
    assert repr(stored(bench)) == before
    assert bench.service.deletions.empty()
    assert bench.service.machine.state.trials[2].checkpoints == []
