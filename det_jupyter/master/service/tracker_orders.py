"""What the process of a tracker gets: the entry with what its references name, and credentials.

A configuration may come from somebody else, so the address in it gets none of the credentials of
the user's environment, unless the user has named the same address: in MLFLOW_TRACKING_URI or in
trackers.yaml.

Also what is known before anything is sent: that a library or an address is missing.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

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
from det_jupyter.errors import DetError, Problem
from det_jupyter.master.service.addresses import Addresses
from det_jupyter.master.service.tracker_places import Place

_FILE_S = 5.0


async def find_tracker_problems(
    addresses: Addresses, tracker: Tracker, environment: str | None
) -> list[Problem]:
    """Return why a tracker could not be sent to, as far as is known without trying.

    Paths are within its entry.

    Args:
        environment: The blob with the variables that the experiment was submitted with.
    """
    problems = list(find_missing_library(tracker))
    try:
        await _address_of(addresses, tracker, await variables_of(addresses, environment))
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
    is_users = address is None or address in await _users_addresses(
        addresses, own, place.variables
    )
    return TrackerOrder(
        group=place.group,
        tracker=document if address is None else {**document, "tracking_uri": address},
        folder=tracker.folder or str(folder),
        credentials=_credentials(place.variables) if is_users else {},
        is_users=is_users,
    )


def _credentials(variables: Mapping[str, str]) -> dict[str, str]:
    """Return those where the experiment was submitted; if there are none, the master's."""
    found = (
        {name: each[name] for name in MLFLOW_CREDENTIALS if name in each}
        for each in (variables, os.environ)
    )
    return next(filter(None, found), {})


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
