"""A notebook to capture from, and fresh processes to load the capsule in."""

from __future__ import annotations

import atexit
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from ipykernel.compiler import XCachingCompiler
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.messages import Capsule
from det_jupyter.errors import CaptureError
from det_jupyter.front.notebook.capture.capture import capture
from tests.integration.rank_forks import RankForks

_RANK = """
import json, sys
from pathlib import Path
from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.trial.captured import cell_labels, load_capsule
from det_jupyter.contract.messages import Capsule
sys.path.insert(0, "")  # a rank finds what is in its folder
root = Path({root!r})
blobs = BlobStore(root / "blobs")
capsule = Capsule.model_validate_json((root / "capsule.json").read_text())
Trial = load_capsule(capsule, blobs, root / "code")
def show(value): print(json.dumps(value))
"""


class Notebook:
    """A shell as a Jupyter kernel has it, and the folder of its blobs."""

    def __init__(self, shell: InteractiveShell, root: Path, ranks: RankForks | None) -> None:
        self.shell = shell
        self.root = root
        self.ranks = ranks
        self.folder = root / "notebook"
        self.blobs = BlobStore(root / "blobs")
        self.names: dict[str, Any] = shell.user_ns

    def run(self, *cells: str) -> None:
        """Run cells; the first one ever is In [1]."""
        for cell in cells:
            self.shell.run_cell(cell, store_history=True).raise_error()

    def capture(self, entrypoint: str = "Trial", *, allow_large: bool = False) -> Capsule:
        """Capture a class as the magic does."""
        return capture(
            entrypoint,
            self.names,
            blobs=self.blobs,
            cwd=self.folder,
            shell=self.shell,
            allow_large=allow_large,
        )

    def in_rank(self, capsule: Capsule, code: str) -> Any:
        """Load the capsule as `Trial` in a fresh process, run code, return what it `show`s."""
        assert self.ranks is not None
        (self.root / "capsule.json").write_text(capsule.model_dump_json())
        return json.loads(self.ranks.run(self.root, _RANK.format(root=str(self.root)) + code))

    def problems(self, entrypoint: str = "Trial") -> list[str]:
        """Return the lines with which the capture is refused."""
        try:
            self.capture(entrypoint)
        except CaptureError as error:
            return error.problems
        return []


@contextmanager
def open_notebook(root: Path, ranks: RankForks | None = None) -> Iterator[Notebook]:
    """Start a shell whose namespace is `__main__` while it lives, as it is in a kernel.

    Args:
        root: The folder for all that it has.
        ranks: Runs code in processes that load what was captured.
    """
    main, modules, search_path = sys.modules["__main__"], set(sys.modules), list(sys.path)
    (root / "notebook").mkdir()
    shell = InteractiveShell(
        config=Config(HistoryManager={"hist_file": ":memory:"}),
        ipython_dir=str(root / "ipython"),
        user_module=ModuleType("__main__"),
    )
    shell.compile = XCachingCompiler()  # file names as a kernel gives them
    try:
        yield Notebook(shell, root, ranks)
    finally:
        shell.displayhook.do_full_cache = False  # else it collects the garbage of all tests
        shell.atexit_operations()
        atexit.unregister(shell.atexit_operations)
        shell.restore_sys_module_state()
        sys.modules["__main__"] = main
        sys.path[:] = search_path
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None) or ""
            if file.startswith(str(root)):
                del sys.modules[name]
