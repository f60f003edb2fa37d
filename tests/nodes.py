"""Agents of other computers: each has a home of its own, and reaches the master over TLS alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from det_jupyter.agent.devices.offered_slots import AGENTS_VARIABLE
from det_jupyter.agent.runs.lease import FENCE_S
from det_jupyter.client import Client
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials
from tests.forks import Fork
from tests.processes import processes_below, wait_until


def spawn_agent(
    options: list[str], log: Path, environment: Mapping[str, str], stdin: bytes
) -> subprocess.Popen[bytes] | Fork:
    """Start an agent."""
    with open(log, "ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.agent", *options],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            env=environment,
        )
    assert process.stdin is not None
    with process.stdin as pipe:
        pipe.write(stdin)
    return process


@dataclass
class Node:
    """An agent with its home, as on a computer of its own."""

    credentials: AgentCredentials
    home: Path
    fence_after_s: float = FENCE_S
    slots: int = 2
    processes: list[subprocess.Popen[bytes] | Fork] = field(default_factory=list)

    def start(self) -> None:
        home = {
            paths.HOME_VARIABLE: str(self.home),
            AGENTS_VARIABLE: "",  # a test's own master may have simulated agents
            "DET_JUPYTER_CPU_SLOTS": str(self.slots),
            "OMP_NUM_THREADS": "1",  # each agent counts all cores as its own
        }
        self.home.mkdir(exist_ok=True)
        words = ["--credentials", "--fence-after-s", str(self.fence_after_s)]
        stdin = self.credentials.model_dump_json().encode()
        self.processes.append(spawn_agent(words, self.home / "log", os.environ | home, stdin))

    def end(self, number: int = signal.SIGTERM) -> None:
        self.processes[-1].send_signal(number)
        self.processes[-1].wait()

    @contextmanager
    def silent(self) -> Iterator[None]:
        """Stop the agent and its ranks within the block: they close no connection."""
        stopped = processes_below(self.home)
        for process in stopped:
            process.suspend()
        try:
            yield
        finally:
            for process in stopped:
                process.resume()

    def wait_until_connected(self, client: Client) -> None:
        def is_connected() -> bool:
            return any(a.id == self.credentials.agent and a.connected for a in client.agents())

        wait_until(is_connected, f"{self.credentials.agent} is connected")


@contextmanager
def running_nodes(client: Client, nodes: list[Node]) -> Iterator[dict[str, Node]]:
    """Start the agents, yield them by name, and end them; closes the client."""
    for node in nodes:
        node.start()
    try:
        for node in nodes:
            node.wait_until_connected(client)
        yield {node.credentials.agent: node for node in nodes}
    finally:
        for node in nodes:
            if node.processes[-1].poll() is None:
                node.end()
        client.session.close()
        assert not any([processes_below(node.home) for node in nodes])
