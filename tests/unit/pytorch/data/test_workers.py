"""Loader workers: what they begin with, batches that they cannot send, and how they end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from multiprocessing import connection
from multiprocessing.queues import Queue
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import DataLoader as TorchDataLoader

from det_jupyter.core.peer_errors import WorkerLost
from det_jupyter.pytorch.data import DataLoader, workers
from det_jupyter.pytorch.data.loader import Flag
from det_jupyter.pytorch.data.workers import batches_of, init_worker, report_unsent_batches
from tests.unit.pytorch.data_support import numbers


@pytest.mark.parametrize("has_function", [True, False])
def test_a_worker_has_the_users_own_dataset_and_function(
    has_function: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    info, called = SimpleNamespace(dataset="a wrapper"), list[int]()
    monkeypatch.setattr(workers, "get_worker_info", lambda: info)
    monkeypatch.setattr(workers, "report_unsent_batches", lambda: called.append(-1))
    init_worker([1, 2], called.append if has_function else None, 3)
    assert info.dataset == [1, 2]
    assert called == ([-1, 3] if has_function else [-1])


def test_a_worker_of_a_rank_stays_at_sigterm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "report_unsent_batches", lambda: None)
    monkeypatch.setattr(workers, "get_worker_info", lambda: SimpleNamespace())
    before = signal.getsignal(signal.SIGTERM)
    try:
        init_worker([], None, 0)
        assert signal.getsignal(signal.SIGTERM) is before
        init_worker([], None, 0, is_of_rank=True)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("was_enabled", [True, False])
def test_torchs_handlers_of_signals_are_replaced_where_stacks_are_printed(
    was_enabled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    handler = SimpleNamespace(
        is_enabled=lambda: was_enabled,
        disable=lambda: calls.append("disable"),
        enable=lambda: calls.append("enable"),
    )
    monkeypatch.setattr(workers, "faulthandler", handler)
    monkeypatch.setattr(workers, "report_unsent_batches", lambda: None)
    monkeypatch.setattr(workers, "get_worker_info", lambda: SimpleNamespace())
    init_worker([], None, 0)
    assert calls == (["disable", "enable"] if was_enabled else [])


def unsent(monkeypatch: pytest.MonkeyPatch, worker: Any, sent: Any) -> list[Any]:
    """Return what is put in place of what a worker could not send."""
    monkeypatch.setattr(Queue, "_on_queue_feeder_error", None)  # and restored after the test
    report_unsent_batches()
    monkeypatch.setattr(workers, "get_worker_info", lambda: worker)
    put: list[Any] = []
    report: Any = Queue._on_queue_feeder_error  # type: ignore[attr-defined]
    report(SimpleNamespace(put=put.append), TypeError("cannot pickle a lock"), sent)
    return put


WORKER = SimpleNamespace(id=2)


def test_a_batch_that_cannot_be_sent_is_told_in_its_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    [(position, problem)] = unsent(monkeypatch, WORKER, (7, object()))
    assert position == 7
    assert isinstance(problem, ExceptionWrapper)
    with pytest.raises(TypeError) as caught:
        problem.reraise()
    assert "a loader worker cannot send its batch to the rank: " in str(caught.value)
    assert "cannot pickle a lock; what the dataset and the collate function return" in (
        str(caught.value)
    )
    assert "in DataLoader worker process 2" in str(caught.value)


def test_an_error_whose_type_cannot_be_sent_is_sent_as_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Own(Exception):
        pass

    wrapped = ExceptionWrapper((Own, Own("it broke"), None), where="in a worker")
    [(position, problem)] = unsent(monkeypatch, WORKER, (3, wrapped))
    assert (position, problem.exc_type) == (3, RuntimeError)
    with pytest.raises(RuntimeError, match="it broke"):
        problem.reraise()


@pytest.mark.parametrize(("worker", "sent"), [(None, (7, 1)), (WORKER, 7), (WORKER, (1, 2, 3))])
def test_what_is_no_batch_of_a_worker_is_only_printed(
    worker: Any, sent: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert unsent(monkeypatch, worker, sent) == []
    assert capsys.readouterr().err != ""


class Batches:
    """An iterator of a torch loader, whose workers end as given."""

    def __init__(self, error: Exception | None, *exit_codes: int | None) -> None:
        self._error = error
        self._workers = [
            SimpleNamespace(sentinel=index, pid=40 + index, exitcode=code)
            for index, code in enumerate(exit_codes)
        ]

    def __iter__(self) -> Iterator[int]:
        yield 1
        if self._error is not None:
            raise self._error


LOST = RuntimeError("DataLoader worker (pid 41) is killed by signal: Killed.")


@pytest.fixture(autouse=True)
def _ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "wait", lambda sentinels, timeout: sentinels)


@pytest.mark.parametrize(
    ("code", "how"),
    [(0, "exited with code 0 (sys.exit or os._exit)"), (-9, "was killed by SIGKILL"),
     (-7, "was killed by SIGBUS, as when /dev/shm is full")],
)  # fmt: skip
def test_a_worker_that_has_ended_is_named_with_its_end(code: int, how: str) -> None:
    seen: list[int] = []
    with pytest.raises(WorkerLost) as caught:
        seen.extend(batches_of(Batches(LOST, None, code, 3), rank=5))
    assert seen == [1]
    assert str(caught.value).startswith(f"loader worker 1 of rank 5 (pid 41) {how}")
    assert (caught.value.pid, caught.value.__cause__) == (41, LOST)


@pytest.mark.parametrize(
    ("error", "codes"), [(LOST, (None, None)), (LOST, ()), (ValueError("of the user"), (0,))]
)
def test_other_errors_stay_what_they_are(error: Exception, codes: tuple[int | None, ...]) -> None:
    with pytest.raises(type(error)) as caught:
        list(batches_of(Batches(error, *codes), rank=5))
    assert caught.value is error
    assert list(batches_of(Batches(None), rank=5)) == [1]


def test_the_event_that_ends_workers_has_no_lock_that_a_killed_one_could_hold() -> None:
    loader = DataLoader(numbers(4), num_workers=1).get_data_loader()
    assert isinstance(loader, TorchDataLoader)
    event = loader._loader.multiprocessing_context.Event()  # type: ignore[attr-defined]
    assert (isinstance(event, Flag), event.is_set()) == (True, False)
    event.set()
    assert event.is_set()
    assert not isinstance(torch.multiprocessing.get_context().Event(), Flag)
