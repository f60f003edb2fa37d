"""Where alerts go: addresses behind references, and the user's alerts.yaml.

Addresses of webhooks are secrets. One in a configuration or template is stored here, and replaced
by a reference before the document is stored, so that events, snapshots, views, exports and
checkpoints have only the reference. The table is as private as the database: mode 0600.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from det_jupyter.config.alerts import AlertsFile, UserAlert, read_alerts
from det_jupyter.config.sections import Alert
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.values.alerts import (
    file_of,
    is_url,
    shown,
    stored_number,
    variable_of,
)
from det_jupyter.errors import ConfigError, DetError, Problem

_LONGEST_FILE = 10_000  # bytes
_FILE_S = 5.0
_GRACE_S = 3600.0  # an address is stored before the experiment that refers to it


class AlertAddresses:
    """The table `alert_addresses`, and other places that references name.

    Args:
        data_dir: The folder with the blobs of variables.
    """

    def __init__(self, db: sqlite3.Connection, data_dir: Path) -> None:
        self._db = db
        self._blobs = BlobStore(data_dir / "blobs")
        self._file = data_dir / paths.ALERTS_FILE
        self._read: tuple[tuple[int, int, int], AlertsFile, list[Problem]] | None = None

    # references

    def hide(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration, or a part of one, with references in the place of addresses."""
        alerts = document.get("alerts")
        if not isinstance(alerts, list):
            return dict(document)
        hidden = [self._hidden(each) if isinstance(each, dict) else each for each in alerts]
        return {**document, "alerts": hidden}

    def _hidden(self, alert: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: self._reference(value)
            if key in Alert.WAYS and isinstance(value, str) and is_url(value)
            else value
            for key, value in alert.items()
        }

    def hidden_alert(self, alert: UserAlert) -> UserAlert:
        """Return an alert with a reference in the place of its address."""
        value = getattr(alert, alert.way)
        if not isinstance(value, str) or not is_url(value):
            return alert
        return alert.model_copy(update={alert.way: self._reference(value)})

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
        """Return the URL of a stored address, and any other address as it is.

        Raises:
            DetError: It is not stored here.
        """
        number = stored_number(address)
        if number is None:
            return address
        query = "SELECT address FROM alert_addresses WHERE id = ?"
        row: tuple[str] | None = self._db.execute(query, (number,)).fetchone()
        if row is None or shown(row[0], number) != address:
            raise DetError(f"{address} is not stored here; write the address itself")
        return row[0]

    def follow(self, address: str, environment: str | None) -> str:
        """Return the URL behind an address that `stored` has returned; may be called in a thread.

        Args:
            environment: The blob with the variables that the experiment was submitted with.

        Raises:
            DetError: There is none; the message has no secret.
        """
        if (name := variable_of(address)) is not None:
            found = self._variables(environment).get(name) or os.environ.get(name, "")
            if not found:
                raise DetError(
                    f"{name} is not set where the experiment was submitted, nor where the master "
                    "was started; set it there, or write file:/PATH of a file with the address"
                )
        elif (path := file_of(address)) is not None:
            found = _first_line(path)
        else:
            found = address
        if not is_url(found):
            raise DetError(f"{shown(address)} holds no address; expected https://...")
        return found

    def _variables(self, environment: str | None) -> dict[str, str]:
        if environment is None:
            return {}
        try:
            values: dict[str, str] = json.loads(self._blobs.read(environment)).get("alerts", {})
        except (OSError, DetError, ValueError):  # deleted with its experiment
            return {}
        return values

    async def find_problems(
        self, alerts: Iterable[Alert], environment: str | None
    ) -> list[Problem]:
        """Return the problems of an experiment's alerts whose addresses cannot be found."""
        known = {each.name for each in self.own().alerts if each.name}
        found = []
        for index, alert in enumerate(alerts):
            if not alert.way:
                if alert.name not in known:
                    names = ", ".join(sorted(known)) or "none"
                    text = (
                        f"got {alert.name!r}, which has no address here; alerts.yaml has {names}"
                    )
                    found.append(Problem(f"alerts[{index}].name", text))
                continue
            try:
                address = self.stored(getattr(alert, alert.way))
                async with asyncio.timeout(_FILE_S):  # a drive may hang
                    await asyncio.to_thread(self.follow, address, environment)
            except (DetError, TimeoutError) as error:
                text = str(error) or f"{shown(address)} could not be read within {_FILE_S:g} s"
                found.append(Problem(f"alerts[{index}].{alert.way}", text))
        return found

    def sweep(self, used: Iterable[int], now: float) -> None:
        """Delete stored addresses that nothing refers to."""
        kept = set(used)
        rows = self._db.execute("SELECT id FROM alert_addresses WHERE at < ?", (now - _GRACE_S,))
        gone = [(number,) for (number,) in rows.fetchall() if number not in kept]
        self._db.executemany("DELETE FROM alert_addresses WHERE id = ?", gone)

    # alerts.yaml

    def own(self) -> AlertsFile:
        """Return the content of alerts.yaml as it is now; none of it if something is wrong."""
        return self._own()[0]

    def own_problems(self) -> list[Problem]:
        """Return the problems of alerts.yaml, because of which nothing in it counts."""
        return self._own()[1]

    def _own(self) -> tuple[AlertsFile, list[Problem]]:
        try:
            stat = self._file.stat()
        except OSError:
            return AlertsFile(), []
        version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._read is None or self._read[0] != version:
            try:
                text = paths.read_private(self._file)
                self._read = version, read_alerts(text), []
            except ConfigError as error:
                named = [replace(each, source=self._file.name) for each in error.problems]
                self._read = version, AlertsFile(), named
            except (OSError, DetError) as error:
                problem = Problem("", f"cannot be read: {error}", source=self._file.name)
                self._read = version, AlertsFile(), [problem]
        return self._read[1], self._read[2]


def addresses_in(config: Mapping[str, Any]) -> Iterator[int]:
    """Yield the numbers of the stored addresses that a configuration refers to."""
    alerts = config.get("alerts")
    for alert in alerts if isinstance(alerts, list) else ():
        for value in alert.values() if isinstance(alert, Mapping) else ():
            if isinstance(value, str) and (number := stored_number(value)) is not None:
                yield number


def _first_line(path: str) -> str:
    """Return the first line of a file.

    Raises:
        DetError: It cannot be read.
    """
    try:
        # A pipe must not block.
        descriptor = os.open(os.path.expanduser(path), os.O_RDONLY | os.O_NONBLOCK)
        with open(descriptor, encoding="utf-8") as file:
            return file.read(_LONGEST_FILE).strip().partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DetError(f"{path} cannot be read: {reason}") from None
