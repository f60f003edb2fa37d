"""Stand-ins for the browser's tabs: sockets that follow what an open tab follows.

They are in a process of their own, which takes in what comes and acknowledges it, as pages do.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.sharedctypes import Synchronized

from tornado.websocket import websocket_connect

USAGE_PERIOD_S = 0.1  # so that the tabs get each sample of the GPUs


@contextmanager
def open_tabs(
    root: str, token: str, number: int, experiment_id: int
) -> Iterator[Synchronized[int]]:
    """Open so many sockets; gives the number of news that they have got."""
    spawning = multiprocessing.get_context("spawn")
    news: Synchronized[int] = spawning.Value("i", 0)
    address = f"{root.replace('http', 'ws', 1)}det-jupyter/socket?token={token}"
    process = spawning.Process(
        target=_follow_all, args=(address, number, experiment_id, news), daemon=True
    )
    process.start()
    try:
        yield news
    finally:
        process.kill()
        process.join()


def _follow_all(address: str, number: int, experiment: int, news: Synchronized[int]) -> None:
    async def main() -> None:
        await asyncio.gather(*(_follow(address, experiment, news) for _ in range(number)))

    asyncio.run(main())


async def _follow(address: str, experiment_id: int, news: Synchronized[int]) -> None:
    socket = await websocket_connect(address, max_message_size=2**26)
    topics: list[tuple[str, dict[str, object]]] = [
        ("experiments", {}),
        ("cluster", {}),
        ("usage", {"period_s": USAGE_PERIOD_S}),
        ("trials", {}),
        ("experiment", {"experiment_id": experiment_id, "chosen": None}),
    ]
    for number, (topic, args) in enumerate(topics):
        frame = {"op": "follow", "id": number, "topic": topic, "args": args}
        await socket.write_message(json.dumps(frame))
    while (message := await socket.read_message()) is not None:
        head = json.loads(message if isinstance(message, str) else header(message))
        if head["op"] == "news":
            news.value += 1
            ack = {"op": "ack", "id": head["id"], "seq": head["seq"]}
            await socket.write_message(json.dumps(ack))
        elif head["op"] == "error":
            raise RuntimeError(f"a topic is over: {head['error']}")


def header(frame: bytes) -> bytes:
    """Return the JSON of a frame with columns."""
    (length,) = struct.unpack_from("<I", frame)
    return frame[4 : 4 + length]
