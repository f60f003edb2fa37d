"""Forward passes in 16 bits: what is computed, returned, scaled and said."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from det_jupyter.config import parse_config
from det_jupyter.pytorch.steps.precision import Precision, parse_level, to_float32

CPU = torch.device("cpu")
Pair = namedtuple("Pair", ["left", "right"])


class TemporaryExperiment(nn.Linear):
    """Notes in what it computes."""

    seen: torch.dtype | None = None

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs = super().forward(inputs)
        self.seen = outputs.dtype
        return outputs


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_forward_pass_computes_in_16_bits_and_returns_32(dtype: torch.dtype) -> None:
    model = TemporaryExperiment(2, 2)
    names = list(model.state_dict())
    wrapped = Precision(CPU, dtype).wrap_forward(model)
    outputs = wrapped(torch.ones(1, 2))
    assert wrapped is model
    assert model.seen == dtype
    assert outputs.dtype == torch.float32
    outputs.sum().backward()
    assert model.weight.grad is not None
    assert model.weight.grad.dtype == torch.float32
    assert list(model.state_dict()) == names


def test_without_mixed_precision_a_model_is_left_alone() -> None:
    model = TemporaryExperiment(2, 2)
    precision = Precision(CPU, None)
    precision.wrap_forward(model)
    model(torch.ones(1, 2))
    assert model.seen == torch.float32
    assert "forward" not in vars(model)
    assert precision.scaler is None


def test_a_copy_computes_in_16_bits_with_its_own_weights() -> None:
    model = Precision(CPU, torch.bfloat16).wrap_forward(TemporaryExperiment(1, 1, bias=False))
    copied = deepcopy(model)
    copied.weight.data.fill_(3.0)
    assert copied(torch.ones(1, 1)).item() == 3.0
    assert copied.seen == torch.bfloat16


def test_a_forward_of_the_instance_is_kept() -> None:
    model: Any = nn.Linear(1, 1)
    model.forward = lambda inputs: inputs.bfloat16() * 2
    Precision(CPU, torch.bfloat16).wrap_forward(model)
    outputs = model(torch.ones(1))
    assert (outputs.item(), outputs.dtype) == (2.0, torch.float32)


def test_a_compiled_model_computes_in_16_bits() -> None:
    model = Precision(CPU, torch.bfloat16).wrap_forward(nn.Linear(2, 2))
    inputs = torch.randn(3, 2)
    expected = model(inputs)
    model.compile(backend="aot_eager")
    assert torch.equal(model(inputs), expected)


def test_what_is_nested_is_cast_and_the_rest_stays() -> None:
    half, other = torch.ones(1, dtype=torch.float16), object()
    given = {"a": [half, 1], "b": Pair(half, "x"), "c": OrderedDict(d=(half, other))}
    cast: Any = to_float32(given)
    assert [cast["a"][0].dtype, cast["b"].left.dtype, cast["c"]["d"][0].dtype] == (
        [torch.float32] * 3
    )
    assert (cast["a"][1], cast["b"].right, cast["c"]["d"][1]) == (1, "x", other)
    assert type(cast["b"]) is Pair
    assert type(cast["c"]) is OrderedDict
    assert given["a"] == [half, 1]
    integers = torch.ones(1, dtype=torch.int16)
    assert to_float32(integers) is integers


def test_float16_scales_the_loss_and_skips_a_step_that_overflowed() -> None:
    precision = Precision(CPU, torch.float16)
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    precision.scale(model(torch.ones(1)).sum()).backward()
    assert model.weight.grad is not None
    assert model.weight.grad.item() == 65536.0
    precision.unscale(optimizer)
    assert model.weight.grad.item() == 1.0
    precision.step(optimizer)
    precision.update()
    assert model.weight.item() == 0.5
    model.weight.grad.fill_(float("inf"))
    precision.step(optimizer)
    precision.update()
    assert model.weight.item() == 0.5
    assert precision.scale(torch.ones(())).item() == 32768.0


def test_bfloat16_needs_no_scale() -> None:
    precision = Precision(CPU, torch.bfloat16)
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loss = model(torch.ones(1)).sum()
    assert precision.scale(loss) is loss
    loss.backward()
    before = model.weight.item()
    precision.unscale(optimizer)
    precision.step(optimizer)
    precision.update()
    assert model.weight.item() == pytest.approx(before - 1.0)


@pytest.mark.parametrize(
    ("level", "dtype"), [("O0", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_a_level_means_a_type(level: str, dtype: torch.dtype | None) -> None:
    assert parse_level(level) == (dtype, "")


@pytest.mark.parametrize("level", ["O1", "O2", "O3"])
def test_apex_levels_mean_fp16_and_that_is_said(level: str) -> None:
    dtype, notice = parse_level(level)
    assert dtype == torch.float16
    assert notice.startswith(f"optimizations.mixed_precision: {level} is a level of NVIDIA Apex")


def test_a_configuration_chooses() -> None:
    document = {
        "entrypoint": "Trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "optimizations": {"mixed_precision": "O2"},
    }
    precision = Precision.from_config(parse_config(document, default_seed=0), CPU)
    assert precision.dtype == torch.float16
    assert precision.scaler is not None
    assert "O2" in precision.notice
