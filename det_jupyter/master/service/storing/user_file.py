"""A file in the data folder that the user writes; it is read again whenever it has changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Generic, TypeVar

from det_jupyter.contract.host import paths
from det_jupyter.errors import ConfigError, DetError, Problem

Content = TypeVar("Content")


class UserFile(Generic[Content]):
    """The file and its content.

    Args:
        path: The file; it may be absent.
        parse: Parses its text.
        empty: The content if the file is missing or not valid.
    """

    def __init__(self, path: Path, parse: Callable[[str], Content], empty: Content) -> None:
        self.path = path
        self._parse = parse
        self._empty = empty
        self._version: tuple[int, int, int] | None = None
        self._read: tuple[Content, list[Problem]] = (empty, [])

    @property
    def content(self) -> Content:
        """The present content; the empty content if the file is not valid."""
        return self._current()[0]

    @property
    def problems(self) -> list[Problem]:
        """The problems that make the file invalid."""
        return self._current()[1]

    def _current(self) -> tuple[Content, list[Problem]]:
        try:
            stat = self.path.stat()
        except OSError:
            return self._empty, []
        version = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if self._version != version:
            self._version, self._read = version, self._parsed()
        return self._read

    def _parsed(self) -> tuple[Content, list[Problem]]:
        try:
            return self._parse(paths.read_private(self.path)), []
        except ConfigError as error:
            return self._empty, [replace(each, source=self.path.name) for each in error.problems]
        except (OSError, DetError) as error:
            why = getattr(error, "strerror", None) or error
            problem = Problem("", f"cannot be read: {why}", source=self.path.name)
            return self._empty, [problem]
