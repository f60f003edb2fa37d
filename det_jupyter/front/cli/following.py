"""Prints experiments in a shell: as text, and followed until they end.

    main thread             prints the output of the first trial
    det-follow-experiment   prints states, reasons for waiting and hangs, and updates the bar
    det-follow-curves       prints validations

The bar is drawn only on a terminal. Ctrl-C ends the following, not the experiment. If no reader
answers, the first trial and the end are requested from the master, twice a minute.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, cast

from tqdm import tqdm

from det_jupyter.client.client import Client
from det_jupyter.client.following.follow import MasterLook
from det_jupyter.client.following.log_lines import follow_pages, line_text
from det_jupyter.client.handle_text import best_text
from det_jupyter.client.handles.experiment import Experiment
from det_jupyter.client.handles.reasons import waiting_text
from det_jupyter.contract.documents.patches import Document
from det_jupyter.contract.messages import ExperimentView, LogLine, LogQuery, State
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.contract.values.text import number
from det_jupyter.front.verbs.showing import describe_state, title
from det_jupyter.view import HangNews, ViewState, WaitingNews, render_plain
from det_jupyter.view.forms.news import first_wait

_TICK_S = 0.1
_END_S = 2.0  # for a thread to end
_BAR = "{desc}: {percentage:3.0f}% |{bar}| [{elapsed}]{postfix}"
_BAR_TOTAL = 1000
_QUIET_S = 1.0  # time before reasons are printed: every trial waits for some milliseconds


def print_handle(handle: Any, options: Any) -> int:
    """Print a handle that a verb returned, or follow it on `--follow`; return the exit status."""
    if isinstance(handle, Experiment):
        if getattr(options, "follow", False):
            return follow(handle._client.watching, handle.id)
        document = handle._client.document("experiment", experiment_id=handle.id)
        print(render_plain(cast(ViewState, document.fetch()), SHELL))
    else:
        print(repr(handle))
    return 0


def follow(client: Client, experiment_id: int) -> int:
    """Print output, validations and state of an experiment until it has ended.

    Return the exit status: 0 if it completed, 130 after Ctrl-C, else 1.
    """
    of_validations: dict[str, Any] = {"experiment_id": experiment_id, "group": "validation"}
    display, is_interrupted, is_over = Display(client), False, False
    experiment = _Following(client, "experiment", display.update, experiment_id=experiment_id)
    curves = _Following(client, "curves", display.print_validations, **of_validations)
    try:
        _follow_first_trial(client, experiment, display)
        while experiment.is_alive() and not is_over:
            experiment.join(_TICK_S)
            view = experiment.look.view()
            is_over = view is not None and view.state.is_terminal
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        experiment.end()
        curves.end()
        display.close()
    if is_interrupted:
        print(
            f"Stopped following. Experiment {experiment_id} goes on: "
            f"`det e logs {experiment_id} -f` follows it again, `det e wait {experiment_id}` "
            f"waits, `det e kill {experiment_id}` ends it.",
            file=sys.stderr,
        )
        return 130
    if experiment.error is not None:
        raise experiment.error
    if not is_over:  # the reader answers
        display.print_validations(client.document("curves", **of_validations).fetch())
    return _print_outcome(client.experiment(experiment_id))


class _Following(threading.Thread):
    """A started thread that follows a document until `use` of a version returns True.

    `look` requests the view from the master while the reader is silent. `error` is the error that
    has ended the thread, if there was one.
    """

    def __init__(
        self,
        client: Client,
        name: str,
        use: Callable[[Any], bool],
        *,
        experiment_id: int,
        **args: Any,
    ) -> None:
        super().__init__(name=f"det-follow-{name}", daemon=True)
        self.look = MasterLook(client, experiment_id)
        self._document = client.document(name, experiment_id=experiment_id, **args)
        self._use = use
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        """Follow the document."""
        try:
            with closing(self._document.versions(_TICK_S)) as versions:
                for version in versions:
                    if version is None:
                        continue
                    self.look.heard()
                    if self._use(version):
                        return
        except Exception as error:  # the thread's boundary
            self.error = error

    def end(self) -> None:
        """End the thread, and wait up to `_END_S` for it."""
        self._document.close()
        self.join(_END_S)


def _follow_first_trial(client: Client, experiment: _Following, display: Display) -> None:
    display.print_line("Waiting for first trial to begin...")
    while experiment.is_alive() and display.first_trial is None:
        time.sleep(_TICK_S)
        if view := experiment.look.view():
            display.first_trial = min((trial.id for trial in view.trials), default=None)
    trial_id = display.first_trial
    if trial_id is None:
        return
    display.print_line(f"Following first trial with ID {trial_id}")
    for page in follow_pages(partial(client.logs, trial_id), LogQuery(), None):
        for line in page.lines:
            display.print_output(line)
    display.finish_open_lines()
    display.print_line(
        f"Trial log stream ended. To reopen log stream, run: det trial logs -f {trial_id}"
    )


def _print_outcome(view: ExperimentView) -> int:
    is_completed = view.state is State.COMPLETED
    outcome = f"{title(view)}: {describe_state(view).removesuffix('.')}"
    text = "; ".join(filter(None, [outcome, best_text(view)]))
    print(text, file=sys.stdout if is_completed else sys.stderr)
    return 0 if is_completed else 1


class Display:
    """Printed lines; on a terminal, below them, the line that a rank is rewriting and a bar.

    `first_trial` is the id of the first trial, None until it is created.
    """

    def __init__(self, client: Client) -> None:
        self.first_trial: int | None = None
        self._client = client
        self._printed: dict[int, int] = {}  # by trial: batches at the last printed validation
        self._news = WaitingNews()
        self._hangs = HangNews()
        self._state = ""
        self._quiet_until = time.monotonic() + _QUIET_S
        self._open: dict[tuple[int, int], LogLine] = {}  # by run and rank: unfinished lines
        self._bar: tqdm[Any] | None = None
        self._open_line: tqdm[Any] | None = None
        if sys.stdout.isatty() and sys.stderr.isatty():
            self._open_line = tqdm(bar_format="{desc}", dynamic_ncols=True, leave=False)
            self._bar = tqdm(total=_BAR_TOTAL, bar_format=_BAR, dynamic_ncols=True, leave=False)

    def print_line(self, text: str) -> None:
        """Print a line, above the bar."""
        if self._bar is not None:
            tqdm.write(text)
        else:
            sys.stdout.write(f"{text}\n")  # in one write, as two threads print
            sys.stdout.flush()

    def print_output(self, line: LogLine) -> None:
        """Print a line of a rank; an unfinished one is drawn above the bar instead."""
        key = line.run, line.rank
        self._open.pop(key, None)
        if line.is_open:
            self._open[key] = line
        else:
            self.print_line(line_text(line))
        self._draw_open_line()

    def finish_open_lines(self) -> None:
        """Print unfinished lines as they are, when their ranks have ended."""
        for line in self._open.values():
            self.print_line(line_text(line))
        self._open.clear()
        self._draw_open_line()

    def _draw_open_line(self) -> None:
        """Draw the unfinished line that was rewritten last; of its rows only the last."""
        if self._open_line is not None:
            newest = next(reversed(self._open.values()), None)
            text = "" if newest is None else line_text(newest).rpartition("\n")[2]
            self._open_line.set_description_str(text)

    def update(self, state: ViewState) -> bool:
        """Print what has changed and update the bar; return whether the experiment has ended."""
        if self.first_trial is None:
            trials = state["search"]["rows"] if state["search"] else state["trials"]
            self.first_trial = min((trial["id"] for trial in trials), default=None)
        has_ended = state["ended_at"] is not None
        before, self._state = self._state, _main_state(state)
        if before not in ("", self._state) and not has_ended:
            self.print_line(f"Experiment {state['id']} “{state['name']}”: {_describe(state)}")
        wait = self._news.wait(state) if time.monotonic() > self._quiet_until else None
        if text := waiting_text(self._client, wait, SHELL):
            self.print_line(text)
        for line in self._hangs.lines(state):
            self.print_line(line)
        if self._bar is not None:
            self._update_bar(self._bar, state)
        return has_ended

    def print_validations(self, document: Document) -> bool:
        """Print the validations of the document `curves` that are new; return False."""
        new: dict[tuple[int, int], list[str]] = {}
        for curve in document["curves"]:
            printed = self._printed.get(curve["trial_id"], -1)
            for steps, value in zip(curve["steps"], curve["values"], strict=True):
                if steps > printed:
                    metric = f"{curve['name']} {number(value)}"
                    new.setdefault((curve["trial_id"], steps), []).append(metric)
        for (trial_id, steps), metrics in sorted(new.items()):
            self._printed[trial_id] = steps
            self.print_line(
                f"trial={trial_id} batch {steps}: validation {', '.join(sorted(metrics))}"
            )
        return False

    def _update_bar(self, bar: tqdm[Any], state: ViewState) -> None:
        best = state["checkpoints"]
        description = f"{state['name']} ({state['status_word'].lower()})"
        bar.set_description_str(description, refresh=False)
        if best["best_metric"] is not None:
            bar.set_postfix_str(f"{best['metric']} {number(best['best_metric'])}", refresh=False)
        bar.n = round(state["progress"] * _BAR_TOTAL)
        bar.refresh()

    def close(self) -> None:
        """Erase the unfinished line and the bar. Idempotent."""
        for bar in (self._open_line, self._bar):
            if bar is not None:  # `if bar:` raises, as the first has no total
                bar.close()
        self._open_line = self._bar = None


def _main_state(state: ViewState) -> str:
    """Return a word that stays the same while an experiment queues and runs."""
    if any(action["verb"] == "pause" and action["enabled"] for action in state["actions"]):
        return "active"
    return state["status_word"].partition(",")[0]


def _describe(state: ViewState) -> str:
    """Return the state as text, with what it waits for, its message or an alarm of its trial."""
    word, wait = state["status_word"].lower(), first_wait(state)
    if wait is not None and state["status"] in ("pausing", "stopping"):
        return wait["sentence"]
    has_alarm = "," in word  # of its only trial
    text = state["message"] or next(iter(state["alarms"] if has_alarm else []), "")
    return f"{word}: {text}" if text else word
