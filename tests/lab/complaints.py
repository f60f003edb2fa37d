"""The console errors of pages: pages must have none that come from our code."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Error, Page

OURS = re.compile(r"det[-_]jupyter|\bdet:|jp-Det")
# The browser's own messages; journeys that cut connections expect them.
NETWORK = re.compile(r"Failed to load resource|WebSocket connection to|ERR_INTERNET_DISCONNECTED")
PWNED = "window.__pwned = (window.__pwned || 0) + 1"


class Complaints:
    """Errors of pages that a journey has opened.

    Args:
        may_lose: Whether failed requests and sockets are part of the journey.
    """

    def __init__(self, *, may_lose: bool) -> None:
        self._may_lose = may_lose
        self._found: list[str] = []
        self._pages: list[Page] = []

    def watch(self, page: Page) -> None:
        """Listen to a page."""
        self._pages.append(page)
        page.on("console", self._on_console)
        page.on("pageerror", self._on_error)

    def _on_console(self, message: ConsoleMessage) -> None:
        where = str(message.location.get("url", ""))
        if message.type != "error" or not OURS.search(f"{message.text} {where}"):
            return
        if self._may_lose and NETWORK.search(message.text):
            return
        self._found.append(f"console: {message.text} ({where.partition('?')[0]})")

    def _on_error(self, error: Error) -> None:
        text = f"{error.message}\n{error.stack}"
        if OURS.search(text):
            self._found.append(f"page error: {text}")

    def pictures(self, folder: Path, name: str) -> list[str]:
        """Write a picture of each page that is open; return the paths and the complaints."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = []
        for i, page in enumerate(self._pages):
            with suppress(Error):  # the page has crashed, or is closed
                paths.append(str(folder / f"{name}-{i}.png"))
                page.screenshot(path=paths[-1])
        return paths + self._found

    def check(self) -> None:
        """Fail if there were errors, or if a text was run as a script; stop listening."""
        for page in self._pages:
            page.remove_listener("console", self._on_console)
            page.remove_listener("pageerror", self._on_error)
            if not page.is_closed():
                assert page.evaluate("window.__pwned") is None, "a text became a script"
        assert not self._found, "the page complained:\n" + "\n".join(self._found)
