"""Puts a prefix before each line of a stream of bytes.

The bytes are what a rank prints: lines of any length, progress bars that rewrite theirs after a
carriage return (tqdm), any encoding or none, a last line without line end. They stay as they are.
"""

from __future__ import annotations

import re

# A line is held until it ends, so that those of several ranks do not mix; but no more of it.
MAX_HELD_BYTES = 1 << 20

_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+\Z")
_ENDS = (b"\n", b"\r")


class Prefixer:
    """Puts a prefix before each line of one stream. A carriage return ends a line, too.

    >>> lines = Prefixer(b"[rank=1] ")
    >>> lines.feed(b"one\\ntw"), lines.feed(b"o\\r"), lines.feed(b"\\nthree"), lines.flush()
    (b'[rank=1] one\\n', b'[rank=1] two\\r', b'\\n', b'[rank=1] three')
    """

    def __init__(self, prefix: bytes) -> None:
        self._prefix = prefix
        self._held = bytearray()
        self._has_begun = False  # a part of the line has left already, with the prefix
        self._is_after_cr = False

    @property
    def holds(self) -> bool:
        """Whether a part of a line waits for the rest."""
        return bool(self._held)

    def feed(self, data: bytes) -> bytes:
        """Return the lines that are complete now, with the prefix."""
        made = bytearray()
        begins_in_an_end = self._is_after_cr and data[:1] == b"\n"
        if data:
            self._is_after_cr = data.endswith(b"\r")
        if begins_in_an_end:
            made += b"\n"
            data = data[1:]
        for line in _LINE.findall(data):
            if line.endswith(_ENDS):
                self._held += line
                made += self.flush()
                self._has_begun = False
            else:
                self._held += line
        if len(self._held) > MAX_HELD_BYTES:
            made += self.flush()
        return bytes(made)

    def flush(self) -> bytes:
        """Return the part of a line that was held; its rest gets no prefix of its own."""
        held = bytes(self._held)
        self._held.clear()
        if not held:
            return b""
        # tqdm writes the carriage return before the bar: alone it is no line.
        is_new = not self._has_begun and held not in (b"\r", b"\r\n")
        self._has_begun = True
        return self._prefix + held if is_new else held
