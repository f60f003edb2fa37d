"""Where the ranks of a gang tell each other their addresses: a file in the user's own folder.

A `TCPStore` answers every user of the computer; this file the kernel opens for its owner only.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta

from torch.distributed import FileStore, Store  # type: ignore[attr-defined]  # see torch's stubs

_KEPT: list[Store] = []  # torch holds on to the C++ half of a store only
_PAUSES_S = (0.0001, 0.005)  # first and longest: [m] a look at the file takes 0.03 ms


class PromptStore(Store):
    """A `FileStore` that sees within a moment what another rank has written.

    torch's own looks every 10 ms, and two groups have to be made before the first step. Only for
    gloo: NCCL asks its store from threads that must not wait for the interpreter.

    Args:
        path: The file; made by the first rank that comes.
        world_size: How many ranks there are.
        timeout: How long to wait for what another rank is to write.
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
        """Return a value once it was written."""
        self.wait([key])
        return self._file.get(key)

    def add(self, key: str, value: int) -> int:
        """Add to a counter and return it."""
        return self._file.add(key, value)

    def compare_set(self, key: str, expected_value: str, desired_value: str) -> bytes:
        """Replace a value that is what was expected; return what it is then."""
        return self._file.compare_set(key, expected_value, desired_value)

    def delete_key(self, key: str) -> bool:
        """Remove a key and return whether it was there."""
        return self._file.delete_key(key)

    def num_keys(self) -> int:
        """Return how many keys there are."""
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
