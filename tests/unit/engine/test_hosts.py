"""What the bridge does with actors on a Ray cluster, and reports of the nodes that Ray lists."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.contract.messages import AgentCredentials, AskForNodes, ClusterNode, StartHost
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.engine.ray import hosts as module
from det_jupyter.engine.ray.hosts import Hosts


class Call:
    """A method of an actor; the calls of `state` are answered when a test says so."""

    def __init__(self, actor: Actor, name: str) -> None:
        self._actor, self._name = actor, name

    def remote(self, *arguments: Any) -> Any:
        self._actor.calls.append((self._name, *arguments))
        return self._actor


class Actor:
    """An actor; `answer` is what its state is, None: it does not answer yet."""

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.calls: list[tuple[Any, ...]] = []
        self.answer: Any = None
        self.start, self.end, self.state = (Call(self, name) for name in ("start", "end", "state"))


class Ray:
    """Stands for the module ray, connected to a cluster with these nodes."""

    def __init__(self, *nodes: dict[str, Any], named: dict[str, str] | None = None) -> None:
        self.listed = list(nodes)
        self.named = named or {}  # namespaces by the names of actors
        self.made: list[Actor] = []
        self.killed: list[Actor] = []
        self.by_value: list[Any] = []
        self.cloudpickle = SimpleNamespace(register_pickle_by_value=self.by_value.append)
        self.util = SimpleNamespace(
            list_named_actors=self._list,
            scheduling_strategies=SimpleNamespace(
                NodeAffinitySchedulingStrategy=lambda node, *, soft: (node, soft)
            ),
        )

    def _list(self, *, all_namespaces: bool) -> list[dict[str, str]]:
        assert all_namespaces
        return [{"name": name, "namespace": space} for name, space in self.named.items()]

    def remote(self, kind: type) -> Any:
        def options(**given: Any) -> Any:
            return SimpleNamespace(remote=lambda: self._make(given))

        return SimpleNamespace(options=options)

    def _make(self, given: dict[str, Any]) -> Actor:
        self.made.append(Actor(**given))
        return self.made[-1]

    def get_actor(self, name: str, namespace: str) -> Actor:
        if name == "ended":
            raise ValueError(name)
        return self._make({"name": name, "adopted": namespace})

    def kill(self, actor: Actor) -> None:
        self.killed.append(actor)

    def wait(self, references: list[Actor], *, timeout: float) -> tuple[list[Actor], list[Actor]]:
        assert timeout == 0
        return [each for each in references if each.answer is not None], []

    def get(self, actor: Actor) -> Any:
        if isinstance(actor.answer, Exception):
            raise actor.answer
        return actor.answer

    def nodes(self) -> list[dict[str, Any]]:
        return self.listed


def listed(name: str = "a1", **changes: Any) -> dict[str, Any]:
    resources = {"CPU": 8, "GPU": 2}
    facts = {"NodeID": name, "NodeManagerHostname": f"node-{name}", "Resources": resources}
    return facts | {"Alive": True} | changes


GPUS = ClusterConfig(engine="ray", address="head:6379", slots="gpu")
CREDENTIALS = AgentCredentials(agent="ray-a1", url="https://m", certificate="c", token="t")
ORDER = StartHost(node_id="a1", credentials=CREDENTIALS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    return now


def hosts_of(ray: Ray, config: ClusterConfig = GPUS) -> Hosts:
    return Hosts(ray, config, "m", "mine")


def state_of(ray: Ray, hosts: Hosts) -> tuple[str, str, str]:
    hosts.poll()
    (node,) = hosts.nodes()
    return node.host, node.agent, node.output


@pytest.mark.parametrize(
    ("reason", "has_exited"),
    [
        (1, True),  # expected termination: the raylet was stopped
        (2, False),  # unexpected termination
        (3, False),  # preempted: Ray infers it when a node does not answer any more
        (4, True),  # drained, because it was idle
        (None, False),
    ],
)
def test_a_dead_node_has_exited_only_if_its_raylet_has_said_so(
    reason: int | None, has_exited: bool
) -> None:
    (node,) = hosts_of(Ray(listed(Alive=False, DeathReason=reason))).nodes()
    assert (node.is_alive, node.has_exited) == (False, has_exited)


def test_nodes_are_reported_with_what_they_have() -> None:
    full, empty = hosts_of(Ray(listed(), listed("b2", Resources={}))).nodes()
    assert full == ClusterNode(node_id="a1", hostname="node-a1", cpus=8, gpus=2)
    assert empty == ClusterNode(node_id="b2", hostname="node-b2", cpus=0, gpus=0)


def test_the_actor_on_a_node_with_gpus_holds_them_and_starts_an_agent() -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    assert hosts.is_empty
    hosts.start(ORDER, gpus=2)
    hosts.start(ORDER, gpus=2)  # it is there
    (actor,) = ray.made
    assert actor.options == {
        "name": "a1",
        "lifetime": "detached",
        "max_restarts": 0,
        "num_cpus": 0,
        "num_gpus": 2,
        "scheduling_strategy": ("a1", False),
    }
    json = CREDENTIALS.model_dump_json()
    assert actor.calls == [
        ("start", "ray-a1", json, "m-ray-a1", GPUS.python, {"DET_JUPYTER_CPU_SLOTS": ""})
    ]
    assert not hosts.is_empty
    assert ray.by_value == [module.agent_host]


def test_the_actor_on_a_node_with_cpu_places_holds_these() -> None:
    ray = Ray(listed())
    config = GPUS.model_copy(update={"slots": 3})
    hosts_of(ray, config).start(ORDER, gpus=2)
    (actor,) = ray.made
    assert (actor.options["num_cpus"], actor.options["num_gpus"]) == (3, 0)
    assert actor.calls[0][-1] == {"DET_JUPYTER_CPU_SLOTS": "3"}


def test_the_next_bridge_finds_the_actors_of_its_namespace() -> None:
    ray = Ray(listed(), named={"a1": "mine", "b2": "other", "ended": "mine"})
    hosts = hosts_of(ray)
    assert [actor.options for actor in ray.made] == [{"name": "a1", "adopted": "mine"}]
    hosts.start(ORDER, gpus=2)
    assert len(ray.made) == 1


def test_a_host_is_asked_once_a_second_and_reports_its_agent(clock: list[float]) -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    hosts.start(ORDER, gpus=2)
    (actor,) = ray.made
    assert state_of(ray, hosts) == ("starting", "", "")
    clock[0] += 5
    assert state_of(ray, hosts) == ("starting", "", "")
    assert actor.calls[1:] == [("state",)]  # one request waits for its answer
    actor.answer = {"code": None, "agent": "ray-a1", "output": "hello"}
    assert state_of(ray, hosts) == ("running", "ray-a1", "hello")
    clock[0] += 1.01
    actor.answer = {"code": None, "agent": "", "output": "again"}
    assert state_of(ray, hosts) == ("starting", "", "again")
    hosts.poll()
    assert len(actor.calls) == 3
    clock[0] += 1.01
    actor.answer = {"code": 1, "agent": "ray-a1", "output": "no room"}
    assert state_of(ray, hosts) == ("ended", "ray-a1", "no room")
    assert ray.killed == []  # the master orders it


def test_an_actor_that_cannot_answer_is_gone(clock: list[float]) -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    hosts.start(ORDER, gpus=2)
    ray.made[0].answer = RuntimeError("it has died")
    assert state_of(ray, hosts) == ("none", "", "")
    assert hosts.is_empty
    assert ray.killed == ray.made


def test_an_agent_that_runs_has_twenty_seconds_to_end(clock: list[float]) -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    hosts.start(ORDER, gpus=2)
    (actor,) = ray.made
    actor.answer = {"code": None, "agent": "ray-a1", "output": ""}
    hosts.poll()
    hosts.end("a1")
    hosts.end("a1")
    hosts.end("unknown")
    assert actor.calls.count(("end",)) == 1
    clock[0] += 19.9
    hosts.poll()
    assert ray.killed == []
    clock[0] += 0.2
    hosts.poll()
    assert (ray.killed, hosts.is_empty) == ([actor], True)


def test_a_host_whose_agent_has_ended_as_ordered_is_killed_at_once(clock: list[float]) -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    hosts.start(ORDER, gpus=2)
    (actor,) = ray.made
    actor.answer = {"code": None, "agent": "ray-a1", "output": ""}
    hosts.poll()
    hosts.ask(AskForNodes(num=1, gpus=2.0))
    hosts.end_all()
    assert hosts.num_asked == 0
    actor.answer = {"code": 0, "agent": "ray-a1", "output": ""}
    clock[0] += 1.01
    hosts.poll()
    assert hosts.is_empty
    assert ray.killed == [ray.made[1], actor]


def test_a_host_whose_agent_has_not_started_is_killed_without_waiting(clock: list[float]) -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    hosts.start(ORDER, gpus=2)
    hosts.end("a1")
    clock[0] += 0.01
    hosts.poll()
    assert hosts.is_empty


def test_the_host_of_a_node_that_has_died_is_forgotten() -> None:
    ray = Ray(listed())
    hosts = hosts_of(ray)
    hosts.start(ORDER, gpus=2)
    ray.listed = [listed(Alive=False)]
    (node,) = hosts.nodes()
    assert (node.node_id, node.is_alive, node.host) == ("a1", False, "none")
    assert hosts.is_empty


def test_as_many_actors_wait_as_nodes_are_asked_for_until_one_has_its_node() -> None:
    ray = Ray()
    hosts = hosts_of(ray)
    hosts.ask(AskForNodes(num=3, cpus=4.0, gpus=0.0))
    first, second, third = ray.made
    assert first.options == {"num_cpus": 4.0, "num_gpus": 0.0}
    hosts.ask(AskForNodes(num=2))
    assert (ray.killed, hosts.num_asked) == ([third], 2)
    hosts.poll()
    assert hosts.num_asked == 2
    first.answer = {"code": None, "agent": "", "output": ""}
    hosts.poll()
    assert (ray.killed, hosts.num_asked) == ([third, first], 1)
    assert second.calls == [("state",)]
