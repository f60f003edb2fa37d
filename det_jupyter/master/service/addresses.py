"""Where alerts and trackers are: addresses behind references, and the user's alerts.yaml.

Addresses of webhooks are secrets, and so may be those of trackers, beyond host and port. One in a
configuration or template is stored here, and replaced by a reference before the document is
stored, so that events, snapshots, views, exports and checkpoints have only the reference. The
table is as private as the database: mode 0600.
"""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_jupyter.config.alerts import AlertsFile, UserAlert, read_alerts
from det_jupyter.config.sections import Alert
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.regular_files import open_regular
from det_jupyter.contract.values.addresses import (
    file_of,
    has_credentials,
    is_in_the_clear,
    is_place_only,
    is_url,
    shown,
    stored_number,
    variable_of,
    why_not_in_the_clear,
)
from det_jupyter.errors import DetError, Problem
from det_jupyter.master.service.user_file import UserFile

_LONGEST_FILE = 10_000  # bytes
_FILE_S = 5.0
_GRACE_S = 3600.0  # an address is stored before the experiment that refers to it


class Addresses:
    """The table `alert_addresses`, and other places that references name.

    Args:
        data_dir: The folder with the blobs of variables.
    """

    def __init__(self, db: sqlite3.Connection, data_dir: Path) -> None:
        self._db = db
        self._blobs = BlobStore(data_dir / "blobs")
        self.file = UserFile(data_dir / paths.ALERTS_FILE, read_alerts, AlertsFile())

    # references

    def hide(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Return a configuration, or a part of one, with references in the place of addresses."""
        hidden = dict(document)
        for section, hide in (("alerts", self._hidden), ("trackers", self.hidden_tracker)):
            if isinstance(entries := document.get(section), list):
                hidden[section] = [hide(e) if isinstance(e, dict) else e for e in entries]
        return hidden

    def _hidden(self, alert: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: self._reference(value)
            if key in Alert.WAYS and isinstance(value, str) and is_url(value)
            else value
            for key, value in alert.items()
        }

    def hidden_tracker(self, tracker: Mapping[str, Any]) -> dict[str, Any]:
        """Return an entry of `trackers` with a reference in the place of an address."""
        address = tracker.get("tracking_uri")
        if isinstance(address, str) and is_url(address) and not is_place_only(address):
            return {**tracker, "tracking_uri": self._reference(address)}
        return dict(tracker)

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
            DetError: There is none, or its name and password would be sent in the clear; the
                message has no secret.
        """
        found = self.value_of(address, self.variables(environment))
        if not is_url(found):
            raise DetError(f"{shown(address)} holds no address; expected https://...")
        if has_credentials(found) and is_in_the_clear(found):
            raise DetError(why_not_in_the_clear(found, shown(found)))
        return found

    def value_of(self, reference: str, variables: Mapping[str, str]) -> str:
        """Return what a reference names, any other text as it is; may be called in a thread.

        Args:
            variables: Those that the experiment was submitted with.

        Raises:
            DetError: It names nothing; the message has no secret.
        """
        if (name := variable_of(reference)) is not None:
            found = variables.get(name) or os.environ.get(name, "")
            if not found:
                raise DetError(
                    f"{name} is not set where the experiment was submitted, nor where the master "
                    "was started; set it there, or write file:/PATH of a file that has it"
                )
            return found
        if (path := file_of(reference)) is not None:
            return _first_line(path)
        return reference

    def is_users(self, url: str) -> bool:
        """Return whether the user's alerts.yaml names this URL; may be called in a thread."""
        for alert in self.file.content.alerts:
            value = getattr(alert, alert.way)
            with suppress(DetError):  # it names nothing now
                if isinstance(value, str) and self.value_of(value, {}) == url:
                    return True
        return False

    def variables(self, environment: str | None) -> dict[str, str]:
        """Return the variables of the user's that an experiment was submitted with."""
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
        known = {each.name for each in self.file.content.alerts if each.name}
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


def addresses_in(config: Mapping[str, Any]) -> Iterator[int]:
    """Yield the numbers of the stored addresses that a configuration refers to."""
    lists = [config.get(section) for section in ("alerts", "trackers")]
    for entry in (each for some in lists if isinstance(some, list) for each in some):
        for value in entry.values() if isinstance(entry, Mapping) else ():
            if isinstance(value, str) and (number := stored_number(value)) is not None:
                yield number


def _first_line(path: str) -> str:
    """Return the first line of a file.

    Raises:
        DetError: It cannot be read.
    """
    try:
        with open_regular(os.path.expanduser(path)) as file:
            return file.read(_LONGEST_FILE).strip().partition(b"\n")[0].strip().decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise DetError(f"{path} cannot be read: {reason}") from None
