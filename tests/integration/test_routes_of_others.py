"""What users' routes about disks, alerts, trackers and agents of other computers answer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.versions import installed_versions
from det_jupyter.contract.messages import BridgeReport
from det_jupyter.master.background import clusters, one_cluster
from det_jupyter.master.service import address_checks
from tests.integration.alerts.support import complete, refusing, send_due
from tests.integration.cluster_support import A, Bridge, node
from tests.integration.master_support import (
    AGENT,
    make_registration,
)
from tests.integration.routes_support import Routes, accepted, opened_routes, submit


@pytest.fixture
def routes(tmp_path: Path) -> Iterator[Routes]:
    """Return a master with an agent of two slots."""
    with opened_routes(tmp_path) as routes:
        routes.bench.register()
        yield routes


def test_disks_show_what_is_taken_and_are_freed(routes: Routes) -> None:
    left = paths.data_dir() / "runs" / "9.9.1" / "journal-0"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(100_000))
    assert any(use["num_bytes"] >= 100_000 for use in routes.get("/disks")["uses"])
    assert routes.post("/disks/free")["num_bytes"] >= 0
    submit(routes)
    room = routes.get("/experiments/1/room")
    assert (room["checkpoint_bytes"], room["like"]) == (0, None)


def test_alerts_go_to_the_users_own_places_and_to_those_of_experiments(routes: Routes) -> None:
    own = [{"name": "mine", "slack": "http://127.0.0.1:1/secret", "on": ["failed"]}]
    submit(routes, alerts=own)
    submit(routes)
    view = routes.get("/alerts")
    (place,) = view["destinations"]
    assert place == {
        "name": "mine", "way": "slack", "address": place["address"], "on": ["failed"],
        "pools": None, "experiment_id": 1,
    }  # fmt: skip
    assert "secret" not in place["address"]
    assert view["file"] == str(paths.alerts_file())
    assert view["problems"] == view["deliveries"] == []
    assert "other" in routes.refused(404, "POST", "/alerts/test", json={"name": "other"})


def test_what_became_of_alerts_is_shown_without_what_is_secret(routes: Routes) -> None:
    submit(routes, alerts=[{"slack": "http://127.0.0.1:1/secret"}])
    complete(routes.bench)
    send_due(routes.bench, send=refusing)
    view = routes.get("/alerts")
    (delivery,) = view["deliveries"]
    assert delivery == {
        "id": delivery["id"], "event": "ended", "experiment_id": 1, "at": delivery["at"],
        "destination": "slack http://127.0.0.1:1/********-1", "state": "waiting", "attempts": 1,
        "next_at": routes.bench.now + 5, "problem": "it refuses",
    }  # fmt: skip
    assert "secret" not in str(view)


def test_alerts_of_the_users_file_are_shown_without_what_is_secret(
    tmp_path: Path,
) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    path = tmp_path / "data" / paths.ALERTS_FILE
    path.write_text(
        "alerts:\n- {slack: 'https://hooks.example.org/secret', pools: [fast]}\n"
        "- {name: own, command: [say, secret]}\n"
    )
    path.chmod(0o600)
    with opened_routes(tmp_path) as routes:
        view = routes.get("/alerts")
    place, own = view["destinations"]
    assert (own["way"], own["address"]) == ("command", "say")
    assert (place["way"], place["pools"], place["experiment_id"]) == ("slack", ["fast"], None)
    assert place["address"].startswith("https://hooks.example.org")
    assert "secret" not in str(view)


def test_an_experiment_without_trackers_says_where_one_may_be_named(routes: Routes) -> None:
    submit(routes)
    assert routes.get("/experiments/1/trackers") == []
    words = routes.refused(404, "POST", "/experiments/1/trackers", json={})
    assert "experiment 1 names none, nor does" in words
    wrong = {"tracker": {"type": "mlflow", "tracking_uri": 3}}
    words = routes.refused(422, "POST", "/experiments/1/trackers", json=wrong)
    assert words.startswith("tracking_uri")


def test_agents_elsewhere_are_given_credentials_and_removed(routes: Routes) -> None:
    given = routes.post("/agents/b/credentials", address="10.0.0.1")
    assert (given["agent"], given["url"].split(":")[1]) == ("b", "//10.0.0.1")
    assert routes.service.access.agent_of(given["token"]) == "b"
    assert routes.service.access.port == routes.run(routes.listener.open())
    assert "agent of this computer" in routes.refused(
        409, "POST", f"/agents/{AGENT}/credentials", json={}
    )
    routes.service.access.add("n1", cluster="ray")
    for method in ("POST", "DELETE"):
        words = routes.refused(409, method, "/agents/n1/credentials", json={})
        assert "ray" in words
    token = given["token"]
    registration = make_registration("x").model_copy(update={"versions": installed_versions()})
    routes.service.register("b", registration, is_remote=True)
    assert not routes.service.machine.state.agents["b"].is_removed
    assert routes.ask("DELETE", "/agents/b/credentials").json() == {}
    assert routes.service.machine.state.agents["b"].is_removed
    assert routes.service.access.needs_port(time.time())  # it has to be refused first
    assert routes.service.access.agent_of(token) is None
    assert "no agent b" in routes.refused(404, "DELETE", "/agents/b/credentials")


def test_a_check_without_agents_elsewhere_has_only_the_masters_problems(routes: Routes) -> None:
    routes.service.file_problems = ["pools.yaml: wrong"]
    assert routes.post("/agents/check") == {
        "agents": [],
        "problems": ["not followed: pools.yaml: wrong"],
    }


TRACKER = {"type": "mlflow", "tracking_uri": "http://127.0.0.1:1", "name": "mine"}


def test_an_experiment_is_sent_to_trackers_and_its_progress_is_stored(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(address_checks, "find_spec", lambda name: ModuleType(name))
    submit(routes)
    path = "/experiments/1/trackers"
    (sent,) = routes.post(path, tracker=TRACKER)
    assert (sent["label"], sent["seq"]) == ("mine", 0)
    assert routes.get(path) == [sent]
    progress = {"seq": 3, "after": 0, "remark": "some were left out"}
    answer = routes.ask("PUT", f"/trackers/{sent['id']}", json=progress)
    assert answer.json()["seq"] == 3
    (state,) = routes.get(path)
    assert (state["seq"], state["remark"]) == (3, "some were left out")
    assert [each["id"] for each in routes.post(path, name="mine")] == [sent["id"]]
    words = routes.refused(404, "POST", path, json={"name": "other"})
    assert words.endswith("there is no tracker 'other'; there are mine")
    assert routes.post(path, is_over=True) == []
    words = routes.refused(404, "GET", "/trackers/work/guess")
    assert "replaced by another one" in words


def test_a_tracker_that_cannot_be_used_is_refused_with_every_problem(routes: Routes) -> None:
    submit(routes)
    bad = TRACKER | {"tracking_uri": "http://169.254.169.254/"}
    words = routes.refused(422, "POST", "/experiments/1/trackers", json={"tracker": bad})
    assert words
    assert routes.get("/experiments/1/trackers") == []


def test_a_cluster_is_joined_listed_and_removed(
    routes: Routes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def start(*_: object) -> Bridge:
        bridge = Bridge()
        bridge.coming.put_nowait(BridgeReport(nodes=[node(A)], is_connected=True))
        return bridge

    monkeypatch.setattr(one_cluster, "Bridge", SimpleNamespace(start=start))
    monkeypatch.setattr(clusters, "_END_S", 0.0)
    assert routes.get("/clusters") == []
    config = {"engine": "ray", "address": "127.0.0.1:6379", "slots": 2}
    added = routes.post("/clusters", config=config)
    assert (added["name"], added["state"], added["num_nodes"]) == ("ray", "connected", 1)
    assert routes.get("/clusters") == [added]
    assert routes.service.access.port is not None
    removed = accepted(routes.ask("DELETE", "/clusters/ray"))
    assert (removed["num_agents"], removed["trial_ids"]) == (0, [])
    assert routes.get("/clusters") == []
    assert "no cluster ray" in routes.refused(404, "DELETE", "/clusters/ray")
