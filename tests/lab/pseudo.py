"""A pseudo-language for tests: each of our texts in brackets, with accents.

A text without brackets was not translated.

JupyterLab loads languages from packages with an entry point, so such a package is written into a
folder for the server's `PYTHONPATH`. Like a published one, it has a table for the page, and
gettext's table for the texts that the server translates: menus and settings.
"""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hatch_build import SOURCES, find_npm

LOCALE = "eo"  # a valid locale that no test needs otherwise
DOMAIN = "det_jupyter"
PACKAGE = f"jupyterlab_language_pack_{LOCALE}"
PLURALS = "nplurals=2; plural=(n != 1);"
_ACCENTS = str.maketrans("aeiouAEIOU", "àéîöûÀÉÎÖÛ")
_PLACEHOLDER = re.compile(r"(%\d)")
_BRACKETS = re.compile(r"⟦[^⟦⟧]*⟧")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


def to_pseudo(text: str) -> str:
    """Return a text in the pseudo-language."""
    parts = _PLACEHOLDER.split(text)
    parts[::2] = [part.translate(_ACCENTS) for part in parts[::2]]
    return f"⟦{''.join(parts)}⟧"


def find_plain(text: str) -> list[str]:
    """Return the words of a text outside of brackets: these are not in the pseudo-language."""
    while _BRACKETS.search(text):  # texts may be nested
        text = _BRACKETS.sub(" ", text)
    return _LETTERS.findall(text)


def find_strings() -> list[dict[str, str]]:
    """Return our translatable strings: `context`, `text` and `plural`."""
    done = subprocess.run(
        [find_npm().with_name("node"), "strings.mjs", "json"],
        cwd=SOURCES,
        check=True,
        capture_output=True,
        text=True,
    )
    return list(json.loads(done.stdout))


def write_language(folder: Path) -> None:
    """Write the language's package into `folder`."""
    translated = {
        _key(string): [to_pseudo(text) for text in (string["text"], string["plural"]) if text]
        for string in find_strings()
    }
    messages = folder / PACKAGE / "locale" / LOCALE / "LC_MESSAGES"
    messages.mkdir(parents=True)
    (folder / PACKAGE / "__init__.py").touch()
    head = {"domain": DOMAIN, "language": LOCALE, "plural_forms": PLURALS, "version": "0"}
    table = {"": head, **translated}
    (messages / f"{DOMAIN}.json").write_text(json.dumps(table))
    (messages / f"{DOMAIN}.mo").write_bytes(
        to_mo({"": f"Content-Type: text/plain; charset=UTF-8\nPlural-Forms: {PLURALS}\n"}
              | {key: texts[0] for key, texts in translated.items()})
    )  # fmt: skip
    info = folder / f"{PACKAGE}-0.dist-info"
    info.mkdir()
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: 0\n")
    info.joinpath("entry_points.txt").write_text(
        f"[jupyterlab.languagepack]\n{LOCALE} = {PACKAGE}\n"
    )


def _key(string: dict[str, str]) -> str:
    context = string["context"]
    return f"{context}\x04{string['text']}" if context else string["text"]


def to_mo(messages: dict[str, str]) -> bytes:
    """Return messages without plurals in gettext's binary format."""
    pairs = sorted((key.encode(), text.encode()) for key, text in messages.items())
    offset = 28 + 16 * len(pairs)
    tables: list[bytes] = []
    body = b""
    for column in (0, 1):
        for pair in pairs:
            tables.append(struct.pack("<II", len(pair[column]), offset + len(body)))
            body += pair[column] + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(pairs), 28, 28 + 8 * len(pairs), 0, offset)
    return head + b"".join(tables) + body


@contextmanager
def speaking(notebooks: Path) -> Iterator[None]:
    """Within the block, pages that JupyterLab opens in this folder are in the pseudo-language."""
    settings = notebooks / ".lab" / "@jupyterlab" / "translation-extension"
    settings.mkdir(parents=True, exist_ok=True)
    chosen = settings / "plugin.jupyterlab-settings"
    chosen.write_text(json.dumps({"locale": LOCALE}))
    yield
    chosen.unlink()
