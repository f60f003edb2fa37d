"""What the feed shows of experiments, against what their events make of them.

The feed is the only thing that the judge reads an experiment's state from. How often a disturbed
trial was restarted, say, is as in no undisturbed one; but the master can be restored from a copy
of the database, and must then show what is in the feed, field by field:

    restored     from the newest snapshot, and the events after it, as a master does that starts
    replayed     from the first event on: what the snapshots and the old events are held against

Experiments that are not over are left out: why they wait, for example, is no event.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from det_jupyter.contract.messages import State, Wire
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import parse_event
from det_jupyter.master.machine.model.state import Experiment
from det_jupyter.master.service.publishing import ProgressCache
from det_jupyter.master.service.restoring import restore_machine
from det_jupyter.master.service.store import Store
from det_jupyter.master.views.experiment_views import experiment_view, trial_view

Shown = dict[tuple[str, str], dict[str, Any]]  # fields by kind and number


def contradictions(data: Path) -> list[str]:
    """Return where the feed is not what the events say."""
    with TemporaryDirectory() as folder:
        copied = Path(folder) / "det.sqlite3"
        with (
            closing(sqlite3.connect(f"{(data / 'det.sqlite3').as_uri()}?mode=ro", uri=True)) as db,
            closing(sqlite3.connect(copied)) as target,
        ):
            db.backup(target)
        store = Store(copied)
        try:
            return list(_contradictions(store, copied))
        finally:
            store.close()


def _contradictions(store: Store, path: Path) -> Iterator[str]:
    with closing(sqlite3.connect(path)) as db:
        set_aside = "SELECT source, error FROM quarantine"
        before = db.execute(set_aside).fetchall()
        restored = restore_machine(store)
        for source, error in db.execute(set_aside).fetchall()[len(before) :]:
            yield f"{source} cannot be read again: {error}"
        feed = _in_feed(db)
        events = db.execute("SELECT seq, at, json FROM events ORDER BY seq").fetchall()
    yield from (f"the feed has an unknown {' '.join(key)}" for key in _unknown(feed, restored))
    yield from _differences(feed, _shown_by(restored, store), "the events since the snapshot")
    replayed = Machine()
    for seq, at, text in events:
        replayed.state.seq = seq - 1
        try:
            replayed.handle(parse_event(text), at)
        except Exception as error:  # whatever a changed event may lead to
            yield f"event {seq} cannot be handled: {error}"
            return
    yield from _differences(feed, _shown_by(replayed, store), "all events")
    one, other = (json.loads(machine.dump()) for machine in (restored, replayed))
    for name in one:
        if one[name] != other[name]:
            yield f"the snapshot and all events have another {name}"


def _in_feed(db: sqlite3.Connection) -> Shown:
    found: Shown = defaultdict(dict)
    for kind, experiment_id, trial_id, text in db.execute(
        "SELECT kind, experiment_id, trial_id, json FROM feed "
        "WHERE kind IN ('experiment', 'trial', 'checkpoint') ORDER BY seq"
    ):
        item = json.loads(text)
        number = item["uuid"] if kind == "checkpoint" else str(trial_id or experiment_id)
        found[kind, number] |= item
    return found


def _unknown(feed: Shown, machine: Machine) -> list[tuple[str, str]]:
    state = machine.state
    known = {("experiment", str(number)) for number in state.experiments}
    known |= {("trial", str(number)) for number in state.trials}
    known |= {("checkpoint", uuid) for uuid in state.checkpoints}
    # The last item of a deleted one stays, for those that follow it.
    known |= {key for key, item in feed.items() if key[0] == "experiment" and _is_deleted(item)}
    return sorted(feed.keys() - known)


def _is_deleted(item: Mapping[str, Any]) -> bool:
    return bool(item["state"] == State.DELETING)


def _shown_by(machine: Machine, store: Store) -> Shown:
    """Return what a machine shows of experiments that are over."""
    state, progress = machine.state, ProgressCache(store)
    over = [each for each in state.experiments.values() if each.state.is_terminal]
    found: Shown = {}
    for experiment in over:
        found["experiment", str(experiment.id)] = _fields(_view(machine, store, experiment))
        for trial in state.trials_of(experiment):
            view = trial_view(state, trial, progress, lambda _: None, store.verdict)
            found["trial", str(trial.id)] = _fields(view)
    numbers = {experiment.id for experiment in over}
    for checkpoint in state.checkpoints.values():
        if checkpoint.experiment_id in numbers:
            found["checkpoint", checkpoint.uuid] = _fields(checkpoint)
    return found


def _view(machine: Machine, store: Store, experiment: Experiment) -> Wire:
    return experiment_view(
        machine.state,
        ProgressCache(store),
        experiment,
        living=machine.indexes.unfinished_trials(experiment.id),
        sentence=lambda _: None,
        with_trials=False,
        trackers=store.tracked.states(experiment.id),
    )


def _fields(view: Wire) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(view.model_dump_json())
    return found


def _differences(feed: Shown, shown: Shown, what: str) -> Iterator[str]:
    for key, fields in shown.items():
        where = " ".join(key)
        if key not in feed:
            yield f"{where} is not in the feed, by {what}"
            continue
        yield from (f"{where}: {line}" for line in _changed(feed[key], fields, what))


def _changed(found: Mapping[str, Any], fields: Mapping[str, Any], what: str) -> Iterator[str]:
    for name in sorted(found.keys() | fields.keys()):
        one, other = found.get(name), fields.get(name)
        if one != other:
            yield f"the feed has {name} {one!s:.100}, and {other!s:.100} by {what}"
