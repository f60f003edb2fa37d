"""Removes secrets from texts and JSON-like documents. Pure.

It removes the given secrets wherever they occur, also encoded; values with the name of a secret
(`api_key`); and texts in the format of a secret (`ghp_...`). Doubtful texts are removed too: a
report stays readable when it lacks a word.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus, unquote

REMOVED = "<removed>"
_SHORTEST = 4  # shorter given secrets are not searched for: they occur in ordinary words
_PLAIN = ("none", "null", "true", "false")  # never secrets, whatever their name
_VARIABLES = "environment_variables"

_COUNTED = r"token|[_-]key(?![a-z])"  # also in names of other values: num_tokens, sort_key
_NAME = (  # from the secret-like word on; bounded, as long lines would be slow
    rf"(?:{_COUNTED}|secret|passw(?:or)?d|passphrase|passcode|pwd|credential|cookie|signature|"
    r"(?:api|access|private|account|sign(?:ing)?|encryption|ssh|shared|storage)[_.-]?key|"
    r"auth(?!or(?!iz))|(?<![a-z])(?:pass|pgpass|sig|jwt|otp)(?![a-z]))[\w.-]{0,40}"
)
_SECRET_NAME = re.compile(_NAME, re.IGNORECASE)
_COUNTED_NAME = re.compile(_COUNTED, re.IGNORECASE)
_AMOUNT = re.compile(r"[-+]?[\d_]*\.?\d+(?:e[-+]?\d+)?[kMGTB%]?", re.IGNORECASE)
_QUOTED = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.|'')*'"
_ASSIGNED = re.compile(
    rf"(?P<name>{_NAME})(?P<sign>[\\\"'\])]*[ \t]*(?:=>|:=|={{1,2}}>?|:|%3[ad])\s*"
    r"(?:(?:bearer|basic|token)\s+|!!?\w+\s+)?)"
    rf"(?P<value>[a-z]{{0,2}}(?:{_QUOTED})|\\+[\"'].*?\\+[\"']|"
    r"\([^()]{0,2000}\)|\[[^\[\]]{0,2000}\]|\{[^{}]{0,2000}\}|\S+)",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"://[^\s/@:\"']*:([^\s\"'@]{1,400})@")


def _named(before: str, after: str, *, flags: int = 0) -> tuple[re.Pattern[str], str]:
    """Return a pattern and its replacement, which keep `before` and remove `after`."""
    return re.compile(rf"({before}){after}", flags | re.IGNORECASE), rf"\1{REMOVED}"


_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY.*?(?:-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----|\Z)",
                re.DOTALL), REMOVED),
    (re.compile(r"\A[\w+/=\s]*-----END [A-Z ]*PRIVATE KEY[A-Z ]*-----"), REMOVED),
    (re.compile(r"(\b\w[\w+.-]{0,20}://)[^/\s@]{1,400}@"), rf"\1{REMOVED}@"),
    (re.compile(r"(\b\w[\w+.-]{0,20}://)[^/\s@:\"']{0,200}:(?!\d+/)[^\s\"']{1,400}@"),
     rf"\1{REMOVED}@"),
    # ann:password@host
    (re.compile(r"(?<![\w.+/-])([\w.+-]{1,60}:)[^\s/@:\"']{3,200}@(?=\w)"), rf"\1{REMOVED}@"),
    (re.compile(r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", re.IGNORECASE), rf"\1 {REMOVED}"),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"), REMOVED),  # a JSON Web Token
    (re.compile(r"\b(?:hf_|gh[oprsu]_|github_pat_|glpat-|sk-|[rs]k_(?:live|test)_|xox[a-z]-|AKIA|"
                r"ASIA|AIza|ya29\.|npm_|pypi-|nvapi-|dckr_pat_|dop_v1_|wandb_v1_|r8_|SG\.)"
                r"[\w.-]{12,}"), REMOVED),
    # Lines of a YAML file, with the deeper ones below; headers, and passwords with spaces.
    (re.compile(rf"^([ \t]*)((?:- )?[\"']?[\w.-]{{0,40}}{_NAME}[\"']?[ \t]*:)[ \t]*"
                r"(?:[|>][\d+-]*)?[ \t]*\n(?:(?:\1(?:[ \t]+|- ).*|[ \t]*)(?:\n|\Z))+",
                re.IGNORECASE | re.MULTILINE), rf"\1\2 {REMOVED}\n"),
    _named(rf"^[ \t]*(?:- )?[\w.-]{{0,40}}{_NAME}[ \t]*:[ \t]+",
           r"(?!(?:[\d.]+|none|null|true|false)\b|[\"'(\[{<])\S.*", flags=re.MULTILINE),
    _named(r"\b(?:authorization|cookie)[ \t]*:[ \t]*", r"(?!<removed>$)\S.*", flags=re.MULTILINE),
    _named(r"(?:passw(?:or)?d|passphrase)[ \t]*[:=][ \t]*", r"(?![\"'(\[{<])\S[^\n;\"']*"),
    # --token x, `set TOKEN x`, `login ann password x`, -u ann:x, ("token", "x"), <token>x</token>
    _named(rf"(?<!\w)--?[\w.-]{{0,40}}{_NAME}[ \t]+", rf"(?:{_QUOTED}|[^\s<-]\S*)"),
    _named(rf"\b(?:set|setenv|export)[ \t]+\w{{0,40}}{_NAME}[ \t]+", r"[^\s<=:]\S*"),
    _named(r"\blogin[ \t]+\S{1,200}[ \t]+password[ \t]+", r"\S+"),
    # "password x" is a line of ~/.netrc
    _named(r"^[ \t]*password[ \t]+", r"[^\s=:<]\S*(?=[ \t]*$)", flags=re.MULTILINE),
    _named(r"(?:passw(?:or)?d|passphrase)[ \t]+is[ \t]+", r"[^\s<]\S*"),
    _named(r"(?<!\w)(?:-u|--user)[ \t]+[^\s:]{1,200}:", r"\S+"),
    _named(rf"([\"'])[\w.-]{{0,40}}{_NAME}\2,[ \t]*", rf"[a-z]{{0,2}}(?:{_QUOTED})"),
    _named(rf"<[\w:.-]{{0,40}}{_NAME}>", r"[^<]+"),
    _named(rf"{_NAME}[ \t]+(?:is[ \t]+)?", r"(?=\S*\d)[\w.~+/=-]{16,}"),
)  # fmt: skip


def is_secret(name: str, value: Any) -> bool:
    """Return whether a variable, key or option with this name and value is a secret.

    >>> [is_secret(name, "1a") for name in ("HF_TOKEN", "db-password", "lr", "author", "DB_PASS")]
    [True, True, False, False, True]
    >>> is_secret("num_tokens", 512), is_secret("pin_password", 512), is_secret("token", None)
    (False, True, False)
    """
    if _SECRET_NAME.search(name) is None or value is None or isinstance(value, bool):
        return False
    text = str(value)
    is_amount = _COUNTED_NAME.search(name) is not None and _AMOUNT.fullmatch(text) is not None
    return not is_amount and text.lower() not in _PLAIN


def passwords_in(text: str) -> Iterator[str]:
    """Yield the passwords of the URLs in a text."""
    for password in _URL_PASSWORD.findall(text):
        yield from {password, unquote(password)}


class Redactor:
    """Removes secrets.

    Args:
        secrets: Values to remove wherever they occur.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        forms = {form for secret in secrets for form in _forms(secret)}
        known = {form for form in forms if len(form) >= _SHORTEST and form.lower() not in _PLAIN}
        longest_first = sorted(known, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def strings(self, value: Any) -> Any:
        """Return a JSON-like value with `text` applied to each string that is no key."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.strings(item) for key, item in value.items()}
        return [*map(self.strings, value)] if isinstance(value, list | tuple) else value

    def text(self, text: str) -> str:
        """Return `text` with each secret replaced by `REMOVED`."""
        text = self._known.sub(REMOVED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return _ASSIGNED.sub(_without_value, text)

    def document(self, value: Any, name: str = "") -> Any:
        """Return a JSON-like value with secrets replaced; `name` is the key it is stored under."""
        match value:
            case None | bool():
                return value
            case Mapping() if name == _VARIABLES:  # lists by kind of device, or values by name
                return {
                    str(key): REMOVED if isinstance(item, str) else self.document(item, _VARIABLES)
                    for key, item in value.items()
                }
            case Mapping():
                named = str(value.get("name", value.get("key", "")))  # {"name": …, "value": …}
                return {
                    self.text(str(key)): self.document(item, _item_name(name, str(key), named))
                    for key, item in value.items()
                }
            case list() | tuple() if name == _VARIABLES:
                return [self._without_assigned(item) for item in value]
            case list() | tuple():
                return [self.document(item, _secret_option(before) or name)
                        for before, item in zip(("", *value), value, strict=False)]  # fmt: skip
            case _ if is_secret(name, value):
                return REMOVED
            case str():
                return self.text(value)
        return value

    def _without_assigned(self, item: Any) -> Any:
        if not isinstance(item, str):
            return self.document(item, _VARIABLES)
        name, sign, _ = item.partition("=")
        return f"{name}={REMOVED}" if sign else item


def _item_name(name: str, key: str, named: str) -> str:
    """Return the name by which a mapping's item is judged.

    Args:
        name: The key that the mapping is stored under; a secret's name holds for all items.
        key: The item's own key.
        named: The mapping's "name" or "key", which names its "value".
    """
    if key == "value" and _SECRET_NAME.search(named):
        return named
    is_secret_name = _SECRET_NAME.search(name) and not name.lower().endswith("tokens")
    if key != _VARIABLES and is_secret_name:
        return name
    return key


def _secret_option(before: Any) -> str:
    """Return a list item that is a secret's option, such as `--token`; else an empty string."""
    is_option = isinstance(before, str) and re.fullmatch(r"--?[\w.-]+", before) is not None
    return before if is_option and _SECRET_NAME.search(before) else ""


def encodings(secret: str) -> Iterator[str]:
    """Yield a secret in plain form, and as URLs, JSON, Python and base64 write it."""
    yield from (secret, secret.strip(), quote(secret, safe=""), quote(secret), quote_plus(secret))
    yield from (json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1])
    yield repr(secret)[1:-1]
    yield base64.b64encode(secret.encode("utf-8", "replace")).decode().rstrip("=")


def _forms(secret: str) -> Iterator[str]:
    yield from encodings(secret)
    yield from (line for line in secret.split("\n") if len(line) >= 2 * _SHORTEST)


def _without_value(found: re.Match[str]) -> str:
    value = found["value"].strip("\"',;)}]")
    if value == REMOVED or not is_secret(found["name"], value):
        return found[0]
    return f"{found['name']}{found['sign']}{REMOVED}"
