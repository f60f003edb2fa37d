"""What a checkpoint holds: every kind of state comes back bit for bit, or is refused by name."""

from __future__ import annotations

import gc
import io
import os
import random
import warnings
from collections import OrderedDict
from pathlib import Path
from threading import Event
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from det_jupyter.core import DistributedContext
from det_jupyter.errors import CheckpointError, ConfigError
from det_jupyter.pytorch import LRScheduler, PyTorchCallback, PyTorchTrialContext
from det_jupyter.pytorch.checkpoints.compare import compare
from det_jupyter.pytorch.checkpoints.restore import (
    read_state,
    reseed_for,
    restore_generators,
    restore_models,
    restore_training,
)
from det_jupyter.pytorch.checkpoints.state_snapshot import (
    SnapshotMemory,
    StateSnapshot,
    restore_arrays,
)
from det_jupyter.pytorch.checkpoints.training_state import (
    STATE_FILE,
    Parts,
    _syncing,
    collect_state,
    snapshot_state,
    write_state,
)
from det_jupyter.pytorch.trial.callback_runner import Callbacks
from tests.problems import said


class Remembers(PyTorchCallback):
    """A callback whose state is whatever a test gives it."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.state = state_dict


class Counts:
    """A part of a run that counts something."""

    def __init__(self, count: int) -> None:
        self.count = count

    def state(self) -> dict[str, int]:
        return {"count": self.count}

    def restore(self, state: dict[str, int]) -> None:
        self.count = state["count"]


def build(seed: int, *, remembered: dict[str, Any] | None = None, count: int = 0) -> Parts:
    torch.manual_seed(seed)
    context = PyTorchTrialContext(distributed=DistributedContext(), device=torch.device("cpu"))
    context.wrap_scaler(torch.amp.GradScaler("cpu", init_scale=2.0**10))
    for _ in range(2):
        model = context.wrap_model(
            nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 1))
        )
        optimizer = context.wrap_optimizer(torch.optim.Adam(model.parameters(), lr=0.1))
        context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
            LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
    return Parts(
        context=context,
        callbacks=Callbacks({"memory": Remembers(remembered or {})}),
        shared={"tuner": Counts(count)},
    )


def train(parts: Parts, batches: int) -> None:
    context = parts.context
    for _ in range(batches):
        x = torch.randn(5, 3) * random.random() * float(numpy.random.rand())
        for model, optimizer, item in zip(
            context.models, context.optimizers, context.lr_schedulers, strict=True
        ):
            loss = context.scaler.scale(model(x).square().mean())
            loss.backward()
            context.scaler.step(optimizer)
            optimizer.zero_grad()
            item.scheduler.step()
        context.scaler.update()


def save(parts: Parts, path: Path, *, steps: int = 3, in_window: bool = False) -> None:
    state = collect_state(parts, steps_completed=steps, in_window=in_window)()
    write_state(path, snapshot_state(state | {"validation_due": False}, SnapshotMemory(), parts))


def restore(parts: Parts, path: Path, seed: int = 1) -> dict[str, Any]:
    state = read_state(path)
    restore_models(parts.context, state, "here")
    restore_training(parts, state, "here")
    restore_generators(parts.context, state, seed)
    return state


def test_a_file_is_synced_as_it_is_written_where_there_is_no_fdatasync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = Event()
    monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, "fsync", lambda _: synced.set())
    with _syncing(tmp_path / "file"):
        assert synced.wait()


def test_training_goes_on_from_a_checkpoint_bit_for_bit(tmp_path: Path) -> None:
    undisturbed, resumed = build(1, count=5), build(2)
    train(undisturbed, 3)
    for model in undisturbed.context.models:  # a window that is not finished
        model(torch.ones(4, 3)).sum().backward()
    (tmp_path / "middle").mkdir()
    save(undisturbed, tmp_path / "middle", in_window=True)
    train(undisturbed, 4)
    train(resumed, 1)
    restore(resumed, tmp_path / "middle")
    train(resumed, 4)
    for name, parts in (("one", undisturbed), ("other", resumed)):
        (tmp_path / name).mkdir()
        save(parts, tmp_path / name, steps=7)
    assert compare(tmp_path / "one", tmp_path / "other") == []
    assert [part.count for part in resumed.shared.values()] == [5]  # type: ignore[attr-defined]  # Counts


def test_training_after_a_snapshot_does_not_change_it() -> None:
    parts = build(1, remembered={"list": [1], "tensor": torch.zeros(2)})
    train(parts, 1)
    state = collect_state(parts, steps_completed=1, in_window=False)()
    copied = snapshot_state(state, SnapshotMemory(), parts)
    before = snapshot_state(copied, SnapshotMemory(), parts)
    train(parts, 2)
    remembered = parts.callbacks.by_name["memory"].state_dict()
    remembered["list"].append(2)
    remembered["tensor"].add_(1)
    assert compare(copied, before) == []
    assert copied["callbacks"]["memory"]["list"] == [1]


def test_arrays_and_numbers_of_numpy_come_back_as_such(tmp_path: Path) -> None:
    remembered = {
        "array": numpy.arange(6, dtype="float64").reshape(2, 3)[:, ::-1],
        "flags": numpy.array([True, False]),
        "single": numpy.float32(0.1),
        "nested": ({"count": numpy.int64(3)}, [numpy.bool_(True)]),
        "tensor": torch.ones(2),
        "numbers": (1, 2.5, None, "text", b"bytes", 1j, True),
        "set": {1, 2},
        "ordered": OrderedDict(b=1, a=2),
    }
    save(build(1, remembered=remembered), tmp_path)
    other = build(2)
    restore(other, tmp_path)
    found = other.callbacks.by_name["memory"].state_dict()
    assert found.keys() == remembered.keys()
    assert found["array"].dtype == numpy.float64
    assert found["array"].tolist() == [[2.0, 1.0, 0.0], [5.0, 4.0, 3.0]]
    assert found["flags"].tolist() == [True, False]
    assert type(found["single"]) is numpy.float32
    assert found["single"] == numpy.float32(0.1)
    assert found["nested"] == ({"count": 3}, [True])
    assert type(found["nested"][0]["count"]) is numpy.int64
    assert type(found["nested"][1][0]) is numpy.bool_
    assert torch.equal(found["tensor"], torch.ones(2))
    for name in ("numbers", "set", "ordered"):
        assert found[name] == remembered[name]


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=4)
    | st.binary(max_size=4)
    | st.floats(width=32, allow_nan=False).map(numpy.float32)
    | st.lists(st.integers(-9, 9), max_size=3).map(lambda v: numpy.array(v, dtype="int16")),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=60)
@given(values)
def test_any_plain_value_survives_a_snapshot(value: Any) -> None:
    snapshot = StateSnapshot(SnapshotMemory())
    copied = snapshot.take({"value": value})
    assert snapshot.unsafe == []
    assert repr(restore_arrays(copied, snapshot.arrays)) == repr({"value": value})


def test_what_a_safe_load_refuses_is_named_with_whose_it_is(tmp_path: Path) -> None:
    parts = build(1, remembered={"when": [1, Path("x")], "bad": numpy.array([object()])})
    parts.context.lr_schedulers[1].scheduler.hook = print
    with pytest.raises(ConfigError) as caught:
        save(parts, tmp_path)
    refusal = "which a safe load refuses; keep tensors, arrays, numbers, strings, lists and dicts"
    assert said(caught.value.problems) == [
        f"checkpoint: lr_scheduler 1 (CosineAnnealingLR): its state['hook'] is a "
        f"builtins.builtin_function_or_method, {refusal} in it",
        f"checkpoint: callback 'memory': its state['when'][1] is a pathlib.PosixPath, "
        f"{refusal} in it",
        f"checkpoint: callback 'memory': its state['bad'] is a numpy.ndarray of object, "
        f"{refusal} in it",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_key_that_a_safe_load_refuses_is_named(tmp_path: Path) -> None:
    parts = build(1, remembered={"by_path": {Path("x"): 1}})
    with pytest.raises(ConfigError, match=r"\['by_path'\].* is a pathlib.PosixPath as a key"):
        save(parts, tmp_path)


def test_tied_weights_are_written_once(tmp_path: Path) -> None:
    context = PyTorchTrialContext(distributed=DistributedContext(), device=torch.device("cpu"))
    model = nn.Sequential(nn.Linear(300, 300, bias=False), nn.Linear(300, 300, bias=False))
    model[1].weight = model[0].weight
    context.wrap_model(model)
    save(Parts(context=context, callbacks=Callbacks({})), tmp_path)
    assert (tmp_path / STATE_FILE).stat().st_size < 1.5 * 300 * 300 * 4


def test_tools_of_torchs_distributed_checkpoints_read_one_that_is_converted(
    tmp_path: Path,
) -> None:
    # Here, as loading it takes a second of CPU in each process that collects tests.
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
    from torch.distributed.checkpoint.state_dict_loader import load

    weight = torch.rand(3, 2)
    write_state(tmp_path, {"steps_completed": 5, "models": [{"net.weight": weight}]})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is one process
        torch_save_to_dcp(tmp_path / STATE_FILE, tmp_path / "parts")
        loaded = {"models.0.net.weight": torch.zeros(3, 2)}
        load(loaded, storage_reader=FileSystemReader(tmp_path / "parts"))
    assert torch.equal(loaded["models.0.net.weight"], weight)


def test_the_memory_of_a_snapshot_is_used_for_the_next() -> None:
    memory, tensor = SnapshotMemory(), torch.arange(4.0)
    first = memory.copy(tensor)
    second = memory.copy(tensor)  # the first is still in use
    assert first.data_ptr() != second.data_ptr()
    memory.release()
    assert memory.copy(tensor).data_ptr() in (first.data_ptr(), second.data_ptr())
    memory.release()
    memory.release()  # a snapshot in between had no copies
    assert memory.copy(tensor).data_ptr() in (first.data_ptr(), second.data_ptr())
    memory.release()
    memory.copy(tensor[:3])
    memory.release()
    assert [size for (_, size, *_) in memory._free] == [(3,)]


def test_snapshots_keep_strides_and_odd_layouts() -> None:
    channels_last = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    expanded = torch.tensor([1.0]).expand(3)
    sparse = torch.eye(3).to_sparse()
    memory = SnapshotMemory()
    assert memory.copy(channels_last).stride() == channels_last.stride()
    assert memory.copy(expanded).tolist() == [1.0, 1.0, 1.0]
    assert torch.equal(memory.copy(sparse).to_dense(), torch.eye(3))
    bits = torch.tensor([float("nan"), -0.0]).view(torch.int32)
    assert torch.equal(memory.copy(bits.view(torch.float32)).view(torch.int32), bits)


def test_a_state_that_ddp_saved_fits_the_model(tmp_path: Path) -> None:
    parts, other = build(1), build(2)
    save(parts, tmp_path)
    state = read_state(tmp_path)
    state["models"] = [
        {f"module.{name}": tensor for name, tensor in model.items()} for model in state["models"]
    ]
    restore_models(other.context, state, "here")
    for one, two in zip(parts.context.models, other.context.models, strict=True):
        assert compare(one.state_dict(), two.state_dict()) == []


def test_a_checkpoint_of_another_model_is_refused(tmp_path: Path) -> None:
    save(build(1), tmp_path)
    context = PyTorchTrialContext(distributed=DistributedContext(), device=torch.device("cpu"))
    context.wrap_model(nn.Linear(1, 1))
    with pytest.raises(
        CheckpointError, match="here: the trial calls wrap_model 1 times; it did 2"
    ):
        restore_models(context, read_state(tmp_path), "here")
    context.wrap_model(nn.Linear(1, 1))
    with pytest.raises(CheckpointError, match="here: model 0 is not the one that was saved"):
        restore_models(context, read_state(tmp_path), "here")


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no training state"):
        read_state(tmp_path)
    (tmp_path / STATE_FILE).write_bytes(b"half")
    with pytest.raises(CheckpointError, match=r"state_dict\.pt cannot be read"):
        read_state(tmp_path)
    torch.save({"format": 99}, tmp_path / STATE_FILE)
    with pytest.raises(CheckpointError, match="is of format 99, expected 3"):
        read_state(tmp_path)


def test_on_another_number_of_ranks_generators_begin_anew_and_it_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = build(1)
    save(parts, tmp_path, steps=30)
    state = read_state(tmp_path)
    state["size"] = 4
    restore_generators(parts.context, state, seed=7)
    drawn = (random.random(), float(numpy.random.rand()), torch.rand(1).item())
    reseed_for(7, 0, 30)
    assert drawn == (random.random(), float(numpy.random.rand()), torch.rand(1).item())
    reseed_for(7, 0, 31)
    assert drawn[0] != random.random()
    reseed_for(7, 1, 30)
    assert drawn[0] != random.random()
    told = capsys.readouterr().err
    assert told.startswith("training goes on at batch 30 on 1 rank, saved on 4 ranks: ")


def test_gradients_of_a_window_keep_their_sum_on_fewer_ranks(tmp_path: Path) -> None:
    parts = build(1)
    parts.context.models[0](torch.ones(2, 3)).sum().backward()
    save(parts, tmp_path, in_window=True)
    state = read_state(tmp_path)
    for name in ("gradients", "rng_states", "exchanges", "reducers", "stop_requested"):
        state[name] = state[name] * 2  # as if two ranks had saved the same
    state["size"] = 2
    expected = state["gradients"][0][0]["3.weight"]
    other = build(2)
    restore_training(other, state, "here")
    restored = other.context.models[0].get_parameter("3.weight").grad
    assert restored is not None
    assert torch.allclose(restored, expected)


@pytest.mark.parametrize(
    ("saved", "size", "expected"),
    [([True], 1, True), ([False], 1, False), ([False, True], 2, False), ([False, True], 3, True)],
)
def test_a_wish_to_stop_survives_a_pause(
    tmp_path: Path, saved: list[bool], size: int, expected: bool
) -> None:
    parts = build(1)
    parts.context.set_stop_requested(saved[0])
    save(parts, tmp_path)
    state = read_state(tmp_path)
    assert state["stop_requested"] == saved[:1]
    for name in ("rng_states", "exchanges", "reducers"):
        state[name] = state[name] * len(saved)
    state |= {"stop_requested": saved, "size": len(saved)}
    other = build(2)
    other.context.distributed.size = size
    restore_training(other, state, "here")
    assert other.context.get_stop_requested() is expected


def mapped_files() -> str:
    return Path("/proc/self/maps").read_text()


def test_a_state_is_mapped_while_it_is_read_and_training_keeps_nothing_of_it(
    tmp_path: Path,
) -> None:
    remembered = {"tensor": torch.ones(2), "array": numpy.ones(3)}
    parts, resumed = build(1, remembered=remembered), build(2)
    train(parts, 2)
    parts.context.models[0](torch.ones(4, 3)).sum().backward()
    save(parts, tmp_path, in_window=True)
    file = tmp_path / STATE_FILE
    state = read_state(tmp_path)
    assert str(file) in mapped_files()
    file.unlink()  # what is mapped stays
    restore_models(resumed.context, state, "here")
    restore_training(resumed, state, "here")
    restore_generators(resumed.context, state, 1)
    del state
    gc.collect()
    assert str(file) not in mapped_files()
    (tmp_path / "again").mkdir()
    (tmp_path / "first").mkdir()
    save(parts, tmp_path / "first", in_window=True)
    save(resumed, tmp_path / "again", in_window=True)
    assert [d.name for d in compare(tmp_path / "first", tmp_path / "again")] == []


def test_tensors_that_an_optimizer_shares_between_parameters_stay_shared(tmp_path: Path) -> None:
    parts, resumed = build(1), build(2)
    train(parts, 1)
    first, second = list(parts.context.models[0].parameters())[:2]
    shared = torch.ones(3)
    for parameter in (first, second):
        parts.context.optimizers[0].state[parameter]["shared"] = shared
        parts.context.optimizers[0].state[parameter]["nested"] = [torch.zeros(1)]
    save(parts, tmp_path)
    restore(resumed, tmp_path)
    one, two = list(resumed.context.models[0].parameters())[:2]
    values = resumed.context.optimizers[0].state
    assert values[one]["shared"] is values[two]["shared"]
    assert values[one]["nested"] is not values[two]["nested"]


def test_memory_of_its_own_is_not_copied_and_a_part_is_saved_without_the_rest() -> None:
    whole = torch.arange(1000.0)
    part = whole[3:5]
    state = {"models": [{"whole": whole, "part": part, "tied": part}], "callbacks": [whole]}
    taken = StateSnapshot(SnapshotMemory(), is_still=True).take(state)
    (model,) = taken["models"]
    assert model["whole"].data_ptr() == whole.data_ptr()
    assert torch.equal(model["part"], part)
    assert model["part"].untyped_storage().nbytes() == part.nbytes
    assert model["tied"] is model["part"]
    whole += 1  # by a thread of the user's
    assert taken["callbacks"][0].tolist() == [*range(1000)]


def test_a_state_may_have_views_of_its_own_memory_as_another_type() -> None:
    turns = torch.polar(torch.ones(3), torch.arange(3.0))
    state = {"turns": turns, "parts": torch.view_as_real(turns)}
    file = io.BytesIO()
    torch.save(StateSnapshot(SnapshotMemory(), is_still=True).take({"models": [state]}), file)
    file.seek(0)
    (loaded,) = torch.load(file, weights_only=True)["models"]
    assert all(torch.equal(loaded[name], value) for name, value in state.items())
