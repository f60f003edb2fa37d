"""What a handle on an experiment reads of what its ranks printed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Literal, Unpack, overload

from det_jupyter.client.logs import TAIL, LogLines, Which, follow_lines, query_of, read
from det_jupyter.client.moments import When
from det_jupyter.client.taking_out import TabledExperiment
from det_jupyter.client.trial import Trial
from det_jupyter.wire import LogLine


class LoggedExperiment(TabledExperiment):
    """The part of a handle that reads what the ranks printed."""

    @overload
    def logs(
        self, *, trial: Trial | int | None = None, follow: Literal[False] = False,
        **which: Unpack[Which],
    ) -> LogLines: ...  # fmt: skip

    @overload
    def logs(
        self, *, trial: Trial | int | None = None, follow: Literal[True], **which: Unpack[Which]
    ) -> Iterator[LogLine]: ...

    def logs(
        self,
        *,
        trial: Trial | int | None = None,
        rank: int | None = None,
        since: When = None,
        level: str | None = None,
        search: str | None = None,
        tail: int | None = TAIL,
        follow: bool = False,
    ) -> LogLines | Iterator[LogLine]:
        """Return the last `tail` lines that the ranks of its trials printed; with None, all.

        Args:
            trial: Only of this trial, or the one with this number.
            rank: Only of this rank.
            since: Only since then: an age such as "10m", a date, or a time.
            level: Only of this level or a higher one: debug, info, warning, error, critical. It
                is recognised in the line; a traceback is an error.
            search: Only with this text, upper or lower case; as "/.../" a regular expression.
            tail: How many lines; the result's `total` says how many fit.
            follow: Return an iterator that waits for more lines until the experiment has ended.
        """
        query = query_of(rank=rank, since=since, level=level, search=search)
        trial_id = trial.id if isinstance(trial, Trial) else trial
        fetch = partial(self._client.experiment_logs, self.id, trial_id=trial_id)
        return (follow_lines if follow else read)(fetch, query, tail)
