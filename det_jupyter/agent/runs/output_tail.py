"""The end of a rank's output: the stack of its crash, or the last lines that it printed.

Used for a rank that ended without a record. After the message of an uncaught C++ exception
Python's faulthandler writes the stacks of all threads, innermost frame first:

    terminate called after throwing an instance of 'gloo::EnforceNotMet'
      what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 1000 vs 4
    Fatal Python error: Aborted

    Thread 0x00007f99ed7d5b80 (most recent call first):
      File "<cell 5>", line 12 in train_batch

It is shown as any other traceback: cells by name, innermost frame last, without our own frames.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from det_jupyter.contract.messages import CrashOutput
from det_jupyter.contract.run.output_lines import last_lines

_LINES = 20  # of output, where there is no stack
_LINES_BEFORE = 5  # a fatal error: they may contain its cause
_FATAL = re.compile(r"^Fatal Python error: .*$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*:\n((?: +File .*\n)+)", re.MULTILINE)
_FRAME = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)
_WHAT = re.compile(r"^ *what\(\): +(.+)$", re.MULTILINE)
_SIZES_DIFFER = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_OURS = str(Path(__file__).parents[2]) + os.sep
_COLLECTIVES_DIFFER = (
    "the ranks were in different collectives, or in one with tensors of different sizes"
)
# Where a model agrees with the other ranks on which parameters are trained: pytorch/parallel.
_AGREES_ON_TRAINED = "in _agree_on_trained\n"
_TRAINED_BY_SOME = (
    "requires_grad has changed on this rank and not on all the others; set it to the same on all"
)


class _Frame(NamedTuple):
    file: str
    line: str
    name: str


def last_words(text: str, labels: Mapping[str, str], cwd: str) -> CrashOutput | None:
    """Return the crash or the last lines in the end of a rank's output; None if it is empty.

    Args:
        text: That end, of stdout and stderr.
        labels: Names of the captured code's files.
        cwd: Folder of the user's own modules.
    """
    fatal = next(reversed(list(_FATAL.finditer(text))), None)
    if fatal is None:
        tail = last_lines(text, _LINES, most=1000)
        return CrashOutput(traceback=f"It printed at last:\n{tail}\n") if tail else None
    before = "\n".join(text[: fatal.start()].rstrip("\n").split("\n")[-_LINES_BEFORE:])
    stack = _users_stack(text[fatal.end() :], labels, cwd)
    theirs = [frame for frame in stack if _is_the_users(frame, labels, cwd)]
    parts = [before, fatal[0], "Stack of the crash (most recent call last):"]
    parts += [f"  {_place(frame, labels)}" for frame in stack]
    return CrashOutput(
        error=_cause(before, text[fatal.end() :]),
        where=_place(theirs[-1], labels, short=True) if theirs else "",
        traceback="\n".join(filter(None, parts)) + "\n",
    )


def _users_stack(text: str, labels: Mapping[str, str], cwd: str) -> list[_Frame]:
    """Return the stack of the thread that ran user code, innermost last, without our frames."""
    stacks = []
    for thread in _THREAD.findall(text):
        frames = [_Frame(m["file"], m["line"], m["name"]) for m in _FRAME.finditer(thread)]
        end = next((i for i, f in enumerate(frames) if f.file == "<frozen runpy>"), None)
        stacks.append([f for f in reversed(frames[:end]) if not f.file.startswith(_OURS)])
    # The last is the thread that crashed, or the main thread if no Python thread did.
    theirs = [s for s in stacks if any(_is_the_users(frame, labels, cwd) for frame in s)]
    return [*[[]], *stacks, *theirs][-1]


def _is_the_users(frame: _Frame, labels: Mapping[str, str], cwd: str) -> bool:
    if frame.file in labels:
        return True
    is_theirs = frame.file.startswith(cwd.rstrip(os.sep) + os.sep)
    return is_theirs and "site-packages" not in frame.file and not frame.file.startswith(_OURS)


def _place(frame: _Frame, labels: Mapping[str, str], *, short: bool = False) -> str:
    file = Path(frame.file).name if short else f'File "{frame.file}"'
    return f"{labels.get(frame.file, file)}, line {frame.line}, in {frame.name}"


def _cause(before: str, stacks: str) -> str:
    what = _WHAT.search(before)
    if what is None:
        return ""
    sizes = _SIZES_DIFFER.search(what[1])
    if sizes is not None:
        if _AGREES_ON_TRAINED in stacks:
            return _TRAINED_BY_SOME
        return f"{_COLLECTIVES_DIFFER} (gloo got {sizes[1]} bytes, expected {sizes[2]})"
    return what[1][:300]
