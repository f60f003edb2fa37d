"""Torch's loader workers: errors for a worker that has ended, or cannot send its batch."""

from __future__ import annotations

import faulthandler
import os
import signal
import traceback
from collections.abc import Callable, Iterator
from multiprocessing import connection
from multiprocessing.queues import Queue
from signal import Signals
from typing import Any

from torch._utils import ExceptionWrapper
from torch.utils.data import get_worker_info

from det_jupyter.contract.values.text import error_text, signal_name, size
from det_jupyter.core.peer_errors import WorkerLost, is_lost_worker

_SHARED = "/dev/shm"  # through which workers hand their batches over
_ENDS_S = 1.0  # a worker that has closed its connections ends within this time


def init_worker(
    dataset: Any,
    worker_init_fn: Callable[[int], None] | None,
    worker: int,
    *,
    is_of_rank: bool = False,
) -> None:
    """Put the user's own dataset into torch's worker info, and call the user's function.

    Args:
        dataset: The user's dataset.
        worker_init_fn: The user's function.
        worker: Index of this worker.
        is_of_rank: Whether a rank has it, which kills its workers when it exits: it stays at
            SIGTERM. Elsewhere multiprocessing ends workers by that, and waits for them.
    """
    report_unsent_batches()
    if faulthandler.is_enabled():  # torch has replaced its handlers, and prints no stack
        faulthandler.disable()
        faulthandler.enable()
    if is_of_rank:  # Slurm sends it to all processes of a job, and the rank is still to save
        signal.signal(signal.SIGTERM, lambda number, frame: None)
    # Torch has put our wrapper there; users set attributes of their dataset through it.
    object.__setattr__(get_worker_info(), "dataset", dataset)
    if worker_init_fn is not None:
        worker_init_fn(worker)


def report_unsent_batches() -> None:
    """Make loader workers report a batch that they cannot send, such as one with a lock.

    multiprocessing pickles batches in a thread of the worker, and only prints the error, so that
    the rank would wait for the batch for ever. Call this before the workers are forked, or in each
    worker.
    """
    # The original is a static method; a method also gets the queue.
    Queue._on_queue_feeder_error = _report_unsent  # type: ignore[attr-defined]  # no public name


def _report_unsent(queue: Queue[Any], error: Exception, sent: Any) -> None:
    """In a loader worker, send the error in place of the batch that could not be sent."""
    worker = get_worker_info()
    if worker is None or not (isinstance(sent, tuple) and len(sent) == 2):
        traceback.print_exc()
        return
    position, batch = sent
    if isinstance(batch, ExceptionWrapper):  # its type cannot be pickled: defined in a cell
        batch.exc_type = RuntimeError
        queue.put((position, batch))
        return
    problem = TypeError(
        f"a loader worker cannot send its batch to the rank: {error_text(error)}; what the "
        "dataset and the collate function return has to be picklable"
    )
    where = f"in DataLoader worker process {worker.id}"
    raised = (TypeError, problem, error.__traceback__)
    queue.put((position, ExceptionWrapper(raised, where=where)))


def batches_of(iterator: Any, rank: int) -> Iterator[Any]:
    """Yield the batches of a torch loader's iterator.

    Raises:
        WorkerLost: A worker was killed, or has exited.
    """
    try:
        yield from iterator
    except Exception as error:  # the user's data set may raise anything
        if is_lost_worker(error) and (lost := _lost_worker(iterator, rank)):
            raise lost from error
        raise


def _lost_worker(iterator: Any, rank: int) -> WorkerLost | None:
    """Return the error of the worker that has ended first; None if none has."""
    workers = list(getattr(iterator, "_workers", ()))
    connection.wait([worker.sentinel for worker in workers], _ENDS_S)
    for index, worker in enumerate(workers):
        if worker.exitcode is not None:
            who = f"loader worker {index} of rank {rank} (pid {worker.pid})"
            return WorkerLost(f"{who} {_describe_end(worker.exitcode)}", worker.pid)
    return None


def _describe_end(exit_code: int) -> str:
    """Return how a worker has ended.

    >>> _describe_end(3), _describe_end(-11)
    ('exited with code 3 (sys.exit or os._exit)', 'was killed by SIGSEGV')
    """
    if exit_code >= 0:
        return f"exited with code {exit_code} (sys.exit or os._exit)"
    said = f"was killed by {signal_name(-exit_code)}"
    return f"{said}, {_full_shared_memory()}" if exit_code == -Signals.SIGBUS else said


def _full_shared_memory() -> str:
    """Return the usual cause of a bus error in a worker, and what to do."""
    try:
        disk = os.statvfs(_SHARED)
        room = f"{_SHARED} has {size(disk.f_blocks * disk.f_frsize)}"
        room += f", of which {size(disk.f_bavail * disk.f_frsize)} are free now"
    except OSError:
        room = f"there is no {_SHARED}"
    return (
        f"as when {_SHARED} is full, through which workers hand their batches over; {room}: give "
        "the container more (`docker run --shm-size=8g`), or use smaller batches, fewer workers "
        "or a lower prefetch_factor"
    )
