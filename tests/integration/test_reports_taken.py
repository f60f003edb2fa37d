"""What a master makes of the reports of its agents, by who sends them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import (
    AgentReports,
    OtherVersion,
    RoomReported,
    RoomWait,
    RunReport,
    StartGang,
)
from det_jupyter.contract.messages.disks import MASTERS
from det_jupyter.contract.run.journal import BatchMetrics
from det_jupyter.errors import ProtocolMismatch
from det_jupyter.master.service.agents.links import SILENT_S
from tests.integration.master_support import (
    AGENT,
    RUN,
    Bench,
    bench_with_trial,
    gang_exited,
    gang_started,
    make_chunk,
    make_registration,
    make_request,
    make_text_chunk,
    started,
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """Return a master whose first trial has just been started."""
    with bench_with_trial(tmp_path / "det.sqlite3") as bench:
        yield bench


def room_after(bench: Bench, wait: RoomWait | None) -> RoomWait | None:
    bench.report(RoomReported(allocation_id=RUN, at=1.0, wait=wait))
    return bench.service.machine.state.trial(1).room


def make_remote(bench: Bench) -> None:
    runs = [RunReport(allocation_id=RUN, alive=True)]
    registration = make_registration("first", runs=runs).model_copy(
        update={"versions": installed_versions()}
    )
    bench.service.register(AGENT, registration, is_remote=True)


def test_a_wait_for_room_names_the_agent_only_if_the_disk_is_elsewhere(bench: Bench) -> None:
    here = room_after(bench, RoomWait(folder="/data", since=1.0))
    assert here is not None
    assert (here.folder, here.agent_id) == ("/data", "")
    assert room_after(bench, None) is None
    make_remote(bench)
    there = room_after(bench, RoomWait(folder="/data", since=1.0))
    assert there is not None
    assert there.agent_id == AGENT
    uploading = room_after(bench, RoomWait(folder=MASTERS, since=1.0))
    assert uploading is not None
    assert uploading.agent_id == ""


@pytest.mark.parametrize(
    ("host_path", "writing", "folder"),
    [
        (None, "checkpoint", "/mount/x"),
        ("/share", "checkpoint", "/share"),
        ("/share", "records", "/mount/x"),
    ],
)
def test_a_wait_of_a_checkpoint_names_the_folder_that_the_user_has_configured(
    tmp_path: Path, host_path: str | None, writing: str, folder: str
) -> None:
    bench = Bench(tmp_path / "det.sqlite3")
    bench.register()
    storage = {} if host_path is None else {"checkpoint_storage": {"host_path": host_path}}
    asyncio.run(bench.service.submit(make_request(**storage)))
    bench.report(gang_started())
    wait = RoomWait.model_validate({"folder": "/mount/x", "since": 1.0, "writing": writing})
    room = room_after(bench, wait)
    assert room is not None
    assert room.folder == folder
    bench.service.close()


def test_reports_about_a_run_that_is_not_the_senders_change_nothing(bench: Bench) -> None:
    service = bench.service
    registration = make_registration("of b").model_copy(
        update={"versions": installed_versions(), "hostname": "b"}
    )
    service.register("b", registration, is_remote=True)

    def as_b(*reports: object) -> dict[str, dict[str, int]]:
        batch = AgentReports.model_validate({"session": "of b", "reports": list(reports)})
        return service.take_reports("b", batch).offsets

    before = service.machine.state.trial(1).model_dump()
    chunk = make_chunk([started()], offset=7)
    # It is told that all is stored, so that it does not send it again.
    assert as_b(chunk) == {RUN: {"journal-0": 7 + chunk.size_bytes}}
    as_b(RoomReported(allocation_id=RUN, at=1.0, wait=RoomWait(since=1.0)))
    as_b(gang_exited(code=1))
    assert service.machine.state.trial(1).model_dump() == before
    waiting = [each for each in service.links.get("b", "of b")._queue if each is not None]
    assert [each.kind for each in waiting if not isinstance(each, StartGang)] == ["close_run"]


def test_a_chunk_that_is_sent_again_is_stored_once(bench: Bench) -> None:
    first = make_text_chunk("one\n", stream="output-0")
    second = make_text_chunk("two\n", stream="output-0", offset=4)
    assert bench.report(first, second) == {RUN: {"output-0": 8}}
    assert bench.report(first) == {RUN: {"output-0": 8}}
    gap = make_text_chunk("four\n", stream="output-0", offset=9)
    assert bench.report(gap) == {RUN: {"output-0": 8}}
    assert bench.logs() == ["one", "two"]


def test_metrics_of_batches_may_be_of_different_length(bench: Bench) -> None:
    record = BatchMetrics(at=1.0, first=1, values={"loss": [0.5, "NaN", "NaN"], "other": [1.0]})
    bench.report(make_chunk([started(), record]))
    (metrics,) = bench.metrics()
    assert metrics["values"] == {"loss": [0.5, "NaN", "NaN"], "other": [1.0]}
    assert str(bench.service.views.trial(1).divergence) == "loss is NaN since batch 1"
    assert bench.service.views.trial(1).steps_completed == 3


def test_an_agent_that_is_refused_is_a_problem_while_it_tries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("det_jupyter.master.service.agents.links.time.monotonic", lambda: now)
    bench = Bench(tmp_path / "det.sqlite3")
    old = OtherVersion(protocol=1, version="0.0.1", pid=4711)
    with pytest.raises(ProtocolMismatch):
        bench.service.register("old", old)
    assert bench.service.links.registered.is_set()  # a submission waits for no other
    (problem,) = bench.service.problems
    assert "agent old (process 4711" in problem
    for _ in range(int(SILENT_S) + 1):
        now += 1.0
        bench.service.links.tick()
    assert bench.service.problems == []
    assert bench.service.admission.refusal_of("old") == ""
    bench.service.close()
