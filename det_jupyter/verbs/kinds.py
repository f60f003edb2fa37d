"""The kinds of values that arguments of verbs have: each is what argparse calls a type."""

from __future__ import annotations

import math
from argparse import ArgumentTypeError
from collections.abc import Callable
from typing import Any

MAX_NUMBER = 2**53


def experiment_number(text: str) -> int:
    """Return the number of an experiment."""
    return _decimal(text, f"the number of an experiment{_number_hint(text)}")


def experiment_numbers(text: str) -> list[range]:
    """Return the numbers of experiments, of which several in a row are one range.

    >>> experiment_numbers("7"), experiment_numbers("3-5,9")
    ([range(7, 8)], [range(3, 6), range(9, 10)])
    """
    return [_range_of(part) for part in text.split(",")]


def _range_of(text: str) -> range:
    first, dash, last = text.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        if int(first) > int(last):
            raise ArgumentTypeError(f"got {text!r}, expected the lower number first")
        return range(int(first), min(int(last), MAX_NUMBER) + 1)
    number = experiment_number(text)
    return range(number, number + 1)


def trial_number(text: str) -> int:
    """Return the number of a trial."""
    return _decimal(text, f"the number of a trial, or --experiment ID{_number_hint(text)}")


def _decimal(text: str, expected: str) -> int:
    if not text.isdecimal():
        raise ArgumentTypeError(f"got {text!r}, expected {expected}")
    return int(text)


def _number_hint(text: str) -> str:
    """Return what to type instead of an expression: IPython fills in what is in braces.

    >>> _number_hint("w.id"), _number_hint("w"), _number_hint("{w.id}"), _number_hint("7a")
    ('; write {w.id}', '; write {w.id}', '; w.id is not defined here', '')
    """
    if text.startswith("{") and text.endswith("}"):
        return f"; {text[1:-1]} is not defined here"
    if not all(part.isidentifier() for part in text.split(".")):
        return ""
    return f"; write {{{text if '.' in text else f'{text}.id'}}}"


def whole(text: str) -> int:
    """Return a whole number, at least 0."""
    return _decimal(text, "a whole number, 0 or more")


def positive(text: str) -> float:
    """Return a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise ArgumentTypeError(f"got {text!r}, expected a number above 0")
    return value


def yaml_value(text: str) -> Any:
    """Return the value of a piece of YAML."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        message = f'got {text!r}, expected YAML in quotes, such as "{{epochs: 12}}"'
        raise ArgumentTypeError(message) from None


def limit(text: str) -> int | str:
    """Return a number of slots, or "none" for no limit."""
    return "none" if text.lower() == "none" else _decimal(text, "a whole number, or none")


def ranks(text: str) -> list[int]:
    """Return numbers of ranks.

    >>> ranks("0,2")
    [0, 2]
    """
    parts = text.split(",")
    if not all(part.isdecimal() for part in parts):
        raise ArgumentTypeError(f"got {text!r}, expected ranks such as 0,1")
    return [int(part) for part in parts]


def at_least_one(text: str) -> int:
    """Return a whole number, at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"got {text!r}, expected a whole number, 1 or more")
    return int(text)


def folder(text: str) -> str:
    """Return the path of a folder; an empty text, as of a variable that is not set, is none."""
    if not text.strip():
        raise ArgumentTypeError(f"got {text!r}, expected the path of a folder")
    return text


def uuid(text: str) -> str:
    """Return the name of a checkpoint."""
    if not text or "/" in text:
        raise ArgumentTypeError(f"got {text!r}, expected the UUID of a checkpoint")
    return text


def uuids(text: str) -> list[str]:
    """Return the names of checkpoints, which commas part."""
    return [uuid(part) for part in text.split(",")]


def yes_or_no(text: str) -> bool:
    """Return a truth value."""
    if text.lower() not in ("true", "false"):
        raise ArgumentTypeError(f"got {text!r}, expected true or false")
    return text.lower() == "true"


def not_kept(what: str) -> Callable[[str], Any]:
    """Return the type of an option of Determined's for something that is not recorded here."""

    def refuse(text: str) -> Any:
        raise ArgumentTypeError(f"{what} is not recorded here; leave the option out")

    return refuse
