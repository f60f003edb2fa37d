"""What the process of a tracker is told: the entry with what its references name.

Also what is known of a tracker before anything is sent: that its library is missing, or its key.
"""

from __future__ import annotations

import asyncio
import importlib
import netrc
import os
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from det_jupyter.config.tracker_section import Tracker, is_database, open_address
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.messages import TrackerOrder
from det_jupyter.contract.values.alerts import is_url
from det_jupyter.errors import DetError, Problem
from det_jupyter.master.service.alert_addresses import AlertAddresses

_FILE_S = 5.0
WANDB_URL = "https://api.wandb.ai"
_CREDENTIALS = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")


async def find_tracker_problems(
    addresses: AlertAddresses, tracker: Tracker, environment: str | None
) -> list[Problem]:
    """Return why a tracker could not be sent to, as far as is known without trying.

    Paths are within its entry.

    Args:
        environment: The blob with the variables that the experiment was submitted with.
    """
    problems = list(find_missing_library(tracker))
    if tracker.type == "wandb" and not tracker.is_offline:
        text = "this version writes files for `wandb sync` only; write mode: offline"
        problems.append(Problem("mode", text))
    try:
        await _values_of(addresses, tracker, environment)
    except DetError as error:
        problems += [Problem(key, str(error)) for key in tracker.references]
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


async def order_of(
    addresses: AlertAddresses,
    tracker: Tracker,
    environment: str | None,
    *,
    group: str,
    folder: Path,
) -> TrackerOrder:
    """Return the order for the process of a tracker.

    Args:
        environment: The blob with the variables that the experiment was submitted with.
        group: Names what the process asks for.
        folder: For files of trackers.

    Raises:
        DetError: What the entry names cannot be found; the message has no secret.
    """
    for problem in find_missing_library(tracker):
        raise DetError(problem.text)
    values = await _values_of(addresses, tracker, environment)
    sent_along = await in_thread(lambda: addresses.variables(environment))
    return TrackerOrder(
        group=group,
        tracker={**tracker.model_dump(exclude_none=True), **values},
        folder=tracker.folder or str(folder),
        environment={name: sent_along[name] for name in _CREDENTIALS if name in sent_along},
    )


async def _values_of(
    addresses: AlertAddresses, tracker: Tracker, environment: str | None
) -> dict[str, str]:
    """Return what a tracker's references name, by key.

    Raises:
        DetError: One of them names nothing.
    """
    stored = {key: addresses.stored(each) for key, each in tracker.references.items()}

    def follow() -> dict[str, str]:
        return {key: addresses.value_of(each, environment) for key, each in stored.items()}

    try:
        async with asyncio.timeout(_FILE_S):  # a drive may hang
            values = await in_thread(follow)
    except TimeoutError:
        raise DetError(f"a file could not be read within {_FILE_S:g} s") from None
    except DetError as error:
        if tracker.type == "wandb" and tracker.api_key is None:
            if has_login(tracker.base_url or WANDB_URL):
                return {}
            raise DetError(f"missing: {error}; or write mode: offline") from None
        raise
    address = values.get("tracking_uri")
    if address is not None and not (is_url(address) or is_database(address)):
        named = open_address(tracker.references["tracking_uri"])
        raise DetError(f"{named} holds no address; expected http://HOST:PORT or sqlite:////PATH")
    return values


def has_login(url: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether `wandb login` has stored a key for this server."""
    path = environ.get("NETRC") or os.path.expanduser("~/.netrc")
    try:
        return netrc.netrc(path).authenticators(urlsplit(url).hostname or "") is not None
    except (OSError, netrc.NetrcParseError):
        return False
