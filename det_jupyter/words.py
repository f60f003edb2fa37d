"""Text from elsewhere (errors, names, what ranks say) made fit to be shown, stored and sent."""

from __future__ import annotations

import re

# What could move a terminal's cursor or turn text around: escape sequences, controls, bidi marks;
# and lone surrogates, which UTF-8 has no bytes for.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def printable(text: str) -> str:
    """Return `text` without anything that a terminal would obey or UTF-8 could not carry.

    >>> printable("\\x1b[31mred\\x1b[0m"), ascii(printable("a\\x07\\u061c\\r\\nb"))
    ('red', "'a\\\\ufffd\\\\ufffd\\\\nb'")
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
