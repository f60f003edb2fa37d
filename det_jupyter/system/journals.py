"""Adds to the journal of a rank from another process. Light: launchers use it."""

from __future__ import annotations

import os
from pathlib import Path

from det_jupyter.system.paths import private_opener


def append(journal: Path, lines: str) -> None:
    """Add whole lines.

    Raises:
        OSError: They cannot be written.
    """
    with open(journal, "ab+", opener=private_opener) as file:
        # The rank may have died while it wrote a record.
        if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
            lines = f"\n{lines}"
        file.write(lines.encode())
