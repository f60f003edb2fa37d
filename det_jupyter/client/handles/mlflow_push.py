"""Registers a version of a model in MLflow, by a process that has MLflow's library.

Credentials of the environment and of the user's files go only to the address in
MLFLOW_TRACKING_URI, which stands beside them, and not over an unencrypted connection.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from det_jupyter.client.client import Client
from det_jupyter.client.handles.pushing import Layout, push_version
from det_jupyter.config.tracker_section import (
    EXPECTED_URI,
    MLFLOW_ADDRESS,
    MLFLOW_CREDENTIALS,
    OF_USER,
    is_database,
    is_tracking_uri,
    open_address,
)
from det_jupyter.contract.messages import ModelOrder, VersionView
from det_jupyter.contract.values.addresses import (
    has_credentials,
    is_in_the_clear,
    why_not_in_the_clear,
)
from det_jupyter.contract.values.reserved_hosts import why_reserved
from det_jupyter.errors import ConfigError, DetError, Problem

_SENDER = "det_jupyter.trackers.mlflow_models"


def push_to_mlflow(
    client: Client, name: str, version: VersionView, tracking_uri: str | None, layout: Layout
) -> str:
    """Register a version in MLflow; return its address there. See `ModelVersion.push`."""
    given = tracking_uri or os.environ.get(MLFLOW_ADDRESS) or ""
    uri = check_address(given)
    is_named = _is_named(uri)
    with TemporaryDirectory(prefix="det-push-") as temporary:
        folder = push_version(client, name, version, Path(temporary, "model"), layout)
        order = ModelOrder(
            tracking_uri=uri,
            is_named=is_named,
            secrets=[os.environ[each] for each in MLFLOW_CREDENTIALS if each in os.environ],
            name=name,
            folder=str(folder),
            has_checkpoint=layout == "plain",
            facts=json.loads((folder / "model.json").read_text(encoding="utf-8")),
        )
        answer = _send(order)
    return f"models:/{name}/{answer['version']}"


def check_address(uri: str) -> str:
    """Return the address of an MLflow that a version can be sent to.

    Raises:
        ConfigError: It is none.
        DetError: A password in it would be readable on the way, its host is one of clouds'
            metadata, or MLflow is not installed.
    """
    if not is_tracking_uri(uri):
        got = f"got {open_address(uri)}" if uri else f"neither it nor {MLFLOW_ADDRESS} is set"
        raise ConfigError([Problem("tracking_uri", f"{got}, expected {EXPECTED_URI}")])
    uri = uri.rstrip("/")
    host = urlsplit(uri).hostname or ""
    if not _is_named(uri) and (why := why_reserved(host, (), unless=MLFLOW_ADDRESS)):
        raise DetError(f"got {open_address(uri)}; {why}")
    if has_credentials(uri) and is_in_the_clear(uri):
        raise DetError(why_not_in_the_clear(uri, open_address(uri)))
    importlib.invalidate_caches()
    needed = "mlflow" if not is_database(uri) else "alembic"  # mlflow-skinny has no databases
    if find_spec("mlflow") is None or find_spec(needed) is None:
        package = "mlflow" if is_database(uri) else "'det-jupyter[mlflow]'"
        raise DetError(
            f"{open_address(uri)}: a version is registered by the package mlflow, which is not "
            f"installed; run `python -m pip install {package}` and try again"
        )
    return uri


def _is_named(uri: str) -> bool:
    return uri == os.environ.get(MLFLOW_ADDRESS, "").rstrip("/")


def environment(order: ModelOrder) -> Mapping[str, str]:
    """Return the variables of the process that sends: without credentials for other addresses."""
    if order.is_named and not is_in_the_clear(order.tracking_uri):
        return os.environ
    hidden = {"HOME": os.devnull, "NETRC": os.devnull}  # MLflow's files and .netrc are there
    return {k: v for k, v in os.environ.items() if k not in OF_USER} | hidden


def _send(order: ModelOrder) -> dict[str, str]:
    done = subprocess.run(
        [sys.executable, "-m", _SENDER],
        input=order.model_dump_json(),
        env=environment(order),
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        answer: dict[str, str] = json.loads(done.stdout)
    except ValueError:
        raise DetError(
            f"{open_address(order.tracking_uri)}: MLflow's library has failed (exit status "
            f"{done.returncode}); push again, which does not send again what is there"
        ) from None
    if "problem" in answer:
        raise DetError(answer["problem"])
    return answer
