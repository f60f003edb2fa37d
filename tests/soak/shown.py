"""What a living master shows of its experiments, which is where the judge reads their states from.

It is in the master's memory, and not in its files: what its answers have is held against what the
stored events give (restored.py).

    kept        the last answers, in the home: for a copy of it, and when everything is stopped
    a sighting  an earlier answer, and after which event it was given: most masters of a soak are
                killed, and the next one has nothing but the events
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
from det_jupyter.master.service.stored_rows import read_only

FILE = "soak/shown.json"  # below a home

# An experiment: the answers about it and about its checkpoints, by these names.
Shown = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Sighting:
    """What a master has shown of an experiment when the event `seq` was the last one."""

    seq: int
    shown: Shown


def look(client: Client, data: Path, experiment_id: int) -> Sighting | None:
    """Return what the master shows of an experiment; None: an event was stored meanwhile.

    Args:
        client: Asks it.
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
    """Return what the master shows of an experiment."""
    path = f"/experiments/{experiment_id}"
    return {
        "experiment": client.session.get(path),
        "checkpoints": client.session.get(f"{path}/checkpoints"),
    }


def keep(client: Client, home: Path) -> None:
    """Keep in the home what the master shows of all experiments now."""
    found = []
    for row in client.experiments():
        with suppress(NotFound):  # it was deleted meanwhile
            found.append(ask(client, row.id))
    (home / FILE).write_text(json.dumps(found))


def read(home: Path) -> dict[int, Shown]:
    """Return what was kept last, by the numbers of the experiments."""
    found: list[Shown] = json.loads((home / FILE).read_text())
    return {each["experiment"]["id"]: each for each in found}
