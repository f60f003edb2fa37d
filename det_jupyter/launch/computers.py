"""The computers and ranks of a launcher's job, in an experiment or by its options.

In an experiment, the environment names the run's folder, and the plan there lists the slots. A
launcher runs once on each computer; its process has the number of the first rank there.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.host.ports import free_port
from det_jupyter.contract.host.rundir import RUN_VARIABLE, RunDir


@dataclass(frozen=True, slots=True)
class RunLayout:
    """The run of an experiment that this process belongs to."""

    folder: RunDir
    homes: tuple[str, ...]  # the agent of each rank

    def groups(self) -> list[str]:
        """Return the agents, in the order of their first ranks."""
        return list(dict.fromkeys(self.homes))

    def variables(self, rank: int) -> dict[str, str]:
        """Return torchrun's variables with the rank and sizes of a rank."""
        home, groups = self.homes[rank], self.groups()
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self.homes)),
            "LOCAL_RANK": str(self.homes[:rank].count(home)),
            "LOCAL_WORLD_SIZE": str(self.homes.count(home)),
            "GROUP_RANK": str(groups.index(home)),
            "GROUP_WORLD_SIZE": str(len(groups)),
        }


def find_run(environ: Mapping[str, str] = os.environ) -> RunLayout | None:
    """Return the run that this process belongs to; None outside of experiments."""
    folder = environ.get(RUN_VARIABLE, "")
    if not folder:
        return None
    run = RunDir(Path(folder))
    try:
        plan = json.loads(run.plan.read_bytes())
    except FileNotFoundError:  # the run has ended, but this process has not
        return None
    homes = plan.get("agent_ids") or [""] * len(plan["slots"])
    return RunLayout(run, tuple(homes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Computers:
    """The computers of a job, and which of them this is."""

    num_ranks: int  # on this computer
    index: int = 0
    num: int = 1
    master_addr: str = "127.0.0.1"  # where the ranks meet
    master_port: int | None = None  # None: any free port
    run: RunLayout | None = None

    def environment(self, local_rank: int, port: int) -> dict[str, str]:
        """Return torchrun's variables for a rank of this computer."""
        rank, size = str(self.first_rank + local_rank), str(self.num_ranks * self.num)
        return {
            "RANK": rank,
            "WORLD_SIZE": size,
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(self.num_ranks),
            "GROUP_RANK": str(self.index),
            "GROUP_WORLD_SIZE": str(self.num),
            "ROLE_RANK": rank,
            "ROLE_WORLD_SIZE": size,
            "MASTER_ADDR": self.master_addr,
            "MASTER_PORT": str(port),
            "DET_CHIEF_IP": self.master_addr,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(self._share()),
        }

    @property
    def first_rank(self) -> int:
        return self.index * self.num_ranks

    def _share(self) -> int:
        """Return a rank's share of the cores. More threads would slow each other down."""
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        return max(1, cores // self.num_ranks)

    def port(self) -> int:
        return free_port() if self.master_port is None else self.master_port


def computers_of(run: RunLayout, environ: Mapping[str, str] = os.environ) -> Computers:
    """Return the computers of a run.

    Raises:
        ValueError: They have different numbers of slots, or GROUP_RANK is none of them.
    """
    groups = run.groups()
    group = environ.get("GROUP_RANK", "")
    if not group.isdigit() or int(group) >= len(groups):
        raise ValueError(
            f"GROUP_RANK: got {group!r}, expected the number of this computer, as the process of "
            f"an experiment's entrypoint has it (0 to {len(groups) - 1})"
        )
    sizes = Counter(run.homes)
    if len(set(sizes.values())) > 1:
        shown = ", ".join(f"{home} {size}" for home, size in sizes.items())
        raise ValueError(f"the computers have different numbers of slots: {shown}")
    port = environ.get("MASTER_PORT", "")
    return Computers(
        num_ranks=sizes[groups[0]],
        index=int(group),
        num=len(groups),
        master_addr=environ.get("MASTER_ADDR", "127.0.0.1"),
        master_port=int(port) if len(groups) > 1 and port.isdigit() else None,
        run=run,
    )


def count_gpus(environ: Mapping[str, str] = os.environ) -> int:
    """Return the number of NVIDIA GPUs that processes of this one can use."""
    shown = environ.get("CUDA_VISIBLE_DEVICES")
    if shown is not None:
        return len([name for name in shown.split(",") if name.strip() not in ("", "-1")])
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:  # no driver
        return 0
    try:
        return int(pynvml.nvmlDeviceGetCount())
    finally:
        pynvml.nvmlShutdown()
