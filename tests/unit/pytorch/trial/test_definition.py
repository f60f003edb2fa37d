"""What can be said of a trial class without running it, and what its context refuses."""

from __future__ import annotations

from collections import UserDict
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.config import parse_config
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.trial.captured import code_key
from det_jupyter.core import DistributedContext
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch import (
    LRScheduler,
    PyTorchTrial,
    PyTorchTrialContext,
    check_constructor,
    check_searcher_metric,
    check_trial_class,
)
from det_jupyter.pytorch.data import Share
from tests.problems import said


class Whole(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        raise AssertionError("it must not be run")

    def build_training_data_loader(self) -> Any: ...

    def build_validation_data_loader(self) -> Any: ...

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any: ...

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        def inner() -> int:
            return 3

        if batch_idx:
            return {"accuracy": inner()}
        return {"accuracy": 1, "loss": 2}


class Child(Whole):
    pass


class Both(Whole):
    def evaluate_full_dataset(self, data_loader: Any) -> dict[str, Any]:
        return {}


class Bare(PyTorchTrial):
    def __init__(self, context: PyTorchTrialContext) -> None: ...


class Computed(Whole):
    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        metrics = {"loss": 1}
        return metrics


@pytest.mark.parametrize(
    ("trial_class", "problems"),
    [
        (Whole, []),
        (Child, []),
        (Both, ["Both defines both evaluate_batch and evaluate_full_dataset; keep one of them"]),
        (
            Bare,
            [
                "Bare lacks train_batch, build_training_data_loader and "
                "build_validation_data_loader; define them in the class",
                "Bare lacks evaluate_batch; define it (or evaluate_full_dataset)",
            ],
        ),
        (
            nn.Linear,
            ["Linear does not derive from PyTorchTrial; write `class Linear(PyTorchTrial)`"],
        ),
        (len, ["got a builtin_function_or_method, expected a class derived from PyTorchTrial"]),
    ],
)
def test_everything_a_class_lacks_is_named_at_once(trial_class: Any, problems: list[str]) -> None:
    assert check_trial_class(trial_class) == problems


def test_a_metric_is_only_called_missing_when_the_source_is_certain() -> None:
    assert check_searcher_metric(Whole, "accuracy") == []
    assert said(check_searcher_metric(Whole, "acuracy")) == [
        "searcher.metric: the trial reports accuracy, loss; "
        "got 'acuracy' (did you mean 'accuracy'?)"
    ]
    assert check_searcher_metric(Computed, "anything") == []


# ---- the context


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


def test_captured_code_with_another_module_lies_elsewhere() -> None:
    one = Capsule(entrypoint="T", payload="1" * 64, sources="2" * 64, modules={"a.py": "3" * 64})
    other = one.model_copy(update={"modules": {"a.py": "4" * 64}})
    assert code_key(one) != code_key(other)
    assert code_key(one) == code_key(one.model_copy())


def test_data_that_cannot_be_moved_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    one = context()
    one.to_device({"x": {1, 2}})
    one.to_device({"x": {3}})
    (record,) = caplog.records
    assert record.getMessage() == "to_device: cannot move a builtins.set; it stays as it is"


def test_gradients_of_a_window_are_averaged_before_they_are_clipped() -> None:
    made = context()
    position = made.position
    position.aggregation_frequency, position.end = 4, 6
    model = made.wrap_model(nn.Linear(1, 1, bias=False))
    sgd = made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    seen = []
    for batch_idx in range(6):
        made.stepping.begin_batch(batch_idx, Share(1, 1))
        made.backward(model(torch.full((1, 1), 2.0)).sum())
        made.step_optimizer(sgd, clip_grads=lambda ps: seen.append(ps[0].grad.item()))
    assert seen == [2.0, 2.0]  # four batches, then the two that are left
    with pytest.raises(ConfigError, match="auto_zero_grads=False"):
        made.step_optimizer(sgd, auto_zero_grads=False)


class Slow(torch.optim.Optimizer):
    """Wraps another optimizer in the way that many do, without `Optimizer.__init__`."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.param_groups = inner.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # torch has overloads
        self.inner.step()


def test_an_optimizer_may_wrap_another_one() -> None:
    made = context()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    optimizer = made.wrap_optimizer(Slow(torch.optim.SGD(model.parameters(), lr=1.0)))
    before = model.weight.item()
    made.stepping.begin_batch(0, Share(1, 1))
    made.backward(model(torch.ones(1, 1)).sum())
    made.step_optimizer(optimizer)
    assert model.weight.item() == pytest.approx(before - 1)
    assert model.weight.grad is None


class Counting(torch.optim.SGD):
    """Has a `zero_grad` of its own."""

    zeroed = 0

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.zeroed += 1
        super().zero_grad(set_to_none)


def test_an_own_zero_grad_of_an_optimizer_is_called() -> None:
    made = context()
    model = made.wrap_model(nn.Linear(1, 1))
    optimizer = made.wrap_optimizer(Counting(model.parameters(), lr=1.0))
    made.stepping.begin_batch(0, Share(1, 1))
    for _ in range(2):
        made.backward(model(torch.ones(1, 1)).sum())
        made.step_optimizer(optimizer)
        assert [parameter.grad for parameter in model.parameters()] == [None, None]
    assert optimizer.zeroed == 2
    replaced: list[None] = []
    vars(optimizer)["zero_grad"] = lambda: replaced.append(None)
    made.step_optimizer(optimizer)
    assert replaced == [None]


def test_sums_stay_sums_where_the_trial_wants_them() -> None:
    made = context()
    made.position.aggregation_frequency = 3
    model = made.wrap_model(nn.Linear(1, 1, bias=False))
    sgd = made.wrap_optimizer(
        torch.optim.SGD(model.parameters(), lr=1.0), average_aggregated_gradients=False
    )
    seen = []
    for batch_idx in range(3):
        made.stepping.begin_batch(batch_idx, Share(1, 1))
        made.backward(model(torch.ones(1, 1)).sum())
        made.step_optimizer(sgd, clip_grads=lambda ps: seen.append(ps[0].grad.item()))
    assert seen == [3.0]


@pytest.mark.parametrize(
    ("share", "gradient"), [(Share(2, 8), 0.5), (Share(4, 8), 1.0), (Share(0, 8), 0.0)]
)
def test_a_rank_counts_by_its_records(share: Share, gradient: float) -> None:
    made = context()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    made.distributed.size = 2
    made.stepping.begin_batch(0, share)
    made.backward(model(torch.ones(1, 1)).sum())
    made.backward(model(torch.ones(1, 1)), gradient=torch.tensor([[3.0]]))
    assert model.weight.grad is not None
    assert model.weight.grad.item() == 4 * gradient


def test_what_clips_may_return_nothing_but_has_to_be_a_function() -> None:
    made = context()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    sgd = made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=1.0))
    made.stepping.begin_batch(0, Share(1, 1))
    before = model.weight.item()
    made.backward(model(torch.full((1, 1), 8.0)).sum())

    def clip(parameters: list[torch.Tensor]) -> None:
        for parameter in parameters:
            assert parameter.grad is not None
            parameter.grad.clamp_(-0.5, 0.5)

    made.step_optimizer(sgd, clip_grads=clip)
    assert model.weight.item() == before - 0.5
    with pytest.raises(ConfigError, match="got a Tensor as clip_grads, expected a function"):
        made.step_optimizer(sgd, clip_grads=torch.ones(1))  # type: ignore[arg-type]  # the mistake


def test_scaled_gradients_are_clipped_at_their_own_size_and_the_scale_is_kept() -> None:
    made = context()
    made.experimental.use_amp()
    model = nn.Linear(1, 1, bias=False)
    made.wrap_model(model)
    first, second = (
        made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.0)) for _ in range(2)
    )
    seen: list[float] = []
    made.stepping.begin_batch(0, Share(1, 1))
    made.backward(model(torch.full((1, 1), 0.5)).sum() / 2)
    made.step_optimizer(first, lambda ps: seen.append(ps[0].grad.item()), auto_zero_grads=False)
    made.step_optimizer(second)
    made.stepping.after_step()
    assert seen == [0.25]
    assert made.scaler.state_dict()["_growth_tracker"] == 1  # updated once, not for each
    with pytest.raises(ConfigError, match="call it before wrap_model"):
        made.experimental.use_amp()


def test_apex_means_torchs_own_mixed_precision() -> None:
    made = context()
    model = made.wrap_model(nn.Linear(2, 2))
    sgd = made.wrap_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert made.configure_apex_amp(model, sgd, enabled=False) == (model, sgd)
    assert made.scaler is None
    with pytest.warns(UserWarning, match="O1 means fp16 by torch.amp"):
        made.configure_apex_amp(model, sgd)
    assert made.scaler is not None


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


NO_CONTEXT = "does not take the context alone; write `def __init__(self, context)`"


def made_by(init: Any) -> type:
    return type("Made", (Whole,), {"__init__": init} if init else {})


@pytest.mark.parametrize(
    ("init", "problem"),
    [
        (None, ""),
        (lambda self, context: None, ""),
        (lambda self, *args: None, ""),
        (lambda self, context, **kwargs: None, ""),
        (lambda self, context, hparams=None, *, size=3: None, ""),
        (lambda self: None, NO_CONTEXT),
        (lambda self, *, context: None, NO_CONTEXT),
        (lambda self, context, hparams: None,
         "requires hparams, and ranks give it the context alone; read hyperparameters from "
         "context.get_hparams(), and give other parameters a default"),
        (lambda self, context, hparams, *, size: None,
         "requires hparams and size, and ranks give it the context alone; read hyperparameters "
         "from context.get_hparams(), and give other parameters a default"),
    ],
)  # fmt: skip
def test_a_constructor_gets_the_context_alone(init: Any, problem: str) -> None:
    expected = [f"Made.__init__ {problem}"] if problem else []
    assert check_constructor(made_by(init)) == expected
