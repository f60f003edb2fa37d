"""A network that breaks: a proxy whose connections are late, and end in the middle."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_READ_BYTES = 1 << 16
_LATE, _LATE_S = 0.1, 0.02  # the share of what is late, and by how much
# In the header of a request or an answer, in the content of a small one, in that of a part.
_ANYWHERE = (400, 4_000, 4 << 20, 40 << 20)


@dataclass
class BrokenNetwork:
    """The way to a server.

    Attributes:
        server_url: Address of the server.
        url: Address of the proxy.
        breaks: Whether connections break that begin now.
        most_bytes: A connection ends after less than one of these numbers, in each direction.
        num_broken: How many connections were broken in the middle.
    """

    server_url: str
    random: random.Random
    url: str = ""
    most_bytes: Sequence[int] = _ANYWHERE
    breaks: bool = True
    num_broken: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def serve(self, started: threading.Event, ended: asyncio.Event) -> None:
        """Pass connections on, until the end."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        started.set()
        await ended.wait()
        server.close()
        await asyncio.sleep(0.1)  # connections that were just accepted come to `_connect`
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0.1)  # what was aborted is closed

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        server = urlsplit(self.server_url)
        with ExitStack() as at_end:
            at_end.callback(writer.transport.abort)
            other_reader, other_writer = await asyncio.open_connection(
                server.hostname, server.port
            )
            at_end.callback(other_writer.transport.abort)
            ways = [(reader, other_writer), (other_reader, writer)]
            passing = [asyncio.create_task(self._pass_on(*way)) for way in ways]
            await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
            for each in passing:
                each.cancel()
            await asyncio.gather(*passing, return_exceptions=True)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        left = self.random.randrange(self.random.choice(self.most_bytes)) if self.breaks else None
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                if self.random.random() < _LATE:
                    await asyncio.sleep(_LATE_S)
                writer.write(data[:left])
                await writer.drain()
                if left is not None and (left := left - len(data)) < 0:
                    self.num_broken += 1
                    return


@contextmanager
def broken_network(server_url: str, *, seed: int) -> Iterator[BrokenNetwork]:
    """Serve a proxy until the end of the block."""
    network = BrokenNetwork(server_url, random.Random(seed))
    started, loop, ended = threading.Event(), asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(
        target=lambda: loop.run_until_complete(network.serve(started, ended)), daemon=True
    )
    thread.start()
    started.wait()
    try:
        yield network
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
