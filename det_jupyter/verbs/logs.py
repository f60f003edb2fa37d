"""The verb that prints what ranks printed, and follows it."""

from __future__ import annotations

import sys
from functools import partial

from det_jupyter.client.logs import Fetch, LogLines, follow_pages, line_text, query_of, read
from det_jupyter.verbs.grammar import Call
from det_jupyter.wire import LogLine, LogQuery


def show_logs(call: Call) -> str:
    """Return the last lines that fit; with `--follow`, print them and those that come."""
    options = call.options
    query = query_of(
        rank=options.rank, since=options.since, level=options.level, search=options.search
    )
    fetch = partial(call.client.experiment_logs, options.id, trial_id=options.trial_id)
    if options.follow:
        return _follow(options.id, fetch, query, options.tail)
    lines = read(fetch, query, options.tail)
    if not lines and lines.total == 0:
        is_filtered = query != LogQuery() or options.trial_id is not None
        silence = "no printed line fits these options" if is_filtered else _SILENCE
        return f"Experiment {options.id}: {silence}."
    heading = [f"{lines.heading} (--tail N prints more)"] if lines.heading else []
    return "\n".join([*heading, *map(line_text, lines)])


_SILENCE = "its ranks have printed nothing yet"


def _follow(experiment_id: int, fetch: Fetch, query: LogQuery, tail: int) -> str:
    printer = _Printer()
    try:
        for index, page in enumerate(follow_pages(fetch, query, tail)):
            if index == 0 and (heading := LogLines(page.lines, page.total).heading):
                print(heading)
            for line in page.lines:
                printer.show(line)
        said = "It has ended: no more lines will come."
    except KeyboardInterrupt:
        said = f"Stopped following. Experiment {experiment_id} goes on."
    printer.finish()
    return said


class _Printer:
    """Prints lines; an open one is printed over by the next line."""

    def __init__(self) -> None:
        self._width = 0  # of the open line that the cursor is in

    def show(self, line: LogLine) -> None:
        text = line_text(line)
        if line.is_open:  # of several bars the last one stands for all
            text = text.rpartition("\n")[2]
        over = "\r" + " " * self._width + "\r" if self._width else ""
        sys.stdout.write(over + text + ("" if line.is_open else "\n"))
        sys.stdout.flush()
        self._width = len(text) if line.is_open else 0

    def finish(self) -> None:
        """Keep the open line."""
        if self._width:
            sys.stdout.write("\n")
