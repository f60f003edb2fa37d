"""The folder of a run: what is in it, what the next agent finds there, and what is left."""

from __future__ import annotations

import json
import logging
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from det_jupyter.agent.runs.run import AgentRun, adopt_runs, new_run
from det_jupyter.agent.starting import rank_processes
from det_jupyter.agent.starting.rank_processes import end_survivors, has_ended, write_records
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.run_processes import processes_of
from det_jupyter.contract.host.rundir import RUN_VARIABLE, run_dir
from det_jupyter.contract.host.socket_folders import socket_folder
from det_jupyter.contract.messages import (
    Capsule,
    GangExited,
    GangLink,
    GangPlan,
    Loss,
    PassOrders,
    RoomWait,
)
from det_jupyter.contract.messages.disks import MASTERS
from det_jupyter.contract.messages.rank_orders import Profile, ProfileOrder
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.evidence_page import EvidencePage
from det_jupyter.contract.values.lengths import Length
from tests.another_user import as_another_user
from tests.integration.agent_support import make_plan
from tests.waiting import wait_until_executed

ID = "1.1.1"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))


def prepared(tmp_path: Path, plan: GangPlan | None = None) -> AgentRun:
    run = new_run(plan or make_plan(ID, []), sockets=tmp_path / "sockets")
    run.prepare()
    return run


def link() -> GangLink:
    return GangLink(
        agents=["a", "b"], addresses=["", "10.0.0.2"], ports=[0, 1], certificate="", secret="s"
    )


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_run_has_a_private_folder_with_its_plan_and_empty_pages(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    assert run.sockets == tmp_path / "sockets"
    assert (mode(run.dir.path), mode(run.sockets)) == (0o700, 0o700)
    assert GangPlan.model_validate_json(run.dir.plan.read_bytes()) == run.plan
    with run.open_page() as page:
        assert not page.is_raised("preempt")
    evidence = EvidencePage(run.dir.evidence)
    assert evidence.num_ranks == 2
    evidence.close()
    assert not run.dir.part.exists()


def test_an_older_run_of_the_same_name_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = run_dir(paths.data_dir(), ID)
    folder.path.mkdir(parents=True)
    folder.journal(0).write_text("{}\n")
    run = prepared(tmp_path)
    assert run.dir == folder
    assert not folder.journal(0).exists()
    assert "an older run of this name is removed" in caplog.text


def test_orders_to_a_run_are_on_its_page_and_in_its_file(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    run.raise_signal("preempt")
    run.extend(Length("batches", 200), is_last=False)
    first, last = (ProfileOrder(id=number, profile=Profile()) for number in (3, 8))
    passed = PassOrders(allocation_id=ID, orders=[last, first])
    run.pass_orders(passed)
    with run.open_page() as page:
        assert page.is_raised("preempt")
        assert page.target() == (200, False)
        assert page.last_order() == 8
    assert PassOrders.model_validate_json(run.dir.orders.read_bytes()) == passed
    run.pass_orders(PassOrders(allocation_id=ID, orders=[]))
    with run.open_page() as page:
        assert page.last_order() == 8


def test_without_orders_none_is_announced(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    run.pass_orders(PassOrders(allocation_id=ID, orders=[]))
    with run.open_page() as page:
        assert page.last_order() == 0


def test_sockets_are_kept_where_they_can_be_if_their_folder_was_removed(tmp_path: Path) -> None:
    with socket_folder(paths.agent_sockets()) as folder:
        run = new_run(make_plan(ID, []), sockets=tmp_path / "removed" / "7")
        run.prepare()
        assert run.sockets == folder / "7"
        assert mode(run.sockets) == 0o700


def test_a_plan_that_is_replaced_is_replaced_in_its_file(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    run.set_plan(make_plan(ID, [], seed=7))
    assert run.plan.seed == 7
    assert GangPlan.model_validate_json(run.dir.plan.read_bytes()).seed == 7


def test_ranks_get_the_variables_for_their_kind_of_slot(tmp_path: Path) -> None:
    lines = {"cpu": ["A=1", "NAMED"], "cuda": ["A=2"]}
    config = {"environment": {"environment_variables": lines}}
    run = prepared(tmp_path, make_plan(ID, [], config=config, slots=1))
    run.environment = {"NAMED": "here", "OTHER": "3"}
    assert run.variables() == {"A": "1", "NAMED": "here"}


def wait_of(run: AgentRun) -> RoomWait | None:
    assert run.room is not None
    return run.room.wait


def test_a_wait_for_room_is_reported_once_and_taken_back(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    assert not run.note_room(1.0)
    assert (run.room, run.waits_for_room) == (None, False)
    with run.open_page() as page:
        page.note_wait("records", 100.0)
        assert run.note_room(101.0)
        assert not run.note_room(102.0)
        data = str(paths.data_dir())
        assert wait_of(run) == RoomWait(writing="records", folder=data, since=100.0)
        assert (run.waits_for_room, run.is_room_sent) == (True, False)
        page.note_wait("records", 0.0)
        page.note_wait("checkpoint", 105.0, needs_bytes=700)
        assert run.note_room(106.0)
        assert wait_of(run) == RoomWait(
            writing="checkpoint", folder=f"{data}/checkpoints", since=105.0, needs_bytes=700
        )
        page.note_wait("checkpoint", 0.0)
    run.is_room_sent = True
    assert run.note_room(107.0)
    assert (wait_of(run), run.waits_for_room, run.is_room_sent) == (None, False, False)
    assert run.room is not None
    assert run.room.at == 107.0
    assert not run.note_room(108.0)


def test_an_upload_that_waits_for_room_there_is_reported_after_the_ranks_waits(
    tmp_path: Path,
) -> None:
    run = prepared(tmp_path)
    run.upload_wait = RoomWait(folder=MASTERS, since=90.0)
    with run.open_page() as page:
        page.note_wait("checkpoint", 100.0)
    assert run.note_room(101.0)
    assert wait_of(run) == RoomWait(
        writing="checkpoint", folder=str(paths.data_dir() / "checkpoints"), since=100.0
    )
    run.note_exited(GangExited(allocation_id=ID, at=102.0, exit_codes={0: 0, 1: 0}))
    assert run.note_room(103.0)  # its ranks wait no more, the upload does
    assert wait_of(run) == RoomWait(folder=MASTERS, since=90.0)


def test_uploads_that_wait_hold_up_only_the_ranks_that_wait_for_them(tmp_path: Path) -> None:
    run = prepared(tmp_path, make_plan(ID, [], bucket="s3://models"))
    with run.open_page() as page:
        page.note_wait("uploads", 100.0)
    assert run.note_room(101.0)
    slow = RoomWait(writing="uploads", folder="s3://models", holds=True, since=100.0)
    assert (wait_of(run), run.waits_for_room) == (slow, True)
    assert slow.sentence == (
        "waits, as s3://models has not taken its last checkpoints yet, and goes on by itself"
    )
    run.note_upload_wait("s3://models", "s3://models answers 503")
    assert run.upload_wait is not None
    away = run.upload_wait
    assert run.note_room(102.0)
    assert wait_of(run) == away.model_copy(update={"holds": True})
    with run.open_page() as page:
        page.note_wait("uploads", 0.0)
    assert run.note_room(103.0)
    assert (wait_of(run), run.waits_for_room) == (away, False)
    run.note_upload_wait("s3://models", "s3://models does not answer")
    assert run.upload_wait is not None
    assert run.upload_wait.since == away.since
    assert run.note_room(104.0)
    run.note_exited(GangExited(allocation_id=ID, at=105.0, exit_codes={0: 0, 1: 0}))
    assert run.note_room(106.0)
    ended = wait_of(run)
    assert ended is not None
    assert ended.sentence == (
        "keeps its slots until its last checkpoints are stored, as s3://models does not answer; "
        "killing it gives them up"
    )


def test_a_run_whose_folder_the_user_has_removed_waits_for_nothing(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    run.dir.control.unlink()
    run.upload_wait = RoomWait(folder=MASTERS, since=90.0)
    assert not run.note_room(1.0)


def test_code_of_a_run_is_known_while_its_blobs_are_there(tmp_path: Path) -> None:
    blobs = BlobStore(paths.data_dir() / "blobs")
    cells = {"<ipython-input-3>": {"label": "Cell In[3]", "source": "x = 1\n"}}
    capsule = Capsule(entrypoint="T", payload="", sources=blobs.put(json.dumps(cells).encode()))
    run = prepared(tmp_path, make_plan(ID, [], capsule=capsule))
    assert run.labels() == {"<ipython-input-3>": "Cell In[3]"}
    assert run.cells() == {"<ipython-input-3>": "x = 1\n"}
    for sources in ("0" * 64, blobs.put(b"no JSON"), ""):
        run.plan = make_plan(ID, [], capsule=capsule.model_copy(update={"sources": sources}))
        assert run.cells() == {}
        if sources:
            assert run.labels() == {}


def test_a_run_that_is_closed_leaves_nothing(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    assert run.sockets is not None
    (run.sockets / "0").mkdir()
    run.close()
    assert not run.sockets.exists()
    assert not run.dir.path.exists()
    run.close()  # another process may have removed it


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_folders_that_a_script_has_made_read_only_are_removed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with TemporaryDirectory() as folder:  # pytest's folders are closed to other users
        Path(folder).chmod(0o755)
        monkeypatch.setenv(paths.HOME_VARIABLE, f"{folder}/home")
        assert_read_only_folders_are_removed(Path(folder))


def assert_read_only_folders_are_removed(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    data = run.dir.work / "data"
    data.mkdir(parents=True)
    (data / "file").touch()
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o500)
    (run.dir.work / "link").symlink_to(outside)
    above = paths.data_dir().parent
    for path in [above, *above.rglob("*"), outside]:
        os.chown(path, 65534, 65534, follow_symlinks=False)
    for folder in (data, run.dir.work):
        folder.chmod(0o500)
    run.sockets = None

    def close() -> str:
        run.close()
        return "closed"

    assert as_another_user(close, folder=run.dir.path.parent) == "closed"
    assert not run.dir.path.exists()
    assert mode(outside) == 0o500


def exited_on_time(run: AgentRun) -> None:
    run.note_exited(GangExited(allocation_id=ID, at=5.0, exit_codes={0: 0, 1: 3}))


@pytest.mark.parametrize(
    ("entrypoint", "codes"),
    [("Trial", {0: None, 1: None}), ("python3 -m torch.distributed.run train.py", {0: None})],
)
def test_a_run_without_an_end_was_lost_with_its_agent(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    entrypoint: str,
    codes: dict[int, int | None],
) -> None:
    run = prepared(tmp_path, make_plan(ID, [], config={"entrypoint": entrypoint}))
    (adopted,) = adopt_runs(now=9.0)
    assert (adopted.plan, adopted.sockets, [*adopted.ranks]) == (run.plan, None, [0, 1])
    assert adopted.exited == GangExited(
        allocation_id=ID, at=9.0, exit_codes=codes, lost=True, loss=Loss.AGENT
    )
    (again,) = adopt_runs(now=10.0)  # that is its end, whoever reads it next
    assert again.exited == adopted.exited
    told = [record.getMessage() for record in caplog.records]
    assert told == ["allocation=1.1.1 was lost with its agent"]


def test_a_run_that_had_ended_keeps_its_end(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    exited_on_time(run)
    (adopted,) = adopt_runs(now=9.0)
    assert adopted.exited == run.exited
    assert not adopted.is_alive


def remove_plan(run: AgentRun) -> None:
    run.dir.plan.unlink()


def spoil_plan(run: AgentRun) -> None:
    run.dir.plan.write_text("{}")


def mark_closed(run: AgentRun) -> None:
    run.dir.closed.touch()


@pytest.mark.parametrize(
    ("change", "is_left", "warning"),
    [
        (remove_plan, True, ""),
        (spoil_plan, True, "is of another version of det_jupyter: left alone"),
        (mark_closed, False, ""),
    ],
)
def test_a_folder_without_an_open_run_is_not_adopted(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    change: Callable[[AgentRun], None],
    is_left: bool,
    warning: str,
) -> None:
    run = prepared(tmp_path)
    change(run)
    with caplog.at_level(logging.WARNING):
        assert adopt_runs(now=9.0) == []
    assert run.dir.path.exists() is is_left
    assert warning in caplog.text
    assert bool(caplog.records) is bool(warning)


def test_no_run_is_adopted_where_none_ever_was() -> None:
    assert adopt_runs(now=1.0) == []


def test_a_part_of_a_gang_is_adopted_with_the_ranks_that_were_here(tmp_path: Path) -> None:
    plan = make_plan(ID, [], slots=3, agent_ids=["a", "b", "b"])
    run = new_run(plan, link(), agents=["b"], sockets=tmp_path / "sockets", remote_agent="b")
    run.prepare()
    assert [*run.ranks] == [1, 2]
    (adopted,) = adopt_runs(now=9.0)
    assert [*adopted.ranks] == [1, 2]
    assert [stream.name for stream in adopted.streams] == [stream.name for stream in run.streams]


def test_ranks_that_outlived_their_agent_are_ended_with_all_that_they_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = prepared(tmp_path)
    environ = {RUN_VARIABLE: str(run.dir.path), "PATH": os.defpath}
    rank = subprocess.Popen(["sleep", "3600"], process_group=0)
    worker = subprocess.Popen(["sleep", "3600"], env=environ, start_new_session=True)
    stranger = subprocess.Popen(["sleep", "3600"], process_group=0)
    wait_until_executed(rank, worker, stranger)
    try:
        end_survivors(run.dir)  # nothing is known of any rank
        assert not any(map(has_ended, [rank.pid, worker.pid]))
        write_records(run.dir, {0: rank.pid})
        (record,) = json.loads(run.dir.ranks.read_bytes())
        # Another process has its pid by now.
        reused = {**record, "rank": 1, "pid": stranger.pid, "birth": f"{record['birth']}0"}
        run.dir.ranks.write_text(json.dumps([record, reused]))
        end_survivors(run.dir)
        assert has_ended(rank.pid)
        assert has_ended(worker.pid)
        assert not has_ended(stranger.pid)
        assert [*processes_of(run.dir, [worker.pid])] == []
        told = [entry.getMessage() for entry in caplog.records]
        assert told[0] == f"rank=0 pid={rank.pid} outlived its agent: killed"
    finally:
        for process in (rank, worker, stranger):
            process.kill()
            process.wait()


def test_a_page_that_is_damaged_is_an_error(tmp_path: Path) -> None:
    run = prepared(tmp_path)
    run.dir.control.write_bytes(b"x")
    with pytest.raises(ValueError, match="is not a control page"):
        ControlPage(run.dir.control)


def test_an_end_that_cannot_be_written_is_kept_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = prepared(tmp_path)
    run.dir.exit.mkdir()
    exited_on_time(run)
    assert run.exited is not None
    assert f"allocation=1.1.1: {run.dir.exit} cannot be written: " in caplog.text


def test_a_folder_that_cannot_be_removed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    run = prepared(tmp_path)
    monkeypatch.setattr("shutil.rmtree", fail)
    run.sockets = None
    run.close()
    assert f"{run.dir.path} cannot be removed: [Errno 30] Read-only file system" in caplog.text
    assert mode(run.dir.closed) == 0o600  # so that it is known for what it is


@pytest.mark.parametrize(("dies_at", "num_looks"), [(3, 3), (99, 5)])
def test_ranks_that_do_not_die_hold_up_the_next_agent_for_a_limited_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies_at: int, num_looks: int
) -> None:
    run = prepared(tmp_path)
    ranks = [subprocess.Popen(["sleep", "3600"], process_group=0) for _ in range(2)]
    now, looks = [100.0], list[float]()

    def sleep(seconds: float) -> None:
        looks.append(seconds)
        now[0] += 1.0
        if len(looks) in (1, dies_at):
            rank = ranks[0 if len(looks) == 1 else 1]
            rank.kill()
            rank.wait()

    try:
        write_records(run.dir, {number: rank.pid for number, rank in enumerate(ranks)})
        with monkeypatch.context() as patched:
            clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
            patched.setattr(rank_processes, "time", clock)
            patched.setattr(rank_processes, "kill_group", lambda pid: None)
            end_survivors(run.dir, timeout_s=5.0)
        assert looks == [0.01] * num_looks
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
