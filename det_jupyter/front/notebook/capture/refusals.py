"""Types of objects that cannot be sent to the ranks, and what to do instead.

Types are looked up by qualified name along the method resolution order: that recognises
subclasses, and imports nothing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaptureRefusal:
    """Why objects of a type cannot be sent; the remedy has `{trial}` for the trial's name."""

    reason: str
    remedy: str


class CaptureRefused(Exception):
    """Raised while pickling when an object of a refused type is met."""

    def __init__(self, refusal: CaptureRefusal) -> None:
        self.refusal = refusal
        super().__init__(refusal.reason)


_MAKE = "make it in {trial}.__init__ instead"
_OPEN = "open it in {trial}.__init__ instead"
_DATABASE = CaptureRefusal("a database connection belongs to this process", _OPEN)
_HANDLE = CaptureRefusal(
    "it is a handle of this notebook",
    "give the trial what it needs from it as a hyperparameter or a plain value",
)
BY_NAME_ONLY = CaptureRefusal(
    "pickle knows it only by its name in this notebook",
    "define it in a module beside the notebook",
)
_TYPES: dict[CaptureRefusal, str] = {
    CaptureRefusal("an open file belongs to this process", _OPEN): "_io._IOBase",
    CaptureRefusal("a socket belongs to this process", _OPEN): "_socket.socket",
    _DATABASE: "sqlite3.Connection sqlite3.Cursor",
    CaptureRefusal("a generator runs once, in this process", _MAKE): (
        "builtins.generator builtins.async_generator"
    ),
    CaptureRefusal("a running coroutine belongs to this process", _MAKE): (
        "builtins.coroutine _asyncio.Future asyncio.futures.Future"
    ),
    CaptureRefusal("a lock works only among the threads of this process", _MAKE): (
        "_thread.lock _thread.RLock threading.Condition threading.Semaphore"
    ),
    CaptureRefusal(
        "an event works only among the threads of this process", _MAKE
    ): "threading.Event",
    CaptureRefusal("threads and what ties them together belong to this process", _MAKE): (
        "threading.Barrier threading.Thread _thread._local concurrent.futures._base.Executor "
        "concurrent.futures._base.Future"
    ),
    CaptureRefusal("a queue works only inside this process", _MAKE): (
        "queue.Queue _queue.SimpleQueue multiprocessing.queues.Queue "
        "multiprocessing.queues.SimpleQueue"
    ),
    CaptureRefusal("it belongs to this process and its children", _MAKE): (
        "subprocess.Popen multiprocessing.connection._ConnectionBase "
        "multiprocessing.managers.BaseManager multiprocessing.pool.Pool "
        "multiprocessing.process.BaseProcess multiprocessing.synchronize.Event "
        "multiprocessing.synchronize.Condition multiprocessing.synchronize.SemLock"
    ),
    CaptureRefusal(
        "an iterator over a DataLoader is tied to its workers in this process",
        "leave it out, and return the DataLoader from build_training_data_loader",
    ): "torch.utils.data.dataloader._BaseDataLoaderIter",
    CaptureRefusal("a CUDA stream or event belongs to this process", _MAKE): (
        "torch.Stream torch.Event torch.cuda.streams.Stream torch.cuda.streams.Event"
    ),
    CaptureRefusal(
        "it is the notebook's own shell", "the ranks have none: leave it out of the trial"
    ): "IPython.core.interactiveshell.InteractiveShell",
    CaptureRefusal("a widget belongs to this notebook", "report metrics instead"): (
        "ipywidgets.widgets.widget.Widget anywidget.widget.AnyWidget"
    ),
}
_REFUSED = {name: refusal for refusal, names in _TYPES.items() for name in names.split()}
_ALLOWED = {"_io.BytesIO", "_io.StringIO"}  # files in memory only
_HANDLE_MODULES = ("client.", "connection.", "front.")
# Nearly all database drivers use these names for classes, none of which can be pickled.
_DATABASE_NAMES = ("connection", "cursor", "engine", "session")


def qualified_names(type_: type) -> list[str]:
    """Return the names of a type and its bases, most derived first, as `module.qualname`."""
    return [f"{base.__module__}.{base.__qualname__}" for base in type_.__mro__]


def refusal_of(type_: type) -> CaptureRefusal | None:
    """Return why objects of this type cannot be sent; None if the type is not listed."""
    for name in qualified_names(type_):
        if name in _ALLOWED:
            return None
        if name in _REFUSED:
            return _REFUSED[name]
        top, _, rest = name.partition(".")
        if top == "det_jupyter" and rest.startswith(_HANDLE_MODULES):
            return _HANDLE
    return None


def refusal_for_failure(type_: type, error: BaseException) -> CaptureRefusal:
    """Return why an object whose pickling failed with `error` cannot be sent."""
    if isinstance(error, CaptureRefused):
        return error.refusal
    if type_.__name__.lower().endswith(_DATABASE_NAMES):
        return _DATABASE
    message = str(error).strip().partition("\n")[0] or "it cannot be pickled"
    return CaptureRefusal(f"{message} ({type(error).__name__})", _MAKE)
