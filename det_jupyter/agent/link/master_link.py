"""The HTTP connection of an agent to the master: one request for each message."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TypeAlias
from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from det_jupyter.agent.link.checking import measure
from det_jupyter.agent.tunnel.listener import GangListener
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.clock_steps import since_boot
from det_jupyter.contract.host.tls_client import tls_problem, trusting
from det_jupyter.contract.messages import (
    AgentCommand,
    AgentCredentials,
    AgentReports,
    CheckConnections,
    ClockReading,
    MasterInfo,
    Offsets,
    RankKernel,
    RegisterAgent,
)
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import AgentDismissed, MasterUnreachable, problems_in

_COMMAND: TypeAdapter[AgentCommand] = TypeAdapter(AgentCommand)
_SILENCE_S = 15.0  # the master sends an empty line at least every 5 s
_ANSWER_S = 60.0  # storing a batch may have to wait for a busy disk
_CONNECT_S = 2.0
_OTHERS_S = 20.0  # how much longer other agents may measure their connections to this one
_MOST_CONNECTIONS, _MOST_IDLE = 100, 20  # httpx's own limits
_NUM_READINGS = 4  # readings of the master's clock; the first includes the TLS handshake


OnAnswer: TypeAlias = Callable[[float], None]


def agent_path(agent_id: str) -> str:
    """Return the path of an agent's routes."""
    return f"/api/v1/agents/{quote(agent_id, safe='')}"


class MasterLink:
    """A connection to one master. Its methods raise MasterUnreachable if a request fails.

    Args:
        http: The client.
        agent_id: The agent.
        session: Random id of the agent process.
        on_answer: Called when the master has answered a request, with the time at which the
            request began (`since_boot`). Lines of the commands do not count, because the master
            may send them while it receives nothing.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        agent_id: str,
        session: str,
        on_answer: OnAnswer | None = None,
    ) -> None:
        self._on_answer = on_answer
        self._http = http
        self._base = agent_path(agent_id)
        self._session = session

    async def register(self, registration: RegisterAgent) -> Offsets:
        """Register the agent; return how many bytes of each run's files the master has stored."""
        return await self._post("register", registration.model_dump_json())

    async def clock_ahead_s(self) -> float:
        """Measure how far this computer's clock is ahead of the master's.

        The error is at most half of the fastest of a few requests (Cristian's algorithm).
        """
        readings = []
        for _ in range(_NUM_READINGS):
            with _raising_unreachable("clock"):
                before = time.time()
                answer = await self._http.get(f"{self._base}/clock")
                after = time.time()
                _check_accepted(answer, "clock")
                at = ClockReading.model_validate_json(answer.content).at
            readings.append((after - before, (before + after) / 2 - at))
        return min(readings)[1]

    async def report(self, reports: AgentReports) -> Offsets:
        """Send a batch of reports; when this returns, the master has stored it.

        Returns:
            How many bytes of each file the master has stored.
        """
        return await self._post("reports", reports.model_dump_json())

    async def announce(self, kernel: RankKernel) -> str:
        """Send the master the kernel of a rank, to which it may then open tunnels.

        Returns:
            Why it is refused, for example because the run is over; "" if it is not.
        """
        with _raising_unreachable("kernels"):
            answer = await self._http.post(
                f"{self._base}/kernels",
                params={"session": self._session},
                content=kernel.model_dump_json(),
            )
        if answer.status_code == httpx.codes.OK:
            return ""
        return refusal_text(answer.status_code, answer.content)

    async def check(
        self, command: CheckConnections, *, agent: str, listener: GangListener
    ) -> None:
        """Measure the connections to the master and to other agents, and send the result."""
        path = f"{self._base}/checks/{quote(command.check_id, safe='')}"
        with listener.accepting(command.check_id, command.link):
            with suppress(httpx.HTTPError):  # then the master shows that there is no answer
                checked = await measure(self._http, self._base, command, agent)
                await self._http.post(path, content=checked.model_dump_json())
            await asyncio.sleep(_OTHERS_S)

    async def _post(self, verb: str, body: str) -> Offsets:
        began_at = since_boot()
        with _raising_unreachable(verb):
            answer = await self._http.post(f"{self._base}/{verb}", content=body)
            _check_accepted(answer, verb)
            if self._on_answer is not None:
                self._on_answer(began_at)
            return Offsets.model_validate_json(answer.content)

    async def commands(self) -> AsyncIterator[AgentCommand]:
        """Yield the master's commands as they arrive, until it ends the stream."""
        with _raising_unreachable("commands"):
            async with self._http.stream(
                "GET",
                f"{self._base}/commands",
                params={"session": self._session},
                timeout=httpx.Timeout(_SILENCE_S),
            ) as answer:
                if answer.is_error:
                    await answer.aread()
                _check_accepted(answer, "commands")
                async for line in _lines(answer.aiter_bytes()):
                    if line.strip():  # an empty line is a heartbeat
                        yield _COMMAND.validate_json(line)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Split a stream at newlines only; httpx's `aiter_lines` splits JSON strings at U+2028 too."""
    rest = b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            yield line


@contextmanager
def _raising_unreachable(verb: str) -> Iterator[None]:
    try:
        yield
    except httpx.HTTPError as error:
        raise MasterUnreachable(f"{verb}: {tls_problem(error) or error_text(error)}") from None
    except ValidationError as error:
        raise MasterUnreachable(
            f"{verb}: the agent cannot read the master's answer: {error}"
        ) from None


def _check_accepted(answer: httpx.Response, verb: str) -> None:
    """Raise MasterUnreachable, with the master's message, if it refuses a request.

    The error is an AgentDismissed if the master refuses the token.
    """
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        raise AgentDismissed(problems_in(answer.content))
    if answer.status_code != httpx.codes.OK:
        raise MasterUnreachable(f"{verb}: {refusal_text(answer.status_code, answer.content)}")


def refusal_text(status_code: int, content: bytes) -> str:
    """Return the message in the master's answer to a request that it refuses."""
    return f"the master answered {status_code}: {problems_in(content)}"


@asynccontextmanager
async def open_link(
    *,
    agent_id: str,
    session: str,
    credentials: AgentCredentials | None = None,
    on_answer: OnAnswer | None = None,
) -> AsyncIterator[MasterLink]:
    """Open a connection to the master; for the arguments see `MasterLink`.

    Args:
        agent_id: The agent.
        session: Random id of the agent process.
        credentials: If the master is on another computer. None: its address is in `master.json`.
        on_answer: Called when the master has answered a request.

    Raises:
        MasterUnreachable: There is no such file, or another version has written it.
    """
    async with open_http(credentials) as http:
        yield MasterLink(http, agent_id=agent_id, session=session, on_answer=on_answer)


def open_http(
    credentials: AgentCredentials | None, *, most_connections: int | None = _MOST_CONNECTIONS
) -> httpx.AsyncClient:
    """Return an HTTP client of the master; see `open_link`.

    Args:
        credentials: If the master is on another computer.
        most_connections: More requests at a time wait; None: any number.

    Raises:
        MasterUnreachable: There is no `master.json`, or another version has written it.
    """
    master = credentials or _read_master_file()
    return httpx.AsyncClient(
        base_url=master.url,
        headers={"Authorization": f"Bearer {master.token}", "Content-Type": "application/json"},
        timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
        limits=httpx.Limits(
            max_connections=most_connections, max_keepalive_connections=_MOST_IDLE
        ),
        trust_env=False,  # no proxy between two processes of one user
        verify=trusting(credentials.certificate) if credentials else False,
    )


def _read_master_file() -> MasterInfo:
    try:  # a master of another version may have written it, and would refuse this agent
        return MasterInfo.model_validate_json(paths.read_private(paths.master_file()))
    except FileNotFoundError:
        raise MasterUnreachable(f"there is no {paths.master_file()}") from None
    except ValidationError:
        raise MasterUnreachable(
            f"{paths.master_file()} was written by another version of det_jupyter"
        ) from None
