"""The site's page that is tried without installing: JupyterLite with recorded experiments.

It is built from the extension as it is shipped, the script that stands in for its server, and the
recording (docs/decisions/0135). `python -m tests.docs_try FOLDER` opens what was built in Chromium
five times, and prints how long that takes.
"""

from __future__ import annotations

import gzip
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
EXTENSION = ROOT / "det_jupyter/labextension"
SOURCES = ROOT / "docs/site/try"
RECORDING = SOURCES / "recording.json.gz"
START = "lab/index.html"
EXPERIMENTS = ("search", "straggler", "hang", "several computers")


def build_try(folder: Path, out: Path) -> None:
    """Build the page from its sources.

    Args:
        folder: An empty folder for what JupyterLite reads.
        out: Where the page's files are written.
    """
    shutil.copytree(SOURCES, folder, ignore=shutil.ignore_patterns(RECORDING.name))
    extensions = folder / "extensions"
    if not EXTENSION.is_dir():
        sys.exit(f"{EXTENSION} is missing: run `make frontend`, which needs Node")
    shutil.copytree(EXTENSION, extensions / "det-jupyter")
    recorded = extensions / "det-recorded"
    command = ["node", "recorded.mjs", str(recorded)]
    subprocess.run(command, cwd=ROOT / "labextension", check=True)
    text = gzip.decompress(RECORDING.read_bytes())  # some servers would do so, others not
    (recorded / "static/recording.json").write_bytes(text)
    command = [
        *(sys.executable, "-m", "jupyterlite_core", "build", "--apps", "lab"),
        *("--ignore-sys-prefix", "--no-sourcemaps", "--no-unused-shared-packages"),
        *("--lite-dir", str(folder), "--output-dir", str(out)),
        f"--FederatedExtensionAddon.extra_labextensions_path={extensions}",
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


def look_at(folder: Path, times: int = 1) -> None:
    """Open the built page in Chromium, and see the recordings; say how long it takes to open."""
    if not CHROMIUM:
        print(f"{folder} was not opened: there is no Chromium")
        return
    seconds = []
    with served(folder) as address:
        for _ in range(times):
            with chromium_page() as page:
                seconds.append(_opened(page, f"{address}{START}"))
    median = statistics.median(seconds)
    print(f"{folder / START}: opens in {median:.1f} s (median of {times}; 10 s are meant)")


def _opened(page: Page, url: str) -> float:
    """Open the page, and see each recording; return the seconds until the first was drawn."""
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    start = time.monotonic()
    page.goto(url)
    drawn = page.locator(".jp-DetPage:visible")
    expect(drawn).to_contain_text("best error")
    seconds = time.monotonic() - start
    for name in EXPERIMENTS:
        page.locator(".jp-DetSidebar").get_by_text(name, exact=True).last.dblclick()
        expect(drawn).to_contain_text(name)
    expect(page.locator(".jp-DetSidebar")).to_contain_text("rank 0 waits for it in all_reduce")
    assert not complaints, complaints
    return seconds


if __name__ == "__main__":
    look_at(Path(sys.argv[1]), times=5)
