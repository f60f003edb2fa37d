"""Makes a first configuration for a trial, from a text and from the source of the trial.

Only the metric, missing hyperparameters and the entrypoint are changed in the text. Values that
are neither in the text nor in the code are guessed from the names, with a comment.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from det_jupyter.contract.trial.source_needs import UNKNOWN, Needs
from det_jupyter.contract.values.direction import is_smaller_better

_GUESSES: tuple[tuple[str, Any], ...] = (  # value by pattern of the name; the first match counts
    (r"(^|_)batch_?size$", 64),
    (r"(^|_)(lr|learning_rate)$", 0.001),
    (r"weight_decay|^wd$|^l2", 0.0001),
    (r"betas$", [0.9, 0.999]),
    (r"momentum|beta_?1|gamma|decay", 0.9),
    (r"beta_?2", 0.999),
    (r"^eps|epsilon", 1e-8),
    (r"drop", 0.1),
    (r"smoothing", 0.1),
    (r"clip|max_norm|temperature|alpha|scale", 1.0),
    (r"^(is|has|use|with|do)_|pretrained|shuffle|bias|nesterov", False),
    (r"kernel", 3),
    (r"(^|_)(n_?)?(layers?|depth|blocks?|heads?|stages?)$|^num_", 2),
    (r"hidden|width|units|dim|features|filters|channels|neurons|size", 32),
    (r"epochs?$|patience", 5),
    (r"warm|steps?$|period", 100),
    (r"seed|workers", 0),
    (r"act(ivation)?$", "relu"),
    (r"optim(izer)?$", "sgd"),
)
_GUESSED = "  # guessed from the names: change them"


def draft(
    text: str, entrypoint: str, needs: Needs | None, given: Mapping[str, Any] | None = None
) -> str:
    """Return the text of a configuration for the entrypoint.

    Args:
        text: The text to complete.
        entrypoint: The entrypoint to write; "": the text's entrypoint is kept.
        needs: What the entrypoint reads and reports.
        given: The master's template, whose keys are left out of the result.
    """
    given = given or {}
    try:
        document = yaml.compose(text)
        if isinstance(document, yaml.MappingNode):
            text = _without(text, document, given)
            text = _with_entrypoint(text, entrypoint)
            if needs is not None:
                text = _with_metric(_with_hparams(text, needs, given), needs, given)
            return text
    except (yaml.YAMLError, AttributeError):  # a text of the user that is no configuration
        pass
    return _with_entrypoint(text, entrypoint)


def _with_entrypoint(text: str, entrypoint: str) -> str:
    if not entrypoint:
        return text
    line = f"entrypoint: {entrypoint}"
    own = re.search(r"(?m)^entrypoint:.*$", text)
    return f"{line}\n{text}" if own is None else f"{text[: own.start()]}{line}{text[own.end() :]}"


def _without(text: str, document: yaml.MappingNode, given: Mapping[str, Any]) -> str:
    """Return the text without the lines of keys that `given` has."""
    rows = text.splitlines(keepends=True)
    for first, end in reversed(_lines_given(document, given)):
        del rows[first:end]
    return "".join(rows)


def _lines_given(section: yaml.MappingNode, given: Mapping[str, Any]) -> list[tuple[int, int]]:
    """Return the line ranges [first, end) of the keys of a section that `given` has."""
    found = []
    for key, value in section.value:
        own = given.get(key.value)
        if isinstance(own, Mapping) and isinstance(value, yaml.MappingNode):
            names = {name.value for name, _ in value.value}
            if not names <= {*own}:
                found += [] if value.flow_style else _lines_given(value, own)
                continue
        if own is not None:
            found.append((key.start_mark.line, _last_line(value) + 1))
    return found


def _with_metric(text: str, needs: Needs, given: Mapping[str, Any]) -> str:
    named = _part(text, "searcher", given)
    if not named or not needs.metrics or named.get("metric") in needs.metrics:
        return text
    order = {True: 0, False: 1, None: 2}
    metric, *others = sorted(needs.metrics, key=lambda name: order[is_smaller_better(name)])
    note = f"  # it also reports {', '.join(others)}" if others else ""
    smaller = is_smaller_better(metric)
    lines = {"metric": f"{_written(metric)}{note}"}
    if smaller is not None:
        lines["smaller_is_better"] = json.dumps(smaller)
    return _with_lines(text, "searcher", lines)


def _with_hparams(text: str, needs: Needs, given: Mapping[str, Any]) -> str:
    named = _part(text, "hyperparameters", given)
    missing = {name: each for name, each in needs.hparams.items() if name not in named}
    if not missing:
        return text
    values = {name: _guess(name, each) for name, each in missing.items()}
    lines = {name: _written(value) for name, value in values.items()}
    if any(_is_guessed(each) for each in missing.values()):
        first = next(iter(lines))
        lines[first] += _GUESSED
    return _with_lines(text, "hyperparameters", lines)


def _part(text: str, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a section of the text, merged over that of `given`."""
    return {**(given.get(name) or {}), **((yaml.safe_load(text) or {}).get(name) or {})}


def _section(text: str, name: str) -> yaml.MappingNode | None:
    document = yaml.compose(text)
    for key, value in [] if document is None else document.value:
        if key.value == name and isinstance(value, yaml.MappingNode):
            return value
    return None


def _with_lines(text: str, name: str, lines: Mapping[str, str]) -> str:
    """Return the text with `lines` (value by key) in section `name`, replacing equal keys."""
    section = _section(text, name)
    if section is None:
        own = "".join(f"  {_written(key)}: {value}\n" for key, value in lines.items())
        return f"{text.rstrip()}\n{name}:\n{own}"
    if section.flow_style:  # rewritten in block style, which allows comments
        kept = {key: _written(value) for key, value in yaml.safe_load(text)[name].items()}
        begin = text.rindex("\n", 0, section.start_mark.index) + 1
        body = "".join(f"\n  {_written(key)}: {value}" for key, value in {**kept, **lines}.items())
        return f"{text[:begin]}{name}:{body}{text[section.end_mark.index :]}"
    rows = text.splitlines()
    indent = " " * section.start_mark.column
    places = {key.value: (key.start_mark.line, value) for key, value in section.value}
    added = [f"{indent}{_written(k)}: {v}" for k, v in lines.items() if k not in places]
    ends = {key.value: _last_line(value) for key, value in section.value}
    replaced = [ends[key] for key in lines if key in ends]  # added below them, else at the end
    last = max(replaced or ends.values(), default=section.start_mark.line)
    rows[last + 1 : last + 1] = added
    for key, value in lines.items():
        if key in places and isinstance(places[key][1], yaml.ScalarNode):
            rows[places[key][0]] = f"{indent}{_written(key)}: {value}"
    return "\n".join(rows) + "\n"


def _last_line(node: yaml.Node) -> int:
    """Return the last line of a value; the end mark of a block is at the start of the next."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        inner = node.value[-1]
        return _last_line(inner[1] if isinstance(inner, tuple) else inner)
    end: int = node.end_mark.line
    return end


def _guess(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _guess(key, each) for key, each in value.items()}
    if value is not UNKNOWN:
        return value
    return next((guess for pattern, guess in _GUESSES if re.search(pattern, name.lower())), 1)


def _is_guessed(value: Any) -> bool:
    return value is UNKNOWN or (isinstance(value, dict) and any(map(_is_guessed, value.values())))


def _written(value: Any) -> str:
    """Format a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
