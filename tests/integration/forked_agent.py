"""The program of an agent, for a process forked with its modules loaded (tests/forks.py)."""

from __future__ import annotations

import resource

from det_jupyter.agent.__main__ import main
from tests.forked_main import fork_programs


def run_agent(path: str, num_files: int) -> int:
    """Run an agent with a soft limit of open files.

    Its first fork server is a fork; other children find modules in `path`.
    """
    fork_programs(path)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (num_files, most))
    return main()
