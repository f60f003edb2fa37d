"""Parts of a trial's context that are asked for by name: reducers, TensorBoard, batch sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import PyTorchTrialContext
from det_jupyter.pytorch.checkpoints.load import CheckpointLoadContext
from tests.unit.pytorch.thread_ranks import run_ranks

CPU = torch.device("cpu")


def context(**given: Any) -> PyTorchTrialContext:
    return PyTorchTrialContext(device=CPU, **given)


def test_reducers_are_reported_with_the_metrics_that_they_are_for() -> None:
    made = context()
    total = made.wrap_reducer(sum, "total", for_validation=False)
    count = made.wrap_reducer(len, "count", for_training=False)
    for value in (1, 2):
        total.update(value)
        count.update(value)
    assert made.reduce_metrics(for_training=True) == {"total": 3}
    assert made.reduce_metrics(for_training=False) == {"count": 2}
    made.reset_reducers()
    total.update(5)
    count.update(5)
    assert made.reduce_metrics(for_training=True) == {"total": 5}
    assert made.reduce_metrics(for_training=False) == {"count": 1}


def test_metrics_go_to_tensorboard_only_if_it_is_asked_for(tmp_path: Path) -> None:
    made = context(tensorboard_folder=tmp_path)
    assert made.get_enable_tensorboard_logging() is False
    made.set_enable_tensorboard_logging(True)
    assert made.get_enable_tensorboard_logging() is True
    assert tmp_path in (made.get_tensorboard_path(), *made.get_tensorboard_path().parents)
    wrong: Any = "yes"
    with pytest.raises(TypeError, match="set_enable_tensorboard_logging: got 'yes', expected"):
        made.set_enable_tensorboard_logging(wrong)


def test_a_profiler_writes_to_tensorboards_folder_unless_it_says_otherwise(
    tmp_path: Path,
) -> None:
    made: Any = context(tensorboard_folder=tmp_path)
    assert not made.torch_profiler
    made.set_profiler(record_shapes=True)
    assert made.torch_profiler.record_shapes
    assert made.torch_profiler.on_trace_ready is not None
    made.set_profiler(on_trace_ready=print)
    assert made.torch_profiler.on_trace_ready is print


@pytest.mark.parametrize(
    ("size", "ranks", "own"), [(8, 2, [4, 4]), (7, 3, [3, 2, 2]), (3, 3, [1, 1, 1])]
)
def test_a_batch_is_divided_among_the_ranks(size: int, ranks: int, own: list[int]) -> None:
    def of_rank(distributed: Any) -> tuple[int, int]:
        made = PyTorchTrialContext(
            device=CPU, distributed=distributed, hparams={"global_batch_size": size}
        )
        return made.get_per_slot_batch_size(), made.get_global_batch_size()

    assert run_ranks(ranks, of_rank) == [(each, size) for each in own]


@pytest.mark.parametrize(
    ("size", "words"),
    [(None, "missing, expected"), (True, "got True, expected a whole number of records"),
     (8.0, "got 8.0, expected"), (0, "got 0, expected at least")],
)  # fmt: skip
def test_a_batch_size_that_is_none_is_told(size: Any, words: str) -> None:
    hparams = {} if size is None else {"global_batch_size": size}
    made = context(hparams=hparams)
    assert made.has_batch_size is (size is not None)
    with pytest.raises(ConfigError, match=words):
        made.get_global_batch_size()


def test_a_trial_may_ask_for_its_end() -> None:
    made = context()
    assert made.get_stop_requested() is False
    made.set_stop_requested(True)
    assert made.get_stop_requested() is True
    wrong: Any = 1
    with pytest.raises(TypeError, match="set_stop_requested: got 1, expected True or False"):
        made.set_stop_requested(wrong)


@pytest.mark.parametrize(("device", "is_moved"), [("meta", True), (None, False)])
def test_a_loaded_model_is_moved_only_if_a_device_is_given(
    device: str | None, is_moved: bool
) -> None:
    made = CheckpointLoadContext({"lr": 1}, {"data": {"x": 1}}, device=device, trial_id=7)
    model = made.wrap_model(nn.Linear(1, 1))
    assert made.models == [model]
    assert model.weight.is_meta is is_moved
    assert (made.get_hparams(), made.get_data_config()) == ({"lr": 1}, {"x": 1})
    assert (made.get_trial_id(), made.get_experiment_config()) == (7, {"data": {"x": 1}})
    assert CheckpointLoadContext(exp_conf={}).get_data_config() == {}
    with pytest.raises(ValueError, match="no configuration was given to this context"):
        CheckpointLoadContext().get_data_config()


def test_a_reducer_that_came_after_the_checkpoint_begins_anew() -> None:
    before, after = context(), context()
    before.wrap_reducer(sum, "total").update(5)
    total, count = after.wrap_reducer(sum, "total"), after.wrap_reducer(len, "count")
    after.reducers.restore([before.reducers.state()], 0, 1)
    total.update(1)
    count.update(1)
    assert after.reduce_metrics(for_training=True) == {"total": 6, "count": 1}
