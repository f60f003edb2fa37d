"""A request with the token is carried out or refused with a reason, whatever it contains.

Requests are sent to the app without a network: to each route, with unusual values in its path,
query and body. The sender must get a message about every mistake; a status 500 or an incomplete
response is a defect.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from starlette.types import Message

from det_jupyter.contract.messages import PROTOCOL, MasterInfo
from det_jupyter.contract.run.journal import CheckpointSaved
from det_jupyter.master.http import responses
from det_jupyter.master.http.api import create_app
from det_jupyter.master.http.guard import Guard
from det_jupyter.master.http.responses import API
from det_jupyter.master.service.agents.links import AgentLinks
from det_jupyter.master.service.committing.restoring import restore_machine
from tests.integration.master_support import (
    AGENT,
    Bench,
    batches,
    first_step,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_registration,
    make_request,
    make_text_chunk,
    started,
    validation,
)
from tests.problems import sentences_of
from tests.unit.master.machine_invariants import check_machine

HUGE = 10**5000
NUMBERS: list[Any] = [0, 1, -1, 2**31, 2**53, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**70,
                      10**400, 0.5, 1e-320, 1e308, float("nan"), float("inf")]  # fmt: skip
TEXTS = ["", " ", "x", "single", "default", "1", "none", "\0", "\n", "\x1b[31mred", "\u061c",
         "\ud800", "é", "😀", "../..", "/", "a" * 300, "[" * 100, "(a{e<=20})", AGENT, "first",
         "1.1.1"]  # fmt: skip
LEAVES: list[Any] = [None, True, *NUMBERS, *TEXTS, [], {}, [None], {"": 1}, {"\ud800": "\x1b"}]
WORDS = (
    [str(number) for number in NUMBERS] + TEXTS + ["9" * 5000, "1_0", "٣", "0x10", "+1", "true"]
)


@dataclass
class Answer:
    """A response."""

    status: int = 0
    body: bytes = b""
    is_whole: bool = False


@dataclass(frozen=True)
class Route:
    """A route of the OpenAPI document."""

    method: str
    path: str
    path_names: list[str]
    query_names: list[str]
    takes_body: bool


class Case(NamedTuple):
    """A request."""

    method: str
    path: bytes
    query: bytes
    body: bytes


@dataclass
class Door:
    """The app, its service, and its log."""

    app: Guard
    bench: Bench
    as_it_was: sqlite3.Connection
    loop: asyncio.AbstractEventLoop
    cases: list[Case] = field(default_factory=list)

    def reset(self) -> None:
        """Restore the initial state."""
        service = self.bench.service
        self.as_it_was.backup(service.store._db)
        service.machine = restore_machine(service.store)
        service.links = AgentLinks()
        self.bench.register()
        while not service.deletions.empty():
            service.deletions.get_nowait()

    def ask(self, method: str, path: bytes, query: bytes = b"", body: bytes = b"") -> Answer:
        """Send a request; disconnect when it is answered, or at once if the answer is endless."""
        answer = Answer()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path.decode("utf-8", errors="replace"),
            "raw_path": quote_from_bytes(path).encode(),
            "root_path": "",
            "query_string": query,
            "headers": [(b"host", b"127.0.0.1:1"), (b"authorization", b"Bearer token"),
                        (b"content-type", b"application/json")],
        }  # fmt: skip
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return messages.pop() if messages else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
            else:
                answer.body += message.get("body", b"")
                answer.is_whole = not message.get("more_body", False)

        self.loop.run_until_complete(self.app(scope, receive, send))
        return answer


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    """Return the app of a master with an experiment that is over, and one that waits."""
    bench = Bench(tmp_path_factory.mktemp("master") / "det.sqlite3")
    info = MasterInfo(
        url="http://127.0.0.1:1", token="token", pid=1, started_at=0.0, 
        version="0", protocol=PROTOCOL, python="python", data_dir="/",
    )  # fmt: skip
    bench.register()
    for _ in range(2):
        asyncio.run(bench.service.submit(make_request()))
    saved = CheckpointSaved(
        at=1.0, uuid="c1", steps_completed=100, path="/c1", size_bytes=1, metadata={}
    )
    journal = make_chunk(
        [started(), first_step(), batches(1, [0.5]), validation(100, 0.5), saved, *last_words()]
    )
    bench.report(gang_started(), journal, make_text_chunk("hello\n", stream="output-0"))
    bench.report(gang_exited())
    app = create_app(bench.service, info, request_stop=lambda everything: None)
    as_it_was = sqlite3.connect(":memory:")
    bench.store._db.backup(as_it_was)
    door = Door(app, bench, as_it_was, asyncio.new_event_loop())
    assert door.ask("PUT", b"/api/v1/templates/here", body=b'{"config": {}}').status == 200
    bench.store._db.backup(as_it_was)
    contract = json.loads(door.ask("GET", f"{API}/openapi.json".encode()).body)
    for path, verbs in contract["paths"].items():
        for verb, said in verbs.items():
            named: dict[str, list[str]] = {"path": [], "query": []}
            for parameter in said.get("parameters", ()):
                named[parameter["in"]].append(parameter["name"])
            route = Route(verb.upper(), path, named["path"], named["query"], "requestBody" in said)
            door.cases += cases_of(route)
    assert len(door.cases) > 5000
    yield door
    bench.service.close()
    as_it_was.close()
    door.loop.close()


def bodies() -> dict[str, Any]:
    """Return a valid body for each route that takes one, by the end of its path."""
    request = make_request(
        description="It is tried.",
        labels=["a"],
        data={"path": "/data"},
        log_policies=[{"name": "oom", "pattern": "memory", "action": "cancel_retries"}],
        environment={"environment_variables": ["A=b"]},
        checkpoint_storage={"save_trial_best": 1, "host_path": "/tmp"},
        resources={"slots_per_trial": 2, "priority": 5, "weight": 2.0, "max_slots": 3},
    ).model_dump(mode="json")
    return {
        "/experiments": request,
        "/preview": {"config": request["config"]},
        "/templates/{name}": {"config": {"max_restarts": 1}},
        "/retention": {"save_experiment_best": 1, "save_trial_best": 1, "save_trial_latest": 1},
        "/checkpoints/delete": {"uuids": ["a"]},
        "/resources": {"priority": 5, "weight": 2.0, "max_slots": 3},
        "/move": {"ahead_of": 2},
        "/queue": {
            "changes": [
                {
                    "where": "x",
                    "request": {"kind": "change_resources", "experiment_id": 1, "priority": 5},
                }
            ]
        },
        "/pools": {"pools": [{"name": "default", "agents": ["*"]}]},
        "/slots": {"slots": [0], "enabled": True},
        "/search": {"max_trials": 2, "max_length": {"batches": 200}},
        "/continue": {"length": {"batches": 200}, "config": {"max_restarts": 2}},
        "/stop": {"everything": False},
        "/register": make_registration("first").model_dump(mode="json"),
        "/reports": {"session": "first", "reports": [gang_started().model_dump(mode="json")]},
    }


BODIES = bodies()
QUERIES = ["status", "experiments", "experiments/1", "experiments/1/config", "cluster", "jobs",
             "templates", "feed", "trials/1/reason", "trials/2/reason", "experiments/1/curves",
             "experiments/1/checkpoints"]  # fmt: skip
USUAL = {"agent_id": AGENT, "verb": "pause", "name": "here"}


def body_of(path: str) -> Any:
    return next((body for end, body in BODIES.items() if path.endswith(end)), {})


def spoiled(value: Any) -> Iterator[Any]:
    """Yield the value with an unusual value in each of its places."""
    yield from LEAVES
    if isinstance(value, dict):
        for key, item in value.items():
            yield from (value | {key: other} for other in spoiled(item))
        yield from (value | {key: 1} for key in TEXTS)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in spoiled(item))


def cases_of(route: Route) -> Iterator[Case]:
    """Yield requests that are valid except for one place."""
    right = {name: USUAL.get(name, "1") for name in route.path_names}
    content = json.dumps(body_of(route.path)).encode()
    for name in route.path_names:
        for word in WORDS:
            yield Case(route.method, path_of(route, right | {name: word}), b"", content)
    for name in [*route.query_names, "\ud800"]:
        for word in WORDS:
            query = quoted(name) + b"=" + quoted(word)
            yield Case(route.method, path_of(route, right), query, content)
    if route.takes_body:
        bodies = [json.dumps(body).encode() for body in spoiled(body_of(route.path))]
        for body in [*bodies, b"[" * 9000, b"9" * 5000, b"NaN", b"\xff", b""]:
            yield Case(route.method, path_of(route, right), b"", body)


def path_of(route: Route, words: dict[str, str]) -> bytes:
    parts = [words.get(part.strip("{}"), part) for part in route.path.split("/")]
    return raw("/".join(parts))


def raw(text: str) -> bytes:
    return text.encode("utf-8", errors="surrogatepass")


def quoted(text: str) -> bytes:
    return quote_from_bytes(raw(text), safe="").encode()


def assert_answered(answer: Answer, what: object) -> None:
    assert answer.status not in (0, 500), (what, answer.body)
    assert answer.is_whole or answer.status == 200, (what, answer.body)
    for line in answer.body.decode().splitlines() if answer.is_whole else ():
        json.loads(line)
    if answer.status >= 400:
        said = json.loads(answer.body)
        assert said["problems"], what
        assert all(problem.replace("\n", "").isprintable() for problem in sentences_of(said)), (
            what,
            said,
        )


@settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_any_requests_are_answered(
    door: Door, data: st.DataObject, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.clear()
    door.reset()
    for case in data.draw(st.lists(st.sampled_from(door.cases), min_size=10, max_size=20)):
        assert_answered(door.ask(*case), case)
    for question in QUERIES:  # whatever was accepted, the master still answers
        answer = door.ask("GET", f"{API}/{question}".encode())
        assert answer.status in (200, 404), (question, answer.body)
    for verb in ("kill", "retention", "delete"):
        body = json.dumps(BODIES["/retention"]).encode() if verb == "retention" else b""
        answer = door.ask("POST", f"{API}/experiments/1/{verb}".encode(), body=body)
        assert answer.status in (200, 404, 409), (verb, answer.body)
    check_machine(door.bench.service.machine)
    restored = restore_machine(door.bench.store)
    assert restored.dump() == door.bench.service.machine.dump()
    failures = [r for r in caplog.records if r.exc_info and r.name == responses.__name__]
    assert not failures, failures[0].exc_info
