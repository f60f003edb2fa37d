"""The sidebar's list against JupyterLab's WindowedList, in Chromium.

python -m tests.benchmarks.windowed_list [ROWS...]

    first      from the items to the first rows in the page
    last       from the jump to the last row until it is in the page
    created    elements that were created for rows until then
    moved      how far the rows in view move when a row is inserted above them
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.browser.lab import CHROMIUM, FLAGS

ROOT = Path(__file__).parents[2]
LABEXTENSION = ROOT / "labextension"
ROWS = (50, 500, 2000, 10_000)
PAGE = """<!doctype html><style>
.host { width: 300px; height: 700px; position: relative; overflow: hidden }
.row { box-sizing: border-box; overflow: hidden }
.det-list { height: 100%; overflow: auto; position: relative }
.det-list-all { position: relative }
.det-list .row { position: absolute; left: 0; right: 0 }
.jp-WindowedPanel, .jp-WindowedPanel-outer { height: 100%; position: relative }
.jp-WindowedPanel-outer { overflow: auto }
.jp-WindowedPanel-inner { position: relative }
.jp-WindowedPanel-viewport { position: absolute; left: 0; right: 0; display: flow-root }
.jp-WindowedPanel-scrollbar { display: none }
</style><body><script src="bundle.js"></script>"""


def main(all_rows: list[int]) -> None:
    """Print a table of both lists."""
    print(f"{'rows':>7} {'list':<12} {'first':>8} {'last':>9} {'created':>8} {'moved':>7}")
    with tempfile.TemporaryDirectory() as scratch, sync_playwright() as playwright:
        subprocess.run(
            [
                str(LABEXTENSION / "node_modules/.bin/esbuild"),
                str(Path(__file__).with_suffix(".ts")),
                "--bundle",
                f"--outfile={scratch}/bundle.js",
                "--log-level=error",
            ],
            check=True,
            env={**os.environ, "NODE_PATH": str(LABEXTENSION / "node_modules")},
        )
        Path(scratch, "page.html").write_text(PAGE, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for rows in all_rows:
            for name, function in (("ours", "measureOurs"), ("JupyterLab's", "measureTheirs")):
                page = browser.new_page()
                page.goto(f"file://{scratch}/page.html")
                found = page.evaluate(f"{function}({rows})")
                print(
                    f"{rows:>7} {name:<12} {found['firstMs']:>5.0f} ms {found['lastMs']:>6.0f} ms "
                    f"{found['created']:>8.0f} {found['movedPx']:>4.0f} px",
                    flush=True,
                )
                page.close()
        browser.close()


if __name__ == "__main__":
    main([int(argument) for argument in sys.argv[1:]] or list(ROWS))
