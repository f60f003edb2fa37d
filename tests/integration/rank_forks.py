"""Fresh processes to load capsules in, all forked from one, which has loaded what ranks need."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
RANK_IMPORTS = """
import json, sys
from pathlib import Path
from det_jupyter.blobs import BlobStore
from det_jupyter.capsule import cell_labels, load_capsule
from det_jupyter.wire import Capsule
"""
# Forks a process for each line, as if it had been started with `-c` and had imported only that.
_SERVER = f"""{RANK_IMPORTS}
import os, signal, traceback
from types import ModuleType

def become(folder, code):
    signal.alarm(120)  # else one that hangs is waited for by all that come, and by the end
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name, number in (("out", 1), ("err", 2)):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.chdir("rank")
    main = sys.modules["__main__"] = ModuleType("__main__")
    try:
        exec(compile(code, "<string>", "exec"), vars(main))
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        sys.stdout.flush()
    return 0

while line := sys.stdin.readline():
    if os.fork() == 0:
        os._exit(become(*json.loads(line)))
    _, status = os.wait()
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class RankForks:
    """Runs code in fresh processes, which have loaded what a rank needs: that takes 0.4 s CPU."""

    def __init__(self, server: subprocess.Popen[str]) -> None:
        self._server = server

    def run(self, folder: Path, code: str) -> str:
        """Run code in the folder `rank` of a folder; return what it printed."""
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        (folder / "rank").mkdir(exist_ok=True)
        self._server.stdin.write(json.dumps([str(folder), code]) + "\n")
        self._server.stdin.flush()
        assert self._server.stdout.readline() == "0\n", (folder / "err").read_text()
        return (folder / "out").read_text()


@contextmanager
def rank_forks() -> Iterator[RankForks]:
    """Run the process that they are forked from; it ends at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        cwd="/",
        env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        try:
            yield RankForks(server)
        finally:
            server.kill()  # a process forked by a test may hold its stdin open
