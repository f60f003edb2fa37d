"""`python -m det_jupyter.agent`: the one agent process of this computer and user.

Importing torch in a fork server takes longest. So this process first starts the fork server of its
interpreter, and only then imports its own slow modules (`run_agent.py`).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys

from det_jupyter.agent.starting.zygote_process import RANK_TARGET, start_zygote
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.inheritance import start_clean
from det_jupyter.contract.host.locks import take_lock

# What Slurm (KillWait), Kubernetes and most spot machines leave between SIGTERM and SIGKILL.
GRACE_S = 30.0
_LOCK_S = 2.0  # an agent that is ending holds the lock for a moment


def main() -> int:
    """Run the agent and return its exit code; if another one holds the lock, return at once."""
    parser = argparse.ArgumentParser(prog="python -m det_jupyter.agent", description=__doc__)
    parser.add_argument("--target", default=RANK_TARGET, help="function that a forked rank runs")
    parser.add_argument(
        "--agent",
        action="append",
        default=[],
        metavar="NAME=cpu:N",
        help="offer a simulated agent of this name with N CPU places; may be repeated",
    )
    parser.add_argument(
        "--credentials",
        action="store_true",
        help="read AgentCredentials from stdin, as JSON: the master is on another computer",
    )
    parser.add_argument(
        "--port",
        type=int,
        default=0,
        help="where other agents connect, with --credentials (default: any free port)",
    )
    parser.add_argument(
        "--address",
        default="",
        help="address at which other agents reach this computer (default: what the master sees)",
    )
    parser.add_argument(
        "--leave-after-s",
        type=float,
        default=60.0,
        help="how long to stay without a master and gangs",
    )
    parser.add_argument(
        "--fence-after-s",
        type=float,
        help="with --credentials: end all gangs when the master has not answered for so long",
    )
    parser.add_argument(
        "--grace-s",
        type=float,
        default=GRACE_S,
        help="after SIGTERM: time in which trials save, upload and leave, and this process exits",
    )
    options = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs each request
    # Read before the fork server is started, which must not inherit it.
    credentials = sys.stdin.read() if options.credentials else ""
    start_clean(keeps_share=options.credentials)
    lock = take_lock(paths.agent_lock(), timeout_s=_LOCK_S)
    if lock is None:
        if credentials:
            sys.exit(f"another agent uses {paths.data_dir()}")
        return 0
    # Only this process has the write end, so it closes when this process ends; then the ranks
    # exit.
    lifeline_fd, _ = os.pipe()
    first = start_zygote(sys.executable, lifeline_fd=lifeline_fd, target=options.target)

    import asyncio

    from det_jupyter.agent.run_agent import run_agent

    asyncio.run(run_agent(first, lifeline_fd, options, credentials))
    return 0


if __name__ == "__main__":
    sys.exit(main())
