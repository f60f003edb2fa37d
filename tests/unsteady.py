"""What CI does with tests that fail: it runs their files once more, with no other beside them.

    python -m tests.unsteady FOLDER

Reads the last run's note in FOLDER (tests/skips.py).

Exit status 0: all pass now. They are unsteady, a defect of the test or of the product, as users'
computers are busy, too. CI names them at its end. Exit status 1: the run was broken off, tests of
more than `MOST` files failed, or one fails again.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import skips

MOST = 3  # where a test of a journey fails, those after it do, too


def files_of(note: skips.Note) -> list[str]:
    """Return the files of the failed tests, whole, as a journey continues where another ended.

    Raises:
        ValueError: The failures mean more than a busy computer.
    """
    if note.status != 1:
        raise ValueError(f"the tests ended with status {note.status}, before all were run")
    files = sorted({name.partition("::")[0] for name in note.failed})
    if len(files) > MOST:
        raise ValueError(f"tests of {len(files)} files have failed; {MOST} may be unsteady")
    return files


def main(folder: str) -> int:
    """Run the files of the failed tests; return the exit status."""
    notes = skips.notes(Path(folder))
    if not notes:
        return 1
    try:
        files = files_of(notes[-1])
    except ValueError as error:
        print(f"not run again: {error}")
        return 1
    print("once more, alone:", *files, flush=True)
    return min(1, subprocess.run([sys.executable, "-m", "pytest", *files], check=False).returncode)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
