"""An alert arrives once, whatever happens to the master and to what it has stored."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from det_jupyter.contract.messages import AlertNews
from det_jupyter.master.background.cleanup import _sweep_alerts
from det_jupyter.master.delivery import outbox as module
from det_jupyter.master.delivery.alert_requests import FailedAttempt
from det_jupyter.master.service.storing.addresses import Addresses
from det_jupyter.master.service.storing.stored_alerts import Destination
from tests.integration.alerts.support import Flaky, complete, refusing, send_due, states, submit
from tests.integration.master_support import Bench


def test_a_destination_that_is_not_reached_is_a_problem_of_the_master(bench: Bench) -> None:
    submit(bench, alerts=[{"name": "team", "webhook": "http://127.0.0.1:1/x"}])
    complete(bench)
    for _ in range(3):
        assert bench.service.problems == []
        send_due(bench, send=refusing)
        bench.now += 4000
    assert bench.service.problems == ["alerts do not reach team: it refuses; they are tried again"]


def test_an_experiment_of_another_version_holds_up_no_alert(bench: Bench, tmp_path: Path) -> None:
    own = {"name": "desk", "webhook": "http://127.0.0.1:1/desk"}
    (tmp_path / "alerts.yaml").write_text(json.dumps({"alerts": [own]}))
    submit(bench, alerts=[{"webhook": "http://127.0.0.1:1/x"}])
    state = bench.service.machine.state
    state.experiments[1].config["searcher"] = {"name": "of another version"}
    with bench.store.transaction():
        bench.store.history.add_snapshot(state.seq, bench.service.machine.dump())
    again, receiver = Bench(bench.store.path), Flaky()
    again.register()
    assert again.service.machine.state.experiment(1).state == "ERROR"
    submit(again)
    complete(again, 2)
    send_due(again, send=receiver)
    assert receiver.arrived == [("desk", 1), ("desk", 2)]
    again.service.close()


# What may happen between the end of one experiment and that of the next.
Step = st.sampled_from(["experiment", "restart", "attempt", "later", "broken", "mended", "lost"])


@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(Step, max_size=12))
def test_an_alert_arrives_once_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, steps: Sequence[str]
) -> None:
    folder = tmp_path_factory.mktemp("once")
    own = [{"name": name, "webhook": f"http://127.0.0.1:1/{name}"} for name in ("a", "b")]
    receivers, num = Flaky(), 0
    bench = Bench(folder / "det.sqlite3")
    bench.register()
    for step in [*steps, "mended", "later", "attempt", "attempt"]:
        match step:
            case "experiment":
                num += 1
                submit(bench, alerts=own)
                complete(bench, num)
            case "restart" | "lost":  # properly, or without a last snapshot
                if step == "restart":
                    bench.service.close()
                else:
                    bench.store.close()
                now, bench = bench.now, Bench(folder / "det.sqlite3")
                bench.now = now
                bench.register()
            case "attempt":
                send_due(bench, send=receivers)
            case "later":
                bench.now += 4000
            case _:
                receivers.is_broken = step == "broken"
    bench.service.close()
    expected = [(name, number) for number in range(1, num + 1) for name in ("a", "b")]
    assert sorted(receivers.arrived) == sorted(expected)


@pytest.mark.parametrize("is_broken", [False, True])
def test_an_attempt_that_a_full_disk_keeps_from_being_recorded_is_made_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    submit(bench, alerts=[{"name": "a", "webhook": "http://127.0.0.1:1/a"}])
    complete(bench)
    attempts, left = 0, 3

    async def count(*given: object) -> FailedAttempt | None:
        nonlocal attempts
        attempts += 1
        return FailedAttempt(problem="broken", is_final=True) if is_broken else None

    def full_at_first(store: Callable[..., None]) -> Callable[..., None]:
        def record(*given: Any) -> None:
            nonlocal left
            left -= 1
            if left >= 0:
                raise OSError(errno.ENOSPC, "no space")
            store(*given)

        return record

    outbox = bench.store.alerts
    for name in ("set_sent", "set_failed"):
        monkeypatch.setattr(outbox, name, full_at_first(getattr(outbox, name)))
    monkeypatch.setattr(module, "_AFTER_ERROR_S", 0.0)
    given_back = []
    monkeypatch.setattr(bench.service.reserve, "give_back", lambda: given_back.append(1))
    send_due(bench, send=count)
    assert (attempts, len(given_back)) == (1, 3)
    assert [state for state, _, _ in states(bench)] == ["failed" if is_broken else "sent"]


@pytest.mark.parametrize("column", ["news", "destination"])
def test_a_stored_alert_that_cannot_be_read_holds_up_no_other(bench: Bench, column: str) -> None:
    own = [{"name": "a", "webhook": "http://127.0.0.1:1/a"}]
    for number in (1, 2):
        submit(bench, alerts=own)
        complete(bench, number)
    receivers = Flaky()
    receivers.is_broken = True
    send_due(bench, send=receivers)  # both wait now
    with bench.store.savepoint():
        bench.store._db.execute(
            f"UPDATE alerts SET {column} = replace({column}, '\"', '') "
            "WHERE id = (SELECT min(id) FROM alerts)"
        )
    _sweep_alerts(bench.service, bench.now)
    assert all("do not reach" not in problem for problem in bench.service.problems)
    receivers.is_broken = False
    bench.now += 4000
    send_due(bench, send=receivers)
    assert receivers.arrived == [("a", 2)]


NO_ADDRESS = [
    '{"alert": {}, "environment": null}',
    '{"alert": {"name": "a"}, "environment": null}',
]


@pytest.mark.parametrize("stored", ["", "{}", "[]", *NO_ADDRESS])
def test_a_destination_that_cannot_be_read_disturbs_nothing(bench: Bench, stored: str) -> None:
    submit(bench, alerts=[{"name": "a", "webhook": "http://127.0.0.1:1/a"}])
    complete(bench)
    receivers = Flaky()
    receivers.is_broken = True
    send_due(bench, send=receivers)
    with bench.store.savepoint():
        bench.store._db.execute("UPDATE alerts SET destination = ?, attempts = 9", (stored,))
    assert bench.store.alerts.problems() == []
    assert bench.service.problems == []
    bench.now += 4000
    send_due(bench, send=receivers)
    assert (receivers.arrived, states(bench)) == ([], [])


def test_an_alert_of_an_event_that_is_undone_is_not_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(bench)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store.feed, "mark", fail)
        with pytest.raises(OSError, match="full"):
            complete(bench)
    assert bench.store.alerts.raised() == []
    complete(bench)
    assert [alert.news.event for alert in bench.store.alerts.raised()] == ["ended"]


def test_a_destination_that_fails_is_not_tried_again_for_the_next_alert_at_once(
    bench: Bench,
) -> None:
    tried: list[int] = []

    async def refuse(_: Addresses, to: Destination, news: AlertNews) -> FailedAttempt | None:
        tried.append(news.experiment_id)
        return FailedAttempt(problem="down")

    own = [{"webhook": "http://127.0.0.1:1/a"}]
    for number in (1, 2):
        submit(bench, alerts=own)
        complete(bench, number)
    send_due(bench, send=refuse)
    assert tried == [1]
    assert states(bench) == [("waiting", 1, "down"), ("waiting", 0, "")]
