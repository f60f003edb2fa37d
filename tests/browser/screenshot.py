"""Draws docs/images: an example in JupyterLab while it trains.

python -m tests.browser.screenshot quickstart|search [FILE]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Error, Page

from tests.browser.lab import chromium_page, jupyter_lab, open_notebook, run_all
from tests.processes import det_home

ROOT = Path(__file__).parents[2]


HEIGHTS = {"quickstart": 860, "search": 1500}


def main(example: str, target: Path) -> None:
    """Run an example and keep the last picture of its first view that shows it running."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        det_home(Path(scratch) / "home", {"DET_JUPYTER_CPU_SLOTS": "2"}),
    ):
        folder = Path(scratch) / "notebooks"
        folder.mkdir()
        shutil.copy(ROOT / "examples" / f"{example}.ipynb", folder)
        with jupyter_lab(folder) as address, chromium_page(1280, HEIGHTS[example]) as page:
            open_notebook(page, address, f"{example}.ipynb")
            run_all(page)
            keep_last_running(page, target)


def keep_last_running(page: Page, target: Path) -> None:
    """Take pictures for as long as the view shows a training that has begun."""
    deadline = time.monotonic() + 60
    seen = ""  # the lines before the numbers: state and name
    while time.monotonic() < deadline:
        view = page.query_selector(".det-view")
        try:
            if view is not None:
                view.scroll_into_view_if_needed()  # out of sight it draws nothing
            text = view.inner_text() if view else ""
        except Error:  # it ended and became a static card meanwhile
            text = ""
        title = text.split("\n")[1] if "\n" in text else ""
        if seen and title != seen:
            return
        if "Running" in text and "accuracy" in text:
            page.screenshot(path=target)
            seen = title
        time.sleep(0.05)
    raise SystemExit("the view never showed a running experiment")


if __name__ == "__main__":
    name, *files = sys.argv[1:] or ["quickstart"]
    main(name, Path(files[0]) if files else ROOT / f"docs/images/{name}.png")
