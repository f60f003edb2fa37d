"""Tracebacks and stacks for the person who wrote the trial: their code, by the names they know.

    Traceback (most recent call last):
      Cell In[5], line 12, in train_batch          a cell has a label, and its source is shown
        loss = self.loss_fn(self.model(x), y)
      File ".../torch/nn/modules/module.py", ...   libraries stay
    RuntimeError: mat1 and mat2 shapes cannot be multiplied

Our own frames, through which every call of the user's code goes, are left out.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.errors import DetError

_OURS = str(Path(__file__).parents[1]) + os.sep

Labels = Mapping[str, str]  # file name, as code objects have it -> what to call it


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """An error as the user should read it.

    Args:
        error: Type and message in one line.
        traceback: The user's and the libraries' frames.
        where: The innermost frame of the user's code.
    """

    error: str
    traceback: str
    where: str


class CodeNames:
    """Knows the captured cells by their labels, and which files are the user's.

    Args:
        labels: Names of the captured code's files.
        folders: Where the user's own modules lie.
    """

    def __init__(self, labels: Labels, folders: Iterable[Path]) -> None:
        self._labels = labels
        self._folders = tuple(str(folder) + os.sep for folder in folders)

    def explain(self, error: BaseException) -> Explanation:
        """Return the error with its traceback, and those of the errors that led to it."""
        summary = traceback.TracebackException.from_exception(error)
        where = self._innermost(summary.stack)
        if isinstance(error, DetError) and not where:  # our message says it all
            text = f"{error}\n"
        else:
            self._trim(summary)
            text = self._with_labels(summary.format())
        return Explanation(error=_one_line(error), traceback=text, where=where)

    def main_stack(self) -> str:
        """Return where the main thread is now, the innermost frame last."""
        frame = sys._current_frames()[threading.main_thread().ident or 0]
        stack = traceback.extract_stack(frame)
        # Ahead of our first frame there is only how the interpreter was started.
        start = next((i for i, frame in enumerate(stack) if _is_ours(frame)), 0)
        kept = self._kept(traceback.StackSummary.from_list(stack[start:]))
        return self._with_labels(traceback.format_list(kept))

    def _trim(self, summary: traceback.TracebackException) -> None:
        summary.stack = traceback.StackSummary.from_list(self._kept(summary.stack))
        for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
            if other is not None:
                self._trim(other)

    def _kept(self, stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
        others = [frame for frame in stack if not _is_ours(frame)]
        return others or list(stack)  # nobody else's code was running: then it is about ours

    def _innermost(self, stack: traceback.StackSummary) -> str:
        for frame in reversed(stack):
            if self._is_the_users(frame.filename):
                name = self._labels.get(frame.filename, Path(frame.filename).name)
                return f"{name}, line {frame.lineno}, in {frame.name}"
        return ""

    def _is_the_users(self, filename: str) -> bool:
        if filename in self._labels:
            return True
        return filename.startswith(self._folders) and "site-packages" not in Path(filename).parts

    def _with_labels(self, lines: Iterable[str]) -> str:
        text = "".join(lines)
        for filename, label in self._labels.items():
            text = text.replace(f'File "{filename}", line', f"{label}, line")
        return text


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith(_OURS)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    if isinstance(error, DetError):
        return "; ".join(lines)
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
