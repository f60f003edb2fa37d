"""What is read of processes and threads from /proc."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest

from det_jupyter.agent.hangs import process_facts
from det_jupyter.agent.hangs.growth import Growth
from det_jupyter.agent.hangs.process_facts import (
    OthersReader,
    ThreadFacts,
    descendants,
    is_traced,
    kernel_wait,
    state_of,
)
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
            assert isinstance(kernel_wait(process.pid, process.pid), str)
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


FORKS = """
import os, time
for _ in range(2):
    if os.fork() == 0:
        break
print(flush=True)
time.sleep(600)
"""


def test_descendants_are_all_processes_below(monkeypatch: pytest.MonkeyPatch) -> None:
    argv = [sys.executable, "-S", "-c", FORKS]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            for _ in range(3):
                process.stdout.readline()
            found = [*descendants(process.pid)]
            assert len(found) == 2
            assert {*found, process.pid} <= {*descendants(os.getpid())}
            monkeypatch.setattr(process_facts, "_MOST_DESCENDANTS", 1)
            few = {*descendants(os.getpid())}
            assert process.pid in few
            assert not {*found} & few  # enough are known
            monkeypatch.undo()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert [*descendants(process.pid)] == []


def test_a_debugger_is_known_by_its_pid(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_traced(os.getpid())
    assert not is_traced(2**22 + 1)
    status = b"Name:\tpython\nTracerPid:\t%d\nUid:\t0\n"
    for pid, expected in ((0, False), (17, True)):
        monkeypatch.setattr(process_facts, "_read", lambda path, pid=pid: status % pid)
        assert is_traced(1) is expected


def test_a_process_that_is_stopped_is_known() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: state_of(process.pid) == "T", "it is stopped")
        process.kill()
    with pytest.raises(OSError, match="/proc"):
        state_of(2**22 + 1)


def test_a_descendant_that_waits_for_a_disk_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        reader = OthersReader()
        reader.read(os.getpid(), ())
        assert process.pid in reader.children
        states = dict.fromkeys(reader.children, "S")
        monkeypatch.setattr(process_facts, "state_of", lambda pid: states.get(pid, "S"))
        assert not reader.read(os.getpid(), ()).at_disk
        states[process.pid] = "D"
        assert reader.read(os.getpid(), ()).at_disk
        process.kill()


@pytest.mark.parametrize(
    ("schedstat", "expected"),
    [(b"2500000000 500000000 7\n", (2.5, 0.5)), (b"", (0.0, 0.0)), (None, (0.0, 0.0))],
)
def test_times_of_a_thread_are_in_seconds_and_0_where_the_kernel_counts_none(
    monkeypatch: pytest.MonkeyPatch, schedstat: bytes | None, expected: tuple[float, float]
) -> None:
    files = {
        "stat": b"7 (a b) c) S 1 7\n",
        "status": b"Name:\ta\nvoluntary_ctxt_switches:\t41\nnonvoluntary_ctxt_switches:\t9\n",
        "wchan": b"0",
        "schedstat": schedstat,
    }

    def read(path: str) -> bytes:
        found = files.get(path.rsplit("/", 1)[1])
        if found is None:
            raise FileNotFoundError(path)
        return found

    monkeypatch.setattr(process_facts, "_read", read)
    facts = ThreadFacts.read(7, 8)
    assert facts == ThreadFacts("S", *expected, wakes=41, reads=None)
    assert kernel_wait(7, 7) == ""


def test_the_time_of_children_that_have_ended_is_that_of_users_and_of_the_system(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = " ".join(map(str, range(3, 53)))  # numbered as in `man 5 proc`
    num = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(process_facts, "_read", lambda path: f"7 (a b) c) S {fields[2:]}".encode())
    assert process_facts._ended_cpu_s(7) == (16 + 17) / process_facts._TICKS_PER_S
    monkeypatch.undo()
    process_facts._ended_cpu_s(os.getpid())
    assert len(os.listdir("/proc/self/fd")) == num


class Computer:
    """The threads of process 7 and of its child 20, as /proc shows them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads = {
            7: {7: b"python", 8: b"reader", 9: b"pt_gloo_0", 10: b"ours"},
            20: {20: b"w", 21: b"w"},
        }
        self.times = dict.fromkeys((7, 8, 9, 10, 20, 21), (1.0, 2.0))  # by thread: used, waited
        self.ended = {7: (1.0, 2.0), 20: (3.0, 4.0)}  # of children that have ended
        self.grown = (0, 0)
        self.gone: set[int] = set()
        monkeypatch.setattr(process_facts, "_read", self._read)
        monkeypatch.setattr(process_facts, "_threads", lambda pid: [*self.threads[pid]])
        monkeypatch.setattr(process_facts, "descendants", lambda pid: iter([20]))
        monkeypatch.setattr(process_facts, "_TICKS_PER_S", 100)
        monkeypatch.setattr(Growth, "read", lambda *_: self.grown)

    def _read(self, path: str) -> bytes:
        *_, pid, _, thread, name = ["", "", *path.split("/")]
        if name == "stat":
            user, system = self.ended[int(thread)]
            return b"1 (a) S " + b"0 " * 12 + f"{user * 100:.0f} {system * 100:.0f} 0".encode()
        if int(thread) in self.gone:
            raise FileNotFoundError(path)
        if name == "comm":
            return self.threads[int(pid)][int(thread)]
        assert name == "schedstat"
        used, waited = self.times[int(thread)]
        return f"{used * 1e9:.0f} {waited * 1e9:.0f} 3".encode()


def test_of_other_threads_those_of_users_count_and_all_of_descendants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    computer = Computer(monkeypatch)
    reader = OthersReader()

    def read() -> tuple[float, float]:
        found = reader.read(7, [10])
        return round(found.cpu_s, 6), round(found.core_wait_s, 6)

    assert read() == (0.0, 0.0)  # what was before does not count
    for thread in (7, 9, 10):
        computer.times[thread] = (50.0, 50.0)
    assert read() == (0.0, 0.0)
    computer.times |= {8: (1.5, 2.25), 20: (2.0, 3.0), 21: (1.125, 2.0625)}
    assert read() == (1.625, 1.3125)
    computer.ended |= {7: (2.0, 4.0), 20: (7.0, 12.0)}  # of users and of the system
    assert read() == (16.625, 1.3125)
    computer.gone = {8}
    assert read() == (16.625, 1.3125)
    computer.gone, computer.threads[7][11] = set(), b"new"
    computer.times[11] = (4.0, 8.0)
    computer.grown = (5, 6)
    # A thread that has ended and one that is new count from 0.
    assert read() == (16.625 + 4.0 + 1.5, 1.3125 + 8.0 + 2.25)
    found = reader.read(7, [10])
    assert (found.num_bytes, found.num_printed, reader.children) == (5, 6, (20,))
    computer.threads[17], computer.ended[17] = {17: b"python"}, (90.0, 0.0)
    before = reader.read(7, [10])
    assert reader.read(17, []).cpu_s == before.cpu_s  # another process is the rank now
