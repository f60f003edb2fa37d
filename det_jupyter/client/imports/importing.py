"""`import_runs`: runs of TensorBoard or MLflow become experiments, to compare with new ones."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.imports.imported_runs import ImportedRun, RunSet, find_runs
from det_jupyter.client.imports.whole_experiments import num_values, send_metrics, validations
from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import (
    Capsule,
    ImportedTrial,
    ImportExperiment,
)
from det_jupyter.contract.run.journal import MetricsReported
from det_jupyter.contract.run.scalars import Scalar, metric_of, records_of
from det_jupyter.errors import ConfigError, Conflict, Problem

ENTRYPOINT = "imported"  # stands for the code, which is not here
LABEL = "imported"
_RUN = "run"  # the hyperparameter with the name of a run
_NO_METRIC = "validation_loss"  # the metric if there is none by which runs could be compared
_MAX_TITLE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """The result of an import.

    Args:
        experiment_id: Number of the experiment.
        source: Where its runs come from.
        num_runs, num_values: How many runs it has, and values of metrics.
        num_new: How many of the values were not there before.
        metric: The metric by which its trials are compared; "": none.
        validated: Names of metrics of validations.
        remarks: What was not read, and why.
    """

    experiment_id: int
    source: str
    num_runs: int
    num_values: int
    num_new: int
    metric: str
    validated: list[str]
    remarks: list[str]


def import_runs(
    client: Client, given: str, *, metric: str | None = None, larger_is_better: bool = False
) -> list[ImportResult]:
    """Make an experiment of each set of runs at a path or URI; repeatable.

    Args:
        client: Sends requests to the master.
        given: A folder or file of TensorBoard, or a folder, SQLite file or URI of MLflow.
        metric: The metric that trials are compared by, by its name there or here, in sets that
            have it. In others, and with None: a loss of validations, if there is one.
        larger_is_better: Whether larger values of it are better.

    Raises:
        ConfigError: There are no runs, or none has the metric.
        Conflict: Nothing was imported, as the experiment that has these runs is being deleted, or
            has another metric.
    """
    sets = find_runs(given)
    having = [each for each in sets if metric is not None and _has(each, metric)]
    if metric is not None and not having:
        tags = sorted({scalar.tag for each in sets for run in each.runs for scalar in run.scalars})
        problem = f"got {metric!r}, expected one of the metrics there: {', '.join(tags)}"
        raise ConfigError([Problem("--metric", problem)])
    imported, refusals = [], []
    for each in sets:
        chosen = metric if each in having else None
        is_larger = larger_is_better and chosen is not None
        try:
            imported.append(_import_set(client, each, chosen, is_larger))
        except Conflict as error:
            refusals.append(str(error))
    if not imported:
        raise Conflict("; ".join(refusals))
    imported[-1].remarks.extend(refusals)
    return imported


def _has(runs: RunSet, metric: str) -> bool:
    return any(
        metric in (scalar.tag, metric_of(scalar.tag, metric)[1])
        for run in runs.runs
        for scalar in run.scalars
    )


def _import_set(
    client: Client, runs: RunSet, metric: str | None, larger_is_better: bool
) -> ImportResult:
    validated = sorted(_validated(runs))
    chosen = metric or next((name for name in validated if name.lower().endswith("loss")), None)
    records = {run.name: _records(run, chosen or "") for run in runs.runs}
    trials = [_trial(run, records[run.name], chosen or _NO_METRIC) for run in runs.runs]
    blobs = BlobStore.of(client.session.info.data_dir)
    request = ImportExperiment(
        key=hashlib.sha256(runs.identity.encode()).hexdigest(),
        source=runs.source,
        config=_config(runs.name, trials, chosen or _NO_METRIC, larger_is_better),
        capsule=Capsule(
            entrypoint=ENTRYPOINT,
            sources=blobs.put(json.dumps({}).encode()),
            notices=[f"Imported from {runs.source}"],
        ),
        python="",
        cwd=os.getcwd(),
        trials=trials,
    )
    view = client.change(request)
    num_new = 0
    for trial in view.trials:
        if own := records.get(trial.hparams[_RUN]):
            num_new += send_metrics(client, trial.id, own)
    return ImportResult(
        experiment_id=view.id,
        source=runs.source,
        num_runs=len(runs.runs),
        num_values=sum(map(num_values, records.values())),
        num_new=num_new,
        metric=chosen or "",
        validated=validated,
        remarks=runs.remarks,
    )


def _validated(runs: RunSet) -> Iterator[str]:
    """Yield the names of metrics of validations."""
    tags = {scalar.tag for run in runs.runs for scalar in run.scalars}
    named = (metric_of(tag, "") for tag in tags)
    yield from {name for group, name in named if group == "validation"}


def _records(run: ImportedRun, metric: str) -> list[MetricsReported]:
    """Return the metrics of a run in the order of time, so that later ones come last."""
    return records_of(sorted(run.scalars, key=_by_time), metric)


def _by_time(scalar: Scalar) -> tuple[float, int]:
    return scalar.at, scalar.step


def _trial(run: ImportedRun, records: Sequence[MetricsReported], metric: str) -> ImportedTrial:
    times = [record.at for record in records]
    return ImportedTrial(
        source=run.name,
        state=run.state,
        hparams={name: _plain(each) for name, each in run.hparams.items()} | {_RUN: run.name},
        notices=run.notices,
        created_at=run.started_at or min(times, default=0.0),
        ended_at=run.ended_at or max(times, default=0.0),
        steps_completed=max((record.steps_completed for record in records), default=0),
        validations=validations(records, metric),
    )


def _plain(value: Any) -> Any:
    """Return a hyperparameter as a value of JSON."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _config(
    name: str, trials: Sequence[ImportedTrial], metric: str, larger_is_better: bool
) -> dict[str, Any]:
    """Return the configuration that stands for the runs; it starts nothing."""
    searcher: dict[str, Any] = {
        "name": "single",
        "metric": metric,
        "smaller_is_better": not larger_is_better,
        "max_length": {"batches": max(1, *(each.steps_completed for each in trials))},
    }
    if len(trials) > 1:
        searcher |= {"name": "random", "max_trials": len(trials)}
    document = {
        "name": name[:_MAX_TITLE],
        "labels": [LABEL],
        "entrypoint": ENTRYPOINT,
        "searcher": searcher,
        "hyperparameters": _space(trials),
    }
    return parse_config(document, default_seed=0).to_document()


def _space(trials: Sequence[ImportedTrial]) -> dict[str, Any]:
    """Return the hyperparameters of trials: constants, ranges of numbers, and other values."""
    names = dict.fromkeys(name for trial in trials for name in trial.hparams)
    return {
        name: _range([trial.hparams[name] for trial in trials if name in trial.hparams])
        for name in names
    }


def _range(values: Sequence[Any]) -> dict[str, Any]:
    distinct = {json.dumps(value, sort_keys=True, default=str): value for value in values}
    if len(distinct) == 1:
        return {"type": "const", "val": values[0]}
    if all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return {"type": "double", "minval": min(values), "maxval": max(values)}
    return {"type": "categorical", "vals": list(distinct.values())}
