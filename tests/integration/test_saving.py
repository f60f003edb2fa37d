"""Checkpoints that are written while training goes on: what is in them, and what ends them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from det_jupyter.contract.messages import CheckpointRef
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.contract.trial.origin import Origin
from det_jupyter.core import CheckpointContext, DistributedContext, RecordList
from det_jupyter.core.peer_errors import PeerFailed
from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.pytorch import MetricReducer, PyTorchCallback, PyTorchTrialContext
from det_jupyter.pytorch.checkpoints import training_state
from det_jupyter.pytorch.checkpoints.compare import compare
from det_jupyter.pytorch.checkpoints.restore import (
    read_state,
    restore_generators,
    restore_models,
    restore_training,
)
from det_jupyter.pytorch.checkpoints.savepoints import Savepoints
from det_jupyter.pytorch.checkpoints.saver import Saver
from det_jupyter.pytorch.checkpoints.training_state import Parts
from det_jupyter.pytorch.rng import get_states, seed_everything
from det_jupyter.pytorch.rules import RunStart
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from det_jupyter.storage.directory import DirectoryDraft, DirectoryStorage
from tests.integration.parallel_ranks import RankRunner
from tests.unit.pytorch.thread_ranks import ThreadRank
from tests.unit.pytorch.thread_ranks import run_ranks as run_thread_ranks


class Gate(DirectoryStorage):
    """A storage whose drafts are on the disk only when the test lets them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.opened = threading.Event()
        self.problem: OSError | None = None
        self.threads: list[str] = []

    def begin(self, uuid: str) -> DirectoryDraft:
        return GatedDraft(self, super().begin(uuid))


class GatedDraft(DirectoryDraft):
    """See Gate."""

    def __init__(self, gate: Gate, inner: DirectoryDraft) -> None:
        self.path = inner.path
        self._gate = gate
        self._inner = inner

    def sync(self) -> None:
        self._gate.threads.append(threading.current_thread().name)
        assert self._gate.opened.wait(600)
        if self._gate.problem is not None:
            raise self._gate.problem
        self._inner.sync()

    def commit(self) -> None:
        self._gate.threads.append(threading.current_thread().name)
        self._inner.commit()

    def discard(self) -> None:
        self._inner.discard()


class Diary(PyTorchCallback):
    """Notes what is called, and adds a file and an entry of its own."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.is_broken = False

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        self.notes.append("save_start")
        checkpoint["own"] = {"entry": torch.ones(1)}

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        self.notes.append("write_end")
        if self.is_broken:
            raise ZeroDivisionError
        (checkpoint_dir / "own.txt").write_text("own")

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.notes.append(f"upload_end {uuid}")


class Lone:
    """One rank with a model, a saver and a gate."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.gate = Gate(root)
        self.records = RecordList()
        self.diary = Diary()
        distributed = DistributedContext()
        context = PyTorchTrialContext(distributed=distributed, device=torch.device("cpu"))
        self.model = context.wrap_model(nn.Linear(3, 2))
        self.optimizer = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))
        self.parts = Parts(context=context, callbacks=Callbacks({"diary": self.diary}))
        storage = CheckpointContext(self.gate, self.records, distributed, {"trial_id": 3})
        self.savepoints = Savepoints(
            storage, self.parts, Origin(trial_class="module:Trial"), RunStart(seed=1)
        )
        self.saver = self.savepoints._saver

    def train(self) -> None:
        self.model(torch.ones(4, 3)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def weight(self) -> torch.Tensor:
        weight: torch.Tensor = self.model.state_dict()["weight"]
        return weight.clone()

    def saved(self) -> list[CheckpointSaved]:
        return [r for r in self.records.records if isinstance(r, CheckpointSaved)]

    def names(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir()) if self.root.exists() else []


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Lone]:
    lone = Lone(tmp_path / "checkpoints")
    yield lone
    lone.gate.opened.set()
    lone.saver.close()


def test_training_goes_on_while_a_checkpoint_is_written(lone: Lone) -> None:
    lone.train()
    before = lone.weight()
    uuid = lone.saver.begin(steps_completed=1)
    lone.train()
    lone.train()
    assert lone.saver.is_pending
    assert not lone.saver.is_written
    assert lone.saved() == []
    assert lone.diary.notes == ["save_start"]
    lone.gate.opened.set()
    lone.saver.finish()
    assert not lone.saver.is_pending
    (record,) = lone.saved()
    assert (record.uuid, record.steps_completed) == (uuid, 1)
    assert lone.names() == [uuid]
    assert lone.diary.notes == ["save_start", "write_end", f"upload_end {uuid}"]
    state = read_state(Path(record.path))
    assert torch.equal(state["models"][0]["weight"], before)
    assert not torch.equal(before, lone.weight())
    assert state["own"]["entry"].tolist() == [1.0]
    assert (Path(record.path) / "own.txt").read_text() == "own"
    assert record.metadata["trial_id"] == 3
    assert lone.gate.threads == ["det-checkpoint", "MainThread"]


@pytest.mark.parametrize(("device", "copies"), [("cpu", 0), ("cuda", 1)])
def test_a_state_on_a_gpu_is_copied_into_memory_that_is_used_again(
    lone: Lone, monkeypatch: pytest.MonkeyPatch, device: str, copies: int
) -> None:
    monkeypatch.setattr(lone.parts.context, "device", torch.device(device))
    monkeypatch.setattr(training_state, "get_states", lambda _: get_states())
    lone.gate.opened.set()
    lone.saver.begin(steps_completed=1, is_still=True)
    assert lone.saver.is_written
    lone.saver.finish()
    weights = (torch.float32, (2, 3), (3, 1), False)
    assert len(lone.saver._memory._free.get(weights, [])) == copies


def test_the_chief_sees_that_the_writing_is_over(lone: Lone) -> None:
    assert not lone.saver.is_written
    lone.gate.opened.set()
    lone.saver.begin(steps_completed=1)
    for thread in threading.enumerate():
        if thread.name == "det-checkpoint":
            thread.join()
    assert lone.saver.is_written
    lone.saver.finish()
    assert not lone.saver.is_written
    lone.saver.finish()  # nothing is pending: nothing happens
    assert len(lone.saved()) == 1


def test_a_new_checkpoint_first_finishes_the_one_before(lone: Lone) -> None:
    lone.gate.opened.set()
    first = lone.saver.begin(steps_completed=1)
    lone.train()
    second = lone.saver.begin(steps_completed=2)
    assert [record.uuid for record in lone.saved()] == [first]
    lone.saver.finish()
    assert [record.uuid for record in lone.saved()] == [first, second]
    one, two = (Path(record.path) for record in lone.saved())
    names = [difference.name for difference in compare(one, two)]
    assert names[:3] == ["steps_completed", "models.0.weight", "models.0.bias"]


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="macOS lacks posix_fadvise")
def test_the_checkpoint_before_is_dropped_from_memory(
    lone: Lone, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[int] = []
    fadvise = os.posix_fadvise

    def watched(descriptor: int, *given: int) -> None:
        dropped.append(os.fstat(descriptor).st_ino)
        fadvise(descriptor, *given)

    monkeypatch.setattr(os, "posix_fadvise", watched)
    lone.gate.opened.set()
    for steps in (1, 2):
        lone.saver.begin(steps_completed=steps)
        lone.saver.finish()
    lone.saver.save_alone(3, [get_states()])
    files = [Path(record.path) / training_state.STATE_FILE for record in lone.saved()]
    assert dropped == [file.stat().st_ino for file in files[:2]]
    assert [read_state(file.parent)["steps_completed"] for file in files] == [1, 2, 3]


def test_a_checkpoint_that_is_dropped_leaves_nothing(lone: Lone) -> None:
    lone.gate.opened.set()
    lone.saver.begin(steps_completed=1)
    lone.saver.drop()
    lone.saver.drop()
    assert lone.saver.close()
    assert (lone.names(), lone.saved()) == ([], [])


@pytest.mark.parametrize("is_chief", [True, False])
def test_a_rank_that_is_left_saves_a_batch_whose_checkpoint_it_cannot_finish(
    lone: Lone, *, is_chief: bool
) -> None:
    saver, savepoints = lone.saver, lone.savepoints
    lone.gate.opened.set()
    savepoints.save(1)
    if not is_chief:  # the chief has ended before it has finished it
        assert saver._write is not None
        saver._write.result()
        saver._write.draft.discard()
        saver._write = None
    savepoints.save_alone(1, [get_states()])
    (record,) = lone.saved()
    assert read_state(Path(record.path))["steps_completed"] == 1
    assert ("own" in read_state(Path(record.path))) is is_chief
    savepoints.save_alone(1, [get_states()])
    assert len(lone.saved()) == 1


def test_a_rank_that_is_left_saves_a_batch_whose_checkpoint_the_chief_has_not_written(
    lone: Lone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chief writes the files before it settles, so another rank waits for it there."""
    savepoints = lone.savepoints
    lone.gate.opened.set()
    settle = "det_jupyter.pytorch.checkpoints.saver.settle"
    monkeypatch.setattr(settle, Mock(side_effect=RuntimeError("Connection closed by peer")))
    with pytest.raises(RuntimeError, match="closed by peer"):
        savepoints.save(1, is_still=True)
    savepoints.save_alone(1, [get_states()])
    assert [record.steps_completed for record in lone.saved()] == [1]


@pytest.mark.parametrize("is_chief", [True, False])
def test_a_rank_that_is_left_as_an_older_checkpoint_is_finished_saves_its_own_batch(
    lone: Lone, monkeypatch: pytest.MonkeyPatch, *, is_chief: bool
) -> None:
    """The older one may be finished by then, and is not the one of this batch."""
    saver, savepoints = lone.saver, lone.savepoints
    lone.gate.opened.set()
    savepoints.save(1)
    if not is_chief:
        saver.drop()
        saver._uuid = savepoints._uuid  # of the chief, which has ended

    def lose_peer(_: DistributedContext, complete: Callable[[], object]) -> None:
        complete()
        raise RuntimeError("Connection closed by peer")

    monkeypatch.setattr("det_jupyter.pytorch.checkpoints.saver.run_on_chief", lose_peer)
    with pytest.raises(RuntimeError, match="closed by peer"):
        savepoints.save(2, is_still=True)
    savepoints.save_alone(2, [get_states()])
    assert lone.saved()[-1].steps_completed == 2


def test_a_rank_that_is_left_saves_that_the_validation_of_its_batch_is_done(lone: Lone) -> None:
    saver = lone.saver
    lone.gate.opened.set()
    savepoints = Savepoints(saver.storage, lone.parts, saver.origin, RunStart(seed=1))
    savepoints.save(1, due="rung", is_still=True)
    savepoints.finish()
    (before,) = lone.saved()
    savepoints.save_alone(1, [get_states()])
    start = RunStart(seed=1, checkpoint=CheckpointRef.built_from(before))
    resumed = Savepoints(saver.storage, lone.parts, saver.origin, start)
    resumed.restore()
    assert resumed.restore_generators() == "rung"
    resumed.save_alone(1, [get_states()])
    due = [read_state(Path(one.path))["validation_due"] for one in lone.saved()]
    assert due == ["rung", None, None]


def test_a_rank_that_is_left_finishes_an_older_checkpoint_whose_files_are_written(
    lone: Lone,
) -> None:
    savepoints = lone.savepoints
    lone.gate.opened.set()
    savepoints.save(1, is_still=True)  # it waits for other ranks, to be finished
    savepoints.finish_older(1)
    assert lone.saved() == []
    savepoints.finish_older(2)
    savepoints.save_alone(2, [get_states()])
    savepoints.drop_pending()
    assert [record.steps_completed for record in lone.saved()] == [1, 2]


def test_a_rank_that_is_left_does_not_wait_for_an_older_checkpoint(lone: Lone) -> None:
    saver, savepoints = lone.saver, lone.savepoints
    savepoints.save(1)  # its files are not on the disk before the gate is opened
    savepoints.finish_older(2)
    others = DirectoryStorage(lone.root), lone.records, DistributedContext()
    saver.storage = CheckpointContext(*others, {"trial_id": 3})
    savepoints.save_alone(2, [get_states()])
    (record,) = lone.saved()
    assert record.steps_completed == 2
    lone.gate.opened.set()
    savepoints.drop_pending()
    assert (lone.names(), lone.saved()) == ([record.uuid], [record])


def test_an_older_checkpoint_is_finished_if_a_rank_that_is_left_cannot_save(lone: Lone) -> None:
    saver, savepoints = lone.saver, lone.savepoints
    lone.gate.opened.set()
    savepoints.save(1)
    saver.storage = Mock(begin=Mock(side_effect=CheckpointError("the disk has failed")))
    with pytest.raises(CheckpointError, match="the disk has failed"):
        savepoints.save_alone(2, [get_states()])
    assert [record.steps_completed for record in lone.saved()] == [1]


def test_a_failure_of_the_writer_is_raised_when_it_is_finished(lone: Lone) -> None:
    lone.gate.problem = OSError(28, "No space left on device")
    uuid = lone.saver.begin(steps_completed=1)
    lone.gate.opened.set()
    message = f"checkpoint {uuid} could not be written: .*No space left on device"
    with pytest.raises(CheckpointError, match=message):
        lone.saver.finish()
    assert (lone.names(), lone.saved()) == ([], [])
    lone.gate.problem = None
    lone.saver.begin(steps_completed=2)
    lone.saver.finish()
    assert [record.steps_completed for record in lone.saved()] == [2]


def test_a_callback_that_fails_on_the_files_leaves_no_checkpoint(lone: Lone) -> None:
    lone.gate.opened.set()
    lone.diary.is_broken = True
    lone.saver.begin(steps_completed=1)
    with pytest.raises(ZeroDivisionError):
        lone.saver.finish()
    assert (lone.names(), lone.saved()) == ([], [])


def test_what_was_begun_is_completed_when_something_else_fails(lone: Lone) -> None:
    lone.gate.opened.set()
    uuid = lone.saver.begin(steps_completed=1, validation_due="scheduled")
    lone.saver.close()
    lone.saver.close()
    assert [record.uuid for record in lone.saved()] == [uuid]
    assert read_state(Path(lone.saved()[0].path))["validation_due"] == "scheduled"
    assert lone.diary.notes == ["save_start", "write_end"]  # not all ranks know


def test_closing_tells_what_went_wrong_and_raises_nothing(
    lone: Lone, capsys: pytest.CaptureFixture[str]
) -> None:
    lone.gate.problem = OSError(28, "No space left on device")
    lone.saver.begin(steps_completed=1)
    lone.gate.opened.set()
    lone.saver.close()
    assert "No space left on device" in capsys.readouterr().err
    assert lone.names() == []


def test_state_that_cannot_be_saved_is_refused_at_once(lone: Lone) -> None:
    lone.diary.state_dict = lambda: {"file": Path("x")}  # type: ignore[method-assign]  # a bad one
    with pytest.raises(ConfigError, match="callback 'diary': its state\\['file'\\]"):
        lone.saver.begin(steps_completed=1)
    assert not lone.saver.is_pending
    assert lone.names() == []


# What fails on one rank is heard by all: nobody waits for the one that failed


class Failing(Diary):
    """Fails where a test says, on one rank."""

    def __init__(self, place: str, *, is_here: bool) -> None:
        super().__init__()
        self.place = place if is_here else ""

    def state_dict(self) -> dict[str, Any]:
        return {"file": Path("x")} if self.place == "state" else {}

    def on_checkpoint_save_start(self, checkpoint: dict[str, Any]) -> None:
        if self.place == "save_start":
            raise ZeroDivisionError("of the hook")

    def on_checkpoint_write_end(self, checkpoint_dir: Path) -> None:
        if self.place == "write_end":
            raise ZeroDivisionError("of the hook")


class Unsaveable(MetricReducer):
    """A reducer whose state is not to be had on one rank."""

    def __init__(self, *, is_here: bool) -> None:
        self.is_here = is_here

    def reset(self) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"broken": 1 // 0} if self.is_here else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        pass


@pytest.mark.parametrize(
    ("place", "failing", "error"),
    [
        ("state", 0, ConfigError),
        ("save_start", 0, ZeroDivisionError),
        ("save_start", 1, ZeroDivisionError),
        ("reducer", 0, ZeroDivisionError),
        ("reducer", 1, ZeroDivisionError),
        ("write_end", 0, ZeroDivisionError),
    ],
)
def test_a_failure_on_one_rank_is_raised_by_all(
    tmp_path: Path, place: str, failing: int, error: type[Exception]
) -> None:
    def save(rank: ThreadRank) -> None:
        is_here = rank.rank == failing
        context = PyTorchTrialContext(distributed=rank, device=torch.device("cpu"))
        context.wrap_reducer(Unsaveable(is_here=is_here and place == "reducer"))
        callbacks = Callbacks({"diary": Failing(place, is_here=is_here)})
        saver = Saver(
            CheckpointContext(DirectoryStorage(tmp_path), RecordList(), rank, {}),
            Parts(context=context, callbacks=callbacks),
            Origin(trial_class="module:Trial"),
        )
        with closing(saver):
            saver.begin(steps_completed=1)
            saver.finish()

    outcomes = run_thread_ranks(3, save)
    for rank, outcome in enumerate(outcomes):
        if rank == failing:
            assert isinstance(outcome, error)
        else:
            assert isinstance(outcome, PeerFailed)
            assert str(outcome).startswith(f"rank {failing} failed: {error.__name__}: ")


def test_a_checkpoint_is_two_exchanges_to_begin_and_one_to_finish(tmp_path: Path) -> None:
    def save(rank: ThreadRank) -> tuple[int, int]:
        context = PyTorchTrialContext(distributed=rank, device=torch.device("cpu"))
        saver = Saver(
            CheckpointContext(DirectoryStorage(tmp_path), RecordList(), rank, {}),
            Parts(context=context, callbacks=Callbacks({})),
            Origin(trial_class="module:Trial"),
        )
        saver.begin(steps_completed=1)
        begun = rank.collectives
        rank.allgather(None)
        saver.finish()
        return begun, rank.collectives - begun - 1

    assert run_thread_ranks(2, save) == [(2, 1), (2, 1)]


class Heard(PyTorchCallback):
    """Keeps the checkpoints that it is told of."""

    def __init__(self) -> None:
        self.uuids: list[str] = []

    def on_checkpoint_upload_end(self, uuid: str) -> None:
        self.uuids.append(uuid)


def save_or_restore(distributed: DistributedContext, root: Path, source: str) -> dict[str, Any]:
    """Save in the middle of a window if the source is "new", else go on from that checkpoint."""
    seed_everything(1)
    context = PyTorchTrialContext(
        distributed=DistributedContext.from_torch_distributed(), device=torch.device("cpu")
    )
    model: Any = context.wrap_model(nn.Linear(3, 1))
    context.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    heard = Heard()
    reducer = context.wrap_reducer(sum, "total")
    parts = Parts(context=context, callbacks=Callbacks({"heard": heard}))
    records = RecordList()
    storage = CheckpointContext(DirectoryStorage(root), records, context.distributed, {})
    saver = Saver(storage, parts, Origin(trial_class="m:T"))
    found: dict[str, Any] = {}
    if source == "new":
        seed_everything(100 + distributed.rank)
        model.require_backward_grad_sync = False
        model(torch.full((2, 3), float(distributed.rank + 1))).sum().backward()
        reducer.update(10 + distributed.rank)
        uuid = saver.begin(steps_completed=4, in_window=True)
        found["next"] = torch.rand(1).item()
        saver.finish()
        assert heard.uuids == [uuid]
        found["records"] = len(records.records)
    else:
        state = read_state(Path(source))
        restore_models(context, state, "here")
        restore_training(parts, state, "here")
        restore_generators(context, state, 5)
        found["next"] = torch.rand(1).item()
    weight = next(model.parameters())
    found["grad"] = None if weight.grad is None else weight.grad.tolist()
    found["reducer"] = [bytes.hex(slot) for slot in context.reducers.reduce_slots("training")]
    return found


def test_each_rank_gets_back_its_own_and_fewer_ranks_the_same_sum(
    run: RankRunner, tmp_path: Path
) -> None:
    saved = run(save_or_restore, 2, tmp_path, "new")
    assert [found["records"] for found in saved] == [1, 0]
    assert [found["grad"] for found in saved] == [[[2.0, 2.0, 2.0]], [[4.0, 4.0, 4.0]]]
    (checkpoint,) = [path for path in tmp_path.iterdir() if path.is_dir()]
    resumed = run(save_or_restore, 2, tmp_path, str(checkpoint))
    for before, after in zip(saved, resumed, strict=True):
        assert (after["next"], after["grad"]) == (before["next"], before["grad"])
        assert after["reducer"] == before["reducer"]
    (alone,) = run(save_or_restore, 1, tmp_path, str(checkpoint))
    assert alone["grad"] == [[3.0, 3.0, 3.0]]  # the mean that two ranks would step with
    assert alone["next"] not in [found["next"] for found in saved]
