"""Experiments for journeys: submitted without a notebook, and ended after the journey."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.contract.messages import (
    Capsule,
    Delete,
    ExperimentQuery,
    ExperimentRow,
    Kill,
    State,
)
from tests.processes import wait_until
from tests.trials import (
    PAUSE,
    TRIAL_SOURCE,
    Gate,
    capture_trial,
    create,
    slow,
    small_config,
    submit,
    wait_for_steps,
)

GOING = [str(state) for state in State if not state.is_terminal]
SOURCE = TRIAL_SOURCE.replace(PAUSE, f"{PAUSE}\n        print('trains batch', batch_idx)").replace(
    "lr=0.01", "lr=context.get_hparams().get('lr', 0.01)"
)


class Trials:
    """Submits experiments of a small trial to a real master.

    Args:
        client: A client of the master.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._capsule: Capsule | None = None
        self._newest_before = max((view.id for view in client.experiments()), default=0)

    def run(
        self, *, pause_s: float = 0.2, slots: int = 1, batches: int = 40_000, **changes: Any
    ) -> Experiment:
        """Submit an experiment; by default it trains for long on one slot."""
        if self._capsule is None:
            self._capsule = capture_trial(self.client, "SmallTrial", SOURCE)
        searcher = {"name": "single", "metric": "error", "max_length": {"batches": batches}}
        usual = {"searcher": searcher, "resources": {"slots_per_trial": slots}}
        config = slow(pause_s) | usual | changes
        return create(self.client, config, self._capsule)

    def train(self, steps: int = 5, **changes: Any) -> Experiment:
        """Submit an experiment, and wait until it has trained `steps` batches."""
        experiment = self.run(**changes)
        wait_for_steps(experiment, steps)
        return experiment

    def ended(self, **changes: Any) -> Experiment:
        """Submit a short experiment, and wait until it has ended."""
        experiment = self.run(**({"pause_s": 0.0, "batches": 20} | changes))
        wait_until(lambda: experiment.view.state.is_terminal, "it has ended")
        return experiment

    def failing(self, name: str) -> Experiment:
        """Submit an experiment that fails in its first batch and is not restarted."""
        hyperparameters = {"global_batch_size": 16, "pause_s": "soon"}
        return self.run(name=name, max_restarts=0, hyperparameters=hyperparameters)

    def gated(self, name: str, *gates: Gate, **changes: Any) -> Experiment:
        """Submit an experiment on one slot that waits at each of the gates."""
        source = SOURCE
        for gate in gates:
            source = gate.source(source)
        config = small_config(name=name, resources={"slots_per_trial": 1}, **changes)
        return submit(self.client, config, source)

    def diverging(self, name: str, gate: Path) -> Experiment:
        """Submit one that diverges, and trains on for minutes until a file is there."""
        wait = f"        os.path.exists({str(gate)!r}) or time.sleep(self.pause_s)"
        source = f"import os\n{SOURCE}".replace(PAUSE, wait)
        searcher = {"name": "single", "metric": "error", "max_length": {"batches": 600}}
        hparams = {"global_batch_size": 16, "pause_s": 0.5, "lr": 1e30}
        resources = {"slots_per_trial": 1}
        config = small_config(
            name=name, searcher=searcher, hyperparameters=hparams, resources=resources
        )
        return submit(self.client, config, source)

    def end_all(self) -> None:
        """Kill all experiments that have not ended."""
        for row in self._going():
            self.client.change(Kill(experiment_id=row.id))
        wait_until(lambda: not self._going(), "all have ended")

    def _going(self) -> list[ExperimentRow]:
        return self.client.find(ExperimentQuery(state=GOING, archived=True)).rows

    def delete_all(self) -> None:
        """End and delete all experiments submitted since this object was created, by anyone."""
        self.end_all()
        for view in self.client.experiments():
            if view.id > self._newest_before:
                self.client.change(Delete(experiment_id=view.id))
