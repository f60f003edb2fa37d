"""What a trial holds that changes while training and is in no checkpoint is named; only that."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy
import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel

from det_jupyter.contract.run.journal import Notice
from det_jupyter.pytorch import LRScheduler, PyTorchCallback, PyTorchTrialContext
from det_jupyter.pytorch.checkpoints.unsaved import UnsavedWatch
from det_jupyter.pytorch.trial.callback_runner import Callbacks


class Notices(list[str]):
    def write(self, record: Any) -> None:
        assert isinstance(record, Notice)
        self.append(record.text)


class Holding:
    """Stands for a trial: a wrapped model with its optimizer, and whatever a test adds."""

    def __init__(self, model: nn.Module | None = None, **callbacks: PyTorchCallback) -> None:
        self.context = PyTorchTrialContext(device=torch.device("cpu"))
        model = model or nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        self.model = self.context.wrap_model(model)
        optimizer = torch.optim.Adam(self.model.parameters())
        self.optimizer = self.context.wrap_optimizer(optimizer)
        self.scheduler = self.context.wrap_lr_scheduler(
            torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
            LRScheduler.StepMode.STEP_EVERY_BATCH,
        )
        self.callbacks = callbacks

    def train(self, change: Any = None) -> list[str]:
        """Return the notices of a run of one batch, in which `change(self)` is called."""
        callbacks, notices = Callbacks(self.callbacks), Notices()
        trial: Any = self
        del self.callbacks
        watch = UnsavedWatch(trial, self.context, callbacks, notices)
        watch.begin()
        self.model(torch.randn(8, 4)).sum().backward()
        self.optimizer.step()
        self.scheduler.step()
        if change is not None:
            change(self)
        watch.check(callbacks.state_dict())
        watch.check(callbacks.state_dict())  # the next checkpoints
        return notices


@dataclass
class Memory:
    bank: Any = field(default_factory=lambda: torch.zeros(9, 2))


class Averaging:
    """An average as libraries have it: no module."""

    def __init__(self, model: nn.Module) -> None:
        self.shadow = [each.detach().clone() for each in model.parameters()]


class Lists(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("hits", torch.zeros(3, dtype=torch.bool))


class Counting(nn.Module):
    """A model that keeps some of its state where `state_dict` does not look."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(2), persistent=False)
        self.register_buffer("table", torch.arange(3), persistent=False)
        self.heads = [nn.Linear(4, 2)]
        self.noise = torch.Generator()
        self.totals = {"rows": torch.zeros(1)}

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.linear(rows)
        return result


class Slotted:
    __slots__ = "bank"

    def __init__(self) -> None:
        self.bank = torch.zeros(9, 2)


class Inheriting(Slotted):
    __slots__ = ()


def put(path: str, value: Any) -> Any:
    return lambda trial: setattr(trial, path, value)


def fill(tensor: Any) -> None:
    tensor[2] += 1


AGAIN = "so a run that continues begins it anew"
CASES: list[tuple[Any, Any, str]] = [
    (lambda t: AveragedModel(t.model), lambda v, t: v.update_parameters(t.model),
     "`self.held` (AveragedModel, 8 tensors) changes while training and is in no checkpoint, "
     f"{AGAIN}: `context.wrap_model(...)` or a callback's `state_dict`"),
    (lambda t: {"a": [Lists()]}, lambda v, t: v["a"][0].hits.fill_(True),
     "`self.held['a'][0]` (Lists, 1 tensor) changes"),
    (lambda t: Averaging(t.model), lambda v, t: v.shadow[1].mul_(0.9).add_(1.0),
     "`self.held.shadow[1]` (torch.Tensor) changes"),
    (lambda t: Memory(), lambda v, t: fill(v.bank), "`self.held.bank` (torch.Tensor) changes"),
    (lambda t: Inheriting(), lambda v, t: fill(v.bank), "`self.held.bank` (torch.Tensor) changes"),
    (lambda t: {torch.Generator()}, lambda v, t: torch.rand(2, generator=next(iter(v))),
     "`self.held[0]` (torch.Generator) changes"),
    (lambda t: numpy.zeros(4), lambda v, t: fill(v), "`self.held` (numpy.ndarray) changes"),
    (lambda t: torch.Generator(), lambda v, t: torch.rand(2, generator=v),
     f"`self.held` (torch.Generator) changes while training and is in no checkpoint, {AGAIN}: "
     "keep it in a callback's `state_dict`"),
    (lambda t: numpy.random.default_rng(1), lambda v, t: v.random(),
     "`self.held` (numpy.random.Generator) changes"),
    (lambda t: numpy.random.RandomState(1), lambda v, t: v.rand(),
     "`self.held` (numpy.random.mtrand.RandomState) changes"),
    (lambda t: random.Random(1), lambda v, t: v.random(), "`self.held` (random.Random) changes"),
    (lambda t: torch.amp.GradScaler("cpu"), lambda v, t: v.load_state_dict(dict(
        v.state_dict(), scale=3.0)), "`self.held` (torch.amp.grad_scaler.GradScaler) changes"),
    (lambda t: torch.optim.SGD(nn.Linear(2, 2).parameters(), momentum=0.9), lambda v, t: None,
     f"`self.held` (SGD) is in no checkpoint, {AGAIN}: "
     "`context.wrap_optimizer(...)`"),
    (lambda t: torch.optim.lr_scheduler.StepLR(t.optimizer, 3), lambda v, t: None,
     "`self.held` (StepLR) is in no checkpoint, "
     f"{AGAIN}: `context.wrap_lr_scheduler(...)`"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "use", "text"), CASES)
def test_what_changes_and_is_not_saved_is_named_once(make: Any, use: Any, text: str) -> None:
    trial: Any = Holding()
    trial.held = make(trial)
    (notice,) = trial.train(lambda each: use(each.held, each))
    assert notice.startswith(text)


@pytest.mark.parametrize(
    "make",
    [
        lambda t: AveragedModel(t.model),  # a teacher that stays as it is
        lambda t: nn.CrossEntropyLoss(weight=torch.ones(3)),
        lambda t: nn.ModuleDict({"all": t.model}),
        lambda t: [t.optimizer, t.scheduler, t.context],
        lambda t: list(t.model.parameters()),
        lambda t: t.model[0].weight.data[1:],  # a view of what is saved
        lambda t: [numpy.random.default_rng(1), random.Random(1), torch.Generator()],
        lambda t: torch.utils.data.TensorDataset(torch.zeros(3)),
        lambda t: t,
        lambda t: (3, "text", None, {1: 2.5}),
        lambda t: torch.zeros(2, 2).to_sparse(),
    ],
)
def test_what_stays_or_is_saved_is_not_named(make: Any) -> None:
    trial: Any = Holding()
    trial.held = make(trial)
    assert trial.train() == []


def test_what_a_wrapped_model_keeps_but_does_not_save_is_named() -> None:
    def change(trial: Any) -> None:
        torch.rand(1, generator=trial.model.noise)
        trial.model.totals["rows"] += 1
        with torch.no_grad():
            trial.model.heads[0].bias += 1
            trial.model.seen += 1

    trial: Any = Holding(model=Counting())
    assert sorted(trial.train(change)) == [
        "`self.model.heads[0]` (Linear, 2 tensors) changes while training and is in no "
        f"checkpoint, {AGAIN}: `context.wrap_model(...)` or a callback's `state_dict`",
        "`self.model.noise` (torch.Generator) changes while training and is in no checkpoint, "
        f"{AGAIN}: keep it in a callback's `state_dict`",
        "`self.model.totals['rows']` (torch.Tensor) changes while training and is in no "
        f"checkpoint, {AGAIN} (no harm if each batch overwrites it): keep it in a callback's "
        "`state_dict`",
        "`self.model` (Counting: seen) changes while training and is in no checkpoint, "
        f"{AGAIN}: register the buffer as persistent, or keep it in a callback's `state_dict`",
    ]


def test_a_table_that_grows_with_the_longest_record_is_not_named() -> None:
    def grow(trial: Any) -> None:
        trial.model.table = torch.arange(8)

    assert Holding(model=Counting()).train(grow) == []


def test_what_is_made_while_training_is_named_but_for_bare_tensors() -> None:
    def make(trial: Any) -> None:
        trial.last_batch = torch.ones(3)
        trial.own = torch.Generator()
        trial.ema = AveragedModel(trial.model)

    trial: Any = Holding()
    trial.own = trial.ema = None
    assert [text.partition(",")[0] for text in trial.train(make)] == [
        "`self.own` (torch.Generator) was made while training and is in no checkpoint",
        "`self.ema` (AveragedModel",
    ]


class Keeping(PyTorchCallback):
    def __init__(self) -> None:
        self.ema: Any = None
        self.generator: Any = numpy.random.default_rng(2)
        self.optimizer: Any = None

    def state_dict(self) -> dict[str, Any]:
        return {
            "ema": {name: each.clone() for name, each in self.ema.state_dict().items()},
            "generator": self.generator.bit_generator.state,
            "optimizer": self.optimizer.state_dict(),
        }


def test_what_a_callback_saves_is_not_named() -> None:
    keeping = Keeping()
    trial: Any = Holding(keeping=keeping)
    net = nn.Linear(2, 2)
    trial.ema = keeping.ema = AveragedModel(trial.model)
    trial.net_optimizer = keeping.optimizer = torch.optim.SGD(net.parameters(), momentum=0.9)
    trial.lost = torch.zeros(2)

    def use(trial: Any) -> None:
        keeping.ema.update_parameters(trial.model)
        keeping.generator.random()
        net(torch.ones(2)).sum().backward()
        keeping.optimizer.step()
        trial.lost += 0.123

    (notice,) = trial.train(use)
    assert notice.startswith("`self.lost` (torch.Tensor) changes")


def test_what_is_held_at_two_places_is_named_once() -> None:
    trial: Any = Holding()
    trial.one = trial.other = torch.Generator()
    trial.both = [trial.one]
    trial.both.append(trial.both)
    (notice,) = trial.train(lambda each: torch.rand(1, generator=each.one))
    assert notice.startswith("`self.one` (torch.Generator) changes")


def test_at_most_five_are_named() -> None:
    trial: Any = Holding()
    trial.held = [torch.zeros(1) for _ in range(9)]
    assert len(trial.train(lambda each: [tensor.add_(1) for tensor in each.held])) == 5


class Refusing:
    """An object whose attributes are code that fails."""

    __slots__ = ("one",)

    def __getattr__(self, name: str) -> Any:
        raise ValueError(name)


class RefusingDict(dict[str, Any]):
    def items(self) -> Any:
        raise RuntimeError("it is closed")


class RefusingScaler(torch.amp.GradScaler):
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("it is not ready")


@pytest.mark.parametrize(
    "odd",
    [
        Refusing(),
        RefusingDict(),
        RefusingScaler("cpu", enabled=False),
        nn.LazyLinear(3),
        nn.UninitializedParameter(),
        torch.randn(3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
    ],
    ids=lambda odd: type(odd).__name__,
)
@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_what_cannot_be_read_ends_no_training(odd: Any) -> None:
    holding = Holding()
    holding.odd = odd  # type: ignore[attr-defined]
    holding.seen = torch.zeros(2)  # type: ignore[attr-defined]

    def change(trial: Any) -> None:
        trial.seen.add_(1)

    assert [text.partition(" ")[0] for text in holding.train(change)] == ["`self.seen`"]


@pytest.mark.filterwarnings("ignore:Lazy modules are a new feature:UserWarning")
def test_a_wrapped_model_whose_parameters_are_made_by_the_first_batch_ends_no_training() -> None:
    holding = Holding()
    holding.context.wrap_model(nn.LazyLinear(3))
    assert holding.train() == []


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
def test_a_wrapped_model_with_a_sparse_buffer_ends_no_training(layout: torch.layout) -> None:
    model = nn.Linear(2, 2)
    model.register_buffer("adjacency", torch.eye(3).to_sparse(layout=layout))
    holding = Holding()
    holding.context.wrap_model(model)
    assert holding.train() == []


def test_records_that_a_trial_holds_cost_little_and_hide_nothing() -> None:
    looked_at: list[str] = []

    class Record(dict[str, int]):
        def items(self) -> Any:
            looked_at.append("")
            return super().items()

    holding = Holding()
    holding.records = [Record(number=i) for i in range(50_000)]  # type: ignore[attr-defined]
    holding.seen = torch.zeros(2)  # type: ignore[attr-defined]

    def change(trial: Any) -> None:
        trial.seen.add_(1)

    assert [text.partition(" ")[0] for text in holding.train(change)] == ["`self.seen`"]
    assert len(looked_at) < 1000
