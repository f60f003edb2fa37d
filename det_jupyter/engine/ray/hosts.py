"""The actors of a master on a Ray cluster: a host for each agent, and requests for nodes.

A host is a detached actor, so it and its agent outlive the bridge; the next bridge finds it by its
name, the node's id, in the namespace of this user and master. Ray never restarts a host: it would
have no credentials, so the bridge starts another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from time import monotonic
from typing import Any, Literal

from det_jupyter.contract.messages import AskForNodes, ClusterNode, StartHost
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.engine.ray import agent_host

_ASK_S = 1.0  # pause between two requests to a host
_END_S = 20.0  # how long an agent may take to end gracefully
# Ray's reasons for a node's death if its raylet has exited gracefully: it was stopped, or the
# autoscaler has drained it because it was idle. With other reasons a node may only be unreachable,
# also with "preempted" (3): Ray infers that if a node does not answer after the time in its
# notice.
_EXITED = (1, 4)


@dataclass(slots=True)
class _Host:
    actor: Any
    answer: Any = None  # of the last request
    asked_at: float = 0.0
    state: Literal["starting", "running", "ended"] = "starting"
    agent: str = ""
    output: str = ""
    killed_at: float | None = None  # when it is killed, if its agent was ordered to end


class Hosts:
    """The actors of this bridge's master.

    Args:
        ray: The module, connected to the cluster.
        config: The cluster.
        master: The master's id, for the names of folders.
        namespace: The namespace of the actors.
    """

    def __init__(self, ray: Any, config: ClusterConfig, master: str, namespace: str) -> None:
        self._ray = ray
        self._config = config
        self._master = master
        self._hosts: dict[str, _Host] = {}  # by node
        self._requests: list[tuple[Any, Any]] = []  # actors that wait for a node, with answers
        ray.cloudpickle.register_pickle_by_value(agent_host)
        self._kind = ray.remote(agent_host.AgentHost)
        for found in ray.util.list_named_actors(all_namespaces=True):
            if found["namespace"] == namespace:
                self._adopt(found["name"], namespace)

    def _adopt(self, node_id: str, namespace: str) -> None:
        try:
            actor = self._ray.get_actor(node_id, namespace)
        except ValueError:  # it has ended since
            return
        self._hosts[node_id] = _Host(actor)

    def start(self, order: StartHost, gpus: float) -> None:
        """Create the host of a node, and start its agent."""
        if order.node_id in self._hosts:
            return
        slots = self._config.slots
        affinity = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        actor = self._kind.options(
            name=order.node_id,
            lifetime="detached",
            max_restarts=0,
            num_cpus=0 if slots == "gpu" else slots,
            num_gpus=gpus if slots == "gpu" else 0,
            scheduling_strategy=affinity(order.node_id, soft=False),
        ).remote()
        agent = order.credentials.agent
        # By a method call: Ray stores the arguments of constructors.
        actor.start.remote(
            agent,
            order.credentials.model_dump_json(),
            f"{self._master}-{agent}",
            self._config.python,
            {"DET_JUPYTER_CPU_SLOTS": "" if slots == "gpu" else str(slots)},
        )
        self._hosts[order.node_id] = _Host(actor)

    def end(self, node_id: str) -> None:
        """End a host's agent gracefully; kill the host when the agent has ended, or in 20 s."""
        host = self._hosts.get(node_id)
        if host is not None and host.killed_at is None:
            host.killed_at = monotonic() + (_END_S if host.state == "running" else 0.0)
            host.actor.end.remote()

    def end_all(self) -> None:
        """End all hosts; `is_empty` is true when that is done."""
        self.ask(AskForNodes(num=0))
        for node_id in list(self._hosts):
            self.end(node_id)

    @property
    def is_empty(self) -> bool:
        """Whether there is no host."""
        return not self._hosts

    def ask(self, order: AskForNodes) -> None:
        """Let actors wait for nodes of the order's size, so that Ray's autoscaler starts nodes."""
        while len(self._requests) > order.num:
            self._ray.kill(self._requests.pop()[0])
        while len(self._requests) < order.num:
            actor = self._kind.options(num_cpus=order.cpus, num_gpus=order.gpus).remote()
            self._requests.append((actor, actor.state.remote()))

    @property
    def num_asked(self) -> int:
        """Number of nodes that are requested from the cluster."""
        return len(self._requests)

    def poll(self) -> None:
        """Take the answers of hosts, and send the next requests. Does not wait."""
        for node_id, host in list(self._hosts.items()):
            if self._is_done(host):
                self._ray.kill(host.actor)
                del self._hosts[node_id]
        for request in list(self._requests):
            if self._answer_of(request[1]) is not None:  # it has a node, which needs a host now
                self._requests.remove(request)
                self._ray.kill(request[0])

    def _is_done(self, host: _Host) -> bool:
        """Request a host's state, if that is due; return whether it has ended, or must end."""
        if host.answer is None and monotonic() - host.asked_at > _ASK_S:
            host.asked_at = monotonic()
            host.answer = host.actor.state.remote()
        if host.answer is not None and (answer := self._answer_of(host.answer)) is not None:
            host.answer = None
            if isinstance(answer, Exception):
                return True
            has_ended = answer["code"] is not None
            host.agent, host.output = answer["agent"], answer["output"]
            host.state = "ended" if has_ended else "running" if host.agent else "starting"
        if host.killed_at is None:
            return False
        return host.state == "ended" or monotonic() > host.killed_at

    def _answer_of(self, reference: Any) -> Any:
        """Return the value of a call, its exception, or None if it has neither yet."""
        ready, _ = self._ray.wait([reference], timeout=0)
        if not ready:
            return None
        try:
            return self._ray.get(reference)
        except Exception as error:  # the actor has ended, or cannot be started
            return error

    def nodes(self) -> list[ClusterNode]:
        """Return all nodes that Ray lists, also dead ones."""
        return [self._node(each) for each in self._ray.nodes()]

    def _node(self, found: dict[str, Any]) -> ClusterNode:
        host = self._hosts.get(found["NodeID"])
        resources = found["Resources"]
        node = ClusterNode(
            node_id=found["NodeID"],
            hostname=found["NodeManagerHostname"],
            cpus=resources.get("CPU", 0),
            gpus=resources.get("GPU", 0),
            is_alive=found["Alive"],
            has_exited=found.get("DeathReason") in _EXITED,
        )
        if host is None:
            return node
        if not node.is_alive:
            self._hosts.pop(node.node_id)  # it does not come back
            return node
        return node.model_copy(
            update={"host": host.state, "agent": host.agent, "output": host.output}
        )
