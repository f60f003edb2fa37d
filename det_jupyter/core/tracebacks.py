"""Tracebacks and stacks for the author of the trial: with cell labels, without our frames.

Traceback (most recent call last):
  Cell In[5], line 12, in train_batch          a cell has a label, and its source is shown
    loss = self.loss_fn(self.model(x), y)
  File ".../torch/nn/modules/module.py", ...   libraries stay
RuntimeError: mat1 and mat2 shapes cannot be multiplied
"""

from __future__ import annotations

import os
import re
import threading
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

from det_jupyter.contract.host.own_threads import frame_of
from det_jupyter.contract.values.text import error_message
from det_jupyter.core.peer_errors import WorkerLost
from det_jupyter.errors import ConfigError, DetError

_OURS = str(Path(__file__).parents[1]) + os.sep
_MAX_ERROR = 500  # characters
_MAX_TRACEBACK = 50_000
# torch puts the traceback of a data-loader worker or pinning thread into the message.
_IN_WORKER = re.compile(r"Caught \S+ in [^\n]+\.\nOriginal Traceback ")
_FRAME = re.compile(
    r'^ +File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>.+)\n(?:    .*\n)*',
    re.MULTILINE,
)

Labels = Mapping[str, str]  # file name, as code objects have it -> what to call it


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The text of an error for the user.

    Args:
        error: Type and message in one line.
        traceback: Frames of the user and of libraries; empty if it would repeat `error`.
        where: The innermost frame of the user's code; "" if there is none.
    """

    error: str
    traceback: str
    where: str

    @property
    def printed(self) -> str:
        """The text to print to stderr: the traceback, or type and message if there is none."""
        return self.traceback or f"{self.error}\n"


class CodeNames:
    """Formats errors and stacks with the labels of captured cells.

    Args:
        labels: Labels by file name of the captured code.
        folders: Folders with the user's own modules.
        context: The copy of the context directory; paths are shown relative to it.
    """

    def __init__(
        self, labels: Labels, folders: Iterable[Path], context: Path | None = None
    ) -> None:
        self._labels = labels
        self._folders = tuple(str(folder) + os.sep for folder in folders)
        self._context = f"{context}{os.sep}" if context is not None else ""

    def explain(self, error: BaseException, code: CodeType | None = None) -> Explanation:
        """Return the text of an error, with its traceback and those of its causes.

        Args:
            code: The code at fault, if the stack has no frame of it.
        """
        summary = traceback.TracebackException.from_exception(error)
        message = error_message(error)
        where = self._innermost(summary.stack)
        if code is not None:
            where = self._place(code.co_filename, code.co_firstlineno, code.co_name)
        if isinstance(error, WorkerLost):
            text = "".join(f"{text}\n" for text in (message, *getattr(error, "__notes__", ())))
        elif isinstance(error, ConfigError) or (isinstance(error, DetError) and not where):
            text = f"{message}\n"  # frames add nothing
        else:
            self._trim(summary)
            text = "".join(summary.format())
        line = _one_line(error, message)
        if _IN_WORKER.match(message):
            where = self._innermost_in(message) or where
            line = _last_error_in(message)
            text = _FRAME.sub(lambda m: "" if m["file"].startswith(_OURS) else m[0], text)
        is_whole = len(line) <= _MAX_ERROR
        is_said = is_whole and "; ".join(text.strip().splitlines()) == line
        text = "" if is_said else self._with_labels(text)
        return Explanation(
            error=line if is_whole else f"{line[: _MAX_ERROR - 1]}…",
            traceback=_shortened(text),
            where=where,
        )

    def main_stack(self) -> str:
        """Return the stack of the main thread, innermost frame last."""
        stack = traceback.extract_stack(frame_of(threading.main_thread()))
        # The frames before our first one start the interpreter.
        start = next((i for i, frame in enumerate(stack) if _is_ours(frame)), 0)
        kept = self._kept(traceback.StackSummary.from_list(stack[start:]))
        return self._with_labels("".join(traceback.format_list(kept)))

    def _trim(self, summary: traceback.TracebackException) -> None:
        summary.stack = traceback.StackSummary.from_list(self._kept(summary.stack))
        for other in (summary.__cause__, summary.__context__, *(summary.exceptions or ())):
            if other is not None:
                self._trim(other)

    def _kept(self, stack: traceback.StackSummary) -> list[traceback.FrameSummary]:
        others = [frame for frame in stack if not _is_ours(frame)]
        return others or list(stack)  # only our own code was running

    def _innermost(self, stack: traceback.StackSummary) -> str:
        for frame in reversed(stack):
            if self._is_the_users(frame.filename):
                return self._place(frame.filename, frame.lineno, frame.name)
        return ""

    def _innermost_in(self, text: str) -> str:
        """Return the innermost frame of the user's code in a formatted traceback."""
        frames = [frame for frame in _FRAME.finditer(text) if self._is_the_users(frame["file"])]
        last = frames[-1] if frames else None
        return self._place(last["file"], last["line"], last["name"]) if last else ""

    def _place(self, filename: str, line: int | str | None, name: str) -> str:
        is_in_context = self._context and filename.startswith(self._context)
        name_of_file = (
            filename.removeprefix(self._context) if is_in_context else Path(filename).name
        )
        label = self._labels.get(filename, name_of_file)
        return f"{label}, line {line}, in {name}"

    def _is_the_users(self, filename: str) -> bool:
        if filename in self._labels:
            return True
        if not filename.startswith(self._folders) or filename.startswith(_OURS):
            return False
        return "site-packages" not in Path(filename).parts

    def _with_labels(self, text: str) -> str:
        for filename, label in self._labels.items():
            text = text.replace(f'File "{filename}", line', f"{label}, line")
        return text.replace(f'File "{self._context}', 'File "') if self._context else text


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return frame.filename.startswith((_OURS, "<frozen runpy>"))


def _last_error_in(message: str) -> str:
    """Return the line of the error in the message of a data-loader worker's traceback."""
    ends = [frame.end() for frame in _FRAME.finditer(message)]
    after = message[max(ends, default=0) :].strip().splitlines()
    return after[0] if after else message.splitlines()[0]


def _shortened(text: str) -> str:
    if len(text) <= _MAX_TRACEBACK:
        return text
    half = _MAX_TRACEBACK // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... {left_out} characters left out ...\n{text[-half:]}"


def _one_line(error: BaseException, message: str) -> str:
    lines = message.strip().splitlines()
    if isinstance(error, DetError | WorkerLost):
        return "; ".join(line for line in lines if not line.startswith(" "))  # no source
    # torchrun begins with a line of equals signs.
    line = next((line for line in lines if any(map(str.isalnum, line))), lines[0] if lines else "")
    return f"{type(error).__name__}: {line}" if line else type(error).__name__
