"""Checks of what an experiment sends to which address, made before anything is sent.

    in the clear    no name, password or token is sent over http to another computer
    reserved        nothing is sent to metadata services of clouds, unless the user names the
                    address
    credentials     of the user's environment are sent only to addresses that the user names

Another person may have written a configuration. Users name addresses in their own files,
alerts.yaml and trackers.yaml, and in MLFLOW_TRACKING_URI.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from urllib.parse import urlsplit

from det_jupyter.config import ExperimentConfig
from det_jupyter.config.sections import Alert
from det_jupyter.config.tracker_section import (
    EXPECTED_URI,
    MLFLOW_ADDRESS,
    MLFLOW_CREDENTIALS,
    Tracker,
    is_database,
    is_tracking_uri,
    open_address,
)
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import Capsule, CheckpointView, TrackerOrder
from det_jupyter.contract.values.addresses import (
    has_credentials,
    is_in_the_clear,
    is_url,
    shown,
    why_not_in_the_clear,
)
from det_jupyter.contract.values.bucket_urls import is_in_bucket
from det_jupyter.contract.values.reserved_hosts import why_reserved
from det_jupyter.errors import BucketProblem, ConfigError, DetError, Problem
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.storage.buckets.storage import BucketStorage

_RESOLVE_S = 5.0


async def check_services(
    addresses: Addresses, config: ExperimentConfig, capsule: Capsule, state: MachineState
) -> None:
    """Check that alerts, trackers and the bucket can be reached, as far as is known here.

    The bucket may be another computer's alone to use, if one has an agent: then that checks it
    before the first batch.

    Raises:
        ConfigError: Some cannot be reached; the error has all problems.
    """
    problems = await find_problems(addresses, config, capsule.environment)
    if not any(agent.is_remote for agent in state.agents.values()):
        location = config.checkpoint_storage.location
        problems += await find_bucket_problems(location, state.checkpoints.values())
    if problems:
        raise ConfigError(problems)


async def find_bucket_problems(
    location: str | None, checkpoints: Iterable[CheckpointView]
) -> list[Problem]:
    """Return why checkpoints cannot be stored at a location, if it is in a bucket.

    A bucket that is away but has checkpoints is no problem: the agent waits for it.

    Args:
        location: Where the checkpoints of an experiment go.
        checkpoints: All that are known.
    """
    if location is None or not is_in_bucket(location):
        return []
    try:
        await in_thread(BucketStorage(location).check_writable)
    except BucketProblem as problem:
        is_known = any(each.path.rpartition("/")[0] == location for each in checkpoints)
        is_waited_for = problem.kind == "away" and is_known
        return [] if is_waited_for else [Problem("checkpoint_storage", str(problem))]
    return []


async def find_problems(
    addresses: Addresses, config: ExperimentConfig, environment: str | None
) -> list[Problem]:
    """Return why alerts and trackers of an experiment could not be reached, as far as is known.

    Args:
        environment: The variables that it was submitted with, in the form that
            `Addresses.variables` reads.
    """
    found = []
    for index, alert in enumerate(config.alerts or ()):
        problems = await _find_alert_problems(addresses, alert, environment)
        found += [replace(each, path=f"alerts[{index}].{each.path}") for each in problems]
    for index, tracker in enumerate(config.trackers or ()):
        problems = await find_tracker_problems(addresses, tracker, environment)
        found += [replace(each, path=f"trackers[{index}].{each.path}") for each in problems]
    return found


async def resolve(host: str) -> list[str]:
    """Return the IP addresses of a host.

    Raises:
        OSError, UnicodeError: There is no address.
    """
    found = await in_thread(lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


# alerts


async def _find_alert_problems(
    addresses: Addresses, alert: Alert, environment: str | None
) -> list[Problem]:
    if not alert.way:
        known = sorted({each.name for each in addresses.alerts.content.alerts if each.name})
        names = ", ".join(known) or "none"
        text = f"got {alert.name!r}, which has no address here; alerts.yaml has {names}"
        return [] if alert.name in known else [Problem("name", text)]
    try:
        await find_webhook(addresses, getattr(alert, alert.way), environment)
    except DetError as error:
        return [Problem(alert.way, str(error))]
    return []


async def find_webhook(addresses: Addresses, reference: str, environment: str | None) -> str:
    """Return the URL that an alert goes to.

    Raises:
        DetError: There is no URL, or its name and password would be sent unencrypted; the message
            contains no secret.
    """
    found = await addresses.find(reference, await addresses.variables(environment))
    if not is_url(found):
        raise DetError(f"{shown(reference)} holds no address; expected https://...")
    if has_credentials(found) and is_in_the_clear(found):
        raise DetError(why_not_in_the_clear(found, shown(found)))
    return found


async def is_named_webhook(addresses: Addresses, url: str) -> bool:
    """Return whether the user's alerts.yaml names this URL."""
    values = [getattr(each, each.way) for each in addresses.alerts.content.alerts]
    return url in await addresses.find_all(each for each in values if isinstance(each, str))


# trackers


async def find_order(
    addresses: Addresses,
    tracker: Tracker,
    variables: Mapping[str, str],
    *,
    group: str = "",
    folder: str = "",
) -> TrackerOrder:
    """Return the order for a tracker's process: its address, credentials and settings.

    Args:
        variables: The variables that the experiment was submitted with.
        group: The name of the process that gets the order.
        folder: A folder for files, if the tracker names none.

    Raises:
        DetError: The address cannot be found, must not be used, or would get credentials
            unencrypted; the message contains no secret.
    """
    address = await _find_address(addresses, tracker, variables)
    credentials, document = _credentials(variables), tracker.model_dump(exclude_none=True)
    is_named, is_clear = True, False
    if address is not None:
        document["tracking_uri"] = address
        is_named = address in await _named_addresses(addresses, variables)
        is_clear = is_url(address) and is_in_the_clear(address)
        if is_clear and (has_credentials(address) or (is_named and credentials)):
            raise DetError(why_not_in_the_clear(address, open_address(address)))
        if not is_named:
            _refuse_reserved(urlsplit(address).hostname)
    gets_credentials = is_named and not is_clear
    return TrackerOrder(
        group=group,
        tracker=document,
        folder=tracker.folder or folder,
        credentials=credentials if gets_credentials else {},
        gets_credentials=gets_credentials,
        is_named=is_named,
    )


async def refuse_resolved(order: TrackerOrder) -> None:
    """Check the IP address of a tracker whose address only a configuration names.

    Raises:
        DetError: The address is reserved. The library reports a host that cannot be resolved.
    """
    host = urlsplit(order.tracker.get("tracking_uri", "")).hostname
    if host is None or order.is_named:
        return
    with suppress(OSError, UnicodeError, TimeoutError):
        async with asyncio.timeout(_RESOLVE_S):
            resolved = await resolve(host)
        _refuse_reserved(host, *resolved)


def _refuse_reserved(host: str | None, *resolved: str) -> None:
    unless = "trackers.yaml or MLFLOW_TRACKING_URI"
    if why := why_reserved(host or "", resolved, unless=unless):
        raise DetError(why)


async def find_tracker_problems(
    addresses: Addresses, tracker: Tracker, environment: str | None
) -> list[Problem]:
    """Return why a tracker could not be sent to, as far as is known; paths start at its entry."""
    problems = list(find_missing_library(tracker))
    try:
        await find_order(addresses, tracker, await addresses.variables(environment))
    except DetError as error:
        problems.append(Problem("tracking_uri", str(error)))
    return problems


def find_missing_library(tracker: Tracker) -> Iterator[Problem]:
    """Yield a problem if the library that a tracker needs is not installed here."""
    importlib.invalidate_caches()  # it may have been installed since the master started
    if find_spec(tracker.type) is None:
        install = f"pip install 'det-jupyter[{tracker.type}]'"
        text = f"the package {tracker.type} is not installed where the master runs; {install}"
        yield Problem("type", text)
    elif is_database(tracker.tracking_uri or "") and find_spec("alembic") is None:
        text = "an address of a file needs the whole of MLflow where the master runs; "
        yield Problem("tracking_uri", f"{text}pip install mlflow")


async def renewed(
    addresses: Addresses, tracker: Tracker, environment: str | None, variables: Mapping[str, str]
) -> str | None:
    """Return the variables for a tracker as JSON, updated by those of the requesting user.

    If these name another address, they are not meant for this tracker, which keeps its own.
    """
    before = await addresses.variables(environment)
    if any(name in variables for name in MLFLOW_CREDENTIALS):
        before = {name: value for name, value in before.items() if name not in MLFLOW_CREDENTIALS}
    after = {**before, **variables}
    with suppress(DetError):
        address = await _find_address(addresses, tracker, after)
        if variables and address == variables.get(MLFLOW_ADDRESS, address or "").rstrip("/"):
            return json.dumps(after)
    return environment


def _credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the credentials in these variables or, if there are none, the master's."""
    found = (
        {name: each[name] for name in MLFLOW_CREDENTIALS if name in each}
        for each in (variables, os.environ)
    )
    return next(filter(None, found), {})


async def _named_addresses(addresses: Addresses, variables: Mapping[str, str]) -> set[str]:
    """Return the addresses of trackers that the user has named, in variables and trackers.yaml."""
    own = [each.address for each in addresses.trackers.content.trackers if each.address]
    found = await addresses.find_all(own)
    found |= {each[MLFLOW_ADDRESS] for each in (variables, os.environ) if MLFLOW_ADDRESS in each}
    return {each.rstrip("/") for each in found}


async def _find_address(
    addresses: Addresses, tracker: Tracker, variables: Mapping[str, str]
) -> str | None:
    """Return the address of a tracker; None if it has none.

    Raises:
        DetError: A reference to the address cannot be resolved.
    """
    if (named := tracker.address) is None:
        return None
    address = await addresses.find(named, variables)
    if not is_tracking_uri(address):
        raise DetError(f"{open_address(named)} holds no address; expected {EXPECTED_URI}")
    return address.rstrip("/")
