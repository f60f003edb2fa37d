"""Writers of a rank wait while a disk is full."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.journal import FirstStep, RankFailure
from det_jupyter.core.journal import Journal
from tests.unit.contract.run.small_disk import FULL, Disk, gives, small_disk

RECORD = FirstStep(at=1.0, steps_completed=1)
USED_UP = OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return small_disk(tmp_path, monkeypatch)


@pytest.fixture
def journal(disk: Disk) -> Journal:
    return Journal(disk.folder.journal(0), disk.gate)


def test_record_waits_below_the_floor_and_goes_on_above_one_and_a_half(
    disk: Disk, journal: Journal
) -> None:
    disk.free, disk.during_wait = 99, gives(disk, 100, 149, 150)
    journal.write(RECORD)
    assert len(disk.seen) == 3
    assert all(seen is not None and seen.writing == "records" for seen in disk.seen)
    assert disk.page.wait_for_room() is None
    assert disk.records() == [RECORD]


def test_record_waits_while_no_file_can_be_made(disk: Disk, journal: Journal) -> None:
    disk.files = 3

    def look() -> None:
        disk.files = 1000

    disk.during_wait = look
    journal.write(RECORD)
    assert len(disk.seen) == 1


def test_room_is_looked_at_once_a_second(disk: Disk, journal: Journal) -> None:
    journal.write(RECORD)
    disk.free = 0
    journal.write(RECORD)
    assert disk.seen == []
    disk.now += 1.0
    disk.during_wait = gives(disk, 1600)
    journal.write(RECORD)
    assert len(disk.seen) == 1


@pytest.mark.parametrize("error", [FULL, USED_UP])
def test_record_that_was_written_in_part_is_completed_when_there_is_room(
    disk: Disk, journal: Journal, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    write, lengths = os.write, [5, 0, 0]

    def short(descriptor: int, data: bytes) -> int:
        if not lengths:
            return write(descriptor, data)
        if length := lengths.pop(0):
            return write(descriptor, data[:length])
        raise error

    monkeypatch.setattr(os, "write", short)
    journal.write(RECORD)
    assert len(disk.seen) == 2
    assert disk.records() == [RECORD]


def test_other_errors_of_a_record_are_raised(
    disk: Disk, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*given: object) -> int:
        raise OSError(errno.EIO, "no")

    monkeypatch.setattr(os, "write", fail)
    with pytest.raises(OSError, match="no"):
        journal.write(RECORD)
    assert disk.seen == []


def test_run_that_is_to_leave_uses_what_is_left(disk: Disk, journal: Journal) -> None:
    disk.free, disk.during_wait = 50, lambda: disk.page.raise_signal("preempt")
    journal.write(RECORD)
    assert disk.records() == [RECORD]
    with pytest.raises(OSError, match="No space left"):
        disk.gate.await_room_after(FULL)


def test_failure_is_reported_without_waiting(disk: Disk, journal: Journal) -> None:
    disk.free = 0
    journal.write(RankFailure(at=1.0, rank=0, error="no room", traceback=""))
    assert (len(disk.records()), disk.seen) == (1, [])


def test_checkpoint_is_not_begun_without_room_for_it(disk: Disk) -> None:
    disk.free, disk.during_wait = 599, gives(disk, 600, 649, 650)
    begun: list[int] = []
    disk.gate.write_checkpoint("/storage", 500, lambda: begun.append(disk.free), list)
    assert begun == [650]
    assert [(s.writing, s.needs_bytes) for s in disk.seen if s] == [("checkpoint", 500)] * 3
    assert disk.page.wait_for_room() is None


def test_checkpoint_that_has_filled_the_disk_is_removed_and_written_again(disk: Disk) -> None:
    done: list[str] = []

    def write() -> str:
        done.append("write")
        if len(done) < 3:
            raise RuntimeError("torch says so") from FULL
        return "path"

    found = disk.gate.write_checkpoint("/storage", 10, write, lambda: done.append("undo"))
    assert (found, done) == ("path", ["write", "undo", "write"])


def test_checkpoint_of_a_run_that_is_to_leave_fails_on_a_full_disk(disk: Disk) -> None:
    disk.page.raise_signal("preempt")

    def write() -> None:
        raise FULL

    with pytest.raises(OSError, match="No space left"):
        disk.gate.write_checkpoint("/storage", 10, write, list)
    assert disk.seen == []


def test_checkpoint_waits_while_three_before_it_are_not_uploaded(disk: Disk) -> None:
    unsent = disk.folder.unsent
    disk.gate.note_unsent("of a run whose checkpoints go to a folder")
    unsent.mkdir()
    for uuid in ("u1", "u2", "u3"):
        disk.gate.note_unsent(uuid)
    disk.during_wait = lambda: (unsent / "u1").unlink() if len(disk.seen) == 2 else None
    begun = disk.gate.write_checkpoint("/storage", 5, lambda: sorted(os.listdir(unsent)), list)
    assert begun == ["u2", "u3"]
    assert [seen.writing for seen in disk.seen if seen] == ["uploads"] * 2
    assert disk.page.wait_for_room() is None
    disk.gate.note_unsent("u4")
    disk.page.raise_signal("preempt")  # then its last state is saved as well
    assert disk.gate.write_checkpoint("/storage", 5, lambda: "saved", list) == "saved"


@pytest.mark.parametrize("note", [ControlPage.note_killed, ControlPage.note_parted])
def test_a_rank_that_is_left_waits_neither_for_room_nor_for_uploads(
    disk: Disk, note: Callable[[ControlPage], None]
) -> None:
    disk.free = 0
    disk.folder.unsent.mkdir()
    for uuid in ("u1", "u2", "u3"):
        disk.gate.note_unsent(uuid)
    note(disk.page)
    assert disk.gate.write_checkpoint("/storage", 5, lambda: "saved", list) == "saved"
    assert disk.seen == []


def test_storage_that_is_no_folder_has_no_room_that_is_known(disk: Disk) -> None:
    disk.free = 0

    def write() -> None:
        raise FULL

    with pytest.raises(OSError, match="No space left"):
        disk.gate.write_checkpoint("s3://there", 10, write, list)
