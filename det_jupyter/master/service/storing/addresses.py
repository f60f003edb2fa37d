"""Addresses of alerts and trackers: stored behind references, or in the user's own files.

Addresses of webhooks are secrets; so may be addresses of trackers, except host and port. An
address in a configuration or template is stored here, and replaced by a reference before the
document is stored, so that events, snapshots, views, exports and checkpoints have only the
reference. The table is as private as the database: mode 0600.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_jupyter.config.alerts import AlertsFile, read_alerts
from det_jupyter.config.sections import Alert
from det_jupyter.config.trackers import TrackersFile, read_trackers
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.host.tasks import in_thread
from det_jupyter.contract.values.addresses import (
    file_of,
    is_place_only,
    is_url,
    shown,
    stored_number,
    stored_numbers,
    variable_of,
)
from det_jupyter.errors import DetError, Problem
from det_jupyter.master.service.storing.user_file import UserFile

_SECTIONS = ("alerts", "trackers")
_LONGEST_FILE = 10_000  # most bytes of a file with an address
_FILE_S = 5.0
_GRACE_S = 3600.0  # an address is stored before the experiment that refers to it


class Addresses:
    """Resolves references: to the table `alert_addresses`, variables and files.

    Args:
        data_dir: The folder with the blobs of variables, alerts.yaml and trackers.yaml.

    Attributes:
        alerts: The user's alerts.yaml.
        trackers: The user's trackers.yaml.
    """

    def __init__(self, db: sqlite3.Connection, data_dir: Path) -> None:
        self._db = db
        self._blobs = BlobStore.of(data_dir)
        self.alerts = UserFile(data_dir / paths.ALERTS_FILE, read_alerts, AlertsFile())
        self.trackers = UserFile(data_dir / paths.TRACKERS_FILE, read_trackers, TrackersFile())

    @property
    def problems(self) -> list[Problem]:
        """The problems of alerts.yaml and trackers.yaml."""
        return [*self.alerts.problems, *self.trackers.problems]

    def hide(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration, or a part of one, with references instead of addresses."""
        hidden = dict(document)
        for section in _SECTIONS:
            if isinstance(entries := document.get(section), list):
                hidden[section] = [
                    self.hide_entry(each) if isinstance(each, dict) else each for each in entries
                ]
        return hidden

    def hide_entry(self, entry: Mapping[str, Any]) -> dict[str, Any]:
        """Return an alert or a tracker with a reference instead of an address."""
        return {
            key: self._reference(value) if _is_secret(key, value) else value
            for key, value in entry.items()
        }

    def _reference(self, address: str) -> str:
        self._db.execute(
            "INSERT INTO alert_addresses (at, address) VALUES (?, ?) "
            "ON CONFLICT (address) DO UPDATE SET at = excluded.at",
            (time.time(), address),
        )
        query = "SELECT id FROM alert_addresses WHERE address = ?"
        number: int = self._db.execute(query, (address,)).fetchone()[0]
        return shown(address, number)

    def stored(self, address: str) -> str:
        """Return the URL that a reference to the table stands for; any other address unchanged.

        Raises:
            DetError: The URL is not stored here.
        """
        number = stored_number(address)
        if number is None:
            return address
        query = "SELECT address FROM alert_addresses WHERE id = ?"
        row: tuple[str] | None = self._db.execute(query, (number,)).fetchone()
        if row is None or shown(row[0], number) != address:
            raise DetError(f"{address} is not stored here; write the address itself")
        return row[0]

    async def find(self, reference: str, variables: Mapping[str, str]) -> str:
        """Return the address that a reference stands for; any other text unchanged.

        Args:
            variables: The variables that the experiment was submitted with.

        Raises:
            DetError: The reference cannot be resolved; the message contains no secret.
        """
        address = self.stored(reference)
        if (name := variable_of(address)) is not None:
            found = variables.get(name) or os.environ.get(name, "")
            if not found:
                raise DetError(
                    f"{name} is not set where the experiment was submitted, nor where the master "
                    "was started; set it there, or write file:/PATH of a file that has it"
                )
            return found
        if (path := file_of(address)) is not None:
            try:
                async with asyncio.timeout(_FILE_S):  # a drive may hang
                    return await in_thread(lambda: _first_line(path))
            except TimeoutError:
                raise DetError(f"{address} could not be read within {_FILE_S:g} s") from None
        return address

    async def find_all(self, references: Iterable[str]) -> set[str]:
        """Return the addresses that references in the user's own files can be resolved to."""
        found = set()
        for reference in references:
            with suppress(DetError):
                found.add(await self.find(reference, {}))
        return found

    async def variables(self, environment: str | None) -> dict[str, str]:
        """Return the environment variables for an experiment's alerts and trackers, as submitted.

        Args:
            environment: The blob that contains them, or the variables as JSON
                (`address_checks.renewed`).
        """
        if environment is None:
            return {}
        if environment.startswith("{"):
            values: dict[str, str] = json.loads(environment)
            return values
        try:
            content = await in_thread(lambda: self._blobs.read(environment))
            values = json.loads(content).get("alerts", {})
        except (OSError, DetError, ValueError):  # the blob was deleted with its experiment
            return {}
        return values

    def sweep(self, configs: Iterable[Mapping[str, Any]], now: float) -> None:
        """Delete stored addresses that no configuration, waiting alert or tracker refers to."""
        rows = self._db.execute(
            "SELECT destination FROM alerts WHERE state = 'waiting' "
            "UNION SELECT tracker FROM tracked"
        )
        texts = [text for (text,) in rows.fetchall()]
        texts += [json.dumps([config.get(each) for each in _SECTIONS]) for config in configs]
        used = {number for text in texts for number in stored_numbers(text)}
        rows = self._db.execute("SELECT id FROM alert_addresses WHERE at < ?", (now - _GRACE_S,))
        gone = [(number,) for (number,) in rows.fetchall() if number not in used]
        self._db.executemany("DELETE FROM alert_addresses WHERE id = ?", gone)


def _is_secret(key: str, value: Any) -> bool:
    if not isinstance(value, str) or not is_url(value):
        return False
    return key in Alert.WAYS or (key == "tracking_uri" and not is_place_only(value))


def _first_line(path: str) -> str:
    """Return the first line of a file.

    Raises:
        DetError: The file cannot be read.
    """
    try:
        with open_regular(os.path.expanduser(path)) as file:
            return file.read(_LONGEST_FILE).strip().partition(b"\n")[0].strip().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DetError(f"{path} cannot be read: {reason}") from None
