"""What people can tell the master from a terminal: start, stop, status."""

from __future__ import annotations

import argparse
import json
import sys
import time
from contextlib import closing
from typing import Any

from det_jupyter.autostart import announced_master, ensure_master, find_master
from det_jupyter.engine.local import is_agent_running
from det_jupyter.errors import DetError
from det_jupyter.session import Session
from det_jupyter.system import paths

_NOT_RUNNING = 3  # as `systemctl status` has it
_END_S = 30.0


def run(options: argparse.Namespace) -> int:
    """Carry out a command; return the exit status."""
    try:
        return _VERBS[options.verb](options)
    except DetError as error:
        print(error, file=sys.stderr)
        return 1


def start(options: argparse.Namespace) -> int:
    info = ensure_master()
    print(f"The master runs: pid {info.pid}, {info.url}")
    return 0


def stop(options: argparse.Namespace) -> int:
    """End the master, of whatever version it is."""
    info = announced_master()  # of another version, too: to upgrade, one has to stop it
    if info is None:
        print("No master runs.")
        return 0
    with closing(Session(info)) as session:
        session.post("/master/stop", {"everything": options.everything})
    deadline = time.monotonic() + _END_S
    while paths.is_locked(paths.master_lock()):  # its very last act is to die
        if time.monotonic() > deadline:
            print(
                f"The master (pid {info.pid}) was asked to stop and still runs.", file=sys.stderr
            )
            return 1
        time.sleep(0.02)
    print("The master has stopped.")
    if is_agent_running():
        print("Running trials go on; their agent will find the next master.")
    return 0


def status(options: argparse.Namespace) -> int:
    """Say whether the master runs, and what; return 0 if it does, else 3."""
    info = find_master()
    if info is None:
        print("null" if options.json else f"No master runs.\n{_places()}")
        return _NOT_RUNNING
    with closing(Session(info)) as session:
        status = session.get("/status")
    print(json.dumps(status, indent=2) if options.json else f"{_in_words(status)}\n{_places()}")
    return 0


def _places() -> str:
    return f"Data: {paths.data_dir()}; logs: {paths.log_dir()}."


def _in_words(status: dict[str, Any]) -> str:
    master = status["master"]
    lines = [
        f"The master runs: pid {master['pid']}, {master['url']}, version {master['version']}."
    ]
    for agent in status["agents"]:
        away = "" if agent["connected"] else ", not connected"
        slots, used = len(agent["slots"]), len(agent["used"])
        lines.append(f"Agent {agent['id']}: {used} of {slots} slots in use{away}.")
        if agent["problem"] and away:
            lines.append(f"  {agent['problem']}.")
    if not status["agents"]:
        lines.append("No agent has come yet.")
    for experiment in status["experiments"]:
        lines.append(
            f"Experiment {experiment['id']} “{experiment['name']}”: {experiment['state']}, "
            f"{experiment['progress']:.0%}."
        )
    if not status["experiments"]:
        lines.append(f"No experiment is active; {status['num_experiments']} in all.")
    lines += [f"Problem: {problem}" for problem in status["problems"]]
    return "\n".join(lines)


_VERBS = {"start": start, "stop": stop, "status": status}
