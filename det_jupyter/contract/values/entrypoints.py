"""Parses the `entrypoint` of a configuration: code of the notebook, of a module, or a command.

    entrypoint                                          parsed as   started once per
    DigitsTrial                                         Captured    slot
    model_def:Trial                                     Imported    slot
    python3 -m det_jupyter.launch.torch_distributed     Program     slot
        train.py --epochs 3
    python3 train.py --epochs 3                         Program     computer
    ./train.sh | tee log                                Command     computer
    [mpirun, -np, "2", ./train]                         Command     computer

A Program is Python, which a process of ours runs as `__main__`: it is forked with torch loaded,
and has a kernel. Launchers that would start one process for each slot are not run: the agent does
their work. A Command is executed; a command that is text, by `sh -c`.

The names of Determined's launchers stand for ours.
"""

from __future__ import annotations

import re
import shlex
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

Per = Literal["slot", "computer"]
Launcher = Literal["torch_distributed", "deepspeed"]

_IN_MODULE = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")  # the name of an interpreter
_LAUNCHER = re.compile(r"(?:det_jupyter|determined)\.launch\.(torch_distributed|deepspeed)")
_NEARLY_IN_MODULE = re.compile(r"([\w./-]*)\s*:\s*([\w.]*)")
# `a:B(...)`, `a.B(...)` or `B(...)`; not `f() { python3 a.py; }; f $(nproc)`, which a shell runs
_CALL = re.compile(
    r"(?:([\w./-]+:[\w.]+)|([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)(?<!\.py))\s*\([^;|&]*\)"
)
_SCRIPT = re.compile(r"[^=]+\.(?:py|sh)")
_STARTS_OTHERS = re.compile(r"(?:det_jupyter|determined)\.launch\.\w+|torch\.distributed\.\w+")
_FOR_A_SHELL = re.compile(r"[$`*?\[\]{}()~;|&<>#!\\\n]|^\s*\w+=")


@dataclass(frozen=True, slots=True)
class Captured:
    """A class or function of the notebook, which travels in the capsule."""

    name: str
    per: Per = "slot"


@dataclass(frozen=True, slots=True)
class Imported:
    """A class or function of a module of the context directory, or of an installed one."""

    module: str
    name: str
    launcher: Launcher = "torch_distributed"
    per: Per = "slot"


@dataclass(frozen=True, slots=True)
class Program:
    """Python that is run as `__main__`.

    Args:
        target: Path of the script, or name of the module.
        is_module: Whether it is run as by `python -m`.
        launcher: The launcher that starts it once per slot; None: it is started directly.
    """

    target: str
    is_module: bool
    args: tuple[str, ...]
    launcher: Launcher | None = None

    @property
    def per(self) -> Per:
        """How often it is started: once per slot, or once per computer."""
        return "slot" if self.launcher else "computer"


@dataclass(frozen=True, slots=True)
class Command:
    """A program of another kind, or a command line for the shell."""

    argv: tuple[str, ...]
    per: Per = "computer"


Entrypoint = Captured | Imported | Program | Command


def parse_entrypoint(value: str | list[str]) -> Entrypoint:
    """Parse an entrypoint.

    Raises:
        ValueError: It is neither a name nor a command; the message is for the user.
    """
    if isinstance(value, list):
        return _parse_python(value) or Command(tuple(value))
    text = value.strip()
    if text.isidentifier():
        return Captured(text)
    if (named := _IN_MODULE.fullmatch(text)) and not named[1].endswith(".py"):
        return Imported(named[1], named[2])
    if problem := _find_mistake(text):
        raise ValueError(problem)
    if not _FOR_A_SHELL.search(text):
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"expected a command that can be read ({error})".lower()) from None
        if program := _parse_python(words):
            return program
    return Command(("sh", "-c", text))


def try_parse_entrypoint(entrypoint: Any) -> Entrypoint | None:
    """Parse an entrypoint; None if it is missing or wrong, which `parse_config` reports."""
    if isinstance(entrypoint, str | list) and entrypoint:
        with suppress(ValueError, TypeError, AttributeError):
            return parse_entrypoint(entrypoint)
    return None


def entrypoint_text(value: str | list[str]) -> str:
    """Return an entrypoint as text; a list becomes a command line.

    >>> entrypoint_text(["python3", "train.py", "--name", "my run"])
    "python3 train.py --name 'my run'"
    """
    return shlex.join(map(str, value)) if isinstance(value, list) else str(value).strip()


def entrypoint_name(value: str | list[str]) -> str:
    """Return the name of an entrypoint's class, function, script or program; "" if it has none.

    >>> entrypoint_name("python3 -m det_jupyter.launch.torch_distributed src/train.py --epochs 3")
    'train'
    >>> entrypoint_name("model_def:Trial"), entrypoint_name(["mpirun", "-np", "2", "./fit"])
    ('Trial', 'mpirun')
    """
    with suppress(ValueError):
        match parse_entrypoint(value):
            case Captured(name) | Imported(_, name):
                return name.rpartition(".")[2]
            case Program(target, is_module=True):
                if not _STARTS_OTHERS.fullmatch(target):
                    return target.removesuffix(".__main__").rpartition(".")[2]
    try:
        words = value if isinstance(value, list) else shlex.split(value)
    except ValueError:
        words = str(value).split()
    for before, word in zip(["", *words], words, strict=False):
        if before == "--trial" and (named := _IN_MODULE.fullmatch(word)):
            return named[2].rpartition(".")[2]
        if _SCRIPT.fullmatch(word):
            return word.rpartition("/")[2].rpartition(".")[0]
    programs = (word for word in words if "=" not in word)  # NAME=value may precede it
    return next(programs, "").rstrip("/").rpartition("/")[2]


def is_python(word: str) -> bool:
    """Return whether a word is the name of a Python interpreter."""
    return _PYTHON.fullmatch(word) is not None


def _find_mistake(text: str) -> str | None:
    """Return the problem with text that looks like a call or a wrong `module:name`, else None."""
    if not text:
        return "expected a class or function, or a command"
    if "\0" in text:
        return "expected a text without the character #x0000"
    wanted = "the name of a module, a colon and a name in it"
    if called := _CALL.fullmatch(text):
        text = called[1] or ":".join(called[2].rsplit(".", 1))
        wanted = "a class or function, not a call of it"
    near = _NEARLY_IN_MODULE.fullmatch(text)
    if near is None:
        return f"expected {wanted}; write {text}" if called else None
    module = near[1].removeprefix("./").removesuffix(".py").replace("/", ".")
    if _IN_MODULE.fullmatch(meant := f"{module}:{near[2]}"):
        return f"expected {wanted}; write {meant}"
    return "expected the name of a module, a colon and a name in it, such as model_def:MyTrial"


def _parse_python(words: list[str]) -> Entrypoint | None:
    """Return what a command line that begins with `python` runs; None for other commands."""
    if not words or not is_python(words[0]):
        return None
    rest = words[1:]
    while rest[:1] == ["-u"]:  # ranks never buffer their output
        rest = rest[1:]
    program = _program(rest)
    if program is None or not program.is_module:
        return program
    if found := _LAUNCHER.fullmatch(program.target):
        launcher: Launcher = "deepspeed" if found[1] == "deepspeed" else "torch_distributed"
        return _parse_launcher_args(list(program.args), launcher) or program
    return program


def _program(words: list[str], launcher: Launcher | None = None) -> Program | None:
    if len(words) > 1 and words[0] == "-m":
        return Program(words[1], True, tuple(words[2:]), launcher)
    if words and not words[0].startswith("-"):
        return Program(words[0], False, tuple(words[1:]), launcher)
    return None


def _parse_launcher_args(words: list[str], launcher: Launcher) -> Entrypoint | None:
    """Return what a launcher starts; None if there are options, which only the launcher parses."""
    if words[:1] == ["--"]:
        words = words[1:]
    if len(words) == 2 and words[0] == "--trial" and (found := _IN_MODULE.fullmatch(words[1])):
        return Imported(found[1], found[2], launcher)
    if words and is_python(words[0]):  # `torch_distributed python3 train.py`
        words = words[1:]
    return _program(words, launcher)
