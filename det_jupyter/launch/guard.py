"""Kills what a launcher has started when the launcher itself is killed.

`die_with` ends a worker with its launcher, on Linux, and not what the worker has started. So a
small process outside of the launcher's group holds the end of a pipe; it closes when the launcher
dies, however it does.
"""

from __future__ import annotations

import subprocess
from contextlib import suppress

_SCRIPT = """
groups=
while read -r word; do
    [ "$word" = done ] && exit 0
    groups="$groups -$word"
done
[ -n "$groups" ] && kill -s KILL -- $groups
"""


class Guard:
    """Knows the process groups of workers, and kills them when this process dies."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, group: int) -> None:
        """Kill this process group, too, if the time comes."""
        self._say(str(group))

    def close(self) -> None:
        """Kill nothing: all have ended."""
        self._say("done")
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def _say(self, word: str) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it was killed
            self._process.stdin.write(f"{word}\n".encode())
            self._process.stdin.flush()
