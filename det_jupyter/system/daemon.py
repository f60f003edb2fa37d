"""Starting the master as a process that outlives us. Light to import: `%load_ext` uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

from det_jupyter.system import paths


def spawn_master() -> subprocess.Popen[bytes]:
    """Start a master and return at once, before it is ready; if one runs, the new one leaves."""
    log = paths.master_output()
    with open(os.devnull, "rb") as nothing, open(log, "ab", opener=paths.private_opener) as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "det_jupyter.master", "serve"],
            stdin=nothing,
            stdout=out,
            stderr=out,
            start_new_session=True,  # not in our terminal's or kernel's process group
            cwd=paths.data_dir(),
        )
    # It outlives us, or leaves at once because a master runs: waiting for it leaves no zombie.
    threading.Thread(target=process.wait, name="det-master-start", daemon=True).start()
    return process
