"""Tracebacks without the library: from where training was asked for, straight to what failed.

    Cell In[5], line 4              Cell In[5], line 4
    Trainer.fit                     Cell In[3], line 12, in train_batch
    Loop.run, _train, ...           torch/nn/functional.py
    Cell In[3], line 12
    torch/nn/functional.py

They stay where no code of the user's comes after them: then it is about them. Warnings, likewise,
point at the line of the user's that led to them.
"""

from __future__ import annotations

import contextlib
import os
import sys
import sysconfig
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

_OURS = str(Path(__file__).parents[1]) + os.sep
_SKIPPED = (_OURS, contextlib.__file__)  # what a `with` of ours goes through
_LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, and show the innermost line that is not ours."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SKIPPED):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def without_own_frames() -> Iterator[None]:
    """Take our frames out of the traceback of what the block raises."""
    try:
        yield
    except Exception as error:
        if error.__traceback__ is not None:
            _unlink(error.__traceback__)
        raise


def _unlink(head: TracebackType) -> None:
    """Leave out our frames between the head and the last frame of the user's."""
    links = [head]
    while (following := links[-1].tb_next) is not None:
        links.append(following)
    last = max((i for i, link in enumerate(links) if _is_the_users(link)), default=0)
    following = links[last]
    # In place: whoever holds a part of the traceback meanwhile has these very links.
    for link in reversed(links[:last]):
        link.tb_next = following
        if not _is_ours(link):
            following = link


def _is_ours(link: TracebackType) -> bool:
    return link.tb_frame.f_code.co_filename.startswith(_OURS)


def _is_the_users(link: TracebackType) -> bool:
    file = link.tb_frame.f_code.co_filename
    return not (_is_ours(link) or file.startswith(_LIBRARIES) or file.startswith("<frozen"))
