"""The context of a trial: information, moving data, and the order of wrapping."""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.config import parse_config
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import (
    LRScheduler,
    PyTorchTrialContext,
)
from det_jupyter.pytorch.training.building import build_loader


def context(size: int = 1, **changes: Any) -> PyTorchTrialContext:
    arguments: dict[str, Any] = {
        "distributed": DistributedContext(),
        "device": torch.device("cpu"),
        "hparams": {"global_batch_size": 64, "lr": 0.1},
    }
    made = PyTorchTrialContext(**(arguments | changes))
    made.distributed.size = size
    return made


def test_the_batch_is_divided_among_the_slots() -> None:
    four = context(size=4)
    assert (four.get_per_slot_batch_size(), four.get_global_batch_size()) == (16, 64)


def test_what_does_not_divide_goes_to_the_first_ranks() -> None:
    ranks = [context(size=3) for _ in range(3)]
    for rank, made in enumerate(ranks):
        made.distributed.rank = rank
    assert [made.get_per_slot_batch_size() for made in ranks] == [22, 21, 21]
    assert ranks[0].get_global_batch_size() == 64


@pytest.mark.parametrize(
    ("hparams", "message"),
    [
        ({}, "hyperparameters.global_batch_size: missing"),
        ({"global_batch_size": 6.5}, "got 6.5, expected a whole number"),
        ({"global_batch_size": 1}, r"expected at least resources.slots_per_trial \(2\)"),
    ],
)
def test_batch_sizes_that_cannot_be_divided_are_refused(
    hparams: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        context(size=2, hparams=hparams).get_per_slot_batch_size()


def test_hyperparameters_are_found_by_name() -> None:
    assert context().get_hparam("lr") == 0.1
    with pytest.raises(
        ValueError, match="no hyperparameter 'rate'; there are global_batch_size, lr"
    ):
        context().get_hparam("rate")
    with pytest.warns(UserWarning, match="get_per_slot_batch_size"):
        context().get_hparam("global_batch_size")


def test_what_an_experiment_gives_is_there_or_says_that_it_is_not() -> None:
    config = parse_config(
        {
            "entrypoint": "T",
            "searcher": {"name": "single", "metric": "m", "max_length": {"batches": 1}},
            "data": {"folder": "here"},
        },
        default_seed=3,
    )
    given = context(config=config, experiment_id=4, trial_id=5, trial_seed=6)
    assert given.get_data_config() == {"folder": "here"}
    assert (given.get_experiment_id(), given.get_trial_id(), given.get_trial_seed()) == (4, 5, 6)
    for method in ("get_experiment_config", "get_experiment_id", "get_trial_seed"):
        with pytest.raises(ValueError, match=method):
            getattr(context(), method)()


def test_there_is_no_epoch_before_training() -> None:
    with pytest.raises(RuntimeError, match="training hasn't started"):
        context().is_epoch_start()
    with pytest.raises(RuntimeError, match="training hasn't started"):
        context().current_train_batch()


def test_data_is_moved_in_whatever_it_is_packed() -> None:
    meta = torch.device("meta")
    batch = {"x": [torch.zeros(2), (torch.ones(1),)], "name": "text", "none": 3}
    moved = context(device=meta).to_device(batch)
    assert moved["x"][0].device == moved["x"][1][0].device == meta
    assert (moved["name"], moved["none"]) == ("text", 3)
    assert isinstance(moved["x"][1], tuple)


class Encoding(UserDict[str, torch.Tensor]):
    """A mapping that moves itself, like transformers' BatchEncoding."""

    def to(self, device: torch.device) -> Encoding:
        return Encoding({name: item.to(device) for name, item in self.data.items()})


def test_what_moves_itself_stays_what_it_is() -> None:
    moved = context(device=torch.device("meta")).to_device([Encoding(ids=torch.ones(2))])[0]
    assert isinstance(moved, Encoding)
    assert moved["ids"].is_meta
    packed = nn.utils.rnn.pack_sequence([torch.ones(3, 1), torch.ones(2, 1)])
    assert context(device=torch.device("meta")).to_device(packed).data.is_meta


def test_data_that_cannot_be_moved_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    one = context()
    one.to_device({"x": {1, 2}})
    one.to_device({"x": {3}})
    (record,) = caplog.records
    assert record.getMessage() == "to_device: cannot move a builtins.set; it stays as it is"


def test_apex_means_torchs_own_mixed_precision() -> None:
    made = context()
    model = made.wrap_model(nn.Linear(2, 2))
    sgd = made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert made.configure_apex_amp(model, sgd, enabled=False) == (model, sgd)
    assert made.scaler is None
    with pytest.warns(UserWarning, match="O1 means fp16 by torch.amp") as told:
        made.configure_apex_amp(model, sgd)
    assert [warning.filename for warning in told] == [__file__]
    assert made.scaler is not None


def test_other_loaders_than_ours_are_allowed_if_the_trial_says_so() -> None:
    made = context()
    trial: Any = SimpleNamespace(build_training_data_loader=lambda: [1], build_validation=int)
    with pytest.raises(ConfigError, match=r"data_loader: returned a builtins\.list, exp"):
        build_loader(trial, made, "build_training_data_loader")
    made.experimental.disable_dataset_reproducibility_checks()
    assert build_loader(trial, made, "build_training_data_loader") == [1]
    with pytest.raises(ConfigError, match=r"build_validation: returned a builtins\.int"):
        build_loader(trial, made, "build_validation")


def test_wrapping_in_the_wrong_order_is_refused() -> None:
    made = context()
    model = made.wrap_model(nn.Linear(1, 1))
    sgd = torch.optim.SGD(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(sgd, 1)
    with pytest.raises(ConfigError, match="its optimizer is not wrapped"):
        made.wrap_lr_scheduler(schedule, LRScheduler.StepMode.MANUAL_STEP)
    made.wrap_optimizer(sgd)
    assert made.wrap_lr_scheduler(schedule, LRScheduler.StepMode.MANUAL_STEP) is schedule
    with pytest.raises(ConfigError, match="call it before wrap_model"):
        made.wrap_scaler(object())
    with pytest.raises(TypeError, match="got int, expected a torch"):
        made.wrap_model(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected True or False"):
        made.set_stop_requested("yes")  # type: ignore[arg-type]
