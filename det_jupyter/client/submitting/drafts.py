"""Configurations before submission: YAML of a cell or file, merged with template and options.

All problems are reported at once, each with its line in the YAML; problems of a template name the
template instead. The search of a draft can be previewed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from pathlib import Path
from typing import Any

from det_jupyter.client.client import Client
from det_jupyter.client.requests import make_request
from det_jupyter.config import (
    ExperimentConfig,
    Sources,
    YamlDocument,
    check_sanity,
    merge,
    parse_config,
    take_template,
    unwritable_storage,
    with_default_storage,
    with_storage,
)
from det_jupyter.contract.messages import PreviewRequest, PreviewView
from det_jupyter.errors import ConfigError, NotFound, Problem

_MOST_CHARS = 4 * 2**20  # far more than the longest configuration


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A configuration that is about to be submitted.

    Args:
        reading: The cell's YAML, lines as the user sees them.
        document: The configuration in it, with the options of the line merged in.
        template_name: The template's name, if one is given.
        template: The template's configuration; None if it does not exist.
        remarks: Notices about changes that were made to the document.
    """

    reading: YamlDocument
    document: dict[str, Any]
    template_name: str | None = None
    template: dict[str, Any] | None = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)

    def merged(self) -> dict[str, Any]:
        """Return the document merged over its template, without defaults, unchecked."""
        return merge(self.template or {}, self.document)

    def parse(self, *, default_seed: int) -> tuple[ExperimentConfig | None, list[Problem]]:
        """Return the configuration with defaults (None if invalid), and all problems."""
        problems = list(self.reading.problems)
        if self.template is None or not self.reading.is_document:  # more problems may be hidden
            return None, problems + check_sanity(self.document)
        try:
            return parse_config(
                self.document, default_seed=default_seed, template=self.template
            ), problems
        except ConfigError as error:
            return None, problems + error.problems

    def located(self, problems: Iterable[Problem]) -> ConfigError:
        """Return an error with the problems, each with its line, in the order of the lines."""
        return located(problems, self.reading, self.document, self.template_name, self.template)


def make_draft(
    client_of: Callable[[], Client],
    reading: YamlDocument,
    template_name: str | None = None,
    changes: Iterable[Mapping[str, Any]] = (),
    checkpoint_storage: str | None = None,
) -> Draft:
    """Return the draft of a configuration, with the template below it and the changes above it.

    Args:
        client_of: Returns the client; called for a template, and if the configuration's own
            storage cannot be written to.
        reading: The parsed text; problems with the template are added to it.
        template_name: The template; None: the one that the document's key `template` names.
        changes: Override the document, each the ones before it.
        checkpoint_storage: The folder for checkpoints; overrides the document.
    """
    reading = lay_over(reading, changes)
    document = reading.document
    if checkpoint_storage is not None:
        reading = lay_over(reading, [{"checkpoint_storage": {}}])  # problems with it have no line
        document = with_storage(document, os.path.abspath(os.path.expanduser(checkpoint_storage)))
    name, problems = take_template(document, template_name)
    template: dict[str, Any] | None = {}
    try:
        if name is not None:
            template = client_of().template(name).config
    except NotFound as error:
        template = None
        problems.append(Problem("template" if template_name is None else "--template", str(error)))
    reading.problems.extend(problems)
    remarks: list[str] = []
    if template is not None and unwritable_storage(document, template):
        storage = client_of().session.info.checkpoint_storage
        document, remarks = with_default_storage(document, template, storage)
    return Draft(
        reading=reading,
        document=document,
        template_name=name,
        template=template,
        remarks=remarks,
    )


def lay_over(reading: YamlDocument, changes: Iterable[Mapping[str, Any]]) -> YamlDocument:
    """Return a reading with changes merged into its document; the changed keys have no lines."""
    changes = list(changes)
    return replace(
        reading,
        document=reduce(merge, changes, reading.document),
        lines=reading.lines | {path: 0 for change in changes for path in _paths(change)},
    )


def _paths(document: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted paths of the values in a nested document."""
    for key, value in document.items():
        path = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from _paths(value, f"{path}.")
        else:
            yield path


def below_magic(cell: str) -> str:
    """Return the YAML of a cell after an empty line for the magic, so that line numbers fit."""
    return f"\n{cell}"


def located(
    problems: Iterable[Problem],
    reading: YamlDocument,
    document: Mapping[str, Any] | None = None,
    template_name: str | None = None,
    template: Mapping[str, Any] | None = None,
) -> ConfigError:
    """Return an error with the problems, each with its line or with the template it is from."""
    sources = Sources(
        document=reading.document if document is None else document,
        lines=reading.lines,
        template=template or {},
    )
    own, inherited = sources.locate(problems)
    found = [
        *(
            replace(each, text=f"{each.text} (from template {template_name})")
            for each in inherited
        ),
        *own,
    ]
    found.sort(key=lambda each: each.is_missing)
    return ConfigError(found)


def read_file(path: Path) -> str:
    """Return the text of a file or pipe.

    Raises:
        ConfigError: It cannot be read, is not UTF-8, or is far too long.
    """
    try:
        with path.expanduser().open(encoding="utf-8") as file:
            text = file.read(_MOST_CHARS + 1)
        if len(text) > _MOST_CHARS:
            raise ConfigError(
                [Problem(str(path), f"it is longer than {_MOST_CHARS:,} characters")]
            )
        return text
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError([Problem(str(path), f"{reason}; give a file with YAML")]) from None


def preview_draft(client: Client, draft: Draft, seconds_per_batch: float | None) -> PreviewView:
    """Return what a search would train; nothing is submitted.

    Raises:
        ConfigError: All problems of the draft, with their lines.
    """
    _, problems = draft.parse(default_seed=0)
    if problems:
        raise draft.located(problems)
    request = make_request(
        PreviewRequest,
        config=draft.document,
        template=draft.template_name,
        seconds_per_batch=seconds_per_batch,
    )
    try:
        return client.preview(request)
    except ConfigError as error:
        raise draft.located(error.problems) from None
