"""Completion of `%det_experiment` lines and of the YAML below `%%det_experiment`.

Uses IPython's v2 matchers: only they can say that nothing but our words fits here.
"""

from __future__ import annotations

import argparse
import re
from typing import Any, get_args

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from pydantic import BaseModel

from det_jupyter.notebook.arguments import cell_parser, line_parser


@context_matcher(identifier="det_jupyter.det_experiment")  # type: ignore[untyped-decorator]
def match_det_experiment(context: CompletionContext) -> dict[str, Any]:
    """Complete a line that is ours; leave every other line alone."""
    lines = context.full_text.split("\n")
    line = context.line_with_cursor[: context.cursor_position]
    if re.match(r"\s*%det_experiment\b", line):
        words = _line_words(line)
    elif not lines[0].startswith("%%det_experiment"):
        return {"completions": []}
    elif context.cursor_line == 0:
        words = _options(cell_parser())
    else:
        words = _keys(lines[: context.cursor_line], line)
    typed = re.split(r"[\s{,]", line)[-1]
    # What is replaced is IPython's token, which ends after the last dash or dot of ours.
    lead = len(typed) - len(context.token) if typed.endswith(context.token) else 0
    completions = [
        SimpleCompletion(text=word[lead:], type="param")
        for word in words
        if word.startswith(typed)
    ]
    return {"completions": completions, "suppress": True}


def _line_words(line: str) -> list[str]:
    given = line.split()[1:]
    if line.endswith(" "):
        given.append("")
    verbs = _verb_parsers()
    if len(given) <= 1:
        return [*verbs, "--help"]
    parser = verbs.get(given[0])
    if parser is None:
        return []
    takes_id = any(action.dest == "id" for action in parser._actions)
    return (_experiment_ids() if takes_id and len(given) == 2 else []) + _options(parser)


def _verb_parsers() -> dict[str, argparse.ArgumentParser]:
    subparsers = next(
        action
        for action in line_parser()._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    return dict(subparsers.choices)


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return sorted(o for action in parser._actions for o in action.option_strings if len(o) > 2)


def _experiment_ids() -> list[str]:
    """Return the numbers of all experiments; none when no master runs: Tab starts nothing."""
    from det_jupyter.autostart import find_master
    from det_jupyter.errors import DetError
    from det_jupyter.notebook import handles

    try:
        views = handles.client().experiments() if find_master() else []
    except DetError:
        return []
    return [str(view.id) for view in reversed(views)]


def _keys(lines_before: list[str], line: str) -> list[str]:
    """Return the keys of the section that the cursor is in, from indentation or an open brace."""
    from det_jupyter.config import ExperimentConfig

    section: type[BaseModel] | None = ExperimentConfig
    inline = re.match(r"\s*(\w+):\s*\{[^}]*$", line)
    if inline:
        section = _subsection(ExperimentConfig, inline[1])
    elif line.startswith((" ", "\t")):
        parents = [m[1] for text in lines_before if (m := re.match(r"(\w+):\s*$", text))]
        section = _subsection(ExperimentConfig, parents[-1]) if parents else None
    elif ":" in line:
        return []
    return [f"{name}: " for name in section.model_fields] if section else []


def _subsection(section: type[BaseModel], name: str) -> type[BaseModel] | None:
    field = section.model_fields.get(name)
    if field is None:
        return None
    for candidate in (field.annotation, *get_args(field.annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None
