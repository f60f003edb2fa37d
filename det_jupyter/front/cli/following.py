"""Prints experiments in a shell: as text, and followed until they end.

    main thread        prints the output of the first trial
    Follower thread    prints validations and the reasons for waiting, and updates the bar

The bar is drawn only on a terminal. Ctrl-C ends the following, not the experiment.
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

from tqdm import tqdm

from det_jupyter.client.client import Client
from det_jupyter.client.experiment import Experiment
from det_jupyter.client.follow import Follower, fetch
from det_jupyter.client.handle_text import best_text, ranked, state_word
from det_jupyter.client.log_lines import follow_pages, line_text
from det_jupyter.client.reasons import reason_text
from det_jupyter.contract.messages import ExperimentView, LogLine, LogQuery, State
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.contract.values.text import number
from det_jupyter.front.verbs.showing import describe_state, title
from det_jupyter.view import HangNews, WaitingNews, build_view_state, render_plain
from det_jupyter.view.live import LiveExperiment

_TICK_S = 0.1
_BAR = "{desc}: {percentage:3.0f}% |{bar}| [{elapsed}]{postfix}"
_BAR_TOTAL = 1000
_QUIET_S = 1.0  # before reasons are printed: each trial waits for some milliseconds


def print_handle(handle: Any, options: Any) -> int:
    """Print a handle that a verb returned, or follow it on `--follow`; return the exit status."""
    if isinstance(handle, Experiment):
        if getattr(options, "follow", False):
            return follow(handle._client, handle.id)
        live = fetch(handle._client, handle.id)
        curves, checkpoints = list(live.curves.values()), list(live.checkpoints.values())
        state = build_view_state(live.experiment, curves, checkpoints, time.time())
        print(render_plain(state, SHELL))
    else:
        print(repr(handle))
    return 0


def follow(client: Client, experiment_id: int) -> int:
    """Print output, validations and state of an experiment until it has ended.

    Return the exit status: 0 if it completed, 130 after Ctrl-C, else 1.
    """
    display = Display(experiment_id)
    follower = Follower(client, experiment_id, display.update).start()
    try:
        _follow_first_trial(client, follower, display)
        while follower.thread.is_alive():
            follower.thread.join(_TICK_S)
    except KeyboardInterrupt:
        display.close()
        print(
            f"Stopped following. Experiment {experiment_id} goes on: "
            f"`det e logs {experiment_id} -f` follows it again, `det e wait {experiment_id}` "
            f"waits, `det e kill {experiment_id}` ends it.",
            file=sys.stderr,
        )
        return 130
    finally:
        follower.stop()
        display.close()
    if follower.error is not None:
        raise follower.error
    return _print_outcome(client.experiment(experiment_id))


def _follow_first_trial(client: Client, follower: Follower, display: Display) -> None:
    display.print_line("Waiting for first trial to begin...")
    while follower.thread.is_alive() and display.first_trial is None:
        time.sleep(_TICK_S)
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

    def __init__(self, experiment_id: int) -> None:
        self.first_trial: int | None = None
        self._experiment_id = experiment_id
        self._printed: dict[int, int] = {}  # by trial: batches at the last printed validation
        self._news = WaitingNews()
        self._hangs = HangNews()
        self._state: State | None = None
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

    def update(self, live: LiveExperiment) -> None:
        """Print what has changed and update the bar; called in the follower's thread."""
        view = live.experiment
        if view.trials and self.first_trial is None:
            self.first_trial = view.trials[0].id
        if view.state is not self._state:
            if self._state is not None and not view.state.is_terminal:
                self.print_line(f"{title(view)}: {describe_state(view)}")
            self._state = view.state
        if time.monotonic() > self._quiet_until:
            reason = self._news.reason(view, live.reasons)
            if reason is not None:
                self.print_line(reason_text(reason, SHELL))
        for line in self._hangs.lines(view, time.time()):
            self.print_line(line)
        self._print_validations(live)
        if self._bar is not None:
            self._update_bar(self._bar, view)

    def _print_validations(self, live: LiveExperiment) -> None:
        new: dict[tuple[int, int], list[str]] = {}
        for curve in live.curves.values():
            printed = self._printed.get(curve.trial_id, -1)
            if curve.group != "validation":
                continue
            for steps, value in zip(curve.steps, curve.values, strict=True):
                if steps > printed:
                    new.setdefault((curve.trial_id, steps), []).append(
                        f"{curve.name} {number(value)}"
                    )
        for (trial_id, steps), metrics in sorted(new.items()):
            self._printed[trial_id] = steps
            self.print_line(
                f"trial={trial_id} batch {steps}: validation {', '.join(sorted(metrics))}"
            )

    def _update_bar(self, bar: tqdm[Any], view: ExperimentView) -> None:
        best = next(iter(ranked(view)), None)
        bar.set_description_str(f"{view.name} ({state_word(view)})", refresh=False)
        if best is not None and best.best_metric is not None:
            bar.set_postfix_str(f"{view.metric} {number(best.best_metric)}", refresh=False)
        bar.n = round(view.progress * _BAR_TOTAL)
        bar.refresh()

    def close(self) -> None:
        """Erase the unfinished line and the bar. Idempotent."""
        for bar in (self._open_line, self._bar):
            if bar is not None:  # `if bar:` raises, as the first has no total
                bar.close()
        self._open_line = self._bar = None
