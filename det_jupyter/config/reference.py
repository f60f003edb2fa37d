"""Help on the keys of a configuration, from the classes that check it.

The descriptions are the strings below the fields in the source. They are parsed at the first use,
so that importing this module is fast.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from det_jupyter.config.keys import NO_EFFECT, TAGS
from det_jupyter.config.tree import all_sections, fields_of, sections_at, types_at
from det_jupyter.contract.schema.fields import Ignored, Section
from det_jupyter.contract.values.lengths import UNITS, Length
from det_jupyter.contract.values.text import listed

_COMPUTED = {
    "name": "the entrypoint",
    "checkpoint_storage.type": "shared_fs",
    "reproducibility": None,
    "reproducibility.experiment_seed": "drawn at submission",
    "min_validation_period": "{epochs: 1} if max_length is in epochs, else {batches: 0}",
}
_NAMES = {
    str: "text",
    bool: "true or false",
    int: "whole number",
    float: "number",
    Length: "length",
}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most"}
ANYTHING = "anything"
_LARGE = 10**6
_AMOUNT = "Amount of training."
_FREE_TYPES = {
    "entrypoint": "class, function or command",
    "environment.environment_variables": "list of NAME=value",
    "resources.slots_per_trial": "whole number, at least 0, or {min: 1, max: 8}",
    "optimizations.gradient_compression": "true, false, fp16, bf16 or powersgd",
    "optimizations.compile": "true, false, or a backend",
    "alerts.on": "list of failed, hang, nan, disk, recovered, ended",
}


@dataclass(frozen=True, slots=True)
class FieldHelp:
    """The help on a key."""

    path: str
    type: str  # its type in words
    default: Any  # its default, as a value of YAML; None: it has none, or it is required
    text: str  # its description, a sentence
    choices: tuple[str, ...] = ()  # its possible values, if they are few
    is_required: bool = False  # whether a complete configuration must contain it
    note: str = ""  # why it has no effect here; "": it has one


def known_keys(
    section_path: str, document: Mapping[str, Any] | None = None
) -> dict[str, FieldHelp]:
    """Return the keys that a section may have, in the order of its fields.

    Args:
        section_path: Path of the section, without indices; "": the whole configuration.
        document: What is written so far; it may contain the kind of searcher or storage.
    """
    keys = tuple(section_path.split(".")) if section_path else ()
    fields = fields_of(sections_at(keys, document))
    if not fields and Length in types_at(keys):
        return {
            unit: FieldHelp(f"{section_path}.{unit}", "whole number, at least 0", None, _AMOUNT)
            for unit in UNITS
        }
    tag = TAGS.get(section_path)
    names = sorted(fields, key=lambda name: name != tag)  # first the key that selects the kind
    return {
        name: _help(f"{section_path}.{name}" if section_path else name, fields[name])
        for name in names
    }


def describe(path: str) -> FieldHelp | None:
    """Return the help on a key, None if there is no such key."""
    section, _, key = path.rpartition(".")
    return known_keys(section).get(key)


def choices(path: str) -> tuple[str, ...]:
    """Return the possible values of a key, if they are few; otherwise an empty tuple."""
    found = describe(path)
    return found.choices if found is not None else ()


def _help(path: str, found: Sequence[tuple[type, FieldInfo]]) -> FieldHelp:
    """Return the help on a key, which several kinds of a section may have."""
    info = found[-1][1]
    words: tuple[str, ...] = ()
    for _, one in found:
        words += tuple(word for word in _choices(one.annotation) if word not in words)
    texts = list(dict.fromkeys(_description(owner, path.rpartition(".")[2]) for owner, _ in found))
    is_required = all(one.is_required() for _, one in found) and path not in _COMPUTED
    return FieldHelp(
        path=path,
        type=_FREE_TYPES.get(path)
        or listed(words, last="or")
        or _name(info.annotation, info.metadata),
        default=_COMPUTED[path] if path in _COMPUTED else _default(info),
        text=" / ".join(filter(None, texts)) or "Has no effect.",
        choices=words,
        is_required=is_required,
        note=NO_EFFECT.get(path, ""),
    )


def _default(info: FieldInfo) -> Any:
    if info.is_required():
        return None
    value = info.default
    if isinstance(value, Length):
        return value.to_document()
    return value if isinstance(value, (str, bool, int, float, list, dict)) else None


def _choices(annotation: Any) -> Iterator[str]:
    if get_origin(annotation) is Literal:
        yield from (str(value) for value in get_args(annotation))
    elif annotation is bool:
        yield from ("true", "false")
    elif get_origin(annotation) is not list:
        for argument in get_args(annotation):
            yield from _choices(argument)


def _name(annotation: Any, metadata: Iterable[Any] = ()) -> str:
    metadata = list(metadata)
    while get_origin(annotation) is Annotated:
        annotation, *more = get_args(annotation)
        metadata += more
    members = [member for member in get_args(annotation) if member is not NoneType]
    if get_origin(annotation) is list:
        noun, comma, rest = _name(members[0]).partition(",")
        return f"list of {noun}{'' if noun == 'text' else 's'}{comma}{rest}"
    if annotation is Ignored:
        return ANYTHING
    if get_origin(annotation) is dict:
        return "mapping"
    if NoneType in get_args(annotation) and len(members) == 1:
        return _name(members[0], metadata)
    name = _NAMES.get(annotation, "mapping")
    bounds = _bounds(metadata)
    if "ge" in bounds and "le" in bounds:
        return f"{name}, {bounds['ge']} to {bounds['le']}"
    said = (f"{word} {bounds[each]}" for each, word in _BOUNDS.items() if each in bounds)
    return ", ".join((name, *said))


def _bounds(metadata: Iterable[Any]) -> dict[str, str]:
    """Return the bounds of a number by their names in `_BOUNDS`, without those of storage."""
    found = {}
    for item in metadata:
        for constraint in getattr(item, "metadata", [item]):
            for attribute in _BOUNDS:
                bound = getattr(constraint, attribute, None)
                if bound is not None and bound <= max(_LARGE, 2**31):
                    found[attribute] = f"{bound:g}" if bound < _LARGE else f"{bound}"
    return found


def _description(owner: type, name: str) -> str:
    """Return the string below a field, in its class or in a base class; "" if there is none."""
    sections = (cls for cls in owner.__mro__ if issubclass(cls, Section))
    found = (_descriptions(cls.__module__).get((cls.__name__, name)) for cls in sections)
    return next((text for text in found if text), "")


@cache
def _descriptions(module: str) -> dict[tuple[str, str], str]:
    """Return the strings below the fields of a module's classes, by class and field name."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # installed without its source
        return {}
    found: dict[tuple[str, str], str] = {}
    for cls in ast.walk(tree):
        if not isinstance(cls, ast.ClassDef):
            continue
        for field, below in zip(cls.body, cls.body[1:], strict=False):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(field.target, ast.Name)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                found[cls.name, field.target.id] = inspect.cleandoc(str(below.value.value))
    return found


def describe_field(section: str, name: str) -> str:
    """Return the description of a field, given the name of its class and its own name."""
    return next((_description(cls, name) for cls in all_sections() if cls.__name__ == section), "")
