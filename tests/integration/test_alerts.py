"""Alerts arrive once, at real receivers; what is secret is nowhere but in its place."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from det_jupyter.client.environment import with_environment
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import AlertNews
from det_jupyter.errors import ConfigError
from det_jupyter.master.background import alert_sending, alerts
from det_jupyter.master.background.alert_sending import Failure
from det_jupyter.master.background.alerts import Alerting
from det_jupyter.master.background.cleanup import _sweep_alerts
from det_jupyter.master.service.alert_addresses import AlertAddresses
from det_jupyter.master.service.alert_outbox import Destination
from tests.integration.master_support import (
    Bench,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_request,
    started,
    validation,
)

SECRET = "QzSecretzQ"


class Receiver:
    """An HTTP server that answers as it is told, and keeps what it receives."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Mapping[str, str]]] = []  # the next ones; then 200
        self.received: list[tuple[str, Any]] = []
        self.holds = threading.Event()  # if cleared, no answer is given
        self.holds.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.received.append((self.path, json.loads(body)))
                receiver.holds.wait(60)
                status, headers = receiver.answers.pop(0) if receiver.answers else (200, {})
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.holds.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture(scope="module")
def server() -> Iterator[Receiver]:
    with closing(Receiver()) as receiver:
        yield receiver


@pytest.fixture
def receiver(server: Receiver) -> Receiver:
    server.answers, server.received = [], []
    server.holds.set()
    return server


@contextmanager
def opened(folder: Path) -> Iterator[Bench]:
    bench = Bench(folder / "det.sqlite3")
    try:
        yield bench
    finally:
        bench.service.close()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        bench.register()
        yield bench


def submit(bench: Bench, **changes: Any) -> int:
    return asyncio.run(bench.service.submit(make_request(**changes))).id


def complete(bench: Bench, number: int = 1) -> None:
    """Let the only trial of an experiment train to its end."""
    run = f"{number}.{number}.1"
    records = [started(), first_step(), validation(100, 0.5), *last_words()]
    bench.report(gang_started(run), make_chunk(records, run=run), gang_exited(run))
    assert bench.service.machine.state.experiment(number).state == "COMPLETED"


def send_due(bench: Bench, **options: Any) -> None:
    """Send what is due at the bench's time."""

    async def run() -> None:
        alerting = Alerting(bench.service, clock=lambda: bench.now, pause_s=0.0, **options)
        for _ in range(100):
            alerting.start_due()
            if not alerting._sending:
                return
            await alerting.settle()
        raise AssertionError("alerts are sent for ever")

    asyncio.run(run())


def states(bench: Bench) -> list[tuple[str, int, str]]:
    found = bench.store.alerts.deliveries(100)
    return [(each.state, each.attempts, each.problem) for each in reversed(found)]


def test_an_alert_is_posted_to_each_destination_in_its_form(
    bench: Bench, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "alerts.yaml").write_text(
        f"alerts:\n- {{name: phone, ntfy: '{receiver.url}/topic'}}\n"
        f"- {{name: no, webhook: '{receiver.url}/failed', on: [failed]}}\n"
    )
    own = [{"slack": f"{receiver.url}/slack"}, {"webhook": f"{receiver.url}/json"}]
    submit(bench, alerts=own)
    complete(bench)
    send_due(bench)
    got = dict(receiver.received)
    assert sorted(got) == ["/", "/json", "/slack"]
    assert got["/slack"] == {"text": "*experiment 1 (Trial) has completed*\nbest error: 0.5"}
    assert got["/"]["topic"] == "topic"
    news = AlertNews.model_validate(got["/json"])
    assert (news.event, news.experiment_id, news.best_metric) == ("ended", 1, 0.5)
    assert states(bench) == [("sent", 1, "")] * 3
    send_due(bench)
    assert len(receiver.received) == 3


def test_an_attempt_that_fails_is_made_again_later(bench: Bench, receiver: Receiver) -> None:
    receiver.answers = [(503, {}), (429, {"retry-after": "60"})]
    submit(bench, alerts=[{"webhook": f"{receiver.url}/x"}])
    complete(bench)
    shown = f"{receiver.url}/********"
    for later_s, expected in (
        (0, ("waiting", 1, f"{shown} answered 503")),
        (4.9, ("waiting", 1, f"{shown} answered 503")),
        (0.2, ("waiting", 2, f"{shown} answered 429")),
        (59.8, ("waiting", 2, f"{shown} answered 429")),
        (0.3, ("sent", 3, "")),
        (10**6, ("sent", 3, "")),
    ):
        bench.now += later_s
        send_due(bench)
        assert states(bench) == [expected]
    assert len({news["id"] for _, news in receiver.received}) == 1


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((404, {}), "answered 404"),
        ((302, {"location": "http://127.0.0.1:1/"}), "answered 302, a redirect; give its target"),
    ],
)
def test_a_refusal_is_final(
    bench: Bench, receiver: Receiver, answer: tuple[int, Mapping[str, str]], problem: str
) -> None:
    receiver.answers = [answer]
    submit(bench, alerts=[{"webhook": f"{receiver.url}/{SECRET}"}])
    complete(bench)
    send_due(bench)
    bench.now += 10**5
    send_due(bench)
    assert states(bench) == [("failed", 1, f"{receiver.url}/******** {problem}")]
    assert len(receiver.received) == 1


def test_a_receiver_that_is_dead_is_given_up_after_a_day(bench: Bench) -> None:
    submit(bench, alerts=[{"webhook": "http://127.0.0.1:9/x"}])
    complete(bench)
    began = bench.now
    while states(bench)[:1] in ([], [("waiting", *states(bench)[0][1:])] if states(bench) else []):
        send_due(bench, send=refusing)
        bench.now += 600
        assert bench.now < began + 2 * 86400
    ((state, attempts, problem),) = states(bench)
    assert (state, problem) == ("failed", "it refuses")
    assert 20 < attempts < 40
    assert 86400 - 3600 <= bench.now - began <= 86400 + 1200


async def refusing(
    addresses: AlertAddresses, destination: Destination, news: AlertNews
) -> Failure:
    return Failure(problem="it refuses")


def test_what_cannot_be_reached_is_said_without_the_address(bench: Bench) -> None:
    own = [
        {"webhook": f"http://127.0.0.1:1/{SECRET}"},
        {"webhook": f"http://host.invalid/{SECRET}"},
        {"webhook": f"http://169.254.169.254/{SECRET}"},
        {"webhook": f"http://[::ffff:169.254.169.254]/{SECRET}"},
        {"webhook": f"http://[fe80::1]/{SECRET}"},
        {"webhook": f"http://0.0.0.0/{SECRET}"},
        {"webhook": f"http://ann:{SECRET}@224.0.0.1/"},
    ]
    submit(bench, alerts=own)
    complete(bench)
    send_due(bench)
    found = states(bench)
    assert found[0] == (
        "waiting",
        1,
        "http://127.0.0.1:1/******** cannot be reached: it refuses connections",
    )
    assert found[1] == ("waiting", 1, "the host host.invalid is not known")
    assert all(each[0] == "failed" and "no alerts are sent" in each[2] for each in found[2:])
    assert SECRET not in str(found)


def test_a_dead_receiver_delays_no_other_and_stops_nothing(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One never answers; meanwhile the other gets its alerts, and the master goes on."""
    monkeypatch.setattr(alerts, "_LAST_S", 0.1)
    dead = Receiver()
    dead.holds.clear()
    both = [{"slack": f"{dead.url}/dead"}, {"webhook": f"{receiver.url}/alive"}]

    def has_received(num: int) -> bool:
        return len(receiver.received) == num

    async def run() -> None:
        alerting = Alerting(bench.service, pause_s=0.0)
        task = asyncio.create_task(alerting.run())
        for number in (1, 2):
            await bench.service.submit(make_request(alerts=both))
            complete(bench, number)
            await until(partial(has_received, number))
        assert len(dead.received) <= 1, "it is tried again only after an attempt has ended"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            async with asyncio.timeout(30):
                await task

    try:
        asyncio.run(run())
    finally:
        dead.close()
    assert sorted(each[0] for each in states(bench)) == ["sent", "sent", "waiting", "waiting"]


async def until(condition: Callable[[], bool], timeout_s: float = 30.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "timed out"
        await asyncio.sleep(0.01)


def test_a_receiver_without_an_answer_is_left_after_a_while(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_sending, "LIMIT_S", 0.3)
    receiver.holds.clear()
    submit(bench, alerts=[{"webhook": f"{receiver.url}/x"}])
    complete(bench)
    send_due(bench)
    assert states(bench) == [("waiting", 1, "no answer within 0.3 s")]


def test_a_command_gets_the_alert_on_stdin_and_in_variables(bench: Bench, tmp_path: Path) -> None:
    out = tmp_path / "out"
    script = (
        f'cat > {out}; echo "$DET_ALERT_EVENT $DET_ALERT_EXPERIMENT $DET_ALERT_TITLE" >> {out}'
    )
    commands = [["sh", "-c", script], ["false"], [str(tmp_path / "absent")], ["echo", "$(x)\0"]]
    document = {"alerts": [{"command": command} for command in commands]}
    (tmp_path / "alerts.yaml").write_text(json.dumps(document))
    submit(bench, name="a'; touch x; $(touch x) \"")
    complete(bench)
    send_due(bench)
    first, last = out.read_text().splitlines()
    news = AlertNews.model_validate_json(first)
    assert news.name == "a'; touch x; $(touch x) \""
    assert last == f"ended 1 {news.title}"
    assert states(bench) == [
        ("sent", 1, ""),
        ("waiting", 1, "the command ended with status 1"),
        ("failed", 1, "the command cannot be started: No such file or directory"),
        ("failed", 1, "the command cannot be started: its words are not valid"),
    ]


def test_a_command_that_hangs_is_killed_with_its_children(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_sending, "LIMIT_S", 0.5)
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"]
    (tmp_path / "alerts.yaml").write_text(json.dumps({"alerts": [{"command": command}]}))
    submit(bench)
    complete(bench)
    send_due(bench)
    assert states(bench) == [("waiting", 1, "no answer within 0.5 s")]
    if pid.exists():  # a busy computer may not have come so far

        async def gone() -> None:
            await until(lambda: not is_running(int(pid.read_text())))

        asyncio.run(gone())


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"


def test_an_address_is_stored_apart_and_shown_nowhere(
    bench: Bench, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "det_jupyter")
    url = f"{receiver.url}/{SECRET}"
    config = {"alerts": [{"slack": url, "name": "team"}]}
    template = bench.store.alert_addresses.hide(config)
    bench.store.set_template(0.0, "t", json.dumps(template))
    request = make_request(alerts=[{"webhook": url}])
    view = asyncio.run(bench.service.submit(request.model_copy(update={"template": "t"})))
    complete(bench)
    receiver.answers = [(500, {})]
    send_due(bench)
    bench.store.history.add_snapshot(bench.service.machine.state.seq, bench.service.machine.dump())
    shown = f"{receiver.url}/********-1"
    assert [each.get("slack") or each["webhook"] for each in view.config["alerts"]] == [shown] * 2
    tables = ["events", "snapshots", "feed", "logs", "templates", "alerts", "quarantine"]
    for table in tables:
        rows = bench.store._db.execute(f"SELECT * FROM {table}").fetchall()
        assert SECRET not in str(rows), table
    assert SECRET not in caplog.text
    assert SECRET not in str(bench.service.problems)
    assert {path for path, _ in receiver.received} == {f"/{SECRET}"}


def test_a_fork_goes_on_with_the_stored_address(bench: Bench, receiver: Receiver) -> None:
    submit(bench, alerts=[{"webhook": f"{receiver.url}/x"}])
    view = bench.service.views.experiment(1)
    complete(bench)
    fork = make_request().model_copy(update={"config": view.config, "parent_id": 1})
    asyncio.run(bench.service.submit(fork))
    complete(bench, 2)
    send_due(bench)
    assert [news["experiment_id"] for _, news in receiver.received] == [1, 2]


def test_references_are_followed_when_the_alert_is_sent(
    bench: Bench, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "hook"
    file.write_text(f"{receiver.url}/file\nanything\n")
    monkeypatch.setenv("OF_NOTEBOOK", f"{receiver.url}/notebook")
    own = [{"slack": "${OF_NOTEBOOK}"}, {"slack": f"file:{file}"}, {"slack": "${OF_MASTER}"}]
    request = make_request(alerts=own)
    blobs = BlobStore(tmp_path / "blobs")
    capsule = with_environment(request.capsule, request.config, blobs)
    monkeypatch.delenv("OF_NOTEBOOK")
    monkeypatch.setenv("OF_MASTER", f"{receiver.url}/master")
    asyncio.run(bench.service.submit(request.model_copy(update={"capsule": capsule})))
    complete(bench)
    file.write_text(f"{receiver.url}/rotated\n")
    send_due(bench)
    assert sorted(path for path, _ in receiver.received) == ["/master", "/notebook", "/rotated"]


def test_an_address_that_cannot_be_found_is_refused_at_submission(
    bench: Bench, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "text").write_text(SECRET)
    addresses = ["${NOT_SET_ANYWHERE}", "file:/absent", f"file:{tmp_path}/fifo",
                 f"file:{tmp_path}/text", "https://example.org/********-9"]  # fmt: skip
    own: list[Any] = [{"slack": address} for address in addresses]
    with pytest.raises(ConfigError) as raised:
        submit(bench, alerts=[*own, {"name": "phone", "on": []}])
    assert [str(problem) for problem in raised.value.problems] == [
        "alerts[0].slack: NOT_SET_ANYWHERE is not set where the experiment was submitted, nor "
        "where the master was started; set it there, or write file:/PATH of a file with the "
        "address",
        "alerts[1].slack: /absent cannot be read: No such file or directory",
        f"alerts[2].slack: file:{tmp_path}/fifo holds no address; expected https://...",
        f"alerts[3].slack: file:{tmp_path}/text holds no address; expected https://...",
        "alerts[4].slack: https://example.org/********-9 is not stored here; write the address "
        "itself",
        "alerts[5].name: got 'phone', which has no address here; alerts.yaml has none",
    ]


def test_addresses_go_when_nothing_refers_to_them(bench: Bench, receiver: Receiver) -> None:
    submit(bench, alerts=[{"webhook": f"{receiver.url}/kept"}])
    bench.store.alert_addresses.hide({"alerts": [{"slack": f"{receiver.url}/unused"}]})
    _sweep_alerts(bench.service, time.time())
    query = "SELECT count(*) FROM alert_addresses"
    assert bench.store._db.execute(query).fetchone() == (2,)  # it may be submitted yet
    _sweep_alerts(bench.service, time.time() + 7200)
    assert bench.store._db.execute(query).fetchone() == (1,)
    complete(bench)
    send_due(bench)
    assert [path for path, _ in receiver.received] == ["/kept"]


def test_problems_of_alerts_yaml_are_shown_and_the_file_is_read_again(
    bench: Bench, receiver: Receiver, tmp_path: Path
) -> None:
    file = tmp_path / "alerts.yaml"
    file.write_text(f"alerts: [{{slack: 'ftp://{SECRET}'}}]")
    assert bench.service.problems == [
        "not followed: alerts.yaml: alerts[0].slack: got '********', expected ${NAME} of a "
        "variable, file:/PATH of a file, or https://..."
    ]
    file.write_text(f"alerts: [{{webhook: '{receiver.url}/x'}}]")
    assert bench.service.problems == []
    submit(bench)
    complete(bench)
    send_due(bench)
    assert len(receiver.received) == 1


def test_a_destination_that_is_not_reached_is_a_problem_of_the_master(bench: Bench) -> None:
    submit(bench, alerts=[{"name": "team", "webhook": "http://127.0.0.1:1/x"}])
    complete(bench)
    for _ in range(3):
        assert bench.service.problems == []
        send_due(bench, send=refusing)
        bench.now += 4000
    assert bench.service.problems == ["alerts do not reach team: it refuses; they are tried again"]


# What may happen between the end of one experiment and that of the next.
Step = st.sampled_from(["experiment", "restart", "attempt", "later", "broken", "mended", "lost"])


class Flaky:
    """Stands for receivers: they fail while `is_broken`; counts what has arrived."""

    def __init__(self) -> None:
        self.is_broken = False
        self.arrived: list[tuple[str, int]] = []

    async def __call__(
        self, addresses: AlertAddresses, destination: Destination, news: AlertNews
    ) -> Failure | None:
        if self.is_broken:
            return Failure(problem="broken")
        self.arrived.append((str(destination.alert.name), news.experiment_id))
        return None


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

    async def count(*given: object) -> Failure | None:
        nonlocal attempts
        attempts += 1
        return Failure(problem="broken", is_final=True) if is_broken else None

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
    monkeypatch.setattr(alerts, "_AFTER_ERROR_S", 0.0)
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
    receivers.is_broken = False
    bench.now += 4000
    send_due(bench, send=receivers)
    assert receivers.arrived == [("a", 2)]


def test_an_alert_of_an_event_that_is_undone_is_not_stored(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(bench)

    def fail(*_: Any, **__: Any) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(bench.store.feed, "add_item", fail)
        with pytest.raises(OSError, match="full"):
            complete(bench)
    assert bench.store.alerts.raised() == []
    complete(bench)
    assert [news.event for _, news in bench.store.alerts.raised()] == ["ended"]


def test_a_test_is_sent_at_once_and_is_no_alert(
    bench: Bench, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "alerts.yaml").write_text(
        f"alerts: [{{name: a, webhook: '{receiver.url}/a'}}, {{command: ['false']}}]"
    )
    submit(bench, alerts=[{"slack": f"{receiver.url}/{SECRET}"}])
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
    alerting = Alerting(bench.service)
    tested = run(alerting.test(None, None))
    assert [(each.destination, each.problem) for each in tested] == [
        ("a", ""),
        ("command false", "the command ended with status 1"),
    ]
    assert receiver.received[0][1]["is_test"] is True
    tested = run(alerting.test(None, 1))
    assert [each.destination for each in tested] == [
        "a",
        "command false",
        f"slack {receiver.url}/********-1",
    ]
    assert states(bench) == []
