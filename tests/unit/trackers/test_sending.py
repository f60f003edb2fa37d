"""The order in which a process sends, and what one experiment's problem means for the others."""

from __future__ import annotations

import io
import logging
import os
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.contract.messages import TrackerOrder, TrackerWork
from det_jupyter.errors import MasterUnreachable, NotFound
from det_jupyter.trackers import __main__ as program
from det_jupyter.trackers.resolving import refuse_reserved
from det_jupyter.trackers.service import MasterFeed, TrackerRefused, Unreachable


class Works(MasterFeed):
    """A master with these experiments behind, which then replaces the process."""

    def __init__(self, *numbers: int) -> None:
        self.left = [list(numbers)]
        self.problems: dict[int, str] = {}
        self.failures: list[str] = []

    def work(self, group: str) -> list[TrackerWork]:
        if not self.left:
            raise NotFound("replaced")
        return [
            TrackerWork(id=number, experiment_id=number, key="k", seq=0, runs={})
            for number in self.left.pop()
        ]

    def report(self, work: TrackerWork, problem: str, *, is_unreachable: bool = False) -> None:
        if is_unreachable:
            self.failures.append(problem)
        else:
            self.problems[work.id] = problem


class Tracker:
    """A tracker that has a problem with the first experiment."""

    def __init__(self, problem: Exception) -> None:
        self.problem = problem
        self.sent: list[int] = []

    def send(self, work: TrackerWork) -> None:
        if work.id == 1:
            raise self.problem
        self.sent.append(work.id)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_PERIOD_S", 0.0)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (TrackerRefused("team has failed"), "team has failed"),
        (KeyError("x"), "it could not be sent (KeyError)"),
        (NotFound("there is no trial 3"), "there is no trial 3"),
    ],
)
def test_one_experiment_that_cannot_be_sent_stops_no_other(problem: Any, text: str) -> None:
    tracker, master = Tracker(problem), Works(1, 2, 3)
    with pytest.raises(NotFound):
        program.send_all(tracker, master, "group")
    assert (tracker.sent, master.problems) == ([2, 3], {1: text})


def test_a_tracker_that_cannot_be_reached_is_reported_once_and_is_not_asked_again() -> None:
    tracker, master = Tracker(Unreachable("down")), Works(1, 2)
    program.send_all(tracker, master, "group")
    assert (tracker.sent, master.problems, master.failures) == ([], {}, ["down"])


def order_of(tracker: dict[str, Any], **changes: Any) -> TrackerOrder:
    order = TrackerOrder(
        group="group", tracker=tracker, folder="/f", credentials={}, gets_credentials=True
    )
    return order.model_copy(update=changes)


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    found = {
        "MLFLOW_TRACKING_TOKEN": "old", "MLFLOW_TRACKING_AUTH": "x", "NETRC": "n", "HOME": "/h",
    }  # fmt: skip
    monkeypatch.setattr(program, "os", SimpleNamespace(environ=found, devnull="/dev/null"))
    return found


def test_credentials_of_the_order_replace_those_of_the_master(environment: Any) -> None:
    given = {"MLFLOW_TRACKING_USERNAME": "ann"}
    program.take_credentials(order_of({}, credentials=given))
    assert environment == {
        "MLFLOW_TRACKING_USERNAME": "ann",
        "MLFLOW_TRACKING_AUTH": "x",
        "NETRC": "n",
        "HOME": "/h",
    }


def test_an_address_of_the_user_without_credentials_gets_those_of_the_master(
    environment: Any,
) -> None:
    before = dict(environment)
    program.take_credentials(order_of({}))
    assert environment == before


def test_an_address_that_is_not_the_users_gets_no_credentials_that_lie_around(
    environment: Any,
) -> None:
    program.take_credentials(order_of({}, credentials={"A": "b"}, gets_credentials=False))
    assert environment == {"A": "b", "HOME": "/dev/null"}


class Started:
    """A process that has been started with an order; what it does is noted."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        end: Exception | None = None,
        is_named: bool = True,
    ) -> None:
        self.done: list[str] = []
        self.end = end
        order = order_of({"type": "wandb"}, is_named=is_named)
        monkeypatch.setattr(sys, "stdin", io.StringIO(order.model_dump_json() + "\n"))
        monkeypatch.setattr(program, "_end_with_input", lambda: self.done.append("watch"))
        monkeypatch.setattr(program, "_keep_log", lambda: self.done.append("log"))
        monkeypatch.setattr(program, "take_credentials", lambda order: self.done.append("own"))
        monkeypatch.setattr(program, "refuse_reserved", lambda: self.done.append("refuse"))
        monkeypatch.setattr(program, "find_master", lambda: SimpleNamespace(host="here"))
        monkeypatch.setattr(
            program, "Session", lambda info, *, is_background: (info, is_background)
        )
        monkeypatch.setattr(program, "Client", lambda session: session)
        monkeypatch.setattr(program, "_sender_of", lambda order, source: order.tracker["type"])
        monkeypatch.setattr(program, "send_all", self._send_all)

    def _send_all(self, sender: Any, source: Any, group: str) -> None:
        self.done.append(f"send {sender} {group}")
        if self.end is not None:
            raise self.end


def test_a_process_sends_what_its_order_names(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    assert program.main() == 0
    assert sorted(started.done) == ["log", "own", "send wandb group", "watch"]


def test_an_address_that_the_user_has_not_named_may_lead_to_no_metadata(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started = Started(monkeypatch, is_named=False)
    assert program.main() == 0
    assert started.done.index("refuse") < started.done.index("send wandb group")


def test_a_process_without_a_master_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    started = Started(monkeypatch)
    monkeypatch.setattr(program, "find_master", lambda: None)
    assert program.main() == 0
    assert "send wandb group" not in started.done


@pytest.mark.parametrize(
    ("end", "status"),
    [(MasterUnreachable("gone"), 0), (NotFound("replaced"), 0), (ValueError("secret"), 1)],
)
def test_only_a_fault_ends_a_process_with_an_error(
    end: Exception, status: int, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    Started(monkeypatch, end=end)
    assert program.main() == status
    assert [record.message.splitlines()[0] for record in caplog.records] == ["ValueError"] * status
    assert "secret" not in caplog.text


def test_a_process_ends_when_it_has_had_nothing_to_send_for_thirty_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    class Busy(Works):
        def work(self, group: str) -> list[TrackerWork]:
            is_due = now[0] == 120.0
            return [TrackerWork(id=2, experiment_id=2, key="k", seq=0, runs={})] if is_due else []

    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=sleep)
    monkeypatch.setattr(program, "time", clock)
    monkeypatch.setattr(program, "_PERIOD_S", 2.0)
    tracker = Tracker(Unreachable("down"))
    program.send_all(tracker, Busy(), "group")
    assert (tracker.sent, now) == ([2], [150.0])


@pytest.mark.parametrize(
    ("tracker", "kind"),
    [
        ({"type": "wandb", "project": "p", "entity": "e"}, "wandb"),
        ({"type": "mlflow", "tracking_uri": "http://127.0.0.1:1"}, "mlflow"),
    ],
)
def test_a_sender_is_that_of_the_trackers_library(
    tracker: dict[str, Any], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, sender in (("wandb", "WandbSender"), ("mlflow", "MlflowSender")):
        module = SimpleNamespace(**{sender: lambda name=name, **facts: (name, facts)})
        monkeypatch.setitem(sys.modules, f"det_jupyter.trackers.{name}_sender", module)
    made, facts = cast(
        "Any", program._sender_of(order_of(tracker, credentials={"A": "s"}), Works())
    )
    assert made == kind
    if kind == "wandb":
        assert (facts["project"], facts["entity"]) == ("p", "e")
    else:
        assert (facts["tracking_uri"], facts["secrets"]) == ("http://127.0.0.1:1", ["s"])
        assert facts["gets_credentials"] is True


def test_own_lines_are_kept_and_what_libraries_print_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [(tmp_path / name).open("w") for name in ("out", "err")]
    for name, file in zip(("stdout", "stderr"), files, strict=True):
        monkeypatch.setattr(sys, name, file)
    monkeypatch.setattr(program.logger, "propagate", True)
    program._keep_log()
    (handler,) = program.logger.handlers
    program.logger.error("an own line")
    for stream in (sys.stdout, sys.stderr):
        print("an address", file=stream, flush=True)
        os.write(stream.fileno(), b"of a program in C")
    program.logger.removeHandler(handler)
    assert isinstance(handler, logging.StreamHandler)
    for file in (*files, handler.stream):
        file.close()
    assert not program.logger.propagate  # else they would be written twice
    assert (tmp_path / "out").read_text() == ""
    assert (tmp_path / "err").read_text().endswith("ERROR: an own line\n")
    assert (tmp_path / "err").read_text().count("\n") == 1


def test_a_process_ends_with_its_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ended(Exception):
        pass

    def end(status: int) -> None:
        assert (status, sys.stdin.read()) == (0, "")
        raise Ended

    monkeypatch.setattr(sys, "stdin", io.StringIO("more"))
    monkeypatch.setattr(os, "_exit", end)
    with pytest.raises(Ended):
        program._end_with_input()


def test_hosts_of_clouds_metadata_are_not_found_and_others_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = {"good": ["10.0.0.1"], "bad": ["10.0.0.1", "169.254.169.254"]}

    def resolve(host: str, port: int, **options: Any) -> list[Any]:
        return [(2, 1, 6, options.get("canonname", ""), (each, port)) for each in found[host]]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    refuse_reserved()
    assert socket.getaddrinfo("good", 80) == [(2, 1, 6, "", ("10.0.0.1", 80))]
    with pytest.raises(socket.gaierror, match="one of clouds' metadata"):
        socket.getaddrinfo("bad", 80)
