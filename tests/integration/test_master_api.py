"""The master's HTTP interface: authorization, answers, and how fast a gang is started."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from det_jupyter.contract.messages import MasterInfo
from det_jupyter.contract.run.journal import Record
from tests.integration.master_support import (
    AGENT,
    batches,
    gang_exited,
    gang_started,
    last_words,
    make_chunk,
    make_client,
    make_registration,
    make_request,
    make_text_chunk,
    master_process,
    started,
    validation,
)
from tests.problems import sentences_of
from tests.processes import wait_until


@pytest.fixture(scope="module")
def info(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MasterInfo]:
    """Return the address of a real master with an agent of two slots."""
    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch, master_process(home) as master:
        patch.setenv("DET_JUPYTER_CHECKPOINT_STORAGE", "/var/tmp/of the master")
        info = master.start()
        master.agent(info)
        yield info


@pytest.fixture
def http(info: MasterInfo) -> Iterator[httpx.Client]:
    """Return a client with the token."""
    with make_client(info) as client:
        yield client


def submit(http: httpx.Client, **changes: Any) -> httpx.Response:
    return http.post("/experiments", json=make_request(**changes).model_dump(mode="json"))


def assert_refused(answer: httpx.Response, status: int, error: str, *parts: str) -> None:
    assert answer.status_code == status, answer.text
    body = answer.json()
    assert set(body) == {"error", "problems", "what", "number"}
    assert body["error"] == error
    for part in parts:
        assert part in "\n".join(sentences_of(body))


@pytest.mark.parametrize(
    "path",
    [
        "/master",
        "/experiments",
        "/openapi.json",
        "/experiments/1/feed",
        "/agents/x/commands",
        "/nothing",
    ],
)
@pytest.mark.parametrize("token", ["", "Bearer wrong", "Basic x", "Bearer \xe9"])
def test_nothing_is_told_without_the_token(http: httpx.Client, path: str, token: str) -> None:
    answer = http.get(path, headers={b"Authorization": token.encode("latin-1")})
    assert_refused(answer, 401, "DetError", "token")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", ""])
def test_a_name_that_is_not_the_loopback_is_refused(http: httpx.Client, host: str) -> None:
    assert_refused(http.get("/master", headers={"Host": host}), 403, "DetError", "Host")


def test_the_master_says_who_it_is_but_not_its_token(http: httpx.Client, info: MasterInfo) -> None:
    said = MasterInfo.model_validate(http.get("/master").json())
    assert said == info.model_copy(update={"token": ""})


def test_checkpoints_that_cannot_go_to_hadoop_go_to_the_folder_of_the_master(
    http: httpx.Client, info: MasterInfo
) -> None:
    assert info.checkpoint_storage == "/var/tmp/of the master"
    hadoop = {"type": "hdfs", "hdfs_path": "/b", "save_trial_best": 3}
    answer = submit(http, checkpoint_storage=hadoop)
    assert answer.status_code == 201, answer.text
    stored = http.get(f"/experiments/{answer.json()['id']}/config").json()["config"]
    assert stored["checkpoint_storage"] == {
        "type": "directory", "container_path": "/var/tmp/of the master",
        "save_experiment_best": 0, "save_trial_best": 3, "save_trial_latest": 1,
    }  # fmt: skip


def test_the_contract_is_published(http: httpx.Client) -> None:
    paths = http.get("/openapi.json").json()["paths"]
    assert "/api/v1/experiments/{experiment_id}/curves" in paths
    assert "/api/v1/agents/{agent_id}/reports" in paths


@pytest.mark.parametrize(
    "path",
    [
        "/experiments/99",
        "/experiments/99/curves",
        "/experiments/99/checkpoints",
        "/experiments/99/feed",
        "/trials/99",
        "/trials/99/logs",
        "/trials/99/timings",
    ],
)
def test_what_does_not_exist_is_not_found(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert_refused(answer, 404, "NotFound", "99")
    what = "experiment" if "experiment" in path else "trial"
    assert (answer.json()["what"], answer.json()["number"]) == (what, 99)


def test_commands_for_what_does_not_exist_are_not_found(http: httpx.Client) -> None:
    assert_refused(http.post("/experiments/99/kill"), 404, "NotFound", "99")


def test_routes_that_do_not_exist_are_refused_in_the_same_form(http: httpx.Client) -> None:
    assert_refused(http.get("/nothing"), 404, "NotFound", "/nothing")
    assert_refused(http.delete("/experiments"), 405, "DetError", "DELETE")


def test_a_wrong_configuration_is_refused_with_every_problem(http: httpx.Client) -> None:
    answer = submit(http, resources={"slots_per_trial": "two"}, entrypoint=None)
    assert_refused(
        answer, 422, "ConfigError", "entrypoint: missing", "resources.slots_per_trial: got 'two'"
    )


def test_more_slots_than_any_agent_has_are_refused_at_once(http: httpx.Client) -> None:
    answer = submit(
        http, resources={"slots_per_trial": 8}, hyperparameters={"global_batch_size": 8}
    )
    assert_refused(answer, 422, "ConfigError", "resources.slots_per_trial: got 8", "2")


def test_a_malformed_request_is_refused_with_paths(http: httpx.Client) -> None:
    answer = http.post("/experiments", json={"config": 3, "extra": 1})
    assert_refused(answer, 422, "ConfigError", "config: got 3", "extra: got 1", "capsule: ")
    assert_refused(http.post("/experiments", content=b"{"), 422, "ConfigError")
    assert_refused(http.get("/experiments/one"), 422, "ConfigError", "experiment_id: got 'one'")


def test_changes_of_the_queue_are_made_together_or_not_at_all(http: httpx.Client) -> None:
    first, second = (submit(http).json()["id"] for _ in range(2))

    def change(priority: int, ahead_of: int, **options: Any) -> httpx.Response:
        changes = [
            {"where": where, "request": {"kind": kind, "experiment_id": second, **values}}
            for where, kind, values in (
                ("--priority", "change_resources", {"priority": priority}),
                ("--ahead-of", "move_in_queue", {"ahead_of": ahead_of}),
            )
        ]
        return http.post("/queue", json={"changes": changes, **options})

    def queued() -> list[tuple[int, int]]:
        jobs = http.get("/jobs").json()
        known = (first, second)
        return [(j["experiment_id"], j["priority"]) for j in jobs if j["experiment_id"] in known]

    before = queued()
    problems = ("--priority: got 100", "--ahead-of: there is no experiment 99")
    assert_refused(change(100, 99), 422, "ConfigError", *problems)
    assert_refused(change(100, 99, dry_run=True), 422, "ConfigError", *problems)
    assert change(42, first, dry_run=True).status_code == 200
    assert queued() == before
    assert [view["id"] for view in change(42, first).json()] == [second, second]
    assert queued() == [(second, 42), (first, 42)]
    for experiment_id in (first, second):
        http.post(f"/experiments/{experiment_id}/kill")


def test_a_session_that_is_not_registered_is_refused(http: httpx.Client) -> None:
    batch = {"session": "stale", "reports": []}
    answer = http.post(f"/agents/{AGENT}/reports", json=batch)
    assert_refused(answer, 409, "Conflict", "register first")
    answer = http.get(f"/agents/{AGENT}/commands", params={"session": "stale"})
    assert_refused(answer, 409, "Conflict", "register first")


def test_an_agent_of_another_protocol_is_refused(http: httpx.Client) -> None:
    body = make_registration("x").model_dump(mode="json") | {"protocol": 99}
    assert_refused(
        http.post(f"/agents/{AGENT}/register", json=body), 409, "ProtocolMismatch", "99"
    )


def test_an_experiment_from_submission_to_its_end(tmp_path: Path) -> None:
    with master_process(tmp_path) as master:
        info = master.start()
        agent = master.agent(info)
        http = make_client(info)
        created = submit(http)
        assert created.status_code == 201
        command = agent.next_command()
        assert (command["kind"], command["plan"]["allocation_id"]) == ("start_gang", "1.1.1")
        (view,) = http.get("/cluster").json()["pools"][0]["agents"]
        assert view["connected"]
        assert [slot["allocation_id"] for slot in view["slots"]] == ["1.1.1", "1.1.1"]
        assert http.post("/experiments/1/pause").json()["state"] == "PAUSING"
        assert agent.next_command()["kind"] == "signal_gang"
        assert http.post("/experiments/1/activate").json()["state"] == "ACTIVE"
        records: list[Record] = [
            started(),
            batches(1, ["NaN", 1.0]),
            validation(2, 0.5),
            *last_words(2),
        ]
        agent.report(
            gang_started(),
            make_chunk(records),
            make_text_chunk("hello\nworld\n", stream="output-1"),
            gang_exited(),
        )
        assert agent.next_command()["kind"] == "close_run"
        assert http.get("/experiments/1").json()["state"] == "COMPLETED"
        assert http.get("/trials/1").json()["best_metric"] == 0.5
        page = http.get("/trials/1/logs", params={"rank": 1, "tail": 1}).json()
        assert [line["text"] for line in page["lines"]] == ["world"]
        assert (page["total"], page["is_over"]) == (2, True)
        more = {"after": page["last_id"], "wait_s": 20}  # it does not wait: no line can follow
        assert http.get("/experiments/1/logs", params=more).json()["lines"] == []
        refused = http.get("/experiments/1/logs", params={"trial_id": 9})
        assert_refused(refused, 404, "NotFound", "no trial 9 in experiment 1; it has: 1")
        refused = http.get("/trials/1/logs", params={"search": "/(/"})
        assert_refused(
            refused, 422, "ConfigError", "search: got /(/, expected a regular expression"
        )
        curves = http.get("/experiments/1/curves", params={"max_points": 5}).json()
        assert curves[0]["values"] == [None, 1.0]
        feed = http.get("/experiments/1/feed").json()
        assert {"experiment", "trial", "metrics"} <= {item["kind"] for item in feed}
        assert_refused(http.post("/experiments/1/pause"), 409, "Conflict", "completed")
        assert http.post("/experiments/1/kill").json()["state"] == "COMPLETED"
        http.post("/master/stop", json={"everything": True})
        assert agent.next_command()["kind"] == "leave"
        assert master.wait() == 0
        http.close()


def test_an_agent_that_hangs_up_is_noticed(info: MasterInfo) -> None:
    with make_client(info) as http:
        agent = {"session": "brief"}
        body = make_registration("brief").model_dump(mode="json")
        assert http.post("/agents/brief/register", json=body).status_code == 200

        def is_connected() -> bool:
            (pool,) = http.get("/cluster").json()["pools"]
            (view,) = [agent for agent in pool["agents"] if agent["id"] == "brief"]
            return bool(view["connected"])

        with http.stream("GET", "/agents/brief/commands", params=agent) as answer:
            lines = answer.iter_raw()  # kept: dropping the iterator closes the answer
            assert next(lines) == b"\n"
            assert is_connected()
        wait_until(lambda: not is_connected(), "the master has noticed")
        again = http.get("/agents/brief/commands", params=agent)
        assert_refused(again, 409, "Conflict", "register again")


def test_an_agent_of_another_version_is_understood_enough_to_be_told(http: httpx.Client) -> None:
    body = {"protocol": 99, "version": "9.9", "pid": 4711, "slots": "of another kind", "more": 1}
    answer = http.post("/agents/old/register", json=body)
    assert_refused(answer, 409, "ProtocolMismatch", "agent old (process 4711) is det_jupyter 9.9")
    assert any("agent old" in line for line in http.get("/status").json()["problems"])
