"""Commands for the master in a terminal: start, restart, stop, status."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import closing
from typing import Any

from det_jupyter.connection import Session, announced_master, ensure_master, find_master
from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import DiskStatus, GangPlan
from det_jupyter.contract.values.reader import SHELL
from det_jupyter.contract.values.text import listed
from det_jupyter.errors import DetError
from det_jupyter.master.stopping import (
    end_everything,
    end_master,
    find_agent_without_master,
    find_processes_without_agent,
)

_MOST_NAMED = 8  # most processes named in a message
_NOT_RUNNING = 3  # exit status, as of `systemctl status`


def run(options: argparse.Namespace) -> int:
    """Run a command; return the exit status."""
    try:
        return _VERBS[options.verb](options)
    except DetError as error:
        print(error, file=sys.stderr)
        return 1


def start(options: argparse.Namespace) -> int:
    info = ensure_master()
    print(f"The master runs: pid {info.pid}, {info.url}")
    return 0


def restart(options: argparse.Namespace) -> int:
    """Replace the running master, of any version, by one of this environment."""
    end_master()
    return start(options)


def stop(options: argparse.Namespace) -> int:
    """Stop the master, of any version; with --everything, all processes of its home."""
    if options.everything:
        ended = end_everything()
        print(f"Ended: {', '.join(ended)}. Nothing runs now." if ended else "Nothing runs.")
        return 0
    info = end_master()
    print("No master runs." if info is None else "The master has stopped.")
    if successor := announced_master():
        print(f"Another one has started since: pid {successor.pid}.")
    elif agent := find_agent_without_master():
        print(_describe_agent(*agent))
    return 0


def status(options: argparse.Namespace) -> int:
    """Print whether the master runs, and what runs under it; return 0 if it runs, else 3."""
    info = find_master()
    if info is None:
        agent = find_agent_without_master()
        if options.json:
            print(json.dumps(agent and _agent_as_json(*agent), indent=2))
        else:
            lines = [_describe_agent(*agent)] if agent else _describe_processes()
            print("\n".join(["No master runs.", *lines, _describe_folders()]))
        return _NOT_RUNNING
    with closing(Session(info)) as session:
        status = session.get("/status")
    print(
        json.dumps(status, indent=2)
        if options.json
        else f"{_describe_status(status)}\n{_describe_folders()}"
    )
    return 0


def _describe_agent(pid: int, gangs: list[GangPlan]) -> str:
    trials = ", ".join(f"trial {g.trial_id} of experiment {g.experiment_id}" for g in gangs)
    name = f"An agent (pid {pid})" if pid else "An agent"
    return (
        f"{name} runs without a master and trains {trials or 'nothing'}. It connects to the next "
        f"master; `{SHELL.det} master stop --everything` ends it and what it trains."
    )


def _describe_processes() -> list[str]:
    pids = find_processes_without_agent()
    named = listed((f"pid {pid}" for pid in pids), most=_MOST_NAMED)
    text = (
        f"Processes run without a master ({named}); `{SHELL.det} master stop "
        "--everything` ends them."
    )
    return [text] if pids else []


def _agent_as_json(pid: int, gangs: list[GangPlan]) -> dict[str, Any]:
    trials = [{"experiment_id": g.experiment_id, "trial_id": g.trial_id} for g in gangs]
    return {"master": None, "agent": {"pid": pid or None, "trials": trials}}


def _describe_folders() -> str:
    return f"Data: {paths.data_dir()}; logs: {paths.log_dir()}."


def _describe_status(status: dict[str, Any]) -> str:
    master = status["master"]
    lines = [
        f"The master runs: pid {master['pid']}, {master['url']}, version {master['version']}."
    ]
    for agent in status["agents"]:
        away = "" if agent["connected"] else ", not connected"
        slots = len(agent["slots"])
        used = sum(slot["allocation_id"] is not None for slot in agent["slots"])
        lines.append(f"Agent {agent['id']}: {used} of {slots} slots in use{away}.")
        if agent["problem"] and away:
            lines.append(f"  {agent['problem']}.")
    if not status["agents"]:
        lines.append("No agent has come yet.")
    for experiment in status["experiments"]:
        lines.append(
            f"Experiment {experiment['id']} “{experiment['name']}”: "
            f"{experiment['state'].lower()}, {experiment['progress']:.0%}."
        )
    if not status["experiments"]:
        lines.append(f"No experiment is active; {status['num_experiments']} in all.")
    lines += [f"Problem: {problem}" for problem in status["problems"]]
    disks = [DiskStatus.model_validate(disk) for disk in status.get("disks", [])]
    lines += [f"Problem: {disk.sentence(SHELL)}" for disk in disks]
    return "\n".join(lines)


_VERBS = {"start": start, "restart": restart, "stop": stop, "status": status}
