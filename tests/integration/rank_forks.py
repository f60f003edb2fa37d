"""Fresh processes to load capsules in, all forked from one, which has loaded what ranks need."""

from __future__ import annotations

from pathlib import Path

from tests.forks import ForkSource, fork_source, with_python_path

LOADED = (
    "det_jupyter.contract.host.blobs",
    "det_jupyter.contract.trial.captured",
    "det_jupyter.contract.messages",
)


class RankForks:
    """Runs code in fresh processes, which have loaded what a rank needs, but not torch.

    Args:
        source: What they are forked from instead, for code that uses torch.
    """

    def __init__(self, source: ForkSource | None = None) -> None:
        self._source = source or fork_source(*LOADED)

    def run(self, folder: Path, code: str) -> str:
        """Run code in the folder `rank` of a folder; return what it printed."""
        (folder / "rank").mkdir(exist_ok=True)
        file, out, err = (folder / name for name in ("code.py", "out", "err"))
        file.write_text(code)
        fork = self._source.start(
            "runpy:run_path",
            *(str(file), None, "__main__"),
            folder=folder / "rank",
            environment=with_python_path({"PATH": "/usr/bin:/bin"}),
            outputs=(out, err),
        )
        assert fork.wait() == 0, err.read_text()
        return out.read_text()
