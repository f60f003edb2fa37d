"""Who a process is: what it runs, whose it is, and of which notebook it is the kernel."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import PurePath

import psutil

from det_jupyter.wire import DeviceProcess

UNKNOWN = "unknown process"
_COMMAND_LENGTH = 80
_KERNEL_FILE = re.compile(r"(?:^|[/=])kernel-(?P<id>[A-Za-z0-9-]+)\.json$")
_SECRET = re.compile(r"token|secret|passw|credential|api.?key", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"(?<=://)[^/@\s]+@")

NotebookOf = Callable[[str, int], str | None]  # given a kernel's id and pid


def identify(pid: int, *, memory_bytes: int, notebook_of: NotebookOf) -> DeviceProcess | None:
    """Return who has this pid on this computer; None: nobody that we can see."""
    try:
        process = psutil.Process(pid)
    except (psutil.Error, ValueError):
        return None
    words: list[str] = []
    with suppress(psutil.Error):  # another user's, where those are hidden
        words = process.cmdline()
    name = user = ""
    with suppress(psutil.Error, KeyError):  # a user without a name
        name = process.name()
        user = process.username()
    kernel_id = kernel_of(words)
    return DeviceProcess(
        pid=pid,
        command=shortened(words) or name or UNKNOWN,
        user=user,
        memory_bytes=memory_bytes,
        kernel_id=kernel_id,
        notebook=notebook_of(kernel_id, pid) if kernel_id else None,
    )


def kernel_of(words: Sequence[str]) -> str | None:
    """Return the id of the Jupyter kernel that has this command line; None: it is none.

    >>> kernel_of(["python", "-m", "ipykernel_launcher", "-f", "/run/kernel-3f2a-1.json"])
    '3f2a-1'
    """
    matches = map(_KERNEL_FILE.search, words)
    return next((match["id"] for match in matches if match), None)


def shortened(words: Sequence[str]) -> str:
    r"""Return a command line in a few words, without its secrets.

    >>> shortened(["/opt/venv/bin/python3", "train.py", "--api-key=1234", "--lr", "0.1"])
    'python3 train.py --api-key=… --lr 0.1'
    >>> shortened(["python", "-c", "import torch\nwhile True: pass"])
    'python -c …'
    """
    if not words:
        return ""
    shown = [PurePath(words[0]).name]
    for before, word in pairwise(words):
        shown.append(_shown_word(word, after=before))
    line = " ".join(" ".join(shown).split())
    return line if len(line) <= _COMMAND_LENGTH else line[: _COMMAND_LENGTH - 1] + "…"


def _shown_word(word: str, *, after: str) -> str:
    if after == "-c":
        return "…"
    if after.startswith("-") and "=" not in after and _SECRET.search(after):
        return "…"
    name, equals, _ = word.partition("=")
    if equals and _SECRET.search(name):
        return f"{name}=…"
    return _PASSWORD_IN_URL.sub("…@", word)
