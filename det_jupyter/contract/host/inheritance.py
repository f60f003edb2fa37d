"""Resets what master and agent inherit from the process that starts them, such as limits.

They serve all notebooks of a user, and the first notebook or command that needs them starts them.
So they keep nothing that was meant for that process alone. `start_clean` is the first call of
both.

    inherited                      master and agent                     `det agent run`
    CPU affinity                   all cores of their control group     kept: these it offers
    nice value, scheduling class,  0 and the usual, where allowed       kept
      out-of-memory score
    limits (ulimit)                soft raised to hard, hard to the     the same
                                   user's highest where allowed;
                                   stack, core: as the computer has
    signals ignored or blocked     none                                 kept
    a job's temporary folder       removed: it goes with the job        kept
    umask, working folder          022, the folder of their data        the same
    standard streams               those that were closed: /dev/null    the same
    launchers' variables, numbers  removed                              the same
      of threads, marks of a run,
      how Python runs
    other variables                kept: they have paths and addresses  the same

Slurm limits the cores of a job by the affinity if it uses no control groups, so in a job the
affinity is kept. A trial gets the umask of the process that submits it, and the variables that its
configuration names. `find_remains` returns what could not be reset; the agent reports it.

Standard library only, as the master imports it before it takes its lock.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.host import paths

# This variable is kept: no library takes the process for a job's task because of it.
JOB_CORES_VARIABLE = "SLURM_CPUS_ON_NODE"
UMASK = 0o022
_MOST_CORES = 8192  # the kernel ignores those that the computer does not have

# Variables by which a library takes a process for a task of a launcher or job, and then waits for
# the other tasks.
_OF_LAUNCHERS = (
    "ACCELERATE_", "ALPS_APP_", "COBALT_", "CROSS_", "FLUX_", "FSDP_", "GROUP_RANK",
    "GROUP_WORLD_SIZE", "HOROVOD_", "HYDI_", "HYDRA_", "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JOB_ID", "JSM_", "LOCAL_RANK", "LOCAL_SIZE",
    "LOCAL_WORLD_SIZE", "LSB_", "LT_", "MASTER_ADDR", "MASTER_PORT", "MPIEXEC_",
    "MPI_LOCALNRANKS", "MPI_LOCALRANKID", "MPIR_", "MV2_COMM_WORLD_", "NODE_RANK", "NSLOTS",
    "OMPI_", "PALS_", "PBS_", "PE_HOSTFILE", "PMIX_", "PMI_", "PRTE_", "RANK", "RAY_JOB_ID",
    "ROLE_", "SGE_", "SLURM_", "SLURMD_", "SRUN_", "TORCHELASTIC_", "TORCHX_", "WORLD_SIZE",
)  # fmt: skip
_JOBS = ("COBALT_JOBID", "FLUX_JOB_ID", "LSB_JOBID", "PBS_JOBID", "SGE_TASK_ID", "SLURM_JOB_ID")
_TEMPORARY = ("TMPDIR", "TMP", "TEMP")
# What one process has chosen for itself: threads, cores, how it debugs, its seed and folder.
_OF_ONE_PROCESS = (
    "BLIS_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "GOMP_CPU_AFFINITY", "GOTO_NUM_THREADS",
    "KMP_AFFINITY", "KMP_BLOCKTIME", "KMP_HW_SUBSET", "MKL_DOMAIN_NUM_THREADS", "MKL_DYNAMIC",
    "MKL_NUM_THREADS", "NUMBA_NUM_THREADS", "NUMEXPR_MAX_THREADS", "NUMEXPR_NUM_THREADS", "OLDPWD",
    "OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_NESTED", "OMP_NUM_THREADS", "OMP_PLACES",
    "OMP_PROC_BIND", "OMP_SCHEDULE", "OMP_STACKSIZE", "OMP_THREAD_LIMIT", "OMP_WAIT_POLICY",
    "OPENBLAS_NUM_THREADS", "PL_GLOBAL_SEED", "PL_SEED_WORKERS", "POLARS_MAX_THREADS", "PWD",
    "RAYON_NUM_THREADS", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TORCH_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)  # fmt: skip
# How Python runs, which a program sets for its own debugging.
_OF_PYTHON = (
    "PYTHONASYNCIODEBUG", "PYTHONBREAKPOINT", "PYTHONDEBUG", "PYTHONDEVMODE", "PYTHONFAULTHANDLER",
    "PYTHONHASHSEED", "PYTHONINSPECT", "PYTHONMALLOC", "PYTHONMALLOCSTATS", "PYTHONOPTIMIZE",
    "PYTHONPROFILEIMPORTTIME", "PYTHONTRACEMALLOC", "PYTHONVERBOSE", "PYTHONWARNINGS",
)  # fmt: skip
# The notebook, kernel or tracker run that the process belonged to.
_OF_ONE_RUN = (
    "CLEARML_PROC_MASTER_ID", "CLEARML_TASK_ID", "COMET_EXPERIMENT_KEY", "JPY_",
    "MLFLOW_NESTED_RUN", "MLFLOW_PARENT_RUN_ID", "MLFLOW_RUN_ID", "MLFLOW_RUN_NAME", "MPLBACKEND",
    "NEPTUNE_CUSTOM_RUN_ID", "NEPTUNE_RUN_ID", "WANDB_JOB_TYPE", "WANDB_NAME", "WANDB_NOTES",
    "WANDB_RESUME", "WANDB_RUN_GROUP", "WANDB_RUN_ID", "WANDB_SERVICE", "WANDB_SWEEP_ID",
    "WANDB_TAGS",
)  # fmt: skip
_OWN = _OF_LAUNCHERS + _OF_ONE_PROCESS + _OF_PYTHON + _OF_ONE_RUN

_AGAIN = (
    "; `python -m det_jupyter.master stop --everything`, and start it from a shell that is not "
    "limited so"
)
_FEW = 4096  # files or processes: training may need this many
_SCORE = "/proc/{}/oom_score_adj"
# Score for the kernel's choice of what to kill, of 1000; desktops give programs up to 200.
_MUCH = 300
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}


@dataclass(frozen=True, slots=True)
class _Limit:
    """A limit that training can reach, with its names in the kernel, messages and `ulimit`."""

    kind: int
    kernels: str
    readers: str
    ulimit: str
    enough: int = resource.RLIM_INFINITY
    is_raised: bool = True


_LIMITS = (
    _Limit(resource.RLIMIT_NOFILE, "Max open files", "open files", "-n", _FEW),
    _Limit(resource.RLIMIT_NPROC, "Max processes", "processes and threads", "-u", _FEW),
    _Limit(resource.RLIMIT_AS, "Max address space", "bytes of address space", "-v"),
    _Limit(resource.RLIMIT_DATA, "Max data size", "bytes of data", "-d"),
    _Limit(resource.RLIMIT_FSIZE, "Max file size", "bytes in a file", "-f"),
    _Limit(resource.RLIMIT_CPU, "Max cpu time", "seconds of CPU time", "-t"),
    _Limit(resource.RLIMIT_MEMLOCK, "Max locked memory", "bytes of locked memory", "-l", 0),
    _Limit(
        resource.RLIMIT_STACK, "Max stack size", "bytes of stack", "-s", 8 << 20, is_raised=False
    ),
)
# These soft limits are not raised to the hard ones: core files would be written, and each thread
# would get a stack of the largest size.
_AS_THE_COMPUTER = {
    resource.RLIMIT_STACK: "Max stack size",
    resource.RLIMIT_CORE: "Max core file size",
}


def start_clean(*, keeps_share: bool = False) -> None:
    """Undo what this process has inherited from its starter alone, as far as that is allowed.

    To be called before any thread is started.

    Args:
        keeps_share: Whether to keep cores, priority and signals: to an agent that a user starts by
            hand or in a job, they were given on purpose.
    """
    _open_streams()
    os.umask(UMASK)
    os.chdir(paths.data_dir())
    if not keeps_share:
        _use_all_cores(is_in_job=JOB_CORES_VARIABLE in os.environ)
        _use_usual_priority()
        _take_signals()
        if any(name in os.environ for name in _JOBS):
            for name in _TEMPORARY:
                os.environ.pop(name, None)
    _raise_limits()
    remove_own(os.environ)


def remove_own(environ: MutableMapping[str, str]) -> None:
    """Remove the variables that belong to one process, task or run.

    >>> environ = {"PATH": "/bin", "SLURM_NTASKS": "2", "RANK": "1", "RANKING": "x"}
    >>> remove_own(environ)
    >>> environ
    {'PATH': '/bin', 'RANKING': 'x'}
    """
    for name in list(environ):
        is_own = any(name == own or (own.endswith("_") and name.startswith(own)) for own in _OWN)
        if is_own and name != JOB_CORES_VARIABLE:
            del environ[name]


def own_umask() -> int:
    """Return the umask of this process."""
    for line in _lines("/proc/self/status"):
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    mask = os.umask(UMASK)  # for a moment, files of other threads are created with this umask
    os.umask(mask)
    return mask


def find_remains() -> list[str]:
    """Return a sentence for each inherited property that reaches trials and could not be undone.

    Called in the agent, whose properties its ranks inherit.
    """
    return [*_priority_remains(), *_limit_remains()]


def _open_streams() -> None:
    """Open closed standard streams: other files must not get their numbers, which forks keep."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


def _use_all_cores(*, is_in_job: bool) -> None:
    if hasattr(os, "sched_setaffinity") and not is_in_job:
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setaffinity(0, range(_MOST_CORES))


def _use_usual_priority() -> None:
    with suppress(OSError):  # only root raises a priority that was lowered
        if os.getpriority(os.PRIO_PROCESS, 0):
            os.setpriority(os.PRIO_PROCESS, 0, 0)
    with suppress(OSError, AttributeError):  # macOS has no scheduling classes
        if os.sched_getscheduler(0) != os.SCHED_OTHER:
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    with suppress(OSError):  # only root goes below what root has set
        if _out_of_memory_score("self") > 0:
            Path(_SCORE.format("self")).write_text("0", encoding="ascii")


def _out_of_memory_score(pid: str) -> int:
    """Return the `oom_score_adj` of a process: at most 1000, which is killed first."""
    return int(next(iter(_lines(_SCORE.format(pid))), "0"))


def _take_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - _IGNORED_BY_PYTHON:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # It was ignored, as in a background job of a shell.
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _raise_limits() -> None:
    highest = _highest_limits()
    for limit in _LIMITS:
        if not limit.is_raised:
            continue
        _, hard = resource.getrlimit(limit.kind)
        for wanted in (_higher(hard, highest.get(limit.kernels, hard)), hard):
            # Only root raises a hard limit; macOS has one of files below its "unlimited".
            with suppress(OSError, ValueError):
                resource.setrlimit(limit.kind, (wanted, wanted))
                break
    usual = _limits_of("1")
    for kind, kernels in _AS_THE_COMPUTER.items():
        if kernels in usual:
            soft, (_, hard) = usual[kernels][0], resource.getrlimit(kind)
            with suppress(OSError, ValueError):
                resource.setrlimit(kind, (hard if _higher(soft, hard) == soft else soft, hard))


def _priority_remains() -> Iterator[str]:
    if (nice := os.getpriority(os.PRIO_PROCESS, 0)) > 0:
        yield f"trials run with low priority (nice {nice}), which the agent has inherited{_AGAIN}"
    if sys.platform == "linux" and os.sched_getscheduler(0) != os.SCHED_OTHER:
        yield f"trials run in another scheduling class, which the agent has inherited{_AGAIN}"
    score = _out_of_memory_score("self")
    lowest = min(map(_out_of_memory_score, _own_pids()), default=score)
    if score - max(lowest, 0) >= _MUCH:  # root's servers are spared, with -1000
        yield (
            f"where memory runs out, trials are ended before other processes of yours "
            f"(oom_score_adj {score}), which the agent has inherited{_AGAIN}"
        )


def _limit_remains() -> Iterator[str]:
    highest = _highest_limits()
    for limit in _LIMITS:
        soft, _ = resource.getrlimit(limit.kind)
        most = highest.get(limit.kernels, soft)
        if _higher(soft, most) != soft and _higher(soft, limit.enough) != soft:
            usual = "any number" if most == resource.RLIM_INFINITY else f"{most:,}"
            yield (
                f"trials can have {soft:,} {limit.readers}, which the agent has inherited (ulimit "
                f"{limit.ulimit}); other processes of yours can have {usual}{_AGAIN}"
            )


def _highest_limits() -> dict[str, int]:
    """Return the highest hard limits of this user's processes, by the kernel's names.

    These are the limits that a login gives."""
    found: dict[str, int] = {}
    for pid in _own_pids():
        limits = _limits_of(pid)
        for name, (_, hard) in limits.items():
            found[name] = _higher(found.get(name, hard), hard)
    return found


def _own_pids() -> Iterator[str]:
    with suppress(OSError):
        for entry in os.scandir("/proc"):
            with suppress(OSError):  # it has ended meanwhile
                if entry.name.isdecimal() and entry.stat().st_uid == os.geteuid():
                    yield entry.name


def _limits_of(pid: str) -> dict[str, tuple[int, int]]:
    """Return soft and hard limits of a process, by the kernel's names."""
    found = {}
    for line in _lines(f"/proc/{pid}/limits"):
        words = line[:25].strip()
        values = line[25:].split()[:2]
        if len(values) == 2 and values[0] != "Soft":
            soft, hard = (
                resource.RLIM_INFINITY if value == "unlimited" else int(value) for value in values
            )
            found[words] = (soft, hard)
    return found


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # no such process, another system, or a sandbox
        return []


def _higher(one: int, other: int) -> int:
    return resource.RLIM_INFINITY if resource.RLIM_INFINITY in (one, other) else max(one, other)
