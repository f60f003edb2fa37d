"""What the follower of a run that was started by hand reports as its end."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from det_jupyter.agent.unmanaged import follower as module
from det_jupyter.agent.unmanaged.follower import Follower
from det_jupyter.connection import Session
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import GangPlan, RankProcess
from det_jupyter.contract.run.journal import RankFailure, Record, RunEnded
from det_jupyter.core.journal import Journal
from det_jupyter.errors import NotFound
from det_jupyter.master.machine.rules.placing import make_plan
from tests.unit.master.machine.handlers.test_unmanaged import PLACE, start
from tests.unit.master.machine_world import World

OWN = ProcessIdentity.of(os.getpid())
GONE = ProcessIdentity(OWN.pid, "1@" + OWN.birth.partition("@")[2], OWN.host)
ELSEWHERE = ProcessIdentity(OWN.pid, "1@another boot", "elsewhere")

LEFT = RunEnded(at=70.0, reason="stopped", steps_completed=3)
FAILED = RankFailure(at=70.0, rank=1, error="no", traceback="", where="")


class Master:
    """A session whose master stores what continues the files that it has."""

    def __init__(self) -> None:
        self.refusal: NotFound | None = None
        self.reports: list[dict[str, Any]] = []
        self.stored: dict[str, int] = {}  # bytes, by stream

    def post(self, path: str, body: Mapping[str, Any], *, repeatable: bool) -> Any:
        if self.refusal is not None:
            raise self.refusal
        for each in body["reports"]:
            if each["kind"] == "chunk" and each["offset"] == self.stored.get(each["stream"], 0):
                self.stored[each["stream"]] = each["offset"] + each["size_bytes"]
            elif each["kind"] == "gang_exited":
                self.stored_at_end = {**self.stored}
        self.reports += body["reports"]
        return {"offsets": {"1.1.1": self.stored}}

    def end(self) -> dict[str, Any]:
        (found,) = [each for each in self.reports if each["kind"] == "gang_exited"]
        return found


class NoSampler:
    def __init__(self, *given: Any, **named: Any) -> None: ...

    async def run(self) -> None: ...


def follow(
    folder: Path, master: Master, *others: ProcessIdentity, chief: ProcessIdentity = OWN,
    is_live: bool = False,
) -> Follower:  # fmt: skip
    """Return the follower of a run of a chief and others."""
    ranks = [
        RankProcess(rank=rank, pid=each.pid, birth=each.birth, host=each.host,
                    connection_file="", output_file="")
        for rank, each in enumerate((chief, *others))
    ]  # fmt: skip
    request = start(slots=[PLACE] * len(ranks), ranks=ranks)
    world = World()
    world.tell(request)
    plan: GangPlan = make_plan(world.experiment(), world.trial(), world.allocation())
    session = cast("Session", master)
    return Follower(session, request, plan, RunDir(folder), is_live=is_live)


def write(folder: Path, rank: int, record: Record) -> None:
    journal = Journal(RunDir(folder).journal(rank))
    journal.write(record)
    journal.close()


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the end that a run's process holds of the follower's stdin."""
    read, write = os.pipe()
    monkeypatch.setattr(module, "Sampler", NoSampler)
    with open(read, "rb") as stdin, open(write, "wb", buffering=0) as pipe:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield pipe


@pytest.mark.parametrize(
    ("other", "last", "codes", "text"),
    [
        (OWN, LEFT, {"0": 0, "1": 0}, ""),
        (OWN, FAILED, {"0": 0, "1": 1}, ""),
        (GONE, None, {"0": None, "1": None}, "has not left the block"),
        (ELSEWHERE, None, {"0": 0, "1": 0}, ""),
    ],
    ids=["left", "failed", "killed", "unknown"],
)
def test_a_run_ends_as_all_its_ranks_have_ended(
    tmp_path: Path, other: ProcessIdentity, last: Record | None, codes: Any, text: str
) -> None:
    write(tmp_path, 0, LEFT)
    if last is not None:
        write(tmp_path, 1, last)
    master = Master()
    assert asyncio.run(follow(tmp_path, master, other).run())
    assert master.end()["exit_codes"] == codes
    assert text in (master.end()["error"] or "")


def test_a_fork_that_holds_the_pipe_does_not_delay_the_end(tmp_path: Path, pipe: Any) -> None:
    write(tmp_path, 0, LEFT)
    pipe.write(b"\n")  # and it stays open
    master = Master()
    assert asyncio.run(follow(tmp_path, master, is_live=True).run())
    assert master.end()["exit_codes"] == {"0": 0}


def test_the_other_ranks_may_end_after_the_chief(tmp_path: Path, pipe: Any) -> None:
    write(tmp_path, 0, LEFT)
    pipe.write(b"\n")
    master = Master()

    async def end_late() -> bool:
        running = asyncio.create_task(follow(tmp_path, master, OWN, is_live=True).run())
        while not any(each["kind"] == "chunk" for each in master.reports):
            await asyncio.sleep(0.01)
        write(tmp_path, 1, FAILED)
        return await running

    assert asyncio.run(end_late())
    assert master.end()["first_failed"] == 1
    assert {each["stream"] for each in master.reports if each["kind"] == "chunk"} == {
        "journal-0", "journal-1",
    }  # fmt: skip


def test_a_run_ends_only_when_all_of_it_is_stored(tmp_path: Path) -> None:
    write(tmp_path, 0, FAILED)
    master = Master()  # it has this part, by a follower that was killed
    master.stored = {"journal-0": RunDir(tmp_path).journal(0).stat().st_size}
    write(tmp_path, 0, LEFT)
    RunDir(tmp_path).output(0).write_text("a line\n")
    assert asyncio.run(follow(tmp_path, master).run())
    size = RunDir(tmp_path).journal(0).stat().st_size
    assert master.stored_at_end == {"journal-0": size, "output-0": 7}


def test_a_run_that_the_master_does_not_take_is_not_stored(tmp_path: Path) -> None:
    write(tmp_path, 0, LEFT)
    master = Master()
    master.refusal = NotFound("run 1.1.1 is over")
    follower = follow(tmp_path, master)
    assert not asyncio.run(follower.run())
    assert follower.problem == "run 1.1.1 is over"
