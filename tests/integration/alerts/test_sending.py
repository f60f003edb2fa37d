"""Alerts arrive at real receivers, and what fails is tried again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.messages import AlertNews
from det_jupyter.contract.values import reserved_hosts
from det_jupyter.master.delivery import alert_requests, alerts
from det_jupyter.master.delivery.alerts import Alerts
from tests.integration.alerts.support import (
    SECRET,
    Receiver,
    complete,
    refusing,
    send_due,
    states,
    submit,
)
from tests.integration.master_support import Bench, make_request
from tests.waiting import until


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
        (
            (302, {"location": "http://127.0.0.1:1/"}),
            "answered 302, a redirect; give the address to which it leads",
        ),
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


def test_what_cannot_be_reached_is_said_without_the_address(bench: Bench) -> None:
    own = [
        {"webhook": f"http://127.0.0.1:1/{SECRET}"},
        {"webhook": f"http://host.invalid/{SECRET}"},
        {"webhook": f"http://169.254.169.254/{SECRET}"},
        {"webhook": f"http://[::ffff:169.254.169.254]/{SECRET}"},
        {"webhook": f"http://[64:ff9b::a9fe:a9fe]/{SECRET}"},
        {"webhook": f"http://2852039166/{SECRET}"},
        {"webhook": f"http://100.100.100.200/{SECRET}"},
        {"webhook": f"http://metadata.google.internal/{SECRET}"},
        {"webhook": f"http://[fe80::1]/{SECRET}"},
        {"webhook": f"http://0.0.0.0/{SECRET}"},
        {"webhook": f"http://224.0.0.1/{SECRET}"},
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
    for state, _, problem in found[2:]:
        assert (state, "nothing is sent unless alerts.yaml" in problem) == ("failed", True)
    assert SECRET not in str(found)


def test_proxy_is_not_asked_for_metadata(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    submit(bench, alerts=[{"webhook": "http://0xA9FEA9FE/x"}])
    complete(bench)
    send_due(bench)
    ((state, _, problem),) = states(bench)
    assert (state, "nothing is sent unless alerts.yaml" in problem) == ("failed", True)


def test_users_own_file_may_name_any_address(
    bench: Bench, receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reserved_hosts, "is_reserved", lambda address: True)
    named = {"alerts": [{"webhook": f"{receiver.url}/mine"}]}
    (tmp_path / "alerts.yaml").write_text(json.dumps(named))
    submit(bench, alerts=[{"webhook": f"{receiver.url}/theirs"}])
    complete(bench)
    send_due(bench)
    assert [path for path, _ in receiver.received] == ["/mine"]


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
        task = asyncio.create_task(Alerts(bench.service, pause_s=0.0).outbox.run())
        for number in (1, 2):
            await bench.service.submit(make_request(alerts=both))
            complete(bench, number)
            await until(partial(has_received, number), "it is received")
        assert len(dead.received) <= 1, "it is tried again only after an attempt has ended"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    try:
        asyncio.run(run())
    finally:
        dead.close()
    assert sorted(each[0] for each in states(bench)) == ["sent", "sent", "waiting", "waiting"]


def test_a_receiver_without_an_answer_is_left_after_a_while(
    bench: Bench, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_requests, "LIMIT_S", 0.3)
    receiver.holds.clear()
    submit(bench, alerts=[{"webhook": f"{receiver.url}/x"}])
    complete(bench)
    send_due(bench)
    assert states(bench) == [("waiting", 1, "no answer within 0.3 s")]


def test_a_test_is_sent_at_once_and_is_no_alert(
    bench: Bench, receiver: Receiver, tmp_path: Path
) -> None:
    (tmp_path / "alerts.yaml").write_text(
        f"alerts: [{{name: a, webhook: '{receiver.url}/a'}}, {{command: ['false']}}]"
    )
    submit(bench, alerts=[{"slack": f"{receiver.url}/{SECRET}"}])
    run: Callable[[Coroutine[Any, Any, Any]], Any] = asyncio.run
    sent = Alerts(bench.service)
    tested = run(sent.test(None, None))
    assert [(each.destination, each.problem) for each in tested] == [
        ("a", ""),
        ("command false", "the command ended with status 1"),
    ]
    assert receiver.received[0][1]["is_test"] is True
    tested = run(sent.test(None, 1))
    assert [each.destination for each in tested] == [
        "a",
        "command false",
        f"slack {receiver.url}/********-1",
    ]
    assert states(bench) == []


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
        ("failed", 1, "the command cannot be started: a word of it cannot be passed to a program"),
    ]


def test_a_command_that_hangs_is_killed_with_its_children(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alert_requests, "LIMIT_S", 0.5)
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"sleep 600 & echo $! > {pid}; wait"]
    (tmp_path / "alerts.yaml").write_text(json.dumps({"alerts": [{"command": command}]}))
    submit(bench)
    complete(bench)
    send_due(bench)
    assert states(bench) == [("waiting", 1, "no answer within 0.5 s")]
    if pid.exists():  # a busy computer may not have come so far

        async def gone() -> None:
            await until(lambda: not is_running(int(pid.read_text())), "it has ended")

        asyncio.run(gone())


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return status != "Z"
