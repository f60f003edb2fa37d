"""The command lines of launchers.

    [[OPTION ...] --] --trial MODULE:CLASS
    [[OPTION ...] --] SCRIPT [ARGUMENT ...]

The `--` is needed after options of the program that the launcher calls: they may have values.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from det_jupyter.contract.values.entrypoints import is_python
from det_jupyter.launch.computers import find_run

_BEGIN_A_TARGET = ("--trial", "-m")
_TRIAL = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class WrongUsage(ValueError):
    """The command line is wrong; the message is for the user."""


@dataclass(frozen=True, slots=True)
class CommandLine:
    """The command line of a launcher.

    Args:
        known: The launcher's own options by name; the value of a flag is "".
        others: The words of all other options.
        target: The words after the options: the script and its arguments.
    """

    known: dict[str, str]
    others: tuple[str, ...]
    target: tuple[str, ...]


def parse_command_line(words: list[str], arity: Mapping[str, int]) -> CommandLine:
    """Split a launcher's command line.

    Args:
        arity: For each option that the launcher understands, 1 if a value follows it, else 0. The
            name `nproc_per_node` stands for `--nproc-per-node`, too, and `np` for `-np`.

    Raises:
        WrongUsage: An option is unknown and no `--` ends the options, or lacks its value.
    """
    known: dict[str, str] = {}
    others: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("-", "_")
        if word == "--":
            break
        if word.startswith("-") and name in arity:
            known[name] = _value(word, value if equals else None, arity[name], left)
        elif others:  # arguments up to the `--`
            others.append(word)
        elif word in _BEGIN_A_TARGET or not word.startswith("-"):
            left.insert(0, word)
            break
        elif "--" in left:
            others.append(word)
        else:
            raise WrongUsage(
                f"got the option {word}, which is not known here; put ` -- ` before the script "
                "to pass options to the program that this launcher stands for"
            )
    return CommandLine(known, tuple(others), tuple(left))


def _value(option: str, given: str | None, num_words: int, left: list[str]) -> str:
    if num_words == 0 or given is not None:
        return given or ""
    if not left or left[0] == "--":
        raise WrongUsage(f"the option {option} lacks its value")
    return left.pop(0)


def number(line: CommandLine, name: str, *, least: int = 0) -> int | None:
    """Return the value of an option as a number; None if it was not given.

    Raises:
        WrongUsage: It is not a number, or too small.
    """
    text = line.known.get(name)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < least:
        raise WrongUsage(f"--{name}: got {text!r}, expected a whole number from {least}")
    return int(text)


def rank_command(target: tuple[str, ...], *, any_program: bool = False) -> tuple[str, ...]:
    """Return the command of a rank.

    Args:
        target: `--trial MODULE:CLASS`, `-m MODULE ...`, `python3 ...` or `SCRIPT ...`.
        any_program: Whether it may also be a program that is no Python.

    Raises:
        WrongUsage: There is no such script, module or program.
    """
    if not target:
        raise WrongUsage("expected a script, `-m MODULE` or `--trial MODULE:CLASS`")
    first, *rest = target
    if first == "--trial":
        if len(rest) != 1 or not _TRIAL.fullmatch(rest[0]):
            raise WrongUsage(f"--trial: got {' '.join(rest)!r}, expected one MODULE:CLASS")
        if find_run() is None:
            raise WrongUsage(
                "--trial trains in experiments only: outside of them there are no hyperparameters "
                "and no length; run it as an entrypoint, or write a script with "
                "det_jupyter.pytorch.Trainer"
            )
        return (sys.executable, "-m", "det_jupyter.launch.trial", rest[0])
    if first == "-m":
        if not rest:
            raise WrongUsage("-m: expected the name of a module")
        return (sys.executable, *target)
    if first.startswith("-"):
        raise WrongUsage(f"got {first}, expected a script, `-m MODULE` or `--trial MODULE:CLASS`")
    if is_python(first):
        return target
    if any_program and not first.endswith(".py"):
        if shutil.which(first) is None:
            raise WrongUsage(f"there is no command {first}")
        return target
    if not Path(first).exists():
        raise WrongUsage(f"there is no file {first} in {Path.cwd()}")
    return (sys.executable, *target)


def wrapped(rank_variables: str) -> tuple[str, ...]:
    """Return the command of a rank that another launcher starts, up to the program's words."""
    return (sys.executable, "-m", "det_jupyter.launch.wrap_rank", "--with-parent", rank_variables)


def find_program(name: str, how: str) -> str:
    """Return the path of a program: beside this Python, or on the PATH.

    Args:
        name: The program.
        how: The command that installs it, for the message.

    Raises:
        WrongUsage: It is not installed.
    """
    beside = Path(sys.executable).parent / name
    if beside.is_file():
        return str(beside)
    found = shutil.which(name)
    if found is None:
        raise WrongUsage(f"there is no program {name} on this computer; install it with `{how}`")
    return found
