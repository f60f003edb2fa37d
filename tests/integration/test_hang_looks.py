"""Looks at processes that hang: what is seen of them, and that they are not disturbed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from det_jupyter.agent.hangs.looking import Looker, spied_stack
from det_jupyter.agent.hangs.process_facts import OthersReader, descendants
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.contract.run.evidence_page import EvidencePage, create_evidence_page
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")

_BEGIN = """
import ctypes, multiprocessing, os, select, sys, time
from pathlib import Path
from det_jupyter.contract.host.rundir import RunDir
from det_jupyter.core.evidence import give_evidence

def begin():
    give_evidence(RunDir(Path(sys.argv[1])), 0)
    time.sleep(1.5)
    print("ready", flush=True)
"""
HOLDS = """
begin()
library, epoll, events = ctypes.PyDLL(None), select.epoll(), ctypes.create_string_buffer(64)
began = time.monotonic()
answers = [
    library.poll(None, 0, 8000),
    library.epoll_wait(epoll.fileno(), events, 1, 4000),
    library.usleep(900_000),
]
print(answers, time.monotonic() - began >= 12.5, flush=True)
"""
FORKS = """
def stall():
    while not os.path.exists("/no/such/file"):
        time.sleep(0.3)

begin()
multiprocessing.get_context("fork").Process(target=stall, daemon=True).start()
time.sleep(600)
"""


@contextmanager
def rank(folder: Path, code: str) -> Iterator[tuple[subprocess.Popen[str], Looker, EvidencePage]]:
    """Run the code as a rank that gives evidence; yield its process and what looks at it."""
    create_evidence_page(RunDir(folder).evidence, 1)
    page = EvidencePage(RunDir(folder).evidence)
    script = folder / "rank.py"
    script.write_text(_BEGIN + code)
    run: Any = SimpleNamespace(dir=RunDir(folder))
    command = [sys.executable, str(script), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process, Looker(run, page), page
        finally:
            for child in descendants(process.pid):
                subprocess.run(["kill", "-KILL", str(child)], check=False)
            process.kill()
            page.close()


def test_looks_interrupt_no_call_of_c_code_that_holds_the_gil(tmp_path: Path) -> None:
    """A signal ended its poll, as did a stop by ptrace its epoll_wait."""
    with rank(tmp_path, HOLDS) as (process, looker, page):
        time.sleep(1.5)
        beats = page.get(0, "beats")
        seen = looker.look({0: process.pid})[0]
        assert page.get(0, "beats") == beats  # it holds the GIL
        assert seen.is_answered is bool(seen.frames)
        for _ in range(5):
            looker.look({0: process.pid})
            time.sleep(1)
        assert process.stdout is not None
        assert process.stdout.readline() == "[0, 0, 0] True\n"
        assert process.wait() == 0


@pytest.mark.skipif(
    shutil.which("py-spy", path=str(Path(sys.executable).parent)) is None,
    reason="py-spy is not installed",
)
def test_py_spy_reads_where_a_process_that_holds_the_gil_is(tmp_path: Path) -> None:
    with rank(tmp_path, HOLDS) as (process, _, _):
        time.sleep(1)
        frames = spied_stack(process.pid)
        assert (Path(frames[0].file).name, frames[0].name) == ("rank.py", "<module>")
        assert (
            "library.poll" in (tmp_path / "rank.py").read_text().splitlines()[frames[0].line - 1]
        )
        assert spied_stack(2**22 + 1) == []


def test_a_forked_process_tells_where_it_is_and_a_stopped_one_is_named(tmp_path: Path) -> None:
    code: Any = SimpleNamespace(
        contains=lambda frame: frame.name == "stall",
        place=lambda frames: SimpleNamespace(call="time.sleep", place=f"{frames[0].name}"),
    )
    with rank(tmp_path, FORKS) as (process, looker, _):
        reader = OthersReader()
        wait_until(lambda: reader.read(process.pid, ()) and reader.children, "it has forked")
        [child] = reader.children

        def told() -> str:
            return looker.child_in(0, reader.children, code)

        expected = f"(process {child}) is in `time.sleep` (stall)"
        wait_until(lambda: told() == expected, "the process answers")
        assert sorted(path.name for path in tmp_path.glob("stacks-*")) == ["stacks-0"]
        subprocess.run(["kill", f"-{signal.SIGSTOP.value}", str(child)], check=True)
        stopped = f"(process {child}) is stopped by a signal or a debugger (`kill -CONT {child}`"
        wait_until(lambda: told().startswith(stopped), "it is stopped")
