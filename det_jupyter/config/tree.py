"""Where a path leads in the tree of sections; the sections with no meaning here are in it too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args

from pydantic.fields import FieldInfo

from det_jupyter.config.experiment_config import ExperimentConfig
from det_jupyter.config.keys import TAGS
from det_jupyter.contract.schema.fields import Section
from det_jupyter.contract.schema.key_paths import look_up


def flat(annotation: Any) -> Iterator[Any]:
    """Yield an annotation and all that it is made of."""
    yield annotation
    for argument in get_args(annotation):
        yield from flat(argument)


def sections_of(annotation: Any) -> Iterator[type[Section]]:
    """Yield the sections that a field's annotation names."""
    for part in flat(annotation):
        if isinstance(part, type) and issubclass(part, Section):
            yield part


@cache
def kinds(section: str) -> dict[str, type[Section]]:
    """Return the kinds of a section that has several, by what its tag says."""
    found = sections_of(ExperimentConfig.model_fields[section].annotation)
    tag = TAGS[section]
    return {get_args(kind.model_fields[tag].annotation)[0]: kind for kind in found}


def sections_at(
    parts: Sequence[str], document: Mapping[str, Any] | None = None
) -> list[type[Section]]:
    """Return the sections that may be at a path, without indices; none if there is no such path.

    Args:
        document: If given, says which kind of searcher or storage it is.
    """
    found: list[type[Section]] = [ExperimentConfig]
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
    """Return the fields of the sections by name, each with the sections that have it."""
    found: dict[str, list[tuple[type, FieldInfo]]] = {}
    for section in sections:
        for name, info in section.model_fields.items():
            found.setdefault(name, []).append((section, info))
    return found


@cache
def all_paths() -> tuple[str, ...]:
    """Return the paths of all keys there are, in the order of the sections."""

    def walk(parts: tuple[str, ...]) -> Iterator[str]:
        for name in fields_of(sections_at(parts)):
            yield ".".join((*parts, name))
            yield from walk((*parts, name))

    return tuple(walk(()))


def types_at(keys: Sequence[str]) -> set[type]:
    """Return which types a value here, or a part of it, may be of."""
    if not keys:
        return set()
    found = fields_of(sections_at(keys[:-1])).get(keys[-1], [])
    parts = (part for _, info in found for part in flat(info.annotation))
    return {part for part in parts if isinstance(part, type)}


@cache
def all_sections() -> tuple[type[Section], ...]:
    """Return every class of the tree once, the whole first."""
    found: dict[type[Section], None] = {ExperimentConfig: None}
    for path in all_paths():
        found |= dict.fromkeys(sections_at(path.split(".")))
    return tuple(found)
