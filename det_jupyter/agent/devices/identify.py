"""Describes a process: its command, its user, and the notebook if it is a Jupyter kernel.

The notebooks come from this user's Jupyter servers: a file in Jupyter's runtime folder contains
the address and token of each server, and its list of sessions contains the notebook of each
kernel. If anything fails (no such file, no answer, another user's server), the notebook is
unknown. jupyter_server has `list_running_servers`; why it is not used:
docs/decisions/0022-libraries-weighed.md.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

import httpx
import psutil

from det_jupyter.contract.messages import DeviceProcess

logger = logging.getLogger(__name__)

UNKNOWN = "unknown process"
_COMMAND_LENGTH = 80
_KERNEL_FILE = re.compile(r"(?:^|[/=])kernel-(?P<id>[A-Za-z0-9-]+)\.json$")
_SECRET = re.compile(r"token|secret|passw|credential|api.?key", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")
_ANSWER_S = 0.5
_REFRESH_S = 30.0  # notebooks are renamed, and kernels are used for other notebooks
_NAME_VARIABLE = "JPY_SESSION_NAME"  # set by the server in the kernel of a notebook

# Returns the notebook of a kernel, given its id and pid.
NotebookOf = Callable[[str, int], str | None]


def identify(pid: int, *, memory_bytes: int, notebook_of: NotebookOf) -> DeviceProcess | None:
    """Describe the process with this pid; None if no such process is visible here."""
    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError):
        return None
    words: list[str] = []
    with suppress(psutil.Error):  # another user's process, whose arguments /proc hides
        words = process.cmdline()
    name = user = ""
    with suppress(psutil.Error, KeyError):  # a user id without a name
        name = process.name()
        user = process.username()
    kernel_id = kernel_of(words)
    return DeviceProcess(
        pid=pid,
        command=command_line(words) or name or UNKNOWN,
        user=user,
        memory_bytes=memory_bytes,
        kernel_id=kernel_id,
        notebook=notebook_of(kernel_id, pid) if kernel_id else None,
    )


def kernel_of(words: Sequence[str]) -> str | None:
    """Return the id of the Jupyter kernel with this command line; None if it is no kernel.

    >>> kernel_of(["python", "-m", "ipykernel_launcher", "-f", "/run/kernel-3f2a-1.json"])
    '3f2a-1'
    """
    matches = map(_KERNEL_FILE.search, words)
    return next((match["id"] for match in matches if match), None)


def command_line(words: Sequence[str]) -> str:
    r"""Return a command line as text, shortened and without secrets.

    >>> command_line(["/opt/venv/bin/python3", "train.py", "--api-key=1234", "--lr", "0.1"])
    'python3 train.py --api-key=… --lr 0.1'
    >>> command_line(["python", "-c", "import torch\nwhile True: pass"])
    'python -c …'
    """
    if not words:
        return ""
    kept = [PurePath(words[0]).name]
    for before, word in pairwise(words):
        kept.append(_without_secrets(word, after=before))
    line = " ".join(" ".join(kept).split())
    return line if len(line) <= _COMMAND_LENGTH else line[: _COMMAND_LENGTH - 1] + "…"


def _without_secrets(word: str, *, after: str) -> str:
    if after == "-c":
        return "…"
    if after.startswith("-") and "=" not in after and _SECRET.search(after):
        return "…"
    name, equals, _ = word.partition("=")
    if equals and _SECRET.search(name):
        return f"{name}=…"
    return _PASSWORD_IN_URL.sub("…@", word)


class Notebooks:
    """The notebooks of kernels, read from the Jupyter servers and again every 30 s.

    Args:
        runtime_dir: Folder of the servers' files; None means Jupyter's own.
    """

    def __init__(self, runtime_dir: Path | None = None) -> None:
        if runtime_dir is None:
            from jupyter_core.paths import jupyter_runtime_dir

            runtime_dir = Path(jupyter_runtime_dir())
        self._runtime_dir = runtime_dir
        self._notebooks: dict[str, str] = {}
        self._looked_up: set[str] = set()  # kernels looked up since the servers were last read
        self._read_at = -math.inf

    def notebook_of(self, kernel_id: str, pid: int, now: float) -> str | None:
        """Return the path of the kernel's notebook; None if unknown."""
        is_new = kernel_id not in self._looked_up
        if now - self._read_at >= _REFRESH_S or (is_new and now > self._read_at):
            self._notebooks |= self._read_servers()
            self._looked_up.clear()
            self._read_at = now
        self._looked_up.add(kernel_id)
        return self._notebooks.get(kernel_id) or _name_at_start(pid)

    def _read_servers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for path in sorted(self._runtime_dir.glob("jpserver-*.json")):
            try:
                server = json.loads(path.read_text(encoding="utf-8"))
                if psutil.pid_exists(server["pid"]):
                    found |= _notebooks_of(server)
            except (
                OSError,
                httpx.HTTPError,
                ValueError,
                KeyError,
                TypeError,
                AttributeError,
            ) as error:  # the last three: another server than Jupyter answers
                logger.debug("the server of %s did not list its sessions: %s", path, error)
        return found


def _notebooks_of(server: Mapping[str, Any]) -> dict[str, str]:
    """Request the sessions of a Jupyter server, given the content of its file.

    Returns:
        The path of the notebook of each kernel, by the kernel's id.
    """
    answer = httpx.get(
        f"{server['url'].rstrip('/')}/api/sessions",
        headers={"Authorization": f"token {server.get('token', '')}"},
        timeout=_ANSWER_S,
        trust_env=False,  # no proxy between two processes of one computer
    )
    answer.raise_for_status()
    sessions: list[Mapping[str, Any]] = answer.json()
    return {
        session["kernel"]["id"]: str(Path(server.get("root_dir", "")) / session["path"])
        for session in sessions
        if session.get("type") == "notebook"
    }


def _name_at_start(pid: int) -> str | None:
    with suppress(psutil.Error):  # the process is another user's, or has ended
        name = psutil.Process(pid).environ().get(_NAME_VARIABLE, "")
        return name if name.endswith(".ipynb") else None
    return None
