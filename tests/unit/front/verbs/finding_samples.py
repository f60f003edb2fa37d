"""Sample rows of a list of experiments."""

from __future__ import annotations

from typing import Any

from det_jupyter.contract.messages import ExperimentRow, ExperimentRows, State
from det_jupyter.contract.messages.status import STATUS_WORDS, experiment_status, with_alarm

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
        "slots_per_trial": (2, 2),
        "entrypoint": "Digits",
        "notebook": "/home/a/train.ipynb",
        "created_at": CREATED_AT,
    }
    fields |= changes
    gangs = fields.pop("gangs", ())
    status = fields.setdefault(
        "status", experiment_status(fields["state"], gangs, fields["num_trials"])
    )
    word = with_alarm(STATUS_WORDS[status], fields.get("alarm_kind", ""))
    return ExperimentRow(**{"status_word": word} | fields)


def rows_found(
    *numbers: int, num_more: int = 0, num_archived: int = 0, **changes: Any
) -> ExperimentRows:
    return ExperimentRows(
        rows=[row(number, **changes) for number in numbers],
        num_more=num_more,
        num_archived=num_archived,
    )
