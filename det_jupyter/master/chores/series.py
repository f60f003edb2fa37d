"""Packs measured numbers, and rolls up the old ones, a few times a minute.

Numbers are read and computed in another thread; what is left for the loop is small transactions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from det_jupyter.master.service.series import Key
from det_jupyter.master.service.series_chunks import Chunk, Packed
from det_jupyter.master.service.service import Service

logger = logging.getLogger(__name__)

_PERIOD_S = 10.0


async def keep_series(service: Service) -> None:
    """Pack what has become enough, until cancelled."""
    while True:
        await asyncio.sleep(_PERIOD_S)
        try:
            if service.store.series_chunks.has_rows():
                await pack_series(service, time.time())
        except Exception:  # a full disk, say: the next look comes
            logger.exception("measured numbers could not be packed")


async def pack_series(service: Service, now: float) -> None:
    """Pack what is enough, or has been silent for long."""
    path, chunks = service.store.path, service.store.series_chunks
    for key in await asyncio.to_thread(_find_due, path, now):
        packed = await asyncio.to_thread(_pack, path, key)
        chunks.put(packed)
        for chunk in await asyncio.to_thread(_roll_up, path, [c.key for c in packed.chunks]):
            chunks.put_rolled(chunk)
            await asyncio.sleep(0)  # others are served in between


# numpy is imported in that thread, once there is something to pack: nothing waits for it.


def _find_due(path: Path, now: float) -> list[Key]:
    from det_jupyter.master.service.series_packing import find_due

    return find_due(path, now)


def _pack(path: Path, key: Key) -> Packed:
    from det_jupyter.master.service.series_packing import pack

    return pack(path, key)


def _roll_up(path: Path, keys: list[Key]) -> list[Chunk]:
    from det_jupyter.master.service.series_packing import roll_up

    return roll_up(path, keys)
