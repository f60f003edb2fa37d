"""What a shell shows of experiments: as text, and followed until they end.

    main thread        prints the lines of the first trial
    Follower thread    prints validations and why nothing runs, and moves the bar

The bar is drawn on a terminal alone. Ctrl-C ends the following, not the experiment.
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
from det_jupyter.client.logs import follow_pages, line_text
from det_jupyter.client.reasons import reason_text
from det_jupyter.client.shown import best_text, ranked, state_word
from det_jupyter.contract.messages import ExperimentView, LogLine, LogQuery, State
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.contract.values.text import number
from det_jupyter.front.verbs.experiments import describe_state, title
from det_jupyter.view import WaitingNews, build_view_state, render_plain
from det_jupyter.view.live import LiveExperiment

_TICK_S = 0.1
_BAR = "{desc}: {percentage:3.0f}% |{bar}| [{elapsed}]{postfix}"
_STEPS = 1000  # of the bar
_QUIET_S = 1.0  # a trial that starts at once waits for some milliseconds too


def show(answer: Any, options: Any) -> int:
    """Print a handle that a verb returned; follow it if the line says so. Return the status."""
    if isinstance(answer, Experiment):
        if getattr(options, "follow", False):
            return follow(answer._client, answer.id)
        live = fetch(answer._client, answer.id)
        curves, checkpoints = list(live.curves.values()), list(live.checkpoints.values())
        state = build_view_state(live.experiment, curves, checkpoints, time.time())
        print(render_plain(state, SHELL))
    else:
        print(repr(answer))
    return 0


def follow(client: Client, experiment_id: int) -> int:
    """Print what an experiment does until it has ended; return 0 if it completed, else 1.

    Ctrl-C ends the following, with 130.
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
    return _say_the_end(client.experiment(experiment_id))


def _follow_first_trial(client: Client, follower: Follower, display: Display) -> None:
    display.say("Waiting for first trial to begin...")
    while follower.thread.is_alive() and display.first_trial is None:
        time.sleep(_TICK_S)
    trial_id = display.first_trial
    if trial_id is None:
        return
    display.say(f"Following first trial with ID {trial_id}")
    for page in follow_pages(partial(client.logs, trial_id), LogQuery(), None):
        for line in page.lines:
            display.show(line)
    display.keep_open_lines()
    display.say(f"Trial log stream ended. To reopen log stream, run: det trial logs -f {trial_id}")


def _say_the_end(view: ExperimentView) -> int:
    is_well = view.state is State.COMPLETED
    ending = f"{title(view)}: {describe_state(view).removesuffix('.')}"
    said = "; ".join(filter(None, [ending, best_text(view)]))
    print(said, file=sys.stdout if is_well else sys.stderr)
    return 0 if is_well else 1


class Display:
    """Lines, and on a terminal below them the line that a rank is rewriting, and a bar.

    `first_trial` is None before there is one.
    """

    def __init__(self, experiment_id: int) -> None:
        self.first_trial: int | None = None
        self._experiment_id = experiment_id
        self._printed: dict[int, int] = {}  # by trial: at how many batches
        self._news = WaitingNews()
        self._state: State | None = None
        self._from = time.monotonic() + _QUIET_S
        self._open: dict[tuple[int, int], LogLine] = {}  # by run and rank: it is being rewritten
        self._bar: tqdm[Any] | None = None
        self._open_line: tqdm[Any] | None = None
        if sys.stdout.isatty() and sys.stderr.isatty():
            self._open_line = tqdm(bar_format="{desc}", dynamic_ncols=True, leave=False)
            self._bar = tqdm(total=_STEPS, bar_format=_BAR, dynamic_ncols=True, leave=False)

    def say(self, text: str) -> None:
        """Print a line, above the bar."""
        if self._bar is not None:
            tqdm.write(text)
        else:
            sys.stdout.write(f"{text}\n")  # in one piece: two threads print
            sys.stdout.flush()

    def show(self, line: LogLine) -> None:
        """Print a line of a rank; one that is being rewritten stands below until it is whole."""
        place = line.run, line.rank
        self._open.pop(place, None)
        if line.is_open:
            self._open[place] = line
        else:
            self.say(line_text(line))
        self._draw_open_line()

    def keep_open_lines(self) -> None:
        """Print lines that are being rewritten as they are: their ranks have ended."""
        for line in self._open.values():
            self.say(line_text(line))
        self._open.clear()
        self._draw_open_line()

    def _draw_open_line(self) -> None:
        """Draw the open line that was rewritten last; of several bars in it the last one."""
        if self._open_line is not None:
            newest = next(reversed(self._open.values()), None)
            text = "" if newest is None else line_text(newest).rpartition("\n")[2]
            self._open_line.set_description_str(text)

    def update(self, live: LiveExperiment) -> None:
        """Show what is new; called in the follower's thread."""
        view = live.experiment
        if view.trials and self.first_trial is None:
            self.first_trial = view.trials[0].id
        if view.state is not self._state:
            if self._state is not None and not view.state.is_terminal:
                self.say(f"{title(view)}: {describe_state(view)}")
            self._state = view.state
        if time.monotonic() > self._from:
            reason = self._news.reason(view, live.reasons)
            if reason is not None:
                self.say(reason_text(reason, SHELL))
        self._print_validations(live)
        self._move_bar(view)

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
            self.say(f"trial={trial_id} batch {steps}: validation {', '.join(sorted(metrics))}")

    def _move_bar(self, view: ExperimentView) -> None:
        if self._bar is None:
            return
        best = next(iter(ranked(view)), None)
        self._bar.set_description_str(f"{view.name} ({state_word(view)})", refresh=False)
        if best is not None and best.best_metric is not None:
            postfix = f"{view.metric} {number(best.best_metric)}"
            self._bar.set_postfix_str(postfix, refresh=False)
        self._bar.n = round(view.progress * _STEPS)
        self._bar.refresh()

    def close(self) -> None:
        """Take away what stands below the lines; safe to call twice."""
        for bar in (self._open_line, self._bar):
            if bar is not None:  # an empty one has no truth value
                bar.close()
        self._open_line = self._bar = None
