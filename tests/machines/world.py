"""The world of one scenario: a master, agents on machines of their own, and a trial.

This process has the master's network and files, so it can be a client there; its processes do not
count as processes of the machine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from det_jupyter.client import Client, Experiment
from det_jupyter.connection import connect, find_master
from det_jupyter.contract.host import paths
from tests.machines.gangs import GangWatch
from tests.machines.machine import Machine
from tests.processes import wait_until
from tests.trials import TRIAL_SOURCE, capture_trial, create, small_config

STEPS = 60
SLOW_FROM = 25  # the trial has a checkpoint of batch 20
SLOTS = 2
# Batches are slow until the fault is over, so that ranks which are wrongly not ended are still
# alive.
_SOURCE = TRIAL_SOURCE.replace(
    "        time.sleep(self.pause_s)",
    """        import os
        if batch_idx >= SLOW_FROM and not os.path.exists("GO"):
            time.sleep(PAUSE_S)""",
).replace(  # the judge examines these lines
    "        self.context.backward(loss)",
    """        print(f"batch {batch_idx + 1}: loss {loss.item()!r}", flush=True)
        self.context.backward(loss)""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The machines of a scenario.

    Args:
        master: The machine with the master.
        agents: The machines with agents.
        shared: A folder that all machines share.
    """

    master: Machine
    agents: Sequence[Machine]
    shared: Path


class World:
    """A running master with its agents, and a trial.

    Args:
        place: The machines.
        slots_per_trial: With more slots than an agent has (2), the trial is on several agents.
        with_shared_storage: Whether checkpoints are written to a folder that all machines share.
    """

    pause_s = 1.5  # seconds of each slow batch

    def __init__(
        self, place: Place, *, slots_per_trial: int = SLOTS, with_shared_storage: bool = False
    ) -> None:
        self.place = place
        self.watch = GangWatch(place.agents)
        self.fault_s = 0.0
        self._num_slots = slots_per_trial
        self.storage = place.shared / "checkpoints" if with_shared_storage else None
        self._go = place.shared / "go"
        self._credentials: dict[str, str] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._experiment: Experiment | None = None
        os.environ[paths.HOME_VARIABLE] = _home_of(place.master)

    @property
    def experiment(self) -> Experiment:
        """The trial's experiment."""
        assert self._experiment is not None
        return self._experiment

    @property
    def database(self) -> Path:
        return Path(_home_of(self.place.master), "data", "det.sqlite3")

    def start(self) -> None:
        """Start master, agents and trial; return during the slow batches."""
        self.start_master()
        self.start_agents()
        self.watch.start()
        self.submit()
        self.wait_for_batch(20)  # the other batches are reported several at once
        time.sleep(2)
        self.fault_s = self.watch.now_s

    def start_agents(self) -> None:
        """Start the agents, and wait until they are connected."""
        client = self.client()
        for machine in self.place.agents:
            added = client.add_agent(machine.name, self.place.master.address)
            self._credentials[machine.name] = added.model_dump_json()
            self.start_agent(machine)
        client.session.close()
        for machine in self.place.agents:
            self.wait_until_connected(machine)

    def submit(self) -> None:
        """Submit the trial."""
        client = self.client()
        config = small_config(resources={"slots_per_trial": self._num_slots}, max_restarts=0)
        if self.storage is not None:
            config["checkpoint_storage"] = {"type": "shared_fs", "host_path": str(self.storage)}
        source = _SOURCE.replace("SLOW_FROM", str(SLOW_FROM)).replace("GO", str(self._go))
        source = source.replace("PAUSE_S", str(self.pause_s))
        capsule = capture_trial(client, "SmallTrial", source)
        self._experiment = create(client, config, capsule, self.place.shared)

    def wait_for_batch(self, batch: int) -> None:
        def has_trained() -> bool:
            view = self.experiment.view
            assert not view.state.is_terminal, f"{view.state}: {view.message}"
            return bool(view.trials) and view.trials[0].steps_completed >= batch

        wait_until(has_trained, f"batch {batch} is trained")

    def client(self) -> Client:
        return Client(connect())

    def start_master(self) -> None:
        """Start the master, and wait until it answers."""
        command = [sys.executable, "-m", "det_jupyter.master", "serve", "--no-agent"]
        self.popen("master", self.place.master, command)
        wait_until(find_master, "the master answers")

    def start_agent(self, machine: Machine) -> None:
        """Start the machine's agent as a user does, with its credentials on stdin."""
        det = shutil.which("det", path=str(Path(sys.executable).parent))
        assert det is not None
        command = [det, "agent", "run", "--home", _home_of(machine)]
        self.popen(machine.name, machine, command, self._credentials[machine.name])

    def popen(
        self,
        name: str,
        machine: Machine,
        command: list[str],
        text: str = "",
        **variables: str,
    ) -> None:
        """Start a process of a machine, with a name for `kill` and `signal`.

        Args:
            name: The name of the process, and of its log in the shared folder.
            machine: The machine on which it runs.
            command: Its command line.
            text: The content of its stdin.
            variables: Environment variables, besides those of det_jupyter.
        """
        variables |= {
            paths.HOME_VARIABLE: _home_of(machine),
            "DET_JUPYTER_CPU_SLOTS": str(SLOTS),
        }
        log = self.place.shared / f"{name}.log"
        self._processes[name] = machine.popen(command, log=log, variables=variables, text=text)

    def kill(self, name: str) -> None:
        """Kill the master, or an agent by the name of its machine."""
        self._processes[name].kill()
        self._processes[name].wait(10)

    def signal(self, name: str, number: int) -> None:
        """Send a signal to an agent, or to the master."""
        self._processes[name].send_signal(number)

    def machines(self) -> list[Machine]:
        """Return the machines of the gang; that of rank 0 is first. Call this before the fault."""
        allocation = self.experiment.view.trials[0].allocation
        assert allocation is not None
        client = self.client()
        hosts = {agent.id: agent.hostname for agent in client.agents()}
        client.session.close()
        by_name = {machine.name: machine for machine in self.place.agents}
        return [by_name[hosts[id]] for id in dict.fromkeys(allocation.agent_ids)]

    def wait_until_connected(self, machine: Machine) -> None:
        client = self.client()

        def is_connected() -> bool:
            return any(a.hostname == machine.name and a.connected for a in client.agents())

        wait_until(is_connected, f"{machine.name} is connected")
        client.session.close()

    def cut(self, one: Machine, other: Machine) -> None:
        """Drop all packets between two machines."""
        one.drop(other)
        other.drop(one)

    def heal(self, one: Machine, other: Machine) -> None:
        one.deliver(other)
        other.deliver(one)

    def finish(self, timeout_s: float = 120.0) -> None:
        """Continue the trial without pauses, and wait for its end."""
        self._go.touch()
        self.experiment.wait(timeout_s)

    def stop(self) -> list[str]:
        """Stop all processes in order; return a line for each that is left."""
        self.watch.stop()
        if find_master() is not None:
            client = self.client()
            client.session.post("/master/stop", {"everything": True})
            client.session.close()
            # A process that does not end is reported as left.
            with suppress(subprocess.TimeoutExpired):
                self._processes["master"].wait(40)
        for process in self._processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + 20
        machines = [self.place.master, *self.place.agents]
        while (left := [(m, pid) for m in machines for pid in m.pids()]) and (
            time.monotonic() < deadline
        ):
            for process in self._processes.values():
                process.poll()
            time.sleep(0.1)
        for machine in machines:
            self._keep_logs(machine)
        return [f"left on {machine.name}: {_command(pid)}" for machine, pid in left]

    def _keep_logs(self, machine: Machine) -> None:
        """Copy the logs of det_jupyter to the shared folder; the machine's files are removed."""
        for log in Path(f"/proc/{machine.holder}/root/tmp").glob("det-*/**/*"):
            if log.suffix in {".log", ".out"} and log.is_file():
                with (self.place.shared / f"{machine.name}-{log.name}").open("ab") as copy:
                    copy.write(log.read_bytes())


def _home_of(machine: Machine) -> str:
    """Return the home of det_jupyter on a machine.

    Processes of a run are found by its path, and all machines have the same pids; so two homes
    must not have the same path, though each machine has a /tmp of its own.
    """
    return f"/tmp/det-{machine.name}"


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return str(pid)
    return f"{pid} {b' '.join(words).decode(errors='replace')[:120]}"


def place_from(text: str) -> Place:
    """Return a place from JSON; see `place_to`."""
    given: dict[str, Any] = json.loads(text)
    return Place(
        master=Machine(**given["master"]),
        agents=[Machine(**each) for each in given["agents"]],
        shared=Path(given["shared"]),
    )


def place_to(place: Place) -> str:
    """Return a place as JSON, for another process."""
    machines = [
        {name: getattr(each, name) for name in Machine.__slots__}
        for each in (place.master, *place.agents)
    ]
    return json.dumps({"master": machines[0], "agents": machines[1:], "shared": str(place.shared)})
