"""Connects to the other agents of a gang, through TLS and with the gang's secret."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel.connections import (
    ACCEPTED,
    LIMIT_BYTES,
    Connection,
    FirstLine,
    Want,
    server_name,
)
from det_jupyter.contract.host.tls_client import trusting
from det_jupyter.contract.messages import Cut, GangLink
from det_jupyter.contract.values.pauses import growing_pauses
from det_jupyter.contract.values.text import error_text
from det_jupyter.errors import LaunchError

CUT_S = 25.0  # an agent that cannot be reached for this time is cut off
_BEGUN_S = 60.0  # within this time the other agent has to begin to start its part
_ATTEMPT_S = 5.0  # time limit for one connection, its handshake and the answer
_PAUSES_S = (0.005, 0.5)  # first and longest pause between two attempts


class Unreached(LaunchError):
    """The computer of another agent of the gang cannot be reached.

    Args:
        cut: Which agent cannot be reached, from which one, and why.
    """

    def __init__(self, cut: Cut) -> None:
        super().__init__(cut.sentence)
        self.cut = cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialer:
    """Connects the agents of this process to other agents of a gang.

    Args:
        gang: Its allocation id.
        link: The addresses, certificate and secret of the gang.
        here: The agents of this process.
        cut_s: For how long an agent that does not answer is tried.
    """

    gang: str
    link: GangLink
    here: Sequence[str]
    cut_s: float = field(default_factory=lambda: CUT_S)

    @property
    def others(self) -> list[int]:
        """The group ranks of the agents of other processes that accept connections."""
        return [
            group
            for group, agent in enumerate(self.link.agents)
            if self.link.ports[group] and agent not in self.here
        ]

    def where(self, group: int) -> str:
        """Return the place of an agent, in words."""
        return f"{self.link.addresses[group]} port {self.link.ports[group]}"

    def cut_from(self, group: int, why: str) -> Cut:
        """Return the Cut that states that an agent cannot be reached, for this reason."""
        return Cut(from_agent=self.here[0], to_agent=self.link.agents[group], why=why)

    async def connect(self, group: int, want: Want) -> Connection:
        """Return a connection to an agent that it has accepted.

        Raises:
            Unreached: It cannot be reached.
            LaunchError: Another program answers at its address.
            StartFailed: It does not run the gang; another attempt may succeed.
        """
        context = trusting(self.link.certificate)
        request = FirstLine(
            gang=self.gang, want=want, secret=self.link.secret, agents=list(self.here)
        )
        line = request.model_dump_json().encode() + b"\n"
        began = reached_at = time.monotonic()
        pauses = growing_pauses(*_PAUSES_S)
        while True:
            problem: Exception | None = None
            try:
                async with asyncio.timeout(_ATTEMPT_S):
                    connection = await self._open(group, context, line)
                if connection is not None:
                    return connection
                reached_at = time.monotonic()
            except (OSError, TimeoutError) as error:
                if _has_no_certificate_yet(error):
                    reached_at = time.monotonic()
                else:
                    problem = error
            now = time.monotonic()
            if now - reached_at > self.cut_s and problem is not None:
                raise self._not_reached(group, problem)
            if now - began > _BEGUN_S:
                raise StartFailed(
                    f"agent {self.link.agents[group]}, at {self.where(group)}, has not begun to "
                    f"start its part of the gang within {_BEGUN_S:g} s"
                )
            await asyncio.sleep(next(pauses))

    async def _open(self, group: int, context: ssl.SSLContext, line: bytes) -> Connection | None:
        """Return a connection; None if the agent accepts none for the gang (yet)."""
        reader, writer = await asyncio.open_connection(
            self.link.addresses[group],
            self.link.ports[group],
            ssl=context,
            server_hostname=server_name(self.link.certificate),
            limit=LIMIT_BYTES,
        )
        try:
            _keep_alive(writer)
            writer.write(line)
            if await reader.readline() == ACCEPTED:
                return reader, writer
        except BaseException:  # a cancellation too
            writer.close()
            raise
        writer.close()
        return None

    def _not_reached(self, group: int, problem: Exception) -> LaunchError:
        if isinstance(problem, ssl.SSLCertVerificationError):
            return LaunchError(
                f"{socket.gethostname()}: what answers at {self.where(group)} has another "
                f"certificate than agent {self.link.agents[group]} should have: if other agents "
                "reach it elsewhere, start it with `--port N` and `--address HOST`"
            )
        why = f"{connect_problem(problem)} at {self.where(group)} within {self.cut_s:g} s"
        return Unreached(self.cut_from(group, why))


def _has_no_certificate_yet(error: OSError) -> bool:
    """Return whether the other agent listens, but has not got its first certificate yet."""
    is_other = isinstance(error, ssl.SSLCertVerificationError)
    return isinstance(error, (ConnectionResetError, ssl.SSLError)) and not is_other


def connect_problem(error: BaseException) -> str:
    """Return why a connection to another computer failed, in a few words."""
    if isinstance(error, TimeoutError):
        return "no answer"
    number = getattr(error, "errno", None)
    return os.strerror(number) if number is not None and number > 0 else error_text(error)


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    """Turn on TCP keepalive: it detects a lost computer, and routers keep the connection open."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
