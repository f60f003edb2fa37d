"""Ranks as kernels of Jupyter Server, by name: `det-trial-12-rank-3`.

    POST api/kernels {"name": "det-trial-12-rank-3"}    attaches; the rank trains on

A kernel spec is made when a kernel of that name is started. It is not listed, as launchers and
dialogs would offer it for notebooks.
"""

from __future__ import annotations

import re
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

from det_jupyter.connection import Session, find_master
from det_jupyter.contract.host.processes import ProcessIdentity
from det_jupyter.contract.messages import ClusterView, TrialView
from det_jupyter.contract.messages.status import in_words
from det_jupyter.errors import Conflict, MasterUnreachable

PROVISIONER = "det-rank"
_NAME = re.compile(r"det-trial-(\d{1,15})-rank-(\d{1,9})")


def spec_of(kernel_name: str) -> KernelSpec | None:
    """Return the kernel spec of a rank; None if the name is not that of a rank."""
    match = _NAME.fullmatch(kernel_name)
    if match is None:
        return None
    trial_id, rank = int(match[1]), int(match[2])
    config = {"trial_id": trial_id, "rank": rank}
    return KernelSpec(
        argv=[],
        display_name=f"Trial {trial_id}, rank {rank}",
        language="python",
        interrupt_mode="signal",  # passed to the provisioner's `send_signal`
        metadata={"kernel_provisioner": {"provisioner_name": PROVISIONER, "config": config}},
    )


def add_rank_specs(specs: KernelSpecManager) -> None:
    """Make `get_kernel_spec` of a server return specs of ranks too; lists stay as they are."""
    find = specs.get_kernel_spec

    def get_kernel_spec(self: KernelSpecManager, kernel_name: str) -> Any:
        return spec_of(kernel_name) or find(kernel_name)

    # An instance is patched because the class is chosen by the server's configuration.
    specs.get_kernel_spec = MethodType(get_kernel_spec, specs)  # type: ignore[method-assign]


@dataclass(frozen=True, slots=True)
class RunningRank:
    """A rank's name, its process and its kernel's connection file."""

    name: str
    process: ProcessIdentity
    is_remote: bool  # on an agent of another computer
    agent_id: str
    connection_file: str

    @property
    def is_reachable(self) -> bool:
        """Whether the process runs; for a remote rank, whether the master can reach it now."""
        if self.is_remote:
            return Path(self.connection_file).exists()
        return self.process.is_alive


def find_rank(trial_id: int, rank: int) -> RunningRank:
    """Return a running rank, as the master reports it. Blocks.

    Raises:
        NotFound: There is no such trial.
        Conflict: The trial does not run now, or has no such rank.
        MasterUnreachable: No master runs.
    """
    name = f"rank {rank} of trial {trial_id}"
    view = _fetch_trial(trial_id)
    ranks = view.allocation.ranks if view.allocation is not None else []
    if not ranks:
        why = view.waiting_for or f"the trial is {in_words(view.state)}"
        raise Conflict(f"{name} does not run now: {why}")
    found = next((one for one in ranks if one.rank == rank), None)
    if found is None:
        raise Conflict(f"trial {trial_id} has no rank {rank}: its ranks are 0 to {len(ranks) - 1}")
    agent_id = view.allocation.agent_of(rank) if view.allocation is not None else ""
    if not found.is_remote and not found.process.is_alive:
        raise Conflict(f"{name} has no process on this computer (agent {agent_id or '?'})")
    return RunningRank(name, found.process, found.is_remote, agent_id, found.connection_file)


def why_unreachable(agent_id: str) -> str:
    """Return why no rank of an agent can be reached; "" if it is connected. Blocks."""
    pools = ClusterView.model_validate(_fetch("/cluster", limit=0)).pools
    agents = (agent for pool in pools for agent in pool.agents)
    return next((agent.why_silent for agent in agents if agent.id == agent_id), "")


def why_ended(trial_id: int, rank: int) -> str:
    """Return a sentence with the reason why a rank has ended. Blocks."""
    view = _fetch_trial(trial_id)
    why = f"the trial is {in_words(view.state)}"
    if view.failure is not None and view.state == "ERROR":
        why = f"the trial failed: {view.failure.error}"
    elif view.waiting_for:
        why = f"the trial waits: {view.waiting_for}"
    elif view.allocation is not None and view.allocation.ranks:
        why = "the trial goes on in new processes; restart the kernel to attach to the new one"
    return f"rank {rank} of trial {trial_id} has ended: {why}"


def _fetch_trial(trial_id: int) -> TrialView:
    return TrialView.model_validate(_fetch(f"/trials/{trial_id}"))


def _fetch(path: str, **query: Any) -> Any:
    """Return the master's answer; do not start a master for it."""
    info = find_master()
    if info is None:
        raise MasterUnreachable("no det_jupyter master runs, so no trial can be found")
    with closing(Session(info)) as session:
        return session.get(path, **query)
