"""Completion of a line that is being typed: which words may follow, by its parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

from det_jupyter.client import Client
from det_jupyter.contract.messages import ExperimentQuery
from det_jupyter.front.verbs.arguments import trial_number
from det_jupyter.front.verbs.grammar import verb_parsers

Values = Mapping[str, Callable[[], list[str]]]  # kind, such as "templates" -> existing ones
Fetch = Callable[[Client], list[str]]

_MAX_OFFERED = 200  # experiments, newest first, or trials
_NEWEST = ExperimentQuery(archived=True, limit=_MAX_OFFERED)
QUESTIONS: Mapping[str, Fetch] = {  # by kind: how the existing ones are fetched
    "experiments": lambda client: [str(row.id) for row in client.find(_NEWEST).rows],
    "templates": lambda client: [template.name for template in client.templates()],
    "models": lambda client: [model.name for model in client.models()],
    "agents": lambda client: [agent.id for agent in client.agents()],
    "pools": lambda client: [pool.name for pool in client.pools()],
    "trials": lambda client: [
        str(run.trial_id) for run in client.cluster(limit=_MAX_OFFERED).runs
    ],
}

_KINDS = {  # kind of an argument, by its name
    "id": "experiments",
    "ids": "experiments",
    "experiment": "experiments",
    "ahead_of": "experiments",
    "behind": "experiments",
    "name": "templates",
    "model": "models",
    "template": "templates",
    "path": "keys",
    "agent": "agents",
    "pool": "pools",
    "trial": "trials",
}


def words_after(parser: argparse.ArgumentParser, given: Sequence[str], known: Values) -> list[str]:
    """Return the words that may follow: verbs, then a verb's first argument and options.

    Args:
        given: The words after the line's first, without the one that is being typed.
        known: Return the existing "experiments", "trials", "templates" and so on.
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
    """Return the long options that appear in the help."""
    listed = [action for action in parser._actions if action.help != argparse.SUPPRESS]
    return sorted(o for action in listed for o in action.option_strings if len(o) > 2)


def _arguments(parser: argparse.ArgumentParser, given: Sequence[str], known: Values) -> list[str]:
    """Return what may follow a verb: the value of an option, or argument and options."""
    if given and (values := _values_of(parser, given[-1], known)) is not None:
        return values
    is_first = len(given) == len(parser.prog.split()) - 1
    words: list[str] = []
    for action in parser._actions if is_first else ():
        if not action.option_strings and (ask := known.get(_kind_of(action))):
            words += ask()
    return words + options_of(parser)


def _values_of(parser: argparse.ArgumentParser, option: str, known: Values) -> list[str] | None:
    for action in parser._actions:
        if option in action.option_strings:
            if action.choices:
                return list(action.choices)
            ask = known.get(_kind_of(action))
            return ask() if ask else None
    return None


def _kind_of(action: argparse.Action) -> str:
    return "trials" if action.type is trial_number else _KINDS.get(action.dest, "")
