"""Whether anything was lost, doubled or changed, compared with an undisturbed run."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from det_jupyter.client import Experiment
from det_jupyter.master.service.stored_rows import read_metrics

STEPS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a run of the soak's trial comes to: rows as they are stored, and the last weights."""

    batches: list[tuple[int, Any]]  # step and loss
    validations: list[tuple[int, Any]]  # step and error
    weights: Mapping[str, torch.Tensor]


def outcome_of(experiment: Experiment, database: Path) -> Outcome:
    """Return what an experiment came to."""
    batches: list[tuple[int, Any]] = []
    validations: list[tuple[int, Any]] = []
    for _, record in read_metrics(database, experiment.id):
        if record["kind"] == "batch_metrics":
            batches += enumerate(record["values"]["loss"], start=record["first"])
        elif record["group"] == "validation":
            validations.append((record["steps_completed"], record["metrics"]["error"]))
    last = max(experiment.checkpoints(), key=lambda c: c.steps_completed)
    return Outcome(
        batches=batches, validations=validations, weights=last.load().model.state_dict()
    )


def differences(found: Outcome, expected: Outcome) -> list[str]:
    """Return what is not as in the undisturbed run, a line each."""
    told = _rows("metrics of batches", found.batches, expected.batches)
    told += _rows("validations", found.validations, expected.validations)
    told += [
        f"{name} differs in the last checkpoint"
        for name, tensor in expected.weights.items()
        if not torch.equal(found.weights[name], tensor)
    ]
    return told


def _rows(what: str, found: list[tuple[int, Any]], expected: list[tuple[int, Any]]) -> list[str]:
    steps, values = [step for step, _ in found], dict(found)
    lost = sorted(dict(expected).keys() - values.keys())
    doubled = sorted({step for step in steps if steps.count(step) > 1})
    changed = [step for step, value in expected if step in values and values[step] != value]
    kinds = {"lost": lost, "doubled": doubled, "changed": changed}
    return [f"{what} {kind}: {numbers}" for kind, numbers in kinds.items() if numbers]


def problems_with(experiment: Experiment, database: Path, expected: Outcome) -> list[str]:
    """Return all that is wrong with an experiment after the soak, a line each."""
    view = experiment.view
    if view.state != "COMPLETED":
        return [f"{view.state}: {view.message or 'not over in time'}"]
    told = differences(outcome_of(experiment, database), expected)
    for checkpoint in experiment.checkpoints():
        if checkpoint.view.state == "COMPLETED" and not Path(checkpoint.path).is_dir():
            told.append(f"checkpoint {checkpoint.uuid} of step {checkpoint.steps_completed}: gone")
    return told


def damage_of(database: Path) -> list[str]:
    """Return what SQLite finds wrong with its file."""
    db = sqlite3.connect(database)
    try:
        found = [row[0] for row in db.execute("PRAGMA integrity_check").fetchall()]
    finally:
        db.close()
    return [f"database: {line}" for line in found if line != "ok"]
