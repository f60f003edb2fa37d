"""Which of the surviving ranks saves the last step, and with what. Pages stand for ranks."""

from __future__ import annotations

import random
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest
import torch
from torch import nn

from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.journal import LastStepSaved
from det_jupyter.contract.run.step_page import Phase, StepPage
from det_jupyter.core import Context
from det_jupyter.core.peer_errors import PeerLost
from det_jupyter.pytorch import PyTorchTrialContext
from det_jupyter.pytorch.rng import get_states, set_states
from det_jupyter.pytorch.steps.position import Position
from det_jupyter.pytorch.training import last_step
from det_jupyter.pytorch.training.exchange_watch import ExchangeWatch
from det_jupyter.pytorch.training.far_pages import FarPages
from det_jupyter.pytorch.training.kept_state import counts_steps
from det_jupyter.pytorch.training.last_step import LastStep
from det_jupyter.pytorch.training.page_buffers import in_page, size_in_page
from det_jupyter.pytorch.trial.callback_runner import Callbacks


@dataclass
class Gang:
    """Ranks whose pages lie in one folder; each can be alive or have ended."""

    folder: RunDir
    model: nn.Module
    size: int
    records: list[LastStepSaved] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)  # "shut": of connections
    position: Position = field(default_factory=Position)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.5)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 1)

    def rank(self, rank: int, *, pid: int | None = None) -> LastStep:
        core = SimpleNamespace(
            distributed=SimpleNamespace(rank=rank, size=self.size),
            info=SimpleNamespace(folder=self.folder),
            note_exchange=lambda steps: None,
            sink=SimpleNamespace(write=self.records.append),
        )
        context = SimpleNamespace(
            models=[self.model],
            optimizers=[self.optimizer],
            lr_schedulers=[SimpleNamespace(scheduler=self.scheduler)],
            device=torch.device("cpu"),
            position=self.position,
        )
        size = size_in_page([*self.model.buffers()])
        page = StepPage.create(self.folder.step(rank), pid or _own_pid(), size)
        keep = LastStep(cast(PyTorchTrialContext, context), cast(Context, core), page)
        keep.begin(0)
        return keep


def _own_pid() -> int:
    return threading.get_native_id()  # of the main thread: the process


@pytest.fixture
def gang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gang]:
    monkeypatch.setattr(last_step, "_OTHERS_S", 0.2)
    states = get_states()
    gang = Gang(RunDir(tmp_path), nn.BatchNorm1d(2), 3)
    monkeypatch.setattr(last_step, "shut_connections", lambda *_: gang.calls.append("shut"))
    yield gang
    set_states(states)


@pytest.fixture(scope="module")
def gone() -> int:
    """Return the pid of a process that has ended."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def lost(
    keep: LastStep, steps: int, *, batches: int | None = None, is_whole: bool = True
) -> list[Any]:
    """Lose a peer; return the states that are saved by this rank."""
    saved: list[Any] = []
    assert keep.notice(PeerLost("gone"))
    keep.save(
        steps_completed=steps,
        batches=steps if batches is None else batches,
        is_whole=is_whole,
        write=saved.extend,
    )
    assert keep.page.phase is (Phase.SAVED if saved else Phase.DONE)
    return saved


def ready(keep: LastStep, steps: int) -> None:
    keep.page.set_phase(Phase.READY, steps)


def test_a_rank_that_loses_a_peer_shuts_its_connections_before_it_waits_for_others(
    gang: Gang, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for keep in (chief := gang.rank(0), gang.rank(1, pid=gone), gang.rank(2)):
        keep.note(5)
    await_others = LastStep._await_others

    def note_and_wait(*args: Any) -> dict[int, int]:
        gang.calls.append("wait")
        return await_others(*args)

    monkeypatch.setattr(LastStep, "_await_others", note_and_wait)
    assert lost(chief, 5)
    assert gang.calls == ["shut", "wait"]  # others that wait for this rank have noticed


def test_the_chief_saves_for_all_with_the_numbers_that_each_rank_draws_next(
    gang: Gang, gone: int
) -> None:
    chief, dead, other = gang.rank(0), gang.rank(1, pid=gone), gang.rank(2)
    expected = []
    for keep in (chief, dead, other):
        keep.note_exchange(4)
        expected.append((random.random(), torch.rand(()).item()))
        keep.note_exchange(5)
    ready(other, 4)
    saved = lost(chief, 4)
    assert len(saved) == 3
    drawn = []
    for states in saved:
        set_states(states)
        drawn.append((random.random(), torch.rand(()).item()))
    assert drawn == expected
    for keep in (chief, dead, other):
        keep.close()


@pytest.mark.parametrize(
    ("steps_of_other", "who"),
    [(4, "chief"), (3, "chief"), (5, "other")],
    ids=["the lowest of equals", "the most advanced", "another one that is ahead"],
)
def test_one_rank_saves(gang: Gang, gone: int, steps_of_other: int, who: str) -> None:
    chief, dead, other = gang.rank(0), gang.rank(1, pid=gone), gang.rank(2)
    for keep in (chief, dead, other):
        keep.note_exchange(4)
        keep.note_exchange(5)
    with ThreadPoolExecutor() as threads:
        saved = threads.map(lost, (chief, other), (4, steps_of_other))
    assert [*map(bool, saved)] == [who == "chief", who == "other"]


def test_a_rank_that_looks_late_does_not_save_what_is_saved(gang: Gang, gone: int) -> None:
    chief, dead, other = gang.rank(0), gang.rank(1, pid=gone), gang.rank(2)
    for keep in (chief, dead, other):
        keep.note_exchange(4)
    ready(other, 4)
    assert lost(chief, 4)
    assert lost(other, 4) == []


@pytest.mark.parametrize("steps", [4, 5])
def test_a_rank_that_looks_late_waits_for_the_one_that_saves(
    gang: Gang, gone: int, steps: int
) -> None:
    chief, dead, other = gang.rank(0), gang.rank(1, pid=gone), gang.rank(2)
    for keep in (chief, dead, other):
        keep.note_exchange(4)
        keep.note_exchange(5)
    late = list[Any]()
    with ThreadPoolExecutor() as threads:

        def write(states: list[Any]) -> None:
            late.append(threads.submit(lost, chief, steps))
            time.sleep(0.3)

        other.save(steps_completed=4, batches=4, is_whole=True, write=write)
        assert late[0].result() == []
    assert [one.steps_completed for one in gang.records] == [4]


def test_the_next_rank_saves_if_the_one_that_saves_is_killed_too(gang: Gang) -> None:
    process = subprocess.Popen(["sleep", "60"])
    chief, other = gang.rank(0, pid=process.pid), gang.rank(1)
    gang.size = 2
    other.core.distributed.size = 2
    for keep in (chief, other):
        keep.note_exchange(4)
    chief.page.set_phase(Phase.SAVING, 4)
    with ThreadPoolExecutor() as threads:
        saving = threads.submit(lost, other, 4)
        time.sleep(0.1)
        assert not saving.done()
        process.kill()
        process.wait()
        assert len(saving.result()) == 2


def test_nothing_is_saved_in_the_middle_of_a_step_or_without_all_states(
    gang: Gang, gone: int
) -> None:
    chief, dead, other = gang.rank(0), gang.rank(1, pid=gone), gang.rank(2)
    for keep in (chief, dead, other):
        keep.note_exchange(4)
    ready(other, 3)
    assert lost(chief, 4, is_whole=False) == []
    assert len(lost(chief, 4)) == 3
    chief.page.set_phase(Phase.TRAINING)
    chief.forget()  # an event that draws numbers has begun
    assert lost(chief, 4) == []
    chief.note(4)
    dead.forget()  # killed while it wrote
    assert lost(chief, 4) == []
    gang.folder.step(1).unlink()
    assert lost(chief, 4) == []


def test_an_error_of_a_rank_itself_is_not_survived(gang: Gang) -> None:
    chief, failed, other = gang.rank(0), gang.rank(1), gang.rank(2)
    for keep in (chief, failed, other):
        keep.note_exchange(4)
    ready(other, 4)
    assert not failed.notice(KeyError("x"))
    assert failed.page.phase is Phase.FAILED
    assert lost(chief, 4) == []


def test_a_rank_that_hangs_is_not_waited_for(gang: Gang, gone: int) -> None:
    chief, _, dead = gang.rank(0), (hangs := gang.rank(1)), gang.rank(2, pid=gone)
    for keep in (chief, hangs, dead):
        keep.note_exchange(4)
    assert len(lost(chief, 4)) == 3


def test_buffers_are_those_before_the_batch(gang: Gang, gone: int) -> None:
    gang.size = 2
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    before = [buffer.clone() for buffer in gang.model.buffers()]
    for one in (keep, dead):
        one.note_exchange(4)
    keep.keep(4)
    gang.model(torch.randn(8, 2))
    assert lost(keep, 4)
    assert all(map(torch.equal, before, gang.model.buffers()))
    gang.model(torch.randn(8, 2))
    after = [buffer.clone() for buffer in gang.model.buffers()]
    for one in (keep, dead):
        one.note_exchange(5)
    keep.page.set_phase(Phase.TRAINING)
    assert lost(keep, 5)  # between batches: the batch before has ended
    assert all(map(torch.equal, after, gang.model.buffers()))


def test_buffers_that_rank_0_did_not_send_any_more_are_read_from_its_page(
    gang: Gang, gone: int
) -> None:
    averaged = torch.zeros(2)
    gang.model.register_buffer("averaged", averaged)
    gang.model.register_buffer("unset", unset := torch.full((2,), torch.nan))
    dead, other, third = gang.rank(0, pid=gone), gang.rank(1), gang.rank(2, pid=gone)
    gang.model(torch.randn(8, 2))
    unset[0] = 1
    dead.note_exchange(4)
    chiefs = [buffer.clone() for buffer in gang.model.buffers()]
    gang.model(torch.randn(8, 2))  # as other records on another rank
    unset[0] = 2
    other.note_exchange(4)
    third.note_exchange(4)
    averaged.add_(1)  # after the exchange, on all ranks alike
    chiefs[-2] = averaged.clone()
    assert lost(other, 4)
    found = [*gang.model.buffers()]
    assert [str(one) for one in found] == [str(one) for one in chiefs]


def test_within_a_window_the_state_at_its_beginning_is_saved(gang: Gang, gone: int) -> None:
    gang.size = 2
    gang.position.aggregation_frequency = 3
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for one in (keep, dead):
        for index in range(8):
            gang.position.batch_idx = index
            one.note_exchange(index + 1)
            if index == 5:
                one.keep(6)
                drawn = random.random()  # the first number of the next window
    before = [buffer.clone() for buffer in gang.model.buffers()]
    gang.model(torch.randn(8, 2))
    assert lost(keep, 3, batches=7) == []  # of an older window
    keep.page.set_phase(Phase.TRAINING)
    saved = lost(keep, 6, batches=7)
    assert all(map(torch.equal, before, gang.model.buffers()))
    assert (gang.records[-1].steps_completed, gang.records[-1].repeats) == (6, 2)
    set_states(saved[1])
    assert random.random() == drawn


def test_rates_are_those_before_the_batch_and_a_schedulers_step_is_in_no_batch(
    gang: Gang, gone: int
) -> None:
    gang.size = 2
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for one in (keep, dead):
        one.note_exchange(4)
    keep.keep(4)
    gang.optimizer.param_groups[0]["lr"] *= 0.1
    assert lost(keep, 4)
    assert gang.optimizer.param_groups[0]["lr"] == 0.5
    keep.page.set_phase(Phase.TRAINING)
    gang.optimizer.step()
    keep.keep(4)
    gang.scheduler.step()
    assert lost(keep, 4) == []


def test_a_rate_in_a_tensor_is_that_before_the_batch(gang: Gang, gone: int) -> None:
    gang.size = 2
    (group,) = gang.optimizer.param_groups
    group["lr"] = rate = torch.tensor(0.5)
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for one in (keep, dead):
        one.note_exchange(4)
    keep.keep(4)
    rate.mul_(0.1)
    assert lost(keep, 4)
    assert (group["lr"] is rate, rate.item()) == (True, 0.5)


def test_the_step_of_a_chain_of_schedulers_is_in_no_batch(gang: Gang, gone: int) -> None:
    gang.size = 2
    chain = torch.optim.lr_scheduler.ChainedScheduler([gang.scheduler])
    assert not hasattr(chain, "last_epoch")
    gang.scheduler = cast(Any, chain)
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for one in (keep, dead):
        one.note_exchange(4)
    gang.optimizer.step()
    keep.keep(4)
    chain.step()
    assert lost(keep, 4) == []
    keep.page.set_phase(Phase.TRAINING)
    keep.keep(4)
    assert lost(keep, 4)


def test_weights_that_are_changed_without_a_step_are_in_no_batch(gang: Gang, gone: int) -> None:
    """SAM, for example, adds to the weights, computes gradients there, and subtracts it again."""
    gang.size = 2
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for one in (keep, dead):
        one.note_exchange(4)
    keep.keep(4)
    gang.model(torch.randn(8, 2)).sum().backward()
    with torch.no_grad():
        next(gang.model.parameters()).add_(0.1)
    assert lost(keep, 4) == []
    keep.page.set_phase(Phase.TRAINING)
    keep.keep(4)
    gang.model(torch.randn(8, 2)).sum().backward()
    gang.model.zero_grad()
    assert lost(keep, 4)


def test_a_scheduler_that_does_not_show_its_steps_is_known() -> None:
    class Rates:
        def step(self) -> None: ...

    assert not counts_steps(Rates())
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=0.5)
    assert counts_steps(torch.optim.lr_scheduler.StepLR(optimizer, 1))


def test_a_failure_of_the_save_does_not_hide_the_cause(
    gang: Gang, gone: int, capsys: pytest.CaptureFixture[str]
) -> None:
    gang.size = 2
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for one in (keep, dead):
        one.note_exchange(4)

    def write(states: list[Any]) -> None:
        raise KeyError("the user's callback")

    keep.save(steps_completed=4, batches=4, is_whole=True, write=write)
    assert 'the last step could not be saved: "the user\'s callback"' in capsys.readouterr().err


def test_metrics_of_all_ranks_are_known_unless_one_was_killed_before_it_wrote_them(
    gang: Gang, gone: int
) -> None:
    gang.size = 2
    keep, dead = gang.rank(0), gang.rank(1, pid=gone)
    for steps in (3, 4):
        keep.note_metrics(steps, [steps / 3, torch.tensor(0.25)], 8)
        dead.note_metrics(steps, [steps / 7, 1], torch.tensor(4.0))
    rows = keep.rows(3, 4, 2)
    assert rows.tolist() == [
        [[1.0, 4 / 3], [0.25, 0.25], [8.0, 8.0]],
        [[3 / 7, 4 / 7], [1.0, 1.0], [4.0, 4.0]],
    ]
    keep.note_metrics(5, [0.0, 0.0], 8)
    later = keep.rows(4, 5, 2)
    assert later[:, :, 0].tolist() == rows[:, :, 1].tolist()
    assert later[0, :, 1].tolist() == [0.0, 0.0, 8.0]
    assert later[1, :, 1].isnan().all()


def test_connections_are_not_shut_while_a_rank_saves(gang: Gang, gone: int) -> None:
    closed = list[bool]()
    far = SimpleNamespace(pages={}, close=lambda: closed.append(True))
    with closing(gang.rank(0)) as keep, closing(gang.rank(1, pid=gone)) as dead:
        gang.rank(2, pid=gone).note_exchange(4)
        for each in (keep, dead):
            each.note_exchange(4)
        keep.far = cast(FarPages, far)
        keep.notice(PeerLost("gone"))
        keep.save(
            steps_completed=4,
            batches=4,
            is_whole=True,
            write=lambda states: closed.append(False),
        )
    assert closed[:2] == [True, False]


def on_gpu(keep: LastStep, *, is_aborted: bool = False, has_received: bool = True) -> MagicMock:
    """Let a rank be on a GPU."""
    watch = MagicMock(spec=ExchangeWatch, is_aborted=is_aborted, has_received=has_received)
    watch.pack_generator.side_effect = lambda slot, begin: begin
    watch.unpack_generator.side_effect = lambda packed: packed
    keep.watch = watch
    return watch


def test_after_an_abort_any_error_follows_from_it(gang: Gang) -> None:
    keep = gang.rank(0)
    on_gpu(keep)
    assert not keep.notice(ValueError("no group"))
    on_gpu(keep, is_aborted=True)
    assert keep.notice(ValueError("no group"))


def test_metrics_on_a_gpu_are_read_when_the_device_has_been_waited_for(gang: Gang) -> None:
    keep = gang.rank(0)
    watch = on_gpu(keep)
    watch.await_exchange.side_effect = [None, PeerLost("gone"), None]
    keep.note_metrics(1, [torch.tensor(0.5)], 2)
    assert keep.page.rows(1, 1, 2) == [None]
    keep.await_exchange()
    keep.note_metrics(2, [torch.tensor(0.25)], 2)
    with pytest.raises(PeerLost):
        keep.await_exchange()
    assert keep.page.rows(1, 2, 2) == [(0.5, 2.0), None]
    keep.await_exchange()
    assert keep.page.rows(1, 2, 2) == [(0.5, 2.0), (0.25, 2.0)]


@pytest.mark.parametrize(
    ("device", "watches", "addresses", "opens"),
    [
        ("cpu", False, [], True),
        ("cuda", False, [], False),
        ("cuda", True, [], True),
        ("cuda", True, ["10.0.0.1"], False),  # on several computers
    ],
)
def test_ranks_on_gpus_have_pages_if_they_can_leave_an_exchange(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    addresses: list[str],
    *,
    watches: bool,
    opens: bool,
) -> None:
    monkeypatch.setattr(last_step, "can_save_for_all", lambda *_: True)
    monkeypatch.setattr(last_step, "can_watch", lambda *_: watches)
    model = nn.BatchNorm1d(2)
    context: Any = SimpleNamespace(device=torch.device(device), config=None, models=[model])
    core: Any = SimpleNamespace(distributed=SimpleNamespace(rank=0))
    info: Any = SimpleNamespace(addresses=addresses, folder=RunDir(tmp_path))
    page = LastStep._create_page(info, context, core, Callbacks({}))
    assert (page is not None) is opens
    if page is not None:
        assert bool(page.slots()[0].buffers) is (device == "cpu")


def test_a_rank_knows_the_ends_of_the_others_connections(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, *others = {("127.0.0.1", 1)}, {("127.0.0.1", 2)}, {("127.0.0.1", 3), ("127.0.0.1", 4)}
    keep = gang.rank(0)
    monkeypatch.setattr(LastStep, "_create_page", lambda *_: keep.page)
    monkeypatch.setattr(last_step, "own_ends", lambda: own)
    named: list[Any] = [own, *others]
    core: Any = SimpleNamespace(
        distributed=SimpleNamespace(rank=0, size=3, local_size=3, allgather=lambda _: named),
        info=SimpleNamespace(plan=SimpleNamespace(is_program=False), addresses=()),
    )
    opened = LastStep.open(keep.context, core, Callbacks({}))
    assert opened is not None
    assert opened.ends == set().union(*others)
    named[1] = None  # it has no page
    assert LastStep.open(keep.context, core, Callbacks({})) is None


def test_ranks_that_are_started_by_hand_on_several_computers_have_no_pages() -> None:
    """A page on a drive of several computers is not what a rank elsewhere has written last."""
    plan = SimpleNamespace(is_program=False)
    core: Any = SimpleNamespace(
        distributed=SimpleNamespace(rank=0, size=4, local_size=2),
        info=SimpleNamespace(plan=plan, addresses=()),
    )
    assert LastStep.open(cast(Any, None), core, Callbacks({})) is None


@pytest.mark.parametrize(
    ("rank", "has_received", "saves"), [(0, False, True), (1, False, False), (1, True, True)]
)
def test_buffers_that_a_gpu_may_not_have_received_are_not_saved(
    gang: Gang, gone: int, rank: int, *, has_received: bool, saves: bool
) -> None:
    gang.size = 2
    keep, dead = gang.rank(rank), gang.rank(1 - rank, pid=gone)
    watch = on_gpu(keep, is_aborted=True, has_received=has_received)
    for one in (keep, dead):
        one.note_exchange(4)
    keep.keep(4)
    assert watch.mark_received.call_count == 1
    assert bool(lost(keep, 4)) is saves


def test_the_page_is_unmapped(gang: Gang) -> None:
    with closing(gang.rank(0)) as keep:
        keep.note(0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.complex64, torch.int64])
def test_buffers_of_any_type_are_in_the_page(gang: Gang, dtype: torch.dtype) -> None:
    gang.model.register_buffer("other", torch.ones(3).to(dtype).expand(2, 3))
    with closing(gang.rank(0)) as keep:
        keep.note(5)
        slot = keep.page.slot_of(5)
        assert slot is not None
        assert all(map(torch.equal, gang.model.buffers(), in_page(keep._buffers, slot.buffers)))
