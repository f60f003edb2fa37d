"""Starts ranks as new interpreters, where forking them is not possible or not safe.

The command line is that of the interpreter's Jupyter kernel spec `det-worker`. The rank reads its
spec from stdin: DET_RANK_SPEC is set to /dev/stdin.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from det_jupyter.agent.starting.rank_processes import (
    RankExit,
    RankProcesses,
    StartFailed,
    has_ended,
    kill_group,
)
from det_jupyter.agent.starting.zygote_process import child_setup
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.messages import RankSpec
from det_jupyter.errors import LaunchError

KERNEL_NAME = "det-worker"
SPEC_VARIABLE = "DET_RANK_SPEC"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spawned:
    rank: int
    process: subprocess.Popen[bytes]
    exits: asyncio.Queue[RankExit]


class Spawner:
    """Starts ranks as new processes and reports their exits."""

    def __init__(self) -> None:
        self._ranks: list[_Spawned] = []

    def spawn_gang(self, specs: Sequence[RankSpec], *, note: str) -> RankProcesses:
        """Start all ranks or none.

        Raises:
            LaunchError: The interpreter cannot run them.
            StartFailed: They could not be started; another attempt may succeed.
        """
        exits: asyncio.Queue[RankExit] = asyncio.Queue()
        argv = kernel_argv(specs[0].plan.python)
        started: list[_Spawned] = []
        try:
            for spec in specs:
                process = _spawn(spec, argv)
                started.append(_Spawned(rank=spec.place.rank, process=process, exits=exits))
        except BaseException as error:  # an interrupt too: no rank may be left
            for spawned in started:
                kill_group(spawned.process.pid)
                spawned.process.wait()
            if not isinstance(error, (OSError, subprocess.SubprocessError)):
                raise
            raise StartFailed(
                f"rank {specs[len(started)].place.rank} could not be started: {error}"
            ) from error
        self._ranks += started
        pids = {spawned.rank: spawned.process.pid for spawned in started}
        return RankProcesses(pids=pids, exits=exits, note=note)

    def reap(self) -> None:
        """Report the ranks that have ended, first those that were killed. Called at SIGCHLD.

        The process group (data-loader workers) is killed before its leader is reaped, because
        until then no other process can get the pid.
        """
        ended = [spawned for spawned in self._ranks if has_ended(spawned.process.pid)]
        for spawned in ended:
            kill_group(spawned.process.pid)
            self._ranks.remove(spawned)
            spawned.process.wait()
        # Ranks that have lost one may have ended too; the first that is reported is the cause.
        for spawned in sorted(ended, key=lambda each: each.process.returncode != -signal.SIGKILL):
            spawned.exits.put_nowait(RankExit(spawned.rank, spawned.process.returncode))


def _spawn(spec: RankSpec, argv: Sequence[str]) -> subprocess.Popen[bytes]:
    folder, place = RunDir(Path(spec.run_dir)), spec.place
    connection_file = str(folder.connection_file(place.rank))
    output = os.open(folder.output(place.rank), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    # The file has no name, because the spec contains a secret.
    with open(output, "wb") as out, TemporaryFile() as stdin:
        stdin.write(spec.model_dump_json().encode())
        stdin.seek(0)
        return subprocess.Popen(
            [word.replace("{connection_file}", connection_file) for word in argv],
            stdin=stdin,
            stdout=out,
            stderr=out,
            pass_fds=[] if place.lifeline_fd is None else [place.lifeline_fd],
            process_group=0,
            preexec_fn=child_setup(),
            env={**os.environ, SPEC_VARIABLE: "/dev/stdin"},
            cwd=folder.path,  # `python -m` searches it for modules, and it contains none
        )


def kernel_argv(python: str) -> list[str]:
    """Return the command line of the det-worker kernel, run by this interpreter.

    Raises:
        LaunchError: The kernel spec is not installed there.
    """
    candidates = [
        Path(python).parent.parent / "share" / "det_jupyter" / "kernels",
        Path(__file__).resolve().parents[3] / "kernels",  # an editable checkout
    ]
    for folder in candidates:
        path = folder / KERNEL_NAME / "kernel.json"
        if path.exists():
            argv: list[str] = json.loads(path.read_text(encoding="utf-8"))["argv"]
            return [python, *argv[1:]]
    raise LaunchError(
        f"the kernel spec {KERNEL_NAME} is missing from {candidates[0]}; install det_jupyter "
        f"there again: {python} -m pip install --force-reinstall det-jupyter"
    )
