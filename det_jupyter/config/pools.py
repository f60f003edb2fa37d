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
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from det_jupyter.config.parsing import without_nulls
from det_jupyter.config.problems import describe
from det_jupyter.contract.schema.clusters import ClusterConfig
from det_jupyter.contract.schema.fields import Bool, Count, Int, Section, Text, Title
from det_jupyter.contract.schema.key_paths import join_all, sort_problems
from det_jupyter.errors import ConfigError, Problem

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
    """Whether running trials may be asked to save their state and make room."""
    default_priority: Annotated[Int, Field(ge=1, le=99)] = DEFAULT_PRIORITY
    """The priority of experiments that give none."""
    fitting_policy: Literal["best", "worst"] = "best"
    """Fill the fullest agent first, or the emptiest."""
    allow_heterogeneous_fits: Bool = False
    """Whether a trial may span agents with different numbers of slots."""
    reservation_depth: Annotated[Int, Field(ge=1, le=32)] = 1
    """The number of waiting trials that agents are kept for at a time."""


class TaskDefaults(Section):
    """What holds for all trials of a pool."""

    dtrain_network_interface: Text = ""
    """The network interface of trials on several agents; empty: that of the route between them."""


class PoolConfig(Section):
    """A pool."""

    pool_name: Title
    """Its name."""
    description: Text = ""
    """What it is for."""
    agents: list[Text] = []
    """Names of its agents; * stands for anything."""
    scheduler: SchedulerConfig = SchedulerConfig.model_construct()
    """How trials share its slots."""
    max_aux_containers_per_agent: Count = 100
    """How many trials without slots an agent carries."""
    task_container_defaults: TaskDefaults = TaskDefaults.model_construct()
    """What holds for all of its trials."""
    share_devices: Bool = False
    """Whether devices are given out that other people's processes use."""

    def has(self, agent_id: str) -> bool:
        """Return whether it names this agent."""
        return any(fnmatchcase(agent_id, pattern) for pattern in self.agents)


class SimulatedAgent(Section):
    """An agent of CPU places that stands for a computer with GPUs."""

    id: Annotated[str, BeforeValidator(_agent_name)]
    """Its name."""
    slots: Annotated[str, BeforeValidator(_places)]
    """How many places, such as cpu:8."""


class PoolsFile(Section):
    """The whole file."""

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
    filled = without_nulls(document)
    try:
        parsed = PoolsFile.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(
            sort_problems(describe(error, filled, explain=_explain_unknown))
        ) from None
    if problems := _find_duplicates(parsed):
        raise ConfigError(problems)
    if all(pool.pool_name != DEFAULT_POOL for pool in parsed.pools):
        default = PoolConfig(pool_name=DEFAULT_POOL)
        parsed = parsed.model_copy(update={"pools": [*parsed.pools, default]})
    return parsed


_SECTIONS: Mapping[str, type[Section]] = {"agents": SimulatedAgent, "clusters": ClusterConfig}


def _explain_unknown(keys: Sequence[int | str]) -> Problem:
    """Return the problem with an unknown key, which lists the keys of its section."""
    section: type[Section] = PoolsFile
    if "scheduler" in keys[:-1]:
        section = SchedulerConfig
    elif "task_container_defaults" in keys[:-1]:
        section = TaskDefaults
    elif len(keys) > 1:
        section = _SECTIONS.get(str(keys[0]), PoolConfig)
    return Problem(join_all(keys), f"unknown key; there are {', '.join(section.model_fields)}")


def _find_duplicates(parsed: PoolsFile) -> list[Problem]:
    pools = [(f"pools[{i}].pool_name", p.pool_name) for i, p in enumerate(parsed.pools)]
    agents = [(f"agents[{i}].id", agent.id) for i, agent in enumerate(parsed.agents)]
    clusters = [(f"clusters[{i}].name", each.name) for i, each in enumerate(parsed.clusters)]
    return [
        Problem(path, f"got {name!r} once more; every one needs a name of its own")
        for named in (pools, agents, clusters)
        for index, (path, name) in enumerate(named)
        if name in [other for _, other in named[:index]]
    ]
