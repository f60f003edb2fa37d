"""The program of an agent, for a process forked with its modules loaded (tests/forks.py)."""

from __future__ import annotations

import os
import resource

from det_jupyter.agent.__main__ import main


def run_agent(path: str, num_files: int) -> int:
    """Run an agent with a soft limit of open files, whose children find modules in `path`."""
    os.environ["PYTHONPATH"] = path
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, most))
    return main()
