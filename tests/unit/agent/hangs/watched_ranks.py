"""Ranks of a gang on two `sleep` processes, with the pages and files through which they answer."""

from __future__ import annotations

import json
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from det_jupyter.agent.hangs.stacks import Frame
from det_jupyter.agent.runs.run import AgentRun
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.control_page import create_page
from det_jupyter.contract.run.evidence_page import EvidencePage, create_evidence_page
from tests.integration.agent_support import make_plan

BARRIER = Frame("/p/site-packages/torch/distributed/distributed_c10d.py", 4800, "barrier")


def make_run(folder: Path, **changes: Any) -> AgentRun:
    """Return a run of two ranks whose pages exist, and whose code is in a folder."""
    plan = make_plan("1.1.1", [], cwd=str(folder / "code"), **changes)
    (folder / "code").mkdir()
    path = folder / "data" / "runs" / "1.1.1"
    path.mkdir(parents=True)
    create_page(path / "control")
    create_evidence_page(path / "evidence", 2)
    return AgentRun(plan=plan, dir=RunDir(path), sockets=None)


def dumped(frames: Sequence[Frame]) -> str:
    """Return the stack of a process as faulthandler writes it, with another thread first."""
    lines = [f'  File "{frame.file}", line {frame.line} in {frame.name}' for frame in frames]
    other = ["Thread 0x1 (most recent call first):", '  File "/lib/other.py", line 1 in run', ""]
    return "\n".join([*other, "Thread 0x2 (most recent call first):", *lines, ""])


def recorded(number: int, *, retired: bool = False) -> bytes:
    """Return a flight recorder that ends with this collective."""
    entry = {
        "collective_seq_id": number,
        "profiling_name": "nccl:all_reduce",
        "input_sizes": [[4]],
        "input_dtypes": ["Float"],
        "process_group": ["0", "default_pg"],
        "retired": retired,
    }
    return json.dumps({"entries": [entry]}).encode()


@contextmanager
def sleeping(num: int) -> Iterator[list[int]]:
    """Run so many processes that sleep; yield their pids."""
    processes = [subprocess.Popen(["sleep", "3600"]) for _ in range(num)]
    try:
        yield [process.pid for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def answering(page: EvidencePage, *ranks: int) -> Iterator[None]:
    """Let these ranks answer each request at once, as their interpreters run."""
    done = threading.Event()
    for rank in ranks:
        page.set(rank, "beats", 1)

    def answer() -> None:
        while not done.wait(0.002):
            for rank in ranks:
                page.set(rank, "answered", page.get(rank, "wanted"))

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
