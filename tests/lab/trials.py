"""Experiments for journeys: submitted without a notebook, ended when a journey is over."""

from __future__ import annotations

from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.wire import Capsule
from tests.processes import wait_until
from tests.trials import TRIAL_SOURCE, capture_trial, create, slow, wait_for_steps

PAUSE = "        time.sleep(self.pause_s)\n"
SOURCE = TRIAL_SOURCE.replace(PAUSE, f"{PAUSE}        print('trains batch', batch_idx)\n")


class Trials:
    """Submits experiments of a small trial to a real master.

    Args:
        client: Of the master.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._capsule: Capsule | None = None
        self._kept: set[int] = set()

    def run(
        self, *, pause_s: float = 0.02, slots: int = 1, batches: int = 40_000, **changes: Any
    ) -> Experiment:
        """Submit one that trains for long, on one slot, unless something else is asked for."""
        if self._capsule is None:
            self._capsule = capture_trial(self.client, "SmallTrial", SOURCE)
        searcher = {"name": "single", "metric": "error", "max_length": {"batches": batches}}
        usual = {"searcher": searcher, "resources": {"slots_per_trial": slots}}
        config = slow(pause_s) | usual | changes
        return create(self.client, config, self._capsule)

    def train(self, steps: int = 5, **changes: Any) -> Experiment:
        """Submit one, and wait until it trains."""
        experiment = self.run(**changes)
        wait_for_steps(experiment, steps)
        return experiment

    def ended(self, **changes: Any) -> Experiment:
        """Submit a short one, and wait until it has ended."""
        experiment = self.run(**({"pause_s": 0.0, "batches": 20} | changes))
        wait_until(lambda: experiment.view.state.is_terminal, "it has ended")
        return experiment

    def end_all(self) -> None:
        """Kill all that have not ended."""
        for view in self.client.experiments():
            if not view.state.is_terminal:
                self.client.command(view.id, "kill")
        wait_until(
            lambda: all(view.state.is_terminal for view in self.client.experiments()),
            "all have ended",
        )
