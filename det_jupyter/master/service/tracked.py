"""Which experiments go to which trackers, and how far they are sent: trackers have no outbox.

What a tracker gets is in the feed already, so only a position is stored: the number of the last
item that it has, for each experiment and tracker. The process that sends advances it after the
tracker has taken what is before it (`det_jupyter/trackers/`).

A row is added in the transaction in which its experiment is submitted or continued.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from det_jupyter.config.tracker_section import Tracker
from det_jupyter.config.trackers import TrackersFile, read_trackers, trackers_of
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import TrackerProgress, TrackerState, TrackerWork
from det_jupyter.contract.messages.trackers import COUNTED
from det_jupyter.contract.values.addresses import stored_number
from det_jupyter.master.machine.model.state import Experiment, MachineState
from det_jupyter.master.service.addresses import Addresses
from det_jupyter.master.service.database import transaction
from det_jupyter.master.service.facts import StoredFacts, Unreachable
from det_jupyter.master.service.stored_rows import readable
from det_jupyter.master.service.tracker_places import Place, Places, pause_s
from det_jupyter.master.service.user_file import UserFile

_SOME_ATTEMPTS = 3  # after which a tracker counts as a problem
_WAITS = (
    "SELECT 1 FROM feed "
    "WHERE feed.experiment_id = tracked.experiment_id AND feed.seq > tracked.seq"
)
_FIELDS = "id, experiment_id, tracker, environment, key, seq, attempts, next_at, problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """An experiment at a tracker.

    Args:
        tracker: Its entry, with references in the place of secrets.
        environment: The variables that go with it, as `variables_of` reads them.
        key: Unique for this experiment and tracker.
        seq: Number of the last item of the feed that it has.
        attempts: How many have failed at it since the last one that did not; a tracker that
            cannot be reached is a matter of its place.
        next_at: When to try again.
        problem: Why the last attempt failed; if none has, a remark.
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


class TrackedExperiments:
    """The tables `tracked` and `tracked_runs`, and the user's trackers.yaml.

    Args:
        addresses: Keeps addresses that contain secrets.
        data_dir: The folder with trackers.yaml.
        facts: Has which trackers cannot be reached, for the reader, which has no places.
    """

    def __init__(
        self, db: sqlite3.Connection, addresses: Addresses, data_dir: Path, facts: StoredFacts
    ) -> None:
        self._db = db
        self._facts = facts
        self._addresses = addresses
        self.places = Places()
        self.file = UserFile(data_dir / paths.TRACKERS_FILE, read_trackers, TrackersFile())

    def add_own(self, state: MachineState, experiment: Experiment) -> None:
        """Add the trackers of an experiment, its own and those of trackers.yaml.

        Experiments that only try or measure something have none (`is_quiet`), nor have imported
        ones, which may come from the same tracker. A tracker that a user has stopped stays out.
        """
        if experiment.is_quiet or experiment.source:
            return
        mine, theirs = self.trackers_of(state, experiment)
        for tracker in mine:
            self.add(experiment.id, tracker, None, is_again=False)
        for tracker in theirs:
            self.add(experiment.id, tracker, experiment.capsule.environment, is_again=False)

    def trackers_of(
        self, state: MachineState, experiment: Experiment
    ) -> tuple[list[Tracker], list[Tracker]]:
        """Return the trackers of trackers.yaml, and those of the experiment's configuration."""
        has_own = experiment.config.get("trackers")
        theirs = experiment.settings.trackers or [] if has_own else []
        return trackers_of(self.file.content.trackers, theirs, state.pool_of(experiment))

    def add(
        self,
        experiment_id: int,
        tracker: Tracker,
        environment: str | None,
        *,
        is_again: bool = True,
    ) -> int:
        """Send an experiment to a tracker from now on, and return the number of the row.

        If it goes there already, it is sent from its beginning again: what the tracker has is not
        doubled, what it has lost is made good.

        Args:
            environment: The variables that go with it, as `variables_of` reads them.
            is_again: Whether a user asks for it; else what a user has ended stays so.
        """
        query = (
            "INSERT INTO tracked (experiment_id, tracker, environment, key) "
            "VALUES (:experiment_id, :tracker, :environment, :key) "
            "ON CONFLICT (experiment_id, tracker) DO UPDATE SET next_at = 0, "
            "is_over = is_over AND NOT :is_again, seq = iif(:is_again, 0, seq), "
            "environment = iif(:is_again, excluded.environment, environment) RETURNING id"
        )
        row = {
            "experiment_id": experiment_id,
            "tracker": self._document(experiment_id, tracker),
            "environment": environment,
            "key": uuid.uuid4().hex,
            "is_again": is_again,
        }
        (number,) = self._db.execute(query, row).fetchone()
        return int(number)

    def end(self, experiment_id: int, tracker: Tracker) -> None:
        """Send an experiment to a tracker no more; `add` goes on with it."""
        rows = self._db.execute(
            "UPDATE tracked SET is_over = 1, problem = '', attempts = 0 "
            "WHERE experiment_id = ? AND tracker = ? RETURNING id",
            (experiment_id, self._document(experiment_id, tracker)),
        )
        for (number,) in rows.fetchall():
            self.places.leave(number)

    def environment_of(self, experiment_id: int, tracker: Tracker) -> str | None:
        """Return the variables that go with an experiment to a tracker; None: there are none."""
        query = "SELECT environment FROM tracked WHERE experiment_id = ? AND tracker = ?"
        document = self._document(experiment_id, tracker)
        row: tuple[str | None] | None
        row = self._db.execute(query, (experiment_id, document)).fetchone()
        return row[0] if row else None

    def _document(self, experiment_id: int, tracker: Tracker) -> str:
        """Return an entry as it is stored: as before, if the experiment has one of this place."""
        hidden = self._addresses.hidden_tracker(tracker.model_dump(exclude_none=True))
        place = Tracker.model_validate(hidden).place
        query = "SELECT tracker FROM tracked WHERE experiment_id = ?"
        for (text,) in self._db.execute(query, (experiment_id,)).fetchall():
            if _parsed(text).place == place:
                return str(text)
        return json.dumps(hidden, sort_keys=True)

    def of(self, experiment_id: int) -> list[Tracked]:
        """Return where an experiment is sent."""
        rows = self._db.execute(
            f"SELECT {_FIELDS} FROM tracked WHERE experiment_id = ? AND NOT is_over ORDER BY id",
            (experiment_id,),
        )
        return list(readable(rows.fetchall(), _as_tracked))

    def behind(self, numbers: Sequence[int] | None = None) -> list[Tracked]:
        """Return what was not sent whole, the oldest experiments first.

        Args:
            numbers: Of these rows only; else all are looked at, some 15 us for each.
        """
        some = "" if numbers is None else "id IN (SELECT value FROM json_each(?)) AND "
        rows = self._db.execute(
            f"SELECT {_FIELDS} FROM tracked WHERE {some}NOT is_over AND EXISTS ({_WAITS}) "
            "ORDER BY experiment_id, id",
            () if numbers is None else (json.dumps(numbers),),
        )
        return list(readable(rows.fetchall(), _as_tracked))

    def reported_since(self, seq: int) -> list[Tracked]:
        """Return the rows of the experiments that the feed has something new of."""
        rows = self._db.execute(
            f"SELECT {_FIELDS} FROM tracked WHERE NOT is_over AND experiment_id IN "
            "(SELECT experiment_id FROM feed WHERE seq > ?) ORDER BY experiment_id, id",
            (seq,),
        )
        return list(readable(rows.fetchall(), _as_tracked))

    def work_of(self, tracked: Tracked) -> TrackerWork:
        """Return what the process of a tracker needs to go on with an experiment."""
        rows = self._db.execute(
            "SELECT trial_id, json FROM tracked_runs WHERE tracked_id = ?", (tracked.id,)
        )
        runs: dict[int, dict[str, Any]] = dict(
            readable(rows.fetchall(), lambda row: (row[0], json.loads(row[1])))
        )
        return TrackerWork(
            id=tracked.id,
            experiment_id=tracked.experiment_id,
            key=tracked.key,
            seq=tracked.seq,
            runs=runs,
        )

    def advance(self, number: int, progress: TrackerProgress, now: float) -> int | None:
        """Store what a tracker has got, or why not; return the experiment if that is another why.

        A number that is not there any more is ignored: its experiment was deleted.
        """
        with transaction(self._db):
            query = "SELECT experiment_id, seq, problem, attempts FROM tracked WHERE id = ?"
            row: tuple[int, int, str, int] | None = self._db.execute(query, (number,)).fetchone()
            if row is None:
                return None
            experiment_id, seq, before, attempts = row
            if progress.seq is not None and progress.after in (None, seq):
                seq = max(seq, progress.seq)
            attempts = attempts + 1 if progress.problem else 0
            next_at = now + pause_s(attempts) if attempts else 0.0
            problem = progress.problem or progress.remark
            self._db.execute(
                "UPDATE tracked SET seq = ?, attempts = ?, next_at = ?, problem = ? WHERE id = ?",
                (seq, attempts, next_at, problem, number),
            )
            self._db.executemany(
                "INSERT OR REPLACE INTO tracked_runs VALUES (?, ?, ?)",
                [(number, trial_id, json.dumps(run)) for trial_id, run in progress.runs.items()],
            )
        if (place := self.places.of(number)) is not None and number in place.waiting:
            place.waiting[number] = next_at
        return experiment_id if before != problem else None

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
        failed = self._unreachable_of(tracked) or tracked
        has_remark = failed is tracked and not tracked.attempts
        return TrackerState(
            id=tracked.id,
            label=tracked.tracker.label,
            behind=behind,
            seq=tracked.seq,
            last_seq=last_seq,
            since=first[0] if first else None,
            problem="" if has_remark else failed.problem,
            remark=tracked.problem if has_remark else "",
            next_at=failed.next_at or None if failed.attempts else None,
        )

    def _unreachable_of(self, tracked: Tracked) -> Place | Unreachable | None:
        """Return how attempts to reach its place went, if that cannot be reached."""
        if (place := self.places.of(tracked.id)) is None:
            return self._facts.get().unreachable.get(tracked.id)
        return place if place.problem and tracked.id in place.waiting else None

    def unreachable(self) -> dict[int, Unreachable]:
        """Return the facts about places that cannot be reached."""
        return {
            number: Unreachable(
                attempts=place.attempts, next_at=place.next_at, problem=place.problem
            )
            for place in self.places
            if place.problem
            for number in place.waiting
        }

    def problems(self) -> list[str]:
        """Return a sentence for each tracker that repeatedly could not be sent to."""
        rows = self._db.execute(
            f"SELECT {_FIELDS} FROM tracked WHERE attempts >= ? GROUP BY tracker, problem",
            (_SOME_ATTEMPTS,),
        )
        refused = [
            f"tracker {each.tracker.label}: {each.problem}; it is tried again"
            for each in readable(rows.fetchall(), _as_tracked)
            if not self._unreachable_of(each)
        ]
        return self.places.problems() + refused

    def addresses(self) -> set[int]:
        """Return the numbers of the stored addresses that trackers refer to."""
        rows = self._db.execute("SELECT DISTINCT tracker FROM tracked").fetchall()
        found: Iterable[str] = (str(json.loads(text).get("tracking_uri", "")) for (text,) in rows)
        return {number for each in found if (number := stored_number(each)) is not None}

    def delete(self, experiment_id: int) -> None:
        """Delete the rows of an experiment; what trackers have stays there."""
        with transaction(self._db):
            self._db.execute(
                "DELETE FROM tracked_runs WHERE tracked_id IN "
                "(SELECT id FROM tracked WHERE experiment_id = ?)",
                (experiment_id,),
            )
            query = "DELETE FROM tracked WHERE experiment_id = ? RETURNING id"
            rows = self._db.execute(query, (experiment_id,)).fetchall()
        for (number,) in rows:
            self.places.leave(number)


def _as_tracked(row: tuple[Any, ...]) -> Tracked:
    number, experiment_id, tracker, environment, key, seq, attempts, next_at, problem = row
    return Tracked(
        id=number,
        experiment_id=experiment_id,
        tracker=_parsed(tracker),
        environment=environment,
        key=key,
        seq=seq,
        attempts=attempts,
        next_at=next_at,
        problem=problem,
    )


@lru_cache(maxsize=256)
def _parsed(text: str) -> Tracker:  # many experiments go to few places
    return Tracker.model_validate_json(text)
