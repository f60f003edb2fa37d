"""What a master does in the background again and again, and that a failure ends none of it."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AlertNews, Delete, SystemSample, SystemSampled
from det_jupyter.master.background import cleanup, deleting, disk_usage
from det_jupyter.master.background.cleanup import keep_series
from det_jupyter.master.background.deleting import delete, remove_files
from det_jupyter.master.background.disk_usage import free, known_of, measure
from det_jupyter.master.delivery import alerts as alerts_module
from det_jupyter.master.delivery import outbox as outbox_module
from det_jupyter.master.delivery.alert_requests import FailedAttempt
from det_jupyter.master.delivery.alerts import Alerts
from det_jupyter.master.delivery.outbox import Outbox
from det_jupyter.master.machine.model.commands import DeleteExperiment
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.stored_alerts import Destination
from det_jupyter.storage.directory import remove_tree
from tests.integration.alerts.support import complete, states, submit
from tests.integration.master_support import Bench
from tests.waiting import until


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    bench = Bench(paths.data_dir() / "det.sqlite3")
    bench.register()
    yield bench
    bench.service.close()


def while_running(loop: Coroutine[Any, Any, None], scene: Callable[[], Awaitable[object]]) -> None:
    """Play a scene while a loop of the master runs, then end the loop."""

    async def run() -> None:
        running = asyncio.create_task(loop)
        await scene()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())


def failing_once(
    function: Callable[..., Any], error: Exception | None = None
) -> Callable[..., Any]:
    failures = [error or OSError("it fails")]

    def call(*given: Any, **options: Any) -> Any:
        if failures:
            raise failures.pop()
        return function(*given, **options)

    return call


# alerts


class Receiver:
    """Takes alerts, after a while if it is slow."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.goes_on = asyncio.Event()
        if not is_slow:
            self.goes_on.set()
        self.began: list[int] = []
        self.arrived: list[int] = []

    async def __call__(
        self, _: Addresses, to: Destination, news: AlertNews
    ) -> FailedAttempt | None:
        self.began.append(news.experiment_id)
        await self.goes_on.wait()
        self.arrived.append(news.experiment_id)
        return None


OWN = [{"webhook": "http://127.0.0.1:1/a"}]


def outbox(bench: Bench, receiver: Receiver) -> Outbox[str]:
    alerts = Alerts(bench.service, clock=lambda: bench.now, send=receiver, pause_s=0.0)
    return alerts.outbox


def test_alerts_are_sent_as_soon_as_they_are_raised(bench: Bench) -> None:
    submit(bench, alerts=OWN)
    receiver = Receiver()

    async def scene() -> None:
        await asyncio.sleep(0)
        complete(bench)  # which wakes the loop up
        await until(lambda: states(bench) == [("sent", 1, "")], "it was sent")

    while_running(outbox(bench, receiver).run(), scene)
    assert receiver.arrived == [1]


def test_attempts_under_way_may_end_when_the_master_does(bench: Bench) -> None:
    submit(bench, alerts=OWN)
    complete(bench)
    receiver = Receiver(is_slow=True)

    async def scene() -> None:
        await until(lambda: receiver.began == [1], "it is being sent")
        asyncio.get_running_loop().call_later(0.01, receiver.goes_on.set)

    while_running(outbox(bench, receiver).run(), scene)
    assert states(bench) == [("sent", 1, "")]


def test_attempts_that_do_not_end_are_left_to_the_next_master(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alerts_module, "_LAST_S", 0.01)
    submit(bench, alerts=OWN)
    complete(bench)
    receiver = Receiver(is_slow=True)

    async def scene() -> None:
        await until(lambda: receiver.began == [1], "it is being sent")

    while_running(outbox(bench, receiver).run(), scene)
    assert states(bench) == [("waiting", 0, "")]


def test_a_failure_of_the_outbox_ends_no_sending(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_module, "_AFTER_ERROR_S", 0.001)
    rows = bench.store.alerts
    monkeypatch.setattr(rows, "raised", failing_once(rows.raised))
    submit(bench, alerts=OWN)
    complete(bench)

    async def scene() -> None:
        await until(lambda: states(bench) == [("sent", 1, "")], "it was sent")

    while_running(outbox(bench, Receiver()).run(), scene)


# series


def test_measured_numbers_are_packed_when_there_are_some(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    monkeypatch.setattr(cleanup, "_PACKING_S", 0.001)
    packed: list[float] = []

    async def pack(service: object, now: float) -> None:
        packed.append(now)
        if len(packed) == 1:
            raise OSError("it fails")

    monkeypatch.setattr(cleanup, "pack_series", pack)

    async def scene() -> None:
        await asyncio.sleep(0.02)
        assert packed == []
        values = {"host": {"cpu_util_simple": 5.0}}
        bench.report(SystemSampled(samples=[SystemSample(at=1.0, values=values)]))
        await until(lambda: len(packed) > 1, "it packs again")

    while_running(keep_series(bench.service), scene)
    assert "could not be packed" in caplog.text


# deletions


@pytest.mark.parametrize(("number", "has_reserve"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_deletion_that_fails_is_tried_again_with_the_reserve_if_a_disk_is_full(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, number: int, has_reserve: bool
) -> None:
    monkeypatch.setattr(deleting, "_RETRY_S", 0.001)
    failing = failing_once(remove_files, OSError(number, "it fails"))
    monkeypatch.setattr(deleting, "remove_files", failing)
    bench.service.reserve.path.write_bytes(bytes(5000))
    submit(bench)
    complete(bench)

    async def scene() -> None:
        bench.service.apply(Delete(experiment_id=1))
        await until(lambda: not bench.service.machine.state.experiments, "it is deleted")

    while_running(delete(bench.service), scene)
    assert bench.service.reserve.path.exists() == has_reserve


@pytest.mark.parametrize("num_left", [3, 5])
def test_what_remains_of_an_experiment_is_named_up_to_a_number(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, num_left: int
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(deleting, "remove_tree", refuse)
    submit(bench)
    complete(bench)
    for number in range(1, num_left + 1):
        (paths.data_dir() / "runs" / f"1.1.{number}").mkdir(parents=True)

    async def scene() -> None:
        bench.service.apply(Delete(experiment_id=1))
        state = bench.service.machine.state
        await until(lambda: "cannot remove" in state.experiment(1).message, "it is said")

    while_running(delete(bench.service), scene)
    message = bench.service.machine.state.experiment(1).message
    assert message.count("cannot remove the folder") == 3
    more = "; and 2 more, which master.log names" if num_left == 5 else ""
    assert message.endswith(f"1.1.3: Permission denied{more}")


def test_a_folder_of_an_experiment_that_is_a_link_stays(tmp_path: Path) -> None:
    data, other = tmp_path / "data", tmp_path / "other"
    other.mkdir()
    (data / "traces").mkdir(parents=True)
    (data / "traces" / "3").symlink_to(other)
    (data / "tensorboard" / "3").mkdir(parents=True)
    command = DeleteExperiment(experiment_id=3, trial_ids=[], location=None, paths={}, cause=1)
    assert remove_files(command, data).problems == []
    assert other.is_dir()
    assert not (data / "tensorboard" / "3").exists()


# freeing room


def test_what_cannot_be_freed_is_named_and_not_counted(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = paths.data_dir()
    submit(bench)
    bench.service.machine.state.last_experiment_id = 9
    for number in (7, 8):
        (data / "traces" / str(number)).mkdir(parents=True)
        (data / "traces" / str(number) / "a.json").write_bytes(bytes(range(256)) * 64)

    def refuse_one(folder: Path) -> None:
        if folder.name == "7":
            raise PermissionError(13, "Permission denied")
        remove_tree(folder)

    monkeypatch.setattr(disk_usage, "remove_tree", refuse_one)
    known = known_of(bench.service)
    bench.service.machine.state.last_experiment_id = 1
    freed = free(known, data, 1e10)
    assert freed.problems == [f"{data}/traces/7 cannot be removed: Permission denied"]
    assert (freed.num_bytes, freed.num_files) == (16384, 1)
    kinds = {use.kind for use in measure(known, data, 1e10)}
    assert "leftovers" in kinds
