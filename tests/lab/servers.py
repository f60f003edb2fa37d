"""A JupyterLab that can be stopped and started again at the same address."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import nbformat

from det_jupyter.contract.host.ports import free_port
from tests.browser.lab import Server, jupyter_lab
from tests.lab.forked_server import fork_server
from tests.processes import wait_until

# What no journey uses: [m] without these, loading a page takes 1.1 of 3.2 s CPU less.
UNUSED = (
    "audio", "celltags", "csvviewer", "debugger", "documentsearch", "extensionmanager", "help",
    "htmlviewer", "hub", "imageviewer", "inspector", "javascript", "json", "logconsole", "lsp",
    "markdownviewer", "mathjax", "mermaid", "metadataform", "pdf", "pluginmanager", "terminal",
    "toc", "tooltip", "vega5", "video",
)  # fmt: skip
# Extensions of the server that no journey uses; jupyter_lsp starts Node three times.
EXTENSIONS = ("--ServerApp.jpserver_extensions={'jupyter_lsp': False}",)
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}


class Lab:
    """A JupyterLab, which serves Notebook 7 too.

    Args:
        folder: The folder that it serves.
        arguments: Further arguments of the server.
        disabled: Extensions of JupyterLab that its pages do not load.
        start: Starts the server, see `jupyter_lab`.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = EXTENSIONS,
        *,
        disabled: Sequence[str] = UNUSED,
        start: Callable[[Sequence[str], Path, Mapping[str, str]], Server] = fork_server,
    ) -> None:
        self.folder = folder
        self.token = secrets.token_hex(16)
        self._port = free_port()
        self._arguments, self._disabled, self._start = arguments, disabled, start
        self._running = ExitStack()

    def start(self) -> None:
        """Start the server; returns when it answers."""
        address = self._running.enter_context(
            jupyter_lab(
                self.folder,
                port=self._port,
                token=self.token,
                arguments=self._arguments,
                disabled=self._disabled,
                start=self._start,
            )
        )
        self.root = address.partition("lab/tree")[0]

    def stop(self) -> None:
        """Stop the server and its kernels."""
        self._running.close()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Run the server during the block."""
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def url(self, workspace: str, path: str = "") -> str:
        """Return the address of a file, or of JupyterLab without a file, in a new workspace."""
        tree = f"/tree/{path}" if path else ""
        return f"{self.root}lab/workspaces/{workspace}{tree}?token={self.token}"

    def notebook_url(self, path: str) -> str:
        """Return the address of a notebook in Notebook 7."""
        return f"{self.root}notebooks/{path}?token={self.token}"

    def wait_for_layout(self, text: str) -> None:
        """Wait until a layout that contains this text is saved; a reload restores it."""
        wait_until(lambda: text in "".join(self._layouts()), f"{text} is in a layout")

    def wait_for_state(self, key: str, is_kept: Callable[[Any], bool]) -> None:
        """Wait until `is_kept` is true of the state that our extension has saved under a key."""

        def is_saved() -> bool:
            found = []
            for text in self._layouts():
                with suppress(json.JSONDecodeError):  # the file is being written
                    found.append(json.loads(text)["data"].get(f"det-jupyter:{key}"))
            return any(is_kept(one) for one in found if one is not None)

        wait_until(is_saved, f"the state of {key} is saved")

    def forget_layouts(self) -> None:
        """Delete the saved layouts."""
        for path in self._workspaces.glob("*"):
            path.unlink()

    def _layouts(self) -> list[str]:
        return [path.read_text() for path in self._workspaces.glob("*")]

    @property
    def _workspaces(self) -> Path:
        return self.folder / ".workspaces"

    @property
    def log(self) -> str:
        """The output of the server."""
        return (self.folder / "lab.log").read_text()

    def write_notebook(self, path: str, *cells: str) -> Path:
        """Write a notebook with these code cells; those with more than 20 lines are folded.

        The notebook names its kernel, so that JupyterLab does not ask for one. Cells below the
        window are not drawn.
        """
        made = [nbformat.v4.new_code_cell(cell) for cell in cells]
        for cell in made:
            if cell.source.count("\n") > 20:
                cell.metadata["jupyter"] = {"source_hidden": True}
        nbformat.write(nbformat.v4.new_notebook(cells=made, metadata=KERNEL), self.folder / path)
        return self.folder / path
