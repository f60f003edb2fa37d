"""The output of `experiment.wait()`: a progress bar, and reasons why trials wait."""

from __future__ import annotations

import html
import time
from collections import Counter
from typing import Any

from IPython.core.getipython import get_ipython
from tqdm import tqdm

from det_jupyter.client.handle_text import describe_trial, ranked, state_word
from det_jupyter.client.reasons import reason_text
from det_jupyter.contract.messages import ExperimentView, SearchView, State, TrialView
from det_jupyter.contract.values.reader import NOTEBOOK
from det_jupyter.front.notebook.handles.live import display_forms
from det_jupyter.view import HangNews, WaitingNews
from det_jupyter.view.live import LiveExperiment

_BAR = (
    "{desc}: {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt} {unit} "
    "[{elapsed}<{remaining}]{postfix}"
)
_COLUMNS = 100
_FIRST_AFTER_S = 1.0  # no reason before: also a trial that starts at once waits for some ms


class WaitProgress:
    """Draws a bar in a notebook's output, or in a terminal."""

    def __init__(self, experiment_id: int) -> None:
        self._experiment_id = experiment_id
        self._started = time.monotonic()
        self._shown = ""
        self._handle: Any = None
        self._bar: tqdm[Any] | None = None

    def tick(self, live: LiveExperiment) -> None:
        """Draw the state, if it has changed."""
        fields = _fields(live)
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


class WaitReasons:
    """Prints the reason why an experiment waits, and each new reason; and hangs of its trials."""

    def __init__(self) -> None:
        self._news = WaitingNews()
        self._hangs = HangNews()
        self._from = time.monotonic() + _FIRST_AFTER_S

    def tick(self, live: LiveExperiment) -> None:
        """Print what is new; called periodically."""
        for line in self._hangs.lines(live.experiment, time.time()):
            tqdm.write(line)
        if time.monotonic() < self._from:
            return
        reason = self._news.reason(live.experiment, live.reasons)
        if reason is not None:
            tqdm.write(reason_text(reason, NOTEBOOK))  # above a terminal's bar


def _fields(live: LiveExperiment) -> dict[str, Any]:
    view = live.experiment
    if view.search is not None and view.search.max_trials > 1:
        return _search_fields(view, view.search)
    unit, steps = "batches", sum(trial.steps_completed for trial in view.trials)
    totals = [_total(trial, view.config) for trial in view.trials]
    known = [total for total in totals if total is not None]
    total = sum(known) if known and len(known) == len(totals) else None
    latest = [t.latest_metric for t in view.trials if t.latest_metric is not None]
    metric = f"{view.metric}={latest[-1]:.4g}" if latest else ""
    is_usual = view.state is State.ACTIVE and steps and not any(t.alarm.kind for t in view.trials)
    state = "" if is_usual else f" ({state_word(view)})"
    if not steps and view.state.is_terminal:  # a script may report no batches
        unit, steps = "trials", sum(trial.state == "COMPLETED" for trial in view.trials)
        total = len(view.trials)
    prefix = f"{view.name}{state}"
    return {"n": steps, "total": total, "unit": unit, "prefix": prefix, "postfix": metric}


def _search_fields(view: ExperimentView, search: SearchView) -> dict[str, Any]:
    """Return the fields of a search's bar, which counts ended trials."""
    best = next(iter(ranked(view)), None)
    parts = []
    if best is not None and best.best_metric is not None:
        parts.append(f"best {view.metric}={best.best_metric:.4g} (trial {best.id})")
    doing = Counter(describe_trial(trial) for trial in view.trials)
    parts += [f"{doing[word]} {word}" for word in ("running", "resting", "queued") if doing[word]]
    state = "" if view.state is State.ACTIVE else f" ({state_word(view)})"
    return {
        "n": search.num_closed,
        "total": max(search.max_trials, search.num_closed),
        "unit": "trials",
        "prefix": f"{view.name}{state}",
        "postfix": ", ".join(parts),
    }


def _total(trial: TrialView, config: dict[str, Any]) -> int | None:
    """Return the number of batches of a trial's whole training, None if unknown."""
    if trial.progress > 0:
        return max(trial.steps_completed, round(trial.steps_completed / trial.progress))
    length: dict[str, int] = config["searcher"].get("max_length") or {}
    return length.get("batches")


def _is_notebook() -> bool:
    return getattr(get_ipython(), "kernel", None) is not None
