"""What a notebook keeps of an experiment, made anew by a program that does not follow it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from det_jupyter.client import Client
from det_jupyter.client.follow import fetch
from det_jupyter.live.importance import KnownImportance
from det_jupyter.view import build_view_state
from det_jupyter.view.forms.place import kept_forms


def kept_answer(client: Client, experiment_id: int, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the experiment as it is now, by MIME type."""
    live = fetch(client, experiment_id)
    importance = KnownImportance(client, experiment_id)
    if live.experiment.state.is_terminal:
        importance.refresh(live)
    state = build_view_state(
        live.experiment,
        list(live.curves.values()),
        list(live.checkpoints.values()),
        time.time(),
        importance=importance.latest,
    )
    return {"kept": kept_forms(state)}
