"""Glob patterns of files of a checkpoint. `**` matches any number of folders, also none.

metadata.json is never matched, since a folder without it is not a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase

from det_jupyter.contract.values.text import listed
from det_jupyter.errors import ConfigError, NotFound
from det_jupyter.storage.contract import METADATA_FILE

_SHOWN = 5


def check_globs(globs: Iterable[str]) -> None:
    """Check that patterns can only match files within a folder.

    Raises:
        ConfigError: A pattern is empty, absolute, or contains `..`.
    """
    problems = [
        f"glob: got {glob!r}, expected a pattern of files in the checkpoint's folder, such as "
        "*.pt or optimizer/**, without `..` and not absolute"
        for glob in globs
        if not glob or glob.startswith("/") or ".." in glob.split("/")
    ]
    if problems:
        raise ConfigError(problems)


def matching(files: Iterable[str], globs: Iterable[str]) -> list[str]:
    """Return the files that match one of the patterns.

    >>> matching(["a.pt", "b/c.pt", "metadata.json"], ["*.pt"])
    ['a.pt']
    >>> matching(["a.pt", "b/c.pt", "metadata.json"], ["**/*.pt", "*"])
    ['a.pt', 'b/c.pt']
    """
    patterns = [glob.split("/") for glob in globs]
    others = (file for file in files if file != METADATA_FILE)
    return [file for file in others if any(_fits(file.split("/"), each) for each in patterns)]


def must_match(path: str, files: Collection[str], globs: Sequence[str]) -> None:
    """Check that patterns match at least one file of a checkpoint.

    Args:
        path: Path of the checkpoint, for the message.
        files: Its files.
        globs: The patterns.

    Raises:
        NotFound: The patterns match no file, or the checkpoint does not exist.
    """
    others = [file for file in files if file != METADATA_FILE]
    where, _, uuid = path.rpartition("/")
    if not files:
        raise NotFound(f"cannot find checkpoint {uuid} in {where}; is its drive mounted?")
    if not matching(others, globs):
        names = listed(others, most=_SHOWN) or "no other files"
        given = " or ".join(globs)
        raise NotFound(f"no file of checkpoint {uuid} matches {given}; it has {names}")


def _fits(parts: Sequence[str], pattern: Sequence[str]) -> bool:
    if not pattern:
        return not parts
    first, rest = pattern[0], pattern[1:]
    if first == "**":
        # A final `**` matches all files below; `**/**` matches the same as `**`, only slower.
        while rest[:1] == ["**"]:
            rest = rest[1:]
        return not rest or any(_fits(parts[i:], rest) for i in range(len(parts)))
    return bool(parts) and fnmatchcase(parts[0], first) and _fits(parts[1:], rest)
