"""Parses the user's files that apply to all experiments: pools, alerts and trackers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from det_jupyter.config.parsing import without_nulls
from det_jupyter.config.problems import describe
from det_jupyter.config.yaml_text import read_yaml, with_lines
from det_jupyter.contract.schema.fields import Section
from det_jupyter.contract.schema.key_paths import sort_problems
from det_jupyter.errors import ConfigError, Problem

File = TypeVar("File", bound=Section)


def read_file(text: str, key: str, parse: Callable[[Mapping[str, Any]], File]) -> File | None:
    """Parse the text of a file; None if it has only comments.

    Args:
        text: The text.
        key: The key of its list.
        parse: Parses the document.

    Raises:
        ConfigError: All problems; none quotes the whole text.
    """
    if all(line.lstrip()[:1] in ("", "#") for line in text.splitlines()):
        return None
    reading = read_yaml(text)
    problems = with_lines(reading.problems, reading.lines)
    if not reading.is_document:  # a problem without a line quotes all of the text
        problems = [each for each in problems if each.line]
        raise ConfigError(problems or [Problem("", f"expected `{key}:`, and a list below it")])
    if problems:
        raise ConfigError(problems)
    return parse(reading.document)


def parse_file(file: type[File], document: Mapping[str, Any]) -> File:
    """Return a user's file of this kind, made from its parsed YAML.

    Raises:
        ConfigError: All problems of single values.
    """
    filled = without_nulls(document)
    try:
        return file.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(sort_problems(describe(error, filled, root=file))) from None


def parse_entries(
    file: type[File], key: str, document: Mapping[str, Any], others: Iterable[Problem] = ()
) -> File:
    """Return a user's file that is one list of entries with names of their own.

    Args:
        others: Problems that were found before.

    Raises:
        ConfigError: All problems.
    """
    problems = list(others)
    try:
        parsed = parse_file(file, document)
    except ConfigError as error:
        raise ConfigError(sort_problems([*problems, *error.problems])) from None
    names = [(f"{key}[{i}].name", each.name) for i, each in enumerate(getattr(parsed, key))]
    if problems := [*problems, *find_repeated(names)]:
        raise ConfigError(sort_problems(problems))
    return parsed


def find_repeated(names: Iterable[tuple[str, str | None]]) -> Iterator[Problem]:
    """Yield a problem for each name that an earlier one equals; None is no name.

    Args:
        names: Paths in the document, and the names there.
    """
    earlier: set[str] = set()
    for path, name in names:
        if name in earlier:
            yield Problem(path, f"got {name!r} once more; every one needs a name of its own")
        if name is not None:
            earlier.add(name)
