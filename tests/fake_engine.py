"""A fake starter of agents: it starts idle processes, one for each of several computers.

It stands for starters such as Ray, whose hosts outlive the master and are found by their names.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path

from det_jupyter.contract.host.processes import ProcessIdentity


class FakeEngine:
    """An Engine. It records its processes in a file, for an engine of a later master."""

    def __init__(self, file: Path, names: Collection[str] = ("one", "other")) -> None:
        self._file = file
        self._names = names
        self.problem = ""
        self._own: dict[str, subprocess.Popen[bytes]] = {}

    def keep(self, connected: Collection[str]) -> list[str]:
        """Start a process for each name that has none."""
        running, missing = self._running(), []
        for name in self._names:
            if name not in connected and name not in running:
                if (killed := self._own.get(name)) is not None:
                    killed.wait()  # the signal may have arrived after `_running` polled
                started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
                self._own[name] = started
                running[name] = ProcessIdentity.of(started.pid)
                missing.append(name)
        known = {name: asdict(process) for name, process in running.items()}
        self._file.write_text(json.dumps(known))
        return missing

    def is_running(self) -> bool:
        """Return whether any process is alive."""
        return bool(self._running())

    def why_silent(self, agent_id: str, process: ProcessIdentity) -> str | None:
        """Return a message if the process of that name is stopped; else None."""
        if agent_id not in self._running():
            return None
        return f"agent {agent_id} {'is stopped' if process.is_frozen else 'does not answer'}"

    def dismiss(self) -> None:
        """Terminate the processes that this object has started."""
        for process in self._own.values():
            process.terminate()

    def end_all(self, patience_s: float) -> tuple[list[str], list[str]]:
        """End all processes."""
        ended: list[str] = []
        left: list[str] = []
        for name, process in self._running().items():
            (ended if process.end(patience_s) else left).append(f"agent {name}")
        return ended, left

    def _running(self) -> dict[str, ProcessIdentity]:
        for process in self._own.values():
            process.poll()  # reaps it
        if not self._file.exists():
            return {}
        known = json.loads(self._file.read_text())
        found = {name: ProcessIdentity(**identity) for name, identity in known.items()}
        alive = {name: process for name, process in found.items() if process.is_alive}
        for name, process in self._own.items():
            if name in found and name not in alive:
                process.wait()  # it may have ended after `poll`
        return alive
