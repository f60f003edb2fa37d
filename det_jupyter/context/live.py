"""A folder as it is at the moment, seen like a context: ranks without one work in it itself."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from det_jupyter.context.walking import Entry


class LiveEntries(Mapping[str, Entry]):
    """What is below a folder, looked up when it is asked for; iterates over its top alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Entry:
        path = self.folder / name
        if path.is_dir():
            return Entry(kind="folder", source=str(path))
        if not path.is_file():
            raise KeyError(name)
        return Entry(kind="file", source=str(path), is_executable=os.access(path, os.X_OK))

    def __iter__(self) -> Iterator[str]:
        for each in sorted(os.listdir(self.folder)):
            yield each
            if (self.folder / each / "__init__.py").is_file():
                yield f"{each}/__init__.py"

    def __len__(self) -> int:
        return sum(1 for _ in self)
