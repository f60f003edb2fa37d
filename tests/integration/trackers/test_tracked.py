"""How far experiments are sent to trackers: positions, problems, and the processes that send."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from fastapi.routing import APIRoute

from det_jupyter.client.submitting.environment import with_environment
from det_jupyter.config import parse_config
from det_jupyter.config.tracker_section import Tracker
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import SendTo, TrackerOrder, TrackerProgress
from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.master.delivery import outbox, trackers
from det_jupyter.master.delivery.trackers import Trackers
from det_jupyter.master.http.routes_trackers import tracker_routes
from det_jupyter.master.service import address_checks
from tests.integration.alerts.support import complete, opened, submit
from tests.integration.master_support import (
    Bench,
    gang_started,
    make_chunk,
    make_request,
    started,
    validation,
)
from tests.waiting import until

SECRET = "QzSecretzQ"
CAPSULE = make_request().capsule
PLACE = "http://127.0.0.1:1"
MLFLOW = {"type": "mlflow", "tracking_uri": PLACE}
DOWN = TrackerProgress(problem="it is down", is_unreachable=True)


@pytest.fixture(autouse=True)
def _libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the master find the libraries; nothing imports them here."""
    monkeypatch.setattr(address_checks, "find_spec", lambda name: ModuleType(name))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        bench.register()
        yield bench


class Processes:
    """Stands for the processes: runs until a test ends it."""

    def __init__(self) -> None:
        self.orders: list[TrackerOrder] = []
        self.ends: dict[str, asyncio.Future[int]] = {}

    async def __call__(self, order: TrackerOrder) -> int:
        self.orders.append(order)
        self.ends[order.group] = asyncio.get_running_loop().create_future()
        return await self.ends[order.group]

    async def next_of(self, sent: Trackers) -> TrackerOrder:
        """Start what is due: one more process; return its order."""
        num = len(self.orders)
        await sent.outbox.start_due()
        await until(lambda: len(self.orders) > num, "it happens")
        return self.orders[-1]

    async def end(self, order: TrackerOrder, status: int = 0) -> None:
        self.ends[order.group].set_result(status)
        await asyncio.sleep(0.01)


def play(bench: Bench, scene: Callable[[Trackers, Processes], Any]) -> None:
    """Run a scene with processes that are not real, at the bench's time."""

    async def run() -> None:
        processes = Processes()
        sent = Trackers(bench.service, clock=lambda: bench.now, run=processes)
        await scene(sent, processes)
        await sent.outbox.close()

    asyncio.run(run())


def report_validation(bench: Bench, steps: int = 50) -> None:
    bench.report(gang_started(), make_chunk([started(), validation(steps, 0.5)]))


def test_an_experiment_is_behind_until_the_position_is_advanced(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    report_validation(bench)
    (state,) = bench.service.views.experiment(1).trackers
    assert (state.label, state.behind, state.is_current) == (f"mlflow {PLACE}", 1, False)

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        assert order.tracker == MLFLOW
        (work,) = sent.work(order.group)
        assert (work.experiment_id, work.seq, work.runs) == (1, 0, {})
        last = bench.store.feed.last_seq
        sent.advance(work.id, TrackerProgress(seq=last, runs={1: {"run_id": "r"}}))
        assert sent.work(order.group) == []
        report_validation(bench, 60)
        await sent.outbox.start_due()
        (work,) = sent.work(order.group)
        assert (work.seq, work.runs) == (last, {1: {"run_id": "r"}})
        assert len(processes.orders) == 1
        with pytest.raises(NotFound, match="replaced"):
            sent.work("another")

    play(bench, scene)


def test_a_process_that_ends_at_once_is_started_again_after_a_pause(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    report_validation(bench)

    async def scene(sent: Trackers, processes: Processes) -> None:
        await processes.end(await processes.next_of(sent))
        await sent.outbox.start_due()
        assert (len(processes.orders), sent.outbox.sending) == (1, {})
        bench.now += 1.0
        await processes.end(await processes.next_of(sent))
        assert len(processes.orders) == 2

    play(bench, scene)


def test_a_tracker_that_is_down_for_a_moment_hides_no_refusal(bench: Bench) -> None:
    for _ in range(2):
        submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        await processes.next_of(sent)
        for _ in range(3):
            sent.advance(1, TrackerProgress(problem="it refuses"))
        for progress in (DOWN, TrackerProgress(remark="it is there again")):
            sent.advance(2, progress)
            (state,) = bench.service.views.experiment(1).trackers
            assert (state.problem, state.next_at) == ("it refuses", bench.now + 20)
            (state,) = bench.service.views.experiment(2).trackers
            assert (state.problem, state.remark) == (progress.problem, progress.remark)

    play(bench, scene)


def test_a_problem_is_shown_and_the_pauses_between_attempts_grow(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    report_validation(bench)

    async def scene(sent: Trackers, processes: Processes) -> None:
        pauses = []
        for _ in range(9):
            order = await processes.next_of(sent)
            assert len(sent.work(order.group)) == 1
            sent.advance(1, DOWN)
            await processes.end(order)
            (state,) = bench.service.views.experiment(1).trackers
            assert state.next_at is not None
            pauses.append(state.next_at - bench.now)
            bench.now = state.next_at - 0.1
            await sent.outbox.start_due()
            assert len(processes.orders) == len(pauses)
            bench.now = state.next_at
        assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
        assert state.problem == "it is down"
        assert bench.service.problems == [f"tracker mlflow {PLACE}: it is down; it is tried again"]
        order = await processes.next_of(sent)
        (work,) = sent.work(order.group)
        last = bench.store.feed.last_seq
        sent.advance(work.id, TrackerProgress(seq=last))
        (state,) = bench.service.views.experiment(1).trackers
        assert state.has(last)
        assert state.problem == ""
        assert bench.service.problems == []

    play(bench, scene)


def test_a_tracker_that_is_down_is_one_report_however_many_experiments_wait(
    bench: Bench,
) -> None:
    for _ in range(3):
        submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        sent.advance(1, DOWN)
        await processes.end(order)
        problems = [bench.store.tracked.states(each)[0].problem for each in (1, 2, 3)]
        assert problems == ["it is down"] * 3
        await bench.service.submit(make_request(trackers=[MLFLOW]))  # no reason to ask again
        await sent.outbox.start_due()
        assert len(processes.orders) == 1
        assert bench.store.tracked.states(4)[0].problem == "it is down"
        bench.now += 5
        await processes.next_of(sent)

    play(bench, scene)


def test_what_a_tracker_refuses_is_tried_later_and_delays_no_other(bench: Bench) -> None:
    for _ in range(2):
        submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        first, second = sent.work(order.group)
        sent.advance(first.id, TrackerProgress(problem="it refuses"))
        assert sent.work(order.group) == [second]
        assert bench.store.tracked.states(1)[0].problem == "it refuses"
        assert bench.store.tracked.states(2)[0].problem == ""
        bench.now += 5
        assert {each.id for each in sent.work(order.group)} == {first.id, second.id}

    play(bench, scene)


def test_experiments_take_turns_when_there_are_many(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trackers, "_AT_ONCE", 2)
    for _ in range(3):
        submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        turns = [[each.experiment_id for each in sent.work(order.group)] for _ in range(3)]
        assert turns == [[1, 2], [1, 3], [2, 3]]

    play(bench, scene)


def test_places_take_turns_when_there_are_more_than_processes(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "_MOST_AT_ONCE", 1)
    for name in ("first", "second"):
        submit(bench, trackers=[{**MLFLOW, "experiment": name}])

    async def scene(sent: Trackers, processes: Processes) -> None:
        for name in ("first", "second", "first"):
            order = await processes.next_of(sent)
            assert order.tracker["experiment"] == name
            assert len(sent.work(order.group)) == 1
            bench.now += 61
            with pytest.raises(NotFound):
                sent.work(order.group)
            await processes.end(order)

    play(bench, scene)


@pytest.mark.parametrize(("most", "is_down"), [(3, False), (2, False), (1, True)])
def test_a_place_keeps_its_turn_while_no_other_can_have_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, most: int, is_down: bool
) -> None:
    """There is room for more processes, or the others have theirs, or cannot be reached."""
    monkeypatch.setattr(outbox, "_MOST_AT_ONCE", most)
    for name in ("first", "second"):
        submit(bench, trackers=[{**MLFLOW, "experiment": name}])

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        if is_down:
            (other,) = [each for each in sent.due_at() if not each.group]
            other.next_at = bench.now + 300
        bench.now += 61
        assert len(sent.work(order.group)) == 1

    play(bench, scene)


def test_pages_show_that_a_tracker_is_down_and_is_reached_again(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])

    def kinds_since(seq: int) -> list[str]:
        return [each.kind for each in bench.store.feed.news_after(seq, 10)]

    async def scene(sent: Trackers, processes: Processes) -> None:
        order, before = await processes.next_of(sent), bench.store.feed.last_seq
        (work,) = sent.work(order.group)
        sent.advance(1, DOWN)
        assert kinds_since(before) == ["cluster"]
        before = bench.store.feed.last_seq
        sent.advance(work.id, TrackerProgress(seq=before))
        assert kinds_since(before) == ["cluster"]

    play(bench, scene)


def test_a_new_master_tries_at_once_what_has_failed_before(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])

    async def fail(sent: Trackers, processes: Processes) -> None:
        await processes.next_of(sent)
        sent.advance(1, DOWN)

    async def look(sent: Trackers, processes: Processes) -> None:
        assert bench.store.tracked.states(1)[0].problem == "it is down"
        await processes.next_of(sent)
        assert bench.store.tracked.states(1)[0].problem == ""

    play(bench, fail)
    play(bench, look)


def test_a_master_stays_to_send_but_not_for_a_tracker_that_is_down(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    complete(bench)

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        (work,) = sent.work(order.group)
        assert sent.is_sending
        sent.advance(1, DOWN)
        bench.now += 1e6  # an attempt is due
        assert not sent.is_sending
        sent.advance(work.id, TrackerProgress(seq=1))
        assert sent.is_sending
        sent.advance(work.id, TrackerProgress(seq=bench.store.feed.last_seq))
        assert sent.work(order.group) == []
        assert not sent.is_sending

    play(bench, scene)


def test_a_user_who_asks_again_has_it_tried_at_once(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        sent.advance(1, DOWN)
        await processes.end(order)
        await sent.outbox.start_due()
        assert len(processes.orders) == 1
        await sent.send_now(1)
        await processes.next_of(sent)

    play(bench, scene)


def test_a_process_that_is_killed_is_a_problem_of_what_it_had_to_send(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        await processes.end(await processes.next_of(sent), status=-9)
        (state,) = bench.service.views.experiment(1).trackers
        assert state.problem == (
            "the process that sends to it was ended by signal 9; trackers.log has more"
        )

    play(bench, scene)


def test_experiments_of_one_place_share_a_process(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "trackers.yaml").write_text(
        f"trackers:\n- {{type: mlflow, tracking_uri: '{PLACE}'}}\n"
        "- {type: mlflow, tracking_uri: 'http://127.0.0.1:2', pools: [night]}\n"
    )
    submit(bench)
    submit(bench, trackers=[{**MLFLOW, "name": "mine"}])
    submit(bench, trackers=[{**MLFLOW, "experiment": "other"}])

    async def scene(sent: Trackers, processes: Processes) -> None:
        await sent.outbox.start_due()
        await until(lambda: len(processes.orders) == 2, "it happens")
        works = {
            order.tracker.get("experiment"): [
                work.experiment_id for work in sent.work(order.group)
            ]
            for order in processes.orders
        }
        assert works == {None: [1, 2, 3], "other": [3]}

    play(bench, scene)


@pytest.mark.parametrize(
    "address",
    [f"https://ann:{SECRET}@mlflow.example.org", f"https://mlflow.example.org/s/{SECRET}"],
)
def test_a_secret_is_only_in_the_order_of_the_process(bench: Bench, address: str) -> None:
    submit(bench, trackers=[{"type": "mlflow", "tracking_uri": address}])

    async def scene(sent: Trackers, processes: Processes) -> None:
        order = await processes.next_of(sent)
        assert order.tracker["tracking_uri"] == address

    play(bench, scene)
    view = bench.service.views.experiment(1)
    assert SECRET not in view.model_dump_json()
    assert view.trackers[0].label == "mlflow https://mlflow.example.org/********-1"
    assert SECRET not in str([*bench.feed(), *bench.store.history.events_after(0)])
    bench.store.addresses.sweep([], bench.now + 1e9)
    assert bench.store.addresses.stored("https://mlflow.example.org/********-1") == address


def orders_of(bench: Bench) -> dict[str, TrackerOrder]:
    """Return the order for each address that something is to be sent to."""
    orders: dict[str, TrackerOrder] = {}

    async def scene(sent: Trackers, processes: Processes) -> None:
        await sent.outbox.start_due()
        num = len(sent.due_at())
        await until(lambda: len(processes.orders) == num, "it happens")
        orders.update({each.tracker["tracking_uri"]: each for each in processes.orders})

    play(bench, scene)
    return orders


TOKEN = {"MLFLOW_TRACKING_TOKEN": SECRET}


def test_credentials_of_the_environment_go_to_no_address_that_only_a_configuration_names(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = ["http://127.0.0.1:1", "http://127.0.0.1:2/hub", "http://127.0.0.1:3"]
    (tmp_path / "trackers.yaml").write_text(
        f"trackers:\n- {{type: mlflow, tracking_uri: '{users[0]}', pools: [night]}}\n"
    )
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"{users[1]}/")
    others = ["http://127.0.0.1:4", "http://127.0.0.1:2/hub/other", "https://127.0.0.1:3"]
    trackers = [{"type": "mlflow", "tracking_uri": each} for each in [*users, *others]]
    request = make_request(trackers=trackers)
    config = parse_config(request.config, default_seed=1)
    with monkeypatch.context() as where_it_is_submitted:
        where_it_is_submitted.setenv("MLFLOW_TRACKING_URI", users[2])
        where_it_is_submitted.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
        capsule = with_environment(CAPSULE, config, BlobStore(tmp_path / "blobs"))
    asyncio.run(bench.service.submit(request.model_copy(update={"capsule": capsule})))
    orders = orders_of(bench)
    assert all(orders[each].credentials == TOKEN for each in users)
    assert not any(orders[each].credentials for each in others)
    assert [each for each, order in orders.items() if order.gets_credentials] == users


CLEAR = "http://mlflow.example.org"


@pytest.mark.parametrize(
    ("address", "variables", "problem"),
    [
        (f"http://ann:{SECRET}@10.0.0.5:5000", {}, "can be read on the way"),
        (CLEAR, {"MLFLOW_TRACKING_URI": CLEAR, **TOKEN}, "can be read on the way"),
        ("http://169.254.169.254", {}, "is one of clouds' metadata"),
        ("http://0xA9FEA9FE:80/x", {}, "is one of clouds' metadata"),
        ("http://[64:ff9b::a9fe:a9fe]", {}, "is one of clouds' metadata"),
        ("https://metadata.google.internal", {}, "is one of clouds' metadata"),
    ],
)
def test_address_that_must_not_get_what_it_would_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, address: str, variables: dict[str, str],
    problem: str,
) -> None:  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"tracking_uri: .*{problem}") as caught:
        submit(bench, trackers=[{"type": "mlflow", "tracking_uri": address}])
    assert SECRET not in str(caught.value)


def test_address_that_the_user_names_gets_no_credentials_over_http_but_may_be_any(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in TOKEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://100.100.100.200")
    submit(bench, trackers=[{"type": "mlflow"}, MLFLOW])
    orders = orders_of(bench)
    known = {each: (order.gets_credentials, order.is_named) for each, order in orders.items()}
    assert known == {"http://100.100.100.200": (False, True), PLACE: (False, False)}


def test_host_that_is_resolved_to_metadata_is_refused_when_it_is_sent_to(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [(None, None, None, "", ("64:ff9b::a83f:8110", 80, 0, 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    submit(bench, trackers=[{"type": "mlflow", "tracking_uri": "http://rebound.example.org"}])

    async def scene(sent: Trackers, processes: Processes) -> None:
        await sent.outbox.start_due()
        await until(lambda: bool(bench.store.tracked.states(1)[0].problem), "it is refused")
        assert processes.orders == []

    play(bench, scene)
    assert "is one of clouds' metadata" in bench.store.tracked.states(1)[0].problem


def test_a_user_who_asks_again_brings_credentials_if_they_are_for_this_address(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(bench, trackers=[MLFLOW])

    def credentials_after(variables: dict[str, str]) -> dict[str, str]:
        async def scene(sent: Trackers, processes: Processes) -> None:
            await sent.outbox.start_due()
            await send_to(bench, sent, SendTo(variables=variables))
            await sent.outbox.start_due()
            (place,) = sent.due_at()
            await until(lambda: place.group in processes.ends, "it happens")
            (order,) = [each for each in processes.orders if each.group == place.group]
            found.update(order.credentials)

        found: dict[str, str] = {}
        play(bench, scene)
        return found

    assert credentials_after({}) == {}
    assert credentials_after({"MLFLOW_TRACKING_URI": PLACE, **TOKEN}) == TOKEN
    other = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:2", "MLFLOW_TRACKING_TOKEN": "other"}
    assert credentials_after(other) == TOKEN
    password = {"MLFLOW_TRACKING_USERNAME": "ann", "MLFLOW_TRACKING_PASSWORD": SECRET}
    assert credentials_after(password) == password


def send_to(bench: Bench, sent: Trackers, body: SendTo) -> Coroutine[Any, Any, Any]:
    """Call the route of `det e sync` for the first experiment."""
    for route in tracker_routes(bench.service, sent).routes:
        if isinstance(route, APIRoute) and route.name == "send_to":
            return route.endpoint(1, body)  # type: ignore[no-any-return]
    raise AssertionError


def test_an_address_that_is_given_again_keeps_the_credentials_that_went_with_it(
    bench: Bench,
) -> None:
    tracked, tracker = bench.store.tracked, Tracker.model_validate(MLFLOW)
    submit(bench)
    tracked.add(1, tracker, json.dumps({"MLFLOW_TRACKING_URI": PLACE, **TOKEN}))

    async def scene(sent: Trackers, processes: Processes) -> None:
        await send_to(bench, sent, SendTo(tracker=MLFLOW))
        assert (await processes.next_of(sent)).credentials == TOKEN

    play(bench, scene)


def test_a_tracker_to_which_nothing_goes_any_more_is_no_problem(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])

    async def scene(sent: Trackers, processes: Processes) -> None:
        for _ in range(3):
            order = await processes.next_of(sent)
            sent.advance(1, DOWN)
            await processes.end(order)
            bench.now += 60
        assert len(bench.service.problems) == 1
        await send_to(bench, sent, SendTo(is_over=True))
        assert bench.service.problems == []
        sent.advance(1, DOWN)  # an attempt was under way
        assert bench.service.problems == []
        await sent.outbox.start_due()
        assert len(processes.orders) == 3

    play(bench, scene)


def test_credentials_of_the_master_are_used_if_the_experiment_brings_none(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", PLACE)
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", SECRET)
    submit(bench, trackers=[MLFLOW])
    assert orders_of(bench)[PLACE].credentials == TOKEN


def test_what_is_known_to_be_missing_is_refused_at_submission(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(address_checks, "find_spec", lambda name: None)
    trackers = [{"type": "mlflow"}, {"type": "wandb", "mode": "offline"}]
    with pytest.raises(ConfigError) as raised:
        submit(bench, trackers=trackers, alerts=[{"slack": "${NOT_SET}"}])
    texts = [str(problem) for problem in raised.value.problems]
    assert texts[1:] == [
        "trackers[0].type: the package mlflow is not installed where the master runs; "
        "pip install 'det-jupyter[mlflow]'",
        "trackers[0].tracking_uri: MLFLOW_TRACKING_URI is not set where the experiment was "
        "submitted, nor where the master was started; set it there, or write file:/PATH of a "
        "file that has it",
        "trackers[1].type: the package wandb is not installed where the master runs; "
        "pip install 'det-jupyter[wandb]'",
    ]
    assert texts[0].startswith("alerts[0].slack: NOT_SET is not set")


def test_it_goes_there_no_more_until_a_user_asks_for_all_of_it_again(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    tracked, tracker = bench.store.tracked, Tracker.model_validate(MLFLOW)
    (row,) = tracked.behind()
    tracked.advance(row.id, TrackerProgress(seq=2), bench.now)
    tracked.end(1, tracker)
    assert (tracked.behind(), tracked.states(1)) == ([], [])
    assert tracked.add(1, tracker, None) == row.id
    assert [(each.seq, each.key) for each in tracked.behind()] == [(0, row.key)]


def test_what_is_sent_again_is_not_ended_by_a_process_that_was_further(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    tracked = bench.store.tracked
    (row,) = tracked.behind()
    last = bench.store.feed.last_seq
    tracked.advance(row.id, TrackerProgress(seq=1, after=0), bench.now)
    tracked.add(1, Tracker.model_validate(MLFLOW), None)  # `det e sync`
    tracked.advance(row.id, TrackerProgress(seq=last, after=1), bench.now)
    assert [each.seq for each in tracked.behind()] == [0]
    tracked.advance(row.id, TrackerProgress(seq=last, after=0), bench.now)
    assert tracked.behind() == []


def test_a_remark_is_no_problem(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    tracked, last = bench.store.tracked, bench.store.feed.last_seq
    (row,) = tracked.behind()
    tracked.advance(row.id, TrackerProgress(problem="it refuses"), bench.now)
    assert tracked.advance(row.id, TrackerProgress(seq=last, remark="made again"), bench.now)
    (state,) = tracked.states(1)
    assert (state.is_current, state.problem, state.next_at) == (True, "", None)
    assert state.sentence == f"mlflow {PLACE}: caught up; made again"


def test_one_place_gets_an_experiment_once_however_it_is_written(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    (row,) = bench.store.tracked.behind()
    other = {**MLFLOW, "tracking_uri": f"{PLACE}/", "name": "mine", "experiment": "det_jupyter"}
    assert bench.store.tracked.add(1, Tracker.model_validate(other), None) == row.id
    assert len(bench.store.tracked.of(1)) == 1


def test_what_a_user_has_ended_does_not_begin_when_the_experiment_is_continued(
    bench: Bench,
) -> None:
    submit(bench, trackers=[MLFLOW])
    state, tracked = bench.service.machine.state, bench.store.tracked
    tracked.end(1, Tracker.model_validate(MLFLOW))
    tracked.add_own(state, state.experiments[1])
    assert tracked.of(1) == []


def test_an_imported_experiment_goes_to_no_tracker_by_itself(bench: Bench) -> None:
    submit(bench)
    state, tracked = bench.service.machine.state, bench.store.tracked
    file = bench.store.addresses.trackers.path
    file.write_text(f"trackers:\n- {{type: mlflow, tracking_uri: '{PLACE}'}}\n")
    tracked.add_own(state, state.experiments[1].model_copy(update={"source": "mlflow"}))
    assert tracked.of(1) == []
    tracked.add_own(state, state.experiments[1])
    assert len(tracked.of(1)) == 1


def test_an_experiment_without_metrics_is_not_caught_up_before_it_was_sent(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    (state,) = bench.store.tracked.states(1)
    assert not state.has(state.last_seq)
    bench.store.tracked.advance(state.id, TrackerProgress(seq=state.last_seq), bench.now)
    report_validation(bench)
    (later,) = bench.store.tracked.states(1)
    assert (later.has(state.last_seq), later.has(later.last_seq)) == (True, False)


def test_an_experiment_that_is_deleted_leaves_nothing(bench: Bench) -> None:
    submit(bench, trackers=[MLFLOW])
    complete(bench)
    (row,) = bench.store.tracked.behind()
    bench.store.tracked.advance(row.id, TrackerProgress(seq=1, runs={1: {}}), bench.now)

    async def scene(sent: Trackers, processes: Processes) -> None:
        await sent.find()
        assert len(sent.due_at()) == 1
        for _ in bench.store.delete_experiment(1, [1]):
            pass
        await sent.outbox.start_due()
        await until(lambda: not sent.outbox.sending, "it has ended")
        assert (processes.orders, sent.due_at()) == ([], {})

    play(bench, scene)
    assert bench.store.tracked.behind() == []
    assert bench.store.tracked.advance(row.id, TrackerProgress(seq=2), bench.now) is None


def test_experiments_share_a_place_if_entry_and_variables_are_equal(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [MLFLOW, {**MLFLOW, "name": "mine"}, MLFLOW, {**MLFLOW, "experiment": "other"}]
    for entry, token in zip(entries, ("", "", "other", ""), strict=True):
        with monkeypatch.context() as where_it_is_submitted:
            if token:
                where_it_is_submitted.setenv("MLFLOW_TRACKING_TOKEN", token)
            request = make_request(trackers=[entry])
            config = parse_config(request.config, default_seed=1)
            capsule = with_environment(CAPSULE, config, BlobStore(tmp_path / "blobs"))
        asyncio.run(bench.service.submit(request.model_copy(update={"capsule": capsule})))

    async def scene(sent: Trackers, processes: Processes) -> None:
        await sent.find()
        assert [list(place.waiting) for place in sent.due_at()] == [[1, 2], [3], [4]]

    play(bench, scene)
