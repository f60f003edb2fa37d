"""Compares the states that a master has shown with those that the stored events give.

The judge reads the state of an experiment only from a master's answers. Some fields, such as the
number of restarts, cannot be compared with an undisturbed experiment. But a master can be restored
from a copy of the database, and must then show the same as the living one, field by field:

    restored     from the newest snapshot, and the events after it, as a master does that starts
    replayed     from the first event on, to check snapshots and old events

Experiments that are not over are left out: why they wait, for example, is not in events. The
answers of earlier masters about them are compared with the events up to then, without the fields
that come from rows.

The marks of the feed must match the existing objects.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from det_jupyter.contract.messages import State, Wire
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import parse_event
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.service.committing.restoring import restore_machine
from det_jupyter.master.service.storing.progress import ProgressCache
from det_jupyter.master.service.storing.store import Store
from det_jupyter.master.service.storing.stored_rows import read_only
from det_jupyter.master.views.experiment_views import experiment_view
from tests.soak.shown import Shown, Sighting
from tests.unit.master.machine_invariants import check_gangs

Fields = dict[str, Any]
# Fields of experiments and trials that depend on rows, or on the time.
_NOT_OF_EVENTS = {"progress", "trackers", "steps_completed", "verdict", "waiting_for", "leaving"}
_OVER = {state.value for state in State if state.is_terminal}
# Tables with rows of trials.
_OF_TRIALS = ("feed", "logs", "log_sizes", "timings", "progress", "verdicts", "series_cuts",
              "series_runs")  # fmt: skip


def contradictions(data: Path, shown: Mapping[int, Shown]) -> list[str]:
    """Return the contradictions between the events and the stored or shown states.

    Args:
        data: The folder with the database.
        shown: The master's answers about each experiment.
    """
    with TemporaryDirectory() as folder:
        copied = Path(folder) / "det.sqlite3"
        with (
            closing(sqlite3.connect(f"{(data / 'det.sqlite3').as_uri()}?mode=ro", uri=True)) as db,
            closing(sqlite3.connect(copied)) as target,
        ):
            db.backup(target)
        store = Store(copied)
        try:
            return list(_contradictions(store, copied, shown))
        finally:
            store.close()


def _contradictions(store: Store, path: Path, shown: Mapping[int, Shown]) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as db:
        set_aside = "SELECT source, error FROM quarantine"
        before = db.execute(set_aside).fetchall()
        restored = restore_machine(store)
        for source, error in db.execute(set_aside).fetchall()[len(before) :]:
            yield f"{source} cannot be read again: {error}"
        events = db.execute("SELECT seq, at, json FROM events ORDER BY seq").fetchall()
        yield from _strangers(db, restored)
        yield from _wrong_marks(db, restored)
    yield from _differences(shown, _shown_by(restored, store), "the events since the snapshot")
    replayed = Machine()
    for seq, at, text in events:
        if told := _handle(replayed, seq, at, text):
            yield told
            return
    yield from _differences(shown, _shown_by(replayed, store), "all events")
    one, other = (json.loads(machine.dump()) for machine in (restored, replayed))
    for name in one:
        if one[name] != other[name]:
            yield f"the snapshot and all events have another {name}"


def _handle(machine: Machine, seq: int, at: float, text: str) -> str:
    """Handle a stored event; return why that is impossible, "" if it is not."""
    machine.state.seq = seq - 1
    try:
        machine.handle(parse_event(text), at)
    except Exception as error:  # a changed event may lead to any error
        return f"event {seq} cannot be handled: {error}"
    return ""


def wrong_sightings(data: Path, sightings: Iterable[Sighting]) -> Iterator[str]:
    """Yield answers of a master, killed later or not, that contradict the events."""
    left = defaultdict(list)
    for sighting in sightings:
        left[sighting.seq].append(sighting.shown)
    with read_only(data / "det.sqlite3") as db:
        events = db.execute("SELECT seq, at, json FROM events ORDER BY seq").fetchall()
    machine, first = Machine(), min(left, default=0)
    for seq, at, text in events:
        if told := _handle(machine, seq, at, text):
            yield told
            return
        if seq >= first:
            yield from _wrong_slots(machine, seq)
        for shown in left.pop(seq, ()):
            number = shown["experiment"]["id"]
            there = machine.state.experiments.get(number)
            expected = {} if there is None else _of_events(_seen(machine, there))
            yield from _contrasted(_of_events(shown), expected, f"the events up to {seq}")
    yield from (f"the master shows event {seq}, which is lost" for seq in sorted(left))


def _wrong_slots(machine: Machine, seq: int) -> Iterator[str]:
    """Yield the gangs that are too large or too small, and slots that two gangs hold."""
    try:
        check_gangs(machine.state)
    except AssertionError as error:
        yield f"after event {seq}: {error}"


def _of_events(shown: Shown) -> dict[str, Fields]:
    """Return the parts of an answer, each with the fields that depend on events only."""
    return {
        key: {name: value for name, value in fields.items() if name not in _NOT_OF_EVENTS}
        for key, fields in _parts(shown).items()
    }


def _strangers(db: sqlite3.Connection, machine: Machine) -> Iterator[str]:
    """Yield the experiments and trials that have rows, but are in no event or deleted."""
    for (number,) in db.execute("SELECT DISTINCT experiment_id FROM feed WHERE experiment_id > 0"):
        if number not in machine.state.experiments:
            yield f"feed has an unknown experiment {number}"
    for table in _OF_TRIALS:
        query = f"SELECT DISTINCT trial_id FROM {table} WHERE trial_id IS NOT NULL"
        for (number,) in db.execute(query):
            if number not in machine.state.trials:
                yield f"{table} has an unknown trial {number}"


def _wrong_marks(db: sqlite3.Connection, machine: Machine) -> Iterator[str]:
    """Yield objects whose mark in the feed is missing, or is older than their end."""
    marks = {
        (kind, trial_id or experiment_id): at
        for kind, experiment_id, trial_id, at in db.execute(
            "SELECT kind, experiment_id, trial_id, at FROM feed WHERE json = '{}'"
        )
    }
    state = machine.state
    ends = {("experiment", each.id): each.ended_at for each in state.experiments.values()}
    ends |= {("trial", each.id): each.ended_at for each in state.trials.values()}
    ends |= {("checkpoint", each.trial_id): each.created_at for each in state.checkpoints.values()}
    for key, ended_at in ends.items():
        where = f"{key[0]} {key[1]}"
        if key not in marks:
            yield f"the feed has no mark of {where}"
        elif marks[key] < (ended_at or 0.0):
            yield f"the feed's mark of {where} is older than its end"


def _shown_by(machine: Machine, store: Store) -> dict[int, Shown]:
    """Return a machine's answers about its experiments, without why trials wait."""
    return {each.id: _seen(machine, each, store) for each in machine.state.experiments.values()}


def _seen(machine: Machine, experiment: Experiment, store: Store | None = None) -> Shown:
    """Return a machine's answer about an experiment; without a store, about an untrained one."""
    view = experiment_view(
        machine.state,
        {} if store is None else ProgressCache(store),
        experiment,
        living=machine.indexes.unfinished_trials(experiment.id),
        sentence=lambda _: None,
        verdict_of=None if store is None else store.verdict,
        trackers=() if store is None else store.tracked.states(experiment.id),
    )
    own = [c for c in machine.state.checkpoints.values() if c.experiment_id == experiment.id]
    return {"experiment": _fields(view), "checkpoints": [_fields(each) for each in own]}


def _fields(view: Wire) -> Fields:
    found: Fields = json.loads(view.model_dump_json())
    return found


def _differences(
    shown: Mapping[int, Shown], expected: Mapping[int, Shown], what: str
) -> Iterator[str]:
    for number in sorted(shown.keys() | expected.keys()):
        both = [each[number] for each in (shown, expected) if number in each]
        if len(both) == 2 and not any(one["experiment"]["state"] in _OVER for one in both):
            continue
        one, other = (_parts(each[number]) if number in each else {} for each in (shown, expected))
        yield from _contrasted(one, other, what)


def _contrasted(
    one: Mapping[str, Fields], other: Mapping[str, Fields], what: str
) -> Iterator[str]:
    for key in sorted(one.keys() | other.keys()):
        if key not in other:
            yield f"the master shows {key}, which is unknown by {what}"
        elif key not in one:
            yield f"the master does not show {key}, which is there by {what}"
        else:
            yield from (f"{key}: {line}" for line in _changed(one[key], other[key], what))


def _parts(shown: Shown) -> dict[str, Fields]:
    """Return the experiment, its trials and its checkpoints, by kind and number."""
    experiment, trials = dict(shown["experiment"]), shown["experiment"]["trials"]
    experiment["trials"] = [each["id"] for each in trials]
    return {
        f"experiment {experiment['id']}": experiment,
        **_named("trial", "id", trials),
        **_named("checkpoint", "uuid", shown["checkpoints"]),
    }


def _named(kind: str, key: str, views: Iterable[Fields]) -> dict[str, Fields]:
    return {f"{kind} {view[key]}": view for view in views}


def _changed(found: Mapping[str, Any], fields: Mapping[str, Any], what: str) -> Iterator[str]:
    for name in sorted(found.keys() | fields.keys()):
        one, other = found.get(name), fields.get(name)
        if one != other:
            yield f"the master shows {name} {one!s:.100}, and {other!s:.100} by {what}"
