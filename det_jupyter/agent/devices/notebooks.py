"""Which notebook a kernel belongs to, as this user's running Jupyter servers say.

A server's file in Jupyter's runtime folder tells its address and token; its sessions tell which
kernel has which notebook. Whatever goes wrong on the way (no such file, a server that does not
answer, one of another user) only means that the notebook is not known.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil

logger = logging.getLogger(__name__)

_ANSWER_S = 0.5
_ASK_AGAIN_S = 30.0  # notebooks are renamed, and kernels restarted under others
_NAME_VARIABLE = (
    "JPY_SESSION_NAME"  # what a server gives to a kernel that it starts for a notebook
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JupyterServer:
    """A Jupyter server of this user."""

    url: str
    token: str
    root_dir: str


class Notebooks:
    """The notebooks of kernels, asked for now and then.

    Args:
        runtime_dir: Where the servers' files are; None: where Jupyter has them.
    """

    def __init__(self, runtime_dir: Path | None = None) -> None:
        self._runtime_dir = runtime_dir or _jupyter_runtime_dir()
        self._notebooks: dict[str, str] = {}
        self._asked_for: set[str] = set()  # the kernels that we knew when we asked
        self._asked_at = -math.inf

    def notebook_of(self, kernel_id: str, pid: int, now: float) -> str | None:
        """Return the path of the notebook whose kernel this is; None: not known."""
        is_new = kernel_id not in self._asked_for
        if now - self._asked_at >= _ASK_AGAIN_S or (is_new and now > self._asked_at):
            self._notebooks |= self._ask()
            self._asked_for.clear()
            self._asked_at = now
        self._asked_for.add(kernel_id)
        return self._notebooks.get(kernel_id) or _named_at_start(pid)

    def _ask(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for server in running_servers(self._runtime_dir):
            try:
                found |= _notebooks_of(server)
            except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
                logger.debug("%s does not tell its sessions: %s", server.url, error)
        return found


def _jupyter_runtime_dir() -> Path:
    from jupyter_core.paths import jupyter_runtime_dir

    return Path(jupyter_runtime_dir())


def running_servers(runtime_dir: Path) -> Iterator[JupyterServer]:
    """Yield this user's Jupyter servers whose processes live."""
    for path in sorted(runtime_dir.glob("jpserver-*.json")):
        with suppress(OSError, ValueError, KeyError, TypeError):
            info = json.loads(path.read_text(encoding="utf-8"))
            if psutil.pid_exists(info["pid"]):
                yield JupyterServer(
                    url=info["url"], token=info.get("token", ""), root_dir=info.get("root_dir", "")
                )


def _notebooks_of(server: JupyterServer) -> dict[str, str]:
    answer = httpx.get(
        f"{server.url.rstrip('/')}/api/sessions",
        headers={"Authorization": f"token {server.token}"},
        timeout=_ANSWER_S,
        trust_env=False,  # no proxy between two processes of one computer
    )
    answer.raise_for_status()
    sessions: list[Mapping[str, Any]] = answer.json()
    return {
        session["kernel"]["id"]: str(Path(server.root_dir) / session["path"])
        for session in sessions
        if session.get("type") == "notebook"
    }


def _named_at_start(pid: int) -> str | None:
    with suppress(psutil.Error):  # another user's, or gone
        name = psutil.Process(pid).environ().get(_NAME_VARIABLE, "")
        return name if name.endswith(".ipynb") else None
    return None
