"""Text from elsewhere (errors, names, what ranks say) made fit to be shown, stored and sent."""

from __future__ import annotations

import re

# What could move a terminal's cursor or turn text around: escape sequences, controls, bidi marks;
# and lone surrogates, which UTF-8 has no bytes for.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\))")
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


def said_by(error: BaseException) -> str:
    """Return what an error says; it may be of a class of the user's, with a `__str__` of its own.

    >>> class Odd(Exception):
    ...     def __str__(self): raise ValueError
    >>> said_by(Odd()), said_by(OSError("gone"))
    ('<its __str__ raised ValueError>', 'gone')
    """
    try:
        return str(error)
    except BaseException as unspeakable:  # an interrupt too: what counts is the first error
        return f"<its __str__ raised {type(unspeakable).__name__}>"


def error_text(error: BaseException) -> str:
    """Return the type and the message of an error, whatever its `__str__` does.

    >>> error_text(OSError("gone")), error_text(KeyError())
    ('OSError: gone', 'KeyError')
    """
    kind, text = type(error).__name__, said_by(error)
    return f"{kind}: {text}" if text else kind


def error_line(error: BaseException) -> str:
    """Return the first line of what `error_text` returns."""
    return error_text(error).partition("\n")[0]


def printable(text: str) -> str:
    """Return `text` without anything that a terminal would obey or UTF-8 could not carry.

    >>> printable("\\x1b[31mred\\x1b[0m"), ascii(printable("a\\x07\\u061c\\r\\nb"))
    ('red', "'a\\\\ufffd\\\\ufffd\\\\nb'")
    """
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)
