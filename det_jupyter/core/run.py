"""The run of a trial that a process belongs to: its plan, its configuration, its folder.

A rank gets it from the gang's spec; a worker that a script or launcher has started, from two
environment variables. The configuration crosses programs as a document; it is parsed here, once in
a process.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Self

from det_jupyter.config import ExperimentConfig, parse_config
from det_jupyter.contract.host.rundir import DATA_VARIABLE, RUN_VARIABLE, RunDir
from det_jupyter.contract.messages import GangPlan, GangSpec
from det_jupyter.errors import LaunchError

if TYPE_CHECKING:  # torch takes seconds to import, and scripts may not need it
    import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of a trial, from the point of view of its processes.

    Args:
        plan: Its plan.
        folder: Its folder.
        data_dir: det_jupyter's folder on this computer.
        addresses: Addresses of its computers, by group rank; (): all ranks are on this one.

    Attributes:
        config: The plan's configuration, parsed.
    """

    plan: GangPlan
    folder: RunDir
    data_dir: Path
    addresses: Sequence[str] = ()
    config: ExperimentConfig = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "config", parse_config(self.plan.config))

    @classmethod
    def of(cls, spec: GangSpec) -> Self:
        """Return the run of the gang that `spec` describes."""
        return cls(
            plan=spec.plan,
            folder=RunDir(Path(spec.run_dir)),
            data_dir=Path(spec.data_dir),
            addresses=spec.network.addresses if spec.network else (),
        )

    @classmethod
    def from_environment(cls) -> Run | None:
        """Return the run that the environment variables name; None outside of experiments.

        Raises:
            LaunchError: That run has ended.
        """
        folder, data_dir = os.environ.get(RUN_VARIABLE), os.environ.get(DATA_VARIABLE)
        return read_run(folder, data_dir) if folder and data_dir else None

    def device(self, rank: int, local_rank: int) -> torch.device:
        """Return the device of a process that was started without one.

        CUDA_VISIBLE_DEVICES contains the devices of its computer in order, or one that its
        launcher chose.
        """
        import torch

        slots = self.plan.slots
        if slots and slots[min(rank, len(slots) - 1)].kind == "cuda":
            has_own = local_rank >= torch.cuda.device_count()
            return torch.device("cuda", 0 if has_own else local_rank)
        return torch.device("cpu")


@cache
def read_run(folder: str, data_dir: str) -> Run:
    """Return the run of a folder.

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
    return Run(plan=plan, folder=run_dir, data_dir=Path(data_dir))
