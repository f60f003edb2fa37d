"""A first configuration for a trial, from a template's text and what the trial's code shows.

The text stays as it is, but for the metric, hyperparameters that are missing, and the entrypoint.
Values that neither template nor code gives are guessed from names, and a comment says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

from det_jupyter.direction import is_smaller_better
from det_jupyter.needs import UNKNOWN, Needs

_GUESSES: tuple[tuple[str, Any], ...] = (  # the first that a name fits
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


def start(template: str, entrypoint: str, needs: Needs | None) -> str:
    """Return the text of a configuration for the entrypoint."""
    text = re.sub(r"(?m)^entrypoint:.*$", f"entrypoint: {entrypoint}", template, count=1)
    if text == template and not re.search(r"(?m)^entrypoint:", template):
        text = f"entrypoint: {entrypoint}\n{template}"
    if needs is None:
        return text
    try:
        return _with_metric(_with_hparams(text, needs), needs)
    except (yaml.YAMLError, AttributeError):  # the user's own template is no mapping
        return text


def _with_metric(text: str, needs: Needs) -> str:
    searcher = _section(text, "searcher")
    given = yaml.safe_load(text).get("searcher") or {}
    if searcher is None or not needs.metrics or given.get("metric") in needs.metrics:
        return text
    order = {True: 0, False: 1, None: 2}
    metric, *others = sorted(needs.metrics, key=lambda name: order[is_smaller_better(name)])
    note = f"  # it also reports {', '.join(others)}" if others else ""
    smaller = is_smaller_better(metric)
    lines = {"metric": f"{_written(metric)}{note}"}
    if smaller is not None:
        lines["smaller_is_better"] = json.dumps(smaller)
    return _with_lines(text, "searcher", searcher, lines)


def _with_hparams(text: str, needs: Needs) -> str:
    given = yaml.safe_load(text).get("hyperparameters") or {}
    missing = {name: each for name, each in needs.hparams.items() if name not in given}
    if not missing:
        return text
    values = {name: _guess(name, each) for name, each in missing.items()}
    lines = {name: _written(value) for name, value in values.items()}
    if any(_is_guessed(each) for each in missing.values()):
        first = next(iter(lines))
        lines[first] += _GUESSED
    section = _section(text, "hyperparameters")
    if section is None:
        own = "".join(f"  {_written(name)}: {value}\n" for name, value in lines.items())
        return f"{text.rstrip()}\nhyperparameters:\n{own}"
    return _with_lines(text, "hyperparameters", section, lines)


def _section(text: str, name: str) -> yaml.MappingNode | None:
    document = yaml.compose(text)
    for key, value in [] if document is None else document.value:
        if key.value == name and isinstance(value, yaml.MappingNode):
            return value
    return None


def _with_lines(text: str, name: str, section: yaml.MappingNode, lines: Mapping[str, str]) -> str:
    """Return the text with these keys in a section, in place of those of the same names."""
    if section.flow_style:  # written anew as lines, which have room for comments
        kept = {key: _written(value) for key, value in yaml.safe_load(text)[name].items()}
        begin = text.rindex("\n", 0, section.start_mark.index) + 1
        body = "".join(f"\n  {_written(key)}: {value}" for key, value in {**kept, **lines}.items())
        return f"{text[:begin]}{name}:{body}{text[section.end_mark.index :]}"
    rows = text.splitlines()
    indent = " " * section.start_mark.column
    places = {key.value: (key.start_mark.line, value) for key, value in section.value}
    added = [f"{indent}{_written(k)}: {v}" for k, v in lines.items() if k not in places]
    ends = {key.value: _last_line(value) for key, value in section.value}
    beside = [ends[key] for key in lines if key in ends]  # else below all others
    last = max(beside or ends.values(), default=section.start_mark.line)
    rows[last + 1 : last + 1] = added
    for key, value in lines.items():
        if key in places and isinstance(places[key][1], yaml.ScalarNode):
            rows[places[key][0]] = f"{indent}{_written(key)}: {value}"
    return "\n".join(rows) + "\n"


def _last_line(node: yaml.Node) -> int:
    """Return the line on which a value ends: that of a block begins the next one."""
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
    """Return a value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
