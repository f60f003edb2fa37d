"""A real Jupyter Server with our extension, and its kernels as a browser uses them."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import websocket

from tests.processes import OTHER_EXTENSIONS, wait_until


class Server:
    """A Jupyter Server with our extension."""

    def __init__(
        self, http: httpx.Client, process: subprocess.Popen[bytes], runtime: Path, log: Path
    ) -> None:
        self.http, self.runtime, self.log = http, runtime, log
        self._process = process

    def stop(self) -> None:
        """End it, if it runs."""
        self._process.terminate()
        self._process.wait()

    def attach(self, trial_id: int, rank: int) -> Kernel:
        """Start a kernel by the name of a rank."""
        started = self.http.post("api/kernels", json={"name": f"det-trial-{trial_id}-rank-{rank}"})
        assert started.status_code == 201, started.text
        return Kernel(self.http, started.json()["id"])


class Kernel:
    """An attachment, as a browser has one."""

    def __init__(self, http: httpx.Client, kernel_id: str) -> None:
        self.http, self.id = http, kernel_id
        self.path = f"api/kernels/{kernel_id}"
        self._session = uuid.uuid4().hex

    def connect(self) -> websocket.WebSocket:
        """Open its WebSocket."""
        url = str(self.http.base_url).replace("http", "ws", 1) + f"{self.path}/channels"
        header = [f"Authorization: {self.http.headers['Authorization']}"]
        return websocket.create_connection(
            url, header=header, origin=str(self.http.base_url).rstrip("/")
        )

    def run(self, code: str) -> str:
        """Return what the code printed, or its result, or the name of its error."""
        with closing(self.connect()) as line:
            return self.result(line, self.ask(line, code))

    def ask(self, line: websocket.WebSocket, code: str) -> str:
        """Send code, and return the number of the message."""
        number = uuid.uuid4().hex
        header = {"msg_id": number, "msg_type": "execute_request", "session": self._session}
        header |= {"username": "test", "version": "5.3", "date": "2026-01-01T00:00:00Z"}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = {"header": header, "parent_header": {}, "metadata": {}, "content": content}
        line.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return number

    def wait_for_output(self, line: websocket.WebSocket, number: str) -> None:
        """Wait until the code of a message prints."""
        while True:
            message = json.loads(line.recv())
            is_ours = message["parent_header"].get("msg_id") == number
            if is_ours and message["msg_type"] == "stream":
                return

    def result(self, line: websocket.WebSocket, number: str) -> str:
        """Wait for the answer to a message."""
        said = ""
        while True:
            message = json.loads(line.recv())
            content, kind = message["content"], message["msg_type"]
            if message["parent_header"].get("msg_id") != number:
                continue
            said += content.get("text", "") if kind == "stream" else ""
            said += content["data"]["text/plain"] if kind == "execute_result" else ""
            said += content["ename"] if kind == "error" else ""
            if kind == "status" and content["execution_state"] == "idle":
                return said


@contextmanager
def jupyter_server(folder: Path) -> Iterator[Server]:
    """Run a real Jupyter Server with a runtime folder of its own."""
    token, runtime, log = secrets.token_hex(16), folder / "runtime", folder / "server.log"
    places = {"JUPYTER_RUNTIME_DIR": str(runtime), "JUPYTER_CONFIG_DIR": str(folder / "config")}
    options = ["--no-browser", "--port=0", f"--ServerApp.root_dir={folder}", "--allow-root"]
    options += [f"--IdentityProvider.token={token}"]
    extensions = {"det_jupyter": True, **dict.fromkeys(OTHER_EXTENSIONS, False)}
    options += [f"--ServerApp.jpserver_extensions={extensions}"]
    options += ["--KernelManager.shutdown_wait_time=120"]  # it waits half of it for a kernel
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_server", *options],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, **places},
        )  # fmt: skip
    header = {"Authorization": f"token {token}"}
    with httpx.Client(headers=header, timeout=None) as http:
        server = Server(http, process, runtime, log)
        try:
            note = runtime / f"jpserver-{process.pid}.json"
            http.base_url = wait_until(lambda: _url(note), "the server is there")
            wait_until(lambda: _answers(http), "the server answers")
            yield server
        finally:
            server.stop()


def _url(note: Path) -> str | None:
    with suppress(FileNotFoundError, ValueError):
        return str(json.loads(note.read_text())["url"])
    return None


def _answers(http: httpx.Client) -> bool:
    with suppress(httpx.HTTPError):
        return http.get("api/sessions").is_success
    return False
