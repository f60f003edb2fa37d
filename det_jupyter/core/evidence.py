"""Evidence of what this process does, for the agent's watch: see contract/run/evidence_page.py.

    a thread that wakes once a second    the page's beats and counts; on request the stacks of all
                                         threads, into the file `stacks-<rank>`, and the flight
                                         recorder of torch, into the file `recorder-<rank>`
    one in each process that is forked   on request its stacks, into `stacks-<rank>.<pid>`
      by multiprocessing
    a hook of torch's process groups     the last collective that Python code has begun

Stacks are not requested by a signal, which would interrupt waits of C libraries. The threads
import nothing: a process that is forked during an import would wait for its lock for ever. [m] A
beat takes 0.15 ms, and the hook 4 µs for each collective that is begun from Python; DDP begins its
own in C++.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from multiprocessing.util import register_after_fork
from typing import Any

from det_jupyter.contract.host.own_threads import own_thread_ids, start_own
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.evidence_page import EvidencePage
from det_jupyter.core.ranks import num_begun

_BEAT_S = 1.0
# Methods of torch's ProcessGroup, and the names of their collectives.
_COLLECTIVES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "barrier": "barrier",
    "broadcast": "broadcast",
    "gather": "gather",
    "recv": "recv",
    "reduce": "reduce",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "scatter": "scatter",
    "send": "send",
}

_MOST_TEXTS = 1000  # texts of collectives that are kept; shapes may differ from batch to batch

_current: _Evidence | None = None


def give_evidence(folder: RunDir, rank: int) -> None:
    """Begin to write this process's evidence, if its run has a page; once in a process.

    Args:
        folder: The run's folder.
        rank: The rank that this process is.
    """
    global _current
    if _current is not None and _current.pid == os.getpid():
        return
    try:
        page = EvidencePage(folder.evidence)
    except (OSError, ValueError):  # a run of an earlier version, or its folder was removed
        return
    if rank < page.num_ranks:
        _current = _Evidence(page, rank, folder)
        start_own(threading.Thread(target=_current.beat, name="evidence"))


class _Evidence:
    """Writes the record of one rank."""

    def __init__(self, page: EvidencePage, rank: int, folder: RunDir) -> None:
        self.pid = os.getpid()
        self._page = page
        self._rank = rank
        self._folder = folder
        self._recorder = folder.recorder(rank)
        self._num_entered = 0
        self._texts: dict[Any, bytes] = {}
        self._is_hooked = False
        self._stacks = os.open(folder.stacks(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        page.set(rank, "pid", self.pid)
        register_after_fork(self, _Evidence.follow_in_child)
        self._hook()

    def beat(self) -> None:
        """Write the counts once a second; runs until the process ends."""
        page, rank, beats = self._page, self._rank, 0
        while True:
            beats += 1
            page.set(rank, "beats", beats)
            self._hook()
            if (number := _sequence_number()) is not None:
                page.set(rank, "sequence", number)
            page.set(rank, "exchanges", num_begun())
            page.set_own_threads(rank, own_thread_ids())
            if (wanted := page.get(rank, "wanted")) != page.get(rank, "answered"):
                self._write_recorder()
                self._write_stacks()
                page.set(rank, "answered", wanted)
            time.sleep(_BEAT_S)

    def follow_in_child(self) -> None:
        """Answer requests for stacks in a process that multiprocessing has forked."""
        start_own(threading.Thread(target=self._answer_in_child, name="evidence"))

    def _answer_in_child(self) -> None:
        answered = self._page.get(self._rank, "children")
        path = self._folder.stacks(self._rank, os.getpid())
        while True:
            time.sleep(_BEAT_S)
            if (wanted := self._page.get(self._rank, "children")) != answered:
                answered = wanted
                with suppress(OSError):
                    draft = path.with_name(f"{path.name}.new")
                    with draft.open("w") as file:
                        faulthandler.dump_traceback(file, all_threads=True)
                    draft.replace(path)

    def note_entered(self, name: str, arguments: tuple[Any, ...]) -> None:
        if os.getpid() != self.pid:
            return
        self._num_entered += 1
        shapes = _shapes_in(arguments)
        text = self._texts.get((name, shapes))
        if text is None:
            described = " ".join([_COLLECTIVES[name], *map(_shape_text, shapes)])
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            self._texts[name, shapes] = text = described.encode()
        self._page.set_collective(self._rank, text)
        self._page.set(self._rank, "entered", self._num_entered)

    def _write_stacks(self) -> None:
        with suppress(OSError):
            os.ftruncate(self._stacks, 0)
            faulthandler.dump_traceback(self._stacks, all_threads=True)

    def _write_recorder(self) -> None:
        """Write the flight recorder's JSON to its file, if this torch has one."""
        with suppress(Exception):  # torch's, of a private function; and a full disk
            module = sys.modules["torch"]._C._distributed_c10d
            text = module._dump_fr_trace_json(True, False)
            data = text if isinstance(text, bytes) else text.encode()
            draft = f"{self._recorder}.new"
            descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(descriptor, data)
            finally:
                os.close(descriptor)
            os.replace(draft, self._recorder)

    def _hook(self) -> None:
        """Wrap the methods of torch's process groups, once torch is loaded."""
        if self._is_hooked or "torch.distributed" not in sys.modules:
            return
        group = getattr(sys.modules.get("torch._C._distributed_c10d"), "ProcessGroup", None)
        if group is None:
            return
        self._is_hooked = True
        for name in _COLLECTIVES:
            method = getattr(group, name, None)
            if method is not None and not hasattr(method, "__wrapped__"):
                setattr(group, name, _noted(name, method))


def _noted(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def entered(group: Any, *arguments: Any, **options: Any) -> Any:
        if _current is not None:
            with suppress(Exception):  # the collective matters more: symbolic shapes have no hash
                _current.note_entered(name, arguments)
        return method(group, *arguments, **options)

    return entered


def _shapes_in(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return shape and type of the first tensor; nothing if there is none."""
    for value in arguments:
        while isinstance(value, (list, tuple)) and value:
            value = value[0]
        shape = getattr(value, "shape", None)
        if shape is not None:
            return ((tuple(shape), getattr(value, "dtype", None)),)
    return ()


def _shape_text(described: Any) -> str:
    shape, dtype = described
    return f"{list(shape)} {str(dtype).removeprefix('torch.')}"


def _sequence_number() -> int | None:
    """Return how many collectives the default group has begun; None if that is not known."""
    c10d = sys.modules.get("torch.distributed.distributed_c10d")
    group = getattr(getattr(c10d, "_world", None), "default_pg", None)
    if group is None:
        return None
    with suppress(Exception):  # torch's, of a private function
        return int(group._get_sequence_number_for_group())
    return None
