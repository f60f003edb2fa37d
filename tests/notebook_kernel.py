"""A real notebook kernel for tests: runs cells, and collects what a front end would show.

Kernels are forked from a process that has torch loaded (forks.py). The kernels of the quickstart,
and of a journey through JupyterLab (lab/test_servers.py), are started as for a user.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from nbclient import NotebookClient

from tests.forks import ForkSource, torch_source


@dataclass(slots=True)
class Outputs:
    """The outputs of a cell."""

    text: str = ""
    bundles: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None  # the traceback as shown

    @property
    def all_text(self) -> str:
        """All readable text: streams and text/plain."""
        return self.text + "\n".join(b.get("text/plain", "") for b in self.bundles)


class Notebook:
    """A kernel that runs cells one after the other."""

    def __init__(self, manager: KernelManager, kernel: BlockingKernelClient) -> None:
        self.manager = manager
        self._kernel = kernel

    def run(self, code: str) -> Outputs:
        """Run a cell and return its outputs, including errors."""
        outputs = Outputs()

        def collect(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["msg_type"] == "stream":
                outputs.text += content["text"]
            elif message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
                outputs.bundles.append(content["data"])
            elif message["msg_type"] == "error":
                outputs.error = "\n".join(content["traceback"])

        self._kernel.execute_interactive(code, output_hook=collect, allow_stdin=False)
        return outputs

    def check(self, code: str) -> Outputs:
        """Run a cell that must succeed."""
        outputs = self.run(code)
        assert outputs.error is None, outputs.error
        return outputs

    def complete(self, code: str) -> list[str]:
        """Return the completions at the end of `code`."""
        reply = self._kernel.complete(code, len(code), reply=True)
        return list(reply["content"]["matches"])

    def start(self, code: str) -> None:
        """Start a cell without waiting for it."""
        self._kernel.execute(code)

    def new_subshell(self) -> str:
        """Return the id of a new subshell: a thread that is free while a cell runs."""
        self._kernel.control_channel.send(self._kernel.session.msg("create_subshell_request", {}))
        reply = self._kernel.get_control_msg()
        return str(reply["content"]["subshell_id"])

    def press(self, comm_id: str, command: str, subshell_id: str) -> None:
        """Send the message of a button of the live view to a subshell, as JupyterLab does."""
        content = {"type": "command", "request": 1, "command": command}
        data = {"method": "custom", "content": content}
        message = self._kernel.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        message["header"]["subshell_id"] = subshell_id
        self._kernel.shell_channel.send(message)

    def kill(self) -> None:
        """Kill the kernel, as in a crash."""
        self.manager.shutdown_kernel(now=True)


class ForkingProvisioner(LocalProvisioner):
    """Starts kernels as forks of a process that has loaded their modules."""

    source: Callable[[], ForkSource] = staticmethod(torch_source)

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start the equivalent of `python -m ipykernel_launcher`."""
        assert cmd[1:3] == ["-m", "ipykernel_launcher"], cmd
        self.cwd = kwargs.get("cwd") or os.getcwd()
        source = self.source()
        # The kernel ends with its parent, whose pid ipykernel reads from a variable at its import.
        arguments = [*cmd[2:], f"--IPKernelApp.parent_handle={source.pid}"]
        fork = source.start(
            "ipykernel.kernelapp:launch_new_instance",
            argv=arguments,
            folder=Path(self.cwd),
            environment=kwargs["env"] | {"JPY_PARENT_PID": str(source.pid)},
        )
        self.process = fork  # type: ignore[assignment]  # it has what is used of a Popen
        self.pid = fork.pid
        self.pgid = self.pid
        return self.connection_info


def forking(manager: KernelManager) -> KernelManager:
    """Configure a manager to start its kernel as a fork.

    The ports are chosen when the kernel starts: the source loads for seconds, in which other
    programs could take them.
    """
    torch_source()
    manager.provisioner = ForkingProvisioner(
        kernel_id="", kernel_spec=manager.kernel_spec, parent=manager
    )
    return manager


def run_notebook(
    file: Path, folder: Path, change: Callable[[str], str] | None = None
) -> tuple[Any, str]:
    """Run all cells of a notebook in `folder`; return the notebook, and the shown text.

    Args:
        file: The notebook.
        folder: Where it runs.
        change: Returns what to run instead of a cell.
    """
    document = nbformat.read(file, as_version=4)
    if change is not None:
        sources = [cell.source for cell in document.cells]
        for cell in document.cells:
            cell.source = change(cell.source)
        assert [cell.source for cell in document.cells] != sources
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(document, timeout=None, resources=resources)
    forking(client.create_kernel_manager())
    client.execute()
    outputs = [o for cell in document.cells for o in cell.get("outputs", [])]
    return document, "\n".join(map(text_of, outputs))


def text_of(output: dict[str, Any]) -> str:
    """Return the text of an output: a stream, a result or a traceback."""
    shown = output.get("text") or output.get("data", {}).get("text/plain")
    return shown or "\n".join(output.get("traceback", []))


@contextmanager
def notebook(cwd: Path) -> Iterator[Notebook]:
    """Run a kernel in `cwd` during the block."""
    manager = forking(KernelManager(kernel_name="python3"))
    manager.start_kernel(cwd=str(cwd))
    kernel = manager.blocking_client()
    kernel.start_channels()
    try:
        kernel.wait_for_ready()
        yield Notebook(manager, kernel)
    finally:
        kernel.stop_channels()
        manager.shutdown_kernel(now=True)
