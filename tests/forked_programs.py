"""Master, agent and fork server as forks of a process that has loaded what they import.

    test ──asks──> source ──forks──> master ──forks──> agent ──forks──> fork server

Each of these starts the next one by `subprocess.Popen` while it has one thread, so a fork does the
same for a tenth of the CPU time ([m] 4 s for all three). Whatever is started later, or by another
program, is a new process, as for a user.
"""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from det_jupyter import connection
from det_jupyter.contract.host import daemons, paths
from det_jupyter.contract.host.rundir import without_run
from tests import nodes
from tests.fork_source import with_compat
from tests.forks import PYTHON_PATH, Fork, torch_source, with_python_path


@pytest.fixture(scope="package", autouse=True)
def _programs_are_forks() -> Iterator[None]:
    """Fork the masters and agents that the tests of a folder start, if its conftest has this."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "spawn_master", spawn_master)
        patch.setattr(nodes, "spawn_agent", spawn_agent)
        yield


# A PYTHONPATH with which masters are forks all the same: it is for what these start later.
light_path = ""


def spawn_master() -> Fork | subprocess.Popen[bytes]:
    """Start a master as `daemons.spawn_master` does, which this calls if modules lie elsewhere."""
    if os.environ.get("PYTHONPATH") not in (PYTHON_PATH, with_compat(PYTHON_PATH), light_path):
        return daemons.spawn_master()
    with open(os.devnull, "rb") as nothing:
        master = _start(
            ["det_jupyter.master", "serve"],
            paths.master_output(), nothing.fileno(), without_run(os.environ),
        )  # fmt: skip
    threading.Thread(target=master.wait, daemon=True).start()  # otherwise it stays as a zombie
    return master


def spawn_agent(
    options: list[str], log: Path, environment: Mapping[str, str], stdin: bytes
) -> Fork:
    """Start an agent as `nodes.spawn_agent` does."""
    read, write = os.pipe()
    with os.fdopen(read), os.fdopen(write, "wb") as pipe:
        pipe.write(stdin)
        return _start(["det_jupyter.agent", *options], log, read, environment)


def _start(words: list[str], log: Path, stdin: int, environment: Mapping[str, str]) -> Fork:
    path = environment.get("PYTHONPATH")
    if path == light_path:
        environment = with_python_path(environment)
    with open(log, "ab", opener=paths.private_opener) as output:
        return torch_source().start(
            "tests.forked_main:run_program", words, path,
            environment=environment, descriptors=[stdin, output.fileno()],
        )  # fmt: skip
