"""What master and agent undo of what they inherit; the system is played."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from det_jupyter.contract.host import inheritance as module
from det_jupyter.contract.host import paths
from det_jupyter.contract.host.inheritance import (
    find_remains,
    own_umask,
    remove_own,
    start_clean,
)

INFINITY = resource.RLIM_INFINITY
OPEN_FILES, PROCESSES = resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC
LINE = "Limit                     Soft Limit           Hard Limit           Units"


class System:
    """The properties of this process and the limits of others, as the kernel shows them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[Any] = []
        self.nice, self.scheduler = 0, os.SCHED_OTHER
        self.limits: dict[int, tuple[int, int]] = {}
        self.files: dict[str, list[str]] = {}
        self.pids = ["7"]
        self.refused: set[int] = set()  # hard limits that this user cannot set
        monkeypatch.setattr(os, "umask", self._umask)
        monkeypatch.setattr(os, "chdir", lambda folder: self.done.append(("chdir", folder)))
        monkeypatch.setattr(
            os, "sched_setaffinity", lambda pid, cores: self.done.append(("cores", len(cores)))
        )
        monkeypatch.setattr(os, "getpriority", lambda which, who: self.nice)
        monkeypatch.setattr(os, "setpriority", lambda *given: self.done.append(("nice", given[2])))
        monkeypatch.setattr(os, "sched_getscheduler", lambda pid: self.scheduler)
        monkeypatch.setattr(
            os, "sched_setscheduler", lambda pid, kind, _: self.done.append(("class", kind))
        )
        monkeypatch.setattr(
            signal, "pthread_sigmask", lambda how, mask: self.done.append(("mask", how, mask))
        )
        monkeypatch.setattr(resource, "getrlimit", self._getrlimit)
        monkeypatch.setattr(resource, "setrlimit", self._setrlimit)
        monkeypatch.setattr(module, "_lines", lambda path: self.files.get(path, []))
        monkeypatch.setattr(module, "_own_pids", lambda: iter(self.pids))

    def _umask(self, mask: int) -> int:
        self.done.append(("umask", mask))
        return 0o77

    def _getrlimit(self, kind: int) -> tuple[int, int]:
        return self.limits.get(kind, (INFINITY, INFINITY))

    def _setrlimit(self, kind: int, limits: tuple[int, int]) -> None:
        if limits[1] in self.refused:
            raise ValueError("not allowed to raise maximum limit")
        self.limits[kind] = limits

    def show(self, pid: str, **limits: tuple[str, str]) -> None:
        """Let the kernel show the limits of a process."""
        lines = [
            f"{name.replace('_', ' '):<25} {soft:<20} {hard:<20} units"
            for name, (soft, hard) in limits.items()
        ]
        self.files[f"/proc/{pid}/limits"] = [LINE, *lines, "Max nice priority         0"]


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> System:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    for name in ("RANK", "SLURM_CPUS_ON_NODE"):
        monkeypatch.setenv(name, "")  # to be put back afterwards
        monkeypatch.delenv(name)
    return System(monkeypatch)


@pytest.mark.parametrize(
    ("keeps_share", "in_job", "expected"),
    [
        (False, False, [("cores", 8192), ("nice", 0), ("class", os.SCHED_OTHER), "mask"]),
        (False, True, [("nice", 0), ("class", os.SCHED_OTHER), "mask"]),
        (True, False, []),
    ],
)
def test_a_daemon_keeps_nothing_of_its_starter_unless_it_is_given_its_share(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    keeps_share: bool,
    in_job: bool,
    expected: list[Any],
) -> None:
    system.nice, system.scheduler = 10, os.SCHED_BATCH
    monkeypatch.setenv("RANK", "3")
    if in_job:
        monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    start_clean(keeps_share=keeps_share)
    expected = [("mask", signal.SIG_SETMASK, ()) if each == "mask" else each for each in expected]
    assert system.done == [("umask", 0o022), ("chdir", paths.data_dir()), *expected]
    assert "RANK" not in os.environ
    assert ("SLURM_CPUS_ON_NODE" in os.environ) is in_job


def test_what_is_usual_is_not_set_again(system: System) -> None:
    start_clean()
    assert [what[0] for what in system.done] == ["umask", "chdir", "cores", "mask"]


def test_variables_of_launchers_are_known_by_their_names_or_how_they_begin() -> None:
    environ = {
        "PATH": "/bin", "OMPI_COMM_WORLD_RANK": "1", "RANKING": "x", "LOCAL_RANK": "0",
        "SLURM_CPUS_ON_NODE": "4", "SLURM_JOB_ID": "7", "SLURM": "x", "OMP_NUM_THREADS": "3",
        "JPY_SESSION_NAME": "a", "WANDB_RUN_ID": "b", "WANDB_API_KEY": "c",
    }  # fmt: skip
    remove_own(environ)
    assert sorted(environ) == [
        "PATH", "RANKING", "SLURM", "SLURM_CPUS_ON_NODE", "WANDB_API_KEY",
    ]  # fmt: skip


@pytest.fixture
def handlers() -> Iterator[None]:
    """Restore the handlers of signals."""
    numbers = [signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1]
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers", "system")
def test_signals_that_the_starter_ignored_are_taken() -> None:
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    own = signal.signal(signal.SIGUSR1, lambda *_: None)
    kept = signal.getsignal(signal.SIGUSR1)
    start_clean()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGUSR1) is kept is not own


@pytest.mark.parametrize(
    ("refused", "expected"),
    [(set(), 4096), ({4096}, 1024)],  # root raises the hard limit; others the soft one
)
def test_limits_are_raised_to_the_users_highest_where_that_is_allowed(
    system: System, refused: set[int], expected: int
) -> None:
    system.limits[OPEN_FILES] = (256, 1024)
    system.limits[PROCESSES] = (100, INFINITY)
    system.pids = ["7", "8"]
    system.show("7", Max_open_files=("512", "2048"))
    system.show("8", Max_open_files=("1024", "4096"), Max_processes=("5", "10"))
    system.refused = refused
    start_clean()
    assert system.limits[OPEN_FILES] == (expected, expected)
    assert system.limits[PROCESSES] == (INFINITY, INFINITY)


@pytest.mark.parametrize(
    ("usual", "hard", "expected"),
    [
        (("8388608", "unlimited"), INFINITY, (8388608, INFINITY)),
        (("8388608", "unlimited"), 1024, (1024, 1024)),  # a soft limit above it is no limit
        (("unlimited", "unlimited"), 1024, (1024, 1024)),
        (("0", "unlimited"), INFINITY, (0, INFINITY)),
    ],
)
def test_soft_limits_of_stacks_and_core_files_are_the_computers(
    system: System, usual: tuple[str, str], hard: int, expected: tuple[int, int]
) -> None:
    system.limits[resource.RLIMIT_STACK] = (77, hard)
    system.limits[resource.RLIMIT_CORE] = (78, hard)
    system.show("1", Max_stack_size=usual)
    start_clean()
    assert system.limits[resource.RLIMIT_STACK] == expected
    assert system.limits[resource.RLIMIT_CORE] == (78, hard)


def test_nothing_remains_where_all_is_usual(system: System) -> None:
    assert find_remains() == []
    system.nice = -5
    assert find_remains() == []


def test_what_remains_is_told_with_how_to_undo_it(system: System) -> None:
    system.nice, system.scheduler = 10, os.SCHED_BATCH
    system.limits[OPEN_FILES] = (1024, 1024)
    system.limits[PROCESSES] = (5000, 5000)  # enough
    system.limits[resource.RLIMIT_CPU] = (60, 60)
    system.limits[resource.RLIMIT_DATA] = (1000, 1000)  # no process of the user has more
    system.show(
        "7",
        Max_open_files=("1024", "1048576"),
        Max_processes=("5000", "unlimited"),
        Max_cpu_time=("unlimited", "unlimited"),
    )
    undone = (
        "; `python -m det_jupyter.master stop --everything`, and start it from a shell that is "
        "not limited so"
    )
    assert find_remains() == [
        f"trials run with low priority (nice 10), which the agent has inherited{undone}",
        f"trials run in another scheduling class, which the agent has inherited{undone}",
        "trials can have 1,024 open files, which the agent has inherited (ulimit -n); other "
        f"processes of yours can have 1,048,576{undone}",
        "trials can have 60 seconds of CPU time, which the agent has inherited (ulimit -t); other "
        f"processes of yours can have any number{undone}",
    ]


@pytest.mark.parametrize(
    ("own", "others", "is_told"),
    [
        (700, [0], True),
        (700, [-1000, 200], True),
        (200, [0], False),  # as desktops have it
        (999, [999, 998], False),  # all of a container
        (0, [-1000], False),  # root's servers are spared
    ],
)
def test_trials_that_memory_ends_first_are_told(
    system: System, own: int, others: list[int], is_told: bool
) -> None:
    system.pids = [str(number) for number, _ in enumerate(others)]
    system.files = {f"/proc/{pid}/oom_score_adj": [str(score)]
                    for pid, score in zip(system.pids, others, strict=True)}  # fmt: skip
    system.files["/proc/self/oom_score_adj"] = [str(own)]
    told = [text for text in find_remains() if f"(oom_score_adj {own})" in text]
    assert len(told) == is_told


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(["Name:\tpython", "Umask:\t0027"], 0o027), (["Name:\tpython"], 0o77), ([], 0o77)],
)
def test_the_umask_of_a_process_is_read_or_asked_for(
    system: System, lines: list[str], expected: int
) -> None:
    system.files["/proc/self/status"] = lines
    assert own_umask() == expected
    masks = [0o022, 0o77] if expected == 0o77 else []
    assert system.done == [("umask", mask) for mask in masks]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no /proc")
def test_limits_of_real_processes_are_read() -> None:
    assert str(os.getpid()) in [*module._own_pids()]
    soft, hard = module._limits_of("self")["Max open files"]
    assert (soft, hard) == resource.getrlimit(OPEN_FILES)
    assert module._limits_of(str(2**22 + 1)) == {}
