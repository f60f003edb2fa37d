"""Finds the secrets that files for others must not contain."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import suppress

from det_jupyter.client.client import Client
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import ExperimentView
from det_jupyter.contract.values.redacting import is_secret, passwords_in
from det_jupyter.contract.values.variables import assigned_values
from det_jupyter.errors import NotFound

_SHORTEST = 8  # characters; shorter values occur in ordinary texts


def known_secrets(client: Client, view: ExperimentView) -> dict[str, str]:
    """Return what each secret is, by its value.

    These are the master's token, secrets in this process's environment, and the values of
    variables that the experiment has captured or lists.
    """
    found = [*secrets_of_environment()]
    with suppress(NotFound, ValueError):
        found += captured_values(client, view)
    listed = assigned_values(view.config).items()
    found += [(name, value) for name, value in listed if is_secret(name, value)]
    named = {
        value: f"the value of the environment variable {name}"
        for name, value in found
        if len(value) >= _SHORTEST and not value.startswith(os.sep)  # no path, as in PWD
    }
    return {client.session.info.token: "the master's token", **named}


def secrets_of_environment() -> Iterator[tuple[str, str]]:
    """Yield the name of a variable of this process and its value, or a password in its URL."""
    for name, value in os.environ.items():
        if is_secret(name, value):
            yield name, value
        yield from ((name, password) for password in passwords_in(value))


def captured_values(client: Client, view: ExperimentView) -> Iterator[tuple[str, str]]:
    """Yield name and value of what an experiment captured: variables, and addresses of alerts.

    Raises:
        NotFound: The blob of its variables is gone.
        ValueError: It is damaged.
    """
    if view.capsule.environment is not None:
        blobs = BlobStore.of(client.session.info.data_dir)
        kept = json.loads(blobs.read(view.capsule.environment))
        yield from kept["values"].items()
        yield from kept.get("alerts", {}).items()
