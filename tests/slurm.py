"""A Slurm cluster for tests: controller and nodes are processes on this computer.

It needs root, and the Debian packages slurm-wlm and munge. All of its files are in one folder; the
files of an installed Slurm are neither read nor changed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.processes import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")


def why_absent() -> str:
    """Return why Slurm cannot run here, as the reason of a skip; "" if it can."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not found: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "Slurm's daemons need root here"


@dataclass(frozen=True)
class Slurm:
    """The running cluster, which `SLURM_CONF` refers to."""

    environ: dict[str, str]

    def run(self, *command: str, environ: Mapping[str, str] | None = None) -> str:
        """Run a command of Slurm; return its output.

        Args:
            environ: The environment, which a job gets too; None: the tests' environment.
        """
        leading_here = {"SLURM_CONF": self.environ["SLURM_CONF"]}
        done = subprocess.run(
            command,
            env={**(environ or self.environ), **leading_here},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
        return done.stdout.strip()

    def jobs(self) -> list[str]:
        """Return the numbers of the jobs that wait, run or are ending."""
        return self.run("squeue", "--noheader", "--format=%A").split()


@contextmanager
def slurm(folder: Path, *, nodes: int, cpus: int) -> Iterator[Slurm]:
    """Run a cluster whose nodes have this many CPUs, and one GPU that is not a real device."""
    for name in ("state", "log"):
        (folder / name).mkdir(parents=True)
    key = folder / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o600)
    ports = _free_ports(nodes + 1)
    config = folder / "slurm.conf"
    config.write_text(_config(folder, ports, cpus))
    # Any device file can be the GPU.
    (folder / "gres.conf").write_text("Name=gpu File=/dev/null\n")
    running = Slurm(os.environ | {"SLURM_CONF": str(config)})
    munged = ["munged", "--foreground", "--force", f"--key-file={key}"]
    for name in ("socket", "pid-file", "log-file", "seed-file"):
        munged.append(f"--{name}={folder / 'munge'}.{name.removesuffix('-file')}")
    with ExitStack() as daemons:
        daemons.enter_context(_daemon(folder, running, munged))
        wait_until((folder / "munge.socket").exists, "munged listens")
        daemons.enter_context(_daemon(folder, running, ["slurmctld", "-D", "-i"]))
        for node in range(nodes):
            daemons.enter_context(_daemon(folder, running, ["slurmd", "-D", "-N", f"n{node}"]))
        wait_until(lambda: _num_idle(running) == nodes, "all nodes are idle")
        try:
            yield running
        finally:
            running.run("scancel", "--user=root")
            wait_until(lambda: not running.jobs(), "no job is left")


def _config(folder: Path, ports: Sequence[int], cpus: int) -> str:
    host = socket.gethostname().partition(".")[0]
    nodes = (
        f"NodeName=n{i} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Gres=gpu:1"
        for i, port in enumerate(ports[1:])
    )
    return "\n".join(
        [
            "ClusterName=det",
            f"SlurmctldHost={host}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={folder}/munge.socket",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool-%n",
            f"SlurmctldPidFile={folder}/slurmctld.pid",
            f"SlurmdPidFile={folder}/slurmd-%n.pid",
            # Without cgroups, which containers often cannot write.
            "ProctrackType=proctrack/linuxproc",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_Core",
            "SlurmdParameters=config_overrides",  # nodes may have more CPUs than this computer
            "GresTypes=gpu",
            "MpiDefault=none",
            "ReturnToService=2",
            *nodes,
            "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
            "",
        ]
    )


@contextmanager
def _daemon(folder: Path, running: Slurm, command: list[str]) -> Iterator[None]:
    name = "-".join([command[0], *(command[-1:] if "-N" in command else [])])
    with open(folder / "log" / name, "wb") as log:
        process = subprocess.Popen(
            command, env=running.environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _num_idle(running: Slurm) -> int:
    done = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--states=idle", "--format=%N"],
        env=running.environ, capture_output=True, text=True,
    )  # fmt: skip
    return len(done.stdout.split())


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
