"""Verbs that print, or follow, the output of ranks."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from shutil import get_terminal_size

from det_jupyter.client.following.log_lines import (
    TAIL,
    Fetch,
    LogLines,
    all_pages,
    follow_lines,
    follow_pages,
    line_text,
    query_of,
    read,
)
from det_jupyter.client.requests import to_moment
from det_jupyter.contract.messages import LogLine, LogPage, LogQuery
from det_jupyter.errors import UsageError
from det_jupyter.front.verbs.grammar import Call, usage_errors

Filter = Callable[[LogLine], bool]
_NO_LINES = "its ranks have printed nothing yet"
_NO_MATCH = "no printed line matches these options"
_ALLOCATION = re.compile(r"\d+\.(\d+)\.(\d+)")


def show_logs(call: Call) -> str:
    """Return lines that the ranks of an experiment printed."""
    given = call.options
    fetch = partial(call.client.experiment_logs, given.id, trial_id=given.trial_id)
    return _show(call, f"Experiment {given.id}", fetch, is_whole=given.trial_id is None)


def show_trial_logs(call: Call) -> str:
    """Return lines that the ranks of a trial printed."""
    given = call.options
    return _show(call, f"Trial {given.id}", partial(call.client.logs, given.id))


def _show(call: Call, whose: str, fetch: Fetch, *, is_whole: bool = True) -> str:
    """Return the matching lines; with `--follow`, print them and new ones until the end."""
    given = call.options
    with usage_errors(given):
        query = query_of(
            rank=given.rank,
            agent=given.agent,
            since=given.since,
            level=given.level,
            search=given.search,
        )
        keeps = _filter_of(given)
    tail = TAIL if given.tail is None and not call.is_shell else given.tail
    if given.follow:
        return _follow(call, whose, _filtered(fetch, keeps), query, tail)
    is_filtered = query != LogQuery() or keeps is not None or not is_whole
    note = f"{whose}: {_NO_MATCH if is_filtered else _NO_LINES}."
    text = line_json if given.json else line_text
    if call.is_shell and tail is None and given.head is None:
        if not _print_all(_filtered(fetch, keeps), query, text):
            print(note, file=sys.stderr)
        return ""
    lines = _read(_filtered(fetch, keeps), query, tail, given.head, is_counted=keeps is None)
    if not lines and lines.total == 0:
        if call.is_shell:  # on stdout it would look like a printed line
            print(note, file=sys.stderr)
        return "" if call.is_shell else note
    has_heading = lines.heading and not (given.json or call.is_shell)
    heading = [f"{lines.heading} (--tail N prints more)"] if has_heading else []
    return "\n".join([*heading, *map(text, lines)])


def _print_all(fetch: Fetch, query: LogQuery, text: Callable[[LogLine], str]) -> int:
    """Print all lines page by page, so that the first appear at once; return their number."""
    num_lines = 0
    for page in all_pages(fetch, query):
        sys.stdout.writelines(f"{text(line)}\n" for line in page.lines)
        num_lines += len(page.lines)
    return num_lines


def line_json(line: LogLine) -> str:
    """Return a line as JSON, on one line."""
    at = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds")
    return json.dumps(
        {
            "id": line.id,
            "timestamp": at,
            "trial_id": line.trial_id,
            "run": line.run,
            "rank_id": line.rank,
            "agent_id": line.agent,
            "level": line.level,
            "log": line.text,
        },
        ensure_ascii=False,
    )


def _filter_of(given: argparse.Namespace) -> Filter | None:
    """Return the filter for options that the master's query lacks; None if none is given."""
    until = to_moment("until", given.until, time.time(), is_end=True)
    runs = {_run_of(text) for text in given.allocation_id or ()}
    if until is None and not runs:
        return None
    return lambda line: (
        (until is None or line.at < until) and (not runs or (line.trial_id, line.run) in runs)
    )


def _run_of(text: str) -> tuple[int, int]:
    found = _ALLOCATION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--allocation-id: got {text!r}, expected EXPERIMENT.TRIAL.RUN, such as 3.1.2"
        )
    return int(found[1]), int(found[2])


def _filtered(fetch: Fetch, keeps: Filter | None) -> Fetch:
    """Return a function that fetches pages and drops the lines that the filter excludes."""
    if keeps is None:
        return fetch

    def fetch_filtered(query: LogQuery) -> LogPage:
        page = fetch(query)
        return page.model_copy(update={"lines": [line for line in page.lines if keeps(line)]})

    return fetch_filtered


def _read(
    fetch: Fetch, query: LogQuery, tail: int | None, head: int | None, *, is_counted: bool
) -> LogLines:
    if is_counted and head is None:
        return read(fetch, query, tail)
    lines: list[LogLine] = []
    for page in all_pages(fetch, query):
        lines += page.lines
        if head is not None and len(lines) >= head:
            break
    if head is not None:
        return LogLines(lines[:head], len(lines[:head]))  # as many as requested
    return LogLines(lines if tail is None else lines[max(0, len(lines) - tail) :], len(lines))


def _follow(call: Call, whose: str, fetch: Fetch, query: LogQuery, tail: int | None) -> str:
    is_piped = call.is_shell and not sys.stdout.isatty()
    printer = Printer()
    try:
        if call.options.json or is_piped:
            text = line_json if call.options.json else line_text
            for line in follow_lines(fetch, query, tail):
                print(text(line), flush=True)
        else:
            _print_pages(follow_pages(fetch, query, tail), printer, with_heading=not call.is_shell)
    except KeyboardInterrupt:
        printer.finish()
        note = f"Stopped following. {whose} goes on."
        if call.is_shell:
            print(note, file=sys.stderr)
            raise
        return note
    printer.finish()
    note = "It has ended: no more lines will come."
    if call.is_shell:
        print(note, file=sys.stderr)
    return "" if call.is_shell else note


def _print_pages(pages: Iterable[LogPage], printer: Printer, *, with_heading: bool) -> None:
    for index, page in enumerate(pages):
        heading = LogLines(page.lines, page.total).heading
        if index == 0 and heading and with_heading:
            print(heading)
        for line in page.lines:
            printer.show(line)


class Printer:
    """Prints lines; an open line (a progress bar) is overwritten by the next one."""

    def __init__(self) -> None:
        self._width = 0  # width of the open line, which the cursor is in

    def show(self, line: LogLine) -> None:
        """Print a line."""
        text = line_text(line)
        if line.is_open:  # of several bars only the last one is printed
            text = text.rpartition("\n")[2]
            if sys.stdout.isatty():  # a wrapped line could not be overwritten
                text = text[: get_terminal_size().columns - 1]
        over = "\r" + " " * self._width + "\r" if self._width else ""
        sys.stdout.write(over + text + ("" if line.is_open else "\n"))
        sys.stdout.flush()
        self._width = len(text) if line.is_open else 0

    def finish(self) -> None:
        """End the open line, if there is one."""
        if self._width:
            sys.stdout.write("\n")
