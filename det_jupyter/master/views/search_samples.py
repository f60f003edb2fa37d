"""The data from which the importance of a search's hyperparameters is computed. Pure."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.values.direction import Direction
from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.master.machine.model.state import MachineState

Samples = tuple[dict[str, Any], str, Direction, list[tuple[dict[str, Any], float | None]]]


def samples_of(state: MachineState, experiment_id: int) -> Samples:
    """Return the space, the metric, its direction, and the samples of trials that have ended.

    The value of a sample is None if the trial has not reported a finite value.

    Raises:
        NotFound: There is no such experiment.
    """
    experiment = state.experiment(experiment_id)
    values = [
        (trial.hparams, to_finite(trial.best_metric))
        for trial in state.trials_of(experiment)
        if trial.state.is_terminal
    ]
    space = experiment.config["hyperparameters"]
    return space, experiment.metric, experiment.direction, values
