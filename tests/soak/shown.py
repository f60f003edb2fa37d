"""Answers of a living master about its experiments, from which the judge reads their states.

States are in the master's memory and not in its files; its answers are compared with the states
that the stored events give (restored.py).

    kept        the last answers, in the home: for a copy of it, and when everything is stopped
    a sighting  an earlier answer, and the number of the last event then: most masters of a soak
                are killed, and the next one has only the events
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_jupyter.client import Client
from det_jupyter.errors import NotFound
from det_jupyter.master.service.storing.stored_rows import read_only

FILE = "soak/shown.json"  # below a home

# The answers about an experiment and about its checkpoints, by these names.
Shown = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sighting:
    """A master's answer about an experiment when `seq` was the last event."""

    seq: int
    shown: Shown


def look(client: Client, data: Path, experiment_id: int) -> Sighting | None:
    """Return the master's answer about an experiment; None if an event was stored meanwhile.

    Args:
        client: The client of the master.
        data: The folder with its database.
        experiment_id: The experiment.
    """
    before = _last_event(data)
    found = ask(client, experiment_id)
    return Sighting(before, found) if _last_event(data) == before else None


def _last_event(data: Path) -> int:
    with read_only(data / "det.sqlite3") as db:
        (seq,) = db.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
    return int(seq)


def ask(client: Client, experiment_id: int) -> Shown:
    """Return the master's answer about an experiment."""
    path = f"/experiments/{experiment_id}"
    return {
        "experiment": client.session.get(path),
        "checkpoints": client.session.get(f"{path}/checkpoints"),
    }


def keep(client: Client, home: Path) -> None:
    """Store in the home the master's present answers about all experiments."""
    found = []
    for row in client.experiments():
        with suppress(NotFound):  # it was deleted meanwhile
            found.append(ask(client, row.id))
    (home / FILE).write_text(json.dumps(found))


def read(home: Path) -> dict[int, Shown]:
    """Return the answers stored last, by the numbers of the experiments."""
    found: list[Shown] = json.loads((home / FILE).read_text())
    return {each["experiment"]["id"]: each for each in found}
