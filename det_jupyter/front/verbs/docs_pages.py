"""`det docs`: the pages of docs/, which come with the package, so that no network is needed.

In a terminal a page is text, through a pager. In a notebook it is Markdown. A link to another page
is replaced by the command that shows it: in a notebook no link can add an output (and JupyterLab
opens no folded part that a link leads to). Links to files that are not in the package (examples,
pictures) lead to the repository.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import count
from pathlib import Path, PurePosixPath
from posixpath import normpath

import det_jupyter
from det_jupyter.contract.values.reader import NOTEBOOK, SHELL, Reader
from det_jupyter.errors import NotFound
from det_jupyter.front.verbs.grammar import Call

REPOSITORY = "https://github.com/det-jupyter/det_jupyter/blob/main/"
_PACKAGE = Path(det_jupyter.__file__).parent
_PLACES = (_PACKAGE / "docs", _PACKAGE.parent / "docs")  # in the wheel, in a checkout
_INDEX = "README"
# Code, in which nothing is a link; or a link to a file, with its mark of a picture.
_LINK = re.compile(
    r"(?P<code>^```.*?^```|`[^`\n]+`)"
    r"|(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?![a-z]+:|#)(?P<target>[\w./-]+)(?P<end>#[\w-]+)?\)",
    re.MULTILINE | re.DOTALL,
)
_HEADING = re.compile(r"^```.*?^```|^#+ (?P<title>[^\n]+)$", re.MULTILINE | re.DOTALL)
_numbers = count(1)


@dataclass(frozen=True)
class Page:
    """A page, as text and as Markdown.

    Args:
        name: Its path below docs/ without `.md`.
    """

    name: str

    @cached_property
    def source(self) -> str:
        """The page as Markdown, as it is in the repository."""
        return (folder() / f"{self.name}.md").read_text(encoding="utf-8")

    @property
    def title(self) -> str:
        """The page's first heading."""
        headings = (line for line in self.source.splitlines() if line.startswith("# "))
        return next(headings, "").lstrip("# ")

    def text(self, reader: Reader = SHELL) -> str:
        """Return the page for a terminal, with the commands that show the pages it links to."""
        return self._rewritten(
            lambda text, page, _: f"{text} ({reader.det} docs {page})",
            "{text} ({url})",
            "[{text}: {url}]",
        )

    def __repr__(self) -> str:
        return self.text(NOTEBOOK)

    def _repr_markdown_(self) -> str:
        prefix = f"det-docs-{next(_numbers)}"

        def goto(text: str, page: str, heading: str) -> str:
            if page == self.name:
                return f"[{text}](#{_mark(prefix, heading)})"
            return f"{text} (`{NOTEBOOK.det} docs {page}`)"

        def own(found: re.Match[str]) -> str:
            is_done = found[1] == prefix or found[1].startswith(f"{prefix}-")
            return found[0] if is_done else f"](#{_mark(prefix, found[1])})"

        def marked(found: re.Match[str]) -> str:
            if found["title"] is None:
                return found[0]
            mark = _mark(prefix, _slug(found["title"]))
            return f'<a id="{mark}"></a>\n\n{found[0]}'

        text = self._rewritten(goto, "[{text}]({url})", "[{text}]({url})")
        text = re.sub(r"\]\(#([\w-]+)\)", own, text)
        return f'<a id="{prefix}"></a>\n\n{_HEADING.sub(marked, text)}'

    def _rewritten(
        self, goto: Callable[[str, str, str], str], elsewhere: str, picture: str
    ) -> str:
        def link(found: re.Match[str]) -> str:
            if found["code"] is not None:
                return found[0]
            if page := self._page_of(found):
                return goto(found["text"], page, (found["end"] or "").lstrip("#"))
            path = normpath(PurePosixPath("docs", self.name).parent / found["target"])
            form = picture if found["mark"] else elsewhere
            return form.format(text=found["text"], url=f"{REPOSITORY}{path}")

        return _LINK.sub(link, self.source)

    def _page_of(self, found: re.Match[str]) -> str:
        """Return the page that a link leads to; "" if it is none of ours."""
        if found["code"] is not None or not found["target"].endswith(".md"):
            return ""
        path = normpath(PurePosixPath(self.name).parent / found["target"])
        is_ours = not path.startswith("..") and (folder() / path).is_file()
        return path.removesuffix(".md") if is_ours else ""


def show(call: Call) -> str | Page:
    """Show a page, or the list of all pages."""
    page = find(call.options.topic)
    if not call.is_shell:
        return page
    if not sys.stdout.isatty():
        return page.text()
    from pydoc import pager

    pager(page.text())
    return ""


def folder() -> Path:
    """Return the folder of the pages."""
    return next((each for each in _PLACES if each.is_dir()), _PLACES[0])


def names() -> list[str]:
    """Return the names of all pages, those of decisions last."""
    found = (path.relative_to(folder()).with_suffix("") for path in folder().rglob("*.md"))
    return sorted((path.as_posix() for path in found), key=lambda name: (name.count("/"), name))


def find(topic: str | None) -> Page:
    """Return the page about a topic: its name, its beginning, or the number of a decision.

    Raises:
        NotFound: There is none; the message has the names of similar pages.
    """
    if topic is None:
        return Page(_INDEX)
    known, wanted = names(), topic.removesuffix(".md").removeprefix("docs/").lower()
    number = f"decisions/{wanted.removeprefix('decisions/'):0>4}-"
    matching = [each for each in known if each.lower() == wanted] or [
        each for each in known if each.startswith((wanted, number))
    ]
    if len(matching) == 1:
        return Page(matching[0])
    pages = [each for each in known if "/" not in each]
    like = matching or get_close_matches(wanted, pages) or pages
    hint = f"did you mean {like[0]}?" if len(like) == 1 else f"there are {', '.join(like)}"
    raise NotFound(f"there is no page {topic!r}; {hint}")


def _mark(prefix: str, heading: str) -> str:
    return "-".join(filter(None, (prefix, heading)))


def _slug(title: str) -> str:
    """Return the anchor that GitHub gives a heading.

    >>> _slug("The `det` command, once")
    'the-det-command-once'
    """
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
