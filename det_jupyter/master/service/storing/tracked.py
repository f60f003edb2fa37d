"""The experiments that are sent to trackers, with their position and the last attempt's result.

The data for a tracker are in the feed, so only a position is stored for each experiment and
tracker: the number of the last item that the tracker has. The sending process advances it after
the tracker has accepted the items before it (`det_jupyter/trackers/`).

A row is added in the transaction in which its experiment is submitted or continued. It also has
the failures of its tracker, so that the reader, another process, shows the same as the master.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

from det_jupyter.config.tracker_section import Tracker
from det_jupyter.config.trackers import trackers_of
from det_jupyter.contract.messages import TrackerProgress, TrackerState, TrackerWork
from det_jupyter.contract.messages.trackers import COUNTED
from det_jupyter.master.machine.model.state import Experiment, MachineState
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.attempts import SOME_ATTEMPTS, TRACKERS
from det_jupyter.master.service.storing.database import transaction
from det_jupyter.master.service.storing.stored_rows import readable

_WAITS = (
    "SELECT 1 FROM feed "
    "WHERE feed.experiment_id = tracked.experiment_id AND feed.seq > tracked.seq"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """An experiment that is sent to a tracker.

    Args:
        tracker: The tracker's entry, with references instead of secrets.
        environment: The tracker's variables, in the form that `Addresses.variables` reads.
        key: A key that is unique for this experiment and tracker.
        seq: Number of the last feed item that the tracker has.
        attempts: Number of failed attempts since the last success.
        next_at: When to try again.
        problem: Why the last attempt failed; after a success, a remark.
    """

    id: int
    experiment_id: int
    tracker: Tracker
    environment: str | None
    key: str
    seq: int
    attempts: int
    next_at: float
    problem: str


_COLUMNS = tuple(field.name for field in fields(Tracked))


class TrackedExperiments:
    """The tables `tracked` and `tracked_runs`.

    Args:
        addresses: Keeps addresses that contain secrets, and has the user's trackers.yaml.
    """

    def __init__(self, db: sqlite3.Connection, addresses: Addresses) -> None:
        self._db = db
        self._addresses = addresses

    def add_own(self, state: MachineState, experiment: Experiment) -> None:
        """Add the trackers of an experiment: its own, and those of trackers.yaml.

        Experiments that only try or measure something (`is_quiet`) have none. Imported experiments
        have none either, as they may come from the same tracker. A tracker to which a user has
        stopped sending is not added again.
        """
        if experiment.is_quiet or experiment.source:
            return
        mine, theirs = self.trackers_of(state, experiment)
        for tracker in mine:
            self.add(experiment.id, tracker, None, is_requested=False)
        for tracker in theirs:
            self.add(experiment.id, tracker, experiment.capsule.environment, is_requested=False)

    def trackers_of(
        self, state: MachineState, experiment: Experiment
    ) -> tuple[list[Tracker], list[Tracker]]:
        """Return the trackers of trackers.yaml, and those of the experiment's configuration."""
        has_own = experiment.config.get("trackers")
        theirs = experiment.settings.trackers or [] if has_own else []
        return trackers_of(
            self._addresses.trackers.content.trackers, theirs, state.pool_of(experiment)
        )

    def add(
        self,
        experiment_id: int,
        tracker: Tracker,
        environment: str | None,
        *,
        is_requested: bool = True,
    ) -> int:
        """Start sending an experiment to a tracker; return the number of the row.

        If it is sent there already, it is sent again from its beginning: data that the tracker has
        are not doubled, data that it has lost are restored.

        Args:
            environment: The tracker's variables, in the form that `Addresses.variables` reads.
            is_requested: Whether a user has requested it; if not, and a user has stopped sending,
                it stays stopped.
        """
        query = (
            "INSERT INTO tracked (experiment_id, tracker, environment, key) "
            "VALUES (:experiment_id, :tracker, :environment, :key) "
            "ON CONFLICT (experiment_id, tracker) DO UPDATE SET next_at = 0, "
            "is_over = is_over AND NOT :is_requested, seq = iif(:is_requested, 0, seq), "
            "environment = iif(:is_requested, excluded.environment, environment) RETURNING id"
        )
        row = {
            "experiment_id": experiment_id,
            "tracker": self._document(experiment_id, tracker),
            "environment": environment,
            "key": uuid.uuid4().hex,
            "is_requested": is_requested,
        }
        (number,) = self._db.execute(query, row).fetchone()
        return int(number)

    def end(self, experiment_id: int, tracker: Tracker) -> None:
        """Stop sending an experiment to a tracker; `add` can start it again."""
        self._db.execute(
            "UPDATE tracked SET is_over = 1, problem = '', attempts = 0 "
            "WHERE experiment_id = ? AND tracker = ?",
            (experiment_id, self._document(experiment_id, tracker)),
        )

    def environment_of(self, experiment_id: int, tracker: Tracker) -> str | None:
        """Return the variables with which an experiment is sent to a tracker; None if none."""
        query = "SELECT environment FROM tracked WHERE experiment_id = ? AND tracker = ?"
        document = self._document(experiment_id, tracker)
        row: tuple[str | None] | None
        row = self._db.execute(query, (experiment_id, document)).fetchone()
        return row[0] if row else None

    def _document(self, experiment_id: int, tracker: Tracker) -> str:
        """Return a tracker's entry for the table; an entry stored for the same place is kept."""
        hidden = self._addresses.hide_entry(tracker.model_dump(exclude_none=True))
        place = Tracker.model_validate(hidden).place
        query = "SELECT tracker FROM tracked WHERE experiment_id = ?"
        for (text,) in self._db.execute(query, (experiment_id,)).fetchall():
            if _parsed(text).place == place:
                return str(text)
        return json.dumps(hidden, sort_keys=True)

    def of(self, experiment_id: int) -> list[Tracked]:
        """Return the rows of an experiment, without those that a user has stopped."""
        return self._find("experiment_id = ? AND NOT is_over ORDER BY id", experiment_id)

    def behind(self, numbers: Sequence[int] | None = None) -> list[Tracked]:
        """Return the rows that are behind the feed, the oldest experiments first.

        Args:
            numbers: Examine only these rows; None: all rows, at about 15 us each.
        """
        which = f"NOT is_over AND EXISTS ({_WAITS}) ORDER BY experiment_id, id"
        if numbers is None:
            return self._find(which)
        some = "id IN (SELECT value FROM json_each(?))"
        return self._find(f"{some} AND {which}", json.dumps(numbers))

    def reported_since(self, seq: int) -> list[Tracked]:
        """Return the rows of the experiments with feed items after `seq`."""
        some = "experiment_id IN (SELECT experiment_id FROM feed WHERE seq > ?)"
        return self._find(f"NOT is_over AND {some} ORDER BY experiment_id, id", seq)

    def _find(self, which: str, *values: object) -> list[Tracked]:
        columns = ", ".join(_COLUMNS)
        rows = self._db.execute(f"SELECT {columns} FROM tracked WHERE {which}", values)
        return list(readable(rows.fetchall(), _as_tracked))

    def work_of(self, tracked: Tracked) -> TrackerWork:
        """Return the data that the process of a tracker needs to continue with an experiment."""
        rows = self._db.execute(
            "SELECT trial_id, json FROM tracked_runs WHERE tracked_id = ?", (tracked.id,)
        )
        runs: dict[int, dict[str, Any]] = dict(
            readable(rows.fetchall(), lambda row: (row[0], json.loads(row[1])))
        )
        return TrackerWork.built_from(tracked, runs=runs)

    def advance(
        self, number: int, progress: TrackerProgress, now: float
    ) -> tuple[Tracked, Tracked] | None:
        """Store how far an experiment was sent, or the problem; return the row before and after.

        A number without a row is ignored, as its experiment was deleted.
        """
        with transaction(self._db):
            found = self._find("id = ?", number)
            if not found:
                return None
            (before,) = found
            seq, attempts, next_at = before.seq, 0, 0.0
            if progress.seq is not None and progress.after in (None, seq):
                seq = max(seq, progress.seq)
            if progress.problem:
                attempts = before.attempts + 1
                next_at = now + TRACKERS.pause_s(attempts)
            problem = progress.problem or progress.remark
            self._db.execute(
                "UPDATE tracked SET seq = ?, attempts = ?, next_at = ?, problem = ? WHERE id = ?",
                (seq, attempts, next_at, problem, number),
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO tracked_runs VALUES (?, ?, ?)",
                [(number, trial_id, json.dumps(run)) for trial_id, run in progress.runs.items()],
            )
        after = replace(before, seq=seq, attempts=attempts, next_at=next_at, problem=problem)
        return before, after

    def set_attempts(
        self, numbers: Collection[int], attempts: int, next_at: float, problem: str
    ) -> None:
        """Store the result of attempts to reach a tracker in the rows that wait for it."""
        self._db.execute(
            "UPDATE tracked SET attempts = ?, next_at = ?, problem = ? "
            "WHERE id IN (SELECT value FROM json_each(?))",
            (attempts, next_at, problem, json.dumps(list(numbers))),
        )

    def forget_attempts(self) -> None:
        """Make all rows due at once, as trackers may be reachable again for a new master."""
        self._db.execute(
            "UPDATE tracked SET attempts = 0, next_at = 0, problem = '' WHERE attempts > 0"
        )

    def states(self, experiment_id: int) -> list[TrackerState]:
        """Return how far an experiment is sent to each of its trackers."""
        return [self._state(each) for each in self.of(experiment_id)]

    def _state(self, tracked: Tracked) -> TrackerState:
        waiting = (
            "FROM feed WHERE experiment_id = ? AND seq > ? AND kind = 'metrics' ORDER BY seq LIMIT"
        )
        values = (tracked.experiment_id, tracked.seq)
        behind: int = self._db.execute(
            f"SELECT count(*) FROM (SELECT 1 {waiting} {COUNTED})", values
        ).fetchone()[0]
        first = self._db.execute(f"SELECT at {waiting} 1", values).fetchone()
        query = "SELECT coalesce(max(seq), 0) FROM feed WHERE experiment_id = ?"
        last_seq: int = self._db.execute(query, values[:1]).fetchone()[0]
        has_failed = tracked.attempts > 0
        return TrackerState(
            id=tracked.id,
            label=tracked.tracker.label,
            behind=behind,
            seq=tracked.seq,
            last_seq=last_seq,
            since=first[0] if first else None,
            problem=tracked.problem if has_failed else "",
            remark="" if has_failed else tracked.problem,
            next_at=tracked.next_at or None if has_failed else None,
        )

    def problems(self) -> list[str]:
        """Return a sentence for each tracker to which attempts have failed repeatedly."""
        failing = self._find(
            "attempts >= ? AND NOT is_over GROUP BY tracker, problem", SOME_ATTEMPTS
        )
        return [
            f"tracker {each.tracker.label}: {each.problem}; it is tried again" for each in failing
        ]

    def delete(self, experiment_id: int) -> None:
        """Delete the rows of an experiment; the data at trackers are kept."""
        with transaction(self._db):
            self._db.execute(
                "DELETE FROM tracked_runs WHERE tracked_id IN "
                "(SELECT id FROM tracked WHERE experiment_id = ?)",
                (experiment_id,),
            )
            self._db.execute("DELETE FROM tracked WHERE experiment_id = ?", (experiment_id,))


def _as_tracked(row: tuple[Any, ...]) -> Tracked:
    values = dict(zip(_COLUMNS, row, strict=True))
    return Tracked(**{**values, "tracker": _parsed(values["tracker"])})


@lru_cache(maxsize=256)
def _parsed(text: str) -> Tracker:  # cached, because many experiments use few trackers
    return Tracker.model_validate_json(text)
