"""Completion of our magics' lines and of the YAML below them.

Uses IPython's v2 matchers: only they can say that nothing but our words fits here.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher

from det_jupyter.verbs.arguments import cell_parser, line_parser, verb_parsers
from det_jupyter.verbs.det_arguments import det_parser

_CELL_VERBS = ("fork", "continue")


@context_matcher(identifier="det_jupyter.det_experiment")  # type: ignore[untyped-decorator]
def match_det_experiment(context: CompletionContext) -> dict[str, Any]:
    """Complete a line that is ours; leave every other line alone."""
    lines = context.full_text.split("\n")
    line = context.line_with_cursor[: context.cursor_position]
    found = _words(lines, context.cursor_line, line)
    if found is None:
        return {"completions": []}
    words, typed = found
    # What is replaced is IPython's token, which ends after the last dash or dot of ours.
    lead = len(typed) - len(context.token) if typed.endswith(context.token) else 0
    completions = [
        SimpleCompletion(text=word[lead:], type="param")
        for word in words
        if word.startswith(typed)
    ]
    return {"completions": completions, "suppress": True}


def _words(lines: Sequence[str], number: int, line: str) -> tuple[list[str], str] | None:
    """Return what fits at the end of `line`, and how much of it is typed; None: not ours."""
    if magic := re.match(r"\s*%(det_experiment|det)\s", line):
        parser = line_parser() if magic[1] == "det_experiment" else det_parser()
        return _line_words(parser, line), _typed(line)
    if not (magic := re.match(r"%%(det_experiment|det)(?=\s|$)", lines[0])):
        return None
    if number > 0:
        return _yaml_words("\n".join([*lines[1:number], line]))
    if magic[1] == "det":
        return _line_words(det_parser(), line), _typed(line)
    given = line.removesuffix(_typed(line)).split()[1:]
    if given[:1] and given[0] in _CELL_VERBS:
        return _line_words(line_parser(), line), _typed(line)
    if given[-1:] == ["--template"]:
        return _template_names(), _typed(line)
    return [*_options(cell_parser()), *([] if given else _CELL_VERBS)], _typed(line)


def _typed(line: str) -> str:
    return "" if line[-1:].isspace() else (line.split() or [""])[-1]


def _line_words(parser: argparse.ArgumentParser, line: str) -> list[str]:
    """Return what may follow the words of a line: verbs, then what its verb takes."""
    given = line.removesuffix(_typed(line)).split()[1:]
    for word in given:
        verbs = verb_parsers(parser)
        if not verbs:
            break
        if word not in verbs:
            return []
        parser = verbs[word]
    if verbs := verb_parsers(parser):
        return [*verbs, "--help"]
    return _arguments(parser, given)


def _arguments(parser: argparse.ArgumentParser, given: Sequence[str]) -> list[str]:
    """Return what may follow a whole verb: the value of an option, or what the verb is about."""
    if given and (names := _values_of(parser, given[-1])) is not None:
        return names()
    is_first = len(given) == len(parser.prog.split()) - 1
    words: list[str] = []
    for action in parser._actions if is_first else ():
        if not action.option_strings and action.dest in _KNOWN:
            words += _KNOWN[action.dest]()
    return words + _options(parser)


def _values_of(parser: argparse.ArgumentParser, option: str) -> Callable[[], list[str]] | None:
    for action in parser._actions:
        if option in action.option_strings:
            return _KNOWN.get(action.dest)
    return None


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(o for action in parser._actions for o in action.option_strings if len(o) > 2)


def _yaml_words(text: str) -> tuple[list[str], str]:
    from det_jupyter.notebook.complete.yaml_cursor import find_cursor
    from det_jupyter.notebook.complete.yaml_words import words_at

    cursor = find_cursor(text)
    if (*cursor.section, cursor.key) == ("resources", "resource_pool"):
        return _pool_names(), cursor.typed
    return words_at(cursor, _metric_names), cursor.typed


def _paths() -> list[str]:
    from det_jupyter.config.tree import all_paths

    return list(all_paths())


@cache
def _lookups() -> Any:
    from det_jupyter.notebook.complete.lookups import Lookups

    return Lookups(_running_master)


def _running_master() -> Any:
    """Return a client of the master that runs; None when none does: Tab starts nothing."""
    from det_jupyter.autostart import find_master
    from det_jupyter.errors import DetError
    from det_jupyter.notebook.handles import handles

    try:
        return handles.client() if find_master() else None
    except DetError:
        return None


def _experiment_ids() -> list[str]:
    from det_jupyter.notebook.complete.lookups import experiment_ids

    found: list[str] = _lookups().words("experiments", experiment_ids)
    return found


def _template_names() -> list[str]:
    from det_jupyter.notebook.complete.lookups import template_names

    found: list[str] = _lookups().words("templates", template_names)
    return found


def _agent_names() -> list[str]:
    from det_jupyter.notebook.complete.lookups import agent_names

    found: list[str] = _lookups().words("agents", agent_names)
    return found


def _pool_names() -> list[str]:
    from det_jupyter.notebook.complete.lookups import pool_names

    found: list[str] = _lookups().words("pools", pool_names)
    return found


def _waiting_trials() -> list[str]:
    from det_jupyter.notebook.complete.lookups import waiting_trials

    found: list[str] = _lookups().words("waiting trials", waiting_trials)
    return found


def _metric_names(entrypoint: str | None) -> list[str]:
    from det_jupyter.notebook.complete.lookups import metric_names

    ask = partial(metric_names, entrypoint=entrypoint)
    found: list[str] = _lookups().words(f"metrics of {entrypoint}", ask)
    return found


# What the words of our lines may be, by the names that the parsers have for them.
_KNOWN: dict[str, Callable[[], list[str]]] = {
    "id": _experiment_ids,
    "experiment": _experiment_ids,
    "ahead_of": _experiment_ids,
    "behind": _experiment_ids,
    "name": _template_names,
    "path": _paths,
    "agent": _agent_names,
    "pool": _pool_names,
    "resource_pool": _pool_names,
    "trial": _waiting_trials,
}
