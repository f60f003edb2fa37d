"""Captures what a trial gets from the process that submits it: the umask, and variables.

These are the variables that the configuration names without a value:

    environment: {environment_variables: [HF_TOKEN]}
    alerts: [{slack: "${SLACK_WEBHOOK}"}]
    trackers: [{type: mlflow, tracking_uri: "${MLFLOW_TRACKING_URI}"}]

Their values are in no configuration, view, log or checkpoint. They are stored in a blob of the
data folder (for `det e sync`, in the database), which only its owner can read. Ranks get only
those of environment_variables.
"""

from __future__ import annotations

import json
import os
import secrets

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.tracker_section import MLFLOW_ADDRESS, MLFLOW_CREDENTIALS
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.inheritance import own_umask
from det_jupyter.contract.messages import Capsule
from det_jupyter.contract.values.addresses import variable_of


def with_environment(capsule: Capsule, config: ExperimentConfig, blobs: BlobStore) -> Capsule:
    """Return the capsule with the umask of this process, and the values of variables.

    These are the variables that the configuration names without a value.
    """
    capsule = capsule.model_copy(update={"umask": own_umask()})
    values, of_alerts = (
        {name: os.environ[name] for name in names if name in os.environ}
        for names in (_named_only(config), _names_of_services(config))
    )
    if not values and not of_alerts:
        return capsule
    # The blob's name is a digest of its content: without a salt it would verify guesses.
    kept = {"salt": secrets.token_hex(16), "values": values, "alerts": of_alerts}
    return capsule.model_copy(update={"environment": blobs.put(json.dumps(kept).encode())})


def find_unset(config: ExperimentConfig, *, in_notebook: bool = True) -> list[str]:
    """Return a notice for each variable that is named without a value and is not set here."""
    where = "in this notebook" if in_notebook else "here"
    how = "write %env {}=... in a cell" if in_notebook else "export {}=..."
    return [
        f"environment.environment_variables: {name} is not set {where}, so ranks get no "
        f"value of it; {how.format(name)}, and submit again."
        for name in _named_only(config)
        if name not in os.environ
    ]


def _named_only(config: ExperimentConfig) -> list[str]:
    """Return the variables that ranks get with their values in this process."""
    given = config.environment.environment_variables
    lists = given.values() if isinstance(given, dict) else [given]
    return list(dict.fromkeys(line for lines in lists for line in lines if "=" not in line))


_OF_MLFLOW = (MLFLOW_ADDRESS, *MLFLOW_CREDENTIALS)  # a configuration need not name them


def tracker_variables() -> dict[str, str]:
    """Return the variables that MLflow's library reads, with their values in this process."""
    return {name: os.environ[name] for name in _OF_MLFLOW if name in os.environ}


def _names_of_services(config: ExperimentConfig) -> list[str]:
    """Return the variables that alerts and trackers need; ranks do not get them."""
    trackers = config.trackers or []
    values = [value for each in [*(config.alerts or []), *trackers] for _, value in each]
    texts = [value for value in values if isinstance(value, str)]
    named = [name for text in texts if (name := variable_of(text)) is not None]
    has_mlflow = any(each.type == "mlflow" for each in trackers)
    return list(dict.fromkeys([*named, *(_OF_MLFLOW if has_mlflow else ())]))
