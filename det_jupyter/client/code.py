"""The captured source of an experiment: a dictionary that prints as text and writes files."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from det_jupyter.errors import Conflict, DetError

_CELL = re.compile(r"Cell In ?\[(\d+)\]")


class Code(dict[str, str]):
    """Source by name: of cells by label ("Cell In[5]"), of local modules by path."""

    def write(self, folder: str | Path) -> list[Path]:
        """Write each source to a file of a folder, a cell as `cell_5.py`; return the files.

        Raises:
            Conflict: A file of that name is there already and differs; nothing is written.
            DetError: A file cannot be written, or would lie outside of the folder.
        """
        root = Path(folder).expanduser()
        files = {root / file_of(name): text for name, text in self.items()}
        for path, text in files.items():
            if path.exists() and path.read_bytes() != text.encode():
                raise Conflict(f"{path}: a file with other content is there; give another folder")
        try:
            for path, text in files.items():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text.encode())
        except OSError as error:
            raise DetError(f"{root}: cannot be written: {error.strerror or error}") from None
        return list(files)

    def __repr__(self) -> str:
        return "\n\n".join(f"# ── {name}\n{text.strip(chr(10))}" for name, text in self.items())


def file_of(name: str) -> PurePosixPath:
    """Return the path of a source's file.

    >>> str(file_of("Cell In[5]")), str(file_of("nets/wide.py"))
    ('cell_5.py', 'nets/wide.py')

    Raises:
        DetError: It would lie outside of the folder.
    """
    if match := _CELL.fullmatch(name):
        return PurePosixPath(f"cell_{match[1]}.py")
    path = PurePosixPath(name)
    if ".." in path.parts:
        raise DetError(f"{name}: a source with this name would lie outside of the folder")
    return PurePosixPath(path.name) if path.is_absolute() else path
