"""Which job a process is a rank of: by what its ranks share, and no other job has.

    a word        drawn for these ranks; mpi4py or the store of torch's group brings it to them
    a run         the launcher's name of it, if the launcher has started as many ranks
    the parent    the process that has started the ranks, with MASTER_PORT; rank 0 may have
                  started the others

Ranks on several computers have no common parent: without a word or a run their job has no name,
and `chief_ip` and the port alone bring them together.
"""

from __future__ import annotations

import hashlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

import psutil

from det_jupyter.contract.host.processes import birth_of
from det_jupyter.core.ranks.place import Place

# Of a launcher: the variables that name its run, and the one with the number of its ranks.
_RUNS = {
    "torchrun": (
        ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT"),
        "WORLD_SIZE",
    ),
    "PMIx": (("PMIX_NAMESPACE",), ""),  # a name that is used once; Open MPI, and others
    "mpirun": (("PMI_JOBID", "HYDRA_LAUNCHER_JOBID"), "PMI_SIZE"),
    "horovodrun": (
        ("HOROVOD_GLOO_RENDEZVOUS_PORT", "HOROVOD_GLOO_RENDEZVOUS_ADDR"),
        "HOROVOD_SIZE",
    ),
    "srun": (("SLURM_STEP_ID", "SLURM_JOB_ID"), "SLURM_STEP_NUM_TASKS"),
}


@dataclass(frozen=True, slots=True)
class Job:
    """The job of a process.

    Args:
        key: The same on its ranks, and no other job's; empty if nothing names the job.
        key_of_children: That of ranks which this process has started; empty where the parent does
            not matter.
        origin: For messages: "started by pid 7 (bash)".
    """

    key: str = ""
    key_of_children: str = ""
    origin: str = ""

    @classmethod
    def of_word(cls, word: bytes) -> Job:
        """Return the job of the ranks that know this word."""
        return cls(f"word {hashlib.sha256(word).hexdigest()}", "", "with a secret of its own")

    @property
    def is_by_parent(self) -> bool:
        return bool(self.key_of_children)

    def includes(self, key: str) -> bool:
        """Return whether a rank with this key belongs to the chief whose job this is."""
        return key == self.key or (self.is_by_parent and key == self.key_of_children)


def find_job(place: Place, variables: Mapping[str, str]) -> Job:
    """Return the job by the launcher's variables, or else by the parent."""
    for launcher, (names, size) in _RUNS.items():
        if names[0] in variables and (not size or variables.get(size) == str(place.size)):
            run = " ".join(variables.get(name, "-") for name in names)
            return Job(f"{launcher} {run}", "", f"of {launcher}'s run {run}")
    if place.local_size != place.size:
        return Job()
    parent, port = os.getppid(), variables.get("MASTER_PORT", "-")
    own = _process_key(os.getpid(), port)
    return Job(_process_key(parent, port), own, f"started by {_name_of(parent)}")


def _process_key(pid: int, port: str) -> str:
    birth = birth_of(pid) if pid else None
    return f"process {socket.gethostname()} {pid} {birth}, port {port}"


def _name_of(pid: int) -> str:
    try:
        return f"pid {pid} ({psutil.Process(pid).name()})"
    except psutil.Error:
        return f"pid {pid}"
