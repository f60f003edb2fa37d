"""What is read of processes and threads from /proc."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from det_jupyter.agent.hangs import process_facts
from det_jupyter.agent.hangs.process_facts import OthersReader, ThreadFacts, kernel_wait
from det_jupyter.agent.hangs.stall_watch import OthersSample
from tests.processes import wait_until

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="there is no /proc")


def test_a_wait_for_a_file_system_of_a_program_is_one_for_a_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sleep = "print(flush=True); import time; time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", sleep], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert isinstance(kernel_wait(process.pid), str)
            monkeypatch.setattr(process_facts, "kernel_wait", lambda *_: "request_wait_answer")
            while (facts := ThreadFacts.read(process.pid, process.pid)).state == "R":
                time.sleep(0.01)
            assert facts.state == "D"
        finally:
            process.kill()


def test_a_process_that_has_ended_is_an_error() -> None:
    with pytest.raises(OSError, match="/proc"):
        ThreadFacts.read(2**22 + 1, 2**22 + 1)


def test_the_time_of_a_child_counts_after_its_end_too() -> None:
    reader = OthersReader()
    before = reader.read(os.getpid(), ()).cpu_s
    busy = "import time\nwhile time.process_time() < 0.3: pass"
    for _ in range(2):  # a compiler is started for each file
        subprocess.run([sys.executable, "-c", busy], check=True)
    assert reader.read(os.getpid(), ()).cpu_s - before >= 0.5


def test_the_time_of_other_threads_counts_and_that_of_own_ones_does_not() -> None:
    done = threading.Event()

    def compute() -> None:
        while not done.is_set():
            sum(range(1000))

    thread = threading.Thread(target=compute)
    thread.start()
    reader, without = OthersReader(), OthersReader()
    reader.read(os.getpid(), ())
    without.read(os.getpid(), (thread.native_id or 0,))
    try:
        wait_until(lambda: reader.read(os.getpid(), ()).cpu_s > 0.2, "the thread counts")
        assert without.read(os.getpid(), (thread.native_id or 0,)).cpu_s < 0.1
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("reads", [True, False])
def test_a_thread_that_reads_without_a_limit_is_told_from_one_that_polls(reads: bool) -> None:
    polls = "print(flush=True)\nimport time\nwhile True: time.sleep(0.1)"
    code = "print(flush=True)\nimport sys\nsys.stdin.read(1)" if reads else polls
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            expected = b"0x0" if reads else None

            def is_told() -> bool:
                facts = ThreadFacts.read(process.pid, process.pid)
                return facts.state == "S" and facts.reads == expected

            wait_until(is_told, "its call is known")
        finally:
            process.kill()


def grown(reader: OthersReader, since: OthersSample) -> int:
    return reader.read(os.getpid(), ()).num_bytes - since.num_bytes


def test_files_that_are_read_or_written_and_connections_that_receive_grow() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as here,
        tempfile.TemporaryFile(buffering=0) as file,
    ):
        there, _ = server.accept()
        with there:
            reader = OthersReader()
            begin = reader.read(os.getpid(), ())
            here.sendall(bytes(70_000))  # others' connection to this process: a console's
            assert grown(reader, begin) < 5_000
            there.sendall(bytes(10_000))
            wait_until(lambda: grown(reader, begin) >= 10_000, "what has been received counts")
            file.write(bytes(20_000))
            assert grown(reader, begin) >= 30_000
            file.seek(0)
            assert grown(reader, begin) < 35_000
            file.read(20_000)
            assert grown(reader, begin) >= 50_000


def test_files_of_the_runs_folder_do_not_grow(tmp_path: Path) -> None:
    """The rank's own thread writes stacks into one of them at each look."""
    work = tmp_path / "work"
    work.mkdir()
    reader = OthersReader(str(tmp_path))
    with (tmp_path / "stacks-0").open("wb") as stacks, (work / "data").open("wb") as data:
        begin = reader.read(os.getpid(), ())
        stacks.write(bytes(50_000))
        stacks.flush()
        assert grown(reader, begin) < 5_000
        data.write(bytes(50_000))
        data.flush()
        assert grown(reader, begin) >= 50_000
