"""The outbox of alerts: what waits for whom, how often it was tried, and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.config.alerts import UserAlert
from det_jupyter.contract.values.alerts import AlertKind
from det_jupyter.master.machine.model.turn import RaisedAlert
from det_jupyter.master.service.storing import stored_alerts as module
from det_jupyter.master.service.storing.database import open_database
from det_jupyter.master.service.storing.stored_alerts import Destination, StoredAlerts, make_news
from tests.unit.master.machine_world import World, registered, submitted

SLACK = Destination(
    alert=UserAlert(slack="https://hooks.slack.com/services/SECRET"), environment=None
)
PHONE = Destination(alert=UserAlert(name="phone", command=["say", "it"]), environment="e" * 64)


@pytest.fixture
def world() -> World:
    world = World()
    world.tell(registered(), submitted(name="d" * 150))
    return world


@pytest.fixture
def outbox(tmp_path: Path) -> Iterator[StoredAlerts]:
    db = open_database(tmp_path / "det.sqlite3")
    yield StoredAlerts(db)
    db.close()


def raise_alert(outbox: StoredAlerts, world: World, *to: Destination, at: float = 5.0) -> None:
    alert = RaisedAlert(kind=AlertKind.FAILED, experiment_id=1, trial_id=1, text="x" * 1500)
    outbox.add(world.machine.state, alert, at)
    (raised,) = outbox.raised()
    outbox.route(raised.id, [each.dump() for each in to])


def states(outbox: StoredAlerts) -> list[tuple[Any, ...]]:
    return [(each.state, each.attempts, each.problem) for each in outbox.deliveries(99)]


def test_an_alert_that_is_raised_names_what_it_is_about(
    outbox: StoredAlerts, world: World
) -> None:
    alert = RaisedAlert(kind=AlertKind.FAILED, experiment_id=1, trial_id=1, text="x" * 1500)
    outbox.add(world.machine.state, alert, 5.0)
    (raised,) = outbox.raised()
    number, news = raised.id, raised.news
    assert (number, news.at, news.event, news.trial_id) == (1, 5.0, AlertKind.FAILED, 1)
    assert news.title == f"experiment 1 ({'d' * 100}) failed"
    assert (news.text, news.is_test) == ("x" * 1000, False)
    assert outbox.waiting() == {}
    assert outbox.deliveries(99) == []


def test_an_experiment_that_ends_says_its_best_metric_and_a_test_says_so(world: World) -> None:
    state = world.machine.state
    assert make_news(state, AlertKind.ENDED, 1, at=5.0).text == ""
    world.experiment().best_metric = 0.123456789
    ended = make_news(state, AlertKind.ENDED, 1, at=5.0, is_test=True)
    assert ended.text.startswith("best ")
    assert ended.text.endswith(": 0.123457")
    assert ended.title == f"test: experiment 1 ({'d' * 100}) has completed"
    assert make_news(state, AlertKind.ENDED, 1, at=5.0, text="own").text == "own"
    assert make_news(state, AlertKind.HANG, 1, at=5.0).text == ""


def test_a_routed_alert_waits_for_each_destination(outbox: StoredAlerts, world: World) -> None:
    raise_alert(outbox, world, SLACK, PHONE)
    assert outbox.raised() == []
    assert outbox.waiting() == {SLACK.dump(): 0.0, PHONE.dump(): 0.0}
    found = outbox.due(SLACK.dump(), now=0.0)
    assert found is not None
    assert (found.at, found.attempts, found.next_at) == (5.0, 0, 0.0)
    assert found.news.text == "x" * 1000


def test_deliveries_are_the_last_ones_and_name_no_address(
    outbox: StoredAlerts, world: World
) -> None:
    raise_alert(outbox, world, SLACK, PHONE)
    found = outbox.due(SLACK.dump(), now=0.0)
    assert found is not None
    outbox.set_failed(found.id, "no route", next_at=20.0)
    phone, slack = outbox.deliveries(99)
    assert (phone.label, phone.next_at) == ("phone", 0.0)
    assert slack.label.startswith("slack ")
    assert "SECRET" not in slack.label
    assert (slack.at, slack.next_at, slack.news.experiment_id) == (5.0, 20.0, 1)
    assert outbox.deliveries(1) == [phone]


def test_what_is_done_is_kept_for_the_last_alerts_only(
    outbox: StoredAlerts, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_KEPT", 2)
    for at in (1.0, 2.0, 3.0, 4.0):
        raise_alert(outbox, world, SLACK, at=at)
    for delivery in outbox.deliveries(99):
        if delivery.at > 1.0:
            outbox.set_sent(delivery.id)
    outbox.prune()
    assert [(each.at, each.state) for each in outbox.deliveries(99)] == [
        (4.0, "sent"),
        (3.0, "sent"),
        (1.0, "waiting"),
    ]


def test_a_destination_without_an_address_is_refused() -> None:
    assert Destination.load(PHONE.dump()) == PHONE
    assert Destination.load(SLACK.dump()).environment is None
    with pytest.raises(ValueError, match="without an address"):
        Destination.load('{"alert": {"name": "x"}, "environment": null}')
