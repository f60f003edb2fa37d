"""Whether the kernel killed a rank for want of memory, from its log and counters."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from det_jupyter.agent.devices.kernel_log import KernelKill, KernelLog, parse_kills
from det_jupyter.agent.runs.memory_watch import (
    KillCounts,
    MemoryEvidence,
    MemoryWatch,
    is_out_of_memory,
)
from det_jupyter.contract.messages import MemoryHolder, MemoryShortage

GB = 10**9
KILL = KernelKill(pid=7, name="python3", num_bytes=GB, is_of_group=False)
OF_GROUP = (
    "python3 invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=0",
    "memory: usage 4194304kB, limit 4194304kB, failcnt 57",
    "oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/a,task_memcg=/a,task=python3,pid=16740,uid=0",
    "Memory cgroup out of memory: Killed process 16740 (python3) total-vm:9368172kB, "
    "anon-rss:3000000kB, file-rss:6624kB, shmem-rss:1000kB, UID:0 pgtables:264kB",
)


@pytest.mark.parametrize(
    ("message", "killed"),
    [
        (OF_GROUP[-1], (16740, "python3", 3001000 * 1024, True)),
        ("Out of memory: Killed process 5 (a (b)) total-vm:1kB, anon-rss:2kB, file-rss:0kB",
         (5, "a (b)", 2048, False)),
        ("Out of memory: Kill process 9 (x) score 9 or sacrifice child, anon-rss:1kB",
         (9, "x", 1024, False)),
        ("oom_reaper: reaped process 16740 (python3), now anon-rss:0kB", None),
        ("systemd[1]: Out of memory", None),
    ],
)  # fmt: skip
def test_the_kernels_log_names_what_it_killed(
    message: str, killed: tuple[int, str, int, bool] | None
) -> None:
    found = [(k.pid, k.name, k.num_bytes, k.is_of_group) for k in parse_kills([message])]
    assert found == ([killed] if killed else [])


def test_the_limit_of_a_group_is_in_the_log() -> None:
    assert parse_kills(OF_GROUP)[0].limit_bytes == 4 << 30


@pytest.mark.parametrize(
    ("pid", "kills", "before", "now", "found"),
    [
        (7, [KILL], (0, 0), (0, 1), True),
        (7, [KILL], (None, None), (None, None), True),
        (8, [KILL], (0, 0), (0, 1), False),  # a process of another group was killed
        (8, [KILL], (0, 0), (1, 1), True),  # the log has the pids of the host
        (8, [], (3, 3), (3, 3), False),
        (8, [], (None, 3), (None, 3), False),
        (8, [], (None, 3), (None, 4), None),
        (8, [], (None, None), (None, None), None),
        (None, [KILL], (0, 0), (0, 1), True),  # the process may be a worker
        (None, [], (0, 0), (0, 1), False),
    ],
)
def test_the_best_evidence_decides(
    pid: int | None,
    kills: list[KernelKill],
    before: tuple[int | None, int | None],
    now: tuple[int | None, int | None],
    found: bool | None,
) -> None:
    assert is_out_of_memory(pid, kills, KillCounts(*before), KillCounts(*now)) is found


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def watch(folder: Path) -> MemoryWatch:
    write(folder, {
        "proc/self/cgroup": "0::/a\n", "proc/vmstat": "nr_free_pages 9\noom_kill 4\n",
        "groups/a/memory.events": "oom_kill 0\n", "groups/a/memory.max": "4000000000\n",
        "log": "6,1,2,-;from before\n",
    })  # fmt: skip
    return MemoryWatch(KernelLog(folder / "log"), proc=folder / "proc", groups=folder / "groups")


def test_a_kill_by_hand_is_no_shortage(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    assert watched.look("1.1.1", 0, -9, {0: 7}) == MemoryEvidence(had_memory=True)
    assert watched.look("1.1.1", 0, 1, {0: 7}) == MemoryEvidence()


def test_a_counted_kill_is_told_once_with_what_held_the_memory(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    watched.note({"rank:1.1.1:0": 2.5 * GB, "workers:1.1.1:0": GB, "rank:2.5.1:1": 0.25 * GB})
    watched.note({"rank:1.1.1:0": 2.5 * GB, "workers:1.1.1:0": None, "rank:2.5.1:1": 0.25 * GB})
    write(tmp_path, {"groups/a/memory.events": "oom_kill 1\n"})
    evidence = watched.look("1.1.1", 0, -9, {0: 2**22 + 1})
    assert evidence.shortage is not None
    if psutil.virtual_memory().total > 4 * GB:
        assert (evidence.shortage.limit_bytes, evidence.shortage.is_of_group) == (4 * GB, True)
    holders = [
        each for each in evidence.shortage.holders if each.name != "/dev/shm"
    ]  # of this one
    assert [(holder.name, holder.num_bytes) for holder in holders][:3] == [
        ("rank 0", int(2.5 * GB)),
        ("the loader workers of rank 0", GB),
        ("rank 1 of trial 5", GB // 4),
    ]
    assert watched.look("2.5.1", 1, -9, {1: 8}) == MemoryEvidence(had_memory=True)


def test_what_was_killed_before_a_gang_started_is_not_its_failure(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    write(tmp_path, {"groups/a/memory.events": "oom_kill 5\n"})
    note_kills(tmp_path, OF_COMPUTER)  # of another process with the pid
    watched.started()
    assert watched.look("1.1.1", 0, -9, {0: 7}).shortage is None


def test_the_log_of_a_process_is_found_by_its_pid(tmp_path: Path) -> None:
    watched = watch(tmp_path)
    with (tmp_path / "log").open("a") as log:
        log.writelines(f"6,{n},5,-;{text}\n DEVICE=x\n" for n, text in enumerate(OF_GROUP))
    shortage = watched.look("1.1.1", 0, -9, {0: 16740}).shortage
    assert shortage is not None
    assert shortage.holders[0] == MemoryHolder(name="rank 0", num_bytes=3001000 * 1024)
    assert shortage.pids == [16740]


def test_a_log_that_cannot_be_read_has_no_messages(tmp_path: Path) -> None:
    log = KernelLog(tmp_path / "none")
    assert log.read() == []
    log.close()


def test_a_shortage_is_one_sentence() -> None:
    holders = [MemoryHolder(name="rank 1", num_bytes=3 * GB), MemoryHolder(name="a", num_bytes=GB)]
    shortage = MemoryShortage(limit_bytes=4 * GB, is_of_group=True, holders=holders)
    assert str(shortage) == (
        "the memory of its control group (container or job), 4.0 GB, ran out: rank 1 3.0 GB, "
        "a 1.0 GB"
    )
    assert str(MemoryShortage()) == "the memory of the computer ran out"


class OneProcess:
    """A process of the computer."""

    def __init__(self, pid: int, rss: float, shared: float | None = None) -> None:
        self.pid, self._memory = pid, {"rss": rss * GB}
        if shared is not None:
            self._memory["shared"] = shared * GB

    def name(self) -> str:
        return f"program{self.pid}"

    def memory_info(self) -> SimpleNamespace:
        return SimpleNamespace(**self._memory)


@pytest.fixture
def computer(monkeypatch: pytest.MonkeyPatch) -> list[OneProcess]:
    """Play a computer of 10 GB; return its processes. Those from 50 on are of rank 7's group."""
    processes: list[OneProcess] = []

    def find(pid: int) -> OneProcess:
        for process in processes:
            if process.pid == pid:
                return process
        raise psutil.NoSuchProcess(pid)

    def group_of(pid: int) -> int:
        return 7 if pid >= 50 else pid

    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=10 * GB))
    monkeypatch.setattr(psutil, "process_iter", lambda: iter(processes))
    monkeypatch.setattr(psutil, "Process", find)
    monkeypatch.setattr(os, "getpgid", group_of)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(
        f_blocks=10**6, f_bfree=10**6 // 2, f_frsize=1000 * (path == "/dev/shm"),
    ))  # fmt: skip
    return processes


def note_kills(folder: Path, *messages: str) -> None:
    """Have the kernel log this."""
    with (folder / "log").open("a") as log:
        log.writelines(f"6,{n},5,-;{text}\n" for n, text in enumerate(messages))


OF_COMPUTER = "Out of memory: Killed process 7 (python3) total-vm:1kB, anon-rss:2kB, file-rss:0kB"


@pytest.mark.parametrize(
    ("own_limit", "messages", "limit", "is_of_group"),
    [
        ("max", OF_GROUP, 4 << 30, True),  # of another group
        ("max", [OF_COMPUTER], 10 * GB, False),
        ("3000000000", [OF_COMPUTER], 10 * GB, False),
        ("3000000000", OF_GROUP, 3 * GB, True),
        ("10000000000", [], 10 * GB, False),  # it limits nothing
        ("9999999999", [], 10 * GB - 1, True),
        ("max", [], 10 * GB, False),
    ],
)
def test_the_limit_is_the_one_that_was_reached(
    tmp_path: Path,
    computer: list[OneProcess],
    own_limit: str,
    messages: Sequence[str],
    limit: int,
    is_of_group: bool,
) -> None:
    watched = watch(tmp_path)
    write(tmp_path, {"groups/a/memory.max": own_limit, "groups/a/memory.events": "oom_kill 1\n"})
    note_kills(tmp_path, *messages)
    shortage = watched.look("1.1.1", 0, -9, {0: 7}).shortage
    assert shortage is not None
    assert (shortage.limit_bytes, shortage.is_of_group) == (limit, is_of_group)


def held_by(shortage: MemoryShortage | None) -> list[tuple[str, float]]:
    assert shortage is not None
    return [(each.name, each.num_bytes / GB) for each in shortage.holders]


def test_what_held_the_memory_is_told_in_order_without_what_is_small_or_shared(
    tmp_path: Path, computer: list[OneProcess]
) -> None:
    watched = watch(tmp_path)
    write(tmp_path, {"groups/a/memory.max": "max\n"})
    note_kills(tmp_path, OF_COMPUTER.replace("process 7", "process 8"))
    computer += [
        OneProcess(7, rss=0.5, shared=0.25), OneProcess(9, rss=2.5, shared=0.5),  # ranks
        OneProcess(8, rss=4.0), OneProcess(50, rss=9.0), OneProcess(51, rss=9.0),  # below them
        OneProcess(os.getpid(), rss=9.0),
        OneProcess(20, rss=1.0), OneProcess(21, rss=3.5, shared=0.25), OneProcess(22, rss=1.5),
    ]  # fmt: skip
    watched.note({"workers:1.1.1:0": 0.75 * GB, "workers:1.1.1:1": 0.2 * GB})
    shortage = watched.look("1.1.1", 0, 1, {0: 7, 1: 9, 2: 8}).shortage
    assert held_by(shortage) == [
        ("rank 0", 0.25), ("rank 2", 4.0), ("program21 (pid 21)", 3.25), ("rank 1", 2.0),
        ("program22 (pid 22)", 1.5), ("the loader workers of rank 0", 0.75),
    ]  # fmt: skip
    assert shortage is not None
    assert shortage.pids == [8]


def test_a_worker_that_was_killed_counts_with_what_it_held(
    tmp_path: Path, computer: list[OneProcess]
) -> None:
    watched = watch(tmp_path)
    write(tmp_path, {"groups/a/memory.max": "max\n"})
    for number, kilobytes in ((30, 500_000), (31, 700_000)):
        text = OF_COMPUTER.replace("process 7", f"process {number}")
        note_kills(tmp_path, text.replace("anon-rss:2kB", f"anon-rss:{kilobytes}kB"))
    watched.note({"rank:1.1.1:0": 2 * GB, "workers:1.1.1:0": 0.25 * GB})
    assert held_by(watched.look("1.1.1", 0, 1, {0: 7}).shortage) == [
        ("rank 0", 2.0), ("the loader workers of rank 0", 1.2288), ("/dev/shm", 0.5),
    ]  # fmt: skip


def test_of_a_control_group_only_its_own_processes_count(
    tmp_path: Path, computer: list[OneProcess]
) -> None:
    watched = watch(tmp_path)
    write(tmp_path, {"groups/a/memory.events": "oom_kill 1\n", "proc/20/cgroup": "0::/a\n",
                     "proc/21/cgroup": "0::/b\n"})  # fmt: skip
    computer += [
        OneProcess(20, rss=1.0),
        OneProcess(21, rss=2.0),
        OneProcess(22, rss=3.0),
        OneProcess(7, rss=0.25, shared=0.5),
    ]  # all that it uses is shared
    names = [name for name, _ in held_by(watched.look("1.1.1", 0, -9, {0: 7}).shortage)]
    assert names == ["program20 (pid 20)", "/dev/shm"]


def test_this_processs_own_group_can_be_read() -> None:
    watched = MemoryWatch()
    assert watched.look("1.1.1", 0, 1, {0: os.getpid()}) == MemoryEvidence()


def test_a_control_group_may_have_any_name(tmp_path: Path) -> None:
    """The watch is made when the agent starts, which must not fail."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_bytes(b"0::/us\xe9r.slice\n")
    watch = MemoryWatch(KernelLog(tmp_path / "none"), proc=tmp_path, groups=tmp_path / "groups")
    assert watch.look("1.1.1", 0, -9, {}) == MemoryEvidence()


def test_a_log_is_read_from_its_end_on_without_what_belongs_to_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text("6,1,2,-;from before\n")
    log = KernelLog(path)
    with path.open("a") as file:
        file.write("6,2,3,-;one; two\n SUBSYSTEM=pci\n DEVICE=x\n6,3,4,-;three\n")
    assert log.read() == ["one; two", "three"]
    assert log.read() == []
    read, errors = os.read, [BrokenPipeError(), BrokenPipeError()]
    with path.open("a") as file:
        file.write("6,9,9,-;later\n")

    def overwritten(descriptor: int, most: int) -> bytes:
        if errors:
            raise errors.pop()
        return read(descriptor, most)

    monkeypatch.setattr(os, "read", overwritten)
    assert log.read() == ["later"]  # what was overwritten is passed over
    monkeypatch.undo()
    num = len(os.listdir("/proc/self/fd"))
    log.close()
    log.close()
    assert len(os.listdir("/proc/self/fd")) == num - 1
    assert log.read() == []
