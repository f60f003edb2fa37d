"""`python -m det_jupyter.trackers.mlflow_models`: registers a pushed folder in MLflow.

stdin     JSON: a ModelOrder
stdout    JSON: {"version": "3"}, the version in MLflow's registry; or {"problem": "..."}

The files are artifacts of a run, which the version names and which fails if it cannot be sent. A
version that MLflow has already, by the uuid of its checkpoint, is not sent again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import mlflow.exceptions
import requests
import yaml
from mlflow import MlflowClient

from det_jupyter._version import __version__
from det_jupyter.config.tracker_section import MLFLOW_ADDRESS, open_address
from det_jupyter.contract.messages import ModelOrder
from det_jupyter.contract.values.addresses import is_url, secrets_in
from det_jupyter.trackers.contents import is_misplaced, plain_name
from det_jupyter.trackers.mlflow_problems import Problems
from det_jupyter.trackers.mlflow_runs import Runs
from det_jupyter.trackers.resolving import refuse_reserved
from det_jupyter.trackers.service import TrackerRefused, Unreachable

_EXPERIMENT = "det_jupyter"
_PLACE = "model"  # of the folder among the artifacts
_TAGS = {  # by which a version is found again: with the whole checkpoint, or its weights alone
    True: "det_jupyter.checkpoint",
    False: "det_jupyter.weights",
}
_EXISTS = "RESOURCE_ALREADY_EXISTS"
_LONGEST_VALUE = 5000  # MLflow's limit


def main() -> int:
    """Register the folder of the order on standard input."""
    order = ModelOrder.model_validate_json(sys.stdin.read())
    if not order.is_named:
        refuse_reserved()  # also after a redirect
    os.environ[MLFLOW_ADDRESS] = order.tracking_uri  # clients that the library makes by itself
    with _own_output() as output:
        try:
            answer = {"version": register(order)}
        except (TrackerRefused, Unreachable) as problem:
            answer = {"problem": str(problem)}
        print(json.dumps(answer), file=output)
    return 0


@contextmanager
def _own_output() -> Iterator[Any]:
    """Yield a stream to standard output, and drop what libraries print: it may be secret."""
    with os.fdopen(os.dup(1), "w") as output:
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (1, 2):
            os.dup2(nothing, descriptor)
        yield output


def register(order: ModelOrder) -> str:
    """Store the folder as a version of the model, and return the version's number in MLflow.

    Raises:
        Unreachable, TrackerRefused: MLflow cannot be reached, or refuses it.
    """
    client = MlflowClient(tracking_uri=order.tracking_uri)
    shown_as = open_address(order.tracking_uri)
    runs = Runs(client, experiment=_EXPERIMENT, shown_as=shown_as)
    problems = Problems(
        shown_as=shown_as,
        is_server=is_url(order.tracking_uri),
        secrets=[*order.secrets, *secrets_in(order.tracking_uri)],
        gets_credentials=order.is_named,
        has_credentials=bool(order.secrets),
        fails_at_all=lambda: True,
    )
    try:
        number = _find(client, order) or _send(client, runs, order)
        _give_aliases(client, order, number, problems)
    except (mlflow.exceptions.MlflowException, requests.RequestException) as error:
        raise problems.of(error) from None
    except (TrackerRefused, Unreachable):
        raise
    except Exception as error:  # of a library that stores artifacts; its text may be secret
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        why = f"the package {missing} is not installed" if missing else type(error).__name__
        raise TrackerRefused(f"{shown_as}: the files cannot be sent: {why}") from None
    return number


def _tag(order: ModelOrder) -> dict[str, str]:
    return {_TAGS[order.has_checkpoint]: order.facts["origin"]["checkpoint"]}


def _find(client: MlflowClient, order: ModelOrder) -> str:
    """Return the version of this checkpoint that MLflow has; "" if it has none."""
    ((tag, uuid),) = _tag(order).items()
    # Not by name, too: MLflow has no way to quote one with an apostrophe.
    found = client.search_model_versions(f"tags.`{tag}` = '{uuid}'")
    return next((str(each.version) for each in found if each.name == order.name), "")


def _give_aliases(
    client: MlflowClient, order: ModelOrder, number: str, problems: Problems
) -> None:
    """Give the version its aliases; MLflow does not take all that there are here."""
    for alias in order.facts["version"]["aliases"]:
        try:
            client.set_registered_model_alias(order.name, alias, number)
        except mlflow.exceptions.MlflowException as error:
            problem = problems.of(error)
            raise type(problem)(
                f"models:/{order.name}/{number} is registered, but not as {alias!r}: {problem}"
            ) from None


def _send(client: MlflowClient, runs: Runs, order: ModelOrder) -> str:
    model, version = order.facts["model"], order.facts["version"]
    try:  # first: MLflow refuses some names
        client.create_registered_model(
            order.name, _labels(model["labels"]), model["description"] or None
        )
    except mlflow.exceptions.MlflowException as error:
        if error.error_code != _EXISTS:
            raise
    name = f"{order.name}-{version['number']}"
    run = client.create_run(runs.experiment(), run_name=name, tags=_tag(order))
    run_id, artifacts = run.info.run_id, run.info.artifact_uri
    try:
        if not order.is_named and is_misplaced(artifacts, order.tracking_uri):
            raise TrackerRefused(
                f"{open_address(order.tracking_uri)} wants the files in a folder of this "
                "computer; set MLFLOW_TRACKING_URI to its address if you trust it"
            )
        _fill(client, run_id, order)
    except BaseException:  # an interrupt too
        with suppress(Exception):  # the failure that led to this call is raised
            client.set_terminated(run_id, "FAILED")
        raise
    client.set_terminated(run_id)
    made = client.create_model_version(
        order.name,
        f"{artifacts}/{_PLACE}",
        run_id,
        {**_labels(version["labels"]), **_tag(order)},
        description=version["comment"] or None,
    )
    return str(made.version)


def _fill(client: MlflowClient, run_id: str, order: ModelOrder) -> None:
    """Send hyperparameters, metric and files of the version to a run."""
    origin = order.facts["origin"]
    for key, value in origin["hyperparameters"].items():
        client.log_param(run_id, plain_name(key), str(value)[:_LONGEST_VALUE])
    for key, value in origin["metric"].items():
        if value is not None:
            client.log_metric(run_id, plain_name(key), value, step=origin["steps_completed"])
    client.log_artifacts(run_id, order.folder, _PLACE)
    client.log_text(run_id, yaml.safe_dump(_mlmodel(run_id, order.has_checkpoint)),
                    f"{_PLACE}/MLmodel")  # fmt: skip


def _labels(labels: Sequence[str]) -> dict[str, str]:
    """Return labels as tags, whose names have no other characters than MLflow allows."""
    return {plain_name(label): "" for label in labels}


def _mlmodel(run_id: str, has_checkpoint: bool) -> Mapping[str, Any]:
    """Return MLflow's description of the folder."""
    loader = "load_checkpoint" if has_checkpoint else "safetensors"
    flavor = {"version": __version__, "loader": loader}
    if has_checkpoint:
        flavor["data"] = "checkpoint"
    return {"artifact_path": _PLACE, "run_id": run_id, "flavors": {"det_jupyter": flavor}}


if __name__ == "__main__":
    sys.exit(main())
