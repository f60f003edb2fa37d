"""`det tensorboard start`: the metrics of experiments, as TensorBoard shows them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from det_jupyter.client.event_files import write_event_files
from det_jupyter.verbs.finding import numbers_of
from det_jupyter.verbs.grammar import Call


def start(call: Call) -> str | int:
    """Write event files of experiments; serve them, and keep them current, until Ctrl-C."""
    given = call.options
    root = Path(given.logdir or "tensorboard").expanduser().resolve()
    followed = [
        write_event_files(call.client, number, None, root / f"experiment-{number}")
        for number in numbers_of(call)
    ]
    try:
        if given.no_serve:
            return f"Wrote {root}; `tensorboard --logdir {root}` shows it."
        port = [] if given.port is None else ["--port", str(given.port)]
        command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(root), *port]
        return subprocess.call(command)
    finally:
        for files in followed:
            files.stop()
