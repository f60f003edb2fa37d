"""`det disk`: what takes how much room, and freeing what nothing refers to."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.contract.messages import (
    DiskReading,
    DiskStatus,
    DiskUsage,
    DiskUse,
    FreedRoom,
    RoomForecast,
)
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
from det_jupyter.errors import MasterUnreachable
from det_jupyter.front.notebook.complete.magic_parsers import det_parser
from det_jupyter.front.notebook.handles import connection
from det_jupyter.front.notebook.magics import run_line
from det_jupyter.front.verbs.disk_notes import room_notes

DISK = DiskReading(folder="/data", total_bytes=10**12, free_bytes=5 * 10**11)
USES = [
    DiskUse(kind="checkpoints", folder="/data/checkpoints", num_bytes=3 * 10**9, num_files=9,
            experiment_id=3, name="wide"),
    DiskUse(kind="leftovers", folder="/data/runs", num_bytes=10**6, num_files=2,
            safe_bytes=10**6),
]  # fmt: skip


class Master:
    """Has a disk, and frees what it is asked to."""

    def __init__(self) -> None:
        self.uses = USES
        self.num_freed = 0
        self.forecast = RoomForecast()

    def disk_usage(self) -> DiskUsage:
        return DiskUsage(disks=[DiskStatus.built_from(DISK)], uses=self.uses, at=1.0)

    def free_room(self) -> FreedRoom:
        self.num_freed += 1
        return FreedRoom(num_bytes=10**6, num_files=2, problems=["/x cannot be removed: no"])

    def room_forecast(self, experiment_id: int) -> RoomForecast:
        return self.forecast

    def cluster(self, *, limit: int) -> Client:
        raise MasterUnreachable("gone")


@pytest.fixture
def master(monkeypatch: pytest.MonkeyPatch) -> Master:
    master = Master()
    monkeypatch.setattr(connection, "client", lambda: cast("Client", master))
    return master


def said(capsys: pytest.CaptureFixture[str], line: str) -> list[str]:
    run_line(det_parser(), line)
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_uses_are_a_table_with_what_frees_them(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = said(capsys, "disk")
    assert lines[0] == "/data: 500 GB of 1.0 TB free."
    assert [" ".join(line.split()) for line in lines[1:-1]] == [
        "What Experiment Size Files Can Be Freed How Folder",
        "checkpoints 3 wide 3.0 GB 9 %det_experiment delete 3 /data/checkpoints",
        "leftovers - 1.0 MB 2 1.0 MB %det disk --free /data/runs",
    ]
    assert lines[-1] == "3.0 GB in all; `%det disk --free` frees 1.0 MB that nothing refers to."


USED: list[tuple[Any, int | None, str]] = [
    ("checkpoints", 3, "%det_experiment delete 3"),
    ("checkpoints", None, ""),
    ("traces", 4, "%det_experiment delete 4"),
    ("tensorboard", 4, "%det_experiment delete 4"),
    ("tensorboard", None, ""),
    ("database", None, "delete experiments"),
    ("unrecorded", None, "by hand: of a run that was given up, or of another master"),
    ("reserve", None, "given back when the disk is full"),
    ("runs", None, "removed when they are over"),
    ("code", None, ""),
]


def test_how_room_is_had_is_told_for_each_kind_of_use(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    master.uses = [
        DiskUse(kind=kind, folder="/d", num_bytes=5, num_files=1, experiment_id=number)
        for kind, number, _ in USED
    ]
    rows = json.loads("\n".join(said(capsys, "disk --json")))
    assert [(row["What"], row["Experiment"], row["How"]) for row in rows] == USED
    assert {row["Can Be Freed"] for row in rows} == {0}


def test_disks_of_agents_and_full_ones_say_so(
    master: Master, capsys: pytest.CaptureFixture[str]
) -> None:
    near = DiskStatus.built_from(DISK, agent_id="left")
    full = DiskStatus.built_from(DISK, free_bytes=0, state="full")
    master.disk_usage = lambda: DiskUsage(disks=[near, full], uses=[], at=1.0)  # type: ignore[method-assign]
    first, second, *_ = said(capsys, "disk")
    assert first == "agent left: /data: 500 GB of 1.0 TB free."
    assert second == full.sentence(NOTEBOOK)


def test_uses_as_data_have_bytes(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads("\n".join(said(capsys, "disk --json")))
    assert [(row["What"], row["Size"], row["Experiment"]) for row in rows] == [
        ("checkpoints", 3 * 10**9, 3),
        ("leftovers", 10**6, None),
    ]


@pytest.mark.parametrize(
    ("answer", "last", "num_freed"),
    [
        ("y", ["Freed 1.0 MB (2 files).", "/x cannot be removed: no"], 1),
        ("", ["Nothing is freed."], 0),
    ],
)
def test_freeing_asks_first(
    master: Master,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    last: list[str],
    num_freed: int,
) -> None:
    asked: list[str] = []

    def ask(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("builtins.input", ask)
    lines = said(capsys, "disk --free")
    assert lines[-len(last) :] == last
    assert master.num_freed == num_freed
    assert asked == ["Free 1.0 MB that nothing refers to? It cannot be undone. [y/N] "]


def test_freeing_with_yes_does_not_ask(master: Master, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "disk --free --yes")[0] == "Freed 1.0 MB (2 files)."
    master.uses = USES[:1]
    assert said(capsys, "disk --free -y") == ["There is nothing that can be freed without loss."]
    assert master.num_freed == 1


def test_submission_says_what_does_not_fit_and_survives_a_master_that_has_gone(
    master: Master,
) -> None:
    client = cast("Client", master)
    assert room_notes(client, 7, SHELL) == []
    master.forecast = RoomForecast(
        folder="/data", free_bytes=10**9, checkpoint_bytes=3 * 10**8, num_checkpoints=12, like=3
    )
    (note,) = room_notes(client, 7, SHELL)
    assert note.startswith("checkpoint_storage: 12 checkpoints of 300 MB (as experiment 3 wrote)")
