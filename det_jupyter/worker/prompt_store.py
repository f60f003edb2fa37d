"""PromptStore: a torch `Store` in a file, over which the ranks of a gang exchange addresses.

A `TCPStore` answers every user of the computer; only its owner can open this file.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # see torch's stubs

_KEPT: list[Store] = []  # torch keeps only the C++ half of a store alive
_PAUSES_S = (0.0001, 0.005)  # first and longest: [m] a look at the file takes 0.03 ms


class PromptStore(Store):
    """A `FileStore` that notices what another rank writes within 0.1 ms.

    torch's own looks every 10 ms, and two groups are made before the first step. Only for gloo:
    NCCL uses its store in threads that must not wait for the interpreter.

    Args:
        path: The file; the first rank makes it.
        world_size: Number of ranks.
        timeout: How long to wait for another rank's value.
    """

    def __init__(self, path: str, world_size: int, timeout: timedelta) -> None:
        super().__init__()
        self._file = FileStore(path, world_size)
        self._limit = timeout
        _KEPT.append(self)

    def set(self, key: str, value: str) -> None:
        """Write a value."""
        self._file.set(key, value)

    def get(self, key: str) -> bytes:
        """Wait for a value and return it."""
        self.wait([key])
        return self._file.get(key)

    def add(self, key: str, value: int) -> int:
        """Add to a counter and return it."""
        return self._file.add(key, value)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Replace a value if it equals `expected_value`; return the value afterwards."""
        return self._file.compare_set(key, expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        """Remove a key and return whether it existed."""
        return self._file.delete_key(key)

    def num_keys(self) -> int:
        """Return the number of keys."""
        return self._file.num_keys()

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys were written."""
        return self._file.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys were written."""
        limit = timeout or self._limit
        deadline = time.monotonic() + limit.total_seconds()
        pause_s, longest_s = _PAUSES_S
        while not self._file.check(list(keys)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"timed out waiting {limit} for the other ranks to come")
            time.sleep(pause_s)
            pause_s = min(pause_s * 1.2, longest_s)
