"""The memory of a trial's tensors: exact by part, and the peak beside the allocator's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from det_jupyter import pytorch
from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.contract.values.lengths import parse_length
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.training import memory_meter
from det_jupyter.pytorch.training.memory_meter import MemoryMeter, num_bytes
from det_jupyter.pytorch.training.rehearsal import VARIABLE
from tests.unit.pytorch.training.planned_samples import Line, Planned

RECORDS = 8


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 10)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.BatchNorm2d(16),
        nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(256, 10),
    )  # fmt: skip


def allocated(run: Callable[[], None]) -> int:
    """Return the most memory that torch's CPU allocator had given out at a time in a call."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        run()
    results = profiled.profiler.kineto_results
    events = [each for each in results.events() if each.name() == "[memory]"]
    now = most = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        now += event.nbytes()
        most = max(most, now)
    return most


# Of a record, as floats: what layers save; a label, which is a long; and of a batch the rest.
SAVED_BY_MLP = 4 * (64 + 256 + 256 + 10) + 8
SAVED_BY_CNN = 4 * (3 * 32**2 + 3 * 16 * 32**2 + 256 + 10) + 8


@pytest.mark.parametrize(
    ("build", "shape", "saved", "least"),
    [
        (mlp, (64,), SAVED_BY_MLP * RECORDS + 4, 0.99),
        # A convolution reorders its arguments, in memory that no tensor has.
        (cnn, (3, 32, 32), SAVED_BY_CNN * RECORDS + 4 * 2 * 16 + 4, 0.7),
    ],
)
def test_parts_are_exact_and_the_peak_is_the_allocators(
    build: Callable[[], nn.Module], shape: tuple[int, ...], saved: int, least: float
) -> None:
    model, x, y = build(), torch.randn(RECORDS, *shape), torch.zeros(RECORDS, dtype=torch.long)
    optimizer = torch.optim.Adam(model.parameters())
    given = SimpleNamespace(device=torch.device("cpu"), models=[model], optimizers=[optimizer])

    def steps() -> None:
        for _ in range(2):
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

    meter = MemoryMeter(cast("Any", given))
    with meter.counting():
        steps()
    found = meter.read()
    numbers = sum(each.numel() for each in model.parameters())
    tensors = len(list(model.parameters()))
    assert found["parameter_bytes"] == found["gradient_bytes"] == 4 * numbers
    assert found["optimizer_bytes"] == 2 * 4 * numbers + 4 * tensors, (
        "two moments, and a step each"
    )
    assert found["activation_bytes"] == saved
    optimizer.state.clear()
    real = sum(each.nbytes for each in (*model.parameters(), *model.buffers())) + allocated(steps)
    assert least * real <= found["peak_bytes"] <= 1.01 * real
    assert found["slot_bytes"] > 2**30


def test_a_storage_is_counted_once() -> None:
    whole = torch.zeros(100)
    assert num_bytes([whole, whole[:3], None, 7]) == 400


class Usual(Line):
    """Does what trials usually do with values, and moves and casts its model."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1))
        self.model = context.wrap_model(model.to(torch.float16).to("cpu", torch.float32))
        self.adam = context.wrap_optimizer(torch.optim.Adam(self.model.parameters()))

    def finds_problem(self, loss: torch.Tensor) -> bool:
        return bool(loss.isnan())

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        assert self.context.current_train_epoch() >= 0
        loss = nn.functional.mse_loss(self.model(batch[0]), batch[1])
        if self.finds_problem(loss):
            raise ValueError("NaN")
        self.context.backward(loss)
        self.context.step_optimizer(
            self.adam, clip_grads=lambda them: nn.utils.clip_grad_norm_(them, 1.0)
        )
        return {"loss": loss.item()}


class Finite(Usual):
    """Asks the other question."""

    def finds_problem(self, loss: torch.Tensor) -> bool:
        return not loss.isfinite()


def rehearsed(folder: Path, trial: type[Line], **configuration: Any) -> dict[str, Any]:
    length = parse_length({"batches": 10**9})
    run = Planned(folder, trial, target=length, configuration=configuration)
    assert run.train() == "stopped"
    [report] = [each for each in run.records(MetricsReported) if each.group == "rehearsal"]
    metrics: dict[str, Any] = report.metrics
    return metrics


def test_tensors_without_values_take_as_much_as_real_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "seconds=0.02 warmup=4 memory=1")
    options = {"optimizations": {"aggregation_frequency": 2}}
    real = rehearsed(tmp_path / "a", Usual, **options)
    monkeypatch.setenv(VARIABLE, "memory=1 fake=1")
    fake = rehearsed(tmp_path / "b", Usual, **options)
    for part in ("parameter", "gradient", "optimizer", "activation", "slot"):
        part = f"{part}_bytes"
        assert fake[part] == real[part] > 0
    assert fake["activation_bytes"] < fake["peak_bytes"] <= real["peak_bytes"], (
        "real batches are loaded ahead"
    )
    assert real["seconds_per_batch"] == pytest.approx(8 / real["records_per_s"])
    assert "seconds_per_batch" not in fake
    finite = rehearsed(tmp_path / "d", Finite, **options)
    assert finite == {**fake, "activation_bytes": fake["activation_bytes"] + 4}, (
        "isfinite saves the loss"
    )
    half = rehearsed(tmp_path / "c", Usual, optimizations={"mixed_precision": "fp16"})
    assert half["activation_bytes"] < fake["activation_bytes"], "layers save 16-bit numbers"


class Choosing(Line):
    """Chooses records by their values."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        chosen = batch[0][batch[1][:, 0] > 0]
        return super().train_batch([chosen, chosen[:, :1]], epoch_idx, batch_idx)


def test_a_trial_that_needs_values_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "memory=1 fake=1")
    swapping = nn.Module._apply
    with pytest.raises(ConfigError, match="DynamicOutputShapeException"):
        rehearsed(tmp_path, Choosing)
    assert nn.Module._apply is swapping


class Engines(Line):
    """Has no models, but engines."""

    class _context_class(pytorch.PyTorchTrialContext):
        def has_to_wrap(self) -> dict[str, Any]:
            return {"wrap_model_engine": self.models}


def test_engines_are_not_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "seconds=0.02 warmup=2 memory=1")
    with pytest.raises(ConfigError, match="Engines has engines of DeepSpeed"):
        rehearsed(tmp_path, Engines)


class Sparse(Line):
    """Looks records up, with sparse gradients."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Embedding(100, 4, sparse=True))
        self.adam = context.wrap_optimizer(torch.optim.SparseAdam(self.model.parameters()))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        loss = self.model(torch.arange(8)).square().mean()
        self.context.backward(loss)
        self.context.step_optimizer(self.adam)
        return {"loss": loss}

    def evaluate_batch(self, batch: Any, batch_idx: int) -> dict[str, Any]:
        return {"error": 0.0}


class Lazy(Line):
    """Has parameters from the first batch on, as large as those of Line."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        model = nn.Sequential(nn.LazyLinear(3), nn.Tanh(), nn.LazyLinear(1))
        self.model = context.wrap_model(model)
        self.optimizer = context.wrap_optimizer(
            torch.optim.SGD(self.model.parameters(), lr=0.125, momentum=0.5)
        )


def test_sparse_gradients_are_their_indices_and_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "seconds=0.02 warmup=4 memory=1")
    found = rehearsed(tmp_path, Sparse)
    assert found["parameter_bytes"] == 100 * 4 * 4
    assert found["gradient_bytes"] == 8 * (8 + 4 * 4)
    assert found["optimizer_bytes"] == 2 * 100 * 4 * 4


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("build", [torch.sparse_csr_tensor, torch.sparse_csc_tensor])
def test_a_compressed_tensor_is_its_indices_and_values(build: Callable[..., Any]) -> None:
    tensor = build(torch.arange(11), torch.arange(10), torch.ones(10))
    assert num_bytes([tensor]) == 11 * 8 + 10 * 8 + 10 * 4


@pytest.mark.filterwarnings("ignore:Lazy modules")
def test_parameters_of_the_first_batch_are_no_activations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "seconds=0.02 warmup=4 memory=1")
    parts = [f"{part}_bytes" for part in ("parameter", "gradient", "optimizer", "activation")]
    lazy, line = rehearsed(tmp_path / "a", Lazy), rehearsed(tmp_path / "b", Line)
    assert [lazy[part] for part in parts] == [line[part] for part in parts]


class CastLate(Line):
    """Changes the type of a model that an optimizer has."""

    def __init__(self, context: pytorch.PyTorchTrialContext) -> None:
        self.context = context
        self.model = context.wrap_model(nn.Linear(2, 1, dtype=torch.float64))
        sgd = torch.optim.SGD(self.model.parameters(), lr=0.125, momentum=0.5)
        self.optimizer = context.wrap_optimizer(sgd)
        self.model.float()


class Iterates(Line):
    """Ends a loop by a value."""

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> dict[str, Any]:
        norm = torch.ones(())
        while norm.item() > 0.5:
            norm = norm / 2
        return super().train_batch(batch, epoch_idx, batch_idx)


def test_an_optimizer_keeps_parameters_that_change_their_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "memory=1 fake=1")
    found = rehearsed(tmp_path, CastLate)
    assert found["gradient_bytes"] == found["optimizer_bytes"] == 3 * 4


def test_a_loop_that_ends_at_a_value_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, "memory=1 fake=1")
    monkeypatch.setattr(memory_meter, "_MOST_READ", 100)
    with pytest.raises(ConfigError, match="a batch reads more than 100 values"):
        rehearsed(tmp_path, Iterates)
