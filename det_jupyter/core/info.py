"""The facts that a process can look up about its run: ids, seed, hyperparameters, slots, ...

Determined has two objects, `get_cluster_info()` and its attribute `trial`. Here they are one.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from det_jupyter.config import ExperimentConfig
from det_jupyter.contract.host.paths import master_file
from det_jupyter.contract.messages import GangPlan, MasterInfo, SlotView
from det_jupyter.core.run import Run

if TYPE_CHECKING:  # torch takes seconds to import, and scripts may not need it
    import torch

_ADDRESS = "127.0.0.1"  # the address of all agents of a gang on one computer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """The trial that this process is a rank of.

    "Container" in Determined's names corresponds to an agent here: the slots of one computer.

    Args:
        run: The trial's run.
        rank: The process's rank; None: unknown.
        local_rank: Its local rank.
        given_device: The device that it was started with; None: that of its slot.
        container_rank: Index of this agent among those of the gang.
    """

    run: Run
    rank: int | None = None
    local_rank: int = 0
    given_device: torch.device | None = field(default=None, repr=False)
    container_rank: int = 0

    task_type: ClassVar = "TRIAL"  # Determined has tasks of other types
    master_cert_name: ClassVar = None  # Determined's connections are encrypted
    master_cert_file: ClassVar = None
    _debug: ClassVar = False  # private names of Determined that scripts use
    _inter_node_network_interface: ClassVar = None

    @classmethod
    def of(
        cls,
        run: Run,
        rank: int | None = None,
        device: torch.device | None = None,
        local_rank: int = 0,
    ) -> Self:
        """Return the information for a process of a run.

        Args:
            run: The run.
            rank: The process's rank; None: unknown.
            device: Its device; by default that of its slot.
            local_rank: Its local rank, which selects the device.
        """
        return cls(
            run=run,
            rank=rank,
            local_rank=local_rank,
            given_device=device,
            container_rank=container_rank(run.plan, rank),
        )

    @property
    def plan(self) -> GangPlan:
        """The plan of the run."""
        return self.run.plan

    @property
    def config(self) -> ExperimentConfig:
        """The experiment's configuration."""
        return self.run.config

    @property
    def data_dir(self) -> Path:
        """det_jupyter's folder on this computer."""
        return self.run.data_dir

    @property
    def device(self) -> torch.device:
        """The device that this process trains on."""
        return self.given_device or self.run.device(self.rank or 0, self.local_rank)

    @property
    def trial(self) -> Self:
        """This object. In Determined it is another object, with the trial's attributes."""
        return self

    @property
    def allocation_id(self) -> str:
        """Id of this allocation: the period in which the trial holds slots."""
        return self.plan.allocation_id

    @property
    def task_id(self) -> str:
        """Id of the trial among all tasks of the master: the allocation id without the run."""
        return self.plan.task_id

    @property
    def cluster_id(self) -> str:
        """Name of the computer of the master."""
        return socket.gethostname()

    @property
    def master_url(self) -> str:
        """Present address of the master; empty if none runs."""
        return _master()[0]

    @property
    def session_token(self) -> str:
        """Token with which this user's programs are authenticated; empty if no master runs."""
        return _master()[1]

    @property
    def agent_id(self) -> str:
        """Name of this agent."""
        return _agents(self.plan)[self.container_rank]

    @property
    def container_addrs(self) -> list[str]:
        """Address of each agent of the gang, the chief's first."""
        return list(self.run.addresses) or [_ADDRESS] * len(_agents(self.plan))

    @property
    def container_slot_counts(self) -> list[int]:
        """Number of the trial's slots on each agent, in the order of `container_addrs`."""
        homes = zip(self.plan.homes, self.plan.slots, strict=True)
        held = Counter(home for home, slot in homes if slot.id >= 0)
        return [held[agent] for agent in _agents(self.plan)]

    @property
    def slot_ids(self) -> list[int]:
        """Numbers of the trial's slots on this agent; empty with `slots_per_trial: 0`."""
        return [slot.id for slot in self._slots() if slot.id >= 0]

    @property
    def gpu_uuids(self) -> list[str]:
        """Uuids of the trial's GPUs on this agent."""
        return [slot.uuid for slot in self._slots() if slot.kind == "cuda" and slot.uuid]

    @property
    def user_data(self) -> dict[str, Any]:
        """The `data` section of the configuration."""
        return dict(self.config.data)

    @property
    def experiment_id(self) -> int:
        return self.plan.experiment_id

    @property
    def trial_id(self) -> int:
        return self.plan.trial_id

    @property
    def trial_seed(self) -> int:
        """Seed of the trial; the same in all its runs."""
        return self.plan.seed

    @property
    def hparams(self) -> dict[str, Any]:
        """The trial's hyperparameters."""
        return self.plan.hparams

    @property
    def latest_checkpoint(self) -> str | None:
        """Uuid of the checkpoint that this run continues from; None at the beginning.

        In the first run of a trial that begins with the weights of another one
        (`source_trial_id`) it is a checkpoint of the other one, with its `trial_id` in the
        metadata. `context.checkpoint.restore_path(uuid)` yields the checkpoint's folder,
        `get_metadata(uuid)` returns its metadata, with `steps_completed`.
        """
        return self.plan.starting_point.uuid if self.plan.starting_point else None

    # Private names of Determined that scripts use.

    @property
    def _config(self) -> dict[str, Any]:
        return self.plan.config

    @property
    def _steps_completed(self) -> int:
        return self.plan.steps_completed

    @property
    def _trial_run_id(self) -> int:
        return self.plan.run

    def _slots(self) -> list[SlotView]:
        """Return the slots of the gang on this agent."""
        return self.plan.slots_beside(self.plan.homes.index(self.agent_id))


def container_rank(plan: GangPlan, rank: int | None = None) -> int:
    """Return the index of this process's agent among those of the gang.

    Args:
        rank: The process's rank; used where DET_AGENT_ID does not name an agent of the gang.
    """
    agents = _agents(plan)
    agent = os.environ.get("DET_AGENT_ID", "")
    if agent not in agents and rank is not None:
        agent = plan.homes[min(rank, len(plan.slots) - 1)]
    return agents.index(agent) if agent in agents else 0


def _master() -> tuple[str, str]:
    """Return address and token of the running master; empty strings if there is none."""
    with suppress(OSError, ValueError):
        info = MasterInfo.model_validate_json(master_file().read_bytes())
        return info.url, info.token
    return "", ""


def _agents(plan: GangPlan) -> list[str]:
    """Return the agents of the gang, in the order of their first ranks."""
    return list(dict.fromkeys(plan.homes))
