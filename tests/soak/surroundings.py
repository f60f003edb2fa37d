"""The surroundings of a master: a Jupyter Server with a page, waiting clients, other agents."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError

import psutil
from websocket import WebSocketException, create_connection

from det_jupyter.agent.runs.lease import FENCE_S
from det_jupyter.client import Client
from det_jupyter.contract.host.ports import free_port
from tests.nodes import Node
from tests.processes import OTHER_EXTENSIONS
from tests.reader_pages import Page

_STARTED_S = 300.0
_ENDED_S = 120.0


class Server:
    """A Jupyter Server with the extension; after it was killed, it is started again when needed.

    Args:
        folder: The folder for its files.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._token = secrets.token_hex(16)
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def keep(self) -> None:
        """Start the server unless it runs, and wait until it answers.

        Raises:
            AssertionError: The server does not answer.
        """
        url = f"http://127.0.0.1:{self._port}/api?token={self._token}"
        deadline = time.monotonic() + _STARTED_S
        why = ""
        while time.monotonic() < deadline:
            self.start()
            try:
                with urllib.request.urlopen(url, timeout=2):
                    return
            except HTTPError as error:
                with error:
                    why = str(error)
            except OSError as error:
                why = str(error)
            time.sleep(0.1)
        assert self._process is not None
        process = psutil.Process(self._process.pid)
        raise AssertionError(
            f"the Jupyter server does not answer: {why}; process {process.pid} is "
            f"{process.status()}, with {process.cpu_times()}; see {self._folder}"
        )

    def start(self) -> None:
        """Start the server unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        extensions = {"det_jupyter": True, **dict.fromkeys(OTHER_EXTENSIONS, False)}
        command = [
            sys.executable, "-m", "jupyter_server", "--no-browser", "--allow-root",
            f"--ServerApp.root_dir={self._folder}", f"--ServerApp.port={self._port}",
            "--ServerApp.port_retries=0", f"--IdentityProvider.token={self._token}",
            f"--ServerApp.jpserver_extensions={extensions}",
        ]  # fmt: skip
        settings = {
            "JUPYTER_CONFIG_DIR": str(self._folder / "config"),
            "JUPYTER_RUNTIME_DIR": str(self._folder / "runtime"),
        }
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env=os.environ | settings
            )

    def stop(self) -> None:
        """End the server."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_ENDED_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @contextmanager
    def page(self) -> Iterator[Page]:
        """Open a page that follows all experiments under number 1."""
        with closing(socket.create_connection(("127.0.0.1", self._port), 20)) as connection:
            page = Page(
                create_connection(
                    f"ws://127.0.0.1:{self._port}/det-jupyter/socket",
                    header=[f"Authorization: token {self._token}"],
                    suppress_origin=True,
                    socket=connection,  # it is closed in any case
                    timeout=20,
                )
            )
            page.follow(1, "experiments")
            yield page

    def rows(self) -> dict[int, dict[str, Any]]:
        """Return the rows of all experiments that a newly opened page gets.

        Raises:
            OSError, WebSocketException, AssertionError: The page gets no rows.
        """
        with self.page() as page:
            return {row["id"]: row for row in page.last(1)["rows"].values()}


class Elsewhere:
    """Agents as on other computers, each with a home of its own; ended agents are started again.

    Args:
        client: Allows them to connect.
        folder: The folder for their homes.
        slots: The number of slots of each agent, by name.
    """

    def __init__(self, client: Client, folder: Path, slots: Mapping[str, int]) -> None:
        self._nodes = [
            Node(client.add_agent(name, "127.0.0.1"), folder / name, FENCE_S, slots=num)
            for name, num in slots.items()
        ]

    def start(self) -> None:
        """Start the agents that do not run."""
        for node in self._nodes:
            if not node.processes or node.processes[-1].poll() is not None:
                node.start()

    def stop(self) -> None:
        """End the agents."""
        for node in self._nodes:
            if node.processes and node.processes[-1].poll() is None:
                node.end()


class Onlooker:
    """A thread with a page, which is opened again when server or reader were killed."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            with (
                suppress(OSError, WebSocketException, AssertionError, ValueError, TypeError),
                self._server.page() as page,
            ):
                while not self._stopped.is_set():
                    page.read(0.5)
            self._stopped.wait(0.3)

    def stop(self) -> None:
        """Close the page."""
        self._stopped.set()
        self._thread.join(30)


class Waiting:
    """Processes of `det experiment wait`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._processes: list[tuple[int, subprocess.Popen[bytes], Path]] = []

    def start(self, experiment_id: int) -> None:
        """Start a process that waits for an experiment."""
        log = self._folder / f"wait-{experiment_id}.log"
        with log.open("wb") as file:
            process = subprocess.Popen(
                [sys.executable, "-m", "det_jupyter", "experiment", "wait", str(experiment_id)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        self._processes.append((experiment_id, process, log))

    def problems(self) -> list[str]:
        """Return the problems of processes that were not killed, when all experiments are over."""
        told = []
        deadline = time.monotonic() + _ENDED_S
        for number, process, log in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                told.append(f"`det experiment wait {number}` waits although it is over")
            text = log.read_text()
            if "Traceback" in text:
                told.append(f"`det experiment wait {number}` has a traceback: {text[-1000:]}")
        self._processes = []
        return told
