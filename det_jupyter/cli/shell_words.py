"""What the verbs say to a notebook, in the words of a shell."""

from __future__ import annotations

import re

_CHANGES = (
    (re.compile(r"either a file, or %%det.*? above YAML"), "a file with YAML"),
    (re.compile(r"; (?:write \{[\w.]+\}|[\w.]+ is not defined here)"), ""),
    (re.compile(r"%%?det_experiment\b"), "det experiment"),
    (re.compile(r"%%?det\b"), "det"),
    (re.compile(r"%pip\b"), "pip"),
    (re.compile(r"^(\s+)!(?=\w)", re.MULTILINE), r"\1"),
)


def in_shell_words(text: str) -> str:
    """Return a text with the lines to type as a shell takes them.

    >>> in_shell_words("%det task list shows all, `%%det template set x` sets")
    'det task list shows all, `det template set x` sets'
    """
    for pattern, replacement in _CHANGES:
        text = pattern.sub(replacement, text)
    return text
