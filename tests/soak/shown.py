"""What a living master shows of its experiments, which is where the judge reads their states from.

It is in the master's memory, and not in its files: what its answers have is held against what the
stored events give (restored.py). The last answers are kept in the home, for a copy of it, and for
the time when everything is stopped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from det_jupyter.client import Client
from det_jupyter.errors import NotFound

FILE = "soak/shown.json"  # below a home

# An experiment: the answers about it and about its checkpoints, by these names.
Shown = Mapping[str, Any]


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
