"""Parses the stacks that faulthandler writes in a rank, and finds the rank's place in them. Pure.

Python's faulthandler writes the stacks of all threads, innermost frame first; the main thread's is
the last:

    Current thread 0x00007f99ed7d5b80 (most recent call first):
      File "<cell 5>", line 12 in train_batch

A frame has the line that is executed, but not the call in that line: the C functions that a thread
hangs in, such as `time.sleep`, have no frame. So the call is read from the source of the line.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from det_jupyter.agent.runs.user_code import OURS, is_user_file

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x.*:\n((?: +File .*\n?)+)", re.MULTILINE)
_FRAME = re.compile(r'^ +File "(?P<file>.*)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)
_STARTER = "<frozen"  # the interpreter's own modules, which start a program
_OUR_COLLECTIVES = (f"{OURS}core/ranks/", f"{OURS}core/distributed.py")
_DEBUGGERS = ("/pdb.py", "/bdb.py", "/debugpy/", "/pydevd", "/ipdb/", "/pudb/")
_TORCH_COLLECTIVES = ("/torch/distributed/", "/torch/nn/parallel/distributed.py")
_NO_COLLECTIVES = ("/torch/distributed/elastic/", "/torch/distributed/run.py", "/checkpoint/")
_BACKWARD = "_engine_run_backward"
_MOST_FRAMES = 14
_MOST_CALL = 60
_TEXT = re.compile(r"""(['"])(?:\\.|(?!\1).)*(?:\1|$)""")  # in a line of source
_LABEL = re.compile(r"Cell In\[(\d+)\]")

Source = Callable[[str, int], str]  # the text of a line of a file; "" if unknown


class Frame(NamedTuple):
    """A frame of a stack."""

    file: str
    line: int
    name: str


class Place(NamedTuple):
    """Where a thread is.

    Args:
        call: The call that it is in, such as `time.sleep`.
        place: The place of this call, such as `cell 12, line 8`.
    """

    call: str
    place: str


def main_thread(text: str) -> list[Frame]:
    """Return the frames of the main thread, innermost first; [] if there are none."""
    threads = _THREAD.findall(text)
    if not threads:
        return []
    return [Frame(m["file"], int(m["line"]), m["name"]) for m in _FRAME.finditer(threads[-1])]


def is_debugged(frames: Sequence[Frame]) -> bool:
    """Return whether a debugger of Python has stopped this thread."""
    return any(part in frame.file for frame in frames[:12] for part in _DEBUGGERS)


def collective_of(frames: Sequence[Frame]) -> str:
    """Return the collective that a thread waits in; "" if it is in none.

    >>> collective_of([Frame("/p/torch/autograd/graph.py", 865, "_engine_run_backward")])
    'all_reduce'
    """
    if not frames:
        return ""
    if is_backward(frames):  # DDP waits for the gradients' exchange at its end
        return "all_reduce"
    names = []
    for frame in frames:
        if not _is_of_collectives(frame):
            break
        names.append(frame.name)
    public = [n for n in names if not n.startswith("_") and n not in ("wrapper", "poll", "inner")]
    if not public:  # such as in the constructor of DDP, which compares and sends the parameters
        return "DistributedDataParallel" if "__init__" in names else ""
    return "all_reduce" if public[-1] == "reduce_" else public[-1].rstrip("_")


def is_backward(frames: Sequence[Frame]) -> bool:
    """Return whether a thread is in torch's backward pass, or waits for threads that are."""
    return bool(frames) and frames[0].name == _BACKWARD


def _is_of_collectives(frame: Frame) -> bool:
    if frame.file.startswith(OURS):
        return frame.file.startswith(_OUR_COLLECTIVES)
    is_torch = any(part in frame.file for part in _TORCH_COLLECTIVES)
    return is_torch and not any(part in frame.file for part in _NO_COLLECTIVES)


def find_place(
    frames: Sequence[Frame], labels: Mapping[str, str], folders: Sequence[str], source: Source
) -> Place:
    """Return where a thread is: in the user's code, if a frame of the stack is.

    Args:
        frames: Innermost first.
        labels: Names that are shown for the files of the captured code, by file name.
        folders: Folders of the user's modules.
        source: Returns a line of a file.
    """
    theirs = next((f for f in frames if is_user_frame(f, labels, folders)), None)
    frame = theirs or next((f for f in frames if not f.file.startswith((OURS, _STARTER))), None)
    if frame is None:
        return Place("", "")
    call = call_in(source(frame.file, frame.line)) or frame.name
    return Place(call, place_text(frame, labels))


def is_user_frame(frame: Frame, labels: Mapping[str, str], folders: Sequence[str]) -> bool:
    """Return whether a frame is of the user's code."""
    return is_user_file(frame.file, labels, folders)


def place_text(frame: Frame, labels: Mapping[str, str]) -> str:
    """Return the place of a frame: `cell 12, line 8`, `train.py, line 30`."""
    label = labels.get(frame.file, Path(frame.file).name)
    cell = _LABEL.sub(r"cell \1", label)
    return f"{cell}, line {frame.line}"


def call_in(line: str) -> str:
    """Return the name of the function that a line calls; without a single call, the line, cut.

    It is part of alerts, so texts in the line, which may be secret, are left out.

    >>> call_in("    time.sleep(1000)")
    'time.sleep'
    >>> call_in("if not lock.acquire(timeout=self.limit):")
    'lock.acquire'
    >>> call_in("f(g(x))")
    'f(g(x))'
    >>> call_in("login(to_key('hf_secret'))")
    "login(to_key('…'))"
    """
    text = line.strip()
    tree = _parsed(text)
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)] if tree is not None else []
    if len(calls) == 1:
        text = ast.unparse(calls[0].func)
    text = _TEXT.sub(r"\1…\1", text)
    return text if len(text) <= _MOST_CALL else f"{text[: _MOST_CALL - 1]}…"


def _parsed(text: str) -> ast.AST | None:
    """Return the syntax tree of a line, which may begin a block."""
    for attempt in (text, f"{text}\n    pass", f"{text})", text.removeprefix("el")):
        try:
            return ast.parse(attempt)
        except (SyntaxError, ValueError, RecursionError):
            continue
    return None


def stack_text(frames: Sequence[Frame], labels: Mapping[str, str], source: Source) -> str:
    """Return a stack as text for users: innermost frame last, without frames of this package."""
    outer = (OURS, _STARTER)
    shown = [frame for frame in frames if not frame.file.startswith(outer)] or list(frames)
    lines = []
    for frame in reversed(shown[:_MOST_FRAMES]):
        label = labels.get(frame.file, f'File "{frame.file}"')
        lines.append(f"{label}, line {frame.line}, in {frame.name}")
        if text := source(frame.file, frame.line).strip():
            lines.append(f"    {text[:200]}")
    return "\n".join(lines)
