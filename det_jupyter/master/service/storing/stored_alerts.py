"""Alerts: stored with the event that raises them, sent by master/delivery/alerts.py.

    raised ── route ──► waiting, a row for each destination ──► sent
                           │      ▲                        └──► failed: refused, or too old
                           └──────┘ an attempt has failed

An alert is stored in the transaction of its event, so it exists exactly once. A row is updated
right after each attempt. So an alert can arrive twice only if the master is killed in between, or
if a receiver has accepted it without an answer; both copies then have the same id.
"""

from __future__ import annotations

import json
import socket
import sqlite3
import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from det_jupyter.config.alerts import UserAlert
from det_jupyter.contract.messages import AlertNews
from det_jupyter.contract.messages.status import api_name, experiment_status
from det_jupyter.contract.values.addresses import shown
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.contract.values.json_numbers import to_finite
from det_jupyter.master.machine.model.state import MachineState
from det_jupyter.master.machine.model.turn import RaisedAlert
from det_jupyter.master.service.storing.attempts import SOME_ATTEMPTS
from det_jupyter.master.service.storing.database import transaction
from det_jupyter.master.service.storing.stored_rows import readable

_KEPT = 1000  # number of rows kept of alerts that are sent or failed
_LONGEST_TEXT = 1000  # characters of an alert's text
_LONGEST_NAME = 100
_WORDS = {
    AlertKind.FAILED: "failed",
    AlertKind.HANG: "makes no progress",
    AlertKind.NAN: "diverges",
    AlertKind.DISK: "has no room on a disk",
    AlertKind.RECOVERED: "has lost a rank and goes on",
    AlertKind.ENDED: "has completed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """The destination of an alert.

    Args:
        alert: The entry of the configuration or of alerts.yaml, with a reference instead of the
            address.
        environment: The blob with the variables that the experiment was submitted with.
    """

    alert: UserAlert
    environment: str | None

    @property
    def label(self) -> str:
        """The destination in sentences: its name, or its service and its shown address."""
        alert = self.alert
        value = getattr(alert, alert.way)
        return alert.name or f"{alert.way} {value[0] if alert.way == 'command' else shown(value)}"

    def dump(self) -> str:
        """Return the destination as JSON; equal destinations give equal texts."""
        fields = self.alert.model_dump(mode="json", exclude_none=True, exclude={"on", "pools"})
        return json.dumps({"alert": fields, "environment": self.environment}, sort_keys=True)

    @classmethod
    def load(cls, text: str) -> Destination:
        """Return the destination whose `dump` is this text.

        Raises:
            ValueError, TypeError, KeyError: The text is damaged, or has no address.
        """
        fields = json.loads(text)
        alert = UserAlert(**fields["alert"])
        if not alert.way:
            raise ValueError("a destination without an address")
        return cls(alert=alert, environment=fields["environment"])


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAlert:
    """An alert to a destination; `destination` None: it was not routed yet."""

    id: int
    at: float
    news: AlertNews
    destination: Destination | None
    state: str
    attempts: int
    next_at: float
    problem: str

    @property
    def label(self) -> str:
        """The name of its destination in sentences."""
        return "" if self.destination is None else self.destination.label


def make_news(
    state: MachineState,
    kind: AlertKind,
    experiment_id: int,
    *,
    at: float,
    text: str = "",
    trial_id: int | None = None,
    is_test: bool = False,
) -> AlertNews:
    """Return the content of an alert about an experiment in its present state."""
    experiment = state.experiment(experiment_id)
    name = experiment.name[:_LONGEST_NAME]
    best = to_finite(experiment.best_metric)
    if not text and kind is AlertKind.ENDED and best is not None:
        text = f"best {experiment.metric}: {best:.6g}"
    status = experiment_status(experiment.state, [], len(experiment.trial_ids))
    title = f"experiment {experiment.id} ({name}) {_WORDS[kind]}"
    return AlertNews(
        id=uuid.uuid4().hex,
        event=kind,
        is_test=is_test,
        at=at,
        title=f"test: {title}" if is_test else title,
        text=text[:_LONGEST_TEXT],
        experiment_id=experiment.id,
        name=name,
        state=api_name(status),
        trial_id=trial_id,
        num_trials=len(experiment.trial_ids),
        metric=experiment.metric,
        best_metric=best,
        pool=state.pool_of(experiment),
        computer=socket.gethostname(),
    )


class StoredAlerts:
    """The table `alerts`."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def add(self, state: MachineState, alert: RaisedAlert, at: float) -> None:
        """Store an alert. Must be called within the transaction of its event."""
        news = make_news(
            state,
            alert.kind,
            alert.experiment_id,
            at=at,
            text=alert.text,
            trial_id=alert.trial_id,
        )
        self._db.execute("INSERT INTO alerts (at, news) VALUES (?, ?)",
                         (at, news.model_dump_json()))  # fmt: skip

    def raised(self) -> list[StoredAlert]:
        """Return the alerts that were not routed yet, oldest first."""
        return self._find("state = 'raised' ORDER BY id")

    def _find(self, which: str, *values: object) -> list[StoredAlert]:
        """Return some alerts; remove unreadable ones, which would hold up the others."""
        columns = "id, at, news, destination, state, attempts, next_at, problem"
        rows = self._db.execute(f"SELECT {columns} FROM alerts WHERE {which}", values).fetchall()
        found = list(readable(rows, _as_alert))
        for number in {row[0] for row in rows} - {each.id for each in found}:
            self._db.execute("DELETE FROM alerts WHERE id = ?", (number,))
        return found

    def route(self, number: int, destinations: Sequence[str]) -> None:
        """Replace a raised alert by one alert per destination."""
        with transaction(self._db):
            self._db.executemany(
                "INSERT INTO alerts (at, news, destination, state, next_at) "
                "SELECT at, news, ?, 'waiting', 0 FROM alerts WHERE id = ?",
                [(each, number) for each in destinations],
            )
            self._db.execute("DELETE FROM alerts WHERE id = ?", (number,))

    def due(self, destination: str, now: float) -> StoredAlert | None:
        """Return the oldest alert that waits for a destination, if it is due."""
        which = "state = 'waiting' AND destination = ? ORDER BY id LIMIT 1"
        found = self._find(which, destination)
        return found[0] if found and found[0].next_at <= now else None

    def waiting(self) -> dict[str, float]:
        """Return when the oldest alert of each destination is due, by destination."""
        rows = self._db.execute(
            "SELECT destination, next_at FROM alerts WHERE id IN "
            "(SELECT min(id) FROM alerts WHERE state = 'waiting' GROUP BY destination)"
        )
        return dict(rows.fetchall())

    def set_sent(self, number: int) -> None:
        """Record that an alert was sent."""
        self._db.execute(
            "UPDATE alerts SET state = 'sent', attempts = attempts + 1, problem = '' WHERE id = ?",
            (number,),
        )

    def set_failed(self, number: int, problem: str, next_at: float | None) -> None:
        """Record that an attempt has failed.

        Args:
            next_at: When to repeat the attempt; None: never.
        """
        self._db.execute(
            "UPDATE alerts SET state = ?, attempts = attempts + 1, next_at = ?, problem = ? "
            "WHERE id = ?",
            ("failed" if next_at is None else "waiting", next_at or 0.0, problem, number),
        )

    def deliveries(self, limit: int) -> list[StoredAlert]:
        """Return the last alerts with their destinations, newest first."""
        return self._find("state <> 'raised' ORDER BY id DESC LIMIT ?", limit)

    def problems(self) -> list[str]:
        """Return a sentence for each destination that alerts have failed to reach repeatedly.

        Unreadable destinations are left out: their alerts are removed when they are due.
        """
        rows = self._db.execute(
            "SELECT destination, problem FROM alerts WHERE state = 'waiting' AND attempts >= ? "
            "GROUP BY destination",
            (SOME_ATTEMPTS,),
        )

        def say(row: tuple[str, str]) -> str:
            label = Destination.load(row[0]).label
            return f"alerts do not reach {label}: {row[1]}; they are tried again"

        return list(readable(rows, say))

    def prune(self) -> None:
        """Delete alerts that are sent or failed, except the newest ones."""
        self._db.execute(
            "DELETE FROM alerts WHERE id IN (SELECT id FROM alerts WHERE state IN "
            "('sent', 'failed') ORDER BY id DESC LIMIT -1 OFFSET ?)",
            (_KEPT,),
        )


def _as_alert(row: tuple[int, float, str, str, str, int, float, str]) -> StoredAlert:
    number, at, news, destination, state, attempts, next_at, problem = row
    return StoredAlert(
        id=number,
        at=at,
        news=AlertNews.model_validate_json(news),
        destination=None if state == "raised" else Destination.load(destination),
        state=state,
        attempts=attempts,
        next_at=next_at,
        problem=problem,
    )
