"""`det agent run`: an agent on another computer than the master's."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from pydantic import ValidationError

from det_jupyter.contract.host import paths
from det_jupyter.contract.messages import AgentCredentials
from det_jupyter.errors import DetError, UsageError
from det_jupyter.front.verbs.grammar import Call


def run(call: Call) -> NoReturn:
    """Become the agent: it logs to stderr, and ends at Ctrl-C or SIGTERM."""
    options = call.options
    credentials = _read(options.credentials)
    home = Path(options.home or _home_of(credentials.agent)).absolute()
    # A file without a name, because the token is a secret.
    with tempfile.TemporaryFile() as given:
        given.write(credentials.model_dump_json().encode())
        given.flush()
        given.seek(0)
        os.dup2(given.fileno(), 0)
    arguments = ["-m", "det_jupyter.agent", "--credentials", "--leave-after-s", "inf"]
    environment = os.environ | {paths.HOME_VARIABLE: str(home)}
    os.execve(sys.executable, [sys.executable, *arguments], environment)


def _read(source: str) -> AgentCredentials:
    if source == "-" and sys.stdin.isatty():
        raise UsageError(
            "agent run: pipe in what `det agent add NAME` prints on the master's computer: "
            "det agent add NAME | ssh THIS-COMPUTER det agent run"
        )
    try:
        text = sys.stdin.read() if source == "-" else Path(source).read_text(encoding="utf-8")
        return AgentCredentials.model_validate_json(text)
    except OSError as error:
        raise DetError(f"{source} cannot be read: {error.strerror}") from None
    except ValidationError:
        where = "stdin" if source == "-" else source
        raise DetError(f"{where}: expected the JSON that `det agent add NAME` prints") from None


def _home_of(agent: str) -> Path:
    """Return a folder on a disk of this computer: a home folder may be on a shared drive."""
    return Path(tempfile.gettempdir(), f"det-agent-{os.geteuid()}", agent)
