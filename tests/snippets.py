"""The code blocks of README and docs: each runs in a test, or its page has the reason why not.

A comment before a block marks a block that no test runs:

    <!-- not run: tests/e2e/test_diagnose.py does the same -->
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
_BLOCK = re.compile(
    r"(?:^<!-- not run: (?P<why>[^\n]*) -->\n\n?)?^```(?P<language>\w*)\n(?P<text>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Snippet:
    """A code block of a page. `why_not` is "" if it has to run."""

    page: str
    line: int
    language: str
    text: str
    why_not: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def snippets(*languages: str) -> list[Snippet]:
    """Return the code blocks in these languages; without arguments, in all languages."""
    return [each for each in _all() if not languages or each.language in languages]


def _all() -> Iterator[Snippet]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in _BLOCK.finditer(text):
            yield Snippet(
                page.relative_to(ROOT).as_posix(),
                text.count("\n", 0, found.start("text")),
                found["language"],
                found["text"],
                found["why"] or "",
            )
