"""Processes of trainers and of trials, and what becomes of a checkpoint's random numbers."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from det_jupyter.integrations.common import (
    find_size_problem,
    restore_generators,
    save_generators,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.mark.parametrize(
    ("num_processes", "size", "device", "problem"),
    [
        (1, 1, CPU, ""),
        (4, 4, GPU, ""),
        (1, 2, CPU, "the T has 1 process, and the trial 2; write cpu=1: without it, ranks without "
                    "GPUs train alone"),
        (1, 2, GPU, "the T has 1 process, and the trial 2; start the T on the trial's ranks only"),
        (4, 2, CPU, "the T has 4 processes, and the trial 2; start the T on the "
                    "trial's ranks only"),
    ],
)  # fmt: skip
def test_other_processes_than_the_trials_are_a_problem(
    num_processes: int, size: int, device: torch.device, problem: str
) -> None:
    assert find_size_problem("T", num_processes, size, device, "cpu=1") == problem


@pytest.mark.parametrize("states", [[], [torch.tensor([1]), torch.tensor([2])]])
def test_random_numbers_of_all_gpus_are_saved_where_there_are_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, states: list[torch.Tensor]
) -> None:
    restored: list[list[int]] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: bool(states))
    monkeypatch.setattr("torch.cuda.get_rng_state_all", lambda: states)
    monkeypatch.setattr(
        "torch.cuda.set_rng_state_all", lambda found: restored.append([*map(int, found)])
    )
    save_generators(tmp_path / "file")
    restore_generators(tmp_path / "file")
    assert restored == ([[1, 2]] if states else [])


def test_random_numbers_go_on_where_they_were_saved(tmp_path: Path) -> None:
    def draw() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(1))]

    save_generators(tmp_path / "file")
    drawn = draw()
    restore_generators(tmp_path / "file")
    assert draw() == drawn != draw()
