"""uvicorn's connections, bounded until a request has arrived (host/pending_connections.py).

uvicorn's `timeout_keep_alive` ends connections that rest between two requests; it has no limit for
those on which a request never comes whole. So a connection *waits* until the head of a request is
there:

    made ──► waits ──► head complete: guard.py looks at the token, and hangs up without it
              ▲                          │
              └── next request begins ◄──┘ answered
"""

from __future__ import annotations

import asyncio

from det_jupyter.contract.host.pending_connections import HEAD_BYTES, Waiting


def bounded(
    parser: type[asyncio.Protocol], waiting: Waiting[asyncio.Transport]
) -> type[asyncio.Protocol]:
    """Return uvicorn's protocol of a connection (for h11 or httptools), with limits."""

    class Bounded(parser):  # type: ignore[misc, valid-type]  # known only when uvicorn is loaded
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:
            waiting.add(transport)
            super().connection_made(transport)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:  # it is answered
                waiting.remove(self.transport)
                self._head_bytes = 0
                return
            waiting.add(self.transport)
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                waiting.drop(self.transport)

        def connection_lost(self, exc: Exception | None) -> None:
            waiting.remove(self.transport)
            super().connection_lost(exc)

    return Bounded
