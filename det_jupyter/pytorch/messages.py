"""Messages to users: mistakes of a trial, notices, warnings, and tracebacks without our frames.

    as raised                       as shown
    Cell In[5], line 4              Cell In[5], line 4
    Trainer.fit                     Cell In[3], line 12, in train_batch
    Loop.run, _train, ...           torch/nn/functional.py
    Cell In[3], line 12
    torch/nn/functional.py

Frames of det_jupyter stay where no frame of the user's code follows them: then the error is about
the call itself. Warnings likewise point at the innermost line of the user's code.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
import sysconfig
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, TracebackType

from det_jupyter.contract.run.journal import Notice
from det_jupyter.core import RecordSink
from det_jupyter.errors import ConfigError


class TrialMistake(ConfigError):
    """A method of the trial returned a value that cannot be used. The run is not retried.

    The method has returned, so it is not in the traceback; the error names it instead.

    Args:
        method: Name of the trial's method.
        problem: The message: what was returned, what is expected. Starts with the method's name.
    """

    def __init__(self, method: str, problem: str) -> None:
        self.method = method
        super().__init__([problem])

    def code_in(self, trial: object) -> CodeType | None:
        """Return the code object of the method without its decorators; None if there is none."""
        method = getattr(type(trial), self.method, None)
        code = getattr(inspect.unwrap(method), "__code__", None) if callable(method) else None
        return code if isinstance(code, CodeType) else None


def give_notice(text: str, rank: int, sink: RecordSink, *, is_alarm: bool = False) -> None:
    """Write a notice to the rank's journal, which the trial's view shows, and to standard error.

    Args:
        text: One line.
        rank: This rank.
        sink: This rank's journal.
        is_alarm: The training is probably useless from here on; the view shows the notice in red.
    """
    sink.write(Notice(at=time.time(), rank=rank, text=text, is_alarm=is_alarm))
    sys.stderr.write(f"{text}\n")


_OURS = str(Path(__file__).parents[1]) + os.sep
_SKIPPED = (_OURS, contextlib.__file__)  # frames of our `with` blocks
_LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points at the innermost line of the user's code."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def without_own_frames() -> Iterator[None]:
    """Remove our frames from the traceback of an error in the block."""
    try:
        yield
    except Exception as error:  # the user's code may raise anything
        if error.__traceback__ is not None:
            _unlink(error.__traceback__)
        raise


def _unlink(head: TracebackType) -> None:
    """Remove our frames between the head and the last frame of the user's code, in place."""
    links = [head]
    while (following := links[-1].tb_next) is not None:
        links.append(following)
    last = max((i for i, link in enumerate(links) if _is_the_users(link)), default=0)
    following = links[last]
    # In place: other code may hold a reference to a part of this traceback.
    for link in reversed(links[:last]):
        link.tb_next = following
        if not _is_ours(link):
            following = link


def _is_ours(link: TracebackType) -> bool:
    return link.tb_frame.f_code.co_filename.startswith(_OURS)


def _is_the_users(link: TracebackType) -> bool:
    file = link.tb_frame.f_code.co_filename
    return not (_is_ours(link) or file.startswith(_LIBRARIES) or file.startswith("<frozen"))
