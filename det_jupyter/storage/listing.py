"""The files of a folder that are stored elsewhere: their names and sizes."""

from __future__ import annotations

import logging
import os
from pathlib import Path

logger = logging.getLogger(__name__)


def sizes_in(folder: Path) -> dict[str, int]:
    """Return the size of each file by its relative path; {} if the folder does not exist.

    Links to files and folders are followed. Files that cannot be uploaded are left out: broken
    links, links to one of their own parent folders, sockets, and names that are not UTF-8.
    """
    sizes = {}
    for parent, inner, names in os.walk(folder, followlinks=True):
        for path in [path for name in inner if _leads_back(path := Path(parent, name))]:
            logger.error("%s: %r leads back to its own folder", folder.name, path.name)
            inner.remove(path.name)
        for path in (Path(parent, name) for name in names):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and is_utf8(name):
                sizes[name] = path.stat().st_size
            elif os.path.lexists(path):
                logger.error("%s: %r cannot be uploaded", folder.name, name)
    return sizes


def _leads_back(path: Path) -> bool:
    """Return whether a path is a link to one of its own parent folders."""
    return path.is_symlink() and path.parent.resolve().is_relative_to(path.resolve())


def is_utf8(name: str) -> bool:
    """Return whether a file's name can be sent."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
