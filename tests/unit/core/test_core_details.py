"""Small promises of the Core API, each asked for exactly."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import torch

from det_jupyter import core
from det_jupyter.contract.messages import (
    Change,
    ChangeOrder,
    CheckpointRef,
    Order,
    PassOrders,
    SlotView,
)
from det_jupyter.contract.run.control_page import ControlPage, create_page
from det_jupyter.contract.run.journal import (
    CheckpointDeleted,
    CheckpointSaved,
    MetricsReported,
    StepTimes,
)
from det_jupyter.contract.values.lengths import Length
from det_jupyter.core import parts
from det_jupyter.core.argument_checks import checked_amounts, quoted
from det_jupyter.core.folders import FolderListing
from det_jupyter.core.importing import import_from_path
from det_jupyter.core.info import read_run
from det_jupyter.core.managed import StepCounter
from det_jupyter.core.ranks import RankInfo
from det_jupyter.core.ranks.programs import _own_address, gather_mpi
from det_jupyter.core.signals import OrdersContext
from det_jupyter.core.timings.intervals import summary
from det_jupyter.core.tracebacks import CodeNames, _shortened
from det_jupyter.errors import CheckpointError, DetError, PartsConflict
from tests.unit.core.run_folder import make_run

# Reports


@pytest.fixture
def context(tmp_path: Path) -> core.Context:
    return core.init(checkpoint_storage=tmp_path / "checkpoints")


def records(context: core.Context) -> list[Any]:
    assert isinstance(context.sink, core.RecordList)
    return context.sink.records


def test_training_metrics_need_no_batches(context: core.Context) -> None:
    context.train.report_training_metrics(10, {"loss": 1.5})
    (record,) = records(context)
    assert isinstance(record, MetricsReported)
    assert (record.group, record.steps_completed, record.metrics) == (
        "training",
        10,
        {"loss": 1.5},
    )


def test_only_the_chief_ends_a_trial_early() -> None:
    second = core.DistributedContext()
    second.rank = 1
    train = core.TrainContext(core.RecordList(), second)
    with pytest.raises(RuntimeError, match="report_early_exit: only the chief"):
        train.report_early_exit(core.EarlyExitReason.INVALID_HP)


# Checkpoints


def saved(context: core.Context) -> str:
    with context.checkpoint.store_path({"steps_completed": 1}) as (folder, uuid):
        (folder / "deep").mkdir()
        (folder / "deep" / "state").write_text("1")
    return uuid


def test_a_checkpoint_that_is_deleted_is_gone_and_reported_once(context: core.Context) -> None:
    uuid = saved(context)
    with context.checkpoint.restore_path(uuid) as folder:
        assert (folder / "deep" / "state").read_text() == "1"
    for _ in range(2):
        context.checkpoint.delete(uuid)
        assert not folder.exists()
        deleted = [record for record in records(context) if isinstance(record, CheckpointDeleted)]
        assert [record.uuid for record in deleted] == [uuid]
    with pytest.raises(CheckpointError):
        context.checkpoint.get_metadata(uuid)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_checkpoint_whose_block_raises_leaves_nothing(
    context: core.Context, tmp_path: Path, error: type[BaseException]
) -> None:
    def fill() -> None:
        with context.checkpoint.store_path({"steps_completed": 1}) as (path, _):
            (path / "state").write_text("1")
            raise error

    with pytest.raises(error):
        fill()
    assert list((tmp_path / "checkpoints").iterdir()) == []
    assert records(context) == []


def test_a_checkpoint_counts_the_bytes_that_are_its_own(
    context: core.Context, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").write_bytes(b"x" * 5000)
    sizes = []
    for of_state in (0, 3000):
        with context.checkpoint.store_path({"steps_completed": 1}) as (folder, _):
            (folder / "deep").mkdir()
            (folder / "deep" / "state").write_bytes(b"x" * of_state)
            (folder / "kept").hardlink_to(tmp_path / "elsewhere")
        saved = records(context)[-1]
        assert isinstance(saved, CheckpointSaved)
        sizes.append(saved.size_bytes)
        metadata = (Path(saved.path) / "metadata.json").stat().st_size
        assert saved.size_bytes == of_state + metadata
    assert sizes[1] - sizes[0] == 3000


def test_a_download_goes_into_a_folder_that_may_be_there(
    context: core.Context, tmp_path: Path
) -> None:
    uuid = saved(context)
    for target in (tmp_path / "new" / "er", tmp_path / "new" / "er", tmp_path):
        context.checkpoint.download(uuid, target)
        assert (target / "deep" / "state").read_text() == "1"


def test_modes_of_downloads_are_checked(context: core.Context, tmp_path: Path) -> None:
    uuid, wrong = saved(context), "shared"
    for call in ("restore_path", "download"):
        message = f"^checkpoint.{call}: download_mode: got 'shared', expected one of Download"
        with pytest.raises(ValueError, match=message):  # noqa: PT012  # a manager checks on entry
            if call == "download":
                context.checkpoint.download(uuid, tmp_path, wrong)  # type: ignore[arg-type]  # wrong
            with context.checkpoint.restore_path(uuid, wrong):  # type: ignore[arg-type]  # wrong
                pass


def test_imports_come_from_the_folder_and_are_as_before_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, elsewhere = tmp_path / "code", tmp_path / "elsewhere"
    for place, is_here in ((folder, True), (elsewhere, False)):
        place.mkdir()
        (place / "json.py").write_text(f"here = {is_here}")
    (folder / "only_there.py").touch()
    for no_code in ("a model.txt", "logging.txt", "only-a-script.py"):
        (folder / no_code).write_text("no code")
    monkeypatch.syspath_prepend(elsewhere)
    others = {name: sys.modules[name] for name in ("socket", "logging", "torch")}
    with import_from_path(folder):
        import json as found

        import only_there  # type: ignore[import-not-found]  # in that folder

        assert found.here  # type: ignore[attr-defined]  # ours
        assert Path(only_there.__file__).parent == folder
        assert {name: sys.modules[name] for name in others} == others
    assert sys.modules["json"] is json
    assert "only_there" not in sys.modules
    assert str(folder) not in sys.path


def test_a_module_that_was_written_a_moment_ago_is_imported(tmp_path: Path) -> None:
    times = tmp_path.stat()
    with import_from_path(tmp_path), pytest.raises(ModuleNotFoundError):
        importlib.import_module("written_later")
    (tmp_path / "written_later.py").touch()
    os.utime(tmp_path, ns=(times.st_atime_ns, times.st_mtime_ns))  # as where clocks are coarse
    with import_from_path(tmp_path):
        assert importlib.import_module("written_later")


# Runs


def test_each_order_is_taken_once_and_the_oldest_first(tmp_path: Path) -> None:
    create_page(tmp_path / "page")
    page, file = ControlPage(tmp_path / "page"), tmp_path / "orders"
    orders = OrdersContext([], page=page, file=file, distributed=core.DistributedContext())
    assert not orders.are_waiting()
    for known, new in (([1], [1]), ([3, 2, 1], [2, 3]), ([1, 2, 3], [])):
        passed: list[Order] = [ChangeOrder(id=number, change=Change(lr=0.5)) for number in known]
        file.write_text(PassOrders(allocation_id="1.1", orders=passed).model_dump_json())
        page.announce_orders(max(known))
        assert orders.are_waiting() == bool(new)
        assert [order.id for order in orders.take()] == new


def test_orders_that_cannot_be_read_are_told_and_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    create_page(tmp_path / "page")
    page, file = ControlPage(tmp_path / "page"), tmp_path / "orders"
    orders = OrdersContext([], page=page, file=file, distributed=core.DistributedContext())
    page.announce_orders(3)
    assert orders.are_waiting()
    assert orders.take() == []
    assert f"{file} cannot be read" in caplog.text
    assert not orders.are_waiting()


@pytest.mark.parametrize(("rank", "kind"), [(0, "cpu"), (1, "cuda"), (2, "cuda"), (5, "cuda")])
def test_a_worker_has_the_kind_of_device_of_its_slot(
    rank: int, kind: Literal["cpu", "cuda"], tmp_path: Path
) -> None:
    kinds: list[Literal["cpu", "cuda"]] = ["cpu", "cuda", "cuda"]
    slots = [SlotView(id=i, kind=k, index=i, name="slot") for i, k in enumerate(kinds)]
    run = read_run(str(make_run(tmp_path, slots=slots).path), str(tmp_path))
    assert run.at(rank, 0).device.type == kind
    assert run.device.type == "cpu", "of the first slot if the rank is unknown"


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (range(20, 0, -1), (20, 210.0, 10.0, 19.0, 20.0)),
        (range(1, 4), (3, 6.0, 2.0, 3.0, 3.0)),
        ([5], (1, 5.0, 5.0, 5.0, 5.0)),
    ],
)
def test_durations_have_a_number_a_sum_and_percentiles(
    seconds: Sequence[int], expected: tuple[float, ...]
) -> None:
    assert tuple(summary([each * 10**9 for each in seconds])) == expected


@pytest.mark.parametrize(
    ("uuid", "end"),
    [
        (None, "expected the uuid of a checkpoint; info.latest_checkpoint is None where training "
               "begins: `if uuid is not None: ...`"),
        (5, "got 5, expected the uuid of a checkpoint, a string"),
    ],
)  # fmt: skip
def test_what_is_no_uuid_is_refused(context: core.Context, uuid: Any, end: str) -> None:
    for call in ("get_metadata", "delete"):
        with pytest.raises(CheckpointError) as refused:
            getattr(context.checkpoint, call)(uuid)
        assert str(refused.value).startswith(f"checkpoint.{call}: got ")
        assert str(refused.value).endswith(end)


@pytest.mark.parametrize(
    ("call", "use"),
    [
        ("searcher.operations", lambda context: context.searcher.operations()),
        ("preempt.should_preempt", lambda context: context.preempt.should_preempt()),
        ("train.set_status", lambda context: context.train.set_status("x")),
        ("checkpoint.upload", lambda context: context.checkpoint.upload("x")),
    ],
)
def test_the_parts_of_a_context_that_is_closed_are_closed(
    context: core.Context, call: str, use: Callable[[core.Context], Any]
) -> None:
    with context:
        pass
    with pytest.raises(RuntimeError, match=rf"^{call}: this context is closed"):
        use(context)


def test_a_single_process_meets_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.core.distributed.choose_meeting", None)
    alone = core.DistributedContext(
        rank=0, size=1, local_rank=0, local_size=1, cross_rank=0, cross_size=1
    )
    assert alone.allgather(5) == [5]
    alone.close()


def test_a_script_by_itself_has_a_last_target(context: core.Context) -> None:
    searcher = context.searcher
    assert (searcher.target, searcher.is_last) == (Length("batches", 1), True)
    assert not searcher.was_extended()
    assert not searcher.await_next()


def test_an_error_of_a_data_worker_is_placed_in_the_users_code(tmp_path: Path) -> None:
    frames = [(tmp_path / "data.py", 5, "__getitem__"), ("/lib/numpy/core.py", 9, "load")]
    said = "".join(
        f'  File "{file}", line {line}, in {name}\n    its source\n' for file, line, name in frames
    )
    error = OSError(
        "Caught OSError in DataLoader worker process 0.\n"
        f"Original Traceback (most recent call last):\n{said}OSError: gone\n"
    )
    found = CodeNames({}, [tmp_path]).explain(error)
    assert (found.where, found.error) == ("data.py, line 5, in __getitem__", "OSError: gone")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a" * 58, repr("a" * 58)),
        ("a" * 59, "'" + "a" * 56 + "..."),
    ],
)
def test_a_refused_value_is_shown_in_60_characters(value: Any, text: str) -> None:
    assert quoted(value) == text
    assert quoted(10**5000) == "an int of thousands of digits"


def test_a_trial_without_slots_has_none_on_its_agent(tmp_path: Path) -> None:
    slots = [SlotView(id=-1, kind="cpu", index=0, name="no slot")]
    run = read_run(str(make_run(tmp_path, slots=slots).path), str(tmp_path))
    assert (run.container_slot_counts, run.slot_ids) == ([0], [])


def test_what_is_known_of_a_trial_can_be_pickled(tmp_path: Path) -> None:
    run = read_run(str(make_run(tmp_path).path), str(tmp_path))
    for given in (None, torch.device("cpu", 0)):
        data = pickle.dumps(replace(run, rank=0, given_device=given))
        assert pickle.loads(data).device == (given or torch.device("cpu"))


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        (core.EarlyExitReason.INVALID_HP, "its code has reported that (report_early_exit)"),
        (core.EarlyExitReason.USER_REQUESTED_STOP, ""),
    ],
)
def test_the_reason_of_an_early_end_is_kept(
    context: core.Context, reason: core.EarlyExitReason, message: str
) -> None:
    assert context.train.early_exit is None
    context.train.report_early_exit(reason)
    assert context.train.early_exit == reason.value
    assert records(context)[0].message == message


def test_outside_of_experiments_nothing_is_current_after_the_block(context: core.Context) -> None:
    assert context.train.get_validated() == (-1, {})
    with context:
        assert core.current() is context
        inner = core.init(checkpoint_storage="elsewhere")
        with inner:
            assert core.current() is inner
        assert core.current() is context
    assert core.current() is None


@pytest.mark.parametrize(("local_rank", "expected"), [(0, "cuda:0"), (1, "cuda:1"), (2, "cuda:0")])
def test_a_worker_has_the_device_of_its_place_or_the_one_that_its_launcher_chose(
    local_rank: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    slots = [SlotView(id=i, kind="cuda", index=i, name="GPU") for i in range(3)]
    run = read_run(str(make_run(tmp_path, slots=slots).path), str(tmp_path))
    assert run.at(local_rank, local_rank).device == torch.device(expected)
    assert run.device == torch.device("cuda:0")


def test_a_run_says_where_it_continues(tmp_path: Path) -> None:
    checkpoint = CheckpointRef(uuid="b" * 32, path="x", steps_completed=40)
    folder = make_run(tmp_path, run=3, checkpoint=checkpoint)
    info = read_run(str(folder.path), str(tmp_path))
    assert (info.trial._trial_run_id, info.trial._steps_completed) == (3, 40)
    assert info.latest_checkpoint == checkpoint.uuid


@pytest.mark.parametrize(
    ("found", "expected"), [("10.0.0.7", "10.0.0.7"), ("127.0.1.1", "192.0.2.9")]
)
def test_a_computer_is_named_by_an_address_that_others_reach(
    found: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Route(socket.socket):
        def connect(self, address: Any) -> None:
            """Send nothing."""

        def getsockname(self) -> Any:
            return ("192.0.2.9", 1)

    monkeypatch.setattr(socket, "gethostbyname", lambda name: found)
    monkeypatch.setattr(socket, "socket", Route)
    assert _own_address() == expected


class Mpi:
    """A communicator of four ranks on two computers, as one of them sees it."""

    COMM_TYPE_SHARED = object()
    said: list[Any] = []

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def Get_rank(self) -> int:  # theirs
        return self.rank

    def Get_size(self) -> int:  # theirs
        return 4

    def Split_type(self, kind: object) -> Neighbours:  # theirs
        assert kind is Mpi.COMM_TYPE_SHARED
        return Neighbours(self.rank)

    def allgather(self, first: int) -> list[int]:
        assert first == self.rank // 2 * 2
        return [0, 0, 2, 2]

    def bcast(self, value: Any, root: int) -> Any:
        assert (value is None) == (self.rank != root)
        if value is not None:
            self.said[:] = [value]
        return self.said[0]


class Neighbours(Mpi):
    def Get_rank(self) -> int:  # theirs
        return self.rank % 2

    def Get_size(self) -> int:  # theirs
        return 2

    def bcast(self, value: Any, root: int) -> Any:
        assert root == 0
        return self.rank // 2 * 2

    def Free(self) -> None:  # theirs
        """Give it back."""


def test_mpi4py_gives_the_places_and_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=Mpi))
    found = [gather_mpi(Mpi(rank)) for rank in range(4)]
    for rank, (place, address, secret) in enumerate(found):
        assert place == RankInfo(
            rank=rank,
            size=4,
            local_rank=rank % 2,
            local_size=2,
            cross_rank=rank // 2,
            cross_size=2,
        )
        assert (address, secret) == found[0][1:]
        assert len(secret) == 32


# Times


def test_marks_are_made_in_the_loops_thread_only() -> None:
    profiler, numbers = core.ProfilerContext(), iter(range(1, 9))
    elsewhere: list[int] = []
    with profiler.driven(mark=lambda: next(numbers)):
        with profiler.section("a"):
            thread = threading.Thread(target=lambda: elsewhere.append(profiler.mark()))
            thread.start()
            thread.join()
        sections, _ = profiler.take()
    assert elsewhere == [0]
    assert [(name, began, ended) for name, _, began, ended in sections] == [("a", 1, 2)]
    assert profiler.mark() == 0


def test_a_record_is_of_the_time_since_the_one_before() -> None:
    sink = core.RecordList()
    profiler = core.ProfilerContext(sink)
    profiler.count("a")
    profiler.flush()
    (record,) = sink.records
    assert isinstance(record, StepTimes)
    assert 0 < record.seconds < 60


# Errors


@pytest.mark.parametrize(
    ("error", "line", "traceback"),
    [
        (DetError("first\n  source\nsecond"), "first; second", "first\n  source\nsecond\n"),
        (ValueError("=====\nthe words\nmore"), "ValueError: the words", None),
        (ValueError("x" * 488), "ValueError: " + "x" * 488, None),
        (ValueError("x" * 489), "ValueError: " + "x" * 487 + "…", None),
        (ValueError("====="), "ValueError: =====", None),
    ],
)
def test_an_error_is_a_line(error: Exception, line: str, traceback: str | None) -> None:
    found = CodeNames({}, []).explain(error)
    assert found.error == line
    assert traceback is None or found.traceback == traceback


def test_a_long_traceback_has_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("det_jupyter.core.tracebacks._MAX_TRACEBACK", 4)
    assert _shortened("abcd") == "abcd"
    assert _shortened("abcdefg") == "ab\n... 3 characters left out ...\nfg"


# Messages and checks


@pytest.mark.parametrize("amount", [0, 2**53, 0.5])
def test_amounts_of_training_that_are_numbers(amount: float) -> None:
    assert checked_amounts({"epochs": amount}) == {"epochs": amount}


@pytest.mark.parametrize("amount", [-1, 2**53 + 1, float("nan"), "1", True])
def test_amounts_of_training_that_are_none(amount: Any) -> None:
    with pytest.raises(ValueError, match=r"trained\['epochs'\]: got .*from 0 to 2\*\*53"):
        checked_amounts({"epochs": amount})


def test_a_folder_of_two_ranks_is_stored_by_the_first() -> None:
    files = FolderListing(frozenset({"a"}))
    given = [
        parts.Part(rank=rank, found=files, source=source)
        for rank, source in enumerate([(0, 5), (0, 5), (1, 5), None, None])
    ]
    found = [part.found.files for part in parts.without_duplicates(given)]
    assert found == [{"a"}, set(), {"a"}, {"a"}, {"a"}]


@pytest.mark.parametrize(
    ("problems", "lines"), [("ab", ["a", "b"]), ("abc", ["a", "b", "and 1 more"])]
)
def test_the_first_problems_of_the_parts_are_listed(
    problems: str, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_MAX_PROBLEMS", 2)
    with pytest.raises(PartsConflict) as caught:
        parts.refuse("upload", list(problems))
    first, *others = str(caught.value).splitlines()
    assert first == "upload: the ranks' parts cannot be one checkpoint:"
    assert [line.strip() for line in others] == lines


def test_a_context_that_is_closed_stores_nothing(context: core.Context) -> None:
    with context:
        pass
    with (
        pytest.raises(RuntimeError, match=r"checkpoint\.store_path"),
        context.checkpoint.store_path({"steps_completed": 1}),
    ):
        pass


def test_the_first_step_of_a_run_is_told_once() -> None:
    journal, told, begun = core.RecordList(), [0], list[int]()
    counter = StepCounter(3, journal, lambda: told.append(counter.steps_completed), begun.append)
    for steps in (3, 5, 7):
        counter.note(steps)
    assert [record.steps_completed for record in journal.records] == [5]  # type: ignore[union-attr]
    assert (told, begun, counter.steps_completed) == ([0, 5], [4, 6, 8], 7)
