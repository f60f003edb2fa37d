"""Which nodes of a cluster get agents, over time."""

from __future__ import annotations

from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from det_jupyter.contract.messages import AskForNodes, ClusterNode, EndHost
from det_jupyter.engine.hosting import Demand, Hosting, departed

NONE = Demand()
Host = Literal["none", "starting", "running", "ended"]


def node(id: str = "a", host: Host = "none", *, gpus: float = 2, cpus: float = 8) -> ClusterNode:
    agent = "" if host in ("none", "starting") else f"ray-{id}"
    return ClusterNode(
        node_id=id, hostname=f"node-{id}", gpus=gpus, cpus=cpus, host=host, agent=agent
    )


def decide(
    hosting: Hosting,
    *nodes: ClusterNode,
    connected: tuple[str, ...] = (),
    busy: tuple[str, ...] = (),
    demand: Demand = NONE,
    now: float = 0.0,
) -> tuple[list[str], list[EndHost | AskForNodes]]:
    return hosting.decide(nodes, connected=connected, busy=busy, demand=demand, now=now)


def test_each_live_node_with_gpus_gets_an_agent() -> None:
    nodes = [node("a"), node("b", gpus=0), node("c").model_copy(update={"is_alive": False})]
    hosting = Hosting(slots="gpu")
    assert decide(hosting, *nodes, node("d")) == (["a", "d"], [])
    assert hosting.why_unsuitable(nodes[1]) == "node node-b has no GPU"
    assert hosting.why_unsuitable(node("e", gpus=1)) == ""


def test_cpu_places_need_as_many_cpus() -> None:
    hosting = Hosting(slots=4)
    small = node("b", cpus=2)
    assert decide(hosting, node("a"), small) == (["a"], [])
    assert hosting.why_unsuitable(small) == "node node-b has 2 CPUs, and an agent needs 4"


def test_an_agent_that_failed_is_started_again_with_growing_pauses() -> None:
    hosting = Hosting(slots="gpu")
    now, starts = 0.0, []
    while now < 40:
        started, orders = decide(hosting, node(), now=now)
        if started:
            starts.append(now)
            ended = node(host="ended")
            assert decide(hosting, ended, now=now) == ([], [EndHost(node_id="a")])
            assert decide(hosting, ended, now=now) == ([], [])  # ordered once
        assert orders == []
        now += 0.5
    assert starts == [0, 1, 3, 7, 15, 31]


def test_an_agent_that_does_not_connect_is_replaced() -> None:
    hosting = Hosting(slots="gpu")
    running = node(host="running")
    assert decide(hosting, running, now=0) == ([], [])
    assert decide(hosting, running, connected=("ray-a",), now=59) == ([], [])
    assert decide(hosting, running, now=60) == ([], [])
    assert decide(hosting, running, now=120) == ([], [])
    assert decide(hosting, running, now=121) == ([], [EndHost(node_id="a")])


def test_an_idle_node_is_given_back_until_trials_wait() -> None:
    hosting = Hosting(slots="gpu", idle_s=60)
    running, linked = node(host="running"), ("ray-a",)
    assert decide(hosting, running, connected=linked, now=0) == ([], [])
    assert decide(hosting, running, connected=linked, busy=linked, now=50) == ([], [])
    assert decide(hosting, running, connected=linked, now=110) == ([], [])
    assert decide(hosting, running, connected=linked, now=111) == ([], [EndHost(node_id="a")])
    assert decide(hosting, node(), now=120) == ([], [])
    starts, _ = decide(hosting, node(), demand=Demand(slots=1), now=130)
    assert starts == ["a"]


def test_a_cluster_is_asked_for_nodes_that_are_missing_and_then_no_more() -> None:
    hosting = Hosting(slots="gpu")
    running, linked = node(host="running"), ("ray-a",)
    waiting = Demand(slots=5)
    _, orders = decide(hosting, running, connected=linked, demand=waiting)
    assert orders == [AskForNodes(num=3, gpus=2)]
    assert decide(hosting, running, connected=linked, demand=waiting) == ([], [])
    _, orders = decide(hosting, running, node("b"), connected=linked, demand=waiting)
    assert orders == [AskForNodes(num=2, gpus=2)]  # an agent on b is starting
    _, orders = decide(hosting, running, node("b", "starting"), connected=linked)
    assert orders == [AskForNodes(num=0)]


def test_nodes_whose_agents_are_starting_are_not_missing() -> None:
    starting = [node("a", "starting"), node("b", "starting", gpus=3)]
    _, orders = decide(Hosting(slots="gpu"), *starting, demand=Demand(slots=9))
    assert orders == [AskForNodes(num=2, gpus=3)]
    assert decide(Hosting(slots="gpu"), *starting, demand=Demand(slots=5)) == ([], [])


def test_an_agent_that_has_worked_is_replaced_without_a_long_pause() -> None:
    hosting = Hosting(slots="gpu")
    for now in (0.0, 1.0, 3.0):
        assert decide(hosting, node(), now=now)[0] == ["a"]
        decide(hosting, node(host="ended"), now=now)
    assert decide(hosting, node(), now=7.0)[0] == ["a"]
    decide(hosting, node(host="running"), connected=("ray-a",), now=8.0)
    decide(hosting, node(host="ended"), now=9.0)
    assert decide(hosting, node(), now=9.9)[0] == []
    assert decide(hosting, node(), now=10.0)[0] == ["a"]


def test_a_pause_after_failures_has_a_bound() -> None:
    hosting, now = Hosting(slots="gpu"), 0.0
    for _ in range(12):
        assert decide(hosting, node(), now=now)[0] == ["a"]
        decide(hosting, node(host="ended"), now=now)
        now += 300.0


def test_a_new_bridge_is_asked_again_for_what_is_missing() -> None:
    hosting, waiting = Hosting(slots=2), Demand(slots=3)
    asked = AskForNodes(num=2, cpus=2)
    assert decide(hosting, demand=waiting) == ([], [asked])
    assert decide(hosting, demand=waiting) == ([], [])
    hosting.forget_requests()
    assert decide(hosting, demand=waiting) == ([], [asked])
    hosting.forget_requests()
    assert decide(hosting) == ([], [])  # nothing is missing, and nothing was asked for


def test_a_cluster_is_asked_for_no_more_than_eight_nodes_at_a_time() -> None:
    assert decide(Hosting(slots=1), demand=Demand(slots=100)) == (
        [], [AskForNodes(num=8, cpus=1)],
    )  # fmt: skip


def test_an_idle_node_is_kept_while_trials_wait_for_others() -> None:
    hosting = Hosting(slots="gpu", idle_s=60)
    running, linked = node(host="running"), ("ray-a",)
    for now in range(0, 200, 10):
        ends = [
            order
            for order in decide(
                hosting, running, connected=linked, demand=Demand(slots=1), now=float(now)
            )[1]
            if isinstance(order, EndHost)
        ]
        assert ends == []


def test_a_request_for_cpu_places_is_as_large_as_a_node() -> None:
    running = node(host="running", cpus=16)
    waiting = Demand(slots=1)
    _, orders = decide(Hosting(slots=4), running, connected=("ray-a",), demand=waiting)
    assert orders == [AskForNodes(num=1, cpus=16)]


@pytest.mark.parametrize(
    ("demand", "asked"),
    [
        (Demand(slots=12), AskForNodes(num=1, gpus=1)),  # it shows how many more are needed
        (Demand(slots=12, largest=8), AskForNodes(num=1, gpus=8)),  # a trial needs so large a one
    ],
)
def test_a_node_of_unknown_size_is_as_small_as_it_may_be(
    demand: Demand, asked: AskForNodes
) -> None:
    hosting = Hosting(slots="gpu")
    assert decide(hosting, demand=demand) == ([], [asked])
    decide(hosting, node(gpus=4), demand=demand)
    _, orders = decide(hosting, demand=demand)  # it has left; its size is known
    assert orders == [AskForNodes(num=3, gpus=4)]


def test_cpu_places_of_nodes_that_have_not_come_are_known() -> None:
    _, orders = decide(Hosting(slots=2), demand=Demand(slots=5))
    assert orders == [AskForNodes(num=3, cpus=2)]


def test_nodes_that_left_are_those_that_were_alive() -> None:
    dead = node("b").model_copy(update={"is_alive": False, "has_exited": True})
    before = {"a": node("a"), "b": node("b"), "c": node("c"), "d": dead}
    after = {"a": node("a"), "b": dead, "d": dead}
    left = {each.node_id: each.has_exited for each in departed(before, after)}
    assert left == {"b": True, "c": False}  # c is not listed any more


_HOSTS = st.sampled_from(["none", "starting", "running", "ended"])


@given(
    steps=st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), _HOSTS),
            st.sets(st.sampled_from("abc")),
            st.sets(st.sampled_from("abc")),
            st.integers(0, 9),
        ),
        max_size=12,
    ),
    idle_s=st.sampled_from([None, 5.0]),
)
def test_busy_agents_are_never_ended_and_only_free_nodes_get_agents(
    steps: list[tuple[dict[str, Host], set[str], set[str], int]], idle_s: float | None
) -> None:
    hosting = Hosting(slots="gpu", idle_s=idle_s)
    for now, (hosts, connected, busy, waiting) in enumerate(steps):
        nodes = [node(id, host) for id, host in hosts.items()]
        starts, orders = decide(
            hosting,
            *nodes,
            connected=tuple(f"ray-{id}" for id in connected),
            busy=tuple(f"ray-{id}" for id in connected & busy),
            demand=Demand(slots=waiting, largest=min(waiting, 2)),
            now=float(now),
        )
        assert all(hosts[id] == "none" for id in starts)
        for order in orders:
            if isinstance(order, EndHost):
                is_running = hosts[order.node_id] == "running"
                assert not (is_running and order.node_id in connected & busy)
            else:
                assert order.num == 0 or 2 * (order.num - 1) < waiting
