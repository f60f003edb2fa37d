"""What a configuration asks for of the exchange between ranks, and what cannot be had together."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.errors import ConfigError
from det_jupyter.pytorch.parallel import ParallelOptions
from det_jupyter.pytorch.parallel.wrapping import compile_problems

CPU = torch.device("cpu")


def config(**optimizations: Any) -> ExperimentConfig:
    document = {
        "entrypoint": "Trial",
        "searcher": {"name": "single", "metric": "loss", "max_length": {"batches": 1}},
        "optimizations": optimizations,
    }
    return parse_config(document, default_seed=0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ParallelOptions()),
        ({"gradient_compression": True}, ParallelOptions(compression="fp16")),
        ({"gradient_compression": "powersgd"}, ParallelOptions(compression="powersgd")),
        (
            {"tensor_fusion_threshold": 64, "auto_tune_tensor_fusion": True},
            ParallelOptions(bucket_mb=64, tune_buckets=True),
        ),
        (
            {"sharding": "fsdp", "compile": "aot_eager"},
            ParallelOptions(sharding="fsdp", compile="aot_eager"),
        ),
    ],
)
def test_options_are_what_the_configuration_asks_for(
    given: dict[str, Any], expected: ParallelOptions
) -> None:
    assert ParallelOptions.of(config(**given)) == expected


def test_sharding_goes_with_neither_compression_nor_buckets_and_both_are_told() -> None:
    given = config(sharding="fsdp", gradient_compression="bf16", tensor_fusion_threshold=5)
    with pytest.raises(ConfigError) as caught:
        ParallelOptions.of(given)
    assert "optimizations.gradient_compression: bf16 does not go with" in str(caught.value)
    assert "leave out optimizations.tensor_fusion_threshold" in str(caught.value)


@pytest.mark.parametrize("level", ["fp16", "O1"])
def test_powersgd_does_not_go_with_a_changing_scale(level: str) -> None:
    with pytest.raises(ConfigError, match=f"mixed_precision: {level} each batch is scaled"):
        ParallelOptions.of(config(gradient_compression="powersgd", mixed_precision=level))
    ParallelOptions.of(config(gradient_compression="powersgd", mixed_precision="bf16"))


def test_an_unknown_backend_is_told_with_the_known_ones() -> None:
    (problem,) = compile_problems("fast", CPU)
    assert "optimizations.compile: got 'fast'" in problem
    assert "aot_eager" in problem
    assert compile_problems("eager", CPU) == []


def test_a_missing_compiler_is_told_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    assert compile_problems("inductor", CPU) == []
    monkeypatch.setenv("PATH", "/nowhere")
    (problem,) = compile_problems("inductor", CPU)
    assert "needs a C++ compiler, and there is no g++ or clang++ or c++ on this" in problem
    monkeypatch.setenv("CXX", "my-compiler")
    (problem,) = compile_problems("inductor", CPU)
    assert "no my-compiler on this computer" in problem
