"""Which words may follow the words of a line that is being typed, by its parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from det_jupyter.verbs.grammar import verb_parsers
from det_jupyter.verbs.kinds import trial_number

Known = Mapping[str, Callable[[], list[str]]]  # by the name of an argument, what it may be


def words_after(parser: argparse.ArgumentParser, given: Sequence[str], known: Known) -> list[str]:
    """Return what may follow: verbs, then what the verb is about and its options.

    Args:
        parser: The parser of the whole line.
        given: The words after the line's first, without the one that is being typed.
        known: What may be given for an argument; "trial" is looked up for numbers of trials.
    """
    for word in given:
        verbs = verb_parsers(parser)
        if not verbs:
            break
        if word not in verbs and "" in verbs and word.isdecimal():
            parser = verbs[""]
        elif word not in verbs:
            return []
        else:
            parser = verbs[word]
    verbs = verb_parsers(parser)
    if not verbs:
        return _arguments(parser, given, known)
    unnamed = _arguments(verbs[""], given, known) if "" in verbs else ["--help"]
    return [*filter(None, verbs), *unnamed]


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return the long options that help shows."""
    shown = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return sorted(o for action in shown for o in action.option_strings if len(o) > 2)


def _arguments(parser: argparse.ArgumentParser, given: Sequence[str], known: Known) -> list[str]:
    """Return what may follow a whole verb: the value of an option, or what the verb is about."""
    if given and (values := _values_of(parser, given[-1], known)) is not None:
        return values
    is_first = len(given) == len(parser.prog.split()) - 1
    words: list[str] = []
    for action in parser._actions if is_first else ():
        if not action.option_strings and (name := _name_of(action)) in known:
            words += known[name]()
    return words + options_of(parser)


def _values_of(parser: argparse.ArgumentParser, option: str, known: Known) -> list[str] | None:
    for action in parser._actions:
        if option in action.option_strings:
            if action.choices:
                return list(action.choices)
            name = _name_of(action)
            return known[name]() if name in known else None
    return None


def _name_of(action: argparse.Action) -> str:
    return "trial" if action.type is trial_number and action.dest == "id" else action.dest
