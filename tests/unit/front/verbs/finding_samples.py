"""Sample rows of a list of experiments."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages import ExperimentRow, ExperimentRows, State
from det_jupyter.contract.messages.status import experiment_status

CREATED_AT = 1_790_000_000.0


def row(number: int, **changes: Any) -> ExperimentRow:
    fields: dict[str, Any] = {
        "id": number,
        "name": "digits",
        "state": State.ACTIVE,
        "progress": 0.5,
        "metric": "error",
        "smaller_is_better": True,
        "best_metric": 0.25,
        "hparams": {"optimizer": {"lr": 0.1}},
        "num_trials": 1,
        "slots_per_trial": 2,
        "entrypoint": "Digits",
        "notebook": "/home/a/train.ipynb",
        "created_at": CREATED_AT,
    }
    fields |= changes
    gangs = fields.pop("gangs", ())
    status = experiment_status(fields["state"], gangs, fields["num_trials"])
    return ExperimentRow(**{"status": status} | fields)


def rows_found(
    *numbers: int, num_more: int = 0, num_archived: int = 0, **changes: Any
) -> ExperimentRows:
    return ExperimentRows(
        rows=[row(number, **changes) for number in numbers],
        num_more=num_more,
        num_archived=num_archived,
    )
