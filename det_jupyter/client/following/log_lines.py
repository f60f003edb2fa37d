"""Fetches, follows and formats the lines that ranks printed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import takewhile
from typing import TypedDict

from det_jupyter.client.requests import When, make_request, to_moment
from det_jupyter.contract.messages import MAX_LINES, MAX_WAIT_S, LogLine, LogPage, LogQuery
from det_jupyter.errors import MasterUnreachable

Fetch = Callable[[LogQuery], LogPage]

TAIL = 100  # lines returned by default
_AGAIN_S = 0.5  # pause before the next request while the master restarts
_WAIT_S = min(15.0, MAX_WAIT_S)


class LogFilter(TypedDict, total=False):
    """The options that select lines: arguments of `Experiment.logs` and `Trial.logs`."""

    rank: int | None
    agent: str | None
    since: When
    level: str | None
    search: str | None
    tail: int | None


class LogLines(list[LogLine]):
    """Lines, oldest first; prints as text. `total` is the number of lines that match."""

    def __init__(self, lines: list[LogLine], total: int | None) -> None:
        super().__init__(lines)
        self.total = total

    @property
    def heading(self) -> str:
        """The number of these lines and of all that match; "" if these are all.

        >>> LogLines([], 0).heading, LogLines([], 4312).heading, LogLines([], None).heading
        ('', '0 of 4,312 lines', '0 of many lines')
        """
        if self.total is None:
            return f"{len(self):,} of many lines"
        return f"{len(self):,} of {self.total:,} lines" if self.total > len(self) else ""

    def __repr__(self) -> str:
        heading = [self.heading] if self.heading else []
        return "\n".join([*heading, *map(line_text, self)])


def line_text(line: LogLine) -> str:
    """Return a line with its time, trial and rank: `11-22 13:25:01 trial=3 rank=1 | text`.

    An open line with several progress bars is printed as a line for each.
    """
    at = datetime.fromtimestamp(line.at).strftime("%m-%d %H:%M:%S")
    place = f"{at} trial={line.trial_id} rank={line.rank} | "
    return "\n".join(place + part for part in line.text.split("\n"))


def query_of(
    *,
    rank: int | None = None,
    agent: str | None = None,
    since: When = None,
    level: str | None = None,
    search: str | None = None,
) -> LogQuery:
    """Return the request for matching lines; the arguments are those of `Trial.logs`."""
    level = level.lower() if isinstance(level, str) else level
    return make_request(
        LogQuery,
        rank=rank,
        agent=agent,
        since=to_moment("since", since, time.time()),
        level=level,
        search=search or None,
    )


def read(fetch: Fetch, query: LogQuery, tail: int | None) -> LogLines:
    """Return the last `tail` matching lines; with None, all of them."""
    if tail is not None and tail <= MAX_LINES:
        page = fetch(query.model_copy(update={"tail": tail}))
        return LogLines(page.lines, page.total)
    # Until an empty page: other trials may print without end, so `last_id` may keep growing.
    pages = takewhile(lambda page: page.lines, all_pages(fetch, query))
    lines = [line for page in pages for line in page.lines]
    return LogLines(lines if tail is None else lines[-tail:], len(lines))


def all_pages(fetch: Fetch, query: LogQuery) -> Iterator[LogPage]:
    """Yield pages of all matching lines, oldest first."""
    while True:
        page = fetch(query)
        yield page
        if page.last_id <= query.after:
            return
        query = query.model_copy(update={"after": page.last_id})


def follow_pages(fetch: Fetch, query: LogQuery, tail: int | None) -> Iterator[LogPage]:
    """Yield the last lines, then new ones as they come, until no more can come.

    A restart of the master is waited for.
    """
    if tail is not None:
        query = query.model_copy(update={"tail": min(tail, MAX_LINES)})
    page = fetch(query)
    yield page
    query = query.model_copy(update={"tail": None})
    while not page.is_over or len(page.lines) == MAX_LINES:
        query = query.model_copy(update={"after": page.last_id, "wait_s": _WAIT_S})
        try:
            page = fetch(query)
        except MasterUnreachable:
            time.sleep(_AGAIN_S)  # the master is being restarted; the next one has all lines
            continue
        if page.lines:
            yield page


def follow_lines(fetch: Fetch, query: LogQuery, tail: int | None) -> Iterator[LogLine]:
    """Yield the last lines, then new ones. A line that is rewritten comes when it is final."""
    pending: dict[tuple[int, int, int], LogLine] = {}
    for page in follow_pages(fetch, query, tail):
        for line in page.lines:
            place = (line.trial_id, line.run, line.rank)
            pending.pop(place, None)
            if line.is_open:
                pending[place] = line
            else:
                yield line
    yield from pending.values()
