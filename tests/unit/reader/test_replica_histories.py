"""The replica after random histories: it has what the master has, and says what has changed.

So does what is kept between versions of a document: trials that are over, and curves.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from pydantic import BaseModel

from det_jupyter.contract.documents.patches import Document, apply_changes, changes, plain
from det_jupyter.contract.messages import Delete, ExperimentQuery
from det_jupyter.errors import DetError, NotFound
from det_jupyter.master.machine.machine import Machine
from det_jupyter.master.machine.model.events import Event, ExperimentDeleted
from det_jupyter.master.service.current_views import Views
from det_jupyter.master.service.storing.stored_rows import read_metrics
from det_jupyter.master.views.metric_curves import to_curves
from det_jupyter.reader.experiment_source import (
    QUEUE_FRONT,
    ExperimentSource,
    FollowedExperiment,
)
from det_jupyter.reader.known_importance import KnownImportance
from det_jupyter.view import build_view_state
from tests.unit.master.machine.test_random_histories import LaterLife
from tests.unit.master.machine_world import parts_of
from tests.unit.reader.reader_world import Still, World, losses, progress, validation

ALL = ExperimentQuery(archived=True, sort="oldest")


def texts(views: Views) -> dict[str, str]:
    """Return what the views of all experiments contain, as JSON: NaN does not equal itself."""
    made: dict[str, BaseModel] = {
        "rows": views.find(ALL),
        **{f"trial {each.id}": each for each in views.holding()},
        **{f"slots {n}": views.cluster(limit=n, experiment_id=1) for n in (1, 16)},
        **{f"experiment {n}": views.experiment(n) for n in views._machine.state.experiments},
    }
    return {name: each.model_dump_json() for name, each in made.items()}


def same_state(replica: Still, world: World) -> None:
    """Assert that a replica is in the master's state, and makes the same views."""
    assert replica._machine.dump() == world.service.machine.dump()
    with replica.viewing() as views:
        assert texts(views) == texts(world.service.views)


def state_from_scratch(world: World, number: int) -> Document:
    """Return the view state of an experiment, made of what the master has."""
    views, state = world.service.views, world.service.machine.state
    view = views.experiment(number)
    cluster = None
    if not view.state.is_terminal:
        cluster = views.cluster(limit=QUEUE_FRONT, experiment_id=number)
    own = [one for one in state.checkpoints.values() if one.experiment_id == number]
    document: Document = plain(
        build_view_state(
            view,
            list(to_curves(read_metrics(world.path, number), max_points=8000)),
            sorted(own, key=lambda one: (one.created_at, one.steps_completed)),
            world.now,
            cluster=cluster,
            reasons={} if cluster is None else cluster.reasons_of(number),
        )
    )
    return document


class Tab:
    """A page that follows an experiment: its source, and what patches have made."""

    def __init__(self, world: World, number: int) -> None:
        self.followed = FollowedExperiment(world.replica, number)
        # Found in a thread of its own.
        self.followed._importance = cast(KnownImportance, SimpleNamespace(refresh=id, latest=None))
        self.source = ExperimentSource(self.followed, None)
        self.num_stale = 0
        self.stop = self.source.start(self._mark)
        self.made: Document | None = None
        self.shown: Document = {}

    def _mark(self) -> None:
        self.num_stale += 1

    def pass_time(self) -> None:
        """Make the version of the present time, before something happens."""
        self.update()
        self.num_stale = 0

    def update(self) -> None:
        made = self.source.make()
        assert made is not None
        if self.made is None:
            self.shown = made
        else:
            self.shown = apply_changes(self.shown, changes(self.made, made))
        assert self.shown == made
        self.made = made


class ReplicatedLife(LaterLife):
    """Random events, which a master takes and a replica reads."""

    # Of the machine alone; RandomLife has them checked.
    everything_holds = what_is_over_stays_as_it_was = None  # type: ignore[assignment]
    whoever_does_not_run_can_be_told_why = None  # type: ignore[assignment]
    the_queue_and_the_slots_can_be_shown = None  # type: ignore[assignment]
    the_number_of_the_last_event_is_their_count = None  # type: ignore[assignment]

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self._folder.name))
        self.tabs: dict[int, Tab] = {}
        super().__init__()
        self.replica = self.world.replica
        self.replica.turn()

    @property
    def machine(self) -> Machine:
        return self.world.service.machine

    @machine.setter
    def machine(self, machine: Machine) -> None:
        pass  # the master has its own

    def tell(self, event: Event) -> None:
        before = self.pass_time()
        try:
            with self.world.service._transaction() as transaction:
                transaction.handle(event)
        except DetError:
            return
        self.compare(before)

    def pass_time(self) -> dict[str, dict[Any, str]]:
        """Return the parts of the state before something happens."""
        self.world.now += 1.0
        for tab in self.tabs.values():
            tab.pass_time()
        return parts_of(self.machine.state)

    def compare(self, before: dict[str, dict[Any, str]]) -> None:
        """Assert that the replica has the same and says what has changed, and so do tabs."""
        after = parts_of(self.machine.state)
        news = self.replica.turn()
        for kind, named in (("experiments", news.experiments), ("trials", news.trials)):
            changed = {n for n, text in after[kind].items() if before[kind].get(n) != text}
            assert changed <= named
        assert news.gone == before["experiments"].keys() - after["experiments"].keys()
        same_state(self.replica, self.world)
        for number in after["experiments"].keys() - self.tabs.keys():
            self.tabs[number] = Tab(self.world, number)
            self.replica.turn()
        for number, tab in list(self.tabs.items()):
            if number in news.gone:
                del self.tabs[number]
                with pytest.raises(NotFound, match=f"experiment {number} was deleted"):
                    tab.update()
                continue
            was = tab.made
            tab.update()
            assert tab.num_stale or tab.made == was, "nobody would have it made"
            assert tab.made == state_from_scratch(self.world, number)

    @rule(data=st.data(), later=st.integers(0, 3), num=st.integers(1, 5), is_batches=st.booleans())
    def report(self, data: st.DataObject, later: int, num: int, is_batches: bool) -> None:
        before = self.pass_time()
        run = self.some_run(data)
        experiment_id, trial_id, _ = map(int, run.split("."))
        metrics = read_metrics(self.world.path, experiment_id)
        own = [
            curve for curve in to_curves(metrics, max_points=8000) if curve.trial_id == trial_id
        ]
        first = max((curve.steps[-1] for curve in own), default=0) + later
        values = [0.5 + each / 8 for each in range(num)]
        record = losses(first + 1, *values) if is_batches else validation(first, values[-1])
        self.world.report(record, progress(first), run=run)
        self.compare(before)

    @rule(experiment_id=st.integers(1, 2))
    def delete_one(self, experiment_id: int) -> None:
        self.tell(Delete(experiment_id=experiment_id))
        self.tell(ExperimentDeleted(experiment_id=experiment_id))

    @rule()
    def restart_from_a_snapshot(self) -> None:
        self.world.snapshot()
        late = self.world.open_replica()
        late.read()
        same_state(late, self.world)

    def teardown(self) -> None:
        try:
            self.delete_one(1)
            late = self.world.open_replica()
            late.read()
            same_state(late, self.world)
        finally:
            self.world.close()
            self._folder.cleanup()


ReplicatedLife.TestCase.settings = settings(
    max_examples=6,
    stateful_step_count=25,
    phases=[Phase.reuse, Phase.generate],  # to shrink takes five minutes
)
TestReplicatedLife = ReplicatedLife.TestCase
