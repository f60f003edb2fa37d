"""The browser tab that journeys share: JupyterLab is loaded once, tidied before each."""

from __future__ import annotations

from playwright.sync_api import Browser, BrowserContext, Page, ViewportSize

from tests.lab.pages import LabPage
from tests.lab.servers import Lab

VIEWPORT: ViewportSize = {"width": 1400, "height": 1000}


class SharedTab:
    """A tab of a browser profile; both are closed after a failed journey.

    Args:
        browser: The browser that opens the tab.
    """

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._ui: LabPage | None = None

    @property
    def page(self) -> Page:
        """The tab's page; opened if there is none."""
        return self.ui.page

    @property
    def ui(self) -> LabPage:
        """The parts of the tab that journeys use."""
        if self._ui is None:
            self._ui = LabPage(new_context(self._browser).new_page())
        return self._ui

    def show(self, lab: Lab, workspace: str) -> LabPage:
        """Show a JupyterLab in the state after its start."""
        if self.ui.is_at(lab.root):
            self.ui.tidy()
            lab.forget_layouts()
        else:
            lab.forget_layouts()
            self.ui.open(lab.url(workspace))
        return self.ui

    def leave(self) -> None:
        """Leave a server that will end, so that JupyterLab sends it no more requests."""
        if self._ui is not None:
            self._ui.page.goto("about:blank")

    def close_others(self) -> None:
        """Close the other tabs that a journey has opened."""
        if self._ui is not None:
            for page in self._ui.page.context.pages:
                if page is not self._ui.page:
                    page.close()

    def close(self) -> None:
        """Close the tab; the next one starts with an empty profile."""
        if self._ui is not None:
            self._ui.page.context.close()
        self._ui = None


def new_context(browser: Browser) -> BrowserContext:
    """Return a new browser profile."""
    context = browser.new_context(viewport=VIEWPORT, reduced_motion="reduce")
    context.set_default_timeout(300_000)
    return context
