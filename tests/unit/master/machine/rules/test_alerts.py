"""Which events raise alerts, and that each is raised once."""

from __future__ import annotations

from typing import Any

import pytest

from det_jupyter.contract.messages import RoomReported, RoomWait
from det_jupyter.contract.messages.changes import Activate, Cancel, Pause
from det_jupyter.contract.run.journal import Notice
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.events import (
    ContentSetAside,
    ContinueRequested,
    Event,
    LossReported,
    RecordArrived,
    RoomFound,
)
from det_jupyter.master.machine.model.turn import RaisedAlert
from tests.unit.master.machine_world import (
    World,
    completed,
    exited,
    failed,
    make_config,
    registered,
    running,
    saved,
    submitted,
    validated,
)


@pytest.fixture
def world() -> World:
    world = World()
    world.tell(registered(2), submitted(max_restarts=0), *running())
    return world


def raised(world: World, *told: Event) -> list[RaisedAlert]:
    """Handle events; return the alerts that they raise."""
    found: list[RaisedAlert] = []
    for event in told:
        world.tell(event)
        found += world.machine.changes().alerts
    return found


def kinds(alerts: list[RaisedAlert]) -> list[AlertKind]:
    return [alert.kind for alert in alerts]


def loss(value: float, steps: int = 5) -> LossReported:
    return LossReported(allocation_id="1.1.1", metric="loss", steps_completed=steps, value=value)


def alarm(text: str) -> RecordArrived:
    record = Notice(at=1.0, rank=0, text=text, is_alarm=True)
    return RecordArrived(allocation_id="1.1.1", rank=0, record=record)


def test_a_completed_experiment_has_ended(world: World) -> None:
    found = raised(world, validated(100, 0.5), *completed(), exited())
    assert found == [RaisedAlert(kind=AlertKind.ENDED, experiment_id=1, trial_id=None, text="")]


def test_a_failed_experiment_says_why(world: World) -> None:
    found = raised(world, failed("ValueError: no"), exited(codes={0: 1, 1: 1}))
    expected = RaisedAlert(
        kind=AlertKind.FAILED, experiment_id=1, trial_id=None, text="trial 1: ValueError: no"
    )
    assert found == [expected]


def test_a_failure_that_is_tried_again_raises_nothing() -> None:
    world = World()
    world.tell(registered(2), submitted(max_restarts=3), *running())
    assert raised(world, failed(), exited(codes={0: 1, 1: 1})) == []


def test_an_experiment_that_a_user_cancels_raises_nothing(world: World) -> None:
    assert raised(world, Cancel(experiment_id=1), exited(killed=True)) == []
    assert world.experiment().state == "CANCELED"


def test_an_experiment_that_the_master_gives_up_has_failed(world: World) -> None:
    news = ContentSetAside(experiment_id=1, what="it", is_fatal=True, gone="1.1.1")
    assert kinds(raised(world, news)) == [AlertKind.FAILED]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_diverges_again_and_again_raises_one_alert(world: World, value: float) -> None:
    found = raised(
        world,
        loss(value),
        loss(0.5),
        loss(value, 9),
        validated(10, value),
        alarm("loss is NaN"),
        loss(value, 11),
    )
    word = "NaN" if value != value else "infinite"
    text = f"trial 1: loss is {word} since batch 4"
    assert found == [RaisedAlert(kind=AlertKind.NAN, experiment_id=1, trial_id=1, text=text)]


def test_an_alarm_of_a_rank_is_an_alert(world: World) -> None:
    found = raised(world, alarm("loss is NaN since batch 3"), loss(float("nan")))
    text = "trial 1: loss is NaN since batch 3"
    assert found == [RaisedAlert(kind=AlertKind.NAN, experiment_id=1, trial_id=1, text=text)]


def test_a_disk_that_is_full_raises_an_alert_each_time_a_trial_begins_to_wait(
    world: World,
) -> None:
    wait = RoomReported(allocation_id="1.1.1", at=1.0, wait=RoomWait(folder="/data", since=1.0))
    text = "trial 1 waits for room on /data and goes on when there is some"
    alert = RaisedAlert(kind=AlertKind.DISK, experiment_id=1, trial_id=1, text=text)
    assert raised(world, wait, wait) == [alert]
    over = wait.model_copy(update={"wait": None})
    assert raised(world, over) == []
    assert raised(world, wait) == [alert]
    full = failed("OSError: no room", no_room=True)
    assert raised(world, full, exited(codes={0: 1, 1: 1})) == []  # of the same disk
    again = failed("OSError: no room", no_room=True, allocation_id="1.1.2")
    more = (*running("1.1.2"), again, exited("1.1.2", codes={0: 1, 1: 1}))
    assert kinds(raised(world, Pause(experiment_id=1), Activate(experiment_id=1), *more)) == [
        AlertKind.DISK
    ]


def test_each_full_disk_that_ends_runs_raises_one_alert(world: World) -> None:
    def ended(run: int) -> list[Event]:
        name = f"1.1.{run}"
        full = failed("OSError: no room", no_room=True, allocation_id=name)
        return [full, exited(name, codes={0: 1, 1: 1})]

    def begun(run: int) -> list[Event]:
        return [RoomFound(trial_id=1), *running(f"1.1.{run}")]

    assert kinds(raised(world, *ended(1))) == [AlertKind.DISK]
    assert raised(world, *begun(2), *ended(2)) == []  # the disk is still full
    wait = RoomReported(allocation_id="1.1.3", at=1.0, wait=RoomWait(folder="/data", since=1.0))
    assert raised(world, *begun(3), wait, *ended(3)) == []
    # A run that has saved a checkpoint had room: what follows is another wait.
    found = raised(world, *begun(4), saved(20, allocation_id="1.1.4"), *ended(4))
    assert kinds(found) == [AlertKind.DISK]
    wait = wait.model_copy(update={"allocation_id": "1.1.5"})
    found = raised(world, *begun(5), saved(40, allocation_id="1.1.5"), wait)
    assert kinds(found) == [AlertKind.DISK]
    assert raised(world, *ended(5)) == []  # it waited already


def test_an_experiment_that_is_continued_raises_alerts_again(world: World) -> None:
    raised(world, loss(float("nan")), failed(), exited(codes={0: 1, 1: 1}))
    config = make_config("digits", 2, max_restarts=0)
    world.tell(ContinueRequested(experiment_id=1, config=config), *running("1.1.2"))
    again = failed(allocation_id="1.1.2")
    assert kinds(raised(world, again, exited("1.1.2", codes={0: 1, 1: 1}))) == [AlertKind.FAILED]


def test_a_program_that_waits_for_its_experiment_needs_no_alert() -> None:
    world = World()
    quiet: Any = submitted(max_restarts=0).model_copy(update={"is_quiet": True})
    world.tell(registered(2), quiet, *running())
    events = (loss(float("nan")), failed(), exited(codes={0: 1, 1: 1}))
    assert raised(world, *events) == []
