"""Ranks of two jobs at one place are told of each other, and hints name what to check."""

from __future__ import annotations

import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.core.peer_errors import PeerFailed, WorkerLost, is_lost_worker, lost_worker_pid
from det_jupyter.core.ranks.claim import Claim
from det_jupyter.core.ranks.gathering import meet
from det_jupyter.core.ranks.handshake import process_name
from det_jupyter.core.ranks.meeting import Job, Meeting
from tests.unit.core.test_ranks_together import SECRET, comes, place, together


@pytest.mark.parametrize(
    ("origins", "said"),
    [
        (("by pid 7", "by pid 8"), ("by pid 7", "by pid 8")),
        (("", ""), ("whose job nothing names", "whose job nothing names")),
    ],
)
def test_a_rank_of_another_job_is_told_and_the_ranks_of_the_job_meet(
    origins: tuple[str, str], said: tuple[str, str], tmp_path: Path
) -> None:
    ours, theirs = (
        Meeting(tmp_path / "here", SECRET, Job(key, "", origin))
        for key, origin in zip(("a", "b"), origins, strict=True)
    )
    refused: list[str] = []

    def other() -> Any:
        try:
            meet(theirs, place(1, 2), timeout_s=10)
        except Exception as error:
            refused.append(str(error))
        return meet(ours, place(1, 2), timeout_s=10)

    chiefs, others = together([comes(ours, 0, 2), other])
    chiefs[1].close(), others[0].close()
    name = process_name()
    assert refused == [
        f"distributed: rank 1 of 2 ({name}), {said[1]}, has met the rank 0 of another job at "
        f"{ours} ({name}, {said[0]}). Give each job a pub_port of its own; start all ranks of a "
        "job from one process, or set DET_JUPYTER_STORE for all of them to the same path"
    ]


def test_a_rank_that_the_chief_has_started_is_of_its_job(tmp_path: Path) -> None:
    chief = Meeting(tmp_path / "here", SECRET, Job("parent", "chief", "started by a shell"))
    child = Meeting(tmp_path / "here", SECRET, Job("chief", "", "started by the chief"))
    links, others = together([comes(chief, 0, 2), partial(meet, child, place(1, 2), timeout_s=10)])
    assert links[1].name == f"rank 1 ({process_name()})"
    links[1].close(), others[0].close()


def test_a_hint_says_how_ranks_of_other_parents_meet() -> None:
    plain = "Are all ranks started, with the same chief_ip and pub_port?"
    assert Meeting(("here", 1)).hint() == plain
    by_parent = Meeting(("here", 1), job=Job("a", "b", "started by pid 7"))
    assert by_parent.hint() == (
        f"{plain} The ranks of this job are those started by pid 7; to have others meet, set "
        "DET_JUPYTER_STORE for all of them to the same path in a folder of yours."
    )


def test_a_hint_names_the_chiefs_that_wait_and_who_has_met(tmp_path: Path) -> None:
    hinting = Meeting(("here", 1), claim=tmp_path / "here.claim")
    plain = Meeting(("here", 1)).hint()
    assert hinting.hint() == plain
    claims = [Claim.of(tmp_path / f"{name}.claim", f"chief {name}") for name in ("here", "b", "c")]
    try:
        claims[0].store_members("rank 0, rank 1")
        assert hinting.hint() == (
            f"{plain} Here these ranks have met: rank 0, rank 1. "
            "At other places wait: chief b; chief c."
        )
    finally:
        for claim in claims:
            claim.release()


@pytest.mark.parametrize(
    ("error", "is_lost", "pid"),
    [
        (WorkerLost("killed", 7), True, 7),
        (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), True, 12),
        (RuntimeError("DataLoader worker (pid(s) 12, 13) exited unexpectedly"), True, 12),
        (RuntimeError("shapes do not fit"), False, 0),
        (ValueError("DataLoader worker (pid 12) is no such error"), False, 12),
        (ConnectionResetError("by the user's own server"), False, 0),
        (EOFError('File "reductions.py", line 1, in rebuild_storage_fd'), True, 0),
    ],
)
def test_the_end_of_a_data_worker_is_recognised(error: Exception, is_lost: bool, pid: int) -> None:
    assert is_lost_worker(error) is is_lost
    assert lost_worker_pid(error) == pid


def test_errors_about_other_processes_are_the_same_after_a_pickle() -> None:
    failed: PeerFailed = pickle.loads(pickle.dumps(PeerFailed(3, "no room", no_room=True)))
    assert (str(failed), failed.rank, failed.error, failed.no_room) == (
        "rank 3 failed: no room", 3, "no room", True,
    )  # fmt: skip
    lost: WorkerLost = pickle.loads(pickle.dumps(WorkerLost("killed", 7)))
    assert (str(lost), lost.pid) == ("killed", 7)
