"""Verbs about clusters, trackers and alerts: what is asked of the master, and the answer."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from det_jupyter.client import Client
from det_jupyter.client.imports.unmanaged import TakenIn
from det_jupyter.contract.messages import (
    AgentCheck,
    AlertDelivery,
    AlertDestination,
    AlertsView,
    AlertTested,
    ClusterCheck,
    ClusterStatus,
    ConnectionsChecked,
    PeerMeasured,
    RemovedCluster,
    TrackerState,
)
from det_jupyter.contract.messages.gang_links import Cut
from det_jupyter.errors import DetError, Problem
from det_jupyter.front.notebook.complete.magic_parsers import det_parser
from det_jupyter.front.verbs import tracking
from det_jupyter.front.verbs.grammar import Call, parse


class Master:
    """Answers each call with what a test says, and notes it."""

    def __init__(self, **answers: Any) -> None:
        self._answers = answers
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        def answer(*given: Any) -> Any:
            self.asked.append((name, given))
            found = self._answers[name]
            return found.pop(0) if isinstance(found, list) and name == "trackers" else found

        return answer


def said(master: Master, line: str) -> str:
    options = parse(det_parser(), line)
    call = Call(options=options, client=cast(Client, master), experiment=cast(Any, None))
    return str(options.verb.run(call))


def cluster(**changes: Any) -> ClusterStatus:
    fields = {
        "name": "big", "engine": "ray", "address": "head:10001", "slots": "gpu", "pool": "night",
        "state": "connected", "num_nodes": 2, "num_agents": 1, "num_slots": 8, "num_asked": 3,
    }  # fmt: skip
    return ClusterStatus.model_validate({**fields, **changes})


def test_a_cluster_is_added_with_the_settings_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    master = Master(add_cluster=cluster())
    assert said(master, "cluster add ray head:10001 --name big --pool night --token-file key") == (
        "cluster big is connected: 2 nodes, which join pool night with their GPUs as their "
        "agents start, in some seconds"
    )
    [(_, (config, pool))] = master.asked
    assert pool == "night"
    assert config == {
        "engine": "ray", "address": "head:10001", "slots": "gpu", "name": "big",
        "token_file": str(tmp_path / "key"),
    }  # fmt: skip


def test_a_cluster_without_a_token_is_added_with_a_warning() -> None:
    master = Master(add_cluster=cluster(slots="4", num_nodes=1, problems=["a node is full"]))
    lines = said(master, "cluster add ray head:10001 --slots 4 --without-token").splitlines()
    assert lines == [
        "cluster big is connected: 1 node, which join pool night with 4 CPU places each as their "
        "agents start, in some seconds",
        "Note: it has no token: everyone who reaches its port can run programs as you.",
        "Note: a node is full",
    ]
    assert master.asked[0][1][0]["without_token"] is True


def test_clusters_are_a_table_with_their_problems_below() -> None:
    listed = [cluster(), cluster(name="small", problems=["it is gone", "so is its disk"])]
    lines = said(Master(clusters=listed), "cluster list").splitlines()
    row = ["big", "ray", "head:10001", "connected", "2", "1", "8", "gpu", "3", "night"]
    assert cells(lines[1]) == row
    assert lines[-2:] == ["small: it is gone", "small: so is its disk"]
    assert said(Master(clusters=[]), "cluster list") == "No cluster was added."
    assert "it is gone" not in said(Master(clusters=listed), "cluster list --csv")


@pytest.mark.parametrize(
    ("removed", "lines"),
    [
        (RemovedCluster(num_agents=2, trial_ids=[]),
         ["cluster big is removed, and 2 agents of it ended"]),
        (RemovedCluster(num_agents=1, trial_ids=[7]),
         ["cluster big is removed, and 1 agent of it ended",
          "trial 7: queued again, from the last checkpoint, for other agents"]),
        (RemovedCluster(num_agents=1, trial_ids=[7, 8], problem="it does not answer"),
         ["cluster big is removed. Its agents could not be ended in order, because it does not "
          "answer. They cannot connect any more, end what runs there within 25 s, and exit a "
          "minute later",
          "trials 7, 8: queued again, from the last checkpoint, for other agents"]),
    ],
)  # fmt: skip
def test_what_becomes_of_a_removed_clusters_agents_and_trials_is_said(
    removed: RemovedCluster, lines: list[str]
) -> None:
    master = Master(remove_cluster=removed)
    assert said(master, "cluster remove big").splitlines() == lines
    assert master.asked == [("remove_cluster", ("big",))]


def checked(agent: str, peers: dict[str, PeerMeasured], *closed: str) -> AgentCheck:
    cuts = [Cut(from_agent=agent, to_agent=other, why="no answer") for other in closed]
    measured = ConnectionsChecked(
        latency_s=0.00125, down_bytes_per_s=2.5e8, up_bytes_per_s=1e8, peers=peers, closed=cuts
    )
    return AgentCheck(
        agent=agent, hostname=f"host-{agent}", clock_ahead_s=-0.0042, measured=measured
    )


def cells(line: str) -> list[str]:
    return re.split("  +", line)


def test_connections_are_tables_of_latency_and_speed() -> None:
    fast = PeerMeasured(latency_s=0.000456, bytes_per_s=1.25e9)
    unknown = PeerMeasured(latency_s=0.002)
    agents = [
        checked("a", {"b": fast}, "c"),
        checked("b", {"a": unknown, "c": fast}),
        checked("c", {}),
        AgentCheck(agent="d", hostname="host-d"),
    ]
    master = Master(check_agents=ClusterCheck(agents=agents, problems=["d does not answer"]))
    lines = said(master, "cluster check").splitlines()
    assert lines[0] == "d does not answer"
    assert [cells(line) for line in lines[3:7:3]] == [
        ["a", "host-a", "1.2", "250", "100", "-4.2"],
        ["d", "host-d", "-", "-", "-", "0"],
    ]
    assert [cells(line) for line in lines[8:]] == [
        ["Round trip through the agents, ms:"],
        ["From \\ To", "a", "b", "c"],
        ["a", "-", "0.46", "closed"],
        ["b", "2", "-", "0.46"],
        ["c", "-", "-", "-"],
        ["Speed through the agents (TLS), MB/s:"],
        ["From \\ To", "a", "b", "c"],
        ["a", "-", "1250", "closed"],
        ["b", "-", "-", "1250"],
        ["c", "-", "-", "-"],
    ]


def test_a_lone_agent_has_no_table_of_peers_and_none_is_said() -> None:
    lone = Master(check_agents=ClusterCheck(agents=[checked("a", {})], problems=[]))
    text = said(lone, "cluster check --folder data")
    assert text.startswith("Nothing is wrong.\n\n")
    assert "Round trip" not in text
    assert lone.asked[0][1] == (str(Path("data").absolute()),)
    none = Master(check_agents=ClusterCheck(agents=[], problems=["the port is closed"]))
    assert said(none, "cluster check").splitlines() == [
        "There is no agent on another computer.", "the port is closed",
    ]  # fmt: skip
    assert '"problems"' in said(none, "cluster check --json")
    assert none.asked[0][1] == ("",)


def tracker(number: int, **changes: Any) -> TrackerState:
    return TrackerState.model_validate({"id": number, "label": f"t{number}", **changes})


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waited: list[float] = []
    monkeypatch.setattr(tracking, "time", SimpleNamespace(time=lambda: 100.0, sleep=waited.append))
    return waited


def test_an_experiment_is_sent_until_the_trackers_have_what_there_was(
    waits: list[float],
) -> None:
    behind = tracker(1, seq=3, last_seq=9, behind=6)
    late = tracker(1, seq=9, last_seq=20, behind=2)
    other = tracker(2, seq=0, last_seq=9, behind=9)
    master = Master(send_to=[behind], trackers=[[behind, other], [late, other], [late, other]])
    assert said(master, "experiment sync 7") == "t1: 2 records behind"
    assert [name for name, _ in master.asked] == ["send_to", "trackers", "trackers"]
    assert len(waits) == 2
    assert master.asked[0][1][0] == 7


def test_a_tracker_that_fails_is_told_and_one_that_failed_before_is_waited_for(
    waits: list[float],
) -> None:
    before = tracker(1, seq=3, last_seq=9, behind=6, problem="no route", next_at=90.0)
    failed = tracker(1, seq=3, last_seq=9, behind=6, problem="refused", next_at=110.0)
    master = Master(send_to=[before], trackers=[[before], [failed]])
    with pytest.raises(DetError) as caught:
        said(master, "experiment sync 7 --to mine")
    assert str(caught.value) == (
        "t1: 6 records behind; refused; it is tried again\n"
        "The same command with --stop ends the attempts."
    )
    assert len(waits) == 2
    assert master.asked[0][1][1].name == "mine"


@pytest.mark.parametrize(
    ("left", "words"), [([tracker(1), tracker(2)], "t1, t2"), ([], "no tracker")]
)
def test_an_experiment_is_sent_no_more(left: list[TrackerState], words: str) -> None:
    master = Master(send_to=left)
    assert (
        said(master, "experiment sync 7 --stop") == f"Experiment 7 is sent to {words} from now on."
    )
    assert master.asked[0][1][1].is_over is True


def test_a_folder_is_taken_in_without_an_error_only_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = [TakenIn(Path("/a"), 7, "")]
    monkeypatch.setattr(tracking, "take_in", lambda given: taken)
    whole = "/a: experiment 7 has this run; `%det experiment show 7` shows it."
    assert said(Master(), "experiment sync /runs") == whole
    taken += [TakenIn(Path("/b"), 8, "it was silent"), TakenIn(Path("/c"), None, "refused")]
    with pytest.raises(DetError) as caught:
        said(Master(), "experiment sync /runs")
    first, cut, refused = str(caught.value).split("\n")
    assert (first, refused) == (whole, "/c: refused")
    assert cut.startswith("/b: experiment 8 has not all of this run: it was silent; `")


def delivery(**changes: Any) -> AlertDelivery:
    fields = {
        "id": 3, "event": "nan", "experiment_id": 7, "at": 1e9, "destination": "team",
        "state": "failed", "attempts": 2, "problem": "no route",
    }  # fmt: skip
    return AlertDelivery.model_validate({**fields, **changes})


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "team slack https://hooks/***: everything, of all"),
        ({"on": ["nan", "ended"], "pools": ["a", "b"], "experiment_id": 7},
         "team slack https://hooks/***: nan, ended, of experiment 7 in a, b"),
        ({"on": [], "name": ""}, "slack https://hooks/***: nothing, of all"),
    ],
)  # fmt: skip
def test_alerts_are_a_table_with_where_they_go(changes: dict[str, Any], line: str) -> None:
    fields = {"name": "team", "way": "slack", "address": "https://hooks/***", "on": None}
    view = AlertsView(
        file="alerts.yaml", problems=[Problem("a", "is wrong")], deliveries=[delivery()],
        destinations=[AlertDestination.model_validate({**fields, **changes})],
    )  # fmt: skip
    lines = said(Master(alerts=view), "alerts list").splitlines()
    assert lines[-3:] == ["", "not followed: a: is wrong", line]
    row = cells(lines[1])
    assert (row[0], *row[2:7], row[8]) == ("3", "nan", "7", "team", "failed", "2", "no route")
    assert "not followed" not in said(Master(alerts=view), "alerts list --csv")


def test_alerts_that_go_nowhere_are_said_to() -> None:
    view = AlertsView(file="alerts.yaml", problems=[], deliveries=[], destinations=[])
    assert said(Master(alerts=view), "alerts list").splitlines() == [
        "No alerts yet.", "", "Alerts go nowhere: alerts.yaml does not name a destination.",
    ]  # fmt: skip
    nowhere = Master(alerts=view, test_alerts=[])
    with pytest.raises(DetError, match=r"alerts go nowhere: name a destination in alerts\.yaml"):
        said(nowhere, "alerts test")


def test_each_test_of_an_alert_has_a_line() -> None:
    sent, failed = (AlertTested(destination=d, problem=p) for d, p in (("a", ""), ("b", "no")))
    master = Master(test_alerts=[sent])
    assert said(master, "alerts test a --experiment 7") == "a: sent"
    assert master.asked == [("test_alerts", ("a", 7))]
    with pytest.raises(DetError, match=r"^a: sent\nb: no\n1 test failed$"):
        said(Master(test_alerts=[sent, failed]), "alerts test")
