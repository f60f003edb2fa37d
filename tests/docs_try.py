"""The site's page that is tried without installing: JupyterLite with recorded experiments.

It is built from the extension as it is shipped, the script that stands in for its server, and the
recording (docs/decisions/0135). `python -m tests.docs_try FOLDER` opens what was built in Chromium
five times, and prints how long that takes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import Page, expect

from tests.browser.lab import CHROMIUM, chromium_page

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "docs/site/try"
RECORDING = SOURCES / "recording.json.gz"
START = "lab/index.html"
EXPERIMENTS = ("search", "straggler", "hang", "several computers")
OPENS_S = 10.0


def build_try(folder: Path, out: Path) -> None:
    """Build the page from its sources.

    Args:
        folder: An empty folder for what JupyterLite reads.
        out: Where the page's files are written.
    """
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns(RECORDING.name))
    extensions = folder / "extensions"
    shutil.copytree(ROOT / "det_jupyter/labextension", extensions / "det-jupyter")
    recorded = extensions / "det-recorded"
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["node", "recorded.mjs", str(recorded)]
    subprocess.run(command, cwd=ROOT / "labextension", env=os.environ | {"PATH": path}, check=True)
    shutil.copy(RECORDING, recorded / "static")
    command = [
        *(sys.executable, "-m", "jupyterlite_core", "build", "--apps", "lab"),
        *("--ignore-sys-prefix", "--no-sourcemaps", "--no-unused-shared-packages"),
        *("--lite-dir", str(folder), "--output-dir", str(out)),
    ]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stdout + done.stderr)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder of files, as `python -m http.server` does; yield its address."""
    handler = partial(QuietHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


def opened(page: Page, address: str) -> float:
    """Open the page; return the seconds until the live view is drawn."""
    start = time.monotonic()
    page.goto(f"{address}{START}")
    expect(page.locator(".jp-DetPage canvas").first).to_be_visible()
    return time.monotonic() - start


def check(page: Page) -> None:
    """See the four recordings, and what each is there for."""
    rows = page.locator(".jp-DetSidebar")
    for name in EXPERIMENTS:
        expect(rows).to_contain_text(name)


def main(folder: Path) -> None:
    """Open the page, see what it shows, and print how long it took to open."""
    times = []
    with served(folder) as address:
        for _ in range(5):
            with chromium_page() as page:
                complaints: list[str] = []
                page.on("pageerror", lambda error, into=complaints: into.append(str(error)))
                times.append(opened(page, address))
                check(page)
                assert not complaints, complaints
    median = statistics.median(times)
    print(f"{folder}: opens in {median:.1f} s (median of 5)")
    assert median < OPENS_S


if __name__ == "__main__":
    main(Path(sys.argv[1]))
