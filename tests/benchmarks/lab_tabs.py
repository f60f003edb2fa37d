"""Stand-ins for the browser's tabs: sockets that follow the documents of an open tab.

They are in a separate process, which receives frames and acknowledges them, as pages do.
"""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tornado.websocket import websocket_connect

USAGE_PERIOD_S = 0.1  # so that the tabs get each sample of the GPUs


class Tabs:
    """A process that opens the sockets of several browser tabs.

    Args:
        address: The address of the socket, including the token.
        number: The number of sockets.
        experiment_id: The experiment that all of them show.
    """

    def __init__(self, address: str, number: int, experiment_id: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, address, str(number), str(experiment_id)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def count(self) -> int:
        """Return how many patches the tabs have received."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def end(self) -> None:
        """Close the sockets."""
        self._process.kill()
        self._process.communicate()


@contextmanager
def open_tabs(root: str, token: str, number: int, experiment_id: int) -> Iterator[Tabs]:
    """Open this number of tabs."""
    address = f"{root.replace('http', 'ws', 1)}det-jupyter/socket?token={token}"
    tabs = Tabs(address, number, experiment_id)
    try:
        yield tabs
    finally:
        tabs.end()


def main() -> None:
    """Follow the documents, and answer each line of stdin with the number of patches."""
    address, number, experiment_id = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    patches = [0]

    def answer() -> None:
        for _ in sys.stdin:
            print(patches[0], flush=True)

    async def follow_all() -> None:
        await asyncio.gather(*(_follow(address, experiment_id, patches) for _ in range(number)))

    threading.Thread(target=answer, daemon=True).start()
    asyncio.run(follow_all())


async def _follow(address: str, experiment_id: int, patches: list[int]) -> None:
    socket = await websocket_connect(address, max_message_size=2**26)
    documents: list[tuple[str, dict[str, object]]] = [
        ("experiments", {}),
        ("cluster", {}),
        ("usage", {"period_s": USAGE_PERIOD_S}),
        ("trials", {}),
        ("experiment", {"experiment_id": experiment_id, "chosen": None}),
    ]
    for number, (name, args) in enumerate(documents):
        frame = {"op": "follow", "id": number, "document": name, "args": args}
        await socket.write_message(json.dumps(frame))
    while (message := await socket.read_message()) is not None:
        head = json.loads(message if isinstance(message, str) else header(message))
        if head["op"] in ("document", "patch"):
            patches[0] += 1
            ack = {"op": "ack", "id": head["id"], "version": head["version"]}
            await socket.write_message(json.dumps(ack))
        elif head["op"] == "error":
            raise RuntimeError(f"a document is over: {head['error']}")


def header(frame: bytes) -> bytes:
    """Return the JSON part of a frame that has columns."""
    (length,) = struct.unpack_from("<I", frame)
    return frame[4 : 4 + length]


if __name__ == "__main__":
    main()
