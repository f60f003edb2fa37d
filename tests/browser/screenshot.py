"""Draws docs/images/quickstart.png: the quickstart in JupyterLab while it trains.

python -m tests.browser.screenshot [FILE]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page

from tests.browser.lab import chromium_page, jupyter_lab, open_notebook, run_all
from tests.processes import det_home

ROOT = Path(__file__).parents[2]


def main(target: Path) -> None:
    """Run the quickstart and keep the last picture of it that shows it running."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        det_home(Path(scratch) / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}),
    ):
        folder = Path(scratch) / "notebooks"
        folder.mkdir()
        shutil.copy(ROOT / "examples" / "quickstart.ipynb", folder)
        with jupyter_lab(folder) as address, chromium_page(1280, 860) as page:
            open_notebook(page, address, "quickstart.ipynb")
            run_all(page)
            keep_last_running(page, target)


def keep_last_running(page: Page, target: Path) -> None:
    """Take pictures for as long as the view shows a training that has begun."""
    deadline = time.monotonic() + 60
    seen = False
    while time.monotonic() < deadline:
        view = page.query_selector(".det-view")
        if view is not None:
            view.scroll_into_view_if_needed()  # out of sight it draws nothing
        text = view.inner_text() if view else ""
        if "Running" in text and "accuracy" in text:
            page.screenshot(path=target)
            seen = True
        elif seen and "Running" not in text:
            return
        time.sleep(0.05)
    raise SystemExit("the view never showed a running experiment")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images/quickstart.png")
