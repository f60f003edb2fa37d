"""How full disks are, and when they will be full."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from det_jupyter.contract.host import disk_space
from det_jupyter.contract.host.disk_space import Room
from det_jupyter.contract.messages import CheckpointView, DiskReading, DiskStatus
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL
from det_jupyter.master.service.committing import reserve as reserve_module
from det_jupyter.master.service.committing.reserve import Reserve
from det_jupyter.master.service.disks import FORECAST_VARIABLE, Disks, disks_of, recent_writes

MB, GB = 10**6, 10**9


@pytest.fixture(autouse=True)
def _forecasts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORECAST_VARIABLE, raising=False)


def reading(free: int, *, files: int | None = None, folder: str = "/data") -> DiskReading:
    return DiskReading(folder=folder, total_bytes=100 * GB, free_bytes=free, free_files=files)


def watched(*free: tuple[float, int]) -> DiskStatus:
    """Return the status of a disk that had so much free at these times."""
    disks = Disks()
    for at, num_bytes in free:
        disks.add_own(at, [reading(num_bytes)])
    (status,) = disks.statuses(free[-1][0])
    return status


@pytest.mark.parametrize(
    ("free", "state", "full_in_s"),
    [
        ([(0.0, 50 * GB)], "ok", None),
        ([(0.0, 200 * MB)], "low", None),  # less than four floors of 64 MiB
        ([(0.0, 60 * MB)], "full", None),
        ([(0.0, 60 * MB), (2.0, 90 * MB)], "full", None),  # until there are 1.5 floors
        ([(0.0, 60 * MB), (2.0, 110 * MB)], "low", None),
        ([(0.0, 2 * GB), (30.0, 1 * GB)], "ok", None),  # observed too shortly
        ([(0.0, 2 * GB), (100.0, 1 * GB)], "low", 93.289),
        ([(0.0, 50 * GB), (600.0, 49 * GB)], "ok", None),  # in eight hours
        ([(0.0, 12 * GB), (600.0, 11 * GB)], "low", 6559.736),
        ([(0.0, 12 * GB), (66.0, 11_300 * MB)], "ok", None),  # a burst
        ([(0.0, 1 * GB), (600.0, 2 * GB)], "ok", None),
        # Only the last ten minutes count.
        ([(0.0, 50 * GB), (500.0, 2 * GB), (1000.0, 2 * GB)], "ok", None),
    ],
)
def test_a_disk_is_low_when_it_is_full_soon(
    free: list[tuple[float, int]], state: str, full_in_s: float | None
) -> None:
    status = watched(*free)
    assert status.state == state
    assert status.full_in_s == (full_in_s and pytest.approx(full_in_s, rel=1e-3))


def test_a_forecast_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORECAST_VARIABLE, "off")
    status = watched((0.0, 2 * GB), (100.0, GB))
    assert (status.state, status.full_in_s) == ("ok", None)
    assert watched((0.0, 200 * MB)).state == "low"


def test_disk_without_files_left_is_low_and_full() -> None:
    disks = Disks()
    disks.add_own(0.0, [reading(50 * GB, files=900)])
    (status,) = disks.warnings(0.0)
    assert status.state == "low"
    assert "and 900 more files possible, which is little" in status.sentence(SHELL)
    disks.add_own(1.0, [reading(50 * GB, files=20)])
    assert disks.is_full("/data")


def test_a_disk_elsewhere_is_named_with_its_agent_and_forgotten_after_a_minute() -> None:
    disks = Disks()
    disks.add_of_agent("left", 0.0, [reading(10 * MB)])
    disks.add_own(0.0, [])
    (status,) = disks.warnings(59.0)
    assert status.sentence(NOTEBOOK) == (
        "agent left: /data: 10 MB free; what trains here waits for room and goes on when there is "
        "some; `%det disk` shows what takes it"
    )
    assert disks.warnings(61.0) == []
    assert not disks.is_full("/data")


def test_what_experiments_have_written_is_told() -> None:
    disks = Disks()
    for at, free in ((0.0, 2 * GB), (600.0, GB)):
        disks.add_own(at, [reading(free)])
    disks.set_writes({"/data": {7: 700 * MB, 3: 200 * MB}, "/other": {9: 1}})
    (status,) = disks.warnings(600.0)
    assert status.sentence(SHELL).startswith(
        "/data: 1.0 GB free; 1.0 GB were written in 10 min (experiment 7: 700 MB, experiment 3: "
        "200 MB), so it is full in about 9.3 min; "
    )


def test_recent_writes_are_the_checkpoints_of_ten_minutes_that_are_there() -> None:
    def saved(at: float, state: str = "COMPLETED") -> CheckpointView:
        fields = {"uuid": "u", "experiment_id": 7, "trial_id": 1, "steps_completed": 1}
        return CheckpointView.model_validate(
            {**fields, "path": "/u", "size_bytes": 5, "created_at": at, "state": state}
        )

    saves = [saved(1000.0), saved(900.0), saved(950.0, "DELETED"), saved(100.0)]
    assert recent_writes(saves, 1000.0) == {7: 10}


def test_folders_of_one_disk_are_one_disk(tmp_path: Path) -> None:
    folders = [str(tmp_path), str(tmp_path / "not there yet")]
    found = disks_of({folder: disk_space.room_of(folder) for folder in folders})
    assert [each.folder for each in found] == [str(tmp_path)]


class _Disk:
    def __init__(self) -> None:
        self.free = 1600

    def room(self, folder: object) -> Room:
        return Room(total_bytes=1600, free_bytes=self.free)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> _Disk:
    disk = _Disk()
    for module in (disk_space, reserve_module):
        monkeypatch.setattr(module, "room_of", disk.room)
    return disk


def test_the_reserve_is_there_while_there_is_room(tmp_path: Path, disk: _Disk) -> None:
    reserve = Reserve(tmp_path)
    disk.free = 199  # 1.5 floors and half a floor are 200
    reserve.keep()
    assert not reserve.path.exists()
    disk.free = 200
    reserve.keep()
    assert reserve.path.stat().st_size == 50
    assert reserve.path.stat().st_mode & 0o777 == 0o600
    disk.free = 12
    reserve.keep()
    assert reserve.path.exists()
    disk.free = 11
    reserve.keep()
    assert not reserve.path.exists()
    assert not reserve.give_back()  # it is gone


def test_a_reserve_that_cannot_be_made_leaves_no_file(
    tmp_path: Path, disk: _Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = []

    def used_up(*given: object) -> None:
        tries.append(given)
        raise OSError(122, "Disk quota exceeded")

    times = [0.0]
    monkeypatch.setattr(os, "posix_fallocate", used_up)
    reserve = Reserve(tmp_path, clock=lambda: times[-1])
    for at in (0.0, 2.0, 3599.0, 3600.0, 3602.0):
        times.append(at)
        reserve.keep()
    assert list(tmp_path.iterdir()) == []
    assert len(tries) == 2  # and as many warnings in the log: one an hour
