"""Looks up paths in the tree of sections and their fields, also of those without effect here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args, get_origin

from pydantic.fields import FieldInfo

from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import TAGS
from det_jupyter.contract.schema.fields import Section
from det_jupyter.contract.schema.key_paths import look_up
from det_jupyter.contract.values.lengths import UNITS, Length


def flat(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and its type arguments, recursively."""
    yield annotation
    for argument in get_args(annotation):
        yield from flat(argument)


def sections_of(annotation: Any) -> Iterator[type[Section]]:
    """Yield the section classes in a field's annotation."""
    for part in flat(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            yield part


@cache
def kinds(section: str) -> dict[str, type[Section]]:
    """Return the kinds of a section in TAGS, by the value of its tag."""
    found = sections_of(ExperimentConfig.model_fields[section].annotation)
    tag = TAGS[section]
    return {get_args(kind.model_fields[tag].annotation)[0]: kind for kind in found}


def sections_at(
    parts: Sequence[str],
    document: Mapping[str, Any] | None = None,
    root: type[Section] = ExperimentConfig,
) -> list[type[Section]]:
    """Return the section classes at a path of keys; empty if there is no such section.

    Args:
        parts: The keys, without indices.
        document: If given, only the kind of searcher or storage that it has is returned.
        root: The section that the path begins in.
    """
    found = [root]
    for depth, part in enumerate(parts):
        found = [
            below
            for section in found
            if part in section.model_fields
            for below in sections_of(section.model_fields[part].annotation)
        ]
        if depth == 0 and part in TAGS and document is not None:
            kind = look_up(document, f"{part}.{TAGS[part]}")
            if isinstance(kind, str) and kind in kinds(part):
                found = [kinds(part)[kind]]
    return list(dict.fromkeys(found))


def fields_of(sections: Iterable[type[Section]]) -> dict[str, list[tuple[type, FieldInfo]]]:
    """Return the fields of sections by name, with the sections that have them."""
    found: dict[str, list[tuple[type, FieldInfo]]] = {}
    for section in sections:
        for name, info in section.model_fields.items():
            found.setdefault(name, []).append((section, info))
    return found


@cache
def all_paths() -> tuple[str, ...]:
    """Return the paths of all keys, in the order of the fields."""

    def walk(parts: tuple[str, ...]) -> Iterator[str]:
        for name in fields_of(sections_at(parts)):
            yield ".".join((*parts, name))
            yield from walk((*parts, name))

    return tuple(walk(()))


@cache
def paths_by_name() -> dict[str, tuple[str, ...]]:
    """Return the paths of all keys by their last parts; the units of lengths are keys too."""
    found: dict[str, list[str]] = {}
    for path in all_paths():
        found.setdefault(path.rpartition(".")[2], []).append(path)
        for unit in UNITS if Length in types_at(path.split(".")) else ():
            found.setdefault(unit, []).append(f"{path}.{unit}")
    return {name: tuple(paths) for name, paths in found.items()}


@cache
def is_in_list(path: str) -> bool:
    """Return whether a path of keys leads through a list, so that it needs an index."""
    parts = path.split(".")
    for depth in range(1, len(parts)):
        fields = fields_of(sections_at(parts[: depth - 1])).get(parts[depth - 1], [])
        if any(get_origin(part) is list for _, info in fields for part in flat(info.annotation)):
            return True
    return False


def types_at(keys: Sequence[str]) -> set[type]:
    """Return the types in the annotations of the fields at a path of keys."""
    if not keys:
        return set()
    found = fields_of(sections_at(keys[:-1])).get(keys[-1], [])
    parts = (part for _, info in found for part in flat(info.annotation))
    return {part for part in parts if isinstance(part, type)}


@cache
def all_sections() -> tuple[type[Section], ...]:
    """Return every section class of the tree once, ExperimentConfig first."""
    found: dict[type[Section], None] = {ExperimentConfig: None}
    for path in all_paths():
        found |= dict.fromkeys(sections_at(path.split(".")))
    return tuple(found)
