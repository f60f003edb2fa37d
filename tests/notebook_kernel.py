"""A real notebook kernel for tests: run cells, see what a front end would see.

Kernels are forked from a process that has torch loaded (forks.py). Those of the journeys
through JupyterLab, and that of the quickstart, are started as a user's are.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from nbclient import NotebookClient

from tests.forks import torch_source


@dataclass(slots=True)
class Outputs:
    """What a cell put out."""

    text: str = ""
    bundles: list[dict[str, Any]] = field(default_factory=list)
    error: str | None = None  # the traceback as it is shown

    @property
    def all_text(self) -> str:
        """Everything readable: streams and text/plain."""
        return self.text + "\n".join(b.get("text/plain", "") for b in self.bundles)


class Notebook:
    """A kernel that runs cells one after the other."""

    def __init__(self, manager: KernelManager, kernel: BlockingKernelClient) -> None:
        self.manager = manager
        self._kernel = kernel

    def run(self, code: str) -> Outputs:
        """Run a cell and return its outputs, errors included."""
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
        """Run a cell that has to succeed."""
        outputs = self.run(code)
        assert outputs.error is None, outputs.error
        return outputs

    def complete(self, code: str) -> list[str]:
        """Return what Tab offers at the end of `code`."""
        reply = self._kernel.complete(code, len(code), reply=True)
        return list(reply["content"]["matches"])

    def start(self, code: str) -> None:
        """Start a cell and do not wait for it."""
        self._kernel.execute(code)

    def new_subshell(self) -> str:
        """Return the id of a new subshell: a thread that is free while a cell runs."""
        self._kernel.control_channel.send(self._kernel.session.msg("create_subshell_request", {}))
        reply = self._kernel.get_control_msg()
        return str(reply["content"]["subshell_id"])

    def press(self, comm_id: str, command: str, subshell_id: str) -> None:
        """Send what a button of the live view sends, to a subshell as JupyterLab does."""
        content = {"type": "command", "command": command}
        data = {"method": "custom", "content": content}
        message = self._kernel.session.msg("comm_msg", {"comm_id": comm_id, "data": data})
        message["header"]["subshell_id"] = subshell_id
        self._kernel.shell_channel.send(message)

    def kill(self) -> None:
        """End the kernel as a crash would."""
        self.manager.shutdown_kernel(now=True)


class ForkingProvisioner(LocalProvisioner):
    """Starts kernels as forks of the process that has loaded what they need."""

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        """Start what `python -m ipykernel_launcher` starts."""
        assert cmd[1:3] == ["-m", "ipykernel_launcher"], cmd
        self.cwd = kwargs.get("cwd") or os.getcwd()
        source = torch_source()
        # It ends with its parent, whose pid ipykernel reads from a variable when it is imported.
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
    """Have a manager start its kernel as a fork.

    What it is forked from loads for seconds, and others could take the kernel's ports meanwhile:
    they are chosen when it starts.
    """
    torch_source()
    manager.provisioner = ForkingProvisioner(
        kernel_id="", kernel_spec=manager.kernel_spec, parent=manager
    )
    return manager


def run_notebook(file: Path, folder: Path) -> tuple[Any, str]:
    """Run all cells of a notebook in `folder`; return it, and what its cells show as text."""
    document = nbformat.read(file, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    client = NotebookClient(document, timeout=None, resources=resources)
    forking(client.create_kernel_manager())
    client.execute()
    outputs = [o for cell in document.cells for o in cell.get("outputs", [])]
    return document, "\n".join(map(text_of, outputs))


def text_of(output: dict[str, Any]) -> str:
    """Return what an output shows as text: a stream, a result or a traceback."""
    shown = output.get("text") or output.get("data", {}).get("text/plain")
    return shown or "\n".join(output.get("traceback", []))


@contextmanager
def notebook(cwd: Path) -> Iterator[Notebook]:
    """Start a kernel in `cwd`; it is gone at the end."""
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
