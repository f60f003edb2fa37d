"""Draws docs/images/quickstart.png: the quickstart in JupyterLab while it trains.

python -m tests.browser.screenshot [FILE]
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

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
            page.evaluate(
                "() => { window.jupyterapp.commands.execute('application:toggle-left-area'); }"
            )
            run_all(page)
            view = page.locator(".det-view")
            view.wait_for(timeout=60_000)
            while view.count() and "Completed" not in view.inner_text():
                if "Running" in view.inner_text() and " 0 %" not in view.inner_text():
                    view.scroll_into_view_if_needed()
                    page.screenshot(path=target)
                time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs/images/quickstart.png")
