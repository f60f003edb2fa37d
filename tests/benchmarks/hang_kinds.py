"""The kinds of stall, and of look-alikes, for hang_doctor.py: source code of trials."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from det_jupyter.agent.hangs.looking import spy
from tests.placed_trial import placed

AT = 30  # the batch in which the stall happens
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


def make_model(context):
    if context.distributed.rank == 1:
        time.sleep(1000)
    nn.parallel.DistributedDataParallel(nn.Linear(2, 1))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of stall, or of a look-alike.

    Args:
        act: Code of `train_batch`, run by rank 1 in batch AT.
        by: The rank that runs the code; None: both.
        item: Code of the data set's `__getitem__`.
        workers: Processes of each data loader.
        places: Code at other places of tests/placed_trial.py.
        words: Words that the report must contain; (): there must be no report.
        entrypoint: The class or function to submit.
        lasts_s: Seconds after which the stall ends by itself; the trial must not be disturbed.
        is_at_start: Whether the stall happens before batch AT.
        cell: Code that the benchmark runs in the kernel of rank 1.
        freezes: The processes that the benchmark stops for 12 s: "gang", or "all" with the agent.
    """

    name: str
    act: str = "pass"
    by: int | None = 1
    item: str = "pass"
    workers: int = 0
    places: dict[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    entrypoint: str = "PlacedTrial"
    lasts_s: float = 0.0
    is_at_start: bool = False
    cell: str = ""
    freezes: str = ""
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """The source of the cell."""
        code = {
            "globals": _GLOBALS.format(at=AT),
            "each batch": "time.sleep(0.02)",
            "train_batch": self.act,
            "record": self.item,
            **self.places,
        }
        return placed(code, batch=AT, rank=self.by, workers=self.workers, size=512)


_HAS_PY_SPY = bool(spy(os.getpid()))
_WAITS = ("rank 0 waits for it in all_reduce", f"batch {AT}")
_LOCK = "lock = threading.Lock()\nlock.acquire()\nlock.acquire()"
_CHILD_WAKES = "import time\nwhile True:\n time.sleep(0.3)\n sum(range(20000))"
_IN_WORKER = "if self.rank == 1 and self.num == 300:\n "


def _held(call: str) -> str:
    """Return the report on C code that holds the GIL: without py-spy its line is not known."""
    return f"rank 1 has been in `{call}` (cell 12, line " if _HAS_PY_SPY else "in C code"


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
        words=(_held("library.read(end, bytes(1), 1)"), "holds the GIL", *_WAITS),
    ),
    Kind(
        name="GIL held in a poll of C",
        act="answer = ctypes.PyDLL(None).poll(None, 0, 20000)\nassert answer == 0, answer",
        words=(
            _held("answer = ctypes.PyDLL(None).poll(None, 0, 20000)"),
            "holds the GIL",
            *_WAITS,
        ),
        lasts_s=20,
    ),
    Kind(
        name="SIGSTOP of one rank",
        act="os.kill(os.getpid(), signal.SIGSTOP)",
        words=("rank 1 has been stopped by a signal or a debugger", *_WAITS),
    ),
    Kind(
        name="extra collective",
        # Another size than the gradients, which are 3 numbers.
        act="dist.all_reduce(torch.ones(5))",
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
    Kind(
        name="polls a file",
        act="while not os.path.exists('/no/such/file'):\n time.sleep(0.5)",
        words=("rank 1 has been in `time.sleep` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="polls a file often",
        act="while not os.path.exists('/no/such/file'):\n time.sleep(0.005)",
        words=("rank 1 has been in `time.sleep` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="polls an event",
        act="event = threading.Event()\nwhile not event.wait(1):\n pass",
        words=("rank 1 has been in `event.wait` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="polls a queue",
        act=(
            "import queue\nitems = queue.Queue()\nwhile True:\n try:\n  items.get(timeout=0.2)\n"
            "  break\n except queue.Empty:\n  continue"
        ),
        words=("rank 1 has been in `items.get` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="lock beside a prefetch thread",
        act=(
            "import queue\nitems = queue.Queue(1)\ndef prefetch():\n while True:\n  try:\n"
            "   items.put(1, timeout=0.1)\n  except queue.Full:\n   pass\n"
            f"threading.Thread(target=prefetch, daemon=True).start()\n{_LOCK}"
        ),
        words=("rank 1 has been in `lock.acquire` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="lock beside a child that wakes",
        act=f"subprocess.Popen([sys.executable, '-c', {_CHILD_WAKES!r}])\n{_LOCK}",
        words=("rank 1 has been in `lock.acquire` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="waits beside a busy thread",
        by=None,
        act=(
            "if self.rank == 0:\n threading.Thread(target=busy, args=(60,), daemon=True).start()\n"
            "else:\n time.sleep(1000)"
        ),
        words=("rank 1 has been in `time.sleep` (cell 12, line ", *_WAITS),
    ),
    Kind(
        name="stall before DDP is made",
        places={"init": "if context.distributed.rank == 1: time.sleep(1000)"},
        words=(
            "rank 1 has been in `time.sleep` (cell 12, line ",
            "rank 0 waits for it in all_gather",
        ),
        is_at_start=True,
    ),
    Kind(
        name="stall before DDP is made, in a function",
        entrypoint="make_model",
        words=(
            "rank 1 has been in `time.sleep` (cell 12, line ",
            "rank 0 waits for it in all_gather",
        ),
        is_at_start=True,
    ),
    Kind(
        name="stopped loader worker",
        item=f"{_IN_WORKER}os.kill(os.getpid(), signal.SIGSTOP)",
        workers=1,
        words=(
            "rank 1 has been waiting for its data loader, whose worker (process ",
            ") is stopped by a signal or a debugger",
            "rank 0 waits for it",
        ),
    ),
]

_S = 12  # seconds that each look-alike takes
_PYTHON = "[sys.executable, '-c', {!r}]"
_SERVES = (
    "import socket,sys,time\n"
    "server = socket.create_server(('127.0.0.1', 0))\n"
    "print(server.getsockname()[1], flush=True)\n"
    "there, _ = server.accept()\n"
    f"for i in range({_S * 4}):\n time.sleep(0.25)\n there.sendall(bytes(1000))\n"
)
_FETCHES = (
    f"p = subprocess.Popen({_PYTHON.format(_SERVES)}, stdout=subprocess.PIPE)\n"
    "here = socket.create_connection(('127.0.0.1', int(p.stdout.readline())))\n"
    "here.settimeout(5)\n"
)
_FILE_GROWS = (
    "def fetch(done):\n"
    " with tempfile.TemporaryFile(buffering=0) as file:\n"
    f"  for i in range({_S * 4}):\n   time.sleep(0.25)\n   file.write(bytes(1000))\n"
    " done.set()\n"
    "done = threading.Event()\n"
    "threading.Thread(target=fetch, args=(done,)).start()\n"
    "done.wait()"
)
_CHILD_COPIES = (
    "import tempfile,time\nfile = tempfile.TemporaryFile(buffering=0)\n"
    f"for i in range({_S * 4}):\n time.sleep(0.25)\n file.write(bytes(1000))\n"
)
_CHILD_BUSY = "import time\nend = time.time() + {}\nwhile time.time() < end: sum(range(1000))"
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
# Python's own compiler is C code that holds the GIL.
_COMPILES_HERE = (
    f"end = time.time() + {_S}\nwhile time.time() < end:\n"
    " compile('x = [i + 1 for i in range(9)]\\n' * 60000, 'cell', 'exec')"
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
    Kind(
        name="polls a child that computes",
        act=(
            f"p = subprocess.Popen({_PYTHON.format(_CHILD_BUSY.format(_S))})\n"
            "while p.poll() is None:\n time.sleep(0.5)"
        ),
    ),
    Kind(
        name="many short children",
        act=(
            f"end = time.time() + {_S}\n"
            f"while time.time() < end:\n subprocess.run({_PYTHON.format(_CHILD_BUSY.format(0.2))})"
        ),
    ),
    Kind(name="download by a thread to a file", act=_FILE_GROWS),
    Kind(
        name="download from a socket",
        act=f"{_FETCHES}while here.recv(100):\n pass",
    ),
    Kind(
        name="download by another thread",
        act=(
            f"{_FETCHES}def fetch():\n while here.recv(100):\n  pass\n"
            "thread = threading.Thread(target=fetch)\nthread.start()\n"
            "while thread.is_alive():\n thread.join(0.5)"
        ),
    ),
    Kind(
        name="child that copies",
        act=f"p = subprocess.Popen({_PYTHON.format(_CHILD_COPIES)})\nassert p.wait() == 0",
    ),
    Kind(
        name="slow fetch before the first batch",
        places={"build training": "if self.rank == 1: time.sleep(15)"},
        is_at_start=True,
    ),
    Kind(
        name="slow first batch",
        places={"each batch": "if batch_idx == 0 and self.rank == 1: time.sleep(15)"},
        is_at_start=True,
    ),
    Kind(
        name="long validation",
        places={"evaluate_batch": f"busy({_S} / 16)"},
        config={"min_validation_period": {"batches": AT}},
    ),
    Kind(name="big compile", act=_COMPILES_HERE),
    Kind(
        name="sleeping rank kernel",
        places={"each batch": "time.sleep(0.2)"},
        cell=f"import time; time.sleep({_S})",
    ),
    Kind(
        name="prints while it waits",
        act=f"for i in range({_S}):\n print('waiting', i, flush=True)\n time.sleep(1)",
    ),
]
