"""The kinds of stall, and of what only looks like one, for hang_doctor.py: as trials' source."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.placed_trial import placed

AT = 30  # the batch in which it happens
CELL = "<ipython-input-12-hang>"  # the file of the cell, as IPython names it

_GLOBALS = """
def busy(seconds):
    end = time.time() + seconds
    while time.time() < end:
        sum(range(1000))


def train(context):
    rank = context.distributed.rank
    for step in range(1, 1000):
        time.sleep(0.02)
        if rank == 1 and step == {at}:
            break
        dist.all_reduce(torch.ones(4))
        if rank == 0:
            context.train.report_training_metrics(step, {{"loss": 1.0}})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of stall, or of what looks like one.

    Args:
        act: Code of `train_batch`, run by rank 1 in batch AT.
        by: The rank that runs it; None: both.
        item: Code of the data set's `__getitem__`.
        workers: Processes of each data loader.
        words: What has to be said, all of it; (): nothing may be said.
        entrypoint: The class, or the function.
        freezes: What the benchmark stops for 12 s: "gang", or "all" with the agent.
    """

    name: str
    act: str = "pass"
    by: int | None = 1
    item: str = "pass"
    workers: int = 0
    words: tuple[str, ...] = ()
    entrypoint: str = "PlacedTrial"
    freezes: str = ""
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The cell."""
        code = {
            "globals": _GLOBALS.format(at=AT),
            "each batch": "time.sleep(0.02)",
            "train_batch": self.act,
            "record": self.item,
        }
        return placed(code, batch=AT, rank=self.by, workers=self.workers, size=512)


_WAITS = ("rank 0 waits for it in all_reduce", f"batch {AT}")
_IN_WORKER = "if self.rank == 1 and self.num == 300:\n "

STALLS = [
    Kind(
        name="sleep in one rank",
        act="time.sleep(1000)",
        words=("rank 1 has been in `time.sleep` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="deadlocked loader",
        item=f"{_IN_WORKER}lock = threading.Lock(); lock.acquire()\n lock.acquire()",
        workers=1,
        words=(
            "rank 1 has been waiting for its data loader, whose worker (process ",
            "is in `lock.acquire` (cell 12, line ",
            "rank 0 waits for it",
        ),
    ),
    Kind(
        name="read of a FIFO",
        act="path = tempfile.mktemp()\nos.mkfifo(path)\nfile = open(path)",
        words=("rank 1 has been in `open` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="lock",
        act="lock = threading.Lock()\nlock.acquire()\nlock.acquire()",
        words=("rank 1 has been in `lock.acquire` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="GIL held",
        act="library, (end, _) = ctypes.PyDLL(None), os.pipe()\nlibrary.read(end, bytes(1), 1)",
        words=(
            "rank 1 has been in `library.read(end, bytes(1), 1)` (cell 12, line ",
            "holds the GIL",
            *_WAITS,
        ),
    ),
    Kind(
        name="SIGSTOP of one rank",
        act="os.kill(os.getpid(), signal.SIGSTOP)",
        words=("rank 1 has been stopped by a signal or a debugger", *_WAITS),
    ),
    Kind(
        name="extra collective",
        act="dist.all_reduce(torch.ones(5))",  # not as long as the gradients, which are 3 numbers
        words=("rank 1 entered all_reduce [5] float32 where rank 0 entered another collective",),
    ),
    Kind(
        name="other shape",
        by=None,
        act="dist.all_reduce(torch.ones(4 - self.rank))",
        words=("rank 1 entered all_reduce [3]", "where rank 0 entered all_reduce [4]"),
    ),
    Kind(
        name="a rank leaves the loop early",
        entrypoint="train",
        words=("rank 0 in all_reduce", "rank 1 in barrier"),
    ),
    Kind(
        name="socket without an answer",
        act="one, other = socket.socketpair()\none.recv(1)",
        words=("rank 1 has been in `one.recv` (cell 12, line ", *_WAITS),
    ),
]

_S = 12  # seconds that each of these takes
_SENDS = (
    "import time,sys\\nfor i in range(36):\\n time.sleep({} / 36)\\n sys.stdout.write('x' * 1000)"
    "\\n sys.stdout.flush()"
)
_DOWNLOAD = (
    f'p = subprocess.Popen([sys.executable, "-c", "{_SENDS.format(_S)}"], '
    "stdout=subprocess.PIPE); p.stdout.read()"
)
_COMPILES = (
    'subprocess.run([sys.executable, "-c", '
    f'"import time\\nend = time.time() + {_S}\\nwhile time.time() < end: sum(range(1000))"])'
)
_WRITES = (
    f"end = time.time() + {_S}; f = tempfile.TemporaryFile(); "
    "[(f.seek(0), f.write(bytes(1 << 20)), f.flush(), os.fsync(f.fileno())) "
    "for _ in iter(lambda: time.time() < end, False)]"
)
_DEBUGS = (
    "r, w = os.pipe(); "
    f"threading.Timer({_S}, lambda: os.write(w, b'c\\n')).start(); "
    "pdb.Pdb(stdin=os.fdopen(r), stdout=sys.stdout).set_trace()"
)

LOOK_ALIKES = [
    Kind(name="long validation on the chief", by=0, act=f"busy({_S})"),
    Kind(name="long checkpoint on the chief", by=0, act=_WRITES),
    Kind(name="slow download", act=_DOWNLOAD),
    Kind(name="compilers in other processes", act=_COMPILES),
    Kind(name="debugger", act=_DEBUGS),
    Kind(name="slow loader", item=f"{_IN_WORKER}busy({_S})", workers=1),
    Kind(name="computer suspended", freezes="all"),
    Kind(name="whole gang stopped by a user", freezes="gang"),
]
