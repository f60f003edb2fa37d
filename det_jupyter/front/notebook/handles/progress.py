"""The output of `experiment.wait()`: a progress bar, and reasons why trials wait."""

from __future__ import annotations

import html
import time
from collections import Counter
from typing import Any

from IPython.core.getipython import get_ipython
from tqdm import tqdm

from det_jupyter.client import Client
from det_jupyter.client.handles.reasons import waiting_text
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.front.notebook.handles.live import display_forms
from det_jupyter.view import HangNews, ViewState, WaitingNews
from det_jupyter.view.making.search_view import ranked
from det_jupyter.view.model.search_state import SearchState
from det_jupyter.view.model.status_looks import ENDED, STATUS_WORDS, Status

_BAR = (
    "{desc}: {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {unit} "
    "[{elapsed}<{remaining}]{postfix}"
)
_COLUMNS = 100
_ACTIVE: tuple[Status, ...] = ("queued", "starting", "running")  # of a search
# Statuses of the trials that are counted as open.
_OPEN: tuple[Status, ...] = ("running", "resting", "queued")
_FIRST_AFTER_S = 1.0  # no reason before: also a trial that starts at once waits for some ms


class WaitProgress:
    """Draws a bar in a notebook's output, or in a terminal."""

    def __init__(self, experiment_id: int) -> None:
        self._experiment_id = experiment_id
        self._started = time.monotonic()
        self._shown = ""
        self._handle: Any = None
        self._bar: tqdm[Any] | None = None

    def tick(self, state: ViewState) -> None:
        """Draw the state, if it has changed."""
        fields = _fields(state)
        if _is_notebook():
            self._draw_in_notebook(fields, time.monotonic() - self._started)
        else:
            self._draw_in_terminal(fields)

    def _draw_in_notebook(self, fields: dict[str, Any], elapsed: float) -> None:
        text = tqdm.format_meter(elapsed=elapsed, ncols=_COLUMNS, bar_format=_BAR, **fields)
        if text == self._shown:
            return
        self._shown = text
        bundle = {"text/plain": text, "text/html": f"<pre>{html.escape(text)}</pre>"}
        if self._handle is None:
            self._handle = display_forms(bundle)
        else:
            self._handle.update(bundle, raw=True)

    def _draw_in_terminal(self, fields: dict[str, Any]) -> None:
        if self._bar is None:
            self._bar = tqdm(
                total=fields["total"], unit=fields["unit"], bar_format=_BAR, dynamic_ncols=True
            )
        self._bar.total = fields["total"]
        self._bar.set_description_str(fields["prefix"], refresh=False)
        self._bar.set_postfix_str(fields["postfix"], refresh=False)
        self._bar.update(fields["n"] - self._bar.n)

    def close(self) -> None:
        """Close the terminal's bar, whose last state stays. Idempotent."""
        if self._bar is not None:
            self._bar.close()


class ReasonPrinter:
    """Prints the reason why an experiment waits, and each new reason; and hangs of its trials."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._news = WaitingNews()
        self._hangs = HangNews()
        self._from = time.monotonic() + _FIRST_AFTER_S

    def tick(self, state: ViewState) -> None:
        """Print what is new; called periodically."""
        for line in self._hangs.lines(state):
            tqdm.write(line)
        if time.monotonic() < self._from:
            return
        if text := waiting_text(self._client, self._news.wait(state), NOTEBOOK):
            tqdm.write(text)  # above a terminal's bar


def _fields(state: ViewState) -> dict[str, Any]:
    """Return the fields of the bar: it counts batches, or trials of a search or a script."""
    search, metric = state["search"], state["checkpoints"]["metric"]
    if search is not None:
        return _search_fields(state, search)
    trials = state["trials"]
    unit, steps = "batches", sum(trial["steps_completed"] for trial in trials)
    known = [trial["num_steps"] for trial in trials if trial["num_steps"] is not None]
    total = sum(known) if known and len(known) == len(trials) else None
    latest = [trial["latest"] for trial in trials if trial["latest"] is not None]
    is_usual = steps and state["status_word"] == STATUS_WORDS["running"]
    if not steps and state["ended_at"] is not None:  # a script may report no batches
        unit, steps = "trials", sum(trial["status"] == "completed" for trial in trials)
        total = len(trials)
    return {
        "n": steps,
        "total": total,
        "unit": unit,
        "prefix": state["name"] if is_usual else _title(state),
        "postfix": f"{metric}={latest[-1]:.4g}" if latest else "",
    }


def _search_fields(state: ViewState, search: SearchState) -> dict[str, Any]:
    """Return the fields of a search's bar, which counts ended trials."""
    parts = []
    best = next(iter(ranked(search)), None)
    if best is not None and best["best"] is not None:
        parts.append(f"best {search['metric']}={best['best']:.4g} (trial {best['id']})")
    doing = Counter(row["status"] for row in search["rows"])
    parts += [f"{doing[status]} {status}" for status in _OPEN if doing[status]]
    num_ended = sum(doing[status] for status in ENDED)
    return {
        "n": num_ended,
        "total": max(search["max_trials"], num_ended),
        "unit": "trials",
        "prefix": state["name"] if state["status"] in _ACTIVE else _title(state),
        "postfix": ", ".join(parts),
    }


def _title(state: ViewState) -> str:
    return f"{state['name']} ({state['status_word'].lower()})"


def _is_notebook() -> bool:
    return getattr(get_ipython(), "kernel", None) is not None
