"""Writes a configuration as readable YAML, with the origin of values in comments."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import is_free, masked
from det_jupyter.contract.schema.key_paths import join

_FIRST = {"searcher": ("name", "metric"), "checkpoint_storage": ("type",)}
_PLAIN = re.compile(r"[A-Za-z_/](?:[\w ./@+=-]*[\w/@+=-])?", re.ASCII)
_NOT_TEXT = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "none", "nan", "inf"}
_WIDEST = 60  # characters of a list or mapping on one line
_COMMENT_AT = 56  # largest column of comments


def to_yaml(effective: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> str:
    """Return a configuration as YAML; secrets are masked.

    Args:
        effective: The configuration, or a part of one.
        origins: The origin of each value ("you", "template") by path; others are defaults. Values
            that are not the user's get a comment. None: no comments.

    >>> print(to_yaml({"searcher": {"max_length": {"epochs": 6}, "name": "single"}}), end="")
    searcher:
      name: single
      max_length: {epochs: 6}
    """
    lines = list(_section(effective, "", 0, origins))
    width = max((len(line) for line, comment in lines if comment), default=0)
    width = min(width, _COMMENT_AT)
    texts = (f"{line.ljust(width)}  # {word}" if word else line for line, word in lines)
    return "".join(f"{text}\n" for text in texts)


def _section(
    section: Mapping[str, Any], path: str, depth: int, origins: Mapping[str, str] | None
) -> Iterator[tuple[str, str]]:
    """Yield each line with its comment."""
    indent = "  " * depth
    order = list(_FIRST.get(path, ())) if path else list(ExperimentConfig.model_fields)
    first = [key for key in order if key in section]
    for key in [*first, *(key for key in section if key not in first)]:
        value, here = section[key], join(path, key)
        if value is None and not is_free(here):
            continue
        start = f"{indent}{_scalar(key)}:"
        comments = _comments_on(value, here, origins)
        if _fits_one_line(value, here) and len(comments) == 1:
            yield f"{start} {_flow(value, here)}", comments.pop()
        elif isinstance(value, Mapping):
            yield start, ""
            yield from _section(value, here, depth + 1, origins)
        else:
            yield start, ""
            for index, item in enumerate(value):
                place = join(here, index)
                words = sorted(_comments_on(item, place, origins) - {"default"})
                yield f"{indent}- {_flow(item, place)}", ", ".join(words)


def _fits_one_line(value: Any, path: str) -> bool:
    if not isinstance(value, (Mapping, list)) or not value:
        return True
    items = value.values() if isinstance(value, Mapping) else value
    if isinstance(value, Mapping) and "." not in path and not path.endswith("_period"):
        return False  # a section of its own
    is_flat = not any(isinstance(item, Mapping) and item for item in items)
    return is_flat and len(_flow(value, path)) <= _WIDEST


def _comments_on(value: Any, path: str, origins: Mapping[str, str] | None) -> set[str]:
    """Return the comments for all parts of a value; "" stands for the user's own."""
    if origins is None:
        return {""}
    found = {origins.get(leaf, "default") for leaf in _leaves(value, path)}
    return {"" if origin == "you" else origin for origin in found} or {""}


def _leaves(value: Any, path: str) -> Iterator[str]:
    items: Iterable[tuple[int | str, Any]] = ()
    if isinstance(value, Mapping):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    is_leaf = True
    for part, item in items:
        is_leaf = False
        if item is not None or is_free(path):
            yield from _leaves(item, join(path, part))
    if is_leaf:
        yield path


def _flow(value: Any, path: str) -> str:
    if isinstance(value, Mapping):
        inner = (
            f"{_scalar(key)}: {_flow(item, join(path, key))}"
            for key, item in value.items()
            if item is not None or is_free(path)
        )
        return "{" + ", ".join(inner) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_flow(item, join(path, i)) for i, item in enumerate(value)) + "]"
    return _scalar(masked(path, value))


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT:
            return value
        if value.isprintable():
            return json.dumps(value, ensure_ascii=False)
        return yaml.safe_dump(value, default_style='"', width=10**9, allow_unicode=False).strip()
    if isinstance(value, float):
        mantissa, e, exponent = repr(value).partition("e")
        return f"{mantissa}{'' if '.' in mantissa or not e else '.0'}{e}{exponent}"
    return json.dumps(value)
