"""Starts the master as a detached process. Light to import: `%load_ext` uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from det_jupyter.contract.host import paths
from det_jupyter.contract.host.rundir import without_run


def spawn_master() -> subprocess.Popen[bytes]:
    """Start a master and return at once, before it is ready; it exits if another one runs."""
    log = paths.master_output()
    with open(os.devnull, "rb") as nothing, open(log, "ab", opener=paths.private_opener) as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.master", "serve"],
            stdin=nothing,
            stdout=out,
            stderr=out,
            start_new_session=True,  # not in the process group of our terminal or kernel
            cwd=paths.data_dir(),
            env=without_run(os.environ),  # a script of an experiment may start one
        )
    # It may exit at once because another master runs: `wait` leaves no zombie.
    threading.Thread(target=process.wait, name="det-master-start", daemon=True).start()
    return process
