"""Resource pools: groups of agents with a scheduler, from `pools.yaml` or by the API.

    pools:
      - pool_name: default
        scheduler: {type: priority, preemption: true}
      - pool_name: night
        agents: ["gpu-*"]
        scheduler: {type: fair_share}
    agents:                          # simulated, instead of this computer's own
      - {id: left, slots: "cpu:8"}
    clusters:                        # their nodes become agents, such as ray-node-b-3f9a1c
      - {engine: ray, address: "head:6379", slots: gpu}

An agent belongs to the first pool that names it, else to the pool `default`, which always exists.
The keys are Determined's where it has them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from det_jupyter.config.user_files import find_repeated, parse_file
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.schema.fields import Bool, Count, Int, Section, Text, Title
from det_jupyter.errors import ConfigError

DEFAULT_POOL = "default"
DEFAULT_PRIORITY = 42


def _agent_name(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"[\w.-]{1,64}", value):
        return value
    raise PydanticCustomError("name", "expected letters, digits, '.', '_' or '-', at most 64")


def _places(value: Any) -> Any:
    if isinstance(value, str) and re.fullmatch(r"cpu:[1-9]\d{0,3}", value):
        return value
    raise PydanticCustomError("places", "expected so many CPU places, such as cpu:8")


class SchedulerConfig(Section):
    """Which of a pool's waiting trials is next, and which agent it gets."""

    type: Literal["priority", "fair_share", "round_robin"] = "priority"
    """By priority, by shares, or each experiment in turn."""
    preemption: Bool = False
    """Whether running trials may be preempted: they save their state and release their slots."""
    default_priority: Annotated[Int, Field(ge=1, le=99)] = DEFAULT_PRIORITY
    """The priority of experiments that give none."""
    fitting_policy: Literal["best", "worst"] = "best"
    """Fill the fullest agent first, or the emptiest."""
    allow_heterogeneous_fits: Bool = False
    """Whether a trial may span agents with different numbers of slots."""
    reservation_depth: Annotated[Int, Field(ge=1, le=32)] = 1
    """The number of waiting trials that agents are kept for at a time."""


class TaskDefaults(Section):
    """Settings of all trials of a pool."""

    dtrain_network_interface: Text = ""
    """The network interface of trials on several agents; empty: that of the route between them."""


class PoolConfig(Section):
    """A pool."""

    pool_name: Title
    """The name of the pool."""
    description: Text = ""
    """What the pool is for."""
    agents: list[Text] = []
    """Names of the pool's agents; * stands for anything."""
    scheduler: SchedulerConfig = SchedulerConfig.model_construct()
    """How trials share the pool's slots."""
    max_aux_containers_per_agent: Count = 100
    """How many trials without slots may run on an agent."""
    task_container_defaults: TaskDefaults = TaskDefaults.model_construct()
    """What holds for all of its trials."""
    share_devices: Bool = False
    """Whether devices are given out that other people's processes use."""

    def has(self, agent_id: str) -> bool:
        """Return whether the pool names this agent."""
        return any(fnmatchcase(agent_id, pattern) for pattern in self.agents)


class SimulatedAgent(Section):
    """An agent of CPU places that stands for a computer with GPUs."""

    id: Annotated[str, BeforeValidator(_agent_name)]
    """The name of the agent."""
    slots: Annotated[str, BeforeValidator(_places)]
    """How many places, such as cpu:8."""


class PoolsFile(Section):
    """The content of pools.yaml."""

    pools: list[PoolConfig] = []
    """The pools."""
    agents: list[SimulatedAgent] = []
    """Simulated agents, in place of this computer's own slots."""
    clusters: list[ClusterConfig] = []
    """Clusters whose nodes become agents."""


def parse_pools(document: Mapping[str, Any]) -> PoolsFile:
    """Parse a document of pools; the default pool is added if it is absent.

    Raises:
        ConfigError: All problems.
    """
    parsed = parse_file(PoolsFile, document)
    named: tuple[tuple[str, list[str]], ...] = (
        ("pools[{}].pool_name", [pool.pool_name for pool in parsed.pools]),
        ("agents[{}].id", [agent.id for agent in parsed.agents]),
        ("clusters[{}].name", [cluster.name for cluster in parsed.clusters]),
    )
    if problems := [
        problem
        for path, names in named
        for problem in find_repeated((path.format(i), name) for i, name in enumerate(names))
    ]:
        raise ConfigError(problems)
    if all(pool.pool_name != DEFAULT_POOL for pool in parsed.pools):
        default = PoolConfig(pool_name=DEFAULT_POOL)
        parsed = parsed.model_copy(update={"pools": [*parsed.pools, default]})
    return parsed
