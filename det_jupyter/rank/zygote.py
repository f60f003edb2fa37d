"""The fork server: a process with torch loaded, from which ranks are forked in milliseconds.

    preload      import what a rank needs up to its first step     -> ready, or failed and exit
    serve        ForkGang: all ranks or none                       -> forked, or refused: why
                 SIGCHLD: a rank has ended                         -> exited
                 the agent's socket is closed                      -> kill all ranks and exit

Rules:
 1. It has one thread and never initialises CUDA. Both are checked before each gang; otherwise it
    refuses to fork (fork_safety.py). A module that checks whether CUDA is available breaks forks
    too if torch calls the driver for that; with an environment variable, torch calls NVML instead.
 2. It imports no code of the user, so that every rank starts from the same state.
 3. When a rank ends, its process group is killed before the rank is reaped, because until then no
    other process can get the pid.

Prior art: Android's zygote, multiprocessing's forkserver. Unlike the latter it forks whole gangs,
freezes the garbage collector so that ranks share the pages, and ends its ranks with the agent.
[m, 2 cores] DistributedDataParallel imports `torch._dynamo` at its first construction, which
costs 1 s of the first step in each rank if it is not preloaded.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import logging
import os
import select
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import NoReturn

from det_jupyter._version import __version__
from det_jupyter.contract.messages import (
    PROTOCOL,
    ForkGang,
    ForkRefused,
    GangForked,
    RankExited,
    RankSpec,
    ZygoteFailed,
    ZygoteReady,
    ZygoteReport,
)
from det_jupyter.contract.values.text import error_text
from det_jupyter.rank.fork_safety import (
    torch_cuda_version,
    why_cuda_unusable,
    why_platform_unsafe,
    why_unsafe,
)
from det_jupyter.rank.process import prepare_process

logger = logging.getLogger(__name__)

RankTarget = Callable[[RankSpec], NoReturn]

NEEDED = ("torch", "torch.distributed")
HELPFUL = (
    "torch._dynamo",  # 1 s of the first DistributedDataParallel, see above
    "torch.profiler._cupti_monitor",  # the first optimizer imports it
    "torch.utils.data",
    "torch.utils.serialization.config",  # the first tensor that is read from a capsule imports it
    "cloudpickle",
    "tqdm.auto",  # before ipykernel, see rank/kernel.py
    "ipykernel.kernelapp",  # the rank's kernel
    "ipykernel.ipkernel",
    "det_jupyter.pytorch",
)
_WHILE_PRELOADING = {
    "OPENBLAS_NUM_THREADS": "1",  # OpenBLAS starts its threads when it is loaded
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",  # torch.cuda.is_available() without the driver
}


def main() -> int:
    """Import the preloaded modules, then answer the agent's requests until its socket closes."""
    parser = argparse.ArgumentParser(prog="python -m det_jupyter.rank.zygote")
    parser.add_argument("--socket", type=int, required=True)
    parser.add_argument("--target", required=True, metavar="MODULE:FUNCTION")
    options = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    connection = socket.socket(fileno=options.socket)
    connection.set_inheritable(False)
    began = time.monotonic()
    unsafe = why_platform_unsafe()
    try:
        run_rank = _load_target(options.target) if unsafe else _preload(options.target)
    except Exception as error:  # an import can raise anything; the agent reports it to the user
        traceback.print_exc()
        _send(connection, ZygoteFailed(reason=error_text(error)))
        return 1
    ready = ZygoteReady(
        protocol=PROTOCOL,
        version=__version__,
        warmup_s=time.monotonic() - began,
        unsafe=unsafe or why_unsafe() or why_cuda_unusable(),
        torch_cuda=torch_cuda_version(),
    )
    _send(connection, ready)
    ForkServer(connection, run_rank).serve()
    return 0


def _preload(target: str) -> RankTarget:
    """Import what ranks need, with the garbage collector off, which would scan it repeatedly."""
    gc.disable()
    with _variables_set(_WHILE_PRELOADING):
        for name in NEEDED:
            importlib.import_module(name)
        for name in HELPFUL:
            try:
                importlib.import_module(name)
            except Exception as error:  # a rank may not need it, and reports the error if it does
                logger.warning("not preloaded: %s: %s", name, error_text(error))
        run_rank = _load_target(target)
    gc.freeze()  # a collection in a rank must not write to the shared pages, which copies them
    gc.enable()
    return run_rank


@contextmanager
def _variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables within the block; ranks get the user's values."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _load_target(target: str) -> RankTarget:
    module, _, function = target.partition(":")
    loaded: RankTarget = getattr(importlib.import_module(module), function)
    return loaded


def _send(connection: socket.socket, report: ZygoteReport) -> None:
    connection.sendall(report.model_dump_json().encode() + b"\n")


class ForkServer:
    """Forks gangs and reports the exits of their ranks.

    Args:
        run_rank: Called in a forked rank; never returns.
    """

    def __init__(self, connection: socket.socket, run_rank: RankTarget) -> None:
        self._connection = connection
        self._run_rank = run_rank
        self._pid = os.getpid()
        self._running: set[int] = set()
        self._received = b""
        self._wake_read, self._wake_write = os.pipe()
        for descriptor in (self._wake_read, self._wake_write):
            os.set_blocking(descriptor, False)

    def serve(self) -> None:
        """Handle requests until the agent closes the socket; then kill all ranks."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)  # only to wake `select`
        # Slurm sends it to all processes of a job that ends; the agent ends this one.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        watched: list[socket.socket | int] = [self._connection, self._wake_read]
        try:
            while True:
                readable, _, _ = select.select(watched, [], [])
                if self._connection in readable and not self._receive():
                    return
                if self._wake_read in readable:
                    os.read(self._wake_read, 4096)
                self._reap()
        except ConnectionError:  # the agent ended during a report
            return
        finally:
            for pid in self._running:
                _kill_group(pid)

    def _receive(self) -> bool:
        data = self._connection.recv(1 << 16)
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            _send(self._connection, self._fork_gang(ForkGang.model_validate_json(line)))
        return bool(data)

    def _fork_gang(self, request: ForkGang) -> GangForked | ForkRefused:
        allocation_id = request.gang.plan.allocation_id
        pids: list[int] = []
        try:
            # The request has expired if this process was stopped for long: the agent has stopped
            # waiting.
            is_late = time.monotonic() > request.until
            reason = "the request is too old" if is_late else why_unsafe()
            if not reason:
                for spec in request.specs():
                    pids.append(self._fork_rank(spec))
        except OSError as error:
            _kill_all(pids)
            reason = f"rank {len(pids)} could not be forked: {error}"
        if reason:
            logger.warning("allocation=%s refused: %s", allocation_id, reason)
            return ForkRefused(allocation_id=allocation_id, reason=reason)
        self._running.update(pids)
        return GangForked(allocation_id=allocation_id, pids=pids)

    def _fork_rank(self, spec: RankSpec) -> int:
        pid = os.fork()
        if pid == 0:
            self._become_rank(spec)
        with suppress(OSError):  # the child has called exec or has ended
            os.setpgid(pid, pid)  # the rank does the same; either may be first
        return pid

    def _become_rank(self, spec: RankSpec) -> NoReturn:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGCHLD, signal.SIGTERM):
                signal.signal(number, signal.SIG_DFL)
            os.close(self._wake_read)
            os.close(self._wake_write)
            self._connection.close()
            prepare_process(spec, self._pid)
            self._run_rank(spec)
        except BaseException:  # no exception may leave the forked process
            with suppress(BaseException):  # the disk is full, or user code has closed the stream
                traceback.print_exc()
        finally:
            try:
                _flush_streams()
            finally:  # a rank must not return: it would continue as a copy of this server
                os._exit(1)

    def _reap(self) -> None:
        """Report the ranks that have ended, first those that were killed.

        Ranks that have lost one may have ended too while this process forked a gang; the first
        that is reported counts as the cause.
        """
        exits: list[RankExited] = []
        while self._running:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if ended is None:
                break
            pid = ended.si_pid
            _kill_group(pid)
            os.waitpid(pid, 0)
            self._running.discard(pid)
            is_killed = ended.si_code != os.CLD_EXITED
            exit_code = -ended.si_status if is_killed else ended.si_status
            exits.append(RankExited(pid=pid, exit_code=exit_code))
        for each in sorted(exits, key=lambda each: each.exit_code != -signal.SIGKILL):
            _send(self._connection, each)


def _flush_streams() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):  # as above
            stream.flush()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):  # the rank ended before it had a group
        os.killpg(pid, signal.SIGKILL)


def _kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    sys.exit(main())
