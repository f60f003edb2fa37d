"""The kinds of failure of a trial, and the report that is expected for each.

A row puts code into `tests/placed_trial.py`. The report has to name the line that ends in `#
here`.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from typing import Any

from tests.placed_trial import placed

BATCH = 3  # the batch in which the code at train_batch runs
FILE = "<ipython-input-5-crashing>"
LABEL = "Cell In[5]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """A kind of failure, and the expected report.

    Args:
        name: The kind.
        code: Code by its place.
        error: Pattern of the error; None: the trial completes.
        where: The function whose line `# here` is named; "": no line is named.
        exit_code: Exit code of the rank that is named.
        batch: The batch that is named.
        rank: The rank that runs the code at train_batch, and is named.
        ranks: The number of ranks.
        workers: Loader workers of each rank.
        restarts: max_restarts of the trial.
        times: How often the failure has occurred in a row when the trial is given up.
        notice: Pattern of a notice of the trial.
        changes: Changes of the configuration.
    """

    name: str
    code: dict[str, str] = field(default_factory=dict)
    error: str | None = None
    where: str = ""
    exit_code: int = 1
    batch: int | None = None
    rank: int = 0
    ranks: int = 1
    workers: int = 0
    restarts: int = 0
    times: int = 1
    notice: str = ""
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The source of the trial."""
        return placed(self.code, batch=BATCH, rank=self.rank, workers=self.workers)

    @property
    def place(self) -> str:
        """The place as the report names it; "" if it is not known."""
        if not self.where:
            return ""
        lines = self.source.splitlines()
        mark = "# here" if any(line.endswith("# here") for line in lines) else "# method"
        (here,) = [number for number, line in enumerate(lines, 1) if line.endswith(mark)]
        return f"{LABEL}, line {here}, in {self.where}"

    @property
    def config(self) -> dict[str, Any]:
        """The configuration: 8 batches of 4 records for each rank."""
        return {
            "name": self.name,
            "hyperparameters": {"global_batch_size": 4 * self.ranks},
            "searcher": {"name": "single", "metric": "error", "max_length": {"batches": 8}},
            "min_validation_period": {"batches": 8},
            "resources": {"slots_per_trial": self.ranks},
            "max_restarts": self.restarts,
            "profiling": {"enabled": False},
        } | self.changes


def raising(place: str, where: str, batch: int | None = None, **changes: Any) -> Crash:
    workers = " in a loader worker" if changes.get("workers") else ""
    return Crash(
        name=f"an exception in {place}{workers}",
        code={place: 'raise KeyError("lost")  # here'},
        error="^KeyError: 'lost'$",
        where=where,
        batch=batch,
        **changes,
    )


def training(name: str, *lines: str, error: str | None, **changes: Any) -> Crash:
    has_line = any(line.endswith("# here") for line in lines)
    said = {"where": "train_batch" if has_line else "", "batch": BATCH} | changes
    return Crash(name=name, code={"train_batch": "\n".join(lines)}, error=error, **said)


def killed(number: signal.Signals, *lines: str, name: str = "", **changes: Any) -> Crash:
    rank = changes.get("rank", 0)
    by = r" \(by hand.*\)" if number == signal.SIGKILL else ""
    error = rf"^rank {rank} was killed by {number.name}{by} in batch {BATCH}"
    name = name or f"killed by {number.name}"
    return training(name, *lines, error=error, exit_code=-number, **changes)


def worker(name: str, *lines: str, error: str, **changes: Any) -> Crash:
    return Crash(name=name, code={"record": "\n".join(lines)}, error=error, **changes)


SEGFAULT = "ctypes.string_at(0)  # here"
HOOKED = (
    "def hook(gradient):",
    "    raise KeyError('lost')  # here",
    "y = self.model(x).sum()",
    "y.register_hook(hook)",
    "y.backward()",
)
OVERFLOW = (
    "sys.setrecursionlimit(10**8)",
    "def deeper(_): list(map(deeper, [0]))  # here",
    "deeper(0)",
)
GONE_PAGES = (
    "import mmap, tempfile",
    "file = tempfile.TemporaryFile()",
    "file.truncate(4096)",
    "pages = mmap.mmap(file.fileno(), 4096)",
    "file.truncate(0)",
    "pages[0]  # here",
)
LARGE_FILE = (
    "import tempfile",
    "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))",
    "tempfile.TemporaryFile(buffering=0).truncate(1 << 21)  # here",
)
IN_THREAD = (
    "def work():",
    "    {}  # here",
    "threading.Thread(target=work, name='feeder').start()",
    "time.sleep({})",
)


def in_thread(act: str, sleep_s: float) -> tuple[str, ...]:
    return tuple(line.format(act if "here" in line else sleep_s) for line in IN_THREAD)


# torch's own text where its handler of SIGCHLD raises outside of the loader.
WORKER = r"^(loader worker 0 of rank 0|RuntimeError: DataLoader worker) \(pid(\(s\))? \d+\)"
UNSENT = (
    "return DataLoader(Records(0), 4, num_workers=1, collate_fn=lambda records: threading.Lock())"
)
KINDS = [
    raising("init", "__init__", restarts=5),
    raising("build training", "build_training_data_loader"),
    raising("build validation", "build_validation_data_loader"),
    raising("train_batch", "train_batch", BATCH, restarts=5, times=2),
    raising("evaluate_batch", "evaluate_batch", 7),
    raising("callback", "on_training_epoch_start", 0),
    raising("callback after validation", "on_validation_end", 7),
    raising("checkpoint", "state_dict", 7),
    raising("record", "__getitem__"),
    raising("record", "__getitem__", workers=1),
    training("an error in rank 1", "1 / 0  # here", error="^ZeroDivisionError", rank=1, ranks=2),
    Crash(
        name="an error while a checkpoint is loaded",
        code={
            "load": "raise KeyError('lost')  # here",
            "train_batch": "time.sleep(0.5); os._exit(5)",
        },
        error="^KeyError: 'lost'$",
        where="load_state_dict",
        restarts=1,
        changes={"min_checkpoint_period": {"batches": 1}},
    ),
    training(
        "an error in a thread",
        *in_thread("1 / 0", 0),
        error=None,
        notice=r"the thread 'feeder' ended with ZeroDivisionError: division by zero \(Cell In",
    ),
    killed(
        signal.SIGSEGV, *in_thread(SEGFAULT[:19], 60), name="a segfault in a thread", where="work"
    ),
    training("sys.exit(0)", "sys.exit(0)  # here", error="^SystemExit: 0$"),
    training(
        "os._exit(0)",
        "os._exit(0)",
        error="^rank 0 ended with exit code 0 in batch 3, before the trial was over",
        exit_code=0,
    ),
    training(
        "os._exit(3) in rank 1",
        "os._exit(3)",
        error="^rank 1 ended with exit status 3 in batch 3",
        exit_code=3,
        rank=1,
        ranks=2,
    ),
    training(
        "exec", "os.execv('/bin/true', ['true'])", error="or became another program", exit_code=0
    ),
    killed(signal.SIGSEGV, SEGFAULT, restarts=5, times=2),
    killed(signal.SIGSEGV, SEGFAULT, name="a segfault in rank 1", rank=1, ranks=2),
    killed(signal.SIGABRT, "os.abort()  # here"),
    killed(signal.SIGBUS, *GONE_PAGES),
    killed(signal.SIGKILL, "os.kill(os.getpid(), signal.SIGKILL)", restarts=5, times=3),
    killed(signal.SIGHUP, "os.kill(os.getpid(), signal.SIGHUP)"),
    killed(signal.SIGSEGV, *OVERFLOW, name="a stack overflow in C", where="deeper"),
    training(
        "ulimit -v",
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))",
        "bytearray(1 << 30)  # here",
        error="^MemoryError",
    ),
    training(
        "ulimit -n",
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
        "open('/dev/null')  # here",
        error="^OSError: .*Too many open files",
    ),
    training("ulimit -f", *LARGE_FILE, error="^OSError: .*File too large"),
    training(
        "a closed descriptor of everything",
        "os.closerange(0, 999); raise KeyError",
        error="^rank 0 ended with exit status 1 in batch 3",
    ),
    training(
        "closed streams",
        "sys.stderr = sys.stdout = None",
        "os.close(2)",
        "1 / 0  # here",
        error="^ZeroDivisionError",
    ),
    training(
        "NaN",
        "x = x * float('nan')",
        error="^train_batch: loss became NaN at batch 3 on rank 0; on_nan_loss is stop",
        where="train_batch",
        batch=7,
        changes={"on_nan_loss": "stop"},
    ),
    training("StopIteration", "raise StopIteration  # here", error="^StopIteration$"),
    training("an error in a hook of autograd", *HOOKED, error="^KeyError: 'lost'$", where="hook"),
    training(
        "an error in __del__",
        "class Left:",
        "    def __del__(self): raise KeyError",
        "Left()",
        error=None,
    ),
    training("a fork that raises", "if os.fork() == 0: raise KeyError", error=None),
    training(
        "a thread that never ends",
        "threading.Thread(target=time.sleep, args=(600,)).start()",
        error=None,
    ),
    training(
        "an exit handler that hangs",
        "import atexit",
        "atexit.register(time.sleep, 600)",
        error=None,
    ),
    worker(
        "a loader worker killed",
        "if index == 2: os.kill(os.getpid(), 9)",
        error=rf"{WORKER} (was killed by SIGKILL|is killed by signal: Killed.)$",
        workers=2,
    ),
    worker(
        "a loader worker that crashes",
        "if index == 2: ctypes.string_at(0)  # here",
        error=rf"{WORKER} (was killed by SIGSEGV|is killed by signal: Segmentation fault.)$",
        where="__getitem__",
        workers=2,
    ),
    worker(
        "a loader worker that exits",
        "if index == 2: os._exit(3)",
        error=rf"{WORKER} exited (with code 3|unexpectedly)",
        workers=2,
    ),
    Crash(
        name="a batch that cannot be sent",
        code={"build training": UNSENT},
        error="^TypeError: a loader worker cannot send its batch to the rank: .*cannot pickle",
    ),
    Crash(
        name="an exception of the cell's in a loader worker",
        workers=1,
        where="__getitem__",
        error="^Mine: m$",
        code={
            "globals": "class Mine(Exception): pass",
            "record": "if index == 2: raise Mine('m')  # here",
        },
    ),
]
