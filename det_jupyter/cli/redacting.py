"""Takes secrets out of texts and documents that leave the computer. Pure.

Taken out are known secrets, wherever they stand; the values of what has the name of a secret; and
what has the form of one. What is in doubt is taken out: a report that lacks a word can be read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

REMOVED = "<removed>"
_SHORTEST = 4  # a known secret that is shorter would take out ordinary words

_NAME = (  # from the word on that makes it one; a bound keeps long lines quick
    r"(?:secret|token|passw(?:or)?d|passphrase|pwd|credential|cookie|"
    r"api[_-]?key|access[_-]?key|private[_-]?key|auth)[\w.-]{0,40}"
)
_SECRET_NAME = re.compile(rf"[\w.-]*{_NAME}", re.IGNORECASE)
_AMOUNT = re.compile(r"[-+]?[\d_]*\.?\d+(?:e[-+]?\d+)?", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"(?P<name>{_NAME})(?P<sign>[\"']?\s*[=:]\s*(?:(?:bearer|basic|token)\s+)?)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"',;&}\])]+)",
    re.IGNORECASE,
)
_PATTERNS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
                re.DOTALL), REMOVED),
    (re.compile(r"(\b\w[\w+.-]{0,20}://)[^/\s@]{1,400}@"), rf"\1{REMOVED}@"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {REMOVED}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), REMOVED),  # a JSON Web Token
    (re.compile(r"\b(?:hf_|gh[opsu]_|github_pat_|glpat-|sk-|xox[abprs]-|AKIA|ASIA)[\w-]{12,}"),
     REMOVED),
)  # fmt: skip


def is_secret_name(name: str) -> bool:
    """Return whether what has this name is a secret.

    >>> [is_secret_name(name) for name in ("HF_TOKEN", "db-password", "num_tokens", "lr")]
    [True, True, False, False]
    """
    return _SECRET_NAME.fullmatch(name) is not None and not name.lower().endswith("tokens")


class Redactor:
    """Takes secrets out.

    Args:
        secrets: Known ones.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {secret for secret in secrets if len(secret) >= _SHORTEST}
        longest_first = sorted(known, key=lambda secret: (-len(secret), secret))
        self._known = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def text(self, text: str) -> str:
        """Return a text without secrets."""
        text = self._known.sub(REMOVED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return _ASSIGNED.sub(_without_value, text)

    def document(self, value: Any, name: str = "") -> Any:
        """Return what JSON can hold without secrets; `name` is the key that leads to it."""
        match value:
            case Mapping():
                is_inner = name == "environment_variables"  # its lists are by kind of device
                return {
                    str(key): self.document(item, name if is_inner else str(key))
                    for key, item in value.items()
                }
            case list() | tuple() if name == "environment_variables":
                return [f"{str(item).partition('=')[0]}={REMOVED}" if "=" in str(item)
                        else item for item in value]  # fmt: skip
            case list() | tuple():
                return [self.document(item, name) for item in value]
            case str() if is_secret_name(name):
                return REMOVED
            case str():
                return self.text(value)
        return value


def _without_value(found: re.Match[str]) -> str:
    value = found["value"].strip("\"'")
    is_amount = "token" in found["name"].lower() and _AMOUNT.fullmatch(value) is not None
    if not is_secret_name(found["name"]) or is_amount or value == REMOVED:
        return found[0]
    return f"{found['name']}{found['sign']}{REMOVED}"
