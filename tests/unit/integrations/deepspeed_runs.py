"""An engine that saves, loads and counts as DeepSpeed's.

The real one, which compiles an extension for minutes, is in tests/e2e/test_deepspeed.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from det_jupyter.integrations.deepspeed import load_engine, save_engine

__all__ = ["Engine", "OldEngine", "UnmanagedEngine", "load_engine", "save_engine"]


class OldEngine:
    """An engine of a DeepSpeed that always manages the accumulation itself.

    Args:
        rank: Whose part of the state it saves.
        window: Batches whose gradients one step uses.
    """

    def __init__(self, rank: int = 0, window: int = 3) -> None:
        self.rank = rank
        self.weight = 0
        self.global_steps = self.micro_steps = 0
        self._window = window
        self._is_gradient_accumulation_boundary: bool | None = None
        self._unmanaged_backward_count = 0

    def gradient_accumulation_steps(self) -> int:
        return self._window

    def set_gradient_accumulation_boundary(self, is_boundary: bool) -> None:
        self._is_gradient_accumulation_boundary = is_boundary

    def train(self, num_batches: int) -> None:
        self.micro_steps += num_batches
        self.global_steps, self.weight = self.micro_steps // self._window, self.micro_steps

    def save_checkpoint(self, folder: str, tag: str, client_state: dict[str, Any]) -> None:
        place = Path(folder, tag)
        place.mkdir(exist_ok=True)
        state = [self.weight, self.global_steps, self.micro_steps]
        if self.rank == 0:
            (place / "client.json").write_text(json.dumps(client_state))
        (place / f"part-{self.rank}.json").write_text(json.dumps(state))

    def load_checkpoint(self, folder: str, tag: str) -> tuple[str, dict[str, Any]]:
        place = Path(folder, tag)
        state = json.loads((place / f"part-{self.rank}.json").read_text())
        self.weight, self.global_steps, self.micro_steps = state
        own = {"global_steps": self.global_steps, "ds_version": "0.1"}  # mixed with the user's
        return str(place), own | json.loads((place / "client.json").read_text())


class Engine(OldEngine):
    """An engine that manages the accumulation, as the configuration says."""

    def managed_gradient_accumulation(self) -> bool:
        return True


class UnmanagedEngine(OldEngine):
    """An engine whose user decides when a step uses the gradients."""

    def managed_gradient_accumulation(self) -> bool:
        return False

    def train(self, num_batches: int) -> None:
        super().train(num_batches)
        self._unmanaged_backward_count += num_batches

    def step(self) -> None:
        self._unmanaged_backward_count = 0
