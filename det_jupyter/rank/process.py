"""Prepares the process of a rank, before any code of the user runs. Does not use torch.

`prepare_process` is the first call in a process that the fork server forked (zygote.py), and in a
rank that was started afresh (__main__.py). It sets:

    process group              its own, so that its data-loader workers are killed with it
    death with the parent      at once on Linux; elsewhere by `watch_lifeline`
    umask                      as in the process that submitted the trial
    environment                the user's variables, torchrun's, and only this gang's devices
    stdin, stdout, stderr      /dev/null and the run folder's output-<rank>

SIGTERM announces the end of a job (Slurm, Kubernetes, spot machines): the rank requests that all
ranks save and leave, as for a preemption. If its code does not read such requests, it ends.

`prepare_python` sets up signals, crash stacks, temporary files and `display`, in any order. The
working directory is only changed in `RankProgram`, so that a missing one is an error of the user.
"""

from __future__ import annotations

import builtins
import faulthandler
import json
import multiprocessing
import os
import select
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from functools import partial
from io import BufferedReader, BufferedWriter, FileIO, TextIOWrapper
from pathlib import Path
from types import FrameType, MappingProxyType
from typing import NoReturn

from typing_extensions import Buffer

from det_jupyter.contract.host.blobs import BlobStore
from det_jupyter.contract.host.own_threads import start_own
from det_jupyter.contract.host.pdeathsig import kill_with_parent
from det_jupyter.contract.host.run_processes import kill_run_processes
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import GangPlan, RankPlace, RankSpec
from det_jupyter.contract.run.control_page import ControlPage
from det_jupyter.contract.run.room import RoomGate
from det_jupyter.contract.values.variables import variable_lines, variables_in
from det_jupyter.rank.fork_safety import warn_of_users_threads
from det_jupyter.rank.variables import set_variables

_OF_TORCHRUN = (
    "rank", "world_size", "local_rank", "local_world_size", "group_rank", "group_world_size",
    "master_addr", "master_port",
)  # fmt: skip
_STREAMS = ("stdin", "stdout", "stderr")


def prepare_process(spec: RankSpec, parent_pid: int) -> None:
    """Make this process the rank of `spec`.

    Args:
        parent_pid: The fork server or agent that started this process, which is killed with it.
    """
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    if spec.plan.entrypoint.per == "slot":  # a launcher first ends the ranks that it has started
        kill_with_parent(parent_pid)
    _redirect_streams(RunDir(Path(spec.run_dir)), spec.place.rank)
    if spec.plan.capsule.umask is not None:  # None: of an older version
        os.umask(spec.plan.capsule.umask)
    set_variables(spec, environment(spec.plan, spec.place, _captured(spec)))


def environment(
    plan: GangPlan, place: RankPlace, captured: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """Return the environment variables of the rank in addition to its parent's.

    CUDA_VISIBLE_DEVICES contains the scheduler's devices; the configuration cannot change it.

    Args:
        captured: Values, from the user's kernel, of variables that the configuration only names.
    """
    own = variables_in(variable_lines(plan.config, plan.slots[place.rank].kind), captured)
    torchrun = {name.upper(): str(getattr(place, name)) for name in _OF_TORCHRUN}
    return {**own, **torchrun, **_device_variables(plan, place)}


def _captured(spec: RankSpec) -> dict[str, str]:
    digest = spec.plan.capsule.environment
    if spec.environment is not None:
        return spec.environment
    if digest is None:
        return {}
    kept = json.loads(BlobStore.of(spec.data_dir).read(digest))
    values: dict[str, str] = kept["values"]
    return values


def _device_variables(plan: GangPlan, place: RankPlace) -> dict[str, str]:
    """Return the variables with the devices of the gang on this agent, by local rank."""
    slots = plan.slots_beside(place.rank)
    # NVML numbers devices by PCI bus, CUDA by speed unless this variable is set.
    return {
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": ",".join(
            slot.uuid or str(slot.index) for slot in slots if slot.kind == "cuda"
        ),
    }


class _Output(FileIO):
    """A descriptor of the rank's output; while the disk is full, writes wait."""

    def __init__(self, descriptor: int, gate: RoomGate) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._gate = gate

    def write(self, data: Buffer) -> int:
        while True:
            try:
                return super().write(data)
            except OSError as error:
                self._gate.await_room_after(error)


def _redirect_streams(folder: RunDir, rank: int) -> None:
    """Point the three descriptors at the run folder, and make new text streams for them.

    The parent's streams may be closed, block-buffered, or hold unwritten text.
    """
    nowhere = os.open(os.devnull, os.O_RDONLY)
    target = os.open(folder.output(rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, descriptor in ((nowhere, 0), (target, 1), (target, 2)):
        os.dup2(source, descriptor)
    for descriptor in {nowhere, target} - {0, 1, 2}:
        os.close(descriptor)
    gate = RoomGate(folder.path, folder.control)
    buffers: tuple[BufferedReader | BufferedWriter, ...] = (
        BufferedReader(FileIO(0, closefd=False)),
        BufferedWriter(_Output(1, gate)),
        BufferedWriter(_Output(2, gate)),
    )
    for name, buffer in zip(_STREAMS, buffers, strict=True):
        stream = TextIOWrapper(
            buffer, encoding="utf-8", errors="backslashreplace", line_buffering=True
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def prepare_python(spec: RankSpec) -> None:
    """Configure crashes, SIGINT, temporary files and `display` in the interpreter of a rank."""
    faulthandler.enable()
    warn_of_users_threads()
    signal.signal(signal.SIGINT, _stay)
    signal.signal(signal.SIGTERM, partial(_leave, RunDir(Path(spec.run_dir)), os.getpid()))
    _keep_temporary_files(Path(spec.socket_dir, f"pymp-{spec.place.rank}"))
    builtins.display = _display  # type: ignore[attr-defined]  # available without import, as in the notebook


def _stay(number: int, frame: FrameType | None) -> None:
    """Ignore SIGINT, which comes from a client that interrupts the rank's kernel."""
    sys.stderr.write("interrupts do not stop training; pause or kill the experiment instead\n")


def _leave(folder: RunDir, rank_pid: int, number: int, frame: FrameType | None) -> None:
    """Request that all ranks save and leave; end at once if their code reads no requests."""
    if os.getpid() == rank_pid:  # not a process that the user's code has forked
        with suppress(OSError, ValueError), closing(ControlPage(folder.control)) as page:
            if page.checked_at() is not None:
                page.raise_signal("preempt")
                with suppress(OSError):  # the disk may be full
                    os.write(2, b"SIGTERM: the trial saves its state, leaves, and goes on later\n")
                return
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _display(*objects: object, **options: object) -> None:
    for shown in objects:
        print(repr(shown))


def _keep_temporary_files(folder: Path) -> None:
    """Set multiprocessing's folder for sockets to one that is removed with the run.

    The folder that it would create for each process stays if a data-loader worker is killed.
    Children inherit the setting, which has no public name.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    settings = getattr(multiprocessing.current_process(), "_config", None)
    if isinstance(settings, dict):
        settings["tempdir"] = str(folder)


def watch_lifeline(spec: RankSpec, *, after_s: float, then: Callable[[], None]) -> None:
    """Start a thread that kills this rank when its agent ends, however busy the main thread is.

    The agent holds the write end of a pipe whose read end all ranks inherit. The pipe closes when
    the agent exits or is killed. PDEATHSIG only works for direct children, and only on Linux.
    Processes that a program has started are killed too, also in other process groups.

    Args:
        spec: The rank.
        after_s: When to call `then`.
        then: Called once in the thread.
    """
    start_own(threading.Thread(target=_watch, args=(spec, after_s, then), name="lifeline"))


def _watch(spec: RankSpec, after_s: float, then: Callable[[], None]) -> None:
    poll, lifeline_fd = select.poll(), spec.place.lifeline_fd
    if lifeline_fd is not None:
        poll.register(lifeline_fd, select.POLLIN | select.POLLHUP)
    if poll.poll(after_s * 1000):
        _end(spec)
    then()
    if lifeline_fd is not None:
        poll.poll()
        _end(spec)


def _end(spec: RankSpec) -> NoReturn:
    try:
        if spec.plan.is_program:
            kill_run_processes(RunDir(Path(spec.run_dir)))
    finally:
        if os.getpgrp() == os.getpid():
            os.killpg(0, signal.SIGKILL)  # the data-loader workers too
        os._exit(1)
