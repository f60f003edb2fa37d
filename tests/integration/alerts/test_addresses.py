"""Addresses of alerts are secrets: they are in their place and nowhere else."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.client.submitting.environment import with_environment
from det_jupyter.config import parse_config
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.errors import ConfigError
from det_jupyter.master.background.cleanup import _sweep_alerts
from tests.integration.alerts.support import (
    SECRET,
    Receiver,
    complete,
    send_due,
    states,
    submit,
)
from tests.integration.master_support import Bench, ask, make_request


def test_an_address_is_stored_apart_and_shown_nowhere(
    bench: Bench, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "det_jupyter")
    url = f"{receiver.url}/{SECRET}"
    config = {"alerts": [{"slack": url, "name": "team"}]}
    template = bench.store.addresses.hide(config)
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
    capsule = with_environment(
        request.capsule, parse_config(request.config, default_seed=1), blobs
    )
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
        "where the master was started; set it there, or write file:/PATH of a file that has "
        "it",
        "alerts[1].slack: /absent cannot be read: No such file or directory",
        f"alerts[2].slack: {tmp_path}/fifo cannot be read: it is no regular file",
        f"alerts[3].slack: file:{tmp_path}/text holds no address; expected https://...",
        "alerts[4].slack: https://example.org/********-9 is not stored here; write the address "
        "itself",
        "alerts[5].name: got 'phone', which has no address here; alerts.yaml has none",
    ]


IN_THE_CLEAR = f"http://ann:{SECRET}@192.0.2.2:8123/hook"


@pytest.mark.parametrize("written", [IN_THE_CLEAR, "${CLEAR}", "file"])
def test_a_password_that_could_be_read_on_the_way_is_refused_at_submission(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    monkeypatch.setenv("CLEAR", IN_THE_CLEAR)
    (tmp_path / "hook").write_text(IN_THE_CLEAR)
    address = f"file:{tmp_path}/hook" if written == "file" else written
    with pytest.raises(ConfigError) as raised:
        submit(bench, alerts=[{"webhook": address}])
    assert [str(problem) for problem in raised.value.problems] == [
        "alerts[0].webhook: got http://192.0.2.2:8123/********, to which a name and password or "
        "a token would be sent so that they can be read on the way; expected https://, or a "
        "tunnel: ssh -L 5000:localhost:8123 192.0.2.2, and http://localhost:5000"
    ]


def test_a_password_goes_over_https_or_to_this_computer(bench: Bench) -> None:
    for host in ("https://ann:x@example.org/a", "http://ann:x@localhost/a", "http://x@[::1]/a"):
        submit(bench, alerts=[{"webhook": host}])


def test_alerts_yaml_sends_no_password_that_could_be_read_on_the_way(
    bench: Bench, tmp_path: Path
) -> None:
    (tmp_path / "alerts.yaml").write_text(f"alerts: [{{slack: '{IN_THE_CLEAR}'}}]")
    submit(bench)
    complete(bench)
    send_due(bench)
    ((_, _, problem),) = states(bench)
    assert "can be read on the way; expected https://" in problem
    assert SECRET not in problem


def test_addresses_that_come_with_a_continuation_are_found_or_refused(
    bench: Bench, receiver: Receiver
) -> None:
    submit(bench, alerts=[{"slack": f"{receiver.url}/first"}])
    complete(bench)
    answer = change(bench, {"alerts": [{"slack": "${NOT_SET_ANYWHERE}"}, {"name": "phone"}]})
    assert (answer.status_code, answer.json()["error"]) == (422, "ConfigError")
    assert [each["path"] for each in answer.json()["problems"]] == [
        "alerts[1].slack",  # after the one that is kept
        "alerts[2].name",
    ]
    assert bench.service.machine.state.experiment(1).state == "COMPLETED"
    longer = {"searcher": {"max_length": {"batches": 300}}}
    assert change(bench, {**longer, "alerts": [{"slack": f"{receiver.url}/x"}]}).is_success


def change(bench: Bench, changes: dict[str, Any]) -> httpx.Response:
    """Continue the experiment with changes."""
    return ask(bench, "POST", "/experiments/1/continue", json={"config": changes})


def test_addresses_go_when_nothing_refers_to_them(bench: Bench, receiver: Receiver) -> None:
    submit(bench, alerts=[{"webhook": f"{receiver.url}/kept"}])
    bench.store.addresses.hide({"alerts": [{"slack": f"{receiver.url}/unused"}]})
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
