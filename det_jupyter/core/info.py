"""The run of a trial that a process belongs to, and the process's place in it.

A rank gets it from its spec; a worker that a script or launcher has started, from two environment
variables. The configuration crosses programs as a document; it is parsed here, once in a process.

Determined has two objects, `get_cluster_info()` and its attribute `trial`. Here they are one.
"""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.host.paths import master_file
from det_jupyter.contract.host.rundir import DATA_VARIABLE, RUN_VARIABLE, RunDir
from det_jupyter.contract.messages import GangPlan, MasterInfo, RankSpec, SlotView
from det_jupyter.errors import LaunchError

if TYPE_CHECKING:  # torch takes seconds to import, and scripts may not need it
    import torch

_ADDRESS = "127.0.0.1"  # the address of all agents of a gang on one computer


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialInfo:
    """The trial that this process is a rank of.

    "Container" in Determined's names corresponds to an agent here: the slots of one computer.

    Args:
        plan: The plan of the run.
        config: The plan's configuration, parsed.
        folder: The run's folder.
        data_dir: det_jupyter's folder on this computer.
        addresses: Addresses of the run's computers, by group rank; (): all ranks are on this one.
        rank: The process's rank; None: unknown.
        local_rank: Its local rank, which selects the device.
        given_device: The device that it was started with; None: that of its slot.
    """

    plan: GangPlan
    config: ExperimentConfig = field(repr=False)
    folder: RunDir
    data_dir: Path
    addresses: Sequence[str] = ()
    rank: int | None = None
    local_rank: int = 0
    given_device: torch.device | None = field(default=None, repr=False)

    task_type: ClassVar = "TRIAL"  # Determined has tasks of other types
    master_cert_name: ClassVar = None  # Determined's connections are encrypted
    master_cert_file: ClassVar = None
    _debug: ClassVar = False  # private names of Determined that scripts use
    _inter_node_network_interface: ClassVar = None

    @classmethod
    def of(cls, spec: RankSpec, device: torch.device) -> Self:
        """Return the information for the rank of a spec, which trains on this device."""
        return cls(
            plan=spec.plan,
            config=parse_config(spec.plan.config),
            folder=RunDir(Path(spec.run_dir)),
            data_dir=Path(spec.data_dir),
            addresses=spec.network.addresses if spec.network else (),
            rank=spec.place.rank,
            local_rank=spec.place.local_rank,
            given_device=device,
        )

    @classmethod
    def from_environment(cls) -> TrialInfo | None:
        """Return the run that the environment variables name; None outside of experiments.

        Raises:
            LaunchError: That run has ended.
        """
        folder, data_dir = os.environ.get(RUN_VARIABLE), os.environ.get(DATA_VARIABLE)
        return read_run(folder, data_dir) if folder and data_dir else None

    def at(self, rank: int, local_rank: int) -> Self:
        """Return the information for a rank of the run, whose device is that of its slot."""
        return replace(self, rank=rank, local_rank=local_rank, given_device=None)

    @property
    def device(self) -> torch.device:
        """The device that this process trains on.

        CUDA_VISIBLE_DEVICES contains the devices of its computer in order, or one that its
        launcher chose.
        """
        import torch

        if self.given_device is not None:
            return self.given_device
        slots = self.plan.slots
        if slots and slots[min(self.rank or 0, len(slots) - 1)].kind == "cuda":
            has_own = self.local_rank >= torch.cuda.device_count()
            return torch.device("cuda", 0 if has_own else self.local_rank)
        return torch.device("cpu")

    @property
    def container_rank(self) -> int:
        """Index of this agent among those of the gang.

        Where DET_AGENT_ID does not name one of them, it is the agent of the rank's slot.
        """
        agents = _agents(self.plan)
        agent = os.environ.get("DET_AGENT_ID", "")
        if agent not in agents and self.rank is not None:
            agent = self.plan.homes[min(self.rank, len(self.plan.slots) - 1)]
        return agents.index(agent) if agent in agents else 0

    @property
    def trial(self) -> Self:
        """This object. In Determined it is another object, with the trial's attributes."""
        return self

    _trial_info = trial  # as scripts for Determined name it

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
        return list(self.addresses) or [_ADDRESS] * len(_agents(self.plan))

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


@cache
def read_run(folder: str, data_dir: str) -> TrialInfo:
    """Return the run of a folder; which of its ranks this process is, is not known yet.

    Raises:
        LaunchError: It has ended.
    """
    run_dir = RunDir(Path(folder))
    try:
        plan = GangPlan.model_validate_json(run_dir.plan.read_bytes())
    except OSError as error:
        raise LaunchError(
            f"core: {RUN_VARIABLE} is {folder!r}, but its plan cannot be read "
            f"({error.strerror}): that run is over. Unset {RUN_VARIABLE} to run by hand"
        ) from None
    config = parse_config(plan.config)
    return TrialInfo(plan=plan, config=config, folder=run_dir, data_dir=Path(data_dir))


def _master() -> tuple[str, str]:
    """Return address and token of the running master; empty strings if there is none."""
    with suppress(OSError, ValueError):
        info = MasterInfo.model_validate_json(master_file().read_bytes())
        return info.url, info.token
    return "", ""


def _agents(plan: GangPlan) -> list[str]:
    """Return the agents of the gang, in the order of their first ranks."""
    return list(dict.fromkeys(plan.homes))
