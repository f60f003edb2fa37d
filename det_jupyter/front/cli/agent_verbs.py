"""`det agent run`: an agent on another computer than the master's.

Its credentials are a line of JSON. Where a job starts the same command on several nodes, they are
in one file, a line for each node, and each command takes its own: that of its number in the job.
"""

from __future__ import annotations

import os
import ssl
import stat
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn
from urllib.parse import quote

import httpx
from pydantic import ValidationError

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.tls_client import tls_problem, trusting
from det_jupyter.contract.messages import AgentCredentials
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import DetError, UsageError, problems_in
from det_jupyter.front.verbs.grammar import Call

_ANSWER_S = 5.0
# Number of this node in its job, from 0: set by srun, and by Kubernetes in the pods of an Indexed
# Job.
_NODE_VARIABLES = ("SLURM_NODEID", "JOB_COMPLETION_INDEX")


def run(call: Call) -> NoReturn:
    """Become the agent: it logs to stderr, and ends at Ctrl-C or SIGTERM."""
    options = call.options
    credentials = own_credentials(options.credentials, options.node, os.environ)
    if problem := find_problem(credentials):
        sys.stderr.write(f"agent {credentials.agent}: {problem}\n")
    home = Path(options.home or _home_of(credentials.agent)).absolute()
    # A file without a name, because the token is a secret.
    with tempfile.TemporaryFile() as given:
        given.write(credentials.model_dump_json().encode())
        given.flush()
        given.seek(0)
        os.dup2(given.fileno(), 0)
    arguments = ["-m", "det_jupyter.agent", "--credentials", "--leave-after-s", "inf"]
    if options.port is not None:
        arguments += ["--port", str(options.port)]
    if options.address:
        arguments += ["--address", options.address]
    if options.grace is not None:
        arguments += ["--grace-s", str(options.grace)]
    environment = os.environ | {paths.HOME_VARIABLE: str(home)}
    os.execve(sys.executable, [sys.executable, *arguments], environment)


def find_problem(
    credentials: AgentCredentials, transport: httpx.BaseTransport | None = None
) -> str:
    """Send the master a request before fork servers are started, as that takes some seconds.

    Returns:
        Why the master does not answer now; the agent tries again. "" if it does.

    Raises:
        DetError: The master refuses the agent, or another master answers.
    """
    where = f"agent {credentials.agent}: {credentials.url}"
    try:
        with httpx.Client(
            verify=trusting(credentials.certificate),
            transport=transport,
            trust_env=False,
            timeout=_ANSWER_S,
        ) as http:
            answer = http.get(
                f"{credentials.url}/api/v1/agents/{quote(credentials.agent, safe='')}/clock",
                headers={"Authorization": f"Bearer {credentials.token}"},
            )
    except ssl.SSLError:
        raise DetError(f"{where}: the credentials contain no certificate; add it again") from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        if problem := tls_problem(error):
            raise DetError(f"{where}: {problem}") from None
        return (
            f"no master answers at {credentials.url} ({error_text(error)}); it is tried again. If "
            "one runs, a firewall may close that port, or its computer has another address here: "
            "det agent add NAME --address HOST"
        )
    if answer.status_code in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise DetError(f"{where}: {problems_in(answer.content)}")
    return ""


def own_credentials(source: str, node: int | None, environ: Mapping[str, str]) -> AgentCredentials:
    """Return the credentials of this agent.

    Args:
        source: A file; "-": stdin.
        node: Its number among the agents there, from 0. None: the number of this node in its job.

    Raises:
        UsageError: There are several agents, and the number of this one is unknown.
        DetError: There are no credentials, none for this node, or others can read the file.
    """
    where = "stdin" if source == "-" else source
    agents = _read(source, where)
    if node is None:
        numbers = [environ[name] for name in _NODE_VARIABLES if environ.get(name, "").isdecimal()]
        node = int(numbers[0]) if numbers else None
    if node is None and len(agents) > 1:
        raise UsageError(
            f"agent run: {where} has the credentials of {len(agents)} agents, "
            f"{agents[0].agent} to {agents[-1].agent}: start it with srun, or choose one by "
            f"--node N, 0 to {len(agents) - 1}"
        )
    if (node or 0) >= len(agents):
        raise DetError(
            f"{where} has no credentials for node {node} of this job, only for "
            f"{len(agents)}: det agent add NAME --nodes N, with all nodes of the job"
        )
    return agents[node or 0]


def _read(source: str, where: str) -> list[AgentCredentials]:
    """Return the credentials in a file or on stdin, at least one."""
    if source == "-" and sys.stdin.isatty():
        raise UsageError(
            "agent run: pipe in what `det agent add NAME` prints on the master's computer: "
            "det agent add NAME | ssh THIS-COMPUTER det agent run"
        )
    try:
        text = sys.stdin.read() if source == "-" else _read_private(Path(source).expanduser())
        lines = [line for line in text.splitlines() if line.strip()]
        agents = [AgentCredentials.model_validate_json(line) for line in lines]
    except OSError as error:
        raise DetError(f"{where} cannot be read: {error.strerror}") from None
    except ValidationError as error:
        if any(each["type"] == "string_pattern_mismatch" for each in error.errors()):
            raise DetError(
                f"{where}: expected an address that begins with https://, as over http:// the "
                "agent's token can be read on the way: add the agent again (det agent add NAME)"
            ) from None
        agents = []
    except UnicodeDecodeError:
        agents = []
    if not agents:
        raise DetError(f"{where}: expected the JSON that `det agent add NAME` prints")
    return agents


def _read_private(path: Path) -> str:
    with path.open(encoding="utf-8") as file:
        status = os.fstat(file.fileno())
        if stat.S_ISREG(status.st_mode) and status.st_mode & 0o077:
            raise DetError(
                f"{path}: other users can read it, and with it offer slots in the name of these "
                f"agents: chmod 600 {path}; if others may have read it, add the agents again"
            )
        return file.read()


def _home_of(agent: str) -> Path:
    """Return a folder on a disk of this computer: a home folder may be on a shared drive."""
    return Path(tempfile.gettempdir(), f"det-agent-{os.geteuid()}", agent)
