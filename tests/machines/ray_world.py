"""A world whose agents are started by a Ray cluster: its head is on the master's machine.

Each other machine is a node. `AutoscaledWorld` has no nodes at first: Ray's autoscaler starts them
through the provider in autoscaling.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

from det_jupyter.contract.messages import ClusterStatus
from tests.machines.machine import Machine
from tests.machines.world import SLOTS, World, place_to
from tests.processes import wait_until
from tests.ray_node import SETTINGS, TOKEN

_PORT = 6379
_READY_S = 120.0
IDLE_MINUTES = 0.1


def node_command(ip: str, *words: str) -> list[str]:
    """Return the command line of a node."""
    return [sys.executable, "-m", "tests.ray_node", "--ip", ip, *words]


class RayWorld(World):
    """A world with a Ray cluster."""

    num_spare = 0  # machines that are not nodes at first
    _head_options: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        """The address of the head."""
        return f"{self.place.master.address}:{_PORT}"

    def start_agents(self) -> None:
        self.start_head()
        nodes = self.place.agents[: len(self.place.agents) - self.num_spare]
        for machine in nodes:
            self.start_node(machine)
        self.add_cluster()
        for machine in nodes:
            self.wait_until_connected(machine)

    def add_cluster(self, **more: object) -> None:
        """Add the cluster, as a user does."""
        token = self.place.shared / "token"
        token.write_text(TOKEN)
        settings = {"engine": "ray", "address": self.head, "slots": SLOTS}
        client = self.client()
        client.add_cluster(settings | {"token_file": str(token)} | more)
        client.session.close()

    def start_head(self) -> None:
        """Start the head, and wait until it answers."""
        self._start_node(self.place.master, *self._head_options)

    def start_node(self, machine: Machine) -> None:
        """Start a node, and wait until it has joined the head."""
        self._start_node(machine, "--join", self.head, "--cpus", str(SLOTS))

    def _start_node(self, machine: Machine, *words: str) -> None:
        name = _name_of(machine)
        log = self.place.shared / f"{name}.log"
        before = _num_starts(log)
        command = node_command(machine.address, *words)
        self.popen(name, machine, command, **SETTINGS)
        wait_until(lambda: _num_starts(log) > before, f"{name} has started")

    def stop_node(self, machine: Machine) -> None:
        """Stop a node in order, and wait until its processes have ended."""
        self.signal(_name_of(machine), signal.SIGTERM)
        self.wait_for_end(machine)

    def wait_for_end(self, machine: Machine) -> None:
        """Wait until the programs of a node, and its agent, have ended."""
        process = self._processes[_name_of(machine)]
        wait_until(lambda: process.poll() is not None, f"{machine.name} has ended")

    def kill_program(self, machine: Machine, name: str) -> None:
        """Kill a program of Ray: `raylet`, or `gcs_server`."""
        (pid,) = [pid for pid in machine.pids() if _is_program(pid, name)]
        os.kill(pid, signal.SIGKILL)

    def kill_bridge(self) -> None:
        """Kill the master's connection to Ray."""
        words = b"-m\0det_jupyter.engine.ray\0"
        (pid,) = [pid for pid in self.place.master.pids() if words in _command_line(pid)]
        os.kill(pid, signal.SIGKILL)

    def cluster(self) -> ClusterStatus:
        """Return the status of the cluster, as `det cluster list` shows it."""
        client = self.client()
        (status,) = client.clusters()
        client.session.close()
        return status

    def wait_for_reason(self, *words: str) -> None:
        """Wait until the trial waits for a reason that contains these words."""
        reasons = [""]

        def has_words() -> bool:
            trials = self.experiment.view.trials
            reasons.append((trials[0].waiting_for if trials else "") or reasons[-1])
            return all(word in reasons[-1] for word in words)

        try:
            wait_until(has_words, "")
        except AssertionError:
            raise AssertionError(f"no reason with {words}; the last: {reasons[-1]}") from None


class AutoscaledWorld(RayWorld):
    """A world whose nodes are started when a trial waits, and ended when they are idle."""

    def start_agents(self) -> None:
        file = self.place.shared / "autoscaler.json"
        file.write_text(json.dumps(self._autoscaler()))
        self._head_options = ("--autoscaler", str(file))
        self.start_head()
        self.add_cluster(idle_minutes=IDLE_MINUTES)

    def submit(self) -> None:
        super().submit()
        self.wait_for_reason("cluster ray has been asked for 1 node more")

    def _autoscaler(self) -> dict[str, object]:
        commands = ("initialization", "setup", "head_setup", "worker_setup")
        starts = ("head_start_ray", "worker_start_ray")
        return {
            "cluster_name": "det",
            "max_workers": len(self.place.agents),
            "idle_timeout_minutes": IDLE_MINUTES,
            "upscaling_speed": 1,
            "provider": {
                "type": "external",
                "module": "tests.machines.autoscaling.Provider",
                "disable_node_updaters": True,  # nodes are set up without ssh
                "disable_launch_config_check": True,
                "place": place_to(self.place),
                "head": self.head,
            },
            "auth": {},
            "docker": {},
            "file_mounts": {},
            "cluster_synced_files": [],
            "file_mounts_sync_continuously": False,
            **{f"{name}_commands": [] for name in (*commands, *starts)},
            "head_node_type": "head",
            "available_node_types": {
                "head": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
                "node": {
                    "resources": {"CPU": SLOTS},
                    "node_config": {},
                    "min_workers": 0,
                    "max_workers": len(self.place.agents),
                },
            },
        }


def _name_of(machine: Machine) -> str:
    return f"ray-{machine.name}"


def _num_starts(log: Path) -> int:
    return log.read_text().split().count("started") if log.exists() else 0


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _is_program(pid: int, name: str) -> bool:
    return Path(os.fsdecode(_command_line(pid).partition(b"\0")[0])).name == name
