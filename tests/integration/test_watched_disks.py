"""The master's disks: what is watched, which trials go on, and whether checkpoints will fit."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.disk_space import Room
from det_jupyter.contract.messages import RoomWait
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.master.background import disks as module
from det_jupyter.master.background.disks import DiskWatch, folders_of, forecast
from det_jupyter.master.machine.rules.full_disks import waits_without_slots
from tests.integration.master_support import (
    Bench,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_request,
    started,
    validation,
)
from tests.unit.master.machine_world import failed

GB = 10**9
FLOOR = 64 * 2**20


def room(free: int, disk: int = 0, total: int = 100 * GB) -> Room:
    return Room(total_bytes=total, free_bytes=free, disk=disk)


class World:
    """A master, and the rooms of the folders that it writes to."""

    def __init__(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bench, self.service = bench, bench.service
        self.own = str(paths.data_dir())
        self.watch = DiskWatch(self.service)
        self.rooms: dict[str, Room | None] = {self.own: room(50 * GB)}
        self.runner = asyncio.Runner()  # one loop: what hangs is waited for again
        monkeypatch.setattr(module, "room_of", lambda folder: self.rooms.get(str(folder)))
        monkeypatch.setattr(module, "_PERIOD_S", 0.0)

    def submit(self, **changes: Any) -> int:
        return asyncio.run(self.service.submit(make_request(**changes))).id

    def look(self, times: int = 2) -> None:
        """Let the watch look at the disks."""

        async def run() -> None:
            watching = asyncio.create_task(self.watch.run())
            looks = 0
            keep = self.service.disks.set_writes

            def count(*arguments: Any) -> None:
                nonlocal looks
                looks += 1
                keep(*arguments)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(self.service.disks, "set_writes", count)
                while looks < times:
                    await asyncio.sleep(0.001)
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

        self.runner.run(run())

    def folders(self) -> list[str]:
        return [status.folder for status in self.service.disks.statuses(0.0)]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    bench = Bench(paths.data_dir() / "det.sqlite3")
    bench.register()
    world = World(bench, monkeypatch)
    yield world
    world.runner.close()
    bench.service.close()


def saved(uuid: str, size: int, at: float = 1.0) -> CheckpointSaved:
    return CheckpointSaved(
        at=at, uuid=uuid, steps_completed=50, path=f"/{uuid}", size_bytes=size, metadata={}
    )


def complete(world: World, number: int, *records: Any) -> None:
    run = f"{number}.{number}.1"
    told = [started(), *records, validation(100, 0.5), *last_words()]
    world.bench.report(gang_started(run), make_chunk(told, run=run), gang_exited(run))


def test_folders_of_unfinished_experiments_here_are_watched(world: World) -> None:
    world.submit()
    world.submit(checkpoint_storage={"host_path": "/share"})
    world.submit(checkpoint_storage={"host_path": "/share"})
    assert folders_of(world.service) == {world.own: [1], "/share": [2, 3]}
    complete(world, 1)
    assert folders_of(world.service) == {world.own: [], "/share": [2, 3]}


def test_each_disk_is_shown_once_and_one_that_is_not_used_any_more_is_not(world: World) -> None:
    world.submit(checkpoint_storage={"host_path": "/share"})
    world.rooms["/share"] = room(20 * GB, disk=1)
    world.look()
    assert sorted(world.folders()) == sorted([world.own, "/share"])
    complete(world, 1)
    world.look()
    assert world.folders() == [world.own]


def test_a_drive_that_does_not_answer_is_shown_as_it_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 0.01)
    world.look()
    answers = threading.Event()
    rooms = world.rooms

    def hang(folder: object) -> Room | None:
        answers.wait(600)
        return rooms.get(str(folder))

    monkeypatch.setattr(module, "room_of", hang)
    world.look()
    answers.set()
    (status,) = world.service.disks.statuses(0.0)
    assert (status.folder, status.free_bytes) == (world.own, 50 * GB)


def test_what_experiments_have_written_lately_is_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 10_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    world.bench.now = now
    world.submit(checkpoint_storage={"save_trial_latest": 9})
    world.bench.report(
        gang_started(),
        make_chunk(
            [
                started(),
                saved("old", 7 * GB, at=now - 601),
                saved("a", GB, at=now - 60),
                saved("b", 2 * GB, at=now - 30),
            ]
        ),
    )
    world.look()
    (status,) = world.service.disks.statuses(now)
    assert status.writes == {1: 3 * GB}


def test_a_disk_that_becomes_full_is_announced_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)

    def announced() -> int:
        return world.bench.store.feed.last_seq

    world.look()
    before = announced()
    world.rooms[world.own] = room(10)
    world.look(4)
    assert announced() == before + 1
    lines = [line for line in caplog.messages if "bytes are free" in line]
    assert lines == [f"{world.own} is full: 10 bytes are free"]
    world.rooms[world.own] = room(50 * GB)
    world.look(3)
    assert announced() == before + 2
    assert not world.service.disks.is_full(world.own)


def test_a_disk_that_cannot_be_read_ends_no_watching(world: World) -> None:
    fails = [OSError("it is gone")]
    find = world.service.disks.add_own

    def fail_once(*arguments: Any) -> None:
        if fails:
            raise fails.pop()
        find(*arguments)

    world.service.disks.add_own = fail_once  # type: ignore[assignment,method-assign]
    world.look()
    assert world.folders() == [world.own]


@pytest.mark.parametrize(
    ("wait", "goes_on"),
    [
        ({"folder": "/x"}, True),
        ({"folder": "/full"}, False),
        ({"folder": "/x", "try_at": 4000.1}, False),
        ({"folder": "/x", "try_at": 4000.0}, True),
        ({"folder": "/full", "agent_id": "b"}, True),  # only that agent can see
        ({"folder": ""}, True),
    ],
)
def test_a_trial_that_waits_for_room_is_queued_when_there_may_be_some(
    world: World, monkeypatch: pytest.MonkeyPatch, wait: dict[str, Any], goes_on: bool
) -> None:
    monkeypatch.setattr(module, "is_enough_room", lambda folder, needs: folder != "/full")
    monkeypatch.setattr(time, "time", lambda: 4000.0)
    world.submit()
    trial = world.service.machine.state.trial(1)
    words = failed("full", no_room=True, full_folder="/x").record
    world.bench.report(gang_started(), make_chunk([started(), words]), gang_exited(code=1))
    assert waits_without_slots(trial)
    trial.room = RoomWait(since=1.0, **wait)
    world.look()
    assert waits_without_slots(trial) != goes_on


# whether checkpoints will fit


def fits(world: World, number: int) -> tuple[int, int, int | None, int | None]:
    found = forecast(world.service, world.service.machine.state.experiment(number))
    return found.checkpoint_bytes, found.num_checkpoints, found.free_bytes, found.like


def test_the_forecast_is_that_of_the_newest_experiment_of_the_name_with_checkpoints(
    world: World,
) -> None:
    own = {"checkpoint_storage": {"save_trial_latest": 9}}
    folder = str(paths.data_dir() / "checkpoints")
    world.rooms[folder] = room(10 * GB)
    world.submit(name="a", **own)
    complete(world, 1, saved("u1", GB))
    world.submit(name="a", **own)
    complete(world, 2, saved("u2", 2 * GB), saved("u3", 3 * GB))
    world.submit(name="a", **own)  # nothing was saved
    complete(world, 3)
    world.submit(name="b", **own)
    complete(world, 4, saved("u4", 9 * GB))
    number = world.submit(name="a", **own)
    assert fits(world, number) == (3 * GB, 2, 10 * GB - FLOOR, 2)
    assert fits(world, 2) == (GB, 1, 10 * GB - FLOOR, 1)
    assert fits(world, 1) == (0, 0, None, None)


def test_a_fork_is_forecast_by_what_it_was_forked_from(world: World) -> None:
    folder = str(paths.data_dir() / "checkpoints")
    world.rooms[folder] = room(10)
    world.submit(name="a")
    complete(world, 1, saved("u1", GB))
    request = make_request(name="other").model_copy(update={"parent_id": 1})
    number = asyncio.run(world.service.submit(request)).id
    assert fits(world, number) == (GB, 1, 0, 1)  # the floor is not for checkpoints


def test_nothing_is_foreseen_of_places_whose_room_is_not_known(world: World) -> None:
    for path in ("/share", "/odd"):
        world.submit(name=path, checkpoint_storage={"host_path": path})
    world.rooms["/odd"] = room(0, total=0)
    complete(world, 1, saved("u1", GB))
    for path in ("/share", "/odd"):
        number = world.submit(name="/share", checkpoint_storage={"host_path": path})
        found = forecast(world.service, world.service.machine.state.experiment(number))
        assert (found.folder, found.free_bytes, found.like) == (path, None, None)
