"""Checks that the computers of a gang reach each other, before its ranks start and later.

NCCL and gloo connect every two computers at ports of their choice, and wait for minutes or for
ever if a firewall drops the packets. So each agent connects to a port that another one has just
opened, before ranks start. Afterwards it connects to the other agents every few seconds. A port
that refuses a connection shows that its computer is reached: an agent that has ended is noticed by
the master.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import suppress

from det_jupyter.agent.starting.rank_processes import StartFailed
from det_jupyter.agent.tunnel.connections import Connection
from det_jupyter.agent.tunnel.dialing import CUT_S, Dialer, Unreached, connect_problem
from det_jupyter.contract.host.tasks import run_all
from det_jupyter.contract.messages import Cut, PeerMeasured

_PORT_S = 5.0  # time limit for one connection to an open port
_PORT_TRIES = 2
_WATCH_S = 5.0  # pause between two connections to an agent
_RETRY_S = 1.0  # pause after one that failed
_PINGS = 3
CHUNK_BYTES = 1 << 18
_MEASURE_S = 1.0  # how long bytes are sent
_MEASURED_S = 10.0  # how long to wait until they have arrived
_ANY_PORT = "NCCL and gloo need all ports between the computers of a trial"


async def check_ports(dialer: Dialer) -> None:
    """Check that ports which the other agents open for this can be reached.

    Raises:
        Unreached: A port cannot be reached.
        LaunchError, StartFailed: See `Dialer.connect`.
    """
    await run_all(_check_port(dialer, group) for group in dialer.others)


async def _check_port(dialer: Dialer, group: int) -> None:
    reader, writer = await dialer.connect(group, "port")
    address = dialer.link.addresses[group]
    try:
        try:
            port = int(await reader.readline())
        except (OSError, ValueError):
            raise StartFailed(
                f"agent {dialer.link.agents[group]}, at {dialer.where(group)}, has ended its part"
            ) from None
        problem: BaseException | None = None
        for _ in range(_PORT_TRIES):
            problem = await _connect(address, port)
            if problem is None:
                return
        assert problem is not None
        why = f"{connect_problem(problem)} at {address} port {port}, which was open; {_ANY_PORT}"
        raise Unreached(dialer.cut_from(group, why))
    finally:
        writer.close()


async def offer_port(connection: Connection) -> None:
    """Answer a request for an open port, which is closed with the connection."""
    reader, writer = connection
    is_dual = socket.has_dualstack_ipv6()  # one port for both families of addresses
    family = socket.AF_INET6 if is_dual else socket.AF_INET
    # Closed here too, since a task may be cancelled before the server has it.
    with socket.create_server(("", 0), family=family, dualstack_ipv6=is_dual) as listener:
        async with await asyncio.start_server(lambda _, other: other.close(), sock=listener):
            writer.write(b"%d\n" % listener.getsockname()[1])
            await writer.drain()
            await reader.read()


async def watch(dialer: Dialer) -> Cut:
    """Return the first other agent whose computer cannot be reached for `CUT_S` seconds."""
    tasks = [asyncio.create_task(_watch_one(dialer, group)) for group in dialer.others]
    if not tasks:
        await asyncio.Event().wait()
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in tasks:
            task.cancel()


async def _watch_one(dialer: Dialer, group: int) -> Cut:
    reached_at = time.monotonic()
    problem: BaseException | None = None
    while True:
        await asyncio.sleep(_RETRY_S if problem else _WATCH_S)
        problem = await _connect(dialer.link.addresses[group], dialer.link.ports[group])
        now = time.monotonic()
        if problem is None or isinstance(problem, ConnectionRefusedError):
            reached_at, problem = now, None
        elif now - reached_at > CUT_S:
            why = f"{connect_problem(problem)} at {dialer.where(group)} for {CUT_S:g} s"
            return dialer.cut_from(group, why)


async def _connect(address: str, port: int) -> BaseException | None:
    """Connect, and close the connection; return why that failed."""
    try:
        async with asyncio.timeout(_PORT_S):
            _, writer = await asyncio.open_connection(address, port)
    except (OSError, TimeoutError) as error:
        return error
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()
    return None


async def measure(dialer: Dialer, group: int, num_bytes: int) -> PeerMeasured:
    """Measure the connection to another agent, through the tunnel.

    Args:
        num_bytes: Largest number of bytes to send; 0: the speed is not measured.

    Raises:
        LaunchError, StartFailed: See `Dialer.connect` and `check_ports`.
        OSError: The connection was lost.
    """
    await _check_port(dialer, group)
    reader, writer = await dialer.connect(group, "measure")
    try:
        times = []
        for _ in range(_PINGS):
            began = time.perf_counter()
            writer.write(b"\0")
            if not await reader.read(1):
                raise ConnectionResetError("the connection was closed")
            times.append(time.perf_counter() - began)
        speed = await _speed(reader, writer, num_bytes // CHUNK_BYTES) if num_bytes else None
        return PeerMeasured(latency_s=min(times), bytes_per_s=speed)
    finally:
        writer.close()


async def _speed(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most_chunks: int
) -> float:
    """Send chunks for a moment; return the bytes per second, counted by the answers."""
    num_sent = num_arrived = 0
    began = ended_at = time.perf_counter()
    with suppress(TimeoutError):
        async with asyncio.timeout(_MEASURED_S):
            while num_sent < most_chunks and time.perf_counter() - began < _MEASURE_S:
                writer.write(bytes(CHUNK_BYTES))
                await writer.drain()
                num_sent += 1
            while num_arrived < num_sent and (answers := await reader.read(num_sent)):
                num_arrived, ended_at = num_arrived + len(answers), time.perf_counter()
    return num_arrived * CHUNK_BYTES / (ended_at - began) if num_arrived else 0.0


async def answer_measure(connection: Connection) -> None:
    """Answer the bytes of `measure`, until the connection is closed."""
    reader, writer = connection
    sizes = [1] * _PINGS
    with suppress(asyncio.IncompleteReadError):
        while True:
            await reader.readexactly(sizes.pop() if sizes else CHUNK_BYTES)
            writer.write(b"\0")
            await writer.drain()
