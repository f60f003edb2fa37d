"""Words for Tab from the master, if one runs already; Tab waits for them 40 ms at most.

The question is asked in a thread. If the answer takes longer, Tab gets the one of the last time,
and this one the next time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

from det_jupyter.client import Client
from det_jupyter.errors import DetError
from det_jupyter.wire import ExperimentQuery

_PATIENCE_S = 0.04
_FRESH_S = 5.0
_SOURCES = 3  # experiments whose metrics are offered

Ask = Callable[[Client], list[str]]


class Lookups:
    """Answers by question, each asked again when it is some seconds old."""

    def __init__(self, connect: Callable[[], Client | None]) -> None:
        self._connect = connect
        self._answers: dict[str, list[str]] = {}
        self._asked_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def words(self, question: str, ask: Ask) -> list[str]:
        """Return the answer to a question, or what is known of it yet.

        `ask` is called with a client in a thread, one at a time for a question.
        """
        with self._lock:
            is_fresh = time.monotonic() - self._asked_at.get(question, -_FRESH_S) < _FRESH_S
            if not is_fresh:
                self._asked_at[question] = time.monotonic()
        if not is_fresh:
            thread = threading.Thread(
                target=self._find_out, args=(question, ask), name="det-complete", daemon=True
            )
            thread.start()
            thread.join(_PATIENCE_S)
        return self._answers.get(question, [])

    def _find_out(self, question: str, ask: Ask) -> None:
        client = self._connect()
        if client is not None:
            with suppress(DetError):  # it ends just now: what was known stays
                self._answers[question] = ask(client)


QUESTIONS: dict[str, Ask] = {  # experiments come newest first, trials that wait in their order
    "experiments": lambda c: [str(e.id) for e in c.find(ExperimentQuery(archived=True)).rows],
    "templates": lambda c: [template.name for template in c.templates()],
    "agents": lambda c: [agent.id for pool in c.pools() for agent in pool.agents],
    "pools": lambda c: [pool.name for pool in c.pools()],
    "trials": lambda c: [str(entry.trial_id) for entry in c.cluster().queue],
}


def metric_names(client: Client, entrypoint: str | None) -> list[str]:
    """Return the metrics that the newest experiment of this class has validated by."""
    rows = client.find(ExperimentQuery(archived=True)).rows
    names: dict[str, None] = {}
    for row in [row for row in rows if entrypoint in (None, row.entrypoint)][:_SOURCES]:
        names[row.metric] = None
        for curve in client.curves(row.id, max_points=4):
            if curve.group == "validation":
                names[curve.name] = None
    return list(names)
