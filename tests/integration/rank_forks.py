"""Fresh processes to load capsules in, all forked from one, which has loaded what ranks need."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from tests.forks import ForkServer

REPOSITORY = Path(__file__).parents[2]
ENVIRONMENT = {"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"}
LOADED = ("det_jupyter.blobs", "det_jupyter.capsule", "det_jupyter.wire")


class RankForks:
    """Runs code in fresh processes, which have loaded what a rank needs: that takes 0.4 s CPU."""

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    def run(self, folder: Path, code: str) -> str:
        """Run code in the folder `rank` of a folder; return what it printed."""
        (folder / "rank").mkdir(exist_ok=True)
        file, out, err = (folder / name for name in ("code.py", "out", "err"))
        file.write_text(code)
        fork = self._server.start(
            "runpy:run_path",
            *(str(file), None, "__main__"),
            folder=folder / "rank",
            environment=ENVIRONMENT,
            outputs=(out, err),
        )
        assert fork.wait(120) == 0, err.read_text()
        return out.read_text()


@contextmanager
def rank_forks() -> Iterator[RankForks]:
    """Run the process that they are forked from."""
    with closing(ForkServer(LOADED, environment=ENVIRONMENT)) as server:
        yield RankForks(server)
