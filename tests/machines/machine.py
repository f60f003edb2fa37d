"""Machines: each a network, mount and host-name namespace, and a control group, on this computer.

    network      eth0, a veth whose other end is a port of the common bridge (in its own namespace)
    /tmp, /dev/shm, HOME
                 its own; files shared by all machines are in a folder of /var/tmp
    processes    in a control group, with which all of them are counted, frozen or killed at once
                 (pids are those of this computer)

A packet to a neighbour is lost silently while the neighbour's entry in the ARP table is wrong. So
a link can be cut in either direction, as by a failing switch: both sides keep their carrier.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

_CGROUPS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_NOBODY = "02:de:ad:00:00:01"  # no machine has this address
_TOOLS = ("ip", "tc", "unshare", "nsenter")
_READY = """
mount -t tmpfs -o mode=1777 tmpfs /tmp && mount -t tmpfs -o mode=1777 tmpfs /dev/shm &&
hostname "$1" && mkdir /tmp/home && echo ready && exec sleep 86400
"""
_ENTER = 'echo $$ > "$1" && shift && cd "$1" && shift && exec "$@"'


def why_impossible() -> str:
    """Return why machines cannot be created here; "" if they can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "network namespaces need Linux and root"
    if missing := [tool for tool in _TOOLS if shutil.which(tool) is None]:
        return f"{', '.join(missing)} is not installed (iproute2, util-linux)"
    if _cgroup_root() is None:
        return "there is no cgroup2 file system that can be written to"
    if Path("/tmp") in Path(__file__).resolve().parents:
        return "this checkout is in /tmp, which each machine has for itself; move it elsewhere"
    return ""


def _cgroup_root() -> Path | None:
    for root in _CGROUPS:
        if (root / "cgroup.controllers").exists() and os.access(root, os.W_OK):
            return root
    return None


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine, created by `Network.machine`.

    Args:
        name: Its host name.
        address: Its address on eth0.
        holder: Pid of the process that keeps its namespaces.
        cgroup: The folder of its control group.
    """

    name: str
    address: str
    holder: int
    cgroup: str

    def popen(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        variables: Mapping[str, str] | None = None,
        text: str = "",
    ) -> subprocess.Popen[bytes]:
        """Start a process of this machine; its pid is that of the command.

        Args:
            argv: The command.
            log: File for its output.
            variables: Environment variables in addition to ours.
            text: The content of its stdin.
        """
        procs = f"{self.cgroup}/cgroup.procs"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [*self._enter("--mount", "--uts"), "sh", "-c", _ENTER, "sh", procs, "/tmp", *argv],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=os.environ | {"HOME": "/tmp/home"} | dict(variables or {}),
                start_new_session=True,
            )
        assert process.stdin is not None
        with process.stdin as stdin:
            stdin.write(text.encode())
        return process

    def entered(self, argv: Sequence[str]) -> list[str]:
        """Return the command line that runs a command with this machine's network and files."""
        return [*self._enter("--mount", "--uts"), *argv]

    def _enter(self, *more: str) -> list[str]:
        return ["nsenter", f"--target={self.holder}", "--net", *more, "--"]

    def pids(self) -> list[int]:
        """Return the processes of this machine."""
        with suppress(FileNotFoundError):
            return [int(p) for p in Path(self.cgroup, "cgroup.procs").read_text().split()]
        return []

    def drop(self, other: Machine) -> None:
        """Drop all packets from this machine to the other one."""
        self._neighbour("replace", other, "lladdr", _NOBODY, "nud", "permanent")

    def deliver(self, other: Machine) -> None:
        """Stop dropping packets."""
        self._neighbour("del", other)

    def _neighbour(self, verb: str, other: Machine, *words: str) -> None:
        command = ["ip", "neigh", verb, other.address, *words, "dev", "eth0"]
        subprocess.run([*self._enter(), *command], check=True, capture_output=True)

    def slow_down(self, rate: str, latency: str) -> None:
        """Limit the rate at which this machine sends, and delay its packets."""
        command = ["tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate]
        command += ["burst", "4kb", "latency", latency]
        subprocess.run([*self._enter(), *command], check=True, capture_output=True)

    def freeze(self, is_frozen: bool) -> None:
        """Stop all of its processes at once, or let them continue."""
        Path(self.cgroup, "cgroup.freeze").write_text(str(int(is_frozen)))

    def switch_off(self) -> None:
        """Kill all of its processes at once."""
        Path(self.cgroup, "cgroup.kill").write_text("1")


class Network:
    """A bridge, and the machines connected by it. Use `network` to create one."""

    def __init__(self) -> None:
        self._prefix = f"det{os.getpid()}"
        self._holders: dict[str, subprocess.Popen[str]] = {}
        root = _cgroup_root()
        assert root is not None
        self._cgroups = root / self._prefix
        self._number = 0

    def open(self) -> None:
        self._cgroups.mkdir()
        _ip("netns", "add", self._prefix)
        _ip("-n", self._prefix, "link", "add", "br0", "type", "bridge")
        _ip("-n", self._prefix, "link", "set", "br0", "up")

    def machine(self, name: str) -> Machine:
        """Create a machine; names are unique in the network."""
        self._number += 1
        address = f"10.77.{self._number // 250}.{self._number % 250 + 1}"
        space, port = f"{self._prefix}-{self._number}", f"v{self._number}"
        _ip("netns", "add", space)
        peer = ("peer", "name", "eth0", "netns", space)
        _ip("-n", self._prefix, "link", "add", port, "type", "veth", *peer)
        _ip("-n", self._prefix, "link", "set", port, "master", "br0", "up")
        _ip("-n", space, "addr", "add", f"{address}/16", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", space, "link", "set", device, "up")
        unshare = ["unshare", "--mount", "--uts", "--propagation", "private"]
        holder = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{space}", *unshare, "sh", "-c", _READY, "sh", name],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._holders[space] = holder
        assert holder.stdout is not None
        if holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"machine {name} could not be made")
        cgroup = self._cgroups / str(self._number)
        cgroup.mkdir()
        return Machine(name=name, address=address, holder=holder.pid, cgroup=str(cgroup))

    def close(self) -> None:
        """Kill the processes of the machines, and remove the machines."""
        for cgroup in self._cgroups.glob("*/"):
            (cgroup / "cgroup.freeze").write_text("0")
            (cgroup / "cgroup.kill").write_text("1")
        for space, holder in self._holders.items():
            holder.kill()
            holder.wait()
            assert holder.stdout is not None
            holder.stdout.close()
            _ip("netns", "del", space)
        _ip("netns", "del", self._prefix)
        for cgroup in [*self._cgroups.glob("*/"), self._cgroups]:
            _remove_cgroup(cgroup)


def _remove_cgroup(cgroup: Path) -> None:
    for _ in range(100):
        with suppress(OSError):  # a killed process is still exiting
            cgroup.rmdir()
            return
        time.sleep(0.05)


@contextmanager
def network() -> Iterator[Network]:
    """Create a network; at the end, remove it with its machines."""
    made = Network()
    try:
        made.open()
        yield made
    finally:
        made.close()
