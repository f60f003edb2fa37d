"""Starting and ending the processes that load batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import get_worker_info


class InitWorker:
    """Runs in each worker before it loads: shows the user's own dataset in torch's worker info."""

    def __init__(self, dataset: Any, worker_init_fn: Callable[[int], None] | None) -> None:
        self._dataset = dataset
        self._worker_init_fn = worker_init_fn

    def __call__(self, worker: int) -> None:
        # torch put our wrapper there; users set attributes of their dataset through it.
        object.__setattr__(get_worker_info(), "dataset", self._dataset)
        if self._worker_init_fn is not None:
            self._worker_init_fn(worker)


def shut_down(iterator: Any) -> None:
    """End the workers of a torch loader's iterator now, whoever still refers to it.

    torch does it when the last reference is gone, but the traceback of an error holds some.
    """
    end = getattr(iterator, "_shutdown_workers", None)
    if end is not None:
        end()
