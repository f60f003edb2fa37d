"""What the process of a tracker gets: the entry with what its references name, and credentials.

A configuration may come from somebody else, so the address in it gets none of the credentials of
the user's environment, unless the user has named the same address: in MLFLOW_TRACKING_URI or in
trackers.yaml. Nor may it lead to a cloud's metadata then. No credentials go over http to another
computer, whoever has named it.

Also what is known before anything is sent: that a library or an address is missing.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import socket
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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
from det_jupyter.contract.messages import TrackerOrder
from det_jupyter.contract.values.addresses import (
    has_credentials,
    is_in_the_clear,
    is_url,
    why_not_in_the_clear,
)
from det_jupyter.contract.values.reserved_hosts import is_reserved, names_reserved
from det_jupyter.errors import DetError, Problem
from det_jupyter.master.service.addresses import Addresses
from det_jupyter.master.service.tracker_places import Place

_FILE_S = 5.0


async def find_tracker_problems(
    addresses: Addresses,
    tracker: Tracker,
    environment: str | None,
    *,
    own: Iterable[Tracker],
) -> list[Problem]:
    """Return why a tracker could not be sent to, as far as is known without trying.

    Paths are within its entry.

    Args:
        environment: The blob with the variables that the experiment was submitted with.
        own: The user's trackers, from trackers.yaml.
    """
    problems = list(find_missing_library(tracker))
    try:
        variables = await variables_of(addresses, environment)
        if (address := await _address_of(addresses, tracker, variables)) is not None:
            _check(address, variables, await _users_addresses(addresses, own, variables))
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


async def variables_of(addresses: Addresses, environment: str | None) -> dict[str, str]:
    """Return the variables that an experiment was submitted with for its trackers and alerts.

    Args:
        environment: The blob that has them, or they themselves as JSON (`renewed`).
    """
    if environment is None:
        return {}
    if environment.startswith("{"):
        values: dict[str, str] = json.loads(environment)
        return values
    return await in_thread(lambda: addresses.variables(environment))


async def renewed(
    addresses: Addresses, tracker: Tracker, environment: str | None, variables: Mapping[str, str]
) -> str | None:
    """Return the variables for a tracker, as JSON, with those of the place where a user asks.

    That they name another address means that they are not for this one: it keeps its own.
    """
    before = await variables_of(addresses, environment)
    if any(name in variables for name in MLFLOW_CREDENTIALS):
        before = {name: value for name, value in before.items() if name not in MLFLOW_CREDENTIALS}
    after = {**before, **variables}
    with suppress(DetError):
        address = await _address_of(addresses, tracker, after)
        if variables and address == variables.get(MLFLOW_ADDRESS, address or "").rstrip("/"):
            return json.dumps(after)
    return environment


async def order_of(
    addresses: Addresses, place: Place, *, own: Iterable[Tracker], folder: Path
) -> TrackerOrder:
    """Return the order for the process of a place.

    Args:
        own: The user's trackers, from trackers.yaml.
        folder: For files of trackers.

    Raises:
        DetError: What the entry names cannot be found; the message has no secret.
    """
    tracker = place.tracker
    for problem in find_missing_library(tracker):
        raise DetError(problem.text)
    address = await _address_of(addresses, tracker, place.variables)
    document = tracker.model_dump(exclude_none=True)
    named = await _users_addresses(addresses, own, place.variables)
    if address is not None:
        _check(address, place.variables, named)
        await _check_resolved(address, named)
    is_users = address is None or (address in named and not is_in_the_clear(address))
    return TrackerOrder(
        group=place.group,
        tracker=document if address is None else {**document, "tracking_uri": address},
        folder=tracker.folder or str(folder),
        credentials=_credentials(place.variables) if is_users else {},
        is_users=is_users,
        is_named=address is None or address in named,
    )


def _credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those where the experiment was submitted; if there are none, the master's."""
    found = (
        {name: each[name] for name in MLFLOW_CREDENTIALS if name in each}
        for each in (variables, os.environ)
    )
    return next(filter(None, found), {})


def _check(address: str, variables: Mapping[str, str], named: Container[str]) -> None:
    """Check that an address gets no credentials that can be read on the way, and may be used.

    Args:
        address: An address of an MLflow.
        variables: Those that the experiment was submitted with.
        named: The addresses that the user has named.

    Raises:
        DetError: Credentials would be sent over http, or the host is one of clouds' metadata.
    """
    if not is_url(address):
        return
    parts = urlsplit(address)
    gets_credentials = has_credentials(address) or (address in named and _credentials(variables))
    if gets_credentials and is_in_the_clear(address):
        raise DetError(why_not_in_the_clear(address, open_address(address)))
    if address not in named and names_reserved(parts.hostname or ""):
        raise _reserved(parts.hostname)


async def _check_resolved(address: str, named: Container[str]) -> None:
    host = urlsplit(address).hostname
    if host is None or address in named:
        return
    found: list[Any] = []
    with suppress(OSError, UnicodeError, TimeoutError):  # the process says that it is not known
        async with asyncio.timeout(_FILE_S):
            found = await in_thread(lambda: socket.getaddrinfo(host, None))
    if any(is_reserved(str(entry[4][0])) for entry in found):
        raise _reserved(host)


def _reserved(host: str | None) -> DetError:
    return DetError(
        f"the host {host} is one of clouds' metadata, to which nothing is sent unless "
        "trackers.yaml or MLFLOW_TRACKING_URI names it"
    )


async def _users_addresses(
    addresses: Addresses, own: Iterable[Tracker], variables: Mapping[str, str]
) -> set[str]:
    """Return the addresses that the user has named, in variables and in trackers.yaml."""
    found = {
        each[MLFLOW_ADDRESS].rstrip("/")
        for each in (variables, os.environ)
        if MLFLOW_ADDRESS in each
    }
    for tracker in own:
        with suppress(DetError):
            if (address := await _address_of(addresses, tracker, {})) is not None:
                found.add(address)
    return found


async def _address_of(
    addresses: Addresses, tracker: Tracker, variables: Mapping[str, str]
) -> str | None:
    """Return the address of a tracker; None: it has none.

    Raises:
        DetError: What it is named by names none.
    """
    if (named := tracker.address) is None:
        return None
    stored = addresses.stored(named)
    try:
        async with asyncio.timeout(_FILE_S):  # a drive may hang
            address = await in_thread(lambda: addresses.value_of(stored, variables))
    except TimeoutError:
        raise DetError(f"{named} could not be read within {_FILE_S:g} s") from None
    if not is_tracking_uri(address):
        raise DetError(f"{open_address(named)} holds no address; expected {EXPECTED_URI}")
    return address.rstrip("/")
